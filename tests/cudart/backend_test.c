// lib/device/cuda on the fake runtime: what it must not rely on, and what it must not forget.
//
// tests/cudart/planted/ holds bugs that these tests must notice.
#include "tests/cudart/backend.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static double sum_of(const nd_tensor *x) {
    nd_tensor *sum = nd_sum(x, 0, NULL, false);
    double value = nd_get_item(sum);
    nd_release(sum);
    return value;
}

static void assert_nothing_left_on_devices(void) {
    for (int i = 0; i < nd_get_device_count(ND_CUDA); i++)
        assert_ok(nd_synchronize(cuda(i)));
    assert_int_equal(statistics().live_blocks, 0);
    assert_int_equal(statistics().refused, 0);
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
}

// ------------------------------------------------------------------------------------------------
// copies

/// Small ones go through a ring of pinned memory, which must not be written before it was read.
static void test_many_small_copies(void **state) {
    (void)state;
    enum { COPIES = 40 };
    for (uint64_t seed = 0; seed < 10; seed++) {
        cudart_set_seed(seed);
        nd_tensor *there[COPIES];
        for (int i = 0; i < COPIES; i++) {
            nd_tensor *here = full_on(cpu, 100, i);
            there[i] = nd_to(here, cuda(0));
            assert_handle(there[i]);
            nd_release(here);
        }
        for (int i = 0; i < COPIES; i++) {
            assert_true(sum_of(there[i]) == 100.0 * i);
            nd_release(there[i]);
        }
    }
    assert_nothing_left_on_devices();
}

/// Larger ones may be changed as soon as the call is back.
static void test_a_large_copy_has_been_read(void **state) {
    (void)state;
    cudart_set_seed(0);
    const int64_t n = 100000;
    nd_tensor *here = full_on(cpu, n, 1);
    nd_tensor *there = nd_to(here, cuda(0));
    assert_handle(there);
    assert_ok(nd_fill_(here, 7));
    assert_true(sum_of(there) == (double)n);
    nd_release(here);
    nd_release(there);
    assert_nothing_left_on_devices();
}

static void test_a_copy_to_the_host_has_arrived(void **state) {
    (void)state;
    cudart_set_seed(0);
    for (int64_t n = 10; n <= 100000; n *= 100) {
        nd_tensor *x = full_on(cuda(0), n, 3);
        float *found = calloc((size_t)n, sizeof *found);
        assert_ok(nd_copy_to_host(x, found, (size_t)n * sizeof *found));
        assert_true(found[0] == 3 && found[n - 1] == 3);
        free(found);
        nd_release(x);
    }
    assert_nothing_left_on_devices();
}

/// A wait that fails leaves no copy behind that would still write to the caller's memory.
static void test_a_copy_whose_wait_fails(void **state) {
    (void)state;
    cudart_set_seed(0);
    nd_tensor *x = full_on(cuda(0), 100, 3);
    assert_ok(nd_synchronize(cuda(0)));
    float found[100] = {0};
    cudart_fail("cudaStreamSynchronize", 1, cudaErrorUnknown);
    assert_int_equal(nd_copy_to_host(x, found, sizeof found), ND_ERROR_DEVICE);
    assert_int_equal(statistics().pending, 0);
    nd_error_clear();
    nd_tensor *large = full_on(cpu, 100000, 1);
    cudart_fail("cudaStreamSynchronize", 1, cudaErrorUnknown);
    assert_null(nd_to(large, cuda(0)));
    assert_true(statistics().pending <= 1); // the release of what was not filled
    nd_error_clear();
    nd_release(large);
    nd_release(x);
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// memory

/// Released at once, with everything still queued; nothing waits.
static void test_release_behind_queued_work(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 10; seed++) {
        cudart_set_seed(seed);
        nd_tensor *last = full_on(cuda(0), 1000, 1);
        for (int i = 0; i < 20; i++) {
            nd_tensor *next = nd_add(last, last);
            nd_release(last);
            nd_release(full_on(cuda(0), 1000, -1));
            last = next;
        }
        if (seed == 0)
            assert_true(statistics().pending > 60);
        assert_true(sum_of(last) == 1000.0 * (1 << 20));
        nd_release(last);
    }
    assert_nothing_left_on_devices();
}

/// A long sum is made in parts that lie in memory of their own.
static void test_scratch_lives_until_it_was_used(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        cudart_set_seed(seed);
        nd_tensor *x = full_on(cuda(0), 200000, 2);
        assert_true(sum_of(x) == 400000);
        nd_release(x);
    }
    assert_nothing_left_on_devices();
}

static void test_trim_gives_back(void **state) {
    (void)state;
    nd_release(full_on(cuda(0), 100000, 1));
    assert_ok(nd_synchronize(cuda(0)));
    assert_true(nd_memory_get_cached(ND_CUDA) >= 400000);
    assert_true(nd_memory_trim(ND_CUDA) >= 400000);
    assert_int_equal(nd_memory_get_cached(ND_CUDA), 0);
    assert_nothing_left_on_devices();
}

/// What the pool keeps beyond what is in use stays within the limit, when the device has come to the
/// releases.
static void test_a_limit_of_what_is_kept(void **state) {
    (void)state;
    const uint64_t limit = 1000000;
    assert_ok(nd_memory_set_cache_limit(ND_CUDA, limit));
    nd_tensor *kept = full_on(cuda(0), 500000, 1);
    for (int i = 0; i < 40; i++) {
        nd_release(full_on(cuda(0), 100000 + 10000 * (i % 9), i));
        assert_ok(nd_synchronize(cuda(0)));
        nd_release(full_on(cuda(0), 40000, i)); // which looks
        assert_ok(nd_synchronize(cuda(0)));
        assert_true(nd_memory_get_cached(ND_CUDA) <= limit + limit / 8 + 160000);
    }
    assert_true(sum_of(kept) == 500000);
    nd_release(kept);
    assert_ok(nd_synchronize(cuda(0)));
    assert_ok(nd_memory_set_cache_limit(ND_CUDA, 0));
    assert_int_equal(nd_memory_get_cached(ND_CUDA), 0);
    nd_memory_cache_stats stats = ND_MEMORY_CACHE_STATS_INIT;
    assert_ok(nd_memory_get_cache_stats(ND_CUDA, &stats));
    assert_true(stats.limit == 0 && stats.data == 0 && stats.objects == 0);
    assert_ok(nd_memory_set_cache_limit(ND_CUDA, UINT64_MAX));
    assert_nothing_left_on_devices();
}

/// Sizes of which no two fit beside each other: each must wait until the one before it is given
/// back.
static int little_memory(void) {
    for (uint64_t seed = 0; seed < 4; seed++)
        for (int i = 0; i < 30; i++) {
            nd_tensor *x = full_on(cuda(0), 120000 + i * 1000 * (i % 2 ? 1 : -1), i);
            if (!x) {
                fprintf(stderr, "little_memory: %s\n", nd_error_get_message());
                return 1;
            }
            nd_release(x);
        }
    return nd_synchronize(cuda(0)) == ND_OK && statistics().live_blocks == 0 ? 0 : 2;
}

static void test_F02_memory_that_is_on_its_way_back(void **state) {
    (void)state;
    char said[4096];
    setenv("ND_CUDART_MEMORY", "600000", 1);
    for (int seed = 0; seed < 3; seed++) {
        setenv("ND_CUDART_SEED", seed == 0 ? "0" : seed == 1 ? "1" : "2", 1);
        int status = run_role("little_memory", said, sizeof said);
        if (status != 0)
            fail_msg("seed %d: status %d: %s", seed, status, said);
    }
    unsetenv("ND_CUDART_MEMORY");
    unsetenv("ND_CUDART_SEED");
}

static void test_F02_an_error_is_not_left_behind(void **state) {
    (void)state;
    assert_null(full_on(cuda(0), (int64_t)1 << 40, 1));
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    nd_error_clear();
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// devices, indices, callbacks

/// ndarc's second device is CUDA's third.
static void test_two_devices_in_turns(void **state) {
    (void)state;
    assert_int_equal(nd_get_device_count(ND_CUDA), 2);
    nd_tensor *x[2];
    for (int i = 0; i < 2; i++)
        x[i] = full_on(cuda(i), 1000, i + 1);
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < 2; i++) {
            assert_handle(x[i]);
            nd_tensor *next = nd_add(x[i], x[i]);
            nd_release(x[i]);
            x[i] = next;
        }
    nd_tensor *moved = nd_to(x[0], cuda(1));
    assert_handle(moved);
    assert_true(sum_of(moved) == 1024000);
    nd_release(moved);
    for (int i = 0; i < 2; i++) {
        assert_true(sum_of(x[i]) == 1024000.0 * (i + 1));
        nd_release(x[i]);
    }
    assert_nothing_left_on_devices();
}

static void test_an_index_out_of_range_is_told(void **state) {
    (void)state;
    nd_tensor *x = full_on(cuda(0), 10, 1);
    nd_tensor *far = nd_full(ND_SHAPE(3), 10, ND_I64);
    nd_tensor *index = nd_to(far, cuda(0));
    nd_tensor *taken = nd_take(x, index, 0);
    assert_int_equal(nd_synchronize(cuda(0)), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_synchronize(cuda(0)));
    nd_release(taken);
    nd_release(index);
    nd_release(far);
    nd_release(x);
    assert_nothing_left_on_devices();
}

static void release_it(void *data) {
    nd_release((nd_tensor *)data);
}

/// The callback makes no CUDA call; what it released is given back all the same.
static void test_G37_a_callback_calls_no_device(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 4; seed++) {
        cudart_set_seed(seed);
        for (int i = 0; i < 10; i++)
            assert_ok(nd_queue_callback(cuda(0), release_it, full_on(cuda(0), 100, i), NULL));
        assert_ok(nd_synchronize(cuda(0)));
    }
    assert_nothing_left_on_devices();
}

static void *work_alone(void *argument) {
    int device = *(const int *)argument % 2;
    for (int round = 0; round < 20; round++) {
        nd_tensor *a = full_on(cuda(device), 500, round), *b = nd_add(a, a);
        nd_release(a);
        bool right = b && sum_of(b) == 1000.0 * round;
        nd_release(b);
        if (!right)
            return NULL;
    }
    return argument;
}

static void test_threads_on_two_devices(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, work_alone, &numbers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *right;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_non_null(right);
    }
    assert_nothing_left_on_devices();
}

// ------------------------------------------------------------------------------------------------
// ends

/// Work fails for good: every call says so from then on, and nothing comes to harm.
static int lost(void) {
    nd_tensor *x = full_on(cuda(0), 1000, 1);
    if (!x || nd_synchronize(cuda(0)) != ND_OK)
        return 1;
    cudart_lose(1);
    nd_tensor *y = nd_add(x, x);
    for (int i = 0; i < 3; i++)
        if (nd_synchronize(cuda(0)) != ND_ERROR_DEVICE)
            return 2;
    float found[1000];
    if (nd_copy_to_host(x, found, sizeof found) != ND_ERROR_DEVICE)
        return 3;
    nd_tensor *z = nd_add(x, x);
    if (z || nd_error_get_status() != ND_ERROR_DEVICE)
        return 4;
    nd_release(y);
    nd_release(x);
    nd_tensor *there = full_on(cuda(1), 10, 1); // has not failed
    bool right = there && sum_of(there) == 10;
    nd_release(there);
    return right && nd_manager_get_total_objects(NULL) == 0 ? 0 : 5;
}

static void test_F19_a_lost_device_says_so(void **state) {
    (void)state;
    char said[4096];
    assert_int_equal(run_role("lost", said, sizeof said), 0);
}

static void count_call(void *data) {
    atomic_fetch_add((_Atomic int *)data, 1);
}

/// Callbacks that a lost device never calls keep nothing; those of another device are not touched.
static int lost_with_callbacks(void) {
    nd_tensor *kept[2] = {nd_full(ND_SHAPE(10), 1, ND_F32), nd_full(ND_SHAPE(10), 1, ND_F32)};
    nd_tensor *x = full_on(cuda(0), 1000, 1);
    static _Atomic int calls[2];
    if (!kept[0] || !kept[1] || !x || nd_synchronize(cuda(0)) != ND_OK)
        return 1;
    cudart_hold(); // else the runtime may do what is queued at any time
    nd_tensor *y = nd_add(x, x);
    for (int i = 0; i < 3; i++)
        if (nd_queue_callback(cuda(0), count_call, &calls[0], kept[0]) != ND_OK)
            return 2;
    if (nd_queue_callback(cuda(1), count_call, &calls[1], kept[1]) != ND_OK ||
        nd_get_count(kept[0]) != 4)
        return 3;
    cudart_fail("cudaStreamSynchronize", 1, cudaErrorLaunchFailure);
    if (nd_synchronize(cuda(0)) != ND_ERROR_DEVICE || nd_get_count(kept[0]) != 1)
        return 4;
    cudart_let_go();
    if (nd_queue_callback(cuda(0), count_call, &calls[0], kept[0]) != ND_ERROR_DEVICE ||
        nd_get_count(kept[0]) != 1)
        return 5;
    if (nd_synchronize(cuda(1)) != ND_OK || atomic_load(&calls[1]) != 1 ||
        atomic_load(&calls[0]) != 0)
        return 6;
    nd_release(y);
    nd_release(x);
    nd_release(kept[0]);
    nd_release(kept[1]);
    return nd_manager_get_total_objects(NULL) == 0 ? 0 : 7;
}

static void test_F19_a_lost_device_keeps_nothing_for_callbacks(void **state) {
    (void)state;
    char said[4096];
    assert_int_equal(run_role("lost_with_callbacks", said, sizeof said), 0);
}

static int child_after_use(void) {
    nd_tensor *x = full_on(cuda(0), 1000, 1);
    pid_t child = fork();
    if (child == 0) {
        bool right =
            nd_get_device_count(ND_CUDA) == 0 && nd_synchronize(cuda(0)) == ND_ERROR_DEVICE;
        nd_release(x);
        _exit(right ? 0 : 1);
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    nd_release(x);
    return 0;
}

static nd_tensor *until_exit;

static void release_late(void) {
    nd_release(until_exit);
}

static int exit_with_tensors(void) {
    atexit(release_late);
    until_exit = full_on(cuda(0), 1000, 1);
    return until_exit ? 0 : 1;
}

static atomic_int at_work;

static void *work_for_ever(void *data) {
    nd_tensor *x = full_on(cuda(0), 1000, 1);
    atomic_fetch_add(&at_work, 1);
    for (;;)
        nd_release(nd_add(x, x)); // NULL once exit has begun
    return data;
}

/// Runs behind the handlers of all that is touched later.
static void linger(void) {
    usleep(20000);
}

static int exit_beside_work(void) {
    pthread_t thread;
    atexit(linger);
    for (int i = 0; i < 3; i++)
        if (pthread_create(&thread, NULL, work_for_ever, NULL) != 0)
            return 1;
    while (atomic_load(&at_work) < 3)
        usleep(100);
    usleep(2000);
    return 0;
}

static void test_F23_exit_beside_threads_at_work(void **state) {
    (void)state;
    char said[4096];
    for (int i = 0; i < 20; i++)
        if (run_role("exit_beside_work", said, sizeof said) != 0)
            fail_msg("round %d: %s", i, said);
}

static void test_F22_F23_child_and_exit(void **state) {
    (void)state;
    char said[4096];
    assert_int_equal(run_role("child_after_use", said, sizeof said), 0);
    assert_int_equal(run_role("exit_with_tensors", said, sizeof said), 0);
}

static const role roles[] = {
    {"little_memory", little_memory},
    {"lost", lost},
    {"lost_with_callbacks", lost_with_callbacks},
    {"child_after_use", child_after_use},
    {"exit_with_tensors", exit_with_tensors},
    {"exit_beside_work", exit_beside_work},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_many_small_copies),
        ND_TEST(test_a_large_copy_has_been_read),
        ND_TEST(test_a_copy_to_the_host_has_arrived),
        ND_TEST(test_a_copy_whose_wait_fails),
        ND_TEST(test_release_behind_queued_work),
        ND_TEST(test_scratch_lives_until_it_was_used),
        ND_TEST(test_trim_gives_back),
        ND_TEST(test_a_limit_of_what_is_kept),
        ND_TEST(test_F02_memory_that_is_on_its_way_back),
        ND_TEST(test_F02_an_error_is_not_left_behind),
        ND_TEST(test_two_devices_in_turns),
        ND_TEST(test_an_index_out_of_range_is_told),
        ND_TEST(test_G37_a_callback_calls_no_device),
        ND_TEST(test_threads_on_two_devices),
        ND_TEST(test_F19_a_lost_device_says_so),
        ND_TEST(test_F19_a_lost_device_keeps_nothing_for_callbacks),
        ND_TEST(test_F22_F23_child_and_exit),
        ND_TEST(test_F23_exit_beside_threads_at_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
