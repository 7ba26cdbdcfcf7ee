// What the main job is there to show, each claim judged from the figures of this very run. A claim
// that the run gives no ground to judge (too few epochs, a collector setting that was not run) is
// not judged, and says why.
#include "bench/training/report.h"

#include <math.h>
#include <stdio.h>

/// Epochs needed to see growth from each epoch to the next, after the first.
enum { EPOCHS_FOR_SLOPE = 3 };
/// The two promises about `plain`.
static const double least_accuracy = 0.96;
static const double most_price =
    0.01; ///< T14 is half of it, which runs on a busy machine scatter beyond

static void judge_plain(claim_list *list, const report *report);
static void judge_growth(claim_list *list, const run_result *run);
static void judge_flat(claim_list *list, const run_result *run);
static void judge_escape(claim_list *list, const run_result *run);
static void judge_left(claim_list *list, const run_result *run);
static bool grows_every_epoch(const run_result *run);
static bool flat_from_second_epoch(const run_result *run);
static uint64_t total_collected(const run_result *run);

size_t claims_judge(const report *report, claim claims[CLAIMS_MAX]) {
    claim_list list = {.claims = claims, .size = CLAIMS_MAX};
    judge_plain(&list, report);
    for (size_t i = 0; i < report->run_count; i++) {
        const run_result *run = &report->runs[i];
        if (run->scenario->keeps_history)
            judge_escape(&list, run);
        else if (run->collector_on || !run->scenario->makes_cycles)
            judge_flat(&list, run);
        else
            judge_growth(&list, run);
        judge_left(&list, run);
    }
    char bytes[NUMBER_TEXT];
    bool empty = report->remaining_objects == 0 && report->remaining_bytes == 0;
    claims_add(
        &list, empty ? HOLDS : FAILS, "at the end: %llu objects and %s bytes alive in the process",
        (unsigned long long)report->remaining_objects, with_commas(bytes, report->remaining_bytes));
    return list.count;
}

static void judge_plain(claim_list *list, const report *report) {
    for (size_t i = 0; i < report->run_count; i++) {
        const run_result *run = &report->runs[i];
        if (run->scenario != &scenarios[PLAIN] || run->epoch_count == 0)
            continue;
        const char *mode = run->collector_on ? "on" : "off";
        double accuracy = run->epochs[run->epoch_count - 1].test_accuracy;
        bool enough = run->epoch_count >= DEFAULT_EPOCHS && report->settings->samples == 0;
        verdict verdict = !enough ? NOT_JUDGED : accuracy >= least_accuracy ? HOLDS : FAILS;
        claims_add(list, verdict,
                   "plain, gc %s: %.2f %% of the test digits right (at least %.0f %%%s)", mode,
                   accuracy * 100, least_accuracy * 100,
                   enough ? "" : ", after the default epochs on all digits");
    }
    const run_result *off = report_find(report, &scenarios[PLAIN], false);
    const run_result *on = report_find(report, &scenarios[PLAIN], true);
    if (!off || !on)
        return;
    if (!isfinite(report->price.ratio)) {
        claims_add(list, NOT_JUDGED, "plain: price of the collector (measured on all digits only)");
        return;
    }
    double price = report->price.ratio - 1;
    bool enough = report->price.pairs >= PRICE_PAIRS_ENOUGH;
    claims_add(
        list,
        !enough               ? NOT_JUDGED
        : price <= most_price ? HOLDS
                              : FAILS,
        "plain: with the collector on a step takes %+.2f %% time (at most %+.0f %%), median of "
        "%zu pairs of %lld steps off and on%s",
        price * 100, most_price * 100, report->price.pairs, (long long)report->price.steps,
        enough ? "" : "; there was time for no more");
}

static void judge_growth(claim_list *list, const run_result *run) {
    const char *name = run->scenario->name;
    if (run->epoch_count < EPOCHS_FOR_SLOPE) {
        claims_add(list, NOT_JUDGED, "%s, gc off: grows every epoch (needs %d epochs)", name,
                   EPOCHS_FOR_SLOPE);
        return;
    }
    char first[NUMBER_TEXT];
    char last[NUMBER_TEXT];
    const epoch_result *end = &run->epochs[run->epoch_count - 1];
    claims_add(list, grows_every_epoch(run) ? HOLDS : FAILS,
               "%s, gc off: live objects and bytes grow every epoch, from %s to %s", name,
               in_units(first, run->epochs[0].live_bytes), in_units(last, end->live_bytes));
}

static void judge_flat(claim_list *list, const run_result *run) {
    const char *name = run->scenario->name;
    const char *mode = run->collector_on ? "on" : "off";
    if (run->epoch_count < EPOCHS_FOR_SLOPE) {
        claims_add(list, NOT_JUDGED, "%s, gc %s: flat from the second epoch (needs %d epochs)",
                   name, mode, EPOCHS_FOR_SLOPE);
        return;
    }
    char objects[NUMBER_TEXT];
    char bytes[NUMBER_TEXT];
    const epoch_result *end = &run->epochs[run->epoch_count - 1];
    claims_add(list, flat_from_second_epoch(run) ? HOLDS : FAILS,
               "%s, gc %s: flat to the byte from the second epoch: %s objects, %s bytes at the end",
               name, mode, with_commas(objects, end->live_objects),
               with_commas(bytes, end->live_bytes));
}

static void judge_escape(claim_list *list, const run_result *run) {
    const char *mode = run->collector_on ? "on" : "off";
    bool told = run->last_escape.escaped_objects > 0 && run->last_escape.escaped_sites[0][0];
    claims_add(
        list, told ? HOLDS : FAILS,
        "escape, gc %s: a step's manager reports %llu escaped objects and the lines that made them",
        mode, (unsigned long long)run->last_escape.escaped_objects);
    if (run->epoch_count < EPOCHS_FOR_SLOPE) {
        claims_add(list, NOT_JUDGED, "escape, gc %s: grows every epoch (needs %d epochs)", mode,
                   EPOCHS_FOR_SLOPE);
        return;
    }
    char last[NUMBER_TEXT];
    bool kept = grows_every_epoch(run) && total_collected(run) == 0;
    claims_add(
        list, kept ? HOLDS : FAILS,
        "escape, gc %s: no cycle, so nothing of it is collected; it grows every epoch, to %s", mode,
        in_units(last, run->epochs[run->epoch_count - 1].live_bytes));
}

static void judge_left(claim_list *list, const run_result *run) {
    char objects[NUMBER_TEXT];
    char bytes[NUMBER_TEXT];
    const char *name = run->scenario->name;
    bool none = run->left_objects == 0 && run->left_bytes == 0;
    with_commas(objects, run->left_objects);
    with_commas(bytes, run->left_bytes);
    if (run->collector_on || !run->scenario->makes_cycles) {
        claims_add(list, none ? HOLDS : FAILS,
                   "%s, gc %s: %s objects and %s bytes left after the run", name,
                   run->collector_on ? "on" : "off", objects, bytes);
        return;
    }
    bool all_freed = run->left_objects > 0 && run->freed_objects == run->left_objects &&
                     run->freed_bytes == run->left_bytes;
    claims_add(
        list, all_freed ? HOLDS : FAILS,
        "%s, gc off: the run leaks %s objects, %s bytes; one explicit collection frees them all",
        name, objects, bytes);
}

static bool grows_every_epoch(const run_result *run) {
    for (int i = 1; i < run->epoch_count; i++) {
        const epoch_result *now = &run->epochs[i];
        const epoch_result *before = &run->epochs[i - 1];
        if (now->live_bytes <= before->live_bytes || now->live_objects <= before->live_objects)
            return false;
    }
    return true;
}

static bool flat_from_second_epoch(const run_result *run) {
    for (int i = 2; i < run->epoch_count; i++) {
        const epoch_result *now = &run->epochs[i];
        if (now->live_bytes != run->epochs[1].live_bytes ||
            now->live_objects != run->epochs[1].live_objects)
            return false;
    }
    return true;
}

static uint64_t total_collected(const run_result *run) {
    uint64_t objects = 0;
    for (int i = 0; i < run->epoch_count; i++)
        objects += run->epochs[i].collected_objects;
    return objects;
}
