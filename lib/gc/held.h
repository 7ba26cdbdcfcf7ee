// The candidates of a collection in steps: how they come to be held, and what others see of that.
#ifndef ND_LIB_GC_HELD_H
#define ND_LIB_GC_HELD_H
#include "lib/gc/collection.h"
#include "lib/object/object.h"

/// The collection in steps that runs, or NULL. Changes inside the gate.
extern const nd_collection *nd__held_running;

/// With the gate closed: the object is held by a collection in steps on another thread. It lives
/// for whoever looks, and its place is that collection's.
static inline bool nd__held_has(const nd_object *object) {
    const nd_collection *running = nd__held_running;
    return __builtin_expect(running != NULL, 0) && nd__collection_has(running, object);
}

/// Other collections leave alone what this one holds; with NULL, nothing.
void nd__held_announce(const nd_collection *collection);

/// Makes the tracked objects of the managers candidates, and what escaped a short while ago, as far
/// as the capacity, less ND__PHASE2_BUDGET, allows: each is held once.
void nd__held_take(nd_collection *collection, nd_manager *const *managers, size_t count);

/// Gives the candidates their places anew, which other collections may have taken while it was not
/// announced that they are held; it is then.
void nd__held_place_all(nd_collection *collection);
#endif
