// A run in a process of its own, so that its resident bytes and peaks are its own, and that a limit
// of its memory limits nobody else. The parent gives it turns, so that several are measured beside
// each other.
//
// Invariant: a child works only between child_turn()'s beginning and end, and ends with its parent.
#ifndef ND_BENCH_WORKLOADS_CHILD_H
#define ND_BENCH_WORKLOADS_CHILD_H
#include "bench/workloads/harness/run.h"

#include <sys/types.h>

typedef struct child_shared child_shared;

typedef struct child {
    pid_t process;        ///< 0: it has ended
    child_shared *shared; ///< memory that both see; NULL: it was not started
} child;

/// Called every tenth of a second while a child works, with the steps it has done so far.
typedef void (*child_watch)(int64_t steps, void *data);

/// Starts the process, which opens the workload in its first turn. Its address space is bounded by
/// `address_bytes`; 0: it is not. False with a printed message on failure. No thread of the library
/// may run in this process yet.
bool child_start(child *child, const workload *workload, const run_settings *settings,
                 uint64_t address_bytes);
/// Gives it `steps` steps. False when it failed or has died: then its figures say why.
bool child_turn(child *child, int64_t steps, child_watch watch, void *data, run_turn *ret_turn);
/// Lets it finish and waits for its end. The figures are copied to `ret_figures`.
void child_finish(child *child, child_watch watch, void *data, run_figures *ret_figures);

#endif
