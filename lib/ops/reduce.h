// Sums for gradients. Ownership, NULL and errors as in <nd/ops.h>.
#ifndef ND_LIB_OPS_REDUCE_H
#define ND_LIB_OPS_REDUCE_H
#include "lib/tensor/tensor.h"

/// nd_sum_to(), but x itself, retained, where it has the shape already.
nd_tensor *nd__reduce_sum_to(const nd_tensor *x, int ndim, const int64_t *shape);
#endif
