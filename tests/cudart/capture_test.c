// Captures and graphs of the fake CUDA runtime: that a launch does what was captured, in every order
// that the edges permit, and that what CUDA forbids during a capture ends it.
#include "tests/cudart/control.h"
#include "tests/cudart/roles.h"
#include "tests/cudart/test_kernels.h"
#include <pthread.h>
#include <time.h>

#define assert_cuda(expression) assert_int_equal((expression), cudaSuccess)

enum { COUNT = 256, SEEDS = 40 };

/// CUDA has no more than so many streams here, so that the tests share theirs.
static cudaStream_t one, other;

static float *floats(void) {
    void *pointer;
    assert_cuda(cudaMalloc(&pointer, COUNT * sizeof(float)));
    return pointer;
}

static float first_of(const float *x) {
    float found[COUNT];
    assert_cuda(cudaMemcpy(found, x, sizeof found, cudaMemcpyDeviceToHost));
    for (int i = 1; i < COUNT; i++)
        assert_true(found[i] == found[0]);
    return found[0];
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

static void begin(cudaStream_t stream) {
    assert_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

/// The executable graph of what was captured since begin().
static cudaGraphExec_t end(cudaStream_t stream) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    assert_cuda(cudaStreamEndCapture(stream, &graph));
    assert_cuda(cudaGraphInstantiate(&executable, graph, 0));
    assert_cuda(cudaGraphDestroy(graph));
    return executable;
}

static enum cudaStreamCaptureStatus status_of(cudaStream_t stream) {
    enum cudaStreamCaptureStatus status;
    assert_cuda(cudaStreamIsCapturing(stream, &status));
    return status;
}

static void assert_nothing_left(void) {
    assert_int_equal(statistics().captures, 0);
    assert_int_equal(statistics().live_graphs, 0);
    assert_int_equal(statistics().live_blocks, 0);
    (void)cudaGetLastError();
}

// ------------------------------------------------------------------------------------------------
// what is captured

static void count_call(void *data) {
    ++*(int *)data;
}

static void test_a_capture_does_nothing_and_a_launch_does_it(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        float *x = floats(), *y = floats();
        int calls = 0;
        assert_cuda(test_fill(x, COUNT, 0, one));
        assert_cuda(cudaMemset(y, 0, COUNT * sizeof(float)));
        assert_cuda(cudaDeviceSynchronize());
        const uint64_t steps = statistics().steps;
        const time_t begun = time(NULL);
        begin(one);
        assert_int_equal(status_of(one), cudaStreamCaptureStatusActive);
        assert_int_equal(status_of(other), cudaStreamCaptureStatusNone);
        assert_cuda(test_fill(y, COUNT, 2, one));
        assert_cuda(test_add(x, y, COUNT, one));
        assert_cuda(cudaMemcpyAsync(y, x, COUNT * sizeof(float), cudaMemcpyDeviceToDevice, one));
        assert_cuda(cudaLaunchHostFunc(one, count_call, &calls));
        cudaGraphExec_t executable = end(one);
        assert_int_equal(status_of(one), cudaStreamCaptureStatusNone);
        // Nothing was done. (Who calls nothing for a second gets work done all the same.)
        if (time(NULL) == begun)
            assert_int_equal(statistics().steps, steps);
        assert_int_equal(statistics().pending, 0);
        for (int i = 1; i <= 3; i++) {
            assert_cuda(cudaGraphLaunch(executable, one));
            assert_cuda(cudaStreamSynchronize(one));
            assert_true(first_of(x) == 2.0f * (float)i);
            assert_true(first_of(y) == 2.0f * (float)i);
            assert_int_equal(calls, i);
        }
        assert_cuda(cudaGraphExecDestroy(executable));
        assert_cuda(cudaFree(x));
        assert_cuda(cudaFree(y));
        assert_nothing_left();
    }
}

/// Launches of one graph are in order, whatever the streams; destroyed meanwhile, it is still done.
static void test_launches_follow_one_another(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        float *x = floats(), *y = floats();
        assert_cuda(test_fill(x, COUNT, 1, one));
        assert_cuda(test_fill(y, COUNT, 0, one));
        assert_cuda(cudaDeviceSynchronize());
        begin(one);
        assert_cuda(test_add(x, x, COUNT, one));
        assert_cuda(test_add(y, x, COUNT, one));
        cudaGraphExec_t executable = end(one);
        for (int i = 0; i < 6; i++)
            assert_cuda(cudaGraphLaunch(executable, i % 2 ? one : other));
        assert_cuda(cudaGraphExecDestroy(executable));
        assert_cuda(cudaDeviceSynchronize());
        assert_true(first_of(x) == 64);
        assert_true(first_of(y) == 126);
        assert_cuda(cudaFree(x));
        assert_cuda(cudaFree(y));
        assert_nothing_left();
    }
}

/// other, between events or without, writes what one writes too: both orders come when nothing
/// orders them.
static float forked(uint64_t seed, bool ordered) {
    cudart_set_seed(seed);
    float *x = floats();
    begin(one);
    assert_cuda(test_fill(x, COUNT, 0, one));
    cudaEvent_t forks = event_behind(one);
    if (!ordered)
        assert_cuda(test_fill(x, COUNT, 1, one));
    assert_cuda(cudaStreamWaitEvent(other, forks, 0));
    assert_int_equal(status_of(other), cudaStreamCaptureStatusActive);
    assert_cuda(test_fill(x, COUNT, 2, other));
    cudaEvent_t joins = event_behind(other);
    assert_cuda(cudaStreamWaitEvent(one, joins, 0));
    if (ordered)
        assert_cuda(test_fill(x, COUNT, 1, one));
    cudaGraphExec_t executable = end(one);
    assert_int_equal(status_of(other), cudaStreamCaptureStatusNone);
    assert_cuda(cudaGraphLaunch(executable, one));
    assert_cuda(cudaDeviceSynchronize());
    const float found = first_of(x);
    assert_cuda(cudaGraphExecDestroy(executable));
    assert_cuda(cudaEventDestroy(forks));
    assert_cuda(cudaEventDestroy(joins));
    assert_cuda(cudaFree(x));
    assert_nothing_left();
    return found;
}

static void test_events_are_edges(void **state) {
    (void)state;
    bool seen[2] = {false, false};
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        assert_true(forked(seed, true) == 1);
        seen[forked(seed, false) == 2] = true;
    }
    assert_true(seen[0] && seen[1]);
}

// ------------------------------------------------------------------------------------------------
// what ends a capture

typedef struct place {
    float *x, *y;
    float host[COUNT];
    cudaEvent_t before, within; ///< recorded before the capture, and in it
} place;

static cudaError_t waits(place *at) {
    (void)at;
    return cudaStreamSynchronize(one);
}

static cudaError_t asks(place *at) {
    (void)at;
    return cudaStreamQuery(one);
}

static cudaError_t waits_for_another_stream(place *at) {
    (void)at;
    return cudaStreamSynchronize(other);
}

static cudaError_t waits_for_the_device(place *at) {
    (void)at;
    return cudaDeviceSynchronize();
}

static cudaError_t allocates(place *at) {
    (void)at;
    void *pointer;
    return cudaMalloc(&pointer, 64);
}

static cudaError_t allocates_in_order(place *at) {
    (void)at;
    void *pointer;
    return cudaMallocAsync(&pointer, 64, one);
}

static cudaError_t frees(place *at) {
    return cudaFree(at->y);
}

static cudaError_t frees_in_order(place *at) {
    return cudaFreeAsync(at->y, one);
}

static cudaError_t pins(place *at) {
    (void)at;
    void *pointer;
    return cudaHostAlloc(&pointer, 64, cudaHostAllocDefault);
}

static cudaError_t trims(place *at) {
    (void)at;
    cudaMemPool_t pool;
    assert_cuda(cudaDeviceGetDefaultMemPool(&pool, 0));
    return cudaMemPoolTrimTo(pool, 0);
}

static cudaError_t copies_and_waits(place *at) {
    return cudaMemcpy(at->host, at->x, sizeof at->host, cudaMemcpyDeviceToHost);
}

static cudaError_t copies_pageable(place *at) {
    return cudaMemcpyAsync(at->host, at->x, sizeof at->host, cudaMemcpyDeviceToHost, one);
}

static cudaError_t asks_an_event(place *at) {
    return cudaEventQuery(at->before);
}

static cudaError_t asks_an_event_within(place *at) {
    return cudaEventQuery(at->within);
}

static cudaError_t waits_for_an_event_within(place *at) {
    return cudaEventSynchronize(at->within);
}

static cudaError_t is_behind_other_work(place *at) {
    return cudaStreamWaitEvent(one, at->before, 0);
}

static const struct {
    const char *name;
    cudaError_t (*call)(place *at);
    cudaError_t error;
} forbidden[] = {
    {"waits", waits, cudaErrorStreamCaptureUnsupported},
    {"asks", asks, cudaErrorStreamCaptureUnsupported},
    {"waits for another stream", waits_for_another_stream, cudaErrorStreamCaptureUnsupported},
    {"waits for the device", waits_for_the_device, cudaErrorStreamCaptureUnsupported},
    {"allocates", allocates, cudaErrorStreamCaptureUnsupported},
    {"allocates in order", allocates_in_order, cudaErrorStreamCaptureUnsupported},
    {"frees", frees, cudaErrorStreamCaptureUnsupported},
    {"frees in order", frees_in_order, cudaErrorStreamCaptureUnsupported},
    {"pins", pins, cudaErrorStreamCaptureUnsupported},
    {"trims", trims, cudaErrorStreamCaptureUnsupported},
    {"copies and waits", copies_and_waits, cudaErrorStreamCaptureUnsupported},
    {"copies pageable memory", copies_pageable, cudaErrorStreamCaptureUnsupported},
    {"asks an event", asks_an_event, cudaErrorStreamCaptureUnsupported},
    {"asks an event of its own", asks_an_event_within, cudaErrorCapturedEvent},
    {"waits for one", waits_for_an_event_within, cudaErrorCapturedEvent},
    {"is behind other work", is_behind_other_work, cudaErrorStreamCaptureIsolation},
};

/// The call fails, so does all that follows, and the end gives no graph. Then all is as before.
static void test_what_is_forbidden_ends_a_capture(void **state) {
    (void)state;
    cudart_set_seed(1);
    for (size_t i = 0; i < sizeof forbidden / sizeof *forbidden; i++) {
        place at = {.x = floats(), .y = floats(), .before = event_behind(one)};
        begin(one);
        assert_cuda(test_fill(at.x, COUNT, 1, one));
        at.within = event_behind(one);
        const cudaError_t error = forbidden[i].call(&at);
        if (error != forbidden[i].error)
            fail_msg("a capture that %s: error %d", forbidden[i].name, (int)error);
        assert_int_equal(status_of(one), cudaStreamCaptureStatusInvalidated);
        assert_int_equal(test_fill(at.x, COUNT, 1, one), cudaErrorStreamCaptureInvalidated);
        assert_int_equal(cudaLaunchHostFunc(one, count_call, NULL),
                         cudaErrorStreamCaptureInvalidated);
        cudaGraph_t graph = (cudaGraph_t)&at;
        assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureInvalidated);
        assert_null(graph);
        assert_int_equal(status_of(one), cudaStreamCaptureStatusNone);
        assert_cuda(test_fill(at.x, COUNT, 4, one));
        assert_cuda(cudaStreamSynchronize(one));
        assert_true(first_of(at.x) == 4);
        assert_cuda(cudaEventDestroy(at.before));
        assert_cuda(cudaEventDestroy(at.within));
        assert_cuda(cudaFree(at.x));
        assert_cuda(cudaFree(at.y));
        assert_nothing_left();
    }
}

static void test_copies_of_pinned_memory_are_captured(void **state) {
    (void)state;
    cudart_set_seed(0);
    float *x = floats(), *pinned;
    assert_cuda(cudaHostAlloc((void **)&pinned, COUNT * sizeof(float), cudaHostAllocDefault));
    begin(one);
    assert_cuda(cudaMemcpyAsync(x, pinned, COUNT * sizeof(float), cudaMemcpyHostToDevice, one));
    cudaGraphExec_t executable = end(one);
    for (int value = 1; value < 4; value++) {
        for (int i = 0; i < COUNT; i++)
            pinned[i] = (float)value;
        assert_cuda(cudaGraphLaunch(executable, one));
        assert_cuda(cudaStreamSynchronize(one));
        assert_true(first_of(x) == (float)value);
    }
    assert_cuda(cudaGraphExecDestroy(executable));
    assert_cuda(cudaFreeHost(pinned));
    assert_cuda(cudaFree(x));
    assert_nothing_left();
}

static void test_beginning_and_ending(void **state) {
    (void)state;
    cudaGraph_t graph;
    float *x = floats();
    assert_int_equal(cudaStreamBeginCapture(NULL, cudaStreamCaptureModeRelaxed),
                     cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamBeginCapture(one, (enum cudaStreamCaptureMode)3),
                     cudaErrorInvalidValue);
    assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorIllegalState);
    begin(one);
    assert_int_equal(cudaStreamBeginCapture(one, cudaStreamCaptureModeRelaxed),
                     cudaErrorIllegalState);
    assert_int_equal(status_of(one), cudaStreamCaptureStatusActive);
    // What has left the stream must come back.
    cudaEvent_t forks = event_behind(one);
    assert_cuda(cudaStreamWaitEvent(other, forks, 0));
    assert_cuda(test_fill(x, COUNT, 1, other));
    assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureUnjoined);
    assert_null(graph);
    assert_int_equal(status_of(other), cudaStreamCaptureStatusNone);
    // An event of a capture that has ended is of no use until it is recorded again.
    assert_int_equal(cudaStreamWaitEvent(other, forks, 0), cudaErrorInvalidValue);
    assert_cuda(cudaEventRecord(forks, one));
    assert_cuda(cudaStreamWaitEvent(other, forks, 0));
    // Another stream than it began on.
    begin(one);
    assert_cuda(cudaEventRecord(forks, one));
    assert_cuda(cudaStreamWaitEvent(other, forks, 0));
    assert_int_equal(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureUnmatched);
    assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureInvalidated);
    // Two captures do not become one.
    begin(one);
    begin(other);
    assert_cuda(cudaEventRecord(forks, one));
    assert_int_equal(cudaStreamWaitEvent(other, forks, 0), cudaErrorStreamCaptureMerge);
    assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureInvalidated);
    assert_int_equal(cudaStreamEndCapture(other, &graph), cudaErrorStreamCaptureInvalidated);
    // Nor a graph a part of another.
    begin(one);
    cudaGraphExec_t empty = end(one);
    begin(one);
    assert_int_equal(cudaGraphLaunch(empty, one), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureInvalidated);
    assert_cuda(cudaGraphLaunch(empty, one));
    assert_cuda(cudaGraphExecDestroy(empty));
    // A stream that is destroyed takes its capture along.
    cudaStream_t gone;
    assert_cuda(cudaStreamCreateWithFlags(&gone, cudaStreamNonBlocking));
    begin(gone);
    assert_cuda(test_fill(x, COUNT, 1, gone));
    assert_cuda(cudaStreamDestroy(gone));
    assert_cuda(cudaEventDestroy(forks));
    assert_cuda(cudaFree(x));
    assert_nothing_left();
}

/// A blocking stream is one that the stream NULL would wait for.
static void test_the_null_stream_beside_a_capture(void **state) {
    (void)state;
    cudaStream_t blocking;
    cudaGraph_t graph;
    enum cudaStreamCaptureStatus status;
    float *x = floats();
    assert_cuda(cudaStreamCreate(&blocking));
    begin(one);
    assert_cuda(test_fill(x, COUNT, 1, NULL));
    assert_cuda(cudaStreamEndCapture(one, &graph));
    assert_cuda(cudaGraphDestroy(graph));
    begin(blocking);
    assert_int_equal(cudaStreamIsCapturing(NULL, &status), cudaErrorStreamCaptureImplicit);
    assert_int_equal(status_of(blocking), cudaStreamCaptureStatusActive);
    assert_int_equal(test_fill(x, COUNT, 1, NULL), cudaErrorStreamCaptureImplicit);
    assert_int_equal(status_of(blocking), cudaStreamCaptureStatusInvalidated);
    assert_int_equal(cudaStreamEndCapture(blocking, &graph), cudaErrorStreamCaptureInvalidated);
    assert_cuda(cudaStreamDestroy(blocking));
    assert_cuda(cudaFree(x));
    assert_nothing_left();
}

typedef struct thread_call {
    cudaError_t waited, ended;
} thread_call;

static void *on_a_thread(void *data) {
    thread_call *call = data;
    cudaGraph_t graph;
    call->waited = cudaStreamSynchronize(other);
    call->ended = cudaStreamEndCapture(one, &graph);
    return NULL;
}

static thread_call beside(enum cudaStreamCaptureMode mode) {
    thread_call call;
    pthread_t thread;
    cudaGraph_t graph;
    assert_cuda(cudaStreamBeginCapture(one, mode));
    assert_int_equal(pthread_create(&thread, NULL, on_a_thread, &call), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    if (call.ended != cudaSuccess)
        assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureInvalidated);
    return call;
}

/// What other threads may do is the mode's to say.
static void test_modes(void **state) {
    (void)state;
    thread_call call = beside(cudaStreamCaptureModeGlobal);
    assert_int_equal(call.waited, cudaErrorStreamCaptureUnsupported);
    assert_int_equal(call.ended, cudaErrorStreamCaptureWrongThread);
    call = beside(cudaStreamCaptureModeThreadLocal);
    assert_int_equal(call.waited, cudaSuccess);
    assert_int_equal(call.ended, cudaErrorStreamCaptureWrongThread);
    assert_nothing_left();
    // A relaxed one may be ended elsewhere, and be waited beside.
    cudaGraph_t graph;
    assert_cuda(cudaStreamBeginCapture(one, cudaStreamCaptureModeRelaxed));
    assert_cuda(cudaStreamSynchronize(other));
    assert_int_equal(cudaStreamSynchronize(one), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureInvalidated);
    assert_nothing_left();
}

/// Memory of a stream is not allocated or freed by a thread that captures another one, unless it says
/// that it knows.
static void test_memory_beside_a_capture(void **state) {
    (void)state;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaGraph_t graph;
    void *x = NULL;
    begin(one);
    assert_int_equal(cudaMallocAsync(&x, 64, other), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureInvalidated);
    begin(one);
    assert_cuda(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, cudaStreamCaptureModeGlobal);
    assert_cuda(cudaMallocAsync(&x, 64, other));
    assert_cuda(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, cudaStreamCaptureModeRelaxed);
    assert_int_equal(status_of(one), cudaStreamCaptureStatusActive);
    assert_int_equal(cudaFreeAsync(x, other), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(cudaStreamEndCapture(one, &graph), cudaErrorStreamCaptureInvalidated);
    assert_cuda(cudaFreeAsync(x, other));
    mode = 7;
    assert_int_equal(cudaThreadExchangeStreamCaptureMode(&mode), cudaErrorInvalidValue);
    assert_nothing_left();
}

// ------------------------------------------------------------------------------------------------
// what ends the program

static int launched_after_its_end(void) {
    assert_cuda(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    begin(one);
    cudaGraphExec_t executable = end(one);
    assert_cuda(cudaGraphExecDestroy(executable));
    assert_cuda(cudaGraphLaunch(executable, one));
    return 0;
}

static int destroyed_twice(void) {
    assert_cuda(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    cudaGraph_t graph;
    begin(one);
    assert_cuda(cudaStreamEndCapture(one, &graph));
    assert_cuda(cudaGraphDestroy(graph));
    assert_cuda(cudaGraphDestroy(graph));
    return 0;
}

/// Memory that a graph uses is the program's to keep.
static int memory_gone(bool copy) {
    assert_cuda(cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking));
    float *x = floats(), *y = floats();
    begin(one);
    if (copy)
        assert_cuda(cudaMemcpyAsync(y, x, 64, cudaMemcpyDeviceToDevice, one));
    else
        assert_cuda(test_fill(x, COUNT, 1, one));
    cudaGraphExec_t executable = end(one);
    assert_cuda(cudaFree(x));
    assert_cuda(cudaGraphLaunch(executable, one));
    assert_cuda(cudaStreamSynchronize(one));
    return 0;
}

static int kernel_memory_gone(void) {
    return memory_gone(false);
}

static int copied_memory_gone(void) {
    return memory_gone(true);
}

static const role roles[] = {
    {"launched_after_its_end", launched_after_its_end},
    {"destroyed_twice", destroyed_twice},
    {"kernel_memory_gone", kernel_memory_gone},
    {"copied_memory_gone", copied_memory_gone},
    {NULL, NULL},
};

static void test_what_must_not_be_done_ends_the_program(void **state) {
    (void)state;
    assert_ends("launched_after_its_end", "an executable graph is used that was destroyed");
    assert_ends("destroyed_twice", "a graph is used that was destroyed");
    assert_ends("kernel_memory_gone", "freed");
    assert_ends("copied_memory_gone", "freed");
}

static int set_up(void **state) {
    (void)state;
    return cudaStreamCreateWithFlags(&one, cudaStreamNonBlocking) != cudaSuccess ||
           cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) != cudaSuccess;
}

int main(int argc, char **argv) {
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_capture_does_nothing_and_a_launch_does_it),
        ND_TEST(test_launches_follow_one_another),
        ND_TEST(test_events_are_edges),
        ND_TEST(test_what_is_forbidden_ends_a_capture),
        ND_TEST(test_copies_of_pinned_memory_are_captured),
        ND_TEST(test_beginning_and_ending),
        ND_TEST(test_the_null_stream_beside_a_capture),
        ND_TEST(test_modes),
        ND_TEST(test_memory_beside_a_capture),
        ND_TEST(test_what_must_not_be_done_ends_the_program),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
