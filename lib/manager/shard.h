// What is done with the shards of managers (the struct is in manager.h): walking over them,
// locking them, and having more of them.
#ifndef ND_LIB_MANAGER_SHARD_H
#define ND_LIB_MANAGER_SHARD_H
#include "lib/base/atomics.h"
#include "lib/base/biased_lock.h"
#include "lib/base/thread.h"
#include "lib/manager/manager.h"
#include "lib/object/object.h"

static inline uint32_t nd__shard_count(const nd_manager *manager) {
    return nd__atomic_load(&((nd_manager *)(uintptr_t)manager)->shard_count, acquire);
}

// A loop over the shards of a manager: for (shard = nd__shard_first(m); shard; shard =
// nd__shard_next(shard)). Lock each for what is done with it: a manager gets more shards under the
// lock of its first one, so that a walk finds all that was there when it began.
static inline nd_shard *nd__shard_first(nd_manager *manager) {
    return &manager->first;
}
static inline nd_shard *nd__shard_of_escaped(nd_manager *manager) {
    return __builtin_expect(nd__atomic_load(&manager->escapes, acquire) != 0, 0)
               ? nd__atomic_load(&manager->escaped, acquire)
               : NULL;
}
static inline nd_shard *nd__shard_next(const nd_shard *shard) {
    if (__builtin_expect(shard->for_escapes, 0))
        return NULL;
    nd_manager *manager = shard->manager;
    uint32_t count = nd__shard_count(manager);
    if (__builtin_expect(count > 1, 0)) {
        ptrdiff_t next = shard == &manager->first ? 0 : shard - manager->more + 1;
        if (next + 1 < (ptrdiff_t)count)
            return &manager->more[next];
    }
    return nd__shard_of_escaped(manager);
}
/// Locks a shard that a walk over those of a manager has come to, or the one that the manager has
/// got in its place meanwhile (escape.c). Returns it; the walk goes on from there.
nd_shard *nd__shard_lock_in(nd_shard *shard, nd_manager *manager);

/// The shard for what escapes to a manager; its first one when that has or had a cap, or is closed,
/// unless the caller closes it.
nd_shard *nd__shard_for_escapes(nd_manager *manager, bool closing);
/// The same for who has locked both it and the manager's first shard.
void nd__shard_begin_escapes(nd_manager *manager);
/// Takes note that so many tracked objects escaped to a manager at a close below it.
void nd__shard_escaped_note(nd_manager *manager, uint64_t tracked);
/// How many tracked objects, the latest in the shard for what escaped, are to be looked at again at
/// a close below the manager: those of the last two closes, within a bound.
size_t nd__shard_escaped_recently(nd_manager *manager);

/// Sums over the shards; each is a moment's, one after the other.
nd__counters nd__shard_total(nd_manager *manager);

// ------------------------------------------------------------------------------------------- locks

/// Waits for a shard's lock, and takes note of that.
void nd__shard_wait(nd_shard *shard);
static inline void nd__shard_lock(nd_shard *shard) {
    if (__builtin_expect(!nd__biased_lock_at_once(&shard->lock), 0))
        nd__shard_wait(shard);
}
static inline void nd__shard_unlock(nd_shard *shard) {
    nd__biased_lock_release(&shard->lock);
}
/// Two shards, in the order of their addresses; they may be one.
void nd__shard_lock_pair(nd_shard *a, nd_shard *b);
void nd__shard_unlock_pair(nd_shard *a, nd_shard *b);
/// The same for a few, which it brings into that order; some may be one.
void nd__shard_lock_all(nd_shard **shards, size_t count);

/// Locks the shard that an object is in and returns it; NULL (nothing locked) when it is in none.
static inline nd_shard *nd__shard_lock_of(nd_object *object) {
    for (;;) {
        nd_shard *shard = nd__object_shard(object);
        if (!shard)
            return NULL;
        nd__shard_lock(shard);
        if (__builtin_expect(nd__object_shard(object) == shard, 1))
            return shard;
        nd__shard_unlock(shard);
    }
}

/// The same inline, for who is called for every object.
static inline __attribute__((always_inline)) nd_shard *nd__shard_lock_of_hot(nd_object *object) {
    nd_shard *shard = nd__object_shard(object);
    if (__builtin_expect(!shard, 0))
        return NULL;
    nd__shard_lock(shard);
    if (__builtin_expect(nd__object_shard(object) == shard, 1))
        return shard;
    nd__shard_unlock(shard);
    return nd__shard_lock_of(object);
}

/// The shard of a manager that this thread fills. Look at `retired` under its lock.
nd_shard *nd__shard_own(nd_manager *manager);
/// Locks the shard of a manager that this thread has to fill.
nd_shard *nd__shard_lock_own(nd_manager *manager);
static inline nd_shard *nd__shard_lock_to_fill(nd_manager *manager) {
    if (__builtin_expect(nd__shard_count(manager) > 1, 0))
        return nd__shard_lock_own(manager);
    nd__shard_lock(&manager->first);
    return &manager->first;
}

// ------------------------------------------------------------------------------------ more and one

/// Memory of managers and shards lies on a line of its own in a block of ND__LINE_BLOCK(size)
/// bytes, and is never given back. The blocks are linked by their beginnings, so that who looks for
/// leaks by those (valgrind) finds them; managers are pointed to further inside.
typedef struct nd__kept_block nd__kept_block;
struct nd__kept_block {
    nd__kept_block *next;
};
#define ND__LINE_BLOCK(size) (sizeof(nd__kept_block) + ND__LINE - 1 + (size))
static inline void *nd__shard_line_in(void *block) {
    uintptr_t first = (uintptr_t)block + sizeof(nd__kept_block);
    return (void *)((first + ND__LINE - 1) & ~(uintptr_t)(ND__LINE - 1));
}
void nd__shard_keep_block(void *block);

/// A new life of a shard; its lock, which a thread with a stale pointer may be about to take,
/// stays.
void nd__shard_begin(nd_shard *shard, nd_manager *manager);
/// How many shards a manager gets that threads meet in.
uint32_t nd__shard_limit(void);
/// Gives a manager more shards; nothing happens when it has them, is closed or was capped, or when
/// there is no memory. No lock may be held.
void nd__shard_spread(nd_manager *manager);
void nd__shard_spread_crowded(nd_thread *thread);
/// Spreads the manager that this thread has found crowded, if it has. No lock may be held.
static inline void nd__shard_spread_if_crowded(void) {
    nd_thread *thread = nd__thread();
    if (__builtin_expect(thread->crowded != NULL, 0))
        nd__shard_spread_crowded(thread);
}
/// Before a cap: all objects go to the first shard, for good.
void nd__shard_unite(nd_manager *manager);
/// Moves all objects of a shard to another one, where they are the newest, or the oldest, in the
/// order they had, with the counts of what is there. Both are locked.
void nd__shard_move(nd_shard *from, nd_shard *target, bool as_newest);
/// The counts alone, of what is in a shard now.
void nd__shard_move_counts(nd__counters *lost, nd__counters *won);
/// Tells who asks without a lock what manager a locked shard belongs to from now on.
static inline void nd__shard_give(nd_shard *shard, nd_manager *manager) {
    nd__atomic_store((_Atomic(nd_manager *) *)(uintptr_t)&shard->manager, manager, release);
}
#endif
