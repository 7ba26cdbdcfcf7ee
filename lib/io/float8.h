// Floats of eight bits, which files have and ndarc's tensors do not: each of their values is one of
// f16, or of f32 where there are only powers of two, and is read as that.
//
// E4M3 and E5M2 say how many bits the exponent and the mantissa have. E4M3 has no infinities; the
// FNUZ ones have neither those nor a negative zero, whose byte is their only NaN, and an exponent
// that is one smaller. E8M0 is an exponent alone. Definitions: "OCP 8-bit Floating Point
// Specification" 1.0, "OCP Microscaling Formats" 1.0, and Noune et al., arXiv:2206.02915, for FNUZ.
#ifndef ND_LIB_IO_FLOAT8_H
#define ND_LIB_IO_FLOAT8_H
#include <nd/base.h>
#include <stddef.h>
#include <stdint.h>

typedef enum nd_float8 {
    ND__FLOAT8_NONE, ///< another dtype
    ND__FLOAT8_E4M3,
    ND__FLOAT8_E5M2,
    ND__FLOAT8_E4M3FNUZ,
    ND__FLOAT8_E5M2FNUZ,
    ND__FLOAT8_E8M0,
} nd_float8;

/// What its values become: ND_F16, or ND_F32 for powers of two. NaN becomes a quiet one.
nd_dtype nd__float8_dtype(nd_float8 kind);
/// Makes elements of that dtype of `count` bytes, which are the last ones of where these lie.
void nd__float8_widen(nd_float8 kind, void *elements, size_t count);
#endif
