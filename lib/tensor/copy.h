// Copies: between layouts, dtypes, devices and the host; clone, contiguous, cast, to.
#ifndef ND_LIB_TENSOR_COPY_H
#define ND_LIB_TENSOR_COPY_H
#include "lib/tensor/tensor.h"

/// Copies x in row-major order to host memory of its size, and waits for it.
nd_status nd__copy_to_host(const char *operation, const nd_tensor *x, void *destination);

/// Copies x to memory of its own device with the layout `destination`.
nd_status nd__copy_to_operand(const char *operation, const nd_operand *destination,
                              const nd_tensor *x);

/// nd_to(), in whose errors another function is named: that which the user called.
nd_tensor *nd__copy_to(const char *operation, const nd_tensor *x, nd_device device);

/// Copies x into y (same shape, any strides and dtypes, any devices); unrecorded, no version bump.
nd_status nd__copy_into(const char *operation, nd_tensor *y, const nd_tensor *x);
#endif
