// What the fake CUDA runtime promises its users: that it does work late, in streams' order and no
// other, and that it ends a program which relies on anything else.
#include "tests/cudart/control.h"
#include "tests/cudart/roles.h"
#include "tests/cudart/test_kernels.h"
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define assert_cuda(expression) assert_int_equal((expression), cudaSuccess)

enum { COUNT = 256 };

static cudaStream_t stream_new(void) {
    cudaStream_t stream;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static float *floats(cudaStream_t stream) {
    void *pointer;
    assert_cuda(cudaMallocAsync(&pointer, COUNT * sizeof(float), stream));
    return pointer;
}

static void to_host(float *to, const float *from, cudaStream_t stream) {
    assert_cuda(cudaMemcpyAsync(to, from, COUNT * sizeof(float), cudaMemcpyDeviceToHost, stream));
}

static cudaEvent_t event_behind(cudaStream_t stream) {
    cudaEvent_t event;
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_cuda(cudaEventRecord(event, stream));
    return event;
}

static cudart_statistics statistics(void) {
    cudart_statistics now;
    cudart_get_statistics(&now);
    return now;
}

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

// ------------------------------------------------------------------------------------------------
// what ends a program

static int after_free(void) {
    cudaStream_t stream = stream_new();
    float *x = floats(stream);
    (void)cudaFreeAsync(x, stream);
    (void)test_fill(x, COUNT, 1, stream);
    (void)cudaStreamSynchronize(stream);
    return 0;
}

static int copy_after_free(void) {
    cudaStream_t stream = stream_new();
    float *x = floats(stream), host[COUNT];
    (void)cudaFreeAsync(x, stream);
    to_host(host, x, stream);
    return 0;
}

static int no_event_behind_allocation(void) {
    cudaStream_t one = stream_new(), other = stream_new();
    float *x = floats(one);
    (void)test_fill(x, COUNT, 1, other);
    (void)cudaDeviceSynchronize();
    return 0;
}

static int freed_under_another_stream(void) {
    cudaStream_t one = stream_new(), other = stream_new();
    float *x = floats(one);
    (void)cudaStreamWaitEvent(other, event_behind(one), 0);
    (void)test_fill(x, COUNT, 1, other);
    (void)cudaFreeAsync(x, one);
    (void)cudaStreamQuery(other);
    (void)cudaDeviceSynchronize();
    return 0;
}

static int unordered_writes(void) {
    void *x;
    cudaStream_t one = stream_new(), other = stream_new();
    (void)cudaMalloc(&x, COUNT * sizeof(float));
    (void)test_fill(x, COUNT, 1, one);
    (void)test_fill(x, COUNT, 2, other);
    (void)cudaDeviceSynchronize();
    return 0;
}

static int freed_twice(void) {
    cudaStream_t stream = stream_new();
    float *x = floats(stream);
    (void)cudaFreeAsync(x, stream);
    (void)cudaFreeAsync(x, stream);
    return 0;
}

static int touched_by_the_host(void) {
    void *x;
    (void)cudaMalloc(&x, 100);
    return *(volatile char *)x;
}

static int over_the_end(void) {
    cudaStream_t stream = stream_new();
    (void)test_fill(floats(stream), COUNT + 1, 1, stream);
    (void)cudaStreamSynchronize(stream);
    return 0;
}

static int shuffle_with(int mistake) {
    cudaStream_t stream = stream_new();
    float *x = floats(stream), *y = floats(stream);
    (void)test_fill(x, COUNT, 1, stream);
    (void)test_shuffle(y, x, COUNT, mistake, stream);
    (void)cudaStreamSynchronize(stream);
    return 0;
}

static int shuffle_left_out(void) {
    return shuffle_with(1);
}

static int shuffle_of_nobody(void) {
    return shuffle_with(2);
}

static int shuffle_ended(void) {
    return shuffle_with(3);
}

static int beside_the_end(void) {
    cudaStream_t stream = stream_new();
    void *x;
    (void)cudaMallocAsync(&x, 100, stream);
    (void)test_fill(x, 26, 1, stream);
    (void)cudaFreeAsync(x, stream);
    (void)cudaStreamSynchronize(stream);
    return 0;
}

static int dead_event(void) {
    cudaEvent_t event = event_behind(stream_new());
    (void)cudaEventDestroy(event);
    (void)cudaEventQuery(event);
    return 0;
}

static int dead_stream(void) {
    cudaStream_t stream = stream_new();
    (void)cudaStreamDestroy(stream);
    (void)cudaStreamQuery(stream);
    return 0;
}

static int wrong_direction(void) {
    float host[COUNT] = {0};
    void *x;
    (void)cudaMalloc(&x, sizeof host);
    (void)cudaMemcpy(x, host, sizeof host, cudaMemcpyDeviceToHost);
    return 0;
}

static int host_memory_gone(void) {
    void *x, *host;
    (void)cudaMalloc(&x, 4096);
    (void)cudaMallocHost(&host, 4096);
    (void)cudaMemcpyAsync(x, host, 4096, cudaMemcpyHostToDevice, stream_new());
    (void)cudaFreeHost(host);
    (void)cudaDeviceSynchronize();
    return 0;
}

static int child_calls(void) {
    (void)stream_new();
    pid_t child = fork();
    if (child == 0)
        (void)cudaDeviceSynchronize();
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? 0 : 1;
}

static void late_call(void) {
    (void)cudaDeviceSynchronize();
}

static int exit_calls(void) {
    atexit(late_call);
    (void)stream_new();
    return 0;
}

static void test_what_must_not_be_done_ends_the_program(void **state) {
    (void)state;
    setenv("ND_CUDART_SEED", "0", 1);
    assert_ends("after_free", "after its stream-ordered free");
    assert_ends("copy_after_free", "a block that was freed");
    assert_ends("freed_twice", "freed twice");
    assert_ends("touched_by_the_host", "the host touches memory of a device");
    assert_ends("over_the_end", "over the end of a block");
    assert_ends("shuffle_left_out", "with a mask that leaves it out");
    assert_ends("shuffle_of_nobody", "reads a lane that takes no part");
    assert_ends("shuffle_ended", "at a barrier or in a shuffle");
    assert_ends("beside_the_end", "bytes beside a block were written");
    assert_ends("dead_event", "an event is used that was destroyed");
    assert_ends("dead_stream", "a stream is used that was destroyed");
    assert_ends("wrong_direction", "not what a copy of kind 2 has");
    assert_ends("host_memory_gone", "finds no memory of the host");
    assert_ends("child_calls", "in the child of a process");
    assert_ends("exit_calls", "when exit() had begun");
    setenv("ND_CUDART_RACES", "1", 1);
    assert_ends("unordered_writes", "two streams touch a block");
    unsetenv("ND_CUDART_RACES");
    unsetenv("ND_CUDART_SEED");
}

/// Two steps that nothing orders: each order comes for some seed, and is told with both places.
static void assert_both_told(const char *name, const char *one, const char *other) {
    const char *const orders[] = {one, other};
    bool told[2] = {false, false};
    char seed[16], said[16384];
    for (int i = 0; i < 64 && !(told[0] && told[1]); i++) {
        snprintf(seed, sizeof seed, "%d", i);
        setenv("ND_CUDART_SEED", seed, 1);
        assert_true(WIFSIGNALED(run_role(name, said, sizeof said)));
        for (int order = 0; order < 2; order++)
            told[order] = told[order] || strstr(said, orders[order]);
        assert_non_null(strstr(said, "queued at"));
        assert_non_null(strstr(said, "allocated at"));
    }
    unsetenv("ND_CUDART_SEED");
    if (!told[0] || !told[1])
        fail_msg("%s: never told \"%s\"", name, orders[told[0]]);
}

static void test_streams_that_nothing_orders(void **state) {
    (void)state;
    assert_both_told("no_event_behind_allocation", "before its stream-ordered allocation",
                     "another stream than its allocation's");
    assert_both_told("freed_under_another_stream", "after its stream-ordered free",
                     "a stream that does not wait for another");
}

// ------------------------------------------------------------------------------------------------
// errors that stay

static void note_call(void *data) {
    *(bool *)data = true;
}

static int sticky(void) {
    cudaStream_t stream = stream_new();
    bool called = false;
    if (test_fill((float *)(uintptr_t)64, COUNT, 1, stream) != cudaSuccess ||
        cudaLaunchHostFunc(stream, note_call, &called) != cudaSuccess)
        return 1;
    for (int i = 0; i < 3; i++)
        if (cudaStreamSynchronize(stream) != cudaErrorIllegalAddress ||
            cudaGetLastError() != cudaErrorIllegalAddress)
            return 2;
    void *x;
    if (cudaMalloc(&x, 100) != cudaErrorIllegalAddress || called)
        return 3;
    // The other device has not failed.
    return cudaSetDevice(2) == cudaSuccess && cudaMalloc(&x, 100) == cudaSuccess ? 0 : 4;
}

static int held_has_begun, held_may_write;
static volatile sig_atomic_t faults_that_came_by;

static void on_fault_of_another(int number) {
    faults_that_came_by++;
    signal(number, SIG_DFL);
}

/// While the kernel runs, as a test framework does when a test begins.
static void *put_a_handler_in_front(void *unused) {
    (void)unused;
    while (!__atomic_load_n(&held_has_begun, __ATOMIC_ACQUIRE))
        sched_yield();
    void (*before)(int) = signal(SIGSEGV, on_fault_of_another);
    __atomic_store_n(&held_may_write, 1, __ATOMIC_RELEASE);
    return (void *)before;
}

/// A fault is how the runtime learns what a kernel touches. It stays the runtime's own.
static void test_a_handler_put_in_front_meanwhile(void **state) {
    (void)state;
    void (*before)(int) = signal(SIGSEGV, SIG_DFL);
    cudaStream_t stream = stream_new();
    float *x = floats(stream), host[COUNT];
    assert_cuda(cudaStreamSynchronize(stream));
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, put_a_handler_in_front, NULL), 0);
    assert_cuda(test_held_write(x, &held_has_begun, &held_may_write, stream));
    to_host(host, x, stream);
    assert_cuda(cudaStreamSynchronize(stream));
    void *found;
    assert_int_equal(pthread_join(thread, &found), 0);
    assert_ptr_equal(found, (void *)SIG_DFL);
    assert_ptr_equal((void *)signal(SIGSEGV, before), (void *)on_fault_of_another);
    assert_int_equal(faults_that_came_by, 0);
    assert_true(host[0] == 1);
    assert_cuda(cudaFreeAsync(x, stream));
    assert_cuda(cudaStreamDestroy(stream));
}

static void test_an_illegal_address_stays_an_error(void **state) {
    (void)state;
    char said[4096];
    assert_int_equal(run_role("sticky", said, sizeof said), 0);
}

static const role roles[] = {
    {"after_free", after_free},
    {"copy_after_free", copy_after_free},
    {"no_event_behind_allocation", no_event_behind_allocation},
    {"freed_under_another_stream", freed_under_another_stream},
    {"unordered_writes", unordered_writes},
    {"freed_twice", freed_twice},
    {"touched_by_the_host", touched_by_the_host},
    {"over_the_end", over_the_end},
    {"shuffle_left_out", shuffle_left_out},
    {"shuffle_of_nobody", shuffle_of_nobody},
    {"shuffle_ended", shuffle_ended},
    {"beside_the_end", beside_the_end},
    {"dead_event", dead_event},
    {"dead_stream", dead_stream},
    {"wrong_direction", wrong_direction},
    {"host_memory_gone", host_memory_gone},
    {"child_calls", child_calls},
    {"exit_calls", exit_calls},
    {"sticky", sticky},
    {NULL, NULL},
};

int main(int argc, char **argv) {
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_nothing_happens_before_somebody_waits),
        ND_TEST(test_a_new_seed_forgets_what_was_due),
        ND_TEST(test_a_copy_reads_its_source_late),
        ND_TEST(test_new_memory_is_poison),
        ND_TEST(test_an_event_orders_streams),
        ND_TEST(test_without_an_event_both_orders_come),
        ND_TEST(test_asking_again_and_again_is_enough),
        ND_TEST(test_the_null_stream),
        ND_TEST(test_a_missing_barrier_shows),
        ND_TEST(test_lanes_of_a_warp_exchange),
        ND_TEST(test_calls_inside_a_function_are_refused),
        ND_TEST(test_what_cannot_be_launched),
        ND_TEST(test_a_pool_keeps_and_gives_back),
        ND_TEST(test_memory_ends),
        ND_TEST(test_the_nth_call_fails),
        ND_TEST(test_peers),
        ND_TEST(test_what_must_not_be_done_ends_the_program),
        ND_TEST(test_streams_that_nothing_orders),
        ND_TEST(test_a_handler_put_in_front_meanwhile),
        ND_TEST(test_an_illegal_address_stays_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
