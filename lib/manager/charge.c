// Byte accounts, quotas, and the byte-threshold trigger.
//
// Invariant: the account of a manager with a quota never passes it. Where a path to the root has a
// quota anywhere, charges are decided under one lock: every quota is looked at before anything is
// added, so a request that fails never makes a neighbour that fits fail too. Beside a look there
// are only discharges, so the sum over the shards of an account is at most what it was when the
// look began, and at least what it is when it ends. Without a quota on the path a charge is one
// relaxed addition per level.
//
// No account wraps: a huge charge, such as no memory of today has room for, is decided under that
// lock, too, against ND__CHARGE_MOST. With the others, which do not look, an account would pass
// 2^63 only when there were 2^30 of them.
#include "lib/manager/charge.h"
#include "lib/base/atomics.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/kind.h"
#include "lib/base/lock.h"
#include "lib/base/seam.h"
#include "lib/manager/account.h"
#include "lib/manager/manager.h"
#include "lib/manager/request.h"
#include "lib/manager/trigger.h"

enum { HUGE_LOG = 32 }; ///< of the bytes of a huge charge

static nd_lock quota_lock;
ND__FORK_LOCK(ND__FORK_SINGLE, quota_lock);

static void add(nd_manager *manager, const nd_manager *stop, nd_device_kind kind, uint64_t bytes) {
    bool alone = nd__atomic_single_threaded();
    for (nd_manager *at = manager; at != stop; at = at->parent)
        nd__account_add(at, kind, bytes, alone);
}

/// Where there is a quota on the path, or the charge is huge; `looks`: nothing is added. Apart, so that the others
/// save no registers for it.
__attribute__((noinline)) static bool charge_bounded(nd_manager *manager, const nd_manager *stop,
                                                     nd_device_kind kind, uint64_t bytes,
                                                     bool looks, nd_manager **ret_refused) {
    nd_manager *refused = NULL;
    nd__lock_acquire(&quota_lock);
    for (nd_manager *at = manager; at != stop && !refused && ret_refused; at = at->parent) {
        uint64_t bound = nd__charge_bound(at, kind);
        uint64_t live = nd__account_bytes(at, kind);
        if (bytes > 0 && (live > bound || bytes > bound - live))
            refused = at;
    }
    if (!refused && !looks)
        add(manager, stop, kind, bytes);
    nd__lock_release(&quota_lock);
    if (refused)
        *ret_refused = refused;
    return !refused;
}

static bool is_bounded(const nd_manager *manager, const nd_manager *stop, nd_device_kind kind,
                       uint64_t bytes) {
    if (__builtin_expect(bytes >> HUGE_LOG != 0, 0))
        return true;
    for (const nd_manager *at = manager; at != stop; at = at->parent)
        if (__builtin_expect(nd__atomic_load_relaxed(&at->quota[kind]) != 0, 0))
            return true;
    return false;
}

bool nd__charge_path(nd_manager *manager, const nd_manager *stop, nd_device_kind kind,
                     uint64_t bytes, nd_manager **ret_refused) {
    if (__builtin_expect(is_bounded(manager, stop, kind, bytes), 0))
        return charge_bounded(manager, stop, kind, bytes, false, ret_refused);
    add(manager, stop, kind, bytes);
    return true;
}

bool nd__charge_fits(nd_manager *manager, nd_device_kind kind, uint64_t bytes,
                     nd_manager **ret_refused) {
    return __builtin_expect(!is_bounded(manager, NULL, kind, bytes), 1) ||
           charge_bounded(manager, NULL, kind, bytes, true, ret_refused);
}

void nd__charge_return_path(nd_manager *manager, const nd_manager *stop, nd_device_kind kind,
                            uint64_t bytes) {
    bool alone = nd__atomic_single_threaded();
    for (nd_manager *at = manager; at != stop; at = at->parent)
        nd__account_subtract(at, kind, bytes, alone);
}

static nd_status charge_again(nd_pressure *pressure) {
    return nd__charge_path(pressure->manager, NULL, pressure->kind, pressure->bytes,
                           &pressure->refused)
               ? ND_OK
               : ND_ERROR_QUOTA;
}

static nd_status look_again(nd_pressure *pressure) {
    return nd__charge_fits(pressure->manager, pressure->kind, pressure->bytes, &pressure->refused)
               ? ND_OK
               : ND_ERROR_QUOTA;
}

/// A quota bounds what is charged, so neither caches nor the device's queue are in its way.
__attribute__((cold, noinline)) static nd_status charge_refused(const char *operation,
                                                                nd_manager *manager,
                                                                nd_device_kind kind, uint64_t bytes,
                                                                nd_manager *refused, bool looks) {
    nd_pressure pressure = {
        .operation = operation,
        .manager = manager,
        .kind = kind,
        .bytes = bytes,
        .attempt = looks ? look_again : charge_again,
        .refused = refused,
    };
    nd_status status = nd__seam_pressure_walk(&pressure, ND_ERROR_QUOTA);
    return status == ND_OK ? ND_OK : nd__seam_pressure_error(&pressure, status);
}

nd_status nd__charge(const char *operation, nd_manager *manager, nd_device_kind kind,
                     uint64_t bytes) {
    nd__trigger_allocated(manager, kind, bytes);
    nd_manager *refused;
    if (__builtin_expect(nd__charge_path(manager, NULL, kind, bytes, &refused), 1))
        return ND_OK;
    return charge_refused(operation, manager, kind, bytes, refused, false);
}

nd_status nd__charge_expect(const char *operation, nd_manager *manager, nd_device_kind kind,
                            uint64_t bytes) {
    nd__trigger_allocated(manager, kind, bytes);
    nd_manager *refused;
    if (__builtin_expect(nd__charge_fits(manager, kind, bytes, &refused), 1))
        return ND_OK;
    return charge_refused(operation, manager, kind, bytes, refused, true);
}

void nd__charge_return(nd_manager *manager, nd_device_kind kind, uint64_t bytes) {
    nd__charge_return_path(manager, NULL, kind, bytes);
}

nd_status nd_manager_set_quota(nd_manager *manager, nd_device_kind kind, uint64_t bytes) {
    if (!manager)
        return nd__error_null("manager_set_quota", "manager");
    if (!nd__kind_exists(kind))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "manager_set_quota: device kind %d does not exist", (int)kind);
    nd__lock_acquire(&quota_lock);
    nd__atomic_store(&manager->quota[kind], bytes, relaxed);
    nd__lock_release(&quota_lock);
    return ND_OK;
}
