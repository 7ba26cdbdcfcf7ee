// Joining: concat, stack, and the inverse of slicing.
#ifndef ND_LIB_TENSOR_JOIN_H
#define ND_LIB_TENSOR_JOIN_H
#include "lib/tensor/tensor.h"

/// Zeros of `shape` with g written into the slice (axis, start, step) of it: the inverse of
/// nd_slice, differentiable. g's size along the axis is the number of elements of the slice.
nd_tensor *nd__join_unslice(const nd_tensor *g, int ndim, const int64_t *shape, int axis,
                            int64_t start, int64_t step);
#endif
