// A lock that is biased to one thread: what is done under it is done by one thread at a time while
// the bias is given and taken away, few locks are biased at a time, and one that is taken away again
// and again is hardly biased any more.
#include "lib/base/barrier.h"
#include "lib/base/biased_lock.h"
#include "lib/base/thread.h"
#include "tests/testing.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/// Biased to this thread, as when a use of its memory begins.
static void bias(nd_biased_lock *lock) {
    nd__biased_lock_acquire(lock);
    nd__biased_lock_release_own(lock);
}

static bool is_biased(const nd_biased_lock *lock) {
    return nd__atomic_load(&lock->owner, relaxed) != 0;
}

static void *acquire_once(void *data) {
    nd__biased_lock_acquire(data);
    nd__biased_lock_release(data);
    return NULL;
}

static void take_away(nd_biased_lock *lock) {
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, acquire_once, lock), 0);
    pthread_join(thread, NULL);
    assert_false(is_biased(lock));
}

static void test_an_owner_takes_its_own_way(void **state) {
    (void)state;
    nd_biased_lock lock = {.owner = 0};
    bias(&lock);
    assert_true(is_biased(&lock));
    nd__biased_lock_acquire(&lock);
    assert_int_equal(nd__atomic_load(&lock.held, relaxed), 1);
    assert_int_equal(nd__atomic_load(&lock.lock.state, relaxed), 0);
    nd__biased_lock_release(&lock);
    assert_int_equal(nd__atomic_load(&lock.held, relaxed), 0);
    take_away(&lock);
    nd__biased_lock_acquire(&lock);
    assert_int_equal(nd__atomic_load(&lock.held, relaxed), 0);
    assert_int_equal(nd__atomic_load(&lock.lock.state, relaxed), 1);
    nd__biased_lock_release(&lock);
}

enum { ROUNDS = 300, TAKINGS = 200, TAKERS = 3 };

/// Locks that one thread begins anew each round, beside others that take them.
typedef struct crowd {
    nd_biased_lock locks[ROUNDS];
    uint64_t counts[ROUNDS]; ///< under the lock of the same number
    _Atomic int round;
    _Atomic int done;
} crowd;

static void *count_as_other(void *data) {
    crowd *crowd = data;
    for (int round = 0; round < ROUNDS; round++) {
        while (atomic_load(&crowd->round) < round)
            sched_yield();
        for (int i = 0; i < TAKINGS; i++) {
            nd__biased_lock_acquire(&crowd->locks[round]);
            crowd->counts[round]++;
            nd__biased_lock_release(&crowd->locks[round]);
        }
        atomic_fetch_add(&crowd->done, 1);
    }
    return NULL;
}

static void test_one_at_a_time_while_a_bias_is_taken_away(void **state) {
    (void)state;
    static crowd crowd;
    atomic_store(&crowd.round, -1);
    pthread_t threads[TAKERS];
    for (int i = 0; i < TAKERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_as_other, &crowd), 0);
    int biased = 0;
    for (int round = 0; round < ROUNDS; round++) {
        nd_biased_lock *lock = &crowd.locks[round];
        bias(lock);
        biased += is_biased(lock);
        uint64_t own = 0;
        atomic_store(&crowd.round, round);
        while (atomic_load(&crowd.done) < TAKERS * (round + 1) || own < TAKINGS) {
            nd__biased_lock_acquire(lock);
            crowd.counts[round]++;
            own++;
            nd__biased_lock_release(lock);
        }
        nd__biased_lock_acquire(lock);
        assert_int_equal(crowd.counts[round], own + (uint64_t)TAKERS * TAKINGS);
        nd__biased_lock_release(lock);
        assert_false(is_biased(lock));
    }
    for (int i = 0; i < TAKERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(biased, ROUNDS);
}

static void test_few_locks_are_biased_at_a_time(void **state) {
    (void)state;
    static nd_biased_lock locks[2 * ND__BIASED_LOCKS_MOST];
    int biased = 0;
    for (int i = 0; i < 2 * ND__BIASED_LOCKS_MOST; i++) {
        bias(&locks[i]);
        biased += is_biased(&locks[i]);
    }
    assert_in_range(biased, 1, ND__BIASED_LOCKS_MOST);
    nd_biased_lock other = {.owner = 0};
    bias(&other);
    assert_false(is_biased(&other));
    for (int i = 0; i < 2 * ND__BIASED_LOCKS_MOST; i++)
        if (is_biased(&locks[i]))
            take_away(&locks[i]);
    bias(&other);
    assert_true(is_biased(&other));
    take_away(&other);
}

/// How many of so many uses of a lock's memory begin biased, when each bias is taken away.
static int biased_uses(nd_biased_lock *lock, int uses) {
    int biased = 0;
    for (int i = 0; i < uses; i++) {
        bias(lock);
        if (!is_biased(lock))
            continue;
        biased++;
        take_away(lock);
    }
    return biased;
}

static void test_what_is_taken_away_again_and_again_is_hardly_biased(void **state) {
    (void)state;
    nd_biased_lock lock = {.owner = 0};
    assert_in_range(biased_uses(&lock, 10000), 2, 8);
    // Uses that are one thread's own bring the bias back.
    for (int i = 0; i < 20000; i++)
        bias(&lock);
    assert_true(is_biased(&lock));
    assert_in_range(biased_uses(&lock, 100), 2, 4);
}

static void *bias_here(void *data) {
    bias(data);
    return NULL;
}

static void test_no_lock_is_biased_to_a_second_thread(void **state) {
    (void)state;
    nd_biased_lock lock = {.owner = 0};
    bias(&lock);
    take_away(&lock);
    pthread_t thread;
    for (int i = 0; i < 20; i++) {
        assert_int_equal(pthread_create(&thread, NULL, bias_here, &lock), 0);
        pthread_join(thread, NULL);
        assert_false(is_biased(&lock));
    }
    bias(&lock);
    assert_true(is_biased(&lock));
    take_away(&lock);
}

/// Where as many are biased as may be, the end of a use makes room for another lock.
static void test_a_use_that_ends_makes_room(void **state) {
    (void)state;
    static nd_biased_lock locks[ND__BIASED_LOCKS_MOST + 1];
    int last = -1;
    for (int i = 0; i <= ND__BIASED_LOCKS_MOST; i++) {
        bias(&locks[i]);
        last = is_biased(&locks[i]) ? i : last;
    }
    assert_in_range(last, 0, ND__BIASED_LOCKS_MOST - 1);
    nd_biased_lock other = {.owner = 0};
    bias(&other);
    assert_false(is_biased(&other));
    nd__biased_lock_end(&locks[last]);
    assert_false(is_biased(&locks[last]));
    bias(&other);
    assert_true(is_biased(&other));
    take_away(&other);
    for (int i = 0; i <= ND__BIASED_LOCKS_MOST; i++)
        if (is_biased(&locks[i]))
            take_away(&locks[i]);
}

int main(void) {
    if (!nd__barrier_prepare()) {
        fprintf(stderr, "SKIPPED: the kernel has no barrier for a process, so no lock is biased\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {
        ND_TEST(test_an_owner_takes_its_own_way),
        ND_TEST(test_one_at_a_time_while_a_bias_is_taken_away),
        ND_TEST(test_few_locks_are_biased_at_a_time),
        ND_TEST(test_what_is_taken_away_again_and_again_is_hardly_biased),
        ND_TEST(test_no_lock_is_biased_to_a_second_thread),
        ND_TEST(test_a_use_that_ends_makes_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
