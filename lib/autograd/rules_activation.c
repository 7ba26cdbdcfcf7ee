// Gradient rules of activation functions, written with operations; backward passes that are not
// recorded run the DERIVATIVE rows of kernels/ops.inc in their place. In every comment, g is the
// gradient of the result, x the operand and s sigmoid(x).
#include "lib/autograd/rules.h"
#include "lib/tensor/record.h"
#include <math.h>

/// Owned: gate + x slope, the slope of x gate(x).
static nd_tensor *gated_slope(const nd_tensor *x, const nd_tensor *gate, const nd_tensor *slope) {
    nd_auto nd_tensor *product = nd_mul(x, slope);
    return nd_add(gate, product);
}

/// Owned: s (1 - s), of s. Not s - s^2, whose slope takes twice what it is multiplied by: an operand may
/// be more than half of the largest number.
static nd_tensor *sigmoid_slope(const nd_tensor *s) {
    nd_auto nd_tensor *negative = nd_neg(s), *rest = nd_add_scalar(negative, 1.0);
    return nd_mul(s, rest);
}

/// g (s + x s (1 - s)). Far below 0, where s is 0 in every dtype, x is not infinite here.
nd_status nd__rule_silu(const nd_rule_call *call) {
    nd_auto nd_tensor *operand = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *x = nd_clip(operand, -1e4, INFINITY);
    nd_auto nd_tensor *gate = nd_sigmoid(x);
    nd_auto nd_tensor *slope = sigmoid_slope(gate);
    nd_auto nd_tensor *factor = gated_slope(x, gate, slope);
    return nd__rules_give_product(call, factor);
}

/// As silu, with sigmoid(2 u), u = sqrt(2/pi) (x + 0.044715 x^3). Beyond 32 the slope is 0 or 1 in
/// every dtype, and is computed there, where no power of x overflows.
nd_status nd__rule_gelu_tanh(const nd_rule_call *call) {
    nd_auto nd_tensor *operand = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *x = nd_clip(operand, -32.0, 32.0);
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *scaled = nd_mul_scalar(square, 0.0713548162726002527);
    nd_auto nd_tensor *sum = nd_add_scalar(scaled, 1.5957691216057307117);
    nd_auto nd_tensor *inner = nd_mul(x, sum);
    nd_auto nd_tensor *gate = nd_sigmoid(inner);
    nd_auto nd_tensor *outer_slope = sigmoid_slope(gate);
    nd_auto nd_tensor *thrice = nd_mul_scalar(square, 0.2140644488178007582);
    nd_auto nd_tensor *inner_slope = nd_add_scalar(thrice, 1.5957691216057307117);
    nd_auto nd_tensor *slope = nd_mul(outer_slope, inner_slope);
    nd_auto nd_tensor *factor = gated_slope(x, gate, slope);
    return nd__rules_give_product(call, factor);
}

/// g (t + x s (1 - t^2)), t = tanh(softplus(x))
nd_status nd__rule_mish(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *inner = nd_softplus(x);
    nd_auto nd_tensor *gate = nd_tanh(inner);
    nd_auto nd_tensor *square = nd_square(gate);
    nd_auto nd_tensor *s = nd_sigmoid(x);
    nd_auto nd_tensor *part = nd_mul(s, square);
    nd_auto nd_tensor *slope = nd_sub(s, part);
    nd_auto nd_tensor *factor = gated_slope(x, gate, slope);
    return nd__rules_give_product(call, factor);
}

/// g s
nd_status nd__rule_softplus(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *factor = nd_sigmoid(x);
    return nd__rules_give_product(call, factor);
}

/// g sigmoid(-x)
nd_status nd__rule_logsigmoid(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *negative = nd_neg(x);
    nd_auto nd_tensor *factor = nd_sigmoid(negative);
    return nd__rules_give_product(call, factor);
}

/// g / (1 + |x|)^2, divided twice: the square may be more than an f16 holds.
nd_status nd__rule_softsign(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *size = nd_abs(x);
    nd_auto nd_tensor *sum = nd_add_scalar(size, 1.0);
    nd_auto nd_tensor *half_way = nd_div(nd__rules_output_grad(call), sum);
    return nd__rule_give(call, 0, nd_div(half_way, sum));
}

// ------------------------------------------------------------------------------------ with corners

/// Owned mask: low < x < high. A constant: nothing to record.
static nd_tensor *between(const nd_tensor *x, double low, double high) {
    if (!x)
        return NULL;
    nd_tensor *mask = NULL;
    nd_no_grad {
        nd_auto nd_tensor *bottom = nd__rules_limit(x, low);
        nd_auto nd_tensor *top = nd__rules_limit(x, high);
        nd_auto nd_tensor *above = nd_greater(x, bottom);
        nd_auto nd_tensor *below = nd_less(x, top);
        mask = nd_logical_and(above, below);
    }
    return mask;
}

/// scale g where low < x < high, else 0.
static nd_status give_between(const nd_rule_call *call, double low, double high, double scale) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *mask = between(x, low, high);
    nd_auto nd_tensor *kept = nd__rules_zero_unless(mask, nd__rules_output_grad(call));
    return nd__rule_give(call, 0, scale == 1.0 ? nd_retain(kept) : nd_mul_scalar(kept, scale));
}

nd_status nd__rule_hardtanh(const nd_rule_call *call) {
    return give_between(call, call->node->attrs.f[0], call->node->attrs.f[1], 1.0);
}

nd_status nd__rule_relu6(const nd_rule_call *call) {
    return give_between(call, 0.0, 6.0, 1.0);
}

nd_status nd__rule_hardsigmoid(const nd_rule_call *call) {
    return give_between(call, -3.0, 3.0, 1.0 / 6.0);
}

/// g (2 x + 3) / 6 between -3 and 3, g above (and for NaN), 0 below, whatever g is
nd_status nd__rule_hardswish(const nd_rule_call *call) {
    const nd_tensor *g = nd__rules_output_grad(call);
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *inside = between(x, -3.0, 3.0);
    nd_auto nd_tensor *above = NULL;
    nd_no_grad {
        nd_auto nd_tensor *three = nd__rules_constant(x, x ? x->dtype : ND_F32, 3.0);
        nd_auto nd_tensor *less = nd_less(x, three);
        above = nd_logical_not(less);
    }
    nd_auto nd_tensor *scaled = nd_mul_scalar(x, 1.0 / 3.0);
    nd_auto nd_tensor *slope = nd_add_scalar(scaled, 0.5);
    nd_auto nd_tensor *product = nd_mul(g, slope);
    nd_auto nd_tensor *beyond = nd__rules_zero_unless(above, g);
    return nd__rule_give(call, 0, nd_where(inside, product, beyond));
}

/// Owned: 1 above 0, else `below`, of x's dtype.
static nd_tensor *one_above_zero(const nd_tensor *x, const nd_tensor *below) {
    nd_auto nd_tensor *zero = nd__rules_constant(x, x ? x->dtype : ND_F32, 0.0);
    nd_auto nd_tensor *one = nd__rules_constant(x, x ? x->dtype : ND_F32, 1.0);
    nd_auto nd_tensor *above = nd_greater(x, zero);
    return nd_where(above, one, below);
}

/// g, times the slope where x is not above 0
nd_status nd__rule_leaky_relu(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *below = nd__rules_constant(x, x ? x->dtype : ND_F32, call->node->attrs.f[0]);
    nd_auto nd_tensor *factor = one_above_zero(x, below);
    return nd__rules_give_product(call, factor);
}

/// Owned: alpha e^x where x is not above 0, else 1. x above 0, which may overflow, is not looked
/// at.
static nd_tensor *elu_slope(const nd_tensor *x, double alpha) {
    nd_auto nd_tensor *zero = nd__rules_constant(x, x ? x->dtype : ND_F32, 0.0);
    nd_auto nd_tensor *above = nd_greater(x, zero);
    nd_auto nd_tensor *limited = nd_where(above, zero, x);
    nd_auto nd_tensor *power = nd_exp(limited);
    nd_auto nd_tensor *below = nd_mul_scalar(power, alpha);
    return one_above_zero(x, below);
}

nd_status nd__rule_elu(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *factor = elu_slope(x, call->node->attrs.f[0]);
    return nd__rules_give_product(call, factor);
}

nd_status nd__rule_selu(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *slope = elu_slope(x, 1.6732632423543772848);
    nd_auto nd_tensor *factor = nd_mul_scalar(slope, 1.0507009873554804934);
    return nd__rules_give_product(call, factor);
}

/// g times x / limit, kept between -1 and 1
nd_status nd__rule_smooth_l1(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *scaled = nd_div_scalar(x, call->node->attrs.f[0]);
    nd_auto nd_tensor *factor = nd_clip(scaled, -1.0, 1.0);
    return nd__rules_give_product(call, factor);
}

/// g times x, kept between -limit and limit
nd_status nd__rule_huber(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    double limit = call->node->attrs.f[0];
    nd_auto nd_tensor *factor = nd_clip(x, -limit, limit);
    return nd__rules_give_product(call, factor);
}
