// The layers: each a module type whose forward function calls one operation, and a constructor.
//
// Invariant: weight and, if there is one, bias are the first members of their layer, so that
// forward need not look for names; members that a user adds come after them. A constructor that
// fails has released everything it made.
#include "lib/base/error.h"
#include "lib/nn/module.h"
#include "lib/ops/conv.h"
#include "lib/ops/pool.h"
#include <nd/autograd.h>
#include <nd/ops.h>

#include <math.h>
#include <stdio.h>

enum { WEIGHT = 0, BIAS = 1 };

typedef struct nd_linear_data {
    bool bias;
} nd_linear_data;

typedef struct nd_conv2d_data {
    bool bias;
    nd_conv2d_options options;
} nd_conv2d_data;

static nd_tensor *linear_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *conv2d_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *max_pool2d_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *relu_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *tanh_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *gelu_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *flatten_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *sequential_forward(const nd_module *self, const nd_tensor *x);

static nd_module *with_parameters(nd_module *module, nd_key key, int ndim, const int64_t *shape,
                                  int64_t fan_in, bool bias);
static nd_status add_uniform(nd_module *module, const char *name, nd_key key, int ndim,
                             const int64_t *shape, double bound);

#define MODULE_TYPE(kind)                       \
    static const nd_module_type kind##_type = { \
        .size = sizeof(nd_module_type), .version = 1, .name = #kind, .forward = kind##_forward}
MODULE_TYPE(linear);
MODULE_TYPE(conv2d);
MODULE_TYPE(max_pool2d);
MODULE_TYPE(relu);
MODULE_TYPE(tanh);
MODULE_TYPE(gelu);
MODULE_TYPE(flatten);
MODULE_TYPE(sequential);

nd_module *nd_linear_module(nd_key key, int64_t in, int64_t out, bool bias) {
    if (in < 1 || out < 1) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "linear_module: %lld inputs and %lld outputs",
                  (long long)in, (long long)out);
        return NULL;
    }
    nd_linear_data data = {bias};
    return with_parameters(nd__module_new(&linear_type, &data, sizeof(data)), key,
                           ND_SHAPE(out, in), in, bias);
}

nd_module *nd_conv2d_module(nd_key key, int64_t in_channels, int64_t out_channels, int64_t kernel_h,
                            int64_t kernel_w, bool bias, const nd_conv2d_options *options) {
    nd_conv2d_data data = {.bias = bias};
    if (nd__conv_options_read("conv2d_module", options, &data.options) != ND_OK)
        return NULL;
    const int64_t groups = data.options.groups;
    if (in_channels < 1 || out_channels < 1 || in_channels % groups != 0 ||
        out_channels % groups != 0)
        return (void)nd__error(
                   ND_ERROR_INVALID_ARGUMENT,
                   "conv2d_module: in_channels is %lld and out_channels %lld; both must be "
                   "at least 1, and multiples of groups, which is %lld",
                   (long long)in_channels, (long long)out_channels, (long long)groups),
               NULL;
    int64_t fan_in = 0;
    if (kernel_h < 1 || kernel_w < 1 || __builtin_mul_overflow(kernel_h, kernel_w, &fan_in) ||
        __builtin_mul_overflow(in_channels / groups, fan_in, &fan_in))
        return (void)nd__error(ND_ERROR_INVALID_ARGUMENT,
                               "conv2d_module: kernel_h is %lld and kernel_w %lld; both must be at "
                               "least 1, and their product with %lld channels below 2^63",
                               (long long)kernel_h, (long long)kernel_w,
                               (long long)(in_channels / groups)),
               NULL;
    return with_parameters(nd__module_new(&conv2d_type, &data, sizeof(data)), key,
                           ND_SHAPE(out_channels, in_channels / groups, kernel_h, kernel_w), fan_in,
                           bias);
}

nd_module *nd_max_pool2d_module(const nd_max_pool2d_options *options) {
    nd_max_pool2d_options read;
    if (nd__pool_options_read("max_pool2d_module", options, &read) != ND_OK)
        return NULL;
    return nd__module_new(&max_pool2d_type, &read, sizeof(read));
}

nd_module *nd_relu_module(void) {
    return nd__module_new(&relu_type, NULL, 0);
}

nd_module *nd_tanh_module(void) {
    return nd__module_new(&tanh_type, NULL, 0);
}

nd_module *nd_gelu_module(void) {
    return nd__module_new(&gelu_type, NULL, 0);
}

nd_module *nd_flatten_module(void) {
    return nd__module_new(&flatten_type, NULL, 0);
}

nd_module *nd_sequential(size_t count, nd_module **children) {
    nd_status status = ND_OK;
    if (count > 0 && !children)
        return (void)nd__error_null("sequential", "children"), NULL;
    for (size_t i = 0; i < count && status == ND_OK; i++)
        status = nd__module_check("sequential", children[i]);
    nd_module *module = status == ND_OK ? nd__module_new(&sequential_type, NULL, 0) : NULL;
    for (size_t i = 0; i < count; i++) {
        char name[24];
        snprintf(name, sizeof(name), "%zu", i);
        if (module && nd_module_add_child(module, name, children[i]) != ND_OK) {
            nd_release(module);
            module = NULL;
        }
        nd_release(children[i]);
    }
    return module;
}

static const nd_tensor *parameter_at(const nd_module *module, size_t index) {
    return index < module->count ? (const nd_tensor *)module->members[index].object : NULL;
}

static nd_tensor *linear_forward(const nd_module *self, const nd_tensor *x) {
    const nd_linear_data *data = self->data;
    return nd_linear(x, parameter_at(self, WEIGHT), data->bias ? parameter_at(self, BIAS) : NULL);
}

static nd_tensor *conv2d_forward(const nd_module *self, const nd_tensor *x) {
    const nd_conv2d_data *data = self->data;
    return nd_conv2d(x, parameter_at(self, WEIGHT), data->bias ? parameter_at(self, BIAS) : NULL,
                     &data->options);
}

static nd_tensor *max_pool2d_forward(const nd_module *self, const nd_tensor *x) {
    return nd_max_pool2d(x, self->data);
}

static nd_tensor *relu_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_relu(x);
}

static nd_tensor *tanh_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_tanh(x);
}

static nd_tensor *gelu_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_gelu(x);
}

static nd_tensor *flatten_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_flatten(x, 1);
}

static nd_tensor *sequential_forward(const nd_module *self, const nd_tensor *x) {
    nd_tensor *y = nd_retain(x);
    for (size_t i = 0; y && i < self->count; i++) {
        if (nd__module_is_tensor(&self->members[i]))
            continue; // a user added it
        nd_tensor *next = nd_module_forward((const nd_module *)self->members[i].object, y);
        nd_release(y);
        y = next;
    }
    return y;
}

/// Adds weight and, when wanted, bias of [shape[0]], uniform in +-1/sqrt(fan_in). Consumes the
/// module: returned, or released and NULL.
static nd_module *with_parameters(nd_module *module, nd_key key, int ndim, const int64_t *shape,
                                  int64_t fan_in, bool bias) {
    if (!module)
        return NULL;
    const double bound = 1.0 / sqrt((double)fan_in);
    nd_status status = add_uniform(module, "weight", nd_key_fold(key, WEIGHT), ndim, shape, bound);
    if (status == ND_OK && bias)
        status = add_uniform(module, "bias", nd_key_fold(key, BIAS), 1, shape, bound);
    if (status != ND_OK) {
        nd_release(module);
        return NULL;
    }
    return module;
}

static nd_status add_uniform(nd_module *module, const char *name, nd_key key, int ndim,
                             const int64_t *shape, double bound) {
    nd_auto nd_tensor *zero_to_one = nd_rand(key, ndim, shape, ND_F32);
    nd_auto nd_tensor *scaled = nd_mul_scalar(zero_to_one, 2 * bound);
    nd_auto nd_tensor *parameter = nd_add_scalar(scaled, -bound);
    nd_status status = parameter ? nd_set_requires_grad(parameter, true) : nd_error_get_status();
    if (status == ND_OK)
        status = nd_module_add_parameter(module, name, parameter);
    return status;
}
