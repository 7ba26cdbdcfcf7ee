// What is simulated against the closed forms of the algorithms where all ranks are alike, and
// against what must hold where they are not.
#include "bench/data_parallel/simulate.h"
#include "tests/testing.h"

#include <math.h>

static const sim_costs costs = {20e-6, 1 / 1.25e9, 1 / 5e9};

/// Of pieces that have 2 MiB for each rank, or of one. Where several are on their way the link is
/// never idle, since a message takes longer than the latency and the additions of another one: only
/// the latency of the last one is seen; of a fifth, ninth, ... piece, which is alone, all of them.
static double ring_form(const sim_step *step, double bytes) {
    double message = 2 << 20, exchanges = 2 * (step->ranks - 1);
    double pieces = ceil(bytes / (message * step->ranks)), share = bytes / pieces / step->ranks;
    double sent = share * step->costs.per_byte, summed = share * step->costs.per_sum_byte;
    double alone = exchanges * (sent + step->costs.latency) + exchanges / 2 * summed;
    return fmod(pieces, 4) == 1 ? exchanges * (pieces - 1) * sent + alone
                                : exchanges * pieces * sent + step->costs.latency;
}

static double closed_form(const sim_step *step, double bytes) {
    double ranks = step->ranks, levels = log2(ranks);
    double part = (ranks - 1) / ranks * bytes;
    double bandwidth = 2 * part * step->costs.per_byte + part * step->costs.per_sum_byte;
    bool ring = bytes >= (128 << 10) * ranks;
    if (step->algorithm == SIM_RING || (step->algorithm == SIM_CHOSEN && ring))
        return ring_form(step, bytes);
    if (step->algorithm != SIM_DOUBLING)
        return 2 * levels * step->costs.latency + bandwidth;
    return levels *
           (step->costs.latency + bytes * (step->costs.per_byte + step->costs.per_sum_byte));
}

static double finish_of(const sim_step *step) {
    sim_result result;
    assert_true(simulate(step, &result));
    return result.finish;
}

static void assert_near(double a, double b) {
    if (fabs(a - b) > 1e-9 * fabs(b))
        fail_msg("%.12g is not %.12g", a, b);
}

static void test_ranks_that_are_alike_take_what_the_closed_form_says(void **state) {
    (void)state;
    static const double sizes[] = {1000, 1 << 20, 25 << 20, 200 << 20};
    for (int algorithm = 0; algorithm < SIM_ALGORITHMS; algorithm++)
        for (int ranks = 2; ranks <= 256; ranks *= 2)
            for (int i = 0; i < 4; i++) {
                sim_step step = {.ranks = ranks,
                                 .algorithm = (sim_algorithm)algorithm,
                                 .costs = costs,
                                 .count = 1,
                                 .bytes = {sizes[i]},
                                 .ready = {0.25}};
                assert_near(finish_of(&step), 0.25 + closed_form(&step, sizes[i]));
            }
}

/// What four pieces at once win: the latency and the additions of all but one.
static void test_several_pieces_keep_the_link_busy(void **state) {
    (void)state;
    for (int ranks = 2; ranks <= 64; ranks *= 2)
        for (int pieces = 2; pieces <= 12; pieces++) {
            double bytes = (double)pieces * ranks * (2 << 20);
            sim_step step = {.ranks = ranks,
                             .algorithm = SIM_RING,
                             .costs = costs,
                             .count = 1,
                             .bytes = {bytes}};
            double one_by_one = 0, together = finish_of(&step);
            step.bytes[0] /= pieces;
            one_by_one = pieces * finish_of(&step);
            assert_true(together < one_by_one);
            assert_true(together >= 2 * bytes * (ranks - 1) / ranks * costs.per_byte);
            step.bytes[0] = bytes;
            step.costs.latency = 1; // which nothing hides but the other lanes' own
            double rounds = 2 * (ranks - 1) * ceil(pieces / 4.0);
            double slow = finish_of(&step);
            assert_true(slow > rounds && slow < rounds + one_by_one + 1);
        }
}

static void test_buckets_follow_each_other_when_they_are_ready(void **state) {
    (void)state;
    sim_step step = {.ranks = 16,
                     .algorithm = SIM_RING,
                     .costs = costs,
                     .count = 3,
                     .bytes = {1 << 20, 25 << 20, 4 << 20},
                     .ready = {0.1, 0.101, 5}};
    sim_result result;
    assert_true(simulate(&step, &result));
    double first = 0.1 + closed_form(&step, 1 << 20);
    assert_near(result.begin[1], fmax(first, 0.101));
    assert_near(result.end[1], result.begin[1] + closed_form(&step, 25 << 20));
    assert_near(result.begin[2], 5);
    assert_near(result.finish, 5 + closed_form(&step, 4 << 20));
    assert_int_equal(result.messages, 3 * 16 * 30);
}

/// Nobody has sums before the last rank has its gradients, nor much later.
static void test_late_ranks_are_waited_for(void **state) {
    (void)state;
    for (int algorithm = 0; algorithm < SIM_ALGORITHMS; algorithm++) {
        sim_step step = {.ranks = 64,
                         .algorithm = (sim_algorithm)algorithm,
                         .costs = costs,
                         .count = 2,
                         .bytes = {1 << 20, 1 << 20},
                         .ready = {0.5, 1}};
        double alike = finish_of(&step);
        step.spread = 0.1;
        double late = finish_of(&step);
        assert_true(late > alike + 0.08 && late < alike + 0.1);
    }
}

static void test_what_is_no_power_of_two_is_refused(void **state) {
    (void)state;
    sim_step step = {.ranks = 6, .count = 1};
    sim_result result;
    assert_false(simulate(&step, &result));
    step.ranks = 1;
    step.ready[0] = 3;
    assert_true(simulate(&step, &result));
    assert_near(result.finish, 3);
}

static const struct CMUnitTest tests[] = {
    ND_TEST(test_ranks_that_are_alike_take_what_the_closed_form_says),
    ND_TEST(test_several_pieces_keep_the_link_busy),
    ND_TEST(test_buckets_follow_each_other_when_they_are_ready),
    ND_TEST(test_late_ranks_are_waited_for),
    ND_TEST(test_what_is_no_power_of_two_is_refused),
};

int main(void) {
    return cmocka_run_group_tests(tests, NULL, NULL);
}
