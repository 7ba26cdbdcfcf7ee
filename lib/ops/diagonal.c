// Diagonals, differences and grids: views under the names of the Array API.
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/ops/several.h"
#include "lib/tensor/shape.h"
#include <nd/manipulation.h>

/// The diagonal of two axes of an x that was checked.
static nd_tensor *diagonal_of(const nd_tensor *x, int64_t offset, int axis1, int axis2) {
    int first = nd__shape_resolve_axis("diagonal", axis1, x->ndim);
    int second = first < 0 ? -1 : nd__shape_resolve_axis("diagonal", axis2, x->ndim);
    if (second < 0)
        return NULL;
    if (first == second) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "diagonal: axis %d is named twice", axis2);
        return NULL;
    }
    int order[ND_MAX_DIMS], at = 0;
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        if (i != first && i != second) {
            shape[at] = x->shape[i];
            order[at++] = i;
        }
    order[at] = first;
    order[at + 1] = second;
    int64_t m = x->shape[first], n = x->shape[second];
    // A diagonal outside of x is as empty as the next one outside.
    offset = offset > n ? n : offset < -m ? -m : offset;
    int64_t rows = offset < 0 ? m + offset : m, columns = offset > 0 ? n - offset : n;
    int64_t size = rows < columns ? rows : columns, start = offset < 0 ? -offset * n : offset;
    shape[at] = m * n;
    // Row by row one element further: in memory as one axis, every (n + 1)-th.
    nd_auto nd_tensor *turned = nd_permute(x, x->ndim, order);
    nd_auto nd_tensor *flat = nd_reshape(turned, at + 1, shape);
    if (size == 0)
        return nd_slice(flat, 0, 0, 1, at);
    return nd_slice(flat, start, start + (size - 1) * (n + 1) + 1, n + 1, at);
}

nd_tensor *nd_diagonal(const nd_tensor *x, int64_t offset, int axis1, int axis2) {
    ND__ERROR_NAMED("diagonal");
    if (nd__tensor_check_operand("diagonal", "x", x) != ND_OK)
        return NULL;
    return diagonal_of(x, offset, axis1, axis2);
}

nd_tensor *nd_trace(const nd_tensor *x, int64_t offset) {
    ND__ERROR_NAMED("trace");
    if (nd__tensor_check_operand("trace", "x", x) != ND_OK)
        return NULL;
    if (x->ndim < 2) {
        char text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "trace: x has shape %s and must be [..., m, n]",
                  nd__shape_text(text, x->ndim, x->shape));
        return NULL;
    }
    nd_auto nd_tensor *diagonal = diagonal_of(x, offset, -2, -1);
    return nd_sum(diagonal, 1, (const int[]){-1}, false);
}

nd_tensor *nd_diff(const nd_tensor *x, int64_t order, int axis) {
    ND__ERROR_NAMED("diff");
    if (nd__tensor_check_operand("diff", "x", x) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis("diff", axis, x->ndim);
    if (axis < 0)
        return NULL;
    if (order < 0 || x->dtype == ND_BOOL) {
        nd__error(order < 0 ? ND_ERROR_INVALID_ARGUMENT : ND_ERROR_DTYPE,
                  "diff: order %lld of %s; it must be at least 0, of numbers", (long long)order,
                  nd_dtype_get_name(x->dtype));
        return NULL;
    }
    nd_auto nd_tensor *result = nd_retain(x);
    for (; order > 0 && result && result->shape[axis] > 0; order--) {
        int64_t n = result->shape[axis];
        nd_auto nd_tensor *behind = nd_slice(result, 1, n, 1, axis);
        nd_auto nd_tensor *before = nd_slice(result, 0, n - 1, 1, axis);
        nd_tensor *next = nd_sub(behind, before);
        nd_release(result);
        result = next;
    }
    return nd__operands_own(nd_steal(&result), x);
}

// -------------------------------------------------------------------------------------------------

static nd_status check_inputs(const char *name, size_t count, const nd_tensor *const *inputs,
                              nd_tensor **ret_results) {
    if (count > 0 && (!inputs || !ret_results))
        return nd__error_null(name, inputs ? "ret_results" : "inputs");
    for (size_t i = 0; i < count; i++)
        if (nd__tensor_check_operand(name, "an input", inputs[i]) != ND_OK)
            return nd_error_get_status();
    return ND_OK;
}

nd_status nd_broadcast_arrays(size_t count, const nd_tensor *const *inputs,
                              nd_tensor **ret_results) {
    ND__ERROR_NAMED("broadcast_arrays");
    const char *name = "broadcast_arrays";
    nd_status status = check_inputs(name, count, inputs, ret_results);
    int64_t shape[2][ND_MAX_DIMS];
    int ndim = 0;
    for (size_t i = 0; i < count && status == ND_OK && ndim >= 0; i++)
        ndim = nd__shape_broadcast(name, ndim, shape[i & 1], inputs[i]->ndim, inputs[i]->shape,
                                   shape[~i & 1]);
    if (status != ND_OK || ndim < 0)
        return nd_error_get_status();
    nd_tensor **results = nd__several_begin(name, count);
    if (!results)
        return nd_error_get_status();
    for (size_t i = 0; i < count && status == ND_OK; i++)
        if (!(results[i] = nd_expand(inputs[i], ndim, shape[count & 1])))
            status = nd_error_get_status();
    return nd__several_end(results, count, status, ret_results);
}

nd_status nd_meshgrid(size_t count, const nd_tensor *const *inputs, nd_indexing indexing,
                      nd_tensor **ret_results) {
    ND__ERROR_NAMED("meshgrid");
    nd_status status = check_inputs("meshgrid", count, inputs, ret_results);
    if (status != ND_OK)
        return status;
    if (count > ND_MAX_DIMS || (indexing != ND_INDEXING_XY && indexing != ND_INDEXING_IJ))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "meshgrid: %zu inputs, of which %d are possible, and indexing %d", count,
                         ND_MAX_DIMS, (int)indexing);
    int64_t shape[ND_MAX_DIMS], ones[ND_MAX_DIMS];
    bool turned = indexing == ND_INDEXING_XY && count > 1;
    for (size_t i = 0; i < count; i++) {
        if (inputs[i]->ndim != 1)
            return nd__error(ND_ERROR_SHAPE, "meshgrid: input %zu has %d axes and must have one", i,
                             inputs[i]->ndim);
        shape[turned && i < 2 ? 1 - i : i] = inputs[i]->numel;
        ones[i] = 1;
    }
    nd_tensor **results = nd__several_begin("meshgrid", count);
    if (!results)
        return nd_error_get_status();
    for (size_t i = 0; i < count && status == ND_OK; i++) {
        size_t axis = turned && i < 2 ? 1 - i : i;
        ones[axis] = inputs[i]->numel;
        nd_auto nd_tensor *apart = nd_reshape(inputs[i], (int)count, ones);
        ones[axis] = 1;
        if (!(results[i] = nd_expand(apart, (int)count, shape)))
            status = nd_error_get_status();
    }
    return nd__several_end(results, count, status, ret_results);
}
