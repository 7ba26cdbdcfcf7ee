// Who holds an object: handles and edges, paths from the program, cycles, other threads beside it.
#include "lib/base/alloc.h"
#include "tests/behaviour/cell.h"
#include "tests/unit/debug/written.h"
#include <pthread.h>

static nd_holders holders_of(const void *object, written *out) {
    nd_holders result = ND_HOLDERS_INIT;
    assert_ok(nd_debug_get_holders(object, out ? written_stream(out) : NULL, &result));
    return result;
}

static void test_variables_are_handles(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 1);
    nd_object *same = nd_retain(x);
    written out = {0};
    nd_holders result = holders_of(x, &out);
    assert_int_equal(result.count, 2);
    assert_int_equal(result.handles, 2);
    assert_int_equal(result.edges, 0);
    assert_contains(written_text(&out), "cell: count 2 = 2 handles of the program + 0 edges");
    written_free(&out);
    nd_release(same);
    nd_release(x);
    cell_end();
}

static void test_path_from_what_the_program_holds(void **state) {
    (void)state;
    cell_begin(4);
    nd_list *list = nd_list_new();
    assert_ok(nd_set_name(list, "batches"));
    nd_object *middle = cell_new(0, 1), *x = cell_new(1, 1);
    assert_ok(nd_set_name(x, "w1"));
    cell_link(middle, 0, x);
    assert_ok(nd_list_append(list, middle));
    nd_release(middle);
    written out = {0};
    nd_holders result = holders_of(x, &out);
    assert_int_equal(result.count, 2);
    assert_int_equal(result.handles, 1);
    assert_int_equal(result.held_edges, 1);
    assert_int_equal(result.cycle_edges, 0);
    assert_contains(written_text(&out), "cell(w1): count 2 = 1 handle of the program + 1 edge;");
    assert_contains(written_text(&out), "list(batches) -item-> cell -first-> cell(w1)");
    assert_contains(written_text(&out), "  [list(batches): 1 handle of the program; manager root]");
    written_free(&out);
    nd_release(x);
    nd_release(list);
    cell_end();
}

static void test_cycle_is_told_from_a_holder(void **state) {
    (void)state;
    cell_begin(3);
    nd_object *ring[3] = {cell_new(0, 2), cell_new(1, 2), cell_new(2, 2)};
    cell_ring(ring, 3);
    nd_release(ring[1]);
    nd_release(ring[2]);
    written out = {0};
    nd_holders result = holders_of(ring[0], &out);
    assert_int_equal(result.handles, 1);
    assert_int_equal(result.cycle_edges, 1);
    assert_int_equal(result.held_edges, 0);
    assert_contains(written_text(&out), "cycle: cell -first-> cell -first-> cell -first-> cell");
    written_free(&out);

    // From another member's view the first one, which the program holds, is what keeps it.
    const nd_object *next = cell_of(ring[0])->edges[0];
    result = holders_of(next, NULL);
    assert_int_equal(result.handles, 0);
    assert_int_equal(result.held_edges, 1);
    cell_unlink(ring[0], 0);
    nd_release(ring[0]);
    cell_end();
}

static void test_behind_a_cycle(void **state) {
    (void)state;
    cell_begin(3);
    nd_object *ring[2] = {cell_new(0, 2), cell_new(1, 1)};
    nd_object *x = cell_new(2, 1);
    cell_ring(ring, 2);
    cell_link(ring[0], 1, x);
    nd_object *kept = nd_retain(ring[0]);
    nd_weak *weak = nd_weak_new(ring[0]);
    nd_release(ring[0]);
    nd_release(ring[1]);
    nd_release(kept); // only the cycle itself holds it now
    written out = {0};
    nd_holders result = holders_of(x, &out);
    assert_int_equal(result.cycle_edges, 1);
    assert_contains(written_text(&out), "behind a cycle: cell -second-> cell");
    written_free(&out);
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(NULL, &report));
    assert_int_equal(report.collected_objects, 2);
    nd_release(weak);
    nd_release(x);
    cell_end();
}

static void test_long_path_is_cut_in_the_middle(void **state) {
    (void)state;
    enum { LENGTH = 100 };
    cell_begin(LENGTH);
    nd_object *first = cell_new(0, 1), *last = nd_retain(first);
    for (uint32_t i = 1; i < LENGTH; i++) {
        nd_object *next = cell_new(i, 1);
        cell_link(last, 0, next);
        nd_release(last);
        last = next;
    }
    written out = {0};
    holders_of(last, &out);
    assert_contains(written_text(&out), "-> ... 75 more ... -first-> cell");
    assert_int_equal(occurrences(written_text(&out), " -first-> "), 24);
    written_free(&out);
    nd_release(last);
    nd_release(first);
    cell_end();
}

static void test_manager_is_held_by_its_children(void **state) {
    (void)state;
    nd_manager *parent = nd_manager_new(NULL, "epoch"), *child = nd_manager_new(parent, "step");
    written out = {0};
    nd_holders result = holders_of(parent, &out);
    assert_int_equal(result.edges, 1);
    assert_int_equal(result.handles, 1);
    assert_contains(written_text(&out), "manager step -parent-> manager epoch");
    written_free(&out);
    nd_release(child);
    nd_release(parent);
}

static void test_bad_arguments(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    nd_holders unversioned = {0};
    assert_int_equal(nd_debug_get_holders(x, NULL, &unversioned), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_debug_holders(x, NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_debug_holders(NULL, stdout), ND_ERROR_INVALID_ARGUMENT);
    nd_release(x);
    cell_end();
}

static int fail_after;
static bool should_fail(size_t bytes) {
    (void)bytes;
    return fail_after-- <= 0;
}

static void test_every_allocation_may_fail(void **state) {
    (void)state;
    cell_begin(2);
    nd_object *x = cell_new(0, 1);
    nd_holders result = ND_HOLDERS_INIT;
    int failures = 0;
    for (int allowed = 0; allowed < 20; allowed++) {
        fail_after = allowed;
        nd__alloc_should_fail = should_fail;
        nd_status status = nd_debug_get_holders(x, NULL, &result);
        nd__alloc_should_fail = NULL;
        if (status == ND_OK)
            break;
        assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
        assert_int_equal(result.count, 0);
        failures++;
    }
    assert_in_range(failures, 4, 19);
    assert_int_equal(result.count, 1);
    nd_release(x);
    cell_end();
}

// -------------------------------------------------------------------------------- from callbacks

static const nd_object *asked_about;
static int asked;

static void ask(nd_object *self) {
    nd_holders result = ND_HOLDERS_INIT;
    nd_snapshot *snapshot = nd_snapshot_new(NULL);
    assert_handle(snapshot);
    nd_snapshot_free(snapshot);
    assert_ok(nd_debug_get_holders(asked_about, NULL, &result));
    assert_int_equal(result.handles, 1);
    nd_status status = nd_debug_get_holders(self, NULL, &result);
    assert_true(status == ND_OK || status == ND_ERROR_STATE);
    nd_error_clear();
    asked++;
}

static void test_asked_by_finalizers_and_destructors(void **state) {
    (void)state;
    for (int cyclic = 0; cyclic < 2; cyclic++) {
        cell_begin(3);
        asked = 0;
        nd_object *other = cell_new(2, 0);
        asked_about = other;
        cell_on_finalize = cell_on_destroy = ask;
        nd_object *x = cell_new_of(&cell_finalized_type, 0, 1);
        if (cyclic)
            cell_link(x, 0, x);
        nd_release(x);
        assert_ok(nd_gc_collect(NULL, NULL));
        assert_int_equal(asked, 2);
        cell_on_finalize = cell_on_destroy = NULL;
        nd_release(other);
        cell_end();
    }
}

// ---------------------------------------------------------------------------------- beside threads

static _Atomic bool stop;

/// Makes and drops rings, chains and green objects, moves edges, collects.
static void *make_trouble(void *data) {
    nd_object *shared = data;
    for (uint32_t i = 0; !atomic_load(&stop); i++) {
        nd_object *a = cell_new(0, 2), *b = cell_new(0, 2);
        cell_link(a, 0, b);
        cell_link(b, 0, a);
        cell_link(b, 1, shared);
        nd_weak *weak = nd_weak_new(a);
        nd_release(b);
        if (i % 3 == 0)
            cell_unlink(a, 0);
        nd_release(a);
        nd_release(weak);
        if (i % 64 == 0)
            nd_gc_collect(NULL, NULL);
    }
    return NULL;
}

static void test_beside_running_threads(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 1);
    pthread_t threads[2];
    atomic_store(&stop, false);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_trouble, x), 0);
    for (int i = 0; i < 400 / ND_TEST_SCALE; i++) {
        written out = {0};
        nd_holders result = holders_of(x, &out);
        assert_true(result.count >= 1);
        assert_int_equal(result.held_edges + result.cycle_edges, result.edges);
        written_free(&out);
    }
    atomic_store(&stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(nd_get_count(x), 1);
    nd_release(x);
    cell_end();
}

static void test_edge_to_itself_is_a_cycle(void **state) {
    (void)state;
    nd_list *a = nd_list_new(), *b = nd_list_new();
    assert_ok(nd_list_append(a, a));
    assert_ok(nd_list_append(b, a));
    written out = {0};
    nd_holders result = holders_of(a, &out);
    assert_int_equal(result.edges, 2);
    assert_int_equal(result.held_edges, 1);
    assert_int_equal(result.cycle_edges, 1);
    assert_contains(written_text(&out), "  cycle: list -item-> list\n");
    written_free(&out);
    assert_ok(nd_close(a));
    nd_release(a);
    nd_release(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_variables_are_handles),
        ND_TEST(test_path_from_what_the_program_holds),
        ND_TEST(test_cycle_is_told_from_a_holder),
        ND_TEST(test_edge_to_itself_is_a_cycle),
        ND_TEST(test_behind_a_cycle),
        ND_TEST(test_long_path_is_cut_in_the_middle),
        ND_TEST(test_manager_is_held_by_its_children),
        ND_TEST(test_bad_arguments),
        ND_TEST(test_every_allocation_may_fail),
        ND_TEST(test_asked_by_finalizers_and_destructors),
        ND_TEST(test_beside_running_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
