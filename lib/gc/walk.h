// The walk over the tracked objects that a collection looks at, at once or in steps: a few under
// the lock of their shard at a time, oldest first.
#ifndef ND_LIB_GC_WALK_H
#define ND_LIB_GC_WALK_H
#include "lib/gc/collection.h"

/// A walk over a shard of a manager. Begins as {.shard = shard, .manager = manager}.
typedef struct nd__walk {
    nd_shard *shard;
    nd_manager *manager;
    nd_object *cursor; ///< the last one taken; NULL at the beginning
    int starts;        ///< how often it lost its place
    size_t aside;      ///< so many objects it has set aside
} nd__walk;

/// So many objects are set aside under one hold of a shard's lock.
#ifdef ND_MODEL
enum { ND__WALK_ASIDE = 1 };
#else
enum { ND__WALK_ASIDE = 256 };
#endif

/// Makes a few candidates of a list's tracked objects: `object` and newer ones (linked by
/// `previous`), as far as they may be. Returns the last one taken, NULL when there was none.
typedef nd_object *nd__walk_take(nd_collection *collection, nd__walk *walk, nd_object *object);

/// By who takes, of an object that is marked ND__DYING: sets it aside, if it is garbage of another
/// thread's collection. True when that was enough for now: what comes behind it is for the next
/// hold of the lock. The object's links are not what they were.
bool nd__walk_set_aside(nd__walk *walk, nd_object *object);

/// Hands the next objects to `take`, under the lock of the shard. False: there were none, or the
/// place was lost so often that the walk does without the rest (collection->missed). What was taken
/// must not be freed before the next call: the gate stays closed, or it is held.
bool nd__walk_on(nd__walk *walk, nd_collection *collection, nd__walk_take *take);

/// Hands what escaped a short while ago to `take`, oldest first, under the lock of its shard.
void nd__walk_recent(nd_collection *collection, nd__walk_take *take);
#endif
