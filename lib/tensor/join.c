// Joining: concat, stack, and the inverse of slicing.
//
// Every input is copied straight to its place in the result, a new tensor or the caller's; several of
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

/// Checks that x can stand beside `first` along `axis`; along a new one (-1).
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
    if (!fits && axis < 0)
        return nd__error(ND_ERROR_SHAPE, "%s: shapes %s and %s are not one", operation,
                         nd__shape_text(ftext, first->ndim, first->shape),
                         nd__shape_text(xtext, x->ndim, x->shape));
    if (!fits)
        return nd__error(ND_ERROR_SHAPE, "%s: shapes %s and %s do not join along axis %d",
                         operation, nd__shape_text(ftext, first->ndim, first->shape),
                         nd__shape_text(xtext, x->ndim, x->shape), axis);
    return ND_OK;
}

/// Whether x is rows of elements that lie one behind the other, those of `axis` and of the axes behind
/// it; then *ret_stride is the distance of the rows, 0 where there is one.
static bool is_rows(const nd_tensor *x, int axis, int64_t *ret_stride) {
    const int64_t *strides = nd__tensor_strides(x);
    int64_t next = 1;
    for (int i = x->ndim - 1; i >= axis; i--) {
        if (x->shape[i] != 1 && strides[i] != next)
            return false;
        next *= x->shape[i];
    }
    bool several = false;
    *ret_stride = 0;
    for (int i = axis - 1; i >= 0; i--) {
        if (x->shape[i] == 1)
            continue;
        if (several && strides[i] != next)
            return false;
        *ret_stride = several ? *ret_stride : strides[i];
        next = strides[i] * x->shape[i];
        several = true;
    }
    return true;
}

/// How many of the inputs, from the first on, `call` now writes at once; 0: the first is written alone.
static size_t fill_rows(nd_kernel_call *call, const nd_tensor *const *inputs, size_t count,
                        int axis) {
    size_t taken = 0;
    call->noperands = 1;
    for (; taken < count; taken++) {
        const nd_tensor *x = inputs[taken];
        if (x->numel == 0)
            continue;
        const int at = call->noperands;
        if (at == ND_MAX_OPERANDS || !is_rows(x, axis, &call->operand[at].strides[0]))
            break;
        call->operand[at].data = x->data;
        call->operand[at].dtype = x->dtype;
        call->attrs.i[at - 1] = x->numel / call->shape[0];
        call->noperands++;
    }
    return call->noperands > 2 ? taken : 0;
}

/// Copies the inputs one behind the other into `result`: as many in one call as it takes, where they and
/// the result are rows.
static nd_status write_parts(const char *operation, nd_tensor *result,
                             const nd_tensor *const *inputs, size_t count, int axis) {
    if (result->numel == 0)
        return ND_OK;
    nd_operand destination = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    const int64_t step = nd__tensor_strides(result)[axis] * nd__dtype_bytes[result->dtype];
    nd_kernel_call call;
    call.op = ND_OP_concat;
    call.ndim = 1;
    call.shape[0] = 1;
    for (int i = 0; i < axis; i++)
        call.shape[0] *= result->shape[i];
    call.operand[0].dtype = result->dtype;
    const bool in_rows = is_rows(result, axis, &call.operand[0].strides[0]);
    for (size_t k = 0; k < count;) {
        size_t taken = in_rows ? fill_rows(&call, inputs + k, count - k, axis) : 0;
        call.operand[0].data = destination.data;
        nd_status status = taken > 0 ? nd__launch(operation, result->device, &call)
                                     : nd__copy_to_operand(operation, &destination, inputs[k]);
        if (status != ND_OK)
            return status;
        const size_t end = k + (taken > 0 ? taken : 1);
        for (; k < end; k++)
            destination.data = (char *)destination.data + inputs[k]->shape[axis] * step;
        while (k < count && inputs[k]->numel == 0)
            k++;
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
    ND__ERROR_NAMED("stack");
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
