// Optimizers: the numbers of each step against the formulas in double precision, where state lives,
// what is refused.
#include "tests/training.h"
#include "tests/unit/io/files.h"

#include "lib/base/alloc.h"
#include "lib/device/fake/fake.h"
#include <math.h>

enum { SIZE = 7, STEPS = 5 };

static nd_tensor *no_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_retain(x);
}

static const nd_module_type holder_type = {
    .size = sizeof(nd_module_type), .version = 1, .name = "holder", .forward = no_forward};

/// Module with one parameter "p" of SIZE random numbers.
static nd_module *new_holder(void) {
    nd_module *module = nd_module_new(&holder_type, NULL, 0);
    nd_auto nd_tensor *parameter = nd_randn(nd_key_new(11), ND_SHAPE(SIZE), ND_F32);
    assert_ok(nd_set_requires_grad(parameter, true));
    assert_ok(nd_module_add_parameter(module, "p", parameter));
    return module;
}

/// Gives the parameter the gradient of step `step` and returns its values.
static void set_gradient(const nd_tensor *of, int step, double *ret_values) {
    nd_auto nd_tensor *parameter = nd_retain(of);
    nd_auto nd_tensor *grad = nd_randn(nd_key_new((uint64_t)(100 + step)), ND_SHAPE(SIZE), ND_F32);
    assert_ok(nd_set_grad(parameter, grad));
    for (int i = 0; i < SIZE; i++)
        ret_values[i] = ((float *)nd_get_data(grad))[i];
}

static void get_values(const nd_tensor *x, double *ret_values) {
    for (int i = 0; i < SIZE; i++)
        ret_values[i] = ((float *)nd_get_data(x))[i];
}

static void assert_close(const nd_tensor *x, const double *expected) {
    const float *value = nd_get_data(x);
    for (int i = 0; i < SIZE; i++)
        if (fabs(value[i] - expected[i]) > 2e-6 * (1 + fabs(expected[i])))
            fail_msg("element %d is %.9g, not %.9g", i, value[i], expected[i]);
}

static void check_sgd(double rate, double momentum, double decay) {
    nd_auto nd_module *module = new_holder();
    nd_auto nd_optimizer *optimizer = sgd_of(module, rate, momentum, decay);
    assert_handle(optimizer);
    nd_auto nd_tensor *parameter = nd_retain(nd_module_get_parameter(module, "p"));
    double p[SIZE], g[SIZE], v[SIZE] = {0};
    get_values(parameter, p);
    for (int step = 0; step < STEPS; step++) {
        set_gradient(parameter, step, g);
        uint64_t version = nd_get_version(parameter);
        assert_ok(nd_optimizer_step(optimizer));
        assert_true(nd_get_version(parameter) > version);
        for (int i = 0; i < SIZE; i++) {
            v[i] = momentum * v[i] + (g[i] + decay * p[i]);
            p[i] -= rate * v[i];
        }
        assert_close(parameter, p);
        assert_true(nd_is_leaf(parameter) && nd_requires_grad(parameter));
    }
    assert_ok(nd_optimizer_zero_grad(optimizer));
    assert_null(nd_get_grad(parameter));
    // Without a gradient nothing moves, not even by momentum or decay.
    assert_ok(nd_optimizer_step(optimizer));
    assert_close(parameter, p);
}

static void test_sgd_follows_its_formula(void **state) {
    (void)state;
    check_sgd(0.1, 0, 0);
    check_sgd(0.1, 0.9, 0);
    check_sgd(0.1, 0, 0.01);
    check_sgd(0.1, 0.9, 0.01);
}

static void check_adam(bool decoupled, double decay) {
    const double rate = 0.05, beta1 = 0.8, beta2 = 0.95, eps = 1e-6;
    nd_auto nd_module *module = new_holder();
    nd_auto nd_optimizer *optimizer = decoupled ? adamw_of(module, rate, beta1, beta2, eps, decay)
                                                : adam_of(module, rate, beta1, beta2, eps, decay);
    assert_handle(optimizer);
    nd_auto nd_tensor *parameter = nd_retain(nd_module_get_parameter(module, "p"));
    double p[SIZE], g[SIZE], m[SIZE] = {0}, v[SIZE] = {0};
    get_values(parameter, p);
    for (int step = 1; step <= STEPS; step++) {
        set_gradient(parameter, step, g);
        assert_ok(nd_optimizer_step(optimizer));
        for (int i = 0; i < SIZE; i++) {
            if (decoupled)
                p[i] *= 1 - rate * decay;
            else
                g[i] += decay * p[i];
            m[i] = beta1 * m[i] + (1 - beta1) * g[i];
            v[i] = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
            p[i] -= rate * (m[i] / (1 - pow(beta1, step))) /
                    (sqrt(v[i] / (1 - pow(beta2, step))) + eps);
        }
        assert_close(parameter, p);
    }
}

static void test_adam_and_adamw_follow_their_formulas(void **state) {
    (void)state;
    check_adam(false, 0);
    check_adam(false, 0.1);
    check_adam(true, 0);
    check_adam(true, 0.1);
}

static void test_gradients_with_strides(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_module_new(&holder_type, NULL, 0);
    nd_auto nd_tensor *parameter = nd_zeros(ND_SHAPE(2, 3), ND_F32);
    assert_ok(nd_set_requires_grad(parameter, true));
    assert_ok(nd_module_add_parameter(module, "p", parameter));
    nd_auto nd_tensor *numbers = nd_arange(0, 6, 1, ND_F32);
    nd_auto nd_tensor *matrix = nd_reshape(numbers, ND_SHAPE(3, 2));
    nd_auto nd_tensor *grad = nd_transpose(matrix, 0, 1);
    assert_ok(nd_set_grad(parameter, grad));
    nd_auto nd_optimizer *optimizer = sgd_of(module, 1, 0, 0);
    assert_ok(nd_optimizer_step(optimizer));
    static const float expected[] = {0, -2, -4, -1, -3, -5};
    const float *value = nd_get_data(parameter);
    for (int i = 0; i < 6; i++)
        assert_true(value[i] == expected[i]);
}

static void test_rate_can_change(void **state) {
    (void)state;
    nd_auto nd_module *module = new_holder();
    nd_auto nd_optimizer *optimizer = sgd_of(module, 0.5, 0, 0);
    nd_auto nd_tensor *parameter = nd_retain(nd_module_get_parameter(module, "p"));
    double p[SIZE], g[SIZE];
    get_values(parameter, p);
    set_gradient(parameter, 0, g);
    assert_ok(nd_optimizer_set_rate(optimizer, 0.25));
    assert_ok(nd_optimizer_step(optimizer));
    for (int i = 0; i < SIZE; i++)
        p[i] -= 0.25 * g[i];
    assert_close(parameter, p);
}

static void test_a_parameter_under_two_names_is_updated_once(void **state) {
    (void)state;
    nd_auto nd_module *module = new_holder();
    nd_auto nd_tensor *parameter = nd_retain(nd_module_get_parameter(module, "p"));
    assert_ok(nd_module_add_parameter(module, "tied", parameter));
    assert_int_equal(nd_module_get_parameter_count(module), 2);
    nd_auto nd_optimizer *optimizer = sgd_of(module, 0.5, 0, 0);
    double p[SIZE], g[SIZE];
    get_values(parameter, p);
    set_gradient(parameter, 0, g);
    assert_ok(nd_optimizer_step(optimizer));
    for (int i = 0; i < SIZE; i++)
        p[i] -= 0.5 * g[i];
    assert_close(parameter, p);
}

static void test_B22_state_lives_at_its_parameters_manager(void **state) {
    (void)state;
    nd_manager *model = nd_manager_new(NULL, "model");
    nd_manager *run = nd_manager_new(NULL, "run");
    nd_module *module = NULL;
    nd_with_manager(model) {
        module = new_holder();
    }
    uint64_t bytes = nd_manager_get_total_bytes(model);
    assert_int_equal(bytes, SIZE * 4);
    nd_optimizer *optimizer = NULL;
    double g[SIZE];
    nd_with_manager(run) {
        optimizer = adam_of(module, 0.1, 0.9, 0.999, 1e-8, 0);
        assert_handle(optimizer);
        assert_int_equal(nd_manager_get_total_bytes(model),
                         bytes); // lazily: not before the first step
        set_gradient(nd_module_get_parameter(module, "p"), 0, g);
        uint64_t run_bytes = nd_manager_get_total_bytes(run);
        assert_ok(nd_optimizer_step(optimizer));
        assert_int_equal(nd_manager_get_total_bytes(run), run_bytes);
    }
    assert_ptr_equal(nd_get_manager(optimizer), run);
    assert_int_equal(nd_manager_get_total_bytes(model), 3 * bytes); // parameter and two moments
    // They die with the manager, whoever holds them.
    assert_ok(nd_manager_dispose(model, NULL));
    assert_int_equal(nd_manager_get_total_bytes(model), 0);
    assert_int_equal(nd_optimizer_step(optimizer), ND_ERROR_CLOSED);
    assert_failed(ND_ERROR_CLOSED, "a parameter");
    nd_release(optimizer);
    nd_release(module);
    nd_release(model);
    nd_release(run);
}

static void test_state_goes_with_the_optimizer(void **state) {
    (void)state;
    nd_auto nd_module *module = new_holder();
    double g[SIZE];
    set_gradient(nd_module_get_parameter(module, "p"), 0, g);
    uint64_t objects = nd_manager_get_total_objects(NULL);
    nd_optimizer *optimizer = adamw_of(module, 0.1, 0.9, 0.999, 1e-8, 0);
    assert_ok(nd_optimizer_step(optimizer));
    assert_true(nd_manager_get_total_objects(NULL) > objects);
    nd_release(optimizer);
    assert_int_equal(nd_manager_get_total_objects(NULL), objects);
}

static void test_a_step_that_is_refused_changes_nothing(void **state) {
    (void)state;
    nd_auto nd_module *module = new_holder();
    nd_auto nd_tensor *second = nd_ones(ND_SHAPE(2), ND_F32);
    assert_ok(nd_set_requires_grad(second, true));
    assert_ok(nd_module_add_parameter(module, "second", second));
    nd_auto nd_tensor *first = nd_retain(nd_module_get_parameter(module, "p"));
    double before[SIZE], g[SIZE];
    get_values(first, before);
    set_gradient(first, 0, g);
    nd_auto nd_optimizer *optimizer = sgd_of(module, 0.1, 0.9, 0);
    assert_ok(nd_close(second));
    assert_int_equal(nd_optimizer_step(optimizer), ND_ERROR_CLOSED);
    nd_error_clear();
    assert_close(first, before);
}

static int allocations_left;

static bool allocation_fails(size_t bytes) {
    (void)bytes;
    return allocations_left-- <= 0;
}

static void test_F01_every_allocation_of_a_step_fails_once(void **state) {
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        bool done = false;
        for (int n = 0; !done; n++) {
            assert_true(n < 1000);
            nd_auto nd_module *module = new_holder();
            nd_auto nd_tensor *parameter = nd_retain(nd_module_get_parameter(module, "p"));
            double before[SIZE], g[SIZE];
            get_values(parameter, before);
            set_gradient(parameter, 0, g);
            allocations_left = n;
            nd__alloc_should_fail = allocation_fails;
            nd_auto nd_optimizer *optimizer = kind == 0 ? sgd_of(module, 0.1, 0.9, 0.01)
                                              : kind == 1
                                                  ? adam_of(module, 0.1, 0.9, 0.99, 0, 0.1)
                                                  : adamw_of(module, 0.1, 0.9, 0.99, 0, 0.1);
            done = optimizer && nd_optimizer_step(optimizer) == ND_OK;
            nd__alloc_should_fail = NULL;
            assert_int_equal(nd_error_get_status(), done ? ND_OK : ND_ERROR_OUT_OF_MEMORY);
            nd_error_clear();
            if (!done)
                assert_close(parameter, before);
        }
    }
}

static void test_state_follows_to_another_device(void **state) {
    (void)state;
    nd_auto nd_module *module = new_holder();
    nd_auto nd_optimizer *optimizer = sgd_of(module, 0.1, 0.9, 0);
    nd_auto nd_tensor *parameter = nd_retain(nd_module_get_parameter(module, "p"));
    double p[SIZE], g[SIZE], v[SIZE] = {0};
    get_values(parameter, p);
    for (int step = 0; step < 4; step++) {
        set_gradient(parameter, step, g);
        assert_ok(nd_module_to(module, (nd_device){ND_FAKE, 0}));
        assert_ok(nd_optimizer_step(optimizer));
        assert_ok(nd_module_to(module, (nd_device){ND_CPU, 0}));
        for (int i = 0; i < SIZE; i++) {
            v[i] = 0.9 * v[i] + g[i];
            p[i] -= 0.1 * v[i];
        }
        assert_close(parameter, p);
    }
}

static void test_F30_bad_arguments(void **state) {
    (void)state;
    nd_auto nd_module *module = new_holder();
    nd_auto nd_module *empty = nd_relu_module();
    assert_null(sgd_of(NULL, 0.1, 0, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "module is NULL");
    assert_null(sgd_of(empty, 0.1, 0, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "no parameters");
    assert_null(sgd_of(module, -0.1, 0, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "rate is -0.1");
    assert_null(sgd_of(module, NAN, 0, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "rate");
    assert_null(sgd_of(module, 0.1, INFINITY, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "momentum");
    assert_null(sgd_of(module, 0.1, 0, -1));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "weight_decay");
    assert_null(adam_of(module, 0.1, 1, 0.9, 1e-8, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "beta1");
    assert_null(adamw_of(module, 0.1, 0.9, 1.5, 1e-8, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "beta2");
    assert_null(adam_of(module, 0.1, 0.9, 0.9, -1, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "eps");
    assert_int_not_equal(nd_optimizer_step(NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "optimizer is NULL");
    assert_int_not_equal(nd_optimizer_zero_grad(NULL), ND_OK);
    nd_error_clear();
    nd_auto nd_optimizer *optimizer = sgd_of(module, 0.1, 0, 0);
    assert_int_not_equal(nd_optimizer_set_rate(optimizer, -1), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "rate is -1");
    assert_ok(nd_close(optimizer));
    assert_int_equal(nd_optimizer_step(optimizer), ND_ERROR_CLOSED);
    assert_failed(ND_ERROR_CLOSED, "optimizer was closed");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_sgd_follows_its_formula),
        ND_TEST(test_adam_and_adamw_follow_their_formulas),
        ND_TEST(test_gradients_with_strides),
        ND_TEST(test_rate_can_change),
        ND_TEST(test_a_parameter_under_two_names_is_updated_once),
        ND_TEST(test_B22_state_lives_at_its_parameters_manager),
        ND_TEST(test_state_goes_with_the_optimizer),
        ND_TEST(test_a_step_that_is_refused_changes_nothing),
        ND_TEST(test_F01_every_allocation_of_a_step_fails_once),
        ND_TEST(test_state_follows_to_another_device),
        ND_TEST(test_F30_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
