// Gradient rules of the elementwise operations with two or three operands. In every comment, g is
// the gradient of the result, a and b the operands. nd__rule_give sums over what was broadcast.
#include "lib/autograd/rules.h"
#include "lib/tensor/record.h"
#include <math.h>

static nd_tensor *distance(const nd_tensor *a, const nd_tensor *b);
static nd_status give_quotient_gradient(const nd_rule_call *call, const nd_tensor *a,
                                        const nd_tensor *b);
static nd_status give_base_gradient(const nd_rule_call *call, const nd_tensor *a,
                                    const nd_tensor *b);
static nd_status give_exponent_gradient(const nd_rule_call *call, const nd_tensor *a,
                                        const nd_tensor *b);
static nd_status give_shares(const nd_rule_call *call, uint32_t larger, uint32_t smaller);
static nd_tensor *share_of(const nd_tensor *larger, const nd_tensor *smaller, nd_dtype dtype);

nd_status nd__rule_add(const nd_rule_call *call) {
    nd_status status = ND_OK;
    for (uint32_t i = 0; i < 2 && status == ND_OK; i++)
        if (call->wanted[i])
            status = nd__rule_give(call, i, nd_retain(nd__rules_output_grad(call)));
    return status;
}

nd_status nd__rule_sub(const nd_rule_call *call) {
    nd_status status = ND_OK;
    if (call->wanted[0])
        status = nd__rule_give(call, 0, nd_retain(nd__rules_output_grad(call)));
    if (call->wanted[1] && status == ND_OK)
        status = nd__rule_give(call, 1, nd_neg(nd__rules_output_grad(call)));
    return status;
}

/// g b, g a
nd_status nd__rule_mul(const nd_rule_call *call) {
    nd_status status = ND_OK;
    for (uint32_t i = 0; i < 2 && status == ND_OK; i++)
        if (call->wanted[i]) {
            nd_auto nd_tensor *other = nd__record_saved(call->node, 1 - i);
            status = nd__rule_give(call, i, nd_mul(nd__rules_output_grad(call), other));
        }
    return status;
}

/// g / b, -g a / b^2
nd_status nd__rule_div(const nd_rule_call *call) {
    nd_auto nd_tensor *b = nd__record_saved(call->node, 1);
    nd_status status = ND_OK;
    if (call->wanted[0])
        status = nd__rule_give(call, 0, nd_div(nd__rules_output_grad(call), b));
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
        status = give_quotient_gradient(call, a, b);
    }
    return status;
}

/// g b a^(b-1), g a^b log a
nd_status nd__rule_pow(const nd_rule_call *call) {
    nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *b = nd__record_saved(call->node, 1);
    nd_status status = ND_OK;
    if (call->wanted[0])
        status = give_base_gradient(call, a, b);
    if (call->wanted[1] && status == ND_OK)
        status = give_exponent_gradient(call, a, b);
    return status;
}

nd_status nd__rule_maximum(const nd_rule_call *call) {
    return give_shares(call, 0, 1);
}

nd_status nd__rule_minimum(const nd_rule_call *call) {
    return give_shares(call, 1, 0);
}

/// a + alpha b: g, alpha g
nd_status nd__rule_add_scaled(const nd_rule_call *call) {
    nd_status status = ND_OK;
    if (call->wanted[0])
        status = nd__rule_give(call, 0, nd_retain(nd__rules_output_grad(call)));
    if (call->wanted[1] && status == ND_OK)
        status = nd__rule_give(call, 1,
                               nd_mul_scalar(nd__rules_output_grad(call), call->node->attrs.f[0]));
    return status;
}

/// a - b floor(a / b): g, -g floor(a / b)
nd_status nd__rule_remainder(const nd_rule_call *call) {
    nd_status status = ND_OK;
    if (call->wanted[0])
        status = nd__rule_give(call, 0, nd_retain(nd__rules_output_grad(call)));
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
        nd_auto nd_tensor *b = nd__record_saved(call->node, 1);
        nd_auto nd_tensor *whole = nd_floor_divide(a, b);
        nd_auto nd_tensor *slope = nd_neg(whole);
        status = nd__rule_give(call, 1, nd_mul(nd__rules_output_grad(call), slope));
    }
    return status;
}

/// g b / (a^2 + b^2), -g a / (a^2 + b^2), by the root of the sum: squares may be more, or less, than
/// the dtype holds.
nd_status nd__rule_atan2(const nd_rule_call *call) {
    nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *b = nd__record_saved(call->node, 1);
    nd_auto nd_tensor *root = distance(a, b);
    nd_status status = ND_OK;
    if (call->wanted[0]) {
        nd_auto nd_tensor *cosine = nd_div(b, root);
        nd_auto nd_tensor *slope = nd_div(cosine, root);
        status = nd__rule_give(call, 0, nd_mul(nd__rules_output_grad(call), slope));
    }
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *sine = nd_div(a, root);
        nd_auto nd_tensor *slope = nd_div(sine, root);
        nd_auto nd_tensor *product = nd_mul(nd__rules_output_grad(call), slope);
        status = nd__rule_give(call, 1, nd_neg(product));
    }
    return status;
}

/// g a / y, g b / y
nd_status nd__rule_hypot(const nd_rule_call *call) {
    nd_auto nd_tensor *y = nd__record_saved(call->node, 2);
    nd_status status = ND_OK;
    for (uint32_t i = 0; i < 2 && status == ND_OK; i++)
        if (call->wanted[i]) {
            nd_auto nd_tensor *x = nd__record_saved(call->node, i);
            nd_auto nd_tensor *slope = nd_div(x, y);
            status = nd__rule_give(call, i, nd_mul(nd__rules_output_grad(call), slope));
        }
    return status;
}

/// g sigmoid(a - b), g sigmoid(b - a)
nd_status nd__rule_logaddexp(const nd_rule_call *call) {
    nd_status status = ND_OK;
    for (uint32_t i = 0; i < 2 && status == ND_OK; i++)
        if (call->wanted[i]) {
            nd_auto nd_tensor *x = nd__record_saved(call->node, i);
            nd_auto nd_tensor *other = nd__record_saved(call->node, 1 - i);
            nd_auto nd_tensor *difference = nd_sub(x, other);
            nd_auto nd_tensor *share = nd_sigmoid(difference);
            status = nd__rule_give(call, i, nd_mul(nd__rules_output_grad(call), share));
        }
    return status;
}

/// g where the sign stayed, -g where it changed, 0 where a is 0; 0 for b
nd_status nd__rule_copysign(const nd_rule_call *call) {
    nd_status status = ND_OK;
    if (call->wanted[0]) {
        nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
        nd_auto nd_tensor *y = nd__record_saved(call->node, 1);
        nd_auto nd_tensor *before = nd_sign(a);
        nd_auto nd_tensor *after = nd_sign(y);
        nd_auto nd_tensor *factor = nd_mul(before, after);
        status = nd__rule_give(call, 0, nd_mul(nd__rules_output_grad(call), factor));
    }
    if (call->wanted[1] && status == ND_OK)
        status = nd__rule_give(call, 1, nd_zeros_like(nd__rules_output_grad(call)));
    return status;
}

/// where(condition, a, b): g where the operand was taken, 0 elsewhere.
nd_status nd__rule_where(const nd_rule_call *call) {
    nd_auto nd_tensor *condition = nd__record_saved(call->node, 0);
    nd_status status = ND_OK;
    if (call->wanted[1])
        status =
            nd__rule_give(call, 1, nd__rules_zero_unless(condition, nd__rules_output_grad(call)));
    if (call->wanted[2] && status == ND_OK) {
        nd_auto nd_tensor *otherwise = nd_logical_not(condition);
        status =
            nd__rule_give(call, 2, nd__rules_zero_unless(otherwise, nd__rules_output_grad(call)));
    }
    return status;
}

// -------------------------------------------------------------------------------------------------

/// sqrt(a^2 + b^2); infinity where both are 0, so that what is divided by it is 0, and its gradients of
/// every order are. 1 takes the place of a there: the root of 0 has no derivative.
static nd_tensor *distance(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *zero = nd__rules_constant(a, a ? a->dtype : ND_F32, 0.0);
    nd_auto nd_tensor *one = nd__rules_constant(a, a ? a->dtype : ND_F32, 1.0);
    nd_auto nd_tensor *infinity = nd__rules_constant(a, a ? a->dtype : ND_F32, (double)INFINITY);
    nd_auto nd_tensor *no_a = nd_equal(a, zero);
    nd_auto nd_tensor *no_b = nd_equal(b, zero);
    nd_auto nd_tensor *neither = nd_logical_and(no_a, no_b);
    nd_auto nd_tensor *safe = nd_where(neither, one, a);
    nd_auto nd_tensor *root = nd_hypot(safe, b);
    return nd_where(neither, infinity, root);
}

static nd_status give_quotient_gradient(const nd_rule_call *call, const nd_tensor *a,
                                        const nd_tensor *b) {
    nd_auto nd_tensor *quotient = nd_div(a, b);
    nd_auto nd_tensor *slope = nd_div(quotient, b);
    nd_auto nd_tensor *product = nd_mul(nd__rules_output_grad(call), slope);
    return nd__rule_give(call, 1, nd_neg(product));
}

/// b a^(b-1), where an a^-1 that is not finite would make 0 inf of it: 1 takes the place of a there,
/// and the slope is 0.
static nd_status give_base_gradient(const nd_rule_call *call, const nd_tensor *a,
                                    const nd_tensor *b) {
    nd_auto nd_tensor *zero = nd__rules_constant(a, a ? a->dtype : ND_F32, 0.0);
    nd_auto nd_tensor *one = nd__rules_constant(a, a ? a->dtype : ND_F32, 1.0);
    nd_auto nd_tensor *neither = NULL;
    nd_no_grad {
        nd_auto nd_tensor *inverse = nd_reciprocal(a);
        nd_auto nd_tensor *is_finite = nd_isfinite(inverse);
        nd_auto nd_tensor *no_base = nd_logical_not(is_finite);
        nd_auto nd_tensor *no_exponent = nd_equal(b, zero);
        neither = nd_logical_and(no_base, no_exponent);
    }
    nd_auto nd_tensor *base = nd_where(neither, one, a);
    nd_auto nd_tensor *lower = nd_add_scalar(b, -1.0);
    nd_auto nd_tensor *power = nd_pow(base, lower);
    nd_auto nd_tensor *slope = nd_mul(b, power);
    return nd__rule_give(call, 0, nd_mul(nd__rules_output_grad(call), slope));
}

/// a^b log(a), and 0 where a is 0 and b is not below it: 1 takes the place of a there, so that nothing,
/// the logarithm's own gradient included, is infinite.
static nd_status give_exponent_gradient(const nd_rule_call *call, const nd_tensor *a,
                                        const nd_tensor *b) {
    nd_auto nd_tensor *zero = nd__rules_constant(a, a ? a->dtype : ND_F32, 0.0);
    nd_auto nd_tensor *one = nd__rules_constant(a, a ? a->dtype : ND_F32, 1.0);
    nd_auto nd_tensor *at_zero = nd_equal(a, zero);
    nd_auto nd_tensor *not_below = nd_greater_equal(b, zero);
    nd_auto nd_tensor *no_base = nd_logical_and(at_zero, not_below);
    nd_auto nd_tensor *base = nd_where(no_base, one, a);
    nd_auto nd_tensor *logarithm = nd_log(base);
    nd_auto nd_tensor *power = nd_pow(base, b);
    nd_auto nd_tensor *slope = nd_mul(power, logarithm);
    return nd__rule_give(call, 1, nd_mul(nd__rules_output_grad(call), slope));
}

/// Of maximum(a, b), `larger` is the input that gets g where it is the larger one: 0 of 0, 1. Both
/// get half where they are equal.
static nd_status give_shares(const nd_rule_call *call, uint32_t larger, uint32_t smaller) {
    const nd_tensor *g = nd__rules_output_grad(call);
    nd_auto nd_tensor *first = nd__record_saved(call->node, larger);
    nd_auto nd_tensor *second = nd__record_saved(call->node, smaller);
    nd_status status = ND_OK;
    if (call->wanted[0]) {
        nd_auto nd_tensor *share = share_of(first, second, g->dtype);
        status = nd__rule_give(call, 0, nd_mul(g, share));
    }
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *share = share_of(second, first, g->dtype);
        status = nd__rule_give(call, 1, nd_mul(g, share));
    }
    return status;
}

/// 1 where `larger` is greater, 1/2 where both are equal, else 0; 1 where one is NaN. A constant:
/// nothing to record.
static nd_tensor *share_of(const nd_tensor *larger, const nd_tensor *smaller, nd_dtype dtype) {
    nd_tensor *share = NULL;
    nd_no_grad {
        nd_auto nd_tensor *less = nd_less(larger, smaller);
        nd_auto nd_tensor *not_greater = nd_less_equal(larger, smaller);
        nd_auto nd_tensor *first = nd_cast(less, dtype);
        nd_auto nd_tensor *second = nd_cast(not_greater, dtype);
        nd_auto nd_tensor *sum = nd_add(first, second);
        nd_auto nd_tensor *lost = nd_mul_scalar(sum, -0.5);
        share = nd_add_scalar(lost, 1.0);
    }
    return share;
}
