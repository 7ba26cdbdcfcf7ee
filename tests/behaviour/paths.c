// Paths of cycles that a callback is told, where garbage has members that are not like the others.
#include "tests/behaviour/helpers.h"
#include <stdlib.h>
#include <unistd.h>

static uint64_t cycles_told;

static void note_cycle(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)bytes;
    (void)data;
    assert_non_null(strstr(path, "cell -"));
    assert_int_equal(objects, 3);
    cycles_told++;
}

static uint64_t collect_and_tell(void) {
    cycles_told = 0;
    nd_gc_set_cycle_callback(note_cycle, NULL);
    uint64_t collected = collect(NULL).collected_objects;
    nd_gc_set_cycle_callback(NULL, NULL);
    return collected;
}

// A type without edges is looked at all the same, unless it says that it is green.
static const nd_type leaf_type = {.size = sizeof(nd_type), .version = 1, .name = "leaf"};

static void test_path_of_a_cycle_beside_an_object_without_edges(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(2);
    nd_object *ring[2] = {cell_new(0, 2), cell_new(1, 1)}, *leaf = nd_object_new(&leaf_type, 8);
    cell_link(ring[0], 0, leaf); // what the walk tries first
    cell_link(ring[0], 1, ring[1]);
    cell_link(ring[1], 0, ring[0]);
    nd_release(leaf);
    nd_release(ring[0]);
    nd_release(ring[1]);
    assert_int_equal(collect_and_tell(), 3);
    assert_int_equal(cycles_told, 1);
}

// Its edges lie in memory that its destructor frees.
typedef struct array {
    size_t count;
    nd_object **items;
} array;

static void array_traverse(const nd_object *self, nd_visitor *visitor) {
    const array *a = nd_object_get_data(self);
    for (size_t i = 0; i < a->count; i++)
        nd_visit(visitor, a->items[i], "item");
}

static void array_clear(nd_object *self) {
    array *a = nd_object_get_data(self);
    for (size_t i = 0; i < a->count; i++)
        nd_edge_clear(&a->items[i]);
}

static void array_destroy(nd_object *self) {
    array *a = nd_object_get_data(self);
    free(a->items);
    a->items = NULL;
}

static const nd_type array_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "array",
    .traverse = array_traverse,
    .clear = array_clear,
    .destroy = array_destroy,
};

static void test_F15_closed_member_of_garbage_whose_path_is_told(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(2);
    nd_object *ring[2] = {cell_new(0, 1), cell_new(1, 2)};
    cell_ring(ring, 2);
    nd_object *closed = nd_object_new(&array_type, sizeof(array));
    array *a = nd_object_get_data(closed);
    a->items = calloc(2, sizeof *a->items);
    assert_non_null(a->items);
    a->count = 2;
    cell_link(ring[1], 1, closed);
    assert_ok(nd_close(closed));
    nd_release(closed);
    nd_release(ring[0]);
    nd_release(ring[1]);
    assert_int_equal(collect_and_tell(), 3);
    assert_int_equal(cycles_told, 1);
}

static void test_paths_that_nobody_is_told_go_to_standard_error(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_WARN);
    cell_begin(2);
    nd_object *ring[2] = {cell_new(0, 1), cell_new(1, 1)};
    cell_ring(ring, 2);
    nd_weak *weak = nd_weak_new(ring[0]);
    nd_release(ring[1]);
    nd_release(ring[0]);
    char text[256] = "";
    int ends[2], before = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    collect(NULL);
    assert_int_equal(dup2(before, STDERR_FILENO), STDERR_FILENO);
    close(before);
    close(ends[1]);
    assert_true(read(ends[0], text, sizeof text - 1) > 0);
    close(ends[0]);
    assert_non_null(strstr(text, "ndarc: cycle of 2 objects"));
    assert_non_null(strstr(text, "cell -"));
    assert_int_equal(cell_total_deaths(), 0);
    nd_object *first = nd_weak_get(weak);
    assert_handle(first);
    cell_unlink(first, 0);
    nd_release(first);
    nd_release(weak);
    assert_int_equal(cell_total_deaths(), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_path_of_a_cycle_beside_an_object_without_edges),
        ND_TEST(test_F15_closed_member_of_garbage_whose_path_is_told),
        ND_TEST(test_paths_that_nobody_is_told_go_to_standard_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
