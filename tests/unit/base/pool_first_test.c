// The first computations of a process, on two threads at once. A process of its own, which has
// computed nothing before.
//
// getpid() is this program's own, and slow: the pool asks it while the first workers are started.
#include "lib/base/pool.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SHARES = 40 };

static void nap(void) {
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
}

static atomic_bool watched; ///< the test has begun
static atomic_int asking;   ///< threads that are, or were, in getpid()

pid_t getpid(void) {
    if (atomic_load(&watched)) {
        atomic_fetch_add(&asking, 1);
        for (int i = 0; i < 10; i++)
            nap();
    }
    return (pid_t)syscall(SYS_getpid);
}

static void count_share(void *context, int64_t share) {
    atomic_int *done = context;
    nap();
    atomic_fetch_add(&done[share], 1);
}

static bool compute(void) {
    atomic_int done[SHARES] = {0};
    nd__pool_run(SHARES, count_share, done);
    bool right = true;
    for (int i = 0; i < SHARES; i++)
        right = right && atomic_load(&done[i]) == 1;
    return right;
}

static void *compute_first(void *data) {
    *(bool *)data = compute();
    return NULL;
}

/// The other begins its job while the first one starts the workers.
static void test_two_threads_compute_for_the_first_time_at_once(void **state) {
    (void)state;
    atomic_store(&watched, true);
    bool first = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, compute_first, &first), 0);
    while (atomic_load(&asking) == 0)
        nap();
    assert_true(compute());
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(first);
    atomic_store(&watched, false);
}

int main(void) {
    setenv("ND_NUM_THREADS", "4", 1); // nd_set_num_threads() would ask for the process
    const struct CMUnitTest tests[] = {
        ND_TEST(test_two_threads_compute_for_the_first_time_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
