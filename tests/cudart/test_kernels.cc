// Kernels for runtime_test.c, as a .cu file has them.
#include "tests/cudart/test_kernels.h"
#include <cuda_runtime.h>
#include <string.h>

namespace {

enum { THREADS = 64 };

__global__ void fill_kernel(float *to, long count, float value) {
    long i = (long)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        to[i] = value;
}

/// The same, launched to overlap; only `waits` of a block's threads wait.
__global__ void late_fill_kernel(float *to, long count, float value, unsigned waits) {
    if (threadIdx.x < waits)
        cudaGridDependencySynchronize();
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

/// Sums over each 8 lanes and, after a barrier, those of the block's first lanes; each warp shuffles
/// as often as its number says before that, which must not disturb the others.
__global__ void shuffle_kernel(float *to, const float *from, int mistake) {
    __shared__ float sums[THREADS / 8];
    unsigned lane = threadIdx.x % 32, mask = 0xFFFFFFFFu, word;
    float sum = from[blockIdx.x * THREADS + threadIdx.x];
    for (unsigned i = 0; i < threadIdx.x / 32; i++)
        word = __shfl_sync(mask, threadIdx.x, 0);
    if (mistake == 1 && lane < 4)
        mask = 0xFF00FF00u;
    if (mistake == 2)
        mask = lane < 16 ? 0x0000FFFFu : 0xFFFF0000u;
    if (mistake == 3 && lane == 5)
        return;
    for (int half = mistake == 2 ? 16 : 4; half > 0; half /= 2) {
        memcpy(&word, &sum, sizeof word);
        word = __shfl_xor_sync(mask, word, half);
        float other;
        memcpy(&other, &word, sizeof other);
        sum += other;
    }
    if (lane % 8 == 0)
        sums[threadIdx.x / 8] = sum;
    __syncthreads();
    memcpy(&word, &sums[threadIdx.x / 8], sizeof word);
    word = __shfl_sync(mask, word, (int)lane + 8, 16); // of the neighbouring 8
    float other;
    memcpy(&other, &word, sizeof other);
    to[blockIdx.x * THREADS + threadIdx.x] = other;
}

/// The sum over each block's elements, twice, the second time of each 1 more; without `wait` a warp may
/// write its second sum over a first one that another warp has not read.
__global__ void sums_kernel(float *to, const float *from, bool wait) {
    __shared__ float sums[THREADS / 32];
    float total = 0;
    for (int turn = 0; turn < 2; turn++) {
        float sum = from[blockIdx.x * THREADS + threadIdx.x] + (float)turn;
        for (int half = 16; half > 0; half /= 2) {
            unsigned word;
            memcpy(&word, &sum, sizeof word);
            word = __shfl_xor_sync(0xFFFFFFFFu, word, half);
            float other;
            memcpy(&other, &word, sizeof other);
            sum += other;
        }
        if (wait)
            __syncthreads();
        if (threadIdx.x % 32 == 0)
            sums[threadIdx.x / 32] = sum;
        __syncthreads();
        for (int warp = 0; warp < THREADS / 32; warp++)
            total += sums[warp];
    }
    to[blockIdx.x * THREADS + threadIdx.x] = total;
}

__global__ void shared_kernel(float *to, const float *from, size_t bytes) {
    float *shared = static_cast<float *>(cudart_shared_memory());
    const unsigned last = (unsigned)(bytes / sizeof *shared) - 1, i = threadIdx.x;
    const bool is_new = shared[last - i] != shared[last - i] || shared[last - i] < -1e6f;
    shared[last - i] = from[blockIdx.x * THREADS + i];
    __syncthreads();
    to[blockIdx.x * THREADS + i] = is_new ? shared[last - (THREADS - 1 - i)] : 1;
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

cudaError_t test_overlapping_fill(float *to, long count, float value, unsigned waits,
                                  cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(count, stream);
    cudaLaunchAttribute overlap = {};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &overlap;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, late_fill_kernel, to, count, value, waits);
}

cudaError_t test_add(float *to, const float *from, long count, cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(count, stream);
    return cudaLaunchKernelEx(&config, add_kernel, to, from, count);
}

cudaError_t test_reverse(float *to, const float *from, long count, int wait, cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(count, stream);
    return cudaLaunchKernelEx(&config, reverse_kernel, to, from, wait != 0);
}

cudaError_t test_shuffle(float *to, const float *from, long count, int mistake,
                         cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(count, stream);
    return cudaLaunchKernelEx(&config, shuffle_kernel, to, from, mistake);
}

cudaError_t test_sums(float *to, const float *from, long count, int wait, cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(count, stream);
    return cudaLaunchKernelEx(&config, sums_kernel, to, from, wait != 0);
}

cudaError_t test_shared(float *to, const float *from, long count, size_t bytes, int asked,
                        cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(count, stream);
    config.dynamicSmemBytes = bytes;
    cudaError_t error =
        asked ? cudaFuncSetAttribute(shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     asked)
              : cudaSuccess;
    return error == cudaSuccess ? cudaLaunchKernelEx(&config, shared_kernel, to, from, bytes)
                                : error;
}

cudaError_t test_held_write(float *to, int *begun, const int *may_write, cudaStream_t stream) {
    cudaLaunchConfig_t config = blocks_for(1, stream);
    return cudaLaunchKernelEx(&config, held_kernel, to, begun, may_write);
}
