// The history of one object: what is noted, that others and the collector are as always, threads.
#include "lib/base/alloc.h"
#include "tests/behaviour/cell.h"
#include "tests/unit/debug/written.h"
#include <pthread.h>

static char *history_of(const nd_watch *watch) {
    written out = {0};
    assert_ok(nd_watch_write(watch, written_stream(&out)));
    written_text(&out);
    return out.text;
}

static void test_every_retain_and_release_is_noted(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    assert_ok(nd_set_name(x, "w1"));
    nd_watch *watch = nd_debug_watch(x);
    assert_handle(watch);
    assert_int_equal(nd_get_count(x), 1);
    nd_object *second = nd_retain(x), *third = nd_retain(x);
    assert_int_equal(nd_get_count(x), 3);
    nd_release(second);
    char *text = history_of(watch);
    assert_contains(text, "history of cell(w1): 4 events, count 2 now");
    assert_int_equal(occurrences(text, "watched count 1"), 1);
    assert_int_equal(occurrences(text, "retain  count 2"), 1);
    assert_int_equal(occurrences(text, "retain  count 3"), 1);
    assert_int_equal(occurrences(text, "release count 2"), 1);
    assert_contains(text, "watch_test"); // who called
    free(text);
    nd_release(third);
    nd_release(x);
    assert_int_equal(cell_deaths(0), 1);
    // It outlives its object.
    text = history_of(watch);
    assert_contains(text, "6 events, dead");
    assert_contains(text, "release count 0");
    free(text);
    nd_watch_end(watch);
    cell_end();
}

static void test_after_the_end_nothing_is_noted(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    nd_watch_end(nd_debug_watch(x));
    assert_int_equal(nd_get_count(x), 1);
    nd_watch *watch = nd_debug_watch(x);
    char *text = history_of(watch);
    assert_contains(text, "1 events, count 1 now");
    free(text);
    nd_watch_end(watch);
    nd_release(nd_retain(x));
    nd_release(x);
    assert_int_equal(cell_deaths(0), 1);
    nd_watch_end(NULL);
    cell_end();
}

static void test_weak_references_see_the_true_count(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    nd_weak *weak = nd_weak_new(x);
    nd_watch *watch = nd_debug_watch(x);
    nd_object *upgraded = nd_weak_get(weak);
    assert_ptr_equal(upgraded, x);
    assert_int_equal(nd_get_count(x), 2);
    nd_release(upgraded);
    nd_release(x);
    assert_null(nd_weak_get(weak));
    char *text = history_of(watch);
    assert_contains(text, "upgrade count 2");
    free(text);
    nd_release(weak);
    nd_watch_end(watch);
    cell_end();
}

static void test_a_watched_cycle_is_collected(void **state) {
    (void)state;
    const nd_type *const types[] = {&cell_type, &cell_finalized_type};
    for (int i = 0; i < 2; i++) {
        cell_begin(3);
        nd_object *ring[3];
        for (uint32_t k = 0; k < 3; k++)
            ring[k] = cell_new_of(types[i], k, 1);
        cell_ring(ring, 3);
        nd_weak *weak = nd_weak_new(ring[1]);
        nd_watch *watches[3];
        for (int k = 0; k < 3; k++)
            watches[k] = nd_debug_watch(ring[k]);
        nd_gc_report report = ND_GC_REPORT_INIT;
        nd_release(ring[0]);
        nd_release(ring[1]);
        assert_ok(nd_gc_collect(NULL, &report)); // the program holds one still
        assert_int_equal(report.collected_objects, 0);
        nd_release(ring[2]);
        assert_ok(nd_gc_collect(NULL, &report));
        assert_int_equal(report.collected_objects, 3);
        assert_int_equal(cell_total_deaths(), 3);
        assert_null(nd_weak_get(weak));
        for (int k = 0; k < 3; k++) {
            char *text = history_of(watches[k]);
            assert_contains(text, "garbage count");
            assert_contains(text, "dead");
            free(text);
            nd_watch_end(watches[k]);
        }
        nd_release(weak);
        cell_end();
    }
}

static nd_watch *finalizer_watch;

static void watch_self(nd_object *self) {
    finalizer_watch = nd_debug_watch(self);
}

static void test_a_finalizer_may_begin_to_watch(void **state) {
    (void)state;
    for (int cyclic = 0; cyclic < 2; cyclic++) {
        cell_begin(1);
        cell_on_finalize = watch_self;
        nd_object *x = cell_new_of(&cell_finalized_type, 0, 1);
        if (cyclic)
            cell_link(x, 0, x);
        nd_release(x);
        if (cyclic)
            assert_ok(nd_gc_collect(NULL, NULL));
        assert_int_equal(cell_deaths(0), 1);
        assert_handle(finalizer_watch);
        char *text = history_of(finalizer_watch);
        assert_contains(text, "dead");
        free(text);
        nd_watch_end(finalizer_watch);
        cell_on_finalize = NULL;
        cell_end();
    }
}

static void ignore_cycle(const char *path, uint64_t objects, uint64_t bytes, void *data) {
    (void)path;
    (void)objects;
    (void)bytes;
    ++*(int *)data;
}

static nd_object *revived;

static void revive(nd_object *self) {
    revived = nd_retain(self);
}

static void watch_and_revive(nd_object *self) {
    watch_self(self);
    revive(self);
}

static void test_a_watched_object_revives_itself(void **state) {
    (void)state;
    for (int late = 0; late < 2; late++) {
        cell_begin(1);
        cell_on_finalize = late ? watch_and_revive : revive;
        nd_object *x = cell_new_of(&cell_finalized_type, 0, 0);
        nd_watch *watch = late ? NULL : nd_debug_watch(x);
        nd_release(x);
        assert_int_equal(nd_get_count(revived), 1);
        assert_int_equal(cell_deaths(0), 0);
        nd_release(revived);
        assert_int_equal(cell_deaths(0), 1);
        nd_watch_end(late ? finalizer_watch : watch);
        cell_end();
    }
}

static void test_warn_mode_leaves_a_watch(void **state) {
    (void)state;
    cell_begin(1);
    int cycles = 0;
    nd_gc_set_cycle_callback(ignore_cycle, &cycles);
    assert_ok(nd_gc_set_mode(ND_GC_WARN));
    nd_object *x = cell_new(0, 1);
    cell_link(x, 0, x);
    nd_weak *weak = nd_weak_new(x);
    nd_watch *watch = nd_debug_watch(x);
    nd_release(x);
    assert_ok(nd_gc_collect(NULL, NULL));
    assert_int_equal(cycles, 1);
    x = nd_weak_get(weak); // was only reported, and is watched still
    assert_non_null(x);
    char *text = history_of(watch);
    assert_contains(text, "3 events, count 2 now");
    free(text);
    cell_unlink(x, 0);
    nd_release(x);
    assert_int_equal(cell_deaths(0), 1);
    nd_gc_set_cycle_callback(NULL, NULL);
    assert_ok(nd_gc_set_mode(ND_GC_OFF));
    nd_watch_end(watch);
    nd_release(weak);
    cell_end();
}

static void test_a_closed_object_stays_watched(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 1);
    cell_link(x, 0, x);
    nd_watch *watch = nd_debug_watch(x);
    assert_ok(nd_close(x));
    assert_int_equal(nd_get_count(x), 1);
    nd_release(x);
    assert_int_equal(cell_deaths(0), 1);
    nd_watch_end(watch);
    cell_end();
}

static void test_only_the_latest_events_are_kept(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    nd_watch *watch = nd_debug_watch(x);
    for (int i = 0; i < 200; i++)
        nd_release(nd_retain(x));
    char *text = history_of(watch);
    assert_contains(text, "401 events");
    assert_contains(text, "(the first 145 are forgotten)");
    assert_int_equal(occurrences(text, " ms  thread "), 256);
    free(text);
    nd_watch_end(watch);
    nd_release(x);
    cell_end();
}

static void test_holders_of_a_watched_object(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    nd_list *list = nd_list_new();
    assert_ok(nd_list_append(list, x));
    nd_watch *watch = nd_debug_watch(x);
    nd_holders holders = ND_HOLDERS_INIT;
    assert_ok(nd_debug_get_holders(x, NULL, &holders));
    assert_int_equal(holders.count, 2);
    assert_int_equal(holders.handles, 1);
    nd_watch_end(watch);
    nd_release(list);
    nd_release(x);
    cell_end();
}

static bool refuse(size_t bytes) {
    (void)bytes;
    return true;
}

static void test_errors(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *x = cell_new(0, 0);
    assert_null(nd_debug_watch(NULL));
    nd_watch *watch = nd_debug_watch(x);
    assert_null(nd_debug_watch(x));
    assert_int_equal(nd_error_get_status(), ND_ERROR_STATE);
    nd_error_clear();
    assert_int_equal(nd_watch_write(watch, NULL), ND_ERROR_INVALID_ARGUMENT);
    nd__alloc_should_fail = refuse;
    assert_int_equal(nd_watch_write(watch, stdout), ND_ERROR_OUT_OF_MEMORY);
    nd_watch_end(watch);
    assert_null(nd_debug_watch(x));
    nd__alloc_should_fail = NULL;
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    nd_release(x);
    cell_end();
}

// ---------------------------------------------------------------------------------- beside threads

enum { THREADS = 4, ROUNDS = 2000 / ND_TEST_SCALE };
static _Atomic bool stop;

static void *retain_and_release(void *data) {
    for (int i = 0; i < ROUNDS; i++) {
        nd_object *x = nd_retain((nd_object *)data);
        nd_release(x);
    }
    nd_release(data);
    return NULL;
}

static void *upgrade(void *data) {
    while (!atomic_load(&stop))
        nd_release(nd_weak_get(data));
    return NULL;
}

/// Watches begin and end while threads retain, release, upgrade, and drop the last handle.
static void test_beside_running_threads(void **state) {
    (void)state;
    for (int round = 0; round < 20; round++) {
        cell_begin(1);
        nd_object *x = cell_new(0, 1);
        nd_weak *weak = nd_weak_new(x);
        pthread_t threads[THREADS], upgrader;
        atomic_store(&stop, false);
        nd_watch *watch = NULL;
        for (int i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, retain_and_release, nd_retain(x)),
                             0);
        assert_int_equal(pthread_create(&upgrader, NULL, upgrade, weak), 0);
        for (int i = 0; i < 50; i++) {
            nd_watch_end(watch);
            watch = nd_debug_watch(x);
            assert_handle(watch);
        }
        nd_release(x);
        if (round % 2) {
            nd_watch_end(watch); // perhaps while the last handle goes
            watch = NULL;
        }
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        atomic_store(&stop, true);
        pthread_join(upgrader, NULL);
        assert_int_equal(cell_deaths(0), 1);
        nd_watch_end(watch);
        nd_release(weak);
        cell_end();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_retain_and_release_is_noted),
        ND_TEST(test_after_the_end_nothing_is_noted),
        ND_TEST(test_weak_references_see_the_true_count),
        ND_TEST(test_a_watched_cycle_is_collected),
        ND_TEST(test_a_finalizer_may_begin_to_watch),
        ND_TEST(test_a_watched_object_revives_itself),
        ND_TEST(test_warn_mode_leaves_a_watch),
        ND_TEST(test_a_closed_object_stays_watched),
        ND_TEST(test_only_the_latest_events_are_kept),
        ND_TEST(test_holders_of_a_watched_object),
        ND_TEST(test_errors),
        ND_TEST(test_beside_running_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
