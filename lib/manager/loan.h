// Storages that views borrow.
//
// A view that follows a base (its last edge) is a window onto the storage of that base, which it
// holds. So it has no count of the storage where the two are born in one shard: the base lends its
// own. What says so is a number of the base's that the shard's lock guards, which birth and death
// of the view take anyway; a count of its own would be two locked instructions.
//
// Invariants: `loans` of a base, and whether it ends the loan, change under the lock of the shard
// that the base is in by then. A base that lends keeps its edge to the storage, closed or not,
// until the last borrower is gone. A borrower's edge to the storage is counted nowhere, and no
// visitor is shown it; the edge to the base outlives it. What follows a base is none itself.
#ifndef ND_LIB_MANAGER_LOAN_H
#define ND_LIB_MANAGER_LOAN_H
#include "lib/object/object.h"

// Of nd__stored.loans.
enum {
    ND__LOANS_MOST = 0x7e,   ///< what begins beyond them has a count of its own
    ND__LOANS_ENDING = 0x80, ///< the base has given its storage up, and keeps it for its borrowers
    ND__LOANS_BORROWS = 0xff ///< it is no base, but a borrower
};

static inline nd__stored *nd__loan_base(const nd__stored *view) {
    return (nd__stored *)view->edges[ND__STORED_BASE];
}

/// Whether the storage of a view is its base's to hold. By whoever has the view, or inside the gate.
static inline bool nd__loan_is_borrower(const nd__stored *view) {
    return nd__loan_base(view) && view->loans == ND__LOANS_BORROWS;
}

/// Of a private view, whose edge to a storage that cannot end meanwhile is not counted yet: borrows
/// it, or counts it. Under the lock of the shard that the view is about to enter.
static inline void nd__loan_begin(const nd_shard *shard, nd__stored *view) {
    nd__stored *base = nd__loan_base(view);
    nd_object *storage = nd__object_storage(&view->accounted.header);
    if (__builtin_expect(base && nd__object_shard(&base->accounted.header) == shard &&
                             base->loans < ND__LOANS_MOST &&
                             nd__object_storage(&base->accounted.header) == storage,
                         1)) {
        base->loans++;
        view->loans = ND__LOANS_BORROWS;
        return;
    }
    nd__object_keep(storage);
}

/// A borrower is through with the storage. Under the lock of the base's shard. Returns the storage
/// if its count is the caller's to release now, else NULL.
static inline nd_object *nd__loan_return(nd__stored *base, nd_object *storage) {
    if (__builtin_expect(--base->loans != ND__LOANS_ENDING, 1))
        return NULL;
    base->loans = 0;
    if (nd__object_storage(&base->accounted.header) == storage) // else it has another one by now
        nd__atomic_store(&base->storage, NULL, release);
    return storage;
}

/// The same for who has no lock; the borrower holds its base, and gives up the loan.
nd_object *nd__loan_end(nd__stored *view);

/// `clear` of an object that is no private one ends its edge to the storage, if it has one: what it
/// borrowed or lends, and what it alone holds. Its edge to a base comes later.
void nd__loan_clear(nd__stored *object);

/// A borrower gets a count of its own, as it is about to lose its base, or its storage.
void nd__loan_settle(nd__stored *view);

/// Gives an object that is no borrower another storage, which it retains. Who has borrowed the one
/// before keeps that.
void nd__loan_replace(nd__stored *base, nd_object *storage);
#endif
