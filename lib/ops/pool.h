// Recorded operations that gradient rules need and users do not see. Ownership, NULL and errors as
// in <nd/ops.h>.
#ifndef ND_LIB_OPS_POOL_H
#define ND_LIB_OPS_POOL_H
#include "lib/tensor/tensor.h"
#include <nd/ops.h>

/// The same for max_pool2d. A stride of 0 becomes the kernel's size.
nd_status nd__pool_options_read(const char *name, const nd_max_pool2d_options *options,
                                nd_max_pool2d_options *ret_options);
#endif
