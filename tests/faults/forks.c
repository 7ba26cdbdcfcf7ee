// fork() while other threads sleep, make objects, collect, and prepare batches, and inside
// callbacks (F31).
//
// The child has one thread and whatever the other threads held. It must not wait for any of them:
// it makes, attaches, releases, closes, names, takes weak references up, trains and collects,
// starts threads that do the same, and finds every list and count whole. ND_STRESS says how many
// times as many forks.
#include "tests/behaviour/cell.h"
#include "tests/behaviour/late.h"
#include "tests/stress/times.h"
#include "tests/testing.h"
#include "tests/training.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, CELLS = 8 };
static nd_manager *shared_manager;
static atomic_bool stop;
static atomic_int running;

// ----------------------------------------------------------------------------- what the child does

#define NEED(condition)                 \
    do {                                \
        if (!(condition))               \
            _exit(__LINE__ % 200 + 20); \
    } while (0)

static void drop_ring_in(nd_manager *manager) {
    nd_with_manager(manager) {
        cell_drop_ring(0, 3);
    }
}

/// On the CPU: of the parent's devices the child has that alone.
static void train(void) {
    NEED(nd_set_default_device((nd_device){ND_CPU, 0}) == ND_OK);
    nd_tensor *leaf = nd_ones(ND_SHAPE(4), ND_F32), *square = NULL, *loss = NULL;
    NEED(leaf && nd_set_requires_grad(leaf, true) == ND_OK);
    nd_enable_grad { // a hook runs without
        square = nd_square(leaf);
        loss = nd_sum(square, 0, NULL, false);
    }
    NEED(loss && nd_backward(loss, NULL) == ND_OK && nd_get_grad(leaf));
    nd_release(loss);
    nd_release(square);
    nd_release(leaf);
}

/// Apart, or gcc takes the released reference for the one that is still held.
__attribute__((noinline)) static bool gives(const nd_weak *weak, const nd_object *object) {
    nd_object *target = nd_weak_get(weak);
    nd_release(target);
    return target == object;
}

/// A look at everything, in managers of its own and in what the parent's threads left.
static void use_the_core(void) {
    nd_manager *manager = nd_manager_new(NULL, "child"), *below = nd_manager_new(manager, "below");
    NEED(manager && below);
    drop_ring_in(below);
    drop_ring_in(manager);
    nd_object *a = cell_new(0, 1);
    nd_weak *weak = nd_weak_new(a);
    NEED(nd_set_name(a, "a") == ND_OK && nd_manager_attach(below, a) == ND_OK &&
         nd_manager_lend(manager, a) == ND_OK);
    NEED(gives(weak, a));
    NEED(nd_manager_close(manager, NULL) == ND_OK);
    nd_release(a);
    NEED(!nd_weak_get(weak));
    nd_release(weak);
    nd_release(below);
    nd_release(manager);
    train();
    NEED(nd_gc_collect(NULL, NULL) == ND_OK);
    if (shared_manager) {
        drop_ring_in(shared_manager);
        NEED(nd_gc_collect(shared_manager, NULL) == ND_OK);
    }
    NEED(nd_debug_check() == ND_OK);
}

static void *use_on_thread(void *data) {
    drop_ring_in((nd_manager *)(uintptr_t)nd_manager_get_root());
    train();
    NEED(nd_gc_collect(NULL, NULL) == ND_OK);
    return data;
}

static void use_on_threads(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        NEED(pthread_create(&threads[i], NULL, use_on_thread, NULL) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void be_a_child(void) {
    alarm(60); // that it hangs shall show; on a loaded machine it is slow
    use_the_core();
    use_on_threads();
    use_the_core();
    if (shared_manager)
        NEED(nd_manager_dispose(shared_manager, NULL) == ND_OK);
    NEED(nd_gc_collect(NULL, NULL) == ND_OK && nd_debug_check() == ND_OK);
    _exit(0);
}

static void fork_once(void (*child)(void)) {
    pid_t id = fork();
    if (id == 0)
        child();
    int status = -1;
    assert_true(id > 0 && waitpid(id, &status, 0) == id);
    if (status)
        fail_msg("child: status %x (exit %d, signal %d)", (unsigned)status, WEXITSTATUS(status),
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

static void fork_often(int times) {
    for (int i = 0; i < times * stress_times(); i++) {
        fork_once(be_a_child);
        if (i % 4 == 0)
            usleep((useconds_t)(rand() % 500));
    }
}

// ----------------------------------------------------------------------- what other threads are at

static void *sleep_outside(void *data) {
    cell_drop_ring(0, 2);
    running++;
    while (!stop)
        usleep(1000);
    return data;
}

static void *make_and_release(void *data) {
    (void)nd_test_use_device(); // of a child's threads none has it
    running++;
    while (!stop) {
        nd_object *a = cell_new(0, 2), *b = cell_new(0, 2);
        cell_link(a, 0, b);
        cell_link(b, 0, a);
        cell_link(a, 1, a);
        nd_set_name(a, "made");
        nd_weak *weak = nd_weak_new(b);
        nd_manager_attach(shared_manager, a);
        nd_manager_lend(shared_manager, b);
        nd_release(a);
        nd_release(nd_weak_get(weak));
        nd_release(weak);
        cell_unlink(b, 0);
        nd_release(b);
        nd_release(nd_ones(ND_SHAPE(8), ND_F32));
    }
    return data;
}

static void *make_managers(void *data) {
    running++;
    while (!stop) {
        nd_manager *m = nd_manager_new(shared_manager, "m"), *below = nd_manager_new(m, "below");
        drop_ring_in(below);
        drop_ring_in(m);
        nd_object *a = NULL;
        nd_with_manager(below) {
            a = cell_new(0, 0);
        }
        nd_manager_close(m, NULL);
        nd_release(a);
        nd_release(below);
        nd_release(m);
    }
    return data;
}

static void *collect(void *data) {
    running++;
    while (!stop) {
        drop_ring_in(shared_manager);
        nd_gc_collect(NULL, NULL);
    }
    return data;
}

static void fork_beside(void *(*const *functions)(void *), int count, int times) {
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(1);
    stop = false;
    running = 0;
    shared_manager = nd_manager_new(NULL, "shared");
    pthread_t threads[8];
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, functions[i], NULL), 0);
    while (running < count)
        sched_yield();
    fork_often(times);
    stop = true;
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    nd_manager_close(shared_manager, NULL);
    nd_release(shared_manager);
    shared_manager = NULL;
    assert_ok(nd_gc_collect(NULL, NULL));
}

static void test_F31_fork_beside_idle_threads(void **state) {
    (void)state;
    fork_beside((void *(*[])(void *)){sleep_outside, sleep_outside}, 2, 20);
}

static void test_F31_fork_beside_allocating_threads(void **state) {
    (void)state;
    fork_beside((void *(*[])(void *)){make_and_release, make_and_release, make_managers}, 3, 60);
}

static void test_F31_fork_beside_collecting_threads(void **state) {
    (void)state;
    fork_beside((void *(*[])(void *)){collect, make_and_release, collect}, 3, 60);
}

/// A pause makes collections go in steps.
static void test_F31_fork_beside_collections_in_steps(void **state) {
    (void)state;
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    fork_beside((void *(*[])(void *)){collect, make_and_release}, 2, 15);
}

static void *fork_there(void *data) {
    running++;
    while (!stop)
        fork_once(be_a_child);
    return data;
}

static void test_F31_threads_fork_at_once(void **state) {
    (void)state;
    fork_beside((void *(*[])(void *)){fork_there, collect}, 2, 20);
}

// -------------------------------------------------------------------- devices, prefetching threads

static nd_dataset *dataset;

static void read_in_child(void) {
    alarm(60);
    nd_tensor *images, *labels;
    nd_error_clear();
    NEED(!next_batch(dataset, &images, &labels));
    NEED(nd_error_get_status() == ND_ERROR_STATE &&
         strstr(nd_error_get_message(), "parent process"));
    int batches = 0;
    NEED(nd_dataset_start(dataset, 1) == ND_OK);
    for (; next_batch(dataset, &images, &labels); batches++) {
        nd_release(images);
        nd_release(labels);
    }
    NEED(batches == 100);
    NEED(nd_dataset_start(dataset, 2) == ND_OK);
    nd_release(dataset);
    _exit(0);
}

static void release_in_child(void) {
    alarm(60);
    nd_release(dataset);
    be_a_child();
}

static void test_F31_fork_beside_a_prefetching_thread(void **state) {
    (void)state;
    cell_begin(1);
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0})); // where data sets are
    nd_tensor *x = nd_zeros(ND_SHAPE(1000, 4, 4), ND_U8), *y = nd_zeros(ND_SHAPE(1000), ND_I64);
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = 10;
    options.prefetch = true;
    dataset = nd_dataset_new(x, y, &options);
    for (int i = 0; i < 10 * stress_times(); i++) {
        assert_ok(nd_dataset_start(dataset, 0));
        fork_once(i % 2 ? release_in_child : read_in_child);
        nd_tensor *images, *labels; // the parent's goes on
        assert_true(next_batch(dataset, &images, &labels));
        nd_release(images);
        nd_release(labels);
    }
    nd_release(dataset);
    nd_release(x);
    nd_release(y);
}

static nd_tensor *on_device;

static void use_device_in_child(void) {
    alarm(60);
    NEED(nd_synchronize((nd_device){LATE, 0}) == ND_ERROR_DEVICE);
    NEED(strstr(nd_error_get_message(), "parent process"));
    NEED(!nd_to(on_device, (nd_device){ND_CPU, 0}));
    nd_release(on_device);
    be_a_child();
}

static void test_F31_fork_beside_a_device(void **state) {
    (void)state;
    cell_begin(1);
    nd_tensor *x = nd_ones(ND_SHAPE(1000), ND_F32);
    on_device = nd_to(x, (nd_device){LATE, 0});
    for (int i = 0; i < 10 * stress_times(); i++) {
        nd_tensor *more = nd_add(on_device, on_device); // in the queue
        fork_once(use_device_in_child);
        nd_release(more);
    }
    assert_ok(nd_synchronize((nd_device){LATE, 0}));
    nd_release(on_device);
    nd_release(x);
}

// -------------------------------------------------------------------------------- inside callbacks

static _Atomic int forks_in_callbacks;

/// The child goes on with the callback's caller, and uses everything when that is done.
static void fork_here(void) {
    pid_t id = fork();
    forks_in_callbacks++;
    if (id == 0) {
        alarm(60);
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

static void test_F31_fork_inside_callbacks(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(1);
    stop = false;
    running = 0;
    forks_in_callbacks = 0;
    shared_manager = nd_manager_new(NULL, "shared");
    pthread_t threads[2];
    assert_int_equal(pthread_create(&threads[0], NULL, collect, NULL), 0);
    assert_int_equal(pthread_create(&threads[1], NULL, make_and_release, NULL), 0);
    while (running < 2)
        sched_yield();
    for (int i = 0; i < 10 * stress_times(); i++) {
        collect_with_callbacks();
        backward_with_hook();
    }
    // Every hook, and more: the other thread may collect the ring when its callbacks are gone.
    assert_true(forks_in_callbacks > 10 * stress_times());
    stop = true;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    nd_manager_close(shared_manager, NULL);
    nd_release(shared_manager);
    shared_manager = NULL;
    assert_ok(nd_gc_collect(NULL, NULL));
}

// --------------------------------------------------------------------------------- inside the gate

static int forks_inside;

/// There the child may do no more than this.
static void fork_to_exec(void) {
    pid_t id = fork();
    if (id == 0) {
        alarm(60);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F31_fork_beside_idle_threads),
        ND_TEST(test_F31_fork_beside_allocating_threads),
        ND_TEST(test_F31_fork_beside_collecting_threads),
        ND_TEST(test_F31_fork_beside_collections_in_steps),
        ND_TEST(test_F31_threads_fork_at_once),
        ND_TEST(test_F31_fork_beside_a_prefetching_thread),
        ND_TEST(test_F31_fork_beside_a_device),
        ND_TEST(test_F31_fork_inside_callbacks),
        ND_TEST(test_F31_fork_inside_traverse_and_clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
