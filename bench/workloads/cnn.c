// cnn: a convolutional net of LeNet's class learns the digits. Nothing cyclic: counts free all of
// it, and a collector that is on has nothing to do.
#include <nd/scoped.h>

#include "bench/support/digits.h"
#include "bench/workloads/hand_over.h"
#include "bench/workloads/workload.h"

#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 64 / WORKLOAD_SHRINK, TEST_BATCH = 500 / WORKLOAD_SHRINK, SIDE = 28, CLASSES = 10 };
static const double rate = 2e-3;

typedef struct cnn {
    digits digits;
    nd_dataset *train;
    nd_dataset *test;
    nd_module *model;
    nd_optimizer *optimizer;
    nd_schedule *schedule;
    uint64_t epoch;
} cnn;

/// [n, 1, 28, 28] -> [n, 10]: two convolutions, two linear layers.
static nd_module *make_model(nd_key key) {
    nd_conv2d_options padded = ND_CONV2D_OPTIONS_INIT;
    padded.padding[0] = padded.padding[1] = 2;
    nd_max_pool2d_options halves = ND_MAX_POOL2D_OPTIONS_INIT;
    halves.kernel[0] = halves.kernel[1] = 2;
    return ND_SEQUENTIAL(nd_conv2d_module(nd_key_fold(key, 0), 1, 16, 5, 5, true, &padded),
                         nd_relu_module(), nd_max_pool2d_module(&halves),
                         nd_conv2d_module(nd_key_fold(key, 1), 16, 32, 5, 5, true, NULL),
                         nd_relu_module(), nd_max_pool2d_module(&halves), nd_flatten_module(),
                         nd_linear_module(nd_key_fold(key, 2), 32 * 5 * 5, 128, true),
                         nd_relu_module(),
                         nd_linear_module(nd_key_fold(key, 3), 128, CLASSES, true));
}

static nd_dataset *make_data(const nd_tensor *pixels, const nd_tensor *labels,
                             const nd_dataset_options *options) {
    nd_auto_scope;
    const nd_tensor *images = nd_reshape(pixels, ND_SHAPE(nd_get_size(pixels, 0), 1, SIDE, SIDE));
    return nd_dataset_new(images, labels, options);
}

static nd_dataset *make_test_data(const digits *from, const nd_dataset_options *options) {
    nd_auto_scope;
    int64_t count = nd_get_size(from->test_labels, 0) / WORKLOAD_SHRINK;
    return make_data(nd_slice(from->test_images, 0, count, 1, 0),
                     nd_slice(from->test_labels, 0, count, 1, 0), options);
}

static nd_status cnn_open(const workload_options *options, void **ret_state) {
    cnn *self = *ret_state = calloc(1, sizeof *self);
    if (!self)
        return ND_ERROR_OUT_OF_MEMORY;
    nd_status status = digits_load(&self->digits, options->data, 0);
    if (status != ND_OK)
        return status;
    nd_key key = nd_key_new(options->seed);
    nd_dataset_options batches = ND_DATASET_OPTIONS_INIT;
    batches.device = options->device;
    batches.batch = TEST_BATCH;
    self->test = make_test_data(&self->digits, &batches);
    batches.batch = BATCH;
    batches.key = nd_key_fold(key, 0);
    batches.shuffle = batches.drop_last = true;
    self->train = make_data(self->digits.train_images, self->digits.train_labels, &batches);
    self->model = make_model(nd_key_fold(key, 1));
    status = nd_module_to(self->model, options->device);
    if (status != ND_OK)
        return status;
    nd_adam_options adam = ND_ADAM_OPTIONS_INIT;
    adam.rate = rate;
    self->optimizer = nd_adam(self->model, &adam);
    self->schedule = nd_cosine_schedule(0, options->steps);
    status = nd_schedule_start(self->schedule, self->optimizer);
    return self->train && self->test ? status : nd_error_get_status();
}

static nd_status cnn_step(void *state, int64_t step, double *ret_value) {
    (void)step;
    cnn *self = state;
    nd_auto_scope;
    nd_auto nd_tensor *images = NULL;
    nd_auto nd_tensor *labels = NULL;
    nd_status status = digits_next_batch(self->train, &self->epoch, &images, &labels);
    if (status != ND_OK)
        return status;
    const nd_tensor *logits = nd_module_forward(self->model, images);
    const nd_tensor *loss = nd_cross_entropy(logits, labels);
    status = nd_backward(loss, NULL);
    if (status == ND_OK)
        status = nd_optimizer_step(self->optimizer);
    if (status == ND_OK)
        status = nd_schedule_step(self->schedule);
    if (status == ND_OK)
        status = nd_optimizer_zero_grad(self->optimizer);
    *ret_value = nd_get_item(loss);
    return status;
}

static nd_status cnn_hand_over(void *state, const char *folder) {
    cnn *self = state;
    hand_over out = {0};
    nd_status status = hand_over_module(folder, "model", self->model);
    for (int i = 0; i < WORKLOAD_FIRST_STEPS && status == ND_OK; i++) {
        nd_auto_scope;
        nd_auto nd_tensor *images = NULL;
        nd_auto nd_tensor *labels = NULL;
        status = digits_next_batch(self->train, &self->epoch, &images, &labels);
        if (status == ND_OK)
            status = hand_over_draw(&out, "images", images);
        if (status == ND_OK)
            status = hand_over_draw(&out, "labels", nd_cast(labels, ND_I64));
    }
    return hand_over_finish(&out, folder, status);
}

static nd_status count_right(const cnn *self, int64_t *ret_right) {
    nd_status status = nd_dataset_start(self->test, 0);
    *ret_right = 0;
    for (bool more = true; more && status == ND_OK;) {
        nd_auto_scope;
        nd_auto nd_tensor *images = NULL;
        nd_auto nd_tensor *labels = NULL;
        int64_t right = 0;
        status = nd_dataset_next_batch(self->test, &images, &labels);
        more = status == ND_OK && images;
        if (!more)
            return status;
        const nd_tensor *answers = nd_argmax(nd_module_forward(self->model, images), 1, false);
        status = nd_get_item_i64(nd_sum(nd_equal(answers, labels), 0, NULL, false), &right);
        *ret_right += right;
    }
    return status;
}

static nd_status cnn_finish(void *state, workload_outcome *ret_outcome) {
    cnn *self = state;
    int64_t right = 0;
    nd_status status = ND_OK;
    nd_no_grad status = count_right(self, &right);
    int64_t all = nd_dataset_get_size(self->test);
    ret_outcome->score = (double)right / (double)all;
    snprintf(ret_outcome->text, sizeof ret_outcome->text,
             "%lld of %lld digits it has not seen right", (long long)right, (long long)all);
    return status;
}

static void cnn_close(void *state) {
    cnn *self = state;
    if (!self)
        return;
    nd_release(self->schedule);
    nd_release(self->optimizer);
    nd_release(self->model);
    nd_release(self->train);
    nd_release(self->test);
    digits_release(&self->digits);
    free(self);
}

const workload workload_cnn = {
    .name = "cnn",
    .summary = "a convolutional net learns the digits; nothing cyclic",
    .steps = 1250,
    .data_steps = 4700,
    .value = "loss",
    .score = "accuracy",
    .least_score = 0.98,
    .data_score = 0.99,
    .tolerance = 0.01,
    // PyTorch through oneDNN differs from itself in f64 by 2.2e-5 on one machine, where ours does by 4e-7.
    .first_tolerance = 1e-4,
    .has_peer = true,
    .open = cnn_open,
    .step = cnn_step,
    .hand_over = cnn_hand_over,
    .finish = cnn_finish,
    .close = cnn_close,
};
