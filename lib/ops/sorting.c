// Order along an axis: argsort and searchsorted are kernels; sort and topk gather what argsort finds,
// which makes their gradients those of a gather.
#include "lib/ops/sorting.h"
#include "kernels/sorting.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/sorting.h>

/// The first `kept` positions along an axis that exists, or those at so many ranks.
static nd_tensor *positions_of(const char *name, const nd_tensor *x, int axis, bool descending,
                               int64_t kept, const int64_t *ranks) {
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = i == axis ? kept : x->shape[i];
    nd_op_attrs attrs = {.i = {axis, descending}};
    nd_tensor *result = nd__tensor_result(name, &x, 1, x->device, ND_I64, x->ndim, shape);
    if (!result || result->numel == 0)
        return nd__record(ND_OP_argsort, result, &x, 1, &attrs);
    nd_kernel_call call;
    nd_operand out = nd__shape_broadcast_operand(result, x->ndim, shape);
    nd__operands_call_along_axis(&call, ND_OP_argsort, &out, x, axis);
    call.attrs.i[0] = descending;
    call.attrs.i[1] = kept;
    call.attrs.i[2] = ranks != NULL;
    for (int64_t i = 0; ranks && i < kept; i++)
        call.attrs.i[3 + i] = ranks[i];
    return nd__operands_run(name, result, &call, &x, 1, &attrs);
}

/// The axis; -1 with an error.
static int checked_axis(const char *name, const nd_tensor *x, int axis) {
    if (nd__tensor_check_operand(name, "x", x) != ND_OK)
        return -1;
    return nd__shape_resolve_axis(name, axis, x->ndim);
}

nd_tensor *nd_argsort(const nd_tensor *x, int axis, bool descending) {
    axis = checked_axis("argsort", x, axis);
    return axis < 0 ? NULL : positions_of("argsort", x, axis, descending, x->shape[axis], NULL);
}

nd_tensor *nd_sort(const nd_tensor *x, int axis, bool descending) {
    ND__ERROR_NAMED("sort");
    axis = checked_axis("sort", x, axis);
    if (axis < 0)
        return NULL;
    nd_auto nd_tensor *positions = positions_of("sort", x, axis, descending, x->shape[axis], NULL);
    return positions ? nd_gather(x, positions, axis) : NULL;
}

nd_tensor *nd__sorting_at_ranks(const char *name, const nd_tensor *x, int count,
                                const int64_t *ranks) {
    nd_auto nd_tensor *positions = positions_of(name, x, x->ndim - 1, false, count, ranks);
    return positions ? nd_gather(x, positions, -1) : NULL;
}

nd_status nd_topk(const nd_tensor *x, int64_t k, int axis, bool largest, nd_tensor **ret_values,
                  nd_tensor **ret_positions) {
    ND__ERROR_NAMED("topk");
    axis = checked_axis("topk", x, axis);
    if (axis < 0)
        return nd_error_get_status();
    if (k < 0 || k > x->shape[axis])
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "topk: k is %lld, and axis %d has %lld elements", (long long)k, axis,
                         (long long)x->shape[axis]);
    nd_auto nd_tensor *positions = positions_of("topk", x, axis, largest, k, NULL);
    nd_auto nd_tensor *values = positions && ret_values ? nd_gather(x, positions, axis) : NULL;
    if (!positions || (ret_values && !values))
        return nd_error_get_status();
    if (ret_values)
        *ret_values = nd_steal(&values);
    if (ret_positions)
        *ret_positions = nd_steal(&positions);
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------

/// sorted is [n], or has values' axes but the last.
static nd_status check_search(const nd_tensor *sorted, const nd_tensor *values) {
    nd_status status = nd__operands_check_pair("searchsorted", "sorted", sorted, "values", values);
    if (status != ND_OK)
        return status;
    bool fits = sorted->ndim == 1 || (sorted->ndim > 1 && sorted->ndim == values->ndim);
    for (int i = 0; i + 1 < sorted->ndim && fits; i++)
        fits = sorted->shape[i] == values->shape[i];
    if (fits)
        return ND_OK;
    char sorted_text[ND__SHAPE_TEXT], values_text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE,
                     "searchsorted: values of shape %s do not fit sorted of shape %s, which must "
                     "be [n] or differ in the last axis alone",
                     nd__shape_text(values_text, values->ndim, values->shape),
                     nd__shape_text(sorted_text, sorted->ndim, sorted->shape));
}

nd_tensor *nd_searchsorted(const nd_tensor *sorted, const nd_tensor *values, bool right) {
    ND__ERROR_NAMED("searchsorted");
    nd_dtype dtype;
    if (check_search(sorted, values) != ND_OK ||
        nd__operands_promote("searchsorted", sorted, values, &dtype) != ND_OK)
        return NULL;
    nd_auto nd_tensor *rows = nd__operands_as_dtype(sorted, dtype);
    nd_auto nd_tensor *keys = rows ? nd__operands_as_dtype(values, dtype) : NULL;
    if (!keys)
        return NULL;
    const nd_tensor *inputs[] = {rows, keys};
    nd_tensor *result =
        nd__tensor_result("searchsorted", inputs, 2, keys->device, ND_I64, keys->ndim, keys->shape);
    if (!result || result->numel == 0)
        return nd__record(ND_OP_searchsorted, result, inputs, 2, NULL);
    nd_kernel_call call;
    call.op = ND_OP_searchsorted;
    call.noperands = 3;
    call.ndim = keys->ndim;
    for (int i = 0; i < keys->ndim; i++)
        call.shape[i] = keys->shape[i];
    call.operand[0] = nd__shape_broadcast_operand(result, keys->ndim, keys->shape);
    call.operand[1] = nd__shape_broadcast_operand(rows, rows->ndim, rows->shape);
    call.operand[2] = nd__shape_broadcast_operand(keys, keys->ndim, keys->shape);
    int last = rows->ndim - 1;
    call.attrs.i[0] = rows->shape[last];
    call.attrs.i[1] = call.operand[1].strides[last];
    call.attrs.i[2] = right;
    // Along its own last axis, and along all of values' where it is one row, sorted stays.
    for (int i = last; i < keys->ndim; i++)
        call.operand[1].strides[i] = 0;
    nd__shape_collapse(&call);
    return nd__operands_run("searchsorted", result, &call, inputs, 2, NULL);
}
