// Solutions and decompositions of dense matrices, on the host, by the loops of isa.h.
//
// Invariant: matrices are contiguous, row by row, and stand one behind the other; so do those of
// the results. What a matrix gives does not depend on the others or on the number of threads.
#ifndef ND_KERNELS_CPU_LINALG_H
#define ND_KERNELS_CPU_LINALG_H
#include "kernels/kernel.h"
#include <stdbool.h>
#include <stddef.h>

/// What is computed of each x: [m, n], for some of b: [m, o]. k is the smaller of m and n. All
/// sizes are positive.
///   solve             m = n: out [n, o], x^-1 b
///   solve_triangular  the same, of the upper or lower triangle; `unit`: with ones on the diagonal
///   cholesky          m = n, reads the lower triangle: out [n, n], l with zeros above
///   slogdet           m = n: out sign, log |det x|, det x
///   qr                m >= n: out q [m, n], r [n, n]
///   svd               out u [m, k], s [k], v^T [k, n]; only s with values_only
///   eigh              m = n, reads the lower triangle: out values [n], vectors [n, n]; only the
///                     values with values_only
///   pinv              out [n, m], without the singular values up to tolerance times the largest
///   lstsq             out [n, o], likewise
typedef struct nd__linalg_call {
    nd_op op;
    nd_dtype dtype; ///< f32 or f64
    int64_t count;  ///< of matrices
    int64_t m, n, o;
    const void *x, *b;
    void *out;
    double tolerance;
    bool upper, unit, values_only;
} nd__linalg_call;

typedef enum nd__linalg_result {
    ND__LINALG_DONE,
    ND__LINALG_TOO_LARGE, ///< for integers of 32 bits
    ND__LINALG_NO_MEMORY,
    ND__LINALG_NOT_FINITE, ///< an infinity or NaN where an iteration would not end well
    ND__LINALG_SINGULAR,
    ND__LINALG_NOT_POSITIVE, ///< definite
    ND__LINALG_NOT_CONVERGED,
} nd__linalg_result;

/// Elements of `out` for one matrix.
int64_t nd__cpu_linalg_size(const nd__linalg_call *call);

/// Elements from one row to the next of a matrix of n columns that is factored: not a multiple of 2
/// KiB apart, since such rows would share few places of the caches.
int64_t nd__cpu_linalg_row(int64_t n, size_t element);

/// Runs the call. A failure of a matrix leaves `out` undefined and says which is the first that
/// fails, and at which pivot or minor, counted from 1 (0: none).
nd__linalg_result nd__cpu_linalg(const nd__linalg_call *call, int64_t *ret_matrix, int *ret_place);
#endif
