// Creation: uninitialised, filled, counted, from host data.
#ifndef ND_LIB_TENSOR_CREATE_H
#define ND_LIB_TENSOR_CREATE_H
#include "lib/tensor/tensor.h"

/// Fresh uninitialised tensor on the default device, at the current manager.
nd_tensor *nd__create(const char *operation, int ndim, const int64_t *shape, nd_dtype dtype);

/// Runs a CREATE operation into x, which is contiguous or filled, which it consumes, and returns it; NULL (x
/// released) on error. NULL gives NULL.
nd_tensor *nd__create_with(const char *operation, nd_op op, nd_tensor *x, const nd_op_attrs *attrs);

/// 0 ... count - 1, i64, on a device, at the current manager.
nd_tensor *nd__create_counted(const char *operation, nd_device device, int64_t count);

/// Writes a value into every element of x, as nd__create_with. The value fits x's
/// dtype.
nd_tensor *nd__create_filled(const char *operation, nd_tensor *x, nd_number value);
#endif
