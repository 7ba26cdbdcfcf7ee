// Division of integers that kernels/ops.inc names, for every dtype: it rounds down, wraps, and does
// not trap. What is divided by 0 gives 0, as in NumPy.
//
// Processors divide floats in vectors, and integers one by one. A float with two digits more than
// operands and quotient have gives the quotient towards 0: no rounding reaches the next whole
// number. Of 64 bits only operands below 2^51 are divided so: `small` is 0 for a block with others.
#ifndef ND_KERNELS_CPU_FUNCTIONS_INTEGER_H
#define ND_KERNELS_CPU_FUNCTIONS_INTEGER_H
#include "kernels/cpu/names.h"
#include <stdbool.h>
#include <stdint.h>

// F: float that holds T.
#define ND__UNSIGNED_DIVISION(T, F, name)                                         \
    ND__IN_LOOPS T nd__floor_divide_##name(T a, T b, const int small) {           \
        T divisor = b == 0 ? (T)1 : b;                                            \
        T quotient = small ? (T)((F)a / (F)divisor) : (T)(a / divisor);           \
        return b == 0 ? (T)0 : quotient;                                          \
    }                                                                             \
    ND__IN_LOOPS T nd__remainder_##name(T a, T b, const int small) {              \
        return b == 0 ? (T)0 : (T)(a - nd__floor_divide_##name(a, b, small) * b); \
    }

// W: unsigned type of T's width or more. The smallest number has no quotient by -1.
#define ND__SIGNED_DIVISION(T, W, F, name)                                             \
    ND__IN_LOOPS T nd__divisor_##name(T b) {                                           \
        return b == 0 || b == -1 ? (T)1 : b;                                           \
    }                                                                                  \
    /* The quotient towards 0 of a divisor, and what it leaves of a. */                \
    ND__IN_LOOPS T nd__quotient_##name(T a, T divisor, const int small, T *ret_rest) { \
        T quotient = small ? (T)((F)a / (F)divisor) : (T)(a / divisor);                \
        *ret_rest = (T)((W)a - (W)quotient * (W)divisor);                              \
        return quotient;                                                               \
    }                                                                                  \
    ND__IN_LOOPS T nd__floor_divide_##name(T a, T b, const int small) {                \
        T rest, divisor = nd__divisor_##name(b);                                       \
        T quotient = nd__quotient_##name(a, divisor, small, &rest);                    \
        bool above = rest != 0 && (rest < 0) != (divisor < 0);                         \
        quotient = above ? (T)(quotient - 1) : quotient;                               \
        quotient = b == -1 ? (T)(0 - (W)a) : quotient;                                 \
        return b == 0 ? (T)0 : quotient;                                               \
    }                                                                                  \
    ND__IN_LOOPS T nd__remainder_##name(T a, T b, const int small) {                   \
        T rest, divisor = nd__divisor_##name(b);                                       \
        nd__quotient_##name(a, divisor, small, &rest);                                 \
        bool above = rest != 0 && (rest < 0) != (divisor < 0);                         \
        return above ? (T)(rest + divisor) : rest;                                     \
    }
ND__UNSIGNED_DIVISION(uint8_t, float, u8)
ND__UNSIGNED_DIVISION(uint16_t, float, u16)
ND__UNSIGNED_DIVISION(uint32_t, double, u32)
ND__UNSIGNED_DIVISION(uint64_t, double, u64)
ND__SIGNED_DIVISION(int8_t, uint32_t, float, i8)
ND__SIGNED_DIVISION(int16_t, uint32_t, float, i16)
ND__SIGNED_DIVISION(int32_t, uint32_t, double, i32)
ND__SIGNED_DIVISION(int64_t, uint64_t, double, i64)
#undef ND__UNSIGNED_DIVISION
#undef ND__SIGNED_DIVISION

#define ND__SMALL_ALWAYS(T, name)                                                          \
    static inline bool nd__quotients_are_small_##name(const T *a, const T *b, int64_t n) { \
        (void)a, (void)b, (void)n;                                                         \
        return true;                                                                       \
    }
ND__SMALL_ALWAYS(uint8_t, b8)
ND__SMALL_ALWAYS(uint8_t, u8)
ND__SMALL_ALWAYS(uint16_t, u16)
ND__SMALL_ALWAYS(uint32_t, u32)
ND__SMALL_ALWAYS(int8_t, i8)
ND__SMALL_ALWAYS(int16_t, i16)
ND__SMALL_ALWAYS(int32_t, i32)
#undef ND__SMALL_ALWAYS

// Only some instruction sets turn 64 bits into floats in vectors.
#if defined(__AVX512DQ__)
#define ND__SMALL_WHERE(T, name, offset)                                                   \
    static inline bool nd__quotients_are_small_##name(const T *a, const T *b, int64_t n) { \
        uint64_t bits = 0;                                                                 \
        for (int64_t i = 0; i < n; i++)                                                    \
            bits |= ((uint64_t)a[i] + (offset)) | ((uint64_t)b[i] + (offset));             \
        return bits < (UINT64_C(1) << 51);                                                 \
    }
#else
#define ND__SMALL_WHERE(T, name, offset)                                                   \
    static inline bool nd__quotients_are_small_##name(const T *a, const T *b, int64_t n) { \
        (void)a, (void)b, (void)n;                                                         \
        return false;                                                                      \
    }
#endif
ND__SMALL_WHERE(uint64_t, u64, UINT64_C(0))
ND__SMALL_WHERE(int64_t, i64, UINT64_C(1) << 50)
#undef ND__SMALL_WHERE
#endif
