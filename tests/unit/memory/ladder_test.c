// The ladder: which stages are walked, in which order, what is left when it ends, and what it says
// then.
//
// The device is a row of functions here that write down that they were called; memory comes when as
// many of them have been called as the test wants.
#define ND_TEST_COLLECTS_BY_POLICY
#include "lib/base/error.h"
#include "lib/device/fake/fake.h"
#include "lib/manager/charge.h"
#include "lib/manager/request.h"
#include "lib/memory/ladder.h"
#include "lib/object/callback.h"
#include "tests/testing.h"

static char
    events[200];    // a: attempt, r: retire, t: trim, f: a cycle was freed, c: callback, w: wait
static char enough; // memory comes after this event; 0: never
static int enough_times; // when it has happened so often
static nd_status failure;
static bool wait_answer;
static int late_wait; // the wait that is not over in time, counted from 1; 0: none
static nd_object *released_in_wait;
static char memory[64];

static void happened(char event) {
    size_t length = strlen(events);
    assert_true(length + 1 < sizeof events);
    events[length] = event;
    events[length + 1] = '\0';
}

static int times(char event) {
    int count = 0;
    for (const char *at = events; *at; at++)
        count += *at == event;
    return count;
}

static nd_manager *shrinking; ///< gets a smaller quota meanwhile

static nd_status allocate(int index, size_t bytes, void **ret_pointer) {
    assert_int_equal(index, 1);
    assert_int_equal(bytes, 64);
    if (shrinking)
        assert_ok(nd_manager_set_quota(shrinking, ND_FAKE, 10));
    bool comes = enough && times(enough) >= enough_times;
    happened('a');
    if (!comes)
        return failure;
    *ret_pointer = memory;
    return ND_OK;
}

static void release(int index, void *pointer, size_t bytes) {
    assert_int_equal(index, 1);
    assert_ptr_equal(pointer, memory);
    assert_int_equal(bytes, 64);
    happened('x');
}

static uint64_t retire(int index) {
    assert_int_equal(index, 1);
    happened('r');
    return 10;
}

static uint64_t trim(int index) {
    assert_int_equal(index, 1);
    happened('t');
    return 200;
}

static bool wait_for(int index, uint64_t nanoseconds) {
    assert_int_equal(index, 1);
    assert_in_range(nanoseconds, 1000000, UINT64_C(10000000000));
    happened('w');
    nd_object *released = released_in_wait;
    released_in_wait = NULL;
    if (released) // as a callback of the device that comes to its turn
        nd__callback_run(NULL, NULL, released);
    return wait_answer && times('w') != late_wait;
}

static void usage(int index, nd_memory_usage *ret_usage) {
    assert_int_equal(index, 1);
    *ret_usage = (nd_memory_usage){.cached = 77, .limit = 4096};
}

static const nd_memory_functions rows = {
    .retire = retire, .trim = trim, .wait = wait_for, .usage = usage};

static bool give_up(const nd_memory_pressure *pressure, void *data) {
    assert_int_equal(pressure->size, sizeof *pressure);
    assert_int_equal(pressure->version, 1);
    happened('c');
    return data != NULL;
}

static nd_memory_request prepare(nd_manager *manager, char after, nd_status status) {
    events[0] = '\0';
    enough = after;
    enough_times = 1;
    failure = status;
    wait_answer = true;
    late_wait = 0;
    nd_error_clear();
    return (nd_memory_request){
        .operation = "empty",
        .manager = manager,
        .kind = ND_FAKE,
        .index = 1,
        .charge = 60,
        .bytes = 64,
        .allocate = allocate,
        .release = release,
        .functions = &rows,
    };
}

static uint64_t charged(const nd_manager *manager) {
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(manager, &stats));
    return stats.subtree_bytes[ND_FAKE];
}

static nd_memory_stats stats_now(void) {
    nd_memory_stats stats = ND_MEMORY_STATS_INIT;
    assert_ok(nd_memory_get_stats(&stats));
    return stats;
}

static void set_callback(const nd_manager *manager, bool gives_up) {
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_up;
    callback.data = gives_up ? memory : NULL;
    assert_ok(nd_memory_set_callback(manager, &callback));
}

static void cycle_freed(void *pointer, size_t bytes) {
    (void)pointer;
    (void)bytes;
    happened('f');
}

/// A dead cycle that holds 5,000 fake bytes, as far as managers know, and says when it is freed.
static void drop_cycle(const nd_manager *manager) {
    static const nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = cycle_freed};
    nd_with_manager(manager) {
        nd_list *cycle = nd_list_new();
        nd_resource *resource = nd_resource_new("buffer", memory, 5000, &callbacks);
        assert_ok(nd_list_append(cycle, cycle));
        assert_ok(nd_list_append(cycle, resource));
        nd_release(resource);
        nd_release(cycle);
    }
}

static nd_manager *collected_manager(const nd_manager *parent, const char *name) {
    nd_manager *manager = nd_manager_new(parent, name);
    assert_handle(manager);
    assert_ok(nd_manager_set_gc_mode(manager, ND_GC_ON));
    return manager;
}

static void assert_obtained(const nd_memory_request *request) {
    void *pointer = NULL;
    assert_ok(nd__ladder_alloc(request, &pointer));
    assert_ptr_equal(pointer, memory);
    assert_int_equal(nd_error_get_status(), ND_OK);
    assert_int_equal(charged(request->manager), 60);
    nd__charge_return(request->manager, ND_FAKE, 60);
}

static void assert_refused(const nd_memory_request *request, nd_status status) {
    void *pointer = NULL;
    assert_int_equal(nd__ladder_alloc(request, &pointer), status);
    assert_int_equal(nd_error_get_status(), status);
    assert_null(pointer);
    assert_int_equal(charged(request->manager), 0);
}

// -------------------------------------------------------------------------------------- the stages

static void test_plain_success_walks_nothing(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_memory_stats before = stats_now(), after;
    nd_memory_request request = prepare(manager, 'a', ND_OK);
    enough_times = 0;
    assert_obtained(&request);
    assert_string_equal(events, "a");
    after = stats_now();
    assert_memory_equal(&before, &after, sizeof before);
    nd_release(manager);
}

/// Every stage, when it alone is enough: the stages before it are walked, those behind it are not,
/// and the statistics name it.
static void test_each_rung_alone_is_enough(void **state) {
    (void)state;
    static const struct {
        char after;
        const char *walked;
        uint64_t bytes;
    } cases[ND_MEMORY_STAGE_COUNT] = {
        [ND_MEMORY_STAGE_RETIRE] = {'r', "ara", 10},
        [ND_MEMORY_STAGE_TRIM] = {'t', "arata", 200},
        [ND_MEMORY_STAGE_COLLECT] = {'f', "aratafa", 5000},
        [ND_MEMORY_STAGE_CALLBACK] = {'c', "aratafartaca", 0},
        [ND_MEMORY_STAGE_WAIT] = {'w', "aratafartacartawra", 10},
    };
    for (int i = 0; i < ND_MEMORY_STAGE_COUNT; i++) {
        nd_manager *manager = collected_manager(NULL, "m");
        drop_cycle(manager);
        set_callback(manager, true);
        nd_memory_stats before = stats_now();
        nd_memory_request request = prepare(manager, cases[i].after, ND_ERROR_OUT_OF_MEMORY);
        assert_obtained(&request);
        assert_string_equal(events, cases[i].walked);
        nd_memory_stats after = stats_now();
        assert_int_equal(after.walks, before.walks + 1);
        assert_int_equal(after.quota_walks, before.quota_walks);
        assert_int_equal(after.failures, before.failures);
        for (int stage = 0; stage < ND_MEMORY_STAGE_COUNT; stage++) {
            assert_int_equal(after.stages[stage].reached - before.stages[stage].reached,
                             stage <= i);
            assert_int_equal(after.stages[stage].enough - before.stages[stage].enough, stage == i);
        }
        assert_int_equal(after.stages[i].bytes - before.stages[i].bytes, cases[i].bytes);
        nd_release(manager);
    }
}

static void test_what_a_rung_gave_up_may_have_to_be_trimmed_first(void **state) {
    (void)state;
    nd_manager *manager = collected_manager(NULL, "m");
    drop_cycle(manager);
    nd_memory_stats before = stats_now();
    nd_memory_request request = prepare(manager, 't', ND_ERROR_OUT_OF_MEMORY);
    enough_times = 2;
    assert_obtained(&request);
    assert_string_equal(events, "aratafarta");
    nd_memory_stats after = stats_now();
    assert_int_equal(after.stages[ND_MEMORY_STAGE_COLLECT].enough,
                     before.stages[ND_MEMORY_STAGE_COLLECT].enough + 1);
    nd_release(manager);
}

static void test_rungs_that_do_not_apply_are_left_out(void **state) {
    (void)state;
    static const nd_memory_functions none;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_memory_stats before = stats_now();
    nd_memory_request request = prepare(manager, 0, ND_ERROR_OUT_OF_MEMORY);
    request.functions = &none;
    assert_refused(&request, ND_ERROR_OUT_OF_MEMORY);
    assert_string_equal(events, "a");
    assert_non_null(strstr(nd_error_get_message(), "tried: nothing"));
    nd_memory_stats after = stats_now();
    assert_memory_equal(before.stages, after.stages, sizeof after.stages);
    assert_int_equal(after.failures, before.failures + 1);
    nd_release(manager);
}

static void test_the_collector_goes_up_as_long_as_it_is_not_enough(void **state) {
    (void)state;
    nd_manager *top = collected_manager(NULL, "top");
    nd_manager *middle = nd_manager_new(top, "middle"), *sibling = nd_manager_new(top, "sibling");
    nd_manager *manager = nd_manager_new(middle, "m");
    drop_cycle(manager);
    drop_cycle(middle);
    drop_cycle(sibling);
    nd_memory_request request = prepare(manager, 'f', ND_ERROR_OUT_OF_MEMORY);
    enough_times = 3;
    assert_obtained(&request);
    assert_string_equal(events, "aratafartafartafa");
    // Off below, on above: what is above is looked at all the same.
    assert_ok(nd_manager_set_gc_mode(manager, ND_GC_OFF));
    drop_cycle(sibling);
    request = prepare(manager, 'f', ND_ERROR_OUT_OF_MEMORY);
    assert_obtained(&request);
    // Not under pressure: the stage is not there.
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.pressure = 0;
    assert_ok(nd_manager_set_gc_policy(manager, &policy));
    drop_cycle(sibling);
    request = prepare(manager, 'f', ND_ERROR_OUT_OF_MEMORY);
    assert_refused(&request, ND_ERROR_OUT_OF_MEMORY);
    assert_string_equal(events, "aratawrarta");
    policy.pressure = 1;
    assert_ok(nd_manager_set_gc_policy(manager, &policy));
    request = prepare(manager, 'f', ND_ERROR_OUT_OF_MEMORY);
    assert_obtained(&request);
    // Off everywhere: neither.
    assert_ok(nd_manager_set_gc_mode(top, ND_GC_OFF));
    drop_cycle(manager);
    request = prepare(manager, 'f', ND_ERROR_OUT_OF_MEMORY);
    assert_refused(&request, ND_ERROR_OUT_OF_MEMORY);
    assert_int_equal(times('f'), 0);
    assert_null(strstr(nd_error_get_message(), "cycles collected"));
    assert_ok(nd_gc_collect(manager, NULL));
    nd_release(manager);
    nd_release(sibling);
    nd_release(middle);
    nd_release(top);
}

static void test_behind_a_callback_that_gives_nothing_up_too(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    set_callback(manager, false);
    nd_memory_request request = prepare(manager, 'c', ND_ERROR_OUT_OF_MEMORY);
    assert_obtained(&request);
    assert_string_equal(events, "arataca");
    nd_release(manager);
}

/// What fitted before there was memory for it, and does not fit any more.
static void test_a_quota_that_is_used_up_meanwhile(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    assert_ok(nd_manager_set_quota(manager, ND_FAKE, 100));
    nd_memory_request request = prepare(manager, 'a', ND_OK);
    enough_times = 0;
    shrinking = manager;
    assert_refused(&request, ND_ERROR_QUOTA);
    shrinking = NULL;
    assert_string_equal(events, "ax");
    assert_int_equal(charged(manager), 0);
    nd_release(manager);
}

static nd_object *fake_buffer(const nd_manager *manager) {
    static const nd_resource_callbacks callbacks = {
        .size = sizeof callbacks, .version = 1, .free = cycle_freed};
    nd_resource *buffer = NULL;
    nd_with_manager(manager) buffer = nd_resource_new("buffer", memory, 5, &callbacks);
    assert_handle(buffer);
    return (nd_object *)buffer;
}

/// What dies in it gives its memory back behind what the device has still to do.
static void test_what_is_released_while_the_device_is_waited_for_is_waited_for(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_memory_request request = prepare(manager, 'w', ND_ERROR_OUT_OF_MEMORY);
    enough_times = 2;
    released_in_wait = fake_buffer(manager);
    assert_obtained(&request);
    assert_string_equal(events, "aratawfwra");
    for (late_wait = 1; late_wait <= 3; late_wait++) {
        int late = late_wait;
        request = prepare(manager, 0, ND_ERROR_OUT_OF_MEMORY);
        late_wait = late;
        released_in_wait = fake_buffer(manager);
        assert_refused(&request, ND_ERROR_OUT_OF_MEMORY);
        assert_string_equal(events, "aratawfwrarta");
        assert_int_equal(strstr(nd_error_get_message(), "which is not done yet") != NULL, late < 3);
    }
    nd_release(manager);
}

static void test_a_broken_device_is_not_asked_twice(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_memory_stats before = stats_now(), after;
    nd_memory_request request = prepare(manager, 0, ND_ERROR_DEVICE);
    assert_refused(&request, ND_ERROR_DEVICE);
    assert_string_equal(events, "a");
    assert_string_equal(nd_error_get_message(),
                        "empty: fake:1 could not allocate 64 bytes: the device failed");
    after = stats_now();
    assert_memory_equal(&before, &after, sizeof before);
    nd_release(manager);
}

static nd_status fail_after_a_while(int index, size_t bytes, void **ret_pointer) {
    if (strstr(events, "t"))
        failure = ND_ERROR_DEVICE;
    return allocate(index, bytes, ret_pointer);
}

static void test_a_device_that_breaks_meanwhile_ends_the_walk(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    set_callback(manager, true);
    nd_memory_request request = prepare(manager, 0, ND_ERROR_OUT_OF_MEMORY);
    request.allocate = fail_after_a_while;
    assert_refused(&request, ND_ERROR_DEVICE);
    assert_string_equal(events, "arata");
    nd_release(manager);
}

static void test_success_leaves_the_error_that_was_there(void **state) {
    (void)state;
    nd_manager *manager = collected_manager(NULL, "m");
    drop_cycle(manager);
    nd_memory_request request = prepare(manager, 'w', ND_ERROR_OUT_OF_MEMORY);
    nd__error(ND_ERROR_SHAPE, "add: an earlier sentence");
    void *pointer = NULL;
    assert_ok(nd__ladder_alloc(&request, &pointer));
    assert_int_equal(nd_error_get_status(), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(), "add: an earlier sentence");
    nd__charge_return(manager, ND_FAKE, 60);
    nd_error_clear();
    nd_release(manager);
}

// ------------------------------------------------------------------------------------ the sentence

static void test_giving_up_says_what_there_is_and_what_was_tried(void **state) {
    (void)state;
    nd_manager *manager = collected_manager(NULL, "batches");
    assert_ok(nd_manager_set_quota(manager, ND_FAKE, 1000));
    drop_cycle(manager);
    set_callback(manager, true);
    set_callback(NULL, true);
    nd_memory_request request = prepare(manager, 0, ND_ERROR_OUT_OF_MEMORY);
    assert_refused(&request, ND_ERROR_OUT_OF_MEMORY);
    assert_string_equal(
        nd_error_get_message(),
        "empty: no memory on fake:1 for 64 bytes; 0 fake bytes are live, 77 cached, the limit is "
        "4096; manager \"batches\" and those below it hold 0, of a quota of 1000; largest holders: "
        "none; tried: finished frees taken back (10 bytes), "
        "caches trimmed (200 bytes), cycles collected (5000 bytes), 2 callbacks asked (0 bytes), "
        "device waited for (10 bytes)");
    assert_string_equal(events, "aratafartacartacartawrarta");
    request = prepare(manager, 0, ND_ERROR_OUT_OF_MEMORY);
    wait_answer = false;
    assert_refused(&request, ND_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(nd_error_get_message(), "device waited for, which is not done yet"));
    assert_ok(nd_memory_set_callback(NULL, NULL));
    nd_release(manager);
}

static void test_the_longest_sentence_fits(void **state) {
    (void)state;
    static const char name[] =
        "a manager whose name is as long as the name of a manager can possibly be, and longer";
    static const char type[] = "a resource whose type was given a name that takes up half a line";
    static const char file[] = "a/folder/in/a/folder/in/a/folder/in/a/folder/in/a/folder/with.c";
    static const nd_resource_callbacks callbacks = {.size = sizeof callbacks, .version = 1};
    static const nd_site site = {file, 4000000000u};
    nd_manager *manager = collected_manager(NULL, name);
    assert_ok(nd_manager_set_quota(manager, ND_CPU, UINT64_MAX));
    set_callback(manager, true);
    nd_resource *held[4];
    nd__site = &site;
    nd_with_manager(manager) {
        for (size_t i = 0; i < 4; i++)
            held[i] = nd_resource_new(type, memory, (UINT64_C(1) << 60) - 4096 + i, &callbacks);
    }
    nd__site = NULL;
    nd_memory_request request = prepare(manager, 0, ND_ERROR_OUT_OF_MEMORY);
    request.kind = ND_CPU;
    request.operation = "an operation whose name is longer than that of any that there are, by far";
    void *pointer = NULL;
    assert_int_equal(nd__ladder_alloc(&request, &pointer), ND_ERROR_OUT_OF_MEMORY);
    const char *message = nd_error_get_message();
    assert_true(strlen(message) < 1000);
    static const char end[] = "device waited for (10 bytes)";
    assert_string_equal(message + strlen(message) - strlen(end), end);
    const char *all = strstr(message, "4611686018427371526 bytes together made at ...");
    assert_non_null(all); // of one line, its file's name from behind
    assert_non_null(strstr(all, "folder/with.c:4000000000"));
    nd_resource *more = NULL;
    nd_with_manager(manager) {
        more = nd_resource_new(type, memory, SIZE_MAX, &callbacks);
    }
    assert_null(more);
    assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
    assert_true(strlen(nd_error_get_message()) < 1000);
    assert_non_null(strstr(nd_error_get_message(), "callbacks asked"));
    for (size_t i = 0; i < 4; i++)
        nd_release(held[i]);
    nd_release(manager);
}

// ------------------------------------------------------------------------------------------ quotas

static void test_a_quota_refuses_before_the_device_is_asked(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "small");
    assert_ok(nd_manager_set_quota(manager, ND_FAKE, 59));
    nd_memory_request request = prepare(manager, 'a', ND_OK);
    enough_times = 0;
    assert_refused(&request, ND_ERROR_QUOTA);
    assert_string_equal(events, "");
    assert_string_equal(nd_error_get_message(),
                        "empty: 60 fake bytes do not fit into manager \"small\": quota 59, live "
                        "0; largest holders: none; tried: "
                        "nothing, as the collector is off and no callback is set");
    nd_release(manager);
}

static bool raise_quota(const nd_memory_pressure *pressure, void *data) {
    assert_true(pressure->quota);
    assert_int_equal(pressure->bytes, 60);
    assert_int_equal(pressure->kind, ND_FAKE);
    happened('c');
    assert_ok(nd_manager_set_quota(data, ND_FAKE, 60));
    return true;
}

static void test_a_quota_walks_the_rungs_that_help_it(void **state) {
    (void)state;
    nd_manager *manager = collected_manager(NULL, "small");
    assert_ok(nd_manager_set_quota(manager, ND_FAKE, 59));
    drop_cycle(manager);
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = raise_quota;
    callback.data = manager;
    assert_ok(nd_memory_set_callback(manager, &callback));
    nd_memory_stats before = stats_now();
    nd_memory_request request = prepare(manager, 'a', ND_OK);
    enough_times = 0;
    assert_obtained(&request);
    assert_string_equal(events, "fca");
    nd_memory_stats after = stats_now();
    assert_int_equal(after.walks, before.walks + 1);
    assert_int_equal(after.quota_walks, before.quota_walks + 1);
    assert_int_equal(after.stages[ND_MEMORY_STAGE_CALLBACK].enough,
                     before.stages[ND_MEMORY_STAGE_CALLBACK].enough + 1);
    assert_int_equal(after.stages[ND_MEMORY_STAGE_TRIM].reached,
                     before.stages[ND_MEMORY_STAGE_TRIM].reached);
    nd_release(manager);
}

static void test_statistics_want_their_version(void **state) {
    (void)state;
    nd_memory_stats stats = {0};
    assert_int_equal(nd_memory_get_stats(NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_memory_get_stats(&stats), ND_ERROR_INVALID_ARGUMENT);
    assert_non_null(strstr(nd_error_get_message(), "ND_MEMORY_STATS_INIT"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_plain_success_walks_nothing),
        ND_TEST(test_each_rung_alone_is_enough),
        ND_TEST(test_what_a_rung_gave_up_may_have_to_be_trimmed_first),
        ND_TEST(test_rungs_that_do_not_apply_are_left_out),
        ND_TEST(test_the_collector_goes_up_as_long_as_it_is_not_enough),
        ND_TEST(test_behind_a_callback_that_gives_nothing_up_too),
        ND_TEST(test_a_quota_that_is_used_up_meanwhile),
        ND_TEST(test_what_is_released_while_the_device_is_waited_for_is_waited_for),
        ND_TEST(test_a_broken_device_is_not_asked_twice),
        ND_TEST(test_a_device_that_breaks_meanwhile_ends_the_walk),
        ND_TEST(test_success_leaves_the_error_that_was_there),
        ND_TEST(test_giving_up_says_what_there_is_and_what_was_tried),
        ND_TEST(test_the_longest_sentence_fits),
        ND_TEST(test_a_quota_refuses_before_the_device_is_asked),
        ND_TEST(test_a_quota_walks_the_rungs_that_help_it),
        ND_TEST(test_statistics_want_their_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
