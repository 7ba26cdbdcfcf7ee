// What oneDNN needs to know of a convolution, made once for each set of sizes.
#ifndef ND_KERNELS_CPU_ONEDNN_PLAN_H
#define ND_KERNELS_CPU_ONEDNN_PLAN_H
#include "kernels/cpu/onednn.h"

#if ND_HAVE_ONEDNN
#include <dnnl.h>

/// Sizes of a part of a convolution: those of CONV, then the whole operands' strides between images
/// (of x and y) and between output channels (of the weight).
enum {
    ND__CONV_N,
    ND__CONV_CI,
    ND__CONV_H,
    ND__CONV_W,
    ND__CONV_CO,
    ND__CONV_KH,
    ND__CONV_KW,
    ND__CONV_SHAPE, ///< number of those in the call's shape; its attributes follow
    ND__CONV_STRIDE = ND__CONV_SHAPE,
    ND__CONV_PADDING = ND__CONV_STRIDE + 2,
    ND__CONV_DILATION = ND__CONV_PADDING + 2,
    ND__CONV_GROUPS = ND__CONV_DILATION + 2,
    ND__CONV_OH,
    ND__CONV_OW,
    ND__CONV_X_STRIDE,
    ND__CONV_Y_STRIDE,
    ND__CONV_WEIGHT_STRIDE,
    ND__CONV_SIZES,
};
/// How many of a call's attributes are sizes.
#define ND__CONV_ATTRIBUTES (ND__CONV_X_STRIDE - ND__CONV_SHAPE)

typedef struct nd__conv_plan {
    nd_op op;
    int64_t sizes[ND__CONV_SIZES];
    uint64_t last_use; ///< this and `users` belong to the cache
    int users;
    bool unusable; ///< oneDNN has no such primitive; remembered, so that it is asked once
    dnnl_engine_t engine;
    dnnl_primitive_t convolution;
    size_t scratch_bytes;
    // By operand of the call.
    int argument[3];
    dnnl_memory_desc_t ours[3], theirs[3];
    dnnl_primitive_t reorder[3]; ///< NULL where the layouts are one
} nd__conv_plan;

/// A plan that stays until it is released, or NULL. On a thread for which oneDNN starts none.
nd__conv_plan *nd__conv_plan_acquire(nd_op op, const int64_t *sizes);
void nd__conv_plan_release(nd__conv_plan *plan);
#endif
#endif
