// The f32 functions against the math library in double: errors in units of the last place, over
// every exponent.
#include "kernels/cpu/math_f32.h"
#include "tests/testing.h"

static double last_place(float x) {
    float magnitude = fabsf(x);
    return magnitude < 1.17549435e-38f
               ? 0x1p-149
               : (double)nextafterf(magnitude, INFINITY) - (double)magnitude;
}

/// Largest error over every `step`-th float in [low, high], in units of the last place of the
/// result, or of x when `relative_to_x`.
static double worst(float (*function)(float), double (*reference)(double), float low, float high,
                    bool relative_to_x) {
    double most = 0;
    for (uint64_t bits = 0; bits < UINT64_C(0x100000000); bits += 997) {
        float x = nd__from_bits_f32((uint32_t)bits);
        if (!(x >= low && x <= high))
            continue;
        double expected = reference((double)x);
        if (isinf((float)expected) && isinf(function(x)))
            continue;
        double unit = last_place(relative_to_x ? x : (float)expected);
        double error = fabs((double)function(x) - expected) / unit;
        most = error > most ? error : most;
    }
    return most;
}

static double sigmoid(double x) {
    return 1.0 / (1.0 + exp(-x));
}
static double gelu(double x) {
    return x / 2 * erfc(-x / sqrt(2.0));
}

static void test_errors(void **state) {
    (void)state;
    assert_true(worst(nd__exp_f32, exp, -104, 89, false) < 2);
    assert_true(worst(nd__log_f32, log, 1e-45f, 3.4e38f, false) < 1.5);
    assert_true(worst(nd__tanh_f32, tanh, -20, 20, false) < 8);
    assert_true(worst(nd__sigmoid_f32, sigmoid, -103, 80, false) < 3);
    assert_true(worst(nd__erf_f32, erf, -10, 10, false) < 9);
    assert_true(worst(nd__gelu_f32, gelu, 0, 100, false) < 4);
    assert_true(worst(nd__gelu_f32, gelu, -100, 0, true) < 4);
}

static void test_limits(void **state) {
    (void)state;
    float (*const functions[])(float) = {nd__exp_f32,     nd__log_f32, nd__tanh_f32,
                                         nd__sigmoid_f32, nd__erf_f32, nd__gelu_f32};
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        assert_true(isnan(functions[i](NAN)) && isnan(functions[i](-NAN)));
    assert_true(nd__exp_f32(INFINITY) == INFINITY && nd__exp_f32(-INFINITY) == 0);
    assert_true(nd__log_f32(INFINITY) == INFINITY && nd__log_f32(0) == -INFINITY &&
                nd__log_f32(-0.0f) == -INFINITY && isnan(nd__log_f32(-1)) &&
                isnan(nd__log_f32(-INFINITY)));
    assert_true(nd__tanh_f32(INFINITY) == 1 && nd__tanh_f32(-INFINITY) == -1);
    assert_true(nd__sigmoid_f32(INFINITY) == 1 && nd__sigmoid_f32(-INFINITY) == 0);
    assert_true(nd__erf_f32(INFINITY) == 1 && nd__erf_f32(-INFINITY) == -1);
    assert_true(nd__gelu_f32(INFINITY) == INFINITY && nd__gelu_f32(-INFINITY) == 0);
    assert_true(signbit(nd__tanh_f32(-0.0f)) && signbit(nd__erf_f32(-0.0f)) &&
                signbit(nd__gelu_f32(-0.0f)));
    assert_true(nd__exp_f32(0) == 1 && nd__log_f32(1) == 0 && nd__sigmoid_f32(0) == 0.5f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_errors),
        ND_TEST(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
