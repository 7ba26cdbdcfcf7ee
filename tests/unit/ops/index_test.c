// take, gather, scatter_add, one_hot and masked_select against plain loops; indices that count from
// the end, repeat, or are out of range.
#include "lib/device/fake/fake.h"
#include "tests/unit/ops/values.h"

static const nd_dtype all[] = {ND_BOOL, ND_U8, ND_I32, ND_I64, ND_F32, ND_F64};

/// Indices from -size to size - 1.
static nd_tensor *random_indices(layout how, int ndim, const int64_t *shape, nd_dtype dtype,
                                 int64_t size) {
    nd_tensor *x = random_tensor(how, ndim, shape, dtype, 0, 0);
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        int64_t index[ND_MAX_DIMS], offset = 0;
        coordinates_of(ndim, shape, flat, index);
        for (int i = 0; i < ndim; i++)
            offset += index[i] * nd_get_strides(x)[i];
        set_element(nd_get_data(x), dtype, offset, (double)(rand() % (2 * size) - size));
    }
    return x;
}

static int64_t resolved(double index, int64_t size) {
    return (int64_t)index < 0 ? (int64_t)index + size : (int64_t)index;
}

static void check_take(const nd_tensor *x, const nd_tensor *indices, int axis) {
    nd_auto nd_tensor *y = nd_take(x, indices, axis);
    assert_handle(y);
    int x_ndim = nd_get_ndim(x), ndim = nd_get_ndim(indices);
    assert_int_equal(nd_get_ndim(y), x_ndim - 1 + ndim);
    for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
        int64_t index[2 * ND_MAX_DIMS], from[ND_MAX_DIMS];
        coordinates_of(nd_get_ndim(y), nd_get_shape(y), flat, index);
        for (int i = 0; i < x_ndim; i++)
            from[i] = i < axis ? index[i] : i > axis ? index[i - 1 + ndim] : 0;
        from[axis] = resolved(at(indices, ndim, index + axis), nd_get_shape(x)[axis]);
        assert_true(at_flat(y, flat) == at(x, x_ndim, from));
    }
}

static void test_take(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT_OF(all); d++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int axis = 0; axis < 3; axis++) {
                nd_auto nd_tensor *x = random_tensor((layout)how, ND_SHAPE(4, 5, 6), all[d], -3, 3);
                int64_t size = nd_get_size(x, axis);
                nd_auto nd_tensor *some =
                    random_indices((layout)how, ND_SHAPE(3, 7), how % 2 ? ND_I32 : ND_I64, size);
                nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0), ND_I64);
                nd_auto nd_tensor *one = nd_scalar(-1, ND_I64);
                check_take(x, some, axis);
                check_take(x, none, axis);
                check_take(x, one, axis);
            }
    nd_auto nd_tensor *table = random_dense(ND_SHAPE(1000, 64), ND_F32, -1, 1);
    nd_auto nd_tensor *many = random_indices(DENSE, ND_SHAPE(3000), ND_I64, 1000);
    check_take(table, many, 0);
}

/// Every order of the axes of a tensor, cut along one of them, some of size 1, few indices and many.
static void test_take_of_tables_as_they_lie(void **state) {
    (void)state;
    static const int orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                    {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    static const int64_t shapes[][3] = {{6, 40, 5}, {1, 40, 5}, {6, 40, 1}, {40, 1, 6}};
    for (size_t d = 0; d < COUNT_OF(all); d++)
        for (size_t s = 0; s < COUNT_OF(shapes); s++)
            for (size_t o = 0; o < COUNT_OF(orders); o++)
                for (int axis = 0; axis < 3; axis++) {
                    nd_auto nd_tensor *x = random_dense(3, shapes[s], all[d], -3, 3);
                    nd_auto nd_tensor *turned = nd_permute(x, 3, orders[o]);
                    const int cut = (int)((s + o) % 3);
                    nd_auto nd_tensor *part = nd_slice(turned, 0, INT64_MAX, 2, cut);
                    int64_t size = nd_get_size(part, axis);
                    nd_auto nd_tensor *few = random_indices(DENSE, ND_SHAPE(2), ND_I64, size);
                    nd_auto nd_tensor *many = random_indices(DENSE, ND_SHAPE(50), ND_I32, size);
                    check_take(part, few, axis);
                    check_take(part, many, axis);
                }
}

static void check_gather(const nd_tensor *x, int axis, const nd_tensor *index) {
    nd_auto nd_tensor *y = nd_gather(x, index, axis);
    assert_handle(y);
    int ndim = nd_get_ndim(x);
    assert_shape(y, ndim, nd_get_shape(index));
    for (int64_t flat = 0; flat < nd_get_numel(y); flat++) {
        int64_t from[ND_MAX_DIMS];
        coordinates_of(ndim, nd_get_shape(y), flat, from);
        from[axis] = resolved(at_flat(index, flat), nd_get_shape(x)[axis]);
        int64_t offset = 0; // x is larger than index: no broadcasting here
        for (int i = 0; i < ndim; i++)
            offset += from[i] * nd_get_strides(x)[i];
        assert_true(at_flat(y, flat) == element_as_double(nd_get_data(x), nd_get_dtype(x), offset));
    }
}

static void check_scatter(const nd_tensor *x, int axis, const nd_tensor *index,
                          const nd_tensor *source) {
    nd_auto nd_tensor *y = nd_scatter_add(x, index, source, axis);
    assert_handle(y);
    int ndim = nd_get_ndim(x);
    double *expected = calloc((size_t)nd_get_numel(x), sizeof *expected);
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++)
        expected[flat] = at_flat(x, flat);
    for (int64_t flat = 0; flat < nd_get_numel(source); flat++) {
        int64_t to[ND_MAX_DIMS], at_result = 0;
        coordinates_of(ndim, nd_get_shape(source), flat, to);
        to[axis] = resolved(at_flat(index, flat), nd_get_shape(x)[axis]);
        for (int i = 0; i < ndim; i++)
            at_result = at_result * nd_get_shape(x)[i] + to[i];
        expected[at_result] += at_flat(source, flat);
    }
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        double value = expected[flat];
        if (nd_get_dtype(x) == ND_U8)
            value = (double)(uint8_t)(int64_t)value;
        assert_close("scatter_add", at_flat(y, flat), value, 1e-6, 1e-5);
    }
    free(expected);
}

static void test_gather_and_scatter_add(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT_OF(all); d++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int axis = 0; axis < 3; axis++) {
                int64_t shape[] = {3, 4, 5};
                shape[axis] = 9; // the index is longer along the axis, shorter elsewhere
                nd_auto nd_tensor *x = random_tensor((layout)how, ND_SHAPE(4, 5, 6), all[d], -3, 3);
                nd_auto nd_tensor *index =
                    random_indices((layout)how, 3, shape, ND_I64, nd_get_size(x, axis));
                nd_auto nd_tensor *source = random_tensor((layout)how, 3, shape, all[d], -3, 3);
                check_gather(x, axis, index);
                if (all[d] != ND_BOOL)
                    check_scatter(x, axis, index, source);
            }
}

static void test_scatter_add_of_expanded_rows(void **state) {
    (void)state;
    nd_auto nd_tensor *table = random_dense(ND_SHAPE(50, 300), ND_F32, -1, 1);
    nd_auto nd_tensor *rows = random_indices(DENSE, ND_SHAPE(400, 1), ND_I64, 50);
    nd_auto nd_tensor *index = nd_expand(rows, ND_SHAPE(400, 300));
    nd_auto nd_tensor *source = random_dense(ND_SHAPE(400, 300), ND_F32, -1, 1);
    check_scatter(table, 0, index, source);
    nd_auto nd_tensor *line = random_dense(ND_SHAPE(7), ND_F64, -1, 1);
    nd_auto nd_tensor *positions = random_indices(DENSE, ND_SHAPE(5000), ND_I32, 7);
    nd_auto nd_tensor *values = random_dense(ND_SHAPE(5000), ND_F64, -1, 1);
    check_scatter(line, 0, positions, values);
    check_gather(line, 0, positions);
}

static void test_one_hot(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT_OF(all); d++) {
        nd_auto nd_tensor *indices = random_tensor(TRANSPOSED, ND_SHAPE(3, 4), ND_U8, 0, 0);
        nd_auto nd_tensor *wide = nd_cast(indices, ND_I64);
        nd_auto nd_tensor *y = nd_one_hot(wide, 16, all[d]);
        assert_shape(y, ND_SHAPE(3, 4, 16));
        assert_int_equal(nd_get_dtype(y), all[d]);
        for (int64_t i = 0; i < 12 * 16; i++)
            assert_true(at_flat(y, i) == (at_flat(wide, i / 16) == (double)(i % 16)));
    }
}

/// Rows that threads share, and the one index among them that is none of a class.
static void test_one_hot_of_many(void **state) {
    (void)state;
    static const int64_t classes[] = {1, 10, 20000};
    for (size_t c = 0; c < COUNT_OF(classes); c++) {
        int64_t n = 200000 / classes[c] + 3;
        nd_auto nd_tensor *x = nd_randint((nd_key){3, 4}, 0, classes[c], ND_SHAPE(n), ND_I64);
        nd_auto nd_tensor *y = nd_one_hot(x, classes[c], ND_U8);
        assert_shape(y, ND_SHAPE(n, classes[c]));
        const uint8_t *rows = nd_get_data(y);
        int64_t *indices = nd_get_data(x);
        for (int64_t i = 0; i < n * classes[c]; i++)
            assert_true(rows[i] == (indices[i / classes[c]] == i % classes[c]));
        for (int64_t wrong = -1; wrong <= classes[c]; wrong += classes[c] + 1) {
            indices[n / 2] = wrong;
            assert_refused(nd_one_hot(x, classes[c], ND_U8), ND_ERROR_INVALID_ARGUMENT,
                           "one_hot: an index is outside");
        }
    }
}

static void test_masked_select(void **state) {
    (void)state;
    for (size_t d = 0; d < COUNT_OF(all); d++)
        for (int how = 0; how < LAYOUTS; how++) {
            nd_auto nd_tensor *x = random_tensor((layout)how, ND_SHAPE(5, 7), all[d], -3, 3);
            nd_auto nd_tensor *mask = random_tensor((layout)how, ND_SHAPE(5, 7), ND_BOOL, 0, 1);
            nd_auto nd_tensor *y = nd_masked_select(x, mask);
            assert_handle(y);
            int64_t next = 0;
            for (int64_t i = 0; i < 35; i++)
                if (at_flat(mask, i) != 0)
                    assert_true(at_flat(y, next++) == at_flat(x, i));
            assert_int_equal(nd_get_numel(y), next);
        }
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(3), ND_BOOL);
    nd_auto nd_tensor *nothing = nd_masked_select(x, none);
    assert_shape(nothing, ND_SHAPE(0));
}

static void test_bad_indices_are_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3, 4), ND_F32);
    const int64_t values[] = {0, 3, 1}, low[] = {0, -4, 1};
    nd_auto nd_tensor *high = nd_from_data(values, ND_SHAPE(3), ND_I64);
    nd_auto nd_tensor *below = nd_from_data(low, ND_SHAPE(3), ND_I64);
    assert_refused(nd_take(x, high, 0), ND_ERROR_INVALID_ARGUMENT,
                   "take: an index is outside -3 ... 2");
    assert_refused(nd_take(x, below, 0), ND_ERROR_INVALID_ARGUMENT, "take: an index is outside");
    assert_refused(nd_take(x, x, 0), ND_ERROR_DTYPE, "take: the indices are float32");
    assert_refused(nd_take(x, high, 2), ND_ERROR_INVALID_ARGUMENT, "take: axis 2");
    assert_refused(nd_gather(x, high, 0), ND_ERROR_SHAPE,
                   "gather: an index of shape [3] does not fit");
    nd_auto nd_tensor *row = nd_reshape(high, ND_SHAPE(1, 3));
    assert_refused(nd_gather(x, row, 0), ND_ERROR_INVALID_ARGUMENT, "gather: an index is outside");
    nd_auto nd_tensor *source = nd_ones(ND_SHAPE(1, 3), ND_F32);
    assert_refused(nd_scatter_add(x, row, source, 0), ND_ERROR_INVALID_ARGUMENT, "scatter_add");
    assert_refused(nd_scatter_add(x, row, x, 0), ND_ERROR_SHAPE, "scatter_add: index has shape");
    assert_refused(nd_scatter_add(x, row, row, 0), ND_ERROR_DTYPE, "scatter_add: x is float32");
    assert_refused(nd_one_hot(high, 3, ND_F32), ND_ERROR_INVALID_ARGUMENT,
                   "one_hot: an index is outside 0 ... 2");
    assert_refused(nd_one_hot(high, 0, ND_F32), ND_ERROR_INVALID_ARGUMENT, "one_hot: 0 classes");
    assert_refused(nd_masked_select(x, x), ND_ERROR_DTYPE, "masked_select: the mask is float32");
    nd_auto nd_tensor *empty = nd_zeros(ND_SHAPE(0), ND_F32);
    assert_refused(nd_take(empty, high, 0), ND_ERROR_INVALID_ARGUMENT, "take: there are indices");
}

/// One among many that are in range, along each axis and in rows that share it; the ends themselves
/// are in range.
static void test_one_bad_index_is_found(void **state) {
    (void)state;
    const int64_t n = 40, values[] = {-40, 39, -41, 40, INT64_MIN, INT64_MAX};
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(40, 40), ND_F32, -1, 1);
    for (size_t v = 0; v < COUNT_OF(values); v++)
        for (int axis = 0; axis < 2; axis++)
            for (int shared = 0; shared < 2; shared++) {
                bool fits = values[v] >= -n && values[v] < n;
                nd_auto nd_tensor *given =
                    random_indices(DENSE, ND_SHAPE(40, shared ? 1 : 40), ND_I64, n);
                ((int64_t *)nd_get_data(given))[nd_get_numel(given) - 2] = values[v];
                nd_auto nd_tensor *index = nd_expand(given, ND_SHAPE(40, 40));
                if (fits) {
                    check_gather(x, axis, index);
                    check_scatter(x, axis, index, x);
                    continue;
                }
                assert_refused(nd_gather(x, index, axis), ND_ERROR_INVALID_ARGUMENT,
                               "gather: an index is outside -40 ... 39");
                assert_refused(nd_scatter_add(x, index, x, axis), ND_ERROR_INVALID_ARGUMENT,
                               "scatter_add: an index is outside -40 ... 39");
            }
}

/// Nothing stands where they point, and they are looked at all the same; on a device, too.
static void test_indices_of_empty_rows(void **state) {
    (void)state;
    for (int kind = 0; kind < 2; kind++) {
        nd_device device = {kind ? ND_FAKE : ND_CPU, 0};
        nd_auto nd_tensor *rows_here = nd_zeros(ND_SHAPE(3, 0), ND_F32);
        nd_auto nd_tensor *none_here = nd_zeros(ND_SHAPE(0, 3), ND_F32);
        nd_auto nd_tensor *ones_here = nd_ones(ND_SHAPE(1, 3), ND_F32);
        nd_auto nd_tensor *zeros_here = nd_zeros(ND_SHAPE(1, 3), ND_I64);
        nd_auto nd_tensor *rows = nd_to(rows_here, device);
        nd_auto nd_tensor *none = nd_to(none_here, device);
        nd_auto nd_tensor *ones = nd_to(ones_here, device);
        nd_auto nd_tensor *zeros = nd_to(zeros_here, device);
        for (int64_t value = -4; value <= 3; value++) {
            nd_auto nd_tensor *here = nd_full(ND_SHAPE(2), value, ND_I64);
            nd_auto nd_tensor *index = nd_to(here, device);
            bool fits = value >= -3 && value < 3;
            nd_error_clear();
            nd_auto nd_tensor *taken = nd_take(rows, index, 0);
            assert_int_equal(nd_error_get_status(), fits ? ND_OK : ND_ERROR_INVALID_ARGUMENT);
            if (fits)
                assert_shape(taken, ND_SHAPE(2, 0));
        }
        assert_refused(nd_scatter_add(none, zeros, ones, 0), ND_ERROR_INVALID_ARGUMENT,
                       "scatter_add: there are indices, and the axis has no elements");
        nd_auto nd_tensor *nowhere = nd_zeros(ND_SHAPE(2, 0), ND_I64);
        nd_auto nd_tensor *nowhere_there = nd_to(nowhere, device);
        nd_auto nd_tensor *nothing = nd_gather(rows, nowhere_there, 0);
        assert_shape(nothing, ND_SHAPE(2, 0));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_take),
        ND_TEST(test_take_of_tables_as_they_lie),
        ND_TEST(test_gather_and_scatter_add),
        ND_TEST(test_scatter_add_of_expanded_rows),
        ND_TEST(test_one_hot),
        ND_TEST(test_one_hot_of_many),
        ND_TEST(test_masked_select),
        ND_TEST(test_bad_indices_are_refused),
        ND_TEST(test_one_bad_index_is_found),
        ND_TEST(test_indices_of_empty_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
