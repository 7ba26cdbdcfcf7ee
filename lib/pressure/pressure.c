// The stages of lib/pressure/pressure.h, in their order, and how often each was reached and enough.
//
// Invariant: when no thread is on the ladder, walks = failures + the sum of `enough`. A walk may
// come about inside another (what a finalizer or a callback allocates): then the collector and the
// callbacks that are already running on this thread are left out, so the nesting ends.
#include "lib/pressure/pressure.h"
#include "lib/base/atomics.h"
#include "lib/base/cancel.h"
#include "lib/base/clock.h"
#include "lib/base/error.h"
#include "lib/base/pause.h"
#include "lib/base/thread.h"
#include "lib/base/versioned.h"
#include "lib/gc/policy.h"
#include "lib/gc/running.h"
#include "lib/manager/account.h"
#include "lib/manager/manager.h"
#include "lib/manager/request.h"
#include "lib/object/callback.h"
#include "lib/object/dead.h"
#include "lib/object/object.h"
#include "lib/pressure/pressure_callback.h"

#define WAIT_LIMIT_NS UINT64_C(1000000000)

static struct {
    _Atomic uint64_t walks, quota_walks, failures;
    struct {
        _Atomic uint64_t reached, enough, bytes;
    } stages[ND_MEMORY_STAGE_COUNT];
} totals;

typedef nd_status stage_function(nd_pressure *pressure, nd_status status);
static stage_function retire, trim, collect, wait_for_device;

static stage_function *const stages[ND_MEMORY_STAGE_COUNT] = {
    [ND_MEMORY_STAGE_RETIRE] = retire,        [ND_MEMORY_STAGE_TRIM] = trim,
    [ND_MEMORY_STAGE_COLLECT] = collect,      [ND_MEMORY_STAGE_CALLBACK] = nd__pressure_ask,
    [ND_MEMORY_STAGE_WAIT] = wait_for_device,
};

nd_status nd__pressure_walk(nd_pressure *pressure, nd_status failure) {
    nd_thread *thread = nd__thread();
    if (!nd__pressure_includes(failure) || thread->gate_depth || thread->owns_gate ||
        thread->in_callback || thread->capture)
        return failure;
    nd__atomic_add_relaxed(&totals.walks, 1);
    if (failure == ND_ERROR_QUOTA)
        nd__atomic_add_relaxed(&totals.quota_walks, 1);
    ND__UNCANCELLED;
    nd_error_state before;
    nd__error_save(&before);
    nd__object_keep(pressure->manager);
    nd_status status = failure;
    thread->walks++;
    for (int stage = 0; stage < ND_MEMORY_STAGE_COUNT && nd__pressure_includes(status); stage++)
        status = stages[stage](pressure, status);
    thread->walks--;
    nd_object_release(pressure->manager);
    nd__error_restore(&before);
    if (status != ND_OK)
        nd__atomic_add_relaxed(&totals.failures, 1);
    return status;
}

nd_status nd_memory_get_stats(nd_memory_stats *ret_stats) {
    nd_status status = nd__versioned_check("memory_get_stats", "ND_MEMORY_STATS_INIT", ret_stats);
    if (status != ND_OK)
        return status;
    nd_memory_stats stats = ND_MEMORY_STATS_INIT;
    stats.walks = nd__atomic_load_relaxed(&totals.walks);
    stats.quota_walks = nd__atomic_load_relaxed(&totals.quota_walks);
    stats.failures = nd__atomic_load_relaxed(&totals.failures);
    for (int stage = 0; stage < ND_MEMORY_STAGE_COUNT; stage++)
        stats.stages[stage] = (nd_memory_stage_stats){
            .reached = nd__atomic_load_relaxed(&totals.stages[stage].reached),
            .enough = nd__atomic_load_relaxed(&totals.stages[stage].enough),
            .bytes = nd__atomic_load_relaxed(&totals.stages[stage].bytes),
        };
    nd__versioned_write(ret_stats, &stats, sizeof stats);
    return ND_OK;
}

// ------------------------------------------------------------------------------- what stages share

void nd__pressure_reach(nd_pressure *pressure, nd_memory_stage stage) {
    if (pressure->tried[stage].reached)
        return;
    pressure->tried[stage].reached = true;
    nd__atomic_add_relaxed(&totals.stages[stage].reached, 1);
}

void nd__pressure_brought(nd_pressure *pressure, nd_memory_stage stage, uint64_t bytes) {
    if (bytes == ND__UNKNOWN_BYTES) {
        pressure->tried[stage].bytes = bytes;
        return;
    }
    if (pressure->tried[stage].bytes != ND__UNKNOWN_BYTES)
        pressure->tried[stage].bytes += bytes;
    nd__atomic_add_relaxed(&totals.stages[stage].bytes, bytes);
}

nd_status nd__pressure_attempt(nd_pressure *pressure, nd_memory_stage stage) {
    nd_status status = pressure->attempt(pressure);
    if (status == ND_OK)
        nd__atomic_add_relaxed(&totals.stages[stage].enough, 1);
    return status;
}

nd_status nd__pressure_look(nd_pressure *pressure, nd_memory_stage stage) {
    nd_status status = nd__pressure_attempt(pressure, stage);
    if (!nd__pressure_includes(status) || !pressure->functions)
        return status;
    // What was given up may lie in a cache, in pieces that are too small.
    if (pressure->functions->retire)
        pressure->functions->retire(pressure->index);
    if (!pressure->functions->trim)
        return status;
    pressure->functions->trim(pressure->index);
    return nd__pressure_attempt(pressure, stage);
}

// -------------------------------------------------------------------------------------- the stages

/// What other threads had to destroy, as it died while the gate was closed or in a callback of a
/// device. True when they had something, and have destroyed it.
static bool destroyed_elsewhere(void) {
    return nd__dead_elsewhere(nd__thread()) &&
           nd__dead_await(nd__clock_now_ns() + ND__DEAD_PATIENCE_NS);
}

/// What was released in callbacks of a device, what died while the gate was closed, and what the
/// device itself has finished with.
static nd_status retire(nd_pressure *pressure, nd_status status) {
    bool left = nd__callback_destroy_deferred(), destroyed = destroyed_elsewhere() || left,
         asks = pressure->functions && pressure->functions->retire;
    if (!destroyed && !asks)
        return status;
    nd__pressure_reach(pressure, ND_MEMORY_STAGE_RETIRE);
    if (asks)
        nd__pressure_brought(pressure, ND_MEMORY_STAGE_RETIRE,
                             pressure->functions->retire(pressure->index));
    return nd__pressure_attempt(pressure, ND_MEMORY_STAGE_RETIRE);
}

static nd_status trim(nd_pressure *pressure, nd_status status) {
    if (!pressure->functions || !pressure->functions->trim)
        return status;
    nd__pressure_reach(pressure, ND_MEMORY_STAGE_TRIM);
    nd__pressure_brought(pressure, ND_MEMORY_STAGE_TRIM,
                         pressure->functions->trim(pressure->index));
    return nd__pressure_attempt(pressure, ND_MEMORY_STAGE_TRIM);
}

/// Whether the collector may run for this manager: the stage is not there where it may not.
static bool collector_is_on(const nd_manager *manager) {
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    if (nd__thread()->collecting || nd_manager_get_gc_policy(manager, &policy) != ND_OK ||
        !policy.pressure)
        return false;
    for (; manager; manager = manager->parent)
        if (nd__policy_mode(manager) == ND_GC_ON)
            return true;
    return false;
}

/// What tells whether other threads make room, or fill it: their collections that have ended, and
/// what is charged where there was none. Either may be as before by chance, but not both.
typedef struct surroundings {
    uint32_t ended;
    uint64_t charged;
} surroundings;

static surroundings look_around(const nd_pressure *pressure) {
    const nd_manager *manager = pressure->refused ? pressure->refused : &nd__manager_root;
    return (surroundings){nd__running_ended_elsewhere(),
                          nd__account_bytes(manager, pressure->kind)};
}

/// The asking manager first; as long as that was not enough and something was freed, once more,
/// which goes further up when nothing is left below. *ret_found_nothing: the last collection did
/// not, and *ret_before is what was around when it began.
static nd_status relieve(nd_pressure *pressure, nd_status status, bool *ret_found_nothing,
                         surroundings *ret_before) {
    const nd_thread *thread = nd__thread();
    *ret_found_nothing = false;
    for (uint32_t left = pressure->manager->depth + 2; left > 0 && nd__pressure_includes(status);
         left--) {
        uint64_t before = thread->collected_bytes;
        *ret_before = look_around(pressure);
        *ret_found_nothing = !nd__policy_relieve(pressure->manager);
        nd__pressure_brought(pressure, ND_MEMORY_STAGE_COLLECT, thread->collected_bytes - before);
        if (*ret_found_nothing && nd__atomic_single_threaded() &&
            look_around(pressure).charged == ret_before->charged)
            break;
        // Others may have freed what this thread found no more.
        status = nd__pressure_look(pressure, ND_MEMORY_STAGE_COLLECT);
        if (*ret_found_nothing)
            break;
    }
    return status;
}

/// Beside other threads that is done again: what was garbage may have been in the hands of a
/// collection of theirs, and what was freed they may have filled with garbage before this thread
/// got it. So as long as one of their collections ends, or what is charged changes, for a while.
static nd_status collect(nd_pressure *pressure, nd_status status) {
    enum { NAP_NS = 50000, LONGEST_NAP_NS = 6400000, WITHOUT_NAP = 4 };
    if (!collector_is_on(pressure->manager))
        return status;
    nd__pressure_reach(pressure, ND_MEMORY_STAGE_COLLECT);
    const uint64_t until = nd__clock_now_ns() + ND__DEAD_PATIENCE_NS;
    uint64_t nap = NAP_NS;
    for (int turn = 0;; turn++) {
        bool found_nothing;
        surroundings before;
        const uint64_t began = nd__clock_now_ns();
        status = relieve(pressure, status, &found_nothing, &before);
        const uint64_t took = nd__clock_now_ns() - began;
        if (!nd__pressure_includes(status) || began + took >= until)
            return status;
        if (nd__running_await_end(until)) {
            status = nd__pressure_look(pressure, ND_MEMORY_STAGE_COLLECT);
            if (!nd__pressure_includes(status))
                return status;
        } else if (found_nothing) {
            const surroundings now = look_around(pressure);
            if (now.charged == before.charged && now.ended == before.ended)
                return status;
        }
        // Collecting closes the gate to others: for less than half of the time, but at first.
        if (turn >= WITHOUT_NAP) {
            const uint64_t now = nd__clock_now_ns();
            const uint64_t wanted = nap > took ? nap : took;
            if (now >= until)
                return status;
            nd__pause_nap(wanted < until - now ? wanted : until - now);
            nap = nap < LONGEST_NAP_NS ? 2 * nap : nap;
        }
    }
}

static nd_status wait_for_device(nd_pressure *pressure, nd_status status) {
    const nd_memory_functions *functions = pressure->functions;
    if (!functions || !functions->wait)
        return status;
    nd__pressure_reach(pressure, ND_MEMORY_STAGE_WAIT);
    // What was done in time is worth another look even when not all was.
    pressure->wait_expired = !functions->wait(pressure->index, WAIT_LIMIT_NS);
    // What callbacks among it have released gives its memory back behind what is queued.
    if (nd__callback_destroy_deferred())
        pressure->wait_expired |= !functions->wait(pressure->index, WAIT_LIMIT_NS);
    if (functions->retire)
        nd__pressure_brought(pressure, ND_MEMORY_STAGE_WAIT, functions->retire(pressure->index));
    return nd__pressure_look(pressure, ND_MEMORY_STAGE_WAIT);
}
