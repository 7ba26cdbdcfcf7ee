// Collections that a policy's pause cuts into steps: that they find what one step finds, beside
// threads that write edges, with finalizers that revive, and where memory ends.
#define ND_TEST_COLLECTS_BY_POLICY
#include "lib/base/alloc.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <time.h>

static void *wait_for_stop(void *stop) {
    while (!atomic_load((atomic_bool *)stop))
        nanosleep(&(struct timespec){0, 100000}, NULL);
    return NULL;
}

/// Links a live pair back and forth.
typedef struct writer {
    atomic_bool stop;
    nd_object *pair[2];
    _Atomic uint64_t written;
} writer;

static void *write_edges(void *data) {
    writer *w = data;
    while (!atomic_load(&w->stop)) {
        cell_link(w->pair[0], 0, w->pair[1]);
        cell_unlink(w->pair[0], 0);
        atomic_fetch_add(&w->written, 1);
    }
    return NULL;
}

static uint64_t cycles_told;

static void count_cycle(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)path, (void)objects, (void)bytes, (void)data;
    cycles_told++;
}

static void test_collection_in_steps_finds_what_one_step_finds(void **state) {
    (void)state;
    enum { RINGS = 30000 / ND_TEST_SCALE };
    nd_gc_set_mode(ND_GC_ON);
    atomic_bool stop = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stop, &stop), 0);
    for (int warn = 0; warn < 2; warn++) {
        cell_begin(2);
        nd_manager *m = manager_new(NULL, "m");
        nd_gc_policy policy = ND_GC_POLICY_INIT;
        policy.pause_ns = 100000 / ND_TEST_SCALE;
        policy.tracked_objects = 0;
        assert_ok(nd_manager_set_gc_policy(m, &policy));
        nd_object *held = cell_in(m, 0, 2);
        drop_pairs(m, RINGS);
        nd_object *ring = cell_in(m, 0, 1);
        cell_link(ring, 0, held); // garbage that points to what lives
        cell_link(held, 0, held);
        nd_object *other = cell_in(m, 0, 1);
        cell_link(held, 1, other);
        nd_weak *weak = nd_weak_new(other);
        nd_release(other);
        nd_release(ring);
        assert_ok(nd_manager_set_gc_mode(m, warn ? ND_GC_WARN : ND_GC_ON));
        cycles_told = 0;
        nd_gc_set_cycle_callback(count_cycle, NULL);
        nd_gc_report report = collect(m);
        nd_gc_set_cycle_callback(NULL, NULL);
        assert_int_equal(cycles_told, RINGS);
        assert_int_equal(report.collected_objects, 2 * RINGS);
        assert_int_equal(report.cycles, RINGS);
        assert_true(report.steps > 3);
        assert_int_equal(cell_total_deaths(), warn ? 1 : 2 * RINGS + 1);
        nd_object *again = nd_weak_get(weak);
        assert_handle(again);
        nd_release(again);
        nd_release(weak);
        nd_release(held);
        assert_int_equal(collect(NULL).collected_objects, warn ? 2 * RINGS + 2 : 2);
        close_and_release(m);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

static nd_object *keeper;

static void revive(nd_object *self) {
    static int turn;
    if (turn++ % 2 == 0)
        cell_link(keeper, 0, self);
}

static void test_steps_with_finalizers_that_revive(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    atomic_bool stop = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stop, &stop), 0);
    cell_begin(4);
    nd_manager *m = manager_new(NULL, "m");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    keeper = cell_in(m, 0, 1);
    cell_on_finalize = revive;
    nd_with_manager(m) for (uint32_t i = 0; i < 2; i++) {
        nd_object *pair[2] = {cell_new_of(&cell_finalized_type, 2 * i, 1), cell_new(2 * i + 1, 1)};
        cell_ring(pair, 2);
        nd_release(pair[0]);
        nd_release(pair[1]);
    }
    nd_gc_report report = collect(NULL);
    assert_true(report.steps > 0);
    assert_int_equal(report.revived_objects, 2);
    assert_int_equal(report.collected_objects, 2);
    assert_int_equal(cell_total_deaths(), 2);
    nd_release(keeper);
    assert_int_equal(collect(NULL).collected_objects, 2);
    close_and_release(m);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

static void test_edges_are_written_between_the_steps(void **state) {
    (void)state;
    enum { RINGS = 20000 / ND_TEST_SCALE, ROUNDS = 5, MOST_ROUNDS = 500 };
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 25000; // less than all may take, at 20 ns an object at least
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    writer w = {.pair = {cell_in(m, 0, 1), cell_in(m, 0, 1)}};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, write_edges, &w), 0);
    uint64_t collected = 0, written = 0; // by the writer, while a collection was going on
    int rounds = 0;
    // On a busy machine the writer may have no core for a while.
    for (; rounds < ROUNDS || (written == 0 && rounds < MOST_ROUNDS); rounds++) {
        drop_pairs(m, RINGS);
        const uint64_t before = atomic_load(&w.written);
        nd_gc_report report = collect(m);
        written += atomic_load(&w.written) - before;
        assert_true(report.steps > 0);
        collected += report.collected_objects;
    }
    atomic_store(&w.stop, true);
    pthread_join(thread, NULL);
    assert_true(written > 0);
    assert_int_equal(collected, 2 * RINGS * (uint64_t)rounds);
    nd_release(w.pair[0]);
    nd_release(w.pair[1]);
    close_and_release(m);
}

static int allocations_left;

static bool fail_once(size_t bytes) {
    (void)bytes;
    return allocations_left-- == 0;
}

static void test_F04_steps_without_memory_harm_nothing(void **state) {
    (void)state;
    atomic_bool stop = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stop, &stop), 0);
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    drop_pairs(m, 200);
    int failed = 0;
    for (int n = 0;; n++) {
        allocations_left = n;
        nd__alloc_should_fail = fail_once;
        nd_gc_report report = ND_GC_REPORT_INIT;
        nd_status status = nd_gc_collect(m, &report);
        nd__alloc_should_fail = NULL;
        if (status == ND_OK)
            break;
        assert_int_equal(status, ND_ERROR_OUT_OF_MEMORY);
        assert_int_equal(cell_total_deaths(), 0);
        assert_int_equal(stats_of(m).live_objects, 400);
        failed++;
    }
    assert_true(failed >= 1); // without memory for a snapshot it looks at once
    assert_int_equal(cell_total_deaths(), 400);
    close_and_release(m);
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

static bool fail_from_then_on(size_t bytes) {
    (void)bytes;
    return allocations_left-- <= 0;
}

static void test_F04_steps_without_memory_leave_what_is_held_alone(void **state) {
    (void)state;
    enum { HELD = 300 };
    atomic_bool stop = false;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_stop, &stop), 0);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = 1;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    bool (*const fails[])(size_t) = {fail_once, fail_from_then_on};
    for (int n = 0; n < 12; n++) {
        cell_begin(HELD + 2);
        nd_manager *m = manager_new(NULL, "m");
        nd_object *held[HELD]; // by one handle each
        for (uint32_t i = 0; i < HELD; i++)
            held[i] = cell_in(m, i, 1);
        drop_pairs(m, 100);
        allocations_left = n / 2;
        nd__alloc_should_fail = fails[n % 2];
        nd_gc_report report = ND_GC_REPORT_INIT;
        nd_status status = nd_gc_collect(m, &report);
        nd__alloc_should_fail = NULL;
        if (status == ND_OK)
            assert_int_equal(report.broken_objects, 0);
        for (uint32_t i = 2; i < HELD; i++) {
            assert_int_equal(cell_deaths(i), 0);
            assert_int_equal(nd_get_count(held[i]), 1);
        }
        assert_int_equal(collect(m).broken_objects, 0);
        assert_int_equal(cell_total_deaths(), 200);
        for (uint32_t i = 0; i < HELD; i++)
            nd_release(held[i]);
        close_and_release(m);
    }
    atomic_store(&stop, true);
    pthread_join(thread, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_collection_in_steps_finds_what_one_step_finds),
        ND_TEST(test_steps_with_finalizers_that_revive),
        ND_TEST(test_edges_are_written_between_the_steps),
        ND_TEST(test_F04_steps_without_memory_harm_nothing),
        ND_TEST(test_F04_steps_without_memory_leave_what_is_held_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
