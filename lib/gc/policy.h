// When to collect: what the rest of the core counts for the triggers of lib/gc/policy.c.
//
// Invariant: a manager whose policy differs from its parent's has a *domain*, with that policy's
// fields and what its triggers have counted; the root always has one. A thread counts for itself
// and tells the domains above it now and then (nd__trigger_at).
#ifndef ND_LIB_GC_POLICY_H
#define ND_LIB_GC_POLICY_H
#include "lib/manager/trigger.h"

typedef struct nd_gc_domain nd_gc_domain;

/// Tells the domains above `manager` what this thread has counted of one kind, and looks where a
/// trigger is due. The caller must own what it uses.
void nd__policy_tell(nd_manager *manager, int kind);

/// Effective mode: own, else the nearest ancestor's that does not inherit.
nd_gc_mode nd__policy_mode(const nd_manager *manager);

/// How long the gate may be closed at a time where nothing else is said.
#define ND__GC_PAUSE_NS UINT64_C(1000000)
/// Fields of the policy in effect at a manager that are not triggers. Under memory pressure the
/// pause is as long as it takes where nothing else is said: steps need memory.
uint64_t nd__policy_pause_ns(const nd_manager *manager, bool pressed);
bool nd__policy_at_boundary(const nd_manager *manager);

/// A look at this manager was not completed: the next trigger of tracked objects above it is due,
/// as soon as a thread tells of any.
void nd__policy_collect_soon(nd_manager *manager);

/// Frees the domain of a manager that is being recycled.
void nd__policy_domain_free(nd_manager *manager);
/// Memory pressure: collects the manager and then its ancestors where the collector is on. True
/// when anything was freed.
bool nd__policy_relieve(nd_manager *manager);
#endif
