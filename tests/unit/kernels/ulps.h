// What the functions of floats promise: the largest error of each, in units of the last place (ulps)
// of the true result, and what it is held against. docs/performance.md shows the same table.
#ifndef ND_TESTS_UNIT_KERNELS_ULPS_H
#define ND_TESTS_UNIT_KERNELS_ULPS_H
#include "kernels/cpu/cpu.h"
#include "tests/testing.h"
#include <float.h>
#include <math.h>
#include <stdlib.h>

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

/// An operation of one or two operands. Its bounds hold for first operands from `low` to `high`.
typedef struct promise {
    const char *name;
    nd_op op;
    double f32, f64; ///< ulps
    double low, high;
    long double (*one)(long double);
    long double (*two)(long double, long double);
    double (*one_f64)(double); ///< for the run over all floats
} promise;

static inline long double ulps_sigmoid(long double x) {
    return 1 / (1 + expl(-x));
}
static inline long double ulps_softplus(long double x) {
    return x > 50 ? x : log1pl(expl(x));
}
static inline long double ulps_gelu(long double x) {
    return x / 2 * erfcl(-x / sqrtl(2));
}
static inline long double ulps_silu(long double x) {
    return x / (1 + expl(-x));
}
static inline long double ulps_mish(long double x) {
    return x * tanhl(log1pl(expl(x)));
}

#define ONE(name, f32, f64, low, high) \
    { #name, ND_OP_##name, f32, f64, low, high, name##l, NULL, name }
#define COMPOSED(name, f32, f64, low, high) \
    { #name, ND_OP_##name, f32, f64, low, high, ulps_##name, NULL, NULL }
#define TWO(name, f32, f64, low, high) \
    { #name, ND_OP_##name, f32, f64, low, high, NULL, name##l, NULL }
static const promise promises[] = {
    ONE(exp, 1.5, 1, -INFINITY, INFINITY),
    ONE(expm1, 1.5, 1.5, -INFINITY, INFINITY),
    ONE(log, 1, 1, -INFINITY, INFINITY),
    ONE(log1p, 1, 1, -INFINITY, INFINITY),
    ONE(log2, 1, 1, -INFINITY, INFINITY),
    ONE(log10, 1, 1, -INFINITY, INFINITY),
    ONE(sin, 1, 1, -INFINITY, INFINITY),
    ONE(cos, 1, 1, -INFINITY, INFINITY),
    ONE(tan, 2.5, 3, -INFINITY, INFINITY),
    ONE(asin, 1, 1, -INFINITY, INFINITY),
    ONE(acos, 1, 1, -INFINITY, INFINITY),
    ONE(atan, 1.5, 1.5, -INFINITY, INFINITY),
    ONE(sinh, 2.5, 2.5, -INFINITY, INFINITY),
    ONE(cosh, 1.5, 1.5, -INFINITY, INFINITY),
    ONE(tanh, 8, 2.5, -INFINITY, INFINITY),
    ONE(asinh, 1.5, 1.5, -INFINITY, INFINITY),
    ONE(acosh, 2.5, 2.5, -INFINITY, INFINITY),
    ONE(atanh, 1.5, 1.5, -INFINITY, INFINITY),
    ONE(erf, 8, 1.5, -INFINITY, INFINITY),
    COMPOSED(sigmoid, 3, 2.5, -INFINITY, INFINITY),
    COMPOSED(softplus, 2.5, 2, -INFINITY, INFINITY),
    // From 0 down these are products in which a digit of the operand decides over many of the result.
    COMPOSED(gelu, 4, 2, 5e-324, INFINITY),
    COMPOSED(silu, 4, 3, 0, INFINITY),
    COMPOSED(mish, 4, 3, 0, INFINITY),
    TWO(pow, 1, 1, -INFINITY, INFINITY),
    TWO(atan2, 1.5, 1.5, -INFINITY, INFINITY),
    TWO(hypot, 1, 1, -INFINITY, INFINITY),
};
#undef ONE
#undef COMPOSED
#undef TWO

static inline double bound_of(const promise *promise, nd_dtype dtype) {
    return dtype == ND_F32 ? promise->f32 : promise->f64;
}

/// Runs an operation on contiguous elements; `b` may be NULL.
static inline void run_dense(nd_op op, nd_dtype dtype, int64_t n, void *out, const void *a,
                             const void *b) {
    nd_kernel_call call = {.op = op, .noperands = b ? 3 : 2, .ndim = 1, .shape = {n}};
    const void *data[3] = {out, a, b};
    for (int i = 0; i < call.noperands; i++) {
        call.operand[i].data = (void *)(uintptr_t)data[i];
        call.operand[i].dtype = dtype;
        call.operand[i].strides[0] = 1;
    }
    assert_int_equal(nd__cpu_launch(&call), ND_OK);
}

/// The distance between numbers of the dtype next to `exact`.
static inline double last_place(long double exact, nd_dtype dtype) {
    int digits = dtype == ND_F32 ? FLT_MANT_DIG : DBL_MANT_DIG;
    int least = dtype == ND_F32 ? FLT_MIN_EXP : DBL_MIN_EXP;
    int most = dtype == ND_F32 ? FLT_MAX_EXP : DBL_MAX_EXP;
    int exponent = 0;
    frexpl(isinf(exact) ? 0 : exact, &exponent);
    exponent = isinf(exact) || exponent > most ? most : exponent < least ? least : exponent;
    return ldexp(1, exponent - digits);
}

/// Ulps between a result and the exact one. What rounds to infinity must be infinity or, by an
/// error, the largest number; infinity counts as the number behind that.
static inline double ulps_between(double result, long double exact, nd_dtype dtype) {
    double rounded = dtype == ND_F32 ? (double)(float)exact : (double)exact;
    if (isnan(result) || isnan(exact))
        return isnan(result) && isnan(exact) ? 0 : (double)INFINITY;
    if (result == rounded)
        return signbit(result) == signbit(rounded) || exact != 0 ? 0 : (double)INFINITY;
    long double top = ldexpl(1, dtype == ND_F32 ? FLT_MAX_EXP : DBL_MAX_EXP);
    long double held = isinf(result) ? copysignl(top, (long double)result) : (long double)result;
    if (isinf(exact))
        return (double)INFINITY;
    return (double)(fabsl(held - exact) / (long double)last_place(exact, dtype));
}

static inline void on_each_isa(void (*test)(void)) {
    static const char *const names[] = {"baseline", "x86_64_v3", "x86_64_v4"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (nd__cpu_use_isa(names[i]))
            test();
    nd__cpu_use_isa(NULL);
}
#endif
