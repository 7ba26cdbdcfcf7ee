// The walk over tracked objects (walk.h).
//
// Invariant: between two calls a walk rests on an object that is not freed. It may have left its
// shard, with the links that led on; then the walk begins anew, and passes quickly over what it
// knows.
//
// Another thread's collection takes its garbage out of the shard a little at a time, each time under
// the shard's lock. So that it gets on beside one that walks again and again, however much that is,
// a walk passes each piece of such garbage once: it sets it aside, a few under one hold of the lock.
#include "lib/gc/walk.h"
#include "lib/base/atomics.h"
#include "lib/gc/collection.h"
#include "lib/manager/manager.h"
#include "lib/manager/member.h"
#include "lib/manager/shard.h"

bool nd__walk_set_aside(nd__walk *walk, nd_object *object) {
    return walk->manager && nd__member_set_aside(walk->shard, object) &&
           ++walk->aside % ND__WALK_ASIDE == 0;
}

bool nd__walk_on(nd__walk *walk, nd_collection *collection, nd__walk_take *take) {
    nd_shard *shard = walk->shard;
    for (; walk->starts < ND__STARTS; walk->starts++) {
        walk->shard = shard = nd__shard_lock_in(shard, walk->manager);
        nd_object *at = walk->cursor;
        bool here = !at || nd__atomic_load(&at->shard, acquire) == shard;
        size_t aside = walk->aside;
        nd_object *last = NULL;
        if (here)
            last = take(collection, walk, at ? at->previous : shard->lists[ND__TRACKED_LIST].last);
        nd__shard_unlock(shard);
        if (last)
            walk->cursor = last;
        if (here)
            return last || walk->aside != aside;
        walk->cursor = NULL;
    }
    collection->missed = true;
    return false;
}

void nd__walk_recent(nd_collection *collection, nd__walk_take *take) {
    nd_shard *shard = collection->escaped;
    if (!shard)
        return;
    shard = nd__shard_lock_in(shard, collection->above);
    nd_object *object = shard->lists[ND__TRACKED_LIST].first;
    for (size_t n = 1; object && object->next && n < collection->recent; n++)
        object = object->next;
    nd__walk walk = {.shard = shard}; // sets nothing aside: it takes no second look
    while (object) {
        nd_object *last = take(collection, &walk, object);
        object = last ? last->previous : NULL;
    }
    nd__shard_unlock(shard);
}
