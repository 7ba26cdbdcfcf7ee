// The collector as the rest of the core sees it. The argument why it is right is in
// docs/collector.md.
#ifndef ND_LIB_GC_COLLECT_H
#define ND_LIB_GC_COLLECT_H
#include "lib/manager/manager.h"
#include <nd/gc.h>

/// The boundary: collects the tracked survivors of a manager that is closing (its children's have
/// moved to it), and what escaped to where they will go at the last closes below that, then looks
/// across managers within the visit budget. The manager's effective mode
/// must not be off. Costs a load when there are none. `cyclic`: those of the manager itself can be
/// part of a cycle. `outside`: the nearest ancestor that was open when the close began.
void nd__collect_boundary(nd_manager *manager, nd_manager *outside, bool cyclic,
                          nd_close_report *report);

/// Collects a manager, whose mode must not be off, and what is below it and of the same mode, in
/// steps where that would keep the gate closed for longer than `pause_ns` (0: no limit). `exact`:
/// waits for what other threads have to destroy, where its edges may be what keeps something alive.
/// *ret_left (unless NULL): how many tracked objects are there afterwards.
nd_status nd__collect_where_on(nd_manager *manager, uint64_t pause_ns, bool exact,
                               nd_gc_report *report, uint64_t *ret_left);
/// What user code asked for on this thread while a collection ran there, or a graph was captured.
/// Follows every collection and every capture.
void nd__collect_deferred(void);
#endif
