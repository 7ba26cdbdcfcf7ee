/// @file
/// How many threads one computation on the CPU may use.
///
/// Operations on large tensors share their work between the thread that calls them and threads of
/// the library's own. Those are started by the first operation that wants them, spin for some
/// microseconds after each one and then sleep. An operation never waits for a thread that the
/// system does not run: it does itself what that has not begun. docs/threading.md says more.
#ifndef ND_THREADS_H
#define ND_THREADS_H
#include <nd/base.h>
#ifdef __cplusplus
extern "C" {
#endif

/// The most threads that can be asked for.
#define ND_MAX_THREADS 1024

/// Sets how many threads an operation on the CPU may use, the calling one included; 1: the library
/// starts none. For the whole process, from the next operation on. Threads that are then too many
/// end before this returns.
///
/// At first it is ND_NUM_THREADS of the environment, else OMP_NUM_THREADS (its first number), else
/// the number of CPUs that the process may use: its affinity, and the quota of its control group,
/// rounded up. What is not a number from 1 to ND_MAX_THREADS there is passed over. Both are ignored
/// in a setuid program.
///
/// The same setting gives the same results, whatever else runs. Another setting changes at most the
/// last bits of products and convolutions of f32 that oneDNN computes, and of nothing else.
///
/// @param threads 1 to ND_MAX_THREADS
/// @return ND_OK, or the error; then nothing has changed
/// @errors ND_ERROR_INVALID_ARGUMENT (out of range)
/// @threads any, but not from a callback that a device runs
ND_API nd_status nd_set_num_threads(int threads);

/// How many threads an operation on the CPU may use, the calling one included. Always 1 in a
/// library that was built without threads.
///
/// @threads any
ND_API int nd_get_num_threads(void);

#ifdef __cplusplus
}
#endif
#endif
