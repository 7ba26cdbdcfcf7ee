// What each elementwise operation is held against: reference_<name>, written beside the math
// library's long doubles, from the definitions alone. A row of kernels/ops.inc without one does not
// build.
#ifndef ND_TESTS_UNIT_OPS_REFERENCES_H
#define ND_TESTS_UNIT_OPS_REFERENCES_H
#include <math.h>
#include <stdint.h>

// Numbers of the operations that take some; every dtype holds them.
#define P 2
#define Q 5

#define UNARY_REFERENCE(name, value)                            \
    static inline long double reference_##name(long double x) { \
        return value;                                           \
    }
#define BINARY_REFERENCE(name, value)                                          \
    static inline long double reference_##name(long double a, long double b) { \
        return value;                                                          \
    }

UNARY_REFERENCE(neg, -x)
UNARY_REFERENCE(abs, fabsl(x))
UNARY_REFERENCE(sign, isnan(x) ? x : (x > 0) - (x < 0))
UNARY_REFERENCE(square, x *x)
UNARY_REFERENCE(exp, expl(x))
UNARY_REFERENCE(log, logl(x))
UNARY_REFERENCE(sqrt, sqrtl(x))
UNARY_REFERENCE(sin, sinl(x))
UNARY_REFERENCE(cos, cosl(x))
UNARY_REFERENCE(tanh, tanhl(x))
UNARY_REFERENCE(sigmoid, 1 / (1 + expl(-x)))
UNARY_REFERENCE(relu, x < 0 ? 0 : x)
UNARY_REFERENCE(gelu, x == -INFINITY ? 0 : x / 2 * erfcl(-x / sqrtl(2)))
UNARY_REFERENCE(erf, erfl(x))
UNARY_REFERENCE(reciprocal, 1 / x)
UNARY_REFERENCE(add_scalar, x + P)
UNARY_REFERENCE(mul_scalar, x *P)
UNARY_REFERENCE(pow_scalar, powl(x, P))
UNARY_REFERENCE(clip, isnan(x) ? x : fminl(fmaxl(x, P), Q))
UNARY_REFERENCE(sub_scalar, x - P)
UNARY_REFERENCE(div_scalar, x / P)
UNARY_REFERENCE(expm1, expm1l(x))
UNARY_REFERENCE(log1p, log1pl(x))
UNARY_REFERENCE(log2, log2l(x))
UNARY_REFERENCE(log10, log10l(x))
UNARY_REFERENCE(rsqrt, 1 / sqrtl(x))
UNARY_REFERENCE(tan, tanl(x))
UNARY_REFERENCE(asin, asinl(x))
UNARY_REFERENCE(acos, acosl(x))
UNARY_REFERENCE(atan, atanl(x))
UNARY_REFERENCE(sinh, sinhl(x))
UNARY_REFERENCE(cosh, coshl(x))
UNARY_REFERENCE(asinh, asinhl(x))
UNARY_REFERENCE(acosh, acoshl(x))
UNARY_REFERENCE(atanh, atanhl(x))
// Where a factor vanishes the product does, whatever the other.
UNARY_REFERENCE(silu, x == -INFINITY ? 0 : x / (1 + expl(-x)))
UNARY_REFERENCE(gelu_tanh,
                x == -INFINITY
                    ? 0
                    : x / (1 + expl(-2 * sqrtl(2 / acosl(-1)) * (x + 0.044715L * x * x * x))))
UNARY_REFERENCE(mish, x == -INFINITY ? 0 : x * tanhl(log1pl(expl(x))))
UNARY_REFERENCE(softplus, x > 50 ? x : log1pl(expl(x)))
UNARY_REFERENCE(logsigmoid, x < -50 ? x : -log1pl(expl(-x)))
UNARY_REFERENCE(softsign, isinf(x) ? (x > 0) - (x < 0) : x / (1 + fabsl(x)))
UNARY_REFERENCE(relu6, isnan(x) ? x : fminl(fmaxl(x, 0), 6))
UNARY_REFERENCE(hardsigmoid, isnan(x) ? x : fminl(fmaxl(x + 3, 0), 6) / 6)
UNARY_REFERENCE(hardswish, isnan(x) || x >= 3 ? x : x <= -3 ? 0 : x * (x + 3) / 6)
UNARY_REFERENCE(hardtanh, isnan(x) ? x : fminl(fmaxl(x, P), Q))
UNARY_REFERENCE(leaky_relu, x > 0 ? x : x * P)
UNARY_REFERENCE(elu, x > 0 ? x : P * expm1l(x))
UNARY_REFERENCE(selu, 1.0507009873554804934193349852946L *
                          (x > 0 ? x : 1.6732632423543772848170429916717L * expm1l(x)))
UNARY_REFERENCE(floor, floorl(x))
UNARY_REFERENCE(ceil, ceill(x))
UNARY_REFERENCE(round, roundl(x) - (fabsl(x - truncl(x)) == 0.5L && fmodl(roundl(x), 2) != 0) *
                                       ((x > 0) - (x < 0)))
UNARY_REFERENCE(trunc, truncl(x))
UNARY_REFERENCE(isnan, isnan(x) != 0)
UNARY_REFERENCE(isinf, isinf(x) != 0)
UNARY_REFERENCE(isfinite, isfinite(x) != 0)
UNARY_REFERENCE(signbit, signbit(x) != 0)
UNARY_REFERENCE(logical_not, x == 0)
/// Of whole numbers; bool has its own in the test.
UNARY_REFERENCE(bitwise_invert, -x - 1)

/// What is left of a when b is taken away a whole number of times, on b's side of 0.
static inline long double rest_of(long double a, long double b) {
    long double rest = fmodl(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
/// NumPy's where an operand is infinite: there is no rest of infinity.
static inline long double whole_quotient(long double a, long double b) {
    if (isinf(a))
        return b == 0 ? a / b : (long double)NAN;
    if (isinf(b) && !isnan(a))
        return a == 0 || (a > 0) == (b > 0) ? 0 : -1;
    return floorl(a / b);
}
/// The test takes that of the operands' dtype.
BINARY_REFERENCE(nextafter, nextafterl(a, b))
BINARY_REFERENCE(add, a + b)
BINARY_REFERENCE(sub, a - b)
BINARY_REFERENCE(mul, a *b)
BINARY_REFERENCE(div, a / b)
BINARY_REFERENCE(pow, powl(a, b))
BINARY_REFERENCE(floor_divide, whole_quotient(a, b))
BINARY_REFERENCE(remainder, rest_of(a, b))
BINARY_REFERENCE(atan2, atan2l(a, b))
BINARY_REFERENCE(hypot, hypotl(a, b))
BINARY_REFERENCE(logaddexp, a == b ? a + logl(2) : fmaxl(a, b) + log1pl(expl(-fabsl(a - b))))
BINARY_REFERENCE(copysign, copysignl(a, b))
BINARY_REFERENCE(bitwise_and, (long double)((int64_t)a &(int64_t)b))
BINARY_REFERENCE(bitwise_or, (long double)((int64_t)a | (int64_t)b))
BINARY_REFERENCE(bitwise_xor, (long double)((int64_t)a ^ (int64_t)b))
BINARY_REFERENCE(bitwise_left_shift, b<0 || b> 63 ? 0 : ldexpl(a, (int)b))
BINARY_REFERENCE(bitwise_right_shift, b<0 || b> 63 ? -(a < 0) : floorl(ldexpl(a, -(int)b)))
BINARY_REFERENCE(maximum, isnan(a) || isnan(b) ? (long double)NAN : fmaxl(a, b))
BINARY_REFERENCE(minimum, isnan(a) || isnan(b) ? (long double)NAN : fminl(a, b))
BINARY_REFERENCE(equal, a == b)
BINARY_REFERENCE(not_equal, a != b)
BINARY_REFERENCE(less, a < b)
BINARY_REFERENCE(less_equal, a <= b)
BINARY_REFERENCE(greater, a > b)
BINARY_REFERENCE(greater_equal, a >= b)
BINARY_REFERENCE(logical_and, a != 0 && b != 0)
BINARY_REFERENCE(logical_or, a != 0 || b != 0)
BINARY_REFERENCE(logical_xor, (a != 0) != (b != 0))
#endif
