// Managers, strategies and figures of one run.
#include "bench/workloads/harness/run.h"

#include "bench/support/machine.h"
#include "bench/support/measure.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { STEPS_BETWEEN_COLLECTIONS = 16 };
static const uint64_t threshold_bytes = (uint64_t)64 << 20;

static nd_status fail(run *run, nd_status status);
static nd_status apply_strategy(run *run);
static nd_status one_step(run *run, double *ret_value);
static nd_status step_below(run *run, double *ret_value);
static nd_status end_step(run *run, nd_manager *step);
static void note_escape(run *run, const nd_close_report *report);
static void note_value(run *run, double value);
static void read_totals(run *run);

nd_status run_begin(run *run, const workload *workload, const run_settings *settings) {
    *run = (struct run){.workload = workload, .settings = *settings};
    run->digest = UINT64_C(14695981039346656037);
    run->figures.outcome.score = NAN;
    workload_problem[0] = 0;
    if (settings->threads > 0)
        nd_set_num_threads(settings->threads);
    nd_device device = settings->options.device;
    if (nd_get_device_count(device.kind) <= device.index) {
        run->figures.status = ND_ERROR_DEVICE;
        run->figures.no_device = true;
        snprintf(run->figures.message, sizeof run->figures.message, "no %s device",
                 device.kind == ND_CUDA ? "CUDA" : "CPU");
        return ND_ERROR_DEVICE;
    }
    // Off and on are compared to the bit, and atomic additions have the hardware's order.
    if (device.kind == ND_CUDA)
        nd_set_deterministic(true);
    if (settings->device_bytes && nd_memory_set_limit(device, settings->device_bytes) != ND_OK)
        return fail(run, nd_error_get_status());
    nd_gc_reset_peak();
    run->manager = nd_manager_new(nd_manager_get_root(), workload->name);
    if (!run->manager)
        return fail(run, nd_error_get_status());
    nd_status status = ND_OK;
    nd_with_manager(run->manager) status = workload->open(&settings->options, &run->state);
    if (status == ND_OK)
        status = apply_strategy(run);
    if (status == ND_OK && settings->quota_bytes)
        status = nd_manager_set_quota(run->manager, device.kind, settings->quota_bytes);
    if (status == ND_OK && settings->hand_over)
        nd_with_manager(run->manager) status = workload->hand_over(run->state, settings->hand_over);
    return fail(run, status);
}

nd_status run_steps(run *run, int64_t steps, atomic_llong *progress, run_turn *ret_turn) {
    *ret_turn = (run_turn){0};
    double begin = bench_seconds(), before = begin, values = 0;
    int64_t done = 0;
    nd_status status = run->figures.status;
    for (; done < steps && status == ND_OK && !run->figures.bounded; done++) {
        double value = NAN;
        status = one_step(run, &value);
        if (status != ND_OK)
            break;
        double now = bench_seconds();
        if (run->warm)
            run->figures.longest_step_seconds =
                fmax(run->figures.longest_step_seconds, now - before);
        before = now;
        values += value;
        note_value(run, value);
        run->figures.steps++;
        if (progress)
            atomic_fetch_add(progress, 1);
        uint64_t bytes = nd_manager_get_total_bytes(run->manager);
        run->figures.bounded = run->settings.most_bytes && bytes > run->settings.most_bytes;
    }
    if (status == ND_OK)
        status = nd_synchronize(run->settings.options.device);
    *ret_turn = (run_turn){.steps = run->figures.steps,
                           .seconds = bench_seconds() - begin,
                           .value = done ? values / (double)done : NAN,
                           .live_objects = nd_manager_get_total_objects(run->manager),
                           .live_bytes = nd_manager_get_total_bytes(run->manager),
                           .resident_bytes = bench_resident_bytes(),
                           .digest = run->digest};
    run->warm = true;
    return fail(run, status);
}

nd_status run_end(run *run) {
    run_figures *figures = &run->figures;
    if (run->manager) {
        nd_status status = figures->status;
        read_totals(run);
        nd_with_manager(run->manager) {
            if (status == ND_OK && run->workload->finish) {
                status = run->workload->finish(run->state, &figures->outcome);
                figures->finished = status == ND_OK;
            }
            run->workload->close(run->state);
        }
        fail(run, status);
        nd_close_report closed = ND_CLOSE_REPORT_INIT;
        fail(run, nd_manager_close(run->manager, &closed));
        nd_release(run->manager);
        run->manager = NULL;
        figures->left_objects = closed.escaped_objects;
        figures->left_bytes = closed.escaped_bytes;
        nd_gc_report collected = ND_GC_REPORT_INIT;
        fail(run, nd_gc_collect(nd_manager_get_root(), &collected));
        figures->freed_objects = collected.collected_objects;
        figures->freed_bytes = collected.collected_bytes;
    }
    figures->remaining_objects = nd_manager_get_total_objects(NULL);
    figures->remaining_bytes = nd_manager_get_total_bytes(NULL);
    return figures->status;
}

bool run_has_boundaries(workload_strategy strategy) {
    return strategy == WORKLOAD_LET_BE || strategy == WORKLOAD_SCOPE ||
           strategy == WORKLOAD_DISPOSE || strategy == WORKLOAD_BOUNDARY;
}

/// Keeps the first failure, with its message. Returns the status.
static nd_status fail(run *run, nd_status status) {
    if (status == ND_OK || run->figures.status != ND_OK)
        return status;
    run->figures.status = status;
    const bool own = status == ND_ERROR_OUT_OF_MEMORY && nd_error_get_status() == ND_OK;
    snprintf(run->figures.message, sizeof run->figures.message, "%s: %s",
             nd_status_get_name(status),
             *workload_problem ? workload_problem
             : own             ? "the workload found " RUN_NO_MEMORY
                               : nd_error_get_message());
    return status;
}

// ------------------------------------------------------------------------------------- strategies

static bool has_collector(workload_strategy strategy) {
    return strategy >= WORKLOAD_BYTES;
}

static nd_status apply_strategy(run *run) {
    const workload_strategy strategy = run->settings.options.strategy;
    const nd_device_kind kind = run->settings.options.device.kind;
    nd_status status =
        nd_manager_set_gc_mode(run->manager, has_collector(strategy) ? ND_GC_ON : ND_GC_OFF);
    if (status != ND_OK || !has_collector(strategy) || strategy == WORKLOAD_BOUNDARY)
        return status;
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.boundary = 0;
    if (strategy != WORKLOAD_ADAPTIVE) {
        for (int i = 0; i < ND_DEVICE_KIND_COUNT; i++)
            policy.allocated_bytes[i] = 0;
        policy.tracked_objects = 0;
        policy.interval_ns = 0;
    }
    if (strategy == WORKLOAD_BYTES)
        policy.allocated_bytes[kind] = threshold_bytes;
    status = nd_manager_set_gc_policy(run->manager, &policy);
    const uint64_t room = run->settings.room_bytes;
    if (status == ND_OK && strategy == WORKLOAD_PRESSURE && room)
        status = nd_manager_set_quota(run->manager, kind,
                                      nd_manager_get_total_bytes(run->manager) + room);
    return status;
}

static nd_status one_step(run *run, double *ret_value) {
    const workload_strategy strategy = run->settings.options.strategy;
    if (run_has_boundaries(strategy))
        return step_below(run, ret_value);
    nd_status status = ND_OK;
    nd_with_manager(run->manager) status =
        run->workload->step(run->state, run->figures.steps, ret_value);
    if (status == ND_OK && strategy == WORKLOAD_PERIODIC &&
        (run->figures.steps + 1) % STEPS_BETWEEN_COLLECTIONS == 0)
        status = nd_gc_collect(run->manager, NULL);
    return status;
}

/// A step in a manager of its own.
static nd_status step_below(run *run, double *ret_value) {
    nd_auto nd_manager *step = nd_manager_new(run->manager, "step");
    if (!step)
        return nd_error_get_status();
    nd_status status = ND_OK;
    nd_with_manager(step) status = run->workload->step(run->state, run->figures.steps, ret_value);
    nd_status ended = end_step(run, step);
    return status == ND_OK ? ended : status;
}

static nd_status end_step(run *run, nd_manager *step) {
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    const workload_strategy strategy = run->settings.options.strategy;
    nd_status status = ND_OK;
    if (strategy == WORKLOAD_SCOPE)
        status = nd_gc_collect(step, NULL);
    nd_status closed = strategy == WORKLOAD_DISPOSE ? nd_manager_dispose(step, &report)
                                                    : nd_manager_close(step, &report);
    if (report.escaped_objects)
        note_escape(run, &report);
    return status == ND_OK ? closed : status;
}

// ---------------------------------------------------------------------------------------- figures

static void note_escape(run *run, const nd_close_report *report) {
    run->figures.escaped_objects = report->escaped_objects;
    for (size_t i = 0; i < RUN_SITES; i++)
        snprintf(run->figures.escaped_sites[i], RUN_SITE, "%s", report->escaped_sites[i]);
}

/// Keeps the first values, and Fowler, Noll and Vo's hash of the bits of all.
static void note_value(run *run, double value) {
    unsigned char bytes[sizeof value];
    memcpy(bytes, &value, sizeof value);
    if (run->figures.steps < WORKLOAD_FIRST_STEPS)
        run->figures.first_values[run->figures.steps] = value;
    for (size_t i = 0; i < sizeof bytes; i++)
        run->digest = (run->digest ^ bytes[i]) * UINT64_C(1099511628211);
}

static void read_totals(run *run) {
    run_figures *figures = &run->figures;
    nd_gc_stats totals = ND_GC_STATS_INIT;
    nd_gc_get_stats(&totals);
    figures->collections = totals.collections;
    figures->cycles = totals.cycles;
    figures->collected_objects = totals.collected_objects;
    figures->collected_bytes = totals.collected_bytes;
    figures->postponed_objects = totals.postponed_objects;
    figures->pause_seconds = (double)totals.gate_closed_ns_max / 1e9;
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    nd_manager_get_stats(run->manager, &stats);
    for (int i = 0; i < ND_DEVICE_KIND_COUNT; i++)
        figures->peak_bytes += stats.peak_bytes[i];
    figures->peak_device_bytes = stats.peak_bytes[ND_CUDA];
    nd_memory_device_stats device = ND_MEMORY_DEVICE_STATS_INIT;
    nd_synchronize(
        run->settings.options.device); // then what is pending is what data are rounded by
    nd_memory_get_device_stats(run->settings.options.device, &device);
    figures->device_bytes = device.live + device.pending;
    figures->memory = (nd_memory_stats)ND_MEMORY_STATS_INIT;
    nd_memory_get_stats(&figures->memory);
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        figures->peak_resident_bytes = (uint64_t)usage.ru_maxrss * 1024;
    figures->peak_address_bytes = run_address_bytes();
}

uint64_t run_address_bytes(void) {
    FILE *status = fopen("/proc/self/status", "re");
    if (!status)
        return 0;
    char line[256];
    uint64_t kibibytes = 0;
    while (fgets(line, sizeof line, status))
        if (sscanf(line, "VmPeak: %" SCNu64 " kB", &kibibytes) == 1)
            break;
    fclose(status);
    return kibibytes * 1024;
}
