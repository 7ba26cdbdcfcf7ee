// What the library keeps for reuse: a process that was large becomes small again when it says so, and
// what is kept stays within the limit that was set. Looks at what the system says of the process, too.
#include "lib/device/fake/fake.h"
#include "tests/faults/resident.h"
#include "tests/testing.h"
#include <nd/nd.h>
#include <stdlib.h>

#define MIB ((uint64_t)1 << 20)

static nd_memory_cache_stats stats_of(nd_device_kind kind) {
    nd_memory_cache_stats stats = ND_MEMORY_CACHE_STATS_INIT;
    assert_ok(nd_memory_get_cache_stats(kind, &stats));
    return stats;
}

/// Kernels that want working memory: a convolution, a sort, a transform along a middle axis.
static void compute(void) {
    nd_auto nd_tensor *images = nd_rand(nd_key_new(1), ND_SHAPE(4, 8, 64, 64), ND_F32);
    nd_auto nd_tensor *weight = nd_rand(nd_key_new(2), ND_SHAPE(16, 8, 3, 3), ND_F32);
    nd_auto nd_tensor *features = nd_conv2d(images, weight, NULL, NULL);
    nd_auto nd_tensor *order = nd_argsort(features, 1, false);
    nd_auto nd_tensor *softmax = nd_softmax(images, 1);
    assert_non_null(features);
    assert_non_null(order);
    assert_non_null(softmax);
}

/// 200,000 small tensors, 240 MiB of data in tensors of all sizes, and what kernels need. Dies whole.
static void be_large(void) {
    enum { SMALL = 200000, LARGE = 1000 };
    nd_tensor **small = malloc(SMALL * sizeof *small),
              **large = malloc(LARGE * sizeof(nd_tensor *));
    assert_non_null(small);
    assert_non_null(large);
    uint64_t bytes = 0;
    int count = 0;
    for (int i = 0; i < SMALL; i++)
        small[i] = nd_ones(ND_SHAPE(16), ND_F32);
    for (; count < LARGE && bytes < 240 * MIB; count++) {
        int64_t elements = (int64_t)1 << (6 + count * 7 % 17);
        large[count] = nd_ones(ND_SHAPE(elements), ND_F32);
        bytes += (uint64_t)elements * 4;
    }
    compute();
    for (int i = 0; i < SMALL; i++)
        nd_release(small[i]);
    while (count > 0)
        nd_release(large[--count]);
    free(small);
    free(large);
}

static void test_what_was_large_becomes_small(void **state) {
    (void)state;
    compute(); // libraries are loaded, threads have been there
    nd_memory_trim(ND_CPU);
    const uint64_t before = resident();
    be_large();
    const uint64_t kept = nd_memory_get_cached(ND_CPU), large = resident();
    nd_memory_cache_stats stats = stats_of(ND_CPU);
    assert_int_equal(stats.limit, UINT64_MAX);
    assert_true(stats.objects > 8 * MIB);
    assert_true(stats.workspaces > 0);
    assert_true(kept > 0 && large > before);
    nd_memory_trim(ND_CPU);
    const uint64_t after = resident();
    stats = stats_of(ND_CPU);
    print_message("resident: %.1f MiB, at most %.1f, trimmed %.1f; kept then: %.1f and %.1f\n",
                  (double)before / MIB, (double)large / MIB, (double)after / MIB,
                  (double)kept / MIB, (double)nd_memory_get_cached(ND_CPU) / MIB);
    assert_true(after < before + 12 * MIB);
    assert_true(stats.objects < 4 * MIB);
    assert_true(stats.data < MIB);
    assert_int_equal(stats.workspaces, 0);
}

/// So much is kept at most, whatever is freed in whatever order, and the system sees it, too.
static void test_a_limit_holds(void **state) {
    (void)state;
    enum { TENSORS = 64, ROUNDS = 20000 };
    nd_memory_trim(ND_CPU);
    const uint64_t limit = 32 * MIB, before = resident();
    assert_ok(nd_memory_set_cache_limit(ND_CPU, limit));
    nd_tensor *tensors[TENSORS] = {0};
    uint64_t most_data = 0, most_objects = 0;
    unsigned random = 12345;
    for (int round = 0; round < ROUNDS; round++) {
        random = random * 1664525u + 1013904223u;
        nd_tensor **place = &tensors[(random >> 8) % TENSORS];
        nd_release(*place);
        *place = NULL;
        if (random >> 31) // half of the time up to 4 MiB, mostly less
            *place = nd_zeros(ND_SHAPE((int64_t)(random >> 14 & 1023) << (random >> 24 & 7) << 3),
                              ND_F32);
        if (round % 8 == 0) {
            nd_memory_cache_stats stats = stats_of(ND_CPU);
            assert_int_equal(stats.limit, limit);
            most_data = stats.data > most_data ? stats.data : most_data;
            most_objects = stats.objects > most_objects ? stats.objects : most_objects;
        }
    }
    be_large();
    nd_memory_cache_stats stats = stats_of(ND_CPU);
    most_data = stats.data > most_data ? stats.data : most_data;
    most_objects = stats.objects > most_objects ? stats.objects : most_objects;
    for (int i = 0; i < TENSORS; i++)
        nd_release(tensors[i]);
    const uint64_t after = resident();
    stats = stats_of(ND_CPU);
    print_message("now %.1f of data, %.1f of objects, %.1f of working memory\n",
                  (double)stats.data / MIB, (double)stats.objects / MIB,
                  (double)stats.workspaces / MIB);
    print_message("kept at most %.1f MiB of data, %.1f of objects; resident %.1f, then %.1f\n",
                  (double)most_data / MIB, (double)most_objects / MIB, (double)before / MIB,
                  (double)after / MIB);
    assert_true(most_data <= limit / 4 * 3 * 9 / 8);
    assert_true(most_objects <= limit / 4 + MIB);
    assert_true(after < before + limit + 4 * MIB);
    assert_ok(nd_memory_set_cache_limit(ND_CPU, UINT64_MAX));
    assert_int_equal(stats_of(ND_CPU).limit, UINT64_MAX);
}

static void test_a_limit_of_nothing(void **state) {
    (void)state;
    be_large();
    assert_ok(nd_memory_set_cache_limit(ND_CPU, 0));
    assert_true(stats_of(ND_CPU).data < MIB);
    nd_release(nd_ones(ND_SHAPE(1 << 20), ND_F32));
    assert_true(stats_of(ND_CPU).data < MIB);
    compute();
    assert_true(stats_of(ND_CPU).data < MIB);
    assert_ok(nd_memory_set_cache_limit(ND_CPU, UINT64_MAX));
}

/// The most that the device keeps while tensors of some hundred KiB come and go.
static uint64_t most_kept(nd_device device) {
    uint64_t most = 0;
    for (int i = 0; i < 32; i++) {
        nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(100000 + 5000 * (i % 7)), ND_F32);
        nd_auto nd_tensor *there = nd_to(x, device);
        assert_non_null(there);
        nd_release(there);
        there = NULL;
        assert_ok(nd_synchronize(device));
        nd_memory_cache_stats stats = stats_of(ND_FAKE);
        most = stats.data > most ? stats.data : most;
    }
    return most;
}

static void test_a_limit_of_a_device(void **state) {
    (void)state;
    const nd_device device = {ND_FAKE, 0};
    const uint64_t limit = 2 * MIB;
    nd__fake_set_memory(0, 6 * MIB, true); // so that the ladder takes back what is finished
    const uint64_t unlimited = most_kept(device);
    assert_true(unlimited > 2 * limit);
    assert_ok(nd_memory_set_cache_limit(ND_FAKE, limit));
    assert_true(stats_of(ND_FAKE).data <= limit); // at once
    const uint64_t most = most_kept(device);
    print_message("a device kept %.1f MiB at most, %.1f under the limit\n", (double)unlimited / MIB,
                  (double)most / MIB);
    assert_true(most > limit / 2 && most <= limit);
    nd_memory_cache_stats stats = stats_of(ND_FAKE);
    assert_int_equal(stats.limit, limit);
    assert_int_equal(stats.objects, 0);
    assert_int_equal(stats.workspaces, 0);
    nd_memory_trim(ND_FAKE);
    assert_ok(nd_memory_set_cache_limit(ND_FAKE, UINT64_MAX));
    nd__fake_set_memory(0, 0, false);
}

/// 128 MiB in tensors of one size, which all die at once, as what a collection frees does: memory that is next to each other.
static void make_and_free(int64_t elements) {
    const uint64_t count = 128 * MIB / (uint64_t)(elements * 4);
    nd_tensor **tensors = malloc(count * sizeof *tensors);
    assert_non_null(tensors);
    for (uint64_t i = 0; i < count; i++)
        tensors[i] = nd_ones(ND_SHAPE(elements), ND_F32);
    for (uint64_t i = 0; i < count; i++)
        nd_release(tensors[i]);
    free(tensors);
}

static void test_what_was_freed_at_once_is_used_again(void **state) {
    (void)state;
    static const int64_t sizes[] = {100352, 25000, 5000, 700}; // elements
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        nd_memory_trim(ND_CPU);
        make_and_free(sizes[i]);
        const uint64_t once = resident();
        make_and_free(sizes[i]);
        make_and_free(sizes[i]);
        const uint64_t thrice = resident();
        print_message("%d elements: resident %.1f MiB, then %.1f\n", (int)sizes[i],
                      (double)once / MIB, (double)thrice / MIB);
        assert_true(thrice < once + 16 * MIB);
    }
    nd_memory_trim(ND_CPU);
}

static void test_bad_calls(void **state) {
    (void)state;
    assert_int_equal(nd_memory_set_cache_limit((nd_device_kind)7, 1), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_memory_set_cache_limit((nd_device_kind)-1, 1), ND_ERROR_INVALID_ARGUMENT);
    nd_memory_cache_stats stats = ND_MEMORY_CACHE_STATS_INIT;
    stats.limit = 17;
    assert_int_equal(nd_memory_get_cache_stats((nd_device_kind)7, &stats),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_memory_get_cache_stats(ND_CPU, NULL), ND_ERROR_INVALID_ARGUMENT);
    stats.size = 0;
    assert_int_equal(nd_memory_get_cache_stats(ND_CPU, &stats), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(stats.limit, 17);
    nd_error_clear();
    assert_ok(nd_memory_set_cache_limit(ND_CUDA, MIB)); // with or without a device
    assert_int_equal(stats_of(ND_CUDA).limit, MIB);
    assert_ok(nd_memory_set_cache_limit(ND_CUDA, UINT64_MAX));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_what_was_large_becomes_small),
        ND_TEST(test_a_limit_holds),
        ND_TEST(test_a_limit_of_nothing),
        ND_TEST(test_a_limit_of_a_device),
        ND_TEST(test_what_was_freed_at_once_is_used_again),
        ND_TEST(test_bad_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
