// More functions that kernels/ops.inc names, in f32 and f64: nd__<function>_<dtype>, made of those
// of math_f32.h and math_f64.h, so that loops over them vectorise. A few ask the math library. NaN
// goes through all of them.
#ifndef ND_KERNELS_CPU_FUNCTIONS_FLOAT_H
#define ND_KERNELS_CPU_FUNCTIONS_FLOAT_H
#include "kernels/cpu/functions.h"

#define ND__OF_THE_LIBRARY(name, library)            \
    ND__IN_LOOPS float nd__##name##_f32(float x) {   \
        return library##f(x);                        \
    }                                                \
    ND__IN_LOOPS double nd__##name##_f64(double x) { \
        return library(x);                           \
    }
ND__OF_THE_LIBRARY(floor, floor)
ND__OF_THE_LIBRARY(ceil, ceil)
ND__OF_THE_LIBRARY(round, rint)
ND__OF_THE_LIBRARY(trunc, trunc)
#undef ND__OF_THE_LIBRARY

// C's nextafter: one more in magnitude, or one less.
#define ND__NEXTAFTER(T, U, dtype)                                      \
    ND__IN_LOOPS T nd__nextafter_##dtype(T a, T b) {                    \
        U more = (b > a) == (a > (T)0) ? (U)1 : (U)-1;                  \
        T next = nd__from_bits_##dtype(nd__bits_##dtype(a) + more);     \
        T least = nd__copysign_##dtype(nd__from_bits_##dtype((U)1), b); \
        T result = a == (T)0 ? least : next;                            \
        result = a == b ? b : result;                                   \
        return a != a || b != b ? a + b : result;                       \
    }
ND__NEXTAFTER(float, uint32_t, f32)
ND__NEXTAFTER(double, uint64_t, f64)
#undef ND__NEXTAFTER

// Of quotients below ND__QUOTIENT_MOST the multiple of b next to a, and what is left of a, are exact.
// Larger ones are the math library's, and the loop over a block that has some stays scalar: `small`
// is 0 there.
#define ND__QUOTIENT_MOST_f32 0x1p28f
#define ND__QUOTIENT_MOST_f64 0x1p50
#define ND__QUOTIENTS(T, dtype, with_products)                                              \
    static inline bool nd__quotients_are_small_##dtype(const T *a, const T *b, int64_t n) { \
        int large = !(with_products);                                                       \
        for (int64_t i = 0; i < n && (with_products); i++) {                                \
            T size = nd__abs_##dtype(a[i]),                                                 \
              limit = nd__abs_##dtype(b[i]) * ND__QUOTIENT_MOST_##dtype;                    \
            large |= size >= limit && size <= nd__most_##dtype && limit > (T)0;             \
        }                                                                                   \
        return !large;                                                                      \
    }
ND__QUOTIENTS(float, f32, 1)
ND__QUOTIENTS(double, f64, ND__HAS_FMA)
#undef ND__QUOTIENTS

/// fmod(a, b), which is exact. A product of 28 and 24 digits is exact in f64.
ND__IN_LOOPS float nd__rest_f32(float a, float b, const int small) {
    if (!small)
        return fmodf(a, b);
    double quotient = nd__nearest_f64((double)a / (double)b);
    float rest = (float)((double)a - quotient * (double)b);
    rest = rest != 0.0f && (rest < 0.0f) != (a < 0.0f) ? rest + copysignf(b, a) : rest;
    return fabsf(b) > nd__most_f32 && fabsf(a) <= nd__most_f32 ? a : rest;
}
/// The same; the product is not rounded before it is taken away.
ND__IN_LOOPS double nd__rest_f64(double a, double b, const int small) {
    if (!small)
        return fmod(a, b);
    double quotient = nd__nearest_f64(a / b);
    double rest = __builtin_fma(-quotient, b, a);
    rest = rest != 0.0 && (rest < 0.0) != (a < 0.0) ? rest + copysign(b, a) : rest;
    return fabs(b) > nd__most_f64 && fabs(a) <= nd__most_f64 ? a : rest;
}

/// log(1 + e) for e in [0, 1]: the logarithm of the rounded sum, and what the rounding took.
ND__IN_LOOPS float nd__log1p_of_unit_f32(float e) {
    float sum = 1.0f + e;
    return nd__log_f32(sum) + (e - (sum - 1.0f)) / sum;
}
ND__IN_LOOPS double nd__log1p_of_unit_f64(double e) {
    return nd__log1p_of_sum_f64(e, 0.0, 0.0);
}

// What follows is the same for both.
#define ND__OF_BOTH(T, name)                                                                     \
    /* max(x, 0) + log(1 + e^-|x|) */                                                            \
    ND__IN_LOOPS T nd__softplus_##name(T x) {                                                    \
        T result = (x > (T)0 ? x : (T)0) + nd__log1p_of_unit_##name(nd__exp_of_minus_##name(x)); \
        return x != x ? x : result;                                                              \
    }                                                                                            \
    /* x sigmoid(t); -infinity times 0 would be NaN */                                           \
    ND__IN_LOOPS T nd__gated_##name(T x, T t) {                                                  \
        T gate = nd__sigmoid_##name(t);                                                          \
        return gate == (T)0 ? (T)-0.0 : x * gate;                                                \
    }                                                                                            \
    ND__IN_LOOPS T nd__silu_##name(T x) {                                                        \
        return nd__gated_##name(x, x);                                                           \
    }                                                                                            \
    /* s + x s (1 - s) */                                                                        \
    ND__IN_LOOPS T nd__silu_slope_##name(T x) {                                                  \
        T gate = nd__sigmoid_##name(x);                                                          \
        return gate + nd__silu_##name(x) * ((T)1 - gate);                                        \
    }                                                                                            \
    /* (1 + tanh(u)) / 2 is sigmoid(2 u), without cancellation */                                \
    ND__IN_LOOPS T nd__gelu_tanh_##name(T x) {                                                   \
        return nd__gated_##name(                                                                 \
            x, x * ((T)1.5957691216057307117 + (T)0.0713548162726002527 * x * x));               \
    }                                                                                            \
    /* beyond 32 it is 0 or 1, and powers of x would overflow */                                 \
    ND__IN_LOOPS T nd__gelu_tanh_slope_##name(T operand) {                                       \
        T above = operand < (T)-32 ? (T)-32 : operand;                                           \
        T x = above > (T)32 ? (T)32 : above;                                                     \
        T square = x * x;                                                                        \
        T gate = nd__sigmoid_##name(                                                             \
            x * ((T)1.5957691216057307117 + (T)0.0713548162726002527 * square));                 \
        T inner = (T)1.5957691216057307117 + (T)0.2140644488178007582 * square;                  \
        return gate + x * inner * gate * ((T)1 - gate);                                          \
    }                                                                                            \
    /* tanh(softplus(x)) as a quotient of e^-|x|: n / (n + 2) with n = e^x (e^x + 2) */          \
    ND__IN_LOOPS T nd__mish_gate_##name(T x) {                                                   \
        T e = nd__exp_of_minus_##name(x);                                                        \
        T above = x < (T)0 ? e * (e + (T)2) : (T)1 + (T)2 * e;                                   \
        T below = above + (T)2 * (x < (T)0 ? (T)1 : e * e);                                      \
        return above / below;                                                                    \
    }                                                                                            \
    ND__IN_LOOPS T nd__mish_##name(T x) {                                                        \
        T gate = nd__mish_gate_##name(x);                                                        \
        return gate == (T)0 ? (T)-0.0 : x * gate;                                                \
    }                                                                                            \
    ND__IN_LOOPS T nd__mish_slope_##name(T x) {                                                  \
        T gate = nd__mish_gate_##name(x);                                                        \
        return gate + x * nd__sigmoid_##name(x) * ((T)1 - gate * gate);                          \
    }                                                                                            \
    /* log(e^a + e^b); equal operands, infinite ones too, have no difference to look at */       \
    ND__IN_LOOPS T nd__logaddexp_##name(T a, T b) {                                              \
        T more = nd__log1p_of_unit_##name(nd__exp_of_minus_##name(a - b));                       \
        T result = (a > b ? a : b) + (a == b ? (T)0.69314718055994530942 : more);                \
        return a != a ? a : b != b ? b : result;                                                 \
    }                                                                                            \
    /* Python's: of the sign of b */                                                             \
    ND__IN_LOOPS T nd__remainder_##name(T a, T b, const int small) {                             \
        T rest = nd__rest_##name(a, b, small);                                                   \
        T result = (rest < (T)0) != (b < (T)0) ? rest + b : rest;                                \
        return rest == (T)0 ? nd__copysign_##name((T)0, b) : result;                             \
    }                                                                                            \
    /* As NumPy's: the whole number next to (a - remainder) / b */                               \
    ND__IN_LOOPS T nd__floor_divide_##name(T a, T b, const int small) {                          \
        T rest = nd__rest_##name(a, b, small), ratio = a / b;                                    \
        T quotient = (a - rest) / b;                                                             \
        T below = (rest < (T)0) != (b < (T)0) ? quotient - (T)1 : quotient;                      \
        quotient = rest == (T)0 ? quotient : below;                                              \
        T whole = nd__floor_##name(quotient), more = whole + (T)1;                               \
        whole = quotient - whole > (T)0.5 ? more : whole;                                        \
        T zero = nd__copysign_##name((T)0, ratio);                                               \
        whole = quotient == (T)0 ? zero : whole;                                                 \
        return b == (T)0 ? ratio : whole;                                                        \
    }
ND__OF_BOTH(float, f32)
ND__OF_BOTH(double, f64)
#undef ND__OF_BOTH
#endif
