// Exponentials of 16 f32 at once, on processors with AVX-512.
//
// A number is scaled by 2^n in one instruction here, which in plain C takes two factors and what they
// are made of; and limits keep NaN, which there is put back at the end. What is 0 is not computed,
// because a result that underflows takes some processors a hundred times as long.
#ifndef ND_KERNELS_CPU_EXP_VECTORS_H
#define ND_KERNELS_CPU_EXP_VECTORS_H
#include "kernels/cpu/rows.h"
#include <stdint.h>

#if defined(__AVX512F__)
#include <immintrin.h>

/// e^x is 0 from there on downwards, and infinite upwards.
#define ND__EXP_VECTORS_BOTTOM (-104.0f)
#define ND__EXP_VECTORS_TOP 89.0f

/// Adding 1.5 * 2^23 leaves the nearest integer.
#define ND__EXP_VECTORS_MAGIC 12582912.0f
/// Vectors that go through it together: what each waits for is done for the others meanwhile, which a
/// processor does not find by itself so far ahead.
#define ND__EXP_VECTORS_TOGETHER 4
#define ND__EXP_VECTORS_EACH(i, count) ND__PRAGMA(GCC unroll 4) for (int i = 0; i < (count); i++)

/// Makes of `count` vectors of numbers between those two, with both and NaN, e^x: 1 ulp, 2 ulp where the
/// result is subnormal; 0 where `is_more` does not hold. As nd__exp_in_range_f32(). `count` is constant
/// where this is inlined.
static inline __attribute__((always_inline)) void
nd__exp_vectors_in_range(int count, __m512 *x, const __mmask16 *is_more) {
    const __m512 magic = _mm512_set1_ps(ND__EXP_VECTORS_MAGIC);
    __m512 n[ND__EXP_VECTORS_TOGETHER], r[ND__EXP_VECTORS_TOGETHER], r2[ND__EXP_VECTORS_TOGETHER];
    __m512 low[ND__EXP_VECTORS_TOGETHER], high[ND__EXP_VECTORS_TOGETHER];
    ND__EXP_VECTORS_EACH(i, count)
    n[i] = _mm512_fmadd_ps(x[i], _mm512_set1_ps(1.44269504f), magic);
    ND__EXP_VECTORS_EACH(i, count)
    n[i] = _mm512_sub_ps(n[i], magic);
    ND__EXP_VECTORS_EACH(i, count)
    r[i] = _mm512_fnmadd_ps(n[i], _mm512_set1_ps(0.693359375f), x[i]);
    ND__EXP_VECTORS_EACH(i, count)
    r[i] = _mm512_fmadd_ps(n[i], _mm512_set1_ps(2.12194440e-4f), r[i]);
    ND__EXP_VECTORS_EACH(i, count)
    r2[i] = _mm512_mul_ps(r[i], r[i]);
    ND__EXP_VECTORS_EACH(i, count)
    low[i] = _mm512_fmadd_ps(_mm512_set1_ps(0x1.55548ap-3f), r[i], _mm512_set1_ps(0x1.fffffcp-2f));
    ND__EXP_VECTORS_EACH(i, count)
    high[i] = _mm512_fmadd_ps(_mm512_set1_ps(0x1.123fc6p-7f), r[i], _mm512_set1_ps(0x1.555916p-5f));
    ND__EXP_VECTORS_EACH(i, count)
    high[i] = _mm512_fmadd_ps(_mm512_set1_ps(0x1.6a1a7p-10f), r2[i], high[i]);
    ND__EXP_VECTORS_EACH(i, count)
    low[i] = _mm512_fmadd_ps(high[i], r2[i], low[i]);
    ND__EXP_VECTORS_EACH(i, count)
    r[i] = _mm512_add_ps(_mm512_set1_ps(1), _mm512_fmadd_ps(r2[i], low[i], r[i]));
    ND__EXP_VECTORS_EACH(i, count)
    x[i] = _mm512_maskz_scalef_ps(is_more[i], r[i], n[i]);
}

/// e^x for x <= 0; 0 for NaN.
static inline __m512 nd__exp_vectors_below(__m512 x) {
    const __m512 bottom = _mm512_set1_ps(ND__EXP_VECTORS_BOTTOM);
    const __mmask16 is_more = _mm512_cmp_ps_mask(x, bottom, _CMP_GT_OQ);
    x = _mm512_max_ps(x, bottom);
    nd__exp_vectors_in_range(1, &x, &is_more);
    return x;
}

/// Makes e^x of `count` vectors, which is constant where this is inlined. Of the two limits' operands a
/// NaN is the second, which is what they give then.
static inline __attribute__((always_inline)) void nd__exp_vectors(int count, __m512 *x) {
    const __m512 bottom = _mm512_set1_ps(ND__EXP_VECTORS_BOTTOM);
    __mmask16 is_more[ND__EXP_VECTORS_TOGETHER];
    ND__EXP_VECTORS_EACH(i, count)
    is_more[i] = _mm512_cmp_ps_mask(x[i], bottom, _CMP_NLE_UQ);
    ND__EXP_VECTORS_EACH(i, count)
    x[i] = _mm512_min_ps(_mm512_set1_ps(ND__EXP_VECTORS_TOP), _mm512_max_ps(bottom, x[i]));
    nd__exp_vectors_in_range(count, x, is_more);
}

static inline __m512 nd__exp_vectors_of(__m512 x) {
    nd__exp_vectors(1, &x);
    return x;
}

static inline void nd__exp_vectors_row(int64_t n, float *out, const float *in) {
    enum { TOGETHER = ND__EXP_VECTORS_TOGETHER };
    int64_t at = 0;
    for (; at + 16 * TOGETHER <= n; at += 16 * TOGETHER) {
        __m512 x[TOGETHER];
        ND__EXP_VECTORS_EACH(i, TOGETHER)
        x[i] = _mm512_loadu_ps(in + at + 16 * i);
        nd__exp_vectors(TOGETHER, x);
        ND__EXP_VECTORS_EACH(i, TOGETHER)
        _mm512_storeu_ps(out + at + 16 * i, x[i]);
    }
    for (; at < n; at += 16) {
        const __mmask16 there = n - at < 16 ? (__mmask16)((1u << (n - at)) - 1) : (__mmask16)0xffff;
        _mm512_mask_storeu_ps(out + at, there,
                              nd__exp_vectors_of(_mm512_maskz_loadu_ps(there, in + at)));
    }
}
#endif
#endif
