// What outlives its manager goes up to an ancestor, and is reported.
//
// An object that moves is told its new shard. What is more than a few objects goes to the
// ancestor's shard for what escaped, and when that manager closes, its shard is handed up as it is:
// of it and the one that the next ancestor has, the objects of the smaller one move into the larger
// one, and the managers exchange the two. So of n managers, one below the other, that are closed
// from the innermost outwards, each with survivors, none moves an object more than log n times.
#include "lib/manager/escape.h"
#include "lib/base/atomics.h"
#include "lib/base/thread.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include "lib/object/user_code.h"
#include <stdio.h>
#include <string.h>

enum { SITE_SLOTS = 64 };
typedef struct site_count {
    const nd_site *site;
    uint64_t count;
} site_count;

static void count_site(site_count *sites, const nd_site *site) {
    if (!site)
        return;
    for (int i = 0; i < SITE_SLOTS; i++) {
        if (!sites[i].site)
            sites[i].site = site;
        if (nd__object_same_site(sites[i].site, site)) {
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
        char *text = report->escaped_sites[row], count[32];
        const size_t room = sizeof report->escaped_sites[row];
        const int length =
            snprintf(count, sizeof count, " (%llu)", (unsigned long long)best->count);
        nd__object_print_site(text, room - (size_t)length, best->site);
        strcat(text, count);
        best->count = 0;
    }
}

/// Whether somebody has an object that survives a close: not what is dead, and waits to be
/// destroyed, nor what a collection on another thread has found to be garbage, and is about to
/// free.
static bool is_held(const nd_object *object) {
    return nd_get_count(object) > 0 && !(nd__object_flags(object) & ND__DYING);
}

/// Counts those of a shard that are held by their creation sites, and takes the others off what is
/// reported.
static void count_held(const nd_shard *from, site_count *sites, uint64_t *objects,
                       uint64_t *bytes) {
    for (int list = 0; list < 2; list++)
        for (nd_object *object = from->lists[list].first; object; object = object->next) {
            if (is_held(object)) {
                count_site(sites, object->site);
                continue;
            }
            const nd_accounted *account = nd__object_accounted(object);
            --*objects;
            if (account)
                bytes[account->kind] -= account->bytes;
        }
}

/// So many objects are more than a few.
#ifdef ND_MODEL
enum { MANY = 2 };
#else
enum { MANY = 32 };
#endif

/// What one manager lets go.
typedef struct escape {
    bool past, remembered; ///< as in nd__escape_all
    bool many;             ///< there are
    bool reported;         ///< of what is counted those that nobody holds are left out
    bool all_held;         ///< as far as this thread knows, nothing waits to be destroyed
    uint64_t objects;
    uint64_t *bytes;
    site_count sites[SITE_SLOTS];
} escape;

static nd_shard *shard_to_move_to(nd_manager *ancestor, const escape *all) {
    return all->remembered || all->many ? nd__shard_for_escapes(ancestor, all->past)
                                        : &ancestor->first;
}

static bool may_take(const nd_shard *target, const nd_manager *ancestor, const escape *all) {
    return target->manager == ancestor && !target->retired &&
           (all->past || nd__manager_open(ancestor));
}

/// Takes the bytes of a shard off the accounts up to the ancestor to which they go. Adds them and
/// the objects up; returns how many objects that were.
static uint64_t discharge(const nd_shard *from, const nd_manager *ancestor, bool one_by_one,
                          escape *all) {
    const nd_manager *stop = all->past ? from->manager->parent : ancestor;
    for (int kind = 0; kind < ND__KIND_PLACES; kind++) {
        uint64_t own = from->count.own_bytes[kind];
        all->bytes[kind] += own;
        if (own)
            nd__charge_return_path(from->manager, stop, (nd_device_kind)kind, own);
    }
    uint64_t counted = from->count.live;
    if (one_by_one)
        count_held(from, all->sites, &counted, all->bytes);
    all->objects += counted;
    return counted;
}

/// Moves what is in one shard of a closing manager to an ancestor, object by object.
static void move_shard(nd_shard *from, nd_manager *ancestor, escape *all) {
    nd_shard *target = shard_to_move_to(ancestor, all);
    nd__shard_lock_pair(from, target);
    while (!may_take(target, ancestor, all)) {
        bool retired = target->manager == ancestor && target->retired;
        nd__shard_unlock_pair(from, target);
        if (!all->past)
            ancestor = nd__manager_nearest_open(ancestor);
        target = retired ? &ancestor->first : shard_to_move_to(ancestor, all);
        nd__shard_lock_pair(from, target);
    }
    uint64_t moved = from->count.live, counted = discharge(from, ancestor, all->reported, all);
    nd__shard_move(from, target, all->remembered || target == &ancestor->first);
    target->count.arrived += moved;
    from->count.departed += moved;
    from->count.escaped += counted;
    nd__shard_unlock_pair(from, target);
}

/// Gives an ancestor a closing manager's shard for what escaped, together with what is in its own
/// one, which the manager gets, empty. Those two and the ancestor's first shard are locked.
static void exchange(nd_shard *shard, nd_shard *other, nd_manager *ancestor, escape *all) {
    nd_manager *from = shard->manager;
    uint64_t moved = shard->count.live;
    uint64_t counted =
        discharge(shard, ancestor, all->reported && (shard->sited || !all->all_held), all);
    nd__shard_begin_escapes(ancestor);
    nd__shard_move(other, shard, !all->remembered);
    // What a manager did stays its own; what lives goes with the objects.
    nd__counters did = shard->count;
    shard->count = other->count;
    other->count = did;
    nd__shard_move_counts(&other->count, &shard->count);
    shard->count.arrived += moved;
    other->count.departed += moved;
    other->count.escaped += counted;
    other->sited = false;
    nd__shard_give(shard, ancestor);
    nd__shard_give(other, from);
    nd__atomic_store(&from->escaped, other, release);
    nd__atomic_store(&ancestor->escaped, shard, release);
}

/// Hands up the shard for what escaped to a closing manager. False, and nothing has changed: there
/// is little in it, or less than in the ancestor's, or that takes none.
static bool hand_up(nd_shard *shard, nd_manager *ancestor, escape *all) {
    for (;;) {
        nd_shard *other = nd__atomic_load(&ancestor->escaped, acquire);
        nd_shard *locked[] = {shard, other, &ancestor->first};
        nd__shard_lock_all(locked, 3);
        bool stands = nd__atomic_load(&ancestor->escaped, relaxed) == other &&
                      (all->past || nd__manager_open(ancestor));
        uint64_t there = nd__atomic_load(&ancestor->escapes, relaxed) ? other->count.live : 0;
        bool larger = shard->count.live >= MANY && shard->count.live >= there;
        if (stands && larger && !nd__atomic_load(&ancestor->single, relaxed))
            exchange(shard, other, ancestor, all);
        bool done = shard->manager == ancestor;
        nd__shard_unlock(shard);
        nd__shard_unlock(other);
        nd__shard_unlock(&ancestor->first);
        if (stands)
            return done;
        if (!all->past)
            ancestor = nd__manager_nearest_open(ancestor);
    }
}

uint64_t nd__escape_all(nd_manager *from, uint64_t live, nd_manager *target, bool past,
                        bool remembered, uint64_t *bytes, nd_close_report *report) {
    if (live == 0) // and nothing comes to a closing manager
        return 0;
    const nd_thread *thread = nd__thread();
    escape all = {.past = past,
                  .remembered = remembered,
                  .many = live >= MANY,
                  .reported = report != NULL,
                  // A manager that ends is not closed by the callback of another object's end.
                  .all_held = !thread->collecting &&
                              (!nd__user_code_in_destruction(thread) || nd_get_count(from) == 0),
                  .bytes = bytes};
    nd_shard *escaped = nd__shard_of_escaped(from);
    if (escaped && hand_up(escaped, target, &all))
        escaped = NULL;
    for (nd_shard *shard = nd__shard_first(from); shard; shard = nd__shard_next(shard))
        if (!shard->for_escapes || escaped)
            move_shard(shard, target, &all);
    if (report)
        report_sites(all.sites, report);
    return all.objects;
}
