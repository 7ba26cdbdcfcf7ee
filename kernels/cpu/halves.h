// 16-bit floats as f32 and back, ND__HALVES at a time: few enough to stay in registers between the
// two, where a loop does something cheap with them.
//
// Compilers make no vectors of the instructions that convert one f16, and long ones of the rounding
// to bf16.
#ifndef ND_KERNELS_CPU_HALVES_H
#define ND_KERNELS_CPU_HALVES_H
#include "kernels/cpu/names.h"
#include "kernels/half.h"

#define ND__HALVES 32

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__)
#define ND__HALVES_AT_ONCE 16
ND__IN_LOOPS void nd__f16_read_some(const uint16_t *in, float *out) {
    __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)in);
    _mm512_storeu_ps(out, _mm512_cvtph_ps(halves));
}
ND__IN_LOOPS void nd__f16_write_some(const float *in, uint16_t *out) {
    __m256i halves = _mm512_cvtps_ph(_mm512_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256((__m256i *)(void *)out, halves);
}
/// What is added to an f32 before its upper half is that of the nearest bf16.
ND__IN_LOOPS __m512i nd__bf16_rounding(__m512i bits) {
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF));
}
/// As nd__f32_to_bf16, in the upper halves.
ND__IN_LOOPS __m512i nd__bf16_rounded(const float *in) {
    __m512 x = _mm512_loadu_ps(in);
    __m512i bits = _mm512_castps_si512(x);
    __m512i sum = _mm512_add_epi32(bits, nd__bf16_rounding(bits));
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
}
ND__IN_LOOPS void nd__bf16_write_some(const float *in, uint16_t *out) {
    __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(nd__bf16_rounded(in), 16));
    _mm256_storeu_si256((__m256i *)(void *)out, halves);
}
/// The upper halves of the elements of a, then those of b.
ND__IN_LOOPS __m512i nd__upper_halves(__m512i a, __m512i b) {
    const __m512i upper =
        _mm512_set_epi16(63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27,
                         25, 23, 21, 19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(a, upper, b);
}
ND__IN_LOOPS __m512i nd__lower_halves(__m512i a, __m512i b) {
    const __m512i lower =
        _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26,
                         24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_epi16(a, lower, b);
}
#define ND__BF16_WRITTEN 32
/// An upper half grows by 1 where the lower one is above the middle, or in it and the upper one odd,
/// whose last digit therefore goes to the lower one.
ND__IN_LOOPS void nd__bf16_write_many(const float *in, uint16_t *out) {
    enum { OR_OF_AND = 0xF8 };
    __m512 a = _mm512_loadu_ps(in), b = _mm512_loadu_ps(in + 16);
    __m512i a_bits = _mm512_castps_si512(a), b_bits = _mm512_castps_si512(b);
    __m512i upper = nd__upper_halves(a_bits, b_bits), lower = nd__lower_halves(a_bits, b_bits);
    lower = _mm512_ternarylogic_epi32(lower, upper, _mm512_set1_epi16(1), OR_OF_AND);
    __mmask32 up = _mm512_cmpgt_epu16_mask(lower, _mm512_set1_epi16(INT16_MIN));
    __m512i rounded = _mm512_mask_sub_epi16(upper, up, upper, _mm512_set1_epi16(-1));
    if (__builtin_expect(_mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q), 0)) {
        __mmask32 nan = _mm512_kunpackw(_mm512_cmp_ps_mask(b, b, _CMP_UNORD_Q),
                                        _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q));
        rounded =
            _mm512_mask_mov_epi16(rounded, nan, _mm512_or_si512(upper, _mm512_set1_epi16(0x40)));
    }
    _mm512_storeu_si512((void *)out, rounded);
}

// f64, eight or more at a time. What an f32 does not hold is cut off and leaves an odd digit behind,
// so that the rounding to 16 bits is the only one (kernels/half.h).
#define ND__WIDE_HALVES_AT_ONCE 8
ND__IN_LOOPS __m256 nd__f64_odd_some(const double *in) {
    __m512d x = _mm512_loadu_pd(in);
    __m256 cut = _mm512_cvt_roundpd_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __mmask8 lost = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), x, _CMP_NEQ_UQ);
    __m256i bits = _mm256_castps_si256(cut);
    return _mm256_castsi256_ps(_mm256_mask_or_epi32(bits, lost, bits, _mm256_set1_epi32(1)));
}
/// The same for numbers that are no subnormal f32, whose last digit is made odd before the conversion
/// cuts off what is behind it. Of a subnormal one that digit is cut off, too.
ND__IN_LOOPS __m256 nd__f64_odd_normal_some(const double *in) {
    const __m512i lost = _mm512_set1_epi64(((int64_t)1 << 29) - 1);
    const __m512i last = _mm512_set1_epi64((int64_t)1 << 29);
    __m512i bits = _mm512_loadu_si512((const void *)in);
    __m512i odd = _mm512_mask_or_epi64(bits, _mm512_test_epi64_mask(bits, lost), bits, last);
    return _mm512_cvt_roundpd_ps(_mm512_castsi512_pd(odd), _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}
/// A subnormal f32 is nearer to 0 than to any f16.
ND__IN_LOOPS void nd__f16_write_wide_some(const double *in, uint16_t *out) {
    __m128i halves = _mm256_cvtps_ph(nd__f64_odd_normal_some(in), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)(void *)out, halves);
}
ND__IN_LOOPS __m512 nd__joined(__m256 low, __m256 high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}
/// Sixteen, the rounded ones in the upper halves; which of them are subnormal or NaN, and so perhaps
/// wrong.
ND__IN_LOOPS __m512i nd__bf16_rounded_normal(const double *in, __mmask16 *ret_special) {
    enum { QUIET_NAN = 0x01, SUBNORMAL = 0x20, SIGNALLING_NAN = 0x80 };
    __m512 x = nd__joined(nd__f64_odd_normal_some(in), nd__f64_odd_normal_some(in + 8));
    __m512i bits = _mm512_castps_si512(x);
    *ret_special = _mm512_fpclass_ps_mask(x, QUIET_NAN | SUBNORMAL | SIGNALLING_NAN);
    return _mm512_add_epi32(bits, nd__bf16_rounding(bits));
}
/// Sixteen of any kind. A NaN, which the conversion has made a quiet one, is left alone.
ND__IN_LOOPS __m512i nd__bf16_rounded_any(const double *in) {
    __m512 x = nd__joined(nd__f64_odd_some(in), nd__f64_odd_some(in + 8));
    __m512i bits = _mm512_castps_si512(x);
    __mmask16 number = _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
    return _mm512_mask_add_epi32(bits, number, bits, nd__bf16_rounding(bits));
}
ND__IN_LOOPS void nd__bf16_write_wide_many(const double *in, uint16_t *out) {
    __mmask16 special[2];
    __m512i low = nd__bf16_rounded_normal(in, &special[0]);
    __m512i high = nd__bf16_rounded_normal(in + 16, &special[1]);
    if (__builtin_expect(special[0] | special[1], 0)) {
        low = nd__bf16_rounded_any(in);
        high = nd__bf16_rounded_any(in + 16);
    }
    _mm512_storeu_si512((void *)out, nd__upper_halves(low, high));
}
ND__IN_LOOPS void nd__f16_read_wide_some(const uint16_t *in, double *out) {
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)in);
    _mm512_storeu_pd(out, _mm512_cvtps_pd(_mm256_cvtph_ps(halves)));
}
ND__IN_LOOPS void nd__bf16_read_wide_some(const uint16_t *in, double *out) {
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)in);
    __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16);
    _mm512_storeu_pd(out, _mm512_cvtps_pd(_mm256_castsi256_ps(bits)));
}
#elif defined(__F16C__)
#define ND__HALVES_AT_ONCE 8
ND__IN_LOOPS void nd__f16_read_some(const uint16_t *in, float *out) {
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)in);
    _mm256_storeu_ps(out, _mm256_cvtph_ps(halves));
}
ND__IN_LOOPS void nd__f16_write_some(const float *in, uint16_t *out) {
    __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(in), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)(void *)out, halves);
}
#if defined(__AVX2__)
/// What rounding to bf16 leaves in the upper halves, shifted into the lower ones. Not of NaN.
ND__IN_LOOPS __m256i nd__bf16_halves(__m256i bits) {
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i middle = _mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF));
    return _mm256_srli_epi32(_mm256_add_epi32(middle, odd), 16);
}
/// The lower halves of the elements of a, then those of b; the upper ones must be 0.
ND__IN_LOOPS void nd__write_lower_halves(__m256i a, __m256i b, uint16_t *out) {
    __m256i mixed = _mm256_packus_epi32(a, b); // by half vectors
    _mm256_storeu_si256((__m256i *)(void *)out, _mm256_permute4x64_epi64(mixed, 0xD8));
}
#define ND__BF16_WRITTEN 16
ND__IN_LOOPS void nd__bf16_write_many(const float *in, uint16_t *out) {
    __m256 a = _mm256_loadu_ps(in), b = _mm256_loadu_ps(in + 8);
    nd__write_lower_halves(nd__bf16_halves(_mm256_castps_si256(a)),
                           nd__bf16_halves(_mm256_castps_si256(b)), out);
    if (__builtin_expect(_mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)), 0))
        for (int i = 0; i < ND__BF16_WRITTEN; i++)
            out[i] = nd__f32_to_bf16(in[i]);
}

// f64, eight or more at a time. What an f32 does not hold is cut off and leaves an odd digit behind, so
// that the rounding to 16 bits is the only one (kernels/half.h).
#define ND__WIDE_HALVES_AT_ONCE 8
/// Four numbers that are no subnormal f32, as f32, which all their digits fit then.
ND__IN_LOOPS __m128 nd__f64_odd_normal_some(const double *in) {
    const __m256i lost = _mm256_set1_epi64x(((int64_t)1 << 29) - 1);
    const __m256i last = _mm256_set1_epi64x((int64_t)1 << 29);
    __m256i bits = _mm256_castpd_si256(_mm256_loadu_pd(in));
    __m256i whole = _mm256_cmpeq_epi64(_mm256_and_si256(bits, lost), _mm256_setzero_si256());
    bits = _mm256_or_si256(_mm256_andnot_si256(lost, bits), _mm256_andnot_si256(whole, last));
    return _mm256_cvtpd_ps(_mm256_castsi256_pd(bits));
}
ND__IN_LOOPS __m256 nd__f64_odd_normal_many(const double *in) {
    return _mm256_set_m128(nd__f64_odd_normal_some(in + 4), nd__f64_odd_normal_some(in));
}
/// A subnormal f32 is nearer to 0 than to any f16.
ND__IN_LOOPS void nd__f16_write_wide_some(const double *in, uint16_t *out) {
    __m128i halves = _mm256_cvtps_ph(nd__f64_odd_normal_many(in), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)(void *)out, halves);
}
/// Which of eight f32 are subnormal.
ND__IN_LOOPS __m256i nd__subnormal_f32(__m256i bits) {
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
    __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x800000), magnitude);
    return _mm256_andnot_si256(_mm256_cmpeq_epi32(magnitude, _mm256_setzero_si256()), small);
}
/// What has become a subnormal f32, or is NaN, may be wrong; what has become 0 is nearer to that than to
/// any bf16.
ND__IN_LOOPS void nd__bf16_write_wide_many(const double *in, uint16_t *out) {
    __m256 a = nd__f64_odd_normal_many(in), b = nd__f64_odd_normal_many(in + 8);
    __m256i low = _mm256_castps_si256(a), high = _mm256_castps_si256(b);
    nd__write_lower_halves(nd__bf16_halves(low), nd__bf16_halves(high), out);
    __m256i special = _mm256_or_si256(nd__subnormal_f32(low), nd__subnormal_f32(high));
    special = _mm256_or_si256(special, _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_UNORD_Q)));
    if (__builtin_expect(!_mm256_testz_si256(special, special), 0))
        for (int i = 0; i < ND__BF16_WRITTEN; i++)
            out[i] = nd__f64_to_bf16(in[i]);
}
ND__IN_LOOPS void nd__f16_read_wide_some(const uint16_t *in, double *out) {
    float narrow[8];
    nd__f16_read_some(in, narrow);
    for (int i = 0; i < 8; i++)
        out[i] = (double)narrow[i];
}
ND__IN_LOOPS void nd__bf16_read_wide_some(const uint16_t *in, double *out) {
    for (int i = 0; i < 8; i++)
        out[i] = (double)nd__bf16_to_f32(in[i]);
}
#endif
#else
#define ND__HALVES_AT_ONCE 1
ND__IN_LOOPS void nd__f16_read_some(const uint16_t *in, float *out) {
    *out = nd__f16_to_f32(*in);
}
ND__IN_LOOPS void nd__f16_write_some(const float *in, uint16_t *out) {
    *out = nd__f32_to_f16(*in);
}
#endif
#if ND__HALVES_AT_ONCE < 16
ND__IN_LOOPS void nd__bf16_write_some(const float *in, uint16_t *out) {
    for (int i = 0; i < ND__HALVES_AT_ONCE; i++)
        out[i] = nd__f32_to_bf16(in[i]);
}
#endif
#ifndef ND__BF16_WRITTEN
#define ND__BF16_WRITTEN ND__HALVES_AT_ONCE
#define nd__bf16_write_many nd__bf16_write_some
#endif
#define ND__F16_WRITTEN ND__HALVES_AT_ONCE
#define nd__f16_write_many nd__f16_write_some
ND__IN_LOOPS void nd__bf16_read_some(const uint16_t *in, float *out) {
    for (int i = 0; i < ND__HALVES_AT_ONCE; i++)
        out[i] = nd__bf16_to_f32(in[i]);
}

// n elements behind each other.
#define ND__HALVES_FUNCTIONS(half, written)                                           \
    ND__IN_LOOPS void nd__##half##_read(int64_t n, const uint16_t *in, float *out) {  \
        int64_t i = 0;                                                                \
        for (; i + ND__HALVES_AT_ONCE <= n; i += ND__HALVES_AT_ONCE)                  \
            nd__##half##_read_some(in + i, out + i);                                  \
        for (; i < n; i++)                                                            \
            out[i] = nd__##half##_to_f32(in[i]);                                      \
    }                                                                                 \
    ND__IN_LOOPS void nd__##half##_write(int64_t n, const float *in, uint16_t *out) { \
        int64_t i = 0;                                                                \
        for (; i + (written) <= n; i += (written))                                    \
            nd__##half##_write_many(in + i, out + i);                                 \
        for (; i + ND__HALVES_AT_ONCE <= n; i += ND__HALVES_AT_ONCE)                  \
            nd__##half##_write_some(in + i, out + i);                                 \
        for (; i < n; i++)                                                            \
            out[i] = nd__f32_to_##half(in[i]);                                        \
    }
ND__HALVES_FUNCTIONS(f16, ND__F16_WRITTEN)
ND__HALVES_FUNCTIONS(bf16, ND__BF16_WRITTEN)
#undef ND__HALVES_FUNCTIONS
#ifdef ND__WIDE_HALVES_AT_ONCE
#define ND__WIDE_READ(half)                                                                \
    ND__IN_LOOPS void nd__##half##_read_wide(int64_t n, const uint16_t *in, double *out) { \
        int64_t i = 0;                                                                     \
        for (; i + ND__WIDE_HALVES_AT_ONCE <= n; i += ND__WIDE_HALVES_AT_ONCE)             \
            nd__##half##_read_wide_some(in + i, out + i);                                  \
        for (; i < n; i++)                                                                 \
            out[i] = nd__##half##_to_f64(in[i]);                                           \
    }
#define ND__WIDE_WRITE(half, at_once, WRITE)                                                \
    ND__IN_LOOPS void nd__##half##_write_wide(int64_t n, const double *in, uint16_t *out) { \
        int64_t i = 0;                                                                      \
        for (; i + (at_once) <= n; i += (at_once))                                          \
            WRITE(in + i, out + i);                                                         \
        for (; i < n; i++)                                                                  \
            out[i] = nd__f64_to_##half(in[i]);                                              \
    }
ND__WIDE_READ(f16)
ND__WIDE_READ(bf16)
ND__WIDE_WRITE(f16, ND__WIDE_HALVES_AT_ONCE, nd__f16_write_wide_some)
ND__WIDE_WRITE(bf16, ND__BF16_WRITTEN, nd__bf16_write_wide_many)
#undef ND__WIDE_READ
#undef ND__WIDE_WRITE
#endif
#endif
