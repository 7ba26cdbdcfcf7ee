// Callbacks that do whatever they may, in the middle of collections that decide and free a few
// objects at a time.
//
// Destructors, finalizers, weak callbacks, callbacks for cycles and the `free` of resources
// collect, close and end managers, attach, make, name and link objects, take weak references up,
// look at everything, watch, and hand out what they run for; with one thread they also close
// objects and dispose of managers. Whatever that leads to, every object that was made dies once,
// and accounts and counters add up.
#include "lib/gc/collection.h"
#include "lib/manager/shard.h"
#include "lib/object/callback.h"
#include "tests/behaviour/helpers.h"
#include "tests/stress/slots.h"
#include "tests/stress/times.h"
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 3, STEPS = 30000 / ND_TEST_SCALE, EDGES = 3 };
enum { SLOTS = 16, MANAGERS = 5, WATCHES = 4, LOCKS = 64, NESTED = 2 };

static pthread_mutex_t writer_locks[LOCKS]; ///< one writer of an object's edges at a time
// What is shared by all (table_lock).
static nd_object *shared[SLOTS];
static nd_weak *weaks[SLOTS];
static nd_manager *managers[MANAGERS];
static nd_watch *watches[WATCHES];

static atomic_uint_fast64_t made, died, made_bytes, freed_bytes;
static bool alone; ///< one thread: nothing is in the middle of what a callback closes
static _Thread_local unsigned random_state;
static _Thread_local int depth; ///< of callbacks

static uint32_t any(uint32_t below) {
    return (uint32_t)rand_r(&random_state) % below;
}

static void act(void);

static void act_now_and_then(void) {
    if (depth >= NESTED || any(3) != 0)
        return;
    depth++;
    act();
    depth--;
}

// ------------------------------------------------------------------------------------------ things

typedef struct thing {
    _Atomic uint32_t count; ///< of edges that may be looked at: 0 until it is made
    nd_object *edges[EDGES];
} thing;

static void traverse_thing(const void *pointer, nd_visitor *visitor) {
    const thing *t = pointer;
    for (uint32_t i = 0; i < atomic_load_explicit(&t->count, memory_order_acquire); i++)
        nd_visit(visitor, t->edges[i], "edge");
}

static void clear_thing(void *pointer) {
    thing *t = pointer;
    for (int i = 0; i < EDGES; i++)
        nd_edge_clear(&t->edges[i]);
}

static void end_thing(const thing *t) {
    for (int i = 0; i < EDGES; i++)
        if (t->edges[i])
            abort();
    atomic_fetch_add(&died, 1);
}

static void thing_traverse(const nd_object *self, nd_visitor *visitor) {
    traverse_thing(nd_object_get_data(self), visitor);
}

static void thing_clear(nd_object *self) {
    clear_thing(nd_object_get_data(self));
}

static void thing_destroy(nd_object *self) {
    end_thing(nd_object_get_data(self));
    act_now_and_then();
}

static void thing_finalize(nd_object *self) {
    switch (any(6)) {
    case 0: // lives on
        nd_object_release(exchange_shared(&shared[any(SLOTS)], nd_object_retain(self)));
        break;
    case 1:
        nd_release((nd_weak *)exchange_shared(&weaks[any(SLOTS)], nd_weak_new(self)));
        break;
    case 2:
        clear_thing(nd_object_get_data(self));
        break;
    case 3:
        nd_close(self);
        break;
    default:
        break;
    }
    act_now_and_then();
}

static void resource_free(void *pointer, size_t bytes) {
    end_thing(pointer);
    atomic_fetch_add(&freed_bytes, bytes);
    free(pointer);
    act_now_and_then();
}

static const nd_type plain_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "thing",
    .traverse = thing_traverse,
    .clear = thing_clear,
    .destroy = thing_destroy,
};

static const nd_type finalized_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "finalized thing",
    .traverse = thing_traverse,
    .clear = thing_clear,
    .finalize = thing_finalize,
    .destroy = thing_destroy,
};

static const nd_resource_callbacks resource_callbacks = {
    .size = sizeof resource_callbacks,
    .version = 1,
    .free = resource_free,
    .traverse = traverse_thing,
    .clear = clear_thing,
};

/// NULL when the object is closed, or a weak reference.
static thing *thing_of(nd_object *object) {
    if (nd_is_closed(object))
        return NULL;
    if (nd_object_get_type(object) == &plain_type || nd_object_get_type(object) == &finalized_type)
        return nd_object_get_data(object);
    return nd_resource_get((nd_resource *)object);
}

static nd_object *make_resource(void) {
    size_t bytes = 1 + any(1000);
    thing *t = calloc(1, sizeof *t);
    if (!t)
        abort();
    nd_object *object =
        (nd_object *)nd_resource_new("resource thing", t, bytes, &resource_callbacks);
    if (object) {
        atomic_fetch_add(&made_bytes, bytes);
        atomic_store(&t->count, EDGES);
    } else {
        free(t);
    }
    return object;
}

static nd_object *make_plain(void) {
    nd_object *object = nd_object_new(any(2) ? &plain_type : &finalized_type, sizeof(thing));
    if (object)
        atomic_store(&((thing *)nd_object_get_data(object))->count, EDGES);
    return object;
}

/// Owned; NULL when a cap or a quota refuses it.
static nd_object *make(void) {
    nd_manager *m = retain_shared(&managers[any(MANAGERS)]);
    nd_object *object = NULL;
    bool made_one = false;
    nd_with_manager(m) {
        object = any(4) == 0 ? make_resource() : make_plain();
        made_one = object != NULL;
    }
    nd_release(m);
    if (made_one)
        atomic_fetch_add(&made, 1);
    return object;
}

/// One of the shared objects, owned; NULL when there is none.
static nd_object *pick(void) {
    if (any(2))
        return retain_shared(&shared[any(SLOTS)]);
    nd_weak *weak = retain_shared(&weaks[any(SLOTS)]);
    nd_object *object = weak ? nd_weak_get(weak) : NULL;
    nd_release(weak);
    return object;
}

/// Sets some edge, or cuts it (NULL), unless another thread is at that object. Nothing dies under
/// the lock.
static void set_edge(nd_object *from, const nd_object *to) {
    pthread_mutex_t *lock = &writer_locks[((uintptr_t)from >> 6) % LOCKS];
    if (!from || pthread_mutex_trylock(lock) != 0)
        return;
    thing *t = thing_of(from);
    nd_object **slot = t ? &t->edges[any(EDGES)] : NULL;
    nd_object *before = t ? nd_edge_take(slot) : NULL;
    if (t)
        nd_edge_set(slot, to);
    pthread_mutex_unlock(lock);
    nd_object_release(before);
}

// ----------------------------------------------------------------------------------------- actions

static void make_ring(void) {
    nd_object *ring[4] = {0};
    uint32_t size = 1 + any(4);
    for (uint32_t i = 0; i < size; i++)
        ring[i] = make();
    for (uint32_t i = 0; i < size; i++)
        set_edge(ring[i], ring[(i + 1) % size]);
    if (any(3) == 0)
        nd_object_release(exchange_shared(&shared[any(SLOTS)], nd_object_retain(ring[0])));
    for (uint32_t i = 0; i < size; i++)
        nd_object_release(ring[i]);
}

static void link_two(void) {
    nd_object *from = pick(), *to = pick();
    set_edge(from, to);
    nd_object_release(from);
    nd_object_release(to);
}

static void forget_one(void) {
    nd_object_release(exchange_shared(&shared[any(SLOTS)], NULL));
}

static void act_for_target(void *data) {
    (void)data;
    act_now_and_then();
}

static void refer_weakly(void) {
    nd_object *x = pick();
    nd_weak *weak = x ? nd_weak_new(x) : NULL;
    if (weak)
        nd_weak_set_callback(weak, act_for_target, NULL);
    nd_release((nd_weak *)exchange_shared(&weaks[any(SLOTS)], weak));
    nd_object_release(x);
}

static void collect_some(void) {
    nd_manager *m = any(2) ? retain_shared(&managers[any(MANAGERS)]) : NULL;
    if (nd_gc_collect(m, NULL) != ND_OK) // no type lies
        abort();
    nd_release(m);
}

static void end_manager(nd_manager *manager) {
    if (any(2))
        nd_manager_close(manager, NULL);
    else if (alone)
        nd_manager_dispose(manager, NULL);
    nd_release(manager);
}

static nd_manager *manager_again(void) {
    nd_manager *manager = nd_manager_new(nd_manager_get_root(), "again");
    if (!manager)
        abort();
    return manager;
}

static void replace_manager(void) {
    nd_manager *parent = any(2) ? retain_shared(&managers[any(MANAGERS)]) : NULL;
    nd_manager *fresh = nd_manager_new(parent, "fresh");
    nd_release(parent);
    if (!fresh)
        return; // the parent is closed
    if (any(4) == 0)
        nd__shard_spread(fresh);
    if (any(4) == 0)
        nd_manager_set_cap(fresh, 20);
    if (any(4) == 0)
        nd_manager_set_quota(fresh, ND_CPU, 3000);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1000; // in steps
    if (any(4) == 0)
        nd_manager_set_gc_policy(fresh, &policy);
    end_manager(exchange_shared(&managers[any(MANAGERS)], fresh));
}

static void move_one(void) {
    nd_manager *m = retain_shared(&managers[any(MANAGERS)]);
    nd_object *x = pick();
    if (x && any(2))
        nd_manager_attach(m, x);
    else if (x)
        nd_manager_lend(m, x);
    nd_object_release(x);
    nd_release(m);
}

static void look_around(void) {
    nd_snapshot_free(nd_snapshot_new(NULL));
    if (any(4) == 0)
        nd_trace_begin("/dev/null");
    else if (any(4) == 0)
        nd_trace_end();
}

static void watch_one(void) {
    nd_object *x = pick();
    nd_watch *watch = x ? nd_debug_watch(x) : NULL;
    nd_watch_end(exchange_shared(&watches[any(WATCHES)], watch));
    nd_object_release(x);
}

static void act_for_cycle(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)path, (void)objects, (void)bytes, (void)data;
    act_now_and_then();
}

static void tell_cycles(void) {
    nd_gc_set_cycle_callback(any(2) ? act_for_cycle : NULL, NULL);
}

static void close_or_name(void) {
    nd_object *x = pick();
    if (x && alone && any(3) == 0)
        nd_close(x);
    else if (x)
        nd_set_name(x, any(2) ? "name" : NULL);
    nd_object_release(x);
}

/// Inside a callback of a device: lets go, and is refused what is not allowed there.
static void release_in_callback(void *object) {
    if (object && any(4) == 0 && nd_close(object) != ND_ERROR_STATE)
        abort();
    if (any(4) == 0 && (nd_gc_collect(NULL, NULL) != ND_ERROR_STATE || make_plain()))
        abort();
    nd_object_release(object);
    forget_one();
}

static void run_device_callback(void) {
    nd_object *x = pick(), *y = pick();
    nd__callback_run(release_in_callback, x, y); // takes both over
    nd_manager *m = any(4) ? NULL : exchange_shared(&managers[any(MANAGERS)], manager_again());
    if (m)
        nd__callback_run(NULL, NULL, (nd_object *)m);
}

static void act(void) {
    static void (*const actions[])(void) = {
        make_ring,
        make_ring,
        make_ring,
        make_ring,
        link_two,
        link_two,
        link_two,
        forget_one,
        forget_one,
        refer_weakly,
        collect_some,
        collect_some,
        move_one,
        move_one,
        replace_manager,
        look_around,
        replace_manager,
        watch_one,
        tell_cycles,
        close_or_name,
        run_device_callback,
        run_device_callback,
    };
    actions[any(sizeof actions / sizeof actions[0])]();
    nd_error_clear();
}

// ------------------------------------------------------------------------------------------- runs

static void *work(void *data) {
    random_state = (unsigned)(uintptr_t)data;
    depth = 0;
    for (int i = 0; i < STEPS; i++)
        act();
    depth = NESTED; // from here on callbacks do nothing
    return NULL;
}

/// Everything goes that anybody could still get at; finalizers may hand it out once more.
static void let_go(void) {
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < SLOTS; i++) {
            nd_object_release(exchange_shared(&shared[i], NULL));
            nd_release((nd_weak *)exchange_shared(&weaks[i], NULL));
        }
        for (int i = 0; i < WATCHES; i++)
            nd_watch_end(exchange_shared(&watches[i], NULL));
        for (int i = 0; i < MANAGERS; i++) {
            nd_manager *manager = exchange_shared(&managers[i], NULL);
            if (manager)
                nd_manager_close(manager, NULL);
            nd_release(manager);
        }
        assert_ok(nd_gc_collect(NULL, NULL));
    }
}

static void run(unsigned threads, size_t batch, unsigned seed) {
    size_t batch_before = nd__collection_batch;
    nd__collection_batch = batch;
    nd_gc_set_mode(ND_GC_ON);
    alone = threads == 1;
    made = died = made_bytes = freed_bytes = 0;
    for (int i = 0; i < LOCKS; i++)
        pthread_mutex_init(&writer_locks[i], NULL);
    for (int i = 0; i < MANAGERS; i++)
        managers[i] = manager_new(NULL, "m");
    pthread_t ids[THREADS];
    for (unsigned i = 1; i < threads; i++)
        assert_int_equal(
            pthread_create(&ids[i], NULL, work, (void *)(uintptr_t)(THREADS * seed + i)), 0);
    work((void *)(uintptr_t)(THREADS * seed));
    for (unsigned i = 1; i < threads; i++)
        pthread_join(ids[i], NULL);
    nd_trace_end();
    nd_gc_set_cycle_callback(NULL, NULL);
    assert_ok(nd_debug_check());
    let_go();
    nd_error_clear();
    assert_int_equal(died, made);
    assert_int_equal(freed_bytes, made_bytes);
    nd__collection_batch = batch_before;
}

static void test_hostile_callbacks_alone(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 4 * (unsigned)stress_times(); seed++)
        run(1, 1 + seed % 7, seed);
}

static void test_hostile_callbacks_on_threads(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= 4 * (unsigned)stress_times(); seed++)
        run(THREADS, 1 + seed % 7, seed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_hostile_callbacks_alone),
        ND_TEST(test_hostile_callbacks_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
