// Many threads that make, attach, lend and release objects in one manager, which closes meanwhile.
//
// Each round has a new manager, so managers and their shards are recycled all the time, and
// whatever is done to the manager at the round's end, every cell that was made dies once.
#include "tests/behaviour/helpers.h"
#include "tests/stress/times.h"
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 6, ROUNDS = 400 / ND_TEST_SCALE, STEPS = 400, HELD = 8 };

typedef enum ending { CLOSE, DISPOSE, LET_GO, CAP, ENDINGS } ending;

static nd_manager *crowd, *beside;
static bool disposed; ///< at this round's end: what is in the manager is closed under its owners
static pthread_barrier_t round_begins, round_ends;
static atomic_uint_fast64_t made, at_work;

static nd_object *make(void) {
    nd_object *object = NULL;
    if (!disposed)
        nd_with_manager(crowd) object = cell_new(0, 1);
    if (!object) // closed, or at its cap
        nd_with_manager(beside) object = cell_new(0, 1);
    atomic_fetch_add(&made, object != NULL);
    return object;
}

static void step(nd_object **held, uint32_t i) {
    nd_object **mine = &held[i % HELD];
    if (!*mine && !(*mine = make()))
        abort();
    switch (i % 7) {
    case 0:
    case 1:
        nd_manager_attach(i % 2 ? crowd : beside, *mine); // may be refused
        break;
    case 2:
        nd_manager_lend(i % 2 ? beside : crowd, *mine);
        break;
    case 3:
        if (!disposed)
            cell_link(*mine, 0, held[(i + 1) % HELD]);
        break;
    case 4: {
        nd_resource *bytes = bytes_in(i % 2 ? crowd : beside, 1 + i);
        nd_release(bytes);
        break;
    }
    default:
        nd_release(*mine);
        *mine = NULL;
    }
}

static void *work(void *data) {
    (void)data;
    for (int round = 0; round < ROUNDS * stress_times(); round++) {
        nd_object *held[HELD] = {0};
        pthread_barrier_wait(&round_begins);
        for (uint32_t i = 0; i < STEPS; i++) {
            step(held, i);
            atomic_fetch_add_explicit(&at_work, 1, memory_order_relaxed);
        }
        for (int i = 0; i < HELD; i++)
            nd_release(held[i]);
        pthread_barrier_wait(&round_ends);
    }
    return NULL;
}

static void must_add_up(const nd_manager *manager) {
    nd_manager_stats s = stats_of(manager);
    assert_int_equal(s.created_objects + s.arrived_objects,
                     s.freed_objects + s.collected_objects + s.departed_objects + s.live_objects);
}

static void end_somehow(ending how) {
    switch (how) {
    case CLOSE:
        assert_ok(nd_manager_close(crowd, NULL));
        break;
    case DISPOSE:
        assert_ok(nd_manager_dispose(crowd, NULL));
        break;
    case CAP:
        assert_ok(nd_manager_set_cap(crowd, 10));
        break;
    default:
        break; // its last handle goes when the round is over
    }
}

static void test_stress_crowded_manager_closes(void **state) {
    (void)state;
    cell_begin(1);
    nd_gc_set_mode(ND_GC_ON);
    pthread_barrier_init(&round_begins, NULL, THREADS + 1);
    pthread_barrier_init(&round_ends, NULL, THREADS + 1);
    beside = manager_new(NULL, "beside");
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, NULL), 0);
    for (int round = 0; round < ROUNDS * stress_times(); round++) {
        crowd = manager_new(round % 3 ? beside : NULL, "crowd");
        atomic_store(&at_work, 0);
        ending how = (ending)(round / 8 % ENDINGS);
        disposed = how == DISPOSE;
        pthread_barrier_wait(&round_begins);
        while (atomic_load(&at_work) < (uint64_t)(round % 8) * THREADS * STEPS / 8)
            must_add_up(crowd);
        end_somehow(how);
        pthread_barrier_wait(&round_ends);
        must_add_up(crowd);
        nd_release(crowd);
        if (round % 16 == 15)
            assert_ok(nd_debug_check());
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    must_add_up(beside);
    assert_ok(nd_manager_close(beside, NULL));
    nd_release(beside);
    collect(NULL);
    assert_int_equal(cell_total_deaths(), atomic_load(&made));
    pthread_barrier_destroy(&round_begins);
    pthread_barrier_destroy(&round_ends);
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_stress_crowded_manager_closes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
