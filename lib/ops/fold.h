// Recorded operations that gradient rules need. Ownership, NULL and errors as in <nd/ops.h>.
#ifndef ND_LIB_OPS_FOLD_H
#define ND_LIB_OPS_FOLD_H
#include "lib/tensor/tensor.h"
#include <nd/ops.h>

/// What both record: attributes 0 to 7 are kernel, stride, padding and dilation of h and w.
enum { ND__FOLD_KERNEL = 0, ND__FOLD_STRIDE = 2, ND__FOLD_PADDING = 4, ND__FOLD_DILATION = 6 };

/// nd_unfold() with the options that a node recorded.
nd_tensor *nd__fold_unfold(const nd_tensor *x, const nd_op_attrs *attrs);
/// nd_fold() with those.
nd_tensor *nd__fold_fold(const nd_tensor *columns, int64_t h, int64_t w, const nd_op_attrs *attrs);
#endif
