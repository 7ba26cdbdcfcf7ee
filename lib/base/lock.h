// A mutex of two words.
#ifndef ND_LIB_BASE_LOCK_H
#define ND_LIB_BASE_LOCK_H
#include "lib/base/atomics.h"

/// A mutex: 0 free, 1 held. Static zero is free. Giving it up takes no locked instruction, and
/// looks at `waiters` afterwards, so it lies in memory that stays a lock (nd__lock_wait).
typedef struct nd_lock {
    _Atomic uint32_t state;
    _Atomic uint32_t waiters; ///< threads that sleep, or are about to
} nd_lock;

void nd__lock_wait(nd_lock *lock);
void nd__lock_wake(nd_lock *lock);

/// Free, with nobody waiting: what a lock is in a forked child, where those who held it or waited
/// are not.
static inline void nd__lock_begin(nd_lock *lock) {
    nd__atomic_store(&lock->state, 0, relaxed);
    nd__atomic_store(&lock->waiters, 0, relaxed);
}

static inline bool nd__lock_try(nd_lock *lock) {
    uint32_t expected = 0;
    return nd__atomic_cas(&lock->state, &expected, 1, acquire, relaxed);
}

/// Takes the lock if that needs no waiting.
static inline bool nd__lock_at_once(nd_lock *lock) {
#ifdef ND_MODEL
    nd__lock_wait(lock); // one step: waits until it is free, and takes it
    return true;
#else
    if (!nd__atomic_single_threaded())
        return nd__lock_try(lock);
    nd__atomic_store(&lock->state, 1, relaxed);
    return true;
#endif
}

static inline void nd__lock_acquire(nd_lock *lock) {
    if (__builtin_expect(!nd__lock_at_once(lock), 0))
        nd__lock_wait(lock);
}

static inline void nd__lock_release(nd_lock *lock) {
    nd__atomic_store(&lock->state, 0, release);
#ifndef ND_MODEL // where nobody sleeps: taking it waits, in one step
    nd__atomic_compiler_fence();
    if (__builtin_expect(nd__atomic_load(&lock->waiters, relaxed) != 0, 0))
        nd__lock_wake(lock);
#endif
}

/// For a lock that is held for long: whoever gives it up and comes back at once finds `turn` held by
/// one that waits, and gets it behind that one. Where many wait, those at `turn` are in no order.
static inline void nd__lock_acquire_in_turn(nd_lock *turn, nd_lock *lock) {
#ifdef ND_MODEL // which tries every order, a fair one as well
    (void)turn;
    nd__lock_acquire(lock);
#else
    nd__lock_acquire(turn);
    nd__lock_acquire(lock);
    nd__lock_release(turn);
#endif
}
#endif
