// The loops of every fold (reduce.h) for the dtypes that have their own, and of argmax and argmin.
//
// Sums of f32 are accumulated in double, which costs nothing at memory speed; those of integers in
// 64 bits, which wrap. max and min keep NaN.
#include "kernels/cpu/extremum.h"
#include "kernels/cpu/reduce.h"

#define ND__BLOCK 2048
/// Of sums in the dtype's own precision: elements that two accumulators add up, and rows that one
/// does, before what is rounded away counts.
#define ND__STRIDED_BLOCK 128
#define ND__COMPENSATED_ROWS 64

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

// Sums of integers, in 64 bits.
#define ND__INTEGER_BLOCK_SUM(TYPE, T)                                  \
    static inline uint64_t block_sum_of_##TYPE(const T *x, int64_t n) { \
        uint64_t sum = 0;                                               \
        ND__PRAGMA(omp simd reduction(+ : sum))                         \
        for (int64_t i = 0; i < n; i++)                                 \
            sum += (uint64_t)x[i];                                      \
        return sum;                                                     \
    }
ND__INTEGER_BLOCK_SUM(i64, int64_t)
ND__INTEGER_BLOCK_SUM(i32, int32_t)
ND__INTEGER_BLOCK_SUM(u64, uint64_t)

/// Bytes are added in 32 bits, which ND__BLOCK of them cannot pass.
static inline uint64_t block_sum_of_u8(const uint8_t *x, int64_t n) {
    uint32_t sum = 0;
    ND__PRAGMA(omp simd reduction(+ : sum))
    for (int64_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

#define ND__SUM(a, b) ((a) + (b))
#define ND__PRODUCT(a, b) ((a) * (b))
// Either may be NaN, which wins.
#define ND__LARGER(a, b) ((a) > (b) || ND_ISNAN(a) ? (a) : (b))
#define ND__SMALLER(a, b) ((a) < (b) || ND_ISNAN(a) ? (a) : (b))

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#define EXACT_IN_F64 1
#define OWN_DTYPE ND_F32
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/rows_for_type.inc"
#include "kernels/cpu/reduce_floats.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"

#define EXACT_IN_F64 0
#define OWN_DTYPE ND_F64
#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/rows_for_type.inc"
#include "kernels/cpu/reduce_floats.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_i64.inc"
#include "kernels/cpu/rows_for_type.inc"
#define OWN_DTYPE ND_I64
#define LOWEST INT64_MIN
#define HIGHEST INT64_MAX
#include "kernels/cpu/reduce_integers.inc"
#define REDUCTION product
#define PARTIAL uint64_t
#define PARTIAL_DTYPE ND_I64
#define START 1
#define LIFT(x, p) ((uint64_t)(x))
#define COMBINE ND__PRODUCT
#define BLOCK(x, n, p) strided_product_i64(x, n, 1, p)
#define COMPENSATED 0
#include "kernels/cpu/reduce.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_u64.inc"
#include "kernels/cpu/rows_for_type.inc"
#define OWN_DTYPE ND_U64
#define LOWEST 0
#define HIGHEST UINT64_MAX
#include "kernels/cpu/reduce_integers.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_i32.inc"
#include "kernels/cpu/rows_for_type.inc"
#define OWN_DTYPE ND_I32
#define LOWEST INT32_MIN
#define HIGHEST INT32_MAX
#include "kernels/cpu/reduce_integers.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"

// Also bool: 0 and 1 order as false and true.
#include "kernels/cpu/type_u8.inc"
#include "kernels/cpu/rows_for_type.inc"
#define OWN_DTYPE ND_U8
#define LOWEST 0
#define HIGHEST UINT8_MAX
#include "kernels/cpu/reduce_integers.inc"
#include "kernels/cpu/argreduce.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

#define ND__FLOAT_FOLDS(dtype, TYPE)                                                          \
    [ND__FOLD_SUM][dtype] = &reducer_sum_##TYPE, [ND__FOLD_MAX][dtype] = &reducer_max_##TYPE, \
    [ND__FOLD_MIN][dtype] = &reducer_min_##TYPE,                                              \
    [ND__FOLD_PRODUCT][dtype] = &reducer_product_##TYPE,                                      \
    [ND__FOLD_DEVIATION][dtype] = &reducer_deviation_##TYPE,                                  \
    [ND__FOLD_EXPONENTIAL][dtype] = &reducer_exponential_##TYPE,                              \
    [ND__FOLD_MAGNITUDE][dtype] = &reducer_magnitude_##TYPE,                                  \
    [ND__FOLD_SQUARE][dtype] = &reducer_square_##TYPE,                                        \
    [ND__FOLD_POWER][dtype] = &reducer_power_##TYPE
#define ND__INTEGER_FOLDS(dtype, TYPE)                                                        \
    [ND__FOLD_SUM][dtype] = &reducer_sum_##TYPE, [ND__FOLD_MAX][dtype] = &reducer_max_##TYPE, \
    [ND__FOLD_MIN][dtype] = &reducer_min_##TYPE
const nd__reducer *const ND_ISA_NAME(nd__cpu_reducers)[ND__FOLDS][ND_DTYPE_COUNT] = {
    ND__FLOAT_FOLDS(ND_F32, f32),   ND__FLOAT_FOLDS(ND_F64, f64),
    ND__INTEGER_FOLDS(ND_BOOL, u8), ND__INTEGER_FOLDS(ND_U8, u8),
    ND__INTEGER_FOLDS(ND_I32, i32), ND__INTEGER_FOLDS(ND_I64, i64),
    ND__INTEGER_FOLDS(ND_U64, u64), [ND__FOLD_PRODUCT][ND_I64] = &reducer_product_i64,
};

const nd__argreducer ND_ISA_NAME(nd__cpu_argreducers)[ND_DTYPE_COUNT][2] = {
    [ND_BOOL] = {argmax_u8, argmin_u8},  [ND_U8] = {argmax_u8, argmin_u8},
    [ND_I32] = {argmax_i32, argmin_i32}, [ND_I64] = {argmax_i64, argmin_i64},
    [ND_U64] = {argmax_u64, argmin_u64}, [ND_F32] = {argmax_f32, argmin_f32},
    [ND_F64] = {argmax_f64, argmin_f64},
};
