// What of a birth is not inline (publish.h).
#include "lib/manager/publish.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/thread.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/manager/member.h"
#include "lib/manager/shard.h"
#include "lib/manager/trigger.h"
#include "lib/object/callback.h"
#include "lib/object/object.h"

nd_shard *nd__publish_lock_above(nd_shard *shard, nd_manager *manager) {
    do {
        nd__shard_unlock(shard);
        manager = nd__manager_nearest_open(manager->parent);
        shard = nd__shard_lock_to_fill(manager);
    } while (!nd__manager_open(manager));
    return shard;
}

/// Gives up the lock.
static nd_status refuse(nd_shard *shard, const nd_type *type) {
    const nd_manager *manager = shard->manager;
    const uint64_t cap = manager->cap;
    nd__shard_unlock(shard);
    return nd__error(ND_ERROR_QUOTA, "a new %s does not fit: manager %s is capped at %llu objects",
                     type->name, manager->name, (unsigned long long)cap);
}

nd_status nd__publish_refuse(nd_shard *shard, nd_object *object) {
    nd__atomic_clear_flags(&object->flags, ND__TRACKED);
    return refuse(shard, object->type);
}

nd_status nd__publish_check(const nd_type *type, nd_manager *manager) {
    if (nd__thread_record.in_callback)
        return nd__callback_error(type->name);
    nd_shard *shard = nd__shard_lock_to_fill(manager);
    if (!nd__manager_open(manager))
        shard = nd__publish_lock_above(shard, manager);
    if (nd__member_cap_is_reached(shard))
        return refuse(shard, type);
    nd__shard_unlock(shard);
    return ND_OK;
}

void nd__publish_charge_instead(nd_object *object, nd_manager *manager, nd_manager *target) {
    nd_accounted *account = nd__object_accounted(object);
    if (account && account->bytes)
        nd__charge_return_path(manager, target, account->kind, account->bytes);
}

nd_status nd__publish(nd_object *object, nd_manager *manager) {
    return nd__publish_as(object, object->type->flags, NULL, NULL, manager);
}

nd_status nd__publish_both(nd_object *object, nd_object *storage, nd_manager *manager) {
    return nd__publish_as(object, object->type->flags, storage, NULL, manager);
}

nd_status nd__publish_view(nd__stored *view, nd_manager *manager) {
    return nd__publish_view_here(view, manager);
}

bool nd__publish_beside(nd_object *object, nd_object *neighbour, void *slot) {
    nd_shard *shard = nd__thread_record.in_callback ? NULL : nd__shard_lock_of(neighbour);
    if (__builtin_expect(!shard, 0))
        return false;
    if (__builtin_expect(!nd__manager_open(shard->manager) || shard->for_escapes ||
                             nd__member_cap_refuses(shard, object),
                         0)) {
        nd__shard_unlock(shard);
        return false;
    }
    uint32_t flags = nd__publish_mark_tracked(object, object->type->flags);
    nd__member_enter(shard, object, flags);
    shard->count.created++;
    if (slot) {
        *(nd_object **)slot = object;
        nd__member_track_locked(shard, neighbour);
    }
    nd__publish_tell(object, shard->manager);
    nd__shard_unlock(shard);
    if (flags & ND__TRACKED)
        nd__trigger_count_tracked();
    nd__shard_spread_if_crowded();
    return true;
}
