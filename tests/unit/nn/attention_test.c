// Attention as a module: the names and shapes of its parameters, which are PyTorch's, what it computes
// beside PyTorch's values, dropout by the mode, what is refused.
#include "tests/unit/io/files.h"
#include "tests/unit/nn/attention_values.h"

#include <math.h>

enum { SIZE = 6, HEADS = 2, BATCH = 2, LENGTH = 3, OTHER = 4 };

static const char *const names[] = {"in_proj_weight", "in_proj_bias", "out_proj.weight",
                                    "out_proj.bias"};

/// The same numbers in [-1, 1) as those of attention_values.py.
static void numbers(const nd_tensor *x, int seed) {
    double *values = nd_get_data(x);
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        values[i] =
            (uint32_t)(((uint64_t)seed * 1000 + (uint64_t)i) * 2654435761 + 12345) / 2147483648.0 -
            1;
}

static nd_tensor *operand(int seed, int64_t length) {
    nd_tensor *x = nd_zeros(ND_SHAPE(BATCH, length, SIZE), ND_F64);
    numbers(x, seed);
    assert_ok(nd_set_requires_grad(x, true));
    return x;
}

static nd_module *module_of(bool bias, bool causal) {
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.causal = causal;
    nd_module *net = nd_attention_module(nd_key_new(1), SIZE, HEADS, bias, &options);
    assert_handle(net);
    assert_ok(nd_module_cast(net, ND_F64));
    size_t at = 0;
    for (int i = 0; i < 4; i++) {
        if (i % 2 && !bias)
            continue;
        const char *found = NULL;
        const nd_tensor *parameter = nd_module_get_parameter_at(net, at++, &found);
        assert_string_equal(found, names[i]);
        numbers(parameter, i);
    }
    assert_int_equal(nd_module_get_parameter_count(net), at);
    return net;
}

/// A query does not see what attention_values.py hides.
static nd_tensor *mask_of(int64_t keys) {
    nd_tensor *mask = nd_zeros(ND_SHAPE(LENGTH, keys), ND_BOOL);
    bool *sees = nd_get_data(mask);
    for (int64_t i = 0; i < LENGTH; i++)
        for (int64_t j = 0; j < keys; j++)
            sees[i * keys + j] = (i + 2 * j) % 3 != 0;
    return mask;
}

static void assert_next(const nd_tensor *x, int64_t count, int index, int *at) {
    assert_non_null(x);
    nd_auto nd_tensor *dense = nd_contiguous(x);
    const double *found = nd_get_data(dense);
    for (int64_t i = 0; i < count; i++) {
        double expected = expected_values[index].values[(*at)++];
        assert_true(fabs(found[i] - expected) <= 1e-12 * fmax(1, fabs(expected)));
    }
}

static void check_case(int index, bool bias, bool causal, int key, int value, bool masked) {
    nd_auto nd_module *net = module_of(bias, causal);
    nd_auto nd_tensor *query = operand(10, LENGTH);
    nd_auto nd_tensor *first = operand(11, OTHER);
    nd_auto nd_tensor *second = operand(12, OTHER);
    const nd_tensor *x[] = {query, first, second};
    nd_auto nd_tensor *mask = masked ? mask_of(OTHER) : NULL;
    nd_auto nd_tensor *y =
        nd_attention_module_run(net, query, key ? x[key] : NULL, value ? x[value] : NULL, mask);
    assert_handle(y);
    nd_auto nd_tensor *g = nd_zeros(ND_SHAPE(BATCH, LENGTH, SIZE), ND_F64);
    numbers(g, 13);
    nd_auto nd_tensor *weighted = nd_mul(y, g);
    nd_auto nd_tensor *loss = nd_sum(weighted, 0, NULL, false);
    assert_ok(nd_backward(loss, NULL));
    int at = 0;
    assert_next(y, BATCH * LENGTH * SIZE, index, &at);
    assert_next(nd_get_grad(query), SIZE, index, &at);
    for (size_t i = 0; i < nd_module_get_parameter_count(net); i++)
        assert_next(nd_get_grad(nd_module_get_parameter_at(net, i, NULL)), SIZE, index, &at);
    assert_int_equal(at, expected_values[index].count);
    if (key == 0 && !masked) {
        nd_auto nd_tensor *same = nd_module_forward(net, query);
        int from = 0;
        assert_next(same, BATCH * LENGTH * SIZE, index, &from);
    }
}

static void test_modules_compute_what_pytorch_computes(void **state) {
    (void)state;
    check_case(0, true, false, 0, 0, false);
    check_case(1, true, true, 0, 0, false);
    check_case(2, false, false, 1, 0, true);
    check_case(3, true, false, 1, 2, false);
}

static void test_parameters_are_drawn_from_the_key(void **state) {
    (void)state;
    nd_auto nd_module *net = nd_attention_module(nd_key_new(1), 64, 4, true, NULL);
    nd_auto nd_module *same = nd_attention_module(nd_key_new(1), 64, 4, true, NULL);
    nd_auto nd_module *other = nd_attention_module(nd_key_new(2), 64, 4, true, NULL);
    const int64_t rows[] = {192, 192, 64, 64};
    for (size_t i = 0; i < 4; i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(net, i, NULL);
        assert_int_equal(nd_get_size(parameter, 0), rows[i]);
        assert_int_equal(nd_get_numel(parameter), i % 2 ? rows[i] : 64 * rows[i]);
        size_t bytes = (size_t)nd_get_numel(parameter) * sizeof(float);
        const float *values = nd_get_data(parameter);
        float largest = 0;
        for (int64_t k = 0; k < nd_get_numel(parameter); k++)
            largest = fmaxf(largest, fabsf(values[k]));
        assert_true(largest <= 0.125F + 1e-6F && largest > 0.1F);
        const nd_tensor *again = nd_module_get_parameter_at(same, i, NULL);
        const nd_tensor *another = nd_module_get_parameter_at(other, i, NULL);
        assert_memory_equal(values, nd_get_data(again), bytes);
        assert_true(memcmp(values, nd_get_data(another), bytes) != 0);
    }
}

static void test_dropout_follows_the_mode(void **state) {
    (void)state;
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    options.dropout = 0.5;
    nd_auto nd_module *net = nd_attention_module(nd_key_new(7), 8, 2, true, &options);
    nd_auto nd_module *plain = nd_attention_module(nd_key_new(7), 8, 2, true, NULL);
    nd_auto nd_tensor *x = nd_randn(nd_key_new(3), ND_SHAPE(9, 8), ND_F32);
    nd_auto nd_tensor *first = nd_module_forward(net, x);
    nd_auto nd_tensor *second = nd_module_forward(net, x);
    nd_auto nd_tensor *whole = nd_module_forward(plain, x);
    const size_t bytes = 72 * sizeof(float);
    assert_true(memcmp(nd_get_data(first), nd_get_data(second), bytes) != 0);
    assert_true(memcmp(nd_get_data(first), nd_get_data(whole), bytes) != 0);
    assert_ok(nd_module_set_training(net, false));
    nd_auto nd_tensor *outside = nd_module_forward(net, x);
    assert_memory_equal(nd_get_data(outside), nd_get_data(whole), bytes);
}

/// As many axes as nd_attention() takes with the heads.
static void test_leading_axes_are_a_batch(void **state) {
    (void)state;
    nd_auto nd_module *net = nd_attention_module(nd_key_new(1), 8, 2, true, NULL);
    nd_auto nd_tensor *x = nd_randn(nd_key_new(3), ND_SHAPE(6, 3, 8), ND_F32);
    nd_auto nd_tensor *wide = nd_reshape(x, ND_SHAPE(1, 2, 1, 3, 1, 3, 8));
    nd_auto nd_tensor *y = nd_module_forward(net, x);
    nd_auto nd_tensor *z = nd_module_forward(net, wide);
    assert_handle(z);
    assert_int_equal(nd_get_ndim(z), 7);
    assert_memory_equal(nd_get_data(y), nd_get_data(z), 144 * sizeof(float));
    nd_auto nd_tensor *wider = nd_unsqueeze(wide, 0);
    assert_null(nd_module_forward(net, wider));
    assert_failed(ND_ERROR_SHAPE, "query has 8 dimensions and must have 2 to 7");
}

static void test_attention_modules_refuse(void **state) {
    (void)state;
    nd_key key = nd_key_new(1);
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    assert_null(nd_attention_module(key, 6, 4, true, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT,
                  "attention_module: size 6 does not divide into 4 heads");
    assert_null(nd_attention_module(key, 0, 1, true, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "attention_module: size 0");
    assert_null(nd_attention_module(key, 6, 0, true, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT,
                  "attention_module: size 6 does not divide into 0 heads");
    assert_null(nd_attention_module(key, INT64_MAX, 1, true, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "attention_module: size 9223372036854775807");
    options.dropout = 1.5;
    assert_null(nd_attention_module(key, 6, 2, true, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "attention_module: ");
    options.dropout = 0;
    options.scale = INFINITY;
    assert_null(nd_attention_module(key, 6, 2, true, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "attention_module: scale is inf");
    options.version = 0;
    assert_null(nd_attention_module(key, 6, 2, true, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "attention_module: ");
    nd_auto nd_module *net = nd_attention_module(key, 6, 2, true, NULL);
    nd_auto nd_module *relu = nd_relu_module();
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3, 6), ND_F32);
    nd_auto nd_tensor *row = nd_ones(ND_SHAPE(6), ND_F32);
    nd_auto nd_tensor *wide = nd_ones(ND_SHAPE(3, 7), ND_F32);
    assert_null(nd_attention_module_run(NULL, x, NULL, NULL, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "attention_module_run: ");
    assert_null(nd_attention_module_run(relu, x, NULL, NULL, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "the module is a relu and must be an attention");
    assert_null(nd_attention_module_run(net, NULL, x, x, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "attention_module_run: query is NULL");
    assert_null(nd_attention_module_run(net, x, row, NULL, NULL));
    assert_failed(ND_ERROR_SHAPE, "attention_module_run: key has 1 dimensions");
    assert_null(nd_module_forward(net, row));
    assert_failed(ND_ERROR_SHAPE, "attention_module: query has 1 dimensions");
    assert_null(nd_module_forward(net, wide));
    assert_failed(ND_ERROR_SHAPE, "linear: ");
    nd_close((void *)(uintptr_t)nd_module_get_parameter(net, "in_proj_bias"));
    assert_null(nd_module_forward(net, x));
    assert_failed(ND_ERROR_CLOSED, "attention_module: in_proj_bias, a tensor of shape [18]");
    nd_close(net);
    assert_null(nd_attention_module_run(net, x, NULL, NULL, NULL));
    assert_failed(ND_ERROR_CLOSED, "attention_module_run: ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_modules_compute_what_pytorch_computes),
        ND_TEST(test_parameters_are_drawn_from_the_key),
        ND_TEST(test_dropout_follows_the_mode),
        ND_TEST(test_leading_axes_are_a_batch),
        ND_TEST(test_attention_modules_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
