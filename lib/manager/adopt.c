// Objects that get their storage late (adopt.h).
//
// The object's edge to it is set under the lock of the object's shard and not in the gate: it leads
// to a green object that nobody else has, so the collector, which counts edges to tracked objects,
// misses nothing by not seeing it. Reports see it with the lock held, or a moment later.
#include "lib/manager/adopt.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/manager/manager.h"
#include "lib/manager/member.h"
#include "lib/manager/origin.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include "lib/object/trace.h"

static void set_storage(nd_object *object, nd_accounted *storage) {
    nd__stored *stored = (nd__stored *)object;
    storage->bytes = stored->accounted.bytes;
    stored->accounted.bytes = 0;
    nd__atomic_set_flags(&object->flags, ND__LENT);
}

/// Under the lock of the object's shard: from here on others see it.
static void enter(nd_shard *shard, nd_object *object, nd_accounted *storage) {
    set_storage(object, storage);
    // The account of the shard stays as it is: what the storage brings the object has given up.
    shard->count.own_bytes[storage->kind] -= storage->bytes;
    if (nd__object_flags(object) & ND__TEMP)
        nd__atomic_set_flags(&storage->header.flags, ND__TEMP);
    nd__member_enter(shard, &storage->header, nd__object_flags(&storage->header));
    shard->count.created++;
    const nd__listener *listener = nd__trace_listener();
    if (listener)
        listener->born(&storage->header, shard->manager);
    nd__atomic_store(&((nd__stored *)object)->storage, &storage->header, release);
}

/// An object that has left its manager, as garbage that is being cut: only this thread has it, and
/// its bytes are discharged already.
static void adopt_unattached(nd_object *object, nd_accounted *storage) {
    set_storage(object, storage);
    nd__member_reattach(&storage->header);
    nd__atomic_store(&((nd__stored *)object)->storage, &storage->header, release);
}

nd_status nd__adopt_storage(const char *operation, nd_object *object, nd_accounted *storage,
                            bool *ret_first) {
    nd_origin *spare = NULL;
    int origins = 0;
    nd_status status = ND_OK;
    for (bool done = false; !done;) {
        nd_shard *shard = nd__shard_lock_of(object);
        bool closing = nd__object_is_closing(object);
        *ret_first = !closing && !nd__object_storage(object);
        int needed = *ret_first && shard && (nd__object_flags(object) & ND__TEMP)
                         ? nd__origin_copy(object, &storage->header, origins, &spare)
                         : 0;
        done = needed <= origins;
        if (closing)
            status =
                nd__error(ND_ERROR_CLOSED, "%s: the %s was closed", operation, object->type->name);
        else if (done && *ret_first && shard)
            enter(shard, object, storage);
        if (shard)
            nd__shard_unlock(shard);
        if (!shard && *ret_first)
            adopt_unattached(object, storage);
        if (!done && !nd__origin_reserve(&spare, needed - origins)) {
            status =
                nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory to remember where a %s came from",
                          operation, object->type->name);
            break;
        }
        origins = needed;
    }
    nd__origin_discard(spare);
    return status;
}
