// Joining: concat, stack, and the inverse of slicing.
//
// Every input is copied straight to its place in the result, a new tensor or the caller's: all of
// them in one go where they are rows of elements behind each other.
#include "lib/tensor/join.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/create.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/node.h"
#include "lib/tensor/out.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"
#include <nd/out.h>

/// Checks that x can stand beside `first` along `axis`.
static nd_status check_part(const char *operation, const nd_tensor *first, const nd_tensor *x,
                            int axis) {
    char ftext[ND__SHAPE_TEXT], xtext[ND__SHAPE_TEXT];
    if (x->dtype != first->dtype)
        return nd__error(ND_ERROR_DTYPE, "%s: inputs of %s and %s", operation,
                         nd_dtype_get_name(first->dtype), nd_dtype_get_name(x->dtype));
    if (x->device.kind != first->device.kind || x->device.index != first->device.index)
        return nd__error(ND_ERROR_DEVICE, "%s: inputs on %s and %s", operation,
                         nd__registry_device_text(first->device),
                         nd__registry_device_text(x->device));
    bool fits = x->ndim == first->ndim;
    for (int i = 0; fits && i < x->ndim; i++)
        fits = i == axis || x->shape[i] == first->shape[i];
    if (!fits)
        return nd__error(ND_ERROR_SHAPE, "%s: shapes %s and %s do not join along axis %d",
                         operation, nd__shape_text(ftext, first->ndim, first->shape),
                         nd__shape_text(xtext, x->ndim, x->shape), axis);
    return ND_OK;
}

/// Results of shorter rows are written input by input.
#define ROW_BYTES 128

/// Whether x is `rows` rows of *ret_columns elements behind each other, and so is its part of `to`;
/// then *ret_x is x as such rows, with *ret_to_stride between those of `to`.
static bool is_rows(const nd_operand *to, const nd_tensor *x, int64_t rows, nd_operand *ret_x,
                    int64_t *ret_columns, int64_t *ret_to_stride) {
    nd_kernel_call call = {.op = ND_OP_clone, .noperands = 2, .ndim = x->ndim};
    for (int i = 0; i < x->ndim; i++)
        call.shape[i] = x->shape[i];
    call.operand[0] = *to;
    call.operand[1] = nd__shape_broadcast_operand(x, x->ndim, x->shape);
    nd__shape_collapse(&call);
    const int64_t columns = x->numel / rows;
    const bool single = columns == 1 && call.ndim == 1;
    if (call.ndim != (single ? 1 : 2) || call.shape[0] != rows ||
        (!single && (call.operand[0].strides[1] != 1 || call.operand[1].strides[1] != 1)))
        return false;
    *ret_x = call.operand[1];
    *ret_columns = columns;
    *ret_to_stride = call.operand[0].strides[0];
    return true;
}

/// Whether `call` is now what writes all inputs at once.
static bool fill_rows(nd_kernel_call *call, const nd_tensor *result, const nd_tensor *const *inputs,
                      size_t count, int axis) {
    int64_t rows = 1, stride = 0;
    for (int i = 0; i < axis; i++)
        rows *= result->shape[i];
    if (count >= ND_MAX_OPERANDS || rows < 2 || result->numel == 0 ||
        result->numel / rows * nd__dtype_bytes[result->dtype] < ROW_BYTES ||
        !nd__registry_backend(result->device.kind)->host_accessible)
        return false;
    // One part lies right behind the other only where the result's axis has no gaps.
    int64_t inner = 1;
    for (int i = axis + 1; i < result->ndim; i++)
        inner *= result->shape[i];
    if (result->shape[axis] > 1 && nd__tensor_strides(result)[axis] != inner)
        return false;
    *call = (nd_kernel_call){.op = ND_OP_concat, .noperands = 1, .ndim = 1, .shape = {rows}};
    nd_operand *out = &call->operand[0];
    *out = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    for (size_t k = 0; k < count; k++) {
        const int at = call->noperands;
        if (inputs[k]->numel == 0)
            continue;
        if (!is_rows(out, inputs[k], rows, &call->operand[at], &call->attrs.i[at - 1], &stride))
            return false;
        call->noperands++;
    }
    out->strides[0] = stride;
    return true;
}

/// Copies the inputs one behind the other into `result`.
static nd_status write_parts(const char *operation, nd_tensor *result,
                             const nd_tensor *const *inputs, size_t count, int axis) {
    nd_kernel_call call;
    if (fill_rows(&call, result, inputs, count, axis))
        return nd__launch(operation, result->device, &call);
    nd_operand destination = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    int64_t element = nd__dtype_bytes[result->dtype];
    char *at = result->data;
    for (size_t k = 0; k < count; k++) {
        destination.data = at;
        nd_status status = nd__copy_to_operand(operation, &destination, inputs[k]);
        if (status != ND_OK)
            return status;
        at += inputs[k]->shape[axis] * nd__tensor_strides(result)[axis] * element;
    }
    return ND_OK;
}

static nd_tensor *concat(nd_tensor *out, const char *operation, const nd_tensor *const *inputs,
                         size_t count, int axis) {
    const nd_tensor *first = inputs[0];
    int resolved = nd__shape_resolve_axis(operation, axis, first->ndim);
    if (resolved < 0)
        return NULL;
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < first->ndim; i++)
        shape[i] = i == resolved ? 0 : first->shape[i];
    for (size_t k = 0; k < count; k++) {
        if (check_part(operation, first, inputs[k], resolved) != ND_OK)
            return NULL;
        if (__builtin_add_overflow(shape[resolved], inputs[k]->shape[resolved], &shape[resolved])) {
            nd__error(ND_ERROR_SHAPE, "%s: the sizes along axis %d add up to too many elements",
                      operation, axis);
            return NULL;
        }
    }
    nd_tensor *result = nd__out_result(operation, out, ND__OUT_APART, inputs, count, first->device,
                                       first->dtype, first->ndim, shape);
    if (!result)
        return NULL;
    if (write_parts(operation, result, inputs, count, resolved) != ND_OK) {
        nd_object_release(result);
        return NULL;
    }
    nd_op_attrs attrs = {.i = {resolved}};
    return nd__record(ND_OP_concat, result, inputs, count, &attrs);
}

static nd_status check_inputs(const char *operation, const nd_tensor *const *inputs, size_t count) {
    if (!inputs)
        return nd__error_null(operation, "inputs");
    if (count == 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: there are no inputs", operation);
    for (size_t k = 0; k < count; k++) {
        nd_status status = nd__tensor_check_operand(operation, "an input", inputs[k]);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

static nd_tensor *concat_checked(nd_tensor *out, const nd_tensor *const *inputs, size_t count,
                                 int axis) {
    return check_inputs("concat", inputs, count) == ND_OK
               ? concat(out, "concat", inputs, count, axis)
               : NULL;
}

nd_tensor *nd_concat(size_t count, const nd_tensor *const *inputs, int axis) {
    return concat_checked(NULL, inputs, count, axis);
}

nd_status nd_concat_out(size_t count, const nd_tensor *const *inputs, int axis, nd_tensor *out) {
    return ND__OUT_FORM("concat", out, concat_checked(out, inputs, count, axis));
}

static nd_tensor *stack(nd_tensor *out, const nd_tensor *const *inputs, size_t count, int axis) {
    if (check_inputs("stack", inputs, count) != ND_OK)
        return NULL;
    int resolved = inputs[0]->ndim < ND_MAX_DIMS
                       ? nd__shape_resolve_axis("stack", axis, inputs[0]->ndim + 1)
                       : -1;
    if (resolved < 0) {
        if (inputs[0]->ndim == ND_MAX_DIMS)
            nd__error(ND_ERROR_SHAPE, "stack: inputs already have %d dimensions", ND_MAX_DIMS);
        return NULL;
    }
    // Sizes along the new axis would hide a difference in the old ones.
    for (size_t k = 1; k < count; k++)
        if (check_part("stack", inputs[0], inputs[k], -1) != ND_OK)
            return NULL;
    nd_tensor **parts = nd__pressure_alloc_zeroed(count * sizeof *parts);
    if (!parts) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "stack: no memory for %zu inputs", count);
        return NULL;
    }
    nd_tensor *result = NULL;
    size_t made = 0;
    while (made < count && (parts[made] = nd_unsqueeze(inputs[made], resolved)))
        made++;
    if (made == count)
        result = concat(out, "stack", (const nd_tensor *const *)parts, count, resolved);
    for (size_t k = 0; k < made; k++)
        nd_object_release(parts[k]);
    nd__alloc_free(parts);
    return result;
}

nd_tensor *nd_stack(size_t count, const nd_tensor *const *inputs, int axis) {
    return stack(NULL, inputs, count, axis);
}

nd_status nd_stack_out(size_t count, const nd_tensor *const *inputs, int axis, nd_tensor *out) {
    return ND__OUT_FORM("stack", out, stack(out, inputs, count, axis));
}

nd_tensor *nd__join_unslice(const nd_tensor *g, int ndim, const int64_t *shape, int axis,
                            int64_t start, int64_t step) {
    nd_tensor *result = nd__create_filled(
        "unslice", nd__tensor_result("unslice", &g, 1, g->device, g->dtype, ndim, shape),
        ND_NUMBER(0));
    if (!result)
        return NULL;
    int64_t count = g->shape[axis];
    nd_operand destination = nd__shape_broadcast_operand(result, ndim, shape);
    if (count > 0) {
        destination.data = (char *)result->data +
                           start * nd__tensor_strides(result)[axis] * nd__dtype_bytes[g->dtype];
        destination.strides[axis] *= count > 1 ? step : 1;
    }
    if (nd__copy_to_operand("unslice", &destination, g) != ND_OK) {
        nd_object_release(result);
        return NULL;
    }
    int64_t stop = count > 0 ? start + (count - 1) * step + (step > 0 ? 1 : -1) : start;
    nd_op_attrs attrs = {.i = {axis, start, stop, step}};
    return nd__record(ND_OP_unslice, result, &g, 1, &attrs);
}
