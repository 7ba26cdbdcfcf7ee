// Rows of softmax and its kin for f32 and f64 (softmax.c decides which rows and on which threads).
#include "kernels/cpu/extremum.h"
#include "kernels/cpu/math_f32.h"
#include "kernels/cpu/softmax_rows_vectors.h"

// So many exponentials, each at most 1, are added up as floats before the sum goes on in double: one
// by one, where there are no vectors, equal ones are all rounded the same way.
#define ND__SUM_RUN 512

/// Rows below this length go side by side, this many at once.
#define ND__SHORT_ROW 48
/// Rows below this one are handed on so many at once.
#define ND__ROWS_MOST_f32 (ND__HAVE_SIXTEEN ? ND__SIXTEEN_ROWS_MOST : ND__SHORT_ROW)
#define ND__ROWS_MOST_f64 ND__SHORT_ROW
#define ND__LANES 16

/// Exponentials of neighbouring rows that are added up before the sum goes on in double.
#define ND__COLUMN_RUN 64

#define ND__EXP_OF_MINUS(x) ND__FUNCTION(exp_of_minus)(x)

// What is done otherwise where there are vectors for it; false: it is not.
#if ND__HAVE_SIXTEEN
static inline bool short_softmax_f32(const float *x, int64_t x_stride, float *out,
                                     int64_t out_stride, int64_t rows, int64_t n) {
    if (n < ND__SIXTEEN_LEAST)
        return false;
    if (n > ND__SIXTEEN)
        nd__sixteen_rows_softmax(x, x_stride, out, out_stride, rows, n);
    else
        nd__sixteen_softmax(x, x_stride, out, out_stride, rows, n);
    return true;
}
static inline bool short_log_softmax_f32(const float *x, int64_t x_stride, float *out,
                                         int64_t out_stride, int64_t rows, int64_t n) {
    if (n < ND__SIXTEEN_LEAST)
        return false;
    if (n > ND__SIXTEEN)
        nd__sixteen_rows_log_softmax(x, x_stride, out, out_stride, rows, n);
    else
        nd__sixteen_log_softmax(x, x_stride, out, out_stride, rows, n);
    return true;
}
static inline bool sum_of_exponentials_f32(const float *x, int64_t n, float maximum, float *out,
                                           float *ret_sum) {
    *ret_sum = nd__sixteen_sum(x, n, maximum, out);
    return true;
}
#else
#define short_softmax_f32(x, x_stride, out, out_stride, rows, n) false
#define short_log_softmax_f32(x, x_stride, out, out_stride, rows, n) false
#define sum_of_exponentials_f32(x, n, maximum, out, ret_sum) false
#endif
#define short_softmax_f64(x, x_stride, out, out_stride, rows, n) false
#define short_log_softmax_f64(x, x_stride, out, out_stride, rows, n) false
#define sum_of_exponentials_f64(x, n, maximum, out, ret_sum) false

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/softmax.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/softmax.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__softmax_loops ND_ISA_NAME(nd__cpu_softmax)[2] = {
    {softmax_rows_f32, log_softmax_rows_f32, softmax_columns_f32, log_softmax_columns_f32,
     loss_rows_f32, hide_f32, gradient_row_f32},
    {softmax_rows_f64, log_softmax_rows_f64, softmax_columns_f64, log_softmax_columns_f64,
     loss_rows_f64, hide_f64, gradient_row_f64},
};
