// Largest and smallest element of a contiguous row of n >= 1 elements; NaN when there is one.
//
// Float comparisons do not vectorise as a reduction without giving up NaN, so floats are compared
// as the integers that order alike: sign and magnitude become two's complement.
//
// What is left of a row behind whole vectors is compared in a vector, with some before it once more.
#ifndef ND_KERNELS_CPU_EXTREMUM_H
#define ND_KERNELS_CPU_EXTREMUM_H
#include "kernels/cpu/rows.h"

#define ND__BETTER_max(a, b) ((a) > (b) ? (a) : (b))
#define ND__BETTER_min(a, b) ((a) < (b) ? (a) : (b))

/// As such integers, of n >= 1 elements.
#define ND__FLOAT_KEYS(TYPE, T, I, LEAST, MOST)                                   \
    typedef struct nd__keys_##TYPE {                                              \
        I max, min;                                                               \
    } nd__keys_##TYPE;                                                            \
    static inline I nd__key_##TYPE(const T *x) {                                  \
        I bits;                                                                   \
        memcpy(&bits, x, sizeof bits);                                            \
        return bits ^ ((bits >> (8 * sizeof bits - 1)) & MOST);                   \
    }                                                                             \
    static inline __attribute__((always_inline))                                  \
    nd__keys_##TYPE nd__dense_keys_##TYPE(const T *x, int64_t n) {                \
        I max = LEAST, min = MOST;                                                \
        ND__PRAGMA(omp simd reduction(max : max) reduction(min : min))            \
        for (int64_t i = 0; i < n; i++) {                                         \
            const I key = nd__key_##TYPE(x + i);                                  \
            max = ND__BETTER_max(key, max);                                       \
            min = ND__BETTER_min(key, min);                                       \
        }                                                                         \
        return (nd__keys_##TYPE){max, min};                                       \
    }                                                                             \
    static inline nd__keys_##TYPE nd__row_keys_##TYPE(const T *x, int64_t n) {    \
        const int64_t lanes = 64 / (int64_t)sizeof(T), whole = n / lanes * lanes; \
        nd__keys_##TYPE best = {LEAST, MOST}, rest;                               \
        if (whole == 0) {                                                         \
            for (int64_t i = 0; i < n; i++) {                                     \
                const I key = nd__key_##TYPE(x + i);                              \
                best.max = ND__BETTER_max(key, best.max);                         \
                best.min = ND__BETTER_min(key, best.min);                         \
            }                                                                     \
            return best;                                                          \
        }                                                                         \
        best = nd__dense_keys_##TYPE(x, whole);                                   \
        if (whole == n)                                                           \
            return best;                                                          \
        rest = nd__dense_keys_##TYPE(x + n - lanes, lanes);                       \
        return (nd__keys_##TYPE){ND__BETTER_max(rest.max, best.max),              \
                                 ND__BETTER_min(rest.min, best.min)};             \
    }
ND__FLOAT_KEYS(f32, float, int32_t, INT32_MIN, INT32_MAX)
ND__FLOAT_KEYS(f64, double, int64_t, INT64_MIN, INT64_MAX)

/// A NaN is beyond infinity on the side of its sign, which the extremum of the other side finds.
#define ND__FLOAT_EXTREMUM(name, TYPE, T, I, MOST, INFINITE)                  \
    static inline T nd__row_##name##_##TYPE(const T *x, int64_t n) {          \
        const nd__keys_##TYPE keys = nd__row_keys_##TYPE(x, n);               \
        const I key = keys.name;                                              \
        const I bits = key ^ ((key >> (8 * sizeof key - 1)) & MOST);          \
        T result;                                                             \
        memcpy(&result, &bits, sizeof result);                                \
        return keys.max > INFINITE || keys.min < ~INFINITE ? (T)NAN : result; \
    }
ND__FLOAT_EXTREMUM(max, f32, float, int32_t, INT32_MAX, 0x7f800000)
ND__FLOAT_EXTREMUM(min, f32, float, int32_t, INT32_MAX, 0x7f800000)
ND__FLOAT_EXTREMUM(max, f64, double, int64_t, INT64_MAX, 0x7ff0000000000000)
ND__FLOAT_EXTREMUM(min, f64, double, int64_t, INT64_MAX, 0x7ff0000000000000)

#define ND__INTEGER_EXTREMUM(name, TYPE, T)                                                       \
    __attribute__((noinline, unused)) static T nd__dense_##name##_##TYPE(const T *x, int64_t n) { \
        T best = x[0];                                                                            \
        ND__PRAGMA(omp simd reduction(name : best))                                               \
        for (int64_t i = 0; i < n; i++)                                                           \
            best = ND__BETTER_##name(x[i], best);                                                 \
        return best;                                                                              \
    }                                                                                             \
    static inline T nd__row_##name##_##TYPE(const T *x, int64_t n) {                              \
        const int64_t lanes = 64 / (int64_t)sizeof(T), whole = n / lanes * lanes;                 \
        T best = nd__dense_##name##_##TYPE(x, whole ? whole : n);                                 \
        if (whole == 0 || whole == n)                                                             \
            return best;                                                                          \
        T rest = nd__dense_##name##_##TYPE(x + n - lanes, lanes);                                 \
        return ND__BETTER_##name(rest, best);                                                     \
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
