// Every schedule against PyTorch's rates; what is refused.
#include "tests/training.h"
#include "tests/unit/io/files.h"

#include <math.h>

#include "tests/unit/nn/schedule_values.h"

static nd_schedule *new_schedule(const char *name) {
    if (strcmp(name, "step") == 0)
        return nd_step_schedule(5, 0.5);
    if (strcmp(name, "multi_step") == 0)
        return nd_multi_step_schedule(0.25, 3, (const int64_t[]){3, 4, 11});
    if (strcmp(name, "exponential") == 0)
        return nd_exponential_schedule(0.9);
    if (strcmp(name, "cosine") == 0)
        return nd_cosine_schedule(0, SCHEDULE_STEPS);
    if (strcmp(name, "linear") == 0)
        return nd_linear_schedule(0.125, 1, 9);
    if (strncmp(name, "one_cycle", 9) == 0) {
        nd_one_cycle_options options = ND_ONE_CYCLE_OPTIONS_INIT;
        options.steps = SCHEDULE_STEPS + 1;
        if (name[9])
            options = (nd_one_cycle_options){sizeof options, 1, options.steps, 0.4, 10, 100, true};
        return nd_one_cycle_schedule(&options);
    }
    if (strncmp(name, "plateau", 7) == 0) {
        nd_plateau_options options = ND_PLATEAU_OPTIONS_INIT;
        options.gamma = 0.5;
        options.maximize = options.absolute = name[7] != 0;
        options.patience = name[7] ? 3 : 2;
        options.threshold = name[7] ? 0.5 : 1e-3;
        options.cooldown = name[7] ? 0 : 2;
        options.floor = name[7] ? 0.2 : 0;
        return nd_plateau_schedule(&options);
    }
    nd_schedule *warm_up = nd_linear_schedule(0.25, 1, 6);
    if (strcmp(name, "product") == 0)
        return nd_product_schedule(2, (nd_schedule *[]){warm_up, nd_exponential_schedule(0.9)});
    assert_string_equal(name, "sequence");
    nd_schedule *cosine = nd_cosine_schedule(0.1, SCHEDULE_STEPS - 6);
    return nd_sequence_schedule(2, (nd_schedule *[]){warm_up, cosine}, (const int64_t[]){6});
}

static void assert_near(const char *name, int step, double value, double expected) {
    if (!(fabs(value - expected) <= 1e-13))
        fail_msg("%s: at step %d the rate is %.17g, not %.17g", name, step, value, expected);
}

static void test_every_schedule_gives_pytorchs_rates(void **state) {
    (void)state;
    for (size_t c = 0; c < sizeof(expected_rates) / sizeof(*expected_rates); c++) {
        const char *name = expected_rates[c].name;
        const double *rates = expected_rates[c].rates;
        nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
        nd_auto nd_optimizer *optimizer = sgd_of(module, 0.1, 0, 0);
        const nd_tensor *bias = nd_module_get_parameter(module, "bias");
        assert_ok(nd_optimizer_add_group(optimizer, 1, &bias, NULL));
        assert_ok(nd_optimizer_set_option(optimizer, 1, ND_OPTIMIZER_RATE, 0.4));
        nd_auto nd_schedule *schedule = new_schedule(name);
        assert_handle(schedule);
        assert_ok(nd_schedule_start(schedule, optimizer));
        for (int step = 0; step <= SCHEDULE_STEPS; step++) {
            if (step > 0 && strncmp(name, "plateau", 7) == 0)
                assert_ok(nd_schedule_step_with(schedule, schedule_metrics[step - 1]));
            else if (step > 0)
                assert_ok(nd_schedule_step(schedule));
            assert_int_equal(nd_schedule_get_steps(schedule), step);
            assert_near(name, step, nd_optimizer_get_option(optimizer, 0, ND_OPTIMIZER_RATE),
                        rates[step]);
            assert_near(name, step, nd_optimizer_get_option(optimizer, 1, ND_OPTIMIZER_RATE) / 4,
                        rates[step]);
            assert_near(name, step, nd_schedule_get_factor(schedule) / 10, rates[step]);
        }
    }
}

static void test_schedules_stay_at_their_end(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    nd_one_cycle_options cycle = ND_ONE_CYCLE_OPTIONS_INIT;
    cycle.steps = 3;
    nd_schedule *all[] = {nd_cosine_schedule(0.5, 3), nd_linear_schedule(0, 0.75, 3),
                          nd_one_cycle_schedule(&cycle)};
    const double ends[] = {0.5, 0.75, 1.0 / 250000};
    for (size_t i = 0; i < 3; i++) {
        nd_auto nd_optimizer *optimizer = sgd_of(module, 0.1, 0, 0);
        assert_ok(nd_schedule_start(all[i], optimizer));
        for (int step = 0; step < 7; step++)
            assert_ok(nd_schedule_step(all[i]));
        assert_true(fabs(nd_schedule_get_factor(all[i]) - ends[i]) < 1e-15);
        nd_release(all[i]);
    }
}

static void test_a_plateau_inside_others_wants_its_metric_while_it_is_in_force(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    nd_auto nd_optimizer *optimizer = sgd_of(module, 1, 0, 0);
    nd_plateau_options options = ND_PLATEAU_OPTIONS_INIT;
    options.patience = 0;
    nd_auto nd_schedule *schedule = nd_sequence_schedule(
        2, (nd_schedule *[]){nd_linear_schedule(0.5, 1, 2), nd_plateau_schedule(&options)},
        (const int64_t[]){2});
    assert_ok(nd_schedule_start(schedule, optimizer));
    assert_ok(nd_schedule_step(schedule));
    assert_ok(nd_schedule_step(schedule));
    assert_int_equal(nd_schedule_step(schedule), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "wants a metric");
    assert_int_equal(nd_schedule_get_steps(schedule), 2);
    assert_ok(nd_schedule_step_with(schedule, 1));
    assert_true(nd_schedule_get_factor(schedule) == 1);
    assert_ok(nd_schedule_step_with(schedule, 1));
    assert_true(nd_schedule_get_factor(schedule) == 0.1);
}

static void test_schedules_that_are_refused(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    nd_auto nd_optimizer *optimizer = sgd_of(module, 1, 0, 0);
    assert_null(nd_step_schedule(0, 0.5));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "0 steps");
    assert_null(nd_exponential_schedule(-1));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "gamma is -1");
    assert_null(nd_multi_step_schedule(0.5, 2, (const int64_t[]){3, 3}));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "milestones[1] is 3");
    assert_null(nd_one_cycle_schedule(NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "options is NULL");
    nd_one_cycle_options cycle = ND_ONE_CYCLE_OPTIONS_INIT;
    assert_null(nd_one_cycle_schedule(&cycle));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "steps is 0");
    nd_plateau_options plateau = ND_PLATEAU_OPTIONS_INIT;
    plateau.gamma = 1;
    assert_null(nd_plateau_schedule(&plateau));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "gamma is 1");
    assert_null(nd_product_schedule(2, (nd_schedule *[]){nd_exponential_schedule(0.5), NULL}));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "schedule is NULL");
    assert_null(nd_sequence_schedule(
        2, (nd_schedule *[]){nd_exponential_schedule(0.5), nd_exponential_schedule(0.5)}, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "milestones is NULL");
    nd_auto nd_schedule *schedule = nd_exponential_schedule(0.5);
    assert_int_equal(nd_schedule_step(schedule), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "not started");
    assert_ok(nd_schedule_start(schedule, optimizer));
    assert_int_equal(nd_schedule_start(schedule, optimizer), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "started before");
    assert_null(nd_product_schedule(1, (nd_schedule *[]){nd_retain(schedule)}));
    assert_failed(ND_ERROR_STATE, "was started");
    assert_ok(nd_optimizer_add_group(optimizer, 0, NULL, NULL));
    assert_int_equal(nd_schedule_step(schedule), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "2 groups, and had 1");
    assert_ok(nd_close(schedule));
    assert_int_equal(nd_schedule_step(schedule), ND_ERROR_CLOSED);
    nd_error_clear();
    assert_true(isnan(nd_schedule_get_factor(NULL)));
    assert_int_equal(nd_schedule_get_steps(NULL), 0);
    assert_int_not_equal(nd_schedule_start(NULL, optimizer), ND_OK);
    nd_error_clear();
    nd_schedule *deep = nd_exponential_schedule(0.5);
    for (int depth = 2; depth <= 16; depth++)
        deep = nd_product_schedule(1, &deep);
    assert_handle(deep);
    assert_null(nd_product_schedule(1, &deep));
    assert_failed(ND_ERROR_UNSUPPORTED, "16 schedules");
}

/// A rate that no optimizer may have is refused before anything has changed: by a start, by a step
/// with all that a plateau would have learned of it, and by a state file.
static void test_a_rate_that_is_refused_changes_nothing(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 2, true);
    nd_auto nd_optimizer *optimizer = sgd_of(module, 10, 0, 0);
    nd_auto nd_schedule *steep = nd_linear_schedule(1e308, 1, 2);
    assert_int_equal(nd_schedule_start(steep, optimizer), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "schedule_start: rate is inf");
    assert_int_equal(nd_schedule_step(steep), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "not started");
    nd_plateau_options options = ND_PLATEAU_OPTIONS_INIT;
    options.patience = 0;
    nd_auto nd_schedule *schedule = nd_product_schedule(
        2, (nd_schedule *[]){nd_plateau_schedule(&options), nd_exponential_schedule(1e200)});
    assert_ok(nd_schedule_start(schedule, optimizer));
    assert_ok(nd_schedule_step_with(schedule, 1));
    assert_true(nd_optimizer_get_option(optimizer, 0, ND_OPTIMIZER_RATE) == 10 * 1e200);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(nd_schedule_step_with(schedule, 1), ND_ERROR_INVALID_ARGUMENT);
        assert_failed(ND_ERROR_INVALID_ARGUMENT, "schedule_step_with: rate is inf");
        assert_int_equal(nd_schedule_get_steps(schedule), 1);
        assert_true(nd_schedule_get_factor(schedule) == 1e200);
        assert_true(nd_optimizer_get_option(optimizer, 0, ND_OPTIMIZER_RATE) == 10 * 1e200);
    }
    // A file whose rate of 10 * 1e200 makes 1e401 with the factor of the schedule that reads it.
    nd_auto nd_optimizer *slow = sgd_of(module, 1e-300, 0, 0);
    nd_auto nd_schedule *longer = nd_exponential_schedule(1e200);
    nd_auto nd_schedule *same = nd_exponential_schedule(1e100);
    assert_ok(nd_schedule_start(longer, slow));
    assert_ok(nd_schedule_start(same, optimizer));
    nd_auto nd_state *saved = nd_state_new();
    nd_auto nd_state *loaded = nd_state_new();
    assert_ok(nd_state_add_schedule(saved, "schedule", same));
    assert_ok(nd_state_add_schedule(loaded, "schedule", longer));
    assert_ok(nd_schedule_step(same));
    assert_ok(nd_save_state(saved, nd_test_path("rates.safetensors")));
    assert_int_equal(nd_load_state(loaded, nd_test_path("rates.safetensors")),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT,
                  "'schedule.rates' become rates that no optimizer may have");
    assert_int_equal(nd_schedule_get_steps(longer), 0);
    assert_true(nd_optimizer_get_option(slow, 0, ND_OPTIMIZER_RATE) == 1e-300);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_schedule_gives_pytorchs_rates),
        ND_TEST(test_schedules_stay_at_their_end),
        ND_TEST(test_a_plateau_inside_others_wants_its_metric_while_it_is_in_force),
        ND_TEST(test_schedules_that_are_refused),
        ND_TEST(test_a_rate_that_is_refused_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
