// When to collect: what the rest of the core counts for the triggers of lib/core/policy.c.
//
// Invariant: a manager whose policy differs from its parent's has a *domain*, with that policy's
// fields and what its triggers have counted; the root always has one. A thread counts for itself
// and tells the domains above it now and then (nd__gc_tell_at).
#ifndef ND_LIB_CORE_POLICY_H
#define ND_LIB_CORE_POLICY_H
#include "lib/core/manager.h"
#include "lib/core/thread.h"

typedef struct nd_gc_domain nd_gc_domain;

/// How much of each a thread counts before it tells; 0 for the tracked objects: at every operation
/// (an interval has to be watched).
extern _Atomic uint64_t nd__gc_tell_at[ND__MADE_COUNT];

/// Tells the domains above `manager` what this thread has counted of one kind, and looks where a
/// trigger is due. The caller must own what it uses.
void nd__gc_tell(nd_manager *manager, int kind);

/// Counts an object that the collector has begun to see.
static inline void nd__gc_count_tracked(void) {
    nd__thread()->made[ND__MADE_TRACKED]++;
}

/// A point at which the collector may run, below `manager`. The caller must own what it uses.
static inline void nd__gc_poll(nd_manager *manager) {
#if ND_COLLECT_EVERYWHERE
    nd__gc_tell(manager, ND__MADE_TRACKED);
#else
    if (__builtin_expect(nd__thread()->made[ND__MADE_TRACKED] >=
                             nd__load_relaxed(&nd__gc_tell_at[ND__MADE_TRACKED]),
                         0))
        nd__gc_tell(manager, ND__MADE_TRACKED);
#endif
}

/// The same, after an allocation of bytes of a device kind was counted.
static inline void nd__gc_allocated(nd_manager *manager, nd_device_kind kind, uint64_t bytes) {
    nd_thread *thread = nd__thread();
    thread->made[kind] += bytes;
#if !ND_COLLECT_EVERYWHERE
    if (__builtin_expect(thread->made[kind] < nd__load_relaxed(&nd__gc_tell_at[kind]), 1))
        return;
#endif
    nd__gc_tell(manager, (int)kind);
}

/// How long the gate may be closed at a time where nothing else is said.
#define ND__GC_PAUSE_NS UINT64_C(1000000)
/// Fields of the policy in effect at a manager that are not triggers. Under memory pressure the pause is
/// as long as it takes where nothing else is said: steps need memory.
uint64_t nd__gc_pause_ns(const nd_manager *manager, bool pressed);
bool nd__gc_at_boundary(const nd_manager *manager);

/// A look at this manager was not completed: the next trigger of tracked objects above it is due, as soon
/// as a thread tells of any.
void nd__gc_look_soon(nd_manager *manager);

/// Frees the domain of a manager that is being recycled.
void nd__gc_domain_free(nd_manager *manager);
#endif
