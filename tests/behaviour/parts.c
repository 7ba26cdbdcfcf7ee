// Collections that decide over a few objects at a time, and free them so, while others go on.
#include "lib/gc/collection.h"
#include "lib/manager/shard.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <stdlib.h>

enum { OLD = 100, NEW = 2000 }; ///< NEW: more than the memory of the passes has room for beyond OLD

static nd_object *fresh[NEW];
static nd_manager *flooded;
static uint32_t moment, flood_at;

static void *make_many(void *data) {
    (void)data;
    nd_with_manager(flooded) {
        for (uint32_t i = 0; i < NEW; i++)
            if (!(fresh[i] = cell_new(OLD + i, 0)))
                abort();
    }
    return NULL;
}

/// Another thread makes objects while the collector looks at edges; that does not wait for it.
static void flood_when_it_is_time(const nd_object *self) {
    (void)self;
    if (moment++ != flood_at)
        return;
    pthread_t thread;
    if (pthread_create(&thread, NULL, make_many, NULL) != 0)
        abort();
    pthread_join(thread, NULL);
}

static void drop_watched_pairs(const nd_manager *manager, nd_weak **ret_weak) {
    nd_object *pair[2];
    nd_with_manager(manager) {
        for (uint32_t i = 0; i < OLD; i += 2) {
            pair[0] = cell_new_of(&cell_watched_type, i, 1);
            pair[1] = cell_new_of(&cell_watched_type, i + 1, 1);
            cell_ring(pair, 2);
            if (i == 0)
                *ret_weak = nd_weak_new(pair[0]);
            nd_release(pair[0]);
            nd_release(pair[1]);
        }
    }
}

static void flood_a_collection(size_t batch, bool spread) {
    cell_begin(OLD + NEW);
    nd__collection_batch = batch;
    flooded = manager_new(NULL, "flooded");
    if (spread)
        nd__shard_spread(flooded);
    nd_weak *weak = NULL;
    drop_watched_pairs(flooded, &weak);
    moment = 0;
    cell_on_traverse = flood_when_it_is_time;
    nd_gc_report report = collect(flooded);
    cell_on_traverse = NULL;
    assert_true(moment > flood_at);
    assert_int_equal(report.collected_objects, OLD);
    assert_int_equal(report.cycles, OLD / 2);
    assert_null(nd_weak_get(weak));
    nd_release(weak);
    for (uint32_t i = 0; i < NEW; i++)
        nd_release(fresh[i]);
    assert_int_equal(cell_total_deaths(), OLD + NEW);
    close_and_release(flooded);
}

static void test_what_was_decided_early_is_looked_at_again_when_there_is_no_room(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    size_t batch = nd__collection_batch, still_from = nd__collection_still_from;
    nd__collection_still_from = 1; // the first time marks are there when the thread begins
    // With 8 at a time the 100 that were there are passed unnoticed.
    for (flood_at = 0; flood_at <= 90; flood_at += 30) {
        flood_a_collection(8, false);
        flood_a_collection(8, true);
        flood_a_collection(1, false);
    }
    nd__collection_batch = batch;
    nd__collection_still_from = still_from;
}

/// A ring of so many, held by its member number `held`.
static nd_object *ring_held_by(uint32_t size, uint32_t held) {
    nd_object *first = cell_new(0, 1), *last = nd_retain(first), *holder = NULL;
    for (uint32_t i = 1; i <= size; i++) {
        if (i - 1 == held)
            holder = nd_retain(last);
        nd_object *next = i < size ? cell_new(i, 1) : nd_retain(first);
        cell_link(last, 0, next);
        nd_release(last);
        last = next;
    }
    nd_release(last);
    nd_release(first);
    return holder;
}

static void check_marks_of_what_one_handle_holds(size_t still_from) {
    size_t still_from_before = nd__collection_still_from;
    nd__collection_still_from = still_from;
    // Few enough to be marked as they are looked at, and more.
    static const uint32_t sizes[] = {2100, 20000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint32_t held[] = {0, sizes[i] / 2, sizes[i] - 1};
        for (size_t k = 0; k < sizeof held / sizeof held[0]; k++) {
            cell_begin(sizes[i]);
            nd_object *holder = ring_held_by(sizes[i], held[k]);
            assert_int_equal(collect(NULL).collected_objects, 0);
            assert_int_equal(cell_total_deaths(), 0);
            assert_int_equal(nd_get_count(holder), 2);
            nd_release(holder);
            nd_gc_report report = collect(NULL);
            assert_int_equal(report.collected_objects, sizes[i]);
            assert_int_equal(report.cycles, 1);
            assert_int_equal(cell_total_deaths(), sizes[i]);
        }
    }
    nd__collection_still_from = still_from_before;
}

static void test_marks_of_what_is_held_by_one_handle_are_taken_back(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    check_marks_of_what_one_handle_holds(SIZE_MAX);
    check_marks_of_what_one_handle_holds(1);
}

static uint64_t random_state;

static uint32_t random_below(uint32_t limit) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % limit);
}

/// The place of a member's group, by a search that has nothing of the collector's.
static uint32_t group_of(uint32_t *group, uint32_t place) {
    while (group[place] != place)
        place = group[place] = group[group[place]];
    return place;
}

/// Garbage in which edges lead far ahead and far back: most of it is referred to by what is cut
/// later.
static void drop_tangle(uint32_t size, uint32_t *ret_groups) {
    nd_object **cells = calloc(size, sizeof(nd_object *));
    uint32_t *group = calloc(size, sizeof *group);
    assert_non_null(cells);
    assert_non_null(group);
    *ret_groups = size;
    for (uint32_t i = 0; i < size; i++) {
        cells[i] = cell_new(i, 2);
        group[i] = i;
    }
    for (uint32_t i = 0; i < size; i++) {
        // One edge makes rings of three neighbours; some have another one to anywhere.
        uint32_t ring = i / 3 * 3, length = size - ring < 3 ? size - ring : 3;
        for (uint32_t slot = 0; slot < 2; slot++) {
            if (slot == 1 && random_below(4) != 0)
                continue;
            uint32_t to = slot == 0 ? ring + (i - ring + 1) % length : random_below(size);
            cell_link(cells[i], slot, cells[to]);
            uint32_t a = group_of(group, i), b = group_of(group, to);
            *ret_groups -= a != b;
            group[a] = b;
        }
    }
    for (uint32_t i = 0; i < size; i++)
        nd_release(cells[i]);
    free(group);
    free(cells);
}

static void test_garbage_that_refers_to_what_is_cut_earlier_is_freed_once(void **state) {
    (void)state;
    nd_test_collects_by_policy();
    size_t batch = nd__collection_batch, still_from = nd__collection_still_from;
    for (uint32_t round = 0; round < 24; round++) {
        const size_t batches[] = {1, 7, 64, 2048};
        nd__collection_still_from = round < 12 ? 1 : SIZE_MAX;
        nd__collection_batch = batches[round % 4];
        random_state = round + 1;
        uint32_t size = 300 + random_below(4000), groups;
        cell_begin(size);
        drop_tangle(size, &groups);
        nd_gc_report report = collect(NULL);
        assert_int_equal(report.collected_objects, size);
        assert_int_equal(report.cycles, groups);
        assert_int_equal(cell_total_deaths(), size);
    }
    nd__collection_batch = batch;
    nd__collection_still_from = still_from;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        // With one thread first: from the next test on the process has had more.
        ND_TEST(test_marks_of_what_is_held_by_one_handle_are_taken_back),
        ND_TEST(test_garbage_that_refers_to_what_is_cut_earlier_is_freed_once),
        ND_TEST(test_what_was_decided_early_is_looked_at_again_when_there_is_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
