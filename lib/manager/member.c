// Objects in managers: what the collector sees of them, and their death. (Birth: publish.h.)
//
// Invariants: an object is in the list that its shard and its ND__TRACKED bit say, both changed
// under that shard's lock; counters of a shard change with its lists, under the same lock; an
// accounted object's bytes are charged to the path from its manager to the root.
#include "lib/manager/member.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/thread.h"
#include "lib/manager/borrow.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/manager/origin.h"
#include "lib/manager/publish.h"
#include "lib/manager/shard.h"
#include "lib/manager/trigger.h"
#include "lib/object/callback.h"
#include "lib/object/object.h"
#include "lib/object/trace.h"

void nd__member_track_locked(nd_shard *shard, nd_object *object) {
    nd__member_list_remove(shard, object, ND__GREEN_LIST);
    nd__atomic_set_flags(&object->flags, ND__TRACKED);
    shard->count.tracked++;
    nd__member_list_insert(shard, object, ND__TRACKED_LIST);
    nd__trigger_count_tracked();
}

void nd__member_track(nd_object *object) {
    if ((nd__object_flags(object) & ND__TRACKED) || (object->type->flags & ND_TYPE_GREEN))
        return;
    nd_shard *shard = nd__shard_lock_of(object);
    if (!shard) {
        nd__atomic_set_flags(&object->flags, ND__TRACKED);
        return;
    }
    if (!(nd__object_flags(object) & ND__TRACKED))
        nd__member_track_locked(shard, object);
    nd__shard_unlock(shard);
}

void nd__member_track_with(nd_object *object, void *slot, void *target) {
    nd_shard *shard = nd__shard_lock_of(object);
    *(nd_object **)slot = target;
    nd__member_track_locked(shard, object);
    nd__shard_unlock(shard);
}

bool nd__member_set_aside(nd_shard *shard, nd_object *object) {
    const uint32_t seen = ND__DYING | ND__REVIVABLE | ND__TRACKED;
    uint32_t flags = nd__object_flags(object);
    // Its collection may be about to make it revivable: who is first decides.
    do {
        if ((flags & seen) != (ND__DYING | ND__TRACKED))
            return false;
    } while (
        !nd__atomic_cas(&object->flags, &flags, flags & ~(uint32_t)ND__TRACKED, acq_rel, relaxed));
    nd__member_list_remove(shard, object, ND__TRACKED_LIST);
    shard->count.tracked--;
    nd__member_list_insert(shard, object, ND__GREEN_LIST);
    return true;
}

void nd__member_make_revivable(nd_object *object) {
    if (__builtin_expect(nd__atomic_set_flags(&object->flags, ND__REVIVABLE) & ND__TRACKED, 1))
        return;
    nd_shard *shard = nd__shard_lock_of(object);
    nd__member_track_locked(shard, object);
    nd__shard_unlock(shard);
}

void nd__member_unlink(nd_object *object) {
    nd_shard *shard = nd__shard_lock_of(object);
    if (!shard)
        return;
    nd_thread *thread = nd__thread();
    nd__member_die(shard, object, object->type->flags, thread, thread->cutting);
    nd__shard_unlock(shard);
    if (nd__object_flags(object) & ND__TEMP)
        nd__origin_forget(object);
}

/// Where it came from is of no use any more.
static void forget_origin(nd_object *object) {
    if (nd__object_flags(object) & ND__TEMP)
        nd__origin_forget(object);
    nd__atomic_clear_flags(&object->flags, ND__TEMP);
}

void nd__member_unlink_dead(nd_object *object) {
    if (!object->type->finalize || (nd__object_flags(object) & ND__FINALIZED)) {
        nd__member_unlink(object);
        return;
    }
    // Types with finalizers are programs' own, and have no account.
    nd_shard *shard = nd__shard_lock_of(object);
    if (!shard)
        return;
    nd_manager *home = shard->manager;
    while (home != &nd__manager_root && !nd__object_try_retain(&home->header))
        home = home->parent;
    const bool away = home != shard->manager;
    nd__member_leave(shard, object, nd__object_flags(object));
    if (away)
        shard->count.departed++;
    else
        shard->count.freed++; // so far
    nd__atomic_store(&object->shard, NULL, release);
    nd__shard_unlock(shard);
    if (away)
        forget_origin(object);
    object->previous = &home->header;
    nd__atomic_set_flags(&object->flags, away ? ND__HOMED | ND__MOVED : ND__HOMED);
}

void nd__member_return(nd_object *object) {
    const uint32_t flags = nd__object_flags(object);
    if (!(flags & ND__HOMED))
        return;
    nd_manager *home = (nd_manager *)object->previous;
    nd__atomic_clear_flags(&object->flags, ND__HOMED | ND__MOVED);
    nd_shard *shard = nd__shard_lock_to_fill(home);
    if (!nd__manager_open(home))
        shard = nd__publish_lock_above(shard, home);
    if (shard->manager != home)
        forget_origin(object);
    nd__member_enter(shard, object, nd__object_flags(object));
    if ((flags & ND__MOVED) || shard->manager != home)
        shard->count.arrived++;
    else
        shard->count.freed--;
    nd__shard_unlock(shard);
    if (home != &nd__manager_root)
        nd_object_release(home);
}

/// Whether a piece of garbage in `shard` is tracked, at home, and charged for nothing, as most is.
static inline bool is_usual_garbage(const nd_shard *shard, const nd_object *object) {
    return nd__object_shard(object) == shard &&
           (nd__object_flags(object) & (ND__TRACKED | ND__TEMP)) == ND__TRACKED &&
           !(object->type->flags & ND__TYPE_ACCOUNTED);
}

/// Takes usual garbage at the front of `objects` out of its list as long as the next one is a
/// neighbour there: newer than the one before, or older. Links are written at the ends alone; those
/// within keep theirs, which nobody follows. Returns how many that were.
static inline __attribute__((always_inline)) size_t
unlink_neighbours_to(nd_shard *shard, nd_object *const *objects, size_t count, bool newer) {
    size_t i = 0;
    do {
        nd__atomic_store(&objects[i]->shard, NULL, release);
        i++;
    } while (i < count && (newer ? objects[i - 1]->previous : objects[i - 1]->next) == objects[i] &&
             is_usual_garbage(shard, objects[i]));
    nd_object *newest = newer ? objects[i - 1] : objects[0];
    const nd_object *oldest = newer ? objects[0] : objects[i - 1];
    // As if they were one.
    newest->next = oldest->next;
    nd__member_list_remove(shard, newest, ND__TRACKED_LIST);
    return i;
}

static size_t unlink_neighbours(nd_shard *shard, nd_object *const *objects, size_t count) {
    if (!is_usual_garbage(shard, objects[0]))
        return 0;
    if (count > 1 && objects[0]->previous == objects[1])
        return unlink_neighbours_to(shard, objects, count, true);
    return unlink_neighbours_to(shard, objects, count, false);
}

/// As nd__member_die for a run of garbage at the front of `objects` that is in `shard`; counters
/// are written once. What caps do not count is green, so none of that is among it. Returns how many
/// that were; *ret_temporary says whether some have origins.
static size_t unlink_run(nd_shard *shard, nd_object *const *objects, size_t count,
                         nd_thread *thread, bool *ret_temporary) {
    const nd__listener *listener = nd__trace_listener();
    uint64_t tracked = 0, temporary = 0, bytes = 0;
    size_t i = 0;
    while (i < count && nd__object_shard(objects[i]) == shard) {
        size_t neighbours = listener ? 0 : unlink_neighbours(shard, objects + i, count - i);
        tracked += neighbours;
        i += neighbours;
        if (__builtin_expect(neighbours != 0, 1))
            continue;
        nd_object *object = objects[i++];
        uint32_t flags = nd__object_flags(object), type_flags = object->type->flags;
        nd__member_list_remove(shard, object, nd__member_list_of(flags));
        tracked += (flags & ND__TRACKED) != 0;
        nd__atomic_store(&object->shard, NULL, release);
        temporary += (flags & ND__TEMP) != 0;
        if (__builtin_expect(listener != NULL, 0))
            listener->died(object, shard->manager, true);
        if (__builtin_expect(type_flags & ND__TYPE_ACCOUNTED, 0)) {
            const nd_accounted *account = (const nd_accounted *)object;
            bytes += account->bytes;
            shard->count.own_bytes[account->kind] -= account->bytes;
            if (account->bytes)
                nd__charge_return_path(shard->manager, NULL, account->kind, account->bytes);
        }
    }
    nd__counters *left = &shard->count;
    left->live -= i;
    left->tracked -= tracked;
    left->temporary -= temporary;
    left->collected += i;
    thread->collected_objects += i;
    thread->collected_bytes += bytes;
    *ret_temporary = temporary > 0;
    return i;
}

void nd__member_unlink_garbage(nd_object *const *objects, size_t count) {
    nd_thread *thread = nd__thread();
    for (size_t i = 0; i < count;) {
        nd_shard *shard = nd__shard_lock_of(objects[i]);
        bool temporary = false;
        size_t run = shard ? unlink_run(shard, objects + i, count - i, thread, &temporary) : 1;
        if (shard)
            nd__shard_unlock(shard);
        for (size_t k = i; temporary && k < i + run; k++)
            if (nd__object_flags(objects[k]) & ND__TEMP)
                nd__origin_forget(objects[k]);
        i += run;
    }
}

void nd__member_reattach(nd_object *object) {
    if (nd__object_shard(object))
        return;
    nd_accounted *account = nd__object_accounted(object);
    if (account)
        nd__charge_path(&nd__manager_root, NULL, account->kind, account->bytes, NULL);
    nd__atomic_clear_flags(&object->flags, ND__TEMP); // where it came from is forgotten
    nd_shard *shard = nd__shard_lock_to_fill(&nd__manager_root);
    nd__member_enter(shard, object, nd__object_flags(object));
    shard->count.created++;
    nd__publish_tell(object, &nd__manager_root);
    nd__shard_unlock(shard);
}

void nd__member_close_account(nd_object *object) {
    nd_accounted *account = nd__object_accounted(object);
    if (!account)
        return;
    nd_shard *shard = nd__shard_lock_of(object);
    uint64_t bytes = account->bytes;
    account->bytes = 0;
    if (!shard)
        return;
    if (bytes) {
        shard->count.own_bytes[account->kind] -= bytes;
        shard->count.freed_bytes += bytes;
        nd__charge_return_path(shard->manager, NULL, account->kind, bytes);
    }
    nd__shard_unlock(shard);
}

void nd__member_grow_account(nd_object *object, nd_manager *manager, uint64_t bytes) {
    nd_accounted *account = nd__object_accounted(object);
    nd_shard *shard = nd__shard_lock_of(object);
    const bool counts = shard && !nd__object_is_closed(object);
    // It may have moved since they were charged.
    if (!counts || shard->manager != manager) {
        nd__charge_return_path(manager, NULL, account->kind, bytes);
        if (counts)
            nd__charge_path(shard->manager, NULL, account->kind, bytes, NULL);
    }
    if (counts) {
        account->bytes += bytes;
        shard->count.own_bytes[account->kind] += bytes;
    }
    if (shard)
        nd__shard_unlock(shard);
}

void nd__member_shrink_account(nd_object *object, uint64_t bytes) {
    nd_accounted *account = nd__object_accounted(object);
    nd_shard *shard = nd__shard_lock_of(object);
    if (!shard)
        return;
    if (bytes > account->bytes)
        bytes = account->bytes;
    account->bytes -= bytes;
    shard->count.own_bytes[account->kind] -= bytes;
    shard->count.freed_bytes += bytes;
    nd__charge_return_path(shard->manager, NULL, account->kind, bytes);
    nd__shard_unlock(shard);
}
