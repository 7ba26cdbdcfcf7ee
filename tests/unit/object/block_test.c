// Blocks: what the library keeps of the memory of objects, what it gives back, and what it says
// when a dead object is used.
#include "lib/object/block.h"
#include "lib/object/checked.h"
#include "tests/behaviour/cell.h"
#include "tests/testing.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/// Bytes of the process that are in memory.
static uint64_t resident_bytes(void) {
    unsigned long pages = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu %lu", &pages, &resident), 2);
    fclose(file);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

typedef struct drawer {
    nd_object **objects;
    size_t count;
} drawer;

static drawer fill(size_t count, uint32_t edges) {
    drawer made = {calloc(count, sizeof *made.objects), count};
    assert_non_null(made.objects);
    for (size_t i = 0; i < count; i++) {
        made.objects[i] = cell_new(0, edges);
        assert_handle(made.objects[i]);
    }
    return made;
}

static void empty(drawer *made) {
    for (size_t i = 0; i < made->count; i++)
        nd_release(made->objects[i]);
    free(made->objects);
}

static void test_B33_a_process_that_was_large_becomes_small_again(void **state) {
    (void)state;
    enum { COUNT = 200000 / ND_TEST_SCALE };
    if (nd__checked_is_on() || ND_TEST_SCALE != 1)
        return; // the tool that watches has the memory, or has more of its own
    cell_begin(1);
    nd__block_trim();
    uint64_t before = resident_bytes(), cached_before = nd__block_cached_bytes();
    drawer made = fill(COUNT, 20);
    uint64_t large = resident_bytes();
    assert_true(large > before + COUNT * UINT64_C(192));
    empty(&made);
    assert_true(nd__block_cached_bytes() > cached_before + COUNT * 192 / 2);
    uint64_t given = nd__block_trim();
    assert_true(given > COUNT * 192 / 2);
    assert_true(nd__block_cached_bytes() < cached_before + (1 << 20));
    assert_true(resident_bytes() < before + (large - before) / 2);
    // What was given back is used again.
    made = fill(COUNT, 20);
    assert_true(resident_bytes() < large + (large - before) / 2);
    empty(&made);
    cell_end();
}

/// A free that finds the depot too large has it swept, and this thread's caches with it; those stay
/// bounded after it.
static void test_a_cache_is_bounded_after_a_sweep(void **state) {
    (void)state;
    enum { COUNT = 50000 / ND_TEST_SCALE };
    if (nd__checked_is_on())
        return;
    cell_begin(1);
    nd__block_trim();
    nd__block_set_limit(256 << 10);
    drawer made = fill(COUNT, 20);
    const size_t bytes = nd__block_size(made.objects[0]);
    empty(&made);
    assert_true(nd__block_cached_bytes() <= 300 << 10);
    size_t cached = 0;
    for (int class = 0; class < ND__BLOCK_CACHED_CLASSES; class ++)
        for (const nd_object *at = nd__block_caches[class].free; at; at = at->next)
            cached++;
    assert_true(cached * bytes <= (ND__BLOCK_CACHED_CLASSES * 16 + 16) << 10);
    nd__block_set_limit(UINT64_MAX);
    nd__block_trim();
}

/// What is too much for long goes when a manager is made, although no batch comes or goes any more.
static void test_a_program_that_became_small_gives_its_blocks_back(void **state) {
    (void)state;
    enum { COUNT = 400000 };
    const uint64_t limit = UINT64_C(64) << 20;
    if (nd__checked_is_on() || ND_TEST_SCALE != 1)
        return;
    cell_begin(1);
    nd__block_trim();
    drawer made = fill(COUNT, 20);
    empty(&made);
    assert_true(nd__block_cached_bytes() > limit);
    nanosleep(&(struct timespec){1, 100000000}, NULL);
    for (int i = 0; i < 1000; i++)
        nd_release(cell_new(0, 20));
    nd_manager *m = nd_manager_new(NULL, "small");
    assert_handle(m);
    nd_release(m);
    assert_true(nd__block_cached_bytes() < limit / 8);
    cell_end();
}

static void test_runs_with_a_survivor_stay(void **state) {
    (void)state;
    enum { COUNT = 20000 / ND_TEST_SCALE };
    cell_begin(COUNT);
    drawer made = fill(COUNT, 1);
    for (size_t i = 0; i < COUNT; i++)
        cell_of(made.objects[i])->number = (uint32_t)i;
    for (size_t i = 0; i < COUNT; i++)
        if (i % 500) {
            nd_release(made.objects[i]);
            made.objects[i] = NULL;
        }
    for (int round = 0; round < 3; round++) {
        nd__block_trim();
        drawer more = fill(COUNT, 1);
        for (size_t i = 0; i < COUNT; i += 500)
            assert_int_equal(cell_of(made.objects[i])->number, i);
        empty(&more);
    }
    empty(&made);
    cell_end();
}

static void test_every_size_is_aligned_and_its_own(void **state) {
    (void)state;
    enum { SIZES = 40, EACH = 70 };
    static nd_type type = {
        .size = sizeof type, .version = 1, .name = "plain", .flags = ND_TYPE_GREEN};
    nd_object *objects[SIZES][EACH];
    for (int round = 0; round < 3; round++) {
        for (size_t i = 0; i < SIZES; i++)
            for (size_t k = 0; k < EACH; k++) {
                size_t size = i < 30 ? i * 37 : (size_t)1 << (i - 20);
                objects[i][k] = nd_object_new(&type, size);
                assert_handle(objects[i][k]);
                assert_int_equal((uintptr_t)objects[i][k] % 64, 0);
                unsigned char *data = nd_object_get_data(objects[i][k]);
                for (size_t at = 0; at < size; at++)
                    assert_int_equal(data[at], 0);
                memset(data, (int)(i * EACH + k) % 255 + 1, size);
            }
        for (size_t i = 0; i < SIZES; i++)
            for (size_t k = 0; k < EACH; k++) {
                size_t size = i < 30 ? i * 37 : (size_t)1 << (i - 20);
                const unsigned char *data = nd_object_get_data(objects[i][k]);
                for (size_t at = 0; at < size; at += 13)
                    assert_int_equal(data[at], (i * EACH + k) % 255 + 1);
                nd_release(objects[i][k]);
            }
        nd__block_trim();
    }
}

// ----------------------------------------------------------------------------------------- threads

enum { SLOTS = 512, THREADS = 4 };
static _Atomic(nd_object *) slots[SLOTS];

/// Makes objects, and releases what other threads have made.
static void *exchange_objects(void *data) {
    enum { ROUNDS = 40000 / ND_TEST_SCALE };
    uint32_t random = (uint32_t)(uintptr_t)data * 2654435761u + 1;
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1664525u + 1013904223u;
        nd_object *mine = cell_new(0, random >> 16 & 31);
        nd_object *other = atomic_exchange(&slots[(random >> 8) % SLOTS], mine);
        nd_release(other);
        if (i % (ROUNDS / 4) == ROUNDS / 8)
            nd__block_trim();
    }
    return NULL;
}

static void test_blocks_travel_between_threads(void **state) {
    (void)state;
    cell_begin(1);
    for (int round = 0; round < 3; round++) {
        pthread_t threads[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, exchange_objects, (void *)i), 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < SLOTS; i++)
        nd_release(atomic_exchange(&slots[i], NULL));
    cell_end();
}

static void *make_and_release(void *data) {
    drawer made = fill(2000, 2);
    empty(&made);
    return data;
}

static void test_threads_that_end_leave_their_blocks_to_others(void **state) {
    (void)state;
    if (nd__checked_is_on())
        return;
    cell_begin(1);
    make_and_release(NULL);
    uint64_t first = 0;
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, make_and_release, NULL), 0);
        pthread_join(thread, NULL);
        if (i == 0)
            first = nd__block_cached_bytes();
    }
    assert_true(nd__block_cached_bytes() <= first + (256 << 10));
    cell_end();
}

static const nd_type bytes_type = {
    .size = sizeof bytes_type, .version = 1, .name = "bytes", .flags = ND_TYPE_GREEN};

/// In a size that no other test here has: the address of an object that is dead by now.
static void *make_one(void *data) {
    nd_object *made = nd_object_new(&bytes_type, 900);
    *(uintptr_t *)data = (uintptr_t)made;
    nd_release(made);
    return NULL;
}

static uintptr_t address_of_one_elsewhere(void) {
    uintptr_t address = 0;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, make_one, &address), 0);
    pthread_join(thread, NULL);
    assert_true(address != 0);
    return address;
}

static void test_a_thread_that_ends_leaves_what_it_has_not_used(void **state) {
    (void)state;
    enum { RUN = 16 << 10 };
    if (nd__checked_is_on())
        return;
    nd__block_trim();
    uint64_t before = nd__block_cached_bytes();
    uintptr_t first = address_of_one_elsewhere();
    assert_true(nd__block_cached_bytes() > before + RUN / 2);
    for (int i = 0; i < 3; i++)
        assert_int_equal(address_of_one_elsewhere() / RUN, first / RUN);
}

/// In sizes that no other test here has, but for the first.
enum { SMALLEST = 900, SIZES_ALONE = 3, APART = 40, MOST_OF_A_RUN = 17 };

static void *make_one_of_each(void *data) {
    for (int i = 0; i < SIZES_ALONE; i++)
        ((nd_object **)data)[i] = nd_object_new(&bytes_type, SMALLEST - (size_t)i * APART);
    return NULL;
}

/// What a run was not cut into is of its class all the same, wherever it goes from there.
static void test_what_was_not_used_keeps_its_class(void **state) {
    (void)state;
    if (nd__checked_is_on())
        return;
    for (int ends = 0; ends < 2; ends++) {
        nd_object *first[SIZES_ALONE], *made[4 * MOST_OF_A_RUN];
        pthread_t thread;
        if (ends) {
            assert_int_equal(pthread_create(&thread, NULL, make_one_of_each, first), 0);
            pthread_join(thread, NULL);
        } else {
            make_one_of_each(first);
            nd__block_trim();
        }
        for (int i = 0; i < SIZES_ALONE; i++) {
            assert_handle(first[i]);
            for (int k = 0; k < 4 * MOST_OF_A_RUN; k++) {
                made[k] = nd_object_new(&bytes_type, SMALLEST - (size_t)i * APART);
                assert_handle(made[k]);
                assert_int_equal(nd__block_size(made[k]), nd__block_size(first[i]));
            }
            for (int k = 0; k < 4 * MOST_OF_A_RUN; k++)
                nd_release(made[k]);
            nd_release(first[i]);
        }
    }
}

static void test_names_of_the_dead_go_with_their_blocks(void **state) {
    (void)state;
    enum { COUNT = 2000 };
    cell_begin(1);
    char name[8] = "";
    for (int round = 0; round < 3; round++) {
        drawer made = fill(COUNT, 3);
        for (size_t i = 0; i < COUNT; i++) {
            assert_string_equal(nd_get_name(made.objects[i], name, sizeof name), "");
            assert_ok(nd_set_name(made.objects[i], "old"));
        }
        empty(&made);
        nd__block_trim();
    }
    cell_end();
}

// ------------------------------------------------------------------------- a sweep beside a thread

enum { LARGE = 100000 };
static pthread_t taker;
static atomic_bool taker_is_awaited, taken;

/// The block that is being swept is the next one that it gets.
static void *take_large(void *data) {
    (void)data;
    nd_object *object = nd_object_new(&bytes_type, LARGE);
    if (object)
        memset(nd_object_get_data(object), 0x5a, LARGE);
    taken = true;
    return object;
}

/// In the place of the system's. It lets another thread run when the pages of a large block are
/// about to go; a tenth of a second is time enough for one that does not wait for the sweep.
int madvise(void *address, size_t bytes, int advice) {
    if (bytes > LARGE && atomic_exchange(&taker_is_awaited, false)) {
        if (pthread_create(&taker, NULL, take_large, NULL) != 0)
            abort();
        for (int i = 0; i < 100 && !taken; i++)
            usleep(1000);
    }
    return (int)syscall(SYS_madvise, address, bytes, advice);
}

static void test_a_block_that_is_swept_is_nobodys(void **state) {
    (void)state;
    if (nd__checked_is_on())
        return;
    nd_release(nd_object_new(&bytes_type, LARGE));
    taken = false;
    taker_is_awaited = true;
    assert_true(nd__block_trim() >= LARGE);
    assert_false(taker_is_awaited);
    void *object = NULL;
    pthread_join(taker, &object);
    assert_handle(object);
    const unsigned char *data = nd_object_get_data(object);
    for (size_t i = 0; i < LARGE; i++)
        assert_int_equal(data[i], 0x5a);
    nd_release((nd_object *)object);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B33_a_process_that_was_large_becomes_small_again),
        ND_TEST(test_a_cache_is_bounded_after_a_sweep),
        ND_TEST(test_a_program_that_became_small_gives_its_blocks_back),
        ND_TEST(test_runs_with_a_survivor_stay),
        ND_TEST(test_every_size_is_aligned_and_its_own),
        ND_TEST(test_blocks_travel_between_threads),
        ND_TEST(test_threads_that_end_leave_their_blocks_to_others),
        ND_TEST(test_a_thread_that_ends_leaves_what_it_has_not_used),
        ND_TEST(test_what_was_not_used_keeps_its_class),
        ND_TEST(test_names_of_the_dead_go_with_their_blocks),
        ND_TEST(test_a_block_that_is_swept_is_nobodys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
