// Calls of functions that networks are made of: windows of one and three axes, norms, dropout,
// attention, recurrent nets, losses.
#include "tests/fuzz/tensors.h"

// ----------------------------------------------------------------------------------------- windows

/// Numbers that fit often, some that never do, and rarely very large ones.
static int64_t window_number(uint8_t number) {
    return number == 255 ? INT64_MAX : number % 8 < 6 ? number % 3 : number % 4 - 1;
}

static nd_tensor *conv1(const nd_tensor *const *in, const fuzz_step *s) {
    nd_conv1d_options options = ND_CONV1D_OPTIONS_INIT;
    options.stride = 1 + s->c / 8 % 2;
    options.padding = window_number(s->c / 16);
    options.dilation = 1 + s->a / 32 % 2;
    options.groups = s->a / 64 == 3 ? window_number(s->b) : 1 + s->a / 64;
    options.extra_padding = s->b / 8 % 3 - 1;
    return nd_conv1d(in[0], in[1], s->a & 16 ? in[2] : NULL, s->c == 1 ? NULL : &options);
}

static nd_tensor *conv3(const nd_tensor *const *in, const fuzz_step *s) {
    nd_conv3d_options options = ND_CONV3D_OPTIONS_INIT;
    for (int axis = 0; axis < 3; axis++) {
        options.stride[axis] = 1 + (s->c >> axis) / 8 % 2;
        options.padding[axis] = (s->b >> axis) / 8 % 2;
    }
    options.dilation[1] = window_number(s->c / 16) + 1;
    options.groups = 1 + s->a / 64 % 2;
    options.extra_padding[2] = s->b / 64 - 1;
    return nd_conv3d(in[0], in[1], s->a & 16 ? in[2] : NULL, s->c == 1 ? NULL : &options);
}

static nd_tensor *conv_transpose1(const nd_tensor *const *in, const fuzz_step *s) {
    nd_conv_transpose1d_options options = ND_CONV_TRANSPOSE1D_OPTIONS_INIT;
    options.stride = window_number(s->c / 8);
    options.padding = s->b / 8 % 3;
    options.output_padding = s->b / 32 % 2;
    options.dilation = 1 + s->a / 32 % 2;
    options.groups = 1 + s->a / 64 % 2;
    return nd_conv_transpose1d(in[0], in[1], s->a & 16 ? in[2] : NULL, &options);
}

static nd_tensor *conv_transpose3(const nd_tensor *const *in, const fuzz_step *s) {
    nd_conv_transpose3d_options options = ND_CONV_TRANSPOSE3D_OPTIONS_INIT;
    for (int axis = 0; axis < 3; axis++)
        options.stride[axis] = 1 + (s->c >> axis) / 8 % 2;
    options.padding[0] = s->b / 8 % 3;
    options.output_padding[2] = window_number(s->b / 32);
    options.groups = 1 + s->a / 64 % 2;
    return nd_conv_transpose3d(in[0], in[1], s->a & 16 ? in[2] : NULL, &options);
}

static nd_max_pool1d_options max_options1(const fuzz_step *s) {
    nd_max_pool1d_options options = ND_MAX_POOL1D_OPTIONS_INIT;
    options.kernel = s->c % 4;
    options.stride = window_number(s->c / 4);
    options.padding = s->d % 3;
    options.dilation = s->d == 255 ? INT64_MAX : 1 + s->d / 4 % 2;
    options.ceil_mode = s->d / 8 % 2;
    return options;
}

static nd_max_pool3d_options max_options3(const fuzz_step *s) {
    nd_max_pool3d_options options = ND_MAX_POOL3D_OPTIONS_INIT;
    for (int axis = 0; axis < 3; axis++) {
        options.kernel[axis] = 1 + (s->c >> axis) % 2;
        options.stride[axis] = (s->c >> axis) / 8 % 3;
    }
    options.padding[0] = s->d % 2;
    options.dilation[1] = window_number(s->d / 2) + 1;
    options.ceil_mode = s->d / 64 % 2;
    return options;
}

static nd_tensor *max1(const nd_tensor *x, const fuzz_step *s) {
    const nd_max_pool1d_options options = max_options1(s);
    return nd_max_pool1d(x, &options);
}

static nd_tensor *max3(const nd_tensor *x, const fuzz_step *s) {
    const nd_max_pool3d_options options = max_options3(s);
    return nd_max_pool3d(x, &options);
}

static nd_tensor *avg1(const nd_tensor *x, const fuzz_step *s) {
    nd_avg_pool1d_options options = ND_AVG_POOL1D_OPTIONS_INIT;
    options.kernel = s->c % 4;
    options.stride = window_number(s->c / 4);
    options.padding = s->d % 3;
    options.ceil_mode = s->d / 8 % 2;
    options.count_include_pad = s->d / 16 % 2;
    options.divisor = s->d / 32 - 1;
    return nd_avg_pool1d(x, &options);
}

static nd_tensor *avg3(const nd_tensor *x, const fuzz_step *s) {
    nd_avg_pool3d_options options = ND_AVG_POOL3D_OPTIONS_INIT;
    for (int axis = 0; axis < 3; axis++)
        options.kernel[axis] = 1 + (s->c >> axis) % 2;
    options.stride[2] = window_number(s->c / 8);
    options.padding[1] = s->d % 2;
    options.ceil_mode = s->d / 8 % 2;
    options.divisor = s->d / 32 - 1;
    return nd_avg_pool3d(x, &options);
}

/// One of the results, the other is released.
static nd_tensor *pool_with_indices(const nd_tensor *x, const fuzz_step *s) {
    nd_max_pool1d_options one = max_options1(s);
    nd_max_pool2d_options two = ND_MAX_POOL2D_OPTIONS_INIT;
    nd_max_pool3d_options three = max_options3(s);
    two.kernel[0] = s->c % 4;
    two.kernel[1] = 1 + s->d % 3;
    two.padding[1] = s->d / 4 % 2;
    two.ceil_mode = s->d / 8 % 2;
    nd_tensor *results[2] = {NULL, NULL};
    nd_status status =
        nd_get_ndim(x) <= 3   ? nd_max_pool1d_with_indices(x, &one, &results[0], &results[1])
        : nd_get_ndim(x) == 4 ? nd_max_pool2d_with_indices(x, &two, &results[0], &results[1])
                              : nd_max_pool3d_with_indices(x, &three, &results[0], &results[1]);
    if (status != ND_OK)
        return NULL;
    nd_release(results[s->a / 16 % 2]);
    return results[1 - s->a / 16 % 2];
}

WITH(conv1d, 3, conv1(in, s))
WITH(conv3d, 3, conv3(in, s))
WITH(conv_transpose1d, 3, conv_transpose1(in, s))
WITH(conv_transpose3d, 3, conv_transpose3(in, s))
WITH(max_pool1d, 1, max1(in[0], s))
WITH(max_pool3d, 1, max3(in[0], s))
WITH(max_pool_with_indices, 1, pool_with_indices(in[0], s))
WITH(avg_pool1d, 1, avg1(in[0], s))
WITH(avg_pool3d, 1, avg3(in[0], s))
WITH(adaptive_avg_pool1d, 1, nd_adaptive_avg_pool1d(in[0], s->c % 6 - 1))
WITH(adaptive_avg_pool2d, 1, nd_adaptive_avg_pool2d(in[0], s->c % 6, s->d % 6 - 1))
WITH(adaptive_max_pool1d, 1, nd_adaptive_max_pool1d(in[0], s->c % 6 - 1))
WITH(adaptive_max_pool3d, 1, nd_adaptive_max_pool3d(in[0], s->c % 4, s->d % 4, 2))
ONE(global_avg_pool)
ONE(global_max_pool)

// ------------------------------------------------------------------------------- norms and dropout

static double epsilon_of(uint8_t number) {
    static const double epsilons[] = {1e-5, 0, 0.5, -1};
    return epsilons[number % 4];
}

static nd_batch_norm_options norm_options(const fuzz_step *s) {
    static const double momenta[] = {0.1, 0, 1, 2};
    nd_batch_norm_options options = ND_BATCH_NORM_OPTIONS_INIT;
    options.training = s->d / 8 % 2;
    options.momentum = momenta[s->d / 16 % 4];
    options.epsilon = epsilon_of(s->d / 64);
    return options;
}

/// By x's own statistics.
static nd_tensor *own_norm(const nd_tensor *x, const nd_tensor *weight, const fuzz_step *s) {
    const nd_batch_norm_options options = norm_options(s);
    return s->a & 16 ? nd_batch_norm(x, weight, weight, NULL, NULL, &options)
                     : nd_instance_norm(x, weight, weight, NULL, NULL, &options);
}

/// Statistics are written while training, and so are this thread's alone.
static void running_norm(fuzz_actor *me, const fuzz_step *s) {
    const nd_batch_norm_options options = norm_options(s);
    const nd_tensor *x = fuzz_tensor(me, s->b), *weight = fuzz_tensor(me, s->c);
    if (fuzz_is_large(x))
        return;
    nd_tensor *mean = fuzz_pick_to_write(me, FUZZ_TENSOR, s->d);
    nd_tensor *variance =
        mean ? fuzz_pick_to_write(me, FUZZ_TENSOR, (uint8_t)(s->d % 8 + 1)) : NULL;
    nd_tensor *y =
        s->a & 16 ? nd_batch_norm(x, weight, weight, mean, variance, s->d ? &options : NULL)
                  : nd_instance_norm(x, weight, weight, mean, variance, s->d ? &options : NULL);
    fuzz_expect(me, y);
    fuzz_put(me, FUZZ_TENSOR, s->a, y);
}

WITH(layer_norm, 3, nd_layer_norm(in[0], in[1], in[2], epsilon_of(s->a / 64), s->a / 16 % 4))
WITH(rms_norm, 2, nd_rms_norm(in[0], in[1], epsilon_of(s->d), s->d / 4 % 4))
WITH(group_norm, 3, nd_group_norm(in[0], in[1], in[2], s->a / 16 % 4, epsilon_of(s->a / 64)))
WITH(own_norm, 2, own_norm(in[0], in[1], s))
WITH(dropout, 1,
     nd_dropout(in[0], nd_key_new(s->c), (double)(s->d % 8) / 6 - (s->d == 255), s->d / 8 % 4))

// --------------------------------------------------------------------------------------- attention

/// Which keys queries see, at random; of the scores' last two axes.
static nd_tensor *new_mask(const nd_tensor *query, const nd_tensor *key, const fuzz_step *s) {
    if (nd_get_ndim(query) < 2 || nd_get_ndim(key) < 2)
        return NULL;
    const int64_t shape[] = {nd_get_size(query, -2), nd_get_size(key, -2)};
    nd_auto nd_tensor *draws = nd_rand(nd_key_new(s->b), 2, shape, ND_F32);
    nd_auto nd_tensor *here = nd_to(draws, nd_get_device(query));
    return s->c / 8 % 2 ? nd_retain(here) : nd_cast(here, ND_BOOL);
}

static nd_tensor *attend(const nd_tensor *const *in, const fuzz_step *s) {
    static const double scales[] = {0, 1, -0.5, 0.125};
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.scale = scales[s->c / 64];
    options.dropout = s->d / 16 % 4 == 3 ? 0.5 : 0;
    options.key = nd_key_new(s->d);
    options.causal = s->a / 16 % 2;
    if (s->a & 32 || s->c / 16 % 4 == 3)
        return nd_attention(in[0], in[1], in[2], s->a & 64 ? in[0] : NULL, &options);
    nd_auto nd_tensor *mask = new_mask(in[0], in[1], s);
    if (!mask && nd_error_get_status() != ND_OK)
        return NULL;
    return nd_attention(in[0], in[1], in[2], mask, s->d == 1 ? NULL : &options);
}

WITH(attention, 3, attend(in, s))

// ---------------------------------------------------------------------------------- recurrent nets

enum { WEIGHTS_MAX = 16 };

/// Weights of a net, at random, which want gradients; those that could not be made are NULL.
static size_t new_weights(const nd_recurrent_options *options, int64_t gates, int64_t in,
                          int64_t size, bool bias, nd_tensor **weights) {
    const int64_t directions = options->bidirectional ? 2 : 1;
    size_t count = 0;
    for (int64_t layer = 0; layer < options->layers; layer++)
        for (int64_t direction = 0; direction < directions; direction++) {
            const int64_t below = layer ? directions * size : in;
            const int64_t shapes[4][2] = {
                {gates * size, below}, {gates * size, size}, {gates * size, 0}, {gates * size, 0}};
            for (int i = 0; i < (bias ? 4 : 2); i++, count++) {
                weights[count] = nd_rand(nd_key_new(count), i < 2 ? 2 : 1, shapes[i], ND_F32);
                if (weights[count] && count % 3 == 0)
                    nd_set_requires_grad(weights[count], true);
            }
        }
    return count;
}

static void recurrent(fuzz_actor *me, const fuzz_step *s) {
    static const int64_t gates[] = {1, 4, 3};
    const nd_tensor *x = fuzz_tensor(me, s->b), *state = fuzz_tensor(me, s->c);
    if (!x || nd_get_ndim(x) < 1 || nd_get_numel(x) > 200 || nd_get_device(x).kind != ND_CPU)
        return;
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.layers = 1 + s->d / 4 % 2;
    options.bidirectional = s->d / 8 % 2;
    options.batch_first = s->d / 16 % 2;
    options.dropout = s->d / 32 % 2 ? 0.5 : 0;
    options.training = s->d / 32 % 2;
    options.key = nd_key_new(s->d);
    options.relu = s->c / 8 % 2;
    nd_tensor *weights[WEIGHTS_MAX] = {NULL};
    const int which = s->d % 4 % 3;
    size_t count = new_weights(&options, gates[which], nd_get_size(x, -1), 1 + s->a / 16 % 3,
                               s->a / 64 % 2, weights);
    const nd_tensor *const *given = (const nd_tensor *const *)weights;
    count -= s->a == 255;
    nd_tensor *output = NULL, *hidden = NULL, *cell = NULL;
    nd_tensor **ret_hidden = s->c / 16 % 2 ? &hidden : NULL;
    nd_status status =
        which == 0   ? nd_rnn(x, state, count, given, &options, &output, ret_hidden)
        : which == 1 ? nd_lstm(x, state, state, count, given, &options, &output, ret_hidden, &cell)
                     : nd_gru(x, state, count, given, &options, &output, ret_hidden);
    fuzz_expect(me, status == ND_OK);
    if (status != ND_OK && (output || hidden || cell))
        fuzz_die("a recurrent net that failed has written results");
    fuzz_put(me, FUZZ_TENSOR, s->a, output);
    fuzz_put(me, FUZZ_TENSOR, (uint8_t)(s->a % 8 + 1), hidden);
    nd_release(cell);
    for (size_t i = 0; i < WEIGHTS_MAX; i++)
        nd_release(weights[i]);
}

// ------------------------------------------------------------------------------------------ losses

/// Numbers beyond the last one included.
static nd_reduction reduction_of(uint8_t number) {
    return (nd_reduction)(number / 16 % 5);
}

static nd_tensor *cross_entropy_of(const nd_tensor *const *in, const fuzz_step *s) {
    static const double smoothings[] = {0, 0.1, 1, -1};
    nd_cross_entropy_options options = ND_CROSS_ENTROPY_OPTIONS_INIT;
    options.reduction = reduction_of(s->a);
    options.label_smoothing = smoothings[s->c / 16 % 4];
    options.ignored = s->c / 64 ? -100 : s->b / 32;
    return nd_cross_entropy_with(in[0], in[1], s->d / 8 % 2 ? in[2] : NULL, &options);
}

WITH(l1_loss, 2, nd_l1_loss(in[0], in[1], reduction_of(s->a)))
WITH(smooth_l1_loss, 2, nd_smooth_l1_loss(in[0], in[1], fuzz_value(s->d), reduction_of(s->a)))
WITH(huber_loss, 2, nd_huber_loss(in[0], in[1], fuzz_value(s->d), reduction_of(s->a)))
WITH(kl_div, 2, nd_kl_div(in[0], in[1], s->d % 2, reduction_of(s->a)))
WITH(bce_with_logits, 3,
     nd_bce_with_logits(in[0], in[1], in[2], s->d / 8 % 2 ? in[2] : NULL, reduction_of(s->a)))
WITH(nll_loss, 3,
     nd_nll_loss(in[0], in[1], s->d / 8 % 2 ? in[2] : NULL, s->c / 64 ? -100 : s->b / 32,
                 reduction_of(s->a)))
WITH(cross_entropy_with, 3, cross_entropy_of(in, s))
WITH(cosine_similarity, 2,
     nd_cosine_similarity(in[0], in[1], epsilon_of(s->a / 16), fuzz_axis(s->d)))
WITH(cosine_embedding_loss, 3,
     nd_cosine_embedding_loss(in[0], in[1], in[2], fuzz_value(s->d / 8), reduction_of(s->a)))
WITH(linear_activation, 3,
     nd_linear_activation(in[0], in[1], in[2], (nd_activation)(s->a / 16 % 8 - (s->d == 255))))

const fuzz_call fuzz_network_calls[] = {
    // clang-format off
    ENTRY(conv1d) ENTRY(conv3d) ENTRY(conv_transpose1d) ENTRY(conv_transpose3d) ENTRY(max_pool1d) ENTRY(max_pool3d)
    ENTRY(max_pool_with_indices) ENTRY(avg_pool1d) ENTRY(avg_pool3d) ENTRY(adaptive_avg_pool1d) ENTRY(adaptive_avg_pool2d)
    ENTRY(adaptive_max_pool1d) ENTRY(adaptive_max_pool3d) ENTRY(global_avg_pool) ENTRY(global_max_pool) ENTRY(layer_norm)
    ENTRY(rms_norm) ENTRY(group_norm) ENTRY(own_norm) ENTRY(dropout) WAITING(attention) ENTRY(l1_loss)
    ENTRY(smooth_l1_loss) ENTRY(huber_loss) ENTRY(kl_div) ENTRY(bce_with_logits) WAITING(nll_loss) WAITING(cross_entropy_with)
    ENTRY(cosine_similarity) ENTRY(cosine_embedding_loss) ENTRY(linear_activation)
    // clang-format on
    {"running_norm", running_norm, FUZZ_QUEUES},
    {"recurrent", recurrent, 0},
    {0},
};
