// What only a real CUDA device shows: memory released while kernels that use it are queued, devices
// after a fork and at exit, products without cuBLAS, memory that runs out.
//
// Some of it needs a process of its own: the program starts itself again with the name of a role.
#include "lib/device/device.h"
#include "lib/device/registry.h"
#include "tests/gpu/gpu.h"
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

// The fake runtime's GPU is one thread of the host, and has little memory.
#ifdef ON_FAKE_RUNTIME
enum { BUSY_SIZE = 8, BUSY_FEW = 50, POOL_ELEMENTS = 1 << 12 };
enum { RELEASED_ELEMENTS = 1 << 14, SHARED_ROUNDS = 20, SHARED_ELEMENTS = 1000 };
#else
enum { BUSY_SIZE = 2048, BUSY_FEW = 400, POOL_ELEMENTS = 1 << 26 };
enum { RELEASED_ELEMENTS = 1 << 20, SHARED_ROUNDS = 200, SHARED_ELEMENTS = 10000 };
#endif

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/// Tensor of n elements of the same value.
static nd_tensor *full(int64_t n, double value) {
    nd_tensor *x = NULL;
    if (nd_set_default_device(CUDA_DEVICE) == ND_OK)
        x = nd_full(ND_SHAPE(n), value, ND_F32);
    nd_set_default_device((nd_device){ND_CPU, 0});
    return x;
}

static double sum_of(const nd_tensor *x) {
    nd_tensor *sum = nd_sum(x, 0, NULL, false);
    double value = nd_get_item(sum);
    nd_release(sum);
    return value;
}

/// A queue of products that keeps the device busy for a while; returns its last result.
static nd_tensor *busy(int products) {
    nd_tensor *x = nd_reshape(nd_tmp(full(BUSY_SIZE * BUSY_SIZE, 1.0 / BUSY_SIZE)),
                              ND_SHAPE(BUSY_SIZE, BUSY_SIZE));
    for (int i = 0; x && i < products; i++) {
        nd_tensor *next = nd_matmul(x, x);
        nd_release(x);
        x = next;
    }
    return x;
}

/// Inputs are released right after the operation was queued, and their memory is taken and
/// overwritten at once by others: the results must be those of the values that were there.
static void test_F17_release_is_ordered_behind_queued_work(void **state) {
    (void)state;
    enum { ROUNDS = 64 };
    const int64_t n = RELEASED_ELEMENTS;
    nd_tensor *results[ROUNDS];
    ND_SCOPE {
        nd_tensor *before = busy(20);
        assert_handle(before);
        for (int round = 0; round < ROUNDS; round++) {
            nd_tensor *a = full(n, round), *b = full(n, 2);
            results[round] = nd_mul(a, b);
            assert_handle(results[round]);
            nd_release(a);
            nd_release(b);
            nd_release(full(n, -1));
        }
        nd_release(before);
    }
    for (int round = 0; round < ROUNDS; round++) {
        assert_true(sum_of(results[round]) == 2.0 * round * (double)n);
        nd_release(results[round]);
    }
}

/// Releasing while the device is busy takes the time of a call, not of the work.
static void test_release_does_not_wait(void **state) {
    (void)state;
    ND_SCOPE {
        nd_release(busy(4)); // everything is loaded and warm
        assert_ok(nd_synchronize(CUDA_DEVICE));
        double queued = now();
        nd_tensor *last = busy(BUSY_FEW);
        double released = now();
        nd_release(last);
        double after = now();
        assert_ok(nd_synchronize(CUDA_DEVICE));
        double done = now();
        printf("queued in %.3f ms, released in %.3f ms, worked for %.3f ms\n",
               1e3 * (released - queued), 1e3 * (after - released), 1e3 * (done - queued));
        // Only where the device was still at work does the figure say anything; and nothing of a
        // machine that does everything else beside.
        if (BUSY_SIZE == 2048 && done - after > 0.005)
            assert_true(after - released < 0.25 * (done - after));
    }
}

static void test_pool_memory_is_reused(void **state) {
    (void)state;
    // Far more in sum than any device has, never more than two blocks at once.
    for (int round = 0; round < 4000; round++) {
        nd_tensor *x = full(POOL_ELEMENTS, round);
        assert_handle(x);
        nd_release(x);
    }
}

static void test_F02_out_of_memory_is_an_answer(void **state) {
    (void)state;
    nd_tensor *x = full((int64_t)1 << 44, 1);
    assert_null(x);
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    nd_error_clear();
    nd_tensor *small = full(1000, 1);
    assert_handle(small);
    assert_true(sum_of(small) == 1000);
    nd_release(small);
}

static void *add_many_times(void *argument) {
    double value = *(double *)argument;
    bool right = true;
    for (int round = 0; round < SHARED_ROUNDS && right; round++) {
        nd_tensor *a = full(SHARED_ELEMENTS, value), *b = full(SHARED_ELEMENTS, round);
        nd_tensor *c = nd_add(a, b);
        right = c && sum_of(c) == (value + round) * SHARED_ELEMENTS;
        nd_release(a);
        nd_release(b);
        nd_release(c);
    }
    return right ? argument : NULL;
}

static void test_threads_share_a_device(void **state) {
    (void)state;
    enum { THREADS = 8 };
    pthread_t threads[THREADS];
    double numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, add_many_times, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *right;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_non_null(right);
    }
}

static void test_F22_a_forked_child_has_no_device(void **state) {
    (void)state;
    nd_tensor *x = full(1000, 1);
    assert_handle(x);
    pid_t child = fork();
    if (child == 0) {
        bool right = nd_get_device_count(ND_CUDA) == 0 &&
                     nd_synchronize(CUDA_DEVICE) == ND_ERROR_DEVICE && full(10, 1) == NULL &&
                     nd_error_get_status() == ND_ERROR_DEVICE;
        nd_release(x); // must do nothing to the driver
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_true(sum_of(x) == 1000);
    nd_release(x);
}

/// More elements than 32 bits count: 64-bit positions in every kind of kernel.
static void test_F28_more_than_four_gigabytes(void **state) {
    (void)state;
    const int64_t n = ((int64_t)1 << 32) + 10;
    assert_ok(nd_set_default_device(CUDA_DEVICE));
    nd_tensor *x = nd_full(ND_SHAPE(n), 3, ND_U8);
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
    if (!x && nd_error_get_status() == ND_ERROR_OUT_OF_MEMORY) {
        printf("this device has no room for %lld bytes\n", (long long)n);
        nd_error_clear();
        return;
    }
    assert_handle(x);
    ND_SCOPE {
        nd_tensor *end = nd_slice(x, n - 2, n, 1, 0);
        assert_ok(nd_fill_(end, 7));
        nd_release(end);
        const nd_tensor *largest = nd_tmp(nd_max(x, 0, NULL, false));
        assert_true(nd_get_item(largest) == 7);
        int64_t position;
        assert_ok(nd_get_item_i64(nd_tmp(nd_argmax(x, 0, false)), &position));
        assert_true(position == n - 2);
        // Every second element, by strides; then all of them, in packs.
        const nd_tensor *half = nd_tmp(nd_slice(x, 0, n, 2, 0));
        const nd_tensor *raised = nd_tmp(nd_add_scalar(half, 1));
        uint8_t tail[2];
        assert_ok(nd_copy_to_host(nd_tmp(nd_slice(raised, n / 2 - 2, n / 2, 1, 0)), tail, 2));
        assert_true(tail[0] == 4 && tail[1] == 8);
        const nd_tensor *twice = nd_tmp(nd_add(x, x));
        assert_ok(nd_copy_to_host(nd_tmp(nd_slice(twice, n - 3, n - 1, 1, 0)), tail, 2));
        assert_true(tail[0] == 6 && tail[1] == 14);
    }
    nd_release(x);
}

typedef struct seen_by_callback {
    nd_tensor *owned;
    pthread_t thread;
    bool called, refused;
} seen_by_callback;

static void release_on_the_drivers_thread(void *data) {
    seen_by_callback *seen = data;
    seen->thread = pthread_self();
    seen->refused = nd_add(seen->owned, seen->owned) == NULL &&
                    nd_error_get_status() == ND_ERROR_STATE &&
                    nd_synchronize(CUDA_DEVICE) == ND_ERROR_STATE;
    nd_release(seen->owned);
    __atomic_store_n(&seen->called, true, __ATOMIC_RELEASE);
}

/// A callback behind much work runs when that is done, on a thread of the driver; what it releases
/// is destroyed by others, and the device goes on.
static void test_G37_release_in_a_callback(void **state) {
    (void)state;
    ND_SCOPE {
        for (int round = 0; round < 100; round++) {
            nd_tensor *last = busy(round == 0 ? 200 : 2);
            seen_by_callback seen = {.owned = full(1 << 16, 1)};
            assert_ok(nd_queue_callback(CUDA_DEVICE, release_on_the_drivers_thread, &seen, last));
            if (round == 0)
                assert_false(__atomic_load_n(&seen.called, __ATOMIC_ACQUIRE)); // work is ahead
            nd_release(last);
            nd_tensor *behind = full(1000, 2);
            assert_true(sum_of(behind) == 2000); // waits for the callback as well
            nd_release(behind);
            assert_true(__atomic_load_n(&seen.called, __ATOMIC_ACQUIRE));
            assert_true(seen.refused);
            assert_false(pthread_equal(seen.thread, pthread_self()));
        }
    }
    assert_ok(nd_synchronize(CUDA_DEVICE));
}

/// Starts this program again; asserts that it ends with 0.
static void run_role(const char *role) {
    char program[4096];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    assert_true(length > 0);
    program[length] = '\0';
    char *arguments[] = {program, (char *)role, NULL};
    pid_t child;
    int status;
    assert_int_equal(posix_spawn(&child, program, NULL, NULL, arguments, environ), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("%s ended with status %d", role, status);
}

static nd_tensor *left_behind;

static void release_late(void) {
    nd_release(left_behind);
}

/// Ends the process with live tensors and queued work, one of them released by an exit handler.
static int exit_with_tensors(void) {
    atexit(release_late); // runs after the backend's own handlers
    left_behind = full(1 << 20, 1);
    ND_SCOPE {
        nd_tensor *kept = busy(50);
        return left_behind && kept ? 0 : 1;
    }
    return 1;
}

static void test_F23_exit_with_live_tensors(void **state) {
    (void)state;
    run_role("exit_with_tensors");
}

/// A product of whole numbers, exact whatever computes it.
static int multiply(void) {
    nd_tensor *x = nd_arange(0, 12, 1, ND_F32);
    nd_tensor *matrix = nd_reshape(x, ND_SHAPE(3, 4));
    nd_tensor *there = nd_to(matrix, CUDA_DEVICE);
    nd_tensor *turned = nd_transpose(there, 0, 1);
    nd_tensor *product = nd_matmul(there, turned);
    float found[9] = {0};
    const float expected[9] = {14, 38, 62, 38, 126, 214, 62, 214, 366};
    bool right = product && nd_copy_to_host(product, found, sizeof found) == ND_OK &&
                 memcmp(found, expected, sizeof found) == 0;
    if (!right)
        fprintf(stderr, "multiply: %s\n", nd_error_get_message());
    nd_release(product);
    nd_release(turned);
    nd_release(there);
    nd_release(matrix);
    nd_release(x);
    return right ? 0 : 1;
}

static void test_F21_products_without_cublas(void **state) {
    (void)state;
    run_role("multiply");
    assert_int_equal(setenv("ND_CUBLAS", "/nonexistent/libcublas.so", 1), 0);
    run_role("multiply");
    // A library that is there and is no cuBLAS.
    assert_int_equal(setenv("ND_CUBLAS", "libm.so.6", 1), 0);
    run_role("multiply");
    unsetenv("ND_CUBLAS");
}

/// Fills memory that is not there: from then on the device refuses everything, and says so.
static int fail_for_good(void) {
    nd_tensor *x = full(1000, 1);
    nd_kernel_call call = {.op = ND_OP_fill, .noperands = 1, .ndim = 1, .shape = {1 << 20}};
    call.operand[0] = (nd_operand){.data = (void *)64, .dtype = ND_F32, .strides = {1}};
    const nd_backend *cuda = nd__registry_backend(ND_CUDA);
    bool right = x && nd_synchronize(CUDA_DEVICE) == ND_OK && cuda->launch(0, &call) == ND_OK;
    for (int again = 0; again < 3; again++)
        right = right && nd_synchronize(CUDA_DEVICE) == ND_ERROR_DEVICE;
    right = right && nd_add(x, x) == NULL && nd_error_get_status() == ND_ERROR_DEVICE;
    nd_release(x);
    cuda->memory->retire(0);
    right = right && !cuda->memory->wait(0, 1000000000);
    cuda->memory->trim(0);
    return right ? 0 : 1;
}

static void test_F19_a_sticky_error_stays_an_error(void **state) {
    (void)state;
    run_role("fail_for_good");
}

static const struct {
    const char *name;
    int (*run)(void);
} roles[] = {
    {"exit_with_tensors", exit_with_tensors},
    {"multiply", multiply},
    {"fail_for_good", fail_for_good},
};

int main(int argc, char **argv) {
    int skipped;
    for (size_t i = 0; argc > 1 && i < sizeof roles / sizeof *roles; i++)
        if (strcmp(argv[1], roles[i].name) == 0)
            return roles[i].run();
    if (!gpu_present(&skipped))
        return skipped;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F17_release_is_ordered_behind_queued_work),
        ND_TEST(test_release_does_not_wait),
        ND_TEST(test_pool_memory_is_reused),
        ND_TEST(test_F02_out_of_memory_is_an_answer),
        ND_TEST(test_F28_more_than_four_gigabytes),
        ND_TEST(test_threads_share_a_device),
        ND_TEST(test_G37_release_in_a_callback),
        ND_TEST(test_F22_a_forked_child_has_no_device),
        ND_TEST(test_F19_a_sticky_error_stays_an_error),
        ND_TEST(test_F23_exit_with_live_tensors),
        ND_TEST(test_F21_products_without_cublas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
