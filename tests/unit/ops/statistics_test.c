// Statistics and scans of every dtype against plain loops over doubles and 64-bit integers: every
// set of axes and layout, repeated elements, nothing, NaN and infinities.
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"
#include <nd/autograd.h>

typedef enum kind { STD, PROD, ANY, ALL, COUNT, LOGSUMEXP, NORM, KINDS } kind;
static const char *const names[KINDS] = {"std", "prod", "any", "all", "count", "logsumexp", "norm"};
static const double orders[] = {1, 2, 3, 0.5, -1, 0, INFINITY, -INFINITY};

static nd_tensor *call(kind what, double order, const nd_tensor *x, int naxes, const int *axes,
                       bool keepdims) {
    switch (what) {
    case STD:
        return nd_std(x, naxes, axes, 1.0, keepdims);
    case PROD:
        return nd_prod(x, naxes, axes, keepdims);
    case ANY:
        return nd_any(x, naxes, axes, keepdims);
    case ALL:
        return nd_all(x, naxes, axes, keepdims);
    case COUNT:
        return nd_count_nonzero(x, naxes, axes, keepdims);
    case LOGSUMEXP:
        return nd_logsumexp(x, naxes, axes, keepdims);
    default:
        return nd_norm(x, order, naxes, axes, keepdims);
    }
}

static double norm_of(double order, const double *numbers, int64_t n) {
    double sum = 0, largest = 0, least = INFINITY, count = 0;
    for (int64_t i = 0; i < n; i++) {
        double size = fabs(numbers[i]);
        sum += pow(size, order);
        largest = fmax(largest, size);
        least = fmin(least, size);
        count += size != 0;
    }
    if (isinf(order))
        return order > 0 ? largest : least;
    return order == 0 ? count : pow(sum, 1 / order);
}

/// The result for the numbers of one group; integers of products wrap as unsigned ones do.
static double expected_of(kind what, double order, nd_dtype dtype, const double *numbers,
                          int64_t n) {
    double sum = 0, squares = 0, product = 1, largest = -INFINITY, count = 0;
    uint64_t wrapped = 1;
    for (int64_t i = 0; i < n; i++) {
        sum += numbers[i];
        product *= numbers[i];
        if (!is_float(dtype))
            wrapped *= (uint64_t)(int64_t)numbers[i];
        largest = fmax(largest, numbers[i]);
        count += numbers[i] != 0;
    }
    for (int64_t i = 0; i < n; i++)
        squares += (numbers[i] - sum / (double)n) * (numbers[i] - sum / (double)n);
    switch (what) {
    case STD:
        return sqrt(squares / ((double)n - 1));
    case PROD:
        if (is_float(dtype))
            return product;
        return is_unsigned(dtype) ? (double)wrapped : (double)(int64_t)wrapped;
    case ANY:
        return count > 0;
    case ALL:
        return count == (double)n;
    case COUNT:
        return count;
    case LOGSUMEXP:
        sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += exp(numbers[i] - largest);
        return largest + log(sum);
    default:
        return norm_of(order, numbers, n);
    }
}

static nd_dtype dtype_of(kind what, nd_dtype dtype) {
    if (what == ANY || what == ALL)
        return ND_BOOL;
    if (what == COUNT)
        return ND_I64;
    if (is_float(dtype))
        return dtype;
    return what != PROD ? ND_F32 : is_unsigned(dtype) ? ND_U64 : ND_I64;
}

static double rounding_of(nd_dtype dtype) {
    return dtype == ND_BF16 ? 0x1p-7 : dtype == ND_F16 ? 0x1p-10 : dtype == ND_F64 ? 1e-12 : 1e-6;
}

/// A number beyond the range of the result's dtype becomes infinite, one below it 0.
static double as_held(nd_dtype dtype, double value) {
    double most = dtype == ND_F16 ? 65504 : dtype == ND_F64 ? 1.7e308 : 3.4e38;
    if (is_float(dtype) && fabs(value) > most)
        return value > 0 ? INFINITY : -INFINITY;
    return value;
}

static void check(kind what, double order, const nd_tensor *x, int mask) {
    int axes[ND_MAX_DIMS], naxes = 0, ndim = nd_get_ndim(x);
    int64_t results = 1, each = 1;
    for (int i = 0; i < ndim; i++) {
        if (mask & 1 << i)
            axes[naxes++] = i;
        *(mask & 1 << i ? &each : &results) *= nd_get_shape(x)[i];
    }
    nd_auto nd_tensor *y = call(what, order, x, naxes, axes, mask % 2);
    assert_handle(y);
    nd_dtype dtype = dtype_of(what, nd_get_dtype(x));
    assert_int_equal(nd_get_dtype(y), dtype);
    assert_int_equal(nd_get_numel(y), results);
    double *numbers = malloc((size_t)each * sizeof *numbers);
    assert_non_null(numbers);
    for (int64_t r = 0; r < results; r++) {
        int64_t found = 0;
        for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
            int64_t index[ND_MAX_DIMS], at_result = 0;
            coordinates_of(ndim, nd_get_shape(x), flat, index);
            for (int i = 0; i < ndim; i++)
                if (!(mask & 1 << i))
                    at_result = at_result * nd_get_shape(x)[i] + index[i];
            if (at_result == r)
                numbers[found++] = at(x, ndim, index);
        }
        double expected = expected_of(what, order, nd_get_dtype(x), numbers, each);
        assert_close(names[what], at_flat(y, r), as_held(dtype, expected), rounding_of(dtype),
                     dtype == ND_F64   ? 1e-12
                     : dtype == ND_F16 ? 1e-3
                                       : 1e-6);
    }
    free(numbers);
}

static const struct {
    int ndim;
    int64_t shape[3];
} shapes[] = {{1, {1}}, {1, {37}}, {2, {3, 21}}, {3, {4, 1, 9}}, {3, {3, 5, 4}}};

static void test_every_statistic_of_every_dtype(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
            for (int how = 0; how < LAYOUTS; how++) {
                nd_auto nd_tensor *x = random_tensor((layout)how, shapes[s].ndim, shapes[s].shape,
                                                     (nd_dtype)dtype, -2, 2);
                for (int mask = 1; mask < 1 << shapes[s].ndim; mask++)
                    for (int what = 0; what < KINDS; what++)
                        check((kind)what, orders[rand() % (int)COUNT_OF(orders)], x, mask);
            }
}

static void test_long_statistics(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_BF16, ND_F16, ND_I16, ND_U8};
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        nd_auto nd_tensor *x = random_dense(ND_SHAPE(40000), dtypes[d], -2, 2);
        for (int what = 0; what < KINDS; what++)
            if (what != PROD)
                check((kind)what, orders[d % 4], x, 1);
        nd_auto nd_tensor *columns = nd_reshape(x, ND_SHAPE(20000, 2));
        check(STD, 0, columns, 1);
        check(LOGSUMEXP, 0, columns, 1);
        check(NORM, 2, columns, 1);
    }
}

static void test_statistics_of_nothing_and_of_scalars(void **state) {
    (void)state;
    nd_auto nd_tensor *empty = nd_zeros(ND_SHAPE(0, 2), ND_F32);
    static const double expected[KINDS] = {NAN, 1, 0, 1, 0, -INFINITY, 0};
    int axis = 0;
    nd_auto nd_tensor *scalar = nd_scalar(-3, ND_F32);
    static const double of_scalar[KINDS] = {NAN, -3, 1, 1, 1, -3, 3};
    for (int what = 0; what < KINDS; what++) {
        nd_auto nd_tensor *y = call((kind)what, 2, empty, 1, &axis, false);
        assert_close(names[what], at_flat(y, 1), expected[what], 0, 0);
        nd_auto nd_tensor *z = call((kind)what, 2, scalar, 0, NULL, false);
        assert_close(names[what], at_flat(z, 0), of_scalar[what], 1e-6, 0);
    }
    assert_refused(nd_norm(scalar, NAN, 0, NULL, false), ND_ERROR_INVALID_ARGUMENT,
                   "norm: its order is NaN");
    assert_refused(nd_norm(empty, INFINITY, 0, NULL, false), ND_ERROR_SHAPE, "norm: shape [0, 2]");
    assert_refused(nd_norm(empty, -INFINITY, 0, NULL, false), ND_ERROR_SHAPE, "norm: shape [0, 2]");
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (size_t o = 0; o < COUNT_OF(orders); o++) { // as NumPy's
            if (isinf(orders[o]))
                continue;
            nd_auto nd_tensor *nothing = nd_zeros(ND_SHAPE(0, 2), (nd_dtype)dtype);
            nd_auto nd_tensor *y = nd_norm(nothing, orders[o], 1, &axis, false);
            assert_shape(y, ND_SHAPE(2));
            assert_close("norm", at_flat(y, 1), orders[o] < 0 ? INFINITY : 0, 0, 0);
        }
    assert_refused(nd_cumsum(scalar, 0), ND_ERROR_INVALID_ARGUMENT, "cumsum: axis 0");
}

static void test_special_values(void **state) {
    (void)state;
    static const float rows[][3] = {{NAN, 1, 0},
                                    {-INFINITY, -INFINITY, -INFINITY},
                                    {INFINITY, 1, 2},
                                    {1000, 1000, 1000},
                                    {-1000, -1000, -INFINITY}};
    nd_auto nd_tensor *x = nd_from_data(rows, ND_SHAPE(5, 3), ND_F32);
    int axis = 1;
    nd_auto nd_tensor *lse = nd_logsumexp(x, 1, &axis, false);
    static const double sums[] = {NAN, -INFINITY, INFINITY, 1001.0986122886681, -999.30685281944};
    nd_auto nd_tensor *any = nd_any(x, 1, &axis, false);
    nd_auto nd_tensor *all = nd_all(x, 1, &axis, false);
    nd_auto nd_tensor *most = nd_cummax(x, 1);
    for (int64_t r = 0; r < 5; r++) {
        assert_close("logsumexp", at_flat(lse, r), sums[r], 1e-6, 0);
        assert_true(at_flat(any, r) == 1 && at_flat(all, r) == (r != 0));
    }
    assert_true(isnan(at_flat(most, 2)) && at_flat(most, 8) == INFINITY);
}

/// `x` along its first axis, as the dense rows that its columns are.
static void check_columns(const nd_tensor *x) {
    nd_auto nd_tensor *turned = nd_transpose(x, 0, 1);
    nd_auto nd_tensor *rows = nd_clone(turned);
    const int first = 0, second = 1;
    nd_tensor *(*const exact[])(const nd_tensor *, int, const int *, bool) = {
        nd_sum, nd_max, nd_min, nd_count_nonzero, nd_prod, nd_mean, nd_logsumexp};
    for (size_t i = 0; i < COUNT_OF(exact); i++) {
        nd_auto nd_tensor *a = exact[i](x, 1, &first, false);
        nd_auto nd_tensor *b = exact[i](rows, 1, &second, false);
        for (int64_t k = 0; k < nd_get_numel(a); k++)
            assert_close("columns", at_flat(a, k), at_flat(b, k), i < 4 ? 0 : 8e-3, 0);
    }
    for (int order = 1; order <= 3; order++) {
        nd_auto nd_tensor *a = nd_norm(x, order, 1, &first, false);
        nd_auto nd_tensor *b = nd_norm(rows, order, 1, &second, false);
        for (int64_t k = 0; k < nd_get_numel(a); k++)
            assert_close("norm", at_flat(a, k), at_flat(b, k), 8e-3, 0);
    }
}

static void every_count_of_rows(void) {
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_BF16, ND_F16, ND_I64, ND_U8};
    static const int64_t counts[] = {1, 2, 3, 4, 5, 6, 7, 63, 64, 65, 66, 130};
    static float numbers[130 * 300];
    for (size_t i = 0; i < COUNT_OF(numbers); i++)
        numbers[i] = (float)(rand() % 3);
    for (size_t d = 0; d < COUNT_OF(dtypes); d++)
        for (size_t c = 0; c < COUNT_OF(counts); c++) {
            nd_auto nd_tensor *dense = nd_from_data(numbers, ND_SHAPE(counts[c], 300), ND_F32);
            nd_auto nd_tensor *x = nd_cast(dense, dtypes[d]);
            if (is_float(dtypes[d])) {
                set_element(nd_get_data(x), dtypes[d], 17, NAN);
                set_element(nd_get_data(x), dtypes[d], (counts[c] - 1) * 300 + 18, -INFINITY);
                set_element(nd_get_data(x), dtypes[d], (counts[c] - 1) * 300 + 19, INFINITY);
            }
            check_columns(x);
            nd_auto nd_tensor *some = nd_slice(x, 3, INT64_MAX, 2, 1);
            check_columns(some);
        }
}

/// Columns of few rows have no sums of parts, and what is left of four rows goes together.
static void test_columns_of_every_count_of_rows(void **state) {
    (void)state;
    on_every_isa(every_count_of_rows);
}

/// Against sums of the math library's powers: along rows that fill vectors or do not, columns, and every
/// other element, of numbers whose powers leave the range as well.
static void every_order_of_norm(void) {
    static const double all[] = {3, 2.5, 4, 0.5, -0.5, -1, -3};
    static const int64_t counts[] = {1, 2, 5, 7, 8, 9, 31, 63, 64, 65, 129, 300};
    static const double special[] = {0,   1e200,     1e-200, 0x1p-1074, INFINITY,
                                     NAN, -INFINITY, -0.0,   1e300,     1e-300};
    static double numbers[2][300 * 5];
    for (size_t i = 0; i < COUNT_OF(numbers[0]); i++) {
        numbers[0][i] = random_value(ND_F64, -3, 3);
        numbers[1][i] = i % 7 == 3 ? special[i / 7 % COUNT_OF(special)] : numbers[0][i];
    }
    for (size_t c = 0; c < COUNT_OF(counts); c++)
        for (size_t i = 0; i < 2 * COUNT_OF(all); i++) {
            const double order = all[i / 2];
            const int64_t n = counts[c];
            nd_auto nd_tensor *rows = nd_from_data(numbers[i % 2], ND_SHAPE(5, n), ND_F64);
            nd_auto nd_tensor *columns = nd_transpose(rows, 0, 1);
            nd_auto nd_tensor *dense = nd_clone(columns);
            nd_auto nd_tensor *half = nd_slice(rows, 0, n, 2, 1);
            nd_auto nd_tensor *single = nd_cast(rows, ND_F32);
            const nd_tensor *const given[] = {rows, columns, dense, half, single};
            for (size_t g = 0; g < COUNT_OF(given); g++) {
                const int axis = given[g] == columns || given[g] == dense ? 0 : 1;
                nd_auto nd_tensor *y = nd_norm(given[g], order, 1, &axis, false);
                assert_handle(y);
                for (int64_t k = 0; k < 5; k++) {
                    double group[300];
                    const int64_t length = nd_get_shape(given[g])[axis];
                    for (int64_t j = 0; j < length; j++)
                        group[j] = at_flat(given[g], axis == 0 ? j * 5 + k : k * length + j);
                    const double expected = norm_of(order, group, length);
                    assert_close("norm", at_flat(y, k), as_held(nd_get_dtype(y), expected),
                                 given[g] == single ? 1e-6 : 1e-13, 0);
                }
            }
        }
}

static void test_norms_of_every_order(void **state) {
    (void)state;
    on_every_isa(every_order_of_norm);
}

// ------------------------------------------------------------------------------------------ scans

typedef nd_tensor *(*scan)(const nd_tensor *x, int axis);
enum { SUM, PRODUCT, LARGEST, LEAST, SCANS };
static const scan scans[SCANS] = {nd_cumsum, nd_cumprod, nd_cummax, nd_cummin};

static double next_of(int what, nd_dtype dtype, double before, double x) {
    if (what == LARGEST || what == LEAST)
        return isnan(x) || (what == LARGEST ? x > before : x < before) ? x : before;
    if (is_float(dtype))
        return what == SUM ? before + x : before * x;
    uint64_t a = (uint64_t)(int64_t)before, b = (uint64_t)(int64_t)x;
    uint64_t c = what == SUM ? a + b : a * b;
    return is_unsigned(dtype) ? (double)c : (double)(int64_t)c;
}

static void check_scan(int what, const nd_tensor *x, int axis) {
    nd_auto nd_tensor *y = scans[what](x, axis);
    assert_handle(y);
    nd_dtype dtype = nd_get_dtype(x);
    if (!is_float(dtype) && what <= PRODUCT)
        dtype = is_unsigned(dtype) ? ND_U64 : ND_I64;
    assert_int_equal(nd_get_dtype(y), dtype);
    assert_shape(y, nd_get_ndim(x), nd_get_shape(x));
    int ndim = nd_get_ndim(x);
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        int64_t index[ND_MAX_DIMS];
        coordinates_of(ndim, nd_get_shape(x), flat, index);
        if (index[axis] != 0)
            continue;
        double expected = at(x, ndim, index);
        for (int64_t i = 0; i < nd_get_shape(x)[axis]; i++) {
            index[axis] = i;
            if (i > 0)
                expected = next_of(what, nd_get_dtype(x), expected, at(x, ndim, index));
            assert_close("scan", at(y, ndim, index), as_held(dtype, expected), rounding_of(dtype),
                         dtype == ND_F16 ? 1e-3 : 1e-6);
        }
    }
}

static void test_scans_of_every_dtype(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
            for (int how = 0; how < LAYOUTS; how++) {
                nd_auto nd_tensor *x = random_tensor((layout)how, shapes[s].ndim, shapes[s].shape,
                                                     (nd_dtype)dtype, -2, 2);
                for (int axis = 0; axis < shapes[s].ndim; axis++)
                    for (int what = 0; what < SCANS; what++)
                        if (what != PRODUCT || nd_get_shape(x)[axis] < 12 ||
                            is_float((nd_dtype)dtype))
                            check_scan(what, x, axis);
            }
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(3, 3000), ND_F64, -1, 1);
    check_scan(SUM, x, 1);
    check_scan(LARGEST, x, 1);
}

/// Rows that are long, many, and side by side, in parts and whole, in every layout.
static void test_long_scans_of_every_dtype(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{5, 1500}, {1, 5000}, {600, 9}, {700, 20}, {7, 300}};
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
            for (int how = 0; how < LAYOUTS; how++) {
                nd_auto nd_tensor *x =
                    random_tensor((layout)how, 2, sizes[s], (nd_dtype)dtype, -1, 1);
                for (int axis = 0; axis < 2; axis++)
                    for (int what = 0; what < SCANS; what++)
                        if (what != PRODUCT || sizes[s][axis] < 12 || is_float((nd_dtype)dtype))
                            check_scan(what, x, axis);
            }
}

/// NaN stays from where it stands, in every part; of zeros that are equal the first stays.
static void test_scans_of_special_values(void **state) {
    (void)state;
    enum { ROWS = 6, N = 1300 };
    static float numbers[ROWS][N];
    static const nd_dtype floats[] = {ND_F16, ND_BF16, ND_F32, ND_F64};
    for (int row = 0; row < ROWS; row++)
        for (int i = 0; i < N; i++)
            numbers[row][i] = i % 2 ? -0.0f : 0.0f;
    numbers[1][3] = numbers[2][N - 1] = numbers[3][0] = numbers[4][700] = NAN;
    numbers[5][600] = INFINITY;
    for (size_t d = 0; d < COUNT_OF(floats); d++)
        for (int turned = 0; turned < 2; turned++) {
            nd_auto nd_tensor *dense = nd_from_data(numbers, ND_SHAPE(ROWS, N), ND_F32);
            nd_auto nd_tensor *held = nd_cast(dense, floats[d]);
            nd_auto nd_tensor *x = turned ? nd_transpose(held, 0, 1) : nd_retain(held);
            for (int what = 0; what < SCANS; what++)
                check_scan(what, x, turned ? 0 : 1);
            nd_auto nd_tensor *most = nd_cummax(x, turned ? 0 : 1);
            nd_auto nd_tensor *signs = nd_signbit(most);
            nd_auto nd_tensor *any = nd_any(signs, 0, NULL, false);
            assert_true(at_flat(any, 0) == 0);
        }
}

/// PyTorch's numbers: the factors without one, with one zero and with two.
static void test_products_with_zeros_have_gradients(void **state) {
    (void)state;
    static const double inputs[][3] = {{2, 0, 3}, {0, 0, 3}, {2, 4, 3}};
    static const double first[][3] = {{0, 6, 0}, {0, 0, 0}, {12, 6, 8}};
    // d of the sum of the squared first gradients: 2 H g
    static const double second[][3] = {{36, 0, 24}, {0, 0, 0}, {100, 104, 120}};
    for (size_t i = 0; i < 3; i++) {
        nd_auto nd_tensor *x = nd_from_data(inputs[i], ND_SHAPE(3), ND_F64);
        assert_ok(nd_set_requires_grad(x, true));
        nd_auto nd_tensor *y = nd_prod(x, 0, NULL, false);
        const nd_tensor *wanted[] = {x};
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = true;
        nd_tensor *grads[1];
        assert_ok(nd_grad(y, 1, wanted, &options, grads));
        nd_auto nd_tensor *g = grads[0];
        nd_auto nd_tensor *square = nd_square(g);
        nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
        nd_tensor *more[1];
        assert_ok(nd_grad(sum, 1, wanted, NULL, more));
        nd_auto nd_tensor *h = more[0];
        for (int64_t k = 0; k < 3; k++) {
            assert_close("gradient", at_flat(g, k), first[i][k], 1e-12, 0);
            assert_close("second", at_flat(h, k), second[i][k], 1e-12, 0);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_statistic_of_every_dtype),
        ND_TEST(test_long_statistics),
        ND_TEST(test_statistics_of_nothing_and_of_scalars),
        ND_TEST(test_special_values),
        ND_TEST(test_columns_of_every_count_of_rows),
        ND_TEST(test_norms_of_every_order),
        ND_TEST(test_scans_of_every_dtype),
        ND_TEST(test_long_scans_of_every_dtype),
        ND_TEST(test_scans_of_special_values),
        ND_TEST(test_products_with_zeros_have_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
