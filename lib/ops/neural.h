// The gradients of nd_cross_entropy and of softmax in one kernel, for the gradients' rules.
#ifndef ND_LIB_OPS_NEURAL_H
#define ND_LIB_OPS_NEURAL_H
#include "lib/tensor/tensor.h"

/// The gradient of logits, [n, classes] of any float dtype, where `grad` is that of the mean, of
/// cross_entropy's dtype of result; unrecorded. targets are dense, i64. ND_ERROR_UNSUPPORTED without an
/// error where the device has no kernel for it.
nd_status nd__neural_cross_entropy_grad(const nd_tensor *grad, const nd_tensor *logits,
                                        const nd_tensor *targets, nd_tensor **ret_grad);

/// The gradient of x where `grad` is that of softmax's or masked_softmax's result along an axis, both
/// of its shape; unrecorded. ND_ERROR_UNSUPPORTED without an error where the device has no kernel for
/// it.
nd_status nd__neural_softmax_grad(const nd_tensor *grad, const nd_tensor *result, int axis,
                                  nd_tensor **ret_grad);
#endif
