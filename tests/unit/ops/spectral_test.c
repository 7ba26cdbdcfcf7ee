// Eigenvalues and singular values of all sizes around those that the loops cut at, of matrices that
// are hard for iterations, by their residuals, and of matrices whose values are known.
#include "tests/unit/ops/matrices.h"
#include "tests/unit/ops/values.h"
#include <nd/threads.h>
#include <string.h>

static const int64_t sizes[] = {1,  2,  3,  4,  5,  7,  8,  9,  15,  16, 17,
                                24, 31, 32, 33, 48, 63, 65, 80, 129, 200};

/// What an iteration meets: values apart, over fifteen orders of magnitude up or down, equal,
/// nearly equal, zeros, and numbers near both ends of the dtype.
typedef enum family {
    RANDOM,
    FALLING,
    RISING,
    EQUAL,
    NEAR,
    OF_RANK_2,
    ZERO,
    HUGE_ONES,
    TINY,
    FAMILIES
} family;

/// Element (i, j) of a matrix of this family; `random` is in [-1, 1].
static double element_of(family which, nd_dtype dtype, int64_t i, int64_t j, int64_t n,
                         double random) {
    const double step = n > 1 ? 15.0 / (double)(n - 1) : 0;
    switch (which) {
    case FALLING:
        return random * pow(10, -step * (double)(i + j) / 2);
    case RISING:
        return random * pow(10, step * ((double)(i + j) / 2 - (double)n));
    case EQUAL:
        return i == j ? (double)(1 + i % 3) : 0;
    case NEAR:
        return (i == j) + random * 4 * epsilon(dtype);
    case OF_RANK_2:
        return (double)(1 + i * j % 2);
    case ZERO:
        return 0;
    case HUGE_ONES:
        return random * (dtype == ND_F32 ? 1e35 : 1e304);
    case TINY:
        return random * (dtype == ND_F32 ? 1e-39 : 1e-309);
    default:
        return random;
    }
}

static nd_tensor *matrix_of(family which, nd_dtype dtype, int64_t m, int64_t n, bool symmetric) {
    nd_tensor *x = random_dense(ND_SHAPE(m, n), dtype, -1, 1);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            const double random = at_flat(x, symmetric && j < i ? j * n + i : i * n + j);
            if (symmetric && j < i)
                set(x, i, j, random);
            else
                set(x, i, j, element_of(which, dtype, i, j, m > n ? m : n, random));
        }
    return x;
}

/// a and b are no further apart than the roundings of a decomposition of x; consumes a.
static void assert_decomposes(const char *what, nd_tensor *a, const nd_tensor *b,
                              const nd_tensor *x, double scale) {
    const int64_t m = nd_get_shape(x)[0], n = nd_get_shape(x)[1];
    const double side = (double)(m > n ? m : n), unit = epsilon(nd_get_dtype(x));
    const double least = nd_get_dtype(x) == ND_F32 ? 0x1p-149 : 0x1p-1074;
    const double bound = 8 * side * (unit * scale + least), apart = largest(a, b);
    if (!(apart <= bound))
        fail_msg("%s of %g x %g, %s: %g apart, and not %g", what, (double)m, (double)n,
                 nd_dtype_get_name(nd_get_dtype(x)), apart, bound);
    nd_release(a);
}

/// The columns of v are orthonormal, in f64.
static void assert_orthonormal(const char *what, const nd_tensor *v, const nd_tensor *x) {
    nd_auto nd_tensor *turned = nd_transpose(v, -2, -1);
    nd_auto nd_tensor *one = nd_eye(nd_get_shape(v)[1], ND_F64);
    assert_decomposes(what, nd_matmul(turned, v), one, x, 1);
}

static void check_eigh(const nd_tensor *x) {
    nd_tensor *values = NULL, *vectors = NULL;
    assert_ok(nd_eigh(x, &values, &vectors));
    for (int64_t i = 1; i < nd_get_numel(values); i++)
        assert_true(at_flat(values, i) >= at_flat(values, i - 1));
    const double scale = largest(values, NULL);
    nd_auto nd_tensor *alone = nd_eigvalsh(x), *wide_alone = nd_cast(alone, ND_F64);
    nd_auto nd_tensor *d = nd_cast(values, ND_F64), *v = nd_cast(vectors, ND_F64);
    nd_auto nd_tensor *wide = nd_cast(x, ND_F64), *stretched = nd_mul(v, d);
    assert_orthonormal("eigenvectors", v, x);
    assert_decomposes("x v", nd_matmul(wide, v), stretched, x, scale);
    assert_decomposes("eigvalsh", nd_retain(wide_alone), d, x, scale);
    nd_release(values);
    nd_release(vectors);
}

static void test_eigenvectors_of_all_sizes(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (int which = 0; which < FAMILIES; which++)
            for (int wide = 0; wide < 2; wide++) {
                if (sizes[s] > 100 && which % 3 != (int)s % 3)
                    continue;
                nd_auto nd_tensor *x =
                    matrix_of((family)which, wide ? ND_F64 : ND_F32, sizes[s], sizes[s], true);
                check_eigh(x);
            }
}

/// Second differences, 2 beside -1, have eigenvalues 2 - 2 cos(k pi / (n + 1)); ones beside the
/// other diagonal, whose squares are the identity, as many of 1 as of -1, and one more of an odd
/// size.
static void test_eigenvalues_that_are_known(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        const int64_t n = sizes[s];
        nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(n, n), ND_F64), *flipped = nd_zeros_like(x);
        for (int64_t i = 0; i < n; i++) {
            set(x, i, i, 2);
            if (i > 0)
                set(x, i, i - 1, -1);
            if (i > 0)
                set(x, i - 1, i, -1);
            set(flipped, i, n - 1 - i, 1);
        }
        nd_auto nd_tensor *values = nd_eigvalsh(x), *ones = nd_eigvalsh(flipped);
        nd_tensor *with_vectors = NULL;
        assert_ok(nd_eigh(x, &with_vectors, NULL));
        for (int64_t k = 0; k < n; k++) {
            const double known = 2 - 2 * cos((double)(k + 1) * M_PI / (double)(n + 1));
            assert_close("eigvalsh", at_flat(values, k), known, 0, 4e-16 * (double)(n + 8));
            assert_close("eigh", at_flat(with_vectors, k), known, 0, 4e-16 * (double)(n + 8));
            assert_close("flipped", at_flat(ones, k), k < n / 2 ? -1 : 1, 0,
                         4e-16 * (double)(n + 8));
        }
        nd_release(with_vectors);
    }
}

/// A power of two changes no digits.
static void test_eigenvalues_scale_exactly(void **state) {
    (void)state;
    nd_auto nd_tensor *x = matrix_of(RANDOM, ND_F64, 30, 30, true);
    nd_auto nd_tensor *values = nd_eigvalsh(x);
    static const int exponents[] = {-900, -300, 300, 900};
    for (size_t i = 0; i < COUNT_OF(exponents); i++) {
        nd_auto nd_tensor *scaled = nd_mul_scalar(x, ldexp(1, exponents[i]));
        nd_auto nd_tensor *others = nd_eigvalsh(scaled);
        for (int64_t k = 0; k < 30; k++)
            assert_close("scaled", ldexp(at_flat(others, k), -exponents[i]), at_flat(values, k), 0,
                         0);
    }
}

// -------------------------------------------------------------------------------------------------
// singular values

static void check_svd(const nd_tensor *x) {
    nd_tensor *u = NULL, *s = NULL, *vt = NULL;
    assert_ok(nd_svd(x, &u, &s, &vt));
    for (int64_t i = 0; i < nd_get_numel(s); i++)
        assert_true(at_flat(s, i) >= 0 && (i == 0 || at_flat(s, i) <= at_flat(s, i - 1)));
    const double scale = largest(s, NULL);
    nd_auto nd_tensor *alone = nd_svdvals(x), *wide_alone = nd_cast(alone, ND_F64);
    nd_auto nd_tensor *wide_u = nd_cast(u, ND_F64), *wide_s = nd_cast(s, ND_F64);
    nd_auto nd_tensor *wide_vt = nd_cast(vt, ND_F64), *v = nd_transpose(wide_vt, -2, -1);
    nd_auto nd_tensor *wide = nd_cast(x, ND_F64), *stretched = nd_mul(wide_u, wide_s);
    assert_orthonormal("u", wide_u, x);
    assert_orthonormal("v", v, x);
    assert_decomposes("u s v^T", nd_matmul(stretched, wide_vt), wide, x, scale);
    assert_decomposes("svdvals", nd_retain(wide_alone), wide_s, x, scale);
    nd_release(u);
    nd_release(s);
    nd_release(vt);
}

/// Square ones, and with more rows or columns, up to where a QR decomposition comes first.
static void test_singular_vectors_of_all_sizes(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (int which = 0; which < FAMILIES; which++)
            for (int shape = 0; shape < 5; shape++) {
                const int64_t n = sizes[s], other = shape < 1 ? n : shape < 3 ? n + 1 : 3 * n + 1;
                if (n > 40 && which % 3 != (int)s % 3)
                    continue;
                const bool is_tall = shape % 2 != 0;
                nd_auto nd_tensor *x =
                    matrix_of((family)which, (shape + which) % 2 ? ND_F64 : ND_F32,
                              is_tall ? other : n, is_tall ? n : other, false);
                check_svd(x);
            }
}

/// Of so many rows, or columns, that these are taken some at a time.
static void test_singular_vectors_of_many_rows(void **state) {
    (void)state;
    static const int64_t few[] = {1, 2, 7, 20, 100, 170}, many[] = {257, 512, 513, 1000};
    for (int i = 0; i < 6 * 4 * 2 * 2; i++) {
        const int64_t n = few[i % 6], m = many[i / 6 % 4];
        const bool is_tall = i / 24 % 2;
        for (int which = i % 3; which < FAMILIES; which += 3) {
            nd_auto nd_tensor *x = matrix_of((family)which, i / 48 ? ND_F64 : ND_F32,
                                             is_tall ? m : n, is_tall ? n : m, false);
            check_svd(x);
        }
    }
}

/// Columns whose numbers have no squares.
static void test_solutions_of_columns_of_any_size(void **state) {
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        enum { ROWS = 700, COLUMNS = 4 };
        const double far = wide ? 1e200 : 1e28;
        const double sizes_of[COLUMNS] = {1 / far, 1, far, sqrt(1 / far)};
        nd_auto nd_tensor *near =
            random_dense(ND_SHAPE(ROWS, COLUMNS), wide ? ND_F64 : ND_F32, -1, 1);
        nd_auto nd_tensor *b = random_dense(ND_SHAPE(ROWS, 1), nd_get_dtype(near), -1, 1);
        nd_auto nd_tensor *a = nd_clone(near);
        for (int64_t row = 0; row < ROWS; row++)
            for (int64_t column = 0; column < COLUMNS; column++)
                set(a, row, column, at_flat(near, row * COLUMNS + column) * sizes_of[column]);
        for (int64_t column = 0; column < COLUMNS; column++) {
            nd_auto nd_tensor *alone = nd_slice(a, column, column + 1, 1, 1);
            nd_auto nd_tensor *of = nd_slice(near, column, column + 1, 1, 1);
            nd_auto nd_tensor *one = nd_lstsq(alone, b, 0), *same = nd_lstsq(of, b, 0);
            const double expected = at_flat(same, 0);
            assert_close("alone", at_flat(one, 0) * sizes_of[column], expected, 0,
                         fabs(expected) * (wide ? 1e-13 : 1e-5));
        }
    }
}

/// Ones on the diagonal and above it have the values 2 cos(k pi / (2 n + 1)).
static void test_singular_values_that_are_known(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        const int64_t n = sizes[s];
        nd_auto nd_tensor *x = nd_eye(n, ND_F64);
        for (int64_t i = 1; i < n; i++)
            set(x, i - 1, i, 1);
        nd_auto nd_tensor *values = nd_svdvals(x);
        nd_tensor *with_vectors = NULL;
        assert_ok(nd_svd(x, NULL, &with_vectors, NULL));
        for (int64_t k = 0; k < n; k++) {
            const double known = 2 * cos((double)(k + 1) * M_PI / (double)(2 * n + 1));
            assert_close("svdvals", at_flat(values, k), known, 0, 4e-16 * (double)(n + 8));
            assert_close("svd", at_flat(with_vectors, k), known, 0, 4e-16 * (double)(n + 8));
        }
        nd_release(with_vectors);
    }
}

/// The values of two diagonals keep their digits, however small: those of a triangle of 2 x 2 over
/// and over are known from its determinant.
static void test_small_singular_values_keep_their_digits(void **state) {
    (void)state;
    for (int64_t n = 2; n <= 40; n += 2) {
        nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(n, n), ND_F64);
        double logarithm = 0;
        for (int64_t i = 0; i < n; i++) {
            set(x, i, i, ldexp(1, (int)(-2 * i)));
            logarithm -= (double)(2 * i);
            if (i > 0)
                set(x, i - 1, i, ldexp(1, (int)(-2 * i + 1)));
        }
        nd_auto nd_tensor *values = nd_svdvals(x);
        double sum = 0;
        for (int64_t k = 0; k < n; k++)
            sum += log2(at_flat(values, k));
        assert_close("sum of logarithms", sum, logarithm, 0, 1e-12);
    }
}

/// a z is b where there is such a z, and pinv(a) a the identity, for shapes with few and many
/// columns of b.
static void test_solutions_of_all_shapes(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {
        {1, 1, 1},    {5, 5, 2},     {17, 17, 17}, {3, 40, 1},    {20, 90, 4},  {40, 3, 33},
        {90, 20, 1},  {90, 20, 130}, {33, 32, 5},  {70, 64, 3},   {64, 70, 70}, {200, 7, 9},
        {1000, 3, 1}, {777, 20, 2},  {5, 900, 1},  {513, 100, 3}, {600, 1, 1},  {1025, 2, 40}};
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (int wide = 0; wide < 2; wide++) {
            const int64_t m = shapes[s][0], n = shapes[s][1], o = shapes[s][2];
            nd_auto nd_tensor *a = random_dense(ND_SHAPE(m, n), wide ? ND_F64 : ND_F32, -1, 1);
            for (int64_t i = 0; i < m && i < n; i++)
                set(a, i, i, (double)(m + n));
            nd_auto nd_tensor *z = random_dense(ND_SHAPE(n, o), nd_get_dtype(a), -1, 1);
            nd_auto nd_tensor *b = nd_matmul(a, z), *found = nd_lstsq(a, b, -1);
            assert_near("a z", nd_matmul(a, found), b, (double)(m + n));
            if (m >= n)
                assert_near("z", nd_retain(found), z, 1);
            check_pinv(a);
        }
}

static void assert_same_bits(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *x = nd_contiguous(a), *y = nd_contiguous(b);
    assert_memory_equal(nd_get_data(x), nd_get_data(y), (size_t)nd_get_numel(x) * 4);
}

static void test_spectra_have_the_same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    const int threads = nd_get_num_threads();
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(301, 301), ND_F32, -1, 1);
    nd_tensor *parts[2][6] = {{NULL}};
    for (int i = 0; i < 2; i++) {
        assert_ok(nd_set_num_threads(i == 0 ? 1 : 3));
        assert_ok(nd_eigh(x, &parts[i][0], &parts[i][1]));
        assert_ok(nd_svd(x, &parts[i][2], &parts[i][3], &parts[i][4]));
        parts[i][5] = nd_pinv(x, -1);
    }
    assert_ok(nd_set_num_threads(threads));
    for (size_t k = 0; k < COUNT_OF(parts[0]); k++) {
        assert_same_bits(parts[0][k], parts[1][k]);
        nd_release(parts[0][k]);
        nd_release(parts[1][k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_eigenvectors_of_all_sizes),
        ND_TEST(test_eigenvalues_that_are_known),
        ND_TEST(test_eigenvalues_scale_exactly),
        ND_TEST(test_singular_vectors_of_all_sizes),
        ND_TEST(test_singular_vectors_of_many_rows),
        ND_TEST(test_solutions_of_columns_of_any_size),
        ND_TEST(test_singular_values_that_are_known),
        ND_TEST(test_small_singular_values_keep_their_digits),
        ND_TEST(test_solutions_of_all_shapes),
        ND_TEST(test_spectra_have_the_same_bits_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
