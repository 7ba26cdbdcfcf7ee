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
/// As nd__f32_to_bf16.
ND__IN_LOOPS void nd__bf16_write_some(const float *in, uint16_t *out) {
    __m512 x = _mm512_loadu_ps(in);
    __m512i bits = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    sum = _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
    __m256i halves = _mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16));
    _mm256_storeu_si256((__m256i *)(void *)out, halves);
}

// f64, eight at a time. What an f32 does not hold is cut off and leaves an odd digit behind, so that
// the rounding to 16 bits is the only one (kernels/half.h).
#define ND__WIDE_HALVES_AT_ONCE 8
ND__IN_LOOPS __m256 nd__f64_odd_some(const double *in) {
    __m512d x = _mm512_loadu_pd(in);
    __m256 cut = _mm512_cvt_roundpd_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __mmask8 lost = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), x, _CMP_NEQ_UQ);
    __m256i bits = _mm256_castps_si256(cut);
    return _mm256_castsi256_ps(_mm256_mask_or_epi32(bits, lost, bits, _mm256_set1_epi32(1)));
}
ND__IN_LOOPS void nd__f16_write_wide_some(const double *in, uint16_t *out) {
    __m128i halves = _mm256_cvtps_ph(nd__f64_odd_some(in), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128((__m128i *)(void *)out, halves);
}
ND__IN_LOOPS void nd__bf16_write_wide_some(const double *in, uint16_t *out) {
    __m256 x = nd__f64_odd_some(in);
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    __mmask8 nan = _mm256_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    sum = _mm256_mask_or_epi32(sum, nan, bits, _mm256_set1_epi32(0x400000));
    __m128i halves = _mm256_cvtepi32_epi16(_mm256_srli_epi32(sum, 16));
    _mm_storeu_si128((__m128i *)(void *)out, halves);
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
ND__IN_LOOPS void nd__bf16_read_some(const uint16_t *in, float *out) {
    for (int i = 0; i < ND__HALVES_AT_ONCE; i++)
        out[i] = nd__bf16_to_f32(in[i]);
}

// n elements behind each other.
#define ND__HALVES_FUNCTIONS(half)                                                    \
    ND__IN_LOOPS void nd__##half##_read(int64_t n, const uint16_t *in, float *out) {  \
        int64_t i = 0;                                                                \
        for (; i + ND__HALVES_AT_ONCE <= n; i += ND__HALVES_AT_ONCE)                  \
            nd__##half##_read_some(in + i, out + i);                                  \
        for (; i < n; i++)                                                            \
            out[i] = nd__##half##_to_f32(in[i]);                                      \
    }                                                                                 \
    ND__IN_LOOPS void nd__##half##_write(int64_t n, const float *in, uint16_t *out) { \
        int64_t i = 0;                                                                \
        for (; i + ND__HALVES_AT_ONCE <= n; i += ND__HALVES_AT_ONCE)                  \
            nd__##half##_write_some(in + i, out + i);                                 \
        for (; i < n; i++)                                                            \
            out[i] = nd__f32_to_##half(in[i]);                                        \
    }
ND__HALVES_FUNCTIONS(f16)
ND__HALVES_FUNCTIONS(bf16)
#undef ND__HALVES_FUNCTIONS
#ifdef ND__WIDE_HALVES_AT_ONCE
#define ND__WIDE_HALVES_FUNCTIONS(half)                                                     \
    ND__IN_LOOPS void nd__##half##_read_wide(int64_t n, const uint16_t *in, double *out) {  \
        int64_t i = 0;                                                                      \
        for (; i + ND__WIDE_HALVES_AT_ONCE <= n; i += ND__WIDE_HALVES_AT_ONCE)              \
            nd__##half##_read_wide_some(in + i, out + i);                                   \
        for (; i < n; i++)                                                                  \
            out[i] = nd__##half##_to_f64(in[i]);                                            \
    }                                                                                       \
    ND__IN_LOOPS void nd__##half##_write_wide(int64_t n, const double *in, uint16_t *out) { \
        int64_t i = 0;                                                                      \
        for (; i + ND__WIDE_HALVES_AT_ONCE <= n; i += ND__WIDE_HALVES_AT_ONCE)              \
            nd__##half##_write_wide_some(in + i, out + i);                                  \
        for (; i < n; i++)                                                                  \
            out[i] = nd__f64_to_##half(in[i]);                                              \
    }
ND__WIDE_HALVES_FUNCTIONS(f16)
ND__WIDE_HALVES_FUNCTIONS(bf16)
#undef ND__WIDE_HALVES_FUNCTIONS
#endif

// What the files halves_<arity>.inc make of rows: `text` where a row is cheap.
#define ND__CHEAP_1(...) __VA_ARGS__
#define ND__CHEAP_4(...)
#define ND__CHEAP_8(...)
#define ND__CHEAP_32(...)
#endif
