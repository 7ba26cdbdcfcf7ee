// Steps are timed in blocks, of each kind in turn, so that a machine that speeds up or slows down
// does so for all of them; a block begins when all ranks are there, and takes as long as its slowest
// rank.
#include "bench/data_parallel/rank.h"

#include "bench/data_parallel/calibrate.h"
#include "bench/data_parallel/collective.h"
#include "bench/data_parallel/link.h"
#include "bench/data_parallel/reduction.h"
#include "bench/data_parallel/timeline.h"
#include "bench/data_parallel/training.h"
#include "bench/support/json.h"
#include "bench/support/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCKS = 41, FEWEST_BLOCKS = 5, WARM_UP = 4 };
static const double block_seconds = 5e-3;
static double longest_seconds; ///< of the steps of a model

/// Kinds of steps that are timed beside each other.
static const struct side {
    const char *name;
    training_step step;
    bool apart, link;
} sides[] = {
    {"alone", STEP_ALONE, false, false},          {"after", STEP_AFTER, false, false},
    {"overlap", STEP_OVERLAP, false, false},      {"apart_after", STEP_AFTER, true, false},
    {"apart_overlap", STEP_OVERLAP, true, false}, {"link_after", STEP_AFTER, true, true},
    {"link_overlap", STEP_OVERLAP, true, true},
};
enum { SIDES = sizeof sides / sizeof *sides, WITHOUT_LINK = 3 };

/// What a step of a kind takes.
typedef struct costs {
    double seconds, processor, link;
} costs;

static double processor_seconds(void) {
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/// Its costs but for the seconds.
static bool run_steps(training *train, const struct side *side, uint64_t count, costs *ret_costs) {
    bool good = true;
    double begin = processor_seconds();
    link_set(RANK_LINK_LATENCY, side->link ? RANK_LINK_BANDWIDTH : 0);
    for (uint64_t i = 0; good && i < count; i++)
        good = training_run(train, side->step, side->apart);
    ret_costs->link = link_busy() / (double)count;
    ret_costs->processor = (processor_seconds() - begin) / (double)count;
    link_set(0, 0);
    return good;
}

/// A step, by so many, with the seconds of the slowest rank, which are NaN on failure.
static costs time_steps(training *train, const struct side *side, uint64_t count,
                        const nd_communicator *world) {
    costs costs = {NAN, NAN, NAN};
    if (nd_barrier(world) != ND_OK)
        return costs;
    double begin = bench_seconds();
    bool good = run_steps(train, side, count, &costs);
    nd_auto nd_tensor *seconds = nd_scalar(good ? bench_seconds() - begin : (double)NAN, ND_F64);
    nd_auto nd_tensor *slowest = nd_all_reduce(seconds, world, ND_COLLECTIVE_MAX);
    costs.seconds = slowest ? nd_get_item(slowest) / (double)count : (double)NAN;
    return costs;
}

/// Medians of a step of each kind. All ranks decide alike, since they know the same times.
static bool time_sides(training *train, size_t count, const nd_communicator *world,
                       costs *ret_costs) {
    static double seconds[SIDES][BLOCKS], processor[SIDES][BLOCKS], link[SIDES][BLOCKS];
    double once = 0;
    costs ignored;
    // The first pass decides the order of the buckets.
    if (!training_run(train, STEP_OVERLAP, false) || !training_run(train, STEP_OVERLAP, true))
        return false;
    for (size_t i = 0; i < count; i++) {
        if (!run_steps(train, &sides[i], WARM_UP, &ignored))
            return false;
        once += time_steps(train, &sides[i], 1, world).seconds;
    }
    if (!isfinite(once))
        return false;
    uint64_t steps = (uint64_t)fmax(1, block_seconds * (double)count / once);
    size_t blocks =
        (size_t)fmax(FEWEST_BLOCKS, fmin(BLOCKS, longest_seconds / (once * (double)steps)));
    for (size_t block = 0; block < blocks; block++)
        for (size_t i = 0; i < count; i++) {
            costs step = time_steps(train, &sides[i], steps, world);
            seconds[i][block] = step.seconds;
            processor[i][block] = step.processor;
            link[i][block] = step.link;
        }
    for (size_t i = 0; i < count; i++)
        ret_costs[i] = (costs){bench_median(seconds[i], blocks), bench_median(processor[i], blocks),
                               bench_median(link[i], blocks)};
    return isfinite(ret_costs[count - 1].seconds);
}

static void write_us(bench_json *json, const char *model, const char *what, double seconds) {
    char key[96];
    snprintf(key, sizeof key, "us_%s_%s", model, what);
    bench_json_number(json, key, seconds * 1e6);
}

static void write_timeline(bench_json *json, const char *model, const timeline *line) {
    char what[48];
    write_us(json, model, "forward", line->forward);
    write_us(json, model, "backward", line->backward);
    write_us(json, model, "step", line->step);
    for (size_t i = 0; i < line->count; i++) {
        snprintf(what, sizeof what, "ready_%zu", i);
        write_us(json, model, what, line->buckets[i].ready);
        snprintf(what, sizeof what, "bytes_%zu", i);
        write_us(json, model, what, line->buckets[i].bytes * 1e-6); // as they are
    }
}

static bool measure_training(bench_json *json, const training_kind *kind,
                             const nd_communicator *world) {
    bool two = nd_communicator_get_size(world) == 2;
    size_t count = two ? SIDES : WITHOUT_LINK;
    costs costs[SIDES];
    char processor[48];
    training train;
    timeline line;
    bool good = training_begin(&train, kind, world) && time_sides(&train, count, world, costs) &&
                timeline_measure(&train, &line) && nd_barrier(world) == ND_OK;
    training_end(&train);
    for (size_t i = 0; good && i < count; i++) {
        snprintf(processor, sizeof processor, "%s_processor", sides[i].name);
        write_us(json, kind->name, sides[i].name, costs[i].seconds);
        write_us(json, kind->name, processor, costs[i].processor);
    }
    if (good && two)
        write_us(json, kind->name, "link_busy", costs[SIDES - 1].link);
    if (good)
        write_timeline(json, kind->name, &line);
    return good;
}

static bool measure_reductions(bench_json *json, const nd_communicator *world) {
    for (size_t i = 0; i < REDUCTION_SIZES; i++) {
        reduction_times times;
        if (!reduction_measure(world, reduction_sizes[i].bytes, &times))
            return false;
        write_us(json, reduction_sizes[i].name, "ours", times.ours);
        write_us(json, reduction_sizes[i].name, "in_place", times.in_place);
        write_us(json, reduction_sizes[i].name, "mpi", times.mpi);
    }
    return true;
}

static bool measure_collectives(bench_json *json, const nd_communicator *world) {
    setenv("ND_SHARED_MEMORY", "off", 1);
    nd_auto nd_communicator *apart = nd_communicator_duplicate(world, NULL);
    unsetenv("ND_SHARED_MEMORY");
    for (size_t i = 0; i < (size_t)COLLECTIVE_KINDS * REDUCTION_SIZES; i++) {
        collective_kind kind = (collective_kind)(i / REDUCTION_SIZES);
        const struct reduction_size *size = &reduction_sizes[i % REDUCTION_SIZES];
        collective_times times;
        char name[64];
        if (!apart || !collective_measure(world, apart, kind, size->bytes, &times))
            return false;
        snprintf(name, sizeof name, "%s_%s", collective_names[kind], size->name);
        write_us(json, name, "ours", times.ours);
        write_us(json, name, "apart", times.apart);
        write_us(json, name, "mpi", times.mpi);
    }
    return true;
}

static bool measure_messages(bench_json *json, const nd_communicator *world) {
    sim_costs costs;
    if (!calibrate(world, &costs))
        return false;
    write_us(json, "message", "latency", costs.latency);
    write_us(json, "message", "mb", costs.per_byte * 1e6);
    write_us(json, "sum", "mb", costs.per_sum_byte * 1e6);
    return true;
}

int rank_main(double seconds) {
    longest_seconds = seconds;
    nd_set_num_threads(1);
    nd_auto nd_communicator *world = nd_communicator_from_world(NULL);
    // What other ranks would write must not come between.
    FILE *to = nd_communicator_get_rank(world) == 0 ? stdout : fopen("/dev/null", "we");
    bool good = world && to;
    if (good) {
        bench_json json = bench_json_on(to);
        bench_json_begin_object(&json, NULL);
        for (size_t i = 0; good && i < TRAININGS; i++)
            good = measure_training(&json, &training_kinds[i], world);
        if (good && nd_communicator_get_size(world) > 1)
            good = measure_collectives(&json, world);
        if (good && nd_communicator_get_size(world) == 2)
            good = measure_reductions(&json, world) && measure_messages(&json, world);
        bench_json_end_object(&json);
        good = bench_json_close(&json) && good;
    }
    if (!good)
        fprintf(stderr, "data_parallel: rank %d: %s\n", nd_communicator_get_rank(world),
                nd_error_get_message());
    return good ? 0 : 2;
}
