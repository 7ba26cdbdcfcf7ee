// What outlives its manager goes up to an ancestor, and is reported.
#include "lib/manager/escape.h"
#include "lib/manager/charge.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include <stdio.h>

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

/// Whether somebody has an object that survives a close: not what is dead, and waits to be
/// destroyed, nor what a collection on another thread has found to be garbage, and is about to
/// free.
static bool is_held(const nd_object *object) {
    return nd_get_count(object) > 0 && !(nd__object_flags(object) & ND__DYING);
}

/// Counts those of a shard that are held by their creation sites, and takes the others off what is
/// reported.
static void count_held(nd_shard *from, site_count *sites, uint64_t *objects, uint64_t *bytes) {
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

static nd_shard *shard_to_move_to(nd_manager *ancestor, bool remembered) {
    return remembered ? nd__shard_for_escapes(ancestor) : &ancestor->first;
}

/// Moves what is in one shard of a closing manager to an ancestor. Adds up what that was.
static void move_shard(nd_shard *from, nd_manager *ancestor, bool past, bool remembered,
                       site_count *sites, uint64_t *objects, uint64_t *bytes) {
    nd_shard *target = shard_to_move_to(ancestor, remembered);
    nd__shard_lock_pair(from, target);
    while (!past && (!nd__manager_open(target->manager) || target->retired)) {
        bool open = nd__manager_open(target->manager);
        nd__shard_unlock_pair(from, target);
        target =
            open ? &target->manager->first
                 : shard_to_move_to(nd__manager_nearest_open(target->manager->parent), remembered);
        nd__shard_lock_pair(from, target);
    }
    const nd_manager *stop = past ? from->manager->parent : target->manager;
    uint64_t moved = from->count.live;
    for (int kind = 0; kind < ND__KIND_PLACES; kind++) {
        uint64_t own = from->count.own_bytes[kind];
        bytes[kind] += own;
        if (own)
            nd__charge_return_path(from->manager, stop, (nd_device_kind)kind, own);
    }
    uint64_t held = moved;
    if (sites)
        count_held(from, sites, &held, bytes);
    nd__shard_move(from, target);
    target->count.arrived += moved;
    from->count.departed += moved;
    from->count.escaped += held;
    *objects += held;
    nd__shard_unlock_pair(from, target);
}

uint64_t nd__escape_all(nd_manager *from, nd_manager *target, bool past, bool remembered,
                        uint64_t *bytes, nd_close_report *report) {
    site_count sites[SITE_SLOTS] = {0};
    uint64_t moved = 0;
    for (nd_shard *shard = nd__shard_first(from); shard; shard = nd__shard_next(shard))
        move_shard(shard, target, past, remembered, report ? sites : NULL, &moved, bytes);
    if (report)
        report_sites(sites, report);
    return moved;
}
