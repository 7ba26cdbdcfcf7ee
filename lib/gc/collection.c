// The passes of trial deletion over a set of candidates.
#include "lib/gc/collection.h"
#include "lib/base/atomics.h"
#include "lib/base/clock.h"
#include "lib/base/reserve.h"
#include "lib/gc/held.h"
#include "lib/gc/steps.h"
#include "lib/gc/walk.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/object.h"
#include "lib/object/watch.h"
#include <stdio.h>
#include <string.h>

#if ND_COLLECT_EVERYWHERE
size_t nd__collection_batch = 1, nd__collection_still_from = 1;
#else
size_t nd__collection_batch = 2048, nd__collection_still_from = 4096;
#endif

uint64_t nd__collection_limit_ns = UINT64_C(8000000000);

/// Bytes for one candidate.
#define EACH (sizeof(nd_object *) + sizeof(uint64_t) + 2 * sizeof(uint32_t) + sizeof(uint8_t))

bool nd__collection_reserve(nd_collection *collection, size_t capacity) {
    nd__collection_free(collection);
    if (capacity > UINT32_MAX || capacity > SIZE_MAX / EACH)
        return false;
    size_t bytes = capacity * EACH;
    char *block = nd__reserve_take_large(&bytes);
    if (!block)
        return false;
    collection->bytes = bytes;
    collection->objects = (nd_object **)(void *)block;
    collection->words = (uint64_t *)(void *)(collection->objects + capacity);
    collection->internal = (uint32_t *)(void *)(collection->words + capacity);
    collection->stack = collection->internal + capacity;
    collection->live = (uint8_t *)(collection->stack + capacity);
    collection->capacity = capacity;
    collection->count = 0;
    return true;
}

bool nd__collection_reserve_part(nd_collection *collection, size_t capacity) {
    // What the reserve holds, less its own bookkeeping.
    const size_t least = (ND__RESERVE_BYTES - 4096) / EACH;
    bool reserved = false;
    while (!reserved && capacity > least) {
        capacity = capacity / 2 > least ? capacity / 2 : least;
        reserved = nd__collection_reserve(collection, capacity);
    }
    return reserved;
}

void nd__collection_free(nd_collection *collection) {
    nd__reserve_keep_large(collection->objects, collection->bytes);
    collection->objects = NULL;
    collection->bytes = 0;
    collection->count = collection->capacity = 0;
}

typedef struct set_visitor {
    nd_visitor visitor;
    nd_collection *collection;
    size_t most; ///< extending: candidates that there may be in the end
} set_visitor;

// ------------------------------------------------------------------------------------------ pass 1

static void visit_count(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    nd_collection *collection = ((set_visitor *)visitor)->collection;
    if (nd__collection_has(collection, target))
        collection->internal[target->gc_index]++;
}

static void visit_mark(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    nd_collection *collection = ((set_visitor *)visitor)->collection;
    if (nd__collection_has(collection, target))
        nd__collection_let_live(collection, target->gc_index);
}

/// Everything reached from what is on the stack is live.
static void let_reached_live(nd_collection *collection) {
    set_visitor marker = {.visitor = {visit_mark}, .collection = collection};
    while (collection->stacked)
        nd__collection_traverse(collection->objects[collection->stack[--collection->stacked]],
                                &marker.visitor);
}

/// From `from` on, the first that is not known to be live and whose word is not what it was in pass
/// 1; the count when there is none.
static size_t first_changed(const nd_collection *collection, size_t from) {
    size_t i = from;
    for (; i < collection->count; i++) {
        nd__collection_prefetch(collection->objects, collection->count, i);
        if (!collection->live[i] && nd__collection_word(collection, i) != collection->words[i])
            break;
    }
    return i;
}

static size_t count_garbage(const nd_collection *collection) {
    size_t garbage = 0;
    for (size_t i = 0; i < collection->count; i++)
        garbage += !collection->live[i];
    return garbage;
}

void nd__collection_note_broken(nd_collection *collection, const nd_object *object) {
    if (collection->report.broken_objects++ == 0)
        snprintf(collection->broken_name, sizeof collection->broken_name, "%s", object->type->name);
}

/// The word first, then the edges: a retain that happens in between changes the word that pass 2
/// reads.
static void read_candidate(nd_collection *collection, size_t index, nd_visitor *visitor) {
    nd_object *object = collection->objects[index];
    collection->words[index] = nd__atomic_load(&object->word, acquire);
    nd__collection_traverse(object, visitor);
}

/// True when edges from inside explain every count from `from` on, as they do where all is garbage;
/// false also when one is watched.
static bool all_explained(const nd_collection *collection, size_t from) {
    uint32_t unlike = 0, dead = 0;
    for (size_t i = from; i < collection->count; i++) {
        uint32_t count = (uint32_t)collection->words[i];
        unlike |= (count - collection->held_here) ^ collection->internal[i];
        dead |= count == 0;
    }
    return !(unlike | dead);
}

void nd__collection_decide(nd_collection *collection, size_t from) {
    for (size_t i = from; i < collection->count; i++) {
        uint32_t held = nd__watch_held(collection->words[i]) - collection->held_here;
        uint32_t internal = collection->internal[i];
        // What was published or moved meanwhile may have edges that the word was read too early
        // for, but not without a trace.
        if (__builtin_expect(internal > held, 0) &&
            nd__collection_word(collection, i) == collection->words[i])
            nd__collection_note_broken(collection, collection->objects[i]);
        // A candidate that has died since it was taken waits to be destroyed: its edges still hold.
        if (internal != held || (uint32_t)collection->words[i] == 0)
            nd__collection_let_live(collection, i);
    }
}

void nd__collection_verify(nd_collection *collection, size_t from) {
    for (size_t i = first_changed(collection, from); i < collection->count;
         i = first_changed(collection, i + 1))
        nd__collection_let_live(collection, i);
}

/// What has a count that edges from inside do not explain is live, with all it reaches.
static size_t decide(nd_collection *collection) {
    if (all_explained(collection, collection->settled))
        return collection->count;
    nd__collection_decide(collection, collection->settled);
    let_reached_live(collection);
    return count_garbage(collection);
}

size_t nd__collection_examine(nd_collection *collection) {
    set_visitor counter = {.visitor = {visit_count}, .collection = collection};
    collection->settled = collection->stacked = 0;
    memset(collection->internal, 0, collection->count * sizeof *collection->internal);
    memset(collection->live, 0, collection->count);
    for (size_t i = 0; i < collection->count; i++)
        read_candidate(collection, i, &counter.visitor);
    return decide(collection);
}

/// Whether an object may be a candidate: not another thread's garbage, nor what one holds that
/// looks in steps, whose place that one changes.
static inline bool may_join(const nd_object *object) {
    uint32_t flags = nd__object_flags_to_join(object);
    if (__builtin_expect((flags & (ND__TRACKED | ND__DYING | ND__SUSPECT)) == ND__TRACKED, 1))
        return !nd__held_has(object);
    return (flags & ND__TRACKED) && !nd__steps_is_condemned(flags) && !nd__held_has(object);
}

/// What was made one after the other lies side by side as a rule: has the processor fetch what lies
/// some steps further on than `object`, which is the next one after `last`. A step is what the
/// objects were apart when that was the same twice; now and then one of them lies elsewhere.
static inline void fetch_next(nd__distance *distance, const nd_object *last,
                              const nd_object *object) {
    intptr_t apart = (intptr_t)object - (intptr_t)last;
    if (apart == distance->last)
        distance->usual = apart;
    distance->last = apart;
    const char *next = (const char *)object + ND__FETCH_AHEAD * distance->usual;
    __builtin_prefetch(next, 1);
    __builtin_prefetch(next + ND__FETCH_LINE, 1);
}

/// To what is settled already only a type points that reports an edge which it does not hold.
static inline void note_edge_to_settled(nd_collection *collection, const nd_object *target) {
    if (__builtin_expect(nd__object_is_own_garbage(target), 0) &&
        nd__collection_has(collection, target)) {
        collection->internal[target->gc_index]++;
        collection->contradicted = true;
    }
}

/// As visit_discover, where what is usual is not so. Apart, so that the usual saves no registers.
__attribute__((cold, noinline)) static void discover_other(nd_collection *collection,
                                                           nd_object *target, bool included) {
    if (!may_join(target)) {
        note_edge_to_settled(collection, target);
    } else if (included && collection->count == collection->capacity) {
        collection->full = !collection->partly;
    } else if (included) {
        nd__collection_add(collection, target);
        collection->internal[target->gc_index]++;
    }
}

static void visit_discover(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    nd_collection *collection = ((set_visitor *)visitor)->collection;
    size_t index = target->gc_index, count = collection->count;
    nd_object **objects = collection->objects;
    // What has joined, and is not settled, may still: nothing else is marked inside the gate.
    if (index < count && objects[index] == target && index >= collection->settled) {
        collection->internal[index]++;
        return;
    }
    uint32_t flags = nd__object_flags_to_join(target);
    bool usual = (flags & (ND__TRACKED | ND__DYING | ND__SUSPECT)) == ND__TRACKED;
    nd_manager *manager = nd__manager_of(target);
    bool included = manager && manager->collection == collection->id;
    if (__builtin_expect(usual && included && !nd__held_running && count < collection->capacity,
                         1)) {
        // Who reads an edge has joined before.
        fetch_next(&collection->distance, objects[count - 1], target);
        target->gc_index = (uint32_t)count;
        objects[count] = target;
        collection->internal[count] = 1;
        collection->live[count] = 0;
        collection->count = count + 1;
        return;
    }
    discover_other(collection, target, included);
}

/// Marks as dying an object that nobody else reads, and takes note of what it was.
static inline void mark(nd_object *object, uint32_t flags, nd__marked *marked) {
    nd__atomic_store(&object->flags, (flags & ~(uint32_t)ND__SUSPECT) | ND__DYING, relaxed);
    marked->flags |= flags;
    if (__builtin_expect(object->type->finalize != NULL, 0))
        marked->unfinalized |= !(flags & ND__FINALIZED);
}

/// What is marked is garbage. None is watched: its count would be unexplained.
static void accept_marks(nd_collection *collection, const nd__marked *marked) {
    collection->any_weak |= (marked->flags & ND__HAS_WEAK) != 0;
    collection->any_finalizer |= marked->unfinalized;
    collection->settled = collection->count;
}

static void unmark(nd_collection *collection, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        nd__atomic_clear_flags(&collection->objects[i]->flags, ND__DYING);
}

// While nothing changes (collection->still), pass 1 marks each object at once as long as everything
// is garbage, and pass 2 does without the objects: `internal` is short of the count, so it is zero
// where edges explain that. (That of a watched object is too large for it, and what is dead is no
// candidate: nothing dies meanwhile, and what an edge is reported to has one.)

static inline void read_still(nd_collection *collection, size_t index, nd__marked *marked,
                              nd_visitor *visitor) {
    nd_object *object = collection->objects[index];
    uint32_t flags = nd__object_flags(object);
    collection->internal[index] -= (uint32_t)nd__atomic_load(&object->word, relaxed);
    mark(object, flags, marked);
    // Of what is closed others are shown a storage (nd__object_traverse), which is no candidate.
    if (object->type->traverse && !(flags & ND__CLOSED))
        object->type->traverse(object, visitor);
}

/// What was read so is as if it had been read by read_candidate.
static void unmark_still(nd_collection *collection, size_t from, size_t to) {
    bool alone = nd__atomic_single_threaded();
    for (size_t i = from; i < to; i++) {
        nd__collection_prefetch(collection->objects, to, i);
        nd_object *object = collection->objects[i];
        uint32_t flags = nd__object_flags(object) & ~(uint32_t)ND__DYING;
        if (__builtin_expect(alone, 1))
            nd__atomic_store(&object->flags, flags, relaxed);
        else
            nd__atomic_clear_flags(&object->flags, ND__DYING);
        collection->words[i] = nd__atomic_load(&object->word, relaxed);
        collection->internal[i] += (uint32_t)collection->words[i];
    }
}

/// Those that are not read yet, with those that are found thereby. A `traverse` may begin a thread,
/// though it should not: then nothing is still, and all is looked at anew.
static void read_all_still(nd_collection *collection, size_t *read, nd_visitor *visitor) {
    nd__marked marked = collection->marked;
    size_t i = *read;
    for (; i < collection->count && nd__atomic_single_threaded(); i++) {
        nd__collection_prefetch_whole(collection->objects, collection->count, i);
        read_still(collection, i, &marked, visitor);
    }
    *read = i;
    collection->marked = marked;
    collection->full |= !nd__atomic_single_threaded();
}

static void read_all(nd_collection *collection, size_t *read, nd_visitor *visitor) {
    if (collection->still && collection->settles) {
        read_all_still(collection, read, visitor);
        return;
    }
    while (*read < collection->count) {
        nd__collection_prefetch_whole(collection->objects, collection->count, *read);
        read_candidate(collection, (*read)++, visitor);
    }
}

/// Pass 2 over what is read and marked already.
static bool settle_still(nd_collection *collection) {
    size_t begin = collection->settled, end = collection->count;
    uint32_t unexplained = 0;
    for (size_t i = begin; i < end; i++)
        unexplained |= collection->internal[i];
    if (unexplained)
        unmark_still(collection, begin, end);
    else
        accept_marks(collection, &collection->marked);
    collection->marked = (nd__marked){0};
    return !unexplained;
}

/// Whether edges from inside explain the count of candidate number `index`, and its word is the
/// same as in pass 1.
static inline bool stands(const nd_collection *collection, size_t index) {
    uint64_t word = collection->words[index];
    uint32_t unlike = ((uint32_t)word - collection->held_here) ^ collection->internal[index];
    return nd__atomic_load(&collection->objects[index]->word, acquire) == word && unlike == 0 &&
           (uint32_t)word != 0;
}

/// Pass 2 over the candidates from `begin` on, and the marks of them, if all of them are garbage:
/// every count is explained, and no word has changed. Marks are written plainly, so with several
/// threads all words are looked at before. With one there is nobody but a signal handler, which
/// changes words alone: each object is looked at and marked in one go, and the marks are taken back
/// when one turns out not to be garbage.
static bool settle_all(nd_collection *collection, size_t begin) {
    size_t end = collection->count, i = begin;
    bool alone = collection->alone && nd__atomic_single_threaded();
    // To take back many marks costs more than to look twice at what is in the arrays.
    bool few = end - begin <= 4 * nd__collection_batch;
    nd__marked marked = {0};
    if (!(alone && few) && !all_explained(collection, begin))
        return false;
    if (!alone && first_changed(collection, begin) != end)
        return false;
    for (; i < end && stands(collection, i); i++) {
        nd__collection_prefetch(collection->objects, end, i);
        nd_object *object = collection->objects[i];
        mark(object, nd__object_flags(object), &marked);
    }
    if (i < end || !nd__collection_in_time(collection)) {
        unmark(collection, begin, i);
        return false;
    }
    accept_marks(collection, &marked);
    return true;
}

/// Pass 2, early: when all that has been read since the last time is garbage, as it is closed under
/// its edges, it is so whatever else is found, because a reference from there would be one that is
/// not explained. With the first live object this ends: the rest is then decided as a whole.
static void settle(nd_collection *collection) {
    size_t begin = collection->settled, end = collection->count;
    if (end - begin < nd__collection_batch)
        return;
    collection->settles =
        collection->still ? settle_still(collection) : settle_all(collection, begin);
}

void nd__collection_unsettle(nd_collection *collection) {
    if (collection->still)
        unmark_still(collection, 0, collection->settled);
    else
        unmark(collection, 0, collection->settled);
    collection->settled = 0;
}

/// The objects up to number `end` have their places.
static void begin_candidates(nd_collection *collection, size_t end) {
    size_t begin = collection->count;
    memset(collection->internal + begin, 0, (end - begin) * sizeof *collection->internal);
    memset(collection->live + begin, 0, end - begin);
    collection->count = end;
}

/// Takes a few objects of a list, `object` and newer ones. Returns the last one taken, or NULL.
static nd_object *take_some(nd_collection *collection, nd__walk *walk, nd_object *object) {
    size_t count = collection->count, taken = 0;
    nd_object **objects = collection->objects, *last = NULL;
    size_t batch = nd__collection_batch, capacity = collection->capacity;
    nd__distance distance = collection->distance;
    const nd_object *before = object;
    nd_object *next;
    for (; object && taken < batch; object = next) {
        next = object->previous;
        fetch_next(&distance, before, object);
        before = object;
        // One with count zero is dead and waits to be destroyed.
        if ((uint32_t)nd__atomic_load_relaxed(&object->word) == 0)
            continue;
        if (__builtin_expect(!may_join(object), 0)) {
            // What is settled is this collection's own, and cannot be told from others' garbage.
            if (!collection->alone && collection->settled == 0 && nd__walk_set_aside(walk, object))
                break;
            continue;
        }
        if (object->gc_index >= count || objects[object->gc_index] != object) {
            if (__builtin_expect(count == capacity, 0)) {
                collection->full = !collection->partly;
                break;
            }
            object->gc_index = (uint32_t)count;
            objects[count++] = object;
        }
        last = object;
        taken++;
    }
    collection->distance = distance;
    begin_candidates(collection, count);
    return last;
}

/// Reads the tracked objects of one shard, oldest first, each few followed by what they point to,
/// while that is warm. No lock is held while edges are read, so a release beside it does not wait.
/// What the walk misses counts as live. It rests on a candidate, because that cannot be freed while
/// the gate is closed; garbage of another thread's collection can.
static void discover_shard(nd_collection *collection, nd_shard *shard, nd_manager *manager,
                           size_t *read, nd_visitor *visitor) {
    nd__walk walk = {.shard = shard, .manager = manager};
    while (!collection->full && collection->count != collection->expected &&
           !(collection->partly && collection->count == collection->capacity) &&
           nd__walk_on(&walk, collection, take_some)) {
        read_all(collection, read, visitor);
        if (collection->settles && !collection->full)
            settle(collection);
        // With all of it read, the rest is soon done.
        if (collection->leave_ns != UINT64_MAX && collection->count < collection->expected &&
            nd__clock_now_ns() >= collection->leave_ns)
            collection->full = collection->late = true;
    }
}

size_t nd__collection_discover(nd_collection *collection, nd_manager *const *managers, size_t count,
                               bool *ret_room) {
    set_visitor counter = {.visitor = {visit_discover}, .collection = collection};
    collection->count = collection->settled = 0;
    collection->settles = true;
    collection->distance = (nd__distance){0};
    collection->stacked = 0;
    collection->contradicted = collection->full = collection->late = false;
    collection->any_weak = collection->any_finalizer = collection->any_watched = false;
    collection->marked = (nd__marked){0};
    size_t read = 0;
    // All of it before any edge is read: what points there is to find it in the set.
    nd__walk_recent(collection, take_some);
    collection->expected += collection->count;
    read_all(collection, &read, &counter.visitor);
    for (size_t i = 0; i < count && !collection->full; i++)
        for (nd_shard *shard = nd__shard_first(managers[i]); shard && !collection->full;
             shard = nd__shard_next(shard))
            discover_shard(collection, shard, managers[i], &read, &counter.visitor);
    if (collection->still && collection->settles) {
        if (collection->full)
            unmark_still(collection, collection->settled, read);
        else
            settle_still(collection);
    }
    *ret_room = !collection->full;
    if (collection->full || collection->contradicted)
        nd__collection_unsettle(collection);
    return *ret_room ? decide(collection) : 0;
}

// ----------------------------------------------------------------------------------------- phase 2

static void visit_extend(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    set_visitor *extender = (set_visitor *)visitor;
    nd_collection *collection = extender->collection;
    if (collection->count == extender->most || !may_join(target) ||
        nd__collection_has(collection, target))
        return;
    nd__collection_add(collection, target);
    collection->live[target->gc_index] = 1;
}

size_t nd__collection_extend(nd_collection *collection) {
    const size_t own = collection->count;
    set_visitor extender = {.visitor = {visit_extend},
                            .collection = collection,
                            .most = nd__collection_most_extended(collection)};
    for (size_t i = 0; i < collection->count && collection->count < extender.most; i++)
        if (collection->live[i])
            nd__collection_traverse(collection->objects[i], &extender.visitor);
    return collection->count - own;
}

// ------------------------------------------------------------------------------------------ pass 2

size_t nd__collection_recheck(nd_collection *collection) {
    nd__collection_verify(collection, collection->settled);
    let_reached_live(collection);
    return count_garbage(collection);
}
