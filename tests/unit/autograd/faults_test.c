// F05: every n-th allocation inside backward fails, n = 1 ... until the pass succeeds. Each failure
// is a clear error, leaves every gradient as it was, and leaks nothing.
#include "tests/unit/autograd/support.h"

#include "lib/base/alloc.h"

static uint64_t allocations_left;

static bool fail_at_zero(size_t bytes) {
    (void)bytes;
    if (allocations_left == 0)
        return true;
    allocations_left--;
    return false;
}

/// Runs `work` with its n-th and every later allocation failing, for n = 0, 1, ... until it
/// succeeds; `check` runs after every failure.
static void until_it_works(nd_status (*work)(void *data), void (*check)(void *data), void *data) {
    for (uint64_t allowed = 0;; allowed++) {
        assert_true(allowed < 10000);
        allocations_left = allowed;
        nd__alloc_should_fail = fail_at_zero;
        nd_status status = work(data);
        nd__alloc_should_fail = NULL;
        if (status == ND_OK) {
            assert_true(allowed > 0);
            return;
        }
        if (status != ND_ERROR_OUT_OF_MEMORY)
            fail_msg("%s: %s", nd_status_get_name(status), nd_error_get_message());
        assert_true(strlen(nd_error_get_message()) > 10);
        nd_error_clear();
        check(data);
    }
}

/// A small network with a hook, a user function, several paths and two outputs of one node.
typedef struct network {
    nd_tensor *x, *weight, *bias, *loss;
    nd_tensor *weight_grad_before;
    nd_tensor *results[2];
    bool create_graph;
} network;

static nd_status identity_forward(const nd_object *context, size_t ninputs,
                                  const nd_tensor *const *inputs, size_t noutputs,
                                  nd_tensor **ret_outputs) {
    (void)context, (void)ninputs, (void)noutputs;
    ret_outputs[0] = nd_clone(inputs[0]);
    ret_outputs[1] = nd_mul_scalar(inputs[0], 2.0);
    return ret_outputs[0] && ret_outputs[1] ? ND_OK : nd_error_get_status();
}

static nd_status identity_backward(const nd_object *context, size_t noutputs,
                                   const nd_tensor *const *grad_outputs, size_t ninputs,
                                   nd_tensor **ret_grad_inputs) {
    (void)context, (void)noutputs, (void)ninputs;
    nd_auto nd_tensor *second = nd_mul_scalar(grad_outputs[1], 2.0);
    ret_grad_inputs[0] = nd_add(grad_outputs[0], second);
    return ret_grad_inputs[0] ? ND_OK : nd_error_get_status();
}

static const nd_function identity = {sizeof(nd_function), 1, "identity", identity_forward,
                                     identity_backward};

static nd_tensor *keep(const nd_tensor *grad, const nd_object *context) {
    (void)grad, (void)context;
    return NULL;
}

static void build(network *net) {
    net->x = make_leaf(VALUES(1, 2, 3));
    net->weight = nd_rand(nd_key_new(3), ND_SHAPE(2, 3), ND_F64);
    assert_ok(nd_set_requires_grad(net->weight, true));
    net->bias = make_leaf(VALUES(0.5, -0.5));
    nd_auto nd_tensor *hidden = nd_linear(net->x, net->weight, net->bias);
    nd_auto nd_tensor *active = nd_tanh(hidden);
    const nd_tensor *input = active;
    nd_tensor *outputs[2] = {NULL};
    assert_ok(nd_function_apply(&identity, NULL, 1, &input, 2, outputs));
    nd_auto nd_tensor *product = nd_mul(outputs[0], outputs[1]);
    nd_auto nd_tensor *both = nd_add(product, active);
    net->loss = total(both);
    assert_ok(nd_register_hook(active, keep, NULL));
    assert_ok(nd_register_hook(net->weight, keep, NULL));
    nd_release(outputs[0]);
    nd_release(outputs[1]);
    // One leaf has a gradient already, the others have none.
    net->weight_grad_before = nd_ones(ND_SHAPE(2, 3), ND_F64);
    assert_ok(nd_set_grad(net->weight, net->weight_grad_before));
}

static void tear_down(network *net) {
    // A recorded gradient makes a cycle with its leaf: cut it.
    assert_ok(nd_zero_grad(net->x));
    assert_ok(nd_zero_grad(net->weight));
    assert_ok(nd_zero_grad(net->bias));
    nd_release(net->x);
    nd_release(net->weight);
    nd_release(net->bias);
    nd_release(net->loss);
    nd_release(net->weight_grad_before);
}

static nd_status run_backward(void *data) {
    network *net = data;
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = net->create_graph;
    return nd_backward(net->loss, &options);
}

static void gradients_are_unchanged(void *data) {
    network *net = data;
    assert_null(nd_get_grad(net->x));
    assert_null(nd_get_grad(net->bias));
    assert_ptr_equal(nd_get_grad(net->weight), net->weight_grad_before);
    assert_values(net->weight_grad_before, VALUES(1, 1, 1, 1, 1, 1));
}

static void test_F05_backward(void **state) {
    (void)state;
    network net = {.create_graph = false};
    build(&net);
    until_it_works(run_backward, gradients_are_unchanged, &net);
    assert_non_null(nd_get_grad(net.x));
    tear_down(&net);
}

static void test_F05_backward_with_graph(void **state) {
    (void)state;
    network net = {.create_graph = true};
    build(&net);
    until_it_works(run_backward, gradients_are_unchanged, &net);
    assert_true(nd_requires_grad(nd_get_grad(net.x)));
    tear_down(&net);
}

static nd_status run_grad(void *data) {
    network *net = data;
    const nd_tensor *inputs[] = {net->x, net->weight};
    nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
    options.create_graph = true;
    return nd_grad(net->loss, 2, inputs, &options, net->results);
}

static void nothing_was_written(void *data) {
    network *net = data;
    assert_null(net->results[0]);
    assert_null(net->results[1]);
    gradients_are_unchanged(data);
}

static void test_F05_grad(void **state) {
    (void)state;
    network net = {.create_graph = false};
    build(&net);
    until_it_works(run_grad, nothing_was_written, &net);
    assert_non_null(net.results[1]);
    nd_release(net.results[0]);
    nd_release(net.results[1]);
    tear_down(&net);
}

/// Halves the gradient where its manager takes one object more.
static nd_tensor *halve_below_a_cap(const nd_tensor *grad, const nd_object *context) {
    (void)context;
    nd_auto nd_manager *manager = nd_get_manager_retained(grad);
    assert_ok(nd_manager_set_cap(manager, 1));
    nd_tensor *half = nd_mul_scalar(grad, 0.5);
    assert_null(half);
    assert_ok(nd_manager_set_cap(manager, 0));
    return half;
}

/// A hook has no status to answer with: what fails in it must not look like a gradient to keep.
static void test_F07_quota_inside_a_hook_fails_the_pass(void **state) {
    (void)state;
    nd_auto nd_manager *manager = nd_manager_new(NULL, "step");
    nd_with_manager(manager) {
        network net = {.create_graph = false};
        build(&net);
        nd_auto nd_tensor *doubled = nd_mul_scalar(net.loss, 2.0);
        assert_ok(nd_register_hook(net.loss, halve_below_a_cap, NULL));
        assert_int_equal(nd_backward(doubled, NULL), ND_ERROR_QUOTA);
        assert_error(ND_ERROR_QUOTA, "manager step is capped at 1");
        gradients_are_unchanged(&net);
        assert_int_equal(nd_backward_release(nd_steal(&doubled), NULL), ND_ERROR_QUOTA);
        assert_error(ND_ERROR_QUOTA, "manager step is capped at 1");
        gradients_are_unchanged(&net);
        // A leaf's.
        assert_ok(nd_remove_hooks(net.loss));
        assert_ok(nd_register_hook(net.x, halve_below_a_cap, NULL));
        assert_int_equal(nd_backward(net.loss, NULL), ND_ERROR_QUOTA);
        assert_error(ND_ERROR_QUOTA, "manager step is capped at 1");
        gradients_are_unchanged(&net);
        tear_down(&net);
    }
    assert_ok(nd_manager_close(manager, NULL));
}

static nd_status register_hook(void *data) {
    network *net = data;
    return nd_register_hook(net->x, keep, net->bias);
}

static void no_hook_is_there(void *data) {
    network *net = data;
    assert_int_equal(nd_get_count(net->bias), 2);
}

static void test_F05_register_hook(void **state) {
    (void)state;
    network net = {.create_graph = false};
    build(&net);
    // Held here and by the node of linear.
    assert_int_equal(nd_get_count(net.bias), 2);
    until_it_works(register_hook, no_hook_is_there, &net);
    assert_int_equal(nd_get_count(net.bias), 3);
    tear_down(&net);
}

static nd_status apply_function(void *data) {
    network *net = data;
    const nd_tensor *input = net->x;
    return nd_function_apply(&identity, NULL, 1, &input, 2, net->results);
}

static void test_F05_function_apply(void **state) {
    (void)state;
    network net = {.create_graph = false};
    build(&net);
    until_it_works(apply_function, nothing_was_written, &net);
    nd_release(net.results[0]);
    nd_release(net.results[1]);
    tear_down(&net);
}

static nd_tensor *cube(size_t count, const nd_tensor *const *inputs, void *data) {
    (void)count, (void)data;
    return nd_pow_scalar(inputs[0], 3.0);
}

static nd_status run_gradcheck(void *data) {
    network *net = data;
    const nd_tensor *input = net->bias;
    return nd_gradcheck(cube, NULL, 1, &input, 2, 1e-6, 1e-4);
}

static void test_F05_gradcheck(void **state) {
    (void)state;
    network net = {.create_graph = false};
    build(&net);
    until_it_works(run_gradcheck, gradients_are_unchanged, &net);
    tear_down(&net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F05_backward),
        ND_TEST(test_F05_backward_with_graph),
        ND_TEST(test_F05_grad),
        ND_TEST(test_F05_register_hook),
        ND_TEST(test_F07_quota_inside_a_hook_fails_the_pass),
        ND_TEST(test_F05_function_apply),
        ND_TEST(test_F05_gradcheck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
