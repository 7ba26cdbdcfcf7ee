// Contest after contest, then claims and files. Each contest may take its share of the time that is
// left.
#include "bench/workloads/harness/harness.h"

#include "bench/support/measure.h"
#include "bench/support/paths.h"
#include "bench/workloads/harness/report.h"

#include <stdio.h>
#include <stdlib.h>

enum { CLAIMS_MAX = 256 };

static bool run_contests(workload_report *report);
static bool device_is_missing(const workload_report *report);
static int tell(const workload_report *report);

int harness_run(const workload_settings *settings) {
    const bool charts = settings->plot || settings->chart;
    if (charts && !workload_report_check_charts(settings))
        return 2;
    if (settings->json && !bench_check_result(settings->program, settings->json))
        return 2;
    size_t wanted = 0;
    for (size_t i = 0; workloads[i]; i++)
        wanted += settings_want(settings, workloads[i]);
    workload_report report = {.settings = settings,
                              .contests = calloc(wanted, sizeof *report.contests)};
    double begin = bench_seconds();
    int answer = 2;
    if (report.contests && run_contests(&report)) {
        report.seconds = bench_seconds() - begin;
        answer = tell(&report);
        if (charts && !workload_report_charts(&report))
            answer = 2;
        printf("%.1f seconds in all\n", report.seconds);
    } else if (device_is_missing(&report)) {
        printf("no CUDA device\n");
        answer = 0;
    }
    free(report.contests);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "%s: the table could not be written\n", settings->program);
        answer = 2;
    }
    return answer;
}

static bool run_contests(workload_report *report) {
    const workload_settings *settings = report->settings;
    const double deadline = bench_seconds() + settings->seconds;
    size_t left = 0;
    for (size_t i = 0; workloads[i]; i++)
        left += settings_want(settings, workloads[i]);
    workload_report_begin(settings);
    bool good = true;
    for (size_t i = 0; workloads[i] && good; i++) {
        if (!settings_want(settings, workloads[i]))
            continue;
        double now = bench_seconds();
        contest *contest = &report->contests[report->count++];
        good = contest_run(contest, workloads[i], settings, now + (deadline - now) / (double)left);
        left--;
        if (good)
            workload_report_contest(contest);
    }
    return good;
}

/// No device of that kind is a normal answer.
static bool device_is_missing(const workload_report *report) {
    for (size_t i = 0; i < report->count; i++)
        for (size_t j = 0; j < report->contests[i].side_count; j++)
            if (report->contests[i].sides[j].figures.no_device)
                return true;
    return false;
}

/// Judges, prints and writes. The program's exit status.
static int tell(const workload_report *report) {
    static claim claims[CLAIMS_MAX];
    claim_list list = {.claims = claims, .size = CLAIMS_MAX};
    for (size_t i = 0; i < report->count; i++)
        workload_report_judge(&report->contests[i], report->settings, &list);
    bool good = claims_print(claims, list.count);
    if (report->settings->json && !workload_report_json(report, &list))
        return 2;
    return good ? 0 : 1;
}
