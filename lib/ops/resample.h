// Linear maps along one axis, in which each result is a sum of a few elements: recorded operations
// of which means of windows and interpolation are made, and which gradient rules need. Ownership,
// NULL and errors as in <nd/ops.h>.
#ifndef ND_LIB_OPS_RESAMPLE_H
#define ND_LIB_OPS_RESAMPLE_H
#include "kernels/windows.h"
#include "lib/tensor/tensor.h"

/// x, of f32 or f64, with `axis` replaced: out results made as `how` says; its outer, in and inner
/// are not read. `name`: whose sentence an error begins with.
nd_tensor *nd__resample_along(const char *name, const nd_tensor *x, int axis,
                              const nd__resample_axis *how);

/// What ND_OP_resample or ND_OP_resample_adjoint makes of x, with its recorded attributes: of
/// `shape`, of as many axes as x.
/// Of mode ND__RESAMPLE_WINDOWS, in one piece where x's device does that, else axis after axis.
nd_tensor *nd__resample_apply(const char *name, nd_op op, const nd_tensor *x, const int64_t *shape,
                              const nd_op_attrs *attrs);
#endif
