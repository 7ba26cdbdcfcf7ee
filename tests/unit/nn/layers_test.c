// Layers without running statistics: what they compute, their first values, Sequential, what is
// refused.
#include "tests/unit/io/files.h"
#include "tests/windows.h"

#include <math.h>

static nd_tensor *new_parameter(int64_t size) {
    nd_tensor *parameter = nd_ones(ND_SHAPE(size), ND_F32);
    assert_handle(parameter);
    assert_ok(nd_set_requires_grad(parameter, true));
    return parameter;
}

/// A linear layer and the activation behind it are one operation; a user's tensor may lie between.
static void test_activations_behind_linear_layers(void **state) {
    (void)state;
    nd_key key = nd_key_new(1);
    nd_auto nd_tensor *x = nd_randn(nd_key_fold(key, 9), ND_SHAPE(5, 3), ND_F32);
    nd_module *(*const makers[])(void) = {nd_relu_module, nd_gelu_module, nd_tanh_module};
    for (size_t i = 0; i < sizeof(makers) / sizeof(*makers); i++) {
        nd_auto nd_module *linear = nd_linear_module(key, 3, 4, i != 1);
        nd_auto nd_module *activation = makers[i]();
        nd_auto nd_module *net = ND_SEQUENTIAL(nd_retain(linear));
        nd_auto nd_tensor *between = new_parameter(2);
        assert_ok(nd_module_add_parameter(net, "between", between));
        assert_ok(nd_module_add_child(net, "activation", activation));
        nd_auto nd_tensor *y = nd_module_forward(net, x);
        nd_auto nd_tensor *z = nd_module_forward(linear, x);
        nd_auto nd_tensor *expected = nd_module_forward(activation, z);
        assert_handle(y);
        assert_memory_equal(nd_get_data(y), nd_get_data(expected), 20 * sizeof(float));
        assert_true(nd_requires_grad(y));
    }
}

static nd_tensor *twice(const nd_tensor *x) {
    return nd_mul_scalar(x, 2);
}

/// Of the library and of the program; an error of the function is the module's.
static void test_functions_are_modules(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_randn(nd_key_new(1), ND_SHAPE(5, 3), ND_F32);
    nd_auto nd_module *net = ND_SEQUENTIAL(nd_function_module(nd_silu), nd_function_module(twice),
                                           nd_function_module(nd_cholesky));
    nd_auto nd_module *first = nd_retain(nd_module_get_child(net, 0));
    nd_auto nd_module *second = nd_retain(nd_module_get_child(net, 1));
    nd_auto nd_tensor *y = nd_module_forward(first, x);
    nd_auto nd_tensor *z = nd_module_forward(second, y);
    nd_auto nd_tensor *by_hand = nd_silu(x);
    nd_auto nd_tensor *expected = nd_mul_scalar(by_hand, 2);
    assert_handle(z);
    assert_memory_equal(nd_get_data(z), nd_get_data(expected), 15 * sizeof(float));
    assert_null(nd_module_forward(net, x));
    assert_failed(ND_ERROR_SHAPE, "cholesky: ");
    assert_null(nd_function_module(NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "function_module: function is NULL");
}

static void test_layers_compute_their_operation(void **state) {
    (void)state;
    nd_key key = nd_key_new(7);
    nd_auto nd_tensor *image = nd_randn(key, ND_SHAPE(2, 3, 6, 6), ND_F32);
    nd_auto nd_module *net =
        ND_SEQUENTIAL(nd_conv2d_module(key, 3, 4, 3, 3, true, CONV(1, 1)), nd_relu_module(),
                      nd_max_pool2d_module(POOL(2, 2)), nd_gelu_module(), nd_flatten_module(),
                      nd_linear_module(key, 36, 5, true), nd_tanh_module());
    nd_auto nd_tensor *y = nd_module_forward(net, image);
    assert_handle(y);
    nd_auto nd_tensor *convolved = nd_conv2d(image, nd_module_get_parameter(net, "0.weight"),
                                             nd_module_get_parameter(net, "0.bias"), CONV(1, 1));
    nd_auto nd_tensor *positive = nd_relu(convolved);
    nd_auto nd_tensor *pooled = nd_max_pool2d(positive, POOL(2, 2));
    nd_auto nd_tensor *smooth = nd_gelu(pooled);
    nd_auto nd_tensor *flat = nd_reshape(smooth, ND_SHAPE(2, 36));
    nd_auto nd_tensor *mapped = nd_linear(flat, nd_module_get_parameter(net, "5.weight"),
                                          nd_module_get_parameter(net, "5.bias"));
    nd_auto nd_tensor *expected = nd_tanh(mapped);
    assert_handle(expected);
    assert_int_equal(nd_get_numel(y), 10);
    assert_memory_equal(nd_get_data(y), nd_get_data(expected), 10 * sizeof(float));
}

/// Another number for each axis, groups, and the options that are kept with them.
static void test_layers_keep_their_options(void **state) {
    (void)state;
    nd_key key = nd_key_new(8);
    nd_auto nd_tensor *image = nd_randn(key, ND_SHAPE(2, 4, 9, 8), ND_F32);
    nd_conv2d_options windows = *CONV_WITH(1, 2, 2, 1, 2, 1, 2);
    nd_max_pool2d_options pooling = *POOL_WITH(3, 2, 0, 1, 1, 0, 1, 2);
    nd_auto nd_module *net = ND_SEQUENTIAL(nd_conv2d_module(key, 4, 6, 3, 2, false, &windows),
                                           nd_max_pool2d_module(&pooling));
    assert_handle(net);
    const nd_tensor *weight = nd_module_get_parameter(net, "0.weight");
    assert_true(nd_get_size(weight, 0) == 6 && nd_get_size(weight, 1) == 2);
    assert_true(nd_get_size(weight, 2) == 3 && nd_get_size(weight, 3) == 2);
    nd_auto nd_tensor *convolved = nd_conv2d(image, weight, NULL, &windows);
    nd_auto nd_tensor *expected = nd_max_pool2d(convolved, &pooling);
    windows.groups = pooling.kernel[0] = 1;
    nd_auto nd_tensor *y = nd_module_forward(net, image);
    assert_handle(y);
    assert_int_equal(nd_get_numel(y), nd_get_numel(expected));
    assert_memory_equal(nd_get_data(y), nd_get_data(expected),
                        (size_t)nd_get_numel(y) * sizeof(float));
}

static void test_initial_values_are_bounded_and_a_function_of_the_key(void **state) {
    (void)state;
    nd_auto nd_module *a = nd_linear_module(nd_key_new(1), 100, 50, true);
    nd_auto nd_module *b = nd_linear_module(nd_key_new(1), 100, 50, true);
    nd_auto nd_module *c = nd_linear_module(nd_key_new(2), 100, 50, true);
    const float *weight = nd_get_data(nd_module_get_parameter(a, "weight"));
    double sum = 0;
    double largest = 0;
    for (int i = 0; i < 5000; i++) {
        sum += weight[i];
        largest = fmax(largest, fabs(weight[i]));
    }
    assert_true(largest <= 0.1 + 1e-6 && largest > 0.099);
    assert_true(fabs(sum / 5000) < 0.005);
    assert_memory_equal(weight, nd_get_data(nd_module_get_parameter(b, "weight")), 5000 * 4);
    assert_memory_not_equal(weight, nd_get_data(nd_module_get_parameter(c, "weight")), 5000 * 4);
    assert_memory_not_equal(weight, nd_get_data(nd_module_get_parameter(a, "bias")), 50 * 4);
    nd_auto nd_module *convolution = nd_conv2d_module(nd_key_new(1), 4, 8, 5, 5, true, NULL);
    const float *kernel = nd_get_data(nd_module_get_parameter(convolution, "weight"));
    for (int i = 0; i < 8 * 4 * 25; i++)
        assert_true(fabsf(kernel[i]) <= 0.1f + 1e-6f);
}

static void test_sequential_consumes_its_children_always(void **state) {
    (void)state;
    // One constructor fails (in = 0), the others' modules must not be left behind.
    nd_module *failed = ND_SEQUENTIAL(nd_relu_module(), nd_linear_module(nd_key_new(1), 0, 5, true),
                                      nd_tanh_module());
    assert_null(failed);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "linear_module: 0 inputs");
    nd_module *child = nd_relu_module();
    nd_module *module = nd_sequential(1, &child);
    assert_int_equal(nd_get_count(child), 1);
    nd_release(module);
    nd_auto nd_module *empty = nd_sequential(0, NULL);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2), ND_F32);
    nd_auto nd_tensor *y = nd_module_forward(empty, x);
    assert_ptr_equal(x, y);
    assert_null(nd_sequential(1, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "children is NULL");
}

static void test_members_that_a_user_adds_do_not_disturb_a_layer(void **state) {
    (void)state;
    nd_auto nd_module *layer = nd_linear_module(nd_key_new(1), 4, 3, false);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 4), ND_F32);
    nd_auto nd_tensor *before = nd_module_forward(layer, x);
    nd_auto nd_tensor *extra = new_parameter(3);
    assert_ok(nd_module_add_parameter(layer, "extra", extra));
    nd_auto nd_tensor *after = nd_module_forward(layer, x);
    assert_handle(after);
    assert_memory_equal(nd_get_data(before), nd_get_data(after), 3 * sizeof(float));
    nd_auto nd_module *net = nd_sequential(0, NULL);
    assert_ok(nd_module_add_parameter(net, "extra", extra));
    assert_ok(nd_module_add_child(net, "layer", layer));
    nd_auto nd_tensor *through = nd_module_forward(net, x);
    assert_handle(through);
    assert_memory_equal(nd_get_data(before), nd_get_data(through), 3 * sizeof(float));
}

static void test_an_error_in_a_layer_releases_what_came_before(void **state) {
    (void)state;
    nd_key key = nd_key_new(1);
    nd_auto nd_module *net = ND_SEQUENTIAL(nd_linear_module(key, 4, 5, true), nd_tanh_module(),
                                           nd_linear_module(key, 6, 2, true));
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3, 4), ND_F32);
    assert_null(nd_module_forward(net, x));
    assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
    nd_error_clear();
}

static void test_F30_options_of_layers(void **state) {
    (void)state;
    assert_null(nd_max_pool2d_module(POOL(0, 1)));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "max_pool2d_module: kernel[0] is 0");
    assert_null(nd_max_pool2d_module(NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "max_pool2d_module: kernel[0] is 0");
    nd_key key = nd_key_new(1);
    assert_null(nd_conv2d_module(key, 1, 1, 3, 3, true, CONV(0, 0)));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "conv2d_module: stride[0] is 0");
    assert_null(nd_conv2d_module(key, 4, 6, 3, 3, true, CONV_WITH(1, 1, 0, 0, 1, 1, 4)));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "out_channels 6; both must be");
    assert_null(nd_conv2d_module(key, 4, 0, 3, 3, true, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "in_channels is 4 and out_channels 0");
    assert_null(nd_conv2d_module(key, 4, 4, 3, 0, true, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "conv2d_module: the kernel's sizes are [3, 0]");
    assert_null(nd_conv2d_module(key, 4, 4, INT64_MAX, 2, true, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "with 4 channels has no 64-bit number");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_activations_behind_linear_layers),
        ND_TEST(test_functions_are_modules),
        ND_TEST(test_layers_compute_their_operation),
        ND_TEST(test_layers_keep_their_options),
        ND_TEST(test_initial_values_are_bounded_and_a_function_of_the_key),
        ND_TEST(test_sequential_consumes_its_children_always),
        ND_TEST(test_members_that_a_user_adds_do_not_disturb_a_layer),
        ND_TEST(test_an_error_in_a_layer_releases_what_came_before),
        ND_TEST(test_F30_options_of_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
