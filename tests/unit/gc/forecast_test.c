// What a collection that only warns says is what a real one frees then: objects, bytes and groups, in
// random graphs over managers, of objects that the collector examines, of green ones with edges of
// their own, and of bytes, some of them held by the program. And it changes nothing.
#define ND_TEST_COLLECTS_BY_POLICY
#include "lib/base/alloc.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <unistd.h>

enum {
    CELLS = 60,
    GREENS = 30,
    BUFFERS = 20,
    ALL = CELLS + GREENS + BUFFERS,
    EDGES = 3,
    MANAGERS = 4,
    ROUNDS = 400 / ND_TEST_SCALE
};

typedef struct green {
    nd_object *edges[EDGES];
} green;

static void green_traverse(const nd_object *self, nd_visitor *visitor) {
    const green *of = nd_object_get_data(self);
    for (int i = 0; i < EDGES; i++)
        nd_visit(visitor, of->edges[i], "edge");
}

static void green_clear(nd_object *self) {
    green *of = nd_object_get_data(self);
    for (int i = 0; i < EDGES; i++)
        nd_edge_clear(&of->edges[i]);
}

static const nd_type green_type = {
    .size = sizeof green_type,
    .version = 1,
    .name = "green",
    .flags = ND_TYPE_GREEN,
    .traverse = green_traverse,
    .clear = green_clear,
};

static uint64_t random_state;

static uint32_t draw(uint32_t below) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 11) % below);
}

/// The root, and three below it, one of which is below another.
static nd_manager *managers[MANAGERS];

static void begin(uint64_t seed) {
    random_state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    cell_begin(CELLS);
    managers[0] = nd_retain(nd_manager_get_root());
    for (int i = 1; i < MANAGERS; i++)
        managers[i] = manager_new(managers[i / 2], "m");
}

static void end(void) {
    for (int i = MANAGERS - 1; i > 0; i--)
        close_and_release(managers[i]);
    nd_release(managers[0]);
    cell_end();
}

/// Objects that point to each other at random; of greens and buffers those that came later to those
/// that came before, so that they make no cycle. The array's counts are all there are.
static void make_graph(nd_object **objects) {
    for (uint32_t i = 0; i < ALL; i++)
        nd_with_manager(managers[draw(MANAGERS)]) {
            if (i < BUFFERS)
                objects[i] = (nd_object *)bytes_in(nd_manager_get_current(), 1 + draw(1000));
            else if (i < BUFFERS + GREENS)
                objects[i] = nd_object_new(&green_type, sizeof(green));
            else
                objects[i] = cell_new(i - BUFFERS - GREENS, EDGES);
            assert_handle(objects[i]);
        }
    for (uint32_t i = BUFFERS; i < ALL; i++)
        for (uint32_t k = 0; k < EDGES; k++) {
            bool is_cell = i >= BUFFERS + GREENS;
            if (draw(3) == 0)
                continue;
            const nd_object *to = objects[draw(is_cell ? ALL : i)];
            if (is_cell)
                cell_link(objects[i], k, to);
            else
                nd_edge_set(&((green *)nd_object_get_data(objects[i]))->edges[k], to);
        }
}

/// Lets most of it go.
static void drop_most(nd_object **objects, uint32_t one_in) {
    for (uint32_t i = 0; i < ALL; i++)
        if (draw(one_in) != 0) {
            nd_release(objects[i]);
            objects[i] = NULL;
        }
}

static uint64_t told_cells;

static void tell(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)path, (void)bytes, (void)data;
    told_cells += objects;
}

static nd_gc_report collect_in_mode(nd_manager *manager, nd_gc_mode mode) {
    nd_gc_report report = ND_GC_REPORT_INIT;
    nd_gc_set_cycle_callback(tell, NULL);
    told_cells = 0;
    assert_ok(nd_gc_set_mode(mode));
    assert_ok(nd_gc_collect(manager, &report));
    assert_ok(nd_gc_set_mode(ND_GC_OFF));
    nd_gc_set_cycle_callback(NULL, NULL);
    return report;
}

/// Warned twice, then collected: all three say the same. Returns how many objects.
static uint64_t compare(nd_manager *manager) {
    const uint64_t deaths = cell_total_deaths(), objects = nd_manager_get_total_objects(NULL),
                   bytes = nd_manager_get_total_bytes(NULL);
    nd_gc_report warned[2];
    for (int i = 0; i < 2; i++) {
        warned[i] = collect_in_mode(manager, ND_GC_WARN);
        assert_int_equal(cell_total_deaths(), deaths);
        assert_int_equal(nd_manager_get_total_objects(NULL), objects);
        assert_int_equal(nd_manager_get_total_bytes(NULL), bytes);
    }
    const uint64_t told = told_cells;
    assert_ok(nd_debug_check());
    nd_gc_report freed = collect_in_mode(manager, ND_GC_ON);
    assert_int_equal(told_cells, told);
    assert_int_equal(freed.collected_objects, objects - nd_manager_get_total_objects(NULL));
    assert_int_equal(freed.collected_bytes, bytes - nd_manager_get_total_bytes(NULL));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(warned[i].collected_objects, freed.collected_objects);
        assert_int_equal(warned[i].collected_bytes, freed.collected_bytes);
        assert_int_equal(warned[i].cycles, freed.cycles);
    }
    return freed.collected_objects;
}

static void compare_rounds(uint64_t seed, uint64_t rounds) {
    uint64_t all = 0;
    for (uint64_t round = 0; round < rounds; round++) {
        nd_object *objects[ALL];
        begin(seed + round);
        make_graph(objects);
        drop_most(objects, 2 + (uint32_t)(round % 4) * 8);
        all +=
            compare(managers[draw(MANAGERS)]); // of some managers: others may hold what is in them
        all += compare(NULL);
        for (uint32_t i = 0; i < ALL; i++)
            nd_release(objects[i]);
        all += compare(NULL);
        assert_int_equal(cell_total_deaths(), CELLS);
        end();
    }
    assert_true(all > rounds * CELLS / 4);
}

static void test_what_is_warned_of_is_what_is_freed(void **state) {
    (void)state;
    compare_rounds(1, ROUNDS);
}

static void *wait_for_stop(void *stop) {
    while (!atomic_load((atomic_bool *)stop))
        usleep(1000);
    return NULL;
}

static void test_what_is_warned_of_in_steps_is_what_is_freed(void **state) {
    (void)state;
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    atomic_bool stop = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stop, &stop), 0);
    compare_rounds(100000, ROUNDS / 4);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
    policy.pause_ns = ND_GC_INHERITED;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
}

/// A ring that holds many more than have room at first, by two ways.
static void test_many_behind_a_ring_are_counted(void **state) {
    (void)state;
    enum { MANY = 3000 };
    begin(7);
    nd_object *ring = cell_new(0, MANY + 1);
    cell_link(ring, MANY, ring);
    for (uint32_t i = 0; i < MANY; i++) {
        nd_object *one = nd_object_new(&green_type, sizeof(green));
        nd_auto nd_resource *buffer = bytes_in(managers[1], i);
        nd_edge_set(&((green *)nd_object_get_data(one))->edges[0], buffer);
        nd_edge_set(&((green *)nd_object_get_data(one))->edges[1], buffer);
        cell_link(ring, i, one);
        nd_release(one);
    }
    nd_release(ring);
    assert_int_equal(compare(NULL), 2 * MANY + 1);
    end();
}

static int allocations_left;

static bool allocation_fails(size_t bytes) {
    (void)bytes;
    return allocations_left-- <= 0;
}

/// Without memory it says so, and leaves everything as it was.
static void test_F01_every_allocation_of_a_warning_fails_once(void **state) {
    (void)state;
    nd_object *objects[ALL];
    begin(3);
    make_graph(objects);
    drop_most(objects, 10);
    nd_gc_set_cycle_callback(tell, NULL);
    assert_ok(nd_gc_set_mode(ND_GC_WARN));
    bool done = false, failed = false;
    for (int n = 0; !done; n++) {
        assert_true(n < 1000);
        nd_gc_report report = ND_GC_REPORT_INIT;
        allocations_left = n;
        nd__alloc_should_fail = allocation_fails;
        nd_status status = nd_gc_collect(NULL, &report);
        nd__alloc_should_fail = NULL;
        done = allocations_left >= 0;
        failed = failed || status == ND_ERROR_OUT_OF_MEMORY;
        assert_true(status == ND_OK || status == ND_ERROR_OUT_OF_MEMORY);
        assert_true(!done || status == ND_OK);
        nd_error_clear();
    }
    assert_true(failed);
    compare(NULL);
    for (uint32_t i = 0; i < ALL; i++)
        nd_release(objects[i]);
    compare(NULL);
    assert_int_equal(cell_total_deaths(), CELLS);
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_what_is_warned_of_is_what_is_freed),
        ND_TEST(test_what_is_warned_of_in_steps_is_what_is_freed),
        ND_TEST(test_many_behind_a_ring_are_counted),
        ND_TEST(test_F01_every_allocation_of_a_warning_fails_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
