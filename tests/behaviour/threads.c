// The core beside running threads, for real and in many rounds: G29, G31, G32, G34 to G36, G38 and
// G39.
#include "lib/manager/publish.h"
#include "lib/object/object.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <stdlib.h>

static void start(pthread_t *thread, void *(*function)(void *), void *data) {
    assert_int_equal(pthread_create(thread, NULL, function, data), 0);
}

// The two objects of a hopping thread stand far apart in a ring, so that it hops many times between
// the moments at which the collector reads their counts; only the versions tell that it did.
enum { HOPPERS = 2, HOP_RING = 400 };

typedef struct hopper {
    nd_object *ring[2];
    atomic_bool stop;
} hopper;

static void *hop_without_pause(void *data) {
    hopper *h = data;
    // Holds ring[1] when it starts and when it ends.
    while (!atomic_load_explicit(&h->stop, memory_order_relaxed)) {
        nd_object *first = nd_retain(h->ring[0]);
        nd_release(h->ring[1]);
        nd_object *second = nd_retain(h->ring[1]);
        nd_release(first);
        (void)second;
    }
    nd_release(h->ring[1]);
    return NULL;
}

static void test_G29_hopping_thread_for_real(void **state) {
    (void)state;
    cell_begin(HOPPERS * HOP_RING);
    hopper hoppers[HOPPERS] = {0};
    pthread_t threads[HOPPERS];
    for (uint32_t i = 0; i < HOPPERS; i++) {
        nd_object *ring[HOP_RING];
        for (uint32_t k = 0; k < HOP_RING; k++)
            ring[k] = cell_new(HOP_RING * i + k, 1);
        cell_ring(ring, HOP_RING);
        for (uint32_t k = 0; k < HOP_RING; k++)
            if (k != HOP_RING / 2)
                nd_release(ring[k]);
        hoppers[i].ring[0] = ring[0];
        hoppers[i].ring[1] = ring[HOP_RING / 2];
        start(&threads[i], hop_without_pause, &hoppers[i]);
    }
    for (int i = 0; i < 20000 / ND_TEST_SCALE; i++) {
        assert_int_equal(collect(NULL).collected_objects, 0);
        assert_int_equal(cell_total_deaths(), 0);
    }
    for (int i = 0; i < HOPPERS; i++) {
        atomic_store(&hoppers[i].stop, true);
        pthread_join(threads[i], NULL);
    }
    assert_int_equal(collect(NULL).collected_objects, HOPPERS * HOP_RING);
    assert_int_equal(cell_total_deaths(), HOPPERS * HOP_RING);
}

typedef struct gate_race {
    nd_object *object;
    pthread_barrier_t barrier;
    uint32_t rounds;
} gate_race;

static void *release_as_the_gate_moves(void *data) {
    gate_race *r = data;
    for (uint32_t i = 0; i < r->rounds; i++) {
        pthread_barrier_wait(&r->barrier);
        for (volatile uint32_t spin = i % 200; spin > 0; spin--)
            ;
        nd_release(r->object);
        pthread_barrier_wait(&r->barrier);
    }
    return NULL;
}

static void test_G32_release_as_the_gate_opens_or_closes_loses_nothing(void **state) {
    (void)state;
    enum { ROUNDS = 20000 / ND_TEST_SCALE };
    cell_begin(ROUNDS);
    gate_race r = {.rounds = ROUNDS};
    pthread_barrier_init(&r.barrier, NULL, 2);
    pthread_t thread;
    start(&thread, release_as_the_gate_moves, &r);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        r.object = cell_new(i, 1);
        pthread_barrier_wait(&r.barrier);
        collect(NULL);
        pthread_barrier_wait(&r.barrier);
        assert_int_equal(cell_deaths(i), 1); // whoever met whom, and without another collection
    }
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&r.barrier);
}

typedef struct release_race {
    nd_object *object;
    pthread_barrier_t barrier;
    int rounds;
} release_race;

static void *release_together(void *data) {
    release_race *r = data;
    for (int i = 0; i < r->rounds; i++) {
        pthread_barrier_wait(&r->barrier);
        nd_release(r->object);
        pthread_barrier_wait(&r->barrier);
    }
    return NULL;
}

static void test_G31_two_releasers_one_frees(void **state) {
    (void)state;
    enum { ROUNDS = 5000 / ND_TEST_SCALE };
    cell_begin(ROUNDS);
    release_race r = {.rounds = ROUNDS};
    pthread_barrier_init(&r.barrier, NULL, 3);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        start(&threads[i], release_together, &r);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        r.object = cell_new(i, 0);
        nd_object *second = nd_retain(r.object);
        assert_ptr_equal(second, r.object);
        pthread_barrier_wait(&r.barrier);
        pthread_barrier_wait(&r.barrier);
        assert_int_equal(cell_deaths(i), 1);
    }
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&r.barrier);
    assert_int_equal(cell_total_deaths(), ROUNDS);
}

typedef struct hot {
    nd_object *object;
    atomic_bool stop;
} hot;

static void *heat(void *data) {
    hot *h = data;
    while (!atomic_load_explicit(&h->stop, memory_order_relaxed)) {
        nd_object *again = nd_retain(h->object);
        nd_release(again);
    }
    return NULL;
}

static void test_G34_hot_object_does_not_keep_unrelated_garbage(void **state) {
    (void)state;
    cell_begin(4);
    hot h = {.object = cell_new(3, 1)};
    cell_link(h.object, 0, h.object);
    pthread_t thread;
    start(&thread, heat, &h);
    for (int i = 0; i < 2000 / ND_TEST_SCALE; i++) {
        cell_drop_ring(0, 3);
        assert_int_equal(collect(NULL).collected_objects, 3);
    }
    atomic_store(&h.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(cell_deaths(3), 0);
    nd_release(h.object);
    assert_int_equal(collect(NULL).collected_objects, 1);
}

typedef struct sibling {
    nd_manager *parent;
    nd_object *shared;
    uint64_t collected, escaped;
} sibling;

static void *open_and_close_siblings(void *data) {
    sibling *s = data;
    for (int i = 0; i < 1000 / ND_TEST_SCALE; i++) {
        nd_manager *m = nd_manager_new(s->parent, "sibling");
        nd_with_manager(m) {
            cell_drop_ring(0, 5);
            nd_object *user = cell_new(5, 1); // acyclic, reaches into the other thread's world
            cell_link(user, 0, s->shared);
            nd_release(user);
        }
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        nd_manager_close(m, &report);
        s->collected += report.collected_objects;
        s->escaped += report.escaped_objects;
        nd_release(m);
    }
    return NULL;
}

static void test_G35_two_threads_close_sibling_managers(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(0);
    nd_gc_set_mode(ND_GC_ON);
    nd_manager *parent = manager_new(NULL, "parent");
    nd_object *shared = cell_new(6, 0);
    sibling siblings[2] = {{parent, shared, 0, 0}, {parent, shared, 0, 0}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        start(&threads[i], open_and_close_siblings, &siblings[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(siblings[i].collected, 5 * (1000 / ND_TEST_SCALE));
        assert_int_equal(siblings[i].escaped, 0);
    }
    assert_int_equal(nd_get_count(shared), 1);
    nd_release(shared);
    close_and_release(parent);
}

typedef struct rewirer {
    nd_object *ring[8];
    atomic_bool stop;
    _Atomic uint64_t rewired;
} rewirer;

static void *rewire_without_pause(void *data) {
    rewirer *r = data;
    uint32_t random = 1;
    while (!atomic_load_explicit(&r->stop, memory_order_relaxed)) {
        random = random * 1664525u + 1013904223u;
        nd_object *from = r->ring[(random >> 8) % 8], *to = r->ring[(random >> 16) % 8];
        // The edge moves: taken from one slot, put into another, both of live cells.
        nd_object *moved = nd_edge_take(&cell_of(from)->edges[1]);
        cell_link(to, 1, moved ? moved : from);
        nd_release(moved);
        atomic_fetch_add_explicit(&r->rewired, 1, memory_order_relaxed);
    }
    return NULL;
}

static void test_G36_rewiring_a_live_ring_while_another_thread_collects(void **state) {
    (void)state;
    cell_begin(8);
    rewirer r = {0};
    for (uint32_t i = 0; i < 8; i++)
        r.ring[i] = cell_new(i, 2);
    cell_ring(r.ring, 8);
    for (uint32_t i = 1; i < 8; i++)
        nd_release(r.ring[i]); // alive through the ring
    pthread_t thread;
    start(&thread, rewire_without_pause, &r);
    // On a busy machine the thread may not have begun by then.
    for (int i = 0; i < 20000 / ND_TEST_SCALE || atomic_load(&r.rewired) == 0; i++)
        assert_int_equal(collect(NULL).collected_objects, 0);
    atomic_store(&r.stop, true);
    pthread_join(thread, NULL);
    assert_int_equal(cell_total_deaths(), 0);
    nd_release(r.ring[0]);
    assert_int_equal(collect(NULL).collected_objects, 8);
}

typedef struct builder {
    nd_object *half_built;
    pthread_barrier_t barrier;
} builder;

/// Makes an object with a hand on its own first edge, as a layer above the core does: private until
/// published.
static void *build_slowly(void *data) {
    builder *b = data;
    nd_object *target = cell_new(0, 1);
    nd_object *object = nd__object_new(&cell_type, ND__PAYLOAD + sizeof(cell) + sizeof target);
    cell *payload = (cell *)(void *)((char *)object + ND__PAYLOAD);
    payload->number = 1;
    atomic_store(&payload->count, 1);
    payload->edges[0] = target;
    atomic_fetch_or(&object->flags, ND__USER);
    b->half_built = object;
    pthread_barrier_wait(&b->barrier); // the other thread collects
    pthread_barrier_wait(&b->barrier);
    nd__publish(object, (nd_manager *)(uintptr_t)nd_manager_get_root());
    cell_link(target, 0, object);
    return NULL;
}

static void test_G38_half_built_object_on_another_thread(void **state) {
    (void)state;
    cell_begin(2);
    builder b = {0};
    pthread_barrier_init(&b.barrier, NULL, 2);
    pthread_t thread;
    start(&thread, build_slowly, &b);
    pthread_barrier_wait(&b.barrier);
    for (int i = 0; i < 10; i++)
        assert_int_equal(collect(NULL).collected_objects, 0);
    pthread_barrier_wait(&b.barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&b.barrier);
    assert_int_equal(collect(NULL).collected_objects, 0);
    nd_release(b.half_built);
    assert_int_equal(collect(NULL).collected_objects, 2);
    assert_int_equal(cell_total_deaths(), 2);
}

static void *leave_a_cycle(void *data) {
    nd_with_manager((const nd_manager *)data) {
        cell_drop_ring(0, 3);
    }
    return NULL;
}

static void test_G39_thread_that_exits_leaving_a_cycle(void **state) {
    (void)state;
    cell_begin(3);
    nd_gc_set_mode(ND_GC_ON);
    nd_manager *m = manager_new(NULL, "m");
    pthread_t thread;
    start(&thread, leave_a_cycle, m);
    pthread_join(thread, NULL);
    assert_int_equal(cell_total_deaths(), 0);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(m, &report));
    assert_int_equal(report.collected_objects, 3);
    assert_int_equal(cell_total_deaths(), 3);
    nd_release(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G29_hopping_thread_for_real),
        ND_TEST(test_G31_two_releasers_one_frees),
        ND_TEST(test_G32_release_as_the_gate_opens_or_closes_loses_nothing),
        ND_TEST(test_G34_hot_object_does_not_keep_unrelated_garbage),
        ND_TEST(test_G35_two_threads_close_sibling_managers),
        ND_TEST(test_G36_rewiring_a_live_ring_while_another_thread_collects),
        ND_TEST(test_G38_half_built_object_on_another_thread),
        ND_TEST(test_G39_thread_that_exits_leaving_a_cycle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
