// The fake CUDA runtime ends a program that relies on more than CUDA promises, and errors that CUDA
// calls sticky stay. What it does of work that is right: runtime_test.c.
#include "tests/cudart/calls.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

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

static int overlapping_half_awaited(void) {
    cudaStream_t stream = stream_new();
    float *x = floats(stream), host[COUNT];
    (void)test_overlapping_fill(x, COUNT, 3, 64, stream);
    to_host(host, x, stream);
    (void)cudaStreamSynchronize(stream);
    if (host[0] != 3)
        return 0;
    (void)test_overlapping_fill(x, COUNT, 4, 63, stream);
    (void)cudaStreamSynchronize(stream);
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
    assert_ends("overlapping_half_awaited", "does not wait for what is queued before");
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
    {"overlapping_half_awaited", overlapping_half_awaited},
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
        ND_TEST(test_what_must_not_be_done_ends_the_program),
        ND_TEST(test_streams_that_nothing_orders),
        ND_TEST(test_a_handler_put_in_front_meanwhile),
        ND_TEST(test_an_illegal_address_stays_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
