// The elementwise rows of kernels/ops.inc as functors, and the choice of the one that a call names.
//
// A functor is <family>_<row><T>, for the type T that it is computed in. with_<family>() hands the
// call's to a runner, which makes kernels of it for whatever storage it knows: run_elementwise() for
// elements of T, halves.cuh for 16-bit floats, integers.cu for integers. Rows that T does not have are
// never instantiated.
#ifndef ND_KERNELS_CUDA_ROWS_CUH
#define ND_KERNELS_CUDA_ROWS_CUH
#include "kernels/cuda/arithmetic.cuh"

namespace nd_cuda {

#define ND_UNARY(name, types, expression, work, ...)           \
    template <class T> struct unary_##name {                   \
        static constexpr int cost = work;                      \
        T p, q;                                                \
        ND_BOTH T operator()(const T &x) const {               \
            typedef typename Wide<T>::type W [[maybe_unused]]; \
            return expression;                                 \
        }                                                      \
    };
#define ND_PREDICATE(name, types, expression, work, ...) \
    template <class T> struct predicate_##name {         \
        static constexpr int cost = work;                \
        ND_BOTH uint8_t operator()(const T &x) const {   \
            return (uint8_t)(expression);                \
        }                                                \
    };
#define ND_BINARY(name, types, expression, work, ...)          \
    template <class T> struct binary_##name {                  \
        static constexpr int cost = work;                      \
        T p, q;                                                \
        ND_BOTH T operator()(const T &a, const T &b) const {   \
            typedef typename Wide<T>::type W [[maybe_unused]]; \
            return expression;                                 \
        }                                                      \
    };
#define ND_COMPARE(name, types, expression, work, ...)             \
    template <class T> struct compare_##name {                     \
        static constexpr int cost = work;                          \
        ND_BOTH uint8_t operator()(const T &a, const T &b) const { \
            return (uint8_t)(expression);                          \
        }                                                          \
    };
#include "kernels/ops.inc"

#define ND_ROW_ANY(name, functor) \
    case ND_OP_##name:            \
        return run(functor);
#define ND_ROW_NUMBER ND_ROW_ANY
#define ND_ROW_FLOAT(name, functor) \
    case ND_OP_##name:              \
        if constexpr (is_float<T>)  \
            return run(functor);    \
        else                        \
            return ND_ERROR_UNSUPPORTED;
#define ND_ROW_INTEGER(name, functor) \
    case ND_OP_##name:                \
        if constexpr (!is_float<T>)   \
            return run(functor);      \
        else                          \
            return ND_ERROR_UNSUPPORTED;
#define ND_ROW_BITS ND_ROW_INTEGER

/// run(row) for the row that the call names, with its numbers; ND_ERROR_UNSUPPORTED where T has none.
template <class T, class Run> nd_status with_unary(nd_op op, T p, T q, const Run &run) {
    switch (op) {
#define ND_UNARY(name, types, ...) ND_ROW_##types(name, (unary_##name<T>{p, q}))
#include "kernels/ops.inc"
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
template <class T, class Run> nd_status with_predicate(nd_op op, const Run &run) {
    switch (op) {
#define ND_PREDICATE(name, types, ...) ND_ROW_##types(name, predicate_##name<T>{})
#include "kernels/ops.inc"
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
template <class T, class Run> nd_status with_binary(nd_op op, T p, T q, const Run &run) {
    switch (op) {
#define ND_BINARY(name, types, ...) ND_ROW_##types(name, (binary_##name<T>{p, q}))
#include "kernels/ops.inc"
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}
template <class T, class Run> nd_status with_compare(nd_op op, const Run &run) {
    switch (op) {
#define ND_COMPARE(name, types, ...) ND_ROW_##types(name, compare_##name<T>{})
#include "kernels/ops.inc"
    default:
        return ND_ERROR_UNSUPPORTED;
    }
}

} // namespace nd_cuda
#endif
