// The price of a collector that finds nothing: one run of `plain`, with the collector off for a few
// steps and on for the next few, which of the two comes first alternating. Model, memory and
// neighbours are the same for both halves of a pair, so their ratio is the collector alone, and the
// median of many pairs is not moved by what else the machine does. Not measured on a part of the
// digits.
#include "bench/support/measure.h"
#include "bench/training/report.h"
#include "bench/training/training.h"

#include <math.h>
#include <stdlib.h>

enum { LEAST_PAIRS = 100, STEPS = 5 };

static nd_status timed_half(training *run, nd_gc_mode mode, double *ret_seconds);
static nd_status measure_pairs(training *run, double *ratios, double deadline, size_t *ret_pairs);

nd_status price_measure(price_result *result, const settings *settings, const digits *digits,
                        double deadline) {
    *result = (price_result){.ratio = NAN, .steps = STEPS};
    double *ratios = calloc(PRICE_PAIRS, sizeof *ratios);
    if (!ratios)
        return ND_ERROR_OUT_OF_MEMORY;
    run_result ignored;
    training run;
    nd_status status = training_begin(&run, &scenarios[PLAIN], false, settings, digits, &ignored);
    bool enough = settings->samples == 0 && ignored.steps >= 2 * STEPS;
    if (status == ND_OK && enough)
        status = measure_pairs(&run, ratios, deadline, &result->pairs);
    nd_status ended = training_end(&run);
    free(ignored.epochs);
    if (status == ND_OK && ended == ND_OK && enough)
        result->ratio = bench_median(ratios, result->pairs);
    free(ratios);
    return status == ND_OK ? ended : status;
}

static nd_status measure_pairs(training *run, double *ratios, double deadline, size_t *ret_pairs) {
    // The first epoch fills caches and makes the optimizer's state; it is not counted.
    nd_status status = training_start_epoch(run, 0);
    if (status == ND_OK)
        status = training_steps(run, run->result->steps);
    int64_t left = 0;
    for (size_t pair = 0; pair < PRICE_PAIRS && status == ND_OK; pair++) {
        if (pair >= LEAST_PAIRS && bench_seconds() > deadline)
            break;
        if (left < 2 * STEPS) {
            status = training_start_epoch(run, 0);
            left = run->result->steps;
            progress_show_price(pair, PRICE_PAIRS);
        }
        double seconds[2] = {0};
        for (size_t half = 0; half < 2 && status == ND_OK; half++) {
            bool on = half == pair % 2;
            status = timed_half(run, on ? ND_GC_ON : ND_GC_OFF, &seconds[on]);
        }
        left -= 2 * STEPS;
        ratios[pair] = seconds[1] / seconds[0];
        *ret_pairs = pair + 1;
    }
    return status;
}

static nd_status timed_half(training *run, nd_gc_mode mode, double *ret_seconds) {
    nd_status status = nd_manager_set_gc_mode(run->manager, mode);
    double begin = bench_seconds();
    if (status == ND_OK)
        status = training_steps(run, STEPS);
    if (status == ND_OK)
        status = nd_synchronize(run->settings->device);
    *ret_seconds = bench_seconds() - begin;
    return status;
}
