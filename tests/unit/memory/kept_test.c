// Large blocks that are kept for reuse: their sizes, what is found again, and what bounds them.
#include "lib/memory/host.h"
#include "lib/memory/kept.h"
#include "tests/testing.h"
#include <pthread.h>
#include <stdlib.h>

static const uint64_t second = UINT64_C(1000000000);

/// As large as it says it is only on paper: a kept block uses its first bytes.
static void *paper(void) {
    void *block = malloc(sizeof(nd_kept));
    assert_non_null(block);
    return block;
}

static size_t count_and_free(nd_kept *blocks) {
    size_t count = 0;
    for (; blocks; count++) {
        nd_kept *next = blocks->next;
        free(blocks);
        blocks = next;
    }
    return count;
}

static void test_sizes_are_an_eighth_apart_at_most(void **state) {
    (void)state;
    for (size_t bytes = ND__KEPT_LEAST; bytes < (size_t)1 << 40; bytes += bytes / 7 + 13) {
        const size_t size = nd__kept_size(bytes);
        assert_true(size >= bytes && size - bytes <= bytes / 8);
        assert_int_equal(size % 4096, 0);
        assert_int_equal(nd__kept_size(size), size);
    }
}

static void test_a_size_finds_its_own_blocks_the_last_first(void **state) {
    (void)state;
    const size_t one = nd__kept_size(100000), other = nd__kept_size(200000);
    void *first = paper(), *second_one = paper(), *different = paper();
    assert_null(nd__kept_put(first, one, 0));
    assert_null(nd__kept_put(different, other, 0));
    assert_null(nd__kept_put(second_one, one, 0));
    assert_int_equal(nd__kept_bytes(), 2 * one + other);
    assert_ptr_equal(nd__kept_take(one), second_one);
    assert_ptr_equal(nd__kept_take(one), first);
    assert_null(nd__kept_take(one));
    assert_ptr_equal(nd__kept_take(other), different);
    assert_int_equal(nd__kept_bytes(), 0);
    free(first), free(second_one), free(different);
}

static void test_what_nobody_asked_for_in_ten_seconds_comes_back(void **state) {
    (void)state;
    const size_t size = nd__kept_size(ND__KEPT_LEAST);
    void *blocks[3] = {paper(), paper(), paper()};
    assert_null(nd__kept_put(blocks[0], size, 20 * second));
    assert_null(nd__kept_put(blocks[1], 2 * size, 25 * second));
    assert_null(nd__kept_take(4 * size));
    nd_kept *old = nd__kept_put(blocks[2], size, 31 * second);
    assert_ptr_equal(old, blocks[0]);
    assert_null(old->next);
    free(old);
    assert_int_equal(nd__kept_bytes(), 3 * size);
    assert_int_equal(count_and_free(nd__kept_empty()), 2);
    assert_int_equal(nd__kept_bytes(), 0);
}

static void test_more_than_the_limit_comes_back_oldest_first(void **state) {
    (void)state;
    const size_t quarter = ND__KEPT_MOST / 4;
    size_t back = 0;
    for (int i = 0; i < 12; i++) {
        back += count_and_free(nd__kept_put(paper(), quarter, (uint64_t)i));
        assert_true(nd__kept_bytes() <= ND__KEPT_MOST);
    }
    assert_true(back >= 8);
    void *larger = paper();
    nd_kept *all = nd__kept_put(larger, 2 * ND__KEPT_MOST, 13);
    back += count_and_free(all);
    assert_int_equal(back, 13); // which is more than is ever kept
    assert_int_equal(nd__kept_bytes(), 0);
    assert_null(nd__kept_empty());
}

enum { THREADS = 4, ROUNDS = 20000 };

static void *put_and_take(void *argument) {
    const size_t size = nd__kept_size(ND__KEPT_LEAST << (intptr_t)argument % 2);
    for (int i = 0; i < ROUNDS; i++) {
        nd_kept *block = nd__kept_take(size);
        if (!block)
            block = paper();
        count_and_free(nd__kept_put(block, size, (uint64_t)i));
        if (i % 1000 == 0)
            count_and_free(nd__kept_empty());
    }
    return NULL;
}

static void test_threads_find_each_others_blocks(void **state) {
    (void)state;
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_and_take, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    count_and_free(nd__kept_empty());
    assert_int_equal(nd__kept_bytes(), 0);
}

/// Where the system's allocator is in use, blocks of every size come back; huge ones do with every
/// allocator, but under the address sanitizer. What is kept is counted and given back.
static void test_host_blocks_are_kept_and_trimmed(void **state) {
    (void)state;
    nd__host_trim();
    assert_int_equal(nd__kept_bytes(), 0);
    for (size_t bytes = 1000; bytes < (size_t)40 << 20; bytes *= 3) {
        char *block = nd__host_alloc(bytes);
        assert_non_null(block);
        block[0] = block[bytes - 1] = 1;
        nd__host_free(block, bytes);
        const uint64_t kept = nd__kept_bytes();
        char *again = nd__host_alloc(bytes);
        assert_non_null(again);
        assert_true(kept == 0 || bytes < ND__KEPT_LEAST || again == block);
        again[0] = again[bytes - 1] = 2;
        nd__host_free(again, bytes);
    }
    const uint64_t kept = nd__kept_bytes(), given = nd__host_trim();
    assert_true(kept == 0 || (kept > (uint64_t)20 << 20 && given >= kept));
    assert_int_equal(nd__kept_bytes(), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_sizes_are_an_eighth_apart_at_most),
        ND_TEST(test_a_size_finds_its_own_blocks_the_last_first),
        ND_TEST(test_what_nobody_asked_for_in_ten_seconds_comes_back),
        ND_TEST(test_more_than_the_limit_comes_back_oldest_first),
        ND_TEST(test_threads_find_each_others_blocks),
        ND_TEST(test_host_blocks_are_kept_and_trimmed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
