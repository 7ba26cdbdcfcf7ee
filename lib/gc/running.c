// How many collections run, and how many have ended.
#include "lib/gc/running.h"
#include "lib/base/atomics.h"
#include "lib/base/clock.h"
#include "lib/base/fork.h"
#include "lib/base/pause.h"
#include "lib/base/thread.h"
#include "lib/object/user_code.h"

#ifdef ND_MODEL // nobody there is short of memory
void nd__running_begin(void) {
}

void nd__running_end(void) {
}

uint32_t nd__running_ended_elsewhere(void) {
    return 0;
}

bool nd__running_await_end(uint64_t until) {
    (void)until;
    return false;
}
#else

/// Those that run in the lower half; the upper half rises as one ends.
static _Atomic uint64_t running;

#define ONE_ENDED ((UINT64_C(1) << 32) - 1)

void nd__running_begin(void) {
    (void)nd__atomic_add_relaxed(&running, 1);
}

void nd__running_end(void) {
    nd__thread()->collections_ended++;
    (void)nd__atomic_fetch_add(&running, ONE_ENDED, release);
}

uint32_t nd__running_ended_elsewhere(void) {
    return (uint32_t)(nd__atomic_load(&running, acquire) >> 32) - nd__thread()->collections_ended;
}

bool nd__running_await_end(uint64_t until) {
    enum { NAP_NS = 50000 };
    const nd_thread *thread = nd__thread();
    if (thread->collecting || nd__user_code_in_destruction(thread))
        return false;
    const uint64_t before = nd__atomic_load(&running, acquire);
    if ((uint32_t)before == 0)
        return false;
    while (nd__atomic_load(&running, acquire) >> 32 == before >> 32) {
        if (nd__clock_now_ns() >= until)
            return false;
        nd__pause_yield();
        nd__pause_nap(NAP_NS);
    }
    return true;
}

/// In a child of fork() other threads, and what they ran, are not there.
static void forget_others(bool child) {
    if (child)
        nd__atomic_store(&running, nd__thread_record.collecting, relaxed);
}
ND__FORK_PART(fork_running, ND__FORK_SINGLE, NULL, 0, 0, NULL, forget_others, NULL);
#endif
