// The layers: each a module type whose forward function calls one operation, and a constructor. A
// linear layer and the activation behind it are one operation in a sequence.
//
// Invariant: weight and, if there is one, bias are the first members of their layer, so that
// forward need not look for names; members that a user adds come after them. A constructor that
// fails has released everything it made.
#include "lib/nn/layers.h"
#include "lib/base/error.h"
#include "lib/nn/module.h"
#include <nd/autograd.h>
#include <nd/ops.h>

#include <math.h>
#include <stdio.h>

enum { WEIGHT = ND__LAYERS_WEIGHT, BIAS = ND__LAYERS_BIAS };

typedef struct nd_linear_data {
    bool bias;
} nd_linear_data;

typedef struct function_data {
    nd_tensor *(*function)(const nd_tensor *x);
} function_data;

static nd_tensor *linear_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *relu_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *tanh_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *gelu_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *function_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *flatten_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *sequential_forward(const nd_module *self, const nd_tensor *x);

#define MODULE_TYPE(kind)                       \
    static const nd_module_type kind##_type = { \
        .size = sizeof(nd_module_type), .version = 1, .name = #kind, .forward = kind##_forward}
MODULE_TYPE(linear);
MODULE_TYPE(relu);
MODULE_TYPE(tanh);
MODULE_TYPE(gelu);
MODULE_TYPE(function);
MODULE_TYPE(flatten);
MODULE_TYPE(sequential);

nd_module *nd_linear_module(nd_key key, int64_t in, int64_t out, bool bias) {
    if (in < 1 || out < 1) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "linear_module: %lld inputs and %lld outputs",
                  (long long)in, (long long)out);
        return NULL;
    }
    nd_linear_data data = {bias};
    return nd__layers_with_weights(nd__module_new(&linear_type, &data, sizeof(data)), key,
                                   ND_SHAPE(out, in), in, bias ? out : 0);
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

nd_module *nd_function_module(nd_tensor *(*function)(const nd_tensor *x)) {
    if (!function)
        return (void)nd__error_null("function_module", "function"), NULL;
    const function_data data = {function};
    return nd__module_new(&function_type, &data, sizeof data);
}

nd_module *nd_flatten_module(void) {
    return nd__module_new(&flatten_type, NULL, 0);
}

nd_module *nd_sequential(size_t count, nd_module **children) {
    nd_status status = ND_OK;
    if (count > 0 && !children)
        return (void)nd__error_null("sequential", "children"), NULL;
    for (size_t i = 0; i < count && status == ND_OK; i++) {
        char name[32];
        snprintf(name, sizeof name, "children[%zu]", i);
        status = children[i] ? nd__module_check("sequential", children[i])
                             : nd__error_null("sequential", name);
    }
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

static nd_tensor *linear_forward(const nd_module *self, const nd_tensor *x) {
    const nd_linear_data *data = self->data;
    return nd_linear(x, nd__layers_parameter(self, WEIGHT),
                     data->bias ? nd__layers_parameter(self, BIAS) : NULL);
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

static nd_tensor *function_forward(const nd_module *self, const nd_tensor *x) {
    return ((const function_data *)self->data)->function(x);
}

static nd_tensor *flatten_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_flatten(x, 1);
}

/// The first module among the members from `*at` on, which it moves behind that module; NULL at the
/// end. A user may have added tensors.
static const nd_module *next_module(const nd_module *self, size_t *at) {
    while (*at < self->count && nd__module_is_tensor(&self->members[*at]))
        ++*at;
    return *at < self->count ? (const nd_module *)self->members[(*at)++].object : NULL;
}

/// Whether both do what nd_linear_activation() does at once.
static bool is_linear_activation(const nd_module *layer, const nd_module *behind,
                                 nd_activation *ret_activation) {
    if (layer->type != &linear_type || !behind || nd__object_is_closed(layer) ||
        nd__object_is_closed(behind))
        return false;
    *ret_activation = behind->type == &relu_type   ? ND_ACTIVATION_RELU
                      : behind->type == &gelu_type ? ND_ACTIVATION_GELU
                                                   : ND_ACTIVATION_TANH;
    return behind->type == &relu_type || behind->type == &gelu_type || behind->type == &tanh_type;
}

static nd_tensor *linear_activation(const nd_module *layer, const nd_tensor *x,
                                    nd_activation activation) {
    const nd_linear_data *data = layer->data;
    return nd_linear_activation(x, nd__layers_parameter(layer, WEIGHT),
                                data->bias ? nd__layers_parameter(layer, BIAS) : NULL, activation);
}

static nd_tensor *sequential_forward(const nd_module *self, const nd_tensor *x) {
    nd_tensor *y = nd_retain(x);
    size_t at = 0;
    for (const nd_module *layer; y && (layer = next_module(self, &at)) != NULL;) {
        size_t behind = at;
        nd_activation activation;
        bool both = is_linear_activation(layer, next_module(self, &behind), &activation);
        nd_tensor *next =
            both ? linear_activation(layer, y, activation) : nd_module_forward(layer, y);
        at = both ? behind : at;
        nd_release(y);
        y = next;
    }
    return y;
}

nd_module *nd__layers_with_weights(nd_module *module, nd_key key, int ndim, const int64_t *shape,
                                   int64_t fan_in, int64_t bias) {
    if (!module)
        return NULL;
    const double bound = 1.0 / sqrt((double)fan_in);
    nd_status status =
        nd__layers_add_uniform(module, "weight", nd_key_fold(key, WEIGHT), ndim, shape, bound);
    if (status == ND_OK && bias > 0)
        status = nd__layers_add_uniform(module, "bias", nd_key_fold(key, BIAS), 1, &bias, bound);
    if (status != ND_OK) {
        nd_release(module);
        return NULL;
    }
    return module;
}

nd_status nd__layers_add_uniform(nd_module *module, const char *name, nd_key key, int ndim,
                                 const int64_t *shape, double bound) {
    nd_auto nd_tensor *zero_to_one = nd_rand(key, ndim, shape, ND_F32);
    nd_auto nd_tensor *scaled = nd_mul_scalar(zero_to_one, 2 * bound);
    nd_auto nd_tensor *parameter = nd_add_scalar(scaled, -bound);
    nd_status status = parameter ? nd_set_requires_grad(parameter, true) : nd_error_get_status();
    if (status == ND_OK)
        status = nd_module_add_parameter(module, name, parameter);
    return status;
}
