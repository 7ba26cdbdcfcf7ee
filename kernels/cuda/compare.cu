// COMPARE, LOGICAL and TERNARY: elementwise operations that make or take truth values.
//
// Truth values are bytes 0 and 1, so bool operands compare as bytes; `where` moves elements without
// looking at them, so it is compiled per element size.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/erased.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/storage.cuh"

namespace nd_cuda {

#define ND_LOGICAL_X ND_BOTH uint8_t operator()(const uint8_t &a) const {
#define ND_LOGICAL_AB ND_BOTH uint8_t operator()(const uint8_t &a, const uint8_t &b) const {
#define ND_LOGICAL(name, types, expression, cost, differentiable, saves, form, ...) \
    struct name##_bytes {                                                           \
        ND_LOGICAL_##form return (uint8_t)(expression);                             \
    }                                                                               \
    }                                                                               \
    ;
#include "kernels/ops.inc"

template <class T> struct Where {
    ND_BOTH T operator()(const uint8_t &condition, const T &a, const T &b) const {
        return condition ? a : b;
    }
};

template <class T>
static nd_status run_compare(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return with_compare<T>(call->op, [=](const auto &row) {
        return run_elementwise<uint8_t, T, T>(queue, call, row);
    });
}

template <class T>
static nd_status run_where(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    return run_elementwise<T, uint8_t, T, T>(queue, call, Where<T>{});
}

} // namespace nd_cuda

nd_status nd__cuda_compare(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->operand[1].dtype) {
    case ND_BOOL:
    case ND_U8:
        return nd_cuda::run_compare<uint8_t>(queue, call);
    case ND_I32:
        return nd_cuda::run_compare<int32_t>(queue, call);
    case ND_I64:
        return nd_cuda::run_compare<int64_t>(queue, call);
    case ND_F32:
        return nd_cuda::run_compare<float>(queue, call);
    case ND_F64:
        return nd_cuda::run_compare<double>(queue, call);
    case ND_F16:
    case ND_BF16:
        return nd_cuda::halves_compare(queue, call);
    default:
        return nd_cuda::integers_compare(queue, call);
    }
}

nd_status nd__cuda_logical(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using nd_cuda::run_elementwise;
    switch (call->op) {
#define ND_RUN_X run_elementwise<uint8_t, uint8_t>
#define ND_RUN_AB run_elementwise<uint8_t, uint8_t, uint8_t>
#define ND_LOGICAL(name, types, expression, cost, differentiable, saves, form, ...) \
    case ND_OP_##name:                                                              \
        return ND_RUN_##form(queue, call, nd_cuda::name##_bytes{});
#include "kernels/ops.inc"
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

nd_status nd__cuda_where(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    using namespace nd_cuda;
    switch (dtype_bytes(call->operand[0].dtype)) {
    case 1:
        return run_where<uint8_t>(queue, call);
    case 2:
        return run_where<uint16_t>(queue, call);
    case 4:
        return run_where<uint32_t>(queue, call);
    default:
        return run_where<uint64_t>(queue, call);
    }
}
