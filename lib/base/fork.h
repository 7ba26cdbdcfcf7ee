// What is done around fork(), and with it the order of all locks of the library.
//
// The child has one thread, the one that called fork(), and a copy of the memory. The copy is made
// page after page while the other threads go on, so of what they wrote meanwhile it may have a
// part. Invariant: while it is made, the forking thread holds every lock of the library and has the
// gate closed. So what a lock or the gate guards is whole in the child, and there the locks are
// free. What is not guarded by either and shared, lists that threads push onto without a lock, is
// taken off before and put back behind. What the other threads held or were in the middle of
// destroying stays as it is: nobody will ever release it.
//
// A file with a lock says so below it (ND__FORK_LOCKS), a file with more to do has functions for
// that. A thread may wait for a lock only while it holds none of the same or a later rank. User
// code runs under none of them, so a callback may fork; `traverse` and `clear` may not.
#ifndef ND_LIB_BASE_FORK_H
#define ND_LIB_BASE_FORK_H
#include "lib/base/lock.h"
#include <stddef.h>

enum {
    ND__FORK_GRADIENTS,  ///< commits gradients; computes and passes the gate meanwhile
    ND__FORK_STEPS_TURN, ///< before the next (nd__lock_acquire_in_turn)
    ND__FORK_STEPS,      ///< a collection in steps, until it has decided
    ND__FORK_COLLECTION_TURN,
    ND__FORK_COLLECTION, ///< a look at edges
    ND__FORK_GATE,       ///< no lock: the gate is closed
    ND__FORK_THREADS,    ///< the registry, also while the gate waits for writers
    ND__FORK_SHARDS,     ///< in the order of their addresses
    ND__FORK_ORIGINS,    ///< also below a shard's
    ND__FORK_SINGLE,     ///< nothing is taken below these but the last two
    ND__FORK_TRACE,      ///< tells of births and deaths, below a shard's
    ND__FORK_WATCH,      ///< tells of retains and releases, below any of the above
    ND__FORK_DEVICE,     ///< a device's queue
};

typedef struct nd__fork_part nd__fork_part;
struct nd__fork_part {
    int rank;
    nd_lock *locks; ///< or NULL
    size_t count, stride;
    void (*prepare)(void); ///< or NULL: beside the locks
    /// Or NULL. In a child also when nothing was prepared, because there was one thread.
    void (*finish)(bool child);
    nd__fork_part *next;
};

/// Adds a part, which stays; called by constructors.
void nd__fork_add(nd__fork_part *part);

#define ND__FORK_PART(name, ...)                                \
    static nd__fork_part name = {__VA_ARGS__};                  \
    __attribute__((constructor)) static void name##_add(void) { \
        nd__fork_add(&name);                                    \
    }                                                           \
    _Static_assert(1, "")

/// A static lock, or `count` of them, each `stride` bytes behind the one before.
#define ND__FORK_LOCKS(name, rank, lock, count, stride) \
    ND__FORK_PART(fork_##name, rank, lock, count, stride, NULL, NULL, NULL)
#define ND__FORK_LOCK(rank, lock) ND__FORK_LOCKS(lock, rank, &lock, 1, sizeof(nd_lock))

/// How many forks there are between the first process and this one. What remembers a thread
/// remembers this with it: another number, and the thread is not there.
extern uint32_t nd__fork_generation;
#endif
