// Gradient rules of the elementwise operations with one operand. In every comment, g is the
// gradient of the result, x the operand and y the result.
#include "lib/autograd/rules.h"
#include "lib/ops/elementwise.h"
#include "lib/tensor/record.h"

#include <math.h>

static const double two_over_sqrt_pi = 1.1283791670955125739;
static const double one_over_sqrt_two = 0.70710678118654752440;
static const double one_over_sqrt_two_pi = 0.39894228040143267794;

nd_status nd__rule_neg(const nd_rule_call *call) {
    return nd__rule_give(call, 0, nd_neg(nd__rules_output_grad(call)));
}

/// g sign(x); 0 at 0 and for NaN.
nd_status nd__rule_abs(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *sign = NULL;
    nd_no_grad {
        nd_auto nd_tensor *raw = nd_sign(x);
        nd_auto nd_tensor *is_number = nd_equal(x, x);
        sign = nd__rules_zero_unless(is_number, raw);
    }
    return nd__rules_give_product(call, sign);
}

/// 2 g x
nd_status nd__rule_square(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *product = nd_mul(nd__rules_output_grad(call), x);
    return nd__rule_give(call, 0, nd_mul_scalar(product, 2.0));
}

/// g y
nd_status nd__rule_exp(const nd_rule_call *call) {
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    return nd__rules_give_product(call, y);
}

/// g / x
nd_status nd__rule_log(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    return nd__rule_give(call, 0, nd_div(nd__rules_output_grad(call), x));
}

/// g / (2 y)
nd_status nd__rule_sqrt(const nd_rule_call *call) {
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *quotient = nd_div(nd__rules_output_grad(call), y);
    return nd__rule_give(call, 0, nd_mul_scalar(quotient, 0.5));
}

/// g cos(x)
nd_status nd__rule_sin(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *cosine = nd_cos(x);
    return nd__rules_give_product(call, cosine);
}

/// -g sin(x)
nd_status nd__rule_cos(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *sine = nd_sin(x);
    nd_auto nd_tensor *factor = nd_neg(sine);
    return nd__rules_give_product(call, factor);
}

/// g (1 - y^2)
nd_status nd__rule_tanh(const nd_rule_call *call) {
    const nd_tensor *g = nd__rules_output_grad(call);
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *square = nd_square(y);
    nd_auto nd_tensor *part = nd_mul(g, square);
    return nd__rule_give(call, 0, nd_sub(g, part));
}

/// g y (1 - y) = t - t y with t = g y
nd_status nd__rule_sigmoid(const nd_rule_call *call) {
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *product = nd_mul(nd__rules_output_grad(call), y);
    nd_auto nd_tensor *part = nd_mul(product, y);
    return nd__rule_give(call, 0, nd_sub(product, part));
}

/// g unless y <= 0; so NaN has 1
nd_status nd__rule_relu(const nd_rule_call *call) {
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    return nd__rule_give(call, 0, nd__elementwise_relu_grad(nd__rules_output_grad(call), y));
}

/// relu_grad(g1, y) = g1 unless y <= 0: linear in g1, and constant in y where it has a derivative.
nd_status nd__rule_relu_grad(const nd_rule_call *call) {
    if (!call->wanted[0])
        return ND_OK;
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    return nd__rule_give(call, 0, nd__elementwise_relu_grad(nd__rules_output_grad(call), y));
}

/// g (P(x) + x p(x)), P and p the distribution and density of the standard normal.
nd_status nd__rule_gelu(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *scaled = nd_mul_scalar(x, one_over_sqrt_two);
    nd_auto nd_tensor *error = nd_erf(scaled);
    nd_auto nd_tensor *shifted = nd_add_scalar(error, 1.0);
    nd_auto nd_tensor *distribution = nd_mul_scalar(shifted, 0.5);
    nd_auto nd_tensor *square = nd_square(scaled);
    nd_auto nd_tensor *exponent = nd_neg(square);
    nd_auto nd_tensor *power = nd_exp(exponent);
    nd_auto nd_tensor *weighted = nd_mul(x, power);
    nd_auto nd_tensor *density = nd_mul_scalar(weighted, one_over_sqrt_two_pi);
    nd_auto nd_tensor *factor = nd_add(distribution, density);
    return nd__rules_give_product(call, factor);
}

/// g 2/sqrt(pi) exp(-x^2)
nd_status nd__rule_erf(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *exponent = nd_neg(square);
    nd_auto nd_tensor *power = nd_exp(exponent);
    nd_auto nd_tensor *factor = nd_mul_scalar(power, two_over_sqrt_pi);
    return nd__rules_give_product(call, factor);
}

/// -g y^2, in this order: y^2 may be more than the dtype holds where g y^2 is not.
nd_status nd__rule_reciprocal(const nd_rule_call *call) {
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *once = nd_mul(nd__rules_output_grad(call), y);
    nd_auto nd_tensor *negative = nd_neg(once);
    return nd__rule_give(call, 0, nd_mul(negative, y));
}

nd_status nd__rule_add_scalar(const nd_rule_call *call) {
    return nd__rule_give(call, 0, nd_retain(nd__rules_output_grad(call)));
}

nd_status nd__rule_mul_scalar(const nd_rule_call *call) {
    return nd__rule_give(call, 0,
                         nd_mul_scalar(nd__rules_output_grad(call), call->node->attrs.f[0]));
}

/// g p x^(p-1); exactly 0 for p = 0, where x^-1 may not be finite.
nd_status nd__rule_pow_scalar(const nd_rule_call *call) {
    double exponent = call->node->attrs.f[0];
    if (exponent == 0.0)
        return nd__rule_give(call, 0, nd_zeros_like(nd__rules_output_grad(call)));
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *power = exponent == 2.0 ? nd_retain(x) : nd_pow_scalar(x, exponent - 1.0);
    nd_auto nd_tensor *factor = nd_mul_scalar(power, exponent);
    return nd__rules_give_product(call, factor);
}

/// g strictly between the limits; 0 for NaN. An infinite limit is none.
nd_status nd__rule_clip(const nd_rule_call *call) {
    double low = call->node->attrs.f[0], high = call->node->attrs.f[1];
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    if (x && x->dtype != ND_F64) { // which it is compared in
        low = (double)(float)low;
        high = (double)(float)high;
    }
    if (low == -INFINITY && high == INFINITY)
        return nd__rule_give(call, 0, nd_retain(nd__rules_output_grad(call)));
    nd_auto nd_tensor *inside = NULL;
    nd_no_grad {
        nd_auto nd_tensor *floor = nd__rules_limit(x, low);
        nd_auto nd_tensor *ceiling = nd__rules_limit(x, high);
        nd_auto nd_tensor *above = low > -INFINITY ? nd_greater(x, floor) : nd_less(x, ceiling);
        nd_auto nd_tensor *below = high < INFINITY ? nd_less(x, ceiling) : nd_retain(above);
        inside = nd_logical_and(above, below);
    }
    return nd__rule_give(call, 0, nd__rules_zero_unless(inside, nd__rules_output_grad(call)));
}

nd_status nd__rule_sub_scalar(const nd_rule_call *call) {
    return nd__rule_give(call, 0, nd_retain(nd__rules_output_grad(call)));
}

/// g / p
nd_status nd__rule_div_scalar(const nd_rule_call *call) {
    return nd__rule_give(call, 0,
                         nd_div_scalar(nd__rules_output_grad(call), call->node->attrs.f[0]));
}
