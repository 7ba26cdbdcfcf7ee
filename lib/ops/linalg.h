// What operations of linear algebra share: checks, and parts of what decompositions record. An operation
// has one result, so the matrices of a decomposition stand behind each other in the last axis of one
// tensor, and what the caller gets are views of it.
//
// Packed, of x: [..., m, n], k the smaller of m and n:
//   slogdet   sign, log |det x|, det x
//   qr        q [m, n], r [n, n], of m >= n
//   svd       u [m, k], s [k], v^T [k, n]
//   eigh      values [n], vectors [n, n]
//
// What is recorded: solve_triangular i[0] = upper, i[1] = unit diagonal; pinv, lstsq f[0] = the
// tolerance; slogdet i[0] = det x alone is used.
#ifndef ND_LIB_OPS_LINALG_H
#define ND_LIB_OPS_LINALG_H
#include "lib/tensor/tensor.h"
#include <nd/linalg.h>

/// Status of an operand: floats, [..., m, n] or `square`.
nd_status nd__linalg_check(const char *name, const char *argument, const nd_tensor *x, bool square);

/// The same for what is computed by nd__linalg_run(), which no capture can hold.
nd_status nd__linalg_check_computed(const char *name, const char *argument, const nd_tensor *x,
                                    bool square);

/// Status of a tolerance: finite.
nd_status nd__linalg_check_tolerance(const char *name, double tolerance);

/// The tolerance, or for a negative one the usual.
double nd__linalg_tolerance_of(const nd_tensor *x, double tolerance);

/// The vector of `columns` elements that begins at `offset` of the last axis.
nd_tensor *nd__linalg_vector(const nd_tensor *packed, int64_t offset, int64_t columns);

/// The matrix [rows, columns] that begins at `offset` of the last axis.
nd_tensor *nd__linalg_part(const nd_tensor *packed, int64_t offset, int64_t rows, int64_t columns);

/// a b, whatever nd_autocast and nd_set_tf32 say.
nd_tensor *nd__linalg_product(const nd_tensor *a, const nd_tensor *b);

/// x with its last two axes exchanged.
nd_tensor *nd__linalg_turn(const nd_tensor *x);

/// The identity [n, n], placed where a result of `like` belongs.
nd_tensor *nd__linalg_identity(const nd_tensor *like, int64_t n);
#endif
