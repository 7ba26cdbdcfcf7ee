// Collections that take long, and collections in steps: that they say what they could not do, do it
// later, and lose nothing that a look at once finds (G43, G44).
#include "lib/gc/steps.h"
#include "lib/base/atomics.h"
#include "lib/gc/collection.h"
#include "lib/object/trace.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <stdlib.h>
#include <sys/single_threaded.h>
#include <time.h>

static uint64_t limit_before;

static void set_limit(uint64_t nanoseconds) {
    limit_before = nd__collection_limit_ns;
    nd__collection_limit_ns = nanoseconds;
}

static void restore_limit(void) {
    nd__collection_limit_ns = limit_before;
}

/// A second thread, because of which others have to be considered.
static atomic_bool stop;
static pthread_t idle_thread;

static void *idle(void *data) {
    while (!atomic_load(&stop))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return data;
}

static void begin_second_thread(void) {
    atomic_store(&stop, false);
    assert_int_equal(pthread_create(&idle_thread, NULL, idle, NULL), 0);
}

static void end_second_thread(void) {
    atomic_store(&stop, true);
    pthread_join(idle_thread, NULL);
}

static uint64_t postponed_so_far(void) {
    nd_gc_stats stats = ND_GC_STATS_INIT;
    assert_ok(nd_gc_get_stats(&stats));
    return stats.postponed_objects;
}

/// The smallest pause that there is: few objects to a step.
static void set_pause(nd_manager *manager, uint64_t nanoseconds) {
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pause_ns = nanoseconds;
    assert_ok(nd_manager_set_gc_policy(manager, &policy));
}

// The reports of collections that nobody is handed.
static nd_gc_report last_report;

static uint64_t no_clock(void) {
    return 0;
}

static void ignore_birth(const nd_object *object, const nd_manager *manager) {
    (void)object, (void)manager;
}

static void ignore_death(const nd_object *object, const nd_manager *manager, bool collected) {
    (void)object, (void)manager, (void)collected;
}

static void keep_report(nd_manager *const *managers, size_t count, uint64_t began,
                        const nd_gc_report *report) {
    (void)managers, (void)count, (void)began;
    last_report = *report;
}

static void ignore_close(const nd_manager *manager, uint64_t began, const nd_close_report *report) {
    (void)manager, (void)began, (void)report;
}

static const nd__listener listener = {no_clock, ignore_birth, ignore_death, keep_report,
                                      ignore_close};

// -------------------------------------------------------------------------------------- the limit

static void test_G43_no_limit_while_the_process_has_one_thread(void **state) {
    (void)state;
    if (!__libc_single_threaded)
        skip(); // sanitizers have a thread of their own
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_with_manager(m) cell_drop_ring(0, 2);
    set_limit(0);
    nd_close_report report = close_and_release(m);
    restore_limit();
    assert_int_equal(report.collected_objects, 2);
    assert_int_equal(report.postponed_objects, 0);
    assert_int_equal(cell_total_deaths(), 2);
}

static void test_G43_slower_than_the_limit_says_so_and_is_completed_later(void **state) {
    (void)state;
    enum { TOLD = 4096, DUE = 2 * TOLD };
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    begin_second_thread();
    cell_begin(2 + DUE);
    nd_manager *m = manager_new(NULL, "m");
    nd_with_manager(m) cell_drop_ring(0, 2);
    uint64_t before = postponed_so_far();
    nd_error_clear();
    set_limit(0);
    nd_close_report report = close_and_release(m);
    assert_int_equal(report.collected_objects, 0);
    assert_int_equal(report.postponed_objects, 2);
    assert_int_equal(report.escaped_objects, 2);
    assert_int_equal(nd_error_get_status(), ND_ERROR_STATE);
    assert_non_null(strstr(nd_error_get_message(), "examined again later"));
    nd_gc_report asked = ND_GC_REPORT_INIT;
    assert_int_equal(nd_gc_collect(NULL, &asked), ND_ERROR_STATE);
    assert_int_equal(asked.collected_objects, 0);
    assert_true(asked.postponed_objects >= 2);
    assert_true(asked.steps > 0);
    assert_int_equal(postponed_so_far() - before,
                     report.postponed_objects + asked.postponed_objects);
    restore_limit();
    assert_int_equal(cell_total_deaths(), 0);
    // Nobody asks: the next trigger is due, long before as many objects are made as usual.
    nd_object *kept = NULL;
    for (uint32_t i = 0; i < DUE && cell_total_deaths() == 0; i++) {
        nd_object *object = cell_new(2 + i, 1);
        assert_handle(object);
        if (kept)
            cell_link(object, 0, kept);
        nd_release(kept);
        kept = object;
    }
    assert_int_equal(cell_deaths(0) + cell_deaths(1), 2);
    nd_release(kept);
    end_second_thread();
}

/// However slow a pass was, it postpones nothing when all that it looked at lives.
static void test_G43_slower_than_the_limit_and_nothing_is_garbage(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    begin_second_thread();
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_object *ring[2] = {cell_in(m, 0, 1), cell_in(m, 1, 1)};
    cell_ring(ring, 2);
    nd_error_clear();
    set_limit(0);
    nd_gc_report report = ND_GC_REPORT_INIT;
    nd_status status = nd_gc_collect(m, &report);
    restore_limit();
    assert_int_equal(status, ND_OK);
    assert_int_equal(report.examined_objects, 2);
    assert_int_equal(report.postponed_objects, 0);
    assert_int_equal(report.steps, 0); // it was not done again
    nd_release(ring[0]);
    nd_release(ring[1]);
    assert_int_equal(close_and_release(m).collected_objects, 2);
    end_second_thread();
}

static int sleeps;

static void oversleep(const nd_object *self) {
    (void)self;
    if (sleeps-- > 0)
        nanosleep(&(struct timespec){2, 100000000}, NULL);
}

static void test_G43_a_pass_that_was_held_up_is_done_again(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    begin_second_thread();
    for (int in_steps = 0; in_steps < 2; in_steps++) {
        cell_begin(2);
        nd_manager *m = manager_new(NULL, "m");
        set_pause(m, in_steps ? 1 : 0);
        nd_object *ring[2] = {NULL, NULL};
        nd_with_manager(m) for (uint32_t i = 0; i < 2; i++) ring[i] =
            cell_new_of(&cell_watched_type, i, 1);
        cell_ring(ring, 2);
        nd_release(ring[0]);
        nd_release(ring[1]);
        sleeps = 1;
        cell_on_traverse = oversleep;
        set_limit(UINT64_C(2000000000));
        nd_error_clear();
        nd_close_report report = close_and_release(m);
        restore_limit();
        cell_on_traverse = NULL;
        assert_int_equal(report.collected_objects, 2);
        assert_int_equal(report.postponed_objects, 0);
        assert_int_equal(nd_error_get_status(), ND_OK);
    }
    end_second_thread();
}

static void test_G43_reports_of_programs_built_before_are_filled(void **state) {
    (void)state;
    nd_gc_report report = ND_GC_REPORT_INIT;
    report.size = offsetof(nd_gc_report, postponed_objects);
    report.postponed_objects = 77;
    assert_ok(nd_gc_collect(NULL, &report));
    assert_int_equal(report.size, offsetof(nd_gc_report, postponed_objects));
    assert_int_equal(report.postponed_objects, 77);
    nd_gc_stats stats = ND_GC_STATS_INIT;
    stats.size = offsetof(nd_gc_stats, postponed_objects);
    stats.postponed_objects = 77;
    assert_ok(nd_gc_get_stats(&stats));
    assert_true(stats.collections > 0);
    assert_int_equal(stats.postponed_objects, 77);
    stats.size = report.size = 7;
    assert_int_equal(nd_gc_get_stats(&stats), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_gc_collect(NULL, &report), ND_ERROR_INVALID_ARGUMENT);
}

// ------------------------------------------------------------------------------- the default pause

static void test_G44_survivors_of_a_close_are_looked_at_in_steps(void **state) {
    (void)state;
    enum { SURVIVORS = 400000 / ND_TEST_SCALE };
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    nd_gc_policy no_trigger = ND_GC_POLICY_INIT;
    no_trigger.tracked_objects = 0;
    assert_ok(nd_manager_set_gc_policy(NULL, &no_trigger));
    begin_second_thread();
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_object *chain = NULL;
    nd_with_manager(m) for (uint32_t i = 0; i < SURVIVORS; i++) {
        nd_object *next = cell_new(0, 1);
        if (chain)
            cell_link(next, 0, chain);
        nd_release(chain);
        chain = next;
    }
    nd_with_manager(m) cell_drop_ring(1, 1);
    nd__atomic_store(&nd__trace_listening, &listener, release);
    nd_close_report report = close_and_release(m);
    nd__atomic_store(&nd__trace_listening, NULL, release);
    assert_int_equal(report.collected_objects, 1);
    assert_int_equal(report.escaped_objects, SURVIVORS);
    // At 20 ns an object, which nothing is faster than, one step of a millisecond takes 50,000.
    assert_true(last_report.steps >= (ND_TEST_SCALE == 1 ? 4 : 1));
    nd_release(chain);
    end_second_thread();
}

static void test_G44_few_survivors_are_looked_at_at_once(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    begin_second_thread();
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_object *held = cell_in(m, 0, 1);
    nd_with_manager(m) cell_drop_ring(1, 1);
    nd__atomic_store(&nd__trace_listening, &listener, release);
    assert_int_equal(close_and_release(m).collected_objects, 1);
    nd__atomic_store(&nd__trace_listening, NULL, release);
    assert_int_equal(last_report.steps, 0);
    nd_release(held);
    end_second_thread();
}

// --------------------------------------------------------------------------------- nothing is lost

static void test_G13_cycle_across_managers_in_steps(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    nd_gc_set_mode(ND_GC_ON);
    begin_second_thread();
    for (int held = 0; held < 2; held++) {
        cell_begin(4);
        nd_manager *open = manager_new(NULL, "open"), *closing = manager_new(NULL, "closing");
        set_pause(closing, 1);
        // Two objects deep on the other side, so that what has joined is followed as well.
        nd_object *ring[3] = {cell_in(closing, 0, 1), cell_in(open, 1, 1), cell_in(open, 2, 1)};
        cell_ring(ring, 3);
        nd_object *other = cell_in(closing, 3, 1); // lives on both times
        cell_link(other, 0, other);
        nd_release(ring[0]);
        nd_release(ring[1]);
        if (!held)
            nd_release(ring[2]);
        assert_int_equal(close_and_release(closing).collected_objects, held ? 0 : 3);
        if (held) {
            assert_int_equal(cell_total_deaths(), 0);
            nd_release(ring[2]);
            assert_int_equal(close_and_release(open).collected_objects, 3);
        } else {
            close_and_release(open);
        }
        assert_int_equal(cell_total_deaths(), 3);
        nd_release(other);
        assert_int_equal(collect(NULL).collected_objects, 1);
    }
    end_second_thread();
}

static nd_object *released_meanwhile;
static uint32_t moment, release_at;

static void *release_it(void *data) {
    nd_release(released_meanwhile);
    return data;
}

/// On another thread, which does not wait for the gate.
static void release_when_it_is_time(const nd_object *self) {
    (void)self;
    if (moment++ != release_at)
        return;
    pthread_t thread;
    if (pthread_create(&thread, NULL, release_it, NULL) != 0)
        abort();
    pthread_join(thread, NULL);
}

/// A held object that points to a ring; with `cyclic` the ring points back.
static void build_held(const nd_manager *m, bool cyclic) {
    nd_object *ring[2] = {NULL, NULL};
    nd_with_manager(m) {
        released_meanwhile = cell_new_of(&cell_watched_type, 0, 1);
        for (uint32_t i = 0; i < 2; i++)
            ring[i] = cell_new_of(&cell_watched_type, 1 + i, 2);
    }
    cell_ring(ring, 2);
    cell_link(released_meanwhile, 0, ring[0]);
    if (cyclic)
        cell_link(ring[1], 1, released_meanwhile);
    nd_release(ring[0]);
    nd_release(ring[1]);
}

static void test_G43_steps_find_what_threads_let_go_of_meanwhile(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    begin_second_thread();
    for (int cyclic = 0; cyclic < 2; cyclic++) {
        for (release_at = 0; release_at < 3; release_at++) {
            cell_begin(3);
            nd_manager *m = manager_new(NULL, "m");
            set_pause(m, 1);
            build_held(m, cyclic);
            moment = 0;
            cell_on_traverse = release_when_it_is_time;
            nd_gc_report report = collect(m);
            cell_on_traverse = NULL;
            assert_true(moment > release_at);
            assert_true(report.steps > 0);
            assert_int_equal(report.collected_objects, 3);
            assert_int_equal(cell_total_deaths(), 3);
            close_and_release(m);
        }
    }
    end_second_thread();
}

/// What another thread's close looks at is held by the collection in steps, which gives it a home
/// of its own: it must not keep either of them from finding the ring.
static nd_manager *closed_meanwhile;

static void *close_it(void *data) {
    nd_manager_close(closed_meanwhile, NULL);
    return data;
}

static pthread_t closer;

static void close_when_it_is_time(const nd_object *self) {
    (void)self;
    if (moment++ == release_at && pthread_create(&closer, NULL, close_it, NULL) != 0)
        abort();
}

static void test_G43_a_close_between_the_steps_takes_nothing_from_them(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    begin_second_thread();
    for (release_at = 0; release_at < 20; release_at += 3) {
        cell_begin(20);
        nd_manager *m = manager_new(NULL, "m");
        set_pause(m, 1);
        closed_meanwhile = manager_new(m, "inner");
        assert_ok(nd_manager_set_gc_mode(closed_meanwhile, ND_GC_ON));
        nd_with_manager(closed_meanwhile) for (uint32_t i = 0; i < 20; i += 2) {
            nd_object *ring[2] = {cell_new_of(&cell_watched_type, i, 1),
                                  cell_new_of(&cell_watched_type, i + 1, 1)};
            cell_ring(ring, 2);
            nd_release(ring[0]);
            nd_release(ring[1]);
        }
        moment = 0;
        cell_on_traverse = close_when_it_is_time;
        nd_gc_report report = collect(m);
        pthread_join(closer, NULL);
        cell_on_traverse = NULL;
        assert_true(report.steps > 0);
        assert_int_equal(cell_total_deaths(), 20);
        nd_release(closed_meanwhile);
        close_and_release(m);
    }
    end_second_thread();
}

static nd_manager *dropped_in;

static void drop_a_ring(nd_object *self) {
    if (cell_of(self)->number == 0)
        nd_with_manager(dropped_in) cell_drop_ring(1, 2);
}

/// A second round looks at what finalizers left behind; a third one has nothing to look for,
/// whether in steps or not.
static void test_G24_what_no_finalizer_ran_for_is_not_looked_at_again(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    begin_second_thread();
    for (uint64_t pause = 0; pause < 2; pause++) {
        cell_begin(4);
        nd_manager *m = dropped_in = manager_new(NULL, "m");
        set_pause(m, pause);
        nd_object *alone = NULL, *live = cell_in(m, 3, 1);
        nd_with_manager(m) alone = cell_new_of(&cell_finalized_type, 0, 1);
        cell_link(alone, 0, alone);
        cell_on_finalize = drop_a_ring;
        nd_release(alone);
        nd_gc_report report = collect(m);
        assert_int_equal(report.steps > 0, pause);
        assert_int_equal(report.collected_objects, 3);
        assert_int_equal(report.examined_objects, 2 + 3); // the live one each time
        assert_int_equal(cell_total_deaths(), 3);
        nd_release(live);
        close_and_release(m);
    }
    end_second_thread();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G43_no_limit_while_the_process_has_one_thread), // before any other thread
        ND_TEST(test_G43_slower_than_the_limit_says_so_and_is_completed_later),
        ND_TEST(test_G43_slower_than_the_limit_and_nothing_is_garbage),
        ND_TEST(test_G43_a_pass_that_was_held_up_is_done_again),
        ND_TEST(test_G43_reports_of_programs_built_before_are_filled),
        ND_TEST(test_G44_survivors_of_a_close_are_looked_at_in_steps),
        ND_TEST(test_G44_few_survivors_are_looked_at_at_once),
        ND_TEST(test_G13_cycle_across_managers_in_steps),
        ND_TEST(test_G43_steps_find_what_threads_let_go_of_meanwhile),
        ND_TEST(test_G43_a_close_between_the_steps_takes_nothing_from_them),
        ND_TEST(test_G24_what_no_finalizer_ran_for_is_not_looked_at_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
