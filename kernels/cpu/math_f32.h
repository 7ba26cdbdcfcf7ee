// Functions of f32 without branches or tables, so that loops over them vectorise on every instruction
// set.
//
// Polynomials are minimax fits (Remez) made for these files; the error named with each is the largest
// seen against correctly rounded values. NaN goes through every function; infinities and zeros give
// the limits. They must be compiled without -ffast-math: the additions of ND__ROUND_MAGIC mean
// something.
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

/// e^x: 1 ulp, 2 ulp where the result is subnormal.
static inline float nd__exp_f32(float x) {
    float limited = x > 89.0f ? 89.0f : x;
    limited = limited < -104.0f ? -104.0f : limited;
    float shifted = limited * 1.44269504f + ND__ROUND_MAGIC;
    float n = shifted - ND__ROUND_MAGIC;
    int32_t exponent = (int32_t)(nd__bits_f32(shifted) - nd__bits_f32(ND__ROUND_MAGIC));
    float r = limited - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 0x1.6a1a7p-10f;
    p = p * r + 0x1.123fc6p-7f;
    p = p * r + 0x1.555916p-5f;
    p = p * r + 0x1.55548ap-3f;
    p = p * r + 0x1.fffffcp-2f;
    p = r + r * r * p;
    p = 1.0f + p;
    // Two factors, because 2^128 and 2^-150 are no floats.
    int32_t half = exponent >> 1;
    float scale0 = nd__from_bits_f32((uint32_t)(half + 127) << 23);
    float scale1 = nd__from_bits_f32((uint32_t)(exponent - half + 127) << 23);
    return p * scale0 * scale1;
}

/// log(x): 1 ulp; -inf at 0, NaN below.
static inline float nd__log_f32(float x) {
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x;
    float exponent_offset = x < 1.17549435e-38f ? -23.0f : 0.0f;
    // Mantissa in [sqrt(1/2), sqrt(2)).
    uint32_t bits = nd__bits_f32(scaled) - 0x3f3504f3u;
    float exponent = (float)((int32_t)bits >> 23) + exponent_offset;
    float f = nd__from_bits_f32((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float p = -0x1.38b576p-4f;
    p = p * f + 0x1.055b68p-3f;
    p = p * f - 0x1.0d8542p-3f;
    p = p * f + 0x1.22da1ep-3f;
    p = p * f - 0x1.547244p-3f;
    p = p * f + 0x1.99a008p-3f;
    p = p * f - 0x1.000226p-2f;
    p = p * f + 0x1.555554p-2f;
    float square = f * f;
    float tail = square * f * p - exponent * 2.12194440e-4f;
    tail = tail - 0.5f * square;
    float result = (f + tail) + exponent * 0.693359375f;
    result = x > 3.40282347e+38f ? x : result;
    result = x == 0.0f ? -INFINITY : result;
    return x >= 0.0f ? result : NAN;
}

/// 1 / (1 + e^-x): 3 ulp. For negative x as e^x / (1 + e^x), so that nothing overflows.
static inline float nd__sigmoid_f32(float x) {
    float e = nd__exp_f32(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/// tanh(x): 2 ulp.
static inline float nd__tanh_f32(float x) {
    float magnitude = fabsf(x);
    float square = x * x;
    float p = -0x1.9b3046p-8f;
    p = p * square + 0x1.593d08p-6f;
    p = p * square - 0x1.b9287ap-5f;
    p = p * square + 0x1.110d26p-3f;
    p = p * square - 0x1.55554ap-2f;
    float small = x + x * square * p;
    float large = 1.0f - 2.0f / (nd__exp_f32(2.0f * magnitude) + 1.0f);
    return copysignf(magnitude > 0.55f ? large : small, x);
}

/// erf(x) - x for |x| <= 0.93.
static inline float nd__erf_small_f32(float x) {
    float square = x * x;
    float p = -0x1.3825c6p-11f;
    p = p * square + 0x1.46c234p-8f;
    p = p * square - 0x1.b676cap-6f;
    p = p * square + 0x1.ce1904p-4f;
    p = p * square - 0x1.8126dcp-2f;
    p = p * square + 0x1.06eba6p-3f;
    return x * p;
}

/// 1 - erf(x) for x >= 0.92; 0 above 4, where erf rounds to 1.
static inline float nd__erfc_large_f32(float x) {
    float p = 0x1.9ae8ecp-13f;
    p = p * x - 0x1.8ee162p-9f;
    p = p * x + 0x1.6c2a7p-6f;
    p = p * x - 0x1.a9b42cp-4f;
    p = p * x - 0x1.463cc0p-1f;
    p = p * x - 0x1.20af5ap+0f;
    p = p * x - 0x1.9a5d36p-13f;
    return x > 4.0f ? 0.0f : nd__exp_f32(p);
}

/// erf(x): 2 ulp.
static inline float nd__erf_f32(float x) {
    float magnitude = fabsf(x);
    float small = x + nd__erf_small_f32(x);
    float large = 1.0f - nd__erfc_large_f32(magnitude);
    return copysignf(magnitude > 0.93f ? large : small, x);
}

/// x/2 (1 + erf(x / sqrt 2)): 4 ulp of |x| on the negative side, 3 ulp of the result on the other.
static inline float nd__gelu_f32(float x) {
    // Beyond 88 the product with erfc is 0; for infinities it would be NaN.
    float limited = x < -88.0f ? -88.0f : x;
    limited = limited > 88.0f ? 88.0f : limited;
    float z = limited * 0.707106781f;
    float magnitude = fabsf(z);
    float half = 0.5f * limited;
    float tail = half * nd__erfc_large_f32(magnitude);
    float large = x > 0.0f ? x - tail : tail;
    float small = half + half * (z + nd__erf_small_f32(z));
    return magnitude > 0.93f ? large : small;
}
#endif
