// Products of few rows or columns, and of 16-bit floats by small matrices: small integers, whose sums
// are exact, in every layout, with each set of instructions and on one thread and several. Shapes are
// random, beside the sizes of vectors and blocks.
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/values.h"
#include <math.h>
#include <nd/nd.h>

enum { CASES = 48, MOST_LINES = 9 };

static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16, ND_I16, ND_I64};

static nd_tensor *a, *b, *bias, *expected, *expected_sum; ///< of the case at hand

static int64_t below(int64_t n) {
    return rand() % n;
}

/// rows x columns of -2 ... 2, dense, turned round, or every second of more columns.
static nd_tensor *matrix(int64_t rows, int64_t columns, nd_dtype dtype) {
    const nd_key key = nd_key_new((uint64_t)rand());
    const int64_t how = below(3);
    if (how == 0)
        return nd_randint(key, -2, 3, ND_SHAPE(rows, columns), dtype);
    if (how == 1) {
        nd_auto nd_tensor *turned = nd_randint(key, -2, 3, ND_SHAPE(columns, rows), dtype);
        return nd_transpose(turned, 0, 1);
    }
    nd_auto nd_tensor *wide = nd_randint(key, -2, 3, ND_SHAPE(rows, 2 * columns), dtype);
    return nd_slice(wide, 0, 2 * columns, 2, 1);
}

/// The sums of products, plus an element of c's row, rounded once.
static nd_tensor *sums(const nd_tensor *c, nd_dtype dtype) {
    const int64_t m = nd_get_size(a, 0), k = nd_get_size(a, 1), n = nd_get_size(b, 1);
    nd_auto nd_tensor *x_cast = nd_cast(a, ND_F64), *y_cast = nd_cast(b, ND_F64);
    nd_auto nd_tensor *x_dense = nd_contiguous(x_cast), *y_dense = nd_contiguous(y_cast);
    nd_auto nd_tensor *row = c ? nd_cast(c, ND_F64) : nd_zeros(ND_SHAPE(n), ND_F64);
    nd_auto nd_tensor *result = nd_zeros(ND_SHAPE(m, n), ND_F64);
    const double *x = nd_get_data(x_dense), *y = nd_get_data(y_dense), *z = nd_get_data(row);
    double *to = nd_get_data(result);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            double sum = z[j];
            for (int64_t l = 0; l < k; l++)
                sum += x[i * k + l] * y[l * n + j];
            to[i * n + j] = sum;
        }
    nd_auto nd_tensor *rounded = nd_cast(result, dtype);
    return nd_contiguous(rounded);
}

static void assert_same(const nd_tensor *result, const nd_tensor *wanted) {
    assert_handle(result);
    assert_int_equal(nd_get_dtype(result), nd_get_dtype(wanted));
    const size_t bytes = (size_t)nd_get_numel(wanted) * nd_dtype_get_size(nd_get_dtype(wanted));
    assert_memory_equal(nd_get_data(result), nd_get_data(wanted), bytes);
}

static void check_product(void) {
    for (int threads = 1; threads <= 3; threads += 2) {
        assert_ok(nd_set_num_threads(threads));
        nd_auto nd_tensor *product = nd_matmul(a, b);
        assert_same(product, expected);
        nd_auto nd_tensor *weight = nd_transpose(b, 0, 1);
        nd_auto nd_tensor *linear = nd_linear(a, weight, bias);
        assert_same(linear, expected_sum);
    }
}

static void check_case(int64_t m, int64_t n, int64_t k, nd_dtype dtype) {
    a = matrix(m, k, dtype);
    b = matrix(k, n, dtype);
    bias = nd_randint(nd_key_new((uint64_t)rand()), -2, 3, ND_SHAPE(n), dtype);
    expected = sums(NULL, dtype);
    expected_sum = sums(bias, dtype);
    on_every_isa(check_product);
    nd_release(a), nd_release(b), nd_release(bias);
    nd_release(expected), nd_release(expected_sum);
}

static int64_t depth_of(int number) {
    return number % 4 == 0 ? 8192 * (1 + below(2)) + below(40) : 60 + below(700);
}

static void test_few_rows_and_columns(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++)
        check_case(1 + below(MOST_LINES), 1 + below(MOST_LINES), depth_of(i),
                   dtypes[(size_t)i % COUNT_OF(dtypes)]);
}

static void test_few_rows_or_columns(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const int64_t few = 1 + below(MOST_LINES), lines = 9 + below(60);
        check_case(i % 2 ? few : lines, i % 2 ? lines : few, i == 7 ? 9000 : 60 + below(300),
                   dtypes[(size_t)(i / 2) % COUNT_OF(dtypes)]);
    }
}

static void test_halves_by_a_small_matrix(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++)
        check_case(500 + below(2500), 1 + below(i % 4 ? 20 : 400), 2 + below(20),
                   i % 2 ? ND_F16 : ND_BF16);
}

/// One side up to two panels wide, the other up to several blocks of lines long; sums of odd lengths,
/// too.
static void test_halves_by_pairs(void **state) {
    (void)state;
    static const int64_t widths[] = {1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 32, 33, 48, 50, 64, 65, 100};
    for (int i = 0; i < 2 * CASES; i++) {
        const int64_t width = widths[(size_t)i % COUNT_OF(widths)], lines = 3 + below(140);
        const int64_t k = i % 3 ? 2 + below(70) : 1 + below(300);
        check_case(i / 17 % 2 ? width : lines, i / 17 % 2 ? lines : width, k, ND_BF16);
    }
}

/// A window of more columns, all of whose others are NaN, or far from 0.
static nd_tensor *window(int64_t rows, int64_t columns, int64_t pitch, nd_dtype dtype) {
    nd_auto nd_tensor *values =
        nd_randint(nd_key_new((uint64_t)rand()), -2, 3, ND_SHAPE(rows, columns), dtype);
    const bool is_integer = dtype == ND_I16 || dtype == ND_I64;
    nd_auto nd_tensor *wide = nd_full(ND_SHAPE(rows, pitch), is_integer ? 127 : NAN, dtype);
    nd_tensor *result = nd_slice(wide, 0, columns, 1, 1);
    assert_ok(nd_copy_(result, values));
    return result;
}

static void test_a_vector_by_few_columns(void **state) {
    (void)state;
    for (int i = 0; i < 2 * CASES; i++) {
        const nd_dtype dtype = dtypes[(size_t)i % COUNT_OF(dtypes)];
        const int64_t n = 2 + below(15), pitch = i % 4 ? n : n + below(6);
        const int64_t k = i % 9 ? 60 + below(200) : 30000 + below(9000);
        nd_auto nd_tensor *columns = window(k, n, pitch, dtype);
        a = i % 2 ? matrix(1, k, dtype) : nd_transpose(columns, 0, 1);
        b = i % 2 ? nd_retain(columns) : matrix(k, 1, dtype);
        bias = nd_randint(nd_key_new((uint64_t)rand()), -2, 3, ND_SHAPE(i % 2 ? n : 1), dtype);
        expected = sums(NULL, dtype);
        expected_sum = sums(bias, dtype);
        on_every_isa(check_product);
        nd_release(a), nd_release(b), nd_release(bias);
        nd_release(expected), nd_release(expected_sum);
    }
}

/// Any numbers of an integer dtype, in any layout.
static nd_tensor *integers(int64_t rows, int64_t columns, nd_dtype dtype) {
    nd_auto nd_tensor *small = matrix(rows, columns, ND_I64);
    nd_auto nd_tensor *noise =
        nd_randint(nd_key_new((uint64_t)rand()), -40000, 40000, ND_SHAPE(rows, columns), ND_I64);
    nd_auto nd_tensor *any = nd_add(small, noise);
    nd_auto nd_tensor *cast = nd_cast(any, dtype);
    if (below(2))
        return nd_retain(cast);
    nd_auto nd_tensor *turned = nd_transpose(cast, 0, 1);
    nd_auto nd_tensor *dense = nd_contiguous(turned);
    return nd_transpose(dense, 0, 1);
}

/// The lower bits of the sums.
static nd_tensor *wrapped_sums(nd_dtype dtype) {
    const int64_t m = nd_get_size(a, 0), k = nd_get_size(a, 1), n = nd_get_size(b, 1);
    nd_auto nd_tensor *x_cast = nd_cast(a, ND_I64), *y_cast = nd_cast(b, ND_I64);
    nd_auto nd_tensor *x_dense = nd_contiguous(x_cast), *y_dense = nd_contiguous(y_cast);
    nd_auto nd_tensor *result = nd_zeros(ND_SHAPE(m, n), ND_I64);
    const uint64_t *x = nd_get_data(x_dense), *y = nd_get_data(y_dense);
    uint64_t *to = nd_get_data(result);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t l = 0; l < k; l++)
                to[i * n + j] += x[i * k + l] * y[l * n + j];
    return nd_cast(result, dtype);
}

static void check_wrapped(void) {
    for (int threads = 1; threads <= 3; threads += 2) {
        assert_ok(nd_set_num_threads(threads));
        nd_auto nd_tensor *product = nd_matmul(a, b);
        assert_same(product, expected);
    }
}

static const nd_dtype kinds[] = {ND_I8, ND_U8, ND_I16, ND_U16, ND_I32, ND_U64};

static void check_integers(int64_t m, int64_t n, int64_t k, nd_dtype dtype) {
    a = integers(m, k, dtype);
    b = integers(k, n, dtype);
    expected = wrapped_sums(dtype);
    on_every_isa(check_wrapped);
    nd_release(a), nd_release(b), nd_release(expected);
}

/// Of few rows, of short sums, and of what takes panels.
static void test_integers_wrap(void **state) {
    (void)state;
    for (int i = 0; i < 3 * CASES; i++) {
        const int64_t m = i / 6 % 3 ? 1 + below(9) : 1 + below(70), n = 1 + below(i % 4 ? 150 : 9);
        check_integers(m, n, i / 6 % 4 ? 1 + below(70) : 1 + below(400),
                       kinds[(size_t)i % COUNT_OF(kinds)]);
    }
    for (int i = 0; i < 2 * CASES; i++) // a vector by few columns
        check_integers(i % 4 ? 1 : 2 + below(15), i % 4 ? 2 + below(15) : 1, 60 + below(300),
                       kinds[(size_t)(i / 4) % COUNT_OF(kinds)]);
}

/// More rows and columns than are computed together, and sums that are long enough, of every width.
static void test_some_rows_and_columns(void **state) {
    (void)state;
    for (int i = 0; i < 2 * CASES; i++) {
        const int64_t few = 9 + below(36), lines = few + below(i % 3 ? 20 : 100);
        const int64_t k = i % 9 == 0 ? 8192 + below(80) : 60 + below(500);
        const int64_t m = i % 4 < 2 ? few : lines, n = i % 4 < 2 ? lines : few;
        if (i % 2)
            check_integers(m, n, k, kinds[(size_t)(i / 2) % COUNT_OF(kinds)]);
        else
            check_case(m, n, k, dtypes[(size_t)(i / 2) % 4]);
    }
}

/// An infinity makes those sums infinite that it is in, and no other; zeros behind the ends of lines
/// are no factors.
static void check_infinity(void) {
    const int64_t m = nd_get_size(a, 0), n = nd_get_size(b, 1);
    nd_auto nd_tensor *product = nd_matmul(a, b);
    assert_handle(product);
    nd_auto nd_tensor *wide = nd_cast(product, ND_F64);
    const double *sum = nd_get_data(wide);
    for (int64_t i = 0; i < m * n; i++)
        assert_true(i / n == m - 1 ? isinf(sum[i]) : isfinite(sum[i]));
}

static void test_an_infinity_stays_in_its_sums(void **state) {
    (void)state;
    for (int i = 0; i < CASES; i++) {
        const nd_dtype dtype = dtypes[i % 4];
        const int64_t m = i % 3 ? 2 + below(7) : 600, n = 2 + below(7);
        const int64_t k = i % 3 ? 60 + below(100) : 1 + below(20), at = below(k);
        nd_auto nd_tensor *wide = nd_full(ND_SHAPE(m, k), 1.0, ND_F64);
        ((double *)nd_get_data(wide))[(m - 1) * k + at] = INFINITY;
        a = nd_cast(wide, dtype);
        b = nd_full(ND_SHAPE(k, n), 2.0, dtype);
        on_every_isa(check_infinity);
        nd_release(a), nd_release(b);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_few_rows_and_columns),     ND_TEST(test_few_rows_or_columns),
        ND_TEST(test_halves_by_a_small_matrix), ND_TEST(test_halves_by_pairs),
        ND_TEST(test_a_vector_by_few_columns),  ND_TEST(test_integers_wrap),
        ND_TEST(test_some_rows_and_columns),    ND_TEST(test_an_infinity_stays_in_its_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
