// nd_linear_activation() beside the two operations that it is: the same bits, and the same gradients.
#include "kernels/cpu/cpu.h"
#include "tests/unit/ops/isas.h"
#include "tests/unit/ops/out_bits.h"
#include <nd/autocast.h>
#include <nd/autograd.h>

enum { ACTIVATIONS = ND_ACTIVATION_TANH + 1, INPUTS = 3 };

static nd_tensor *activation_of(int activation, const nd_tensor *x) {
    return activation == ND_ACTIVATION_RELU      ? nd_relu(x)
           : activation == ND_ACTIVATION_GELU    ? nd_gelu(x)
           : activation == ND_ACTIVATION_SIGMOID ? nd_sigmoid(x)
                                                 : nd_tanh(x);
}

static nd_tensor *both(const nd_tensor *const *in, int activation) {
    nd_auto nd_tensor *linear = nd_linear(in[0], in[1], in[2]);
    return linear ? activation_of(activation, linear) : NULL;
}

static nd_tensor *at_once(const nd_tensor *const *in, int activation) {
    return nd_linear_activation(in[0], in[1], in[2], (nd_activation)activation);
}

static void check(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias) {
    const nd_tensor *in[INPUTS] = {x, weight, bias};
    for (int activation = 0; activation < ACTIVATIONS; activation++) {
        nd_auto nd_tensor *expected = both(in, activation);
        nd_auto nd_tensor *got = at_once(in, activation);
        assert_handle(got);
        assert_int_equal(nd_get_dtype(got), nd_get_dtype(expected));
        assert_shape(got, nd_get_ndim(expected), nd_get_shape(expected));
        assert_same_bits("linear_activation", got, expected);
    }
}

static void every_shape(void) {
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16, ND_I32};
    static const int64_t shapes[][3] = {{1, 7, 5},     {9, 17, 20},    {32, 100, 64},
                                        {1, 300, 200}, {18, 520, 530}, {0, 3, 4},
                                        {3, 0, 4},     {3, 4, 0},      {300, 64, 1}};
    for (size_t d = 0; d < COUNT_OF(dtypes); d++)
        for (size_t s = 0; s < COUNT_OF(shapes); s++)
            for (int how = 0; how < LAYOUTS; how++) {
                const int64_t m = shapes[s][0], k = shapes[s][1], n = shapes[s][2];
                nd_auto nd_tensor *x = random_tensor((layout)how, ND_SHAPE(m, k), dtypes[d], -1, 1);
                nd_auto nd_tensor *weight =
                    random_tensor((layout)how, ND_SHAPE(n, k), dtypes[d], -1, 1);
                nd_auto nd_tensor *bias = random_tensor((layout)how, ND_SHAPE(n), dtypes[d], -1, 1);
                check(x, weight, bias);
                check(x, weight, NULL);
            }
}

static void test_as_two_operations(void **state) {
    (void)state;
    every_shape();
    nd__cpu_use_onednn(false);
    on_every_isa(every_shape);
    nd__cpu_use_onednn(true);
}

/// Large enough for panels on several threads; NaN and infinities among the elements.
static void test_in_panels(void **state) {
    (void)state;
    const int threads = nd_get_num_threads();
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(3, 70, 300), ND_F32, -1, 1);
    nd_auto nd_tensor *weight = random_tensor(TRANSPOSED, ND_SHAPE(410, 300), ND_F32, -1, 1);
    nd_auto nd_tensor *bias = random_tensor(DENSE, ND_SHAPE(410), ND_F32, -1, 1);
    float *elements = nd_get_data(x);
    elements[5] = NAN;
    elements[1000] = INFINITY;
    for (int count = 1; count <= 3; count++) {
        assert_int_equal(nd_set_num_threads(count), ND_OK);
        check(x, weight, bias);
    }
    assert_int_equal(nd_set_num_threads(threads), ND_OK);
}

static void test_promotion_and_autocast(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(5, 6), ND_F32, -1, 1);
    nd_auto nd_tensor *weight = random_tensor(DENSE, ND_SHAPE(4, 6), ND_BF16, -1, 1);
    nd_auto nd_tensor *bias = random_tensor(DENSE, ND_SHAPE(4), ND_F64, -1, 1);
    check(x, weight, bias);
    nd_autocast(ND_BF16) {
        check(x, weight, NULL);
    }
}

/// A closed operand is none that is missing.
static void test_closed_operands_under_autocast(void **state) {
    (void)state;
    nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(5, 6), ND_F32, -1, 1);
    nd_auto nd_tensor *weight = random_tensor(DENSE, ND_SHAPE(4, 6), ND_F32, -1, 1);
    nd_auto nd_tensor *bias = random_tensor(DENSE, ND_SHAPE(4), ND_F32, -1, 1);
    nd_close(bias);
    nd_autocast(ND_BF16) {
        assert_refused(nd_linear(x, weight, bias), ND_ERROR_CLOSED, "linear: bias");
        assert_refused(nd_linear_activation(x, weight, bias, ND_ACTIVATION_RELU), ND_ERROR_CLOSED,
                       "linear_activation: bias");
        nd_close(weight);
        assert_refused(nd_linear(x, weight, NULL), ND_ERROR_CLOSED, "linear: weight");
        assert_refused(nd_matmul(x, weight), ND_ERROR_CLOSED, "matmul: b");
        assert_refused(nd_mse_loss(x, weight), ND_ERROR_CLOSED, "mse_loss: b");
    }
}

typedef nd_tensor *(*layer)(const nd_tensor *const *in, int activation);

/// Gradients of the layer's result, of which sum((gradients)^2) is differentiated again.
static void note_gradients(layer of, int activation, const nd_tensor *const *in,
                           nd_tensor **ret_first, nd_tensor **ret_second) {
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    nd_auto nd_tensor *y = of(in, activation);
    nd_auto nd_tensor *square = nd_square(y);
    nd_auto nd_tensor *sum = nd_sum(square, 0, NULL, false);
    assert_int_equal(nd_grad(sum, INPUTS, in, &options, ret_first), ND_OK);
    nd_auto nd_tensor *again = nd_square(ret_first[0]);
    nd_auto nd_tensor *total = nd_sum(again, 0, NULL, false);
    assert_int_equal(nd_grad(total, INPUTS, in, NULL, ret_second), ND_OK);
}

static void test_gradients(void **state) {
    (void)state;
    for (int activation = 0; activation < ACTIVATIONS; activation++) {
        nd_auto nd_tensor *x = random_tensor(DENSE, ND_SHAPE(6, 5), ND_F64, -1, 1);
        nd_auto nd_tensor *weight = random_tensor(DENSE, ND_SHAPE(4, 5), ND_F64, -1, 1);
        nd_auto nd_tensor *bias = random_tensor(DENSE, ND_SHAPE(4), ND_F64, -1, 1);
        nd_tensor *const leaves[INPUTS] = {x, weight, bias};
        for (int i = 0; i < INPUTS; i++)
            assert_int_equal(nd_set_requires_grad(leaves[i], true), ND_OK);
        const nd_tensor *in[INPUTS] = {x, weight, bias};
        nd_tensor *expected[2][INPUTS], *got[2][INPUTS];
        note_gradients(both, activation, in, expected[0], expected[1]);
        note_gradients(at_once, activation, in, got[0], got[1]);
        for (int i = 0; i < 2 * INPUTS; i++) {
            assert_same_bits("gradient", got[i / INPUTS][i % INPUTS],
                             expected[i / INPUTS][i % INPUTS]);
            nd_release(got[i / INPUTS][i % INPUTS]);
            nd_release(expected[i / INPUTS][i % INPUTS]);
        }
    }
}

static void test_bad_input(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *truth = nd_ones(ND_SHAPE(2, 3), ND_BOOL);
    nd_auto nd_tensor *weight = nd_ones(ND_SHAPE(4, 5), ND_F32);
    assert_refused(nd_linear_activation(NULL, x, NULL, ND_ACTIVATION_RELU),
                   ND_ERROR_INVALID_ARGUMENT, "linear_activation: x is NULL");
    assert_refused(nd_linear_activation(x, x, NULL, (nd_activation)4), ND_ERROR_INVALID_ARGUMENT,
                   "linear_activation: there is no activation 4");
    assert_refused(nd_linear_activation(x, x, NULL, (nd_activation)-1), ND_ERROR_INVALID_ARGUMENT,
                   "linear_activation: there is no activation -1");
    assert_refused(nd_linear_activation(x, weight, NULL, ND_ACTIVATION_TANH), ND_ERROR_SHAPE,
                   "linear_activation: shapes [2, 3] and [4, 5] do not fit");
    assert_refused(nd_linear_activation(truth, truth, NULL, ND_ACTIVATION_GELU), ND_ERROR_DTYPE,
                   "linear_activation: does not take x of bool");
    assert_refused(nd_linear_activation(x, x, x, ND_ACTIVATION_GELU), ND_ERROR_SHAPE,
                   "linear_activation: bias has shape [2, 3]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_as_two_operations),
        ND_TEST(test_in_panels),
        ND_TEST(test_promotion_and_autocast),
        ND_TEST(test_closed_operands_under_autocast),
        ND_TEST(test_gradients),
        ND_TEST(test_bad_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
