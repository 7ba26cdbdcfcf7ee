// Trial deletion in steps (docs/collector.md, "In steps").
//
//   hold      every candidate, so that none is freed under the collection, and read its word; the
//             gate is open, and is entered as an edge writer does
//   read      edges into a snapshot, some at a time, each time with the gate closed
//   decide    over the snapshot; nothing else is looked at
//   suspect   marks the garbage ND__SUSPECT; the gate closes and opens once, so that from here on
//             every upgrade of a weak reference sees the mark
//   verify    the words again; what has changed lives, with all it reaches
//   condemn   the gate closes once more: if nobody has upgraded a suspect since, it never will be
//             again, and all suspects are dying
//
// Invariant: all words are read before any edge, and an edge that is moved out of its owner changes
// its target's word (nd__note_moved). So a reference that was seen in an edge, on a target whose
// word is the same when it is verified, was in that edge all the time.
#include "lib/core/steps.h"
#include "lib/core/clock.h"
#include "lib/core/collect.h"
#include "lib/core/gate_internal.h"
#include "lib/core/reserve.h"
#include "lib/core/thread.h"
#include "lib/core/watch.h"
#include <string.h>

/// Word read to verification may not take longer, lest a version wrap around unseen: 2^32 retains
/// of one object from several threads take more than twice that.
#define WHOLE_LIMIT_NS UINT64_C(8000000000)
/// So many upgrades in a row of what is about to be condemned, and all of it is let live.
enum { ATTEMPTS = 4 };
/// Objects whose edges are read between two looks at the clock.
#ifdef ND_MODEL
enum { BATCH = 1 };
#else
enum { BATCH = 16 };
#endif
enum { HELD_PER_LOCK = 256 };

typedef struct steps {
    nd_visitor visitor;
    nd_collection *collection;
    uint64_t pause_ns;
    uint64_t began_ns; ///< to read words
    bool revived;      ///< over garbage that is held and dying already
    /// The snapshot: edges of candidate i, as places of candidates, are
    /// edges[i ? ends[i - 1] : 0 ... ends[i]).
    uint32_t *edges;
    size_t *ends;
    size_t used, room;
    size_t read; ///< candidates whose edges are in the snapshot
    bool full;   ///< the snapshot has no room for the next one's
    size_t stacked;
    bool condemned;
} steps;

static nd_lock steps_lock; ///< one at a time; no user code runs under it
// Both change inside the gate: `upgraded` by whoever upgrades, the rest while it is closed.
static _Atomic uint32_t upgraded; ///< a suspect was, since the gate was last closed
static bool suspects_are_dying;

bool nd__suspect_may_live(void) {
    if (suspects_are_dying)
        return false;
    nd__atomic_store(&upgraded, 1, relaxed);
    return true;
}

bool nd__suspects_are_dying(void) {
    return suspects_are_dying;
}

static uint64_t word_of(const nd_object *object) {
    return nd__atomic_load(&((nd_object *)(uintptr_t)object)->word, acquire);
}

/// One step: looks with the gate closed, and lets those who waited go on before the next.
static void step(steps *steps, void (*look)(void *data)) {
    uint64_t closed = nd__collect_step(look, steps);
    steps->collection->report.steps++;
    if (closed > steps->collection->report.gate_closed_ns)
        steps->collection->report.gate_closed_ns = closed;
}

// -------------------------------------------------------------------------------------------- hold

/// Holds the next few tracked objects of a shard, from `*cursor` on towards newer ones (NULL: from
/// the oldest); leaves NULL when there were none. False when the cursor has left the shard since.
static bool hold_some(nd_collection *collection, nd_shard *shard, nd_object **cursor) {
    nd__gate_enter();
    nd__lock(&shard->lock);
    nd_object *object = *cursor;
    bool here = !object || nd__atomic_load(&object->home, acquire) == shard;
    if (here) {
        object = object ? object->previous : shard->lists[ND__TRACKED_LIST].last;
        nd_object *last = NULL;
        int held = 0;
        for (; object && held < HELD_PER_LOCK && collection->count < collection->capacity;
             object = object->previous) {
            // First of all dying: the place of what others are about to free is theirs to change.
            if ((nd__flags_to_join(object) & ND__DYING) || nd__is_candidate(collection, object) ||
                !nd__try_retain(object))
                continue;
            nd__collection_add(collection, object);
            last = object;
            held++;
        }
        *cursor = last;
    }
    nd__unlock(&shard->lock);
    nd__gate_leave();
    return here;
}

static void hold_shard(nd_collection *collection, nd_shard *shard) {
    enum { STARTS = 8 };
    nd_object *cursor = NULL;
    for (int starts = 0; starts < STARTS;) {
        if (!hold_some(collection, shard, &cursor)) {
            cursor = NULL;
            starts++;
        } else if (!cursor) {
            return;
        }
    }
}

static void read_words(nd_collection *collection) {
    for (size_t i = 0; i < collection->count; i++)
        collection->words[i] = word_of(collection->objects[i]);
}

// -------------------------------------------------------------------------------------------- read

static void visit_edge(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    steps *steps = (struct steps *)visitor;
    if (!nd__is_candidate(steps->collection, target))
        return;
    if (steps->used == steps->room)
        steps->full = true;
    else
        steps->edges[steps->used++] = target->gc_index;
}

static void read_edges_of_next(steps *steps) {
    nd_object *object = steps->collection->objects[steps->read];
    size_t used = steps->used;
    // Another collection between the steps takes the place from an object, and then one that moved
    // may be held twice; its edges count once. One without its place lives, and so do its targets.
    bool placed = object->gc_index == steps->read;
    if (placed && object->type->traverse && !nd__is_closed(object))
        object->type->traverse(object, &steps->visitor);
    if (steps->full)
        steps->used = used;
    else
        steps->ends[steps->read++] = steps->used;
}

/// As many as the pause allows, at least one batch.
static void read_some_edges(void *data) {
    steps *steps = data;
    uint64_t closed_at = nd__collect_step_began(), now = closed_at, before;
    suspects_are_dying = false;
    do {
        for (int i = 0; i < BATCH && steps->read < steps->collection->count && !steps->full; i++)
            read_edges_of_next(steps);
        before = now;
        now = nd__now_ns();
    } while (steps->read < steps->collection->count && !steps->full &&
             now - closed_at + (now - before) + 1 < steps->pause_ns);
}

static bool grow(steps *steps) {
    size_t room = steps->room ? 2 * steps->room : 2 * steps->collection->count + 64;
    uint32_t *edges =
        nd__reserve_realloc(steps->edges, steps->room * sizeof *edges, room * sizeof *edges);
    if (!edges)
        return false;
    steps->edges = edges;
    steps->room = room;
    steps->full = false;
    return true;
}

static bool read_edges(steps *steps) {
    if (steps->collection->count == 0)
        return true;
    steps->ends = nd__reserve_malloc(steps->collection->count * sizeof *steps->ends);
    if (!steps->ends || !grow(steps))
        return false;
    for (;;) {
        uint64_t began = nd__now_ns();
        step(steps, read_some_edges);
        if (steps->full && !grow(steps))
            return false;
        if (steps->read == steps->collection->count)
            return true;
        nd__nap(nd__now_ns() - began); // others have waited for as long
    }
}

// ------------------------------------------------------------------------------------------ decide

static void let_live(steps *steps, size_t index) {
    nd_collection *collection = steps->collection;
    if (collection->live[index])
        return;
    collection->live[index] = 1;
    collection->stack[steps->stacked++] = (uint32_t)index;
}

/// All that is reached from what is on the stack lives.
static void let_reached_live(steps *steps) {
    while (steps->stacked) {
        uint32_t from = steps->collection->stack[--steps->stacked];
        for (size_t e = from ? steps->ends[from - 1] : 0; e < steps->ends[from]; e++)
            let_live(steps, steps->edges[e]);
    }
}

/// What has a count that edges of the snapshot do not explain lives, with all it reaches.
static void decide(steps *steps) {
    nd_collection *collection = steps->collection;
    for (size_t e = 0; e < steps->used; e++)
        collection->internal[steps->edges[e]]++;
    for (size_t i = 0; i < collection->count; i++) {
        uint32_t held = nd__held_in(collection->words[i]) - 1, seen = collection->internal[i];
        // A reference that moves may be seen twice, but not without a trace.
        if (seen > held && word_of(collection->objects[i]) == collection->words[i])
            nd__collection_note_broken(collection, collection->objects[i]);
        // One that only the collection holds dies as soon as that gives it up.
        if (seen != held || (held == 0 && !steps->revived))
            let_live(steps, i);
    }
    let_reached_live(steps);
}

static void verify(steps *steps) {
    nd_collection *collection = steps->collection;
    for (size_t i = 0; i < collection->count; i++)
        if (!collection->live[i] && word_of(collection->objects[i]) != collection->words[i])
            let_live(steps, i);
    let_reached_live(steps);
}

static bool any_garbage(const nd_collection *collection) {
    return memchr(collection->live, 0, collection->count) != NULL;
}

// ------------------------------------------------------------------------------- suspect, condemn

static void suspect_garbage(nd_collection *collection) {
    for (size_t i = 0; i < collection->count; i++)
        if (!collection->live[i])
            nd__fetch_or_flags(&collection->objects[i]->flags, ND__SUSPECT);
}

/// What was suspected and lives.
static void clear_suspicion(nd_collection *collection) {
    for (size_t i = 0; i < collection->count; i++)
        if (collection->live[i] && (nd__flags(collection->objects[i]) & ND__SUSPECT))
            nd__fetch_clear_flags(&collection->objects[i]->flags, ND__SUSPECT);
}

static void forget_upgrades(void *data) {
    (void)data;
    nd__atomic_store(&upgraded, 0, relaxed);
}

static void condemn_unless_upgraded(void *data) {
    steps *steps = data;
    steps->condemned = !nd__atomic_load(&upgraded, relaxed);
    suspects_are_dying = steps->condemned;
    nd__atomic_store(&upgraded, 0, relaxed);
}

static void condemn(steps *steps) {
    nd_collection *collection = steps->collection;
    suspect_garbage(collection);
    step(steps, forget_upgrades);
    for (int i = 0; i < ATTEMPTS && !steps->condemned && any_garbage(collection); i++) {
        verify(steps);
        clear_suspicion(collection);
        if (nd__now_ns() - steps->began_ns < WHOLE_LIMIT_NS)
            step(steps, condemn_unless_upgraded);
    }
    if (!steps->condemned) {
        memset(collection->live, 1, collection->count);
        clear_suspicion(collection);
    }
}

/// Brings the garbage to the front, in order, marked. Nobody else can reach it, so its flags are
/// written plainly. Returns how many.
static size_t mark_dying(nd_collection *collection) {
    size_t garbage = 0;
    collection->any_weak = collection->any_finalizer = collection->any_watched = false;
    for (size_t i = 0; i < collection->count; i++) {
        if (collection->live[i])
            continue;
        nd_object *object = collection->objects[i];
        collection->objects[i] = collection->objects[garbage];
        collection->objects[garbage] = object;
        nd__collection_mark_dying(collection, object, garbage++, collection->words[i]);
    }
    return garbage;
}

// --------------------------------------------------------------------------------------- the whole

static void free_snapshot(steps *steps) {
    nd__reserve_free(steps->edges);
    nd__reserve_free(steps->ends);
}

bool nd__steps_find(nd_collection *collection, nd_manager *const *managers, size_t count,
                    uint64_t pause_ns) {
    steps steps = {.visitor = {visit_edge}, .collection = collection, .pause_ns = pause_ns};
    collection->count = 0;
    nd__lock(&steps_lock);
    for (size_t i = 0; i < count; i++)
        for (nd_shard *shard = nd__first_shard(managers[i]); shard; shard = nd__next_shard(shard))
            hold_shard(collection, shard);
    steps.began_ns = nd__now_ns();
    read_words(collection);
    size_t held = collection->count, garbage = 0;
    bool memory = read_edges(&steps);
    if (memory) {
        decide(&steps);
        if (any_garbage(collection))
            condemn(&steps);
        garbage = mark_dying(collection);
        collection->report.examined_objects += held;
    }
    nd__unlock(&steps_lock);
    free_snapshot(&steps);
    nd__bury_parked();
    for (size_t i = garbage; i < held; i++)
        nd_object_release(collection->objects[i]);
    collection->count = garbage;
    collection->held_here = 1;
    return memory;
}

void nd__steps_examine(nd_collection *collection, uint64_t pause_ns) {
    steps steps = {
        .visitor = {visit_edge}, .collection = collection, .pause_ns = pause_ns, .revived = true};
    memset(collection->internal, 0, collection->count * sizeof *collection->internal);
    memset(collection->live, 0, collection->count);
    nd__lock(&steps_lock);
    steps.began_ns = nd__now_ns();
    read_words(collection);
    if (read_edges(&steps)) {
        decide(&steps);
        // Their weak references are cleared, so nobody upgrades; words of threads that were inside
        // the gate arrive.
        step(&steps, forget_upgrades);
        verify(&steps);
    }
    if (steps.read < collection->count || nd__now_ns() - steps.began_ns >= WHOLE_LIMIT_NS)
        memset(collection->live, 1, collection->count);
    nd__unlock(&steps_lock);
    free_snapshot(&steps);
}
