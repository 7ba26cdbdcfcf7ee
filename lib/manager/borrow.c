// How borrowing ends (borrow.h).
#include "lib/manager/borrow.h"
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

nd_object *nd__borrow_end(nd__stored *view) {
    nd__stored *base = nd__borrow_base(view);
    nd_shard *shard = nd__shard_lock_of(&base->accounted.header);
    nd_object *left = nd__borrow_end_locked(base, nd__object_storage(&view->accounted.header));
    unlock(shard);
    return left;
}

/// Whether a base's count of its storage is needed by borrowers, who have no other. Under the lock.
static bool is_lending(const nd__stored *base) {
    return (base->borrowers & ND__BORROWERS_COUNT) && !(base->borrowers & ND__BORROWERS_REPLACED);
}

/// The same for what is no borrower. Returns what is to be released. The storage is looked at under
/// the lock: the last borrower of one that was cleared before may be ending just now.
static nd_object *clear_own(nd__stored *object) {
    nd_shard *shard = nd__shard_lock_of(&object->accounted.header);
    nd_object *left = NULL;
    if (is_lending(object)) {
        object->borrowers |= ND__BORROWERS_ENDING;
    } else {
        left = nd__object_storage(&object->accounted.header);
        set_storage(object, NULL);
    }
    unlock(shard);
    return left;
}

void nd__borrow_clear(nd__stored *object) {
    nd_object *left;
    nd__gate_enter_to_clear();
    if (nd__borrow_is_borrower(object)) {
        left = nd__borrow_end(object);
        object->borrowers = 0;
        set_storage(object, NULL);
    } else {
        left = clear_own(object);
    }
    nd__gate_leave();
    nd_object_release(left);
}

void nd__borrow_settle(nd__stored *view) {
    if (!nd__borrow_is_borrower(view))
        return;
    nd__object_keep(nd__object_storage(&view->accounted.header));
    nd__gate_enter();
    nd_object *left = nd__borrow_end(view);
    view->borrowers = 0;
    nd__gate_leave();
    nd_object_release(left);
}

void nd__borrow_replace(nd__stored *base, nd_object *storage) {
    nd__object_keep(storage);
    nd__gate_enter();
    nd_shard *shard = nd__shard_lock_of(&base->accounted.header);
    nd_object *before = nd__object_storage(&base->accounted.header);
    if (is_lending(base)) {
        base->borrowers |= ND__BORROWERS_REPLACED;
        before = NULL;
    }
    set_storage(base, storage);
    unlock(shard);
    nd__gate_leave();
    nd_object_release(before);
}
