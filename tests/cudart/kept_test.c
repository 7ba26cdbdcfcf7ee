// Blocks that a stream keeps for its next allocations (lib/device/cuda/cuda_kept.h): whose they are,
// how many there may be, what they count as, and when they go back.
//
// Run with ND_CUDA_KEEP=1 on devices of 32 MiB, of which a stream may keep 512 KiB.
#include "tests/cudart/streams.h"
#include <pthread.h>

enum { PIECE = 16384 /* elements: 64 KiB */, MOST = 512 << 10, SAME_SIZE = 30 };

static nd_tensor *piece(int64_t elements) {
    nd_tensor *x = full_on(cuda(0), elements, 3);
    assert_handle(x);
    return x;
}

static nd_memory_device_stats memory_now(void) {
    nd_memory_device_stats stats = ND_MEMORY_DEVICE_STATS_INIT;
    assert_ok(nd_memory_get_device_stats(cuda(0), &stats));
    return stats;
}

/// The next allocation of the size has the block, and the runtime hears of neither.
static void test_a_block_is_the_next_ones(void **state) {
    (void)state;
    nd_release(piece(PIECE));
    assert_int_equal(statistics().live_blocks, 1);
    for (int i = 0; i < 100; i++) {
        nd_tensor *x = piece(PIECE);
        assert_int_equal(statistics().live_blocks, 1);
        nd_release(x);
    }
    nd_tensor *other = piece(PIECE + 1);
    assert_int_equal(statistics().live_blocks, 2);
    nd_release(other);
    (void)nd_memory_trim(ND_CUDA);
    assert_int_equal(statistics().live_blocks, 0);
    assert_nothing_left_on_devices();
}

/// It is the stream's behind whose work it was freed, and no other's.
static void test_a_block_is_one_streams(void **state) {
    (void)state;
    nd_stream *stream = stream_on(0);
    nd_release(piece(PIECE));
    const uint64_t kept = statistics().live_blocks;
    nd_tensor *x = NULL;
    nd_with_stream(stream) x = piece(PIECE);
    assert_int_equal(statistics().live_blocks, kept + 1);
    nd_release(x);
    assert_int_equal(statistics().live_blocks, kept + 1);
    nd_with_stream(stream) x = piece(PIECE);
    assert_int_equal(statistics().live_blocks, kept + 1);
    nd_release(x);
    nd_release(stream);
    assert_nothing_left_on_devices();
}

/// What is kept is free: neither live nor on its way back.
static void test_kept_bytes_are_cached(void **state) {
    (void)state;
    // Else the pool may give out a larger piece of what it has, all of which counts as used.
    assert_ok(nd_synchronize(cuda(0)));
    (void)nd_memory_trim(ND_CUDA);
    nd_tensor *x = piece(PIECE);
    assert_int_equal(memory_now().live, PIECE * sizeof(float));
    nd_release(x);
    assert_ok(nd_synchronize(cuda(0)));
    const nd_memory_device_stats now = memory_now();
    assert_int_equal(now.live, 0);
    assert_int_equal(now.pending, 0);
    assert_true(now.cached >= PIECE * sizeof(float));
    assert_int_equal(statistics().live_blocks, 1);
    assert_nothing_left_on_devices();
}

static void test_a_stream_keeps_a_sixty_fourth(void **state) {
    (void)state;
    enum { PIECES = 20, SMALL = 40 };
    nd_tensor *x[SMALL];
    for (int i = 0; i < PIECES; i++)
        x[i] = piece(PIECE);
    for (int i = 0; i < PIECES; i++)
        nd_release(x[i]);
    assert_int_equal(statistics().live_bytes, MOST);
    (void)nd_memory_trim(ND_CUDA);
    for (int i = 0; i < SMALL; i++)
        x[i] = piece(5);
    for (int i = 0; i < SMALL; i++)
        nd_release(x[i]);
    assert_int_equal(statistics().live_blocks, SAME_SIZE);
    // Sizes that share a place take it from each other.
    for (int i = 1; i <= 2000; i++)
        nd_release(piece(i));
    assert_true(statistics().live_blocks <= 128 + SAME_SIZE);
    assert_nothing_left_on_devices();
}

/// From a limit on nothing is kept, until there is none.
static void test_a_limit_ends_it(void **state) {
    (void)state;
    nd_release(piece(PIECE));
    assert_int_equal(statistics().live_blocks, 1);
    assert_ok(nd_memory_set_limit(cuda(0), (uint64_t)8 << 20));
    assert_int_equal(statistics().live_blocks, 0);
    nd_release(piece(PIECE));
    assert_int_equal(statistics().live_blocks, 0);
    assert_ok(nd_memory_set_limit(cuda(0), UINT64_MAX));
    nd_memory_set_cache_limit(ND_CUDA, 1 << 20);
    nd_release(piece(PIECE));
    assert_int_equal(statistics().live_blocks, 0);
    nd_memory_set_cache_limit(ND_CUDA, UINT64_MAX);
    assert_nothing_left_on_devices();
}

/// How many pieces there is room for.
static int64_t room(void) {
    enum { PIECES = 600 };
    static nd_tensor *x[PIECES];
    int64_t count = 0;
    while (count < PIECES && (x[count] = full_on(cuda(0), PIECE - 7, 1)))
        count++;
    assert_int_equal(nd_error_get_status(), ND_ERROR_OUT_OF_MEMORY);
    nd_error_clear();
    for (int64_t i = 0; i < count; i++)
        nd_release(x[i]);
    assert_ok(nd_synchronize(cuda(0)));
    (void)nd_memory_trim(ND_CUDA);
    return count;
}

/// Kept blocks of sizes that nobody wants any more are in nobody's way.
static void test_kept_blocks_make_room(void **state) {
    (void)state;
    const int64_t empty = room();
    for (int i = 0; i < 8; i++)
        nd_release(piece(PIECE + 64 * i));
    // Theirs are 512 KiB, room for eight; the pool cuts its memory otherwise than when it was empty.
    assert_true(statistics().live_blocks >= 6);
    assert_true(room() >= empty - 1);
    assert_nothing_left_on_devices();
}

/// What several streams have used, none of them behind the others, is nobody's to keep.
static void test_what_several_have_used_goes_back(void **state) {
    (void)state;
    const uint64_t before = statistics().live_blocks;
    nd_stream *one = stream_on(0), *other = stream_on(0);
    nd_tensor *x = piece(PIECE), *y = NULL, *z = NULL;
    nd_with_stream(one) y = nd_add(x, x);
    nd_with_stream(other) z = nd_add(x, x);
    nd_release(x);
    assert_ok(nd_synchronize(cuda(0)));
    assert_int_equal(statistics().live_blocks, before + 2);
    assert_true(sum_of(y) == 6.0 * PIECE && sum_of(z) == 6.0 * PIECE);
    nd_release(y);
    nd_release(z);
    nd_release(one);
    nd_release(other);
    assert_nothing_left_on_devices();
}

static void *on_a_thread(void *data) {
    nd_stream *stream = data;
    bool right = true;
    for (int i = 0; i < 200 && right; i++) {
        nd_with_stream(i % 3 == 0 ? stream : NULL) {
            nd_tensor *x = full_on(cuda(0), 100 + i % 4, i);
            nd_tensor *y = nd_add(x, x), *sum = nd_sum(y, 0, NULL, false);
            nd_release(x);
            nd_release(y);
            right = nd_get_item(sum) == 2.0 * i * (100 + i % 4);
            nd_release(sum);
        }
    }
    return right ? data : NULL;
}

static void test_threads_share_what_is_kept(void **state) {
    (void)state;
    enum { THREADS = 4 };
    pthread_t threads[THREADS];
    nd_stream *streams[THREADS];
    for (int i = 0; i < THREADS; i++) {
        streams[i] = stream_on(0);
        assert_int_equal(pthread_create(&threads[i], NULL, on_a_thread, streams[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        void *answer = NULL;
        assert_int_equal(pthread_join(threads[i], &answer), 0);
        assert_ptr_equal(answer, streams[i]);
        nd_release(streams[i]);
    }
    assert_nothing_left_on_devices();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_block_is_the_next_ones),      ND_TEST(test_kept_bytes_are_cached),
        ND_TEST(test_a_stream_keeps_a_sixty_fourth), ND_TEST(test_a_limit_ends_it),
        ND_TEST(test_kept_blocks_make_room),         ND_TEST(test_a_block_is_one_streams),
        ND_TEST(test_threads_share_what_is_kept),    ND_TEST(test_what_several_have_used_goes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
