// Copies between layouts, dtypes and devices; reading elements.
#include "lib/device/fake/fake.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/tensor.h"
#include "tests/unit/tensor/values.h"
#include <math.h>

static void test_clone_packs(void **state) {
    (void)state;
    nd_device devices[] = {on_cpu, on_fake};
    for (int i = 0; i < 2; i++) {
        nd_tensor *x = counted(devices[i], ND_F32, ND_SHAPE(2, 3)), *t = nd_transpose(x, 0, 1);
        nd_tensor *y = nd_clone(t), *same = nd_contiguous(x), *packed = nd_contiguous(t);
        assert_true(nd_is_contiguous(y) && !nd_is_contiguous(t));
        assert_false(nd_is_view_of(y, x));
        assert_values(y, 0, 3, 1, 4, 2, 5);
        assert_ptr_equal(same, x);
        assert_values(packed, 0, 3, 1, 4, 2, 5);
        nd_tensor *all[] = {x, t, y, same, packed};
        for (int k = 0; k < 5; k++)
            nd_release(all[k]);
    }
}

static void test_cast(void **state) {
    (void)state;
    double data[] = {-1.75, 0, 2.5, 3};
    nd_tensor *x = nd_from_data(data, ND_SHAPE(4), ND_F64);
    nd_tensor *whole = nd_cast(x, ND_I32), *truth = nd_cast(x, ND_BOOL), *same = nd_cast(x, ND_F64);
    nd_tensor *small = nd_cast(x, ND_F32);
    assert_values(whole, -1, 0, 2, 3);
    assert_values(truth, 1, 0, 1, 1);
    assert_values(small, -1.75, 0, 2.5, 3);
    assert_ptr_equal(same, x);
    assert_refused(nd_cast(x, ND_DTYPE_COUNT), ND_ERROR_DTYPE);
    nd_tensor *all[] = {x, whole, truth, same, small};
    for (int k = 0; k < 5; k++)
        nd_release(all[k]);
}

static void test_data_crosses_devices(void **state) {
    (void)state;
    nd_device route[] = {{ND_FAKE, 0}, {ND_FAKE, 1}, {ND_CPU, 0}, {ND_FAKE, 1}};
    nd_tensor *x = counted(on_cpu, ND_I32, ND_SHAPE(3, 2)), *here = nd_to(x, on_cpu);
    assert_ptr_equal(here, x);
    nd_release(here);
    for (int i = 0; i < 4; i++) {
        nd_tensor *moved = nd_to(x, route[i]);
        assert_values(moved, 0, 1, 2, 3, 4, 5);
        assert_int_equal(nd_get_device(moved).kind, route[i].kind);
        assert_int_equal(nd_get_device(moved).index, route[i].index);
        nd_release(x);
        x = moved;
    }
    nd_tensor *t = nd_transpose(x, 0, 1), *back = nd_to(t, on_cpu);
    assert_values(back, 0, 2, 4, 1, 3, 5);
    nd_release(t);
    nd_release(back);
    assert_refused(nd_to(x, (nd_device){ND_FAKE, 2}), ND_ERROR_DEVICE);
    assert_string_equal(nd_error_get_message(), "to: fake:2: there are 2 fake devices");
    nd_release(x);
}

/// y = x for every pair of layouts, dtypes and devices.
static void test_copy_into_any_layout(void **state) {
    (void)state;
    nd_device devices[] = {{ND_CPU, 0}, {ND_FAKE, 0}, {ND_FAKE, 1}};
    nd_dtype dtypes[] = {ND_F32, ND_I64};
    for (int choice = 0; choice < 3 * 3 * 2 * 2 * 2 * 2; choice++) {
        int rest = choice;
        nd_device from = devices[rest % 3], to = devices[rest / 3 % 3];
        rest /= 9;
        nd_dtype from_dtype = dtypes[rest % 2], to_dtype = dtypes[rest / 2 % 2];
        bool from_turned = rest / 4 % 2, to_turned = rest / 8 % 2;
        nd_tensor *x = from_turned ? counted(from, from_dtype, ND_SHAPE(3, 2))
                                   : counted(from, from_dtype, ND_SHAPE(2, 3));
        nd_tensor *y = to_turned ? counted(to, to_dtype, ND_SHAPE(3, 2))
                                 : counted(to, to_dtype, ND_SHAPE(2, 3));
        nd_tensor *source = from_turned ? nd_transpose(x, 0, 1) : nd_retain(x);
        nd_tensor *target = to_turned ? nd_transpose(y, 0, 1) : nd_retain(y);
        assert_ok(nd__copy_into("copy_", target, source));
        if (from_turned)
            assert_values(target, 0, 2, 4, 1, 3, 5);
        else
            assert_values(target, 0, 1, 2, 3, 4, 5);
        nd_release(source);
        nd_release(target);
        nd_release(x);
        nd_release(y);
    }
}

static void test_large_copies_use_the_kernels(void **state) {
    (void)state;
    enum { N = 200000 };
    nd_tensor *x = nd_arange(0, N, 1, ND_I64), *y = nd_clone(x);
    assert_memory_equal(nd_get_data(x), nd_get_data(y), N * sizeof(int64_t));
    nd_release(x);
    nd_release(y);
}

static void test_reading_one_element(void **state) {
    (void)state;
    nd_dtype dtypes[] = {ND_BOOL, ND_U8, ND_I32, ND_I64, ND_F32, ND_F64};
    for (int i = 0; i < 6; i++) {
        nd_tensor *x = nd_scalar(1, dtypes[i]), *y = nd_to(x, on_fake);
        int64_t value = 0;
        assert_true(nd_get_item(x) == 1 && nd_get_item(y) == 1);
        assert_ok(nd_get_item_i64(y, &value));
        assert_int_equal(value, 1);
        nd_release(x);
        nd_release(y);
    }
    nd_tensor *x = nd_scalar(1.5, ND_F32), *two = nd_zeros(ND_SHAPE(2), ND_F32);
    int64_t value = 77;
    assert_int_equal(nd_get_item_i64(x, &value), ND_ERROR_DTYPE);
    assert_int_equal(nd_get_item_i64(x, NULL), ND_ERROR_DTYPE);
    assert_int_equal(nd_get_item_i64(two, &value), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(),
                        "get_item_i64: a tensor of shape [2] has 2 elements, not one");
    assert_int_equal(value, 77);
    assert_true(isnan(nd_get_item(two)) && isnan(nd_get_item(NULL)));
    assert_ok(nd_close(x));
    assert_true(isnan(nd_get_item(x)));
    nd_release(x);
    nd_release(two);
}

static void test_copy_to_host_checks_the_size(void **state) {
    (void)state;
    nd_tensor *x = counted(on_fake, ND_F32, ND_SHAPE(2, 2)), *t = nd_transpose(x, 0, 1);
    float data[5] = {0};
    assert_int_equal(nd_copy_to_host(x, data, 20), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(),
                        "copy_to_host: a tensor of shape [2, 2] and float32 "
                        "has 16 bytes, the destination 20");
    nd_error_clear();
    assert_int_equal(nd_copy_to_host(x, NULL, 16), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_copy_to_host(NULL, data, 16), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_copy_to_host(t, data, 16));
    assert_true(data[1] == 2 && data[2] == 1);
    nd_release(x);
    nd_release(t);
}

static void test_device_memory_is_not_handed_to_the_host(void **state) {
    (void)state;
    nd_tensor *x = counted(on_fake, ND_F32, ND_SHAPE(2));
    assert_null(nd_get_data(x));
    assert_int_equal(nd_error_get_status(), ND_ERROR_DEVICE);
    assert_non_null(strstr(nd_error_get_message(), "fake:1"));
    nd_release(x);
}

static void test_F30_properties_of_nothing(void **state) {
    (void)state;
    assert_int_equal(nd_get_ndim(NULL), 0);
    assert_null(nd_get_shape(NULL));
    assert_null(nd_get_strides(NULL));
    assert_int_equal(nd_get_numel(NULL), 0);
    assert_int_equal(nd_get_size(NULL, 0), -1);
    assert_false(nd_is_contiguous(NULL));
    assert_false(nd_is_view_of(NULL, NULL));
    assert_int_equal(nd_get_storage_bytes(NULL), 0);
    assert_int_equal(nd_get_version(NULL), 0);
    assert_int_equal(nd_error_get_status(), ND_OK);
    assert_refused(nd_clone(NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_cast(NULL, ND_F32), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_to(NULL, on_cpu), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_contiguous(NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_tensor *x = nd_zeros(ND_SHAPE(4, 5), ND_F32);
    assert_int_equal(nd_get_size(x, -1), 5);
    assert_int_equal(nd_get_size(x, 2), -1);
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    nd_release(x);
}

static void test_B10_a_closed_manager_leaves_nothing_on_any_device(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_with_manager(manager) {
        nd_tensor *x = counted(on_cpu, ND_F32, ND_SHAPE(100));
        nd_tensor *y = nd_to(x, on_fake), *z = nd_to(y, on_cpu);
        nd_release(x);
        nd_release(y);
        nd_release(z);
    }
    nd_close_report report = ND_CLOSE_REPORT_INIT;
    assert_ok(nd_manager_close(manager, &report));
    assert_int_equal(report.escaped_objects, 0);
    assert_int_equal(nd_manager_get_total_bytes(manager), 0);
    nd_release(manager);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_clone_packs),
        ND_TEST(test_cast),
        ND_TEST(test_data_crosses_devices),
        ND_TEST(test_copy_into_any_layout),
        ND_TEST(test_large_copies_use_the_kernels),
        ND_TEST(test_reading_one_element),
        ND_TEST(test_copy_to_host_checks_the_size),
        ND_TEST(test_device_memory_is_not_handed_to_the_host),
        ND_TEST(test_F30_properties_of_nothing),
        ND_TEST(test_B10_a_closed_manager_leaves_nothing_on_any_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
