// Lists and resources: what they hold, for how long, and what they refuse.
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <stdlib.h>

static void test_list_holds_its_items_in_order(void **state) {
    (void)state;
    enum { ITEMS = 1000 };
    cell_begin(ITEMS);
    nd_list *list = nd_list_new();
    assert_int_equal(nd_list_get_size(list), 0);
    for (uint32_t i = 0; i < ITEMS; i++) {
        nd_object *item = cell_new(i, 0);
        assert_ok(nd_list_append(list, item));
        assert_int_equal(nd_get_count(item), 2);
        nd_release(item);
    }
    assert_int_equal(nd_list_get_size(list), ITEMS);
    for (uint32_t i = 0; i < ITEMS; i++)
        assert_int_equal(cell_of(nd_list_get(list, i))->number, i);
    assert_int_equal(cell_total_deaths(), 0);
    assert_ok(nd_list_clear(list));
    assert_int_equal(nd_list_get_size(list), 0);
    assert_int_equal(cell_total_deaths(), ITEMS);
    assert_ok(nd_list_append(list, list));
    assert_ok(nd_list_clear(list));
    nd_release(list);
}

static void test_list_same_item_twice_and_lists_in_lists(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *item = cell_new(0, 0);
    nd_list *inner = nd_list_new(), *outer = nd_list_new();
    assert_ok(nd_list_append(inner, item));
    assert_ok(nd_list_append(inner, item));
    assert_int_equal(nd_get_count(item), 3);
    assert_ok(nd_list_append(outer, inner));
    nd_release(inner);
    nd_release(item);
    assert_int_equal(cell_deaths(0), 0);
    nd_release(outer);
    assert_int_equal(cell_deaths(0), 1);
}

static void test_list_refuses_bad_arguments(void **state) {
    (void)state;
    nd_list *list = nd_list_new();
    assert_int_equal(nd_list_append(list, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_list_append(NULL, list), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_list_clear(NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_list_get_size(NULL), 0);
    nd_error_clear();
    assert_null(nd_list_get(list, 0));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(nd_error_get_message(), "out of range"));
    assert_null(nd_list_get(list, SIZE_MAX));
    assert_null(nd_list_get(NULL, 0));
    assert_int_equal(nd_list_get_size(list), 0);
    nd_release(list);
}

static nd_list *cleared_list;

/// Makes it, with ten items that live by it alone.
static void fill_cleared_list(void) {
    cell_begin(10);
    cleared_list = nd_list_new();
    for (uint32_t i = 0; i < 10; i++) {
        nd_object *item = cell_new(i, 0);
        assert_ok(nd_list_append(cleared_list, item));
        nd_release(item);
    }
}

// An item whose death looks at the list that is being cleared.
static void look_at_the_list(nd_object *self) {
    uint32_t number = cell_of(self)->number;
    assert_true(nd_list_get_size(cleared_list) <= number);
    for (size_t i = 0; i < nd_list_get_size(cleared_list); i++)
        assert_int_equal(cell_of(nd_list_get(cleared_list, i))->number, i);
}

static void test_list_is_whole_while_its_items_die(void **state) {
    (void)state;
    fill_cleared_list();
    cell_on_destroy = look_at_the_list;
    assert_ok(nd_list_clear(cleared_list));
    assert_int_equal(cell_total_deaths(), 10);
    nd_release(cleared_list);
}

// An item whose death releases the list that is being cleared.
static void release_the_list(nd_object *self) {
    if (cell_of(self)->number == 5)
        nd_release(cleared_list);
}

static void test_list_is_released_while_its_items_die(void **state) {
    (void)state;
    fill_cleared_list();
    cell_on_destroy = release_the_list;
    assert_ok(nd_list_clear(cleared_list));
    assert_int_equal(cell_total_deaths(), 10);
}

static struct {
    void *pointer;
    size_t bytes;
    uint32_t times;
} freed;

static void note_free(void *pointer, size_t bytes) {
    freed.pointer = pointer;
    freed.bytes = bytes;
    freed.times++;
}

static const nd_resource_callbacks noting = {
    .size = sizeof(nd_resource_callbacks), .version = 1, .free = note_free};

static void test_resource_is_accounted_and_freed_once(void **state) {
    (void)state;
    static char memory[3000];
    memset(&freed, 0, sizeof freed);
    uint64_t before = nd_manager_get_total_bytes(NULL);
    nd_resource *resource = nd_resource_new("texture", memory, sizeof memory, &noting);
    assert_handle(resource);
    assert_string_equal(nd_get_type_name(resource), "texture");
    assert_ptr_equal(nd_resource_get(resource), memory);
    assert_int_equal(nd_manager_get_total_bytes(NULL) - before, sizeof memory);
    nd_resource *second = nd_retain(resource);
    nd_release(resource);
    assert_int_equal(freed.times, 0);
    nd_release(second);
    assert_int_equal(freed.times, 1);
    assert_ptr_equal(freed.pointer, memory);
    assert_int_equal(freed.bytes, sizeof memory);
    assert_int_equal(nd_manager_get_total_bytes(NULL), before);
}

static void test_resource_without_free_is_only_accounted(void **state) {
    (void)state;
    static char memory[10];
    static const nd_resource_callbacks none = {.size = sizeof none, .version = 1};
    nd_resource *resource = nd_resource_new("view", memory, sizeof memory, &none);
    assert_handle(resource);
    nd_release(resource);
}

static void test_resource_that_is_refused_stays_the_callers(void **state) {
    (void)state;
    static char memory[10];
    static const nd_resource_callbacks future = {
        .size = sizeof future, .version = 9, .free = note_free};
    memset(&freed, 0, sizeof freed);
    nd_error_clear();
    assert_null(nd_resource_new(NULL, memory, 10, &noting));
    assert_null(nd_resource_new("r", NULL, 10, &noting));
    assert_null(nd_resource_new("r", memory, 10, NULL));
    assert_null(nd_resource_new("r", memory, 10, &future));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    nd_manager *m = nd_manager_new(NULL, "m");
    assert_ok(nd_manager_set_quota(m, ND_CPU, 5));
    nd_with_manager(m) {
        nd_error_clear();
        assert_null(nd_resource_new("r", memory, 10, &noting));
        assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    }
    assert_int_equal(nd_manager_get_total_bytes(m), 0);
    assert_int_equal(freed.times, 0);
    nd_release(m);
    assert_null(nd_resource_get(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_list_holds_its_items_in_order),
        ND_TEST(test_list_same_item_twice_and_lists_in_lists),
        ND_TEST(test_list_refuses_bad_arguments),
        ND_TEST(test_list_is_whole_while_its_items_die),
        ND_TEST(test_list_is_released_while_its_items_die),
        ND_TEST(test_resource_is_accounted_and_freed_once),
        ND_TEST(test_resource_without_free_is_only_accounted),
        ND_TEST(test_resource_that_is_refused_stays_the_callers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
