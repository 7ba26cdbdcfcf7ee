// The negative log likelihood of classes, in one kernel; as a composition of recorded operations where
// the weights want a gradient, or there is nothing to add up.
#include "lib/ops/nll_loss.h"
#include "lib/base/error.h"
#include "lib/ops/autocast.h"
#include "lib/ops/index.h"
#include "lib/ops/operands.h"
#include "lib/ops/precision.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/neural.h>

static nd_status check_weight(const nd_tensor *x, const nd_tensor *weight) {
    nd_dtype dtype;
    nd_status status =
        weight ? nd__operands_check_pair("nll_loss", "x", x, "weight", weight) : ND_OK;
    return weight && status == ND_OK ? nd__precision_check("nll_loss", "weight", weight, &dtype)
                                     : status;
}

static nd_status check_nll(const nd_tensor *x, const nd_tensor *targets, const nd_tensor *weight,
                           nd_reduction reduction, nd_dtype *ret_dtype) {
    if (reduction != ND_REDUCTION_MEAN && reduction != ND_REDUCTION_SUM &&
        reduction != ND_REDUCTION_NONE)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "nll_loss: there is no reduction %d",
                         (int)reduction);
    nd_status status =
        nd__operands_check_pair("nll_loss", "log_probabilities", x, "targets", targets);
    if (status == ND_OK)
        status = nd__precision_check("nll_loss", "log_probabilities", x, ret_dtype);
    if (status == ND_OK)
        status = check_weight(x, weight);
    if (status != ND_OK)
        return status;
    if (!nd__dtype_is_integer(targets->dtype))
        return nd__error(ND_ERROR_DTYPE, "nll_loss: targets are %s and must be integers",
                         nd_dtype_get_name(targets->dtype));
    int axis = x->ndim > 1 ? 1 : 0;
    bool fits = x->ndim > 0 && targets->ndim == x->ndim - 1;
    for (int i = 0; fits && i < targets->ndim; i++)
        fits = targets->shape[i] == x->shape[i < axis ? i : i + 1];
    char x_text[ND__SHAPE_TEXT], other_text[ND__SHAPE_TEXT];
    if (!fits)
        return nd__error(ND_ERROR_SHAPE,
                         "nll_loss: log_probabilities have shape %s and targets %s; they must be "
                         "[n, classes, ...] and [n, ...]",
                         nd__shape_text(x_text, x->ndim, x->shape),
                         nd__shape_text(other_text, targets->ndim, targets->shape));
    if (weight && (weight->ndim != 1 || weight->shape[0] != x->shape[axis]))
        return nd__error(ND_ERROR_SHAPE, "nll_loss: weight has shape %s and must have [%lld]",
                         nd__shape_text(other_text, weight->ndim, weight->shape),
                         (long long)x->shape[axis]);
    return ND_OK;
}

nd_tensor *nd__nll_loss_classes(const nd_tensor *targets, int64_t ignored) {
    nd_auto nd_tensor *classes = nd_cast(targets, ND_I64);
    if (targets->dtype != ND_U64 || !classes)
        return nd_steal(&classes);
    const int64_t refused = ignored == INT64_MIN ? INT64_MAX : INT64_MIN;
    nd_auto nd_tensor *most =
        nd__operands_number_like("nll_loss", targets, ND_U64, ND_NUMBER(INT64_MAX));
    nd_auto nd_tensor *number =
        nd__operands_number_like("nll_loss", targets, ND_I64, ND_NUMBER(refused));
    nd_auto nd_tensor *is_more = nd_greater(targets, most);
    return nd_where(is_more, number, classes);
}

/// Says that a target is no class.
static void refuse_targets(const nd_tensor *x) {
    const int64_t classes = x->shape[x->ndim > 1 ? 1 : 0];
    if (classes == 0)
        nd__error(ND_ERROR_INVALID_ARGUMENT, "nll_loss: there are targets and no classes");
    else
        nd__error(ND_ERROR_INVALID_ARGUMENT, "nll_loss: a target is outside 0 ... %lld",
                  (long long)classes - 1);
}

/// The index, with another number where the mask holds.
static nd_tensor *replaced(const nd_tensor *index, const nd_tensor *mask, int64_t to) {
    if (!index || !mask)
        return NULL;
    nd_auto nd_tensor *number = nd__operands_number_like("nll_loss", index, ND_I64, ND_NUMBER(to));
    return nd_where(mask, number, index);
}

/// What each target counts: the weight of its class, and 0 where it is ignored. `classes` are the
/// targets with one that exists in place of those.
static nd_tensor *target_weights(const nd_tensor *weight, const nd_tensor *classes,
                                 const nd_tensor *ignored, nd_dtype dtype) {
    nd_auto nd_tensor *counted = nd_logical_not(ignored);
    nd_auto nd_tensor *factors = counted ? nd_cast(counted, dtype) : NULL;
    if (!weight || !factors)
        return nd_steal(&factors);
    nd_auto nd_tensor *wide = nd_cast(weight, dtype);
    nd_auto nd_tensor *taken = nd_take(wide, classes, 0);
    return nd_mul(taken, factors);
}

/// The loss where weights want a gradient, each number by itself.
static nd_tensor *composed(const nd_tensor *wide, const nd_tensor *index, const nd_tensor *weight,
                           int64_t ignored, nd_reduction reduction) {
    int axis = wide->ndim > 1 ? 1 : 0;
    nd_dtype dtype = wide->dtype;
    nd_auto nd_tensor *out =
        nd__operands_number_like("nll_loss", index, ND_I64, ND_NUMBER(ignored));
    nd_auto nd_tensor *zero = nd__operands_number_like("nll_loss", index, ND_I64, ND_NUMBER(0));
    nd_auto nd_tensor *mask = nd_equal(index, out);
    // A class is no index that may count from the end: what is negative becomes one too large.
    nd_auto nd_tensor *negative = nd_less(index, zero);
    nd_auto nd_tensor *refused = replaced(index, negative, wide->shape[axis]);
    nd_auto nd_tensor *classes = replaced(refused, mask, 0);
    nd_auto nd_tensor *places = nd_unsqueeze(classes, axis);
    if (!places)
        return NULL;
    nd_auto nd_tensor *picked = nd_gather(wide, places, axis);
    if (!picked && nd_error_get_status() == ND_ERROR_INVALID_ARGUMENT)
        refuse_targets(wide);
    nd_auto nd_tensor *flat = nd_squeeze(picked, axis);
    nd_auto nd_tensor *factors = target_weights(weight, classes, mask, dtype);
    // What is ignored counts nothing, even where it is infinite.
    nd_auto nd_tensor *none =
        flat ? nd__operands_number_like("nll_loss", flat, dtype, ND_NUMBER(0)) : NULL;
    nd_auto nd_tensor *seen = nd_where(mask, none, flat);
    nd_auto nd_tensor *product = nd_mul(seen, factors);
    nd_auto nd_tensor *elements = nd_neg(product);
    if (reduction == ND_REDUCTION_NONE)
        return nd_steal(&elements);
    nd_auto nd_tensor *sum = nd_sum(elements, 0, NULL, false);
    if (reduction == ND_REDUCTION_SUM)
        return nd_steal(&sum);
    nd_auto nd_tensor *total = nd_sum(factors, 0, NULL, false);
    return nd_div(sum, total);
}

// -------------------------------------------------------------------------------------------------
// in one kernel

/// x as [n, classes, places].
static nd_op_attrs attrs_of(const nd_tensor *x, int64_t ignored, nd_reduction reduction) {
    int axis = x->ndim > 1 ? 1 : 0;
    int64_t samples = axis == 1 ? x->shape[0] : 1, places = 1;
    for (int i = 2; i < x->ndim; i++)
        places *= x->shape[i];
    nd_nll_result result = reduction == ND_REDUCTION_MEAN  ? ND_NLL_MEAN
                           : reduction == ND_REDUCTION_SUM ? ND_NLL_SUM
                                                           : ND_NLL_EACH;
    return (nd_op_attrs){.i = {samples, x->shape[axis], places, ignored, (int64_t)result}};
}

static nd_operand dense_operand(const nd_tensor *x, nd_dtype dtype) {
    return (nd_operand){.data = x ? x->data : NULL, .dtype = dtype};
}

static void fill_call(nd_kernel_call *call, nd_op op, const nd_tensor *result,
                      const nd_tensor *from, const nd_tensor *targets, const nd_tensor *weight,
                      const nd_op_attrs *attrs) {
    call->op = op;
    call->noperands = 4;
    call->ndim = 0;
    call->operand[0] = dense_operand(result, result->dtype);
    call->operand[1] = dense_operand(from, result->dtype);
    call->operand[2] = dense_operand(targets, ND_I64);
    call->operand[3] = dense_operand(weight, result->dtype);
    call->attrs = *attrs;
}

/// wide, index and weight have elements, and weight, or NULL, wants no gradient.
static nd_tensor *in_one(const nd_tensor *wide, const nd_tensor *index, const nd_tensor *weight,
                         int64_t ignored, nd_reduction reduction) {
    nd_auto nd_tensor *dense = nd_contiguous(wide);
    nd_auto nd_tensor *classes = nd_contiguous(index);
    nd_auto nd_tensor *factors =
        weight ? nd__operands_dense("nll_loss", weight, wide->dtype) : NULL;
    if (!dense || !classes || (weight && !factors))
        return NULL;
    const nd_tensor *inputs[] = {dense, classes, factors};
    bool each = reduction == ND_REDUCTION_NONE;
    nd_auto nd_tensor *result = nd__tensor_result("nll_loss", inputs, 3, wide->device, wide->dtype,
                                                  each ? index->ndim : 0, index->shape);
    if (!result)
        return NULL;
    nd_op_attrs attrs = attrs_of(wide, ignored, reduction);
    attrs.i[5] = factors ? 1 : 0;
    nd_kernel_call call;
    fill_call(&call, ND_OP_nll_loss, result, dense, classes, factors, &attrs);
    nd_status status = nd__launch("nll_loss", wide->device, &call);
    if (status == ND_ERROR_INVALID_ARGUMENT)
        refuse_targets(wide);
    return status == ND_OK ? nd__record(ND_OP_nll_loss, nd_steal(&result), inputs, 3, &attrs)
                           : NULL;
}

nd_tensor *nd__nll_loss_grad(const nd_tensor *grad, const nd_tensor *targets,
                             const nd_tensor *weight, const nd_op_attrs *attrs, int ndim,
                             const int64_t *shape) {
    nd_auto nd_tensor *dense = nd_contiguous(grad);
    const nd_tensor *operands[] = {grad, targets, weight};
    nd_auto nd_tensor *result =
        dense ? nd__tensor_result("nll_loss", operands, 3, grad->device, grad->dtype, ndim, shape)
              : NULL;
    if (!result)
        return NULL;
    nd_kernel_call call;
    fill_call(&call, ND_OP_nll_loss_grad, result, dense, targets, weight, attrs);
    return nd__launch("nll_loss", grad->device, &call) == ND_OK ? nd_steal(&result) : NULL;
}

// -------------------------------------------------------------------------------------------------

/// Behind a refusal of targets: which it was, where there is one that the host can read.
static void say_which_target(const nd_tensor *x, const nd_tensor *targets, int64_t ignored) {
    const int64_t classes = x->shape[x->ndim > 1 ? 1 : 0];
    nd_stray stray;
    if (nd_error_get_status() == ND_ERROR_INVALID_ARGUMENT && classes > 0 &&
        nd__index_find_outside(targets, 0, classes - 1, &ignored, &stray))
        nd__error(ND_ERROR_INVALID_ARGUMENT, "nll_loss: a target is outside 0 ... %lld: %s",
                  (long long)classes - 1, stray.text);
}

nd_tensor *nd_nll_loss(const nd_tensor *log_probabilities, const nd_tensor *targets,
                       const nd_tensor *weight, int64_t ignored, nd_reduction reduction) {
    const nd_tensor *x = log_probabilities;
    nd_dtype dtype;
    if (check_nll(x, targets, weight, reduction, &dtype) != ND_OK)
        return NULL;
    nd_auto nd_tensor *wide = nd__operands_as_dtype(x, dtype);
    nd_auto nd_tensor *index = nd__nll_loss_classes(targets, ignored);
    if (!wide || !index)
        return NULL;
    bool learned = weight && nd__record_wants_history(&weight, 1);
    nd_auto nd_tensor *loss = learned || x->numel == 0
                                  ? composed(wide, index, weight, ignored, reduction)
                                  : in_one(wide, index, weight, ignored, reduction);
    if (!loss)
        say_which_target(x, targets, ignored);
    return loss ? nd__operands_as_dtype(loss, nd__autocast_result(x->dtype)) : NULL;
}
