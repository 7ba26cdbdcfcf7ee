// Singular values and what is made of them, one matrix at a time (spectral.h).
//
// A matrix of many more rows than columns is q r first, and what is reduced is r. Up to MOST_FOLDED
// columns r is made of some rows at a time, which stay in a cache (fold.inc), and q is the product of
// the reflections; else by nd__factor_loops.qr.
#include "kernels/cpu/singular.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/spectral_parts.h"

/// Rows that are folded at a time, and columns that may be; where the reflections are kept, too.
enum { FOLDED_ROWS = 256, MOST_FOLDED = 160, MOST_KEPT = 64 };

/// A matrix of m >= n rows (x turned, where x has more columns), or the r of its q r where it has
/// many more rows.
typedef struct singular {
    int64_t m, n, row;
    bool turned;               ///< the matrix is x^T
    bool tall;                 ///< it is q r, and what is reduced is r
    bool folded;               ///< r is made of some rows at a time
    bool keeps;                ///< and the reflections are kept, which q is the product of
    int64_t reduced, long_row; ///< rows of what is reduced, and elements of a row of `left`
    int64_t others; ///< columns of b, with which the vectors of b's side begin instead of 1
    int64_t b_row;
    // Where it is folded: columns of the matrix and of b, if it is on that side; some rows of these, or
    // all reflections, with their factors; and what is made of them.
    int64_t width, width_row;
    int64_t chunks;        ///< in memory
    void *chunk, *factors; ///< [chunks, width, FOLDED_ROWS], [chunks, width]
    void *folded_triangle; ///< [width, width_row]
    // Where it is tall; what is named behind another shares its memory when that is done with.
    void *q;                        ///< [m, n]; of what is folded [n, n], of the first rows
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

/// Whether r may be made of some rows at a time, and q is wanted then, or not.
static bool is_folded(const problem *p, const singular *s) {
    const bool many = p->call->op == ND_OP_lstsq && !s->turned && s->others > s->n + 2;
    return s->tall && !many && s->width <= (s->keeps ? MOST_KEPT : MOST_FOLDED) && s->width <= s->m;
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
    s.width = s.turned ? s.n : s.n + s.others;
    s.width_row = nd__cpu_linalg_row(s.width, p->element);
    s.keeps = !p->call->values_only && s.width == s.n;
    s.folded = is_folded(p, &s);
    s.keeps = s.keeps && s.folded;
    s.chunks = s.keeps ? (s.m - s.n + FOLDED_ROWS - 1) / FOLDED_ROWS : 1;
    if (s.keeps) // chunks begin anywhere in a row, and end behind it
        s.m_row = nd__cpu_linalg_row(s.m + ND__FACTOR_BASE, p->element);
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
        s->chunk = carved(block, &offset, (size_t)(s->chunks * s->width * FOLDED_ROWS) * one);
        s->factors = carved(block, &offset, (size_t)(s->chunks * s->width) * one);
        s->whole = carved(block, &offset, s->keeps ? n * (size_t)s->m_row * one : 0);
        s->q = carved(block, &offset, s->keeps ? n * n * one : 0);
        s->factor_vectors = carved(block, &offset, s->keeps ? n * row * one : 0);
        s->factor_triangles = carved(block, &offset, s->keeps ? n * panel * one : 0);
        s->factor_work = carved(block, &offset, s->keeps ? 2 * n * panel * one : 0);
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
        turn(p->element, s->a, s->row, x, s->m, NULL, s->n, s->m);
    } else {
        spread(p, s->a, s->row, x, s->n, s->m);
    }
    return normalise(p, s->a, s->m * s->row);
}

/// a := r of the first n rows = q r, where q of all rows is wanted: else r could begin as zeros, on top of
/// the rows, which would be a part of the vectors where the matrix has not full rank.
static void begin_fold(const problem *p, const singular *s, const void *x, int exponent) {
    const size_t one = p->element;
    if (s->turned) {
        memset(s->a, 0, (size_t)(s->n * s->row) * one);
        turn(p->element, s->a, s->row, x, s->m, NULL, s->n, s->n);
    } else {
        spread(p, s->a, s->row, x, s->n, s->n);
    }
    scale(p, s->a, s->n * s->row, -exponent);
    memset(s->factor_vectors, 0, (size_t)(s->n * s->row) * one);
    p->factor->qr(s->a, s->factor_vectors, s->row, s->n, s->n, s->factor_triangles, s->factor_work,
                  s->q);
    for (int64_t i = 0; i < s->n; i++)
        memcpy((char *)s->folded_triangle + (size_t)(i * s->width_row + i) * one,
               (const char *)s->a + (size_t)(i * s->row + i) * one, (size_t)(s->n - i) * one);
}

/// Rows from `first` on of the matrix and of b as columns, with zeros behind them; their length.
static int64_t load_chunk(const problem *p, const singular *s, const void *x, const void *b,
                          int64_t first, int exponent, int of_b, void *columns) {
    const int64_t count = s->m - first < FOLDED_ROWS ? s->m - first : FOLDED_ROWS;
    const size_t one = p->element, skipped = (size_t)first * one;
    const int64_t length = (count + ND__FACTOR_BASE - 1) / ND__FACTOR_BASE * ND__FACTOR_BASE;
    const int64_t beside = s->width - s->n;
    char *column = columns, *columns_of_b = column + (size_t)(s->n * length) * one;
    for (int64_t i = 0; i < s->n && s->turned; i++)
        memcpy(column + (size_t)(i * length) * one,
               (const char *)x + (size_t)(i * s->m) * one + skipped, (size_t)count * one);
    if (!s->turned)
        turn(p->element, column, length, (const char *)x + skipped * (size_t)s->n, s->n, NULL,
             count, s->n);
    if (beside)
        turn(p->element, columns_of_b, length, (const char *)b + skipped * (size_t)beside, beside,
             NULL, count, beside);
    for (int64_t i = 0; i < s->width && count < length; i++)
        memset(column + (size_t)(i * length + count) * one, 0, (size_t)(length - count) * one);
    scale(p, column, s->n * length, -exponent);
    scale(p, columns_of_b, beside * length, -of_b);
    return length;
}

static void *chunk_of(const problem *p, const singular *s, int64_t at) {
    return (char *)s->chunk + (size_t)(at * s->width * FOLDED_ROWS) * p->element;
}

static void *factors_of(const problem *p, const singular *s, int64_t at) {
    return (char *)s->factors + (size_t)(at * s->width) * p->element;
}

/// a := r of the matrix = q r, and b, where it is on that side, := q^T b, of which what a does not
/// reach is left out. As load(), of both.
static int fold(const problem *p, const singular *s, const void *x, const void *b, int *ret_of_b) {
    const int64_t beside = s->width - s->n;
    const int exponent = exponent_of(p, x, s->m * s->n);
    *ret_of_b = beside ? exponent_of(p, b, s->m * beside) : 0;
    memset(s->folded_triangle, 0, (size_t)(s->width * s->width_row) * p->element);
    if (s->keeps)
        begin_fold(p, s, x, exponent);
    const int64_t begin = s->keeps ? s->n : 0;
    for (int64_t first = begin; first < s->m; first += FOLDED_ROWS) {
        const int64_t at = s->keeps ? (first - begin) / FOLDED_ROWS : 0;
        void *chunk = chunk_of(p, s, at);
        const int64_t length = load_chunk(p, s, x, b, first, exponent, *ret_of_b, chunk);
        p->loops->fold(s->folded_triangle, s->width_row, chunk, length, s->width,
                       factors_of(p, s, at));
    }
    const size_t one = p->element;
    const size_t line = (size_t)s->row * one, of_b = (size_t)s->b_row * one;
    for (int64_t i = 0; i < s->n; i++) {
        const char *r = (const char *)s->folded_triangle + (size_t)(i * s->width_row) * one;
        char *to = (char *)s->a + (size_t)i * line;
        memset(to, 0, line);
        memcpy(to, r, (size_t)s->n * one);
        if (!beside)
            continue;
        to = (char *)s->b + (size_t)i * of_b;
        memset(to, 0, of_b);
        memcpy(to, r + (size_t)s->n * one, (size_t)beside * one);
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
    turn(p->element, rows, row, s->a, s->row, NULL, m, s->n);
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

/// whole := the left vectors of q times those of r, which are lost.
static void unfold(const problem *p, const singular *s) {
    memset(s->whole, 0, (size_t)(s->n * s->m_row) * p->element);
    for (int64_t at = s->chunks - 1; at >= 0; at--) {
        const int64_t first = s->n + at * FOLDED_ROWS, left = s->m - first;
        const int64_t count = left < FOLDED_ROWS ? left : FOLDED_ROWS;
        p->loops->unfold(s->left, s->long_row, chunk_of(p, s, at), factors_of(p, s, at),
                         (count + ND__FACTOR_BASE - 1) / ND__FACTOR_BASE * ND__FACTOR_BASE, s->n,
                         (char *)s->whole + (size_t)first * p->element, s->m_row);
    }
    turn(p->element, s->a, s->row, s->q, s->n, NULL, s->n, s->n);
    p->loops->subtract(s->n, s->n, s->n, s->left, s->long_row, 1, s->a, s->row, s->whole, s->m_row);
    for (int64_t i = 0; i < s->n; i++)
        scale_by(p, (char *)s->whole + (size_t)(i * s->m_row) * p->element, s->n, -1);
}

/// The same by q.
static void multiply_by_q(const problem *p, const singular *s) {
    turn(p->element, s->a, s->row, s->left, s->long_row, NULL, s->n, s->n);
    scale_by(p, s->a, s->n * s->row, -1);
    memset(s->product, 0, (size_t)(s->m * s->n) * p->element);
    p->loops->subtract(s->m, s->n, s->n, s->q, s->n, 1, s->a, s->row, s->product, s->n);
    turn(p->element, s->whole, s->m_row, s->product, s->n, NULL, s->m, s->n);
}

/// left := the left vectors of q times those of r.
static void widen(const problem *p, singular *s) {
    if (s->folded)
        unfold(p, s);
    else
        multiply_by_q(p, s);
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
        turn(p->element, out, s->n, rows, row, s->order, s->n, size);
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
        put(p->element, values, i, ldexp(fabs(s->d[s->order[i]]), exponent));
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

nd__linalg_result nd__singular_compute(const nd__linalg_call *call, const void *x, const void *b,
                                       void *out) {
    const problem of_call = problem_of(call), *p = &of_call;
    singular s = singular_of(p);
    char *block = nd__cpu_scratch(carve_singular(p, NULL, &s));
    if (!block)
        return ND__LINALG_NO_MEMORY;
    carve_singular(p, block, &s);
    int of_b = 0;
    const int exponent = s.folded ? fold(p, &s, x, b, &of_b) : load(p, &s, x);
    if (s.others && (!s.folded || s.turned)) {
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
