// What lies below a manager that is disposed of goes up to it, before it is closed.
//
// An object that gives up its bytes takes them off the account of its manager and of each one
// above. In a deep nest that is a walk as long as the nest for every object; from the top of the
// nest it is as long as the top lies deep. Invariant: the accounts of the managers between are
// exact whenever this thread runs user code; one pass over the managers, the deepest first, is
// enough for them.
#include "lib/manager/gather.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/seam.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"

typedef uint64_t bytes_of_kinds[ND__KIND_PLACES];

/// Moves what is in one shard to the first one of `top`, off the account of its own manager alone.
/// Nothing happens when the top is closed, and where there are guests, which return from where they
/// are.
static void gather_shard(nd_shard *from, nd_manager *manager, nd_manager *top, uint64_t *bytes) {
    nd_shard *target = &top->first;
    nd__shard_lock_pair(from, target);
    while (from->manager != manager) { // it was handed up meanwhile
        nd__shard_unlock_pair(from, target);
        from = nd__atomic_load(&manager->escaped, acquire);
        nd__shard_lock_pair(from, target);
    }
    uint64_t moved = from->count.live;
    if (moved && !from->count.temporary && nd__manager_open(top)) {
        for (int kind = 0; kind < ND__KIND_PLACES; kind++) {
            uint64_t own = from->count.own_bytes[kind];
            bytes[kind] += own;
            if (own)
                nd__charge_return_path(manager, manager->parent, (nd_device_kind)kind, own);
        }
        nd__shard_move(from, target, true);
        from->count.departed += moved;
        target->count.arrived += moved;
    }
    nd__shard_unlock_pair(from, target);
}

bool nd__gather_objects(const nd__manager_array *managers) {
    nd_manager *top = managers->items[0];
    bytes_of_kinds *passed = nd__seam_alloc_zeroed(managers->count * sizeof *passed);
    if (!passed)
        return false;
    size_t above = managers->count - 1; // the parents lie in the order of their children
    for (size_t i = managers->count - 1; i > 0; i--) {
        nd_manager *manager = managers->items[i];
        // What went past it from below leaves its account; then what was in it does.
        for (int kind = 0; kind < ND__KIND_PLACES; kind++)
            if (passed[i][kind])
                nd__charge_return_path(manager, manager->parent, (nd_device_kind)kind,
                                       passed[i][kind]);
        for (nd_shard *from = nd__shard_first(manager); from; from = nd__shard_next(from))
            gather_shard(from, manager, top, passed[i]);
        while (managers->items[above] != manager->parent)
            above--;
        for (int kind = 0; kind < ND__KIND_PLACES; kind++)
            passed[above][kind] += passed[i][kind];
    }
    nd__alloc_free(passed);
    return true;
}
