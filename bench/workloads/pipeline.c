// pipeline: three threads decode and distort digits, one trains on them. A batch is made in a scope
// and a manager of the thread that makes it, both of which are closed before the trainer has seen
// it: only the handle goes over, and what the batch holds goes with it.
//
// A batch knows its samples, and each sample its batch, as such records do. So a batch that was
// trained on is a cycle, made on one thread and let go of on another.
//
// Batches are made in any order and used in theirs, each from its own number alone: what is learnt
// does not depend on how fast which thread was.
#include <nd/image.h>
#include <nd/scoped.h>

#include "bench/support/digits.h"
#include "bench/workloads/begin_thread.h"
#include "bench/workloads/hand_over.h"
#include "bench/workloads/workload.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    PRODUCERS = 3,
    AHEAD = 6,    ///< batches that are ready or being made
    FILES = 4000, ///< digits that are decoded again and again
    BATCH = 32,
    SIDE = 28,
    SHIFT = 2, ///< pixels that a digit is moved by at most, either way
    CLASSES = 10,
};
static const double rate = 2e-3, noise = 0.1;

// --------------------------------------------------------------------------------------- the records

/// A digit of a batch.
typedef struct sample {
    nd_object *batch;
    nd_tensor *image; ///< [1, 28, 28], f32
    int64_t file;     ///< which one it is made of
    int64_t label;
} sample;
#define SAMPLE_EDGES(ONE, MANY) ONE(batch) ONE(image)
ND_TYPE_EDGES(sample, SAMPLE_EDGES)

typedef struct batch {
    nd_list *samples;
    nd_tensor *images; ///< [BATCH, 1, 28, 28], f32
    nd_tensor *labels; ///< [BATCH], i64
} batch;
#define BATCH_EDGES(ONE, MANY) ONE(samples) ONE(images) ONE(labels)
ND_TYPE_EDGES(batch, BATCH_EDGES)

static const nd_type sample_type = {.size = sizeof(nd_type),
                                    .version = 1,
                                    .name = "sample",
                                    .traverse = sample_traverse,
                                    .clear = sample_clear};
static const nd_type batch_type = {.size = sizeof(nd_type),
                                   .version = 1,
                                   .name = "batch",
                                   .traverse = batch_traverse,
                                   .clear = batch_clear};

// -------------------------------------------------------------------------------------- the pipeline

typedef struct pipeline {
    nd_device device;          ///< that is trained on
    bool closes;               ///< no collector will come: cycles are cut by hand at the end
    const nd_manager *manager; ///< where batches go from that of their making
    nd_key key;
    digits digits;
    nd_tensor *files[FILES]; ///< PNG files, or the pixels themselves where there is no libpng
    bool png;
    nd_module *model;
    nd_optimizer *optimizer;
    int64_t hardest; ///< the file that the model was most wrong about, of the last batch
    pthread_t producers[PRODUCERS];
    int threads;
    pthread_mutex_t lock; ///< of what follows
    pthread_cond_t changed;
    nd_object *ready[AHEAD]; ///< batch n is in place n % AHEAD; NULL: not there
    int64_t begun;           ///< the number of the next batch that nobody makes yet
    int64_t used;            ///< of the next one to train on
    bool closing;
    nd_status status; ///< of a producer that failed
    char error[WORKLOAD_TEXT];
} pipeline;

// ----------------------------------------------------------------------------------------- producers

/// One digit, [28, 28] from 0 to 1.
static const nd_tensor *decode(const pipeline *self, int64_t file) {
    const nd_tensor *bytes = self->files[file];
    const nd_tensor *pixels =
        self->png ? nd_decode_image(nd_get_data(bytes), (size_t)nd_get_numel(bytes), NULL) : bytes;
    return nd_mul_scalar(nd_cast(nd_reshape(pixels, ND_SHAPE(SIDE, SIDE)), ND_F32), 1.0 / 255);
}

/// Moved, made fainter or stronger, and with noise.
static const nd_tensor *distort(const nd_tensor *image, nd_key key) {
    const nd_tensor *shifts =
        nd_randint(nd_key_fold(key, 0), -SHIFT, SHIFT + 1, ND_SHAPE(2), ND_I64);
    const int64_t *shift = nd_get_data(shifts);
    const int64_t padding[] = {shift[0], -shift[0], shift[1], -shift[1]};
    const nd_tensor *moved = nd_pad(image, 2, padding, 0, ND_PADDING_CONSTANT);
    const nd_tensor *strength = nd_add_scalar(nd_rand(nd_key_fold(key, 1), 0, NULL, ND_F32), 0.5);
    const nd_tensor *grain = nd_randn(nd_key_fold(key, 2), ND_SHAPE(SIDE, SIDE), ND_F32);
    const nd_tensor *noisy = nd_add(nd_mul(moved, strength), nd_mul_scalar(grain, noise));
    return nd_unsqueeze(nd_clip(noisy, 0, 1), 0);
}

/// Adds a sample to a batch that nobody else has.
static nd_status add_sample(const pipeline *self, nd_object *owner, nd_key key) {
    nd_auto_scope;
    const nd_tensor *drawn = nd_randint(nd_key_fold(key, 0), 0, FILES, 0, NULL, ND_I64);
    nd_auto nd_object *made = nd_object_new(&sample_type, sizeof(sample));
    sample *sample = nd_object_get_data(made);
    if (!sample || nd_get_item_i64(drawn, &sample->file) != ND_OK)
        return nd_error_get_status();
    const nd_tensor *image = distort(decode(self, sample->file), nd_key_fold(key, 1));
    if (!image)
        return nd_error_get_status();
    sample->label = ((const uint8_t *)nd_get_data(self->digits.train_labels))[sample->file];
    nd_edge_set(&sample->image, image);
    nd_edge_set(&sample->batch, owner);
    return nd_list_append(((batch *)nd_object_get_data(owner))->samples, made);
}

/// Samples, and the two tensors that are trained on.
static nd_status fill_batch(const pipeline *self, nd_object *owner, nd_key key) {
    nd_auto_scope;
    const nd_tensor *images[BATCH];
    int64_t labels[BATCH];
    batch *batch = nd_object_get_data(owner);
    nd_auto nd_list *samples = nd_list_new();
    nd_edge_set(&batch->samples, samples);
    nd_status status = samples ? ND_OK : nd_error_get_status();
    for (size_t i = 0; i < BATCH && status == ND_OK; i++) {
        status = add_sample(self, owner, nd_key_fold(key, i));
        if (status != ND_OK)
            return status;
        const sample *sample = nd_object_get_data(nd_list_get(samples, i));
        images[i] = sample->image;
        labels[i] = sample->label;
    }
    if (status == ND_OK) {
        nd_edge_set(&batch->images, nd_stack(BATCH, images, 0));
        nd_edge_set(&batch->labels, nd_from_data(labels, ND_SHAPE(BATCH), ND_I64));
    }
    return batch->images && batch->labels ? ND_OK : nd_error_get_status();
}

/// Batch `number`, owned; NULL on error. When this returns, scopes and manager of its making are
/// gone, and the batch is the run's.
static nd_object *make_batch(const pipeline *self, int64_t number) {
    nd_auto nd_manager *making = nd_manager_new(self->manager, "making");
    nd_auto nd_object *made = NULL;
    nd_status status = ND_ERROR_STATE;
    nd_with_manager(making) {
        made = nd_object_new(&batch_type, sizeof(batch));
        if (made)
            status = fill_batch(self, made, nd_key_fold(self->key, (uint64_t)number));
    }
    nd_status closed = nd_manager_close(making, NULL);
    return status == ND_OK && closed == ND_OK ? nd_steal(&made) : NULL;
}

/// Makes batches as long as there is room for another one.
static void *produce(void *data) {
    pipeline *self = data;
    pthread_mutex_lock(&self->lock);
    while (!self->closing && self->status == ND_OK) {
        if (self->begun == self->used + AHEAD) {
            pthread_cond_wait(&self->changed, &self->lock);
            continue;
        }
        int64_t number = self->begun++;
        pthread_mutex_unlock(&self->lock);
        nd_object *made = make_batch(self, number);
        pthread_mutex_lock(&self->lock);
        self->ready[number % AHEAD] = made;
        if (!made) {
            self->status = nd_error_get_status();
            snprintf(self->error, sizeof self->error, "%s", nd_error_get_message());
        }
        pthread_cond_broadcast(&self->changed);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

// ----------------------------------------------------------------------------------------- trainer

/// The batch whose turn it is, owned; NULL when a producer has failed.
static nd_object *take_batch(pipeline *self) {
    pthread_mutex_lock(&self->lock);
    nd_object **place = &self->ready[self->used % AHEAD];
    while (!*place && self->status == ND_OK)
        pthread_cond_wait(&self->changed, &self->lock);
    nd_object *taken = nd_steal(place);
    self->used += taken != NULL;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    return taken;
}

/// Waits until the next batches are all there, so that the same is alive after every step.
static nd_status wait_until_ahead(pipeline *self) {
    pthread_mutex_lock(&self->lock);
    for (int i = 0; i < AHEAD; i++)
        while (!self->ready[i] && self->status == ND_OK)
            pthread_cond_wait(&self->changed, &self->lock);
    nd_status status = self->status;
    pthread_mutex_unlock(&self->lock);
    if (status != ND_OK)
        snprintf(workload_problem, sizeof workload_problem, "a producer: %.1000s", self->error);
    return status;
}

/// Which sample of a batch has the greatest loss.
static nd_status find_hardest(pipeline *self, const batch *batch, const nd_tensor *labels,
                              const nd_tensor *logits) {
    nd_auto_scope;
    int64_t worst = 0;
    nd_status status = ND_OK;
    nd_no_grad {
        const nd_tensor *likely = nd_log_softmax(logits, 1);
        const nd_tensor *of_labels = nd_gather(likely, nd_unsqueeze(labels, 1), 1);
        status = nd_get_item_i64(nd_argmin(nd_flatten(of_labels, 0), 0, false), &worst);
    }
    if (status != ND_OK)
        return status;
    const sample *sample = nd_object_get_data(nd_list_get(batch->samples, (size_t)worst));
    self->hardest = sample->file;
    return ND_OK;
}

static nd_status train(pipeline *self, const batch *batch, double *ret_loss) {
    nd_auto_scope;
    const nd_tensor *labels = nd_to(batch->labels, self->device);
    const nd_tensor *logits = nd_module_forward(self->model, nd_to(batch->images, self->device));
    const nd_tensor *loss = nd_cross_entropy(logits, labels);
    nd_status status = nd_backward(loss, NULL);
    if (status == ND_OK)
        status = nd_optimizer_step(self->optimizer);
    if (status == ND_OK)
        status = nd_optimizer_zero_grad(self->optimizer);
    *ret_loss = nd_get_item(loss);
    return status == ND_OK ? find_hardest(self, batch, labels, logits) : status;
}

/// Takes a batch over: it belongs to the step from here on, and is garbage at the step's end.
static nd_status pipeline_step(void *state, int64_t step, double *ret_value) {
    (void)step;
    pipeline *self = state;
    nd_auto nd_object *taken = take_batch(self);
    nd_status status = taken ? nd_manager_attach(nd_manager_get_current(), taken) : ND_OK;
    if (taken && status == ND_OK)
        status = train(self, nd_object_get_data(taken), ret_value);
    nd_status waited = wait_until_ahead(self);
    return status == ND_OK ? waited : status;
}

static nd_status pipeline_hand_over(void *state, const char *folder) {
    const pipeline *self = state;
    hand_over out = {0};
    nd_status status = hand_over_module(folder, "model", self->model);
    for (int64_t i = 0; i < WORKLOAD_FIRST_STEPS && status == ND_OK; i++) {
        nd_auto nd_object *made = make_batch(self, i);
        const batch *batch = nd_object_get_data(made);
        status = batch ? hand_over_draw(&out, "images", batch->images) : nd_error_get_status();
        if (status == ND_OK)
            status = hand_over_draw(&out, "labels", batch->labels);
    }
    return hand_over_finish(&out, folder, status);
}

// -------------------------------------------------------------------------------- beginning and end

/// The first digits as files.
static nd_status encode(pipeline *self) {
    for (int64_t i = 0; i < FILES; i++) {
        nd_auto_scope;
        const nd_tensor *pixels = nd_select(self->digits.train_images, i, 0);
        const nd_tensor *image = nd_reshape(pixels, ND_SHAPE(SIDE, SIDE));
        const nd_tensor *file = i == 0 || self->png ? nd_encode_png(image, NULL) : image;
        if (i == 0) {
            self->png = file != NULL;
            if (!file && nd_error_get_status() == ND_ERROR_UNSUPPORTED) {
                nd_error_clear(); // no libpng here: the pixels as they are
                file = image;
            }
        }
        self->files[i] = nd_retain(file);
        if (!file)
            return nd_error_get_status();
    }
    return ND_OK;
}

static nd_module *make_model(nd_key key) {
    return ND_SEQUENTIAL(
        nd_flatten_module(), nd_linear_module(nd_key_fold(key, 0), SIDE * SIDE, 128, true),
        nd_relu_module(), nd_linear_module(nd_key_fold(key, 1), 128, CLASSES, true));
}

static nd_status pipeline_open(const workload_options *options, void **ret_state) {
    pipeline *self = *ret_state = calloc(1, sizeof *self);
    if (!self)
        return ND_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->changed, NULL);
    self->device = options->device;
    self->closes = options->strategy == WORKLOAD_SCOPE || options->strategy == WORKLOAD_DISPOSE;
    self->manager = nd_manager_get_current();
    self->key = nd_key_fold(nd_key_new(options->seed), 0);
    nd_status status = digits_load(&self->digits, options->data, 0);
    if (status == ND_OK)
        status = encode(self);
    if (status != ND_OK)
        return status;
    self->model = make_model(nd_key_fold(nd_key_new(options->seed), 1));
    status = nd_module_to(self->model, options->device);
    if (status != ND_OK)
        return status;
    nd_adam_options adam = ND_ADAM_OPTIONS_INIT;
    adam.rate = rate;
    self->optimizer = nd_adam(self->model, &adam);
    if (!self->optimizer)
        return nd_error_get_status();
    for (; self->threads < PRODUCERS; self->threads++)
        if (begin_thread(&self->producers[self->threads], produce, self) != ND_OK)
            return ND_ERROR_OUT_OF_MEMORY;
    return wait_until_ahead(self);
}

/// How many of the digits that were never shown it knows.
static nd_status pipeline_finish(void *state, workload_outcome *ret_outcome) {
    pipeline *self = state;
    nd_auto_scope;
    int64_t right = 0;
    nd_status status = ND_OK;
    nd_no_grad {
        const nd_tensor *bytes = nd_to(self->digits.test_images, self->device);
        const nd_tensor *pixels = nd_cast(bytes, ND_F32);
        const nd_tensor *logits = nd_module_forward(self->model, nd_mul_scalar(pixels, 1.0 / 255));
        const nd_tensor *answers = nd_argmax(logits, 1, false);
        const nd_tensor *labels = nd_to(self->digits.test_labels, self->device);
        const nd_tensor *equal = nd_equal(answers, labels);
        status = nd_get_item_i64(nd_sum(equal, 0, NULL, false), &right);
    }
    int64_t all = nd_get_size(self->digits.test_labels, 0);
    ret_outcome->score = (double)right / (double)all;
    snprintf(ret_outcome->text, sizeof ret_outcome->text,
             "%lld batches of %s by %d threads; the hardest of the last one was number %lld",
             (long long)self->used, self->png ? "PNG files" : "IDX digits", PRODUCERS,
             (long long)self->hardest);
    return status;
}

static void pipeline_close(void *state) {
    pipeline *self = state;
    if (!self)
        return;
    pthread_mutex_lock(&self->lock);
    self->closing = true;
    pthread_cond_broadcast(&self->changed);
    pthread_mutex_unlock(&self->lock);
    for (int i = 0; i < self->threads; i++)
        pthread_join(self->producers[i], NULL);
    for (int i = 0; i < AHEAD; i++) {
        if (self->closes)
            nd_close(self->ready[i]);
        nd_release(self->ready[i]);
    }
    pthread_mutex_destroy(&self->lock);
    pthread_cond_destroy(&self->changed);
    for (int i = 0; i < FILES; i++)
        nd_release(self->files[i]);
    nd_release(self->optimizer);
    nd_release(self->model);
    digits_release(&self->digits);
    free(self);
}

const workload workload_pipeline = {
    .name = "pipeline",
    .summary =
        "threads decode and distort digits, another trains; batches are cycles that cross over",
    .steps = 1500,
    .value = "loss",
    .score = "accuracy",
    .least_score = 0.9,
    .tolerance = 0.05,
    .first_tolerance = 1e-4,
    .makes_cycles = true,
    .has_peer = true,
    .open = pipeline_open,
    .step = pipeline_step,
    .hand_over = pipeline_hand_over,
    .finish = pipeline_finish,
    .close = pipeline_close,
};
