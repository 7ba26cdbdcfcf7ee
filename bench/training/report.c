// Looking things up in a report.
#include "bench/training/report.h"

const run_result *report_find(const report *report, const scenario *scenario, bool collector_on) {
    for (size_t i = 0; i < report->run_count; i++) {
        const run_result *run = &report->runs[i];
        if (run->scenario == scenario && run->collector_on == collector_on)
            return run;
    }
    return NULL;
}
