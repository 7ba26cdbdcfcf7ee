// Blocks of ggml's quantized tensors.
//
// Invariant: what a block stands for is computed in f32, with one product for each element and for
// Q4_K one difference, as the package gguf does, so that the results have the same bits.
#include "lib/io/gguf_blocks.h"
#include "kernels/half.h"
#include "lib/io/elements.h"

#include <string.h>

#define QUANTIZED(name, elements, bytes) \
    { name, elements, bytes, ND_F32 }
#define PLAIN(name, dtype, bytes) \
    { name, 1, bytes, dtype }
#define FOREIGN(name) \
    { name, 0, 0, ND_F32 }

static const nd_gguf_block blocks_of_types[] = {
    [0] = PLAIN("F32", ND_F32, 4),
    [1] = PLAIN("F16", ND_F16, 2),
    [ND__GGUF_BLOCK_Q4_0] = QUANTIZED("Q4_0", 32, 18),
    [3] = FOREIGN("Q4_1"),
    [6] = FOREIGN("Q5_0"),
    [7] = FOREIGN("Q5_1"),
    [ND__GGUF_BLOCK_Q8_0] = QUANTIZED("Q8_0", 32, 34),
    [9] = FOREIGN("Q8_1"),
    [10] = FOREIGN("Q2_K"),
    [11] = FOREIGN("Q3_K"),
    [ND__GGUF_BLOCK_Q4_K] = QUANTIZED("Q4_K", 256, 144),
    [13] = FOREIGN("Q5_K"),
    [14] = FOREIGN("Q6_K"),
    [15] = FOREIGN("Q8_K"),
    [16] = FOREIGN("IQ2_XXS"),
    [17] = FOREIGN("IQ2_XS"),
    [18] = FOREIGN("IQ3_XXS"),
    [19] = FOREIGN("IQ1_S"),
    [20] = FOREIGN("IQ4_NL"),
    [21] = FOREIGN("IQ3_S"),
    [22] = FOREIGN("IQ2_S"),
    [23] = FOREIGN("IQ4_XS"),
    [24] = PLAIN("I8", ND_I8, 1),
    [25] = PLAIN("I16", ND_I16, 2),
    [26] = PLAIN("I32", ND_I32, 4),
    [27] = PLAIN("I64", ND_I64, 8),
    [28] = PLAIN("F64", ND_F64, 8),
    [29] = FOREIGN("IQ1_M"),
    [30] = PLAIN("BF16", ND_BF16, 2),
    [34] = FOREIGN("TQ1_0"),
    [35] = FOREIGN("TQ2_0"),
    [39] = FOREIGN("MXFP4"),
};

const nd_gguf_block *nd__gguf_block_of(uint32_t type) {
    bool known = type < sizeof blocks_of_types / sizeof *blocks_of_types;
    return known && blocks_of_types[type].name ? &blocks_of_types[type] : NULL;
}

/// A scale of f16, then 32 integers of 8 bits.
static void dequantize_q8_0(const unsigned char *block, float *ret_elements) {
    float scale = nd__f16_to_f32(nd__elements_u16(block));
    for (int i = 0; i < 32; i++)
        ret_elements[i] = scale * (float)(int8_t)block[2 + i];
}

/// A scale of f16, then 16 bytes: the first half in the lower four bits, the second in the upper.
static void dequantize_q4_0(const unsigned char *block, float *ret_elements) {
    float scale = nd__f16_to_f32(nd__elements_u16(block));
    for (int i = 0; i < 16; i++) {
        ret_elements[i] = scale * (float)((block[2 + i] & 15) - 8);
        ret_elements[16 + i] = scale * (float)((block[2 + i] >> 4) - 8);
    }
}

/// A scale of scales and one of minima, f16; 8 scales and 8 minima of 6 bits in 12 bytes; then 8
/// groups of 32 integers of 4 bits, two groups to 32 bytes.
static void dequantize_q4_k(const unsigned char *block, float *ret_elements) {
    float scale_unit = nd__f16_to_f32(nd__elements_u16(block));
    float minimum_unit = nd__f16_to_f32(nd__elements_u16(block + 2));
    const unsigned char *packed = block + 4, *values = block + 16;
    for (int group = 0; group < 8; group++) {
        int low = group % 4;
        // The last four take their upper two bits from where the first four leave them.
        int scale = group < 4 ? packed[low] & 63 : (packed[8 + low] & 15) | (packed[low] >> 6) << 4;
        int minimum =
            group < 4 ? packed[4 + low] & 63 : packed[8 + low] >> 4 | (packed[4 + low] >> 6) << 4;
        float factor = scale_unit * (float)scale, less = minimum_unit * (float)minimum;
        for (int i = 0; i < 32; i++) {
            int value = values[group / 2 * 32 + i] >> (group % 2 * 4) & 15;
            float product = factor * (float)value;
            ret_elements[group * 32 + i] = product - less;
        }
    }
}

void nd__gguf_block_dequantize(uint32_t type, const unsigned char *blocks, int64_t count,
                               float *ret_elements) {
    const nd_gguf_block *of = &blocks_of_types[type];
    for (int64_t i = 0; i < count; i++, blocks += of->bytes, ret_elements += of->elements)
        if (type == ND__GGUF_BLOCK_Q8_0)
            dequantize_q8_0(blocks, ret_elements);
        else if (type == ND__GGUF_BLOCK_Q4_0)
            dequantize_q4_0(blocks, ret_elements);
        else
            dequantize_q4_k(blocks, ret_elements);
}

void nd__gguf_block_split(uint32_t type, const unsigned char *blocks, int64_t count,
                          uint16_t *ret_scales, unsigned char *ret_values) {
    bool narrow = type == ND__GGUF_BLOCK_Q4_0;
    for (int64_t i = 0; i < count; i++, blocks += blocks_of_types[type].bytes) {
        ret_scales[i] = nd__elements_u16(blocks);
        if (!narrow) {
            memcpy(ret_values + i * 32, blocks + 2, 32);
            continue;
        }
        // Neighbours share a byte there; here the halves of a block do.
        for (int pair = 0; pair < 8; pair++) {
            unsigned first = blocks[2 + 2 * pair], second = blocks[3 + 2 * pair];
            ret_values[i * 16 + pair] = (unsigned char)((first & 15) | (second & 15) << 4);
            ret_values[i * 16 + 8 + pair] = (unsigned char)(first >> 4 | (second >> 4) << 4);
        }
    }
}
