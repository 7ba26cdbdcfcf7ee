// When the collector looks: policies, their inheritance, triggers; their pauses are in pauses.c.
// B-numbers do not name them; docs/collector.md promises them.
#define ND_TEST_COLLECTS_BY_POLICY
#include "lib/base/alloc.h"
#include "tests/behaviour/helpers.h"
#include <time.h>

static nd_gc_policy policy_of(const nd_manager *manager) {
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    assert_ok(nd_manager_get_gc_policy(manager, &policy));
    return policy;
}

static uint64_t collections(void) {
    nd_gc_stats stats = ND_GC_STATS_INIT;
    assert_ok(nd_gc_get_stats(&stats));
    return stats.collections;
}

static void allocate(const nd_manager *manager, size_t bytes) {
    nd_resource *resource = bytes_in(manager, bytes);
    assert_handle(resource);
    nd_release(resource);
}

static void test_policies_are_inherited_field_by_field(void **state) {
    (void)state;
    nd_gc_policy root = policy_of(NULL);
    assert_int_equal(root.allocated_bytes[ND_CPU], ND_GC_ADAPTIVE);
    assert_int_equal(root.tracked_objects, ND_GC_ADAPTIVE);
    assert_int_equal(root.interval_ns, 0);
    assert_int_equal(root.pause_ns, ND_GC_ADAPTIVE);
    assert_int_equal(root.boundary, 1);
    assert_int_equal(root.pressure, 1);

    nd_manager *outer = manager_new(NULL, "outer"), *inner = manager_new(outer, "inner");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.tracked_objects = 1000;
    policy.pause_ns = 5;
    policy.boundary = 0;
    assert_ok(nd_manager_set_gc_policy(outer, &policy));
    policy = (nd_gc_policy)ND_GC_POLICY_INIT;
    policy.pause_ns = 7;
    policy.allocated_bytes[ND_CUDA] = 9;
    assert_ok(nd_manager_set_gc_policy(inner, &policy));
    policy = policy_of(inner);
    assert_int_equal(policy.allocated_bytes[ND_CPU], ND_GC_ADAPTIVE);
    assert_int_equal(policy.allocated_bytes[ND_CUDA], 9);
    assert_int_equal(policy.tracked_objects, 1000);
    assert_int_equal(policy.pause_ns, 7);
    assert_int_equal(policy.boundary, 0);
    assert_int_equal(policy.pressure, 1);
    assert_int_equal(policy_of(NULL).boundary, 1);
    // Places of kinds that do not exist are 0 when read, and taken back so; no other value is.
    for (int kind = ND_DEVICE_KIND_COUNT; kind < ND_MAX_DEVICE_KINDS; kind++)
        assert_int_equal(policy.allocated_bytes[kind], 0);
    assert_ok(nd_manager_set_gc_policy(inner, &policy));
    assert_int_equal(policy_of(inner).pause_ns, 7);
    policy.allocated_bytes[ND_MAX_DEVICE_KINDS - 1] = 1;
    assert_int_equal(nd_manager_set_gc_policy(inner, &policy), ND_ERROR_UNSUPPORTED);
    assert_string_equal(nd_error_get_message(), "manager_set_gc_policy: allocated_bytes[7] is set, "
                                                "and there is no device kind 7");
    nd_error_clear();
    policy = (nd_gc_policy)ND_GC_POLICY_INIT;
    policy.pause_ns = 7;
    policy.allocated_bytes[ND_CUDA] = 9;
    assert_ok(nd_manager_set_gc_policy(inner, &policy));
    // A second one replaces the first as a whole.
    policy = (nd_gc_policy)ND_GC_POLICY_INIT;
    assert_ok(nd_manager_set_gc_policy(outer, &policy));
    assert_int_equal(policy_of(outer).pause_ns, ND_GC_ADAPTIVE);
    assert_int_equal(policy_of(inner).pause_ns, 7);
    close_and_release(inner);
    close_and_release(outer);
}

static void test_F30_policies_that_say_nothing_are_refused(void **state) {
    (void)state;
    nd_gc_policy before = policy_of(NULL);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    assert_int_equal(nd_manager_set_gc_policy(NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_manager_get_gc_policy(NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    policy.version = 0;
    assert_int_equal(nd_manager_set_gc_policy(NULL, &policy), ND_ERROR_INVALID_ARGUMENT);
    policy = (nd_gc_policy)ND_GC_POLICY_INIT;
    policy.interval_ns = ND_GC_ADAPTIVE;
    nd_error_clear();
    assert_int_equal(nd_manager_set_gc_policy(NULL, &policy), ND_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(nd_error_get_message(), "interval_ns"));
    policy = (nd_gc_policy)ND_GC_POLICY_INIT;
    policy.boundary = 2;
    nd_error_clear();
    assert_int_equal(nd_manager_set_gc_policy(NULL, &policy), ND_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(nd_error_get_message(), "boundary"));
    nd_gc_policy after = policy_of(NULL);
    assert_memory_equal(&before, &after, sizeof before);
}

static void test_boundary_0_leaves_survivors_alone(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.boundary = 0;
    assert_ok(nd_manager_set_gc_policy(m, &policy));
    drop_pairs(m, 1);
    nd_close_report report = close_and_release(m);
    assert_int_equal(report.collected_objects, 0);
    assert_int_equal(report.escaped_objects, 2);
    assert_int_equal(collect(NULL).collected_objects, 2);
}

static void test_pressure_0_does_not_collect_for_a_quota(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    for (uint64_t pressure = 0; pressure < 2; pressure++) {
        cell_begin(2);
        nd_manager *m = manager_new(NULL, "m");
        nd_gc_policy policy = ND_GC_POLICY_INIT;
        policy.pressure = pressure;
        assert_ok(nd_manager_set_gc_policy(m, &policy));
        assert_ok(nd_manager_set_quota(m, ND_CPU, 1000));
        nd_with_manager(m) {
            nd_object *ring = cell_new(0, 2);
            nd_resource *buffer = bytes_in(m, 800);
            cell_link(ring, 0, ring);
            cell_link(ring, 1, buffer);
            nd_release(buffer);
            nd_release(ring);
        }
        nd_error_clear();
        nd_resource *more = bytes_in(m, 800);
        assert_int_equal(more != NULL, pressure);
        assert_int_equal(nd_error_get_status(), pressure ? ND_OK : ND_ERROR_QUOTA);
        nd_release(more);
        assert_ok(nd_manager_set_quota(m, ND_CPU, 0));
        close_and_release(m);
    }
}

static void test_tracked_objects_collect_without_bytes_or_boundary(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.tracked_objects = 100;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    uint64_t most = 0;
    for (int i = 0; i < 5000; i++) {
        drop_pairs(m, 1);
        uint64_t live = stats_of(m).live_objects;
        most = live > most ? live : most;
    }
    assert_in_range(most, 2, 140);
    close_and_release(m);
}

static void test_small_thresholds_are_exact(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.tracked_objects = 8;
    assert_ok(nd_manager_set_gc_policy(m, &policy));
    // What the thread has made before counts, too: up to the first look.
    for (uint64_t before = collections(); collections() == before;)
        nd_release(cell_in(m, 0, 1));
    for (int times = 0; times < 3; times++) {
        uint64_t before = collections();
        for (int i = 0; i < 7; i++)
            nd_release(cell_in(m, 0, 1));
        assert_int_equal(collections(), before);
        nd_release(cell_in(m, 0, 1));
        assert_int_equal(collections(), before + 1);
    }
    close_and_release(m);
}

static void test_totals_add_up_what_reports_say(void **state) {
    (void)state;
    cell_begin(8);
    nd_manager *m = manager_new(NULL, "m");
    nd_gc_stats before = ND_GC_STATS_INIT, after = ND_GC_STATS_INIT;
    assert_ok(nd_gc_get_stats(&before));
    nd_with_manager(m) {
        cell_drop_ring(0, 2);
        cell_drop_ring(2, 3);
    }
    nd_object *ring = cell_in(m, 5, 2), *kept = cell_in(m, 6, 1);
    nd_resource *buffer = bytes_in(m, 700);
    cell_link(ring, 0, ring);
    cell_link(ring, 1, buffer);
    nd_release(buffer);
    nd_release(ring);
    nd_gc_report report = collect(m);
    assert_int_equal(report.collected_objects, 7);
    assert_int_equal(report.collected_bytes, 700);
    assert_int_equal(report.cycles, 3);
    assert_true(report.examined_objects >= 7);
    assert_ok(nd_gc_get_stats(&after));
    assert_int_equal(after.collections, before.collections + 1);
    assert_int_equal(after.examined_objects, before.examined_objects + report.examined_objects);
    assert_int_equal(after.collected_objects, before.collected_objects + report.collected_objects);
    assert_int_equal(after.collected_bytes, before.collected_bytes + report.collected_bytes);
    assert_int_equal(after.cycles, before.cycles + report.cycles);
    nd_release(kept);
    close_and_release(m);
}

static void test_default_thresholds_bound_a_program_that_closes_nothing(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    uint64_t most = 0;
    for (int i = 0; i < 200; i++) {
        drop_pairs(m, 1000);
        uint64_t live = stats_of(m).live_objects;
        most = live > most ? live : most;
    }
    assert_true(most < 3 * 65536);
    close_and_release(m);
}

static void test_what_garbage_held_does_not_count_as_live(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    enum { LOOKS_APART = 65536 };
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    uint64_t before = collections(), most = 0;
    for (int i = 0; i < 4 * LOOKS_APART; i++) {
        nd_object *ring = cell_in(m, 0, 2);
        nd_resource *held = bytes_in(m, 8); // green: collected, but not looked at
        cell_link(ring, 0, ring);
        cell_link(ring, 1, held);
        nd_release(held);
        nd_release(ring);
        uint64_t tracked = stats_of(m).tracked_objects;
        most = tracked > most ? tracked : most;
    }
    assert_true(collections() - before >= 3);
    assert_in_range(most, 1, 2 * LOOKS_APART);
    close_and_release(m);
}

static void test_looks_that_find_nothing_become_rare(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    enum { OBJECTS = 1 << 20 };
    cell_begin(1);
    nd_manager *m = manager_new(NULL, "m");
    nd_list *kept = nd_list_new();
    uint64_t before = collections();
    nd_with_manager(m) for (int i = 0; i < OBJECTS / ND_TEST_SCALE; i++) {
        nd_object *object = cell_new(0, 1);
        assert_ok(nd_list_append(kept, object));
        nd_release(object);
    }
    // Each look comes at least twice as late as the one before.
    assert_true(collections() - before <= 5);
    nd_release(kept);
    close_and_release(m);
}

static void test_a_child_counts_for_itself(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    nd_manager *outer = manager_new(NULL, "outer"), *inner = manager_new(outer, "inner");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.allocated_bytes[ND_CPU] = 64 << 10;
    assert_ok(nd_manager_set_gc_policy(inner, &policy));
    drop_pairs(outer, 1);
    drop_pairs(inner, 1);
    uint64_t before = collections();
    allocate(outer, 128 << 10);
    assert_int_equal(collections(), before);
    for (int i = 0; i < 16; i++)
        allocate(inner, 8 << 10);
    assert_true(collections() > before);
    assert_int_equal(cell_total_deaths(), 2);
    assert_int_equal(stats_of(outer).live_objects, 2);
    close_and_release(inner);
    close_and_release(outer);
    assert_int_equal(cell_total_deaths(), 4);
}

static void test_0_turns_a_trigger_off_for_what_is_below(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    nd_manager *outer = manager_new(NULL, "outer"), *inner = manager_new(outer, "inner");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.tracked_objects = 10;
    assert_ok(nd_manager_set_gc_policy(outer, &policy));
    policy.tracked_objects = 0;
    assert_ok(nd_manager_set_gc_policy(inner, &policy));
    uint64_t before = collections();
    drop_pairs(inner, 100);
    assert_int_equal(collections(), before);
    drop_pairs(outer, 20);
    assert_true(collections() > before);
    close_and_release(inner);
    close_and_release(outer);
}

static void test_interval_looks_when_it_has_passed(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.interval_ns = 30000000;
    assert_ok(nd_manager_set_gc_policy(m, &policy));
    drop_pairs(m, 1);
    uint64_t before = collections();
    for (int i = 0; i < 200 && collections() == before; i++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        nd_release(cell_in(m, 0, 1));
    }
    assert_int_equal(collections(), before + 1);
    assert_int_equal(stats_of(m).live_objects, 0);
    close_and_release(m);
}

static void test_mode_off_is_not_overruled_by_a_trigger(void **state) {
    (void)state;
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.tracked_objects = 1;
    policy.allocated_bytes[ND_CPU] = 1;
    policy.interval_ns = 1;
    assert_ok(nd_manager_set_gc_policy(m, &policy));
    assert_ok(nd_manager_set_gc_mode(m, ND_GC_OFF));
    uint64_t before = collections();
    drop_pairs(m, 10);
    allocate(m, 1000);
    assert_int_equal(collections(), before);
    close_and_release(m);
    collect(NULL);
}

static void test_a_trigger_leaves_managers_below_alone_that_are_off(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    nd_manager *outer = manager_new(NULL, "outer"), *inner = manager_new(outer, "inner");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.tracked_objects = 100;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    assert_ok(nd_manager_set_gc_mode(inner, ND_GC_OFF));
    drop_pairs(inner, 10);
    drop_pairs(outer, 200);
    assert_in_range(stats_of(outer).live_objects, 0, 140);
    assert_int_equal(stats_of(inner).live_objects, 20);
    assert_true(collect(outer).collected_objects >= 20); // on request, whatever the mode
    assert_int_equal(stats_of(inner).live_objects, 0);
    close_and_release(inner);
    close_and_release(outer);
}

static bool fail_large(size_t bytes) {
    return bytes > 1 << 20;
}

static void test_F04_looks_that_nobody_asked_for_leave_the_error_alone(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.tracked_objects = 50000;
    assert_ok(nd_manager_set_gc_policy(NULL, &policy));
    cell_begin(2);
    nd_manager *m = manager_new(NULL, "m"), *inner = manager_new(m, "inner");
    drop_pairs(inner, 24000);
    nd_error_clear();
    nd__alloc_should_fail = fail_large;
    uint64_t before = collections();
    drop_pairs(inner, 24000);
    assert_true(collections() > before);
    assert_int_equal(nd_error_get_status(), ND_OK);
    close_and_release(inner);
    nd__alloc_should_fail = NULL;
    assert_int_equal(nd_error_get_status(), ND_OK);
    assert_int_equal(cell_total_deaths(), 0);
    close_and_release(m);
    assert_int_equal(cell_total_deaths(), 96000);
}

static bool asked_for_memory;

static bool fail_until_asked(size_t bytes) {
    (void)bytes;
    return !asked_for_memory;
}

static bool give_up_memory(const nd_memory_pressure *pressure, void *data) {
    (void)pressure;
    (void)data;
    return asked_for_memory = true;
}

static void test_policies_end_with_their_managers_in_any_order(void **state) {
    (void)state;
    static const int orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        nd_manager *managers[3];
        for (uint64_t k = 0; k < 3; k++) {
            managers[k] = manager_new(NULL, "bounded");
            nd_gc_policy policy = ND_GC_POLICY_INIT;
            policy.tracked_objects = 1000 + k;
            policy.interval_ns = 0;
            assert_ok(nd_manager_set_gc_policy(managers[k], &policy));
        }
        for (int k = 0; k < 3; k++) {
            nd_release(managers[orders[i][k]]);
            for (int left = k + 1; left < 3; left++) {
                uint64_t number = (uint64_t)orders[i][left];
                assert_int_equal(policy_of(managers[number]).tracked_objects, 1000 + number);
            }
        }
    }
}

static void test_settings_walk_the_ladder_for_memory(void **state) {
    (void)state;
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_up_memory;
    assert_ok(nd_memory_set_callback(NULL, &callback));
    nd_manager *m = manager_new(NULL, "m");
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    nd__alloc_should_fail = fail_until_asked;
    nd_status set_policy = nd_manager_set_gc_policy(m, &policy);
    bool asked_for_policy = asked_for_memory;
    asked_for_memory = false;
    nd_status set_callback = nd_memory_set_callback(m, &callback);
    nd__alloc_should_fail = NULL;
    assert_ok(set_policy);
    assert_ok(set_callback);
    assert_true(asked_for_policy && asked_for_memory);
    asked_for_memory = false;
    assert_ok(nd_memory_set_callback(NULL, NULL));
    close_and_release(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_policies_end_with_their_managers_in_any_order),
        ND_TEST(test_settings_walk_the_ladder_for_memory),
        ND_TEST(test_policies_are_inherited_field_by_field),
        ND_TEST(test_F30_policies_that_say_nothing_are_refused),
        ND_TEST(test_boundary_0_leaves_survivors_alone),
        ND_TEST(test_pressure_0_does_not_collect_for_a_quota),
        ND_TEST(test_tracked_objects_collect_without_bytes_or_boundary),
        ND_TEST(test_small_thresholds_are_exact),
        ND_TEST(test_totals_add_up_what_reports_say),
        ND_TEST(test_default_thresholds_bound_a_program_that_closes_nothing),
        ND_TEST(test_what_garbage_held_does_not_count_as_live),
        ND_TEST(test_looks_that_find_nothing_become_rare),
        ND_TEST(test_a_child_counts_for_itself),
        ND_TEST(test_0_turns_a_trigger_off_for_what_is_below),
        ND_TEST(test_interval_looks_when_it_has_passed),
        ND_TEST(test_mode_off_is_not_overruled_by_a_trigger),
        ND_TEST(test_a_trigger_leaves_managers_below_alone_that_are_off),
        ND_TEST(test_F04_looks_that_nobody_asked_for_leave_the_error_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
