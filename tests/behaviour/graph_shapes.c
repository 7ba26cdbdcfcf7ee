// Shapes of garbage, G1 to G11 and G13: what the collector takes, and that it takes nothing else.
// The random graph (G19) is in random_graph.c, shapes made of tensors are in tensors.c and
// fake_device.c.
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <stdlib.h>

static void assert_each_died_once(uint32_t count) {
    for (uint32_t number = 0; number < count; number++)
        assert_int_equal(cell_deaths(number), 1);
}

/// Cells in a ring, held by the returned handle of number 0 alone.
static nd_object *held_ring(uint32_t count) {
    nd_object *first = cell_new(0, 1);
    nd_object *last = nd_retain(first);
    for (uint32_t i = 1; i < count; i++) {
        nd_object *next = cell_new(i, 1);
        cell_link(last, 0, next);
        nd_release(last);
        last = next;
    }
    cell_link(last, 0, first);
    nd_release(last);
    return first;
}

/// A ring is left alone while it is held, and goes when it is not.
static void check_ring(uint32_t count) {
    cell_begin(count);
    nd_object *handle = held_ring(count);
    assert_int_equal(nd_get_count(handle), 2);
    assert_int_equal(collect(NULL).collected_objects, 0);
    assert_int_equal(cell_total_deaths(), 0);
    nd_release(handle);
    assert_int_equal(cell_total_deaths(), 0);
    nd_gc_report report = collect(NULL);
    assert_int_equal(report.collected_objects, count);
    assert_true(report.examined_objects >= count);
    assert_int_equal(report.cycles, 1);
    assert_each_died_once(count);
    assert_int_equal(collect(NULL).collected_objects, 0);
}

static void test_G01_self_loop(void **state) {
    (void)state;
    check_ring(1);
}

static void test_G02_two_ring(void **state) {
    (void)state;
    check_ring(2);
}

static void test_G03_three_ring(void **state) {
    (void)state;
    check_ring(3);
}

static void test_G04_ring_of_1000000(void **state) {
    (void)state;
    check_ring(1000000 / ND_TEST_SCALE);
}

// A chain is no garbage and needs no collector, but both its death and a look at it must not
// recurse: this runs on a thread whose stack has room for a few hundred calls.
enum { CHAIN = 10000000 / ND_TEST_SCALE };

static void *chain_on_a_small_stack(void *data) {
    uint64_t *ret_collected = data;
    nd_object *head = cell_new(0, 1);
    nd_object *tail = nd_retain(head);
    for (uint32_t i = 1; i < CHAIN; i++) {
        nd_object *next = cell_new(i, 1);
        if (!next)
            break;
        cell_link(tail, 0, next);
        nd_release(tail);
        tail = next;
    }
    nd_release(tail);
    nd_gc_report report = ND_GC_REPORT_INIT;
    nd_gc_collect(NULL, &report);
    *ret_collected = report.collected_objects + cell_total_deaths();
    nd_release(head);
    return NULL;
}

static void on_a_small_stack(void *(*function)(void *), void *data) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    assert_int_equal(pthread_attr_setstacksize(&attributes, (size_t)128 << 10), 0);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, &attributes, function, data), 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

static void test_G05_chain_of_10000000(void **state) {
    (void)state;
    cell_begin(CHAIN);
    uint64_t collected = 1;
    on_a_small_stack(chain_on_a_small_stack, &collected);
    assert_int_equal(collected, 0);
    assert_int_equal(cell_total_deaths(), CHAIN);
    assert_each_died_once(CHAIN);
}

static void *ring_on_a_small_stack(void *data) {
    uint64_t *ret_collected = data;
    nd_release(held_ring(1000000 / ND_TEST_SCALE));
    nd_gc_report report = ND_GC_REPORT_INIT;
    nd_gc_collect(NULL, &report);
    *ret_collected = report.collected_objects;
    return NULL;
}

static void test_G04_collecting_a_large_ring_does_not_recurse(void **state) {
    (void)state;
    cell_begin(0);
    uint64_t collected = 0;
    on_a_small_stack(ring_on_a_small_stack, &collected);
    assert_int_equal(collected, 1000000 / ND_TEST_SCALE);
}

static void test_G05_chain_behind_a_dead_ring(void **state) {
    (void)state;
    enum { LONG = 1000000 / ND_TEST_SCALE };
    cell_begin(LONG + 2);
    nd_object *ring[2] = {cell_new(LONG, 1), cell_new(LONG + 1, 2)};
    cell_ring(ring, 2);
    nd_object *tail = nd_retain(ring[1]);
    for (uint32_t i = 0; i < LONG; i++) {
        nd_object *next = cell_new(i, 1);
        cell_link(tail, i ? 0 : 1, next);
        nd_release(tail);
        tail = next;
    }
    nd_release(tail);
    nd_release(ring[0]);
    nd_release(ring[1]);
    assert_int_equal(collect(NULL).collected_objects, LONG + 2);
    assert_each_died_once(LONG + 2);
}

static void test_G06_star_with_fan_in_of_1000000(void **state) {
    (void)state;
    enum { RAYS = 1000000 / ND_TEST_SCALE };
    cell_begin(RAYS + 1);
    nd_object *hub = cell_new(RAYS, RAYS);
    nd_object *one = NULL;
    for (uint32_t i = 0; i < RAYS; i++) {
        nd_object *ray = cell_new(i, 1);
        cell_link(ray, 0, hub);
        cell_link(hub, i, ray);
        if (i == RAYS / 2)
            one = nd_retain(ray);
        nd_release(ray);
    }
    assert_int_equal(nd_get_count(hub), RAYS + 1);
    nd_release(hub);
    assert_int_equal(collect(NULL).collected_objects, 0); // one ray holds all
    nd_release(one);
    assert_int_equal(collect(NULL).collected_objects, RAYS + 1);
    assert_each_died_once(RAYS + 1);
}

static void test_G07_parallel_edges_1000(void **state) {
    (void)state;
    enum { EDGES = 1000 };
    cell_begin(2);
    nd_object *a = cell_new(0, EDGES), *b = cell_new(1, 1);
    for (uint32_t i = 0; i < EDGES; i++)
        cell_link(a, i, b);
    cell_link(b, 0, a);
    assert_int_equal(nd_get_count(b), EDGES + 1);
    nd_release(a);
    assert_int_equal(collect(NULL).collected_objects, 0);
    for (uint32_t i = 0; i < EDGES / 2; i++)
        cell_unlink(cell_of(b)->edges[0], i);
    assert_int_equal(nd_get_count(b), EDGES / 2 + 1);
    nd_release(b);
    assert_int_equal(collect(NULL).collected_objects, 2);
    assert_each_died_once(2);
}

static void link_both_ways(nd_object *const *cells, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        cell_link(cells[i], 0, cells[(i + 1) % count]);
        cell_link(cells[i], 1, cells[(i + count - 1) % count]);
    }
}

static void test_G08_dead_rings_beside_a_live_one(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    enum { RINGS = 2000, LENGTH = 20, LIVE = 100 };
    cell_begin(RINGS * LENGTH + LIVE);
    nd_object *live[LIVE];
    for (uint32_t i = 0; i < LIVE; i++)
        live[i] = cell_new(RINGS * LENGTH + i, 2);
    for (uint32_t r = 0; r < RINGS; r++) {
        nd_object *ring[LENGTH];
        for (uint32_t i = 0; i < LENGTH; i++)
            ring[i] = cell_new(r * LENGTH + i, 2);
        link_both_ways(ring, LENGTH);
        for (uint32_t i = 0; i < LENGTH; i++)
            nd_release(ring[i]);
    }
    link_both_ways(live, LIVE);
    for (uint32_t i = 1; i < LIVE; i++)
        nd_release(live[i]);

    nd_gc_report report = collect(NULL);
    assert_int_equal(report.collected_objects, RINGS * LENGTH);
    assert_int_equal(report.cycles, RINGS);
    assert_each_died_once(RINGS * LENGTH);
    const nd_object *at = live[0];
    for (uint32_t i = 0; i < LIVE; i++) {
        assert_int_equal(cell_of(at)->number, RINGS * LENGTH + i);
        assert_int_equal(nd_get_count(at), i ? 2 : 3);
        const nd_object *next = cell_of(at)->edges[0];
        assert_ptr_equal(cell_of(next)->edges[1], at);
        at = next;
    }
    assert_ptr_equal(at, live[0]);
    nd_release(live[0]);
    assert_int_equal(collect(NULL).collected_objects, LIVE);
}

/// So many that the first of the dead rings are decided on before the live one is met; and then
/// once more, with what the live one reaches elsewhere.
static void test_G08_live_ring_between_dead_ones(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    enum { RINGS = 3000, DEAD = 4 * RINGS, LIVE = DEAD, ELSEWHERE };
    for (int reaches = 0; reaches <= 1; reaches++) {
        cell_begin(DEAD + 2);
        nd_object *elsewhere = cell_new(ELSEWHERE, 0), *live = NULL;
        nd_manager *manager = nd_manager_new(NULL, "rings");
        nd_with_manager(manager) {
            for (uint32_t r = 0; r < 2 * RINGS; r++) {
                nd_object *first = cell_new(2 * r, 1), *second = cell_new(2 * r + 1, 1);
                cell_link(first, 0, second);
                cell_link(second, 0, first);
                nd_release(first);
                nd_release(second);
                if (r == RINGS)
                    live = cell_new(LIVE, 2);
            }
        }
        cell_link(live, 0, live);
        if (reaches)
            cell_link(live, 1, elsewhere);
        nd_gc_report report = collect(manager);
        assert_int_equal(report.collected_objects, DEAD);
        assert_int_equal(report.cycles, 2 * RINGS);
        assert_each_died_once(DEAD);
        assert_int_equal(nd_get_count(live), 2);
        nd_release(live);
        nd_close_report close = ND_CLOSE_REPORT_INIT;
        assert_int_equal(nd_manager_close(manager, &close), ND_OK);
        assert_int_equal(nd_gc_collect(NULL, NULL), ND_OK);
        nd_release(manager);
        nd_release(elsewhere);
        assert_each_died_once(DEAD + 2);
    }
}

static void test_G09_live_child_of_a_dead_cycle_keeps_its_count(void **state) {
    (void)state;
    cell_begin(5);
    nd_object *ring[3] = {cell_new(0, 2), cell_new(1, 2), cell_new(2, 2)};
    nd_object *child = cell_new(3, 0), *holder = cell_new(4, 1);
    cell_ring(ring, 3);
    for (uint32_t i = 0; i < 3; i++)
        cell_link(ring[i], 1, child);
    cell_link(holder, 0, child);
    assert_int_equal(nd_get_count(child), 5);
    for (uint32_t i = 0; i < 3; i++)
        nd_release(ring[i]);
    assert_int_equal(collect(NULL).collected_objects, 3);
    assert_int_equal(nd_get_count(child), 2);
    nd_release(child);
    assert_int_equal(cell_deaths(3), 0);
    nd_release(holder);
    assert_each_died_once(5);
}

static void test_G10_diamond_visited_twice(void **state) {
    (void)state;
    for (int held = 0; held < 2; held++) {
        cell_begin(4);
        nd_object *c[4];
        for (uint32_t i = 0; i < 4; i++)
            c[i] = cell_new(i, 2);
        cell_link(c[0], 0, c[1]);
        cell_link(c[0], 1, c[2]);
        cell_link(c[1], 0, c[3]);
        cell_link(c[2], 0, c[3]);
        cell_link(c[3], 0, c[0]);
        for (int i = 0; i < 4; i++)
            if (i != 2 || !held)
                nd_release(c[i]);
        if (held) {
            assert_int_equal(collect(NULL).collected_objects, 0);
            nd_release(c[2]);
        }
        assert_int_equal(collect(NULL).collected_objects, 4);
        assert_each_died_once(4);
    }
}

static void test_G11_cycle_through_a_list(void **state) {
    (void)state;
    cell_begin(2);
    nd_object *owner = cell_new(0, 1), *other = cell_new(1, 0);
    nd_list *list = nd_list_new();
    assert_ok(nd_list_append(list, other));
    assert_ok(nd_list_append(list, owner));
    cell_link(owner, 0, list);
    nd_release(other);
    nd_release(owner);
    assert_int_equal(collect(NULL).collected_objects, 0);
    nd_release(list);
    assert_int_equal(collect(NULL).collected_objects, 3);
    assert_each_died_once(2);
}

static uint32_t freed_boxes;

typedef struct box {
    nd_object *inside;
} box;

static void box_traverse(const void *pointer, nd_visitor *visitor) {
    nd_visit(visitor, ((const box *)pointer)->inside, "inside");
}

static void box_clear(void *pointer) {
    nd_edge_clear(&((box *)pointer)->inside);
}

static void box_free(void *pointer, size_t bytes) {
    (void)bytes;
    freed_boxes++;
    free(pointer);
}

static void test_G11_cycle_through_a_resource(void **state) {
    (void)state;
    static const nd_resource_callbacks callbacks = {
        .size = sizeof(nd_resource_callbacks),
        .version = 1,
        .free = box_free,
        .traverse = box_traverse,
        .clear = box_clear,
    };
    cell_begin(1);
    freed_boxes = 0;
    box *memory = calloc(1, sizeof *memory);
    nd_resource *resource = nd_resource_new("box", memory, sizeof *memory, &callbacks);
    nd_object *owner = cell_new(0, 1);
    nd_edge_set(&memory->inside, owner);
    cell_link(owner, 0, resource);
    nd_release(owner);
    assert_int_equal(collect(NULL).collected_objects, 0);
    nd_release(resource);
    nd_gc_report report = collect(NULL);
    assert_int_equal(report.collected_objects, 2);
    assert_int_equal(report.collected_bytes, sizeof *memory);
    assert_int_equal(freed_boxes, 1);
    assert_each_died_once(1);
}

// ------------------------------------------------------------------------------------------------
// boundaries

static void test_G13_cycle_across_a_closing_and_an_open_manager(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    for (int held = 0; held < 2; held++) {
        cell_begin(3);
        nd_manager *closing = nd_manager_new(NULL, "closing");
        nd_manager *open = nd_manager_new(NULL, "open");
        nd_object *a = NULL, *b = NULL;
        nd_with_manager(closing) {
            a = cell_new(0, 1);
        }
        nd_with_manager(open) {
            b = cell_new(1, 2);
            nd_object *behind = cell_new(2, 1);
            cell_link(b, 1, behind);
            cell_link(behind, 0, b);
            nd_release(behind);
        }
        cell_link(a, 0, b);
        cell_link(b, 0, a);
        nd_release(a);
        if (!held)
            nd_release(b);
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        assert_ok(nd_manager_close(closing, &report));
        if (held) {
            assert_int_equal(report.collected_objects, 0);
            assert_int_equal(report.escaped_objects, 1);
            assert_ptr_equal(cell_of(b)->edges[0], a);
            assert_ptr_equal(nd_get_manager(cell_of(b)->edges[0]), nd_manager_get_root());
            nd_release(b);
            assert_int_equal(collect(NULL).collected_objects, 3);
        } else {
            assert_int_equal(report.collected_objects, 3);
            assert_int_equal(report.escaped_objects, 0);
        }
        assert_each_died_once(3);
        nd_release(closing);
        assert_ok(nd_manager_close(open, NULL));
        nd_release(open);
    }
}

static void test_boundary_collects_its_own_survivors_only(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(6);
    nd_manager *m = nd_manager_new(NULL, "m"), *other = nd_manager_new(NULL, "other");
    nd_with_manager(m) {
        cell_drop_ring(0, 3);
    }
    nd_with_manager(other) {
        cell_drop_ring(3, 3);
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(m, &report));
    assert_int_equal(report.collected_objects, 3);
    assert_int_equal(cell_deaths(3), 0);
    assert_ok(nd_manager_close(other, &report));
    assert_int_equal(report.collected_objects, 3);
    assert_each_died_once(6);
    nd_release(m);
    nd_release(other);
}

/// Phase 2 is as large beside a model of any size (docs/collector.md).
static void test_survivors_lead_to_1024_objects_elsewhere_at_most(void **state) {
    (void)state;
    enum { MODEL = 5000, MOST_SURVIVORS = 200, REACHED = 1024 };
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(MODEL + MOST_SURVIVORS);
    nd_object *model = held_ring(MODEL);
    for (uint32_t count = 1; count <= MOST_SURVIVORS; count = count * 4 + 3) {
        nd_manager *step = nd_manager_new(NULL, "step");
        nd_object *survivors[MOST_SURVIVORS];
        for (uint32_t i = 0; i < count; i++) {
            nd_with_manager(step) survivors[i] = cell_new(MODEL + i, 1);
            cell_link(survivors[i], 0, model);
        }
        assert_int_equal(collect(step).examined_objects, count + REACHED);
        for (uint32_t i = 0; i < count; i++)
            nd_release(survivors[i]);
        nd_release(step);
    }
    nd_release(model);
    assert_int_equal(collect(NULL).collected_objects, MODEL);
}

static void test_modes_are_inherited_and_set_per_manager(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(9);
    nd_manager *on = nd_manager_new(NULL, "on");
    nd_manager *off = nd_manager_new(on, "off");
    nd_manager *inherits = nd_manager_new(on, "inherits");
    assert_ok(nd_manager_set_gc_mode(on, ND_GC_ON));
    assert_ok(nd_manager_set_gc_mode(off, ND_GC_OFF));
    nd_manager *managers[3] = {off, inherits, on};
    uint32_t deaths[3] = {0, 3, 9}; // what off leaves behind, on collects: it has moved up
    for (uint32_t i = 0; i < 3; i++) {
        nd_with_manager(managers[i]) {
            cell_drop_ring(3 * i, 3);
        }
    }
    for (uint32_t i = 0; i < 3; i++) {
        assert_ok(nd_manager_close(managers[i], NULL));
        assert_int_equal(cell_total_deaths(), deaths[i]);
        nd_release(managers[i]);
    }
    assert_each_died_once(9);
}

static char reported_path[512];
static uint64_t reported_cycles, reported_objects;

static void note_cycle(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)bytes;
    snprintf(reported_path, sizeof reported_path, "%s", path);
    reported_cycles++;
    reported_objects += objects;
    (*(uint32_t *)data)++;
}

static void test_warn_mode_reports_the_path_and_frees_nothing(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(2);
    uint32_t calls = 0;
    reported_cycles = reported_objects = 0;
    nd_gc_set_cycle_callback(note_cycle, &calls);
    nd_gc_set_mode(ND_GC_WARN);
    nd_manager *m = nd_manager_new(NULL, "m");
    nd_with_manager(m) {
        nd_object *ring[2] = {cell_new(0, 1), cell_new(1, 1)};
        assert_ok(nd_set_name(ring[0], "w1"));
        cell_ring(ring, 2);
        nd_release(ring[0]);
        nd_release(ring[1]);
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(m, &report));
    nd_release(m);
    assert_int_equal(report.collected_objects, 0);
    assert_int_equal(report.escaped_objects, 2);
    assert_int_equal(cell_total_deaths(), 0);
    assert_int_equal(calls, 1);
    assert_int_equal(reported_cycles, 1);
    assert_int_equal(reported_objects, 2);
    assert_non_null(strstr(reported_path, "cell(w1)"));
    assert_non_null(strstr(reported_path, "-first->"));
    nd_gc_set_cycle_callback(NULL, NULL);
    nd_gc_set_mode(ND_GC_ON);
    assert_int_equal(collect(NULL).collected_objects, 2);
}

static void test_byte_threshold_collects_without_a_boundary(void **state) {
    (void)state;
    static char nowhere[1];
    static const nd_resource_callbacks callbacks = {.size = sizeof callbacks, .version = 1};
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(1);
    assert_ok(nd_test_set_threshold(ND_CPU, 1 << 20));
    nd_manager *m = nd_manager_new(NULL, "m");
    uint64_t peak = 0;
    for (int i = 0; i < 200; i++) {
        nd_with_manager(m) {
            nd_object *ring = cell_new(0, 2);
            nd_resource *buffer = nd_resource_new("buffer", nowhere, 100 << 10, &callbacks);
            cell_link(ring, 0, ring);
            cell_link(ring, 1, buffer);
            nd_release(buffer);
            nd_release(ring);
        }
        uint64_t bytes = nd_manager_get_total_bytes(m);
        peak = bytes > peak ? bytes : peak;
    }
    assert_true(peak <= 3 << 20);
    assert_true(cell_total_deaths() >= 150);
    assert_ok(nd_manager_close(m, NULL));
    nd_release(m);
    assert_int_equal(cell_total_deaths(), 200);
    assert_ok(nd_test_set_threshold(ND_CPU, 64 << 20));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G01_self_loop),
        ND_TEST(test_G02_two_ring),
        ND_TEST(test_G03_three_ring),
        ND_TEST(test_G04_ring_of_1000000),
        ND_TEST(test_G04_collecting_a_large_ring_does_not_recurse),
        ND_TEST(test_G05_chain_of_10000000),
        ND_TEST(test_G05_chain_behind_a_dead_ring),
        ND_TEST(test_G06_star_with_fan_in_of_1000000),
        ND_TEST(test_G07_parallel_edges_1000),
        ND_TEST(test_G08_dead_rings_beside_a_live_one),
        ND_TEST(test_G08_live_ring_between_dead_ones),
        ND_TEST(test_G09_live_child_of_a_dead_cycle_keeps_its_count),
        ND_TEST(test_G10_diamond_visited_twice),
        ND_TEST(test_G11_cycle_through_a_list),
        ND_TEST(test_G11_cycle_through_a_resource),
        ND_TEST(test_G13_cycle_across_a_closing_and_an_open_manager),
        ND_TEST(test_boundary_collects_its_own_survivors_only),
        ND_TEST(test_survivors_lead_to_1024_objects_elsewhere_at_most),
        ND_TEST(test_modes_are_inherited_and_set_per_manager),
        ND_TEST(test_warn_mode_reports_the_path_and_frees_nothing),
        ND_TEST(test_byte_threshold_collects_without_a_boundary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
