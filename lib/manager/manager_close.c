// A manager closes: what lies below it first, then guests go home, the collector looks once more,
// and what survives goes up. Or it is disposed of: its objects are closed, then the manager.
//
// Invariants: one thread closes a manager, the one that turned it from open to closing; who puts
// something into a manager looks at that under its lock, so a close finds all there will ever be.
// Closing is a loop over the tree, never a recursion.
#include "lib/manager/manager_close.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/biased_lock.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/seam.h"
#include "lib/base/thread.h"
#include "lib/base/versioned.h"
#include "lib/manager/attach.h"
#include "lib/manager/charge.h"
#include "lib/manager/escape.h"
#include "lib/manager/gather.h"
#include "lib/manager/manager.h"
#include "lib/manager/origin.h"
#include "lib/manager/shard.h"
#include "lib/object/callback.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "lib/object/trace.h"

/// Open -> closing; false when somebody else has done that. Who puts something into a shard looks
/// at the state under its lock: whoever takes that lock afterwards finds all there will ever be.
static bool begin_close(nd_manager *manager) {
    uint32_t expected = ND__MANAGER_OPEN;
    if (!nd__atomic_cas(&manager->state, &expected, ND__MANAGER_CLOSING, acq_rel, relaxed))
        return false;
    nd__atomic_store(&manager->closer, &nd__thread_record, relaxed);
    return true;
}

/// An open child, retained and now closing; NULL when there is none left, and no new one comes.
static nd_manager *begin_close_of_child(nd_manager *parent) {
    nd_shard *shard = nd__shard_first(parent);
    parent->closes_last = false;
    while (shard) {
        // Uncounted look at children: one found with a count above zero stays ours by the retain.
        nd_manager *child;
        nd__biased_lock_acquire(&shard->lock);
        for (child = shard->children; child; child = child->next_sibling) {
            parent->closes_last = true;
            if (nd__manager_open(child) && nd__object_try_retain(&child->header))
                break;
        }
        nd__shard_unlock(shard);
        if (!child) {
            shard = nd__shard_next(shard);
        } else if (begin_close(child)) {
            return child;
        } else {
            nd_object_release(child);
        }
    }
    return NULL;
}

/// Temp-attached objects of a shard, retained, so many at most; returns how many.
static size_t take_temporaries(nd_shard *shard, nd_object **objects, size_t limit) {
    size_t count = 0;
    nd__gate_enter_to_clear();
    nd__biased_lock_acquire(&shard->lock); // of a manager that this thread closes
    for (int list = 0; list < 2 && shard->count.temporary; list++)
        for (nd_object *object = shard->lists[list].first; object && count < limit;
             object = object->next)
            if ((nd__object_flags(object) & ND__TEMP) && nd__object_try_retain(object))
                objects[count++] = object;
    nd__shard_unlock(shard);
    nd__gate_leave();
    return count;
}

/// Temp-attached objects go back to where they came from. A tensor counts once, with its storage.
static uint64_t return_temporaries(nd_manager *manager) {
    enum { BATCH = 256 }; // for each of which the whole list may have to be walked
    nd_object *objects[BATCH];
    uint64_t returned = 0;
    nd_shard *shard = nd__shard_first(manager);
    while (shard) {
        size_t count = take_temporaries(shard, objects, BATCH);
        for (size_t i = 0; i < count; i++) {
            bool counted = !(objects[i]->type->flags & ND__TYPE_UNCAPPED);
            returned += nd__attach_return(objects[i], manager) && counted;
            nd_object_release(objects[i]);
        }
        if (count == 0)
            shard = nd__shard_next(shard);
    }
    return returned;
}

static bool has_children(nd_manager *manager) {
    bool has = false;
    for (nd_shard *shard = nd__shard_first(manager); shard && !has; shard = nd__shard_next(shard)) {
        nd__biased_lock_acquire(&shard->lock);
        has = shard->children != NULL;
        nd__shard_unlock(shard);
    }
    return has;
}

/// False: another thread has done it.
static bool unlink_from_parent(nd_manager *manager) {
    nd_shard *shard = manager->siblings;
    nd__shard_lock(shard);
    bool linked = manager->previous_sibling || shard->children == manager;
    if (manager->previous_sibling)
        manager->previous_sibling->next_sibling = manager->next_sibling;
    else if (linked)
        shard->children = manager->next_sibling;
    if (manager->next_sibling)
        manager->next_sibling->previous_sibling = manager->previous_sibling;
    manager->previous_sibling = manager->next_sibling = NULL;
    nd__shard_unlock(shard);
    return linked;
}

/// A manager that is finished leaves the tree; but where one below it is still being closed, further
/// up this stack or by another thread, it stays until that one has left, or what that one holds
/// would be below nothing. Whoever comes last to the lock of the two sees what the other did.
static void leave_tree(nd_manager *manager) {
    nd__atomic_store(&manager->state, ND__MANAGER_CLOSED, release);
    if (manager->closes_last && has_children(manager))
        return;
    while (unlink_from_parent(manager)) {
        manager = manager->parent;
        if (nd__atomic_load(&manager->state, acquire) != ND__MANAGER_CLOSED ||
            has_children(manager))
            return;
    }
}

/// What survives in one of the managers below a closing one goes to `target`, which is closed
/// later. Accounts between the two get rid of it as each of their managers is finished: then one
/// walk is enough for many managers, one below the other.
static void move_past(nd_manager *manager, uint64_t live, nd_manager *target) {
    nd_manager *parent = manager->parent;
    uint64_t bytes[ND__KIND_PLACES] = {0};
    nd__escape_all(manager, live, target, true, false, bytes, NULL);
    for (int kind = 0; kind < ND__KIND_PLACES; kind++) {
        uint64_t carried = nd__atomic_load(&manager->carried[kind], relaxed);
        if (parent != target)
            nd__atomic_add_relaxed(&parent->carried[kind], carried + bytes[kind]);
        if (carried)
            nd__charge_return_path(manager, parent, (nd_device_kind)kind, carried);
        nd__atomic_store(&manager->carried[kind], 0, relaxed);
    }
}

/// What survives goes to the nearest open ancestor, and is reported.
/// `remembered`: boundaries below that look at it again.
static void let_escape(nd_manager *manager, uint64_t live, nd_manager *outside, bool remembered,
                       nd_close_report *report) {
    uint64_t bytes[ND__KIND_PLACES] = {0};
    report->escaped_objects += nd__escape_all(manager, live, nd__manager_nearest_open(outside),
                                              false, remembered, bytes, report);
    for (int kind = 0; kind < ND__KIND_PLACES; kind++)
        report->escaped_bytes += bytes[kind];
}

/// Last steps of closing one manager whose children are closed: collect when asked, move the
/// survivors to `target` (NULL: they escape), forget it. Adds to the report. `outside` is the
/// nearest ancestor that was open when the close began.
static void finish_close(nd_manager *manager, nd_manager *target, nd_manager *outside, bool collect,
                         nd_close_report *report) {
    nd__origin_forward(manager, outside);
    report->returned_objects += return_temporaries(manager);
    // Without an edge written there can be no cycle of what was made in it.
    bool cyclic = collect && nd__gate_edges_since(manager->edge_age);
    if (collect)
        nd__seam_collect_boundary(manager, outside, cyclic, report);
    nd__counters count = nd__shard_total(manager);
    report->freed_objects += count.freed;
    report->freed_bytes += count.freed_bytes;
    if (target) {
        move_past(manager, count.live, target);
    } else {
        let_escape(manager, count.live, outside, cyclic && count.tracked, report);
        if (collect)
            nd__shard_escaped_note(nd__manager_nearest_open(outside), cyclic ? count.tracked : 0);
    }
    nd__seam_pressure_forget(manager);
    leave_tree(manager);
}

/// Whether the collector is on for a manager that is about to be finished. Where it holds nothing
/// that the collector sees nobody has to find out.
static bool is_collected(nd_manager *manager) {
    return nd__shard_total(manager).tracked > 0 && nd__seam_gc_mode(manager) != ND_GC_OFF;
}

/// Closes everything below `top`, deepest first, without recursion: the parent pointers are the
/// stack. Where the collector is on for the top, survivors go there, so that it sees them all at
/// once; else each goes to its parent if one further up collects.
static void close_children(nd_manager *top, nd_manager *outside, nd_close_report *report) {
    nd_manager *at = top, *child = begin_close_of_child(top);
    if (!child)
        return;
    bool at_top = nd__seam_gc_mode(top) != ND_GC_OFF;
    for (;;) {
        if (child || (child = begin_close_of_child(at))) {
            child->collects_above =
                !at_top && at != top && (at->collects_above || nd__seam_gc_mode(at) != ND_GC_OFF);
            child->below_top = true;
            at->deeper = child;
            at = child;
            child = NULL;
            continue;
        }
        if (at == top)
            return;
        nd_manager *parent = at->parent;
        finish_close(at, at->collects_above ? parent : top, outside, !at_top && is_collected(at),
                     report);
        parent->deeper = NULL;
        nd_object_release(at);
        at = parent;
    }
}

static void close_manager(nd_manager *manager, nd_close_report *report) {
    ND__UNCANCELLED;
    const nd__listener *listener = nd__trace_listener();
    uint64_t began = listener ? listener->now() : 0;
    nd_manager *outside = nd__manager_nearest_open(manager->parent);
    close_children(manager, outside, report);
    finish_close(manager, NULL, outside, nd__seam_gc_mode(manager) != ND_GC_OFF, report);
    if (listener)
        listener->closed(manager, began, report);
}

void nd__manager_close_unheld(nd_manager *manager) {
    if (!begin_close(manager))
        return;
    // Nobody holds it, so nobody reads a report; count zero also keeps every retain away.
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    close_manager(manager, &report);
}

static nd_status check_close(const char *operation, const nd_close_report *report) {
    nd_status status = nd__callback_check(operation);
    if (status == ND_OK && report)
        status = nd__versioned_check(operation, "ND_CLOSE_REPORT_INIT", report);
    return status;
}

nd_status nd_manager_close(nd_manager *manager, nd_close_report *ret_report) {
    if (!manager)
        return nd__error_null("manager_close", "manager");
    if (manager == &nd__manager_root)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "manager_close: the root manager cannot be closed");
    nd_status status = check_close("manager_close", ret_report);
    if (status != ND_OK)
        return status;
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    if (begin_close(manager)) {
        nd__object_keep(
            manager); // user code that runs during the close may release the caller's handle
        nd__callback_destroy_deferred(); // what was released before it
        close_manager(manager, &report);
        nd_object_release(manager);
    }
    if (ret_report)
        nd__versioned_write(ret_report, &report, sizeof report);
    return ND_OK;
}

// ----------------------------------------------------------------------------------------- dispose

/// Owned handles of everything attached to a manager, but for what a collection is freeing; false
/// when out of memory.
static bool retain_all(nd_manager *manager, nd_object ***ret_objects, size_t *ret_count) {
    size_t capacity = nd__shard_total(manager).live + 64;
    nd_object **objects = nd__seam_alloc(capacity * sizeof *objects);
    if (!objects)
        return false;
    size_t count = 0;
    nd__gate_enter_to_clear();
    for (nd_shard *shard = nd__shard_first(manager); shard; shard = nd__shard_next(shard)) {
        shard = nd__shard_lock_in(shard, manager);
        for (int list = 0; list < 2; list++)
            for (nd_object *object = shard->lists[list].first; object && count < capacity;
                 object = object->next)
                if (nd__object_try_retain(object))
                    objects[count++] = object;
        nd__shard_unlock(shard);
    }
    nd__gate_leave();
    *ret_objects = objects;
    *ret_count = count;
    return true;
}

/// Closes everything attached to a manager; false when out of memory.
static bool close_objects(nd_manager *manager) {
    nd_object **objects;
    size_t count;
    if (!retain_all(manager, &objects, &count))
        return false;
    // A storage dies with its tensors, or stays with a live view of another manager.
    for (size_t k = 0; k < count; k++)
        if (!(objects[k]->type->flags & ND__TYPE_UNCAPPED))
            nd_close(objects[k]);
    for (size_t k = 0; k < count; k++)
        nd_object_release(objects[k]);
    nd__alloc_free(objects);
    return true;
}

static nd_status nothing_listed(const nd_manager *manager) {
    return nd__error(ND_ERROR_OUT_OF_MEMORY,
                     "manager_dispose: no memory to list the objects of manager %s", manager->name);
}

nd_status nd_manager_dispose(nd_manager *manager, nd_close_report *ret_report) {
    ND__UNCANCELLED;
    if (!manager)
        return nd__error_null("manager_dispose", "manager");
    if (manager == &nd__manager_root)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "manager_dispose: the root manager cannot be closed");
    nd_status status = check_close("manager_dispose", ret_report);
    if (status != ND_OK)
        return status;
    nd__manager_array managers = {0};
    if (!nd__manager_subtree(manager, &managers))
        return nothing_listed(manager);
    // The manager's own first, then what lies below it, which for that goes up to it.
    bool listed = close_objects(manager) && nd__gather_objects(&managers);
    for (size_t i = 0; i < managers.count && listed && managers.count > 1; i++)
        listed = close_objects(managers.items[i]);
    if (!listed)
        status = nothing_listed(manager);
    nd__manager_array_free(&managers);
    return status == ND_OK ? nd_manager_close(manager, ret_report) : status;
}
