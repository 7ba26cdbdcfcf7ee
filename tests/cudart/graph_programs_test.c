// C6 of docs/behaviours.md: what is captured and launched has the bits of eager work, in random
// programs, beside other threads, and where gradients count.
//
// Run with ND_CUDART_RACES=1, as streams_test.
#define ND_TEST_COLLECTS_BY_POLICY
#include "tests/cudart/graphs.h"
#include <pthread.h>

// ------------------------------------------------------------------------------------------------
// random programs

enum { TENSORS = 6, LENGTH = 64, STEPS = 24, ROUNDS = 3 };

static unsigned draw(uint64_t *random, unsigned bound) {
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(*random >> 33) % bound;
}

/// One step, which replaces a tensor or changes it.
static bool step(uint64_t *random, nd_tensor *x[TENSORS]) {
    const unsigned out = draw(random, TENSORS), a = draw(random, TENSORS),
                   b = draw(random, TENSORS);
    nd_auto nd_tensor *made = NULL, *between = NULL;
    switch (draw(random, 6)) {
    case 0:
        made = nd_sub(x[a], x[b]);
        break;
    case 1:
        return nd_add_(x[out], x[a]) == ND_OK;
    case 2:
        made = nd_mul_scalar(x[a], 0.5);
        break;
    case 3:
        between = nd_cumsum(x[a], 0);
        made = between ? nd_tanh(between) : NULL;
        break;
    case 4:
        between = nd_reshape(x[a], ND_SHAPE(8, LENGTH / 8));
        made = between ? nd_matmul(between, between) : NULL;
        if (made) {
            nd_tensor *flat = nd_reshape(made, ND_SHAPE(LENGTH));
            nd_release(made);
            made = flat ? nd_tanh(flat) : NULL;
            nd_release(flat);
        }
        break;
    default:
        between = nd_softmax(x[a], 0);
        made = between ? nd_add(between, x[b]) : NULL;
    }
    if (!made)
        return false;
    // Into the tensor, so that every round finds the last one's results in the same memory.
    return nd_copy_(x[out], made) == ND_OK;
}

typedef struct program {
    uint64_t seed;
    bool captured;
    bool branches; ///< captured on random streams
    bool failed;
    float result[TENSORS * LENGTH];
} program;

static bool choose(const program *program, nd_stream *const streams[3], int step) {
    uint64_t random = program->seed * 1000 + (uint64_t)step;
    const unsigned which = draw(&random, 4);
    return !program->branches ||
           nd_stream_set_current(cuda(0), which < 3 ? streams[which] : NULL) == ND_OK;
}

/// A few rounds of the same steps on random streams, with another step of their own between them.
static void *run_program(void *argument) {
    program *program = argument;
    nd_tensor *x[TENSORS];
    nd_stream *streams[3];
    nd_graph *graph = NULL;
    bool right = true;
    for (int i = 0; i < TENSORS; i++)
        x[i] = full_on(cuda(0), LENGTH, 0.1 * (i - 2));
    for (int i = 0; i < 3; i++)
        streams[i] = nd_stream_new(cuda(0));
    if (program->captured) {
        uint64_t random = program->seed;
        // Another thread may be capturing.
        while (!nd_is_capturing() && nd_capture_begin(cuda(0)) != ND_OK)
            sched_yield();
        for (int i = 0; right && i < STEPS; i++)
            right = choose(program, streams, i) && step(&random, x);
        graph = nd_capture_end();
        right = right && graph;
    }
    for (uint64_t round = 0; right && round < ROUNDS; round++) {
        uint64_t random = program->seed, between = round;
        right = nd_stream_set_current(cuda(0), streams[round % 3]) == ND_OK;
        if (graph)
            right = right && nd_graph_launch(graph) == ND_OK;
        for (int i = 0; !graph && right && i < STEPS; i++)
            right = step(&random, x);
        right = right && nd_stream_set_current(cuda(0), streams[(round + 1) % 3]) == ND_OK &&
                step(&between, x);
    }
    for (int i = 0; i < TENSORS; i++)
        right = right && nd_copy_to_host(x[i], program->result + i * LENGTH,
                                         LENGTH * sizeof(float)) == ND_OK;
    program->failed = !right || nd_stream_set_current(cuda(0), NULL) != ND_OK;
    nd_release(graph);
    for (int i = 0; i < TENSORS; i++)
        nd_release(x[i]);
    for (int i = 0; i < 3; i++)
        nd_release(streams[i]);
    nd_error_clear();
    return NULL;
}

static void test_C06_random_programs_have_the_same_bits(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 16; seed++) {
        program eager = {.seed = seed}, captured = {.seed = seed, .captured = true};
        cudart_set_seed(seed);
        run_program(&eager);
        run_program(&captured);
        assert_false(eager.failed || captured.failed);
        assert_memory_equal(eager.result, captured.result, sizeof eager.result);
        assert_nothing_left_on_devices();
    }
}

static void test_C06_random_branches_have_the_same_bits(void **state) {
    (void)state;
    uint64_t nodes = 0, depth = 0;
    for (uint64_t seed = 0; seed < 32; seed++) {
        program eager = {.seed = seed},
                captured = {.seed = seed, .captured = true, .branches = true};
        cudart_set_seed(seed);
        run_program(&eager);
        run_program(&captured);
        assert_false(eager.failed || captured.failed);
        assert_memory_equal(eager.result, captured.result, sizeof eager.result);
        assert_nothing_left_on_devices();
        nodes += statistics().graph_nodes;
        depth += statistics().graph_depth;
    }
    assert_true(depth < nodes); // some are beside each other
}

/// Two threads capture in turns, two others work as usual.
static void test_C06_captures_beside_other_threads(void **state) {
    (void)state;
    enum { THREADS = 4 };
    static program alone[THREADS], beside[THREADS];
    for (uint64_t seed = 0; seed < 3; seed++) {
        pthread_t threads[THREADS];
        cudart_set_seed(seed);
        for (int i = 0; i < THREADS; i++) {
            alone[i] = (program){.seed = 10 * seed + (uint64_t)i};
            beside[i] = (program){.seed = 10 * seed + (uint64_t)i, .captured = i % 2 == 0};
            run_program(&alone[i]);
        }
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, run_program, &beside[i]), 0);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_false(alone[i].failed || beside[i].failed);
            assert_memory_equal(alone[i].result, beside[i].result, sizeof alone[i].result);
        }
        assert_nothing_left_on_devices();
    }
}

/// Two windows that show elements twice; `which`: of which function.
static nd_tensor *windows_of(const nd_tensor *x, int which) {
    return which == 0 ? nd_sliding_window(x, 6, 2, 0)
                      : nd_as_strided(x, ND_SHAPE(SIZE / 2, 5), (const int64_t[]){2, 1}, 0);
}

/// The gradient of the sum of the windows' squares; owned.
static nd_tensor *gradient_through_windows(const nd_tensor *x, int which) {
    nd_auto nd_tensor *windows = windows_of(x, which), *squares = nd_square(windows);
    nd_auto nd_tensor *sum = nd_sum(squares, 0, NULL, false);
    nd_tensor *gradient = NULL;
    return nd_grad(sum, 1, &x, NULL, &gradient) == ND_OK ? gradient : NULL;
}

/// Where elements went is counted on their device: nothing is copied to it.
static void test_gradients_of_windows_are_captured(void **state) {
    (void)state;
    for (int which = 0; which < 2; which++) {
        nd_tensor *here = nd_randn(nd_key_new(3), ND_SHAPE(SIZE + 4), ND_F32);
        nd_tensor *x = nd_to(here, cuda(0)), *captured = NULL;
        nd_graph *graph = NULL;
        nd_set_requires_grad(here, true);
        nd_set_requires_grad(x, true);
        nd_with_capture(cuda(0), &graph) captured = gradient_through_windows(x, which);
        assert_handle(captured);
        assert_ok(nd_graph_launch(graph));
        nd_tensor *expected = gradient_through_windows(here, which);
        nd_tensor *got = nd_to(captured, cpu);
        assert_handle(expected);
        assert_memory_equal(nd_get_data(got), nd_get_data(expected), (SIZE + 4) * sizeof(float));
        nd_release(expected);
        nd_release(got);
        nd_release(captured);
        nd_release(graph);
        nd_release(x);
        nd_release(here);
    }
    assert_nothing_left_on_devices();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_C06_random_programs_have_the_same_bits),
        ND_TEST(test_C06_random_branches_have_the_same_bits),
        ND_TEST(test_C06_captures_beside_other_threads),
        ND_TEST(test_gradients_of_windows_are_captured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
