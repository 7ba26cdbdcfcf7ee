// How many locked instructions the life of a tensor takes, counted as they run:
// each costs as much as twenty others.
//
// A child process with a second thread alive, so that nothing is spared by
// being alone, is stopped after every instruction of one round, and the next
// one is looked at.
#include "lib/base/barrier.h"
#include "tests/testing.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef ND_COLLECT_EVERYWHERE
#define ND_COLLECT_EVERYWHERE 0
#endif

#if defined(__x86_64__)
static void *sleep_for_ever(void *data) {
    for (;;)
        pause();
    return data;
}

static nd_manager *manager;

static void *make_manager(void *data) {
    manager = nd_manager_new(NULL, "others");
    return data;
}

static void tensor(void) {
    nd_release(nd_empty(ND_SHAPE(16), ND_F32));
}

static void object(void) {
    static const nd_type type = {
        .size = sizeof type, .version = 1, .name = "box", .flags = ND_TYPE_GREEN};
    nd_release(nd_object_new(&type, 16));
}

static nd_tensor *kept, *parameter;

static void view(void) {
    nd_release(nd_slice(kept, 4, 12, 1, 0));
}

static void recorded(void) {
    nd_release(nd_add(parameter, kept));
}

static void handle(void) {
    nd_release(nd_retain(kept));
}

/// What the counter must find: two with a prefix, and an exchange, which needs
/// none.
static void three(void) {
    static _Atomic int word;
    atomic_fetch_add(&word, 1);
    atomic_fetch_or(&word, 1);
    (void)atomic_exchange(&word, 1);
    atomic_store_explicit(&word, 1, memory_order_release);
}

/// One round between two stops.
static void stop_around(void (*round)(void)) {
    for (int i = 0; i < 100; i++)
        round(); // what is made once is there
    raise(SIGSTOP);
    round();
    raise(SIGSTOP);
    _exit(0);
}

static void stop_around_below(void (*round)(void)) {
    kept = nd_ones(ND_SHAPE(16), ND_F32);
    parameter = nd_ones(ND_SHAPE(16), ND_F32);
    if (nd_set_requires_grad(parameter, true) != ND_OK)
        _exit(78);
    stop_around(round);
}

/// Whether the instruction is locked: by a prefix, or an exchange with memory.
static bool is_locked(const unsigned char *code) {
    bool locked = false;
    int i = 0;
    for (; i < 4 && (code[i] == 0xf0 || code[i] == 0x66 || code[i] == 0xf2 || code[i] == 0xf3); i++)
        locked |= code[i] == 0xf0;
    i += (code[i] & 0xf0) == 0x40;
    return locked || ((code[i] == 0x86 || code[i] == 0x87) && code[i + 1] >> 6 != 3);
}

/// Steps the child, which has stopped, up to its next stop.
static int count_steps(pid_t child) {
    int locked = 0;
    for (long steps = 0;; steps++) {
        struct user_regs_struct registers;
        int status;
        assert_int_equal(ptrace(PTRACE_SINGLESTEP, child, NULL, NULL), 0);
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFSTOPPED(status));
        if (WSTOPSIG(status) == SIGSTOP) {
            assert_true(steps > 20);
            return locked;
        }
        assert_int_equal(WSTOPSIG(status), SIGTRAP);
        assert_int_equal(ptrace(PTRACE_GETREGS, child, NULL, &registers), 0);
        unsigned char code[8];
        long word = ptrace(PTRACE_PEEKTEXT, child, (void *)registers.rip, NULL);
        memcpy(code, &word, sizeof code);
        locked += is_locked(code);
    }
}

/// Locked instructions of one round in a child in which `prepare` has run on a
/// thread of its own, or, with `here`, on the one that counts.
static int locked_of(void (*round)(void), void *(*prepare)(void *), bool here) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        pthread_t thread;
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(77);
        pthread_create(&thread, NULL, sleep_for_ever, NULL);
        if (prepare && here) {
            prepare(NULL);
        } else if (prepare) {
            pthread_create(&thread, NULL, prepare, NULL);
            pthread_join(thread, NULL);
        }
        if (!manager)
            stop_around_below(round);
        nd_with_manager(manager) stop_around_below(round);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        fprintf(stderr, "SKIPPED: no process may be traced here\n");
        skip();
    }
    assert_true(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    int locked = count_steps(child);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return locked;
}

/// Where the kernel has no barrier for a process, no lock is biased (lib/base/biased_lock.h).
static int of_biased(int unbiased, int biased) {
    return nd__barrier_prepare() ? biased : unbiased;
}

static void test_the_counter_counts(void **state) {
    (void)state;
    assert_int_equal(locked_of(three, NULL, true), 3);
}

static void test_a_retain_and_a_release_take_two(void **state) {
    (void)state;
    assert_int_equal(locked_of(handle, NULL, true), 2);
}

static void test_create_and_free_below_ones_own_manager_takes_none(void **state) {
    (void)state;
    if (ND_COLLECT_EVERYWHERE) // each creation collects
        skip();
    const int none = of_biased(2, 0);
    assert_int_equal(locked_of(tensor, make_manager, true), none);
    assert_int_equal(locked_of(object, make_manager, true), none);
}

static void test_create_and_free_below_anybodys_manager_takes_four(void **state) {
    (void)state;
    if (ND_COLLECT_EVERYWHERE) // each creation collects
        skip();
    assert_in_range(locked_of(tensor, make_manager, false), 0, 4);
    assert_in_range(locked_of(object, make_manager, false), 0, 4);
    assert_in_range(locked_of(tensor, NULL, true), 0, 4); // the root
}

static void test_views_and_recorded_operations(void **state) {
    (void)state;
    if (ND_COLLECT_EVERYWHERE) // each creation collects
        skip();
    // Counts of the base, whose storage a view borrows; of the parameter, and the last one of the node.
    assert_in_range(locked_of(view, make_manager, true), 0, of_biased(4, 2));
    assert_in_range(locked_of(recorded, make_manager, true), 0, of_biased(7, 3));
    // And the lock of the manager's list: at a birth, when something becomes tracked, at an end.
    assert_in_range(locked_of(view, make_manager, false), 0, 6);
    assert_in_range(locked_of(recorded, make_manager, false), 0, 9);
}
#endif

int main(void) {
#if defined(__x86_64__)
    const struct CMUnitTest tests[] = {
        ND_TEST(test_the_counter_counts),
        ND_TEST(test_a_retain_and_a_release_take_two),
        ND_TEST(test_create_and_free_below_ones_own_manager_takes_none),
        ND_TEST(test_create_and_free_below_anybodys_manager_takes_four),
        ND_TEST(test_views_and_recorded_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
#else
    fprintf(stderr, "SKIPPED: the instructions of this processor are not known here\n");
    return 0;
#endif
}
