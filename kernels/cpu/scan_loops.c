// Running sums, products and extrema of rows of f32, f64, i64 and u64, several rows at once.
//
// One row is a chain in which each element waits for the one before it. Rows that lie side by side
// are scanned in vectors, others four at a time, so that their chains overlap. Each row's results
// are the same either way: f32 is summed and multiplied in f64, integers wrap.
#include "kernels/cpu/isa.h"

#define ND__PRAGMA(text) _Pragma(#text)
#define ND__INDEPENDENT ND__PRAGMA(omp simd)
#define ND__ROWS_TOGETHER 4

#define ND__NEXT_SUM(a, b) ((a) + (b))
#define ND__NEXT_PRODUCT(a, b) ((a) * (b))
#define ND__NEXT_LARGER(a, b) ((b) > (a) ? (b) : (a))
#define ND__NEXT_SMALLER(a, b) ((b) < (a) ? (b) : (a))

// NaN, once there, stays. In two steps, which become masks.
#define ND__NEXT_OF_FLOATS(T)                    \
    static inline T next_larger_##T(T a, T b) {  \
        T more = b > a ? b : a;                  \
        return b != b ? b : more;                \
    }                                            \
    static inline T next_smaller_##T(T a, T b) { \
        T less = b < a ? b : a;                  \
        return b != b ? b : less;                \
    }
ND__NEXT_OF_FLOATS(float)
ND__NEXT_OF_FLOATS(double)

// `rows` rows of n elements of type T, of which `INSIDE` holds what the next one is combined with.
#define ND__SCAN(name, T, INSIDE, NEXT)                                                            \
    static void name##_side_by_side(const T *x, int64_t x_step, T *out, int64_t out_step,          \
                                    int64_t rows, int64_t n) {                                     \
        INSIDE last[ND__SCAN_ROWS];                                                                \
        for (int64_t row = 0; row < rows; row++) {                                                 \
            last[row] = (INSIDE)x[row];                                                            \
            out[row] = x[row];                                                                     \
        }                                                                                          \
        for (int64_t i = 1; i < n; i++) {                                                          \
            const T *from = x + i * x_step;                                                        \
            T *to = out + i * out_step;                                                            \
            ND__INDEPENDENT for (int64_t row = 0; row < rows; row++) {                             \
                last[row] = NEXT(last[row], (INSIDE)from[row]);                                    \
                to[row] = (T)last[row];                                                            \
            }                                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_of_one(const T *x, int64_t x_step, T *out, int64_t out_step, int64_t n) {   \
        INSIDE last = (INSIDE)x[0];                                                                \
        out[0] = x[0];                                                                             \
        for (int64_t i = 1; i < n; i++) {                                                          \
            last = NEXT(last, (INSIDE)x[i * x_step]);                                              \
            out[i * out_step] = (T)last;                                                           \
        }                                                                                          \
    }                                                                                              \
    static void name##_of_four(const T *x, int64_t x_step, int64_t x_row, T *out,                  \
                               int64_t out_step, int64_t out_row, int64_t n) {                     \
        INSIDE last[ND__ROWS_TOGETHER];                                                            \
        for (int row = 0; row < ND__ROWS_TOGETHER; row++) {                                        \
            last[row] = (INSIDE)x[row * x_row];                                                    \
            out[row * out_row] = x[row * x_row];                                                   \
        }                                                                                          \
        for (int64_t i = 1; i < n; i++)                                                            \
            for (int row = 0; row < ND__ROWS_TOGETHER; row++) {                                    \
                last[row] = NEXT(last[row], (INSIDE)x[row * x_row + i * x_step]);                  \
                out[row * out_row + i * out_step] = (T)last[row];                                  \
            }                                                                                      \
    }                                                                                              \
    static void name(const void *x_, int64_t x_step, int64_t x_row, void *out_, int64_t out_step,  \
                     int64_t out_row, int64_t rows, int64_t n) {                                   \
        const T *x = (const T *)x_;                                                                \
        T *out = (T *)out_;                                                                        \
        if (rows >= 2 * ND__ROWS_TOGETHER && x_row == 1 && out_row == 1) {                         \
            name##_side_by_side(x, x_step, out, out_step, rows, n);                                \
            return;                                                                                \
        }                                                                                          \
        int64_t row = 0;                                                                           \
        for (; row + ND__ROWS_TOGETHER <= rows; row += ND__ROWS_TOGETHER)                          \
            name##_of_four(x + row * x_row, x_step, x_row, out + row * out_row, out_step, out_row, \
                           n);                                                                     \
        for (; row < rows; row++)                                                                  \
            name##_of_one(x + row * x_row, x_step, out + row * out_row, out_step, n);              \
    }
ND__SCAN(sum_f32, float, double, ND__NEXT_SUM)
ND__SCAN(sum_f64, double, double, ND__NEXT_SUM)
ND__SCAN(sum_64, uint64_t, uint64_t, ND__NEXT_SUM)
ND__SCAN(product_f32, float, double, ND__NEXT_PRODUCT)
ND__SCAN(product_f64, double, double, ND__NEXT_PRODUCT)
ND__SCAN(product_64, uint64_t, uint64_t, ND__NEXT_PRODUCT)
ND__SCAN(larger_f32, float, float, next_larger_float)
ND__SCAN(larger_f64, double, double, next_larger_double)
ND__SCAN(larger_i64, int64_t, int64_t, ND__NEXT_LARGER)
ND__SCAN(smaller_f32, float, float, next_smaller_float)
ND__SCAN(smaller_f64, double, double, next_smaller_double)
ND__SCAN(smaller_i64, int64_t, int64_t, ND__NEXT_SMALLER)
ND__SCAN(larger_u64, uint64_t, uint64_t, ND__NEXT_LARGER)
ND__SCAN(smaller_u64, uint64_t, uint64_t, ND__NEXT_SMALLER)

const nd__scan ND_ISA_NAME(nd__cpu_scans)[ND__SCANS][ND_DTYPE_COUNT] = {
    [ND__SCAN_SUM] = {[ND_F32] = sum_f32, [ND_F64] = sum_f64, [ND_I64] = sum_64, [ND_U64] = sum_64},
    [ND__SCAN_PRODUCT] = {[ND_F32] = product_f32,
                          [ND_F64] = product_f64,
                          [ND_I64] = product_64,
                          [ND_U64] = product_64},
    [ND__SCAN_LARGER] = {[ND_F32] = larger_f32,
                         [ND_F64] = larger_f64,
                         [ND_I64] = larger_i64,
                         [ND_U64] = larger_u64},
    [ND__SCAN_SMALLER] = {[ND_F32] = smaller_f32,
                          [ND_F64] = smaller_f64,
                          [ND_I64] = smaller_i64,
                          [ND_U64] = smaller_u64},
};
