// A walk over what is tracked beside another thread's collection that has found garbage there and
// frees it: each piece of it is passed once, however often one walks, and few are passed under one
// hold of the lock. Else a collection that takes its garbage out of a manager waits, for each little
// part of it, until the walk has passed all of the rest.
#include "lib/gc/collection.h"
#include "lib/gc/walk.h"
#include "lib/manager/shard.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>

/// Fewer die together than are found together, so most are in their manager when the first dies.
enum { GARBAGE = 3000, FREED_TOGETHER = 128 };

// The other thread's collection stops at the first thing it calls of the test's, for as long as
// that is wanted.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static enum { NOT_YET, STOPPED, GOES_ON } state;

static void stop_here(void) {
    pthread_mutex_lock(&mutex);
    if (state == NOT_YET) {
        state = STOPPED;
        pthread_cond_broadcast(&changed);
    }
    while (state == STOPPED)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

static void stop_at_death(nd_object *self) {
    (void)self;
    stop_here();
}

static void stop_at_cycle(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)path, (void)objects, (void)bytes, (void)data;
    stop_here();
}

static void *collect_it(void *manager) {
    nd_gc_report report = ND_GC_REPORT_INIT;
    return nd_gc_collect(manager, &report) == ND_OK ? NULL : manager;
}

static pthread_t begin_other(nd_manager *manager) {
    pthread_t thread;
    state = NOT_YET;
    assert_int_equal(pthread_create(&thread, NULL, collect_it, manager), 0);
    pthread_mutex_lock(&mutex);
    while (state == NOT_YET)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    return thread;
}

static void end_other(pthread_t thread) {
    void *failed;
    pthread_mutex_lock(&mutex);
    state = GOES_ON;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    pthread_join(thread, &failed);
    assert_null(failed);
}

static nd_manager *manager_with_garbage(uint32_t cells) {
    nd_test_collects_by_policy();
    cell_begin(cells);
    nd_manager *manager = manager_new(NULL, "shared");
    nd_with_manager(manager) {
        for (uint32_t i = 0; i < cells; i += 4)
            cell_drop_ring(i, 4);
    }
    return manager;
}

static void end(nd_manager *manager) {
    cell_on_destroy = NULL;
    nd_gc_set_cycle_callback(NULL, NULL);
    close_and_release(manager);
    cell_end();
}

/// What a walk over the manager has before it.
static size_t walked(nd_manager *manager) {
    size_t count = 0;
    for (nd_shard *shard = nd__shard_first(manager); shard; shard = nd__shard_next(shard))
        for (nd_object *o = shard->lists[ND__TRACKED_LIST].last; o; o = o->previous)
            count++;
    assert_int_equal(count, stats_of(manager).tracked_objects);
    return count;
}

static void set_pause(uint64_t nanoseconds) {
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = nanoseconds;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
}

static void pass_what_another_frees(uint64_t pause_ns) {
    nd_manager *manager = manager_with_garbage(GARBAGE);
    nd_object *held = cell_in(manager, GARBAGE, 1);
    size_t batch = nd__collection_batch;
    nd__collection_batch = 2048; // what is settled early is not told from others' garbage
    cell_on_destroy = stop_at_death;
    pthread_t thread = begin_other(manager);
    assert_true(walked(manager) >= GARBAGE - FREED_TOGETHER);
    set_pause(pause_ns);
    collect(NULL);
    assert_int_equal(walked(manager), 1); // what is held
    assert_true(stats_of(manager).live_objects >= GARBAGE - FREED_TOGETHER);
    assert_ok(nd_debug_check());
    end_other(thread);
    assert_int_equal(cell_total_deaths(), GARBAGE);
    assert_int_equal(stats_of(manager).live_objects, 1);
    assert_balanced(manager);
    nd__collection_batch = batch;
    nd_release(held);
    end(manager);
}

static void test_steps_pass_garbage_of_others_once(void **state) {
    (void)state;
    pass_what_another_frees(1);
}

static void test_a_look_at_once_passes_garbage_of_others_once(void **state) {
    (void)state;
    pass_what_another_frees(0);
}

static size_t passed, passed_at_once;

/// Takes nothing.
static nd_object *pass(nd_collection *collection, nd__walk *walk, nd_object *object) {
    (void)collection;
    passed_at_once = 0;
    for (nd_object *next; object; object = next) {
        next = object->previous;
        passed_at_once++;
        if (nd__walk_set_aside(walk, object))
            break;
    }
    passed += passed_at_once;
    return NULL;
}

static void test_a_walk_passes_few_under_one_hold_of_the_lock(void **state) {
    (void)state;
    nd_manager *manager = manager_with_garbage(GARBAGE);
    cell_on_destroy = stop_at_death;
    pthread_t thread = begin_other(manager);
    size_t there = walked(manager), most = 0;
    passed = 0;
    nd_collection collection = {0};
    nd__walk walk = {.shard = nd__shard_first(manager), .manager = manager};
    assert_null(nd__shard_next(walk.shard));
    while (nd__walk_on(&walk, &collection, pass))
        most = passed_at_once > most ? passed_at_once : most;
    assert_int_equal(passed, there);
    assert_int_equal(most, ND__WALK_ASIDE);
    end_other(thread);
    end(manager);
}

static nd_object *revived;

static void revive(nd_object *self) {
    if (!revived)
        revived = nd_retain(self);
}

/// What was set aside before its finalizer ran, and is revived by that, is looked at again later.
static void test_what_was_set_aside_and_is_revived_is_tracked(void **state) {
    (void)state;
    nd_manager *manager = manager_with_garbage(0);
    revived = NULL;
    cell_on_finalize = revive;
    nd_with_manager(manager) {
        nd_object *one = cell_new_of(&cell_finalized_type, 0, 1), *other = cell_new(0, 1);
        cell_ring((nd_object *[]){one, other}, 2);
        nd_release(one);
        nd_release(other);
    }
    nd_gc_set_cycle_callback(stop_at_cycle, NULL);
    pthread_t thread = begin_other(manager);
    set_pause(1);
    collect(NULL);
    assert_int_equal(walked(manager), 0);
    end_other(thread);
    assert_non_null(revived);
    assert_int_equal(walked(manager), 2);
    assert_ok(nd_debug_check());
    nd_release(revived);
    assert_int_equal(collect(manager).collected_objects, 2);
    end(manager);
}

static void revive_and_stop(nd_object *self) {
    revive(self);
    stop_here();
}

/// A finalizer may use what it is called for, as a program does: that stays what it was.
static void test_what_may_be_revived_is_not_set_aside(void **state) {
    (void)state;
    nd_manager *manager = manager_with_garbage(0);
    revived = NULL;
    cell_on_finalize = revive_and_stop;
    nd_with_manager(manager) {
        nd_object *one = cell_new_of(&cell_finalized_type, 0, 1);
        cell_link(one, 0, one);
        nd_release(one);
    }
    pthread_t thread = begin_other(manager);
    for (uint64_t pause_ns = 0; pause_ns < 2; pause_ns++) {
        set_pause(pause_ns);
        collect(NULL);
        assert_int_equal(walked(manager), 1);
    }
    end_other(thread);
    nd_release(revived);
    assert_int_equal(collect(manager).collected_objects, 1);
    end(manager);
}

/// So is what is found where cycles are reported, and not freed.
static void test_what_was_set_aside_and_is_kept_is_tracked(void **state) {
    (void)state;
    nd_manager *manager = manager_with_garbage(4);
    assert_ok(nd_manager_set_gc_mode(manager, ND_GC_WARN));
    nd_gc_set_cycle_callback(stop_at_cycle, NULL);
    pthread_t thread = begin_other(manager);
    set_pause(1);
    collect(NULL);
    assert_int_equal(walked(manager), 0);
    end_other(thread);
    assert_int_equal(walked(manager), 4);
    assert_ok(nd_manager_set_gc_mode(manager, ND_GC_ON));
    assert_int_equal(collect(manager).collected_objects, 4);
    assert_int_equal(cell_total_deaths(), 4);
    end(manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_steps_pass_garbage_of_others_once),
        ND_TEST(test_a_look_at_once_passes_garbage_of_others_once),
        ND_TEST(test_a_walk_passes_few_under_one_hold_of_the_lock),
        ND_TEST(test_what_was_set_aside_and_is_revived_is_tracked),
        ND_TEST(test_what_may_be_revived_is_not_set_aside),
        ND_TEST(test_what_was_set_aside_and_is_kept_is_tracked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
