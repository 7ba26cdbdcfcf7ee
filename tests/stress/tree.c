// A tree of managers that several threads grow, fill, read and tear down at once, each through
// handles of any of them.
//
// Nobody agrees with anybody: a manager may be closed or disposed of while another thread makes a
// child of it, attaches to it or reads its statistics. Calls may be refused; what must hold is that
// counters and bytes add up when all is released.
#include "tests/behaviour/helpers.h"
#include "tests/stress/times.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { WORKERS = 4, SHELF = 16, THINGS = 32, SECONDS = 3 };

typedef struct world {
    pthread_mutex_t lock;
    nd_manager *shelf[SHELF]; // owned handles, of closed ones too
    atomic_bool stop;
    atomic_uint_fast64_t steps, refused, closed;
} world;

typedef struct worker {
    world *w;
    uint64_t random;
    nd_object *things[THINGS];
} worker;

static uint32_t draw(worker *me, uint32_t below) {
    me->random ^= me->random << 13;
    me->random ^= me->random >> 7;
    me->random ^= me->random << 17;
    return (uint32_t)((me->random >> 11) % below);
}

static nd_manager *take_handle(worker *me) {
    pthread_mutex_lock(&me->w->lock);
    nd_manager *manager = nd_retain(me->w->shelf[draw(me, SHELF)]);
    pthread_mutex_unlock(&me->w->lock);
    return manager;
}

static void put_on_shelf(worker *me, nd_manager *manager) {
    pthread_mutex_lock(&me->w->lock);
    uint32_t place = draw(me, SHELF);
    nd_manager *before = me->w->shelf[place];
    me->w->shelf[place] = manager;
    pthread_mutex_unlock(&me->w->lock);
    nd_release(before); // perhaps the last handle of an open manager, which closes it
}

static void note(worker *me, bool worked) {
    if (!worked)
        atomic_fetch_add_explicit(&me->w->refused, 1, memory_order_relaxed);
}

static void grow(worker *me, const nd_manager *parent) {
    nd_manager *child = nd_manager_new(parent, "grown");
    note(me, child != NULL);
    if (child)
        put_on_shelf(me, child);
}

static void fill(worker *me, const nd_manager *manager) {
    nd_object **thing = &me->things[draw(me, THINGS)];
    nd_release(*thing);
    *thing = NULL;
    nd_with_manager(manager) {
        if (draw(me, 2))
            *thing = cell_new(0, 2);
        else
            *thing = (nd_object *)bytes_in(manager, 1 + draw(me, 1000));
        if (draw(me, 4) == 0)
            cell_drop_ring(0, 1 + draw(me, 5));
    }
    note(me, *thing != NULL);
}

static void read_statistics(const nd_manager *manager) {
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    if (nd_manager_get_stats(manager, &stats) != ND_OK ||
        stats.created_objects + stats.arrived_objects !=
            stats.freed_objects + stats.collected_objects + stats.departed_objects +
                stats.live_objects) {
        fprintf(stderr, "the counters of a manager do not add up\n");
        abort();
    }
}

static void step(worker *me) {
    nd_manager *manager = take_handle(me);
    nd_object *thing = me->things[draw(me, THINGS)];
    switch (draw(me, 16)) {
    case 0:
    case 1:
        grow(me, manager);
        break;
    case 2:
    case 3:
    case 4:
    case 5:
        fill(me, manager);
        break;
    case 6:
    case 7:
        if (thing)
            note(me, nd_manager_attach(manager, thing) == ND_OK);
        break;
    case 8:
    case 9:
        if (thing)
            note(me, nd_manager_lend(manager, thing) == ND_OK);
        break;
    case 10:
        read_statistics(manager);
        nd_manager_get_total_bytes(manager);
        break;
    case 11:
        nd_manager_get_total_objects(manager);
        break;
    case 12:
        if (thing && nd_object_get_data(thing)) {
            cell *c = nd_object_get_type(thing) == &cell_type ? cell_of(thing) : NULL;
            if (c)
                cell_link(thing, draw(me, 2), me->things[draw(me, THINGS)]);
        }
        break;
    case 13:
        note(me, nd_gc_collect(manager, NULL) == ND_OK);
        break;
    case 14:
        if (draw(me, 4) == 0) {
            nd_manager_close(manager, NULL);
            atomic_fetch_add(&me->w->closed, 1);
        }
        break;
    default:
        nd_manager_set_quota(manager, ND_CPU, draw(me, 2) ? 0 : 100 + draw(me, 10000));
        nd_manager_set_cap(manager, draw(me, 2) ? 0 : 1 + draw(me, 10));
    }
    nd_release(manager);
}

static void *work(void *data) {
    worker *me = data;
    uint64_t steps = 0;
    for (; !atomic_load_explicit(&me->w->stop, memory_order_relaxed); steps++)
        step(me);
    for (int i = 0; i < THINGS; i++)
        nd_release(me->things[i]);
    atomic_fetch_add(&me->w->steps, steps);
    return NULL;
}

static void test_stress_tree_of_managers(void **state) {
    (void)state;
    cell_begin(0);
    nd_gc_set_mode(ND_GC_ON);
    world w = {.lock = PTHREAD_MUTEX_INITIALIZER};
    for (int i = 0; i < SHELF; i++)
        w.shelf[i] = manager_new(i ? w.shelf[(i - 1) / 2] : NULL, "planted");
    worker workers[WORKERS];
    pthread_t threads[WORKERS];
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker){.w = &w, .random = (uint64_t)i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    nanosleep(&(struct timespec){SECONDS * stress_times(), 0}, NULL);
    atomic_store(&w.stop, true);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    printf("%llu steps, %llu refused, %llu closed\n", (unsigned long long)w.steps,
           (unsigned long long)w.refused, (unsigned long long)w.closed);
    for (int i = 0; i < SHELF; i++) {
        assert_ok(nd_manager_close(w.shelf[i], NULL));
        read_statistics(w.shelf[i]);
        nd_release(w.shelf[i]);
    }
    assert_true(w.steps > 0 && w.closed > 0);
    collect(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_stress_tree_of_managers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
