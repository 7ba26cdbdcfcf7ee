// Eigenvalues of symmetric matrices, singular values and what is made of them, one matrix at a time
// (spectral.h).
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
/// Rows that are folded at a time, and columns that may be.
enum { FOLDED_ROWS = 256, MOST_FOLDED = 64 };

typedef struct problem {
    const nd__linalg_call *call;
    const nd__spectral_loops *loops;
    const nd__factor_loops *factor;
    size_t element; ///< bytes
    double unit;    ///< below this beside another, a number of the second diagonal is 0
} problem;

static problem problem_of(const nd__linalg_call *call) {
    const bool narrow = call->dtype == ND_F32;
    return (problem){call, &nd__cpu_loops_now()->spectral[!narrow],
                     &nd__cpu_loops_now()->factor[!narrow], narrow ? 4 : 8,
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
    static void scale_##T(T *x, int64_t count, T factor) {                        \
        for (int64_t i = 0; i < count; i++)                                       \
            x[i] *= factor;                                                       \
    }                                                                             \
    static void divide_##T(T *x, int64_t count, T number) {                       \
        for (int64_t i = 0; i < count; i++)                                       \
            x[i] /= number;                                                       \
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

static void scale_by(const problem *p, void *x, int64_t count, double factor) {
    if (p->element == 4)
        scale_float(x, count, (float)factor);
    else
        scale_double(x, count, factor);
}

static void divide_by(const problem *p, void *x, int64_t count, double number) {
    if (p->element == 4)
        divide_float(x, count, (float)number);
    else
        divide_double(x, count, number);
}

/// Times a power of two, in two factors, since one may be no number.
static void scale(const problem *p, void *x, int64_t count, int exponent) {
    if (exponent == 0)
        return;
    scale_by(p, x, count, ldexp(1, exponent / 2));
    scale_by(p, x, count, ldexp(1, exponent - exponent / 2));
}

/// The power of two of `count` numbers' largest, where that is far from 1; else 0.
static int exponent_of(const problem *p, const void *x, int64_t count) {
    const int near = p->element == 4 ? 30 : 250;
    const int64_t whole = count / ND__FACTOR_BASE * ND__FACTOR_BASE;
    const size_t bytes = (size_t)(count - whole) * p->element;
    double rest[ND__FACTOR_BASE] = {0};
    if (bytes > 0)
        memcpy(rest, (const char *)x + (size_t)whole * p->element, bytes);
    const double largest =
        fmax(p->loops->largest(x, whole), p->loops->largest(rest, ND__FACTOR_BASE));
    int exponent = 0;
    frexp(largest, &exponent);
    return largest == 0 || (exponent > -near && exponent < near) ? 0 : exponent;
}

/// Multiplies x by the power of two that makes its largest number about 1 where that is far from it;
/// the exponent of what takes it back.
static int normalise(const problem *p, void *x, int64_t count) {
    const int exponent = exponent_of(p, x, count);
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

static nd__linalg_result eigh(const problem *p, const void *x, void *out) {
    const int64_t n = p->call->n, row = nd__cpu_linalg_row(n, p->element);
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

// -------------------------------------------------------------------------------------------------
// singular values

/// A matrix of m >= n rows (x turned, where x has more columns), or the r of its q r where it has
/// many more rows.
typedef struct singular {
    int64_t m, n, row;
    bool turned;               ///< the matrix is x^T
    bool tall;                 ///< it is q r, and what is reduced is r
    bool folded;               ///< of q only q^T b is wanted
    int64_t reduced, long_row; ///< rows of what is reduced, and elements of a row of `left`
    int64_t others; ///< columns of b, with which the vectors of b's side begin instead of 1
    int64_t b_row;
    // Where it is folded: columns of the matrix and of b, some rows of these, and what is made of them.
    int64_t width, width_row;
    void *chunk;           ///< [width, FOLDED_ROWS]
    void *folded_triangle; ///< [width, width_row]
    // Where it is tall; what is named behind another shares its memory when that is done with.
    void *q;                        ///< [m, n]
    void *factor_vectors, *product; ///< [m, row], [m, n]
    void *factor_triangles, *factor_work;
    void *a, *whole;    ///< [m, row], [n, m_row]: the left vectors of q r
    void *left, *right; ///< vectors as rows, [n, long_row] and [n, row], or their reflections
    int64_t m_row;
    void *b; ///< [m, b_row]
    void *tau_left, *tau_right, *w, *triangle;
    double *d, *e, *sweeps;
    void *packed;
    int64_t *order;
} singular;

/// As many rows more than columns as make a QR decomposition first worth its while.
static bool is_tall(int64_t m, int64_t n) {
    return m - n > n * 5 / 8 && m > 2 * ND__FACTOR_BASE;
}

/// Whether r is made of some rows at a time, which stay in a cache, with b's as more columns.
static bool is_folded(const problem *p, const singular *s) {
    const bool of_b = p->call->op == ND_OP_lstsq && !s->turned && s->others <= s->n + 2;
    return s->tall && (p->call->values_only || of_b) && s->width <= MOST_FOLDED && s->width <= s->m;
}

static singular singular_of(const problem *p) {
    const nd__linalg_call *c = p->call;
    singular s = {.turned = c->m < c->n, .others = c->op == ND_OP_lstsq ? c->o : 0};
    s.m = s.turned ? c->n : c->m;
    s.n = s.turned ? c->m : c->n;
    s.row = nd__cpu_linalg_row(s.n, p->element);
    s.m_row = nd__cpu_linalg_row(s.m, p->element);
    s.tall = is_tall(s.m, s.n);
    s.reduced = s.tall ? s.n : s.m;
    s.long_row = s.tall ? s.row : s.m_row;
    s.b_row = s.others ? nd__cpu_linalg_row(s.others, p->element) : 0;
    s.width = s.n + s.others;
    s.width_row = nd__cpu_linalg_row(s.width, p->element);
    s.folded = is_folded(p, &s);
    return s;
}

static size_t larger_of(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t carve_singular(const problem *p, char *block, singular *s) {
    const size_t wide = sizeof(double), one = p->element, panel = ND__REFLECT_PANEL;
    const size_t m = (size_t)s->m, n = (size_t)s->n, row = (size_t)s->row;
    const size_t b_row = (size_t)s->b_row, two = 3 * row + 2 * (size_t)s->long_row;
    const bool vectors = !p->call->values_only;
    size_t offset = 0;
    const size_t a_size = larger_of(m * row, s->tall ? n * (size_t)s->m_row : 0);
    s->a = carved(block, &offset, (s->folded ? n * row : a_size) * one);
    s->left = carved_rows(p, block, &offset, s->n, s->long_row);
    s->right = carved_rows(p, block, &offset, s->n, s->row);
    s->tau_left = carved(block, &offset, n * one);
    s->tau_right = carved(block, &offset, n * one);
    s->w = carved(block, &offset, larger_of(two, panel * larger_of(row, b_row)) * one);
    s->d = carved(block, &offset, n * wide);
    s->e = carved(block, &offset, n * wide);
    s->order = carved(block, &offset, n * sizeof(int64_t));
    s->b = s->others ? carved_rows(p, block, &offset, s->folded ? s->n : s->m, s->b_row) : NULL;
    s->triangle = carved(block, &offset, vectors ? panel * panel * one : 0);
    s->sweeps = carved(block, &offset, (vectors ? 2 * ND__SWEEPS * 2 : 5) * n * wide);
    s->packed = carved(block, &offset, vectors ? (size_t)ND__PACKED_ROTATIONS(s->n) * one : 0);
    if (!s->tall)
        return offset;
    if (s->folded) {
        s->chunk = carved(block, &offset, (size_t)(s->width * FOLDED_ROWS) * one);
        s->folded_triangle = carved(block, &offset, (size_t)(s->width * s->width_row) * one);
        return offset;
    }
    s->factor_vectors = carved(block, &offset, larger_of(m * row, n * b_row) * one);
    s->factor_triangles = carved(block, &offset, n * panel * one);
    s->factor_work = carved(block, &offset, 2 * n * panel * one);
    s->q = carved(block, &offset, vectors ? m * n * one : 0);
    s->product = s->factor_vectors;
    s->whole = s->a;
    return offset;
}

/// a := x, or x^T. The exponent of what takes its scale back.
static int load(const problem *p, const singular *s, const void *x) {
    if (s->turned) {
        memset(s->a, 0, (size_t)(s->m * s->row) * p->element);
        turn(p, s->a, s->row, x, s->m, NULL, s->n, s->m);
    } else {
        spread(p, s->a, s->row, x, s->n, s->m);
    }
    return normalise(p, s->a, s->m * s->row);
}

/// Rows `first` and the next ones of the matrix and of b as the chunk's columns, with zeros behind them;
/// the columns' length.
static int64_t load_chunk(const problem *p, const singular *s, const void *x, const void *b,
                          int64_t first, int64_t count, int exponent, int of_b) {
    const size_t one = p->element, skipped = (size_t)first * one;
    const int64_t length = (count + ND__FACTOR_BASE - 1) / ND__FACTOR_BASE * ND__FACTOR_BASE;
    char *column = s->chunk, *columns_of_b = column + (size_t)(s->n * length) * one;
    for (int64_t i = 0; i < s->n && s->turned; i++)
        memcpy(column + (size_t)(i * length) * one,
               (const char *)x + (size_t)(i * s->m) * one + skipped, (size_t)count * one);
    if (!s->turned)
        turn(p, column, length, (const char *)x + skipped * (size_t)s->n, s->n, NULL, count, s->n);
    if (s->others)
        turn(p, columns_of_b, length, (const char *)b + skipped * (size_t)s->others, s->others,
             NULL, count, s->others);
    for (int64_t i = 0; i < s->width && count < length; i++)
        memset(column + (size_t)(i * length + count) * one, 0, (size_t)(length - count) * one);
    scale(p, column, s->n * length, -exponent);
    scale(p, columns_of_b, s->others * length, -of_b);
    return length;
}

/// a := r of the matrix = q r, and b := q^T b, of which what a does not reach is left out. As load().
static int fold(const problem *p, const singular *s, const void *x, const void *b, int *ret_of_b) {
    const int exponent = exponent_of(p, x, s->m * s->n);
    *ret_of_b = s->others ? exponent_of(p, b, s->m * s->others) : 0;
    memset(s->folded_triangle, 0, (size_t)(s->width * s->width_row) * p->element);
    for (int64_t first = 0; first < s->m; first += FOLDED_ROWS) {
        const int64_t count = s->m - first < FOLDED_ROWS ? s->m - first : FOLDED_ROWS;
        const int64_t length = load_chunk(p, s, x, b, first, count, exponent, *ret_of_b);
        p->loops->fold(s->folded_triangle, s->width_row, s->chunk, length, s->width);
    }
    const size_t one = p->element;
    const size_t line = (size_t)s->row * one, of_b = (size_t)s->b_row * one;
    for (int64_t i = 0; i < s->n; i++) {
        const char *r = (const char *)s->folded_triangle + (size_t)(i * s->width_row) * one;
        char *to = (char *)s->a + (size_t)i * line;
        memset(to, 0, line);
        memcpy(to, r, (size_t)s->n * one);
        if (!s->others)
            continue;
        to = (char *)s->b + (size_t)i * of_b;
        memset(to, 0, of_b);
        memcpy(to, r + (size_t)s->n * one, (size_t)s->others * one);
    }
    return exponent;
}

/// a := r of a = q r.
static void factor_tall(const problem *p, const singular *s) {
    const size_t line = (size_t)s->row * p->element;
    memset(s->factor_vectors, 0, (size_t)s->m * line);
    p->factor->qr(s->a, s->factor_vectors, s->row, s->m, s->n, s->factor_triangles, s->factor_work,
                  p->call->values_only ? NULL : s->q);
    for (int64_t i = 0; i < s->n; i++) {
        char *r = (char *)s->a + (size_t)i * line;
        memset(r, 0, (size_t)i * p->element);
        memset(r + (size_t)s->n * p->element, 0, line - (size_t)s->n * p->element);
    }
}

/// Makes rows of vectors of the reflections in `rows`, whose first numbers stand `shift` behind the
/// diagonal: n vectors of m numbers.
static void make_vectors(const problem *p, const singular *s, void *rows, int64_t row,
                         int64_t shift, int64_t m, const void *tau) {
    p->loops->basis(rows, row, shift, m, s->n - shift, tau, s->triangle, s->w, s->a, s->row, s->n);
    turn(p, rows, row, s->a, s->row, NULL, m, s->n);
    clear_guards(p, rows, s->n, row);
}

/// b's rows in the basis of what is reduced, on the side where x's rows are.
static void turn_b(const problem *p, const singular *s) {
    if (s->turned) {
        p->loops->reflect(s->right, s->row, 1, s->n, s->n - 1, s->tau_right, s->triangle, s->w,
                          s->b, s->b_row, s->others);
        return;
    }
    if (s->tall && !s->folded) { // b := q^T b
        const size_t bytes = (size_t)(s->n * s->b_row) * p->element;
        memset(s->product, 0, bytes);
        p->loops->subtract(s->n, s->others, s->m, s->q, 1, s->n, s->b, s->b_row, s->product,
                           s->b_row);
        memcpy(s->b, s->product, bytes);
        scale_by(p, s->b, s->n * s->b_row, -1);
    }
    p->loops->reflect(s->left, s->long_row, 0, s->reduced, s->n, s->tau_left, s->triangle, s->w,
                      s->b, s->b_row, s->others);
}

/// left := the left vectors of q times those of r.
static void widen(const problem *p, singular *s) {
    turn(p, s->a, s->row, s->left, s->long_row, NULL, s->n, s->n);
    scale_by(p, s->a, s->n * s->row, -1);
    memset(s->product, 0, (size_t)(s->m * s->n) * p->element);
    p->loops->subtract(s->m, s->n, s->n, s->q, s->n, 1, s->a, s->row, s->product, s->n);
    turn(p, s->whole, s->m_row, s->product, s->n, NULL, s->m, s->n);
    s->left = s->whole;
    s->long_row = s->m_row;
}

/// Values in d, and the vectors, those of b's side times b where there is a b.
static bool decompose(const problem *p, singular *s) {
    if (s->tall && !s->folded)
        factor_tall(p, s);
    p->loops->bidiagonalise(s->a, s->row, s->reduced, s->n, s->d, s->e, s->left, s->long_row,
                            s->tau_left, s->right, s->tau_right, s->w);
    if (p->call->values_only)
        return p->loops->bidiagonal_values_only(s->d, s->e, s->n, 8 * p->unit, s->sweeps);
    const bool b_is_left = s->others && !s->turned, b_is_right = s->others && s->turned;
    nd__rotations r = {.n = s->n, .packed = s->packed, .apply = p->loops->rotate};
    if (s->others) {
        turn_b(p, s);
        clear_guards(p, s->b, s->turned || s->folded ? s->n : s->m, s->b_row);
    }
    if (!b_is_left)
        make_vectors(p, s, s->left, s->long_row, 0, s->reduced, s->tau_left);
    if (!b_is_right)
        make_vectors(p, s, s->right, s->row, 1, s->n, s->tau_right);
    const nd__turned of_b = {s->b, s->b_row, s->b_row, NULL};
    r.sides[0] = b_is_left ? of_b : (nd__turned){s->left, s->long_row, s->long_row, NULL};
    r.sides[1] = b_is_right ? of_b : (nd__turned){s->right, s->row, s->row, NULL};
    r.sides[0].sweeps = s->sweeps;
    r.sides[1].sweeps = s->sweeps + 2 * ND__SWEEPS * s->n;
    if (!p->loops->bidiagonal_values(s->d, s->e, s->n, 8 * p->unit, &r))
        return false;
    if (s->tall && !b_is_left)
        widen(p, s);
    return true;
}

/// Writes n vectors of `size` numbers as rows, or as columns, in the order of their values;
/// negative ones take their sign to the vector where `signs` is set.
static void write_vectors(const problem *p, const singular *s, void *rows, int64_t row,
                          int64_t size, bool as_columns, bool signs, void *out) {
    const size_t bytes = (size_t)size * p->element, step = (size_t)row * p->element;
    for (int64_t i = 0; i < s->n && signs; i++)
        if (s->d[i] < 0)
            scale_by(p, (char *)rows + (size_t)i * step, size, -1);
    if (as_columns)
        turn(p, out, s->n, rows, row, s->order, s->n, size);
    for (int64_t i = 0; i < s->n && !as_columns; i++)
        memcpy((char *)out + (size_t)i * bytes, (char *)rows + (size_t)s->order[i] * step, bytes);
}

static void write_svd(const problem *p, const singular *s, int exponent, char *out) {
    const nd__linalg_call *c = p->call;
    double *keys = s->e;
    for (int64_t i = 0; i < s->n; i++)
        keys[i] = -fabs(s->d[i]);
    sort(keys, s->n, s->order);
    char *values = out + (c->values_only ? 0 : (size_t)(c->m * s->n) * p->element);
    for (int64_t i = 0; i < s->n; i++)
        put(p, values, i, ldexp(fabs(s->d[s->order[i]]), exponent));
    if (c->values_only)
        return;
    char *v = values + (size_t)s->n * p->element;
    write_vectors(p, s, s->left, s->long_row, s->m, !s->turned, true, s->turned ? v : out);
    write_vectors(p, s, s->right, s->row, s->n, s->turned, false, s->turned ? out : v);
}

/// Divides rows by their values, with the sign that subtract() takes away; those of values that
/// count as 0 become zeros.
static void divide_by_values(const problem *p, const singular *s, void *rows, int64_t row) {
    double largest = 0;
    for (int64_t i = 0; i < s->n; i++)
        largest = fmax(largest, fabs(s->d[i]));
    for (int64_t i = 0; i < s->n; i++) {
        void *line = (char *)rows + (size_t)(i * row) * p->element;
        if (fabs(s->d[i]) > p->call->tolerance * largest)
            divide_by(p, line, row, -s->d[i]);
        else
            memset(line, 0, (size_t)row * p->element);
    }
}

static void write_pinv(const problem *p, const singular *s, int exponent, void *out) {
    const int64_t rows = p->call->n, columns = p->call->m;
    memset(out, 0, (size_t)(rows * columns) * p->element);
    if (s->turned) {
        divide_by_values(p, s, s->right, s->row);
        p->loops->subtract(rows, columns, s->n, s->left, 1, s->long_row, s->right, s->row, out,
                           columns);
    } else {
        divide_by_values(p, s, s->left, s->long_row);
        p->loops->subtract(rows, columns, s->n, s->right, 1, s->row, s->left, s->long_row, out,
                           columns);
    }
    scale(p, out, rows * columns, -exponent);
}

static void write_solution(const problem *p, const singular *s, int exponent, void *out) {
    const int64_t rows = p->call->n, columns = s->others;
    memset(out, 0, (size_t)(rows * columns) * p->element);
    divide_by_values(p, s, s->b, s->b_row);
    p->loops->subtract(rows, columns, s->n, s->turned ? s->left : s->right, 1,
                       s->turned ? s->long_row : s->row, s->b, s->b_row, out, columns);
    scale(p, out, rows * columns, exponent);
}

static nd__linalg_result svd(const problem *p, const void *x, const void *b, void *out) {
    singular s = singular_of(p);
    char *block = nd__cpu_scratch(carve_singular(p, NULL, &s));
    if (!block)
        return ND__LINALG_NO_MEMORY;
    carve_singular(p, block, &s);
    int of_b = 0;
    const int exponent = s.folded ? fold(p, &s, x, b, &of_b) : load(p, &s, x);
    if (s.others && !s.folded) {
        spread(p, s.b, s.b_row, b, s.others, p->call->m);
        of_b = normalise(p, s.b, p->call->m * s.b_row);
    }
    if (!decompose(p, &s))
        return ND__LINALG_NOT_CONVERGED;
    switch (p->call->op) {
    case ND_OP_svd:
        write_svd(p, &s, exponent, out);
        break;
    case ND_OP_pinv:
        write_pinv(p, &s, exponent, out);
        break;
    default:
        write_solution(p, &s, of_b - exponent, out);
    }
    return ND__LINALG_DONE;
}

nd__linalg_result nd__cpu_spectral(const nd__linalg_call *call, const void *x, const void *b,
                                   void *out) {
    const problem p = problem_of(call);
    return call->op == ND_OP_eigh ? eigh(&p, x, out) : svd(&p, x, b, out);
}
