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
        if (found != expected[i] && !(isnan(found) && isnan(expected[i])))
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

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_one_operand),
        ND_TEST(test_two_operands),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
