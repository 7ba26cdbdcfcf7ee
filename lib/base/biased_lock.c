// Giving a lock to a thread, and taking it away.
#include "lib/base/biased_lock.h"
#include "lib/base/atomics.h"
#include "lib/base/barrier.h"
#include "lib/base/lock.h"
#include "lib/base/pause.h"
#include "lib/base/thread.h"

#define MARK (UINT32_C(1) << 31)
#define NAP_NS 50000

/// What is taken away again and again, as where a thread makes managers that another one closes, is
/// biased in ever fewer uses: one in so many.
enum { UNBIASED_FIRST = 4, UNBIASED_GROWTH = 4, UNBIASED_MOST = 4096 };

#ifdef ND_MODEL
bool nd__biased_lock_models;
#endif
static _Atomic bool barrier_works;
static _Atomic uint32_t biased_locks;

__attribute__((constructor)) static void prepare_barrier(void) {
    nd__atomic_store(&barrier_works, nd__barrier_prepare(), relaxed);
}

/// As at the gate (lib/object/gate.c): what a sandbox forbids since the program began has another
/// way, which is slow, so no more are biased.
static void order_owner(void) {
    if (nd__atomic_single_threaded() || nd__barrier_run())
        return;
    nd__atomic_store(&barrier_works, false, relaxed);
    nd__barrier_run_slow();
}

/// The owner is quick, but may not be running, or fork meanwhile.
static void wait_for_owner(const nd_biased_lock *biased) {
    for (int spin = 0; nd__atomic_load(&biased->held, acquire) != 0; spin++) {
        if (spin < 100)
            nd__pause_relax();
        else if (spin < 200)
            nd__pause_yield();
        else
            nd__pause_nap(NAP_NS);
    }
}

void nd__biased_lock_revoke(nd_biased_lock *biased) {
    const uint32_t owner = nd__atomic_load(&biased->owner, relaxed);
    nd__atomic_store(&biased->owner, owner | MARK, relaxed);
    order_owner();
    wait_for_owner(biased);
    nd__atomic_store(&biased->owner, 0, relaxed);
    (void)nd__atomic_fetch_sub(&biased_locks, 1, relaxed);
    uint16_t uses = biased->next_unbiased ? biased->next_unbiased : UNBIASED_FIRST;
    biased->unbiased = uses;
    biased->next_unbiased =
        uses < UNBIASED_MOST ? (uint16_t)(uses * UNBIASED_GROWTH) : UNBIASED_MOST;
}

void nd__biased_lock_wait(nd_biased_lock *biased) {
    nd__lock_wait(&biased->lock);
    if (nd__biased_lock_models && nd__atomic_load(&biased->owner, relaxed) != 0)
        nd__biased_lock_revoke(biased);
}

/// Of the locks that may be biased, one more.
static bool count_biased(void) {
    if (nd__atomic_fetch_add(&biased_locks, 1, relaxed) < ND__BIASED_LOCKS_MOST)
        return true;
    (void)nd__atomic_fetch_sub(&biased_locks, 1, relaxed);
    return false;
}

void nd__biased_lock_release_own(nd_biased_lock *biased) {
    if (!nd__biased_lock_models || nd__atomic_load(&biased->owner, relaxed) != 0) {
        biased->next_unbiased /= UNBIASED_GROWTH; // one use was all this thread's
        nd__biased_lock_release(biased);
        return;
    }
    const uint32_t id = nd__thread()->lock_id;
    if (biased->unbiased > 0)
        biased->unbiased--;
    else if (id && (!biased->only || biased->only == id) &&
             nd__atomic_load(&barrier_works, relaxed) && count_biased()) {
        biased->only = id;
        nd__atomic_store(&biased->owner, id, relaxed);
    }
    nd__lock_release(&biased->lock);
}

void nd__biased_lock_end(nd_biased_lock *biased) {
    const uint32_t id = nd__thread_record.lock_id;
    if (nd__atomic_load(&biased_locks, relaxed) < ND__BIASED_LOCKS_MOST || !id ||
        nd__atomic_load(&biased->owner, relaxed) != id || !nd__lock_try(&biased->lock))
        return;
    if (nd__atomic_load(&biased->owner, relaxed) == id) {
        nd__atomic_store(&biased->owner, 0, relaxed);
        (void)nd__atomic_fetch_sub(&biased_locks, 1, relaxed);
    }
    nd__lock_release(&biased->lock);
}
