// softmax, log_softmax, softmax with a mask, and the losses.
#include "lib/ops/neural.h"
#include "lib/base/error.h"
#include "lib/ops/autocast.h"
#include "lib/ops/index.h"
#include "lib/ops/operands.h"
#include "lib/ops/pair_loss.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/out.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/out.h>

static nd_tensor *softmax(nd_tensor *to, nd_op op, const nd_tensor *x, int axis) {
    const char *name = nd__node_op_name(op);
    nd_dtype dtype;
    if (nd__tensor_check_operand(name, "x", x) != ND_OK ||
        nd__operands_apply_rule(name, ND__FLOAT, x, NULL, &dtype) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis(name, axis, x->ndim);
    if (axis < 0)
        return NULL;
    nd_auto nd_tensor *cast = nd__operands_as_dtype(x, dtype);
    if (!cast)
        return NULL;
    const nd_tensor *input = cast;
    nd_tensor *result =
        nd__out_result(name, to, ND__OUT_APART, &input, 1, x->device, dtype, x->ndim, x->shape);
    nd_op_attrs attrs = {.i = {axis}};
    if (!result || result->numel == 0)
        return nd__record(op, result, &input, 1, &attrs);
    nd_operand out = nd__shape_broadcast_operand(result, x->ndim, x->shape);
    nd_kernel_call call;
    nd__operands_call_along_axis(&call, op, &out, cast, axis);
    return nd__operands_run(name, result, &call, &input, 1, &attrs);
}

nd_tensor *nd_softmax(const nd_tensor *x, int axis) {
    ND__AUTOCAST(raise, x, NULL, NULL, nd_softmax(x0, axis))
    return softmax(NULL, ND_OP_softmax, x, axis);
}

nd_status nd_softmax_out(const nd_tensor *x, int axis, nd_tensor *out) {
    return ND__OUT_FORM("softmax", out, softmax(out, ND_OP_softmax, x, axis));
}

nd_tensor *nd_log_softmax(const nd_tensor *x, int axis) {
    ND__AUTOCAST(raise, x, NULL, NULL, nd_log_softmax(x0, axis))
    return softmax(NULL, ND_OP_log_softmax, x, axis);
}

nd_status nd_log_softmax_out(const nd_tensor *x, int axis, nd_tensor *out) {
    return ND__OUT_FORM("log_softmax", out, softmax(out, ND_OP_log_softmax, x, axis));
}

/// The mask as it broadcasts to x's shape.
static nd_status check_mask(const nd_tensor *x, const nd_tensor *mask) {
    const char *name = "masked_softmax";
    nd_status status = nd__operands_check_pair(name, "x", x, "mask", mask);
    if (status != ND_OK)
        return status;
    if (mask->dtype != ND_BOOL)
        return nd__error(ND_ERROR_DTYPE, "%s: the mask is %s and must be bool", name,
                         nd_dtype_get_name(mask->dtype));
    bool fits = mask->ndim <= x->ndim;
    for (int i = 0; i < mask->ndim && fits; i++) {
        int64_t size = mask->shape[mask->ndim - 1 - i];
        fits = size == 1 || size == x->shape[x->ndim - 1 - i];
    }
    if (fits)
        return ND_OK;
    char x_text[ND__SHAPE_TEXT], mask_text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE, "%s: a mask of shape %s does not broadcast to x's %s", name,
                     nd__shape_text(mask_text, mask->ndim, mask->shape),
                     nd__shape_text(x_text, x->ndim, x->shape));
}

static nd_tensor *masked_softmax(nd_tensor *to, const nd_tensor *x, const nd_tensor *mask,
                                 int axis) {
    const char *name = "masked_softmax";
    nd_dtype dtype;
    if (check_mask(x, mask) != ND_OK ||
        nd__operands_apply_rule(name, ND__FLOAT, x, NULL, &dtype) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis(name, axis, x->ndim);
    if (axis < 0)
        return NULL;
    nd_auto nd_tensor *cast = nd__operands_as_dtype(x, dtype);
    if (!cast)
        return NULL;
    const nd_tensor *inputs[] = {cast, mask};
    nd_tensor *result =
        nd__out_result(name, to, ND__OUT_APART, inputs, 2, x->device, dtype, x->ndim, x->shape);
    nd_op_attrs attrs = {.i = {axis}};
    if (!result || result->numel == 0)
        return nd__record(ND_OP_masked_softmax, result, inputs, 2, &attrs);
    nd_kernel_call call;
    call.operand[0] = nd__shape_broadcast_operand(result, x->ndim, x->shape);
    call.operand[1] = nd__shape_broadcast_operand(cast, x->ndim, x->shape);
    call.operand[2] = nd__shape_broadcast_operand(mask, x->ndim, x->shape);
    nd__operands_axis_last(&call, ND_OP_masked_softmax, 3, cast, axis);
    return nd__operands_run(name, result, &call, inputs, 2, &attrs);
}

nd_tensor *nd_masked_softmax(const nd_tensor *x, const nd_tensor *mask, int axis) {
    ND__AUTOCAST(raise, x, NULL, NULL, nd_masked_softmax(x0, mask, axis))
    return masked_softmax(NULL, x, mask, axis);
}

nd_status nd_masked_softmax_out(const nd_tensor *x, const nd_tensor *mask, int axis,
                                nd_tensor *out) {
    return ND__OUT_FORM("masked_softmax", out, masked_softmax(out, x, mask, axis));
}

nd_status nd__neural_softmax_grad(const nd_tensor *grad, const nd_tensor *result, int axis,
                                  nd_tensor **ret_grad) {
    if (grad->dtype != result->dtype || result->numel == 0)
        return ND_ERROR_UNSUPPORTED;
    const nd_tensor *inputs[] = {grad, result};
    nd_auto nd_tensor *made = nd__tensor_result("softmax", inputs, 2, result->device, result->dtype,
                                                result->ndim, result->shape);
    if (!made)
        return nd_error_get_status();
    nd_kernel_call call;
    call.operand[0] = nd__shape_broadcast_operand(made, result->ndim, result->shape);
    call.operand[1] = nd__shape_broadcast_operand(grad, result->ndim, result->shape);
    call.operand[2] = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    nd__operands_axis_last(&call, ND_OP_softmax_grad, 3, result, axis);
    nd_status status = nd__launch_where_supported("softmax", result->device, &call);
    if (status == ND_OK)
        *ret_grad = nd_steal(&made);
    return status;
}

static nd_status check_cross_entropy(const nd_tensor *logits, const nd_tensor *targets) {
    nd_status status =
        nd__operands_check_pair("cross_entropy", "logits", logits, "targets", targets);
    if (status != ND_OK)
        return status;
    if (!nd__dtype_is_float(logits->dtype) || !nd__dtype_is_integer(targets->dtype))
        return nd__error(ND_ERROR_DTYPE,
                         "cross_entropy: logits are %s and must be floats, targets are %s and must "
                         "be integers",
                         nd_dtype_get_name(logits->dtype), nd_dtype_get_name(targets->dtype));
    if (logits->ndim != 2 || targets->ndim != 1 || logits->shape[0] != targets->shape[0]) {
        char logits_text[ND__SHAPE_TEXT], targets_text[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_SHAPE,
                         "cross_entropy: logits have shape %s and targets %s; they must be "
                         "[n, classes] and [n]",
                         nd__shape_text(logits_text, logits->ndim, logits->shape),
                         nd__shape_text(targets_text, targets->ndim, targets->shape));
    }
    if (logits->shape[1] == 0) {
        char text[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_SHAPE, "cross_entropy: logits of shape %s have no classes",
                         nd__shape_text(text, 2, logits->shape));
    }
    return ND_OK;
}

/// f32 of logits of 16 bits, where the device has a kernel for these; else ND_ERROR_UNSUPPORTED without
/// an error.
static nd_status mean_cross_entropy(const nd_tensor *logits, const nd_tensor *targets,
                                    nd_tensor **ret_loss) {
    nd_dtype wide = nd__dtype_is_half(logits->dtype) ? ND_F32 : logits->dtype;
    // The gradient rule reads the targets again, so their dense i64 form is what is recorded.
    nd_auto nd_tensor *dense = nd__operands_dense("cross_entropy", logits, logits->dtype);
    nd_auto nd_tensor *classes =
        dense ? nd__operands_dense("cross_entropy", targets, ND_I64) : NULL;
    if (!classes)
        return nd_error_get_status();
    const nd_tensor *inputs[] = {logits, classes};
    nd_auto nd_tensor *result =
        nd__tensor_result("cross_entropy", inputs, 2, logits->device, wide, 0, NULL);
    if (!result)
        return nd_error_get_status();
    nd_kernel_call call;
    call.op = ND_OP_cross_entropy;
    call.noperands = 3;
    call.ndim = 0;
    call.operand[0] = nd__shape_broadcast_operand(result, 0, NULL);
    call.operand[1] = nd__shape_broadcast_operand(dense, 2, dense->shape);
    call.operand[2] = nd__shape_broadcast_operand(classes, 1, classes->shape);
    call.attrs.i[0] = logits->shape[0];
    call.attrs.i[1] = logits->shape[1];
    nd_status status = wide == logits->dtype
                           ? nd__launch("cross_entropy", logits->device, &call)
                           : nd__launch_where_supported("cross_entropy", logits->device, &call);
    if (status == ND_ERROR_INVALID_ARGUMENT)
        nd__index_refuse("cross_entropy", "a target", classes, 0, logits->shape[1] - 1);
    if (status != ND_OK)
        return status;
    *ret_loss = nd__record(ND_OP_cross_entropy, nd_steal(&result), inputs, 2, NULL);
    return *ret_loss ? ND_OK : nd_error_get_status();
}

nd_status nd__neural_cross_entropy_grad(const nd_tensor *grad, const nd_tensor *logits,
                                        const nd_tensor *targets, nd_tensor **ret_grad) {
    if (!nd__launch_fuses(logits->device))
        return ND_ERROR_UNSUPPORTED;
    nd_auto nd_tensor *dense = nd_contiguous(logits);
    const nd_tensor *operands[] = {grad, dense, targets};
    nd_auto nd_tensor *result = dense
                                    ? nd__tensor_result("cross_entropy", operands, 3, dense->device,
                                                        dense->dtype, 2, dense->shape)
                                    : NULL;
    if (!result)
        return nd_error_get_status();
    nd_kernel_call call = {.op = ND_OP_cross_entropy_grad, .noperands = 4};
    for (int i = 1; i < 4; i++)
        call.operand[i] =
            (nd_operand){.data = operands[i - 1]->data, .dtype = operands[i - 1]->dtype};
    call.operand[0] = (nd_operand){.data = result->data, .dtype = result->dtype};
    call.attrs.i[0] = dense->shape[0];
    call.attrs.i[1] = dense->shape[1];
    nd_status status = nd__launch_where_supported("cross_entropy", dense->device, &call);
    if (status == ND_OK)
        *ret_grad = nd_steal(&result);
    return status;
}

nd_tensor *nd_cross_entropy(const nd_tensor *logits, const nd_tensor *targets) {
    ND__AUTOCAST(raise, logits, NULL, NULL, nd_cross_entropy(x0, targets))
    if (check_cross_entropy(logits, targets) != ND_OK)
        return NULL;
    ND__ERROR_NAMED("cross_entropy");
    if (logits->shape[0] == 0)
        return nd_mean(logits, 0, NULL, false); // NaN, and its gradient has no elements either
    nd_auto nd_tensor *loss = NULL;
    bool half = nd__dtype_is_half(logits->dtype);
    nd_status status = ND_ERROR_UNSUPPORTED;
    if (!half || nd__launch_fuses(logits->device))
        status = mean_cross_entropy(logits, targets, &loss);
    if (half && status == ND_ERROR_UNSUPPORTED) {
        nd_auto nd_tensor *wide = nd_cast(logits, ND_F32);
        status = wide ? mean_cross_entropy(wide, targets, &loss) : nd_error_get_status();
    }
    return status == ND_OK ? nd__operands_as_dtype(loss, logits->dtype) : NULL;
}

nd_tensor *nd_mse_loss(const nd_tensor *a, const nd_tensor *b) {
    ND__AUTOCAST(raise, a, b, NULL, nd_mse_loss(x0, x1))
    if (nd__operands_check_pair("mse_loss", "a", a, "b", b) != ND_OK)
        return NULL;
    if (nd__pair_loss_fits(a, b))
        return nd__pair_loss("mse_loss", ND_PAIR_LOSS_mse, a, b, 0.0, 1.0 / (double)a->numel, true);
    ND__ERROR_NAMED("mse_loss");
    nd_auto nd_tensor *difference = nd_sub(a, b);
    nd_auto nd_tensor *square = difference ? nd_square(difference) : NULL;
    return square ? nd_mean(square, 0, NULL, false) : NULL;
}
