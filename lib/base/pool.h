// The pool of threads that share the work of one computation.
//
// Invariant: shares are claimed. The caller does every share that no worker has begun, and waits
// only for shares that a worker is in the middle of; so a worker that the system does not run costs
// nothing, and neither does one that could not be started. Which thread does a share never changes
// what it does.
//
// A worker is started by the first computation that wants it. Between computations it spins for
// microseconds and then sleeps; after seconds of that it ends. It blocks all signals and touches
// nothing but the shares it is given. In a forked child there are no workers until the child's own
// computations want some.
#ifndef ND_LIB_BASE_POOL_H
#define ND_LIB_BASE_POOL_H
#include <stdbool.h>
#include <stdint.h>

/// The most threads that anybody may ask for.
#define ND__POOL_MOST 1024

typedef void (*nd__pool_body)(void *context, int64_t share);

/// Runs body(context, share) once for every share from 0 to shares - 1, on the calling thread and
/// on workers that are free, and returns when all are done. Serial inside a body, and where other
/// callers keep as many threads busy as there may be. From any thread.
void nd__pool_run(int64_t shares, nd__pool_body body, void *context);

/// Threads that a call from here may use, with the calling one: 1 inside a body.
int nd__pool_threads(void);

/// How many threads a computation may use, with the calling one: at first ND_NUM_THREADS, else
/// OMP_NUM_THREADS, else the number of CPUs that the process may use.
int nd__pool_limit(void);
/// 1 to ND__POOL_MOST. Waits for the workers that this makes superfluous, which end after the share
/// they are in.
void nd__pool_set_limit(int threads);

/// Whether what is cut into as many parts as there are threads is cut alike for any number of them
/// (nd_set_deterministic). False at first.
bool nd__pool_is_deterministic(void);
void nd__pool_set_deterministic(bool deterministic);

/// Ends all workers, and waits for what they are in the middle of: memory of theirs is free then. The
/// next computation starts others. Inside a body: nothing.
void nd__pool_end_workers(void);

/// After so long without a job all workers end. For tests.
void nd__pool_set_idle(int64_t nanoseconds);

/// So many of the next wakes keep workers off the caller's CPU. For tests.
void nd__pool_steer(int wakes);

/// Workers that are there now. For tests.
int nd__pool_workers(void);
#endif
