// Programs of managers: they close, are disposed of, exchange objects, have guests, shards and
// caps, beside releases, collections and each other.
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/callback.h"
#include "tests/model/cells.h"
#include "tests/model/programs.h"
#include "tests/model/shared.h"

// ----------------------------------------------------------------------------- G35: sibling closes

static void setup_sibling_rings(void) {
    make_managers(2);
    nd_gc_set_mode(ND_GC_ON);
    make_ring(managers[0], 0, 0);
    make_ring(managers[1], 0, 0);
}

/// A ring across both managers.
static void setup_apart(void) {
    make_managers(2);
    nd_object *first = make(managers[0], 1);
    nd_object *second = make(managers[1], 1);
    nd_edge_set(&cell_of(first)->edges[0], second);
    nd_edge_set(&cell_of(second)->edges[0], first);
    give_up(first);
    give_up(second);
}

static void setup_siblings(void) {
    setup_apart();
    nd_gc_set_mode(ND_GC_ON);
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

// --------------------------------------------------------------------- attach, close and dispose

static void attach_and_release(void) {
    model_assert(nd_manager_attach(managers[1], cells[0]) == ND_OK);
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
    nd_manager_lend(managers[0], cells[0]);
    give_up(cells[0]);
}

// ------------------------------------------------------------------------------ finalizer, closing

static void attach_if_open(void) {
    nd_status status = nd_manager_attach(managers[1], cells[0]);
    model_assert(status == ND_OK || status == ND_ERROR_CLOSED);
}

// ---------------------------------------------------------------------------- more than one writer

static void visit_second(void) {
    nd_status status = nd_manager_lend(managers[1], cells[0]);
    model_assert(status == ND_OK || status == ND_ERROR_CLOSED);
    must_live(cells[0]);
}

static void open_child(void) {
    nd_manager *child = nd_manager_new(managers[0], "child");
    nd_manager_attach(child, cells[0]);
    nd_manager_close(child, NULL);
    nd_release(child);
    must_live(cells[1]);
}

static void setup_child(void) {
    setup_attach_ring();
    managers_made++;
}

// ------------------------------------------------------------------------ collections and managers

static void collect_second(void) {
    model_assert(nd_gc_collect(managers[1], NULL) == ND_OK);
}

static void setup_dead_ring(void) {
    make_managers(1);
    nd_gc_set_mode(ND_GC_ON);
    make_ring(managers[0], 0, 0);
}

/// A dead ring, to which a cell leads that a thread lets go of; and a manager to collect meanwhile.
static void setup_led_to(void) {
    make_managers(2);
    nd_gc_set_mode(ND_GC_ON);
    make_ring(managers[0], 0, 0);
    nd_object *leading = make(managers[0], 1);
    nd_edge_set(&cell_of(leading)->edges[0], cells[0]);
    handles[2] = 0;
    make(managers[1], 1);
}

/// What this thread let go of keeps nothing alive, whoever destroys it.
static void release_and_close_first(void) {
    nd_release(cells[2]);
    close_first();
    model_assert(deaths[0] == 1 && deaths[1] == 1);
}

static void release_in_callback(void *data) {
    (void)data;
    nd_release(cells[2]);
}

/// What every thread does that waits for a device.
static void destroy_deferred(void) {
    nd__callback_destroy_deferred();
}

static void callback_and_close_first(void) {
    nd__callback_run(release_in_callback, NULL, NULL);
    close_first();
    model_assert(deaths[0] == 1 && deaths[1] == 1);
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

// ------------------------------------------------------------------------------------------ shards

static void spread(int manager) {
    nd__shard_spread(managers[manager]);
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

static void setup_spreading_cell(void) {
    setup_spreading();
    make(managers[0], 1);
    handles[0] = 0;
}

static void setup_spreading_ring(void) {
    setup_attach_ring();
    managers_made++;
}

static void spread_first(void) {
    nd__shard_spread(managers[0]);
}

/// A list in the manager, or in its nearest open ancestor.
static void bear_list(void) {
    nd_with_manager(managers[0]) {
        list = nd_list_new();
    }
}

static void spread_and_bear(void) {
    nd__shard_spread(managers[0]);
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

// ------------------------------------------------------------------------------- shards handed up

/// Two cells that escaped to the second manager, which is below the first one.
static void setup_handed_up(void) {
    make_managers(1);
    managers[1] = nd_manager_new(managers[0], "m");
    nd_manager *innermost = nd_manager_new(managers[1], "m");
    model_assert(managers[1] && innermost);
    managers_made += 2;
    nd_object *first = make(innermost, 1);
    nd_object *second = make(innermost, 1);
    nd_edge_set(&cell_of(first)->edges[0], second);
    model_assert(nd_manager_close(innermost, NULL) == ND_OK);
    nd_release(innermost);
}

static void setup_handed_up_release(void) {
    setup_handed_up();
    handles[0] = 0;
}

/// The same, and the first manager has a shard for what escaped, too.
static void setup_handed_up_to_another(void) {
    setup_handed_up();
    nd_manager *sibling = nd_manager_new(managers[0], "m");
    model_assert(sibling);
    make(sibling, 1);
    make(sibling, 1);
    model_assert(nd_manager_close(sibling, NULL) == ND_OK);
    nd_release(sibling);
}

static void attach_to_root(void) {
    model_assert(nd_manager_attach(nd_manager_get_root(), cells[0]) == ND_OK);
}

/// Two are in each, then all of them in the first one.
static void count_in_both(void) {
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    model_assert(nd_manager_get_stats(managers[1], &stats) == ND_OK);
    model_assert(stats.live_objects == 0 || stats.live_objects == 2);
    model_assert(nd_manager_get_stats(managers[0], &stats) == ND_OK);
    model_assert(stats.live_objects == 2 || stats.live_objects == 4);
}

static void place_of_first(void) {
    nd_manager *manager = nd_get_manager_retained(cells[0]);
    model_assert(manager == managers[0] || manager == managers[1]);
    nd_release(manager);
}

const model_program model_managers_programs[] = {
    CHECKED("G35_sibling_closes", "two managers close, and nothing is collected",
            setup_siblings_off, close_first, close_second),
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
    CHECKED("attach_collection", "a member of a live ring moves away beside a collection",
            setup_attach_ring, attach_first, collect),
    CHECKED("attach_close", "an object is attached to a manager that closes", setup_attach_ring,
            attach_if_open, close_second),
    CHECKED("visit_close", "an object visits a manager that closes", setup_attach_ring,
            visit_second, close_second),
    CHECKED("child_collection", "a child manager comes and goes beside a collection", setup_child,
            open_child, collect),
    CHECKED("two_collections_apart", "two managers are collected that share a ring", setup_apart,
            collect, collect_second),
    CHECKED("visit_collection", "a member of a live ring goes on a visit beside a collection",
            setup_attach_ring, visit_second, collect_all),
    CHECKED("recycled_manager", "a manager ends as another one begins", setup_recycled,
            release_manager, make_manager),
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
     0,
     0},
    CHECKED("spreading_birth", "an object is made in a manager that gets shards", setup_spreading,
            spread_first, bear_list),
    CHECKED("spreading_release", "an object dies as its manager gets shards", setup_spreading_cell,
            spread_first, release_first),
    CHECKED("spreading_attach", "an object moves away as its manager gets shards",
            setup_spreading_ring, spread_first, attach_first),
    CHECKED("spreading_collection", "a manager gets shards as it is collected",
            setup_spreading_ring, spread_first, collect_all),
    CHECKED("spreading_close", "a manager gets shards as it closes", setup_spreading,
            spread_and_bear, close_first),
    CHECKED("handed_up_attach", "an object is attached elsewhere as its shard is handed up",
            setup_handed_up, close_second, attach_to_root),
    CHECKED("handed_up_release", "an object dies as its shard is handed up",
            setup_handed_up_release, close_second, release_first),
    CHECKED("handed_up_place", "an object's manager is asked for as its shard is handed up",
            setup_handed_up, close_second, place_of_first),
    CHECKED("handed_up_count", "objects are counted as their shard is handed up",
            setup_handed_up_to_another, close_second, count_in_both),
    CHECKED("handed_up_twice", "two managers close, one below the other, and hand up a shard",
            setup_handed_up, close_second, close_first),
    CHECKED("handed_up_to_another", "shards are exchanged as an object moves away",
            setup_handed_up_to_another, close_second, attach_to_root),
    BOUNDED("handed_up_collection", "a shard is handed up beside a collection", setup_handed_up,
            close_second, collect),
    BOUNDED("close_parked", "a manager closes whose cell died as another one was collected",
            setup_led_to, release_and_close_first, collect_second),
    CHECKED("close_deferred", "a manager closes whose cell died in a callback", setup_led_to,
            callback_and_close_first, destroy_deferred),
    BOUNDED("close_collection", "a manager with a dead ring closes beside its collection",
            setup_dead_ring, close_first, collect_all),
    BOUNDED("G35_shared_ring", "two managers close that share a ring", setup_siblings, close_first,
            close_second),
    BOUNDED("G35_sibling_rings", "two managers close, a ring in each", setup_sibling_rings,
            close_first, close_second),
};
const size_t model_managers_program_count =
    sizeof model_managers_programs / sizeof model_managers_programs[0];
