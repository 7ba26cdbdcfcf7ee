// One collection: the memory of its passes, and the passes over a set of candidates. For look.c (the
// gate around them), collect.c (what happens then), cycles.c and forecast.c (explanation).
//
//   candidate   a tracked object in the set; object->gc_index is its place in `objects`, which is
//   trusted only when
//               objects[gc_index] is the object, so that stale indices need no cleaning
//   word        an object's count word, read in pass 1 before its edges
//   internal    how many edges to it came from the set; where nothing changes (still) and it is not
//               known yet whether all is garbage, so many less its count
//   live        held from outside (count above internal), or reached from one that is
//   garbage     the rest: found dead together
//   settled     objects[0 ... settled): garbage that was found, rechecked and marked before the rest
//               was looked at, while it was in the cache
#ifndef ND_LIB_GC_COLLECTION_H
#define ND_LIB_GC_COLLECTION_H
#include "lib/base/atomics.h"
#include "lib/base/clock.h"
#include "lib/manager/manager.h"
#include "lib/object/object.h"
#include "lib/object/watch.h"
#include <nd/gc.h>

/// What there was among objects that were marked as dying.
typedef struct nd__marked {
    uint32_t flags;   ///< any of them had
    bool unfinalized; ///< one has a finalizer that has not run
} nd__marked;

/// How far objects that are met one after the other lie apart.
typedef struct nd__distance {
    intptr_t last, usual;
} nd__distance;

typedef struct nd_collection {
    nd_object **objects;
    uint64_t *words;
    uint32_t *internal;
    uint32_t *stack; ///< for marking; every candidate is pushed at most once
    uint8_t *live;
    size_t count, capacity;
    size_t stacked; ///< entries of the stack
    size_t settled;
    bool settles;      ///< what has been read is settled whenever it is closed under its edges
    bool contradicted; ///< an edge to what was settled came up later: nothing stays settled
    size_t
        expected; ///< tracked objects of the managers: with so many candidates, there are no more
    bool alone;   ///< the process had one thread when the gate closed
    bool still;   ///< and its signals wait: what is read does not change until the gate opens
    nd__marked marked;                         ///< then: what is marked already, and not settled
    uint64_t began_ns;                         ///< when the gate began to close
    uint64_t leave_ns;                         ///< from then on a look at once is too late
    size_t bytes;                              ///< of the block that the arrays are in
    bool any_weak, any_finalizer, any_watched; ///< among the garbage
    bool full;      ///< discovery ran out of capacity or time, or is still no more
    bool partly;    ///< what finds no room is left out; it counts as live
    bool missed;    ///< some of a shard was not found; it counts as live
    bool late;      ///< of time: nothing was decided
    bool exact;     ///< what is garbage when it begins is to be found
    bool elsewhere; ///< and other threads had something to destroy then (dead.h)
    bool waits;     ///< for that, once
    bool unclear;   ///< that may be what holds what lives: unless it waited, nothing was decided
    uint64_t patient_until_ns; ///< when it stops waiting; 0: it has not begun
    /// Of another manager, `above`, whose latest tracked objects are candidates as well, or NULL.
    nd_shard *escaped;
    nd_manager *above;
    size_t recent; ///< how many of those
    nd__distance distance;
    uint64_t id;        ///< of the managers whose tracked objects are the set
    uint32_t held_here; ///< references that the collection itself holds on each candidate: 0 or 1
    uint64_t pause_ns;  ///< how long the gate may be closed at a time; 0: as long as it takes
    nd_gc_report report;
    nd_gc_mode mode;
    char broken_name[64]; ///< type of the first object whose traverse reports too many edges
} nd_collection;

/// So many objects at least are settled together: what the cache of a core holds. Tests make it
/// smaller.
extern size_t nd__collection_batch;

/// From so many objects on signals wait, in a process with one thread, until they have been looked
/// at: that costs two calls of the system. Tests make it smaller.
extern size_t nd__collection_still_from;

/// How many objects phase 2 may visit beyond the set: enough for the graph of a step, flat in the
/// size of a model that a survivor points into.
enum { ND__PHASE2_BUDGET = 1024 };

/// A walk over a shard whose place is lost, because the object it rests on has moved away, begins
/// so often.
enum { ND__STARTS = 64 };

/// Two looks at a word may not be farther apart, lest its version wrap around unseen: 2^32 retains
/// of one object, each with its release, are as many pairs of locked instructions, and take more
/// than three times that, from however many threads. Tests make it smaller.
extern uint64_t nd__collection_limit_ns;

/// Whether a word that is what it was when the gate closed was so all the time. While the process
/// has one thread nobody else writes it, however long this takes.
static inline bool nd__collection_in_time(const nd_collection *collection) {
    return (collection->alone && nd__atomic_single_threaded()) ||
           nd__clock_now_ns() - collection->began_ns < nd__collection_limit_ns;
}

/// How many candidates phase 2 may extend the set to.
static inline size_t nd__collection_most_extended(const nd_collection *collection) {
    const size_t room = collection->capacity - collection->count;
    return collection->count + (room < ND__PHASE2_BUDGET ? room : ND__PHASE2_BUDGET);
}

/// Memory for `capacity` candidates, in one block; false when there is none. Grows an empty or
/// freed collection.
bool nd__collection_reserve(nd_collection *collection, size_t capacity);
/// The same for a part of them, as large as there is memory for; false when not even the process's
/// reserve has enough for one that is worth it.
bool nd__collection_reserve_part(nd_collection *collection, size_t capacity);
void nd__collection_free(nd_collection *collection);

/// Counts an object whose edges do not add up: its type, or one that points to it, reports other
/// edges than it clears. Such an object is kept; the first one's type is named in the error.
void nd__collection_note_broken(nd_collection *collection, const nd_object *object);

/// Marks garbage number `index` as dying; nobody else can reach it. `word` is its count word.
static inline void nd__collection_mark_dying(nd_collection *collection, nd_object *object,
                                             size_t index, uint64_t word) {
    uint32_t flags = nd__object_flags(object) & ~(uint32_t)ND__SUSPECT;
    nd__atomic_store(&object->flags, flags | ND__DYING, relaxed);
    collection->any_weak |= (flags & ND__HAS_WEAK) != 0;
    collection->any_watched |= nd__watch_includes(word);
    collection->any_finalizer |= object->type->finalize && !(flags & ND__FINALIZED);
    object->gc_index = (uint32_t)index;
}

/// So far ahead of what is looked at memory is fetched.
enum { ND__FETCH_AHEAD = 96 };
/// Behind a line of the cache the next one.
enum { ND__FETCH_LINE = 64 };

/// Has the processor fetch a header that comes soon behind number `index`.
static inline void nd__collection_prefetch(nd_object *const *objects, size_t count, size_t index) {
    if (index + ND__FETCH_AHEAD < count)
        __builtin_prefetch(objects[index + ND__FETCH_AHEAD], 1);
}

/// The same with what follows the header: edges.
static inline void nd__collection_prefetch_whole(nd_object *const *objects, size_t count,
                                                 size_t index) {
    if (index + ND__FETCH_AHEAD < count) {
        __builtin_prefetch(objects[index + ND__FETCH_AHEAD], 1);
        __builtin_prefetch((const char *)objects[index + ND__FETCH_AHEAD] + ND__FETCH_LINE, 1);
    }
}

/// True when the object is a candidate of this collection.
static inline bool nd__collection_has(const nd_collection *collection, const nd_object *object) {
    return object->gc_index < collection->count && collection->objects[object->gc_index] == object;
}

static inline void nd__collection_traverse(const nd_object *object, nd_visitor *visitor) {
    nd__object_traverse(object, visitor);
}

static inline uint64_t nd__collection_word(const nd_collection *collection, size_t index) {
    return nd__atomic_load(&collection->objects[index]->word, acquire);
}

/// Marks candidate number `index` as live, once, and puts it on the stack, for what it reaches.
static inline void nd__collection_let_live(nd_collection *collection, size_t index) {
    if (collection->live[index])
        return;
    collection->live[index] = 1;
    collection->stack[collection->stacked++] = (uint32_t)index;
}

/// Lets live what has a count that the edges from inside and the collection itself do not explain,
/// but not yet what that reaches. Not what comes before number `from`.
void nd__collection_decide(nd_collection *collection, size_t from);

/// Lets live what lives not yet and whose word is not what it was, but not yet what that reaches.
/// The same.
void nd__collection_verify(nd_collection *collection, size_t from);

// All of the following run inside the closed gate.

/// Appends an object; the capacity must allow it.
static inline void nd__collection_add(nd_collection *collection, nd_object *object) {
    size_t index = collection->count++;
    object->gc_index = (uint32_t)index;
    collection->objects[index] = object;
    collection->internal[index] = 0;
    collection->live[index] = 0;
}

/// Pass 1 of phase 1, which finds its candidates as it goes: the tracked objects of the managers
/// (marked with nd_manager.collection = collection->id), oldest first, each followed by what it
/// points to. Then decides which are live. Returns the number of garbage candidates; *ret_room is
/// false, and nothing was decided, when the capacity did not suffice, or (collection->late) the
/// time.
size_t nd__collection_discover(nd_collection *collection, nd_manager *const *managers, size_t count,
                               bool *ret_room);
/// Nothing is settled any more.
void nd__collection_unsettle(nd_collection *collection);
/// Pass 1 over the set as it is, nothing of which is settled.
size_t nd__collection_examine(nd_collection *collection);
/// Appends what live candidates reach outside the set, breadth first, ND__PHASE2_BUDGET objects and
/// no more than there is capacity for. Returns how many.
size_t nd__collection_extend(nd_collection *collection);
/// Pass 2: garbage whose word has changed, and all it reaches, is live after all. Returns the
/// number of garbage left.
size_t nd__collection_recheck(nd_collection *collection);
#endif
