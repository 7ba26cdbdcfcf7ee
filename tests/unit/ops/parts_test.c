// Splitting, unstacking, windows, steps backwards, differences and products of vectors: against
// PyTorch, and against plain loops over every dtype and layout; one node for all parts; what is
// refused.
#include "tests/unit/ops/torch_case.h"
#include <nd/contraction.h>
#include <nd/manipulation.h>

#define PART(name, expression)   \
    TORCH_FUNCTION(name) {       \
        (void)count, (void)data; \
        return expression;       \
    }
PART(sliding_window, nd_sliding_window(x[0], 4, 2, 1))
PART(sliding_window_apart, nd_sliding_window(x[0], 1, 3, -1))
PART(slice_backwards, nd_slice(x[0], -2, INT64_MIN, -2, 1))
PART(diff, nd_diff(x[0], 2, -1))
PART(vecdot, nd_vecdot(x[0], x[1], -2))
PART(cross, nd_cross(x[0], x[1], -2))

static void release_all(size_t count, nd_tensor **parts) {
    for (size_t i = 0; i < count; i++)
        nd_release(parts[i]);
}

TORCH_FUNCTION(unstack) {
    (void)count, (void)data;
    nd_tensor *parts[3];
    if (nd_unstack(x[0], 0, parts) != ND_OK)
        return NULL;
    nd_auto nd_tensor *product = nd_mul(parts[0], parts[2]);
    nd_tensor *sum = nd_add(product, parts[1]);
    release_all(3, parts);
    return sum;
}

TORCH_FUNCTION(split_shared) {
    (void)count, (void)data;
    nd_tensor *parts[3];
    if (nd_split(x[0], 3, (const int64_t[]){3, 0, 3}, 0, parts) != ND_OK)
        return NULL;
    const nd_tensor *joined[] = {parts[1], parts[0]};
    nd_auto nd_tensor *first = nd_mul(parts[0], parts[2]);
    nd_auto nd_tensor *both = nd_concat(2, joined, 0);
    nd_auto nd_tensor *second = nd_mul(both, parts[0]);
    release_all(3, parts);
    return nd_add(first, second);
}

static void test_parts_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(sliding_window, 1, {3, {2, 7, 2}}),
        TORCH_CASE(sliding_window_apart, 1, {2, {3, 5}}),
        TORCH_CASE(slice_backwards, 1, {3, {2, 7, 2}}),
        TORCH_CASE(unstack, 1, {2, {3, 2}}),
        TORCH_CASE(split_shared, 1, {1, {6}}),
        TORCH_CASE(diff, 1, {2, {2, 5}}),
        TORCH_CASE(vecdot, 2, {3, {2, 3, 2}}, {2, {3, 2}}),
        TORCH_CASE(cross, 2, {3, {2, 3, 2}}, {2, {3, 2}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

static void test_the_parts_of_a_split_have_one_node(void **state) {
    (void)state;
    for (int of_leaf = 0; of_leaf < 2; of_leaf++) {
        nd_auto nd_tensor *leaf = nd_ones(ND_SHAPE(2, 6), ND_F32);
        assert_ok(nd_set_requires_grad(leaf, true));
        nd_auto nd_tensor *x = of_leaf ? nd_retain(leaf) : nd_mul_scalar(leaf, 2);
        nd_tensor *parts[3];
        assert_ok(nd_split(x, 3, (const int64_t[]){1, 3, 2}, 1, parts));
        for (int i = 0; i < 3; i++) {
            assert_string_equal(nd_node_get_name(nd_get_node(parts[i])), "split");
            assert_ptr_equal(nd_get_node(parts[i]), nd_get_node(parts[0]));
        }
        nd_auto nd_tensor *product = nd_mul_scalar(parts[1], 5);
        nd_auto nd_tensor *sum = nd_sum(product, 0, NULL, false);
        assert_ok(nd_backward(sum, NULL));
        for (int64_t i = 0; i < 12; i++) {
            bool is_used = i % 6 >= 1 && i % 6 < 4;
            assert_true(at_flat(nd_get_grad(leaf), i) == (is_used ? of_leaf ? 5 : 10 : 0));
        }
        release_all(3, parts);
    }
}

/// A part that is written changes what its neighbours' history tells, and theirs stays right.
static void test_a_part_written_in_place(void **state) {
    (void)state;
    nd_auto nd_tensor *leaf = nd_ones(ND_SHAPE(6), ND_F64);
    assert_ok(nd_set_requires_grad(leaf, true));
    nd_auto nd_tensor *x = nd_mul_scalar(leaf, 2);
    nd_tensor *parts[2];
    assert_ok(nd_split(x, 2, (const int64_t[]){2, 4}, 0, parts));
    assert_ok(nd_mul_scalar_(parts[0], 3));
    nd_auto nd_tensor *other = nd_square(parts[1]);
    const nd_tensor *both[] = {parts[0], other};
    nd_auto nd_tensor *joined = nd_concat(2, both, 0);
    nd_auto nd_tensor *sum = nd_sum(joined, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    for (int64_t i = 0; i < 6; i++)
        assert_true(at_flat(nd_get_grad(leaf), i) == (i < 2 ? 6 : 8));
    release_all(2, parts);
}

static void test_windows_of_every_dtype_and_layout(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int axis = 0; axis < 2; axis++)
                for (int64_t size = 0; size <= 5; size++)
                    for (int64_t step = 1; step <= 4; step++) {
                        nd_auto nd_tensor *x =
                            random_tensor((layout)how, ND_SHAPE(5, 6), (nd_dtype)dtype, -3, 3);
                        nd_auto nd_tensor *y = nd_sliding_window(x, size, step, axis);
                        int64_t shape[] = {5, 6, size}, place[3];
                        shape[axis] = (shape[axis] - size) / step + 1;
                        assert_shape(y, 3, shape);
                        for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
                            coordinates_of(3, shape, flat, place);
                            int64_t from[] = {place[0], place[1]};
                            from[axis] = place[axis] * step + place[2];
                            assert_true(at_flat(y, flat) == at(x, 2, from));
                        }
                    }
}

/// As Python resolves start, stop and a negative step.
static int64_t python_bound(int64_t bound, int64_t size) {
    bound += bound < 0 ? size : 0;
    return bound < -1 ? -1 : bound >= size ? size - 1 : bound;
}

static void check_backwards(const nd_tensor *x, int axis, int64_t start, int64_t stop,
                            int64_t step) {
    nd_auto nd_tensor *y = nd_slice(x, start, stop, step, axis);
    assert_handle(y);
    int64_t size = nd_get_shape(x)[axis], count = 0;
    int64_t first = python_bound(start, size), end = python_bound(stop, size);
    for (int64_t at = first; at > end; at += step)
        count++;
    assert_int_equal(nd_get_shape(y)[axis], count);
    for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
        int64_t place[2];
        coordinates_of(2, nd_get_shape(y), flat, place);
        double got = at(y, 2, place);
        place[axis] = first + place[axis] * step;
        assert_true(got == at(x, 2, place));
    }
}

static void test_slices_backwards_are_those_of_python(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            nd_auto nd_tensor *x =
                random_tensor((layout)how, ND_SHAPE(5, 4), (nd_dtype)dtype, -3, 3);
            for (int axis = 0; axis < 2; axis++)
                for (int64_t start = -7; start <= 7; start++)
                    for (int64_t stop = -7; stop <= 7; stop++)
                        for (int64_t step = -6; step < 0; step++)
                            check_backwards(x, axis, start, stop, step);
        }
    nd_auto nd_tensor *x = nd_arange(0, 5, 1, ND_I64);
    nd_auto nd_tensor *all = nd_slice(x, INT64_MAX, INT64_MIN, -1, 0);
    nd_auto nd_tensor *last = nd_slice(x, INT64_MAX, INT64_MIN, INT64_MIN, 0);
    assert_shape(all, ND_SHAPE(5));
    assert_shape(last, ND_SHAPE(1));
    for (int64_t i = 0; i < 5; i++)
        assert_true(at_flat(all, i) == 4 - (double)i);
    assert_true(at_flat(last, 0) == 4);
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(2, 0), ND_F32);
    nd_auto nd_tensor *nothing = nd_slice(none, INT64_MAX, INT64_MIN, -1, 1);
    assert_shape(nothing, ND_SHAPE(2, 0));
}

/// What is written to a slice backwards is not written to x.
static void test_a_slice_backwards_is_a_copy(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *turned = nd_slice(x, INT64_MAX, INT64_MIN, -1, 0);
    assert_ok(nd_fill_(turned, 7));
    assert_true(at_flat(x, 0) == 1 && at_flat(turned, 0) == 7);
}

static void test_windows_that_share_elements_are_not_written(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(6), ND_F32);
    nd_auto nd_tensor *shared = nd_sliding_window(x, 3, 1, 0);
    nd_auto nd_tensor *apart = nd_sliding_window(x, 2, 2, 0);
    nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(4, 3), ND_F32);
    assert_status(nd_add_(shared, ones), ND_ERROR_INVALID_ARGUMENT);
    assert_ok(nd_fill_(apart, 2));
    for (int64_t i = 0; i < 6; i++)
        assert_true(at_flat(x, i) == 2);
}

static void test_differences_and_products_of_vectors(void **state) {
    (void)state;
    const uint8_t numbers[] = {5, 3, 250, 0};
    nd_auto nd_tensor *x = nd_from_data(numbers, ND_SHAPE(4), ND_U8);
    nd_auto nd_tensor *once = nd_diff(x, 1, 0);
    nd_auto nd_tensor *same = nd_diff(x, 0, 0);
    nd_auto nd_tensor *nothing = nd_diff(x, 9, 0);
    assert_shape(once, ND_SHAPE(3));
    assert_shape(same, ND_SHAPE(4));
    assert_shape(nothing, ND_SHAPE(0));
    assert_true(at_flat(once, 0) == 254 && at_flat(once, 1) == 247 && at_flat(once, 2) == 6);
    nd_auto nd_tensor *a = nd_arange(0, 6, 1, ND_I32);
    nd_auto nd_tensor *rows = nd_reshape(a, ND_SHAPE(2, 3));
    nd_auto nd_tensor *dot = nd_vecdot(rows, rows, -1);
    assert_shape(dot, ND_SHAPE(2));
    assert_int_equal(nd_get_dtype(dot), ND_I32);
    assert_true(at_flat(dot, 0) == 5 && at_flat(dot, 1) == 50);
}

static void test_parts_refuse(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *mask = nd_ones(ND_SHAPE(3), ND_BOOL);
    nd_auto nd_tensor *scalar = nd_scalar(1, ND_F32);
    nd_auto nd_tensor *deep = nd_ones(8, (const int64_t[]){1, 1, 1, 1, 1, 1, 1, 1}, ND_F32);
    nd_tensor *parts[3] = {0};
    assert_refused(nd_sliding_window(x, 4, 1, 1), ND_ERROR_INVALID_ARGUMENT, "sliding_window: ");
    assert_refused(nd_sliding_window(x, -1, 1, 1), ND_ERROR_INVALID_ARGUMENT, "sliding_window: ");
    assert_refused(nd_sliding_window(x, 1, 0, 1), ND_ERROR_INVALID_ARGUMENT, "sliding_window: ");
    assert_refused(nd_sliding_window(x, 1, 1, 2), ND_ERROR_INVALID_ARGUMENT, "sliding_window: ");
    assert_refused(nd_sliding_window(deep, 1, 1, 0), ND_ERROR_SHAPE, "sliding_window: ");
    assert_refused(nd_sliding_window(NULL, 1, 1, 0), ND_ERROR_INVALID_ARGUMENT, "sliding_window: ");
    assert_refused(nd_slice(x, 0, 1, 0, 0), ND_ERROR_INVALID_ARGUMENT, "slice: the step is 0");
    assert_refused(nd_diff(x, -1, 0), ND_ERROR_INVALID_ARGUMENT, "diff: order -1");
    assert_refused(nd_diff(mask, 1, 0), ND_ERROR_DTYPE, "diff: order 1 of bool");
    assert_refused(nd_diff(scalar, 1, 0), ND_ERROR_INVALID_ARGUMENT, "diff: ");
    assert_refused(nd_vecdot(x, x, 1), ND_ERROR_INVALID_ARGUMENT, "vecdot: axis 1");
    assert_refused(nd_vecdot(x, mask, -2), ND_ERROR_INVALID_ARGUMENT, "vecdot: axis -2");
    assert_refused(nd_vecdot(x, scalar, -1), ND_ERROR_INVALID_ARGUMENT, "vecdot: axis -1");
    assert_refused(nd_cross(x, x, -2), ND_ERROR_SHAPE, "cross: a is float32 of shape");
    assert_refused(nd_cross(x, x, 0), ND_ERROR_INVALID_ARGUMENT, "cross: axis 0");
    assert_status(nd_unstack(x, 2, parts), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_unstack(x, 0, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_unstack(NULL, 0, parts), ND_ERROR_INVALID_ARGUMENT);
    assert_null(parts[0]);
}

/// Of many rows, short and long: integers, so that every order of sums is exact.
static void test_products_of_many_rows_of_vectors(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_BF16, ND_I64};
    for (size_t d = 0; d < COUNT_OF(dtypes); d++)
        for (int64_t n = 1; n <= 1200; n = 3 * n + 1)
            for (int how = 0; how < LAYOUTS; how++) {
                nd_auto nd_tensor *a = random_tensor((layout)how, ND_SHAPE(24, n), ND_F64, 0, 1);
                nd_auto nd_tensor *limit = nd_full_like(a, 0.9);
                nd_auto nd_tensor *flags = nd_greater_equal(a, limit);
                nd_auto nd_tensor *x = nd_cast(flags, dtypes[d]);
                nd_auto nd_tensor *dot = nd_vecdot(x, x, -1);
                assert_handle(dot);
                for (int64_t row = 0; row < 24; row++) {
                    int64_t expected = 0;
                    for (int64_t i = 0; i < n; i++)
                        expected += at_flat(x, row * n + i) != 0;
                    assert_true(at_flat(dot, row) == (double)expected);
                }
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_parts_as_in_pytorch),
        ND_TEST(test_the_parts_of_a_split_have_one_node),
        ND_TEST(test_a_part_written_in_place),
        ND_TEST(test_windows_of_every_dtype_and_layout),
        ND_TEST(test_slices_backwards_are_those_of_python),
        ND_TEST(test_a_slice_backwards_is_a_copy),
        ND_TEST(test_windows_that_share_elements_are_not_written),
        ND_TEST(test_differences_and_products_of_vectors),
        ND_TEST(test_parts_refuse),
        ND_TEST(test_products_of_many_rows_of_vectors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
