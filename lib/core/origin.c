// Where temp-attached objects came from: a chain of records per object, the latest first.
//
// A record names a manager without keeping it alive. When that manager closes, its records are
// forwarded to its nearest open ancestor and marked, so that the chain can prefer an origin that is
// still open. One lock guards all of it: the operation is rare. Order: manager locks are never
// taken inside.
#include "lib/core/alloc.h"
#include "lib/core/error.h"
#include "lib/core/manager_internal.h"
#include "lib/core/pressure.h"

struct nd_origin {
    nd_object *object;
    nd_manager *manager;
    bool forwarded;                           ///< the original origin has closed
    nd_origin *older;                         ///< chain of the object
    nd_origin *previous, *next;               ///< records that name the same manager
    nd_origin *previous_object, *next_object; ///< newest records of objects, for lookup by object
};

enum { BUCKETS = 256 };
static nd_lock origin_lock;
static nd_origin *buckets[BUCKETS]; // newest record of each object, by address

static nd_origin **bucket(const nd_object *object) {
    return &buckets[((uintptr_t)object >> 6) * UINT64_C(0x9E3779B97F4A7C15) >> 56];
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

nd_status nd__origin_push(nd_object *object, nd_manager *origin) {
    nd_origin *record = nd__obtain_zeroed(sizeof *record);
    if (!record)
        return nd__error(ND_ERROR_OUT_OF_MEMORY,
                         "temp_attach: no memory to remember where a %s came from",
                         object->type->name);
    record->object = object;
    nd__lock(&origin_lock);
    // A manager forwards its records under this lock, after it stopped being open: one seen open
    // here will do so later.
    nd_manager *open = nd__nearest_open(origin);
    record->forwarded = open != origin;
    origin = open;
    record->older = newest(object);
    if (record->older)
        bucket_remove(record->older);
    bucket_insert(record);
    name_manager(record, origin);
    nd__unlock(&origin_lock);
    return ND_OK;
}

/// Takes the newest record of a chain out; the lock is held.
static nd_origin *take_newest(nd_origin *record) {
    bucket_remove(record);
    if (record->older)
        bucket_insert(record->older);
    unname_manager(record);
    return record;
}

nd_manager *nd__origin_pop(nd_object *object, bool *ret_more) {
    nd_manager *manager = NULL;
    nd_origin *done = NULL;
    nd__lock(&origin_lock);
    nd_origin *record = newest(object);
    while (record) {
        nd_origin *older = record->older;
        bool usable = !record->forwarded || !older;
        take_newest(record);
        record->older = done;
        done = record;
        if (usable) {
            // A manager that is being destroyed cannot be retained; its parent, which it still
            // holds, can.
            manager = record->manager;
            while (!nd__try_retain(&manager->header))
                manager = manager->parent;
            record = older;
            break;
        }
        record = older;
    }
    *ret_more = record != NULL;
    nd__unlock(&origin_lock);
    while (done) {
        nd_origin *next = done->older;
        nd__free(done);
        done = next;
    }
    return manager;
}

void nd__origin_forget(nd_object *object) {
    nd_origin *done = NULL;
    nd__lock(&origin_lock);
    for (nd_origin *record = newest(object); record;) {
        nd_origin *older = record->older;
        take_newest(record);
        record->older = done;
        done = record;
        record = older;
    }
    nd__unlock(&origin_lock);
    while (done) {
        nd_origin *next = done->older;
        nd__free(done);
        done = next;
    }
}

void nd__origin_forward(nd_manager *closed, nd_manager *ancestor) {
    nd__lock(&origin_lock);
    while (closed->origins) {
        nd_origin *record = closed->origins;
        unname_manager(record);
        record->forwarded = true;
        name_manager(record, ancestor);
    }
    nd__unlock(&origin_lock);
}
