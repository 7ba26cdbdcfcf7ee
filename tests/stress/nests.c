// Nests of managers that are closed from the innermost outwards below one that all threads share,
// so that shards are handed up, beside threads that do the same, that move what escaped, and that
// walk over all there is.
//
// What dies is counted: every survivor is released once.
#include "tests/behaviour/cell.h"
#include "tests/stress/times.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 3, ROUNDS = 600 / ND_TEST_SCALE, DEPTH = 4, EACH = 40, ALL = DEPTH * EACH };

static nd_manager *shared, *elsewhere;
static _Atomic(nd_manager *) offered; ///< somebody's middle manager, owned: to be closed by others
static atomic_bool stop;
static atomic_uint_fast64_t failures;

static void check(bool right) {
    if (!right)
        atomic_fetch_add(&failures, 1);
}

/// Offers a manager to the others, and closes the one that was on offer.
static void exchange_offer(nd_manager *manager) {
    nd_manager *other = atomic_exchange(&offered, manager);
    if (other) {
        check(nd_manager_close(other, NULL) == ND_OK);
        nd_release(other);
    }
}

static void close_a_nest(nd_object **made) {
    nd_manager *nest[DEPTH];
    for (int i = 0; i < DEPTH; i++) {
        nest[i] = nd_manager_new(i ? nest[i - 1] : shared, "nested");
        nd_with_manager(nest[i]) for (int k = 0; k < EACH; k++) made[i * EACH + k] =
            cell_new(0, (uint32_t)k % 2);
    }
    exchange_offer(nd_retain(nest[DEPTH / 2]));
    for (int i = DEPTH; i-- > 0;) {
        check(nd_manager_close(nest[i], NULL) == ND_OK);
        nd_release(nest[i]);
    }
}

static void *close_nests(void *data) {
    for (int round = 0; round < ROUNDS * stress_times(); round++) {
        nd_object *made[ALL];
        close_a_nest(made);
        for (int i = 0; i < ALL; i++) {
            nd_manager *home = nd_get_manager_retained(made[i]);
            check(home != NULL);
            nd_release(home);
            if (i % 7 == round % 7) // the manager may be closing
                check(nd_manager_attach(i % 2 ? elsewhere : shared, made[i]) == ND_OK);
        }
        for (int i = 0; i < ALL; i++)
            nd_release(made[(i + round) % ALL]);
    }
    return data;
}

static void *look_at_all(void *data) {
    while (!atomic_load(&stop)) {
        nd_manager_stats stats = ND_MANAGER_STATS_INIT;
        check(nd_gc_collect(NULL, NULL) == ND_OK);
        check(nd_manager_get_stats(shared, &stats) == ND_OK);
        check(nd_manager_get_total_objects(NULL) != UINT64_MAX);
        nd_manager *empty = nd_manager_new(shared, "empty");
        check(nd_manager_close(empty, NULL) == ND_OK);
        nd_release(empty);
    }
    return data;
}

static void run(nd_gc_mode mode) {
    cell_begin(1);
    nd_gc_set_mode(mode);
    atomic_store(&stop, false);
    atomic_store(&failures, 0);
    shared = nd_manager_new(NULL, "shared");
    elsewhere = nd_manager_new(NULL, "elsewhere");
    pthread_t threads[THREADS + 1];
    for (int i = 0; i <= THREADS; i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, i < THREADS ? close_nests : look_at_all, NULL), 0);
    for (int i = 0; i <= THREADS; i++) {
        if (i == THREADS)
            atomic_store(&stop, true);
        pthread_join(threads[i], NULL);
    }
    exchange_offer(NULL);
    assert_int_equal(atomic_load(&failures), 0);
    assert_ok(nd_debug_check());
    assert_ok(nd_manager_close(shared, NULL));
    assert_ok(nd_manager_close(elsewhere, NULL));
    nd_release(shared);
    nd_release(elsewhere);
    assert_int_equal(cell_total_deaths(), (uint64_t)stress_times() * THREADS * ROUNDS * ALL);
}

static void test_stress_nests_with_the_collector_off(void **state) {
    (void)state;
    run(ND_GC_OFF);
}

static void test_stress_nests_with_the_collector_on(void **state) {
    (void)state;
    run(ND_GC_ON);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_stress_nests_with_the_collector_off),
        ND_TEST(test_stress_nests_with_the_collector_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
