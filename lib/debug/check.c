// Check of the invariants of managers: links, counters, accounts.
#include "lib/base/atomics.h"
#include "lib/base/biased_lock.h"
#include "lib/base/error.h"
#include "lib/manager/account.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include <inttypes.h>
#include <nd/debug.h>

/// What is wrong with a shard; NULL: nothing.
static const char *check_shard(nd_shard *shard, nd_manager *manager) {
    uint64_t live = 0, tracked = 0, temporary = 0, uncapped = 0, own[ND__KIND_PLACES] = {0};
    const char *broken = NULL;
    shard = nd__shard_lock_in(shard, manager);
    for (int list = 0; list < 2; list++) {
        const nd_object *previous = NULL;
        for (nd_object *object = shard->lists[list].first; object;
             previous = object, object = object->next) {
            live++;
            tracked += (uint64_t)list;
            bool away = (nd__object_flags(object) & ND__TEMP) != 0;
            temporary += away;
            uncapped += !away && (object->type->flags & ND__TYPE_UNCAPPED);
            if (object->previous != previous)
                broken = "a link points to the wrong neighbour";
            if (nd__atomic_load(&object->shard, relaxed) != shard)
                broken = "an object names another shard";
            if (((nd__object_flags(object) & ND__TRACKED) != 0) != (list == ND__TRACKED_LIST))
                broken = "an object is in the wrong list";
            if (object->type->flags & ND__TYPE_ACCOUNTED)
                own[((nd_accounted *)object)->kind] += ((nd_accounted *)object)->bytes;
        }
        if (shard->lists[list].last != previous)
            broken = "the last object is not the last";
    }
    const nd__counters *count = &shard->count;
    if (live != count->live || tracked != count->tracked)
        broken = "the number of objects is wrong";
    if (temporary != count->temporary || uncapped != count->uncapped)
        broken = "the number of objects that are away from home, or beyond a cap, is wrong";
    if (count->created + count->arrived !=
        count->freed + count->collected + count->departed + count->live)
        broken = "created + arrived is not freed + collected + departed + live";
    for (int kind = 0; kind < ND__KIND_PLACES; kind++)
        if (own[kind] != count->own_bytes[kind])
            broken = "the bytes of its objects are not its account";
    nd__shard_unlock(shard);
    return broken;
}

static nd_status check_manager(nd_manager *manager) {
    const char *broken = NULL;
    for (nd_shard *shard = nd__shard_first(manager); shard && !broken;
         shard = nd__shard_next(shard))
        broken = check_shard(shard, manager);
    return broken ? nd__error(ND_ERROR_STATE, "debug_check: manager %s: %s", manager->name, broken)
                  : ND_OK;
}

/// Of the managers below: one that ends now, which nobody can retain any more, is among them until it
/// has left.
static uint64_t bytes_of_children(nd_manager *manager, nd_device_kind kind) {
    uint64_t bytes = 0;
    for (nd_shard *shard = nd__shard_first(manager); shard; shard = nd__shard_next(shard)) {
        nd__biased_lock_acquire(&shard->lock);
        for (nd_manager *child = shard->children; child; child = child->next_sibling)
            bytes += nd__account_held(child, kind);
        nd__shard_unlock(shard);
    }
    return bytes;
}

/// subtree_bytes = own bytes + those of the children. Only true while no other thread allocates.
static nd_status check_account(nd_manager *manager) {
    const nd__counters count = nd__shard_total(manager);
    for (nd_device_kind kind = 0; kind < ND__KIND_PLACES; kind++) {
        uint64_t sum = count.own_bytes[kind] + bytes_of_children(manager, kind);
        uint64_t account = nd__account_held(manager, kind);
        if (sum != account)
            return nd__error(ND_ERROR_STATE,
                             "debug_check: manager %s: its objects and children hold %" PRIu64
                             " bytes, its account says %" PRIu64,
                             manager->name, sum, account);
    }
    return ND_OK;
}

nd_status nd_debug_check(void) {
    nd__manager_array managers = {0};
    if (!nd__manager_subtree(&nd__manager_root, &managers))
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "debug_check: no memory to list the managers");
    nd_status status = ND_OK;
    for (size_t i = 0; i < managers.count && status == ND_OK; i++)
        status = check_manager(managers.items[i]);
    for (size_t i = 0; i < managers.count && status == ND_OK; i++)
        status = check_account(managers.items[i]);
    nd__manager_array_free(&managers);
    return status;
}
