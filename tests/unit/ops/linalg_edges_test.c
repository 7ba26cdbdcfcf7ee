// Linear algebra at its edges: singular, empty, huge, refused, and on another device.
#include "lib/device/fake/fake.h"
#include "tests/unit/ops/matrices.h"
#include "tests/unit/ops/values.h"

static nd_tensor *matrix(int64_t rows, int64_t columns, const double *values) {
    return nd_from_data(values, ND_SHAPE(rows, columns), ND_F64);
}

static void test_matrices_without_full_rank(void **state) {
    (void)state;
    // The second row is twice the first.
    nd_auto nd_tensor *x = matrix(3, 3, (const double[]){1, 2, 3, 2, 4, 6, 1, 0, 1});
    nd_auto nd_tensor *rank = nd_matrix_rank(x, -1);
    assert_int_equal(nd_get_dtype(rank), ND_I64);
    assert_true(at_flat(rank, 0) == 2);
    nd_auto nd_tensor *all = nd_matrix_rank(x, 0.9);
    assert_true(at_flat(all, 0) == 1);
    check_pinv(x);
    nd_auto nd_tensor *zeros = nd_zeros(ND_SHAPE(2, 3), ND_F64);
    nd_auto nd_tensor *none = nd_matrix_rank(zeros, -1);
    assert_true(at_flat(none, 0) == 0);
    nd_auto nd_tensor *p = nd_pinv(zeros, -1);
    assert_shape(p, 2, (const int64_t[]){3, 2});
    assert_true(largest(p, NULL) == 0);

    nd_auto nd_tensor *singular = matrix(2, 2, (const double[]){1, 2, 2, 4});
    nd_auto nd_tensor *det = nd_det(singular);
    assert_true(at_flat(det, 0) == 0);
    nd_tensor *sign = NULL, *logarithm = NULL;
    assert_ok(nd_slogdet(singular, &sign, &logarithm));
    assert_true(at_flat(sign, 0) == 0 && at_flat(logarithm, 0) == -INFINITY);
    nd_release(sign);
    nd_release(logarithm);
    assert_refused(nd_inv(singular), ND_ERROR_INVALID_ARGUMENT, "inv: x is singular: pivot 2");
}

/// The sum of equal singular values, or eigenvalues, has a gradient: that of the nuclear norm, or
/// of the trace.
static void test_gradients_of_equal_values(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_eye(3, ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *nuclear = nd_matrix_norm(x, ND_MATRIX_NORM_NUCLEAR, false);
    nd_auto nd_tensor *values = nd_eigvalsh(x);
    nd_auto nd_tensor *trace = nd_sum(values, 0, NULL, false);
    nd_auto nd_tensor *both = nd_add(nuclear, trace);
    assert_ok(nd_backward(both, NULL));
    nd_auto nd_tensor *identity = nd_eye(3, ND_F64);
    nd_auto nd_tensor *twice = nd_mul_scalar(identity, 2);
    assert_near("gradient", nd_retain(nd_get_grad(x)), twice, 1);
}

static void assert_shapes_of_nothing(int64_t m, int64_t n) {
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(2, m, n), ND_F32);
    nd_tensor *q = NULL, *r = NULL, *u = NULL, *s = NULL, *vt = NULL;
    assert_ok(nd_qr(x, &q, &r));
    assert_ok(nd_svd(x, &u, &s, &vt));
    assert_shape(q, 3, (const int64_t[]){2, m, 0});
    assert_shape(r, 3, (const int64_t[]){2, 0, n});
    assert_shape(u, 3, (const int64_t[]){2, m, 0});
    assert_shape(s, 2, (const int64_t[]){2, 0});
    assert_shape(vt, 3, (const int64_t[]){2, 0, n});
    nd_auto nd_tensor *p = nd_pinv(x, -1);
    assert_shape(p, 3, (const int64_t[]){2, n, m});
    nd_auto nd_tensor *b = nd_ones(ND_SHAPE(2, m, 3), ND_F32);
    nd_auto nd_tensor *z = nd_lstsq(x, b, -1);
    assert_shape(z, 3, (const int64_t[]){2, n, 3});
    assert_true(largest(z, NULL) == 0);
    nd_auto nd_tensor *rank = nd_matrix_rank(x, -1);
    assert_shape(rank, 1, (const int64_t[]){2});
    assert_true(largest(rank, NULL) == 0);
    nd_tensor *const parts[] = {q, r, u, s, vt};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        nd_release(parts[i]);
}

/// sum(s^2) of what nd_svdvals() or nd_eigvalsh() gives has the gradient 2 x, however equal, small or
/// large the values are. x is symmetric.
static void check_gradient_of_squares(const nd_tensor *symmetric, bool singular) {
    nd_auto nd_tensor *x = nd_clone(symmetric);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *s = singular ? nd_svdvals(x) : nd_eigvalsh(x);
    // Half of s times s as it is: neither leaves the range with x.
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    nd_auto nd_tensor *grad = nd_detach(s);
    options.grad = grad;
    assert_ok(nd_backward(s, &options));
    nd_auto nd_tensor *wide = nd_cast(nd_get_grad(x), ND_F64);
    nd_auto nd_tensor *expected = nd_cast(symmetric, ND_F64);
    const double *got = nd_get_data(wide), *of = nd_get_data(expected);
    const double largest = ((const double *)nd_get_data(expected))[0];
    const double unit = nd_get_dtype(x) == ND_F32 ? 1e-4 : 1e-12;
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        assert_true(fabs(got[i] - of[i]) <= unit * largest * (double)nd_get_size(x, 0));
}

static void test_gradients_of_values_of_any_matrix_and_size(void **state) {
    (void)state;
    for (int n = 2; n <= 33; n++)
        for (int i = 0; i < 2 * 3 * 5; i++) {
            const nd_dtype dtype = i % 2 ? ND_F64 : ND_F32;
            const int kind = i / 2 % 3, far = dtype == ND_F32 ? 100 : 900;
            const double size = ldexp(1, (i / 6 - 2) * far / 2);
            nd_auto nd_tensor *base = nd_ones(ND_SHAPE(n, n), ND_F64);
            double *values = nd_get_data(base);
            for (int row = 0; row < n; row++)
                for (int column = 0; column < n; column++) {
                    double *value = &values[row * n + column];
                    if (kind == 1) // rows and columns of zeros
                        *value = row % 2 || column % 2 ? 0 : 1 + (row + column) % 3;
                    if (kind == 2) // repeated eigenvalues
                        *value = row == column ? 2 : row / 4 == column / 4 ? 1 : 0;
                }
            nd_auto nd_tensor *scaled = nd_mul_scalar(base, size);
            nd_auto nd_tensor *x = nd_cast(scaled, dtype);
            check_gradient_of_squares(x, true);
            check_gradient_of_squares(x, false);
        }
}

/// Through singular vectors, too, the gradient of x times a number is that number's part of it.
static void test_gradients_of_singular_vectors_scale(void **state) {
    (void)state;
    for (int shape = 0; shape < 3; shape++) {
        const int64_t m = shape == 0 ? 5 : 4, n = shape == 2 ? 6 : 4;
        nd_auto nd_tensor *near = NULL;
        for (int i = 0; i < 5; i++) {
            const double size = ldexp(1, (int[]){0, 60, -60, 100, -100}[i]);
            nd_auto nd_tensor *drawn = nd_randn(nd_key_new(4), ND_SHAPE(m, n), ND_F32);
            nd_auto nd_tensor *x = nd_mul_scalar(drawn, size);
            assert_ok(nd_set_requires_grad(x, true));
            nd_tensor *u, *s, *vt;
            assert_ok(nd_svd(x, &u, &s, &vt));
            nd_auto nd_tensor *first = nd_select(u, 0, 0), *last = nd_select(vt, 0, 1);
            nd_auto nd_tensor *product = nd_mul(first, last); // whatever sign vectors have
            nd_auto nd_tensor *sum = nd_sum(product, 0, NULL, false);
            assert_ok(nd_backward(sum, NULL));
            nd_auto nd_tensor *grad = nd_mul_scalar(nd_get_grad(x), size);
            for (int64_t at = 0; near && at < m * n; at++)
                assert_float_equal(((const float *)nd_get_data(grad))[at],
                                   ((const float *)nd_get_data(near))[at], 1e-3);
            if (!near)
                near = nd_steal(&grad);
            nd_release(u);
            nd_release(s);
            nd_release(vt);
        }
    }
}

static void test_ranks_of_the_largest_numbers(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const double v = i ? 1.7e308 : 3e38;
        const double values[] = {v, v, v, -v / 2, 1, 1, 1, 1, v, v, v, v};
        nd_auto nd_tensor *wide = nd_from_data(values, ND_SHAPE(3, 2, 2), ND_F64);
        nd_auto nd_tensor *x = nd_cast(wide, i ? ND_F64 : ND_F32);
        nd_auto nd_tensor *rank = nd_matrix_rank(x, -1);
        const int64_t *ranks = nd_get_data(rank);
        assert_true(ranks[0] == 2 && ranks[1] == 1 && ranks[2] == 1);
    }
}

static void test_matrices_of_nothing(void **state) {
    (void)state;
    assert_shapes_of_nothing(0, 3);
    assert_shapes_of_nothing(3, 0);
    assert_shapes_of_nothing(0, 0);
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(2, 0, 0), ND_F64);
    nd_auto nd_tensor *inverse = nd_inv(x);
    assert_shape(inverse, 3, (const int64_t[]){2, 0, 0});
    nd_auto nd_tensor *l = nd_cholesky(x);
    assert_shape(l, 3, (const int64_t[]){2, 0, 0});
    nd_auto nd_tensor *det = nd_det(x);
    assert_true(at_flat(det, 0) == 1 && at_flat(det, 1) == 1);
    nd_tensor *values = NULL, *v = NULL, *sign = NULL, *logarithm = NULL;
    assert_ok(nd_eigh(x, &values, &v));
    assert_shape(values, 2, (const int64_t[]){2, 0});
    assert_shape(v, 3, (const int64_t[]){2, 0, 0});
    assert_ok(nd_slogdet(x, &sign, &logarithm));
    assert_true(at_flat(sign, 1) == 1 && at_flat(logarithm, 1) == 0);
    nd_auto nd_tensor *batch = nd_zeros(ND_SHAPE(0, 3, 3), ND_F64);
    nd_auto nd_tensor *none = nd_inv(batch);
    assert_shape(none, 3, (const int64_t[]){0, 3, 3});
    nd_tensor *const parts[] = {values, v, sign, logarithm};
    for (size_t i = 0; i < COUNT_OF(parts); i++)
        nd_release(parts[i]);
}

static nd_tensor *left_vectors(const nd_tensor *x) {
    nd_tensor *u = NULL;
    return nd_svd(x, &u, NULL, NULL) == ND_OK ? u : NULL;
}

static nd_tensor *right_vectors(const nd_tensor *x) {
    nd_tensor *vt = NULL;
    return nd_svd(x, NULL, NULL, &vt) == ND_OK ? vt : NULL;
}

static nd_tensor *singular(const nd_tensor *x) {
    nd_tensor *s = NULL;
    return nd_svd(x, NULL, &s, NULL) == ND_OK ? s : NULL;
}

static nd_tensor *nuclear(const nd_tensor *x) {
    return nd_matrix_norm(x, ND_MATRIX_NORM_NUCLEAR, false);
}

static nd_tensor *eigenvalues(const nd_tensor *x) {
    nd_tensor *values = NULL;
    return nd_eigh(x, &values, NULL) == ND_OK ? values : NULL;
}

static nd_tensor *eigenvectors(const nd_tensor *x) {
    nd_tensor *v = NULL;
    return nd_eigh(x, NULL, &v) == ND_OK ? v : NULL;
}

static nd_tensor *logarithm(const nd_tensor *x) {
    nd_tensor *result = NULL;
    return nd_slogdet(x, NULL, &result) == ND_OK ? result : NULL;
}

/// Two derivatives of the sum of f at an x without elements.
static void assert_gradients_of_nothing(nd_tensor *(*f)(const nd_tensor *), int ndim,
                                        const int64_t *shape) {
    nd_auto nd_tensor *x = nd_zeros(ndim, shape, ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *y = f(x);
    assert_handle(y);
    assert_true(nd_requires_grad(y));
    nd_auto nd_tensor *sum = nd_sum(y, 0, NULL, false);
    const nd_tensor *input = x;
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    nd_tensor *first = NULL, *second = NULL;
    assert_ok(nd_grad(sum, 1, &input, &options, &first));
    assert_shape(first, ndim, shape);
    nd_auto nd_tensor *square = nd_square(first);
    nd_auto nd_tensor *sum_of_squares = nd_sum(square, 0, NULL, false);
    options.allow_unused = true;
    if (nd_requires_grad(sum_of_squares))
        assert_ok(nd_grad(sum_of_squares, 1, &input, &options, &second));
    if (second)
        assert_shape(second, ndim, shape);
    nd_release(first);
    nd_release(second);
}

static void test_gradients_of_matrices_of_nothing(void **state) {
    (void)state;
    nd_tensor *(*const of_any[])(const nd_tensor *) = {nd_svdvals, singular, left_vectors,
                                                       right_vectors, nuclear};
    const int64_t shapes[][3] = {{1, 0, 0}, {2, 0, 3}, {2, 3, 0}, {0, 3, 3}, {0, 0, 0}};
    for (size_t i = 0; i < COUNT_OF(of_any); i++) {
        for (size_t k = 0; k < COUNT_OF(shapes); k++)
            assert_gradients_of_nothing(of_any[i], 3, shapes[k]);
        assert_gradients_of_nothing(of_any[i], ND_SHAPE(0, 3));
        assert_gradients_of_nothing(of_any[i], ND_SHAPE(3, 0));
    }
    nd_tensor *(*const of_square[])(const nd_tensor *) = {eigenvalues, eigenvectors, nd_eigvalsh,
                                                          nd_det, logarithm};
    for (size_t i = 0; i < COUNT_OF(of_square); i++) {
        assert_gradients_of_nothing(of_square[i], ND_SHAPE(0, 0));
        assert_gradients_of_nothing(of_square[i], ND_SHAPE(1, 0, 0));
        assert_gradients_of_nothing(of_square[i], ND_SHAPE(2, 0, 0));
        assert_gradients_of_nothing(of_square[i], ND_SHAPE(0, 2, 2));
    }
}

/// x and its transpose have a sum that no number holds, and a mean that one does. Where the sum fits,
/// the bits are those of (x + x^T) / 2, also beside such an element.
static void test_the_largest_matrices(void **state) {
    (void)state;
    for (int i = 0; i < 2; i++) {
        const nd_dtype dtype = i == 0 ? ND_F32 : ND_F64;
        const double most = i == 0 ? 3e38 : 1.5e308, least = i == 0 ? 0x1p-149 : 0x1p-1074;
        nd_auto nd_tensor *x = nd_full(ND_SHAPE(1, 1), most, dtype);
        assert_handle(x);
        nd_auto nd_tensor *l = nd_cholesky(x);
        assert_handle(l);
        assert_true(fabs(at_flat(l, 0) / sqrt(most) - 1) < 1e-6);
        nd_auto nd_tensor *value = nd_eigvalsh(x);
        assert_handle(value);
        assert_true(fabs(at_flat(value, 0) / most - 1) < 1e-6);
        assert_ok(nd_set_requires_grad(x, true));
        nd_auto nd_tensor *recorded = nd_cholesky(x);
        assert_ok(nd_backward(recorded, NULL));
        assert_true(fabs(at_flat(nd_get_grad(x), 0) * 2 * sqrt(most) - 1) < 1e-5);
        // The smallest number beside the largest: halving it before the sum would make it 0.
        nd_auto nd_tensor *pair = nd_zeros(ND_SHAPE(2, 2), dtype);
        nd_auto nd_tensor *first = nd_slice(pair, 0, 1, 1, 0);
        nd_auto nd_tensor *corner = nd_slice(first, 0, 1, 1, 1);
        assert_ok(nd_fill_(corner, most));
        nd_auto nd_tensor *second = nd_slice(pair, 1, 2, 1, 0);
        nd_auto nd_tensor *other = nd_slice(second, 1, 2, 1, 1);
        assert_ok(nd_fill_(other, least));
        nd_auto nd_tensor *root = nd_cholesky(pair);
        assert_handle(root);
        assert_true(fabs(at_flat(root, 3) / sqrt(least) - 1) < 1e-6);
    }
}

static void test_refusals_name_the_matrix(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(3, 2, 2), ND_F64);
    nd_auto nd_tensor *regular = shifted(x, 1);
    double *values = nd_get_data(regular);
    values[7] = 0; // the third matrix stays positive definite, the second becomes singular
    assert_refused(nd_inv(regular), ND_ERROR_INVALID_ARGUMENT,
                   "inv: x is singular: pivot 2 is 0 (matrix 1 of 3)");
    assert_refused(nd_matrix_power(regular, -2), ND_ERROR_INVALID_ARGUMENT,
                   "matrix_power: x is singular: pivot 2 is 0 (matrix 1 of 3)");
    assert_refused(nd_solve(regular, regular), ND_ERROR_INVALID_ARGUMENT,
                   "solve: a is singular: pivot 2 is 0 (matrix 1 of 3)");
    assert_refused(nd_solve_triangular(regular, regular, true, false), ND_ERROR_INVALID_ARGUMENT,
                   "solve_triangular: a is singular: pivot 2 is 0 (matrix 1 of 3)");
    assert_refused(nd_cholesky(regular), ND_ERROR_INVALID_ARGUMENT,
                   "cholesky: x is not positive definite: leading minor 2 is not positive (matrix "
                   "1 of 3)");
    nd_release(nd_solve_triangular(regular, regular, true, true));
    values[8] = NAN;
    assert_refused(nd_svdvals(regular), ND_ERROR_INVALID_ARGUMENT,
                   "svdvals: an operand has an infinity or NaN (matrix 2 of 3)");
    assert_refused(nd_pinv(regular, -1), ND_ERROR_INVALID_ARGUMENT, "pinv: an operand has");
    assert_refused(nd_eigvalsh(regular), ND_ERROR_INVALID_ARGUMENT, "eigvalsh: an operand has");
    assert_refused(nd_lstsq(x, regular, -1), ND_ERROR_INVALID_ARGUMENT, "lstsq: an operand has");
    nd_tensor *u = NULL;
    assert_int_equal(nd_svd(regular, &u, NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_null(u);
    nd_error_clear();
}

static void test_refusals_of_operands(void **state) {
    (void)state;
    nd_auto nd_tensor *wide = nd_zeros(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *square = nd_eye(2, ND_F32);
    nd_auto nd_tensor *doubles = nd_eye(2, ND_F64);
    nd_auto nd_tensor *halves = nd_eye(2, ND_F16);
    nd_auto nd_tensor *whole = nd_eye(2, ND_I64);
    nd_auto nd_tensor *vector = nd_zeros(ND_SHAPE(3), ND_F32);
    assert_refused(nd_inv(wide), ND_ERROR_SHAPE, "inv: x has shape [2, 3] and must be [..., n, n]");
    assert_refused(nd_matrix_power(wide, 2), ND_ERROR_SHAPE, "matrix_power: x is float32 of shape");
    assert_refused(nd_matrix_power(whole, -2), ND_ERROR_DTYPE, "matrix_power: x is int64 and");
    assert_refused(nd_matrix_power(NULL, 0), ND_ERROR_INVALID_ARGUMENT, "matrix_power: ");
    assert_refused(nd_pinv(vector, 0), ND_ERROR_SHAPE, "pinv: x has shape [3]");
    assert_refused(nd_det(halves), ND_ERROR_DTYPE, "det: x is float16");
    assert_refused(nd_cholesky(whole), ND_ERROR_DTYPE, "cholesky: x is int64");
    assert_refused(nd_solve(square, doubles), ND_ERROR_DTYPE, "solve: a is float32 and b float64");
    assert_refused(nd_solve(square, vector), ND_ERROR_SHAPE, "solve: shapes [2, 2] and [3]");
    assert_refused(nd_solve(square, NULL), ND_ERROR_INVALID_ARGUMENT, "solve: ");
    assert_refused(nd_lstsq(wide, vector, -1), ND_ERROR_SHAPE, "lstsq: shapes [2, 3] and [3]");
    assert_refused(nd_lstsq(wide, square, NAN), ND_ERROR_INVALID_ARGUMENT, "lstsq: tolerance");
    assert_refused(nd_pinv(wide, INFINITY), ND_ERROR_INVALID_ARGUMENT, "pinv: tolerance");
    assert_refused(nd_matrix_rank(NULL, -1), ND_ERROR_INVALID_ARGUMENT, "matrix_rank: ");
    assert_refused(nd_matrix_norm(wide, (nd_matrix_norm_kind)9, false), ND_ERROR_INVALID_ARGUMENT,
                   "matrix_norm: there is no norm 9");
    nd_tensor *q = NULL;
    assert_int_equal(nd_qr(vector, &q, NULL), ND_ERROR_SHAPE);
    assert_null(q);
    nd_auto nd_tensor *three = nd_zeros(ND_SHAPE(3, 2, 2), ND_F32);
    nd_auto nd_tensor *four = nd_zeros(ND_SHAPE(4, 2, 2), ND_F32);
    assert_refused(nd_solve(three, four), ND_ERROR_SHAPE, "solve: ");
    nd_error_clear();
}

/// Results declined, and norms that keep their axes.
static void test_forms_of_results(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(4, 3, 2), ND_F32, -1, 1);
    nd_tensor *r = NULL, *s = NULL;
    assert_ok(nd_qr(x, NULL, &r));
    assert_ok(nd_svd(x, NULL, &s, NULL));
    assert_ok(nd_svd(x, NULL, NULL, NULL));
    assert_shape(r, 3, (const int64_t[]){4, 2, 2});
    assert_shape(s, 2, (const int64_t[]){4, 2});
    for (int kind = 0; kind < 5; kind++) {
        nd_auto nd_tensor *kept = nd_matrix_norm(x, (nd_matrix_norm_kind)kind, true);
        nd_auto nd_tensor *norm = nd_matrix_norm(x, (nd_matrix_norm_kind)kind, false);
        assert_shape(kept, 3, (const int64_t[]){4, 1, 1});
        assert_shape(norm, 1, (const int64_t[]){4});
    }
    nd_release(r);
    nd_release(s);
}

/// Matrices of another device go to the host and come back, with their history.
static void test_linalg_of_another_device(void **state) {
    (void)state;
    nd_auto nd_tensor *random = random_dense(ND_SHAPE(3, 3), ND_F64, -1, 1);
    nd_auto nd_tensor *here = shifted(random, 4);
    nd_auto nd_tensor *there = nd_to(here, (nd_device){ND_FAKE, 0});
    assert_ok(nd_set_requires_grad(there, true));
    nd_auto nd_tensor *inverse = nd_inv(there);
    assert_int_equal(nd_get_device(inverse).kind, ND_FAKE);
    nd_auto nd_tensor *sum = nd_sum(inverse, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    assert_int_equal(nd_get_device(nd_get_grad(there)).kind, ND_FAKE);
    nd_auto nd_tensor *back = nd_to(inverse, (nd_device){ND_CPU, 0});
    nd_auto nd_tensor *plain = nd_detach(back);
    nd_auto nd_tensor *expected = nd_inv(here);
    assert_true(largest(plain, expected) == 0);
    nd_tensor *u = NULL, *vt = NULL;
    assert_ok(nd_svd(there, &u, NULL, &vt));
    assert_int_equal(nd_get_device(u).kind, ND_FAKE);
    assert_int_equal(nd_get_device(vt).kind, ND_FAKE);
    nd_release(u);
    nd_release(vt);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_matrices_without_full_rank),
        ND_TEST(test_gradients_of_equal_values),
        ND_TEST(test_gradients_of_values_of_any_matrix_and_size),
        ND_TEST(test_gradients_of_singular_vectors_scale),
        ND_TEST(test_ranks_of_the_largest_numbers),
        ND_TEST(test_matrices_of_nothing),
        ND_TEST(test_gradients_of_matrices_of_nothing),
        ND_TEST(test_the_largest_matrices),
        ND_TEST(test_refusals_name_the_matrix),
        ND_TEST(test_refusals_of_operands),
        ND_TEST(test_forms_of_results),
        ND_TEST(test_linalg_of_another_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
