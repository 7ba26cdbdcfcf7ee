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

/// g / (x log(base))
static nd_status give_logarithm(const nd_rule_call *call, double log_of_base) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *scaled = nd_mul_scalar(x, log_of_base);
    return nd__rule_give(call, 0, nd_div(nd__rules_output_grad(call), scaled));
}

nd_status nd__rule_log2(const nd_rule_call *call) {
    return give_logarithm(call, 0.69314718055994530942);
}

nd_status nd__rule_log10(const nd_rule_call *call) {
    return give_logarithm(call, 2.30258509299404568402);
}

/// -g y^3 / 2
nd_status nd__rule_rsqrt(const nd_rule_call *call) {
    nd_auto nd_tensor *y = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *square = nd_square(y);
    nd_auto nd_tensor *cube = nd_mul(square, y);
    nd_auto nd_tensor *factor = nd_mul_scalar(cube, -0.5);
    return nd__rules_give_product(call, factor);
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

/// Owned: sign x^2 + constant.
static nd_tensor *square_plus(const nd_rule_call *call, double sign, double constant) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *signed_square = sign < 0 ? nd_neg(square) : nd_retain(square);
    return nd_add_scalar(signed_square, constant);
}

/// g / sqrt(1 - x^2)
nd_status nd__rule_asin(const nd_rule_call *call) {
    nd_auto nd_tensor *inside = square_plus(call, -1.0, 1.0);
    nd_auto nd_tensor *factor = nd_rsqrt(inside);
    return nd__rules_give_product(call, factor);
}

/// -g / sqrt(1 - x^2)
nd_status nd__rule_acos(const nd_rule_call *call) {
    nd_auto nd_tensor *inside = square_plus(call, -1.0, 1.0);
    nd_auto nd_tensor *root = nd_rsqrt(inside);
    nd_auto nd_tensor *factor = nd_neg(root);
    return nd__rules_give_product(call, factor);
}

/// g / (1 + x^2)
nd_status nd__rule_atan(const nd_rule_call *call) {
    nd_auto nd_tensor *inside = square_plus(call, 1.0, 1.0);
    return nd__rule_give(call, 0, nd_div(nd__rules_output_grad(call), inside));
}

/// g / sqrt(x^2 + 1)
nd_status nd__rule_asinh(const nd_rule_call *call) {
    nd_auto nd_tensor *inside = square_plus(call, 1.0, 1.0);
    nd_auto nd_tensor *factor = nd_rsqrt(inside);
    return nd__rules_give_product(call, factor);
}

/// g / sqrt(x^2 - 1)
nd_status nd__rule_acosh(const nd_rule_call *call) {
    nd_auto nd_tensor *inside = square_plus(call, 1.0, -1.0);
    nd_auto nd_tensor *factor = nd_rsqrt(inside);
    return nd__rules_give_product(call, factor);
}

/// g / (1 - x^2)
nd_status nd__rule_atanh(const nd_rule_call *call) {
    nd_auto nd_tensor *inside = square_plus(call, -1.0, 1.0);
    return nd__rule_give(call, 0, nd_div(nd__rules_output_grad(call), inside));
}
