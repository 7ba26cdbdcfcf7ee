// See test_kernels.cc.
#ifndef ND_TESTS_CUDART_TEST_KERNELS_H
#define ND_TESTS_CUDART_TEST_KERNELS_H
#include "tests/cudart/include/cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif
cudaError_t test_fill(float *to, long count, float value, cudaStream_t stream);
/// The same by a kernel that may begin before what is queued in front of it has ended; `waits` of each 64
/// threads wait for that.
cudaError_t test_overlapping_fill(float *to, long count, float value, unsigned waits,
                                  cudaStream_t stream);
/// to += from
cudaError_t test_add(float *to, const float *from, long count, cudaStream_t stream);
/// Each 64 elements the other way round; without `wait` it lacks a barrier.
cudaError_t test_reverse(float *to, const float *from, long count, int wait, cudaStream_t stream);
/// The sum over the neighbouring 8 elements of each 16. `mistake`: 1 a mask without the thread itself,
/// 2 a lane that takes no part is read, 3 a lane that is waited for has ended.
cudaError_t test_shuffle(float *to, const float *from, long count, int mistake,
                         cudaStream_t stream);
/// For each element the sum of its 64 neighbours, and once more with 1 added to each; without `wait` it
/// lacks a barrier between the two.
cudaError_t test_sums(float *to, const float *from, long count, int wait, cudaStream_t stream);
/// Says that it has begun, and writes 1 when it may.
cudaError_t test_held_write(float *to, int *begun, const int *may_write, cudaStream_t stream);
/// Each 64 elements the other way round, by `bytes` of dynamic shared memory, of which the kernel asks for
/// `asked` before (0: it does not ask); to[i] is 1 where that memory was not new.
cudaError_t test_shared(float *to, const float *from, long count, size_t bytes, int asked,
                        cudaStream_t stream);
#ifdef __cplusplus
}
#endif
#endif
