// Largest and smallest element of a contiguous row of n >= 1 elements; NaN when there is one.
//
// Float comparisons do not vectorise as a reduction without giving up NaN, so floats are compared
// as the integers that order alike: sign and magnitude become two's complement.
#ifndef ND_KERNELS_CPU_EXTREMUM_H
#define ND_KERNELS_CPU_EXTREMUM_H
#include "kernels/cpu/rows.h"

#define ND__BETTER_max(a, b) ((a) > (b) ? (a) : (b))
#define ND__BETTER_min(a, b) ((a) < (b) ? (a) : (b))

/// A NaN is beyond infinity on the side of its sign, which the extremum of the other side finds.
#define ND__FLOAT_EXTREMUM(name, TYPE, T, I, LEAST, MOST, INFINITE)    \
    static inline T nd__row_##name##_##TYPE(const T *x, int64_t n) {   \
        I max = LEAST, min = MOST;                                     \
        ND__PRAGMA(omp simd reduction(max : max) reduction(min : min)) \
        for (int64_t i = 0; i < n; i++) {                              \
            I bits;                                                    \
            memcpy(&bits, &x[i], sizeof bits);                         \
            I key = bits ^ ((bits >> (8 * sizeof bits - 1)) & MOST);   \
            max = ND__BETTER_max(key, max);                            \
            min = ND__BETTER_min(key, min);                            \
        }                                                              \
        I bits = name ^ ((name >> (8 * sizeof name - 1)) & MOST);      \
        T result;                                                      \
        memcpy(&result, &bits, sizeof result);                         \
        return max > INFINITE || min < ~INFINITE ? (T)NAN : result;    \
    }
#if defined(__AVX2__)
/// By the bits as they are, of which there are vectors with a sign and without: of floats without a sign
/// the larger ones are larger, of those with one the smaller ones, and of both those with one.
#define ND__EXTREMUM_F32(name, BITS)                                                      \
    static inline float nd__row_##name##_f32(const float *x, int64_t n) {                 \
        int32_t largest = INT32_MIN;                                                      \
        uint32_t last = 0, first = UINT32_MAX;                                            \
        ND__PRAGMA(omp simd reduction(max : largest, last) reduction(min : first))        \
        for (int64_t i = 0; i < n; i++) {                                                 \
            uint32_t bits;                                                                \
            memcpy(&bits, &x[i], sizeof bits);                                            \
            largest = ND__BETTER_max((int32_t)bits, largest);                             \
            last = ND__BETTER_max(bits, last);                                            \
            first = ND__BETTER_min(bits, first);                                          \
        }                                                                                 \
        uint32_t bits = BITS;                                                             \
        float result;                                                                     \
        memcpy(&result, &bits, sizeof result);                                            \
        return largest > 0x7f800000 || last > UINT32_C(0xff800000) ? (float)NAN : result; \
    }
ND__EXTREMUM_F32(max, largest >= 0 ? (uint32_t)largest : first)
ND__EXTREMUM_F32(min, last >> 31 ? last : first)
#undef ND__EXTREMUM_F32
#else
ND__FLOAT_EXTREMUM(max, f32, float, int32_t, INT32_MIN, INT32_MAX, 0x7f800000)
ND__FLOAT_EXTREMUM(min, f32, float, int32_t, INT32_MIN, INT32_MAX, 0x7f800000)
#endif
ND__FLOAT_EXTREMUM(max, f64, double, int64_t, INT64_MIN, INT64_MAX, 0x7ff0000000000000)
ND__FLOAT_EXTREMUM(min, f64, double, int64_t, INT64_MIN, INT64_MAX, 0x7ff0000000000000)

#define ND__INTEGER_EXTREMUM(name, TYPE, T)                          \
    static inline T nd__row_##name##_##TYPE(const T *x, int64_t n) { \
        T best = x[0];                                               \
        ND__PRAGMA(omp simd reduction(name : best))                  \
        for (int64_t i = 0; i < n; i++)                              \
            best = ND__BETTER_##name(x[i], best);                    \
        return best;                                                 \
    }
ND__INTEGER_EXTREMUM(max, u8, uint8_t)
ND__INTEGER_EXTREMUM(min, u8, uint8_t)
ND__INTEGER_EXTREMUM(max, i32, int32_t)
ND__INTEGER_EXTREMUM(min, i32, int32_t)
ND__INTEGER_EXTREMUM(max, i64, int64_t)
ND__INTEGER_EXTREMUM(min, i64, int64_t)
ND__INTEGER_EXTREMUM(max, u64, uint64_t)
ND__INTEGER_EXTREMUM(min, u64, uint64_t)
#endif
