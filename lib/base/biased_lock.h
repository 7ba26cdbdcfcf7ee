// A lock that takes no locked instruction of the thread that it is biased to.
//
// That thread sets `held`, and then looks whether `owner` still names it. Any other one takes `lock`
// first, and when `owner` names somebody takes the bias away: it marks `owner`, has the kernel make
// every running thread fence (barrier.h), and waits until `held` is 0. So each of the two sees what
// the other wrote, and the owner pays nothing for that. Taking it away takes microseconds where
// other threads run, so it happens once: from then on the lock is what is inside it, until who
// begins a new use of its memory has it biased again.
//
// Invariant: `owner` is written by who holds `lock`, and is 0 while that one is done with taking
// it. So whoever holds the whole and finds it set holds it by its bias. And a lock is never biased
// to a second thread: the first one, on its way between its look at `owner` and `held` all the
// while, would give up what that one holds.
#ifndef ND_LIB_BASE_BIASED_LOCK_H
#define ND_LIB_BASE_BIASED_LOCK_H
#include "lib/base/atomics.h"
#include "lib/base/lock.h"
#include "lib/base/thread.h"

/// Static zero is free, and biased to no thread.
typedef struct nd_biased_lock {
    nd_lock lock;           ///< of all but the owner
    _Atomic uint32_t owner; ///< a thread's lock_id, perhaps marked; 0: of none
    _Atomic uint32_t held;  ///< 1: the owner has it, or is about to look whether it may
    // Guarded by the whole.
    uint32_t only;          ///< whom it was ever biased to; 0: nobody yet
    uint16_t unbiased;      ///< so many uses more it stays biased to none
    uint16_t next_unbiased; ///< the same after the next time that it is taken away
} nd_biased_lock;

/// At most so many locks of a process are biased at a time. Who walks over them all, or forks,
/// takes them away one by one.
enum { ND__BIASED_LOCKS_MOST = 256 };

#ifdef ND_MODEL
/// False: no lock of the program that is explored is biased, and nothing looks whether it is.
extern bool nd__biased_lock_models;
#else
enum { nd__biased_lock_models = true };
#endif

/// Of who has just taken `lock`, and found that the whole is biased.
__attribute__((cold)) void nd__biased_lock_revoke(nd_biased_lock *biased);
/// Waits for `lock`, then as that.
__attribute__((cold)) void nd__biased_lock_wait(nd_biased_lock *biased);

/// The owner's way. False: it is not this thread, or no longer.
static inline bool nd__biased_lock_own(nd_biased_lock *biased) {
    if (!nd__biased_lock_models)
        return false;
    const uint32_t owner = nd__atomic_load(&biased->owner, relaxed);
    if (!owner || owner != nd__thread_record.lock_id)
        return false;
    nd__atomic_store(&biased->held, 1, relaxed);
    nd__atomic_compiler_fence();
    if (__builtin_expect(nd__atomic_load(&biased->owner, relaxed) == owner, 1))
        return true;
    nd__atomic_store(&biased->held, 0, release);
    return false;
}

/// Takes the lock unless another thread holds it.
static inline bool nd__biased_lock_at_once(nd_biased_lock *biased) {
    if (__builtin_expect(nd__biased_lock_own(biased), 1))
        return true;
    if (!nd__lock_at_once(&biased->lock))
        return false;
    if (nd__biased_lock_models && nd__atomic_load(&biased->owner, relaxed) != 0)
        nd__biased_lock_revoke(biased);
    return true;
}

static inline void nd__biased_lock_acquire(nd_biased_lock *biased) {
    if (__builtin_expect(!nd__biased_lock_at_once(biased), 0))
        nd__biased_lock_wait(biased);
}

static inline void nd__biased_lock_release(nd_biased_lock *biased) {
    if (nd__biased_lock_models && nd__atomic_load(&biased->owner, relaxed) != 0)
        nd__atomic_store(&biased->held, 0, release);
    else
        nd__lock_release(&biased->lock);
}

/// Gives the lock up, biased to this thread from now on if it may be: a use of its memory begins,
/// by one thread as far as one knows. It is held.
void nd__biased_lock_release_own(nd_biased_lock *biased);
/// A use of its memory ends, and another one may begin late: where as many locks are biased as may
/// be, and this one is to this thread, it is no more. It is not held.
void nd__biased_lock_end(nd_biased_lock *biased);

/// Free, with nobody waiting: what a lock is in a forked child that held it.
static inline void nd__biased_lock_begin(nd_biased_lock *biased) {
    nd__lock_begin(&biased->lock);
    nd__atomic_store(&biased->held, 0, relaxed);
}
#endif
