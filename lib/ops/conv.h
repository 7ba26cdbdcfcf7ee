// Recorded operations that gradient rules need and users do not see. Ownership, NULL and errors as
// in <nd/ops.h>.
#ifndef ND_LIB_OPS_CONV_H
#define ND_LIB_OPS_CONV_H
#include "kernels/windows.h"
#include "lib/tensor/tensor.h"
#include <nd/ops.h>

/// How windows move, by axis of three. Attributes 0 to 9 of the three recorded operations.
typedef struct nd__conv_geometry {
    int64_t stride[ND_WINDOW_AXES], padding[ND_WINDOW_AXES], dilation[ND_WINDOW_AXES];
    int64_t groups;
} nd__conv_geometry;

/// The convolution without a bias. x: [n, ci, one to three axes], weight: [co, ci / groups,
/// windows].
nd_tensor *nd__conv_forward(const nd_tensor *x, const nd_tensor *weight,
                            const nd__conv_geometry *geometry);

/// Gradient of its x: grad: as its result, weight -> x_shape, with as many axes as grad.
nd_tensor *nd__conv_grad_input(const nd_tensor *grad, const nd_tensor *weight,
                               const int64_t *x_shape, const nd__conv_geometry *geometry);

/// Gradient of its weight: x, grad: as its result -> weight_shape.
nd_tensor *nd__conv_grad_weight(const nd_tensor *x, const nd_tensor *grad,
                                const int64_t *weight_shape, const nd__conv_geometry *geometry);
#endif
