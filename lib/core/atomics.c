// The slow half of the lock: sleeping and waking through the kernel's futex.
#include "lib/core/atomics.h"
#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

void nd__futex_wait(_Atomic uint32_t *word, uint32_t value) {
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

void nd__futex_wake_all(_Atomic uint32_t *word) {
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void nd__lock_wait(nd_lock *lock) {
    // Holders are quick: a short spin saves most of the system calls.
    for (int spin = 0; spin < 64; spin++) {
        if (atomic_load_explicit(&lock->state, memory_order_relaxed) == 0 && nd__try_lock(lock))
            return;
        nd__cpu_relax();
    }
    while (atomic_exchange_explicit(&lock->state, 2, memory_order_acquire) != 0)
        nd__futex_wait(&lock->state, 2);
}

void nd__lock_wake(nd_lock *lock) {
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
