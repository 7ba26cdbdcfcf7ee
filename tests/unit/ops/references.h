// What each elementwise operation is held against: reference_<name>, written beside the math
// library's long doubles, from the definitions alone. A row of kernels/ops.inc without one does not
// build.
#ifndef ND_TESTS_UNIT_OPS_REFERENCES_H
#define ND_TESTS_UNIT_OPS_REFERENCES_H
#include <math.h>

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
UNARY_REFERENCE(logical_not, x == 0)

BINARY_REFERENCE(add, a + b)
BINARY_REFERENCE(sub, a - b)
BINARY_REFERENCE(mul, a *b)
BINARY_REFERENCE(div, a / b)
BINARY_REFERENCE(pow, powl(a, b))
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
#endif
