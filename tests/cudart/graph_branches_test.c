// C6 of docs/behaviours.md: what a thread captures on several streams becomes branches of the graph,
// one behind the other where they share memory, and beside each other where they do not.
//
// The fake runtime does the nodes in each order that the edges permit, so a missing edge changes a
// result for some seed; how many nodes are behind each other at most says how many edges there are.
// Run with ND_CUDART_RACES=1, as streams_test. tests/cudart/planted/ holds bugs that these tests must
// notice.
#define ND_TEST_COLLECTS_BY_POLICY
#include "tests/cudart/graphs.h"
#include <pthread.h>

enum { BRANCHES = 3, LONG = 8 };

static void streams_new(nd_stream **streams) {
    for (int i = 0; i < BRANCHES; i++)
        assert_handle(streams[i] = nd_stream_new(cuda(0)));
}

static void streams_free(nd_stream **streams) {
    for (int i = 0; i < BRANCHES; i++)
        nd_release(streams[i]);
}

/// y = x + 1 + 1 …, so often; owned. The tensors between go back at once.
static nd_tensor *climb(const nd_tensor *x, int steps) {
    nd_tensor *y = nd_add_scalar(x, 1);
    for (int i = 1; y && i < steps; i++) {
        nd_tensor *next = nd_add_scalar(y, 1);
        nd_release(y);
        y = next;
    }
    return y;
}

static void test_C06_independent_work_becomes_branches(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_tensor *x = full_on(cuda(0), SIZE, 1), *branch[BRANCHES] = {NULL}, *sum = NULL;
        nd_stream *streams[BRANCHES];
        nd_graph *graph = NULL;
        streams_new(streams);
        nd_with_capture(cuda(0), &graph) {
            for (int i = 0; i < BRANCHES; i++)
                nd_with_stream(streams[i]) branch[i] = climb(x, LONG);
            nd_auto nd_tensor *two = nd_add(branch[0], branch[1]);
            sum = nd_add(two, branch[2]);
        }
        assert_handle(graph);
        assert_int_equal(statistics().graph_nodes, BRANCHES * LONG + 2);
        assert_int_equal(statistics().graph_depth, LONG + 2);
        for (int i = 0; i < 3; i++) {
            assert_ok(nd_fill_(x, i));
            assert_ok(nd_graph_launch(graph));
            assert_true(sum_of(sum) == 3.0 * (i + LONG) * SIZE);
        }
        for (int i = 0; i < BRANCHES; i++)
            nd_release(branch[i]);
        nd_release(sum);
        nd_release(graph);
        nd_release(x);
        streams_free(streams);
        assert_nothing_left_on_devices();
    }
}

static void test_C06_what_chooses_no_stream_is_a_chain(void **state) {
    (void)state;
    nd_tensor *x = full_on(cuda(0), SIZE, 1), *y = NULL, *z = NULL;
    nd_stream *streams[BRANCHES];
    nd_graph *graph = NULL;
    streams_new(streams);
    nd_with_capture(cuda(0), &graph) {
        y = climb(x, LONG);
        z = climb(x, LONG);
    }
    assert_handle(graph);
    assert_int_equal(statistics().graph_nodes, 2 * LONG);
    assert_int_equal(statistics().graph_depth, 2 * LONG);
    nd_release(y);
    nd_release(z);
    nd_release(graph);
    nd_release(x);
    streams_free(streams);
    assert_nothing_left_on_devices();
}

/// A writer behind readers on other streams, more of them than a block remembers one by one, and
/// readers behind it.
static void test_C06_branches_that_share_memory_are_ordered(void **state) {
    (void)state;
    enum { MANY = 7 };
    for (uint64_t seed = 0; seed < 4 * SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_tensor *x = full_on(cuda(0), SIZE, 1), *before[MANY] = {NULL}, *behind[MANY] = {NULL};
        nd_stream *streams[MANY];
        nd_graph *graph = NULL;
        for (int i = 0; i < MANY; i++)
            assert_handle(streams[i] = nd_stream_new(cuda(0)));
        nd_with_capture(cuda(0), &graph) {
            for (int i = 0; i < MANY; i++)
                nd_with_stream(streams[i]) before[i] = nd_mul_scalar(x, i);
            nd_with_stream(streams[seed % MANY]) assert_ok(nd_add_scalar_out(x, 10, x));
            for (int i = 0; i < MANY; i++)
                nd_with_stream(streams[i]) behind[i] = nd_mul_scalar(x, i);
        }
        assert_handle(graph);
        for (int launch = 0; launch < 2; launch++) {
            assert_ok(nd_fill_(x, 1));
            assert_ok(nd_graph_launch(graph));
            for (int i = 0; i < MANY; i++) {
                assert_true(sum_of(before[i]) == 1.0 * i * SIZE);
                assert_true(sum_of(behind[i]) == 11.0 * i * SIZE);
            }
        }
        for (int i = 0; i < MANY; i++) {
            nd_release(before[i]);
            nd_release(behind[i]);
            nd_release(streams[i]);
        }
        nd_release(graph);
        nd_release(x);
        assert_nothing_left_on_devices();
    }
}

/// What a branch gives back is its own to use again, and others' that come behind it.
static void test_C06_branches_do_not_share_what_they_give_back(void **state) {
    (void)state;
    enum { LARGE = 1 << 14 }; // sums of so many take working memory, which is no operand
    for (uint64_t seed = 0; seed < 2 * SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_tensor *x = full_on(cuda(0), LARGE, 1), *sums[BRANCHES] = {NULL}, *all = NULL;
        nd_stream *streams[BRANCHES];
        nd_graph *graph = NULL;
        streams_new(streams);
        nd_with_capture(cuda(0), &graph) {
            for (int i = 0; i < BRANCHES; i++)
                nd_with_stream(streams[i]) {
                    nd_auto nd_tensor *y = climb(x, i + 1);
                    nd_auto nd_tensor *running = nd_cumsum(y, 0);
                    sums[i] = nd_sum(running, 0, NULL, false);
                }
            nd_auto nd_tensor *two = nd_add(sums[0], sums[1]);
            nd_auto nd_tensor *three = nd_add(two, sums[2]);
            nd_auto nd_tensor *shape = nd_expand(three, ND_SHAPE(LARGE));
            all = nd_mul(shape, x); // in memory of one of the branches
        }
        assert_handle(graph);
        assert_in_range(nd_graph_get_bytes(graph), 3 * LARGE * sizeof(float),
                        10 * LARGE * sizeof(float));
        for (int launch = 0; launch < 3; launch++) {
            const double steps = LARGE * (LARGE + 1) / 2.0;
            assert_ok(nd_graph_launch(graph));
            for (int i = 0; i < BRANCHES; i++)
                assert_true(sum_of(sums[i]) == (i + 2) * steps);
            assert_true(sum_of(all) == 9 * steps * LARGE);
        }
        for (int i = 0; i < BRANCHES; i++)
            nd_release(sums[i]);
        nd_release(all);
        nd_release(graph);
        nd_release(x);
        streams_free(streams);
        assert_nothing_left_on_devices();
    }
}

static void *make_a_stream(void *ret_stream) {
    *(nd_stream **)ret_stream = nd_stream_new(cuda(0));
    return NULL;
}

/// One that another thread makes meanwhile stands for the capture's first.
static void test_C06_a_stream_that_is_made_while_another_thread_captures(void **state) {
    (void)state;
    nd_tensor *x = full_on(cuda(0), SIZE, 1), *y = NULL, *z = NULL;
    nd_stream *late = NULL;
    nd_graph *graph = NULL;
    pthread_t thread;
    nd_with_capture(cuda(0), &graph) {
        assert_int_equal(pthread_create(&thread, NULL, make_a_stream, &late), 0);
        pthread_join(thread, NULL);
        assert_handle(late);
        nd_with_stream(late) y = climb(x, LONG);
        z = nd_add(y, x);
    }
    assert_handle(graph);
    assert_ok(nd_graph_launch(graph));
    assert_true(sum_of(z) == (2.0 + LONG) * SIZE);
    nd_release(y);
    nd_release(z);
    nd_release(graph);
    nd_release(x);
    nd_release(late);
    assert_nothing_left_on_devices();
}

/// Captures two branches that join, and launches them; the sum, or a negative number where a call
/// said an error.
static double sum_of_branches(const nd_tensor *x, nd_stream *const *streams) {
    nd_tensor *y[2] = {NULL, NULL}, *sum = NULL;
    nd_graph *graph = NULL;
    double value = -1;
    nd_with_capture(cuda(0), &graph) {
        for (int i = 0; i < 2; i++)
            nd_with_stream(streams[i]) y[i] = nd_add_scalar(x, i);
        sum = y[0] && y[1] ? nd_add(y[0], y[1]) : NULL;
    }
    if (graph && sum && nd_graph_launch(graph) == ND_OK) {
        nd_auto nd_tensor *all = nd_sum(sum, 0, NULL, false);
        float found;
        if (all && nd_copy_to_host(all, &found, sizeof found) == ND_OK)
            value = found;
    }
    assert_false(nd_is_capturing());
    nd_release(graph);
    nd_release(y[0]);
    nd_release(y[1]);
    nd_release(sum);
    return value;
}

static void test_C06_each_call_of_a_branch_fails_once(void **state) {
    (void)state;
    const cudaError_t errors[] = {cudaErrorMemoryAllocation, cudaErrorUnknown};
    nd_stream *streams[BRANCHES];
    nd_tensor *x = full_on(cuda(0), SIZE, 1);
    streams_new(streams);
    for (int i = 0; i < 2; i++) {
        bool failed = true;
        for (uint64_t n = 1; failed; n++) {
            assert_in_range(n, 1, 500);
            const uint64_t failures = statistics().failures, graphs = statistics().live_graphs;
            cudart_set_seed(n);
            cudart_fail(NULL, n, errors[i]);
            const double sum = sum_of_branches(x, streams);
            failed = statistics().failures > failures;
            cudart_fail(NULL, 0, cudaSuccess);
            assert_true(sum == 3.0 * SIZE || (sum == -1 && nd_error_get_status() != ND_OK));
            nd_error_clear();
            (void)nd_synchronize(cuda(0));
            (void)cudaGetLastError();
            assert_int_equal(statistics().captures, 0);
            assert_true(statistics().live_graphs <= graphs + 1);    // its destruction has failed
            assert_true(sum_of_branches(x, streams) == 3.0 * SIZE); // the next one is whole
        }
    }
    nd_release(x);
    streams_free(streams);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_C06_independent_work_becomes_branches),
        ND_TEST(test_C06_what_chooses_no_stream_is_a_chain),
        ND_TEST(test_C06_branches_that_share_memory_are_ordered),
        ND_TEST(test_C06_branches_do_not_share_what_they_give_back),
        ND_TEST(test_C06_a_stream_that_is_made_while_another_thread_captures),
        // Last: a free that fails leaves its block with the device.
        ND_TEST(test_C06_each_call_of_a_branch_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
