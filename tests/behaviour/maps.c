// Maps: what they hold, in what order, under what names, and what they refuse; a long random
// program against a plain model; one million names.
#include "lib/base/alloc.h"
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>

static void set_new(nd_map *map, const char *name, uint32_t number) {
    nd_object *object = cell_new(number, 1);
    assert_ok(nd_map_set(map, name, object));
    nd_release(object);
}

static uint32_t number_of(const nd_map *map, const char *name) {
    const nd_object *object = nd_map_get(map, name);
    assert_handle(object);
    return cell_of(object)->number;
}

static void test_B32_map_holds_objects_by_name_in_their_order(void **state) {
    (void)state;
    cell_begin(4);
    nd_map *map = nd_map_new();
    assert_handle(map);
    assert_int_equal(nd_map_get_size(map), 0);
    set_new(map, "one", 0);
    set_new(map, "", 1);
    set_new(map, "a name that is longer than a few words of the hash", 2);
    assert_int_equal(nd_map_get_size(map), 3);
    assert_int_equal(number_of(map, "one"), 0);
    assert_int_equal(number_of(map, ""), 1);
    assert_true(nd_map_contains(map, "a name that is longer than a few words of the hash"));
    assert_false(nd_map_contains(map, "a name that is longer than a few words of the hasi"));
    set_new(map, "one", 3); // in the place of the first
    assert_int_equal(cell_deaths(0), 1);
    static const uint32_t numbers[] = {3, 1, 2};
    const char *name;
    const nd_object *object;
    size_t count = 0;
    for (size_t at = 0; nd_map_next(map, &at, &name, &object); count++) {
        assert_int_equal(cell_of(object)->number, numbers[count]);
        assert_ptr_equal(nd_map_get(map, name), object);
    }
    assert_int_equal(count, 3);
    nd_object *taken = nd_map_remove(map, "");
    assert_int_equal(nd_get_count(taken), 1);
    nd_release(taken);
    assert_int_equal(nd_map_get_size(map), 2);
    assert_false(nd_map_contains(map, ""));
    nd_release(map);
    assert_int_equal(cell_total_deaths(), 4);
    cell_end();
}

static void test_B32_map_refuses_what_is_wrong(void **state) {
    (void)state;
    cell_begin(1);
    nd_map *map = nd_map_new();
    set_new(map, "there", 0);
    assert_int_equal(nd_map_set(NULL, "x", map), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_map_set(map, NULL, map), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_map_set(map, "x", NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_null(nd_map_get(map, "missing"));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    assert_string_equal(nd_error_get_message(),
                        "map_get: nothing is called 'missing' in a map of 1 names");
    nd_error_clear();
    assert_null(nd_map_remove(map, "missing"));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    assert_null(nd_map_get(NULL, "x"));
    assert_null(nd_map_get(map, NULL));
    assert_null(nd_map_remove(NULL, NULL));
    assert_int_equal(nd_map_clear(NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_false(nd_map_contains(NULL, "x"));
    assert_false(nd_map_contains(map, NULL));
    assert_int_equal(nd_map_get_size(NULL), 0);
    size_t at = 0;
    assert_false(nd_map_next(NULL, &at, NULL, NULL));
    assert_int_equal(nd_map_get_size(map), 1);
    nd_error_clear();
    assert_ok(nd_close(map));
    assert_int_equal(cell_deaths(0), 1);
    assert_int_equal(nd_map_set(map, "x", map), ND_ERROR_CLOSED);
    assert_null(nd_map_get(map, "there"));
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    assert_null(nd_map_remove(map, "there"));
    assert_int_equal(nd_map_clear(map), ND_ERROR_CLOSED);
    assert_false(nd_map_contains(map, "there"));
    assert_int_equal(nd_map_get_size(map), 0);
    at = 0;
    assert_false(nd_map_next(map, &at, NULL, NULL));
    nd_release(map);
    cell_end();
}

static void test_B32_list_sets_inserts_removes_and_pops(void **state) {
    (void)state;
    enum { STEPS = 4000, MOST = 60 };
    cell_begin(STEPS);
    nd_list *list = nd_list_new();
    uint32_t model[MOST], count = 0;
    uint64_t random = 2463534242u;
    for (uint32_t number = 0; number < STEPS; number++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        uint32_t what = (uint32_t)(random % 5), index = (uint32_t)(random / 5 % (count + 1));
        nd_object *made = cell_new(number, 0), *taken = NULL;
        if (what < 2 && count < MOST) {
            assert_ok(nd_list_insert(list, index, made));
            memmove(model + index + 1, model + index, (count - index) * sizeof *model);
            model[index] = number;
            count++;
        } else if (what == 2 && index < count) {
            uint32_t before = model[index];
            assert_ok(nd_list_set(list, index, made));
            assert_int_equal(cell_deaths(before), 1);
            model[index] = number;
        } else if (what == 3 && index < count) {
            taken = nd_list_remove(list, index);
            assert_int_equal(cell_of(taken)->number, model[index]);
            memmove(model + index, model + index + 1, (--count - index) * sizeof *model);
        } else if (what == 4 && count) {
            taken = nd_list_pop(list);
            assert_int_equal(cell_of(taken)->number, model[--count]);
        }
        if (taken)
            assert_int_equal(nd_get_count(taken), 1);
        nd_release(taken);
        nd_release(made);
        assert_int_equal(nd_list_get_size(list), count);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(cell_of(nd_list_get(list, i))->number, model[i]);
        assert_int_equal(cell_total_deaths(), number + 1 - count);
    }
    nd_release(list);
    assert_int_equal(cell_total_deaths(), STEPS);
    cell_end();
}

static void test_B32_list_says_which_index_is_wrong(void **state) {
    (void)state;
    cell_begin(1);
    nd_list *list = nd_list_new();
    nd_object *item = cell_new(0, 0);
    assert_null(nd_list_pop(list));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    assert_string_equal(nd_error_get_message(), "list_pop: the list is empty");
    assert_int_equal(nd_list_insert(list, 1, item), ND_ERROR_INVALID_ARGUMENT);
    assert_string_equal(nd_error_get_message(),
                        "list_insert: index 1 is out of range, the list has 0 items");
    assert_ok(nd_list_insert(list, 0, item));
    assert_int_equal(nd_list_set(list, 1, item), ND_ERROR_INVALID_ARGUMENT);
    assert_string_equal(nd_error_get_message(),
                        "list_set: index 1 is out of range, the list has 1 items");
    assert_null(nd_list_remove(list, SIZE_MAX));
    nd_error_clear();
    assert_int_equal(nd_list_insert(list, 0, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_list_set(list, 0, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_list_insert(NULL, 0, item), ND_ERROR_INVALID_ARGUMENT);
    assert_null(nd_list_remove(NULL, 0));
    assert_null(nd_list_pop(NULL));
    assert_int_equal(nd_get_count(item), 2);
    nd_error_clear();
    assert_ok(nd_close(list));
    assert_int_equal(nd_list_set(list, 0, item), ND_ERROR_CLOSED);
    assert_int_equal(nd_list_insert(list, 0, item), ND_ERROR_CLOSED);
    assert_null(nd_list_pop(list));
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    assert_int_equal(nd_get_count(item), 1);
    nd_release(item);
    nd_release(list);
    cell_end();
}

// ---------------------------------------------------------------------------------- random program

enum { NAMES = 300 };

/// What the map must be: names in order, the number of each one's cell.
typedef struct model {
    uint32_t names[NAMES], numbers[NAMES], count;
} model;

static uint32_t place_in(const model *m, uint32_t name) {
    uint32_t i = 0;
    while (i < m->count && m->names[i] != name)
        i++;
    return i;
}

static void name_text(char *text, size_t size, uint32_t name) {
    snprintf(text, size, name % 3 ? "%u" : "a longer name, for the hash's loop over words: %u",
             name);
}

static void check_against(const nd_map *map, const model *m) {
    const char *name;
    const nd_object *object;
    uint32_t i = 0;
    assert_int_equal(nd_map_get_size(map), m->count);
    for (size_t at = 0; nd_map_next(map, &at, &name, &object); i++) {
        char text[64];
        assert_true(i < m->count);
        name_text(text, sizeof text, m->names[i]);
        assert_string_equal(name, text);
        assert_int_equal(cell_of(object)->number, m->numbers[i]);
    }
    assert_int_equal(i, m->count);
}

static void remove_at(model *m, uint32_t place) {
    m->count--;
    memmove(m->names + place, m->names + place + 1, (m->count - place) * sizeof *m->names);
    memmove(m->numbers + place, m->numbers + place + 1, (m->count - place) * sizeof *m->numbers);
}

static void test_B32_map_against_a_model(void **state) {
    (void)state;
    enum { STEPS = 60000 / ND_TEST_SCALE };
    cell_begin(STEPS);
    nd_map *map = nd_map_new();
    model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    uint64_t random = 88172645463325252u;
    for (uint32_t step = 0; step < STEPS; step++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // Tides: names come for a while, then they go.
        bool rising = step / 2000 % 2 == 0;
        uint32_t name = (uint32_t)(random >> 20) % NAMES, place = place_in(m, name);
        char text[64];
        name_text(text, sizeof text, name);
        assert_int_equal(nd_map_contains(map, text), place < m->count);
        if (random % 4 < (rising ? 3u : 1u)) {
            set_new(map, text, step);
            m->names[place] = name;
            m->numbers[place] = step;
            m->count += place == m->count;
        } else if (place < m->count) {
            nd_object *taken = nd_map_remove(map, text);
            assert_int_equal(cell_of(taken)->number, m->numbers[place]);
            nd_release(taken);
            remove_at(m, place);
        }
        if (random % 5000 == 7) {
            assert_ok(nd_map_clear(map));
            m->count = 0;
        }
        if (step % 16 == 0)
            check_against(map, m);
    }
    nd_release(map);
    free(m);
    assert_int_equal(nd_manager_get_total_objects(NULL), nd_test_objects_before);
    cell_end();
}

static void test_B32_names_may_be_removed_during_a_walk(void **state) {
    (void)state;
    enum { COUNT = 1000 };
    cell_begin(COUNT);
    nd_map *map = nd_map_new();
    char text[16];
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(text, sizeof text, "%u", i);
        set_new(map, text, i);
    }
    const char *name;
    uint32_t met = 0;
    for (size_t at = 0; nd_map_next(map, &at, &name, NULL); met++)
        if (met % 3) {
            snprintf(text, sizeof text, "%s", name);
            nd_release(nd_map_remove(map, text));
        }
    assert_int_equal(met, COUNT);
    uint32_t left = 0;
    for (size_t at = 0; nd_map_next(map, &at, &name, NULL); left++)
        assert_int_equal(atoi(name), 3 * left);
    assert_int_equal(left, (COUNT + 2) / 3);
    // One name after the other from the front, as from a queue.
    for (size_t at = 0; nd_map_next(map, &at, &name, NULL); at = 0) {
        snprintf(text, sizeof text, "%s", name);
        nd_release(nd_map_remove(map, text));
    }
    assert_int_equal(cell_total_deaths(), COUNT);
    nd_release(map);
    cell_end();
}

static void test_B32_order_begins_anew_after_a_clear(void **state) {
    (void)state;
    cell_begin(4);
    nd_map *map = nd_map_new();
    set_new(map, "one", 0);
    set_new(map, "two", 1);
    assert_ok(nd_map_clear(map));
    // The only name goes, and another one comes: the walk finds it behind the place that is free.
    set_new(map, "one", 2);
    nd_release(nd_map_remove(map, "one"));
    set_new(map, "two", 3);
    const char *name = NULL;
    size_t at = 0;
    assert_true(nd_map_next(map, &at, &name, NULL));
    assert_string_equal(name, "two");
    assert_false(nd_map_next(map, &at, &name, NULL));
    assert_int_equal(cell_total_deaths(), 3);
    nd_release(map);
    assert_int_equal(cell_total_deaths(), 4);
    cell_end();
}

static void test_B32_map_of_1000000_names(void **state) {
    (void)state;
    enum { COUNT = 1000000 / ND_TEST_SCALE };
    nd_map *map = nd_map_new(), *value = nd_map_new();
    char name[64];
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "encoder.layer.%u.attention.weight", i * 64);
        assert_ok(nd_map_set(map, name, value));
    }
    assert_int_equal(nd_map_get_size(map), COUNT);
    assert_int_equal(nd_get_count(value), 1 + COUNT);
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "encoder.layer.%u.attention.weight", i * 64);
        assert_ptr_equal(nd_map_get(map, name), value);
        snprintf(name, sizeof name, "encoder.layer.%u.attention.weight", i * 64 + 1);
        assert_false(nd_map_contains(map, name));
    }
    assert_ok(nd_map_clear(map));
    assert_int_equal(nd_get_count(value), 1);
    nd_release(value);
    nd_release(map);
}

// ------------------------------------------------------------------------- cycles, reports, memory

static void test_B32_cycles_through_maps_and_lists_are_found(void **state) {
    (void)state;
    cell_begin(2);
    nd_map *map = nd_map_new();
    nd_list *list = nd_list_new();
    set_new(map, "cell", 0);
    assert_ok(nd_map_set(map, "list", list));
    assert_ok(nd_list_append(list, list));
    assert_ok(nd_list_set(list, 0, map));
    assert_ok(nd_set_name(map, "registry"));
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    assert_ok(nd_debug_holders(nd_map_get(map, "cell"), stream));
    fclose(stream);
    if (!strstr(text, "map(registry) -cell-> "))
        fail_msg("%s", text);
    free(text);
    nd_release(list);
    nd_release(map);
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(NULL, &report));
    assert_int_equal(cell_deaths(0), 1);
    cell_end();
}

static int fails_in;
static bool fail_later(size_t bytes) {
    (void)bytes;
    return fails_in > 0 && --fails_in == 0;
}

static void test_B32_map_without_memory_stays_as_it_was(void **state) {
    (void)state;
    cell_begin(64);
    nd_map *map = nd_map_new();
    for (uint32_t i = 0; i < 40; i++) {
        nd_object *object = cell_new(i, 0);
        char text[32];
        snprintf(text, sizeof text, "name %u", i);
        nd_status status = ND_ERROR_OUT_OF_MEMORY;
        for (int n = 1; status == ND_ERROR_OUT_OF_MEMORY; n++) {
            assert_int_equal(nd_map_get_size(map), i);
            assert_false(nd_map_contains(map, text));
            fails_in = n;
            nd__alloc_should_fail = fail_later;
            status = nd_map_set(map, text, object);
            nd__alloc_should_fail = NULL;
            nd_error_clear();
        }
        assert_ok(status);
        nd_release(object);
        for (uint32_t k = 0; k <= i; k++) {
            snprintf(text, sizeof text, "name %u", k);
            assert_int_equal(number_of(map, text), k);
        }
    }
    nd_release(map);
    cell_end();
}

static bool closes_map(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    nd_close(data);
    return true;
}

static void test_B32_map_that_is_closed_while_it_grows_takes_nothing(void **state) {
    (void)state;
    for (int n = 1; n <= 3; n++) { // the name, the entries, the index
        nd_map *map = nd_map_new(), *value = nd_map_new();
        nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
        callback.give_up = closes_map;
        callback.data = map;
        assert_ok(nd_memory_set_callback(NULL, &callback));
        fails_in = n;
        nd__alloc_should_fail = fail_later;
        assert_int_equal(nd_map_set(map, "name", value), ND_ERROR_CLOSED);
        nd__alloc_should_fail = NULL;
        assert_ok(nd_memory_set_callback(NULL, NULL));
        nd_error_clear();
        assert_int_equal(nd_get_count(value), 1);
        nd_release(value);
        nd_release(map);
    }
}

static nd_map *set_meanwhile;

static bool sets_the_name(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    return nd_map_set(data, "name", set_meanwhile) == ND_OK;
}

static void test_B32_name_that_is_set_while_the_map_grows_is_there_once(void **state) {
    (void)state;
    for (int n = 1; n <= 3; n++) { // the name, the entries, the index
        nd_map *map = nd_map_new(), *value = nd_map_new();
        set_meanwhile = nd_map_new();
        nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
        callback.give_up = sets_the_name;
        callback.data = map;
        assert_ok(nd_memory_set_callback(NULL, &callback));
        fails_in = n;
        nd__alloc_should_fail = fail_later;
        assert_ok(nd_map_set(map, "name", value));
        nd__alloc_should_fail = NULL;
        assert_ok(nd_memory_set_callback(NULL, NULL));
        assert_int_equal(nd_map_get_size(map), 1);
        assert_ptr_equal(nd_map_get(map, "name"), value);
        assert_int_equal(nd_get_count(value), 2);
        assert_int_equal(nd_get_count(set_meanwhile), 1);
        nd_release(set_meanwhile);
        nd_release(value);
        nd_release(map);
    }
}

// ---------------------------------------------------------------------------- beside other threads

static _Atomic bool stop;

static void *look(void *data) {
    FILE *null = fopen("/dev/null", "w");
    while (null && !stop) {
        nd_debug_dump_dot(NULL, null, 0);
        nd_gc_collect(NULL, NULL);
    }
    if (null)
        fclose(null);
    return data;
}

static void test_B32_map_and_list_beside_collections_and_reports(void **state) {
    (void)state;
    enum { STEPS = 20000 / ND_TEST_SCALE, KINDS = 50 };
    cell_begin(1);
    pthread_t thread;
    stop = false;
    assert_int_equal(pthread_create(&thread, NULL, look, NULL), 0);
    nd_map *map = nd_map_new();
    nd_list *list = nd_list_new();
    assert_ok(nd_map_set(map, "itself", map));
    assert_ok(nd_map_set(map, "list", list));
    for (uint32_t i = 0; i < STEPS; i++) {
        char text[32];
        snprintf(text, sizeof text, "kind %u", i * 7 % KINDS);
        nd_list *made = nd_list_new();
        assert_ok(nd_list_append(made, map));
        assert_ok(nd_map_set(map, text, made));
        assert_ok(nd_list_insert(list, 0, made));
        if (nd_list_get_size(list) > 20)
            nd_release(nd_list_remove(list, i % 20));
        nd_release(made);
        snprintf(text, sizeof text, "kind %u", i * 11 % KINDS);
        if (nd_map_contains(map, text))
            nd_release(nd_map_remove(map, text));
        if (i % 1000 == 999) {
            assert_ok(nd_map_clear(map));
            assert_ok(nd_list_clear(list));
        }
    }
    stop = true;
    assert_int_equal(pthread_join(thread, NULL), 0);
    nd_release(map);
    nd_release(list);
    assert_ok(nd_gc_collect(NULL, NULL));
    cell_end();
}

static nd_map *cleared_map;

// An object whose death releases the map that is being cleared.
static void release_the_map(nd_object *self) {
    if (cell_of(self)->number == 1)
        nd_release(cleared_map);
}

static void test_B32_map_is_released_while_its_objects_die(void **state) {
    (void)state;
    cell_begin(3);
    cleared_map = nd_map_new();
    set_new(cleared_map, "a", 0);
    set_new(cleared_map, "b", 1);
    set_new(cleared_map, "c", 2);
    cell_on_destroy = release_the_map;
    assert_ok(nd_map_clear(cleared_map));
    assert_int_equal(cell_total_deaths(), 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B32_map_holds_objects_by_name_in_their_order),
        ND_TEST(test_B32_map_refuses_what_is_wrong),
        ND_TEST(test_B32_list_sets_inserts_removes_and_pops),
        ND_TEST(test_B32_list_says_which_index_is_wrong),
        ND_TEST(test_B32_map_against_a_model),
        ND_TEST(test_B32_names_may_be_removed_during_a_walk),
        ND_TEST(test_B32_order_begins_anew_after_a_clear),
        ND_TEST(test_B32_map_of_1000000_names),
        ND_TEST(test_B32_cycles_through_maps_and_lists_are_found),
        ND_TEST(test_B32_map_without_memory_stays_as_it_was),
        ND_TEST(test_B32_map_that_is_closed_while_it_grows_takes_nothing),
        ND_TEST(test_B32_name_that_is_set_while_the_map_grows_is_there_once),
        ND_TEST(test_B32_map_is_released_while_its_objects_die),
        ND_TEST(test_B32_map_and_list_beside_collections_and_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
