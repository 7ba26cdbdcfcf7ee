// Eigenvalues of symmetric matrices, one matrix at a time (spectral.h).
//
// Invariant: a matrix is multiplied by a power of two, which changes no digits, so that its largest
// number is about 1 where squares of its numbers could overflow or vanish, and its values are
// multiplied back.
#include "kernels/cpu/spectral.h"
#include "kernels/cpu/scratch.h"
#include <float.h>
#include <math.h>
#include <string.h>

/// Rows and columns that are turned together, while their lines are in the nearest cache.
enum { TURNED = 16 };

typedef struct problem {
    const nd__linalg_call *call;
    const nd__spectral_loops *loops;
    size_t element; ///< bytes
    double unit;    ///< below this beside another, a number of the second diagonal is 0
} problem;

static problem problem_of(const nd__linalg_call *call) {
    const bool narrow = call->dtype == ND_F32;
    return (problem){call, &nd__cpu_loops_now()->spectral[!narrow], narrow ? 4 : 8,
                     narrow ? FLT_EPSILON / 16 : DBL_EPSILON / 2};
}

/// The next `bytes` of a block, at an address that every type may have.
static void *carved(char *block, size_t *offset, size_t bytes) {
    void *part = block ? block + *offset : NULL;
    *offset += (bytes + 63) & ~(size_t)63;
    return part;
}

static void put(const problem *p, void *x, int64_t i, double value) {
    if (p->element == 4)
        ((float *)x)[i] = (float)value;
    else
        ((double *)x)[i] = value;
}

#define DEFINE_LOOPS(T)                                                           \
    static T largest_##T(const T *x, int64_t count) {                             \
        T largest = 0;                                                            \
        for (int64_t i = 0; i < count; i++) {                                     \
            const T size = x[i] < 0 ? -x[i] : x[i];                               \
            largest = size > largest ? size : largest;                            \
        }                                                                         \
        return largest;                                                           \
    }                                                                             \
    static void scale_##T(T *x, int64_t count, T factor) {                        \
        for (int64_t i = 0; i < count; i++)                                       \
            x[i] *= factor;                                                       \
    }                                                                             \
    static void turn_##T(T *to, int64_t to_row, const T *from, int64_t from_row,  \
                         const int64_t *order, int64_t rows, int64_t columns) {   \
        for (int64_t top = 0; top < rows; top += TURNED)                          \
            for (int64_t left = 0; left < columns; left += TURNED)                \
                for (int64_t i = top; i < rows && i < top + TURNED; i++) {        \
                    const T *line = from + (order ? order[i] : i) * from_row;     \
                    for (int64_t j = left; j < columns && j < left + TURNED; j++) \
                        to[j * to_row + i] = line[j];                             \
                }                                                                 \
    }
DEFINE_LOOPS(float)
DEFINE_LOOPS(double)

/// Writes rows as columns, in this order (NULL: theirs).
static void turn(const problem *p, void *to, int64_t to_row, const void *from, int64_t from_row,
                 const int64_t *order, int64_t rows, int64_t columns) {
    if (p->element == 4)
        turn_float(to, to_row, from, from_row, order, rows, columns);
    else
        turn_double(to, to_row, from, from_row, order, rows, columns);
}

static void scale(const problem *p, void *x, int64_t count, int exponent) {
    // In two factors, since one may be no number.
    for (int half = 0; half < 2; half++) {
        const int part = half ? exponent - exponent / 2 : exponent / 2;
        if (p->element == 4)
            scale_float(x, count, (float)ldexp(1, part));
        else
            scale_double(x, count, ldexp(1, part));
    }
}

/// Multiplies x by the power of two that makes its largest number about 1 where that is far from
/// it; the exponent of what takes it back.
static int normalise(const problem *p, void *x, int64_t count) {
    const int near = p->element == 4 ? 30 : 250;
    const double largest =
        p->element == 4 ? (double)largest_float(x, count) : largest_double(x, count);
    int exponent = 0;
    frexp(largest, &exponent);
    if (largest == 0 || (exponent > -near && exponent < near))
        return 0;
    scale(p, x, count, -exponent);
    return exponent;
}

/// Row by row into rows that are further apart, and zeros behind them.
static void spread(const problem *p, void *to, int64_t to_row, const void *from, int64_t columns,
                   int64_t rows) {
    const size_t step = (size_t)to_row * p->element, bytes = (size_t)columns * p->element;
    for (int64_t i = 0; i < rows; i++) {
        char *line = (char *)to + (size_t)i * step;
        memcpy(line, (const char *)from + (size_t)i * bytes, bytes);
        memset(line + bytes, 0, step - bytes);
    }
}

/// The order in which d rises, by insertion: iterations leave values nearly in order.
static void sort(const double *d, int64_t n, int64_t *ret_order) {
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i;
        for (; at > 0 && d[ret_order[at - 1]] > d[i]; at--)
            ret_order[at] = ret_order[at - 1];
        ret_order[at] = i;
    }
}

/// Room for a matrix of n rows between guards; its first row.
static void *carved_rows(const problem *p, char *block, size_t *offset, int64_t n, int64_t row) {
    const size_t bytes = (size_t)row * p->element;
    char *guard = carved(block, offset, (size_t)(n + 2 * ND__GUARD) * bytes);
    return guard ? guard + ND__GUARD * bytes : NULL;
}

static void clear_guards(const problem *p, void *rows, int64_t n, int64_t row) {
    const size_t bytes = (size_t)row * p->element;
    memset((char *)rows - ND__GUARD * bytes, 0, ND__GUARD * bytes);
    memset((char *)rows + (size_t)n * bytes, 0, ND__GUARD * bytes);
}

// -------------------------------------------------------------------------------------------------
// eigenvalues

typedef struct eigen_space {
    void *a, *basis; ///< [n, row], a between guards
    void *tau, *w, *triangle;
    double *d, *e, *sweeps;
    void *packed;
    int64_t *order;
} eigen_space;

static size_t carve_eigen(const problem *p, int64_t row, char *block, eigen_space *ret_space) {
    const int64_t n = p->call->n, panel = ND__REFLECT_PANEL;
    const bool vectors = !p->call->values_only;
    const size_t line = (size_t)row * p->element, wide = sizeof(double);
    size_t offset = 0;
    eigen_space *s = ret_space;
    s->a = carved_rows(p, block, &offset, n, row);
    s->tau = carved(block, &offset, line);
    s->d = carved(block, &offset, (size_t)n * wide);
    s->e = carved(block, &offset, (size_t)n * wide);
    s->order = carved(block, &offset, (size_t)n * sizeof(int64_t));
    s->w = carved(block, &offset, (vectors ? (size_t)panel : 4) * line);
    s->basis = carved(block, &offset, vectors ? (size_t)n * line : 0);
    s->triangle = carved(block, &offset, vectors ? (size_t)(panel * panel) * p->element : 0);
    s->sweeps = carved(block, &offset, vectors ? (size_t)(ND__SWEEPS * 2 * n) * wide : 0);
    s->packed = carved(block, &offset, vectors ? (size_t)ND__PACKED_ROTATIONS(n) * p->element : 0);
    return offset;
}

static nd__linalg_result eigh(const problem *p, int64_t row, const void *x, void *out) {
    const int64_t n = p->call->n;
    eigen_space s;
    char *block = nd__cpu_scratch(carve_eigen(p, row, NULL, &s));
    if (!block)
        return ND__LINALG_NO_MEMORY;
    carve_eigen(p, row, block, &s);
    spread(p, s.a, row, x, n, n);
    const int exponent = normalise(p, s.a, n * row);
    p->loops->tridiagonalise(s.a, row, n, s.d, s.e, s.tau, s.w);
    nd__rotations r = {.n = n,
                       .sides = {{s.a, row, row, s.sweeps}},
                       .packed = s.packed,
                       .apply = p->loops->rotate};
    const bool vectors = !p->call->values_only;
    if (vectors) {
        p->loops->tridiagonal_basis(s.a, row, n, s.tau, s.triangle, s.w, s.basis);
        turn(p, s.a, row, s.basis, row, NULL, n, n);
        clear_guards(p, s.a, n, row);
    }
    if (!p->loops->tridiagonal_values(s.d, s.e, n, p->unit, vectors ? &r : NULL))
        return ND__LINALG_NOT_CONVERGED;
    sort(s.d, n, s.order);
    for (int64_t i = 0; i < n; i++)
        put(p, out, i, ldexp(s.d[s.order[i]], exponent));
    if (vectors)
        turn(p, (char *)out + (size_t)n * p->element, n, s.a, row, s.order, n, n);
    return ND__LINALG_DONE;
}

nd__linalg_result nd__cpu_spectral(const nd__linalg_call *call, int64_t row, const void *x,
                                   void *out) {
    const problem p = problem_of(call);
    return eigh(&p, row, x, out);
}
