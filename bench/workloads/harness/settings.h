// What the user of //bench:workloads asked for.
#ifndef ND_BENCH_WORKLOADS_SETTINGS_H
#define ND_BENCH_WORKLOADS_SETTINGS_H
#include "bench/workloads/workload.h"

enum { SETTINGS_ONLY = 16 };

typedef struct workload_settings {
    const char *program; ///< begins messages
    const char *about;   ///< begins the help
    const char *only[SETTINGS_ONLY];
    size_t only_count; ///< 0: all workloads
    bool off;
    bool on;
    bool all_strategies;        ///< each a side; off and on say nothing then
    workload_strategy strategy; ///< of the side that is on
    bool peers;                 ///< PyTorch's side
    nd_device device;
    int threads;
    int64_t steps;  ///< 0: the workload's own
    double seconds; ///< about how long all may take
    uint64_t seed;
    uint64_t most_bytes; ///< at which a side that grows ends
    const char *data;
    const char *output;
    const char *json;
    const char *plot;  ///< folder for charts
    const char *chart; ///< or the file for that of the only workload
} workload_settings;

/// The defaults: everything, off and on, on the CPU.
workload_settings settings_default(void);
/// "cpu" or "cuda".
const char *settings_device_name(nd_device_kind kind);
/// Reads the command line. Returns -1 to go on, else the exit status.
int settings_read(int argc, char **argv, workload_settings *settings);
/// Whether this workload was asked for.
bool settings_want(const workload_settings *settings, const workload *workload);
/// How many steps it shall take.
int64_t settings_steps(const workload_settings *settings, const workload *workload);

#endif
