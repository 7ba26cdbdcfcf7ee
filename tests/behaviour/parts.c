// Collections that decide over a few objects at a time, and free them so, while others go on.
#include "lib/core/collection.h"
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
        nd__manager_spread(flooded);
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
    size_t batch = nd__collection_batch;
    // With 8 at a time the 100 that were there are passed unnoticed.
    for (flood_at = 0; flood_at <= 90; flood_at += 30) {
        flood_a_collection(8, false);
        flood_a_collection(8, true);
        flood_a_collection(1, false);
    }
    nd__collection_batch = batch;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_what_was_decided_early_is_looked_at_again_when_there_is_no_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
