// Products of bf16 whose rows are aligned; apart from those of f16 so that nvcc compiles both beside
// each other.
#include "kernels/cuda/matmul_halves.cuh"

nd_status nd__cuda_matmul_bf16(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return nd_cuda::run_aligned<true>(queue, call);
}
