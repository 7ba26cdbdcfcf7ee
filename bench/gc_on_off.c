// The main job: trains on real digits with the cycle collector off and on, shows what grows and
// what does not, and judges every claim from the figures of the same run.
//
// Each leaking run is followed by one explicit collection, so that runs do not disturb each other.
// The epochs of `plain`, which leaks nothing, are interleaved off and on, so that a machine that
// slows down slows both.
//
// The job keeps to its time: each part may take its share of what is left, and ends after fewer
// epochs (never fewer than LEAST_EPOCHS, which the claims need) where the machine is slow. Off and
// on train for equally many.
//
// Every workload of //bench:workloads can be a scenario here, too.
#include "bench/support/gnuplot.h"
#include "bench/support/measure.h"
#include "bench/support/paths.h"
#include "bench/training/report.h"
#include "bench/workloads/harness/harness.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_EPOCHS = 3 };

/// Time that is left, and the parts that share it.
typedef struct schedule {
    double deadline;
    int parts;  ///< not yet begun
    int epochs; ///< of the scenario's next run
    bool fixed; ///< so many in any case: the scenario's other run had as many
} schedule;

static int run_workload(const settings *settings);
static bool device_missing(const settings *settings);
static nd_status run_everything(report *report, const settings *settings);
static nd_status run_scenario(report *report, const scenario *scenario, const settings *settings,
                              const digits *digits, schedule *schedule);
static nd_status run_group(report *report, const scenario *scenario, const bool *modes,
                           size_t count, const settings *settings, const digits *digits,
                           schedule *schedule);
static nd_status run_epochs(training *runs, size_t count, schedule *schedule);
static int parts_of(const scenario *scenario, const settings *settings);
static double next_part(schedule *schedule);
static nd_status say_error(nd_status status, const scenario *scenario, bool collector_on);

int main(int argc, char **argv) {
    settings settings;
    int answer = options_read(argc, argv, &settings);
    if (answer >= 0)
        return answer;
    if (options_find_workload(settings.scenario))
        return run_workload(&settings);
    if (device_missing(&settings))
        return 0;
    if (settings.chart && !bench_gnuplot_check("gc_on_off", settings.chart))
        return 2;
    if (settings.json && !bench_check_result("gc_on_off", settings.json))
        return 2;

    report report = {.settings = &settings, .price = {.ratio = NAN}};
    double begin = bench_seconds();
    nd_status status = run_everything(&report, &settings);
    report.seconds = bench_seconds() - begin;
    report.remaining_objects = nd_manager_get_total_objects(NULL);
    report.remaining_bytes = nd_manager_get_total_bytes(NULL);

    answer = 2;
    if (status == ND_OK) {
        claim claims[CLAIMS_MAX];
        size_t count = claims_judge(&report, claims);
        answer = claims_print(claims, count) ? 0 : 1;
        if (settings.json && !report_json(&report, claims, count, settings.json))
            answer = 2;
        if (settings.chart && !chart_draw(&report, settings.chart))
            answer = 2;
        printf("%.1f seconds in all\n", report.seconds);
    }
    for (size_t i = 0; i < report.run_count; i++)
        free(report.runs[i].epochs);
    return answer;
}

/// A workload as a scenario: //bench:workloads measures it, without PyTorch. Its steps are
/// DEFAULT_EPOCHS epochs.
static int run_workload(const settings *settings) {
    const workload *workload = options_find_workload(settings->scenario);
    workload_settings all = settings_default();
    all.program = "gc_on_off";
    all.only[all.only_count++] = workload->name;
    all.off = settings->off;
    all.on = settings->on;
    all.peers = false;
    all.device = settings->device;
    all.seconds = settings->seconds;
    all.data = settings->data;
    all.json = settings->json;
    all.chart = settings->chart;
    if (settings->epochs != DEFAULT_EPOCHS)
        all.steps = (settings_steps(&all, workload) * settings->epochs + DEFAULT_EPOCHS - 1) /
                    DEFAULT_EPOCHS;
    return harness_run(&all);
}

/// No device of that kind is a normal answer, given on standard output.
static bool device_missing(const settings *settings) {
    static const char *const names[] = {[ND_CPU] = "CPU", [ND_CUDA] = "CUDA"};
    if (nd_get_device_count(settings->device.kind) > 0)
        return false;
    printf("no %s device\n", names[settings->device.kind]);
    return true;
}

static nd_status run_everything(report *report, const settings *settings) {
    digits digits;
    nd_status status = digits_load(&digits, settings->data, settings->samples);
    if (status != ND_OK) {
        fprintf(stderr, "gc_on_off: the digits could not be read: %s\n", nd_error_get_message());
        return status;
    }
    table_begin(settings, &digits);
    schedule schedule = {.deadline = bench_seconds() + settings->seconds};
    for (size_t i = 0; i < SCENARIO_COUNT; i++)
        schedule.parts += parts_of(&scenarios[i], settings);
    for (size_t i = 0; i < SCENARIO_COUNT && status == ND_OK; i++)
        if (parts_of(&scenarios[i], settings) > 0)
            status = run_scenario(report, &scenarios[i], settings, &digits, &schedule);
    digits_release(&digits);
    bench_progress_clear();
    return status;
}

/// Groups of runs, and the price of the collector, that the scenario asks for; 0: it is not run.
static int parts_of(const scenario *scenario, const settings *settings) {
    if (strcmp(settings->scenario, "all") != 0 && strcmp(settings->scenario, scenario->name) != 0)
        return 0;
    return settings->off && settings->on ? 2 : 1;
}

/// When the next part has to end.
static double next_part(schedule *schedule) {
    double now = bench_seconds();
    return now + (schedule->deadline - now) / schedule->parts--;
}

static nd_status run_scenario(report *report, const scenario *scenario, const settings *settings,
                              const digits *digits, schedule *schedule) {
    bool modes[2];
    size_t count = 0;
    if (settings->off)
        modes[count++] = false;
    if (settings->on)
        modes[count++] = true;
    table_scenario(scenario, settings->batch ? settings->batch : scenario->batch);
    nd_status status = say_error(training_warm_up(scenario, settings, digits), scenario, true);
    if (status != ND_OK)
        return status;
    schedule->epochs = settings->epochs;
    schedule->fixed = false;
    bool leaks = scenario->makes_cycles || scenario->keeps_history;
    if (!leaks) {
        status = run_group(report, scenario, modes, count, settings, digits, schedule);
        if (status != ND_OK || count < 2)
            return status;
        status = price_measure(&report->price, settings, digits, next_part(schedule));
        bench_progress_clear();
        return say_error(status, scenario, true);
    }
    for (size_t i = 0; i < count && status == ND_OK; i++)
        status = run_group(report, scenario, &modes[i], 1, settings, digits, schedule);
    return status;
}

/// Runs of one scenario, epoch by epoch in turn; which one comes first alternates.
static nd_status run_group(report *report, const scenario *scenario, const bool *modes,
                           size_t count, const settings *settings, const digits *digits,
                           schedule *schedule) {
    training runs[2];
    run_result *results = &report->runs[report->run_count];
    nd_status status = ND_OK;
    size_t begun = 0;
    while (begun < count && status == ND_OK) {
        status =
            training_begin(&runs[begun], scenario, modes[begun], settings, digits, &results[begun]);
        say_error(status, scenario, modes[begun]);
        begun++;
    }
    report->run_count += begun;
    if (status == ND_OK)
        status = run_epochs(runs, count, schedule);
    for (size_t i = 0; i < begun; i++) {
        nd_status ended = say_error(training_end(&runs[i]), scenario, modes[i]);
        if (status == ND_OK)
            table_run_end(&results[i]);
        status = status == ND_OK ? ended : status;
    }
    return status;
}

static nd_status run_epochs(training *runs, size_t count, schedule *schedule) {
    double begin = bench_seconds(), end = next_part(schedule);
    nd_status status = ND_OK;
    int epoch = 0;
    while (epoch < schedule->epochs && status == ND_OK) {
        for (size_t i = 0; i < count && status == ND_OK; i++) {
            training *run = &runs[(i + (size_t)epoch) % count];
            status =
                say_error(training_epoch(run, epoch), run->scenario, run->result->collector_on);
        }
        for (size_t i = 0; i < count && status == ND_OK; i++)
            table_epoch(runs[i].result, epoch);
        epoch++;
        double now = bench_seconds();
        if (!schedule->fixed && epoch >= LEAST_EPOCHS && now + (now - begin) / epoch > end)
            break;
    }
    if (status == ND_OK && epoch < runs[0].settings->epochs)
        table_stopped(runs[0].result, runs[0].settings->epochs);
    schedule->epochs = epoch;
    schedule->fixed = true;
    return status;
}

static nd_status say_error(nd_status status, const scenario *scenario, bool collector_on) {
    if (status == ND_OK)
        return ND_OK;
    bench_progress_clear();
    fprintf(stderr, "gc_on_off: %s, gc %s: %s: %s\n", scenario->name, collector_on ? "on" : "off",
            nd_status_get_name(status), nd_error_get_message());
    return status;
}
