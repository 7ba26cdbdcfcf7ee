// What the library asks of a dtype that is known to be valid.
#ifndef ND_LIB_TENSOR_DTYPE_H
#define ND_LIB_TENSOR_DTYPE_H
#include <nd/tensor.h>

/// Bytes of one element: nd_dtype_get_size without the check.
extern const uint8_t nd__dtype_bytes[ND_DTYPE_COUNT];

extern const uint8_t nd__dtype_kinds[ND_DTYPE_COUNT]; ///< of nd_dtype_kind

/// Whether results of it can require a gradient.
static inline bool nd__dtype_is_float(nd_dtype dtype) {
    return nd__dtype_kinds[dtype] == ND_KIND_FLOAT;
}
/// Whether it is a float of 16 bits, whose arithmetic is done in f32.
static inline bool nd__dtype_is_half(nd_dtype dtype) {
    return dtype == ND_F16 || dtype == ND_BF16;
}
/// Whether it is an integer, with a sign or without; bool is none.
static inline bool nd__dtype_is_integer(nd_dtype dtype) {
    return nd__dtype_kinds[dtype] == ND_KIND_UNSIGNED || nd__dtype_kinds[dtype] == ND_KIND_SIGNED;
}
/// The first of `count` bytes that is no bool, or -1: what loops over bools do with another byte is
/// not defined.
int64_t nd__dtype_find_no_bool(const void *data, int64_t count);
#endif
