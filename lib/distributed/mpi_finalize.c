// MPI_Finalize() waits for all ranks, without a deadline: for ever, where one of them is killed in it
// (MPICH), and in some versions now and then for none (MPICH 4.0.2 over TCP). The thread that began
// MPI has to end it and cannot be called back, so another one looks at the clock.
#if ND_HAVE_MPI
#include "lib/distributed/mpi_finalize.h"
#include "lib/base/spawn.h"

#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

typedef struct watch {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    double seconds;
    bool over; ///< lock
} watch;

static struct timespec deadline_in(double seconds) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    double whole = (double)(time_t)seconds;
    long ns = time.tv_nsec + (long)((seconds - whole) * 1e9);
    time.tv_sec += (time_t)whole + ns / 1000000000;
    time.tv_nsec = ns % 1000000000;
    return time;
}

static void *run(void *argument) {
    watch *watch = argument;
    struct timespec until = deadline_in(watch->seconds);
    int answer = 0;
    pthread_mutex_lock(&watch->lock);
    while (!watch->over && answer == 0)
        answer = pthread_cond_timedwait(&watch->changed, &watch->lock, &until);
    bool over = watch->over;
    pthread_mutex_unlock(&watch->lock);
    if (!over) {
        fprintf(stderr,
                "ndarc: MPI_Finalize() did not return within %g s: another rank has died in it, or "
                "hangs; this process ends without it\n",
                watch->seconds);
        fflush(NULL);
        _exit(EXIT_FAILURE);
    }
    return NULL;
}

void nd__mpi_finalize(double seconds) {
    watch watch = {.lock = PTHREAD_MUTEX_INITIALIZER, .seconds = seconds};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watch.changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_t thread;
    bool watched = nd__spawn(&thread, NULL, 0, run, &watch) == 0;
    MPI_Finalize();
    pthread_mutex_lock(&watch.lock);
    watch.over = true;
    pthread_cond_signal(&watch.changed);
    pthread_mutex_unlock(&watch.lock);
    if (watched)
        pthread_join(thread, NULL);
    pthread_cond_destroy(&watch.changed);
}
#else
_Static_assert(1, "no MPI");
#endif
