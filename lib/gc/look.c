// Looks (look.h): the gate, the passes between, and whether they run at once or in steps.
//
// Invariants: one thread at a time looks at edges (collection_lock), and nothing is allocated and no
// user code but `traverse` runs inside the gate. A look that cannot tell, because it took too long
// or another thread has yet to destroy what may hold the rest, has found nothing; who asked looks
// again, waits, or counts what it leaves as postponed.
#include "lib/gc/look.h"
#include "lib/base/atomics.h"
#include "lib/base/cancel.h"
#include "lib/base/clock.h"
#include "lib/base/fork.h"
#include "lib/base/lock.h"
#include "lib/base/signals.h"
#include "lib/base/thread.h"
#include "lib/gc/collection.h"
#include "lib/gc/gc_totals.h"
#include "lib/gc/policy.h"
#include "lib/gc/steps.h"
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/dead.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include <string.h>

static nd_lock collection_turn, collection_lock;
ND__FORK_LOCK(ND__FORK_COLLECTION_TURN, collection_turn);
ND__FORK_LOCK(ND__FORK_COLLECTION, collection_lock);
static uint64_t last_collection_id; // collection lock

size_t nd__look_count_tracked(nd_manager *const *managers, size_t count) {
    size_t tracked = 0;
    for (size_t i = 0; i < count; i++)
        tracked += nd__shard_total(managers[i]).tracked;
    return tracked;
}

// ---------------------------------------------------------------------------------------- the gate

/// Returns when it began to close.
static uint64_t close_gate(void) {
    nd__gate_admit_writers();
    uint64_t now = nd__clock_now_ns();
    nd__gate_close();
    return now;
}

/// Returns for how long the gate was closed.
static uint64_t note_gate_time(uint64_t closed_at) {
    uint64_t closed = nd__clock_now_ns() - closed_at;
    nd__gc_totals_gate(closed);
    return closed;
}

static void report_gate_time(nd_collection *collection, uint64_t closed_at) {
    uint64_t closed = note_gate_time(closed_at);
    if (closed > collection->report.gate_closed_ns)
        collection->report.gate_closed_ns = closed;
}

static uint64_t step_began; // collection lock

uint64_t nd__look_step_began(void) {
    return step_began;
}

uint64_t nd__look_step(void (*look)(void *data), void *data) {
    nd__lock_acquire_in_turn(&collection_turn, &collection_lock);
    uint64_t closed_at = step_began = close_gate();
    look(data);
    nd__gate_open();
    nd__lock_release(&collection_lock);
    return note_gate_time(closed_at);
}

void nd__look_inspect(void (*look)(void *data), void *data) {
    ND__UNCANCELLED;
    nd__look_step(look, data);
    nd__gate_destroy_parked();
}

// ---------------------------------------------------------------------------------------- the cost

/// What one object of a look has cost inside the gate of late; at first, one of a graph that is
/// cold.
static _Atomic uint64_t object_ns = 200;

void nd__look_note_cost(uint64_t objects, uint64_t nanoseconds) {
    enum { ENOUGH_TO_TELL = 256, LONG_ENOUGH_NS = 200000, MOST_RISE = 16 };
    uint64_t before = nd__atomic_load_relaxed(&object_ns),
             each = objects ? nanoseconds / objects : before;
    // Of a few objects the closing itself is the most, but for those with very many edges.
    if (objects < ENOUGH_TO_TELL && nanoseconds < LONG_ENOUGH_NS && each > before)
        return;
    // The thread may have lost its core meanwhile.
    if (each > MOST_RISE * before)
        each = MOST_RISE * before;
    nd__atomic_store(&object_ns, (3 * before + each + 3) / 4, relaxed);
}

/// True when looking at so many objects would keep the gate closed for longer than it may be.
static bool in_steps(const nd_collection *collection, size_t tracked) {
    enum { OBJECT_NS_MIN = 20 };
    if (!collection->pause_ns || nd__atomic_single_threaded())
        return false;
    uint64_t each = nd__atomic_load_relaxed(&object_ns);
    return tracked * (each > OBJECT_NS_MIN ? each : OBJECT_NS_MIN) > collection->pause_ns;
}

// ----------------------------------------------------------------------------------------- at once

/// Marks the garbage as dying and brings it to the front of the array, in order. Returns how many.
static size_t mark_dying(nd_collection *collection) {
    size_t garbage = collection->settled;
    for (size_t i = garbage; i < collection->count; i++) {
        nd__collection_prefetch(collection->objects, collection->count, i);
        if (collection->live[i])
            continue;
        nd_object *object = collection->objects[i];
        collection->objects[garbage] = object;
        nd__collection_mark_dying(collection, object, garbage++, collection->words[i]);
    }
    return garbage;
}

/// Both phases and both passes. Leaves the garbage in objects[0 ... count), marked, with the gate
/// open; what died meanwhile is still parked. A look for which `budget_ns` (0: no limit) does not
/// suffice, or that took too long to tell, is late, and has found nothing; nor has one that is
/// unclear, and waits.
static void find_garbage(nd_collection *collection, nd_manager *const *managers, size_t count,
                         uint64_t budget_ns, bool *ret_room) {
    bool alone = nd__atomic_single_threaded();
    sigset_t signals;
    collection->still =
        alone && collection->expected >= nd__collection_still_from && nd__signals_hold(&signals);
    uint64_t closed_at = close_gate();
    collection->alone = alone;
    collection->began_ns = closed_at;
    collection->leave_ns = budget_ns ? closed_at + budget_ns : UINT64_MAX;
    collection->id = ++last_collection_id;
    for (size_t i = 0; i < count; i++)
        managers[i]->collection = collection->id;
    size_t garbage = nd__collection_discover(collection, managers, count, ret_room);
    if (*ret_room) {
        size_t own = collection->count;
        if (garbage < own && nd__collection_extend(collection) > 0) {
            nd__collection_unsettle(collection);
            garbage = nd__collection_examine(collection);
        }
        collection->report.examined_objects += collection->count;
        if (garbage > collection->settled)
            garbage = nd__collection_recheck(collection);
        collection->late = garbage > 0 && !nd__collection_in_time(collection);
        collection->unclear = collection->elsewhere && garbage < collection->count;
        nd__look_note_cost(collection->count, nd__clock_now_ns() - closed_at);
        if (collection->unclear && !collection->waits && !collection->late)
            collection->report.postponed_objects += collection->count - garbage;
        if (collection->late || (collection->unclear && collection->waits)) {
            nd__collection_unsettle(collection);
            garbage = 0;
        } else if (garbage > collection->settled) {
            garbage = mark_dying(collection);
        }
    }
    collection->count = garbage;
    nd__gate_open();
    if (collection->still)
        nd__signals_let(&signals);
    collection->still = false;
    report_gate_time(collection, closed_at);
}

/// Room for so many objects of managers, those that are made meanwhile, what escaped, and phase 2.
static bool reserve(nd_collection *collection, size_t tracked) {
    return nd__collection_reserve(collection, tracked + tracked / 8 + 64 + collection->recent +
                                                  ND__PHASE2_BUDGET);
}

/// One look, as long as there are more objects than there is room for.
static bool look_at_once(nd_collection *collection, nd_manager *const *managers, size_t count,
                         uint64_t budget_ns) {
    nd__lock_acquire_in_turn(&collection_turn, &collection_lock);
    bool room = false, memory = true, looked = false;
    size_t tracked;
    collection->late = collection->unclear = collection->partly = false;
    while (!room && !collection->late &&
           (tracked = nd__look_count_tracked(managers, count)) + collection->recent > 0) {
        memory = reserve(collection, tracked);
        collection->partly = !memory && nd__collection_reserve_part(collection, tracked);
        if (!memory && !collection->partly)
            break;
        collection->expected = tracked;
        find_garbage(collection, managers, count, budget_ns, &room);
        looked = true;
    }
    nd__lock_release(&collection_lock);
    if (looked)
        nd__gate_destroy_parked(); // runs user code, which may close the gate or wait for a thread that does
    return memory || collection->partly;
}

/// Waits until other threads have destroyed what they had to. What dies from then on dies beside
/// this collection, and need not have cut its edges for it.
static void await_dead(nd_collection *collection) {
    if (!collection->patient_until_ns)
        collection->patient_until_ns = nd__clock_now_ns() + ND__DEAD_PATIENCE_NS;
    collection->waits = nd__dead_await(collection->patient_until_ns);
    collection->elsewhere = !collection->waits;
}

/// Leaves the garbage of the managers in the collection, which is late, and has none, when that
/// takes longer than `budget_ns` (0: no limit) or too long to tell. False when there is no memory
/// for the passes (then nothing has happened).
static bool find_at_once(nd_collection *collection, nd_manager *const *managers, size_t count,
                         uint64_t budget_ns) {
    for (;;) {
        bool memory = look_at_once(collection, managers, count, budget_ns);
        if (!memory || collection->late || !collection->unclear || !collection->waits)
            return memory;
        await_dead(collection);
    }
}

// ---------------------------------------------------------------------------------------- in steps

/// The same in steps; false also when there is no memory for a snapshot.
static bool find_in_steps(nd_collection *collection, nd_manager *const *managers, size_t count) {
    uint64_t pause = collection->pause_ns ? collection->pause_ns : ND__GC_PAUSE_NS;
    if (collection->elsewhere && collection->waits)
        await_dead(collection);
    collection->unclear = collection->elsewhere;
    collection->partly = false;
    return reserve(collection, nd__look_count_tracked(managers, count)) &&
           nd__steps_find(collection, managers, count, pause);
}

// --------------------------------------------------------------------------------------- the whole

bool nd__look_find(nd_collection *collection, nd_manager *const *managers, size_t count) {
    size_t tracked = nd__look_count_tracked(managers, count) + collection->recent;
    bool memory = true, steps = in_steps(collection, tracked);
    collection->missed = collection->partly = false;
    // Before the gate begins to close: what was destroyed by now has cut its edges.
    collection->elsewhere = collection->exact && nd__dead_elsewhere(nd__thread());
    if (!steps) {
        uint64_t budget = nd__atomic_single_threaded() ? 0 : collection->pause_ns;
        memory = find_at_once(collection, managers, count, budget);
        steps = memory && collection->late;
    }
    if (steps && !find_in_steps(collection, managers, count)) {
        memory = find_at_once(collection, managers, count, 0);
        if (collection->late)
            collection->report.postponed_objects += tracked;
    }
    if (collection->missed) // as many as that were, at least one
        collection->report.postponed_objects++;
    return memory;
}

void nd__look_again(nd_collection *collection) {
    enum { TRIES = 3 };
    if (in_steps(collection, collection->count) &&
        nd__steps_examine(collection, collection->pause_ns))
        return;
    bool in_time = false;
    for (int tries = 0; tries < TRIES && !in_time; tries++) {
        nd__lock_acquire_in_turn(&collection_turn, &collection_lock);
        collection->alone = nd__atomic_single_threaded();
        uint64_t closed_at = collection->began_ns = close_gate();
        nd__collection_examine(collection);
        nd__collection_recheck(collection);
        in_time = nd__collection_in_time(collection);
        nd__gate_open();
        nd__lock_release(&collection_lock);
        report_gate_time(collection, closed_at);
    }
    if (!in_time) {
        memset(collection->live, 1, collection->count);
        collection->report.postponed_objects += collection->count;
    }
}
