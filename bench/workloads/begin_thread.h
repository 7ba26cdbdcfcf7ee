// Threads of a workload's own that may run where address space is bounded.
#ifndef ND_BENCH_BEGIN_THREAD_H
#define ND_BENCH_BEGIN_THREAD_H
#include <nd/nd.h>
#include <pthread.h>

/// Begins a thread and waits until it has allocated once: jemalloc reads address 0 in a thread for
/// whose first allocation there is no room (docs/memory.md, "Limits"). ND_ERROR_OUT_OF_MEMORY, with
/// workload_problem set, where there is no room for that and for the thread.
nd_status begin_thread(pthread_t *ret_thread, void *(*run)(void *data), void *data);

#endif
