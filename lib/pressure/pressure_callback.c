// The callbacks that a program sets for memory under pressure.
//
// Invariant: a callback's data stays valid while any thread runs it. Its record is counted, under
// one lock that only this file takes: one for the manager that has it, one for each thread that
// runs it; whoever gives up the last one frees it, with the lock released. A manager has a record
// only while it is open.
#include "lib/pressure/pressure_callback.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/base/thread.h"
#include "lib/base/versioned.h"
#include "lib/manager/account.h"
#include "lib/manager/manager.h"
#include "lib/object/user_code.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"

struct nd__memory_callback {
    uint64_t holders; ///< guarded by the lock
    nd_memory_callback callback;
};

static nd_lock callback_lock;
ND__FORK_LOCK(ND__FORK_SINGLE, callback_lock);

static void drop(nd__memory_callback *record) {
    if (!record)
        return;
    nd__lock_acquire(&callback_lock);
    bool last = --record->holders == 0;
    nd__lock_release(&callback_lock);
    if (!last)
        return;
    nd_memory_callback callback = record->callback;
    nd__alloc_free(record);
    if (!callback.free)
        return;
    nd_user_code code;
    nd__user_code_begin(&code);
    callback.free(callback.data);
    nd__user_code_end(&code);
}

/// Puts a record in the place of a manager's. False: the manager is closed.
static bool exchange(nd_manager *manager, nd__memory_callback *record,
                     nd__memory_callback **ret_before) {
    nd__lock_acquire(&callback_lock);
    bool open = nd__manager_open(manager);
    if (open || !record) {
        *ret_before = manager->memory_callback;
        manager->memory_callback = record;
    }
    nd__lock_release(&callback_lock);
    return open;
}

nd_status nd_memory_set_callback(const nd_manager *handle, const nd_memory_callback *callback) {
    ND__UNCANCELLED;
    nd_manager *manager = handle ? (nd_manager *)(uintptr_t)handle : &nd__manager_root;
    nd__memory_callback *record = NULL, *before = NULL;
    if (callback) {
        nd_memory_callback chosen = ND_MEMORY_CALLBACK_INIT;
        nd_status status = nd__versioned_read("memory_set_callback", "ND_MEMORY_CALLBACK_INIT",
                                              callback, &chosen, sizeof chosen);
        if (status != ND_OK)
            return status;
        if (!chosen.give_up)
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "memory_set_callback: the callback has no function give_up");
        record = nd__pressure_alloc(sizeof *record);
        if (!record)
            return nd__error(ND_ERROR_OUT_OF_MEMORY,
                             "memory_set_callback: no memory for the callback of manager %s",
                             manager->name);
        *record = (nd__memory_callback){.holders = 1, .callback = chosen};
    }
    if (!exchange(manager, record, &before) && record) {
        nd__alloc_free(record);
        return nd__error(ND_ERROR_CLOSED, "memory_set_callback: manager %s is closed",
                         manager->name);
    }
    drop(before);
    return ND_OK;
}

void nd__pressure_forget(nd_manager *manager) {
    nd__memory_callback *before = NULL;
    exchange(manager, NULL, &before);
    drop(before);
}

// --------------------------------------------------------------------------------------- the stage

static nd__memory_callback *take(nd_manager *manager) {
    nd__lock_acquire(&callback_lock);
    nd__memory_callback *record = manager->memory_callback;
    if (record)
        record->holders++;
    nd__lock_release(&callback_lock);
    return record;
}

static bool run(nd__memory_callback *record, nd_pressure *pressure, nd_status status) {
    const nd_memory_pressure told = {
        .size = sizeof told,
        .version = 1,
        .bytes = pressure->bytes,
        .kind = pressure->kind,
        .quota = status == ND_ERROR_QUOTA,
        .manager = pressure->manager,
    };
    nd_thread *thread = nd__thread();
    uint64_t before = nd__account_bytes(&nd__manager_root, pressure->kind);
    nd_user_code code;
    nd__user_code_begin(&code);
    thread->in_memory_callback = true;
    bool gave_up = record->callback.give_up(&told, record->callback.data);
    thread->in_memory_callback = false;
    nd__user_code_end(&code);
    uint64_t after = nd__account_bytes(&nd__manager_root, pressure->kind);
    pressure->callbacks++;
    nd__pressure_brought(pressure, ND_MEMORY_STAGE_CALLBACK, before > after ? before - after : 0);
    return gave_up;
}

nd_status nd__pressure_ask(nd_pressure *pressure, nd_status status) {
    if (nd__thread()->in_memory_callback)
        return status;
    // The asking manager is held for the walk, and holds those above it.
    for (nd_manager *at = pressure->manager; at && nd__pressure_includes(status); at = at->parent) {
        nd__memory_callback *record = take(at);
        if (!record)
            continue;
        nd__pressure_reach(pressure, ND_MEMORY_STAGE_CALLBACK);
        bool gave_up = run(record, pressure, status);
        drop(record);
        // One that gave nothing up may have lifted a quota, and other threads go on meanwhile.
        status = gave_up ? nd__pressure_look(pressure, ND_MEMORY_STAGE_CALLBACK)
                         : nd__pressure_attempt(pressure, ND_MEMORY_STAGE_CALLBACK);
    }
    return status;
}
