// Eigenvalues of symmetric matrices and singular values: what the loops of an instruction set
// compute of one matrix (spectral_loops.c), and what spectral.c makes of that.
//
// A matrix is reduced by reflections to two diagonals, whose values an iteration finds. Its
// rotations are kept until there are ND__SWEEPS sweeps of them and then turn the vectors' rows,
// many together.
//
// Invariant: rows of matrices are a multiple of ND__FACTOR_BASE elements apart, and the places
// behind their columns are zeros or may be read and written. Diagonals are f64 for both dtypes.
#ifndef ND_KERNELS_CPU_SPECTRAL_H
#define ND_KERNELS_CPU_SPECTRAL_H
#include "kernels/cpu/isa.h"
#include "kernels/cpu/linalg.h"

/// Sweeps that are kept, of which ND__WAVE turn a row while it is in registers.
#define ND__SWEEPS 16
#define ND__WAVE 4
/// Rows of zeros before and behind a matrix whose rows are turned.
#define ND__GUARD ND__WAVE

/// Rows that are turned by the rotations of an iteration.
typedef struct nd__turned {
    void *rows;     ///< n rows between guards; NULL: none are wanted
    int64_t row;    ///< elements from one to the next
    int64_t width;  ///< elements that are turned, in whole vectors
    double *sweeps; ///< [ND__SWEEPS, n, 2]: cosine and sine of rows i and i + 1
} nd__turned;

/// The rotations that are kept. Rotation i makes c x + s y and c y - s x of rows i and i + 1; where
/// they are `reversed`, rows count from the last one.
typedef struct nd__rotations {
    int64_t n;
    nd__turned
        sides[2]; ///< of eigenvectors the first; of singular vectors the left ones, then the right
    int count;    ///< of sweeps
    bool reversed;
    int64_t first[ND__SWEEPS], last[ND__SWEEPS]; ///< of a sweep, and the one behind the last
    void *packed;                                ///< ND__PACKED_ROTATIONS(n) elements
    void (*apply)(struct nd__rotations *rotations);
} nd__rotations;
#define ND__PACKED_ROTATIONS(n) (2 * ND__SWEEPS * ((n) + 2 * ND__GUARD))

typedef struct nd__spectral_loops {
    /// Reduces a [n, row], of which the lower triangle is read, to the diagonal d [n] and e [n - 1]
    /// beside it. Row i of a becomes the vector of reflection i, and tau [n] its factor. w: [4,
    /// row].
    void (*tridiagonalise)(void *a, int64_t row, int64_t n, double *d, double *e, void *tau,
                           void *w);
    /// q [n, row] := the reflections' product, whose columns are the basis of d and e. t:
    /// ND__REFLECT_PANEL squared, w: [ND__REFLECT_PANEL, row].
    void (*tridiagonal_basis)(const void *a, int64_t row, int64_t n, const void *tau, void *t,
                              void *w, void *q);
    /// The eigenvalues of d and e, in d, in no order; e is lost. Numbers of e are 0 below `unit` of
    /// what is beside them. false: the iteration did not converge. `rotations` NULL: values alone.
    bool (*tridiagonal_values)(double *d, double *e, int64_t n, double unit,
                               nd__rotations *rotations);
    void (*rotate)(nd__rotations *rotations); ///< nd__rotations.apply
} nd__spectral_loops;

/// Runs an EIGH call on matrix x of it, into out.
nd__linalg_result nd__cpu_spectral(const nd__linalg_call *call, int64_t row, const void *x,
                                   void *out);
#endif
