// Threads that can allocate as soon as they run.
//
// jemalloc makes a cache for each thread at the first allocation there, and perhaps an arena. If the
// system has no room for them, jemalloc 5.3 goes on without, and that allocation reads address 0.
// So a thread is only begun together with room that it gives back just before it allocates for the
// first time; and nothing else of the caller's can take that room, who waits so long. A thread of the
// program's is only looked at: another may take the room in between.
#include "lib/base/spawn.h"
#include <errno.h>
#include <fenv.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

/// The allocator takes memory for an arena, and for the cache of some 30 KiB, by whole huge pages,
/// aligned.
#define ROOM ((size_t)8 << 20)

/// Of a thread's stack, which takes memory as it grows.
#define LEAST_STACK ((size_t)1 << 20)

typedef struct beginning {
    void *(*run)(void *argument);
    void *argument;
    void *room;
    sem_t begun; ///< nothing here may be touched after it
} beginning;

static void *begin(void *data) {
    beginning *caller = data;
    const beginning mine = *caller;
    fesetenv(FE_DFL_ENV); // not that of who first needed the thread
    munmap(mine.room, ROOM);
    void *volatile first = malloc(sizeof(void *)); // free() alone does not make the cache
    free(first);
    sem_post(&caller->begun);
    return mine.run(mine.argument);
}

#if ND_HAVE_JEMALLOC
bool nd__spawn_may_allocate(void) {
    static _Thread_local bool may;
    if (!may) {
        void *room =
            mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED)
            return false;
        munmap(room, ROOM);
        void *volatile first = malloc(sizeof(void *));
        may = first != NULL;
        free(first);
    }
    return may;
}
#endif

/// Attributes with a stack that suffices, whatever the program has made the default. False where
/// there is no memory for them.
static bool with_stack(pthread_attr_t *attributes) {
    size_t bytes;
    if (pthread_attr_getstacksize(attributes, &bytes) == 0 && bytes < LEAST_STACK)
        return pthread_attr_setstacksize(attributes, LEAST_STACK) == 0;
    return true;
}

static int spawn(pthread_t *ret_thread, const pthread_attr_t *attributes, beginning *mine) {
    mine->room = mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mine->room == MAP_FAILED)
        return EAGAIN;
    sem_init(&mine->begun, 0, 0);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int answer = pthread_create(ret_thread, attributes, begin, mine);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (answer == 0)
        while (sem_wait(&mine->begun) != 0)
            ;
    else
        munmap(mine->room, ROOM);
    sem_destroy(&mine->begun);
    return answer;
}

int nd__spawn(pthread_t *ret_thread, const cpu_set_t *cpus, size_t bytes_of_cpus,
              void *(*run)(void *), void *argument) {
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes) != 0)
        return EAGAIN;
    int answer = EAGAIN;
    if (with_stack(&attributes) &&
        (!cpus || pthread_attr_setaffinity_np(&attributes, bytes_of_cpus, cpus) == 0))
        answer = spawn(ret_thread, &attributes, &(beginning){.run = run, .argument = argument});
    pthread_attr_destroy(&attributes);
    return answer;
}
