// Small tensors that all threads make views of at once, the first of which makes the storage, while
// some attach and lend them, the managers close, and everybody lets go of them: views that are left
// have the right numbers, and each manager's bytes are those of what it holds.
#include "tests/behaviour/helpers.h"
#include "tests/stress/times.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 300 / ND_TEST_SCALE + 1, TENSORS = 32, FLOATS = 12, MANAGERS = 3 };

static struct {
    pthread_barrier_t begin;
    nd_tensor *tensors[TENSORS];    // a handle for each thread
    atomic_int users[TENSORS];      // threads that still use it
    nd_manager *managers[MANAGERS]; // the last one is closed meanwhile
} world;

typedef struct worker {
    uint32_t random;
    nd_tensor *views[TENSORS];
} worker;

static uint32_t draw(worker *me, uint32_t below) {
    me->random = me->random * 1664525 + 1013904223;
    return (me->random >> 8) % below;
}

static void must_hold(const nd_tensor *view, int number) {
    float data[FLOATS];
    assert_ok(nd_copy_to_host(view, data, sizeof data));
    for (int i = 0; i < FLOATS; i++)
        assert_true(data[i] == (float)number);
}

/// Views and moves one that all have, then lets go of it. The last one may close it: views stay.
static void use(worker *me, int number) {
    nd_tensor *x = world.tensors[number];
    uint32_t what = draw(me, 6);
    const nd_manager *manager = world.managers[draw(me, MANAGERS)];
    if (what == 0)
        nd_manager_attach(manager, x); // may be closed
    else if (what == 1)
        nd_manager_lend(manager, x);
    nd_error_clear();
    nd_tensor *view = draw(me, 2) ? nd_detach(x) : nd_reshape(x, ND_SHAPE(3, 4));
    assert_non_null(view);
    if (what == 2)
        nd_manager_attach(manager, view); // without the storage, or with it
    nd_error_clear();
    assert_true(nd_is_view_of(view, x));
    if (draw(me, 3) == 0) { // a view of that, perhaps in another manager, in its place
        nd_tensor *again = NULL;
        if (what == 3)
            nd_with_manager(world.managers[draw(me, 2)]) again = nd_unsqueeze(view, 0);
        else
            again = nd_unsqueeze(view, 0);
        assert_non_null(again);
        nd_release(view);
        view = again;
    }
    if (what == 4 && draw(me, 2))
        assert_ok(nd_set_requires_grad(view, true));
    if (atomic_fetch_sub(&world.users[number], 1) == 1 && draw(me, 2))
        assert_ok(nd_close(x));
    nd_release(x);
    must_hold(view, number);
    if (draw(me, 4) == 0)
        nd_close(view);
    if (draw(me, 2)) {
        nd_release(view);
        view = NULL;
    }
    me->views[number] = view;
}

static void *work(void *data) {
    worker *me = data;
    pthread_barrier_wait(&world.begin);
    for (int i = 0; i < TENSORS; i++)
        use(me, i);
    return NULL;
}

static void *close_one(void *data) {
    pthread_barrier_wait(&world.begin);
    nd_manager_close(world.managers[MANAGERS - 1], NULL);
    nd_gc_collect(NULL, NULL);
    return data;
}

static void prepare(void) {
    for (int i = 0; i < MANAGERS; i++)
        world.managers[i] = manager_new(i == 2 ? world.managers[0] : NULL, "m");
    for (int i = 0; i < TENSORS; i++) {
        nd_with_manager(world.managers[i % MANAGERS]) {
            world.tensors[i] = nd_full(ND_SHAPE(FLOATS), i, ND_F32);
        }
        assert_non_null(world.tensors[i]);
        for (int k = 1; k < THREADS; k++)
            assert_ptr_equal(nd_retain(world.tensors[i]), world.tensors[i]);
        atomic_store(&world.users[i], THREADS);
    }
}

static void finish(worker *workers) {
    assert_ok(nd_debug_check());
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < TENSORS; k++) {
            if (workers[i].views[k] && !nd_is_closed(workers[i].views[k]))
                must_hold(workers[i].views[k], k);
            nd_release(workers[i].views[k]);
        }
    for (int i = 0; i < MANAGERS; i++) {
        assert_int_equal(stats_of(world.managers[i]).live_objects, 0);
        assert_int_equal(own_bytes(world.managers[i]), 0);
        assert_balanced(world.managers[i]);
    }
    assert_ok(nd_debug_check());
    for (int i = MANAGERS; i-- > 0;)
        nd_release(world.managers[i]);
}

static void test_stress_views_of_small_tensors_race(void **state) {
    (void)state;
    worker workers[THREADS];
    for (int round = 0; round < stress_rounds(ROUNDS); round++) {
        pthread_t threads[THREADS], closing;
        prepare();
        assert_int_equal(pthread_barrier_init(&world.begin, NULL, THREADS + 1), 0);
        for (int i = 0; i < THREADS; i++) {
            workers[i].random = (uint32_t)(round * THREADS + i) * 7919;
            assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
        }
        assert_int_equal(pthread_create(&closing, NULL, close_one, NULL), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        pthread_join(closing, NULL);
        pthread_barrier_destroy(&world.begin);
        finish(workers);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_stress_views_of_small_tensors_race)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
