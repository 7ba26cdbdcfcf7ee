// Threads of the library's own.
#ifndef ND_LIB_BASE_SPAWN_H
#define ND_LIB_BASE_SPAWN_H
#include <pthread.h>

/// As pthread_create(), whose answers it gives; `attributes` may be NULL. The thread takes no
/// signals: the program's handlers run on the program's threads. EAGAIN also where the process is
/// so short of address space that the thread could not allocate. Waits until it can; the caller
/// must not be cancelled meanwhile.
int nd__spawn(pthread_t *ret_thread, const pthread_attr_t *attributes, void *(*run)(void *),
              void *argument);
#endif
