// Lifetimes on the fake device, or on CUDA's (late.h), which queues work like a GPU and poisons what is given back: B1,
// B10, B11, B17, B23, G13, G14, F17 on devices whose memory the host cannot see, and cycles that go
// through two kinds of memory.
#include "tests/behaviour/helpers.h"
#include "tests/behaviour/late.h"
#include <math.h>
#include <stdlib.h>

static const nd_device cpu = {ND_CPU, 0};
static const nd_device fakes[2] = {{LATE, 0}, {LATE, 1}};

static nd_tensor *ones_on(nd_device device, int64_t count) {
    nd_device before = nd_get_default_device();
    assert_ok(nd_set_default_device(device));
    nd_tensor *tensor = nd_ones(ND_SHAPE(count), ND_F32);
    assert_ok(nd_set_default_device(before));
    assert_handle(tensor);
    return tensor;
}

static uint64_t bytes_on(const nd_manager *manager, nd_device_kind kind) {
    return stats_of(manager).subtree_bytes[kind];
}

static double sum_of(const nd_tensor *x) {
    nd_auto nd_tensor *sum = nd_sum(x, 0, NULL, false);
    assert_handle(sum);
    return nd_get_item(sum);
}

static void assert_devices_are_empty(void) {
    for (int i = 0; i < 2; i++)
        assert_ok(nd_synchronize(fakes[i]));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(late_pending(i), 0);
        assert_int_equal(late_live_blocks(i), 0);
    }
}

static void test_B01_inner_temporary_dies_with_inner_scope_on_a_device(void **state) {
    (void)state;
    assert_int_equal(nd_get_device_count(LATE), 2);
    ND_SCOPE {
        const nd_tensor *outer = nd_tmp(ones_on(fakes[0], 100));
        const nd_tensor *moved = NULL;
        ND_SCOPE {
            const nd_tensor *inner = nd_tmp(nd_add(outer, outer));
            assert_handle(nd_tmp(nd_mul(inner, inner)));
            moved = nd_tmp(nd_mul(inner, outer));
            assert_ok(nd_scope_move_out(moved));
            assert_int_equal(bytes_on(NULL, LATE), 4 * 400);
        }
        assert_int_equal(bytes_on(NULL, LATE), 2 * 400);
        assert_true(sum_of(moved) == 200);
    }
    assert_int_equal(bytes_on(NULL, LATE), 0);
    assert_devices_are_empty();
}

static void test_B10_close_with_nothing_retained_leaves_nothing_on_any_device(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    nd_manager *m = nd_manager_new(NULL, "m");
    nd_with_manager(m) {
        // A ring of two cells with memory on three devices, views of it, and temporaries.
        nd_object *ring[2] = {cell_new(0, 4), cell_new(1, 1)};
        cell_ring(ring, 2);
        for (uint32_t i = 0; i < 3; i++) {
            nd_auto nd_tensor *x = ones_on(i ? fakes[i - 1] : cpu, 1000);
            nd_auto nd_tensor *y = nd_add(x, x);
            nd_auto nd_tensor *view = nd_slice(y, 1, 3, 1, 0);
            cell_link(ring[0], 1 + i, view);
        }
        nd_release(ring[0]);
        nd_release(ring[1]);
    }
    assert_int_equal(bytes_on(m, ND_CPU), 4000);
    assert_int_equal(bytes_on(m, LATE), 8000);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(m, &report));
    assert_int_equal(report.escaped_objects, 0);
    assert_int_equal(report.collected_bytes, 12000);
    assert_int_equal(cell_total_deaths(), 2);
    for (int kind = 0; kind <= (int)LATE; kind++)
        assert_int_equal(bytes_on(NULL, (nd_device_kind)kind), 0);
    nd_release(m);
    assert_devices_are_empty();
}

static void test_B11_disposed_device_tensor_gives_its_memory_back(void **state) {
    (void)state;
    nd_manager *m = nd_manager_new(NULL, "m");
    nd_tensor *x = NULL;
    nd_with_manager(m) {
        x = ones_on(fakes[1], 100);
    }
    assert_ok(nd_manager_dispose(m, NULL));
    assert_devices_are_empty();
    nd_error_clear();
    assert_null(nd_add(x, x));
    assert_int_equal(nd_error_get_status(), ND_ERROR_CLOSED);
    assert_true(isnan(nd_get_item(x)));
    nd_release(x);
    nd_release(m);
}

static void test_B17_quota_counts_each_kind_of_memory_by_itself(void **state) {
    (void)state;
    nd_manager *m = nd_manager_new(NULL, "small device");
    assert_ok(nd_manager_set_quota(m, LATE, 1000));
    nd_with_manager(m) {
        nd_auto nd_tensor *on_cpu = ones_on(cpu, 10000);
        nd_auto nd_tensor *fits = ones_on(fakes[0], 250);
        nd_error_clear();
        assert_null(nd_add(fits, fits));
        assert_int_equal(nd_error_get_status(), ND_ERROR_QUOTA);
        assert_non_null(strstr(nd_error_get_message(), "small device"));
        assert_null(nd_to(on_cpu, fakes[0]));
        assert_int_equal(bytes_on(m, LATE), 1000);
    }
    assert_ok(nd_manager_close(m, NULL));
    nd_release(m);
    assert_devices_are_empty();
}

static void test_B23_device_view_keeps_its_storage(void **state) {
    (void)state;
    nd_tensor *x = ones_on(fakes[0], 1000);
    nd_tensor *view = nd_slice(x, 999, 1000, 1, 0);
    nd_release(x);
    assert_int_equal(bytes_on(NULL, LATE), 4000);
    assert_int_equal(nd_get_storage_bytes(view), 4000);
    assert_true(nd_get_item(view) == 1.0);
    assert_null(nd_get_data(view)); // the host cannot see it
    nd_release(view);
    assert_devices_are_empty();
}

static void test_G13_cycle_across_managers_with_device_memory(void **state) {
    (void)state;
    nd_gc_set_mode(ND_GC_ON);
    cell_begin(2);
    nd_manager *closing = nd_manager_new(NULL, "closing"), *open = nd_manager_new(NULL, "open");
    const nd_manager *homes[2] = {closing, open};
    nd_object *ring[2] = {NULL, NULL};
    for (uint32_t i = 0; i < 2; i++) {
        nd_with_manager(homes[i]) {
            ring[i] = cell_new(i, 2);
            nd_auto nd_tensor *memory = ones_on(fakes[i], 1000);
            cell_link(ring[i], 1, memory);
        }
    }
    cell_ring(ring, 2);
    nd_release(ring[0]);
    nd_release(ring[1]);
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(closing, &report));
    assert_int_equal(report.collected_bytes, 8000);
    assert_devices_are_empty();
    nd_release(closing);
    assert_ok(nd_manager_close(open, NULL));
    nd_release(open);
}

static nd_tensor *no_hook(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    (void)context;
    return NULL;
}

static void test_G14_cycle_across_cpu_and_device_memory(void **state) {
    (void)state;
    // Three leaves on three devices; each one's hook captured the next.
    nd_tensor *leaves[3] = {ones_on(cpu, 1000), ones_on(fakes[0], 1000), ones_on(fakes[1], 1000)};
    for (int i = 0; i < 3; i++)
        assert_ok(nd_set_requires_grad(leaves[i], true));
    for (int i = 0; i < 3; i++)
        assert_ok(nd_register_hook(leaves[i], no_hook, leaves[(i + 1) % 3]));
    nd_release(leaves[0]);
    nd_release(leaves[1]);
    assert_int_equal(collect(NULL).collected_objects, 0);
    assert_true(sum_of(leaves[2]) == 1000);
    nd_release(leaves[2]);
    assert_int_equal(bytes_on(NULL, ND_CPU), 4000);
    assert_int_equal(bytes_on(NULL, LATE), 8000);
    nd_gc_report report = collect(NULL);
    assert_int_equal(report.collected_bytes, 12000);
    assert_int_equal(report.cycles, 1);
    assert_devices_are_empty();
}

static void test_G14_transfer_with_history_and_create_graph(void **state) {
    (void)state;
    {
        nd_auto nd_tensor *x = ones_on(cpu, 100);
        assert_ok(nd_set_requires_grad(x, true));
        nd_auto nd_tensor *there = nd_to(x, fakes[0]);
        nd_auto nd_tensor *square = nd_mul(there, there);
        nd_auto nd_tensor *cube = nd_mul(square, there);
        nd_auto nd_tensor *sum = nd_sum(cube, 0, NULL, false);
        assert_handle(sum);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = true;
        assert_ok(nd_backward(sum, &options));
        assert_int_equal(nd_get_device(nd_get_grad(x)).kind, ND_CPU);
        assert_true(sum_of(nd_get_grad(x)) == 300);
    }
    assert_true(bytes_on(NULL, LATE) > 0); // x -> gradient -> graph -> x, over both
    assert_true(collect(NULL).collected_objects > 0);
    assert_int_equal(bytes_on(NULL, LATE), 0);
    assert_devices_are_empty();
}

static void test_F17_release_with_work_in_flight_neither_waits_nor_harms(void **state) {
    (void)state;
    nd_tensor *x = ones_on(fakes[0], 1000);
    assert_ok(nd_synchronize(fakes[0]));
    late_pause(0);
    nd_tensor *y = nd_add(x, x), *z = nd_mul(y, y);
    assert_handle(z);
    assert_true(late_pending(0) >= 2);
    // Nothing of this has run, and its inputs are given up; a release that waited would wait for
    // ever.
    nd_release(x);
    nd_release(y);
    assert_int_equal(bytes_on(NULL, LATE), 4000);
    late_resume(0);
    assert_true(sum_of(z) == 4000);
    nd_release(z);
    assert_devices_are_empty();
}

static void test_F17_collection_with_work_in_flight(void **state) {
    (void)state;
    cell_begin(1);
    nd_object *ring = cell_new(0, 2);
    nd_tensor *x = ones_on(fakes[0], 1000);
    assert_ok(nd_synchronize(fakes[0]));
    late_pause(0);
    nd_tensor *result = nd_add(x, x);
    cell_link(ring, 0, ring);
    cell_link(ring, 1, x);
    nd_release(x);
    nd_release(ring);
    assert_int_equal(collect(NULL).collected_bytes, 4000);
    late_resume(0);
    assert_true(sum_of(result) == 2000);
    nd_release(result);
    assert_devices_are_empty();
}

static void test_F13_operands_on_different_devices_are_refused(void **state) {
    (void)state;
    nd_tensor *a = ones_on(cpu, 4), *b = ones_on(fakes[0], 4);
    nd_error_clear();
    assert_null(nd_add(a, b));
    assert_int_equal(nd_error_get_status(), ND_ERROR_DEVICE);
    assert_non_null(strstr(nd_error_get_message(), "cpu"));
    assert_non_null(strstr(nd_error_get_message(), LATE_NAME));
    assert_null(nd_to(a, (nd_device){LATE, 7}));
    nd_release(a);
    nd_release(b);
    assert_devices_are_empty();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_B01_inner_temporary_dies_with_inner_scope_on_a_device),
        ND_TEST(test_B10_close_with_nothing_retained_leaves_nothing_on_any_device),
        ND_TEST(test_B11_disposed_device_tensor_gives_its_memory_back),
        ND_TEST(test_B17_quota_counts_each_kind_of_memory_by_itself),
        ND_TEST(test_B23_device_view_keeps_its_storage),
        ND_TEST(test_G13_cycle_across_managers_with_device_memory),
        ND_TEST(test_G14_cycle_across_cpu_and_device_memory),
        ND_TEST(test_G14_transfer_with_history_and_create_graph),
        ND_TEST(test_F17_release_with_work_in_flight_neither_waits_nor_harms),
        ND_TEST(test_F17_collection_with_work_in_flight),
        ND_TEST(test_F13_operands_on_different_devices_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
