// Attach and temp-attach: objects that go from one manager to another.
//
// Invariant: an object and its storage, when that lives where it does, move at once, under the
// locks of all shards concerned; what a cap or quota refuses has not moved.
#include "lib/manager/attach.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/seam.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/manager/member.h"
#include "lib/manager/origin.h"
#include "lib/manager/place.h"
#include "lib/manager/request.h"
#include "lib/manager/shard.h"
#include "lib/object/callback.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"

/// What moves at once: an object and, when it is a tensor whose storage lives where it does, that.
typedef struct relocation {
    const char *operation;
    nd_object *object;
    bool alone;         ///< the storage stays, wherever it is
    nd_manager *target; ///< kept valid by the caller
    // While locked:
    nd_object *storage;                  ///< NULL: nothing goes along
    nd_shard *from, *storage_shard, *to; ///< where the two are, and where they go
} relocation;

static bool may_have_storage(const nd_object *object) {
    return (object->type->flags & ND__TYPE_TENSOR) != 0;
}

static nd_object *storage_now(const nd_object *object) {
    return may_have_storage(object) && !nd__object_is_closed(object) ? nd__object_storage(object)
                                                                     : NULL;
}

/// A third shard to lock, which few have: that of a storage which is in neither of the other two.
static nd_shard *third_shard(const relocation *all) {
    nd_shard *third = all->storage_shard;
    return third == all->from || third == all->to ? NULL : third;
}

static void lock_shards(const relocation *all) {
    nd_shard *third = third_shard(all);
    if (__builtin_expect(!third, 1)) {
        nd__shard_lock_pair(all->from, all->to);
        return;
    }
    nd_shard *shards[] = {all->from, all->to, third};
    nd__shard_lock_all(shards, 3);
}

static void unlock_shards(const relocation *all) {
    nd_shard *third = third_shard(all);
    nd__shard_unlock_pair(all->from, all->to);
    if (third)
        nd__shard_unlock(third);
}

static void relocation_unlock(const relocation *all) {
    unlock_shards(all);
    nd__shard_spread_if_crowded();
}

/// Locks where the two are and where they go, all at once. False: the object is in no manager, and
/// nothing is locked.
static bool relocation_lock(relocation *all) {
    bool retired = false;
    for (;;) {
        nd_shard *shard = nd__object_shard(all->object);
        nd_object *storage = all->alone ? NULL : storage_now(all->object);
        nd_shard *storage_shard = storage ? nd__object_shard(storage) : NULL;
        if (!shard)
            return false;
        all->from = shard;
        all->storage = storage;
        all->storage_shard = storage_shard;
        all->to = nd__manager_of_shard(shard) == all->target ? shard
                  : retired                                  ? &all->target->first
                                                             : nd__shard_own(all->target);
        lock_shards(all);
        retired = all->to->retired;
        // A storage that has appeared meanwhile has the object's bytes.
        if (__builtin_expect(!retired && nd__object_shard(all->object) == shard &&
                                 all->to->manager == all->target && // else it was handed up
                                 (storage ? nd__object_shard(storage) == storage_shard
                                          : all->alone || !storage_now(all->object)),
                             1))
            return true;
        unlock_shards(all);
    }
}

static nd_status not_attached(const relocation *all) {
    return nd__error(ND_ERROR_STATE, "%s: the %s is in no manager yet", all->operation,
                     all->object->type->name);
}

/// Where an object is, or will be once the closes that have begun are done. Its shard is locked.
static const nd_manager *will_be_in(const nd_object *object, const nd_shard *shard) {
    if (__builtin_expect(nd__manager_open(shard->manager), 1))
        return shard->manager;
    const nd_manager *back = (nd__object_flags(object) & ND__TEMP) ? nd__origin_peek(object) : NULL;
    return back ? back : nd__manager_nearest_open(shard->manager);
}

/// Once locked: leaves the storage behind that lives elsewhere.
static void choose_storage(relocation *all) {
    if (all->storage && (!all->storage_shard || (all->storage_shard != all->from &&
                                                 will_be_in(all->storage, all->storage_shard) !=
                                                     will_be_in(all->object, all->from))))
        all->storage = NULL;
}

static nd_shard *shard_of_part(const relocation *all, const nd_object *object) {
    return object == all->storage ? all->storage_shard : all->from;
}

/// Charges the target with what comes to it, down from where that is charged already. `refusal`
/// NULL: no quota may refuse.
static bool charge(const relocation *all, nd_pressure *refusal) {
    nd_object *bearer = all->storage ? all->storage : all->object;
    const nd_accounted *account = nd__object_accounted(bearer);
    const nd_manager *from = shard_of_part(all, bearer)->manager;
    if (!account || !account->bytes || from == all->target)
        return true;
    nd_manager *common = nd__place_common_ancestor((nd_manager *)(uintptr_t)from, all->target);
    if (nd__charge_path(all->target, common, account->kind, account->bytes,
                        refusal ? &refusal->refused : NULL))
        return true;
    refusal->kind = account->kind;
    refusal->bytes = account->bytes;
    return false;
}

/// Whether the target takes them. Afterwards nothing can fail. `refusal` NULL: neither cap nor
/// quota may refuse. What a quota refuses is written to `refusal`, and no error is set.
static nd_status admit(const relocation *all, nd_pressure *refusal) {
    const nd_manager *target = all->target;
    if (!nd__manager_open(target))
        return nd__error(ND_ERROR_CLOSED, "%s: manager %s is closed", all->operation, target->name);
    bool counted = all->from->manager == target && !(nd__object_flags(all->object) & ND__TEMP);
    if (refusal && !counted && nd__member_cap_refuses(all->to, all->object))
        return nd__error(ND_ERROR_QUOTA, "%s: manager %s is capped at %llu objects", all->operation,
                         target->name, (unsigned long long)target->cap);
    return charge(all, refusal) ? ND_OK : ND_ERROR_QUOTA;
}

/// Moves one of the two, which was admitted. `away`: it has origins.
static void transfer(const relocation *all, nd_object *object, bool away) {
    nd_shard *from = shard_of_part(all, object), *to = all->to;
    uint32_t flags = nd__object_flags(object);
    nd__member_leave(from, object, flags);
    if (away && !(flags & ND__TEMP))
        nd__atomic_set_flags(&object->flags, ND__TEMP);
    else if (!away && (flags & ND__TEMP))
        nd__atomic_clear_flags(&object->flags, ND__TEMP);
    nd__member_enter(to, object, nd__object_flags(object));
    if (from->manager == to->manager) { // perhaps in another shard: each one's counts add up
        from->count.arrived--;
        to->count.arrived++;
        return;
    }
    nd__gate_note_edge();
    from->count.departed++;
    to->count.arrived++;
    const nd_accounted *account = nd__object_accounted(object);
    if (account && account->bytes)
        nd__charge_return_path(from->manager, nd__place_common_ancestor(from->manager, to->manager),
                               account->kind, account->bytes);
}

static nd_status check_attach(const char *operation, const nd_manager *manager,
                              const void *object) {
    if (!manager || !object)
        return nd__error_null(operation, manager ? "object" : "manager");
    if (((const nd_object *)object)->type->flags & ND__TYPE_MANAGER)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: a manager has a parent and cannot be attached", operation);
    return nd__callback_check(operation);
}

static void stay(const relocation *all, nd_object *object, nd_origin **spare) {
    if (!object)
        return;
    if (nd__object_flags(object) & ND__TEMP)
        nd__origin_drop(object, spare);
    transfer(all, object, false);
}

static nd_status attach(nd_object *object, nd_manager *target, nd_pressure *refusal) {
    refusal->refused = NULL;
    relocation all = {.operation = "manager_attach", .object = object, .target = target};
    if (!relocation_lock(&all))
        return not_attached(&all);
    choose_storage(&all);
    nd_origin *spare = NULL;
    nd_status status = admit(&all, refusal);
    if (status == ND_OK) {
        stay(&all, all.storage, &spare);
        stay(&all, object, &spare);
    }
    relocation_unlock(&all);
    nd__origin_discard(spare);
    return status;
}

typedef struct refused_attach {
    nd_pressure pressure;
    nd_object *object;
} refused_attach;

/// From the beginning: what ran in between may have moved the object.
static nd_status attach_again(nd_pressure *pressure) {
    nd_status status = attach(((refused_attach *)pressure)->object, pressure->manager, pressure);
    return status == ND_ERROR_QUOTA && !pressure->refused ? ND_ERROR_STATE : status; // a cap
}

nd_status nd_manager_attach(const nd_manager *manager, const void *handle) {
    nd_status status = check_attach("manager_attach", manager, handle);
    if (status != ND_OK)
        return status;
    refused_attach again = {
        .pressure = {.operation = "manager_attach",
                     .manager = (nd_manager *)(uintptr_t)manager,
                     .attempt = attach_again},
        .object = (nd_object *)(uintptr_t)handle,
    };
    nd_pressure *pressure = &again.pressure;
    status = attach(again.object, pressure->manager, pressure);
    if (!pressure->refused)
        return status;
    status = nd__seam_pressure_walk(pressure, ND_ERROR_QUOTA);
    if (status == ND_OK)
        return ND_OK;
    if (pressure->refused)
        return nd__seam_pressure_error(pressure, ND_ERROR_QUOTA);
    return attach(again.object, pressure->manager, pressure); // what else refuses says so itself
}

static void lend(const relocation *all, nd_object *object, nd_origin **spare) {
    nd_manager *from = object ? shard_of_part(all, object)->manager : all->target;
    if (from != all->target)
        transfer(all, object, nd__origin_lend(object, from, all->target, spare));
}

nd_status nd_manager_lend(const nd_manager *manager, const void *handle) {
    nd_status status = check_attach("manager_lend", manager, handle);
    if (status != ND_OK)
        return status;
    relocation all = {
        .operation = "manager_lend",
        .object = (nd_object *)(uintptr_t)handle,
        .target = (nd_manager *)(uintptr_t)manager,
    };
    nd_origin *spare = NULL;
    if (!nd__origin_reserve(&spare, may_have_storage(all.object) ? 2 : 1)) {
        nd__origin_discard(spare);
        return nd__error(ND_ERROR_OUT_OF_MEMORY,
                         "manager_lend: no memory to remember where a %s came from",
                         nd_get_type_name(handle));
    }
    if (relocation_lock(&all)) {
        choose_storage(&all);
        status = admit(&all, NULL);
        if (status == ND_OK) {
            lend(&all, all.storage, &spare);
            lend(&all, all.object, &spare);
        }
        relocation_unlock(&all);
    } else {
        status = not_attached(&all);
    }
    nd__origin_discard(spare);
    return status;
}

bool nd__attach_return(nd_object *object, nd_manager *from) {
    nd_origin *spare = NULL;
    bool here = true, returned = false;
    while (here && !returned) {
        nd_manager *target = nd__origin_get(object);
        if (!target)
            break;
        // A tensor and its storage go back one after the other, each its own way: another thread
        // may be closing the tensor, so the storage cannot be reached from here.
        relocation all = {.operation = "return", .object = object, .alone = true, .target = target};
        here = relocation_lock(&all);
        if (here) {
            bool away;
            here = all.from->manager == from && (nd__object_flags(object) & ND__TEMP);
            // Where it goes may have closed between the two looks.
            returned = here && nd__origin_return(object, target, &away, &spare);
            if (returned) {
                charge(&all, NULL);
                transfer(&all, object, away);
            }
            relocation_unlock(&all);
        }
        nd_object_release(target);
    }
    nd__origin_discard(spare);
    return returned;
}
