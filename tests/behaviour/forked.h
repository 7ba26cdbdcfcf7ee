// What a forked child does, and threads beside which it is forked (F31).
//
// The child has one thread and whatever the other threads held. It must not wait for any of them:
// it makes, attaches, releases, closes, names, takes weak references up, trains and collects,
// starts threads that do the same, and finds every list and count whole. ND_STRESS says how many
// times as many forks as usual.
#ifndef ND_TESTS_BEHAVIOUR_FORKED_H
#define ND_TESTS_BEHAVIOUR_FORKED_H
#include "tests/behaviour/cell.h"
#include "tests/stress/times.h"
#include "tests/testing.h"
#include "tests/training.h"
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static nd_manager *shared_manager;
static atomic_bool stop;
static atomic_int running;
static atomic_int forks; ///< all there were

// ----------------------------------------------------------------------------- what the child does

/// Says why, and ends the child.
static void fail_in_child(const char *condition) {
    fprintf(stderr, "child: %s: %s\n", condition, nd_error_get_message());
    _exit(20);
}

#define NEED(condition)                \
    do {                               \
        if (!(condition))              \
            fail_in_child(#condition); \
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

/// That it hangs shall show; on a loaded machine it is slow. The library's threads take no signals.
static void end_in_time(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGALRM);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    alarm(60);
}

static void be_a_child(void) {
    end_in_time();
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
    forks++;
    int status = -1;
    assert_true(id > 0 && waitpid(id, &status, 0) == id);
    if (status)
        fail_msg("child: status %x (exit %d, signal %d)", (unsigned)status, WEXITSTATUS(status),
                 WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

// ----------------------------------------------------------------------- what other threads are at

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

static void *collect(void *data) {
    running++;
    while (!stop) {
        drop_ring_in(shared_manager);
        nd_gc_collect(NULL, NULL);
    }
    return data;
}
#endif
