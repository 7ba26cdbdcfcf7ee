// Attention with several heads as a module: parameters under the names that PyTorch gives them, and
// the options that the module keeps.
//
// Invariant: in_proj_weight and, if there is one, in_proj_bias are the first members, and out_proj is
// the first child. Options are checked when a module is made.
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/nn/checkpoint.h"
#include "lib/nn/layers.h"
#include "lib/ops/dropout.h"
#include "lib/tensor/tensor.h"
#include <nd/neural.h>
#include <nd/ops.h>

#include <math.h>

/// The linear functions whose weights lie one behind the other in in_proj_weight.
enum { QUERY, KEY, VALUE, PARTS };

typedef struct attention_data {
    nd_attention_options options;
    int64_t size, heads;
    bool bias;
} attention_data;

static nd_tensor *attention_forward(const nd_module *self, const nd_tensor *x);

static const nd_module_type attention_type = {.size = sizeof(nd_module_type),
                                              .version = 1,
                                              .name = "attention",
                                              .forward = attention_forward};

// ------------------------------------------------------------------------------------ constructor

static nd_status check_request(const char *name, attention_data *data,
                               const nd_attention_options *given) {
    nd_status status = nd__versioned_read(name, "ND_ATTENTION_OPTIONS_INIT", given, &data->options,
                                          sizeof data->options);
    if (status != ND_OK)
        return status;
    if (data->size < 1 || data->size > INT64_MAX / PARTS || data->heads < 1 ||
        data->size % data->heads != 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: size %lld does not divide into %lld heads of equal size", name,
                         (long long)data->size, (long long)data->heads);
    if (!isfinite(data->options.scale))
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: scale is %g and must be finite", name,
                         data->options.scale);
    return nd__dropout_check(name, data->options.dropout);
}

static nd_status add_members(nd_module *module, const attention_data *data, nd_key key) {
    const int64_t rows = PARTS * data->size, shape[] = {rows, data->size};
    const double bound = 1.0 / sqrt((double)data->size);
    nd_status status =
        nd__layers_add_uniform(module, "in_proj_weight", nd_key_fold(key, 0), 2, shape, bound);
    if (status == ND_OK && data->bias)
        status =
            nd__layers_add_uniform(module, "in_proj_bias", nd_key_fold(key, 1), 1, &rows, bound);
    if (status != ND_OK)
        return status;
    nd_auto nd_module *out =
        nd_linear_module(nd_key_fold(key, 2), data->size, data->size, data->bias);
    status = out ? nd_module_add_child(module, "out_proj", out) : nd_error_get_status();
    if (status == ND_OK && data->options.dropout > 0)
        status = nd_module_set_key(module, nd_key_fold(key, 3));
    return status;
}

nd_module *nd_attention_module(nd_key key, int64_t size, int64_t heads, bool bias,
                               const nd_attention_options *options) {
    attention_data data = {ND_ATTENTION_OPTIONS_INIT, size, heads, bias};
    if (check_request("attention_module", &data, options) != ND_OK)
        return NULL;
    nd_module *module = nd__module_new(&attention_type, &data, sizeof data);
    if (module && add_members(module, &data, key) == ND_OK)
        return module;
    nd_release(module);
    return NULL;
}

// ---------------------------------------------------------------------------------------- forward

/// `count` of the linear functions from `first` on, of the same x: [..., l, count heads, size / heads].
/// NULL with an error.
static nd_tensor *project(const nd_module *self, const nd_tensor *x, int64_t first, int64_t count) {
    const attention_data *data = self->data;
    const int64_t from = first * data->size, to = from + count * data->size;
    nd_auto nd_tensor *weight = nd_slice(nd__layers_parameter(self, 0), from, to, 1, 0);
    nd_auto nd_tensor *bias =
        data->bias ? nd_slice(nd__layers_parameter(self, 1), from, to, 1, 0) : NULL;
    if (!weight || (data->bias && !bias))
        return NULL;
    nd_auto nd_tensor *y = nd_linear(x, weight, bias);
    if (!y)
        return NULL;
    const int ndim = nd_get_ndim(y) + 1;
    int64_t shape[ND_MAX_DIMS];
    for (int axis = 0; axis < ndim - 2; axis++)
        shape[axis] = nd_get_size(y, axis);
    shape[ndim - 2] = count * data->heads;
    shape[ndim - 1] = data->size / data->heads;
    return nd_reshape(y, ndim, shape);
}

/// The heads of one of these: [..., heads, l, size / heads]. NULL gives NULL.
static nd_tensor *heads_of(const nd_tensor *projected, int64_t heads, int64_t part) {
    nd_auto nd_tensor *one =
        projected ? nd_slice(projected, part * heads, (part + 1) * heads, 1, -2) : NULL;
    return one ? nd_transpose(one, -3, -2) : NULL;
}

/// What the heads see, which are equal in most nets: one product where they are.
static bool split(const nd_module *self, const nd_tensor *const given[PARTS],
                  nd_tensor *ret_heads[PARTS]) {
    const int64_t heads = ((const attention_data *)self->data)->heads;
    nd_tensor *projected = NULL;
    int64_t first = 0, count = 0;
    bool whole = true;
    for (int part = 0; part < PARTS && whole; part++) {
        if (part >= first + count) {
            nd_release(projected);
            first = part;
            for (count = 1; first + count < PARTS && given[first + count] == given[part];)
                count++;
            projected = project(self, given[part], first, count);
        }
        ret_heads[part] = heads_of(projected, heads, part - first);
        whole = ret_heads[part] != NULL;
    }
    nd_release(projected);
    return whole;
}

/// The heads' results one behind the other: [..., l, size]. NULL with an error.
static nd_tensor *merge(const nd_tensor *heads, int64_t size) {
    nd_auto nd_tensor *rows = nd_transpose(heads, -3, -2);
    if (!rows)
        return NULL;
    const int ndim = nd_get_ndim(rows) - 1;
    int64_t shape[ND_MAX_DIMS];
    for (int axis = 0; axis < ndim - 1; axis++)
        shape[axis] = nd_get_size(rows, axis);
    shape[ndim - 1] = size;
    return nd_reshape(rows, ndim, shape);
}

/// What is given, which gets an axis of heads, and the parameters, which a program may have closed.
static nd_status check(const char *name, const nd_module *self,
                       const nd_tensor *const given[PARTS]) {
    static const char *const arguments[PARTS] = {"query", "key", "value"};
    static const char *const parameters[] = {"in_proj_weight", "in_proj_bias"};
    nd_status status = ND_OK;
    for (int part = 0; part < PARTS && status == ND_OK; part++) {
        status = nd__tensor_check_operand(name, arguments[part], given[part]);
        if (status == ND_OK && (given[part]->ndim < 2 || given[part]->ndim >= ND_MAX_DIMS))
            status = nd__error(ND_ERROR_SHAPE, "%s: %s has %d dimensions and must have 2 to %d",
                               name, arguments[part], given[part]->ndim, ND_MAX_DIMS - 1);
    }
    const size_t count = ((const attention_data *)self->data)->bias ? 2 : 1;
    for (size_t i = 0; i < count && status == ND_OK; i++)
        status = nd__tensor_check_operand(name, parameters[i], nd__layers_parameter(self, i));
    return status;
}

/// Of a module that is open, and is one of those here.
static nd_tensor *run(const char *name, const nd_module *self, const nd_tensor *const given[PARTS],
                      const nd_tensor *mask) {
    const attention_data *data = self->data;
    if (check(name, self, given) != ND_OK)
        return NULL;
    nd_attention_options options = data->options;
    if (!nd_module_is_training(self))
        options.dropout = 0;
    if (options.dropout > 0 && nd_module_next_key(self, &options.key) != ND_OK)
        return NULL;
    nd_tensor *heads[PARTS] = {NULL};
    nd_auto nd_tensor *seen = split(self, given, heads) ? nd_attention(heads[QUERY], heads[KEY],
                                                                       heads[VALUE], mask, &options)
                                                        : NULL;
    for (int part = 0; part < PARTS; part++)
        nd_release(heads[part]);
    nd_auto nd_tensor *merged = seen ? merge(seen, data->size) : NULL;
    nd_tensor *result = merged ? nd_module_forward(nd_module_get_child(self, 0), merged) : NULL;
    if (options.dropout > 0 && !result)
        nd__checkpoint_give_back(self, &options.key);
    return result;
}

static nd_tensor *attention_forward(const nd_module *self, const nd_tensor *x) {
    return run("attention_module", self, (const nd_tensor *[PARTS]){x, x, x}, NULL);
}

nd_tensor *nd_attention_module_run(const nd_module *module, const nd_tensor *query,
                                   const nd_tensor *key, const nd_tensor *value,
                                   const nd_tensor *mask) {
    static const char name[] = "attention_module_run";
    if (nd__module_check(name, module) != ND_OK)
        return NULL;
    if (module->type != &attention_type) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the module is a %s and must be an attention",
                  name, module->type->name);
        return NULL;
    }
    key = key ? key : query;
    return run(name, module, (const nd_tensor *[PARTS]){query, key, value ? value : key}, mask);
}
