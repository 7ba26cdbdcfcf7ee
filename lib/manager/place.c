// Placement: which manager a new object belongs to.
//
// Invariant: the manager that nd__place_begin answers stays valid until nd__place_end: it is the
// root, this thread's current manager (which its nd_with_manager block holds), or retained.
#include "lib/manager/place.h"
#include "lib/base/thread.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/manager/publish.h"
#include "lib/manager/shard.h"
#include "lib/manager/trigger.h"
#include "lib/object/object.h"

/// The manager of an object, retained; the root is not counted. An object in no manager counts as
/// in the root.
static nd_manager *pin(nd_object *object) {
    // While the process has one thread nothing can close the manager under us, but user code later
    // in the operation may.
    nd_shard *shard = nd__shard_lock_of(object);
    if (!shard)
        return &nd__manager_root;
    nd_manager *pinned = shard->manager;
    // One whose last handle is gone is about to close: its parent, which it still holds, comes
    // next.
    while (pinned != &nd__manager_root && !nd__object_try_retain(&pinned->header))
        pinned = pinned->parent;
    nd__shard_unlock(shard);
    return pinned;
}

static void unpin(nd_manager *manager) {
    if (manager != &nd__manager_root)
        nd_object_release(manager);
}

nd_manager *nd__place_common_ancestor(nd_manager *a, nd_manager *b) {
    while (a != b) {
        if (a->depth >= b->depth)
            a = a->parent;
        else
            b = b->parent;
    }
    return a;
}

/// The deeper of two managers on one path, else their lowest common ancestor. Commutative.
static nd_manager *combine(nd_manager *a, nd_manager *b) {
    nd_manager *common = nd__place_common_ancestor(a, b);
    if (common == a)
        return b;
    if (common == b)
        return a;
    return common;
}

static nd_place place_of_many(const nd_object *const *operands, size_t count) {
    nd_manager *chosen = NULL;
    for (size_t i = 0; i < count; i++) {
        if (!operands[i] || (chosen && nd__manager_of(operands[i]) == chosen))
            continue;
        nd_manager *other = pin((nd_object *)(uintptr_t)operands[i]);
        if (!chosen) {
            chosen = other;
            continue;
        }
        nd_manager *combined = combine(chosen, other);
        if (combined != &nd__manager_root && combined != chosen && combined != other)
            nd__object_keep(combined);
        if (combined != chosen)
            unpin(chosen);
        if (combined != other)
            unpin(other);
        chosen = combined;
    }
    if (!chosen)
        chosen = &nd__manager_root;
    return (nd_place){chosen, chosen != &nd__manager_root};
}

nd_place nd__place_choose(const nd_object *const *operands, size_t count) {
    bool all_at_root = true;
    for (size_t i = 0; i < count && all_at_root; i++)
        all_at_root = !operands[i] || nd__manager_of(operands[i]) == &nd__manager_root;
    if (all_at_root)
        return (nd_place){&nd__manager_root, false};
    return place_of_many(operands, count);
}

nd_manager *nd_get_manager_retained(const void *handle) {
    nd_object *object = (nd_object *)(uintptr_t)handle;
    if (!object || (object->type->flags & ND__TYPE_MANAGER))
        return NULL;
    nd_manager *manager = pin(object);
    return manager == &nd__manager_root ? nd_retain(manager) : manager;
}

nd_place nd__place_of(const nd_object *object) {
    if (!object || nd__manager_of(object) == &nd__manager_root)
        return (nd_place){&nd__manager_root, false};
    nd_manager *manager = pin((nd_object *)(uintptr_t)object);
    return (nd_place){manager, manager != &nd__manager_root};
}

nd_status nd__place_publish_current(const char *operation, nd_object *object) {
    const nd_accounted *account = nd__object_accounted(object);
    uint64_t bytes = account ? account->bytes : 0;
    nd_place place = nd__place_begin(NULL, 0);
    nd_status status = ND_OK;
    if (account)
        status = nd__publish_expect(object->type, place.manager);
    if (account && status == ND_OK)
        status = nd__charge(operation, place.manager, account->kind, bytes);
    if (status == ND_OK) {
        status = nd__publish(object, place.manager);
        if (status != ND_OK && account)
            nd__charge_return(place.manager, account->kind, bytes);
    }
    nd__place_end(place);
    return status;
}

void *nd__place_publish_or_release(nd_place place, nd_object *object) {
    if (__builtin_expect(nd__place_publish(place, object) == ND_OK, 1))
        return object;
    nd_object_release(object);
    return NULL;
}
