// Threads that link, unlink, retain, release, look up weakly, attach and close managers, while
// others collect without pause.
//
// Every thread owns a private part of a shared world and reaches into the others' through weak
// references, which is how programs meet each other's objects. Nothing is asserted while it runs
// but what must hold at every instant: an object that is held is alive. At the end all is released,
// one collection takes the rest, and every cell has died once.
#include "tests/behaviour/cell.h"
#include "tests/stress/times.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { WORKERS = 4, COLLECTORS = 2, CELLS = 48, EDGES = 3, SHELF = 64, MANAGERS = 3, SECONDS = 3 };

// A shelf of weak references, exchanged under a lock, through which workers find each other's
// cells.
typedef struct world {
    pthread_mutex_t shelf_lock;
    nd_weak *shelf[SHELF];
    nd_manager *managers[MANAGERS];
    atomic_bool stop;
    atomic_uint next_number;
    atomic_uint_fast64_t steps, collections, collected, found, not_found;
} world;

enum { NUMBERS = 4 << 20 };

typedef struct worker {
    world *w;
    uint64_t random;
    nd_object *held[CELLS];
    nd_manager *own;
} worker;

static uint32_t draw(worker *me, uint32_t below) {
    me->random ^= me->random << 13;
    me->random ^= me->random >> 7;
    me->random ^= me->random << 17;
    return (uint32_t)((me->random >> 11) % below);
}

static void must_be_alive(const nd_object *object) {
    if (nd_get_count(object) == 0 || cell_deaths(cell_of(object)->number) != 0) {
        fprintf(stderr, "a held cell is dead\n");
        abort();
    }
}

static const nd_manager *some_manager(worker *me) {
    uint32_t which = draw(me, MANAGERS + 2);
    if (which < MANAGERS)
        return me->w->managers[which];
    return which == MANAGERS ? me->own : nd_manager_get_root();
}

static nd_object *make_cell(worker *me) {
    nd_object *made = NULL;
    nd_with_manager(some_manager(me)) {
        made = cell_new(atomic_fetch_add(&me->w->next_number, 1) % NUMBERS, EDGES);
    }
    return made;
}

/// Puts a weak reference to one's own cell on the shelf.
static void publish(worker *me, const nd_object *object) {
    nd_weak *weak = nd_weak_new(object);
    uint32_t place = draw(me, SHELF);
    pthread_mutex_lock(&me->w->shelf_lock);
    nd_weak *before = me->w->shelf[place];
    me->w->shelf[place] = weak;
    pthread_mutex_unlock(&me->w->shelf_lock);
    nd_release(before);
}

/// An owned handle of somebody's cell, or NULL.
static nd_object *find(worker *me) {
    pthread_mutex_lock(&me->w->shelf_lock);
    nd_weak *weak = nd_retain(me->w->shelf[draw(me, SHELF)]);
    pthread_mutex_unlock(&me->w->shelf_lock);
    nd_object *found = weak ? nd_weak_get(weak) : NULL;
    nd_release(weak);
    if (found)
        must_be_alive(found);
    atomic_fetch_add_explicit(found ? &me->w->found : &me->w->not_found, 1, memory_order_relaxed);
    return found;
}

/// A boundary: a manager of one's own, with a dead ring, an escapee and a closed life.
static void open_and_close(worker *me) {
    nd_manager *m = nd_manager_new(some_manager(me), "short-lived");
    nd_object *escapes = NULL;
    nd_with_manager(m) {
        nd_object *ring[2] = {make_cell(me), make_cell(me)};
        cell_ring(ring, 2);
        nd_release(ring[0]);
        escapes = ring[1];
    }
    nd_manager_close(m, NULL);
    must_be_alive(escapes);
    nd_release(escapes);
    nd_release(m);
}

static void step(worker *me) {
    nd_object **mine = &me->held[draw(me, CELLS)];
    if (!*mine)
        *mine = make_cell(me);
    must_be_alive(*mine);
    uint32_t edge = draw(me, EDGES);
    nd_object *other = me->held[draw(me, CELLS)];
    switch (draw(me, 12)) {
    case 0:
    case 1:
        cell_link(*mine, edge, other);
        break;
    case 2: {
        nd_object *found = find(me);
        cell_link(*mine, edge, found);
        nd_release(found);
        break;
    }
    case 3:
        cell_unlink(*mine, edge);
        break;
    case 4: {
        nd_object *taken = nd_edge_take(&cell_of(*mine)->edges[edge]);
        if (taken)
            must_be_alive(taken);
        nd_release(taken);
        break;
    }
    case 5:
        publish(me, *mine);
        break;
    case 6: {
        nd_object *again = nd_retain(*mine);
        nd_release(*mine);
        *mine = again;
        break;
    }
    case 7: // may fail: another thread's manager may close at any time
        nd_manager_attach(some_manager(me), *mine);
        break;
    case 8:
        nd_manager_lend(some_manager(me), *mine);
        break;
    case 9:
        if (draw(me, 16) == 0)
            open_and_close(me);
        break;
    case 10:
        if (draw(me, 64) == 0) {
            nd_manager_close(me->own, NULL);
            nd_release(me->own);
            me->own = nd_manager_new(NULL, "worker");
        }
        break;
    default:
        nd_release(*mine);
        *mine = NULL;
    }
}

static void *work(void *data) {
    worker *me = data;
    me->own = nd_manager_new(NULL, "worker");
    uint64_t steps = 0;
    for (; !atomic_load_explicit(&me->w->stop, memory_order_relaxed); steps++)
        step(me);
    for (int i = 0; i < CELLS; i++)
        nd_release(me->held[i]);
    nd_manager_close(me->own, NULL);
    nd_release(me->own);
    atomic_fetch_add(&me->w->steps, steps);
    return NULL;
}

static void *collect_without_pause(void *data) {
    world *w = data;
    for (uint64_t i = 0; !atomic_load_explicit(&w->stop, memory_order_relaxed); i++) {
        nd_gc_report report = ND_GC_REPORT_INIT;
        if (nd_gc_collect(i % 2 ? w->managers[i / 2 % MANAGERS] : NULL, &report) != ND_OK)
            abort();
        atomic_fetch_add(&w->collections, 1);
        atomic_fetch_add(&w->collected, report.collected_objects);
    }
    return NULL;
}

static void run(void) {
    cell_begin(NUMBERS);
    nd_gc_set_mode(ND_GC_ON);
    world w = {.shelf_lock = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < MANAGERS; i++)
        w.managers[i] = nd_manager_new(i ? w.managers[i - 1] : NULL, "shared");
    worker workers[WORKERS];
    pthread_t threads[WORKERS + COLLECTORS];
    for (int i = 0; i < WORKERS + COLLECTORS; i++) {
        if (i < WORKERS)
            workers[i] = (worker){.w = &w, .random = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL,
                                        i < WORKERS ? work : collect_without_pause,
                                        i < WORKERS ? (void *)&workers[i] : &w),
                         0);
    }
    for (int second = 0; second < 10 * SECONDS * stress_times(); second++) {
        nanosleep(&(struct timespec){0, 100000000}, NULL);
        if (atomic_load(&w.next_number) > NUMBERS - (NUMBERS >> 3))
            break;
    }
    atomic_store(&w.stop, true);
    for (int i = 0; i < WORKERS + COLLECTORS; i++)
        pthread_join(threads[i], NULL);
    printf("%llu steps, %u cells, %llu collections that took %llu, %llu found, %llu not\n",
           (unsigned long long)w.steps, w.next_number, (unsigned long long)w.collections,
           (unsigned long long)w.collected, (unsigned long long)w.found,
           (unsigned long long)w.not_found);
    for (int i = 0; i < SHELF; i++)
        nd_release(w.shelf[i]);
    for (int i = MANAGERS; i-- > 0;) {
        assert_ok(nd_manager_close(w.managers[i], NULL));
        nd_release(w.managers[i]);
    }
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_true(w.collections > 0 && w.collected > 0 && w.found > 0);
    assert_true(w.next_number < NUMBERS);
    for (uint32_t number = 0; number < w.next_number; number++)
        assert_int_equal(cell_deaths(number), 1);
}

static void test_stress_everything_beside_the_collector(void **state) {
    (void)state;
    run();
}

static void test_stress_everything_beside_collections_in_steps(void **state) {
    (void)state;
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    run();
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_stress_everything_beside_the_collector),
                                       ND_TEST(test_stress_everything_beside_collections_in_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
