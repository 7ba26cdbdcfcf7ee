// What is counted for the triggers of lib/gc/policy.c, and the points at which a collection may
// run.
#ifndef ND_LIB_MANAGER_TRIGGER_H
#define ND_LIB_MANAGER_TRIGGER_H
#include "lib/base/atomics.h"
#include "lib/base/seam.h"
#include "lib/base/thread.h"
#include "lib/manager/manager.h"

/// How much of each a thread counts before it tells; 0 for the tracked objects: at every operation
/// (an interval has to be watched).
extern _Atomic uint64_t nd__trigger_at[ND__MADE_COUNT];

/// Counts an object that the collector has begun to see.
static inline void nd__trigger_count_tracked(void) {
    nd__thread()->made[ND__MADE_TRACKED]++;
}

/// A point at which the collector may run, below `manager`. The caller must own what it uses.
static inline void nd__trigger_poll(nd_manager *manager) {
#if ND_COLLECT_EVERYWHERE
    nd__seam_gc_tell(manager, ND__MADE_TRACKED);
#else
    if (__builtin_expect(nd__thread()->made[ND__MADE_TRACKED] >=
                             nd__atomic_load_relaxed(&nd__trigger_at[ND__MADE_TRACKED]),
                         0))
        nd__seam_gc_tell(manager, ND__MADE_TRACKED);
#endif
}

/// The same, after an allocation of bytes of a device kind was counted.
static inline void nd__trigger_allocated(nd_manager *manager, nd_device_kind kind, uint64_t bytes) {
    nd_thread *thread = nd__thread();
    thread->made[kind] += bytes;
#if !ND_COLLECT_EVERYWHERE
    if (__builtin_expect(thread->made[kind] < nd__atomic_load_relaxed(&nd__trigger_at[kind]), 1))
        return;
#endif
    nd__seam_gc_tell(manager, (int)kind);
}
#endif
