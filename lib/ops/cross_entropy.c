// Cross entropy with options, made of log_softmax and nll_loss: computed in f64 for f64 and in f32
// for everything else. (The plain mean over classes is one kernel: neural.c.)
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/autocast.h"
#include "lib/ops/index.h"
#include "lib/ops/nll_loss.h"
#include "lib/ops/operands.h"
#include "lib/ops/precision.h"
#include <nd/neural.h>

static const char name[] = "cross_entropy_with";

static nd_status check(const nd_tensor *logits, const nd_tensor *targets,
                       const nd_cross_entropy_options *options, nd_cross_entropy_options *ret_read,
                       nd_dtype *ret_dtype) {
    nd_cross_entropy_options read = ND_CROSS_ENTROPY_OPTIONS_INIT;
    nd_status status = nd__versioned_read(name, "ND_CROSS_ENTROPY_OPTIONS_INIT", options, &read,
                                          sizeof(nd_cross_entropy_options));
    if (status == ND_OK)
        status = nd__operands_check_pair(name, "logits", logits, "targets", targets);
    if (status == ND_OK)
        status = nd__precision_check(name, "logits", logits, ret_dtype);
    if (status == ND_OK && !nd__dtype_is_integer(targets->dtype))
        status = nd__error(ND_ERROR_DTYPE, "%s: targets are %s and must be integers", name,
                           nd_dtype_get_name(targets->dtype));
    if (status == ND_OK && logits->ndim == 0)
        status = nd__error(ND_ERROR_SHAPE, "%s: logits have no dimensions", name);
    if (status == ND_OK && !(read.label_smoothing >= 0.0 && read.label_smoothing <= 1.0))
        status = nd__error(ND_ERROR_INVALID_ARGUMENT,
                           "%s: label_smoothing is %g and must be from 0 to 1", name,
                           read.label_smoothing);
    *ret_read = read;
    return status;
}

/// -sum of weight log_probabilities over the classes, 0 where a target is ignored: what a label
/// spread over all classes costs.
static nd_tensor *spread_losses(const nd_tensor *log_probabilities, const nd_tensor *targets,
                                const nd_tensor *weight, int64_t ignored, int axis) {
    nd_auto nd_tensor *weighted = nd_retain(log_probabilities);
    if (weight) {
        int64_t shape[ND_MAX_DIMS];
        for (int i = 0; i < weighted->ndim; i++)
            shape[i] = i == axis ? weight->shape[0] : 1;
        nd_auto nd_tensor *aligned = nd_reshape(weight, weighted->ndim, shape);
        nd_tensor *product = nd_mul(log_probabilities, aligned);
        nd_release(weighted);
        weighted = product;
    }
    nd_auto nd_tensor *sum = nd_sum(weighted, 1, &axis, false);
    nd_auto nd_tensor *losses = nd_neg(sum);
    if (!losses)
        return NULL;
    nd_auto nd_tensor *number = nd__operands_number_like(name, targets, ND_I64, ND_NUMBER(ignored));
    nd_auto nd_tensor *zero = nd__operands_number_like(name, losses, losses->dtype, ND_NUMBER(0));
    nd_auto nd_tensor *mask = nd_equal(targets, number);
    return nd_where(mask, zero, losses);
}

/// The sum of the weights of the targets that count.
static nd_tensor *weight_of_targets(const nd_tensor *like, const nd_tensor *targets,
                                    const nd_tensor *weight, int64_t ignored) {
    nd_auto nd_tensor *one = nd__operands_number_like(name, like, like->dtype, ND_NUMBER(-1));
    nd_auto nd_tensor *ones = nd_expand(one, like->ndim, like->shape);
    return nd_nll_loss(ones, targets, weight, ignored, ND_REDUCTION_SUM);
}

/// The loss with a part of each label spread over all classes.
static nd_tensor *smoothed(const nd_tensor *log_probabilities, const nd_tensor *targets,
                           const nd_tensor *weight, const nd_cross_entropy_options *o, int axis) {
    int64_t ignored = o->ignored, classes = log_probabilities->shape[axis];
    nd_auto nd_tensor *sharp =
        nd_nll_loss(log_probabilities, targets, weight, ignored, ND_REDUCTION_NONE);
    if (!sharp)
        return NULL;
    nd_auto nd_tensor *spread = spread_losses(log_probabilities, targets, weight, ignored, axis);
    nd_auto nd_tensor *sharp_part = nd_mul_scalar(sharp, 1.0 - o->label_smoothing);
    nd_auto nd_tensor *spread_part = nd_mul_scalar(spread, o->label_smoothing / (double)classes);
    nd_auto nd_tensor *elements = nd_add(sharp_part, spread_part);
    if (!elements || o->reduction == ND_REDUCTION_NONE)
        return nd_steal(&elements);
    nd_auto nd_tensor *sum = nd_sum(elements, 0, NULL, false);
    if (o->reduction == ND_REDUCTION_SUM)
        return nd_steal(&sum);
    nd_auto nd_tensor *total = weight_of_targets(log_probabilities, targets, weight, ignored);
    return nd_div(sum, total);
}

/// Behind a refusal of targets: says which it was, where there is one.
static void say_which_target(const nd_tensor *targets, int64_t classes, int64_t ignored) {
    nd_stray stray;
    if (nd_error_get_status() == ND_ERROR_INVALID_ARGUMENT && classes > 0 &&
        nd__index_find_outside(targets, 0, classes - 1, &ignored, &stray))
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: a target is outside 0 ... %lld: %s", name,
                  (long long)classes - 1, stray.text);
}

nd_tensor *nd_cross_entropy_with(const nd_tensor *logits, const nd_tensor *targets,
                                 const nd_tensor *weight, const nd_cross_entropy_options *options) {
    ND__ERROR_NAMED("cross_entropy_with");
    nd_cross_entropy_options o;
    nd_dtype dtype;
    if (check(logits, targets, options, &o, &dtype) != ND_OK)
        return NULL;
    int axis = logits->ndim > 1 ? 1 : 0;
    nd_auto nd_tensor *wide = nd__operands_as_dtype(logits, dtype);
    nd_auto nd_tensor *classes = wide ? nd__nll_loss_classes(targets, o.ignored) : NULL;
    nd_auto nd_tensor *log_probabilities = classes ? nd_log_softmax(wide, axis) : NULL;
    if (!log_probabilities)
        return NULL;
    // Its own refusal of a reduction, of shapes and of targets comes first.
    nd_auto nd_tensor *loss =
        o.label_smoothing == 0.0 || o.reduction > ND_REDUCTION_NONE
            ? nd_nll_loss(log_probabilities, classes, weight, o.ignored, o.reduction)
            : smoothed(log_probabilities, classes, weight, &o, axis);
    if (!loss && o.reduction <= ND_REDUCTION_NONE)
        say_which_target(classes, log_probabilities->shape[axis], o.ignored);
    return loss ? nd__operands_as_dtype(loss, nd__autocast_result(logits->dtype)) : NULL;
}
