// The pool of threads: every share once, whoever computes beside it, and manners in the process.
//
// A worker may come late or not at all, so a test that wants one to take part gives it shares to
// wait for.
#include "lib/base/pool.h"
#include "tests/testing.h"
#include "tests/threads.h"
#include <nd/threads.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHARES 1000
#define LONG_IDLE INT64_C(3600000000000)

static void nap(long nanoseconds) {
    struct timespec time = {.tv_nsec = nanoseconds};
    nanosleep(&time, NULL);
}

typedef struct tally {
    _Atomic int done[SHARES];
    _Atomic int nested_threads; ///< the most that a body was told it may use
    int inner;                  ///< shares of a job inside each share
} tally;

static void count_share(void *context, int64_t share) {
    tally *t = (tally *)context;
    atomic_fetch_add(&t->done[share], 1);
}

static void nested_share(void *context, int64_t share) {
    tally *t = (tally *)context;
    if (nd__pool_threads() > atomic_load(&t->nested_threads))
        atomic_store(&t->nested_threads, nd__pool_threads());
    tally *inside = calloc(1, sizeof *inside);
    pthread_t before = pthread_self();
    nd__pool_run(t->inner, count_share, inside);
    bool right = pthread_equal(before, pthread_self());
    for (int i = 0; i < t->inner; i++)
        right = right && inside->done[i] == 1;
    free(inside);
    if (right)
        count_share(context, share);
}

/// Every share exactly once, in jobs of many sizes.
static bool rounds(int count, int inner) {
    bool right = true;
    tally *t = malloc(sizeof *t);
    for (int round = 0; round < count && right; round++) {
        memset(t, 0, sizeof *t);
        t->inner = inner;
        int shares = 1 + (round * 37) % SHARES;
        nd__pool_run(shares, inner ? nested_share : count_share, t);
        for (int i = 0; i < SHARES; i++)
            right = right && t->done[i] == (i < shares);
        right = right && t->nested_threads <= 1;
    }
    free(t);
    return right;
}

/// Shares that wait for each other a while, so that each finds a thread of its own if there is one.
typedef struct meeting {
    _Atomic int arrived;
    int wanted;
    pthread_t threads[16];
    bool right[16]; ///< what `look` said of the thread that did the share
    bool (*look)(void);
} meeting;

static void meet(void *context, int64_t share) {
    meeting *m = (meeting *)context;
    m->threads[share] = pthread_self();
    m->right[share] = m->look && m->look();
    atomic_fetch_add(&m->arrived, 1);
    for (int i = 0; i < 500 && atomic_load(&m->arrived) < m->wanted; i++)
        nap(100000);
}

/// Comes back when so many different threads, the calling one included, have taken part in one job.
/// How many of the others `look` liked.
static int gather(int threads, bool (*look)(void)) {
    for (;;) {
        meeting m = {.wanted = threads, .look = look};
        nd__pool_run(threads, meet, &m);
        assert_int_equal(m.arrived, threads);
        int different = 0, liked = 0;
        for (int i = 0; i < threads; i++) {
            bool first = true;
            for (int k = 0; k < i; k++)
                first = first && !pthread_equal(m.threads[i], m.threads[k]);
            different += first;
            liked += first && m.right[i] && !pthread_equal(m.threads[i], pthread_self());
        }
        if (different == threads)
            return liked;
    }
}

static void test_every_share_once(void **state) {
    (void)state;
    for (int threads = 1; threads <= 8; threads++) {
        nd__pool_set_limit(threads);
        assert_true(rounds(2000, 0));
        assert_true(nd__pool_workers() < threads);
    }
}

static void test_threads_start_when_wanted_and_end_when_told(void **state) {
    (void)state;
    nd__pool_set_limit(1);
    int all_at_first = nd_test_threads(); // the thread sanitizer has one of its own
    assert_true(rounds(10, 0));
    assert_int_equal(nd_test_threads(), all_at_first);
    assert_int_equal(nd_set_num_threads(5), ND_OK);
    assert_int_equal(nd__pool_workers(), 0);
    gather(nd_get_num_threads(), NULL);
    assert_int_equal(nd__pool_workers(), nd_get_num_threads() - 1);
    assert_int_equal(nd_test_threads(), all_at_first + nd_get_num_threads() - 1);
    assert_int_equal(nd_set_num_threads(2), ND_OK);
    gather(nd_get_num_threads(), NULL);
    assert_int_equal(nd_test_threads(), all_at_first + nd_get_num_threads() - 1);
    assert_int_equal(nd_set_num_threads(1), ND_OK);
    assert_int_equal(nd_test_threads(), all_at_first);
}

static void test_F30_bad_numbers_of_threads_are_refused(void **state) {
    (void)state;
    nd__pool_set_limit(2);
    int before = nd_get_num_threads();
    static const int bad[] = {0, -1, INT32_MIN, ND_MAX_THREADS + 1, INT32_MAX};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(nd_set_num_threads(bad[i]), ND_ERROR_INVALID_ARGUMENT);
        assert_non_null(strstr(nd_error_get_message(), "set_num_threads"));
        assert_int_equal(nd_get_num_threads(), before);
    }
    nd_error_clear();
}

static void test_a_body_that_computes_does_so_alone(void **state) {
    (void)state;
    nd__pool_set_limit(4);
    assert_true(rounds(50, 20));
    assert_int_equal(nd__pool_threads(), nd__pool_limit());
}

static void *call_in_rounds(void *argument) {
    (void)argument;
    return (void *)(intptr_t)(rounds(1500, 0) && rounds(20, 5));
}

/// More callers than jobs that the pool has room for.
static void test_many_callers(void **state) {
    (void)state;
    enum { CALLERS = 12 };
    for (int limit = 2; limit <= 16; limit *= 8) {
        nd__pool_set_limit(limit);
        pthread_t threads[CALLERS];
        for (int i = 0; i < CALLERS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, call_in_rounds, NULL), 0);
        for (int i = 0; i < CALLERS; i++) {
            void *right;
            assert_int_equal(pthread_join(threads[i], &right), 0);
            assert_non_null(right);
        }
    }
}

static void *change_limits(void *stop) {
    for (int i = 0; !atomic_load((atomic_bool *)stop); i++)
        nd__pool_set_limit(1 + i % 5);
    return NULL;
}

static void test_the_number_changes_beside_callers(void **state) {
    (void)state;
    atomic_bool stop = false;
    pthread_t changer, callers[3];
    assert_int_equal(pthread_create(&changer, NULL, change_limits, &stop), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_in_rounds, NULL), 0);
    for (int i = 0; i < 3; i++) {
        void *right;
        assert_int_equal(pthread_join(callers[i], &right), 0);
        assert_non_null(right);
    }
    atomic_store(&stop, true);
    assert_int_equal(pthread_join(changer, NULL), 0);
}

/// 0 when the child ended well.
static int status_of(pid_t child) {
    int status = -1;
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

#if !defined(__SANITIZE_THREAD__) // which has no threads in a child
static void test_F31_children_have_a_pool_of_their_own(void **state) {
    (void)state;
    nd__pool_set_limit(3);
    for (int i = 0; i < 200; i++) {
        assert_true(rounds(3, 0)); // workers spin, sleep or are just starting
        pid_t child = fork();
        if (child == 0) {
            alarm(300);
            bool right = nd__pool_workers() == 0 && rounds(20, 0);
            pid_t grandchild = fork();
            if (grandchild == 0)
                _exit(nd__pool_workers() == 0 && rounds(5, 0) ? 0 : 1);
            right = right && status_of(grandchild) == 0;
            nd__pool_set_limit(1); // waits for the workers of this process
            _exit(right && nd__pool_workers() == 0 ? 0 : 1);
        }
        assert_int_equal(status_of(child), 0);
    }
    assert_true(rounds(100, 0));
}

static void test_F31_a_child_made_without_handlers_waits_for_nobody(void **state) {
    (void)state;
    nd__pool_set_limit(4);
    gather(nd__pool_limit(), NULL);
    pid_t child = _Fork();
    if (child == 0) {
        alarm(300);
        bool right = rounds(200, 0);
        nd__pool_set_limit(1);
        nd__pool_set_limit(2);
        _exit(right && rounds(10, 0) ? 0 : 1);
    }
    assert_int_equal(status_of(child), 0);
}
#endif

static void *call_for_ever(void *argument) {
    (void)argument;
    for (;;)
        if (!rounds(100, 0))
            abort();
}

static void test_the_process_ends_beside_a_busy_pool(void **state) {
    (void)state;
    nd__pool_set_limit(1); // the children's threads are their own
    for (int i = 0; i < 20; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            alarm(300);
            nd__pool_set_limit(4);
            pthread_t threads[3];
            for (int k = 0; k < 3; k++)
                pthread_create(&threads[k], NULL, call_for_ever, NULL);
            nap(1000000 * (i % 5));
            exit(0); // runs what the library does at the end of a process
        }
        assert_int_equal(status_of(child), 0);
    }
}

static void test_computing_goes_on_where_threads_are_refused(void **state) {
    (void)state;
    nd__pool_set_limit(1);
    pthread_attr_t usual, huge;
    assert_int_equal(pthread_getattr_default_np(&usual), 0);
    assert_int_equal(pthread_attr_init(&huge), 0);
    assert_int_equal(pthread_attr_setstacksize(&huge, (size_t)1 << 50), 0);
    assert_int_equal(pthread_setattr_default_np(&huge), 0);
    nd__pool_set_limit(4);
    assert_true(rounds(200, 0));
    assert_int_equal(nd__pool_workers(), 0);
    assert_int_equal(pthread_setattr_default_np(&usual), 0);
    nd__pool_set_limit(4); // asks anew
    gather(nd__pool_limit(), NULL);
    pthread_attr_destroy(&huge);
    pthread_attr_destroy(&usual);
}

#if ND_HAVE_THREADS
static bool is_worker(void) {
    char name[32] = "";
    pthread_getname_np(pthread_self(), name, sizeof name);
    return strcmp(name, "ndarc") == 0;
}

static bool blocks_signals(void) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    return is_worker() && sigismember(&blocked, SIGINT) && sigismember(&blocked, SIGUSR1) &&
           sigismember(&blocked, SIGCHLD);
}

static void test_workers_leave_signals_to_the_program(void **state) {
    (void)state;
    nd__pool_set_limit(4);
    gather(4, NULL); // a name is given after the thread was started
    assert_int_equal(gather(4, blocks_signals), 3);
}

static double cpu_seconds(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec * 1e-9;
}

static void test_idle_workers_sleep(void **state) {
    (void)state;
    nd__pool_set_limit(8);
    gather(8, NULL);
    double before = cpu_seconds();
    for (int i = 0; i < 10; i++)
        nap(50000000);
    // Seven that spun would have used seconds, or as much as the machine has.
    assert_true(cpu_seconds() - before < 0.1);
    gather(8, NULL); // and they wake
}

static bool may_run_where_the_process_may(void) {
    cpu_set_t mine, all;
    return is_worker() && sched_getaffinity(0, sizeof mine, &mine) == 0 &&
           sched_getaffinity(getpid(), sizeof all, &all) == 0 && CPU_EQUAL(&mine, &all);
}

static void *call_pinned(void *argument) {
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    gather(2, NULL); // starts the worker, and gives it a name
    *(int *)argument = gather(2, may_run_where_the_process_may);
    return NULL;
}

static void test_workers_without_work_end_and_come_back(void **state) {
    (void)state;
    nd__pool_set_limit(1);
    int all_at_first = nd_test_threads();
    nd__pool_set_limit(5);
    for (int i = 0; i < 20; i++) {
        nd__pool_set_idle(LONG_IDLE);
        gather(5, NULL);
        assert_int_equal(nd__pool_workers(), 4);
        nd__pool_set_idle(1000000);
        if (i % 2)
            rounds(100, 0); // some are asked for while others end
        while (nd__pool_workers() > 0 || nd_test_threads() > all_at_first)
            nap(100000);
    }
    nd__pool_set_idle(LONG_IDLE);
    nd__pool_set_limit(1); // joins those who have ended
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
/// Waits for the child for five minutes at most. Its status; -1 when it had to be killed.
static int status_in_time(pid_t child) {
    int status = -1;
    for (int i = 0; i < 30000; i++, nap(10000000))
        if (waitpid(child, &status, WNOHANG) == child)
            return status;
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return -1;
}

/// Nothing but workers is left in the child, and they take no signals. (What the thread that is
/// gone had on its stack is a leak to the address sanitizer.)
static void test_a_process_without_threads_of_its_own_ends(void **state) {
    (void)state;
    nd__pool_set_limit(1);
    for (int terminate = 0; terminate < 2; terminate++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            nd__pool_set_limit(4);
            gather(4, NULL);
            nd__pool_set_idle(300000000);
            pthread_exit(NULL);
        }
        nap(50000000);
        if (terminate)
            kill(child, SIGTERM);
        int status = status_in_time(child);
        assert_true(status == 0 || (terminate && WTERMSIG(status) == SIGTERM));
    }
}
#endif

static _Atomic int callers_cpu;

static bool is_elsewhere_and_free(void) {
    return may_run_where_the_process_may() && sched_getcpu() != atomic_load(&callers_cpu);
}

/// Where the system wakes them on their caller's CPU, which it is told not to.
static void test_workers_wake_beside_their_caller(void **state) {
    (void)state;
    cpu_set_t all;
    assert_int_equal(sched_getaffinity(getpid(), sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2) {
        puts("SKIPPED: one CPU");
        return;
    }
    nd__pool_set_limit(2);
    gather(2, NULL);
    int beside = 0;
    nd__pool_steer(1 << 20);
    for (int i = 0; i < 50; i++) {
        nap(3000000); // the worker sleeps
        atomic_store(&callers_cpu, sched_getcpu());
        beside += gather(2, is_elsewhere_and_free);
    }
    nd__pool_steer(0);
    assert_true(beside > 25); // either thread may have been moved since
}

/// A pinned caller does not pin the workers.
static void test_workers_may_run_where_the_process_may(void **state) {
    (void)state;
    nd__pool_set_limit(1);
    nd__pool_set_limit(2);
    int liked = 0;
    pthread_t caller;
    assert_int_equal(pthread_create(&caller, NULL, call_pinned, &liked), 0);
    assert_int_equal(pthread_join(caller, NULL), 0);
    assert_int_equal(liked, 1);
}
#endif

int main(void) {
    nd__pool_set_idle(LONG_IDLE); // tests count them
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_share_once),
        ND_TEST(test_threads_start_when_wanted_and_end_when_told),
        ND_TEST(test_F30_bad_numbers_of_threads_are_refused),
        ND_TEST(test_a_body_that_computes_does_so_alone),
        ND_TEST(test_many_callers),
        ND_TEST(test_the_number_changes_beside_callers),
#if !defined(__SANITIZE_THREAD__)
        ND_TEST(test_F31_children_have_a_pool_of_their_own),
        ND_TEST(test_F31_a_child_made_without_handlers_waits_for_nobody),
#endif
        ND_TEST(test_the_process_ends_beside_a_busy_pool),
        ND_TEST(test_computing_goes_on_where_threads_are_refused),
#if ND_HAVE_THREADS
        ND_TEST(test_workers_leave_signals_to_the_program),
        ND_TEST(test_idle_workers_sleep),
        ND_TEST(test_workers_may_run_where_the_process_may),
        ND_TEST(test_workers_wake_beside_their_caller),
        ND_TEST(test_workers_without_work_end_and_come_back),
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
        ND_TEST(test_a_process_without_threads_of_its_own_ends),
#endif
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
