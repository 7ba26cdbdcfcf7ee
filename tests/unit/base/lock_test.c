// A lock that is held for long: who gives it up and comes back at once does not pass who waits.
#include "lib/base/lock.h"
#include "tests/testing.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { ROUNDS = 200 };

typedef struct contest {
    nd_lock turn, lock;
    _Atomic int
        round;       ///< the main thread has the lock, and wants it back as soon as it gives it up
    _Atomic int had; ///< the round in which the other thread last had it
} contest;

static void *wait_for_it(void *data) {
    contest *contest = data;
    for (int round = 1; round <= ROUNDS; round++) {
        while (atomic_load(&contest->round) < round)
            sched_yield();
        nd__lock_acquire_in_turn(&contest->turn, &contest->lock);
        atomic_store(&contest->had, round);
        nd__lock_release(&contest->lock);
    }
    return NULL;
}

static void test_a_lock_goes_to_who_waits_for_it(void **state) {
    (void)state;
    contest contest = {.round = 0};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_it, &contest), 0);
    int passed = 0;
    nd__lock_acquire_in_turn(&contest.turn, &contest.lock);
    for (int round = 1; round <= ROUNDS; round++) {
        atomic_store(&contest.round, round);
        while (nd__atomic_load(&contest.lock.waiters, relaxed) == 0)
            sched_yield();
        nd__lock_release(&contest.lock);
        nd__lock_acquire_in_turn(&contest.turn, &contest.lock);
        passed += atomic_load(&contest.had) < round;
        while (atomic_load(&contest.had) < round) { // only where it was passed
            nd__lock_release(&contest.lock);
            sched_yield();
            nd__lock_acquire_in_turn(&contest.turn, &contest.lock);
        }
    }
    nd__lock_release(&contest.lock);
    pthread_join(thread, NULL);
    assert_int_equal(passed, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_lock_goes_to_who_waits_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
