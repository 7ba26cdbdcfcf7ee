// Convolutions of bf16 and f16 and their gradients: what f32 makes of the same numbers, rounded once. Small
// integers, whose sums f32 has exactly, through oneDNN and without it, on one thread and several.
#include "kernels/cpu/cpu.h"
#include "lib/ops/conv.h"
#include "lib/ops/conv_options.h"
#include "tests/unit/ops/values.h"
#include "tests/windows.h"
#include <math.h>
#include <nd/nd.h>

static const conv_case cases[] = {
    {2, 40, 20, 20, 48, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {2, 3, 40, 41, 24, 7, 7, {2, 2}, {3, 3}, {1, 1}, 1},
    {3, 5, 33, 31, 20, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {2, 600, 9, 9, 40, 1, 1, {1, 1}, {0, 0}, {1, 1}, 1},
    {2, 16, 20, 25, 33, 3, 3, {1, 1}, {2, 2}, {2, 2}, 1},
    {5, 24, 24, 24, 40, 3, 2, {2, 3}, {1, 0}, {1, 1}, 1},
    {9, 64, 7, 7, 64, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    // By f32: few multiplications, small windows, groups, long rows.
    {1, 2, 7, 7, 2, 2, 2, {1, 1}, {0, 0}, {1, 1}, 1},
    {8, 1, 40, 40, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 1},
    {2, 32, 20, 20, 32, 3, 3, {1, 1}, {1, 1}, {1, 1}, 2},
    {1, 16, 1, 9000, 16, 1, 3, {1, 1}, {0, 1}, {1, 1}, 1},
};

static int64_t windows_along(const conv_case *c, int axis) {
    const int64_t size = axis ? c->w : c->h, window = axis ? c->kw : c->kh;
    return (size + 2 * c->padding[axis] - c->dilation[axis] * (window - 1) - 1) / c->stride[axis] +
           1;
}

static nd_tensor *numbers(int ndim, const int64_t *shape) {
    static uint64_t seed;
    return nd_randint(nd_key_new(seed++), -2, 3, ndim, shape, ND_F32);
}

/// Operands of a case in f32, and results.
typedef struct operands {
    nd_tensor *x, *weight, *bias, *g;
} operands;

typedef struct results {
    nd_tensor *y, *with_bias, *grad_x, *grad_weight;
} results;

static results convolve(const conv_case *c, const operands *of, nd_dtype dtype) {
    const nd_conv2d_options options =
        *CONV_WITH(c->stride[0], c->stride[1], c->padding[0], c->padding[1], c->dilation[0],
                   c->dilation[1], c->groups);
    nd__conv_options read;
    assert_int_equal(nd__conv_options_2d("test", &options, &read), ND_OK);
    nd_auto nd_tensor *x = nd_cast(of->x, dtype), *weight = nd_cast(of->weight, dtype);
    nd_auto nd_tensor *bias = nd_cast(of->bias, dtype), *g = nd_cast(of->g, dtype);
    return (results){
        nd_conv2d(x, weight, NULL, &options),
        nd_conv2d(x, weight, bias, &options),
        nd__conv_grad_input(g, weight, nd_get_shape(x), &read.geometry),
        nd__conv_grad_weight(x, g, nd_get_shape(weight), &read.geometry),
    };
}

static void assert_rounded(nd_tensor *half, nd_tensor *wanted) {
    assert_handle(half);
    assert_handle(wanted);
    nd_auto nd_tensor *rounded = nd_cast(wanted, nd_get_dtype(half));
    assert_int_equal(nd_get_numel(half), nd_get_numel(wanted));
    for (int64_t i = 0; i < nd_get_numel(half); i++) {
        const double is = at_flat(half, i), should = at_flat(rounded, i);
        if (!(is == should || (isnan(is) && isnan(should))))
            fail_msg("%lld: %g instead of %g", (long long)i, is, should);
    }
    nd_release(half), nd_release(wanted);
}

static void check_case(const conv_case *c, const operands *of) {
    const results wanted = convolve(c, of, ND_F32);
    for (int dtype = 0; dtype < 2; dtype++) {
        const results is = convolve(c, of, dtype ? ND_F16 : ND_BF16);
        assert_rounded(is.y, nd_retain(wanted.y));
        assert_rounded(is.with_bias, nd_retain(wanted.with_bias));
        assert_rounded(is.grad_x, nd_retain(wanted.grad_x));
        assert_rounded(is.grad_weight, nd_retain(wanted.grad_weight));
    }
    nd_release(wanted.y), nd_release(wanted.with_bias);
    nd_release(wanted.grad_x), nd_release(wanted.grad_weight);
}

static operands operands_of(const conv_case *c) {
    return (operands){
        numbers(ND_SHAPE(c->n, c->ci, c->h, c->w)),
        numbers(ND_SHAPE(c->co, c->ci / c->groups, c->kh, c->kw)),
        numbers(ND_SHAPE(c->co)),
        numbers(ND_SHAPE(c->n, c->co, windows_along(c, 0), windows_along(c, 1))),
    };
}

static void release_operands(const operands *of) {
    nd_release(of->x), nd_release(of->weight), nd_release(of->bias), nd_release(of->g);
}

static void check_all(void) {
    for (size_t i = 0; i < COUNT_OF(cases); i++)
        for (int threads = 1; threads <= 3; threads += 2) {
            assert_ok(nd_set_num_threads(threads));
            const operands of = operands_of(&cases[i]);
            check_case(&cases[i], &of);
            release_operands(&of);
        }
}

static void test_halves_are_f32_rounded(void **state) {
    (void)state;
    check_all();
}

static void test_halves_without_the_library(void **state) {
    (void)state;
    nd__cpu_use_onednn(false);
    check_all();
    nd__cpu_use_onednn(true);
}

/// An infinity or a NaN is in the sums of its windows, and in no others: also beside the padding, at the end of
/// an odd row, and in the last of an odd number of channels.
static void test_what_is_not_finite_stays_in_its_windows(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        const operands of = operands_of(&cases[i]);
        nd_tensor *const into[] = {of.x, of.weight, of.g};
        nd_tensor *to = into[i % 3];
        ((float *)nd_get_data(to))[i % 2 ? nd_get_numel(to) - 1 : 0] = i % 4 < 2 ? INFINITY : NAN;
        check_case(&cases[i], &of);
        release_operands(&of);
    }
}

/// Whose bias is added behind the sums of a gradient's kernel.
static void test_transposed(void **state) {
    (void)state;
    nd_auto nd_tensor *x = numbers(ND_SHAPE(2, 40, 17, 19)), *bias = numbers(ND_SHAPE(24));
    nd_auto nd_tensor *weight = numbers(ND_SHAPE(40, 24, 3, 3));
    nd_tensor *wanted = nd_conv_transpose2d(x, weight, bias, NULL);
    nd_auto nd_tensor *x_half = nd_cast(x, ND_BF16), *bias_half = nd_cast(bias, ND_BF16);
    nd_auto nd_tensor *weight_half = nd_cast(weight, ND_BF16);
    assert_rounded(nd_conv_transpose2d(x_half, weight_half, bias_half, NULL), wanted);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_halves_are_f32_rounded),
        ND_TEST(test_halves_without_the_library),
        ND_TEST(test_what_is_not_finite_stays_in_its_windows),
        ND_TEST(test_transposed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
