// Kernels for runtime_test.c, as a .cu file has them.
#include "tests/cudart/test_kernels.h"
#include <cuda_runtime.h>

namespace {

enum { THREADS = 64 };

__global__ void fill_kernel(float *to, long count, float value) {
    long i = (long)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        to[i] = value;
}

__global__ void add_kernel(float *to, const float *from, long count) {
    long i = (long)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        to[i] += from[i];
}

/// Each block's elements the other way round; with `wait`, after all have been read.
__global__ void reverse_kernel(float *to, const float *from, bool wait) {
    __shared__ float shared[THREADS];
    shared[threadIdx.x] = from[blockIdx.x * THREADS + threadIdx.x];
    if (wait)
        __syncthreads();
    to[blockIdx.x * THREADS + threadIdx.x] = shared[THREADS - 1 - threadIdx.x];
    __syncthreads();
}

__global__ void held_kernel(float *to, int *begun, const int *may_write) {
    __atomic_store_n(begun, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(may_write, __ATOMIC_ACQUIRE)) {
    }
    to[threadIdx.x] = 1;
}

cudaLaunchConfig_t blocks_for(long count, cudaStream_t stream) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)((count + THREADS - 1) / THREADS));
    config.blockDim = dim3(THREADS);
    config.stream = stream;
    return config;
}

} // namespace

cudaError_t test_fill(float *to, long count, float value, cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(count, stream);
    return cudaLaunchKernelEx(&config, fill_kernel, to, count, value);
}

cudaError_t test_add(float *to, const float *from, long count, cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(count, stream);
    return cudaLaunchKernelEx(&config, add_kernel, to, from, count);
}

cudaError_t test_reverse(float *to, const float *from, long count, int wait, cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(count, stream);
    return cudaLaunchKernelEx(&config, reverse_kernel, to, from, wait != 0);
}

cudaError_t test_held_write(float *to, int *begun, const int *may_write, cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(1, stream);
    return cudaLaunchKernelEx(&config, held_kernel, to, begun, may_write);
}
