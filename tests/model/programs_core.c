// Programs of the protocol between threads and one collection at once: counts, edges, weak
// references, finalizers, births and deaths. Managers stay open and do not exchange objects.
#include "lib/base/atomics.h"
#include "lib/base/thread.h"
#include "lib/object/callback.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "tests/model/cells.h"
#include "tests/model/programs.h"
#include "tests/model/shared.h"

// --------------------------------------------------------------------------------- G29, G33: hops

static void setup_hop_at_wrap(void) {
    setup_hop();
    for (int i = 0; i < 2; i++)
        nd__atomic_store(&cells[i]->word,
                         nd__atomic_load_relaxed(&cells[i]->word) | UINT64_C(0xFFFFFFFF) << 32,
                         relaxed);
}

// ------------------------------------------------------------------------------------ G30: an edge

static void setup_take(void) {
    setup_hop();
}

// --------------------------------------------------------------------------------- G31: releasers

static void setup_two_alone(void) {
    make_managers(1);
    make(managers[0], 1);
    make(managers[0], 1);
    handles[0] = handles[1] = 0;
}

static void release_other(void) {
    nd_release(cells[1]);
}

// -------------------------------------------------------------------------- G34: an unrelated one

static void setup_hot(void) {
    make_managers(1);
    make_ring(managers[0], 0, 0);
    make(managers[0], 1);
}

static void heat(void) {
    nd__object_keep(cells[2]);
    nd_release(cells[2]);
    nd__object_keep(cells[2]);
    nd_release(cells[2]);
}

static void collect_ring(void) {
    collect();
    model_assert(deaths[0] == 1 && deaths[1] == 1);
}

// ----------------------------------------------------------------------------------- weak upgrades

static void setup_weak(void) {
    setup_release();
    weak = nd_weak_new(cells[0]);
    model_name(weak, "weak");
}

static void setup_weak_hop(void) {
    make_managers(1);
    make_ring(managers[0], 0, 1);
    weak = nd_weak_new(cells[0]);
    model_name(weak, "weak");
    handles[1] = 0;
    handles[0] = 1;
}

static void hop_once(void) {
    hop(cells[1], cells[0]);
    must_live(cells[0]);
}

// ------------------------------------------------------------------------- threads begin and end

static void setup_late_thread(void) {
    threads_begin_late = true;
    make_managers(1);
    make_ring(managers[0], 1, 0);
}

static void relink(void) {
    nd_edge_set(&cell_of(cells[0])->edges[1], cells[0]);
}

// ------------------------------------------------------------------------------- births and lists

static void setup_list(void) {
    make_managers(1);
    nd_with_manager(managers[0]) {
        list = nd_list_new();
    }
    model_name(list, "list");
    make(managers[0], 1);
    handles[0] = 0;
}

static void append(void) {
    model_assert(nd_list_append(list, cells[0]) == ND_OK);
    nd_release(cells[0]);
    must_live(nd_list_get(list, 0));
}

// ------------------------------------------------------------------------------ finalizer, closing

static void setup_reviving(void) {
    make_managers(1);
    nd_object *first = make_of(&reviving_type, managers[0], 1);
    nd_object *second = make(managers[0], 1);
    nd_edge_set(&cell_of(first)->edges[0], second);
    nd_edge_set(&cell_of(second)->edges[0], first);
    weak = nd_weak_new(second);
    model_name(weak, "weak");
    give_up(first);
    give_up(second);
}

static void upgrade_second(void) {
    nd_object *got = nd_weak_get(weak);
    if (!got)
        return;
    must_live(cells[1]);
    must_live(cells[0]);
    nd_release(got);
}

// ---------------------------------------------------------------------------- more than one writer

static void setup_writers(void) {
    make_managers(1);
    make_ring(managers[0], 1, 1);
}

static void write_first(void) {
    nd_edge_set(&cell_of(cells[0])->edges[1], cells[0]);
}

static void write_second(void) {
    nd_object *taken = nd_edge_take(&cell_of(cells[1])->edges[0]);
    must_live(taken);
    nd_release(taken);
}

static void leave_ring(void) {
    make_ring(managers[0], 0, 0);
}

static void setup_leave_ring(void) {
    threads_begin_late = true;
    make_managers(1);
    make(managers[0], 1);
}

static void make_weak(void) {
    nd_weak *made_weak = nd_weak_new(cells[0]);
    nd_release(cells[0]);
    nd_object *got = nd_weak_get(made_weak);
    nd_release(got);
    nd_release(made_weak);
}

// --------------------------------------------------------------------- G37: callbacks of a device

static void release_first_in_callback(void) {
    nd__callback_run(NULL, NULL, cells[0]);
}

static void release_other_in_callback(void) {
    nd__callback_run(NULL, NULL, cells[1]);
}

// ------------------------------------------------------------------------ collections and managers

static void setup_reviving_held(void) {
    setup_reviving();
    nd_release(weak);
    weak = NULL;
    nd__object_keep(cells[1]);
}

static void release_second(void) {
    must_live(cells[1]);
    nd_release(cells[1]);
}

// --------------------------------------------------------------------------------------- mode warn

static void say_nothing(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)path, (void)objects, (void)bytes, (void)data;
}

static void setup_warned(void) {
    setup_weak_ring();
    nd_gc_set_mode(ND_GC_WARN);
    nd_gc_set_cycle_callback(say_nothing, NULL);
}

static void finish_warned(void) {
    nd_gc_set_mode(ND_GC_ON);
    finish();
}

// ------------------------------------------------------------- threads that the gate does not know

static void setup_unlisted(void) {
    threads_begin_late = true;
    setup_take();
    model_unlist_thread(0);
}

static void setup_unlisted_writers(void) {
    threads_begin_late = true;
    setup_writers();
    model_unlist_thread(0);
    model_unlist_thread(1);
}

// --------------------------------------------------------- a barrier that is forbidden from now on

/// The main thread, which is over, is none on whose account the slow barrier is taken.
static void refuse_barrier(void) {
    nd__model_barrier_refused = true;
    nd__atomic_store(&nd__thread()->fences, 1, relaxed);
}

static void setup_refused(void) {
    refuse_barrier();
    setup_take();
}

static void setup_unlisted_refused(void) {
    refuse_barrier();
    setup_unlisted();
}

/// The second time as one that was told to fence.
static void take_edge_later(void) {
    nd__gate_enter();
    nd__gate_leave();
    take_edge();
}

static void collect_twice(void) {
    collect();
    collect();
}

// ------------------------------------------------------------------------------ the age of edges

static void setup_ages(void) {
    make_managers(1);
    nd__gate_ages = true;
    nd__gate_note_edge();
}

/// Asks, as a new manager does; writes an edge; asks again, as that manager does when it closes.
static void write_since(void) {
    uint64_t age = nd__gate_edge_age();
    nd__gate_note_edge();
    model_assert(nd__gate_edges_since(age));
}

const model_program model_core_programs[] = {
    CHECKED("G29_hop", "a thread hops between two objects of a ring beside a collection", setup_hop,
            hop_thrice, collect),
    CHECKED("G30_taken_edge", "an edge is taken, and the object that held it released", setup_take,
            take_edge, collect),
    CHECKED("G31_releasers", "two threads release, one frees", setup_releasers, release_first,
            release_first),
    CHECKED("G31_releasers_collected", "two threads release beside a collection", setup_releasers,
            release_first, release_first, collect),
    CHECKED("G32_last_release", "the last release as the gate closes", setup_release, release_first,
            collect),
    CHECKED("G33_version_wraps", "the hop with the version at its last value", setup_hop_at_wrap,
            hop_thrice, collect),
    CHECKED("G34_hot_object", "garbage is found beside an object that is retained and released",
            setup_hot, heat, collect_ring),
    CHECKED("G36_rewired_ring", "a live ring is rewired beside a collection", setup_rewire, rewire,
            collect),
    CHECKED("weak_release", "a weak upgrade against the last release", setup_weak, upgrade,
            release_first),
    CHECKED("weak_collection", "a weak upgrade against the collection of its target",
            setup_weak_ring, upgrade, collect),
    CHECKED("collection_release", "the only handle on a ring is released beside a collection",
            setup_ring_held, release_first, collect),
    CHECKED("two_collections", "two threads collect the same ring", setup_weak_ring, collect,
            collect),
    CHECKED("late_thread", "a thread writes its first edge and ends beside a collection",
            setup_late_thread, relink, collect),
    CHECKED("G38_birth", "a new object takes over a handle beside a collection", setup_ring_held,
            bear, collect),
    CHECKED("list_growth", "a list grows beside a collection", setup_list, append, collect),
    CHECKED("revived", "a finalizer revives a ring beside a weak upgrade", setup_reviving,
            upgrade_second, collect),
    {"warned",
     "a dead ring is found and left by two collections that only warn",
     setup_warned,
     {collect, collect_all},
     finish_warned,
     30000,
     0},
    CHECKED("closed_cell", "a member of a live ring is closed beside a collection",
            setup_attach_ring, close_cell, collect),
    CHECKED("hop_upgrade", "hop, weak upgrade and collection", setup_weak_hop, hop_once, upgrade,
            collect),
    CHECKED("two_writers", "two threads write edges of a ring beside a collection", setup_writers,
            write_first, write_second, collect),
    CHECKED("G39_ring_left", "a thread leaves a ring and ends beside a collection",
            setup_leave_ring, leave_ring, collect),
    CHECKED("weak_new", "a weak reference is made beside the last release", setup_attach, make_weak,
            release_first),
    CHECKED("revived_release", "a ring with a finalizer is released beside a collection",
            setup_reviving_held, release_second, collect),
    CHECKED("G37_callback", "the last release in a device's callback beside a collection",
            setup_release, release_first_in_callback, collect),
    CHECKED("G37_callback_ring", "the only handle on a ring is released in such a callback",
            setup_ring_held, release_first_in_callback, collect),
    CHECKED("G37_callback_releasers", "two threads release, one in such a callback",
            setup_releasers, release_first_in_callback, release_first),
    BOUNDED("G37_two_callbacks", "two objects die in callbacks beside a collection",
            setup_two_alone, release_first_in_callback, release_other_in_callback, collect),
    CHECKED("unlisted_writer", "a thread that is in no registry takes an edge", setup_unlisted,
            take_edge, collect),
    BOUNDED("unlisted_writers", "two such threads write edges of a ring beside a collection",
            setup_unlisted_writers, write_first, write_second, collect),
    CHECKED("unlisted_refused", "a thread that is in no registry, and no barrier",
            setup_unlisted_refused, take_edge, collect),
    CHECKED("barrier_refused", "an edge is taken as the barrier is forbidden", setup_refused,
            take_edge, collect),
    BOUNDED("barrier_refused_since", "an edge is taken after the barrier was forbidden",
            setup_refused, take_edge_later, collect_twice),
    CHECKED("ages", "two threads ask how old their managers are, and write edges", setup_ages,
            write_since, write_since),
    BOUNDED("two_parked", "two objects die as the gate closes", setup_two_alone, release_first,
            release_other, collect),
};
const size_t model_core_program_count = sizeof model_core_programs / sizeof model_core_programs[0];
