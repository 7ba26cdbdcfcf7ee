// Parts of networks, at the usual shapes.
#include "bench/kernels/calls.h"

#define CALLS(CALL)                                                                                \
    CALL(conv_3x3, conv(in->pictures, in->conv3, 1, 1, 1), in->pictures, in->conv3)                \
    CALL(conv_1x1, conv(in->pictures, in->conv1, 1, 0, 1), in->pictures, in->conv1)                \
    CALL(conv_7x7_stride_2, conv(in->photos, in->conv7, 2, 3, 1), in->conv7)                       \
    CALL(conv_depthwise, conv(in->pictures, in->depthwise, 1, 1, 64), in->pictures, in->depthwise) \
    CALL(max_pool, max_pool(in), in->pictures)                                                     \
    CALL(avg_pool, avg_pool(in), in->pictures)                                                     \
    CALL(batch_norm, batch_norm(in, true), in->pictures, in->scale, in->shift)                     \
    CALL(batch_norm_eval, batch_norm(in, false), in->pictures, in->scale, in->shift)               \
    CALL(group_norm, nd_group_norm(in->pictures, in->scale, in->shift, 8, 1e-5), in->pictures,     \
         in->scale, in->shift)                                                                     \
    CALL(attention, attention(in, false), in->query, in->key, in->value)                           \
    CALL(attention_causal, attention(in, true), in->query, in->key, in->value)                     \
    CALL(embedding, nd_embedding(in->table, in->words, ND_NO_PADDING), in->table)

static nd_tensor *conv(const nd_tensor *x, const nd_tensor *weight, int64_t stride, int64_t padding,
                       int64_t groups) {
    nd_conv2d_options options = ND_CONV2D_OPTIONS_INIT;
    options.stride[0] = options.stride[1] = stride;
    options.padding[0] = options.padding[1] = padding;
    options.groups = groups;
    return nd_conv2d(x, weight, NULL, &options);
}

static nd_tensor *max_pool(const operands *in) {
    nd_max_pool2d_options options = ND_MAX_POOL2D_OPTIONS_INIT;
    options.kernel[0] = options.kernel[1] = 2;
    return nd_max_pool2d(in->pictures, &options);
}

static nd_tensor *avg_pool(const operands *in) {
    nd_avg_pool2d_options options = ND_AVG_POOL2D_OPTIONS_INIT;
    options.kernel[0] = options.kernel[1] = 2;
    return nd_avg_pool2d(in->pictures, &options);
}

static nd_tensor *batch_norm(const operands *in, bool training) {
    nd_batch_norm_options options = ND_BATCH_NORM_OPTIONS_INIT;
    options.training = training;
    return nd_batch_norm(in->pictures, in->scale, in->shift, in->mean, in->variance, &options);
}

static nd_tensor *attention(const operands *in, bool causal) {
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.causal = causal;
    return nd_attention(in->query, in->key, in->value, NULL, &options);
}

#define WITHOUT_INPUTS(name, expression, ...) FORWARD(name, expression)

CALLS(WITHOUT_INPUTS)
CALLS(BACKWARD)
static const kernel_call rows[] = {CALLS(ROW_OF_FORWARD) CALLS(ROW_OF_BACKWARD)};
const kernel_calls network_calls = KERNEL_CALLS(rows);
