// BINARY: out = f(a, b), one dtype, from the rows of kernels/ops.inc.
#include "kernels/cuda/elementwise.cuh"

namespace nd_cuda {

#define ND_BINARY(name, types, expression, ...)                \
    template <class T> struct binary_##name {                  \
        T p;                                                   \
        ND_BOTH T operator()(const T &a, const T &b) const {   \
            typedef typename Wide<T>::type W [[maybe_unused]]; \
            return expression;                                 \
        }                                                      \
    };
#include "kernels/ops.inc"

template <class T>
static nd_status run_binary(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    T p = number<T>(call, 0);
    switch (call->op) {
#define ND_ROW_NUMBER(name) \
    case ND_OP_##name:      \
        return run_elementwise<T, T, T>(queue, call, binary_##name<T>{p});
#define ND_ROW_FLOAT(name)                                                     \
    case ND_OP_##name:                                                         \
        if constexpr (is_float<T>)                                             \
            return run_elementwise<T, T, T>(queue, call, binary_##name<T>{p}); \
        else                                                                   \
            return ND_ERROR_UNSUPPORTED;
#define ND_ROW_INTEGER(name)                                                   \
    case ND_OP_##name:                                                         \
        if constexpr (!is_float<T>)                                            \
            return run_elementwise<T, T, T>(queue, call, binary_##name<T>{p}); \
        else                                                                   \
            return ND_ERROR_UNSUPPORTED;
#define ND_ROW_BITS ND_ROW_INTEGER
#define ND_BINARY(name, types, expression, ...) ND_ROW_##types(name)
#include "kernels/ops.inc"
    default:
        return ND_ERROR_UNSUPPORTED;
    }
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
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
