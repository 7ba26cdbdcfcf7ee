// nonzero and unique against plain loops over every dtype and layout; numbers of nothing.
#include "tests/unit/ops/values.h"
#include <nd/sorting.h>

static void check_nonzero(const nd_tensor *x) {
    nd_auto nd_tensor *places = nd_nonzero(x);
    assert_handle(places);
    int ndim = nd_get_ndim(x);
    int64_t row = 0;
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        if (at_flat(x, flat) == 0)
            continue;
        int64_t index[ND_MAX_DIMS];
        coordinates_of(ndim, nd_get_shape(x), flat, index);
        assert_true(row < nd_get_size(places, 0));
        for (int i = 0; i < ndim; i++)
            assert_int_equal((int64_t)at_flat(places, row * ndim + i), index[i]);
        row++;
    }
    assert_shape(places, ND_SHAPE(row, ndim));
}

static bool same(double a, double b) {
    return a == b;
}

/// Every number that unique gives, from its definition.
static void check_unique(const nd_tensor *x) {
    nd_tensor *values = NULL, *positions = NULL, *inverse = NULL, *counts = NULL;
    assert_ok(nd_unique(x, &values, &positions, &inverse, &counts));
    int64_t n = nd_get_numel(values), total = 0;
    assert_shape(inverse, nd_get_ndim(x), nd_get_shape(x));
    assert_shape(positions, ND_SHAPE(n));
    assert_shape(counts, ND_SHAPE(n));
    for (int64_t i = 0; i < n; i++) {
        double value = at_flat(values, i);
        if (i > 0)
            assert_true(at_flat(values, i - 1) < value || isnan(value));
        int64_t count = 0, first = -1;
        for (int64_t flat = nd_get_numel(x) - 1; flat >= 0; flat--)
            if (same(at_flat(x, flat), value)) {
                count++;
                first = flat;
            }
        if (isnan(value)) {
            count = 1;
            first = (int64_t)at_flat(positions, i);
            assert_true(isnan(at_flat(x, first)));
        }
        assert_int_equal((int64_t)at_flat(counts, i), count);
        assert_int_equal((int64_t)at_flat(positions, i), first);
        total += count;
    }
    assert_int_equal(total, nd_get_numel(x));
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        double value = at_flat(values, (int64_t)at_flat(inverse, flat)), own = at_flat(x, flat);
        assert_true(value == own || (isnan(value) && isnan(own)));
    }
    nd_release(values);
    nd_release(positions);
    nd_release(inverse);
    nd_release(counts);
}

static void test_nonzero_and_unique_of_every_dtype_and_layout(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            nd_auto nd_tensor *x =
                random_tensor((layout)how, ND_SHAPE(3, 1, 7), (nd_dtype)dtype, -2, 2);
            static const double special[] = {0, 1, 1, 0, -0.0, INFINITY, NAN, NAN};
            for (int64_t i = 0; i < 7; i += 2) // of a row that EXPANDED shares
                set_element(nd_get_data(x), (nd_dtype)dtype, i * nd_get_strides(x)[2],
                            special[rand() % (is_float((nd_dtype)dtype) ? 8 : 4)]);
            check_nonzero(x);
            check_unique(x);
        }
}

static void test_nonzero_and_unique_of_nothing_and_of_a_number(void **state) {
    (void)state;
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(2, 0, 3), ND_F32);
    nd_auto nd_tensor *number = nd_scalar(7, ND_I16);
    nd_auto nd_tensor *zero = nd_scalar(0, ND_BF16);
    const nd_tensor *all[] = {none, number, zero};
    for (int i = 0; i < 3; i++) {
        check_nonzero(all[i]);
        check_unique(all[i]);
    }
    assert_ok(nd_unique(number, NULL, NULL, NULL, NULL));
    assert_status(nd_unique(NULL, NULL, NULL, NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_refused(nd_nonzero(NULL), ND_ERROR_INVALID_ARGUMENT, "nonzero: x");
}

static void test_gradient_of_unique_goes_where_elements_stand_first(void **state) {
    (void)state;
    const double numbers[] = {3, 1, 3, 2, 1};
    nd_auto nd_tensor *x = nd_from_data(numbers, ND_SHAPE(5), ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    nd_tensor *values = NULL;
    assert_ok(nd_unique(x, &values, NULL, NULL, NULL));
    nd_auto nd_tensor *squares = nd_square(values);
    nd_auto nd_tensor *sum = nd_sum(squares, 0, NULL, false);
    nd_release(values);
    assert_ok(nd_backward(sum, NULL));
    nd_auto nd_tensor *gradient = nd_retain(nd_get_grad(x));
    const double expected[] = {6, 2, 0, 4, 0};
    for (int64_t i = 0; i < 5; i++)
        assert_true(at_flat(gradient, i) == expected[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_nonzero_and_unique_of_every_dtype_and_layout),
        ND_TEST(test_nonzero_and_unique_of_nothing_and_of_a_number),
        ND_TEST(test_gradient_of_unique_goes_where_elements_stand_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
