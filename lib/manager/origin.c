// Where temp-attached objects came from: a chain of records per object, the latest first.
//
// Invariants: a chain names no manager twice in a row, and nobody lends an object to a manager that
// its chain names: the object goes back there, and the chain ends before it. So a chain is no
// longer than there are open managers, however often an object is lent. A record names a manager
// without keeping it alive. When that manager closes, the record goes, as the object would no
// longer be sent there; only the oldest one is forwarded to the nearest open ancestor. One lock
// guards all of it: the operation is rare. Order: locks of shards may be held when it is taken, and
// none is taken inside.
#include "lib/manager/origin.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/base/seam.h"
#include "lib/manager/manager.h"
#include "lib/object/object.h"

struct nd_origin {
    nd_object *object;
    nd_manager *manager;
    nd_origin *older, *newer;                 ///< chain of the object; `older` links spare ones
    nd_origin *previous, *next;               ///< records that name the same manager
    nd_origin *previous_object, *next_object; ///< newest records of objects, for lookup by object
};

enum { FIRST_BITS = 8 };
static nd_lock origin_lock;
ND__FORK_LOCK(ND__FORK_ORIGINS, origin_lock);
static nd_origin *first_buckets[1 << FIRST_BITS];
// Newest record of each object, by address. The table doubles when there are more records than
// buckets, and stays.
static nd_origin **buckets = first_buckets;
static uint32_t bits = FIRST_BITS;
static uint64_t in_use;         // records
static _Atomic bool is_crowded; // more than buckets

static nd_origin **bucket(const nd_object *object) {
    return &buckets[((uintptr_t)object >> 6) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - bits)];
}

static nd_origin *newest(const nd_object *object) {
    nd_origin *record = *bucket(object);
    while (record && record->object != object)
        record = record->next_object;
    return record;
}

static void bucket_insert(nd_origin *record) {
    nd_origin **head = bucket(record->object);
    record->previous_object = NULL;
    record->next_object = *head;
    if (*head)
        (*head)->previous_object = record;
    *head = record;
}

static void bucket_remove(nd_origin *record) {
    if (record->previous_object)
        record->previous_object->next_object = record->next_object;
    else
        *bucket(record->object) = record->next_object;
    if (record->next_object)
        record->next_object->previous_object = record->previous_object;
}

#ifndef ND_MODEL // where there are few, and it would be one more step
/// Doubles the table, if it is time and there is memory: else lookups take longer. No lock may be
/// held.
static void grow(void) {
    if (!nd__atomic_load(&is_crowded, relaxed))
        return;
    nd__lock_acquire(&origin_lock);
    uint32_t wanted = bits + 1;
    nd__lock_release(&origin_lock);
    nd_origin **old = nd__alloc_zeroed(sizeof *old << wanted);
    if (!old)
        return;
    nd__lock_acquire(&origin_lock);
    if (bits + 1 == wanted) { // nobody was faster
        nd_origin **larger = old;
        old = buckets;
        buckets = larger;
        bits = wanted;
        for (uint32_t i = 0; i < UINT32_C(1) << (wanted - 1); i++)
            for (nd_origin *record = old[i], *next; record; record = next) {
                next = record->next_object;
                bucket_insert(record);
            }
        nd__atomic_store(&is_crowded, in_use >> bits != 0, relaxed);
    }
    nd__lock_release(&origin_lock);
    if (old != first_buckets)
        nd__alloc_free(old);
}
#endif

static void name_manager(nd_origin *record, nd_manager *manager) {
    record->manager = manager;
    record->previous = NULL;
    record->next = manager->origins;
    if (manager->origins)
        manager->origins->previous = record;
    manager->origins = record;
}

static void unname_manager(nd_origin *record) {
    if (record->previous)
        record->previous->next = record->next;
    else
        record->manager->origins = record->next;
    if (record->next)
        record->next->previous = record->previous;
}

// ------------------------------------------------------------------------------------------ spares

static void spare_one(nd_origin *record, nd_origin **spare) {
    record->older = *spare;
    *spare = record;
}

bool nd__origin_reserve(nd_origin **spare, int count) {
#ifndef ND_MODEL
    grow();
#endif
    for (int i = 0; i < count; i++) {
        nd_origin *record = nd__seam_alloc_zeroed(sizeof *record);
        if (!record)
            return false;
        spare_one(record, spare);
    }
    return true;
}

void nd__origin_discard(nd_origin *spare) {
    while (spare) {
        nd_origin *next = spare->older;
        nd__alloc_free(spare);
        spare = next;
    }
}

// ---------------------------------------------------------------------------- chains, lock is held

static void push(nd_object *object, nd_manager *manager, nd_origin **spare) {
    nd_origin *record = *spare, *older = newest(object);
    *spare = record->older;
    record->object = object;
    record->older = older;
    record->newer = NULL;
    if (older) {
        older->newer = record;
        bucket_remove(older);
    }
    bucket_insert(record);
    name_manager(record, manager);
    if (++in_use >> bits)
        nd__atomic_store(&is_crowded, true, relaxed);
}

static void take_out(nd_origin *record, nd_origin **spare) {
    nd_origin *older = record->older, *newer = record->newer;
    unname_manager(record);
    if (older)
        older->newer = newer;
    if (newer) {
        newer->older = older;
    } else {
        bucket_remove(record);
        if (older)
            bucket_insert(older);
    }
    spare_one(record, spare);
    in_use--;
}

/// Takes out the newest records up to `last`, and what names its manager then.
static void cut(nd_origin *last, nd_origin **spare) {
    const nd_object *object = last->object;
    const nd_manager *manager = last->manager;
    nd_origin *older = last->older, *record;
    while ((record = newest(object)) != older)
        take_out(record, spare);
    while (record && record->manager == manager) {
        take_out(record, spare);
        record = newest(object);
    }
}

/// The record of the object that names the manager. Walks both lists that it is in, as either may
/// be long.
static nd_origin *find(const nd_object *object, const nd_manager *manager) {
    nd_origin *own = newest(object), *naming = manager->origins;
    for (; own && naming; own = own->older, naming = naming->next) {
        if (own->manager == manager)
            return own;
        if (naming->object == object)
            return naming;
    }
    return NULL;
}

/// Open, and not about to be destroyed by a thread that may not come to it before this one is done.
static bool lasts(const nd_manager *manager) {
    return nd__manager_open(manager) && nd_get_count(manager) > 0;
}

/// The newest origin that lasts, else the oldest; NULL when there is none.
static nd_origin *way_back(const nd_object *object) {
    nd_origin *record = newest(object);
    while (record && record->older && !lasts(record->manager))
        record = record->older;
    return record;
}

/// Where a record sends its object: the manager that it names, or the nearest ancestor that lasts.
static nd_manager *destination(const nd_origin *record) {
    nd_manager *manager = record ? record->manager : NULL;
    while (manager && !lasts(manager))
        manager = manager->parent;
    return manager;
}

// ----------------------------------------------------------------------------------------- objects

bool nd__origin_lend(nd_object *object, nd_manager *from, nd_manager *target, nd_origin **spare) {
    nd__lock_acquire(&origin_lock);
    nd_origin *known = find(object, target);
    // A manager forwards its records under this lock, after it stopped being open: one seen open
    // here will do so later.
    if (known)
        cut(known, spare);
    else if (!newest(object) || nd__manager_open(from))
        push(object, nd__manager_nearest_open(from), spare);
    bool away = newest(object) != NULL;
    nd__lock_release(&origin_lock);
    return away;
}

const nd_manager *nd__origin_peek(const nd_object *object) {
    nd__lock_acquire(&origin_lock);
    const nd_manager *manager = destination(way_back(object));
    nd__lock_release(&origin_lock);
    return manager;
}

nd_manager *nd__origin_get(const nd_object *object) {
    nd__lock_acquire(&origin_lock);
    nd_manager *manager;
    // The last handle of one that lasts may be released just now.
    while ((manager = destination(way_back(object))) && !nd__object_try_retain(&manager->header))
        ;
    nd__lock_release(&origin_lock);
    return manager;
}

bool nd__origin_return(nd_object *object, const nd_manager *target, bool *ret_away,
                       nd_origin **spare) {
    nd__lock_acquire(&origin_lock);
    nd_origin *record = way_back(object);
    bool still = record && destination(record) == target;
    if (still)
        cut(record, spare);
    *ret_away = newest(object) != NULL;
    nd__lock_release(&origin_lock);
    return still;
}

int nd__origin_copy(const nd_object *object, nd_object *other, int count, nd_origin **spare) {
    nd__lock_acquire(&origin_lock);
    int needed = 0;
    nd_origin *oldest = NULL;
    for (nd_origin *record = newest(object); record; record = record->older) {
        oldest = record;
        needed++;
    }
    if (needed <= count)
        for (const nd_origin *record = oldest; record; record = record->newer)
            push(other, record->manager, spare);
    nd__lock_release(&origin_lock);
    return needed;
}

void nd__origin_drop(nd_object *object, nd_origin **spare) {
    nd__lock_acquire(&origin_lock);
    nd_origin *record;
    while ((record = newest(object)))
        take_out(record, spare);
    nd__lock_release(&origin_lock);
}

void nd__origin_forget(nd_object *object) {
    nd_origin *spare = NULL;
    nd__origin_drop(object, &spare);
    nd__origin_discard(spare);
}

void nd__origin_forward(nd_manager *closed, nd_manager *outside) {
    nd_origin *spare = NULL, *record;
    nd__lock_acquire(&origin_lock);
    while ((record = closed->origins)) {
        if (record->older) {
            take_out(record, &spare);
        } else {
            unname_manager(record);
            name_manager(record, nd__manager_nearest_open(outside));
        }
    }
    nd__lock_release(&origin_lock);
    nd__origin_discard(spare);
}

uint64_t nd__origin_count(void) {
    nd__lock_acquire(&origin_lock);
    uint64_t count = in_use;
    nd__lock_release(&origin_lock);
    return count;
}

uint64_t nd__origin_longest(void) {
    uint64_t longest = 0;
    nd__lock_acquire(&origin_lock);
    for (uint32_t i = 0; i < UINT32_C(1) << bits; i++) {
        uint64_t length = 0;
        for (const nd_origin *record = buckets[i]; record; record = record->next_object)
            length++;
        longest = length > longest ? length : longest;
    }
    nd__lock_release(&origin_lock);
    return longest;
}
