// What oneDNN needs to know of a convolution, made once for each set of sizes.
#ifndef ND_KERNELS_CPU_ONEDNN_PLAN_H
#define ND_KERNELS_CPU_ONEDNN_PLAN_H
#include "kernels/cpu/onednn.h"
#include "kernels/windows.h"

#if ND_HAVE_ONEDNN
#include <dnnl.h>

/// Sizes of a part of a convolution, then the strides between images (of x and y) and between output
/// channels (of the weight) where it lies: in the whole operands, or in copies. Compared as bytes, so there is no padding.
typedef struct nd__conv_part {
    nd__conv_sizes sizes;
    int64_t x_stride, y_stride, weight_stride;
    int64_t is_bf16;  ///< else f32, as the gradient of the weight is always
    int64_t has_bias; ///< of a result of bf16, which is rounded behind it
} nd__conv_part;

typedef struct nd__conv_plan {
    nd_op op;
    nd__conv_part part;
    uint64_t last_use; ///< this and `users` belong to the cache
    int users;
    bool unusable; ///< oneDNN has no such primitive; remembered, so that it is asked once
    dnnl_engine_t engine;
    dnnl_primitive_t convolution;
    size_t scratch_bytes;
    // By operand of the call; a bias is the fourth, and has one layout.
    int argument[4];
    dnnl_memory_desc_t ours[4], theirs[3];
    dnnl_primitive_t reorder[3]; ///< NULL where the layouts are one
} nd__conv_plan;

/// A plan that stays until it is released. ND_ERROR_UNSUPPORTED: oneDNN has none.
/// ND_ERROR_OUT_OF_MEMORY: there is no room to make it now. On a thread for which oneDNN starts none.
nd_status nd__conv_plan_acquire(nd_op op, const nd__conv_part *part, nd__conv_plan **ret_plan);
void nd__conv_plan_release(nd__conv_plan *plan);
/// Gives back all plans that nobody is running.
void nd__conv_plan_trim(void);
#endif
#endif
