// PyTorch doing the work of a workload, in a process that takes turns as a child does.
//
// bench/peers/pytorch_workloads.py NAME STEPS SEED THREADS DATA FOLDER DEVICE reads what was handed
// over, if FOLDER is not empty, and prints a line {"library": "..."} or {"skipped": "why"}. Then it
// reads lines: a number of steps, answered by a line {"seconds": ..., "value": ...}, with "value_0"
// and so on for each of the first steps, or 0, answered by {"score": ..., "resident": ...}, with
// "device" (bytes of its memory) where DEVICE is cuda, and its end.
#ifndef ND_BENCH_WORKLOADS_RIVAL_H
#define ND_BENCH_WORKLOADS_RIVAL_H
#include "bench/support/peer_process.h"
#include "bench/workloads/harness/child.h"

#include <stdio.h>

typedef struct rival {
    bench_peer_process *process;               ///< NULL: none runs
    char library[128];                         ///< such as "PyTorch 2.15.0", or why it is skipped
    bool failed;                               ///< the script ended without a word
    bool outdated;                             ///< its times are no rival's
    double first_values[WORKLOAD_FIRST_STEPS]; ///< NaN: not done
} rival;

/// On a device of the kind that ours has. False when it is skipped; `library` says why. What it begins
/// with is in settings->hand_over, and has been read when this returns.
bool rival_start(rival *rival, const workload *workload, const run_settings *settings);
/// False when it has died.
bool rival_turn(rival *rival, int64_t steps, child_watch watch, void *data, run_turn *ret_turn);
/// Asks for its score (NaN: none) and waits for its end.
void rival_finish(rival *rival, run_figures *ret_figures);

#endif
