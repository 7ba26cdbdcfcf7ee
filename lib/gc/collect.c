// A collection, and what surrounds its looks (look.c): weak references, finalizers, cutting, freeing,
// and who may ask for one. When it happens: policy.c.
//
// Invariants: what a look has marked ND__DYING belongs to this thread alone, no lock is held, and user
// code (weak callbacks, finalizers, destroy) may wait for a thread that collects. A request made by
// such user code is deferred until the running collection is done, one made while the thread
// captures a graph until the end of that.
#include "lib/gc/collect.h"
#include "lib/base/atomics.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/base/thread.h"
#include "lib/base/versioned.h"
#include "lib/gc/collection.h"
#include "lib/gc/cycles.h"
#include "lib/gc/forecast.h"
#include "lib/gc/gc_totals.h"
#include "lib/gc/look.h"
#include "lib/gc/policy.h"
#include "lib/gc/running.h"
#include "lib/gc/sweep.h"
#include "lib/manager/destroy.h"
#include "lib/manager/manager.h"
#include "lib/manager/member.h"
#include "lib/manager/place.h"
#include "lib/manager/shard.h"
#include "lib/object/callback.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "lib/object/trace.h"
#include "lib/object/watch.h"
#include "lib/object/weak.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// A collection that finds new garbage because it freed some looks again, so often at most; and one
/// that had memory to look at a part alone, while that frees some.
enum { ROUNDS = 8, PARTS = 4096 };

static nd_lock settings_lock;
ND__FORK_LOCK(ND__FORK_SINGLE, settings_lock);
static nd_gc_cycle_callback cycle_callback;
static void *cycle_callback_data;

void nd_gc_set_cycle_callback(nd_gc_cycle_callback callback, void *data) {
    nd__lock_acquire(&settings_lock);
    cycle_callback = callback;
    cycle_callback_data = data;
    nd__lock_release(&settings_lock);
}

// -------------------------------------------------------------------------------- with garbage

static void warn_to_stderr(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)data;
    fprintf(stderr, "ndarc: cycle of %llu objects, %llu bytes: %s\n", (unsigned long long)objects,
            (unsigned long long)bytes, path);
}

static void explain_cycles(nd_collection *collection) {
    nd__lock_acquire(&settings_lock);
    nd_gc_cycle_callback callback = cycle_callback;
    void *data = cycle_callback_data;
    nd__lock_release(&settings_lock);
    if (!callback && collection->mode == ND_GC_WARN)
        callback = warn_to_stderr;
    if (!callback)
        return;
    nd_error_state own, *error;
    nd__error_begin(&own, &error);
    nd__cycles_explain(collection, callback, data);
    nd__error_end(error);
}

static void clear_weak_references(nd_collection *collection) {
    for (size_t i = 0; i < collection->count; i++)
        if (nd__object_flags(collection->objects[i]) & ND__HAS_WEAK)
            nd__weak_clear(collection->objects[i]);
}

/// From here on others may get at what is marked as dying, and point to it from what they make.
static void make_revivable(nd_collection *collection) {
    for (size_t i = 0; i < collection->count; i++)
        nd__member_make_revivable(collection->objects[i]);
}

/// Runs the finalizers that have not run, oldest object first. Each may hand out references to
/// other threads or cut edges, so the collection holds every object meanwhile: no count reaches
/// zero under it.
static void run_finalizers(nd_collection *collection) {
    make_revivable(collection);
    if (!collection->held_here)
        for (size_t i = 0; i < collection->count; i++)
            nd__object_keep(collection->objects[i]);
    collection->held_here = 1;
    for (size_t i = 0; i < collection->count; i++) {
        nd_object *object = collection->objects[i];
        if (nd__destroy_claim_finalizer(object))
            nd__destroy_finalize(object);
    }
}

/// After finalizers: what is held from outside again lives on, with all it reaches.
static void let_revived_live(nd_collection *collection) {
    size_t before = collection->count, garbage = 0;
    nd__look_again(collection);
    for (size_t i = 0; i < before; i++) {
        nd_object *object = collection->objects[i];
        if (collection->live[i]) {
            nd__atomic_clear_flags(&object->flags, ND__DYING | ND__REVIVABLE);
            continue;
        }
        nd__atomic_clear_flags(&object->flags, ND__REVIVABLE);
        collection->objects[i] = collection->objects[garbage];
        object->gc_index = (uint32_t)garbage;
        collection->objects[garbage++] = object;
    }
    // Given up by the collection, they are held by whoever revived them.
    for (size_t i = garbage; i < before; i++)
        nd_object_release(collection->objects[i]);
    collection->count = garbage;
    collection->report.revived_objects += before - garbage;
    nd__gate_destroy_parked();
}

/// Gives up what the collection holds on garbage. A count that this brings to zero is freed with
/// the rest.
static void let_go(nd_collection *collection) {
    for (size_t i = 0; collection->held_here && i < collection->count; i++)
        nd_object_release(collection->objects[i]);
    collection->held_here = 0;
}

/// Garbage is watched no more: from here on its counts are written plainly.
static void end_watches(nd_collection *collection) {
    for (size_t i = 0; i < collection->count; i++) {
        uint64_t word = nd__atomic_load_relaxed(&collection->objects[i]->word);
        if (nd__watch_includes(word))
            nd__watch_tell(collection->objects[i], ND__WATCH_GARBAGE, nd__watch_count(word));
    }
}

/// Cuts the edges of the garbage and frees it. What it held outside is released, and counted as
/// collected if it dies.
static void free_garbage(nd_thread *thread, nd_collection *collection) {
    uint64_t objects_before = thread->collected_objects, bytes_before = thread->collected_bytes;
    bool outermost = nd__destroy_begin(thread);
    thread->cutting = true;
    nd__sweep(thread, collection);
    nd__destroy_end(thread, outermost);
    thread->cutting = false;
    collection->report.collected_objects += thread->collected_objects - objects_before;
    collection->report.collected_bytes += thread->collected_bytes - bytes_before;
}

/// False without memory to say all that would be freed.
static bool only_warn(nd_collection *collection) {
    bool complete = nd__forecast(collection);
    make_revivable(collection);
    for (size_t i = 0; i < collection->count; i++)
        nd__atomic_clear_flags(&collection->objects[i]->flags, ND__DYING | ND__REVIVABLE);
    let_go(collection);
    return complete;
}

// ------------------------------------------------------------------------------------ a collection

/// One round. False when there is no memory for the passes (then nothing has happened), or to say all
/// that would be freed.
static bool collect_round(nd_thread *thread, nd_collection *collection, nd_manager *const *managers,
                          size_t count, bool *ret_again) {
    *ret_again = false;
    collection->count = 0;
    collection->held_here = 0;
    if (!nd__look_find(collection, managers, count))
        return false;
    if (collection->count == 0)
        return true;
    explain_cycles(collection);
    if (collection->mode == ND_GC_WARN)
        return only_warn(collection);
    if (collection->any_weak)
        clear_weak_references(collection);
    bool finalized = collection->any_finalizer;
    if (finalized) {
        run_finalizers(collection);
        let_revived_live(collection);
        clear_weak_references(collection); // made by finalizers, or with what they handed out
    }
    let_go(collection);
    *ret_again = (finalized || collection->partly) && collection->count > 0;
    if (collection->any_watched || finalized) // a finalizer may have begun to watch
        end_watches(collection);
    free_garbage(thread, collection);
    return true;
}

static nd_status collect_below(nd_manager *manager, nd_gc_mode mode, nd_gc_report *report);

void nd__collect_deferred(void) {
    nd_thread *thread = nd__thread();
    while (thread->requested || thread->deferred) {
        bool requested = thread->requested != NULL;
        nd_manager **place = requested ? &thread->requested : &thread->deferred;
        nd_manager *manager = *place;
        *place = NULL;
        nd_manager *open = nd__manager_nearest_open(manager);
        nd_gc_mode mode = nd__policy_mode(open);
        nd_gc_report report = ND_GC_REPORT_INIT;
        if (requested || mode != ND_GC_OFF)
            collect_below(open, mode == ND_GC_WARN ? ND_GC_WARN : ND_GC_ON, &report);
        nd_object_release(manager);
    }
}

/// Remembers what is wanted inside a collection or a capture; two become one for their common ancestor.
static void defer(nd_manager **place, nd_manager *manager) {
    nd_manager *before = *place;
    nd_manager *common = before ? nd__place_common_ancestor(before, manager) : manager;
    *place = nd_object_retain(common);
    if (before)
        nd_object_release(before);
}

/// What a collection is to do.
typedef struct order {
    nd_gc_mode mode;
    uint64_t pause_ns;
    bool exact;
    /// So many of the objects in the shard for what escaped to another manager, which has this
    /// mode, are looked at as well.
    size_t recent;
    nd_manager *above;
} order;

/// Without memory for the passes it says so to the caller alone: most collections nobody asked for.
static nd_status collect(nd_manager *const *managers, size_t count, const order *order,
                         nd_gc_report *report) {
    ND__UNCANCELLED;
    nd_thread *thread = nd__thread();
    nd_collection collection = {.mode = order->mode,
                                .pause_ns = order->pause_ns,
                                .exact = order->exact,
                                .waits = order->exact,
                                .above = order->above,
                                .escaped =
                                    order->recent ? nd__shard_of_escaped(order->above) : NULL,
                                .recent = order->recent,
                                .report = ND_GC_REPORT_INIT};
    const nd__listener *listener = nd__trace_listener();
    uint64_t began = listener ? listener->now() : 0;
    thread->collecting = true;
    nd__running_begin();
    bool again = true, memory = true;
    for (int round = 0; again && memory && round < (collection.partly ? PARTS : ROUNDS); round++)
        memory = collect_round(thread, &collection, managers, count, &again);
    memory = memory && !collection.partly;
    nd__running_end();
    thread->collecting = false;
    nd__collection_free(&collection);
    nd__gc_totals_add(&collection.report, order->mode);
    if (listener)
        listener->collected(managers, count, began, &collection.report);
    *report = collection.report;
    if (collection.report.postponed_objects)
        nd__policy_collect_soon(managers[0]);
    if (!memory)
        return ND_ERROR_OUT_OF_MEMORY;
    if (collection.report.postponed_objects)
        return nd__error(
            ND_ERROR_STATE,
            "gc_collect: it took too long, beside other threads, to decide on %llu of the "
            "objects of manager %s; they are kept, and examined again later",
            (unsigned long long)collection.report.postponed_objects, managers[0]->name);
    if (collection.report.broken_objects)
        return nd__error(
            ND_ERROR_STATE,
            "gc_collect: the edges that are reported to a %s are more than there are; it was kept",
            collection.broken_name);
    return ND_OK;
}

/// Gives up the managers of another mode than the topmost one's, `mode`.
static void keep_of_mode(nd__manager_array *managers, nd_gc_mode mode) {
    size_t kept = 0;
    for (size_t i = 0; i < managers->count; i++) {
        if (nd__policy_mode(managers->items[i]) == mode)
            managers->items[kept++] = managers->items[i];
        else
            nd_object_release(managers->items[i]);
    }
    managers->count = kept;
}

static nd_status collect_all_of(nd__manager_array *managers, const order *order,
                                nd_gc_report *report, uint64_t *ret_left) {
    nd_status status =
        managers->count ? collect(managers->items, managers->count, order, report) : ND_OK;
    if (ret_left)
        *ret_left = nd__look_count_tracked(managers->items, managers->count);
    nd__manager_array_free(managers);
    return status;
}

static nd_status collect_below(nd_manager *manager, nd_gc_mode mode, nd_gc_report *report) {
    nd__manager_array managers = {0};
    if (!nd__manager_subtree(manager, &managers))
        return ND_ERROR_OUT_OF_MEMORY;
    order order = {.mode = mode, .pause_ns = nd__policy_pause_ns(manager, false), .exact = true};
    return collect_all_of(&managers, &order, report, NULL);
}

nd_status nd__collect_where_on(nd_manager *manager, uint64_t pause_ns, bool exact,
                               nd_gc_report *report, uint64_t *ret_left) {
    nd__manager_array managers = {0};
    if (!nd__manager_subtree(manager, &managers))
        return ND_ERROR_OUT_OF_MEMORY;
    order order = {.mode = nd__policy_mode(manager), .pause_ns = pause_ns, .exact = exact};
    keep_of_mode(&managers, order.mode);
    return collect_all_of(&managers, &order, report, ret_left);
}

nd_status nd_gc_collect(const nd_manager *handle, nd_gc_report *ret_report) {
    nd_manager *manager = handle ? (nd_manager *)(uintptr_t)handle : &nd__manager_root;
    nd_status status = ND_OK;
    if (ret_report)
        status = nd__versioned_check("gc_collect", "ND_GC_REPORT_INIT", ret_report);
    if (status != ND_OK)
        return status;
    pthread_testcancel(); // lets a thread end that does nothing else
    nd_thread *thread = nd__thread();
    nd_gc_report report = ND_GC_REPORT_INIT;
    status = nd__callback_check("gc_collect");
    if (status != ND_OK)
        return status;
    if (thread->collecting || thread->capture) {
        defer(&thread->requested, manager);
    } else {
        nd_gc_mode mode = nd__policy_mode(manager);
        status = collect_below(manager, mode == ND_GC_WARN ? ND_GC_WARN : ND_GC_ON, &report);
        nd__collect_deferred();
        if (status == ND_ERROR_OUT_OF_MEMORY)
            nd__error(status,
                      "gc_collect: no memory for the passes over all objects; %llu were collected",
                      (unsigned long long)report.collected_objects);
    }
    if (ret_report)
        nd__versioned_write(ret_report, &report, sizeof report);
    return status;
}

void nd__collect_boundary(nd_manager *manager, nd_manager *outside, bool cyclic,
                          nd_close_report *close_report) {
    nd_manager *above = nd__manager_nearest_open(outside);
    size_t recent = nd__shard_escaped_recently(above);
    if (recent == 0 && (!cyclic || nd__shard_total(manager).tracked == 0))
        return;
    if (!nd__policy_at_boundary(manager))
        return;
    nd_thread *thread = nd__thread();
    if (thread->collecting || thread->capture) {
        defer(&thread->deferred, above);
        return;
    }
    nd_gc_report report = ND_GC_REPORT_INIT;
    order order = {.mode = nd__policy_mode(manager),
                   .pause_ns = nd__policy_pause_ns(manager, false),
                   .exact = true,
                   .recent = recent,
                   .above = above};
    if (recent && nd__policy_mode(above) != order.mode)
        order.recent = 0;
    collect(&manager, 1, &order, &report);
    if (order.mode != ND_GC_WARN) {
        close_report->collected_objects += report.collected_objects;
        close_report->collected_bytes += report.collected_bytes;
    }
    close_report->postponed_objects += report.postponed_objects;
    if (report.gate_closed_ns > close_report->gate_closed_ns)
        close_report->gate_closed_ns = report.gate_closed_ns;
    nd__collect_deferred();
}
