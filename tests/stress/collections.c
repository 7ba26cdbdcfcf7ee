// Collections of every kind beside each other and beside threads that do with objects what can be
// done.
//
// What a thread holds lives; whatever happens meanwhile, every cell that was made dies once.
// References hop between threads, go into edges and out of them with and without a change of count,
// come out of weak references and out of finalizers; managers close, get shards, policies and
// modes; and two collections of three are in steps, one object's edges at a time. With VERSIONS_WRAP
// the version of every cell wraps meanwhile.
#include "lib/manager/manager.h"
#include "lib/manager/shard.h"
#include "lib/object/gate.h"
#include "lib/object/object.h"
#include "tests/behaviour/helpers.h"
#include "tests/stress/slots.h"
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 4, STEPS = 400000 / ND_TEST_SCALE, HELD = 12, EDGES = 3 };
enum { SLOTS = 32, MANAGERS = 6, LOCKS = 64 };

static pthread_mutex_t writer_locks[LOCKS]; ///< one writer of an object's edges at a time
// What is shared by all (table_lock).
static nd_object *shared[SLOTS];
static nd_weak *weaks[SLOTS];
static nd_manager *managers[MANAGERS];
static atomic_uint_fast64_t made, finalized;

typedef struct worker {
    unsigned random;
    nd_object *held[HELD];
} worker;

static uint32_t any(worker *w, uint32_t below) {
    return (uint32_t)rand_r(&w->random) % below;
}

static void must_live(const nd_object *object) {
    if (object && nd_get_count(object) == 0)
        abort();
}

/// A finalizer: each third one hands its object out.
static void hand_out(nd_object *self) {
    uint64_t turn = atomic_fetch_add(&finalized, 1);
    if (turn % 3 == 0)
        nd_object_release(exchange_shared(&shared[turn / 3 % SLOTS], nd_object_retain(self)));
}

static nd_object *make(worker *w) {
    nd_manager *manager = retain_shared(&managers[any(w, MANAGERS)]);
    nd_object *object = NULL;
    nd_with_manager(manager) object =
        cell_new_of(any(w, 16) ? &cell_type : &cell_finalized_type, 0, EDGES);
    nd_release(manager);
    if (!object)
        abort();
#ifdef VERSIONS_WRAP // as if it had been retained and released almost 2^32 times before
    nd__atomic_add_relaxed(&object->word, (uint64_t)(UINT32_MAX - any(w, 16)) * ND__VERSION_STEP);
#endif
    atomic_fetch_add(&made, 1);
    return object;
}

static void drop_rings_of(worker *w) {
    for (int i = 0; i < 50; i++) {
        nd_object *pair[2] = {make(w), make(w)};
        cell_ring(pair, 2);
        nd_release(pair[0]);
        nd_release(pair[1]);
    }
}

// ------------------------------------------------------------------------------------------- edges

/// Takes over the handle `value`, and returns the one that was in the edge: no count changes.
static nd_object *exchange_edge(nd_object **edge, nd_object *value) {
    nd__gate_enter();
    nd_object *before = *edge;
    *edge = value;
    nd__object_note_moved(before);
    nd__gate_leave();
    return before;
}

static void write_edge(worker *w, nd_object *object, nd_object **other) {
    nd_object **edge = &cell_of(object)->edges[any(w, EDGES)];
    pthread_mutex_t *lock = &writer_locks[((uintptr_t)object >> 6) % LOCKS];
    pthread_mutex_lock(lock);
    if (*other && any(w, 4))
        nd_edge_set(edge, *other);
    else if (*other && *other != object)
        *other = exchange_edge(edge, *other);
    else if (!*other && any(w, 2))
        *other = nd_edge_take(edge);
    else if (!*other)
        *other = nd_object_retain(*edge);
    pthread_mutex_unlock(lock);
}

// ---------------------------------------------------------------------------------------- managers

static void move(worker *w, nd_object *object) {
    nd_manager *manager = retain_shared(&managers[any(w, MANAGERS)]);
    if (any(w, 2))
        nd_manager_attach(manager, object); // may be closed
    else
        nd_manager_lend(manager, object);
    nd_release(manager);
}

static void set_policy(worker *w, nd_manager *manager) {
    static const uint64_t pauses[] = {0, 1, 1, 3000, ND_GC_ADAPTIVE};
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = pauses[any(w, 5)];
    policy.tracked_objects = any(w, 3) ? 20 + any(w, 400) : ND_GC_INHERITED;
    policy.interval_ns = any(w, 8) ? ND_GC_INHERITED : 1000000;
    policy.boundary = any(w, 4) != 0;
    if (nd_manager_set_gc_policy(manager, &policy) != ND_OK)
        abort();
}

static void do_to_manager(worker *w) {
    uint32_t index = any(w, MANAGERS);
    nd_manager *manager = retain_shared(&managers[index]);
    nd_gc_report report = ND_GC_REPORT_INIT;
    switch (any(w, 32)) {
    case 0:
        nd_object_release(
            exchange_shared(&managers[index], nd_manager_new(nd_manager_get_root(), "m")));
        if (any(w, 4))
            nd_manager_close(manager, NULL);
        break;
    case 1:
        nd__shard_spread(manager);
        break;
    case 2:
        set_policy(w, manager);
        break;
    case 3:
        nd_manager_set_gc_mode(manager, (nd_gc_mode)((int)any(w, 4) - 1));
        break;
    case 4:
        nd_manager_set_cap(manager, 0);
        break;
    case 5:
        if (nd_debug_check() != ND_OK)
            abort();
        break;
    default:
        if (nd_gc_collect(any(w, 4) ? manager : NULL, &report) != ND_OK || report.broken_objects)
            abort();
    }
    nd_release(manager);
}

// ------------------------------------------------------------------------------------------- steps

static void change_handle(worker *w, nd_object **mine) {
    switch (any(w, 4)) {
    case 0:
        if (!*mine)
            *mine = make(w);
        break;
    case 1:
        nd_release(*mine);
        *mine = NULL;
        break;
    default:
        *mine = exchange_shared(&shared[any(w, SLOTS)], *mine);
    }
}

static void use_weak(worker *w, nd_object **mine) {
    nd_weak **slot = &weaks[any(w, SLOTS)];
    if (*mine) {
        nd_object_release(exchange_shared(slot, nd_weak_new(*mine)));
        return;
    }
    nd_weak *weak = retain_shared(slot);
    if (weak)
        *mine = nd_weak_get(weak);
    nd_release(weak);
}

static void step(worker *w) {
    nd_object **mine = &w->held[any(w, HELD)], **other = &w->held[any(w, HELD)];
    must_live(*mine);
    uint32_t what = any(w, 1000);
    if (what < 400)
        change_handle(w, mine);
    else if (what < 800 && *mine)
        write_edge(w, *mine, other);
    else if (what < 900)
        use_weak(w, mine);
    else if (what < 960 && *mine)
        move(w, *mine);
    else if (what < 964)
        do_to_manager(w);
    else if (what == 999)
        drop_rings_of(w);
}

static void *work(void *data) {
    worker *w = data;
    for (int i = 0; i < STEPS; i++)
        step(w);
    for (int i = 0; i < HELD; i++)
        nd_release(w->held[i]);
    return NULL;
}

static void say_nothing(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)path, (void)objects, (void)bytes, (void)data;
}

static void give_up_shared(void) {
    for (int i = 0; i < SLOTS; i++) {
        nd_object_release(exchange_shared(&shared[i], NULL));
        nd_object_release(exchange_shared(&weaks[i], NULL));
    }
}

static void test_stress_collections_of_every_kind(void **state) {
    (void)state;
    cell_begin(1);
    cell_on_finalize = hand_out;
    nd_gc_set_mode(ND_GC_ON);
    nd_gc_set_cycle_callback(say_nothing, NULL);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    policy.tracked_objects = 300;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    for (int i = 0; i < LOCKS; i++)
        pthread_mutex_init(&writer_locks[i], NULL);
    for (int i = 0; i < MANAGERS; i++)
        managers[i] = manager_new(i < 3 ? NULL : managers[i - 3], "m");
    worker workers[THREADS] = {0};
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i].random = (unsigned)i + 1;
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 3; i++) { // finalizers may hand out once more
        give_up_shared();
        collect(NULL);
    }
    for (int i = 0; i < MANAGERS; i++)
        nd_release(managers[i]);
    nd_gc_set_cycle_callback(NULL, NULL);
    nd_error_clear();
    assert_int_equal(cell_total_deaths(), atomic_load(&made));
    for (int i = 0; i < LOCKS; i++)
        pthread_mutex_destroy(&writer_locks[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_stress_collections_of_every_kind)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
