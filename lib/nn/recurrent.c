// Recurrent nets as modules: weights under the names that PyTorch gives them, and the options that
// the module keeps.
//
// Invariant: the weights are a module's first members, in the order in which nd_rnn(), nd_lstm() and
// nd_gru() take them. Options are checked when a module is made.
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/nn/checkpoint.h"
#include "lib/nn/layers.h"
#include "lib/ops/dropout.h"
#include "lib/pressure/pressure_alloc.h"
#include <nd/neural.h>

#include <math.h>
#include <stdio.h>

typedef struct recurrent_data {
    nd_recurrent_options options;
    bool bias;
} recurrent_data;

static nd_tensor *forward(const nd_module *self, const nd_tensor *x);

#define MODULE_TYPE(kind)                       \
    static const nd_module_type kind##_type = { \
        .size = sizeof(nd_module_type), .version = 1, .name = #kind, .forward = forward}
MODULE_TYPE(rnn);
MODULE_TYPE(lstm);
MODULE_TYPE(gru);

// ----------------------------------------------------------------------------------- constructors

/// What a constructor was asked for.
typedef struct request {
    const char *name;
    const nd_module_type *type;
    int64_t gates, in, size;
    recurrent_data data;
} request;

static nd_status check_request(request *r, const nd_recurrent_options *given) {
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    nd_status status =
        nd__versioned_read(r->name, "ND_RECURRENT_OPTIONS_INIT", given, &options, sizeof options);
    if (status != ND_OK)
        return status;
    if (r->in < 1 || r->size < 1 || r->size > INT64_MAX / 8)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %lld inputs and a state of %lld", r->name,
                         (long long)r->in, (long long)r->size);
    if (options.layers < 1 || options.layers > INT32_MAX)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: layers is %lld and must be 1 ... 2147483647", r->name,
                         (long long)options.layers);
    r->data.options = options;
    return nd__dropout_check(r->name, options.dropout);
}

/// The weights of one direction of a layer, which draw from key, each from a key of its own.
static nd_status add_direction(nd_module *module, const request *r, nd_key key, int64_t layer,
                               bool reverse) {
    static const char *const roles[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    const int64_t directions = r->data.options.bidirectional ? 2 : 1, rows = r->gates * r->size;
    const int64_t columns[] = {layer == 0 ? r->in : directions * r->size, r->size};
    nd_status status = ND_OK;
    for (int role = 0; role < (r->data.bias ? 4 : 2) && status == ND_OK; role++) {
        char name[64];
        snprintf(name, sizeof name, "%s_l%lld%s", roles[role], (long long)layer,
                 reverse ? "_reverse" : "");
        const int64_t shape[] = {rows, role < 2 ? columns[role] : 0};
        status = nd__layers_add_uniform(module, name, nd_key_fold(key, (uint64_t)role),
                                        role < 2 ? 2 : 1, shape, 1.0 / sqrt((double)r->size));
    }
    return status;
}

static nd_module *make(request r, nd_key key, const nd_recurrent_options *options) {
    if (check_request(&r, options) != ND_OK)
        return NULL;
    nd_module *module = nd__module_new(r.type, &r.data, sizeof r.data);
    nd_status status = module ? ND_OK : nd_error_get_status();
    const int directions = r.data.options.bidirectional ? 2 : 1;
    for (int64_t layer = 0; layer < r.data.options.layers; layer++)
        for (int way = 0; way < directions && status == ND_OK; way++)
            status =
                add_direction(module, &r, nd_key_fold(key, (uint64_t)(layer * directions + way)),
                              layer, way == 1);
    if (status == ND_OK && r.data.options.dropout > 0)
        status = nd_module_set_key(module, key);
    if (status == ND_OK)
        return module;
    nd_release(module);
    return NULL;
}

nd_module *nd_rnn_module(nd_key key, int64_t in, int64_t size, bool bias,
                         const nd_recurrent_options *options) {
    return make((request){"rnn_module", &rnn_type, 1, in, size, {.bias = bias}}, key, options);
}

nd_module *nd_lstm_module(nd_key key, int64_t in, int64_t size, bool bias,
                          const nd_recurrent_options *options) {
    return make((request){"lstm_module", &lstm_type, 4, in, size, {.bias = bias}}, key, options);
}

nd_module *nd_gru_module(nd_key key, int64_t in, int64_t size, bool bias,
                         const nd_recurrent_options *options) {
    return make((request){"gru_module", &gru_type, 3, in, size, {.bias = bias}}, key, options);
}

// ---------------------------------------------------------------------------------------- forward

static nd_status run_with(const nd_module *module, size_t count, const nd_tensor *const *weights,
                          const nd_tensor *x, const nd_tensor *hidden, const nd_tensor *cell,
                          nd_tensor **ret_output, nd_tensor **ret_hidden, nd_tensor **ret_cell) {
    nd_recurrent_options options = ((const recurrent_data *)module->data)->options;
    options.training = nd_module_is_training(module);
    const bool drops = options.training && options.dropout > 0 && options.layers > 1;
    nd_status status = drops ? nd_module_next_key(module, &options.key) : ND_OK;
    if (status != ND_OK)
        return status;
    if (module->type == &lstm_type)
        status =
            nd_lstm(x, hidden, cell, count, weights, &options, ret_output, ret_hidden, ret_cell);
    else
        status = (module->type == &gru_type ? nd_gru : nd_rnn)(x, hidden, count, weights, &options,
                                                               ret_output, ret_hidden);
    if (drops && status != ND_OK)
        nd__checkpoint_give_back(module, &options.key);
    return status;
}

/// With the module's weights; it is one of those here, and open.
static nd_status run(const nd_module *module, const nd_tensor *x, const nd_tensor *hidden,
                     const nd_tensor *cell, nd_tensor **ret_output, nd_tensor **ret_hidden,
                     nd_tensor **ret_cell) {
    const recurrent_data *data = module->data;
    const size_t places = (size_t)data->options.layers * (data->options.bidirectional ? 2 : 1);
    const size_t count = places * (data->bias ? 4 : 2);
    const nd_tensor **weights = nd__pressure_alloc(count * sizeof *weights);
    if (!weights)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu weights",
                         module->type->name, count);
    for (size_t i = 0; i < count; i++)
        weights[i] = nd__layers_parameter(module, i);
    nd_status status =
        run_with(module, count, weights, x, hidden, cell, ret_output, ret_hidden, ret_cell);
    nd__alloc_free(weights);
    return status;
}

static nd_tensor *forward(const nd_module *self, const nd_tensor *x) {
    nd_tensor *output = NULL;
    return run(self, x, NULL, NULL, &output, NULL, NULL) == ND_OK ? output : NULL;
}

nd_status nd_recurrent_module_run(const nd_module *module, const nd_tensor *x,
                                  const nd_tensor *hidden, const nd_tensor *cell,
                                  nd_tensor **ret_output, nd_tensor **ret_hidden,
                                  nd_tensor **ret_cell) {
    static const char name[] = "recurrent_module_run";
    nd_status status = nd__module_check(name, module);
    if (status != ND_OK)
        return status;
    const nd_module_type *type = module->type;
    if (type != &rnn_type && type != &lstm_type && type != &gru_type)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: the module is a %s and must be an rnn, an lstm or a gru", name,
                         type->name);
    if (type != &lstm_type && (cell || ret_cell))
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: a cell was %s, which a module %s has not",
                         name, cell ? "given" : "asked for", type->name);
    return run(module, x, hidden, cell, ret_output, ret_hidden, ret_cell);
}
