// The report as JSON.
#include "bench/support/json.h"
#include "bench/support/machine.h"
#include "bench/support/paths.h"
#include "bench/workloads/harness/report.h"

#include <math.h>

static void write_metrics(bench_json *json, const contest *contest);
static void write_contest(bench_json *json, const contest *contest);
static void write_side(bench_json *json, const side *side);
static void write_memory(bench_json *json, const run_figures *figures);
static void write_first_values(bench_json *json, const side *side);
static void write_turns(bench_json *json, const side *side);

bool workload_report_json(const workload_report *report, const claim_list *claims) {
    FILE *stream = bench_open_result(report->settings->program, report->settings->json);
    if (!stream)
        return false;
    bench_json json = bench_json_on(stream);
    bench_json_begin_object(&json, NULL);
    bench_json_string(&json, "bench", "workloads");
    bench_machine_json(&json);
    bench_json_string(&json, "device", settings_device_name(report->settings->device.kind));
    bench_json_integer(&json, "threads", (uint64_t)report->settings->threads);
    bench_json_integer(&json, "seed", report->settings->seed);
    bench_json_number(&json, "seconds", report->seconds);
    bench_json_begin_object(&json, "metrics");
    for (size_t i = 0; i < report->count; i++)
        write_metrics(&json, &report->contests[i]);
    bench_json_end_object(&json);
    bench_json_begin_array(&json, "workloads");
    for (size_t i = 0; i < report->count; i++)
        write_contest(&json, &report->contests[i]);
    bench_json_end_array(&json);
    claims_json(&json, claims->claims, claims->count);
    bench_json_end_object(&json);
    bool whole = bench_json_close(&json);
    if (!whole)
        fprintf(stderr, "%s: %s could not be written completely\n", report->settings->program,
                report->settings->json);
    return whole;
}

/// What others compare: a number for each figure, under its name. PyTorch's are "NAME_rival_pytorch_…",
/// and are none where it is no rival.
static void write_metrics(bench_json *json, const contest *contest) {
    const char *name = contest->workload->name;
    const side *off = contest_find(contest, WORKLOAD_LET_BE), *on = contest_find_on(contest);
    const side *rival = contest_find_rival(contest);
    if (off && on && on != off)
        bench_json_metric(json, contest_ratio(on, off), "%s_on_over_off", name);
    if (on && rival)
        bench_json_metric(json, contest_ratio(on, rival), "%s_on_over_pytorch", name);
    for (size_t i = 0; i < contest->side_count; i++) {
        const side *side = &contest->sides[i];
        const run_figures *figures = &side->figures;
        const char *who = side->is_rival ? "rival_pytorch" : side->name;
        if (side->turn_count == 0 || (side->is_rival && side->rival.outdated))
            continue;
        const run_turn *last = &side->turns[side->turn_count - 1];
        bench_json_metric(json, (double)last->steps, "%s_%s_steps", name, who);
        bench_json_metric(json, side_rate(side), "%s_%s_steps_per_second", name, who);
        bench_json_metric(json, side_value(side, side), "%s_%s_value", name, who);
        bench_json_metric(json, figures->outcome.score, "%s_%s_score", name, who);
        bench_json_metric(json, (double)figures->peak_resident_bytes, "%s_%s_peak_resident_bytes",
                          name, who);
        for (size_t k = 0; k < WORKLOAD_FIGURES && *figures->outcome.figures[k].name; k++)
            bench_json_metric(json, figures->outcome.figures[k].value, "%s_%s_%s", name, who,
                              figures->outcome.figures[k].name);
        if (side->is_rival)
            continue;
        bench_json_metric(json, (double)last->live_bytes, "%s_%s_live_bytes", name, who);
        bench_json_metric(json, (double)figures->peak_bytes, "%s_%s_peak_bytes", name, who);
        double tenth, end;
        if (workload_report_resident(side, &tenth, &end)) {
            bench_json_metric(json, tenth, "%s_%s_resident_bytes_after_a_tenth", name, who);
            bench_json_metric(json, end, "%s_%s_resident_bytes", name, who);
            bench_json_metric(json, 100 * (end / tenth - 1), "%s_%s_resident_grows_percent", name,
                              who);
        }
        bench_json_metric(json, side_growth(side), "%s_%s_grows_bytes_per_step", name, who);
        bench_json_metric(json, figures->pause_seconds * 1e6, "%s_%s_gate_closed_us_max", name,
                          who);
        bench_json_metric(json, (double)figures->remaining_objects, "%s_%s_remaining_objects", name,
                          who);
    }
}

static void write_contest(bench_json *json, const contest *contest) {
    const side *off = contest_find(contest, WORKLOAD_LET_BE), *on = contest_find_on(contest);
    const side *rival = contest_find_rival(contest);
    bench_json_begin_object(json, NULL);
    bench_json_string(json, "workload", contest->workload->name);
    bench_json_integer(json, "planned_steps", (uint64_t)contest->planned_steps);
    bench_json_bool(json, "out_of_time", contest->out_of_time);
    bench_json_bool(json, "rival_dropped", contest->rival_dropped);
    bench_json_string(json, "value", contest->workload->value);
    bench_json_number(json, "on_over_off", off && on && on != off ? contest_ratio(on, off) : NAN);
    bench_json_number(json, "on_over_pytorch", on && rival ? contest_ratio(on, rival) : NAN);
    if (*contest->peer_skipped)
        bench_json_string(json, "peer_skipped", contest->peer_skipped);
    bench_json_begin_array(json, "sides");
    for (size_t i = 0; i < contest->side_count; i++)
        write_side(json, &contest->sides[i]);
    bench_json_end_array(json);
    bench_json_end_object(json);
}

static void write_side(bench_json *json, const side *side) {
    const run_figures *figures = &side->figures;
    bench_json_begin_object(json, NULL);
    bench_json_string(json, "side", side->name);
    if (side->is_rival)
        bench_json_string(json, "library", side->rival.library);
    else
        bench_json_string(json, "strategy", workload_strategy_name(side->strategy));
    bench_json_number(json, "steps_per_second", side_rate(side));
    bench_json_number(json, "value", side_value(side, side));
    bench_json_number(json, "score", figures->outcome.score);
    bench_json_integer(json, "peak_resident_bytes", figures->peak_resident_bytes);
    if (figures->peak_device_bytes)
        bench_json_integer(json, "peak_device_bytes", figures->peak_device_bytes);
    if (!side->is_rival) {
        bench_json_string(json, "made", figures->outcome.text);
        bench_json_integer(json, "steps", (uint64_t)figures->steps);
        bench_json_bool(json, "bounded", figures->bounded);
        bench_json_number(json, "grows_bytes_per_step", side_growth(side));
        write_memory(json, figures);
    }
    write_first_values(json, side);
    write_turns(json, side);
    bench_json_end_object(json);
}

static void write_memory(bench_json *json, const run_figures *figures) {
    bench_json_integer(json, "peak_bytes", figures->peak_bytes);
    bench_json_integer(json, "collections", figures->collections);
    bench_json_integer(json, "cycles", figures->cycles);
    bench_json_integer(json, "collected_objects", figures->collected_objects);
    bench_json_integer(json, "collected_bytes", figures->collected_bytes);
    bench_json_integer(json, "postponed_objects", figures->postponed_objects);
    bench_json_number(json, "gate_closed_us_max", figures->pause_seconds * 1e6);
    bench_json_number(json, "longest_step_ms", figures->longest_step_seconds * 1e3);
    bench_json_begin_array(json, "escaped_sites");
    for (size_t i = 0; i < RUN_SITES && *figures->escaped_sites[i]; i++)
        bench_json_string(json, NULL, figures->escaped_sites[i]);
    bench_json_end_array(json);
    bench_json_integer(json, "left_objects", figures->left_objects);
    bench_json_integer(json, "left_bytes", figures->left_bytes);
    bench_json_integer(json, "freed_by_collection_objects", figures->freed_objects);
    bench_json_integer(json, "freed_by_collection_bytes", figures->freed_bytes);
    bench_json_integer(json, "remaining_objects", figures->remaining_objects);
    bench_json_integer(json, "remaining_bytes", figures->remaining_bytes);
}

/// Of the first steps that it did.
static void write_first_values(bench_json *json, const side *side) {
    int64_t steps = side->turn_count ? side->turns[side->turn_count - 1].steps : 0;
    bench_json_begin_array(json, "first_values");
    for (int i = 0; i < WORKLOAD_FIRST_STEPS && i < steps; i++)
        bench_json_number(json, NULL, side->figures.first_values[i]);
    bench_json_end_array(json);
}

static void write_turns(bench_json *json, const side *side) {
    bench_json_begin_array(json, "turns");
    for (size_t i = 0; i < side->turn_count; i++) {
        const run_turn *turn = &side->turns[i];
        bench_json_begin_object(json, NULL);
        bench_json_integer(json, "steps", (uint64_t)turn->steps);
        bench_json_number(json, "seconds", turn->seconds);
        bench_json_number(json, "value", turn->value);
        if (!side->is_rival) {
            bench_json_integer(json, "live_objects", turn->live_objects);
            bench_json_integer(json, "live_bytes", turn->live_bytes);
        }
        bench_json_integer(json, "resident_bytes", turn->resident_bytes);
        bench_json_end_object(json);
    }
    bench_json_end_array(json);
}
