// The loops of every fold (reduce.h) for the dtypes that have their own, and of argmax and argmin.
//
// Sums of f32 and bf16 are accumulated in double, which costs nothing at memory speed; those of
// integers in 64 bits, which wrap. max and min keep NaN.
#include "kernels/cpu/extremum.h"
#include "kernels/cpu/reduce.h"
#include "kernels/half.h"
#if defined(__AVX__)
#include <immintrin.h>
#endif

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
typedef float narrow __attribute__((vector_size(4 * ND__LANES)));
typedef uint32_t words __attribute__((vector_size(4 * ND__LANES)));

/// Named to the instruction, which can also read what it widens: gcc makes of this conversion two
/// halves and what joins them, which takes twice as long.
static inline wide widened(narrow x) {
#if defined(__AVX512F__)
    return (wide)_mm512_cvtps_pd((__m256)x);
#elif defined(__AVX__)
    return (wide)_mm256_cvtps_pd((__m128)x);
#else
    return __builtin_convertvector(x, wide);
#endif
}

// Adds 2 ND__LANES elements from x on to two vectors of sums.
static inline void add_two_f32(const float *x, wide *sum0, wide *sum1) {
    typedef narrow unaligned __attribute__((aligned(4), may_alias));
    *sum0 += widened(*(const unaligned *)x);
    *sum1 += widened(*(const unaligned *)(x + ND__LANES));
}
static inline void add_two_f64(const double *x, wide *sum0, wide *sum1) {
    typedef wide unaligned __attribute__((aligned(8), may_alias));
    *sum0 += *(const unaligned *)x;
    *sum1 += *(const unaligned *)(x + ND__LANES);
}
/// Each word holds two elements, which become floats where they stand.
static inline void add_two_bf16(const uint16_t *x, wide *sum0, wide *sum1) {
    typedef words unaligned __attribute__((aligned(2), may_alias));
    words pairs = *(const unaligned *)x;
    *sum0 += widened((narrow)(pairs << 16));
    *sum1 += widened((narrow)(pairs & 0xFFFF0000U));
}

/// How far ahead of the sum a long row is fetched: the processor's own fetching stops at each page,
/// and begins anew too late for a row that memory must bring.
#define ND__AHEAD_BYTES 4096

// A long row is walked in one stream by four vectors of doubles; a short one by two, which costs it
// less at its end. Both end in a tree of lanes. number(x) is one element as a double.
#define ND__FLOAT_BLOCK_SUM(TYPE, T, number)                                        \
    static inline double short_sum_of_##TYPE(const T *x, int64_t n) {               \
        wide sum0 = {0}, sum1 = {0};                                                \
        int64_t i = 0;                                                              \
        for (; i + 2 * ND__LANES <= n; i += 2 * ND__LANES)                          \
            add_two_##TYPE(x + i, &sum0, &sum1);                                    \
        double total = 0;                                                           \
        for (; i < n; i++)                                                          \
            total += number(x[i]);                                                  \
        wide sum = sum0 + sum1;                                                     \
        for (int lane = 0; lane < ND__LANES; lane += 2)                             \
            total += sum[lane] + sum[lane + 1];                                     \
        return total;                                                               \
    }                                                                               \
    static inline double block_sum_of_##TYPE(const T *x, int64_t n) {               \
        if (n < 256)                                                                \
            return short_sum_of_##TYPE(x, n);                                       \
        enum { STEP = 4 * ND__LANES };                                              \
        wide sum[4] = {{0}};                                                        \
        int64_t i = 0;                                                              \
        for (; i + STEP <= n; i += STEP) {                                          \
            for (int line = 0; line < STEP; line += 64 / (int)sizeof(T))            \
                __builtin_prefetch((const char *)(x + i + line) + ND__AHEAD_BYTES); \
            add_two_##TYPE(x + i, &sum[0], &sum[1]);                                \
            add_two_##TYPE(x + i + STEP / 2, &sum[2], &sum[3]);                     \
        }                                                                           \
        wide lanes = (sum[0] + sum[1]) + (sum[2] + sum[3]);                         \
        double total = short_sum_of_##TYPE(x + i, n - i);                           \
        for (int lane = 0; lane < ND__LANES; lane += 2)                             \
            total += lanes[lane] + lanes[lane + 1];                                 \
        return total;                                                               \
    }
#define ND__NUMBER_PLAIN(x) ((double)(x))
#define ND__NUMBER_BF16(x) ((double)nd__bf16_to_f32(x))
ND__FLOAT_BLOCK_SUM(f32, float, ND__NUMBER_PLAIN)
ND__FLOAT_BLOCK_SUM(f64, double, ND__NUMBER_PLAIN)
ND__FLOAT_BLOCK_SUM(bf16, uint16_t, ND__NUMBER_BF16)

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
#define ND__LARGER(a, b) ((a) > (b) ? (a) : (b))
#define ND__SMALLER(a, b) ((a) < (b) ? (a) : (b))

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

// Sums of bf16, read as they are; its other folds are those of f32.
#define T uint16_t
#define TYPE bf16
#define REDUCTION sum
#define PARTIAL double
#define PARTIAL_DTYPE ND_F64
#define START 0.0
#define LIFT(x, p) ND__NUMBER_BF16(x)
#define COMBINE ND__SUM
#define BLOCK(x, n, p) block_sum_of_bf16(x, n)
#define COMPENSATED 0
#include "kernels/cpu/reduce.inc"
#undef T
#undef TYPE

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
    ND__FLOAT_FOLDS(ND_F32, f32),
    ND__FLOAT_FOLDS(ND_F64, f64),
    ND__INTEGER_FOLDS(ND_BOOL, u8),
    ND__INTEGER_FOLDS(ND_U8, u8),
    ND__INTEGER_FOLDS(ND_I32, i32),
    ND__INTEGER_FOLDS(ND_I64, i64),
    ND__INTEGER_FOLDS(ND_U64, u64),
    [ND__FOLD_PRODUCT][ND_I64] = &reducer_product_i64,
    [ND__FOLD_SUM][ND_BF16] = &reducer_sum_bf16,
};

#define ND__ARG_OF(max, min)                                                  \
    {                                                                         \
        [ND_BOOL] = {max##_u8, min##_u8}, [ND_U8] = {max##_u8, min##_u8},     \
        [ND_I32] = {max##_i32, min##_i32}, [ND_I64] = {max##_i64, min##_i64}, \
        [ND_U64] = {max##_u64, min##_u64}, [ND_F32] = {max##_f32, min##_f32}, \
        [ND_F64] = {max##_f64, min##_f64},                                    \
    }
const nd__argreducer ND_ISA_NAME(nd__cpu_argreducers)[ND_DTYPE_COUNT][2] = ND__ARG_OF(argmax,
                                                                                      argmin);
const nd__argcolumns
    ND_ISA_NAME(nd__cpu_argcolumns)[ND_DTYPE_COUNT][2] = ND__ARG_OF(argmax_columns, argmin_columns);
