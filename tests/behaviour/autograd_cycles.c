// Cycles that differentiation makes: G12, G15 to G18, and where gradients and optimizer state live
// (B22).
#include "tests/behaviour/helpers.h"
#include "tests/training.h"
#include <math.h>
#include <stdlib.h>

static nd_tensor *parameter(int64_t count, double value) {
    nd_tensor *x = nd_full(ND_SHAPE(count), value, ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    return x;
}

static double first_of(const nd_tensor *x) {
    nd_auto nd_tensor *flat = nd_reshape(x, ND_SHAPE(-1));
    nd_auto nd_tensor *first = nd_select(flat, 0, 0);
    return nd_get_item(first);
}

/// What is alive now, to be compared with what is alive later.
typedef struct level {
    uint64_t objects, bytes;
} level;

static level level_now(void) {
    return (level){nd_manager_get_total_objects(NULL), nd_manager_get_total_bytes(NULL)};
}

static void assert_level(level expected) {
    level now = level_now();
    assert_int_equal(now.objects, expected.objects);
    assert_int_equal(now.bytes, expected.bytes);
}

// --------------------------------------------------------------------------------------------- G12

static int hook_calls;

static nd_tensor *counting_hook(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    (void)context;
    hook_calls++;
    return NULL;
}

static void test_G12_hook_that_captured_its_leaf(void **state) {
    (void)state;
    level before = level_now();
    nd_tensor *x = parameter(1000, 2);
    assert_ok(nd_register_hook(x, counting_hook, x));
    assert_int_equal(collect(NULL).collected_objects, 0);
    hook_calls = 0;
    nd_tensor *y = nd_sum(x, 0, NULL, false);
    assert_ok(nd_backward(y, NULL));
    assert_int_equal(hook_calls, 1);
    nd_release(y);
    nd_release(x);
    assert_true(nd_manager_get_total_bytes(NULL) - before.bytes >= 8000); // it holds itself
    assert_true(collect(NULL).collected_objects >= 2);
    assert_level(before);
}

static void test_G12_hook_that_captured_its_result(void **state) {
    (void)state;
    level before = level_now();
    nd_tensor *x = parameter(1000, 2);
    nd_tensor *y = nd_mul(x, x);
    assert_ok(nd_register_hook(y, counting_hook, y));
    nd_release(x);
    nd_release(y);
    assert_true(nd_manager_get_total_objects(NULL) > before.objects);
    collect(NULL);
    assert_level(before);
}

static void test_G12_removed_hook_leaves_no_cycle(void **state) {
    (void)state;
    level before = level_now();
    nd_tensor *x = parameter(10, 2);
    assert_ok(nd_register_hook(x, counting_hook, x));
    assert_ok(nd_register_hook(x, counting_hook, x));
    assert_ok(nd_remove_hooks(x));
    nd_release(x);
    assert_level(before);
}

static void test_G12_callback_context_of_a_user_type(void **state) {
    (void)state;
    cell_begin(1);
    level before = level_now();
    nd_tensor *x = parameter(10, 2);
    nd_object *closure = cell_new(0, 2);
    cell_link(closure, 0, x);
    assert_ok(nd_register_hook(x, counting_hook, closure));
    nd_release(closure);
    assert_int_equal(collect(NULL).collected_objects, 0);
    nd_release(x);
    assert_int_equal(cell_deaths(0), 0);
    collect(NULL);
    assert_int_equal(cell_deaths(0), 1);
    assert_level(before);
}

// --------------------------------------------------------------------------------------------- G15

static void test_G15_parameter_and_gradient_with_create_graph(void **state) {
    (void)state;
    for (int collected = 0; collected < 2; collected++) {
        level before = level_now();
        nd_manager *step = nd_manager_new(NULL, "step");
        assert_ok(nd_manager_set_gc_mode(step, collected ? ND_GC_ON : ND_GC_OFF));
        nd_with_manager(step) {
            nd_auto nd_tensor *x = parameter(1000, 3);
            nd_auto nd_tensor *square = nd_mul(x, x);
            nd_auto nd_tensor *cube = nd_mul(square, x);
            nd_auto nd_tensor *y = nd_sum(cube, 0, NULL, false);
            nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
            options.create_graph = true;
            assert_ok(nd_backward(y, &options));
            const nd_tensor *grad = nd_get_grad(x);
            assert_handle(grad);
            assert_true(nd_requires_grad(grad)); // it has a history, which leads back to x
            assert_float_equal(first_of(grad), 27, 1e-9);
            nd_auto nd_tensor *z = nd_sum(grad, 0, NULL, false);
            nd_tensor *second = NULL;
            assert_ok(nd_grad(z, 1, (const nd_tensor *const[]){x}, NULL, &second));
            assert_float_equal(first_of(second), 18, 1e-9);
            nd_release(second);
        }
        nd_close_report report = ND_CLOSE_REPORT_INIT;
        assert_ok(nd_manager_close(step, &report));
        nd_release(step);
        if (collected) {
            assert_int_equal(report.escaped_objects, 0);
            assert_true(report.collected_objects > 2);
            assert_true(report.collected_bytes >= 16000);
        } else {
            assert_int_equal(report.collected_objects, 0);
            assert_true(report.escaped_bytes >= 16000);
            assert_true(collect(NULL).collected_objects > 2);
        }
        assert_level(before);
    }
}

static void test_G15_without_create_graph_there_is_no_cycle(void **state) {
    (void)state;
    level before = level_now();
    nd_tensor *x = parameter(100, 3);
    for (int i = 0; i < 3; i++) {
        nd_auto nd_tensor *square = nd_mul(x, x);
        nd_auto nd_tensor *y = nd_sum(square, 0, NULL, false);
        assert_ok(nd_backward(y, NULL));
    }
    assert_float_equal(first_of(nd_get_grad(x)), 18, 1e-9);
    assert_false(nd_requires_grad(nd_get_grad(x)));
    nd_release(x);
    assert_level(before);
}

static void test_G15_grad_of_grad_leaves_no_cycle_when_nothing_is_accumulated(void **state) {
    (void)state;
    level before = level_now();
    nd_tensor *x = parameter(100, 3);
    {
        nd_auto nd_tensor *square = nd_mul(x, x);
        nd_auto nd_tensor *y = nd_sum(square, 0, NULL, false);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = true;
        nd_tensor *first = NULL;
        assert_ok(nd_grad(y, 1, (const nd_tensor *const[]){x}, &options, &first));
        assert_float_equal(first_of(first), 6, 1e-9);
        nd_release(first);
    }
    nd_release(x);
    assert_level(before);
}

/// Few elements lie in the parameter's own block, which what shares them keeps.
static void test_G15_data_of_collected_parameters_outlive_them(void **state) {
    (void)state;
    level before = level_now();
    for (int64_t count = 1; count <= 64; count *= 2) {
        nd_tensor *x = parameter(count, 3);
        nd_tensor *alias = nd_detach(x);
        assert_ok(nd_register_hook(x, counting_hook, x));
        nd_auto nd_tensor *square = nd_mul(x, x);
        nd_auto nd_tensor *y = nd_sum(square, 0, NULL, false);
        nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
        options.create_graph = true;
        assert_ok(nd_backward(y, &options));
        nd_release(nd_steal(&square));
        nd_release(nd_steal(&y));
        nd_release(x);
        assert_true(collect(NULL).collected_objects > 2);
        // What comes to lie where the garbage was must not be seen through the alias, nor be marked
        // when the alias ends.
        enum { OTHERS = 200 };
        nd_tensor *others[OTHERS];
        for (int i = 0; i < OTHERS; i++)
            others[i] = parameter(count, 7);
        assert_float_equal(first_of(alias), 3, 0);
        assert_ok(nd_fill_(alias, 5));
        nd_release(alias);
        for (int i = 0; i < OTHERS; i++) {
            assert_float_equal(first_of(others[i]), 7, 0);
            nd_release(others[i]);
        }
        assert_level(before);
    }
}

// ------------------------------------------------------------------------------------- G16 to G18

static void test_G16_in_place_operation_whose_node_saves_the_tensor(void **state) {
    (void)state;
    level before = level_now();
    nd_tensor *x = parameter(10, 3), *w = parameter(10, 5);
    nd_tensor *y = nd_mul_scalar(x, 2);
    assert_ok(nd_mul_(y, w)); // its node saves the old y and w, and y is its result
    nd_tensor *sum = nd_sum(y, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    assert_float_equal(first_of(nd_get_grad(x)), 10, 1e-9);
    assert_float_equal(first_of(nd_get_grad(w)), 6, 1e-9);
    nd_release(sum);
    assert_ok(nd_register_hook(y, counting_hook, y));
    nd_release(y);
    nd_release(w);
    nd_release(x);
    collect(NULL);
    assert_level(before);
}

static void test_G16_in_place_with_itself(void **state) {
    (void)state;
    level before = level_now();
    nd_tensor *x = parameter(10, 3);
    nd_tensor *y = nd_mul_scalar(x, 2);
    assert_ok(nd_mul_(y, y)); // 4 x^2
    nd_tensor *sum = nd_sum(y, 0, NULL, false);
    assert_ok(nd_backward(sum, NULL));
    assert_float_equal(first_of(nd_get_grad(x)), 24, 1e-9);
    nd_release(sum);
    nd_release(y);
    nd_release(x);
    collect(NULL);
    assert_level(before);
}

/// Two outputs: 2 x and 3 x. With a context, its first edge keeps the first output.
static nd_status twofold_forward(const nd_object *context, size_t ninputs,
                                 const nd_tensor *const *inputs, size_t noutputs,
                                 nd_tensor **ret_outputs) {
    (void)context;
    if (ninputs != 1 || noutputs != 2)
        return ND_ERROR_INVALID_ARGUMENT;
    ret_outputs[0] = nd_mul_scalar(inputs[0], 2);
    ret_outputs[1] = nd_mul_scalar(inputs[0], 3);
    return ret_outputs[0] && ret_outputs[1] ? ND_OK : nd_error_get_status();
}

static nd_status twofold_backward(const nd_object *context, size_t noutputs,
                                  const nd_tensor *const *grad_outputs, size_t ninputs,
                                  nd_tensor **ret_grad_inputs) {
    (void)context;
    if (ninputs != 1 || noutputs != 2)
        return ND_ERROR_INVALID_ARGUMENT;
    nd_auto nd_tensor *first = grad_outputs[0] ? nd_mul_scalar(grad_outputs[0], 2) : NULL;
    nd_auto nd_tensor *second = grad_outputs[1] ? nd_mul_scalar(grad_outputs[1], 3) : NULL;
    if (first && second)
        ret_grad_inputs[0] = nd_add(first, second);
    else
        ret_grad_inputs[0] = nd_retain(first ? first : second);
    return ND_OK;
}

static const nd_function twofold = {
    .size = sizeof(nd_function),
    .version = 1,
    .name = "twofold",
    .forward = twofold_forward,
    .backward = twofold_backward,
};

static void apply_twofold(const nd_object *context, const nd_tensor *x, nd_tensor **ret_outputs) {
    assert_ok(
        nd_function_apply(&twofold, context, 1, (const nd_tensor *const[]){x}, 2, ret_outputs));
    assert_string_equal(nd_node_get_name(nd_get_node(ret_outputs[1])), "twofold");
}

static void test_G17_sibling_outputs_of_one_node(void **state) {
    (void)state;
    level before = level_now();
    nd_tensor *x = parameter(10, 1), *outputs[2];
    apply_twofold(NULL, x, outputs);
    assert_ptr_equal(nd_get_node(outputs[0]), nd_get_node(outputs[1]));
    nd_tensor *sum = nd_add(outputs[0], outputs[1]);
    nd_tensor *total = nd_sum(sum, 0, NULL, false);
    assert_ok(nd_backward(total, NULL));
    assert_float_equal(first_of(nd_get_grad(x)), 5, 1e-9);
    nd_release(total);
    nd_release(sum);
    // One sibling goes, the other still works.
    nd_release(outputs[0]);
    total = nd_sum(outputs[1], 0, NULL, false);
    assert_ok(nd_zero_grad(x));
    assert_ok(nd_backward(total, NULL));
    assert_float_equal(first_of(nd_get_grad(x)), 3, 1e-9);
    nd_release(total);
    nd_release(outputs[1]);
    nd_release(x);
    assert_level(before);

    // Siblings that hold each other through their common node.
    x = parameter(10, 1);
    apply_twofold(NULL, x, outputs);
    assert_ok(nd_register_hook(outputs[0], counting_hook, outputs[1]));
    assert_ok(nd_register_hook(outputs[1], counting_hook, outputs[0]));
    nd_release(x);
    nd_release(outputs[0]);
    assert_int_equal(collect(NULL).collected_objects, 0);
    nd_release(outputs[1]);
    assert_true(collect(NULL).collected_objects >= 3);
    assert_level(before);
}

static void test_G18_user_function_whose_context_saves_its_own_output(void **state) {
    (void)state;
    level before = level_now();
    cell_begin(1);
    nd_tensor *x = parameter(1000, 1), *outputs[2];
    nd_object *context = cell_new(0, 2);
    apply_twofold(context, x, outputs);
    cell_link(context, 0, outputs[0]);
    nd_release(context);
    nd_release(x);
    nd_release(outputs[1]);
    assert_int_equal(collect(NULL).collected_objects, 0);
    nd_tensor *sum = nd_sum(outputs[0], 0, NULL, false);
    assert_true(nd_get_item(sum) == 2000.0);
    nd_release(sum);
    nd_release(outputs[0]);
    assert_int_equal(cell_deaths(0), 0);
    assert_true(collect(NULL).collected_objects >= 3);
    assert_int_equal(cell_deaths(0), 1);
    assert_level(before);
}

// --------------------------------------------------------------------------------------------- B22

static void train_a_step(const nd_module *module, nd_optimizer *optimizer) {
    nd_auto nd_tensor *x = nd_rand(nd_key_new(7), ND_SHAPE(4, 8), ND_F32);
    nd_auto nd_tensor *target = nd_zeros(ND_SHAPE(4), ND_I64);
    assert_ok(nd_optimizer_zero_grad(optimizer));
    nd_auto nd_tensor *logits = nd_module_forward(module, x);
    nd_auto nd_tensor *loss = nd_cross_entropy(logits, target);
    assert_handle(loss);
    assert_ok(nd_backward(loss, NULL));
    assert_ok(nd_optimizer_step(optimizer));
}

static void test_B22_gradients_and_optimizer_state_live_with_their_parameter(void **state) {
    (void)state;
    for (int which = 0; which < 2; which++) {
        level before = level_now();
        nd_manager *model = nd_manager_new(NULL, "model");
        nd_module *module = NULL;
        nd_with_manager(model) {
            module = ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 8, 16, true), nd_relu_module(),
                                   nd_linear_module(nd_key_new(2), 16, 3, true));
        }
        assert_handle(module);
        uint64_t parameter_bytes = nd_manager_get_total_bytes(model);
        // The optimizer is made elsewhere; its state belongs to the parameters all the same.
        nd_optimizer *optimizer =
            which ? adam_of(module, 0.1, 0.9, 0.999, 1e-8, 0) : sgd_of(module, 0.1, 0.9, 0);
        assert_handle(optimizer);
        uint64_t after_first_step = 0;
        for (int i = 0; i < 5; i++) {
            nd_manager *step = nd_manager_new(NULL, "step");
            nd_with_manager(step) {
                train_a_step(module, optimizer);
            }
            nd_close_report report = ND_CLOSE_REPORT_INIT;
            assert_ok(nd_manager_close(step, &report));
            nd_release(step);
            assert_int_equal(report.escaped_objects, 0);
            if (i == 0)
                after_first_step = nd_manager_get_total_bytes(model);
            assert_int_equal(nd_manager_get_total_bytes(model), after_first_step);
        }
        // Parameters, gradients, and one or two moments each.
        assert_int_equal(after_first_step, parameter_bytes * (which ? 4 : 3));
        for (size_t i = 0; i < nd_module_get_parameter_count(module); i++) {
            const char *name;
            const nd_tensor *p = nd_module_get_parameter_at(module, i, &name);
            assert_ptr_equal(nd_get_manager(p), model);
            assert_ptr_equal(nd_get_manager(nd_get_grad(p)), model);
        }
        nd_release(optimizer);
        nd_release(module);
        assert_int_equal(nd_manager_get_total_bytes(model), 0);
        nd_release(model);
        assert_level(before);
    }
}

static nd_tensor *loss_in_closing;
static int passes_in_closing;

static void differentiate(nd_object *self) {
    (void)self;
    assert_ok(nd_backward(loss_in_closing, NULL));
    passes_in_closing++;
}

/// The finalizer of garbage finds the leaf still in a manager that closes, as another thread may.
static void test_B22_gradient_of_a_leaf_whose_manager_closes(void **state) {
    (void)state;
    level before = level_now();
    cell_begin(1);
    cell_on_finalize = differentiate;
    passes_in_closing = 0;
    nd_manager *manager = manager_new(NULL, "closing");
    assert_ok(nd_manager_set_gc_mode(manager, ND_GC_ON));
    nd_tensor *x = NULL;
    nd_with_manager(manager) {
        x = parameter(4, 3);
        nd_auto nd_tensor *y = nd_mul(x, x);
        loss_in_closing = nd_sum(y, 0, NULL, false);
        nd_auto nd_object *garbage = cell_new_of(&cell_finalized_type, 0, 1);
        cell_link(garbage, 0, garbage);
    }
    close_and_release(manager);
    assert_int_equal(passes_in_closing, 1);
    assert_handle(nd_get_grad(x));
    assert_true(first_of(nd_get_grad(x)) == 6);
    assert_ptr_equal(nd_get_manager(x), nd_manager_get_root());
    assert_ptr_equal(nd_get_manager(nd_get_grad(x)), nd_manager_get_root());
    nd_release(loss_in_closing);
    nd_release(x);
    assert_level(before);
    cell_end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_G12_hook_that_captured_its_leaf),
        ND_TEST(test_G12_hook_that_captured_its_result),
        ND_TEST(test_G12_removed_hook_leaves_no_cycle),
        ND_TEST(test_G12_callback_context_of_a_user_type),
        ND_TEST(test_G15_parameter_and_gradient_with_create_graph),
        ND_TEST(test_G15_without_create_graph_there_is_no_cycle),
        ND_TEST(test_G15_grad_of_grad_leaves_no_cycle_when_nothing_is_accumulated),
        ND_TEST(test_G15_data_of_collected_parameters_outlive_them),
        ND_TEST(test_G16_in_place_operation_whose_node_saves_the_tensor),
        ND_TEST(test_G16_in_place_with_itself),
        ND_TEST(test_G17_sibling_outputs_of_one_node),
        ND_TEST(test_G18_user_function_whose_context_saves_its_own_output),
        ND_TEST(test_B22_gradients_and_optimizer_state_live_with_their_parameter),
        ND_TEST(test_B22_gradient_of_a_leaf_whose_manager_closes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
