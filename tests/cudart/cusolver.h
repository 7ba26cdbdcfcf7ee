// What the two files of the fake cuSOLVER share: its algorithms, on column-major matrices of f64
// whose columns have no gaps between them.
//
// They are textbook loops without blocks. They end the program where there is no memory.
#ifndef ND_TESTS_CUDART_CUSOLVER_H
#define ND_TESTS_CUDART_CUSOLVER_H
#include <stdbool.h>
#include <stdint.h>

/// A matrix of zeros, which the caller frees.
double *solver_matrix(int64_t rows, int64_t columns);
/// a: [n, n] becomes L with a = L L^T; only the lower triangle is read and written. Returns the
/// order of the first leading minor that is not positive, NaN included, where it stops; 0: there is
/// none.
int solver_cholesky(double *a, int64_t n);
/// a: [m, n] becomes L and U, with partial pivoting; ret_pivots: [min(m, n)], counted from 1.
/// Returns the first pivot that is zero, counted from 1; 0: there is none.
int solver_lu(double *a, int64_t m, int64_t n, int64_t *ret_pivots);
/// b: [n, columns] becomes the solution of op(a) x = b, where solver_lu made lu: [n, n] of a.
void solver_lu_solve(const double *lu, const int64_t *pivots, bool transpose, int64_t n, double *b,
                     int64_t columns);
/// a: [m, n] becomes R and below it the vectors of its reflections, as LAPACK's geqrf stores them;
/// ret_tau: [min(m, n)].
void solver_qr(double *a, int64_t m, int64_t n, double *ret_tau);
/// a: [m, n], which holds the vectors of k reflections, becomes the first n columns of their
/// product.
void solver_orthogonal(double *a, int64_t m, int64_t n, int64_t k, const double *tau);
/// a: [n, n], symmetric, is destroyed; ret_values: [n], ascending; ret_vectors: [n, n]. Returns 0,
/// or 1 when a holds an infinity or NaN and all results are NaN, or 2 when it did not converge.
int solver_eigen(double *a, int64_t n, double *ret_values, double *ret_vectors);
/// a: [m, n] with m >= n becomes U, orthonormal whatever the rank of a; ret_s: [n], descending;
/// ret_v: [n, n], not transposed. Returns what solver_eigen does.
int solver_svd(double *a, int64_t m, int64_t n, double *ret_s, double *ret_v);
#endif
