// Linear algebra on the host: what all of it shares, decompositions, and numbers that say something of
// a matrix. Equations: linalg_equations.c.
//
// Each function checks, brings its operands to the host, runs or composes what kernels/cpu/linalg.h
// computes, and brings the result to where the operands are.
#include "lib/ops/linalg.h"
#include "kernels/cpu/lapack.h"
#include "kernels/cpu/linalg.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/create.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <float.h>
#include <math.h>
#include <nd/autograd.h>
#include <string.h>

// -------------------------------------------------------------------------------------------------
// operands

nd_status nd__linalg_check(const char *name, const char *argument, const nd_tensor *x,
                           bool square) {
    nd_status status = nd__tensor_check_operand(name, argument, x);
    if (status != ND_OK)
        return status;
    if (x->dtype != ND_F32 && x->dtype != ND_F64)
        return nd__error(ND_ERROR_DTYPE, "%s: %s is %s and must be float32 or float64", name,
                         argument, nd_dtype_get_name(x->dtype));
    bool fits = x->ndim >= 2 && (!square || x->shape[x->ndim - 2] == x->shape[x->ndim - 1]);
    char text[ND__SHAPE_TEXT];
    return fits ? ND_OK
                : nd__error(ND_ERROR_SHAPE, "%s: %s has shape %s and must be %s", name, argument,
                            nd__shape_text(text, x->ndim, x->shape),
                            square ? "[..., n, n]" : "[..., m, n]");
}

nd_status nd__linalg_check_tolerance(const char *name, double tolerance) {
    return isfinite(tolerance)
               ? ND_OK
               : nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: tolerance is %g and must be finite",
                           name, tolerance);
}

double nd__linalg_tolerance_of(const nd_tensor *x, double tolerance) {
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
    double unit = x->dtype == ND_F32 ? (double)FLT_EPSILON : DBL_EPSILON;
    return tolerance >= 0 ? tolerance : (double)(m > n ? m : n) * unit;
}

nd_tensor *nd__linalg_turn(const nd_tensor *x) {
    return nd_transpose(x, -2, -1);
}

/// Of a tensor that was just made on the host.
static bool all_finite(const nd_tensor *made) {
    const float *narrow = made->data;
    const double *wide = made->data;
    for (int64_t i = 0; i < made->numel; i++)
        if (!isfinite(made->dtype == ND_F32 ? (double)narrow[i] : wide[i]))
            return false;
    return true;
}

/// (x + x^T) / 2: what a function of symmetric matrices sees, so that its gradient is one of all
/// elements.
static nd_tensor *symmetric_part(const nd_tensor *x) {
    nd_auto nd_tensor *turned = nd__linalg_turn(x);
    nd_auto nd_tensor *sum = nd_add(x, turned);
    nd_auto nd_tensor *mean = nd_mul_scalar(sum, 0.5);
    if (!mean || all_finite(mean))
        return nd_steal(&mean);
    // A sum beyond the largest number has a mean that is none: there, and there alone, halves are
    // added, since a half of the smallest numbers is rounded.
    nd_auto nd_tensor *half = nd_mul_scalar(x, 0.5);
    nd_auto nd_tensor *half_turned = nd_mul_scalar(turned, 0.5);
    nd_auto nd_tensor *halves = nd_add(half, half_turned);
    nd_auto nd_tensor *fits = nd_isfinite(sum);
    return nd_where(fits, mean, halves);
}

nd_tensor *nd__linalg_identity(const nd_tensor *like, int64_t n) {
    const nd_device host = {ND_CPU, 0};
    const int64_t shape[] = {n, n};
    nd_tensor *one =
        like ? nd__tensor_result("identity", &like, 1, host, like->dtype, 2, shape) : NULL;
    const nd_op_attrs attrs = {.i = {n}};
    return nd__create_with("identity", ND_OP_eye, one, &attrs);
}

// -------------------------------------------------------------------------------------------------
// running

static nd_status refuse(const char *name, const nd_tensor *x, const nd__linalg_call *call,
                        nd__linalg_result result, int64_t matrix, int place) {
    char which[64] = "", shape[ND__SHAPE_TEXT];
    if (x->ndim > 2)
        snprintf(which, sizeof which, " (matrix %lld of %lld)", (long long)matrix,
                 (long long)call->count);
    // An inverse is solved for, and has no b of the program's.
    const bool has_two = strncmp(name, "solve", strlen("solve")) == 0 || strcmp(name, "lstsq") == 0;
    const char *argument = has_two ? "a" : "x";
    switch (result) {
    case ND__LINALG_MISSING: {
        char why[ND__OPTIONAL_TEXT];
        nd_status status = nd__optional_explain(nd__cpu_lapack_library(), why);
        return nd__error(status, "%s: %s", name, why);
    }
    case ND__LINALG_TOO_LARGE:
        return nd__error(ND_ERROR_UNSUPPORTED, "%s: %s has shape %s, too large for LAPACK", name,
                         argument, nd__shape_text(shape, x->ndim, x->shape));
    case ND__LINALG_NO_MEMORY:
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no working memory for %s of shape %s", name,
                         argument, nd__shape_text(shape, x->ndim, x->shape));
    case ND__LINALG_NOT_FINITE:
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: an operand has an infinity or NaN%s", name,
                         which);
    case ND__LINALG_SINGULAR:
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is singular: pivot %d is 0%s", name,
                         argument, place, which);
    case ND__LINALG_NOT_POSITIVE:
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: %s is not positive definite: leading minor %d is not positive%s",
                         name, argument, place, which);
    default:
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the iteration did not converge%s", name,
                         which);
    }
}

nd_tensor *nd__linalg_run(const char *name, nd__linalg_call *call, const nd_tensor *const *inputs,
                          size_t count, int tail, const int64_t *tail_shape,
                          const nd_op_attrs *attrs) {
    const nd_tensor *x = inputs[0];
    int batch = x->ndim - 2;
    int64_t shape[ND_MAX_DIMS];
    call->count = 1;
    for (int i = 0; i < batch; i++)
        call->count *= shape[i] = x->shape[i];
    for (int i = 0; i < tail; i++)
        shape[batch + i] = tail_shape[i];
    nd_auto nd_tensor *dense = nd__operands_dense(name, x, x->dtype);
    nd_auto nd_tensor *other =
        dense && count > 1 ? nd__operands_dense(name, inputs[1], x->dtype) : NULL;
    nd_auto nd_tensor *result =
        dense && (other || count == 1)
            ? nd__tensor_result(name, inputs, count, x->device, x->dtype, batch + tail, shape)
            : NULL;
    if (!result)
        return NULL;
    call->dtype = x->dtype;
    call->m = x->shape[batch];
    call->n = x->shape[batch + 1];
    call->o = other ? other->shape[batch + 1] : 0;
    call->x = dense->data;
    call->b = other ? other->data : NULL;
    call->out = result->data;
    int64_t matrix = 0;
    int place = 0;
    nd__linalg_result done = ND__LINALG_DONE;
    ND__UNCANCELLED; // LAPACK is opened, and is somebody else's
    if (result->numel > 0 && x->numel > 0)
        done = nd__cpu_linalg(call, &matrix, &place);
    else if (result->numel > 0)
        result = nd__create_filled(name, result, ND_NUMBER(0));
    if (done != ND__LINALG_DONE) {
        refuse(name, x, call, done, matrix, place);
        return NULL;
    }
    return result ? nd__record(call->op, nd_steal(&result), inputs, count, attrs) : NULL;
}

// -------------------------------------------------------------------------------------------------
// decompositions

nd_tensor *nd_cholesky(const nd_tensor *x) {
    if (nd__linalg_check("cholesky", "x", x, true) != ND_OK)
        return NULL;
    nd_auto nd_tensor *host = nd__operands_to_host("cholesky", x);
    nd_auto nd_tensor *symmetric = symmetric_part(host);
    nd__linalg_call call = {.op = ND_OP_cholesky};
    const nd_tensor *inputs[] = {symmetric};
    return symmetric ? nd__operands_to_device_of("cholesky", x,
                                                 nd__linalg_run("cholesky", &call, inputs, 1, 2,
                                                                x->shape + x->ndim - 2, NULL))
                     : NULL;
}

nd_tensor *nd__linalg_vector(const nd_tensor *packed, int64_t offset, int64_t columns) {
    return packed ? nd_slice(packed, offset, offset + columns, 1, -1) : NULL;
}

nd_tensor *nd__linalg_part(const nd_tensor *packed, int64_t offset, int64_t rows, int64_t columns) {
    nd_auto nd_tensor *part = nd__linalg_vector(packed, offset, rows * columns);
    if (!part)
        return NULL;
    int64_t shape[ND_MAX_DIMS];
    int batch = part->ndim - 1;
    nd__shape_copy(shape, part->shape, batch);
    shape[batch] = rows;
    shape[batch + 1] = columns;
    return nd_reshape(part, batch + 2, shape);
}

/// A result of several, and where it goes.
typedef struct part {
    nd_tensor *made;
    nd_tensor **ret;
} part;

/// Hands out parts on the device of `like`, or none of them; consumes them all.
static nd_status give(const char *name, const nd_tensor *like, int count, part *parts) {
    bool fine = true;
    for (int i = 0; i < count; i++) {
        if (parts[i].ret && parts[i].made)
            parts[i].made = nd__operands_to_device_of(name, like, parts[i].made);
        fine = fine && parts[i].made;
    }
    for (int i = 0; i < count; i++)
        if (fine && parts[i].ret)
            *parts[i].ret = parts[i].made;
        else
            nd_release(parts[i].made);
    return fine ? ND_OK : nd_error_get_status();
}

/// Of x on the host with m >= n.
static nd_tensor *packed_qr(const nd_tensor *host) {
    if (!host)
        return NULL;
    int64_t m = host->shape[host->ndim - 2], n = host->shape[host->ndim - 1];
    nd__linalg_call call = {.op = ND_OP_qr};
    const int64_t tail = m * n + n * n;
    return nd__linalg_run("qr", &call, &host, 1, 1, &tail, NULL);
}

/// With more columns than rows: q and the left of r are those of the first columns, and the right
/// of r is q^T times the others.
static nd_status wide_qr(const nd_tensor *x, const nd_tensor *host, nd_tensor **ret_q,
                         nd_tensor **ret_r) {
    int64_t m = x->shape[x->ndim - 2];
    nd_auto nd_tensor *first = nd_slice(host, 0, m, 1, -1);
    nd_auto nd_tensor *others = nd_slice(host, m, INT64_MAX, 1, -1);
    nd_auto nd_tensor *packed = packed_qr(first);
    nd_auto nd_tensor *q = nd__linalg_part(packed, 0, m, m);
    nd_auto nd_tensor *left = nd__linalg_part(packed, m * m, m, m);
    nd_auto nd_tensor *turned = nd__linalg_turn(q);
    nd_auto nd_tensor *right = nd_matmul(turned, others);
    const nd_tensor *halves[] = {left, right};
    part parts[] = {{nd_steal(&q), ret_q}, {right ? nd_concat(2, halves, -1) : NULL, ret_r}};
    return give("qr", x, 2, parts);
}

nd_status nd_qr(const nd_tensor *x, nd_tensor **ret_q, nd_tensor **ret_r) {
    nd_status status = nd__linalg_check("qr", "x", x, false);
    nd_auto nd_tensor *host = status == ND_OK ? nd__operands_to_host("qr", x) : NULL;
    if (!host)
        return nd_error_get_status();
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
    if (m == 0 || n == 0) {
        part nothing[] = {{nd_slice(host, 0, 0, 1, -1), ret_q},
                          {nd_slice(host, 0, 0, 1, -2), ret_r}};
        return give("qr", x, 2, nothing);
    }
    if (m < n)
        return wide_qr(x, host, ret_q, ret_r);
    nd_auto nd_tensor *packed = packed_qr(host);
    part parts[] = {{nd__linalg_part(packed, 0, m, n), ret_q},
                    {nd__linalg_part(packed, m * n, n, n), ret_r}};
    return give("qr", x, 2, parts);
}

/// Values or everything of a decomposition: [..., elements].
static nd_tensor *packed_values(const char *name, nd_op op, const nd_tensor *host, bool only,
                                int64_t elements) {
    nd__linalg_call call = {.op = op, .values_only = only};
    return host ? nd__linalg_run(name, &call, &host, 1, 1, &elements, NULL) : NULL;
}

static nd_status svd(const char *name, const nd_tensor *x, nd_tensor **ret_u, nd_tensor **ret_s,
                     nd_tensor **ret_vt) {
    nd_status status = nd__linalg_check(name, "x", x, false);
    nd_auto nd_tensor *host = status == ND_OK ? nd__operands_to_host(name, x) : NULL;
    if (!host)
        return nd_error_get_status();
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1], k = m < n ? m : n;
    nd_auto nd_tensor *packed = packed_values(name, ND_OP_svd, host, false, m * k + k + k * n);
    nd_auto nd_tensor *s = nd__linalg_vector(packed, m * k, k);
    part parts[] = {{nd__linalg_part(packed, 0, m, k), ret_u},
                    {nd_steal(&s), ret_s},
                    {nd__linalg_part(packed, m * k + k, k, n), ret_vt}};
    return give(name, x, 3, parts);
}

nd_status nd_svd(const nd_tensor *x, nd_tensor **ret_u, nd_tensor **ret_s, nd_tensor **ret_vt) {
    return svd("svd", x, ret_u, ret_s, ret_vt);
}

static nd_tensor *singular_values(const char *name, const nd_tensor *x) {
    if (nd__linalg_check(name, "x", x, false) != ND_OK)
        return NULL;
    nd_tensor *s = NULL;
    if (nd__record_wants_history(&x, 1)) // the gradient is one of u and v
        return svd(name, x, NULL, &s, NULL) == ND_OK ? s : NULL;
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
    nd_auto nd_tensor *host = nd__operands_to_host(name, x);
    return nd__operands_to_device_of(name, x,
                                     packed_values(name, ND_OP_svd, host, true, m < n ? m : n));
}

nd_tensor *nd_svdvals(const nd_tensor *x) {
    return singular_values("svdvals", x);
}

static nd_status eigh(const char *name, const nd_tensor *x, bool only, nd_tensor **ret_values,
                      nd_tensor **ret_vectors) {
    nd_status status = nd__linalg_check(name, "x", x, true);
    nd_auto nd_tensor *host = status == ND_OK ? nd__operands_to_host(name, x) : NULL;
    nd_auto nd_tensor *symmetric = symmetric_part(host);
    if (!symmetric)
        return nd_error_get_status();
    int64_t n = x->shape[x->ndim - 1];
    only = only && !nd__record_wants_history(&x, 1);
    nd_auto nd_tensor *packed =
        packed_values(name, ND_OP_eigh, symmetric, only, only ? n : n + n * n);
    part parts[] = {{nd__linalg_vector(packed, 0, n), ret_values},
                    {only ? nd_retain(symmetric) : nd__linalg_part(packed, n, n, n), ret_vectors}};
    return give(name, x, 2, parts);
}

nd_status nd_eigh(const nd_tensor *x, nd_tensor **ret_values, nd_tensor **ret_vectors) {
    return eigh("eigh", x, false, ret_values, ret_vectors);
}

nd_tensor *nd_eigvalsh(const nd_tensor *x) {
    nd_tensor *values = NULL;
    return eigh("eigvalsh", x, true, &values, NULL) == ND_OK ? values : NULL;
}

// -------------------------------------------------------------------------------------------------
// numbers

/// Sign, logarithm and value of the determinant: [..., 3], on the host.
static nd_tensor *packed_slogdet(const char *name, const nd_tensor *x) {
    if (nd__linalg_check(name, "x", x, true) != ND_OK)
        return NULL;
    nd_auto nd_tensor *host = nd__operands_to_host(name, x);
    if (!host)
        return NULL;
    if (x->shape[x->ndim - 1] > 0) {
        nd__linalg_call call = {.op = ND_OP_slogdet};
        return nd__linalg_run(name, &call, (const nd_tensor *const[]){host}, 1, 1,
                              (const int64_t[]){3}, NULL);
    }
    int64_t shape[ND_MAX_DIMS]; // of no rows
    for (int i = 0; i < x->ndim - 2; i++)
        shape[i] = x->shape[i];
    shape[x->ndim - 2] = 3;
    const nd_tensor *like = host;
    nd_auto nd_tensor *ones = nd__create_filled(
        name, nd__tensor_result(name, &like, 1, host->device, x->dtype, x->ndim - 1, shape),
        ND_NUMBER(1));
    const double values[] = {1, 0, 1};
    nd_auto nd_tensor *known = nd_from_data(values, 1, (const int64_t[]){3}, ND_F64);
    nd_auto nd_tensor *there = nd_to(known, host->device);
    nd_auto nd_tensor *numbers = nd_cast(there, x->dtype);
    nd_tensor *packed = nd_mul(ones, numbers);
    return packed ? nd__record(ND_OP_slogdet, packed, &like, 1, NULL) : NULL;
}

nd_tensor *nd_det(const nd_tensor *x) {
    nd_auto nd_tensor *packed = packed_slogdet("det", x);
    return packed ? nd__operands_to_device_of("det", x, nd_select(packed, 2, -1)) : NULL;
}

nd_status nd_slogdet(const nd_tensor *x, nd_tensor **ret_sign, nd_tensor **ret_logabsdet) {
    nd_auto nd_tensor *packed = packed_slogdet("slogdet", x);
    if (!packed)
        return nd_error_get_status();
    nd_auto nd_tensor *sign = nd_select(packed, 0, -1);
    part parts[] = {{nd_detach(sign), ret_sign}, {nd_select(packed, 1, -1), ret_logabsdet}};
    return give("slogdet", x, 2, parts);
}

nd_tensor *nd_matrix_rank(const nd_tensor *x, double tolerance) {
    if (nd__linalg_check("matrix_rank", "x", x, false) != ND_OK ||
        nd__linalg_check_tolerance("matrix_rank", tolerance) != ND_OK)
        return NULL;
    nd_tensor *rank = NULL;
    nd_no_grad {
        const int last = -1;
        nd_auto nd_tensor *s = singular_values("matrix_rank", x);
        nd_auto nd_tensor *largest = nd_slice(s, 0, 1, 1, -1);
        nd_auto nd_tensor *limit = nd_mul_scalar(largest, nd__linalg_tolerance_of(x, tolerance));
        nd_auto nd_tensor *above = nd_greater(s, limit);
        rank = nd_count_nonzero(above, 1, &last, false);
    }
    return rank;
}

/// [..., 1, 1] as it is, or without these axes; consumes x.
static nd_tensor *as_norm(nd_tensor *x, bool keepdims) {
    if (keepdims)
        return x;
    nd_auto nd_tensor *column = nd_squeeze(x, -1);
    nd_release(x);
    return nd_squeeze(column, -1);
}

nd_tensor *nd_matrix_norm(const nd_tensor *x, nd_matrix_norm_kind kind, bool keepdims) {
    if (nd__linalg_check("matrix_norm", "x", x, false) != ND_OK)
        return NULL;
    const int rows = -2, columns = -1, both[] = {-2, -1};
    if (kind == ND_MATRIX_NORM_FROBENIUS)
        return nd_norm(x, 2.0, 2, both, keepdims);
    if (kind == ND_MATRIX_NORM_COLUMNS || kind == ND_MATRIX_NORM_ROWS) {
        bool by_rows = kind == ND_MATRIX_NORM_ROWS;
        nd_auto nd_tensor *sizes = nd_abs(x);
        nd_auto nd_tensor *sums = nd_sum(sizes, 1, by_rows ? &columns : &rows, true);
        return as_norm(nd_max(sums, 2, both, true), keepdims);
    }
    if (kind != ND_MATRIX_NORM_NUCLEAR && kind != ND_MATRIX_NORM_SPECTRAL) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "matrix_norm: there is no norm %d", (int)kind);
        return NULL;
    }
    nd_auto nd_tensor *s = singular_values("matrix_norm", x);
    nd_auto nd_tensor *seen = nd_unsqueeze(s, -1);
    return as_norm(kind == ND_MATRIX_NORM_NUCLEAR ? nd_sum(seen, 2, both, true)
                                                  : nd_max(seen, 2, both, true),
                   keepdims);
}
