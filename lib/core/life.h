// Death of objects, shared between lib/core/object.c (counts), manager.c and collect.c.
#ifndef ND_LIB_CORE_LIFE_H
#define ND_LIB_CORE_LIFE_H
#include "lib/core/object.h"
#include "lib/core/thread.h"

/// Between these two, objects that die on this thread wait; the outermost end destroys them.
/// Nothing is destroyed inside the gate or under a lock, because destruction runs user code.
bool nd__burying_begin(nd_thread *thread);
void nd__burying_end(nd_thread *thread, bool outermost);

/// Last steps of an object nobody can reach any more, edges already cleared: out of its manager,
/// out of the side tables, `destroy`, memory. Runs user code.
void nd__object_free(nd_object *object);
/// The same for garbage that is in no manager any more.
void nd__garbage_free(nd_object *const *objects, size_t count);

/// Destroys a list (linked by `next`) of objects with count zero that are in no manager; inside a
/// device's callback leaves them to others.
void nd__bury_list(nd_object *list);

/// True for the one who is to run the object's finalizer: there is one, it has not run, and it would not
/// see an object that was closed.
static inline bool nd__claim_finalizer(nd_object *object) {
    return object->type->finalize && !nd__is_closed(object) &&
           !(nd__fetch_or_flags(&object->flags, ND__FINALIZED) & ND__FINALIZED);
}

/// Runs the finalizer, which has been claimed.
void nd__finalize(nd_object *object);

/// Clears every weak reference to a dead or dying object and runs their callbacks.
void nd__weak_clear(nd_object *object);
/// Removes the name of an object, or of the dead one whose block it is.
void nd__name_remove(nd_object *object);
#endif
