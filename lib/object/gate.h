// The gate, the write barrier: who writes edges passes through it, the collector closes it while it
// looks at edges.
//
// A writer between nd__gate_enter and nd__gate_leave may write edges of published objects. It must
// be short: no lock that a collecting thread could hold, no allocation, no user code, no release (a
// release may destroy). Entering costs no locked instruction: a per-thread flag and a load; the
// collector pays with a process-wide barrier. Order of locks: gate, then manager locks (by
// address), then weak locks.
#ifndef ND_LIB_OBJECT_GATE_H
#define ND_LIB_OBJECT_GATE_H
#include "lib/base/atomics.h"
#include "lib/base/thread.h"
#include "lib/object/object.h"

/// Waits while the gate is closed, then holds it open. Nests. Notes that edges are written, so it
/// is right for whoever writes any.
void nd__gate_enter(void);
/// The same for who makes no edge lead anywhere: clears or takes edges, or upgrades.
void nd__gate_enter_to_clear(void);
/// As nd__gate_enter_to_clear, but answers false instead of waiting.
bool nd__gate_try_enter(void);
void nd__gate_leave(void);

// The same two, inline, of a thread that has its record at hand.

extern _Atomic uint32_t nd__gate_closed;
extern _Atomic bool nd__gate_writers_fence; ///< writers fence for themselves
/// Of a thread that is inside already, is in no registry, or fences.
__attribute__((cold)) bool nd__gate_try_enter_slowly(nd_thread *thread);
__attribute__((cold)) void nd__gate_leave_unlisted(void);

/// Of one that is idle (nd__thread_is_idle).
static inline bool nd__gate_try_enter_idle(nd_thread *thread) {
    if (__builtin_expect(nd__atomic_load(&nd__gate_writers_fence, relaxed), 0))
        return nd__gate_try_enter_slowly(thread);
    nd__atomic_store(&thread->writing, 1, relaxed);
    nd__atomic_compiler_fence();
    if (__builtin_expect(nd__atomic_load(&nd__gate_closed, acquire) == 0, 1)) {
        thread->gate_depth = 1;
        return true;
    }
    nd__atomic_store(&thread->writing, 0, release);
    return false;
}

/// After that, of a thread that is inside once.
static inline void nd__gate_leave_idle(nd_thread *thread) {
    thread->gate_depth = 0;
    nd__atomic_store(&thread->writing, 0, release);
}

static inline bool nd__gate_try_enter_as(nd_thread *thread) {
    if (__builtin_expect(thread->gate_depth > 0 || thread->owns_gate || !thread->registered, 0))
        return nd__gate_try_enter_slowly(thread);
    return nd__gate_try_enter_idle(thread);
}

static inline void nd__gate_leave_as(nd_thread *thread) {
    if (--thread->gate_depth > 0 || thread->owns_gate)
        return;
    if (__builtin_expect(thread->registered, 1))
        nd__atomic_store(&thread->writing, 0, release);
    else
        nd__gate_leave_unlisted();
}

// Whether a cycle can have been closed. An object is made with edges to what is there already, so
// each cycle has an edge that was written later, to an object that was there: by nd__gate_enter, or
// the object was moved (nd__gate_note_edge). Who asks must have been told of what it asks about,
// and may be answered true in vain.

/// What to ask nd__gate_edges_since with later.
uint64_t nd__gate_edge_age(void);
/// Whether an edge may have been written since that was asked.
bool nd__gate_edges_since(uint64_t age);
/// Objects come to be where they were not made: a cycle may be closed there.
void nd__gate_note_edge(void);
#if defined(ND_MODEL) || ND_COLLECT_EVERYWHERE
/// False: every answer is true. Programs of ages alone set it.
extern bool nd__gate_ages;
#endif

// The side of the collector, and of what dies while it looks.

/// Before it is closed again: gives those who waited the last time their chance. The caller holds
/// the collection lock.
void nd__gate_admit_writers(void);
/// Closes the gate and waits until every writer has left. The caller holds the collection lock and
/// is no writer.
void nd__gate_close(void);
/// Opens it and lets everybody in. Follow with nd__gate_destroy_parked().
void nd__gate_open(void);

/// Puts a dead object aside because the gate is closed. Lock-free. If the gate has opened
/// meanwhile, destroys it at once.
void nd__gate_park(nd_object *object);
/// Destroys what has been parked.
void nd__gate_destroy_parked(void);
#endif
