// Linear algebra and its gradients against PyTorch and differences.
#include "tests/unit/ops/matrices.h"
#include "tests/unit/ops/torch_case.h"

/// The parts behind one another, those marked squared.
static nd_tensor *flat(int count, nd_tensor *const *parts, unsigned squared) {
    nd_tensor *flats[3] = {NULL};
    for (int i = 0; i < count; i++) {
        nd_auto nd_tensor *square = squared >> i & 1 ? nd_square(parts[i]) : nd_retain(parts[i]);
        flats[i] = nd_flatten(square, 0);
        nd_release(parts[i]);
    }
    nd_tensor *all = nd_concat((size_t)count, (const nd_tensor *const *)flats, 0);
    for (int i = 0; i < count; i++)
        nd_release(flats[i]);
    return all;
}

// -------------------------------------------------------------------------------------------------
// PyTorch

TORCH_FUNCTION(solve) {
    (void)count, (void)data;
    nd_auto nd_tensor *a = shifted(x[0], 2);
    return nd_solve(a, x[1]);
}

TORCH_FUNCTION(solve_upper) {
    (void)count, (void)data;
    nd_auto nd_tensor *a = shifted(x[0], 2);
    return nd_solve_triangular(a, x[1], true, false);
}
TORCH_FUNCTION(solve_unit_lower) {
    (void)count, (void)data;
    return nd_solve_triangular(x[0], x[1], false, true);
}
TORCH_FUNCTION(inv) {
    (void)count, (void)data;
    nd_auto nd_tensor *a = shifted(x[0], 2);
    return nd_inv(a);
}
TORCH_FUNCTION(matrix_power) {
    (void)count, (void)data;
    return nd_matrix_power(x[0], 5);
}
TORCH_FUNCTION(matrix_power_inverse) {
    (void)count, (void)data;
    nd_auto nd_tensor *a = shifted(x[0], 2);
    return nd_matrix_power(a, -3);
}
TORCH_FUNCTION(lstsq_tall) {
    (void)count, (void)data;
    return nd_lstsq(x[0], x[1], -1);
}
TORCH_FUNCTION(pinv_tall) {
    (void)count, (void)data;
    return nd_pinv(x[0], -1);
}
TORCH_FUNCTION(cholesky) {
    (void)count, (void)data;
    nd_auto nd_tensor *square = product(x[0], x[0], true);
    nd_auto nd_tensor *positive = shifted(square, 1);
    return nd_cholesky(positive);
}
TORCH_FUNCTION(qr_tall) {
    (void)count, (void)data;
    nd_tensor *parts[2];
    return nd_qr(x[0], &parts[0], &parts[1]) == ND_OK ? flat(2, parts, 3) : NULL;
}
static nd_tensor *squares_of_svd(const nd_tensor *x) {
    nd_tensor *parts[3];
    return nd_svd(x, &parts[0], &parts[1], &parts[2]) == ND_OK ? flat(3, parts, 5) : NULL;
}
TORCH_FUNCTION(svd_tall) {
    (void)count, (void)data;
    return squares_of_svd(x[0]);
}
TORCH_FUNCTION(svd_square) {
    (void)count, (void)data;
    nd_auto nd_tensor *a = shifted(x[0], 2);
    return squares_of_svd(a);
}
TORCH_FUNCTION(svdvals) {
    (void)count, (void)data;
    nd_auto nd_tensor *a = shifted(x[0], 2);
    return nd_svdvals(a);
}
TORCH_FUNCTION(eigh) {
    (void)count, (void)data;
    nd_tensor *parts[2];
    return nd_eigh(x[0], &parts[0], &parts[1]) == ND_OK ? flat(2, parts, 2) : NULL;
}
TORCH_FUNCTION(eigvalsh) {
    (void)count, (void)data;
    return nd_eigvalsh(x[0]);
}
TORCH_FUNCTION(det) {
    (void)count, (void)data;
    nd_auto nd_tensor *a = shifted(x[0], 2);
    return nd_det(a);
}
TORCH_FUNCTION(slogdet) {
    (void)count, (void)data;
    nd_auto nd_tensor *a = shifted(x[0], 2);
    nd_tensor *logarithm = NULL;
    return nd_slogdet(a, NULL, &logarithm) == ND_OK ? logarithm : NULL;
}
TORCH_FUNCTION(matrix_norms) {
    (void)count, (void)data;
    nd_tensor *norms[5];
    for (int kind = 0; kind < 5; kind++)
        norms[kind] = nd_matrix_norm(x[0], (nd_matrix_norm_kind)kind, false);
    nd_tensor *all = nd_stack(5, (const nd_tensor *const *)norms, 0);
    for (int kind = 0; kind < 5; kind++)
        nd_release(norms[kind]);
    return all;
}

static void test_linalg_is_pytorchs(void **state) {
    (void)state;
    const torch_case cases[] = {
        TORCH_CASE(solve, 2, {3, {2, 3, 3}}, {2, {3, 2}}),
        TORCH_CASE(solve_upper, 2, {2, {3, 3}}, {3, {2, 3, 2}}),
        TORCH_CASE(solve_unit_lower, 2, {3, {2, 3, 3}}, {2, {3, 2}}),
        TORCH_CASE(inv, 1, {3, {2, 3, 3}}),
        TORCH_CASE(matrix_power, 1, {3, {2, 3, 3}}),
        TORCH_CASE(matrix_power_inverse, 1, {2, {3, 3}}),
        TORCH_CASE(lstsq_tall, 2, {2, {4, 2}}, {2, {4, 3}}),
        TORCH_CASE(pinv_tall, 1, {3, {2, 3, 2}}),
        TORCH_CASE(cholesky, 1, {3, {2, 3, 3}}),
        TORCH_CASE(qr_tall, 1, {3, {2, 3, 2}}),
        TORCH_CASE(svd_tall, 1, {3, {2, 3, 2}}),
        TORCH_CASE(svd_square, 1, {2, {3, 3}}),
        TORCH_CASE(svdvals, 1, {3, {2, 3, 3}}),
        TORCH_CASE(eigh, 1, {3, {2, 3, 3}}),
        TORCH_CASE(eigvalsh, 1, {2, {3, 3}}),
        TORCH_CASE(det, 1, {3, {2, 3, 3}}),
        TORCH_CASE(slogdet, 1, {3, {2, 3, 3}}),
        TORCH_CASE(matrix_norms, 1, {3, {2, 3, 2}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

/// Functions that stand above, of other shapes.
static void test_linalg_is_pytorchs_of_other_shapes(void **state) {
    (void)state;
#define OTHER(name, function, count, ...)                               \
    {                                                                   \
#name, function, torch_##name, COUNT_OF(torch_##name), count, { \
            __VA_ARGS__                                                 \
        }                                                               \
    }
    const torch_case cases[] = {
        OTHER(solve_vector, solve, 2, {2, {3, 3}}, {1, {3}}),
        OTHER(lstsq_wide, lstsq_tall, 2, {2, {2, 4}}, {1, {2}}),
        OTHER(pinv_wide, pinv_tall, 1, {2, {2, 3}}),
        OTHER(qr_wide, qr_tall, 1, {2, {2, 4}}),
        OTHER(svd_wide, svd_tall, 1, {2, {2, 4}}),
    };
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        check_torch_case(&cases[i], false);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_linalg_is_pytorchs),
        ND_TEST(test_linalg_is_pytorchs_of_other_shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
