// Managers with several shards: what a manager promises holds whichever thread filled which.
#include "lib/base/atomics.h"
#include "lib/base/biased_lock.h"
#include "lib/base/pause.h"
#include "lib/manager/manager.h"
#include "lib/manager/manager_fork.h"
#include "lib/manager/shard.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>

enum { THREADS = 6, EACH = 200 };

static const nd_manager *shared;
static nd_object *made[THREADS][EACH];
static atomic_int failures;

static nd_manager *spread_manager(const char *name) {
    nd_manager *manager = manager_new(NULL, name);
    nd__shard_spread(manager);
    assert_int_equal(nd__shard_count(manager), nd__shard_limit());
    return manager;
}

static void run(void *(*act)(void *), nd_object *(*rows)[EACH]) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, act, rows[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(failures, 0);
}

/// Makes a cell and bytes in turns.
static void *fill(void *data) {
    nd_object **row = data;
    for (uint32_t i = 0; i < EACH; i++) {
        nd_object *object = NULL;
        if (i % 2)
            object = (nd_object *)bytes_in(shared, 10);
        else
            nd_with_manager(shared) object = cell_new(0, 1);
        failures += !object;
        row[i] = object;
    }
    return NULL;
}

static void *empty(void *data) {
    nd_object **row = data;
    for (uint32_t i = 0; i < EACH; i++) {
        nd_release(row[i]);
        row[i] = NULL;
    }
    return NULL;
}

static uint32_t filled_shards(nd_manager *manager) {
    uint32_t filled = 0;
    for (nd_shard *shard = nd__shard_first(manager); shard; shard = nd__shard_next(shard))
        filled += shard->count.live > 0;
    return filled;
}

static void test_threads_fill_shards_of_their_own(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *manager = spread_manager("spread");
    shared = manager;
    run(fill, made);
    assert_true(filled_shards(manager) > 1);
    nd_manager_stats stats = stats_of(manager);
    assert_int_equal(stats.live_objects, THREADS * EACH);
    assert_int_equal(stats.tracked_objects, THREADS * EACH / 2);
    assert_int_equal(stats.live_bytes[ND_CPU], THREADS * EACH / 2 * 10);
    assert_int_equal(stats.subtree_bytes[ND_CPU], stats.live_bytes[ND_CPU]);
    assert_true(stats.peak_bytes[ND_CPU] >= stats.subtree_bytes[ND_CPU]);
    assert_balanced(manager);
    assert_ok(nd_debug_check());
    run(empty, made);
    stats = stats_of(manager);
    assert_int_equal(stats.live_objects, 0);
    assert_int_equal(stats.subtree_bytes[ND_CPU], 0);
    assert_int_equal(stats.freed_objects, THREADS * EACH);
    close_and_release(manager);
}

static void test_what_another_thread_frees_is_not_charged_any_more(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *manager = spread_manager("handed over");
    shared = manager;
    run(fill, made);
    empty(made[0]);
    nd_object *turned[THREADS][EACH];
    for (int i = 0; i < THREADS; i++)
        memcpy(turned[i], made[(i + 1) % THREADS], sizeof turned[i]);
    run(empty, turned);
    assert_int_equal(stats_of(manager).subtree_bytes[ND_CPU], 0);
    assert_ok(nd_debug_check());
    close_and_release(manager);
}

static void test_survivors_of_all_shards_escape(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *parent = spread_manager("parent"), *child = manager_new(parent, "child");
    nd__shard_spread(child);
    shared = child;
    run(fill, made);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(child, &report));
    assert_int_equal(report.escaped_objects, THREADS * EACH);
    assert_int_equal(report.escaped_bytes, THREADS * EACH / 2 * 10);
    assert_int_equal(stats_of(child).escaped_objects, THREADS * EACH);
    assert_ok(nd_manager_set_cap(child, 1)); // its shards become one, and what they counted stays
    assert_int_equal(stats_of(child).escaped_objects, THREADS * EACH);
    assert_balanced(child);
    nd_release(child);
    assert_int_equal(stats_of(parent).live_objects, THREADS * EACH);
    assert_ok(nd_debug_check());
    run(empty, made);
    close_and_release(parent);
}

static void test_dispose_closes_what_is_in_all_shards(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *manager = spread_manager("disposed");
    shared = manager;
    run(fill, made);
    assert_ok(nd_manager_dispose(manager, NULL));
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < EACH; k++)
            assert_true(nd_is_closed(made[i][k]));
    run(empty, made);
    nd_release(manager);
}

/// Rings that are garbage in every shard, some of them across two.
static void *drop_rings(void *data) {
    (void)data;
    nd_with_manager(shared) for (int i = 0; i < EACH; i++) cell_drop_ring(0, 3);
    return NULL;
}

static void test_garbage_in_all_shards_is_found(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(1);
    nd_manager *manager = spread_manager("garbage");
    assert_ok(nd_manager_set_gc_mode(manager, ND_GC_ON));
    shared = manager;
    run(drop_rings, made);
    run(fill, made);
    for (int i = 0; i < THREADS; i++)
        cell_link(made[i][0], 0, made[(i + 1) % THREADS][0]);
    run(empty, made);
    nd_close_report report = close_and_release(manager);
    assert_int_equal(report.collected_objects, THREADS * EACH * 3 + THREADS);
    assert_int_equal(report.escaped_objects, 0);
}

// -------------------------------------------------------------------------------- caps and quotas

static void *fill_to_the_brim(void *data) {
    nd_object **row = data;
    for (uint32_t i = 0; i < EACH; i++)
        nd_with_manager(shared) row[i] = cell_new(0, 1);
    return NULL;
}

static uint64_t count_made(void) {
    uint64_t count = 0;
    for (int i = 0; i < THREADS; i++)
        for (int k = 0; k < EACH; k++)
            count += made[i][k] != NULL;
    return count;
}

static void test_B15_cap_of_a_spread_manager_is_exact(void **state) {
    (void)state;
    enum { CAP = THREADS * EACH / 3 };
    cell_begin(1);
    nd_manager *manager = spread_manager("capped");
    shared = manager;
    run(fill_to_the_brim, made);
    assert_int_equal(count_made(), THREADS * EACH);
    assert_ok(nd_manager_set_cap(manager, CAP));
    assert_int_equal(filled_shards(manager), 1); // a cap is decided under one lock
    assert_int_equal(stats_of(manager).live_objects, THREADS * EACH);
    assert_ok(nd_debug_check());
    run(empty, made);
    run(fill_to_the_brim, made);
    assert_int_equal(count_made(), CAP);
    assert_int_equal(stats_of(manager).live_objects, CAP);
    assert_balanced(manager);
    run(empty, made);
    nd__shard_spread(manager);
    assert_int_equal(filled_shards(manager), 0);
    close_and_release(manager);
}

static void test_what_was_counted_stays_when_shards_become_one(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    cell_begin(1);
    nd_manager *manager = spread_manager("counted"), *inner = manager_new(manager, "inner");
    shared = manager;
    run(drop_rings, made);
    run(fill, made);
    for (int i = 0; i < THREADS; i++) {
        assert_ok(nd_manager_attach(inner, made[i][0]));
        assert_ok(nd_manager_attach(manager, made[i][0]));
        nd_release(made[i][1]);
        made[i][1] = NULL;
    }
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(manager, &report));
    assert_int_equal(report.collected_objects, THREADS * EACH * 3);
    nd_manager_stats before = stats_of(manager);
    assert_int_equal(before.collected_objects, THREADS * EACH * 3);
    assert_int_equal(before.freed_objects, THREADS);
    assert_int_equal(before.departed_objects, THREADS);
    assert_ok(nd_manager_set_cap(manager, THREADS * EACH));
    nd_manager_stats after = stats_of(manager);
    assert_int_equal(after.live_objects, before.live_objects);
    assert_int_equal(after.tracked_objects, before.tracked_objects);
    assert_int_equal(after.created_objects, before.created_objects);
    assert_int_equal(after.arrived_objects, before.arrived_objects);
    assert_int_equal(after.departed_objects, before.departed_objects);
    assert_int_equal(after.freed_objects, before.freed_objects);
    assert_int_equal(after.collected_objects, before.collected_objects);
    assert_int_equal(after.live_bytes[ND_CPU], before.live_bytes[ND_CPU]);
    assert_int_equal(after.subtree_bytes[ND_CPU], before.subtree_bytes[ND_CPU]);
    assert_balanced(manager);
    run(empty, made);
    close_and_release(inner);
    nd_close_report closed = close_and_release(manager);
    assert_int_equal(closed.freed_objects, THREADS * EACH);
    assert_int_equal(closed.freed_bytes, THREADS * EACH / 2 * 10);
}

static void *lend_all(void *data) {
    nd_object **row = data;
    for (uint32_t i = 0; i < EACH; i++)
        failures += nd_manager_lend(shared, row[i]) != ND_OK;
    return NULL;
}

static void test_B13_guests_of_a_spread_manager_that_gets_a_cap_return(void **state) {
    (void)state;
    cell_begin(1);
    nd_manager *shard = manager_new(NULL, "home"), *manager = spread_manager("spread");
    shared = shard;
    run(fill, made);
    shared = manager;
    run(lend_all, made);
    assert_true(filled_shards(manager) > 1);
    assert_ok(nd_manager_set_cap(manager, 1));
    assert_ok(nd_debug_check());
    nd_object *resident = cell_in(manager, 0, 0); // guests take no room
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(manager, &report));
    assert_int_equal(report.returned_objects, THREADS * EACH);
    assert_int_equal(report.escaped_objects, 1);
    assert_int_equal(stats_of(shard).live_objects, THREADS * EACH);
    nd_release(resident);
    run(empty, made);
    nd_release(manager);
    close_and_release(shard);
}

static void test_capped_manager_is_not_spread(void **state) {
    (void)state;
    nd_manager *manager = manager_new(NULL, "capped");
    assert_ok(nd_manager_set_cap(manager, 5));
    nd__shard_spread(manager);
    assert_int_equal(nd__shard_count(manager), 1);
    nd_release(manager);
}

static void *fill_quota(void *data) {
    nd_object **row = data;
    for (uint32_t i = 0; i < EACH; i++)
        row[i] = (nd_object *)bytes_in(shared, 10);
    return NULL;
}

static void test_B17_quota_of_a_spread_manager_is_exact(void **state) {
    (void)state;
    enum { FITTING = THREADS * EACH / 3 };
    nd_manager *manager = spread_manager("bounded"), *child = manager_new(manager, "child");
    nd__shard_spread(child);
    shared = child;
    run(fill_quota, made); // so that each shard has a part of the account
    assert_int_equal(count_made(), THREADS * EACH);
    assert_ok(nd_manager_set_quota(manager, ND_CPU, FITTING * 10));
    run(empty, made);
    run(fill_quota, made);
    assert_int_equal(count_made(), FITTING);
    assert_int_equal(stats_of(manager).subtree_bytes[ND_CPU], FITTING * 10);
    run(empty, made);
    nd_release(child);
    close_and_release(manager);
}

// ------------------------------------------------------------------------------------ order, lives

static nd_object *trio[3];

static void *attach_trio(void *data) {
    (void)data;
    for (int i = 0; i < 3; i++)
        failures += nd_manager_attach(shared, trio[i]) != ND_OK;
    return NULL;
}

static void test_attach_keeps_the_shard_of_what_is_there(void **state) {
    (void)state;
    cell_begin(3);
    nd_manager *manager = spread_manager("attached");
    shared = manager;
    for (uint32_t i = 0; i < 3; i++)
        trio[i] = cell_in(manager, i, 0);
    run(attach_trio, made);
    nd_manager_stats stats = stats_of(manager);
    assert_int_equal(stats.live_objects, 3);
    assert_int_equal(stats.arrived_objects, 0);
    for (int i = 0; i < 3; i++)
        nd_release(trio[i]);
    close_and_release(manager);
}

static void test_recycled_manager_begins_with_one_shard(void **state) {
    (void)state;
    nd_manager *manager = spread_manager("first life");
    shared = manager;
    cell_begin(1);
    run(fill, made);
    run(empty, made);
    close_and_release(manager);
    nd_manager *again = manager_new(NULL, "second life");
    assert_ptr_equal(again, manager); // its memory was the last to be given back here
    assert_int_equal(nd__shard_count(again), 1);
    assert_int_equal(stats_of(again).created_objects, 0);
    nd__shard_spread(again);
    assert_int_equal(stats_of(again).created_objects, 0);
    assert_int_equal(stats_of(again).peak_bytes[ND_CPU], 0);
    close_and_release(again);
}

static void test_closed_manager_is_not_spread(void **state) {
    (void)state;
    nd_manager *manager = manager_new(NULL, "closed");
    assert_ok(nd_manager_close(manager, NULL));
    nd__shard_spread(manager);
    assert_int_equal(nd__shard_count(manager), 1);
    nd_release(manager);
}

static void *come_and_go(void *data) {
    (void)data;
    for (int i = 0; i < 50 * EACH; i++)
        nd_release(bytes_in(shared, 1));
    return NULL;
}

static void test_threads_that_meet_spread_a_manager(void **state) {
    (void)state;
    nd_manager *manager = manager_new(NULL, "met in");
    shared = manager;
    for (int tries = 0; tries < 1000 && nd__shard_count(manager) == 1; tries++)
        run(come_and_go, made);
    assert_true(nd__shard_count(manager) > 1);
    assert_int_equal(stats_of(manager).subtree_bytes[ND_CPU], 0);
    close_and_release(manager);
}

// ------------------------------------------------------------------------------------------- locks

static atomic_bool spread;

static void *spread_shared(void *data) {
    nd__shard_spread((nd_manager *)(uintptr_t)shared);
    spread = true;
    return data;
}

static void test_a_manager_is_spread_under_the_lock_of_its_first_shard(void **state) {
    (void)state;
    nd_manager *manager = manager_new(NULL, "locked");
    nd_biased_lock *lock = &manager->first.lock;
    shared = manager;
    spread = false;
    pthread_t thread;
    nd__biased_lock_acquire(lock);
    assert_int_equal(pthread_create(&thread, NULL, spread_shared, NULL), 0);
    // The other thread has the inner lock, and waits for this one, which the whole is biased to.
    while (!spread && nd__atomic_load(&lock->lock.waiters, relaxed) == 0 &&
           nd__atomic_load(&lock->lock.state, relaxed) == 0)
        sched_yield();
    nd__pause_nap(20000000); // in which it would go on if it might
    assert_false(spread);
    nd__biased_lock_release(lock);
    pthread_join(thread, NULL);
    assert_int_equal(nd__shard_count(manager), nd__shard_limit());
    close_and_release(manager);
}

/// Those of its memory, of which it may use fewer.
static uint32_t shards_of_memory(const nd_manager *manager) {
    return 2 + (manager->more ? nd__shard_limit() - 1 : 0);
}

static uint32_t is_held(const nd_biased_lock *lock) {
    return nd__atomic_load(&lock->lock.state, relaxed) || nd__atomic_load(&lock->held, relaxed);
}

/// How many of their locks are held.
static uint32_t held_locks(nd_manager *manager) {
    uint32_t held = is_held(&manager->first.lock) + is_held(&manager->pocket.lock);
    for (uint32_t i = 0; manager->more && i + 1 < nd__shard_limit(); i++)
        held += is_held(&manager->more[i].lock);
    return held;
}

static void test_F31_a_fork_holds_the_lock_of_every_shard(void **state) {
    (void)state;
    nd_manager *manager = spread_manager("spread"), *single = manager_new(manager, "single");
    for (int round = 0; round < 2; round++) {
        nd__manager_fork_before();
        uint32_t of_spread = held_locks(manager), of_single = held_locks(single);
        nd__manager_fork_after(false);
        assert_int_equal(of_spread, shards_of_memory(manager));
        assert_int_equal(of_single, shards_of_memory(single));
        assert_int_equal(held_locks(manager) + held_locks(single), 0);
    }
    close_and_release(single);
    close_and_release(manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_threads_fill_shards_of_their_own),
        ND_TEST(test_what_another_thread_frees_is_not_charged_any_more),
        ND_TEST(test_survivors_of_all_shards_escape),
        ND_TEST(test_dispose_closes_what_is_in_all_shards),
        ND_TEST(test_garbage_in_all_shards_is_found),
        ND_TEST(test_B13_guests_of_a_spread_manager_that_gets_a_cap_return),
        ND_TEST(test_B15_cap_of_a_spread_manager_is_exact),
        ND_TEST(test_what_was_counted_stays_when_shards_become_one),
        ND_TEST(test_capped_manager_is_not_spread),
        ND_TEST(test_B17_quota_of_a_spread_manager_is_exact),
        ND_TEST(test_attach_keeps_the_shard_of_what_is_there),
        ND_TEST(test_recycled_manager_begins_with_one_shard),
        ND_TEST(test_closed_manager_is_not_spread),
        ND_TEST(test_threads_that_meet_spread_a_manager),
        ND_TEST(test_a_manager_is_spread_under_the_lock_of_its_first_shard),
        ND_TEST(test_F31_a_fork_holds_the_lock_of_every_shard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
