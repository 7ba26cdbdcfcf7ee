/// @file
/// Products of tensors summed over axes: outer, tensordot, einsum, Kronecker; vector products.
///
/// As in <nd/ops.h>, all return a new owned tensor on the operands' device, placed at the operands'
/// manager, or NULL with an error. Operands are numbers, promoted as in nd_matmul(), of which sums
/// are made: f16 and bf16 are added up in f32 and rounded after each product of two. All are
/// differentiable to any order.
#ifndef ND_CONTRACTION_H
#define ND_CONTRACTION_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// a: [m], b: [n] -> [m, n], each element of a with each of b.
ND_API nd_tensor *nd_outer(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// The sum over axes a_axes[i] of a and b_axes[i] of b, which are as long, for all `naxes` of them:
/// a's other axes, then b's. naxes 0: every element with every other.
ND_API nd_tensor *nd_tensordot(const nd_tensor *a, const nd_tensor *b, int naxes, const int *a_axes,
                               const int *b_axes) ND_OWNED;
/// The sum over an axis of products of elements, the axis counted from the end (-1 ... -ndim of both)
/// and as long in a as in b; other axes broadcast.
ND_API nd_tensor *nd_vecdot(const nd_tensor *a, const nd_tensor *b, int axis) ND_OWNED;
/// The vector product of the three elements along an axis, counted as in nd_vecdot(), of a with
/// those of b; other axes broadcast.
ND_API nd_tensor *nd_cross(const nd_tensor *a, const nd_tensor *b, int axis) ND_OWNED;
/// The Kronecker product: [m1, m2, ...] and [n1, n2, ...] -> [m1 n1, m2 n2, ...]; an operand with
/// fewer axes gets more before its own.
ND_API nd_tensor *nd_kron(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// Einstein's sum of `count` operands, in NumPy's notation: "bij,bjk->bik" multiplies elements whose
/// axes of one letter have one index, and sums over the letters that the result lacks. Without "->"
/// the result has the letters that occur once, in the order A ... Z, a ... z. "..." stands for any
/// axes, which broadcast; so do axes of size 1. A result without the "..." of an
/// operand is a sum over those axes, too, where NumPy refuses. Two operands at a time are
/// multiplied, first those whose product is smallest beside them.
ND_API nd_tensor *nd_einsum(const char *equation, size_t count,
                            const nd_tensor *const *operands) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
