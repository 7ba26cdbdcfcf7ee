// Managers: B8 to B11, B25 and B30 with user objects, resources and lists. Creation sites are
// recorded here, so that a close can name the line that made what escaped.
#ifndef ND_TRACK_SITES
#define ND_TRACK_SITES
#endif
#include "tests/behaviour/helpers.h"
#include <stdlib.h>

static void test_manager_does_not_keep_an_object_alive(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *m = manager_new(NULL, "m");
    nd_object *x = cell_in(m, 0, 0);
    nd_weak *weak = nd_weak_new(x);
    assert_int_equal(nd_get_count(x), 1);
    assert_ptr_equal(nd_get_manager(x), m);
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
        assert_ptr_equal(nd_get_manager(f->held[i]), nd_manager_get_root());
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
    nd_test_collects_by_policy();
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
    assert_true(nd_manager_is_open(nd_manager_get_parent(child)));
    nd_release(child);
    assert_ptr_equal(nd_get_manager(x), nd_manager_get_root());
    nd_release(x);
}

static void test_B08_root_cannot_be_closed(void **state) {
    (void)state;
    nd_manager *root = (nd_manager *)(uintptr_t)nd_manager_get_root();
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
    nd_object *kept[3] = {NULL};
    char site[64];
    nd_with_manager(inner) {
        // clang-format off
        kept[0] = nd_object_new(&cell_type, sizeof(cell)); kept[1] = nd_object_new(&cell_type, sizeof(cell)); kept[2] = nd_object_new(&cell_type, sizeof(cell));
        // clang-format on
        snprintf(site, sizeof site, "managers.c:%d (3)", __LINE__ - 2);
    }
    nd_resource *resource = bytes_in(inner, 4096);
    nd_object *other_site = cell_in(inner, 0, 0);
    nd_manager_stats before = stats_of(middle);

    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(inner, &report));
    assert_int_equal(report.escaped_objects, 5);
    assert_int_equal(report.escaped_bytes, 4096);
    assert_int_equal(report.freed_objects + report.collected_objects, 0);
    assert_non_null(strstr(report.escaped_sites[0], site));
    assert_non_null(strstr(report.escaped_sites[1], "helpers.h:"));
    assert_int_equal(stats_of(inner).escaped_objects, 5);
    assert_int_equal(stats_of(middle).arrived_objects - before.arrived_objects, 5);
    assert_int_equal(stats_of(middle).live_bytes[ND_CPU], 4096);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(nd_get_manager(kept[i]), middle);

    // With the middle closed as well, the outer one is the nearest that is open.
    assert_ok(nd_manager_close(middle, NULL));
    assert_ptr_equal(nd_get_manager(kept[0]), outer);
    assert_int_equal(nd_manager_get_total_bytes(outer), 4096);
    for (int i = 0; i < 3; i++)
        nd_release(kept[i]);
    nd_release(other_site);
    nd_release(resource);
    assert_int_equal(stats_of(outer).freed_objects, 5);
    nd_release(inner);
    nd_release(middle);
    close_and_release(outer);
}

static void test_B09_sites_of_long_paths_keep_their_ends(void **state) {
    (void)state;
    char path[300];
    memset(path, 'd', sizeof path);
    for (size_t length = 60; length + sizeof "/end.c" <= sizeof path; length += 7) {
        snprintf(path + length, sizeof path - length, "%s", "/end.c");
        const nd_site site = {path, 4294967295u};
        nd_auto nd_manager *inner = nd_manager_new(NULL, "inner");
        nd_object *kept = NULL;
        nd_with_manager(inner) {
            nd__site = &site;
            kept = (nd_object_new)(&cell_type, sizeof(cell));
            nd__site = NULL;
        }
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        assert_ok(nd_manager_close(inner, &report));
        const char *text = report.escaped_sites[0], *end = "d/end.c:4294967295 (1)";
        assert_true(strlen(text) >= strlen(end));
        assert_string_equal(text + strlen(text) - strlen(end), end);
        const bool is_whole = strncmp(text, path, strlen(path)) == 0;
        assert_true(is_whole || (strncmp(text, "...", 3) == 0 &&
                                 strlen(text) == sizeof report.escaped_sites[0] - 1));
        nd_release(kept);
        memset(path, 'd', sizeof path);
    }
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
    assert_ptr_equal(nd_get_manager(x), nd_manager_get_root());
    nd_release(x);
    nd_release(child);
    nd_release(m);
}

static void test_B10_close_with_nothing_retained_leaves_nothing(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(64);
    uint64_t objects = nd_manager_get_total_objects(NULL), bytes = nd_manager_get_total_bytes(NULL);
    nd_manager *m = manager_new(NULL, "m");
    nd_manager *child = manager_new(m, "child");
    nd_with_manager(child) {
        cell_drop_ring(0, 20);
        nd_object *holder = cell_new(20, 2);
        nd_resource *buffer = bytes_in(m, 1 << 20);
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
    assert_int_equal(nd_manager_get_total_bytes(m), 1 << 20);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(m, &report));
    assert_int_equal(report.collected_objects, 23);
    assert_int_equal(report.collected_bytes, 1 << 20);
    assert_int_equal(report.freed_objects, 1);
    assert_int_equal(report.escaped_objects, 0);
    assert_int_equal(nd_manager_get_total_objects(NULL), objects);
    assert_int_equal(nd_manager_get_total_bytes(NULL), bytes);
    assert_int_equal(cell_total_deaths(), 22);
    nd_release(child);
    nd_release(m);
}

static void test_B10_without_the_collector_cycles_escape_and_are_reported(void **state) {
    (void)state;
    nd_test_collects_by_policy();
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
    nd_resource *resource = bytes_in(m, 512);
    nd_list *list = NULL;
    nd_with_manager(child) {
        list = nd_list_new();
    }
    assert_ok(nd_list_append(list, y));
    uint64_t bytes = nd_manager_get_total_bytes(NULL);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_dispose(m, &report));
    assert_int_equal(report.escaped_objects, 4);
    assert_int_equal(bytes - nd_manager_get_total_bytes(NULL), 512);
    assert_int_equal(cell_deaths(0), 1);
    assert_int_equal(cell_deaths(1), 1);
    assert_int_equal(cell_deaths(2), 0);

    assert_true(nd_is_closed(x) && nd_is_closed(y) && nd_is_closed(resource) && nd_is_closed(list));
    assert_false(nd_is_closed(outside));
    assert_int_equal(nd_get_count(x), 2);
    assert_int_equal(nd_get_count(y), 1);
    assert_null(nd_object_get_data(x));
    assert_null(nd_resource_get(resource));
    nd_error_clear();
    assert_int_equal(nd_list_append(list, outside), ND_ERROR_CLOSED);
    assert_int_equal(nd_list_get_size(list), 0);
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

/// Levels above what was closed, each of which has its bytes on its account: summed over all of it.
static uint64_t levels_walked;
static nd_manager *watched;         ///< the manager that is disposed of
static uint64_t bytes_not_matching; ///< how often its account was not what its objects hold

static void walk_up(nd_object *self) {
    for (const nd_manager *at = nd_get_manager(self); at; at = nd_manager_get_parent(at))
        levels_walked++;
    nd_manager_stats stats = stats_of(watched);
    uint64_t below = stats_of(nd_manager_get_root()).subtree_bytes[ND_CPU];
    bytes_not_matching += stats.subtree_bytes[ND_CPU] != stats.live_bytes[ND_CPU] ||
                          below < stats.subtree_bytes[ND_CPU];
}

static void test_B11_dispose_of_a_nest_costs_as_much_per_object_as_that_of_one(void **state) {
    (void)state;
    enum { DEPTH = 300 };
    static nd_manager *nest[DEPTH];
    static nd_object *cells[DEPTH];
    static nd_resource *resources[DEPTH];
    cell_begin(1);
    for (uint32_t i = 0; i < DEPTH; i++) {
        nest[i] = manager_new(i ? nest[i - 1] : NULL, "level");
        cells[i] = cell_in(nest[i], 0, 0);
        resources[i] = bytes_in(nest[i], 16);
    }
    uint64_t before = nd_manager_get_total_bytes(NULL);
    levels_walked = bytes_not_matching = 0;
    watched = nest[0];
    cell_on_destroy = walk_up;
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_dispose(nest[0], &report));
    cell_on_destroy = NULL;
    assert_true(levels_walked > 0 && levels_walked <= 2 * DEPTH);
    assert_true(bytes_not_matching <= 1); // the first one closes before those below have moved
    assert_int_equal(before - nd_manager_get_total_bytes(NULL), 16 * DEPTH);
    assert_int_equal(report.escaped_objects, 2 * DEPTH);
    for (uint32_t i = 0; i < DEPTH; i++) {
        assert_true(nd_is_closed(cells[i]) && nd_is_closed(resources[i]));
        assert_int_equal(stats_of(nest[i]).subtree_bytes[ND_CPU], 0);
        assert_balanced(nest[i]);
        nd_release(cells[i]);
        nd_release(resources[i]);
    }
    assert_ok(nd_debug_check());
    for (uint32_t i = DEPTH; i > 0; i--)
        nd_release(nest[i - 1]);
}

static void test_B11_dispose_of_a_tree_leaves_no_byte_on_an_account(void **state) {
    (void)state;
    enum { MANAGERS = 200 };
    nd_manager *tree[MANAGERS], *home = manager_new(NULL, "home");
    nd_resource *resources[MANAGERS], *guest = bytes_in(home, 1000);
    uint64_t before = nd_manager_get_total_bytes(NULL);
    for (uint32_t i = 0; i < MANAGERS; i++) { // of every shape: children of one lie apart
        tree[i] = manager_new(i ? tree[(i - 1) * 7919 % i] : NULL, "of a tree");
        resources[i] = bytes_in(tree[i], i + 1);
    }
    assert_ok(nd_manager_lend(tree[MANAGERS / 2], guest));
    assert_ok(nd_manager_dispose(tree[0], NULL));
    assert_int_equal(nd_manager_get_total_bytes(NULL),
                     before - 1000); // the guest is closed as well
    assert_ptr_equal(nd_get_manager(guest), home);
    for (uint32_t i = 0; i < MANAGERS; i++) {
        assert_true(nd_is_closed(resources[i]));
        assert_int_equal(nd_manager_get_total_bytes(tree[i]), 0);
        assert_balanced(tree[i]);
        nd_release(resources[i]);
    }
    nd_release(guest);
    assert_ok(nd_debug_check());
    for (uint32_t i = 0; i < MANAGERS; i++)
        nd_release(tree[i]);
    close_and_release(home);
}

// ------------------------------------------------------------------------------------------- B25

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
        *thing = draw(h, 4) ? cell_in(*room, 0, 1) : (nd_object *)bytes_in(*room, 1 + draw(h, 999));
        break;
    case 2:
        if (*thing)
            assert_ok(nd_manager_attach(*room, *thing));
        break;
    case 3:
        if (*thing)
            assert_ok(nd_manager_lend(*room, *thing));
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
            assert_int_equal(nd_manager_get_total_bytes(h.rooms[0]), own);
            assert_int_equal(nd_manager_get_total_objects(h.rooms[0]), live);
        }
        assert_ok(nd_debug_check());
        for (uint32_t i = 0; i < THINGS; i++)
            nd_release(h.things[i]);
        for (uint32_t i = ROOMS; i-- > 0;)
            close_and_release(h.rooms[i]);
    }
}

// -------------------------------------------------------------------------------------------- B30

static char *leak_report(const nd_manager *top, uint64_t *ret_objects) {
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    assert_non_null(stream);
    *ret_objects = nd_debug_report_leaks(top, stream, 0);
    fclose(stream);
    return text;
}

static void test_B25_closed_managers_account_for_nothing(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *path[5] = {manager_new(NULL, "outermost")};
    for (int i = 1; i < 5; i++)
        path[i] = manager_new(path[i - 1], "inner");
    nd_resource *survivors[] = {bytes_in(path[4], 1000), bytes_in(path[3], 100),
                                bytes_in(path[2], 10)};
    assert_ok(nd_manager_close(path[1], NULL));
    for (int i = 1; i < 5; i++) {
        nd_manager_stats stats = stats_of(path[i]);
        assert_int_equal(stats.live_objects, 0);
        assert_int_equal(stats.live_bytes[ND_CPU], 0);
        assert_int_equal(stats.subtree_bytes[ND_CPU], 0);
        assert_balanced(path[i]);
    }
    assert_int_equal(stats_of(path[0]).live_bytes[ND_CPU], 1110);
    assert_int_equal(stats_of(path[0]).subtree_bytes[ND_CPU], 1110);
    for (int i = 0; i < 3; i++)
        nd_release(survivors[i]);
    assert_int_equal(stats_of(path[0]).subtree_bytes[ND_CPU], 0);
    for (int i = 5; i-- > 0;)
        nd_release(path[i]);
}

static void test_B30_open_managers_are_named_with_their_lines(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *top = manager_new(NULL, "top"), *steps[3];
    char line[128];
    for (int i = 0; i < 3; i++)
        steps[i] = nd_manager_new(top, "step");
    snprintf(line, sizeof line, "  2 x manager step, made at %s:%d\n", __FILE__, __LINE__ - 1);
    assert_ok(nd_manager_close(steps[1], NULL));
    uint64_t objects;
    char *text = leak_report(top, &objects);
    assert_int_equal(objects, 0); // managers are not among them
    assert_non_null(strstr(text, "ndarc: nobody has closed 2 managers below manager top\n"));
    assert_non_null(strstr(text, line));
    assert_null(strstr(text, "alive"));
    free(text);
    nd_object *x = cell_in(steps[2], 0, 0);
    text = leak_report(top, &objects);
    assert_int_equal(objects, 1);
    assert_non_null(strstr(text, line));
    assert_non_null(strstr(text, "ndarc: 1 objects, 0 bytes are alive below manager top\n"));
    free(text);
    nd_release(x);
    for (int i = 0; i < 3; i++)
        nd_release(steps[i]);
    text = leak_report(top, &objects);
    assert_string_equal(text, "");
    free(text);
    close_and_release(top);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B30_open_managers_are_named_with_their_lines),
        ND_TEST(test_manager_does_not_keep_an_object_alive),
        ND_TEST(test_B08_closing_parent_first_or_child_first_frees_the_same),
        ND_TEST(test_B08_close_is_idempotent),
        ND_TEST(test_B08_releasing_the_last_handle_closes),
        ND_TEST(test_B08_root_cannot_be_closed),
        ND_TEST(test_B09_survivor_moves_to_nearest_open_ancestor_with_its_site),
        ND_TEST(test_B09_sites_of_long_paths_keep_their_ends),
        ND_TEST(test_B09_what_escapes_a_child_of_the_closing_manager_counts_once),
        ND_TEST(test_B10_close_with_nothing_retained_leaves_nothing),
        ND_TEST(test_B10_without_the_collector_cycles_escape_and_are_reported),
        ND_TEST(test_B11_dispose_closes_what_is_still_held),
        ND_TEST(test_B11_dispose_of_a_nest_costs_as_much_per_object_as_that_of_one),
        ND_TEST(test_B11_dispose_of_a_tree_leaves_no_byte_on_an_account),
        ND_TEST(test_B25_live_counters_balance_at_every_boundary),
        ND_TEST(test_B25_closed_managers_account_for_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
