// The loops of every fold (reduce.h) for the dtypes that have their own, and of argmax and argmin.
//
// Sums of f32 and bf16 are accumulated in double, at the speed of the caches; those of integers in 64
// bits, which wrap. max and min keep NaN.
#include "kernels/cpu/extremum.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cpu/wide.h"
#include "kernels/half.h"

/// Elements that are added up before they join the others: of those that are converted before, or
/// added in their own precision, and of all others.
#define ND__BLOCK 2048
#define ND__LONG_BLOCK 16384
/// Of sums in the dtype's own precision: elements that two accumulators add up, and rows that one
/// does, before what is rounded away counts.
#define ND__STRIDED_BLOCK 128
/// Rows of so many elements, or bytes, are no vectors: several of them are.
#define ND__FEW 15
#define ND__FEW_BYTES 63
/// And rows of so many are converted together, where they lie behind each other.
#define ND__SHORT_ROW 64
#define ND__COMPENSATED_ROWS 64

static inline bool nd__has_dense_rows(const nd__reduction *plan) {
    return plan->kept.count > 0 && nd__last_stride(&plan->kept) == plan->elements &&
           plan->elements <= ND__SHORT_ROW &&
           (plan->elements == 1 || nd__last_stride(&plan->reduced) == 1);
}

typedef int64_t nd__wide_bits __attribute__((vector_size(8 * ND__LANES)));

static inline double nd__product_of_lanes(nd__wide x) {
    double product = x[0] * x[1];
    for (int lane = 2; lane < ND__LANES; lane += 2)
        product *= x[lane] * x[lane + 1];
    return product;
}

typedef float narrow_twice __attribute__((vector_size(8 * ND__LANES)));
typedef uint32_t words __attribute__((vector_size(8 * ND__LANES)));

/// ND__LANES elements of a vector, from `first` on.
#if ND__LANES == 8
#define ND__HALF(x, first)                                                                      \
    __builtin_shufflevector(x, x, first, first + 1, first + 2, first + 3, first + 4, first + 5, \
                            first + 6, first + 7)
#elif ND__LANES == 4
#define ND__HALF(x, first) __builtin_shufflevector(x, x, first, first + 1, first + 2, first + 3)
#else
#define ND__HALF(x, first) __builtin_shufflevector(x, x, first, first + 1)
#endif

// How long rows are walked, as measured where these loops are used: AVX2's on a Zen 4 (isa.h), AVX-512's
// on a Zen 5.
//
// A Zen 4 converts f32 in its adders. So AVX2's sums are of halves, which multiply-adds add up (a
// product with 1 compilers take away): a sum of halves is half the sum to the bit, as no f32 and no sum
// of them is small or large enough in f64 to lose one. That takes eight vectors of sums.
//
// AVX-512's rows are fetched ahead, as the processor's own fetching stops at each page and begins anew
// too late for a row that memory must bring. A Zen 4 fetches by itself as well (rows of 64 MiB in
// memory, 1.73 ms either way), and is slowed by being told so where its caches have the row (4 MiB in
// 47 us instead of 51).
#if defined(__FMA__) && !defined(__AVX512F__)
#define ND__WEIGHT 0.5
#define ND__SUMS 8
#define ND__AHEAD_BYTES 0
#else
#define ND__WEIGHT 1.0
#define ND__SUMS 4
#define ND__AHEAD_BYTES 4096
#endif

// Adds as many elements from x on as ND__FLOAT_BLOCK_SUM is told to two vectors of sums.
static inline void add_two_f32(const float *x, nd__wide *sum0, nd__wide *sum1) {
    typedef nd__narrow unaligned __attribute__((aligned(4), may_alias));
    *sum0 = nd__widened_f32(*(const unaligned *)x) * ND__WEIGHT + *sum0;
    *sum1 = nd__widened_f32(*(const unaligned *)(x + ND__LANES)) * ND__WEIGHT + *sum1;
}
static inline void add_two_f64(const double *x, nd__wide *sum0, nd__wide *sum1) {
    typedef nd__wide unaligned __attribute__((aligned(8), may_alias));
    *sum0 += *(const unaligned *)x;
    *sum1 += *(const unaligned *)(x + ND__LANES);
}
/// Each word holds two elements, which become floats where they stand and are added as such: with 8
/// digits each, that rounds nothing away unless one is 2^16 times the other.
static inline void add_two_bf16(const uint16_t *x, nd__wide *sum0, nd__wide *sum1) {
    typedef words unaligned __attribute__((aligned(2), may_alias));
    words both = *(const unaligned *)x;
    narrow_twice pairs = (narrow_twice)(both << 16) + (narrow_twice)(both & 0xFFFF0000U);
    *sum0 = nd__widened_f32(ND__HALF(pairs, 0)) * ND__WEIGHT + *sum0;
    *sum1 = nd__widened_f32(ND__HALF(pairs, ND__LANES)) * ND__WEIGHT + *sum1;
}

// A long row is walked in one stream by ND__SUMS vectors of doubles; a short one by two, which costs it
// less at its end. Both end in a tree of lanes. number(x) is one element as a double, of which
// `weight` is added, and `two` are what add_two_TYPE takes.
#define ND__FLOAT_BLOCK_SUM(TYPE, T, number, weight, two)                                          \
    static inline double short_sum_of_##TYPE(const T *x, int64_t n) {                              \
        nd__wide sum0 = {0}, sum1 = {0};                                                           \
        int64_t i = 0;                                                                             \
        for (; i + (two) <= n; i += (two))                                                         \
            add_two_##TYPE(x + i, &sum0, &sum1);                                                   \
        double total = 0;                                                                          \
        for (; i < n; i++)                                                                         \
            total += number(x[i]) * (weight);                                                      \
        nd__wide sum = sum0 + sum1;                                                                \
        for (int lane = 0; lane < ND__LANES; lane += 2)                                            \
            total += sum[lane] + sum[lane + 1];                                                    \
        return total;                                                                              \
    }                                                                                              \
    static inline double long_sum_of_##TYPE(const T *x, int64_t n) {                               \
        enum { STEP = ND__SUMS / 2 * (two) };                                                      \
        nd__wide sum[ND__SUMS] = {{0}};                                                            \
        int64_t i = 0;                                                                             \
        for (; i + STEP <= n; i += STEP) {                                                         \
            const char *ahead = (const char *)(x + i) + ND__AHEAD_BYTES;                           \
            for (size_t b = 0; b < STEP * sizeof(T) && ND__AHEAD_BYTES > 0; b += 64)               \
                __builtin_prefetch(ahead + b);                                                     \
            ND__PRAGMA(GCC unroll 4)                                                               \
            for (int k = 0; k < ND__SUMS; k += 2)                                                  \
                add_two_##TYPE(x + i + k / 2 * (two), &sum[k], &sum[k + 1]);                       \
        }                                                                                          \
        double total = i < n ? short_sum_of_##TYPE(x + i, n - i) : 0.0;                            \
        nd__wide lanes = (sum[0] + sum[1]) + (sum[2] + sum[3]);                                    \
        if (ND__SUMS == 8)                                                                         \
            lanes +=                                                                               \
                (sum[ND__SUMS - 4] + sum[ND__SUMS - 3]) + (sum[ND__SUMS - 2] + sum[ND__SUMS - 1]); \
        return total + nd__sum_of_lanes(lanes);                                                    \
    }                                                                                              \
    static inline double block_sum_of_##TYPE(const T *x, int64_t n) {                              \
        return (n < 256 ? short_sum_of_##TYPE(x, n) : long_sum_of_##TYPE(x, n)) / (weight);        \
    }
#define ND__NUMBER_PLAIN(x) ((double)(x))
#define ND__NUMBER_BF16(x) ((double)nd__bf16_to_f32(x))
ND__FLOAT_BLOCK_SUM(f32, float, ND__NUMBER_PLAIN, ND__WEIGHT, 2 * ND__LANES)
ND__FLOAT_BLOCK_SUM(f64, double, ND__NUMBER_PLAIN, 1.0, 2 * ND__LANES)
ND__FLOAT_BLOCK_SUM(bf16, uint16_t, ND__NUMBER_BF16, ND__WEIGHT, 4 * ND__LANES)

/// Two of the largest numbers are too large for f32, and their sum may not be the end.
static inline double finite_sum_of_bf16(const uint16_t *x, int64_t n) {
    double total = block_sum_of_bf16(x, n);
    if (__builtin_expect(isfinite(total), 1))
        return total;
    total = 0;
    for (int64_t i = 0; i < n; i++)
        total += ND__NUMBER_BF16(x[i]);
    return total;
}

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

/// Bytes are added in 32 bits, which ND__LONG_BLOCK of them cannot pass.
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
#define BLOCK(x, n, p) finite_sum_of_bf16(x, n)
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

#define ND__FLOAT_FOLDS(dtype, TYPE, sum)                                     \
    [ND__FOLD_SUM][dtype] = sum, [ND__FOLD_MAX][dtype] = &reducer_max_##TYPE, \
    [ND__FOLD_MIN][dtype] = &reducer_min_##TYPE,                              \
    [ND__FOLD_PRODUCT][dtype] = &reducer_product_##TYPE,                      \
    [ND__FOLD_DEVIATION][dtype] = &reducer_deviation_##TYPE,                  \
    [ND__FOLD_EXPONENTIAL][dtype] = &reducer_exponential_##TYPE,              \
    [ND__FOLD_MAGNITUDE][dtype] = &reducer_magnitude_##TYPE,                  \
    [ND__FOLD_SQUARE][dtype] = &reducer_square_##TYPE,                        \
    [ND__FOLD_CUBE][dtype] = &reducer_cube_##TYPE, [ND__FOLD_POWER][dtype] = &reducer_power_##TYPE
#define ND__INTEGER_FOLDS(dtype, TYPE)                                                        \
    [ND__FOLD_SUM][dtype] = &reducer_sum_##TYPE, [ND__FOLD_MAX][dtype] = &reducer_max_##TYPE, \
    [ND__FOLD_MIN][dtype] = &reducer_min_##TYPE
// clang-format off
#define ND__REDUCERS(sum_of_f32, sum_of_bf16)              \
    {                                                      \
        ND__FLOAT_FOLDS(ND_F32, f32, sum_of_f32),          \
        ND__FLOAT_FOLDS(ND_F64, f64, &reducer_sum_f64),    \
        ND__INTEGER_FOLDS(ND_BOOL, u8),                    \
        ND__INTEGER_FOLDS(ND_U8, u8),                      \
        ND__INTEGER_FOLDS(ND_I32, i32),                    \
        ND__INTEGER_FOLDS(ND_I64, i64),                    \
        ND__INTEGER_FOLDS(ND_U64, u64),                    \
        [ND__FOLD_PRODUCT][ND_I64] = &reducer_product_i64, \
        [ND__FOLD_SUM][ND_BF16] = sum_of_bf16,             \
    }
// clang-format on
const nd__reducer *const ND_ISA_NAME(nd__cpu_reducers)[ND__FOLDS][ND_DTYPE_COUNT] =
    ND__REDUCERS(&reducer_sum_f32, &reducer_sum_bf16);

// For a processor that has AVX-512 and is faster with these sums of AVX2's (isa.h).
#if defined(__AVX512F__)
extern const nd__reducer nd__cpu_sum_f32_x86_64_v3, nd__cpu_sum_bf16_x86_64_v3;
const nd__reducer *const nd__cpu_reducers_x86_64_v4_halves[ND__FOLDS][ND_DTYPE_COUNT] =
    ND__REDUCERS(&nd__cpu_sum_f32_x86_64_v3, &nd__cpu_sum_bf16_x86_64_v3);
#elif defined(__AVX2__)
const nd__reducer ND_ISA_NAME(nd__cpu_sum_f32) = {ND_F64, range_sum_f32, combine_sum_f32};
const nd__reducer ND_ISA_NAME(nd__cpu_sum_bf16) = {ND_F64, range_sum_bf16, combine_sum_bf16};
#endif

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
