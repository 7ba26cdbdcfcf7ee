// The accounts of managers: bytes charged to each, in parts that its shards and its owner have.
#ifndef ND_LIB_MANAGER_ACCOUNT_H
#define ND_LIB_MANAGER_ACCOUNT_H
#include "lib/base/atomics.h"
#include "lib/base/thread.h"
#include "lib/manager/shard.h"

/// Bytes charged to the manager and below it: exact, but for what others charge and discharge
/// meanwhile.
uint64_t nd__account_bytes(const nd_manager *manager, nd_device_kind kind);
/// The same for a program to read. What others move from one part to another meanwhile may be met
/// in both; where there is a quota, that tells: beyond it is only what was lent, or there before.
uint64_t nd__account_settled(const nd_manager *manager, nd_device_kind kind);
/// What of them is there: without what went past managers that this thread closes with one above
/// them, which stays charged to each until that is finished.
uint64_t nd__account_held(const nd_manager *manager, nd_device_kind kind);
/// The largest that nd__account_bytes was so far. Exact while one thread charges at a time and there
/// is one shard; with more, each may have grown by 2 * ND__PEAK_GRAIN bytes unnoticed.
uint64_t nd__account_peak(nd_manager *manager, nd_device_kind kind);
enum { ND__PEAK_GRAIN = 16 << 10 };

void nd__account_add_spread(nd_manager *manager, nd_device_kind kind, uint64_t bytes);
void nd__account_subtract_spread(nd_manager *manager, nd_device_kind kind, uint64_t bytes);
void nd__account_turn(nd_manager *manager, nd_thread *thread);

/// `alone`: the process has one thread, as the caller has asked for the whole path.
static inline void nd__account_add(nd_manager *manager, nd_device_kind kind, uint64_t bytes,
                                   bool alone) {
    if (__builtin_expect(nd__shard_count(manager) > 1, 0)) {
        nd__account_add_spread(manager, kind, bytes);
        return;
    }
    _Atomic uint64_t *account = &manager->first.bytes[kind], *peak = &manager->peak_bytes[kind];
    _Atomic uint64_t *owned = &manager->first.owned[kind];
    if (alone) {
        uint64_t now = nd__atomic_load_relaxed(account) + bytes;
        nd__atomic_store(account, now, relaxed);
        now += nd__atomic_load_relaxed(owned);
        if (now > nd__atomic_load_relaxed(peak))
            nd__atomic_store(peak, now, relaxed);
        return;
    }
    nd_thread *thread = nd__thread();
    uint64_t now;
    if (thread->number == manager->owner) {
        now = nd__atomic_load_relaxed(owned) + bytes;
        nd__atomic_store(owned, now, relaxed);
        now += nd__atomic_load_relaxed(account);
    } else {
        now =
            nd__atomic_fetch_add(account, bytes, relaxed) + bytes + nd__atomic_load_relaxed(owned);
    }
    // Of two moments when others charge as well, so it may be below zero.
    if ((int64_t)now > (int64_t)nd__atomic_load_relaxed(peak)) {
        const uint64_t quota = nd__atomic_load_relaxed(&manager->quota[kind]);
        if (__builtin_expect(quota && now > quota, 0))
            nd__account_peak(manager, kind);
        else
            nd__atomic_raise(peak, now);
    }
    if (nd__atomic_load(&manager->charger, relaxed) != thread->number)
        nd__account_turn(manager, thread);
}

static inline void nd__account_subtract(nd_manager *manager, nd_device_kind kind, uint64_t bytes,
                                        bool alone) {
    if (__builtin_expect(nd__shard_count(manager) > 1, 0)) {
        nd__account_subtract_spread(manager, kind, bytes);
        return;
    }
    _Atomic uint64_t *account = &manager->first.bytes[kind];
    if (alone) {
        nd__atomic_store(account, nd__atomic_load_relaxed(account) - bytes, relaxed);
    } else if (nd__thread()->number == manager->owner) {
        _Atomic uint64_t *owned = &manager->first.owned[kind];
        nd__atomic_store(owned, nd__atomic_load_relaxed(owned) - bytes, relaxed);
    } else {
        nd__atomic_fetch_sub(account, bytes, relaxed);
    }
}
#endif
