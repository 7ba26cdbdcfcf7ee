// UNARY: out = f(x), one dtype, and PREDICATE, whose result is bool, from the rows of
// kernels/ops.inc.
#include "kernels/cuda/elementwise.cuh"

namespace nd_cuda {

#define ND_UNARY(name, types, expression, ...)                 \
    template <class T> struct unary_##name {                   \
        T p, q;                                                \
        ND_BOTH T operator()(const T &x) const {               \
            typedef typename Wide<T>::type W [[maybe_unused]]; \
            return expression;                                 \
        }                                                      \
    };
#include "kernels/ops.inc"

#define ND_PREDICATE(name, types, expression, ...)     \
    template <class T> struct predicate_##name {       \
        ND_BOTH uint8_t operator()(const T &x) const { \
            return (uint8_t)(expression);              \
        }                                              \
    };
#include "kernels/ops.inc"

template <class T>
static nd_status run_unary(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    T p = number<T>(call, 0), q = number<T>(call, 1);
    switch (call->op) {
#define ND_ROW_NUMBER(name) \
    case ND_OP_##name:      \
        return run_elementwise<T, T>(queue, call, unary_##name<T>{p, q});
#define ND_ROW_FLOAT(name)                                                    \
    case ND_OP_##name:                                                        \
        if constexpr (is_float<T>)                                            \
            return run_elementwise<T, T>(queue, call, unary_##name<T>{p, q}); \
        else                                                                  \
            return ND_ERROR_UNSUPPORTED;
#define ND_ROW_INTEGER(name)                                                  \
    case ND_OP_##name:                                                        \
        if constexpr (!is_float<T>)                                           \
            return run_elementwise<T, T>(queue, call, unary_##name<T>{p, q}); \
        else                                                                  \
            return ND_ERROR_UNSUPPORTED;
#define ND_ROW_BITS ND_ROW_INTEGER
#define ND_UNARY(name, types, expression, ...) ND_ROW_##types(name)
#include "kernels/ops.inc"
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

template <class T>
static nd_status run_predicate(const nd_cuda_queue *queue, const nd_kernel_call *call) {
    switch (call->op) {
#undef ND_ROW_NUMBER
#undef ND_ROW_FLOAT
#define ND_ROW_NUMBER(name) \
    case ND_OP_##name:      \
        return run_elementwise<uint8_t, T>(queue, call, predicate_##name<T>{});
#define ND_ROW_FLOAT(name)                                                          \
    case ND_OP_##name:                                                              \
        if constexpr (is_float<T>)                                                  \
            return run_elementwise<uint8_t, T>(queue, call, predicate_##name<T>{}); \
        else                                                                        \
            return ND_ERROR_UNSUPPORTED;
#define ND_PREDICATE(name, types, expression, ...) ND_ROW_##types(name)
#include "kernels/ops.inc"
    default:
        return ND_ERROR_UNSUPPORTED;
    }
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
    default:
        return ND_ERROR_UNSUPPORTED;
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
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
