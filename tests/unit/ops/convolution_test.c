// Convolution, through oneDNN and without it, and max pooling against plain loops.
#include "kernels/cpu/cpu.h"
#include "lib/ops/conv_options.h"
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"
#include "tests/windows.h"

static const conv_case conv_cases[] = {
    {1, 1, 5, 5, 1, 3, 3, {1, 1}, {0, 0}, {1, 1}, 1},
    {2, 3, 8, 7, 4, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {3, 2, 9, 9, 5, 3, 2, {2, 2}, {1, 1}, {1, 1}, 1},
    {2, 1, 28, 28, 8, 5, 5, {1, 1}, {2, 2}, {1, 1}, 1},
    {1, 4, 6, 6, 2, 1, 1, {3, 3}, {0, 0}, {1, 1}, 1},
    {2, 2, 4, 5, 3, 4, 5, {1, 1}, {3, 3}, {1, 1}, 1},
    {2, 8, 12, 12, 16, 3, 3, {2, 2}, {0, 0}, {1, 1}, 1},
    {1, 2, 7, 7, 2, 2, 2, {5, 5}, {2, 2}, {1, 1}, 1},
    // Another number for each axis, dilation, groups.
    {2, 3, 8, 9, 4, 2, 3, {1, 3}, {2, 0}, {1, 1}, 1},
    {2, 3, 9, 7, 4, 3, 2, {1, 1}, {0, 2}, {2, 5}, 1},
    {2, 6, 8, 8, 9, 3, 3, {1, 2}, {1, 0}, {1, 1}, 3},
    {1, 16, 9, 9, 16, 3, 3, {1, 1}, {2, 2}, {2, 2}, 16},
    {2, 5, 7, 6, 10, 3, 1, {2, 1}, {0, 1}, {1, 3}, 5},
    {2, 32, 6, 6, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 2},
    // By direct sums: padded, strips that are not all alike, windows that move by more, groups, fewer
    // channels than a block, and elements at their own places, in groups and of a plane of any size.
    {2, 3, 21, 30, 16, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {1, 4, 26, 37, 8, 3, 5, {1, 1}, {2, 1}, {1, 2}, 1},
    {1, 3, 29, 40, 8, 7, 7, {2, 2}, {3, 3}, {1, 1}, 1},
    {1, 4, 25, 62, 15, 3, 2, {3, 2}, {1, 0}, {1, 1}, 1},
    {2, 6, 17, 33, 14, 2, 4, {2, 3}, {1, 2}, {2, 1}, 2},
    {2, 16, 8, 14, 32, 1, 1, {1, 1}, {0, 0}, {1, 1}, 2},
    {1, 700, 4, 28, 8, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    {1, 8, 5, 23, 8, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    // Each channel by itself, in wide lines; in several strips; each with several results.
    {2, 3, 20, 17, 3, 3, 3, {1, 1}, {1, 1}, {1, 1}, 3},
    {1, 2, 190, 33, 2, 5, 5, {1, 1}, {2, 1}, {1, 2}, 2},
    {2, 2, 6, 40, 6, 3, 3, {1, 1}, {3, 0}, {2, 3}, 2},
    {1, 4, 3, 16, 4, 5, 5, {1, 1}, {2, 5}, {1, 1}, 4},
};

typedef struct conv_sums {
    double *out, *grad_x, *grad_weight;
} conv_sums;

/// The three convolutions at once, from their definition: out = sum x w, grad_x = sum g w,
/// grad_weight = sum g x.
static void reference_conv(const conv_case *c, const nd_tensor *x, const nd_tensor *weight,
                           const nd_tensor *g, conv_sums *sums) {
    int64_t oh = nd_get_size(g, 2), ow = nd_get_size(g, 3), at_out = 0;
    int64_t channels = c->ci / c->groups, filters = c->co / c->groups;
    for (int64_t n = 0; n < c->n; n++)
        for (int64_t co = 0; co < c->co; co++)
            for (int64_t i = 0; i < oh * ow; i++, at_out++)
                for (int64_t k = 0; k < channels * c->kh * c->kw; k++) {
                    int64_t ci = co / filters * channels + k / (c->kh * c->kw);
                    int64_t ky = k / c->kw % c->kh, kx = k % c->kw;
                    int64_t y = i / ow * c->stride[0] - c->padding[0] + ky * c->dilation[0];
                    int64_t column = i % ow * c->stride[1] - c->padding[1] + kx * c->dilation[1];
                    if (y < 0 || y >= c->h || column < 0 || column >= c->w)
                        continue;
                    int64_t at_x = ((n * c->ci + ci) * c->h + y) * c->w + column;
                    int64_t at_weight = co * channels * c->kh * c->kw + k;
                    double in = at_flat(x, at_x), factor = at_flat(weight, at_weight);
                    sums->out[at_out] += in * factor;
                    sums->grad_x[at_x] += at_flat(g, at_out) * factor;
                    sums->grad_weight[at_weight] += at_flat(g, at_out) * in;
                }
}

static void assert_sums(const char *what, const nd_tensor *y, double *sums) {
    assert_handle(y);
    double tolerance = nd_get_dtype(y) == ND_F64 ? 1e-12 : 1e-4;
    for (int64_t i = 0; i < nd_get_numel(y); i++)
        assert_close(what, at_flat(y, i), sums[i], tolerance, tolerance);
    free(sums);
}

static int64_t windows_along(const conv_case *c, int axis) {
    int64_t size = axis == 0 ? c->h : c->w, kernel = axis == 0 ? c->kh : c->kw;
    int64_t free = size + 2 * c->padding[axis] - c->dilation[axis] * (kernel - 1) - 1;
    return free < 0 ? 0 : free / c->stride[axis] + 1;
}

static void check_conv(const conv_case *c, nd_dtype dtype, layout how) {
    int64_t oh = windows_along(c, 0), ow = windows_along(c, 1);
    nd_conv2d_options options = *CONV_WITH(c->stride[0], c->stride[1], c->padding[0], c->padding[1],
                                           c->dilation[0], c->dilation[1], c->groups);
    nd_auto nd_tensor *x = random_tensor(how, ND_SHAPE(c->n, c->ci, c->h, c->w), dtype, -1, 1);
    nd_auto nd_tensor *weight =
        random_tensor(how, ND_SHAPE(c->co, c->ci / c->groups, c->kh, c->kw), dtype, -1, 1);
    nd_auto nd_tensor *g = random_tensor(DENSE, ND_SHAPE(c->n, c->co, oh, ow), dtype, -1, 1);
    conv_sums sums = {calloc((size_t)nd_get_numel(g), sizeof(double)),
                      calloc((size_t)nd_get_numel(x), sizeof(double)),
                      calloc((size_t)nd_get_numel(weight), sizeof(double))};
    reference_conv(c, x, weight, g, &sums);
    nd_auto nd_tensor *y = nd_conv2d(x, weight, NULL, &options);
    nd__conv_options read;
    assert_int_equal(nd__conv_options_2d("test", &options, &read), ND_OK);
    nd_auto nd_tensor *grad_x = nd__conv_grad_input(g, weight, nd_get_shape(x), &read.geometry);
    nd_auto nd_tensor *grad_weight =
        nd__conv_grad_weight(x, g, nd_get_shape(weight), &read.geometry);
    assert_shape(y, ND_SHAPE(c->n, c->co, oh, ow));
    assert_sums("conv2d", y, sums.out);
    assert_sums("conv2d_grad_input", grad_x, sums.grad_x);
    assert_sums("conv2d_grad_weight", grad_weight, sums.grad_weight);
}

static int64_t random_below(int64_t n) {
    return rand() % n;
}

/// Any shapes and options that make at least one window.
static conv_case random_conv(void) {
    conv_case c;
    do {
        c.groups = random_below(2) ? 1 : 1 + random_below(5);
        c.n = 1 + random_below(3);
        c.ci = c.groups * (1 + random_below(4));
        c.co = c.groups * (1 + random_below(4));
        c.h = 1 + random_below(9);
        c.w = 1 + random_below(9);
        c.kh = 1 + random_below(4);
        c.kw = 1 + random_below(4);
        for (int axis = 0; axis < 2; axis++) {
            c.stride[axis] = 1 + random_below(3);
            c.padding[axis] = random_below(4);
            c.dilation[axis] = 1 + random_below(3);
        }
    } while (windows_along(&c, 0) == 0 || windows_along(&c, 1) == 0);
    return c;
}

static void every_conv(void) {
    for (size_t c = 0; c < COUNT_OF(conv_cases); c++)
        for (int dtype = ND_F32; dtype <= ND_F64; dtype++)
            for (int how = 0; how < LAYOUTS; how++)
                check_conv(&conv_cases[c], (nd_dtype)dtype, (layout)how);
    for (int i = 0; i < 200; i++) {
        conv_case c = random_conv();
        check_conv(&c, i % 2 ? ND_F32 : ND_F64, (layout)(i / 2 % LAYOUTS));
    }
}

static void test_every_convolution_by_the_library(void **state) {
    (void)state;
    every_conv();
}

static void test_every_convolution_portable(void **state) {
    (void)state;
    nd__cpu_use_onednn(false);
    every_conv();
    nd__cpu_use_onednn(true);
}

/// The last of the cases: those that the loops of each instruction set do.
static void every_direct_conv(void) {
    for (size_t c = COUNT_OF(conv_cases) - 12; c < COUNT_OF(conv_cases); c++)
        for (int dtype = ND_F32; dtype <= ND_F64; dtype++)
            check_conv(&conv_cases[c], (nd_dtype)dtype, DENSE);
}

static void test_direct_convolution(void **state) {
    (void)state;
    on_every_isa(every_direct_conv);
}

/// More shapes than the cache of primitives holds.
static void test_many_convolution_shapes(void **state) {
    (void)state;
    for (int round = 0; round < 2; round++)
        for (int64_t h = 3; h < 93; h++) {
            conv_case c = {1, 1, h, 3, 1, 3, 3, {1, 1}, {0, 0}, {1, 1}, 1};
            check_conv(&c, ND_F32, DENSE);
        }
}

/// Windows of one element, on either side of the sizes from which they are products, with images enough for
/// several sums and with one.
static void every_pointwise_conv(void) {
    static const int64_t sizes[][5] = {{1, 48, 64, 9, 7},  {2, 72, 40, 11, 8}, {3, 16, 16, 24, 24},
                                       {5, 130, 1, 14, 9}, {1, 1, 24, 80, 81}, {7, 12, 20, 5, 4},
                                       {2, 256, 64, 3, 3}, {2, 64, 96, 1, 1}};
    for (size_t i = 0; i < COUNT_OF(sizes); i++)
        for (int64_t groups = 1; groups <= 4; groups *= 2) {
            const int64_t *s = sizes[i];
            if (s[1] % groups || s[2] % groups)
                continue;
            const conv_case c = {s[0], s[1],   s[3],   s[4],   s[2],  1,
                                 1,    {1, 1}, {0, 0}, {1, 1}, groups};
            check_conv(&c, ND_F32, DENSE);
            check_conv(&c, ND_F64, (layout)(i % LAYOUTS));
        }
}

static void test_pointwise_convolution(void **state) {
    (void)state;
    const int threads = nd_get_num_threads();
    nd_set_num_threads(4);
    every_pointwise_conv();
    nd_set_num_threads(1);
    every_pointwise_conv();
    nd__cpu_use_onednn(false);
    every_pointwise_conv();
    nd__cpu_use_onednn(true);
    nd_set_deterministic(true);
    every_pointwise_conv();
    nd_set_deterministic(false);
    nd_set_num_threads(threads);
}

static void test_convolution_bias_and_bad_input(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(2, 3, 6, 6), ND_F32, -1, 1);
    nd_auto nd_tensor *weight = random_tensor(DENSE, ND_SHAPE(4, 3, 3, 3), ND_F32, -1, 1);
    nd_auto nd_tensor *bias = random_tensor(DENSE, ND_SHAPE(4), ND_F32, -1, 1);
    nd_auto nd_tensor *plain = nd_conv2d(x, weight, NULL, NULL);
    nd_auto nd_tensor *y = nd_conv2d(x, weight, bias, NULL);
    assert_handle(y);
    for (int64_t i = 0; i < nd_get_numel(y); i++)
        assert_close("bias", at_flat(y, i), at_flat(plain, i) + at_flat(bias, i / 16 % 4), 1e-6,
                     1e-6);
    nd_auto nd_tensor *wide = nd_cast(x, ND_F64);
    nd_auto nd_tensor *large = nd_ones(ND_SHAPE(1, 3, 7, 7), ND_F32);
    assert_refused(nd_conv2d(x, large, NULL, NULL), ND_ERROR_SHAPE,
                   "conv2d: a weight of shape [1, 3, 7, 7] does not fit");
    assert_refused(nd_conv2d(x, weight, NULL, CONV_WITH(1, 1, 0, 1, 3, 1, 1)), ND_ERROR_SHAPE,
                   "conv2d: a weight of shape [4, 3, 3, 3] does not fit into x of shape [2, 3, 6, "
                   "6] with padding [0, 1] and dilation [3, 1]");
    nd_auto nd_tensor *pointless = nd_ones(ND_SHAPE(1, 3, 3, 0), ND_F32);
    assert_refused(nd_conv2d(x, pointless, NULL, NULL), ND_ERROR_SHAPE, "conv2d: a weight of");
    nd_auto nd_tensor *grey = nd_ones(ND_SHAPE(4, 1, 3, 3), ND_F32);
    assert_refused(nd_conv2d(x, grey, NULL, NULL), ND_ERROR_SHAPE,
                   "conv2d: x has shape [2, 3, 6, 6] and weight [4, 1, 3, 3]; with groups 1 the "
                   "weight's second size must be 3");
    assert_refused(nd_conv2d(wide, weight, NULL, NULL), ND_ERROR_DTYPE, "conv2d: x is float64");
    assert_refused(nd_conv2d(x, bias, NULL, NULL), ND_ERROR_SHAPE, "conv2d: x has shape");
    assert_refused(nd_conv2d(x, weight, weight, NULL), ND_ERROR_SHAPE,
                   "conv2d: bias is float32 of shape");
}

static void test_convolution_of_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(4, 3, 3, 3), ND_F32);
    nd_auto nd_tensor *bias = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 3, 6, 6), ND_F32);
    nd_auto nd_tensor *nothing = nd_conv2d(none, weight, bias, NULL);
    assert_shape(nothing, ND_SHAPE(0, 4, 4, 4));
    nd_auto nd_tensor *grouped = nd_conv2d(none, weight, NULL, CONV_WITH(2, 1, 0, 0, 1, 2, 1));
    assert_shape(grouped, ND_SHAPE(0, 4, 2, 2));
    // No channels: sums of nothing.
    nd_auto nd_tensor *black = nd_zeros(ND_SHAPE(2, 0, 6, 6), ND_F64);
    nd_auto nd_tensor *blind = nd_zeros(ND_SHAPE(4, 0, 3, 3), ND_F64);
    nd_auto nd_tensor *zeros = nd_conv2d(black, blind, NULL, CONV_WITH(1, 1, 0, 0, 1, 1, 2));
    assert_shape(zeros, ND_SHAPE(2, 4, 4, 4));
    for (int64_t i = 0; i < nd_get_numel(zeros); i++)
        assert_true(at_flat(zeros, i) == 0.0);
    nd_auto nd_tensor *unseen = nd_zeros(ND_SHAPE(0, 3, 3, 3), ND_F32);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3, 6, 6), ND_F32);
    nd_auto nd_tensor *empty = nd_conv2d(x, unseen, NULL, NULL);
    assert_shape(empty, ND_SHAPE(2, 0, 4, 4));
}

/// An option that is wrong is named with its value, and numbers of any size are only wrong.
static void test_convolution_options(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 4, 5, 5), ND_F32);
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(6, 4, 3, 3), ND_F32);
    nd_auto nd_tensor *point = nd_ones(ND_SHAPE(6, 4, 1, 1), ND_F32);
    const struct {
        const nd_conv2d_options *options;
        nd_status status;
        const char *says;
    } refused[] = {
        {CONV_WITH(0, 1, 0, 0, 1, 1, 1), ND_ERROR_INVALID_ARGUMENT, "conv2d: stride[0] is 0"},
        {CONV_WITH(1, -7, 0, 0, 1, 1, 1), ND_ERROR_INVALID_ARGUMENT, "conv2d: stride[1] is -7"},
        {CONV_WITH(1, 1, 0, -1, 1, 1, 1), ND_ERROR_INVALID_ARGUMENT, "conv2d: padding[1] is -1"},
        {CONV_WITH(1, 1, 0, 0, 0, 1, 1), ND_ERROR_INVALID_ARGUMENT, "conv2d: dilation[0] is 0"},
        {CONV_WITH(1, 1, 0, 0, 1, 1, 0), ND_ERROR_INVALID_ARGUMENT, "conv2d: groups is 0"},
        {CONV_WITH(1, 1, 0, 0, 1, 1, 4), ND_ERROR_INVALID_ARGUMENT,
         "conv2d: groups is 4 and must divide the 4 channels of x and the 6 of the result"},
        {CONV_WITH(1, 1, 0, 0, 1, 1, INT64_MAX), ND_ERROR_INVALID_ARGUMENT, "conv2d: groups is 92"},
        {CONV_WITH(1, 1, 0, 0, 1, 1, 2), ND_ERROR_SHAPE,
         "conv2d: x has shape [1, 4, 5, 5] and weight [6, 4, 3, 3]; with groups 2 the weight's "
         "second size must be 2"},
        {CONV_WITH(1, 1, INT64_MAX, 0, 1, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "conv2d: padding[0] is 9223372036854775807, too large"},
        {CONV_WITH(1, 1, 0, INT64_MAX / 2, 1, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "conv2d: padding[1] is 4611686018427387903, too large"},
        {CONV_WITH(1, 1, 0, 0, 1, INT64_MAX, 1), ND_ERROR_SHAPE,
         "conv2d: a weight of shape [6, 4, 3, 3] does not fit"},
        {CONV_WITH(1, 1, 0, 0, INT64_MAX / 2, 1, 1), ND_ERROR_SHAPE,
         "conv2d: a weight of shape [6, 4, 3, 3] does not fit"},
    };
    for (size_t i = 0; i < COUNT_OF(refused); i++)
        assert_refused(nd_conv2d(x, weight, NULL, refused[i].options), refused[i].status,
                       refused[i].says);
    // As large as can be, and right all the same.
    nd_auto nd_tensor *once =
        nd_conv2d(x, weight, NULL, CONV_WITH(INT64_MAX, INT64_MAX, 1, 0, 1, 1, 1));
    assert_shape(once, ND_SHAPE(1, 6, 1, 1));
    assert_true(at_flat(once, 0) == 4 * 2 * 3);
    nd_auto nd_tensor *apart =
        nd_conv2d(x, point, NULL, CONV_WITH(1, 1, 0, 0, INT64_MAX, INT64_MAX, 1));
    assert_shape(apart, ND_SHAPE(1, 6, 5, 5));
    assert_true(at_flat(apart, 7) == 4);
    assert_null(nd_conv2d(x, point, NULL, CONV_WITH(1, 1, INT64_MAX / 4, INT64_MAX / 4, 1, 1, 1)));
    nd_error_clear();
    nd_conv2d_options unversioned = {0};
    assert_refused(
        nd_conv2d(x, weight, NULL, &unversioned), ND_ERROR_INVALID_ARGUMENT,
        "conv2d: a struct of size 0 and version 0; begin it with ND_CONV2D_OPTIONS_INIT");
    // A program that was built before there were groups.
    nd_conv2d_options shorter = ND_CONV2D_OPTIONS_INIT;
    shorter.size = offsetof(nd_conv2d_options, groups);
    shorter.groups = 77;
    nd_auto nd_tensor *y = nd_conv2d(x, weight, NULL, &shorter);
    assert_shape(y, ND_SHAPE(1, 6, 3, 3));
}

typedef struct pool_case {
    int64_t h, w, kernel[2], stride[2], padding[2], dilation[2];
} pool_case;

/// The largest in the window of the result at `index`.
static double reference_pool(const pool_case *c, const nd_tensor *x, const int64_t *stride,
                             const int64_t *index) {
    double largest = -INFINITY;
    for (int64_t i = 0; i < c->kernel[0] * c->kernel[1]; i++) {
        int64_t y = index[2] * stride[0] - c->padding[0] + i / c->kernel[1] * c->dilation[0];
        int64_t column = index[3] * stride[1] - c->padding[1] + i % c->kernel[1] * c->dilation[1];
        if (y < 0 || y >= c->h || column < 0 || column >= c->w)
            continue;
        double value = at(x, 4, (const int64_t[]){index[0], index[1], y, column});
        largest = isnan(value) || isnan(largest) ? (double)NAN : fmax(value, largest);
    }
    return largest;
}

static int64_t pools_along(const pool_case *c, int axis, int64_t stride) {
    int64_t size = axis == 0 ? c->h : c->w;
    int64_t free = size + 2 * c->padding[axis] - c->dilation[axis] * (c->kernel[axis] - 1) - 1;
    bool none = free < 0 || (c->padding[axis] > 0 && c->dilation[axis] > size);
    return none ? 0 : free / stride + 1;
}

/// All below -1, so that a chosen place of the padding shows.
static void check_pool(const pool_case *c, nd_dtype dtype, layout how) {
    int64_t stride[2], counts[2];
    for (int axis = 0; axis < 2; axis++) {
        stride[axis] = c->stride[axis] ? c->stride[axis] : c->kernel[axis];
        counts[axis] = pools_along(c, axis, stride[axis]);
    }
    nd_auto nd_tensor *x = random_tensor(how, ND_SHAPE(2, 3, c->h, c->w), dtype, -3, -1);
    if (how == DENSE)
        set_element(nd_get_data(x), dtype, c->h * c->w, (double)NAN);
    const nd_max_pool2d_options *options =
        POOL_WITH(c->kernel[0], c->kernel[1], c->stride[0], c->stride[1], c->padding[0],
                  c->padding[1], c->dilation[0], c->dilation[1]);
    if (counts[0] == 0 || counts[1] == 0) {
        assert_refused(nd_max_pool2d(x, options), ND_ERROR_SHAPE, "max_pool2d: kernel[");
        return;
    }
    nd_auto nd_tensor *y = nd_max_pool2d(x, options);
    assert_shape(y, ND_SHAPE(2, 3, counts[0], counts[1]));
    for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
        int64_t index[4];
        coordinates_of(4, nd_get_shape(y), flat, index);
        double largest = reference_pool(c, x, stride, index);
        assert_close("max_pool2d", at_flat(y, flat), largest, 0, 0);
    }
}

static void test_max_pool2d(void **state) {
    (void)state;
    static const pool_case cases[] = {
        {8, 8, {2, 2}, {2, 2}, {0, 0}, {1, 1}}, {7, 9, {3, 3}, {2, 2}, {0, 0}, {1, 1}},
        {5, 5, {5, 5}, {1, 1}, {0, 0}, {1, 1}}, {6, 4, {1, 1}, {3, 3}, {0, 0}, {1, 1}},
        {7, 9, {3, 2}, {0, 0}, {1, 1}, {1, 2}}, {8, 6, {2, 4}, {1, 3}, {1, 2}, {4, 1}},
        {1, 1, {2, 2}, {1, 1}, {1, 1}, {1, 1}}, {1, 3, {2, 2}, {1, 1}, {1, 1}, {2, 1}},
    };
    for (int dtype = ND_F32; dtype <= ND_F64; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            for (size_t i = 0; i < COUNT_OF(cases); i++)
                check_pool(&cases[i], (nd_dtype)dtype, (layout)how);
    for (int i = 0; i < 400; i++) {
        pool_case c = {.h = 1 + random_below(9), .w = 1 + random_below(9)};
        for (int axis = 0; axis < 2; axis++) {
            c.kernel[axis] = 1 + random_below(4);
            c.stride[axis] = random_below(4);
            c.padding[axis] = random_below(c.kernel[axis] / 2 + 1);
            c.dilation[axis] = 1 + random_below(3);
        }
        check_pool(&c, i % 2 ? ND_F32 : ND_F64, (layout)(i / 2 % LAYOUTS));
    }
}

static void test_max_pool2d_refuses(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 1, 3, 3), ND_F32);
    nd_auto nd_tensor *flat = nd_ones(ND_SHAPE(9), ND_F32);
    nd_auto nd_tensor *whole = nd_ones(ND_SHAPE(1, 1, 3, 3), ND_I32);
    const struct {
        const nd_max_pool2d_options *options;
        nd_status status;
        const char *says;
    } refused[] = {
        {POOL_WITH(2, 4, 1, 1, 0, 0, 1, 1), ND_ERROR_SHAPE,
         "max_pool2d: kernel[1] is 4, which with padding 0 and dilation 1 does not fit into x of "
         "shape [1, 1, 3, 3]"},
        {POOL_WITH(2, 2, 1, 1, 0, 1, 1, 4), ND_ERROR_SHAPE,
         "max_pool2d: kernel[1] is 2, which with padding 1 and dilation 4 reaches no element"},
        {POOL(0, 1), ND_ERROR_INVALID_ARGUMENT, "max_pool2d: kernel[0] is 0"},
        {NULL, ND_ERROR_INVALID_ARGUMENT, "max_pool2d: kernel[0] is 0"},
        {POOL_WITH(2, 2, 1, -1, 0, 0, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "max_pool2d: stride[1] is -1"},
        {POOL_WITH(2, 2, 1, 1, -1, 0, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "max_pool2d: padding[0] is -1"},
        {POOL_WITH(2, 3, 1, 1, 1, 2, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "max_pool2d: padding[1] is 2 and must be at most half of kernel[1], which is 3"},
        {POOL_WITH(2, 2, 1, 1, 0, 0, 1, 0), ND_ERROR_INVALID_ARGUMENT,
         "max_pool2d: dilation[1] is 0"},
        {POOL_WITH(2, 2, 1, 1, 0, 0, 1, INT64_MAX), ND_ERROR_SHAPE, "max_pool2d: kernel[1] is 2"},
        {POOL_WITH(INT64_MAX, 2, 1, 1, INT64_MAX / 2, 0, 1, 1), ND_ERROR_INVALID_ARGUMENT,
         "max_pool2d: padding[0] is 4611686018427387903, too large"},
    };
    for (size_t i = 0; i < COUNT_OF(refused); i++)
        assert_refused(nd_max_pool2d(x, refused[i].options), refused[i].status, refused[i].says);
    assert_refused(nd_max_pool2d(flat, POOL(2, 2)), ND_ERROR_SHAPE, "max_pool2d: x has shape [9]");
    assert_refused(nd_max_pool2d(whole, POOL(2, 2)), ND_ERROR_DTYPE, "max_pool2d: x is int32");
    nd_max_pool2d_options unversioned = {0};
    assert_refused(nd_max_pool2d(x, &unversioned), ND_ERROR_INVALID_ARGUMENT,
                   "max_pool2d: a struct of size 0");
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 2, 4, 4), ND_F64);
    nd_auto nd_tensor *nothing = nd_max_pool2d(none, POOL_WITH(2, 3, 0, 1, 1, 1, 1, 1));
    assert_shape(nothing, ND_SHAPE(0, 2, 3, 4));
}

// ------------------------------------------------------------------------------- shallow images

static nd_tensor *eighths(int which, int ndim, const int64_t *shape, nd_dtype dtype) {
    nd_auto nd_tensor *x = nd_empty(ndim, shape, ND_F64);
    assert_handle(x);
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        ((double *)nd_get_data(x))[i] = (double)((i * 7919 + 31 * which) % 41 - 20) / 8;
    return nd_cast(x, dtype);
}

static nd_tensor *grad_of_weight(int64_t depth, int64_t kernel, const nd_conv3d_options *options,
                                 nd_dtype dtype) {
    nd_auto nd_tensor *x = eighths(0, ND_SHAPE(2, 2, depth, 3, 4), dtype);
    nd_auto nd_tensor *weight = eighths(1, ND_SHAPE(3, 2, kernel, 2, 2), dtype);
    assert_status(nd_set_requires_grad(weight, true), ND_OK);
    nd_auto nd_tensor *y = nd_conv3d(x, weight, NULL, options);
    assert_handle(y);
    nd_auto nd_tensor *g = eighths(3, nd_get_ndim(y), nd_get_shape(y), dtype);
    nd_backward_options backward = ND_BACKWARD_OPTIONS_INIT;
    backward.grad = g;
    const nd_tensor *wanted[] = {weight};
    nd_tensor *gradient = NULL;
    assert_status(nd_grad(y, 1, wanted, &backward, &gradient), ND_OK);
    return gradient;
}

/// Windows that begin before a shallow image, end behind it, or both, at every step and padding. f64
/// is computed by the definition; operands are eighths, of which f32 holds every sum.
static void test_gradient_of_the_weight_of_shallow_images(void **state) {
    (void)state;
    nd_conv3d_options options = ND_CONV3D_OPTIONS_INIT;
    for (int64_t depth = 1; depth <= 9; depth++)
        for (int64_t kernel = 1; kernel <= 7; kernel++)
            for (int64_t stride = 1; stride <= 4; stride++)
                for (int64_t padding = 0; padding <= kernel; padding++) {
                    if (depth + 2 * padding < kernel)
                        continue;
                    options.stride[0] = stride;
                    options.padding[0] = padding;
                    nd_auto nd_tensor *found = grad_of_weight(depth, kernel, &options, ND_F32);
                    nd_auto nd_tensor *expected = grad_of_weight(depth, kernel, &options, ND_F64);
                    for (int64_t i = 0; i < nd_get_numel(expected); i++)
                        if (at_flat(found, i) != at_flat(expected, i))
                            fail_msg("depth %d, kernel %d, stride %d, padding %d: element %d is %g "
                                     "and not %g",
                                     (int)depth, (int)kernel, (int)stride, (int)padding, (int)i,
                                     at_flat(found, i), at_flat(expected, i));
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_convolution_by_the_library),
        ND_TEST(test_every_convolution_portable),
        ND_TEST(test_direct_convolution),
        ND_TEST(test_many_convolution_shapes),
        ND_TEST(test_pointwise_convolution),
        ND_TEST(test_convolution_bias_and_bad_input),
        ND_TEST(test_convolution_of_nothing),
        ND_TEST(test_convolution_options),
        ND_TEST(test_gradient_of_the_weight_of_shallow_images),
        ND_TEST(test_max_pool2d),
        ND_TEST(test_max_pool2d_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
