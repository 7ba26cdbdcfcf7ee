// The table and the JSON file of a benchmark that measures single figures: ours beside its rivals'.
//
// Invariant: a key begins with the target's number ("T11_ring2_ns_per_object"), and a rival's is
// the same with the rival's own part behind the number ("T11_rival_nim_ring2_ns_per_object"). Under
// that key a rival that runs as another process prints its figure, too.
#ifndef ND_BENCH_METRICS_H
#define ND_BENCH_METRICS_H
#include "bench/support/peer.h"
#include <stdbool.h>
#include <stddef.h>

enum { BENCH_RIVALS = 3 };

/// A column beside ours: another library, or what the machine can do at best.
typedef struct bench_rival {
    const char *title; ///< heads the column
    const char *key;   ///< its part of the keys, such as "rival_nim"
    const bench_peer
        *peer;        ///< the process that measured it, or NULL: this one did. Outdated: no rival
    const char *what; ///< a line below the table, when `peer` does not print its "library"
} bench_rival;

/// One line. A figure that was not measured is 0 or NaN, and is printed as "-".
typedef struct bench_metric {
    const char *work; ///< what was done, for people
    const char *name; ///< key of our figure
    const char *unit;
    double ours;
    double rivals[BENCH_RIVALS]; ///< in the order of bench_table.rivals
    double target;               ///< 0: none
    bool at_least;               ///< a rate: ours shall be at least the target, else at most
} bench_metric;

typedef struct bench_table {
    const char *bench;
    bench_metric *metrics;
    size_t count;
    bench_rival rivals[BENCH_RIVALS]; ///< those with a title
} bench_table;

/// Takes the figures of rivals that ran as processes into the table.
void bench_table_ask_peers(bench_table *table);

/// Prints the table, ours against the best of the rivals, met or not; below it each rival's
/// library, or why it did not run. A rival that is outdated has a column and no part in the ratio.
void bench_table_print(const bench_table *table);

/// Prints the geometric mean of ours by the first rival's over the figures that both have, how many
/// are above the bound, and the worst `worst` of them. Of a rival that is none it says that there is
/// no ratio.
void bench_table_print_ratios(const bench_table *table, double bound, size_t worst);

/// Writes {"bench", "machine", "metrics"} to `path` (NULL: nothing to do), without the figures of what
/// is no rival. On failure prints what went wrong and answers false.
bool bench_table_write(const bench_table *table, const char *path);

/// The three above, one after the other. Returns the exit status of the benchmark, which fails when
/// a figure of ours is missing.
int bench_table_finish(bench_table *table, const char *json);

/// Command line of such a benchmark: --json FILE, --help. Returns -1 to go on, else the exit
/// status.
int bench_metrics_options(int argc, char **argv, const char *about, const char **ret_json);

#endif
