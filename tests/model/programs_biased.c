// Programs of a shard's lock that is biased to one thread: the owner stores and looks, with no order
// between the two, and who takes the bias away has the kernel make one. What is done under the lock
// is done by one at a time.
#include "lib/base/atomics.h"
#include "lib/base/biased_lock.h"
#include "lib/base/thread.h"
#include "lib/manager/shard.h"
#include "tests/model/programs.h"
#include "tests/model/scheduler_internal.h"

static nd_shard shard;
static uint32_t counted, expected; // under its lock

/// Through functions of shard.c, into which all of the lock is compiled that its takers run.
static void count_once(void) {
    nd__shard_lock_pair(&shard, &shard);
    counted++;
    nd__shard_unlock_pair(&shard, &shard);
}

static void count_twice(void) {
    count_once();
    count_once();
}

/// As who begins a new use of the memory.
static void begin_and_count(void) {
    nd__shard_lock_pair(&shard, &shard);
    counted++;
    nd__biased_lock_release_own(&shard.lock);
    count_once();
}

static void begin(uint32_t times) {
    nd__biased_lock_models = true;
    expected = times;
    for (int i = 0; i < 3; i++)
        model_record(i)->lock_id = (uint32_t)i + 101;
}

/// To the program's first thread, whose id the setup has for that.
static void bias(void) {
    const uint32_t own = nd__thread()->lock_id;
    nd__thread()->lock_id = model_record(0)->lock_id;
    nd__biased_lock_acquire(&shard.lock);
    nd__biased_lock_release_own(&shard.lock);
    nd__thread()->lock_id = own;
    model_assert(nd__atomic_load(&shard.lock.owner, relaxed) == model_record(0)->lock_id);
}

static void setup_two(void) {
    begin(2);
    bias();
}

static void setup_three(void) {
    begin(3);
    bias();
}

static void setup_refused(void) {
    setup_two();
    nd__model_barrier_refused = true;
}

static void setup_unbiased(void) {
    begin(3);
}

/// The memory's uses by another thread, whose own the lock would be by now.
static void begin_later_and_count(void) {
    nd__shard_lock_pair(&shard, &shard);
    counted++;
    shard.lock.unbiased = 0;
    nd__biased_lock_release_own(&shard.lock);
    count_once();
}

static void setup_later(void) {
    begin(4);
    bias();
}

static void finish(void) {
    nd__shard_lock_pair(&shard, &shard);
    model_assert(counted == expected);
    nd__shard_unlock_pair(&shard, &shard);
    model_assert(nd__atomic_load(&shard.lock.lock.state, relaxed) == 0);
    model_assert(nd__atomic_load(&shard.lock.held, relaxed) == 0);
}

const model_program model_biased_programs[] = {
    CHECKED("biased_two", "the owner takes a biased lock beside another thread", setup_two,
            count_once, count_once),
    CHECKED("biased_again", "the owner takes it twice", setup_three, count_twice, count_once),
    CHECKED("biased_three", "two others take it", setup_three, count_once, count_once, count_once),
    CHECKED("biased_refused", "the barrier is forbidden meanwhile", setup_refused, count_once,
            count_once),
    CHECKED("biased_begun", "a lock becomes biased while another thread wants it", setup_unbiased,
            begin_and_count, count_once),
    CHECKED("biased_later",
            "another thread begins a use, as the owner of before comes, and a third", setup_later,
            count_once, begin_later_and_count, count_once),
};
const size_t model_biased_program_count =
    sizeof model_biased_programs / sizeof model_biased_programs[0];
