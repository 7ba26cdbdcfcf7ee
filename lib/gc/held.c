// The candidates of a collection in steps, which holds each of them: the gate is open meanwhile, and is
// entered as an edge writer does.
//
// Invariant: from the first one that is held until all is decided, a candidate's place is its own,
// so none is held twice. It is announced before that others are to leave them alone; whoever writes
// another one's place has closed the gate, or found it dying, and what is dying is not held.
#include "lib/gc/held.h"
#include "lib/gc/walk.h"
#include "lib/manager/shard.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"

enum { HELD_PER_LOCK = 256 };

const nd_collection *nd__held_running;

void nd__held_announce(const nd_collection *collection) {
    nd__gate_enter_to_clear();
    nd__held_running = collection;
    nd__gate_leave();
}

/// Holds a few objects of a list, `object` and newer ones. Returns the last one, or NULL.
static nd_object *hold_some(nd_collection *collection, nd__walk *walk, nd_object *object) {
    size_t limit = collection->capacity - ND__PHASE2_BUDGET;
    nd_object *last = NULL, *next;
    for (int held = 0; object && held < HELD_PER_LOCK && collection->count < limit; object = next) {
        next = object->previous;
        // First of all dying: the place of what others are about to free is theirs to change.
        if (nd__object_flags_to_join(object) & ND__DYING) {
            if (nd__walk_set_aside(walk, object))
                break;
            continue;
        }
        if (nd__collection_has(collection, object) || !nd__object_try_retain(object))
            continue;
        nd__collection_add(collection, object);
        last = object;
        held++;
    }
    return last;
}

static void hold_shard(nd_collection *collection, nd_shard *shard, nd_manager *manager) {
    nd__walk walk = {.shard = shard, .manager = manager};
    for (bool more = true; more;) {
        nd__gate_enter_to_clear();
        more = nd__walk_on(&walk, collection, hold_some);
        nd__gate_leave();
    }
}

static void hold_recent(nd_collection *collection) {
    nd__gate_enter_to_clear();
    nd__walk_recent(collection, hold_some);
    nd__gate_leave();
}

void nd__held_take(nd_collection *collection, nd_manager *const *managers, size_t count) {
    hold_recent(collection);
    for (size_t i = 0; i < count; i++)
        for (nd_shard *shard = nd__shard_first(managers[i]); shard; shard = nd__shard_next(shard))
            hold_shard(collection, shard, managers[i]);
}

void nd__held_place_all(nd_collection *collection) {
    size_t count = collection->count;
    collection->count = 0;
    nd__held_announce(collection);
    while (collection->count < count) {
        nd__gate_enter_to_clear();
        for (int i = 0; i < HELD_PER_LOCK && collection->count < count; i++)
            nd__collection_add(collection, collection->objects[collection->count]);
        nd__gate_leave();
    }
}
