// Bytes charged to managers.
#ifndef ND_LIB_MANAGER_CHARGE_H
#define ND_LIB_MANAGER_CHARGE_H
#include "lib/base/atomics.h"
#include "lib/manager/manager.h"

/// What an account may come to at most: sums of accounts, and differences between them, then fit
/// into 64 bits. Resources and wrapped memory have as many bytes as a program says.
#define ND__CHARGE_MOST (UINT64_C(1) << 62)

/// What bounds the bytes of a manager: its quota, where it has one.
static inline uint64_t nd__charge_bound(const nd_manager *manager, nd_device_kind kind) {
    const uint64_t quota = nd__atomic_load_relaxed(&manager->quota[kind]);
    return quota && quota < ND__CHARGE_MOST ? quota : ND__CHARGE_MOST;
}

/// Reserves bytes of a device kind at a manager and all its ancestors, against every quota on the
/// way; when a quota refuses, walks the ladder (pressure.h). Also runs the triggers of
/// nd_gc_policy: may collect and call user code, so the caller must own what it uses.
/// ND_ERROR_QUOTA names the operation, the manager, its largest holders and what was tried.
nd_status nd__charge(const char *operation, nd_manager *manager, nd_device_kind kind,
                     uint64_t bytes);
/// The same, but that nothing is reserved: for what there may be no memory for, which is charged when there
/// is. Other threads may take what fits now.
nd_status nd__charge_expect(const char *operation, nd_manager *manager, nd_device_kind kind,
                            uint64_t bytes);
/// That without the ladder and the triggers. False: *ret_refused has a quota that refuses.
bool nd__charge_fits(nd_manager *manager, nd_device_kind kind, uint64_t bytes,
                     nd_manager **ret_refused);
/// Gives back a charge for which no object was published. (A published object's charge goes back
/// when it dies.)
void nd__charge_return(nd_manager *manager, nd_device_kind kind, uint64_t bytes);

// Charges along a path: from `manager` up to, not including, `stop` (NULL: through the root).
bool nd__charge_path(nd_manager *manager, const nd_manager *stop, nd_device_kind kind,
                     uint64_t bytes, nd_manager **ret_refused);
void nd__charge_return_path(nd_manager *manager, const nd_manager *stop, nd_device_kind kind,
                            uint64_t bytes);
#endif
