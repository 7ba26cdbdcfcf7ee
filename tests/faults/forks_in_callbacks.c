// fork() inside callbacks, on whichever thread those run, and on a thread of the library's (F31):
// what the child does is in forked.h.
#include "lib/io/prefetch.h"
#include "tests/behaviour/forked.h"
#include "tests/behaviour/late.h"

// -------------------------------------------------------------------------------- inside callbacks

static _Atomic int forks_in_callbacks;

/// The child goes on with the callback's caller, and uses everything when that is done.
static void fork_here(void) {
    pid_t id = fork();
    forks++;
    forks_in_callbacks++;
    if (id == 0) {
        end_in_time();
        stop = true;
        forks_in_callbacks = -1000000;
        use_the_core();
        return;
    }
    int status = -1;
    assert_true(waitpid(id, &status, 0) == id);
    assert_int_equal(status, 0);
}

static void fork_in_finalizer(nd_object *self) {
    (void)self;
    if (forks_in_callbacks >= 0)
        fork_here();
}

static void fork_in_destroy(nd_object *self) {
    if (cell_of(self)->number == 1 && forks_in_callbacks >= 0)
        fork_here();
}

static bool fork_and_keep(const nd_memory_pressure *pressure, void *data) {
    (void)pressure, (void)data;
    if (forks_in_callbacks >= 0)
        fork_here();
    return false;
}

static void fork_with_data(void *data) {
    (void)data;
    if (forks_in_callbacks >= 0)
        fork_here();
}

static void fork_and_free(void *pointer, size_t bytes) {
    (void)bytes;
    free(pointer);
    if (forks_in_callbacks >= 0)
        fork_here();
}

static nd_tensor *fork_in_hook(const nd_tensor *gradient, const nd_object *context) {
    (void)gradient, (void)context;
    if (forks_in_callbacks >= 0)
        fork_here();
    return NULL;
}

static void end_if_child(void) {
    if (forks_in_callbacks < 0)
        be_a_child();
}

static void collect_with_callbacks(void) {
    cell_on_finalize = fork_in_finalizer;
    nd_object *a = cell_new_of(&cell_finalized_type, 0, 2);
    cell_link(a, 0, a);
    nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = fork_and_free};
    nd_resource *resource = nd_resource_new("forks", malloc(8), 8, &callbacks);
    cell_link(a, 1, resource);
    nd_release(resource);
    nd_weak *weak = nd_weak_new(a);
    nd_weak_set_callback(weak, fork_with_data, NULL);
    nd_release(a);
    nd_gc_collect(NULL, NULL);
    end_if_child();
    nd_release(weak);
    cell_on_finalize = NULL;
}

/// In a collection, and of an object that dies by itself.
static void destroy_two(void) {
    cell_on_destroy = fork_in_destroy;
    nd_object *a = cell_new(1, 1);
    cell_link(a, 0, a);
    nd_release(a);
    nd_gc_collect(NULL, NULL);
    end_if_child();
    nd_release(cell_new(1, 0));
    end_if_child();
    cell_on_destroy = NULL;
}

/// The child goes on with the allocation that the callback was asked for, and a quota refuses it.
static void ask_for_memory(void) {
    enum { QUOTA = 1 << 16 };
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0})); // which a child has
    nd_manager *manager = nd_manager_new(NULL, "small");
    assert_ok(nd_manager_set_quota(manager, ND_CPU, QUOTA));
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = fork_and_keep;
    assert_ok(nd_memory_set_callback(manager, &callback));
    nd_with_manager(manager) {
        nd_tensor *x = nd_zeros(ND_SHAPE(QUOTA), ND_F32);
        bool refused = !x && nd_error_get_status() == ND_ERROR_QUOTA;
        if (forks_in_callbacks < 0)
            NEED(refused);
        assert_true(refused);
    }
    end_if_child();
    nd_error_clear();
    assert_ok(nd_manager_dispose(manager, NULL));
    assert_ok(nd_test_use_device());
}

static void backward_with_hook(void) {
    nd_tensor *leaf = nd_ones(ND_SHAPE(3), ND_F32);
    nd_set_requires_grad(leaf, true);
    nd_register_hook(leaf, fork_in_hook, NULL);
    nd_tensor *loss = nd_sum(leaf, 0, NULL, false);
    nd_backward(loss, NULL);
    end_if_child();
    nd_release(loss);
    nd_release(leaf);
}

/// The function beside two threads, as often as it takes.
static void call_beside(void *(*first)(void *), void *(*second)(void *), void (*call)(void)) {
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    stop = false;
    running = 0;
    forks_in_callbacks = 0;
    shared_manager = nd_manager_new(NULL, "shared");
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, first, NULL), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, second, NULL), 0);
    while (running < 2)
        sched_yield();
    for (int i = 0; i < 10 * stress_times(); i++)
        call();
    stop = true;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    nd_manager_close(shared_manager, NULL);
    nd_release(shared_manager);
    shared_manager = NULL;
    assert_ok(nd_gc_collect(NULL, NULL));
}

static void run_callbacks(void) {
    collect_with_callbacks();
    backward_with_hook();
    destroy_two();
}

static void test_F31_fork_inside_callbacks(void **state) {
    (void)state;
    call_beside(collect, make_and_release, run_callbacks);
    // The hook and that of what dies by itself; those of the rings, which the other thread may
    // collect, run there or not at all, when they were taken back.
    assert_true(forks_in_callbacks >= 2 * 10 * stress_times());
}

/// Beside threads that charge no bytes: what others were charging stays on the accounts of this
/// child (docs/threading.md), of which nd_debug_check() would tell.
static void test_F31_fork_inside_callbacks_for_memory(void **state) {
    (void)state;
    call_beside(collect, collect, ask_for_memory);
    assert_int_equal(forks_in_callbacks, 10 * stress_times());
}

// ------------------------------------------------------------------------ on the library's threads

static void *live_on(void *data) {
    be_a_child();
    return data;
}

/// Of the child of a device's callback, which may make nothing itself, a thread may.
static void let_a_thread_live(void) {
    end_in_time();
    pthread_t thread;
    NEED(nd_gc_collect(NULL, NULL) == ND_ERROR_STATE);
    NEED(pthread_create(&thread, NULL, live_on, NULL) == 0);
    pthread_join(thread, NULL);
    _exit(1);
}

/// Not where a test may fail: that is for who waits for the thread.
static int status_of_fork(void (*child)(void)) {
    pid_t id = fork();
    if (id == 0)
        child();
    forks++;
    int status = -1;
    return id > 0 && waitpid(id, &status, 0) == id ? status : -1;
}

static void fork_in_queue(void *data) {
    *(int *)data = status_of_fork(let_a_thread_live);
}

/// The CPU's, which run on this thread, too.
static void test_F31_fork_inside_callbacks_of_devices(void **state) {
    (void)state;
    cell_begin(1);
    nd_tensor *x = nd_ones(ND_SHAPE(1000), ND_F32);
    nd_tensor *on_device = nd_to(x, (nd_device){LATE, 0});
    for (int i = 0; i < 10 * stress_times(); i++) {
        nd_device device = i % 2 ? (nd_device){ND_CPU, 0} : (nd_device){LATE, 0};
        int status = -1;
        nd_tensor *before = nd_add(on_device, on_device);
        assert_ok(nd_queue_callback(device, fork_in_queue, &status, before));
        nd_tensor *after = nd_add(before, before);
        assert_ok(nd_synchronize(device));
        if (status)
            fail_msg("child: status %x", (unsigned)status);
        nd_release(before);
        nd_release(after);
    }
    assert_ok(nd_synchronize((nd_device){LATE, 0}));
    nd_release(on_device);
    nd_release(x);
}

static void fork_in_piece(const void *context, int64_t piece, void *slot) {
    (void)context, (void)piece;
    *(int *)slot = status_of_fork(be_a_child);
}

/// No code of the program's runs there, but the thread may be in the middle of anything when it is
/// the one that is left.
static void test_F31_fork_on_the_prefetching_thread(void **state) {
    (void)state;
    enum { DEPTH = 2 };
    cell_begin(1);
    int slots[DEPTH], pieces = 10 * stress_times();
    nd_prefetch prefetch = {0};
    assert_ok(nd__prefetch_start(&prefetch, "forks", fork_in_piece, NULL, slots, sizeof slots[0],
                                 DEPTH, 0, pieces));
    for (int i = 0; i < pieces; i++) {
        const int *status = nd__prefetch_wait(&prefetch);
        assert_non_null(status);
        if (*status)
            fail_msg("child: status %x", (unsigned)*status);
        nd__prefetch_done(&prefetch);
    }
    nd__prefetch_stop(&prefetch);
}

// --------------------------------------------------------------------------------- inside the gate

static int forks_inside;

/// There the child may do no more than this.
static void fork_to_exec(void) {
    pid_t id = fork();
    if (id == 0) {
        end_in_time();
        execl("/bin/true", "true", (char *)NULL);
        _exit(1);
    }
    int status = -1;
    assert_true(id > 0 && waitpid(id, &status, 0) == id);
    assert_int_equal(status, 0);
    forks_inside++;
}

static void fork_in_traverse(const nd_object *self) {
    (void)self;
    if (forks_inside == 0)
        fork_to_exec();
}

static void fork_in_clear(nd_object *self) {
    fork_to_exec();
    cell_type.clear(self);
}

static void test_F31_fork_inside_traverse_and_clear(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(3);
    nd_type type = cell_watched_type;
    type.clear = fork_in_clear;
    stop = false;
    running = 0;
    forks_inside = 0;
    shared_manager = nd_manager_new(NULL, "shared");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_and_release, NULL), 0);
    while (running < 1)
        sched_yield();
    nd_object *ring[2] = {cell_new_of(&type, 1, 1), cell_new_of(&type, 2, 1)};
    cell_ring(ring, 2);
    nd_release(ring[0]);
    nd_release(ring[1]);
    cell_on_traverse = fork_in_traverse;
    assert_ok(nd_gc_collect(NULL, NULL));
    cell_on_traverse = NULL;
    assert_int_equal(forks_inside, 3);
    nd_release(cell_new_of(&type, 1, 1)); // dies by itself, which takes the gate
    assert_int_equal(forks_inside, 4);
    assert_int_equal(cell_deaths(1) + cell_deaths(2), 3);
    fork_once(be_a_child); // all is well again
    stop = true;
    pthread_join(thread, NULL);
    nd_manager_close(shared_manager, NULL);
    nd_release(shared_manager);
    shared_manager = NULL;
    assert_ok(nd_gc_collect(NULL, NULL));
}

/// The last one.
static void test_F31_as_many_forks_inside_as_were_asked_for(void **state) {
    (void)state;
    assert_true(forks >= 50 * stress_times());
    print_message("%d forks\n", forks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F31_fork_inside_callbacks),
        ND_TEST(test_F31_fork_inside_callbacks_for_memory),
        ND_TEST(test_F31_fork_inside_callbacks_of_devices),
        ND_TEST(test_F31_fork_on_the_prefetching_thread),
        ND_TEST(test_F31_fork_inside_traverse_and_clear),
        ND_TEST(test_F31_as_many_forks_inside_as_were_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
