// C1, C7, C8, C11 and C12 of docs/behaviours.md: memory that is released while work is queued,
// errors that pass and errors that stay, fork, exit and unload with a live device, and copies
// between the device and host memory of both kinds, whose ends lie before, in and behind each other.
#include "tests/cudart/backend.h"
#include <math.h>

enum { SEEDS = 8 };

static void assert_nothing_left_on_devices(void) {
    for (int i = 0; i < nd_get_device_count(ND_CUDA); i++)
        assert_ok(nd_synchronize(cuda(i)));
    nd_memory_trim(ND_CUDA);
    assert_int_equal(statistics().pending, 0);
}

static double sum_of(const nd_tensor *x) {
    nd_auto nd_tensor *sum = nd_sum(x, 0, NULL, false);
    return nd_get_item(sum);
}

// ---------------------------------------------------------------------------------------------- C1

/// Whatever the operation, its operands are released with it queued: the release does none of the
/// device's work, the account is free at once, and the result is that of what was there.
static void test_C01_release_with_work_queued(void **state) {
    (void)state;
    enum { SIDE = 24, ELEMENTS = SIDE * SIDE };
    cudart_set_seed(0); // nothing is done before somebody waits
    for (int kind = 0; kind < 5; kind++) {
        nd_tensor *flat = full_on(cuda(0), ELEMENTS, 0.5);
        nd_tensor *x = nd_reshape(flat, ND_SHAPE(SIDE, SIDE));
        nd_release(flat);
        assert_handle(x);
        const double expected[] = {ELEMENTS, ELEMENTS * 0.25 * SIDE, ELEMENTS * 0.5, SIDE,
                                   ELEMENTS * 0.5};
        nd_auto nd_tensor *turned = nd_transpose(x, 0, 1);
        cudart_hold(); // else the step that a query asked for may be done at any time
        nd_auto nd_tensor *result = kind == 0   ? nd_add(x, x)
                                    : kind == 1 ? nd_matmul(x, x)
                                    : kind == 2 ? nd_sum(x, 1, (const int[]){1}, false)
                                    : kind == 3 ? nd_softmax(x, 1)
                                                : nd_contiguous(turned);
        nd_release(turned);
        turned = NULL;
        assert_handle(result);
        const uint64_t queued = statistics().pending;
        const uint64_t bytes = nd_manager_get_total_bytes(NULL);
        nd_release(x);
        assert_true(queued > 0 && statistics().pending >= queued);
        assert_int_equal(nd_manager_get_total_bytes(NULL), bytes - ELEMENTS * sizeof(float));
        cudart_go_on();
        // Whoever takes the memory writes to it at once.
        nd_release(full_on(cuda(0), ELEMENTS, -1e30));
        assert_float_equal(sum_of(result), expected[kind], 1e-3);
    }
    assert_nothing_left_on_devices();
}

/// A graph of a training step dies with its whole backward pass queued.
static void test_C01_release_of_a_graph_with_its_gradients_queued(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_tensor *weight = full_on(cuda(0), 512, 2);
        assert_ok(nd_set_requires_grad(weight, true));
        {
            nd_auto nd_tensor *square = nd_mul(weight, weight);
            nd_auto nd_tensor *loss = nd_sum(square, 0, NULL, false);
            assert_ok(nd_backward(loss, NULL));
        }
        nd_tensor *gradient = nd_retain(nd_get_grad(weight));
        nd_release(weight);
        assert_true(sum_of(gradient) == 512 * 4);
        nd_release(gradient);
    }
    assert_nothing_left_on_devices();
}

// ---------------------------------------------------------------------------------------------- C7

/// The sum of n + n on a device that is not CUDA's current one, there and back; NaN with an error.
static double there_and_back(void) {
    nd_auto nd_tensor *here = full_on(cpu, 100, 3);
    nd_auto nd_tensor *there = here ? nd_to(here, cuda(1)) : NULL;
    nd_auto nd_tensor *twice = there ? nd_add(there, there) : NULL;
    float found[100];
    if (!twice || nd_copy_to_host(twice, found, sizeof found) != ND_OK)
        return (double)NAN;
    double sum = 0;
    for (int i = 0; i < 100; i++)
        sum += (double)found[i];
    return sum;
}

/// Each error that passes, of each call: told or harmless, nothing stays of it, and the next program
/// is right.
static void test_C07_each_error_that_passes_of_each_call(void **state) {
    (void)state;
    static const char *const calls[] = {
        "cudaMallocFromPoolAsync", "cudaFreeAsync",   "cudaMemcpyAsync",
        "cudaLaunchKernelExC",     "cudaEventRecord", "cudaEventSynchronize",
        "cudaStreamSynchronize",   "cudaSetDevice",   "cudaGetDevice",
    };
    static const cudaError_t errors[] = {
        cudaErrorMemoryAllocation,       cudaErrorInvalidConfiguration, cudaErrorNotReady,
        cudaErrorInvalidResourceHandle,  cudaErrorLaunchOutOfResources, cudaErrorNotPermitted,
        cudaErrorNoKernelImageForDevice, cudaErrorNotSupported,         cudaErrorUnknown,
    };
    assert_true(there_and_back() == 600); // all is loaded
    for (size_t c = 0; c < sizeof calls / sizeof *calls; c++) {
        uint64_t happened = statistics().failures;
        for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
            nd_error_clear();
            cudart_fail(calls[c], 1, errors[e]);
            double sum = there_and_back();
            cudart_fail(NULL, 0, cudaSuccess);
            if (sum != 600 && !(isnan(sum) && nd_error_get_status() != ND_OK))
                fail_msg("%s answers %d: %g, and %s", calls[c], (int)errors[e], sum,
                         nd_status_get_name(nd_error_get_status()));
            nd_error_clear();
            assert_true(there_and_back() == 600);
        }
        if (statistics().failures == happened)
            fail_msg("%s is not called", calls[c]);
    }
    assert_nothing_left_on_devices();
}

// ---------------------------------------------------------------------------------------------- C8

static void nothing(void *data) {
    (void)data;
}

/// Everything that can be asked of a device that is lost answers, and nothing of it stays on the
/// host. A process of its own, which loses device 0.
static int ask_a_lost_device(void) {
    nd_tensor *x = full_on(cuda(0), 100, 1);
    nd_tensor *here = full_on(cpu, 100, 1);
    if (!x || !here || nd_synchronize(cuda(0)) != ND_OK || nd_set_requires_grad(x, true) != ND_OK)
        return 1;
    nd_tensor *loss = nd_sum(x, 0, NULL, false);
    cudart_lose(1);
    nd_tensor *y = nd_add(x, x);
    float found[100];
    const nd_status answers[] = {
        nd_synchronize(cuda(0)), nd_copy_to_host(x, found, sizeof found),
        nd_backward(loss, NULL), nd_queue_callback(cuda(0), nothing, NULL, NULL),
        nd_fill_(x, 2),
    };
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
        if (answers[i] == ND_OK) {
            fprintf(stderr, "question %zu was answered with success\n", i);
            return 2;
        }
    nd_tensor *made[] = {nd_add(x, x), nd_to(here, cuda(0)), nd_to(x, cpu), nd_clone(x)};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (made[i]) {
            fprintf(stderr, "call %zu made something\n", i);
            return 3;
        }
    nd_gc_report report = ND_GC_REPORT_INIT;
    nd_memory_trim(ND_CUDA);
    (void)nd_memory_get_cached(ND_CUDA);
    if (nd_gc_collect(NULL, &report) != ND_OK || nd_get_device_count(ND_CUDA) < 2)
        return 4;
    nd_release(loss);
    nd_release(y);
    nd_release(x);
    nd_release(here);
    return nd_manager_get_total_objects(NULL) == 0 && nd_manager_get_total_bytes(NULL) == 0 ? 0 : 5;
}

static void test_C08_a_lost_device_answers_everything(void **state) {
    (void)state;
    char said[4096];
    if (run_role("ask_a_lost_device", said, sizeof said) != 0)
        fail_msg("%s", said);
}

// --------------------------------------------------------------------------------------------- C11

static nd_tensor *queue_work(int products) {
    nd_tensor *x = full_on(cuda(0), 1000, 1);
    for (int i = 0; x && i < products; i++) {
        nd_tensor *next = nd_add(x, x);
        nd_release(x);
        x = next;
    }
    return x;
}

/// The parent's queue is untouched by a child that leaves by either way.
static int fork_with_work_queued(void) {
    for (int way = 0; way < 2; way++) {
        nd_tensor *x = queue_work(10);
        pid_t child = fork();
        if (child == 0) {
            bool told = !nd_add(x, x) && nd_error_get_status() == ND_ERROR_DEVICE &&
                        strstr(nd_error_get_message(), "stayed in the parent process");
            nd_release(x);
            nd_tensor *made = full_on(cpu, 10, 1); // the host goes on
            bool right = told && made && nd_get_device_count(ND_CUDA) == 0 && !nd_to(made, cuda(0));
            nd_release(made);
            if (way == 0)
                _exit(right ? 0 : 1);
            exit(right ? 0 : 1);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0 || sum_of(x) != 1000.0 * 1024)
            return 1;
        nd_release(x);
    }
    return 0;
}

static nd_tensor *until_exit;
static nd_manager *manager_until_exit;

static void release_late(void) {
    nd_release(until_exit);
    nd_release(manager_until_exit);
}

/// A thread's handler, a manager with tensors, a callback in the queue: all outlive main.
static int exit_with_work_queued(void) {
    atexit(release_late);
    until_exit = queue_work(10);
    manager_until_exit = nd_manager_new(NULL, "until exit");
    nd_with_manager(manager_until_exit) {
        nd_tensor *kept = queue_work(3);
        if (!kept || nd_queue_callback(cuda(0), nothing, NULL, kept) != ND_OK)
            return 1;
        nd_release(kept);
    }
    return until_exit ? 0 : 1;
}

/// A sum on one device of what another has computed.
static int read_what_came_from_another(void) {
    nd_auto nd_tensor *x = full_on(cuda(0), 100, 3);
    nd_auto nd_tensor *twice = x ? nd_add(x, x) : NULL;
    nd_auto nd_tensor *there = twice ? nd_to(twice, cuda(1)) : NULL;
    nd_auto nd_tensor *sum = there ? nd_sum(there, 0, NULL, false) : NULL;
    for (int i = 0; sum && i < 2; i++) {
        nd_error_clear();
        const double value = nd_get_item(sum);
        if (nd_error_get_status() == ND_OK && value != 600)
            return 1;
    }
    // Told of what it had from elsewhere, a device goes on.
    (void)nd_synchronize(cuda(1));
    if (nd_synchronize(cuda(1)) != ND_OK)
        return 0;
    nd_auto nd_tensor *fresh = full_on(cuda(1), 100, 1);
    const bool right = fresh && sum_of(fresh) == 100;
    return right || nd_synchronize(cuda(1)) != ND_OK ? 0 : 2; // which may be what was lost since
}

static void test_C08_what_came_from_a_lost_device_is_right_or_an_error(void **state) {
    (void)state;
    char said[8192], number[32];
    int status;
    for (int seed = 0; seed < SEEDS; seed++)
        for (int step = 1; step < 16; step++) {
            snprintf(number, sizeof number, "%d", seed);
            setenv("ND_CUDART_SEED", number, 1);
            snprintf(number, sizeof number, "%d", step);
            setenv("ND_CUDART_LOSE", number, 1);
            status = run_role("read_what_came_from_another", said, sizeof said);
            unsetenv("ND_CUDART_SEED");
            unsetenv("ND_CUDART_LOSE");
            if (status != 0)
                fail_msg("seed %d, step %d: status %d: %s", seed, step, status, said);
        }
}

static void test_an_index_out_of_range_is_told_where_its_result_is_read(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        const int64_t wrong[] = {0, 99};
        nd_auto nd_tensor *x = full_on(cuda(0), 3, 2);
        nd_auto nd_tensor *indices = nd_from_data(wrong, ND_SHAPE(2), ND_I64);
        nd_auto nd_tensor *here = nd_to(indices, cuda(0));
        nd_auto nd_tensor *taken = nd_take(x, here, 0);
        nd_auto nd_tensor *there = nd_to(taken, cuda(1));
        assert_handle(there);
        float read[2];
        assert_int_equal(nd_copy_to_host(there, read, sizeof read), ND_ERROR_INVALID_ARGUMENT);
        assert_ok(nd_copy_to_host(there, read, sizeof read)); // it has been told
        assert_ok(nd_synchronize(cuda(0)));
    }
}

static void test_C11_fork_and_exit_with_work_queued(void **state) {
    (void)state;
    char said[4096];
    static const char *const names[] = {"fork_with_work_queued", "exit_with_work_queued"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (run_role(names[i], said, sizeof said) != 0)
            fail_msg("%s: %s", names[i], said);
}

// --------------------------------------------------------------------------------------------- C12

/// Host memory that the runtime has pinned, or has not.
static float *host_memory(bool pinned, int64_t n, float value) {
    void *memory = NULL;
    if (!pinned)
        memory = malloc((size_t)n * sizeof(float));
    else if (cudaHostAlloc(&memory, (size_t)n * sizeof(float), cudaHostAllocDefault) != cudaSuccess)
        memory = NULL;
    assert_non_null(memory);
    for (int64_t i = 0; i < n; i++)
        ((float *)memory)[i] = value;
    return memory;
}

static void free_host_memory(bool pinned, float *memory) {
    if (!pinned)
        free(memory);
    else
        assert_int_equal(cudaFreeHost(memory), cudaSuccess);
}

/// To the device from the caller's memory, which is changed and given back as soon as the call has
/// returned; back into memory that is read as soon as that has; the tensor in between is gone by
/// then. In sizes below and above what goes through the ring, and more of them than it has slots.
static void test_C12_copies_of_host_memory_that_ends_behind_the_call(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 1000, 65536, 65537, 200000};
    enum { SIZES = sizeof sizes / sizeof *sizes, COPIES = 6 };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        for (int round = 0; round < SIZES * 2; round++) {
            const int64_t n = sizes[round / 2];
            const bool pinned = round % 2;
            nd_tensor *there[COPIES];
            for (int i = 0; i < COPIES; i++) {
                float *memory = host_memory(pinned, n, (float)i);
                nd_tensor *wrapped = nd_wrap(memory, ND_SHAPE(n), ND_F32, NULL);
                assert_handle(wrapped);
                there[i] = nd_to(wrapped, cuda(0));
                assert_handle(there[i]);
                memory[0] = memory[n - 1] = -1e30f;
                nd_release(wrapped);
                free_host_memory(pinned, memory);
            }
            for (int i = 0; i < COPIES; i++) {
                float *found = host_memory(pinned, n, -1);
                nd_tensor *twice = nd_add(there[i], there[i]);
                nd_release(there[i]);
                assert_ok(nd_copy_to_host(twice, found, (size_t)n * sizeof *found));
                nd_release(twice);
                assert_true(found[0] == (float)(2 * i) && found[n - 1] == (float)(2 * i));
                free_host_memory(pinned, found);
            }
        }
    }
    assert_nothing_left_on_devices();
}

/// The same memory goes there, is filled from there, and goes there again, with nothing between.
static void test_C12_copies_both_ways_through_one_block(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        for (int64_t n = 100; n <= 100000; n *= 1000) {
            float *memory = host_memory(seed % 2, n, 1);
            nd_tensor *wrapped = nd_wrap(memory, ND_SHAPE(n), ND_F32, NULL);
            nd_tensor *first = nd_to(wrapped, cuda(0));
            nd_tensor *other = full_on(cuda(0), n, 5);
            assert_ok(nd_copy_to_host(other, memory, (size_t)n * sizeof *memory));
            nd_tensor *second = nd_to(wrapped, cuda(0));
            assert_ok(nd_fill_(other, 7));
            assert_ok(nd_copy_to_host(other, memory, (size_t)n * sizeof *memory));
            assert_true(sum_of(first) == (double)n && sum_of(second) == 5.0 * (double)n);
            assert_true(memory[0] == 7 && memory[n - 1] == 7);
            nd_release(wrapped);
            nd_release(first);
            nd_release(second);
            nd_release(other);
            free_host_memory(seed % 2, memory);
        }
    }
    assert_nothing_left_on_devices();
}

static const role roles[] = {
    {"ask_a_lost_device", ask_a_lost_device},
    {"read_what_came_from_another", read_what_came_from_another},
    {"fork_with_work_queued", fork_with_work_queued},
    {"exit_with_work_queued", exit_with_work_queued},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_C01_release_with_work_queued),
        ND_TEST(test_C01_release_of_a_graph_with_its_gradients_queued),
        ND_TEST(test_C07_each_error_that_passes_of_each_call),
        ND_TEST(test_C08_a_lost_device_answers_everything),
        ND_TEST(test_C08_what_came_from_a_lost_device_is_right_or_an_error),
        ND_TEST(test_an_index_out_of_range_is_told_where_its_result_is_read),
        ND_TEST(test_C11_fork_and_exit_with_work_queued),
        ND_TEST(test_C12_copies_of_host_memory_that_ends_behind_the_call),
        ND_TEST(test_C12_copies_both_ways_through_one_block),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
