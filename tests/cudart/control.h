// What a test tells the fake runtime, and asks of it. The environment says the same for a whole
// program:
//
//   ND_CUDART_SEED=N           order of streams, when memory is reused, how early work happens; 0: never before
//                              somebody waits for it
//   ND_CUDART_DEVICES=90,75    compute capability of each device (90 for 9.0)
//   ND_CUDART_MEMORY=BYTES     of each device
//   ND_CUDART_FAIL=[NAME:]N:E  the N-th call (of NAME) answers error number E
//   ND_CUDART_LOSE=N           the N-th step of work fails as a launch does, for good
//   ND_CUDART_RACES=1          two streams that touch one allocation, one of them writing, with no order between
//                              them end the program
#ifndef ND_TESTS_CUDART_CONTROL_H
#define ND_TESTS_CUDART_CONTROL_H
#include "tests/cudart/include/cuda_runtime_api.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cudart_statistics {
    uint64_t calls;       ///< that could fail
    uint64_t refused;     ///< made inside a function that a stream called
    uint64_t pending;     ///< steps that are queued and not done
    uint64_t steps;       ///< that are done
    uint64_t kernels;     ///< launched
    uint64_t libraries;   ///< pieces of work that libraries of kernels queued
    uint64_t live_blocks; ///< not given back, in the order of calls
    uint64_t live_bytes;  ///< theirs
    uint64_t captures;    ///< begun and not ended
    uint64_t live_graphs; ///< graphs, executable or not, that are not destroyed
    uint64_t failures;    ///< asked for, that have happened
    uint64_t graph_nodes; ///< of the graph that was captured last
    uint64_t graph_depth; ///< as many of them are behind each other at most
} cudart_statistics;

void cudart_get_statistics(cudart_statistics *ret_statistics);
/// The n-th call from now (1: the next) of `name` (NULL: of any) answers `error` and does nothing.
/// An error that is sticky takes the device with it. n = 0: none.
void cudart_fail(const char *name, uint64_t n, cudaError_t error);
/// The same of all such calls from the n-th on, until one of the two is called again.
void cudart_fail_from(const char *name, uint64_t n, cudaError_t error);
/// The n-th step from now fails for good. n = 0: none.
void cudart_lose(uint64_t n);
void cudart_set_seed(uint64_t seed);
/// From now on nothing is done of what is queued, whoever waits for it. Waits for the step that is being
/// done.
void cudart_hold(void);
/// Ends that; what is queued is done as before.
void cudart_go_on(void);
/// Ends that, and what is queued is done though nobody waits for it.
void cudart_let_go(void);
/// Does `function` with a copy of `bytes` of data in order on a stream, as a library of kernels
/// would.
__attribute__((visibility("default"))) cudaError_t
cudart_queue_library(cudaStream_t stream, const char *name, void (*function)(void *data),
                     const void *data, size_t bytes);

/// The same, but that the work waits, and what is queued behind it on the stream, until ready(data)
/// is true, which is asked often and does nothing. Other streams go on meanwhile. The stream must be
/// one of the current device.
__attribute__((visibility("default"))) cudaError_t
cudart_queue_meeting(cudaStream_t stream, const char *name, bool (*ready)(const void *data),
                     void (*function)(void *data), const void *data, size_t bytes);
/// cudaDeviceSynchronize() for such a library.
__attribute__((visibility("default"))) cudaError_t cudart_synchronize(void);
/// The current device of this thread.
__attribute__((visibility("default"))) int cudart_get_ordinal(void);

#ifdef __cplusplus
}
#endif
#endif
