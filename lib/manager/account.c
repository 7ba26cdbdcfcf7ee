// Sums over the parts of an account, and charging where there are several.
#include "lib/manager/account.h"
#include "lib/base/atomics.h"
#include "lib/manager/shard.h"

enum { CROWDED_TURNS = 64 }; ///< between threads that charge

uint64_t nd__account_bytes(const nd_manager *handle, nd_device_kind kind) {
    nd_manager *manager = (nd_manager *)(uintptr_t)handle;
    nd_shard *shard = nd__shard_first(manager);
    uint64_t sum =
        nd__atomic_load_relaxed(&shard->bytes[kind]) + nd__atomic_load_relaxed(&shard->owned[kind]);
    for (shard = nd__shard_next(shard); shard; shard = nd__shard_next(shard))
        sum += nd__atomic_load_relaxed(&shard->bytes[kind]);
    // Below zero: charged in one part after it was looked at, discharged in another one before.
    // (What is charged stays well below; see charge.h.)
    return sum >= UINT64_C(3) << 62 ? 0 : sum;
}

uint64_t nd__account_settled(const nd_manager *manager, nd_device_kind kind) {
    enum { LOOKS = 64 };
    const uint64_t quota =
        nd__atomic_load_relaxed(&((nd_manager *)(uintptr_t)manager)->quota[kind]);
    uint64_t bytes = nd__account_bytes(manager, kind);
    for (int i = 0; quota && bytes > quota && i < LOOKS; i++) {
        const uint64_t again = nd__account_bytes(manager, kind);
        bytes = again < bytes ? again : bytes;
    }
    return bytes;
}

uint64_t nd__account_held(const nd_manager *handle, nd_device_kind kind) {
    nd_manager *manager = (nd_manager *)(uintptr_t)handle;
    uint64_t bytes = nd__account_settled(manager, kind), past = 0;
    if (nd__atomic_load(&manager->closer, relaxed) == &nd__thread_record)
        for (; manager && manager->below_top; manager = manager->deeper)
            past += nd__atomic_load(&manager->carried[kind], relaxed);
    return bytes > past ? bytes - past : 0;
}

uint64_t nd__account_peak(nd_manager *manager, nd_device_kind kind) {
    nd__atomic_raise(&manager->peak_bytes[kind], nd__account_settled(manager, kind));
    return nd__atomic_load_relaxed(&manager->peak_bytes[kind]);
}

void nd__account_turn(nd_manager *manager, nd_thread *thread) {
    nd__atomic_store(&manager->charger, thread->number, relaxed);
    uint32_t turns = nd__atomic_load(&manager->turns, relaxed) + 1; // a lost one does not matter
    nd__atomic_store(&manager->turns, turns, relaxed);
    if (turns % CROWDED_TURNS == 0)
        thread->crowded = manager;
}

void nd__account_add_spread(nd_manager *manager, nd_device_kind kind, uint64_t bytes) {
    nd_shard *shard = nd__shard_own(manager);
    uint64_t now = nd__atomic_add_relaxed(&shard->bytes[kind], bytes) + bytes;
    // Summing up is for those who have grown: what comes and goes stays on the shard's own lines.
    if ((int64_t)(now - nd__atomic_load_relaxed(&shard->seen[kind])) <= ND__PEAK_GRAIN)
        return;
    nd__atomic_store(&shard->seen[kind], now, relaxed);
    nd__account_peak(manager, kind);
}

void nd__account_subtract_spread(nd_manager *manager, nd_device_kind kind, uint64_t bytes) {
    nd_shard *shard = nd__shard_own(manager);
    uint64_t now = nd__atomic_add_relaxed(&shard->bytes[kind], UINT64_C(0) - bytes) - bytes;
    // What shrinks will be looked at when it grows again.
    if ((int64_t)(nd__atomic_load_relaxed(&shard->seen[kind]) - now) > ND__PEAK_GRAIN)
        nd__atomic_store(&shard->seen[kind], now, relaxed);
}
