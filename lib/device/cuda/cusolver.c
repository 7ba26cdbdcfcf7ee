// See cusolver.h. A device has one handle, which serves one thread and one stream at a time, under the lock.
//
// cuSOLVER's matrices stand column by column. Kernels of ndarc's own turn each matrix into working memory
// and the results back; all is queued, matrix by matrix, and what cuSOLVER says of a matrix stays on the
// device until lib/ops reads it.
#include "lib/device/cuda/cusolver.h"
#include "lib/device/capture.h"
#include "lib/device/cuda/cublas.h"
#include "lib/device/cuda/cusolver_library.h"
#include <limits.h>
#include <stdlib.h>

/// The host is quicker with many matrices of which each is little work: a launch takes as long as one of
/// those. Not measured on a GPU.
enum { SMALL = 64, MANY = 8 };
#define ALIGNMENT ((size_t)256) ///< of what is cut from one piece of memory

// ------------------------------------------------------------------------------------------------
// a call

/// A call, and working memory of the device for one matrix after the other.
typedef struct solver_run {
    const nd_cuda_queue *queue;
    const nd_cusolver *solver;
    void *handle, *params;
    nd_op op;
    nd_dtype dtype;
    int type; ///< the dtype as the library says it
    size_t element;
    int64_t count, m, n, k, o;
    bool upper, unit, values_only;
    bool turned;           ///< svd: of the transpose, which has more rows
    int64_t rows, columns; ///< of the matrix that is decomposed
    const char *x, *b;
    char *out;
    int32_t *info;

    void *a;         ///< [rows, columns]
    void *others;    ///< b [n, o]
    void *u, *v;     ///< [rows, k], [k, k]
    void *s;         ///< [k]: values, tau
    int64_t *pivots; ///< [n]
    int32_t *unread; ///< an info
    int64_t *places; ///< 1, 2, … [columns]
    void *flags; ///< bool: [columns, columns], which elements of a triangle are kept; slogdet [n]
    void *zero;  ///< [1], of slogdet f64
    void *singular;              ///< slogdet: bool [1], also whether a product fits
    double *pivot, *term, *sums; ///< slogdet: [n], [n], [3]
    void *work, *host_work;
    size_t work_bytes, host_bytes;
} solver_run;

static size_t out_elements(const solver_run *r) {
    switch (r->op) {
    case ND_OP_solve:
        return (size_t)(r->n * r->o);
    case ND_OP_slogdet:
        return 3;
    case ND_OP_qr:
        return (size_t)(r->m * r->n + r->n * r->n);
    case ND_OP_svd:
        return (size_t)(r->values_only ? r->k : r->m * r->k + r->k + r->k * r->n);
    case ND_OP_eigh:
        return (size_t)(r->values_only ? r->n : r->n + r->n * r->n);
    default:
        return (size_t)(r->n * r->n);
    }
}

static solver_run describe(nd_cuda_device *device, const nd_cuda_queue *queue,
                           const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    const bool wide = call->operand[1].dtype == ND_F64;
    solver_run r = {
        .queue = queue,
        .solver = nd__cusolver_library(),
        .handle = device->solver,
        .params = device->solver_params,
        .op = call->op,
        .dtype = call->operand[1].dtype,
        .type = wide ? ND__BLAS_F64 : ND__BLAS_F32,
        .element = wide ? 8 : 4,
        .count = i[0],
        .m = i[1],
        .n = i[2],
        .k = i[1] < i[2] ? i[1] : i[2],
        .o = i[3],
        .upper = i[4] != 0,
        .unit = i[5] != 0,
        .values_only = i[6] != 0,
        .info = call->operand[0].data,
        .out = call->operand[1].data,
        .x = call->operand[2].data,
        .b = call->noperands > 3 ? call->operand[3].data : NULL,
    };
    r.turned = call->op == ND_OP_svd && r.m < r.n;
    r.rows = r.turned ? r.n : r.m;
    r.columns = r.turned ? r.m : r.n;
    return r;
}

/// The next part of a block; without a block only where it ends.
static void *cut(char *block, size_t *end, size_t bytes) {
    void *part = block ? block + *end : NULL;
    *end += (bytes + ALIGNMENT - 1) & ~(ALIGNMENT - 1);
    return part;
}

/// Cuts a block for what the operation uses; returns what that needs.
static size_t cut_all(solver_run *r, char *block) {
    const nd_op op = r->op;
    const bool triangle = op == ND_OP_cholesky || op == ND_OP_qr, of_svd = op == ND_OP_svd;
    const bool factors = op == ND_OP_solve || op == ND_OP_slogdet, det = op == ND_OP_slogdet;
    const size_t rows = (size_t)r->rows, columns = (size_t)r->columns, k = (size_t)r->k;
    const size_t e = r->element;
    size_t end = 0;
    r->a = cut(block, &end, rows * columns * e);
    r->s = cut(block, &end, k * e);
    r->unread = cut(block, &end, sizeof(int32_t));
    r->others = cut(block, &end, op == ND_OP_solve ? columns * (size_t)r->o * e : 0);
    r->u = cut(block, &end, of_svd && !r->values_only ? rows * k * e : 0);
    r->v = cut(block, &end, of_svd && !r->values_only ? k * k * e : 0);
    r->pivots = cut(block, &end, factors ? columns * sizeof(int64_t) : 0);
    r->places = cut(block, &end, triangle || det ? columns * sizeof(int64_t) : 0);
    r->flags = cut(block, &end, triangle ? columns * columns : det ? columns : 0);
    r->zero = cut(block, &end, triangle ? e : det ? sizeof(double) : 0);
    r->singular = cut(block, &end, det ? 1 : 0);
    r->pivot = cut(block, &end, det ? columns * sizeof(double) : 0);
    r->term = cut(block, &end, det ? columns * sizeof(double) : 0);
    r->sums = cut(block, &end, det ? 3 * sizeof(double) : 0);
    return end;
}

// ------------------------------------------------------------------------------------------------
// kernels

/// A matrix as a kernel sees it.
typedef struct matrix {
    const void *data;
    int64_t row, column; ///< strides
} matrix;

static nd_operand operand_of(matrix m, nd_dtype dtype) {
    return (nd_operand){(void *)(uintptr_t)m.data, dtype, {m.row, m.column}};
}

static nd_status copy(const solver_run *r, matrix to, matrix from, int64_t rows, int64_t columns) {
    const nd_kernel_call call = {
        .op = ND_OP_clone,
        .noperands = 2,
        .ndim = 2,
        .shape = {rows, columns},
        .operand = {operand_of(to, r->dtype), operand_of(from, r->dtype)},
    };
    return nd__cuda_launch(r->queue, &call);
}

static nd_status fill_line(const solver_run *r, void *to, nd_dtype dtype, int64_t count, nd_op op) {
    const nd_kernel_call call = {
        .op = op, // fill: zeros; arange: 1, 2, …
        .noperands = 1,
        .ndim = 1,
        .shape = {count},
        .operand = {{.data = to, .dtype = dtype, .strides = {1}}},
        .attrs = {.i = {op == ND_OP_arange, 1, 1}},
    };
    return nd__cuda_launch(r->queue, &call);
}

/// An elementwise call of dense lines; what has stride 0 is one number.
static nd_status line(const solver_run *r, nd_op op, nd_operand out, nd_operand a,
                      const nd_operand *b, double number) {
    nd_kernel_call call = {
        .op = op,
        .noperands = b ? 3 : 2,
        .ndim = 1,
        .shape = {r->n},
        .operand = {out, a},
        .attrs = {.f = {number}, .i = {r->n}},
    };
    if (op == ND_OP_prod || op == ND_OP_sum)
        call.operand[0].strides[0] = 0;
    if (b)
        call.operand[2] = *b;
    return nd__cuda_launch(r->queue, &call);
}

/// Which elements of [columns, columns] are on the diagonal or on that side of it.
static nd_status flag_triangle(const solver_run *r, bool lower) {
    nd_status status = fill_line(r, r->places, ND_I64, r->columns, ND_OP_arange);
    if (status == ND_OK)
        status = fill_line(r, r->zero, r->dtype, 1, ND_OP_fill);
    if (status != ND_OK)
        return status;
    const matrix row = {r->places, 1, 0}, column = {r->places, 0, 1};
    const nd_kernel_call call = {
        .op = ND_OP_greater_equal,
        .noperands = 3,
        .ndim = 2,
        .shape = {r->columns, r->columns},
        .operand = {operand_of((matrix){r->flags, r->columns, 1}, ND_BOOL),
                    operand_of(lower ? row : column, ND_I64),
                    operand_of(lower ? column : row, ND_I64)},
    };
    return nd__cuda_launch(r->queue, &call);
}

/// That triangle of what is in `a`, and zeros.
static nd_status write_triangle(const solver_run *r, void *to) {
    const nd_kernel_call call = {
        .op = ND_OP_where,
        .noperands = 4,
        .ndim = 2,
        .shape = {r->columns, r->columns},
        .operand = {operand_of((matrix){to, r->columns, 1}, r->dtype),
                    operand_of((matrix){r->flags, r->columns, 1}, ND_BOOL),
                    operand_of((matrix){r->a, 1, r->rows}, r->dtype),
                    operand_of((matrix){r->zero, 0, 0}, r->dtype)},
    };
    return nd__cuda_launch(r->queue, &call);
}

// ------------------------------------------------------------------------------------------------
// one matrix: `at` says which

static void *of_out(const solver_run *r, int64_t at, int64_t offset) {
    return r->out + ((size_t)at * out_elements(r) + (size_t)offset) * r->element;
}

/// x into `a`, column by column. Of a transpose that is how it lies.
static nd_status take(const solver_run *r, int64_t at) {
    const char *x = r->x + (size_t)(at * r->m * r->n) * r->element;
    return copy(r, (matrix){r->a, 1, r->rows},
                r->turned ? (matrix){x, 1, r->n} : (matrix){x, r->n, 1}, r->rows, r->columns);
}

static nd_status cholesky(const solver_run *r, int64_t at) {
    const nd_status status = nd__cusolver_library_status(
        r->solver->potrf(r->handle, r->params, ND__BLAS_LOWER, r->n, r->type, r->a, r->n, r->type,
                         r->work, r->work_bytes, r->host_work, r->host_bytes, r->info + at));
    return status == ND_OK ? write_triangle(r, of_out(r, at, 0)) : status;
}

/// Pivots of a matrix that is singular are not always written, and getrs reads them.
static nd_status factor(const solver_run *r, int64_t at) {
    const nd_status status = fill_line(r, r->pivots, ND_I64, r->n, ND_OP_arange);
    if (status != ND_OK)
        return status;
    return nd__cusolver_library_status(
        r->solver->getrf(r->handle, r->params, r->n, r->n, r->type, r->a, r->n, r->pivots, r->type,
                         r->work, r->work_bytes, r->host_work, r->host_bytes, r->info + at));
}

static nd_status solve(const solver_run *r, int64_t at) {
    const char *b = r->b + (size_t)(at * r->n * r->o) * r->element;
    nd_status status = factor(r, at);
    if (status == ND_OK)
        status = copy(r, (matrix){r->others, 1, r->n}, (matrix){b, r->o, 1}, r->n, r->o);
    if (status == ND_OK)
        status = nd__cusolver_library_status(
            r->solver->getrs(r->handle, r->params, ND__BLAS_PLAIN, r->n, r->o, r->type, r->a, r->n,
                             r->pivots, r->type, r->others, r->n, r->unread));
    return status == ND_OK ? copy(r, (matrix){of_out(r, at, 0), r->o, 1},
                                  (matrix){r->others, 1, r->n}, r->n, r->o)
                           : status;
}

/// Behind a pivot that is 0 there may be anything: then all pivots are 0.
static nd_status clear_singular(const solver_run *r, int64_t at) {
    const nd_operand singular = {r->singular, ND_BOOL, {0}}, pivot = {r->pivot, ND_F64, {1}};
    const nd_kernel_call ask = {
        .op = ND_OP_clone,
        .noperands = 2,
        .ndim = 1,
        .shape = {1},
        .operand = {singular, {r->info + at, ND_I32, {0}}},
    };
    const nd_kernel_call clear = {
        .op = ND_OP_where,
        .noperands = 4,
        .ndim = 1,
        .shape = {r->n},
        .operand = {pivot, singular, {r->zero, ND_F64, {0}}, pivot},
    };
    const nd_status status = nd__cuda_launch(r->queue, &ask);
    return status == ND_OK ? nd__cuda_launch(r->queue, &clear) : status;
}

/// A product of pivots that was 0, infinite or subnormal on its way to a number becomes what sign and
/// logarithm say, from which it is apart then.
static nd_status mend_product(const solver_run *r) {
    const nd_operand value = {r->sums + 2, ND_F64, {1}}, sign = {r->sums, ND_F64, {1}};
    const nd_operand logarithm = {r->sums + 1, ND_F64, {1}}, fits = {r->singular, ND_BOOL, {1}};
    const nd_operand number = {r->term, ND_F64, {1}}, apart = {r->pivot, ND_F64, {1}};
    const nd_operand zero = {r->zero, ND_F64, {1}};
    const nd_kernel_call steps[] = {
        {.op = ND_OP_exp, .noperands = 2, .operand = {number, logarithm}},
        {.op = ND_OP_mul, .noperands = 3, .operand = {number, number, sign}},
        {.op = ND_OP_sub, .noperands = 3, .operand = {apart, value, number}},
        {.op = ND_OP_div, .noperands = 3, .operand = {apart, apart, number}},
        {.op = ND_OP_abs, .noperands = 2, .operand = {apart, apart}},
        {.op = ND_OP_mul_scalar, .noperands = 2, .operand = {apart, apart}, .attrs.f = {1e9}},
        {.op = ND_OP_floor, .noperands = 2, .operand = {apart, apart}},
        {.op = ND_OP_equal, .noperands = 3, .operand = {fits, apart, zero}}, // not NaN
        {.op = ND_OP_where, .noperands = 4, .operand = {value, fits, value, number}},
    };
    nd_status status = ND_OK;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == ND_OK; i++) {
        nd_kernel_call call = steps[i];
        call.ndim = 1;
        call.shape[0] = 1;
        status = nd__cuda_launch(r->queue, &call);
    }
    return status;
}

/// As kernels/cpu/linalg.c does: by the diagonal of u, in f64; a row that was exchanged turns the sign.
static nd_status slogdet(const solver_run *r, int64_t at) {
    const nd_operand pivot = {r->pivot, ND_F64, {1}}, term = {r->term, ND_F64, {1}};
    const nd_operand diagonal = {r->a, r->dtype, {r->n + 1}}, swapped = {r->flags, ND_BOOL, {1}};
    const nd_operand pivots = {r->pivots, ND_I64, {1}}, places = {r->places, ND_I64, {1}};
    const nd_operand sign = {r->sums, ND_F64, {0}}, logarithm = {r->sums + 1, ND_F64, {0}};
    const nd_operand value = {r->sums + 2, ND_F64, {0}};
    const struct {
        nd_op op;
        nd_operand out, a;
        const nd_operand *b;
        double number;
    } steps[] = {
        {ND_OP_not_equal, swapped, pivots, &places, 0},
        {ND_OP_clone, term, swapped, NULL, 0},
        {ND_OP_mul_scalar, term, term, NULL, -2},
        {ND_OP_add_scalar, term, term, NULL, 1},
        {ND_OP_mul, pivot, pivot, &term, 0},
        {ND_OP_prod, value, pivot, NULL, 0},
        {ND_OP_sign, term, pivot, NULL, 0},
        {ND_OP_prod, sign, term, NULL, 0},
        {ND_OP_abs, term, pivot, NULL, 0},
        {ND_OP_log, term, term, NULL, 0},
        {ND_OP_sum, logarithm, term, NULL, 0},
    };
    nd_status status = factor(r, at);
    if (status == ND_OK)
        status = line(r, ND_OP_clone, pivot, diagonal, NULL, 0);
    if (status == ND_OK)
        status = clear_singular(r, at);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && status == ND_OK; i++)
        status = line(r, steps[i].op, steps[i].out, steps[i].a, steps[i].b, steps[i].number);
    if (status == ND_OK)
        status = mend_product(r);
    if (status != ND_OK)
        return status;
    const nd_kernel_call call = {
        .op = ND_OP_clone,
        .noperands = 2,
        .ndim = 1,
        .shape = {3},
        .operand = {{of_out(r, at, 0), r->dtype, {1}}, {r->sums, ND_F64, {1}}},
    };
    return nd__cuda_launch(r->queue, &call);
}

static nd_status qr(const solver_run *r, int64_t at) {
    const int m = (int)r->m, n = (int)r->n, size = (int)(r->work_bytes / r->element);
    nd_status status = nd__cusolver_library_status(
        r->solver->geqrf(r->handle, r->params, m, n, r->type, r->a, m, r->type, r->s, r->type,
                         r->work, r->work_bytes, r->host_work, r->host_bytes, r->info + at));
    if (status == ND_OK)
        status = write_triangle(r, of_out(r, at, r->m * r->n));
    if (status != ND_OK)
        return status;
    nd_cusolver_orgqr *expand = r->dtype == ND_F64 ? r->solver->dorgqr : r->solver->sorgqr;
    status = nd__cusolver_library_status(
        expand(r->handle, m, n, n, r->a, m, r->s, r->work, size, r->unread));
    return status == ND_OK
               ? copy(r, (matrix){of_out(r, at, 0), r->n, 1}, (matrix){r->a, 1, r->m}, r->m, r->n)
               : status;
}

static nd_status svd(const solver_run *r, int64_t at) {
    const signed char job = r->values_only ? 'N' : 'S';
    nd_status status = nd__cusolver_library_status(r->solver->gesvd(
        r->handle, r->params, job, job, r->rows, r->columns, r->type, r->a, r->rows, r->type, r->s,
        r->type, r->u, r->rows, r->type, r->v, r->k, r->type, r->work, r->work_bytes, r->host_work,
        r->host_bytes, r->info + at));
    const int64_t s_at = r->values_only ? 0 : r->m * r->k;
    if (status == ND_OK)
        status = copy(r, (matrix){of_out(r, at, s_at), 0, 1}, (matrix){r->s, 0, 1}, 1, r->k);
    if (status != ND_OK || r->values_only)
        return status;
    // Of the transpose what it calls v^T is u^T, column by column.
    const matrix u = r->turned ? (matrix){r->v, r->k, 1} : (matrix){r->u, 1, r->rows};
    const matrix v = r->turned ? (matrix){r->u, r->rows, 1} : (matrix){r->v, 1, r->k};
    status = copy(r, (matrix){of_out(r, at, 0), r->k, 1}, u, r->m, r->k);
    return status == ND_OK
               ? copy(r, (matrix){of_out(r, at, r->m * r->k + r->k), r->n, 1}, v, r->k, r->n)
               : status;
}

static nd_status eigh(const solver_run *r, int64_t at) {
    nd_status status = nd__cusolver_library_status(r->solver->syevd(
        r->handle, r->params, r->values_only ? ND__SOLVER_VALUES : ND__SOLVER_VECTORS,
        ND__BLAS_LOWER, r->n, r->type, r->a, r->n, r->type, r->s, r->type, r->work, r->work_bytes,
        r->host_work, r->host_bytes, r->info + at));
    if (status == ND_OK)
        status = copy(r, (matrix){of_out(r, at, 0), 0, 1}, (matrix){r->s, 0, 1}, 1, r->n);
    return status == ND_OK && !r->values_only ? copy(r, (matrix){of_out(r, at, r->n), r->n, 1},
                                                     (matrix){r->a, 1, r->n}, r->n, r->n)
                                              : status;
}

static nd_status compute_one(const solver_run *r, int64_t at) {
    nd_status status = take(r, at);
    if (status != ND_OK)
        return status;
    switch (r->op) {
    case ND_OP_cholesky:
        return cholesky(r, at);
    case ND_OP_slogdet:
        return slogdet(r, at);
    case ND_OP_qr:
        return qr(r, at);
    case ND_OP_svd:
        return svd(r, at);
    case ND_OP_eigh:
        return eigh(r, at);
    default:
        return solve(r, at);
    }
}

// ------------------------------------------------------------------------------------------------
// all of them

static nd_status qr_size(solver_run *r) {
    enum { MOST_ROWS = 16000000 }; // of more, sizes of orgqr were seen to overflow
    const int m = (int)r->m, n = (int)r->n;
    int size = 0;
    if (r->m > MOST_ROWS)
        return ND_ERROR_UNSUPPORTED;
    nd_status status = nd__cusolver_library_status(
        r->solver->geqrf_size(r->handle, r->params, m, n, r->type, r->a, m, r->type, r->s, r->type,
                              &r->work_bytes, &r->host_bytes));
    if (status != ND_OK)
        return status;
    nd_cusolver_orgqr_size *ask =
        r->dtype == ND_F64 ? r->solver->dorgqr_size : r->solver->sorgqr_size;
    status = nd__cusolver_library_status(ask(r->handle, m, n, n, r->a, m, r->s, &size));
    if (status == ND_OK && size < 0)
        return ND_ERROR_UNSUPPORTED;
    const size_t bytes = (size_t)size * r->element;
    if (bytes > r->work_bytes)
        r->work_bytes = bytes;
    return r->work_bytes / r->element > INT_MAX ? ND_ERROR_UNSUPPORTED : status;
}

/// How much working memory cuSOLVER wants for a matrix of these sizes, there and on the host.
static nd_status ask_for_sizes(solver_run *r) {
    const signed char job = r->values_only ? 'N' : 'S';
    switch (r->op) {
    case ND_OP_cholesky:
        return nd__cusolver_library_status(
            r->solver->potrf_size(r->handle, r->params, ND__BLAS_LOWER, r->n, r->type, r->a, r->n,
                                  r->type, &r->work_bytes, &r->host_bytes));
    case ND_OP_qr:
        return qr_size(r);
    case ND_OP_svd:
        return nd__cusolver_library_status(
            r->solver->gesvd_size(r->handle, r->params, job, job, r->rows, r->columns, r->type,
                                  r->a, r->rows, r->type, r->s, r->type, r->u, r->rows, r->type,
                                  r->v, r->k, r->type, &r->work_bytes, &r->host_bytes));
    case ND_OP_eigh:
        return nd__cusolver_library_status(r->solver->syevd_size(
            r->handle, r->params, r->values_only ? ND__SOLVER_VALUES : ND__SOLVER_VECTORS,
            ND__BLAS_LOWER, r->n, r->type, r->a, r->n, r->type, r->s, r->type, &r->work_bytes,
            &r->host_bytes));
    default:
        return nd__cusolver_library_status(r->solver->getrf_size(r->handle, r->params, r->n, r->n,
                                                                 r->type, r->a, r->n, r->type,
                                                                 &r->work_bytes, &r->host_bytes));
    }
}

/// With all working memory there.
static nd_status compute_each(const solver_run *r) {
    nd_status status = ND_OK;
    if (r->op == ND_OP_cholesky || r->op == ND_OP_qr)
        status = flag_triangle(r, r->op == ND_OP_cholesky);
    else if (r->op == ND_OP_slogdet)
        status = fill_line(r, r->places, ND_I64, r->n, ND_OP_arange);
    if (status == ND_OK && r->op == ND_OP_slogdet)
        status = fill_line(r, r->zero, ND_F64, 1, ND_OP_fill);
    for (int64_t at = 0; at < r->count && status == ND_OK; at++)
        status = compute_one(r, at);
    return status;
}

static nd_status compute_with_work(solver_run *r) {
    const nd_cuda_queue *queue = r->queue;
    nd_status status = ask_for_sizes(r);
    if (status != ND_OK) // nothing was queued, whatever it calls that
        return status == ND_ERROR_OUT_OF_MEMORY ? status : ND_ERROR_UNSUPPORTED;
    if (r->host_bytes > 0 && !(r->host_work = malloc(r->host_bytes)))
        return ND_ERROR_OUT_OF_MEMORY;
    if (r->work_bytes > 0)
        status = queue->allocate(queue->context, r->work_bytes, &r->work);
    if (status == ND_OK)
        status = compute_each(r);
    if (r->work)
        queue->release(queue->context, r->work);
    // How long it is used is not documented.
    if (r->host_work &&
        nd__cuda_status(cudaStreamSynchronize((cudaStream_t)queue->stream)) != ND_OK)
        status = ND_ERROR_DEVICE;
    free(r->host_work);
    return status;
}

/// Caller holds blas_lock.
static nd_status compute_all(nd_cuda_device *device, const nd_cuda_queue *queue,
                             const nd_kernel_call *call) {
    nd_status status = nd__cusolver_library_handle(device, queue);
    if (status != ND_OK)
        return status;
    solver_run r = describe(device, queue, call);
    void *memory = NULL;
    status = queue->allocate(queue->context, cut_all(&r, NULL), &memory);
    if (status != ND_OK)
        return status;
    cut_all(&r, memory);
    status = compute_with_work(&r);
    queue->release(queue->context, memory);
    return status;
}

/// out begins as b; what the library would say of a matrix is nothing.
static nd_status solve_triangular(nd_cuda_device *device, const nd_cuda_queue *queue,
                                  const nd_kernel_call *call) {
    solver_run r = describe(device, queue, call);
    if (!nd__cublas_takes_triangles(device))
        return ND_ERROR_UNSUPPORTED;
    nd_status status = fill_line(&r, r.info, ND_I32, r.count, ND_OP_fill);
    const int64_t all = r.count * r.n * r.o;
    if (status == ND_OK)
        status = copy(&r, (matrix){r.out, 0, 1}, (matrix){r.b, 0, 1}, 1, all);
    const nd_cublas_triangles triangles = {r.dtype, r.count, r.n, r.o, r.upper, r.unit, r.x, r.out};
    return status == ND_OK ? nd__cublas_solve_triangles(device, queue, &triangles) : status;
}

nd_status nd__cusolver_compute(nd_cuda_device *device, const nd_cuda_queue *queue,
                               const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i, k = i[1] < i[2] ? i[1] : i[2];
    if ((i[0] >= MANY && k < SMALL) || i[1] > INT_MAX || i[2] > INT_MAX || i[3] > INT_MAX ||
        i[0] > INT_MAX || nd__capture_running())
        return ND_ERROR_UNSUPPORTED;
    switch (call->op) {
    case ND_OP_solve_triangular:
        return solve_triangular(device, queue, call);
    case ND_OP_solve:
    case ND_OP_cholesky:
    case ND_OP_slogdet:
    case ND_OP_qr:
    case ND_OP_svd:
    case ND_OP_eigh:
        break;
    default:
        return ND_ERROR_UNSUPPORTED;
    }
    if (!nd__cusolver_library())
        return ND_ERROR_UNSUPPORTED;
    pthread_mutex_lock(&device->blas_lock);
    nd_status status = compute_all(device, queue, call);
    pthread_mutex_unlock(&device->blas_lock);
    return status;
}
