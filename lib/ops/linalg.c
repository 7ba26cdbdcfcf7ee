// Linear algebra: what all of it shares, decompositions, and numbers that say something of a matrix.
// Equations: linalg_equations.c. How a call is run: linalg_run.c.
#include "lib/ops/linalg.h"
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/device/tf32.h"
#include "lib/ops/linalg_run.h"
#include "lib/ops/operands.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/create.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <float.h>
#include <math.h>
#include <nd/autocast.h>
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

nd_status nd__linalg_check_computed(const char *name, const char *argument, const nd_tensor *x,
                                    bool square) {
    nd_status status = nd__linalg_check(name, argument, x, square);
    return status == ND_OK ? nd__capture_check(name, x->device) : status;
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

nd_tensor *nd__linalg_product(const nd_tensor *a, const nd_tensor *b) {
    nd_autocast_block block = nd__autocast_block_begin(ND_F32);
    const bool was_exact = nd__tf32_set_exact(true);
    nd_tensor *product = nd_matmul(a, b);
    nd__tf32_set_exact(was_exact);
    nd__autocast_block_end(&block);
    return product;
}

nd_tensor *nd__linalg_turn(const nd_tensor *x) {
    return nd_transpose(x, -2, -1);
}

/// Of a tensor that was just made; false: that, or it is not on the host.
static bool is_known_finite(const nd_tensor *made) {
    if (made->device.kind != ND_CPU)
        return false;
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
    if (!mean || is_known_finite(mean))
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
    const int64_t shape[] = {n, n};
    nd_tensor *one =
        like ? nd__tensor_result("identity", &like, 1, like->device, like->dtype, 2, shape) : NULL;
    const nd_op_attrs attrs = {.i = {n}};
    return nd__create_with("identity", ND_OP_eye, one, &attrs);
}

// -------------------------------------------------------------------------------------------------
// decompositions

nd_tensor *nd_cholesky(const nd_tensor *x) {
    ND__ERROR_NAMED("cholesky");
    if (nd__linalg_check_computed("cholesky", "x", x, true) != ND_OK)
        return NULL;
    nd_auto nd_tensor *symmetric = symmetric_part(x);
    nd__linalg_call call = {.op = ND_OP_cholesky};
    const nd_tensor *inputs[] = {symmetric};
    return symmetric ? nd__linalg_run("cholesky", &call, inputs, 1, 2, x->shape + x->ndim - 2, NULL)
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

/// Hands out parts, or none of them; consumes them all.
static nd_status give(int count, part *parts) {
    bool fine = true;
    for (int i = 0; i < count; i++)
        fine = fine && parts[i].made;
    for (int i = 0; i < count; i++)
        if (fine && parts[i].ret)
            *parts[i].ret = parts[i].made;
        else
            nd_release(parts[i].made);
    return fine ? ND_OK : nd_error_get_status();
}

/// Of x with m >= n.
static nd_tensor *packed_qr(const nd_tensor *x) {
    if (!x)
        return NULL;
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
    nd__linalg_call call = {.op = ND_OP_qr};
    const int64_t tail = m * n + n * n;
    return nd__linalg_run("qr", &call, &x, 1, 1, &tail, NULL);
}

/// With more columns than rows: q and the left of r are those of the first columns, and the right
/// of r is q^T times the others.
static nd_status wide_qr(const nd_tensor *x, nd_tensor **ret_q, nd_tensor **ret_r) {
    int64_t m = x->shape[x->ndim - 2];
    nd_auto nd_tensor *first = nd_slice(x, 0, m, 1, -1);
    nd_auto nd_tensor *others = nd_slice(x, m, INT64_MAX, 1, -1);
    nd_auto nd_tensor *packed = packed_qr(first);
    nd_auto nd_tensor *q = nd__linalg_part(packed, 0, m, m);
    nd_auto nd_tensor *left = nd__linalg_part(packed, m * m, m, m);
    nd_auto nd_tensor *turned = nd__linalg_turn(q);
    nd_auto nd_tensor *right = nd__linalg_product(turned, others);
    const nd_tensor *halves[] = {left, right};
    part parts[] = {{nd_steal(&q), ret_q}, {right ? nd_concat(2, halves, -1) : NULL, ret_r}};
    return give(2, parts);
}

nd_status nd_qr(const nd_tensor *x, nd_tensor **ret_q, nd_tensor **ret_r) {
    ND__ERROR_NAMED("qr");
    nd_status status = nd__linalg_check_computed("qr", "x", x, false);
    if (status != ND_OK)
        return status;
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
    if (m == 0 || n == 0) {
        part nothing[] = {{nd_slice(x, 0, 0, 1, -1), ret_q}, {nd_slice(x, 0, 0, 1, -2), ret_r}};
        return give(2, nothing);
    }
    if (m < n)
        return wide_qr(x, ret_q, ret_r);
    nd_auto nd_tensor *packed = packed_qr(x);
    part parts[] = {{nd__linalg_part(packed, 0, m, n), ret_q},
                    {nd__linalg_part(packed, m * n, n, n), ret_r}};
    return give(2, parts);
}

/// Values or everything of a decomposition: [..., elements].
static nd_tensor *packed_values(const char *name, nd_op op, const nd_tensor *x, bool only,
                                int64_t elements) {
    nd__linalg_call call = {.op = op, .values_only = only};
    return nd__linalg_run(name, &call, &x, 1, 1, &elements, NULL);
}

static nd_status svd(const char *name, const nd_tensor *x, nd_tensor **ret_u, nd_tensor **ret_s,
                     nd_tensor **ret_vt) {
    nd_status status = nd__linalg_check_computed(name, "x", x, false);
    if (status != ND_OK)
        return status;
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1], k = m < n ? m : n;
    nd_auto nd_tensor *packed = packed_values(name, ND_OP_svd, x, false, m * k + k + k * n);
    nd_auto nd_tensor *s = nd__linalg_vector(packed, m * k, k);
    part parts[] = {{nd__linalg_part(packed, 0, m, k), ret_u},
                    {nd_steal(&s), ret_s},
                    {nd__linalg_part(packed, m * k + k, k, n), ret_vt}};
    return give(3, parts);
}

nd_status nd_svd(const nd_tensor *x, nd_tensor **ret_u, nd_tensor **ret_s, nd_tensor **ret_vt) {
    ND__ERROR_NAMED("svd");
    return svd("svd", x, ret_u, ret_s, ret_vt);
}

static nd_tensor *singular_values(const char *name, const nd_tensor *x) {
    if (nd__linalg_check_computed(name, "x", x, false) != ND_OK)
        return NULL;
    nd_tensor *s = NULL;
    if (nd__record_wants_history(&x, 1)) // the gradient is one of u and v
        return svd(name, x, NULL, &s, NULL) == ND_OK ? s : NULL;
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
    return packed_values(name, ND_OP_svd, x, true, m < n ? m : n);
}

nd_tensor *nd_svdvals(const nd_tensor *x) {
    ND__ERROR_NAMED("svdvals");
    return singular_values("svdvals", x);
}

static nd_status eigh(const char *name, const nd_tensor *x, bool only, nd_tensor **ret_values,
                      nd_tensor **ret_vectors) {
    nd_status status = nd__linalg_check_computed(name, "x", x, true);
    nd_auto nd_tensor *symmetric = status == ND_OK ? symmetric_part(x) : NULL;
    if (!symmetric)
        return nd_error_get_status();
    int64_t n = x->shape[x->ndim - 1];
    only = only && !nd__record_wants_history(&x, 1);
    nd_auto nd_tensor *packed =
        packed_values(name, ND_OP_eigh, symmetric, only, only ? n : n + n * n);
    part parts[] = {{nd__linalg_vector(packed, 0, n), ret_values},
                    {only ? nd_retain(symmetric) : nd__linalg_part(packed, n, n, n), ret_vectors}};
    return give(2, parts);
}

nd_status nd_eigh(const nd_tensor *x, nd_tensor **ret_values, nd_tensor **ret_vectors) {
    ND__ERROR_NAMED("eigh");
    return eigh("eigh", x, false, ret_values, ret_vectors);
}

nd_tensor *nd_eigvalsh(const nd_tensor *x) {
    ND__ERROR_NAMED("eigvalsh");
    nd_tensor *values = NULL;
    return eigh("eigvalsh", x, true, &values, NULL) == ND_OK ? values : NULL;
}

// -------------------------------------------------------------------------------------------------
// numbers

/// Sign, logarithm and value of the determinant: [..., 3].
static nd_tensor *packed_slogdet(const char *name, const nd_tensor *x, bool is_det) {
    const nd_op_attrs attrs = {.i = {is_det}};
    if (nd__linalg_check_computed(name, "x", x, true) != ND_OK)
        return NULL;
    if (x->shape[x->ndim - 1] > 0) {
        nd__linalg_call call = {.op = ND_OP_slogdet};
        return nd__linalg_run(name, &call, &x, 1, 1, (const int64_t[]){3}, &attrs);
    }
    int64_t shape[ND_MAX_DIMS]; // of no rows
    for (int i = 0; i < x->ndim - 2; i++)
        shape[i] = x->shape[i];
    shape[x->ndim - 2] = 3;
    nd_auto nd_tensor *ones = nd__create_filled(
        name, nd__tensor_result(name, &x, 1, x->device, x->dtype, x->ndim - 1, shape),
        ND_NUMBER(1));
    const double values[] = {1, 0, 1};
    nd_auto nd_tensor *known = nd_from_data(values, 1, (const int64_t[]){3}, ND_F64);
    nd_auto nd_tensor *there = nd_to(known, x->device);
    nd_auto nd_tensor *numbers = nd_cast(there, x->dtype);
    nd_tensor *packed = nd_mul(ones, numbers);
    return packed ? nd__record(ND_OP_slogdet, packed, &x, 1, &attrs) : NULL;
}

nd_tensor *nd_det(const nd_tensor *x) {
    ND__ERROR_NAMED("det");
    nd_auto nd_tensor *packed = packed_slogdet("det", x, true);
    return packed ? nd_select(packed, 2, -1) : NULL;
}

nd_status nd_slogdet(const nd_tensor *x, nd_tensor **ret_sign, nd_tensor **ret_logabsdet) {
    ND__ERROR_NAMED("slogdet");
    nd_auto nd_tensor *packed = packed_slogdet("slogdet", x, false);
    if (!packed)
        return nd_error_get_status();
    nd_auto nd_tensor *sign = nd_select(packed, 0, -1);
    part parts[] = {{nd_detach(sign), ret_sign}, {nd_select(packed, 1, -1), ret_logabsdet}};
    return give(2, parts);
}

/// x, or a small part of each matrix whose singular values may leave the range.
static nd_tensor *in_range(const nd_tensor *x) {
    if (x->numel == 0)
        return nd_retain(x);
    const int both[] = {-2, -1};
    const double part = 0x1p-24, largest = x->dtype == ND_F32 ? FLT_MAX : DBL_MAX;
    nd_auto nd_tensor *sizes = nd_abs(x);
    nd_auto nd_tensor *size = nd_max(sizes, 2, both, true);
    nd_auto nd_tensor *bound = nd_full_like(size, largest * part);
    nd_auto nd_tensor *is_large = nd_greater(size, bound);
    nd_auto nd_tensor *one = nd_ones_like(size);
    nd_auto nd_tensor *factor = nd_masked_fill(one, is_large, part);
    return nd_mul(x, factor);
}

nd_tensor *nd_matrix_rank(const nd_tensor *x, double tolerance) {
    ND__ERROR_NAMED("matrix_rank");
    if (nd__linalg_check_computed("matrix_rank", "x", x, false) != ND_OK ||
        nd__linalg_check_tolerance("matrix_rank", tolerance) != ND_OK)
        return NULL;
    nd_tensor *rank = NULL;
    nd_no_grad {
        const int last = -1;
        nd_auto nd_tensor *near = in_range(x);
        nd_auto nd_tensor *s = singular_values("matrix_rank", near);
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
    ND__ERROR_NAMED("matrix_norm");
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
