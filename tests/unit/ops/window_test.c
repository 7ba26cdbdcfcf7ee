// Convolutions, pooling and interpolation against PyTorch: what window_tables.py has recorded, for
// every row in f64, f32 and, within one rounding of that, in both halves; then what they refuse.
#include "kernels/cpu/cpu.h"
#include "tests/unit/ops/values.h"
#include "tests/windows.h"

typedef enum kind {
    CONV,
    CONV_TRANSPOSE,
    MAX_POOL,
    AVG_POOL,
    ADAPTIVE_AVG_POOL,
    ADAPTIVE_MAX_POOL,
    INTERPOLATE,
    INTERPOLATE_SCALE,
    UNFOLD,
    FOLD,
    PIXEL_SHUFFLE,
    PIXEL_UNSHUFFLE,
} kind;

/// A call with its options, and two sums of the result and of the gradients of x, weight and bias.
typedef struct row {
    kind kind;
    int axes;
    int64_t x[5], weight[5]; ///< 0 behind the last; weight all 0: there is none
    bool bias;
    int64_t a[3], b[3], c[3], d[3], numbers[2];
    int64_t shape[5];
    double sums[4][2];
} row;

// clang-format off
static const row rows[] = {
#include "tests/unit/ops/window_tables.inc"
};
// clang-format on

static int ndim_of(const int64_t *shape) {
    int ndim = 0;
    while (ndim < 5 && shape[ndim] > 0)
        ndim++;
    return ndim;
}

/// As `operand` of window_tables.py: eighths, which every float holds.
static nd_tensor *operand(int which, int ndim, const int64_t *shape, nd_dtype dtype) {
    nd_auto nd_tensor *x = nd_empty(ndim, shape, ND_F64);
    assert_handle(x);
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        ((double *)nd_get_data(x))[i] = (double)((i * 7919 + 31 * which) % 41 - 20) / 8;
    return nd_cast(x, dtype);
}

#define COPY(field, from) memcpy(options.field, r->from, sizeof options.field)
#define COPY_ONE(field, from) options.field = r->from[0]

static nd_tensor *call_conv(const row *r, const nd_tensor *const *in) {
    if (r->axes == 1) {
        nd_conv1d_options options = ND_CONV1D_OPTIONS_INIT;
        COPY_ONE(stride, a), COPY_ONE(padding, b), COPY_ONE(dilation, c);
        COPY_ONE(extra_padding, d), options.groups = r->numbers[0];
        return nd_conv1d(in[0], in[1], in[2], &options);
    }
    if (r->axes == 2) {
        nd_conv2d_options options = ND_CONV2D_OPTIONS_INIT;
        COPY(stride, a), COPY(padding, b), COPY(dilation, c), COPY(extra_padding, d);
        options.groups = r->numbers[0];
        return nd_conv2d(in[0], in[1], in[2], &options);
    }
    nd_conv3d_options options = ND_CONV3D_OPTIONS_INIT;
    COPY(stride, a), COPY(padding, b), COPY(dilation, c), COPY(extra_padding, d);
    options.groups = r->numbers[0];
    return nd_conv3d(in[0], in[1], in[2], &options);
}

static nd_tensor *call_transpose(const row *r, const nd_tensor *const *in) {
    if (r->axes == 1) {
        nd_conv_transpose1d_options options = ND_CONV_TRANSPOSE1D_OPTIONS_INIT;
        COPY_ONE(stride, a), COPY_ONE(padding, b), COPY_ONE(dilation, c);
        COPY_ONE(output_padding, d), options.groups = r->numbers[0];
        return nd_conv_transpose1d(in[0], in[1], in[2], &options);
    }
    if (r->axes == 2) {
        nd_conv_transpose2d_options options = ND_CONV_TRANSPOSE2D_OPTIONS_INIT;
        COPY(stride, a), COPY(padding, b), COPY(dilation, c), COPY(output_padding, d);
        options.groups = r->numbers[0];
        return nd_conv_transpose2d(in[0], in[1], in[2], &options);
    }
    nd_conv_transpose3d_options options = ND_CONV_TRANSPOSE3D_OPTIONS_INIT;
    COPY(stride, a), COPY(padding, b), COPY(dilation, c), COPY(output_padding, d);
    options.groups = r->numbers[0];
    return nd_conv_transpose3d(in[0], in[1], in[2], &options);
}

static nd_tensor *call_max(const row *r, const nd_tensor *x) {
    bool ceil_mode = r->numbers[0];
    if (r->axes == 1) {
        nd_max_pool1d_options options = ND_MAX_POOL1D_OPTIONS_INIT;
        COPY_ONE(kernel, a), COPY_ONE(stride, b), COPY_ONE(padding, c), COPY_ONE(dilation, d);
        options.ceil_mode = ceil_mode;
        return nd_max_pool1d(x, &options);
    }
    if (r->axes == 2) {
        nd_max_pool2d_options options = ND_MAX_POOL2D_OPTIONS_INIT;
        COPY(kernel, a), COPY(stride, b), COPY(padding, c), COPY(dilation, d);
        options.ceil_mode = ceil_mode;
        return nd_max_pool2d(x, &options);
    }
    nd_max_pool3d_options options = ND_MAX_POOL3D_OPTIONS_INIT;
    COPY(kernel, a), COPY(stride, b), COPY(padding, c), COPY(dilation, d);
    options.ceil_mode = ceil_mode;
    return nd_max_pool3d(x, &options);
}

#define SET_MEANS                                                                         \
    options.ceil_mode = r->numbers[0] & 1, options.count_include_pad = r->numbers[0] & 2, \
    options.divisor = r->numbers[1]

static nd_tensor *call_avg(const row *r, const nd_tensor *x) {
    if (r->axes == 1) {
        nd_avg_pool1d_options options = ND_AVG_POOL1D_OPTIONS_INIT;
        COPY_ONE(kernel, a), COPY_ONE(stride, b), COPY_ONE(padding, c), SET_MEANS;
        return nd_avg_pool1d(x, &options);
    }
    if (r->axes == 2) {
        nd_avg_pool2d_options options = ND_AVG_POOL2D_OPTIONS_INIT;
        COPY(kernel, a), COPY(stride, b), COPY(padding, c), SET_MEANS;
        return nd_avg_pool2d(x, &options);
    }
    nd_avg_pool3d_options options = ND_AVG_POOL3D_OPTIONS_INIT;
    COPY(kernel, a), COPY(stride, b), COPY(padding, c), SET_MEANS;
    return nd_avg_pool3d(x, &options);
}

static nd_tensor *call_adaptive(const row *r, const nd_tensor *x) {
    const int64_t *s = r->a;
    if (r->kind == ADAPTIVE_AVG_POOL)
        return r->axes == 1   ? nd_adaptive_avg_pool1d(x, s[0])
               : r->axes == 2 ? nd_adaptive_avg_pool2d(x, s[0], s[1])
                              : nd_adaptive_avg_pool3d(x, s[0], s[1], s[2]);
    return r->axes == 1   ? nd_adaptive_max_pool1d(x, s[0])
           : r->axes == 2 ? nd_adaptive_max_pool2d(x, s[0], s[1])
                          : nd_adaptive_max_pool3d(x, s[0], s[1], s[2]);
}

static nd_tensor *call_interpolate(const row *r, const nd_tensor *x) {
    nd_interpolate_options options = ND_INTERPOLATE_OPTIONS_INIT;
    options.mode = (nd_interpolation)r->numbers[0];
    options.align_corners = r->numbers[1];
    for (int axis = 0; axis < r->axes; axis++)
        if (r->kind == INTERPOLATE)
            options.sizes[axis] = r->a[axis];
        else
            options.scales[axis] = (double)r->a[axis] / 8;
    return nd_interpolate(x, &options);
}

static nd_tensor *call_fold(const row *r, const nd_tensor *x) {
    nd_unfold_options options = ND_UNFOLD_OPTIONS_INIT;
    COPY(kernel, a), COPY(stride, b), COPY(padding, c), COPY(dilation, d);
    return r->kind == UNFOLD ? nd_unfold(x, &options)
                             : nd_fold(x, r->numbers[0], r->numbers[1], &options);
}

/// in: x, weight and bias; NULL where there is none.
static nd_tensor *call(const row *r, const nd_tensor *const *in) {
    switch (r->kind) {
    case CONV:
        return call_conv(r, in);
    case CONV_TRANSPOSE:
        return call_transpose(r, in);
    case MAX_POOL:
        return call_max(r, in[0]);
    case AVG_POOL:
        return call_avg(r, in[0]);
    case ADAPTIVE_AVG_POOL:
    case ADAPTIVE_MAX_POOL:
        return call_adaptive(r, in[0]);
    case INTERPOLATE:
    case INTERPOLATE_SCALE:
        return call_interpolate(r, in[0]);
    case UNFOLD:
    case FOLD:
        return call_fold(r, in[0]);
    case PIXEL_SHUFFLE:
        return nd_pixel_shuffle(in[0], r->numbers[0]);
    default:
        return nd_pixel_unshuffle(in[0], r->numbers[0]);
    }
}

/// x, weight and bias of a row; NULL where there is none.
static void make_operands(const row *r, nd_dtype dtype, nd_tensor **ret_in) {
    const int64_t channels = r->shape[1];
    ret_in[0] = operand(0, ndim_of(r->x), r->x, dtype);
    ret_in[1] = r->weight[0] ? operand(1, ndim_of(r->weight), r->weight, dtype) : NULL;
    ret_in[2] = r->bias ? operand(2, 1, &channels, dtype) : NULL;
}

static void assert_sums(const char *what, size_t number, const nd_tensor *x, const double *expected,
                        double tolerance) {
    assert_handle(x);
    nd_auto nd_tensor *wide = nd_cast(x, ND_F64);
    double sums[2] = {0, 0}, size = 1;
    for (int64_t i = 0; i < nd_get_numel(wide); i++) {
        double value = at_flat(wide, i);
        sums[0] += value * (double)(i * 5 % 23 - 11);
        sums[1] += value * (double)(i * 7 % 23 - 11);
        size += fabs(value) * 11;
    }
    for (int k = 0; k < 2; k++)
        if (!(fabs(sums[k] - expected[k]) <= tolerance * size))
            fail_msg("row %zu, %s: sum %d is %.12g and PyTorch's %.12g", number, what, k, sums[k],
                     expected[k]);
}

static void check_row(size_t number, nd_dtype dtype, double tolerance) {
    static const char *const names[] = {"gradient of x", "gradient of weight", "gradient of bias"};
    const row *r = &rows[number];
    nd_tensor *in[3], *gradients[3] = {NULL};
    const nd_tensor *wanted[3];
    size_t count = 0;
    make_operands(r, dtype, in);
    for (int i = 0; i < 3; i++)
        if (in[i]) {
            assert_status(nd_set_requires_grad(in[i], true), ND_OK);
            wanted[count++] = in[i];
        }
    nd_auto nd_tensor *y = call(r, (const nd_tensor *const *)in);
    if (!y)
        fail_msg("row %zu: %s", number, nd_error_get_message());
    assert_shape(y, ndim_of(r->shape), r->shape);
    assert_sums("result", number, y, r->sums[0], tolerance);
    nd_auto nd_tensor *g = operand(3, nd_get_ndim(y), nd_get_shape(y), dtype);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.grad = g;
    assert_status(nd_grad(y, count, wanted, &options, gradients), ND_OK);
    for (size_t i = 0; i < count; i++) {
        assert_sums(names[i], number, gradients[i], r->sums[1 + i], tolerance);
        nd_release(gradients[i]);
    }
    for (int i = 0; i < 3; i++)
        nd_release(in[i]);
}

static void every_row(void) {
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        check_row(i, ND_F64, 1e-12);
        check_row(i, ND_F32, 1e-6);
    }
}

static void test_every_row_of_pytorch(void **state) {
    (void)state;
    every_row();
    nd__cpu_use_onednn(false);
    every_row();
    nd__cpu_use_onednn(true);
}

/// A half's result is the f64 one rounded once, but for what f32 loses before.
static void test_halves_are_rounded_once(void **state) {
    (void)state;
    static const struct {
        nd_dtype dtype;
        double step; ///< half of the distance of two numbers, relative
    } halves[] = {{ND_F16, 1.0 / 2048}, {ND_BF16, 1.0 / 256}};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        for (size_t h = 0; h < COUNT_OF(halves); h++) {
            const row *r = &rows[i];
            nd_tensor *in[3], *wide[3];
            make_operands(r, halves[h].dtype, in);
            make_operands(r, ND_F64, wide);
            nd_auto nd_tensor *y = call(r, (const nd_tensor *const *)in);
            nd_auto nd_tensor *expected = call(r, (const nd_tensor *const *)wide);
            if (!y)
                fail_msg("row %zu: %s", i, nd_error_get_message());
            assert_int_equal(nd_get_dtype(y), halves[h].dtype);
            nd_auto nd_tensor *found = nd_cast(y, ND_F64);
            for (int64_t k = 0; k < nd_get_numel(found); k++)
                assert_close("a half", at_flat(found, k), at_flat(expected, k),
                             1.01 * halves[h].step, 2e-5);
            for (int k = 0; k < 3; k++) {
                nd_release(in[k]);
                nd_release(wide[k]);
            }
        }
}

// --------------------------------------------------------------------------------------- by itself

static void test_pooling_tells_where(void **state) {
    (void)state;
    const float values[] = {1, 5, 2, 5, 0, 3, 4, 4, 9, 1, 9, 2};
    nd_auto nd_tensor *x = nd_from_data(values, ND_SHAPE(1, 1, 3, 4), ND_F32);
    nd_tensor *largest = NULL, *places = NULL;
    assert_int_equal(
        nd_max_pool2d_with_indices(x, POOL_WITH(2, 2, 1, 2, 0, 0, 1, 1), &largest, &places), ND_OK);
    assert_shape(largest, ND_SHAPE(1, 1, 2, 2));
    const double expected[] = {5, 5, 9, 9};
    const double where[] = {1, 3, 8, 10};
    for (int i = 0; i < 4; i++) {
        assert_true(at_flat(largest, i) == expected[i]);
        assert_true(at_flat(places, i) == where[i]);
    }
    nd_release(largest);
    nd_release(places);
    largest = places = NULL;
    assert_int_equal(nd_max_pool2d_with_indices(x, POOL(7, 1), &largest, &places), ND_ERROR_SHAPE);
    assert_null(largest);
    nd_error_clear();
    assert_int_equal(nd_max_pool2d_with_indices(x, POOL(2, 1), NULL, &places),
                     ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
}

/// Of one axis and of three: places are counted over all axes of a channel.
static void test_pooling_tells_where_along_one_axis_and_three(void **state) {
    (void)state;
    const float values[] = {1, 5, 5, 2, 0, 7, 3, 1, 1, 2, 8, 8};
    nd_max_pool1d_options line = ND_MAX_POOL1D_OPTIONS_INIT;
    line.kernel = 3;
    line.stride = 2;
    line.padding = 1;
    nd_auto nd_tensor *x = nd_from_data(values, ND_SHAPE(1, 2, 6), ND_F32);
    nd_auto nd_tensor *largest = NULL, *places = NULL;
    assert_int_equal(nd_max_pool1d_with_indices(x, &line, &largest, &places), ND_OK);
    assert_shape(largest, ND_SHAPE(1, 2, 3));
    assert_int_equal(nd_get_dtype(places), ND_I64);
    const double expected[] = {5, 5, 7, 3, 2, 8}, where[] = {1, 1, 5, 0, 3, 4};
    for (int i = 0; i < 6; i++)
        assert_true(at_flat(largest, i) == expected[i] && at_flat(places, i) == where[i]);

    nd_max_pool3d_options block = ND_MAX_POOL3D_OPTIONS_INIT;
    for (int i = 0; i < 3; i++)
        block.kernel[i] = block.stride[i] = i < 2 ? 2 : 1;
    nd_auto nd_tensor *volume = nd_from_data(values, ND_SHAPE(1, 1, 2, 2, 3), ND_F32);
    nd_auto nd_tensor *deepest = NULL, *spots = NULL;
    assert_int_equal(nd_max_pool3d_with_indices(volume, &block, &deepest, &spots), ND_OK);
    assert_shape(deepest, ND_SHAPE(1, 1, 1, 1, 3));
    const double high[] = {3, 8, 8}, at[] = {6, 10, 11};
    for (int i = 0; i < 3; i++)
        assert_true(at_flat(deepest, i) == high[i] && at_flat(spots, i) == at[i]);

    nd_tensor *untouched = x;
    line.kernel = block.kernel[2] = 99;
    assert_int_equal(nd_max_pool1d_with_indices(x, &line, &untouched, &untouched), ND_ERROR_SHAPE);
    assert_int_equal(nd_max_pool3d_with_indices(volume, &block, &untouched, &untouched),
                     ND_ERROR_SHAPE);
    nd_error_clear();
    assert_int_equal(nd_max_pool1d_with_indices(x, &line, &untouched, NULL),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_max_pool3d_with_indices(volume, &block, NULL, &untouched),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_ptr_equal(untouched, x);
    nd_error_clear();
}

static void test_global_pooling(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(2, 3, 4, 5), ND_F64, -1, 1);
    nd_auto nd_tensor *mean = nd_global_avg_pool(x), *largest = nd_global_max_pool(x);
    assert_shape(mean, ND_SHAPE(2, 3, 1, 1));
    assert_shape(largest, ND_SHAPE(2, 3, 1, 1));
    for (int64_t plane = 0; plane < 6; plane++) {
        double sum = 0, most = -2;
        for (int64_t i = 0; i < 20; i++) {
            sum += at_flat(x, plane * 20 + i);
            most = fmax(most, at_flat(x, plane * 20 + i));
        }
        assert_close("mean", at_flat(mean, plane), sum / 20, 1e-14, 1e-14);
        assert_true(at_flat(largest, plane) == most);
    }
}

/// Where the elements stay where they are, too.
static void test_shuffled_pixels_are_no_view(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(4, 1, 1), ND_F32, -1, 1);
    nd_auto nd_tensor *same = nd_pixel_shuffle(x, 1);
    nd_auto nd_tensor *back = nd_pixel_unshuffle(x, 1);
    nd_auto nd_tensor *square = nd_pixel_shuffle(x, 2);
    nd_tensor *const results[] = {same, back, square};
    for (int k = 0; k < 3; k++) {
        assert_false(nd_is_view_of(results[k], x));
        for (int64_t i = 0; i < 4; i++)
            assert_true(at_flat(results[k], i) == at_flat(x, i));
    }
}

/// Cubic interpolation of one axis, which PyTorch has of two alone: the same, when the other has
/// size 1.
static void test_cubic_of_other_axes(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(2, 3, 6), ND_F64, -1, 1);
    nd_auto nd_tensor *flat = nd_reshape(x, ND_SHAPE(2, 3, 1, 6));
    nd_interpolate_options one = ND_INTERPOLATE_OPTIONS_INIT;
    one.mode = ND_INTERPOLATION_CUBIC;
    one.sizes[0] = 11;
    nd_interpolate_options two = one;
    two.sizes[0] = 1;
    two.sizes[1] = 11;
    nd_auto nd_tensor *a = nd_interpolate(x, &one), *b = nd_interpolate(flat, &two);
    assert_shape(a, ND_SHAPE(2, 3, 11));
    for (int64_t i = 0; i < 66; i++)
        assert_close("cubic", at_flat(a, i), at_flat(b, i), 1e-14, 1e-14);
}

static void test_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 2, 6), ND_F32);
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(4, 2, 3), ND_F32);
    nd_auto nd_tensor *turned = nd_ones(ND_SHAPE(2, 4, 3), ND_F32);
    nd_auto nd_tensor *bias = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *convolved = nd_conv1d(none, weight, bias, NULL);
    assert_shape(convolved, ND_SHAPE(0, 4, 4));
    nd_auto nd_tensor *transposed = nd_conv_transpose1d(none, turned, bias, NULL);
    assert_shape(transposed, ND_SHAPE(0, 4, 8));
    nd_auto nd_tensor *mean = nd_adaptive_avg_pool1d(none, 3);
    assert_shape(mean, ND_SHAPE(0, 2, 3));
    nd_interpolate_options options = ND_INTERPOLATE_OPTIONS_INIT;
    options.sizes[0] = 3;
    nd_auto nd_tensor *smaller = nd_interpolate(none, &options);
    assert_shape(smaller, ND_SHAPE(0, 2, 3));
    // Sums of nothing, and a bias.
    nd_auto nd_tensor *black = nd_zeros(ND_SHAPE(1, 0, 6), ND_F32);
    nd_auto nd_tensor *blind = nd_zeros(ND_SHAPE(4, 0, 3), ND_F32);
    nd_auto nd_tensor *ones = nd_conv1d(black, blind, bias, NULL);
    assert_shape(ones, ND_SHAPE(1, 4, 4));
    for (int64_t i = 0; i < 16; i++)
        assert_true(at_flat(ones, i) == 1);
}

static void test_convolutions_refuse(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 4, 5), ND_F32);
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(4, 2, 3), ND_F32);
    nd_auto nd_tensor *whole = nd_ones(ND_SHAPE(4, 4, 3), ND_F32);
    nd_auto nd_tensor *image = nd_ones(ND_SHAPE(1, 4, 5, 5), ND_F32);
    nd_auto nd_tensor *bias = nd_ones(ND_SHAPE(3), ND_F32);
    nd_conv1d_options o = ND_CONV1D_OPTIONS_INIT;
    assert_refused(nd_conv1d(image, weight, NULL, NULL), ND_ERROR_SHAPE,
                   "conv1d: x has shape [1, 4, 5, 5] and weight [4, 2, 3]; both must have 3 dim");
    assert_refused(nd_conv1d(x, whole, bias, NULL), ND_ERROR_SHAPE,
                   "conv1d: bias is float32 of shape [3] and must be float32 of shape [4]");
    o.stride = 0;
    assert_refused(nd_conv1d(x, whole, NULL, &o), ND_ERROR_INVALID_ARGUMENT,
                   "conv1d: stride is 0 and must be at least 1");
    o.stride = 1;
    o.padding = 1;
    o.extra_padding = -2;
    assert_refused(nd_conv1d(x, whole, NULL, &o), ND_ERROR_INVALID_ARGUMENT,
                   "conv1d: extra_padding is -2; with padding 1 that is no number of zeros");
    o.extra_padding = INT64_MAX - 3;
    o.padding = 0;
    assert_refused(nd_conv1d(x, whole, NULL, &o), ND_ERROR_INVALID_ARGUMENT,
                   "conv1d: so much padd");
    nd_conv_transpose1d_options t = ND_CONV_TRANSPOSE1D_OPTIONS_INIT;
    t.output_padding = 1;
    assert_refused(nd_conv_transpose1d(x, whole, NULL, &t), ND_ERROR_INVALID_ARGUMENT,
                   "conv_transpose1d: output_padding is 1 and must be at least 0, and less than "
                   "the stride, which is 1, or the dilation, which is 1");
    t.output_padding = 0;
    t.padding = 4;
    assert_refused(nd_conv_transpose1d(x, whole, NULL, &t), ND_ERROR_SHAPE,
                   "conv_transpose1d: x has shape [1, 4, 5] and weight [4, 4, 3]; with these "
                   "options the result's size along axis 2 would be less than 1");
    t.padding = INT64_MAX / 2 + 1;
    assert_refused(nd_conv_transpose1d(x, whole, NULL, &t), ND_ERROR_SHAPE, "conv_transpose1d: x");
    t.padding = 0;
    t.groups = 3;
    assert_refused(nd_conv_transpose1d(x, whole, NULL, &t), ND_ERROR_SHAPE,
                   "conv_transpose1d: x has shape [1, 4, 5] and weight [4, 4, 3]; their 4 and 4 "
                   "channels must be equal, and multiples of groups, which is 3");
    t.groups = 1;
    assert_refused(nd_conv_transpose1d(x, whole, bias, &t), ND_ERROR_SHAPE,
                   "conv_transpose1d: bias");
}

static void test_pools_refuse(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 2, 5), ND_F32);
    nd_auto nd_tensor *whole = nd_ones(ND_SHAPE(1, 2, 5), ND_I32);
    nd_auto nd_tensor *flat = nd_ones(ND_SHAPE(5), ND_F32);
    nd_auto nd_tensor *nothing = nd_ones(ND_SHAPE(1, 2, 0), ND_F32);
    nd_avg_pool1d_options o = ND_AVG_POOL1D_OPTIONS_INIT;
    assert_refused(nd_avg_pool1d(x, &o), ND_ERROR_INVALID_ARGUMENT, "avg_pool1d: kernel is 0 and");
    o.kernel = 6;
    assert_refused(nd_avg_pool1d(x, &o), ND_ERROR_SHAPE, "avg_pool1d: kernel[0] is 6, which with");
    o.kernel = 2;
    o.padding = 2;
    assert_refused(nd_avg_pool1d(x, &o), ND_ERROR_INVALID_ARGUMENT,
                   "avg_pool1d: padding is 2 and must be at most half of kernel, which is 2");
    o.padding = 0;
    o.divisor = -1;
    assert_refused(nd_avg_pool1d(x, &o), ND_ERROR_INVALID_ARGUMENT,
                   "avg_pool1d: divisor is -1 and");
    o.divisor = 0;
    assert_refused(nd_avg_pool1d(whole, &o), ND_ERROR_DTYPE, "avg_pool1d: x is int32 and");
    o.padding = 1;
    assert_refused(nd_avg_pool1d(nothing, &o), ND_ERROR_SHAPE, "avg_pool1d: kernel[0] is 2, which");
    assert_refused(nd_adaptive_avg_pool1d(x, 0), ND_ERROR_INVALID_ARGUMENT,
                   "adaptive_avg_pool1d: size 0 is asked for of axis 2 of x of shape [1, 2, 5]");
    assert_refused(nd_adaptive_max_pool1d(nothing, -1), ND_ERROR_INVALID_ARGUMENT,
                   "adaptive_max_pool1d: size 0 is asked for");
    assert_refused(nd_global_avg_pool(flat), ND_ERROR_SHAPE,
                   "global_avg_pool: x has shape [5] and must have 3, 4 or 5 dimensions");
}

static void test_images_refuse(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 4, 5, 6), ND_F32);
    nd_interpolate_options o = ND_INTERPOLATE_OPTIONS_INIT;
    o.sizes[0] = 3;
    assert_refused(nd_interpolate(x, &o), ND_ERROR_INVALID_ARGUMENT,
                   "interpolate: neither sizes[1] nor scales[1] is set");
    o.sizes[1] = 3;
    o.scales[1] = 2;
    assert_refused(nd_interpolate(x, &o), ND_ERROR_INVALID_ARGUMENT,
                   "interpolate: sizes[1] is 3 and scales[1] 2; one must be 0");
    o.sizes[1] = 0;
    o.scales[1] = 0.1;
    assert_refused(nd_interpolate(x, &o), ND_ERROR_INVALID_ARGUMENT,
                   "interpolate: an axis of size 6 cannot become one of size 0");
    o.scales[1] = (double)NAN;
    assert_refused(nd_interpolate(x, &o), ND_ERROR_INVALID_ARGUMENT, "interpolate: sizes[1] is 0");
    o.scales[1] = 2;
    o.align_corners = true;
    assert_refused(nd_interpolate(x, &o), ND_ERROR_INVALID_ARGUMENT, "interpolate: align_corners");
    o.mode = (nd_interpolation)9;
    assert_refused(nd_interpolate(x, &o), ND_ERROR_INVALID_ARGUMENT,
                   "interpolate: there is no mode");
    assert_refused(nd_pixel_shuffle(x, 3), ND_ERROR_SHAPE, "pixel_shuffle: 4 channels are no mult");
    assert_refused(nd_pixel_shuffle(x, 0), ND_ERROR_INVALID_ARGUMENT, "pixel_shuffle: factor is 0");
    assert_refused(nd_pixel_unshuffle(x, 2), ND_ERROR_SHAPE,
                   "pixel_unshuffle: 5 x 6 pixels are no");
    nd_unfold_options u = ND_UNFOLD_OPTIONS_INIT;
    assert_refused(nd_unfold(x, &u), ND_ERROR_INVALID_ARGUMENT, "unfold: kernel[0] is 0");
    u.kernel[0] = u.kernel[1] = 6;
    assert_refused(nd_unfold(x, &u), ND_ERROR_SHAPE,
                   "unfold: kernel[0] is 6, which with padding 0");
    u.kernel[0] = u.kernel[1] = 2;
    nd_auto nd_tensor *columns = nd_ones(ND_SHAPE(1, 8, 19), ND_F32);
    assert_refused(nd_fold(columns, 5, 6, &u), ND_ERROR_SHAPE, "fold: x has shape [1, 8, 19]; win");
    assert_refused(nd_fold(columns, 0, 6, &u), ND_ERROR_INVALID_ARGUMENT, "fold: h is 0 and w 6");
}

/// The one window of each place lies in the zeros in front of the image.
static void test_windows_in_front_of_the_image(void **state) {
    (void)state;
    nd_conv3d_options options = ND_CONV3D_OPTIONS_INIT;
    options.padding[0] = 1;
    options.stride[0] = 3;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 16, 1, 20, 20), ND_F32);
    for (int64_t groups = 1; groups <= 16; groups *= 16) {
        options.groups = groups;
        nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(16, 16 / groups, 1, 3, 3), ND_F32);
        nd_auto nd_tensor *y = nd_conv3d(x, weight, NULL, &options);
        assert_shape(y, 5, (int64_t[]){1, 16, 1, 18, 18});
        for (int64_t i = 0; i < nd_get_numel(y); i++)
            assert_true(at_flat(y, i) == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_row_of_pytorch),
        ND_TEST(test_halves_are_rounded_once),
        ND_TEST(test_pooling_tells_where),
        ND_TEST(test_pooling_tells_where_along_one_axis_and_three),
        ND_TEST(test_global_pooling),
        ND_TEST(test_shuffled_pixels_are_no_view),
        ND_TEST(test_cubic_of_other_axes),
        ND_TEST(test_nothing),
        ND_TEST(test_windows_in_front_of_the_image),
        ND_TEST(test_convolutions_refuse),
        ND_TEST(test_pools_refuse),
        ND_TEST(test_images_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
