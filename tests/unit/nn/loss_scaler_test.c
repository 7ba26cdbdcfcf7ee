// Loss scaling: gradients are divided once, and steps left out where they are not finite.
#include "tests/unit/nn/small_net.h"

#include <math.h>
#include <string.h>

static void test_a_scaled_loss_gives_the_same_steps(void **state) {
    (void)state;
    nd_auto nd_module *plain = new_net();
    nd_auto nd_module *scaled = new_net();
    nd_auto nd_optimizer *a = sgd_of(plain, 0.1, 0.9, 0);
    nd_auto nd_optimizer *b = sgd_of(scaled, 0.1, 0.9, 0);
    nd_loss_scaler_options options = ND_LOSS_SCALER_OPTIONS_INIT;
    options.interval = 2;
    options.scale = 1024;
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(&options);
    const double scales[] = {1024, 2048, 2048, 4096};
    for (int step = 0; step < 4; step++) {
        backward(plain, (uint64_t)step);
        nd_auto nd_tensor *loss = loss_of(scaled, (uint64_t)step, 6, ND_F32);
        nd_auto nd_tensor *large = nd_loss_scaler_scale(scaler, loss);
        assert_ok(nd_backward(large, NULL));
        if (step == 1) {
            assert_ok(nd_loss_scaler_unscale(scaler, b));
            assert_int_equal(nd_loss_scaler_unscale(scaler, b), ND_ERROR_STATE);
            nd_error_clear();
        }
        bool stepped = false;
        assert_ok(nd_optimizer_step(a));
        assert_ok(nd_loss_scaler_step(scaler, b, &stepped));
        assert_true(stepped);
        assert_true(nd_loss_scaler_get_scale(scaler) == scales[step]);
        assert_ok(nd_optimizer_zero_grad(a));
        assert_ok(nd_optimizer_zero_grad(b));
    }
    // A scale that is a power of two changes no bit.
    const nd_tensor *x = nd_module_get_parameter(plain, "0.weight");
    nd_auto nd_tensor *y = nd_retain(nd_module_get_parameter(scaled, "0.weight"));
    assert_memory_equal(nd_get_data(x), nd_get_data(y), 32 * sizeof(float));
    nd_auto nd_tensor *grad = nd_full(ND_SHAPE(8, 4), INFINITY, ND_F32);
    assert_ok(nd_set_grad(y, grad));
    bool stepped = true;
    assert_ok(nd_loss_scaler_step(scaler, b, &stepped));
    assert_false(stepped);
    assert_true(nd_loss_scaler_get_scale(scaler) == 2048);
    assert_memory_equal(nd_get_data(x), nd_get_data(y), 32 * sizeof(float));
}

// How a program drops gradients.
static nd_status by_optimizer(const nd_module *net, nd_optimizer *optimizer) {
    (void)net;
    return nd_optimizer_zero_grad(optimizer);
}
static nd_status by_module(const nd_module *net, nd_optimizer *optimizer) {
    (void)optimizer;
    return nd_module_zero_grad(net);
}
static nd_status by_tensor(const nd_module *net, nd_optimizer *optimizer) {
    (void)optimizer;
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "weight"));
    return nd_zero_grad(weight);
}
static nd_status (*const drops[])(const nd_module *net,
                                  nd_optimizer *optimizer) = {by_optimizer, by_module, by_tensor};

/// A step that is given up, behind nd_loss_scaler_unscale(), because the optimizer found no room, or for
/// one of the optimizer's own, does not leave the next one's gradients as they are.
static void test_a_step_that_is_given_up(void **state) {
    (void)state;
    nd_auto nd_module *net = nd_linear_module(nd_key_new(1), 64, 64, false);
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "weight"));
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(NULL);
    nd_auto nd_tensor *large = nd_full(ND_SHAPE(64, 64), 65536, ND_F32);
    nd_auto nd_manager *manager = nd_manager_new(NULL, "tight");
    for (int i = 0; i < 9; i++) {
        const bool fails = i % 3 == 1;
        nd_optimizer *optimizer = NULL;
        nd_with_manager(manager) {
            optimizer = fails ? nd_adam(net, NULL) : nd_sgd(net, NULL);
            assert_ok(nd_set_grad(weight, large));
            if (fails) {
                assert_ok(nd_manager_set_quota(manager, ND_CPU, 1));
                assert_int_equal(nd_loss_scaler_step(scaler, optimizer, NULL), ND_ERROR_QUOTA);
                nd_error_clear();
                assert_ok(nd_manager_set_quota(manager, ND_CPU, 0));
            } else {
                assert_ok(nd_loss_scaler_unscale(scaler, optimizer));
            }
            if (i % 3 == 2)
                assert_ok(nd_optimizer_step(optimizer));
        }
        assert_ok(drops[i / 3](net, optimizer));
        nd_auto nd_tensor *again = nd_clone(large);
        assert_ok(nd_set_grad(weight, again));
        bool stepped = false;
        assert_ok(nd_loss_scaler_step(scaler, optimizer, &stepped));
        assert_true(stepped && ((const float *)nd_get_data(nd_get_grad(weight)))[0] == 1);
        nd_release(optimizer);
        nd_zero_grad(weight);
    }
    assert_ok(nd_manager_close(manager, NULL));
}

/// Gradients that came since, in the place of one that was dropped or of none, are divided by the step,
/// and those that were divided before are not divided again, clipped or not.
static void test_gradients_that_come_later_are_divided_by_the_step(void **state) {
    (void)state;
    nd_auto nd_module *net = nd_linear_module(nd_key_new(1), 2, 2, true);
    nd_auto nd_optimizer *optimizer = nd_sgd(net, NULL);
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(NULL);
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "weight"));
    nd_auto nd_tensor *bias = nd_retain(nd_module_get_parameter(net, "bias"));
    nd_auto nd_tensor *large = nd_full(ND_SHAPE(2, 2), 65536, ND_F32);
    nd_auto nd_tensor *large_row = nd_full(ND_SHAPE(2), 65536, ND_F32);
    nd_auto nd_tensor *infinite = nd_full(ND_SHAPE(2), INFINITY, ND_F32);
    for (int there = 0; there < 2; there++) {
        assert_ok(nd_set_grad(weight, large));
        if (there)
            assert_ok(nd_set_grad(bias, infinite));
        assert_ok(nd_loss_scaler_unscale(scaler, optimizer));
        assert_ok(nd_clip_grad_value(net, 2));
        assert_ok(nd_zero_grad(bias));
        assert_ok(nd_set_grad(bias, large_row));
        bool stepped = false;
        assert_ok(nd_loss_scaler_step(scaler, optimizer, &stepped));
        // Of one step: what was seen to be infinite stays so.
        assert_true(stepped == !there);
        if (stepped) {
            assert_true(((const float *)nd_get_data(nd_get_grad(weight)))[0] == 1);
            assert_true(((const float *)nd_get_data(nd_get_grad(bias)))[0] == 1);
        }
        assert_ok(nd_module_zero_grad(net));
    }
}

/// Each optimizer's gradients are divided once, whatever is done with another's meanwhile.
static void test_two_optimizers_of_one_scaler(void **state) {
    (void)state;
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(NULL);
    nd_auto nd_tensor *large = nd_full(ND_SHAPE(2, 2), 65536, ND_F32);
    nd_module *nets[2];
    nd_optimizer *optimizers[2];
    for (int i = 0; i < 2; i++) {
        nets[i] = nd_linear_module(nd_key_new(1), 2, 2, false);
        optimizers[i] = nd_sgd(nets[i], NULL);
        nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(nets[i], "weight"));
        nd_auto nd_tensor *gradient = nd_clone(large);
        assert_ok(nd_set_grad(weight, gradient));
        assert_ok(nd_loss_scaler_unscale(scaler, optimizers[i]));
    }
    for (int i = 0; i < 2; i++) {
        assert_ok(nd_loss_scaler_step(scaler, optimizers[i], NULL));
        const nd_tensor *gradient = nd_get_grad(nd_module_get_parameter(nets[i], "weight"));
        assert_true(((const float *)nd_get_data(gradient))[0] == 1);
        nd_release(optimizers[i]);
        nd_release(nets[i]);
    }
}

/// Divided by a scale below 1 they may not be finite, though they were before; and the scale does not
/// fall for ever.
static void test_a_step_is_left_out_where_divided_gradients_are_not_finite(void **state) {
    (void)state;
    nd_auto nd_module *net = nd_linear_module(nd_key_new(1), 4, 3, true);
    nd_auto nd_optimizer *optimizer = sgd_of(net, 0.1, 0, 0);
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "weight"));
    nd_auto nd_tensor *before = nd_clone(weight);
    nd_loss_scaler_options options = ND_LOSS_SCALER_OPTIONS_INIT;
    options.scale = 0.5;
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(&options);
    nd_auto nd_tensor *grad = nd_full(ND_SHAPE(3, 4), 3e38, ND_F32);
    bool stepped = true;
    assert_ok(nd_set_grad(weight, grad));
    assert_ok(nd_loss_scaler_step(scaler, optimizer, &stepped));
    assert_false(stepped);
    assert_true(nd_loss_scaler_get_scale(scaler) == 0.25);
    nd_auto nd_tensor *broken = nd_full(ND_SHAPE(3, 4), NAN, ND_F32);
    for (int i = 0; i < 1200; i++) {
        assert_ok(nd_set_grad(weight, broken));
        assert_ok(nd_loss_scaler_step(scaler, optimizer, &stepped));
        assert_false(stepped);
    }
    assert_memory_equal(nd_get_data(weight), nd_get_data(before), 12 * sizeof(float));
    // One over the least scale is a number still.
    assert_true(nd_loss_scaler_get_scale(scaler) == 0x1p-126);
    nd_auto nd_tensor *small = nd_full(ND_SHAPE(3, 4), 0x1p-126, ND_F32);
    assert_ok(nd_set_grad(weight, small));
    assert_ok(nd_loss_scaler_step(scaler, optimizer, &stepped));
    assert_true(stepped);
    assert_true(fabs((double)((const float *)nd_get_data(weight))[5] + 0.1 -
                     (double)((const float *)nd_get_data(before))[5]) < 1e-6);
    options.scale = 0x1p-127;
    assert_null(nd_loss_scaler_new(&options));
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
}

/// The error says what to do instead; nothing was divided.
static void test_parameters_of_f16_are_not_unscaled(void **state) {
    (void)state;
    nd_auto nd_module *net = nd_linear_module(nd_key_new(1), 4, 3, true);
    assert_ok(nd_module_cast(net, ND_F16));
    nd_auto nd_optimizer *optimizer = sgd_of(net, 0.1, 0, 0);
    nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(NULL);
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "weight"));
    nd_auto nd_tensor *grad = nd_full(ND_SHAPE(3, 4), 2, ND_F16);
    assert_ok(nd_set_grad(weight, grad));
    bool stepped = true;
    assert_int_equal(nd_loss_scaler_unscale(scaler, optimizer), ND_ERROR_DTYPE);
    assert_non_null(strstr(nd_error_get_message(), "'weight' is float16"));
    assert_non_null(strstr(nd_error_get_message(), "nd_module_cast"));
    assert_non_null(strstr(nd_error_get_message(), "nd_autocast"));
    assert_int_equal(nd_loss_scaler_step(scaler, optimizer, &stepped), ND_ERROR_DTYPE);
    assert_true(stepped);
    nd_auto nd_tensor *sum = nd_sum(nd_get_grad(weight), 0, NULL, false);
    assert_true(nd_get_item(sum) == 24);
    nd_error_clear();
}

/// A quota that fails a call anywhere leaves gradients that are not divided, and the next call divides.
static void test_a_call_that_fails_divides_nothing(void **state) {
    (void)state;
    int failures = 0;
    for (int steps = 0; steps < 2; steps++)
        for (uint64_t quota = 64; quota < 6000; quota += 16) {
            nd_auto nd_module *net = nd_linear_module(nd_key_new(1), 16, 16, true);
            nd_auto nd_optimizer *optimizer = sgd_of(net, 0.1, 0, 0);
            nd_loss_scaler_options options = ND_LOSS_SCALER_OPTIONS_INIT;
            options.scale = 1.0 / 1024; // divided by less than 1: looked at again
            nd_auto nd_loss_scaler *scaler = nd_loss_scaler_new(&options);
            for (size_t i = 0; i < 2; i++) {
                nd_tensor *p = (nd_tensor *)(uintptr_t)nd_module_get_parameter_at(net, i, NULL);
                nd_auto nd_tensor *g = nd_full(nd_get_ndim(p), nd_get_shape(p), 1.0 / 1024, ND_F32);
                assert_ok(nd_set_grad(p, g));
            }
            const nd_tensor *weight = nd_module_get_parameter(net, "weight");
            const float before = *(const float *)nd_get_data(weight);
            nd_auto nd_manager *m = nd_manager_new(NULL, "step");
            assert_ok(nd_manager_set_quota(m, ND_CPU, quota));
            nd_status status = ND_OK;
            bool stepped = false;
            nd_with_manager(m) status = steps ? nd_loss_scaler_step(scaler, optimizer, &stepped)
                                              : nd_loss_scaler_unscale(scaler, optimizer);
            const float grad = *(const float *)nd_get_data(nd_get_grad(weight));
            if (status != ND_OK) {
                assert_int_equal(status, ND_ERROR_QUOTA);
                assert_non_null(strstr(nd_error_get_message(), "loss_scaler_"));
                nd_error_clear();
                assert_true(grad == 1.0f / 1024 || (steps && grad == 1));
                failures++;
            } else {
                assert_true(grad == 1);
                assert_ptr_equal(nd_get_manager(nd_get_grad(weight)), nd_get_manager(weight));
            }
            assert_ok(nd_manager_set_quota(m, ND_CPU, 0));
            if (!stepped)
                assert_ok(nd_loss_scaler_step(scaler, optimizer, &stepped));
            const float moved = before - *(const float *)nd_get_data(weight);
            assert_true(fabsf(moved - 0.1f) < 1e-5f);
        }
    assert_true(failures > 50);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_scaled_loss_gives_the_same_steps),
        ND_TEST(test_a_step_that_is_given_up),
        ND_TEST(test_gradients_that_come_later_are_divided_by_the_step),
        ND_TEST(test_two_optimizers_of_one_scaler),
        ND_TEST(test_a_step_is_left_out_where_divided_gradients_are_not_finite),
        ND_TEST(test_parameters_of_f16_are_not_unscaled),
        ND_TEST(test_a_call_that_fails_divides_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
