// BINARY: out = f(a, b), one dtype. Elements are those of f64, f32, i64, i32 and u8;
// halves_binary.cu and integers.cu have the other dtypes.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/storage.cuh"

namespace nd_cuda {

template <class T>
static nd_status run_binary(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return with_binary(call->op, number<T>(call, 0), number<T>(call, 1),
                       [=](const auto &row) { return run_elementwise<T, T, T>(queue, call, row); });
}

} // namespace nd_cuda

nd_status nd__cuda_binary(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->operand[0].dtype) {
    case ND_U8:
        return nd_cuda::run_binary<uint8_t>(queue, call);
    case ND_I32:
        return nd_cuda::run_binary<int32_t>(queue, call);
    case ND_I64:
        return nd_cuda::run_binary<int64_t>(queue, call);
    case ND_F32:
        return nd_cuda::run_binary<float>(queue, call);
    case ND_F64:
        return nd_cuda::run_binary<double>(queue, call);
    case ND_F16:
    case ND_BF16:
        return nd_cuda::halves_binary(queue, call);
    default:
        return nd_cuda::integers_binary(queue, call);
    }
}
