// A collection in steps: the passes of lib/gc/collection.h with the gate open in between.
#ifndef ND_LIB_GC_STEPS_H
#define ND_LIB_GC_STEPS_H
#include "lib/gc/collection.h"
#include "lib/object/object.h"

/// Finds the garbage among the tracked objects of the managers, and of what survives there, in
/// other managers, within ND__PHASE2_BUDGET; no step keeps the gate closed for longer than
/// `pause_ns`, but for what one object's edges and the closing itself take. Leaves the garbage in
/// objects[0 ... count), marked ND__DYING and held once each (held_here), and frees what died
/// meanwhile (runs user code, holding no lock). False, and nothing has happened, without memory.
/// The capacity that the collection has, less ND__PHASE2_BUDGET, bounds how many objects of the
/// managers are looked at.
bool nd__steps_find(nd_collection *collection, nd_manager *const *managers, size_t count,
                    uint64_t pause_ns);

/// The same decision once more over the garbage, which the collection holds, after finalizers ran:
/// live[] says what has been revived. False, and it says nothing, without memory.
bool nd__steps_examine(nd_collection *collection, uint64_t pause_ns);

/// How many sets one look may take, each what threads changed during the look at the one before.
extern int nd__steps_rounds;

/// Inside the gate, by whoever has no reference to a ND__SUSPECT object and wants one: true, and
/// the collection in steps will notice; false when it is garbage.
bool nd__steps_suspect_may_live(void);

/// By whoever has closed the gate: whether suspects are garbage, though not yet marked so.
bool nd__steps_suspects_are_dying(void);

/// The same for an object with these flags, whichever collection found it to be garbage: that one
/// may be cutting and freeing it by now.
static inline bool nd__steps_is_condemned(uint32_t flags) {
    return (flags & ND__DYING) || ((flags & ND__SUSPECT) && nd__steps_suspects_are_dying());
}
#endif
