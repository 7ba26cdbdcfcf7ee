// C6 of docs/behaviours.md: graphs on the fake runtime, whose captures break at every call that
// waits, asks, allocates or frees. Random programs: graph_programs_test.c. What is refused, and what
// fails: graph_refusals_test.c. What a program sees of training: tests/gpu/training_graph_test.c.
//
// Run with ND_CUDART_RACES=1, as streams_test. tests/cudart/planted/ holds bugs that these tests must
// notice.
#define ND_TEST_COLLECTS_BY_POLICY
#include "tests/cudart/graphs.h"
#include <time.h>

static uint64_t live_on(int index) {
    nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
    assert_ok(nd_memory_get_device_stats(cuda(index), &stats));
    return stats.live;
}

// ------------------------------------------------------------------------------------------------
// what a graph does

static void test_C06_nothing_is_done_before_a_launch(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_tensor *x = full_on(cuda(0), SIZE, 3), *total = full_on(cuda(0), SIZE, 0);
        nd_graph *graph = accumulating(x, total);
        assert_int_equal(nd_graph_get_device(graph).kind, ND_CUDA);
        assert_true(sum_of(total) == 0);
        for (int i = 1; i <= 5; i++) {
            assert_ok(nd_graph_launch(graph));
            assert_true(sum_of(total) == 18.0 * SIZE * i);
        }
        assert_ok(nd_fill_(x, 1));
        assert_ok(nd_graph_launch(graph));
        assert_true(sum_of(total) == 18.0 * SIZE * 5 + 2.0 * SIZE);
        nd_release(graph);
        nd_release(x);
        nd_release(total);
    }
    assert_nothing_left_on_devices();
}

/// Captured work uses the arena's memory again, and what is released outside waits for the end.
/// Padding with elements of x wants nothing of the host.
static void test_every_padding_is_captured(void **state) {
    (void)state;
    static const nd_padding modes[] = {ND_PADDING_CONSTANT, ND_PADDING_REFLECT,
                                       ND_PADDING_REPLICATE, ND_PADDING_CIRCULAR};
    const int64_t around[] = {1, 3, 2, 1};
    nd_auto nd_tensor *host = nd_randn((nd_key){1, 2}, ND_SHAPE(3, 4, 5), ND_F32);
    nd_auto nd_tensor *x = nd_to(host, cuda(0));
    for (int k = 0; k < 4; k++) {
        assert_ok(nd_capture_begin(cuda(0)));
        nd_auto nd_tensor *y = nd_pad(x, 2, around, 7, modes[k]);
        nd_auto nd_graph *graph = nd_capture_end();
        assert_handle(y);
        assert_handle(graph);
        assert_ok(nd_graph_launch(graph));
        nd_auto nd_tensor *got = nd_to(y, (nd_device){ND_CPU, 0});
        nd_auto nd_tensor *expected = nd_pad(host, 2, around, 7, modes[k]);
        assert_int_equal(nd_get_numel(got), nd_get_numel(expected));
        assert_memory_equal(nd_get_data(got), nd_get_data(expected),
                            (size_t)nd_get_numel(expected) * sizeof(float));
    }
    assert_ok(nd_synchronize(cuda(0)));
}

static void test_C06_memory_while_capturing(void **state) {
    (void)state;
    cudart_set_seed(0);
    const time_t begin = time(NULL);
    nd_tensor *x = full_on(cuda(0), SIZE, 1), *other = full_on(cuda(0), SIZE, 2), *last = NULL;
    const uint64_t before = live_on(0), blocks = statistics().live_blocks;
    const uint64_t steps = statistics().steps;
    nd_graph *graph = NULL;
    nd_with_capture(cuda(0), &graph) {
        last = nd_add(x, x);
        for (int i = 0; i < 50; i++) {
            nd_tensor *next = nd_add(last, x);
            nd_release(last);
            last = next;
        }
        nd_release(other);
        assert_int_equal(statistics().live_blocks, blocks + 2);
    }
    assert_handle(graph);
    assert_int_equal(statistics().live_blocks, blocks + 1);
    // The host has waited for nothing. (Who calls nothing for a second gets work done all the same.)
    if (time(NULL) == begin)
        assert_int_equal(statistics().steps, steps);
    assert_int_equal(nd_graph_get_bytes(graph), 2 * SIZE * sizeof(float));
    assert_int_equal(live_on(0), before + SIZE * sizeof(float));
    assert_ok(nd_graph_launch(graph));
    assert_true(sum_of(last) == 52.0 * SIZE);
    // The graph keeps what the output gives up.
    nd_release(last);
    assert_int_equal(live_on(0), before + SIZE * sizeof(float));
    assert_ok(nd_graph_launch(graph));
    nd_release(graph);
    assert_int_equal(live_on(0), SIZE * sizeof(float));
    nd_release(x);
    assert_nothing_left_on_devices();
}

static void test_C06_what_is_used_is_held(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_tensor *x = full_on(cuda(0), SIZE, 2), *total = full_on(cuda(0), SIZE, 0), *y = NULL;
        nd_graph *graph = NULL;
        nd_with_capture(cuda(0), &graph) {
            y = nd_mul(x, x);
            assert_ok(nd_add_(total, y));
            nd_release(x); // in the capture
        }
        assert_handle(graph);
        nd_tensor *others[6];
        for (int i = 0; i < 6; i++)
            others[i] = full_on(cuda(0), SIZE, -7); // want its memory
        assert_ok(nd_graph_launch(graph));
        nd_tensor *kept = nd_retain(total);
        nd_release(total);
        assert_ok(nd_graph_launch(graph));
        assert_true(sum_of(kept) == 8.0 * SIZE);
        nd_release(kept);
        assert_ok(nd_graph_launch(graph));
        nd_release(graph);                    // behind the launch
        assert_true(sum_of(y) == 4.0 * SIZE); // an output outlives its graph
        nd_release(y);
        for (int i = 0; i < 6; i++)
            nd_release(others[i]);
    }
    assert_nothing_left_on_devices();
}

/// Launches wait for what other streams do with the same memory, and the other way round.
static void test_C06_launches_are_ordered(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *a = nd_stream_new(cuda(0)), *b = nd_stream_new(cuda(0));
        nd_tensor *x = full_on(cuda(0), SIZE, 0), *total = full_on(cuda(0), SIZE, 0);
        nd_tensor *seen[10];
        nd_graph *graph = NULL;
        nd_with_stream(b) graph = accumulating(x, total);
        double expected = 0;
        for (int i = 0; i < 10; i++) {
            nd_with_stream(a) assert_ok(nd_fill_(x, i));
            if (i % 2)
                assert_ok(nd_graph_launch(graph));
            else
                nd_with_stream(b) assert_ok(nd_graph_launch(graph));
            nd_with_stream(a) seen[i] = nd_clone(total);
        }
        for (int i = 0; i < 10; i++) {
            expected += 2.0 * i * i * SIZE;
            assert_true(sum_of(seen[i]) == expected);
            nd_release(seen[i]);
        }
        nd_release(graph);
        nd_release(x);
        nd_release(total);
        nd_release(a);
        nd_release(b);
    }
    assert_nothing_left_on_devices();
}

static void test_C06_two_graphs_in_turns(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *side = nd_stream_new(cuda(0));
        nd_tensor *x = full_on(cuda(0), SIZE, 1), *y = NULL;
        nd_graph *doubles = NULL, *adds = NULL;
        nd_with_capture(cuda(0), &doubles) y = nd_mul_scalar(x, 2);
        assert_handle(doubles);
        nd_with_capture(cuda(0), &adds) assert_ok(nd_add_(x, y)); // of the other's arena
        assert_handle(adds);
        for (int i = 0; i < 5; i++) {
            assert_ok(nd_graph_launch(doubles));
            nd_with_stream(side) assert_ok(nd_graph_launch(adds));
        }
        nd_release(doubles);
        nd_release(y);
        assert_ok(nd_graph_launch(adds)); // which holds what it reads
        assert_true(sum_of(x) == (243.0 + 162.0) * SIZE);
        nd_release(adds);
        nd_release(x);
        nd_release(side);
    }
    assert_nothing_left_on_devices();
}

static void test_C06_the_arena_dies_with_its_manager(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_tensor *x = full_on(cuda(0), SIZE, 3), *total = full_on(cuda(0), SIZE, 0);
        nd_manager *manager = nd_manager_new(NULL, "steps");
        nd_graph *graph = NULL;
        nd_with_manager(manager) graph = accumulating(x, total);
        assert_ptr_equal(nd_get_manager(graph), manager);
        assert_int_equal(nd_manager_get_total_bytes(manager), nd_graph_get_bytes(graph));
        assert_true(nd_graph_get_bytes(graph) >= SIZE * sizeof(float));
        for (int i = 0; i < 3; i++)
            assert_ok(nd_graph_launch(graph));
        const uint64_t live = live_on(0), arena = nd_graph_get_bytes(graph);
        assert_ok(nd_manager_dispose(manager, NULL)); // with launches queued
        assert_int_equal(live_on(0), live - arena);
        assert_int_equal(nd_graph_get_bytes(graph), 0);
        assert_int_equal(nd_graph_launch(graph), ND_ERROR_CLOSED);
        nd_error_clear();
        assert_true(sum_of(total) == 54.0 * SIZE);
        nd_release(graph);
        nd_release(manager);
        // Closed, what is still held moves up.
        manager = nd_manager_new(NULL, "more");
        nd_with_manager(manager) graph = accumulating(x, total);
        assert_ok(nd_manager_close(manager, NULL));
        assert_ptr_equal(nd_get_manager(graph), nd_manager_get_root());
        assert_ok(nd_graph_launch(graph));
        assert_true(sum_of(total) == 72.0 * SIZE);
        nd_release(graph);
        nd_release(manager);
        nd_release(x);
        nd_release(total);
    }
    assert_nothing_left_on_devices();
}

/// A graph is an edge's target like any object, and its optimizer one of its own.
static void test_C06_a_cycle_through_a_graph_is_collected(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "cyclic");
    nd_with_manager(manager) {
        nd_tensor *x = full_on(cuda(0), SIZE, 3), *total = full_on(cuda(0), SIZE, 0);
        nd_graph *graph = accumulating(x, total);
        nd_list *list = nd_list_new();
        assert_ok(nd_list_append(list, list));
        assert_ok(nd_list_append(list, graph));
        assert_ok(nd_graph_launch(graph));
        nd_release(graph);
        nd_release(list);
        nd_release(x);
        nd_release(total);
    }
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(manager, &report));
    assert_true(report.collected_objects >= 2);
    nd_release(manager);
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// memory and collections

/// Of 4096 bytes the limit holds sixteen, of 4000 as many, which the pool rounds up: that is seen
/// when it may be asked.
static void test_C06_no_memory_while_capturing(void **state) {
    (void)state;
    enum { MOST = 64 };
    for (int rounded = 0; rounded < 2; rounded++) {
        const int64_t size = rounded ? 1000 : 1024;
        nd_tensor *x = full_on(cuda(0), size, 1), *kept[MOST] = {NULL};
        assert_ok(nd_synchronize(cuda(0)));
        nd_memory_trim(ND_CUDA);
        assert_ok(nd_memory_set_limit(cuda(0), 16 * (uint64_t)size * sizeof(float)));
        nd_memory_stats before = ND_MEMORY_STATS_INIT, after = ND_MEMORY_STATS_INIT;
        assert_ok(nd_memory_get_stats(&before));
        nd_graph *graph = NULL;
        int made = 0;
        nd_with_capture(cuda(0), &graph) {
            while (made < MOST && (kept[made] = nd_add(x, x)))
                made++;
            check_refusal("nd_add", true, ND_ERROR_OUT_OF_MEMORY, true);
        }
        assert_int_equal(made, 15);
        assert_ok(nd_memory_get_stats(&after));
        assert_int_equal(after.walks, before.walks); // no stage was tried
        if (rounded) {
            assert_null(graph);
            assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
            nd_error_clear();
        } else { // the capture is good all the same
            assert_handle(graph);
            assert_ok(nd_memory_set_limit(cuda(0), UINT64_MAX));
            assert_ok(nd_graph_launch(graph));
            assert_true(sum_of(kept[0]) == 2.0 * (double)size);
        }
        assert_ok(nd_memory_set_limit(cuda(0), UINT64_MAX));
        for (int i = 0; i < made; i++)
            nd_release(kept[i]);
        nd_release(graph);
        nd_release(x);
        assert_nothing_left_on_devices();
    }
}

static void test_C06_quotas(void **state) {
    (void)state;
    nd_tensor *x = full_on(cuda(0), SIZE, 1);
    nd_manager *manager = nd_manager_new(NULL, "bounded");
    assert_ok(nd_manager_set_quota(manager, ND_CUDA, 2 * SIZE * sizeof(float)));
    nd_with_manager(manager) {
        nd_graph *graph = NULL;
        nd_tensor *kept[3] = {NULL};
        nd_with_capture(cuda(0), &graph) {
            for (int i = 0; i < 2; i++)
                assert_handle(kept[i] = nd_add(x, x));
            assert_int_equal(nd_manager_get_total_bytes(manager), 2 * SIZE * sizeof(float));
            assert_null(kept[2] = nd_add(x, x));
            assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
            assert_non_null(strstr(nd_error_get_message(), "captures a graph"));
            nd_error_clear();
        }
        assert_handle(graph);
        nd_release(kept[0]);
        nd_release(kept[1]);
        assert_int_equal(nd_manager_get_total_bytes(manager), 2 * SIZE * sizeof(float));
        nd_release(graph);
        graph = NULL;
        assert_int_equal(nd_manager_get_total_bytes(manager), 0);
        // What kernels take for themselves is charged at the end.
        nd_with_capture(cuda(0), &graph) kept[0] = nd_cumsum(x, 0);
        nd_release(kept[0]);
        nd_release(graph);
        nd_error_clear();
        assert_int_equal(nd_manager_get_total_bytes(manager), 0);
    }
    nd_release(manager);
    nd_release(x);
    assert_nothing_left_on_devices();
}

static uint64_t collections(void) {
    nd_gc_stats stats = ND_GC_STATS_INIT;
    assert_ok(nd_gc_get_stats(&stats));
    return stats.collections;
}

static int finalized;

static void count_end(nd_object *object) {
    (void)object;
    finalized++;
    assert_false(nd_is_capturing());
}

static void drop_cycle(void) {
    static const nd_type type = {.size = sizeof(nd_type),
                                 .version = 1,
                                 .name = "counted",
                                 .flags = ND_TYPE_GREEN,
                                 .finalize = count_end};
    nd_auto nd_list *cycle = nd_list_new();
    nd_auto nd_object *counted = nd_object_new(&type, 8);
    assert_ok(nd_list_append(cycle, cycle));
    assert_ok(nd_list_append(cycle, counted));
}

/// One that is due, one that is asked for, and one at a boundary.
static void test_C06_collections_wait_for_the_end(void **state) {
    (void)state;
    nd_tensor *x = full_on(cuda(0), SIZE, 1), *y = NULL;
    for (int how = 0; how < 3; how++) {
        nd_gc_set_mode(ND_GC_ON);
        assert_ok(nd_test_set_threshold(ND_CUDA, how == 0 ? SIZE : 0));
        finalized = 0;
        nd_manager *manager = nd_manager_new(NULL, "step");
        const uint64_t before = collections();
        nd_graph *graph = NULL;
        nd_with_capture(cuda(0), &graph) {
            nd_with_manager(how == 2 ? manager : nd_manager_get_root()) drop_cycle();
            y = nd_add(x, x);
            for (int i = 0; how == 0 && i < 20; i++)
                nd_release(nd_add(x, x));
            if (how == 1)
                assert_ok(nd_gc_collect(NULL, NULL));
            if (how == 2)
                assert_ok(nd_manager_close(manager, NULL));
            assert_int_equal(collections(), before);
            assert_int_equal(finalized, 0);
        }
        assert_handle(graph);
        assert_true(collections() > before);
        assert_int_equal(finalized, 1);
        nd_gc_set_mode(ND_GC_OFF);
        assert_ok(nd_graph_launch(graph));
        assert_true(sum_of(y) == 2.0 * SIZE);
        nd_release(y);
        nd_release(graph);
        nd_release(manager);
    }
    assert_ok(nd_test_set_threshold(ND_CUDA, ND_GC_INHERITED));
    nd_release(x);
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// optimizers

static nd_status descend(nd_optimizer *optimizer, const nd_tensor *w) {
    nd_auto nd_tensor *square = nd_mul(w, w);
    nd_auto nd_tensor *loss = nd_sum(square, 0, NULL, false);
    nd_status status = nd_optimizer_zero_grad(optimizer);
    if (status == ND_OK)
        status = nd_backward(loss, NULL);
    return status == ND_OK ? nd_optimizer_step(optimizer) : status;
}

static void test_C06_what_a_captured_step_must_find(void **state) {
    (void)state;
    nd_module *module = nd_linear_module(nd_key_new(1), 8, 16, false);
    assert_ok(nd_module_to(module, cuda(0)));
    const nd_tensor *w = nd_module_get_parameter_at(module, 0, NULL);
    nd_optimizer *optimizer = nd_adamw(module, NULL);
    nd_graph *graph = NULL;
    nd_with_capture(cuda(0), &graph) {
        assert_int_equal(descend(optimizer, w), ND_ERROR_STATE);
        assert_non_null(strstr(nd_error_get_message(), "must come before the capture"));
        nd_error_clear();
    }
    assert_handle(graph);
    nd_module *other = nd_linear_module(nd_key_new(1), 8, 16, false);
    assert_ok(nd_module_to(other, cuda(0)));
    const nd_tensor *eager = nd_module_get_parameter_at(other, 0, NULL);
    nd_optimizer *usual = nd_adamw(other, NULL);
    assert_ok(descend(usual, eager));
    assert_ok(descend(usual, eager));
    assert_ok(descend(optimizer, w));
    nd_with_capture(cuda(0), &graph) assert_ok(descend(optimizer, w));
    assert_handle(graph);
    assert_ok(nd_graph_launch(graph));
    const double sum = sum_of(w);
    assert_true(sum == sum_of(eager));
    assert_ok(nd_optimizer_set_option(optimizer, 0, ND_OPTIMIZER_WEIGHT_DECAY, 0));
    assert_int_equal(nd_graph_launch(graph), ND_ERROR_STATE);
    nd_error_clear();
    assert_true(sum_of(w) == sum);
    assert_ok(nd_optimizer_set_option(optimizer, 0, ND_OPTIMIZER_WEIGHT_DECAY, 0.5));
    assert_ok(nd_graph_launch(graph));
    assert_true(sum_of(w) != sum);
    assert_ok(nd_module_to(module, cpu));
    assert_int_equal(nd_graph_launch(graph), ND_ERROR_STATE);
    assert_non_null(strstr(nd_error_get_message(), "moved, replaced or loaded"));
    nd_error_clear();
    assert_ok(nd_close(optimizer));
    assert_int_equal(nd_graph_launch(graph), ND_ERROR_CLOSED);
    nd_error_clear();
    nd_release(usual);
    nd_release(other);
    nd_release(optimizer);
    nd_release(module);
    nd_release(graph);
    assert_nothing_left_on_devices();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_C06_nothing_is_done_before_a_launch),
        ND_TEST(test_every_padding_is_captured),
        ND_TEST(test_C06_memory_while_capturing),
        ND_TEST(test_C06_what_is_used_is_held),
        ND_TEST(test_C06_launches_are_ordered),
        ND_TEST(test_C06_two_graphs_in_turns),
        ND_TEST(test_C06_the_arena_dies_with_its_manager),
        ND_TEST(test_C06_a_cycle_through_a_graph_is_collected),
        ND_TEST(test_C06_no_memory_while_capturing),
        ND_TEST(test_C06_quotas),
        ND_TEST(test_C06_collections_wait_for_the_end),
        ND_TEST(test_C06_what_a_captured_step_must_find),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
