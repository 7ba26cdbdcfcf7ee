// The modules of convolutions, pooling and interpolation beside the operations that they stand for.
#include "tests/testing.h"
#include "tests/windows.h"

static void assert_same(const nd_tensor *got, const nd_tensor *expected) {
    assert_handle(got);
    assert_handle(expected);
    assert_int_equal(nd_get_ndim(got), nd_get_ndim(expected));
    for (int i = 0; i < nd_get_ndim(got); i++)
        assert_int_equal(nd_get_shape(got)[i], nd_get_shape(expected)[i]);
    size_t bytes = (size_t)nd_get_numel(got) * sizeof(float);
    assert_memory_equal(nd_get_data(got), nd_get_data(expected), bytes);
}

static nd_tensor *images(int axes) {
    const int64_t shape[] = {2, 4, 5, 6, 7};
    return nd_rand(nd_key_new((uint64_t)axes), 2 + axes, shape, ND_F32);
}

/// Module consumed. `expected`, consumed: of the same input.
static void check(nd_module *module, const nd_tensor *x, nd_tensor *expected) {
    assert_handle(module);
    nd_auto nd_tensor *y = nd_module_forward(module, x);
    assert_same(y, expected);
    nd_release(module);
    nd_release(expected);
}

#define WEIGHT nd_module_get_parameter(module, "weight")
#define BIAS nd_module_get_parameter(module, "bias")

static void test_convolutions(void **state) {
    (void)state;
    nd_auto nd_tensor *x = images(1), *image = images(2), *volume = images(3);
    nd_key key = nd_key_new(3);
    nd_conv1d_options one = ND_CONV1D_OPTIONS_INIT;
    one.groups = 2;
    one.extra_padding = 1;
    nd_module *module = nd_conv1d_module(key, 4, 6, 3, true, &one);
    assert_int_equal(nd_get_shape(WEIGHT)[0], 6);
    assert_int_equal(nd_get_shape(WEIGHT)[1], 2);
    check(module, x, nd_conv1d(x, WEIGHT, BIAS, &one));
    nd_conv3d_options three = ND_CONV3D_OPTIONS_INIT;
    three.stride[1] = 2;
    module = nd_conv3d_module(key, 4, 2, 1, 2, 3, false, &three);
    assert_int_equal(nd_module_get_parameter_count(module), 1);
    check(module, volume, nd_conv3d(volume, WEIGHT, NULL, &three));
    nd_conv_transpose1d_options back = ND_CONV_TRANSPOSE1D_OPTIONS_INIT;
    back.stride = 2;
    back.output_padding = 1;
    module = nd_conv_transpose1d_module(key, 4, 6, 3, true, &back);
    check(module, x, nd_conv_transpose1d(x, WEIGHT, BIAS, &back));
    nd_conv_transpose2d_options up = ND_CONV_TRANSPOSE2D_OPTIONS_INIT;
    up.stride[0] = up.stride[1] = up.groups = 2;
    module = nd_conv_transpose2d_module(key, 4, 6, 2, 3, true, &up);
    assert_int_equal(nd_get_shape(WEIGHT)[0], 4);
    assert_int_equal(nd_get_shape(WEIGHT)[1], 3);
    assert_int_equal(nd_get_shape(BIAS)[0], 6);
    // Uniform in +-1/sqrt(3 * 2 * 3).
    nd_auto nd_tensor *size = nd_abs(WEIGHT), *largest = nd_max(size, 0, NULL, false);
    assert_true(nd_get_item(largest) <= 0.2358 && nd_get_item(largest) > 0.2);
    check(module, image, nd_conv_transpose2d(image, WEIGHT, BIAS, &up));
    module = nd_conv_transpose3d_module(key, 4, 2, 1, 2, 1, true, NULL);
    check(module, volume, nd_conv_transpose3d(volume, WEIGHT, BIAS, NULL));
}

static void test_pools(void **state) {
    (void)state;
    nd_auto nd_tensor *x = images(1), *image = images(2), *volume = images(3);
    nd_max_pool1d_options m1 = ND_MAX_POOL1D_OPTIONS_INIT;
    nd_max_pool3d_options m3 = ND_MAX_POOL3D_OPTIONS_INIT;
    nd_avg_pool1d_options a1 = ND_AVG_POOL1D_OPTIONS_INIT;
    nd_avg_pool2d_options a2 = ND_AVG_POOL2D_OPTIONS_INIT;
    nd_avg_pool3d_options a3 = ND_AVG_POOL3D_OPTIONS_INIT;
    m1.kernel = a1.kernel = 2;
    m1.ceil_mode = true;
    for (int i = 0; i < 3; i++)
        m3.kernel[i] = a3.kernel[i] = 1 + i;
    a2.kernel[0] = 3;
    a2.kernel[1] = a2.padding[0] = 1;
    check(nd_max_pool1d_module(&m1), x, nd_max_pool1d(x, &m1));
    check(nd_max_pool3d_module(&m3), volume, nd_max_pool3d(volume, &m3));
    check(nd_avg_pool1d_module(&a1), x, nd_avg_pool1d(x, &a1));
    check(nd_avg_pool2d_module(&a2), image, nd_avg_pool2d(image, &a2));
    check(nd_avg_pool3d_module(&a3), volume, nd_avg_pool3d(volume, &a3));
    check(nd_adaptive_avg_pool1d_module(3), x, nd_adaptive_avg_pool1d(x, 3));
    check(nd_adaptive_avg_pool2d_module(3, -1), image, nd_adaptive_avg_pool2d(image, 3, -1));
    check(nd_adaptive_avg_pool3d_module(1, 2, 3), volume, nd_adaptive_avg_pool3d(volume, 1, 2, 3));
    check(nd_adaptive_max_pool1d_module(3), x, nd_adaptive_max_pool1d(x, 3));
    check(nd_adaptive_max_pool2d_module(2, 4), image, nd_adaptive_max_pool2d(image, 2, 4));
    check(nd_adaptive_max_pool3d_module(3, 2, 1), volume, nd_adaptive_max_pool3d(volume, 3, 2, 1));
}

static void test_other_sizes(void **state) {
    (void)state;
    nd_auto nd_tensor *image = images(2);
    nd_interpolate_options options = ND_INTERPOLATE_OPTIONS_INIT;
    options.scales[0] = 2;
    options.sizes[1] = 3;
    options.mode = ND_INTERPOLATION_LINEAR;
    check(nd_upsample_module(&options), image, nd_interpolate(image, &options));
    check(nd_pixel_shuffle_module(2), image, nd_pixel_shuffle(image, 2));
}

#define assert_says(module, text)                                           \
    do {                                                                    \
        assert_null(module);                                                \
        assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT); \
        if (strncmp(nd_error_get_message(), text, strlen(text)))            \
            fail_msg("%s", nd_error_get_message());                         \
        nd_error_clear();                                                   \
    } while (0)

static void test_what_is_wrong_is_refused_at_once(void **state) {
    (void)state;
    nd_key key = nd_key_new(1);
    assert_says(nd_conv1d_module(key, 4, 6, 0, true, NULL),
                "conv1d_module: the kernel's sizes are [0] and must be at least 1");
    assert_says(nd_conv_transpose3d_module(key, 0, 6, 1, 1, 1, true, NULL),
                "conv_transpose3d_module: in_channels is 0 and out_channels 6");
    nd_conv_transpose2d_options up = ND_CONV_TRANSPOSE2D_OPTIONS_INIT;
    up.output_padding[1] = 1;
    assert_says(nd_conv_transpose2d_module(key, 1, 1, 1, 1, true, &up),
                "conv_transpose2d_module: output_padding[1] is 1");
    assert_says(nd_avg_pool2d_module(NULL), "avg_pool2d_module: kernel[0] is 0");
    assert_says(nd_adaptive_avg_pool2d_module(3, 0),
                "adaptive_avg_pool2d_module: sizes [3, 0] are asked for");
    assert_says(nd_pixel_shuffle_module(0), "pixel_shuffle_module: factor is 0");
    nd_interpolate_options options = ND_INTERPOLATE_OPTIONS_INIT;
    options.sizes[2] = -1;
    assert_says(nd_upsample_module(&options), "upsample_module: sizes[2] is -1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_convolutions),
        ND_TEST(test_pools),
        ND_TEST(test_other_sizes),
        ND_TEST(test_what_is_wrong_is_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
