// What lib/debug can listen to: births, deaths, collections, boundaries.
//
// Nobody listens: one load and one predictable branch at each of these four places, and nothing on
// retain and release. A listener is a table that is never freed; its functions must take no lock
// under which anything of the core is called, allocate nothing, and release nothing. They may run
// while a listener is being taken away.
#ifndef ND_LIB_OBJECT_TRACE_H
#define ND_LIB_OBJECT_TRACE_H
#include "lib/base/atomics.h"
#include "lib/object/object.h"
#include <nd/gc.h>
#include <nd/manager.h>

typedef struct nd__listener {
    /// Nanoseconds on the listener's clock: what it gets as `began`.
    uint64_t (*now)(void);
    /// The object has entered a manager, whose lock is held.
    void (*born)(const nd_object *object, const nd_manager *manager);
    /// The object, still whole, leaves its manager for good. The manager's lock is held.
    void (*died)(const nd_object *object, const nd_manager *manager, bool collected);
    /// `managers[0]` is the topmost of those that were looked at.
    void (*collected)(nd_manager *const *managers, size_t count, uint64_t began,
                      const nd_gc_report *report);
    void (*closed)(const nd_manager *manager, uint64_t began, const nd_close_report *report);
} nd__listener;

extern _Atomic(const nd__listener *) nd__trace_listening;

/// The listener; NULL (expected) when there is none.
static inline const nd__listener *nd__trace_listener(void) {
#ifdef ND_MODEL
    return NULL;
#else
    const nd__listener *listener = nd__atomic_load(&nd__trace_listening, acquire);
    return __builtin_expect(listener != NULL, 0) ? listener : NULL;
#endif
}
#endif
