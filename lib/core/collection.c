// The passes of trial deletion over a set of candidates.
#include "lib/core/collection.h"
#include "lib/core/reserve.h"
#include "lib/core/steps.h"
#include "lib/core/watch.h"
#include <stdio.h>
#include <string.h>

#if ND_COLLECT_EVERYWHERE
size_t nd__collection_batch = 1;
#else
size_t nd__collection_batch = 2048;
#endif

uint64_t nd__collection_limit_ns = UINT64_C(8000000000);

bool nd__collection_reserve(nd_collection *collection, size_t capacity) {
    nd__collection_free(collection);
    const size_t each =
        sizeof(nd_object *) + sizeof(uint64_t) + 2 * sizeof(uint32_t) + sizeof(uint8_t);
    if (capacity > UINT32_MAX || capacity > SIZE_MAX / each)
        return false;
    size_t bytes = capacity * each;
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

void nd__collection_free(nd_collection *collection) {
    nd__reserve_keep_large(collection->objects, collection->bytes);
    collection->objects = NULL;
    collection->bytes = 0;
    collection->count = collection->capacity = 0;
}

typedef struct set_visitor {
    nd_visitor visitor;
    nd_collection *collection;
    size_t stacked; ///< marking: entries on the stack
    size_t added;   ///< extending: objects appended
} set_visitor;

static void traverse(nd_object *object, nd_visitor *visitor) {
    if (object->type->traverse && !nd__is_closed(object))
        object->type->traverse(object, visitor);
}

// ------------------------------------------------------------------------------------------ pass 1

static void visit_count(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    nd_collection *collection = ((set_visitor *)visitor)->collection;
    if (nd__is_candidate(collection, target))
        collection->internal[target->gc_index]++;
}

static void visit_mark(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    set_visitor *marker = (set_visitor *)visitor;
    nd_collection *collection = marker->collection;
    if (nd__is_candidate(collection, target) && !collection->live[target->gc_index]) {
        collection->live[target->gc_index] = 1;
        collection->stack[marker->stacked++] = target->gc_index;
    }
}

static void mark_root(set_visitor *marker, size_t index) {
    if (marker->collection->live[index])
        return;
    marker->collection->live[index] = 1;
    marker->collection->stack[marker->stacked++] = (uint32_t)index;
}

/// Everything reached from what is on the stack is live.
static void mark_reached(set_visitor *marker) {
    while (marker->stacked)
        traverse(marker->collection->objects[marker->collection->stack[--marker->stacked]],
                 &marker->visitor);
}

/// From `from` on, the first that is not known to be live and whose word is not what it was in pass 1;
/// the count when there is none.
static size_t first_changed(const nd_collection *collection, size_t from) {
    size_t i = from;
    for (; i < collection->count; i++) {
        nd__collection_prefetch(collection->objects, collection->count, i);
        if (!collection->live[i] &&
            nd__atomic_load(&collection->objects[i]->word, acquire) != collection->words[i])
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
    traverse(object, visitor);
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

/// What has a count that edges from inside do not explain is live, with all it reaches.
static size_t decide(nd_collection *collection) {
    set_visitor marker = {.visitor = {visit_mark}, .collection = collection};
    if (all_explained(collection, collection->settled))
        return collection->count;
    for (size_t i = collection->settled; i < collection->count; i++) {
        uint32_t held = nd__held_in(collection->words[i]) - collection->held_here;
        uint32_t internal = collection->internal[i];
        // What was published meanwhile may have edges that the word was read too early for, but not without a trace.
        if (__builtin_expect(internal > held, 0) &&
            nd__atomic_load(&collection->objects[i]->word, acquire) == collection->words[i])
            nd__collection_note_broken(collection, collection->objects[i]);
        // A candidate that has died since it was taken waits to be buried: its edges still hold.
        if (internal != held || (uint32_t)collection->words[i] == 0)
            mark_root(&marker, i);
    }
    mark_reached(&marker);
    return count_garbage(collection);
}

size_t nd__collection_examine(nd_collection *collection) {
    set_visitor counter = {.visitor = {visit_count}, .collection = collection};
    collection->settled = 0;
    memset(collection->internal, 0, collection->count * sizeof *collection->internal);
    memset(collection->live, 0, collection->count);
    for (size_t i = 0; i < collection->count; i++)
        read_candidate(collection, i, &counter.visitor);
    return decide(collection);
}

/// Whether an object may be a candidate: not another thread's garbage, nor what one holds that looks in
/// steps, whose place that one changes.
static inline bool may_join(const nd_object *object) {
    uint32_t flags = nd__flags_to_join(object);
    if (__builtin_expect((flags & (ND__TRACKED | ND__DYING | ND__SUSPECT)) == ND__TRACKED, 1))
        return !nd__is_held_for_steps(object);
    return (flags & ND__TRACKED) && !nd__is_condemned(flags) && !nd__is_held_for_steps(object);
}

/// False when there is no room.
static inline bool add(nd_collection *collection, nd_object *object) {
    if (__builtin_expect(collection->count == collection->capacity, 0)) {
        collection->full = true;
        return false;
    }
    nd__collection_add(collection, object);
    return true;
}

/// To what is settled already only a type points that reports an edge which it does not hold.
static inline void note_edge_to_settled(nd_collection *collection, const nd_object *target) {
    if (__builtin_expect(nd__is_own_garbage(target), 0) && nd__is_candidate(collection, target)) {
        collection->internal[target->gc_index]++;
        collection->contradicted = true;
    }
}

static void visit_discover(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    nd_collection *collection = ((set_visitor *)visitor)->collection;
    if (!may_join(target)) {
        note_edge_to_settled(collection, target);
        return;
    }
    if (!nd__is_candidate(collection, target)) {
        nd_manager *manager = nd__manager_of(target);
        if (!manager || manager->collection != collection->id || !add(collection, target))
            return;
    }
    collection->internal[target->gc_index]++;
}

/// Pass 2, early: when all that has been read since the last time is garbage, as it is closed under its
/// edges, it is so whatever else is found, because a reference from there would be one that is not
/// explained. With the first live object this ends: the rest is then decided as a whole.
static void settle(nd_collection *collection) {
    size_t begin = collection->settled, end = collection->count;
    if (end - begin < nd__collection_batch)
        return;
    collection->settles =
        end - begin <= 4 * nd__collection_batch && all_explained(collection, begin) &&
        first_changed(collection, begin) == end && nd__collection_in_time(collection);
    if (!collection->settles)
        return;
    for (size_t i = begin; i < end; i++)
        nd__collection_mark_dying(collection, collection->objects[i], i, collection->words[i]);
    collection->settled = end;
}

void nd__collection_unsettle(nd_collection *collection) {
    for (size_t i = 0; i < collection->settled; i++)
        nd__fetch_clear_flags(&collection->objects[i]->flags, ND__DYING);
    collection->settled = 0;
}

/// Takes the next few tracked objects of a shard, from `*cursor` on towards newer ones (NULL: from
/// the oldest), under its lock; leaves NULL when there were none. False when the cursor has left the
/// shard since. The cursor rests on a candidate, because that cannot be freed while the gate is
/// closed; garbage of another thread's collection can.
static bool take_some(nd_collection *collection, nd_shard *shard, nd_object **cursor) {
    nd__lock(&shard->lock);
    nd_object *object = *cursor;
    bool here = !object || nd__atomic_load(&object->home, acquire) == shard;
    if (here) {
        object = object ? object->previous : shard->lists[ND__TRACKED_LIST].last;
        nd_object *last = NULL;
        size_t taken = 0;
        for (; object && taken < nd__collection_batch; object = object->previous) {
            // One with count zero is dead and waits to be buried.
            if ((uint32_t)nd__load_relaxed(&object->word) == 0 || !may_join(object) ||
                (!nd__is_candidate(collection, object) && !add(collection, object)))
                continue;
            last = object;
            taken++;
        }
        *cursor = last;
    }
    nd__unlock(&shard->lock);
    return here;
}

/// Reads the tracked objects of one shard, oldest first, each few followed by what they point to,
/// while that is warm. No lock is held while edges are read, so a release beside it does not wait.
/// If the object it stopped at has left the shard meanwhile, starts again (what it knows is
/// skipped quickly), and in the end does without the rest, which then counts as live.
static void discover_shard(nd_collection *collection, nd_shard *shard, size_t *read,
                           nd_visitor *visitor) {
    nd_object *cursor = NULL;
    for (int starts = 0; !collection->full && collection->count != collection->expected;) {
        if (!take_some(collection, shard, &cursor)) {
            cursor = NULL;
            if (++starts < ND__STARTS)
                continue;
            collection->missed = true;
            return;
        }
        if (!cursor)
            return;
        while (*read < collection->count)
            read_candidate(collection, (*read)++, visitor);
        if (collection->settles)
            settle(collection);
        // With all of it read, the rest is soon done.
        if (collection->leave_ns != UINT64_MAX && collection->count < collection->expected &&
            nd__now_ns() >= collection->leave_ns)
            collection->full = collection->late = true;
    }
}

/// Takes what escaped a short while ago, oldest first. All of it before any edge is read: what points
/// there is to find it in the set.
static void take_recent(nd_collection *collection) {
    nd_shard *shard = collection->escaped;
    if (!shard)
        return;
    nd__lock(&shard->lock);
    nd_object *object = shard->lists[ND__TRACKED_LIST].first;
    for (size_t n = 1; object && object->next && n < collection->recent; n++)
        object = object->next;
    for (; object && !collection->full; object = object->previous)
        if ((uint32_t)nd__load_relaxed(&object->word) != 0 && may_join(object))
            add(collection, object);
    nd__unlock(&shard->lock);
    collection->expected += collection->count;
}

size_t nd__collection_discover(nd_collection *collection, nd_manager *const *managers, size_t count,
                               bool *ret_room) {
    set_visitor counter = {.visitor = {visit_discover}, .collection = collection};
    collection->count = collection->settled = 0;
    collection->settles = true;
    collection->contradicted = collection->full = collection->late = false;
    collection->any_weak = collection->any_finalizer = collection->any_watched = false;
    size_t read = 0;
    take_recent(collection);
    while (read < collection->count)
        read_candidate(collection, read++, &counter.visitor);
    for (size_t i = 0; i < count && !collection->full; i++)
        for (nd_shard *shard = nd__first_shard(managers[i]); shard && !collection->full;
             shard = nd__next_shard(shard))
            discover_shard(collection, shard, &read, &counter.visitor);
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
    if (collection->count == collection->capacity || !may_join(target) ||
        nd__is_candidate(collection, target))
        return;
    nd__collection_add(collection, target);
    collection->live[target->gc_index] = 1;
    extender->added++;
}

size_t nd__collection_extend(nd_collection *collection) {
    set_visitor extender = {.visitor = {visit_extend}, .collection = collection};
    for (size_t i = 0; i < collection->count && collection->count < collection->capacity; i++)
        if (collection->live[i])
            traverse(collection->objects[i], &extender.visitor);
    return extender.added;
}

// ------------------------------------------------------------------------------------------ pass 2

size_t nd__collection_recheck(nd_collection *collection) {
    set_visitor marker = {.visitor = {visit_mark}, .collection = collection};
    for (size_t i = first_changed(collection, collection->settled); i < collection->count;
         i = first_changed(collection, i + 1))
        mark_root(&marker, i);
    mark_reached(&marker);
    return count_garbage(collection);
}
