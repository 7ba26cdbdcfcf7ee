// What atomics need from the kernel: sleeping and waking (futex), the process-wide barrier (membarrier).
#include "lib/core/atomics.h"
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FIRST_SLEEP_NS = 1000000 };

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
    // Who gives the lock up stores, and then looks for waiters, with nothing in between to make the store
    // visible first: it may miss one that comes just then, and sees it the next time. So the first
    // sleep is short; when it ends, that store has long been seen.
    (void)nd__atomic_fetch_add(&lock->waiters, 1, seq_cst);
    struct timespec moment = {.tv_nsec = FIRST_SLEEP_NS};
    for (struct timespec *limit = &moment; !nd__try_lock(lock); limit = NULL)
        syscall(SYS_futex, &lock->state, FUTEX_WAIT_PRIVATE, 1, limit, NULL, 0);
    (void)nd__atomic_fetch_sub(&lock->waiters, 1, relaxed);
}

void nd__lock_wake(nd_lock *lock) {
    syscall(SYS_futex, &lock->state, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

bool nd__process_barrier_prepare(void) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
}

bool nd__process_barrier(void) {
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
}

/// What is needed: a load that another thread has executed before now is behind the stores that came
/// before it in the program, and these are seen from now on. A store that is still on its way then is in
/// its processor's store buffer, which empties by itself, whatever runs there, within microseconds. So
/// the wait alone would do. Taking a page away interrupts every processor that runs a thread of this
/// process, where the kernel has no other way to make it forget the page (x86-64 but for the newest
/// AMD); an interrupt empties the buffer.
void nd__process_barrier_slow(void) {
    const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    volatile char *page =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) {
        *page = 1;
        munmap((void *)(uintptr_t)page, bytes);
    }
    nd__nap(1000000);
}

void nd__yield(void) {
    sched_yield();
}

void nd__nap(uint64_t nanoseconds) {
    struct timespec time = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                            .tv_nsec = (long)(nanoseconds % 1000000000)};
    syscall(SYS_nanosleep, &time, NULL); // unlike nanosleep() no cancellation point
}
