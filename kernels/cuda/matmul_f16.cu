// Products of f16 whose rows are aligned; apart from those of bf16 so that nvcc compiles both beside
// each other.
#include "kernels/cuda/matmul_halves.cuh"

nd_status nd__cuda_matmul_f16(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return nd_cuda::run_aligned<false>(queue, call);
}
