// Birth: a private object enters a manager, and from then on others may know it.
//
// Invariant: all of that happens under the lock of one shard, of a manager that is open under it, so
// that a manager that closes has either all of what was published together, or none.
//
// A slice is published inline where it is made: of what it costs, a sixteenth went into a call, and
// registers that it saved.
#ifndef ND_LIB_MANAGER_PUBLISH_H
#define ND_LIB_MANAGER_PUBLISH_H
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/thread.h"
#include "lib/manager/borrow.h"
#include "lib/manager/manager.h"
#include "lib/manager/member.h"
#include "lib/manager/shard.h"
#include "lib/manager/trigger.h"
#include "lib/object/callback.h"
#include "lib/object/object.h"
#include "lib/object/trace.h"

/// Attaches to `manager` (or its nearest open ancestor when it is closed) and makes the object
/// visible to the collector, unless its type is green or ND__TYPE_UNTRACKED. Errors: cap. On
/// failure the object is still private. The bytes of an accounted object must have been charged to
/// `manager` before (nd__charge).
nd_status nd__publish(nd_object *object, nd_manager *manager);
/// The same for an object and its private storage, under one lock: both are published or none.
nd_status nd__publish_both(nd_object *object, nd_object *storage, nd_manager *manager);
/// The same for a view, whose edge to its storage, which cannot end meanwhile, is not counted yet:
/// it borrows that, or gets a count of it (borrow.h). On failure it has none.
nd_status nd__publish_view(nd__stored *view, nd_manager *manager);

/// Publishes a private object without bytes where a published one is, of which only this thread
/// knows, under one lock. With a slot the published one, which is green, gets it as its first edge,
/// and the collector sees both (nd__member_track_with). False: nothing was done, because that
/// manager takes it in no such way; nd__place_publish says what to do, or what is wrong.
bool nd__publish_beside(nd_object *object, nd_object *neighbour, void *slot);

/// Whether an object of that type, which a cap counts, could be published there now. The error of
/// nd__publish if not. For who would leave something behind beside an object that is refused.
__attribute__((cold)) nd_status nd__publish_check(const nd_type *type, nd_manager *manager);
/// The same before bytes are charged there for an object: a request that a cap refuses is not to be in
/// the way of others meanwhile, nor to be seen in an account. (As long as no other thread takes the last
/// place in between: then publishing refuses.)
static inline nd_status nd__publish_expect(const nd_type *type, nd_manager *manager) {
    return __builtin_expect(nd__atomic_load(&manager->single, relaxed), 0)
               ? nd__publish_check(type, manager)
               : ND_OK;
}

/// Gives up the lock of a shard of a manager that has closed, and locks the one that this thread
/// has to fill of its nearest ancestor that has not.
__attribute__((cold)) nd_shard *nd__publish_lock_above(nd_shard *shard, nd_manager *manager);

/// Tells who listens that an object has entered a manager, whose lock is held.
static inline void nd__publish_tell(const nd_object *object, const nd_manager *manager) {
    const nd__listener *listener = nd__trace_listener();
    if (listener)
        listener->born(object, manager);
}

// ------------------------------------------------------------------------------------ how it is done

/// Gives up the lock as well. Returns the error.
__attribute__((cold)) nd_status nd__publish_refuse(nd_shard *shard, nd_object *object);
/// Bytes were charged to `manager`, but the object went to `target`, above it.
__attribute__((cold)) void nd__publish_charge_instead(nd_object *object, nd_manager *manager,
                                                      nd_manager *target);

/// Of an object that is still private.
static inline uint32_t nd__publish_mark_tracked(nd_object *object, uint32_t type_flags) {
    uint32_t flags = nd__object_flags(object);
    if (!(type_flags & (ND_TYPE_GREEN | ND__TYPE_UNTRACKED))) {
        flags |= ND__TRACKED;
        nd__atomic_store(&object->flags, flags, relaxed);
    }
    return flags;
}

/// `type_flags`: of the object's type, which may be known beforehand. `storage` is NULL, or private
/// too; `view` is NULL, or the object.
static inline __attribute__((always_inline)) nd_status
nd__publish_as(nd_object *object, uint32_t type_flags, nd_object *storage, nd__stored *view,
               nd_manager *manager) {
    if (__builtin_expect(nd__thread_record.in_callback, 0))
        return nd__callback_error(object->type->name);
    uint32_t flags = nd__publish_mark_tracked(object, type_flags);
    nd_shard *shard = nd__shard_lock_to_fill(manager);
    if (__builtin_expect(!nd__manager_open(manager), 0))
        shard = nd__publish_lock_above(shard, manager);
    if (__builtin_expect(nd__member_cap_refuses(shard, object), 0))
        return nd__publish_refuse(shard, object);
    if (storage)
        nd__member_enter(shard, storage, nd__object_flags(storage));
    if (view)
        nd__borrow_begin(shard, view);
    nd__member_enter_as(shard, object, flags, type_flags);
    shard->count.created += storage ? 2 : 1;
    // Under the lock: as soon as it is given up, somebody may close the object, and the storage
    // with it.
    if (__builtin_expect(shard->manager != manager, 0)) {
        nd__publish_charge_instead(object, manager, shard->manager);
        if (storage)
            nd__publish_charge_instead(storage, manager, shard->manager);
    }
    if (storage)
        nd__publish_tell(storage, shard->manager);
    nd__publish_tell(object, shard->manager);
    nd__shard_unlock(shard);
    if (flags & ND__TRACKED)
        nd__trigger_count_tracked();
    nd__shard_spread_if_crowded();
    return ND_OK;
}

/// nd__publish_view, inline.
static inline __attribute__((always_inline)) nd_status nd__publish_view_here(nd__stored *view,
                                                                             nd_manager *manager) {
    return nd__publish_as(&view->accounted.header, ND__TYPE_OF_TENSORS, NULL, view, manager);
}
#endif
