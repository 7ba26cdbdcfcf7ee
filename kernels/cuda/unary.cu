// UNARY: out = f(x), one dtype, and PREDICATE, whose result is bool. Elements are those of f64, f32,
// i64, i32 and u8; halves_unary.cu and integers.cu have the other dtypes.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/storage.cuh"

namespace nd_cuda {

template <class T>
static nd_status run_unary(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return with_unary(call->op, number<T>(call, 0), number<T>(call, 1),
                      [=](const auto &row) { return run_elementwise<T, T>(queue, call, row); });
}

template <class T>
static nd_status run_predicate(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return with_predicate<T>(
        call->op, [=](const auto &row) { return run_elementwise<uint8_t, T>(queue, call, row); });
}

} // namespace nd_cuda

nd_status nd__cuda_unary(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->operand[0].dtype) {
    case ND_U8:
        return nd_cuda::run_unary<uint8_t>(queue, call);
    case ND_I32:
        return nd_cuda::run_unary<int32_t>(queue, call);
    case ND_I64:
        return nd_cuda::run_unary<int64_t>(queue, call);
    case ND_F32:
        return nd_cuda::run_unary<float>(queue, call);
    case ND_F64:
        return nd_cuda::run_unary<double>(queue, call);
    case ND_F16:
    case ND_BF16:
        return nd_cuda::halves_unary(queue, call);
    default:
        return nd_cuda::integers_unary(queue, call);
    }
}

nd_status nd__cuda_predicate(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->operand[1].dtype) {
    case ND_U8:
        return nd_cuda::run_predicate<uint8_t>(queue, call);
    case ND_I32:
        return nd_cuda::run_predicate<int32_t>(queue, call);
    case ND_I64:
        return nd_cuda::run_predicate<int64_t>(queue, call);
    case ND_F32:
        return nd_cuda::run_predicate<float>(queue, call);
    case ND_F64:
        return nd_cuda::run_predicate<double>(queue, call);
    case ND_F16:
    case ND_BF16:
        return nd_cuda::halves_predicate(queue, call);
    default:
        return nd_cuda::integers_predicate(queue, call);
    }
}
