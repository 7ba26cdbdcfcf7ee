// What operations of linear algebra share: checks, the run of one, and parts of what decompositions
// record. An operation has one result, so the matrices of a
// decomposition stand behind each other in the last axis of one tensor, and what the caller gets
// are views of it.
//
// Packed, of x: [..., m, n], k the smaller of m and n:
//   slogdet   sign, log |det x|, det x
//   qr        q [m, n], r [n, n], of m >= n
//   svd       u [m, k], s [k], v^T [k, n]
//   eigh      values [n], vectors [n, n]
//
// What is recorded: solve_triangular i[0] = upper, i[1] = unit diagonal; pinv, lstsq f[0] = the
// tolerance.
#ifndef ND_LIB_OPS_LINALG_H
#define ND_LIB_OPS_LINALG_H
#include "lib/tensor/tensor.h"
#include <nd/linalg.h>

/// What the CPU computes (kernels/cpu/linalg.h).
typedef struct nd__linalg_call nd__linalg_call;

/// Status of an operand: floats, [..., m, n] or `square`.
nd_status nd__linalg_check(const char *name, const char *argument, const nd_tensor *x, bool square);

/// Status of a tolerance: finite.
nd_status nd__linalg_check_tolerance(const char *name, double tolerance);

/// The tolerance, or for a negative one the usual.
double nd__linalg_tolerance_of(const nd_tensor *x, double tolerance);

/// Computes `call`, of which the operation and its options are set, of inputs on the host with the
/// same batch, and records it: [batch, tail].
nd_tensor *nd__linalg_run(const char *name, nd__linalg_call *call, const nd_tensor *const *inputs,
                          size_t count, int tail, const int64_t *tail_shape,
                          const nd_op_attrs *attrs);

/// The vector of `columns` elements that begins at `offset` of the last axis.
nd_tensor *nd__linalg_vector(const nd_tensor *packed, int64_t offset, int64_t columns);

/// The matrix [rows, columns] that begins at `offset` of the last axis.
nd_tensor *nd__linalg_part(const nd_tensor *packed, int64_t offset, int64_t rows, int64_t columns);

/// x with its last two axes exchanged.
nd_tensor *nd__linalg_turn(const nd_tensor *x);

/// The identity [n, n] on the host, placed where a result of `like` belongs.
nd_tensor *nd__linalg_identity(const nd_tensor *like, int64_t n);
#endif
