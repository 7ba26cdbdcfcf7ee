/// @file
/// Order along an axis: sorting, searching, and what is made of sorted elements.
///
/// As in <nd/ops.h>, results are new owned tensors on x's device, placed at x's manager, or there is
/// an error. All take every dtype. NaN is greater than infinity, -0 equals 0, and elements that are
/// equal stay in their order, whichever way is sorted. Positions are i64.
#ifndef ND_SORTING_H
#define ND_SORTING_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// x sorted along an axis, from the smallest up, or from the greatest down. Differentiable to any
/// order.
ND_API nd_tensor *nd_sort(const nd_tensor *x, int axis, bool descending) ND_OWNED;
/// Where along the axis the elements of nd_sort() stand in x.
ND_API nd_tensor *nd_argsort(const nd_tensor *x, int axis, bool descending) ND_OWNED;
/// The k greatest elements along an axis from the greatest down, or the k smallest from the smallest
/// up: writes an owned tensor of the elements, differentiable to any order, and one of their
/// positions, or, for an address that is NULL, none. On error it writes neither. Of equal elements
/// those that come first are taken. Error: k outside 0 ... the size of the axis.
ND_API nd_status nd_topk(const nd_tensor *x, int64_t k, int axis, bool largest,
                         nd_tensor **ret_values, nd_tensor **ret_positions);
/// Where each value would be put to keep `sorted` sorted, before elements equal to it, or behind
/// them (`right`). sorted: [n], or [..., n] for values [..., m]; result as values. Both are promoted
/// to one dtype. No gradient. What is not sorted gives positions in 0 ... n without a meaning.
ND_API nd_tensor *nd_searchsorted(const nd_tensor *sorted, const nd_tensor *values,
                                  bool right) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
