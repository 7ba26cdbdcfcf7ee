// What the calls of //bench:kernels are given, and what becomes of their results.
#include "bench/kernels/calls.h"

#include <nd/scope.h>

enum { ROW = 16 };

/// Uniform between `low` and `high`.
static const nd_tensor *uniform(uint64_t seed, int ndim, const int64_t *shape, double low,
                                double high) {
    nd_auto nd_tensor *unit = nd_rand(nd_key_new(seed), ndim, shape, ND_F32);
    nd_auto nd_tensor *wide = nd_mul_scalar(unit, high - low);
    return nd_tmp(nd_add_scalar(wide, low));
}

static const nd_tensor *cast(const nd_tensor *x, nd_dtype dtype) {
    return nd_tmp(nd_cast(x, dtype));
}

static const nd_tensor *whole(uint64_t seed, int64_t low, int64_t high, int ndim,
                              const int64_t *shape) {
    return nd_tmp(nd_randint(nd_key_new(seed), low, high, ndim, shape, ND_I64));
}

/// Between -1 and 1, divided by `root`, and requires a gradient.
static const nd_tensor *leaf(uint64_t seed, double root, int ndim, const int64_t *shape) {
    nd_tensor *x = nd_retain(uniform(seed, ndim, shape, -1 / root, 1 / root));
    if (nd_set_requires_grad(x, true) == ND_OK)
        return nd_tmp(x);
    nd_release(x);
    return NULL;
}

/// Between 1 and 4, and requires a gradient.
static const nd_tensor *high_leaf(uint64_t seed, int ndim, const int64_t *shape) {
    nd_tensor *x = nd_retain(uniform(seed, ndim, shape, 1, 4));
    if (nd_set_requires_grad(x, true) == ND_OK)
        return nd_tmp(x);
    nd_release(x);
    return NULL;
}

/// x as a batch of images, whose channels are as many as a row of the image is long or twice that.
static const nd_tensor *as_images(const nd_tensor *x, int64_t n) {
    int64_t side = n == 32 ? 8 : n == 1024 ? 32 : 64, channels = n == 1024 ? 64 : 2 * side;
    return nd_tmp(nd_reshape(x, ND_SHAPE(n * n / (channels * side * side), channels, side, side)));
}

bool operands_of_size(operands *in, int64_t n) {
    *in = (operands){.n = n};
    const int64_t shape[] = {n, n};
    in->x = uniform(1, 2, shape, -1, 1);
    in->y = uniform(2, 2, shape, -1, 1);
    in->positive = uniform(3, 2, shape, 0.1, 4);
    in->above = uniform(4, 2, shape, 1, 4);
    in->x64 = cast(in->x, ND_F64);
    in->y64 = cast(in->y, ND_F64);
    in->positive64 = cast(in->positive, ND_F64);
    in->xh = cast(in->x, ND_F16);
    in->xb = cast(in->x, ND_BF16);
    in->yb = cast(in->y, ND_BF16);
    in->i = whole(5, 1, 100, 2, shape);
    in->j = whole(6, 1, 100, 2, shape);
    in->mask = nd_tmp(nd_greater(in->x, in->y));
    in->index = whole(7, 0, n, 2, shape);
    in->row = uniform(8, ND_SHAPE(n), -1, 1);
    in->column = uniform(9, ND_SHAPE(n, 1), -1, 1);
    in->rows = whole(10, 0, n, ND_SHAPE(n));
    in->short_rows = nd_tmp(nd_reshape(in->x, ND_SHAPE(n * n / ROW, ROW)));
    in->images = as_images(in->x, n);
    in->leaf = leaf(11, 1, 2, shape);
    in->leaf2 = leaf(12, 1, 2, shape);
    in->high = high_leaf(15, 2, shape);
    in->weight = leaf(13, 1, ND_SHAPE(n));
    in->bias = leaf(14, 1, ND_SHAPE(n));
    return in->bias != NULL;
}

bool operands_of_shapes(operands *in) {
    *in = (operands){.n = 1024};
    for (int i = 0; i < 4; i++)
        in->square[i] = uniform(20, ND_SHAPE((int64_t)256 << i, (int64_t)256 << i), -1, 1);
    in->leaf_square = leaf(21, 1, ND_SHAPE(512, 512));
    in->square64 = cast(in->square[1], ND_F64);
    in->square_b = cast(in->square[1], ND_BF16);
    for (int i = 0; i < 4; i++)
        in->bytes[i] =
            nd_tmp(nd_randint(nd_key_new(46), -128, 128, 2, nd_get_shape(in->square[i]), ND_I8));
    for (int i = 0; i < 2; i++)
        in->few_bytes[i] =
            nd_tmp(nd_randint(nd_key_new(47), -128, 128, ND_SHAPE(i ? 64 : 1, 1024), ND_I8));
    in->vector = uniform(22, ND_SHAPE(1, 1024), -1, 1);
    in->long_vector = uniform(23, ND_SHAPE(1 << 20), -1, 1);
    in->batch = uniform(24, ND_SHAPE(128, 784), 0, 1);
    in->layer = leaf(25, 28, ND_SHAPE(512, 784));
    in->layer_bias = leaf(26, 28, ND_SHAPE(512));
    in->tokens = leaf(27, 1, ND_SHAPE(512, 768));
    in->projection = leaf(28, 28, ND_SHAPE(3072, 768));
    in->projection_bias = leaf(29, 28, ND_SHAPE(3072));
    in->stack_a = uniform(30, ND_SHAPE(64, 128, 64), -1, 1);
    in->stack_b = uniform(31, ND_SHAPE(64, 64, 128), -1, 1);
    in->heads = uniform(45, ND_SHAPE(512, 64, 64), -1, 1);
    in->pictures = leaf(32, 1, ND_SHAPE(8, 64, 56, 56));
    in->photos = uniform(33, ND_SHAPE(8, 3, 112, 112), -1, 1);
    in->conv1 = leaf(34, 8, ND_SHAPE(64, 64, 1, 1));
    in->conv3 = leaf(35, 24, ND_SHAPE(64, 64, 3, 3));
    in->conv7 = leaf(36, 12, ND_SHAPE(64, 3, 7, 7));
    in->depthwise = leaf(37, 3, ND_SHAPE(64, 1, 3, 3));
    in->scale = leaf(38, 1, ND_SHAPE(64));
    in->shift = leaf(39, 1, ND_SHAPE(64));
    in->mean = nd_retain(nd_tmp(nd_zeros(ND_SHAPE(64), ND_F32)));
    in->variance = nd_retain(nd_tmp(nd_ones(ND_SHAPE(64), ND_F32)));
    in->query = leaf(40, 1, ND_SHAPE(8, 8, 128, 64));
    in->key = leaf(41, 1, ND_SHAPE(8, 8, 128, 64));
    in->value = leaf(42, 1, ND_SHAPE(8, 8, 128, 64));
    in->table = leaf(43, 1, ND_SHAPE(32000, 256));
    in->words = whole(44, 0, 32000, ND_SHAPE(32, 128));
    // The scope owns them, as it does all others.
    nd_release(in->mean);
    nd_release(in->variance);
    return in->words != NULL;
}

bool call_done(nd_tensor *result) {
    nd_release(result);
    return result != NULL;
}

bool call_differentiated(operands *in, nd_tensor *result, size_t count,
                         const nd_tensor *const *inputs) {
    nd_tensor *gradients[3] = {0};
    if (result && !in->seed)
        in->seed = nd_tmp(nd_ones_like(result));
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.grad = in->seed;
    bool right = result && in->seed && nd_grad(result, count, inputs, &options, gradients) == ND_OK;
    for (size_t i = 0; i < count; i++)
        nd_release(gradients[i]);
    nd_release(result);
    return right;
}
