// Activation checkpointing: gradients to the bit, keys and buffers as in one run, memory.
#include "tests/unit/io/files.h"

enum { WIDTH = 16, DEPTH = 6 };

/// Linear, norm, dropout, tanh: what draws keys and has buffers.
static nd_module *new_block(uint64_t seed) {
    return ND_SEQUENTIAL(nd_linear_module(nd_key_new(seed), WIDTH, WIDTH, true),
                         nd_batch_norm_module(WIDTH, NULL),
                         nd_dropout_module(nd_key_new(seed + 100), 0.3), nd_tanh_module());
}

static nd_module *new_net(void) {
    nd_module *blocks[DEPTH];
    for (int i = 0; i < DEPTH; i++)
        blocks[i] = new_block((uint64_t)i);
    nd_module *net = nd_sequential(DEPTH, blocks);
    assert_handle(net);
    return net;
}

/// sum(net(x)^2), block by block.
static nd_tensor *loss_of(const nd_module *net, const nd_tensor *x, bool checkpointed) {
    nd_tensor *y = nd_retain(x);
    for (size_t i = 0; i < DEPTH; i++) {
        const nd_module *block = nd_module_get_child(net, i);
        nd_tensor *next =
            checkpointed ? nd_checkpoint_module(block, y) : nd_module_forward(block, y);
        assert_handle(next);
        nd_release(y);
        y = next;
    }
    nd_auto nd_tensor *square = nd_square(y);
    nd_tensor *loss = nd_sum(square, 0, NULL, false);
    nd_release(y);
    return loss;
}

static void assert_same_bits(const nd_tensor *a, const nd_tensor *b) {
    assert_true(a && b);
    assert_int_equal(nd_get_numel(a), nd_get_numel(b));
    assert_memory_equal(nd_get_data(a), nd_get_data(b),
                        (size_t)nd_get_numel(a) * nd_dtype_get_size(nd_get_dtype(a)));
}

static void test_gradients_buffers_and_keys_are_those_of_one_run(void **state) {
    (void)state;
    nd_auto nd_module *plain = new_net();
    nd_auto nd_module *kept = new_net();
    for (int step = 0; step < 2; step++) {
        nd_auto nd_tensor *x = nd_randn(nd_key_new(9), ND_SHAPE(8, WIDTH), ND_F32);
        nd_auto nd_tensor *z = nd_clone(x);
        assert_ok(nd_set_requires_grad(x, true));
        assert_ok(nd_set_requires_grad(z, true));
        nd_auto nd_tensor *a = loss_of(plain, x, false);
        nd_auto nd_tensor *b = loss_of(kept, z, true);
        assert_same_bits(a, b);
        assert_ok(nd_backward(a, NULL));
        assert_ok(nd_backward(b, NULL));
        assert_same_bits(nd_get_grad(x), nd_get_grad(z));
        for (size_t i = 0; i < nd_module_get_parameter_count(plain); i++)
            assert_same_bits(nd_get_grad(nd_module_get_parameter_at(plain, i, NULL)),
                             nd_get_grad(nd_module_get_parameter_at(kept, i, NULL)));
        for (size_t i = 0; i < nd_module_get_buffer_count(plain); i++)
            assert_same_bits(nd_module_get_buffer_at(plain, i, NULL),
                             nd_module_get_buffer_at(kept, i, NULL));
    }
}

static nd_tensor *cube(const nd_object *context, size_t count, const nd_tensor *const *inputs) {
    (void)context;
    assert_int_equal(count, 2);
    nd_auto nd_tensor *square = nd_square(inputs[0]);
    nd_auto nd_tensor *product = nd_mul(square, inputs[0]);
    return nd_mul(product, inputs[1]);
}

static nd_tensor *checkpointed_cube(size_t count, const nd_tensor *const *inputs, void *data) {
    (void)data;
    nd_auto nd_tensor *before[] = {nd_mul_scalar(inputs[0], 2)}; // an input with history
    const nd_tensor *given[] = {before[0], inputs[1]};
    return nd_checkpoint(cube, NULL, count, given);
}

static void test_gradients_of_first_and_second_order(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_linspace(-1, 1.5, 5, ND_F64);
    nd_auto nd_tensor *w = nd_linspace(0.5, 2, 5, ND_F64);
    assert_ok(nd_set_requires_grad(x, true));
    assert_ok(nd_set_requires_grad(w, true));
    const nd_tensor *inputs[] = {x, w};
    assert_ok(nd_gradcheck(checkpointed_cube, NULL, 2, inputs, 1, 1e-6, 1e-4));
    assert_ok(nd_gradcheck(checkpointed_cube, NULL, 2, inputs, 2, 1e-5, 1e-3));
}

static nd_tensor *checkpointed_twice(const nd_object *context, size_t count,
                                     const nd_tensor *const *inputs) {
    (void)count;
    const nd_module *net = (const nd_module *)context;
    nd_auto nd_tensor *y = nd_checkpoint_module(nd_module_get_child(net, 0), inputs[0]);
    return nd_checkpoint_module(nd_module_get_child(net, 1), y);
}

static void test_checkpoints_inside_a_checkpoint(void **state) {
    (void)state;
    nd_auto nd_module *plain = new_net();
    nd_auto nd_module *kept = new_net();
    nd_auto nd_tensor *x = nd_randn(nd_key_new(9), ND_SHAPE(8, WIDTH), ND_F32);
    nd_auto nd_tensor *z = nd_clone(x);
    assert_ok(nd_set_requires_grad(x, true));
    assert_ok(nd_set_requires_grad(z, true));
    nd_auto nd_tensor *first = nd_module_forward(nd_module_get_child(plain, 0), x);
    nd_auto nd_tensor *second = nd_module_forward(nd_module_get_child(plain, 1), first);
    nd_auto nd_tensor *a = nd_sum(second, 0, NULL, false);
    const nd_tensor *inputs[] = {z};
    nd_auto nd_tensor *inner = nd_checkpoint(checkpointed_twice, kept, 1, inputs);
    nd_auto nd_tensor *b = nd_sum(inner, 0, NULL, false);
    assert_ok(nd_backward(a, NULL));
    assert_ok(nd_backward(b, NULL));
    assert_same_bits(a, b);
    assert_same_bits(nd_get_grad(x), nd_get_grad(z));
}

static nd_tensor *double_gradient(const nd_tensor *gradient, const nd_object *context) {
    (void)context;
    return nd_mul_scalar(gradient, 2);
}

/// w (w x) of one weight: x of the second call comes from it, too.
static double gradient_of_two_uses(bool checkpointed, bool create_graph, bool hooked) {
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 1, 1, false);
    assert_ok(nd_module_cast(module, ND_F64));
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(module, "weight"));
    nd_no_grad assert_ok(nd_fill_(weight, 3));
    if (hooked)
        assert_true(nd_register_hook(weight, double_gradient, NULL) == ND_OK);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 1), ND_F64);
    nd_tensor *(*run)(const nd_module *, const nd_tensor *) =
        checkpointed ? nd_checkpoint_module : nd_module_forward;
    nd_auto nd_tensor *first = run(module, x);
    nd_auto nd_tensor *second = run(module, first);
    nd_auto nd_tensor *sum = nd_sum(second, 0, NULL, false);
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = create_graph;
    assert_ok(nd_backward(sum, &options));
    double gradient = nd_get_item(nd_get_grad(weight));
    nd_zero_grad(weight); // cuts the cycle of create_graph
    return gradient;
}

/// Its gradient is 2 w = 6, and a hook is called once with all of it.
static void test_a_module_that_is_used_twice(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++)
        assert_true(gradient_of_two_uses(i & 1, i & 2, i & 4) == (i & 4 ? 12 : 6));
}

static void test_less_is_kept(void **state) {
    (void)state;
    nd_auto nd_module *net = new_net();
    nd_auto nd_tensor *x = nd_randn(nd_key_new(9), ND_SHAPE(512, WIDTH), ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    uint64_t bytes = nd_manager_get_total_bytes(NULL);
    nd_tensor *plain = loss_of(net, x, false);
    const uint64_t whole = nd_manager_get_total_bytes(NULL) - bytes;
    nd_release(plain);
    bytes = nd_manager_get_total_bytes(NULL);
    nd_tensor *kept = loss_of(net, x, true);
    const uint64_t less = nd_manager_get_total_bytes(NULL) - bytes;
    print_message("kept for the backward pass: %llu bytes, with checkpoints %llu\n",
                  (unsigned long long)whole, (unsigned long long)less);
    assert_true(less * 3 < whole * 2);
    assert_true(less >= (DEPTH - 1) * 512 * WIDTH * sizeof(float));
    assert_ok(nd_backward(kept, NULL));
    nd_release(kept);
}

static nd_tensor *failing(const nd_object *context, size_t count, const nd_tensor *const *inputs) {
    (void)context;
    (void)count;
    nd_auto nd_tensor *wrong = nd_zeros(ND_SHAPE(3, 7), ND_F32);
    return nd_matmul(inputs[0], wrong);
}

/// A square; from the second run on, its sum.
static nd_tensor *unsteady(const nd_object *context, size_t count, const nd_tensor *const *inputs) {
    static int runs;
    (void)context, (void)count;
    nd_auto nd_tensor *square = nd_square(inputs[0]);
    return runs++ ? nd_sum(square, 0, NULL, false) : nd_retain(square);
}

static void test_a_function_that_gives_another_shape_is_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *y = nd_checkpoint(unsteady, NULL, 1, (const nd_tensor *[]){x});
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "float32 of shape [] when it was run again");
}

static void test_what_is_refused(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 2), ND_F32);
    nd_auto nd_tensor *w = nd_ones(ND_SHAPE(2, 2), ND_F32);
    assert_ok(nd_set_requires_grad(w, true));
    const nd_tensor *inputs[] = {x, w};
    assert_null(nd_checkpoint(failing, NULL, 2, inputs));
    assert_failed(ND_ERROR_SHAPE, "matmul");
    assert_null(nd_checkpoint(NULL, NULL, 2, inputs));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "function is NULL");
    assert_null(nd_checkpoint_module(NULL, x));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "module is NULL");
    nd_auto nd_tensor *y = nd_checkpoint(cube, NULL, 2, inputs);
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    assert_ok(nd_fill_(x, 3)); // after the first run
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "input 0 was changed in place");
    assert_null(nd_get_grad(w));
}

static nd_tensor *gives_nothing(const nd_object *context, size_t count,
                                const nd_tensor *const *inputs) {
    (void)context, (void)count;
    static int runs;
    return runs++ ? NULL : nd_square(inputs[0]);
}

static void test_a_function_that_gives_nothing_is_an_error(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    const nd_tensor *inputs[] = {x};
    nd_auto nd_tensor *y = nd_checkpoint(gives_nothing, NULL, 1, inputs);
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    assert_int_equal(nd_backward(loss, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "gave no result");
    assert_null(nd_get_grad(x));
    assert_null(nd_checkpoint(gives_nothing, NULL, 1, inputs));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "gave no result");
}

/// The input itself: not the leaf, which the next write would change.
static void test_a_module_that_gives_its_input(void **state) {
    (void)state;
    nd_auto nd_module *dropout = nd_dropout_module(nd_key_new(1), 0.5);
    assert_ok(nd_module_set_training(dropout, false));
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    nd_auto nd_tensor *y = nd_checkpoint_module(dropout, x);
    assert_ok(nd_mul_scalar_(y, 3));
    assert_true(((const float *)nd_get_data(x))[0] == 1);
    nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
    assert_ok(nd_backward(loss, NULL));
    assert_true(((const float *)nd_get_data(nd_get_grad(x)))[0] == 3);
}

static nd_tensor *forward_of_one(const nd_module *module, const nd_tensor *x) {
    return nd_mul(x, nd_module_get_parameter(module, "used"));
}
static const nd_module_type type_of_one = {sizeof(nd_module_type), 1, "one", forward_of_one};
static nd_tensor *forward_of_two(const nd_module *module, const nd_tensor *x) {
    return nd_checkpoint_module(nd_module_get_child(module, 0), x);
}
static const nd_module_type type_of_two = {sizeof(nd_module_type), 1, "two", forward_of_two};

/// No gradient, and not one of zeros, with which an optimizer would make a step.
static void test_what_is_not_used_has_no_gradient(void **state) {
    (void)state;
    nd_auto nd_module *one = nd_module_new(&type_of_one, NULL, 0);
    nd_auto nd_module *two = nd_module_new(&type_of_two, NULL, 0);
    nd_auto nd_tensor *used = nd_ones(ND_SHAPE(3), ND_F32), *unused = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_set_requires_grad(used, true));
    assert_ok(nd_set_requires_grad(unused, true));
    assert_ok(nd_module_add_parameter(one, "used", used));
    assert_ok(nd_module_add_parameter(one, "unused", unused));
    assert_ok(nd_module_add_child(two, "inner", one));
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(3), ND_F32);
    for (int depth = 0; depth < 3; depth++) {
        nd_auto nd_tensor *y = depth == 0   ? nd_module_forward(one, x)
                               : depth == 1 ? nd_checkpoint_module(one, x)
                                            : nd_checkpoint_module(two, x);
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        assert_ok(nd_backward(loss, NULL));
        assert_non_null(nd_get_grad(used));
        assert_null(nd_get_grad(unused));
    }
}

static int hooked, nested_calls;
static nd_tensor *count_calls(const nd_tensor *gradient, const nd_object *context) {
    (void)gradient, (void)context;
    nested_calls++;
    return NULL;
}

/// A pass of its own: zeros for what gives none, and hooks of leaves run, as without a checkpoint.
static nd_tensor *pass_in_hook(const nd_tensor *gradient, const nd_object *context) {
    (void)gradient, (void)context;
    nd_enable_grad {
        nd_auto nd_tensor *leaf = nd_ones(ND_SHAPE(2), ND_F32);
        nd_set_requires_grad(leaf, true);
        nd_register_hook(leaf, count_calls, NULL);
        nd_auto nd_tensor *square = nd_square(leaf), *sum = nd_sum(square, 0, NULL, false);
        hooked += nd_backward(sum, NULL) == ND_OK;
        nd_auto nd_module *identity = nd_relu_module();
        nd_auto nd_tensor *y = nd_checkpoint_module(identity, leaf);
        nd_auto nd_tensor *z = nd_mul_scalar(y, 2), *total = nd_sum(z, 0, NULL, false);
        const nd_tensor *inputs[] = {leaf};
        nd_tensor *grad = NULL;
        hooked += nd_grad(total, 1, inputs, NULL, &grad) == ND_OK && grad;
        nd_release(grad);
    }
    return NULL;
}

static nd_tensor *forward_with_hook(const nd_module *module, const nd_tensor *x) {
    (void)module;
    nd_auto nd_tensor *y = nd_mul_scalar(x, 2);
    if (nd_requires_grad(y))
        nd_register_hook(y, pass_in_hook, NULL);
    return nd_square(y);
}
static const nd_module_type type_with_hook = {sizeof(nd_module_type), 1, "hooked",
                                              forward_with_hook};

static void test_passes_inside_a_checkpoint_are_the_programs(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_module_new(&type_with_hook, NULL, 0);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2), ND_F32);
    assert_ok(nd_set_requires_grad(x, true));
    int plain_calls = 0;
    for (int checkpointed = 0; checkpointed < 2; checkpointed++) {
        hooked = nested_calls = 0;
        nd_auto nd_tensor *y =
            checkpointed ? nd_checkpoint_module(module, x) : nd_module_forward(module, x);
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        assert_ok(nd_backward(loss, NULL));
        assert_int_equal(hooked, 2);
        assert_true(nested_calls > 0 && (!checkpointed || nested_calls == plain_calls));
        plain_calls = nested_calls;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_gradients_buffers_and_keys_are_those_of_one_run),
        ND_TEST(test_gradients_of_first_and_second_order),
        ND_TEST(test_checkpoints_inside_a_checkpoint),
        ND_TEST(test_a_module_that_is_used_twice),
        ND_TEST(test_less_is_kept),
        ND_TEST(test_what_is_refused),
        ND_TEST(test_a_function_that_gives_another_shape_is_refused),
        ND_TEST(test_a_function_that_gives_nothing_is_an_error),
        ND_TEST(test_a_module_that_gives_its_input),
        ND_TEST(test_what_is_not_used_has_no_gradient),
        ND_TEST(test_passes_inside_a_checkpoint_are_the_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
