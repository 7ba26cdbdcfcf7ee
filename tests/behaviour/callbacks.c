// G37: what a callback releases that a device's queue runs (nd_queue_callback). It is never
// destroyed there, whether a collection has the gate closed at that moment or not, and wherever the
// program goes on it is destroyed soon, and nothing is lost.
#include "tests/behaviour/callbacks.h"

// ----------------------------------------------------------------------------- never in a callback

static void test_G37_release_in_a_callback_with_the_gate_open(void **state) {
    (void)state;
    begin(2);
    nd_object *object = cell_new_of(&cell_finalized_type, 0, 1), *target = cell_new(1, 0);
    cell_link(object, 0, target);
    nd_release(target);
    release_in_callback(object);
    assert_int_equal(atomic_load(&calls), 1);
    assert_deaths(0);
    assert_ok(nd_synchronize(fake));
    assert_deaths(2);
}

static uint32_t moment, release_at;

/// In the closed gate, the device reaches the callback.
static void run_when_it_is_time(const nd_object *self) {
    (void)self;
    if (moment++ == release_at)
        run_queue();
}

static void test_G37_release_in_a_callback_while_the_gate_is_closed(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    for (int dead_ring = 0; dead_ring < 2; dead_ring++) {
        for (release_at = 0; release_at < 6; release_at++) {
            // 2 points into the ring 0 <-> 1 and to 3; its last handle goes while the collector
            // looks.
            begin(4);
            nd_object *ring[2] = {cell_new_of(&cell_watched_type, 0, 1),
                                  cell_new_of(&cell_watched_type, 1, 1)};
            cell_ring(ring, 2);
            nd_object *late = cell_new_of(&cell_watched_type, 2, 2), *last = cell_new(3, 0);
            cell_link(late, 0, ring[0]);
            cell_link(late, 1, last);
            nd_release(last);
            nd_release(ring[1]);
            late_pause(0);
            queue_release(fake, late);
            if (dead_ring)
                nd_release(ring[0]);
            moment = 0;
            cell_on_traverse = run_when_it_is_time;
            collect(NULL);
            cell_on_traverse = NULL;
            late_resume(0);
            assert_ok(nd_synchronize(fake));
            assert_int_equal(cell_deaths(2), 1);
            assert_int_equal(cell_deaths(3), 1);
            if (!dead_ring) {
                assert_int_equal(cell_deaths(0) + cell_deaths(1), 0);
                nd_release(ring[0]);
            }
            collect(NULL);
            assert_deaths(4);
        }
    }
}

static void test_G37_members_of_a_cycle(void **state) {
    (void)state;
    for (release_at = 0; release_at < 3; release_at++) {
        begin(2);
        nd_object *ring[2] = {cell_new_of(&cell_watched_type, 0, 1),
                              cell_new_of(&cell_watched_type, 1, 1)};
        cell_ring(ring, 2);
        nd_release(ring[1]);
        late_pause(0);
        queue_release(fake, ring[0]); // the last handle from outside, in the middle of a collection
        moment = 0;
        cell_on_traverse = run_when_it_is_time;
        collect(NULL);
        cell_on_traverse = NULL;
        late_resume(0);
        assert_ok(nd_synchronize(fake));
        collect(NULL);
        assert_deaths(2);
    }
}

static atomic_uint freed, freed_inside;

static void free_payload(void *pointer, size_t bytes) {
    (void)pointer, (void)bytes;
    atomic_fetch_add(&freed, 1);
    atomic_fetch_add(&freed_inside, inside);
}

static void count_call(void *data) {
    (void)data;
    atomic_fetch_add(&freed, 1);
    atomic_fetch_add(&freed_inside, inside);
}

static void test_G37_no_user_code_runs_in_a_callback(void **state) {
    (void)state;
    begin(3);
    atomic_store(&freed, 0);
    atomic_store(&freed_inside, 0);
    static const nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = free_payload};
    static char payload[8];
    nd_object *list = (nd_object *)nd_list_new();
    nd_resource *resource = nd_resource_new("payload", payload, sizeof payload, &callbacks);
    nd_object *finalized = cell_new_of(&cell_finalized_type, 0, 0);
    nd_weak *weak = nd_weak_new(finalized);
    assert_ok(nd_weak_set_callback(weak, count_call, NULL));
    assert_ok(nd_list_append((nd_list *)list, resource));
    assert_ok(nd_list_append((nd_list *)list, finalized));
    nd_release(resource);
    nd_release(finalized);
    release_in_callback(list);
    assert_int_equal(atomic_load(&freed), 0);
    assert_deaths(0);
    assert_ok(nd_synchronize(fake));
    assert_deaths(1);
    assert_int_equal(atomic_load(&freed), 2);
    assert_int_equal(atomic_load(&freed_inside), 0);
    assert_null(nd_weak_get(weak));
    nd_release(weak);
}

static void test_G37_weak_reference_released_there_is_not_called_back(void **state) {
    (void)state;
    begin(1);
    atomic_store(&freed, 0);
    nd_object *object = cell_new(0, 0);
    nd_weak *weak = nd_weak_new(object);
    assert_ok(nd_weak_set_callback(weak, count_call, NULL));
    release_in_callback((nd_object *)weak);
    nd_release(object); // dies before what was left does
    assert_deaths(1);
    assert_int_equal(atomic_load(&freed), 0);
}

static nd_object *handed_out;

static void revive(nd_object *self) {
    note_death(self);
    handed_out = nd_retain(self);
}

static void test_G37_a_finalizer_may_revive(void **state) {
    (void)state;
    begin(1);
    cell_on_finalize = revive;
    release_in_callback(cell_new_of(&cell_finalized_type, 0, 0));
    assert_ok(nd_synchronize(fake));
    assert_deaths(0);
    assert_ptr_equal(nd_get_manager(handed_out), nd_manager_get_root());
    release_in_callback(handed_out);
    assert_ok(nd_synchronize(fake));
    assert_deaths(1);
}

// --------------------------------------------------------------------------------- soon afterwards

static void go_synchronize(void) {
    assert_ok(nd_synchronize(cpu)); // of any device
}
static void go_release(void) {
    nd_release(cell_new(1, 0));
    assert_int_equal(cell_deaths(1), 1);
}
static void go_queue(void) {
    assert_ok(nd_queue_callback(cpu, NULL, NULL, nd_manager_get_root()));
}
static void go_collect(void) {
    collect(NULL);
}
static void go_close(void) {
    close_and_release(manager_new(NULL, "m"));
}
static void go_dispose(void) {
    nd_manager *m = manager_new(NULL, "m");
    assert_ok(nd_manager_dispose(m, NULL));
    nd_release(m);
}
static void go_count(void) {
    nd_manager_get_total_objects(NULL);
}
static void go_report(void) {
    FILE *nowhere = fopen("/dev/null", "w");
    assert_non_null(nowhere);
    assert_ok(nd_debug_dump(NULL, nowhere));
    fclose(nowhere);
}

static void test_G37_destroyed_at_the_next_point(void **state) {
    (void)state;
    static void (*const ways[])(void) = {go_synchronize, go_release, go_queue, go_collect,
                                         go_close,       go_dispose, go_count, go_report};
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        begin(2);
        release_in_callback(cell_new_of(&cell_finalized_type, 0, 0));
        assert_deaths(0);
        ways[way]();
        if (cell_deaths(0) != 1)
            fail_msg("way %zu did not destroy it", way);
        assert_int_equal(atomic_load(&destroyed_inside), 0);
    }
}

static void test_G37_trigger_of_the_collector_destroys_it(void **state) {
    (void)state;
    enum { ENOUGH = 5000 }; // more than a thread makes between two looks
    static nd_object *kept[ENOUGH];
    begin(1);
    release_in_callback(cell_new(0, 0));
    for (uint32_t i = 0; i < ENOUGH; i++)
        kept[i] = cell_new(1, 0);
    assert_int_equal(cell_deaths(0), 1);
    for (uint32_t i = 0; i < ENOUGH; i++)
        nd_release(kept[i]);
}

static void test_G37_memory_under_pressure_destroys_it(void **state) {
    (void)state;
    nd_manager *m = manager_new(NULL, "m");
    assert_ok(nd_manager_set_quota(m, LATE, 5000));
    nd_with_manager(m) {
        nd_tensor *x = ones_on(fake, 1000);
        release_in_callback((nd_object *)x);
        assert_int_equal(stats_of(m).live_bytes[LATE], 4000); // its storage is still there
        nd_memory_stats before = ND_MEMORY_STATS_INIT, after = ND_MEMORY_STATS_INIT;
        assert_ok(nd_memory_get_stats(&before));
        nd_tensor *y = ones_on(fake, 1000);
        assert_ok(nd_memory_get_stats(&after));
#if !ND_COLLECT_EVERYWHERE // else any look at whether the collector should run has done it before
        assert_int_equal(after.stages[ND_MEMORY_STAGE_RETIRE].enough -
                             before.stages[ND_MEMORY_STAGE_RETIRE].enough,
                         1);
#endif
        nd_release(y);
    }
    close_and_release(m);
}

#ifndef ON_FAKE_RUNTIME // where tests/cudart:memory_limit_test has this
static void release_it_slowly(void *data) {
    nanosleep(&(struct timespec){0, 30000000}, NULL);
    release_it(data);
}

static void test_G37_waiting_for_memory_waits_for_callbacks(void **state) {
    (void)state;
    nd__fake_set_memory(0, 5000, true);
    nd_tensor *x = ones_on(fake, 1000);
    assert_ok(nd_synchronize(fake));
    assert_ok(nd_queue_callback(fake, release_it_slowly, x, NULL));
    nd_tensor *y = ones_on(fake, 1000); // fits when the callback and then the release are done
    nd_release(y);
    assert_ok(nd_synchronize(fake));
    nd__fake_set_memory(0, 0, false);
}
#endif

static void test_G37_manager_counts_what_was_released_as_freed(void **state) {
    (void)state;
    begin(1);
    nd_manager *m = manager_new(NULL, "m"), *elsewhere = manager_new(NULL, "elsewhere");
    nd_object *object = cell_in(m, 0, 0);
    assert_ok(nd_manager_lend(elsewhere, object));
    release_in_callback(object);
    assert_int_equal(stats_of(elsewhere).live_objects, 0);
    assert_int_equal(close_and_release(elsewhere).escaped_objects, 0);
    assert_deaths(1);
    close_and_release(m);
}

static void test_G37_last_handle_of_a_manager(void **state) {
    (void)state;
    begin(1);
    nd_manager *m = manager_new(NULL, "m");
    nd_object *object = cell_in(m, 0, 0);
    release_in_callback((nd_object *)m);
    assert_true(nd_manager_is_open(m)); // still there, and so far nobody has closed it
    assert_ok(nd_synchronize(fake));
    assert_ptr_equal(nd_get_manager(object), nd_manager_get_root());
    nd_release(object);
    assert_deaths(1);
}

// ------------------------------------------------------------------------------ order, and keeping

static atomic_uint sequence;

static void note_turn(void *data) {
    *(uint32_t *)data = atomic_fetch_add(&sequence, 1);
}

static void test_G37_callbacks_run_in_order_with_the_work(void **state) {
    (void)state;
    uint32_t turns[3] = {9, 9, 9};
    atomic_store(&sequence, 0);
    nd_tensor *x = ones_on(fake, 10);
    assert_ok(nd_synchronize(fake));
    late_pause(0);
    for (int i = 0; i < 3; i++) {
        nd_tensor *y = nd_add(x, x);
        assert_ok(nd_queue_callback(fake, note_turn, &turns[i], y));
        nd_release(y);
    }
    assert_true(late_pending(0) >= 6); // three sums, three callbacks; the tensors live
    assert_int_equal(late_live_blocks(0), 4);
    assert_int_equal(atomic_load(&sequence), 0);
    late_resume(0);
    assert_ok(nd_synchronize(fake));
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(turns[i], i);
    nd_release(x);
    assert_ok(nd_synchronize(fake));
    assert_int_equal(late_live_blocks(0), 0);
}

static void test_G37_tensor_with_device_memory_is_kept_until_then(void **state) {
    (void)state;
    nd_tensor *x = ones_on(fake, 1000);
    assert_ok(nd_synchronize(fake));
    late_pause(0);
    assert_ok(nd_queue_callback(fake, NULL, NULL, x));
    assert_int_equal(nd_get_count(x), 2);
    nd_release(x);
    assert_int_equal(stats_of(NULL).subtree_bytes[LATE], 4000);
    run_queue();
    assert_int_equal(stats_of(NULL).subtree_bytes[LATE], 4000); // no device may be called there
    assert_ok(nd_synchronize(fake));
    assert_int_equal(stats_of(NULL).subtree_bytes[LATE], 0);
    assert_ok(nd_synchronize(fake));
    assert_int_equal(late_live_blocks(0), 0);
}

static void test_G37_on_the_cpu_the_callback_has_run(void **state) {
    (void)state;
    begin(2);
    nd_object *object = cell_new_of(&cell_finalized_type, 0, 0), *kept = cell_new(1, 0);
    assert_ok(nd_queue_callback(cpu, release_it, object, kept));
    assert_deaths(1);
    assert_int_equal(nd_get_count(kept), 1);
    nd_release(kept);
    assert_deaths(2);
}

static nd_object *queued_by_destroy;

static void queue_another(nd_object *self) {
    note_death(self);
    if (!queued_by_destroy)
        return;
    nd_object *next = queued_by_destroy;
    queued_by_destroy = NULL;
    queue_release(cpu, next);
    assert_int_equal(cell_deaths(1), 1); // as anywhere else
}

static void test_G37_queued_inside_a_destructor(void **state) {
    (void)state;
    begin(2);
    cell_on_destroy = queue_another;
    queued_by_destroy = cell_new(1, 0);
    nd_release(cell_new(0, 0));
    assert_deaths(2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G37_release_in_a_callback_with_the_gate_open),
        ND_TEST(test_G37_release_in_a_callback_while_the_gate_is_closed),
        ND_TEST(test_G37_members_of_a_cycle),
        ND_TEST(test_G37_no_user_code_runs_in_a_callback),
        ND_TEST(test_G37_weak_reference_released_there_is_not_called_back),
        ND_TEST(test_G37_a_finalizer_may_revive),
        ND_TEST(test_G37_destroyed_at_the_next_point),
        ND_TEST(test_G37_trigger_of_the_collector_destroys_it),
        ND_TEST(test_G37_memory_under_pressure_destroys_it),
#ifndef ON_FAKE_RUNTIME
        ND_TEST(test_G37_waiting_for_memory_waits_for_callbacks),
#endif
        ND_TEST(test_G37_manager_counts_what_was_released_as_freed),
        ND_TEST(test_G37_last_handle_of_a_manager),
        ND_TEST(test_G37_callbacks_run_in_order_with_the_work),
        ND_TEST(test_G37_tensor_with_device_memory_is_kept_until_then),
        ND_TEST(test_G37_on_the_cpu_the_callback_has_run),
        ND_TEST(test_G37_queued_inside_a_destructor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
