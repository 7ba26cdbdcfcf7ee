// The gradient rules of normalisation, of x as [samples, groups, channels of a group, places]. g is the
// gradient of the result, w g times the weight, y (x - mean) / deviation.
//
// Unrecorded, each is one kernel; recorded it is written with operations.
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
    nd_auto nd_tensor *wide = nd__rules_wide_half(x);
    nd_auto nd_tensor *seen = nd_reshape(wide, 4, axes.x);
    nd_auto nd_tensor *mean = attrs->i[4] ? nd_mean(seen, axes.nset, axes.set, true) : NULL;
    parts->center = attrs->i[4] ? nd_sub(seen, mean) : nd_retain(seen);
    nd_auto nd_tensor *square = nd_square(parts->center);
    nd_auto nd_tensor *variance = nd_mean(square, axes.nset, axes.set, true);
    nd_auto nd_tensor *shifted = nd_add_scalar(variance, attrs->f[0]);
    parts->inverse = nd_rsqrt(shifted);
    nd_auto nd_tensor *g = nd__rules_wide_half(nd__rules_output_grad(call));
    parts->g = nd_reshape(g, 4, axes.x);
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
static nd_status give_sum(const nd_rule_call *call, uint32_t input, const nd_tensor *sums,
                          int64_t index) {
    nd_auto nd_tensor *row = nd_select(sums, index, 0);
    nd_auto nd_tensor *own = nd_clone(row);
    return give_shaped(call, input, own);
}

static nd_status give_in_one(const nd_rule_call *call, const nd_tensor *x,
                             const nd_tensor *weight) {
    nd_auto nd_tensor *gradient = NULL, *sums = NULL;
    bool wants_sums = call->wanted[1] || call->wanted[2];
    nd_status status =
        nd__norm_grad(nd__rules_output_grad(call), x, weight, NULL, &call->node->attrs,
                      call->wanted[0] ? &gradient : NULL, wants_sums ? &sums : NULL);
    if (call->wanted[0] && status == ND_OK)
        status = nd__rule_give(call, 0, nd_steal(&gradient));
    for (uint32_t input = 1; input < 3 && status == ND_OK; input++)
        if (call->wanted[input])
            status = give_sum(call, input, sums, (int64_t)input - 1);
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

/// The inputs of channel_norm; weight may be NULL.
typedef struct given {
    nd_tensor *x, *weight, *statistics;
    nd_tensor *inverse; ///< r, [channels]
} given;

static void release_given(given *of) {
    nd_release(of->x);
    nd_release(of->weight);
    nd_release(of->statistics);
    nd_release(of->inverse);
}

static nd_status get_given(const nd_rule_call *call, given *ret_given) {
    bool weighted = call->node->attrs.i[5] != 0;
    ret_given->x = nd__record_saved(call->node, 0);
    ret_given->weight = weighted ? nd__record_saved(call->node, 1) : NULL;
    ret_given->statistics = nd__record_saved(call->node, 2);
    bool got = ret_given->x && ret_given->statistics && (ret_given->weight || !weighted);
    return got ? ND_OK : nd_error_get_status();
}

/// Where a rule computes with it.
static nd_status make_inverse(const nd_rule_call *call, given *of) {
    nd_auto nd_tensor *variance = nd_select(of->statistics, 1, 0);
    nd_auto nd_tensor *shifted = nd_add_scalar(variance, call->node->attrs.f[0]);
    of->inverse = nd_rsqrt(shifted);
    return of->inverse ? ND_OK : nd_error_get_status();
}

/// r w, which is r where there is no weight.
static nd_tensor *slope_of(const given *of) {
    return of->weight ? nd_mul(of->inverse, of->weight) : nd_retain(of->inverse);
}

/// Of mean and variance, [2, channels], from the sums of g y and of g: -r w (sum of g) and
/// -1/2 r^2 w (sum of g y).
static nd_tensor *statistics_gradient(const given *of, const nd_tensor *along,
                                      const nd_tensor *plain) {
    nd_auto nd_tensor *slope = slope_of(of);
    nd_auto nd_tensor *falling = nd_mul(plain, slope);
    nd_auto nd_tensor *of_mean = nd_neg(falling);
    nd_auto nd_tensor *steep = nd_mul(along, slope);
    nd_auto nd_tensor *steeper = nd_mul(steep, of->inverse);
    nd_auto nd_tensor *of_variance = nd_mul_scalar(steeper, -0.5);
    const nd_tensor *both[] = {of_mean, of_variance};
    return of_mean && of_variance ? nd_stack(2, both, 0) : NULL;
}

static nd_status give_given_in_one(const nd_rule_call *call, given *of) {
    nd_auto nd_tensor *gradient = NULL, *sums = NULL;
    bool wants_sums = call->wanted[1] || call->wanted[2] || call->wanted[3];
    nd_status status = nd__norm_grad(nd__rules_output_grad(call), of->x, of->weight, of->statistics,
                                     &call->node->attrs, call->wanted[0] ? &gradient : NULL,
                                     wants_sums ? &sums : NULL);
    if (call->wanted[0] && status == ND_OK)
        status = nd__rule_give(call, 0, nd_steal(&gradient));
    if (call->wanted[1] && status == ND_OK)
        status = give_sum(call, 1, sums, 0);
    if (call->wanted[3] && status == ND_OK)
        status = give_sum(call, 3, sums, 1);
    if (call->wanted[2] && status == ND_OK)
        status = make_inverse(call, of);
    if (call->wanted[2] && status == ND_OK) {
        nd_auto nd_tensor *along = nd_select(sums, 0, 0);
        nd_auto nd_tensor *plain = nd_select(sums, 1, 0);
        status = nd__rule_give(call, 2, statistics_gradient(of, along, plain));
    }
    return status;
}

/// The sum of g y by channel, recorded.
static nd_tensor *sum_along(const given *of, const nd_tensor *g, const norm_axes *axes) {
    nd_auto nd_tensor *seen = nd_reshape(of->x, 4, axes->x);
    nd_auto nd_tensor *mean = nd_select(of->statistics, 0, 0);
    nd_auto nd_tensor *means = nd_reshape(mean, 4, axes->parameter);
    nd_auto nd_tensor *center = nd_sub(seen, means);
    nd_auto nd_tensor *product = nd_mul(g, center);
    nd_auto nd_tensor *sum = nd_sum(product, 2, axes->channel, false);
    nd_auto nd_tensor *flat = nd_reshape(sum, 1, (const int64_t[]){axes->x[1]});
    return nd_mul(flat, of->inverse);
}

static nd_status give_given_recorded(const nd_rule_call *call, given *of) {
    nd_op_attrs attrs = call->node->attrs;
    attrs.i[3] = 0;
    norm_axes axes = axes_of(&attrs);
    nd_auto nd_tensor *wide = nd__rules_wide_half(nd__rules_output_grad(call));
    nd_auto nd_tensor *g = nd_reshape(wide, 4, axes.x);
    nd_auto nd_tensor *along = NULL, *plain = NULL;
    nd_status status = g ? make_inverse(call, of) : nd_error_get_status();
    if (call->wanted[0] && status == ND_OK) {
        nd_auto nd_tensor *slope = slope_of(of);
        nd_auto nd_tensor *factor = nd_reshape(slope, 4, axes.parameter);
        nd_auto nd_tensor *gradient = nd_mul(g, factor);
        status = give_shaped(call, 0, gradient);
    }
    if ((call->wanted[1] || call->wanted[2]) && status == ND_OK)
        status = (along = sum_along(of, g, &axes)) ? ND_OK : nd_error_get_status();
    if ((call->wanted[2] || call->wanted[3]) && status == ND_OK) {
        nd_auto nd_tensor *sum = nd_sum(g, 2, axes.channel, false);
        plain = nd_reshape(sum, 1, (const int64_t[]){axes.x[1]});
        status = plain ? ND_OK : nd_error_get_status();
    }
    if (call->wanted[1] && status == ND_OK)
        status = give_shaped(call, 1, along);
    if (call->wanted[2] && status == ND_OK)
        status = nd__rule_give(call, 2, statistics_gradient(of, along, plain));
    return call->wanted[3] && status == ND_OK ? give_shaped(call, 3, plain) : status;
}

/// x, weight, statistics, bias.
nd_status nd__rule_channel_norm(const nd_rule_call *call) {
    __attribute__((cleanup(release_given))) given of = {0};
    nd_status status = get_given(call, &of);
    if (status != ND_OK)
        return status;
    return nd_is_grad_enabled() ? give_given_recorded(call, &of) : give_given_in_one(call, &of);
}
