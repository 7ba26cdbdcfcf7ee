// The ladder: which rungs are walked, and what is left when it ends.
#include "lib/core/error.h"
#include "lib/memory/ladder.h"
#include "tests/testing.h"

static int failures_left; // how many of the next allocations fail
static nd_status failure; // and with what
static int allocations, trims;
static nd_weak *relief; // when set, allocations fail while its target lives
static char memory[64];

static nd_status allocate(int index, size_t bytes, void **ret_pointer) {
    assert_int_equal(index, 1);
    assert_int_equal(bytes, 64);
    allocations++;
    nd_object *alive = relief ? nd_weak_get(relief) : NULL;
    nd_object_release(alive);
    if (alive || failures_left-- > 0)
        return failure;
    *ret_pointer = memory;
    return ND_OK;
}

static void trim(int index) {
    assert_int_equal(index, 1);
    trims++;
}

static nd_memory_request prepare(nd_manager *manager, int failing, nd_status status) {
    failures_left = failing;
    failure = status;
    allocations = trims = 0;
    relief = NULL;
    return (nd_memory_request){
        .operation = "empty",
        .manager = manager,
        .kind = ND_FAKE,
        .index = 1,
        .charge = 60,
        .bytes = 64,
        .allocate = allocate,
        .trim = trim,
        .device = "fake",
    };
}

static uint64_t charged(const nd_manager *manager) {
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(manager, &stats));
    return stats.subtree_bytes[ND_FAKE];
}

static void test_plain_success_charges(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_memory_request request = prepare(manager, 0, ND_OK);
    void *pointer = NULL;
    assert_ok(nd__memory_obtain(&request, &pointer));
    assert_ptr_equal(pointer, memory);
    assert_int_equal(allocations, 1);
    assert_int_equal(trims, 0);
    assert_int_equal(charged(manager), 60);
    nd__manager_discharge(manager, ND_FAKE, 60);
    nd_release(manager);
}

static void test_trimming_comes_before_giving_up(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_memory_request request = prepare(manager, 1, ND_ERROR_OUT_OF_MEMORY);
    void *pointer = NULL;
    assert_ok(nd__memory_obtain(&request, &pointer));
    assert_int_equal(allocations, 2);
    assert_int_equal(trims, 1);
    assert_int_equal(nd_error_status(), ND_OK);
    nd__manager_discharge(manager, ND_FAKE, 60);
    nd_release(manager);
}

static void test_the_collector_frees_what_is_needed(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    assert_ok(nd_manager_set_gc_mode(manager, ND_GC_ON));
    nd_memory_request request = prepare(manager, 0, ND_ERROR_OUT_OF_MEMORY);
    nd_with_manager(manager) {
        nd_list *cycle = nd_list_new();
        assert_ok(nd_list_append(cycle, cycle));
        relief = nd_weak_new(cycle);
        nd_release(cycle);
    }
    void *pointer = NULL;
    assert_ok(nd__memory_obtain(&request, &pointer));
    assert_int_equal(allocations, 3);
    assert_null(nd_weak_get(relief));
    nd_release(relief);
    relief = NULL;
    nd__manager_discharge(manager, ND_FAKE, 60);
    nd_release(manager);
}

static void test_giving_up_names_bytes_manager_and_quota(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "batches");
    assert_ok(nd_manager_set_quota(manager, ND_FAKE, 1000));
    nd_memory_request request = prepare(manager, 9, ND_ERROR_OUT_OF_MEMORY);
    void *pointer = NULL;
    assert_int_equal(nd__memory_obtain(&request, &pointer), ND_ERROR_OUT_OF_MEMORY);
    assert_null(pointer);
    assert_string_equal(nd_error_message(),
                        "empty: no memory on fake:1 for 64 bytes; manager \"batches\" and those "
                        "below it hold 0 bytes there, of a quota of 1000");
    assert_int_equal(charged(manager), 0);
    nd_release(manager);
}

static void test_a_broken_device_is_not_asked_twice(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_memory_request request = prepare(manager, 9, ND_ERROR_DEVICE);
    void *pointer = NULL;
    assert_int_equal(nd__memory_obtain(&request, &pointer), ND_ERROR_DEVICE);
    assert_int_equal(allocations, 1);
    assert_int_equal(charged(manager), 0);
    nd_release(manager);
}

static void test_a_quota_refuses_before_the_device_is_asked(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "small");
    assert_ok(nd_manager_set_quota(manager, ND_FAKE, 59));
    nd_memory_request request = prepare(manager, 0, ND_OK);
    void *pointer = NULL;
    assert_int_equal(nd__memory_obtain(&request, &pointer), ND_ERROR_QUOTA);
    assert_int_equal(allocations, 0);
    assert_non_null(strstr(nd_error_message(), "small"));
    nd_release(manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_plain_success_charges),
        ND_TEST(test_trimming_comes_before_giving_up),
        ND_TEST(test_the_collector_frees_what_is_needed),
        ND_TEST(test_giving_up_names_bytes_manager_and_quota),
        ND_TEST(test_a_broken_device_is_not_asked_twice),
        ND_TEST(test_a_quota_refuses_before_the_device_is_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
