// The small programs: two or three threads, two to four objects, one thing that could go wrong.
//
// Each program's setup builds its cells and managers (cells.h) and says in `handles` which handles
// finish has to release: those of which no thread gets rid.
#include "tests/model/programs.h"
#include "lib/core/gate.h"
#include "lib/core/manager_internal.h"
#include "tests/model/cells.h"

static void collect(void) {
    nd_gc_report report = ND_GC_REPORT_INIT;
    model_assert(nd_gc_collect(managers[0], &report) == ND_OK);
    model_assert(report.broken_objects == 0);
}

// --------------------------------------------------------------------------------- G29, G33: hops

static void setup_hop(void) {
    make_managers(1);
    make_ring(managers[0], 0, 1);
    handles[1] = 0;
    handles[0] = 1; // where the thread ends
}

static void hop(nd_object *from, nd_object *to) {
    nd__keep(to);
    nd_release(from);
}

static void hop_thrice(void) {
    hop(cells[1], cells[0]);
    hop(cells[0], cells[1]);
    hop(cells[1], cells[0]);
    must_live(cells[0]);
    must_live(cells[1]);
}

static void setup_hop_at_wrap(void) {
    setup_hop();
    for (int i = 0; i < 2; i++)
        nd__atomic_store(&cells[i]->word,
                         nd__load_relaxed(&cells[i]->word) | UINT64_C(0xFFFFFFFF) << 32, relaxed);
}

// ------------------------------------------------------------------------------------ G30: an edge

static void setup_take(void) {
    setup_hop();
}

static void take_edge(void) {
    nd_object *taken = nd_edge_take(&cell_of(cells[1])->edges[0]);
    model_assert(taken == cells[0]);
    nd_release(cells[1]);
    must_live(taken);
}

// --------------------------------------------------------------------------------- G31: releasers

static void setup_releasers(void) {
    make_managers(1);
    nd_object *first = make(managers[0], 3);
    nd_object *second = make(managers[0], 1);
    nd_edge_set(&cell_of(first)->edges[0], second);
    give_up(second);
    give_up(first);
    handles[0] = 0;
}

static void release_first(void) {
    nd_release(cells[0]);
}

static void setup_release(void) {
    setup_releasers();
    nd_release(cells[0]);
}

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
    nd__keep(cells[2]);
    nd_release(cells[2]);
    nd__keep(cells[2]);
    nd_release(cells[2]);
}

static void collect_ring(void) {
    collect();
    model_assert(deaths[0] == 1 && deaths[1] == 1);
}

// ----------------------------------------------------------------------------- G35: sibling closes

static void setup_sibling_rings(void) {
    make_managers(2);
    nd_gc_set_mode(ND_GC_ON);
    make_ring(managers[0], 0, 0);
    make_ring(managers[1], 0, 0);
}

static void setup_siblings(void) {
    make_managers(2);
    nd_gc_set_mode(ND_GC_ON);
    nd_object *first = make(managers[0], 1);
    nd_object *second = make(managers[1], 1);
    nd_edge_set(&cell_of(first)->edges[0], second);
    nd_edge_set(&cell_of(second)->edges[0], first);
    give_up(first);
    give_up(second);
}

static void close_first(void) {
    model_assert(nd_manager_close(managers[0], NULL) == ND_OK);
}

static void setup_siblings_off(void) {
    make_managers(2);
    make(managers[0], 1);
    make(managers[1], 1);
}

static void close_second(void) {
    model_assert(nd_manager_close(managers[1], NULL) == ND_OK);
}

// ------------------------------------------------------------------------------- G36: live rewired

static void setup_rewire(void) {
    make_managers(1);
    make_ring(managers[0], 1, 0);
}

static void rewire(void) {
    cell *held = cell_of(cells[0]);
    nd_edge_set(&held->edges[1], held->edges[0]);
    nd_edge_clear(&held->edges[0]);
    must_live(cells[1]);
}

// ----------------------------------------------------------------------------------- weak upgrades

static void setup_weak(void) {
    setup_release();
    weak = nd_weak_new(cells[0]);
    model_name(weak, "weak");
}

static void setup_weak_ring(void) {
    make_managers(1);
    make_ring(managers[0], 0, 1);
    weak = nd_weak_new(cells[0]);
    model_name(weak, "weak");
    give_up(cells[1]);
}

static void upgrade(void) {
    nd_object *got = nd_weak_get(weak);
    if (!got)
        return;
    must_live(got);
    must_live(cells[1]);
    found = got;
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

// -------------------------------------------------------------------------- collection and release

static void setup_ring_held(void) {
    make_managers(1);
    make_ring(managers[0], 1, 0);
    handles[0] = 0;
}

// --------------------------------------------------------------------- attach, close and dispose

static void setup_attach(void) {
    make_managers(2);
    make(managers[0], 2);
    handles[0] = 0;
}

static void attach_and_release(void) {
    model_assert(nd_attach(managers[1], cells[0]) == ND_OK);
    nd_release(cells[0]);
}

static void setup_close(void) {
    setup_release();
    nd_gc_set_mode(ND_GC_ON);
}

static void setup_close_ring(void) {
    setup_ring_held();
    nd_gc_set_mode(ND_GC_ON);
}

static void dispose_first(void) {
    model_assert(nd_manager_dispose(managers[0], NULL) == ND_OK);
}

// ------------------------------------------------------------------------------------- temporaries

static void setup_guests(void) {
    make_managers(2);
    make_ring(managers[1], 1, 0);
    nd_temp_attach(managers[0], cells[0]);
    give_up(cells[0]);
}

static void collect_all(void) {
    model_assert(nd_gc_collect(NULL, NULL) == ND_OK);
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

/// A new cell takes over the thread's handle on the ring, and is let go.
static void bear(void) {
    nd_object *born = make(managers[0], 1);
    nd_edge_set(&cell_of(born)->edges[0], cells[0]);
    nd_release(cells[0]);
    must_live(cells[0]);
    give_up(born);
}

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

static void close_cell(void) {
    model_assert(nd_close(cells[0]) == ND_OK);
    model_assert(nd_is_closed(cells[0]));
}

static void attach_first(void) {
    model_assert(nd_attach(managers[1], cells[0]) == ND_OK);
    must_live(cells[1]);
}

static void setup_attach_ring(void) {
    make_managers(2);
    make_ring(managers[0], 1, 0);
}

static void attach_if_open(void) {
    nd_status status = nd_attach(managers[1], cells[0]);
    model_assert(status == ND_OK || status == ND_ERROR_CLOSED);
}

// ------------------------------------------------------------------------------ more than one writer

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

static void visit_second(void) {
    nd_status status = nd_temp_attach(managers[1], cells[0]);
    model_assert(status == ND_OK || status == ND_ERROR_CLOSED);
    must_live(cells[0]);
}

static void open_child(void) {
    nd_manager *child = nd_manager_new(managers[0], "child");
    nd_attach(child, cells[0]);
    nd_manager_close(child, NULL);
    nd_release(child);
    must_live(cells[1]);
}

static void setup_child(void) {
    setup_attach_ring();
    managers_made++;
}

// ------------------------------------------------------------------------ collections and managers

static void setup_apart(void) {
    make_managers(2);
    nd_object *first = make(managers[0], 1);
    nd_object *second = make(managers[1], 1);
    nd_edge_set(&cell_of(first)->edges[0], second);
    nd_edge_set(&cell_of(second)->edges[0], first);
    give_up(first);
    give_up(second);
}

static void collect_second(void) {
    model_assert(nd_gc_collect(managers[1], NULL) == ND_OK);
}

static void setup_dead_ring(void) {
    make_managers(1);
    nd_gc_set_mode(ND_GC_ON);
    make_ring(managers[0], 0, 0);
}

static void setup_reviving_held(void) {
    setup_reviving();
    nd_release(weak);
    weak = NULL;
    nd__keep(cells[1]);
}

static void release_second(void) {
    must_live(cells[1]);
    nd_release(cells[1]);
}

// -------------------------------------------------------------------------------- managers' memory

static void setup_recycled(void) {
    make_managers(1);
    managers_made++;
}

static void release_manager(void) {
    nd_manager *last = managers[0];
    managers[0] = NULL;
    nd_release(last);
}

static void make_manager(void) {
    nd_manager *recycled = nd_manager_new(NULL, "n");
    model_assert(recycled && nd_manager_is_open(recycled));
    nd_manager_close(recycled, NULL);
    nd_release(recycled);
}

// ------------------------------------------------------------------------------- collections in steps

/// One object's edges to a step, and the gate open between the steps.
static void begin_steps(void) {
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    model_assert(nd_manager_set_gc_policy(NULL, &policy) == ND_OK);
}

static void setup_hop_in_steps(void) {
    setup_hop();
    begin_steps();
}

/// One cell that points to itself: few steps, so that all of their interleavings can be run.
static nd_object *make_loop(const nd_type *type) {
    make_managers(1);
    nd_object *loop = make_of(type, managers[0], 1);
    nd_edge_set(&cell_of(loop)->edges[0], loop);
    begin_steps();
    return loop;
}

static void setup_weak_loop_in_steps(void) {
    nd_object *loop = make_loop(&cell_type);
    weak = nd_weak_new(loop);
    model_name(weak, "weak");
    give_up(loop);
}

static void upgrade_loop(void) {
    found = nd_weak_get(weak);
    if (found)
        must_live(found);
}

static void setup_loop_held_in_steps(void) {
    make_loop(&cell_type);
    handles[0] = 0;
}

static void setup_reviving_loop_in_steps(void) {
    nd_object *loop = make_loop(&reviving_type);
    weak = nd_weak_new(loop);
    model_name(weak, "weak");
    give_up(loop);
}

static void upgrade_and_release(void) {
    nd_object *got = nd_weak_get(weak);
    if (got)
        must_live(got);
    nd_release(got);
}

/// The loop's manager is collected in steps, the root at once.
static void setup_loop_in_steps_below(void) {
    nd_object *loop = make_loop(&cell_type);
    give_up(loop);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 0;
    model_assert(nd_manager_set_gc_policy(NULL, &policy) == ND_OK);
    policy.pause_ns = 1;
    model_assert(nd_manager_set_gc_policy(managers[0], &policy) == ND_OK);
}

static void setup_weak_ring_in_steps(void) {
    setup_weak_ring();
    begin_steps();
}

static void setup_releasers_in_steps(void) {
    setup_releasers();
    begin_steps();
}

static void setup_rewire_in_steps(void) {
    setup_rewire();
    begin_steps();
}

static void setup_ring_held_in_steps(void) {
    setup_ring_held();
    begin_steps();
}

static void setup_attach_ring_in_steps(void) {
    setup_attach_ring();
    begin_steps();
}

/// A points to C; the thread holds A and B.
static void setup_moved(void) {
    make_managers(1);
    nd_object *first = make(managers[0], 1);
    make(managers[0], 1);
    nd_object *taken = make(managers[0], 1);
    nd_edge_set(&cell_of(first)->edges[0], taken);
    give_up(taken);
    handles[0] = handles[1] = 0;
    handles[2] = 1;
    begin_steps();
}

/// Takes C out of A, and moves the handles of A and B into edges of B, as an exchange of gradients
/// does: no count changes.
static void move_around(void) {
    nd__gate_enter();
    nd_object *taken = nd_edge_take(&cell_of(cells[0])->edges[0]);
    cell_of(cells[1])->edges[0] = cells[0];
    cell_of(cells[1])->edges[1] = cells[1];
    nd__gate_leave();
    must_live(taken);
}

// ------------------------------------------------------------------------------------------ shards

static void spread(int manager) {
    nd__manager_spread(managers[manager]);
    model_assert(nd__shard_count(managers[manager]) > 1);
    managers_made++; // the shards' memory stays, too
}

static void setup_spread(void) {
    make_managers(1);
    spread(0);
}

static void setup_spread_attach(void) {
    setup_attach_ring();
    spread(0);
    spread(1);
}

static void setup_spreading(void) {
    make_managers(1);
    managers_made++;
}

/// A list in the manager, or in its nearest open ancestor.
static void bear_list(void) {
    nd_with_manager(managers[0]) {
        list = nd_list_new();
    }
}

static void spread_and_bear(void) {
    nd__manager_spread(managers[0]);
    bear_list();
}

/// Room for one: another object, if that is still to be had.
static void cap_first(void) {
    model_assert(nd_manager_set_cap(managers[0], 1) == ND_OK);
    nd_with_manager(managers[0]) {
        found = (nd_object *)nd_list_new();
    }
}

static void finish_capped(void) {
    model_assert(!list != !found);
    finish();
}

#define CHECKED(name, what, setup, ...) \
    { name, what, setup, {__VA_ARGS__}, finish, 0 }
/// Too many interleavings for a test.
#define BOUNDED(name, what, setup, ...) \
    { name, what, setup, {__VA_ARGS__}, finish, 50000 }

const model_program model_programs[] = {
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
    CHECKED("G35_sibling_closes", "two managers close, and nothing is collected",
            setup_siblings_off, close_first, close_second),
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
    CHECKED("attach_release", "an object is attached elsewhere while others release it",
            setup_attach, attach_and_release, release_first),
    CHECKED("close_release", "a manager closes against the last release", setup_close, close_first,
            release_first),
    CHECKED("close_ring_release", "a manager closes against the release of its ring",
            setup_close_ring, close_first, release_first),
    CHECKED("dispose_release", "a manager is disposed of against the last release", setup_close,
            dispose_first, release_first),
    CHECKED("guests_collection", "a manager with a guest in a dead ring closes beside a collection",
            setup_guests, close_first, collect_all),
    CHECKED("late_thread", "a thread writes its first edge and ends beside a collection",
            setup_late_thread, relink, collect),
    CHECKED("G38_birth", "a new object takes over a handle beside a collection", setup_ring_held,
            bear, collect),
    CHECKED("list_growth", "a list grows beside a collection", setup_list, append, collect),
    CHECKED("revived", "a finalizer revives a ring beside a weak upgrade", setup_reviving,
            upgrade_second, collect),
    CHECKED("closed_cell", "a member of a live ring is closed beside a collection",
            setup_attach_ring, close_cell, collect),
    CHECKED("attach_collection", "a member of a live ring moves away beside a collection",
            setup_attach_ring, attach_first, collect),
    CHECKED("attach_close", "an object is attached to a manager that closes", setup_attach_ring,
            attach_if_open, close_second),
    CHECKED("hop_upgrade", "hop, weak upgrade and collection", setup_weak_hop, hop_once, upgrade,
            collect),
    CHECKED("two_writers", "two threads write edges of a ring beside a collection", setup_writers,
            write_first, write_second, collect),
    CHECKED("G39_ring_left", "a thread leaves a ring and ends beside a collection",
            setup_leave_ring, leave_ring, collect),
    CHECKED("weak_new", "a weak reference is made beside the last release", setup_attach, make_weak,
            release_first),
    CHECKED("visit_close", "an object visits a manager that closes", setup_attach_ring,
            visit_second, close_second),
    CHECKED("child_collection", "a child manager comes and goes beside a collection", setup_child,
            open_child, collect),
    CHECKED("two_collections_apart", "two managers are collected that share a ring", setup_apart,
            collect, collect_second),
    CHECKED("visit_collection", "a member of a live ring goes on a visit beside a collection",
            setup_attach_ring, visit_second, collect_all),
    CHECKED("revived_release", "a ring with a finalizer is released beside a collection",
            setup_reviving_held, release_second, collect),
    CHECKED("recycled_manager", "a manager ends as another one begins", setup_recycled,
            release_manager, make_manager),
    CHECKED("steps_collection", "a collection at once beside one in steps",
            setup_loop_in_steps_below, collect, collect_all),
    CHECKED("steps_hop", "the hop beside a collection in steps", setup_hop_in_steps, hop_thrice,
            collect),
    CHECKED("steps_take", "an edge is taken beside a collection in steps", setup_hop_in_steps,
            take_edge, collect),
    CHECKED("steps_moved", "handles are moved into edges that are still to be seen", setup_moved,
            move_around, collect),
    CHECKED("steps_upgrade", "a weak upgrade against a collection in steps",
            setup_weak_loop_in_steps, upgrade_loop, collect),
    CHECKED("steps_rewired", "a live ring is rewired between the steps", setup_rewire_in_steps,
            rewire, collect),
    CHECKED("steps_release", "the only handle on a ring is released between the steps",
            setup_ring_held_in_steps, release_first, collect),
    CHECKED("steps_birth", "a new object takes over a handle between the steps",
            setup_loop_held_in_steps, bear, collect),
    CHECKED("steps_attach", "a member of a live ring moves away between the steps",
            setup_attach_ring_in_steps, attach_first, collect),
    CHECKED("steps_closed_cell", "a member of a live ring is closed between the steps",
            setup_attach_ring_in_steps, close_cell, collect),
    BOUNDED("steps_revived", "a finalizer revives an object beside a weak upgrade",
            setup_reviving_loop_in_steps, upgrade_and_release, collect),
    CHECKED("steps_releasers", "two threads release beside a collection in steps",
            setup_releasers_in_steps, release_first, release_first, collect),
    CHECKED("spread_birth", "an object is made in a manager with shards, which closes",
            setup_spread, bear_list, close_first),
    CHECKED("spread_birth_collection", "the same beside a collection", setup_spread, bear_list,
            collect_all),
    CHECKED("spread_attach", "an object is attached to a manager with shards, which closes",
            setup_spread_attach, attach_if_open, close_second),
    CHECKED("spread_attach_collection", "an object goes from shard to shard beside a collection",
            setup_spread_attach, attach_first, collect),
    {"spread_cap",
     "a manager with shards gets a cap as an object is made in it",
     setup_spread,
     {bear_list, cap_first},
     finish_capped,
     0},
    CHECKED("spreading_close", "a manager gets shards as it closes", setup_spreading,
            spread_and_bear, close_first),
    CHECKED("steps_two_collections", "two threads collect a ring in steps",
            setup_weak_ring_in_steps, collect, collect),
    BOUNDED("two_parked", "two objects die as the gate closes", setup_two_alone, release_first,
            release_other, collect),
    BOUNDED("close_collection", "a manager with a dead ring closes beside its collection",
            setup_dead_ring, close_first, collect_all),
    BOUNDED("G35_shared_ring", "two managers close that share a ring", setup_siblings, close_first,
            close_second),
    BOUNDED("G35_sibling_rings", "two managers close, a ring in each", setup_sibling_rings,
            close_first, close_second),
};
const size_t model_program_count = sizeof model_programs / sizeof model_programs[0];
