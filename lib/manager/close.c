// Closing an object: it gives up its edges and payload, and stays as a handle.
#include "lib/base/atomics.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/thread.h"
#include "lib/manager/destroy.h"
#include "lib/manager/member.h"
#include "lib/manager/shard.h"
#include "lib/object/callback.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"

nd_status nd_close(void *handle) {
    if (!handle)
        return nd__error_null("close", "object");
    nd_object *object = handle;
    if (nd__callback_check("close") != ND_OK)
        return ND_ERROR_STATE;
    if (object->type->flags & ND__TYPE_MANAGER)
        return nd_manager_close(handle, NULL);
    if (nd__atomic_set_flags(&object->flags, ND__CLOSING) & ND__CLOSING)
        return ND_OK;
    ND__UNCANCELLED;
    nd_thread *thread = nd__thread();
    bool outermost = nd__destroy_begin(thread);
    nd__gate_enter_to_clear();
    if (object->type->clear)
        object->type->clear(object);
    // Inside the gate: no traverse meets what destroy frees.
    nd__atomic_set_flags(&object->flags, ND__CLOSED);
    nd__gate_leave();
    // A report that saw it open may be asking `describe` about it, under its manager's lock.
    nd_shard *shard = nd__shard_lock_of(object);
    if (shard)
        nd__shard_unlock(shard);
    nd__member_close_account(object);
    if (object->type->destroy)
        nd__destroy_payload(object);
    nd__atomic_set_flags(&object->flags, ND__GONE);
    nd__destroy_end(thread, outermost);
    return ND_OK;
}

bool nd_is_closed(const void *object) {
    if (!object)
        return false;
    if (((const nd_object *)object)->type->flags & ND__TYPE_MANAGER)
        return !nd_manager_is_open(object);
    return nd__object_is_closed(object);
}
