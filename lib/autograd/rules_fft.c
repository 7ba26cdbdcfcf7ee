// Gradient rules of Fourier transforms, which are linear maps: the gradient is the adjoint, another
// such map (lib/ops/fft.h), so it has gradients of every order itself.
//
// Turned around, a transform has the other sign and as many results as the input had places. What
// nd_irfft reads twice, as itself and as its conjugate, counts twice in its adjoint; what nd_rfft
// leaves out because it is a conjugate counts half in its adjoint, an irfft.
#include "lib/autograd/rules.h"
#include "lib/ops/fft.h"

/// Gives the map `op` of the gradient, whose inner places count `factor` times what they did.
static nd_status give_adjoint(const nd_rule_call *call, nd_op op, double factor) {
    const nd_op_attrs *attrs = &call->node->attrs;
    int axis = (int)attrs->i[0];
    const nd__fft_map adjoint = {
        .op = op,
        .axis = axis,
        .n = attrs->i[1],
        .places = call->node->inputs[0].shape[axis],
        .sign = -(int)attrs->i[2],
        .scale = attrs->f[0],
        .weight = attrs->f[1] * factor,
    };
    const nd_tensor *g = nd__rules_output_grad(call);
    return nd__rule_give(call, 0, nd__fft_along(nd__op_infos[op].name, g, &adjoint));
}

nd_status nd__rule_fft(const nd_rule_call *call) {
    return give_adjoint(call, ND_OP_fft, 1);
}

nd_status nd__rule_rfft(const nd_rule_call *call) {
    return give_adjoint(call, ND_OP_irfft, 0.5);
}

nd_status nd__rule_irfft(const nd_rule_call *call) {
    return give_adjoint(call, ND_OP_rfft, 2);
}
