// Recorded operations that gradient rules need and users do not see. Ownership, NULL and errors as in
// <nd/ops.h>.
#ifndef ND_LIB_OPS_INTERNAL_H
#define ND_LIB_OPS_INTERNAL_H
#include "lib/tensor/tensor.h"
#include <nd/ops.h>

/// grad where out > 0, else 0. out: relu's result.
nd_tensor *nd__elementwise_relu_grad(const nd_tensor *grad, const nd_tensor *out);

/// Reads the options that a program gave to conv2d or to what holds them; NULL: the defaults. Errors as in
/// lib/base/versioned.h, and ND_ERROR_INVALID_ARGUMENT for a number that no convolution can have; then
/// nothing is written.
nd_status nd__conv_options_read(const char *name, const nd_conv2d_options *options,
                                nd_conv2d_options *ret_options);
/// The same for max_pool2d. A stride of 0 becomes the kernel's size.
nd_status nd__pool_options_read(const char *name, const nd_max_pool2d_options *options,
                                nd_max_pool2d_options *ret_options);

/// Gradient of conv2d's x: grad: [n, co, oh, ow], weight: [co, ci / groups, kh, kw] -> x_shape =
/// [n, ci, h, w].
nd_tensor *nd__conv_grad_input(const nd_tensor *grad, const nd_tensor *weight,
                               const int64_t *x_shape, const nd_conv2d_options *options);

/// Gradient of conv2d's weight: x: [n, ci, h, w], grad: [n, co, oh, ow] -> weight_shape =
/// [co, ci / groups, kh, kw].
nd_tensor *nd__conv_grad_weight(const nd_tensor *x, const nd_tensor *grad,
                                const int64_t *weight_shape, const nd_conv2d_options *options);
#endif
