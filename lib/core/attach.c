// Objects in managers: birth, death, attach, temp-attach, and what a close does with survivors.
//
// Invariants: an object is in the list that its manager pointer and its ND__TRACKED bit say, both
// changed under that manager's lock; counters of a manager change with its lists, under the same
// lock; an accounted object's bytes are charged to the path from its manager to the root.
#include "lib/core/collect.h"
#include "lib/core/error.h"
#include "lib/core/gate.h"
#include "lib/core/life.h"
#include "lib/core/manager_internal.h"
#include "lib/core/thread.h"
#include "lib/core/trace.h"
#include <stdio.h>
#include <string.h>

_Atomic(const nd__listener *) nd__listening;

// ------------------------------------------------------------------------------------------- locks

void nd__lock_pair(nd_manager *a, nd_manager *b) {
    if (a == b) {
        nd__lock(&a->lock);
        return;
    }
    nd__lock(a < b ? &a->lock : &b->lock);
    nd__lock(a < b ? &b->lock : &a->lock);
}

void nd__unlock_pair(nd_manager *a, nd_manager *b) {
    nd__unlock(&a->lock);
    if (a != b)
        nd__unlock(&b->lock);
}

static nd_manager *manager_of(nd_object *object) {
    return nd__atomic_load(&object->manager, acquire);
}

nd_manager *nd__lock_manager_of(nd_object *object) {
    for (;;) {
        nd_manager *manager = manager_of(object);
        if (!manager)
            return NULL;
        nd__lock(&manager->lock);
        if (manager_of(object) == manager)
            return manager;
        nd__unlock(&manager->lock);
    }
}

// ------------------------------------------------------------------------------ lists and counters

static int list_of(const nd_object *object) {
    return (nd__flags(object) & ND__TRACKED) ? ND__TRACKED_LIST : ND__GREEN_LIST;
}

static nd_accounted *accounted(nd_object *object) {
    return (object->type->flags & ND__TYPE_ACCOUNTED) ? (nd_accounted *)object : NULL;
}

void nd__list_insert(nd_manager *manager, nd_object *object) {
    int list = list_of(object);
    nd_object *first = manager->lists[list].first;
    object->previous = NULL;
    object->next = first;
    if (first)
        first->previous = object;
    else
        manager->lists[list].last = object;
    manager->lists[list].first = object;
}

void nd__list_remove(nd_manager *manager, nd_object *object) {
    int list = list_of(object);
    if (object->previous)
        object->previous->next = object->next;
    else
        manager->lists[list].first = object->next;
    if (object->next)
        object->next->previous = object->previous;
    else
        manager->lists[list].last = object->previous;
}

/// Counts an object in (+1) or out (-1) of what a manager holds now.
static void count(nd_manager *manager, nd_object *object, uint64_t one) {
    manager->live += one;
    uint32_t flags = nd__flags(object);
    if (flags & ND__TRACKED)
        manager->tracked += one;
    if (flags & ND__TEMP)
        manager->temporary += one;
    else if (!(object->type->flags & ND__TYPE_UNCAPPED))
        manager->capped += one;
    nd_accounted *account = accounted(object);
    if (account)
        manager->own_bytes[account->kind] += one * account->bytes;
}

/// Puts an object into a manager whose lock is held.
static void enter(nd_manager *manager, nd_object *object) {
    nd__list_insert(manager, object);
    count(manager, object, 1);
    nd__atomic_store(&object->manager, manager, release);
}

static void leave(nd_manager *manager, nd_object *object) {
    nd__list_remove(manager, object);
    count(manager, object, UINT64_MAX);
}

static bool cap_refuses(const nd_manager *manager, const nd_object *object) {
    return manager->cap && manager->capped >= manager->cap &&
           !(object->type->flags & ND__TYPE_UNCAPPED);
}

// ------------------------------------------------------------------------------------ birth, death

nd_status nd__object_publish(nd_object *object, nd_manager *manager) {
    if (!(object->type->flags & (ND_TYPE_GREEN | ND__TYPE_UNTRACKED)))
        nd__atomic_store(&object->flags, nd__flags(object) | ND__TRACKED, relaxed); // still private
    nd_manager *target = manager;
    for (;;) {
        nd__lock(&target->lock);
        if (__builtin_expect(nd__manager_open(target), 1))
            break;
        nd__unlock(&target->lock);
        target = nd__nearest_open(target->parent);
    }
    if (__builtin_expect(cap_refuses(target, object), 0)) {
        uint64_t cap = target->cap;
        nd__unlock(&target->lock);
        nd__fetch_clear_flags(&object->flags, ND__TRACKED);
        return nd__error(ND_ERROR_QUOTA,
                         "a new %s does not fit: manager %s is capped at %llu objects",
                         object->type->name, target->name, (unsigned long long)cap);
    }
    enter(target, object);
    target->created++;
    nd__unlock(&target->lock);
    nd_accounted *account = accounted(object);
    if (account && target != manager)
        nd__discharge_path(manager, target, account->kind, account->bytes);
    const nd__listener *listener = nd__listener_now();
    if (listener)
        listener->born(object, target);
    return ND_OK;
}

void nd__object_track(nd_object *object) {
    if ((nd__flags(object) & ND__TRACKED) || (object->type->flags & ND_TYPE_GREEN))
        return;
    nd_manager *manager = nd__lock_manager_of(object);
    if (!manager) {
        nd__fetch_or_flags(&object->flags, ND__TRACKED);
        return;
    }
    if (!(nd__flags(object) & ND__TRACKED)) {
        nd__list_remove(manager, object);
        nd__fetch_or_flags(&object->flags, ND__TRACKED);
        manager->tracked++;
        nd__list_insert(manager, object);
    }
    nd__unlock(&manager->lock);
}

/// Takes a dead object out of its manager, whose lock is held: list, counters, bytes.
static void unlink_locked(nd_manager *manager, nd_object *object, nd_thread *thread) {
    leave(manager, object);
    const nd__listener *listener = nd__listener_now();
    if (listener)
        listener->died(object, manager, thread->cutting);
    nd_accounted *account = accounted(object);
    uint64_t bytes = account ? account->bytes : 0;
    if (thread->cutting) {
        manager->collected++;
        thread->collected_objects++;
        thread->collected_bytes += bytes;
    } else {
        manager->freed++;
        manager->freed_bytes += bytes;
    }
    if (bytes)
        nd__discharge_path(manager, NULL, account->kind, bytes);
    nd__atomic_store(&object->manager, NULL, release);
}

void nd__object_unlink(nd_object *object) {
    nd_manager *manager = nd__lock_manager_of(object);
    if (!manager)
        return;
    unlink_locked(manager, object, nd__thread());
    nd__unlock(&manager->lock);
    if (nd__flags(object) & ND__TEMP)
        nd__origin_forget(object);
}

void nd__objects_unlink(nd_object *const *objects, size_t count) {
    nd_thread *thread = nd__thread();
    for (size_t i = 0; i < count;) {
        nd_manager *manager = nd__lock_manager_of(objects[i]);
        size_t first = i;
        for (; i < count && manager && manager_of(objects[i]) == manager; i++)
            unlink_locked(manager, objects[i], thread);
        if (manager)
            nd__unlock(&manager->lock);
        else
            i++;
        for (size_t k = first; k < i; k++)
            if (nd__flags(objects[k]) & ND__TEMP)
                nd__origin_forget(objects[k]);
    }
}

void nd__object_reattach(nd_object *object) {
    if (manager_of(object))
        return;
    nd_accounted *account = accounted(object);
    if (account)
        nd__charge_path(&nd__root, NULL, account->kind, account->bytes, NULL);
    nd__lock(&nd__root.lock);
    enter(&nd__root, object);
    nd__root.created++;
    nd__unlock(&nd__root.lock);
    const nd__listener *listener = nd__listener_now();
    if (listener)
        listener->born(object, &nd__root);
}

void nd__account_close(nd_object *object) {
    nd_accounted *account = accounted(object);
    if (!account)
        return;
    nd_manager *manager = nd__lock_manager_of(object);
    uint64_t bytes = account->bytes;
    account->bytes = 0;
    if (!manager)
        return;
    manager->own_bytes[account->kind] -= bytes;
    manager->freed_bytes += bytes;
    nd__discharge_path(manager, NULL, account->kind, bytes);
    nd__unlock(&manager->lock);
}

// ------------------------------------------------------------------------------------------ attach

/// Moves an object to `target`. `exempt`: neither cap nor quota may refuse (temp-attach, returns,
/// undoing). The object's ND__TEMP bit becomes `temporary`. Error: closed, cap, quota; then nothing
/// has changed.
static nd_status move(const char *operation, nd_object *object, nd_manager *target, bool exempt,
                      bool temporary) {
    for (;;) {
        nd_manager *from = manager_of(object);
        if (!from)
            return nd__error(ND_ERROR_STATE, "%s: the %s is in no manager yet", operation,
                             object->type->name);
        nd__lock_pair(from, target);
        if (manager_of(object) != from) {
            nd__unlock_pair(from, target);
            continue;
        }
        nd_status status = ND_OK;
        nd_manager *common = nd__common_ancestor(from, target), *refused = NULL;
        nd_accounted *account = accounted(object);
        if (!nd__manager_open(target))
            status =
                nd__error(ND_ERROR_CLOSED, "%s: manager %s is closed", operation, target->name);
        else if (!exempt && (from != target || (nd__flags(object) & ND__TEMP)) &&
                 cap_refuses(target, object))
            status = nd__error(ND_ERROR_QUOTA, "%s: manager %s is capped at %llu objects",
                               operation, target->name, (unsigned long long)target->cap);
        else if (account && from != target &&
                 !nd__charge_path(target, common, account->kind, account->bytes,
                                  exempt ? NULL : &refused))
            status =
                nd__error(ND_ERROR_QUOTA,
                          "%s: %llu bytes do not fit into manager %s, which has a quota of %llu",
                          operation, (unsigned long long)account->bytes, refused->name,
                          (unsigned long long)nd__load_relaxed(&refused->quota[account->kind]));
        if (status == ND_OK) {
            leave(from, object);
            if (temporary)
                nd__fetch_or_flags(&object->flags, ND__TEMP);
            else
                nd__fetch_clear_flags(&object->flags, ND__TEMP);
            enter(target, object);
            if (from != target) {
                from->departed++;
                target->arrived++;
                if (account)
                    nd__discharge_path(from, common, account->kind, account->bytes);
            }
        }
        nd__unlock_pair(from, target);
        return status;
    }
}

/// Collects the accounted objects (a tensor's storage) that an object holds in its own manager:
/// they move along.
typedef struct companion_visitor {
    nd_visitor visitor;
    const nd_manager *manager;
    nd_object *companion;
} companion_visitor;

static void visit_companion(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    companion_visitor *companions = (companion_visitor *)visitor;
    if (accounted(target) && manager_of(target) == companions->manager)
        companions->companion = target;
}

static nd_object *companion_of(const nd_object *object) {
    companion_visitor companions = {.visitor = {visit_companion}, .manager = nd_manager_of(object)};
    if ((object->type->flags & ND__TYPE_TENSOR) && !nd__is_closed(object))
        object->type->traverse(object, &companions.visitor);
    return companions.companion;
}

static nd_status check_attach(const char *operation, const nd_manager *manager,
                              const void *object) {
    if (!manager || !object)
        return nd__error_null(operation, manager ? "object" : "manager");
    if (((const nd_object *)object)->type->flags & ND__TYPE_MANAGER)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: a manager has a parent and cannot be attached", operation);
    return ND_OK;
}

nd_status nd_attach(const nd_manager *manager, const void *handle) {
    nd_status status = check_attach("attach", manager, handle);
    if (status != ND_OK)
        return status;
    nd_object *object = (nd_object *)(uintptr_t)handle;
    nd_manager *target = (nd_manager *)(uintptr_t)manager;
    nd_manager *from = manager_of(object);
    nd_object *companion = companion_of(object);
    bool companion_temporary = companion && (nd__flags(companion) & ND__TEMP);
    if (companion && (status = move("attach", companion, target, false, false)) != ND_OK)
        return status;
    bool was_temporary = (nd__flags(object) & ND__TEMP) != 0;
    status = move("attach", object, target, false, false);
    if (status != ND_OK) {
        if (companion && from)
            move("attach", companion, from, true, companion_temporary);
        return status;
    }
    if (was_temporary)
        nd__origin_forget(object);
    if (companion_temporary)
        nd__origin_forget(companion);
    return ND_OK;
}

static nd_status temp_attach_one(nd_object *object, nd_manager *target) {
    if (manager_of(object) == target)
        return ND_OK;
    nd_place from = nd__place_of(object);
    nd_status status = nd__origin_push(object, from.manager);
    nd__place_end(from);
    if (status != ND_OK)
        return status;
    status = move("temp_attach", object, target, true, true);
    if (status != ND_OK) {
        bool more;
        nd_manager *popped = nd__origin_pop(object, &more);
        if (popped)
            nd_object_release(popped);
    }
    return status;
}

nd_status nd_temp_attach(const nd_manager *manager, const void *handle) {
    nd_status status = check_attach("temp_attach", manager, handle);
    if (status != ND_OK)
        return status;
    nd_object *object = (nd_object *)(uintptr_t)handle;
    nd_manager *target = (nd_manager *)(uintptr_t)manager;
    if (!nd__manager_open(target))
        return nd__error(ND_ERROR_CLOSED, "temp_attach: manager %s is closed", target->name);
    nd_object *companion = companion_of(object);
    if (companion && (status = temp_attach_one(companion, target)) != ND_OK)
        return status;
    status = temp_attach_one(object, target);
    if (status != ND_OK && companion)
        nd__attach_return(companion);
    return status;
}

void nd__attach_return(nd_object *object) {
    bool more = false;
    nd_manager *target = nd__origin_pop(object, &more);
    nd_manager *open = target ? nd__nearest_open(target) : &nd__root;
    // The manager may close between the look and the move: then its nearest open ancestor is next.
    while (move("temp_attach", object, open, true, more) != ND_OK && open->parent)
        open = nd__nearest_open(open->parent);
    if (target)
        nd_object_release(target);
}

// ---------------------------------------------------------------------------- survivors of a close

enum { SITE_SLOTS = 64 };
typedef struct site_count {
    const nd_site *site;
    uint64_t count;
} site_count;

static void count_site(site_count *sites, const nd_site *site) {
    if (!site)
        return;
    for (int i = 0; i < SITE_SLOTS; i++) {
        if (!sites[i].site || sites[i].site == site) {
            sites[i].site = site;
            sites[i].count++;
            return;
        }
    }
}

/// Writes the most frequent creation sites to the report, most frequent first.
static void report_sites(site_count *sites, nd_close_report *report) {
    const size_t rows = sizeof report->escaped_sites / sizeof report->escaped_sites[0];
    for (size_t row = 0; row < rows; row++) {
        site_count *best = NULL;
        for (int i = 0; i < SITE_SLOTS && sites[i].site; i++)
            if (sites[i].count && (!best || sites[i].count > best->count))
                best = &sites[i];
        if (!best)
            return;
        snprintf(report->escaped_sites[row], sizeof report->escaped_sites[row], "%s:%u (%llu)",
                 best->site->file, best->site->line, (unsigned long long)best->count);
        best->count = 0;
    }
}

/// Appends the list of `from` behind that of `target`: objects stay in the order they were made.
/// Both locks are held.
static void splice(nd_manager *from, nd_manager *target, int list) {
    if (!from->lists[list].first)
        return;
    from->lists[list].last->next = target->lists[list].first;
    if (target->lists[list].first)
        target->lists[list].first->previous = from->lists[list].last;
    else
        target->lists[list].last = from->lists[list].last;
    target->lists[list].first = from->lists[list].first;
    from->lists[list].first = from->lists[list].last = NULL;
}

uint64_t nd__move_all(nd_manager *from, nd_manager *fixed_target, uint64_t *bytes,
                      nd_close_report *report) {
    site_count sites[SITE_SLOTS] = {0};
    nd_manager *target = fixed_target ? fixed_target : nd__nearest_open(from->parent);
    nd__lock_pair(from, target);
    while (!fixed_target && !nd__manager_open(target)) {
        nd__unlock_pair(from, target);
        target = nd__nearest_open(target->parent);
        nd__lock_pair(from, target);
    }
    for (int list = 0; list < 2; list++) {
        for (nd_object *object = from->lists[list].first; object; object = object->next) {
            nd__atomic_store(&object->manager, target, release);
            if (report)
                count_site(sites, object->site);
        }
        splice(from, target, list);
    }
    uint64_t moved = from->live;
    target->live += moved;
    target->tracked += from->tracked;
    target->capped += from->capped;
    target->temporary += from->temporary;
    target->arrived += moved;
    from->departed += moved;
    from->escaped += moved;
    from->live = from->tracked = from->capped = from->temporary = 0;
    for (int kind = 0; kind < ND_DEVICE_KIND_COUNT; kind++) {
        uint64_t own = from->own_bytes[kind];
        target->own_bytes[kind] += own;
        from->own_bytes[kind] = 0;
        *bytes += own;
        if (own)
            nd__discharge_path(from, target, (nd_device_kind)kind, own);
    }
    nd__unlock_pair(from, target);
    if (report)
        report_sites(sites, report);
    return moved;
}
