// Finalizers and destructors around a collection: G20 to G25.
//
// What is promised: weak references to garbage are cleared first, then their callbacks run
// (weak_references.c), then finalizers, each with all edges of all members still in place; then
// edges are cut and destructors run. A finalizer runs once in an object's life.
#include "tests/behaviour/finalized.h"
#include <pthread.h>

static void test_G20_finalizer_in_a_cycle_runs_once(void **state) {
    (void)state;
    begin(3);
    nd_object *ring[3];
    finalized_ring(ring, 3, 1);
    assert_int_equal(collect(NULL).collected_objects, 0);
    assert_int_equal(finalized[0], 0);
    release_all(ring, 3);
    nd_gc_report report = collect(NULL);
    assert_int_equal(report.collected_objects, 3);
    assert_int_equal(report.revived_objects, 0);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(finalized[i], 1);
        assert_int_equal(cell_deaths(i), 1);
    }
}

static void test_G20_finalizer_of_an_acyclic_object_runs_once(void **state) {
    (void)state;
    begin(2);
    nd_object *holder = cell_new(1, 1);
    nd_object *x = cell_new_of(&cell_finalized_type, 0, 0);
    cell_link(holder, 0, x);
    nd_release(x);
    assert_int_equal(finalized[0], 0);
    nd_release(holder);
    assert_int_equal(finalized[0], 1);
    assert_int_equal(cell_deaths(0), 1);
}

static nd_object *revived;

static void revive_number_0(nd_object *self) {
    count_finalized(self);
    if (cell_of(self)->number == 0)
        revived = nd_retain(self);
}

static void test_G21_revived_object_and_all_it_reaches_live(void **state) {
    (void)state;
    begin(6);
    cell_on_finalize = revive_number_0;
    // 0 and 1 are a ring, 0 reaches 2; 3 and 4 are another ring that reaches 5 and the first one,
    // which does not reach it.
    nd_object *first[2], *second[2] = {cell_new(3, 2), cell_new(4, 2)};
    finalized_ring(first, 2, 2);
    nd_object *reached = cell_new(2, 0), *lost = cell_new(5, 0);
    cell_link(first[0], 1, reached);
    cell_ring(second, 2);
    cell_link(second[0], 1, lost);
    cell_link(second[1], 1, first[1]);
    nd_release(reached);
    nd_release(lost);
    release_all(first, 2);
    release_all(second, 2);

    nd_gc_report report = collect(NULL);
    assert_int_equal(report.collected_objects, 3);
    assert_int_equal(report.revived_objects, 3);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(cell_deaths(i), 0);
    for (uint32_t i = 3; i < 6; i++)
        assert_int_equal(cell_deaths(i), 1);
    assert_int_equal(nd_get_count(revived), 2);
    nd_object *other = cell_of(revived)->edges[0];
    assert_int_equal(cell_of(other)->number, 1);
    assert_int_equal(nd_get_count(other), 1); // its count from the second ring is gone
    assert_int_equal(cell_of(cell_of(revived)->edges[1])->number, 2);
    assert_ptr_equal(nd_get_manager(revived), nd_manager_get_root());

    // The second death runs no finalizer.
    nd_release(revived);
    assert_int_equal(collect(NULL).collected_objects, 3);
    assert_int_equal(finalized[0], 1);
    assert_int_equal(finalized[1], 1);
    for (uint32_t i = 0; i < 6; i++)
        assert_int_equal(cell_deaths(i), 1);
}

static void test_G21_acyclic_object_revives_itself(void **state) {
    (void)state;
    for (int nested = 0; nested < 2; nested++) {
        begin(2);
        cell_on_finalize = revive_number_0;
        uint64_t before = nd_manager_get_total_objects(NULL);
        nd_object *x = cell_new_of(&cell_finalized_type, 0, 0);
        if (nested) {
            nd_object *holder = cell_new(1, 1);
            cell_link(holder, 0, x);
            nd_release(x);
            nd_release(holder);
            assert_int_equal(cell_deaths(1), 1);
        } else {
            nd_release(x);
        }
        assert_int_equal(cell_deaths(0), 0);
        assert_int_equal(nd_get_count(revived), 1);
        assert_non_null(nd_get_manager(revived));
        assert_int_equal(nd_manager_get_total_objects(NULL), before + 1);
        // It can take part in a cycle again, and die in it.
        assert_ok(nd_debug_check());
        nd_release(revived);
        assert_int_equal(finalized[0], 1);
        assert_int_equal(cell_deaths(0), 1);
    }
}

static uint32_t events[64], event_count;
enum { FINALIZED = 100, DESTROYED = 200, CALLED_BACK = 300 };

static void note(uint32_t event) {
    if (event_count < 64)
        events[event_count] = event;
    event_count++;
}

static void note_finalized(nd_object *self) {
    note(FINALIZED + cell_of(self)->number);
}

static void note_destroyed(nd_object *self) {
    note(DESTROYED + cell_of(self)->number);
}

static void note_called_back(void *data) {
    note(CALLED_BACK + *(const uint32_t *)data);
}

static void test_G22_members_are_finalized_in_the_order_they_were_made(void **state) {
    (void)state;
    enum { MEMBERS = 5 };
    begin(MEMBERS);
    event_count = 0;
    cell_on_finalize = note_finalized;
    cell_on_destroy = note_destroyed;
    nd_object *ring[MEMBERS];
    nd_weak *weak[MEMBERS];
    uint32_t numbers[MEMBERS];
    finalized_ring(ring, MEMBERS, 1);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        numbers[i] = i;
        weak[i] = nd_weak_new(ring[i]);
        assert_ok(nd_weak_set_callback(weak[i], note_called_back, &numbers[i]));
    }
    release_all(ring, MEMBERS);
    assert_int_equal(collect(NULL).collected_objects, MEMBERS);
    // All callbacks, then all finalizers, then all destructors, each oldest first.
    assert_int_equal(event_count, 3 * MEMBERS);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        assert_int_equal(events[i], CALLED_BACK + i);
        assert_int_equal(events[MEMBERS + i], FINALIZED + i);
        assert_int_equal(events[2 * MEMBERS + i], DESTROYED + i);
        nd_release(weak[i]);
    }
}

static nd_manager *busy_manager;

static void allocate_a_lot(nd_object *self) {
    count_finalized(self);
    static char nowhere[1];
    static const nd_resource_callbacks callbacks = {.size = sizeof callbacks, .version = 1};
    nd_with_manager(busy_manager) {
        for (int i = 0; i < 50; i++)
            nd_release(nd_resource_new("buffer", nowhere, 1 << 20, &callbacks));
    }
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(NULL, &report)); // deferred, or done, but never inside itself
}

static void test_G23_finalizer_that_allocates_until_a_threshold_would_collect(void **state) {
    (void)state;
    begin(2);
    nd_gc_set_mode(ND_GC_ON);
    assert_ok(nd_test_set_threshold(ND_CPU, 4 << 20));
    cell_on_finalize = allocate_a_lot;
    busy_manager = nd_manager_new(NULL, "busy");
    nd_object *ring[2];
    nd_with_manager(busy_manager) {
        finalized_ring(ring, 2, 1);
    }
    release_all(ring, 2);
    assert_int_equal(collect(NULL).collected_objects, 2);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(finalized[i], 1);
        assert_int_equal(cell_deaths(i), 1);
    }
    assert_ok(nd_manager_close(busy_manager, NULL));
    nd_release(busy_manager);
    assert_ok(nd_test_set_threshold(ND_CPU, 64 << 20));
}

static uint32_t cycles_left;

static void make_a_new_cycle(nd_object *self) {
    count_finalized(self);
    if (cycles_left == 0)
        return;
    cycles_left--;
    nd_object *next[2] = {cell_new_of(&cell_finalized_type, 2 * cycles_left + 2, 1),
                          cell_new(2 * cycles_left + 3, 1)};
    cell_ring(next, 2);
    nd_release(next[0]);
    nd_release(next[1]);
}

static void test_G24_finalizer_that_makes_a_new_cycle(void **state) {
    (void)state;
    begin(10);
    cell_on_finalize = make_a_new_cycle;
    cycles_left = 3;
    nd_object *ring[1];
    finalized_ring(ring, 1, 1);
    nd_release(ring[0]);
    // The new garbage goes at once or with the next collections; nothing dies twice or stays.
    for (int i = 0; i < 4; i++)
        collect(NULL);
    assert_int_equal(cycles_left, 0);
    assert_int_equal(cell_deaths(0), 1);
    for (uint32_t i = 2; i < 8; i++)
        assert_int_equal(cell_deaths(i), 1);
    assert_int_equal(cell_total_deaths(), 7);
}

static void test_G24_finalizers_without_end_do_not_hold_a_collection_up(void **state) {
    (void)state;
    enum { ROUNDS = 8, CYCLES = 15 };
    nd_test_collects_by_policy();
    begin(2 * CYCLES + 2);
    cell_on_finalize = make_a_new_cycle;
    cycles_left = CYCLES;
    nd_object *ring[1];
    finalized_ring(ring, 1, 1);
    nd_release(ring[0]);
    collect(NULL);
    assert_int_equal(cycles_left, CYCLES - ROUNDS);
    collect(NULL);
    assert_int_equal(cycles_left, 0);
    for (uint32_t i = 2; i < 2 * CYCLES + 2; i++)
        assert_int_equal(cell_deaths(i), 1);
    assert_int_equal(cell_total_deaths(), 2 * CYCLES + 1);
}

static nd_manager *closed_by_destructor;

static void close_a_manager(nd_object *self) {
    if (cell_of(self)->number != 0)
        return;
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(closed_by_destructor, &report));
    assert_false(nd_manager_is_open(closed_by_destructor));
    nd_release(closed_by_destructor);
}

static void drop_a_ring(nd_object *self) {
    if (cell_of(self)->number == 0)
        cell_drop_ring(1, 2);
}

static void test_G24_garbage_of_the_only_finalizer_goes_at_once(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(3);
    nd_object *alone = cell_new_of(&cell_finalized_type, 0, 1);
    cell_link(alone, 0, alone);
    cell_on_finalize = drop_a_ring;
    nd_release(alone);
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(NULL, &report));
    assert_int_equal(report.collected_objects, 3);
    assert_int_equal(cell_total_deaths(), 3);
    cell_end();
}

static void drop_a_ring_and_collect(nd_object *self) {
    if (cell_of(self)->number)
        return;
    cell_drop_ring(1, 2);
    assert_ok(nd_gc_collect(NULL, NULL)); // later, when this collection is over
    assert_int_equal(cell_total_deaths(), 0);
}

static void test_collection_that_a_destructor_asks_for_comes_afterwards(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    for (int on = 0; on < 2; on++) { // a request is one in either mode
        nd_gc_set_mode(on ? ND_GC_ON : ND_GC_OFF);
        cell_begin(3);
        nd_object *alone = cell_new(0, 1);
        cell_link(alone, 0, alone);
        cell_on_destroy = drop_a_ring_and_collect;
        nd_release(alone);
        assert_ok(nd_gc_collect(NULL, NULL));
        assert_int_equal(cell_total_deaths(), 3);
        cell_end();
    }
}

static int requests, paths_told;

static void request_once(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)path, (void)objects, (void)bytes, (void)data;
    paths_told++;
    if (requests++ == 0)
        assert_ok(nd_gc_collect(NULL, NULL));
}

static void
test_collection_that_a_cycle_callback_asks_for_only_warns_where_that_is_the_mode(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_WARN);
    nd_gc_set_cycle_callback(request_once, NULL);
    requests = paths_told = 0;
    cell_begin(2);
    cell_drop_ring(0, 2);
    collect(NULL);
    assert_int_equal(paths_told, 2);
    assert_int_equal(cell_total_deaths(), 0);
    nd_gc_set_cycle_callback(NULL, NULL);
    nd_gc_set_mode(ND_GC_ON);
    assert_int_equal(collect(NULL).collected_objects, 2);
    cell_end();
}

static void test_boundary_inside_a_collection_leaves_what_is_off_alone(void **state) {
    (void)state;
    nd_test_collects_by_policy(); // off at the root
    cell_begin(3);
    nd_manager *m = closed_by_destructor = manager_new(NULL, "on");
    assert_ok(nd_manager_set_gc_mode(m, ND_GC_ON));
    nd_with_manager(m) cell_drop_ring(1, 2);
    nd_manager *apart = manager_new(NULL, "apart");
    nd_object *alone = cell_in(apart, 0, 1);
    cell_link(alone, 0, alone);
    cell_on_destroy = close_a_manager;
    nd_release(alone);
    collect(apart);
    assert_int_equal(cell_deaths(0), 1);
    assert_int_equal(cell_total_deaths(), 1); // the ring has escaped, and nobody asked
    assert_int_equal(collect(NULL).collected_objects, 2);
    close_and_release(apart);
    cell_end();
}

static void test_G25_destructor_that_closes_a_manager_inside_a_collection(void **state) {
    (void)state;
    for (int at_boundary = 0; at_boundary < 2; at_boundary++) {
        begin(6);
        nd_gc_set_mode(ND_GC_ON);
        cell_on_destroy = close_a_manager;
        nd_manager *m = nd_manager_new(NULL, "m");
        closed_by_destructor = nd_manager_new(NULL, "inner");
        nd_with_manager(m) {
            cell_drop_ring(0, 3);
        }
        nd_with_manager(closed_by_destructor) {
            cell_drop_ring(3, 3);
        }
        if (at_boundary)
            assert_ok(nd_manager_close(m, NULL));
        else
            assert_ok(nd_gc_collect(m, NULL));
        for (uint32_t i = 0; i < 3; i++)
            assert_int_equal(cell_deaths(i), 1);
        collect(NULL);
        for (uint32_t i = 0; i < 6; i++)
            assert_int_equal(cell_deaths(i), 1);
        assert_ok(nd_manager_close(m, NULL));
        nd_release(m);
    }
}

static void test_G25_destructor_that_releases_the_closing_manager(void **state) {
    (void)state;
    begin(3);
    nd_gc_set_mode(ND_GC_ON);
    cell_on_destroy = close_a_manager; // the very manager whose close runs the destructor
    closed_by_destructor = nd_manager_new(NULL, "m");
    nd_with_manager(closed_by_destructor) {
        cell_drop_ring(0, 3);
    }
    assert_ok(nd_manager_close(closed_by_destructor, NULL));
    assert_int_equal(cell_total_deaths(), 3);
}

/// Drops two loops that point to `data`, apart from that not connected, and collects them.
static void *drop_loops_onto(void *data) {
    nd_manager *m = manager_new(NULL, "other");
    for (uint32_t i = 0; i < 2; i++) {
        nd_object *loop = cell_in(m, 2 + i, 2);
        cell_link(loop, 0, loop);
        cell_link(loop, 1, data);
        nd_release(loop);
    }
    nd_gc_report report = collect(m);
    assert_int_equal(report.collected_objects, 2);
    assert_int_equal(report.cycles, 2);
    close_and_release(m);
    return NULL;
}

static void hand_to_another_thread(nd_object *self) {
    count_finalized(self);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, drop_loops_onto, self), 0);
    pthread_join(thread, NULL);
    assert_int_equal(nd_get_count(self), 2); // its own loop's, and the collection's
}

static void test_G21_what_a_finalizer_hands_out_is_not_garbage_of_another_collection(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    begin(4);
    cell_on_finalize = hand_to_another_thread;
    nd_manager *m = manager_new(NULL, "m");
    nd_with_manager(m) {
        nd_object *loop = cell_new_of(&cell_finalized_type, 0, 1);
        cell_link(loop, 0, loop);
        nd_release(loop);
    }
    assert_int_equal(collect(m).collected_objects, 1);
    assert_int_equal(finalized[0], 1);
    close_and_release(m);
}

static nd_manager *seen_manager;
static bool seen_attached;

/// As revive_number_0, and asks where it is.
static void revive_where_it_is(nd_object *self) {
    revive_number_0(self);
    nd_manager *manager = nd_get_manager_retained(self);
    seen_manager = manager; // compared alone
    nd_release(manager);
    nd_holders holders = ND_HOLDERS_INIT;
    seen_attached =
        nd_get_manager(self) == seen_manager && nd_debug_get_holders(self, NULL, &holders) == ND_OK;
}

/// How an object with a finalizer dies in the test below.
typedef enum death { RELEASED, WITH_ITS_LIST, WITH_A_RING, WITH_A_CHAIN, DEATHS } death;

static void die(death how, nd_manager *manager) {
    nd_object *x = NULL;
    nd_list *list = NULL, *outer = NULL;
    nd_with_manager(manager) {
        x = cell_new_of(&cell_finalized_type, 0, 0);
        list = nd_list_new();
        outer = nd_list_new();
    }
    if (how != RELEASED)
        assert_ok(nd_list_append(list, x));
    if (how == WITH_A_RING)
        assert_ok(nd_list_append(list, list));
    if (how == WITH_A_CHAIN)
        assert_ok(nd_list_append(outer, list));
    nd_release(x);
    nd_release(list);
    nd_release(outer);
    if (how == WITH_A_RING)
        assert_ok(nd_gc_collect(manager, NULL));
}

static void test_G21_who_revives_itself_lives_where_it_died(void **state) {
    (void)state;
    for (death how = RELEASED; how < DEATHS; how++) {
        begin(1);
        revived = NULL;
        cell_on_finalize = revive_where_it_is;
        nd_manager *manager = nd_manager_new(NULL, "m");
        die(how, manager);
        assert_non_null(revived);
        assert_ptr_equal(seen_manager, manager);
        assert_true(seen_attached || how == WITH_A_RING); // which a collection is looking at
        assert_ptr_equal(nd_get_manager(revived), manager);
        nd_manager_stats stats = ND_MANAGER_STATS_INIT;
        assert_ok(nd_manager_get_stats(manager, &stats));
        assert_int_equal(stats.live_objects, 1);
        assert_int_equal(stats.created_objects, 3);
        assert_int_equal(stats.freed_objects + stats.collected_objects, 2);
        assert_int_equal(stats.departed_objects, 0);
        assert_int_equal(stats.arrived_objects, 0);
        // It dies there, too.
        assert_ok(nd_manager_dispose(manager, NULL));
        assert_true(nd_is_closed(revived));
        assert_int_equal(cell_deaths(0), 1);
        nd_release(revived);
        nd_release(manager);
    }
}

static nd_manager *closed_in_finalizer;

static void close_and_revive(nd_object *self) {
    if (cell_of(self)->number == 1) {
        count_finalized(self);
        assert_ok(nd_manager_close(closed_in_finalizer, NULL));
    } else {
        revive_number_0(self);
    }
}

/// Two die together; the finalizer of one closes the manager while the other waits for its own.
static void test_G21_who_revives_itself_after_its_manager_has_closed(void **state) {
    (void)state;
    for (uint32_t first = 0; first < 2; first++) {
        begin(2);
        revived = NULL;
        cell_on_finalize = close_and_revive;
        nd_manager *outer = nd_manager_new(NULL, "outer"), *inner = nd_manager_new(outer, "inner");
        closed_in_finalizer = inner;
        nd_list *list = NULL;
        nd_with_manager(inner) {
            list = nd_list_new();
            for (uint32_t i = 0; i < 2; i++) {
                nd_object *x = cell_new_of(&cell_finalized_type, i ^ first, 0);
                assert_ok(nd_list_append(list, x));
                nd_release(x);
            }
        }
        nd_release(list);
        assert_non_null(revived);
        assert_int_equal(cell_deaths(1), 1);
        assert_ptr_equal(nd_get_manager(revived), outer);
        nd_manager_stats stats = ND_MANAGER_STATS_INIT;
        assert_ok(nd_manager_get_stats(outer, &stats));
        assert_int_equal(stats.live_objects, 1);
        assert_int_equal(stats.arrived_objects, 2); // the other one when its finalizer had closed
        assert_ok(nd_debug_check());
        nd_release(revived);
        nd_release(inner);
        nd_release(outer);
    }
}

static int times_destroyed;

static void destroy_and_close(nd_object *self) {
    if (++times_destroyed == 1)
        assert_ok(nd_close(self));
}

static const nd_type closing_type = {
    .size = sizeof(nd_type), .version = 1, .name = "closing", .destroy = destroy_and_close};

static void test_destroy_that_closes_its_object_runs_once(void **state) {
    (void)state;
    for (int how = 0; how < 3; how++) {
        times_destroyed = 0;
        nd_object *x = nd_object_new(&closing_type, 16);
        if (how == 1) {
            assert_ok(nd_close(x));
        } else if (how == 2) {
            nd_list *ring = nd_list_new();
            assert_ok(nd_list_append(ring, x));
            assert_ok(nd_list_append(ring, ring));
            nd_release(ring);
        }
        nd_release(x);
        assert_ok(nd_gc_collect(NULL, NULL));
        assert_int_equal(times_destroyed, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G20_finalizer_in_a_cycle_runs_once),
        ND_TEST(test_G20_finalizer_of_an_acyclic_object_runs_once),
        ND_TEST(test_G21_revived_object_and_all_it_reaches_live),
        ND_TEST(test_G21_acyclic_object_revives_itself),
        ND_TEST(test_G21_who_revives_itself_lives_where_it_died),
        ND_TEST(test_G21_who_revives_itself_after_its_manager_has_closed),
        ND_TEST(test_destroy_that_closes_its_object_runs_once),
        ND_TEST(test_G22_members_are_finalized_in_the_order_they_were_made),
        ND_TEST(test_G23_finalizer_that_allocates_until_a_threshold_would_collect),
        ND_TEST(test_G24_finalizer_that_makes_a_new_cycle),
        ND_TEST(test_G24_finalizers_without_end_do_not_hold_a_collection_up),
        ND_TEST(test_G24_garbage_of_the_only_finalizer_goes_at_once),
        ND_TEST(test_collection_that_a_destructor_asks_for_comes_afterwards),
        ND_TEST(test_collection_that_a_cycle_callback_asks_for_only_warns_where_that_is_the_mode),
        ND_TEST(test_boundary_inside_a_collection_leaves_what_is_off_alone),
        ND_TEST(test_G25_destructor_that_closes_a_manager_inside_a_collection),
        ND_TEST(test_G25_destructor_that_releases_the_closing_manager),
        ND_TEST(test_G21_what_a_finalizer_hands_out_is_not_garbage_of_another_collection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
