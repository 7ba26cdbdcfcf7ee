// LU, Cholesky and QR factors are ours (factor.inc, reflect.inc): a LAPACK without a BLAS made for the processor takes
// up to 14 times as long, and of small matrices its calls take longer than the work.
#include "kernels/cpu/linalg.h"
#include "kernels/cpu/float_mode.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include "kernels/cpu/spectral.h"
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <string.h>

/// Above this, LAPACK's integers cannot say how much working memory it wants.
enum { LARGEST_ITERATED = 16384 };
/// Rows and columns that are turned together, while their lines are in the nearest cache.
enum { TURNED = 16 };

/// One call, with what its matrices share.
typedef struct job {
    const nd__linalg_call *call;
    const nd__lapack_functions *lapack; ///< NULL where it is not needed
    const nd__factor_loops *factor;
    size_t element;    ///< bytes
    int64_t row;       ///< elements from one row to the next of a matrix that is factored
    int m, n, k, o;    ///< as LAPACK wants them
    int lwork, liwork; ///< working memory, in elements and in integers
    _Atomic int64_t first_failed;
} job;

/// Working memory of one matrix. Matrices are column by column, as LAPACK has them, but for those
/// that are factored here.
typedef struct workspace {
    void *a; ///< [m, n], or of rows as factors want them
    void *b; ///< [larger of m and n, o]
    void *u; ///< [m, k], or a QR decomposition's reflections
    void *v; ///< [k, n]
    void *s; ///< [k], or their triangles
    void *work;
    int *integers;
} workspace;

static double get(const job *j, const void *x, int64_t i) {
    return j->element == 4 ? (double)((const float *)x)[i] : ((const double *)x)[i];
}

static void put(const job *j, void *x, int64_t i, double value) {
    if (j->element == 4)
        ((float *)x)[i] = (float)value;
    else
        ((double *)x)[i] = value;
}

static void *behind(const job *j, void *x, int64_t elements) {
    return (char *)x + (size_t)elements * j->element;
}

#define DEFINE_TURN(T)                                                                         \
    static void turn_##T(T *to, int64_t to_row, const T *from, int64_t from_row, int64_t rows, \
                         int64_t columns) {                                                    \
        for (int64_t top = 0; top < rows; top += TURNED)                                       \
            for (int64_t left = 0; left < columns; left += TURNED)                             \
                for (int64_t j = left; j < columns && j < left + TURNED; j++)                  \
                    for (int64_t i = top; i < rows && i < top + TURNED; i++)                   \
                        to[j * to_row + i] = from[i * from_row + j];                           \
    }                                                                                          \
    static bool is_finite_##T(const T *x, int64_t count) {                                     \
        int others = 0;                                                                        \
        for (int64_t i = 0; i < count; i++)                                                    \
            others |= !(x[i] - x[i] == 0);                                                     \
        return !others;                                                                        \
    }
DEFINE_TURN(float)
DEFINE_TURN(double)

/// Writes `rows` rows of `columns` as columns; *_row is how far one is behind the other.
static void turn(const job *j, void *to, int64_t to_row, const void *from, int64_t from_row,
                 int64_t rows, int64_t columns) {
    if (j->element == 4)
        turn_float(to, to_row, from, from_row, rows, columns);
    else
        turn_double(to, to_row, from, from_row, rows, columns);
}

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

/// The next `bytes` of a block, at an address that every type may have.
static void *carved(char *block, size_t *offset, size_t bytes) {
    void *part = block ? block + *offset : NULL;
    *offset += (bytes + 63) & ~(size_t)63;
    return part;
}

/// Whether it is computed by the loops of factor.inc or reflect.inc.
static bool is_factored(nd_op op) {
    return op == ND_OP_solve || op == ND_OP_solve_triangular || op == ND_OP_cholesky ||
           op == ND_OP_slogdet || op == ND_OP_qr;
}

static bool needs_lapack(nd_op op) {
    return op == ND_OP_svd || op == ND_OP_pinv || op == ND_OP_lstsq;
}

/// Whether a few right sides are solved for with rows of whole vectors.
static bool is_narrow(const job *j) {
    return j->call->op == ND_OP_solve && j->n <= ND__FACTOR_BASE && j->o < ND__FACTOR_BASE;
}

/// Cuts a block into the parts of a workspace; returns what they need. Without a block only that.
static size_t carve(const job *j, char *block, workspace *ret_space) {
    nd_op op = j->call->op;
    bool vectors = (op == ND_OP_svd && !j->call->values_only) || op == ND_OP_pinv;
    size_t m = (size_t)j->m, n = (size_t)j->n, k = (size_t)j->k, larger = m > n ? m : n;
    size_t offset = 0, e = j->element;
    const bool factored = is_factored(op), qr = op == ND_OP_qr;
    const size_t row = (size_t)j->row, panel = ND__REFLECT_PANEL;
    ret_space->a = carved(block, &offset, m * (factored ? row : n) * e);
    size_t b = op == ND_OP_lstsq ? larger * (size_t)j->o : is_narrow(j) ? n * ND__FACTOR_BASE : 0;
    ret_space->b = carved(block, &offset, b * e);
    ret_space->u = carved(block, &offset, qr ? m * row * e : vectors ? m * k * e : 0);
    ret_space->v = carved(block, &offset, vectors ? k * n * e : 0);
    ret_space->s = carved(block, &offset, qr ? n * panel * e : factored ? 0 : k * e);
    ret_space->work = carved(block, &offset, (qr ? 2 * n * panel : (size_t)j->lwork) * e);
    ret_space->integers = carved(block, &offset, (size_t)j->liwork * sizeof(int));
    return offset;
}

static bool is_iterated(nd_op op) {
    return op == ND_OP_svd || op == ND_OP_eigh || op == ND_OP_pinv || op == ND_OP_lstsq;
}

static bool is_too_large(const nd__linalg_call *call) {
    int64_t most = is_iterated(call->op) ? LARGEST_ITERATED : INT_MAX;
    int64_t k = call->m < call->n ? call->m : call->n;
    if (call->m > INT_MAX || call->n > INT_MAX || call->o > INT_MAX || k > most)
        return true;
    int64_t larger = call->m > call->n ? call->m : call->n;
    return call->op == ND_OP_lstsq && call->o > INT_MAX / larger;
}

static const char *job_letter(const job *j) {
    return j->call->values_only ? "N" : "S";
}

/// How much working memory LAPACK wants for a matrix of these sizes.
static void ask_for_sizes(job *j) {
    const nd__lapack_functions *f = j->lapack;
    const int ask = -1;
    int larger = j->m > j->n ? j->m : j->n, info = 0, integers = 1, rank;
    double wanted = 0, other = 0;
    void *w = &wanted;
    j->liwork = j->n;
    switch (j->call->op) {
    case ND_OP_svd:
    case ND_OP_pinv:
        f->gesdd(job_letter(j), &j->m, &j->n, NULL, &j->m, NULL, NULL, &j->m, NULL, &j->k, w, &ask,
                 &integers, &info, 1);
        j->liwork = 8 * j->k;
        break;
    case ND_OP_lstsq:
        f->gelsd(&j->m, &j->n, &j->o, NULL, &j->m, NULL, &larger, NULL, &other, &rank, w, &ask,
                 &integers, &info);
        j->liwork = integers;
        break;
    default:
        return;
    }
    double most = fmax(get(j, &wanted, 0), get(j, &other, 0));
    // As f32 says it, a number may have been rounded down.
    j->lwork = (int)fmin(most + most * 0x1p-22 + 1, INT_MAX);
}

// -------------------------------------------------------------------------------------------------
// one matrix

/// Rows of so many bytes that lie `to_row` and `from_row` bytes apart; what is between those that are
/// written becomes zeros.
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
    *ret_place = j->factor->lu(w->a, j->row, j->n, w->integers);
    if (*ret_place > 0)
        return ND__LINALG_SINGULAR;
    const bool narrow = is_narrow(j);
    const int64_t row = narrow ? ND__FACTOR_BASE : j->o;
    const size_t bytes = (size_t)j->o * j->element, line = (size_t)row * j->element;
    char *solved = narrow ? w->b : out;
    copy_rows(solved, line, b, bytes, bytes, j->n);
    for (int i = 0; i < j->n; i++)
        if (w->integers[i] != i)
            exchange(solved + (size_t)i * line, solved + (size_t)w->integers[i] * line, bytes);
    j->factor->solve_triangle(w->a, j->row, j->n, false, true, solved, row, row);
    j->factor->solve_triangle(w->a, j->row, j->n, true, false, solved, row, row);
    if (narrow)
        copy_rows(out, bytes, solved, line, bytes, j->n);
    return ND__LINALG_DONE;
}

/// By the upper triangle of x^T, which holds x's lower one.
static nd__linalg_result cholesky(const job *j, const workspace *w, const void *x, void *out,
                                  int *ret_place) {
    turn(j, w->a, j->row, x, j->n, j->n, j->n);
    *ret_place = j->factor->cholesky(w->a, j->row, j->n);
    if (*ret_place > 0)
        return ND__LINALG_NOT_POSITIVE;
    turn(j, out, j->n, w->a, j->row, j->n, j->n);
    for (int64_t row = 0; row < j->n; row++)
        memset(behind(j, out, row * j->n + row + 1), 0, (size_t)(j->n - row - 1) * j->element);
    return ND__LINALG_DONE;
}

/// By the diagonal of u: a row that was exchanged turns the sign. Exponents are added up apart, so
/// that the product goes no further than its end.
static nd__linalg_result slogdet(const job *j, const workspace *w, const void *x, void *out) {
    spread(j, w->a, x);
    j->factor->lu(w->a, j->row, j->n, w->integers);
    double sign = 1, product = 1;
    int64_t exponent = 0;
    for (int64_t i = 0; i < j->n; i++) {
        double pivot = get(j, w->a, i * j->row + i);
        double swapped = w->integers[i] != i ? -1 : 1;
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
    put(j, out, 0, sign);
    put(j, out, 1, log(fabs(product)) + (double)exponent * 0.69314718055994530942);
    const int64_t far = 10000; // beyond all numbers
    put(j, out, 2, ldexp(product, (int)(exponent < -far ? -far : exponent > far ? far : exponent)));
    return ND__LINALG_DONE;
}

static nd__linalg_result qr(const job *j, const workspace *w, const void *x, void *out) {
    const int64_t m = j->m, n = j->n;
    const size_t row = (size_t)j->row * j->element, bytes = (size_t)n * j->element;
    spread(j, w->a, x);
    memset(w->u, 0, (size_t)m * row);
    j->factor->qr(w->a, w->u, j->row, m, n, w->s, w->work, out);
    void *r = behind(j, out, m * n);
    copy_rows(r, bytes, w->a, row, bytes, n);
    for (int64_t i = 1; i < n; i++)
        memset(behind(j, r, i * n), 0, (size_t)i * j->element);
    return ND__LINALG_DONE;
}

static nd__linalg_result decompose(const job *j, const workspace *w) {
    int info = 0;
    j->lapack->gesdd(job_letter(j), &j->m, &j->n, w->a, &j->m, w->s, w->u, &j->m, w->v, &j->k,
                     w->work, &j->lwork, w->integers, &info, 1);
    return info == 0 ? ND__LINALG_DONE : ND__LINALG_NOT_CONVERGED;
}

static nd__linalg_result svd(const job *j, const workspace *w, void *out) {
    nd__linalg_result result = decompose(j, w);
    bool only = j->call->values_only;
    int64_t m = j->m, n = j->n, k = j->k;
    memcpy(behind(j, out, only ? 0 : m * k), w->s, (size_t)k * j->element);
    if (result != ND__LINALG_DONE || only)
        return result;
    turn(j, out, k, w->u, m, k, m);
    turn(j, behind(j, out, m * k + k), n, w->v, k, n, k);
    return ND__LINALG_DONE;
}

/// v s^-1 u^T, whose rows are the columns of u s^-1 v^T: what LAPACK writes is what is wanted.
static nd__linalg_result pinv(const job *j, const workspace *w, void *out) {
    nd__linalg_result result = decompose(j, w);
    if (result != ND__LINALG_DONE)
        return result;
    double least = j->call->tolerance * get(j, w->s, 0);
    int rank = 0;
    for (; rank < j->k && get(j, w->s, rank) > least; rank++)
        for (int64_t i = 0; i < j->m; i++) {
            int64_t at = (int64_t)rank * j->m + i;
            put(j, w->u, at, get(j, w->u, at) / get(j, w->s, rank));
        }
    double one = 0, zero = 0;
    put(j, &one, 0, 1);
    j->lapack->gemm("N", "N", &j->m, &j->n, &rank, &one, w->u, &j->m, w->v, &j->k, &zero, out,
                    &j->m, 1, 1);
    return ND__LINALG_DONE;
}

static nd__linalg_result lstsq(const job *j, const workspace *w, const void *b, void *out) {
    int larger = j->m > j->n ? j->m : j->n, rank = 0, info = 0;
    if (!is_finite(j, b, j->call->m * j->call->o))
        return ND__LINALG_NOT_FINITE;
    turn(j, w->b, larger, b, j->o, j->m, j->o);
    double tolerance = 0;
    put(j, &tolerance, 0, j->call->tolerance);
    j->lapack->gelsd(&j->m, &j->n, &j->o, w->a, &j->m, w->b, &larger, w->s, &tolerance, &rank,
                     w->work, &j->lwork, w->integers, &info);
    if (info != 0)
        return ND__LINALG_NOT_CONVERGED;
    turn(j, out, j->o, w->b, larger, j->o, j->n);
    return ND__LINALG_DONE;
}

static nd__linalg_result compute(const job *j, int64_t matrix, int *ret_place) {
    const nd__linalg_call *call = j->call;
    workspace w = {0};
    if (call->op != ND_OP_solve_triangular && call->op != ND_OP_eigh) {
        char *block = nd__cpu_scratch(carve(j, NULL, &w));
        if (!block)
            return ND__LINALG_NO_MEMORY;
        carve(j, block, &w);
    }
    const char *x = (const char *)call->x + (size_t)(matrix * call->m * call->n) * j->element;
    const char *b = call->b;
    if (b)
        b += (size_t)(matrix * call->m * call->o) * j->element;
    void *out = behind(j, call->out, matrix * nd__cpu_linalg_size(call));
    switch (call->op) {
    case ND_OP_solve:
        return solve(j, &w, x, b, out, ret_place);
    case ND_OP_solve_triangular:
        return solve_triangular(j, x, b, out, ret_place);
    case ND_OP_cholesky:
        return cholesky(j, &w, x, out, ret_place);
    case ND_OP_slogdet:
        return slogdet(j, &w, x, out);
    case ND_OP_qr:
        return qr(j, &w, x, out);
    default:
        break;
    }
    if (!is_finite(j, x, call->m * call->n))
        return ND__LINALG_NOT_FINITE;
    if (call->op == ND_OP_eigh)
        return nd__cpu_spectral(call, j->row, x, out);
    turn(j, w.a, call->m, x, call->n, call->m, call->n);
    switch (call->op) {
    case ND_OP_svd:
        return svd(j, &w, out);
    case ND_OP_pinv:
        return pinv(j, &w, out);
    default:
        return lstsq(j, &w, b, out);
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

/// Rows that are not a multiple of 2 KiB apart: those would share few places of the caches.
static int64_t row_of(int64_t n, size_t element) {
    int64_t row = (n + ND__FACTOR_BASE - 1) / ND__FACTOR_BASE * ND__FACTOR_BASE;
    return (size_t)row * element % 2048 == 0 ? row + ND__FACTOR_BASE : row;
}

static nd__linalg_result compute_all(const nd__linalg_call *call, int64_t *ret_matrix,
                                     int *ret_place) {
    *ret_matrix = 0;
    *ret_place = 0;
    if (is_too_large(call))
        return ND__LINALG_TOO_LARGE;
    const bool lapack = needs_lapack(call->op);
    job j = {.call = call, .lapack = lapack ? nd__cpu_lapack(call->dtype) : NULL};
    if (!j.lapack && lapack)
        return ND__LINALG_MISSING;
    j.factor = &nd__cpu_loops_now()->factor[call->dtype == ND_F64];
    j.element = call->dtype == ND_F32 ? 4 : 8;
    j.row = row_of(call->n, j.element);
    j.m = (int)call->m;
    j.n = (int)call->n;
    j.k = j.m < j.n ? j.m : j.n;
    j.o = (int)call->o;
    atomic_init(&j.first_failed, INT64_MAX);
    ask_for_sizes(&j);
    int64_t cost = call->m * call->n < INT64_MAX / (8 * (j.k + call->o + 1))
                       ? call->m * call->n * 8 * (j.k + call->o + 1)
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
