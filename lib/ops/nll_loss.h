// What nd_nll_loss shares: its gradient in one kernel, for the gradient's rule, and its targets.
#ifndef ND_LIB_OPS_NLL_LOSS_H
#define ND_LIB_OPS_NLL_LOSS_H
#include "lib/tensor/tensor.h"

/// The classes that integers name, i64: a number of u64 that is beyond them becomes one that is no
/// class, and not `ignored`.
nd_tensor *nd__nll_loss_classes(const nd_tensor *targets, int64_t ignored);

/// The gradient of x, of this shape, where `grad` is that of the loss; unrecorded. targets (i64) and
/// weight (of grad's dtype, or NULL) are dense; attrs those of the loss (NLL in kernels/kernel.h).
nd_tensor *nd__nll_loss_grad(const nd_tensor *grad, const nd_tensor *targets,
                             const nd_tensor *weight, const nd_op_attrs *attrs, int ndim,
                             const int64_t *shape);
#endif
