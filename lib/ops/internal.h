// Recorded operations that gradient rules need and users do not see. Ownership, NULL and errors as in
// <nd/ops.h>.
#ifndef ND_LIB_OPS_INTERNAL_H
#define ND_LIB_OPS_INTERNAL_H
#include "lib/tensor/tensor.h"
#include <nd/ops.h>

/// grad where out > 0, else 0. out: relu's result.
nd_tensor *nd__relu_grad(const nd_tensor *grad, const nd_tensor *out);

/// Gradient of conv2d's x: grad: [n, co, oh, ow], weight: [co, ci, kh, kw] -> x_shape = [n, ci, h, w].
nd_tensor *nd__conv2d_grad_input(const nd_tensor *grad, const nd_tensor *weight,
                                 const int64_t *x_shape, int stride, int padding);

/// Gradient of conv2d's weight: x: [n, ci, h, w], grad: [n, co, oh, ow] -> weight_shape =
/// [co, ci, kh, kw].
nd_tensor *nd__conv2d_grad_weight(const nd_tensor *x, const nd_tensor *grad,
                                  const int64_t *weight_shape, int stride, int padding);
#endif
