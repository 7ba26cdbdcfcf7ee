// Managers: B8 to B16, B20 and B25 with user objects, resources and lists. Creation sites are
// recorded here, so that a close can name the line that made what escaped.
#ifndef ND_TRACK_SITES
#define ND_TRACK_SITES
#endif
#include "lib/core/manager.h"
#include "tests/behaviour/cell.h"
#include "tests/testing.h"
#include <stdlib.h>

static nd_manager *manager_new(const nd_manager *parent, const char *name) {
    nd_manager *manager = nd_manager_new(parent, name);
    assert_handle(manager);
    return manager;
}

static nd_object *cell_in(const nd_manager *manager, uint32_t number, uint32_t edges) {
    nd_object *object = NULL;
    nd_with_manager(manager) {
        object = cell_new(number, edges);
    }
    assert_handle(object);
    return object;
}

static nd_manager_stats stats_of(const nd_manager *manager) {
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(manager, &stats));
    return stats;
}

static void assert_balanced(const nd_manager *manager) {
    nd_manager_stats s = stats_of(manager);
    assert_int_equal(s.created_objects + s.arrived_objects,
                     s.freed_objects + s.collected_objects + s.departed_objects + s.live_objects);
    assert_true(s.tracked_objects <= s.live_objects);
    assert_true(s.escaped_objects <= s.departed_objects);
}

static nd_close_report close_and_release(nd_manager *manager) {
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(manager, &report));
    assert_balanced(manager);
    nd_release(manager);
    return report;
}

static nd_resource *resource_in(const nd_manager *manager, size_t bytes) {
    static const nd_resource_callbacks callbacks = {
        .size = sizeof(nd_resource_callbacks),
        .version = 1,
    };
    static char somewhere[1];
    nd_resource *resource = NULL;
    nd_with_manager(manager) {
        resource = nd_resource_new("buffer", somewhere, bytes, &callbacks);
    }
    assert_handle(resource);
    return resource;
}

static void test_manager_does_not_keep_an_object_alive(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *m = manager_new(NULL, "m");
    nd_object *x = cell_in(m, 0, 0);
    nd_weak *weak = nd_weak_new(x);
    assert_int_equal(nd_get_count(x), 1);
    assert_ptr_equal(nd_manager_of(x), m);
    nd_release(x);
    assert_int_equal(cell_deaths(0), 1);
    assert_null(nd_weak_get(weak));
    assert_int_equal(stats_of(m).live_objects, 0);
    nd_release(weak);
    close_and_release(m);
}

// ---------------------------------------------------------------------------------------- B8

typedef struct family {
    nd_manager *parent, *child;
    nd_object *held[2]; // in parent, in child
} family;

static family family_new(void) {
    family f = {.parent = manager_new(NULL, "parent")};
    f.child = manager_new(f.parent, "child");
    nd_with_manager(f.parent) {
        cell_drop_ring(0, 3);
    }
    nd_with_manager(f.child) {
        cell_drop_ring(3, 3);
    }
    // A ring with one foot in each.
    nd_object *ring[2] = {cell_in(f.parent, 6, 1), cell_in(f.child, 7, 1)};
    cell_ring(ring, 2);
    nd_release(ring[0]);
    nd_release(ring[1]);
    f.held[0] = cell_in(f.parent, 8, 0);
    f.held[1] = cell_in(f.child, 9, 1);
    cell_link(f.held[1], 0, f.held[0]);
    return f;
}

static void assert_family_closed(const family *f) {
    assert_int_equal(cell_total_deaths(), 8);
    for (uint32_t number = 0; number < 8; number++)
        assert_int_equal(cell_deaths(number), 1);
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(nd_manager_of(f->held[i]), nd_manager_root());
        nd_release(f->held[i]);
    }
    assert_int_equal(cell_total_deaths(), 10);
}

static void assert_report_empty(nd_close_report report) {
    assert_int_equal(report.freed_objects + report.collected_objects + report.escaped_objects, 0);
    assert_int_equal(report.freed_bytes + report.collected_bytes + report.escaped_bytes, 0);
    assert_int_equal(report.returned_objects, 0);
}

static void test_B08_closing_parent_first_or_child_first_frees_the_same(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    for (int child_first = 0; child_first < 2; child_first++) {
        cell_begin(10);
        family f = family_new();
        nd_manager *order[2] = {child_first ? f.child : f.parent, child_first ? f.parent : f.child};
        nd_close_report first = ND_CLOSE_REPORT_INIT, second = ND_CLOSE_REPORT_INIT;
        assert_ok(nd_manager_close(order[0], &first));
        assert_ok(nd_manager_close(order[1], &second));
        if (!child_first) {
            assert_report_empty(second);
            assert_int_equal(first.collected_objects, 8);
            assert_int_equal(first.escaped_objects, 2);
        } else {
            assert_int_equal(first.collected_objects + second.collected_objects, 8);
        }
        assert_false(nd_manager_is_open(f.parent));
        assert_false(nd_manager_is_open(f.child));
        assert_balanced(f.parent);
        assert_balanced(f.child);
        nd_release(order[0]);
        nd_release(order[1]);
        assert_family_closed(&f);
    }
}

static void test_B08_close_is_idempotent(void **state) {
    (void)state;
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_object *x = cell_in(m, 0, 0);
    nd_release(cell_in(m, 1, 0));
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(m, &report));
    assert_int_equal(report.freed_objects, 1);
    assert_int_equal(report.escaped_objects, 1);
    for (int i = 0; i < 3; i++) {
        assert_ok(nd_manager_close(m, &report));
        assert_report_empty(report);
    }
    assert_ok(nd_close(m));
    assert_ok(nd_manager_dispose(m, &report));
    assert_report_empty(report);
    assert_false(nd_is_closed(x));
    nd_release(x);
    nd_release(m);
}

static void test_B08_releasing_the_last_handle_closes(void **state) {
    (void)state;
    cell_begin(3);
    nd_manager *m = manager_new(NULL, "m");
    nd_manager *child = manager_new(m, "child");
    nd_object *x = cell_in(child, 0, 0);
    nd_release(m); // the child still holds its parent
    assert_true(nd_manager_is_open(nd_manager_parent(child)));
    nd_release(child);
    assert_ptr_equal(nd_manager_of(x), nd_manager_root());
    nd_release(x);
}

static void test_B08_root_cannot_be_closed(void **state) {
    (void)state;
    nd_manager *root = (nd_manager *)(uintptr_t)nd_manager_root();
    assert_int_equal(nd_manager_close(root, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_manager_dispose(root, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_true(nd_manager_is_open(root));
}

// ---------------------------------------------------------------------------------- B9 to B11

static void test_B09_survivor_moves_to_nearest_open_ancestor_with_its_site(void **state) {
    (void)state;
    cell_begin(0);
    nd_manager *outer = manager_new(NULL, "outer");
    nd_manager *middle = manager_new(outer, "middle");
    nd_manager *inner = manager_new(middle, "inner");
    nd_object *kept[3];
    char site[64];
    nd_with_manager(inner) {
        for (int i = 0; i < 3; i++)
            kept[i] = nd_object_new(&cell_type, sizeof(cell));
        snprintf(site, sizeof site, "managers.c:%d (3)", __LINE__ - 1);
    }
    nd_resource *resource = resource_in(inner, 4096);
    nd_object *other_site = cell_in(inner, 0, 0);
    nd_manager_stats before = stats_of(middle);

    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(inner, &report));
    assert_int_equal(report.escaped_objects, 5);
    assert_int_equal(report.escaped_bytes, 4096);
    assert_int_equal(report.freed_objects + report.collected_objects, 0);
    assert_non_null(strstr(report.escaped_sites[0], site));
    assert_non_null(strstr(report.escaped_sites[1], "managers.c:"));
    assert_int_equal(stats_of(inner).escaped_objects, 5);
    assert_int_equal(stats_of(middle).arrived_objects - before.arrived_objects, 5);
    assert_int_equal(stats_of(middle).live_bytes[ND_CPU], 4096);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(nd_manager_of(kept[i]), middle);

    // With the middle closed as well, the outer one is the nearest that is open.
    assert_ok(nd_manager_close(middle, NULL));
    assert_ptr_equal(nd_manager_of(kept[0]), outer);
    assert_int_equal(nd_manager_total_bytes(outer), 4096);
    for (int i = 0; i < 3; i++)
        nd_release(kept[i]);
    nd_release(other_site);
    nd_release(resource);
    assert_int_equal(stats_of(outer).freed_objects, 5);
    nd_release(inner);
    nd_release(middle);
    close_and_release(outer);
}

static void test_B09_what_escapes_a_child_of_the_closing_manager_counts_once(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *m = manager_new(NULL, "m");
    nd_manager *child = manager_new(m, "child");
    nd_object *x = cell_in(child, 0, 0);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(m, &report));
    assert_int_equal(report.escaped_objects, 1);
    assert_int_equal(stats_of(child).escaped_objects, 1);
    assert_balanced(child);
    assert_ptr_equal(nd_manager_of(x), nd_manager_root());
    nd_release(x);
    nd_release(child);
    nd_release(m);
}

static void test_B10_close_with_nothing_retained_leaves_nothing(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(64);
    uint64_t objects = nd_manager_total_objects(NULL), bytes = nd_manager_total_bytes(NULL);
    nd_manager *m = manager_new(NULL, "m");
    nd_manager *child = manager_new(m, "child");
    nd_with_manager(child) {
        cell_drop_ring(0, 20);
        nd_object *holder = cell_new(20, 2);
        nd_resource *buffer = resource_in(m, 1 << 20);
        cell_link(holder, 0, buffer);
        cell_link(holder, 1, holder);
        nd_release(buffer);
        nd_release(holder);
        // A list that contains itself.
        nd_list *list = nd_list_new();
        assert_ok(nd_list_append(list, list));
        nd_release(list);
        nd_release(cell_new(21, 0));
    }
    assert_int_equal(nd_manager_total_bytes(m), 1 << 20);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(m, &report));
    assert_int_equal(report.collected_objects, 23);
    assert_int_equal(report.collected_bytes, 1 << 20);
    assert_int_equal(report.freed_objects, 1);
    assert_int_equal(report.escaped_objects, 0);
    assert_int_equal(nd_manager_total_objects(NULL), objects);
    assert_int_equal(nd_manager_total_bytes(NULL), bytes);
    assert_int_equal(cell_total_deaths(), 22);
    nd_release(child);
    nd_release(m);
}

static void test_B10_without_the_collector_cycles_escape_and_are_reported(void **state) {
    (void)state;
    cell_begin(4);
    nd_manager *m = manager_new(NULL, "m");
    nd_with_manager(m) {
        cell_drop_ring(0, 4);
    }
    nd_close_report report = close_and_release(m);
    assert_int_equal(report.collected_objects, 0);
    assert_int_equal(report.escaped_objects, 4);
    assert_int_equal(cell_total_deaths(), 0);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(cell_total_deaths(), 4);
}

static void test_B11_dispose_closes_what_is_still_held(void **state) {
    (void)state;
    cell_begin(4);
    nd_manager *m = manager_new(NULL, "m");
    nd_manager *child = manager_new(m, "child");
    nd_object *x = cell_in(m, 0, 1);
    nd_object *y = cell_in(child, 1, 0);
    nd_object *outside = cell_new(2, 1);
    cell_link(x, 0, y);
    cell_link(outside, 0, x);
    nd_resource *resource = resource_in(m, 512);
    nd_list *list = NULL;
    nd_with_manager(child) {
        list = nd_list_new();
    }
    assert_ok(nd_list_append(list, y));
    uint64_t bytes = nd_manager_total_bytes(NULL);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_dispose(m, &report));
    assert_int_equal(report.escaped_objects, 4);
    assert_int_equal(bytes - nd_manager_total_bytes(NULL), 512);
    assert_int_equal(cell_deaths(0), 1);
    assert_int_equal(cell_deaths(1), 1);
    assert_int_equal(cell_deaths(2), 0);

    assert_true(nd_is_closed(x) && nd_is_closed(y) && nd_is_closed(resource) && nd_is_closed(list));
    assert_false(nd_is_closed(outside));
    assert_int_equal(nd_get_count(x), 2);
    assert_int_equal(nd_get_count(y), 1);
    assert_null(nd_object_data(x));
    assert_null(nd_resource_get(resource));
    nd_error_clear();
    assert_int_equal(nd_list_append(list, outside), ND_ERROR_CLOSED);
    assert_int_equal(nd_list_size(list), 0);
    assert_null(nd_list_get(list, 0));
    assert_ok(nd_close(x));

    nd_release(x);
    nd_release(y);
    nd_release(resource);
    nd_release(list);
    nd_release(outside);
    for (uint32_t number = 0; number < 3; number++)
        assert_int_equal(cell_deaths(number), 1);
    nd_release(child);
    nd_release(m);
}

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
    assert_ptr_equal(place.manager, nd_manager_root());
    nd__place_end(place);
    nd_with_manager(other) {
        place = nd__place_begin(operands, 3);
        assert_ptr_equal(place.manager, other);
        nd__place_end(place);
        place = nd__place_of(x);
        assert_ptr_equal(place.manager, m);
        nd__place_end(place);
        nd_with_manager(m) {
            assert_ptr_equal(nd_manager_current(), m);
            break;
        }
        assert_ptr_equal(nd_manager_current(), other);
    }
    assert_ptr_equal(nd_manager_current(), nd_manager_root());
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
    assert_ok(nd_temp_attach(k.b, k.x));
    assert_ok(nd_temp_attach(k.c, k.x));
    assert_ptr_equal(nd_manager_of(k.x), k.c);
    return k;
}

static void test_B13_temp_attach_returns_to_origin(void **state) {
    (void)state;
    cell_begin(1);
    chain k = chain_new();
    assert_int_equal(close_and_release(k.c).returned_objects, 1);
    assert_ptr_equal(nd_manager_of(k.x), k.b);
    assert_int_equal(close_and_release(k.b).returned_objects, 1);
    assert_ptr_equal(nd_manager_of(k.x), k.a);
    nd_release(k.x);
    assert_int_equal(close_and_release(k.a).escaped_objects, 0);
}

static void test_B13_temp_attach_returns_past_a_closed_origin(void **state) {
    (void)state;
    cell_begin(1);
    chain k = chain_new();
    assert_int_equal(close_and_release(k.b).returned_objects, 0);
    assert_ptr_equal(nd_manager_of(k.x), k.c);
    nd_close_report report = close_and_release(k.c);
    assert_int_equal(report.returned_objects, 1);
    assert_int_equal(report.escaped_objects, 0);
    assert_ptr_equal(nd_manager_of(k.x), k.a);
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
    assert_ok(nd_attach(k.c, k.x));
    nd_close_report report = close_and_release(k.c);
    assert_int_equal(report.returned_objects, 0);
    assert_int_equal(report.escaped_objects, 1);
    assert_ptr_equal(nd_manager_of(k.x), nd_manager_root());
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
    assert_ok(nd_temp_attach(guest, x));
    assert_ok(nd_manager_close(middle, NULL)); // closes origin too
    assert_int_equal(close_and_release(guest).returned_objects, 1);
    assert_ptr_equal(nd_manager_of(x), top);
    nd_release(x);
    nd_release(origin);
    nd_release(middle);
    close_and_release(top);
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
    assert_int_equal(nd_attach(m, x), ND_ERROR_QUOTA);
    assert_non_null(strstr(nd_error_message(), "the small one"));
    assert_ptr_equal(nd_manager_of(x), home);
    assert_balanced(m);
    nd_with_manager(m) {
        nd_error_clear();
        assert_null(cell_new(3, 0));
        assert_int_equal(nd_error_status(), ND_ERROR_QUOTA);
    }
    assert_int_equal(stats_of(m).live_objects, 2);

    // A guest is exempt, but does not become a resident.
    assert_ok(nd_temp_attach(m, x));
    assert_ptr_equal(nd_manager_of(x), m);
    assert_int_equal(stats_of(m).live_objects, 3);
    assert_int_equal(nd_attach(m, x), ND_ERROR_QUOTA);
    assert_int_equal(stats_of(m).live_objects, 3);

    // Neither is a resident that comes home: 0 goes away, 4 takes its place, 0 comes back.
    nd_manager *trip = manager_new(NULL, "trip");
    assert_ok(nd_temp_attach(trip, inside[0]));
    nd_object *taker = cell_in(m, 4, 0);
    assert_int_equal(close_and_release(trip).returned_objects, 1);
    assert_ptr_equal(nd_manager_of(inside[0]), m);
    assert_int_equal(stats_of(m).live_objects, 4);

    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(m, &report));
    assert_ptr_equal(nd_manager_of(x), home);
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

static void test_B16_attach_to_a_closed_manager_orphans_nothing(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *home = manager_new(NULL, "home");
    nd_manager *closed = manager_new(NULL, "shut");
    assert_ok(nd_manager_close(closed, NULL));
    nd_object *x = cell_in(home, 0, 0);
    nd_manager_stats before = stats_of(home);
    assert_int_equal(nd_attach(closed, x), ND_ERROR_CLOSED);
    assert_non_null(strstr(nd_error_message(), "shut"));
    assert_int_equal(nd_temp_attach(closed, x), ND_ERROR_CLOSED);
    assert_ptr_equal(nd_manager_of(x), home);
    nd_manager_stats after = stats_of(home);
    assert_memory_equal(&before, &after, sizeof before);

    nd_error_clear();
    assert_null(nd_manager_new(closed, "late child"));
    assert_int_equal(nd_error_status(), ND_ERROR_CLOSED);
    nd_error_clear();
    nd_with_manager(closed) {
        assert_int_equal(nd_error_status(), ND_ERROR_CLOSED);
        assert_ptr_equal(nd_manager_current(), nd_manager_root());
    }
    nd_release(x);
    nd_release(closed);
    close_and_release(home);
}

// ------------------------------------------------------------------------------------ B20 and B25

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
    assert_ok(nd_temp_attach(guest, x));
    assert_true(manager_is_alive(weak_origin));
    close_and_release(origin); // x's way back ends here, and does not hold it
    assert_false(manager_is_alive(weak_origin));
    assert_ptr_equal(nd_manager_of(x), guest);
    assert_true(manager_is_alive(weak_guest));
    close_and_release(guest);
    assert_false(manager_is_alive(weak_guest));
    assert_ptr_equal(nd_manager_of(x), parent);
    nd_release(x);
    nd_release(weak_origin);
    nd_release(weak_guest);
    close_and_release(parent);
}

enum { ROOMS = 6, THINGS = 64, STEPS = 4000 };

typedef struct house {
    nd_manager *rooms[ROOMS];
    nd_object *things[THINGS];
    uint32_t random;
} house;

static uint32_t draw(house *h, uint32_t below) {
    h->random = h->random * 1664525u + 1013904223u;
    return (h->random >> 8) % below;
}

/// A new room in place of a closed one, inside any earlier room that is open; the first always is.
static void reopen(house *h, nd_manager **room) {
    nd_manager *parent = h->rooms[draw(h, (uint32_t)(room - h->rooms))];
    nd_release(*room);
    *room = manager_new(nd_manager_is_open(parent) ? parent : h->rooms[0], "room");
}

static void house_step(house *h) {
    nd_manager **room = &h->rooms[1 + draw(h, ROOMS - 1)];
    nd_object **thing = &h->things[draw(h, THINGS)];
    if (!nd_manager_is_open(*room))
        reopen(h, room);
    switch (draw(h, 8)) {
    case 0:
    case 1:
        nd_release(*thing);
        *thing =
            draw(h, 4) ? cell_in(*room, 0, 1) : (nd_object *)resource_in(*room, 1 + draw(h, 999));
        break;
    case 2:
        if (*thing)
            assert_ok(nd_attach(*room, *thing));
        break;
    case 3:
        if (*thing)
            assert_ok(nd_temp_attach(*room, *thing));
        break;
    case 4:
        nd_with_manager(*room) {
            cell_drop_ring(0, 1 + draw(h, 4));
        }
        break;
    case 5:
        nd_release(*thing);
        *thing = NULL;
        break;
    case 6:
        assert_ok(nd_gc_collect(*room, NULL));
        break;
    default:
        if (draw(h, 10) == 0)
            assert_ok(nd_manager_close(*room, NULL)); // and with it the rooms inside
    }
}

static void test_B25_live_counters_balance_at_every_boundary(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    for (uint32_t seed = 1; seed <= 3; seed++) {
        cell_begin(1);
        house h = {.random = seed};
        h.rooms[0] = manager_new(NULL, "house");
        for (uint32_t i = 1; i < ROOMS; i++)
            h.rooms[i] = manager_new(h.rooms[(i - 1) / 2], "room");
        for (int step = 0; step < STEPS; step++) {
            house_step(&h);
            uint64_t own = 0, live = 0;
            for (uint32_t i = 0; i < ROOMS; i++) {
                assert_balanced(h.rooms[i]);
                own += stats_of(h.rooms[i]).live_bytes[ND_CPU];
                live += stats_of(h.rooms[i]).live_objects;
            }
            assert_int_equal(nd_manager_total_bytes(h.rooms[0]), own);
            assert_int_equal(nd_manager_total_objects(h.rooms[0]), live);
        }
        assert_ok(nd_debug_check());
        for (uint32_t i = 0; i < THINGS; i++)
            nd_release(h.things[i]);
        for (uint32_t i = ROOMS; i-- > 0;)
            close_and_release(h.rooms[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_manager_does_not_keep_an_object_alive),
        ND_TEST(test_B08_closing_parent_first_or_child_first_frees_the_same),
        ND_TEST(test_B08_close_is_idempotent),
        ND_TEST(test_B08_releasing_the_last_handle_closes),
        ND_TEST(test_B08_root_cannot_be_closed),
        ND_TEST(test_B09_survivor_moves_to_nearest_open_ancestor_with_its_site),
        ND_TEST(test_B09_what_escapes_a_child_of_the_closing_manager_counts_once),
        ND_TEST(test_B10_close_with_nothing_retained_leaves_nothing),
        ND_TEST(test_B10_without_the_collector_cycles_escape_and_are_reported),
        ND_TEST(test_B11_dispose_closes_what_is_still_held),
        ND_TEST(test_B12_result_of_two_objects_is_placed_the_same_either_way),
        ND_TEST(test_B12_current_manager_and_missing_operands),
        ND_TEST(test_B13_temp_attach_returns_to_origin),
        ND_TEST(test_B13_temp_attach_returns_past_a_closed_origin),
        ND_TEST(test_B13_temp_attached_object_that_dies_goes_nowhere),
        ND_TEST(test_B13_attach_forgets_the_origins),
        ND_TEST(test_B14_temp_attach_with_closed_origin_goes_to_its_open_ancestor),
        ND_TEST(test_B15_capped_manager_refuses_and_leaves_the_object_where_it_was),
        ND_TEST(test_B15_room_comes_back_when_objects_die),
        ND_TEST(test_B16_attach_to_a_closed_manager_orphans_nothing),
        ND_TEST(test_B20_closed_manager_is_kept_alive_by_nobody),
        ND_TEST(test_B25_live_counters_balance_at_every_boundary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
