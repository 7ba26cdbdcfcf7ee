// Waiting for a lock.
#include "lib/base/lock.h"
#include "lib/base/atomics.h"
#include "lib/base/pause.h"
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_SLEEP_NS = 1000000 };

void nd__lock_wait(nd_lock *lock) {
    // Holders are quick: a short spin saves most of the system calls.
    for (int spin = 0; spin < 64; spin++) {
        if (nd__atomic_load(&lock->state, relaxed) == 0 && nd__lock_try(lock))
            return;
        nd__pause_relax();
    }
    // Who gives the lock up stores, and then looks for waiters, with nothing in between to make the
    // store visible first: it may miss one that comes just then, and sees it the next time. So
    // sleep is short until it has lasted its time: then that store has long been seen. One that
    // another holder ended, or that did not begin, says nothing of that.
    (void)nd__atomic_fetch_add(&lock->waiters, 1, seq_cst);
    struct timespec moment = {.tv_nsec = FIRST_SLEEP_NS}, *limit = &moment;
    while (!nd__lock_try(lock))
        if (syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 1, limit, NULL, 0) < 0 &&
            errno == ETIMEDOUT)
            limit = NULL;
    (void)nd__atomic_fetch_sub(&lock->waiters, 1, relaxed);
}

void nd__lock_wake(nd_lock *lock) {
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}
