// Conversions between dtypes, defined for every value: where C leaves a conversion undefined (a
// float that the integer type cannot hold) the nearest value is taken, and NaN becomes 0. Integers
// to narrower integers keep the low bits; anything to bool is x != 0. Floats round to nearest,
// once.
//
// nd__<from>_to_<to>, for elements one at a time. What C itself converts as said has none.
#ifndef ND_KERNELS_CPU_CONVERT_H
#define ND_KERNELS_CPU_CONVERT_H
#include "kernels/half.h"
#include "kernels/kernel.h"
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
#define ND__FLOAT_TO_INTEGERS(from, name)                                                 \
    ND__FLOAT_TO_INTEGER(from, name, uint8_t, u8, 0, 0x1p8, 0, UINT8_MAX)                 \
    ND__FLOAT_TO_INTEGER(from, name, uint16_t, u16, 0, 0x1p16, 0, UINT16_MAX)             \
    ND__FLOAT_TO_INTEGER(from, name, uint32_t, u32, 0, 0x1p32, 0, UINT32_MAX)             \
    ND__FLOAT_TO_INTEGER(from, name, uint64_t, u64, 0, 0x1p64, 0, UINT64_MAX)             \
    ND__FLOAT_TO_INTEGER(from, name, int8_t, i8, -0x1p7, 0x1p7, INT8_MIN, INT8_MAX)       \
    ND__FLOAT_TO_INTEGER(from, name, int16_t, i16, -0x1p15, 0x1p15, INT16_MIN, INT16_MAX) \
    ND__FLOAT_TO_INTEGER(from, name, int32_t, i32, -0x1p31, 0x1p31, INT32_MIN, INT32_MAX) \
    ND__FLOAT_TO_INTEGER(from, name, int64_t, i64, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX) \
    static inline uint8_t nd__##name##_to_b8(from x) {                                    \
        return x != (from)0;                                                              \
    }
ND__FLOAT_TO_INTEGERS(float, f32)
ND__FLOAT_TO_INTEGERS(double, f64)

static inline float nd__f64_to_f32(double x) {
    return (float)x;
}
static inline double nd__f64_to_f64(double x) {
    return x;
}

/// Writes `value` in the dtype's own bytes; `integer` for the integers of 64 bits, which a double
/// cannot hold.
static inline void nd__encode(nd_dtype dtype, double value, int64_t integer, void *ret_element) {
    switch (dtype) {
#define ND__ENCODE_CASE(ENUMERATOR, name, T)          \
    case ENUMERATOR:                                  \
        *(T *)ret_element = nd__f64_to_##name(value); \
        break;
        ND__ENCODE_CASE(ND_BOOL, b8, uint8_t)
        ND__ENCODE_CASE(ND_U8, u8, uint8_t)
        ND__ENCODE_CASE(ND_U16, u16, uint16_t)
        ND__ENCODE_CASE(ND_U32, u32, uint32_t)
        ND__ENCODE_CASE(ND_I8, i8, int8_t)
        ND__ENCODE_CASE(ND_I16, i16, int16_t)
        ND__ENCODE_CASE(ND_I32, i32, int32_t)
        ND__ENCODE_CASE(ND_F16, f16, uint16_t)
        ND__ENCODE_CASE(ND_BF16, bf16, uint16_t)
        ND__ENCODE_CASE(ND_F32, f32, float)
        ND__ENCODE_CASE(ND_F64, f64, double)
#undef ND__ENCODE_CASE
    case ND_I64:
    case ND_U64:
        *(int64_t *)ret_element = integer;
        break;
    case ND_DTYPE_COUNT:
        break;
    }
}
#endif
