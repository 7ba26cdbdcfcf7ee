// Functions of f64 without branches or tables, so that loops over them vectorise on every
// instruction set. What they have in common with f32 is in math_of_type.inc, and so is how they are
// made; here are its numbers for f64, and the functions that only f64 has in this form.
//
// Polynomials are minimax fits (Remez) made for these files. Errors are stated in
// docs/performance.md and held by tests/unit/kernels/ulps_test.c.
#ifndef ND_KERNELS_CPU_MATH_F64_H
#define ND_KERNELS_CPU_MATH_F64_H
#include "kernels/cpu/names.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

ND__IN_LOOPS uint64_t nd__bits_f64(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
ND__IN_LOOPS double nd__from_bits_f64(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

ND__IN_LOOPS double nd__abs_f64(double x) {
    return fabs(x);
}
ND__IN_LOOPS double nd__sqrt_f64(double x) {
    return sqrt(x);
}
ND__IN_LOOPS double nd__copysign_f64(double magnitude, double sign) {
    return copysign(magnitude, sign);
}

/// The error of `product`, which is a b rounded.
ND__IN_LOOPS double nd__product_error_f64(double a, double b, double product) {
#if ND__HAS_FMA
    return __builtin_fma(a, b, -product);
#else
    double a_split = 134217729.0 * a, b_split = 134217729.0 * b;
    double a_high = a_split - (a_split - a), b_high = b_split - (b_split - b);
    double a_low = a - a_high, b_low = b - b_high;
    return ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low;
#endif
}

static const double nd__most_f64 = 0x1.fffffffffffffp+1023;
static const double nd__log2_e_f64 = 0x1.71547652b82fep+0;
static const double nd__ln2_high_f64 = 0x1.62e42fefa38p-1; // times an exponent is exact
static const double nd__ln2_low_f64 = 0x1.ef35793c7673p-45;
static const double nd__inverse_ln2_high_f64 = 0x1.7154764p+0; // times half a number is exact
static const double nd__inverse_ln2_low_f64 = 0x1.2b82fe1777d1p-28;
static const double nd__inverse_ln10_high_f64 = 0x1.bcb7b14p-2;
static const double nd__inverse_ln10_low_f64 = 0x1.26e50e32a6ab7p-30;
static const double nd__log10_2_high_f64 = 0x1.34413509f78p-2;
static const double nd__log10_2_low_f64 = 0x1.fef311f12b358p-46;
static const double nd__two_over_pi_f64 = 0x1.45f306dc9c883p-1;
static const double nd__pi_high_f64 = 0x1.921fb54442d18p+1;
static const double nd__pi_low_f64 = 0x1.1a62633145c07p-53;

/// (e^r - 1 - r) / r^2 for |r| <= ln(2) / 2.
ND__IN_LOOPS double nd__exp_tail_f64(double r) {
    double r2 = r * r, r4 = r2 * r2;
    double a = 0.5 + 0x1.555555555555cp-3 * r;
    double b = 0x1.555555555555ep-5 + 0x1.111111110eb95p-7 * r;
    double c = 0x1.6c16c16c135cdp-10 + 0x1.a01a01b3c6dep-13 * r;
    double d = 0x1.a01a01b441164p-16 + 0x1.71ddef75dbf4bp-19 * r;
    double e = 0x1.27e4bf5b59212p-22 + 0x1.af6d020cb33c1p-26 * r;
    double low = a + b * r2, high = (c + d * r2) + (e + 0x1.1f9daf266eb8dp-29 * r2) * r4;
    return low + high * r4;
}

/// (2 atanh(s) - 2 s) / s^3 as a function of z = s^2, for numbers 1 + s / 1 - s of half an octave
/// around 1.
ND__IN_LOOPS double nd__atanh_tail_f64(double z) {
    double z2 = z * z;
    double a = 0x1.5555555555592p-1 + 0x1.999999997ff04p-2 * z;
    double b = 0x1.24924941e3634p-2 + 0x1.c71c52120e77fp-3 * z;
    double c = 0x1.74663d7f0f18ap-3 + 0x1.39a1d7ac9083cp-3 * z;
    return a + z2 * (b + z2 * (c + z2 * 0x1.2f047cf1f2271p-3));
}

/// (sin r - r) / r^3 as a function of z = r^2, for |r| <= pi / 4.
ND__IN_LOOPS double nd__sin_tail_f64(double z) {
    double z2 = z * z;
    double a = -0x1.5555555555549p-3 + 0x1.111111110f88cp-7 * z;
    double b = -0x1.a01a019c10ebcp-13 + 0x1.71de357573c0dp-19 * z;
    double c = -0x1.ae5e637eb6b2ep-26 + 0x1.5d91fe0aeaddfp-33 * z;
    return a + z2 * (b + z2 * c);
}

/// (cos r - 1 + z / 2) / z^2 for |r| <= pi / 4.
ND__IN_LOOPS double nd__cos_tail_f64(double z) {
    double z2 = z * z;
    double a = 0x1.555555555554cp-5 - 0x1.6c16c16c1520bp-10 * z;
    double b = 0x1.a01a019cbc038p-16 - 0x1.27e4f80f795d6p-22 * z;
    double c = 0x1.1ee9eeabf91c5p-29 - 0x1.8faf9edc61bfap-37 * z;
    return a + z2 * (b + z2 * c);
}

/// (atan t - t) / t^3 as a function of z = t^2, for |t| <= 1 / 2.
ND__IN_LOOPS double nd__atan_tail_f64(double z) {
    double z2 = z * z, z4 = z2 * z2;
    double a = -0x1.5555555555552p-2 + 0x1.99999999990e5p-3 * z;
    double b = -0x1.2492492453eb7p-3 + 0x1.c71c71ab2b918p-4 * z;
    double c = -0x1.745d13967e3ebp-4 + 0x1.3b136137d0b06p-4 * z;
    double d = -0x1.110c77a1bd30ep-4 + 0x1.e1834325913bcp-5 * z;
    double e = -0x1.ac750de15d4c6p-5 + 0x1.78051249ad6afp-5 * z;
    double f = -0x1.3032c341453f2p-5 + 0x1.83e5441afa237p-6 * z;
    return (a + b * z2) + z4 * ((c + d * z2) + z4 * ((e + f * z2) - z4 * 0x1.1287641b3e483p-7));
}

/// (asin s - s) / s^3 as a function of z = s^2, for |s| <= 1 / 2.
ND__IN_LOOPS double nd__asin_tail_f64(double z) {
    double z2 = z * z, z4 = z2 * z2;
    double a = 0x1.5555555555578p-3 + 0x1.333333332df15p-4 * z;
    double b = 0x1.6db6db722b7p-5 + 0x1.f1c71a8b990d9p-6 * z;
    double c = 0x1.6e8bdfe6ebf09p-6 + 0x1.1c49ddfc97767p-6 * z;
    double d = 0x1.ca2144b2ed6d7p-7 + 0x1.75778a1fc0e36p-7 * z;
    double e = 0x1.618aca8592121p-7 + 0x1.e15a572366ee6p-9 * z;
    double f = 0x1.6502492e3f4a5p-6 - 0x1.59f6ebfe8fcfep-6 * z;
    return (a + b * z2) + z4 * ((c + d * z2) + z4 * ((e + f * z2) + z4 * 0x1.0be4889353935p-5));
}

/// x - n pi for |x| <= ND__ANGLE_MOST_f64, and what its rounding took. n is a multiple of 1/2.
ND__IN_LOOPS double nd__angle_rest_f64(double x, double n, double *ret_low) {
#if ND__HAS_FMA
    double first = __builtin_fma(-n, 0x1.921fb54442d18p+1, x); // exact
    double product = n * -0x1.1a62633145c07p-53, rest = first + product, added = rest - first;
    double low = (first - (rest - added)) + (product - added);
    low = low + __builtin_fma(n, -0x1.1a62633145c07p-53, -product);
    *ret_low = __builtin_fma(n, 0x1.f1976b7ed8fbcp-109, low);
    return rest;
#else
    double first = x - n * 0x1.921fb544p+1; // both products are exact
    double product = n * 0x1.0b4611a6p-33;
    double second = first - product;
    double low = (first - second) - product;
    low = low - n * 0x1.3198a2e037073p-68;
    double rest = second + low;
    *ret_low = (second - rest) + low;
    return rest;
#endif
}
#define ND__ANGLE_MOST_f64 524288.0

#include "kernels/cpu/type_f64.inc"
#define ND__BITS_OF uint64_t
#define ND__DIGITS 52
#define ND__BIAS 1023
#define ND__MAGIC 6755399441055744.0
#define ND__ROOT_HALF UINT64_C(0x3fe6a09e667f3bcd)
#define ND__HIGH_HALF UINT64_C(0xfffffffff8000000)
#define ND__EXP_BELOW -746.0
#define ND__EXP_ABOVE 712.0
#define ND__EXPM1_BELOW -40.0
#define ND__LARGE 0x1p500
#define ND__SMALL 0x1p-28
#include "kernels/cpu/math_of_type.inc"
#include "kernels/cpu/type_end.inc"

ND__IN_LOOPS double nd__exp_f64(double x) {
    return nd__exp_halved_f64(x, 0.0);
}
ND__IN_LOOPS double nd__exp_of_minus_f64(double x) {
    return nd__exp_f64(-fabs(x));
}

/// log(x) of normal numbers above 0: the same bits as in the general way.
ND__IN_LOOPS double nd__log_of_normal_f64(double x) {
    double e, f = nd__log_split_f64(x, &e);
    return nd__log_of_parts_f64(f, 0.0, e);
}

ND__IN_LOOPS double nd__log_f64(double x) {
    return nd__log_of_f64(x);
}

/// For negative x as e^x / (1 + e^x), so that nothing overflows; 2^60 times as much, so that no
/// power of two in between is out of range.
ND__IN_LOOPS double nd__sigmoid_f64(double x) {
    double minus = -fabs(x), limited = minus < -746.0 ? -746.0 : minus;
    double n, low, r = nd__exp_rest_f64(limited, &n, &low);
    double p = 1.0 + (r + r * r * nd__exp_tail_f64(r));
    double scaled = p * nd__power_of_two_f64(n + 60.0);
    double numerator = x < 0.0 ? scaled : 0x1p60;
    return numerator / (1.0 + scaled * 0x1p-60) * 0x1p-60;
}

/// t / (t + 2) with t = e^2|x| - 1.
ND__IN_LOOPS double nd__tanh_f64(double x) {
    double magnitude = fabs(x);
    double limited = magnitude > 20.0 ? 20.0 : magnitude;
    double t = nd__expm1_of_small_f64(2.0 * limited);
    return copysign(t / (t + 2.0), x);
}

/// e^(t^2) (1 - erf t) for t >= 0, of which a polynomial in (t - 4) / (t + 4) makes 1 + 2 t times
/// as much. What is beyond 28 is not asked for.
ND__IN_LOOPS double nd__erfc_scaled_f64(double t) {
    double q = (t - 4.0) / (t + 4.0), q2 = q * q, q4 = q2 * q2, q8 = q4 * q4;
    double a = (0x1.3ba5916e9fd7fp+0 - 0x1.1df1ad154a28fp-3 * q) +
               (0x1.f7f5df66fd6ccp-7 + 0x1.16ecefcfa54a5p-4 * q) * q2;
    double b = (-0x1.9ddb23c3e8955p-4 + 0x1.7fee004e0fdf5p-4 * q) +
               (-0x1.0fb06dfe5535ep-4 + 0x1.3079edf6d4cf5p-5 * q) * q2;
    double c = (-0x1.096238829b1fap-6 + 0x1.49c6726f03877p-8 * q) +
               (-0x1.8d4a9c4ddfcfep-11 - 0x1.a1df161603e28p-13 * q) * q2;
    double d = (0x1.3be06c0b1ea45p-13 - 0x1.995ace6f2aebap-16 * q) +
               (-0x1.788dd15fa292p-17 + 0x1.7f346f05057ecp-18 * q) * q2;
    double e = (0x1.3bda91d0b48d4p-22 - 0x1.bb6ff8a7e62fp-21 * q) +
               (0x1.3e47be24fa4b3p-24 + 0x1.d9e05c6a26f8fp-24 * q) * q2;
    double f = (-0x1.2c208e868868p-26 - 0x1.e376240f1b1bbp-27 * q) +
               (0x1.cd0c7b8feb345p-30 + 0x1.49579559e0539p-30 * q) * q2;
    double p = (a + b * q4) + q8 * ((c + d * q4) + q8 * (e + f * q4));
    return p / (1.0 + 2.0 * t);
}

/// (erf(x) - x) / x as a function of z = x^2, at most 1.
ND__IN_LOOPS double nd__erf_tail_f64(double z) {
    double z2 = z * z, z4 = z2 * z2;
    double a = 0x1.06eba8214db68p-3 - 0x1.812746b0379a6p-2 * z;
    double b = 0x1.ce2f21a03ff71p-4 - 0x1.b82ce311c549ap-6 * z;
    double c = 0x1.565bccf26713fp-8 - 0x1.c02daf3bd9b13p-11 * z;
    double d = 0x1.f9a2a2a7ad463p-14 - 0x1.f4c8de04ea08cp-17 * z;
    double e = 0x1.b971b8173f5b3p-20 - 0x1.5bb1159cab31p-23 * z;
    double f = 0x1.d4ca158cfb761p-27 - 0x1.a4cb9ab2715f2p-31 * z;
    return (a + b * z2) + z4 * ((c + d * z2) + z4 * (e + f * z2));
}

ND__IN_LOOPS double nd__erf_f64(double x) {
    double magnitude = fabs(x), t = magnitude > 6.0 ? 6.0 : magnitude;
    double below = t + t * nd__erf_tail_f64(t * t);
    double above = 1.0 - nd__exp_f64(-t * t) * nd__erfc_scaled_f64(t);
    return copysign(t < 1.0 ? below : above, x);
}

/// x/2 (1 + erf(x / sqrt 2)), of negative x as x/2 e^(-x^2 / 2) times the scaled complement; the
/// exponent's rounding is put back, since nothing else would be left of the digits.
ND__IN_LOOPS double nd__gelu_f64(double x) {
    double magnitude = fabs(x), t = magnitude > 40.0 ? 40.0 : magnitude;
    double square = t * t, error = nd__product_error_f64(t, t, square);
    double e = nd__exp_f64(-0.5 * square);
    e = e - 0.5 * e * error;
    double scaled = t * 0.707106781186547524401, half = 0.5 * x;
    double complement = e * nd__erfc_scaled_f64(scaled);
    double erf = scaled + scaled * nd__erf_tail_f64(scaled * scaled);
    erf = scaled < 1.0 ? erf : 1.0 - complement;
    double below = half * complement, above = half + half * erf;
    double result = x < 0.0 ? below : above;
    // The complement is 0 here, and infinity times that would be NaN.
    result = x > 40.0 ? x : result;
    return x < -40.0 ? -0.0 : result;
}

/// Of operands divided by the power of two next to the larger, so that no square is out of range;
/// what the roundings of the squares and of the root took is put back.
ND__IN_LOOPS double nd__hypot_f64(double a, double b) {
    double x = fabs(a), y = fabs(b);
    double large = x > y ? x : y, small = x > y ? y : x;
    double within = large > 0x1p1000 ? 0x1p1000 : large < 0x1p-1000 ? 0x1p-1000 : large;
    uint64_t exponent = nd__bits_f64(within) & UINT64_C(0x7ff0000000000000);
    double unit = nd__from_bits_f64(exponent);
    double scale = nd__from_bits_f64(UINT64_C(0x7fe0000000000000) - exponent);
    large = large * scale;
    small = small * scale;
    double first = large * large, second = small * small, sum = first + second;
    double low = nd__product_error_f64(large, large, first) +
                 nd__product_error_f64(small, small, second) + ((first - sum) + second);
    double root = sqrt(sum), square = root * root;
    double left = (sum - square) - nd__product_error_f64(root, root, square) + low;
    double result = root + (root > 0.0 ? 0.5 * left / root : 0.0);
    result = result * unit;
    result = a != a || b != b ? a + b : result;
    return x > nd__most_f64 || y > nd__most_f64 ? (double)INFINITY : result;
}

// -------------------------------------------------------------------------------------------- pow

/// base^exponent for a base above 0 that is not subnormal, as e^(exponent log(base)): the logarithm
/// is kept as a sum of two, because the exponential multiplies its error by as much as 709.
ND__IN_LOOPS double nd__pow_of_positive_f64(double base, double offset, double exponent) {
    double e, f = nd__log_split_f64(base, &e);
    e = e + offset;
    // s = f / (2 + f)
    double below = 2.0 + f, below_low = f - (below - 2.0), inverse = 1.0 / below;
    double s = f * inverse, product = s * below;
    double left = ((f - product) - nd__product_error_f64(s, below, product)) - s * below_low;
    double s_low = left * inverse;
    // z = s^2
    double z = s * s, z_low = nd__product_error_f64(s, s, z) + 2.0 * s * s_low;
    double z2 = z * z;
    double p = (0x1.9999999999996p-2 + 0x1.2492492492f51p-2 * z) +
               (0x1.c71c71c5968bap-3 + 0x1.745d18295a91p-3 * z) * z2;
    double q = (0x1.3b1364c7acfe8p-3 + 0x1.11206f7dcd98fp-3 * z) +
               (0x1.de3d6187ec921p-4 + 0x1.eac64ca01d18bp-4 * z) * z2;
    double tail = z * (p + q * (z2 * z2));
    // log of the mantissa: 2 s + s z (2/3 + tail)
    double c = 0x1.5555555555555p-1 + tail;
    double c_low = ((0x1.5555555555555p-1 - c) + tail) + 0x1.5555555555555p-55;
    double cubic = z * c;
    double cubic_low = nd__product_error_f64(z, c, cubic) + (z * c_low + z_low * c);
    double rest = s * cubic;
    double rest_low = nd__product_error_f64(s, cubic, rest) + (s * cubic_low + s_low * cubic);
    double mantissa = 2.0 * s + rest;
    double mantissa_low = ((2.0 * s - mantissa) + rest) + (2.0 * s_low + rest_low);
    // and of the power of two
    double exact = e * nd__ln2_high_f64, log = exact + mantissa;
    double log_low = ((exact - log) + mantissa) + (mantissa_low + e * nd__ln2_low_f64);
    double log_high = log + log_low;
    log_low = (log - log_high) + log_low;

    double power = exponent * log_high;
    double limited = power < -746.0 ? -746.0 : power > 712.0 ? 712.0 : power;
    double power_low = nd__product_error_f64(exponent, log_high, power) + exponent * log_low;
    power_low = limited == power ? power_low : 0.0;
    return nd__exp_of_sum_f64(limited, power_low);
}

/// The same in fewer steps where base and exponent are as nd__powers_are_small_f64 (functions.h)
/// says: there are no limits then, and 1 comes out as it is.
ND__IN_LOOPS double nd__pow_f64(double base, double exponent, const int small) {
    if (small)
        return nd__pow_of_positive_f64(base, 0.0, exponent);
    double magnitude = fabs(base), size = fabs(exponent);
    bool subnormal = magnitude < 0x1p-1022;
    double scaled = subnormal ? magnitude * 0x1p54 : magnitude;
    double offset = subnormal ? -54.0 : 0.0;
    double result = nd__pow_of_positive_f64(scaled, offset, exponent);
    return nd__pow_limits_f64(base, exponent, magnitude, size, result);
}
#endif
