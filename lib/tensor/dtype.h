// What the library asks of a dtype that is known to be valid.
#ifndef ND_LIB_TENSOR_DTYPE_H
#define ND_LIB_TENSOR_DTYPE_H
#include <nd/base.h>
#include <stdbool.h>

/// Bytes of one element: nd_dtype_get_size without the check.
extern const uint8_t nd__dtype_bytes[ND_DTYPE_COUNT];

typedef enum nd__dtype_kind {
    ND__DTYPE_BOOL,
    ND__DTYPE_UNSIGNED,
    ND__DTYPE_SIGNED,
    ND__DTYPE_FLOAT
} nd__dtype_kind;

extern const uint8_t nd__dtype_kinds[ND_DTYPE_COUNT]; ///< of nd__dtype_kind

/// Whether results of it can require a gradient.
static inline bool nd__dtype_is_float(nd_dtype dtype) {
    return nd__dtype_kinds[dtype] == ND__DTYPE_FLOAT;
}
/// Whether it is a float of 16 bits, whose arithmetic is done in f32.
static inline bool nd__dtype_is_half(nd_dtype dtype) {
    return dtype == ND_F16 || dtype == ND_BF16;
}
/// Whether it is an integer, with a sign or without; bool is none.
static inline bool nd__dtype_is_integer(nd_dtype dtype) {
    return nd__dtype_kinds[dtype] == ND__DTYPE_UNSIGNED ||
           nd__dtype_kinds[dtype] == ND__DTYPE_SIGNED;
}
#endif
