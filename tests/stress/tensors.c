// Tensors and views of them that threads hand to each other: the last one to go takes the storage
// along, on whatever thread that is, in whatever manager either of the two is by then, and beside
// whoever looks at everything that is alive.
#include "tests/behaviour/helpers.h"
#include "tests/stress/times.h"
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4, ROUNDS = 40 / ND_TEST_SCALE + 1, STEPS = 2000, SLOTS = 16, MANAGERS = 3 };

static nd_manager *managers[MANAGERS]; // [1] is below [0]
static _Atomic(nd_tensor *) slots[SLOTS];
static atomic_bool done;

static nd_manager *some_manager(uint32_t number) {
    return managers[number % MANAGERS];
}

/// A tensor, or NULL while its manager is at its cap.
static nd_tensor *make(uint32_t number) {
    nd_tensor *x = NULL;
    nd_with_manager(some_manager(number)) x = nd_empty(ND_SHAPE(1 + number % 80), ND_F32);
    return x;
}

/// A view in a manager of its own choice.
static nd_tensor *view_of(const nd_tensor *x, uint32_t number) {
    nd_tensor *view = NULL;
    nd_with_manager(some_manager(number)) view = nd_slice(x, 0, 1, 1, 0);
    return view;
}

static void step(uint32_t number) {
    nd_tensor *mine = make(number);
    nd_tensor *view = mine ? view_of(mine, number / 3) : NULL;
    if (number % 5 == 0 && view)
        nd_manager_attach(some_manager(number / 5),
                          view); // takes the storage along; may be refused
    if (number % 7 == 0 && mine)
        nd_manager_lend(some_manager(number / 7), mine);
    nd_tensor *given = number & 1 ? mine : view;
    nd_tensor *kept = number & 1 ? view : mine;
    nd_tensor *taken = atomic_exchange(&slots[number % SLOTS], given);
    nd_tensor *further = taken ? view_of(taken, number) : NULL;
    nd_release(taken);
    nd_release(kept);
    nd_release(further);
    if (number % 11 == 0)
        nd_error_clear();
}

static void *work(void *data) {
    uint32_t number = (uint32_t)(uintptr_t)data * 7919;
    assert_ok(nd_test_use_device());
    for (int i = 0; i < STEPS; i++)
        step(number = number * 1664525 + 1013904223);
    return NULL;
}

static void *look(void *data) {
    (void)data;
    FILE *nowhere = fopen("/dev/null", "w");
    while (!atomic_load(&done)) {
        nd_debug_dump_json(NULL, nowhere, 0);
        nd_gc_report report = ND_GC_REPORT_INIT;
        nd_gc_collect(NULL, &report);
    }
    fclose(nowhere);
    return NULL;
}

static void must_add_up(const nd_manager *manager) {
    nd_manager_stats s = stats_of(manager);
    assert_int_equal(s.live_objects, 0);
    assert_int_equal(own_bytes(manager), 0);
    assert_int_equal(s.created_objects + s.arrived_objects,
                     s.freed_objects + s.collected_objects + s.departed_objects);
}

static void one_round(int round) {
    managers[0] = manager_new(NULL, "above");
    managers[1] = manager_new(managers[0], "below");
    managers[2] = manager_new(NULL, "beside");
    if (round % 4 == 3)
        assert_ok(nd_manager_set_cap(managers[2], 5));
    atomic_store(&done, false);
    pthread_t threads[THREADS], looking;
    assert_int_equal(pthread_create(&looking, NULL, look, NULL), 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + (uintptr_t)round)),
                         0);
    if (round % 4 == 1)
        assert_ok(nd_manager_close(managers[1], NULL)); // what is made from here on goes above
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&done, true);
    pthread_join(looking, NULL);
    for (int i = 0; i < SLOTS; i++)
        nd_release(atomic_exchange(&slots[i], NULL));
    for (int i = 0; i < MANAGERS; i++)
        must_add_up(managers[i]);
    assert_ok(nd_debug_check());
    for (int i = MANAGERS; i-- > 0;) {
        assert_ok(nd_manager_close(managers[i], NULL));
        nd_release(managers[i]);
    }
    nd_error_clear();
}

static void test_stress_tensors_and_views_die_anywhere(void **state) {
    (void)state;
    for (int round = 0; round < stress_rounds(ROUNDS); round++)
        one_round(round);
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_stress_tensors_and_views_die_anywhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
