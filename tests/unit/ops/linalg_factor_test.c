// Solutions, triangles, determinants, Cholesky and QR factors of all sizes around those that the loops cut
// at, by their residuals, and by matrices whose results are known exactly.
#include "tests/unit/ops/matrices.h"
#include "tests/unit/ops/values.h"
#include <nd/threads.h>
#include <stdlib.h>
#include <string.h>

static const int64_t sizes[] = {1,  2,  3,  4,  5,  7,  8,  9,  15, 16,  17,  24,  31, 32,
                                33, 47, 48, 49, 63, 64, 65, 80, 97, 128, 129, 200, 257};
static const int64_t columns[] = {1, 2, 3, 5, 8, 15, 16, 17, 31, 32, 33, 50, 64, 70};

static nd_dtype dtype_of(size_t i) {
    return i % 2 ? ND_F64 : ND_F32;
}

/// a x is b, but for what rounding does in a solution that is stable; consumes x.
static void assert_solves(const char *what, const nd_tensor *a, nd_tensor *x, const nd_tensor *b) {
    assert_handle(x);
    nd_auto nd_tensor *wide_a = nd_cast(a, ND_F64), *wide_x = nd_cast(x, ND_F64);
    nd_auto nd_tensor *wide_b = nd_cast(b, ND_F64), *ax = nd_matmul(wide_a, wide_x);
    double n = (double)nd_get_shape(a)[1];
    double bound = 8 * epsilon(nd_get_dtype(a)) * n * (largest(a, NULL) * largest(x, NULL) + 1);
    double apart = largest(ax, wide_b);
    if (!(apart <= bound))
        fail_msg("%s of %g rows, %g columns, %s: %g apart, and not %g", what, n,
                 (double)nd_get_shape(b)[1], nd_dtype_get_name(nd_get_dtype(a)), apart, bound);
    nd_release(x);
}

/// x with NaN on one side of its diagonal, and on it too.
static nd_tensor *spoiled(const nd_tensor *x, bool below, bool diagonal) {
    nd_tensor *y = nd_clone(x);
    int64_t n = nd_get_shape(x)[0];
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < n; j++)
            if (i == j ? diagonal : below == (i > j))
                set(y, i, j, NAN);
    return y;
}

static void test_solutions_of_all_sizes(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (size_t c = s % 3; c<COUNT_OF(columns); c += sizes[s]> 100 ? 5 : 2) {
            const int64_t n = sizes[s];
            nd_auto nd_tensor *a = random_dense(ND_SHAPE(n, n), dtype_of(s + c / 3), -1, 1);
            nd_auto nd_tensor *b = random_dense(ND_SHAPE(n, columns[c]), nd_get_dtype(a), -1, 1);
            assert_solves("solve", a, nd_solve(a, b), b);
            // Of numbers that leave the diagonal the largest: others grow beyond all bounds.
            nd_auto nd_tensor *small = nd_mul_scalar(a, 1 / (double)n), *t = shifted(small, 1);
            for (int which = 0; which < 4; which++) {
                bool upper = which & 1, unit = which & 2;
                nd_auto nd_tensor *part = upper ? nd_triu(t, 0) : nd_tril(t, 0);
                nd_auto nd_tensor *strict = upper ? nd_triu(t, 1) : nd_tril(t, -1);
                nd_auto nd_tensor *ones = shifted(strict, 1);
                nd_auto nd_tensor *read = spoiled(t, upper, unit);
                assert_solves(upper ? "upper triangle" : "lower triangle", unit ? ones : part,
                              nd_solve_triangular(read, b, upper, unit), b);
            }
        }
}

static void test_cholesky_factors_of_all_sizes(void **state) {
    (void)state;
    for (size_t s = 0; s < 2 * COUNT_OF(sizes); s++) {
        const int64_t n = sizes[s / 2];
        nd_auto nd_tensor *x = random_dense(ND_SHAPE(n, n), dtype_of(s), -1, 1);
        nd_auto nd_tensor *square = product(x, x, true), *a = shifted(square, 0.5);
        nd_auto nd_tensor *l = nd_cholesky(a);
        nd_auto nd_tensor *lower = nd_tril(l, 0);
        assert_true(largest(l, lower) == 0);
        assert_near("l l^T", product(l, l, true), a, largest(a, NULL));
    }
}

/// q r is x, q^T q the identity, to what rounding does at the scale of x; consumes q and r.
static void assert_factors(const nd_tensor *x, nd_tensor *q, nd_tensor *r, double scale) {
    nd_auto nd_tensor *upper = nd_triu(r, 0), *turned = nd_transpose(q, 0, 1);
    assert_true(largest(r, upper) == 0);
    nd_auto nd_tensor *square = nd_matmul(turned, q), *zeros = nd_zeros_like(square);
    nd_auto nd_tensor *identity = shifted(zeros, 1);
    assert_near("q^T q", nd_steal(&square), identity, 1);
    nd_auto nd_tensor *unit = nd_mul_scalar(x, 1 / scale), *r_unit = nd_mul_scalar(r, 1 / scale);
    assert_near("q r", nd_matmul(q, r_unit), unit, largest(unit, NULL));
    nd_release(q);
    nd_release(r);
}

static void test_qr_of_all_sizes(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++)
        for (size_t c = s % 4; c<COUNT_OF(sizes); c += sizes[s]> 100 ? 7 : 4) {
            nd_auto nd_tensor *x =
                random_dense(ND_SHAPE(sizes[s], sizes[c]), dtype_of(s + c / 4), -1, 1);
            nd_tensor *q = NULL, *r = NULL;
            assert_ok(nd_qr(x, &q, &r));
            assert_factors(x, q, r, 1);
        }
}

/// Columns of zeros, columns alike, and numbers whose squares no number holds.
static void test_qr_of_extremes(void **state) {
    (void)state;
    static const double scales[] = {1e-300, 1e-160, 1e150, 1e300, 1e-36, 1e-25, 1e25, 1e36};
    for (size_t s = 0; s < COUNT_OF(scales); s++) {
        const nd_dtype dtype = s < 4 ? ND_F64 : ND_F32;
        nd_auto nd_tensor *random = random_dense(ND_SHAPE(50, 37), dtype, -1, 1);
        nd_auto nd_tensor *x = nd_mul_scalar(random, scales[s]);
        nd_tensor *q = NULL, *r = NULL;
        assert_ok(nd_qr(x, &q, &r));
        assert_factors(x, q, r, scales[s]);
    }
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(40, 33), ND_F64, -1, 1);
    for (int64_t i = 0; i < 40; i++)
        for (int64_t j = 0; j < 33; j++)
            if (j % 5 == 0 || j % 7 == 3)
                set(x, i, j, j % 5 ? at_flat(x, i * 33 + 1) : 0);
    nd_tensor *q = NULL, *r = NULL;
    assert_ok(nd_qr(x, &q, &r));
    assert_factors(x, q, r, 1);
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(20, 18), ND_F32);
    assert_ok(nd_qr(none, &q, &r));
    nd_auto nd_tensor *identity = nd_eye(20, ND_F32), *part = nd_slice(identity, 0, 18, 1, 1);
    assert_true(largest(q, part) == 0 && largest(r, NULL) == 0);
    nd_release(q);
    nd_release(r);
}

/// Numbers of one sign, whose sums lose digits where each is added to all before it, and columns of
/// subnormal numbers, which have few digits.
static void test_qr_of_many_rows(void **state) {
    (void)state;
    const int64_t m = 20000;
    for (int64_t n = 3; n <= 37; n += 17)
        for (size_t s = 0; s < 2; s++) {
            nd_auto nd_tensor *x = nd_full(ND_SHAPE(m, n), -1, dtype_of(s));
            for (int64_t i = 0; i < n; i++)
                for (int64_t j = i; j < n; j++)
                    set(x, i, j, i == j ? 1 : 0);
            nd_tensor *q = NULL, *r = NULL;
            assert_ok(nd_qr(x, &q, &r));
            nd_auto nd_tensor *wide_q = nd_cast(q, ND_F64), *wide_r = nd_cast(r, ND_F64);
            nd_auto nd_tensor *wide_x = nd_cast(x, ND_F64), *turned = nd_transpose(wide_q, 0, 1);
            nd_auto nd_tensor *square = nd_matmul(turned, wide_q), *zeros = nd_zeros_like(square);
            nd_auto nd_tensor *identity = shifted(zeros, 1), *qr = nd_matmul(wide_q, wide_r);
            nd_auto nd_tensor *apart = nd_sub(qr, wide_x),
                              *norm = nd_norm(apart, 2, 0, NULL, false);
            const double unit = epsilon(dtype_of(s)), length = sqrt((double)(m * n));
            if (!(largest(square, identity) <= 100 * unit &&
                  nd_get_item(norm) <= 30 * unit * length))
                fail_msg("[%d, %d]: q^T q %g, q r %g", (int)m, (int)n,
                         largest(square, identity) / unit, nd_get_item(norm) / length / unit);
            nd_release(q);
            nd_release(r);
        }
    for (size_t s = 0; s < 2; s++) {
        nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(3, 2), dtype_of(s));
        set(x, 0, 0, 1);
        set(x, 1, 1, s ? 5e-320 : 3e-42);
        set(x, 2, 1, s ? 7e-320 : 4e-42);
        nd_tensor *q = NULL;
        assert_ok(nd_qr(x, &q, NULL));
        assert_close("norm", hypot(at_flat(q, 3), at_flat(q, 5)), 1, 4 * epsilon(dtype_of(s)), 0);
        nd_release(q);
    }
}

/// The call failed, and its error says at which place.
static void assert_names(nd_tensor *result, int64_t place) {
    char text[32];
    snprintf(text, sizeof text, " %lld ", (long long)place);
    assert_null(result);
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    if (!strstr(nd_error_get_message(), text))
        fail_msg("'%s' does not name%s", nd_error_get_message(), text);
    nd_error_clear();
}

/// In every instruction set.
static void test_singular_integers_are_singular(void **state) {
    (void)state;
    for (size_t s = 0; s < 2; s++) {
        nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 2), dtype_of(s));
        set(x, 1, 0, 3);
        set(x, 1, 1, 3);
        nd_auto nd_tensor *det = nd_det(x);
        assert_true(nd_get_item(det) == 0);
        assert_names(nd_inv(x), 2);
    }
}

/// Reflections are those of LAPACK: a column that is reflected gets the other sign than its head's.
static void test_qr_has_the_signs_of_lapack(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_from_data((const double[]){3, 1, 4, 2}, ND_SHAPE(2, 2), ND_F64);
    nd_auto nd_tensor *q = NULL, *r = NULL;
    assert_ok(nd_qr(x, &q, &r));
    const double wanted_q[] = {-0.6, -0.8, -0.8, 0.6}, wanted_r[] = {-5, -2.2, 0, 0.4};
    for (int i = 0; i < 4; i++) {
        assert_close("q", at_flat(q, i), wanted_q[i], 1e-14, 1e-14);
        assert_close("r", at_flat(r, i), wanted_r[i], 1e-14, 1e-14);
    }
}

/// The determinant by elimination in long double, with the largest of all numbers as pivots.
static long double eliminated(const nd_tensor *x) {
    int64_t n = nd_get_shape(x)[0];
    long double *a = calloc((size_t)(n * n), sizeof *a), det = 1;
    for (int64_t i = 0; i < n * n; i++)
        a[i] = (long double)at_flat(x, i);
    for (int64_t k = 0; k < n; k++) {
        int64_t row = k;
        for (int64_t i = k; i < n; i++)
            row = fabsl(a[i * n + k]) > fabsl(a[row * n + k]) ? i : row;
        for (int64_t j = 0; j < n && row != k; j++) {
            long double number = a[k * n + j];
            a[k * n + j] = a[row * n + j];
            a[row * n + j] = number;
        }
        det *= row == k ? a[k * n + k] : -a[k * n + k];
        for (int64_t i = k + 1; i < n; i++)
            for (int64_t j = n - 1; j >= k; j--)
                a[i * n + j] -= a[i * n + k] / a[k * n + k] * a[k * n + j];
    }
    free(a);
    return det;
}

static void test_determinants_of_all_sizes(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes) - 1; s++) {
        const int64_t n = sizes[s];
        nd_auto nd_tensor *x = random_dense(ND_SHAPE(n, n), ND_F64, -1, 1);
        nd_auto nd_tensor *det = nd_det(x);
        nd_tensor *sign = NULL, *logarithm = NULL;
        assert_ok(nd_slogdet(x, &sign, &logarithm));
        long double expected = eliminated(x);
        assert_close("det", nd_get_item(det), (double)expected, 1e-9, 0);
        assert_true(nd_get_item(sign) == (expected < 0 ? -1 : 1));
        assert_close("log of det", nd_get_item(logarithm), (double)logl(fabsl(expected)), 1e-9,
                     1e-9);
        nd_release(sign);
        nd_release(logarithm);
    }
}

/// Rows in another order, times powers of two: nothing is rounded.
static void test_permutations_are_solved_exactly(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        const int64_t n = sizes[s], step = n % 7 ? 7 : 5; // prime to n
        nd_auto nd_tensor *p = nd_zeros(ND_SHAPE(n, n), dtype_of(s));
        nd_auto nd_tensor *b = random_dense(ND_SHAPE(n, 3), dtype_of(s), -1, 1);
        int exponent = 0;
        for (int64_t i = 0; i < n; i++) {
            int e = (int)(i % 9) - 4;
            set(p, i, i * step % n, ldexp(i % 2 ? -1 : 1, e));
            exponent += e;
        }
        nd_auto nd_tensor *x = nd_solve(p, b), *det = nd_det(p);
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < 3; j++)
                assert_true(at_flat(x, i * step % n * 3 + j) ==
                            ldexp(i % 2 ? -at_flat(b, i * 3 + j) : at_flat(b, i * 3 + j),
                                  4 - (int)(i % 9)));
        assert_true(fabs(nd_get_item(det)) == ldexp(1, exponent));
    }
}

/// The identity, but for one number: which pivot or minor it is does not depend on how it is cut.
static void test_the_pivot_that_fails_is_named(void **state) {
    (void)state;
    for (size_t s = 0; s < COUNT_OF(sizes); s++) {
        const int64_t n = sizes[s];
        for (int64_t k = (int64_t)(s % 3); k < n; k += 1 + n / 5) {
            nd_auto nd_tensor *a = nd_eye(n, dtype_of(s));
            set(a, k, k, 0);
            assert_names(nd_solve(a, a), k + 1);
            assert_names(nd_solve_triangular(a, a, s % 2, false), k + 1);
            assert_names(nd_cholesky(a), k + 1);
            nd_auto nd_tensor *unit = nd_solve_triangular(a, a, s % 2, true), *det = nd_det(a);
            assert_handle(unit);
            assert_true(nd_get_item(det) == 0);
        }
    }
}

static nd_tensor *r_of(const nd_tensor *a) {
    nd_tensor *r = NULL;
    assert_ok(nd_qr(a, NULL, &r));
    return r;
}

static nd_tensor *run(int which, const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *square = which == 2 ? product(a, a, true) : NULL;
    nd_auto nd_tensor *positive = square ? shifted(square, 1) : NULL;
    return which == 0   ? nd_solve(a, b)
           : which == 1 ? nd_solve_triangular(a, b, true, true)
           : which == 2 ? nd_cholesky(positive)
           : which == 3 ? nd_det(a)
                        : r_of(a);
}

/// What is shared between threads within one matrix, and between matrices, is computed as alone.
static void test_large_factors_have_the_same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    int threads = nd_get_num_threads();
    nd_set_deterministic(true); // the products of the tests
    for (size_t dtype = 0; dtype < 2; dtype++)
        for (int which = 0; which < 5; which++) {
            nd_auto nd_tensor *random = random_dense(ND_SHAPE(2, 300, 300), dtype_of(dtype), -1, 1);
            nd_auto nd_tensor *small = nd_mul_scalar(random, 0.003), *all = shifted(small, 1);
            nd_auto nd_tensor *a = nd_select(all, 1, 0), *b = nd_select(random, 0, 0);
            assert_ok(nd_set_num_threads(1));
            nd_auto nd_tensor *one = run(which, a, b);
            assert_ok(nd_set_num_threads(3));
            nd_auto nd_tensor *three = run(which, a, b), *both = run(which, all, random);
            nd_auto nd_tensor *second = nd_select(both, 1, 0);
            assert_true(largest(one, three) == 0);
            if (which > 1) // b is another one
                assert_true(largest(one, second) == 0);
        }
    assert_ok(nd_set_num_threads(threads));
    nd_set_deterministic(false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_solutions_of_all_sizes),
        ND_TEST(test_cholesky_factors_of_all_sizes),
        ND_TEST(test_qr_of_all_sizes),
        ND_TEST(test_qr_of_extremes),
        ND_TEST(test_qr_of_many_rows),
        ND_TEST(test_singular_integers_are_singular),
        ND_TEST(test_qr_has_the_signs_of_lapack),
        ND_TEST(test_determinants_of_all_sizes),
        ND_TEST(test_permutations_are_solved_exactly),
        ND_TEST(test_the_pivot_that_fails_is_named),
        ND_TEST(test_large_factors_have_the_same_bits_on_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
