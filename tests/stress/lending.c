// Tensors that threads attach and lend to managers which others close, cap and bound meanwhile.
//
// Each thread has tensors of its own, and all have the managers in common. Whoever refuses what and
// closes when: a tensor and its storage stay together. When all stand still, each manager's own
// bytes are those of the tensors that say they are in it.
#include "tests/behaviour/helpers.h"
#include "tests/stress/times.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 400 / ND_TEST_SCALE + 1, STEPS = 500, TENSORS = 8, SHELF = 6 };

static struct {
    pthread_mutex_t lock;
    nd_manager *shelf[SHELF]; // owned, all open but for a moment
} world = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct worker {
    uint32_t random;
    nd_tensor *tensors[TENSORS];
} worker;

static uint32_t draw(worker *me, uint32_t below) {
    me->random = me->random * 1664525 + 1013904223;
    return (me->random >> 8) % below;
}

static nd_manager *take_handle(uint32_t place) {
    pthread_mutex_lock(&world.lock);
    nd_manager *manager = nd_retain(world.shelf[place]);
    pthread_mutex_unlock(&world.lock);
    return manager;
}

/// Closes one of the managers, from which tensors go home or escape, and puts another one in its
/// place.
static void replace(worker *me) {
    uint32_t place = draw(me, SHELF);
    nd_auto nd_manager *parent = draw(me, 2) ? take_handle(draw(me, SHELF)) : NULL;
    nd_manager *next = nd_manager_new(parent, "next");
    if (!next)
        return; // the parent has closed
    if (draw(me, 3) == 0)
        nd_manager_set_cap(next, 1 + draw(me, 3));
    if (draw(me, 3) == 0)
        nd_manager_set_quota(next, nd_test_device().kind, 1000 + draw(me, 5000));
    pthread_mutex_lock(&world.lock);
    nd_manager *before = world.shelf[place];
    world.shelf[place] = next;
    pthread_mutex_unlock(&world.lock);
    if (draw(me, 2))
        nd_manager_close(before, NULL);
    nd_release(before);
}

static void step(worker *me) {
    nd_tensor **x = &me->tensors[draw(me, TENSORS)];
    nd_auto nd_manager *manager = take_handle(draw(me, SHELF));
    uint32_t what = draw(me, 18);
    if (what == 0)
        replace(me);
    else if (what < 7)
        nd_manager_attach(manager, *x);
    else if (what < 14)
        nd_manager_lend(manager, *x);
    else if (what > 15)
        nd_release(nd_detach(*x)); // a small one gets its storage
    nd_error_clear();
    if (what < 14 || what > 15)
        return;
    nd_release(*x);
    *x = NULL;
    nd_with_manager(what == 14 ? manager : nd_manager_get_root()) {
        *x = nd_empty(ND_SHAPE(1 + draw(me, 300)), ND_F32);
    }
    nd_error_clear();
    if (!*x) // the cap, the quota
        *x = nd_empty(ND_SHAPE(1), ND_F32);
}

static void *work(void *data) {
    assert_ok(nd_test_use_device());
    for (int i = 0; i < STEPS; i++)
        step(data);
    return NULL;
}

/// Bytes of the tensors that are in a manager, as they say themselves.
static uint64_t bytes_said_to_be_in(const nd_manager *manager, const worker *workers) {
    uint64_t bytes = 0;
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < TENSORS; k++)
            if (nd_get_manager(workers[i].tensors[k]) == manager)
                bytes += (uint64_t)nd_get_numel(workers[i].tensors[k]) * sizeof(float);
    return bytes;
}

static void must_be_together(const nd_manager *manager, const worker *workers) {
    assert_int_equal(own_bytes(manager), bytes_said_to_be_in(manager, workers));
    if (manager)
        assert_balanced(manager);
}

static void one_round(worker *workers) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    must_be_together(nd_manager_get_root(), workers);
    for (int i = 0; i < SHELF; i++)
        must_be_together(world.shelf[i], workers);
    assert_ok(nd_debug_check());
}

static void test_B34_tensors_stay_with_their_storages(void **state) {
    (void)state;
    worker workers[THREADS];
    for (int i = 0; i < SHELF; i++)
        world.shelf[i] = manager_new(i ? world.shelf[(i - 1) / 2] : NULL, "first");
    for (int i = 0; i < THREADS; i++) {
        workers[i].random = (uint32_t)i * 7919;
        for (int k = 0; k < TENSORS; k++)
            workers[i].tensors[k] = nd_empty(ND_SHAPE(10), ND_F32);
    }
    for (int round = 0; round < stress_rounds(ROUNDS); round++)
        one_round(workers);
    for (int i = 0; i < SHELF; i++)
        nd_release(world.shelf[i]);
    // What was lent has gone home, or above it.
    must_be_together(nd_manager_get_root(), workers);
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < TENSORS; k++)
            nd_release(workers[i].tensors[k]);
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_B34_tensors_stay_with_their_storages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
