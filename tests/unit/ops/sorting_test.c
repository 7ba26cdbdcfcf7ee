// sort, argsort, topk and searchsorted against plain loops over every dtype and layout, and against
// PyTorch; the places of NaN and of equal elements; long rows; what is refused.
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/torch_case.h"
#include <nd/sorting.h>

/// Whether a comes before b: NaN is greater than all, and equal elements keep their order.
static bool before(double a, int64_t at_a, double b, int64_t at_b, bool descending) {
    bool equal = a == b || (isnan(a) && isnan(b));
    if (equal)
        return at_a < at_b;
    bool less = isnan(b) || a < b;
    return less != descending;
}

static bool same_number(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

/// Checks `positions` (the first k of a sorted axis), and what stands there.
static void check_order(const nd_tensor *x, const nd_tensor *positions, const nd_tensor *values,
                        int axis, bool descending) {
    int ndim = nd_get_ndim(x);
    int64_t size = nd_get_shape(x)[axis], k = nd_get_shape(positions)[axis];
    for (int64_t flat = 0; flat < nd_get_numel(positions); flat++) {
        int64_t index[ND_MAX_DIMS];
        coordinates_of(ndim, nd_get_shape(positions), flat, index);
        int64_t rank = index[axis], position = (int64_t)at_flat(positions, flat);
        assert_in_range(position, 0, size - 1);
        index[axis] = position;
        double value = at(x, ndim, index);
        assert_true(same_number(at_flat(values, flat), value));
        int64_t ahead = 0;
        for (int64_t i = 0; i < size; i++) {
            index[axis] = i;
            ahead += before(at(x, ndim, index), i, value, position, descending);
        }
        assert_int_equal(ahead, rank);
    }
    assert_true(k <= size);
}

static nd_tensor *random_values(layout how, int ndim, const int64_t *shape, nd_dtype dtype) {
    nd_tensor *x = random_tensor(how, ndim, shape, dtype, -4, 4);
    // Equal ones, and for floats NaN of both signs, infinities and both zeros.
    static const double special[] = {2, 2, 0, -0.0, INFINITY, -INFINITY, NAN, -NAN};
    int count = is_float(dtype) ? 8 : dtype == ND_BOOL ? 0 : 3;
    for (int64_t flat = 0; flat < nd_get_numel(x) && count; flat++) {
        int64_t index[ND_MAX_DIMS], offset = 0;
        coordinates_of(ndim, shape, flat, index);
        for (int i = 0; i < ndim; i++)
            offset += index[i] * nd_get_strides(x)[i];
        if (rand() % 3 == 0)
            set_element(nd_get_data(x), dtype, offset, special[rand() % count]);
    }
    return x;
}

static void check_sorted(const nd_tensor *x, int axis, bool descending) {
    nd_auto nd_tensor *sorted = nd_sort(x, axis, descending);
    nd_auto nd_tensor *positions = nd_argsort(x, axis, descending);
    assert_handle(sorted);
    assert_handle(positions);
    assert_shape(sorted, nd_get_ndim(x), nd_get_shape(x));
    check_order(x, positions, sorted, axis, descending);
    int64_t size = nd_get_shape(x)[axis], some[] = {0, 1, size / 9, size / 2, size};
    for (size_t i = 0; i < COUNT_OF(some) && some[i] <= size; i++) {
        nd_tensor *values = NULL, *places = NULL;
        assert_ok(nd_topk(x, some[i], axis, descending, &values, &places));
        assert_int_equal(nd_get_size(values, axis), some[i]);
        check_order(x, places, values, axis, descending);
        nd_release(values);
        nd_release(places);
    }
}

static void test_sorting_of_every_dtype_and_layout(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int axis = 0; axis < 3; axis++)
                for (int descending = 0; descending < 2; descending++) {
                    nd_auto nd_tensor *x =
                        random_values((layout)how, ND_SHAPE(3, 20, 4), (nd_dtype)dtype);
                    check_sorted(x, axis, descending);
                }
}

static void test_sorting_of_longer_rows(void **state) {
    (void)state;
    static const nd_dtype some[] = {ND_I8, ND_U64, ND_F16, ND_F32, ND_F64};
    for (size_t d = 0; d < COUNT_OF(some); d++)
        for (int how = 0; how < EXPANDED; how++) {
            nd_auto nd_tensor *x = random_values((layout)how, ND_SHAPE(2, 300), some[d]);
            check_sorted(x, 1, how % 2);
        }
}

/// Around the lengths at which rows are sorted in another way, and the first few of rows that are
/// read in parts.
static void test_sorting_of_rows_around_limits(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 7, 8, 9, 47, 48, 49, 255, 256, 257, 285, 600};
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (size_t s = 0; s < COUNT_OF(sizes); s++) {
            nd_auto nd_tensor *x =
                random_values((layout)(s % EXPANDED), ND_SHAPE(2, sizes[s]), (nd_dtype)dtype);
            check_sorted(x, 1, s % 2);
        }
}

static void sort_many_short_rows(void) {
    static const nd_dtype some[] = {ND_BOOL, ND_I8, ND_U64, ND_BF16, ND_F32, ND_F64};
    for (int64_t n = 1; n <= 50; n += n < 10 ? 1 : 13)
        for (size_t d = 0; d < COUNT_OF(some); d++)
            for (int how = 0; how < LAYOUTS; how++) {
                const int axis = rand() % 2;
                const int64_t rows = n < 10 ? 300 : 30;
                const int64_t shape[] = {axis == 1 ? rows : n, axis == 1 ? n : rows};
                nd_auto nd_tensor *x = random_values((layout)how, 2, shape, some[d]);
                check_sorted(x, axis, rand() % 2);
            }
}

/// Short rows are read many at a time.
static void test_sorting_of_many_short_rows(void **state) {
    (void)state;
    on_every_isa(sort_many_short_rows);
}

/// What threads share: every neighbour in order and every position once.
static void test_sorting_of_a_row_that_threads_share(void **state) {
    (void)state;
    int64_t n = 300007;
    for (int rows = 1; rows <= 40; rows += 39)
        for (int descending = 0; descending < 2; descending++) {
            int64_t size = rows == 1 ? n : n / 40;
            nd_auto nd_tensor *wide =
                nd_randint((nd_key){1, 2}, -9000, 9000, ND_SHAPE(rows, size), ND_I32);
            nd_auto nd_tensor *positions = nd_argsort(wide, 1, descending);
            assert_handle(positions);
            const int64_t *places = nd_get_data(positions);
            const int32_t *x = nd_get_data(wide);
            char *seen = calloc((size_t)size, 1);
            assert_non_null(seen);
            for (int64_t i = 0; i < rows * size; i++) {
                int64_t row = i / size * size;
                assert_in_range(places[i], 0, size - 1);
                assert_true(seen[places[i]] == (char)(row / size % 2));
                seen[places[i]] ^= 1;
                if (i > row)
                    assert_true(before(x[row + places[i - 1]], places[i - 1], x[row + places[i]],
                                       places[i], descending));
            }
            free(seen);
        }
}

static void test_integers_beyond_doubles_are_sorted_exactly(void **state) {
    (void)state;
    const int64_t numbers[] = {INT64_MAX, INT64_MAX - 1, INT64_MIN, INT64_MIN + 1, -1, 0};
    nd_auto nd_tensor *x = nd_from_data(numbers, ND_SHAPE(6), ND_I64);
    nd_auto nd_tensor *sorted = nd_sort(x, 0, false);
    const int64_t expected[] = {INT64_MIN, INT64_MIN + 1, -1, 0, INT64_MAX - 1, INT64_MAX};
    assert_memory_equal(nd_get_data(sorted), expected, sizeof expected);
    nd_auto nd_tensor *places = nd_searchsorted(sorted, x, false);
    const int64_t ranks[] = {5, 4, 0, 1, 2, 3};
    assert_memory_equal(nd_get_data(places), ranks, sizeof ranks);
}

static int compare_numbers(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/// Numbers of all digits, of few high ones and all low ones, small ones of both signs, and ones in whose
/// order few are wrong, as sorted by the C library.
static void sort_integers_of_all_digits(void) {
    enum { MOST = 5000 };
    static const int64_t sizes[] = {49, 256, 257, 1000, MOST};
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (int kind = 0; kind < 4; kind++) {
            int64_t numbers[MOST], sorted[MOST];
            const int64_t n = sizes[s];
            for (int64_t i = 0; i < n; i++) {
                const uint64_t low = (uint64_t)rand() << 16 ^ (uint64_t)rand();
                const uint64_t high = (uint64_t)(rand() % 2) * 0x0101010000000000U;
                numbers[i] = kind == 0   ? (int64_t)(low << 34 ^ low << 8 ^ (uint64_t)rand())
                             : kind == 1 ? (int64_t)(high | (low & 0xFFFFFFFFU))
                             : kind == 2 ? rand() % 9 - 4
                                         : (int64_t)((uint64_t)i << 40 | (low & 0xFFFFFFFFU));
            }
            if (kind == 3)
                for (int64_t i = 0; i + 7 < n; i += 7) {
                    const int64_t other = numbers[i];
                    numbers[i] = numbers[i + 5];
                    numbers[i + 5] = other;
                }
            nd_auto nd_tensor *x = nd_from_data(numbers, ND_SHAPE(n), ND_I64);
            nd_auto nd_tensor *positions = nd_argsort(x, 0, false);
            const int64_t *places = nd_get_data(positions);
            memcpy(sorted, numbers, (size_t)n * sizeof *sorted);
            qsort(sorted, (size_t)n, sizeof *sorted, compare_numbers);
            for (int64_t i = 0; i < n; i++) {
                assert_in_range(places[i], 0, n - 1);
                assert_true(numbers[places[i]] == sorted[i]);
                assert_true(i == 0 || sorted[i] != sorted[i - 1] || places[i - 1] < places[i]);
            }
        }
}

static void test_sorting_of_integers_of_all_digits(void **state) {
    (void)state;
    on_every_isa(sort_integers_of_all_digits);
}

static void check_search(const nd_tensor *sorted, const nd_tensor *values, bool right) {
    nd_auto nd_tensor *places = nd_searchsorted(sorted, values, right);
    assert_handle(places);
    int ndim = nd_get_ndim(sorted);
    assert_shape(places, nd_get_ndim(values), nd_get_shape(values));
    for (int64_t flat = 0; flat < nd_get_numel(values); flat++) {
        int64_t index[ND_MAX_DIMS], expected = 0;
        coordinates_of(nd_get_ndim(values), nd_get_shape(values), flat, index);
        double value = at(values, nd_get_ndim(values), index);
        for (int64_t i = 0; i < nd_get_size(sorted, -1); i++) {
            index[ndim - 1] = i;
            double other = at(sorted, ndim, index);
            bool equal = other == value || (isnan(other) && isnan(value));
            expected += equal ? right : isnan(value) || other < value;
        }
        assert_int_equal((int64_t)at_flat(places, flat), expected);
    }
}

static void test_searchsorted(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int right = 0; right < 2; right++) {
                nd_auto nd_tensor *rows =
                    random_values((layout)how, ND_SHAPE(3, 17), (nd_dtype)dtype);
                nd_auto nd_tensor *sorted = nd_sort(rows, 1, false);
                nd_auto nd_tensor *values =
                    random_values((layout)how, ND_SHAPE(3, 6), (nd_dtype)dtype);
                check_search(sorted, values, right);
                nd_auto nd_tensor *row = nd_select(sorted, 1, 0);
                check_search(row, values, right);
                nd_auto nd_tensor *stepped = nd_slice(row, 0, 17, 2, 0);
                check_search(stepped, values, right);
                nd_auto nd_tensor *none = nd_slice(row, 0, 0, 1, 0);
                check_search(none, values, right);
            }
    nd_auto nd_tensor *whole = nd_arange(0, 5, 1, ND_I64);
    nd_auto nd_tensor *half = nd_scalar(2.5, ND_F32);
    nd_auto nd_tensor *place = nd_searchsorted(whole, half, false);
    assert_true(at_flat(place, 0) == 3);
}

TORCH_FUNCTION(sort_rows) {
    (void)count, (void)data;
    return nd_sort(x[0], 1, false);
}
TORCH_FUNCTION(sort_columns_down) {
    (void)count, (void)data;
    return nd_sort(x[0], 0, true);
}
TORCH_FUNCTION(topk) {
    (void)count, (void)data;
    nd_tensor *values = NULL;
    assert_ok(nd_topk(x[0], 2, -2, true, &values, NULL));
    return values;
}
TORCH_FUNCTION(topk_smallest) {
    (void)count, (void)data;
    nd_tensor *values = NULL;
    assert_ok(nd_topk(x[0], 3, -1, false, &values, NULL));
    return values;
}

static void test_sorting_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(sort_rows, 1, {3, {2, 4, 3}}),
        TORCH_CASE(sort_columns_down, 1, {2, {5, 3}}),
        TORCH_CASE(topk, 1, {3, {2, 5, 3}}),
        TORCH_CASE(topk_smallest, 1, {2, {3, 7}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

static void test_sorting_refuses(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *other = nd_ones(ND_SHAPE(3, 3), ND_F32);
    nd_auto nd_tensor *number = nd_scalar(1, ND_F32);
    nd_tensor *values = NULL, *places = NULL;
    assert_refused(nd_sort(x, 2, false), ND_ERROR_INVALID_ARGUMENT, "sort: axis 2");
    assert_refused(nd_argsort(number, 0, false), ND_ERROR_INVALID_ARGUMENT, "argsort: axis 0");
    assert_refused(nd_sort(NULL, 0, false), ND_ERROR_INVALID_ARGUMENT, "sort: x");
    assert_status(nd_topk(x, 4, 1, true, &values, &places), ND_ERROR_INVALID_ARGUMENT);
    assert_status(nd_topk(x, -1, 1, true, &values, &places), ND_ERROR_INVALID_ARGUMENT);
    assert_null(values);
    assert_null(places);
    assert_refused(nd_searchsorted(x, other, false), ND_ERROR_SHAPE,
                   "searchsorted: values of shape [3, 3]");
    assert_refused(nd_searchsorted(number, other, false), ND_ERROR_SHAPE, "searchsorted: ");
}

/// Rows that are in order, in the opposite one, equal, and almost so.
static void test_sorting_of_rows_in_order(void **state) {
    (void)state;
    for (int dtype = ND_U8; dtype < ND_DTYPE_COUNT; dtype++)
        for (int64_t n = 48; n <= 120; n += 24)
            for (int kind = 0; kind < 5; kind++) {
                nd_auto nd_tensor *x = nd_empty(ND_SHAPE(n), (nd_dtype)dtype);
                for (int64_t i = 0; i < n; i++) {
                    int64_t value = kind == 0 ? i : kind == 1 ? n - i : kind == 2 ? 7 : i / 2;
                    value = kind == 4 ? (n - i) / 2 : value;
                    set_element(nd_get_data(x), (nd_dtype)dtype, i, (double)value);
                }
                check_sorted(x, 0, false);
                check_sorted(x, 0, true);
                set_element(nd_get_data(x), (nd_dtype)dtype, n - 1, 3);
                check_sorted(x, 0, false);
                check_sorted(x, 0, true);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_sorting_of_every_dtype_and_layout),
        ND_TEST(test_sorting_of_longer_rows),
        ND_TEST(test_sorting_of_rows_around_limits),
        ND_TEST(test_sorting_of_many_short_rows),
        ND_TEST(test_sorting_of_rows_in_order),
        ND_TEST(test_sorting_of_a_row_that_threads_share),
        ND_TEST(test_integers_beyond_doubles_are_sorted_exactly),
        ND_TEST(test_sorting_of_integers_of_all_digits),
        ND_TEST(test_searchsorted),
        ND_TEST(test_sorting_as_in_pytorch),
        ND_TEST(test_sorting_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
