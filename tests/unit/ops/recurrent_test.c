// Recurrent nets against PyTorch and against differences; layers, directions and dropout; what is
// refused.
#include "tests/unit/ops/torch_case.h"

/// All results in one row; NULL when the status is an error.
static nd_tensor *in_a_row(nd_status status, size_t count, nd_tensor *const *results) {
    nd_tensor *flat[3] = {0};
    assert_ok(status);
    for (size_t i = 0; i < count; i++)
        flat[i] = nd_flatten(results[i], 0);
    nd_tensor *row = nd_concat(count, (const nd_tensor *const *)flat, 0);
    for (size_t i = 0; i < count; i++) {
        nd_release(flat[i]);
        nd_release(results[i]);
    }
    return row;
}

TORCH_FUNCTION(rnn) {
    (void)data;
    nd_tensor *y[2] = {0};
    nd_status status = nd_rnn(x[0], x[1], count - 2, x + 2, NULL, &y[0], &y[1]);
    return in_a_row(status, 2, y);
}
TORCH_FUNCTION(rnn_relu) {
    (void)data;
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.relu = options.batch_first = true;
    nd_tensor *y[2] = {0};
    nd_status status = nd_rnn(x[0], x[1], count - 2, x + 2, &options, &y[0], &y[1]);
    return in_a_row(status, 2, y);
}
TORCH_FUNCTION(lstm) {
    (void)data;
    nd_tensor *y[3] = {0};
    nd_status status = nd_lstm(x[0], x[1], x[2], count - 3, x + 3, NULL, &y[0], &y[1], &y[2]);
    return in_a_row(status, 3, y);
}
TORCH_FUNCTION(lstm_deep) {
    (void)data;
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.layers = 2;
    options.bidirectional = true;
    nd_tensor *y[3] = {0};
    nd_status status = nd_lstm(x[0], NULL, NULL, count - 1, x + 1, &options, &y[0], &y[1], &y[2]);
    return in_a_row(status, 3, y);
}
TORCH_FUNCTION(gru) {
    (void)data;
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.bidirectional = options.batch_first = true;
    nd_tensor *y[2] = {0};
    nd_status status = nd_gru(x[0], x[1], count - 2, x + 2, &options, &y[0], &y[1]);
    return in_a_row(status, 2, y);
}

static void test_recurrent_nets_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(rnn, 6, {3, {3, 2, 2}}, {3, {1, 2, 3}}, {2, {3, 2}}, {2, {3, 3}}, {1, {3}},
                   {1, {3}}),
        TORCH_CASE(rnn_relu, 4, {3, {2, 3, 2}}, {3, {1, 2, 2}}, {2, {2, 2}}, {2, {2, 2}}),
        TORCH_CASE(lstm, 7, {3, {3, 2, 2}}, {3, {1, 2, 2}}, {3, {1, 2, 2}}, {2, {8, 2}},
                   {2, {8, 2}}, {1, {8}}, {1, {8}}),
        TORCH_CASE(lstm_deep, 9, {3, {3, 1, 1}}, {2, {8, 1}}, {2, {8, 2}}, {2, {8, 1}}, {2, {8, 2}},
                   {2, {8, 4}}, {2, {8, 2}}, {2, {8, 4}}, {2, {8, 2}}),
        TORCH_CASE(gru, 10, {3, {2, 3, 2}}, {3, {2, 2, 2}}, {2, {6, 2}}, {2, {6, 2}}, {1, {6}},
                   {1, {6}}, {2, {6, 2}}, {2, {6, 2}}, {1, {6}}, {1, {6}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

/// As of nd_relu(): nothing comes back where it gives 0, a NaN neither, and all of it elsewhere.
static void test_nothing_comes_back_where_relu_is_off(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const nd_dtype dtype = i ? ND_F64 : ND_F32;
        const double values[] = {-1, 2, -3, 4}, nan[] = {NAN, NAN, 5, 6};
        nd_auto nd_tensor *x_wide = nd_from_data(values, ND_SHAPE(4, 1), ND_F64);
        nd_auto nd_tensor *x = nd_cast(x_wide, dtype);
        nd_auto nd_tensor *grad_wide = nd_from_data(nan, ND_SHAPE(4, 1), ND_F64);
        nd_auto nd_tensor *grad = nd_cast(grad_wide, dtype);
        nd_auto nd_tensor *one = nd_ones(ND_SHAPE(1, 1), dtype);
        nd_auto nd_tensor *zero = nd_zeros(ND_SHAPE(1, 1), dtype);
        assert_ok(nd_set_requires_grad(x, true));
        // Every row a sequence of its own: no gradient of a state passes between them.
        nd_auto nd_tensor *rows = nd_reshape(x, 3, (const int64_t[]){1, 4, 1});
        nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
        options.relu = true;
        nd_tensor *output = NULL;
        const nd_tensor *weights[] = {one, zero};
        assert_ok(nd_rnn(rows, NULL, 2, weights, &options, &output, NULL));
        nd_auto nd_tensor *flat = nd_reshape(output, 2, (const int64_t[]){4, 1});
        nd_backward_options backward = ND_BACKWARD_OPTIONS_INIT;
        backward.grad = grad;
        assert_ok(nd_backward(flat, &backward));
        nd_auto nd_tensor *wide = nd_cast(nd_get_grad(x), ND_F64);
        const double *got = nd_get_data(wide);
        assert_true(got[0] == 0 && isnan(got[1]) && got[2] == 0 && got[3] == 6);
        nd_release(output);
    }
}

/// Input and state weights of two layers of a GRU: of 2 and 3 numbers.
typedef struct two_layers {
    nd_tensor *at[4];
} two_layers;

static two_layers make_layers(void) {
    return (two_layers){{wave(1, ND_SHAPE(9, 2)), wave(2, ND_SHAPE(9, 3)), wave(3, ND_SHAPE(9, 3)),
                         wave(4, ND_SHAPE(9, 3))}};
}

static void release_layers(two_layers *layers) {
    for (int i = 0; i < 4; i++)
        nd_release(layers->at[i]);
}

#define GRU_WEIGHTS(layers) 4, (const nd_tensor *const *)(layers).at

/// A sequence without a batch is a batch of one.
static void test_recurrent_net_without_batch(void **state) {
    (void)state;
    two_layers layers = make_layers();
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.layers = 2;
    nd_auto nd_tensor *x = wave(0, ND_SHAPE(5, 2));
    nd_auto nd_tensor *wide = nd_unsqueeze(x, 1);
    nd_auto nd_tensor *y = NULL;
    nd_auto nd_tensor *h = NULL;
    nd_auto nd_tensor *batch_y = NULL;
    assert_ok(nd_gru(x, NULL, GRU_WEIGHTS(layers), &options, &y, &h));
    assert_ok(nd_gru(wide, NULL, GRU_WEIGHTS(layers), &options, &batch_y, NULL));
    assert_shape(y, ND_SHAPE(5, 3));
    assert_shape(h, ND_SHAPE(2, 3));
    assert_shape(batch_y, ND_SHAPE(5, 1, 3));
    for (int64_t i = 0; i < 15; i++)
        assert_true(at_flat(y, i) == at_flat(batch_y, i));
    // The last state of the last layer is its last output, and a sequence can be gone on with.
    nd_auto nd_tensor *head = nd_slice(x, 0, 2, 1, 0);
    nd_auto nd_tensor *tail = nd_slice(x, 2, 5, 1, 0);
    nd_auto nd_tensor *head_y = NULL;
    nd_auto nd_tensor *between = NULL;
    nd_auto nd_tensor *tail_y = NULL;
    assert_ok(nd_gru(head, NULL, GRU_WEIGHTS(layers), &options, &head_y, &between));
    assert_ok(nd_gru(tail, between, GRU_WEIGHTS(layers), &options, &tail_y, NULL));
    for (int64_t i = 0; i < 3; i++)
        assert_true(at_flat(h, 3 + i) == at_flat(y, 12 + i));
    for (int64_t i = 0; i < 9; i++)
        assert_close("went on", at_flat(tail_y, i), at_flat(y, 6 + i), 1e-14, 1e-14);
    release_layers(&layers);
}

static void test_recurrent_dropout(void **state) {
    (void)state;
    two_layers layers = make_layers();
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    options.layers = 2;
    options.dropout = 1;
    nd_auto nd_tensor *x = wave(0, ND_SHAPE(4, 2));
    nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(4, 3), ND_F64);
    nd_auto nd_tensor *kept = NULL;
    nd_auto nd_tensor *dropped = NULL;
    nd_auto nd_tensor *upper = NULL;
    assert_ok(nd_gru(x, NULL, GRU_WEIGHTS(layers), &options, &kept, NULL));
    options.training = true;
    assert_ok(nd_gru(x, NULL, GRU_WEIGHTS(layers), &options, &dropped, NULL));
    // With everything dropped the second layer runs on nothing.
    options.layers = 1;
    assert_ok(
        nd_gru(zeros, NULL, 2, (const nd_tensor *const *)layers.at + 2, &options, &upper, NULL));
    bool differs = false;
    for (int64_t i = 0; i < 12; i++) {
        assert_true(at_flat(dropped, i) == at_flat(upper, i));
        differs = differs || at_flat(kept, i) != at_flat(dropped, i);
    }
    assert_true(differs);
    release_layers(&layers);
}

static void test_recurrent_nets_refuse(void **state) {
    (void)state;
    two_layers layers = make_layers();
    nd_auto nd_tensor *x = wave(0, ND_SHAPE(4, 2));
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0, 2), ND_F64);
    nd_auto nd_tensor *number = nd_scalar(1, ND_F64);
    nd_auto nd_tensor *narrow = nd_zeros(ND_SHAPE(4, 2), ND_F32);
    nd_tensor *y = NULL;
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    struct {
        const nd_tensor *x, *hidden;
        size_t count;
        int64_t layers;
        nd_status status;
        const char *says;
    } refused[] = {
        {NULL, NULL, 2, 1, ND_ERROR_INVALID_ARGUMENT, "gru: x is NULL"},
        {number, NULL, 2, 1, ND_ERROR_SHAPE, "gru: x has shape [] and must be [t, n, in]"},
        {none, NULL, 2, 1, ND_ERROR_SHAPE, "gru: x has shape [0, 2], a sequence without steps"},
        {narrow, NULL, 2, 1, ND_ERROR_DTYPE, "gru: a weight is float64 and x float32"},
        {x, NULL, 3, 1, ND_ERROR_INVALID_ARGUMENT, "gru: 3 weights; 2, or 4 with biases"},
        {x, NULL, 4, 1, ND_ERROR_SHAPE,
         "gru: weights[2], the input bias of layer 0, has shape [9, 3] and must have [9]"},
        {x, NULL, 2, 0, ND_ERROR_INVALID_ARGUMENT, "gru: layers is 0"},
        {x, x, 2, 1, ND_ERROR_SHAPE, "gru: hidden has shape [4, 2] and must have [1, 3]"},
    };
    for (size_t i = 0; i < COUNT_OF(refused); i++) {
        options.layers = refused[i].layers;
        nd_error_clear();
        nd_status status = nd_gru(refused[i].x, refused[i].hidden, refused[i].count,
                                  (const nd_tensor *const *)layers.at, &options, &y, NULL);
        if (status != refused[i].status ||
            strncmp(nd_error_get_message(), refused[i].says, strlen(refused[i].says)))
            fail_msg("%s: %s", refused[i].says, nd_error_get_message());
        assert_null(y);
    }
    assert_status(nd_gru(x, NULL, 2, NULL, NULL, &y, NULL), ND_ERROR_INVALID_ARGUMENT);
    release_layers(&layers);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_nothing_comes_back_where_relu_is_off),
        ND_TEST(test_recurrent_nets_as_in_pytorch),
        ND_TEST(test_recurrent_net_without_batch),
        ND_TEST(test_recurrent_dropout),
        ND_TEST(test_recurrent_nets_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
