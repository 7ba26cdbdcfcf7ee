// Softmax of f32 on processors with AVX-512: rows of several registers, 16 rows at a time.
//
// What one row costs beside its exponentials are two numbers that come out of a register each, its
// maximum and its sum, and a logarithm; of 16 rows each of them is made in one register
// (softmax_vectors.h). Exponentials are made of four rows at once, so that a chain of one fills what
// another waits for. Every row is added up in the same order, whatever rows lie beside it.
#ifndef ND_KERNELS_CPU_SOFTMAX_ROWS_VECTORS_H
#define ND_KERNELS_CPU_SOFTMAX_ROWS_VECTORS_H
#include "kernels/cpu/softmax_vectors.h"

/// Rows below this length go that way. Longer ones may come one by one (softmax.c).
#define ND__SIXTEEN_ROWS_MOST 256
/// Rows whose exponentials are made together.
#define ND__FOUR_ROWS ND__EXP_VECTORS_TOGETHER

#if ND__HAVE_SIXTEEN

/// 16 rows of n numbers at most: where they are, and what is found of each.
typedef struct nd__sixteen_rows {
    _Alignas(64) float maximum[ND__SIXTEEN]; ///< NaN where a row has one
    _Alignas(64) float sum[ND__SIXTEEN];     ///< of exp(x - maximum)
    const float *x;
    int64_t stride, rows, n;
    int64_t whole;   ///< numbers in registers that a row fills
    __mmask16 there; ///< of the register behind those
} nd__sixteen_rows;

static inline void nd__sixteen_rows_maxima(nd__sixteen_rows *of) {
    __m512 most[ND__SIXTEEN];
    uint32_t nan = 0;
    for (int64_t r = 0; r < ND__SIXTEEN; r++) {
        const float *x = of->x + (r < of->rows ? r : of->rows - 1) * of->stride;
        __m512 row =
            _mm512_mask_loadu_ps(_mm512_set1_ps(-__builtin_inff()), of->there, x + of->whole);
        __mmask16 unordered = _mm512_cmp_ps_mask(row, row, _CMP_UNORD_Q);
        for (int64_t i = 0; i < of->whole; i += 16) {
            const __m512 value = _mm512_loadu_ps(x + i);
            unordered |= _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
            row = _mm512_max_ps(row, value);
        }
        most[r] = row;
        nan |= (uint32_t)(unordered != 0) << r;
    }
    const __m512 maximum = nd__sixteen_maxima(most);
    _mm512_store_ps(of->maximum, _mm512_mask_mov_ps(maximum, (__mmask16)nan,
                                                    _mm512_set1_ps(__builtin_nanf(""))));
}

/// The exponentials of `count` rows from `first` on, and their sums by lane; stores the former when
/// `out` is given. `count` is constant where this is inlined.
static inline __attribute__((always_inline)) void
nd__sixteen_rows_some(int count, const nd__sixteen_rows *of, int64_t first, float *out,
                      int64_t out_stride, __m512 *ret_sums) {
    const __m512 bottom = _mm512_set1_ps(ND__EXP_VECTORS_BOTTOM);
    __m512 e[ND__FOUR_ROWS], most[ND__FOUR_ROWS], sum[ND__FOUR_ROWS];
    __mmask16 is_more[ND__FOUR_ROWS];
    ND__EXP_VECTORS_EACH(r, count) {
        most[r] = _mm512_set1_ps(of->maximum[first + r]);
        sum[r] = _mm512_setzero_ps();
    }
    for (int64_t i = 0; i < of->n; i += 16) {
        const __mmask16 there = i < of->whole ? (__mmask16)0xffff : of->there;
        ND__EXP_VECTORS_EACH(r, count) {
            const __m512 x = _mm512_mask_loadu_ps(_mm512_set1_ps(-__builtin_inff()), there,
                                                  of->x + (first + r) * of->stride + i);
            e[r] = _mm512_sub_ps(x, most[r]);
            // What is no number of the row is 0, which adds nothing.
            is_more[r] = _mm512_cmp_ps_mask(e[r], bottom, _CMP_GT_OQ);
            e[r] = _mm512_max_ps(e[r], bottom);
        }
        nd__exp_vectors_in_range(count, e, is_more);
        ND__EXP_VECTORS_EACH(r, count) {
            sum[r] = _mm512_add_ps(sum[r], e[r]);
            if (out)
                _mm512_mask_storeu_ps(out + (first + r) * out_stride + i, there, e[r]);
        }
    }
    ND__EXP_VECTORS_EACH(r, count)
    ret_sums[first + r] = sum[r];
}

/// Finds the maxima and the sums; stores the exponentials when `out` is given, which may be x. Returns
/// of which rows the maximum is finite.
static inline __attribute__((always_inline)) __mmask16
nd__sixteen_rows_exponentials(nd__sixteen_rows *of, const float *x, int64_t stride, int64_t rows,
                              int64_t n, float *out, int64_t out_stride) {
    of->x = x;
    of->stride = stride;
    of->rows = rows;
    of->n = n;
    of->whole = n & ~(int64_t)15;
    of->there = (__mmask16)((1u << (n - of->whole)) - 1);
    nd__sixteen_rows_maxima(of);
    __m512 sums[ND__SIXTEEN];
    int64_t r = 0;
    for (; r + ND__FOUR_ROWS <= rows; r += ND__FOUR_ROWS)
        nd__sixteen_rows_some(ND__FOUR_ROWS, of, r, out, out_stride, sums);
    for (; r < rows; r++)
        nd__sixteen_rows_some(1, of, r, out, out_stride, sums);
    for (; r < ND__SIXTEEN; r++)
        sums[r] = _mm512_setzero_ps();
    _mm512_store_ps(of->sum, nd__sixteen_sums(sums));
    return _mm512_cmp_ps_mask(_mm512_abs_ps(_mm512_load_ps(of->maximum)),
                              _mm512_set1_ps(__builtin_inff()), _CMP_LT_OQ);
}

static inline void nd__sixteen_rows_softmax(const float *x, int64_t x_stride, float *out,
                                            int64_t out_stride, int64_t rows, int64_t n) {
    nd__sixteen_rows of;
    const __mmask16 finite =
        nd__sixteen_rows_exponentials(&of, x, x_stride, rows, n, out, out_stride);
    _mm512_store_ps(of.sum, _mm512_mask_div_ps(_mm512_set1_ps(__builtin_nanf("")), finite,
                                               _mm512_set1_ps(1), _mm512_load_ps(of.sum)));
    for (int64_t r = 0; r < rows; r++) {
        const __m512 scale = _mm512_set1_ps(of.sum[r]);
        float *to = out + r * out_stride;
        for (int64_t i = 0; i < of.whole; i += 16)
            _mm512_storeu_ps(to + i, _mm512_mul_ps(_mm512_loadu_ps(to + i), scale));
        const __m512 rest = _mm512_maskz_loadu_ps(of.there, to + of.whole);
        _mm512_mask_storeu_ps(to + of.whole, of.there, _mm512_mul_ps(rest, scale));
    }
}

static inline void nd__sixteen_rows_log_softmax(const float *x, int64_t x_stride, float *out,
                                                int64_t out_stride, int64_t rows, int64_t n) {
    nd__sixteen_rows of;
    const __mmask16 finite = nd__sixteen_rows_exponentials(&of, x, x_stride, rows, n, NULL, 0);
    ND__INDEPENDENT for (int r = 0; r < ND__SIXTEEN; r++) {
        of.sum[r] = nd__log_f32(of.sum[r]);
    }
    _mm512_store_ps(of.sum, _mm512_mask_mov_ps(_mm512_set1_ps(__builtin_nanf("")), finite,
                                               _mm512_load_ps(of.sum)));
    for (int64_t r = 0; r < rows; r++) {
        const __m512 most = _mm512_set1_ps(of.maximum[r]), shift = _mm512_set1_ps(of.sum[r]);
        const float *from = x + r * x_stride;
        float *to = out + r * out_stride;
        for (int64_t i = 0; i < of.whole; i += 16)
            _mm512_storeu_ps(to + i,
                             _mm512_sub_ps(_mm512_sub_ps(_mm512_loadu_ps(from + i), most), shift));
        const __m512 rest = _mm512_maskz_loadu_ps(of.there, from + of.whole);
        _mm512_mask_storeu_ps(to + of.whole, of.there,
                              _mm512_sub_ps(_mm512_sub_ps(rest, most), shift));
    }
}
#endif
#endif
