// The end of objects whose count is zero, or that are garbage.
#ifndef ND_LIB_MANAGER_DESTROY_H
#define ND_LIB_MANAGER_DESTROY_H
#include "lib/base/atomics.h"
#include "lib/base/thread.h"
#include "lib/object/object.h"

/// The count of an object has reached zero.
void nd__destroy_died(nd_object *object);
/// The release of the only reference, when the object is plain. False: nothing was done.
bool nd__destroy_alone(nd_object *object);
/// Runs `destroy` of the type of an object that is being closed.
void nd__destroy_payload(nd_object *object);

/// Between these two, objects that die on this thread wait; the outermost end destroys them.
/// Nothing is destroyed inside the gate or under a lock, because destruction runs user code.
bool nd__destroy_begin(nd_thread *thread);
void nd__destroy_end(nd_thread *thread, bool outermost);

/// Last steps of garbage that is in no manager any more, edges already cleared: out of the side
/// tables, `destroy`, and then the memory of all that are small. At most ND__BLOCK_ORDER_MOST. Runs
/// user code.
void nd__destroy_garbage(nd_object *const *objects, size_t count);

/// Destroys a list (linked by `next`) of objects with count zero that are in no manager; inside a
/// device's callback leaves them to others.
void nd__destroy_list(nd_object *list);

/// True for the one who is to run the object's finalizer: there is one, it has not run, and it
/// would not see an object that was closed.
static inline bool nd__destroy_claim_finalizer(nd_object *object) {
    return object->type->finalize && !nd__object_is_closed(object) &&
           !(nd__atomic_set_flags(&object->flags, ND__FINALIZED) & ND__FINALIZED);
}

/// Runs the finalizer, which has been claimed.
void nd__destroy_finalize(nd_object *object);
#endif
