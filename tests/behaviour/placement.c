// Where objects live and how they move: placement of results (B12), temp-attach (B13, B14, B27),
// caps (B15), closed managers (B16, B20).
#include "lib/manager/manager.h"
#include "lib/manager/origin.h"
#include "lib/manager/place.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <sched.h>

// -------------------------------------------------------------------------------------------- B12

enum { TREE = 15 }; // three levels below the top, two children each

static uint32_t expected_place(uint32_t a, uint32_t b) {
    while (a != b) {
        if (a > b)
            a = (a - 1) / 2;
        else
            b = (b - 1) / 2;
    }
    return a;
}

static bool on_one_path(uint32_t a, uint32_t b) {
    uint32_t common = expected_place(a, b);
    return common == a || common == b;
}

static void test_B12_result_of_two_objects_is_placed_the_same_either_way(void **state) {
    (void)state;
    cell_begin(TREE);
    nd_manager *tree[TREE];
    nd_object *objects[TREE];
    for (uint32_t i = 0; i < TREE; i++) {
        tree[i] = manager_new(i ? tree[(i - 1) / 2] : NULL, "node");
        objects[i] = cell_in(tree[i], i, 0);
    }
    for (uint32_t a = 0; a < TREE; a++) {
        for (uint32_t b = 0; b < TREE; b++) {
            // On one path the deeper one, which has the larger number; else the lowest common
            // ancestor.
            uint32_t expected = on_one_path(a, b) ? (a > b ? a : b) : expected_place(a, b);
            const nd_object *operands[2] = {objects[a], objects[b]};
            nd_place place = nd__place_begin(operands, 2);
            assert_ptr_equal(place.manager, tree[expected]);
            nd__place_end(place);
        }
    }
    for (uint32_t i = 0; i < TREE; i++)
        nd_release(objects[i]);
    for (uint32_t i = TREE; i-- > 0;)
        close_and_release(tree[i]);
}

static void test_B12_finding_a_place_leaves_no_handle_behind(void **state) {
    (void)state;
    cell_begin(TREE);
    nd_manager *tree[TREE];
    nd_object *objects[TREE + 1];
    for (uint32_t i = 0; i < TREE; i++) {
        tree[i] = manager_new(i ? tree[(i - 1) / 2] : NULL, "node");
        objects[i] = cell_in(tree[i], i, 0);
    }
    objects[TREE] = cell_in(NULL, 0, 0);
    uint64_t counts[TREE], root = nd_get_count(nd_manager_get_root());
    for (uint32_t i = 0; i < TREE; i++)
        counts[i] = nd_get_count(tree[i]);
    for (uint32_t a = 0; a <= TREE; a++) {
        for (uint32_t b = 0; b <= TREE; b++) {
            const nd_object *operands[3] = {objects[a], objects[b], objects[(a + b) % TREE]};
            nd__place_end(nd__place_begin(operands, 3));
        }
    }
    for (uint32_t i = 0; i < TREE; i++)
        assert_int_equal(nd_get_count(tree[i]), counts[i]);
    assert_int_equal(nd_get_count(nd_manager_get_root()), root);
    for (uint32_t i = 0; i <= TREE; i++)
        nd_release(objects[i]);
    for (uint32_t i = TREE; i-- > 0;)
        close_and_release(tree[i]);
}

static void test_B12_result_of_objects_below_siblings_is_placed_in_the_root(void **state) {
    (void)state;
    cell_begin(2);
    nd_manager *managers[2] = {manager_new(NULL, "a"), manager_new(NULL, "b")};
    const nd_object *operands[2] = {cell_in(managers[0], 0, 0), cell_in(managers[1], 1, 0)};
    nd_place place = nd__place_begin(operands, 2);
    assert_ptr_equal(place.manager, nd_manager_get_root());
    nd__place_end(place);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(nd_get_count(managers[i]), 1);
        nd_release((nd_object *)(uintptr_t)operands[i]);
        close_and_release(managers[i]);
    }
}

static void test_B12_current_manager_and_missing_operands(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *m = manager_new(NULL, "m");
    nd_manager *other = manager_new(NULL, "other");
    nd_object *x = cell_in(m, 0, 0);
    const nd_object *operands[3] = {NULL, x, NULL};
    nd_place place = nd__place_begin(operands, 3);
    assert_ptr_equal(place.manager, m);
    nd__place_end(place);
    place = nd__place_begin(NULL, 0);
    assert_ptr_equal(place.manager, nd_manager_get_root());
    nd__place_end(place);
    nd_with_manager(other) {
        place = nd__place_begin(operands, 3);
        assert_ptr_equal(place.manager, other);
        nd__place_end(place);
        place = nd__place_of(x);
        assert_ptr_equal(place.manager, m);
        nd__place_end(place);
        nd_with_manager(m) {
            assert_ptr_equal(nd_manager_get_current(), m);
            break;
        }
        assert_ptr_equal(nd_manager_get_current(), other);
    }
    assert_ptr_equal(nd_manager_get_current(), nd_manager_get_root());
    assert_int_equal(nd_get_count(m), 1);
    nd_release(x);
    close_and_release(m);
    close_and_release(other);
}

// -------------------------------------------------------------------------------------- B13 to B16

typedef struct chain {
    nd_manager *a, *b, *c;
    nd_object *x;
} chain;

static chain chain_new(void) {
    chain k = {manager_new(NULL, "a"), manager_new(NULL, "b"), manager_new(NULL, "c"), NULL};
    k.x = cell_in(k.a, 0, 0);
    assert_ok(nd_manager_lend(k.b, k.x));
    assert_ok(nd_manager_lend(k.c, k.x));
    assert_ptr_equal(nd_get_manager(k.x), k.c);
    return k;
}

static void test_B13_temp_attach_returns_to_origin(void **state) {
    (void)state;
    cell_begin(1);
    chain k = chain_new();
    assert_int_equal(close_and_release(k.c).returned_objects, 1);
    assert_ptr_equal(nd_get_manager(k.x), k.b);
    assert_int_equal(close_and_release(k.b).returned_objects, 1);
    assert_ptr_equal(nd_get_manager(k.x), k.a);
    nd_release(k.x);
    assert_int_equal(close_and_release(k.a).escaped_objects, 0);
}

static void test_B13_temp_attach_returns_past_a_closed_origin(void **state) {
    (void)state;
    cell_begin(1);
    chain k = chain_new();
    assert_int_equal(close_and_release(k.b).returned_objects, 0);
    assert_ptr_equal(nd_get_manager(k.x), k.c);
    nd_close_report report = close_and_release(k.c);
    assert_int_equal(report.returned_objects, 1);
    assert_int_equal(report.escaped_objects, 0);
    assert_ptr_equal(nd_get_manager(k.x), k.a);
    nd_release(k.x);
    close_and_release(k.a);
}

static void test_B13_temp_attached_object_that_dies_goes_nowhere(void **state) {
    (void)state;
    cell_begin(1);
    chain k = chain_new();
    nd_release(k.x);
    assert_int_equal(cell_deaths(0), 1);
    assert_int_equal(close_and_release(k.c).returned_objects, 0);
    assert_int_equal(close_and_release(k.b).returned_objects, 0);
    close_and_release(k.a);
}

static void test_B13_attach_forgets_the_origins(void **state) {
    (void)state;
    cell_begin(1);
    chain k = chain_new();
    assert_ok(nd_manager_attach(k.c, k.x));
    nd_close_report report = close_and_release(k.c);
    assert_int_equal(report.returned_objects, 0);
    assert_int_equal(report.escaped_objects, 1);
    assert_ptr_equal(nd_get_manager(k.x), nd_manager_get_root());
    nd_release(k.x);
    close_and_release(k.b);
    close_and_release(k.a);
}

static void test_B14_temp_attach_with_closed_origin_goes_to_its_open_ancestor(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *top = manager_new(NULL, "top");
    nd_manager *middle = manager_new(top, "middle");
    nd_manager *origin = manager_new(middle, "origin");
    nd_manager *guest = manager_new(NULL, "guest");
    nd_object *x = cell_in(origin, 0, 0);
    assert_ok(nd_manager_lend(guest, x));
    assert_ok(nd_manager_close(middle, NULL)); // closes origin too
    assert_int_equal(close_and_release(guest).returned_objects, 1);
    assert_ptr_equal(nd_get_manager(x), top);
    nd_release(x);
    nd_release(origin);
    nd_release(middle);
    close_and_release(top);
}

static void test_B27_lending_to_and_fro_leaves_the_first_origin(void **state) {
    (void)state;
    cell_begin(1);
    chain k = chain_new(); // a, b, now in c
    assert_ok(nd_manager_lend(k.b, k.x));
    assert_ptr_equal(nd_get_manager(k.x), k.b);
    // It has gone back to b, so c has nothing to send, and a is where it returns to.
    assert_int_equal(close_and_release(k.c).returned_objects, 0);
    assert_int_equal(close_and_release(k.b).returned_objects, 1);
    assert_ptr_equal(nd_get_manager(k.x), k.a);
    nd_release(k.x);
    close_and_release(k.a);
}

static void test_B27_lent_home_an_object_is_no_guest_any_more(void **state) {
    (void)state;
    cell_begin(2);
    chain k = chain_new();
    assert_ok(nd_manager_lend(k.a, k.x));
    assert_ptr_equal(nd_get_manager(k.x), k.a);
    assert_int_equal(close_and_release(k.c).returned_objects, 0);
    assert_int_equal(close_and_release(k.b).returned_objects, 0);
    assert_ok(nd_manager_set_cap(k.a, 1)); // which counts it
    nd_with_manager(k.a) {
        assert_null(cell_new(1, 0));
    }
    nd_close_report report = close_and_release(k.a);
    assert_int_equal(report.returned_objects, 0);
    assert_int_equal(report.escaped_objects, 1);
    nd_release(k.x);
}

static void test_B27_lending_for_ever_does_not_grow(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *a = manager_new(NULL, "a"), *b = manager_new(NULL, "b"), *c = manager_new(a, "c");
    nd_object *x = cell_in(a, 0, 0);
    uint64_t before = nd__origin_count();
    for (int i = 0; i < 1000; i++) {
        assert_ok(nd_manager_lend(i % 3 == 0 ? b : i % 3 == 1 ? c : a, x));
        // Through managers that close behind it, too.
        nd_manager *passing = manager_new(NULL, "passing");
        assert_ok(nd_manager_lend(passing, x));
        nd_manager *next = manager_new(NULL, "next");
        assert_ok(nd_manager_lend(next, x));
        close_and_release(passing);
        assert_ok(nd_manager_lend(i % 2 ? b : c, x));
        close_and_release(next);
    }
    assert_true(nd__origin_count() <= before + 4); // one for each open manager it came through
    close_and_release(c);
    close_and_release(b);
    assert_ptr_equal(nd_get_manager(x), a);
    assert_int_equal(nd__origin_count(), before);
    nd_release(x);
    close_and_release(a);
}

static void test_B15_capped_manager_refuses_and_leaves_the_object_where_it_was(void **state) {
    (void)state;
    cell_begin(8);
    nd_manager *home = manager_new(NULL, "home");
    nd_manager *m = manager_new(NULL, "the small one");
    assert_ok(nd_manager_set_cap(m, 2));
    nd_object *inside[2] = {cell_in(m, 0, 0), cell_in(m, 1, 0)};
    nd_object *x = cell_in(home, 2, 0);
    nd_error_clear();
    assert_int_equal(nd_manager_attach(m, x), ND_ERROR_QUOTA);
    assert_non_null(strstr(nd_error_get_message(), "the small one"));
    assert_ptr_equal(nd_get_manager(x), home);
    assert_balanced(m);
    nd_with_manager(m) {
        nd_error_clear();
        assert_null(cell_new(3, 0));
        assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    }
    assert_int_equal(stats_of(m).live_objects, 2);

    // A guest is exempt, but does not become a resident.
    assert_ok(nd_manager_lend(m, x));
    assert_ptr_equal(nd_get_manager(x), m);
    assert_int_equal(stats_of(m).live_objects, 3);
    assert_int_equal(nd_manager_attach(m, x), ND_ERROR_QUOTA);
    assert_int_equal(stats_of(m).live_objects, 3);

    // Neither is a resident that comes home: 0 goes away, 4 takes its place, 0 comes back.
    nd_manager *trip = manager_new(NULL, "trip");
    assert_ok(nd_manager_lend(trip, inside[0]));
    nd_object *taker = cell_in(m, 4, 0);
    assert_int_equal(close_and_release(trip).returned_objects, 1);
    assert_ptr_equal(nd_get_manager(inside[0]), m);
    assert_int_equal(stats_of(m).live_objects, 4);

    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(m, &report));
    assert_ptr_equal(nd_get_manager(x), home);
    assert_int_equal(report.returned_objects, 1);
    assert_int_equal(report.escaped_objects, 3);
    nd_release(inside[0]);
    nd_release(inside[1]);
    nd_release(taker);
    nd_release(x);
    nd_release(m);
    close_and_release(home);
}

static void test_B15_room_comes_back_when_objects_die(void **state) {
    (void)state;
    cell_begin(4);
    nd_manager *m = manager_new(NULL, "m");
    assert_ok(nd_manager_set_cap(m, 1));
    for (uint32_t i = 0; i < 3; i++)
        nd_release(cell_in(m, i, 0));
    nd_object *last = cell_in(m, 3, 0);
    nd_with_manager(m) {
        assert_null(cell_new(0, 0));
    }
    assert_ok(nd_manager_set_cap(m, 0));
    nd_release(cell_in(m, 0, 0));
    nd_release(last);
    close_and_release(m);
}

static void test_B15_collected_guests_take_no_room(void **state) {
    (void)state;
    cell_begin(8);
    nd_manager *home = manager_new(NULL, "home"), *m = manager_new(NULL, "m");
    assert_ok(nd_manager_set_cap(m, 3));
    // A ring of two residents and a guest.
    nd_object *ring[3] = {cell_in(m, 0, 1), cell_in(home, 1, 1), cell_in(m, 2, 1)};
    assert_ok(nd_manager_lend(m, ring[1]));
    cell_ring(ring, 3);
    for (int i = 0; i < 3; i++)
        nd_release(ring[i]);
    assert_int_equal(collect(m).collected_objects, 3);
    assert_ok(nd_debug_check());
    nd_object *residents[3];
    for (uint32_t i = 0; i < 3; i++)
        residents[i] = cell_in(m, 3 + i, 0);
    nd_with_manager(m) {
        assert_null(cell_new(6, 0));
    }
    for (int i = 0; i < 3; i++)
        nd_release(residents[i]);
    close_and_release(m);
    close_and_release(home);
}

static void test_B16_attach_to_a_closed_manager_orphans_nothing(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *home = manager_new(NULL, "home");
    nd_manager *closed = manager_new(NULL, "shut");
    assert_ok(nd_manager_close(closed, NULL));
    nd_object *x = cell_in(home, 0, 0);
    nd_manager_stats before = stats_of(home);
    assert_int_equal(nd_manager_attach(closed, x), ND_ERROR_CLOSED);
    assert_non_null(strstr(nd_error_get_message(), "shut"));
    assert_int_equal(nd_manager_lend(closed, x), ND_ERROR_CLOSED);
    nd_error_clear();
    assert_int_equal(nd_manager_attach(NULL, x), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_manager_lend(home, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_ptr_equal(nd_get_manager(x), home);
    nd_manager_stats after = stats_of(home);
    assert_memory_equal(&before, &after, sizeof before);

    nd_error_clear();
    assert_null(nd_manager_new(closed, "late child"));
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    nd_error_clear();
    nd_with_manager(closed) {
        assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
        assert_ptr_equal(nd_manager_get_current(), nd_manager_get_root());
    }
    nd_release(x);
    nd_release(closed);
    close_and_release(home);
}

// ------------------------------------------------------------------------------------------- B26

static void test_B26_owned_manager_of_an_object(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *m = manager_new(NULL, "m");
    nd_object *x = cell_in(m, 0, 0);
    nd_manager *owned = nd_get_manager_retained(x);
    assert_ptr_equal(owned, m);
    assert_int_equal(nd_get_count(m), 2);
    close_and_release(m);
    assert_string_equal(nd_manager_get_name(owned), "m"); // still there
    nd_manager *root = nd_get_manager_retained(x);
    assert_ptr_equal(root, nd_manager_get_root());
    assert_null(nd_get_manager_retained(NULL));
    assert_null(nd_get_manager_retained(owned));
    nd_release(root);
    nd_release(owned);
    nd_release(x);
}

static struct {
    _Atomic(nd_manager *) home; // taken by who closes it
    atomic_bool stop;
} b26;

static void *close_as_it_comes(void *data) {
    (void)data;
    while (!atomic_load(&b26.stop)) {
        nd_manager *manager = atomic_exchange(&b26.home, NULL);
        if (!manager)
            sched_yield();
        nd_release(manager);
    }
    return NULL;
}

static void test_B26_owned_manager_beside_a_thread_that_closes_it(void **state) {
    (void)state;
    cell_begin(1);
    pthread_t closer;
    assert_int_equal(pthread_create(&closer, NULL, close_as_it_comes, NULL), 0);
    for (int round = 0; round < 20000 / ND_TEST_SCALE; round++) {
        nd_manager *home = manager_new(NULL, "home");
        nd_object *x = cell_in(home, 0, 0);
        atomic_store(&b26.home, home);
        for (int i = 0; i < 3; i++) {
            nd_manager *owned = nd_get_manager_retained(x);
            assert_handle(owned);
            nd_manager *child = nd_manager_new(owned, "child"); // NULL: closed meanwhile
            if (child)
                assert_ptr_equal(nd_manager_get_parent(child), owned);
            nd_release(child);
            nd_release(owned);
        }
        while (atomic_load(&b26.home))
            sched_yield();
        nd_release(x);
        nd_error_clear();
    }
    atomic_store(&b26.stop, true);
    pthread_join(closer, NULL);
}

// ------------------------------------------------------------------------------------------- B20

static bool manager_is_alive(nd_weak *weak) {
    nd_auto nd_object *alive = nd_weak_get(weak);
    return alive != NULL;
}

static void test_B20_closed_manager_is_kept_alive_by_nobody(void **state) {
    (void)state;
    cell_begin(2);
    nd_manager *parent = manager_new(NULL, "parent");
    nd_manager *origin = manager_new(parent, "origin");
    nd_manager *guest = manager_new(parent, "guest");
    nd_weak *weak_origin = nd_weak_new(origin), *weak_guest = nd_weak_new(guest);
    nd_object *x = cell_in(origin, 0, 0);
    assert_ok(nd_manager_lend(guest, x));
    assert_true(manager_is_alive(weak_origin));
    close_and_release(origin); // x's way back ends here, and does not hold it
    assert_false(manager_is_alive(weak_origin));
    assert_ptr_equal(nd_get_manager(x), guest);
    assert_true(manager_is_alive(weak_guest));
    close_and_release(guest);
    assert_false(manager_is_alive(weak_guest));
    assert_ptr_equal(nd_get_manager(x), parent);
    nd_release(x);
    nd_release(weak_origin);
    nd_release(weak_guest);
    close_and_release(parent);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B12_result_of_two_objects_is_placed_the_same_either_way),
        ND_TEST(test_B12_finding_a_place_leaves_no_handle_behind),
        ND_TEST(test_B12_result_of_objects_below_siblings_is_placed_in_the_root),
        ND_TEST(test_B12_current_manager_and_missing_operands),
        ND_TEST(test_B13_temp_attach_returns_to_origin),
        ND_TEST(test_B13_temp_attach_returns_past_a_closed_origin),
        ND_TEST(test_B13_temp_attached_object_that_dies_goes_nowhere),
        ND_TEST(test_B13_attach_forgets_the_origins),
        ND_TEST(test_B14_temp_attach_with_closed_origin_goes_to_its_open_ancestor),
        ND_TEST(test_B27_lending_to_and_fro_leaves_the_first_origin),
        ND_TEST(test_B27_lent_home_an_object_is_no_guest_any_more),
        ND_TEST(test_B27_lending_for_ever_does_not_grow),
        ND_TEST(test_B15_capped_manager_refuses_and_leaves_the_object_where_it_was),
        ND_TEST(test_B15_room_comes_back_when_objects_die),
        ND_TEST(test_B15_collected_guests_take_no_room),
        ND_TEST(test_B16_attach_to_a_closed_manager_orphans_nothing),
        ND_TEST(test_B26_owned_manager_of_an_object),
        ND_TEST(test_B26_owned_manager_beside_a_thread_that_closes_it),
        ND_TEST(test_B20_closed_manager_is_kept_alive_by_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
