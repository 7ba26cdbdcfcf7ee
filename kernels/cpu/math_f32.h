// Functions of f32 without branches or tables, so that loops over them vectorise on every
// instruction set.
//
// Polynomials are evaluated in pairs (Estrin's scheme), not term after term: what limits these
// loops is the length of the chain. They are minimax fits (Remez) made for these files; the error
// named with each is the largest seen against correctly rounded values. NaN goes through every
// function; infinities and zeros give the limits. They must be compiled without -ffast-math: the
// additions of ND__ROUND_MAGIC mean something.
#ifndef ND_KERNELS_CPU_MATH_F32_H
#define ND_KERNELS_CPU_MATH_F32_H
#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t nd__bits_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float nd__from_bits_f32(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/// Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum.
#define ND__ROUND_MAGIC 12582912.0f

// Comparisons of floats with NaN in mind become masks, which cost more than the arithmetic. So
// limits are put on bits taken as integers, which order as the floats do; NaN, which that loses, is
// put back at the end.

/// |x| limited to `most`. NaN gives `most`.
static inline float nd__limited_magnitude_f32(float x, float most) {
    int32_t magnitude = (int32_t)(nd__bits_f32(x) & 0x7fffffffu),
            limit = (int32_t)nd__bits_f32(most);
    return nd__from_bits_f32((uint32_t)(magnitude < limit ? magnitude : limit));
}

/// e^x for -104 <= x <= 89.
static inline float nd__exp_in_range_f32(float x) {
    float shifted = x * 1.44269504f + ND__ROUND_MAGIC;
    float n = shifted - ND__ROUND_MAGIC;
    int32_t exponent = (int32_t)(nd__bits_f32(shifted) - nd__bits_f32(ND__ROUND_MAGIC));
    float r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float r2 = r * r;
    float low = 0x1.fffffcp-2f + 0x1.55548ap-3f * r;
    float high = (0x1.555916p-5f + 0x1.123fc6p-7f * r) + 0x1.6a1a7p-10f * r2;
    float p = r + r2 * (low + high * r2);
    p = 1.0f + p;
    // Two factors, because 2^128 and 2^-150 are no floats.
    int32_t half = exponent >> 1;
    float scale0 = nd__from_bits_f32((uint32_t)(half + 127) << 23);
    float scale1 = nd__from_bits_f32((uint32_t)(exponent - half + 127) << 23);
    return p * scale0 * scale1;
}

/// e^-|x|: 1 ulp, 2 ulp where the result is subnormal; 0 for NaN.
static inline float nd__exp_of_minus_f32(float x) {
    return nd__exp_in_range_f32(-nd__limited_magnitude_f32(x, 104.0f));
}

/// e^x: 1 ulp, 2 ulp where the result is subnormal.
static inline float nd__exp_f32(float x) {
    // As signed integers, what is above 89 is larger; as unsigned ones, what is below -104 is.
    int32_t top = (int32_t)nd__bits_f32(89.0f), bits = (int32_t)nd__bits_f32(x);
    uint32_t bottom = nd__bits_f32(-104.0f), limited = (uint32_t)(bits < top ? bits : top);
    limited = limited < bottom ? limited : bottom;
    float result = nd__exp_in_range_f32(nd__from_bits_f32(limited));
    return x != x ? x : result;
}

/// log(x): 1 ulp; -inf at 0, NaN below.
static inline float nd__log_f32(float x) {
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    float exponent_offset = x < 1.17549435e-38f ? -23.0f : 0.0f;
    // Mantissa in [sqrt(1/2), sqrt(2)).
    uint32_t bits = nd__bits_f32(scaled) - 0x3f3504f3u;
    float exponent = (float)((int32_t)bits >> 23) + exponent_offset;
    float f = nd__from_bits_f32((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float square = f * f, fourth = square * square;
    float low =
        (0x1.555554p-2f - 0x1.000226p-2f * f) + (0x1.99a008p-3f - 0x1.547244p-3f * f) * square;
    float high =
        (0x1.22da1ep-3f - 0x1.0d8542p-3f * f) + (0x1.055b68p-3f - 0x1.38b576p-4f * f) * square;
    float p = low + high * fourth;
    float tail = square * f * p - exponent * 2.12194440e-4f;
    tail = tail - 0.5f * square;
    float result = (f + tail) + exponent * 0.693359375f;
    result = x > 3.40282347e+38f ? x : result;
    result = x == 0.0f ? -INFINITY : result;
    return x >= 0.0f ? result : NAN;
}

/// 1 / (1 + e^-x): 3 ulp. For negative x as e^x / (1 + e^x), so that nothing overflows.
static inline float nd__sigmoid_f32(float x) {
    float e = nd__exp_of_minus_f32(x);
    float numerator = (int32_t)nd__bits_f32(x) < 0 ? e : 1.0f;
    float result = numerator / (1.0f + e);
    return x != x ? x : result;
}

// tanh and erf are odd: |x| P(x^2) / Q(x^2), limited to 1, with x's sign. One division costs less
// than an exponential. Where the functions round to 1 the quotients pass it, by more than their
// rounding.

/// `ratio`, at most 1, with x's sign.
static inline float nd__signed_ratio_f32(float ratio, float x) {
    float limited = nd__limited_magnitude_f32(ratio, 1.0f);
    return nd__from_bits_f32(nd__bits_f32(limited) | (nd__bits_f32(x) & 0x80000000u));
}

/// tanh(x): 8 ulp, which next to 1 is 5e-7.
static inline float nd__tanh_f32(float x) {
    float t = nd__limited_magnitude_f32(x, 9.1f);
    float u = t * t, u2 = u * u, u4 = u2 * u2;
    float p = (1.0f + 0x1.19c5c8p-3f * u) + (0x1.04762cp-8f + 0x1.02db08p-15f * u) * u2 +
              0x1.9ec03cp-25f * u4;
    float q = (1.0f + 0x1.e2383ap-2f * u) + (0x1.c46b9ep-6f + 0x1.b2bd08p-12f * u) * u2 +
              (0x1.a334d6p-20f + 0x1.7aa078p-31f * u) * u4;
    float result = nd__signed_ratio_f32(t * p / q, x);
    return x != x ? x : result;
}

/// erf(x) for x that is not NaN.
static inline float nd__erf_of_number_f32(float x) {
    float t = nd__limited_magnitude_f32(x, 4.5f);
    float u = t * t, u2 = u * u, u4 = u2 * u2;
    float p = (0x1.20dd76p+0f + 0x1.7c3ab6p-3f * u) + (0x1.bcc1f4p-5f + 0x1.f97f88p-9f * u) * u2 +
              ((0x1.8a7c5ap-12f + 0x1.33c150p-18f * u) - 0x1.b58220p-27f * u2) * u4;
    float q = (1.0f + 0x1.fdd170p-2f * u) + (0x1.d33bfep-4f + 0x1.fac1e8p-7f * u) * u2 +
              (0x1.55ed7cp-10f + 0x1.04bd12p-14f * u) * u4;
    return nd__signed_ratio_f32(t * p / q, x);
}

/// erf(x): 8 ulp, which next to 1 is 5e-7.
static inline float nd__erf_f32(float x) {
    float result = nd__erf_of_number_f32(x);
    return x != x ? x : result;
}

/// x/2 (1 + erf(x / sqrt 2)): 4 ulp of the result where x is positive, of x where it is negative,
/// because the sum cancels there.
static inline float nd__gelu_f32(float x) {
    float half = 0.5f * x;
    float result = half + half * nd__erf_of_number_f32(x * 0.707106781f);
    // erf is -1 here, but for -infinity the sum would be NaN.
    return x < -6.0f ? -0.0f : result;
}
#endif
