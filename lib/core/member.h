// Being a member of a shard: its lists and counters, entered at birth, left at death, both changed by
// a move.
//
// Invariant: an object is in the list of its home that its ND__TRACKED bit says, and the counters say
// what is in the lists; home, lists, counters and that bit change under the shard's lock, which
// everybody who calls this holds. Inline, because a small tensor's life is made of little else. Flags
// are read once and handed on.
#ifndef ND_LIB_CORE_MEMBER_H
#define ND_LIB_CORE_MEMBER_H
#include "lib/core/manager_internal.h"
#include "lib/core/trace.h"

static inline int nd__list_of(uint32_t flags) {
    return (flags & ND__TRACKED) ? ND__TRACKED_LIST : ND__GREEN_LIST;
}

static inline nd_accounted *nd__accounted(nd_object *object) {
    return (object->type->flags & ND__TYPE_ACCOUNTED) ? (nd_accounted *)object : NULL;
}

static inline void nd__list_insert(nd_shard *shard, nd_object *object, int list) {
    nd_object *first = shard->lists[list].first;
    object->previous = NULL;
    object->next = first;
    if (first)
        first->previous = object;
    else
        shard->lists[list].last = object;
    shard->lists[list].first = object;
}

static inline void nd__list_remove(nd_shard *shard, nd_object *object, int list) {
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
nd__member_count(nd_shard *shard, nd_object *object, uint32_t flags, uint64_t one) {
    nd__counters *count = &shard->count;
    count->live += one;
    if (flags & ND__TRACKED)
        count->tracked += one;
    uint32_t type_flags = object->type->flags;
    if (flags & ND__TEMP)
        count->temporary += one;
    else if (!(type_flags & ND__TYPE_UNCAPPED))
        count->capped += one;
    if (type_flags & ND__TYPE_ACCOUNTED) {
        const nd_accounted *account = (const nd_accounted *)object;
        count->own_bytes[account->kind] += one * account->bytes;
    }
}

static inline void nd__member_enter(nd_shard *shard, nd_object *object, uint32_t flags) {
    nd__list_insert(shard, object, nd__list_of(flags));
    nd__member_count(shard, object, flags, 1);
    nd__atomic_store(&object->home, shard, release);
}

static inline void nd__member_leave(nd_shard *shard, nd_object *object, uint32_t flags) {
    nd__list_remove(shard, object, nd__list_of(flags));
    nd__member_count(shard, object, flags, UINT64_MAX);
}

/// Takes a dead object out of its home: list, counters, bytes.
static inline void nd__member_die(nd_shard *home, nd_object *object, nd_thread *thread) {
    nd__member_leave(home, object, nd__flags(object));
    const nd__listener *listener = nd__listener_now();
    if (listener)
        listener->died(object, home->manager, thread->cutting);
    nd_accounted *account = nd__accounted(object);
    uint64_t bytes = account ? account->bytes : 0;
    if (thread->cutting) {
        home->count.collected++;
        thread->collected_objects++;
        thread->collected_bytes += bytes;
    } else {
        home->count.freed++;
        home->count.freed_bytes += bytes;
    }
    if (bytes)
        nd__discharge_path(home->manager, NULL, account->kind, bytes);
    nd__atomic_store(&object->home, NULL, release);
}
#endif
