// Philox 4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011)
// and how its words become elements of a random tensor; for C and for CUDA.
//
// Invariant: element e of a tensor is a pure function of (seed, stream, e), so every backend and
// any number of threads give the same tensor. The 128-bit counter is (block, stream), the key is
// seed.
//
//   u32 words    block e / 4, word e % 4                     rand, randn of f32, f16, bf16
//   u64 words    block e / 2, words 2 (e % 2) (high half) and 2 (e % 2) + 1    the others, randint
//
// A normal pair (elements 2i, 2i + 1) comes from one pair of uniforms by Box and Muller, computed
// in double for both dtypes: rounding to f32 then hides the last-bit differences of math libraries.
#ifndef ND_KERNELS_PHILOX_H
#define ND_KERNELS_PHILOX_H
#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define ND_PHILOX_FUNCTION static __host__ __device__ __forceinline__
#else
#define ND_PHILOX_FUNCTION static inline
#endif

typedef struct nd__philox_block {
    uint32_t word[4];
} nd__philox_block;

ND_PHILOX_FUNCTION nd__philox_block nd__philox(nd__philox_block counter, uint32_t key0,
                                               uint32_t key1) {
    for (int round = 0; round < 10; round++) {
        uint64_t product0 = (uint64_t)0xD2511F53u * counter.word[0];
        uint64_t product1 = (uint64_t)0xCD9E8D57u * counter.word[2];
        nd__philox_block next;
        next.word[0] = (uint32_t)(product1 >> 32) ^ counter.word[1] ^ key0;
        next.word[1] = (uint32_t)product1;
        next.word[2] = (uint32_t)(product0 >> 32) ^ counter.word[3] ^ key1;
        next.word[3] = (uint32_t)product0;
        counter = next;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
    return counter;
}

/// Block number `block` of the sequence (seed, stream).
ND_PHILOX_FUNCTION nd__philox_block nd__philox_at(uint64_t seed, uint64_t stream, uint64_t block) {
    nd__philox_block counter;
    counter.word[0] = (uint32_t)block;
    counter.word[1] = (uint32_t)(block >> 32);
    counter.word[2] = (uint32_t)stream;
    counter.word[3] = (uint32_t)(stream >> 32);
    return nd__philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

/// Element `index` (0 or 1) of a block taken as two 64-bit words.
ND_PHILOX_FUNCTION uint64_t nd__philox_u64(nd__philox_block block, int index) {
    return (uint64_t)block.word[2 * index] << 32 | block.word[2 * index + 1];
}

/// [0, 1), multiples of 2^-11, 2^-8, 2^-24 and 2^-53: what the dtype holds below 1, so that nothing
/// rounds up to 1. Normals of 16-bit floats are those of f32, rounded.
ND_PHILOX_FUNCTION float nd__uniform_f16(uint32_t word) {
    return (float)(word >> 21) * 0x1p-11f;
}
ND_PHILOX_FUNCTION float nd__uniform_bf16(uint32_t word) {
    return (float)(word >> 24) * 0x1p-8f;
}
ND_PHILOX_FUNCTION float nd__uniform_f32(uint32_t word) {
    return (float)(word >> 8) * 0x1p-24f;
}
ND_PHILOX_FUNCTION double nd__uniform_f64(uint64_t word) {
    return (double)(word >> 11) * 0x1p-53;
}

/// Two independent standard normals from u1 in (0, 1] and u2 in [0, 1).
ND_PHILOX_FUNCTION void nd__normal_pair(double u1, double u2, double *ret_first,
                                        double *ret_second) {
    double radius = sqrt(-2.0 * log(u1));
    double angle = 6.283185307179586476925 * u2;
    *ret_first = radius * cos(angle);
    *ret_second = radius * sin(angle);
}

/// The four f32 normals of a block: elements 4 block ... 4 block + 3.
ND_PHILOX_FUNCTION void nd__normal_f32(nd__philox_block block, float ret_value[4]) {
    for (int pair = 0; pair < 2; pair++) {
        double first, second;
        nd__normal_pair((double)((block.word[2 * pair] >> 8) + 1) * 0x1p-24,
                        (double)(block.word[2 * pair + 1] >> 8) * 0x1p-24, &first, &second);
        ret_value[2 * pair] = (float)first;
        ret_value[2 * pair + 1] = (float)second;
    }
}

/// The two f64 normals of a block: elements 2 block, 2 block + 1.
ND_PHILOX_FUNCTION void nd__normal_f64(nd__philox_block block, double ret_value[2]) {
    nd__normal_pair((double)((nd__philox_u64(block, 0) >> 11) + 1) * 0x1p-53,
                    nd__uniform_f64(nd__philox_u64(block, 1)), &ret_value[0], &ret_value[1]);
}

/// low + floor(word * (high - low) / 2^64). The result's bias is below (high - low) / 2^64.
ND_PHILOX_FUNCTION int64_t nd__uniform_i64(uint64_t word, int64_t low, int64_t high) {
    uint64_t range = (uint64_t)high - (uint64_t)low;
    uint64_t word0 = word & 0xFFFFFFFFu, word1 = word >> 32;
    uint64_t range0 = range & 0xFFFFFFFFu, range1 = range >> 32;
    uint64_t middle = word1 * range0 + (word0 * range0 >> 32);
    uint64_t low_middle = word0 * range1 + (middle & 0xFFFFFFFFu);
    uint64_t product_high = word1 * range1 + (middle >> 32) + (low_middle >> 32);
    return (int64_t)((uint64_t)low + product_high);
}
#endif
