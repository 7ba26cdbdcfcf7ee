// The table and the JSON file of a benchmark that measures single figures: ours beside the rival's.
#ifndef ND_BENCH_METRICS_H
#define ND_BENCH_METRICS_H
#include "bench/support/peer.h"
#include <stdbool.h>
#include <stddef.h>

/// One line. A figure that was not measured is NaN and is printed as "-".
typedef struct bench_metric {
    const char *work;  ///< what was done, for people
    const char *name;  ///< key of our figure, such as "T3_ns"
    const char *rival; ///< key of the rival's, such as "T3_rival_ns"; NULL: there is no rival
    const char *ratio; ///< key of rival / ours, such as "T3_ratio"; NULL: not written
    const char *unit;
    double ours;
    double theirs;
    double target; ///< at most this; NaN: none
} bench_metric;

/// Prints the table; `rival_name` heads the rival's column, and below it stands which library that
/// was ("library" of what the rival printed), or why it did not run.
void bench_metrics_print(const char *bench, const bench_metric *metrics, size_t count,
                         const char *rival_name, const bench_peer *peer);

/// Writes {"bench", "machine", "metrics"} to `path` (NULL: nothing to do). On failure prints what
/// went wrong and answers false.
bool bench_metrics_write(const char *path, const char *bench, const bench_metric *metrics,
                         size_t count);

/// Command line of such a benchmark: --json FILE, --help. Returns -1 to go on, else the exit
/// status.
int bench_metrics_options(int argc, char **argv, const char *about, const char **ret_json);

#endif
