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
#endif
