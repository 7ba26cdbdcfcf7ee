// The room for the first allocation is taken before the thread begins, which gives it back just
// before it allocates: what lib/base/spawn.c does for the library's threads, by the means of a
// program that has the public headers alone.
#include "bench/workloads/begin_thread.h"

#include "bench/workloads/workload.h"

#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

/// What jemalloc takes for a thread's cache and arena, by whole huge pages.
static const size_t room = (size_t)8 << 20;

typedef struct beginning {
    void *(*run)(void *data);
    void *data;
    void *room;
    sem_t begun; ///< nothing here may be touched after it
} beginning;

static void *begin(void *data) {
    beginning *caller = data;
    const beginning mine = *caller;
    munmap(mine.room, room);
    void *volatile first = malloc(1);
    free(first);
    sem_post(&caller->begun);
    return mine.run(mine.data);
}

nd_status begin_thread(pthread_t *ret_thread, void *(*run)(void *data), void *data) {
    beginning mine = {.run = run, .data = data};
    mine.room = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool begun = mine.room != MAP_FAILED && sem_init(&mine.begun, 0, 0) == 0;
    if (begun && pthread_create(ret_thread, NULL, begin, &mine) == 0) {
        while (sem_wait(&mine.begun) != 0 && errno == EINTR) {
        }
        sem_destroy(&mine.begun);
        return ND_OK;
    }
    if (begun)
        sem_destroy(&mine.begun);
    if (mine.room != MAP_FAILED)
        munmap(mine.room, room);
    snprintf(workload_problem, sizeof workload_problem, "no room for another thread");
    return ND_ERROR_OUT_OF_MEMORY;
}
