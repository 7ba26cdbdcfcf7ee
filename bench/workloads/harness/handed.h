// The folder in which a workload hands over what PyTorch's side begins with.
#ifndef ND_BENCH_WORKLOADS_HANDED_H
#define ND_BENCH_WORKLOADS_HANDED_H
#include "bench/workloads/harness/child.h"

typedef struct handed {
    char folder[4096]; ///< empty: there is none
} handed;

/// Lets the workload write it, in a process of its own, so that no side's figures know of it. Nothing
/// is made for a workload without hand_over, and where there is no such device. False with a printed
/// message on failure.
bool handed_make(handed *handed, const workload *workload, const run_settings *settings);
/// Removes folder and files.
void handed_remove(handed *handed);

#endif
