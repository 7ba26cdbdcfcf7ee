// Gradients of large and small operands: what lies between the operand and its slope, such as a square,
// may be more than the dtype holds where the slope is not. Held against the slope in long double, with
// the backward pass recorded and in one kernel, in every dtype of floats.
#include "tests/unit/autograd/support.h"

#define COUNT(values) (sizeof(values) / sizeof(values)[0])

typedef nd_tensor *(*function)(const nd_tensor *a, const nd_tensor *b);
typedef long double (*slope)(long double a, long double b);

#define ONE_OPERAND(name)                                                  \
    static nd_tensor *run_##name(const nd_tensor *a, const nd_tensor *b) { \
        (void)b;                                                           \
        return nd_##name(a);                                               \
    }
#define SLOPE(name, expression)                                     \
    static long double slope_##name(long double a, long double b) { \
        (void)a, (void)b;                                           \
        return expression;                                          \
    }
ONE_OPERAND(log2)
ONE_OPERAND(log10)
ONE_OPERAND(rsqrt)
ONE_OPERAND(reciprocal)
ONE_OPERAND(hardswish)
ONE_OPERAND(atan)
ONE_OPERAND(asinh)
ONE_OPERAND(acosh)
ONE_OPERAND(softsign)
ONE_OPERAND(gelu_tanh)
SLOPE(log2, 1 / (a * logl(2)))
SLOPE(log10, 1 / (a * logl(10)))
SLOPE(rsqrt, -0.5L / (a * sqrtl(a)))
SLOPE(atan, 1 / (1 + a * a))
SLOPE(asinh, 1 / sqrtl(a * a + 1))
SLOPE(acosh, 1 / sqrtl((a - 1) * (a + 1)))
SLOPE(softsign, 1 / ((1 + fabsl(a)) * (1 + fabsl(a))))
SLOPE(gelu_tanh, a > 0) // far from 0
SLOPE(atan2_a, b / (a * a + b * b))
SLOPE(atan2_b, -a / (a * a + b * b))
SLOPE(pow_a, b == 0 ? 0 : b * powl(a, b - 1))

typedef struct magnitude_case {
    const char *name;
    function run;
    slope of_a, of_b; ///< of_b NULL: one operand
    double a, b;
} magnitude_case;

static const magnitude_case cases[] = {
    {"log2", run_log2, slope_log2, NULL, 6e4, 0},
    {"log2", run_log2, slope_log2, NULL, 1e38, 0},
    {"log2", run_log2, slope_log2, NULL, 3e-5, 0},
    {"log10", run_log10, slope_log10, NULL, 4e4, 0},
    {"log10", run_log10, slope_log10, NULL, 2e38, 0},
    {"log10", run_log10, slope_log10, NULL, 1e-5, 0},
    {"rsqrt", run_rsqrt, slope_rsqrt, NULL, 4.5e-4, 0},
    {"rsqrt", run_rsqrt, slope_rsqrt, NULL, 1.5e-26, 0},
    {"atan", run_atan, slope_atan, NULL, 300, 0},
    {"atan", run_atan, slope_atan, NULL, -1e18, 0},
    {"asinh", run_asinh, slope_asinh, NULL, -300, 0},
    {"asinh", run_asinh, slope_asinh, NULL, 3e4, 0},
    {"asinh", run_asinh, slope_asinh, NULL, 1e25, 0},
    {"asinh", run_asinh, slope_asinh, NULL, 1e200, 0},
    {"acosh", run_acosh, slope_acosh, NULL, 1.0625, 0},
    {"acosh", run_acosh, slope_acosh, NULL, 300, 0},
    {"acosh", run_acosh, slope_acosh, NULL, 3e4, 0},
    {"acosh", run_acosh, slope_acosh, NULL, 1e25, 0},
    {"acosh", run_acosh, slope_acosh, NULL, 1e200, 0},
    {"softsign", run_softsign, slope_softsign, NULL, 300, 0},
    {"softsign", run_softsign, slope_softsign, NULL, -1e18, 0},
    {"gelu_tanh", run_gelu_tanh, slope_gelu_tanh, NULL, 31, 0},
    {"gelu_tanh", run_gelu_tanh, slope_gelu_tanh, NULL, -33, 0},
    {"gelu_tanh", run_gelu_tanh, slope_gelu_tanh, NULL, 3e3, 0},
    {"gelu_tanh", run_gelu_tanh, slope_gelu_tanh, NULL, -6e4, 0},
    {"gelu_tanh", run_gelu_tanh, slope_gelu_tanh, NULL, 1e17, 0},
    {"gelu_tanh", run_gelu_tanh, slope_gelu_tanh, NULL, -1e25, 0},
    {"gelu_tanh", run_gelu_tanh, slope_gelu_tanh, NULL, 1e300, 0},
    {"gelu_tanh", run_gelu_tanh, slope_gelu_tanh, NULL, INFINITY, 0},
    {"atan2", nd_atan2, slope_atan2_a, slope_atan2_b, -58, -788},
    {"atan2", nd_atan2, slope_atan2_a, slope_atan2_b, 300, 3e4},
    {"atan2", nd_atan2, slope_atan2_a, slope_atan2_b, 2e-4, 1e-4},
    {"atan2", nd_atan2, slope_atan2_a, slope_atan2_b, 1e25, 3e25},
    {"atan2", nd_atan2, slope_atan2_a, slope_atan2_b, 1e-25, -1e-25},
    {"atan2", nd_atan2, slope_atan2_a, slope_atan2_b, 0, 1e-25},
    {"atan2", nd_atan2, slope_atan2_a, slope_atan2_b, 1e-200, 1e-200},
    {"atan2", nd_atan2, slope_atan2_a, slope_atan2_b, 1e200, 2e200},
    {"pow", nd_pow, slope_pow_a, NULL, 1e-5, 0},
    {"pow", nd_pow, slope_pow_a, NULL, 1e-310, 0},
    {"pow", nd_pow, slope_pow_a, NULL, NAN, 0},
};

/// Whether the dtype holds a number to its full precision, or it is 0, an infinity or NaN for all.
static bool holds(nd_dtype dtype, double value) {
    if (value == 0 || !isfinite(value))
        return true;
    double largest = nd_dtype_get_max(dtype).value.f64;
    return fabs(value) >= nd_dtype_get_smallest_normal(dtype) && fabs(value) <= largest;
}

static void check_slope(const magnitude_case *c, const nd_tensor *gradient, long double expected,
                        bool recorded) {
    nd_dtype dtype = nd_get_dtype(gradient);
    double found = nd_get_item(gradient), step = nd_dtype_get_epsilon(dtype);
    // Slopes below the smallest normal number, as many are in f16, have fewer digits.
    double least = 2 * step * nd_dtype_get_smallest_normal(dtype);
    if (!(fabsl(found - expected) <= 4 * step * fabsl(expected) + least))
        fail_msg("%s of %g and %g in %s, %s: gradient %.9g, expected %.9Lg", c->name, c->a, c->b,
                 nd_dtype_get_name(dtype), recorded ? "recorded" : "not recorded", found, expected);
}

static void check_case(const magnitude_case *c, nd_dtype dtype, bool recorded) {
    nd_auto nd_tensor *a = nd_scalar(c->a, dtype), *b = nd_scalar(c->b, dtype);
    long double at_a = nd_get_item(a), at_b = nd_get_item(b);
    assert_ok(nd_set_requires_grad(a, true));
    assert_ok(nd_set_requires_grad(b, true));
    nd_auto nd_tensor *y = c->run(a, b);
    assert_handle(y);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = recorded;
    options.allow_unused = true;
    nd_tensor *gradients[2];
    assert_ok(nd_grad(y, 2, (const nd_tensor *const[]){a, b}, &options, gradients));
    nd_auto nd_tensor *of_a = gradients[0], *of_b = gradients[1];
    check_slope(c, of_a, c->of_a(at_a, at_b), recorded);
    if (c->of_b)
        check_slope(c, of_b, c->of_b(at_a, at_b), recorded);
}

static void test_gradients_of_any_magnitude(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F16, ND_BF16, ND_F32, ND_F64};
    int checked = 0;
    for (size_t i = 0; i < COUNT(cases); i++)
        for (size_t d = 0; d < COUNT(dtypes); d++)
            if (holds(dtypes[d], cases[i].a) && holds(dtypes[d], cases[i].b)) {
                check_case(&cases[i], dtypes[d], false);
                check_case(&cases[i], dtypes[d], true);
                checked++;
            }
    assert_in_range(checked, 100, 200);
}

/// The gradient of y at one f32 where the gradient of y is g.
static double gradient_at(function run, double at, double g, bool recorded) {
    nd_auto nd_tensor *x = nd_scalar(at, ND_F32), *of_y = nd_scalar(g, ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *y = run(x, NULL);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = recorded;
    options.grad = of_y;
    nd_tensor *gradient = NULL;
    assert_ok(nd_grad(y, 1, (const nd_tensor *const[]){x}, &options, &gradient));
    double found = nd_get_item(gradient);
    nd_release(gradient);
    return found;
}

/// Slopes that f32 does not hold, of results whose gradients are small, or 0.
static void test_steep_slopes_of_small_gradients(void **state) {
    (void)state;
    static const struct {
        function run;
        double at, g, expected;
    } steep[] = {
        {run_reciprocal, 1e-30, 1e-30, -1e30}, {run_reciprocal, -1e-30, 1e-25, -1e35},
        {run_reciprocal, 1e-30, 0, 0},         {run_rsqrt, 1e-30, 1e-20, -5e24},
        {run_rsqrt, 1e-36, 1e-30, -5e23},      {run_rsqrt, 1e-30, 0, 0},
    };
    for (size_t i = 0; i < COUNT(steep); i++)
        for (int recorded = 0; recorded < 2; recorded++) {
            double found = gradient_at(steep[i].run, steep[i].at, steep[i].g, recorded);
            if (!(fabs(found - steep[i].expected) <= 1e-6 * fabs(steep[i].expected)))
                fail_msg("case %zu, recorded %d: %g, expected %g", i, recorded, found,
                         steep[i].expected);
        }
}

/// Where hardswish is 0, its gradient is, whatever comes to it.
static void test_hardswish_below_takes_no_gradient(void **state) {
    (void)state;
    static const double gradients[] = {1, INFINITY, NAN};
    for (size_t i = 0; i < COUNT(gradients); i++)
        for (int recorded = 0; recorded < 2; recorded++) {
            assert_true(gradient_at(run_hardswish, -4, gradients[i], recorded) == 0);
            double above = gradient_at(run_hardswish, 4, gradients[i], recorded);
            assert_true(isnan(gradients[i]) ? isnan(above) : above == gradients[i]);
        }
}

/// The gradient of a norm of order p beside (x / norm)^(p - 1), of numbers of about that size.
static void check_norm_gradient(double p, double size, int count, const float *values) {
    nd_auto nd_tensor *x = nd_from_data(values, ND_SHAPE(count), ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *y = nd_norm(x, p, 0, NULL, false);
    assert_ok(nd_backward(y, NULL));
    const float *got = nd_get_data(nd_get_grad(x));
    double sum = 0;
    for (int k = 0; k < count; k++)
        sum += values[k] == 0 ? 0 : pow(fabs((double)values[k] / size), p);
    const double norm = pow(sum, 1 / p);
    for (int k = 0; k < count; k++) {
        const double part = fabs((double)values[k] / size) / norm;
        const double expected = part == 0 ? 0 : copysign(pow(part, p - 1), (double)values[k]);
        if (!(fabs((double)got[k] - expected) <= 1e-4 * fmax(1, fabs(expected))))
            fail_msg("order %g of %g, element %d: %g, expected %g", p, size, k, (double)got[k],
                     expected);
    }
}

/// It is there where the norm is.
static void test_norms_of_every_order_far_from_one(void **state) {
    (void)state;
    static const double cases[][2] = {{10, 2e4},  {50, 10},    {-10, 2e4}, {3, 1e25},
                                      {3, 1e-25}, {0.5, 1e20}, {-2, 1e-20}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const double m = cases[i][1];
        const float values[] = {(float)m, (float)(0.7 * m), (float)(0.5 * m), (float)(-0.9 * m)};
        check_norm_gradient(cases[i][0], m, 4, values);
    }
}

/// A zero has a gradient of 0 beside numbers of any size, and what is small has its own.
static void test_norms_of_every_order_beside_a_zero(void **state) {
    (void)state;
    static const double cases[][2] = {{3, 1e-30}, {10, 1e-5},   {20, 1e-3},
                                      {60, 0.1},  {0.5, 1e-30}, {0.5, 1e20}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const double p = cases[i][0], m = cases[i][1];
        check_norm_gradient(p, m, 3, (float[]){p < 1 ? 1e20F : 0.0F, (float)m, (float)(2 * m)});
    }
}

/// Of order 2: an incoming gradient whose quotient by the norm leaves the dtype's range, though the
/// gradient does not.
static void test_norms_of_order_two_below_their_gradient(void **state) {
    (void)state;
    static const struct {
        nd_dtype dtype;
        double value, gradient;
    } cases[] = {{ND_F32, 1e-20, 1e20},   {ND_F32, 1e-40, 1},  {ND_F32, 1e-37, 50},
                 {ND_BF16, 1e-20, 1e20},  {ND_BF16, 1e-39, 1}, {ND_F16, 6e-5, 1e4},
                 {ND_F64, 1e-150, 1e170}, {ND_F32, 1e20, 1},   {ND_F64, 1e-150, 1e-170}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        const double values[] = {cases[i].value, 0, -cases[i].value};
        nd_auto nd_tensor *wide = nd_from_data(values, ND_SHAPE(3), ND_F64);
        nd_auto nd_tensor *x = nd_cast(wide, cases[i].dtype);
        nd_auto nd_tensor *g = nd_full(ND_SHAPE(), ND_NUMBER(cases[i].gradient), cases[i].dtype);
        assert_ok(nd_set_requires_grad(x, true));
        for (int recorded = 0; recorded < 2; recorded++) {
            nd_auto nd_tensor *y = nd_norm(x, 2.0, 0, NULL, false), *slope = NULL;
            nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
            options.create_graph = recorded;
            options.grad = g;
            const nd_tensor *inputs[] = {x};
            assert_ok(nd_grad(y, 1, inputs, &options, &slope));
            nd_auto nd_tensor *got = nd_cast(slope, ND_F64);
            const double *numbers = nd_get_data(got);
            const double expected = cases[i].gradient * sqrt(0.5);
            assert_true(numbers[1] == 0);
            for (int k = 0; k < 3; k += 2)
                if (!(fabs(numbers[k] / expected - (k ? -1 : 1)) < 0.05))
                    fail_msg("case %zu: %g, expected %g", i, numbers[k], expected);
        }
    }
}

static void test_deviations_below_their_gradient(void **state) {
    (void)state;
    static const double sizes[][2] = {{1e-39, 1}, {1e-20, 1e20}, {1e-20, 1e-20}, {1e15, 1}};
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const float size = (float)sizes[i][0];
        const float values[] = {-size, 0, size};
        nd_auto nd_tensor *x = nd_from_data(values, ND_SHAPE(3), ND_F32);
        nd_auto nd_tensor *g = nd_full(ND_SHAPE(), ND_NUMBER(sizes[i][1]), ND_F32);
        assert_ok(nd_set_requires_grad(x, true));
        nd_auto nd_tensor *y = nd_std(x, 0, NULL, 1.0, false);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.grad = g;
        assert_ok(nd_backward(y, &options));
        const float *got = nd_get_data(nd_get_grad(x));
        for (int k = 0; k < 3; k++)
            if (!(fabs((double)got[k] / sizes[i][1] - 0.5 * (k - 1)) < 1e-4))
                fail_msg("size %g, element %d: %g", sizes[i][0], k, (double)got[k]);
    }
}

/// Where the norm is 0 the gradient is, of negative orders too, whose powers are infinite there.
static void test_norms_of_negative_orders_that_are_zero(void **state) {
    (void)state;
    static const float cases[][3] = {{0, 1e-44F, 1e-41F}, {1e-45F, 1e-45F, 1e-45F}, {0, 1, 3}};
    static const double orders[] = {-0.5, -1, -2.5};
    for (size_t i = 0; i < COUNT(cases) * COUNT(orders); i++) {
        nd_auto nd_tensor *x = nd_from_data(cases[i / COUNT(orders)], ND_SHAPE(3), ND_F32);
        assert_ok(nd_set_requires_grad(x, true));
        nd_auto nd_tensor *y = nd_norm(x, orders[i % COUNT(orders)], 0, NULL, false);
        assert_ok(nd_backward(y, NULL));
        const float norm = *(const float *)nd_get_data(y), *got = nd_get_data(nd_get_grad(x));
        for (int k = 0; k < 3; k++)
            assert_true(norm == 0 ? got[k] == 0 : isfinite(got[k]));
    }
}

static void test_silu_of_minus_infinity(void **state) {
    (void)state;
    static const double values[] = {-INFINITY, -1e30, -100, INFINITY};
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        if (dtype != ND_F64 && dtype != ND_F32 && dtype != ND_F16 && dtype != ND_BF16)
            continue;
        nd_auto nd_tensor *wide = nd_from_data(values, ND_SHAPE(4), ND_F64);
        nd_auto nd_tensor *x = nd_cast(wide, (nd_dtype)dtype);
        assert_ok(nd_set_requires_grad(x, true));
        for (int recorded = 0; recorded < 2; recorded++) {
            nd_auto nd_tensor *y = nd_silu(x), *part = nd_slice(y, 0, 3, 1, 0);
            nd_auto nd_tensor *loss = nd_sum(part, 0, NULL, false), *g = NULL;
            nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
            options.create_graph = recorded;
            const nd_tensor *inputs[] = {x};
            assert_ok(nd_grad(loss, 1, inputs, &options, &g));
            nd_auto nd_tensor *slope = nd_cast(g, ND_F64);
            for (int k = 0; k < 3; k++)
                assert_true(fabs(((const double *)nd_get_data(slope))[k]) < 1e-30);
        }
    }
}

/// Activations are straight far from 0.
static void test_second_slopes_far_from_zero(void **state) {
    (void)state;
    static nd_tensor *(*const functions[])(const nd_tensor *) = {
        nd_silu,    nd_gelu, nd_gelu_tanh, nd_softplus,  nd_logsigmoid,
        nd_sigmoid, nd_tanh, nd_softsign,  nd_hardswish,
    };
    static const struct {
        nd_dtype dtype;
        double most;
    } dtypes[] = {{ND_F64, 1.7e308}, {ND_F32, 3.3e38}, {ND_F16, 65504}, {ND_BF16, 3.3e38}};
    for (size_t i = 0; i < COUNT(functions) * COUNT(dtypes); i++) {
        const double most = dtypes[i % COUNT(dtypes)].most;
        const double values[] = {-most, -0.6 * most, -0.3 * most, 0.3 * most, 0.6 * most, most};
        nd_auto nd_tensor *wide = nd_from_data(values, ND_SHAPE(6), ND_F64);
        nd_auto nd_tensor *x = nd_cast(wide, dtypes[i % COUNT(dtypes)].dtype);
        assert_ok(nd_set_requires_grad(x, true));
        nd_auto nd_tensor *y = functions[i / COUNT(dtypes)](x), *slope = NULL, *second = NULL;
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = true;
        const nd_tensor *inputs[] = {x};
        assert_ok(nd_grad(loss, 1, inputs, &options, &slope));
        nd_auto nd_tensor *total = nd_sum(slope, 0, NULL, false);
        assert_ok(nd_grad(total, 1, inputs, NULL, &second));
        nd_auto nd_tensor *seconds = nd_cast(second, ND_F64);
        for (int k = 0; k < 6; k++)
            if (!(fabs(((const double *)nd_get_data(seconds))[k]) < 1e-4))
                fail_msg("function %zu, element %d: %g", i / COUNT(dtypes), k,
                         ((const double *)nd_get_data(seconds))[k]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_gradients_of_any_magnitude),
        ND_TEST(test_steep_slopes_of_small_gradients),
        ND_TEST(test_hardswish_below_takes_no_gradient),
        ND_TEST(test_norms_of_every_order_far_from_one),
        ND_TEST(test_norms_of_every_order_beside_a_zero),
        ND_TEST(test_norms_of_order_two_below_their_gradient),
        ND_TEST(test_norms_of_negative_orders_that_are_zero),
        ND_TEST(test_deviations_below_their_gradient),
        ND_TEST(test_silu_of_minus_infinity),
        ND_TEST(test_second_slopes_far_from_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
