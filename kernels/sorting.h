// The order that sorting and searching share on every backend, for C and for CUDA.
//
// Invariant: two elements compare as their keys do, unsigned numbers of 64 bits. -0 and 0 have one
// key; NaN, with any sign and payload, has one, which is above infinity's. Those of a dtype of up to
// four bytes compare as their lower 32 bits do, too.
#ifndef ND_KERNELS_SORTING_H
#define ND_KERNELS_SORTING_H
#include "kernels/kernel.h"

/// Ranks at most of which an argsort of ranks writes the positions.
#define ND__SORTING_RANKS 9

#ifdef __CUDACC__
#define ND_SORTING_FUNCTION static __host__ __device__ __forceinline__
#else
#define ND_SORTING_FUNCTION static inline
#endif

/// The key of a float of `bits` bits; those of infinity say where NaN begins.
ND_SORTING_FUNCTION uint64_t nd__sorting_float_key(uint64_t value, int bits, uint64_t infinity) {
    uint64_t sign = (uint64_t)1 << (bits - 1), magnitude = value & (sign - 1);
    if (magnitude > infinity)
        return UINT64_MAX;
    return value & sign ? sign - magnitude : sign + magnitude;
}

/// The key of an element of x.
ND_SORTING_FUNCTION uint64_t nd__sorting_key(const void *x, nd_dtype dtype, int64_t index) {
    const uint64_t middle = (uint64_t)1 << 63;
    switch (dtype) {
    case ND_BOOL:
    case ND_U8:
        return ((const uint8_t *)x)[index];
    case ND_U16:
        return ((const uint16_t *)x)[index];
    case ND_U32:
        return ((const uint32_t *)x)[index];
    case ND_U64:
        return ((const uint64_t *)x)[index];
    case ND_I8:
        return (uint64_t)(((const int8_t *)x)[index] + 0x80);
    case ND_I16:
        return (uint64_t)(((const int16_t *)x)[index] + 0x8000);
    case ND_I32:
        return (uint64_t)(((const int32_t *)x)[index] + (int64_t)0x80000000);
    case ND_I64:
        return (uint64_t)((const int64_t *)x)[index] ^ middle;
    case ND_F16:
        return nd__sorting_float_key(((const uint16_t *)x)[index], 16, 0x7C00);
    case ND_BF16:
        return nd__sorting_float_key(((const uint16_t *)x)[index], 16, 0x7F80);
    case ND_F32:
        return nd__sorting_float_key(((const uint32_t *)x)[index], 32, 0x7F800000u);
    case ND_F64:
        return nd__sorting_float_key(((const uint64_t *)x)[index], 64,
                                     (uint64_t)0x7FF0000000000000u);
    default:
        return 0;
    }
}

/// How many of `count` sorted elements, `stride` apart, come before a key; `right`: and how many are
/// equal to it.
ND_SORTING_FUNCTION int64_t nd__sorting_rank(const void *sorted, nd_dtype dtype, int64_t begin,
                                             int64_t stride, int64_t count, uint64_t key,
                                             bool right) {
    int64_t low = 0;
    while (low < count) {
        int64_t middle = low + (count - low) / 2;
        uint64_t other = nd__sorting_key(sorted, dtype, begin + middle * stride);
        if (other < key || (right && other == key))
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}
#endif
