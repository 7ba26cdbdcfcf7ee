// Quantiles, medians, histograms and counts: against PyTorch, and against plain loops.
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/torch_case.h"
#include <nd/autograd.h>
#include <nd/sorting.h>

#define QUANTILES(...)                                                         \
    sizeof((const double[]){__VA_ARGS__}) / sizeof(double), (const double[]) { \
        __VA_ARGS__                                                            \
    }
#define STATISTIC(name, expression) \
    TORCH_FUNCTION(name) {          \
        (void)count, (void)data;    \
        return expression;          \
    }
STATISTIC(quantile_linear, nd_quantile(x[0], QUANTILES(0, 0.1, 0.5, 0.77, 1), ND_QUANTILE_LINEAR, 1,
                                       (const int[]){1}, false))
STATISTIC(quantile_lower, nd_quantile(x[0], QUANTILES(0.3, 0.8), ND_QUANTILE_LOWER, 0, NULL, false))
STATISTIC(quantile_higher,
          nd_quantile(x[0], QUANTILES(0.3, 0.8), ND_QUANTILE_HIGHER, 1, (const int[]){-1}, true))
STATISTIC(quantile_midpoint,
          nd_quantile(x[0], QUANTILES(0.3, 0.5), ND_QUANTILE_MIDPOINT, 1, (const int[]){0}, true))
STATISTIC(quantile_nearest, nd_quantile(x[0], QUANTILES(0.3, 0.5, 0.9), ND_QUANTILE_NEAREST, 1,
                                        (const int[]){0}, false))
STATISTIC(median_even, nd_median(x[0], 2, (const int[]){0, 2}, false))
STATISTIC(median_odd, nd_median(x[0], 1, (const int[]){1}, true))
STATISTIC(histogram_weighted, nd_histogram(x[0], x[1], x[2]))

TORCH_FUNCTION(quantile_methods) {
    (void)count, (void)data;
    nd_tensor *parts[ND_QUANTILE_NORMAL_UNBIASED + 1];
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        parts[i] = nd_quantile(
            x[0], QUANTILES(0, 0.0625, 0.125, 0.1875, 0.3, 0.5, 0.6875, 0.8125, 0.97, 1),
            (nd_quantile_method)i, 1, (const int[]){0}, false);
    nd_tensor *joined = nd_concat(COUNT_OF(parts), (const nd_tensor *const *)parts, 0);
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        nd_release(parts[i]);
    return joined;
}

TORCH_FUNCTION(bincount_weighted) {
    (void)count, (void)data;
    const int64_t numbers[] = {3, 0, 3, 5, 1, 3};
    nd_auto nd_tensor *places = nd_from_data(numbers, ND_SHAPE(6), ND_I64);
    return nd_bincount(places, x[0], 8);
}

static void test_quantiles_as_in_pytorch(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(quantile_linear, 1, {3, {2, 5, 3}}),
        TORCH_CASE(quantile_lower, 1, {2, {2, 5}}),
        TORCH_CASE(quantile_higher, 1, {2, {3, 4}}),
        TORCH_CASE(quantile_midpoint, 1, {2, {4, 2}}),
        TORCH_CASE(quantile_nearest, 1, {2, {6, 2}}),
        TORCH_CASE(quantile_methods, 1, {2, {8, 2}}),
        TORCH_CASE(median_even, 1, {3, {2, 3, 5}}),
        TORCH_CASE(median_odd, 1, {2, {2, 5}}),
        TORCH_CASE(bincount_weighted, 1, {1, {6}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

static void test_quantiles_of_other_dtypes(void **state) {
    (void)state;
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        nd_auto nd_tensor *x = random_dense(ND_SHAPE(4, 9), (nd_dtype)dtype, -3, 3);
        nd_auto nd_tensor *sorted = nd_sort(x, 1, false);
        nd_auto nd_tensor *middle = nd_median(x, 1, (const int[]){1}, false);
        assert_handle(middle);
        assert_true(nd_get_dtype(middle) == (is_float((nd_dtype)dtype) ? (nd_dtype)dtype : ND_F32));
        for (int64_t i = 0; i < 4; i++)
            assert_true(at_flat(middle, i) == at_flat(sorted, 9 * i + 4));
    }
}

static void test_quantiles_of_infinities_and_nan(void **state) {
    (void)state;
    const double rows[] = {INFINITY, 1, INFINITY, 2, -INFINITY, NAN, 3, 4};
    nd_auto nd_tensor *x = nd_from_data(rows, ND_SHAPE(2, 4), ND_F64);
    nd_auto nd_tensor *middle = nd_median(x, 1, (const int[]){1}, false);
    nd_auto nd_tensor *greatest =
        nd_quantile(x, QUANTILES(0.84), ND_QUANTILE_MIDPOINT, 1, (const int[]){1}, false);
    assert_true(isinf(at_flat(middle, 0)) && isnan(at_flat(middle, 1)));
    assert_true(isinf(at_flat(greatest, 0)) && isnan(at_flat(greatest, 1)));
    nd_auto nd_tensor *number = nd_scalar(2.5, ND_F32);
    nd_auto nd_tensor *same = nd_median(number, 0, NULL, false);
    assert_true(nd_get_ndim(same) == 0 && at_flat(same, 0) == 2.5);
}

enum { ROW_KINDS = 8 };

/// An element of a row of n: random; few numbers; in order; in reverse; nearly all equal; a NaN or two;
/// and such that what lies at regular distances is greater, or less, than all the rest.
static double element_of_row(int kind, int64_t i, int64_t n) {
    const double number = rand() % 1000 / 16.0;
    const int64_t step = n / 48 > 0 ? n / 48 : 1;
    switch (kind) {
    case 1:
        return rand() % 3;
    case 2:
        return (double)i;
    case 3:
        return (double)(n - i);
    case 4:
        return rand() % 50 ? 5 : number;
    case 5:
        return i == n / 3 || i == n / 2 ? NAN : number;
    case 6:
        return i % step ? number : 100 + number;
    case 7:
        return i % step ? 100 + number : number;
    default:
        return number;
    }
}

static nd_tensor *rows_of_kind(int kind, int64_t n, nd_dtype dtype, bool transposed) {
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(transposed ? n : 2, transposed ? 2 : n),
                                    is_float(dtype) ? dtype : ND_F64);
    for (int64_t row = 0; row < 2; row++)
        for (int64_t i = 0; i < n; i++) {
            // Only the second row has a NaN.
            double value = element_of_row(kind == 5 && row == 0 ? 0 : kind, i, n);
            value = isnan(value) && !is_float(dtype) ? 7 : value;
            set_element(nd_get_data(x), nd_get_dtype(x), transposed ? 2 * i + row : row * n + i,
                        value);
        }
    nd_auto nd_tensor *cast = is_float(dtype) ? nd_retain(x) : nd_cast(x, dtype);
    return transposed ? nd_transpose(cast, 0, 1) : nd_steal(&cast);
}

/// Against what the whole sort has at the ranks.
static void check_ranks(const nd_tensor *x, int64_t n) {
    const double q[] = {0, 0.1, 0.5, 1};
    nd_auto nd_tensor *sorted = nd_sort(x, 1, false);
    nd_auto nd_tensor *lower =
        nd_quantile(x, COUNT_OF(q), q, ND_QUANTILE_LOWER, 1, (const int[]){1}, false);
    assert_handle(lower);
    for (int64_t row = 0; row < 2; row++) {
        const double last = at_flat(sorted, row * n + n - 1);
        for (int64_t i = 0; i < (int64_t)COUNT_OF(q); i++) {
            const double found = at_flat(lower, 2 * i + row);
            const double there = at_flat(sorted, row * n + (int64_t)(q[i] * (double)(n - 1)));
            assert_true(isnan(last) ? isnan(found) : found == there);
        }
    }
}

static void check_ranks_of_rows(void) {
    static const nd_dtype dtypes[] = {ND_F64, ND_F32, ND_BF16, ND_U8, ND_I64, ND_U64};
    static const int64_t sizes[] = {2, 7, 8, 9, 48, 49, 95, 97, 257, 1000, 4097, 6000};
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (int kind = 0; kind < ROW_KINDS; kind++) {
            nd_auto nd_tensor *x = rows_of_kind(
                kind, sizes[s], dtypes[(s + (size_t)kind) % COUNT_OF(dtypes)], kind % 2);
            nd_auto nd_tensor *floats = rows_of_kind(kind, sizes[s], ND_F32, s % 2);
            check_ranks(x, sizes[s]);
            check_ranks(floats, sizes[s]);
        }
}

static void test_quantiles_of_rows_of_every_kind(void **state) {
    (void)state;
    on_every_isa(check_ranks_of_rows);
}

/// More of them than ranks are found without a sort, and of one row of many elements.
static void test_many_quantiles(void **state) {
    (void)state;
    nd_auto nd_tensor *x = rows_of_kind(5, 300, ND_F32, false);
    nd_auto nd_tensor *long_rows = rows_of_kind(0, 300000, ND_F64, false);
    const double q[] = {0, 0.1, 0.2, 0.3, 0.4, 0.9};
    nd_auto nd_tensor *all =
        nd_quantile(x, COUNT_OF(q), q, ND_QUANTILE_LINEAR, 1, (const int[]){1}, false);
    for (size_t i = 0; i < COUNT_OF(q); i++) {
        nd_auto nd_tensor *one =
            nd_quantile(x, 1, q + i, ND_QUANTILE_LINEAR, 1, (const int[]){1}, false);
        assert_true(at_flat(one, 0) == at_flat(all, 2 * (int64_t)i));
        assert_true(isnan(at_flat(one, 1)) && isnan(at_flat(all, 2 * (int64_t)i + 1)));
    }
    check_ranks(long_rows, 300000);
}

/// Of two elements half each; of a NaN, which is the last, all.
static void test_gradient_of_medians(void **state) {
    (void)state;
    for (int kind = 4; kind <= 5; kind++) {
        nd_auto nd_tensor *x = rows_of_kind(kind, 200, ND_F64, false), *gradient = NULL;
        assert_ok(nd_set_requires_grad(x, true));
        nd_auto nd_tensor *positions = nd_argsort(x, 1, false);
        nd_auto nd_tensor *middle = nd_median(x, 1, (const int[]){1}, false);
        nd_auto nd_tensor *sum = nd_sum(middle, 0, NULL, false);
        assert_ok(nd_grad(sum, 1, (const nd_tensor *const[]){x}, NULL, &gradient));
        for (int64_t row = 0; row < 2; row++)
            for (int64_t rank = 0; rank < 200; rank++) {
                const double part =
                    at_flat(gradient, 200 * row + (int64_t)at_flat(positions, 200 * row + rank));
                const bool has_nan = kind == 5 && row == 1;
                assert_true(part == (has_nan ? rank == 199 : rank == 99 || rank == 100 ? 0.5 : 0));
            }
    }
}

static void test_histograms_count_what_the_edges_hold(void **state) {
    (void)state;
    nd_auto nd_tensor *edges = nd_linspace(-2, 2, 9, ND_F64);
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++) {
            if (dtype == ND_BOOL)
                continue;
            nd_auto nd_tensor *x =
                random_tensor((layout)how, ND_SHAPE(5, 8), (nd_dtype)dtype, -3, 3);
            set_element(nd_get_data(x), (nd_dtype)dtype, 0, is_float((nd_dtype)dtype) ? NAN : 2);
            set_element(nd_get_data(x), (nd_dtype)dtype, nd_get_strides(x)[1], 2);
            nd_auto nd_tensor *histogram = nd_histogram(x, edges, NULL);
            assert_handle(histogram);
            assert_shape(histogram, ND_SHAPE(8));
            for (int bin = 0; bin < 8; bin++) {
                int64_t expected = 0;
                for (int64_t i = 0; i < 40; i++) {
                    double value = at_flat(x, i), low = at_flat(edges, bin);
                    double high = at_flat(edges, bin + 1);
                    expected += value >= low && (value < high || (bin == 7 && value == high));
                }
                assert_int_equal((int64_t)at_flat(histogram, bin), expected);
            }
        }
}

static void test_histogram_of_weights(void **state) {
    (void)state;
    const double numbers[] = {0.5, 1, 1.5, 2, -1, 2.5}, weights[] = {1, 2, 4, 8, 16, 32};
    const double limits[] = {0, 1, 2};
    nd_auto nd_tensor *x = nd_from_data(numbers, ND_SHAPE(6), ND_F64);
    nd_auto nd_tensor *w = nd_from_data(weights, ND_SHAPE(6), ND_F64);
    nd_auto nd_tensor *edges = nd_from_data(limits, ND_SHAPE(3), ND_F64);
    nd_auto nd_tensor *sums = nd_histogram(x, edges, w);
    assert_true(at_flat(sums, 0) == 1 && at_flat(sums, 1) == 14);
    assert_ok(nd_set_requires_grad(w, true));
    const nd_tensor *inputs[] = {x, edges, w};
    assert_ok(nd_gradcheck(histogram_weighted, NULL, 3, inputs, 1, 1e-6, 1e-4));
}

static void test_bincount(void **state) {
    (void)state;
    for (int dtype = ND_U8; dtype < ND_DTYPE_COUNT; dtype++) {
        if (is_float((nd_dtype)dtype))
            continue;
        const double numbers[] = {4, 1, 1, 0, 4, 4};
        nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(6), (nd_dtype)dtype);
        for (int64_t i = 0; i < 6; i++)
            set_element(nd_get_data(x), (nd_dtype)dtype, i, numbers[i]);
        nd_auto nd_tensor *counts = nd_bincount(x, NULL, 0);
        const int64_t expected[] = {1, 2, 0, 0, 3};
        assert_shape(counts, ND_SHAPE(5));
        assert_memory_equal(nd_get_data(counts), expected, sizeof expected);
    }
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(0), ND_I32);
    nd_auto nd_tensor *nothing = nd_bincount(none, NULL, 0);
    nd_auto nd_tensor *three = nd_bincount(none, NULL, 3);
    assert_shape(nothing, ND_SHAPE(0));
    assert_shape(three, ND_SHAPE(3));
}

static void test_statistics_refuse(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(3), -1, ND_I32);
    nd_auto nd_tensor *none = nd_ones(ND_SHAPE(2, 0), ND_F32);
    nd_auto nd_tensor *flags = nd_ones(ND_SHAPE(3), ND_BOOL);
    assert_refused(nd_quantile(x, QUANTILES(0.5, 1.5), ND_QUANTILE_LINEAR, 0, NULL, false),
                   ND_ERROR_INVALID_ARGUMENT, "quantile: q[1] is 1.5");
    assert_refused(nd_quantile(x, QUANTILES(NAN), ND_QUANTILE_LINEAR, 0, NULL, false),
                   ND_ERROR_INVALID_ARGUMENT, "quantile: q[0]");
    assert_refused(nd_quantile(x, 0, NULL, ND_QUANTILE_LINEAR, 0, NULL, false),
                   ND_ERROR_INVALID_ARGUMENT, "quantile: 0 quantiles at NULL");
    assert_refused(nd_quantile(x, QUANTILES(0), (nd_quantile_method)13, 0, NULL, false),
                   ND_ERROR_INVALID_ARGUMENT, "quantile: there is no method 13");
    assert_refused(nd_median(none, 0, NULL, false), ND_ERROR_SHAPE, "median: shape [2, 0]");
    assert_refused(nd_median(x, 1, (const int[]){1}, false), ND_ERROR_INVALID_ARGUMENT, "median: ");
    assert_refused(nd_bincount(x, NULL, 0), ND_ERROR_INVALID_ARGUMENT, "bincount: -1 is in x");
    nd_auto nd_tensor *large = nd_full(ND_SHAPE(1), UINT64_MAX - 1, ND_U64);
    assert_refused(nd_bincount(large, NULL, 0), ND_ERROR_INVALID_ARGUMENT,
                   "bincount: 18446744073709551614 is in x and cannot be counted");
    assert_refused(nd_bincount(none, NULL, 0), ND_ERROR_SHAPE, "bincount: x is float32");
    assert_refused(nd_bincount(flags, NULL, 0), ND_ERROR_DTYPE, "bincount: x is bool");
    assert_refused(nd_bincount(x, flags, 0), ND_ERROR_DTYPE, "bincount: the weights are bool");
    assert_refused(nd_bincount(x, none, 0), ND_ERROR_SHAPE, "bincount: x has shape [3]");
    assert_refused(nd_histogram(x, none, NULL), ND_ERROR_SHAPE, "histogram: edges has shape");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_quantiles_as_in_pytorch),
        ND_TEST(test_quantiles_of_other_dtypes),
        ND_TEST(test_quantiles_of_infinities_and_nan),
        ND_TEST(test_quantiles_of_rows_of_every_kind),
        ND_TEST(test_many_quantiles),
        ND_TEST(test_gradient_of_medians),
        ND_TEST(test_histograms_count_what_the_edges_hold),
        ND_TEST(test_histogram_of_weights),
        ND_TEST(test_bincount),
        ND_TEST(test_statistics_refuse),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
