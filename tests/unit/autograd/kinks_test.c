// Gradients where a function has a corner, and of NaN: what PyTorch 2.15 gives, recorded from it.
// tests/reference asks the PyTorch that is installed.
#include "tests/unit/autograd/support.h"

#define COUNT(values) ((int64_t)(sizeof(values) / sizeof(values)[0]))

static const double points[] = {-1, 0, -0.0, 1, NAN, INFINITY, -INFINITY};

static void check(const char *what, const nd_tensor *x, const double *expected) {
    const nd_tensor *grad = nd_get_grad(x);
    assert_handle(grad);
    for (int64_t i = 0; i < nd_get_numel(x); i++) {
        double found = ((const double *)nd_get_data(grad))[i];
        bool near = fabs(found - expected[i]) <= 1e-15 * fabs(expected[i]);
        if (found != expected[i] && !near && !(isnan(found) && isnan(expected[i])))
            fail_msg("%s, element %lld: gradient %g, expected %g", what, (long long)i, found,
                     expected[i]);
    }
}

/// Gradients of the sum of y (consumed).
static void differentiate(nd_tensor *y) {
    nd_auto nd_tensor *result = y, *loss = total(result);
    assert_ok(nd_backward(loss, NULL));
}

static nd_tensor *clip_both(const nd_tensor *x) {
    return nd_clip(x, -1, 1);
}
static nd_tensor *clip_below(const nd_tensor *x) {
    return nd_clip(x, 0, INFINITY);
}
static nd_tensor *clip_above(const nd_tensor *x) {
    return nd_clip(x, -INFINITY, 1);
}
static nd_tensor *clip_crossed(const nd_tensor *x) {
    return nd_clip(x, 1, -1);
}

static void test_one_operand(void **state) {
    (void)state;
    static const struct {
        const char *name;
        nd_tensor *(*function)(const nd_tensor *x);
        double expected[COUNT(points)];
    } cases[] = {
        {"abs", nd_abs, {-1, 0, 0, 1, 0, 1, -1}},
        {"relu", nd_relu, {0, 0, 0, 1, 1, 1, 0}},
        {"clip", clip_both, {0, 1, 1, 0, 0, 0, 0}},
        {"clip from below", clip_below, {0, 0, 0, 1, 0, 1, 0}},
        {"clip from above", clip_above, {1, 1, 1, 0, 0, 0, 1}},
        {"clip with crossed limits", clip_crossed, {0, 0, 0, 0, 0, 0, 0}},
    };
    for (int64_t i = 0; i < COUNT(cases); i++) {
        nd_auto nd_tensor *x = make_leaf(COUNT(points), points);
        differentiate(cases[i].function(x));
        check(cases[i].name, x, cases[i].expected);
    }
}

static void test_two_operands(void **state) {
    (void)state;
    const double a[] = {1, NAN, 1, NAN, 2, 0}, b[] = {1, 1, NAN, NAN, 1, -0.0};
    nd_auto nd_tensor *x = make_leaf(6, a), *y = make_leaf(6, b);
    differentiate(nd_maximum(x, y));
    check("maximum, a", x, (const double[]){0.5, 1, 1, 1, 1, 0.5});
    check("maximum, b", y, (const double[]){0.5, 1, 1, 1, 0, 0.5});
    assert_ok(nd_zero_grad(x));
    assert_ok(nd_zero_grad(y));
    differentiate(nd_minimum(x, y));
    check("minimum, a", x, (const double[]){0.5, 1, 1, 1, 0, 0.5});
    check("minimum, b", y, (const double[]){0.5, 1, 1, 1, 1, 0.5});
}

/// A power of 0 does not change with an exponent from 0 on; below 0 it is infinite, and falls as fast.
static void test_powers_of_zero(void **state) {
    (void)state;
    const double a[] = {0, 0, 0, -0.0, 2, 0}, b[] = {-1, 0, 2, -2, 0, NAN};
    nd_auto nd_tensor *x = make_leaf(6, a), *y = make_leaf(6, b);
    differentiate(nd_pow(x, y));
    check("pow, exponent", y, (const double[]){-INFINITY, 0, 0, -INFINITY, log(2), NAN});
}

/// What does not depend on an operand gives it gradients of 0, not none.
static void test_gradients_that_are_zero(void **state) {
    (void)state;
    const double a[] = {0, 2, INFINITY, NAN}, b[] = {1, -1, 0, NAN};
    nd_auto nd_tensor *x = make_leaf(4, a), *y = make_leaf(4, b);
    differentiate(nd_pow_scalar(x, 0));
    check("pow_scalar", x, (const double[]){0, 0, 0, 0});
    nd_auto nd_tensor *magnitude = nd_detach(x);
    differentiate(nd_copysign(magnitude, y));
    check("copysign, sign", y, (const double[]){0, 0, 0, 0});
}

/// Where both operands of atan2 are 0, the gradients of every order are 0; those beside are what they
/// are. (Of second order PyTorch's are NaN at 0.)
static void test_atan2_of_zeros(void **state) {
    (void)state;
    const double a[] = {0, -0.0, 0, 1, 0, 3}, b[] = {0, 0, -0.0, 0, 2, 4};
    for (int recorded = 0; recorded < 2; recorded++) {
        nd_auto nd_tensor *x = make_leaf(6, a), *y = make_leaf(6, b);
        nd_auto nd_tensor *angle = nd_atan2(x, y), *sum = total(angle);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = recorded;
        assert_ok(nd_backward(sum, &options));
        check("atan2, a", x, (const double[]){0, 0, 0, 0, 0.5, 4.0 / 25});
        check("atan2, b", y, (const double[]){0, 0, 0, -1, 0, -3.0 / 25});
        if (!recorded)
            continue;
        nd_auto nd_tensor *of_x = nd_retain(nd_get_grad(x)), *of_y = nd_retain(nd_get_grad(y));
        assert_ok(nd_zero_grad(x));
        assert_ok(nd_zero_grad(y));
        differentiate(nd_add(of_x, of_y));
        // (a^2 - b^2 - 2 a b) / r^4 and (a^2 - b^2 + 2 a b) / r^4
        check("atan2, second order, a", x, (const double[]){0, 0, 0, 1, -0.25, -31.0 / 625});
        check("atan2, second order, b", y, (const double[]){0, 0, 0, 1, -0.25, 17.0 / 625});
    }
}

/// A limit is no half itself: what rounds to it lies inside.
static void test_limits_between_two_halves(void **state) {
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int tanh = 0; tanh < 2; tanh++)
            for (int recorded = 0; recorded < 2; recorded++) {
                // Next to 0.9 on both sides, and as far beyond -0.9.
                const double inside = bf16 ? 0.8984375 : 0.89990234375;
                const double outside = bf16 ? 0.90234375 : 0.900390625;
                const double at[] = {inside, outside, -inside, -outside};
                nd_auto nd_tensor *wide = make_leaf(4, at);
                nd_auto nd_tensor *x = nd_cast(wide, bf16 ? ND_BF16 : ND_F16);
                nd_auto nd_tensor *y = tanh ? nd_hardtanh(x, -0.9, 0.9) : nd_clip(x, -0.9, 0.9);
                nd_auto nd_tensor *loss = total(y);
                nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
                options.create_graph = recorded;
                assert_ok(nd_backward(loss, &options));
                check(tanh ? "hardtanh" : "clip", wide, (const double[]){1, 0, 1, 0});
                assert_ok(nd_zero_grad(wide));
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_one_operand),    ND_TEST(test_two_operands),
        ND_TEST(test_powers_of_zero), ND_TEST(test_gradients_that_are_zero),
        ND_TEST(test_atan2_of_zeros), ND_TEST(test_limits_between_two_halves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
