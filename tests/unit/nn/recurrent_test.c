// Recurrent nets as modules: the names and shapes of their weights, which are PyTorch's, what they
// compute, dropout by the mode, what is refused.
#include "tests/unit/io/files.h"

#include <math.h>

typedef nd_module *maker(nd_key key, int64_t in, int64_t size, bool bias,
                         const nd_recurrent_options *options);

static void assert_same_bits(const nd_tensor *a, const nd_tensor *b) {
    assert_true(a && b);
    assert_int_equal(nd_get_numel(a), nd_get_numel(b));
    assert_memory_equal(nd_get_data(a), nd_get_data(b), (size_t)nd_get_numel(a) * sizeof(float));
}

static void assert_parameter(const nd_module *module, size_t index, const char *name, int64_t rows,
                             int64_t columns, double bound) {
    const char *found = NULL;
    const nd_tensor *parameter = nd_module_get_parameter_at(module, index, &found);
    assert_string_equal(found, name);
    assert_int_equal(nd_get_ndim(parameter), columns ? 2 : 1);
    assert_int_equal(nd_get_size(parameter, 0), rows);
    assert_true(!columns || nd_get_size(parameter, 1) == columns);
    const float *values = nd_get_data(parameter);
    double largest = 0;
    for (int64_t i = 0; i < nd_get_numel(parameter); i++)
        largest = fmax(largest, fabs(values[i]));
    assert_true(largest <= bound + 1e-6 && largest > 0.8 * bound);
}

/// Those of torch.nn.LSTM(5, 16, num_layers=2, bidirectional=True).state_dict().
static void test_weights_are_named_as_in_pytorch(void **state) {
    (void)state;
    static const char *const names[] = {
        "weight_ih_l0",         "weight_hh_l0",         "bias_ih_l0",         "bias_hh_l0",
        "weight_ih_l0_reverse", "weight_hh_l0_reverse", "bias_ih_l0_reverse", "bias_hh_l0_reverse",
        "weight_ih_l1",         "weight_hh_l1",         "bias_ih_l1",         "bias_hh_l1",
        "weight_ih_l1_reverse", "weight_hh_l1_reverse", "bias_ih_l1_reverse", "bias_hh_l1_reverse",
    };
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.layers = 2;
    options.bidirectional = true;
    nd_auto nd_module *net = nd_lstm_module(nd_key_new(1), 5, 16, true, &options);
    assert_int_equal(nd_module_get_parameter_count(net), 16);
    for (size_t i = 0; i < 16; i++) {
        int64_t columns = i % 4 > 1 ? 0 : i % 4 == 1 ? 16 : i < 8 ? 5 : 32;
        assert_parameter(net, i, names[i], 64, columns, 0.25);
    }
    nd_auto nd_module *same = nd_lstm_module(nd_key_new(1), 5, 16, true, &options);
    nd_auto nd_module *other = nd_lstm_module(nd_key_new(2), 5, 16, true, &options);
    for (size_t i = 0; i < 16; i++) {
        const nd_tensor *parameter = nd_module_get_parameter_at(net, i, NULL);
        assert_same_bits(parameter, nd_module_get_parameter_at(same, i, NULL));
        for (size_t k = 0; k < 32; k++) {
            const nd_tensor *another =
                nd_module_get_parameter_at(k < 16 ? net : other, k % 16, NULL);
            assert_true(k == i || memcmp(nd_get_data(parameter), nd_get_data(another), 64) != 0);
        }
    }
}

/// All parameters of a module, as an operation takes them.
static size_t weights_of(const nd_module *module, const nd_tensor **ret_weights) {
    size_t count = nd_module_get_parameter_count(module);
    for (size_t i = 0; i < count; i++)
        ret_weights[i] = nd_module_get_parameter_at(module, i, NULL);
    return count;
}

static void test_modules_compute_their_operation(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_randn(nd_key_new(3), ND_SHAPE(2, 7, 5), ND_F32);
    nd_auto nd_tensor *hidden = nd_randn(nd_key_new(4), ND_SHAPE(4, 2, 6), ND_F32);
    nd_auto nd_tensor *cell = nd_randn(nd_key_new(5), ND_SHAPE(4, 2, 6), ND_F32);
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.layers = 2;
    options.bidirectional = options.batch_first = options.relu = true;
    for (int which = 0; which < 6; which++) {
        maker *const makers[] = {nd_rnn_module, nd_gru_module, nd_lstm_module};
        bool lstm = which / 2 == 2;
        nd_auto nd_module *net = makers[which / 2](nd_key_new(6), 5, 6, which % 2, &options);
        const nd_tensor *weights[16];
        size_t count = weights_of(net, weights);
        assert_int_equal(count, which % 2 ? 16 : 8);
        nd_tensor *expected[3] = {0}, *found[3] = {0};
        if (lstm)
            assert_ok(nd_lstm(x, hidden, cell, count, weights, &options, &expected[0], &expected[1],
                              &expected[2]));
        else
            assert_ok((which / 2 ? nd_gru : nd_rnn)(x, hidden, count, weights, &options,
                                                    &expected[0], &expected[1]));
        assert_ok(nd_recurrent_module_run(net, x, hidden, lstm ? cell : NULL, &found[0], &found[1],
                                          lstm ? &found[2] : NULL));
        for (int i = 0; i < (lstm ? 3 : 2); i++) {
            assert_same_bits(found[i], expected[i]);
            nd_release(found[i]);
            nd_release(expected[i]);
        }
        // From zeros, the output alone; with gradients.
        nd_tensor *from_zeros = NULL;
        assert_ok(nd_recurrent_module_run(net, x, NULL, NULL, &from_zeros, NULL, NULL));
        nd_auto nd_tensor *y = nd_module_forward(net, x);
        assert_same_bits(y, from_zeros);
        nd_release(from_zeros);
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        assert_ok(nd_backward(loss, NULL));
        for (size_t i = 0; i < count; i++)
            assert_non_null(nd_get_grad(weights[i]));
    }
}

static void test_dropout_between_layers_follows_the_mode(void **state) {
    (void)state;
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.layers = 2;
    options.dropout = 0.5;
    nd_auto nd_module *net = nd_gru_module(nd_key_new(7), 5, 6, true, &options);
    nd_auto nd_module *same = nd_gru_module(nd_key_new(7), 5, 6, true, &options);
    nd_auto nd_tensor *x = nd_randn(nd_key_new(3), ND_SHAPE(7, 2, 5), ND_F32);
    nd_auto nd_tensor *first = nd_module_forward(net, x);
    nd_auto nd_tensor *second = nd_module_forward(net, x);
    nd_auto nd_tensor *again = nd_module_forward(same, x);
    assert_same_bits(first, again);
    assert_true(memcmp(nd_get_data(first), nd_get_data(second), 84 * sizeof(float)) != 0);
    assert_ok(nd_module_set_training(net, false));
    nd_auto nd_tensor *whole = nd_module_forward(net, x);
    nd_auto nd_tensor *whole_again = nd_module_forward(net, x);
    assert_same_bits(whole, whole_again);
    assert_true(memcmp(nd_get_data(first), nd_get_data(whole), 84 * sizeof(float)) != 0);
}

static void test_recurrent_modules_refuse(void **state) {
    (void)state;
    nd_key key = nd_key_new(1);
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    assert_null(nd_rnn_module(key, 0, 3, true, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "rnn_module: 0 inputs and a state of 3");
    assert_null(nd_lstm_module(key, 3, INT64_MAX / 4, true, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "lstm_module: 3 inputs and a state of");
    options.layers = 0;
    assert_null(nd_gru_module(key, 3, 3, true, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "gru_module: layers is 0");
    options.layers = 1;
    options.dropout = 1.5;
    assert_null(nd_gru_module(key, 3, 3, true, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "gru_module: ");
    nd_auto nd_module *gru = nd_gru_module(key, 3, 4, true, NULL);
    nd_auto nd_module *relu = nd_relu_module();
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(5, 2, 3), ND_F32);
    nd_auto nd_tensor *cell = nd_ones(ND_SHAPE(1, 2, 4), ND_F32);
    nd_tensor *y = NULL;
    assert_int_equal(nd_recurrent_module_run(NULL, x, NULL, NULL, &y, NULL, NULL),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "recurrent_module_run: ");
    assert_int_equal(nd_recurrent_module_run(relu, x, NULL, NULL, &y, NULL, NULL),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "the module is a relu");
    assert_int_equal(nd_recurrent_module_run(gru, x, NULL, cell, &y, NULL, NULL),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "a cell was given, which a module gru has not");
    assert_int_equal(nd_recurrent_module_run(gru, x, NULL, NULL, NULL, NULL, NULL),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "gru: ret_output is NULL");
    assert_null(nd_module_forward(gru, cell));
    assert_failed(ND_ERROR_SHAPE,
                  "gru: weights[0], the input weight of layer 0, has shape [12, 3]");
    assert_null(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_weights_are_named_as_in_pytorch),
        ND_TEST(test_modules_compute_their_operation),
        ND_TEST(test_dropout_between_layers_follows_the_mode),
        ND_TEST(test_recurrent_modules_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
