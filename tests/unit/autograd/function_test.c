// User-defined functions: several outputs, missing gradients, hostile code, second order, and
// contexts that make cycles.
#include "tests/unit/autograd/support.h"

/// Context of the functions below.
typedef struct context_data {
    nd_tensor *saved;
    bool saw_missing;
    int what; ///< how `hostile` misbehaves
} context_data;

static void context_traverse(const nd_object *self, nd_visitor *visitor) {
    const context_data *data = nd_object_get_data(self);
    if (data)
        nd_visit(visitor, data->saved, "saved");
}

static void context_clear(nd_object *self) {
    context_data *data = nd_object_get_data(self);
    if (data)
        nd_edge_clear(&data->saved);
}

static const nd_type context_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "function_context",
    .traverse = context_traverse,
    .clear = context_clear,
};

static nd_object *new_context(void) {
    nd_object *context = nd_object_new(&context_type, sizeof(context_data));
    assert_handle(context);
    return context;
}

// -------------------------------------------------------------------------------------------------
// sum and difference: two outputs

static nd_status both_forward(const nd_object *context, size_t ninputs,
                              const nd_tensor *const *inputs, size_t noutputs,
                              nd_tensor **ret_outputs) {
    (void)context, (void)ninputs, (void)noutputs;
    assert_false(nd_is_grad_enabled());
    ret_outputs[0] = nd_add(inputs[0], inputs[1]);
    ret_outputs[1] = nd_sub(inputs[0], inputs[1]);
    return ND_OK;
}

static nd_status both_backward(const nd_object *context, size_t noutputs,
                               const nd_tensor *const *grad_outputs, size_t ninputs,
                               nd_tensor **ret_grad_inputs) {
    (void)noutputs, (void)ninputs;
    const nd_tensor *sum = grad_outputs[0];
    const nd_tensor *difference = grad_outputs[1];
    if (!sum || !difference) {
        ((context_data *)nd_object_get_data(context))->saw_missing = true;
        ret_grad_inputs[0] = nd_retain(sum ? sum : difference);
        ret_grad_inputs[1] = sum ? nd_retain(sum) : nd_neg(difference);
    } else {
        ret_grad_inputs[0] = nd_add(sum, difference);
        ret_grad_inputs[1] = nd_sub(sum, difference);
    }
    return ND_OK;
}

static const nd_function both = {sizeof(nd_function), 1, "both", both_forward, both_backward};

static void test_G17_sibling_outputs_of_one_node(void **state) {
    (void)state;
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *b = make_leaf(VALUES(3, 5));
    nd_auto nd_object *context = new_context();
    const nd_tensor *inputs[] = {a, b};
    nd_tensor *outputs[2] = {NULL};
    assert_ok(nd_function_apply(&both, context, 2, inputs, 2, outputs));
    assert_values(outputs[0], VALUES(4, 7));
    assert_values(outputs[1], VALUES(-2, -3));
    assert_ptr_equal(nd_get_node(outputs[0]), nd_get_node(outputs[1]));
    assert_string_equal(nd_node_get_name(nd_get_node(outputs[0])), "both");
    // a^2 - b^2 by both outputs.
    nd_auto nd_tensor *product = nd_mul(outputs[0], outputs[1]);
    nd_auto nd_tensor *loss = total(product);
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(a), VALUES(2, 4));
    assert_values(nd_get_grad(b), VALUES(-6, -10));
    assert_false(((context_data *)nd_object_get_data(context))->saw_missing);
    // Only one of the siblings is used, the other one's gradient is missing; its handle is gone.
    nd_release(outputs[0]);
    nd_auto nd_tensor *half = total(outputs[1]);
    nd_tensor *grads[2] = {NULL};
    assert_ok(nd_grad(half, 2, inputs, NULL, grads));
    assert_values(grads[0], VALUES(1, 1));
    assert_values(grads[1], VALUES(-1, -1));
    assert_true(((context_data *)nd_object_get_data(context))->saw_missing);
    nd_release(grads[0]);
    nd_release(grads[1]);
    // A sibling as the input of nd_grad.
    const nd_tensor *sibling = outputs[1];
    assert_ok(nd_grad(loss, 1, &sibling, NULL, grads));
    assert_values(grads[0], VALUES(4, 7));
    nd_release(grads[0]);
    nd_release(outputs[1]);
}

static nd_tensor *both_product(size_t count, const nd_tensor *const *inputs, void *data) {
    (void)count, (void)data;
    nd_auto nd_object *context = new_context();
    nd_tensor *outputs[2] = {NULL};
    if (nd_function_apply(&both, context, 2, inputs, 2, outputs) != ND_OK)
        return NULL;
    nd_tensor *product = nd_mul(outputs[0], outputs[1]);
    nd_release(outputs[0]);
    nd_release(outputs[1]);
    return product;
}

static void test_two_outputs_pass_gradcheck(void **state) {
    (void)state;
    nd_auto nd_tensor *a = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *b = make_leaf(VALUES(3, 5));
    const nd_tensor *inputs[] = {a, b};
    assert_ok(nd_gradcheck(both_product, NULL, 2, inputs, 1, 1e-6, 1e-4));
    assert_ok(nd_gradcheck(both_product, NULL, 2, inputs, 2, 1e-6, 1e-4));
}

// -------------------------------------------------------------------------------------------------
// exponential that keeps its own output

static nd_status exp_forward(const nd_object *context, size_t ninputs,
                             const nd_tensor *const *inputs, size_t noutputs,
                             nd_tensor **ret_outputs) {
    (void)ninputs, (void)noutputs;
    context_data *data = nd_object_get_data(context);
    ret_outputs[0] = nd_exp(inputs[0]);
    nd_edge_set(&data->saved, ret_outputs[0]);
    return ret_outputs[0] ? ND_OK : nd_error_get_status();
}

static nd_status exp_backward(const nd_object *context, size_t noutputs,
                              const nd_tensor *const *grad_outputs, size_t ninputs,
                              nd_tensor **ret_grad_inputs) {
    (void)noutputs, (void)ninputs;
    const context_data *data = nd_object_get_data(context);
    ret_grad_inputs[0] = nd_mul(grad_outputs[0], data->saved);
    return ret_grad_inputs[0] ? ND_OK : nd_error_get_status();
}

static const nd_function own_exp = {sizeof(nd_function), 1, "own_exp", exp_forward, exp_backward};

static void test_G18_context_that_saves_its_own_output(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(0, 1));
    const nd_tensor *input = x;
    nd_tensor *y = NULL;
    nd_object *context = new_context();
    assert_ok(nd_function_apply(&own_exp, context, 1, &input, 1, &y));
    // output -node-> node -context-> context -saved-> output
    assert_ptr_equal(((context_data *)nd_object_get_data(context))->saved, y);
    nd_auto nd_weak *weak = nd_weak_new(y);
    nd_release(context);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    nd_auto nd_tensor *value = total(y);
    nd_tensor *first = NULL;
    nd_tensor *second = NULL;
    assert_ok(nd_grad(value, 1, &input, &options, &first));
    assert_values(first, VALUES(1, exp(1.0)));
    nd_auto nd_tensor *sum = total(first);
    assert_ok(nd_grad(sum, 1, &input, NULL, &second));
    assert_values(second, VALUES(1, exp(1.0)));
    nd_release(first);
    nd_release(second);
    nd_release(nd_steal(&sum));
    nd_release(nd_steal(&value));
    nd_release(y);
    nd_object *alive = nd_weak_get(weak);
    assert_non_null(alive);
    nd_release(alive);
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(nd_manager_get_root(), &report));
    assert_int_equal(report.broken_objects, 0);
    assert_true(report.collected_objects >= 3);
    assert_null(nd_weak_get(weak));
}

// -------------------------------------------------------------------------------------------------
// user code that does what it should not

enum {
    GOOD,
    FORWARD_FAILS,
    FORWARD_FAILS_INSIDE,
    FORWARD_FORGETS,
    RETURNS_ITS_INPUT,
    RETURNS_ONE_TENSOR_TWICE,
    BACKWARD_FAILS,
    BACKWARD_WRONG_SHAPE,
    BACKWARD_GIVES_NOTHING,
    BACKWARD_GIVES_ITS_OWN_TENSOR,
};

static nd_status hostile_forward(const nd_object *context, size_t ninputs,
                                 const nd_tensor *const *inputs, size_t noutputs,
                                 nd_tensor **ret_outputs) {
    (void)ninputs, (void)noutputs;
    const context_data *data = nd_object_get_data(context);
    ret_outputs[0] =
        data->what == RETURNS_ITS_INPUT ? nd_retain(inputs[0]) : nd_mul_scalar(inputs[0], 2.0);
    switch (data->what) {
    case FORWARD_FAILS:
        return ND_ERROR_IO;
    case FORWARD_FAILS_INSIDE:
        ret_outputs[1] = nd_reshape(inputs[0], ND_SHAPE(99));
        return ND_ERROR_SHAPE;
    case FORWARD_FORGETS:
        return ND_OK;
    case RETURNS_ONE_TENSOR_TWICE:
        ret_outputs[1] = nd_retain(ret_outputs[0]);
        return ND_OK;
    default:
        ret_outputs[1] = nd_mul_scalar(inputs[0], 3.0);
        return ND_OK;
    }
}

static nd_status hostile_backward(const nd_object *context, size_t noutputs,
                                  const nd_tensor *const *grad_outputs, size_t ninputs,
                                  nd_tensor **ret_grad_inputs) {
    (void)noutputs, (void)ninputs;
    const context_data *data = nd_object_get_data(context);
    nd_auto nd_tensor *sum = nd_add(grad_outputs[0], grad_outputs[1]);
    switch (data->what) {
    case BACKWARD_FAILS:
        ret_grad_inputs[0] = nd_steal(&sum);
        return ND_ERROR_UNSUPPORTED;
    case BACKWARD_WRONG_SHAPE:
        ret_grad_inputs[0] = nd_zeros(ND_SHAPE(9), ND_F64);
        return ND_OK;
    case BACKWARD_GIVES_NOTHING:
        return ND_OK;
    case BACKWARD_GIVES_ITS_OWN_TENSOR:
        ret_grad_inputs[0] = nd_retain(data->saved);
        return ND_OK;
    default:
        ret_grad_inputs[0] = nd_steal(&sum);
        // An input that wants no gradient gets one all the same.
        ret_grad_inputs[1] = nd_retain(grad_outputs[0]);
        return ND_OK;
    }
}

static const nd_function hostile = {sizeof(nd_function), 1, "hostile", hostile_forward,
                                    hostile_backward};

static nd_status apply_hostile(const nd_object *context, int what, const nd_tensor *x,
                               const nd_tensor *plain, nd_tensor **ret_loss) {
    const nd_tensor *inputs[] = {x, plain};
    nd_tensor *outputs[2] = {NULL};
    ((context_data *)nd_object_get_data(context))->what = what;
    nd_status status = nd_function_apply(&hostile, context, 2, inputs, 2, outputs);
    if (status != ND_OK) {
        assert_null(outputs[0]);
        assert_null(outputs[1]);
        return status;
    }
    nd_auto nd_tensor *sum = nd_add(outputs[0], outputs[1]);
    *ret_loss = total(sum);
    nd_release(outputs[0]);
    nd_release(outputs[1]);
    return ND_OK;
}

static void test_failing_forward(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *plain = make_vector(VALUES(1, 2));
    nd_auto nd_object *context = new_context();
    nd_tensor *loss = NULL;
    assert_int_equal(apply_hostile(context, FORWARD_FAILS, x, plain, &loss), ND_ERROR_IO);
    assert_error(ND_ERROR_IO, "hostile: forward");
    assert_int_equal(apply_hostile(context, FORWARD_FAILS_INSIDE, x, plain, &loss), ND_ERROR_SHAPE);
    assert_error(ND_ERROR_SHAPE, "reshape");
    assert_int_equal(apply_hostile(context, FORWARD_FORGETS, x, plain, &loss),
                     ND_ERROR_INVALID_ARGUMENT);
    assert_error(ND_ERROR_INVALID_ARGUMENT, "output 1");
    assert_null(loss);
    assert_true(nd_is_grad_enabled());
}

static void test_outputs_that_belong_to_somebody(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *plain = make_vector(VALUES(1, 2));
    nd_auto nd_object *context = new_context();
    const int cases[] = {GOOD, RETURNS_ITS_INPUT, RETURNS_ONE_TENSOR_TWICE};
    for (int i = 0; i < 3; i++) {
        nd_tensor *loss = NULL;
        assert_ok(apply_hostile(context, cases[i], x, plain, &loss));
        assert_ok(nd_backward(loss, NULL));
        assert_values(nd_get_grad(x), VALUES(2.0 * (i + 1), 2.0 * (i + 1)));
        assert_null(nd_get_grad(plain));
        assert_true(nd_is_leaf(x));
        nd_release(loss);
    }
}

static void test_failing_backward(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    nd_auto nd_tensor *plain = make_vector(VALUES(1, 2));
    nd_auto nd_object *context = new_context();
    nd_tensor *loss = NULL;
    assert_ok(apply_hostile(context, BACKWARD_FAILS, x, plain, &loss));
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_UNSUPPORTED);
    assert_error(ND_ERROR_UNSUPPORTED, "hostile: backward");
    nd_release(loss);
    assert_ok(apply_hostile(context, BACKWARD_WRONG_SHAPE, x, plain, &loss));
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_SHAPE);
    assert_error(ND_ERROR_SHAPE, "hostile: the gradient that backward wrote for input 0");
    assert_null(nd_get_grad(x));
    nd_release(loss);
    assert_ok(apply_hostile(context, BACKWARD_GIVES_NOTHING, x, plain, &loss));
    assert_ok(nd_backward(loss, NULL));
    assert_null(nd_get_grad(x));
    nd_release(loss);
    // A tensor that backward keeps for itself is copied, not taken.
    nd_auto nd_tensor *kept = make_vector(VALUES(8, 9));
    nd_edge_set(&((context_data *)nd_object_get_data(context))->saved, kept);
    assert_ok(apply_hostile(context, BACKWARD_GIVES_ITS_OWN_TENSOR, x, plain, &loss));
    assert_ok(nd_backward(loss, NULL));
    assert_ok(nd_backward(loss, NULL));
    assert_values(nd_get_grad(x), VALUES(16, 18));
    assert_values(kept, VALUES(8, 9));
    nd_release(loss);
}

static nd_status double_forward(const nd_object *context, size_t ninputs,
                                const nd_tensor *const *inputs, size_t noutputs,
                                nd_tensor **ret_outputs) {
    (void)context, (void)ninputs, (void)noutputs;
    ret_outputs[0] = nd_mul_scalar(inputs[0], 2.0);
    return ret_outputs[0] ? ND_OK : nd_error_get_status();
}

/// Looks at nothing that it is given back. Its gradient of the second input is zero.
static nd_status careless_backward(const nd_object *context, size_t noutputs,
                                   const nd_tensor *const *grad_outputs, size_t ninputs,
                                   nd_tensor **ret_grad_inputs) {
    (void)context, (void)noutputs, (void)ninputs;
    assert_int_equal(nd_error_get_status(), ND_OK);
    nd_auto nd_tensor *other = nd_ones(ND_SHAPE(7), ND_F64);
    ret_grad_inputs[0] = nd_mul(grad_outputs[0], other);
    return ND_OK;
}

static nd_status careful_backward(const nd_object *context, size_t noutputs,
                                  const nd_tensor *const *grad_outputs, size_t ninputs,
                                  nd_tensor **ret_grad_inputs) {
    careless_backward(context, noutputs, grad_outputs, ninputs, ret_grad_inputs);
    assert_null(ret_grad_inputs[0]);
    nd_error_clear();
    return ND_OK;
}

static nd_status half_backward(const nd_object *context, size_t noutputs,
                               const nd_tensor *const *grad_outputs, size_t ninputs,
                               nd_tensor **ret_grad_inputs) {
    careless_backward(context, noutputs, grad_outputs, ninputs, ret_grad_inputs);
    ret_grad_inputs[0] = nd_mul_scalar(grad_outputs[0], 2.0);
    return ND_OK;
}

static nd_status unsaid_backward(const nd_object *context, size_t noutputs,
                                 const nd_tensor *const *grad_outputs, size_t ninputs,
                                 nd_tensor **ret_grad_inputs) {
    (void)context, (void)noutputs, (void)grad_outputs, (void)ninputs, (void)ret_grad_inputs;
    return ND_ERROR_SHAPE;
}

/// A NULL beside an error is no zero, whatever backward answers; what was made good is forgotten.
static void test_null_of_a_failure_is_not_zero(void **state) {
    (void)state;
    const nd_function careless = {sizeof(nd_function), 1, "careless", double_forward,
                                  careless_backward};
    const nd_function careful = {sizeof(nd_function), 1, "careful", double_forward,
                                 careful_backward};
    const nd_function half = {sizeof(nd_function), 1, "half", double_forward, half_backward};
    const nd_function unsaid = {sizeof(nd_function), 1, "unsaid", double_forward, unsaid_backward};
    const nd_function *functions[] = {&careless, &careful, &half, &unsaid};
    for (int i = 0; i < 4; i++) {
        nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
        nd_auto nd_tensor *unwanted = make_vector(VALUES(1, 2));
        nd_tensor *y = NULL;
        const nd_tensor *inputs[] = {x, unwanted};
        assert_ok(nd_function_apply(functions[i], NULL, 2, inputs, 1, &y));
        nd_auto nd_tensor *loss = total(y);
        nd_release(y);
        assert_null(nd_reshape(x, ND_SHAPE(3))); // an error that the thread has already
        char before[256];
        snprintf(before, sizeof before, "%s", nd_error_get_message());
        nd_status status = nd_backward(loss, NULL);
        if (i == 0 || i == 3) {
            assert_int_equal(status, ND_ERROR_SHAPE);
            assert_error(ND_ERROR_SHAPE, i == 0 ? "mul: shapes [2] and [7]"
                                                : "unsaid: backward answered ND_ERROR_SHAPE");
            assert_null(nd_get_grad(x));
            continue;
        }
        assert_int_equal(status, ND_OK);
        assert_string_equal(nd_error_get_message(), before);
        if (i == 1)
            assert_null(nd_get_grad(x));
        else
            assert_values(nd_get_grad(x), VALUES(2, 2));
        nd_error_clear();
    }
}

static void test_function_arguments(void **state) {
    (void)state;
    nd_auto nd_tensor *x = make_leaf(VALUES(1, 2));
    const nd_tensor *inputs[] = {x, NULL};
    nd_tensor *outputs[2] = {NULL};
    nd_function unknown = both;
    unknown.version = 7;
    nd_function nameless = both;
    nameless.name = NULL;
    const nd_status invalid = ND_ERROR_INVALID_ARGUMENT;
    assert_int_equal(nd_function_apply(NULL, NULL, 1, inputs, 1, outputs), invalid);
    assert_int_equal(nd_function_apply(&unknown, NULL, 1, inputs, 1, outputs), invalid);
    assert_int_equal(nd_function_apply(&nameless, NULL, 1, inputs, 1, outputs), invalid);
    assert_int_equal(nd_function_apply(&both, NULL, 2, inputs, 2, outputs), invalid);
    assert_int_equal(nd_function_apply(&both, NULL, 2, NULL, 2, outputs), invalid);
    assert_int_equal(nd_function_apply(&both, NULL, 1, inputs, 2, NULL), invalid);
    assert_int_equal(nd_function_apply(&both, NULL, 1, inputs, 0, outputs), invalid);
    nd_error_clear();
}

static nd_status forward_that_shares(const nd_object *context, size_t ninputs,
                                     const nd_tensor *const *inputs, size_t noutputs,
                                     nd_tensor **ret_outputs) {
    (void)ninputs;
    const context_data *data = nd_object_get_data(context);
    for (size_t i = 0; i < noutputs; i++) {
        ret_outputs[i] = data->what == 0   ? nd_retain(inputs[0])
                         : data->what == 1 ? nd_slice(inputs[0], 0, 3, 1, 0)
                         : i == 0          ? nd_clone(inputs[0])
                                           : nd_slice(ret_outputs[0], 0, 3, 1, 0);
        if (!ret_outputs[i])
            return nd_error_get_status();
    }
    return ND_OK;
}

static nd_status backward_that_adds(const nd_object *context, size_t noutputs,
                                    const nd_tensor *const *grad_outputs, size_t ninputs,
                                    nd_tensor **ret_grad_inputs) {
    (void)context, (void)ninputs;
    nd_tensor *sum = NULL;
    for (size_t i = 0; i < noutputs; i++)
        if (grad_outputs[i]) {
            nd_tensor *next = sum ? nd_add(sum, grad_outputs[i]) : nd_retain(grad_outputs[i]);
            nd_release(sum);
            sum = next;
        }
    ret_grad_inputs[0] = sum;
    return ND_OK;
}

static const nd_function sharing = {sizeof(nd_function), 1, "sharing", forward_that_shares,
                                    backward_that_adds};

/// A write to an output changes neither the input, nor another output, nor a leaf.
static void test_outputs_that_share_memory_are_copied(void **state) {
    (void)state;
    for (int what = 0; what < 3; what++)
        for (int of_leaf = 0; of_leaf < 2; of_leaf++) {
            nd_auto nd_object *context = new_context();
            ((context_data *)nd_object_get_data(context))->what = what;
            nd_auto nd_tensor *x = make_leaf(VALUES(1, 1, 1));
            nd_auto nd_tensor *b = of_leaf ? nd_retain(x) : nd_mul_scalar(x, 1);
            nd_tensor *y[2];
            const nd_tensor *inputs[] = {b};
            assert_ok(nd_function_apply(&sharing, context, 1, inputs, 2, y));
            assert_ok(nd_mul_scalar_(y[0], 3));
            assert_values(b, VALUES(1, 1, 1));
            assert_values(y[0], VALUES(3, 3, 3));
            assert_values(y[1], VALUES(1, 1, 1));
            nd_auto nd_tensor *square = nd_square(b), *both = nd_add(y[0], y[1]);
            nd_auto nd_tensor *all = nd_add(square, both), *loss = total(all);
            assert_ok(nd_backward(loss, NULL));
            assert_values(nd_get_grad(x), VALUES(6, 6, 6)); // 2 x + 3 + 1
            nd_release(y[0]);
            nd_release(y[1]);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G17_sibling_outputs_of_one_node),
        ND_TEST(test_two_outputs_pass_gradcheck),
        ND_TEST(test_G18_context_that_saves_its_own_output),
        ND_TEST(test_failing_forward),
        ND_TEST(test_outputs_that_belong_to_somebody),
        ND_TEST(test_failing_backward),
        ND_TEST(test_null_of_a_failure_is_not_zero),
        ND_TEST(test_function_arguments),
        ND_TEST(test_outputs_that_share_memory_are_copied),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
