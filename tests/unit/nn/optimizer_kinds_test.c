// Every kind of optimizer against PyTorch's values, in each float dtype; groups and their options.
#include "tests/training.h"
#include "tests/unit/io/files.h"
#include "tests/unit/nn/optimizer_values.h"

#include <math.h>

enum { PARAMETERS = 2, STEPS = 12 };
static const int64_t sizes[PARAMETERS] = {5, 3};

static nd_tensor *no_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_retain(x);
}

static const nd_module_type holder_type = {
    .size = sizeof(nd_module_type), .version = 1, .name = "holder", .forward = no_forward};

/// The same number in [-1, 1) as number() of optimizer_values.py.
static double number(uint32_t seed) {
    return (double)(seed * 2654435761u + 12345u) / 2147483648.0 - 1;
}

static nd_tensor *numbers(int step, int parameter, nd_dtype dtype) {
    double values[8];
    for (int64_t i = 0; i < sizes[parameter]; i++)
        values[i] = number((uint32_t)(1000 * step + 100 * parameter + (int)i));
    nd_auto nd_tensor *wide = nd_from_data(values, ND_SHAPE(sizes[parameter]), ND_F64);
    nd_tensor *x = nd_cast(wide, dtype);
    assert_handle(x);
    return x;
}

static nd_module *new_module(nd_dtype dtype) {
    nd_module *module = nd_module_new(&holder_type, NULL, 0);
    for (int k = 0; k < PARAMETERS; k++) {
        nd_auto nd_tensor *parameter = numbers(0, k, dtype);
        assert_ok(nd_set_requires_grad(parameter, true));
        assert_ok(nd_module_add_parameter(module, k == 0 ? "a" : "b", parameter));
    }
    return module;
}

static nd_optimizer *new_groups(const nd_module *module) {
    nd_optimizer *optimizer = adamw_of(module, 0.05, 0.8, 0.95, 1e-6, 0.1);
    const nd_tensor *second = nd_module_get_parameter(module, "b");
    size_t group = 0;
    assert_ok(nd_optimizer_add_group(optimizer, 1, &second, &group));
    assert_int_equal(group, 1);
    assert_int_equal(nd_optimizer_get_group_count(optimizer), 2);
    assert_ok(nd_optimizer_set_option(optimizer, group, ND_OPTIMIZER_RATE, 0.01));
    assert_ok(nd_optimizer_set_option(optimizer, group, ND_OPTIMIZER_WEIGHT_DECAY, 0));
    assert_true(nd_optimizer_get_option(optimizer, 0, ND_OPTIMIZER_RATE) == 0.05);
    assert_true(nd_optimizer_get_option(optimizer, 1, ND_OPTIMIZER_RATE) == 0.01);
    return optimizer;
}

static nd_optimizer *new_sgd(const nd_module *module, const char *name) {
    nd_sgd_options options = ND_SGD_OPTIONS_INIT;
    options.rate = 0.1;
    options.momentum = strstr(name, "momentum") || strstr(name, "nesterov") ? 0.9 : 0;
    options.nesterov = strstr(name, "nesterov") != NULL;
    options.weight_decay = strstr(name, "decay") || strstr(name, "momentum") ? 0.05 : 0;
    return nd_sgd(module, &options);
}

/// The optimizer of a case of optimizer_values.py.
static nd_optimizer *new_optimizer(const nd_module *module, const char *name) {
    const bool all = strstr(name, "_all") != NULL;
    if (strncmp(name, "sgd", 3) == 0)
        return new_sgd(module, name);
    if (strcmp(name, "adam") == 0 || strcmp(name, "adam_decay") == 0)
        return adam_of(module, 0.05, 0.8, 0.95, 1e-6, name[4] ? 0.1 : 0);
    if (strcmp(name, "adamw") == 0)
        return adamw_of(module, 0.05, 0.8, 0.95, 1e-6, 0.1);
    if (strncmp(name, "rmsprop", 7) == 0) {
        nd_rmsprop_options options = ND_RMSPROP_OPTIONS_INIT;
        options.rate = 0.02;
        options.alpha = 0.9;
        options.eps = all ? 1e-2 : 1e-6;
        options.weight_decay = all ? 0.1 : 0;
        options.momentum = all ? 0.7 : 0;
        options.centered = all;
        return nd_rmsprop(module, &options);
    }
    if (strncmp(name, "adagrad", 7) == 0) {
        nd_adagrad_options options = ND_ADAGRAD_OPTIONS_INIT;
        options.rate = 0.1;
        options.eps = 1e-6;
        options.rate_decay = all ? 0.1 : 0;
        options.weight_decay = all ? 0.1 : 0;
        options.initial = all ? 0.5 : 0;
        return nd_adagrad(module, &options);
    }
    if (strcmp(name, "lion") == 0) {
        const nd_lion_options options = {sizeof(nd_lion_options), 1, 0.02, 0.8, 0.95, 0.1};
        return nd_lion(module, &options);
    }
    assert_string_equal(name, "groups");
    return new_groups(module);
}

static void run_steps(const nd_module *module, nd_optimizer *optimizer, nd_dtype dtype) {
    for (int step = 1; step <= STEPS; step++) {
        for (int k = 0; k < PARAMETERS; k++) {
            nd_auto nd_tensor *parameter =
                nd_retain(nd_module_get_parameter_at(module, (size_t)k, NULL));
            nd_auto nd_tensor *grad = numbers(step, k, dtype);
            assert_ok(nd_set_grad(parameter, grad));
        }
        assert_ok(nd_optimizer_step(optimizer));
    }
}

/// The final values of both parameters behind each other.
static void get_values(const nd_module *module, double *ret_values) {
    for (int k = 0; k < PARAMETERS; k++) {
        nd_auto nd_tensor *detached =
            nd_detach(nd_module_get_parameter_at(module, (size_t)k, NULL));
        nd_auto nd_tensor *wide = nd_cast(detached, ND_F64);
        assert_ok(nd_copy_to_host(wide, ret_values, (size_t)sizes[k] * sizeof(double)));
        ret_values += sizes[k];
    }
}

/// Every case in a dtype, to a tolerance that is relative above 1 and absolute below.
static void check_cases(nd_dtype dtype, double tolerance) {
    for (size_t c = 0; c < sizeof(expected_values) / sizeof(*expected_values); c++) {
        const char *name = expected_values[c].name;
        nd_auto nd_module *module = new_module(dtype);
        nd_auto nd_optimizer *optimizer = new_optimizer(module, name);
        assert_handle(optimizer);
        run_steps(module, optimizer, dtype);
        double values[8];
        get_values(module, values);
        for (int i = 0; i < 8; i++) {
            const double expected = expected_values[c].values[i];
            if (!(fabs(values[i] - expected) <= tolerance * fmax(1, fabs(expected))))
                fail_msg("%s: value %d is %.17g, not %.17g", name, i, values[i], expected);
        }
    }
}

static void test_every_kind_gives_pytorchs_values_in_f64(void **state) {
    (void)state;
    check_cases(ND_F64, 1e-13);
}

static void test_every_kind_gives_pytorchs_values_in_f32(void **state) {
    (void)state;
    check_cases(ND_F32, 2e-6);
}

static void test_groups_that_are_refused(void **state) {
    (void)state;
    nd_auto nd_module *module = new_module(ND_F32);
    nd_auto nd_optimizer *optimizer = adamw_of(module, 0.05, 0.8, 0.95, 1e-6, 0.1);
    nd_auto nd_tensor *stranger = nd_ones(ND_SHAPE(2), ND_F32);
    const nd_tensor *parameters[] = {nd_module_get_parameter(module, "a"), stranger};
    size_t group = 77;
    assert_int_equal(nd_optimizer_add_group(optimizer, 2, parameters, &group),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "parameters[1] is none of the optimizer's");
    assert_int_equal(group, 77);
    assert_int_equal(nd_optimizer_get_group_count(optimizer), 1);
    assert_int_equal(nd_optimizer_set_option(optimizer, 1, ND_OPTIMIZER_RATE, 1),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "group 1 of an optimizer that has 1");
    assert_int_equal(nd_optimizer_set_option(optimizer, 0, ND_OPTIMIZER_MOMENTUM, 0.5),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "adamw has no option momentum");
    assert_int_equal(nd_optimizer_set_option(optimizer, 0, ND_OPTIMIZER_BETA1, 1),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "beta1 is 1");
    assert_int_equal(nd_optimizer_set_option(optimizer, 0, (nd_optimizer_option)99, 1),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "no option number 99");
    assert_true(isnan(nd_optimizer_get_option(optimizer, 0, ND_OPTIMIZER_ALPHA)));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "adamw has no option");
    assert_true(isnan(nd_optimizer_get_option(NULL, 0, ND_OPTIMIZER_RATE)));
    assert_int_equal(nd_optimizer_get_group_count(NULL), 0);
    assert_int_not_equal(nd_optimizer_add_group(NULL, 0, NULL, NULL), ND_OK);
    assert_int_not_equal(nd_optimizer_add_group(optimizer, 1, NULL, NULL), ND_OK);
    nd_error_clear();
    // One rate for all groups, after that again one for each.
    assert_ok(nd_optimizer_add_group(optimizer, 1, parameters, NULL));
    assert_ok(nd_optimizer_set_rate(optimizer, 0.25));
    assert_true(nd_optimizer_get_option(optimizer, 1, ND_OPTIMIZER_RATE) == 0.25);
    assert_ok(nd_close(optimizer));
    assert_int_equal(nd_optimizer_set_option(optimizer, 0, ND_OPTIMIZER_RATE, 1), ND_ERROR_CLOSED);
    nd_error_clear();
}

static void test_options_that_make_no_optimizer(void **state) {
    (void)state;
    nd_auto nd_module *module = new_module(ND_F32);
    nd_sgd_options sgd = ND_SGD_OPTIONS_INIT;
    sgd.nesterov = true;
    assert_null(nd_sgd(module, &sgd));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "nesterov needs a momentum");
    nd_rmsprop_options rmsprop = ND_RMSPROP_OPTIONS_INIT;
    rmsprop.alpha = 1;
    assert_null(nd_rmsprop(module, &rmsprop));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "rmsprop: alpha is 1");
    nd_adagrad_options adagrad = ND_ADAGRAD_OPTIONS_INIT;
    adagrad.initial = -1;
    assert_null(nd_adagrad(module, &adagrad));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "adagrad: initial is -1");
    nd_lion_options lion = ND_LION_OPTIONS_INIT;
    lion.beta2 = NAN;
    assert_null(nd_lion(module, &lion));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "lion: beta2");
    assert_null(nd_rmsprop(NULL, NULL));
    assert_null(nd_adagrad(NULL, NULL));
    assert_null(nd_lion(NULL, NULL));
    nd_error_clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_kind_gives_pytorchs_values_in_f64),
        ND_TEST(test_every_kind_gives_pytorchs_values_in_f32),
        ND_TEST(test_groups_that_are_refused),
        ND_TEST(test_options_that_make_no_optimizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
