// UNARY and PREDICATE of 16-bit floats.
#include "kernels/cuda/halves.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/storage.cuh"

nd_status nd_cuda::halves_unary(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    HalfFormat format(call->operand[0].dtype);
    float p = number<float>(call, 0), q = number<float>(call, 1);
    return with_unary(call->op, p, q, [=](const auto &row) {
        return run_elementwise<uint16_t, uint16_t>(queue, call, on_halves(row, format));
    });
}

nd_status nd_cuda::halves_predicate(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    HalfFormat format(call->operand[1].dtype);
    return with_predicate<float>(call->op, [=](const auto &row) {
        return run_elementwise<uint8_t, uint16_t>(queue, call, on_halves(row, format));
    });
}
