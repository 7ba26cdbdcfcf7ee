// Layers that depend on the mode or have buffers, against the operations that they call.
#include "tests/unit/io/files.h"

#include <math.h>

static void assert_same_bits(const nd_tensor *a, const nd_tensor *b) {
    assert_true(a && b);
    assert_int_equal(nd_get_numel(a), nd_get_numel(b));
    assert_memory_equal(nd_get_data(a), nd_get_data(b), (size_t)nd_get_numel(a) * sizeof(float));
}

static void test_dropout_draws_another_key_at_each_call(void **state) {
    (void)state;
    nd_auto nd_module *a = nd_dropout_module(nd_key_new(3), 0.5);
    nd_auto nd_module *b = nd_dropout_module(nd_key_new(3), 0.5);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(100), ND_F32);
    nd_auto nd_tensor *first = nd_module_forward(a, x);
    nd_auto nd_tensor *second = nd_module_forward(a, x);
    nd_auto nd_tensor *same = nd_module_forward(b, x);
    assert_same_bits(first, same);
    assert_true(memcmp(nd_get_data(first), nd_get_data(second), 400) != 0);
    assert_ok(nd_module_set_training(a, false));
    nd_auto nd_tensor *whole = nd_module_forward(a, x);
    assert_same_bits(whole, x);
    assert_null(nd_dropout_module(nd_key_new(3), 1.5));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "p is 1.5");
    nd_auto nd_module *keyless = nd_relu_module();
    nd_key key;
    assert_int_equal(nd_module_next_key(keyless, &key), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "has no key");
}

/// A module's answer, where it is refused so often before: in a manager of a quota that grows until it
/// fits. By `run`, with nd_checkpoint_module() or without.
static nd_tensor *answer_after_refusals(const nd_module *module, const nd_tensor *x,
                                        nd_tensor *(*run)(const nd_module *, const nd_tensor *),
                                        int *ret_refusals) {
    nd_auto nd_manager *manager = nd_manager_new(NULL, "tight");
    nd_tensor *answer = NULL;
    nd_with_manager(manager) {
        for (uint64_t quota = 1; !answer && quota < 1 << 20; quota += 512) {
            assert_ok(nd_manager_set_quota(manager, ND_CPU, quota));
            answer = run(module, x);
            if (!answer)
                assert_failed(ND_ERROR_QUOTA, "do not fit");
            *ret_refusals += answer == NULL;
        }
    }
    assert_ok(nd_manager_close(manager, NULL));
    return answer;
}

static nd_tensor *attend_to_itself(const nd_module *module, const nd_tensor *x) {
    return nd_attention_module_run(module, x, x, x, NULL);
}

/// Whatever a refused call had drawn, the next one draws the same.
static void test_a_refused_forward_draws_no_key(void **state) {
    (void)state;
    nd_recurrent_options two_layers = ND_RECURRENT_OPTIONS_INIT;
    two_layers.layers = 2;
    two_layers.dropout = 0.5;
    nd_attention_options dropping = ND_ATTENTION_OPTIONS_INIT;
    dropping.dropout = 0.5;
    nd_auto nd_tensor *x = nd_randn(nd_key_new(1), ND_SHAPE(16, 3, 8), ND_F32);
    for (int kind = 0; kind < 6; kind++) {
        nd_module *pair[2];
        for (int i = 0; i < 2; i++)
            pair[i] = kind % 3 == 0   ? nd_dropout_module(nd_key_new(3), 0.5)
                      : kind % 3 == 1 ? nd_gru_module(nd_key_new(3), 8, 8, true, &two_layers)
                                      : nd_attention_module(nd_key_new(3), 8, 2, true, &dropping);
        nd_tensor *(*run)(const nd_module *, const nd_tensor *) = kind >= 3 ? nd_checkpoint_module
                                                                  : kind % 3 == 2
                                                                      ? attend_to_itself
                                                                      : nd_module_forward;
        int refusals = 0;
        for (int turn = 0; turn < 2; turn++) {
            nd_auto nd_tensor *undisturbed = run(pair[0], x);
            nd_auto nd_tensor *retried = answer_after_refusals(pair[1], x, run, &refusals);
            assert_same_bits(undisturbed, retried);
        }
        assert_true(refusals > 1);
        nd_release(pair[0]);
        nd_release(pair[1]);
    }
}

static void test_norms_and_embedding_are_their_operations(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_randn(nd_key_new(1), ND_SHAPE(6, 4), ND_F32);
    nd_auto nd_module *batch = nd_batch_norm_module(4, NULL);
    nd_auto nd_tensor *mean = nd_zeros(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *var = nd_ones(ND_SHAPE(4), ND_F32);
    nd_batch_norm_options options = ND_BATCH_NORM_OPTIONS_INIT;
    for (int training = 1; training >= 0; training--) {
        options.training = training;
        assert_ok(nd_module_set_training(batch, training));
        nd_auto nd_tensor *y = nd_module_forward(batch, x);
        nd_auto nd_tensor *expected =
            nd_batch_norm(x, nd_module_get_parameter(batch, "weight"),
                          nd_module_get_parameter(batch, "bias"), mean, var, &options);
        assert_handle(y);
        assert_same_bits(y, expected);
        assert_same_bits(nd_module_get_buffer(batch, "running_mean"), mean);
        assert_same_bits(nd_module_get_buffer(batch, "running_var"), var);
    }
    nd_auto nd_module *layer = nd_layer_norm_module(1e-5, ND_SHAPE(4));
    nd_auto nd_tensor *layered = nd_module_forward(layer, x);
    nd_auto nd_tensor *by_layer = nd_layer_norm(x, NULL, NULL, 1e-5, 1);
    assert_handle(layered);
    assert_same_bits(layered, by_layer);
    nd_auto nd_module *rms = nd_rms_norm_module(1e-5, ND_SHAPE(4));
    nd_auto nd_tensor *rooted = nd_module_forward(rms, x);
    nd_auto nd_tensor *by_root = nd_rms_norm(x, NULL, 1e-5, 1);
    assert_handle(rooted);
    assert_same_bits(rooted, by_root);
    assert_int_equal(nd_module_get_parameter_count(rms), 1);
    nd_auto nd_module *table = nd_embedding_module(nd_key_new(2), 7, 3, -1);
    nd_auto nd_tensor *indices = nd_from_data((int64_t[]){6, 0, 2}, ND_SHAPE(3), ND_I64);
    nd_auto nd_tensor *rows = nd_module_forward(table, indices);
    assert_handle(rows);
    for (int i = 0; i < 3; i++)
        assert_true(((float *)nd_get_data(rows))[i] == 0);
    assert_true(((float *)nd_get_data(rows))[3] != 0);
    assert_null(nd_embedding_module(nd_key_new(2), 7, 3, 7));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "padding is 7, outside -7 ... 6");
    assert_null(nd_embedding_module(nd_key_new(2), 0, 3, ND_NO_PADDING));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "a table of 0 rows of 3; both must be at least 1");
    assert_null(nd_batch_norm_module(0, NULL));
    assert_null(nd_layer_norm_module(1e-5, 1, (int64_t[]){-1}));
    nd_error_clear();
}

/// The same weights and biases, which are neither ones nor zeros, for both.
static void numbers(const nd_module *one, const nd_module *other) {
    const char *const names[] = {"weight", "bias"};
    for (int which = 0; which < 2; which++) {
        float *a = nd_get_data(nd_module_get_parameter(one, names[which]));
        float *b = nd_get_data(nd_module_get_parameter(other, names[which]));
        for (int i = 0; i < 6; i++)
            a[i] = b[i] = (float)(which ? 3 - i : 2 * i + 1) / 4;
    }
}

static void assert_scale(const nd_module *module, int64_t channels) {
    assert_int_equal(nd_module_get_parameter_count(module), 2);
    assert_int_equal(nd_module_get_buffer_count(module), 0);
    nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(channels), ND_F32);
    nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(channels), ND_F32);
    assert_same_bits(nd_module_get_parameter(module, "weight"), ones);
    assert_same_bits(nd_module_get_parameter(module, "bias"), zeros);
}

static nd_module *make_group(int which) {
    return nd_group_norm_module(1 + which, 4, 1e-5);
}
static nd_module *make_instance(int which) {
    (void)which;
    return nd_instance_norm_module(4, NULL);
}
static nd_module *make_layer(int which) {
    return nd_layer_norm_module(1e-5, 1 + which, (const int64_t[]){4, 4});
}
static nd_module *make_batch(int which) {
    (void)which;
    return nd_batch_norm_module(4, NULL);
}
static nd_module *make_rms(int which) {
    return nd_rms_norm_module(1e-5, 1 + which, (const int64_t[]){4, 4});
}

static void test_norms_of_samples_are_their_operations(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_randn(nd_key_new(1), ND_SHAPE(2, 6, 3, 5), ND_F32);
    nd_batch_norm_options options = ND_BATCH_NORM_OPTIONS_INIT;
    options.epsilon = 1e-3;
    options.momentum = 2; // says nothing
    nd_auto nd_module *instance = nd_instance_norm_module(6, &options);
    nd_auto nd_module *group = nd_group_norm_module(3, 6, 1e-3);
    assert_scale(instance, 6);
    assert_scale(group, 6);
    numbers(instance, group);
    const nd_tensor *weight = nd_module_get_parameter(group, "weight");
    const nd_tensor *bias = nd_module_get_parameter(group, "bias");
    options.momentum = 0;
    nd_auto nd_tensor *by_instance = nd_instance_norm(x, weight, bias, NULL, NULL, &options);
    nd_auto nd_tensor *by_group = nd_group_norm(x, weight, bias, 3, 1e-3);
    for (int training = 1; training >= 0; training--) {
        assert_ok(nd_module_set_training(instance, training));
        nd_auto nd_tensor *y = nd_module_forward(instance, x);
        nd_auto nd_tensor *z = nd_module_forward(group, x);
        assert_handle(y);
        assert_handle(z);
        assert_same_bits(y, by_instance);
        assert_same_bits(z, by_group);
    }
    assert_null(nd_instance_norm_module(0, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "instance_norm_module: 0 channels");
    assert_null(nd_group_norm_module(1, 0, 1e-5));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "group_norm_module: 0 channels");
    assert_null(nd_group_norm_module(4, 6, 1e-5));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "group_norm_module: 6 channels in 4 groups");
    assert_null(nd_group_norm_module(0, 6, 1e-5));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "group_norm_module: 6 channels in 0 groups");
    assert_null(nd_group_norm_module(2, 6, -1));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "group_norm_module: epsilon is -1");
    options.epsilon = NAN;
    assert_null(nd_instance_norm_module(6, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "instance_norm_module: epsilon is ");
}

/// In a block of autocast a norm's result is f32, and the next one's weight and running statistics may be
/// of 16 bits.
static void test_norms_of_halves_follow_each_other_under_autocast(void **state) {
    (void)state;
    nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(2, 4, 4), ND_BF16);
    nd_module *(*const makers[])(int) = {make_group, make_instance, make_layer, make_rms,
                                         make_batch};
    for (size_t i = 0; i < sizeof makers / sizeof *makers; i++) {
        nd_auto nd_module *net = ND_SEQUENTIAL(makers[i](0), makers[i](1));
        assert_ok(nd_module_cast(net, ND_BF16));
        nd_auto nd_tensor *outside = nd_module_forward(net, ones);
        assert_handle(outside);
        assert_int_equal(nd_get_dtype(outside), ND_BF16);
        nd_tensor *inside = NULL;
        nd_autocast(ND_BF16) inside = nd_module_forward(net, ones);
        assert_handle(inside);
        assert_int_equal(nd_get_dtype(inside), ND_F32);
        nd_auto nd_tensor *sum = nd_sum(inside, 0, NULL, false);
        assert_ok(nd_backward(sum, NULL));
        for (size_t k = 0; k < nd_module_get_parameter_count(net); k++)
            assert_int_equal(nd_get_dtype(nd_get_grad(nd_module_get_parameter_at(net, k, NULL))),
                             ND_BF16);
        for (size_t k = 0; k < nd_module_get_buffer_count(net); k++)
            assert_int_equal(nd_get_dtype(nd_module_get_buffer_at(net, k, NULL)), ND_BF16);
        nd_release(inside);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_dropout_draws_another_key_at_each_call),
        ND_TEST(test_a_refused_forward_draws_no_key),
        ND_TEST(test_norms_and_embedding_are_their_operations),
        ND_TEST(test_norms_of_samples_are_their_operations),
        ND_TEST(test_norms_of_halves_follow_each_other_under_autocast),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
