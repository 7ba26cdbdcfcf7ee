// What the fake CUDA runtime promises its users: that it does work late, in streams' order and no
// other, with memory that ends. What it ends a program for: runtime_ends_test.c.
#include "tests/cudart/calls.h"
#include <math.h>
#include <pthread.h>
#include <time.h>
#include <unistd.h>

// ------------------------------------------------------------------------------------------------
// order

static void test_nothing_happens_before_somebody_waits(void **state) {
    (void)state;
    cudart_set_seed(0);
    cudaStream_t stream = stream_new();
    float *x = floats(stream), host[COUNT] = {0};
    assert_cuda(test_fill(x, COUNT, 3, stream));
    to_host(host, x, stream);
    assert_int_equal(statistics().pending, 3);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    assert_int_equal(cudaGetLastError(), cudaErrorNotReady);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_cuda(cudaStreamSynchronize(stream));
    assert_int_equal(statistics().pending, 0);
    for (int i = 0; i < COUNT; i++)
        assert_true(host[i] == 3);
    assert_cuda(cudaFreeAsync(x, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaStreamDestroy(stream));
}

/// What another seed let happen unasked does not happen under this one.
static void test_a_new_seed_forgets_what_was_due(void **state) {
    (void)state;
    cudaStream_t stream = stream_new();
    float *x = floats(stream);
    for (uint64_t seed = 1; seed <= 40; seed++) {
        cudart_set_seed(seed);
        assert_cuda(test_fill(x, COUNT, 3, stream));
        assert_cuda(cudaStreamSynchronize(stream));
        cudart_set_seed(0);
        assert_cuda(test_fill(x, COUNT, 4, stream));
        assert_int_equal(usleep(1000), 0);
        assert_int_equal(statistics().pending, 1);
        assert_cuda(cudaStreamSynchronize(stream));
    }
    assert_cuda(cudaFreeAsync(x, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaStreamDestroy(stream));
}

/// Pinned or not, a copy reads when the stream gets there.
static void *wait_for_stream(void *stream) {
    assert_cuda(cudaStreamSynchronize(stream));
    return stream;
}

static void test_held_work_waits_until_it_is_let_go(void **state) {
    (void)state;
    cudart_set_seed(3);
    cudaStream_t stream = stream_new();
    float *x = floats(stream), found[COUNT] = {0};
    cudart_hold();
    const uint64_t steps = statistics().steps;
    assert_cuda(test_fill(x, COUNT, 5, stream));
    to_host(found, x, stream);
    pthread_t waiting;
    assert_int_equal(pthread_create(&waiting, NULL, wait_for_stream, stream), 0);
    usleep(20000);
    assert_int_equal(cudaStreamQuery(stream), cudaErrorNotReady);
    assert_int_equal(statistics().steps, steps);
    cudart_let_go();
    for (int i = 0; statistics().pending > 0 && i < 20000; i++)
        usleep(1000);
    assert_int_equal(statistics().pending, 0); // though this thread has not waited
    assert_int_equal(pthread_join(waiting, NULL), 0);
    assert_true(found[0] == 5 && found[COUNT - 1] == 5);
    assert_cuda(cudaFreeAsync(x, stream));
    assert_cuda(cudaStreamSynchronize(stream));
    assert_cuda(cudaStreamDestroy(stream));
}

static void test_a_copy_reads_its_source_late(void **state) {
    (void)state;
    cudart_set_seed(0);
    cudaStream_t stream = stream_new();
    float *x = floats(stream), host[COUNT] = {1}, found[COUNT];
    assert_cuda(cudaMemcpyAsync(x, host, sizeof host, cudaMemcpyHostToDevice, stream));
    host[0] = 2;
    to_host(found, x, stream);
    assert_cuda(cudaStreamSynchronize(stream));
    assert_true(found[0] == 2);
    assert_cuda(cudaFree(x));
}

static void test_new_memory_is_poison(void **state) {
    (void)state;
    cudaStream_t stream = stream_new();
    float *x = floats(stream), found[COUNT];
    to_host(found, x, stream);
    assert_cuda(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        assert_true(isnan(found[i]) || found[i] < -1e6f);
    assert_cuda(cudaFreeAsync(x, stream));
}

static void test_an_event_orders_streams(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        cudart_set_seed(seed);
        cudaStream_t one = stream_new(), other = stream_new();
        float *x = floats(one), found[COUNT];
        assert_cuda(test_fill(x, COUNT, 5, one));
        cudaEvent_t filled = event_behind(one);
        assert_cuda(cudaStreamWaitEvent(other, filled, 0));
        to_host(found, x, other);
        cudaEvent_t copied = event_behind(other);
        assert_cuda(cudaStreamWaitEvent(one, copied, 0));
        assert_cuda(cudaFreeAsync(x, one));
        assert_cuda(cudaEventSynchronize(copied));
        assert_true(found[COUNT - 1] == 5);
        assert_cuda(cudaStreamSynchronize(one));
        assert_cuda(cudaEventDestroy(filled));
        assert_cuda(cudaEventDestroy(copied));
        assert_cuda(cudaStreamDestroy(one));
        assert_cuda(cudaStreamDestroy(other));
    }
}

/// Without one both orders come, so a program that needs one fails for some seed.
static void test_without_an_event_both_orders_come(void **state) {
    (void)state;
    bool seen[2] = {false, false};
    cudaStream_t one = stream_new(), other = stream_new();
    void *x;
    assert_cuda(cudaMalloc(&x, COUNT * sizeof(float)));
    for (uint64_t seed = 1; seed < 40; seed++) {
        cudart_set_seed(seed);
        float found[COUNT];
        assert_cuda(test_fill(x, COUNT, 1, one));
        assert_cuda(test_fill(x, COUNT, 2, other));
        assert_cuda(cudaDeviceSynchronize());
        to_host(found, x, one);
        assert_cuda(cudaStreamSynchronize(one));
        seen[found[0] == 2] = true;
    }
    assert_true(seen[0] && seen[1]);
    assert_cuda(cudaFree(x));
}

static void test_asking_again_and_again_is_enough(void **state) {
    (void)state;
    cudart_set_seed(0);
    cudaStream_t stream = stream_new();
    float *x = floats(stream);
    for (int i = 0; i < 20; i++)
        assert_cuda(test_fill(x, COUNT, (float)i, stream));
    cudaEvent_t event = event_behind(stream);
    while (cudaEventQuery(event) == cudaErrorNotReady)
        nanosleep(&(struct timespec){.tv_nsec = 10000}, NULL);
    assert_cuda(cudaStreamQuery(stream));
    assert_cuda(cudaEventDestroy(event));
    assert_cuda(cudaFree(x));
    (void)cudaGetLastError();
}

/// The stream NULL and blocking streams are in order; others are not.
static void test_the_null_stream(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        cudart_set_seed(seed);
        cudaStream_t stream;
        assert_cuda(cudaStreamCreate(&stream));
        void *x;
        float found[COUNT];
        assert_cuda(cudaMalloc(&x, sizeof found));
        assert_cuda(test_fill(x, COUNT, 1, stream));
        assert_cuda(test_fill(x, COUNT, 2, NULL));
        assert_cuda(test_add(x, x, COUNT, stream));
        assert_cuda(cudaMemcpy(found, x, sizeof found, cudaMemcpyDeviceToHost));
        assert_true(found[7] == 4);
        assert_cuda(cudaFree(x));
        assert_cuda(cudaStreamDestroy(stream));
    }
}

// ------------------------------------------------------------------------------------------------
// kernels and functions

/// A kernel that lacks a barrier gives something wrong for most seeds.
static void test_a_missing_barrier_shows(void **state) {
    (void)state;
    cudaStream_t stream = stream_new();
    int wrong[2] = {0, 0};
    for (uint64_t seed = 1; seed <= 16; seed++)
        for (int wait = 0; wait < 2; wait++) {
            cudart_set_seed(seed);
            float *x = floats(stream), *y = floats(stream), from[COUNT], found[COUNT];
            for (int i = 0; i < COUNT; i++)
                from[i] = (float)(i + 1);
            assert_cuda(cudaMemcpyAsync(x, from, sizeof from, cudaMemcpyHostToDevice, stream));
            assert_cuda(test_reverse(y, x, COUNT, wait, stream));
            to_host(found, y, stream);
            assert_cuda(cudaStreamSynchronize(stream));
            bool right = true;
            for (int i = 0; i < COUNT; i++)
                right = right && found[i] == from[i / 64 * 64 + 63 - i % 64];
            wrong[wait] += !right;
            assert_cuda(cudaFreeAsync(x, stream));
            assert_cuda(cudaFreeAsync(y, stream));
        }
    assert_int_equal(wrong[1], 0);
    assert_true(wrong[0] > 8);
}

/// And so does one in which a warp that is ahead writes what another one has yet to read.
static void test_a_warp_that_is_ahead_shows(void **state) {
    (void)state;
    cudaStream_t stream = stream_new();
    int wrong[2] = {0, 0};
    for (uint64_t seed = 1; seed <= 16; seed++)
        for (int wait = 0; wait < 2; wait++) {
            cudart_set_seed(seed);
            float *x = floats(stream), *y = floats(stream), from[COUNT], found[COUNT];
            for (int i = 0; i < COUNT; i++)
                from[i] = (float)(i % 7);
            assert_cuda(cudaMemcpyAsync(x, from, sizeof from, cudaMemcpyHostToDevice, stream));
            assert_cuda(test_sums(y, x, COUNT, wait, stream));
            to_host(found, y, stream);
            assert_cuda(cudaStreamSynchronize(stream));
            bool right = true;
            for (int i = 0; i < COUNT; i++) {
                float sum = 64;
                for (int k = 0; k < 64; k++)
                    sum += 2 * from[i / 64 * 64 + k];
                right = right && found[i] == sum;
            }
            wrong[wait] += !right;
            assert_cuda(cudaFreeAsync(x, stream));
            assert_cuda(cudaFreeAsync(y, stream));
        }
    assert_int_equal(wrong[1], 0);
    assert_true(wrong[0] > 4);
    assert_cuda(cudaStreamDestroy(stream));
}

/// In whichever order the threads run, and beside barriers.
static void test_lanes_of_a_warp_exchange(void **state) {
    (void)state;
    cudaStream_t stream = stream_new();
    for (uint64_t seed = 0; seed < 16; seed++) {
        cudart_set_seed(seed);
        float *x = floats(stream), *y = floats(stream), from[COUNT], found[COUNT];
        for (int i = 0; i < COUNT; i++)
            from[i] = (float)(i * i % 101);
        assert_cuda(cudaMemcpyAsync(x, from, sizeof from, cudaMemcpyHostToDevice, stream));
        assert_cuda(test_shuffle(y, x, COUNT, 0, stream));
        to_host(found, y, stream);
        assert_cuda(cudaStreamSynchronize(stream));
        for (int i = 0; i < COUNT; i++) {
            float sum = 0;
            for (int k = 0; k < 8; k++)
                sum += from[(i / 8 ^ 1) * 8 + k];
            assert_true(found[i] == sum);
        }
        assert_cuda(cudaFreeAsync(x, stream));
        assert_cuda(cudaFreeAsync(y, stream));
    }
    assert_cuda(cudaStreamDestroy(stream));
}

typedef struct seen {
    pthread_t thread;
    cudaError_t inside;
} seen;

static void call_inside(void *data) {
    seen *found = data;
    void *pointer;
    found->thread = pthread_self();
    found->inside = cudaMalloc(&pointer, 100);
}

static void test_calls_inside_a_function_are_refused(void **state) {
    (void)state;
    cudaStream_t stream = stream_new();
    seen found = {.thread = pthread_self()};
    uint64_t refused = statistics().refused;
    assert_cuda(cudaLaunchHostFunc(stream, call_inside, &found));
    assert_cuda(cudaStreamSynchronize(stream));
    assert_int_equal(found.inside, cudaErrorNotPermitted);
    assert_false(pthread_equal(found.thread, pthread_self()));
    assert_int_equal(statistics().refused, refused + 1);
}

static void test_what_cannot_be_launched(void **state) {
    (void)state;
    cudaLaunchConfig_t config = {.gridDim = {1, 1, 1}, .blockDim = {1, 1, 1}};
    assert_int_equal(cudaLaunchKernelExC(&config, (const void *)call_inside, NULL),
                     cudaErrorInvalidDeviceFunction);
    void *x;
    assert_cuda(cudaMalloc(&x, 400));
    assert_int_equal(test_fill(x, 0, 1, NULL), cudaErrorInvalidConfiguration);
    assert_cuda(cudaSetDevice(1)); // too old
    assert_int_equal(test_fill(x, 100, 1, NULL), cudaErrorNoKernelImageForDevice);
    assert_cuda(cudaSetDevice(2));
    cudaStream_t there = stream_new();
    assert_cuda(cudaSetDevice(0));
    assert_int_equal(test_fill(x, 100, 1, there), cudaErrorInvalidResourceHandle);
    assert_cuda(cudaFree(x));
    (void)cudaGetLastError();
}

// ------------------------------------------------------------------------------------------------
// memory

static uint64_t pool_reads(cudaMemPool_t pool, enum cudaMemPoolAttr name) {
    uint64_t value = 0;
    assert_cuda(cudaMemPoolGetAttribute(pool, name, &value));
    return value;
}

/// More than 48 KiB a kernel gets when it has asked, and on the device where it has; new for each block.
static void test_shared_memory_is_asked_for(void **state) {
    (void)state;
    enum { KIB = 1024 };
    cudaStream_t stream = stream_new();
    float *x = floats(stream), *y = floats(stream), found[COUNT];
    float numbers[COUNT];
    for (int i = 0; i < COUNT; i++)
        numbers[i] = (float)(i + 2);
    assert_cuda(cudaMemcpyAsync(x, numbers, sizeof numbers, cudaMemcpyHostToDevice, stream));
    assert_int_equal(test_shared(y, x, COUNT, 49 * KIB, 0, stream), cudaErrorInvalidValue);
    assert_int_equal(test_shared(y, x, COUNT, 49 * KIB, 228 * KIB, stream), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    static const int granted[][2] = {
        {4 * KIB, 0}, {48 * KIB, 0}, {144 * KIB, 144 * KIB}, {227 * KIB, 227 * KIB}};
    for (size_t of = 0; of < sizeof granted / sizeof *granted; of++) {
        assert_cuda(test_shared(y, x, COUNT, (size_t)granted[of][0], granted[of][1], stream));
        to_host(found, y, stream);
        assert_cuda(cudaStreamSynchronize(stream));
        for (int i = 0; i < COUNT; i++)
            assert_true(found[i] == numbers[i / 64 * 64 + 63 - i % 64]);
    }
    assert_cuda(cudaSetDevice(2)); // which was not asked
    assert_int_equal(test_shared(y, x, COUNT, 49 * KIB, 0, NULL), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    assert_cuda(cudaSetDevice(0));
    int most;
    assert_cuda(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    assert_int_equal(most, 227 * KIB);
    assert_cuda(cudaFreeAsync(x, stream));
    assert_cuda(cudaFreeAsync(y, stream));
}

static void test_a_pool_keeps_and_gives_back(void **state) {
    (void)state;
    struct cudaMemPoolProps properties = {
        .allocType = cudaMemAllocationTypePinned,
        .location = {.type = cudaMemLocationTypeDevice, .id = 0},
    };
    cudaMemPool_t pool;
    uint64_t all = UINT64_MAX;
    assert_cuda(cudaMemPoolCreate(&pool, &properties));
    assert_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
    cudaStream_t stream = stream_new();
    size_t before, during, total;
    // What other tests left would be given back meanwhile.
    cudaMemPool_t others;
    assert_cuda(cudaDeviceSynchronize());
    assert_cuda(cudaDeviceGetDefaultMemPool(&others, 0));
    assert_cuda(cudaMemPoolTrimTo(others, 0));
    assert_cuda(cudaMemGetInfo(&before, &total));
    void *x;
    assert_cuda(cudaMallocFromPoolAsync(&x, 1 << 20, pool, stream));
    assert_cuda(cudaFreeAsync(x, stream));
    assert_int_equal(pool_reads(pool, cudaMemPoolAttrUsedMemCurrent), 1 << 20);
    assert_cuda(cudaStreamSynchronize(stream));
    assert_int_equal(pool_reads(pool, cudaMemPoolAttrUsedMemCurrent), 0);
    assert_int_equal(pool_reads(pool, cudaMemPoolAttrReservedMemCurrent), 1 << 20);
    assert_cuda(cudaMemGetInfo(&during, &total));
    assert_int_equal(before - during, 1 << 20);
    assert_cuda(cudaMemPoolTrimTo(pool, 0));
    assert_int_equal(pool_reads(pool, cudaMemPoolAttrReservedMemCurrent), 0);
    assert_int_equal(pool_reads(pool, cudaMemPoolAttrUsedMemHigh), 1 << 20);
    assert_cuda(cudaMemPoolDestroy(pool));
}

/// What another stream has not freed yet is not there; then it is.
static void test_memory_ends(void **state) {
    (void)state;
    cudart_set_seed(0);
    cudaStream_t one = stream_new(), other = stream_new();
    void *blocks[5], *late;
    for (int i = 0; i < 5; i++)
        assert_cuda(cudaMallocAsync(&blocks[i], (size_t)100 << 20, one));
    assert_int_equal(cudaMallocAsync(&late, (size_t)100 << 20, other), cudaErrorMemoryAllocation);
    for (int i = 0; i < 5; i++)
        assert_cuda(cudaFreeAsync(blocks[i], one));
    assert_int_equal(cudaMallocAsync(&late, (size_t)100 << 20, other), cudaErrorMemoryAllocation);
    assert_cuda(cudaStreamSynchronize(one));
    assert_cuda(cudaMallocAsync(&late, (size_t)100 << 20, other));
    assert_cuda(cudaFreeAsync(late, other));
    assert_cuda(cudaStreamSynchronize(other));
    (void)cudaGetLastError();
}

static void test_the_nth_call_fails(void **state) {
    (void)state;
    cudaStream_t stream = stream_new();
    void *x;
    cudart_fail("cudaMallocAsync", 2, cudaErrorMemoryAllocation);
    assert_cuda(cudaMallocAsync(&x, 100, stream));
    assert_cuda(cudaFreeAsync(x, stream));
    assert_int_equal(cudaMallocAsync(&x, 100, stream), cudaErrorMemoryAllocation);
    assert_cuda(cudaMallocAsync(&x, 100, stream));
    assert_cuda(cudaFreeAsync(x, stream));
    cudart_fail(NULL, 1, cudaErrorUnknown);
    assert_int_equal(cudaStreamSynchronize(stream), cudaErrorUnknown);
    assert_int_equal(cudaGetLastError(), cudaErrorUnknown);
    assert_cuda(cudaStreamSynchronize(stream));
}

static void test_peers(void **state) {
    (void)state;
    int can = 0;
    assert_cuda(cudaDeviceCanAccessPeer(&can, 0, 2));
    assert_int_equal(can, 1);
    void *here, *there;
    float from[COUNT] = {4}, found[COUNT];
    assert_cuda(cudaMalloc(&here, sizeof from));
    assert_cuda(cudaSetDevice(2));
    assert_cuda(cudaMalloc(&there, sizeof from));
    assert_cuda(cudaMemcpy(there, from, sizeof from, cudaMemcpyHostToDevice));
    assert_cuda(cudaSetDevice(0));
    assert_cuda(cudaMemcpyPeerAsync(here, 0, there, 2, sizeof from, NULL));
    assert_cuda(cudaMemcpy(found, here, sizeof found, cudaMemcpyDeviceToHost));
    assert_true(found[0] == 4);
    assert_cuda(cudaDeviceEnablePeerAccess(2, 0));
    assert_cuda(test_add(here, there, COUNT, NULL));
    assert_cuda(cudaMemcpy(found, here, sizeof found, cudaMemcpyDeviceToHost));
    assert_true(found[0] == 8);
    assert_cuda(cudaFree(here));
    assert_cuda(cudaFree(there));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_nothing_happens_before_somebody_waits),
        ND_TEST(test_a_new_seed_forgets_what_was_due),
        ND_TEST(test_held_work_waits_until_it_is_let_go),
        ND_TEST(test_a_copy_reads_its_source_late),
        ND_TEST(test_new_memory_is_poison),
        ND_TEST(test_an_event_orders_streams),
        ND_TEST(test_without_an_event_both_orders_come),
        ND_TEST(test_asking_again_and_again_is_enough),
        ND_TEST(test_the_null_stream),
        ND_TEST(test_a_missing_barrier_shows),
        ND_TEST(test_a_warp_that_is_ahead_shows),
        ND_TEST(test_lanes_of_a_warp_exchange),
        ND_TEST(test_calls_inside_a_function_are_refused),
        ND_TEST(test_what_cannot_be_launched),
        ND_TEST(test_shared_memory_is_asked_for),
        ND_TEST(test_a_pool_keeps_and_gives_back),
        ND_TEST(test_memory_ends),
        ND_TEST(test_the_nth_call_fails),
        ND_TEST(test_peers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
