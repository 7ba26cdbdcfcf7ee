#include "lib/ops/resample.h"

#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/ops/window.h"
#include "lib/tensor/create.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"

/// Mode WINDOWS, of all axes in one piece. ND_ERROR_UNSUPPORTED without an error where x's device
/// has nothing for it.
static nd_status windows_at_once(const char *name, nd_op op, const nd_tensor *x,
                                 const int64_t *shape, const nd_op_attrs *attrs,
                                 nd_tensor **ret_result) {
    if (!nd__launch_fuses(x->device) || x->numel == 0)
        return ND_ERROR_UNSUPPORTED;
    nd_auto nd_tensor *dense = nd__operands_dense(name, x, x->dtype);
    nd_auto nd_tensor *result =
        dense ? nd__tensor_result(name, &x, 1, x->device, x->dtype, x->ndim, shape) : NULL;
    if (!result)
        return nd_error_get_status();
    if (result->numel == 0)
        return ND_ERROR_UNSUPPORTED;
    const bool is_adjoint = op == ND_OP_resample_adjoint;
    nd_kernel_call call = {.op = op, .noperands = 2, .attrs = *attrs};
    call.shape[0] = x->shape[0];
    call.shape[1] = x->shape[1];
    nd__window_align(x->ndim - 2, (is_adjoint ? shape : x->shape) + 2, 1, call.shape + 2);
    nd__window_align(x->ndim - 2, (is_adjoint ? x->shape : shape) + 2, 1, call.shape + 5);
    call.operand[0] = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    call.operand[1] = nd__shape_broadcast_operand(dense, dense->ndim, dense->shape);
    nd_status status = nd__launch_where_supported(name, x->device, &call);
    if (status == ND_OK)
        *ret_result = nd__record(op, nd_steal(&result), &x, 1, attrs);
    return status;
}

/// The same, axis after axis.
static nd_tensor *windows_by_axes(const char *name, nd_op op, const nd_tensor *x,
                                  const int64_t *shape, const nd_op_attrs *attrs) {
    nd_tensor *y = nd_retain(x);
    for (int axis = 2; axis < x->ndim && y; axis++) {
        const int64_t *numbers = attrs->i + 1 + axis - 2 + ND_WINDOW_AXES - (x->ndim - 2);
        int64_t outer = 1, inner = 1, next_shape[ND_MAX_DIMS];
        for (int i = 0; i < x->ndim; i++) {
            next_shape[i] = i == axis ? shape[i] : y->shape[i];
            outer *= i < axis ? y->shape[i] : 1;
            inner *= i > axis ? y->shape[i] : 1;
        }
        const int64_t from = y->shape[axis], to = shape[axis];
        const bool is_adjoint = op == ND_OP_resample_adjoint;
        const nd_op_attrs of_axis = {.i = {ND__RESAMPLE_WINDOW, outer, is_adjoint ? to : from,
                                           is_adjoint ? from : to, inner, numbers[0], numbers[3],
                                           numbers[6], attrs->i[10]}};
        nd_tensor *next = nd__resample_apply(name, op, y, next_shape, &of_axis);
        nd_release(y);
        y = next;
    }
    return y;
}

nd_tensor *nd__resample_apply(const char *name, nd_op op, const nd_tensor *x, const int64_t *shape,
                              const nd_op_attrs *attrs) {
    nd_status status = nd__tensor_check_operand(name, "x", x);
    if (status == ND_OK && attrs->i[0] == ND__RESAMPLE_WINDOWS) {
        nd_tensor *at_once = NULL;
        status = windows_at_once(name, op, x, shape, attrs, &at_once);
        return status == ND_ERROR_UNSUPPORTED ? windows_by_axes(name, op, x, shape, attrs)
                                              : at_once;
    }
    nd_auto nd_tensor *dense = status == ND_OK ? nd__operands_dense(name, x, x->dtype) : NULL;
    nd_tensor *result =
        dense ? nd__tensor_result(name, &x, 1, x->device, x->dtype, x->ndim, shape) : NULL;
    if (!result || result->numel == 0)
        return nd__record(op, result, &x, result ? 1 : 0, attrs);
    nd_kernel_call call;
    call.op = op;
    call.noperands = 2;
    call.ndim = 0;
    call.operand[0] = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    call.operand[1] = nd__shape_broadcast_operand(dense, dense->ndim, dense->shape);
    call.attrs = *attrs;
    return nd__operands_run(name, result, &call, &x, 1, attrs);
}

nd_tensor *nd__resample_along(const char *name, const nd_tensor *x, int axis,
                              const nd__resample_axis *how) {
    int64_t outer = 1, inner = 1, shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        shape[i] = i == axis ? how->out : x->shape[i];
        outer *= i < axis ? x->shape[i] : 1;
        inner *= i > axis ? x->shape[i] : 1;
    }
    const nd_op_attrs attrs = {.f = {how->step},
                               .i = {how->mode, outer, x->shape[axis], how->out, inner, how->kernel,
                                     how->stride, how->padding, how->flags}};
    return nd__resample_apply(name, ND_OP_resample, x, shape, &attrs);
}
