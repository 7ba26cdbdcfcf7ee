// See linalg_run.h: by kernels/cpu/linalg.h on the host, or by a device, which says of each matrix
// what became of it in a number that is read behind its work, so that both refuse the same.
#include "lib/ops/linalg_run.h"
#include "kernels/cpu/linalg.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/ops/linalg.h"
#include "lib/ops/operands.h"
#include "lib/tensor/create.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/manipulation.h>
#include <stdlib.h>
#include <string.h>

/// What a call is made of.
typedef struct linalg_run {
    const char *name;
    nd__linalg_call *call;
    const nd_tensor *const *inputs; ///< on one device, with one batch
    size_t count;
    int tail; ///< axes of the result behind the batch
    const int64_t *tail_shape;
    const nd_op_attrs *attrs;
} linalg_run;

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
    case ND__LINALG_TOO_LARGE:
        return nd__error(ND_ERROR_UNSUPPORTED, "%s: %s has shape %s, too large", name, argument,
                         nd__shape_text(shape, x->ndim, x->shape));
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

/// The result, without values.
static nd_tensor *empty_result(const linalg_run *run) {
    const nd_tensor *x = run->inputs[0];
    int64_t shape[ND_MAX_DIMS];
    int batch = x->ndim - 2;
    nd__shape_copy(shape, x->shape, batch);
    nd__shape_copy(shape + batch, run->tail_shape, run->tail);
    return nd__tensor_result(run->name, run->inputs, run->count, x->device, x->dtype,
                             batch + run->tail, shape);
}

/// Sizes, and where dense operands and the result are.
static void fill_call(nd__linalg_call *call, const nd_tensor *x, const nd_tensor *b,
                      nd_tensor *out) {
    int batch = x->ndim - 2;
    call->count = 1;
    for (int i = 0; i < batch; i++)
        call->count *= x->shape[i];
    call->dtype = x->dtype;
    call->m = x->shape[batch];
    call->n = x->shape[batch + 1];
    call->o = b ? b->shape[batch + 1] : 0;
    call->x = x->data;
    call->b = b ? b->data : NULL;
    call->out = out->data;
}

static nd_status run_on_host(const char *name, const nd_tensor *x, const nd__linalg_call *call) {
    int64_t matrix = 0;
    int place = 0;
    nd__linalg_result done = nd__cpu_linalg(call, &matrix, &place);
    return done == ND__LINALG_DONE ? ND_OK : refuse(name, x, call, done, matrix, place);
}

// ------------------------------------------------------------------------------------------------
// on a device

/// The number in front of the first of `count` bytes that is `value`; `count`: none is.
static int64_t first_of(const unsigned char *bytes, int64_t count, unsigned char value) {
    int64_t i = 0;
    while (i < count && bytes[i] != value)
        i++;
    return i;
}

/// The bytes of a tensor of bools (consumed; NULL gives NULL), of malloc.
static unsigned char *bools_of(const char *name, nd_tensor *flags) {
    nd_auto nd_tensor *consumed = flags;
    if (!consumed)
        return NULL;
    unsigned char *bytes = malloc((size_t)consumed->numel + 1);
    if (!bytes)
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %lld bytes", name,
                  (long long)consumed->numel);
    else if (nd_copy_to_host(consumed, bytes, (size_t)consumed->numel) == ND_OK)
        return bytes;
    free(bytes);
    return NULL;
}

/// The first matrix in which not all is finite, or their number.
static nd_status find_not_finite(const linalg_run *run, const nd_tensor *x, int64_t *ret_first) {
    const int axes[] = {-2, -1};
    unsigned char *fine = NULL;
    nd_no_grad {
        nd_auto nd_tensor *finite = nd_isfinite(x);
        fine = bools_of(run->name, finite ? nd_all(finite, 2, axes, false) : NULL);
    }
    if (!fine)
        return nd_error_get_status();
    *ret_first = first_of(fine, run->call->count, 0);
    free(fine);
    return ND_OK;
}

/// As the host looks at what it reads for an iteration.
static nd_status check_finite(const linalg_run *run, const nd_tensor *x) {
    int64_t first;
    nd_status status = find_not_finite(run, x, &first);
    return status != ND_OK || first == run->call->count
               ? status
               : refuse(run->name, run->inputs[0], run->call, ND__LINALG_NOT_FINITE, first, 0);
}

/// What the host makes of an infinity or NaN in a matrix that is factored is the answer; libraries
/// of devices make something else of it, or do not end.
static nd_status leave_not_finite(const linalg_run *run, const nd_tensor *x) {
    int64_t first;
    nd_status status = find_not_finite(run, x, &first);
    return status == ND_OK && first < run->call->count ? ND_ERROR_UNSUPPORTED : status;
}

/// Whether nothing on a diagonal is 0, which is what makes a triangle singular.
static nd_status check_diagonal(const linalg_run *run, const nd_tensor *x) {
    unsigned char *zeros = NULL;
    nd_no_grad {
        nd_auto nd_tensor *diagonal = nd_diagonal(x, 0, -2, -1);
        nd_auto nd_tensor *kept = diagonal ? nd_cast(diagonal, ND_BOOL) : NULL;
        zeros = bools_of(run->name, kept ? nd_logical_not(kept) : NULL);
    }
    if (!zeros)
        return nd_error_get_status();
    const int64_t n = run->call->n, all = run->call->count * n, first = first_of(zeros, all, 1);
    free(zeros);
    return first == all ? ND_OK
                        : refuse(run->name, run->inputs[0], run->call, ND__LINALG_SINGULAR,
                                 first / n, (int)(first % n) + 1);
}

static nd__linalg_result meaning_of_info(nd_op op) {
    switch (op) {
    case ND_OP_solve:
        return ND__LINALG_SINGULAR;
    case ND_OP_cholesky:
        return ND__LINALG_NOT_POSITIVE;
    case ND_OP_slogdet: // 0 is its determinant
        return ND__LINALG_DONE;
    default:
        return ND__LINALG_NOT_CONVERGED;
    }
}

/// Waits for what the device said of each matrix.
static nd_status check_info(const linalg_run *run, const nd_tensor *info) {
    const nd__linalg_call *call = run->call;
    const nd__linalg_result meaning = meaning_of_info(call->op);
    const size_t bytes = (size_t)call->count * sizeof(int32_t);
    int32_t *said = malloc(bytes);
    if (!said)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu bytes", run->name, bytes);
    nd_status status = nd_copy_to_host(info, said, bytes);
    for (int64_t i = 0; i < call->count && status == ND_OK; i++)
        if (said[i] < 0)
            status = nd__error(ND_ERROR_DEVICE, "%s: a library of the device refused argument %d",
                               run->name, -said[i]);
        else if (said[i] > 0 && meaning != ND__LINALG_DONE)
            status = refuse(run->name, run->inputs[0], call, meaning, i, said[i]);
    free(said);
    return status;
}

/// Runs the call of dense operands; ND_ERROR_UNSUPPORTED, without an error, where the device has no kernel.
static nd_status launch(const linalg_run *run, const nd_tensor *x) {
    nd__linalg_call *call = run->call;
    nd_auto nd_tensor *info =
        nd__tensor_result(run->name, &x, 1, x->device, ND_I32, 1, &call->count);
    if (!info)
        return nd_error_get_status();
    const nd_kernel_call launched = {
        .op = call->op,
        .noperands = call->b ? 4 : 3,
        .operand = {{.data = info->data, .dtype = ND_I32},
                    {.data = call->out, .dtype = call->dtype},
                    {.data = (void *)(uintptr_t)call->x, .dtype = call->dtype},
                    {.data = (void *)(uintptr_t)call->b, .dtype = call->dtype}},
        .attrs = {.i = {call->count, call->m, call->n, call->o, call->upper, call->unit,
                        call->values_only}},
    };
    nd_status status = nd__launch_where_supported(run->name, x->device, &launched);
    return status == ND_OK ? check_info(run, info) : status;
}

/// u, s and v^T of dense x, packed (linalg.h).
static nd_status launch_svd(const linalg_run *run, const nd_tensor *x, nd_tensor **ret_packed) {
    const int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1], k = m < n ? m : n;
    const int64_t tail = m * k + k + k * n;
    nd__linalg_call call = {.op = ND_OP_svd};
    const linalg_run of_svd = {run->name, &call, run->inputs, 1, 1, &tail, NULL};
    nd_auto nd_tensor *packed = empty_result(&of_svd);
    if (!packed)
        return nd_error_get_status();
    fill_call(&call, x, NULL, packed);
    nd_status status = launch(&of_svd, x);
    if (status == ND_OK)
        *ret_packed = nd_steal(&packed);
    return status;
}

/// v s^-1 u^T, or that times b, without the singular values up to tolerance times the largest.
static nd_tensor *through_parts(const nd_tensor *packed, const nd__linalg_call *call,
                                const nd_tensor *b) {
    const int64_t m = call->m, n = call->n, k = m < n ? m : n;
    nd_auto nd_tensor *u = nd__linalg_part(packed, 0, m, k);
    nd_auto nd_tensor *s = nd__linalg_vector(packed, m * k, k);
    nd_auto nd_tensor *vt = nd__linalg_part(packed, m * k + k, k, n);
    nd_auto nd_tensor *largest = nd__linalg_vector(packed, m * k, 1);
    nd_auto nd_tensor *limit = nd_mul_scalar(largest, call->tolerance);
    nd_auto nd_tensor *left_out = nd_less_equal(s, limit);
    nd_auto nd_tensor *reciprocal = nd_reciprocal(s);
    nd_auto nd_tensor *inverse = nd_masked_fill(reciprocal, left_out, 0);
    nd_auto nd_tensor *column = nd_unsqueeze(inverse, -1);
    nd_auto nd_tensor *ut = nd__linalg_turn(u), *v = nd__linalg_turn(vt);
    nd_auto nd_tensor *right = b ? nd__linalg_product(ut, b) : nd_retain(ut);
    nd_auto nd_tensor *scaled = nd_mul(right, column);
    return nd__linalg_product(v, scaled);
}

/// pinv or lstsq, of what the device makes of the matrix.
static nd_status run_by_svd(const linalg_run *run, const nd_tensor *x, const nd_tensor *b,
                            nd_tensor **ret_result) {
    nd_auto nd_tensor *packed = NULL;
    nd_status status = launch_svd(run, x, &packed);
    if (status != ND_OK)
        return status;
    nd_no_grad *ret_result = through_parts(packed, run->call, b);
    return *ret_result ? ND_OK : nd_error_get_status();
}

/// What the host checks before it computes, and each matrix's info tells it afterwards.
static nd_status check_operands(const linalg_run *run, const nd_tensor *x, const nd_tensor *b) {
    switch (run->call->op) {
    case ND_OP_solve_triangular:
        return run->call->unit ? ND_OK : check_diagonal(run, x);
    case ND_OP_svd:
    case ND_OP_eigh:
    case ND_OP_pinv:
        return check_finite(run, x);
    case ND_OP_lstsq: {
        nd_status status = check_finite(run, x);
        return status == ND_OK ? check_finite(run, b) : status;
    }
    default:
        return leave_not_finite(run, x);
    }
}

/// Of dense operands, into `*result`, which pinv and lstsq replace.
static nd_status run_on_device(const linalg_run *run, const nd_tensor *x, const nd_tensor *b,
                               nd_tensor **result) {
    nd_status status = check_operands(run, x, b);
    if (status != ND_OK)
        return status;
    if (run->call->op != ND_OP_pinv && run->call->op != ND_OP_lstsq)
        return launch(run, x);
    nd_tensor *made = NULL;
    status = run_by_svd(run, x, b, &made);
    if (status == ND_OK) {
        nd_release(*result);
        *result = made;
    }
    return status;
}

// ------------------------------------------------------------------------------------------------

/// Where the inputs are. NULL, without an error and with *ret_status ND_ERROR_UNSUPPORTED, where that
/// device has no kernel for it.
static nd_tensor *run_where_they_are(const linalg_run *run, nd_status *ret_status) {
    const nd_tensor *x = run->inputs[0];
    nd_auto nd_tensor *result = empty_result(run);
    *ret_status = result ? ND_OK : nd_error_get_status();
    if (!result)
        return NULL;
    if (x->numel == 0 || result->numel == 0) {
        result = nd__create_filled(run->name, nd_steal(&result), ND_NUMBER(0));
    } else {
        nd_auto nd_tensor *dense = nd__operands_dense(run->name, x, x->dtype);
        nd_auto nd_tensor *other = dense && run->count > 1
                                       ? nd__operands_dense(run->name, run->inputs[1], x->dtype)
                                       : NULL;
        if (!dense || (!other && run->count > 1))
            return NULL;
        fill_call(run->call, dense, other, result);
        *ret_status = x->device.kind == ND_CPU ? run_on_host(run->name, x, run->call)
                                               : run_on_device(run, dense, other, &result);
    }
    if (*ret_status != ND_OK || !result)
        return NULL;
    return nd__record(run->call->op, nd_steal(&result), run->inputs, run->count, run->attrs);
}

/// x on the host; what repeats along its batch is brought there once.
static nd_tensor *to_host(const char *name, const nd_tensor *x) {
    nd_tensor *once = nd_retain(x);
    for (int axis = 0; axis < x->ndim - 2 && once; axis++) {
        if (x->shape[axis] <= 1 || nd__tensor_strides(x)[axis] != 0)
            continue;
        nd_tensor *next = nd_slice(once, 0, 1, 1, axis);
        nd_release(once);
        once = next;
    }
    nd_auto nd_tensor *consumed = once, *host = nd__operands_to_host(name, once);
    return host ? nd_expand(host, x->ndim, x->shape) : NULL;
}

nd_tensor *nd__linalg_run(const char *name, nd__linalg_call *call, const nd_tensor *const *inputs,
                          size_t count, int tail, const int64_t *tail_shape,
                          const nd_op_attrs *attrs) {
    const nd_tensor *x = inputs[0];
    linalg_run run = {name, call, inputs, count, tail, tail_shape, attrs};
    nd_status status = ND_ERROR_UNSUPPORTED;
    const bool is_host = x->device.kind == ND_CPU;
    if (is_host || nd__launch_fuses(x->device)) {
        nd_tensor *result = run_where_they_are(&run, &status);
        if (is_host || status != ND_ERROR_UNSUPPORTED)
            return result;
    }
    nd_auto nd_tensor *first = to_host(name, x);
    nd_auto nd_tensor *second = first && count > 1 ? to_host(name, inputs[1]) : NULL;
    if (!first || (!second && count > 1))
        return NULL;
    const nd_tensor *on_host[] = {first, second};
    run.inputs = on_host;
    return nd__operands_to_device_of(name, x, run_where_they_are(&run, &status));
}
