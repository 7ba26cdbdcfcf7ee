// Conversions between dtypes, defined for every value: where C leaves a conversion undefined (a
// float that the integer type cannot hold) the nearest value is taken, and NaN becomes 0. Integers
// to narrower integers keep the low bits; anything to bool is x != 0.
#ifndef ND_KERNELS_CPU_CONVERT_H
#define ND_KERNELS_CPU_CONVERT_H
#include <stdint.h>

// Each limit is exact in the float type. What the integer cannot hold, NaN too, is converted as 0,
// so that no conversion is undefined and all lanes of a vector can do the same.
#define ND__FLOAT_TO_INTEGER(from, from_name, to, to_name, below, above, lowest, highest) \
    static inline to nd__##from_name##_to_##to_name(from x) {                             \
        from inside = x > (from)(below) && x < (from)(above) ? x : (from)0;               \
        to result = (to)inside;                                                           \
        result = x >= (from)(above) ? (highest) : result;                                 \
        return x <= (from)(below) ? (lowest) : result;                                    \
    }
#define ND__FLOAT_TO_INTEGERS(from, from_name)                                                  \
    ND__FLOAT_TO_INTEGER(from, from_name, uint8_t, u8, 0, 256, 0, UINT8_MAX)                    \
    ND__FLOAT_TO_INTEGER(from, from_name, int32_t, i32, -2147483648.0, 2147483648.0, INT32_MIN, \
                         INT32_MAX)                                                             \
    ND__FLOAT_TO_INTEGER(from, from_name, int64_t, i64, -9223372036854775808.0,                 \
                         9223372036854775808.0, INT64_MIN, INT64_MAX)
ND__FLOAT_TO_INTEGERS(float, f32)
ND__FLOAT_TO_INTEGERS(double, f64)

#define ND__CONVERT(from, from_name, to, to_name)             \
    static inline to nd__##from_name##_to_##to_name(from x) { \
        return (to)x;                                         \
    }
#define ND__TO_BOOL(from, from_name)                        \
    static inline uint8_t nd__##from_name##_to_b8(from x) { \
        return x != (from)0;                                \
    }
#define ND__CONVERT_INTEGER(from, from_name)   \
    ND__TO_BOOL(from, from_name)               \
    ND__CONVERT(from, from_name, uint8_t, u8)  \
    ND__CONVERT(from, from_name, int32_t, i32) \
    ND__CONVERT(from, from_name, int64_t, i64) \
    ND__CONVERT(from, from_name, float, f32)   \
    ND__CONVERT(from, from_name, double, f64)
ND__CONVERT_INTEGER(uint8_t, b8)
ND__CONVERT_INTEGER(uint8_t, u8)
ND__CONVERT_INTEGER(int32_t, i32)
ND__CONVERT_INTEGER(int64_t, i64)
ND__TO_BOOL(float, f32)
ND__CONVERT(float, f32, float, f32)
ND__CONVERT(float, f32, double, f64)
ND__TO_BOOL(double, f64)
ND__CONVERT(double, f64, float, f32)
ND__CONVERT(double, f64, double, f64)
#endif
