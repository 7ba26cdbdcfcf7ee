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
    /// The largest absolute value of `count` numbers, a multiple of ND__FACTOR_BASE.
    double (*largest)(const void *x, int64_t count);
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

    /// Reduces a [m, row] of n columns, m >= n, to the diagonal d [n] and e [n - 1] above it.
    /// Reflection i of the columns is row i of u [n, u_row], from its number i on, and tau_u [n];
    /// of the rows row i of v [n, row], from its number i + 1 on, and tau_v. w: [3, row] and [2,
    /// u_row]. a is lost.
    void (*bidiagonalise)(void *a, int64_t row, int64_t m, int64_t n, double *d, double *e, void *u,
                          int64_t u_row, void *tau_u, void *v, void *tau_v, void *w);
    /// q [m, q_row] := the first `columns` columns of the product of `count` reflections whose
    /// vectors are rows of v, row i from its number i + shift on. t: ND__REFLECT_PANEL squared, w:
    /// [ND__REFLECT_PANEL, columns].
    void (*basis)(const void *v, int64_t row, int64_t shift, int64_t m, int64_t count,
                  const void *tau, void *t, void *w, void *q, int64_t q_row, int64_t columns);
    /// c [m, c_row] := the product of these, turned, times c.
    void (*reflect)(const void *v, int64_t row, int64_t shift, int64_t m, int64_t count,
                    const void *tau, void *t, void *w, void *c, int64_t c_row, int64_t columns);
    /// The singular values of d and e, of any sign, in d, in no order, as tridiagonal_values().
    bool (*bidiagonal_values)(double *d, double *e, int64_t n, double unit,
                              nd__rotations *rotations);
    /// The same without rotations. room: [5, n].
    bool (*bidiagonal_values_only)(double *d, double *e, int64_t n, double unit, double *room);
    /// c [m, n] -= a b, of k steps: number (i, j) of a is a[i a_row + j a_step].
    void (*subtract)(int64_t m, int64_t n, int64_t k, const void *a, int64_t a_row, int64_t a_step,
                     const void *b, int64_t b_row, void *c, int64_t c_row);
    /// r [width, row], an upper triangle := that of the QR decomposition of r with more rows below
    /// it. columns: these rows, [width, length], length a multiple of ND__FACTOR_BASE, which become
    /// the vectors of the reflections, and tau [width] their factors.
    void (*fold)(void *r, int64_t row, void *columns, int64_t length, int64_t width, void *tau);
    /// (top, bottom) := the product of such reflections times (top, bottom): row j of both is
    /// column j, top [width, row], bottom [width, bottom_row] of `length` numbers.
    void (*unfold)(void *top, int64_t row, const void *columns, const void *tau, int64_t length,
                   int64_t width, void *bottom, int64_t bottom_row);
} nd__spectral_loops;

/// Runs an EIGH, SVD, PINV or LSTSQ call on matrix x of it, and b, into out. All is finite.
nd__linalg_result nd__cpu_spectral(const nd__linalg_call *call, const void *x, const void *b,
                                   void *out);
#endif
