// Looks at edges that stand still: those of a collection, at once or in steps, and those of others.
#ifndef ND_LIB_GC_LOOK_H
#define ND_LIB_GC_LOOK_H
#include "lib/gc/collection.h"
#include "lib/manager/manager.h"

/// Tracked objects of managers, as their counters have them.
size_t nd__look_count_tracked(nd_manager *const *managers, size_t count);

/// Leaves the garbage of the managers in objects[0 ... count), marked ND__DYING, and the gate open:
/// at once where that is quick enough, else in steps, or without memory for those at once all the
/// same. False when there is no memory for the passes (then nothing has happened). Runs user code,
/// holding no lock: what died meanwhile.
bool nd__look_find(nd_collection *collection, nd_manager *const *managers, size_t count);

/// Decides once more over garbage that the collection holds: live[] says what has been revived. What
/// cannot be decided on lives.
void nd__look_again(nd_collection *collection);

/// Runs `look` where edges stand still: with the gate closed, under the collection lock. It may
/// take one manager's lock at a time, under which an object of that manager's lists is valid memory
/// and, unless it is condemned (steps.h), may be traversed. It must not allocate, retain, release
/// or run user code but `traverse` and `describe`; memory it fills is reserved before. Not from
/// inside the gate.
void nd__look_inspect(void (*look)(void *data), void *data);
/// The same, but leaves what died meanwhile parked (nd__gate_destroy_parked), so that no user code
/// runs. Returns for how many nanoseconds the gate was closed.
uint64_t nd__look_step(void (*look)(void *data), void *data);
/// What looking at so many objects has cost inside the gate: how much the next look may cost is
/// guessed by it.
void nd__look_note_cost(uint64_t objects, uint64_t nanoseconds);
/// For the `look` that is running: when the gate began to close.
uint64_t nd__look_step_began(void);
#endif
