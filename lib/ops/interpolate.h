// The options of interpolation, for the module that holds them.
#ifndef ND_LIB_OPS_INTERPOLATE_H
#define ND_LIB_OPS_INTERPOLATE_H
#include "lib/tensor/tensor.h"
#include <nd/ops.h>

/// Reads the options that a program gave. Errors as in lib/base/versioned.h, and
/// ND_ERROR_INVALID_ARGUMENT for what no interpolation can have; then nothing is written.
nd_status nd__interpolate_options_read(const char *name, const nd_interpolate_options *options,
                                       nd_interpolate_options *ret_options);
#endif
