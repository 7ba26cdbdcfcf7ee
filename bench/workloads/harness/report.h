// What is told about contests: table, claims, JSON, charts.
#ifndef ND_BENCH_WORKLOADS_REPORT_H
#define ND_BENCH_WORKLOADS_REPORT_H
#include "bench/support/claims.h"
#include "bench/workloads/harness/contest.h"

typedef struct workload_report {
    const workload_settings *settings;
    contest *contests;
    size_t count;
    double seconds;
} workload_report;

/// What all is measured on.
void workload_report_begin(const workload_settings *settings);
/// The table of one workload, and what came out.
void workload_report_contest(const contest *contest);

/// Resident bytes of a side after a tenth of its steps, the first turn that has so many, and at the
/// end. False of a side whose turns are too few to have a tenth.
bool workload_report_resident(const side *side, double *ret_tenth, double *ret_end);

/// Judges everything the contest lets one judge.
void workload_report_judge(const contest *contest, const workload_settings *settings,
                           claim_list *list);

/// Writes everything to the file that the user named. False with a printed message on failure.
bool workload_report_json(const workload_report *report, const claim_list *claims);

/// Whether charts can be drawn; false with a printed message.
bool workload_report_check_charts(const workload_settings *settings);
/// Draws DIR/NAME.svg of each contest. False with a printed message on failure.
bool workload_report_charts(const workload_report *report);

#endif
