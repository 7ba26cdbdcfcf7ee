// Views: their windows, what they share, what they refuse.
#include "tests/unit/tensor/values.h"

static void test_reshape_shares_where_strides_allow(void **state) {
    (void)state;
    nd_tensor *x = counted(on_cpu, ND_F32, ND_SHAPE(2, 3, 4));
    nd_tensor *y = nd_reshape(x, ND_SHAPE(6, -1));
    assert_shape(y, 6, 4);
    assert_true(nd_is_view_of(y, x));
    nd_tensor *part = nd_slice(y, 0, 6, 2, 0); // [3, 4], rows 8 apart
    nd_tensor *split = nd_reshape(part, ND_SHAPE(3, 1, 2, 2));
    assert_true(nd_is_view_of(split, x));
    assert_values(split, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19);
    nd_tensor *merged = nd_reshape(part, ND_SHAPE(12)); // no single stride walks it
    assert_false(nd_is_view_of(merged, x));
    assert_values(merged, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19);
    nd_tensor *turned = nd_transpose(y, 0, 1), *flat = nd_flatten(turned, 0);
    assert_false(nd_is_view_of(flat, x));
    double expected[24];
    for (int i = 0; i < 24; i++)
        expected[i] = i % 6 * 4 + i / 6;
    assert_values_of(flat, 24, expected, __FILE__, __LINE__);
    nd_tensor *tail = nd_flatten(x, 1);
    assert_shape(tail, 2, 12);
    nd_tensor *one = nd_scalar(5, ND_F32), *row = nd_flatten(one, 0),
              *back = nd_reshape(row, 0, NULL);
    assert_shape(row, 1);
    assert_int_equal(nd_get_ndim(back), 0);
    nd_tensor *all[] = {x, y, part, split, merged, turned, flat, tail, one, row, back};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        nd_release(all[i]);
}

static void test_reshape_of_expanded_axes(void **state) {
    (void)state;
    nd_tensor *x = counted(on_cpu, ND_I32, ND_SHAPE(2, 1));
    nd_tensor *wide = nd_expand(x, ND_SHAPE(2, 6)), *same = nd_reshape(wide, ND_SHAPE(2, 2, 3));
    assert_true(nd_is_view_of(same, x));
    assert_values(same, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1);
    nd_tensor *flat = nd_reshape(wide, ND_SHAPE(12));
    assert_false(nd_is_view_of(flat, x));
    assert_values(flat, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1);
    nd_release(x);
    nd_release(wide);
    nd_release(same);
    nd_release(flat);
}

static void test_reshape_refuses(void **state) {
    (void)state;
    nd_tensor *x = nd_zeros(ND_SHAPE(2, 3), ND_F32), *none = nd_zeros(ND_SHAPE(0, 3), ND_F32);
    assert_refused(nd_reshape(x, ND_SHAPE(4)), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(),
                        "reshape: shape [2, 3] with 6 elements does not become [4]");
    assert_refused(nd_reshape(x, ND_SHAPE(4, -1)), ND_ERROR_SHAPE);
    assert_refused(nd_reshape(x, ND_SHAPE(-1, -1)), ND_ERROR_SHAPE);
    assert_null(nd_reshape(x, ND_SHAPE(2, -1, -1)));
    assert_string_equal(nd_error_get_message(),
                        "reshape: shape [2, -1, -1] leaves more than one size, -1, to be found");
    assert_null(nd_reshape(x, ND_SHAPE(-1, -3)));
    assert_string_equal(nd_error_get_message(), "reshape: shape [-1, -3] has a negative size");
    nd_error_clear();
    assert_refused(nd_reshape(x, ND_SHAPE(-2, -3)), ND_ERROR_SHAPE);
    assert_refused(nd_reshape(x, ND_SHAPE(0, -1)), ND_ERROR_SHAPE);
    assert_refused(nd_reshape(none, ND_SHAPE(0, -1)), ND_ERROR_SHAPE); // any size would do
    assert_refused(nd_reshape(x, 2, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_reshape(x, 9, (int64_t[9]){1}), ND_ERROR_SHAPE);
    assert_refused(nd_reshape(NULL, ND_SHAPE(1)), ND_ERROR_INVALID_ARGUMENT);
    nd_tensor *same = nd_reshape(none, ND_SHAPE(-1, 3));
    assert_shape(same, 0, 3);
    nd_release(same);
    nd_release(x);
    nd_release(none);
}

static void test_axes_move(void **state) {
    (void)state;
    nd_tensor *x = counted(on_cpu, ND_I64, ND_SHAPE(2, 3, 2));
    nd_tensor *y = nd_permute(x, 3, (int[]){2, 0, -2});
    assert_shape(y, 2, 2, 3);
    assert_values(y, 0, 2, 4, 6, 8, 10, 1, 3, 5, 7, 9, 11);
    nd_tensor *z = nd_transpose(x, 0, -1);
    assert_shape(z, 2, 3, 2);
    assert_values(z, 0, 6, 2, 8, 4, 10, 1, 7, 3, 9, 5, 11);
    nd_tensor *w = nd_unsqueeze(y, -1), *v = nd_squeeze(w, 3);
    assert_shape(w, 2, 2, 3, 1);
    assert_shape(v, 2, 2, 3);
    assert_true(nd_is_view_of(v, x));
    assert_refused(nd_permute(x, 2, (int[]){0, 1}), ND_ERROR_SHAPE);
    assert_refused(nd_permute(x, 3, (int[]){0, 1, -2}), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_permute(x, 3, (int[]){0, 1, 3}), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_permute(x, 3, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_transpose(x, 0, 3), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_squeeze(x, 0), ND_ERROR_SHAPE);
    assert_refused(nd_unsqueeze(x, 4), ND_ERROR_INVALID_ARGUMENT);
    nd_release(x);
    nd_release(y);
    nd_release(z);
    nd_release(w);
    nd_release(v);
    nd_tensor *full = nd_zeros(ND_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), ND_U8);
    assert_refused(nd_unsqueeze(full, 0), ND_ERROR_SHAPE);
    nd_release(full);
}

static void test_expand_repeats_without_memory(void **state) {
    (void)state;
    nd_tensor *x = counted(on_cpu, ND_F64, ND_SHAPE(2, 1));
    nd_tensor *y = nd_expand(x, ND_SHAPE(2, -1, 3));
    assert_shape(y, 2, 2, 3);
    assert_values(y, 0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1);
    assert_int_equal(nd_get_strides(y)[0], 0);
    assert_int_equal(nd_get_strides(y)[2], 0);
    assert_false(nd_is_contiguous(y));
    nd_tensor *kept = nd_expand(x, ND_SHAPE(-1, 2));
    assert_values(kept, 0, 0, 1, 1);
    nd_tensor *none = nd_expand(x, ND_SHAPE(2, 0));
    assert_shape(none, 2, 0);
    assert_refused(nd_expand(x, ND_SHAPE(3, 1)), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(), "expand: shape [2, 1] does not expand to [3, 1]");
    assert_refused(nd_expand(x, ND_SHAPE(2)), ND_ERROR_SHAPE);
    assert_refused(nd_expand(x, ND_SHAPE(3, -1)), ND_ERROR_SHAPE); // -1 keeps a size
    assert_string_equal(nd_error_get_message(), "expand: shape [2, 1] does not expand to [3, -1]");
    assert_refused(nd_expand(x, ND_SHAPE(-1)), ND_ERROR_SHAPE);
    assert_string_equal(nd_error_get_message(), "expand: shape [2, 1] does not expand to [-1]");
    assert_refused(nd_expand(x, ND_SHAPE(-1, 2, 1)), ND_ERROR_SHAPE); // but of an axis that is new
    assert_string_equal(nd_error_get_message(), "expand: shape [-1, 2, 1] has a negative size");
    assert_refused(nd_expand(x, ND_SHAPE(2, -2)), ND_ERROR_SHAPE);
    assert_refused(nd_expand(x, ND_SHAPE((int64_t)1 << 61, 2, 4)), ND_ERROR_SHAPE);
    nd_release(x);
    nd_release(y);
    nd_release(kept);
    nd_release(none);
}

static void slice_is(const nd_tensor *x, int64_t start, int64_t stop, int64_t step, size_t count,
                     const double *expected, int line) {
    nd_tensor *y = nd_slice(x, start, stop, step, 0);
    assert_values_of(y, count, expected, __FILE__, line);
    nd_release(y);
}
#define SLICE_IS(start, stop, step, ...)                                             \
    slice_is(x, start, stop, step, sizeof((double[]){__VA_ARGS__}) / sizeof(double), \
             (double[]){__VA_ARGS__}, __LINE__)

static void test_slice_clamps_as_python_does(void **state) {
    (void)state;
    nd_tensor *x = counted(on_cpu, ND_F32, ND_SHAPE(5));
    SLICE_IS(0, INT64_MAX, 1, 0, 1, 2, 3, 4);
    SLICE_IS(1, 4, 2, 1, 3);
    SLICE_IS(-2, INT64_MAX, 1, 3, 4);
    SLICE_IS(INT64_MIN, -4, 1, 0);
    SLICE_IS(0, 5, INT64_MAX, 0);
    SLICE_IS(4, 100, 7, 4);
    nd_tensor *none = nd_slice(x, 4, 2, 1, 0);
    assert_shape(none, 0);
    nd_release(none);
    none = nd_slice(x, 99, 100, 1, -1);
    assert_shape(none, 0);
    nd_tensor *still = nd_slice(none, 0, 1, 1, 0);
    assert_shape(still, 0);
    nd_release(still);
    nd_release(none);
    assert_refused(nd_slice(x, 0, 5, 0, 0), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_slice(x, 0, 5, 1, 1), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_slice(NULL, 0, 5, 1, 0), ND_ERROR_INVALID_ARGUMENT);
    nd_release(x);
}

static void test_B23_a_small_view_pins_and_reports_its_storage(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "m");
    nd_with_manager(manager) {
        nd_tensor *x = nd_zeros(ND_SHAPE(1000, 10), ND_F32);
        nd_tensor *row = nd_select(x, 3, 0);
        assert_int_equal(nd_manager_get_total_bytes(manager), 40000);
        nd_release(x);
        assert_int_equal(nd_manager_get_total_bytes(manager), 40000);
        assert_int_equal(nd_get_storage_bytes(row), 40000);
        assert_int_equal(nd_get_numel(row), 10);
        nd_release(row);
        assert_int_equal(nd_manager_get_total_bytes(manager), 0);
    }
    nd_release(manager);
}

static void test_select_takes_an_axis_away(void **state) {
    (void)state;
    nd_tensor *x = counted(on_fake, ND_I32, ND_SHAPE(2, 3));
    nd_tensor *row = nd_select(x, -1, 0), *column = nd_select(x, 1, 1);
    assert_values(row, 3, 4, 5);
    assert_values(column, 1, 4);
    assert_int_equal(nd_get_ndim(column), 1);
    assert_refused(nd_select(x, 2, 0), ND_ERROR_INVALID_ARGUMENT);
    assert_string_equal(nd_error_get_message(),
                        "select: index 2 is out of range for axis 0 of size 2");
    assert_refused(nd_select(x, -3, 0), ND_ERROR_INVALID_ARGUMENT);
    nd_release(x);
    nd_release(row);
    nd_release(column);
}

static void test_as_strided_windows(void **state) {
    (void)state;
    nd_tensor *x = counted(on_cpu, ND_F32, ND_SHAPE(10));
    nd_tensor *windows = nd_as_strided(x, 2, (int64_t[]){4, 3}, (int64_t[]){2, 1}, 1);
    assert_values(windows, 1, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9);
    nd_tensor *huge = nd_as_strided(x, 2, (int64_t[]){1, 2}, (int64_t[]){INT64_MAX, 1}, 8);
    assert_values(huge, 8, 9);
    nd_tensor *none = nd_as_strided(x, 2, (int64_t[]){0, 5}, (int64_t[]){INT64_MAX, INT64_MAX}, 10);
    assert_shape(none, 0, 5);
    nd_tensor *copy = nd_clone(none);
    assert_shape(copy, 0, 5);
    nd_release(x);
    nd_release(windows);
    nd_release(huge);
    nd_release(none);
    nd_release(copy);
}

static void test_F11_as_strided_out_of_bounds(void **state) {
    (void)state;
    nd_tensor *x = nd_zeros(ND_SHAPE(10), ND_F32);
    static const struct {
        int64_t shape[2], strides[2], offset;
        nd_status status;
    } bad[] = {
        {{2, 5}, {5, 1}, 1, ND_ERROR_SHAPE},
        {{11, 1}, {1, 1}, 0, ND_ERROR_SHAPE},
        {{1, 1}, {1, 1}, 10, ND_ERROR_SHAPE},
        {{1, 1}, {1, 1}, -1, ND_ERROR_INVALID_ARGUMENT},
        {{2, 2}, {-1, 1}, 5, ND_ERROR_INVALID_ARGUMENT},
        {{3, 2}, {INT64_MAX, 1}, 0, ND_ERROR_SHAPE},
        {{2, 2}, {INT64_MAX, INT64_MAX}, 0, ND_ERROR_SHAPE},
        {{2, 2}, {1, 1}, INT64_MAX, ND_ERROR_SHAPE},
        {{0, 2}, {1, 1}, 11, ND_ERROR_SHAPE},
        {{-1, 2}, {1, 1}, 0, ND_ERROR_SHAPE},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_refused(nd_as_strided(x, 2, bad[i].shape, bad[i].strides, bad[i].offset),
                       bad[i].status);
    assert_refused(nd_as_strided(x, 1, NULL, NULL, 0), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_as_strided(x, 1, (int64_t[]){1}, NULL, 0), ND_ERROR_INVALID_ARGUMENT);
    nd_release(x);
}

static void test_F15_views_of_a_closed_tensor_are_refused(void **state) {
    (void)state;
    nd_tensor *x = nd_zeros(ND_SHAPE(2, 3), ND_F32);
    nd_tensor *view = nd_select(x, 1, 0);
    assert_ok(nd_close(x));
    assert_refused(nd_reshape(x, ND_SHAPE(6)), ND_ERROR_CLOSED);
    assert_string_equal(nd_error_get_message(),
                        "reshape: x, a tensor of shape [2, 3] and float32, was closed");
    assert_refused(nd_permute(x, 2, (int[]){0, 1}), ND_ERROR_CLOSED);
    assert_refused(nd_transpose(x, 0, 1), ND_ERROR_CLOSED);
    assert_refused(nd_expand(x, ND_SHAPE(2, 3)), ND_ERROR_CLOSED);
    assert_refused(nd_slice(x, 0, 1, 1, 0), ND_ERROR_CLOSED);
    assert_refused(nd_select(x, 0, 0), ND_ERROR_CLOSED);
    assert_refused(nd_squeeze(x, 0), ND_ERROR_CLOSED);
    assert_refused(nd_unsqueeze(x, 0), ND_ERROR_CLOSED);
    assert_refused(nd_flatten(x, 0), ND_ERROR_CLOSED);
    assert_refused(nd_as_strided(x, 0, NULL, NULL, 0), ND_ERROR_CLOSED);
    assert_refused(nd_detach(x), ND_ERROR_CLOSED);
    assert_values(view, 0, 0, 0);
    nd_release(x);
    nd_release(view);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_reshape_shares_where_strides_allow),
        ND_TEST(test_reshape_of_expanded_axes),
        ND_TEST(test_reshape_refuses),
        ND_TEST(test_axes_move),
        ND_TEST(test_expand_repeats_without_memory),
        ND_TEST(test_slice_clamps_as_python_does),
        ND_TEST(test_B23_a_small_view_pins_and_reports_its_storage),
        ND_TEST(test_select_takes_an_axis_away),
        ND_TEST(test_as_strided_windows),
        ND_TEST(test_F11_as_strided_out_of_bounds),
        ND_TEST(test_F15_views_of_a_closed_tensor_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
