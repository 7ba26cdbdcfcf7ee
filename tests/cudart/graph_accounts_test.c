// C6 of docs/behaviours.md: whose account what captures make stays on, with a graph and without one.
//
// Run with ND_CUDART_RACES=1, as streams_test.
#include "tests/cudart/graphs.h"
#include <pthread.h>

static uint64_t bytes_of(const nd_manager *manager) {
    return nd_manager_get_total_bytes(manager);
}

/// A result that outlives its graph stays charged to the graph's manager, the rest of the arena goes.
static void test_C06_results_stay_charged(void **state) {
    (void)state;
    enum { BYTES = SIZE * sizeof(float), MOST = 5 };
    nd_tensor *x = full_on(cuda(0), SIZE, 1), *kept[MOST + 1] = {NULL};
    nd_manager *manager = nd_manager_new(NULL, "results"), *other = nd_manager_new(NULL, "other");
    assert_ok(nd_manager_set_quota(manager, ND_CUDA, (MOST + 1) * BYTES));
    nd_graph *graph = NULL;
    for (int i = 0; i < MOST; i++) {
        nd_with_manager(manager) nd_with_capture(cuda(0), &graph) {
            nd_auto nd_tensor *twice = nd_add(x, x);
            nd_with_manager(i == 1 ? other : manager) kept[i] = nd_add(twice, x);
        }
        assert_handle(graph);
        assert_ok(nd_debug_check());
        assert_int_equal(bytes_of(manager), (i + 2) * BYTES);
        assert_ok(nd_graph_launch(graph));
        if (i % 2)
            assert_ok(nd_close(graph));
        nd_release(graph);
        graph = NULL;
        assert_int_equal(bytes_of(manager), (i + 1) * BYTES);
        assert_int_equal(bytes_of(other), 0);
        assert_ok(nd_debug_check());
    }
    nd_with_manager(manager) nd_with_capture(cuda(0), &graph) {
        nd_auto nd_tensor *twice = nd_add(x, x);
        assert_null(nd_add(twice, x));
        assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
        nd_error_clear();
    }
    nd_release(graph);
    for (int i = 0; i < MOST; i++) {
        assert_true(sum_of(kept[i]) == 3.0 * SIZE);
        nd_release(kept[i]);
        assert_int_equal(bytes_of(manager), (MOST - 1 - i) * BYTES);
    }
    nd_release(manager);
    nd_release(other);
    nd_release(x);
    assert_nothing_left_on_devices();
}

/// What was made in a capture that was given up, or whose end failed.
static void test_C06_results_without_a_graph_stay_charged(void **state) {
    (void)state;
    enum { BYTES = SIZE * sizeof(float) };
    nd_tensor *x = full_on(cuda(0), SIZE, 1), *kept = NULL;
    nd_manager *manager = nd_manager_new(NULL, "results");
    nd_with_manager(manager) for (int fails = 0; fails < 2; fails++) {
        assert_ok(nd_capture_begin(cuda(0)));
        kept = nd_add(x, x);
        nd_release(nd_add(kept, x));
        if (fails)
            cudart_fail("cudaGraphInstantiate", 1, cudaErrorInvalidValue);
        if (fails)
            assert_null(nd_capture_end());
        else
            nd_capture_abandon();
        nd_error_clear();
        assert_int_equal(bytes_of(manager), BYTES);
        assert_ok(nd_debug_check());
        nd_release(kept);
        assert_int_equal(bytes_of(manager), 0);
    }
    nd_release(manager);
    nd_release(x);
    assert_nothing_left_on_devices();
}

static void *check_accounts(void *data) {
    (void)data;
    return nd_debug_check() == ND_OK ? NULL : (void *)nd_error_get_message();
}

/// Seen from this thread and another, and also when the manager has closed.
static void test_C06_accounts_in_an_open_capture(void **state) {
    (void)state;
    enum { BYTES = SIZE * sizeof(float) };
    for (int how = 0; how < 3; how++) {
        nd_tensor *x = full_on(cuda(0), SIZE, 1), *y, *z;
        nd_manager *manager = nd_manager_new(NULL, "step");
        nd_with_manager(manager) assert_ok(nd_capture_begin(cuda(0)));
        const uint64_t before = bytes_of(NULL);
        y = nd_add(x, x);
        if (how == 1)
            assert_ok(nd_manager_close(manager, NULL));
        if (how == 2)
            assert_ok(nd_manager_dispose(manager, NULL));
        z = nd_add(y, x);
        pthread_t thread;
        void *wrong;
        assert_int_equal(pthread_create(&thread, NULL, check_accounts, NULL), 0);
        pthread_join(thread, &wrong);
        assert_null(wrong);
        assert_ok(nd_debug_check());
        assert_int_equal(bytes_of(NULL) - before, 2 * BYTES);
        nd_graph *graph = nd_capture_end();
        assert_handle(graph);
        assert_int_equal(bytes_of(NULL) - before, 2 * BYTES);
        nd_release(graph);
        assert_int_equal(bytes_of(manager), how ? 0 : 2 * BYTES);
        assert_ok(nd_debug_check());
        nd_release(y);
        nd_release(z);
        assert_int_equal(bytes_of(NULL), before);
        nd_release(manager);
        nd_release(x);
        assert_nothing_left_on_devices();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_C06_results_stay_charged),
        ND_TEST(test_C06_results_without_a_graph_stay_charged),
        ND_TEST(test_C06_accounts_in_an_open_capture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
