// nd_grad, second derivatives, and nd_gradcheck itself.
#include "tests/unit/autograd/support.h"

static void test_functional_form(void **state) {
    (void)state;
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *b = make_leaf(VALUES(3, 4));
    nd_auto nd_tensor *product = nd_mul(a, b);
    nd_auto nd_tensor *square = nd_square(product);
    nd_auto nd_tensor *loss = total(square);
    // Leaves, something in between, the output itself, and one input twice.
    const nd_tensor *inputs[] = {a, product, loss, b, a};
    nd_tensor *grads[5] = {NULL};
    assert_ok(nd_grad(loss, 5, inputs, NULL, grads));
    assert_values(grads[0], VALUES(18, 64));
    assert_values(grads[1], VALUES(6, 16));
    assert_values(grads[2], VALUES(1));
    assert_values(grads[3], VALUES(6, 32));
    assert_values(grads[4], VALUES(18, 64));
    assert_null(nd_get_grad(a));
    assert_null(nd_get_grad(b));
    for (int i = 0; i < 5; i++) {
        assert_true(nd_is_contiguous(grads[i]));
        assert_false(nd_requires_grad(grads[i]));
        for (int k = 0; k < i; k++)
            assert_false(nd_is_view_of(grads[i], grads[k]));
    }
    for (int i = 0; i < 5; i++)
        nd_release(grads[i]);
}

static void test_unused_inputs(void **state) {
    (void)state;
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *b = make_leaf(VALUES(3, 4));
    nd_auto nd_tensor *later = nd_square(a);
    nd_auto nd_tensor *loss = total(a);
    const nd_tensor *inputs[] = {a, b, later};
    nd_tensor *const untouched = (nd_tensor *)(uintptr_t)16;
    nd_tensor *grads[] = {untouched, untouched, untouched};
    assert_int_equal(nd_grad(loss, 3, inputs, NULL, grads), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "inputs[1]");
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(grads[i], untouched);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.allow_unused = true;
    assert_ok(nd_grad(loss, 3, inputs, &options, grads));
    assert_values(grads[0], VALUES(1, 1));
    assert_null(grads[1]);
    assert_null(grads[2]);
    nd_release(grads[0]);
    // An input that only zero gradients reach is used: its gradient is zero.
    nd_auto nd_tensor *constant = nd_pow_scalar(b, 0.0);
    nd_auto nd_tensor *ones = total(constant);
    assert_ok(nd_grad(ones, 1, inputs + 1, NULL, grads));
    assert_values(grads[0], VALUES(0, 0));
    nd_release(grads[0]);
}

static void test_wrong_inputs(void **state) {
    (void)state;
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *plain = make_vector(VALUES(1, 2));
    nd_auto nd_tensor *loss = total(a);
    nd_tensor *grad = NULL;
    const nd_tensor *input = plain;
    assert_int_equal(nd_grad(loss, 1, &input, NULL, &grad), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "inputs[0]");
    input = NULL;
    assert_int_equal(nd_grad(loss, 1, &input, NULL, &grad), ND_ERROR_INVALID_ARGUMENT);
    assert_error(ND_ERROR_INVALID_ARGUMENT, "inputs[0]");
    assert_int_equal(nd_grad(loss, 1, NULL, NULL, &grad), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    input = a;
    assert_int_equal(nd_grad(loss, 1, &input, NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_grad(NULL, 1, &input, NULL, &grad), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    assert_int_equal(nd_grad(plain, 1, &input, NULL, &grad), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "no history");
    assert_ok(nd_grad(loss, 0, NULL, NULL, NULL));
    assert_null(grad);
    nd_auto nd_tensor *closed = make_leaf(VALUES(1, 2));
    assert_ok(nd_close(closed));
    input = closed;
    assert_int_equal(nd_grad(loss, 1, &input, NULL, &grad), ND_ERROR_CLOSED);
    nd_error_clear();
}

static void test_only_what_leads_to_an_input_is_visited(void **state) {
    (void)state;
    // A branch without a gradient hangs below the output, but not above the input.
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 2, 3));
    nd_auto nd_tensor *apart = nd_from_data((double[]){4, 0, 5, 0, 6}, ND_SHAPE(5), ND_F64);
    nd_auto nd_tensor *b = nd_slice(apart, 0, 5, 2, 0);
    assert_ok(nd_set_requires_grad(b, true));
    const int64_t stride = 2;
    nd_auto nd_tensor *window = nd_as_strided(b, ND_SHAPE(3), &stride, 0);
    nd_auto nd_tensor *sum = nd_mul(a, window);
    nd_auto nd_tensor *loss = total(sum);
    const nd_tensor *inputs[] = {a, sum, b};
    nd_tensor *grads[3] = {NULL};
    assert_ok(nd_grad(loss, 2, inputs, NULL, grads));
    assert_values(grads[0], VALUES(4, 5, 6));
    nd_release(grads[0]);
    nd_release(grads[1]);
    assert_int_equal(nd_grad(loss, 3, inputs, NULL, grads), ND_ERROR_NOT_DIFFERENTIABLE);
    nd_error_clear();
}

static void test_third_derivative(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(2, -1));
    const nd_tensor *input = x;
    nd_auto nd_tensor *power = nd_pow_scalar(x, 4.0);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    nd_auto nd_tensor *value = total(power);
    nd_tensor *first = NULL;
    nd_tensor *second = NULL;
    nd_tensor *third = NULL;
    assert_ok(nd_grad(value, 1, &input, &options, &first));
    assert_values(first, VALUES(32, -4));
    assert_true(nd_requires_grad(first));
    nd_auto nd_tensor *first_sum = total(first);
    assert_ok(nd_grad(first_sum, 1, &input, &options, &second));
    assert_values(second, VALUES(48, 12));
    nd_auto nd_tensor *second_sum = total(second);
    assert_ok(nd_grad(second_sum, 1, &input, NULL, &third));
    assert_values(third, VALUES(48, -24));
    assert_false(nd_requires_grad(third));
    nd_release(first);
    nd_release(second);
    nd_release(third);
}

static void test_gradient_penalty(void **state) {
    (void)state;
    // d/dw sum((d/dx sum(w x^2))^2) = d/dw sum(4 w^2 x^2) = 8 w x^2
    nd_auto nd_tensor *w = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *x = make_leaf(VALUES(3, -1));
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *product = nd_mul(w, square);
    nd_auto nd_tensor *value = total(product);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    const nd_tensor *input = x;
    nd_tensor *grad = NULL;
    assert_ok(nd_grad(value, 1, &input, &options, &grad));
    nd_auto nd_tensor *norm = nd_square(grad);
    nd_auto nd_tensor *penalty = total(norm);
    assert_ok(nd_backward(penalty, NULL));
    assert_values(nd_get_grad(w), VALUES(72, 16));
    nd_release(grad);
}

static void test_recorded_gradients_add_up(void **state) {
    (void)state;
    // x.grad = 3x^2 + 2x after two recorded passes, so its derivative is 6x + 2.
    nd_auto nd_tensor *x = make_leaf(VALUES(2));
    nd_auto nd_tensor *cube = nd_pow_scalar(x, 3.0);
    nd_auto nd_tensor *square = nd_square(x);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    assert_ok(nd_backward(cube, &options));
    assert_ok(nd_backward(square, &options));
    assert_values(nd_get_grad(x), VALUES(16));
    assert_true(nd_requires_grad(nd_get_grad(x)));
    const nd_tensor *input = x;
    nd_tensor *second = NULL;
    assert_ok(nd_grad(nd_get_grad(x), 1, &input, NULL, &second));
    assert_values(second, VALUES(14));
    nd_release(second);
    // A pass without a graph adds to it and ends its history, and with it the cycle.
    assert_ok(nd_backward(square, NULL));
    assert_values(nd_get_grad(x), VALUES(20));
    assert_false(nd_requires_grad(nd_get_grad(x)));
}

static void test_seed_with_history(void **state) {
    (void)state;
    // The gradient handed in may itself be differentiated: d/ds (s * 2x) = 2x.
    nd_auto nd_tensor *x = make_leaf(VALUES(3));
    nd_auto nd_tensor *seed = make_leaf(VALUES(5));
    nd_auto nd_tensor *square = nd_square(x);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    options.grad = seed;
    const nd_tensor *inputs[] = {x, seed};
    nd_tensor *grad = NULL;
    nd_tensor *second = NULL;
    assert_ok(nd_grad(square, 1, inputs, &options, &grad));
    assert_values(grad, VALUES(30));
    assert_ok(nd_grad(grad, 1, inputs + 1, NULL, &second));
    assert_values(second, VALUES(6));
    nd_release(grad);
    nd_release(second);
}

/// A start before the first element stays there when the gradient is sliced in its turn.
static void test_an_empty_slice_backwards_twice(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2, 3));
    nd_auto nd_tensor *y = nd_slice(x, -6, 2, -2, 0);
    assert_int_equal(nd_get_numel(y), 0);
    nd_auto nd_tensor *seed = nd_ones_like(y);
    assert_ok(nd_set_requires_grad(seed, true));
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    options.grad = seed;
    const nd_tensor *inputs[] = {x, seed};
    nd_tensor *grads[2] = {NULL};
    assert_ok(nd_grad(y, 1, inputs, &options, grads));
    assert_values(grads[0], VALUES(0, 0, 0));
    nd_auto nd_tensor *sum = total(grads[0]);
    assert_ok(nd_grad(sum, 1, inputs + 1, NULL, grads + 1));
    assert_int_equal(nd_get_numel(grads[1]), 0);
    nd_release(grads[0]);
    nd_release(grads[1]);
}

static void test_pow_at_zero(void **state) {
    (void)state;
    nd_auto nd_tensor *a = make_leaf(VALUES(0, 0, 2));
    nd_auto nd_tensor *b = make_leaf(VALUES(0, 2, 0));
    nd_auto nd_tensor *power = nd_pow(a, b);
    nd_auto nd_tensor *value = total(power);
    const nd_tensor *inputs[] = {a, b};
    nd_tensor *grads[2] = {NULL};
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    assert_ok(nd_grad(value, 2, inputs, &options, grads));
    assert_values(grads[0], VALUES(0, 0, 0));
    assert_values(grads[1], VALUES(0, 0, log(2.0)));
    nd_auto nd_tensor *sum = nd_add(grads[0], grads[1]);
    nd_auto nd_tensor *again = total(sum);
    nd_tensor *second[2] = {NULL};
    assert_ok(nd_grad(again, 2, inputs, NULL, second));
    for (int i = 0; i < 2; i++) {
        double found[3];
        assert_ok(nd_copy_to_host(second[i], found, sizeof found));
        for (int k = 0; k < 3; k++)
            assert_true(isfinite(found[k]));
        nd_release(second[i]);
        nd_release(grads[i]);
    }
}

static void test_ties_share_the_gradient(void **state) {
    (void)state;
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 5, 5, 2));
    nd_auto nd_tensor *largest = nd_max(a, 0, NULL, false);
    assert_ok(nd_backward(largest, NULL));
    assert_values(nd_get_grad(a), VALUES(0, 0.5, 0.5, 0));
    nd_auto nd_tensor *b = make_leaf(VALUES(1, 4, 9, 2));
    nd_auto nd_tensor *larger = nd_maximum(a, b);
    nd_auto nd_tensor *smaller = nd_minimum(a, b);
    nd_auto nd_tensor *weighted = nd_mul_scalar(smaller, 10.0);
    nd_auto nd_tensor *sum = nd_add(larger, weighted);
    nd_auto nd_tensor *loss = total(sum);
    assert_ok(nd_zero_grad(a));
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(a), VALUES(5.5, 1, 10, 5.5));
    assert_values(nd_get_grad(b), VALUES(5.5, 10, 1, 5.5));
}

// -------------------------------------------------------------------------------------------------
// gradcheck

static nd_tensor *cube(size_t count, const nd_tensor *const *inputs, void *data) {
    (void)count, (void)data;
    return nd_pow_scalar(inputs[0], 3.0);
}

/// As cube in value, but a factor of its gradient goes missing.
static nd_tensor *broken_cube(size_t count, const nd_tensor *const *inputs, void *data) {
    (void)count, (void)data;
    nd_auto nd_tensor *plain = nd_detach(inputs[0]);
    nd_auto nd_tensor *square = nd_square(inputs[0]);
    return nd_mul(square, plain);
}

/// Right to first order (its gradient is 3 x^2), but the gradient's own history is cut.
static nd_status flat_forward(const nd_object *context, size_t ninputs,
                              const nd_tensor *const *inputs, size_t noutputs,
                              nd_tensor **ret_outputs) {
    (void)context, (void)ninputs, (void)noutputs;
    ret_outputs[0] = nd_pow_scalar(inputs[0], 3.0);
    return ND_OK;
}

static nd_status flat_backward(const nd_object *context, size_t noutputs,
                               const nd_tensor *const *grad_outputs, size_t ninputs,
                               nd_tensor **ret_grad_inputs) {
    (void)noutputs, (void)ninputs;
    nd_auto nd_tensor *x = nd_detach((const nd_tensor *)nd_list_get((nd_list *)context, 0));
    nd_auto nd_tensor *square = nd_square(x);
    nd_auto nd_tensor *slope = nd_mul_scalar(square, 3.0);
    ret_grad_inputs[0] = nd_mul(grad_outputs[0], slope);
    return ND_OK;
}

static nd_tensor *first_order_only(size_t count, const nd_tensor *const *inputs, void *data) {
    (void)count, (void)data;
    static const nd_function flat = {sizeof(nd_function), 1, "flat", flat_forward, flat_backward};
    nd_auto nd_list *context = nd_list_new();
    nd_tensor *y = NULL;
    if (nd_list_append(context, inputs[0]) != ND_OK ||
        nd_function_apply(&flat, context, 1, inputs, 1, &y) != ND_OK)
        return NULL;
    return y;
}

static nd_tensor *fails(size_t count, const nd_tensor *const *inputs, void *data) {
    (void)count, (void)data;
    return nd_reshape(inputs[0], ND_SHAPE(17));
}

static void test_gradcheck_tells_right_from_wrong(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(0.5, -1.25, 2));
    const nd_tensor *input = x;
    assert_ok(nd_gradcheck(cube, NULL, 1, &input, 1, 1e-6, 1e-4));
    assert_ok(nd_gradcheck(cube, NULL, 1, &input, 2, 1e-6, 1e-4));
    assert_int_equal(nd_gradcheck(broken_cube, NULL, 1, &input, 1, 1e-6, 1e-4), ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "input 0, element 0");
    assert_ok(nd_gradcheck(first_order_only, NULL, 1, &input, 1, 1e-6, 1e-4));
    assert_int_equal(nd_gradcheck(first_order_only, NULL, 1, &input, 2, 1e-6, 1e-4),
                     ND_ERROR_STATE);
    assert_error(ND_ERROR_STATE, "order 2");
    assert_int_equal(nd_gradcheck(fails, NULL, 1, &input, 1, 1e-6, 1e-4), ND_ERROR_SHAPE);
    nd_error_clear();
    // The caller's inputs are as they were.
    assert_values(x, VALUES(0.5, -1.25, 2));
    assert_null(nd_get_grad(x));
}

static void test_gradcheck_arguments(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_vector(VALUES(1));
    const nd_tensor *input = x;
    assert_int_equal(nd_gradcheck(cube, NULL, 1, &input, 1, 1e-6, 1e-4), ND_ERROR_STATE);
    assert_ok(nd_set_requires_grad(x, true));
    assert_int_equal(nd_gradcheck(NULL, NULL, 1, &input, 1, 1e-6, 1e-4), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_gradcheck(cube, NULL, 0, &input, 1, 1e-6, 1e-4), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_gradcheck(cube, NULL, 1, NULL, 1, 1e-6, 1e-4), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_gradcheck(cube, NULL, 1, &input, 3, 1e-6, 1e-4), ND_ERROR_INVALID_ARGUMENT);
    assert_int_equal(nd_gradcheck(cube, NULL, 1, &input, 1, 0.0, 1e-4), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
    nd_no_grad assert_ok(nd_gradcheck(cube, NULL, 1, &input, 1, 1e-6, 1e-4));
}

static nd_tensor *gives_nothing(size_t count, const nd_tensor *const *inputs, void *data) {
    (void)count;
    int *runs = data;
    return (*runs)-- > 0 ? nd_square(inputs[0]) : NULL;
}

/// A check that has checked nothing does not pass.
static void test_gradcheck_of_a_function_that_gives_nothing(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    const nd_tensor *inputs[] = {x};
    for (int order = 1; order <= 2; order++)
        for (int runs = 0; runs < 4; runs++) {
            int left = runs;
            assert_int_equal(nd_gradcheck(gives_nothing, &left, 1, inputs, order, 1e-6, 1e-4),
                             ND_ERROR_INVALID_ARGUMENT);
            nd_error_clear();
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_functional_form),
        ND_TEST(test_unused_inputs),
        ND_TEST(test_wrong_inputs),
        ND_TEST(test_only_what_leads_to_an_input_is_visited),
        ND_TEST(test_third_derivative),
        ND_TEST(test_gradient_penalty),
        ND_TEST(test_recorded_gradients_add_up),
        ND_TEST(test_seed_with_history),
        ND_TEST(test_an_empty_slice_backwards_twice),
        ND_TEST(test_pow_at_zero),
        ND_TEST(test_ties_share_the_gradient),
        ND_TEST(test_gradcheck_tells_right_from_wrong),
        ND_TEST(test_gradcheck_arguments),
        ND_TEST(test_gradcheck_of_a_function_that_gives_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
