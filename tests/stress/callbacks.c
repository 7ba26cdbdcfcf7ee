// Callbacks on two devices that release members of rings, and tensors, beside a collector that
// never pauses.
//
// Whatever the interleaving, every cell dies once, and none of them in a callback.
#include "tests/behaviour/callbacks.h"
#include "tests/stress/times.h"

enum { THREADS = 4, STEPS = 20000 / ND_TEST_SCALE };
static atomic_bool ended;
static nd_manager *shared;

static void *queue_many(void *data) {
    const uint32_t steps = (uint32_t)stress_rounds(STEPS);
    const nd_device device = {LATE, (int32_t)(intptr_t)data % 2};
    for (uint32_t i = 0; i < steps; i++) {
        nd_with_manager(shared) {
            nd_object *ring[2] = {cell_new(0, 2), cell_new(0, 1)};
            nd_tensor *memory = ones_on(device, 8);
            if (i % 2)
                cell_ring(ring, 2);
            cell_link(ring[0], 1, memory);
            queue_release(device, ring[0]);
            assert_ok(nd_queue_callback(device, NULL, NULL, memory));
            nd_release(memory);
            if (i % 3)
                nd_release(ring[1]);
            else
                queue_release(device, ring[1]);
        }
        if (i % 64 == 0)
            assert_ok(nd_synchronize(device));
    }
    return NULL;
}

static void *collect_always(void *data) {
    (void)data;
    while (!atomic_load(&ended))
        assert_ok(nd_gc_collect(shared, NULL));
    return NULL;
}

static void test_stress_callbacks_beside_collections(void **state) {
    (void)state;
    begin(1);
    atomic_store(&ended, false);
    shared = manager_new(NULL, "shared");
    pthread_t threads[THREADS], collector;
    assert_int_equal(pthread_create(&collector, NULL, collect_always, NULL), 0);
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, queue_many, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&ended, true);
    pthread_join(collector, NULL);
    for (int i = 0; i < 2; i++)
        assert_ok(nd_synchronize((nd_device){LATE, i}));
    collect(shared);
    assert_deaths((uint64_t)2 * THREADS * (uint64_t)stress_rounds(STEPS));
    close_and_release(shared);
    for (int i = 0; i < 2; i++) {
        assert_ok(nd_synchronize((nd_device){LATE, i}));
        assert_int_equal(late_live_blocks(i), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_stress_callbacks_beside_collections)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
