// BINARY and COMPARE of 16-bit floats.
#include "kernels/cuda/halves.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/storage.cuh"

namespace nd_cuda {

/// The next number is one of the format's own, so there is nothing to compute in f32.
struct NextHalf {
    uint16_t infinity;

    ND_BOTH uint16_t operator()(uint16_t a, uint16_t b) const {
        return nd__next_half(a, b, infinity);
    }
};

} // namespace nd_cuda

nd_status nd_cuda::halves_binary(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    HalfFormat format(call->operand[0].dtype);
    if (call->op == ND_OP_nextafter) {
        NextHalf next{(uint16_t)(format.brain ? 0x7F80 : 0x7C00)};
        return run_elementwise<uint16_t, uint16_t, uint16_t>(queue, call, next);
    }
    return with_binary(call->op, number<float>(call, 0), number<float>(call, 1),
                       [=](const auto &row) {
                           return run_elementwise<uint16_t, uint16_t, uint16_t>(
                               queue, call, on_halves(row, format));
                       });
}

nd_status nd_cuda::halves_compare(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    HalfFormat format(call->operand[1].dtype);
    return with_compare<float>(call->op, [=](const auto &row) {
        return run_elementwise<uint8_t, uint16_t, uint16_t>(queue, call, on_halves(row, format));
    });
}
