// The whole of //bench:workloads but for its main(): //bench:gc_on_off runs workloads, too.
#ifndef ND_BENCH_WORKLOADS_HARNESS_H
#define ND_BENCH_WORKLOADS_HARNESS_H
#include "bench/workloads/harness/settings.h"

/// Runs what was asked for, and tells. Returns the exit status. No thread of the library may run in
/// this process yet.
int harness_run(const workload_settings *settings);

#endif
