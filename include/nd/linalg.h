/// @file
/// Linear algebra: systems of equations, inverses, decompositions, determinants, norms of matrices.
///
/// A matrix is the last two axes of a tensor of f32 or f64 where nothing else is said; the axes
/// before them are a batch, each of whose matrices is treated by itself. Functions return a new
/// owned tensor, or NULL with an error; those with several results write them last and leave them
/// untouched on error, and any of these results may be declined with NULL. All are differentiable
/// to any order where nothing else is said. As everywhere, operands are borrowed, and different
/// threads may use one operand.
///
/// The host computes all of it by its own loops. A CUDA device computes by cuSOLVER and cuBLAS where
/// these are found (docs/cuda.md), and the call waits for it, since the data decide whether a
/// matrix has a result; else matrices of another device are copied to the host, and the result
/// back, each recorded as nd_to() is.
///
/// Errors: ND_ERROR_DTYPE for other dtypes, ND_ERROR_SHAPE for shapes that do not fit, and
/// ND_ERROR_INVALID_ARGUMENT where a matrix has no result. Its message names the first such matrix
/// of the batch, counted from 0 in row-major order (of two operands: of the batch to which theirs
/// broadcast), and the pivot or leading minor at which it failed, counted from 1.
///
/// Of an infinity or NaN in an operand nd_svd(), nd_svdvals(), nd_eigh(), nd_eigvalsh(), nd_pinv(),
/// nd_lstsq(), nd_matrix_rank() and the nuclear and spectral nd_matrix_norm() have no result: they
/// answer ND_ERROR_INVALID_ARGUMENT, "an operand has an infinity or NaN", and name no pivot. nd_inv(),
/// nd_solve(), nd_det(), nd_slogdet(), whose sign may then be NaN, nd_qr() and the other norms return
/// what arithmetic makes of it, mostly NaN or an infinity; to nd_cholesky() what has a NaN is not
/// positive definite.
#ifndef ND_LINALG_H
#define ND_LINALG_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

// ------------------------------------------------------------------------------------- equations

/// The z with a z = b. a: [..., n, n], b: [n] or [..., n, k], whose batches broadcast. Error: a is
/// singular.
ND_API nd_tensor *nd_solve(const nd_tensor *a, const nd_tensor *b) ND_OWNED;
/// As nd_solve(), where only the upper or lower triangle of a is read, which with `unit_diagonal`
/// counts as having ones on its diagonal. Error: a zero on the diagonal.
ND_API nd_tensor *nd_solve_triangular(const nd_tensor *a, const nd_tensor *b, bool upper,
                                      bool unit_diagonal) ND_OWNED;
/// The inverse of x: [..., n, n]. Error: x is singular.
ND_API nd_tensor *nd_inv(const nd_tensor *x) ND_OWNED;
/// The shortest z for which |a z - b| is least. a: [..., m, n], b: [m] or [..., m, k]. Singular
/// values of a up to `tolerance` times its largest count as 0; negative: as many units in the last
/// place of 1 as the longer side of a. Gradients assume that the rank stays as it is.
ND_API nd_tensor *nd_lstsq(const nd_tensor *a, const nd_tensor *b, double tolerance) ND_OWNED;
/// x multiplied with itself `power` times, x: [..., n, n] of any numbers; 0: the identity. Of a
/// negative power that of the inverse (of f32 and f64, with its errors).
ND_API nd_tensor *nd_matrix_power(const nd_tensor *x, int64_t power) ND_OWNED;
/// The pseudo-inverse of x: [..., m, n] -> [..., n, m] (Moore 1920, Penrose 1955), with a tolerance
/// as in nd_lstsq().
ND_API nd_tensor *nd_pinv(const nd_tensor *x, double tolerance) ND_OWNED;

// --------------------------------------------------------------------------------- decompositions

/// The lower triangular l with l l^T = (x + x^T) / 2, of x: [..., n, n], which should be symmetric.
/// Error: that is not positive definite.
ND_API nd_tensor *nd_cholesky(const nd_tensor *x) ND_OWNED;
/// x = q r, of x: [..., m, n]: q: [..., m, k] with orthonormal columns, r: [..., k, n] upper
/// triangular, k the smaller of m and n. Gradients want the first k columns of x to be independent.
ND_API nd_status nd_qr(const nd_tensor *x, nd_tensor **ret_q, nd_tensor **ret_r);
/// x = u diag(s) v^T, of x: [..., m, n]: u: [..., m, k], s: [..., k] from the largest on, v^T:
/// [..., k, n]. The gradient through u and v of equal singular values, which does not exist, leaves
/// their share out; through s it is right.
ND_API nd_status nd_svd(const nd_tensor *x, nd_tensor **ret_u, nd_tensor **ret_s,
                        nd_tensor **ret_vt);
/// The singular values of x alone, from the largest on: [..., k].
ND_API nd_tensor *nd_svdvals(const nd_tensor *x) ND_OWNED;
/// (x + x^T) / 2 = v diag(values) v^T, of x: [..., n, n], which should be symmetric: values: [...,
/// n] from the least on, v: [..., n, n] with an eigenvector in each column. Gradients through v of
/// equal values as in nd_svd().
ND_API nd_status nd_eigh(const nd_tensor *x, nd_tensor **ret_values, nd_tensor **ret_vectors);
/// The eigenvalues alone, from the least on: [..., n].
ND_API nd_tensor *nd_eigvalsh(const nd_tensor *x) ND_OWNED;

// ---------------------------------------------------------------------------------------- numbers

/// The determinant of x: [..., n, n] -> [...]; 1 of no rows. Its gradient is that of the polynomial,
/// so it is there where x is singular, or nearly that, too.
ND_API nd_tensor *nd_det(const nd_tensor *x) ND_OWNED;
/// Its sign (1, -1 or 0) and the logarithm of its absolute value, which no number of rows makes
/// overflow. The sign has no gradient; that of the logarithm is an error where x is singular.
ND_API nd_status nd_slogdet(const nd_tensor *x, nd_tensor **ret_sign, nd_tensor **ret_logabsdet);
/// How many singular values of x: [..., m, n] are above the tolerance, as in nd_lstsq(): i64 of
/// [...]. Never requires a gradient.
ND_API nd_tensor *nd_matrix_rank(const nd_tensor *x, double tolerance) ND_OWNED;

/// What nd_matrix_norm() measures.
typedef enum nd_matrix_norm_kind {
    ND_MATRIX_NORM_FROBENIUS = 0, ///< root of the sum of squares
    ND_MATRIX_NORM_NUCLEAR,       ///< sum of the singular values
    ND_MATRIX_NORM_SPECTRAL,      ///< largest singular value
    ND_MATRIX_NORM_COLUMNS,       ///< largest sum of absolute values of a column
    ND_MATRIX_NORM_ROWS,          ///< largest sum of absolute values of a row
} nd_matrix_norm_kind;
/// A norm of x: [..., m, n] -> [...], or [..., 1, 1] with keepdims. Error: a largest of nothing.
ND_API nd_tensor *nd_matrix_norm(const nd_tensor *x, nd_matrix_norm_kind kind,
                                 bool keepdims) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
