// large_images: a residual net with batch norm on pictures of 3 x 512 x 512, digits that this program
// enlarges and colours. One step holds a hundred times what the model weighs. It learns one batch by
// heart, as whoever tries a new net does first: eight steps are enough to show that it learns.
//
// The program draws maps of what in a picture spoke for its answer (Selvaraju et al. 2017): a hook
// on the last features weighs them by their gradient. So the hook wants the features, and holds
// them: features -hook-> map -features-> features. With the features the whole step stays, all its
// activations, and no count ever frees them.
#include <nd/scoped.h>

#include "bench/support/digits.h"
#include "bench/workloads/hand_over.h"
#include "bench/workloads/workload.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    BATCH = WORKLOAD_SHRINK == 1 ? 8 : 2,
    SIDE = 512 / WORKLOAD_SHRINK,
    DIGIT = 28, ///< side of a digit before
    WIDTH = 8,  ///< channels of the first layer
    STAGES = 4, ///< each but the first halves the sides and doubles the channels
    CLASSES = 10,
};
static const double rate = 2e-3;

typedef struct large {
    nd_device device;
    digits digits;
    nd_key key;
    nd_module *model;          ///< [n, 3, SIDE, SIDE] -> [n, CLASSES], of the two below
    const nd_module *features; ///< [n, 3, SIDE, SIDE] -> [n, c, h, w]
    const nd_module *head;     ///< [n, c, h, w] -> [n, CLASSES]
    nd_optimizer *optimizer;
    double focus; ///< of the last step: by how much the brightest place of a map exceeds its mean
} large;

// ----------------------------------------------------------------------------------------- the model

/// x -> relu(norm(conv(relu(norm(conv(x))))) + x'), where x' has the result's shape.
static nd_tensor *block_forward(const nd_module *self, const nd_tensor *x) {
    nd_auto_scope;
    const nd_tensor *shortcut = x;
    if (nd_module_get_child_count(self) > 1)
        shortcut = nd_module_forward(nd_module_get_child(self, 1), x);
    const nd_tensor *y = nd_module_forward(nd_module_get_child(self, 0), x);
    return nd_retain(nd_relu(nd_add(y, shortcut)));
}

static const nd_module_type block_type = {
    .size = sizeof block_type, .version = 1, .name = "block", .forward = block_forward};

/// A convolution over windows of `kernel`, with as much padding as keeps the sides, and its norm.
static nd_module *make_conv(nd_key key, int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    nd_conv2d_options options = ND_CONV2D_OPTIONS_INIT;
    options.stride[0] = options.stride[1] = stride;
    options.padding[0] = options.padding[1] = kernel / 2;
    return ND_SEQUENTIAL(nd_conv2d_module(key, in, out, kernel, kernel, false, &options),
                         nd_batch_norm_module(out, NULL));
}

static nd_module *make_block(nd_key key, int64_t in, int64_t out, int64_t stride) {
    nd_auto nd_module *block = nd_module_new(&block_type, NULL, 0);
    nd_auto nd_module *body =
        ND_SEQUENTIAL(make_conv(nd_key_fold(key, 0), in, out, 3, stride), nd_relu_module(),
                      make_conv(nd_key_fold(key, 1), out, out, 3, 1));
    if (nd_module_add_child(block, "body", body) != ND_OK)
        return NULL;
    if (in != out || stride != 1) {
        nd_auto nd_module *shortcut = make_conv(nd_key_fold(key, 2), in, out, 1, stride);
        if (nd_module_add_child(block, "shortcut", shortcut) != ND_OK)
            return NULL;
    }
    return nd_steal(&block);
}

/// The stem halves the sides; then one block for each stage.
static nd_module *make_features(nd_key key) {
    nd_module *layers[2 + STAGES] = {make_conv(nd_key_fold(key, 0), 3, WIDTH, 5, 2),
                                     nd_relu_module()};
    for (int64_t i = 0, in = WIDTH; i < STAGES; i++) {
        int64_t out = WIDTH << i;
        layers[2 + i] = make_block(nd_key_fold(key, 1 + (uint64_t)i), in, out, i == 0 ? 1 : 2);
        in = out;
    }
    return nd_sequential(2 + STAGES, layers);
}

static nd_module *make_head(nd_key key) {
    return ND_SEQUENTIAL(nd_adaptive_avg_pool2d_module(1, 1), nd_flatten_module(),
                         nd_linear_module(key, WIDTH << (STAGES - 1), CLASSES, true));
}

// -------------------------------------------------------------------------------------- the pictures

/// A colour of each picture, of its ground (0) or its ink (1): [n, 3, 1, 1]. The same in each step.
static const nd_tensor *draw_colours(const large *self, int64_t count, uint64_t of) {
    nd_key key = nd_key_fold(self->key, 2);
    return nd_to(nd_rand(nd_key_fold(key, of), ND_SHAPE(count, 3, 1, 1), ND_F32), self->device);
}

/// [n, 784] of u8 -> [n, 3, SIDE, SIDE], owned: each digit in a colour of its own on one of its own.
static nd_tensor *make_pictures(const large *self, const nd_tensor *pixels) {
    nd_auto_scope; // what is as large as the pictures ends here
    int64_t count = nd_get_size(pixels, 0);
    const nd_tensor *digits = nd_reshape(pixels, ND_SHAPE(count, 1, DIGIT, DIGIT));
    const nd_tensor *small = nd_to(nd_mul_scalar(nd_cast(digits, ND_F32), 1.0 / 255), self->device);
    nd_interpolate_options enlarged = ND_INTERPOLATE_OPTIONS_INIT;
    enlarged.sizes[0] = enlarged.sizes[1] = SIDE;
    enlarged.mode = ND_INTERPOLATION_LINEAR;
    const nd_tensor *shapes = nd_interpolate(small, &enlarged);
    const nd_tensor *ground = draw_colours(self, count, 0);
    const nd_tensor *ink = draw_colours(self, count, 1);
    return nd_retain(nd_add(ground, nd_mul(shapes, nd_sub(ink, ground))));
}

// ---------------------------------------------------------------------------------------- the maps

/// What the hook needs: a type of the program's own, with an edge.
typedef struct map {
    nd_tensor *features;
    double *focus;
} map;
#define MAP_EDGES(ONE, MANY) ONE(features)
ND_TYPE_EDGES(map, MAP_EDGES)

static const nd_type map_type = {.size = sizeof(nd_type),
                                 .version = 1,
                                 .name = "map",
                                 .traverse = map_traverse,
                                 .clear = map_clear};

/// Hook of the features: the map is their sum, each channel weighed by its mean gradient.
static nd_tensor *draw_map(const nd_tensor *gradient, const nd_object *context) {
    const map *map = nd_object_get_data(context);
    nd_auto_scope;
    nd_no_grad {
        const nd_tensor *weights = nd_mean(gradient, 2, (const int[]){2, 3}, true);
        const nd_tensor *weighed = nd_neg(nd_mul(map->features, weights));
        const nd_tensor *drawn = nd_relu(nd_sum(weighed, 1, (const int[]){1}, false));
        const nd_tensor *brightest = nd_max(drawn, 0, NULL, false);
        *map->focus = nd_get_item(nd_sub(brightest, nd_mean(drawn, 0, NULL, false)));
    }
    return NULL;
}

/// From here on the features hold the hook, the hook its map, and the map the features.
static nd_status attach_map(large *self, const nd_tensor *borrowed) {
    nd_auto nd_tensor *features = nd_retain(borrowed);
    nd_auto nd_object *context = nd_object_new(&map_type, sizeof(map));
    if (!features || !context)
        return nd_error_get_status();
    map *map = nd_object_get_data(context);
    map->focus = &self->focus;
    nd_edge_set(&map->features, features);
    return nd_register_hook(features, draw_map, context);
}

// -------------------------------------------------------------------------------------------- running

static nd_status large_open(const workload_options *options, void **ret_state) {
    large *self = *ret_state = calloc(1, sizeof *self);
    if (!self)
        return ND_ERROR_OUT_OF_MEMORY;
    self->device = options->device;
    self->key = nd_key_new(options->seed);
    nd_status status = digits_load(&self->digits, options->data, 0);
    if (status != ND_OK)
        return status;
    self->model = ND_SEQUENTIAL(make_features(nd_key_fold(self->key, 0)),
                                make_head(nd_key_fold(self->key, 1)));
    status = nd_module_to(self->model, options->device);
    if (status != ND_OK)
        return status;
    self->features = nd_module_get_child(self->model, 0);
    self->head = nd_module_get_child(self->model, 1);
    nd_adam_options adam = ND_ADAM_OPTIONS_INIT;
    adam.rate = rate;
    self->optimizer = nd_adam(self->model, &adam);
    return self->optimizer ? ND_OK : nd_error_get_status();
}

static nd_status large_step(void *state, int64_t step, double *ret_value) {
    (void)step;
    large *self = state;
    nd_auto_scope;
    const nd_tensor *pixels = nd_slice(self->digits.train_images, 0, BATCH, 1, 0);
    const nd_tensor *labels = nd_slice(self->digits.train_labels, 0, BATCH, 1, 0);
    const nd_tensor *targets = nd_to(nd_cast(labels, ND_I64), self->device);
    nd_auto nd_tensor *pictures = make_pictures(self, pixels);
    const nd_tensor *features = nd_module_forward(self->features, pictures);
    nd_status status = features ? attach_map(self, features) : nd_error_get_status();
    if (status != ND_OK)
        return status;
    const nd_tensor *loss = nd_cross_entropy(nd_module_forward(self->head, features), targets);
    status = nd_backward(loss, NULL);
    if (status == ND_OK)
        status = nd_optimizer_step(self->optimizer);
    if (status == ND_OK)
        status = nd_optimizer_zero_grad(self->optimizer);
    *ret_value = nd_get_item(loss);
    return status;
}

static nd_status large_hand_over(void *state, const char *folder) {
    const large *self = state;
    hand_over out = {0};
    nd_status status = hand_over_module(folder, "model", self->model);
    nd_auto_scope;
    if (status == ND_OK)
        status = hand_over_draw(&out, "ground", draw_colours(self, BATCH, 0));
    if (status == ND_OK)
        status = hand_over_draw(&out, "ink", draw_colours(self, BATCH, 1));
    return hand_over_finish(&out, folder, status);
}

static nd_status large_finish(void *state, workload_outcome *ret_outcome) {
    const large *self = state;
    snprintf(ret_outcome->text, sizeof ret_outcome->text,
             "the last step's maps are brightest by %.3g above their mean", self->focus);
    return ND_OK;
}

static void large_close(void *state) {
    large *self = state;
    if (!self)
        return;
    nd_release(self->optimizer);
    nd_release(self->model);
    digits_release(&self->digits);
    free(self);
}

const workload workload_large_images = {
    .name = "large_images",
    .summary = "a residual net on pictures of 3 x 512 x 512; maps of its answers hold whole steps",
    .steps = 8,
    .value = "loss",
    .step_bytes = (uint64_t)256 << 20,
    .most_value = 0.7, // a net that has learnt nothing has ln 10
    .tolerance = 0.05,
    .first_tolerance = 5e-3, // Adam's first step is a whole one, also where a gradient is rounding
    .first_steps = 2,        // and what it has moved so differs more with each step
    .makes_cycles = true,
    .has_peer = true,
    .open = large_open,
    .step = large_step,
    .hand_over = large_hand_over,
    .finish = large_finish,
    .close = large_close,
};
