/// @file
/// Elements in other places: padding, turning, repeating, cutting, triangles.
///
/// As in <nd/ops.h>, results are new owned tensors on x's device, placed at x's manager, or there is
/// an error; all take every dtype, unless they say otherwise, and are differentiable to any order.
#ifndef ND_MANIPULATION_H
#define ND_MANIPULATION_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// What stands around a tensor that is padded.
typedef enum nd_padding {
    ND_PADDING_CONSTANT = 0, ///< a number
    ND_PADDING_REFLECT,      ///< x, mirrored at its first and last element, which are not repeated
    ND_PADDING_REPLICATE,    ///< x's first and last element
    ND_PADDING_CIRCULAR,     ///< x, from its other end
} nd_padding;

/// x with more elements around it: `value`, which x's dtype holds, in ND_PADDING_CONSTANT. padding:
/// for each of the last `naxes` axes, in their order, how many before and how many behind; a
/// negative number, only there, takes elements away. Error: a reflection as long as x or longer, a
/// circle longer than x, anything but a number around nothing.
ND_API nd_tensor *nd_pad(const nd_tensor *x, int naxes, const int64_t *padding, nd_number value,
                         nd_padding mode) ND_OWNED;
/// The other way round along `naxes` axes (0, NULL: all).
ND_API nd_tensor *nd_flip(const nd_tensor *x, int naxes, const int *axes) ND_OWNED;
/// Each element `shift` places further along an axis, what falls off the end at the beginning.
ND_API nd_tensor *nd_roll(const nd_tensor *x, int64_t shift, int axis) ND_OWNED;
/// Of the last two axes, [m, n], what is on or below the diagonal, 0 elsewhere. `diagonal` 1 is the
/// one above the main one, -1 the one below.
ND_API nd_tensor *nd_tril(const nd_tensor *x, int64_t diagonal) ND_OWNED;
/// As nd_tril(), on or above the diagonal.
ND_API nd_tensor *nd_triu(const nd_tensor *x, int64_t diagonal) ND_OWNED;
/// Each element `count` times in a row along an axis: [a, n, b] -> [a, n count, b].
ND_API nd_tensor *nd_repeat(const nd_tensor *x, int64_t count, int axis) ND_OWNED;
/// x as a whole, counts[i] times along axis i; axes that x lacks are put before its own.
ND_API nd_tensor *nd_tile(const nd_tensor *x, int ndim, const int64_t *counts) ND_OWNED;
/// x with axis `source` at the place `destination`, the others in their order. A view.
ND_API nd_tensor *nd_moveaxis(const nd_tensor *x, int source, int destination) ND_OWNED;
/// Views of x, one behind the other along an axis, of `sizes`, which add up to x's: writes `count`
/// owned tensors to ret_parts, on error none. They have one node of the graph: a backward pass joins
/// their gradients once.
ND_API nd_status nd_split(const nd_tensor *x, size_t count, const int64_t *sizes, int axis,
                          nd_tensor **ret_parts);

/// Views of x without an axis, one for each of its elements: writes as many owned tensors as the
/// axis has to ret_parts, on error none.
ND_API nd_status nd_unstack(const nd_tensor *x, int axis, nd_tensor **ret_parts);
/// Windows of `size` elements along an axis, `step` apart: [..., n, ...] -> [..., (n - size) / step +
/// 1, ..., size]. A view, in which windows share elements where the step is below the size. Error:
/// size outside 0 ... n, or a step below 1.
ND_API nd_tensor *nd_sliding_window(const nd_tensor *x, int64_t size, int64_t step,
                                    int axis) ND_OWNED;
/// The difference of each element and the one before it along an axis, `order` times over: [..., n,
/// ...] -> [..., max(n - order, 0), ...]. Numbers; of integers it wraps. Error: an order below 0.
ND_API nd_tensor *nd_diff(const nd_tensor *x, int64_t order, int axis) ND_OWNED;

/// The diagonal of two axes, which leave their places: it is the last axis of the result. `offset`
/// as in nd_tril(). A view where the two are the last axes and contiguous, else a copy.
ND_API nd_tensor *nd_diagonal(const nd_tensor *x, int64_t offset, int axis1, int axis2) ND_OWNED;
/// The sum of a diagonal of the last two axes, of the dtype of nd_sum(): [..., m, n] -> [...].
ND_API nd_tensor *nd_trace(const nd_tensor *x, int64_t offset) ND_OWNED;
/// Views of `count` tensors, all of the shape that they broadcast to: writes as many owned tensors
/// to ret_results, on error none.
ND_API nd_status nd_broadcast_arrays(size_t count, const nd_tensor *const *inputs,
                                     nd_tensor **ret_results);

/// Which axis of a grid an input runs along.
typedef enum nd_indexing {
    ND_INDEXING_XY = 0, ///< the first along the second axis and the second along the first
    ND_INDEXING_IJ,     ///< each along its own
} nd_indexing;

/// Coordinates of the grid that `count` tensors [n_i] span: writes as many owned views, of all the
/// sizes in the order of `indexing`, to ret_results, on error none.
ND_API nd_status nd_meshgrid(size_t count, const nd_tensor *const *inputs, nd_indexing indexing,
                             nd_tensor **ret_results);

#ifndef __cplusplus
/// @cond
#define nd_pad(...) (nd_pad)(ND__NUMBER_BEFORE_LAST(__VA_ARGS__))
/// @endcond
#endif

#ifdef __cplusplus
}
#endif
#endif
