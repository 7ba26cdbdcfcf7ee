// Programs of the lock as it is (as_it_is.h): who gives it up stores, and looks for those who wait
// without an order between the two. Nobody sleeps for ever, and what is done under it is done by
// one at a time.
#include "lib/base/atomics.h"
#include "lib/base/lock.h"
#include "tests/model/as_it_is.h"
#include "tests/model/programs.h"

static nd_lock lock;
static uint32_t counted, expected; // under the lock

static void setup_two(void) {
    expected = 2;
}

static void setup_three(void) {
    expected = 3;
}

static void count_once(void) {
    as_it_is_lock_acquire(&lock);
    counted++;
    as_it_is_lock_release(&lock);
}

static void count_twice(void) {
    count_once();
    count_once();
}

/// Gives up at once when it is held.
static void count_if_free(void) {
    as_it_is_lock_acquire(&lock);
    counted++;
    as_it_is_lock_release(&lock);
    if (as_it_is_lock_try(&lock))
        as_it_is_lock_release(&lock);
}

static void finish(void) {
    model_assert(counted == expected);
    model_assert(nd__atomic_load(&lock.state, relaxed) == 0);
    model_assert(nd__atomic_load(&lock.waiters, relaxed) == 0);
}

const model_program model_lock_programs[] = {
    CHECKED("lock_two", "two threads take the lock once", setup_two, count_once, count_once),
    CHECKED("lock_again", "a thread takes the lock again beside one that wants it", setup_three,
            count_twice, count_once),
    CHECKED("lock_tried", "a thread only tries to take it again", setup_two, count_if_free,
            count_once),
    BOUNDED("lock_three", "three threads take the lock once", setup_three, count_once, count_once,
            count_once),
};
const size_t model_lock_program_count = sizeof model_lock_programs / sizeof model_lock_programs[0];
