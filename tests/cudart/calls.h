// What the tests of the fake runtime by itself share.
#ifndef ND_TESTS_CUDART_CALLS_H
#define ND_TESTS_CUDART_CALLS_H
#include "tests/cudart/control.h"
#include "tests/cudart/roles.h"
#include "tests/cudart/test_kernels.h"

#define assert_cuda(expression) assert_int_equal((expression), cudaSuccess)

enum { COUNT = 256 };

static inline cudaStream_t stream_new(void) {
    cudaStream_t stream;
    assert_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static inline float *floats(cudaStream_t stream) {
    void *pointer;
    assert_cuda(cudaMallocAsync(&pointer, COUNT * sizeof(float), stream));
    return pointer;
}

static inline void to_host(float *to, const float *from, cudaStream_t stream) {
    assert_cuda(cudaMemcpyAsync(to, from, COUNT * sizeof(float), cudaMemcpyDeviceToHost, stream));
}

static inline cudaEvent_t event_behind(cudaStream_t stream) {
    cudaEvent_t event;
    assert_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    assert_cuda(cudaEventRecord(event, stream));
    return event;
}

static inline cudart_statistics statistics(void) {
    cudart_statistics now;
    cudart_get_statistics(&now);
    return now;
}
#endif
