// Recorded scans that gradient rules need and users do not see. Ownership, NULL and errors as in
// <nd/ops.h>.
#ifndef ND_LIB_OPS_SCAN_H
#define ND_LIB_OPS_SCAN_H
#include "lib/tensor/node.h"
#include <nd/ops.h>

/// cumsum, cumprod, cummax or cummin along an axis that exists; backwards: from its end to its
/// beginning.
nd_tensor *nd__scan(nd_op op, const nd_tensor *x, int axis, bool backwards);

/// y[k] = a[k] y[k - 1] + b[k] along an axis, y[k + 1] when it goes backwards; there is nothing
/// before the first. a and b: floats of one dtype and shape.
nd_tensor *nd__scan_recurrence(const nd_tensor *a, const nd_tensor *b, int axis, bool backwards);
#endif
