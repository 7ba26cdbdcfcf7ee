// The loops of sum, mean, max and min for every dtype, and of argmax and argmin.
//
// Sums of f32 are accumulated in double, which costs nothing at memory speed. max and min keep NaN.
#include "kernels/cpu/extremum.h"
#include "kernels/cpu/reduce.h"

#define ND__BLOCK 2048

#if defined(__AVX512F__)
#define ND__LANES 8
#elif defined(__AVX__)
#define ND__LANES 4
#else
#define ND__LANES 2
#endif
typedef double wide __attribute__((vector_size(8 * ND__LANES)));

/// How far ahead of the sum a long row is fetched: the processor's own fetching stops at each page,
/// and begins anew too late for a row that memory must bring.
#define ND__AHEAD_BYTES 4096

// A long row is walked in one stream by four vectors of doubles; a short one by two, which costs it
// less at its end. Both end in a tree of lanes.
#define ND__FLOAT_BLOCK_SUM(TYPE, T)                                                        \
    typedef T vector_##TYPE                                                                 \
        __attribute__((vector_size(sizeof(T) * ND__LANES), aligned(sizeof(T)), may_alias)); \
    static inline wide widened_##TYPE(const T *x) {                                         \
        return __builtin_convertvector(*(const vector_##TYPE *)x, wide);                    \
    }                                                                                       \
    static inline double short_sum_of_##TYPE(const T *x, int64_t n) {                       \
        wide sum0 = {0}, sum1 = {0};                                                        \
        int64_t i = 0;                                                                      \
        for (; i + 2 * ND__LANES <= n; i += 2 * ND__LANES) {                                \
            sum0 += widened_##TYPE(x + i);                                                  \
            sum1 += widened_##TYPE(x + i + ND__LANES);                                      \
        }                                                                                   \
        double total = 0;                                                                   \
        for (; i < n; i++)                                                                  \
            total += (double)x[i];                                                          \
        wide sum = sum0 + sum1;                                                             \
        for (int lane = 0; lane < ND__LANES; lane += 2)                                     \
            total += sum[lane] + sum[lane + 1];                                             \
        return total;                                                                       \
    }                                                                                       \
    static inline double block_sum_of_##TYPE(const T *x, int64_t n) {                       \
        if (n < 256)                                                                        \
            return short_sum_of_##TYPE(x, n);                                               \
        enum { STEP = 4 * ND__LANES };                                                      \
        wide sum[4] = {{0}};                                                                \
        int64_t i = 0;                                                                      \
        for (; i + STEP <= n; i += STEP) {                                                  \
            for (int line = 0; line < STEP; line += 64 / (int)sizeof(T))                    \
                __builtin_prefetch((const char *)(x + i + line) + ND__AHEAD_BYTES);         \
            for (int k = 0; k < 4; k++)                                                     \
                sum[k] += widened_##TYPE(x + i + k * ND__LANES);                            \
        }                                                                                   \
        wide lanes = (sum[0] + sum[1]) + (sum[2] + sum[3]);                                 \
        double total = short_sum_of_##TYPE(x + i, n - i);                                   \
        for (int lane = 0; lane < ND__LANES; lane += 2)                                     \
            total += lanes[lane] + lanes[lane + 1];                                         \
        return total;                                                                       \
    }
ND__FLOAT_BLOCK_SUM(f32, float)
ND__FLOAT_BLOCK_SUM(f64, double)

static inline uint64_t block_sum_of_i64(const int64_t *x, int64_t n) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (uint64_t)x[i];
    return sum;
}

#define ND__SUM(a, b) ((a) + (b))
// Either may be NaN, which wins.
#define ND__LARGER(a, b) ((a) > (b) || ND_ISNAN(a) ? (a) : (b))
#define ND__SMALLER(a, b) ((a) < (b) || ND_ISNAN(a) ? (a) : (b))

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/rows_for_type.inc"
#define REDUCTION sum
#define PARTIAL double
#define START 0.0
#define COMBINE ND__SUM
#define BLOCK block_sum_of_f32
#include "kernels/cpu/reduce.inc"
#define REDUCTION max
#define PARTIAL T
#define START (-INFINITY)
#define COMBINE ND__LARGER
#define BLOCK nd__row_max_f32
#include "kernels/cpu/reduce.inc"
#define REDUCTION min
#define PARTIAL T
#define START INFINITY
#define COMBINE ND__SMALLER
#define BLOCK nd__row_min_f32
#include "kernels/cpu/reduce.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/rows_for_type.inc"
#define REDUCTION sum
#define PARTIAL double
#define START 0.0
#define COMBINE ND__SUM
#define BLOCK block_sum_of_f64
#include "kernels/cpu/reduce.inc"
#define REDUCTION max
#define PARTIAL T
#define START (-(double)INFINITY)
#define COMBINE ND__LARGER
#define BLOCK nd__row_max_f64
#include "kernels/cpu/reduce.inc"
#define REDUCTION min
#define PARTIAL T
#define START ((double)INFINITY)
#define COMBINE ND__SMALLER
#define BLOCK nd__row_min_f64
#include "kernels/cpu/reduce.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_i64.inc"
#include "kernels/cpu/rows_for_type.inc"
#define REDUCTION sum
#define PARTIAL uint64_t
#define START 0
#define COMBINE ND__SUM
#define BLOCK block_sum_of_i64
#include "kernels/cpu/reduce.inc"
#define REDUCTION max
#define PARTIAL T
#define START INT64_MIN
#define COMBINE ND__LARGER
#define BLOCK nd__row_max_i64
#include "kernels/cpu/reduce.inc"
#define REDUCTION min
#define PARTIAL T
#define START INT64_MAX
#define COMBINE ND__SMALLER
#define BLOCK nd__row_min_i64
#include "kernels/cpu/reduce.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_i32.inc"
#include "kernels/cpu/rows_for_type.inc"
#define REDUCTION max
#define PARTIAL T
#define START INT32_MIN
#define COMBINE ND__LARGER
#define BLOCK nd__row_max_i32
#include "kernels/cpu/reduce.inc"
#define REDUCTION min
#define PARTIAL T
#define START INT32_MAX
#define COMBINE ND__SMALLER
#define BLOCK nd__row_min_i32
#include "kernels/cpu/reduce.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"

// Also bool: 0 and 1 order as false and true.
#include "kernels/cpu/type_u8.inc"
#include "kernels/cpu/rows_for_type.inc"
#define REDUCTION max
#define PARTIAL T
#define START 0
#define COMBINE ND__LARGER
#define BLOCK nd__row_max_u8
#include "kernels/cpu/reduce.inc"
#define REDUCTION min
#define PARTIAL T
#define START UINT8_MAX
#define COMBINE ND__SMALLER
#define BLOCK nd__row_min_u8
#include "kernels/cpu/reduce.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__reducer *const ND_ISA_NAME(nd__cpu_reducers)[ND_DTYPE_COUNT][3] = {
    [ND_BOOL] = {NULL, &reducer_max_u8, &reducer_min_u8},
    [ND_U8] = {NULL, &reducer_max_u8, &reducer_min_u8},
    [ND_I32] = {NULL, &reducer_max_i32, &reducer_min_i32},
    [ND_I64] = {&reducer_sum_i64, &reducer_max_i64, &reducer_min_i64},
    [ND_F32] = {&reducer_sum_f32, &reducer_max_f32, &reducer_min_f32},
    [ND_F64] = {&reducer_sum_f64, &reducer_max_f64, &reducer_min_f64},
};

const nd__argreducer ND_ISA_NAME(nd__cpu_argreducers)[ND_DTYPE_COUNT][2] = {
    [ND_BOOL] = {argmax_u8, argmin_u8},  [ND_U8] = {argmax_u8, argmin_u8},
    [ND_I32] = {argmax_i32, argmin_i32}, [ND_I64] = {argmax_i64, argmin_i64},
    [ND_F32] = {argmax_f32, argmin_f32}, [ND_F64] = {argmax_f64, argmin_f64},
};
