// What atomics need from the kernel: sleeping and waking (futex), the process-wide barrier (membarrier).
#include "lib/core/atomics.h"
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void nd__futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

bool nd__futex_wake_all(_Atomic uint32_t *word) {
    return syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0) > 0;
}

void nd__lock_wait(nd_lock *lock) {
    // Holders are quick: a short spin saves most of the system calls.
    for (int spin = 0; spin < 64; spin++) {
        if (nd__atomic_load(&lock->state, relaxed) == 0 && nd__try_lock(lock))
            return;
        nd__cpu_relax();
    }
    while (nd__atomic_exchange(&lock->state, 2, acquire) != 0)
        nd__futex_wait(&lock->state, 2);
}

void nd__lock_wake(nd_lock *lock) {
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

bool nd__process_barrier_prepare(void) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

void nd__process_barrier(void) {
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

void nd__yield(void) {
    sched_yield();
}

void nd__nap(uint64_t nanoseconds) {
    struct timespec time = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                            .tv_nsec = (long)(nanoseconds % 1000000000)};
    nanosleep(&time, NULL);
}
