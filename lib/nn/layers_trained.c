// Layers whose work depends on the mode, or that have buffers: dropout, normalisation, embedding.
//
// Invariant: the tensors of a layer are its first members, in the order of the enumeration; members
// that a user adds come after them. A constructor that fails has released everything it made.
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/nn/checkpoint.h"
#include <nd/autograd.h>
#include <nd/neural.h>
#include <nd/nn.h>

#include <math.h>

enum { WEIGHT, BIAS, RUNNING_MEAN, RUNNING_VAR };

typedef struct nd_norm_data {
    double epsilon;
    int naxes;
} nd_norm_data;

typedef struct group_norm_data {
    int64_t groups;
    double epsilon;
} group_norm_data;

static nd_tensor *dropout_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *batch_norm_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *instance_norm_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *group_norm_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *layer_norm_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *rms_norm_forward(const nd_module *self, const nd_tensor *x);
static nd_tensor *embedding_forward(const nd_module *self, const nd_tensor *x);

#define MODULE_TYPE(kind)                       \
    static const nd_module_type kind##_type = { \
        .size = sizeof(nd_module_type), .version = 1, .name = #kind, .forward = kind##_forward}
MODULE_TYPE(dropout);
MODULE_TYPE(batch_norm);
MODULE_TYPE(instance_norm);
MODULE_TYPE(group_norm);
MODULE_TYPE(layer_norm);
MODULE_TYPE(rms_norm);
MODULE_TYPE(embedding);

/// Adds a tensor (owned, consumed; NULL: an error is set) to a module (owned), as a parameter or a
/// buffer. Returns the module, or releases it and returns NULL.
static nd_module *with(nd_module *module, const char *name, nd_tensor *x, bool parameter) {
    nd_status status = module && x ? ND_OK : ND_ERROR_STATE;
    if (status == ND_OK && parameter)
        status = nd_set_requires_grad(x, true);
    if (status == ND_OK)
        status = parameter ? nd_module_add_parameter(module, name, x)
                           : nd_module_add_buffer(module, name, x);
    nd_release(x);
    if (status == ND_OK)
        return module;
    nd_release(module);
    return NULL;
}

nd_module *nd_dropout_module(nd_key key, double p) {
    if (!(p >= 0 && p <= 1)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "dropout_module: p is %g; it must be 0 to 1", p);
        return NULL;
    }
    nd_module *module = nd__module_new(&dropout_type, &p, sizeof p);
    if (module)
        nd_module_set_key(module, key);
    return module;
}

/// Adds a weight of ones and a bias of zeros. Consumes the module, as with().
static nd_module *with_scale(nd_module *module, int naxes, const int64_t *shape) {
    module = with(module, "weight", nd_ones(naxes, shape, ND_F32), true);
    return with(module, "bias", nd_zeros(naxes, shape, ND_F32), true);
}

static bool is_norm(const char *name, int64_t channels, double epsilon) {
    if (channels < 1)
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %lld channels", name, (long long)channels);
    else if (!(epsilon >= 0) || !isfinite(epsilon))
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: epsilon is %g and must be finite, at least 0",
                  name, epsilon);
    else
        return true;
    return false;
}

/// A norm of the options of batch normalisation, with weight and bias. NULL with an error.
static nd_module *channel_norm(const char *name, const nd_module_type *type, int64_t channels,
                               const nd_batch_norm_options *options) {
    nd_batch_norm_options chosen = ND_BATCH_NORM_OPTIONS_INIT;
    if (nd__versioned_read(name, "ND_BATCH_NORM_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
            ND_OK ||
        !is_norm(name, channels, chosen.epsilon))
        return NULL;
    return with_scale(nd__module_new(type, &chosen, sizeof chosen), ND_SHAPE(channels));
}

nd_module *nd_batch_norm_module(int64_t channels, const nd_batch_norm_options *options) {
    nd_module *module = channel_norm("batch_norm_module", &batch_norm_type, channels, options);
    if (!module)
        return NULL;
    module = with(module, "running_mean", nd_zeros(ND_SHAPE(channels), ND_F32), false);
    return with(module, "running_var", nd_ones(ND_SHAPE(channels), ND_F32), false);
}

nd_module *nd_instance_norm_module(int64_t channels, const nd_batch_norm_options *options) {
    return channel_norm("instance_norm_module", &instance_norm_type, channels, options);
}

nd_module *nd_group_norm_module(int64_t groups, int64_t channels, double epsilon) {
    static const char name[] = "group_norm_module";
    if (!is_norm(name, channels, epsilon))
        return NULL;
    if (groups < 1 || channels % groups != 0) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %lld channels in %lld groups", name,
                  (long long)channels, (long long)groups);
        return NULL;
    }
    const group_norm_data data = {groups, epsilon};
    return with_scale(nd__module_new(&group_norm_type, &data, sizeof data), ND_SHAPE(channels));
}

nd_module *nd_layer_norm_module(double epsilon, int naxes, const int64_t *shape) {
    const nd_norm_data data = {epsilon, naxes};
    return with_scale(nd__module_new(&layer_norm_type, &data, sizeof data), naxes, shape);
}

nd_module *nd_rms_norm_module(double epsilon, int naxes, const int64_t *shape) {
    const nd_norm_data data = {epsilon, naxes};
    return with(nd__module_new(&rms_norm_type, &data, sizeof data), "weight",
                nd_ones(naxes, shape, ND_F32), true);
}

nd_module *nd_embedding_module(nd_key key, int64_t rows, int64_t size, int64_t padding) {
    if (rows < 1 || size < 1) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "embedding_module: a table of %lld rows of %lld; both must be at least 1",
                  (long long)rows, (long long)size);
        return NULL;
    }
    if (padding != ND_NO_PADDING && (padding < -rows || padding >= rows)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "embedding_module: padding is %lld, outside %lld ... %lld", (long long)padding,
                  (long long)-rows, (long long)rows - 1);
        return NULL;
    }
    nd_tensor *weight = nd_randn(key, ND_SHAPE(rows, size), ND_F32);
    if (weight && padding != ND_NO_PADDING) {
        nd_auto nd_tensor *row = nd_select(weight, padding < 0 ? padding + rows : padding, 0);
        if (!row || nd_fill_(row, 0) != ND_OK) {
            nd_release(weight);
            return NULL;
        }
    }
    return with(nd__module_new(&embedding_type, &padding, sizeof padding), "weight", weight, true);
}

static nd_tensor *member(const nd_module *self, size_t index) {
    return index < self->count ? (nd_tensor *)self->members[index].object : NULL;
}

static nd_tensor *dropout_forward(const nd_module *self, const nd_tensor *x) {
    const double *p = self->data;
    nd_key key;
    if (!nd_module_is_training(self) || *p == 0)
        return nd_retain(x);
    if (nd_module_next_key(self, &key) != ND_OK)
        return NULL;
    nd_tensor *result = nd_dropout(x, key, *p, true);
    if (!result)
        nd__checkpoint_give_back(self, &key);
    return result;
}

/// The second run of a checkpoint leaves the running statistics alone: the first has updated them.
static nd_tensor *batch_norm_forward(const nd_module *self, const nd_tensor *x) {
    nd_batch_norm_options options = *(const nd_batch_norm_options *)self->data;
    options.training = nd_module_is_training(self);
    const bool without = options.training && nd__checkpoint_is_replaying();
    return nd_batch_norm(x, member(self, WEIGHT), member(self, BIAS),
                         without ? NULL : member(self, RUNNING_MEAN),
                         without ? NULL : member(self, RUNNING_VAR), &options);
}

/// Of the options epsilon alone: there are no running statistics.
static nd_tensor *instance_norm_forward(const nd_module *self, const nd_tensor *x) {
    nd_batch_norm_options options = ND_BATCH_NORM_OPTIONS_INIT;
    options.epsilon = ((const nd_batch_norm_options *)self->data)->epsilon;
    return nd_instance_norm(x, member(self, WEIGHT), member(self, BIAS), NULL, NULL, &options);
}

static nd_tensor *group_norm_forward(const nd_module *self, const nd_tensor *x) {
    const group_norm_data *data = self->data;
    return nd_group_norm(x, member(self, WEIGHT), member(self, BIAS), data->groups, data->epsilon);
}

static nd_tensor *layer_norm_forward(const nd_module *self, const nd_tensor *x) {
    const nd_norm_data *data = self->data;
    return nd_layer_norm(x, member(self, WEIGHT), member(self, BIAS), data->epsilon, data->naxes);
}

static nd_tensor *rms_norm_forward(const nd_module *self, const nd_tensor *x) {
    const nd_norm_data *data = self->data;
    return nd_rms_norm(x, member(self, WEIGHT), data->epsilon, data->naxes);
}

static nd_tensor *embedding_forward(const nd_module *self, const nd_tensor *x) {
    return nd_embedding(member(self, WEIGHT), x, *(const int64_t *)self->data);
}
