// Gradients of determinants to the third order, of matrices of every rank, beside the sum over all
// permutations, whose gradients are those of products and sums.
#include "tests/unit/ops/matrices.h"
#include "tests/unit/ops/values.h"

enum { LARGEST = 5, ORDERS = 3 };

static nd_tensor *element(const nd_tensor *x, int row, int column) {
    nd_auto nd_tensor *line = nd_select(x, row, -2);
    return nd_select(line, column, -1);
}

/// The determinant of the rows from `row` on and the columns that are left, by its first row.
static nd_tensor *expanded(const nd_tensor *x, int row, unsigned left) {
    const int n = (int)nd_get_shape(x)[nd_get_ndim(x) - 1];
    nd_tensor *sum = NULL;
    double sign = 1;
    for (int column = 0; column < n; column++) {
        if (!(left & 1u << column))
            continue;
        nd_auto nd_tensor *first = element(x, row, column);
        nd_auto nd_tensor *minor =
            row + 1 < n ? expanded(x, row + 1, left & ~(1u << column)) : NULL;
        nd_auto nd_tensor *product = minor ? nd_mul(first, minor) : nd_retain(first);
        nd_auto nd_tensor *term = nd_mul_scalar(product, sign);
        nd_auto nd_tensor *before = sum;
        sum = before ? nd_add(before, term) : nd_retain(term);
        sign = -sign;
    }
    return sum;
}

static nd_tensor *by_expansion(const nd_tensor *x) {
    return expanded(x, 0, (1u << nd_get_shape(x)[nd_get_ndim(x) - 1]) - 1);
}

/// Gradients of f(x) = sum(w of), g the first; of sum(w g), the second; and of that, the third.
static void gradients(nd_tensor *(*of)(const nd_tensor *), const nd_tensor *values,
                      nd_tensor **ret_gradients) {
    nd_auto nd_tensor *x = nd_clone(values);
    assert_ok(nd_set_requires_grad(x, true));
    const nd_tensor *const inputs[] = {x};
    nd_tensor *now = of(x);
    for (int order = 0; order < ORDERS; order++) {
        nd_auto nd_tensor *result = now;
        assert_non_null(result);
        nd_auto nd_tensor *weight = nd_randn(nd_key_new(77 + (uint64_t)order), nd_get_ndim(result),
                                             nd_get_shape(result), ND_F64);
        nd_auto nd_tensor *of_dtype = nd_cast(weight, nd_get_dtype(values));
        nd_auto nd_tensor *product = nd_mul(result, of_dtype);
        nd_auto nd_tensor *sum = nd_sum(product, 0, NULL, false);
        ret_gradients[order] = NULL;
        if (nd_requires_grad(sum)) {
            nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
            options.create_graph = true;
            assert_ok(nd_grad(sum, 1, inputs, &options, &ret_gradients[order]));
        } else {
            ret_gradients[order] = nd_zeros_like(x); // of a polynomial of lower order
        }
        now = nd_retain(ret_gradients[order]);
    }
    nd_release(now);
}

static void compare(const nd_tensor *x, int orders, double tolerance) {
    nd_tensor *ours[ORDERS], *expected[ORDERS];
    gradients(nd_det, x, ours);
    gradients(by_expansion, x, expected);
    for (int order = 0; order < orders; order++) {
        const double apart = largest(ours[order], expected[order]);
        const double scale = fmax(largest(expected[order], NULL), 1);
        if (!(apart <= tolerance * scale)) {
            nd_print(x, stderr);
            nd_print(ours[order], stderr);
            nd_print(expected[order], stderr);
            fail_msg("order %d: %g apart", order + 1, apart / scale);
        }
    }
    for (int order = 0; order < ORDERS; order++) {
        nd_release(ours[order]);
        nd_release(expected[order]);
    }
}

/// [batch, n, n] of at most that rank.
static nd_tensor *matrices_of_rank(uint64_t seed, int64_t batch, int64_t n, int64_t rank) {
    nd_auto nd_tensor *a = nd_randn(nd_key_new(seed), ND_SHAPE(batch, n, rank), ND_F64);
    nd_auto nd_tensor *b = nd_randn(nd_key_new(seed + 1), ND_SHAPE(batch, rank, n), ND_F64);
    return nd_matmul(a, b);
}

static void test_gradients_of_every_rank(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 6; seed++)
        for (int64_t n = 1; n <= LARGEST; n++)
            for (int64_t rank = 0; rank <= n; rank++) {
                nd_auto nd_tensor *x = matrices_of_rank(seed * 100, 2, n, rank);
                compare(x, ORDERS, 1e-7);
                nd_auto nd_tensor *narrow = nd_cast(x, ND_F32);
                compare(narrow, 2, 1e-2);
            }
}

/// Of one batch, with rows and columns that are not dense.
static void test_a_batch_of_several_ranks(void **state) {
    (void)state;
    nd_tensor *all[LARGEST + 1];
    for (int64_t rank = 0; rank <= LARGEST; rank++)
        all[rank] = matrices_of_rank((uint64_t)rank, 3, LARGEST, rank);
    nd_auto nd_tensor *x = nd_concat(LARGEST + 1, (const nd_tensor *const *)all, 0);
    nd_auto nd_tensor *turned = nd_transpose(x, -2, -1);
    compare(x, ORDERS, 1e-7);
    compare(turned, ORDERS, 1e-7);
    for (int64_t rank = 0; rank <= LARGEST; rank++)
        nd_release(all[rank]);
}

static nd_tensor *gradient_of_diagonal(int64_t n, const double *diagonal, double *ret_det) {
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(n, n), ND_F64);
    for (int64_t i = 0; i < n; i++)
        ((double *)nd_get_data(x))[i * n + i] = diagonal[i];
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *det = nd_det(x);
    *ret_det = nd_get_item(det);
    nd_tensor *gradient = NULL;
    assert_ok(nd_grad(det, 1, (const nd_tensor *const[]){x}, NULL, &gradient));
    return gradient;
}

static void assert_diagonal(int64_t n, const double *diagonal, double det, const double *expected) {
    double value;
    nd_auto nd_tensor *gradient = gradient_of_diagonal(n, diagonal, &value);
    assert_close("det", value, det, 1e-13, 0);
    for (int64_t i = 0; i < n * n; i++) {
        const double wanted = i % (n + 1) ? 0 : expected[i / (n + 1)];
        assert_close("gradient", at_flat(gradient, i), wanted, 1e-12, 0);
    }
}

/// Products that fit, of factors whose products on the way do not; and the other way round.
static void test_determinants_at_the_ends_of_the_range(void **state) {
    (void)state;
    assert_diagonal(3, (const double[]){1e200, 1e-200, 1e-50}, 1e-50,
                    (const double[]){1e-250, 1e150, 1});
    assert_diagonal(3, (const double[]){1e-200, 1e-200, 1e300}, 1e-100,
                    (const double[]){1e100, 1e100, 0});
    assert_diagonal(3, (const double[]){1e150, 1e200, 1e-300}, 1e50,
                    (const double[]){1e-100, 1e-150, INFINITY});
    assert_diagonal(2, (const double[]){1e170, 1e170}, INFINITY, (const double[]){1e170, 1e170});
    assert_diagonal(2, (const double[]){1e-170, 1e-170}, 0, (const double[]){1e-170, 1e-170});
    assert_diagonal(4, (const double[]){1e170, 1e170, 1, 1}, INFINITY,
                    (const double[]){1e170, 1e170, INFINITY, INFINITY});
    assert_diagonal(4, (const double[]){1e-170, 1e-170, 1, 1}, 0,
                    (const double[]){1e-170, 1e-170, 0, 0});
    assert_diagonal(4, (const double[]){1e200, 1e200, 1e-200, 1e-200}, 1,
                    (const double[]){1e-200, 1e-200, 1e200, 1e200});
}

/// The first gradients of the determinants of a batch, one by one.
static nd_tensor *first_gradient(const nd_tensor *values) {
    nd_auto nd_tensor *x = nd_clone(values);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *det = nd_det(x), *sum = nd_sum(det, 0, NULL, false);
    nd_tensor *gradient = NULL;
    assert_ok(nd_grad(sum, 1, (const nd_tensor *const[]){x}, NULL, &gradient));
    return gradient;
}

/// Each matrix of a batch has the gradient that it has alone, whatever the others are; an error from
/// before is none of it.
static void test_no_matrix_spoils_another(void **state) {
    (void)state;
    enum { N = 20, KINDS = 6 };
    nd_tensor *kinds[KINDS] = {matrices_of_rank(3, 1, N, N), matrices_of_rank(4, 1, N, 0),
                               matrices_of_rank(5, 1, N, N - 1), matrices_of_rank(6, 1, N, 2)};
    nd_auto nd_tensor *tiny = nd_mul_scalar(kinds[0], 1e-20);
    kinds[4] = nd_retain(tiny);
    kinds[5] = nd_full(ND_SHAPE(1, N, N), NAN, ND_F64);
    nd_auto nd_tensor *all = nd_concat(KINDS, (const nd_tensor *const *)kinds, 0);
    assert_null(nd_zeros(ND_SHAPE(-1), ND_F64)); // and stays the thread's error
    nd_auto nd_tensor *together = first_gradient(all);
    nd_error_clear();
    for (int i = 0; i < KINDS; i++) {
        nd_auto nd_tensor *alone = first_gradient(kinds[i]), *of_it = nd_select(together, i, 0);
        nd_auto nd_tensor *expected = nd_select(alone, 0, 0);
        const double scale = largest(expected, NULL);
        for (int64_t k = 0; k < N * N; k++)
            assert_close("gradient", at_flat(of_it, k), at_flat(expected, k), 1e-9, 1e-9 * scale);
        nd_release(kinds[i]);
    }
}

/// Second gradients where the determinant itself is beyond its dtype.
static void test_second_gradients_of_what_does_not_fit(void **state) {
    (void)state;
    nd_auto nd_tensor *one = nd_eye(4, ND_F32), *x = nd_mul_scalar(one, 1e-12);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *det = nd_det(x);
    assert_true(nd_get_item(det) == 0);
    const nd_tensor *const inputs[] = {x};
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    nd_auto nd_tensor *first = NULL, *second = NULL;
    assert_ok(nd_grad(det, 1, inputs, &options, &first));
    nd_auto nd_tensor *line = nd_select(first, 0, 0), *corner = nd_select(line, 0, 0);
    assert_close("first", nd_get_item(corner), 1e-36, 1e-4, 0);
    assert_ok(nd_grad(corner, 1, inputs, NULL, &second));
    for (int64_t i = 0; i < 16; i++)
        assert_close("second", at_flat(second, i), i % 5 == 0 && i > 0 ? 1e-24 : 0, 1e-4, 1e-28);
}

/// Singular matrices with rows and columns of far other sizes.
static void test_singular_matrices_of_bad_scale(void **state) {
    (void)state;
    static const double scales[][2] = {{1e20, 1}, {1, 1e20}, {1e-15, 1e10}, {1e12, 1e12}};
    for (size_t i = 0; i < COUNT_OF(scales); i++) {
        nd_auto nd_tensor *plain = matrices_of_rank(20 + i, 2, 5, 4);
        nd_auto nd_tensor *x = nd_clone(plain);
        double *values = nd_get_data(x);
        for (int64_t k = 0; k < 50; k++)
            values[k] *= (k % 25 / 5 == 1 ? scales[i][0] : 1) * (k % 5 == 2 ? scales[i][1] : 1);
        nd_tensor *ours[ORDERS], *expected[ORDERS];
        gradients(nd_det, x, ours);
        gradients(by_expansion, x, expected);
        assert_true(largest(ours[0], expected[0]) <= 1e-7 * largest(expected[0], NULL));
        for (int order = 0; order < ORDERS; order++) {
            nd_release(ours[order]);
            nd_release(expected[order]);
        }
    }
}

/// What is not finite stays that, and is said of no other matrix.
static void test_determinants_of_what_is_not_finite(void **state) {
    (void)state;
    nd_auto nd_tensor *x =
        nd_from_data((const double[]){NAN, 0, 0, 1, 1, 2, 3, 4}, ND_SHAPE(2, 2, 2), ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *det = nd_det(x), *sum = nd_sum(det, 0, NULL, false);
    nd_auto nd_tensor *gradient = NULL;
    assert_ok(nd_grad(sum, 1, (const nd_tensor *const[]){x}, NULL, &gradient));
    assert_true(isnan(at_flat(gradient, 3)));
    const double expected[] = {4, -3, -2, 1};
    for (int i = 0; i < 4; i++)
        assert_close("gradient", at_flat(gradient, 4 + i), expected[i], 1e-14, 0);
}

/// More singular values than cofactors are computed for.
static void test_a_large_matrix_without_rank(void **state) {
    (void)state;
    for (int64_t rank = 0; rank < 50; rank += 7) {
        nd_auto nd_tensor *x = matrices_of_rank(5, 1, 50, rank);
        assert_ok(nd_set_requires_grad(x, true));
        nd_auto nd_tensor *det = nd_det(x), *sum = nd_sum(det, 0, NULL, false);
        nd_auto nd_tensor *gradient = NULL;
        assert_ok(nd_grad(sum, 1, (const nd_tensor *const[]){x}, NULL, &gradient));
        // Beside the product of the singular values that are there.
        nd_auto nd_tensor *s = nd_svdvals(x);
        double scale = 1;
        for (int64_t i = 0; i < rank; i++)
            scale *= at_flat(s, i);
        assert_true(largest(gradient, NULL) <= (rank < 49 ? 1e-9 : 1.01) * scale);
        assert_true(rank < 49 || largest(gradient, NULL) > 1e-3 * scale);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_gradients_of_every_rank),
        ND_TEST(test_a_batch_of_several_ranks),
        ND_TEST(test_determinants_at_the_ends_of_the_range),
        ND_TEST(test_no_matrix_spoils_another),
        ND_TEST(test_second_gradients_of_what_does_not_fit),
        ND_TEST(test_singular_matrices_of_bad_scale),
        ND_TEST(test_determinants_of_what_is_not_finite),
        ND_TEST(test_a_large_matrix_without_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
