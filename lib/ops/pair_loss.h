// Losses of pairs in one kernel, forward and backward, for the losses and for the gradient's rule.
#ifndef ND_LIB_OPS_PAIR_LOSS_H
#define ND_LIB_OPS_PAIR_LOSS_H
#include "lib/tensor/tensor.h"

/// Whether there is a kernel for them: of one shape with elements, both f32 or both f64.
bool nd__pair_loss_fits(const nd_tensor *a, const nd_tensor *b);

/// What each number of a and its partner in b cost, times `factor`, with the limit `p` where the loss
/// has one; sums: one number, the sum. Recorded. a and b fit.
nd_tensor *nd__pair_loss(const char *name, nd_pair_loss loss, const nd_tensor *a,
                         const nd_tensor *b, double p, double factor, bool sums);

/// The gradients of a and b, unrecorded, where `grad` is that of the result. Either may be NULL: not
/// wanted. a, b and attrs are those that nd__pair_loss() recorded.
nd_status nd__pair_loss_grad(const nd_tensor *grad, const nd_tensor *a, const nd_tensor *b,
                             const nd_op_attrs *attrs, nd_tensor **ret_a, nd_tensor **ret_b);
#endif
