// What is claimed holds where it is so and fails where it is not: of the first steps' values beside
// PyTorch's, of the last turn's, of a score, of resident bytes in a run that lasts. And what is said of
// a rival's time.
#include "bench/workloads/harness/report.h"
#include "tests/testing.h"

#include <math.h>
#include <string.h>

enum { STEPS = 4 };

static nd_status hand_over_nothing(void *state, const char *folder) {
    (void)state;
    (void)folder;
    return ND_OK;
}

static const workload compared = {
    .name = "compared", .value = "loss", .first_tolerance = 1e-3, .hand_over = hand_over_nothing};

/// The side beside PyTorch's.
static const char *own_name = "on";
static workload_strategy own_strategy = WORKLOAD_BOUNDARY;

/// The verdict on PyTorch's values beside 1, 2, 3, 4; -1: nothing is claimed.
static int judge(const workload *workload, int64_t steps, const double *theirs) {
    static contest contest;
    static claim claims[32];
    claim_list list = {.claims = claims, .size = 32};
    const workload_settings settings = settings_default();
    contest = (struct contest){.workload = workload, .planned_steps = steps, .side_count = 2};
    side *on = &contest.sides[0], *rival = &contest.sides[1];
    *on = (side){.strategy = own_strategy, .turn_count = steps > 0};
    snprintf(on->name, sizeof on->name, "%s", own_name);
    *rival = (side){.name = "PyTorch", .is_rival = true, .turn_count = steps > 0};
    on->turns[0].steps = rival->turns[0].steps = steps;
    for (int64_t i = 0; i < steps; i++) {
        on->figures.first_values[i] = (double)i + 1;
        rival->figures.first_values[i] = theirs[i];
    }
    workload_report_judge(&contest, &settings, &list);
    for (size_t i = 0; i < list.count; i++)
        if (strstr(claims[i].text, "the first"))
            return (int)claims[i].verdict;
    return -1;
}

static void test_values_that_are_near_hold(void **state) {
    (void)state;
    assert_int_equal(judge(&compared, STEPS, (double[]){1, 2, 3, 4}), HOLDS);
    assert_int_equal(judge(&compared, STEPS, (double[]){1.003, 2, 2.997, 4}), HOLDS);
}

static void test_each_value_counts(void **state) {
    (void)state;
    for (int i = 0; i < STEPS; i++) {
        double theirs[STEPS] = {1, 2, 3, 4};
        theirs[i] += 0.005;
        assert_int_equal(judge(&compared, STEPS, theirs), FAILS);
        theirs[i] -= 0.01;
        assert_int_equal(judge(&compared, STEPS, theirs), FAILS);
        theirs[i] = NAN; // a step whose value never came
        assert_int_equal(judge(&compared, STEPS, theirs), FAILS);
    }
}

static void test_off_alone_is_compared_too(void **state) {
    (void)state;
    own_name = "off";
    own_strategy = WORKLOAD_LET_BE;
    assert_int_equal(judge(&compared, STEPS, (double[]){1, 2, 3, 4}), HOLDS);
    assert_int_equal(judge(&compared, STEPS, (double[]){1, 2, 3.5, 4}), FAILS);
    own_name = "on";
    own_strategy = WORKLOAD_BOUNDARY;
}

static void test_as_many_steps_count_as_the_workload_says(void **state) {
    (void)state;
    workload two = compared;
    two.first_steps = 2;
    assert_int_equal(judge(&two, STEPS, (double[]){1, 2, 0, 0}), HOLDS);
    assert_int_equal(judge(&two, STEPS, (double[]){1, 2.1, 3, 4}), FAILS);
}

static void test_without_steps_nothing_is_judged(void **state) {
    (void)state;
    assert_int_equal(judge(&compared, 0, NULL), NOT_JUDGED);
}

static void test_without_common_parameters_nothing_is_claimed(void **state) {
    (void)state;
    const workload own = {.name = "own", .value = "loss"};
    assert_int_equal(judge(&own, STEPS, (double[]){5, 6, 7, 8}), -1);
}

static void test_a_script_that_fails_is_no_skipped_one(void **state) {
    (void)state;
    static contest contest;
    claim claims[2];
    claim_list list = {.claims = claims, .size = 2};
    const workload_settings settings = settings_default();
    contest = (struct contest){.workload = &compared, .peer_skipped = "not installed"};
    workload_report_judge(&contest, &settings, &list);
    assert_int_equal(list.count, 0);
    contest.rival_failed = true;
    workload_report_judge(&contest, &settings, &list);
    assert_int_equal(list.count, 1);
    assert_int_equal(claims[0].verdict, FAILS);
}

/// The verdict of the claim with `words` on a side with the collector on, alone; -1: there is none.
static int judge_alone(const contest *contest, const char *words) {
    static claim claims[32];
    claim_list list = {.claims = claims, .size = 32};
    const workload_settings settings = settings_default();
    workload_report_judge(contest, &settings, &list);
    for (size_t i = 0; i < list.count; i++)
        if (strstr(claims[i].text, words))
            return (int)claims[i].verdict;
    return -1;
}

static contest *alone(const workload *workload, int64_t steps) {
    static contest contest;
    contest = (struct contest){.workload = workload, .planned_steps = steps, .side_count = 1};
    contest.sides[0] = (side){.name = "on", .strategy = WORKLOAD_BOUNDARY};
    contest.sides[0].figures.steps = steps;
    return &contest;
}

static void test_the_last_value_is_held_to_the_promise(void **state) {
    (void)state;
    const workload promised = {.name = "promised", .value = "loss", .steps = 10, .most_value = 1.5};
    contest *contest = alone(&promised, 10);
    assert_int_equal(judge_alone(contest, "in the last turn"), -1); // no turn
    side *on = &contest->sides[0];
    on->turn_count = 2;
    on->turns[0].value = 9;
    on->turns[1].value = 1.5;
    assert_int_equal(judge_alone(contest, "in the last turn"), HOLDS);
    on->turns[1].value = 1.51;
    assert_int_equal(judge_alone(contest, "in the last turn"), FAILS);
    on->turns[1].value = NAN;
    assert_int_equal(judge_alone(contest, "in the last turn"), FAILS);
    on->figures.steps = 9;
    assert_int_equal(judge_alone(contest, "in the last turn"), NOT_JUDGED);
    const workload silent = {.name = "silent", .value = "loss", .steps = 10};
    assert_int_equal(judge_alone(alone(&silent, 10), "in the last turn"), -1);
}

static void test_a_score_is_held_to_the_promise(void **state) {
    (void)state;
    const workload promised = {
        .name = "promised", .value = "loss", .score = "accuracy", .steps = 10, .least_score = 0.9};
    contest *contest = alone(&promised, 10);
    contest->sides[0].figures.outcome.score = 0.9;
    assert_int_equal(judge_alone(contest, "accuracy"), HOLDS);
    contest->sides[0].figures.outcome.score = 0.89;
    assert_int_equal(judge_alone(contest, "accuracy"), FAILS);
    contest->planned_steps = contest->sides[0].figures.steps = 9;
    assert_int_equal(judge_alone(contest, "accuracy"), NOT_JUDGED);
}

static void test_resident_bytes_of_a_run_that_lasts(void **state) {
    (void)state;
    const workload lasting = {.name = "lasting", .value = "loss", .lasts = 1000000};
    contest *contest = alone(&lasting, 1000000);
    side *on = &contest->sides[0];
    on->turn_count = 20;
    for (size_t i = 0; i < on->turn_count; i++) {
        on->turns[i].steps = (int64_t)(i + 1) * 50000;
        on->turns[i].resident_bytes = i == 0 ? 1000 : 100000; // the first tenth is two turns
    }
    assert_int_equal(judge_alone(contest, "resident bytes"), HOLDS);
    on->turns[19].resident_bytes = 101900;
    assert_int_equal(judge_alone(contest, "resident bytes"), HOLDS);
    on->turns[19].resident_bytes = 102100;
    assert_int_equal(judge_alone(contest, "resident bytes"), FAILS);
    on->turns[1].resident_bytes = 1000;
    on->turns[2].resident_bytes = 200000; // what is behind the first tenth does not count
    on->turns[19].resident_bytes = 1000;
    assert_int_equal(judge_alone(contest, "resident bytes"), HOLDS);
    on->turns[0].steps = on->turns[1].steps = 100; // nor do turns, but steps
    assert_int_equal(judge_alone(contest, "resident bytes"), HOLDS);
    on->turns[19].resident_bytes = 203999;
    assert_int_equal(judge_alone(contest, "resident bytes"), HOLDS);
    on->turns[19].resident_bytes = 204001;
    assert_int_equal(judge_alone(contest, "resident bytes"), FAILS);
    on->turns[19].steps = 999999; // not lasted
    assert_int_equal(judge_alone(contest, "resident bytes"), NOT_JUDGED);
    on->turns[8].steps = 2000000;
    on->turn_count = 9; // too few to have a tenth
    assert_int_equal(judge_alone(contest, "resident bytes"), NOT_JUDGED);
    const workload silent = {.name = "silent", .value = "loss"};
    contest->workload = &silent;
    assert_int_equal(judge_alone(contest, "resident bytes"), -1);
    contest->workload = &lasting;
    on->turn_count = 20;
    on->strategy = WORKLOAD_LET_BE; // which may grow
    assert_int_equal(judge_alone(contest, "resident bytes"), -1);
}

/// Its values are compared and its times are not.
static void test_a_rival_that_is_outdated_makes_no_ratio(void **state) {
    (void)state;
    static side on, rival;
    on = (side){.turn_count = 3};
    rival = (side){.is_rival = true, .turn_count = 3};
    for (int i = 0; i < 3; i++) {
        on.turns[i] = (run_turn){.steps = i + 1, .seconds = 1};
        rival.turns[i] = (run_turn){.steps = i + 1, .seconds = 4};
    }
    assert_true(contest_ratio(&on, &rival) == 0.25);
    assert_true(contest_ratio(&rival, &on) == 4);
    rival.rival.outdated = true;
    assert_true(isnan(contest_ratio(&on, &rival)));
    assert_true(isnan(contest_ratio(&rival, &on)));
    assert_true(contest_ratio(&on, &on) == 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_the_last_value_is_held_to_the_promise),
        ND_TEST(test_a_score_is_held_to_the_promise),
        ND_TEST(test_resident_bytes_of_a_run_that_lasts),
        ND_TEST(test_values_that_are_near_hold),
        ND_TEST(test_each_value_counts),
        ND_TEST(test_off_alone_is_compared_too),
        ND_TEST(test_as_many_steps_count_as_the_workload_says),
        ND_TEST(test_without_steps_nothing_is_judged),
        ND_TEST(test_without_common_parameters_nothing_is_claimed),
        ND_TEST(test_a_script_that_fails_is_no_skipped_one),
        ND_TEST(test_a_rival_that_is_outdated_makes_no_ratio),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
