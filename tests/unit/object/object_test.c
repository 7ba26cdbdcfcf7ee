// Objects: handles, names, types, edges, creation sites.
#ifndef ND_TRACK_SITES
#define ND_TRACK_SITES
#endif
#include "lib/base/alloc.h"
#include "lib/object/object.h"
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void test_object_retain_and_release_count(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    assert_int_equal(nd_get_count(x), 1);
    const nd_object *borrowed = x;
    nd_object *second = nd_retain(borrowed);
    assert_ptr_equal(second, x);
    assert_int_equal(nd_get_count(x), 2);
    nd_release(x);
    assert_int_equal(cell_deaths(0), 0);
    nd_release(second);
    assert_int_equal(cell_deaths(0), 1);
}

static void test_object_null_is_a_handle_of_nothing(void **state) {
    (void)state;
    nd_object *nothing = NULL;
    assert_null(nd_retain(nothing));
    nd_release(nothing);
    assert_int_equal(nd_get_count(NULL), 0);
    assert_string_equal(nd_get_type_name(NULL), "NULL");
    assert_null(nd_object_get_type(NULL));
    assert_null(nd_object_get_data(NULL));
    assert_null(nd_get_manager(NULL));
    assert_false(nd_is_closed(NULL));
    nd_object *slot = NULL;
    nd_edge_clear(&slot);
    nd_edge_set(&slot, NULL);
    assert_null(nd_edge_take(&slot));
}

static nd_object *made_and_stolen(void) {
    nd_auto nd_object *x = cell_new(0, 0);
    nd_auto nd_object *dropped = cell_new(1, 0);
    (void)dropped;
    return nd_steal(&x);
}

static void test_object_auto_and_steal(void **state) {
    (void)state;
    cell_begin(2);
    nd_object *x = made_and_stolen();
    assert_int_equal(cell_deaths(1), 1);
    assert_int_equal(cell_deaths(0), 0);
    assert_int_equal(nd_get_count(x), 1);
    nd_release(x);
}

static void test_object_payload_is_zero_and_aligned(void **state) {
    (void)state;
    static const nd_type plain = {.size = sizeof(nd_type), .version = 1, .name = "plain"};
    for (size_t size = 0; size < 300; size += 7) {
        nd_object *x = nd_object_new(&plain, size);
        assert_handle(x);
        const unsigned char *data = nd_object_get_data(x);
        size_t alignment = size <= 8 ? 8 : _Alignof(max_align_t);
        assert_int_equal((uintptr_t)data % alignment, 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(data[i], 0);
        assert_ptr_equal(nd_object_get_type(x), &plain);
        assert_string_equal(nd_get_type_name(x), "plain");
        nd_release(x);
    }
}

static void test_object_bad_types_are_refused(void **state) {
    (void)state;
    static const nd_type bad[] = {
        {.size = 0, .version = 1, .name = "no size"},
        {.size = sizeof(nd_type), .version = 2, .name = "of the future"},
        {.size = sizeof(nd_type), .version = 1, .name = NULL},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        nd_error_clear();
        assert_null(nd_object_new(&bad[i], 8));
        assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    }
    nd_error_clear();
    assert_null(nd_object_new(NULL, 8));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_null(nd_object_new(&cell_type, SIZE_MAX - 8));
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
}

static void test_object_edges(void **state) {
    (void)state;
    cell_begin(3);
    nd_object *owner = cell_new(0, 2), *a = cell_new(1, 0), *b = cell_new(2, 0);
    cell *payload = cell_of(owner);
    nd_edge_set(&payload->edges[0], a);
    assert_int_equal(nd_get_count(a), 2);
    nd_edge_set(&payload->edges[0], a); // onto itself
    assert_int_equal(nd_get_count(a), 2);
    nd_edge_set(&payload->edges[0], b);
    assert_int_equal(nd_get_count(a), 1);
    assert_int_equal(nd_get_count(b), 2);
    nd_object *taken = nd_edge_take(&payload->edges[0]);
    assert_ptr_equal(taken, b);
    assert_null(payload->edges[0]);
    assert_int_equal(nd_get_count(b), 2);
    nd_release(taken);
    nd_edge_set(&payload->edges[1], a);
    nd_edge_clear(&payload->edges[1]);
    nd_edge_clear(&payload->edges[1]);
    assert_int_equal(nd_get_count(a), 1);
    nd_release(a);
    nd_release(b);
    nd_release(owner);
}

static void test_object_names(void **state) {
    (void)state;
    cell_begin(2);
    char buffer[16];
    nd_object *x = cell_new(0, 0), *y = cell_new(1, 0);
    assert_string_equal(nd_get_name(x, buffer, sizeof buffer), "");
    char name[] = "weight";
    assert_ok(nd_set_name(x, name));
    name[0] = '?'; // it was copied
    assert_string_equal(nd_get_name(x, buffer, sizeof buffer), "weight");
    assert_string_equal(nd_get_name(y, buffer, sizeof buffer), "");
    assert_ok(nd_set_name(x, "another"));
    assert_string_equal(nd_get_name(x, buffer, sizeof buffer), "another");
    assert_string_equal(nd_get_name(x, buffer, 4), "ano");
    assert_ok(nd_set_name(x, NULL));
    assert_string_equal(nd_get_name(x, buffer, sizeof buffer), "");
    assert_ok(nd_set_name(x, "last"));
    nd_release(x);
    nd_release(y);
    assert_string_equal(nd_get_name(NULL, buffer, sizeof buffer), "");
    assert_int_equal(nd_set_name(NULL, "nobody"), ND_ERROR_INVALID_ARGUMENT);
}

static void test_object_name_dies_with_the_object(void **state) {
    (void)state;
    // Addresses are used again: no new object may find an old one's name.
    cell_begin(1);
    char buffer[16];
    for (int i = 0; i < 2000; i++) {
        nd_object *x = cell_new(0, 0);
        assert_string_equal(nd_get_name(x, buffer, sizeof buffer), "");
        assert_ok(nd_set_name(x, "old"));
        nd_release(x);
    }
    nd_object *many[3000];
    for (int i = 0; i < 3000; i++) {
        many[i] = cell_new(0, 0);
        snprintf(buffer, sizeof buffer, "n%d", i);
        assert_ok(nd_set_name(many[i], buffer));
    }
    for (int i = 0; i < 3000; i++) {
        char expected[16];
        snprintf(expected, sizeof expected, "n%d", i);
        assert_string_equal(nd_get_name(many[i], buffer, sizeof buffer), expected);
        nd_release(many[i]);
    }
}

/// No memory for a table that is doubled; there is for a name.
static bool refuse_large(size_t bytes) {
    return bytes > 4096;
}

static void test_tables_of_names_and_weak_references_grow(void **state) {
    (void)state;
    // More names than the first table has places, and more targets than those of weak references.
    enum { COUNT = 150000 };
    cell_begin(1);
    nd_object **objects = malloc(COUNT * sizeof *objects);
    nd_weak **weak = malloc(COUNT * sizeof *weak);
    char name[16], got[16];
    for (int i = 0; i < COUNT; i++) {
        objects[i] = cell_new(0, 0);
        nd__alloc_should_fail = i / 10000 % 2 ? refuse_large : NULL;
        weak[i] = nd_weak_new(objects[i]);
        snprintf(name, sizeof name, "n%d", i);
        if (i % 5 == 0)
            assert_ok(nd_set_name(objects[i], name));
    }
    nd__alloc_should_fail = NULL;
    for (int i = 0; i < COUNT; i++) {
        nd_object *held = nd_weak_get(weak[i]);
        assert_ptr_equal(held, objects[i]);
        nd_release(held);
        name[0] = '\0';
        if (i % 5 == 0)
            snprintf(name, sizeof name, "n%d", i);
        assert_string_equal(nd_get_name(objects[i], got, sizeof got), name);
    }
    // Every other one goes, and the others are still found; then all.
    for (int i = 0; i < COUNT; i += 2)
        nd_release(objects[i]);
    for (int i = 0; i < COUNT; i++) {
        nd_object *held = nd_weak_get(weak[i]);
        assert_ptr_equal(held, i % 2 ? objects[i] : NULL);
        nd_release(held);
    }
    for (int i = 1; i < COUNT; i += 2)
        nd_release(objects[i]);
    for (int i = 0; i < COUNT; i++) {
        assert_null(nd_weak_get(weak[i]));
        nd_release(weak[i]);
    }
    // Both tables begin anew.
    nd_object *x = cell_new(0, 0);
    nd_weak *last = nd_weak_new(x);
    assert_ok(nd_set_name(x, "x"));
    assert_string_equal(nd_get_name(x, got, sizeof got), "x");
    nd_release(x);
    assert_null(nd_weak_get(last));
    nd_release(last);
    free(objects);
    free(weak);
}

/// Holds a list, and lets go of it in `clear`, although it is no part of cycles.
static void box_clear(nd_object *self) {
    nd_edge_clear((nd_list **)nd_object_get_data(self));
}

static const nd_type box_type = {.size = sizeof box_type,
                                 .version = 1,
                                 .name = "box",
                                 .flags = ND_TYPE_GREEN,
                                 .clear = box_clear};

static nd_object *box_new(const nd_list *list) {
    nd_object *box = nd_object_new(&box_type, sizeof list);
    assert_handle(box);
    nd_edge_set((nd_list **)nd_object_get_data(box), list);
    return box;
}

static void *end_at_once(void *data) {
    return data;
}

static void release_boxes(void) {
    nd_list *list = nd_list_new(), *outer = nd_list_new();
    nd_object *box = box_new(list), *inside = box_new(list), *twice = nd_retain(box);
    assert_int_equal(nd_get_count(list), 3);
    nd_release(box);
    assert_int_equal(nd_get_count(list), 3);
    nd_release(twice); // alone
    assert_int_equal(nd_get_count(list), 2);
    assert_ok(nd_list_append(outer, inside));
    nd_release(inside);
    nd_release(outer); // dies with another one
    assert_int_equal(nd_get_count(list), 1);
    nd_release(list);
}

static void test_object_of_a_green_type_lets_go_of_what_it_holds(void **state) {
    (void)state;
    release_boxes();
    pthread_t thread; // from here on the process counts as one with several
    assert_int_equal(pthread_create(&thread, NULL, end_at_once, NULL), 0);
    pthread_join(thread, NULL);
    release_boxes();
}

static int inner_line;

static nd_object *make_inner(void) {
    inner_line = __LINE__ + 1;
    return nd_object_new(&cell_type, sizeof(cell));
}

static void assert_made_at(const void *object, int line) {
    char site[128], expected[32];
    snprintf(expected, sizeof expected, "/object_test.c:%d", line);
    nd_debug_get_site(object, site, sizeof site);
    if (!strstr(site, expected))
        fail_msg("made at %s, should be %s", site, expected);
}

static void test_object_creation_sites(void **state) {
    (void)state;
    nd_list *list = nd_list_new();
    assert_made_at(list, __LINE__ - 1);
    // The object of a call among the arguments belongs to that call, what the outer call makes to
    // the outer one.
    nd_object *inner = NULL;
    nd_weak *weak = nd_weak_new(inner = make_inner());
    assert_made_at(weak, __LINE__ - 1);
    assert_made_at(inner, inner_line);
    nd_release(weak);
    nd_release(inner);
    nd_release(list);
}

static void test_object_without_creation_site(void **state) {
    (void)state;
    char site[16] = "?";
    nd_object *unknown = (nd_object_new)(&cell_type, sizeof(cell));
    assert_string_equal(nd_debug_get_site(unknown, site, sizeof site), "");
    nd_release(unknown);
    nd_debug_track_sites(false);
    nd_object *untracked = nd_object_new(&cell_type, sizeof(cell));
    nd_debug_track_sites(true);
    assert_string_equal(nd_debug_get_site(untracked, site, sizeof site), "");
    nd_release(untracked);
    nd_release(nd_manager_new(NULL, "tracked")); // whose memory the next one has
    nd_debug_track_sites(false);
    nd_manager *manager = nd_manager_new(NULL, "untracked");
    nd_debug_track_sites(true);
    assert_string_equal(nd_debug_get_site(manager, site, sizeof site), "");
    nd_release(manager);
    assert_string_equal(nd_debug_get_site(NULL, site, sizeof site), "");
}

static nd_object *crowded;
static nd_weak *crowded_weak;
static void retain_crowded(void) {
    (void)!nd_retain(crowded);
}
static void upgrade_crowded(void) {
    (void)!nd_weak_get(crowded_weak);
}
static void link_crowded(void) {
    nd_object *edge = NULL;
    nd_edge_set(&edge, crowded);
}

/// Every way to one more count than there may be.
static void test_object_count_beyond_its_limit_stops_the_program(void **state) {
    (void)state;
    void (*const ways[])(void) = {retain_crowded, upgrade_crowded, link_crowded};
    cell_begin(1);
    crowded = cell_new(0, 0);
    crowded_weak = nd_weak_new(crowded);
    const uint64_t before = nd__atomic_load_relaxed(&crowded->word);
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        nd__atomic_store(&crowded->word, before + ND__COUNT_LIMIT - 2, relaxed);
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            signal(SIGABRT, SIG_DFL);
            fclose(stderr);
            ways[i]();
            _exit(0);
        }
        int status;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGABRT)
            fail_msg("way %zu goes on", i);
        nd__atomic_store(&crowded->word, before + ND__COUNT_LIMIT - 3, relaxed);
        ways[i](); // to the limit itself
        assert_int_equal(nd_get_count(crowded), ND__COUNT_LIMIT - 1);
    }
    nd__atomic_store(&crowded->word, before, relaxed);
    nd_release(crowded_weak);
    nd_release(crowded);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_object_retain_and_release_count),
        ND_TEST(test_object_null_is_a_handle_of_nothing),
        ND_TEST(test_object_auto_and_steal),
        ND_TEST(test_object_payload_is_zero_and_aligned),
        ND_TEST(test_object_bad_types_are_refused),
        ND_TEST(test_object_edges),
        ND_TEST(test_object_names),
        ND_TEST(test_object_name_dies_with_the_object),
        ND_TEST(test_tables_of_names_and_weak_references_grow),
        ND_TEST(test_object_creation_sites),
        ND_TEST(test_object_without_creation_site),
        ND_TEST(test_object_count_beyond_its_limit_stops_the_program),
        ND_TEST(test_object_of_a_green_type_lets_go_of_what_it_holds), // last: a second thread
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
