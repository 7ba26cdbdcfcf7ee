// Clipping, accumulation, moving averages, autocast, and optimizers of halves.
#include "tests/unit/io/files.h"
#include "tests/unit/nn/small_net.h"

#include <math.h>

/// The root of the sum of squares and the largest absolute value of all gradients.
static double norm_of(const nd_module *net, double *ret_largest) {
    double sum = 0, largest = 0;
    for (size_t i = 0; i < nd_module_get_parameter_count(net); i++) {
        const nd_tensor *grad = nd_get_grad(nd_module_get_parameter_at(net, i, NULL));
        for (int64_t k = 0; grad && k < nd_get_numel(grad); k++) {
            const double value = ((const float *)nd_get_data(grad))[k];
            sum += value * value;
            largest = fmax(largest, fabs(value));
        }
    }
    *ret_largest = largest;
    return sqrt(sum);
}

static void test_clipping_by_norm_and_by_value(void **state) {
    (void)state;
    nd_auto nd_module *net = new_net();
    double norm = -1, largest;
    assert_ok(nd_clip_grad_norm(net, 1, &norm)); // no gradients yet
    assert_true(norm == 0);
    backward(net, 5);
    const double before = norm_of(net, &largest);
    assert_ok(nd_clip_grad_norm(net, 2 * before, &norm));
    assert_true(fabs(norm - before) < 1e-6 * before);
    assert_true(norm_of(net, &largest) == before);
    assert_ok(nd_clip_grad_norm(net, before / 3, NULL));
    assert_true(fabs(norm_of(net, &largest) - before / 3) < 1e-6 * before);
    assert_ok(nd_clip_grad_value(net, largest / 2));
    const double half = largest / 2;
    norm_of(net, &largest);
    assert_true(fabs(largest - half) < 1e-6 * half);
    assert_int_equal(nd_clip_grad_norm(net, -1, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_clip_grad_value(net, NAN), ND_ERROR_INVALID_ARGUMENT);
    assert_int_not_equal(nd_clip_grad_norm(NULL, 1, NULL), ND_OK);
    nd_error_clear();
}

static void test_norms_beyond_the_squares_of_f32(void **state) {
    (void)state;
    nd_auto nd_module *net = new_net();
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "0.bias"));
    const double sizes[] = {1e30, 1e-30};
    for (int i = 0; i < 2; i++) {
        nd_auto nd_tensor *grad = nd_full(ND_SHAPE(8), sizes[i], ND_F32);
        assert_ok(nd_set_grad(weight, grad));
        double norm;
        assert_ok(nd_clip_grad_norm(net, sizes[i], &norm));
        assert_true(fabs(norm / sizes[i] - sqrt(8)) < 1e-5);
        assert_true(fabs(((const float *)nd_get_data(nd_get_grad(weight)))[3] / sizes[i] -
                         1 / sqrt(8)) < 1e-5);
        assert_true(((const float *)nd_get_data(grad))[3] == (float)sizes[i]); // not written
    }
    nd_auto nd_tensor *broken = nd_full(ND_SHAPE(8), NAN, ND_F32);
    assert_ok(nd_set_grad(weight, broken));
    double norm = 0;
    assert_ok(nd_clip_grad_norm(net, 1, &norm));
    assert_true(isnan(norm));
    assert_ptr_equal(nd_get_grad(weight), broken);
}

static void test_norms_beyond_the_squares_of_f64(void **state) {
    (void)state;
    nd_auto nd_module *net = nd_linear_module(nd_key_new(1), 1, 8, true);
    assert_ok(nd_module_cast(net, ND_F64));
    nd_auto nd_tensor *bias = nd_retain(nd_module_get_parameter(net, "bias"));
    const double sizes[] = {1e300, 1e-200, 1e-310, 2};
    for (int i = 0; i < 4; i++) {
        nd_auto nd_tensor *grad = nd_full(ND_SHAPE(8), sizes[i], ND_F64);
        assert_ok(nd_set_grad(bias, grad));
        double norm;
        assert_ok(nd_clip_grad_norm(net, sizes[i], &norm));
        assert_true(fabs(norm / sizes[i] - sqrt(8)) < 1e-9);
        const double *clipped = nd_get_data(nd_get_grad(bias));
        assert_true(fabs(clipped[3] / sizes[i] - 1 / sqrt(8)) < 1e-9);
    }
    nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(8), ND_F64);
    assert_ok(nd_set_grad(bias, zeros));
    double norm = 1;
    assert_ok(nd_clip_grad_norm(net, 0, &norm));
    assert_true(norm == 0);
    nd_auto nd_tensor *broken = nd_full(ND_SHAPE(8), INFINITY, ND_F64);
    assert_ok(nd_set_grad(bias, broken));
    assert_ok(nd_clip_grad_norm(net, 1, &norm));
    assert_true(isinf(norm));
    assert_ptr_equal(nd_get_grad(bias), broken);
}

/// Two halves of a batch, each loss divided by two, have the gradient of the whole.
static void test_gradients_accumulate(void **state) {
    (void)state;
    nd_auto nd_module *net = new_net();
    nd_auto nd_tensor *x = nd_randn(nd_key_new(3), ND_SHAPE(8, 4), ND_F32);
    nd_auto nd_tensor *labels = nd_randint(nd_key_new(4), 0, 3, ND_SHAPE(8), ND_I64);
    double whole[64], parts[64];
    for (int pieces = 1; pieces <= 2; pieces++) {
        assert_ok(nd_module_zero_grad(net));
        for (int piece = 0; piece < pieces; piece++) {
            const int64_t rows = 8 / pieces;
            nd_auto nd_tensor *some = nd_slice(x, piece * rows, (piece + 1) * rows, 1, 0);
            nd_auto nd_tensor *theirs = nd_slice(labels, piece * rows, (piece + 1) * rows, 1, 0);
            nd_auto nd_tensor *logits = nd_module_forward(net, some);
            nd_auto nd_tensor *loss = nd_cross_entropy(logits, theirs);
            nd_auto nd_tensor *part = nd_mul_scalar(loss, 1.0 / pieces);
            assert_ok(nd_backward(part, NULL));
        }
        const nd_tensor *grad = nd_get_grad(nd_module_get_parameter(net, "0.weight"));
        for (int i = 0; i < 32; i++)
            (pieces == 1 ? whole : parts)[i] = ((const float *)nd_get_data(grad))[i];
    }
    for (int i = 0; i < 32; i++)
        assert_true(fabs(whole[i] - parts[i]) < 1e-6);
}

static void test_moving_averages(void **state) {
    (void)state;
    nd_auto nd_module *net = new_net();
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "0.weight"));
    nd_auto nd_optimizer *optimizer = sgd_of(net, 0.5, 0, 0);
    nd_auto nd_ema *ema = nd_ema_new(net, 0.75);
    assert_handle(ema);
    double expected = ((float *)nd_get_data(weight))[5];
    for (int step = 0; step < 5; step++) {
        backward(net, (uint64_t)step);
        assert_ok(nd_optimizer_step(optimizer));
        assert_ok(nd_ema_update(ema));
        expected = 0.75 * expected + 0.25 * ((float *)nd_get_data(weight))[5];
    }
    const nd_tensor *average = nd_ema_get_average(ema, "0.weight");
    assert_true(fabs(((const float *)nd_get_data(average))[5] - expected) < 1e-6);
    nd_auto nd_tensor *before = nd_clone(weight);
    assert_int_equal(nd_ema_restore(ema), ND_ERROR_STATE);
    assert_ok(nd_ema_apply(ema));
    assert_memory_equal(nd_get_data(weight), nd_get_data(average), 32 * sizeof(float));
    assert_int_equal(nd_ema_update(ema), ND_ERROR_STATE);
    assert_int_equal(nd_ema_apply(ema), ND_ERROR_STATE);
    assert_ok(nd_ema_restore(ema));
    assert_memory_equal(nd_get_data(weight), nd_get_data(before), 32 * sizeof(float));
    assert_null(nd_ema_get_average(ema, "nothing"));
    assert_null(nd_ema_new(net, 1));
    nd_error_clear();
    // Averages and a scale in a file.
    const char *path = nd_test_path("averages.safetensors");
    nd_auto nd_ema *other = nd_ema_new(net, 0.75);
    nd_loss_scaler_options options = ND_LOSS_SCALER_OPTIONS_INIT;
    options.scale = 8;
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(&options);
    nd_auto nd_loss_scaler *another = nd_loss_scaler_new(NULL);
    nd_auto nd_state *saved = nd_state_new();
    nd_auto nd_state *loaded = nd_state_new();
    assert_ok(nd_state_add_ema(saved, "ema", ema));
    assert_ok(nd_state_add_ema(loaded, "ema", other));
    assert_ok(nd_state_add_loss_scaler(saved, "scaler", scaler));
    assert_ok(nd_state_add_loss_scaler(loaded, "scaler", another));
    assert_ok(nd_save_state(saved, path));
    assert_ok(nd_load_state(loaded, path));
    assert_memory_equal(nd_get_data(nd_ema_get_average(other, "0.weight")), nd_get_data(average),
                        32 * sizeof(float));
    assert_true(nd_loss_scaler_get_scale(another) == 8);
    assert_ok(nd_ema_apply(ema));
    assert_int_equal(nd_save_state(saved, path), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "'ema' are applied");
    assert_ok(nd_ema_restore(ema));
}

static void test_autocast_computes_products_in_a_half(void **state) {
    (void)state;
    nd_auto nd_module *net = nd_linear_module(nd_key_new(1), 4, 3, true);
    nd_auto nd_tensor *x = nd_randn(nd_key_new(3), ND_SHAPE(5, 4), ND_F32);
    nd_auto nd_tensor *exact = nd_module_forward(net, x);
    nd_auto nd_tensor *half = NULL;
    nd_auto nd_tensor *softmax = NULL;
    assert_int_equal(nd_get_autocast_dtype(), ND_F32);
    nd_autocast(ND_BF16) {
        assert_int_equal(nd_get_autocast_dtype(), ND_BF16);
        half = nd_module_forward(net, x);
        softmax = nd_softmax(half, 1);
        nd_autocast(ND_F32) {
            nd_auto nd_tensor *outside = nd_module_forward(net, x);
            assert_int_equal(nd_get_dtype(outside), ND_F32);
        }
    }
    assert_int_equal(nd_get_autocast_dtype(), ND_F32);
    assert_handle(half);
    assert_handle(softmax);
    assert_int_equal(nd_get_dtype(half), ND_BF16);
    assert_int_equal(nd_get_dtype(softmax), ND_F32);
    nd_auto nd_tensor *wide = nd_cast(half, ND_F32);
    double largest = 0;
    for (int i = 0; i < 15; i++)
        largest =
            fmax(largest, fabs(((float *)nd_get_data(wide))[i] - ((float *)nd_get_data(exact))[i]));
    assert_true(largest > 0 && largest < 0.05);
    nd_autocast(ND_I64) {
        assert_failed(ND_ERROR_DTYPE, "autocast");
    }
}

static void check_f32(nd_tensor *x) {
    assert_handle(x);
    assert_int_equal(nd_get_dtype(x), ND_F32);
    nd_release(x);
}

/// What needs the range of f32 gives it, whatever half comes in; what is made of products a half.
static void test_autocast_raises_norms_and_losses(void **state) {
    (void)state;
    const nd_reduction mean = ND_REDUCTION_MEAN;
    nd_auto nd_tensor *wide = nd_randn(nd_key_new(3), ND_SHAPE(4, 6), ND_F32);
    nd_auto nd_tensor *x = nd_cast(wide, ND_F16);
    nd_auto nd_tensor *labels = nd_randint(nd_key_new(4), 0, 6, ND_SHAPE(4), ND_I64);
    nd_auto nd_tensor *signs = nd_ones(ND_SHAPE(4), ND_F32);
    nd_autocast(ND_F16) {
        check_f32(nd_layer_norm(x, NULL, NULL, 1e-5, 1));
        check_f32(nd_rms_norm(x, NULL, 1e-5, 1));
        check_f32(nd_group_norm(x, NULL, NULL, 2, 1e-5));
        check_f32(nd_batch_norm(x, NULL, NULL, NULL, NULL, NULL));
        check_f32(nd_l1_loss(x, x, mean));
        check_f32(nd_smooth_l1_loss(x, x, 1, mean));
        check_f32(nd_huber_loss(x, x, 1, ND_REDUCTION_NONE));
        check_f32(nd_kl_div(x, x, true, mean));
        check_f32(nd_bce_with_logits(x, x, NULL, NULL, mean));
        check_f32(nd_nll_loss(x, labels, NULL, -100, mean));
        check_f32(nd_nll_loss(x, labels, NULL, -100, ND_REDUCTION_NONE));
        check_f32(nd_cross_entropy(x, labels));
        check_f32(nd_cross_entropy_with(x, labels, NULL, NULL));
        check_f32(nd_mse_loss(x, x));
        check_f32(nd_cosine_similarity(x, x, 1e-8, 1));
        check_f32(nd_cosine_embedding_loss(x, x, signs, 0, mean));
    }
    // Statistics of a module that was cast are of a half, be it another than x's.
    nd_auto nd_tensor *running_mean = nd_zeros(ND_SHAPE(6), ND_F16);
    nd_auto nd_tensor *running_var = nd_ones(ND_SHAPE(6), ND_F16);
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(6), ND_F16);
    nd_auto nd_tensor *y = nd_cast(wide, ND_BF16);
    nd_batch_norm_options options = ND_BATCH_NORM_OPTIONS_INIT;
    nd_autocast(ND_BF16) {
        check_f32(nd_batch_norm(y, weight, NULL, running_mean, running_var, NULL));
        options.training = true;
        check_f32(nd_batch_norm(y, weight, NULL, running_mean, running_var, &options));
    }
    nd_auto nd_tensor *moved = nd_cast(running_mean, ND_F32);
    nd_auto nd_tensor *expected = nd_mean(wide, 1, (const int[]){0}, false);
    for (int i = 0; i < 6; i++)
        assert_float_equal(((float *)nd_get_data(moved))[i],
                           0.1 * ((float *)nd_get_data(expected))[i], 1e-3);
    assert_null(nd_batch_norm(y, weight, NULL, NULL, NULL, NULL));
    assert_failed(ND_ERROR_DTYPE, "batch_norm: weight is float16 and x bfloat16");
    nd_auto nd_tensor *outside = nd_l1_loss(x, x, mean);
    assert_int_equal(nd_get_dtype(outside), ND_F16);
}

/// Beside the same in f32: the products are rounded, the dtypes are as promised.
static void test_autocast_of_attention_and_recurrent_nets(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_randn(nd_key_new(3), ND_SHAPE(2, 5, 4), ND_F32);
    nd_auto nd_tensor *exact = nd_attention(x, x, x, NULL, NULL);
    nd_auto nd_tensor *input_weight = nd_randn(nd_key_new(4), ND_SHAPE(9, 4), ND_F32);
    nd_auto nd_tensor *state_weight = nd_randn(nd_key_new(5), ND_SHAPE(9, 3), ND_F32);
    const nd_tensor *weights[] = {input_weight, state_weight};
    nd_recurrent_options options = ND_RECURRENT_OPTIONS_INIT;
    nd_tensor *out[2] = {0}, *hidden[2] = {0};
    assert_ok(nd_gru(x, NULL, 2, weights, &options, &out[0], &hidden[0]));
    nd_auto nd_tensor *half = NULL;
    nd_autocast(ND_BF16) {
        half = nd_attention(x, x, x, NULL, NULL);
        assert_ok(nd_gru(x, NULL, 2, weights, &options, &out[1], &hidden[1]));
    }
    assert_int_equal(nd_get_dtype(half), ND_BF16);
    assert_int_equal(nd_get_dtype(out[1]), ND_F32);
    assert_int_equal(nd_get_dtype(hidden[1]), ND_F32);
    nd_auto nd_tensor *back = nd_cast(half, ND_F32);
    const nd_tensor *pairs[][2] = {{exact, back}, {out[0], out[1]}, {hidden[0], hidden[1]}};
    for (int i = 0; i < 3; i++) {
        nd_auto nd_tensor *difference = nd_l1_loss(pairs[i][0], pairs[i][1], ND_REDUCTION_MEAN);
        assert_true(nd_get_item(difference) > 0 && nd_get_item(difference) < 0.02);
    }
    for (int i = 0; i < 2; i++) {
        nd_release(out[i]);
        nd_release(hidden[i]);
    }
}

/// A pass inside the block is the one outside: rules mix the dtypes of the forward pass as they say.
static void test_a_backward_pass_inside_autocast(void **state) {
    (void)state;
    nd_auto nd_tensor *seen = nd_randn(nd_key_new(3), ND_SHAPE(3, 3), ND_F32);
    assert_ok(nd_set_requires_grad(seen, true));
    nd_auto nd_tensor *product = nd_matmul(seen, seen);
    nd_auto nd_tensor *sum = nd_sum(product, 0, NULL, false);
    nd_tensor *outside = NULL, *inside = NULL, *first = NULL, *second = NULL;
    const nd_tensor *inputs[] = {seen};
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    assert_ok(nd_grad(sum, 1, inputs, &options, &outside));
    nd_autocast(ND_BF16) {
        assert_ok(nd_grad(sum, 1, inputs, &options, &inside));
        nd_auto nd_tensor *attended = nd_attention(seen, seen, seen, NULL, NULL);
        nd_auto nd_tensor *square = nd_square(attended);
        nd_auto nd_tensor *loss = nd_sum(square, 0, NULL, false);
        assert_ok(nd_grad(loss, 1, inputs, &options, &first));
        nd_auto nd_tensor *first_square = nd_square(first);
        nd_auto nd_tensor *first_loss = nd_sum(first_square, 0, NULL, false);
        assert_ok(nd_grad(first_loss, 1, inputs, NULL, &second));
    }
    assert_int_equal(nd_get_dtype(second), ND_F32);
    assert_memory_equal(nd_get_data(outside), nd_get_data(inside), 9 * sizeof(float));
    nd_release(outside);
    nd_release(inside);
    nd_release(first);
    nd_release(second);
}

/// A net of a convolution and a linear layer: learns its labels in bf16 as well, and its parameters
/// and gradients stay f32.
static void test_a_net_learns_inside_autocast(void **state) {
    (void)state;
    const nd_dtype dtypes[] = {ND_BF16, ND_F16};
    for (int i = 0; i < 2; i++) {
        nd_auto nd_module *net =
            ND_SEQUENTIAL(nd_conv2d_module(nd_key_new(1), 1, 4, 3, 3, true, NULL), nd_tanh_module(),
                          nd_flatten_module(), nd_linear_module(nd_key_new(2), 16, 3, true));
        nd_auto nd_optimizer *optimizer = sgd_of(net, 0.5, 0, 0);
        nd_auto nd_tensor *x = nd_randn(nd_key_new(3), ND_SHAPE(8, 1, 4, 4), ND_F32);
        nd_auto nd_tensor *labels = nd_randint(nd_key_new(4), 0, 3, ND_SHAPE(8), ND_I64);
        double first = 0, last = 0;
        for (int step = 0; step < 60; step++) {
            nd_auto nd_tensor *loss = NULL;
            nd_autocast(dtypes[i]) {
                nd_auto nd_tensor *logits = nd_module_forward(net, x);
                assert_handle(logits);
                assert_int_equal(nd_get_dtype(logits), dtypes[i]);
                loss = nd_cross_entropy(logits, labels);
            }
            assert_handle(loss);
            last = nd_get_item(loss);
            first = step ? first : last;
            assert_ok(nd_backward(loss, NULL));
            const nd_tensor *weight = nd_module_get_parameter(net, "0.weight");
            assert_int_equal(nd_get_dtype(weight), ND_F32);
            assert_int_equal(nd_get_dtype(nd_get_grad(weight)), ND_F32);
            assert_ok(nd_optimizer_step(optimizer));
            assert_ok(nd_optimizer_zero_grad(optimizer));
        }
        assert_true(first > 0.5 && last < 0.2 * first);
    }
}

/// Steps far below a half's rounding add up in the master, and the half is the rounded master.
static void test_halves_have_masters(void **state) {
    (void)state;
    const nd_dtype dtypes[] = {ND_F16, ND_BF16};
    for (int i = 0; i < 2; i++) {
        nd_auto nd_module *net = nd_linear_module(nd_key_new(1), 2, 2, false);
        nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "weight"));
        nd_no_grad assert_ok(nd_fill_(weight, 1));
        assert_ok(nd_module_cast(net, dtypes[i]));
        nd_auto nd_optimizer *optimizer = sgd_of(net, 1e-5, 0, 0);
        nd_auto nd_tensor *grad = nd_ones(ND_SHAPE(2, 2), dtypes[i]);
        for (int step = 0; step < 1000; step++) {
            assert_ok(nd_set_grad(weight, grad));
            assert_ok(nd_optimizer_step(optimizer));
        }
        nd_auto nd_tensor *item = nd_select(weight, 0, 0);
        nd_auto nd_tensor *wide = nd_cast(item, ND_F64);
        const double value = ((double *)nd_get_data(wide))[0];
        assert_true(fabs(value - 0.99) < (dtypes[i] == ND_F16 ? 5e-4 : 4e-3) && value < 1);
        // What the program writes, the master follows.
        nd_no_grad assert_ok(nd_fill_(weight, 4));
        assert_ok(nd_set_grad(weight, grad));
        assert_ok(nd_optimizer_step(optimizer));
        nd_auto nd_tensor *after = nd_cast(weight, ND_F64);
        assert_true(((double *)nd_get_data(after))[0] == 4);
    }
}

/// Parameters of 16 bits are averaged in f32, and no average moves before all were converted.
static void test_F42_a_refused_update_has_moved_no_average(void **state) {
    (void)state;
    nd_auto nd_manager *manager = nd_manager_new(NULL, "averages");
    nd_auto nd_module *net = ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 1, 1, false),
                                           nd_linear_module(nd_key_new(2), 1, 500, false));
    assert_ok(nd_module_cast(net, ND_F16));
    nd_auto nd_ema *ema = nd_ema_new(net, 0.5);
    const nd_tensor *averages[] = {nd_ema_get_average(ema, "0.weight"),
                                   nd_ema_get_average(ema, "1.weight")};
    nd_no_grad {
        assert_ok(nd_fill_((nd_tensor *)(uintptr_t)nd_module_get_parameter(net, "0.weight"), 100));
        assert_ok(nd_fill_((nd_tensor *)(uintptr_t)nd_module_get_parameter(net, "1.weight"), 100));
    }
    nd_status status = ND_ERROR_QUOTA;
    int refused = 0;
    nd_with_manager(manager) {
        for (; status == ND_ERROR_QUOTA; refused += status != ND_OK) {
            assert_true(refused < 100);
            assert_ok(nd_manager_set_quota(manager, ND_CPU, 64 * (uint64_t)(refused + 1)));
            status = nd_ema_update(ema);
            for (int i = 0; i < 2; i++)
                assert_int_equal(*(float *)nd_get_data(averages[i]) > 10, status == ND_OK);
            nd_error_clear();
        }
    }
    assert_int_equal(status, ND_OK);
    assert_true(refused > 10);
}

/// Averages that are not applied leave no copies of the parameters.
static void test_a_refused_apply_leaves_nothing(void **state) {
    (void)state;
    nd_auto nd_manager *manager = nd_manager_new(NULL, "averages");
    nd_module *net = NULL;
    nd_ema *ema = NULL;
    nd_with_manager(manager) {
        net = new_net();
        ema = nd_ema_new(net, 0.5);
    }
    const uint64_t bytes = nd_manager_get_total_bytes(manager);
    const uint64_t objects = nd_manager_get_total_objects(manager);
    nd_status status = ND_ERROR_QUOTA;
    int refused = 0;
    for (; status == ND_ERROR_QUOTA; refused += status != ND_OK) {
        assert_ok(nd_manager_set_quota(manager, ND_CPU, bytes + 1 + 16 * (uint64_t)refused));
        status = nd_ema_apply(ema);
        if (status == ND_OK)
            break;
        assert_failed(ND_ERROR_QUOTA, "ema_apply: ");
        assert_int_equal(nd_manager_get_total_bytes(manager), bytes);
        assert_int_equal(nd_manager_get_total_objects(manager), objects);
        assert_int_equal(nd_ema_restore(ema), ND_ERROR_STATE);
        nd_error_clear();
    }
    assert_ok(status);
    assert_true(refused > 10);
    assert_ok(nd_ema_restore(ema));
    assert_int_equal(nd_manager_get_total_bytes(manager), bytes);
    nd_release(ema);
    nd_release(net);
}

/// Gradients live at their parameter's manager, whichever one clips them.
static void test_clipped_gradients_live_with_their_parameters(void **state) {
    (void)state;
    nd_auto nd_manager *home = nd_manager_new(NULL, "home");
    nd_module *net = NULL;
    nd_with_manager(home) net = new_net();
    const nd_tensor *parameter = nd_module_get_parameter_at(net, 0, NULL);
    for (int how = 0; how < 2; how++) {
        nd_auto nd_manager *step = nd_manager_new(NULL, "step");
        nd_with_manager(step) {
            backward(net, 5);
            if (how)
                assert_ok(nd_clip_grad_value(net, 1e-3));
            else
                assert_ok(nd_clip_grad_norm(net, 1e-3, NULL));
        }
        assert_ptr_equal(nd_get_manager(nd_get_grad(parameter)), home);
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        assert_ok(nd_manager_dispose(step, &report));
        assert_int_equal(report.escaped_objects, 0);
        assert_false(nd_is_closed(nd_get_grad(parameter)));
    }
    nd_release(net);
}

static void test_errors_of_clipping_begin_with_its_name(void **state) {
    (void)state;
    nd_auto nd_module *net = new_net();
    backward(net, 5);
    nd_auto nd_manager *m = nd_manager_new(NULL, "m");
    assert_ok(nd_manager_set_quota(m, ND_CPU, 1));
    nd_with_manager(m) {
        assert_int_equal(nd_clip_grad_norm(net, 1, NULL), ND_ERROR_QUOTA);
        assert_ptr_equal(strstr(nd_error_get_message(), "clip_grad_norm: "),
                         nd_error_get_message());
        assert_int_equal(nd_clip_grad_value(net, 1), ND_ERROR_QUOTA);
        assert_ptr_equal(strstr(nd_error_get_message(), "clip_grad_value: "),
                         nd_error_get_message());
    }
    nd_error_clear();
}

static void test_closed_parameters_are_told_of(void **state) {
    (void)state;
    nd_auto nd_module *net = new_net();
    backward(net, 5);
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(NULL);
    nd_auto nd_optimizer *before = nd_adam(net, NULL);
    assert_ok(nd_close((nd_tensor *)(uintptr_t)nd_module_get_parameter(net, "2.bias")));
    double norm = 7;
    assert_int_equal(nd_clip_grad_norm(net, 1, &norm), ND_ERROR_CLOSED);
    assert_failed(ND_ERROR_CLOSED, "clip_grad_norm: a parameter, a tensor of shape [3]");
    assert_true(norm == 7);
    assert_int_equal(nd_clip_grad_value(net, 1e-3), ND_ERROR_CLOSED);
    assert_failed(ND_ERROR_CLOSED, "clip_grad_value: a parameter, a tensor of shape [3]");
    assert_int_equal(nd_loss_scaler_unscale(scaler, before), ND_ERROR_CLOSED);
    assert_failed(ND_ERROR_CLOSED, "a parameter, a tensor of shape [3]");
    assert_null(nd_adam(net, NULL));
    assert_failed(ND_ERROR_CLOSED, "adam: a parameter, a tensor of shape [3]");
}

/// All gradients are there still where one cannot be looked at.
static void test_zeroing_is_all_or_nothing(void **state) {
    (void)state;
    for (int by_optimizer = 0; by_optimizer < 2; by_optimizer++) {
        nd_auto nd_module *net = new_net();
        nd_auto nd_optimizer *optimizer = sgd_of(net, 0.1, 0, 0);
        backward(net, 5);
        const size_t count = nd_module_get_parameter_count(net);
        assert_ok(
            nd_close((nd_object *)(uintptr_t)nd_module_get_parameter_at(net, count - 1, NULL)));
        assert_int_equal(by_optimizer ? nd_optimizer_zero_grad(optimizer)
                                      : nd_module_zero_grad(net),
                         ND_ERROR_CLOSED);
        assert_non_null(strstr(nd_error_get_message(),
                               by_optimizer ? "optimizer_zero_grad: " : "module_zero_grad: "));
        nd_error_clear();
        assert_non_null(nd_get_grad(nd_module_get_parameter_at(net, 0, NULL)));
    }
}

/// A parameter that cannot hold a new gradient keeps all others from theirs.
static void test_clipping_is_all_or_nothing(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_sequential(0, NULL);
    nd_auto nd_tensor *p = nd_ones(ND_SHAPE(2), ND_F32), *q = nd_ones(ND_SHAPE(2), ND_F32);
    nd_auto nd_tensor *w = nd_ones(ND_SHAPE(2), ND_F32), *large = nd_full(ND_SHAPE(2), 8, ND_F32);
    assert_ok(nd_set_requires_grad(p, true));
    assert_ok(nd_set_requires_grad(q, true));
    assert_ok(nd_set_requires_grad(w, true));
    assert_ok(nd_module_add_parameter(module, "p", p));
    assert_ok(nd_module_add_parameter(module, "q", q));
    assert_ok(nd_set_grad(p, large));
    assert_ok(nd_set_grad(q, large));
    assert_ok(nd_set_requires_grad(q, false));
    assert_ok(nd_add_(q, w)); // a result now, which has a gradient from before
    assert_int_equal(nd_clip_grad_value(module, 1), ND_ERROR_STATE);
    assert_int_equal(nd_clip_grad_norm(module, 1, NULL), ND_ERROR_STATE);
    nd_error_clear();
    assert_true(((const float *)nd_get_data(nd_get_grad(p)))[0] == 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F42_a_refused_update_has_moved_no_average),
        ND_TEST(test_a_refused_apply_leaves_nothing),
        ND_TEST(test_clipping_by_norm_and_by_value),
        ND_TEST(test_norms_beyond_the_squares_of_f32),
        ND_TEST(test_norms_beyond_the_squares_of_f64),
        ND_TEST(test_gradients_accumulate),
        ND_TEST(test_moving_averages),
        ND_TEST(test_autocast_computes_products_in_a_half),
        ND_TEST(test_autocast_raises_norms_and_losses),
        ND_TEST(test_autocast_of_attention_and_recurrent_nets),
        ND_TEST(test_a_backward_pass_inside_autocast),
        ND_TEST(test_a_net_learns_inside_autocast),
        ND_TEST(test_halves_have_masters),
        ND_TEST(test_clipped_gradients_live_with_their_parameters),
        ND_TEST(test_errors_of_clipping_begin_with_its_name),
        ND_TEST(test_closed_parameters_are_told_of),
        ND_TEST(test_zeroing_is_all_or_nothing),
        ND_TEST(test_clipping_is_all_or_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
