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
/// order. Error: x has no axis, as for the two that follow.
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

/// Where x is not 0, in row-major order: i64 [count, ndim], a row of coordinates for each. Waits for
/// the device.
ND_API nd_tensor *nd_nonzero(const nd_tensor *x) ND_OWNED;
/// The distinct elements of x, sorted, [n]; every NaN is one of its own. Writes owned tensors, for an
/// address that is NULL none, and on error none: the elements (differentiable, as what stands at the
/// positions), where in x's row-major order each is first [n], for each element of x its place in
/// the distinct ones, of x's shape, and how many there are of each [n]. Waits for the device.
ND_API nd_status nd_unique(const nd_tensor *x, nd_tensor **ret_values, nd_tensor **ret_positions,
                           nd_tensor **ret_inverse, nd_tensor **ret_counts);

/// Which place among n sorted elements, from 0 on, is that of q, and what stands at a place between
/// two: NumPy's methods. The last eight are those of Hyndman and Fan, "Sample Quantiles in
/// Statistical Packages", 1996, but their seventh, which is the first here.
typedef enum nd_quantile_method {
    ND_QUANTILE_LINEAR = 0,                ///< q (n - 1), between them in proportion
    ND_QUANTILE_LOWER,                     ///< there, the smaller
    ND_QUANTILE_HIGHER,                    ///< there, the greater
    ND_QUANTILE_MIDPOINT,                  ///< there, their mean
    ND_QUANTILE_NEAREST,                   ///< there, the nearer; of two as near that of even place
    ND_QUANTILE_INVERTED_CDF,              ///< q n - 1, the greater
    ND_QUANTILE_AVERAGED_INVERTED_CDF,     ///< the same; at a place, the mean of it and the next
    ND_QUANTILE_CLOSEST_OBSERVATION,       ///< q n - 3/2, the greater; at an even place the next
    ND_QUANTILE_INTERPOLATED_INVERTED_CDF, ///< q n - 1, in proportion
    ND_QUANTILE_HAZEN,                     ///< q n - 1/2, in proportion
    ND_QUANTILE_WEIBULL,                   ///< q (n + 1) - 1, in proportion
    ND_QUANTILE_MEDIAN_UNBIASED,           ///< q (n + 1/3) - 2/3, in proportion
    ND_QUANTILE_NORMAL_UNBIASED,           ///< q (n + 1/4) - 5/8, in proportion
} nd_quantile_method;

/// The quantiles of the n elements along the reduced axes (naxes 0: all) for each of `count` q in
/// [0, 1]: [count, ...], then as nd_mean(). bool and integers are sorted as they are, and what is
/// taken of them becomes f32 before it is averaged; f16 and bf16 are averaged in f32. NaN where
/// there is one. Halfway between two elements the result is the sum of their halves, elsewhere the
/// nearer of them and a part of their difference: NaN between infinities (but between equal ones
/// halfway) and nearer to an infinity than to a number, infinite where the difference overflows.
/// Differentiable to any order. Error: a count of 0, a q outside, no elements.
ND_API nd_tensor *nd_quantile(const nd_tensor *x, size_t count, const double *q,
                              nd_quantile_method method, int naxes, const int *axes,
                              bool keepdims) ND_OWNED;
/// The middle element, or the mean of the two in the middle (as NumPy; PyTorch takes the smaller);
/// otherwise as nd_quantile(), without its first axis.
ND_API nd_tensor *nd_median(const nd_tensor *x, int naxes, const int *axes, bool keepdims) ND_OWNED;

/// How many elements of x are in each bin: edges: [n + 1], ascending; bin i reaches from edges[i]
/// up to but not including edges[i + 1], the last includes it. Result i64 [n]; with weights (of x's
/// shape, not bool) their sums, in their dtype and differentiable in them. Weights are added one
/// after another in that dtype (f16 and bf16 in f32), not in f64 as by nd_sum(): a sum in f32 of
/// very many stops growing, of ones at 2^24. What is outside, NaN too, is not counted. That edges
/// ascend is not checked; where they do not, the counts have no meaning. Error: fewer than two
/// edges.
ND_API nd_tensor *nd_histogram(const nd_tensor *x, const nd_tensor *edges,
                               const nd_tensor *weights) ND_OWNED;
/// How often each number from 0 on stands in x, [n] of integers: i64 as long as the greatest asks
/// for, and at least `minimum`; with weights ([n], not bool) their sums, in their dtype and
/// differentiable in them, added as by nd_histogram(). Waits for the device. Error: a negative
/// number in x.
ND_API nd_tensor *nd_bincount(const nd_tensor *x, const nd_tensor *weights,
                              int64_t minimum) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
