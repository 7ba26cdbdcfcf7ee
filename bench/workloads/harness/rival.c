// Talks with the script.
#include "bench/workloads/harness/rival.h"

#include "bench/workloads/harness/settings.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static bool hear(rival *rival, child_watch watch, void *data, bench_peer *answer);

bool rival_start(rival *rival, const workload *workload, const run_settings *settings) {
    *rival = (struct rival){0};
    for (int i = 0; i < WORKLOAD_FIRST_STEPS; i++)
        rival->first_values[i] = NAN;
    char steps[32];
    char seed[32];
    char threads[32];
    snprintf(steps, sizeof steps, "%" PRId64, settings->options.steps);
    snprintf(seed, sizeof seed, "%" PRIu64, settings->options.seed);
    snprintf(threads, sizeof threads, "%d", settings->threads);
    const char *const arguments[] = {workload->name,
                                     steps,
                                     seed,
                                     threads,
                                     settings->options.data ? settings->options.data : "",
                                     settings->hand_over ? settings->hand_over : "",
                                     settings_device_name(settings->options.device.kind),
                                     NULL};
    bench_peer answer;
    rival->process = bench_peer_open("pytorch_workloads.py", arguments, &answer);
    bool heard = rival->process && hear(rival, NULL, NULL, &answer);
    bench_peer_text(&answer, "library", rival->library, sizeof rival->library);
    rival->outdated = heard && answer.outdated;
    if (heard && *rival->library)
        return true;
    if (!*answer.skipped)
        bench_peer_text(&answer, "skipped", answer.skipped, sizeof answer.skipped);
    snprintf(rival->library, sizeof rival->library, "%.127s",
             *answer.skipped ? answer.skipped : "pytorch_workloads.py failed");
    rival->failed = !*answer.skipped;
    bench_peer_close(rival->process);
    rival->process = NULL;
    return false;
}

bool rival_turn(rival *rival, int64_t steps, child_watch watch, void *data, run_turn *ret_turn) {
    char line[32];
    bench_peer answer;
    snprintf(line, sizeof line, "%" PRId64, steps);
    bool heard = bench_peer_tell(rival->process, line) && hear(rival, watch, data, &answer);
    *ret_turn = (run_turn){.steps = steps, .seconds = NAN, .value = NAN};
    if (!heard)
        return false;
    ret_turn->seconds = bench_peer_number(&answer, "seconds");
    ret_turn->value = bench_peer_number(&answer, "value");
    for (int i = 0; i < WORKLOAD_FIRST_STEPS; i++) {
        char name[16];
        snprintf(name, sizeof name, "value_%d", i);
        double value = bench_peer_number(&answer, name);
        rival->first_values[i] = isnan(value) ? rival->first_values[i] : value;
    }
    ret_turn->resident_bytes = (uint64_t)bench_peer_number(&answer, "resident");
    return isfinite(ret_turn->seconds);
}

void rival_finish(rival *rival, run_figures *ret_figures) {
    bench_peer answer;
    ret_figures->outcome.score = NAN;
    memcpy(ret_figures->first_values, rival->first_values, sizeof rival->first_values);
    if (rival->process && bench_peer_tell(rival->process, "0") &&
        hear(rival, NULL, NULL, &answer)) {
        ret_figures->outcome.score = bench_peer_number(&answer, "score");
        ret_figures->peak_resident_bytes = (uint64_t)bench_peer_number(&answer, "resident");
        double device = bench_peer_number(&answer, "device");
        ret_figures->peak_device_bytes = isnan(device) ? 0 : (uint64_t)device;
        ret_figures->finished = true;
    }
    bench_peer_close(rival->process);
    rival->process = NULL;
}

/// Waits for a line. The watch is told nothing new: the script does not say how far it is.
static bool hear(rival *rival, child_watch watch, void *data, bench_peer *answer) {
    for (;;) {
        int heard = bench_peer_hear(rival->process, 100, answer);
        if (heard != 0)
            return heard > 0;
        if (watch)
            watch(-1, data);
    }
}
