// The one way up between the core's rooms (docs/architecture.md): what a lower room asks of a
// higher one.
//
// A room includes headers of its own and of the rooms below. What it needs from above is a function
// here, named after what is asked for, and lib/core/seam.c, which stands above all rooms, hands it
// on. Nothing else crosses upwards.
#ifndef ND_LIB_BASE_SEAM_H
#define ND_LIB_BASE_SEAM_H
#include <nd/gc.h>
#include <nd/manager.h>
#include <nd/object.h>

typedef struct nd_pressure nd_pressure;
typedef struct nd_thread nd_thread;

// ------------------------------------------------------------------------------- asked by lib/base

/// The thread ends: its open scopes, and the blocks that it has cached.
void nd__seam_thread_ends(nd_thread *thread);

// ----------------------------------------------------------------------------- asked by lib/object

/// The count of an object has reached zero: out of its manager, destroyed, freed.
void nd__seam_died(nd_object *object);
/// The release of the only reference, without a locked decrement. False: nothing was done.
bool nd__seam_release_alone(nd_object *object);
/// Publishes a private object in the current manager, which is charged with its bytes. On failure
/// it is still private. Errors: cap, quota.
nd_status nd__seam_publish(const char *operation, nd_object *object);
/// Takes a dead object out of its manager.
void nd__seam_unlink(nd_object *object);
/// Destroys a list of dead objects that are in no manager.
void nd__seam_destroy_list(nd_object *list);
/// Inside the gate, of an object that a collection in steps is about to find garbage: false when it
/// is.
bool nd__seam_suspect_may_live(void);
/// The name of a manager, perhaps a dead one.
const char *nd__seam_manager_name(const nd_object *manager);
/// Memory for the places of one (checked.h); NULL: it has none.
void *nd__seam_manager_places(const nd_object *manager);

// ------------------------------------------------- asked by lib/object, lib/manager and lib/gc

/// Memory with the ladder behind it; NULL: the caller sets the error.
void *nd__seam_alloc(size_t bytes);
void *nd__seam_alloc_zeroed(size_t bytes);
/// A block for an object; NULL with an error.
void *nd__seam_alloc_object(const nd_type *type, size_t bytes);

// ---------------------------------------------------------------------------- asked by lib/manager

/// The boundary: a collection as the manager closes.
void nd__seam_collect_boundary(nd_manager *manager, nd_manager *outside, bool cyclic,
                               nd_close_report *report);
/// Tells the collector what this thread has made of one kind; may collect.
void nd__seam_gc_tell(nd_manager *manager, int kind);
/// The mode in effect at a manager.
nd_gc_mode nd__seam_gc_mode(const nd_manager *manager);
/// A manager is being recycled.
void nd__seam_gc_domain_free(nd_manager *manager);
/// Walks the ladder after an attempt that failed; sets the error of a walk that ended so.
nd_status nd__seam_pressure_walk(nd_pressure *pressure, nd_status failure);
nd_status nd__seam_pressure_error(const nd_pressure *pressure, nd_status status);
/// A manager that closes gives up its callback for memory.
void nd__seam_pressure_forget(nd_manager *manager);
#endif
