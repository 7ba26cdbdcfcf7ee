// The manager tree: creation, placement blocks, the end of a manager's memory, statistics. How a
// manager closes: manager_close.c.
#include "lib/manager/manager.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/biased_lock.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/base/reserve.h"
#include "lib/base/seam.h"
#include "lib/base/thread.h"
#include "lib/base/utf8.h"
#include "lib/base/versioned.h"
#include "lib/manager/account.h"
#include "lib/manager/manager_close.h"
#include "lib/manager/manager_fork.h"
#include "lib/manager/shard.h"
#include "lib/object/block.h"
#include "lib/object/callback.h"
#include "lib/object/checked.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include <string.h>

static void manager_destroy(nd_object *self);

static const nd_type manager_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "manager",
    .flags = ND_TYPE_GREEN | ND__TYPE_MANAGER,
    .destroy = manager_destroy,
};

nd_manager nd__manager_root = {
    .header = {.word = (UINT64_C(1) << 32) + 1, .type = &manager_type},
    .shard_count = 1,
    .name = "root",
    .first.manager = &nd__manager_root,
    .escaped = &nd__manager_root.pocket,
    .pocket.manager = &nd__manager_root,
    .pocket.for_escapes = true,
};

_Atomic(nd_manager *) nd__manager_newest = &nd__manager_root;

/// Memory of ended managers, linked by next_sibling: some for each few threads. With ND_CHECK all of it
/// waits in one of them until there is enough, the oldest first.
static struct bin {
    _Alignas(ND__LINE) nd_lock lock;
    _Atomic(nd_manager *) first;
    nd_manager *last; ///< with ND_CHECK
    size_t count;     ///< likewise
} recycled[8];
enum { BINS = sizeof recycled / sizeof *recycled };
ND__FORK_PART(fork_shards, ND__FORK_SHARDS, NULL, 0, 0, nd__manager_fork_before,
              nd__manager_fork_after, NULL);
ND__FORK_LOCKS(bins, ND__FORK_SINGLE, &recycled[0].lock, BINS, sizeof *recycled);

// -------------------------------------------------------------------------------------------- tree

const nd_manager *nd_manager_get_root(void) {
    return &nd__manager_root;
}

static nd_manager *writable(const nd_manager *manager) {
    return manager ? (nd_manager *)(uintptr_t)manager : &nd__manager_root;
}

/// Of more than so many that wait; NULL: there are not.
static nd_manager *take_oldest(struct bin *bin, size_t waiting) {
    nd__lock_acquire(&bin->lock);
    nd_manager *oldest = bin->count > waiting ? nd__atomic_load(&bin->first, relaxed) : NULL;
    if (oldest) {
        nd__atomic_store(&bin->first, oldest->next_sibling, relaxed);
        bin->count--;
    }
    nd__lock_release(&bin->lock);
    return oldest;
}

static void add_newest(struct bin *bin, nd_manager *manager) {
    nd__lock_acquire(&bin->lock);
    manager->next_sibling = NULL;
    if (bin->count++ > 0)
        bin->last->next_sibling = manager;
    else
        nd__atomic_store(&bin->first, manager, relaxed);
    bin->last = manager;
    nd__lock_release(&bin->lock);
}

/// From this thread's bin, else from another one: a thread may end the managers that another makes.
static nd_manager *take_recycled(void) {
    size_t waiting = nd__checked_waiting(sizeof(nd_manager));
    if (waiting)
        return take_oldest(&recycled[0], waiting);
    uint32_t number = nd__thread()->number;
    for (uint32_t i = 0; i < BINS; i++) {
        struct bin *bin = &recycled[(number + i) % BINS];
        if (!nd__atomic_load(&bin->first, relaxed))
            continue;
        nd__lock_acquire(&bin->lock);
        nd_manager *manager = nd__atomic_load(&bin->first, relaxed);
        if (manager)
            nd__atomic_store(&bin->first, manager->next_sibling, relaxed);
        nd__lock_release(&bin->lock);
        if (manager)
            return manager;
    }
    return NULL;
}

static void recycle(nd_manager *manager) {
    nd__biased_lock_end(&manager->first.lock);
    if (nd__checked_waiting(sizeof(nd_manager))) {
        add_newest(&recycled[0], manager);
        return;
    }
    struct bin *bin = &recycled[nd__thread()->number % BINS];
    nd__lock_acquire(&bin->lock);
    manager->next_sibling = nd__atomic_load(&bin->first, relaxed);
    nd__atomic_store(&bin->first, manager, relaxed);
    nd__lock_release(&bin->lock);
}

/// Memory of a manager, on a line of its own; never freed.
static nd_manager *take_memory(void) {
    nd_manager *manager = take_recycled();
    if (manager)
        return manager;
    void *block = nd__seam_alloc_zeroed(ND__LINE_BLOCK(sizeof(nd_manager)));
    if (!block)
        return NULL;
    nd__shard_keep_block(block);
    manager = nd__shard_line_in(block);
    const size_t places = nd__checked_places_bytes();
    manager->places = places ? nd__alloc_zeroed(places) : NULL; // without memory there are none
    nd__shard_begin(&manager->first, manager);
    nd__shard_begin(&manager->pocket, manager);
    manager->pocket.for_escapes = true;
    atomic_init(&manager->escaped, &manager->pocket);
    manager->older = nd__atomic_load(&nd__manager_newest, relaxed);
    while (!nd__atomic_cas(&nd__manager_newest, &manager->older, manager, release, relaxed))
        ;
    return manager;
}

/// Begins a new life. What a thread with a stale pointer may still take, the locks, stays as it is,
/// and what it may look at (`more`, nd__shard_spread) is behind one.
static void reset(nd_manager *manager) {
    nd_shard *more = manager->more;
    nd__biased_lock_acquire(&manager->first.lock);
    memset(&manager->header, 0, sizeof manager->header);
    memset((char *)manager + offsetof(nd_manager, shard_count), 0,
           offsetof(nd_manager, first) - offsetof(nd_manager, shard_count));
    manager->more = more;
    atomic_init(&manager->shard_count, 1);
    manager->owner = nd__thread()->number;
    nd__shard_begin(&manager->first, manager);
    atomic_init(&manager->header.word, (UINT64_C(1) << 32) + 1);
    manager->header.type = &manager_type;
    manager->header.site = nd__object_sites_enabled ? nd__site : NULL;
    nd__biased_lock_release_own(&manager->first.lock);
    if (manager->places)
        nd__checked_note_birth(manager->places);
}

/// A child holds its parent; the root is not counted: it is immortal, and everybody's.
static nd_manager *hold_parent(nd_manager *parent) {
    return parent == &nd__manager_root ? parent : nd_retain(parent);
}

static void release_parent(nd_manager *parent) {
    if (parent != &nd__manager_root)
        nd_object_release(parent);
}

nd_manager *nd_manager_new(const nd_manager *parent_handle, const char *name) {
    if (nd__callback_check("manager_new") != ND_OK)
        return NULL;
    nd_manager *parent = writable(parent_handle ? parent_handle : nd_manager_get_current());
    nd__block_look(); // a step or a request begins
    nd_manager *manager = take_memory();
    if (!manager) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "manager_new: no memory for manager %s",
                  name ? name : "");
        return NULL;
    }
    reset(manager);
    nd__utf8_copy(manager->name, sizeof manager->name, name ? name : "");
    atomic_init(&manager->gc_mode, ND_GC_INHERIT);
    manager->depth = parent->depth + 1;
    manager->edge_age = nd__gate_edge_age();
    nd_shard *shard = nd__shard_lock_to_fill(parent);
    bool open = nd__manager_open(parent);
    if (open) {
        manager->parent = hold_parent(parent);
        manager->siblings = shard;
        manager->next_sibling = shard->children;
        if (shard->children)
            shard->children->previous_sibling = manager;
        shard->children = manager;
        nd__atomic_store(&manager->state, ND__MANAGER_OPEN, release);
    }
    nd__shard_unlock(shard);
    nd__shard_spread_if_crowded();
    if (!open) {
        nd__error(ND_ERROR_CLOSED, "manager_new: parent manager %s is closed", parent->name);
        nd__atomic_store(&manager->state, ND__MANAGER_CLOSED, release);
        recycle(manager);
        return NULL;
    }
    return manager;
}

const nd_manager *nd_manager_get_current(void) {
    const nd_manager *current = nd__thread()->current;
    return current ? current : &nd__manager_root;
}

const nd_manager *nd_get_manager(const void *object) {
    return object ? nd__manager_of(object) : NULL;
}

const nd_manager *nd_manager_get_parent(const nd_manager *manager) {
    return manager ? manager->parent : NULL;
}

const char *nd_manager_get_name(const nd_manager *manager) {
    return manager ? manager->name : "";
}

bool nd_manager_is_open(const nd_manager *manager) {
    return manager && nd__manager_open(manager);
}

nd_manager_block nd__manager_block_begin(const nd_manager *manager) {
    nd_manager_block block = {.once = true};
    if (!manager) {
        nd__error_null("with_manager", "manager");
        return block;
    }
    if (!nd__manager_open(manager)) {
        nd__error(ND_ERROR_CLOSED, "with_manager: manager %s is closed", manager->name);
        return block;
    }
    nd_thread *thread = nd__thread();
    block.pushed = true;
    block.previous = thread->current;
    thread->current = nd_retain(manager);
    return block;
}

void nd__manager_block_end(nd_manager_block *block) {
    if (!block->pushed)
        return;
    nd_thread *thread = nd__thread();
    nd_manager *manager = writable(thread->current);
    thread->current = block->previous;
    nd_object_release(manager);
}

nd_manager *nd__manager_nearest_open(nd_manager *manager) {
    while (!nd__manager_open(manager))
        manager = manager->parent;
    return manager;
}

static void manager_destroy(nd_object *self) {
    nd_manager *manager = (nd_manager *)self;
    if (manager == &nd__manager_root)
        nd__error_fatal("release of manager root, which nobody owns: nd_manager_get_root, "
                        "nd_manager_get_current, "
                        "nd_get_manager and nd_manager_get_parent return borrowed handles");
    nd__manager_close_unheld(manager);
    nd_manager *parent = manager->parent;
    nd__seam_gc_domain_free(manager);
    recycle(manager);
    release_parent(parent);
}

// -------------------------------------------------------------------------------- sets of managers

static bool array_append(nd__manager_array *array, nd_manager *manager) {
    if (array->count == array->capacity) {
        size_t capacity = array->capacity ? 2 * array->capacity : 16;
        nd_manager **items = nd__reserve_realloc(array->items, array->capacity * sizeof *items,
                                                 capacity * sizeof *items);
        if (!items)
            return false;
        array->items = items;
        array->capacity = capacity;
    }
    array->items[array->count++] = manager;
    return true;
}

void nd__manager_array_free(nd__manager_array *array) {
    for (size_t i = 0; i < array->count; i++)
        nd_object_release(array->items[i]);
    nd__reserve_free(array->items);
    *array = (nd__manager_array){0};
}

/// Appends the children in one shard of a manager. The array grows outside the locks, so the
/// children are counted first.
static bool append_children(nd_shard *shard, nd__manager_array *array) {
    for (;;) {
        size_t room = array->capacity - array->count, count = 0;
        nd__biased_lock_acquire(&shard->lock);
        for (nd_manager *child = shard->children; child; child = child->next_sibling)
            count++;
        if (count <= room)
            for (nd_manager *child = shard->children; child; child = child->next_sibling)
                if (nd__object_try_retain(&child->header))
                    array->items[array->count++] = child;
        nd__shard_unlock(shard);
        if (count <= room)
            return true;
        size_t capacity = array->count + 2 * count;
        nd_manager **items = nd__reserve_realloc(array->items, array->capacity * sizeof *items,
                                                 capacity * sizeof *items);
        if (!items)
            return false;
        array->items = items;
        array->capacity = capacity;
    }
}

bool nd__manager_subtree(nd_manager *manager, nd__manager_array *array) {
    nd__object_keep(manager);
    nd__callback_destroy_deferred(); // whoever lists managers counts or collects what is alive in them
    if (!array_append(array, manager)) {
        nd_object_release(manager);
        return false;
    }
    for (size_t i = 0; i < array->count; i++) {
        nd_shard *shard = nd__shard_first(array->items[i]);
        for (; shard; shard = nd__shard_next(shard)) {
            if (!append_children(shard, array)) {
                nd__manager_array_free(array);
                return false;
            }
        }
    }
    return true;
}

// -------------------------------------------------------------------------------------- statistics

nd_status nd_manager_get_stats(const nd_manager *handle, nd_manager_stats *ret_stats) {
    nd_manager *manager = writable(handle);
    nd_status status = nd__versioned_check("manager_get_stats", "ND_MANAGER_STATS_INIT", ret_stats);
    if (status != ND_OK)
        return status;
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    nd__counters count = nd__shard_total(manager);
    stats.live_objects = count.live;
    stats.tracked_objects = count.tracked;
    stats.created_objects = count.created;
    stats.arrived_objects = count.arrived;
    stats.departed_objects = count.departed;
    stats.freed_objects = count.freed;
    stats.collected_objects = count.collected;
    stats.escaped_objects = count.escaped;
    for (int kind = 0; kind < ND__KIND_PLACES; kind++) {
        stats.live_bytes[kind] = count.own_bytes[kind];
        stats.subtree_bytes[kind] = nd__account_held(manager, (nd_device_kind)kind);
        // Of a moment later, when it may be less again than the sum above.
        stats.peak_bytes[kind] = nd__account_peak(manager, (nd_device_kind)kind);
        if (stats.peak_bytes[kind] < stats.subtree_bytes[kind])
            stats.peak_bytes[kind] = stats.subtree_bytes[kind];
        stats.quota_bytes[kind] = nd__atomic_load_relaxed(&manager->quota[kind]);
    }
    nd__biased_lock_acquire(&manager->first.lock);
    stats.cap_objects = manager->cap;
    nd__shard_unlock(&manager->first);
    nd__versioned_write(ret_stats, &stats, sizeof stats);
    return ND_OK;
}

uint64_t nd_manager_get_total_bytes(const nd_manager *handle) {
    nd_manager *manager = writable(handle);
    uint64_t total = 0;
    for (int kind = 0; kind < ND__KIND_PLACES; kind++)
        total += nd__account_settled(manager, (nd_device_kind)kind);
    return total;
}

uint64_t nd_manager_get_total_objects(const nd_manager *handle) {
    nd__manager_array managers = {0};
    uint64_t total = 0;
    if (!nd__manager_subtree(writable(handle), &managers)) {
        nd__error(ND_ERROR_OUT_OF_MEMORY,
                  "manager_get_total_objects: no memory to list the managers below manager %s",
                  nd_manager_get_name(writable(handle)));
        return UINT64_MAX;
    }
    for (size_t i = 0; i < managers.count; i++)
        total += nd__shard_total(managers.items[i]).live;
    nd__manager_array_free(&managers);
    return total;
}

nd_status nd_manager_set_cap(nd_manager *manager, uint64_t objects) {
    if (!manager)
        return nd__error_null("manager_set_cap", "manager");
    if (objects)
        nd__shard_unite(manager);
    nd__biased_lock_acquire(&manager->first.lock);
    if (manager->cap != objects) // else other shards may be looking at it
        manager->cap = objects;
    nd__shard_unlock(&manager->first);
    return ND_OK;
}
