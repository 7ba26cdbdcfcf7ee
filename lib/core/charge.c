// Byte accounts, quotas, and the byte-threshold trigger.
//
// Invariant: subtree_bytes of a manager with a quota never passes it. Where a path to the root has
// a quota anywhere, charges are decided under one lock: every quota is looked at before anything is
// added, so a request that fails never makes a neighbour that fits fail too. Without a quota on the
// path a charge is one relaxed addition per level.
#include "lib/core/collect.h"
#include "lib/core/error.h"
#include "lib/core/manager_internal.h"
#include "lib/core/thread.h"
#include <stdio.h>

static nd_lock quota_lock;

static void add(nd_manager *manager, nd_device_kind kind, uint64_t bytes) {
    uint64_t now = nd__fetch_add_relaxed(&manager->subtree_bytes[kind], bytes) + bytes;
    if (now > nd__load_relaxed(&manager->peak_bytes[kind]))
        nd__raise_to(&manager->peak_bytes[kind], now);
}

bool nd__charge_path(nd_manager *manager, const nd_manager *stop, nd_device_kind kind,
                     uint64_t bytes, nd_manager **ret_refused) {
    bool limited = false;
    for (nd_manager *at = manager; at != stop && !limited; at = at->parent)
        limited = nd__load_relaxed(&at->quota[kind]) != 0;
    if (!limited) {
        for (nd_manager *at = manager; at != stop; at = at->parent)
            add(at, kind, bytes);
        return true;
    }
    nd_manager *refused = NULL;
    nd__lock(&quota_lock);
    for (nd_manager *at = manager; at != stop && !refused && ret_refused; at = at->parent) {
        uint64_t quota = nd__load_relaxed(&at->quota[kind]);
        uint64_t live = nd__manager_bytes(at, kind);
        if (quota && (live > quota || bytes > quota - live))
            refused = at;
    }
    if (!refused)
        for (nd_manager *at = manager; at != stop; at = at->parent)
            add(at, kind, bytes);
    nd__unlock(&quota_lock);
    if (refused)
        *ret_refused = refused;
    return !refused;
}

void nd__discharge_path(nd_manager *manager, const nd_manager *stop, nd_device_kind kind,
                        uint64_t bytes) {
    for (nd_manager *at = manager; at != stop; at = at->parent)
        nd__fetch_add_relaxed(&at->subtree_bytes[kind], UINT64_C(0) - bytes);
}

/// What a message says about an accounted object. A copy: the object may die at any moment.
typedef struct holder {
    uint64_t bytes;
    const nd_site *site;
    char name[48];
} holder;
enum { SHOWN_HOLDERS = 3 };

/// Puts an object in its place among the largest ones, the largest first.
static void rank_holder(holder *largest, const nd_accounted *account) {
    int place = SHOWN_HOLDERS;
    while (place > 0 && account->bytes > largest[place - 1].bytes)
        place--;
    if (place == SHOWN_HOLDERS)
        return;
    for (int i = SHOWN_HOLDERS - 1; i > place; i--)
        largest[i] = largest[i - 1];
    largest[place] = (holder){.bytes = account->bytes, .site = account->header.site};
    snprintf(largest[place].name, sizeof largest->name, "%s", account->header.type->name);
}

/// "holders": the largest accounted objects of a manager, for an error message.
static void describe_holders(nd_manager *manager, nd_device_kind kind, char *buffer, size_t size) {
    holder largest[SHOWN_HOLDERS] = {0};
    buffer[0] = '\0';
    for (nd_shard *shard = nd__first_shard(manager); shard; shard = nd__next_shard(shard)) {
        nd__lock(&shard->lock);
        for (int list = 0; list < 2; list++)
            for (nd_object *object = shard->lists[list].first; object; object = object->next)
                if ((object->type->flags & ND__TYPE_ACCOUNTED) &&
                    ((const nd_accounted *)object)->kind == kind)
                    rank_holder(largest, (const nd_accounted *)object);
        nd__unlock(&shard->lock);
    }
    size_t used = 0;
    for (int i = 0; i < SHOWN_HOLDERS && largest[i].bytes && used < size; i++) {
        const nd_site *site = largest[i].site;
        used += (size_t)snprintf(buffer + used, size - used, "%s%s of %llu bytes", i ? ", " : "",
                                 largest[i].name, (unsigned long long)largest[i].bytes);
        if (site && used < size)
            used += (size_t)snprintf(buffer + used, size - used, " made at %s:%u", site->file,
                                     site->line);
    }
}

static nd_status quota_error(nd_manager *refused, nd_device_kind kind, uint64_t bytes) {
    static const char *const kinds[ND_DEVICE_KIND_COUNT] = {"cpu", "cuda", "fake"};
    char holders[320];
    describe_holders(refused, kind, holders, sizeof holders);
    return nd__error(
        ND_ERROR_QUOTA,
        "%llu %s bytes do not fit into manager %s: quota %llu, live %llu; its largest holders: %s",
        (unsigned long long)bytes, kinds[kind], refused->name,
        (unsigned long long)nd__load_relaxed(&refused->quota[kind]),
        (unsigned long long)nd__manager_bytes(refused, kind),
        holders[0] ? holders : "none of its own, all in managers below it");
}

nd_status nd__manager_charge(nd_manager *manager, nd_device_kind kind, uint64_t bytes) {
    nd__collect_allocated(manager, kind, bytes);
    nd_manager *refused;
    if (__builtin_expect(nd__charge_path(manager, NULL, kind, bytes, &refused), 1))
        return ND_OK;
    nd__manager_relieve(manager);
    if (nd__charge_path(manager, NULL, kind, bytes, &refused))
        return ND_OK;
    return quota_error(refused, kind, bytes);
}

void nd__manager_discharge(nd_manager *manager, nd_device_kind kind, uint64_t bytes) {
    nd__discharge_path(manager, NULL, kind, bytes);
}

nd_status nd_manager_set_quota(nd_manager *manager, nd_device_kind kind, uint64_t bytes) {
    if (!manager)
        return nd__error_null("manager_set_quota", "manager");
    if ((unsigned)kind >= ND_DEVICE_KIND_COUNT)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "manager_set_quota: device kind %d does not exist", (int)kind);
    nd__lock(&quota_lock);
    nd__atomic_store(&manager->quota[kind], bytes, relaxed);
    nd__unlock(&quota_lock);
    return ND_OK;
}
