// fork() while other threads sleep, make objects, collect, and prepare batches (F31): what the child
// does is in forked.h. forks_in_callbacks.c: inside callbacks.
#include "tests/behaviour/forked.h"
#include "tests/behaviour/late.h"

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
    end_in_time();
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
    end_in_time();
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
    end_in_time();
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

/// The last one.
static void test_F31_as_many_forks_as_were_asked_for(void **state) {
    (void)state;
    assert_true(forks >= 190 * stress_times());
    print_message("%d forks\n", forks);
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
        ND_TEST(test_F31_as_many_forks_as_were_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
