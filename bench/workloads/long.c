// long: as small as a model can be, so that a run can have a million steps. Each differentiates
// twice, as wgan_gp does, and leaves a cycle: points -grad-> slope -node-> graph -> points.
//
// It is for runs that last (--long): from a tenth of the steps to the end nothing may be alive that
// was not alive before, to the byte, and the process may not grow.
#include <nd/scoped.h>

#include "bench/workloads/workload.h"

#include <stdlib.h>

enum { BATCH = 8, HIDDEN = 8, PARAMETERS = 4 };
static const double rate = 0.05, slope_weight = 1e-3;

typedef struct tiny {
    nd_device device;
    nd_key key;
    nd_module *model; ///< [n, 1] -> [n, 1]
    nd_optimizer *optimizer;
} tiny;

static nd_status tiny_open(const workload_options *options, void **ret_state) {
    tiny *self = *ret_state = calloc(1, sizeof *self);
    if (!self)
        return ND_ERROR_OUT_OF_MEMORY;
    self->device = options->device;
    self->key = nd_key_new(options->seed);
    self->model = ND_SEQUENTIAL(nd_linear_module(nd_key_fold(self->key, 0), 1, HIDDEN, true),
                                nd_tanh_module(),
                                nd_linear_module(nd_key_fold(self->key, 1), HIDDEN, 1, true));
    nd_status status = nd_module_to(self->model, options->device);
    if (status != ND_OK)
        return status;
    nd_sgd_options sgd = ND_SGD_OPTIONS_INIT;
    sgd.rate = rate;
    self->optimizer = nd_sgd(self->model, &sgd);
    return self->optimizer ? ND_OK : nd_error_get_status();
}

/// How far the model is from a sine, and how steep it is there.
static const nd_tensor *find_loss(const tiny *self, const nd_tensor *borrowed) {
    nd_auto nd_tensor *points = nd_retain(borrowed);
    nd_backward_options recorded = ND_BACKWARD_OPTIONS_INIT;
    recorded.create_graph = true;
    if (nd_set_requires_grad(points, true) != ND_OK)
        return NULL;
    const nd_tensor *answers = nd_module_forward(self->model, points);
    if (nd_backward(nd_sum(answers, 0, NULL, false), &recorded) != ND_OK)
        return NULL;
    const nd_tensor *slope = nd_mean(nd_square(nd_get_grad(points)), 0, NULL, false);
    nd_auto nd_tensor *sine = NULL;
    nd_no_grad sine = nd_retain(nd_sin(points));
    return nd_add(nd_mse_loss(answers, sine), nd_mul_scalar(slope, slope_weight));
}

/// The gradients of a loss become those of the parameters.
static nd_status set_gradients(const nd_module *model, const nd_tensor *loss) {
    const nd_tensor *parameters[PARAMETERS];
    nd_tensor *gradients[PARAMETERS] = {0};
    for (size_t i = 0; i < PARAMETERS; i++)
        parameters[i] = nd_module_get_parameter_at(model, i, NULL);
    nd_status status = nd_grad(loss, PARAMETERS, parameters, NULL, gradients);
    for (size_t i = 0; i < PARAMETERS; i++) {
        nd_auto nd_tensor *parameter = nd_retain(parameters[i]);
        if (status == ND_OK)
            status = nd_set_grad(parameter, gradients[i]);
        nd_release(gradients[i]);
    }
    return status;
}

static nd_status tiny_step(void *state, int64_t step, double *ret_value) {
    tiny *self = state;
    nd_auto_scope;
    nd_key key = nd_key_fold(self->key, 2 + (uint64_t)step);
    const nd_tensor *drawn = nd_randn(key, ND_SHAPE(BATCH, 1), ND_F32);
    const nd_tensor *loss = find_loss(self, nd_to(drawn, self->device));
    nd_status status = loss ? set_gradients(self->model, loss) : nd_error_get_status();
    if (status == ND_OK)
        status = nd_optimizer_step(self->optimizer);
    if (status == ND_OK)
        status = nd_optimizer_zero_grad(self->optimizer);
    *ret_value = nd_get_item(loss);
    return status;
}

static void tiny_close(void *state) {
    tiny *self = state;
    if (!self)
        return;
    nd_release(self->optimizer);
    nd_release(self->model);
    free(self);
}

const workload workload_long = {
    .name = "long",
    .summary = "the smallest model, for a million steps, each of which leaves a cycle",
    .steps = 20000,
    .lasts = 100000,
    .value = "loss",
    .makes_cycles = true,
    .open = tiny_open,
    .step = tiny_step,
    .close = tiny_close,
};
