// The report as JSON.
#include "bench/support/json.h"
#include "bench/support/machine.h"
#include "bench/support/paths.h"
#include "bench/training/report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void write_metrics(bench_json *json, const report *report);
static void write_run(bench_json *json, const run_result *run);
static void write_epoch(bench_json *json, const epoch_result *epoch);

bool report_json(const report *report, const claim *claims, size_t count, const char *path) {
    static const char *const devices[] = {[ND_CPU] = "cpu", [ND_CUDA] = "cuda"};
    FILE *stream = bench_open_result("gc_on_off", path);
    if (!stream)
        return false;
    bench_json json = bench_json_on(stream);
    bench_json_begin_object(&json, NULL);
    bench_json_string(&json, "bench", "gc_on_off");
    bench_machine_json(&json);
    bench_json_string(&json, "device", devices[report->settings->device.kind]);
    bench_json_number(&json, "seconds", report->seconds);
    bench_json_integer(&json, "planned_epochs", (uint64_t)report->settings->epochs);
    write_metrics(&json, report);
    bench_json_begin_array(&json, "runs");
    for (size_t i = 0; i < report->run_count; i++)
        write_run(&json, &report->runs[i]);
    bench_json_end_array(&json);
    bench_json_begin_object(&json, "price");
    bench_json_number(&json, "on_over_off", report->price.ratio);
    bench_json_integer(&json, "pairs", report->price.pairs);
    bench_json_integer(&json, "steps", (uint64_t)report->price.steps);
    bench_json_end_object(&json);
    bench_json_integer(&json, "remaining_objects", report->remaining_objects);
    bench_json_integer(&json, "remaining_bytes", report->remaining_bytes);
    claims_json(&json, claims, count);
    bench_json_end_object(&json);
    bool whole = bench_json_close(&json);
    if (!whole)
        fprintf(stderr, "gc_on_off: %s could not be written completely\n", report->settings->json);
    return whole;
}

/// Bytes by which a run grows in an epoch, from the second one on; NaN of fewer than three.
static double growth_of(const run_result *run) {
    const int last = run->epoch_count - 1;
    return last < 2 ? (double)NAN
                    : ((double)run->epochs[last].live_bytes - (double)run->epochs[1].live_bytes) /
                          (last - 1);
}

/// What others compare: a number for each figure, under its name. T15 is `second_order`.
static void write_metrics(bench_json *json, const report *report) {
    bench_json_begin_object(json, "metrics");
    bench_json_metric(json, report->price.ratio, "T14_ratio");
    for (size_t i = 0; i < report->run_count; i++) {
        const run_result *run = &report->runs[i];
        const char *name = run->scenario->name, *gc = run->collector_on ? "on" : "off";
        if (run->epoch_count == 0)
            continue;
        const epoch_result *end = &run->epochs[run->epoch_count - 1];
        if (run->scenario == &scenarios[SECOND_ORDER]) {
            bench_json_metric(json, (double)end->live_bytes, "T15_%s_live_bytes", gc);
            bench_json_metric(json, growth_of(run), "T15_%s_grows_bytes_per_epoch", gc);
        }
        double seconds = 0;
        for (int k = 0; k < run->epoch_count; k++)
            seconds += run->epochs[k].seconds;
        bench_json_metric(json, seconds / run->epoch_count, "%s_%s_seconds_per_epoch", name, gc);
        bench_json_metric(json, end->test_accuracy, "%s_%s_accuracy", name, gc);
        bench_json_metric(json, (double)end->live_bytes, "%s_%s_live_bytes", name, gc);
        bench_json_metric(json, growth_of(run), "%s_%s_grows_bytes_per_epoch", name, gc);
        bench_json_metric(json, (double)run->left_objects, "%s_%s_left_objects", name, gc);
    }
    bench_json_metric(json, (double)report->remaining_objects, "remaining_objects");
    bench_json_end_object(json);
}

static void write_run(bench_json *json, const run_result *run) {
    bench_json_begin_object(json, NULL);
    bench_json_string(json, "scenario", run->scenario->name);
    bench_json_string(json, "gc", run->collector_on ? "on" : "off");
    bench_json_integer(json, "batch", (uint64_t)run->batch);
    bench_json_integer(json, "steps", (uint64_t)run->steps);
    if (run->epoch_count)
        bench_json_number(json, "test_accuracy", run->epochs[run->epoch_count - 1].test_accuracy);
    bench_json_integer(json, "left_objects", run->left_objects);
    bench_json_integer(json, "left_bytes", run->left_bytes);
    bench_json_integer(json, "freed_by_collection_objects", run->freed_objects);
    bench_json_integer(json, "freed_by_collection_bytes", run->freed_bytes);
    bench_json_begin_array(json, "escaped_sites");
    for (size_t i = 0; i < 4 && run->last_escape.escaped_sites[i][0]; i++)
        bench_json_string(json, NULL, run->last_escape.escaped_sites[i]);
    bench_json_end_array(json);
    bench_json_begin_array(json, "epochs");
    for (int i = 0; i < run->epoch_count; i++)
        write_epoch(json, &run->epochs[i]);
    bench_json_end_array(json);
    bench_json_end_object(json);
}

static void write_epoch(bench_json *json, const epoch_result *epoch) {
    bench_json_begin_object(json, NULL);
    bench_json_number(json, "seconds", epoch->seconds);
    bench_json_number(json, "test_accuracy", epoch->test_accuracy);
    bench_json_integer(json, "live_objects", epoch->live_objects);
    bench_json_integer(json, "live_bytes", epoch->live_bytes);
    bench_json_integer(json, "cycles", epoch->cycles);
    bench_json_integer(json, "collected_objects", epoch->collected_objects);
    bench_json_integer(json, "collected_bytes", epoch->collected_bytes);
    bench_json_number(json, "gate_closed_us_max", epoch->gate_closed_us_max);
    bench_json_integer(json, "escaped_objects", epoch->escaped_objects);
    bench_json_integer(json, "escaped_bytes", epoch->escaped_bytes);
    bench_json_integer(json, "resident_bytes", epoch->resident_bytes);
    bench_json_end_object(json);
}
