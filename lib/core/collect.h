// The collector as the rest of the core sees it. The argument why it is right is in
// docs/collector.md.
#ifndef ND_LIB_CORE_COLLECT_H
#define ND_LIB_CORE_COLLECT_H
#include "lib/core/manager.h"

/// The boundary: collects the tracked survivors of a manager that is closing (its children's have
/// moved to it), then looks across managers within the visit budget. The manager's effective mode
/// must not be off. Costs a load when it has none.
void nd__collect_boundary(nd_manager *manager, nd_close_report *report);

/// The byte-threshold trigger: told of every charge, collects now and then. The caller must own
/// what it uses.
void nd__collect_allocated(nd_manager *manager, nd_device_kind kind, uint64_t bytes);

/// Runs `look` where edges stand still: with the gate closed, under the collection lock. It may take
/// one manager's lock at a time, under which an object of that manager's lists is valid memory and,
/// unless it is ND__DYING, may be traversed. It must not allocate, retain, release or run user code
/// but `traverse` and `describe`; memory it fills is reserved before. Not from inside the gate.
void nd__collect_look(void (*look)(void *data), void *data);
#endif
