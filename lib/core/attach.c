// Objects in managers: birth, death, attach, temp-attach, and what a close does with survivors.
//
// Invariants: an object is in the list that its home and its ND__TRACKED bit say, both changed
// under that shard's lock; counters of a shard change with its lists, under the same lock; an accounted object's bytes are charged to the path from its manager to the root.
#include "lib/core/callback.h"
#include "lib/core/error.h"
#include "lib/core/gate.h"
#include "lib/core/life.h"
#include "lib/core/manager_internal.h"
#include "lib/core/member.h"
#include "lib/core/policy.h"
#include "lib/core/pressure.h"
#include "lib/core/thread.h"
#include "lib/core/trace.h"
#include <stdio.h>
#include <string.h>

_Atomic(const nd__listener *) nd__listening;

static bool cap_refuses(const nd_shard *shard, const nd_object *object) {
    uint64_t cap = shard->manager->cap;
    return cap && shard->count.capped >= cap && !(object->type->flags & ND__TYPE_UNCAPPED);
}

// ------------------------------------------------------------------------------------ birth, death

/// Bytes were charged to `manager`, but the object went to `target`, above it.
static void charge_instead(nd_object *object, nd_manager *manager, nd_manager *target) {
    nd_accounted *account = nd__accounted(object);
    if (account && account->bytes)
        nd__discharge_path(manager, target, account->kind, account->bytes);
}

static void tell_of_birth(const nd_object *object, const nd_manager *manager) {
    const nd__listener *listener = nd__listener_now();
    if (listener)
        listener->born(object, manager);
}

static inline __attribute__((always_inline)) nd_status
publish(nd_object *object, nd_object *companion, nd_manager *manager) {
    if (__builtin_expect(nd__thread_record.in_callback, 0))
        return nd__callback_error(object->type->name);
    uint32_t flags = nd__flags(object);
    if (!(object->type->flags & (ND_TYPE_GREEN | ND__TYPE_UNTRACKED))) {
        flags |= ND__TRACKED;
        nd__atomic_store(&object->flags, flags, relaxed); // still private
    }
    nd_manager *target = manager;
    nd_shard *shard;
    for (;;) {
        shard = nd__lock_to_fill(target);
        if (__builtin_expect(nd__manager_open(target), 1))
            break;
        nd__unlock(&shard->lock);
        target = nd__nearest_open(target->parent);
    }
    if (__builtin_expect(cap_refuses(shard, object), 0)) {
        uint64_t cap = target->cap;
        nd__unlock(&shard->lock);
        nd__fetch_clear_flags(&object->flags, ND__TRACKED);
        return nd__error(ND_ERROR_QUOTA,
                         "a new %s does not fit: manager %s is capped at %llu objects",
                         object->type->name, target->name, (unsigned long long)cap);
    }
    if (companion)
        nd__member_enter(shard, companion, nd__flags(companion));
    nd__member_enter(shard, object, flags);
    shard->count.created += companion ? 2 : 1;
    // Under the lock: as soon as it is given up, somebody may close the object, and the companion with
    // it.
    if (__builtin_expect(target != manager, 0)) {
        charge_instead(object, manager, target);
        if (companion)
            charge_instead(companion, manager, target);
    }
    if (companion)
        tell_of_birth(companion, target);
    tell_of_birth(object, target);
    nd__unlock(&shard->lock);
    if (flags & ND__TRACKED)
        nd__gc_count_tracked();
    nd__relieve_crowd();
    return ND_OK;
}

nd_status nd__object_publish(nd_object *object, nd_manager *manager) {
    return publish(object, NULL, manager);
}

nd_status nd__object_publish_both(nd_object *object, nd_object *companion, nd_manager *manager) {
    return publish(object, companion, manager);
}

static void track_locked(nd_shard *home, nd_object *object) {
    nd__list_remove(home, object, ND__GREEN_LIST);
    nd__fetch_or_flags(&object->flags, ND__TRACKED);
    home->count.tracked++;
    nd__list_insert(home, object, ND__TRACKED_LIST);
    nd__gc_count_tracked();
}

void nd__object_track(nd_object *object) {
    if ((nd__flags(object) & ND__TRACKED) || (object->type->flags & ND_TYPE_GREEN))
        return;
    nd_shard *home = nd__lock_home(object);
    if (!home) {
        nd__fetch_or_flags(&object->flags, ND__TRACKED);
        return;
    }
    if (!(nd__flags(object) & ND__TRACKED))
        track_locked(home, object);
    nd__unlock(&home->lock);
}

void nd__object_track_with(nd_object *object, void *slot, void *target) {
    nd_shard *home = nd__lock_home(object);
    *(nd_object **)slot = target;
    track_locked(home, object);
    nd__unlock(&home->lock);
}

void nd__object_unlink(nd_object *object) {
    nd_shard *home = nd__lock_home(object);
    if (!home)
        return;
    nd__member_die(home, object, nd__thread());
    nd__unlock(&home->lock);
    if (nd__flags(object) & ND__TEMP)
        nd__origin_forget(object);
}

/// As nd__member_die for a run of garbage at the front of `objects` that is in `home`; counters are
/// written once. Returns how many that were; *ret_temporary says whether some have origins.
static size_t unlink_run(nd_shard *home, nd_object *const *objects, size_t count, nd_thread *thread,
                         bool *ret_temporary) {
    const nd__listener *listener = nd__listener_now();
    uint64_t tracked = 0, temporary = 0, uncapped = 0, bytes = 0;
    size_t i = 0;
    for (; i < count && nd__home_of(objects[i]) == home; i++) {
        nd_object *object = objects[i];
        uint32_t flags = nd__flags(object), type_flags = object->type->flags;
        nd__list_remove(home, object, nd__list_of(flags));
        tracked += (flags & ND__TRACKED) != 0;
        nd__atomic_store(&object->home, NULL, release);
        if (__builtin_expect(!listener && !(flags & ND__TEMP) &&
                                 !(type_flags & (ND__TYPE_UNCAPPED | ND__TYPE_ACCOUNTED)),
                             1))
            continue;
        temporary += (flags & ND__TEMP) != 0;
        uncapped += !(flags & ND__TEMP) && (type_flags & ND__TYPE_UNCAPPED);
        if (__builtin_expect(listener != NULL, 0))
            listener->died(object, home->manager, true);
        if (__builtin_expect(type_flags & ND__TYPE_ACCOUNTED, 0)) {
            const nd_accounted *account = (const nd_accounted *)object;
            bytes += account->bytes;
            home->count.own_bytes[account->kind] -= account->bytes;
            if (account->bytes)
                nd__discharge_path(home->manager, NULL, account->kind, account->bytes);
        }
    }
    nd__counters *left = &home->count;
    left->live -= i;
    left->tracked -= tracked;
    left->temporary -= temporary;
    left->capped -= i - temporary - uncapped;
    left->collected += i;
    thread->collected_objects += i;
    thread->collected_bytes += bytes;
    *ret_temporary = temporary > 0;
    return i;
}

void nd__garbage_unlink(nd_object *const *objects, size_t count) {
    nd_thread *thread = nd__thread();
    for (size_t i = 0; i < count;) {
        nd_shard *home = nd__lock_home(objects[i]);
        bool temporary = false;
        size_t run = home ? unlink_run(home, objects + i, count - i, thread, &temporary) : 1;
        if (home)
            nd__unlock(&home->lock);
        for (size_t k = i; temporary && k < i + run; k++)
            if (nd__flags(objects[k]) & ND__TEMP)
                nd__origin_forget(objects[k]);
        i += run;
    }
}

void nd__object_reattach(nd_object *object) {
    if (nd__home_of(object))
        return;
    nd_accounted *account = nd__accounted(object);
    if (account)
        nd__charge_path(&nd__root, NULL, account->kind, account->bytes, NULL);
    nd__fetch_clear_flags(&object->flags, ND__TEMP); // where it came from is forgotten
    nd_shard *shard = nd__lock_to_fill(&nd__root);
    nd__member_enter(shard, object, nd__flags(object));
    shard->count.created++;
    tell_of_birth(object, &nd__root);
    nd__unlock(&shard->lock);
}

void nd__account_close(nd_object *object) {
    nd_accounted *account = nd__accounted(object);
    if (!account)
        return;
    nd_shard *home = nd__lock_home(object);
    uint64_t bytes = account->bytes;
    account->bytes = 0;
    if (!home)
        return;
    if (bytes) {
        home->count.own_bytes[account->kind] -= bytes;
        home->count.freed_bytes += bytes;
        nd__discharge_path(home->manager, NULL, account->kind, bytes);
    }
    nd__unlock(&home->lock);
}

// ------------------------------------------------------------------------------------------ attach

/// What moves at once: an object and, when it is a tensor whose storage lives where it does, that.
typedef struct relocation {
    const char *operation;
    nd_object *object;
    bool alone;         ///< the companion stays, wherever it is
    nd_manager *target; ///< kept valid by the caller
    // While locked:
    nd_object *companion; ///< NULL: nothing goes along
    nd_shard *home, *companion_home, *shard;
} relocation;

static bool may_be_accompanied(const nd_object *object) {
    return (object->type->flags & ND__TYPE_TENSOR) != 0;
}

static nd_object *companion_now(const nd_object *object) {
    return may_be_accompanied(object) && !nd__is_closed(object) ? nd__companion_of(object) : NULL;
}

/// A third shard to lock, which few have: that of a companion which is in neither of the other two.
static nd_shard *third_shard(const relocation *all) {
    nd_shard *third = all->companion_home;
    return third == all->home || third == all->shard ? NULL : third;
}

static void lock_shards(const relocation *all) {
    nd_shard *third = third_shard(all);
    if (__builtin_expect(!third, 1)) {
        nd__lock_pair(all->home, all->shard);
        return;
    }
    nd_shard *shards[] = {all->home, all->shard, third};
    nd__lock_all(shards, 3);
}

static void unlock_shards(const relocation *all) {
    nd_shard *third = third_shard(all);
    nd__unlock_pair(all->home, all->shard);
    if (third)
        nd__unlock(&third->lock);
}

static void relocation_unlock(const relocation *all) {
    unlock_shards(all);
    nd__relieve_crowd();
}

/// Locks where the two are and where they go, all at once. False: the object is in no manager, and
/// nothing is locked.
static bool relocation_lock(relocation *all) {
    bool retired = false;
    for (;;) {
        nd_shard *home = nd__home_of(all->object);
        nd_object *companion = all->alone ? NULL : companion_now(all->object);
        nd_shard *companion_home = companion ? nd__home_of(companion) : NULL;
        if (!home)
            return false;
        all->home = home;
        all->companion = companion;
        all->companion_home = companion_home;
        all->shard = home->manager == all->target ? home
                     : retired                    ? &all->target->first
                                                  : nd__own_shard(all->target);
        lock_shards(all);
        retired = all->shard->retired;
        // A companion that has appeared meanwhile has the object's bytes.
        if (__builtin_expect(!retired && nd__home_of(all->object) == home &&
                                 (companion ? nd__home_of(companion) == companion_home
                                            : all->alone || !companion_now(all->object)),
                             1))
            return true;
        unlock_shards(all);
    }
}

static nd_status not_attached(const relocation *all) {
    return nd__error(ND_ERROR_STATE, "%s: the %s is in no manager yet", all->operation,
                     all->object->type->name);
}

/// Where an object is, or will be once the closes that have begun are done. Its home is locked.
static const nd_manager *settles_in(const nd_object *object, const nd_shard *home) {
    if (__builtin_expect(nd__manager_open(home->manager), 1))
        return home->manager;
    const nd_manager *back = (nd__flags(object) & ND__TEMP) ? nd__origin_peek(object) : NULL;
    return back ? back : nd__nearest_open(home->manager);
}

/// Once locked: leaves the companion behind that lives elsewhere.
static void choose_companion(relocation *all) {
    if (all->companion &&
        (!all->companion_home ||
         (all->companion_home != all->home &&
          settles_in(all->companion, all->companion_home) != settles_in(all->object, all->home))))
        all->companion = NULL;
}

static nd_shard *home_in(const relocation *all, const nd_object *object) {
    return object == all->companion ? all->companion_home : all->home;
}

/// Charges the target with what comes to it, down from where that is charged already. `refusal`
/// NULL: no quota may refuse.
static bool charge(const relocation *all, nd_pressure *refusal) {
    nd_object *bearer = all->companion ? all->companion : all->object;
    const nd_accounted *account = nd__accounted(bearer);
    const nd_manager *from = home_in(all, bearer)->manager;
    if (!account || !account->bytes || from == all->target)
        return true;
    nd_manager *common = nd__common_ancestor((nd_manager *)(uintptr_t)from, all->target);
    if (nd__charge_path(all->target, common, account->kind, account->bytes,
                        refusal ? &refusal->refused : NULL))
        return true;
    refusal->kind = account->kind;
    refusal->bytes = account->bytes;
    return false;
}

/// Whether the target takes them. Afterwards nothing can fail. `refusal` NULL: neither cap nor quota
/// may refuse. What a quota refuses is written to `refusal`, and no error is set.
static nd_status admit(const relocation *all, nd_pressure *refusal) {
    const nd_manager *target = all->target;
    if (!nd__manager_open(target))
        return nd__error(ND_ERROR_CLOSED, "%s: manager %s is closed", all->operation, target->name);
    bool counted = all->home->manager == target && !(nd__flags(all->object) & ND__TEMP);
    if (refusal && !counted && cap_refuses(all->shard, all->object))
        return nd__error(ND_ERROR_QUOTA, "%s: manager %s is capped at %llu objects", all->operation,
                         target->name, (unsigned long long)target->cap);
    return charge(all, refusal) ? ND_OK : ND_ERROR_QUOTA;
}

/// Moves one of the two, which was admitted. `away`: it has origins.
static void transfer(const relocation *all, nd_object *object, bool away) {
    nd_shard *home = home_in(all, object), *shard = all->shard;
    uint32_t flags = nd__flags(object);
    nd__member_leave(home, object, flags);
    if (away && !(flags & ND__TEMP))
        nd__fetch_or_flags(&object->flags, ND__TEMP);
    else if (!away && (flags & ND__TEMP))
        nd__fetch_clear_flags(&object->flags, ND__TEMP);
    nd__member_enter(shard, object, nd__flags(object));
    if (home->manager == shard->manager) { // perhaps in another shard: each one's counts add up
        home->count.arrived--;
        shard->count.arrived++;
        return;
    }
    nd__note_edge();
    home->count.departed++;
    shard->count.arrived++;
    const nd_accounted *account = nd__accounted(object);
    if (account && account->bytes)
        nd__discharge_path(home->manager, nd__common_ancestor(home->manager, shard->manager),
                           account->kind, account->bytes);
}

static nd_status check_attach(const char *operation, const nd_manager *manager,
                              const void *object) {
    if (!manager || !object)
        return nd__error_null(operation, manager ? "object" : "manager");
    if (((const nd_object *)object)->type->flags & ND__TYPE_MANAGER)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: a manager has a parent and cannot be attached", operation);
    return nd__callback_check(operation);
}

static void settle(const relocation *all, nd_object *object, nd_origin **spare) {
    if (!object)
        return;
    if (nd__flags(object) & ND__TEMP)
        nd__origin_drop(object, spare);
    transfer(all, object, false);
}

static nd_status attach(nd_object *object, nd_manager *target, nd_pressure *refusal) {
    refusal->refused = NULL;
    relocation all = {.operation = "attach", .object = object, .target = target};
    if (!relocation_lock(&all))
        return not_attached(&all);
    choose_companion(&all);
    nd_origin *spare = NULL;
    nd_status status = admit(&all, refusal);
    if (status == ND_OK) {
        settle(&all, all.companion, &spare);
        settle(&all, object, &spare);
    }
    relocation_unlock(&all);
    nd__origin_discard(spare);
    return status;
}

typedef struct refused_attach {
    nd_pressure pressure;
    nd_object *object;
} refused_attach;

/// From the beginning: what ran in between may have moved the object.
static nd_status attach_again(nd_pressure *pressure) {
    nd_status status = attach(((refused_attach *)pressure)->object, pressure->manager, pressure);
    return status == ND_ERROR_QUOTA && !pressure->refused ? ND_ERROR_STATE : status; // a cap
}

nd_status nd_attach(const nd_manager *manager, const void *handle) {
    nd_status status = check_attach("attach", manager, handle);
    if (status != ND_OK)
        return status;
    refused_attach again = {
        .pressure = {.operation = "attach",
                     .manager = (nd_manager *)(uintptr_t)manager,
                     .attempt = attach_again},
        .object = (nd_object *)(uintptr_t)handle,
    };
    nd_pressure *pressure = &again.pressure;
    status = attach(again.object, pressure->manager, pressure);
    if (!pressure->refused)
        return status;
    status = nd__pressure_walk(pressure, ND_ERROR_QUOTA);
    if (status == ND_OK)
        return ND_OK;
    if (pressure->refused)
        return nd__pressure_error(pressure, ND_ERROR_QUOTA);
    return attach(again.object, pressure->manager, pressure); // what else refuses says so itself
}

static void lend(const relocation *all, nd_object *object, nd_origin **spare) {
    nd_manager *from = object ? home_in(all, object)->manager : all->target;
    if (from != all->target)
        transfer(all, object, nd__origin_lend(object, from, all->target, spare));
}

nd_status nd_temp_attach(const nd_manager *manager, const void *handle) {
    nd_status status = check_attach("temp_attach", manager, handle);
    if (status != ND_OK)
        return status;
    relocation all = {
        .operation = "temp_attach",
        .object = (nd_object *)(uintptr_t)handle,
        .target = (nd_manager *)(uintptr_t)manager,
    };
    nd_origin *spare = NULL;
    if (!nd__origin_reserve(&spare, may_be_accompanied(all.object) ? 2 : 1)) {
        nd__origin_discard(spare);
        return nd__error(ND_ERROR_OUT_OF_MEMORY,
                         "temp_attach: no memory to remember where a %s came from",
                         nd_get_type_name(handle));
    }
    if (relocation_lock(&all)) {
        choose_companion(&all);
        status = admit(&all, NULL);
        if (status == ND_OK) {
            lend(&all, all.companion, &spare);
            lend(&all, all.object, &spare);
        }
        relocation_unlock(&all);
    } else {
        status = not_attached(&all);
    }
    nd__origin_discard(spare);
    return status;
}

bool nd__attach_return(nd_object *object, nd_manager *from) {
    nd_origin *spare = NULL;
    bool here = true, returned = false;
    while (here && !returned) {
        nd_manager *target = nd__origin_get(object);
        if (!target)
            break;
        // A tensor and its storage go back one after the other, each its own way: another thread may
        // be closing the tensor, so the storage cannot be reached from here.
        relocation all = {.operation = "return", .object = object, .alone = true, .target = target};
        here = relocation_lock(&all);
        if (here) {
            bool away;
            here = all.home->manager == from && (nd__flags(object) & ND__TEMP);
            // Where it goes may have closed between the two looks.
            returned = here && nd__origin_return(object, target, &away, &spare);
            if (returned) {
                charge(&all, NULL);
                transfer(&all, object, away);
            }
            relocation_unlock(&all);
        }
        nd_object_release(target);
    }
    nd__origin_discard(spare);
    return returned;
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

static nd_shard *shard_to_move_to(nd_manager *ancestor, bool remembered) {
    return remembered ? nd__shard_for_escapes(ancestor) : &ancestor->first;
}

/// Moves what is in one shard of a closing manager to an ancestor. Adds up what that was.
static void move_shard(nd_shard *from, nd_manager *ancestor, bool past, bool remembered,
                       site_count *sites, uint64_t *objects, uint64_t *bytes) {
    nd_shard *target = shard_to_move_to(ancestor, remembered);
    nd__lock_pair(from, target);
    while (!past && (!nd__manager_open(target->manager) || target->retired)) {
        bool open = nd__manager_open(target->manager);
        nd__unlock_pair(from, target);
        target = open ? &target->manager->first
                      : shard_to_move_to(nd__nearest_open(target->manager->parent), remembered);
        nd__lock_pair(from, target);
    }
    const nd_manager *stop = past ? from->manager->parent : target->manager;
    uint64_t moved = from->count.live;
    for (int kind = 0; kind < ND_DEVICE_KIND_COUNT; kind++) {
        uint64_t own = from->count.own_bytes[kind];
        bytes[kind] += own;
        if (own)
            nd__discharge_path(from->manager, stop, (nd_device_kind)kind, own);
    }
    for (int list = 0; list < 2 && sites; list++)
        for (nd_object *object = from->lists[list].first; object; object = object->next)
            count_site(sites, object->site);
    nd__shard_move(from, target);
    target->count.arrived += moved;
    from->count.departed += moved;
    from->count.escaped += moved;
    *objects += moved;
    nd__unlock_pair(from, target);
}

uint64_t nd__move_all(nd_manager *from, nd_manager *target, bool past, bool remembered,
                      uint64_t *bytes, nd_close_report *report) {
    site_count sites[SITE_SLOTS] = {0};
    uint64_t moved = 0;
    for (nd_shard *shard = nd__first_shard(from); shard; shard = nd__next_shard(shard))
        move_shard(shard, target, past, remembered, report ? sites : NULL, &moved, bytes);
    if (report)
        report_sites(sites, report);
    return moved;
}
