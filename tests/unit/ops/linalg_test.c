// Linear algebra by what defines a result, on random matrices of many sizes.
#include "tests/unit/ops/matrices.h"
#include "tests/unit/ops/values.h"
#include <nd/autocast.h>
#include <nd/threads.h>

/// x^T x is the identity: its columns are orthonormal.
static void assert_orthonormal(const char *what, const nd_tensor *x) {
    nd_auto nd_tensor *turned = nd_transpose(x, -2, -1);
    nd_auto nd_tensor *square = nd_matmul(turned, x);
    nd_auto nd_tensor *zeros = nd_zeros_like(square);
    nd_auto nd_tensor *identity = shifted(zeros, 1);
    assert_near(what, nd_steal(&square), identity, 1);
}

static void check_qr(const nd_tensor *x) {
    nd_tensor *q = NULL, *r = NULL;
    assert_ok(nd_qr(x, &q, &r));
    assert_orthonormal("q", q);
    assert_near("q r", nd_matmul(q, r), x, largest(x, NULL));
    nd_auto nd_tensor *upper = nd_triu(r, 0);
    assert_true(largest(r, upper) == 0);
    nd_release(q);
    nd_release(r);
}

static void check_svd(const nd_tensor *x) {
    nd_tensor *u = NULL, *s = NULL, *vt = NULL;
    assert_ok(nd_svd(x, &u, &s, &vt));
    assert_orthonormal("u", u);
    nd_auto nd_tensor *v = nd_transpose(vt, -2, -1);
    assert_orthonormal("v", v);
    nd_auto nd_tensor *row = nd_unsqueeze(s, -2);
    nd_auto nd_tensor *scaled = nd_mul(u, row);
    assert_near("u s v^T", nd_matmul(scaled, vt), x, largest(x, NULL));
    int64_t k = nd_get_shape(s)[nd_get_ndim(s) - 1];
    for (int64_t i = 0; i < nd_get_numel(s); i++)
        assert_true(at_flat(s, i) >= 0 && (i % k == 0 || at_flat(s, i) <= at_flat(s, i - 1)));
    assert_near("svdvals", nd_svdvals(x), s, largest(s, NULL));
    nd_release(u);
    nd_release(s);
    nd_release(vt);
}

static void check_square(const nd_tensor *random) {
    double side = (double)nd_get_shape(random)[nd_get_ndim(random) - 1];
    nd_auto nd_tensor *x = shifted(random, 2 * side); // a diagonal that dominates
    nd_auto nd_tensor *inverse = nd_inv(x);
    nd_auto nd_tensor *zeros = nd_zeros_like(x);
    nd_auto nd_tensor *identity = shifted(zeros, 1);
    assert_near("x x^-1", nd_matmul(x, inverse), identity, 1);
    nd_auto nd_tensor *z = nd_solve(x, random);
    assert_near("x z", nd_matmul(x, z), random, 4 * side);
    nd_auto nd_tensor *upper = nd_triu(x, 0);
    nd_auto nd_tensor *t = nd_solve_triangular(x, random, true, false);
    assert_near("triu(x) t", nd_matmul(upper, t), random, 4 * side);

    nd_auto nd_tensor *gram = product(x, x, true);
    nd_auto nd_tensor *l = nd_cholesky(gram);
    assert_near("l l^T", product(l, l, true), gram, largest(gram, NULL));
    nd_auto nd_tensor *lower = nd_tril(l, 0);
    assert_true(largest(l, lower) == 0);

    nd_tensor *values = NULL, *v = NULL;
    assert_ok(nd_eigh(gram, &values, &v));
    assert_orthonormal("eigenvectors", v);
    nd_auto nd_tensor *row = nd_unsqueeze(values, -2);
    nd_auto nd_tensor *stretched = nd_mul(v, row);
    assert_near("x v", nd_matmul(gram, v), stretched, largest(gram, NULL));
    assert_near("eigvalsh", nd_eigvalsh(gram), values, largest(gram, NULL));
    nd_release(values);
    nd_release(v);
}

/// The product of the eigenvalues, and of the diagonal of l twice.
static void check_determinant(const nd_tensor *random) {
    nd_auto nd_tensor *square = product(random, random, true);
    nd_auto nd_tensor *x = shifted(square, 1);
    nd_tensor *sign = NULL, *logarithm = NULL;
    assert_ok(nd_slogdet(x, &sign, &logarithm));
    nd_auto nd_tensor *values = nd_eigvalsh(x);
    nd_auto nd_tensor *logarithms = nd_log(values);
    nd_auto nd_tensor *expected = nd_sum(logarithms, 1, (const int[]){-1}, false);
    double tolerance = nd_get_dtype(x) == ND_F32 ? 1e-3 : 1e-11;
    nd_auto nd_tensor *det = nd_det(x);
    nd_auto nd_tensor *negative = nd_neg(x);
    nd_auto nd_tensor *other = nd_det(negative);
    int64_t n = nd_get_shape(x)[nd_get_ndim(x) - 1];
    for (int64_t i = 0; i < nd_get_numel(sign); i++) {
        assert_true(at_flat(sign, i) == 1);
        assert_close("slogdet", at_flat(logarithm, i), at_flat(expected, i), tolerance, tolerance);
        if (at_flat(logarithm, i) > 80)
            continue; // beyond f32
        double d = at_flat(det, i);
        assert_close("det", log(d), at_flat(logarithm, i), tolerance, tolerance);
        assert_close("det of -x", at_flat(other, i), n % 2 ? -d : d, 0, 0);
    }
    nd_release(sign);
    nd_release(logarithm);
}

static void test_what_defines_a_decomposition(void **state) {
    (void)state;
    static const struct {
        int ndim;
        int64_t shape[4];
    } shapes[] = {
        {2, {1, 1}},   {2, {3, 3}},   {3, {4, 5, 2}},   {2, {2, 5}},   {4, {2, 1, 3, 4}},
        {2, {17, 17}}, {2, {40, 13}}, {3, {3, 13, 40}}, {2, {70, 70}},
    };
    for (size_t s = 0; s < COUNT_OF(shapes); s++)
        for (int dtype = 0; dtype < 2; dtype++)
            for (int how = DENSE; how < LAYOUTS; how++) {
                if (how == EXPANDED && shapes[s].ndim == 2)
                    continue; // rows alike
                nd_auto nd_tensor *x = random_tensor((layout)how, shapes[s].ndim, shapes[s].shape,
                                                     dtype ? ND_F64 : ND_F32, -1, 1);
                check_qr(x);
                check_svd(x);
                check_pinv(x);
                check_determinant(x);
                if (shapes[s].shape[shapes[s].ndim - 1] == shapes[s].shape[shapes[s].ndim - 2])
                    check_square(x);
            }
}

/// A batch is shared between threads, and each matrix is computed as it is alone.
static void test_linalg_has_the_same_bits_on_any_number_of_threads(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_dense(ND_SHAPE(40, 20, 20), ND_F32, -1, 1);
    int threads = nd_get_num_threads();
    assert_ok(nd_set_num_threads(1));
    nd_auto nd_tensor *one = nd_inv(x);
    assert_ok(nd_set_num_threads(3));
    nd_auto nd_tensor *three = nd_inv(x);
    nd_auto nd_tensor *row = nd_select(x, 17, 0);
    nd_auto nd_tensor *alone = nd_inv(row);
    assert_memory_equal(nd_get_data(one), nd_get_data(three), 40 * 400 * sizeof(float));
    assert_memory_equal((float *)nd_get_data(one) + (ptrdiff_t)17 * 400, nd_get_data(alone),
                        400 * sizeof(float));
    assert_ok(nd_set_num_threads(threads));
}

/// Powers of integers wrap as products do, 0 is the identity of a batch, and no result is the operand.
static void test_powers_of_matrices(void **state) {
    (void)state;
    const int64_t step[] = {1, 1, 1, 0}; // of the sequence of Fibonacci
    nd_auto nd_tensor *x = nd_from_data(step, ND_SHAPE(2, 2), ND_I64);
    int64_t before = 0, now = 1;
    for (int power = 1; power < 120; power++) {
        nd_auto nd_tensor *y = nd_matrix_power(x, power);
        assert_int_equal(nd_get_dtype(y), ND_I64);
        assert_ptr_not_equal(y, x);
        assert_true(((const int64_t *)nd_get_data(y))[1] == now);
        int64_t next = (int64_t)((uint64_t)before + (uint64_t)now);
        before = now;
        now = next;
    }
    nd_auto nd_tensor *batch = nd_ones(ND_SHAPE(3, 2, 2), ND_BF16);
    nd_auto nd_tensor *identity = nd_matrix_power(batch, 0);
    assert_shape(identity, ND_SHAPE(3, 2, 2));
    assert_int_equal(nd_get_dtype(identity), ND_BF16);
    for (int64_t i = 0; i < 12; i++)
        assert_true(at_flat(identity, i) == (i % 4 == 0 || i % 4 == 3));
    nd_auto nd_tensor *none = nd_zeros(ND_SHAPE(2, 0, 0), ND_F32);
    nd_auto nd_tensor *of_none = nd_matrix_power(none, 5);
    assert_shape(of_none, ND_SHAPE(2, 0, 0));
}

/// The power 0 has a history as all others, and gradients of 0 also where x is infinite.
static void test_the_power_0_has_a_gradient(void **state) {
    (void)state;
    nd_auto nd_tensor *x =
        nd_from_data((const double[]){1, INFINITY, NAN, 4}, ND_SHAPE(2, 2), ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *identity = nd_matrix_power(x, 0), *sum = nd_sum(identity, 0, NULL, false);
    for (int64_t i = 0; i < 4; i++)
        assert_true(at_flat(identity, i) == (i % 3 == 0));
    assert_ok(nd_backward(sum, NULL));
    assert_true(largest(nd_get_grad(x), NULL) == 0);
}

/// nd_autocast lowers what it names, and linear algebra is none of that.
static void test_linalg_in_autocast_is_as_outside(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_randn(nd_key_new(3), ND_SHAPE(3, 7), ND_F32);
    nd_auto nd_tensor *square = nd_slice(x, 0, 3, 1, 1);
    nd_tensor *r = NULL, *r_inside = NULL;
    assert_ok(nd_qr(x, NULL, &r));
    nd_auto nd_tensor *power = nd_matrix_power(square, 5), *inside = NULL;
    nd_autocast(ND_BF16) {
        assert_ok(nd_qr(x, NULL, &r_inside));
        inside = nd_matrix_power(square, 5);
    }
    assert_int_equal(nd_get_dtype(inside), ND_F32);
    assert_true(largest(inside, power) == 0);
    assert_int_equal(nd_get_dtype(r_inside), ND_F32);
    assert_true(largest(r_inside, r) == 0);
    nd_release(r);
    nd_release(r_inside);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_what_defines_a_decomposition),
        ND_TEST(test_linalg_has_the_same_bits_on_any_number_of_threads),
        ND_TEST(test_powers_of_matrices),
        ND_TEST(test_the_power_0_has_a_gradient),
        ND_TEST(test_linalg_in_autocast_is_as_outside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
