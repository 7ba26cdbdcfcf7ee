// Threads of the library's own.
#ifndef ND_LIB_BASE_SPAWN_H
#define ND_LIB_BASE_SPAWN_H
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>

/// As pthread_create(), whose answers it gives. The thread may run on `cpus` (NULL: where the caller
/// may), has a stack of at least a MiB and the floating-point mode of IEEE 754 by default, whatever
/// the caller's, and takes no signals: the program's handlers run on the program's threads. EAGAIN
/// also where the process is so short of address space that the thread could not allocate. Waits
/// until it can; the caller must not be cancelled meanwhile.
int nd__spawn(pthread_t *ret_thread, const cpu_set_t *cpus, size_t bytes_of_cpus,
              void *(*run)(void *), void *argument);

/// Whether the calling thread, whoever began it, may allocate: false as long as it never has, and the
/// process is so short of address space that jemalloc would crash.
#if ND_HAVE_JEMALLOC
bool nd__spawn_may_allocate(void);
#else
static inline bool nd__spawn_may_allocate(void) {
    return true;
}
#endif
#endif
