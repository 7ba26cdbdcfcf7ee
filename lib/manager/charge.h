// Bytes charged to managers.
#ifndef ND_LIB_MANAGER_CHARGE_H
#define ND_LIB_MANAGER_CHARGE_H
#include "lib/manager/manager.h"

/// Reserves bytes of a device kind at a manager and all its ancestors, against every quota on the
/// way; when a quota refuses, walks the ladder (pressure.h). Also runs the triggers of
/// nd_gc_policy: may collect and call user code, so the caller must own what it uses.
/// ND_ERROR_QUOTA names the operation, the manager, its largest holders and what was tried.
nd_status nd__charge(const char *operation, nd_manager *manager, nd_device_kind kind,
                     uint64_t bytes);
/// Gives back a charge for which no object was published. (A published object's charge goes back
/// when it dies.)
void nd__charge_return(nd_manager *manager, nd_device_kind kind, uint64_t bytes);

// Charges along a path: from `manager` up to, not including, `stop` (NULL: through the root).
bool nd__charge_path(nd_manager *manager, const nd_manager *stop, nd_device_kind kind,
                     uint64_t bytes, nd_manager **ret_refused);
void nd__charge_return_path(nd_manager *manager, const nd_manager *stop, nd_device_kind kind,
                            uint64_t bytes);
#endif
