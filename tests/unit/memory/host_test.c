// Host blocks: alignment, accounting, refusal.
#include "lib/base/alloc.h"
#include "lib/memory/host.h"
#include "tests/testing.h"

static void test_blocks_are_aligned_and_counted(void **state) {
    (void)state;
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 40000, 5 << 20};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    void *blocks[COUNT];
    uint64_t before = nd__host_live_bytes(), expected = before;
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = nd__host_alloc(sizes[i]);
        assert_non_null(blocks[i]);
        assert_int_equal((uintptr_t)blocks[i] % ND__HOST_ALIGNMENT, 0);
        memset(blocks[i], i, sizes[i]);
        expected += sizes[i] ? sizes[i] : 1;
    }
    assert_int_equal(nd__host_live_bytes(), expected);
    for (int i = 0; i < COUNT; i++) {
        const unsigned char *byte = blocks[i];
        assert_true(sizes[i] == 0 || (byte[0] == i && byte[sizes[i] - 1] == i));
        nd__host_free(blocks[i], sizes[i]);
    }
    assert_int_equal(nd__host_live_bytes(), before);
}

static void test_sizes_no_machine_has_are_refused(void **state) {
    (void)state;
    assert_null(nd__host_alloc(SIZE_MAX));
    assert_null(nd__host_alloc(SIZE_MAX / 2));
    assert_null(nd__host_alloc((size_t)1 << 62));
}

static void test_trim_leaves_live_blocks_alone(void **state) {
    (void)state;
    char *block = nd__host_alloc(100000);
    memset(block, 7, 100000);
    nd__host_trim();
    assert_int_equal(block[99999], 7);
    nd__host_free(block, 100000);
    nd__host_free(NULL, 100000);
}

static bool refuse(size_t bytes) {
    (void)bytes;
    return true;
}

static void test_the_hook_of_tests_refuses(void **state) {
    (void)state;
    uint64_t before = nd__host_live_bytes();
    nd__alloc_should_fail = refuse;
    void *block = nd__host_alloc(64);
    nd__alloc_should_fail = NULL;
    assert_null(block);
    assert_int_equal(nd__host_live_bytes(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_blocks_are_aligned_and_counted),
        ND_TEST(test_sizes_no_machine_has_are_refused),
        ND_TEST(test_trim_leaves_live_blocks_alone),
        ND_TEST(test_the_hook_of_tests_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
