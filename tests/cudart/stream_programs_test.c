// Random programs on random streams have the results that they have on the default ones, and
// processes with streams that are lost, forked or ended.
//
// Run with ND_CUDART_RACES=1, as streams_test.
#include "tests/cudart/streams.h"
#include <pthread.h>
#include <stdlib.h>

// ------------------------------------------------------------------------------------------------
// random programs

enum { TENSORS = 6, STREAMS = 4, LENGTH = 64, STEPS = 120 };

typedef struct program {
    uint64_t seed;
    bool streams; ///< else all on the default streams
    float result[2 * TENSORS * LENGTH];
    bool failed;
} program;

static unsigned draw(uint64_t *random, unsigned bound) {
    *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(*random >> 33) % bound;
}

/// One step: operands, operation and stream come from the random numbers, of which each step takes
/// as many whatever the streams.
static bool step(uint64_t *random, nd_tensor *x[2][TENSORS], nd_stream *streams[2][STREAMS]) {
    const int device = (int)draw(random, 2);
    nd_tensor **here = x[device], **there = x[1 - device];
    const unsigned out = draw(random, TENSORS), a = draw(random, TENSORS),
                   b = draw(random, TENSORS), what = draw(random, 9);
    for (int i = 0; i < 2; i++) {
        const unsigned place = draw(random, STREAMS + 1);
        if (nd_stream_set_current(cuda(i), place < STREAMS ? streams[i][place] : NULL) != ND_OK)
            return false;
    }
    nd_tensor *made = NULL, *between = NULL;
    switch (what) {
    case 0:
        made = nd_add(here[a], here[b]);
        break;
    case 1:
        made = nd_sub(here[a], here[b]);
        break;
    case 2:
        made = nd_mul_scalar(here[a], 0.5);
        break;
    case 3:
        return nd_add_(here[out], here[a]) == ND_OK;
    case 4:
        return nd_fill_(here[out], draw(random, 7)) == ND_OK;
    case 5:
        made = nd_to(there[a], cuda(device));
        break;
    case 6:
        between = nd_cumsum(here[a], 0);
        made = between ? nd_tanh(between) : NULL;
        break;
    case 7:
        between = nd_flip(here[a], 1, (int[]){0});
        made = between ? nd_sub(between, here[b]) : NULL;
        break;
    default:
        between = nd_softmax(here[a], 0);
        made = between ? nd_add(between, here[b]) : NULL;
    }
    nd_release(between);
    if (!made)
        return false;
    nd_release(here[out]);
    here[out] = made;
    return true;
}

static void *run_program(void *argument) {
    program *program = argument;
    uint64_t random = program->seed;
    nd_tensor *x[2][TENSORS];
    nd_stream *streams[2][STREAMS] = {{NULL}};
    program->failed = true;
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < TENSORS; k++)
            x[i][k] = full_on(cuda(i), LENGTH, k - 2 * i);
    for (int i = 0; program->streams && i < 2; i++)
        for (int k = 0; k < STREAMS; k++)
            streams[i][k] = nd_stream_new(cuda(i));
    bool right = true;
    for (int i = 0; right && i < STEPS; i++)
        right = step(&random, x, streams);
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < TENSORS; k++) {
            right = right && nd_copy_to_host(x[i][k], program->result + (i * TENSORS + k) * LENGTH,
                                             LENGTH * sizeof(float)) == ND_OK;
            nd_release(x[i][k]);
        }
    for (int i = 0; i < 2; i++) {
        right = nd_stream_set_current(cuda(i), NULL) == ND_OK && right;
        for (int k = 0; k < STREAMS; k++)
            nd_release(streams[i][k]);
    }
    program->failed = !right;
    return NULL;
}

static void test_a_random_program_has_the_same_bits(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        program on_one = {.seed = seed}, on_several = {.seed = seed, .streams = true};
        cudart_set_seed(seed);
        run_program(&on_one);
        assert_nothing_left_on_devices();
        run_program(&on_several);
        assert_false(on_one.failed || on_several.failed);
        assert_memory_equal(on_one.result, on_several.result, sizeof on_one.result);
        assert_nothing_left_on_devices();
    }
}

static void test_random_programs_beside_each_other(void **state) {
    (void)state;
    enum { THREADS = 4 };
    for (uint64_t seed = 0; seed < 3; seed++) {
        static program on_one[THREADS], on_several[THREADS];
        pthread_t threads[THREADS];
        cudart_set_seed(seed);
        for (int i = 0; i < THREADS; i++) {
            on_one[i] = (program){.seed = 100 * seed + (uint64_t)i};
            on_several[i] = (program){.seed = 100 * seed + (uint64_t)i, .streams = true};
            run_program(&on_one[i]);
        }
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, run_program, &on_several[i]), 0);
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_false(on_one[i].failed || on_several[i].failed);
            assert_memory_equal(on_one[i].result, on_several[i].result, sizeof on_one[i].result);
        }
        assert_nothing_left_on_devices();
    }
}

// ------------------------------------------------------------------------------------------------
// ends

/// A stream that stayed in the parent: the child is told, and may release it.
static int child_with_stream(void) {
    nd_stream *side = nd_stream_new(cuda(0));
    nd_event *event = nd_event_new(cuda(0), false);
    nd_tensor *x = NULL;
    nd_with_stream(side) x = full_on(cuda(0), 1000, 1);
    pid_t child = fork();
    if (child == 0) {
        bool right = nd_stream_synchronize(side) == ND_ERROR_DEVICE &&
                     nd_event_record(event, side) == ND_ERROR_DEVICE && !nd_stream_new(cuda(0));
        nd_release(x);
        nd_release(event);
        nd_release(side);
        _exit(right ? 0 : 1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    nd_release(x);
    nd_release(event);
    nd_release(side);
    return 0;
}

static nd_tensor *tensor_until_exit;
static nd_stream *stream_until_exit;

static void release_late(void) {
    nd_release(tensor_until_exit);
    nd_release(stream_until_exit);
}

static int exit_with_stream(void) {
    atexit(release_late);
    stream_until_exit = nd_stream_new(cuda(0));
    nd_with_stream(stream_until_exit) tensor_until_exit = full_on(cuda(0), 1000, 1);
    return tensor_until_exit ? 0 : 1;
}

static int lost_with_stream(void) {
    nd_stream *side = nd_stream_new(cuda(0));
    nd_tensor *x = full_on(cuda(0), 1000, 1), *y = NULL, *z = NULL;
    cudart_lose(1);
    nd_with_stream(side) y = nd_add(x, x);
    for (int i = 0; i < 2; i++)
        if (nd_stream_synchronize(side) != ND_ERROR_DEVICE ||
            nd_synchronize(cuda(0)) != ND_ERROR_DEVICE)
            return 1;
    nd_with_stream(side) z = nd_add(x, x);
    if (z || nd_error_get_status() != ND_ERROR_DEVICE)
        return 2;
    nd_release(y);
    nd_release(x);
    nd_release(side);
    return nd_manager_get_total_objects(NULL) == 0 ? 0 : 3;
}

static void test_F19_F22_F23_lost_forked_and_ended_with_streams(void **state) {
    (void)state;
    char said[4096];
    assert_int_equal(run_role("lost_with_stream", said, sizeof said), 0);
    assert_int_equal(run_role("child_with_stream", said, sizeof said), 0);
    assert_int_equal(run_role("exit_with_stream", said, sizeof said), 0);
}

static const role roles[] = {
    {"lost_with_stream", lost_with_stream},
    {"child_with_stream", child_with_stream},
    {"exit_with_stream", exit_with_stream},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_random_program_has_the_same_bits),
        ND_TEST(test_random_programs_beside_each_other),
        ND_TEST(test_F19_F22_F23_lost_forked_and_ended_with_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
