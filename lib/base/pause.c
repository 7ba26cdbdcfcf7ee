// Waiting for a moment.
#include "lib/base/pause.h"
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void nd__pause_yield(void) {
    sched_yield();
}

void nd__pause_nap(uint64_t nanoseconds) {
    struct timespec time = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                            .tv_nsec = (long)(nanoseconds % 1000000000)};
    syscall(SYS_nanosleep, &time, NULL); // unlike nanosleep() no cancellation point
}
