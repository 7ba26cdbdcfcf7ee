// Functions of f32 without branches or tables, so that loops over them vectorise on every
// instruction set. Those that f64 has in the same form come out of math_of_type.inc.
//
// Polynomials are evaluated in pairs (Estrin's scheme), not term after term: what limits these
// loops is the length of the chain. They are minimax fits (Remez) made for these files; the error
// named with each is the largest seen against correctly rounded values. NaN goes through every
// function; infinities and zeros give the limits. They must be compiled without -ffast-math: the
// additions of ND__ROUND_MAGIC mean something.
#ifndef ND_KERNELS_CPU_MATH_F32_H
#define ND_KERNELS_CPU_MATH_F32_H
#include "kernels/cpu/math_f64.h"

ND__IN_LOOPS uint32_t nd__bits_f32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
ND__IN_LOOPS float nd__from_bits_f32(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/// a b + c, rounded once where the instruction set has that. Of two products in a sum the compiler
/// would choose one, not the same in every loop.
ND__IN_LOOPS float nd__fused_f32(float a, float b, float c) {
#if ND__HAS_FMA
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

/// Adding 1.5 * 2^23 leaves the nearest integer in the low bits of the sum.
#define ND__ROUND_MAGIC 12582912.0f

// Comparisons of floats with NaN in mind become masks, which cost more than the arithmetic. So
// limits are put on bits taken as integers, which order as the floats do; NaN, which that loses, is
// put back at the end.

/// |x| limited to `most`. NaN gives `most`.
ND__IN_LOOPS float nd__limited_magnitude_f32(float x, float most) {
    int32_t magnitude = (int32_t)(nd__bits_f32(x) & 0x7fffffffu),
            limit = (int32_t)nd__bits_f32(most);
    return nd__from_bits_f32((uint32_t)(magnitude < limit ? magnitude : limit));
}

/// The lesser of two that are not below 0.
ND__IN_LOOPS float nd__least_f32(float a, float b) {
    int32_t a_bits = (int32_t)nd__bits_f32(a), b_bits = (int32_t)nd__bits_f32(b);
    return nd__from_bits_f32((uint32_t)(a_bits < b_bits ? a_bits : b_bits));
}

/// A magnitude with x's sign.
ND__IN_LOOPS float nd__signed_f32(float magnitude, float x) {
    return nd__from_bits_f32(nd__bits_f32(magnitude) | (nd__bits_f32(x) & 0x80000000u));
}

/// Where e^x is set to be 0: both factors of the result are 0 there, so that nothing underflows. What
/// does, from -104 on, takes some processors a hundred times as long, and -infinity is common: it is
/// what a mask leaves.
#define ND__EXP_BOTTOM_f32 176.0f

/// e^x for -176 <= x <= 89.
ND__IN_LOOPS float nd__exp_in_range_f32(float x) {
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
    // Two factors, because 2^128 and 2^-150 are no floats. An exponent of -127 makes 0.
    int32_t half = exponent >> 1;
    float scale0 = nd__from_bits_f32((uint32_t)(half + 127) << 23);
    float scale1 = nd__from_bits_f32((uint32_t)(exponent - half + 127) << 23);
    return p * scale0 * scale1;
}

/// e^-|x|: 1 ulp, 2 ulp where the result is subnormal; 0 for NaN.
ND__IN_LOOPS float nd__exp_of_minus_f32(float x) {
    return nd__exp_in_range_f32(-nd__limited_magnitude_f32(x, ND__EXP_BOTTOM_f32));
}

/// e^x: 1 ulp, 2 ulp where the result is subnormal.
ND__IN_LOOPS float nd__exp_f32(float x) {
    // As signed integers, what is above 89 is larger; as unsigned ones, what is below -176 is.
    int32_t top = (int32_t)nd__bits_f32(89.0f), bits = (int32_t)nd__bits_f32(x);
    uint32_t bottom = nd__bits_f32(-ND__EXP_BOTTOM_f32),
             limited = (uint32_t)(bits < top ? bits : top);
    limited = limited < bottom ? limited : bottom;
    float result = nd__exp_in_range_f32(nd__from_bits_f32(limited));
    return x != x ? x : result;
}

/// log(x 2^more) of a normal number x above 0.
ND__IN_LOOPS float nd__log_of_scaled_f32(float x, int32_t more) {
    // Mantissa in [sqrt(1/2), sqrt(2)).
    uint32_t bits = nd__bits_f32(x) - 0x3f3504f3u;
    float exponent = (float)(((int32_t)bits >> 23) + more);
    float f = nd__from_bits_f32((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float square = f * f, fourth = square * square;
    float low =
        (0x1.555554p-2f - 0x1.000226p-2f * f) + (0x1.99a008p-3f - 0x1.547244p-3f * f) * square;
    float high =
        (0x1.22da1ep-3f - 0x1.0d8542p-3f * f) + (0x1.055b68p-3f - 0x1.38b576p-4f * f) * square;
    float p = low + high * fourth;
    float tail = nd__fused_f32(square * f, p, -exponent * 2.12194440e-4f);
    tail = tail - 0.5f * square;
    return (f + tail) + exponent * 0.693359375f;
}

/// log(x) of normal numbers above 0: the same bits as in the general way.
ND__IN_LOOPS float nd__log_of_normal_f32(float x) {
    return nd__log_of_scaled_f32(x, 0);
}

/// log(x): 1 ulp; -inf at 0, NaN below.
ND__IN_LOOPS float nd__log_f32(float x) {
    bool small = x < 1.17549435e-38f;
    float result = nd__log_of_scaled_f32(small ? x * 8388608.0f : x, small ? -23 : 0);
    result = x > 3.40282347e+38f ? x : result;
    result = x == 0.0f ? -INFINITY : result;
    return x >= 0.0f ? result : NAN;
}

/// 1 / (1 + e^-x): 3 ulp. For negative x as e^x / (1 + e^x), so that nothing overflows.
ND__IN_LOOPS float nd__sigmoid_f32(float x) {
    float e = nd__exp_of_minus_f32(x);
    float numerator = (int32_t)nd__bits_f32(x) < 0 ? e : 1.0f;
    float result = numerator / (1.0f + e);
    return x != x ? x : result;
}

// tanh and erf are odd: |x| P(x^2) / Q(x^2), limited to 1, with x's sign. One division costs less
// than an exponential. Where the functions round to 1 the quotients pass it, by more than their
// rounding.

/// tanh(x): 8 ulp, which next to 1 is 5e-7.
ND__IN_LOOPS float nd__tanh_f32(float x) {
    float t = nd__limited_magnitude_f32(x, 9.1f);
    float u = t * t, u2 = u * u, u4 = u2 * u2;
    float p = (1.0f + 0x1.19c5c8p-3f * u) + (0x1.04762cp-8f + 0x1.02db08p-15f * u) * u2 +
              0x1.9ec03cp-25f * u4;
    float q = (1.0f + 0x1.e2383ap-2f * u) + (0x1.c46b9ep-6f + 0x1.b2bd08p-12f * u) * u2 +
              (0x1.a334d6p-20f + 0x1.7aa078p-31f * u) * u4;
    float result = nd__signed_f32(nd__least_f32(t * p / q, 1.0f), x);
    return x != x ? x : result;
}

/// erf(x): 8 ulp, which next to 1 is 5e-7.
ND__IN_LOOPS float nd__erf_f32(float x) {
    float t = nd__limited_magnitude_f32(x, 4.5f);
    float u = t * t, u2 = u * u, u4 = u2 * u2;
    float p = (0x1.20dd76p+0f + 0x1.7c3ab6p-3f * u) + (0x1.bcc1f4p-5f + 0x1.f97f88p-9f * u) * u2 +
              ((0x1.8a7c5ap-12f + 0x1.33c150p-18f * u) - 0x1.b58220p-27f * u2) * u4;
    float q = (1.0f + 0x1.fdd170p-2f * u) + (0x1.d33bfep-4f + 0x1.fac1e8p-7f * u) * u2 +
              (0x1.55ed7cp-10f + 0x1.04bd12p-14f * u) * u4;
    float result = nd__signed_f32(nd__least_f32(t * p / q, 1.0f), x);
    return x != x ? x : result;
}

/// x (1/2 + erf(x / sqrt 2) / 2): 4 ulp of the result where x is positive, of x where it is negative,
/// because the sum cancels there. erf's polynomials, as ones of x and of half the function; its limit
/// times sqrt 2.
ND__IN_LOOPS float nd__gelu_f32(float x) {
    const float limit = 6.36396103f;
    float t = nd__limited_magnitude_f32(x, limit);
    float u = t * t, u2 = u * u, u4 = u2 * u2;
    float p = (0x1.988454p-2f + 0x1.0cdcdcp-5f * u) + (0x1.3a7dbcp-8f + 0x1.6570f2p-13f * u) * u2 +
              ((0x1.16f18cp-17f + 0x1.b33b42p-25f * u) - 0x1.355d76p-34f * u2) * u4;
    float q = (1.0f + 0x1.fdd17p-3f * u) + (0x1.d33bfep-6f + 0x1.fac1e8p-10f * u) * u2 +
              (0x1.55ed7cp-14f + 0x1.04bd12p-19f * u) * u4;
    float result = x * (0.5f + nd__signed_f32(nd__least_f32(t * p / q, 0.5f), x));
    // The sum is 0 here, but times -infinity that would be NaN.
    return x < -limit ? -0.0f : result;
}

// -------------------------------------------------------------------------------- as f64 has them

ND__IN_LOOPS float nd__abs_f32(float x) {
    return fabsf(x);
}
ND__IN_LOOPS float nd__sqrt_f32(float x) {
    return sqrtf(x);
}
ND__IN_LOOPS float nd__copysign_f32(float magnitude, float sign) {
    return copysignf(magnitude, sign);
}

/// The error of `product`, which is a b rounded.
ND__IN_LOOPS float nd__product_error_f32(float a, float b, float product) {
#if ND__HAS_FMA
    return __builtin_fmaf(a, b, -product);
#else
    return (float)((double)a * (double)b - (double)product);
#endif
}

static const float nd__most_f32 = 0x1.fffffep+127f;
static const float nd__log2_e_f32 = 0x1.715476p+0f;
static const float nd__ln2_high_f32 = 0x1.62e8p-1f; // times an exponent is exact
static const float nd__ln2_low_f32 = -0x1.e8082ep-16f;
static const float nd__inverse_ln2_high_f32 = 0x1.716p+0f; // times half a number is exact
static const float nd__inverse_ln2_low_f32 = -0x1.7135a8p-13f;
static const float nd__inverse_ln10_high_f32 = 0x1.bccp-2f;
static const float nd__inverse_ln10_low_f32 = -0x1.09d5b2p-15f;
static const float nd__log10_2_high_f32 = 0x1.344p-2f;
static const float nd__log10_2_low_f32 = 0x1.3509f8p-18f;
static const float nd__two_over_pi_f32 = 0x1.45f306p-1f;
static const float nd__pi_high_f32 = 0x1.921fb6p+1f;
static const float nd__pi_low_f32 = -0x1.777a5cp-24f;

/// What these are is said in math_f64.h.
ND__IN_LOOPS float nd__exp_tail_f32(float r) {
    float low = 0.5f + 0x1.55548ep-3f * r;
    float high = (0x1.55545ep-5f + 0x1.123b92p-7f * r) + 0x1.6db474p-10f * (r * r);
    return low + high * (r * r);
}
ND__IN_LOOPS float nd__atanh_tail_f32(float z) {
    return 0x1.55557ap-1f + z * (0x1.995ed6p-2f + z * 0x1.31e08p-2f);
}
ND__IN_LOOPS float nd__sin_tail_f32(float z) {
    return -0x1.555546p-3f + z * (0x1.11077ap-7f - z * 0x1.995492p-13f);
}
ND__IN_LOOPS float nd__cos_tail_f32(float z) {
    return 0x1.55554ap-5f + z * (-0x1.6c0c1ap-10f + z * 0x1.99e0e4p-16f);
}
ND__IN_LOOPS float nd__atan_tail_f32(float z) {
    float z2 = z * z, low = -0x1.555552p-2f + 0x1.999746p-3f * z;
    float high = -0x1.24506ap-3f + 0x1.c076dep-4f * z;
    return low + z2 * (high + z2 * (-0x1.481f7p-4f + 0x1.400a0ep-5f * z));
}
ND__IN_LOOPS float nd__asin_tail_f32(float z) {
    float low = 0x1.5555cap-3f + 0x1.330162p-4f * z;
    float high = 0x1.748b78p-5f + z * (0x1.8ba49p-6f + 0x1.59dd66p-5f * z);
    return low + high * (z * z);
}

ND__IN_LOOPS float nd__angle_rest_f32(float x, float n, float *ret_low) {
#if ND__HAS_FMA
    float first = __builtin_fmaf(-n, 0x1.921fb6p+1f, x); // exact
    float product = n * 0x1.777a5cp-24f, rest = first + product, added = rest - first;
    float low = (first - (rest - added)) + (product - added);
    low = low + __builtin_fmaf(n, 0x1.777a5cp-24f, -product);
    *ret_low = __builtin_fmaf(n, 0x1.ee59dap-49f, low);
    return rest;
#else
    double exact = ((double)x - (double)n * 0x1.921fb544p+1) - (double)n * 0x1.0b4611a626331p-33;
    float rest = (float)exact;
    *ret_low = (float)(exact - (double)rest);
    return rest;
#endif
}
#define ND__ANGLE_MOST_f32 131072.0f

#include "kernels/cpu/type_f32.inc"
#define ND__BITS_OF uint32_t
#define ND__DIGITS 23
#define ND__BIAS 127
#define ND__MAGIC 12582912.0f
#define ND__ROOT_HALF 0x3f3504f3u
#define ND__HIGH_HALF 0xfffff000u
#define ND__EXP_BELOW -105.0f
#define ND__EXP_ABOVE 91.0f
#define ND__EXPM1_BELOW -18.0f
#define ND__LARGE 0x1p60f
#define ND__SMALL 0x1p-12f
#include "kernels/cpu/math_of_type.inc"
#include "kernels/cpu/type_end.inc"

/// The squares of floats are exact in f64, and in range.
ND__IN_LOOPS float nd__hypot_f32(float a, float b) {
    double x = (double)a, y = (double)b;
    float result = (float)sqrt(x * x + y * y);
    result = fabsf(a) > nd__most_f32 || fabsf(b) > nd__most_f32 ? INFINITY : result;
    return result;
}

/// 2^(exponent log2(base)) in f64, for a base above 0 and finite.
ND__IN_LOOPS float nd__pow_of_positive_f32(float base, float exponent) {
    double e, f = nd__log_split_f64((double)base, &e);
    double s = f / (2.0 + f), z = s * s, z2 = z * z;
    double p = (0x1.71547652b8245p+1 + 0x1.ec709dc54539cp-1 * z) +
               (0x1.2776c28c3f587p-1 + 0x1.a61a333b7876ep-2 * z) * z2 +
               (0x1.4794b9f8ce37bp-2 + 0x1.21b8a8700c60dp-2 * z) * (z2 * z2);
    double power = (double)exponent * (e + s * p);
    power = power < -160.0 ? -160.0 : power > 140.0 ? 140.0 : power;
    double n = nd__nearest_f64(power), r = power - n, r2 = r * r;
    double low = (0x1.ffffffffa78a6p-1 + 0x1.62e42fef6cbd9p-1 * r) +
                 (0x1.ebfbe0a9f65aep-3 + 0x1.c6b08e0722846p-5 * r) * r2;
    double high = (0x1.3b29d8acb4b59p-7 + 0x1.5d87157fa997dp-10 * r) +
                  (0x1.446c8da38d0d7p-13 + 0x1.00f7cfadda2e5p-16 * r) * r2;
    return (float)((low + high * (r2 * r2)) * nd__power_of_two_f64(n));
}

/// In fewer steps where nd__powers_are_small_f32 (functions.h) says so.
ND__IN_LOOPS float nd__pow_f32(float base, float exponent, const int small) {
    if (small)
        return nd__pow_of_positive_f32(base, exponent);
    float magnitude = fabsf(base), size = fabsf(exponent);
    float result = nd__pow_of_positive_f32(magnitude, exponent);
    return nd__pow_limits_f32(base, exponent, magnitude, size, result);
}
#endif
