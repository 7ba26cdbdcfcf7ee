// The tree of managers, and what one is made of.
//
//   root (immortal, static)
//     shards: one, part of the manager; more of them once threads meet there too often (shard.c)
//       children: weak list; a child holds its parent strongly
//       lists[0]: green objects, lists[1]: tracked objects; weak, intrusive
//       counters of these objects
//       account: a part of what was charged
//     one more, for what escaped; handed up to the parent when much is in it (escape.c)
//
// What a shard holds is guarded by its lock. An object names its shard (`shard`), and that its
// manager. What escapes to a manager while the collector is on goes to a shard of its own, so that
// its latest arrivals are the front of a list; and whenever it is much. A thread always fills the same shard of a manager,
// so a list is in the order in which each thread made its objects; the first shard has the oldest
// ones. A manager that was ever capped keeps all its objects in the first shard, under whose lock
// the cap is exact.
//
// Memory of managers and shards is type-stable: it is recycled, never returned, so that a thread
// that read a stale object->shard may still take its lock, see under it that the object has moved,
// and try again.
//
// Two shards are locked in the order of their addresses (nd__shard_lock_pair). Nobody waits for the
// gate with a shard locked, releases an object there, or runs user code.
//
// Accounts: own_bytes is what objects attached here hold (its lock); what was charged here and
// below is the sum of the shards' `bytes` (atomic) and of `owned`, and is what a quota bounds. A
// charge goes to a manager and all its ancestors.
#ifndef ND_LIB_MANAGER_MANAGER_H
#define ND_LIB_MANAGER_MANAGER_H
#include "lib/base/atomics.h"
#include "lib/base/biased_lock.h"
#include "lib/base/kind.h"
#include "lib/object/object.h"
#include <nd/gc.h>
#include <nd/manager.h>

#define ND__MANAGER_NAME_SIZE 64

enum { ND__MANAGER_OPEN = 0, ND__MANAGER_CLOSING = 1, ND__MANAGER_CLOSED = 2 };
enum { ND__GREEN_LIST = 0, ND__TRACKED_LIST = 1 };

typedef struct nd_origin nd_origin;
typedef struct nd__memory_callback nd__memory_callback;

/// What happened to the objects of a shard, or of a manager. Every member is a uint64_t.
typedef struct nd__counters {
    /// Attached objects: all, tracked, temp-attached, and the others that a cap does not count.
    uint64_t live, tracked, temporary, uncapped;
    uint64_t created, arrived, departed, freed, collected, escaped;
    uint64_t freed_bytes;
    uint64_t own_bytes[ND__KIND_PLACES];
} nd__counters;

#define ND__LINE 128 ///< what processors share: two lines, which some fetch together

struct nd_shard {
    /// Biased to who made the manager, in its first shard alone.
    _Alignas(ND__LINE) nd_biased_lock lock;
    uint32_t waits; ///< how often the lock was found held (lock)
    /// Constant, also while the memory waits to be recycled, but of a shard for what escaped, whose
    /// manager changes under its lock: who has not locked that asks nd__manager_of_shard.
    nd_manager *manager;
    bool for_escapes; ///< constant
    // Guarded by lock.
    struct {
        nd_object *first, *last;
    } lists[2];
    nd_manager *children; ///< first child; siblings' links are guarded as well
    nd__counters count;
    bool retired; ///< the manager has a cap: objects go to the first shard
    bool sited;   ///< of one for what escaped: objects with a creation site were moved there
    // The account. A part may be negative: bytes are discharged by whoever frees them.
    _Atomic uint64_t bytes[ND__KIND_PLACES];
    _Atomic uint64_t seen[ND__KIND_PLACES]; ///< `bytes` when the peak was looked at
    /// Of the first shard: what the manager's owner has charged, which it alone writes, so without
    /// a locked instruction. Part of the account as `bytes` is.
    _Atomic uint64_t owned[ND__KIND_PLACES];
};
_Static_assert(offsetof(nd_shard, manager) == 32, "tools/gdb reads it");

/// Shards that lie one behind the other, for who locks all there are (manager_fork.c).
typedef struct nd__shard_range nd__shard_range;
struct nd__shard_range {
    nd_shard *first;
    size_t count;
    nd__shard_range *next;
};

struct nd_manager {
    nd_object header;
    // Of the memory, not of the manager that is in it.
    nd_manager *older;         ///< memory that was taken before this
    void *places;              ///< where it was made, and released last (checked.h), or NULL
    nd__shard_range ranges[3]; ///< the first shard; all others; `pocket`
    /// The shard for what escaped here: its own `pocket`, or that of another manager's memory which
    /// it was exchanged for. Changes under the locks of the two, and of the first shard.
    _Atomic(nd_shard *) escaped;
    // Read by all, seldom written.
    _Alignas(ND__LINE) _Atomic uint32_t state;
    _Atomic uint32_t shard_count; ///< 1 or nd__shard_limit(); never falls while the manager lives
    nd_shard *more;               ///< the second shard and on; kept for the next life
    _Atomic uint32_t escapes;     ///< 1: `escaped` is in use: what outlived managers below
    /// How many tracked objects escaped here at the last close below and at the one before it. (Two
    /// closes at a time may lose one of them.)
    _Atomic uint32_t recent[2];
    nd_manager *parent; ///< strong (but for the root); NULL for the root only
    uint32_t depth;     ///< root 0
    _Atomic int gc_mode;
    uint64_t edge_age;                     ///< when it was made (gate.h), constant
    _Atomic uint64_t inherited_mode;       ///< with its generation, as last found out (policy.c)
    _Atomic(struct nd_gc_domain *) domain; ///< its own collection policy (policy.c), or NULL
    uint64_t cap;                          ///< lock of the first shard
    _Atomic uint64_t quota[ND__KIND_PLACES];

    _Alignas(ND__LINE) _Atomic uint64_t peak_bytes[ND__KIND_PLACES];
    uint32_t owner; ///< number of the thread that made it; of the root, that of the first thread
    _Atomic uint32_t charger; ///< number of the thread that charged last, while there is one shard
    _Atomic uint32_t turns;   ///< how often that was another one than before
    _Atomic bool single; ///< was capped: never gets more shards. Written under the first one's lock
    _Atomic(const void *) closer; ///< the record of the thread that closes it
    nd_shard *siblings;           ///< the parent's shard whose child this is, constant
    nd_manager *previous_sibling, *next_sibling;
    uint64_t
        collection;     ///< id of the last collection that took its objects (collection lock, gate)
    nd_origin *origins; ///< temp-attach records that name this manager (origin lock)
    // While it is closed as one of those below another one, by the thread that does that:
    bool collects_above; ///< one between the two collects, and has to see what survives here
    _Atomic uint64_t carried[ND__KIND_PLACES]; ///< bytes of what went from below it past it
    bool below_top;                            ///< it is closed so: not the one above them all
    nd_manager *deeper; ///< the one below it that is closed now; also of the one above them all
    bool closes_last;   ///< somebody else was closing one below it when it began: see leave_tree()
    nd__memory_callback *memory_callback; ///< or NULL (its own lock, see pressure_callback.c)
    char name[ND__MANAGER_NAME_SIZE];
    nd_shard first;
    nd_shard pocket; ///< memory of a shard for what escaped
};

extern nd_manager nd__manager_root;
/// All memory of managers there is, newest first, linked by `older`; the root is the last.
extern _Atomic(nd_manager *) nd__manager_newest;
/// The manager that a shard belongs to, or did a moment ago.
static inline nd_manager *nd__manager_of_shard(const nd_shard *shard) {
    return nd__atomic_load((_Atomic(nd_manager *) *)(uintptr_t)&shard->manager, acquire);
}

/// The manager of an object; NULL when it is in none. Beside a thread that moves the object, one of
/// the two.
static inline nd_manager *nd__manager_of(const nd_object *object) {
    nd_shard *shard = nd__object_shard(object);
    return shard ? nd__manager_of_shard(shard) : NULL;
}

static inline bool nd__manager_open(const nd_manager *manager) {
    return nd__atomic_load(&((nd_manager *)(uintptr_t)manager)->state, acquire) == ND__MANAGER_OPEN;
}

/// The manager itself when open, else its nearest open ancestor (the root always is). The argument
/// must be valid memory that holds its parents: pinned, or locked with an object attached.
nd_manager *nd__manager_nearest_open(nd_manager *manager);

/// Children of a manager, the ones still alive, retained, appended to a growing array; false when
/// out of memory.
typedef struct nd__manager_array {
    nd_manager **items;
    size_t count, capacity;
} nd__manager_array;
/// manager and everything below it, each retained (the root too). Free with nd__manager_array_free.
/// Destroys first what callbacks of a device have released, so no lock may be held.
bool nd__manager_subtree(nd_manager *manager, nd__manager_array *array);
void nd__manager_array_free(nd__manager_array *array);
#endif
