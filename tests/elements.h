// One element of host memory of any dtype as a double, for tests; read and written here, without
// the library.
#ifndef ND_TESTS_ELEMENTS_H
#define ND_TESTS_ELEMENTS_H
#include "kernels/half.h"
#include <nd/base.h>

#define ELEMENTS_EACH_PLAIN(CASE) \
    CASE(ND_BOOL, uint8_t)        \
    CASE(ND_U8, uint8_t)          \
    CASE(ND_U16, uint16_t)        \
    CASE(ND_U32, uint32_t)        \
    CASE(ND_U64, uint64_t)        \
    CASE(ND_I8, int8_t)           \
    CASE(ND_I16, int16_t)         \
    CASE(ND_I32, int32_t)         \
    CASE(ND_I64, int64_t)         \
    CASE(ND_F32, float)           \
    CASE(ND_F64, double)

static inline bool is_float(nd_dtype dtype) {
    return dtype == ND_F16 || dtype == ND_BF16 || dtype == ND_F32 || dtype == ND_F64;
}
static inline bool is_unsigned(nd_dtype dtype) {
    return dtype == ND_U8 || dtype == ND_U16 || dtype == ND_U32 || dtype == ND_U64;
}

static inline double element_as_double(const void *data, nd_dtype dtype, int64_t offset) {
    switch (dtype) {
#define READ(DTYPE, T) \
    case DTYPE:        \
        return (double)((const T *)data)[offset];
        ELEMENTS_EACH_PLAIN(READ)
#undef READ
    case ND_F16:
        return nd__f16_to_f64(((const uint16_t *)data)[offset]);
    default:
        return nd__bf16_to_f64(((const uint16_t *)data)[offset]);
    }
}

static inline void set_element(void *data, nd_dtype dtype, int64_t offset, double value) {
    switch (dtype) {
#define WRITE(DTYPE, T)                   \
    case DTYPE:                           \
        ((T *)data)[offset] = (T)(value); \
        break;
        ELEMENTS_EACH_PLAIN(WRITE)
#undef WRITE
    case ND_F16:
        ((uint16_t *)data)[offset] = nd__f64_to_f16(value);
        break;
    default:
        ((uint16_t *)data)[offset] = nd__f64_to_bf16(value);
    }
}
#endif
