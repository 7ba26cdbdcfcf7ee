// Which windows onto a storage share elements: in-place operations must know before they write.
#ifndef ND_LIB_OPS_OVERLAP_H
#define ND_LIB_OPS_OVERLAP_H
#include "lib/ops/operands.h"

/// True when two elements of x's window share memory (an expanded axis, or strides that cross).
bool nd__overlap_within(const nd_tensor *x);

nd_overlap nd__overlap(const nd_tensor *x, const nd_tensor *y);
#endif
