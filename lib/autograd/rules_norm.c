// The gradient rules of normalisation, of x as [samples, groups, channels of a group, places]. g is the
// gradient of the result, w g times the weight, y (x - mean) / deviation.
//
// Unrecorded, layer_norm's is one kernel; recorded it is written with operations.
#include "lib/autograd/rules.h"
#include "lib/ops/norm.h"
#include "lib/tensor/record.h"

/// x's axes as a rule sees them, and over which a set's mean and a channel's sum go.
typedef struct norm_axes {
    int64_t x[4];         ///< [samples, groups, channels, places]
    int64_t parameter[4]; ///< [1, groups, channels, 1]
    int set[3], nset;
    int channel[2];
} norm_axes;

static norm_axes axes_of(const nd_op_attrs *attrs) {
    int64_t groups = attrs->i[3] > 0 ? attrs->i[3] : attrs->i[1];
    int64_t channels = groups > 0 ? attrs->i[1] / groups : 0;
    norm_axes axes = {.x = {attrs->i[0], groups, channels, attrs->i[2]},
                      .parameter = {1, groups, channels, 1},
                      .set = {2, 3, 0},
                      .nset = attrs->i[3] > 0 ? 2 : 3,
                      .channel = {0, 3}};
    return axes;
}

/// x, its weight and the gradient in these axes, and what follows from x: x - mean, or x where the
/// mean was not taken away, and the inverse of the deviation.
typedef struct norm_parts {
    norm_axes axes;
    nd_tensor *g, *weight, *center, *inverse;
} norm_parts;

static void release_parts(norm_parts *parts) {
    nd_release(parts->g);
    nd_release(parts->weight);
    nd_release(parts->center);
    nd_release(parts->inverse);
}

static nd_status make_parts(const nd_rule_call *call, const nd_tensor *x, const nd_tensor *weight,
                            norm_parts *parts) {
    const nd_op_attrs *attrs = &call->node->attrs;
    norm_axes axes = axes_of(attrs);
    parts->axes = axes;
    nd_auto nd_tensor *seen = nd_reshape(x, 4, axes.x);
    nd_auto nd_tensor *mean = attrs->i[4] ? nd_mean(seen, axes.nset, axes.set, true) : NULL;
    parts->center = attrs->i[4] ? nd_sub(seen, mean) : nd_retain(seen);
    nd_auto nd_tensor *square = nd_square(parts->center);
    nd_auto nd_tensor *variance = nd_mean(square, axes.nset, axes.set, true);
    nd_auto nd_tensor *shifted = nd_add_scalar(variance, attrs->f[0]);
    parts->inverse = nd_rsqrt(shifted);
    parts->g = nd_reshape(nd__rules_output_grad(call), 4, axes.x);
    parts->weight = weight ? nd_reshape(weight, 4, axes.parameter) : NULL;
    return parts->inverse && parts->g && (parts->weight || !weight) ? ND_OK : nd_error_get_status();
}

/// (w - mean of w - y mean of (w y)) / deviation; the mean of w counts where x's was taken away.
static nd_tensor *input_gradient(const nd_rule_call *call, const norm_parts *parts) {
    const norm_axes *axes = &parts->axes;
    nd_auto nd_tensor *w = parts->weight ? nd_mul(parts->g, parts->weight) : nd_retain(parts->g);
    nd_auto nd_tensor *y = nd_mul(parts->center, parts->inverse);
    nd_auto nd_tensor *product = nd_mul(w, y);
    nd_auto nd_tensor *along = nd_mean(product, axes->nset, axes->set, true);
    nd_auto nd_tensor *part = nd_mul(y, along);
    nd_auto nd_tensor *rest = nd_sub(w, part);
    if (call->node->attrs.i[4]) {
        nd_auto nd_tensor *mean = nd_mean(w, axes->nset, axes->set, true);
        nd_tensor *centered = nd_sub(rest, mean);
        nd_release(rest);
        rest = centered;
    }
    return nd_mul(rest, parts->inverse);
}

/// Gives an input a gradient that has as many elements.
static nd_status give_shaped(const nd_rule_call *call, uint32_t input, const nd_tensor *gradient) {
    const nd_node_input *expected = &call->node->inputs[input];
    return nd__rule_give(call, input, nd_reshape(gradient, expected->ndim, expected->shape));
}

static nd_status give_recorded(const nd_rule_call *call, const nd_tensor *x,
                               const nd_tensor *weight) {
    __attribute__((cleanup(release_parts))) norm_parts parts = {0};
    nd_status status = make_parts(call, x, weight, &parts);
    if (call->wanted[0] && status == ND_OK) {
        nd_auto nd_tensor *gradient = input_gradient(call, &parts);
        status = give_shaped(call, 0, gradient);
    }
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *y = nd_mul(parts.center, parts.inverse);
        nd_auto nd_tensor *product = nd_mul(parts.g, y);
        nd_auto nd_tensor *sum = nd_sum(product, 2, parts.axes.channel, false);
        status = give_shaped(call, 1, sum);
    }
    if (call->wanted[2] && status == ND_OK) {
        nd_auto nd_tensor *sum = nd_sum(parts.g, 2, parts.axes.channel, false);
        status = give_shaped(call, 2, sum);
    }
    return status;
}

/// One of two rows of sums, as a tensor of its own.
static nd_status give_sum(const nd_rule_call *call, uint32_t input, const nd_tensor *sums) {
    nd_auto nd_tensor *row = nd_select(sums, (int64_t)input - 1, 0);
    nd_auto nd_tensor *own = nd_clone(row);
    return give_shaped(call, input, own);
}

static nd_status give_in_one(const nd_rule_call *call, const nd_tensor *x,
                             const nd_tensor *weight) {
    nd_auto nd_tensor *gradient = NULL, *sums = NULL;
    bool wants_sums = call->wanted[1] || call->wanted[2];
    nd_status status = nd__norm_grad(nd__rules_output_grad(call), x, weight, &call->node->attrs,
                                     call->wanted[0] ? &gradient : NULL, wants_sums ? &sums : NULL);
    if (call->wanted[0] && status == ND_OK)
        status = nd__rule_give(call, 0, nd_steal(&gradient));
    for (uint32_t input = 1; input < 3 && status == ND_OK; input++)
        if (call->wanted[input])
            status = give_sum(call, input, sums);
    return status;
}

nd_status nd__rule_layer_norm(const nd_rule_call *call) {
    bool weighted = call->node->attrs.i[5] != 0;
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *weight = weighted ? nd__record_saved(call->node, 1) : NULL;
    if (!x || (weighted && !weight))
        return nd_error_get_status();
    return nd_is_grad_enabled() ? give_recorded(call, x, weight) : give_in_one(call, x, weight);
}

// -------------------------------------------------------------------------------------------------
// statistics that are given: y = (x - mean) r, where r is 1 / root of (variance + epsilon)

/// -1/2 g w (x - mean) r^3 summed, and -g w r: the gradients of variance and mean, [2, channels].
static nd_tensor *statistics_gradient(const nd_tensor *of_y, const nd_tensor *center,
                                      const nd_tensor *inverse, const norm_axes *axes) {
    nd_auto nd_tensor *along = nd_mul(of_y, center);
    nd_auto nd_tensor *products = nd_sum(along, 2, axes->channel, false);
    nd_auto nd_tensor *sums = nd_sum(of_y, 2, axes->channel, false);
    nd_auto nd_tensor *flat = nd_reshape(inverse, 1, (const int64_t[]){axes->x[1]});
    nd_auto nd_tensor *of_products = nd_reshape(products, 1, (const int64_t[]){axes->x[1]});
    nd_auto nd_tensor *of_sums = nd_reshape(sums, 1, (const int64_t[]){axes->x[1]});
    nd_auto nd_tensor *square = nd_square(flat);
    nd_auto nd_tensor *cube = nd_mul(square, flat);
    nd_auto nd_tensor *steep = nd_mul(of_products, cube);
    nd_auto nd_tensor *of_variance = nd_mul_scalar(steep, -0.5);
    nd_auto nd_tensor *falling = nd_mul(of_sums, flat);
    nd_auto nd_tensor *of_mean = nd_neg(falling);
    const nd_tensor *both[] = {of_mean, of_variance};
    return of_mean && of_variance ? nd_stack(2, both, 0) : NULL;
}

/// The parts, the center only where it is asked for.
static nd_status make_given(const nd_rule_call *call, norm_parts *parts) {
    nd_op_attrs attrs = call->node->attrs;
    bool weighted = attrs.i[5] != 0;
    attrs.i[3] = 0;
    norm_axes axes = axes_of(&attrs);
    parts->axes = axes;
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *weight = weighted ? nd__record_saved(call->node, 1) : NULL;
    nd_auto nd_tensor *statistics = nd__record_saved(call->node, 2);
    if (!x || !statistics || (weighted && !weight))
        return nd_error_get_status();
    nd_auto nd_tensor *variance = nd_select(statistics, 1, 0);
    nd_auto nd_tensor *shifted = nd_add_scalar(variance, attrs.f[0]);
    nd_auto nd_tensor *root = nd_rsqrt(shifted);
    parts->inverse = nd_reshape(root, 4, axes.parameter);
    parts->weight = weighted ? nd_reshape(weight, 4, axes.parameter) : NULL;
    parts->g = nd_reshape(nd__rules_output_grad(call), 4, axes.x);
    if (call->wanted[1] || call->wanted[2]) {
        nd_auto nd_tensor *seen = nd_reshape(x, 4, axes.x);
        nd_auto nd_tensor *mean = nd_select(statistics, 0, 0);
        nd_auto nd_tensor *means = nd_reshape(mean, 4, axes.parameter);
        parts->center = nd_sub(seen, means);
        if (!parts->center)
            return nd_error_get_status();
    }
    bool made = parts->inverse && parts->g && (parts->weight || !weighted);
    return made ? ND_OK : nd_error_get_status();
}

/// x, weight, statistics, bias.
nd_status nd__rule_channel_norm(const nd_rule_call *call) {
    __attribute__((cleanup(release_parts))) norm_parts parts = {0};
    nd_status status = make_given(call, &parts);
    if (call->wanted[0] && status == ND_OK) {
        nd_auto nd_tensor *factor =
            parts.weight ? nd_mul(parts.inverse, parts.weight) : nd_retain(parts.inverse);
        nd_auto nd_tensor *gradient = nd_mul(parts.g, factor);
        status = give_shaped(call, 0, gradient);
    }
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *y = nd_mul(parts.center, parts.inverse);
        nd_auto nd_tensor *product = nd_mul(parts.g, y);
        nd_auto nd_tensor *sum = nd_sum(product, 2, parts.axes.channel, false);
        status = give_shaped(call, 1, sum);
    }
    if (call->wanted[2] && status == ND_OK) {
        nd_auto nd_tensor *of_y = parts.weight ? nd_mul(parts.g, parts.weight) : nd_retain(parts.g);
        status = nd__rule_give(call, 2,
                               statistics_gradient(of_y, parts.center, parts.inverse, &parts.axes));
    }
    if (call->wanted[3] && status == ND_OK) {
        nd_auto nd_tensor *sum = nd_sum(parts.g, 2, parts.axes.channel, false);
        status = give_shaped(call, 3, sum);
    }
    return status;
}
