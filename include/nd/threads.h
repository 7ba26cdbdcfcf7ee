/// @file
/// How many threads one computation on the CPU may use, and whether results may depend on it.
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
/// last bits of what oneDNN computes, products of f32 and bf16 and convolutions of f32, f16, bf16; with
/// nd_set_deterministic(true), of nothing.
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

/// Sets whether the same operations on the same values give the same bits on every run: for any
/// number of threads, and on devices that otherwise add in the order in which their threads arrive.
/// (Not the sign and the payload of a NaN.)
/// For the whole process, from the next operation on; at first false. docs/threading.md says what
/// it changes, and what is the same without it.
///
/// On the CPU products and convolutions in f32 are cut in the same places for any number of threads,
/// which for one thread costs some of their speed. On CUDA nd_scatter_add and the gradients that
/// are made with it (of nd_take, nd_gather, nd_embedding and of the largest of windows)
/// use one thread for each line along the axis, which is much slower where lines are few and long.
/// Every operation of the library can be computed so, and none is refused. What a program's own
/// nd_function computes is its own affair. Other processors, devices and versions of the library may give other bits.
///
/// @param deterministic whether
/// @errors none
/// @threads any; an operation that another thread is in the middle of may go either way
ND_API void nd_set_deterministic(bool deterministic);

/// Whether nd_set_deterministic() is in force.
///
/// @errors none
/// @threads any
ND_API bool nd_is_deterministic(void);

#ifdef __cplusplus
}
#endif
#endif
