// Linear algebra by cuSOLVER and cuBLAS, where they are found, beside that of the CPU: results, gradients
// and gradients of gradients; who made them, what is refused, and when it fails.
//
// tests/cudart/planted/ holds bugs that this test must notice.
#include "tests/cudart/graphs.h"
#include "tests/cudart/results.h"
#include <nd/autocast.h>
#include <nd/linalg.h>
#include <nd/stream.h>

typedef nd_tensor *matrix_function(const nd_tensor *x);

// ------------------------------------------------------------------------------------------------
// functions of matrices whose results have one meaning: of vectors with free signs, what does not depend
// on these

static nd_tensor *turned(const nd_tensor *x) {
    return nd_transpose(x, -2, -1);
}

/// x x^T + 1.
static nd_tensor *positive(const nd_tensor *x) {
    nd_auto nd_tensor *t = turned(x), *square = nd_matmul(x, t);
    nd_auto nd_tensor *zeros = nd_zeros_like(square);
    const int64_t n = nd_get_shape(square)[nd_get_ndim(square) - 1];
    nd_auto nd_tensor *eye = nd_eye(n, nd_get_dtype(x)), *there = nd_to(eye, nd_get_device(x));
    nd_auto nd_tensor *one = nd_add(zeros, there);
    return nd_add(square, one);
}

/// The first columns of x.
static nd_tensor *columns(const nd_tensor *x, int64_t count) {
    return nd_slice(x, 0, count, 1, -1);
}

static nd_tensor *solve(const nd_tensor *x) {
    nd_auto nd_tensor *a = positive(x), *b = columns(x, 3);
    return nd_solve(a, b);
}

static nd_tensor *solve_vector(const nd_tensor *x) {
    nd_auto nd_tensor *a = positive(x), *first = nd_select(x, 0, -1);
    nd_auto nd_tensor *b = nd_get_ndim(first) > 1 ? nd_unsqueeze(first, -1) : nd_retain(first);
    return nd_solve(a, b);
}

static nd_tensor *solve_upper(const nd_tensor *x) {
    nd_auto nd_tensor *a = positive(x), *b = columns(x, 2);
    return nd_solve_triangular(a, b, true, false);
}

static nd_tensor *solve_lower_unit(const nd_tensor *x) {
    nd_auto nd_tensor *a = positive(x), *small = nd_mul_scalar(a, 0.1), *b = columns(x, 4);
    return nd_solve_triangular(small, b, false, true);
}

static nd_tensor *inverse(const nd_tensor *x) {
    nd_auto nd_tensor *a = positive(x);
    return nd_inv(a);
}

static nd_tensor *cholesky(const nd_tensor *x) {
    nd_auto nd_tensor *a = positive(x);
    return nd_cholesky(a);
}

static nd_tensor *logarithm_of_det(const nd_tensor *x) {
    nd_auto nd_tensor *a = columns(x, nd_get_shape(x)[nd_get_ndim(x) - 2]);
    nd_tensor *logarithm = NULL;
    return nd_slogdet(a, NULL, &logarithm) == ND_OK ? logarithm : NULL;
}

static nd_tensor *det(const nd_tensor *x) {
    nd_auto nd_tensor *a = columns(x, nd_get_shape(x)[nd_get_ndim(x) - 2]);
    nd_auto nd_tensor *small = nd_mul_scalar(a, 0.5);
    return nd_det(small);
}

/// q q^T b + r^T r.
static nd_tensor *qr(const nd_tensor *x) {
    nd_tensor *made_q = NULL, *made_r = NULL;
    if (nd_qr(x, &made_q, &made_r) != ND_OK)
        return NULL;
    nd_auto nd_tensor *q = made_q, *r = made_r, *qt = turned(q), *rt = turned(r);
    nd_auto nd_tensor *space = nd_matmul(q, qt), *square = nd_matmul(rt, r);
    nd_auto nd_tensor *b = columns(x, 2), *near = nd_matmul(space, b);
    nd_auto nd_tensor *sum = nd_sum(near, 0, NULL, false);
    return nd_add(square, sum);
}

static nd_tensor *tall_qr(const nd_tensor *x) {
    nd_auto nd_tensor *t = turned(x);
    return qr(t);
}

/// u s^2 v^T.
static nd_tensor *svd(const nd_tensor *x) {
    nd_tensor *made_u = NULL, *made_s = NULL, *made_vt = NULL;
    if (nd_svd(x, &made_u, &made_s, &made_vt) != ND_OK)
        return NULL;
    nd_auto nd_tensor *u = made_u, *s = made_s, *vt = made_vt, *square = nd_square(s);
    nd_auto nd_tensor *row = nd_unsqueeze(square, -2), *us = nd_mul(u, row);
    return nd_matmul(us, vt);
}

static nd_tensor *tall_svd(const nd_tensor *x) {
    nd_auto nd_tensor *t = turned(x);
    return svd(t);
}

static nd_tensor *tall_values(const nd_tensor *x) {
    nd_auto nd_tensor *t = turned(x);
    return nd_svdvals(t);
}

/// v s^3 v^T.
static nd_tensor *eigh(const nd_tensor *x) {
    nd_auto nd_tensor *a = positive(x);
    nd_tensor *made_s = NULL, *made_v = NULL;
    if (nd_eigh(a, &made_s, &made_v) != ND_OK)
        return NULL;
    nd_auto nd_tensor *s = made_s, *v = made_v, *square = nd_square(s), *cube = nd_mul(square, s);
    nd_auto nd_tensor *row = nd_unsqueeze(cube, -2), *vs = nd_mul(v, row), *vt = turned(v);
    return nd_matmul(vs, vt);
}

static nd_tensor *eigenvalues(const nd_tensor *x) {
    nd_auto nd_tensor *a = positive(x);
    return nd_eigvalsh(a);
}

static nd_tensor *pinv(const nd_tensor *x) {
    return nd_pinv(x, -1);
}

static nd_tensor *tall_pinv(const nd_tensor *x) {
    nd_auto nd_tensor *t = turned(x);
    return nd_pinv(t, 0.3); // without the smallest
}

static nd_tensor *lstsq(const nd_tensor *x) {
    nd_auto nd_tensor *t = turned(x), *b = nd_square(t);
    return nd_lstsq(t, b, -1);
}

static nd_tensor *wide_lstsq(const nd_tensor *x) {
    nd_auto nd_tensor *b = columns(x, 2);
    return nd_lstsq(x, b, -1);
}

static nd_tensor *nuclear(const nd_tensor *x) {
    return nd_matrix_norm(x, ND_MATRIX_NORM_NUCLEAR, true);
}

static const struct function {
    const char *name;
    matrix_function *f;
    int orders; ///< whose results are compared
} functions[] = {
    {"solve", solve, 3},
    {"solve_vector", solve_vector, 3},
    {"solve_upper", solve_upper, 3},
    {"solve_lower_unit", solve_lower_unit, 3},
    {"inv", inverse, 3},
    {"cholesky", cholesky, 3},
    {"slogdet", logarithm_of_det, 3},
    {"det", det, 3},
    {"qr", qr, 2},
    {"tall_qr", tall_qr, 2},
    {"svd", svd, 2},
    {"tall_svd", tall_svd, 2},
    {"svdvals", nd_svdvals, 2},
    {"tall_svdvals", tall_values, 2},
    {"eigh", eigh, 2},
    {"eigvalsh", eigenvalues, 2},
    {"pinv", pinv, 3},
    {"tall_pinv", tall_pinv, 3},
    {"lstsq", lstsq, 3},
    {"wide_lstsq", wide_lstsq, 3},
    {"nuclear", nuclear, 2},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

// ------------------------------------------------------------------------------------------------
// comparing

/// Random, on a device, not contiguous where it is asked for.
static nd_tensor *matrices_on(nd_device device, nd_dtype dtype, int ndim, const int64_t *shape,
                              bool in_columns) {
    int64_t drawn_shape[ND_MAX_DIMS];
    for (int i = 0; i < ndim; i++)
        drawn_shape[i] = shape[i];
    if (in_columns) {
        drawn_shape[ndim - 1] = shape[ndim - 2];
        drawn_shape[ndim - 2] = shape[ndim - 1];
    }
    nd_auto nd_tensor *drawn = nd_randn(nd_key_new(11), ndim, drawn_shape, ND_F64);
    nd_auto nd_tensor *seen = in_columns ? turned(drawn) : nd_retain(drawn);
    nd_auto nd_tensor *dense = nd_clone(seen);
    nd_auto nd_tensor *narrow = nd_cast(in_columns ? drawn : dense, dtype);
    nd_auto nd_tensor *there = nd_to(narrow, device);
    nd_tensor *x = in_columns ? turned(there) : nd_retain(there);
    assert_handle(x);
    assert_ok(nd_set_requires_grad(x, true));
    return x;
}

/// The function of x, the gradient of the sum of its squares, and that of the sum of that one's squares.
static void compute(const struct function *of, const nd_tensor *x, nd_tensor **ret_results) {
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = of->orders > 2;
    ret_results[0] = of->f(x);
    if (!ret_results[0])
        fail_msg("%s: %s", of->name, nd_error_get_message());
    nd_auto nd_tensor *square = nd_square(ret_results[0]);
    nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
    assert_ok(nd_grad(sum, 1, &x, &options, &ret_results[1]));
    if (of->orders < 3)
        return;
    nd_auto nd_tensor *again = nd_square(ret_results[1]);
    nd_auto nd_tensor *total = nd_sum(again, 0, NULL, false);
    assert_ok(nd_grad(total, 1, &x, NULL, &ret_results[2]));
}

/// On the device and on the CPU; returns how many pieces of work the libraries did.
static int check(const struct function *of, nd_dtype dtype, int ndim, const int64_t *shape,
                 bool in_columns) {
    nd_tensor *there = matrices_on(cuda(0), dtype, ndim, shape, in_columns);
    nd_tensor *here = matrices_on(cpu, dtype, ndim, shape, in_columns);
    nd_tensor *got[RESULTS] = {NULL}, *expected[RESULTS] = {NULL};
    const uint64_t before = statistics().libraries;
    compute(of, there, got);
    const int queued = (int)(statistics().libraries - before);
    compute(of, here, expected);
    assert_true(distance(there, here) == 0); // it was read alone
    for (int i = 0; i < of->orders; i++) {
        assert_alike(of->name, i, got[i], expected[i], dtype == ND_F64 ? 1e-9 : 3e-3);
        nd_release(got[i]);
        nd_release(expected[i]);
    }
    nd_release(there);
    nd_release(here);
    assert_nothing_left_on_devices();
    return queued;
}

static void check_all(void) {
    static const nd_dtype dtypes[] = {ND_F64, ND_F32};
    static const int64_t shapes[][4] = {{5, 9}, {1, 3, 5, 9}, {2, 3, 4, 6}};
    for (int which = 0; which < FUNCTIONS; which++)
        for (int i = 0; i < 2; i++)
            for (int s = 0; s < 3; s++)
                for (int in_columns = 0; in_columns < 2; in_columns++)
                    (void)check(&functions[which], dtypes[i], s == 0 ? 2 : 4, shapes[s],
                                in_columns != 0);
}

// ------------------------------------------------------------------------------------------------
// tests

static void test_functions_of_matrices(void **state) {
    (void)state;
    cudart_set_seed(0);
    check_all();
}

/// The device's own work, but for many small matrices.
static void test_who_computes(void **state) {
    (void)state;
    const int64_t few[] = {3, 6, 7}, many[] = {8, 6, 7};
    for (int which = 0; which < FUNCTIONS; which++) {
        assert_true(check(&functions[which], ND_F64, 3, few, false) > 0);
        nd_auto nd_tensor *x = matrices_on(cuda(0), ND_F64, 3, many, false);
        nd_auto nd_tensor *here = matrices_on(cpu, ND_F64, 3, many, false);
        nd_auto nd_tensor *y = functions[which].f(x), *expected = functions[which].f(here);
        assert_true(distance(y, expected) < 1e-9);
    }
    nd_auto nd_tensor *large = matrices_on(cuda(0), ND_F64, 3, (const int64_t[]){8, 64, 64}, false);
    nd_auto nd_tensor *here = matrices_on(cpu, ND_F64, 3, (const int64_t[]){8, 64, 64}, false);
    const uint64_t before = statistics().libraries;
    nd_auto nd_tensor *s = nd_det(large), *expected = nd_det(here);
    assert_true(statistics().libraries - before == 8);
    assert_true(distance(s, expected) < 1e-10);
}

/// Seeds of the runtime's scheduler: what is read before it is there would be something else.
static void test_other_orders(void **state) {
    (void)state;
    for (unsigned seed = 1; seed <= SEEDS; seed++) {
        cudart_set_seed(seed);
        nd_stream *streams[] = {nd_stream_new(cuda(0)), nd_stream_new(cuda(0))};
        for (int which = 0; which < FUNCTIONS; which++)
            nd_with_stream(streams[which % 2])
                check(&functions[which], ND_F64, 3, (const int64_t[]){2, 4, 6}, false);
        nd_release(streams[0]);
        nd_release(streams[1]);
    }
}

/// A matrix on the device, from numbers.
static nd_tensor *matrices_of(const double *numbers, int ndim, const int64_t *shape) {
    nd_auto nd_tensor *here = nd_from_data(numbers, ndim, shape, ND_F64);
    return nd_to(here, cuda(0));
}

static void assert_says(const char *message) {
    assert_int_equal(nd_error_get_status(), ND_ERROR_INVALID_ARGUMENT);
    assert_string_equal(nd_error_get_message(), message);
    nd_error_clear();
}

/// What has no result is told as the host tells it.
static void test_refusals(void **state) {
    (void)state;
    const double two[] = {1, 2, 3, 4, 1, 2, 2, 4}, not_a_number[] = {1, 0, 0, NAN};
    nd_auto nd_tensor *x = matrices_of(two, 3, (const int64_t[]){2, 2, 2});
    nd_auto nd_tensor *odd = matrices_of(not_a_number, 2, (const int64_t[]){2, 2});
    nd_auto nd_tensor *ones = nd_ones_like(x);
    assert_null(nd_solve(x, ones));
    assert_says("solve: a is singular: pivot 2 is 0 (matrix 1 of 2)");
    assert_null(nd_inv(x));
    assert_says("inv: x is singular: pivot 2 is 0 (matrix 1 of 2)");
    assert_null(nd_cholesky(x));
    assert_says(
        "cholesky: x is not positive definite: leading minor 2 is not positive (matrix 0 of 2)");
    nd_auto nd_tensor *strict = nd_tril(x, -1);
    assert_null(nd_solve_triangular(strict, ones, false, false));
    assert_says("solve_triangular: a is singular: pivot 1 is 0 (matrix 0 of 2)");
    nd_auto nd_tensor *unit = nd_solve_triangular(strict, ones, false, true);
    assert_handle(unit);
    assert_null(nd_svdvals(odd));
    assert_says("svdvals: an operand has an infinity or NaN");
    assert_null(nd_eigvalsh(odd));
    assert_says("eigvalsh: an operand has an infinity or NaN");
    assert_null(nd_pinv(odd, -1));
    assert_says("pinv: an operand has an infinity or NaN");
    nd_auto nd_tensor *first = nd_select(x, 0, 0);
    assert_null(nd_lstsq(first, odd, -1));
    assert_says("lstsq: an operand has an infinity or NaN");
    nd_auto nd_tensor *zero = nd_det(strict);
    assert_true(sum_of(zero) == 0);
}

/// The product of the pivots overflows, or is 0, on its way to a number.
static void test_determinants_at_the_ends_of_the_range(void **state) {
    (void)state;
    static const double diagonals[][3] = {
        {1e200, 1e200, 1e-300}, {-1e-200, 1e-200, 1e300}, {1e-160, 3e-160, 1e250}};
    static const double expected[] = {1e100, -1e-100, 3e-70};
    double values[3 * 9] = {0};
    for (int i = 0; i < 3; i++)
        for (int k = 0; k < 3; k++)
            values[9 * i + 4 * k] = diagonals[i][k];
    nd_auto nd_tensor *here = nd_from_data(values, ND_SHAPE(3, 3, 3), ND_F64);
    nd_auto nd_tensor *x = nd_to(here, cuda(0)), *det = nd_det(x);
    nd_auto nd_tensor *back = nd_to(det, cpu);
    for (int i = 0; i < 3; i++)
        assert_true(fabs(((const double *)nd_get_data(back))[i] / expected[i] - 1) < 1e-12);
}

/// The same numbers, those that are none too, or the same words.
static void assert_same_outcome(const char *what, matrix_function *f, const nd_tensor *there,
                                const nd_tensor *here) {
    char said[512] = "";
    nd_auto nd_tensor *y = f(there);
    if (!y)
        snprintf(said, sizeof said, "%s", nd_error_get_message());
    nd_auto nd_tensor *expected = f(here);
    if (!y || !expected) {
        if (y || expected || strcmp(said, nd_error_get_message()) != 0)
            fail_msg("%s: \"%s\" and \"%s\"", what, said, nd_error_get_message());
        nd_error_clear();
        return;
    }
    nd_auto nd_tensor *near = nd_to(y, cpu), *a = nd_cast(near, ND_F64);
    nd_auto nd_tensor *b = nd_cast(expected, ND_F64);
    for (int64_t i = 0; i < nd_get_numel(a); i++) {
        const double x = ((const double *)nd_get_data(a))[i], z = ((double *)nd_get_data(b))[i];
        if (!(x == z || fabs(x - z) < 1e-6 || (isnan(x) && isnan(z))))
            fail_msg("%s: element %d is %g, not %g", what, (int)i, x, z);
    }
}

static nd_tensor *solve_ones(const nd_tensor *x) {
    nd_auto nd_tensor *ones = nd_ones_like(x);
    return nd_solve(x, ones);
}

static nd_tensor *sign(const nd_tensor *x) {
    nd_tensor *of_det = NULL;
    return nd_slogdet(x, &of_det, NULL) == ND_OK ? of_det : NULL;
}

static nd_tensor *logarithm(const nd_tensor *x) {
    nd_tensor *of_det = NULL;
    return nd_slogdet(x, NULL, &of_det) == ND_OK ? of_det : NULL;
}

static nd_tensor *triangle_of_qr(const nd_tensor *x) {
    nd_tensor *r = NULL;
    return nd_qr(x, NULL, &r) == ND_OK ? r : NULL;
}

/// Pivots that are 0, and what is no number: libraries of devices make of them what they like.
static void test_singular_and_not_finite(void **state) {
    (void)state;
    static const double matrices[][9] = {{0},
                                         {1, 1, 1, 1, 1, 1, 1, 1, 1},
                                         {0, 1, 0, 0, 0, 2, 0, 0, 3},
                                         {1, 2, 3, 2, 4, 6, 1, 0, 1},
                                         {0, 0, 1, 0, 1, 0, 1, 0, 0}, // only exchanged
                                         {1, 0, 0, 0, NAN, 0, 0, 0, 1},
                                         {NAN, 1, 1, 1, 1, 1, 1, 1, INFINITY},
                                         {2, 1, 0, 1, -INFINITY, 1, 0, 1, 2}};
    static const struct {
        const char *name;
        matrix_function *f;
    } tried[] = {{"det", nd_det},       {"sign", sign},        {"logarithm", logarithm},
                 {"inv", nd_inv},       {"solve", solve_ones}, {"cholesky", nd_cholesky},
                 {"qr", triangle_of_qr}};
    for (size_t m = 0; m < sizeof matrices / sizeof *matrices; m++)
        for (int dtype = 0; dtype < 2; dtype++) {
            nd_auto nd_tensor *wide = nd_from_data(matrices[m], 2, (int64_t[]){3, 3}, ND_F64);
            nd_auto nd_tensor *here = nd_cast(wide, dtype ? ND_F64 : ND_F32);
            nd_auto nd_tensor *there = nd_to(here, cuda(0));
            for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
                char what[64];
                snprintf(what, sizeof what, "%s of matrix %d", tried[i].name, (int)m);
                assert_same_outcome(what, tried[i].f, there, here);
            }
        }
}

/// Where an iteration does not end.
static void test_no_convergence(void **state) {
    (void)state;
    nd_auto nd_tensor *x = matrices_on(cuda(0), ND_F32, 2, (const int64_t[]){5, 5}, false);
    setenv("ND_CUDART_CUSOLVER", "104", 1);
    nd_auto nd_tensor *s = nd_svdvals(x);
    unsetenv("ND_CUDART_CUSOLVER");
    assert_null(s);
    assert_says("svdvals: the iteration did not converge");
}

static void check_failure(const char *asked, nd_status expected) {
    nd_auto nd_tensor *x = matrices_on(cuda(0), ND_F32, 2, (const int64_t[]){5, 5}, false);
    setenv("ND_CUDART_CUSOLVER", asked, 1);
    nd_auto nd_tensor *y = nd_inv(x);
    unsetenv("ND_CUDART_CUSOLVER");
    assert_true(expected == ND_OK ? y != NULL : !y && nd_error_get_status() == expected);
    if (expected == ND_ERROR_DEVICE)
        assert_string_equal(nd_error_get_message(),
                            "inv: the kernel for float32 on cuda:0 failed with ND_ERROR_DEVICE");
    else if (expected != ND_OK)
        assert_int_equal(strncmp(nd_error_get_message(), "inv: ", 5), 0);
    nd_error_clear();
    nd_auto nd_tensor *after = nd_inv(x);
    assert_handle(after);
}

static void test_failures_are_told(void **state) {
    (void)state;
    check_failure("100", ND_OK); // refused: the host serves
    check_failure("102", ND_OK);
    check_failure("101", ND_ERROR_OUT_OF_MEMORY);
    check_failure("103", ND_ERROR_DEVICE);
    assert_nothing_left_on_devices();
}

static int compute_without(void) {
    for (int which = 0; which < FUNCTIONS; which++)
        (void)check(&functions[which], ND_F64, 2, (const int64_t[]){5, 9}, which % 2 != 0);
    return 0;
}

/// Where a library is missing or cannot begin, the host serves.
static void test_without_libraries(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"ND_CUSOLVER", "/nonexistent/libcusolver.so"},
        {"ND_CUSOLVER", "libm.so.6"},
        {"ND_CUDART_CUSOLVER", "1007"},
        {"ND_CUBLAS", "/nonexistent/libcublas.so"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_succeeds_with("compute_without", cases[i][0], cases[i][1]);
}

/// What is made of products of ndarc's own rounds no operands to TF32.
static void test_tf32_is_not_for_linear_algebra(void **state) {
    (void)state;
    matrix_function *const made[] = {pinv, tall_pinv, wide_lstsq};
    nd_auto nd_tensor *x = matrices_on(cuda(0), ND_F32, 2, (const int64_t[]){5, 9}, false);
    for (int which = 0; which < 3; which++) {
        nd_auto nd_tensor *exact = made[which](x), *near = nd_to(exact, cpu);
        nd_set_tf32(true);
        nd_auto nd_tensor *y = made[which](x);
        nd_set_tf32(false);
        assert_true(distance(y, near) == 0);
    }
    nd_tensor *r = NULL, *other = NULL; // of more columns than rows
    assert_ok(nd_qr(x, NULL, &r));
    nd_set_tf32(true);
    assert_ok(nd_qr(x, NULL, &other));
    nd_auto nd_tensor *t = turned(x), *product = nd_matmul(x, t);
    nd_set_tf32(false);
    nd_auto nd_tensor *near = nd_to(r, cpu), *exact = nd_matmul(x, t);
    nd_auto nd_tensor *exact_near = nd_to(exact, cpu);
    assert_true(distance(other, near) == 0);
    assert_true(distance(product, exact_near) > 0); // which TF32 is for
    nd_release(r);
    nd_release(other);
}

/// Nothing at all, and matrices of nothing.
static void test_what_is_empty(void **state) {
    (void)state;
    nd_auto nd_tensor *none = matrices_on(cuda(0), ND_F64, 3, (const int64_t[]){0, 3, 3}, false);
    nd_auto nd_tensor *inverse_of_none = nd_inv(none);
    assert_int_equal(nd_get_numel(inverse_of_none), 0);
    nd_auto nd_tensor *no_rows = matrices_on(cuda(0), ND_F64, 2, (const int64_t[]){0, 0}, false);
    nd_auto nd_tensor *one = nd_det(no_rows), *nothing = nd_cholesky(no_rows);
    assert_true(nd_get_item(one) == 1);
    assert_int_equal(nd_get_numel(nothing), 0);
}

int main(int argc, char **argv) {
    static const role roles[] = {{"compute_without", compute_without}, {NULL, NULL}};
    int status;
    if (role_asked(roles, argc, argv, &status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_functions_of_matrices),
        ND_TEST(test_who_computes),
        ND_TEST(test_other_orders),
        ND_TEST(test_refusals),
        ND_TEST(test_determinants_at_the_ends_of_the_range),
        ND_TEST(test_no_convergence),
        ND_TEST(test_failures_are_told),
        ND_TEST(test_without_libraries),
        ND_TEST(test_what_is_empty),
        ND_TEST(test_singular_and_not_finite),
        ND_TEST(test_tf32_is_not_for_linear_algebra),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
