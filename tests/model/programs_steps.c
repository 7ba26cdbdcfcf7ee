// Programs of collections in steps (lib/gc/steps.c), whatever runs beside them.
#include "lib/gc/steps.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "tests/model/cells.h"
#include "tests/model/programs.h"
#include "tests/model/shared.h"

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

/// A ring of one cell in each of two managers; only the first one's is collected, so the other cell
/// joins by phase 2. The thread has a handle on that one, and hops to the first.
static void setup_ring_across(void) {
    make_managers(2);
    nd_object *first = make(managers[0], 1), *second = make(managers[1], 1);
    nd_edge_set(&cell_of(first)->edges[0], second);
    nd_edge_set(&cell_of(second)->edges[0], first);
    give_up(first);
    handles[0] = 1; // where the thread ends
    handles[1] = 0;
    begin_steps();
}

static void hop_once(void) {
    hop(cells[1], cells[0]);
    must_live(cells[0]);
}

/// What the thread changes is looked at again.
static void setup_looked_at_again(void) {
    make_loop(&cell_type);
    handles[0] = 0;
    nd__steps_rounds = 2;
}

static void release_loop(void) {
    must_live(cells[0]);
    nd_release(cells[0]);
}

/// The same, where the thread keeps the loop: it hands one handle over to an edge and back.
static void setup_kept_and_looked_at_again(void) {
    make_loop(&cell_type);
    nd__steps_rounds = 2;
}

static void retain_and_release(void) {
    nd__object_keep(cells[0]);
    nd_release(cells[0]);
    must_live(cells[0]);
}

const model_program model_steps_programs[] = {
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
    BOUNDED("steps_birth", "a new object takes over a handle between the steps",
            setup_loop_held_in_steps, bear, collect),
    CHECKED("steps_attach", "a member of a live ring moves away between the steps",
            setup_attach_ring_in_steps, attach_first, collect),
    CHECKED("steps_closed_cell", "a member of a live ring is closed between the steps",
            setup_attach_ring_in_steps, close_cell, collect),
    BOUNDED("steps_revived", "a finalizer revives an object beside a weak upgrade",
            setup_reviving_loop_in_steps, upgrade_and_release, collect),
    CHECKED("steps_releasers", "two threads release beside a collection in steps",
            setup_releasers_in_steps, release_first, release_first, collect),
    CHECKED("steps_across", "the hop across two managers beside a collection of one in steps",
            setup_ring_across, hop_once, collect),
    CHECKED("steps_again", "the only handle on a loop is released, and the loop looked at again",
            setup_looked_at_again, release_loop, collect),
    CHECKED("steps_kept", "a held loop is looked at again because it has changed",
            setup_kept_and_looked_at_again, retain_and_release, collect),
    CHECKED("steps_two_collections", "two threads collect a ring in steps",
            setup_weak_ring_in_steps, collect, collect),
};
const size_t model_steps_program_count =
    sizeof model_steps_programs / sizeof model_steps_programs[0];
