// The table of gradient rules, made from ops.inc, and what rules share. A row marked YES names its
// rule here, so that a missing rule does not link.
#include "lib/autograd/rules.h"
#include "lib/base/error.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/reduce.h"
#include "lib/tensor/record.h"

/// No row may say NO.
__attribute__((unused)) static nd_status rule_not_differentiable(const nd_rule_call *call);

#define RULE_YES(name) nd__rule_##name
#define RULE_NO(name) rule_not_differentiable
#define RULE_ZERO(name) NULL
/// NULL for rows marked ZERO, which are never recorded.
static const nd_rule rules[ND_OP_COUNT] = {
#define ND_OP(name, family, inputs, differentiable, saves) \
    [ND_OP_##name] = RULE_##differentiable(name),
#include "kernels/ops.inc"
#undef ND_OP
};

static const uint16_t derivatives[ND_OP_COUNT] = {
#define ND_DERIVATIVE(name, ...) [ND_OP_##name] = ND_OP_##name##_grad,
#include "kernels/ops.inc"
};

nd_status nd__rules_run(const nd_rule_call *call) {
    const nd_node *node = call->node;
    nd_op derivative = (nd_op)derivatives[node->op];
    if (derivative == ND_OP_none || nd_is_grad_enabled())
        return rules[node->op](call);
    nd_auto nd_tensor *saved = nd__record_saved(node, 0);
    const nd_tensor *g = nd__rules_output_grad(call);
    return nd__rule_give(call, 0, nd__elementwise_derivative(derivative, g, saved, &node->attrs));
}

nd_status nd__rule_give(const nd_rule_call *call, uint32_t input, nd_tensor *gradient) {
    nd_auto nd_tensor *given = gradient;
    if (!given)
        return nd_error_get_status();
    const nd_node_input *expected = &call->node->inputs[input];
    bool fits = given->ndim == expected->ndim;
    for (int i = 0; fits && i < given->ndim; i++)
        fits = given->shape[i] == expected->shape[i];
    if (!fits) {
        nd_tensor *sum = nd__reduce_sum_to(given, expected->ndim, expected->shape);
        nd_release(given);
        given = sum;
    }
    if (given && given->dtype != expected->dtype) {
        nd_tensor *converted = nd_cast(given, expected->dtype);
        nd_release(given);
        given = converted;
    }
    if (!given)
        return nd_error_get_status();
    call->ret_grads[input] = nd_steal(&given);
    return ND_OK;
}

nd_tensor *nd__rules_wide_half(const nd_tensor *x) {
    return x && nd__dtype_is_half(x->dtype) ? nd_cast(x, ND_F32) : nd_retain(x);
}

nd_tensor *nd__rules_constant(const nd_tensor *like, nd_dtype dtype, double value) {
    if (!like)
        return NULL;
    nd_auto nd_tensor *constant =
        nd__tensor_result("constant", &like, 1, like->device, dtype, 0, NULL);
    if (!constant || nd_fill_(constant, value) != ND_OK)
        return NULL;
    return nd_steal(&constant);
}

nd_tensor *nd__rules_limit(const nd_tensor *x, double value) {
    return x ? nd__rules_constant(x, nd__dtype_is_half(x->dtype) ? ND_F32 : x->dtype, value) : NULL;
}

nd_tensor *nd__rules_zero_unless(const nd_tensor *mask, const nd_tensor *x) {
    if (!mask || !x)
        return NULL;
    nd_auto nd_tensor *zero = nd__rules_constant(x, x->dtype, 0.0);
    return nd_where(mask, x, zero);
}

nd_tensor *nd__rules_zeros_of(const nd_tensor *like, const nd_node_input *input) {
    if (!like)
        return NULL;
    nd_auto nd_tensor *zeros = nd__tensor_result("zeros", &like, 1, input->device, input->dtype,
                                                 input->ndim, input->shape);
    if (!zeros || nd_fill_(zeros, 0.0) != ND_OK)
        return NULL;
    return nd_steal(&zeros);
}

static nd_status rule_not_differentiable(const nd_rule_call *call) {
    return nd__error(ND_ERROR_NOT_DIFFERENTIABLE, "%s: this operation has no gradient",
                     nd__node_op_name(call->node->op));
}
