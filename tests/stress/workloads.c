// The programs of bench/workloads that use several threads, or no tensors, in small: by every
// strategy they give the same values, and nothing of them is left when they are closed.
//
// What these programs do to objects no test does by itself: requests of eight threads under quotas
// of which some are refused, batches that are made on one thread and die on another, and objects of
// a program's own of which exactly so many must be alive.
#include "bench/workloads/workload.h"
#include "tests/behaviour/helpers.h"
#include "tests/stress/times.h"
#include <pthread.h>

/// Sanitizers see what they look for with fewer steps, and by every fourth strategy, and so does the
/// fake CUDA runtime.
enum { SLOWER = ND_TEST_SCALE > 1 ? 4 : 1 };

/// How a run of a program came out.
typedef struct outcome {
    nd_status status;
    double sum; ///< of the values of all steps
} outcome;

/// Collects once what is alive below a manager, as PERIODIC and SCOPE ask for.
static nd_status end_step(nd_manager *run, nd_manager *step, workload_strategy strategy) {
    nd_status status = ND_OK;
    if (strategy == WORKLOAD_PERIODIC)
        status = nd_gc_collect(run, NULL);
    if (strategy == WORKLOAD_SCOPE)
        status = nd_gc_collect(step, NULL);
    nd_status closed = strategy == WORKLOAD_DISPOSE ? nd_manager_dispose(step, NULL)
                                                    : nd_manager_close(step, NULL);
    return status == ND_OK ? closed : status;
}

static nd_status run_steps(const workload *workload, void *state, nd_manager *run,
                           const workload_options *options, double *ret_sum) {
    nd_status status = ND_OK;
    for (int64_t i = 0; i < options->steps && status == ND_OK; i++) {
        double value = 0;
        nd_auto nd_manager *step = nd_manager_new(run, "step");
        nd_with_manager(step) status = workload->step(state, i, &value);
        nd_status ended = end_step(run, step, options->strategy);
        status = status == ND_OK ? ended : status;
        *ret_sum += value;
    }
    return status;
}

/// One run, in managers as the benchmark's are.
static outcome run_workload(const workload *workload, workload_strategy strategy, int64_t steps) {
    outcome outcome = {ND_OK, 0};
    nd_auto nd_manager *run = nd_manager_new(nd_manager_get_root(), workload->name);
    nd_manager_set_gc_mode(run, strategy >= WORKLOAD_BYTES ? ND_GC_ON : ND_GC_OFF);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.boundary = strategy == WORKLOAD_BOUNDARY;
    if (strategy == WORKLOAD_ADAPTIVE)
        policy.tracked_objects = 1000; // the default would not be reached in so few steps
    nd_manager_set_gc_policy(run, &policy);
    const workload_options options = {
        .strategy = strategy, .seed = 20, .steps = steps, .device = nd_test_device()};
    void *state = NULL;
    nd_with_manager(run) outcome.status = workload->open(&options, &state);
    if (outcome.status == ND_OK)
        outcome.status = run_steps(workload, state, run, &options, &outcome.sum);
    workload_outcome looked_at = {0};
    nd_with_manager(run) {
        if (outcome.status == ND_OK && workload->finish)
            outcome.status = workload->finish(state, &looked_at);
        workload->close(state);
    }
    nd_manager_close(run, NULL);
    if (outcome.status != ND_OK)
        fprintf(stderr, "%s, %s: %s\n", workload->name, workload_strategy_name(strategy),
                nd_error_get_message());
    return outcome;
}

/// By every strategy: the same values, and what is garbage can be collected.
static void run_by_every_strategy(const workload *workload, int steps) {
    nd_test_collects_by_policy();
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0})); // programs move what they want to
    outcome first = run_workload(workload, WORKLOAD_LET_BE, stress_rounds(steps));
    assert_int_equal(first.status, ND_OK);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(nd_manager_get_total_objects(NULL), nd_test_objects_before);
    const unsigned every = nd_test_device().kind == ND_CPU ? SLOWER : 4;
    for (workload_strategy i = WORKLOAD_PERIODIC; i < WORKLOAD_PRESSURE; i += every) {
        outcome other = run_workload(workload, i, stress_rounds(steps));
        assert_int_equal(other.status, ND_OK);
        assert_memory_equal(&other.sum, &first.sum, sizeof first.sum);
        assert_ok(nd_gc_collect(NULL, NULL));
        assert_int_equal(nd_manager_get_total_objects(NULL), nd_test_objects_before);
    }
    nd_error_clear();
}

static void test_stress_requests_of_eight_threads(void **state) {
    (void)state;
    run_by_every_strategy(&workload_serve, 4 / SLOWER + 1);
}

static void test_stress_batches_handed_over(void **state) {
    (void)state;
    run_by_every_strategy(&workload_pipeline, 40 / SLOWER);
}

static void test_stress_objects_of_a_program(void **state) {
    (void)state;
    run_by_every_strategy(&workload_objects, 200 / SLOWER);
}

static void test_stress_second_order_in_small(void **state) {
    (void)state;
    run_by_every_strategy(&workload_long, 200 / SLOWER);
}

// ------------------------------------------------------------------------- beside each other

typedef struct side {
    const workload *workload;
    int steps;
    outcome outcome;
} side;

static void *run_side(void *data) {
    side *side = data;
    side->outcome = run_workload(side->workload, WORKLOAD_BOUNDARY, stress_rounds(side->steps));
    return NULL;
}

/// Four programs in one process: none notices the others, whose collections close the same gate.
static void test_stress_programs_beside_each_other(void **state) {
    (void)state;
    side sides[] = {{.workload = &workload_objects, .steps = 400 / SLOWER},
                    {.workload = &workload_objects, .steps = 400 / SLOWER},
                    {.workload = &workload_serve, .steps = 4 / SLOWER + 1},
                    {.workload = &workload_long, .steps = 400 / SLOWER}};
    enum { SIDES = sizeof sides / sizeof *sides };
    double alone[SIDES];
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
    for (int i = 0; i < SIDES; i++) {
        run_side(&sides[i]);
        assert_int_equal(sides[i].outcome.status, ND_OK);
        alone[i] = sides[i].outcome.sum;
    }
    pthread_t threads[SIDES];
    for (int i = 0; i < SIDES; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run_side, &sides[i]), 0);
    for (int i = 0; i < SIDES; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < SIDES; i++) {
        assert_int_equal(sides[i].outcome.status, ND_OK);
        assert_memory_equal(&sides[i].outcome.sum, &alone[i], sizeof alone[i]);
    }
    assert_ok(nd_gc_collect(NULL, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_stress_requests_of_eight_threads),  ND_TEST(test_stress_batches_handed_over),
        ND_TEST(test_stress_objects_of_a_program),       ND_TEST(test_stress_second_order_in_small),
        ND_TEST(test_stress_programs_beside_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
