// Reductions against plain loops: every set of axes, every layout and dtype, empty tensors, NaN and
// infinities, and sums whose bits do not depend on the number of threads.
#include "kernels/cpu/cpu.h"
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"
#if ND_HAVE_OPENMP
#include <omp.h>
#endif

typedef nd_tensor *(*reduction)(const nd_tensor *x, int naxes, const int *axes, bool keepdims);

typedef enum kind { SUM, MEAN, MAX, MIN, KINDS } kind;
static const reduction calls[KINDS] = {nd_sum, nd_mean, nd_max, nd_min};

static double start_of(kind what) {
    return what == MAX ? -INFINITY : what == MIN ? INFINITY : 0.0;
}

static double combine(kind what, double a, double b) {
    if (what == SUM || what == MEAN)
        return a + b;
    if (isnan(a) || isnan(b))
        return NAN;
    return what == MAX ? fmax(a, b) : fmin(a, b);
}

/// Expected results in the row-major order of the kept axes; returns how many.
static int64_t expected_results(kind what, const nd_tensor *x, int mask, double *ret_results,
                                int64_t room) {
    int ndim = nd_get_ndim(x);
    int64_t results = 1, elements = 1;
    for (int i = 0; i < ndim; i++)
        *(mask & 1 << i ? &elements : &results) *= nd_get_shape(x)[i];
    assert_true(results <= room);
    for (int64_t r = 0; r < results; r++)
        ret_results[r] = start_of(what);
    for (int64_t flat = 0; flat < nd_get_numel(x); flat++) {
        int64_t index[ND_MAX_DIMS], at_result = 0;
        coordinates_of(ndim, nd_get_shape(x), flat, index);
        for (int i = 0; i < ndim; i++)
            if (!(mask & 1 << i))
                at_result = at_result * nd_get_shape(x)[i] + index[i];
        ret_results[at_result] = combine(what, ret_results[at_result], at(x, ndim, index));
    }
    for (int64_t r = 0; r < results && what == MEAN; r++)
        ret_results[r] /= (double)elements;
    return results;
}

static nd_dtype dtype_of(kind what, nd_dtype dtype) {
    if (is_float(dtype) || what == MAX || what == MIN)
        return dtype;
    return what == MEAN ? ND_F32 : is_unsigned(dtype) ? ND_U64 : ND_I64;
}

/// What rounding a result to its dtype costs.
static double rounding_of(nd_dtype dtype) {
    return dtype == ND_BF16 ? 0x1p-8 : dtype == ND_F16 ? 0x1p-11 : 2e-7;
}

static void check_reduction(kind what, const nd_tensor *x, int mask, bool keepdims) {
    static double expected[20000];
    int axes[ND_MAX_DIMS], naxes = 0, ndim = nd_get_ndim(x);
    for (int i = ndim - 1; i >= 0; i--)
        if (mask & 1 << i)
            axes[naxes++] = i % 2 ? i : i - ndim; // in any order, from either end
    nd_auto nd_tensor *y = calls[what](x, naxes, axes, keepdims);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(y), dtype_of(what, nd_get_dtype(x)));
    assert_int_equal(nd_get_ndim(y), keepdims ? ndim : ndim - naxes);
    int64_t results = expected_results(what, x, mask, expected, COUNT_OF(expected));
    assert_int_equal(nd_get_numel(y), results);
    for (int64_t r = 0; r < results; r++)
        assert_close("reduction", at_flat(y, r), expected[r], rounding_of(nd_get_dtype(y)), 1e-7);
}

static const struct {
    int ndim;
    int64_t shape[4];
} shapes[] = {{2, {700, 2}},   {3, {30, 11, 3}}, {2, {1100, 1}},   {2, {130, 4}},  {2, {70, 40}},
              {1, {1}},        {1, {5000}},      {2, {3, 2500}},   {2, {2500, 3}}, {2, {12, 600}},
              {3, {7, 1, 33}}, {3, {6, 20, 15}}, {4, {3, 4, 5, 6}}};

static void every_reduction(void) {
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
            for (int how = 0; how < LAYOUTS; how++) {
                nd_auto nd_tensor *x = random_tensor((layout)how, shapes[s].ndim, shapes[s].shape,
                                                     (nd_dtype)dtype, -1, 1);
                for (int mask = 1; mask < 1 << shapes[s].ndim; mask++)
                    for (int what = 0; what < KINDS; what++)
                        check_reduction((kind)what, x, mask, (mask + what) % 2);
            }
}

static void test_every_reduction_over_every_axis(void **state) {
    (void)state;
    on_every_isa(every_reduction);
}

static void test_reductions_of_scalars_and_of_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *scalar = nd_scalar(3.5, ND_F32);
    nd_auto nd_tensor *sum = nd_sum(scalar, 0, NULL, true);
    assert_true(nd_get_item(sum) == 3.5 && nd_get_ndim(sum) == 0);
    nd_auto nd_tensor *empty = nd_zeros(ND_SHAPE(0, 3), ND_F32);
    int first = 0, second = 1;
    nd_auto nd_tensor *zeros = nd_sum(empty, 1, &first, false);
    nd_auto nd_tensor *no_means = nd_mean(empty, 1, &first, false);
    nd_auto nd_tensor *nothing = nd_max(empty, 1, &second, false);
    assert_handle(nothing);
    assert_int_equal(nd_get_numel(nothing), 0);
    for (int64_t i = 0; i < 3; i++)
        assert_true(at_flat(zeros, i) == 0.0 && isnan(at_flat(no_means, i)));
    assert_refused(nd_max(empty, 1, &first, false), ND_ERROR_SHAPE,
                   "max: shape [0, 3] has no elements");
    assert_refused(nd_argmin(empty, 0, false), ND_ERROR_SHAPE, "argmin: shape [0, 3]");
}

static void check_special(double value, int64_t position, int64_t n, nd_dtype dtype) {
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(2, n), dtype, -1, 1);
    set_element(nd_get_data(x), dtype, position, value);
    for (int what = 0; what < KINDS; what++)
        for (int mask = 1; mask < 4; mask++)
            check_reduction((kind)what, x, mask, false);
    nd_auto nd_tensor *turned = nd_transpose(x, 0, 1);
    for (int what = 0; what < KINDS; what++)
        for (int mask = 1; mask < 4; mask++)
            check_reduction((kind)what, turned, mask, false);
}

static void special_values(void) {
    static const double values[] = {NAN, -NAN, INFINITY, -INFINITY, -0.0};
    static const int64_t lengths[] = {1, 5, 64, 3000};
    for (size_t v = 0; v < COUNT_OF(values); v++)
        for (size_t l = 0; l < COUNT_OF(lengths); l++)
            for (int dtype = ND_F32; dtype <= ND_F64; dtype++) {
                check_special(values[v], 0, lengths[l], (nd_dtype)dtype);
                check_special(values[v], lengths[l] - 1, lengths[l], (nd_dtype)dtype);
                check_special(values[v], lengths[l] + lengths[l] / 2, lengths[l], (nd_dtype)dtype);
            }
}

static void test_F27_special_values_through_every_reduction(void **state) {
    (void)state;
    on_every_isa(special_values);
}

static void check_arg(const nd_tensor *x, int axis, bool largest) {
    nd_auto nd_tensor *y = largest ? nd_argmax(x, axis, true) : nd_argmin(x, axis, true);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(y), ND_I64);
    int ndim = nd_get_ndim(x);
    for (int64_t r = 0; r < nd_get_numel(y); r++) {
        int64_t index[ND_MAX_DIMS], best = 0;
        coordinates_of(ndim, nd_get_shape(y), r, index);
        double extreme = at(x, ndim, index);
        for (int64_t i = 1; i < nd_get_shape(x)[axis] && !isnan(extreme); i++) {
            index[axis] = i;
            double value = at(x, ndim, index);
            if (isnan(value) || (largest ? value > extreme : value < extreme)) {
                extreme = value;
                best = i;
            }
        }
        assert_int_equal((int64_t)at_flat(y, r), best);
    }
}

static void every_arg(void) {
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
            for (int how = 0; how < LAYOUTS; how++) {
                nd_auto nd_tensor *x = random_tensor((layout)how, shapes[s].ndim, shapes[s].shape,
                                                     (nd_dtype)dtype, -1, 1);
                if (is_float((nd_dtype)dtype) && how == DENSE && nd_get_numel(x) > 30)
                    set_element(nd_get_data(x), (nd_dtype)dtype, 17, (double)NAN);
                for (int axis = 0; axis < shapes[s].ndim; axis++) {
                    check_arg(x, axis, true);
                    check_arg(x, axis, false);
                }
            }
}

static void test_argmax_and_argmin(void **state) {
    (void)state;
    on_every_isa(every_arg);
}

/// Rows of few elements, which loops take several at a time, with ties and some NaN.
static void short_rows(void) {
    for (int64_t n = 1; n < 70; n += n < 20 ? 1 : 7)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
            nd_auto nd_tensor *x =
                random_tensor((layout)(n % LAYOUTS), ND_SHAPE(11, n), (nd_dtype)dtype, -2, 2);
            if (is_float((nd_dtype)dtype) && n % LAYOUTS == DENSE)
                for (int64_t row = 0; row < 11; row += 3)
                    set_element(nd_get_data(x), (nd_dtype)dtype, row * n + row * 5 % n,
                                row == 3 ? -0.0 : (double)NAN);
            check_arg(x, 1, true);
            check_arg(x, 1, false);
            for (int what = 0; what < KINDS; what++)
                check_reduction((kind)what, x, 2, false);
        }
}

static void test_short_rows(void **state) {
    (void)state;
    on_every_isa(short_rows);
}

static void test_var(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_tensor(TRANSPOSED, ND_SHAPE(5, 40), ND_F64, -1, 3);
    int axis = 1;
    nd_auto nd_tensor *y = nd_var(x, 1, &axis, 1.0, false);
    assert_handle(y);
    for (int64_t row = 0; row < 5; row++) {
        double mean = 0, sum = 0;
        for (int64_t i = 0; i < 40; i++)
            mean += at_flat(x, row * 40 + i) / 40;
        for (int64_t i = 0; i < 40; i++)
            sum += pow(at_flat(x, row * 40 + i) - mean, 2);
        assert_close("var", at_flat(y, row), sum / 39, 1e-12, 0);
    }
    nd_auto nd_tensor *whole = nd_ones(ND_SHAPE(4), ND_I32);
    nd_auto nd_tensor *none = nd_var(whole, 0, NULL, 4.0, false);
    assert_int_equal(nd_get_dtype(none), ND_F32);
    assert_true(isnan(nd_get_item(none)));
    assert_refused(nd_var(whole, 2, (int[]){0, 0}, 0, false), ND_ERROR_INVALID_ARGUMENT, "var");
}

/// In f32 the numbers below are all the same, or their mean is none of its numbers.
static void test_var_of_integers_subtracts_before_it_rounds(void **state) {
    (void)state;
    static const int32_t small[] = {16777217, 16777219, 16777221, 16777223};
    static const int64_t large[] = {1000000000001, 1000000000002, 1000000000003, 1000000000006};
    nd_auto nd_tensor *x = nd_from_data(small, ND_SHAPE(2, 2), ND_I32);
    nd_auto nd_tensor *y = nd_from_data(large, ND_SHAPE(4), ND_I64);
    nd_auto nd_tensor *var_x = nd_var(x, 0, NULL, 0.0, false);
    nd_auto nd_tensor *var_y = nd_var(y, 0, NULL, 1.0, false);
    nd_auto nd_tensor *mean = nd_mean(x, 0, NULL, false);
    assert_int_equal(nd_get_dtype(var_x), ND_F32);
    assert_true(nd_get_item(var_x) == 5.0);
    assert_close("var of i64", nd_get_item(var_y), 14.0 / 3, 1e-7, 0);
    assert_true(nd_get_item(mean) == 16777220.0);
}

static double var_of(const double *numbers, int64_t n) {
    double mean = 0, sum = 0;
    for (int64_t i = 0; i < n; i++)
        mean += (numbers[i] - numbers[0]) / (double)n;
    for (int64_t i = 0; i < n; i++)
        sum += (numbers[i] - numbers[0] - mean) * (numbers[i] - numbers[0] - mean);
    return sum / (double)n;
}

/// Along rows, along columns and over everything, in pieces too.
static void check_var_around(double center, nd_dtype dtype, int64_t rows, int64_t columns) {
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(rows, columns), dtype, center, center + 10);
    double *numbers = malloc((size_t)(rows * columns) * sizeof *numbers);
    assert_non_null(numbers);
    for (int mask = 1; mask < 4; mask++) {
        int axes[2], naxes = 0;
        for (int axis = 0; axis < 2; axis++)
            if (mask & 1 << axis)
                axes[naxes++] = axis;
        nd_auto nd_tensor *y = nd_var(x, naxes, axes, 0.0, false);
        assert_handle(y);
        int64_t results = nd_get_numel(y), step = mask == 1 ? columns : 1;
        int64_t n = mask == 3 ? rows * columns : mask == 1 ? rows : columns;
        for (int64_t r = 0; r < results; r += results / 3 + 1) {
            for (int64_t i = 0; i < n; i++) {
                int64_t flat = (mask == 2 ? r * columns : r) + i * step;
                numbers[i] = element_as_double(nd_get_data(x), dtype, flat);
            }
            double tolerance = dtype == ND_F32 ? 1e-6 : 1e-9;
            assert_close("var", at_flat(y, r), var_of(numbers, n), tolerance, 0);
        }
    }
    free(numbers);
}

static void var_of_large_means(void) {
    static const double centers[] = {0, 1e5, -1e6};
    for (size_t c = 0; c < COUNT_OF(centers); c++)
        for (int dtype = ND_F32; dtype <= ND_F64; dtype++) {
            check_var_around(centers[c], (nd_dtype)dtype, 40, 50);
            check_var_around(centers[c], (nd_dtype)dtype, 3, 20000);
            check_var_around(centers[c], (nd_dtype)dtype, 20000, 3);
        }
}

static void test_var_of_large_means_keeps_its_digits(void **state) {
    (void)state;
    on_every_isa(var_of_large_means);
}

/// A sum reads what it sums; it does not make a wider copy first.
static void test_sums_of_narrow_dtypes_make_no_copy(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_BOOL, ND_U8, ND_I32};
    for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
        nd_auto nd_manager *manager = nd_manager_new(NULL, "sum");
        nd_with_manager(manager) {
            nd_auto nd_tensor *x = nd_full(ND_SHAPE(100000), 1, dtypes[d]);
            uint64_t bytes = nd_dtype_get_size(dtypes[d]) * 100000;
            nd_auto nd_tensor *sum = nd_sum(x, 0, NULL, false);
            assert_true(at_flat(sum, 0) == 100000.0);
            nd_manager_stats stats = ND_MANAGER_STATS_INIT;
            assert_ok(nd_manager_get_stats(manager, &stats));
            assert_in_range(stats.peak_bytes[ND_CPU], bytes, bytes + 1000);
        }
        assert_ok(nd_manager_close(manager, NULL));
    }
}

/// Every partial sum of equal numbers is rounded the same way, so that plain summation drifts.
static void test_means_of_repeated_numbers_do_not_drift(void **state) {
    (void)state;
    nd_auto nd_tensor *tenth = nd_full(ND_SHAPE(1, 3), 0.1, ND_F64);
    nd_auto nd_tensor *rows = nd_expand(tenth, ND_SHAPE(1000003, 3));
    nd_auto nd_tensor *dense = nd_contiguous(rows);
    nd_auto nd_tensor *stepped = nd_slice(dense, 0, INT64_MAX, 2, 1);
    int first = 0;
    const nd_tensor *views[] = {rows, dense, stepped};
    for (size_t v = 0; v < COUNT_OF(views); v++) {
        nd_auto nd_tensor *mean = nd_mean(views[v], 0, NULL, false);
        nd_auto nd_tensor *columns = nd_mean(views[v], 1, &first, false);
        nd_auto nd_tensor *var = nd_var(views[v], 0, NULL, 1.0, false);
        assert_close("mean", nd_get_item(mean), 0.1, 5e-15, 0);
        for (int64_t i = 0; i < nd_get_numel(columns); i++)
            assert_close("mean of a column", at_flat(columns, i), 0.1, 5e-15, 0);
        assert_close("var", nd_get_item(var), 0, 0, 1e-30);
    }
}

static void test_sum_to(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(2, 3, 4), ND_F32, -1, 1);
    nd_auto nd_tensor *same = nd_sum_to(x, ND_SHAPE(2, 3, 4));
    assert_false(nd_is_view_of(same, x));
    for (int64_t i = 0; i < 24; i++)
        assert_true(at_flat(same, i) == at_flat(x, i));
    nd_auto nd_tensor *y = nd_sum_to(x, ND_SHAPE(3, 1));
    assert_shape(y, ND_SHAPE(3, 1));
    for (int64_t r = 0; r < 3; r++) {
        double sum = 0;
        for (int64_t i = 0; i < 8; i++)
            sum += at_flat(x, i / 4 * 12 + r * 4 + i % 4);
        assert_close("sum_to", at_flat(y, r), sum, 1e-6, 1e-6);
    }
    nd_auto nd_tensor *total = nd_sum_to(x, 0, NULL);
    assert_int_equal(nd_get_ndim(total), 0);
    assert_refused(nd_sum_to(x, ND_SHAPE(2, 4)), ND_ERROR_SHAPE, "sum_to: shape [2, 4]");
    assert_refused(nd_sum_to(total, ND_SHAPE(2)), ND_ERROR_SHAPE, "sum_to: shape [2]");
}

static void test_bad_axes_are_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_F32);
    assert_refused(nd_sum(x, 1, (int[]){2}, false), ND_ERROR_INVALID_ARGUMENT, "sum: axis 2");
    assert_refused(nd_sum(x, 2, (int[]){1, -1}, false), ND_ERROR_INVALID_ARGUMENT,
                   "sum: axis -1 is named twice");
    assert_refused(nd_mean(x, 1, NULL, false), ND_ERROR_INVALID_ARGUMENT, "mean: 1 axes at NULL");
    assert_refused(nd_argmax(x, -3, false), ND_ERROR_INVALID_ARGUMENT, "argmax: axis -3");
    assert_refused(nd_max(NULL, 0, NULL, false), ND_ERROR_INVALID_ARGUMENT, "max: x is NULL");
}

/// The error of a sum must not grow with its length: a float loop would be off by 1e-3 here.
static void test_long_sums_are_accurate(void **state) {
    (void)state;
    int64_t n = 3000000;
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(n), 0.1, ND_F32);
    nd_auto nd_tensor *sum = nd_sum(x, 0, NULL, false);
    assert_close("sum", nd_get_item(sum), (double)0.1f * (double)n, 1e-7, 0);
    nd_auto nd_tensor *wide = nd_full(ND_SHAPE(n), 0.1, ND_F64);
    nd_auto nd_tensor *columns = nd_reshape(wide, ND_SHAPE(n / 4, 4));
    int axis = 0;
    nd_auto nd_tensor *sums = nd_sum(columns, 1, &axis, false);
    nd_auto nd_tensor *total = nd_sum(wide, 0, NULL, false);
    assert_close("sum of f64", nd_get_item(total), 0.1 * (double)n, 1e-14, 0);
    for (int64_t i = 0; i < 4; i++)
        assert_close("column", at_flat(sums, i), 0.1 * (double)n / 4, 1e-14, 0);
}

/// `n` numbers of a pattern of four, or random ones where it is NULL, as a tensor of `dtype`.
static nd_tensor *patterned(int64_t n, const double *pattern, nd_dtype dtype) {
    nd_auto nd_tensor *wide = random_dense(ND_SHAPE(n), ND_F64, -1, 1);
    double *data = (double *)nd_get_data(wide);
    for (int64_t i = 0; pattern && i < n; i++)
        data[i] = pattern[i % 4];
    return nd_cast(wide, dtype);
}

/// As long doubles have them, but for one rounding of the result and, where `pairs`, one of each two
/// neighbours.
static void check_long_sums(nd_dtype dtype, const double *pattern, bool pairs) {
    static const int64_t lengths[] = {1, 7, 31, 32, 255, 256, 301, 16384, 16385, 100003, 2000001};
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        for (int64_t first = 0; first < 3; first++) {
            nd_auto nd_tensor *x = patterned(lengths[i] + 3, pattern, dtype);
            nd_auto nd_tensor *row = nd_slice(x, first, first + lengths[i], 1, 0);
            nd_auto nd_tensor *sum = nd_sum(row, 0, NULL, false);
            long double exact = 0, magnitudes = 0;
            for (int64_t k = 0; k < lengths[i]; k++) {
                long double number = at_flat(row, k);
                exact += number;
                magnitudes += fabsl(number);
            }
            double added = (double)magnitudes * (pairs ? 0x1p-24 : 0x1p-48);
            double rounded = dtype == ND_BF16 ? 0x1p-8 : 0x1p-23;
            assert_close("sum", at_flat(sum, 0), (double)exact, rounded, added);
        }
}

static void check_sums_of_f32(void) {
    static const double cancel[] = {1e8, 1, -1e8, 0.25},
                        least[] = {0x1p-149, -0x1p-126, 0, 0x1p-148},
                        largest[] = {0x1.FFFFFEp127, 1, -0x1.FFFFFEp127, 2};
    check_long_sums(ND_F32, NULL, false);
    check_long_sums(ND_F32, cancel, false);
    check_long_sums(ND_F32, least, false);
    check_long_sums(ND_F32, largest, false);
}

static void test_sums_of_f32_are_added_in_f64(void **state) {
    (void)state;
    on_every_isa(check_sums_of_f32);
}

static void check_sums_of_bf16(void) {
    // Two of the largest are no f32, one after the other.
    static const double cancel[] = {0x1p20, 1, -0x1p20, 0.25},
                        largest[] = {0x1.FEp127, 0x1.FEp127, -0x1.FEp127, -0x1.FEp127},
                        infinite[] = {INFINITY, 1, 0x1.FEp127, 0x1.FEp127},
                        none[] = {INFINITY, 1, -INFINITY, 1};
    check_long_sums(ND_BF16, NULL, true);
    check_long_sums(ND_BF16, cancel, true);
    check_long_sums(ND_BF16, largest, true);
    for (int64_t n = 4; n < 100000; n *= 7) {
        nd_auto nd_tensor *x = patterned(n, infinite, ND_BF16), *y = patterned(n, none, ND_BF16);
        nd_auto nd_tensor *sum = nd_sum(x, 0, NULL, false), *other = nd_sum(y, 0, NULL, false);
        assert_true(at_flat(sum, 0) == (double)INFINITY);
        assert_true(isnan(at_flat(other, 0)));
    }
}

static void test_sums_of_bf16_are_added_in_f64_after_pairs(void **state) {
    (void)state;
    on_every_isa(check_sums_of_bf16);
}

/// Of any length and from any element on: as those of the same numbers in f64, but for one rounding.
static void test_sums_of_bf16_rows(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 15, 16, 33, 255, 256, 301, 2048, 2049, 100003};
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        for (int64_t first = 0; first < 3; first++) {
            nd_auto nd_tensor *x = random_dense(ND_SHAPE(lengths[i] + 3), ND_BF16, -1, 1);
            nd_auto nd_tensor *row = nd_slice(x, first, first + lengths[i], 1, 0);
            nd_auto nd_tensor *wide = nd_cast(row, ND_F64);
            nd_auto nd_tensor *sum = nd_sum(row, 0, NULL, false);
            nd_auto nd_tensor *expected = nd_sum(wide, 0, NULL, false);
            assert_close("sum", at_flat(sum, 0), at_flat(expected, 0), 0x1p-8, 1e-12);
        }
}

static void test_sums_have_the_same_bits_with_any_number_of_threads(void **state) {
    (void)state;
#if ND_HAVE_OPENMP
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(1000, 37, 11), ND_F64, -1, 1);
    int before = omp_get_max_threads();
    for (int mask = 1; mask < 8; mask++) {
        int axes[3], naxes = 0;
        for (int i = 0; i < 3; i++)
            if (mask & 1 << i)
                axes[naxes++] = i;
        omp_set_num_threads(1);
        nd_auto nd_tensor *one = nd_sum(x, naxes, axes, false);
        for (int threads = 2; threads <= 5; threads++) {
            omp_set_num_threads(threads);
            nd_auto nd_tensor *many = nd_sum(x, naxes, axes, false);
            assert_memory_equal(nd_get_data(one), nd_get_data(many),
                                (size_t)nd_get_numel(one) * sizeof(double));
        }
    }
    omp_set_num_threads(before);
#else
    skip();
#endif
}

/// Rows of a few elements of any dtype, by plain loops: what is not 0, and products; NaN in one row.
static void check_short_rows(nd_dtype dtype, int64_t n, layout how) {
    enum { ROWS = 300 };
    nd_auto nd_tensor *x = random_tensor(how, ND_SHAPE(ROWS, n), dtype, -1, 1);
    for (int64_t row = 0; row < ROWS && how == DENSE; row += 3)
        for (int64_t i = row % 2; i < n; i++)
            set_element(nd_get_data(x), dtype, row * n + i, 0);
    if (is_float(dtype) && how == DENSE)
        set_element(nd_get_data(x), dtype, 7 * n + n - 1, NAN);
    const int axis = 1;
    nd_auto nd_tensor *any = nd_any(x, 1, &axis, false);
    nd_auto nd_tensor *all = nd_all(x, 1, &axis, false);
    nd_auto nd_tensor *count = nd_count_nonzero(x, 1, &axis, false);
    nd_auto nd_tensor *largest = dtype == ND_BOOL ? NULL : nd_max(x, 1, &axis, false);
    nd_auto nd_tensor *product = is_float(dtype) ? nd_prod(x, 1, &axis, false) : NULL;
    for (int64_t row = 0; row < ROWS; row++) {
        double times = 1, most = -INFINITY;
        int64_t there = 0;
        for (int64_t i = 0; i < n; i++) {
            double value = at_flat(x, row * n + i);
            there += value != 0;
            times *= value;
            most = isnan(value) || value > most ? value : most;
        }
        assert_true(at_flat(any, row) == (there > 0) && at_flat(all, row) == (there == n));
        assert_true(at_flat(count, row) == (double)there);
        if (largest)
            assert_close("max", at_flat(largest, row), most, 0, 0);
        if (product)
            assert_close("prod", at_flat(product, row), times, 8e-3, 1e-7);
    }
}

static void every_short_row(void) {
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        for (int64_t n = 1; n <= 9; n += n < 5 ? 1 : 4)
            for (int how = 0; how < LAYOUTS; how++)
                check_short_rows((nd_dtype)dtype, n, (layout)how);
}

static void test_rows_of_a_few_elements(void **state) {
    (void)state;
    on_every_isa(every_short_row);
}

/// Along an axis of one element every scan is a copy.
static void test_scans_along_an_axis_of_one(void **state) {
    (void)state;
    nd_tensor *(*const scans[])(const nd_tensor *, int) = {nd_cumsum, nd_cumprod, nd_cummax,
                                                           nd_cummin};
    for (int dtype = ND_U8; dtype < ND_DTYPE_COUNT; dtype++)
        for (int how = 0; how < LAYOUTS; how++)
            for (int axis = 0; axis < 3; axis++)
                for (size_t i = 0; i < COUNT_OF(scans); i++) {
                    int64_t shape[] = {3, 4, 5};
                    shape[axis] = 1;
                    nd_auto nd_tensor *x =
                        random_tensor((layout)how, 3, shape, (nd_dtype)dtype, -1, 1);
                    nd_auto nd_tensor *y = scans[i](x, axis);
                    assert_shape(y, 3, shape);
                    for (int64_t flat = 0; flat < nd_get_numel(y); flat++)
                        assert_true(at_flat(y, flat) == at_flat(x, flat));
                }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_reduction_over_every_axis),
        ND_TEST(test_reductions_of_scalars_and_of_nothing),
        ND_TEST(test_F27_special_values_through_every_reduction),
        ND_TEST(test_argmax_and_argmin),
        ND_TEST(test_short_rows),
        ND_TEST(test_rows_of_a_few_elements),
        ND_TEST(test_scans_along_an_axis_of_one),
        ND_TEST(test_var),
        ND_TEST(test_var_of_integers_subtracts_before_it_rounds),
        ND_TEST(test_var_of_large_means_keeps_its_digits),
        ND_TEST(test_sums_of_narrow_dtypes_make_no_copy),
        ND_TEST(test_means_of_repeated_numbers_do_not_drift),
        ND_TEST(test_sum_to),
        ND_TEST(test_bad_axes_are_refused),
        ND_TEST(test_long_sums_are_accurate),
        ND_TEST(test_sums_of_f32_are_added_in_f64),
        ND_TEST(test_sums_of_bf16_are_added_in_f64_after_pairs),
        ND_TEST(test_sums_of_bf16_rows),
        ND_TEST(test_sums_have_the_same_bits_with_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
