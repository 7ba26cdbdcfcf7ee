// Recorded operations that gradient rules need and users do not see. Ownership, NULL and errors as
// in <nd/ops.h>.
#ifndef ND_LIB_OPS_ELEMENTWISE_H
#define ND_LIB_OPS_ELEMENTWISE_H
#include "lib/tensor/tensor.h"
#include <nd/ops.h>

/// grad where out > 0, else 0. out: relu's result.
nd_tensor *nd__elementwise_relu_grad(const nd_tensor *grad, const nd_tensor *out);

/// ND_OP_smooth_l1 or ND_OP_huber of differences, with where the parabola becomes a line.
nd_tensor *nd__elementwise_with_limit(nd_op op, const nd_tensor *x, double limit);

/// An ND_DERIVATIVE row, of two tensors of one float dtype; attrs are those of the row it belongs
/// to.
nd_tensor *nd__elementwise_derivative(nd_op op, const nd_tensor *grad, const nd_tensor *saved,
                                      const nd_op_attrs *attrs);
#endif
