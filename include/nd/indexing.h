/// @file
/// Several indices at once: picking, writing and adding at positions that tensors name.
///
/// As in <nd/ops.h>, all return a new owned tensor on x's device, placed at x's manager, or NULL
/// with an error. An index is i64 or i32 and names a place along an axis, from the end where it is
/// negative; what is outside is an error, of nd_take() or nd_scatter_add(), also where it picks or
/// writes empty slices. All are differentiable to any order in x, and in what is written.
/// What many places add to one is added one after another in their dtype (f16 and bf16 in f32), here,
/// in nd_scatter_add(), and in the gradients of what picks, as nd_take() and nd_embedding(): a sum in
/// f32 of very many stops growing, of ones at 2^24.
#ifndef ND_INDEXING_H
#define ND_INDEXING_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// x[i, j, ...] in NumPy's words, for `count` indices of x's first axes, which broadcast: their
/// shape, then x's other axes. A bool index is a mask of as many axes as it has, and stands for the
/// places where it is true, as nd_nonzero() gives them (which waits for the device). Error: a count
/// of 0, also of nd_index_put().
ND_API nd_tensor *nd_index(const nd_tensor *x, size_t count,
                           const nd_tensor *const *indices) ND_OWNED;
/// x with `values`, of x's dtype, which broadcast to nd_index()'s result, in the places of that. Of
/// values for one place the last stays (and alone has a gradient), or, with `accumulate`, all are
/// added to what was there (not bool).
ND_API nd_tensor *nd_index_put(const nd_tensor *x, size_t count, const nd_tensor *const *indices,
                               const nd_tensor *values, bool accumulate) ND_OWNED;
/// x with source's slices added along an axis, slice k at indices[k]. indices: [n], source: of x's
/// shape but n along the axis, and of its dtype, not bool.
ND_API nd_tensor *nd_index_add(const nd_tensor *x, const nd_tensor *indices,
                               const nd_tensor *source, int axis) ND_OWNED;

/// What nd_scatter() makes of all that comes to one place.
typedef enum nd_scatter_reduction {
    ND_SCATTER_SUM = 0,
    ND_SCATTER_PROD,
    ND_SCATTER_AMIN, ///< NaN wins
    ND_SCATTER_AMAX, ///< NaN wins
    ND_SCATTER_MEAN, ///< of integers: rounded down
} nd_scatter_reduction;

/// x with source's elements reduced along an axis where index says, as nd_scatter_add() adds them:
/// index and source have one shape, x and source one dtype, not bool. `include_self`: x's own
/// element is one of those that are reduced; else it stays only where nothing comes. 16-bit floats
/// are computed in f32 and rounded once. Integers wrap, but the sums of a mean are of 64 bits,
/// signed except for u64, and wrap there (PyTorch's wrap in their dtype, in i64 to the same mean).
/// Differentiable to any order; elements that are the extreme together share its gradient, and the
/// second derivative of a product by two elements of source that are both 0 is taken as 0.
ND_API nd_tensor *nd_scatter(const nd_tensor *x, const nd_tensor *index, const nd_tensor *source,
                             int axis, nd_scatter_reduction reduction, bool include_self) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
