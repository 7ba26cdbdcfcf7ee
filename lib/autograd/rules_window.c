// Gradient rules of what moves windows over images: convolution, pooling, interpolation, unfolding.
#include "lib/autograd/rules.h"
#include "lib/ops/conv.h"
#include "lib/ops/fold.h"
#include "lib/ops/index.h"
#include "lib/ops/pool.h"
#include "lib/ops/resample.h"
#include "lib/tensor/record.h"

static nd__conv_geometry geometry_of(const nd_rule_call *call);
static nd_tensor *grad_input(const nd_rule_call *call, const nd_tensor *grad,
                             const nd_tensor *weight, const nd_node_input *input);
static nd_tensor *grad_weight(const nd_rule_call *call, const nd_tensor *x, const nd_tensor *grad,
                              const nd_node_input *weight);
static nd_tensor *convolve(const nd_rule_call *call, const nd_tensor *x, const nd_tensor *weight);
static nd_status give_bias(const nd_rule_call *call);

// -------------------------------------------------------------------------------------------------
// convolution: the three of them are the derivatives of one trilinear form

/// out = conv(x, weight) + bias
nd_status nd__rule_conv(const nd_rule_call *call) {
    const nd_node_input *inputs = call->node->inputs;
    nd_status status = ND_OK;
    if (call->wanted[0]) {
        nd_auto nd_tensor *weight = nd__record_saved(call->node, 1);
        status = nd__rule_give(call, 0,
                               grad_input(call, nd__rules_output_grad(call), weight, &inputs[0]));
    }
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
        status =
            nd__rule_give(call, 1, grad_weight(call, x, nd__rules_output_grad(call), &inputs[1]));
    }
    return status == ND_OK ? give_bias(call) : status;
}

/// out (as x) = conv_grad_input(grad, weight) + bias, the transposed convolution of grad
nd_status nd__rule_conv_grad_input(const nd_rule_call *call) {
    nd_status status = ND_OK;
    if (call->wanted[0]) {
        nd_auto nd_tensor *weight = nd__record_saved(call->node, 1);
        status = nd__rule_give(call, 0, convolve(call, nd__rules_output_grad(call), weight));
    }
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *grad = nd__record_saved(call->node, 0);
        status = nd__rule_give(
            call, 1, grad_weight(call, nd__rules_output_grad(call), grad, &call->node->inputs[1]));
    }
    return status == ND_OK ? give_bias(call) : status;
}

/// out (as weight) = conv_grad_weight(x, grad)
nd_status nd__rule_conv_grad_weight(const nd_rule_call *call) {
    nd_status status = ND_OK;
    if (call->wanted[0]) {
        nd_auto nd_tensor *grad = nd__record_saved(call->node, 1);
        status = nd__rule_give(
            call, 0, grad_input(call, grad, nd__rules_output_grad(call), &call->node->inputs[0]));
    }
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
        status = nd__rule_give(call, 1, convolve(call, x, nd__rules_output_grad(call)));
    }
    return status;
}

// -------------------------------------------------------------------------------------------------
// linear maps: each pair is each other's transpose

nd_status nd__rule_unfold(const nd_rule_call *call) {
    const int64_t *shape = call->node->inputs[0].shape;
    return nd__rule_give(
        call, 0,
        nd__fold_fold(nd__rules_output_grad(call), shape[2], shape[3], &call->node->attrs));
}

nd_status nd__rule_fold(const nd_rule_call *call) {
    return nd__rule_give(call, 0, nd__fold_unfold(nd__rules_output_grad(call), &call->node->attrs));
}

nd_status nd__rule_resample(const nd_rule_call *call) {
    return nd__rule_give(call, 0,
                         nd__resample_apply("resample_adjoint", ND_OP_resample_adjoint,
                                            nd__rules_output_grad(call),
                                            call->node->inputs[0].shape, &call->node->attrs));
}

nd_status nd__rule_resample_adjoint(const nd_rule_call *call) {
    return nd__rule_give(call, 0,
                         nd__resample_apply("resample", ND_OP_resample, nd__rules_output_grad(call),
                                            call->node->inputs[0].shape, &call->node->attrs));
}

// -------------------------------------------------------------------------------------------------

/// [n, c, all other axes in one] of a node's input or output.
static void flatten(const nd_node_input *x, int64_t *ret_shape) {
    ret_shape[0] = x->shape[0];
    ret_shape[1] = x->shape[1];
    ret_shape[2] = 1;
    for (int i = 2; i < x->ndim; i++)
        ret_shape[2] *= x->shape[i];
}

/// g goes to the position of each window's maximum; windows that share one add up. Unrecorded it is one
/// kernel where the device has that.
nd_status nd__rule_max_pool(const nd_rule_call *call) {
    if (!call->wanted[0])
        return ND_OK;
    const nd_node_input *x = &call->node->inputs[0];
    nd_auto nd_tensor *positions = nd__record_saved(call->node, 0);
    const nd_tensor *grad = nd__rules_output_grad(call);
    if (positions && grad && !nd_is_grad_enabled()) {
        nd_tensor *gradient = NULL;
        nd_status status =
            nd__pool_max_grad(grad, positions, &call->node->attrs, x->shape, &gradient);
        if (status != ND_ERROR_UNSUPPORTED)
            return status == ND_OK ? nd__rule_give(call, 0, gradient) : status;
    }
    int64_t windows[3];
    int64_t flat[3];
    flatten(x, flat);
    flatten(&call->node->outputs[0], windows);
    nd_auto nd_tensor *index = nd_reshape(positions, 3, windows);
    nd_auto nd_tensor *source = nd_reshape(grad, 3, windows);
    nd_auto nd_tensor *sums = nd__index_scatter_zeros(source, index, 2, 3, flat);
    return nd__rule_give(call, 0, nd_reshape(sums, x->ndim, x->shape));
}

/// Of the convolution that the node recorded, whichever of the three it is.
static nd__conv_geometry geometry_of(const nd_rule_call *call) {
    const int64_t *i = call->node->attrs.i;
    nd__conv_geometry geometry = {.groups = i[9]};
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        geometry.stride[axis] = i[axis];
        geometry.padding[axis] = i[3 + axis];
        geometry.dilation[axis] = i[6 + axis];
    }
    return geometry;
}

static nd_tensor *grad_input(const nd_rule_call *call, const nd_tensor *grad,
                             const nd_tensor *weight, const nd_node_input *input) {
    nd__conv_geometry geometry = geometry_of(call);
    return nd__conv_grad_input(grad, weight, input->shape, &geometry);
}

static nd_tensor *grad_weight(const nd_rule_call *call, const nd_tensor *x, const nd_tensor *grad,
                              const nd_node_input *weight) {
    nd__conv_geometry geometry = geometry_of(call);
    return nd__conv_grad_weight(x, grad, weight->shape, &geometry);
}

static nd_tensor *convolve(const nd_rule_call *call, const nd_tensor *x, const nd_tensor *weight) {
    nd__conv_geometry geometry = geometry_of(call);
    return nd__conv_forward(x, weight, &geometry);
}

/// g summed over all but the channels, if there is a bias.
static nd_status give_bias(const nd_rule_call *call) {
    if (call->node->ninputs < 3 || !call->wanted[2])
        return ND_OK;
    const nd_tensor *g = nd__rules_output_grad(call);
    const int axes[] = {0, 2, 3, 4};
    return nd__rule_give(call, 2, nd_sum(g, g->ndim - 1, axes, false));
}
