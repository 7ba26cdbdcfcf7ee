// The kinds of devices in a program that brings none of its own, as every user's is: those of
// <nd/base.h> and no other.
#include "tests/testing.h"
#include <nd/nd.h>
#include <string.h>

static const nd_device beyond = {ND_DEVICE_KIND_COUNT, 0};

static void assert_no_kind(nd_status status, nd_status expected) {
    assert_int_equal(status, expected);
    assert_non_null(strstr(nd_error_get_message(), "device kind 2"));
    nd_error_clear();
}

static void test_the_numbers_stay(void **state) {
    (void)state;
    assert_int_equal(ND_CPU, 0);
    assert_int_equal(ND_CUDA, 1);
    assert_int_equal(ND_DEVICE_KIND_COUNT, 2);
}

static void test_no_kind_beyond_has_a_device(void **state) {
    (void)state;
    for (int kind = ND_DEVICE_KIND_COUNT; kind <= ND_MAX_DEVICE_KINDS; kind++) {
        assert_int_equal(nd_get_device_count((nd_device_kind)kind), 0);
        assert_int_equal(nd_memory_trim((nd_device_kind)kind), 0);
        assert_int_equal(nd_memory_get_cached((nd_device_kind)kind), 0);
    }
    assert_no_kind(nd_set_default_device(beyond), ND_ERROR_DEVICE);
    assert_no_kind(nd_synchronize(beyond), ND_ERROR_DEVICE);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2), ND_F32);
    assert_null(nd_to(x, beyond));
    assert_no_kind(nd_error_get_status(), ND_ERROR_DEVICE);
}

static void test_no_bounds_for_a_kind_beyond(void **state) {
    (void)state;
    nd_auto nd_manager *m = nd_manager_new(NULL, "m");
    assert_no_kind(nd_manager_set_quota(m, ND_DEVICE_KIND_COUNT, 1), ND_ERROR_INVALID_ARGUMENT);
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    policy.allocated_bytes[ND_DEVICE_KIND_COUNT] = 1000;
    assert_no_kind(nd_manager_set_gc_policy(m, &policy), ND_ERROR_UNSUPPORTED);
    policy.allocated_bytes[ND_DEVICE_KIND_COUNT] = 0;
    policy.allocated_bytes[ND_CUDA] = 1000;
    assert_ok(nd_manager_set_gc_policy(m, &policy));
    memset(policy.allocated_bytes, 0xff, sizeof policy.allocated_bytes);
    assert_ok(nd_manager_get_gc_policy(m, &policy));
    assert_int_equal(policy.allocated_bytes[ND_CUDA], 1000);
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    memset(stats.live_bytes, 0xff, sizeof stats.live_bytes);
    assert_ok(nd_manager_get_stats(NULL, &stats));
    for (int kind = ND_DEVICE_KIND_COUNT; kind < ND_MAX_DEVICE_KINDS; kind++) {
        assert_int_equal(policy.allocated_bytes[kind], 0);
        assert_int_equal(stats.live_bytes[kind], 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_the_numbers_stay),
        ND_TEST(test_no_kind_beyond_has_a_device),
        ND_TEST(test_no_bounds_for_a_kind_beyond),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
