// Kernels that the device refuses in the middle of updates: steps of optimizers, averages.
//
// Updates of 24 parameters are one launch, so those of 30 are two.
#include "tests/cudart/backend.h"
#include <nd/nn.h>
#include <stdio.h>

enum { PARAMETERS = 30, TOGETHER = 24, SIZE = 7 };
static const char launch[] = "cudaLaunchKernelExC";

static nd_tensor *forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_retain(x);
}
static const nd_module_type type = {
    .size = sizeof type, .version = 1, .name = "parameters", .forward = forward};

/// Parameters of i + 1, whose gradients are 1.
static nd_module *module_new(void) {
    nd_module *module = nd_module_new(&type, NULL, 0);
    for (int i = 0; i < PARAMETERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        nd_auto nd_tensor *parameter = full_on(cuda(0), SIZE, i + 1);
        nd_auto nd_tensor *grad = full_on(cuda(0), SIZE, 1);
        assert_ok(nd_set_requires_grad(parameter, true));
        assert_ok(nd_set_grad(parameter, grad));
        assert_ok(nd_module_add_parameter(module, name, parameter));
    }
    return module;
}

static void read_all(const nd_module *module, const nd_ema *ema, float *to) {
    for (int i = 0; i < PARAMETERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        const nd_tensor *x =
            ema ? nd_ema_get_average(ema, name) : nd_module_get_parameter(module, name);
        assert_ok(nd_copy_to_host(x, to + (size_t)i * SIZE, SIZE * sizeof *to));
    }
}

typedef struct values {
    float of[PARAMETERS * SIZE];
} values;

static values parameters_of(const nd_module *module) {
    values now;
    read_all(module, NULL, now.of);
    return now;
}

static values averages_of(const nd_ema *ema) {
    values now;
    read_all(NULL, ema, now.of);
    return now;
}

static int count_changed(const values *before, const values *after) {
    int changed = 0;
    for (int i = 0; i < PARAMETERS; i++)
        changed += memcmp(&before->of[(size_t)i * SIZE], &after->of[(size_t)i * SIZE],
                          SIZE * sizeof(float)) != 0;
    return changed;
}

static nd_optimizer *optimizer_new(const nd_module *module, bool adam) {
    nd_adam_options options = ND_ADAM_OPTIONS_INIT;
    nd_sgd_options sgd = ND_SGD_OPTIONS_INIT;
    return adam ? nd_adam(module, &options) : nd_sgd(module, &sgd);
}

/// The parameters after so many steps without a failure.
static values expected_after(bool adam, int steps) {
    nd_auto nd_module *module = module_new();
    nd_auto nd_optimizer *optimizer = optimizer_new(module, adam);
    for (int i = 0; i < steps; i++)
        assert_ok(nd_optimizer_step(optimizer));
    return parameters_of(module);
}

static void assert_same(const values *a, const values *b) {
    assert_memory_equal(a, b, sizeof *a);
}

static void test_a_kernel_refused_once_is_tried_again(void **state) {
    (void)state;
    for (int adam = 0; adam < 2; adam++) {
        const values expected = expected_after(adam, 2);
        for (uint64_t n = 1; n <= 2; n++) {
            nd_auto nd_module *module = module_new();
            nd_auto nd_optimizer *optimizer = optimizer_new(module, adam);
            assert_ok(nd_optimizer_step(optimizer));
            const uint64_t failures = statistics().failures;
            cudart_fail(launch, n, cudaErrorMemoryAllocation);
            assert_ok(nd_optimizer_step(optimizer));
            assert_int_equal(statistics().failures, failures + 1);
            const values now = parameters_of(module);
            assert_same(&now, &expected);
        }
    }
}

static void test_a_step_without_its_first_kernel_changes_nothing(void **state) {
    (void)state;
    for (int adam = 0; adam < 2; adam++) {
        nd_auto nd_module *module = module_new();
        nd_auto nd_optimizer *optimizer = optimizer_new(module, adam);
        assert_ok(nd_optimizer_step(optimizer));
        cudart_fail_from(launch, 1, cudaErrorMemoryAllocation);
        nd_status status = nd_optimizer_step(optimizer);
        cudart_fail(NULL, 0, cudaSuccess);
        assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
        values now = parameters_of(module), expected = expected_after(adam, 1);
        assert_same(&now, &expected);
        // It was no step: the next one is the second, which Adam's corrections depend on.
        assert_ok(nd_optimizer_step(optimizer));
        now = parameters_of(module);
        expected = expected_after(adam, 2);
        assert_same(&now, &expected);
    }
}

static void test_a_step_that_ends_midway_is_a_failed_device(void **state) {
    (void)state;
    for (int adam = 0; adam < 2; adam++) {
        nd_auto nd_module *module = module_new();
        nd_auto nd_optimizer *optimizer = optimizer_new(module, adam);
        assert_ok(nd_optimizer_step(optimizer));
        cudart_fail_from(launch, 2, cudaErrorMemoryAllocation);
        nd_status status = nd_optimizer_step(optimizer);
        cudart_fail(NULL, 0, cudaSuccess);
        assert_int_equal(status, ND_ERROR_DEVICE);
        assert_non_null(strstr(nd_error_get_message(), "when 24 of the parameters were changed"));
        const values before = expected_after(adam, 1), after = expected_after(adam, 2),
                     now = parameters_of(module);
        assert_int_equal(count_changed(&before, &now), TOGETHER);
        assert_int_equal(count_changed(&after, &now), PARAMETERS - TOGETHER);
    }
}

static void test_averages_move_wholly_or_not(void **state) {
    (void)state;
    nd_auto nd_module *module = module_new();
    nd_auto nd_ema *ema = nd_ema_new(module, 0.5);
    nd_auto nd_optimizer *optimizer = optimizer_new(module, false);
    assert_ok(nd_optimizer_step(optimizer));
    const values first = averages_of(ema);
    cudart_fail_from(launch, 1, cudaErrorMemoryAllocation);
    nd_status status = nd_ema_update(ema);
    cudart_fail(NULL, 0, cudaSuccess);
    assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
    values now = averages_of(ema);
    assert_same(&now, &first);

    cudart_fail_from(launch, 2, cudaErrorMemoryAllocation);
    status = nd_ema_update(ema);
    cudart_fail(NULL, 0, cudaSuccess);
    assert_int_equal(status, ND_ERROR_DEVICE);
    now = averages_of(ema);
    assert_int_equal(count_changed(&first, &now), TOGETHER);
    const values parameters = parameters_of(module);
    for (int i = 0; i < TOGETHER * SIZE; i++)
        assert_true(now.of[i] == 0.5F * first.of[i] + 0.5F * parameters.of[i]);

    cudart_fail(launch, 1, cudaErrorMemoryAllocation);
    assert_ok(nd_ema_update(ema));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_kernel_refused_once_is_tried_again),
        ND_TEST(test_a_step_without_its_first_kernel_changes_nothing),
        ND_TEST(test_a_step_that_ends_midway_is_a_failed_device),
        ND_TEST(test_averages_move_wholly_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
