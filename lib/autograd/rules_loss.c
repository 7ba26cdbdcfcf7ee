// The gradient rules of losses of pairs and of classes. g is the gradient of the result: one number, or
// one for each pair or target.
//
// Unrecorded each is one kernel; recorded they are written with operations.
#include "lib/autograd/rules.h"
#include "lib/ops/nll_loss.h"
#include "lib/ops/pair_loss.h"
#include "lib/tensor/record.h"

/// How losses of the difference d = a - b change with a; with b it is the opposite.
static nd_tensor *difference_slope(nd_pair_loss loss, const nd_tensor *a, const nd_tensor *b,
                                   double limit) {
    nd_auto nd_tensor *d = nd_sub(a, b);
    if (loss == ND_PAIR_LOSS_l1)
        return nd_sign(d);
    if (loss == ND_PAIR_LOSS_mse)
        return nd_mul_scalar(d, 2.0);
    if (loss == ND_PAIR_LOSS_huber)
        return nd_clip(d, -limit, limit);
    nd_auto nd_tensor *scaled = nd_div_scalar(d, limit);
    return nd_clip(scaled, -1.0, 1.0);
}

/// log b + 1 - a; -a where b is 0.
static nd_tensor *entropy_slope(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *one = nd_ones_like(b);
    nd_auto nd_tensor *zero = nd_zeros_like(b);
    nd_auto nd_tensor *none = nd_equal(b, zero);
    nd_auto nd_tensor *safe = nd_where(none, one, b);
    nd_auto nd_tensor *logarithm = nd_log(safe);
    nd_auto nd_tensor *more = nd_add_scalar(logarithm, 1.0);
    nd_auto nd_tensor *own = nd_where(none, zero, more);
    return nd_sub(own, a);
}

/// exp(b) (b - a + 1)
static nd_tensor *log_entropy_slope(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *probability = nd_exp(b);
    nd_auto nd_tensor *difference = nd_sub(b, a);
    nd_auto nd_tensor *more = nd_add_scalar(difference, 1.0);
    return nd_mul(probability, more);
}

/// How the loss of each pair changes with a (input 0) or b (input 1).
static nd_tensor *slope_of(const nd_op_attrs *attrs, const nd_tensor *a, const nd_tensor *b,
                           uint32_t input) {
    switch ((nd_pair_loss)attrs->i[0]) {
    case ND_PAIR_LOSS_bce: {
        nd_auto nd_tensor *probability = input == 0 ? nd_sigmoid(a) : NULL;
        return input == 0 ? nd_sub(probability, b) : nd_neg(a);
    }
    case ND_PAIR_LOSS_kl:
        return input == 0 ? nd_neg(b) : entropy_slope(a, b);
    case ND_PAIR_LOSS_kl_log: {
        nd_auto nd_tensor *probability = input == 0 ? nd_exp(b) : NULL;
        return input == 0 ? nd_neg(probability) : log_entropy_slope(a, b);
    }
    default: {
        nd_auto nd_tensor *slope = difference_slope((nd_pair_loss)attrs->i[0], a, b, attrs->f[0]);
        return input == 0 ? nd_retain(slope) : nd_neg(slope);
    }
    }
}

nd_status nd__rule_pair_loss(const nd_rule_call *call) {
    const nd_op_attrs *attrs = &call->node->attrs;
    const nd_tensor *g = nd__rules_output_grad(call);
    nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *b = nd__record_saved(call->node, 1);
    nd_tensor *gradient[2] = {NULL, NULL};
    nd_status status = a && b ? ND_OK : nd_error_get_status();
    bool recorded = nd_is_grad_enabled();
    if (status == ND_OK && !recorded)
        status = nd__pair_loss_grad(g, a, b, attrs, call->wanted[0] ? &gradient[0] : NULL,
                                    call->wanted[1] ? &gradient[1] : NULL);
    for (uint32_t input = 0; input < 2 && status == ND_OK; input++) {
        if (!call->wanted[input])
            continue;
        if (recorded) {
            nd_auto nd_tensor *slope = slope_of(attrs, a, b, input);
            nd_auto nd_tensor *steep = nd_mul_scalar(g, attrs->f[1]);
            gradient[input] = nd_mul(slope, steep);
        }
        status = nd__rule_give(call, input, nd_steal(&gradient[input]));
    }
    nd_release(gradient[0]);
    nd_release(gradient[1]);
    return status;
}

// -------------------------------------------------------------------------------------------------
// classes

/// What g is multiplied with, unrecorded: the gradient of x where g is 1. ret_counts: where a target's
/// class stands, whatever it weighs; elsewhere the gradient is 0 whatever g is.
static nd_tensor *nll_slope(const nd_tensor *g, const nd_tensor *targets, const nd_tensor *weight,
                            const nd_op_attrs *attrs, const nd_node_input *x,
                            nd_tensor **ret_counts) {
    nd_auto nd_tensor *slope = NULL;
    nd_no_grad {
        nd_auto nd_tensor *ones = nd_ones_like(g);
        slope = ones ? nd__nll_loss_grad(ones, targets, weight, attrs, x->ndim, x->shape) : NULL;
        nd_op_attrs weightless = *attrs;
        weightless.i[5] = 0;
        nd_auto nd_tensor *plain =
            slope && weight ? nd__nll_loss_grad(ones, targets, NULL, &weightless, x->ndim, x->shape)
                            : nd_retain(slope);
        nd_auto nd_tensor *zero = nd__rules_constant(plain, plain ? plain->dtype : ND_F32, 0.0);
        *ret_counts = nd_not_equal(plain, zero);
    }
    return *ret_counts ? nd_steal(&slope) : NULL;
}

/// x, targets, weight: the loss is linear in x, so that what g is multiplied with depends on neither.
nd_status nd__rule_nll_loss(const nd_rule_call *call) {
    const nd_op_attrs *attrs = &call->node->attrs;
    const nd_node_input *x = &call->node->inputs[0];
    const nd_tensor *g = nd__rules_output_grad(call);
    nd_auto nd_tensor *targets = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *weight = attrs->i[5] ? nd__record_saved(call->node, 1) : NULL;
    if (!targets || (attrs->i[5] && !weight))
        return nd_error_get_status();
    if (!nd_is_grad_enabled())
        return nd__rule_give(call, 0,
                             nd__nll_loss_grad(g, targets, weight, attrs, x->ndim, x->shape));
    nd_auto nd_tensor *counts = NULL;
    nd_auto nd_tensor *slope = nll_slope(g, targets, weight, attrs, x, &counts);
    bool each = attrs->i[4] == ND_NLL_EACH;
    nd_auto nd_tensor *seen = each ? nd_unsqueeze(g, x->ndim > 1 ? 1 : 0) : nd_retain(g);
    nd_auto nd_tensor *product = nd_mul(slope, seen);
    return nd__rule_give(call, 0, nd__rules_zero_unless(counts, product));
}
