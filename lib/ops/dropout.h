// What dropout shares with attention and recurrent nets: the factors that drop.
#ifndef ND_LIB_OPS_DROPOUT_H
#define ND_LIB_OPS_DROPOUT_H
#include "lib/tensor/tensor.h"

/// An error unless p is a probability.
nd_status nd__dropout_check(const char *name, double p);
/// Beside `like`, of a shape: 0 with probability p, else 1 / (1 - p). A constant.
nd_tensor *nd__dropout_factors(const char *name, const nd_tensor *like, int ndim,
                               const int64_t *shape, nd_dtype dtype, nd_key key, double p);
#endif
