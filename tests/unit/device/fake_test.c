// The fake device: order, poison, and failures that show later.
#include "lib/base/alloc.h"
#include "lib/device/backends.h"
#include "lib/device/fake/fake.h"
#include "lib/device/registry.h"
#include "lib/manager/request.h"
#include "lib/memory/host.h"
#include "tests/testing.h"
#include <pthread.h>

static const nd_backend *fake;

static float *allocate(int index, size_t count) {
    void *pointer = NULL;
    assert_ok(fake->allocate(index, count * sizeof(float), &pointer));
    return pointer;
}

static void release(int index, float *pointer, size_t count) {
    fake->release(index, pointer, count * sizeof(float));
}

/// out = x, or out = value when x is NULL; contiguous.
static nd_kernel_call call_for(float *out, float *x, double value, int64_t count) {
    nd_kernel_call call = {
        .op = x ? ND_OP_clone : ND_OP_fill,
        .noperands = x ? 2 : 1,
        .ndim = 1,
        .shape = {count},
        .operand = {{.data = out, .dtype = ND_F32, .strides = {1}},
                    {.data = x, .dtype = ND_F32, .strides = {1}}},
        .attrs.f = {value},
    };
    return call;
}

static void test_fresh_memory_is_poisoned(void **state) {
    (void)state;
    float *block = allocate(0, 8);
    assert_int_equal((uintptr_t)block % 64, 0);
    unsigned char bytes[32];
    assert_ok(fake->copy_to_host(0, bytes, block, sizeof bytes));
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], ND__FAKE_FRESH);
    release(0, block, 8);
    assert_ok(fake->synchronize(0));
    assert_int_equal(nd__fake_live_blocks(0), 0);
}

static void test_host_copies_are_snapshots(void **state) {
    (void)state;
    float *block = allocate(1, 2);
    float source[2] = {1, 2}, back[2] = {0};
    nd__fake_pause(1);
    assert_ok(fake->copy_from_host(1, block, source, sizeof source));
    source[0] = source[1] = -1;
    assert_int_equal(nd__fake_pending(1), 1);
    nd__fake_resume(1);
    assert_ok(fake->copy_to_host(1, back, block, sizeof back));
    assert_true(back[0] == 1 && back[1] == 2);
    release(1, block, 2);
}

static void test_F17_release_waits_for_the_kernels_before_it(void **state) {
    (void)state;
    enum { N = 1000 };
    float *a = allocate(0, N), *b = allocate(0, N);
    float back[N];
    nd__fake_pause(0);
    nd_kernel_call fill = call_for(a, NULL, 3.5, N), copy = call_for(b, a, 0, N);
    assert_ok(fake->launch(0, &fill));
    assert_ok(fake->launch(0, &copy));
    release(0, a, N); // two kernels that use it are still queued
    assert_int_equal(nd__fake_live_blocks(0), 2);
    assert_int_equal(nd__fake_pending(0), 3);
    nd__fake_resume(0);
    assert_ok(fake->copy_to_host(0, back, b, sizeof back));
    for (int i = 0; i < N; i++)
        assert_true(back[i] == 3.5f);
    assert_int_equal(nd__fake_live_blocks(0), 1);
    release(0, b, N);
    assert_ok(fake->synchronize(0));
    assert_int_equal(nd__fake_live_blocks(0), 0);
    assert_int_equal(nd__fake_pending(0), 0);
}

static void test_a_failing_kernel_shows_at_the_next_wait_and_once(void **state) {
    (void)state;
    float *block = allocate(0, 4), back[4];
    nd_kernel_call bad = call_for(block, NULL, 1, 4);
    bad.op = ND_OP_reshape; // no kernel
    assert_ok(fake->launch(0, &bad));
    assert_int_equal(nd_synchronize((nd_device){ND_FAKE, 0}), ND_ERROR_UNSUPPORTED);
    assert_string_equal(nd_error_get_message(), "synchronize: work queued earlier on fake:0 failed "
                                                "with ND_ERROR_UNSUPPORTED");
    assert_ok(fake->launch(0, &bad));
    assert_int_equal(fake->copy_to_host(0, back, block, sizeof back), ND_ERROR_UNSUPPORTED);
    assert_ok(fake->copy_to_host(0, back, block, sizeof back));
    release(0, block, 4);
}

static void test_a_write_past_the_end_shows_at_the_next_wait(void **state) {
    (void)state;
    float *block = allocate(1, 3);
    nd_kernel_call call = call_for(block, NULL, 1, 4); // one too many
    assert_ok(fake->launch(1, &call));
    release(1, block, 3);
    assert_int_equal(fake->synchronize(1), ND_ERROR_DEVICE);
    assert_ok(fake->synchronize(1));
}

static bool refuse(size_t bytes) {
    (void)bytes;
    return true;
}

static void test_F02_without_memory_allocations_and_copies_fail_and_launches_wait(void **state) {
    (void)state;
    float *block = allocate(0, 4), source[4] = {0};
    nd_kernel_call fill = call_for(block, NULL, 1, 4);
    assert_ok(fake->synchronize(0));
    void *pointer = NULL;
    nd__alloc_should_fail = refuse;
    nd_status allocated = fake->allocate(0, 4, &pointer);
    nd_status launched = fake->launch(0, &fill);
    nd_status copied = fake->copy_from_host(0, block, source, sizeof source);
    float back[4] = {0};
    nd_status fetched = fake->copy_to_host(0, back, block, sizeof back);
    release(0, block, 4); // needs no memory
    nd__alloc_should_fail = NULL;
    assert_int_equal(allocated, ND_ERROR_OUT_OF_MEMORY);
    assert_int_equal(launched, ND_OK); // it ran at once
    assert_int_equal(fetched, ND_OK);
    for (int i = 0; i < 4; i++)
        assert_true(back[i] == 1);
    assert_int_equal(copied, ND_ERROR_OUT_OF_MEMORY);
    assert_null(pointer);
    assert_ok(fake->synchronize(0));
    assert_int_equal(nd__fake_live_blocks(0), 0);
    assert_int_equal(fake->allocate(0, SIZE_MAX, &pointer), ND_ERROR_OUT_OF_MEMORY);
}

static void test_waiting_is_bounded_and_finishes_queued_releases(void **state) {
    (void)state;
    float *block = allocate(0, 1 << 16);
    nd__fake_pause(0);
    release(0, block, 1 << 16);
    assert_false(fake->memory->wait(0, 2000000)); // two milliseconds
    assert_int_equal(nd__fake_live_blocks(0), 1);
    nd__fake_resume(0);
    assert_true(fake->memory->wait(0, UINT64_C(60000000000)));
    assert_int_equal(nd__fake_live_blocks(0), 0);
}

static void test_a_little_memory_is_all_there_is(void **state) {
    (void)state;
    nd_memory_usage usage;
    nd__fake_set_memory(0, 1000, false);
    void *block = NULL, *none = NULL, *rest = NULL;
    assert_ok(fake->allocate(0, 600, &block));
    assert_int_equal(fake->allocate(0, 401, &none), ND_ERROR_OUT_OF_MEMORY);
    assert_null(none);
    assert_ok(fake->allocate(0, 400, &rest));
    assert_int_equal(fake->allocate(0, 1, &none), ND_ERROR_OUT_OF_MEMORY);
    fake->memory->usage(0, &usage);
    assert_int_equal(usage.limit, 1000);
    assert_int_equal(usage.cached, 0);
    fake->release(0, block, 600);
    assert_ok(fake->synchronize(0));
    assert_int_equal(fake->memory->retire(0), 0); // nothing is kept: it is back already
    assert_ok(fake->allocate(0, 600, &block));
    fake->release(0, block, 600);
    fake->release(0, rest, 400);
    assert_ok(fake->synchronize(0));
    nd__fake_set_memory(0, 0, false);
}

static nd_memory_device_stats stats_of(int index) {
    nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
    assert_ok(nd_memory_get_device_stats((nd_device){ND_FAKE, index}, &stats));
    return stats;
}

/// The figures of a device and its limit, through the public functions.
static void test_a_limit_of_a_device_and_its_figures(void **state) {
    (void)state;
    const nd_device device = {ND_FAKE, 0};
    nd__fake_set_memory(0, 1000, true);
    assert_true(stats_of(0).total == 1000 && stats_of(0).limit == UINT64_MAX);
    assert_ok(nd_memory_set_limit(device, 500));
    assert_true(stats_of(0).limit == 500 && stats_of(1).limit == UINT64_MAX);
    void *block = NULL, *none = NULL;
    assert_ok(fake->allocate(0, 300, &block));
    assert_int_equal(fake->allocate(0, 201, &none), ND_ERROR_OUT_OF_MEMORY);
    nd_memory_device_stats now = stats_of(0);
    assert_true(now.live == 300 && now.pending == 0 && now.cached == 0 && now.available == 200);
    nd__fake_pause(0);
    fake->release(0, block, 300);
    now = stats_of(0);
    assert_true(now.live == 0 && now.pending == 300 && now.cached == 0);
    nd__fake_resume(0);
    assert_ok(fake->synchronize(0));
    now = stats_of(0);
    assert_true(now.pending == 0 && now.cached == 300 && now.available == 500);
    assert_int_equal(fake->memory->retire(0), 300);
    assert_ok(nd_memory_set_limit(device, 100)); // what is kept and too much goes at once
    now = stats_of(0);
    assert_true(now.cached == 0 && now.available == 100 && now.peak >= 300);
    assert_int_equal(fake->allocate(0, 101, &none), ND_ERROR_OUT_OF_MEMORY);
    assert_ok(nd_memory_set_limit(device, UINT64_MAX));
    assert_ok(fake->allocate(0, 1000, &block));
    fake->release(0, block, 1000);
    assert_ok(fake->synchronize(0));
    nd__fake_set_memory(0, 0, false);
}

static void test_kept_blocks_go_through_the_finished_ones_and_the_cache(void **state) {
    (void)state;
    nd_memory_usage usage;
    nd__fake_set_memory(0, 1000, true);
    void *blocks[2], *block = NULL;
    assert_ok(fake->allocate(0, 600, &blocks[0]));
    assert_ok(fake->allocate(0, 400, &blocks[1]));
    fake->release(0, blocks[0], 600);
    fake->release(0, blocks[1], 400);
    assert_ok(fake->synchronize(0));
    assert_int_equal(nd__fake_live_blocks(0), 0);
    assert_int_equal(fake->allocate(0, 500, &block), ND_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake->memory->trim(0), 0); // none is in the cache yet
    fake->memory->usage(0, &usage);
    assert_int_equal(usage.cached, 1000);
    assert_int_equal(fake->memory->retire(0), 1000);
    assert_int_equal(fake->memory->retire(0), 0);
    assert_ok(fake->allocate(0, 500, &block)); // in the block of 600
    for (int i = 0; i < 500; i++)
        assert_int_equal(((unsigned char *)block)[i], ND__FAKE_FRESH);
    assert_ok(fake->allocate(0, 400, &blocks[1]));
    fake->release(0, blocks[1], 400);
    fake->release(0, block, 500);
    assert_ok(fake->synchronize(0));
    assert_int_equal(fake->memory->retire(0), 1000);
    assert_int_equal(fake->allocate(0, 700, &block), ND_ERROR_OUT_OF_MEMORY);
    assert_int_equal(fake->memory->trim(0), 1000);
    assert_ok(fake->allocate(0, 700, &block)); // new
    nd__fake_set_memory(0, 0, false);
    fake->release(0, block, 700);
    assert_ok(fake->synchronize(0));
}

static void *use_device(void *data) {
    float value = (float)(intptr_t)data;
    for (int i = 0; i < 300; i++) {
        int index = i % 2;
        float *a = NULL, *b = NULL, back[16];
        void *pointer;
        if (fake->allocate(index, sizeof back, &pointer) != ND_OK)
            return "allocate";
        a = pointer;
        if (fake->allocate(index, sizeof back, &pointer) != ND_OK)
            return "allocate";
        b = pointer;
        nd_kernel_call fill = call_for(a, NULL, (double)value, 16), copy = call_for(b, a, 0, 16);
        if (fake->launch(index, &fill) != ND_OK || fake->launch(index, &copy) != ND_OK)
            return "launch";
        fake->release(index, a, sizeof back);
        if (fake->copy_to_host(index, back, b, sizeof back) != ND_OK)
            return "copy";
        fake->release(index, b, sizeof back);
        for (int k = 0; k < 16; k++)
            if (back[k] != value)
                return "value";
    }
    return NULL;
}

static void test_threads_share_the_queues(void **state) {
    (void)state;
    pthread_t threads[4];
    for (intptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use_device, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        if (failed)
            fail_msg("%s", (const char *)failed);
    }
    for (int index = 0; index < 2; index++) {
        assert_ok(fake->synchronize(index));
        assert_int_equal(nd__fake_live_blocks(index), 0);
    }
}

int main(void) {
    fake = nd__registry_backend(ND_FAKE);
    const struct CMUnitTest tests[] = {
        ND_TEST(test_fresh_memory_is_poisoned),
        ND_TEST(test_host_copies_are_snapshots),
        ND_TEST(test_F17_release_waits_for_the_kernels_before_it),
        ND_TEST(test_a_failing_kernel_shows_at_the_next_wait_and_once),
        ND_TEST(test_a_write_past_the_end_shows_at_the_next_wait),
        ND_TEST(test_F02_without_memory_allocations_and_copies_fail_and_launches_wait),
        ND_TEST(test_waiting_is_bounded_and_finishes_queued_releases),
        ND_TEST(test_a_little_memory_is_all_there_is),
        ND_TEST(test_a_limit_of_a_device_and_its_figures),
        ND_TEST(test_kept_blocks_go_through_the_finished_ones_and_the_cache),
        ND_TEST(test_threads_share_the_queues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
