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
// in double for both dtypes: rounding to f32 then hides the last-bit differences of a compiler that
// rounds a product and a sum at once. Logarithm and angle are computed here, without branches, so
// that they are the same wherever sums and products are, and loops over them are vectorised.
#ifndef ND_KERNELS_PHILOX_H
#define ND_KERNELS_PHILOX_H
#include <math.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define ND_PHILOX_FUNCTION static __host__ __device__ __forceinline__
#else
#define ND_PHILOX_FUNCTION static inline __attribute__((always_inline))
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

#define ND__PHILOX_LANES 64

/// Blocks first ... first + ND__PHILOX_LANES - 1 of the sequence (seed, stream) at once, word by
/// word: the loops over them are vectorised.
ND_PHILOX_FUNCTION void nd__philox_many(uint64_t seed, uint64_t stream, uint64_t first,
                                        uint32_t word[4][ND__PHILOX_LANES]) {
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int lane = 0; lane < ND__PHILOX_LANES; lane++) {
        word[0][lane] = (uint32_t)(first + (uint64_t)lane);
        word[1][lane] = (uint32_t)((first + (uint64_t)lane) >> 32);
        word[2][lane] = (uint32_t)stream;
        word[3][lane] = (uint32_t)(stream >> 32);
    }
    for (int round = 0; round < 10; round++) {
        for (int lane = 0; lane < ND__PHILOX_LANES; lane++) {
            uint64_t product0 = (uint64_t)0xD2511F53u * word[0][lane];
            uint64_t product1 = (uint64_t)0xCD9E8D57u * word[2][lane];
            uint32_t word1 = word[1][lane], word3 = word[3][lane];
            word[0][lane] = (uint32_t)(product1 >> 32) ^ word1 ^ key0;
            word[1][lane] = (uint32_t)product1;
            word[2][lane] = (uint32_t)(product0 >> 32) ^ word3 ^ key1;
            word[3][lane] = (uint32_t)product0;
        }
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
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

/// log(x) of a normal number from 2^-1022 to 1: x = 2^e (1 + f), with 1 + f between sqrt(1/2) and
/// sqrt(2), and s = f / (2 + f): log(1 + f) = 2 atanh(s). Within 1 ulp.
ND_PHILOX_FUNCTION double nd__philox_log(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint64_t exponent =
        (bits + (UINT64_C(0x3ff0000000000000) - UINT64_C(0x3fe6a09e667f3bcd))) >> 52;
    bits -= (exponent - 1023) << 52;
    double mantissa, e = (double)((int32_t)exponent - 1023);
    memcpy(&mantissa, &bits, sizeof mantissa);
    double f = mantissa - 1.0, s = f / (2.0 + f), z = s * s, z2 = z * z;
    double p = 0x1.5555555555592p-1 + 0x1.999999997ff04p-2 * z;
    double q = 0x1.24924941e3634p-2 + 0x1.c71c52120e77fp-3 * z;
    double r = 0x1.74663d7f0f18ap-3 + 0x1.39a1d7ac9083cp-3 * z;
    double tail = z * (p + z2 * (q + z2 * (r + z2 * 0x1.2f047cf1f2271p-3)));
    double half_square = 0.5 * f * f;
    double small = s * (half_square + tail) + e * 0x1.ef35793c7673p-45;
    return e * 0x1.62e42fefa38p-1 - ((half_square - small) - f);
}

/// The cosine and the sine of `turn` times 2 pi, for 0 <= turn < 1, by what is left of a quarter.
ND_PHILOX_FUNCTION void nd__philox_turn(double turn, double *ret_cosine, double *ret_sine) {
    int32_t quarter = (int32_t)(4.0 * turn + 0.5);
    double r = (turn - 0.25 * (double)quarter) * 6.283185307179586476925, z = r * r, z2 = z * z;
    double a = -0x1.5555555555549p-3 + 0x1.111111110f88cp-7 * z;
    double b = -0x1.a01a019c10ebcp-13 + 0x1.71de357573c0dp-19 * z;
    double c = -0x1.ae5e637eb6b2ep-26 + 0x1.5d91fe0aeaddfp-33 * z;
    double sine = r + r * z * (a + z2 * (b + z2 * c));
    a = 0x1.555555555554cp-5 - 0x1.6c16c16c1520bp-10 * z;
    b = 0x1.a01a019cbc038p-16 - 0x1.27e4f80f795d6p-22 * z;
    c = 0x1.1ee9eeabf91c5p-29 - 0x1.8faf9edc61bfap-37 * z;
    double cosine = 1.0 - (0.5 * z - z2 * (a + z2 * (b + z2 * c)));
    double along = quarter & 1 ? sine : cosine, across = quarter & 1 ? cosine : sine;
    *ret_cosine = (quarter + 1) & 2 ? -along : along;
    *ret_sine = quarter & 2 ? -across : across;
}

/// Two independent standard normals from u1 in (0, 1] and u2 in [0, 1).
ND_PHILOX_FUNCTION void nd__normal_pair(double u1, double u2, double *ret_first,
                                        double *ret_second) {
    double radius = sqrt(-2.0 * nd__philox_log(u1)), cosine, sine;
    nd__philox_turn(u2, &cosine, &sine);
    *ret_first = radius * cosine;
    *ret_second = radius * sine;
}

/// The pair of two words of 32 bits.
ND_PHILOX_FUNCTION void nd__normal_pair_f32(uint32_t first, uint32_t second, float *ret_first,
                                            float *ret_second) {
    double cosine, sine;
    nd__normal_pair((double)(int32_t)((first >> 8) + 1) * 0x1p-24,
                    (double)(int32_t)(second >> 8) * 0x1p-24, &cosine, &sine);
    *ret_first = (float)cosine;
    *ret_second = (float)sine;
}

/// The pair of two words of 64 bits.
ND_PHILOX_FUNCTION void nd__normal_pair_f64(uint64_t first, uint64_t second, double *ret_first,
                                            double *ret_second) {
    nd__normal_pair((double)((first >> 11) + 1) * 0x1p-53, nd__uniform_f64(second), ret_first,
                    ret_second);
}

/// The four f32 normals of a block: elements 4 block ... 4 block + 3.
ND_PHILOX_FUNCTION void nd__normal_f32(nd__philox_block block, float ret_value[4]) {
    for (int pair = 0; pair < 2; pair++)
        nd__normal_pair_f32(block.word[2 * pair], block.word[2 * pair + 1], &ret_value[2 * pair],
                            &ret_value[2 * pair + 1]);
}

/// The two f64 normals of a block: elements 2 block, 2 block + 1.
ND_PHILOX_FUNCTION void nd__normal_f64(nd__philox_block block, double ret_value[2]) {
    nd__normal_pair_f64(nd__philox_u64(block, 0), nd__philox_u64(block, 1), &ret_value[0],
                        &ret_value[1]);
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
