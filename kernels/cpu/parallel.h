// Work shared between threads.
//
// Invariant: how work is cut never changes a result. A body writes only what belongs to its range,
// and sums are cut at places that depend on sizes alone (reduce.c), not on the number of threads.
#ifndef ND_KERNELS_CPU_PARALLEL_H
#define ND_KERNELS_CPU_PARALLEL_H
#include <stdbool.h>
#include <stdint.h>

/// Below this much work, in units of one addition of floats, handing some of it to another thread
/// costs more than it saves.
#define ND__PARALLEL_WORK 32768

typedef void (*nd__range_body)(void *context, int64_t begin, int64_t end);

/// Runs body over [0, total), in pieces on several threads when total * cost is ND__PARALLEL_WORK
/// or more. `cost` is the work of one index. Inner cuts fall on multiples of `grain`.
void nd__cpu_parallel(int64_t total, int64_t cost, int64_t grain, nd__range_body body,
                      void *context);

/// Threads that a call from here may use: 1 inside a body.
int nd__cpu_threads(void);

/// Whether nothing may be cut by the number of threads (nd_set_deterministic).
bool nd__cpu_is_deterministic(void);
#endif
