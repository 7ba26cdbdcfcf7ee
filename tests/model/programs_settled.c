// Programs of a collection at once that decides over a few objects before it looks at the rest, and
// frees a few before it cuts the edges of the rest.
#include "lib/gc/collection.h"
#include "tests/model/cells.h"
#include "tests/model/programs.h"
#include "tests/model/shared.h"

static void settle_each(void) {
    nd__collection_batch = 1;
}

static void setup_settled_hop(void) {
    settle_each();
    setup_hop();
}

/// The second thread is a signal handler, which only retains and releases.
static void setup_alone_hop(void) {
    nd__model_alone = true;
    setup_settled_hop();
}

static void setup_alone_release(void) {
    nd__model_alone = true;
    settle_each();
    setup_ring_held();
}

static void setup_settled_upgrade(void) {
    settle_each();
    setup_weak_ring();
}

static void setup_settled_ring(void) {
    settle_each();
    setup_ring_held();
}

/// A dead ring, and behind it one that a thread holds.
static void setup_two_rings(void) {
    settle_each();
    make_managers(1);
    make_ring(managers[0], 0, 0);
    nd_object *third = make(managers[0], 2), *fourth = make(managers[0], 1);
    nd_edge_set(&cell_of(third)->edges[0], fourth);
    nd_edge_set(&cell_of(fourth)->edges[0], third);
    give_up(third);
    give_up(fourth);
    handles[2] = 0;
}

static void hop_second_ring(void) {
    hop(cells[2], cells[3]);
    must_live(cells[2]);
    nd_release(cells[3]);
}

/// A ring that only an object behind it holds, which a thread holds.
static void setup_pointed_ring(void) {
    settle_each();
    make_managers(1);
    make_ring(managers[0], 1, 0);
    nd_object *third = make(managers[0], 1);
    nd_edge_set(&cell_of(third)->edges[0], cells[0]);
    give_up(cells[0]);
    handles[2] = 0;
}

static void take_from_third(void) {
    nd_object *taken = nd_edge_take(&cell_of(cells[2])->edges[0]);
    nd_release(cells[2]);
    must_live(taken);
    nd_release(taken);
}

const model_program model_settled_programs[] = {
    CHECKED("settled_hop", "the hop, beside a collection that decides early", setup_settled_hop,
            hop_thrice, collect),
    CHECKED("alone_hop", "the hop by a signal handler, beside a collection with one thread",
            setup_alone_hop, hop_thrice, collect),
    CHECKED("alone_release", "a signal handler releases a handle on a ring", setup_alone_release,
            release_first, collect),
    CHECKED("settled_upgrade", "a weak upgrade against an early decision", setup_settled_upgrade,
            upgrade, collect),
    CHECKED("settled_release", "the only handle on a ring is released beside an early decision",
            setup_settled_ring, release_first, collect),
    CHECKED("settled_birth", "a new object takes over a handle beside an early decision",
            setup_settled_ring, bear, collect),
    CHECKED("settled_before", "a dead ring is decided on before one that a thread holds",
            setup_two_rings, hop_second_ring, collect),
    CHECKED("settled_pointed", "a ring is reached from behind by what a thread holds",
            setup_pointed_ring, take_from_third, collect),
};
const size_t model_settled_program_count =
    sizeof model_settled_programs / sizeof model_settled_programs[0];
