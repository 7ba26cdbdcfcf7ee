// Gradient rules of logarithms, powers, and the functions of angles and hyperbolas. In every
// comment, g is the gradient of the result, x the operand and y the result.
#include "lib/autograd/rules.h"
#include "lib/tensor/record.h"

/// g (y + 1)
nd_status nd__rule_expm1(const nd_rule_call *call) {
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *power = nd_add_scalar(y, 1.0);
    return nd__rules_give_product(call, power);
}

/// g / (1 + x)
nd_status nd__rule_log1p(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *sum = nd_add_scalar(x, 1.0);
    return nd__rule_give(call, 0, nd_div(nd__rules_output_grad(call), sum));
}

/// (g / log(base)) / x, in this order: x log(base) may be more than an f16 holds. The inverse is a constant:
/// a quotient would be computed here in the rounding mode of the thread that calls.
static nd_status give_logarithm(const nd_rule_call *call, double inverse_of_log) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *scaled = nd_mul_scalar(nd__rules_output_grad(call), inverse_of_log);
    return nd__rule_give(call, 0, nd_div(scaled, x));
}

nd_status nd__rule_log2(const nd_rule_call *call) {
    return give_logarithm(call, 1.4426950408889634074);
}

nd_status nd__rule_log10(const nd_rule_call *call) {
    return give_logarithm(call, 0.43429448190325182765);
}

/// ((-g / 2) y) y y, in this order: y^3 may be more than the dtype holds where the product is not.
nd_status nd__rule_rsqrt(const nd_rule_call *call) {
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *half = nd_mul_scalar(nd__rules_output_grad(call), -0.5);
    nd_auto nd_tensor *once = nd_mul(half, y);
    nd_auto nd_tensor *twice = nd_mul(once, y);
    return nd__rule_give(call, 0, nd_mul(twice, y));
}

/// g (1 + y^2)
nd_status nd__rule_tan(const nd_rule_call *call) {
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *square = nd_square(y);
    nd_auto nd_tensor *factor = nd_add_scalar(square, 1.0);
    return nd__rules_give_product(call, factor);
}

/// g cosh(x)
nd_status nd__rule_sinh(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *factor = nd_cosh(x);
    return nd__rules_give_product(call, factor);
}

/// g sinh(x)
nd_status nd__rule_cosh(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *factor = nd_sinh(x);
    return nd__rules_give_product(call, factor);
}

/// Owned: 1 - x^2.
static nd_tensor *one_minus_square(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *negative = nd_neg(square);
    return nd_add_scalar(negative, 1.0);
}

/// Owned: sqrt(1 + x^2), also where the dtype does not hold the square.
static nd_tensor *root_of_one_plus_square(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *one = x ? nd__rules_constant(x, x->dtype, 1.0) : NULL;
    return nd_hypot(x, one);
}

/// g / sqrt(1 - x^2)
nd_status nd__rule_asin(const nd_rule_call *call) {
    nd_auto nd_tensor *inside = one_minus_square(call);
    nd_auto nd_tensor *factor = nd_rsqrt(inside);
    return nd__rules_give_product(call, factor);
}

/// -g / sqrt(1 - x^2)
nd_status nd__rule_acos(const nd_rule_call *call) {
    nd_auto nd_tensor *inside = one_minus_square(call);
    nd_auto nd_tensor *root = nd_rsqrt(inside);
    nd_auto nd_tensor *factor = nd_neg(root);
    return nd__rules_give_product(call, factor);
}

/// g / (1 + x^2), by its root twice
nd_status nd__rule_atan(const nd_rule_call *call) {
    nd_auto nd_tensor *root = root_of_one_plus_square(call);
    nd_auto nd_tensor *half_way = nd_div(nd__rules_output_grad(call), root);
    return nd__rule_give(call, 0, nd_div(half_way, root));
}

/// g / sqrt(1 + x^2)
nd_status nd__rule_asinh(const nd_rule_call *call) {
    nd_auto nd_tensor *root = root_of_one_plus_square(call);
    return nd__rule_give(call, 0, nd_div(nd__rules_output_grad(call), root));
}

/// g / sqrt(x^2 - 1), as g / (sqrt(x - 1) sqrt(x + 1)): NaN below 1, where there is no acosh.
nd_status nd__rule_acosh(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *below = nd_add_scalar(x, -1.0);
    nd_auto nd_tensor *above = nd_add_scalar(x, 1.0);
    nd_auto nd_tensor *below_root = nd_rsqrt(below);
    nd_auto nd_tensor *above_root = nd_rsqrt(above);
    nd_auto nd_tensor *factor = nd_mul(below_root, above_root);
    return nd__rules_give_product(call, factor);
}

/// g / (1 - x^2)
nd_status nd__rule_atanh(const nd_rule_call *call) {
    nd_auto nd_tensor *inside = one_minus_square(call);
    return nd__rule_give(call, 0, nd_div(nd__rules_output_grad(call), inside));
}
