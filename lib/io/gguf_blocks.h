// The types of ggml's tensors, and what their blocks stand for.
#ifndef ND_LIB_IO_GGUF_BLOCKS_H
#define ND_LIB_IO_GGUF_BLOCKS_H
#include <nd/tensor.h>

/// Numbers of the types that ndarc reads and are quantized.
enum { ND__GGUF_BLOCK_Q4_0 = 2, ND__GGUF_BLOCK_Q8_0 = 8, ND__GGUF_BLOCK_Q4_K = 12 };
/// More elements than any block has.
#define ND__GGUF_BLOCK_MAX 256

typedef struct nd_gguf_block {
    const char *name;
    int elements;   ///< that share a block along the last axis; 1: not quantized
    int bytes;      ///< of a block; 0: of a type that ndarc cannot read
    nd_dtype dtype; ///< where it is not quantized
} nd_gguf_block;

/// What a type's number means; NULL for an unknown one.
const nd_gguf_block *nd__gguf_block_of(uint32_t type);
/// Elements of `count` blocks of a quantized type, as f32.
void nd__gguf_block_dequantize(uint32_t type, const unsigned char *blocks, int64_t count,
                               float *ret_elements);
/// Blocks of Q8_0 or Q4_0 as <nd/quantization.h> has them: scales of f16, and integers, those of 4
/// bits two to a byte.
void nd__gguf_block_split(uint32_t type, const unsigned char *blocks, int64_t count,
                          uint16_t *ret_scales, unsigned char *ret_values);
#endif
