// What most tests of lifetimes say again and again: make a manager or fail, put something into it,
// close it, ask it.
//
// Include after "tests/testing.h". Creation sites of what is made here name this file.
#ifndef ND_TESTS_BEHAVIOUR_HELPERS_H
#define ND_TESTS_BEHAVIOUR_HELPERS_H
#include "tests/behaviour/cell.h"
#include "tests/testing.h"

static inline nd_manager *manager_new(const nd_manager *parent, const char *name) {
    nd_manager *manager = nd_manager_new(parent, name);
    assert_handle(manager);
    return manager;
}

static inline nd_manager_stats stats_of(const nd_manager *manager) {
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(manager, &stats));
    return stats;
}

/// Whatever happened to a manager, its counters add up.
static inline void assert_balanced(const nd_manager *manager) {
    nd_manager_stats s = stats_of(manager);
    assert_int_equal(s.created_objects + s.arrived_objects,
                     s.freed_objects + s.collected_objects + s.departed_objects + s.live_objects);
    assert_true(s.tracked_objects <= s.live_objects);
    assert_true(s.escaped_objects <= s.departed_objects);
}

static inline nd_close_report close_and_release(nd_manager *manager) {
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(manager, &report));
    assert_balanced(manager);
    nd_release(manager);
    return report;
}

static inline nd_object *cell_in(const nd_manager *manager, uint32_t number, uint32_t edges) {
    nd_object *object = NULL;
    nd_with_manager(manager) {
        object = cell_new(number, edges);
    }
    assert_handle(object);
    return object;
}

/// Garbage: so many rings of two cells, with the number 0.
static inline void drop_pairs(const nd_manager *manager, uint32_t count) {
    nd_with_manager(manager) for (uint32_t i = 0; i < count; i++) cell_drop_ring(0, 2);
}

/// A resource that accounts for bytes which nobody allocates. NULL with an error when they do not
/// fit.
static inline nd_resource *bytes_in(const nd_manager *manager, size_t bytes) {
    static char nowhere[1];
    static const nd_resource_callbacks callbacks = {.size = sizeof callbacks, .version = 1};
    nd_resource *resource = NULL;
    nd_with_manager(manager) {
        resource = nd_resource_new("buffer", nowhere, bytes, &callbacks);
    }
    return resource;
}

static inline nd_tensor *ones_in(const nd_manager *manager, int64_t count) {
    nd_tensor *tensor = NULL;
    nd_with_manager(manager) {
        tensor = nd_ones(ND_SHAPE(count), ND_F32);
    }
    assert_handle(tensor);
    return tensor;
}

/// Bytes of the manager's own, of the memory that the test's tensors are in.
static inline uint64_t own_bytes(const nd_manager *manager) {
    return stats_of(manager).live_bytes[nd_test_device().kind];
}

/// Element i of a tensor of one axis, wherever that is.
static inline double element_of(const nd_tensor *x, int64_t i) {
    nd_auto nd_tensor *element = nd_select(x, i, 0);
    assert_handle(element);
    return nd_get_item(element);
}

/// Collects below a manager (NULL: everything); no type may have lied.
static inline nd_gc_report collect(const nd_manager *manager) {
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(manager, &report));
    assert_int_equal(report.broken_objects, 0);
    return report;
}

#endif
