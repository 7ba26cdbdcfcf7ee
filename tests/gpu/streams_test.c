// Streams of one device (docs/behaviours.md, C): what a program does on several of them has the bits that
// it has on one, with work that is still under way when its memory is released, taken again and
// overwritten; and what is captured on several of them has them, too.
#include "tests/gpu/gpu.h"
#include <pthread.h>

// The fake runtime's GPU is one thread of the host.
#ifdef ON_FAKE_RUNTIME
enum { LENGTH = 64, PROGRAMS = 3, STEPS = 60, ROUNDS = 200, AHEAD = 100 };
#else
enum { LENGTH = 1 << 18, PROGRAMS = 8, STEPS = 300, ROUNDS = 2000, AHEAD = 200 };
#endif
enum { TENSORS = 6, STREAMS = 4, THREADS = 4 };

/// A random program: each step makes a tensor of two others, on a stream of its own choosing.
typedef struct program {
    uint64_t seed;
    bool streams; ///< else all on the default stream
    double result[TENSORS];
    bool failed;
} program;

static unsigned draw(uint64_t *random, unsigned bound) {
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(*random >> 33) % bound;
}

static nd_tensor *full_there(int64_t n, double value) {
    nd_tensor *host = nd_full(ND_SHAPE(n), value, ND_F32), *there = nd_to(host, CUDA_DEVICE);
    nd_release(host);
    return there;
}

static nd_tensor *made_of(unsigned what, const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *between = NULL;
    switch (what) {
    case 0:
        return nd_add(a, b);
    case 1:
        return nd_sub(a, b);
    case 2:
        between = nd_mul(a, b);
        return between ? nd_tanh(between) : NULL;
    case 3:
        between = nd_flip(a, 1, (int[]){0});
        return between ? nd_maximum(between, b) : NULL;
    case 4:
        between = nd_cumsum(a, 0);
        return between ? nd_sin(between) : NULL;
    case 5:
        between = nd_mean(a, 0, NULL, true);
        return between ? nd_sub(b, between) : NULL;
    default:
        between = nd_softmax(a, 0);
        return between ? nd_add(between, b) : NULL;
    }
}

/// Takes as many random numbers whatever the streams.
static bool step(uint64_t *random, nd_tensor **x, nd_stream **streams) {
    const unsigned out = draw(random, TENSORS), a = draw(random, TENSORS),
                   b = draw(random, TENSORS), what = draw(random, 8),
                   place = draw(random, STREAMS + 1);
    if (nd_stream_set_current(CUDA_DEVICE, place < STREAMS ? streams[place] : NULL) != ND_OK)
        return false;
    if (what == 7) // in place, beside readers on other streams
        return nd_add_(x[out], x[out == a ? (a + 1) % TENSORS : a]) == ND_OK;
    nd_tensor *made = made_of(what, x[a], x[b]);
    if (!made)
        return false;
    nd_release(x[out]);
    x[out] = made;
    return true;
}

/// A number that every element and its place have part in.
static double digest(const nd_tensor *x) {
    nd_auto nd_tensor *wide = nd_cast(x, ND_F64);
    nd_auto nd_tensor *sums = wide ? nd_cumsum(wide, 0) : NULL;
    nd_auto nd_tensor *sum = sums ? nd_sum(sums, 0, NULL, false) : NULL;
    return sum ? nd_get_item(sum) : 0;
}

static void *run_program(void *argument) {
    program *program = argument;
    uint64_t random = program->seed;
    nd_tensor *x[TENSORS];
    nd_stream *streams[STREAMS] = {NULL};
    bool right = true;
    for (int k = 0; k < TENSORS; k++)
        x[k] = full_there(LENGTH, 0.25 * k - 0.5);
    for (int k = 0; program->streams && k < STREAMS; k++)
        streams[k] = nd_stream_new(CUDA_DEVICE);
    for (int i = 0; right && i < STEPS; i++)
        right = step(&random, x, streams);
    right = nd_stream_set_current(CUDA_DEVICE, NULL) == ND_OK && right;
    for (int k = 0; k < TENSORS; k++) {
        program->result[k] = digest(x[k]);
        nd_release(x[k]);
    }
    for (int k = 0; k < STREAMS; k++)
        nd_release(streams[k]);
    program->failed = !right;
    return NULL;
}

static void test_a_random_program_has_the_same_bits(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < PROGRAMS; seed++) {
        program on_one = {.seed = seed}, on_several = {.seed = seed, .streams = true};
        run_program(&on_one);
        run_program(&on_several);
        assert_false(on_one.failed || on_several.failed);
        assert_memory_equal(on_one.result, on_several.result, sizeof on_one.result);
    }
}

static void test_random_programs_beside_each_other(void **state) {
    (void)state;
    static program on_one[THREADS], on_several[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        on_one[i] = (program){.seed = 100 + (uint64_t)i};
        on_several[i] = (program){.seed = 100 + (uint64_t)i, .streams = true};
        run_program(&on_one[i]);
        assert_int_equal(pthread_create(&threads[i], NULL, run_program, &on_several[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_false(on_one[i].failed || on_several[i].failed);
        assert_memory_equal(on_one[i].result, on_several[i].result, sizeof on_one[i].result);
    }
}

/// PyTorch issue 147168: memory of one stream that another uses piles up while the host is ahead.
static void test_memory_does_not_pile_up(void **state) {
    (void)state;
    const size_t bytes = LENGTH * sizeof(float);
    nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
    nd_stream *side = nd_stream_new(CUDA_DEVICE);
    assert_handle(side);
    for (int i = 0; i < ROUNDS; i++) {
        nd_tensor *x = full_there(LENGTH, 2), *y = NULL;
        nd_with_stream(side) y = nd_mul(x, x);
        nd_release(x);
        nd_release(y);
        if (i % AHEAD == AHEAD - 1)
            assert_ok(nd_synchronize(CUDA_DEVICE));
    }
    assert_ok(nd_memory_get_device_stats(CUDA_DEVICE, &stats));
    assert_int_equal(stats.live, 0);
    assert_int_equal(stats.pending, 0);
    // Each round has two blocks, and the host is so many rounds ahead of a device that others keep busy;
    // what else the pool keeps is less than half of that.
    printf("%d rounds of 2 x %zu bytes: %llu bytes kept\n", ROUNDS, bytes,
           (unsigned long long)stats.cached);
#ifndef ON_FAKE_RUNTIME
    assert_true(stats.cached < (uint64_t)AHEAD * 3 * bytes + (UINT64_C(64) << 20));
#endif
    assert_true(nd_memory_trim(ND_CUDA) > 0);
    assert_ok(nd_memory_get_device_stats(CUDA_DEVICE, &stats));
    assert_true(stats.cached < (UINT64_C(64) << 20));
    nd_release(side);
}

/// An event on one stream, waited for by another; and the time between two.
static void test_C04_events_order_streams(void **state) {
    (void)state;
    nd_stream *side = nd_stream_new(CUDA_DEVICE);
    nd_event *begin = nd_event_new(CUDA_DEVICE, true), *end = nd_event_new(CUDA_DEVICE, true);
    nd_tensor *x = full_there(LENGTH, 1), *y = NULL;
    assert_ok(nd_event_record(begin, NULL));
    for (int i = 0; i < 20; i++)
        assert_ok(nd_add_(x, x));
    assert_ok(nd_event_record(end, NULL));
    assert_ok(nd_stream_wait(side, end));
    nd_with_stream(side) y = nd_add_scalar(x, 1);
    double seconds = -1;
    assert_ok(nd_event_synchronize(end));
    assert_ok(nd_event_get_elapsed(begin, end, &seconds));
    assert_true(seconds > 0 && seconds < 60);
    nd_auto nd_tensor *first = nd_slice(y, 0, 1, 1, 0);
    assert_true(nd_get_item(first) == 1048577);
    nd_release(x);
    nd_release(y);
    nd_release(begin);
    nd_release(end);
    nd_release(side);
}

/// Three branches that meet, launched with other numbers each time, on one stream and on another.
static void test_C06_branches_of_a_graph(void **state) {
    (void)state;
    enum { BRANCHES = 3, LONG = 8, LAUNCHES = 20 };
    nd_stream *streams[BRANCHES];
    for (int i = 0; i < BRANCHES; i++)
        assert_handle(streams[i] = nd_stream_new(CUDA_DEVICE));
    nd_tensor *x = full_there(LENGTH, 1), *sum = NULL;
    nd_graph *graph = NULL;
    nd_with_capture(CUDA_DEVICE, &graph) {
        nd_tensor *branch[BRANCHES];
        for (int i = 0; i < BRANCHES; i++)
            nd_with_stream(streams[i]) {
                branch[i] = nd_add_scalar(x, i);
                for (int k = 1; k < LONG; k++)
                    assert_ok(nd_add_(branch[i], x));
            }
        nd_auto nd_tensor *two = nd_add(branch[0], branch[1]);
        sum = nd_add(two, branch[2]);
        for (int i = 0; i < BRANCHES; i++)
            nd_release(branch[i]);
    }
    assert_handle(graph);
    for (int i = 0; i < LAUNCHES; i++) {
        assert_ok(nd_fill_(x, i));
        nd_with_stream(i % 2 ? streams[0] : NULL) assert_ok(nd_graph_launch(graph));
        nd_auto nd_tensor *all = nd_sum(sum, 0, NULL, false);
        assert_true(nd_get_item(all) == (3.0 * LONG * i + 3) * LENGTH);
    }
    nd_release(sum);
    nd_release(x);
    nd_release(graph);
    for (int i = 0; i < BRANCHES; i++)
        nd_release(streams[i]);
}

int main(void) {
    int status;
    if (!gpu_present(&status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_random_program_has_the_same_bits),
        ND_TEST(test_random_programs_beside_each_other),
        ND_TEST(test_memory_does_not_pile_up),
        ND_TEST(test_C04_events_order_streams),
        ND_TEST(test_C06_branches_of_a_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
