// The order of blocks that are given up together, beside qsort's, and what it is for: a program that makes
// and collects objects again and again has them side by side in memory as at first.
#include "lib/object/block_order.h"
#include "lib/object/checked.h"
#include "lib/object/slab.h"
#include "tests/behaviour/cell.h"
#include "tests/testing.h"

#include <stdlib.h>

#ifndef ND_COLLECT_EVERYWHERE
#define ND_COLLECT_EVERYWHERE 0
#endif

enum { RUNS = 16, MOST_RUNS = 12 }; ///< that blocks are drawn from; that are brought into order

static uint64_t drawn = 1;

static uint64_t draw(uint64_t below) {
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    drawn ^= drawn << 17;
    return drawn % below;
}

static int by_address(const void *a, const void *b) {
    const nd_object *first = *(nd_object *const *)a, *second = *(nd_object *const *)b;
    return (first > second) - (first < second);
}

static bool is_monotone(nd_object *const *objects, size_t count) {
    size_t rises = 0;
    for (size_t i = 1; i < count; i++)
        rises += objects[i] > objects[i - 1];
    return rises == 0 || rises == count - 1;
}

/// So many of the blocks of `runs` runs, mixed.
static size_t draw_blocks(char *memory, size_t runs, size_t bytes, nd_object **ret_objects) {
    const size_t each = ND__SLAB_RUN_BYTES / bytes;
    size_t count = 0, all = runs * each, most = 1 + draw(ND__BLOCK_ORDER_MOST);
    for (size_t i = 0; i < all && count < most; i++)
        if (draw(all) < most)
            ret_objects[count++] =
                (nd_object *)(void *)(memory + i / each * ND__SLAB_RUN_BYTES + i % each * bytes);
    const size_t swaps = draw(2) ? draw(4) : count;
    for (size_t i = 0; i < swaps && count > 1; i++) {
        const size_t a = draw(count), b = draw(count);
        nd_object *kept = ret_objects[a];
        ret_objects[a] = ret_objects[b];
        ret_objects[b] = kept;
    }
    return count;
}

static size_t runs_among(char *memory, nd_object *const *objects, size_t count) {
    bool found[RUNS] = {false};
    size_t runs = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t run = (size_t)((char *)objects[i] - memory) / ND__SLAB_RUN_BYTES;
        runs += !found[run];
        found[run] = true;
    }
    return runs;
}

/// The blocks are never read.
static void test_order_is_that_of_addresses(void **state) {
    (void)state;
    char *memory = aligned_alloc(ND__SLAB_RUN_BYTES, RUNS * ND__SLAB_RUN_BYTES);
    assert_non_null(memory);
    int ordered_ones = 0, refused = 0;
    for (int trial = 0; trial < 100000 / ND_TEST_SCALE; trial++) {
        nd_object *objects[ND__BLOCK_ORDER_MOST], *ordered[ND__BLOCK_ORDER_MOST] = {NULL};
        const size_t bytes = ND__BLOCK_UNIT * (2 + draw(4));
        const size_t count = draw_blocks(memory, 1 + draw(RUNS), bytes, objects);
        const bool told = nd__block_order_by_address(objects, count, ordered);
        const size_t runs = runs_among(memory, objects, count);
        assert_int_equal(told, !is_monotone(objects, count) && runs <= MOST_RUNS);
        ordered_ones += told;
        refused += runs > MOST_RUNS;
        if (!told) {
            assert_null(ordered[0]);
            continue;
        }
        nd_object *expected[ND__BLOCK_ORDER_MOST];
        memcpy(expected, objects, count * sizeof *objects);
        qsort(expected, count, sizeof *expected, by_address);
        const bool falls = objects[count - 1] < objects[0];
        for (size_t i = 0; i < count; i++)
            assert_ptr_equal(ordered[i], expected[falls ? count - 1 - i : i]);
    }
    assert_true(ordered_ones > 10000 / ND_TEST_SCALE && refused > 1000 / ND_TEST_SCALE);
    free(memory);
}

/// Which begin where no block does.
static void test_other_addresses_stay(void **state) {
    (void)state;
    char *memory = aligned_alloc(ND__SLAB_RUN_BYTES, ND__SLAB_RUN_BYTES);
    assert_non_null(memory);
    nd_object *objects[3], *ordered[3] = {NULL};
    for (int i = 0; i < 3; i++)
        objects[i] = (nd_object *)(void *)(memory + (size_t)(i ^ 1) * 80);
    assert_false(nd__block_order_by_address(objects, 3, ordered));
    assert_null(ordered[0]);
    free(memory);
}

/// Of a ring's edges, how many lead as far as the one before, in parts of all.
static double regular(const nd_object *first, size_t count) {
    size_t alike = 0;
    const nd_object *at = first;
    intptr_t before = 0;
    for (size_t i = 0; i < count; i++) {
        const nd_object *next = cell_of(at)->edges[0];
        const intptr_t distance = (intptr_t)next - (intptr_t)at;
        alike += distance == before;
        before = distance;
        at = next;
    }
    return (double)alike / (double)count;
}

static void test_memory_stays_in_order(void **state) {
    (void)state;
    enum { COUNT = 60000, ROUNDS = 100 };
    static const size_t sizes[] = {2, 100, COUNT};
    static nd_object *cells[COUNT];
    if (ND_COLLECT_EVERYWHERE || nd__checked_is_on() || ND_TEST_SCALE != 1)
        skip(); // what is collected one by one has no order; or the tool that watches has the memory
    cell_begin(1);
    double last = 0;
    for (int round = 0; round < ROUNDS; round++)
        for (int kind = 0; kind < 3; kind++) {
            nd_manager *manager = nd_manager_new(NULL, "round");
            nd_manager_set_gc_mode(manager, ND_GC_ON);
            nd_gc_policy at_the_end = ND_GC_POLICY_INIT;
            at_the_end.tracked_objects = 0;
            assert_int_equal(nd_manager_set_gc_policy(manager, &at_the_end), ND_OK);
            nd_with_manager(manager) for (size_t i = 0; i < COUNT; i += sizes[kind]) {
                for (size_t k = 0; k < sizes[kind]; k++)
                    cells[k] = cell_new(0, 1);
                for (size_t k = 0; k < sizes[kind]; k++) // each to the one that was made before it
                    cell_link(cells[k], 0, cells[(k + sizes[kind] - 1) % sizes[kind]]);
                if (sizes[kind] == COUNT)
                    last = regular(cells[0], COUNT);
                for (size_t k = 0; k < sizes[kind]; k++)
                    nd_release(cells[k]);
            }
            nd_close_report report = ND_CLOSE_REPORT_INIT;
            assert_int_equal(nd_manager_close(manager, &report), ND_OK);
            assert_int_equal(report.collected_objects, COUNT);
            nd_release(manager);
        }
    if (last < 0.97)
        fail_msg("%.2f %% of a ring's edges lead as far as the one before", 100 * last);
    cell_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_order_is_that_of_addresses),
        ND_TEST(test_other_addresses_stay),
        ND_TEST(test_memory_stays_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
