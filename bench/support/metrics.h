// The table, the JSON file and the chart of a benchmark that measures single figures: ours beside its
// rivals'.
//
// A verdict is one on the ratio of ours to the rival's of the same run: absolute figures differ by a
// factor of two between machines. A target of ours alone is for what no rival does.
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
    const char *key; ///< its part of the keys, such as "rival_nim"; NULL: its figures are those of
                     ///< other lines, and are not written again
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
    double ratio;                ///< what ours by the rival's shall be; 0: nothing is asked of it
    double target;               ///< what ours shall be, whatever the rival's is; 0: likewise
    unsigned beside; ///< the columns whose best is the rival's figure, as bits; 0: all of them
    bool at_least;   ///< a rate: ours shall be at least that much, else at most
} bench_metric;

/// "flat" and "linear" as a ratio: of what must not grow with more objects or more threads.
#define BENCH_FLAT 1.1

typedef struct bench_table {
    const char *bench;
    bench_metric *metrics;
    size_t count;
    bench_rival rivals[BENCH_RIVALS]; ///< those with a title
    size_t worst; ///< how many of the largest ratios stand below it, with their geometric mean
    double
        mean; ///< what that shall be at most; 0: anything, such as where only a part was measured
} bench_table;

/// Whether a line is what it shall be.
typedef enum bench_verdict {
    BENCH_NO_TARGET,
    BENCH_MET,
    BENCH_MISSED,
    BENCH_NO_RIVAL, ///< a column that it is beside has no figure: ours may be the better one or not
} bench_verdict;

/// Takes the figures of rivals that ran as processes into the table.
void bench_table_ask_peers(bench_table *table);

/// The figure of a column that may be compared; NaN when there is none. An outdated rival is none.
double bench_table_rival(const bench_table *table, const bench_metric *metric, size_t r);

/// Ours by the best of the rivals' that the line is beside; NaN when there is none.
double bench_table_ratio(const bench_table *table, const bench_metric *metric);

bench_verdict bench_table_verdict(const bench_table *table, const bench_metric *metric);

/// Prints the table: ours, the rivals', the ratio, what it shall be, met or missed, or without whose
/// figure nothing can be said. Below it each rival's library, or why it did not run, and, where the
/// table asks for it, the geometric mean of all ratios, how many are above their target, and the
/// largest.
void bench_table_print(const bench_table *table);

/// Writes {"bench", "machine", "metrics"} to `path` (NULL: nothing to do), without the figures of what
/// is no rival. On failure prints what went wrong and answers false.
bool bench_table_write(const bench_table *table, const char *path);

/// What is to be written beside the table; NULL: not that.
typedef struct bench_files {
    const char *json;
    const char *plot; ///< the chart, .png or .svg
} bench_files;

/// Whether these can be written, asked before anything is measured. False with a printed message.
bool bench_files_check(const char *bench, const bench_files *files);

/// Asks the peers, prints, writes the file and draws the chart. Returns the exit status of the
/// benchmark, which fails when a figure of ours is missing.
int bench_table_finish(bench_table *table, const bench_files *files);

/// Command line of such a benchmark: --json FILE, --plot FILE, --help. Returns -1 to go on, else the
/// exit status.
int bench_metrics_options(int argc, char **argv, const char *about, bench_files *ret_files);

#endif
