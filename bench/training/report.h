// What the main job tells people: options, progress, table, claims, JSON and chart.
#ifndef ND_BENCH_REPORT_H
#define ND_BENCH_REPORT_H
#include "bench/support/claims.h"
#include "bench/support/numbers.h"
#include "bench/support/progress.h"
#include "bench/training/training.h"
#include "bench/workloads/workload.h"

/// Everything that was measured.
typedef struct report {
    const settings *settings;
    run_result runs[2 * SCENARIO_COUNT];
    size_t run_count;
    price_result price;
    uint64_t remaining_objects; ///< alive in the whole process at the end
    uint64_t remaining_bytes;
    double seconds;
} report;

/// The run of a scenario with the collector off or on; NULL when it was not asked for.
const run_result *report_find(const report *report, const scenario *scenario, bool collector_on);

// ---- options

/// Default number of epochs; accuracy is judged from here on.
enum { DEFAULT_EPOCHS = 10 };

/// Default time of the whole job. A quiet machine needs a fifth of it.
enum { DEFAULT_SECONDS = 120 };

/// Reads the command line. Returns -1 to go on, else the exit status.
int options_read(int argc, char **argv, settings *settings);
/// The workload that a scenario's name stands for; NULL: none.
const workload *options_find_workload(const char *name);

// ---- progress

void progress_show(const training *run, int epoch);
void progress_show_price(size_t done, size_t total);

// ---- table

void table_begin(const settings *settings, const digits *digits);
void table_scenario(const scenario *scenario, int64_t batch);
void table_epoch(const run_result *run, int epoch);
/// That there was no time for all epochs.
void table_stopped(const run_result *run, int epochs);
/// What is left when a run is over, and where what escaped was made.
void table_run_end(const run_result *run);

// ---- claims

enum { CLAIMS_MAX = 32 };

/// Judges everything the runs let one judge; returns how many claims were written.
size_t claims_judge(const report *report, claim claims[CLAIMS_MAX]);

// ---- files

/// Writes the whole report to the file that the user named. False with a printed message on failure.
bool report_json(const report *report, const claim *claims, size_t count, const char *path);
/// False with a printed message when the chart cannot be drawn.
bool chart_draw(const report *report, const char *path);

#endif
