// Factors of dense matrices and what is made of them by the loops of factor.inc and reflect.inc;
// eigenvalues and singular values are spectral.c's.
#include "kernels/cpu/linalg.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/linalg_parts.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/spectral.h"
#include "lib/base/float_mode.h"
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

/// One call, with what its matrices share.
typedef struct job {
    const nd__linalg_call *call;
    const nd__factor_loops *factor;
    size_t element; ///< bytes
    int64_t row;    ///< elements from one row to the next of a matrix that is factored
    int m, n, o;
    _Atomic int64_t first_failed;
} job;

/// Working memory of one matrix.
typedef struct workspace {
    void *a; ///< [m, row]
    void *b; ///< [n, ND__FACTOR_BASE], of narrow right sides
    void *v; ///< [m, row], a QR decomposition's reflections
    void *t; ///< their triangles
    void *work;
    int *pivots;
} workspace;

static double get(const job *j, const void *x, int64_t i) {
    return j->element == 4 ? (double)((const float *)x)[i] : ((const double *)x)[i];
}

static void *behind(const job *j, void *x, int64_t elements) {
    return (char *)x + (size_t)elements * j->element;
}

#define DEFINE_IS_FINITE(T)                                \
    static bool is_finite_##T(const T *x, int64_t count) { \
        int others = 0;                                    \
        for (int64_t i = 0; i < count; i++)                \
            others |= !(x[i] - x[i] == 0);                 \
        return !others;                                    \
    }
DEFINE_IS_FINITE(float)
DEFINE_IS_FINITE(double)

static bool is_finite(const job *j, const void *x, int64_t count) {
    return j->element == 4 ? is_finite_float(x, count) : is_finite_double(x, count);
}

// -------------------------------------------------------------------------------------------------
// working memory

int64_t nd__cpu_linalg_size(const nd__linalg_call *call) {
    int64_t m = call->m, n = call->n, k = m < n ? m : n;
    switch (call->op) {
    case ND_OP_solve:
    case ND_OP_solve_triangular:
    case ND_OP_lstsq:
        return n * call->o;
    case ND_OP_slogdet:
        return 3;
    case ND_OP_qr:
        return m * n + n * n;
    case ND_OP_svd:
        return call->values_only ? k : m * k + k + k * n;
    case ND_OP_eigh:
        return call->values_only ? n : n + n * n;
    default: // cholesky, pinv
        return m * n;
    }
}

int64_t nd__cpu_linalg_row(int64_t n, size_t element) {
    int64_t row = (n + ND__FACTOR_BASE - 1) / ND__FACTOR_BASE * ND__FACTOR_BASE;
    return (size_t)row * element % 2048 == 0 ? row + ND__FACTOR_BASE : row;
}

/// Whether a few right sides are solved for with rows of whole vectors.
static bool is_narrow(const job *j) {
    return j->call->op == ND_OP_solve && j->n <= ND__FACTOR_BASE && j->o < ND__FACTOR_BASE;
}

/// Cuts a block into the parts of a workspace; returns what they need. Without a block only that.
static size_t carve(const job *j, char *block, workspace *ret_space) {
    const bool qr = j->call->op == ND_OP_qr;
    const size_t m = (size_t)j->m, n = (size_t)j->n, row = (size_t)j->row, e = j->element;
    const size_t panel = ND__REFLECT_PANEL;
    size_t offset = 0;
    ret_space->a = carved(block, &offset, m * row * e);
    ret_space->b = carved(block, &offset, is_narrow(j) ? n * ND__FACTOR_BASE * e : 0);
    ret_space->v = carved(block, &offset, qr ? m * row * e : 0);
    ret_space->t = carved(block, &offset, qr ? n * panel * e : 0);
    ret_space->work = carved(block, &offset, qr ? 2 * n * panel * e : 0);
    ret_space->pivots = carved(block, &offset, n * sizeof(int));
    return offset;
}

static bool is_iterated(nd_op op) {
    return op == ND_OP_svd || op == ND_OP_eigh || op == ND_OP_pinv || op == ND_OP_lstsq;
}

static bool is_too_large(const nd__linalg_call *call) {
    return call->m > INT_MAX || call->n > INT_MAX || call->o > INT_MAX;
}

// -------------------------------------------------------------------------------------------------
// one matrix

/// Rows of so many bytes that lie `to_row` and `from_row` bytes apart; what is between those that
/// are written becomes zeros.
static void copy_rows(void *to, size_t to_row, const void *from, size_t from_row, size_t bytes,
                      int64_t rows) {
    if (to_row == from_row) {
        memcpy(to, from, (size_t)rows * bytes);
        return;
    }
    if (to_row > bytes)
        memset(to, 0, (size_t)rows * to_row);
    for (int64_t i = 0; i < rows; i++)
        memcpy((char *)to + (size_t)i * to_row, (const char *)from + (size_t)i * from_row, bytes);
}

/// x with its rows `row` apart, and zeros between them.
static void spread(const job *j, void *to, const void *x) {
    const size_t bytes = (size_t)j->n * j->element;
    copy_rows(to, (size_t)j->row * j->element, x, bytes, bytes, j->m);
}

static nd__linalg_result solve_triangular(const job *j, const void *x, const void *b, void *out,
                                          int *ret_place) {
    const nd__linalg_call *call = j->call;
    for (int i = 0; i < j->n && !call->unit; i++)
        if (get(j, x, (int64_t)i * j->n + i) == 0) {
            *ret_place = i + 1;
            return ND__LINALG_SINGULAR;
        }
    memcpy(out, b, (size_t)(call->n * call->o) * j->element);
    j->factor->solve_triangle(x, j->n, j->n, call->upper, call->unit, out, j->o, j->o);
    return ND__LINALG_DONE;
}

static void exchange(char *a, char *b, size_t bytes) {
    for (size_t i = 0; i < bytes; i++) {
        char byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

static nd__linalg_result solve(const job *j, const workspace *w, const void *x, const void *b,
                               void *out, int *ret_place) {
    spread(j, w->a, x);
    *ret_place = j->factor->lu(w->a, j->row, j->n, w->pivots);
    if (*ret_place > 0)
        return ND__LINALG_SINGULAR;
    const bool narrow = is_narrow(j);
    const int64_t row = narrow ? ND__FACTOR_BASE : j->o;
    const size_t bytes = (size_t)j->o * j->element, line = (size_t)row * j->element;
    char *solved = narrow ? w->b : out;
    copy_rows(solved, line, b, bytes, bytes, j->n);
    for (int i = 0; i < j->n; i++)
        if (w->pivots[i] != i)
            exchange(solved + (size_t)i * line, solved + (size_t)w->pivots[i] * line, bytes);
    j->factor->solve_triangle(w->a, j->row, j->n, false, true, solved, row, row);
    j->factor->solve_triangle(w->a, j->row, j->n, true, false, solved, row, row);
    if (narrow)
        copy_rows(out, bytes, solved, line, bytes, j->n);
    return ND__LINALG_DONE;
}

/// By the upper triangle of x^T, which holds x's lower one.
static nd__linalg_result cholesky(const job *j, const workspace *w, const void *x, void *out,
                                  int *ret_place) {
    turn(j->element, w->a, j->row, x, j->n, NULL, j->n, j->n);
    *ret_place = j->factor->cholesky(w->a, j->row, j->n);
    if (*ret_place > 0)
        return ND__LINALG_NOT_POSITIVE;
    turn(j->element, out, j->n, w->a, j->row, NULL, j->n, j->n);
    for (int64_t row = 0; row < j->n; row++)
        memset(behind(j, out, row * j->n + row + 1), 0, (size_t)(j->n - row - 1) * j->element);
    return ND__LINALG_DONE;
}

/// By the diagonal of u: a row that was exchanged turns the sign. Exponents are added up apart, so
/// that the product goes no further than its end.
static nd__linalg_result slogdet(const job *j, const workspace *w, const void *x, void *out) {
    spread(j, w->a, x);
    j->factor->lu(w->a, j->row, j->n, w->pivots);
    double sign = 1, product = 1;
    int64_t exponent = 0;
    for (int64_t i = 0; i < j->n; i++) {
        double pivot = get(j, w->a, i * j->row + i);
        double swapped = w->pivots[i] != i ? -1 : 1;
        sign *= swapped * (pivot < 0 ? -1 : pivot > 0 ? 1 : pivot);
        const double next = product * swapped * pivot;
        if (fabs(next) > 1e-200 && fabs(next) < 1e200) {
            product = next;
            continue;
        }
        int of_pivot = 0, of_product = 0;
        product = frexp(product * frexp(swapped * pivot, &of_pivot), &of_product);
        exponent += of_pivot + of_product;
    }
    put(j->element, out, 0, sign);
    put(j->element, out, 1, log(fabs(product)) + (double)exponent * 0.69314718055994530942);
    const int64_t far = 10000; // beyond all numbers
    put(j->element, out, 2,
        ldexp(product, (int)(exponent < -far  ? -far
                             : exponent > far ? far
                                              : exponent)));
    return ND__LINALG_DONE;
}

static nd__linalg_result qr(const job *j, const workspace *w, const void *x, void *out) {
    const int64_t m = j->m, n = j->n;
    const size_t row = (size_t)j->row * j->element, bytes = (size_t)n * j->element;
    spread(j, w->a, x);
    memset(w->v, 0, (size_t)m * row);
    j->factor->qr(w->a, w->v, j->row, m, n, w->t, w->work, out);
    void *r = behind(j, out, m * n);
    copy_rows(r, bytes, w->a, row, bytes, n);
    for (int64_t i = 1; i < n; i++)
        memset(behind(j, r, i * n), 0, (size_t)i * j->element);
    return ND__LINALG_DONE;
}

static nd__linalg_result compute(const job *j, int64_t matrix, int *ret_place) {
    const nd__linalg_call *call = j->call;
    const char *x = (const char *)call->x + (size_t)(matrix * call->m * call->n) * j->element;
    const char *b = call->b;
    if (b)
        b += (size_t)(matrix * call->m * call->o) * j->element;
    void *out = behind(j, call->out, matrix * nd__cpu_linalg_size(call));
    if (is_iterated(call->op)) {
        const bool fine =
            is_finite(j, x, call->m * call->n) && (!b || is_finite(j, b, call->m * call->o));
        return fine ? nd__cpu_spectral(call, x, b, out) : ND__LINALG_NOT_FINITE;
    }
    if (call->op == ND_OP_solve_triangular)
        return solve_triangular(j, x, b, out, ret_place);
    workspace w;
    char *block = nd__cpu_scratch(carve(j, NULL, &w));
    if (!block)
        return ND__LINALG_NO_MEMORY;
    carve(j, block, &w);
    switch (call->op) {
    case ND_OP_solve:
        return solve(j, &w, x, b, out, ret_place);
    case ND_OP_cholesky:
        return cholesky(j, &w, x, out, ret_place);
    case ND_OP_slogdet:
        return slogdet(j, &w, x, out);
    default:
        return qr(j, &w, x, out);
    }
}

// -------------------------------------------------------------------------------------------------

static void compute_range(void *context, int64_t begin, int64_t end) {
    job *j = context;
    int place;
    for (int64_t i = begin; i < end; i++) {
        if (compute(j, i, &place) == ND__LINALG_DONE)
            continue;
        int64_t first = atomic_load_explicit(&j->first_failed, memory_order_relaxed);
        while (i < first &&
               !atomic_compare_exchange_weak_explicit(&j->first_failed, &first, i,
                                                      memory_order_relaxed, memory_order_relaxed))
            continue;
        return;
    }
}

static nd__linalg_result compute_all(const nd__linalg_call *call, int64_t *ret_matrix,
                                     int *ret_place) {
    *ret_matrix = 0;
    *ret_place = 0;
    if (is_too_large(call))
        return ND__LINALG_TOO_LARGE;
    job j = {.call = call};
    j.factor = &nd__cpu_loops_now()->factor[call->dtype == ND_F64];
    j.element = call->dtype == ND_F32 ? 4 : 8;
    j.row = nd__cpu_linalg_row(call->n, j.element);
    j.m = (int)call->m;
    j.n = (int)call->n;
    j.o = (int)call->o;
    atomic_init(&j.first_failed, INT64_MAX);
    const int64_t k = j.m < j.n ? j.m : j.n;
    int64_t cost = call->m * call->n < INT64_MAX / (8 * (k + call->o + 1))
                       ? call->m * call->n * 8 * (k + call->o + 1)
                       : INT64_MAX / call->count;
    nd__cpu_parallel(call->count, cost, 1, compute_range, &j);
    int64_t first = atomic_load_explicit(&j.first_failed, memory_order_relaxed);
    if (first == INT64_MAX)
        return ND__LINALG_DONE;
    // Once more, to learn why. What fails no more had no memory.
    *ret_matrix = first;
    nd__linalg_result result = compute(&j, first, ret_place);
    return result == ND__LINALG_DONE ? ND__LINALG_NO_MEMORY : result;
}

nd__linalg_result nd__cpu_linalg(const nd__linalg_call *call, int64_t *ret_matrix, int *ret_place) {
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    nd__linalg_result result = compute_all(call, ret_matrix, ret_place);
    nd__float_mode_end(&mode);
    return result;
}
