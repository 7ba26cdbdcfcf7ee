// Elementwise rows of the dtypes whose elements are not of the type that they are computed in: one
// file each, so that nvcc compiles them beside the others.
#ifndef ND_KERNELS_CUDA_STORAGE_CUH
#define ND_KERNELS_CUDA_STORAGE_CUH
#include "kernels/cuda/cuda.h"

namespace nd_cuda {

// f16 and bf16, in f32: halves_unary.cu, halves_binary.cu
nd_status halves_unary(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status halves_predicate(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status halves_binary(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status halves_compare(const nd_cuda_queue *queue, const nd_kernel_call *call);

// i8, i16, u16, u32 and u64, in 64 bits: integers.cu. ND_ERROR_UNSUPPORTED for what is none of them.
nd_status integers_unary(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status integers_predicate(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status integers_binary(const nd_cuda_queue *queue, const nd_kernel_call *call);
nd_status integers_compare(const nd_cuda_queue *queue, const nd_kernel_call *call);

} // namespace nd_cuda
#endif
