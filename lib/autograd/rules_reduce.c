// Gradient rules of reductions and of operations that are made of one: softmax, log_softmax,
// cross_entropy. In every comment, g is the gradient of the result, x the operand, y the result.
#include "lib/autograd/rules.h"
#include "lib/ops/neural.h"
#include "lib/tensor/record.h"

static double reduced_elements(const nd_rule_call *call);
static int reduced_axes(const nd_rule_call *call, int *ret_axes);
static nd_status give_deviation(const nd_rule_call *call, const nd_tensor *g, double factor,
                                const nd_tensor *whole);
static nd_tensor *over_result(const nd_rule_call *call, double power, nd_tensor **ret_safe,
                              nd_tensor **ret_is_number);
static nd_tensor *deviation_of(const nd_rule_call *call);
static nd_tensor *with_reduced_axes(const nd_rule_call *call, const nd_tensor *y);
static nd_status give_repeated(const nd_rule_call *call, const nd_tensor *g);
static nd_status give_extremum_gradient(const nd_rule_call *call);
static nd_tensor *extremum_share(const nd_rule_call *call);
static nd_tensor *exact_difference(const nd_rule_call *call, const nd_tensor *logits);

/// g, repeated along the reduced axes.
nd_status nd__rule_sum(const nd_rule_call *call) {
    return give_repeated(call, nd__rules_output_grad(call));
}

/// g / n, repeated, where n elements became one.
nd_status nd__rule_mean(const nd_rule_call *call) {
    double count = reduced_elements(call);
    nd_auto nd_tensor *scaled = nd_div_scalar(nd__rules_output_grad(call), count);
    return give_repeated(call, scaled);
}

/// 2 g (x - mean) / (n - correction)
nd_status nd__rule_var(const nd_rule_call *call) {
    nd_auto nd_tensor *g = nd__rules_wide_half(nd__rules_output_grad(call));
    return give_deviation(call, g, 2.0, NULL);
}

/// g (x - mean) / ((n - correction) y), 0 where y is 0
nd_status nd__rule_std(const nd_rule_call *call) {
    nd_auto nd_tensor *divisor = NULL;
    nd_auto nd_tensor *share = over_result(call, 1.0, &divisor, NULL);
    return divisor ? give_deviation(call, share, 1.0, divisor) : nd_error_get_status();
}

/// g exp(x - y)
nd_status nd__rule_logsumexp(const nd_rule_call *call) {
    nd_auto nd_tensor *saved_x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *saved_y = nd__record_saved(call->node, 1);
    nd_auto nd_tensor *x = nd__rules_wide_half(saved_x);
    nd_auto nd_tensor *y = nd__rules_wide_half(saved_y);
    nd_auto nd_tensor *kept = with_reduced_axes(call, y);
    nd_auto nd_tensor *exponent = nd_sub(x, kept);
    nd_auto nd_tensor *probability = nd_exp(exponent);
    nd_auto nd_tensor *g = with_reduced_axes(call, nd__rules_output_grad(call));
    return nd__rule_give(call, 0, nd_mul(probability, g));
}

/// g sign(x) (|x| / y)^(p - 1), 0 where x or y is 0. For orders below 2 and not below 0 as a product
/// of powers, which stay in range where a quotient of the two does not; g / y leaves it where x / y
/// does not.
nd_status nd__rule_norm(const nd_rule_call *call) {
    double order = call->node->attrs.f[0];
    nd_auto nd_tensor *saved = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *x = nd__rules_wide_half(saved);
    if (order == 1.0) {
        nd_auto nd_tensor *g = nd__rules_wide_half(nd__rules_output_grad(call));
        nd_auto nd_tensor *repeated = with_reduced_axes(call, g);
        nd_auto nd_tensor *which = nd_sign(x);
        return nd__rule_give(call, 0, nd_mul(which, repeated));
    }
    const bool is_quotient = order < 0.0 || order >= 2.0;
    nd_auto nd_tensor *divisor = NULL, *is_result = NULL;
    nd_auto nd_tensor *share =
        over_result(call, order - 1.0, is_quotient ? &divisor : NULL, &is_result);
    nd_auto nd_tensor *kept = with_reduced_axes(call, share);
    nd_auto nd_tensor *whole = divisor ? with_reduced_axes(call, divisor) : NULL;
    if (order == 2.0) {
        nd_auto nd_tensor *slope = nd_div(x, whole);
        return nd__rule_give(call, 0, nd_mul(slope, kept));
    }
    nd_auto nd_tensor *sign = nd_sign(x);
    nd_auto nd_tensor *zero = nd__rules_constant(x, x ? x->dtype : ND_F32, 0.0);
    nd_auto nd_tensor *one = nd__rules_constant(x, x ? x->dtype : ND_F32, 1.0);
    nd_auto nd_tensor *is_not_zero = nd_not_equal(x, zero);
    nd_auto nd_tensor *is_reduced = with_reduced_axes(call, is_result);
    // Where y is 0 only negative powers are not.
    nd_auto nd_tensor *is_number =
        order < 0.0 ? nd_logical_and(is_not_zero, is_reduced) : nd_retain(is_not_zero);
    nd_auto nd_tensor *size = nd_abs(x);
    nd_auto nd_tensor *part = is_quotient ? nd_div(size, whole) : nd_retain(size);
    // A power of 0 may be infinite, and what is infinite has no second derivative.
    nd_auto nd_tensor *safe = nd_where(is_number, part, one);
    nd_auto nd_tensor *power = nd_pow_scalar(safe, order - 1.0);
    nd_auto nd_tensor *slope = nd_mul(sign, power);
    return nd__rule_give(call, 0, nd_mul(slope, kept));
}

nd_status nd__rule_max(const nd_rule_call *call) {
    return give_extremum_gradient(call);
}

nd_status nd__rule_min(const nd_rule_call *call) {
    return give_extremum_gradient(call);
}

/// t - y sum(t) with t = g y
nd_status nd__rule_softmax(const nd_rule_call *call) {
    int axis = (int)call->node->attrs.i[0];
    nd_auto nd_tensor *saved = nd__record_saved(call->node, 0);
    if (!nd_is_grad_enabled() && saved) {
        nd_auto nd_tensor *gradient = NULL;
        nd_status status =
            nd__neural_softmax_grad(nd__rules_output_grad(call), saved, axis, &gradient);
        if (status != ND_ERROR_UNSUPPORTED)
            return status == ND_OK ? nd__rule_give(call, 0, nd_steal(&gradient)) : status;
    }
    nd_auto nd_tensor *y = nd__rules_wide_half(saved);
    nd_auto nd_tensor *product = nd_mul(nd__rules_output_grad(call), y);
    nd_auto nd_tensor *sum = nd_sum(product, 1, &axis, true);
    nd_auto nd_tensor *part = nd_mul(y, sum);
    return nd__rule_give(call, 0, nd_sub(product, part));
}

/// The same: y is 0 where the mask is, and so is the gradient.
nd_status nd__rule_masked_softmax(const nd_rule_call *call) {
    return call->wanted[0] ? nd__rule_softmax(call) : ND_OK;
}

/// g - exp(y) sum(g)
nd_status nd__rule_log_softmax(const nd_rule_call *call) {
    int axis = (int)call->node->attrs.i[0];
    nd_auto nd_tensor *g = nd__rules_wide_half(nd__rules_output_grad(call));
    nd_auto nd_tensor *saved = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *y = nd__rules_wide_half(saved);
    nd_auto nd_tensor *probability = nd_exp(y);
    nd_auto nd_tensor *sum = nd_sum(g, 1, &axis, true);
    nd_auto nd_tensor *part = nd_mul(probability, sum);
    return nd__rule_give(call, 0, nd_sub(g, part));
}

/// (softmax(x) - one_hot(targets)) g / n
nd_status nd__rule_cross_entropy(const nd_rule_call *call) {
    if (!call->wanted[0])
        return ND_OK;
    nd_auto nd_tensor *saved = nd__record_saved(call->node, 0);
    if (!nd_is_grad_enabled() && saved) {
        nd_auto nd_tensor *targets = nd__record_saved(call->node, 1);
        nd_auto nd_tensor *gradient = NULL;
        nd_status status = targets ? nd__neural_cross_entropy_grad(nd__rules_output_grad(call),
                                                                   saved, targets, &gradient)
                                   : nd_error_get_status();
        if (status != ND_ERROR_UNSUPPORTED)
            return status == ND_OK ? nd__rule_give(call, 0, nd_steal(&gradient)) : status;
    }
    nd_auto nd_tensor *logits = saved ? nd__rules_wide_half(saved) : NULL;
    nd_auto nd_tensor *difference = logits ? exact_difference(call, logits) : NULL;
    double rows = (double)call->node->inputs[0].shape[0];
    nd_auto nd_tensor *scale = nd_div_scalar(nd__rules_output_grad(call), rows);
    if (nd_is_grad_enabled() || !difference || !scale)
        return nd__rule_give(call, 0, nd_mul(difference, scale));
    nd_status status = nd_mul_(difference, scale);
    return status == ND_OK ? nd__rule_give(call, 0, nd_steal(&difference)) : status;
}

// -------------------------------------------------------------------------------------------------

/// How many elements became one.
static double reduced_elements(const nd_rule_call *call) {
    const nd_node_input *x = &call->node->inputs[0];
    double count = 1.0;
    for (int i = 0; i < x->ndim; i++)
        if (call->node->attrs.i[0] & (INT64_C(1) << i))
            count *= (double)x->shape[i];
    return count;
}

/// The axes that were reduced; returns how many.
static int reduced_axes(const nd_rule_call *call, int *ret_axes) {
    int naxes = 0;
    for (int i = 0; i < call->node->inputs[0].ndim; i++)
        if (call->node->attrs.i[0] & (INT64_C(1) << i))
            ret_axes[naxes++] = i;
    return naxes;
}

/// x - mean of what is reduced. Owned.
static nd_tensor *deviation_of(const nd_rule_call *call) {
    int axes[ND_MAX_DIMS];
    int naxes = reduced_axes(call, axes);
    nd_auto nd_tensor *saved = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *x = nd__rules_wide_half(saved);
    // No axes means all of them to nd_mean; here it means that x has none.
    nd_auto nd_tensor *mean = nd_mean(x, naxes, axes, true);
    return nd_sub(x, mean);
}

/// factor g ((x - mean) / whole) / (n - correction); `whole` is NULL for 1.
static nd_status give_deviation(const nd_rule_call *call, const nd_tensor *g, double factor,
                                const nd_tensor *whole) {
    nd_auto nd_tensor *deviation = deviation_of(call);
    if (whole) {
        nd_auto nd_tensor *kept = with_reduced_axes(call, whole);
        nd_tensor *part = nd_div(deviation, kept);
        nd_object_release(deviation);
        deviation = part;
    }
    double divisor = reduced_elements(call) - call->node->attrs.f[0];
    nd_auto nd_tensor *scaled = nd_div_scalar(g, (divisor > 0.0 ? divisor : 0.0) / factor);
    nd_auto nd_tensor *kept = with_reduced_axes(call, scaled);
    return nd__rule_give(call, 0, nd_mul(deviation, kept));
}

/// g / y^power, 0 where y, which is saved behind x, is 0. Owned. With `ret_safe` g alone, and y to
/// divide by, which is 1 there; `ret_is_number` (may be NULL): where y is not 0.
static nd_tensor *over_result(const nd_rule_call *call, double power, nd_tensor **ret_safe,
                              nd_tensor **ret_is_number) {
    nd_auto nd_tensor *g = nd__rules_wide_half(nd__rules_output_grad(call));
    nd_auto nd_tensor *saved = nd__record_saved(call->node, 1);
    nd_auto nd_tensor *y = nd__rules_wide_half(saved);
    nd_auto nd_tensor *zero = nd__rules_constant(y, y ? y->dtype : ND_F32, 0.0);
    nd_auto nd_tensor *one = nd__rules_constant(y, y ? y->dtype : ND_F32, 1.0);
    nd_auto nd_tensor *is_number = nd_not_equal(y, zero);
    nd_auto nd_tensor *safe = nd_where(is_number, y, one);
    nd_auto nd_tensor *divisor = power == 1.0 ? nd_retain(safe) : nd_pow_scalar(safe, power);
    nd_auto nd_tensor *share = ret_safe ? nd_retain(g) : nd_div(g, divisor);
    nd_tensor *result = nd__rules_zero_unless(is_number, share);
    if (ret_safe)
        *ret_safe = nd_steal(&safe);
    if (ret_is_number)
        *ret_is_number = nd_steal(&is_number);
    return result;
}

/// y, which lost the reduced axes or has them with size 1, so that it broadcasts to x. Owned.
static nd_tensor *with_reduced_axes(const nd_rule_call *call, const nd_tensor *y) {
    const nd_node_input *x = &call->node->inputs[0];
    if (!y || y->ndim == x->ndim || y->ndim == 0)
        return nd_retain(y);
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = call->node->attrs.i[0] & (INT64_C(1) << i) ? 1 : x->shape[i];
    return nd_reshape(y, x->ndim, shape);
}

static nd_status give_repeated(const nd_rule_call *call, const nd_tensor *g) {
    const nd_node_input *x = &call->node->inputs[0];
    nd_auto nd_tensor *kept = with_reduced_axes(call, g);
    return nd__rule_give(call, 0, nd_expand(kept, x->ndim, x->shape));
}

/// g, shared equally by the elements that equal the extremum.
static nd_status give_extremum_gradient(const nd_rule_call *call) {
    nd_auto nd_tensor *share = extremum_share(call);
    nd_auto nd_tensor *kept = with_reduced_axes(call, nd__rules_output_grad(call));
    return nd__rule_give(call, 0, nd_mul(share, kept));
}

/// 1 / count where x equals its extremum, else 0. A constant: nothing to record.
static nd_tensor *extremum_share(const nd_rule_call *call) {
    int axes[ND_MAX_DIMS];
    int naxes = reduced_axes(call, axes);
    nd_tensor *share = NULL;
    nd_no_grad {
        nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
        nd_auto nd_tensor *y = nd__record_saved(call->node, 1);
        nd_auto nd_tensor *extremum = with_reduced_axes(call, y);
        nd_auto nd_tensor *equal = nd_equal(x, extremum);
        nd_auto nd_tensor *mask = equal ? nd_cast(equal, x->dtype) : NULL;
        // No axes means all of them to nd_sum; here it means that x has none.
        nd_auto nd_tensor *count = nd_sum(mask, naxes, axes, true);
        share = nd_div(mask, count);
    }
    return share;
}

/// softmax(logits) - one_hot(targets), recorded as far as it depends on the logits. Owned by the
/// caller alone.
static nd_tensor *exact_difference(const nd_rule_call *call, const nd_tensor *logits) {
    nd_auto nd_tensor *targets = nd__record_saved(call->node, 1);
    nd_auto nd_tensor *probability = nd_softmax(logits, 1);
    if (!probability)
        return NULL;
    nd_auto nd_tensor *chosen = nd_one_hot(targets, logits->shape[1], logits->dtype);
    if (nd_is_grad_enabled() || !chosen)
        return nd_sub(probability, chosen);
    return nd_sub_(probability, chosen) == ND_OK ? nd_steal(&probability) : NULL;
}
