// What the files with gradient rules share: the rules' declarations, made from ops.inc.
//
// Rules are written with differentiable operations, so that they can be differentiated themselves:
// with recording on, whatever depends on a gradient or on a saved tensor must be recorded. Only
// what is piecewise constant (masks, signs, counts) may be computed inside nd_no_grad. NULL
// propagates through a rule; nd__rule_give turns it into the status.
#ifndef ND_LIB_AUTOGRAD_RULES_H
#define ND_LIB_AUTOGRAD_RULES_H
#include "lib/autograd/autograd.h"

#define ND__DECLARE_RULE_YES(name) nd_status nd__rule_##name(const nd_rule_call *call);
#define ND__DECLARE_RULE_NO(name)
#define ND__DECLARE_RULE_ZERO(name)
#define ND_OP(name, family, inputs, differentiable, saves) ND__DECLARE_RULE_##differentiable(name)
#include "kernels/ops.inc"
#undef ND_OP

/// The gradient of the one output.
static inline const nd_tensor *nd__rules_output_grad(const nd_rule_call *call) {
    return call->grads[0];
}

/// Gives the one input the product of the output's gradient and `factor`, which may be NULL after a
/// failure.
static inline nd_status nd__rules_give_product(const nd_rule_call *call, const nd_tensor *factor) {
    return nd__rule_give(call, 0, nd_mul(nd__rules_output_grad(call), factor));
}
#endif
