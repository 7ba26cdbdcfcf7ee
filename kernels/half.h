// The 16-bit floats, f16 (IEEE 754 binary16) and bf16 (the upper half of a binary32), as bits; for
// C and for CUDA.
//
// Invariant: a conversion to them rounds once, to nearest with ties to even, whatever it comes
// from; what is too large becomes infinity, and NaN stays NaN, with its sign and the upper bits of
// its payload. A conversion from them is exact. Where a value passes through a wider type that
// cannot hold it, it is rounded to odd there: an inexact value takes the neighbour with the last
// bit set, so that the rounding that follows sees on which side of a tie it was (Boldo, Melquiond:
// "When double rounding is odd", 2005).
#ifndef ND_KERNELS_HALF_H
#define ND_KERNELS_HALF_H
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define ND_HALF_FUNCTION static __host__ __device__ __forceinline__
#else
#define ND_HALF_FUNCTION static inline
#endif

ND_HALF_FUNCTION uint32_t nd__f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
ND_HALF_FUNCTION float nd__f32_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

ND_HALF_FUNCTION float nd__bf16_to_f32(uint16_t x) {
    return nd__f32_of_bits((uint32_t)x << 16);
}

ND_HALF_FUNCTION uint16_t nd__f32_to_bf16(float x) {
    uint32_t bits = nd__f32_bits(x);
    uint32_t nearest = bits + 0x7FFFu + ((bits >> 16) & 1u); // a carry out of 0x7F7F is infinity
    uint32_t quiet = bits | 0x400000u;
    return (uint16_t)((x != x ? quiet : nearest) >> 16);
}

/// Without branches, for loops that become vectors. A signalling NaN becomes a quiet one, as in
/// hardware.
ND_HALF_FUNCTION float nd__f16_to_f32_plain(uint16_t x) {
    uint32_t magnitude = (uint32_t)(x & 0x7FFFu) << 13;
    uint32_t exponent = magnitude & 0x0F800000u;
    uint32_t normal = magnitude + (112u << 23); // the biases are 127 and 15
    uint32_t special = magnitude + (224u << 23);
    special |= magnitude & 0x007FE000u ? 0x400000u : 0u;
    // A subnormal has no hidden one: it is given one, which the subtraction takes away.
    float subnormal = nd__f32_of_bits(magnitude + (113u << 23)) - 0x1p-14f;
    uint32_t bits = exponent == 0 ? nd__f32_bits(subnormal) : normal;
    bits = exponent == 0x0F800000u ? special : bits;
    return nd__f32_of_bits(bits | (uint32_t)(x & 0x8000u) << 16);
}

ND_HALF_FUNCTION uint16_t nd__f32_to_f16_plain(float x) {
    uint32_t bits = nd__f32_bits(x), sign = bits & 0x80000000u, magnitude = bits ^ sign;
    uint32_t normal = (magnitude - (112u << 23) + 0xFFFu + ((magnitude >> 13) & 1u)) >> 13;
    // Adding 1/2 leaves a subnormal's bits, rounded, at the end of the significand.
    uint32_t subnormal = nd__f32_bits(nd__f32_of_bits(magnitude) + 0.5f) - 0x3F000000u;
    uint32_t nan = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
    uint32_t result = magnitude < 0x38800000u ? subnormal : normal; // below 2^-14
    result = magnitude >= 0x477FF000u ? 0x7C00u : result;           // 65520: nearer to 65536
    result = magnitude > 0x7F800000u ? nan : result;
    return (uint16_t)(result | sign >> 16);
}

#if defined(__F16C__) && !defined(__CUDACC__)
#include <immintrin.h>
ND_HALF_FUNCTION float nd__f16_to_f32(uint16_t x) {
    return _cvtsh_ss(x);
}
ND_HALF_FUNCTION uint16_t nd__f32_to_f16(float x) {
    return (uint16_t)_cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}
#else
ND_HALF_FUNCTION float nd__f16_to_f32(uint16_t x) {
    return nd__f16_to_f32_plain(x);
}
ND_HALF_FUNCTION uint16_t nd__f32_to_f16(float x) {
    return nd__f32_to_f16_plain(x);
}
#endif

/// Rounded to odd: a f16 or bf16 made from it is as if made from x.
ND_HALF_FUNCTION float nd__f64_to_f32_odd(double x) {
    float nearest = (float)x;
    uint32_t bits = nd__f32_bits(nearest);
    double back = (double)nearest;
    double magnitude = x < 0 ? -x : x, reached = back < 0 ? -back : back;
    uint32_t other = reached > magnitude ? bits - 1u : bits + 1u;
    // NaN is unequal to itself, too, and stays.
    return nd__f32_of_bits(reached != magnitude && x == x && !(bits & 1u) ? other : bits);
}
/// Likewise; below 2^53 an integer is exact.
ND_HALF_FUNCTION double nd__i64_to_f64_odd(int64_t x) {
    int64_t odd = (x & ~(int64_t)2047) | (x & 2047 ? 1024 : 0);
    int64_t limit = (int64_t)1 << 53;
    return (double)(x >= -limit && x <= limit ? x : odd);
}
ND_HALF_FUNCTION double nd__u64_to_f64_odd(uint64_t x) {
    uint64_t odd = (x & ~(uint64_t)4095) | (x & 4095 ? 2048u : 0u);
    return (double)(x <= (uint64_t)1 << 53 ? x : odd);
}

/// The number next to a towards b, of a format whose infinity has these bits; b where both are
/// equal, NaN where one is.
ND_HALF_FUNCTION uint16_t nd__next_half(uint16_t a, uint16_t b, uint16_t infinity) {
    int a_magnitude = a & 0x7FFF, b_magnitude = b & 0x7FFF;
    if (a_magnitude > infinity || b_magnitude > infinity)
        return (uint16_t)(infinity | infinity >> 1 | infinity >> 2);
    int from = a & 0x8000 ? -a_magnitude : a_magnitude;
    int to = b & 0x8000 ? -b_magnitude : b_magnitude;
    if (from == to)
        return b;
    if (from == 0)
        return (uint16_t)((b & 0x8000) | 1);
    return (uint16_t)((to > from) == (from > 0) ? a + 1 : a - 1);
}

ND_HALF_FUNCTION uint16_t nd__f64_to_f16(double x) {
    return nd__f32_to_f16(nd__f64_to_f32_odd(x));
}
ND_HALF_FUNCTION uint16_t nd__f64_to_bf16(double x) {
    return nd__f32_to_bf16(nd__f64_to_f32_odd(x));
}
ND_HALF_FUNCTION double nd__f16_to_f64(uint16_t x) {
    return (double)nd__f16_to_f32(x);
}
ND_HALF_FUNCTION double nd__bf16_to_f64(uint16_t x) {
    return (double)nd__bf16_to_f32(x);
}
#endif
