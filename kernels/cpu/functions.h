// The functions that kernels/ops.inc names, for every dtype: nd__<function>_<dtype>.
//
// Those of floats are in math_f32.h and math_f64.h. Integer functions wrap and never trap.
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

#define ND__UNSIGNED_FUNCTIONS(T, dtype)                                   \
    static inline T nd__pow_##dtype(T base, T exponent, const int small) { \
        (void)small;                                                       \
        return (T)nd__pow_wrapping(base, exponent);                        \
    }                                                                      \
    static inline T nd__abs_##dtype(T x) {                                 \
        return x;                                                          \
    }                                                                      \
    static inline T nd__sign_##dtype(T x) {                                \
        return x != 0;                                                     \
    }
ND__UNSIGNED_FUNCTIONS(uint8_t, u8)
ND__UNSIGNED_FUNCTIONS(uint16_t, u16)
ND__UNSIGNED_FUNCTIONS(uint32_t, u32)
ND__UNSIGNED_FUNCTIONS(uint64_t, u64)

// W: type whose negation has no undefined overflow.
#define ND__SIGNED_FUNCTIONS(T, W, dtype)                                  \
    static inline T nd__pow_##dtype(T base, T exponent, const int small) { \
        (void)small;                                                       \
        return (T)nd__pow_signed(base, exponent);                          \
    }                                                                      \
    static inline T nd__abs_##dtype(T x) {                                 \
        return x < 0 ? (T)(-(W)x) : x;                                     \
    }                                                                      \
    static inline T nd__sign_##dtype(T x) {                                \
        return (T)((x > 0) - (x < 0));                                     \
    }
ND__SIGNED_FUNCTIONS(int8_t, uint32_t, i8)
ND__SIGNED_FUNCTIONS(int16_t, uint32_t, i16)
ND__SIGNED_FUNCTIONS(int32_t, uint32_t, i32)
ND__SIGNED_FUNCTIONS(int64_t, uint64_t, i64)

static inline float nd__sign_f32(float x) {
    float sign = (float)((x > 0.0f) - (x < 0.0f));
    return x != x ? x : sign;
}
static inline double nd__sign_f64(double x) {
    double sign = (double)((x > 0.0) - (x < 0.0));
    return x != x ? x : sign;
}

// Exponents of e of which the powers, and what these are multiplied with on the way, are normal.
#define ND__EXPONENTS(T, dtype, most)                                           \
    static inline bool nd__exponents_are_small_##dtype(const T *x, int64_t n) { \
        int others = 0;                                                         \
        for (int64_t i = 0; i < n; i++)                                         \
            others |= !(nd__abs_##dtype(x[i]) <= (most));                       \
        return !others;                                                         \
    }
ND__EXPONENTS(float, f32, 87.0f)
ND__EXPONENTS(double, f64, 708.0)
#undef ND__EXPONENTS

// Numbers above 0 that are finite and not subnormal.
#define ND__NORMALS(T, dtype, least)                                           \
    static inline bool nd__numbers_are_normal_##dtype(const T *x, int64_t n) { \
        int others = 0;                                                        \
        for (int64_t i = 0; i < n; i++)                                        \
            others |= !(x[i] >= (least)) | !(x[i] <= nd__most_##dtype);        \
        return !others;                                                        \
    }
ND__NORMALS(float, f32, 0x1p-126f)
ND__NORMALS(double, f64, 0x1p-1022)
#undef ND__NORMALS

// Bases above 0 that are finite and not subnormal, with exponents that are not huge: of their powers
// nothing needs to be said beside what the logarithm says (math_f64.h).
#define ND__POWERS(T, dtype, least)                                                      \
    static inline bool nd__powers_are_small_##dtype(const T *a, const T *b, int64_t n) { \
        int others = 0;                                                                  \
        for (int64_t i = 0; i < n; i++)                                                  \
            others |= !(a[i] >= (least)) | !(a[i] <= nd__most_##dtype) |                 \
                      !(nd__abs_##dtype(b[i]) <= (T)0x1p64);                             \
        return !others;                                                                  \
    }
ND__POWERS(float, f32, 0x1p-126f)
ND__POWERS(double, f64, 0x1p-1022)
#undef ND__POWERS

// Angles beyond ND__ANGLE_MOST have lost more digits than a sum of three numbers gives back. They
// go to the math library, and the loop over a block that has some stays scalar: `small` is 0 there.
#define ND__ANGLES(T, dtype)                                                 \
    static inline bool nd__angles_are_small_##dtype(const T *x, int64_t n) { \
        int large = 0;                                                       \
        for (int64_t i = 0; i < n; i++)                                      \
            large |= nd__abs_##dtype(x[i]) > ND__ANGLE_MOST_##dtype;         \
        return !large;                                                       \
    }
ND__ANGLES(float, f32)
ND__ANGLES(double, f64)
#undef ND__ANGLES
#define ND__ANGLE_FUNCTION(name, T, dtype, library)                \
    ND__IN_LOOPS T nd__##name##_##dtype(T x, const int small) {    \
        if (!small && nd__abs_##dtype(x) > ND__ANGLE_MOST_##dtype) \
            return library(x);                                     \
        return nd__##name##_of_small_##dtype(x);                   \
    }
ND__ANGLE_FUNCTION(sin, float, f32, sinf)
ND__ANGLE_FUNCTION(cos, float, f32, cosf)
ND__ANGLE_FUNCTION(tan, float, f32, tanf)
ND__ANGLE_FUNCTION(sin, double, f64, sin)
ND__ANGLE_FUNCTION(cos, double, f64, cos)
ND__ANGLE_FUNCTION(tan, double, f64, tan)
#undef ND__ANGLE_FUNCTION
#endif
