// wgan_gp: a generator of digits and its critic, a Wasserstein GAN with gradient penalty (Gulrajani
// et al. 2017). The penalty wants the critic's slope at points between digits and fakes, as part of
// the critic's loss: each update of the critic differentiates twice.
//
// The slope is asked for in the ordinary way, by a backward pass whose result is the points' own
// gradient. With create_graph that is a cycle, points -grad-> slope -node-> graph -source-> points,
// which counts never free: this program leaks by construction, and says nothing about it.
#include <nd/image.h>
#include <nd/scoped.h>

#include "bench/support/digits.h"
#include "bench/support/paths.h"
#include "bench/workloads/hand_over.h"
#include "bench/workloads/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    BATCH = 32 / WORKLOAD_SHRINK,
    SIDE = 28,
    NOISE = 32,
    WIDTH = 16,         ///< channels of the critic's first layer
    CRITIC_UPDATES = 3, ///< in a step
    SHEET_SIDE = 8,     ///< rows and columns of the sheet of samples
};
static const double rate = 1e-3, penalty_weight = 10;

typedef struct gan {
    nd_device device;
    digits digits;
    nd_dataset *data;
    nd_module *generator;
    nd_module *critic;
    nd_optimizer *generator_optimizer;
    nd_optimizer *critic_optimizer;
    nd_key key;
    uint64_t epoch;
    char sheet[4096]; ///< file for the samples; empty: none
} gan;

// ------------------------------------------------------------------------------------------ models

/// Smooth, because its slope is differentiated once more.
static nd_tensor *silu_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    nd_auto_scope;
    return nd_retain(nd_silu(x));
}

/// [n, c * 49] -> [n, c, 7, 7].
static nd_tensor *unflatten_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    nd_auto_scope;
    return nd_retain(nd_reshape(x, ND_SHAPE(nd_get_size(x, 0), nd_get_size(x, 1) / 49, 7, 7)));
}

static const nd_module_type silu_type = {
    .size = sizeof silu_type, .version = 1, .name = "silu", .forward = silu_forward};
static const nd_module_type unflatten_type = {
    .size = sizeof unflatten_type, .version = 1, .name = "unflatten", .forward = unflatten_forward};

/// [n, NOISE] -> [n, 1, 28, 28], from -1 to 1.
static nd_module *make_generator(nd_key key) {
    nd_conv_transpose2d_options doubled = ND_CONV_TRANSPOSE2D_OPTIONS_INIT;
    doubled.stride[0] = doubled.stride[1] = 2;
    doubled.padding[0] = doubled.padding[1] = 1;
    return ND_SEQUENTIAL(
        nd_linear_module(nd_key_fold(key, 0), NOISE, 2 * WIDTH * 49, true),
        nd_module_new(&unflatten_type, NULL, 0), nd_batch_norm_module(2 * WIDTH, NULL),
        nd_relu_module(),
        nd_conv_transpose2d_module(nd_key_fold(key, 1), 2 * WIDTH, WIDTH, 4, 4, true, &doubled),
        nd_batch_norm_module(WIDTH, NULL), nd_relu_module(),
        nd_conv_transpose2d_module(nd_key_fold(key, 2), WIDTH, 1, 4, 4, true, &doubled),
        nd_tanh_module());
}

/// [n, 1, 28, 28] -> [n, 1].
static nd_module *make_critic(nd_key key) {
    nd_conv2d_options halved = ND_CONV2D_OPTIONS_INIT;
    halved.stride[0] = halved.stride[1] = 2;
    halved.padding[0] = halved.padding[1] = 1;
    return ND_SEQUENTIAL(
        nd_conv2d_module(nd_key_fold(key, 0), 1, WIDTH, 4, 4, true, &halved),
        nd_module_new(&silu_type, NULL, 0),
        nd_conv2d_module(nd_key_fold(key, 1), WIDTH, 2 * WIDTH, 4, 4, true, &halved),
        nd_module_new(&silu_type, NULL, 0), nd_flatten_module(),
        nd_linear_module(nd_key_fold(key, 2), 2 * WIDTH * 49, 1, true));
}

/// What a key draws for `count` fakes: [count, NOISE].
static const nd_tensor *draw_noise(const gan *self, nd_key key, int64_t count) {
    return nd_to(nd_randn(key, ND_SHAPE(count, NOISE), ND_F32), self->device);
}

/// Where between digits and fakes slopes are looked at: [BATCH, 1, 1, 1], from 0 to 1.
static const nd_tensor *draw_parts(const gan *self, nd_key key) {
    return nd_to(nd_rand(key, ND_SHAPE(BATCH, 1, 1, 1), ND_F32), self->device);
}

/// `count` fakes of the numbers that a key draws.
static const nd_tensor *generate(const gan *self, nd_key key, int64_t count) {
    return nd_module_forward(self->generator, draw_noise(self, key, count));
}

/// The critic's mean answer.
static const nd_tensor *judge(const gan *self, const nd_tensor *images) {
    return nd_mean(nd_module_forward(self->critic, images), 0, NULL, false);
}

// --------------------------------------------------------------------------------------- training

/// What a step in some direction changes the critic's answer by, at points between the two batches:
/// its mean squared distance from one. (The critic's parameters get gradients as well, which those of
/// the loss replace.)
static const nd_tensor *slope_penalty(const gan *self, const nd_tensor *real, const nd_tensor *fake,
                                      nd_key key) {
    const nd_tensor *parts = draw_parts(self, key);
    nd_auto nd_tensor *points = nd_retain(nd_add(fake, nd_mul(parts, nd_sub(real, fake))));
    nd_backward_options recorded = ND_BACKWARD_OPTIONS_INIT;
    recorded.create_graph = true;
    if (nd_set_requires_grad(points, true) != ND_OK)
        return NULL;
    const nd_tensor *answers = nd_sum(nd_module_forward(self->critic, points), 0, NULL, false);
    if (nd_backward(answers, &recorded) != ND_OK)
        return NULL;
    const nd_tensor *slopes = nd_flatten(nd_get_grad(points), 1);
    const nd_tensor *squares = nd_sum(nd_square(slopes), 1, (const int[]){1}, false);
    const nd_tensor *norms = nd_sqrt(nd_add_scalar(squares, 1e-12));
    return nd_mean(nd_square(nd_sub_scalar(norms, 1)), 0, NULL, false);
}

/// The gradients of a loss become those of the critic's parameters.
static nd_status set_gradients(const nd_module *critic, const nd_tensor *loss) {
    enum { PARAMETERS = 6 };
    const nd_tensor *parameters[PARAMETERS];
    nd_tensor *gradients[PARAMETERS] = {0};
    for (size_t i = 0; i < PARAMETERS; i++)
        parameters[i] = nd_module_get_parameter_at(critic, i, NULL);
    nd_status status = nd_grad(loss, PARAMETERS, parameters, NULL, gradients);
    for (size_t i = 0; i < PARAMETERS; i++) {
        nd_auto nd_tensor *parameter = nd_retain(parameters[i]);
        if (status == ND_OK)
            status = nd_set_grad(parameter, gradients[i]);
        nd_release(gradients[i]);
    }
    return status;
}

/// Keys of what an update of the critic draws, folded from that of the update.
enum { NOISE_KEY, PARTS_KEY };

/// One update of the critic; writes how far it thinks fakes are from digits.
static nd_status update_critic(gan *self, const nd_tensor *real, nd_key key, double *ret_distance) {
    nd_auto_scope;
    const nd_tensor *fake = NULL;
    nd_no_grad fake = generate(self, nd_key_fold(key, NOISE_KEY), BATCH);
    const nd_tensor *penalty = slope_penalty(self, real, fake, nd_key_fold(key, PARTS_KEY));
    const nd_tensor *distance = nd_sub(judge(self, real), judge(self, fake));
    const nd_tensor *loss = nd_sub(nd_mul_scalar(penalty, penalty_weight), distance);
    nd_status status = loss ? set_gradients(self->critic, loss) : nd_error_get_status();
    if (status == ND_OK)
        status = nd_optimizer_step(self->critic_optimizer);
    if (status == ND_OK)
        status = nd_optimizer_zero_grad(self->critic_optimizer);
    *ret_distance = nd_get_item(distance);
    return status;
}

static nd_status update_generator(gan *self, nd_key key) {
    nd_auto_scope;
    const nd_tensor *loss = nd_neg(judge(self, generate(self, key, BATCH)));
    nd_status status = nd_backward(loss, NULL);
    if (status == ND_OK)
        status = nd_optimizer_step(self->generator_optimizer);
    if (status == ND_OK)
        status = nd_optimizer_zero_grad(self->generator_optimizer);
    return status == ND_OK ? nd_optimizer_zero_grad(self->critic_optimizer) : status;
}

/// The next digits, from -1 to 1; NULL on error.
static const nd_tensor *next_digits(gan *self) {
    nd_auto nd_tensor *images = NULL;
    nd_auto nd_tensor *labels = NULL;
    if (digits_next_batch(self->data, &self->epoch, &images, &labels) != ND_OK)
        return NULL;
    return nd_sub_scalar(nd_mul_scalar(images, 2), 1);
}

static nd_status gan_step(void *state, int64_t step, double *ret_value) {
    gan *self = state;
    nd_key key = nd_key_fold(self->key, (uint64_t)step);
    nd_status status = ND_OK;
    for (uint64_t i = 0; i < CRITIC_UPDATES && status == ND_OK; i++) {
        nd_auto_scope;
        const nd_tensor *real = next_digits(self);
        status = real ? update_critic(self, real, nd_key_fold(key, i), ret_value)
                      : nd_error_get_status();
    }
    return status == ND_OK ? update_generator(self, nd_key_fold(key, CRITIC_UPDATES)) : status;
}

// -------------------------------------------------------------------------------- begin and end

static nd_optimizer *make_optimizer(const nd_module *module) {
    nd_adam_options adam = ND_ADAM_OPTIONS_INIT;
    adam.rate = rate;
    adam.beta1 = 0.5;
    adam.beta2 = 0.9;
    return nd_adam(module, &adam);
}

static nd_status gan_open(const workload_options *options, void **ret_state) {
    gan *self = *ret_state = calloc(1, sizeof *self);
    if (!self)
        return ND_ERROR_OUT_OF_MEMORY;
    self->device = options->device;
    self->key = nd_key_fold(nd_key_new(options->seed), 0);
    if (options->output)
        snprintf(self->sheet, sizeof self->sheet, "%s/wgan_gp.png", options->output);
    nd_status status = digits_load(&self->digits, options->data, 0);
    if (status != ND_OK)
        return status;
    nd_auto_scope;
    nd_dataset_options batches = ND_DATASET_OPTIONS_INIT;
    batches.device = options->device;
    batches.batch = BATCH;
    batches.key = nd_key_fold(self->key, UINT64_MAX);
    batches.shuffle = batches.drop_last = true;
    const nd_tensor *pixels = self->digits.train_images;
    const nd_tensor *images = nd_reshape(pixels, ND_SHAPE(nd_get_size(pixels, 0), 1, SIDE, SIDE));
    self->data = nd_dataset_new(images, self->digits.train_labels, &batches);
    self->generator = make_generator(nd_key_fold(nd_key_new(options->seed), 1));
    self->critic = make_critic(nd_key_fold(nd_key_new(options->seed), 2));
    status = self->data ? nd_module_to(self->generator, options->device) : nd_error_get_status();
    if (status == ND_OK)
        status = nd_module_to(self->critic, options->device);
    if (status != ND_OK)
        return status;
    self->generator_optimizer = make_optimizer(self->generator);
    self->critic_optimizer = make_optimizer(self->critic);
    return self->generator_optimizer && self->critic_optimizer ? ND_OK : nd_error_get_status();
}

static nd_status hand_over_step(gan *self, int64_t step, hand_over *out) {
    nd_auto_scope;
    nd_key key = nd_key_fold(self->key, (uint64_t)step);
    nd_status status = ND_OK;
    for (uint64_t i = 0; i < CRITIC_UPDATES && status == ND_OK; i++) {
        nd_key update = nd_key_fold(key, i);
        status = hand_over_draw(out, "real", next_digits(self));
        if (status == ND_OK)
            status = hand_over_draw(out, "noise",
                                    draw_noise(self, nd_key_fold(update, NOISE_KEY), BATCH));
        if (status == ND_OK)
            status = hand_over_draw(out, "parts", draw_parts(self, nd_key_fold(update, PARTS_KEY)));
    }
    if (status == ND_OK)
        status = hand_over_draw(out, "generator_noise",
                                draw_noise(self, nd_key_fold(key, CRITIC_UPDATES), BATCH));
    return status;
}

static nd_status gan_hand_over(void *state, const char *folder) {
    gan *self = state;
    hand_over out = {0};
    nd_status status = hand_over_module(folder, "generator", self->generator);
    if (status == ND_OK)
        status = hand_over_module(folder, "critic", self->critic);
    for (int64_t i = 0; i < WORKLOAD_FIRST_STEPS && status == ND_OK; i++)
        status = hand_over_step(self, i, &out);
    return hand_over_finish(&out, folder, status);
}

/// [64, 1, 28, 28] from -1 to 1 -> [8 * 28, 8 * 28] of u8, dark on light.
static const nd_tensor *make_sheet(const nd_tensor *images) {
    const nd_tensor *grid = nd_reshape(images, ND_SHAPE(SHEET_SIDE, SHEET_SIDE, SIDE, SIDE));
    const nd_tensor *rows = nd_transpose(grid, 1, 2);
    const nd_tensor *sheet = nd_reshape(rows, ND_SHAPE(SHEET_SIDE * SIDE, SHEET_SIDE * SIDE));
    const nd_tensor *grey = nd_add_scalar(nd_mul_scalar(sheet, -127.5), 127.5);
    return nd_cast(grey, ND_U8);
}

static nd_status gan_finish(void *state, workload_outcome *ret_outcome) {
    gan *self = state;
    if (!*self->sheet)
        return ND_OK;
    nd_auto_scope;
    nd_status status = nd_module_set_training(self->generator, false);
    nd_no_grad {
        const nd_tensor *fakes =
            generate(self, nd_key_fold(self->key, UINT64_MAX - 1), SHEET_SIDE * SHEET_SIDE);
        const nd_tensor *sheet = make_sheet(fakes);
        if (status == ND_OK)
            status = nd_save_png(self->sheet, sheet, NULL);
    }
    snprintf(ret_outcome->text, sizeof ret_outcome->text, "a sheet of %d samples in %.900s",
             SHEET_SIDE * SHEET_SIDE, self->sheet);
    return status;
}

static void gan_close(void *state) {
    gan *self = state;
    if (!self)
        return;
    nd_release(self->generator_optimizer);
    nd_release(self->critic_optimizer);
    nd_release(self->generator);
    nd_release(self->critic);
    nd_release(self->data);
    digits_release(&self->digits);
    free(self);
}

const workload workload_wgan_gp = {
    .name = "wgan_gp",
    .summary = "a GAN learns to draw digits; its gradient penalty leaves a cycle per update",
    .steps = 1200,
    .value = "distance",
    .tolerance = 0.05,
    .makes_cycles = true,
    .first_tolerance = 1e-4,
    .has_peer = true,
    .open = gan_open,
    .step = gan_step,
    .hand_over = gan_hand_over,
    .finish = gan_finish,
    .close = gan_close,
};
