// Objects that get their companion late (adopt.h).
//
// The object's edge to it is set under the lock of the object's home and not in the gate: it leads to a green object
// that nobody else has, so the collector, which counts edges to tracked objects, misses nothing by not
// seeing it. Reports see it with the lock held, or a moment later.
#include "lib/manager/adopt.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/lock.h"
#include "lib/manager/manager.h"
#include "lib/manager/member.h"
#include "lib/manager/origin.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include "lib/object/trace.h"

static void set_companion(nd_object *object, nd_accounted *companion) {
    nd__stored *accompanied = (nd__stored *)object;
    companion->bytes = accompanied->accounted.bytes;
    accompanied->accounted.bytes = 0;
    nd__atomic_set_flags(&object->flags, ND__LENT);
}

/// Under the lock of the object's home: from here on others see it.
static void enter(nd_shard *home, nd_object *object, nd_accounted *companion) {
    set_companion(object, companion);
    // The account of the home stays as it is: what the companion brings the object has given up.
    home->count.own_bytes[companion->kind] -= companion->bytes;
    if (nd__object_flags(object) & ND__TEMP)
        nd__atomic_set_flags(&companion->header.flags, ND__TEMP);
    nd__member_enter(home, &companion->header, nd__object_flags(&companion->header));
    home->count.created++;
    const nd__listener *listener = nd__trace_listener();
    if (listener)
        listener->born(&companion->header, home->manager);
    nd__atomic_store(&((nd__stored *)object)->companion, &companion->header, release);
}

/// An object that has left its manager, as garbage that is being cut: only this thread has it, and its
/// bytes are discharged already.
static void accompany_homeless(nd_object *object, nd_accounted *companion) {
    set_companion(object, companion);
    nd__member_reattach(&companion->header);
    nd__atomic_store(&((nd__stored *)object)->companion, &companion->header, release);
}

nd_status nd__adopt_storage(const char *operation, nd_object *object, nd_accounted *companion,
                            bool *ret_first) {
    nd_origin *spare = NULL;
    int origins = 0;
    nd_status status = ND_OK;
    for (bool done = false; !done;) {
        nd_shard *home = nd__shard_lock_of(object);
        bool closing = nd__object_is_closing(object);
        *ret_first = !closing && !nd__object_storage(object);
        int needed = *ret_first && home && (nd__object_flags(object) & ND__TEMP)
                         ? nd__origin_copy(object, &companion->header, origins, &spare)
                         : 0;
        done = needed <= origins;
        if (closing)
            status =
                nd__error(ND_ERROR_CLOSED, "%s: the %s was closed", operation, object->type->name);
        else if (done && *ret_first && home)
            enter(home, object, companion);
        if (home)
            nd__lock_release(&home->lock);
        if (!home && *ret_first)
            accompany_homeless(object, companion);
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
