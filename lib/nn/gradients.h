// What is asked of all gradients of some parameters at once.
#ifndef ND_LIB_NN_GRADIENTS_H
#define ND_LIB_NN_GRADIENTS_H
#include "lib/nn/module.h"

/// The root of the sum of squares of all gradients; parameters without one count nothing.
nd_status nd__gradients_norm(const char *operation, nd_tensor *const *parameters, size_t count,
                             double *ret_norm);
/// Multiplies all gradients with a factor: all or, on an error, none.
nd_status nd__gradients_scale(const char *operation, nd_tensor *const *parameters, size_t count,
                              double factor);
/// Divides all gradients, where all are finite: all or, on an error, none. Whether they are, and still
/// are when they are divided.
nd_status nd__gradients_divide(const char *operation, nd_tensor *const *parameters, size_t count,
                               double scale, bool *ret_finite);
#endif
