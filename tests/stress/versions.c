// A version that wraps because its object was retained 2^32 times, beside a collector that looks at it
// all the while: what is held lives, and what nobody holds any more is found.
#include "lib/object/object.h"
#include "tests/behaviour/helpers.h"
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { BEYOND = 1000 }; ///< retains after the wrap
static const uint64_t all_versions = UINT64_C(1) << 32;

static nd_manager *manager;
static atomic_bool done;

/// Collects about a thousand times a second, with the passes in one go and in steps by turns.
static void *collect_on_and_on(void *data) {
    uint64_t *collections = data;
    nd_gc_policy policy = ND_GC_POLICY_INIT;
    for (; !atomic_load(&done); ++*collections) {
        policy.pause_ns = *collections % 2 ? 1 : 0;
        nd_gc_report report = ND_GC_REPORT_INIT;
        if (nd_manager_set_gc_policy(manager, &policy) != ND_OK ||
            nd_gc_collect(manager, &report) != ND_OK || report.collected_objects != 0)
            abort();
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return NULL;
}

static uint32_t version_of(const nd_object *object) {
    return (uint32_t)(nd__atomic_load(&((nd_object *)(uintptr_t)object)->word, relaxed) >> 32);
}

/// Retains and releases, always with a handle more than the cycle has edges.
static void retain_often(nd_object *object, uint64_t times) {
    for (uint64_t i = 0; i < times; i++) {
        nd_object *handle = nd_retain(object);
        nd_release(handle);
    }
}

static void test_G33_retains_alone_wrap_a_version(void **state) {
    (void)state;
    cell_begin(2);
    manager = manager_new(NULL, "versions");
    nd_object *ring[2] = {cell_in(manager, 0, 1), cell_in(manager, 1, 1)};
    cell_ring(ring, 2);
    nd_release(ring[1]);
    uint64_t collections = 0;
    pthread_t collector;
    atomic_store(&done, false);
    assert_int_equal(pthread_create(&collector, NULL, collect_on_and_on, &collections), 0);
    uint32_t before = version_of(ring[0]);
    retain_often(ring[0], all_versions + BEYOND);
    atomic_store(&done, true);
    pthread_join(collector, NULL);
    assert_true(collections > 0);
    // A collection in steps holds its candidates, which are retains as well.
    assert_in_range(version_of(ring[0]) - before, BEYOND, BEYOND + 8 * collections);
    assert_int_equal(nd_get_count(ring[0]), 2);
    assert_int_equal(cell_total_deaths(), 0);
    nd_release(ring[0]);
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(manager, &report));
    assert_int_equal(report.collected_objects, 2);
    assert_int_equal(cell_total_deaths(), 2);
    close_and_release(manager);
    cell_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {ND_TEST(test_G33_retains_alone_wrap_a_version)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
