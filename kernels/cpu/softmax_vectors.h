// Softmax of f32 on processors with AVX-512: rows of 16 or a few less, each in one register.
//
// The maxima and the sums of 16 rows are found together: each step takes two registers and leaves one
// with half as many numbers of each row, so that 30 shuffles do for 16 rows what 64 would do row by
// row, and nothing is turned. Every row is added up in the same order, whatever rows lie beside it.
#ifndef ND_KERNELS_CPU_SOFTMAX_VECTORS_H
#define ND_KERNELS_CPU_SOFTMAX_VECTORS_H
#include "kernels/cpu/exp_vectors.h"
#include "kernels/cpu/rows.h"
#include <stdbool.h>
#include <stdint.h>

/// Rows that are looked at together, and the numbers of a row at most.
#define ND__SIXTEEN 16
/// From which length on that is quicker than turning them.
#define ND__SIXTEEN_LEAST 13
/// So many rows further on memory is fetched, to be read and to be written: 16 rows at a time come and go
/// faster than a processor notices by itself (1,000,000 rows on a Zen 5: 17.1 ms without, 4.6 with).
#define ND__SIXTEEN_AHEAD 64

/// Of 16 rows: the exponentials of x - maximum, and by row their sums and the maxima.
typedef struct nd__sixteen {
    _Alignas(64) float value[ND__SIXTEEN][ND__SIXTEEN];
    _Alignas(64) float sum[ND__SIXTEEN];
    _Alignas(64) float maximum[ND__SIXTEEN];
} nd__sixteen;

#if defined(__AVX512F__)
#include <immintrin.h>

#define ND__HAVE_SIXTEEN 1

/// Sum of exp(x - maximum), where no x is above; stores the exponentials when `out` is given, which
/// may be x.
static inline float nd__sixteen_sum(const float *x, int64_t n, float maximum, float *out) {
    const __m512 most = _mm512_set1_ps(maximum);
    __m512 sum = _mm512_setzero_ps();
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512 e = nd__exp_vectors_below(_mm512_sub_ps(_mm512_loadu_ps(x + i), most));
        if (out)
            _mm512_storeu_ps(out + i, e);
        sum = _mm512_add_ps(sum, e);
    }
    if (i < n) {
        const __mmask16 there = (__mmask16)((1u << (n - i)) - 1);
        const __m512 e =
            nd__exp_vectors_below(_mm512_sub_ps(_mm512_maskz_loadu_ps(there, x + i), most));
        if (out)
            _mm512_mask_storeu_ps(out + i, there, e);
        sum = _mm512_mask_add_ps(sum, there, sum, e);
    }
    return _mm512_reduce_add_ps(sum);
}

/// Leaves number r of what is found of row r: the rows two by two, four by four, and then the four
/// parts of the registers.
#define ND__SIXTEEN_JOIN(name, join)                                                          \
    static inline __m512 name(__m512 *rows) {                                                 \
        for (int i = 0; i < 8; i++)                                                           \
            rows[i] = join(_mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]),                  \
                           _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]));                 \
        for (int i = 0; i < 4; i++) {                                                         \
            __m512d a = _mm512_castps_pd(rows[2 * i]), b = _mm512_castps_pd(rows[2 * i + 1]); \
            rows[i] = join(_mm512_castpd_ps(_mm512_unpacklo_pd(a, b)),                        \
                           _mm512_castpd_ps(_mm512_unpackhi_pd(a, b)));                       \
        }                                                                                     \
        for (int i = 0; i < 2; i++)                                                           \
            rows[i] = join(_mm512_shuffle_f32x4(rows[2 * i], rows[2 * i + 1], 0x88),          \
                           _mm512_shuffle_f32x4(rows[2 * i], rows[2 * i + 1], 0xDD));         \
        return join(_mm512_shuffle_f32x4(rows[0], rows[1], 0x88),                             \
                    _mm512_shuffle_f32x4(rows[0], rows[1], 0xDD));                            \
    }
ND__SIXTEEN_JOIN(nd__sixteen_maxima, _mm512_max_ps)
ND__SIXTEEN_JOIN(nd__sixteen_sums, _mm512_add_ps)
#undef ND__SIXTEEN_JOIN

/// Of `rows` rows of n numbers, `stride` apart; the last one stands for those that are missing. The
/// maximum of a row with a NaN is NaN. Returns of which rows it is finite.
static inline __mmask16 nd__sixteen_exponentials(nd__sixteen *of, const float *x, int64_t stride,
                                                 int64_t rows, int64_t n) {
    const __mmask16 there = (__mmask16)((1u << n) - 1);
    const __m512 nothing = _mm512_set1_ps(-__builtin_inff());
    __m512 row[ND__SIXTEEN];
    for (int r = 0; r < ND__SIXTEEN; r++)
        row[r] = _mm512_mask_loadu_ps(nothing, there, x + (r < rows ? r : rows - 1) * stride);
    for (int r = 0; r < ND__SIXTEEN; r++)
        __builtin_prefetch(x + (r + ND__SIXTEEN_AHEAD) * stride);
    __mmask16 nan = 0;
    for (int r = 0; r < ND__SIXTEEN; r += 2)
        nan |= _mm512_cmp_ps_mask(row[r], row[r + 1], _CMP_UNORD_Q);
    for (int r = 0; r < ND__SIXTEEN; r++)
        _mm512_store_ps(of->value[r], row[r]);
    _mm512_store_ps(of->maximum, nd__sixteen_maxima(row));
    for (int r = 0; nan && r < ND__SIXTEEN; r++) {
        const __m512 x_r = _mm512_load_ps(of->value[r]);
        if (_mm512_cmp_ps_mask(x_r, x_r, _CMP_UNORD_Q))
            of->maximum[r] = __builtin_nanf("");
    }
    for (int r = 0; r < ND__SIXTEEN; r++) {
        const __m512 most = _mm512_set1_ps(of->maximum[r]);
        const __m512 e = nd__exp_vectors_below(_mm512_sub_ps(_mm512_load_ps(of->value[r]), most));
        _mm512_store_ps(of->value[r], e);
        // What is no number of the row adds nothing.
        row[r] = _mm512_maskz_mov_ps(there, e);
    }
    _mm512_store_ps(of->sum, nd__sixteen_sums(row));
    return _mm512_cmp_ps_mask(_mm512_abs_ps(_mm512_load_ps(of->maximum)),
                              _mm512_set1_ps(__builtin_inff()), _CMP_LT_OQ);
}

static inline void nd__sixteen_softmax(const float *x, int64_t x_stride, float *out,
                                       int64_t out_stride, int64_t rows, int64_t n) {
    nd__sixteen of;
    const __mmask16 finite = nd__sixteen_exponentials(&of, x, x_stride, rows, n);
    const __mmask16 there = (__mmask16)((1u << n) - 1);
    _mm512_store_ps(of.sum, _mm512_mask_div_ps(_mm512_set1_ps(__builtin_nanf("")), finite,
                                               _mm512_set1_ps(1), _mm512_load_ps(of.sum)));
    for (int64_t r = 0; r < rows; r++) {
        __builtin_prefetch(out + (r + ND__SIXTEEN_AHEAD) * out_stride, 1);
        _mm512_mask_storeu_ps(
            out + r * out_stride, there,
            _mm512_mul_ps(_mm512_load_ps(of.value[r]), _mm512_set1_ps(of.sum[r])));
    }
}

static inline void nd__sixteen_log_softmax(const float *x, int64_t x_stride, float *out,
                                           int64_t out_stride, int64_t rows, int64_t n) {
    nd__sixteen of;
    const __mmask16 finite = nd__sixteen_exponentials(&of, x, x_stride, rows, n);
    const __mmask16 there = (__mmask16)((1u << n) - 1);
    ND__INDEPENDENT for (int r = 0; r < ND__SIXTEEN; r++) {
        of.sum[r] = nd__log_f32(of.sum[r]);
    }
    _mm512_store_ps(of.sum, _mm512_mask_mov_ps(_mm512_set1_ps(__builtin_nanf("")), finite,
                                               _mm512_load_ps(of.sum)));
    for (int64_t r = 0; r < rows; r++) {
        const __m512 row = _mm512_maskz_loadu_ps(there, x + r * x_stride);
        const __m512 below = _mm512_sub_ps(row, _mm512_set1_ps(of.maximum[r]));
        __builtin_prefetch(out + (r + ND__SIXTEEN_AHEAD) * out_stride, 1);
        _mm512_mask_storeu_ps(out + r * out_stride, there,
                              _mm512_sub_ps(below, _mm512_set1_ps(of.sum[r])));
    }
}
#else
#define ND__HAVE_SIXTEEN 0
#endif
#endif
