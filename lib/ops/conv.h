// Recorded operations that gradient rules need and users do not see. Ownership, NULL and errors as
// in <nd/ops.h>.
#ifndef ND_LIB_OPS_CONV_H
#define ND_LIB_OPS_CONV_H
#include "lib/tensor/tensor.h"
#include <nd/ops.h>

/// Reads the options that a program gave to conv2d or to what holds them; NULL: the defaults.
/// Errors as in lib/base/versioned.h, and ND_ERROR_INVALID_ARGUMENT for a number that no
/// convolution can have; then nothing is written.
nd_status nd__conv_options_read(const char *name, const nd_conv2d_options *options,
                                nd_conv2d_options *ret_options);

/// Gradient of conv2d's x: grad: [n, co, oh, ow], weight: [co, ci / groups, kh, kw] -> x_shape =
/// [n, ci, h, w].
nd_tensor *nd__conv_grad_input(const nd_tensor *grad, const nd_tensor *weight,
                               const int64_t *x_shape, const nd_conv2d_options *options);

/// Gradient of conv2d's weight: x: [n, ci, h, w], grad: [n, co, oh, ow] -> weight_shape =
/// [co, ci / groups, kh, kw].
nd_tensor *nd__conv_grad_weight(const nd_tensor *x, const nd_tensor *grad,
                                const int64_t *weight_shape, const nd_conv2d_options *options);
#endif
