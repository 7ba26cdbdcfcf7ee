/// @file
/// Mixed precision: a block in which products are computed in a half.
#ifndef ND_AUTOCAST_H
#define ND_AUTOCAST_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

/// nd_autocast(ND_BF16) { ... }: in the block, on this thread, nd_matmul, nd_linear, nd_attention
/// and the convolutions of <nd/convolution.h> take operands of f32, f16 and bf16 as this dtype, and
/// give a result of it. nd_softmax, nd_log_softmax, nd_masked_softmax, normalisation and the losses
/// take halves as f32 and give f32. f64 stays f64. nd_rnn, nd_lstm and nd_gru keep the dtype of x and compute their
/// products in the half, and so do nd_einsum and nd_tensordot with the dtype of their operands;
/// nd_vecdot and nd_quantized_linear are as nd_matmul. A backward pass casts nothing, wherever it
/// runs: gradients are computed in the dtypes that the forward pass had. The casts are recorded: parameters stay f32,
/// and so do their gradients. ND_F32 casts nothing to a half, as outside. Another dtype is an
/// error, and casts nothing either.
#define nd_autocast(dtype) \
    ND__FOR_BLOCK(nd_autocast_block, nd__autocast_block_begin(dtype), nd__autocast_block_end)
/// What nd_autocast keeps. Not for users to touch.
typedef struct nd_autocast_block {
    bool once;         ///< whether the block is still to run
    nd_dtype previous; ///< the dtype outside
} nd_autocast_block;
ND_API nd_autocast_block nd__autocast_block_begin(nd_dtype dtype);
ND_API void nd__autocast_block_end(nd_autocast_block *block);
/// The dtype of this thread's innermost block; ND_F32 outside.
ND_API nd_dtype nd_get_autocast_dtype(void);

/// Whether products and convolutions of f32, and their gradients, may round their operands to TF32,
/// f32 with 10 bits behind the point instead of 23, for the process. False at first. Sums stay f32.
/// Devices with tensor cores are several times as fast so where NVIDIA's libraries compute
/// (docs/cuda.md); ndarc's own kernels and the CPU round nothing. A graph that was captured (nd_capture)
/// keeps what was in force then. Thread-safe: what begins afterwards follows it.
ND_API void nd_set_tf32(bool allowed);
/// What nd_set_tf32() said last.
ND_API bool nd_is_tf32(void);

#ifdef __cplusplus
}
#endif
#endif
