// Collections and boundaries that meet in the same manager: one thread finds garbage that another
// one walks over.
//
// What dies is counted: every round makes a known number of cells, and all of them die once,
// whoever collects them.
#include "tests/behaviour/cell.h"
#include "tests/stress/times.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 4000 / ND_TEST_SCALE, RINGS = 16, LENGTH = 4 };

typedef struct actor {
    nd_manager *shared;
    int role;
    atomic_bool *stop;
    atomic_uint_fast64_t *failures;
} actor;

static void drop_rings(const nd_manager *manager, const nd_manager *guest_of) {
    for (uint32_t r = 0; r < RINGS; r++) {
        nd_object *ring[LENGTH];
        nd_with_manager(manager) {
            for (uint32_t i = 0; i < LENGTH; i++)
                ring[i] = cell_new(0, 1);
        }
        cell_ring(ring, LENGTH);
        for (uint32_t i = 0; i < LENGTH; i++) {
            if (guest_of && i % 2)
                nd_manager_lend(guest_of, ring[i]);
            nd_release(ring[i]);
        }
    }
}

static void collect(actor *a, const nd_manager *manager) {
    nd_gc_report report = ND_GC_REPORT_INIT;
    if (nd_gc_collect(manager, &report) != ND_OK || report.broken_objects)
        atomic_fetch_add(a->failures, 1);
}

static void *act(void *data) {
    actor *a = data;
    for (int round = 0; round < ROUNDS * stress_times(); round++) {
        switch (a->role) {
        case 0: // garbage and collections in one place
            drop_rings(a->shared, NULL);
            collect(a, a->shared);
            break;
        case 1: { // a manager full of garbage is disposed of
            nd_manager *m = nd_manager_new(a->shared, "disposed");
            drop_rings(m, NULL);
            nd_manager_dispose(m, NULL);
            nd_release(m);
            break;
        }
        default: { // garbage that is a guest goes home when its host closes
            nd_manager *m = nd_manager_new(a->shared, "host");
            drop_rings(a->shared, m);
            nd_manager_close(m, NULL);
            nd_release(m);
        }
        }
    }
    return NULL;
}

static void *collect_without_pause(void *data) {
    actor *a = data;
    while (!atomic_load(a->stop))
        collect(a, NULL);
    return NULL;
}

static void run(const int *roles) {
    cell_begin(1);
    nd_gc_set_mode(ND_GC_ON);
    atomic_bool stop = false;
    atomic_uint_fast64_t failures = 0;
    nd_manager *shared = nd_manager_new(NULL, "shared");
    actor actors[THREADS + 1];
    pthread_t threads[THREADS + 1];
    for (int i = 0; i <= THREADS; i++) {
        actors[i] = (actor){shared, i < THREADS ? roles[i] : -1, &stop, &failures};
        assert_int_equal(pthread_create(&threads[i], NULL,
                                        i < THREADS ? act : collect_without_pause, &actors[i]),
                         0);
    }
    for (int i = 0; i <= THREADS; i++) {
        if (i == THREADS)
            atomic_store(&stop, true);
        pthread_join(threads[i], NULL);
    }
    assert_ok(nd_manager_close(shared, NULL));
    nd_release(shared);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(atomic_load(&failures), 0);
    assert_int_equal(cell_total_deaths(),
                     (uint64_t)stress_times() * THREADS * ROUNDS * RINGS * LENGTH);
}

static void test_stress_collections_of_one_manager(void **state) {
    (void)state;
    run((const int[THREADS]){0, 0, 0, 0});
}

static void test_stress_dispose_beside_collections(void **state) {
    (void)state;
    run((const int[THREADS]){1, 1, 1, 1});
}

static void test_stress_guests_go_home_beside_collections(void **state) {
    (void)state;
    run((const int[THREADS]){2, 2, 2, 2});
}

static void test_stress_all_at_once(void **state) {
    (void)state;
    run((const int[THREADS]){0, 1, 2, 2});
}

static void test_stress_all_at_once_in_steps(void **state) {
    (void)state;
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    run((const int[THREADS]){0, 1, 2, 2});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_stress_collections_of_one_manager),
        ND_TEST(test_stress_dispose_beside_collections),
        ND_TEST(test_stress_guests_go_home_beside_collections),
        ND_TEST(test_stress_all_at_once),
        ND_TEST(test_stress_all_at_once_in_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
