// transformer: GPT-2's architecture, small, reads the repository's pages byte by byte and learns to
// guess the next one. Nothing cyclic: counts free all of it.
#include <nd/scoped.h>

#include "bench/support/corpus.h"
#include "bench/workloads/gpt.h"
#include "bench/workloads/hand_over.h"
#include "bench/workloads/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BATCH = 4,
    LENGTH = 128 / WORKLOAD_SHRINK,
    LAYERS = 4,
    SAMPLE = 120 / WORKLOAD_SHRINK,
    WARM_UP = 40,
    LAST = 50,
    STEPS = 2500
};
static const gpt_sizes sizes = {256, LENGTH, 128, LAYERS, 4};
static const double rate = 2e-3, largest_norm = 1;

typedef struct transformer {
    nd_tensor *text; ///< [bytes] of i64
    nd_module *model;
    nd_optimizer *optimizer;
    nd_schedule *schedule;
    nd_key key;
    double recent[LAST]; ///< losses of the last steps
} transformer;

/// Weights lose a part at every step; biases and norms do not.
static nd_status make_optimizer(transformer *self, int64_t steps) {
    nd_adam_options adamw = ND_ADAMW_OPTIONS_INIT;
    adamw.rate = rate;
    adamw.beta2 = 0.99;
    adamw.weight_decay = 0.1;
    self->optimizer = nd_adamw(self->model, &adamw);
    const nd_tensor *vectors[LAYERS * 8 + 2];
    size_t count = 0, group = 0;
    for (size_t i = 0; i < nd_module_get_parameter_count(self->model); i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(self->model, i, NULL);
        if (nd_get_ndim(parameter) == 1)
            vectors[count++] = parameter;
    }
    nd_status status = nd_optimizer_add_group(self->optimizer, count, vectors, &group);
    if (status == ND_OK)
        status = nd_optimizer_set_option(self->optimizer, group, ND_OPTIMIZER_WEIGHT_DECAY, 0);
    int64_t falling = steps > WARM_UP ? steps - WARM_UP : 1;
    self->schedule =
        nd_sequence_schedule(2,
                             (nd_schedule *[]){nd_linear_schedule(1.0 / WARM_UP, 1, WARM_UP),
                                               nd_cosine_schedule(0.05, falling)},
                             (const int64_t[]){WARM_UP});
    return status == ND_OK ? nd_schedule_start(self->schedule, self->optimizer) : status;
}

static nd_status transformer_open(const workload_options *options, void **ret_state) {
    transformer *self = *ret_state = calloc(1, sizeof *self);
    if (!self)
        return ND_ERROR_OUT_OF_MEMORY;
    self->key = nd_key_new(options->seed);
    nd_auto_scope;
    const nd_tensor *bytes = nd_tmp(corpus_load());
    if (!bytes) {
        fprintf(stderr, "transformer: the pages in docs/ could not be read\n");
        return ND_ERROR_IO;
    }
    self->text = nd_retain(nd_to(nd_cast(bytes, ND_I64), options->device));
    self->model = gpt_new(&sizes, nd_key_fold(self->key, 0));
    nd_status status = nd_module_to(self->model, options->device);
    return status == ND_OK ? make_optimizer(self, options->steps) : status;
}

/// The step's windows: [BATCH, LENGTH + 1].
static const nd_tensor *windows(const transformer *self, int64_t step) {
    const int64_t bytes = nd_get_size(self->text, 0);
    const nd_tensor *starts =
        nd_to(nd_randint(nd_key_fold(nd_key_fold(self->key, 1), (uint64_t)step), 0, bytes - LENGTH,
                         ND_SHAPE(BATCH, 1), ND_I64),
              nd_get_device(self->text));
    const nd_tensor *along = nd_to(nd_arange(0, LENGTH + 1, 1, ND_I64), nd_get_device(self->text));
    return nd_take(self->text, nd_add(starts, along), 0);
}

static nd_status transformer_step(void *state, int64_t step, double *ret_value) {
    transformer *self = state;
    nd_auto_scope;
    const nd_tensor *window = windows(self, step);
    const nd_tensor *ids = nd_slice(window, 0, LENGTH, 1, 1);
    const nd_tensor *targets = nd_slice(window, 1, LENGTH + 1, 1, 1);
    const nd_tensor *loss = nd_tmp(gpt_loss(self->model, ids, targets, false));
    nd_status status = nd_backward(loss, NULL);
    if (status == ND_OK)
        status = nd_clip_grad_norm(self->model, largest_norm, NULL);
    if (status == ND_OK)
        status = nd_optimizer_step(self->optimizer);
    if (status == ND_OK)
        status = nd_schedule_step(self->schedule);
    if (status == ND_OK)
        status = nd_optimizer_zero_grad(self->optimizer);
    *ret_value = self->recent[step % LAST] = nd_get_item(loss);
    return status;
}

static nd_status transformer_hand_over(void *state, const char *folder) {
    const transformer *self = state;
    hand_over out = {0};
    nd_status status = hand_over_module(folder, "model", self->model);
    for (int64_t i = 0; i < WORKLOAD_FIRST_STEPS && status == ND_OK; i++) {
        nd_auto_scope;
        status = hand_over_draw(&out, "windows", windows(self, i));
    }
    return hand_over_finish(&out, folder, status);
}

/// What it has come to: the loss of the last steps, and what it writes on from a title's "# ".
static nd_status transformer_finish(void *state, workload_outcome *ret_outcome) {
    const transformer *self = state;
    const int64_t prompt[] = {'#', ' '};
    int64_t bytes[SAMPLE];
    nd_status status =
        gpt_write(self->model, prompt, 2, SAMPLE, 0.7, nd_key_fold(self->key, 2), bytes);
    double sum = 0;
    int steps = 0;
    for (int i = 0; i < LAST; i++) {
        sum += self->recent[i];
        steps += self->recent[i] > 0;
    }
    char *text = ret_outcome->text;
    size_t length = (size_t)snprintf(
        text, WORKLOAD_TEXT, "%.2f nats per byte over the last %d steps\n# ", sum / steps, steps);
    for (int i = 0; i < SAMPLE && status == ND_OK; i++)
        if ((bytes[i] >= ' ' && bytes[i] <= '~') || bytes[i] == '\n')
            text[length++] = (char)bytes[i];
    text[length] = '\0';
    return status;
}

static void transformer_close(void *state) {
    transformer *self = state;
    if (!self)
        return;
    nd_release(self->schedule);
    nd_release(self->optimizer);
    nd_release(self->model);
    nd_release(self->text);
    free(self);
}

const workload workload_transformer = {
    .name = "transformer",
    .summary = "GPT-2's architecture, small, guesses the next byte of the docs",
    .steps = STEPS,
    .value = "nats per byte",
    .most_value = 1.6,
    .tolerance = 0.1,
    .first_tolerance = 1e-5,
    .has_peer = true,
    .open = transformer_open,
    .step = transformer_step,
    .hand_over = transformer_hand_over,
    .finish = transformer_finish,
    .close = transformer_close,
};
