// Storages that views borrow.
//
// A view that follows a base (its last edge) is a window onto the storage of that base, which it
// holds. So it has no count of the storage where the two are born in one shard: the base's is
// enough. How many borrow is a number of the base's that the shard's lock guards, which birth and
// death of the view take anyway; a count of its own would be two locked instructions.
//
// Invariants. `borrowers` of a base, and the base's edge to its storage while there are any, change
// under the lock of the shard that the base is in by then, the edge inside the gate. Until the last
// borrower is gone, the count of what they borrow is that of the base's edge, which stays though the
// base was closed (ENDING), or belongs to them all and stands in no edge, as the base has got another
// storage since (REPLACED). A borrower's edge to the storage is counted nowhere, and no visitor is
// shown it; its edge to the base outlives it. What follows a base is none itself.
#ifndef ND_LIB_MANAGER_BORROW_H
#define ND_LIB_MANAGER_BORROW_H
#include "lib/object/object.h"

// Of nd__stored.borrowers. Of a base: how many, and one of two marks while there are any.
enum {
    ND__BORROWERS_MOST = 0x3e, ///< what begins beyond them has a count of its own
    ND__BORROWERS_COUNT = 0x3f,
    ND__BORROWERS_REPLACED = 0x40,
    ND__BORROWERS_ENDING = 0x80,
    ND__BORROWS = 0xff ///< it is no base, but a borrower
};

static inline nd__stored *nd__borrow_base(const nd__stored *view) {
    return (nd__stored *)view->edges[ND__STORED_BASE];
}

/// Whether the storage of a view is its base's to hold. By whoever has the view, or inside the gate.
static inline bool nd__borrow_is_borrower(const nd__stored *view) {
    return nd__borrow_base(view) && view->borrowers == ND__BORROWS;
}

/// Of a private view, whose edge to a storage that cannot end meanwhile is not counted yet: borrows
/// it, or counts it. Under the lock of the shard that the view is about to enter.
static inline void nd__borrow_begin(const nd_shard *shard, nd__stored *view) {
    nd__stored *base = nd__borrow_base(view);
    nd_object *storage = nd__object_storage(&view->accounted.header);
    if (__builtin_expect(base && nd__object_shard(&base->accounted.header) == shard &&
                             base->borrowers < ND__BORROWERS_MOST &&
                             nd__object_storage(&base->accounted.header) == storage,
                         1)) {
        base->borrowers++;
        view->borrowers = ND__BORROWS;
        return;
    }
    nd__object_keep(storage);
}

/// A borrower of that storage is through with it. Inside the gate, since a closed base shows its
/// storage, and under the lock of the base's shard. Returns the storage if its count is the caller's
/// to release now, else NULL.
static inline nd_object *nd__borrow_end_locked(nd__stored *base, nd_object *storage) {
    const uint8_t left = --base->borrowers;
    if (__builtin_expect(!(left & ~ND__BORROWERS_COUNT) || (left & ND__BORROWERS_COUNT), 1))
        return NULL;
    base->borrowers = 0;
    if (left == ND__BORROWERS_ENDING)
        nd__atomic_store(&base->storage, NULL, release);
    return storage;
}

/// The same for who has no lock, inside the gate too.
nd_object *nd__borrow_end(nd__stored *view);

/// `clear` of an object that is no private one ends its edge to the storage, if it has one, and what
/// it borrows with that; what others borrow from it stays for them. Its edge to a base is cleared
/// after that. May be called again, as `clear` is.
void nd__borrow_clear(nd__stored *object);

/// A borrower gets a count of its own, as it is about to lose its base, or its storage.
void nd__borrow_settle(nd__stored *view);

/// Gives an object that is no borrower another storage, which no object had before but one that is
/// about to end, and retains that. Who has borrowed the one before keeps it.
void nd__borrow_replace(nd__stored *base, nd_object *storage);
#endif
