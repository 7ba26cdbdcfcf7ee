// Work under limits: a workload that leaks by construction, in a process whose address space is
// bounded (RLIMIT_AS) at 60 % of what the leaking run takes at its peak. With the collector off it
// fails, with an error that names who holds the memory and what was tried; with the collector on it
// completes, and computes the same to the bit. The same with a quota of half of what the leaking run
// has alive at its peak, and in a control group of 60 % of its resident bytes, where the kernel ends
// what runs over. On a device other than the CPU it is the device's memory that is bounded instead of
// address space and control groups (nd_memory_set_limit). In a fifth of the memory, and with a collector that nothing calls but the lack of
// memory, the ladder's stages carry the run.
#include "bench/support/claims.h"
#include "bench/support/json.h"
#include "bench/support/machine.h"
#include "bench/support/memory_group.h"
#include "bench/support/numbers.h"
#include "bench/support/paths.h"
#include "bench/support/progress.h"
#include "bench/workloads/harness/child.h"
#include "bench/workloads/harness/settings.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WORKS_MAX = 4, CLAIMS_MAX = 16 * WORKS_MAX };

/// So many steps by default that a fifth of what the leaking run takes holds what one step needs. The
/// first two are run where none is named.
static const struct {
    const workload *workload;
    int64_t steps;
} defaults[] = {{&workload_wgan_gp, 150}, {&workload_large_images, 20}, {&workload_serve, 1000}};

/// Who runs, and in how much of what the leaking run takes.
static const struct limit {
    const char *name;
    workload_strategy strategy;
    double part;   ///< of its address space; 0: all there is
    double quota;  ///< of its live bytes; 0: none
    double group;  ///< of its resident bytes, for a control group; 0: none
    double device; ///< of what its data take of a device other than the CPU; 0: none
} limits[] = {
    {"off", WORKLOAD_LET_BE, 0, 0, 0, 0},
    {"off, 60 %", WORKLOAD_LET_BE, 0.6, 0, 0, 0},
    {"on, 60 %", WORKLOAD_BOUNDARY, 0.6, 0, 0, 0},
    {"off, quota 50 %", WORKLOAD_LET_BE, 0, 0.5, 0, 0},
    {"on, quota 50 %", WORKLOAD_BOUNDARY, 0, 0.5, 0, 0},
    {"off, group 60 %", WORKLOAD_LET_BE, 0, 0, 0.6, 0},
    {"on, group 60 %", WORKLOAD_BOUNDARY, 0, 0, 0.6, 0},
    {"pressure, 20 %", WORKLOAD_PRESSURE, 0.2, 0, 0, 0},
    {"pressure, quota 20 %", WORKLOAD_PRESSURE, 0, 0.2, 0, 0},
    {"off, device 60 %", WORKLOAD_LET_BE, 0, 0, 0, 0.6},
    {"on, device 60 %", WORKLOAD_BOUNDARY, 0, 0, 0, 0.6},
    {"pressure, device 20 %", WORKLOAD_PRESSURE, 0, 0, 0, 0.2},
};
enum { LIMITS = sizeof limits / sizeof *limits, LEAKING = 0 };

typedef struct result {
    uint64_t address_bytes;     ///< the limit
    uint64_t quota_bytes;       ///< the quota
    uint64_t group_bytes;       ///< the control group's
    uint64_t device_bytes;      ///< the device's
    uint64_t group_peak;        ///< the most that this group had; 0: the kernel does not say
    uint64_t kills;             ///< how many of its processes the kernel has ended
    char skipped[GROUP_REASON]; ///< why it was not run; "": it was
    run_turn turn;
    run_figures figures;
} result;

/// A workload and what became of it.
typedef struct work {
    const workload *workload;
    int64_t steps;
    uint64_t step_bytes; ///< address space that one step takes, with all that it begins with
    result results[LIMITS];
} work;

typedef struct report {
    work works[WORKS_MAX];
    size_t count;
    claim claims[CLAIMS_MAX];
    claim_list list;
} report;

/// What the progress bar says.
typedef struct view {
    const char *name;
    int64_t steps;
} view;

static bool choose(const workload_settings *settings, report *report);
static int run_all(const workload_settings *settings, work *work, claim_list *list);
static int64_t count_steps(const workload_settings *settings, const workload *workload);
static bool is_for(const struct limit *limit, nd_device device);
static bool measure_step(const workload_settings *settings, work *work);
static bool run_limited(const workload_settings *settings, const struct limit *limit,
                        const work *work, result *ret_result);
static run_settings settings_of_run(const workload_settings *settings, const work *work,
                                    workload_strategy strategy);
static bool leaves_room(const struct limit *limit, uint64_t step_bytes, result *result);
static bool make_group(result *result, memory_group *ret_group);
static void print_result(const struct limit *limit, const result *result);
static void print_ladder(const nd_memory_stats *memory);
static void judge(const workload_settings *settings, const work *work, claim_list *list);
static bool says_why(const struct limit *limit, const run_figures *figures, bool *ret_holders);
static void judge_ladder(const workload *workload, const struct limit *limit,
                         const nd_memory_stats *memory, claim_list *list);
static bool write_json(const workload_settings *settings, const report *report);
static void write_metrics(bench_json *json, const workload_settings *settings, const work *work);
static void write_work(bench_json *json, const workload_settings *settings, const work *work);
static void watch(int64_t steps, void *data);

int main(int argc, char **argv) {
    workload_settings settings = settings_default();
    settings.program = "limited";
    settings.about =
        "Runs workloads that leak (default: wgan_gp, 150 steps, and large_images, 20; serve: 1000) "
        "in\nbounded memory, off and on. Of these options it looks at --only, --steps, --device, "
        "--threads, "
        "--seed,\n--data and --json.";
    int answer = settings_read(argc, argv, &settings);
    if (answer >= 0)
        return answer;
    if (settings.json && !bench_check_result("limited", settings.json))
        return 2;
    static report report;
    report.list = (claim_list){.claims = report.claims, .size = CLAIMS_MAX};
    if (!choose(&settings, &report))
        return 2;
    for (size_t i = 0; i < report.count; i++) {
        answer = run_all(&settings, &report.works[i], &report.list);
        if (answer >= 0)
            return answer;
    }
    bool good = claims_print(report.claims, report.list.count);
    if (settings.json && !write_json(&settings, &report))
        return 2;
    return good ? 0 : 1;
}

/// Those that are named, or the first two that leak. False, and it says why, when one of them leaves
/// nothing behind.
static bool choose(const workload_settings *settings, report *report) {
    for (size_t i = 0; workloads[i]; i++) {
        bool wanted = settings->only_count ? settings_want(settings, workloads[i])
                                           : workloads[i] == defaults[0].workload ||
                                                 workloads[i] == defaults[1].workload;
        if (!wanted)
            continue;
        if (!workloads[i]->makes_cycles) {
            fprintf(stderr, "limited: %s leaves nothing behind that a collector could free\n",
                    workloads[i]->name);
            return false;
        }
        if (report->count == WORKS_MAX) {
            fprintf(stderr, "limited: at most %d workloads at once\n", WORKS_MAX);
            return false;
        }
        report->works[report->count++] =
            (work){.workload = workloads[i], .steps = count_steps(settings, workloads[i])};
    }
    return true;
}

/// A workload under every limit, judged. Returns the exit status when that ends the program, else -1.
static int run_all(const workload_settings *settings, work *work, claim_list *list) {
    const workload *workload = work->workload;
    char machine[512];
    printf("%s: %s (%" PRId64 " steps)\n%s; threads: %d\n\n", workload->name, workload->summary,
           work->steps, bench_machine_line(machine, sizeof machine), settings->threads);
    printf("  %-20s %12s %12s %13s %12s %7s  %s\n", "", "limit", "address peak", "resident peak",
           "live peak", "steps", "ended");
    if (settings->device.kind == ND_CPU && !measure_step(settings, work))
        return 2;
    for (size_t i = 0; i < LIMITS; i++) {
        if (!is_for(&limits[i], settings->device))
            continue;
        if (!run_limited(settings, &limits[i], work, &work->results[i]))
            return 2;
        if (work->results[i].figures.no_device) { // a normal answer, as in //bench:workloads
            printf("no CUDA device\n");
            return 0;
        }
        print_result(&limits[i], &work->results[i]);
    }
    printf("\n");
    judge(settings, work, list);
    return -1;
}

static int64_t count_steps(const workload_settings *settings, const workload *workload) {
    if (settings->steps)
        return settings->steps;
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++)
        if (defaults[i].workload == workload)
            return defaults[i].steps;
    return settings_steps(settings, workload);
}

/// Address space and control groups bound the host's memory, where the work is on the CPU.
static bool is_for(const struct limit *limit, nd_device device) {
    const bool of_host = limit->part > 0 || limit->group > 0, of_device = limit->device > 0;
    return device.kind == ND_CPU ? !of_device : !of_host;
}

/// What a limit must hold for anything to be said about it.
static bool measure_step(const workload_settings *settings, work *work) {
    const run_settings of_run = settings_of_run(settings, work, WORKLOAD_BOUNDARY);
    child child;
    run_turn turn;
    run_figures figures;
    if (!child_start(&child, work->workload, &of_run, 0))
        return false;
    child_turn(&child, 1, NULL, NULL, &turn);
    child_finish(&child, NULL, NULL, &figures);
    if (figures.status != ND_OK)
        fprintf(stderr, "limited: %s: %s\n", work->workload->name, figures.message);
    work->step_bytes = figures.peak_address_bytes;
    return figures.status == ND_OK;
}

static run_settings settings_of_run(const workload_settings *settings, const work *work,
                                    workload_strategy strategy) {
    return (run_settings){.options = {.device = settings->device,
                                      .strategy = strategy,
                                      .seed = settings->seed,
                                      .steps = work->steps,
                                      .data = settings->data},
                          .threads = settings->threads};
}

static bool run_limited(const workload_settings *settings, const struct limit *limit,
                        const work *work, result *ret_result) {
    const run_figures *of = &work->results[LEAKING].figures;
    ret_result->address_bytes = (uint64_t)(limit->part * (double)of->peak_address_bytes);
    ret_result->quota_bytes = (uint64_t)(limit->quota * (double)of->peak_bytes);
    ret_result->group_bytes = (uint64_t)(limit->group * (double)of->peak_resident_bytes);
    ret_result->device_bytes = (uint64_t)(limit->device * (double)of->device_bytes);
    run_settings of_run = settings_of_run(settings, work, limit->strategy);
    of_run.quota_bytes = ret_result->quota_bytes;
    of_run.device_bytes = ret_result->device_bytes;
    view view = {.name = limit->name, .steps = work->steps};
    memory_group group = {0};
    if (!leaves_room(limit, work->step_bytes, ret_result))
        return true;
    if (limit->group > 0 && !make_group(ret_result, &group))
        return true;
    child child;
    if (!child_start(&child, work->workload, &of_run, ret_result->address_bytes)) {
        memory_group_remove(&group);
        return false;
    }
    // Before its first turn the child does nothing, so all that it does is the group's.
    if (limit->group > 0 && !memory_group_add(&group, child.process))
        snprintf(ret_result->skipped, sizeof ret_result->skipped,
                 "no process can be moved into %.400s", group.folder);
    else
        child_turn(&child, work->steps, watch, &view, &ret_result->turn);
    child_finish(&child, NULL, NULL, &ret_result->figures);
    bench_progress_clear();
    if (limit->group > 0) {
        ret_result->group_peak = memory_group_get_peak(&group);
        ret_result->kills = memory_group_get_kills(&group);
    }
    if (!memory_group_remove(&group))
        fprintf(stderr, "limited: %s cannot be removed: %s\n", group.folder, strerror(errno));
    return true;
}

/// False where so small a part of the address space does not even hold one step, with the program
/// and the workload's threads; the result then says so. Too few steps leave too little for a part of
/// it to mean anything.
static bool leaves_room(const struct limit *limit, uint64_t step_bytes, result *result) {
    if (limit->part <= 0 || result->address_bytes > step_bytes)
        return true;
    char part[NUMBER_TEXT], step[NUMBER_TEXT];
    snprintf(result->skipped, sizeof result->skipped,
             "%s of address space do not hold one step, which takes %s: more steps",
             in_units(part, result->address_bytes), in_units(step, step_bytes));
    return false;
}

/// False when this machine lets nobody make one; the result then says why.
static bool make_group(result *result, memory_group *ret_group) {
    memory_group parent;
    return memory_group_find_parent(GROUP_ROOT, GROUP_OWN, &parent, result->skipped) &&
           memory_group_make(&parent, result->group_bytes, ret_group, result->skipped);
}

static void print_result(const struct limit *limit, const result *result) {
    char bound[NUMBER_TEXT], address[NUMBER_TEXT], resident[NUMBER_TEXT], live[NUMBER_TEXT];
    const run_figures *figures = &result->figures;
    const uint64_t bytes =
        result->address_bytes + result->quota_bytes + result->group_bytes + result->device_bytes;
    if (result->skipped[0]) {
        printf("  %-20s SKIPPED: %s\n", limit->name, result->skipped);
        return;
    }
    const bool killed = result->kills > 0; // then nobody has told us its figures
    const uint64_t peak = killed ? result->group_peak : figures->peak_resident_bytes;
    printf("  %-20s %12s %12s %13s %12s %7" PRId64 "  %s\n", limit->name,
           bytes ? in_units(bound, bytes) : "-",
           killed ? "-" : in_units(address, figures->peak_address_bytes), in_units(resident, peak),
           killed ? "-" : in_units(live, figures->peak_bytes), figures->steps,
           killed                     ? "killed"
           : figures->status == ND_OK ? "well"
                                      : nd_status_get_name(figures->status));
    if (figures->status != ND_OK)
        printf("      %s\n", figures->message);
    if (figures->memory.walks)
        print_ladder(&figures->memory);
}

static void print_ladder(const nd_memory_stats *memory) {
    static const char *const stages[ND_MEMORY_STAGE_COUNT] = {
        [ND_MEMORY_STAGE_RETIRE] = "retire",   [ND_MEMORY_STAGE_TRIM] = "trim",
        [ND_MEMORY_STAGE_COLLECT] = "collect", [ND_MEMORY_STAGE_CALLBACK] = "callback",
        [ND_MEMORY_STAGE_WAIT] = "wait",
    };
    char bytes[NUMBER_TEXT];
    printf("      ladder: %" PRIu64 " walks, %" PRIu64 " failed", memory->walks, memory->failures);
    for (int i = 0; i < ND_MEMORY_STAGE_COUNT; i++)
        if (memory->stages[i].reached)
            printf("; %s reached %" PRIu64 " times, enough %" PRIu64 " times, %s", stages[i],
                   memory->stages[i].reached, memory->stages[i].enough,
                   in_units(bytes, memory->stages[i].bytes));
    printf("\n");
}

static void judge(const workload_settings *settings, const work *work, claim_list *list) {
    const workload *workload = work->workload;
    const result *results = work->results, *leaking = &results[LEAKING];
    const char *name = workload->name;
    const int64_t steps = work->steps;
    bool leaked = leaking->figures.status == ND_OK && leaking->figures.left_objects > 0;
    claims_add(list, leaked ? HOLDS : FAILS, "%s, off, without a limit: completes and leaks", name);
    for (size_t i = LEAKING + 1; i < LIMITS; i++) {
        if (!is_for(&limits[i], settings->device))
            continue;
        const run_figures *figures = &results[i].figures;
        bool none = figures->remaining_objects == 0 && figures->remaining_bytes == 0;
        if (results[i].skipped[0]) {
            claims_add(list, NOT_JUDGED, "%s, %s: %.200s", name, limits[i].name,
                       results[i].skipped);
            continue;
        }
        if (limits[i].strategy == WORKLOAD_LET_BE && limits[i].group > 0) {
            bool killed = figures->status != ND_OK && results[i].kills == 1;
            claims_add(list, killed && figures->steps < steps ? HOLDS : FAILS,
                       "%s, %s: the kernel ends it after %" PRId64 " steps", name, limits[i].name,
                       figures->steps);
            continue;
        }
        if (limits[i].strategy == WORKLOAD_LET_BE) {
            nd_status expected = limits[i].quota > 0 ? ND_ERROR_QUOTA : ND_ERROR_OUT_OF_MEMORY;
            bool holders = false;
            bool told = figures->status == expected && says_why(&limits[i], figures, &holders);
            claims_add(list, told && none ? HOLDS : FAILS,
                       "%s, %s: no memory after %" PRId64 " steps; the error %s; nothing is left",
                       name, limits[i].name, figures->steps,
                       holders ? "names holders and what was tried" : "says for what");
            continue;
        }
        bool completes =
            figures->status == ND_OK && figures->steps == steps && none && results[i].kills == 0;
        bool same = results[i].turn.digest == leaking->turn.digest;
        // Where no memory is left for oneDNN, loops compute whose last bits are others.
        double value = leaking->turn.value;
        bool near = limits[i].strategy == WORKLOAD_PRESSURE &&
                    fabs(results[i].turn.value - value) <= 1e-2 * fabs(value);
        claims_add(list, completes && (same || near) ? HOLDS : FAILS,
                   "%s, %s: completes, every step's %s is the same%s; nothing is left", name,
                   limits[i].name, workload->value,
                   same || !near ? " to the bit" : " on average, within 1 %");
        if (limits[i].strategy != WORKLOAD_PRESSURE)
            continue;
        judge_ladder(workload, &limits[i], &figures->memory, list);
    }
}

/// Data that do not fit have an error that names who holds the memory, and what was tried. In a quota
/// or a device's memory nothing else ends. Address space may end for the library's structures, for a
/// library of pictures or for the workload itself, and then the error says for what.
static bool says_why(const struct limit *limit, const run_figures *figures, bool *ret_holders) {
    *ret_holders = strstr(figures->message, "largest holders: ") != NULL &&
                   strstr(figures->message, "tried: ") != NULL;
    const bool for_what = strstr(figures->message, ": no memory for ") != NULL ||
                          strstr(figures->message, ": no memory to ") != NULL ||
                          strstr(figures->message, RUN_NO_MEMORY) != NULL;
    return *ret_holders || (limit->part > 0 && for_what);
}

/// Memory that ends is first looked for in caches, a quota in no cache; and only a device with a
/// queue has frees to be waited for, which a quota does not count. Requests that overrun quotas of the
/// workload's own fail, that all others do not, it says itself, and what is collected for them may
/// keep memory from ending.
static void judge_ladder(const workload *workload, const struct limit *limit,
                         const nd_memory_stats *memory, claim_list *list) {
    const nd_memory_stage_stats *stages = memory->stages;
    const char *name = workload->name;
    const bool of_device = limit->device > 0, of_quota = limit->quota > 0;
    if (memory->walks == 0) {
        claims_add(list, NOT_JUDGED, "%s, %s: there was room for every request", name, limit->name);
        return;
    }
    bool retired = stages[ND_MEMORY_STAGE_RETIRE].reached > 0;
    bool trimmed = stages[ND_MEMORY_STAGE_TRIM].reached > 0;
    // What a collection frees on a queue may have to be waited for, and one for a request that must
    // fail makes room for the next.
    bool collected = of_device || workload->refuses ? stages[ND_MEMORY_STAGE_COLLECT].bytes > 0
                                                    : stages[ND_MEMORY_STAGE_COLLECT].enough > 0;
    bool good = memory->failures == 0 || workload->refuses;
    bool carried =
        (retired || !of_device) && (trimmed == !of_quota || workload->refuses) && collected && good;
    claims_add(list, carried ? HOLDS : FAILS,
               "%s, %s: %s%scycles collected when there is no room; no request fails%s", name,
               limit->name, of_device ? "finished frees taken back, " : "",
               of_quota || (workload->refuses && !trimmed) ? "" : "caches trimmed, ",
               workload->refuses ? " but those beyond their own quotas" : "");
}

static bool write_json(const workload_settings *settings, const report *report) {
    FILE *stream = bench_open_result("limited", settings->json);
    if (!stream)
        return false;
    bench_json json = bench_json_on(stream);
    bench_json_begin_object(&json, NULL);
    bench_json_string(&json, "bench", "limited");
    bench_machine_json(&json);
    bench_json_begin_object(&json, "metrics");
    for (size_t i = 0; i < report->count; i++)
        write_metrics(&json, settings, &report->works[i]);
    bench_json_end_object(&json);
    bench_json_begin_array(&json, "workloads");
    for (size_t i = 0; i < report->count; i++)
        write_work(&json, settings, &report->works[i]);
    bench_json_end_array(&json);
    claims_json(&json, report->list.claims, report->list.count);
    bench_json_end_object(&json);
    return bench_json_close(&json);
}

/// What others compare: a number for each figure of a run, under its name.
static void write_metrics(bench_json *json, const workload_settings *settings, const work *work) {
    const char *name = work->workload->name;
    for (size_t i = 0; i < LIMITS; i++) {
        const result *result = &work->results[i];
        const run_figures *figures = &result->figures;
        const char *run = limits[i].name;
        if (!is_for(&limits[i], settings->device) || result->skipped[0])
            continue;
        bench_json_metric(json, (double)figures->steps, "%s_%s_steps", name, run);
        bench_json_metric(json, figures->status == ND_OK, "%s_%s_completed", name, run);
        bench_json_metric(json, (double)figures->peak_bytes, "%s_%s_peak_bytes", name, run);
        bench_json_metric(json, (double)figures->peak_resident_bytes, "%s_%s_peak_resident_bytes",
                          name, run);
        bench_json_metric(json, (double)figures->memory.walks, "%s_%s_walks", name, run);
    }
}

static void write_work(bench_json *json, const workload_settings *settings, const work *work) {
    bench_json_begin_object(json, NULL);
    bench_json_string(json, "workload", work->workload->name);
    bench_json_integer(json, "steps", (uint64_t)work->steps);
    bench_json_begin_array(json, "runs");
    for (size_t i = 0; i < LIMITS; i++) {
        if (!is_for(&limits[i], settings->device))
            continue;
        const run_figures *figures = &work->results[i].figures;
        bench_json_begin_object(json, NULL);
        bench_json_string(json, "run", limits[i].name);
        bench_json_integer(json, "limit_bytes", work->results[i].address_bytes);
        bench_json_integer(json, "quota_bytes", work->results[i].quota_bytes);
        bench_json_integer(json, "group_bytes", work->results[i].group_bytes);
        bench_json_integer(json, "device_bytes", work->results[i].device_bytes);
        bench_json_integer(json, "group_peak_bytes", work->results[i].group_peak);
        bench_json_integer(json, "group_kills", work->results[i].kills);
        bench_json_string(json, "skipped", work->results[i].skipped);
        bench_json_integer(json, "peak_address_bytes", figures->peak_address_bytes);
        bench_json_integer(json, "peak_resident_bytes", figures->peak_resident_bytes);
        bench_json_integer(json, "peak_bytes", figures->peak_bytes);
        bench_json_integer(json, "used_device_bytes", figures->device_bytes);
        bench_json_integer(json, "steps", (uint64_t)figures->steps);
        bench_json_string(json, "status", nd_status_get_name(figures->status));
        bench_json_string(json, "message", figures->message);
        bench_json_integer(json, "walks", figures->memory.walks);
        bench_json_integer(json, "retire_reached",
                           figures->memory.stages[ND_MEMORY_STAGE_RETIRE].reached);
        bench_json_integer(json, "trim_reached",
                           figures->memory.stages[ND_MEMORY_STAGE_TRIM].reached);
        bench_json_integer(json, "collect_reached",
                           figures->memory.stages[ND_MEMORY_STAGE_COLLECT].reached);
        bench_json_integer(json, "collect_enough",
                           figures->memory.stages[ND_MEMORY_STAGE_COLLECT].enough);
        bench_json_integer(json, "remaining_objects", figures->remaining_objects);
        bench_json_end_object(json);
    }
    bench_json_end_array(json);
    bench_json_end_object(json);
}

static void watch(int64_t steps, void *data) {
    const view *view = data;
    bench_progress_show(view->name, (double)steps / (double)view->steps);
}
