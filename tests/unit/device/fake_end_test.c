// The fake device when the process forks or ends with work in its queue: nothing hangs.
#include "lib/device/backends.h"
#include "lib/device/fake/fake.h"
#include "lib/device/registry.h"
#include "lib/object/callback.h"
#include "tests/testing.h"
#include "tests/threads.h"
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

/// Runs `body` in a child and returns its exit status; a child that hangs is ended by its alarm.
static int in_child(int (*body)(void)) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        exit(body());
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Leaves work in a paused queue and goes.
static int end_with_work(void) {
    const nd_backend *fake = nd__registry_backend(ND_FAKE);
    void *block;
    char source[64] = "text";
    if (fake->allocate(0, 64, &block) != ND_OK)
        return 1;
    nd__fake_pause(0);
    if (fake->copy_from_host(0, block, source, 64) != ND_OK)
        return 2;
    fake->release(0, block, 64);
    return nd__fake_pending(0) == 2 ? 0 : 3;
}

static void *late_block;

/// Runs after the workers have stopped, because it was registered before they started.
static void release_late(void) {
    const nd_backend *fake = nd__registry_backend(ND_FAKE);
    fake->release(1, late_block, 64);
    if (nd__fake_live_blocks(1) != 0 || fake->synchronize(1) != ND_OK)
        _exit(7);
}

static int release_during_exit(void) {
    const nd_backend *fake = nd__registry_backend(ND_FAKE);
    char source[64] = "text";
    atexit(release_late);
    if (fake->allocate(1, 64, &late_block) != ND_OK)
        return 1;
    return fake->copy_from_host(1, late_block, source, 64) == ND_OK ? 0 : 2;
}

static int payloads_freed;

static void free_payload(void *pointer, size_t bytes) {
    (void)pointer, (void)bytes;
    payloads_freed++;
}

static nd_object *payload_new(void) {
    static char payload[8];
    static const nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = free_payload};
    return (nd_object *)nd_resource_new("payload", payload, sizeof payload, &callbacks);
}

/// Runs after the workers have stopped, and after what callbacks left was destroyed.
static void expect_one_freed(void) {
    if (payloads_freed != 1 || nd_manager_get_total_objects(NULL) != 0)
        _exit(7);
}

static void release_it(void *data) {
    nd_release((nd_object *)data);
}

enum { QUEUED, HAS_RUN, ON_ANOTHER_DEVICE };
static int callback_before_exit; ///< one of them

/// Exits with an object that a callback has left, or will leave.
static int end_with_callback(void) {
    const nd_device cpu = {ND_CPU, 0}, fake = {ND_FAKE, 0};
    atexit(expect_one_freed);
    if (callback_before_exit ==
        ON_ANOTHER_DEVICE) { // one of which no worker of the fake device knows
        nd_object *payload = payload_new();
        if (nd_queue_callback(cpu, NULL, NULL, payload) != ND_OK)
            return 1;
        nd__callback_run(NULL, NULL, payload);
        return payloads_freed == 0 ? 0 : 2;
    }
    // The worker is there before the first callback, so what stops it was registered first.
    void *block;
    if (nd__registry_backend(ND_FAKE)->allocate(0, 64, &block) != ND_OK)
        return 3;
    nd__registry_backend(ND_FAKE)->release(0, block, 64);
    nd__fake_pause(0);
    if (nd_queue_callback(fake, release_it, payload_new(), NULL) != ND_OK)
        return 4;
    if (callback_before_exit == HAS_RUN)
        nd__fake_resume(0);
    while (callback_before_exit == HAS_RUN && nd__fake_pending(0) > 0)
        sched_yield();
    return payloads_freed == 0 ? 0 : 5;
}

static void test_F23_exit_with_callbacks(void **state) {
    (void)state;
    for (int way = QUEUED; way <= ON_ANOTHER_DEVICE; way++) {
        callback_before_exit = way;
        assert_int_equal(in_child(end_with_callback), 0);
    }
}

static void test_F23_exit_with_queued_work(void **state) {
    (void)state;
    assert_int_equal(in_child(end_with_work), 0);
}

static void test_F23_release_during_exit(void **state) {
    (void)state;
    assert_int_equal(in_child(release_during_exit), 0);
}

// The thread sanitizer refuses to start a thread in the child of a process with several.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define CHILD_STARTS_THREADS 0
#endif
#elif defined(__SANITIZE_THREAD__)
#define CHILD_STARTS_THREADS 0
#endif
#ifndef CHILD_STARTS_THREADS
#define CHILD_STARTS_THREADS 1
#endif

static void *parents_block;

static int use_after_fork(void) {
    const nd_backend *fake = nd__registry_backend(ND_FAKE);
    void *block = NULL;
    char bytes[64];
    if (fake->allocate(0, 64, &block) != ND_ERROR_DEVICE || block)
        return 1;
    if (fake->copy_to_host(0, bytes, parents_block, 64) != ND_ERROR_DEVICE)
        return 2;
    if (nd_synchronize((nd_device){ND_FAKE, 0}) != ND_ERROR_DEVICE)
        return 3;
    if (fake->memory->retire(0) || fake->memory->trim(0) || fake->memory->wait(0, UINT64_MAX / 2))
        return 5;
    nd_object *payload = payload_new();
    if (nd_queue_callback((nd_device){ND_FAKE, 0}, release_it, payload, payload) !=
            ND_ERROR_DEVICE ||
        nd_get_count(payload) != 1)
        return 6;
    nd_release(payload);
    fake->release(0, parents_block, 64);
    // The other device was never used, so the child has lost nothing there.
    if (!CHILD_STARTS_THREADS)
        return 0;
    if (fake->allocate(1, 64, &block) != ND_OK ||
        fake->copy_from_host(1, block, "text", 5) != ND_OK ||
        fake->copy_to_host(1, bytes, block, 5) != ND_OK || strcmp(bytes, "text") != 0)
        return 4;
    fake->release(1, block, 64);
    if (nd_queue_callback((nd_device){ND_FAKE, 1}, release_it, payload_new(), NULL) != ND_OK ||
        nd_synchronize((nd_device){ND_FAKE, 1}) != ND_OK || payloads_freed != 2)
        return 7;
    return 0;
}

static void test_F22_fork_then_use(void **state) {
    (void)state;
    const nd_backend *fake = nd__registry_backend(ND_FAKE);
    assert_ok(fake->allocate(0, 64, &parents_block));
    assert_ok(fake->copy_from_host(0, parents_block, "mine", 5));
    nd__fake_pause(0);
    assert_ok(fake->copy_from_host(0, parents_block, "ours", 5)); // in flight at the fork
    assert_int_equal(in_child(use_after_fork), 0);
    nd__fake_resume(0);
    char bytes[5] = "";
    assert_ok(fake->copy_to_host(0, bytes, parents_block, 5));
    assert_string_equal(bytes, "ours");
    fake->release(0, parents_block, 64);
}

#if CHILD_STARTS_THREADS
static int lost_in_child(void) {
    void *block = NULL;
    return nd__registry_backend(ND_FAKE)->allocate(0, 64, &block) == ND_ERROR_DEVICE ? 0 : 1;
}

/// A worker that has had nothing to do is gone, and comes back.
static int rest_and_go_on(void) {
    const nd_backend *fake = nd__registry_backend(ND_FAKE);
    void *block;
    char bytes[8] = "";
    if (fake->allocate(0, 8, &block) != ND_OK)
        return 1;
    for (int round = 0; round < 2; round++) {
        if (fake->copy_from_host(0, block, round ? "again" : "first", 6) != ND_OK ||
            fake->copy_to_host(0, bytes, block, 6) != ND_OK ||
            strcmp(bytes, round ? "again" : "first") != 0)
            return 2;
        while (nd_test_threads() > 1)
            usleep(10000);
        if (fake->synchronize(0) != ND_OK || nd__fake_pending(0) != 0)
            return 3;
    }
    if (in_child(lost_in_child) != 0)
        return 4;
    fake->release(0, block, 8);
    return 0;
}

static void test_F23_a_worker_rests_and_goes_on(void **state) {
    (void)state;
    assert_int_equal(in_child(rest_and_go_on), 0);
}

#ifndef __SANITIZE_ADDRESS__ // for which what the thread that is gone had on its stack is a leak
/// Ends without exit(): only the worker is left, and it takes no signals.
static int leave_the_worker_alone(void) {
    void *block;
    if (nd__registry_backend(ND_FAKE)->allocate(0, 64, &block) != ND_OK)
        return 1;
    nd__registry_backend(ND_FAKE)->release(0, block, 64);
    pthread_exit(NULL);
}

static void fork_in_callback(void *data) {
    pid_t *child = data;
    *child = fork();
}

/// The child has the device's thread and no other: it ends with the callback.
static int fork_on_the_worker(void) {
    pid_t child = -1;
    if (nd_queue_callback((nd_device){ND_FAKE, 0}, fork_in_callback, &child, NULL) != ND_OK)
        return 1;
    nd_queue_callback((nd_device){ND_FAKE, 0}, release_it, payload_new(), NULL);
    if (nd_synchronize((nd_device){ND_FAKE, 0}) != ND_OK || child <= 0)
        return 2;
    int status = -1;
    waitpid(child, &status, 0);
    return status == 0 && payloads_freed == 1 ? 0 : 3;
}

static void test_F23_a_process_of_which_only_the_worker_is_left_ends(void **state) {
    (void)state;
    assert_int_equal(in_child(leave_the_worker_alone), 0);
}

static void test_F22_fork_on_the_worker(void **state) {
    (void)state;
    assert_int_equal(in_child(fork_on_the_worker), 0);
}
#endif
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        // The first ones use the devices in children only; the last starts a worker here.
        ND_TEST(test_F23_exit_with_callbacks),
        ND_TEST(test_F23_exit_with_queued_work),
        ND_TEST(test_F23_release_during_exit),
#if CHILD_STARTS_THREADS
        ND_TEST(test_F23_a_worker_rests_and_goes_on),
#ifndef __SANITIZE_ADDRESS__
        ND_TEST(test_F23_a_process_of_which_only_the_worker_is_left_ends),
        ND_TEST(test_F22_fork_on_the_worker),
#endif
#endif
        ND_TEST(test_F22_fork_then_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
