// Which windows onto a storage share elements: what writes a tensor that is there already must know
// before it writes.
#ifndef ND_LIB_TENSOR_OVERLAP_H
#define ND_LIB_TENSOR_OVERLAP_H
#include "lib/tensor/tensor.h"

/// How a window that is written relates to one that is read.
typedef enum nd_overlap { ND__APART, ND__SAME, ND__PARTIAL } nd_overlap;

/// True when two elements of x's window share memory (an expanded axis, or strides that cross).
bool nd__overlap_within(const nd_tensor *x);

/// Of x and of y, which broadcasts to x's shape. ND__SAME: each element of x is the one of y that
/// stands beside it.
nd_overlap nd__overlap(const nd_tensor *x, const nd_tensor *y);

/// Whether x and y, of any shapes, have an element in common.
bool nd__overlap_any(const nd_tensor *x, const nd_tensor *y);
#endif
