// C9 of docs/behaviours.md: the pool of a device at its cap. Each stage of the ladder in turn is what
// helps, what does not fit gets an error that names holders, and random programs never have more
// than they may.
#define ND_TEST_COLLECTS_BY_POLICY
#include "tests/cudart/backend.h"
#include <unistd.h>

#define LIMIT ((uint64_t)1 << 20)
enum { SEEDS = 8, PIECE = 16384 /* elements: 64 KiB */ };

static nd_memory_device_stats memory_of(nd_device device) {
    nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
    assert_ok(nd_memory_get_device_stats(device, &stats));
    return stats;
}

static nd_memory_stage_stats stage_now(nd_memory_stage stage) {
    nd_memory_stats stats = ND_MEMORY_STATS_INIT;
    assert_ok(nd_memory_get_stats(&stats));
    return stats.stages[stage];
}

/// What earlier tests have left in the pool is gone, and the limit holds.
static void begin(uint64_t bytes) {
    assert_ok(nd_synchronize(cuda(0)));
    nd_memory_trim(ND_CUDA);
    assert_ok(nd_memory_set_limit(cuda(0), bytes));
    assert_int_equal(memory_of(cuda(0)).limit, bytes);
}

static void end(void) {
    assert_ok(nd_memory_set_limit(cuda(0), UINT64_MAX));
    assert_int_equal(memory_of(cuda(0)).limit, UINT64_MAX);
    assert_ok(nd_synchronize(cuda(0)));
    assert_int_equal(memory_of(cuda(0)).live, 0);
}

static void assert_within(uint64_t bytes) {
    const nd_memory_device_stats now = memory_of(cuda(0));
    if (now.live + now.pending + now.cached > bytes)
        fail_msg("%llu bytes are live, %llu pending, %llu cached, of %llu",
                 (unsigned long long)now.live, (unsigned long long)now.pending,
                 (unsigned long long)now.cached, (unsigned long long)bytes);
}

/// With half of what it may have alive at most, a program never fails, whatever the sizes, and
/// never has more than it may.
static void test_C09_random_programs_stay_within_the_limit(void **state) {
    (void)state;
    enum { HELD = 8 };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        begin(LIMIT);
        nd_tensor *held[HELD] = {NULL};
        uint64_t random = seed + 1, live = 0;
        for (int step = 0; step < 400; step++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            nd_tensor **place = &held[(random >> 33) % HELD];
            const int64_t elements = 1 + (int64_t)((random >> 40) % (2 * PIECE));
            if (*place)
                live -= (uint64_t)nd_get_numel(*place) * sizeof(float);
            nd_release(*place);
            *place = NULL;
            if (live + (uint64_t)elements * sizeof(float) > LIMIT / 2)
                continue;
            *place = full_on(cuda(0), elements, step);
            assert_handle(*place);
            live += (uint64_t)elements * sizeof(float);
            assert_int_equal(memory_of(cuda(0)).live, live);
            assert_within(LIMIT);
        }
        for (int i = 0; i < HELD; i++)
            nd_release(held[i]);
        end();
    }
}

/// Frees that a stream has not come to: only waiting helps.
static void test_C09_the_device_is_waited_for(void **state) {
    (void)state;
    cudart_set_seed(0); // nothing is done before somebody waits
    begin(LIMIT);
    nd_tensor *pieces[12];
    for (int i = 0; i < 12; i++)
        assert_handle(pieces[i] = full_on(cuda(0), PIECE, i));
    for (int i = 0; i < 12; i++)
        nd_release(pieces[i]);
    assert_true(memory_of(cuda(0)).pending >= 12 * PIECE * sizeof(float));
    const uint64_t before = stage_now(ND_MEMORY_STAGE_WAIT).enough;
    nd_tensor *large = full_on(cuda(0), 12 * PIECE, 1);
    assert_handle(large);
    assert_int_equal(stage_now(ND_MEMORY_STAGE_WAIT).enough, before + 1);
    assert_within(LIMIT);
    nd_release(large);
    end();
}

/// What the pool keeps goes back for a request that fits into none of it.
static void test_C09_the_cache_makes_room(void **state) {
    (void)state;
    begin(LIMIT);
    nd_tensor *pieces[12];
    for (int i = 0; i < 12; i++)
        assert_handle(pieces[i] = full_on(cuda(0), PIECE, i));
    for (int i = 0; i < 12; i++)
        nd_release(pieces[i]);
    assert_ok(nd_synchronize(cuda(0)));
    assert_true(memory_of(cuda(0)).cached > 0);
    nd_tensor *large = full_on(cuda(0), 15 * PIECE, 1);
    assert_handle(large);
    assert_within(LIMIT);
    nd_release(large);
    end();
}

/// A dead cycle with data of the device.
static void drop_cycle(int64_t elements) {
    nd_auto nd_list *cycle = nd_list_new();
    nd_auto nd_tensor *data = full_on(cuda(0), elements, 1);
    assert_handle(data);
    assert_ok(nd_list_append(cycle, cycle));
    assert_ok(nd_list_append(cycle, data));
}

/// A program whose dead cycles hold the device goes on.
static void test_C09_dead_cycles_are_collected(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        begin(LIMIT);
        nd_gc_set_mode(ND_GC_ON);
        const nd_memory_stage_stats before = stage_now(ND_MEMORY_STAGE_COLLECT);
        for (int i = 0; i < 100; i++) {
            drop_cycle(PIECE);
            assert_within(LIMIT);
        }
        // What was collected may still have to be waited for.
        const nd_memory_stage_stats after = stage_now(ND_MEMORY_STAGE_COLLECT);
        assert_true(after.reached > before.reached);
        assert_true(after.bytes >= before.bytes + 80 * PIECE * sizeof(float));
        assert_ok(nd_gc_collect(NULL, NULL));
        nd_gc_set_mode(ND_GC_OFF);
        end();
    }
}

static uint64_t bytes_below(const nd_manager *manager) {
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(manager, &stats));
    return stats.subtree_bytes[ND_CUDA];
}

/// A manager's quota of device memory counts what is the manager's, whatever the device has beside.
/// Dead cycles are collected for it; what does not fit is told with the manager's name.
static void test_C09_quotas_of_managers(void **state) {
    (void)state;
    enum { BYTES = PIECE * sizeof(float) };
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        cudart_set_seed(seed);
        begin(LIMIT);
        nd_gc_set_mode(ND_GC_ON);
        nd_tensor *outside = full_on(cuda(0), 2 * PIECE, 1);
        nd_manager *manager = nd_manager_new(NULL, "tenant");
        assert_handle(manager);
        assert_ok(nd_manager_set_quota(manager, ND_CUDA, 4 * BYTES));
        nd_with_manager(manager) {
            for (int i = 0; i < 50; i++) {
                drop_cycle(PIECE);
                assert_true(bytes_below(manager) <= 4 * BYTES);
                assert_within(LIMIT);
            }
            assert_ok(nd_gc_collect(NULL, NULL));
            assert_int_equal(bytes_below(manager), 0);
            nd_tensor *held = full_on(cuda(0), 3 * PIECE, 2);
            assert_handle(held);
            assert_int_equal(bytes_below(manager), 3 * BYTES);
            assert_int_equal(memory_of(cuda(0)).live, 5 * BYTES);
            assert_null(full_on(cuda(0), 2 * PIECE, 3));
            assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
            assert_non_null(strstr(nd_error_get_message(), "tenant"));
            nd_error_clear();
            nd_release(full_on(cuda(0), PIECE, 4));
            nd_release(held);
        }
        assert_int_equal(bytes_below(manager), 0);
        assert_ok(nd_manager_close(manager, NULL));
        nd_release(manager);
        assert_int_equal(memory_of(cuda(0)).live, 2 * BYTES);
        nd_release(outside);
        nd_gc_set_mode(ND_GC_OFF);
        end();
    }
}

static bool give_up(const nd_memory_pressure *pressure, void *data) {
    nd_tensor **kept = data;
    if (!*kept || pressure->kind != ND_CUDA || pressure->quota)
        return false;
    nd_release(*kept);
    *kept = NULL;
    return true;
}

static void test_C09_callbacks_give_up(void **state) {
    (void)state;
    begin(LIMIT);
    nd_tensor *kept = full_on(cuda(0), 12 * PIECE, 1);
    assert_handle(kept);
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_up;
    callback.data = &kept;
    assert_ok(nd_memory_set_callback(NULL, &callback));
    nd_tensor *wanted = full_on(cuda(0), 12 * PIECE, 2);
    assert_handle(wanted);
    assert_null(kept);
    assert_within(LIMIT);
    assert_ok(nd_memory_set_callback(NULL, NULL));
    nd_release(wanted);
    end();
}

/// What does not fit is told with the limit, with who holds the memory and with all that was tried,
/// and nothing is lost.
static void test_C09_the_error_names_limit_holders_and_tries(void **state) {
    (void)state;
    begin(LIMIT);
    nd_gc_set_mode(ND_GC_ON);
    nd_tensor *kept = NULL;
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_up;
    callback.data = &kept;
    assert_ok(nd_memory_set_callback(NULL, &callback));
    nd_tensor *held = full_on(cuda(0), 12 * PIECE, 3);
    assert_handle(held);
    static const char *const words[] = {
        "no memory on cuda:0 for 524288 bytes",
        "the limit is 1048576",
        "largest holders: ",
        "storage of 786432 bytes",
        "finished frees taken back",
        "caches trimmed",
        "cycles collected",
        "1 callbacks asked",
        "device waited for",
    };
    for (int64_t elements = 8 * PIECE; elements < (int64_t)1 << 40; elements *= 1024) {
        nd_error_clear();
        assert_null(full_on(cuda(0), elements, 4));
        assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
        for (size_t i = elements == 8 * PIECE ? 0 : 1; i < sizeof words / sizeof *words; i++)
            if (!strstr(nd_error_get_message(), words[i]))
                fail_msg("\"%s\" is not in: %s", words[i], nd_error_get_message());
        assert_within(LIMIT);
    }
    nd_error_clear();
    assert_ok(nd_memory_set_callback(NULL, NULL));
    nd_gc_set_mode(ND_GC_OFF);
    nd_auto nd_tensor *sum = nd_sum(held, 0, NULL, false);
    assert_true(nd_get_item(sum) == 3.0 * 12 * PIECE);
    nd_release(nd_steal(&sum));
    nd_release(held);
    end();
}

/// A limit below what is in use takes nothing away, and gives nothing out until there is less.
static void test_C09_a_limit_below_what_is_in_use(void **state) {
    (void)state;
    begin(UINT64_MAX);
    nd_tensor *held = full_on(cuda(0), 8 * PIECE, 5);
    assert_handle(held);
    assert_ok(nd_memory_set_limit(cuda(0), 4 * PIECE * sizeof(float)));
    assert_int_equal(memory_of(cuda(0)).available, 0);
    assert_null(full_on(cuda(0), 1, 6));
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    nd_error_clear();
    // The other device has a limit of its own.
    nd_release(full_on(cuda(1), 16 * PIECE, 6));
    float first = 0;
    nd_auto nd_tensor *slice = nd_slice(held, 0, 1, 1, 0);
    assert_ok(nd_copy_to_host(slice, &first, sizeof first));
    assert_true(first == 5);
    nd_release(nd_steal(&slice));
    nd_release(held);
    nd_tensor *small = full_on(cuda(0), PIECE, 7);
    assert_handle(small);
    nd_release(small);
    end();
}

static void ask_inside(void *data) {
    nd_status *answers = data;
    nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
    answers[0] = nd_memory_set_limit(cuda(0), 1);
    nd_error_clear();
    answers[1] = nd_memory_get_device_stats(cuda(0), &stats);
    nd_error_clear();
}

static void test_C09_what_cannot_be_asked(void **state) {
    (void)state;
    nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
    assert_int_equal(nd_memory_set_limit(cpu, LIMIT), ND_ERROR_UNSUPPORTED);
    assert_non_null(strstr(nd_error_get_message(), "quota"));
    nd_error_clear();
    assert_int_equal(nd_memory_set_limit(cuda(99), LIMIT), ND_ERROR_DEVICE);
    nd_error_clear();
    assert_int_equal(nd_memory_get_device_stats(cuda(-1), &stats), ND_ERROR_DEVICE);
    nd_error_clear();
    assert_int_equal(nd_memory_get_device_stats(cuda(0), NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    stats.size = 0;
    assert_int_equal(nd_memory_get_device_stats(cuda(0), &stats), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    nd_status answers[2] = {ND_OK, ND_OK};
    nd_tensor *x = full_on(cuda(0), 1, 1);
    assert_ok(nd_queue_callback(cuda(0), ask_inside, answers, NULL));
    assert_ok(nd_synchronize(cuda(0)));
    assert_int_equal(answers[0], ND_ERROR_STATE);
    assert_int_equal(answers[1], ND_ERROR_STATE);
    nd_release(x);
    const nd_memory_device_stats host = memory_of(cpu);
    assert_int_equal(host.limit, UINT64_MAX);
    assert_int_equal(host.total, UINT64_MAX);
    assert_int_equal(host.pending, 0);
    const nd_memory_device_stats device = memory_of(cuda(0));
    assert_true(device.total > 0 && device.available <= device.total);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_C09_random_programs_stay_within_the_limit),
        ND_TEST(test_C09_the_device_is_waited_for),
        ND_TEST(test_C09_the_cache_makes_room),
        ND_TEST(test_C09_dead_cycles_are_collected),
        ND_TEST(test_C09_quotas_of_managers),
        ND_TEST(test_C09_callbacks_give_up),
        ND_TEST(test_C09_the_error_names_limit_holders_and_tries),
        ND_TEST(test_C09_a_limit_below_what_is_in_use),
        ND_TEST(test_C09_what_cannot_be_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
