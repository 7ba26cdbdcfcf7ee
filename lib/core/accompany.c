// Objects that get their companion late (accompany.h).
//
// The object's edge to it is set under the lock of the object's home and not in the gate: it leads to a green object
// that nobody else has, so the collector, which counts edges to tracked objects, misses nothing by not
// seeing it. Reports see it with the lock held, or a moment later.
#include "lib/core/accompany.h"
#include "lib/core/error.h"
#include "lib/core/manager_internal.h"
#include "lib/core/member.h"

static void set_companion(nd_object *object, nd_accounted *companion) {
    nd__accompanied *accompanied = (nd__accompanied *)object;
    companion->bytes = accompanied->accounted.bytes;
    accompanied->accounted.bytes = 0;
    nd__fetch_or_flags(&object->flags, ND__LENT);
}

/// Under the lock of the object's home: from here on others see it.
static void enter(nd_shard *home, nd_object *object, nd_accounted *companion) {
    set_companion(object, companion);
    // The account of the home stays as it is: what the companion brings the object has given up.
    home->count.own_bytes[companion->kind] -= companion->bytes;
    if (nd__flags(object) & ND__TEMP)
        nd__fetch_or_flags(&companion->header.flags, ND__TEMP);
    nd__member_enter(home, &companion->header, nd__flags(&companion->header));
    home->count.created++;
    const nd__listener *listener = nd__listener_now();
    if (listener)
        listener->born(&companion->header, home->manager);
    nd__atomic_store(&((nd__accompanied *)object)->companion, &companion->header, release);
}

/// An object that has left its manager, as garbage that is being cut: only this thread has it, and its
/// bytes are discharged already.
static void accompany_homeless(nd_object *object, nd_accounted *companion) {
    set_companion(object, companion);
    nd__object_reattach(&companion->header);
    nd__atomic_store(&((nd__accompanied *)object)->companion, &companion->header, release);
}

nd_status nd__object_accompany(const char *operation, nd_object *object, nd_accounted *companion,
                               bool *ret_first) {
    nd_origin *spare = NULL;
    int origins = 0;
    nd_status status = ND_OK;
    for (bool done = false; !done;) {
        nd_shard *home = nd__lock_home(object);
        bool closing = nd__is_closing(object);
        *ret_first = !closing && !nd__companion_of(object);
        int needed = *ret_first && home && (nd__flags(object) & ND__TEMP)
                         ? nd__origin_copy(object, &companion->header, origins, &spare)
                         : 0;
        done = needed <= origins;
        if (closing)
            status =
                nd__error(ND_ERROR_CLOSED, "%s: the %s was closed", operation, object->type->name);
        else if (done && *ret_first && home)
            enter(home, object, companion);
        if (home)
            nd__unlock(&home->lock);
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
