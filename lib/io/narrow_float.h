// Floats of eight bits and of four, which files have and ndarc's tensors do not: each of their values
// is one of f16, or of f32 where there are only powers of two, and is read as that.
//
// E4M3 and E5M2 say how many bits the exponent and the mantissa have. E4M3 has no infinities; the
// FNUZ ones have neither those nor a negative zero, whose byte is their only NaN, and an exponent
// that is one smaller. E8M0 is an exponent alone. E2M1 has neither infinities nor NaN; a byte is two
// of them, of which the lower half is the first. Definitions: "OCP 8-bit Floating Point
// Specification" 1.0, "OCP Microscaling Formats" 1.0, and Noune et al., arXiv:2206.02915, for FNUZ;
// the order of halves is PyTorch's, of float4_e2m1fn_x2.
#ifndef ND_LIB_IO_NARROW_FLOAT_H
#define ND_LIB_IO_NARROW_FLOAT_H
#include <nd/base.h>
#include <stddef.h>
#include <stdint.h>

typedef enum nd_narrow_float {
    ND__NARROW_NONE, ///< another dtype
    ND__NARROW_E4M3,
    ND__NARROW_E5M2,
    ND__NARROW_E4M3FNUZ,
    ND__NARROW_E5M2FNUZ,
    ND__NARROW_E8M0,
    ND__NARROW_E2M1,
} nd_narrow_float;

/// What its values become: ND_F16, or ND_F32 for powers of two. NaN becomes a quiet one.
nd_dtype nd__narrow_float_dtype(nd_narrow_float kind);
/// How many of them are in a byte.
int nd__narrow_float_per_byte(nd_narrow_float kind);
/// Makes `count` elements of that dtype of their bytes, which are the last ones of where these lie.
/// Whole bytes.
void nd__narrow_float_widen(nd_narrow_float kind, void *elements, size_t count);
#endif
