// How loans end (loan.h).
#include "lib/manager/loan.h"
#include "lib/base/atomics.h"
#include "lib/manager/shard.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"

/// Of an object that is in no shard nobody else knows.
static void unlock(nd_shard *shard) {
    if (shard)
        nd__shard_unlock(shard);
}

static void set_storage(nd__stored *object, nd_object *storage) {
    nd__atomic_store(&object->storage, storage, release);
}

nd_object *nd__loan_end(nd__stored *view) {
    nd__stored *base = nd__loan_base(view);
    nd_shard *shard = nd__shard_lock_of(&base->accounted.header);
    nd_object *left = nd__loan_return(base, nd__object_storage(&view->accounted.header));
    unlock(shard);
    return left;
}

/// What a base lends it keeps for the borrowers, if it has not left them another storage before.
/// Under the lock. Returns whether it does.
static bool keep_for_borrowers(nd__stored *base) {
    if (base->loans == 0 || (base->loans & ND__LOANS_ENDING))
        return false;
    base->loans |= ND__LOANS_ENDING;
    return true;
}

void nd__loan_clear(nd__stored *object) {
    nd_object *storage = nd__object_storage(&object->accounted.header), *left;
    if (!storage)
        return;
    nd__gate_enter_to_clear();
    if (nd__loan_is_borrower(object)) {
        left = nd__loan_end(object);
        object->loans = 0;
        set_storage(object, NULL);
    } else {
        nd_shard *shard = nd__shard_lock_of(&object->accounted.header);
        left = keep_for_borrowers(object) ? NULL : storage;
        if (left)
            set_storage(object, NULL);
        unlock(shard);
    }
    nd__gate_leave();
    nd_object_release(left);
}

void nd__loan_settle(nd__stored *view) {
    if (!nd__loan_is_borrower(view))
        return;
    nd__object_keep(nd__object_storage(&view->accounted.header));
    nd__gate_enter();
    nd_object *left = nd__loan_end(view);
    view->loans = 0;
    nd__gate_leave();
    nd_object_release(left);
}

void nd__loan_replace(nd__stored *base, nd_object *storage) {
    nd__object_keep(storage);
    nd__gate_enter();
    nd_shard *shard = nd__shard_lock_of(&base->accounted.header);
    nd_object *before = nd__object_storage(&base->accounted.header);
    if (keep_for_borrowers(base))
        before = NULL;
    set_storage(base, storage);
    unlock(shard);
    nd__gate_leave();
    nd_object_release(before);
}
