// Trial deletion in steps (docs/collector.md, "In steps").
//
//   hold      every candidate, so that none is freed under the collection; other collections leave
//             them alone from here on (held.c)
//   words     are read
//   read      edges into a snapshot, some at a time, each time with the gate closed
//   decide    over the snapshot; nothing else is looked at
//   extend    phase 2: what the living reach outside the set joins it, some at a time, each time with the
//             gate closed; then words, read and decide once more
//   suspect   marks the garbage ND__SUSPECT; the gate closes and opens once, so that from here on
//             every upgrade of a weak reference sees the mark
//   verify    the words again; what has changed lives, with all it reaches
//   condemn   the gate closes once more: if nobody has upgraded a suspect since, it never will be
//             again, and all suspects are dying
//   again     what threads changed meanwhile, with all it reaches, is a set of its own, and is looked at
//             in the same way
//
// Invariant: all words are read before any edge, and an edge that is moved out of its owner changes
// its target's word (nd__object_note_moved). So a reference that was seen in an edge, on a target
// whose word is the same when it is verified, was in that edge all the time.
#include "lib/gc/steps.h"
#include "lib/base/atomics.h"
#include "lib/base/clock.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/base/pause.h"
#include "lib/base/reserve.h"
#include "lib/base/thread.h"
#include "lib/gc/collection.h"
#include "lib/gc/held.h"
#include "lib/gc/look.h"
#include "lib/manager/destroy.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include <string.h>

/// While edges are read, all words are looked at again this often: nd__collection_limit_ns is the
/// longest time between two looks at a word, however long the whole takes.
#define SWEEP_NS UINT64_C(1000000000)
/// A set whose words were looked at too rarely all the same is looked at anew so often.
enum { TRIES = 3 };
/// So many upgrades in a row of what is about to be condemned, and all of it is let live. Each
/// spares what it upgraded, so only a crowd of weak references to one set of garbage gets so far.
/// ROUNDS: sets that are looked at, each what was changed during the look at the one before.
#ifdef ND_MODEL
enum { ATTEMPTS = 4, BATCH = 1 };
int nd__steps_rounds = 1; // a program says that it wants more
#else
/// BATCH: objects whose edges are read between two looks at the clock.
enum { ATTEMPTS = 64, BATCH = 16 };
int nd__steps_rounds = 3;
#endif
/// What was changed is looked at again at once when it is few, or at most half of what there was.
enum { FEW = 4096 };

/// Bits of nd_collection.live.
enum { LIVE = 1, AGAIN = 2 };
/// Bit of an entry of `ends`: an edge of that candidate leads out of the set.
#define OUTSIDE ((size_t)1 << (8 * sizeof(size_t) - 1))

typedef struct steps {
    nd_visitor visitor;
    nd_collection *collection;
    uint64_t pause_ns;
    uint64_t looked_ns; ///< when the last look at all words began
    bool lost;          ///< two looks at a word may have been too far apart
    /// The snapshot: edges of candidate i, as places of candidates, are edges[begin_of(i) ...
    /// end_of(i)).
    uint32_t *edges;
    size_t *ends;
    size_t ends_room;
    size_t used, room;
    size_t read; ///< candidates whose edges are in the snapshot
    bool full;   ///< the snapshot has no room for the next one's
    bool leads_out;
    size_t extended; ///< candidates whose edges were followed out of the set
    size_t most;     ///< candidates that there may be in the end
    bool condemned;
    uint64_t reading_ns,
        edges_read_of; ///< what that took with the gate closed, for how many objects
} steps;

static nd_lock steps_turn, steps_lock; ///< one at a time; no user code runs under it
ND__FORK_LOCK(ND__FORK_STEPS_TURN, steps_turn);
ND__FORK_LOCK(ND__FORK_STEPS, steps_lock);
// These change inside the gate: `upgraded` by whoever upgrades, the rest while it is closed or by
// whoever holds steps_lock.
static _Atomic uint32_t upgraded; ///< a suspect was, since the gate was last closed
static bool suspects_are_dying;

bool nd__steps_suspect_may_live(void) {
    if (suspects_are_dying)
        return false;
    nd__atomic_store(&upgraded, 1, relaxed);
    return true;
}

bool nd__steps_suspects_are_dying(void) {
    return suspects_are_dying;
}

/// One step: looks with the gate closed, and lets those who waited go on before the next.
static void step(steps *steps, void (*look)(void *data)) {
    uint64_t closed = nd__look_step(look, steps);
    steps->collection->report.steps++;
    if (closed > steps->collection->report.gate_closed_ns)
        steps->collection->report.gate_closed_ns = closed;
}

/// Whether a step that began to close the gate at `closed_at` has time for another batch like the
/// last one; an eighth of the pause is for closing and opening.
static bool time_is_left(const steps *steps, uint64_t closed_at, uint64_t *now) {
    uint64_t before = *now;
    *now = nd__clock_now_ns();
    return *now - closed_at + (*now - before) + 1 < steps->pause_ns - steps->pause_ns / 8;
}

// ------------------------------------------------------------------------------------------- words

static void read_words(steps *steps) {
    nd_collection *collection = steps->collection;
    steps->looked_ns = nd__clock_now_ns();
    for (size_t i = 0; i < collection->count; i++)
        collection->words[i] = nd__collection_word(collection, i);
}

/// Lets live what has changed since the words were read.
static void look_at_words(steps *steps) {
    nd_collection *collection = steps->collection;
    uint64_t began = nd__clock_now_ns();
    nd__collection_verify(collection, 0);
    steps->lost |= nd__clock_now_ns() - steps->looked_ns >= nd__collection_limit_ns;
    steps->looked_ns = began;
}

// -------------------------------------------------------------------------------------------- read

static size_t begin_of(const steps *steps, size_t index) {
    return index ? steps->ends[index - 1] & ~OUTSIDE : 0;
}

static size_t end_of(const steps *steps, size_t index) {
    return steps->ends[index] & ~OUTSIDE;
}

static void visit_edge(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    steps *steps = (struct steps *)visitor;
    if (!nd__collection_has(steps->collection, target))
        steps->leads_out |= (nd__object_flags(target) & ND__TRACKED) != 0;
    else if (steps->used == steps->room)
        steps->full = true;
    else
        steps->edges[steps->used++] = target->gc_index;
}

static void read_edges_of_next(steps *steps) {
    size_t used = steps->used;
    steps->leads_out = false;
    nd__collection_traverse(steps->collection->objects[steps->read], &steps->visitor);
    if (steps->full)
        steps->used = used;
    else
        steps->ends[steps->read++] = steps->used | (steps->leads_out ? OUTSIDE : 0);
}

/// As many as the pause allows, at least one batch.
static void read_some_edges(void *data) {
    steps *steps = data;
    uint64_t closed_at = nd__look_step_began(), now = closed_at;
    size_t count = steps->collection->count, read = steps->read;
    suspects_are_dying = false;
    do {
        for (int i = 0; i < BATCH && steps->read < count && !steps->full; i++)
            read_edges_of_next(steps);
    } while (time_is_left(steps, closed_at, &now) && steps->read < count && !steps->full);
    steps->reading_ns += now - closed_at;
    steps->edges_read_of += steps->read - read;
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

/// Room for a snapshot of the set.
static bool make_room(steps *steps) {
    size_t count = steps->collection->count;
    if (count > steps->ends_room) {
        nd__reserve_free(steps->ends);
        steps->ends = nd__reserve_malloc(count * sizeof *steps->ends);
        steps->ends_room = steps->ends ? count : 0;
    }
    return steps->ends && (steps->room || grow(steps));
}

/// Words, then edges, of the whole set. False without memory.
static bool read_set(steps *steps) {
    nd_collection *collection = steps->collection;
    memset(collection->internal, 0, collection->count * sizeof *collection->internal);
    memset(collection->live, 0, collection->count);
    steps->read = steps->used = collection->stacked = 0;
    steps->full = false;
    read_words(steps);
    if (!make_room(steps))
        return false;
    for (;;) {
        uint64_t began = nd__clock_now_ns();
        step(steps, read_some_edges);
        if (steps->full && !grow(steps))
            return false;
        if (steps->read == collection->count)
            return true;
        uint64_t now = nd__clock_now_ns();
        nd__pause_nap(now - began); // others have waited for as long
        if (now - steps->looked_ns >= SWEEP_NS)
            look_at_words(steps);
    }
}

// ------------------------------------------------------------------------------------------ decide

/// All that is reached from what is on the stack lives.
static void let_reached_live(steps *steps) {
    nd_collection *collection = steps->collection;
    while (collection->stacked) {
        uint32_t from = collection->stack[--collection->stacked];
        for (size_t e = begin_of(steps, from); e < end_of(steps, from); e++)
            nd__collection_let_live(collection, steps->edges[e]);
    }
}

/// What has a count that edges of the snapshot do not explain lives, with all it reaches. What only
/// the collection holds is garbage: it would die as soon as that gives it up.
static void decide(steps *steps) {
    for (size_t e = 0; e < steps->used; e++)
        steps->collection->internal[steps->edges[e]]++;
    nd__collection_decide(steps->collection, 0);
    let_reached_live(steps);
}

static void verify(steps *steps) {
    look_at_words(steps);
    let_reached_live(steps);
}

static bool any_garbage(const nd_collection *collection) {
    return memchr(collection->live, 0, collection->count) != NULL;
}

// ------------------------------------------------------------------------------------------ extend

/// Holds what is outside the set. The edge that leads there stands still, so it is alive.
static void visit_extend(nd_visitor *visitor, nd_object *target, const char *label) {
    (void)label;
    const struct steps *follower = (const struct steps *)visitor;
    nd_collection *collection = follower->collection;
    if (collection->count < follower->most && !nd__collection_has(collection, target) &&
        (nd__object_flags_to_join(target) & (ND__TRACKED | ND__DYING)) == ND__TRACKED &&
        nd__object_try_retain(target))
        nd__collection_add(collection, target);
}

/// Follows edges of the living out of the set, breadth first, as far as the pause allows.
static void extend_some(void *data) {
    steps *steps = data;
    nd_collection *collection = steps->collection;
    struct steps follower = {
        .visitor = {visit_extend}, .collection = collection, .most = steps->most};
    uint64_t closed_at = nd__look_step_began(), now = closed_at;
    size_t looked = 0; // one that is passed over costs less than one that is followed
    while (steps->extended < collection->count && collection->count < steps->most) {
        size_t i = steps->extended++;
        bool leads = i >= steps->read || (collection->live[i] && (steps->ends[i] & OUTSIDE));
        if (leads)
            nd__collection_traverse(collection->objects[i], &follower.visitor);
        looked += leads ? 16 : 1;
        if (looked >= 16 * BATCH) {
            looked = 0;
            if (!time_is_left(steps, closed_at, &now))
                return;
        }
    }
    if (collection->count == steps->most)
        steps->extended = collection->count;
}

/// Whether anything has joined.
static bool extend(steps *steps) {
    size_t count = steps->collection->count;
    steps->most = nd__collection_most_extended(steps->collection);
    // Without the gate: past those that cannot lead anywhere.
    for (steps->extended = 0; steps->extended < count; steps->extended++)
        if (steps->collection->live[steps->extended] && (steps->ends[steps->extended] & OUTSIDE))
            break;
    while (steps->extended < steps->collection->count) {
        uint64_t began = nd__clock_now_ns();
        step(steps, extend_some);
        if (steps->extended < steps->collection->count)
            nd__pause_nap(nd__clock_now_ns() - began);
    }
    return steps->collection->count > count;
}

// ------------------------------------------------------------------------------- suspect, condemn

static void suspect_garbage(nd_collection *collection) {
    for (size_t i = 0; i < collection->count; i++)
        if (!collection->live[i])
            nd__atomic_set_flags(&collection->objects[i]->flags, ND__SUSPECT);
}

/// What was suspected and lives.
static void clear_suspicion(nd_collection *collection) {
    for (size_t i = 0; i < collection->count; i++)
        if (collection->live[i] && (nd__object_flags(collection->objects[i]) & ND__SUSPECT))
            nd__atomic_clear_flags(&collection->objects[i]->flags, ND__SUSPECT);
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

/// False, and all of it lives, when the words were looked at too rarely to tell, or there are
/// upgrades without end.
static bool condemn(steps *steps) {
    nd_collection *collection = steps->collection;
    steps->condemned = false;
    suspect_garbage(collection);
    step(steps, forget_upgrades);
    for (int i = 0; i < ATTEMPTS && !steps->condemned && any_garbage(collection); i++) {
        verify(steps);
        clear_suspicion(collection);
        if (steps->lost)
            break;
        step(steps, condemn_unless_upgraded);
    }
    if (steps->condemned || !any_garbage(collection))
        return true;
    memset(collection->live, LIVE, collection->count);
    clear_suspicion(collection);
    return false;
}

// ------------------------------------------------------------------------------------------- again

/// Marks what has changed since its word was read, with all it reaches: threads may have let go of
/// it after the collection saw them hold it. Returns how many.
static size_t mark_changed(steps *steps) {
    nd_collection *collection = steps->collection;
    size_t marked = 0;
    for (size_t i = 0; i < collection->count; i++)
        if (collection->live[i] == LIVE &&
            nd__collection_word(collection, i) != collection->words[i]) {
            collection->live[i] |= AGAIN;
            collection->stack[collection->stacked++] = (uint32_t)i;
        }
    for (; collection->stacked; marked++) {
        uint32_t from = collection->stack[--collection->stacked];
        for (size_t e = begin_of(steps, from); e < end_of(steps, from); e++) {
            uint32_t to = steps->edges[e];
            if (collection->live[to] == LIVE) {
                collection->live[to] |= AGAIN;
                collection->stack[collection->stacked++] = to;
            }
        }
    }
    return marked;
}

/// Puts the set into the order garbage, what is to be looked at again, the rest; each in the order
/// it had. Garbage is marked: nobody else can reach it, so its flags are written plainly. Its
/// places are counted from `base` on. Returns how much garbage.
static size_t part(nd_collection *collection, size_t base) {
    size_t garbage = 0, living = 0;
    for (size_t i = 0; i < collection->count; i++) {
        nd_object *object = collection->objects[i];
        if (collection->live[i]) {
            // Words of what lives are not needed any more, and `living` is at most i.
            collection->words[living++] = (uintptr_t)object | (collection->live[i] & AGAIN ? 1 : 0);
            continue;
        }
        collection->objects[garbage] = object;
        nd__collection_mark_dying(collection, object, base + garbage++, collection->words[i]);
    }
    size_t next = garbage;
    for (int again = 1; again >= 0; again--)
        for (size_t i = 0; i < living; i++)
            if ((int)(collection->words[i] & 1) == again)
                collection->objects[next++] =
                    (nd_object *)(uintptr_t)(collection->words[i] & ~(uint64_t)1);
    return garbage;
}

// --------------------------------------------------------------------------------------- the whole

static void free_snapshot(steps *steps) {
    nd__reserve_free(steps->edges);
    nd__reserve_free(steps->ends);
}

/// What the living of the set are: all that is not condemned then. False without memory.
static bool look_at_set(steps *steps, bool extends) {
    nd_collection *collection = steps->collection;
    for (int tries = 0; tries < TRIES; tries++) {
        steps->lost = false;
        if (!read_set(steps))
            return false;
        decide(steps);
        if (extends && memchr(collection->live, LIVE, collection->count) && extend(steps)) {
            extends = false;
            if (!read_set(steps))
                return false;
            decide(steps);
        }
        if (!any_garbage(collection) || condemn(steps))
            return true;
    }
    collection->report.postponed_objects += collection->count;
    return true;
}

/// The arrays from `by` on become the collection's.
static void shift(nd_collection *collection, ptrdiff_t by) {
    collection->objects += by;
    collection->words += by;
    collection->internal += by;
    collection->stack += by;
    collection->live += by;
    collection->count -= (size_t)by;
    collection->capacity -= (size_t)by;
}

/// Looks at the set, and again at what was changed meanwhile. Brings the garbage to the front;
/// *ret_held says how many objects there are then in all. Returns how much garbage, or SIZE_MAX
/// without memory, when nothing was found.
static size_t look_in_rounds(steps *steps, size_t *ret_held) {
    nd_collection *collection = steps->collection;
    size_t garbage = 0, again = collection->count;
    bool memory = true;
    for (int round = 0; again > 0 && round < nd__steps_rounds; round++) {
        size_t behind = 0; // what needs no other look stands behind the set
        if (round > 0) {
            behind = collection->count - again;
            collection->count = again;
            nd__held_place_all(collection);
        }
        size_t before = collection->count;
        memory = look_at_set(steps, round == 0);
        if (!memory)
            memset(collection->live, LIVE, collection->count);
        again = memory && round + 1 < nd__steps_rounds ? mark_changed(steps) : 0;
        if (again > FEW && again > before / 2)
            again = 0;
        nd__held_announce(NULL);
        size_t found = part(collection, garbage);
        garbage += found;
        collection->count += behind;
        shift(collection, (ptrdiff_t)found);
        if (!memory)
            break;
    }
    nd__held_announce(NULL);
    shift(collection, -(ptrdiff_t)garbage);
    *ret_held = collection->count;
    return memory || garbage ? garbage : SIZE_MAX;
}

/// Gives up what is not garbage. What dies of it is destroyed by the caller, holding no lock.
static void let_rest_go(nd_collection *collection, size_t garbage, size_t held) {
    for (size_t i = garbage; i < held; i++)
        nd_object_release(collection->objects[i]);
}

bool nd__steps_find(nd_collection *collection, nd_manager *const *managers, size_t count,
                    uint64_t pause_ns) {
    steps steps = {.visitor = {visit_edge}, .collection = collection, .pause_ns = pause_ns};
    nd_thread *thread = nd__thread();
    collection->count = 0;
    collection->held_here = 1;
    collection->any_weak = collection->any_finalizer = collection->any_watched = false;
    nd__lock_acquire_in_turn(&steps_turn, &steps_lock);
    nd__held_announce(collection);
    nd__held_take(collection, managers, count);
    size_t held, garbage = look_in_rounds(&steps, &held);
    bool memory = garbage != SIZE_MAX;
    if (!memory)
        garbage = 0;
    else
        collection->report.examined_objects += held;
    if (collection->unclear) // what others have to destroy may be what held the rest
        collection->report.postponed_objects += held - garbage;
    nd__look_note_cost(steps.edges_read_of, steps.reading_ns);
    // Under the lock: the next collection is not to take this one for somebody who holds them.
    bool outermost = nd__destroy_begin(thread);
    let_rest_go(collection, garbage, held);
    nd__lock_release(&steps_lock);
    free_snapshot(&steps);
    nd__destroy_end(thread, outermost);
    nd__gate_destroy_parked();
    collection->count = garbage;
    collection->held_here = memory; // else nothing is held, and others look at once
    return memory;
}

bool nd__steps_examine(nd_collection *collection, uint64_t pause_ns) {
    steps steps = {.visitor = {visit_edge}, .collection = collection, .pause_ns = pause_ns};
    bool memory = true;
    nd__lock_acquire_in_turn(&steps_turn, &steps_lock);
    for (int tries = 0; tries < TRIES; tries++) {
        steps.lost = false;
        memory = read_set(&steps);
        if (!memory)
            break;
        decide(&steps);
        // Their weak references are cleared, so nobody upgrades; words of threads that were inside
        // the gate arrive.
        step(&steps, forget_upgrades);
        verify(&steps);
        if (!steps.lost)
            break;
    }
    if (steps.lost) {
        memset(collection->live, LIVE, collection->count);
        collection->report.postponed_objects += collection->count;
    }
    nd__lock_release(&steps_lock);
    free_snapshot(&steps);
    return memory;
}
