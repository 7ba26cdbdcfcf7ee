// Placement, accounting and attachment, for the layers above.
#ifndef ND_LIB_CORE_MANAGER_H
#define ND_LIB_CORE_MANAGER_H
#include "lib/core/object.h"
#include <nd/manager.h>

/// A manager chosen for a result, kept valid until nd__place_end.
typedef struct nd_place {
    nd_manager *manager;
    bool pinned;
} nd_place;

/// Where a result of these operands belongs: the innermost nd_with_manager block's manager; else
/// the deepest of the operands' managers when they lie on one path to the root, else their lowest
/// common ancestor; without operands the root. NULL operands are skipped. End with nd__place_end.
/// May collect (the triggers of nd_gc_policy), so the caller must own what it uses.
nd_place nd__place_begin(const nd_object *const *operands, size_t count);
/// The manager of `object` itself, whatever is current (gradients, optimizer state, *_like).
nd_place nd__place_of(const nd_object *object);
void nd__place_end(nd_place place);

/// Reserves bytes of a device kind at a manager and all its ancestors, against every quota on the
/// way; when a quota refuses, walks the ladder (pressure.h). Also runs the triggers of nd_gc_policy:
/// may collect and call user code, so the caller must own what it uses. ND_ERROR_QUOTA names the
/// operation, the manager, its largest holders and what was tried.
nd_status nd__manager_charge(const char *operation, nd_manager *manager, nd_device_kind kind,
                             uint64_t bytes);
/// Gives back a charge for which no object was published. (A published object's charge goes back
/// when it dies.)
void nd__manager_discharge(nd_manager *manager, nd_device_kind kind, uint64_t bytes);
/// Memory pressure: collects the manager and then its ancestors where the collector is on. True
/// when anything was freed.
bool nd__manager_relieve(nd_manager *manager);
#endif
