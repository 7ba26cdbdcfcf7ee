// Weak references.
//
// Every weak reference is an object of its own, linked into its target's list. The newest of a list
// is in a table by the target's address, because few objects ever have one. The table has parts,
// each with its lock, which guards the lists and `target` of its references, too; the part is
// chosen by the address, which a reference remembers unchanged. A target clears its list before its
// memory goes, under that lock; so under the lock a target that is not NULL is valid memory, and a
// compare-and-swap on its count tells whether it is alive. Upgrades pass the gate, so none happens
// while the collector decides, and one of a member of the garbage it found fails.
#include "lib/object/weak.h"
#include "lib/base/alloc.h"
#include "lib/base/atomics.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "lib/object/user_code.h"
#include <string.h>

struct nd_weak {
    nd_object header;
    uintptr_t address;        ///< of the target, for the choice of the lock
    nd_object *target;        ///< not an edge; NULL once dead
    nd_weak *previous, *next; ///< of the same target, newest first
    /// Of the newest: the next one in its place of the table, and what points to this one there.
    nd_weak *following, **link;
    void (*callback)(void *data);
    void *data;
};

enum { TABLE_BITS = 6, FIRST_BITS = 10, TABLES = 1 << TABLE_BITS };

/// One part of the table, which is doubled when it has more targets than places, and begins anew
/// with the last one.
typedef struct weak_table {
    nd_lock lock;
    unsigned bits;    ///< of a place's number, where it was doubled
    size_t count;     ///< targets
    nd_weak **places; ///< NULL: those of first_places
} weak_table;
static weak_table tables[TABLES];
static nd_weak *first_places[TABLES][1 << FIRST_BITS];
ND__FORK_LOCKS(weak_locks, ND__FORK_SINGLE, &tables[0].lock, TABLES, sizeof *tables);

static uint64_t hash(uintptr_t address) {
    return (address >> 6) * UINT64_C(0x9E3779B97F4A7C15);
}

static weak_table *table_of(uintptr_t address) {
    return &tables[hash(address) >> (64 - TABLE_BITS)];
}

static nd_lock *lock_of(uintptr_t address) {
    return &table_of(address)->lock;
}

static nd_weak **place_of(weak_table *table, uintptr_t address) {
    nd_weak **places = table->places ? table->places : first_places[table - tables];
    const unsigned bits = table->places ? table->bits : FIRST_BITS;
    return &places[hash(address) << TABLE_BITS >> (64 - bits)];
}

/// The newest weak reference to a target, or NULL.
static nd_weak *newest_of(const nd_object *target) {
    nd_weak *weak = *place_of(table_of((uintptr_t)target), (uintptr_t)target);
    while (weak && weak->target != target)
        weak = weak->following;
    return weak;
}

static void put_into_place(weak_table *table, nd_weak *newest) {
    nd_weak **place = place_of(table, newest->address);
    newest->following = *place;
    newest->link = place;
    if (*place)
        (*place)->link = &newest->following;
    *place = newest;
}

/// Where there is no memory for it the table stays as it is, which costs time alone.
static void double_table(weak_table *table) {
    nd_weak **first = first_places[table - tables];
    nd_weak **old = table->places ? table->places : first;
    const unsigned bits = table->places ? table->bits : FIRST_BITS;
    nd_weak **wider = nd__alloc_zeroed(((size_t)2 << bits) * sizeof *wider);
    if (!wider)
        return;
    table->places = wider;
    table->bits = bits + 1;
    for (size_t i = 0; i < (size_t)1 << bits; i++)
        for (nd_weak *weak = old[i], *next; weak; weak = next) {
            next = weak->following;
            put_into_place(table, weak);
        }
    if (old == first)
        memset(first, 0, sizeof first_places[0]);
    else
        nd__alloc_free(old);
}

static void table_insert(nd_weak *newest) {
    weak_table *table = table_of(newest->address);
    const unsigned bits = table->places ? table->bits : FIRST_BITS;
    if (table->count >= (size_t)1 << bits)
        double_table(table);
    put_into_place(table, newest);
    table->count++;
}

static void table_remove(nd_weak *newest) {
    weak_table *table = table_of(newest->address);
    *newest->link = newest->following;
    if (newest->following)
        newest->following->link = newest->link;
    if (--table->count == 0 && table->places) {
        nd__alloc_free(table->places);
        table->places = NULL;
    }
}

static void link_weak(nd_weak *weak, nd_object *target) {
    weak->target = target;
    weak->next = newest_of(target);
    if (weak->next) {
        table_remove(weak->next);
        weak->next->previous = weak;
    }
    table_insert(weak);
}

static void unlink_weak(nd_weak *weak) {
    if (weak->previous) {
        weak->previous->next = weak->next;
    } else {
        table_remove(weak);
        if (weak->next)
            table_insert(weak->next);
    }
    if (weak->next)
        weak->next->previous = weak->previous;
    weak->target = NULL;
}

static void weak_destroy(nd_object *self) {
    nd_weak *weak = (nd_weak *)self;
    nd_lock *lock = lock_of(weak->address);
    nd__lock_acquire(lock);
    if (weak->target)
        unlink_weak(weak);
    nd__lock_release(lock);
}

static const nd_type weak_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "weak",
    .flags = ND_TYPE_GREEN,
    .destroy = weak_destroy,
};

nd_weak *nd_weak_new(const void *handle) {
    if (!handle) {
        nd__error_null("weak_new", "object");
        return NULL;
    }
    nd_object *object = (nd_object *)(uintptr_t)handle;
    nd_weak *weak = (nd_weak *)nd__object_new(&weak_type, sizeof *weak);
    if (!weak)
        return NULL;
    weak->address = (uintptr_t)object;
    if (!nd__object_publish_or_discard("weak_new", weak))
        return NULL;
    nd_lock *lock = lock_of(weak->address);
    nd__lock_acquire(lock);
    nd__atomic_set_flags(&object->flags, ND__HAS_WEAK);
    link_weak(weak, object);
    nd__lock_release(lock);
    return weak;
}

static nd_object *upgrade(const char *operation, const nd_weak *weak) {
    if (!weak) {
        nd__error_null(operation, "weak");
        return NULL;
    }
    if (nd__object_is_closed(weak)) {
        nd__error(ND_ERROR_CLOSED, "%s: the weak reference is closed", operation);
        return NULL;
    }
    nd_lock *lock = lock_of(weak->address);
    nd__gate_enter_to_clear();
    nd__lock_acquire(lock);
    nd_object *target = weak->target;
    if (target && !nd__object_try_retain(target))
        target = NULL;
    nd__lock_release(lock);
    nd__gate_leave();
    return target;
}

nd_object *nd_weak_get(const nd_weak *weak) {
    return upgrade("weak_get", weak);
}

nd_tensor *nd_weak_get_tensor(const nd_weak *weak) {
    nd_object *target = upgrade("weak_get_tensor", weak);
    if (target && !(target->type->flags & ND__TYPE_TENSOR)) {
        nd_object_release(target);
        return NULL;
    }
    return (nd_tensor *)target;
}

nd_status nd_weak_set_callback(nd_weak *weak, void (*callback)(void *data), void *data) {
    if (!weak)
        return nd__error_null("weak_set_callback", "weak");
    if (nd__object_is_closed(weak))
        return nd__error(ND_ERROR_CLOSED, "weak_set_callback: the weak reference is closed");
    nd_lock *lock = lock_of(weak->address);
    nd__lock_acquire(lock);
    bool alive = weak->target != NULL;
    if (alive) {
        weak->callback = callback;
        weak->data = data;
    }
    nd__lock_release(lock);
    return alive ? ND_OK
                 : nd__error(ND_ERROR_STATE, "weak_set_callback: the target is dead already");
}

void nd__weak_clear(nd_object *object) {
    nd_lock *lock = lock_of((uintptr_t)object);
    for (;;) {
        nd__lock_acquire(lock);
        nd_weak *weak = newest_of(object);
        if (!weak) {
            nd__lock_release(lock);
            return;
        }
        // One that was released where it could not be destroyed (callback.h) has none any more.
        void (*callback)(void *) = nd_get_count(weak) ? weak->callback : NULL;
        void *data = weak->data;
        unlink_weak(weak);
        nd__lock_release(lock);
        if (callback) {
            ND__UNCANCELLED;
            nd_user_code code;
            nd__user_code_begin(&code);
            callback(data);
            nd__user_code_end(&code);
        }
    }
}
