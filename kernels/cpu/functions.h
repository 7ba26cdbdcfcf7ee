// The functions that kernels/ops.inc names, for every dtype: nd__<function>_<dtype>.
//
// f32 has its own approximations (math_f32.h), f64 asks the math library. Integer functions wrap
// and never trap.
#ifndef ND_KERNELS_CPU_FUNCTIONS_H
#define ND_KERNELS_CPU_FUNCTIONS_H
#include "kernels/cpu/convert.h"
#include "kernels/cpu/math_f32.h"
#include "kernels/kernel.h"

/// Number `which` of a call (kernels/kernel.h).
#define ND__SCALAR_FUNCTION(T, dtype)                                         \
    static inline T nd__scalar_##dtype(const nd_op_attrs *attrs, int which) { \
        return nd__f64_to_##dtype(attrs->f[which]);                           \
    }
ND__SCALAR_FUNCTION(uint8_t, b8)
ND__SCALAR_FUNCTION(uint8_t, u8)
ND__SCALAR_FUNCTION(uint16_t, u16)
ND__SCALAR_FUNCTION(uint32_t, u32)
ND__SCALAR_FUNCTION(int8_t, i8)
ND__SCALAR_FUNCTION(int16_t, i16)
ND__SCALAR_FUNCTION(int32_t, i32)
ND__SCALAR_FUNCTION(float, f32)
ND__SCALAR_FUNCTION(double, f64)
static inline int64_t nd__scalar_i64(const nd_op_attrs *attrs, int which) {
    return attrs->i[which];
}
static inline uint64_t nd__scalar_u64(const nd_op_attrs *attrs, int which) {
    return (uint64_t)attrs->i[which];
}

static inline uint64_t nd__pow_wrapping(uint64_t base, uint64_t exponent) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, base *= base)
        if (exponent & 1)
            result *= base;
    return result;
}

static inline int64_t nd__pow_signed(int64_t base, int64_t exponent) {
    if (exponent >= 0)
        return (int64_t)nd__pow_wrapping((uint64_t)base, (uint64_t)exponent);
    if (base == 1)
        return 1;
    if (base == -1)
        return exponent & 1 ? -1 : 1;
    return 0;
}

#define ND__UNSIGNED_FUNCTIONS(T, dtype)                  \
    static inline T nd__pow_##dtype(T base, T exponent) { \
        return (T)nd__pow_wrapping(base, exponent);       \
    }                                                     \
    static inline T nd__abs_##dtype(T x) {                \
        return x;                                         \
    }                                                     \
    static inline T nd__sign_##dtype(T x) {               \
        return x != 0;                                    \
    }
ND__UNSIGNED_FUNCTIONS(uint8_t, u8)
ND__UNSIGNED_FUNCTIONS(uint16_t, u16)
ND__UNSIGNED_FUNCTIONS(uint32_t, u32)
ND__UNSIGNED_FUNCTIONS(uint64_t, u64)

// W: type whose negation has no undefined overflow.
#define ND__SIGNED_FUNCTIONS(T, W, dtype)                 \
    static inline T nd__pow_##dtype(T base, T exponent) { \
        return (T)nd__pow_signed(base, exponent);         \
    }                                                     \
    static inline T nd__abs_##dtype(T x) {                \
        return x < 0 ? (T)(-(W)x) : x;                    \
    }                                                     \
    static inline T nd__sign_##dtype(T x) {               \
        return (T)((x > 0) - (x < 0));                    \
    }
ND__SIGNED_FUNCTIONS(int8_t, uint32_t, i8)
ND__SIGNED_FUNCTIONS(int16_t, uint32_t, i16)
ND__SIGNED_FUNCTIONS(int32_t, uint32_t, i32)
ND__SIGNED_FUNCTIONS(int64_t, uint64_t, i64)

static inline float nd__pow_f32(float base, float exponent) {
    return powf(base, exponent);
}
static inline double nd__pow_f64(double base, double exponent) {
    return pow(base, exponent);
}

static inline float nd__abs_f32(float x) {
    return fabsf(x);
}
static inline double nd__abs_f64(double x) {
    return fabs(x);
}

static inline float nd__sign_f32(float x) {
    float sign = (float)((x > 0.0f) - (x < 0.0f));
    return x != x ? x : sign;
}
static inline double nd__sign_f64(double x) {
    double sign = (double)((x > 0.0) - (x < 0.0));
    return x != x ? x : sign;
}

static inline float nd__sqrt_f32(float x) {
    return sqrtf(x);
}
static inline float nd__sin_f32(float x) {
    return sinf(x);
}
static inline float nd__cos_f32(float x) {
    return cosf(x);
}
static inline double nd__exp_f64(double x) {
    return exp(x);
}
static inline double nd__exp_of_minus_f64(double x) {
    return exp(-fabs(x));
}
static inline double nd__log_f64(double x) {
    return log(x);
}
static inline double nd__sqrt_f64(double x) {
    return sqrt(x);
}
static inline double nd__sin_f64(double x) {
    return sin(x);
}
static inline double nd__cos_f64(double x) {
    return cos(x);
}
static inline double nd__tanh_f64(double x) {
    return tanh(x);
}
static inline double nd__sigmoid_f64(double x) {
    double e = exp(-fabs(x)); // of the magnitude, so that nothing overflows
    return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
static inline double nd__erf_f64(double x) {
    return erf(x);
}
static inline double nd__gelu_f64(double x) {
    return x < -40.0 ? -0.0 : 0.5 * x * erfc(x * -0.707106781186547524401);
}
#endif
