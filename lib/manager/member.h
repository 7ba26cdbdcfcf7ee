// Being a member of a shard: its lists and counters, entered at birth, left at death, both changed
// by a move.
//
// Invariant: an object is in the list of its shard that its ND__TRACKED bit says, and the counters
// say what is in the lists; shard, lists, counters and that bit change under the shard's lock,
// which everybody who calls this holds. Inline, because a small tensor's life is made of little
// else. Flags are read once and handed on.
#ifndef ND_LIB_MANAGER_MEMBER_H
#define ND_LIB_MANAGER_MEMBER_H
#include "lib/base/atomics.h"
#include "lib/base/thread.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/object/object.h"
#include "lib/object/trace.h"

static inline int nd__member_list_of(uint32_t flags) {
    return (flags & ND__TRACKED) ? ND__TRACKED_LIST : ND__GREEN_LIST;
}

static inline void nd__member_list_insert(nd_shard *shard, nd_object *object, int list) {
    nd_object *first = shard->lists[list].first;
    object->previous = NULL;
    object->next = first;
    if (first)
        first->previous = object;
    else
        shard->lists[list].last = object;
    shard->lists[list].first = object;
}

static inline void nd__member_list_remove(nd_shard *shard, nd_object *object, int list) {
    nd_object *previous = object->previous, *next = object->next;
    if (previous)
        previous->next = next;
    else
        shard->lists[list].first = next;
    if (next)
        next->previous = previous;
    else
        shard->lists[list].last = previous;
}

/// Counts an object in (+1) or out (-1) of what a shard holds now.
static inline __attribute__((always_inline)) void
nd__member_count(nd_shard *shard, nd_object *object, uint32_t flags, uint32_t type_flags,
                 uint64_t one) {
    nd__counters *count = &shard->count;
    count->live += one;
    if (flags & ND__TRACKED)
        count->tracked += one;
    if (__builtin_expect(flags & ND__TEMP, 0))
        count->temporary += one;
    else if (type_flags & ND__TYPE_UNCAPPED)
        count->uncapped += one;
    if (type_flags & ND__TYPE_ACCOUNTED) {
        const nd_accounted *account = (const nd_accounted *)object;
        count->own_bytes[account->kind] += one * account->bytes;
    }
}

/// The flags of its type may be known beforehand.
static inline __attribute__((always_inline)) void
nd__member_enter_as(nd_shard *shard, nd_object *object, uint32_t flags, uint32_t type_flags) {
    nd__member_list_insert(shard, object, nd__member_list_of(flags));
    nd__member_count(shard, object, flags, type_flags, 1);
    nd__atomic_store(&object->shard, shard, release);
}

static inline void nd__member_enter(nd_shard *shard, nd_object *object, uint32_t flags) {
    nd__member_enter_as(shard, object, flags, object->type->flags);
}

static inline void nd__member_leave(nd_shard *shard, nd_object *object, uint32_t flags) {
    nd__member_list_remove(shard, object, nd__member_list_of(flags));
    nd__member_count(shard, object, flags, object->type->flags, UINT64_MAX);
}

/// Takes a dead object out of its shard: list, counters, bytes. The flags of its type, and whether
/// the thread is `cutting`, may be known beforehand.
static inline __attribute__((always_inline)) void nd__member_die(nd_shard *shard, nd_object *object,
                                                                 uint32_t type_flags,
                                                                 nd_thread *thread, bool cutting) {
    const uint32_t flags = nd__object_flags(object);
    nd__member_list_remove(shard, object, nd__member_list_of(flags));
    nd__member_count(shard, object, flags, type_flags, UINT64_MAX);
    const nd__listener *listener = nd__trace_listener();
    if (__builtin_expect(listener != NULL, 0))
        listener->died(object, shard->manager, cutting);
    const nd_accounted *account =
        (type_flags & ND__TYPE_ACCOUNTED) ? (const nd_accounted *)object : NULL;
    const uint64_t bytes = account ? account->bytes : 0;
    if (__builtin_expect(cutting, 0)) {
        shard->count.collected++;
        thread->collected_objects++;
        thread->collected_bytes += bytes;
    } else {
        shard->count.freed++;
        shard->count.freed_bytes += bytes;
    }
    if (bytes)
        nd__charge_return_path(shard->manager, NULL, account->kind, bytes);
    nd__atomic_store(&object->shard, NULL, release);
}

// member.c

/// Lets the collector see an object that started green (a tensor that gets history). Idempotent.
void nd__member_track(nd_object *object);
/// The same under the lock of its shard, of one that is green.
void nd__member_track_locked(nd_shard *shard, nd_object *object);
/// The same for a published green object that only this thread knows, which gets its first edge
/// with it: `slot` takes over a count of `target`. Without the gate: under its manager's lock the
/// object is seen without the edge by the reports alone, and with it by everybody.
void nd__member_track_with(nd_object *object, void *slot, void *target);

/// Under the lock of its shard, by a collection that meets the garbage of another thread's, which
/// frees it: the object goes over to the green ones, so that no walk over what is tracked passes it
/// again. False, and nothing was done: it is none, or may be revived.
bool nd__member_set_aside(nd_shard *shard, nd_object *object);
/// By the collection whose garbage it is: marks it ND__REVIVABLE. From then on nobody sets it aside,
/// and if somebody had, it is tracked again.
void nd__member_make_revivable(nd_object *object);

/// Takes a dead object out of its manager: list, counters, bytes. No-op when it is in none.
void nd__member_unlink(nd_object *object);
/// The same for what goes onto a list of the dead, whose links it needs. One whose finalizer is still to
/// run is dead only when that has been: it keeps hold of its manager, or of the nearest one above it that
/// is not about to close, for nd__member_return.
void nd__member_unlink_dead(nd_object *object);
/// Puts it back there, or into the nearest open ancestor, so that its finalizer finds it where it
/// lived. No-op for all others.
void nd__member_return(nd_object *object);
/// As nd__member_unlink for garbage that this thread frees; a lock is taken once for a run of it in one
/// manager.
void nd__member_unlink_garbage(nd_object *const *objects, size_t count);
/// Attaches an object that was in no manager and was revived to the root. No-op when it is in one.
void nd__member_reattach(nd_object *object);
/// The object gives up its bytes (close): accounts of its manager and ancestors go down.
void nd__member_close_account(nd_object *object);
/// A published object has more bytes, which were charged to `manager`. One that was closed gives
/// them back.
void nd__member_grow_account(nd_object *object, nd_manager *manager, uint64_t bytes);
/// It gives up some of its bytes; of one that was closed nothing is left to give up.
void nd__member_shrink_account(nd_object *object, uint64_t bytes);

/// Whether a cap has no room for one more, under the lock of the manager's first shard.
static inline bool nd__member_cap_is_reached(const nd_shard *shard) {
    const uint64_t cap = shard->manager->cap;
    const nd__counters *count = &shard->count;
    return cap && count->live - count->temporary - count->uncapped >= cap;
}
static inline bool nd__member_cap_refuses(const nd_shard *shard, const nd_object *object) {
    return nd__member_cap_is_reached(shard) && !(object->type->flags & ND__TYPE_UNCAPPED);
}
#endif
