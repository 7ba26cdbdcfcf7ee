// What escapes from a close, and dies a step later, is looked at again at the next boundaries
// (B31).
#include "lib/gc/policy.h"
#include "lib/manager/manager.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>

enum { STEPS = 20, RING = 6 };

static nd_object *kept;

/// One step: lets go of what the one before left behind, and leaves a ring behind. Returns how many
/// objects the boundary collected.
static uint64_t run_step(const nd_manager *parent, uint32_t step) {
    nd_manager *m = manager_new(parent, "step");
    nd_object *ring[RING];
    nd_with_manager(m) for (uint32_t i = 0; i < RING; i++) ring[i] = cell_new(step * RING + i, 1);
    cell_ring(ring, RING);
    nd_release(kept);
    kept = ring[0];
    for (uint32_t i = 1; i < RING; i++)
        nd_release(ring[i]);
    nd_close_report report = close_and_release(m);
    assert_int_equal(report.escaped_objects, RING);
    return report.collected_objects;
}

/// A boundary of nothing.
static uint64_t close_empty(const nd_manager *parent) {
    return close_and_release(manager_new(parent, "empty")).collected_objects;
}

static void run_steps(const nd_manager *parent) {
    cell_begin(STEPS * RING);
    uint64_t before = stats_of(parent).live_objects;
    for (uint32_t step = 0; step < STEPS; step++) {
        assert_int_equal(run_step(parent, step), step == 0 ? 0 : RING);
        assert_int_equal(stats_of(parent).live_objects, before + RING);
        assert_int_equal(cell_total_deaths(), step * RING);
        assert_balanced(parent);
    }
    nd_release(kept);
    kept = NULL;
    assert_int_equal(close_empty(parent), RING);
    assert_int_equal(cell_total_deaths(), STEPS * RING);
}

static void test_B31_what_dies_a_step_after_it_escaped_is_collected(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    run_steps(nd_manager_get_root());
    nd_manager *outer = manager_new(NULL, "outer");
    run_steps(outer);
    close_and_release(outer);
}

static atomic_bool stop;

static void *idle(void *data) {
    while (!atomic_load(&stop))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return data;
}

static void test_B31_beside_another_thread_and_in_steps(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    pthread_t thread;
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&thread, NULL, idle, NULL), 0);
    run_steps(nd_manager_get_root());
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    run_steps(nd_manager_get_root());
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

static void test_B31_is_remembered_for_two_closes(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    for (uint32_t closes = 0; closes < 4; closes++) {
        cell_begin(RING);
        assert_int_equal(run_step(NULL, 0), 0);
        for (uint32_t i = 0; i < closes; i++)
            assert_int_equal(close_empty(NULL), 0);
        nd_release(kept);
        kept = NULL;
        assert_int_equal(close_empty(NULL), closes < 2 ? RING : 0);
        assert_int_equal(collect(NULL).collected_objects, closes < 2 ? 0 : RING);
    }
}

static void test_B31_a_boundary_without_anything_to_look_at_does_not_look(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(RING);
    run_step(NULL, 0);
    nd_gc_stats before = ND_GC_STATS_INIT, after = ND_GC_STATS_INIT;
    close_empty(NULL);
    close_empty(NULL);
    assert_ok(nd_gc_get_stats(&before));
    close_empty(NULL);
    assert_ok(nd_gc_get_stats(&after));
    assert_int_equal(before.collections, after.collections);
    nd_release(kept);
    kept = NULL;
    collect(NULL);
}

static void test_B31_leaves_alone_what_is_of_another_mode(void **state) {
    (void)state;
    nd_test_collects_by_policy(); // off at the root
    cell_begin(RING);
    nd_manager *m = manager_new(NULL, "m");
    assert_ok(nd_manager_set_gc_mode(m, ND_GC_ON));
    nd_object *ring[RING];
    nd_with_manager(m) for (uint32_t i = 0; i < RING; i++) ring[i] = cell_new(i, 1);
    cell_ring(ring, RING);
    for (uint32_t i = 1; i < RING; i++)
        nd_release(ring[i]);
    close_and_release(m);
    nd_release(ring[0]);
    m = manager_new(NULL, "m");
    assert_ok(nd_manager_set_gc_mode(m, ND_GC_ON));
    assert_int_equal(close_and_release(m).collected_objects, 0);
    assert_int_equal(collect(NULL).collected_objects, RING);
}

static void test_B31_escapes_to_a_manager_with_a_cap(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    for (int first_escape = 0; first_escape < 2; first_escape++) {
        cell_begin(2 * RING);
        nd_manager *outer = manager_new(NULL, "outer");
        if (first_escape) // what is in the shard for what escaped moves to the first one
            run_step(outer, 0);
        assert_ok(nd_manager_set_cap(outer, 1));
        run_step(outer, 1);
        assert_int_equal(outer->first.count.live, first_escape ? 2 * RING : RING);
        assert_int_equal(nd__atomic_load(&outer->escaped, relaxed)->count.live, 0);
        nd_object *refused = NULL;
        nd_with_manager(outer) refused = cell_new(0, 0);
        assert_null(refused);
        nd_error_clear();
        nd_release(kept);
        kept = NULL;
        assert_int_equal(close_and_release(outer).collected_objects,
                         first_escape ? 2 * RING : RING);
    }
}

static void test_B31_a_survivor_that_moves_on_is_not_looked_at_here(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(RING);
    nd_manager *elsewhere = manager_new(NULL, "elsewhere");
    run_step(NULL, 0);
    assert_ok(nd_manager_attach(elsewhere, kept));
    nd_release(kept);
    kept = NULL;
    assert_int_equal(close_empty(NULL), RING); // by phase 2
    assert_int_equal(close_and_release(elsewhere).collected_objects, 0);
}

static uint64_t collections(void) {
    nd_gc_stats stats = ND_GC_STATS_INIT;
    assert_ok(nd_gc_get_stats(&stats));
    return stats.collections;
}

static void *link_to_itself(void *data) {
    cell_link(data, 0, data);
    return NULL;
}

/// Where no edge was written since a manager was made, no cycle can be of what is in it.
static void test_survivors_are_looked_at_when_an_edge_was_written(void **state) {
    (void)state;
#if ND_COLLECT_EVERYWHERE
    skip(); // every close looks
#endif
    enum { NOTHING, OWN_EDGE, ANOTHER_THREADS, MOVED_THERE, WAYS };
    nd_gc_set_mode(ND_GC_ON);
    for (int way = 0; way < WAYS; way++) {
        cell_begin(1);
        nd_object *object = cell_new(0, 1);
        if (way == MOVED_THERE)
            cell_link(object, 0, object);
        nd_manager *m = manager_new(NULL, "m");
        if (way == MOVED_THERE) {
            assert_ok(nd_manager_attach(m, object));
        } else {
            nd_release(object);
            object = cell_in(m, 0, 1);
        }
        if (way == OWN_EDGE)
            cell_link(object, 0, object);
        if (way == ANOTHER_THREADS) {
            pthread_t thread;
            assert_int_equal(pthread_create(&thread, NULL, link_to_itself, object), 0);
            pthread_join(thread, NULL);
        }
        uint64_t before = collections();
        if (way != NOTHING)
            nd_release(object);
        assert_int_equal(close_and_release(m).collected_objects, way != NOTHING);
        assert_int_equal(collections() - before, way != NOTHING);
        if (way == NOTHING)
            nd_release(object);
    }
}

// What another thread's collection has found to be garbage is in the manager until it is freed, and
// nobody holds it: a close meanwhile moves it, but it has not escaped.

typedef struct slow_cell {
    nd_object *next;
} slow_cell;

static pthread_barrier_t dying;
static atomic_int slow_deaths;

static void slow_destroy(nd_object *self) {
    (void)self;
    if (atomic_fetch_add(&slow_deaths, 1) > 0)
        return;
    pthread_barrier_wait(&dying); // the manager closes
    pthread_barrier_wait(&dying);
}

#define SLOW_EDGES(ONE, MANY) ONE(next)
ND_TYPE_EDGES(slow_cell, SLOW_EDGES)

static const nd_type slow_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "slow",
    .traverse = slow_cell_traverse,
    .clear = slow_cell_clear,
    .destroy = slow_destroy,
};

static void *collect_all(void *manager) {
    nd_gc_collect(manager, NULL);
    return NULL;
}

static void test_garbage_of_another_collection_does_not_escape(void **state) {
    (void)state;
    enum { CELLS = 1000 }; // of which some are still in the manager as the first one is destroyed
    nd_test_collects_by_policy();
    nd_manager *m = manager_new(NULL, "closed meanwhile");
    nd_object *first = NULL, *last = NULL, *survivor = NULL;
    nd_with_manager(m) {
        survivor = nd_object_new(&slow_type, sizeof(slow_cell));
        for (int i = 0; i < CELLS; i++) {
            nd_object *made = nd_object_new(&slow_type, sizeof(slow_cell));
            slow_cell *data = nd_object_get_data(made);
            nd_edge_set(&data->next, last);
            nd_release(last);
            last = made;
            first = first ? first : made;
        }
    }
    nd_edge_set(&((slow_cell *)nd_object_get_data(first))->next, last);
    nd_release(last);
    atomic_store(&slow_deaths, 0);
    pthread_barrier_init(&dying, NULL, 2);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, collect_all, m), 0);
    pthread_barrier_wait(&dying);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    nd_manager_close(m, &report);
    pthread_barrier_wait(&dying);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&dying);
    assert_int_equal(report.escaped_objects, 1);
    assert_int_equal(stats_of(m).escaped_objects, 1);
    assert_int_equal(atomic_load(&slow_deaths), CELLS);
    nd_release(survivor);
    nd_release(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B31_what_dies_a_step_after_it_escaped_is_collected),
        ND_TEST(test_B31_beside_another_thread_and_in_steps),
        ND_TEST(test_B31_is_remembered_for_two_closes),
        ND_TEST(test_B31_a_boundary_without_anything_to_look_at_does_not_look),
        ND_TEST(test_B31_leaves_alone_what_is_of_another_mode),
        ND_TEST(test_B31_escapes_to_a_manager_with_a_cap),
        ND_TEST(test_B31_a_survivor_that_moves_on_is_not_looked_at_here),
        ND_TEST(test_survivors_are_looked_at_when_an_edge_was_written),
        ND_TEST(test_garbage_of_another_collection_does_not_escape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
