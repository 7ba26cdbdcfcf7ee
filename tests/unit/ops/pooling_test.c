// Pooling of lines shorter and longer than what is done at once, and windows of 2 x 2, to the bit,
// against the loops that say what it is.
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>
#include <nd/interpolation.h>
#include <nd/pooling.h>

/// Whether x has an element at a place of a window, and where.
static bool is_in_line(const nd_max_pool1d_options *o, int64_t n, int64_t window, int64_t place,
                       int64_t *ret_at) {
    *ret_at = window * o->stride - o->padding + place * o->dilation;
    return *ret_at >= 0 && *ret_at < n;
}

/// The gradient of x where y's is random, which is `ret_seed`.
static nd_tensor *gradient_of(const nd_tensor *y, const nd_tensor *x, nd_tensor **ret_seed) {
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    nd_tensor *gradient = NULL;
    *ret_seed = random_tensor(DENSE, 3, nd_get_shape(y), nd_get_dtype(y), -1, 1);
    options.grad = *ret_seed;
    assert_int_equal(nd_grad(y, 1, &x, &options, &gradient), ND_OK);
    return gradient;
}

/// Means of a line, their gradients, and its largest elements, all by the loops that say what they
/// are: the same bits, since the order of sums is that of places and of windows.
static void check_line(const nd_tensor *x, const nd_max_pool1d_options *o) {
    nd_avg_pool1d_options mean = ND_AVG_POOL1D_OPTIONS_INIT;
    mean.kernel = o->kernel;
    mean.stride = o->stride;
    mean.padding = o->padding;
    mean.count_include_pad = false;
    nd_auto nd_tensor *y = nd_avg_pool1d(x, &mean);
    nd_auto nd_tensor *seed = NULL, *largest = NULL, *places = NULL;
    nd_auto nd_tensor *gradient = gradient_of(y, x, &seed);
    int64_t n = nd_get_shape(x)[2], at;
    double *back = calloc((size_t)n, sizeof *back);
    assert_non_null(back);
    for (int64_t w = 0; w < nd_get_numel(y); w++) {
        double sum = 0;
        int64_t count = 0;
        for (int64_t place = 0; place < o->kernel; place++)
            if (is_in_line(o, n, w, place, &at))
                sum = count++ == 0 ? at_flat(x, at) : sum + at_flat(x, at);
        assert_true(at_flat(y, w) == sum / (double)count);
        for (int64_t place = 0; place < o->kernel; place++)
            if (is_in_line(o, n, w, place, &at))
                back[at] += at_flat(seed, w) / (double)count;
    }
    for (int64_t i = 0; i < n; i++)
        assert_true(at_flat(gradient, i) == back[i]);
    free(back);
    nd_max_pool1d_options dilated = *o;
    dilated.dilation = 1 + o->kernel % 2;
    nd_error_clear();
    if (nd_max_pool1d_with_indices(x, &dilated, &largest, &places) != ND_OK) {
        nd_error_clear(); // the windows reach beyond the line
        return;
    }
    for (int64_t w = 0; w < nd_get_numel(largest); w++) {
        int64_t best = -1;
        for (int64_t place = 0; place < o->kernel; place++)
            if (is_in_line(&dilated, n, w, place, &at) &&
                (best < 0 || at_flat(x, at) > at_flat(x, best)))
                best = at;
        assert_true(at_flat(places, w) == (double)best);
        assert_true(at_flat(largest, w) == at_flat(x, best));
    }
}

static void test_pooling_of_lines(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 5, 17, 64, 700};
    for (size_t l = 0; l < COUNT_OF(lengths); l++)
        for (int64_t kernel = 1; kernel <= 5; kernel++)
            for (int64_t stride = 1; stride <= 4; stride++)
                for (int64_t padding = 0; padding <= kernel / 2; padding++) {
                    if (lengths[l] + 2 * padding < kernel)
                        continue;
                    nd_max_pool1d_options o = ND_MAX_POOL1D_OPTIONS_INIT;
                    o.kernel = kernel;
                    o.stride = stride;
                    o.padding = padding;
                    nd_auto nd_tensor *x =
                        random_tensor(DENSE, ND_SHAPE(1, 1, lengths[l]), ND_F64, -1, 1);
                    assert_int_equal(nd_set_requires_grad(x, true), ND_OK);
                    check_line(x, &o);
                }
}

/// The largest element of each window of one line, by the elements of x that are in it.
static void check_long_windows(const nd_tensor *x, const nd_max_pool1d_options *o) {
    nd_tensor *largest, *places;
    if (nd_max_pool1d_with_indices(x, o, &largest, &places) != ND_OK) {
        assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
        nd_error_clear(); // no window fits, or one holds no element
        return;
    }
    for (int64_t w = 0; w < nd_get_numel(largest); w++) {
        int64_t best = -1, first = w * o->stride - o->padding;
        for (int64_t at = 0; at < nd_get_shape(x)[2]; at++)
            if (at >= first && (at - first) % o->dilation == 0 &&
                (at - first) / o->dilation < o->kernel &&
                (best < 0 || at_flat(x, at) > at_flat(x, best)))
                best = at;
        assert_true(at_flat(places, w) == (double)best);
        assert_true(at_flat(largest, w) == at_flat(x, best));
    }
    nd_release(largest);
    nd_release(places);
}

/// Windows far longer than x take no longer than x is.
static void test_windows_longer_than_lines(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(1, 1, 9), ND_F64, -1, 1);
    const int64_t long_ones[] = {6, 9, 10, 11, 17, 18, 40, (int64_t)1 << 20, (int64_t)1 << 40};
    int checked = 0;
    for (size_t k = 0; k < COUNT_OF(long_ones); k++)
        for (int64_t padding = 0; padding <= 4; padding++)
            for (int64_t step = 0; step < 4; step++)
                for (int64_t dilation = 1; dilation <= 3; dilation++) {
                    nd_max_pool1d_options o = ND_MAX_POOL1D_OPTIONS_INIT;
                    o.kernel = long_ones[k];
                    o.padding = padding < 4 ? padding : o.kernel / 2;
                    o.stride = step < 3 ? 1 + 2 * step : (o.kernel + 1) / 2;
                    o.dilation = dilation;
                    o.ceil_mode = true;
                    // More windows than this test has time for.
                    if (o.padding / o.stride > 1000)
                        continue;
                    check_long_windows(x, &o);
                    checked++;
                }
    assert_true(checked > 100);
    nd_auto nd_tensor *image = random_tensor(DENSE, ND_SHAPE(1, 1, 5, 6), ND_F32, -1, 1);
    nd_max_pool2d_options o = ND_MAX_POOL2D_OPTIONS_INIT;
    o.kernel[0] = o.kernel[1] = (int64_t)1 << 30;
    o.ceil_mode = true;
    nd_auto nd_tensor *most = nd_max(image, 0, NULL, false);
    nd_auto nd_tensor *pooled = nd_max_pool2d(image, &o);
    assert_true(pooled && nd_get_numel(pooled) == 1 && at_flat(pooled, 0) == at_flat(most, 0));
}

/// Windows of 2 x 2 in planes of so many lines and columns.
static void check_pairs(int64_t planes, int64_t lines, int64_t columns, nd_dtype dtype) {
    // Few numbers, so that many are equal, and some are NaN.
    nd_auto nd_tensor *numbers = random_dense(ND_SHAPE(planes, 1, lines, columns), dtype, -3, 3);
    nd_auto nd_tensor *whole = nd_round(numbers);
    nd_auto nd_tensor *three = nd_full(ND_SHAPE(1), 3, dtype);
    nd_auto nd_tensor *is_three = nd_equal(whole, three);
    nd_auto nd_tensor *x = nd_masked_fill(whole, is_three, (double)NAN);
    nd_max_pool2d_options options = ND_MAX_POOL2D_OPTIONS_INIT;
    options.kernel[0] = options.kernel[1] = 2;
    nd_tensor *largest, *places;
    assert_int_equal(nd_max_pool2d_with_indices(x, &options, &largest, &places), ND_OK);
    int64_t high = lines / 2, wide = columns / 2;
    assert_shape(largest, ND_SHAPE(planes, 1, high, wide));
    for (int64_t i = 0; i < planes * high * wide; i++) {
        int64_t plane = i / (high * wide), first = i / wide % high * 2 * columns + i % wide * 2;
        int64_t best = first, others[] = {first + 1, first + columns, first + columns + 1};
        for (int k = 0; k < 3; k++) {
            double most = at_flat(x, plane * lines * columns + best);
            double other = at_flat(x, plane * lines * columns + others[k]);
            if (!isnan(most) && (isnan(other) || other > most))
                best = others[k];
        }
        double expected = at_flat(x, plane * lines * columns + best), got = at_flat(largest, i);
        assert_true(isnan(expected) ? isnan(got) : got == expected);
        assert_true(at_flat(places, i) == (double)best);
    }
    nd_release(largest);
    nd_release(places);
}

static void check_all_pairs(void) {
    for (int64_t columns = 2; columns < 40; columns++)
        for (int64_t lines = 2; lines < 8; lines++)
            for (int64_t planes = 1; planes < 4; planes++) {
                check_pairs(planes, lines, columns, ND_F32);
                check_pairs(planes, lines, columns, ND_F64);
            }
    // So many that threads share them.
    check_pairs(300, 14, 14, ND_F32);
    check_pairs(300, 14, 15, ND_F64);
}

static void test_pairs_of_lines_and_columns(void **state) {
    (void)state;
    on_every_isa(check_all_pairs);
}

/// Means of adaptive windows over lines, and their gradients, by their definition.
static void check_adaptive(int64_t rows, int64_t length, int64_t out, nd_dtype dtype) {
    const double close = dtype == ND_F64 ? 1e-13 : 2e-6;
    nd_auto nd_tensor *x = random_tensor(STEPPED, ND_SHAPE(1, rows, length), dtype, -1, 1);
    assert_int_equal(nd_set_requires_grad(x, true), ND_OK);
    nd_auto nd_tensor *y = nd_adaptive_avg_pool1d(x, out);
    assert_shape(y, ND_SHAPE(1, rows, out));
    nd_auto nd_tensor *seed = NULL;
    nd_auto nd_tensor *gradient = gradient_of(y, x, &seed);
    double *back = calloc((size_t)(rows * length), sizeof *back);
    assert_non_null(back);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t w = 0; w < out; w++) {
            int64_t begin = w * length / out, end = ((w + 1) * length + out - 1) / out;
            double sum = 0, count = (double)(end - begin), at_w = at_flat(seed, row * out + w);
            for (int64_t i = begin; i < end; i++) {
                sum += at_flat(x, row * length + i);
                back[row * length + i] += at_w / count;
            }
            assert_close("mean", at_flat(y, row * out + w), sum / count, close, close);
        }
    for (int64_t i = 0; i < rows * length; i++)
        assert_close("gradient", at_flat(gradient, i), back[i], close, close);
    free(back);
}

static void check_all_adaptive(void) {
    for (int64_t rows = 1; rows <= 9; rows += 2)
        for (int64_t length = 1; length <= 300; length = length * 2 + 1)
            for (int64_t out = 1; out <= length + 1; out = out * 3 - 1 + out % 2)
                for (int type = 0; type < 2; type++)
                    check_adaptive(rows, length, out, type ? ND_F64 : ND_F32);
}

static void test_adaptive_windows_of_any_length(void **state) {
    (void)state;
    on_every_isa(check_all_adaptive);
}

/// What is not a number, or infinite, is so where its window is, and nowhere else.
static void test_long_windows_keep_what_is_no_number(void **state) {
    (void)state;
    enum { LENGTH = 200 };
    for (int64_t spot = 0; spot < LENGTH; spot += 33) {
        nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(1, 5, LENGTH), ND_F32, -1, 1);
        set_element(nd_get_data(x), ND_F32, 2 * LENGTH + spot, NAN);
        set_element(nd_get_data(x), ND_F32, 3 * LENGTH + spot, INFINITY);
        nd_auto nd_tensor *y = nd_adaptive_avg_pool1d(x, 2);
        for (int64_t w = 0; w < 2; w++) {
            bool is_there = (spot >= LENGTH / 2) == (w == 1);
            assert_true(isfinite(at_flat(y, 2 + w)) && isfinite(at_flat(y, 8 + w)));
            assert_int_equal(isnan(at_flat(y, 4 + w)), is_there);
            assert_int_equal(isinf(at_flat(y, 6 + w)), is_there);
        }
    }
}

/// The mean of a whole image is that of its elements, whatever its layout and its dtype.
static void test_means_of_whole_images(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    for (layout how = DENSE; how < LAYOUTS; how++)
        for (size_t type = 0; type < COUNT_OF(dtypes); type++) {
            const int64_t shape[] = {2, 3, 2, 7, 9};
            nd_auto nd_tensor *x = random_tensor(how, 5, shape, dtypes[type], 0, 1);
            nd_auto nd_tensor *y = nd_adaptive_avg_pool3d(x, 1, 1, 1);
            assert_shape(y, ND_SHAPE(2, 3, 1, 1, 1));
            for (int64_t channel = 0; channel < 6; channel++) {
                double sum = 0;
                for (int64_t i = 0; i < 126; i++)
                    sum += at_flat(x, channel * 126 + i);
                assert_close("mean", at_flat(y, channel), sum / 126, type < 2 ? 1e-6 : 4e-3, 0);
            }
        }
}

/// Lines that are drawn between their elements, several of them together, and the sums of the
/// shares that each element has in the results.
static void check_drawn(int64_t rows, int64_t length, int64_t out) {
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(1, rows, length), ND_F64, -1, 1);
    assert_int_equal(nd_set_requires_grad(x, true), ND_OK);
    nd_interpolate_options o = ND_INTERPOLATE_OPTIONS_INIT;
    o.mode = ND_INTERPOLATION_LINEAR;
    o.sizes[0] = out;
    nd_auto nd_tensor *y = nd_interpolate(x, &o);
    assert_shape(y, ND_SHAPE(1, rows, out));
    nd_auto nd_tensor *seed = NULL;
    nd_auto nd_tensor *gradient = gradient_of(y, x, &seed);
    double *back = calloc((size_t)(rows * length), sizeof *back);
    assert_non_null(back);
    for (int64_t i = 0; i < rows * out; i++) {
        double place = ((double)(i % out) + 0.5) * (double)length / (double)out - 0.5;
        place = place < 0 ? 0 : place;
        int64_t below = (int64_t)place, above = below + 1 < length ? below + 1 : below;
        double share = place - (double)below;
        int64_t line = i / out * length;
        assert_close("drawn", at_flat(y, i),
                     (1 - share) * at_flat(x, line + below) + share * at_flat(x, line + above),
                     1e-12, 1e-12);
        back[line + below] += (1 - share) * at_flat(seed, i);
        back[line + above] += share * at_flat(seed, i);
    }
    for (int64_t i = 0; i < rows * length; i++)
        assert_close("gradient", at_flat(gradient, i), back[i], 1e-12, 1e-12);
    free(back);
}

static void test_drawn_lines(void **state) {
    (void)state;
    for (int64_t rows = 1; rows <= 9; rows++)
        for (int64_t length = 1; length <= 70; length = length * 2 + 1)
            for (int64_t out = 1; out <= 140; out = out * 3 + 1)
                check_drawn(rows, length, out);
}

/// Means of very many elements lose no digits, by whatever way: not of equal ones, whose running sum
/// does soon.
static void test_means_of_very_many(void **state) {
    (void)state;
    const double number = (double)0.1f;
    for (int64_t side = 40; side <= 2000; side *= 7) {
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(1, 2, side, side), 0.1f, ND_F32);
        nd_auto nd_tensor *line = nd_reshape(x, ND_SHAPE(1, 2, side * side));
        nd_avg_pool2d_options square = ND_AVG_POOL2D_OPTIONS_INIT;
        square.kernel[0] = square.kernel[1] = side;
        nd_avg_pool1d_options along = ND_AVG_POOL1D_OPTIONS_INIT;
        along.kernel = side * side;
        nd_tensor *means[] = {nd_global_avg_pool(x),           nd_adaptive_avg_pool2d(x, 1, 1),
                              nd_adaptive_avg_pool2d(x, 2, 3), nd_adaptive_avg_pool1d(line, 1),
                              nd_adaptive_avg_pool1d(line, 3), nd_avg_pool2d(x, &square),
                              nd_avg_pool1d(line, &along)};
        for (size_t i = 0; i < sizeof means / sizeof *means; i++) {
            assert_handle(means[i]);
            for (int64_t k = 0; k < nd_get_numel(means[i]); k++)
                assert_close("mean", at_flat(means[i], k), number, 0, 2e-6);
            nd_release(means[i]);
        }
    }
    // The gradient of a channel's mean is the same share of each element.
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(2, 3, 64, 32), 0.5, ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *mean = nd_global_avg_pool(x), *sum = nd_sum(mean, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        assert_close("share", at_flat(nd_get_grad(x), i), 1.0 / 2048, 0, 1e-6);
}

/// Windows longer than x that step into it, or over it.
static void test_dilated_windows_beside_a_short_axis(void **state) {
    (void)state;
    int counted = 0;
    for (int64_t size = 1; size < 6; size++)
        for (int64_t kernel = 1; kernel < 6; kernel++)
            for (int64_t padding = 0; 2 * padding <= kernel; padding++)
                for (int64_t dilation = 1; dilation < 6; dilation++)
                    for (int64_t stride = 1; stride < 4; stride++)
                        for (int ceil_mode = 0; ceil_mode < 2; ceil_mode++) {
                            nd_max_pool1d_options o = ND_MAX_POOL1D_OPTIONS_INIT;
                            o.kernel = kernel;
                            o.padding = padding;
                            o.dilation = dilation;
                            o.stride = stride;
                            o.ceil_mode = ceil_mode;
                            nd_auto nd_tensor *x = nd_arange(1, (double)size + 1, 1, ND_F32);
                            nd_auto nd_tensor *image = nd_reshape(x, ND_SHAPE(1, 1, size));
                            const int64_t span = size + 2 * padding - dilation * (kernel - 1) - 1;
                            int64_t count =
                                span < 0 && !(ceil_mode && span > -stride)
                                    ? 0
                                    : (span + (ceil_mode ? stride - 1 : 0)) / stride + 1;
                            if (ceil_mode && count > 0 && (count - 1) * stride >= size + padding)
                                count--;
                            float expected[16];
                            bool all = count > 0;
                            for (int64_t i = 0; i < count; i++) {
                                expected[i] = 0;
                                for (int64_t k = 0; k < kernel; k++) {
                                    const int64_t at = i * stride - padding + k * dilation;
                                    if (at >= 0 && at < size)
                                        expected[i] = fmaxf(expected[i], (float)at + 1);
                                }
                                all = all && expected[i] > 0;
                            }
                            nd_auto nd_tensor *y = nd_max_pool1d(image, &o);
                            if (!y)
                                assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
                            nd_error_clear();
                            assert_int_equal(y != NULL, all);
                            if (!all)
                                continue;
                            assert_int_equal(nd_get_numel(y), count);
                            assert_memory_equal(nd_get_data(y), expected,
                                                (size_t)count * sizeof(float));
                            counted++;
                        }
    assert_true(counted > 200);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_pooling_of_lines),
        ND_TEST(test_windows_longer_than_lines),
        ND_TEST(test_pairs_of_lines_and_columns),
        ND_TEST(test_adaptive_windows_of_any_length),
        ND_TEST(test_long_windows_keep_what_is_no_number),
        ND_TEST(test_means_of_whole_images),
        ND_TEST(test_drawn_lines),
        ND_TEST(test_means_of_very_many),
        ND_TEST(test_dilated_windows_beside_a_short_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
