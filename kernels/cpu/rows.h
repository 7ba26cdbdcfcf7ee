// Reads the rows of kernels/ops.inc for the element type that a type_<dtype>.inc named.
//
// ND__ROW_<types>(text) expands to text where the current dtype belongs to `types`; it has to be
// chosen anew for each dtype (rows_for_type.inc). The ND_<FUNCTION> names are the same for all.
#ifndef ND_KERNELS_CPU_ROWS_H
#define ND_KERNELS_CPU_ROWS_H
#include "kernels/cpu/functions.h"
#include "kernels/cpu/functions_float.h"
#include "kernels/cpu/functions_integer.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/names.h"

/// A call's number `which` in the current dtype.
#define ND__SCALAR(attrs, which) ND__FUNCTION(scalar)(attrs, which)

#define ND_ABS(x) ND__FUNCTION(abs)(x)
#define ND_SIGN(x) ND__FUNCTION(sign)(x)
#define ND_POW(a, b) ND__FUNCTION(pow)(a, b, small)
#define ND_EXP(x) ND__FUNCTION(exp)(x)
#define ND_LOG(x) ND__FUNCTION(log)(x)
#define ND_SQRT(x) ND__FUNCTION(sqrt)(x)
#define ND_SIN(x) ND__FUNCTION(sin)(x, small)
#define ND_COS(x) ND__FUNCTION(cos)(x, small)
#define ND_TANH(x) ND__FUNCTION(tanh)(x)
#define ND_SIGMOID(x) ND__FUNCTION(sigmoid)(x)
#define ND_GELU(x) ND__FUNCTION(gelu)(x)
#define ND_ERF(x) ND__FUNCTION(erf)(x)
#define ND_EXPM1(x) ND__FUNCTION(expm1)(x)
#define ND_LOG1P(x) ND__FUNCTION(log1p)(x)
#define ND_LOG2(x) ND__FUNCTION(log2)(x)
#define ND_LOG10(x) ND__FUNCTION(log10)(x)
#define ND_TAN(x) ND__FUNCTION(tan)(x, small)
#define ND_ASIN(x) ND__FUNCTION(asin)(x)
#define ND_ACOS(x) ND__FUNCTION(acos)(x)
#define ND_ATAN(x) ND__FUNCTION(atan)(x)
#define ND_SINH(x) ND__FUNCTION(sinh)(x)
#define ND_COSH(x) ND__FUNCTION(cosh)(x)
#define ND_ASINH(x) ND__FUNCTION(asinh)(x)
#define ND_ACOSH(x) ND__FUNCTION(acosh)(x)
#define ND_ATANH(x) ND__FUNCTION(atanh)(x)
#define ND_SILU(x) ND__FUNCTION(silu)(x)
#define ND_SILU_SLOPE(x) ND__FUNCTION(silu_slope)(x)
#define ND_MISH(x) ND__FUNCTION(mish)(x)
#define ND_MISH_SLOPE(x) ND__FUNCTION(mish_slope)(x)
#define ND_SOFTPLUS(x) ND__FUNCTION(softplus)(x)
#define ND_GELU_TANH(x) ND__FUNCTION(gelu_tanh)(x)
#define ND_GELU_TANH_SLOPE(x) ND__FUNCTION(gelu_tanh_slope)(x)
#define ND_ATAN2(a, b) ND__FUNCTION(atan2)(a, b)
#define ND_HYPOT(a, b) ND__FUNCTION(hypot)(a, b)
#define ND_LOGADDEXP(a, b) ND__FUNCTION(logaddexp)(a, b)
#define ND_COPYSIGN(a, b) ND__FUNCTION(copysign)(a, b)
#define ND_NEXTAFTER(a, b) ND__FUNCTION(nextafter)(a, b)
#define ND__QUOTIENTS_ARE_SMALL(a, b, n) ND__FUNCTION(quotients_are_small)(a, b, n)
#define ND_FLOOR_DIVIDE(a, b) ND__FUNCTION(floor_divide)(a, b, small)
#define ND_REMAINDER(a, b) ND__FUNCTION(remainder)(a, b, small)
#define ND_SIGNBIT(x) (__builtin_signbit(x) != 0)

#define ND__IS_UNSIGNED ((T)-1 > (T)0)
// Too wide a shift has no definition in C; as unsigned numbers, negative ones are too wide as well.
#define ND__BITS (8 * sizeof(T))
#define ND_LEFT_SHIFT(a, b) ((uint64_t)b < ND__BITS ? (T)((W)a << b) : (T)0)
#define ND_RIGHT_SHIFT(a, b) \
    ((uint64_t)b < ND__BITS ? (T)(a >> b) : ND__IS_UNSIGNED ? (T)0 : (T)(a >> (ND__BITS - 1)))

// Rows of which an operand, the last, is an angle, and rows that divide: loops over them stay
// vectorised only while no angle or quotient is large (functions.h, functions_float.h). Powers of
// floats are cheaper where bases are positive and all is finite. `small` says so of a block, where an
// expression is computed.
static inline bool nd__has_angles(nd_op op) {
    return op == ND_OP_sin || op == ND_OP_cos || op == ND_OP_tan || op == ND_OP_sin_grad ||
           op == ND_OP_cos_grad;
}
static inline bool nd__has_quotients(nd_op op) {
    return op == ND_OP_remainder || op == ND_OP_floor_divide;
}
/// Elements of a block that is brought together before its loop; of one that is looked at. Longer
/// ones of the latter wait twice: the look, which does nothing else, for memory, then the loop.
#define ND__LOOP_BLOCK 256
#define ND__LOOK_BLOCK 64

// Every loop may be told so: an output is either exactly an operand or apart from it.
#define ND__PRAGMA(text) _Pragma(#text)
#define ND__INDEPENDENT ND__PRAGMA(omp simd)
#endif
