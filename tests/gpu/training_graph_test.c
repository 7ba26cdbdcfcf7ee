// C6 of docs/behaviours.md, as far as a program sees it: training steps that are captured once and
// launched many times have the bits of steps that are done as usual, and graphs keep what they use.
#include "tests/gpu/gpu.h"

enum { BATCH = 16, INPUTS = 12, CLASSES = 5, WARM_UP = 3, LAUNCHES = 50, FEW = 12 };

typedef struct training {
    nd_module *module;
    nd_optimizer *optimizer;
    nd_tensor *x, *labels; ///< on the device, refilled for each step
} training;

typedef nd_optimizer *make_optimizer(const nd_module *module);

static nd_optimizer *plain_sgd(const nd_module *module) {
    nd_sgd_options options = ND_SGD_OPTIONS_INIT;
    options.rate = 0.05;
    return nd_sgd(module, &options);
}

static nd_optimizer *nesterov(const nd_module *module) {
    nd_sgd_options options = ND_SGD_OPTIONS_INIT;
    options.rate = 0.02;
    options.momentum = 0.9;
    options.weight_decay = 1e-3;
    options.nesterov = true;
    return nd_sgd(module, &options);
}

static nd_optimizer *adam(const nd_module *module) {
    return nd_adam(module, NULL);
}

static nd_optimizer *adamw(const nd_module *module) {
    return nd_adamw(module, NULL);
}

static nd_optimizer *rmsprop(const nd_module *module) {
    nd_rmsprop_options options = ND_RMSPROP_OPTIONS_INIT;
    options.momentum = 0.5;
    options.centered = true;
    options.rate = 1e-3;
    return nd_rmsprop(module, &options);
}

static nd_optimizer *adagrad(const nd_module *module) {
    nd_adagrad_options options = ND_ADAGRAD_OPTIONS_INIT;
    options.rate_decay = 0.1;
    return nd_adagrad(module, &options);
}

static nd_optimizer *lion(const nd_module *module) {
    return nd_lion(module, NULL);
}

static training begin_training(make_optimizer *make, nd_dtype dtype) {
    training t = {.module = ND_SEQUENTIAL(nd_linear_module(nd_key_new(3), INPUTS, 24, true),
                                          nd_gelu_module(),
                                          nd_layer_norm_module(1e-5, 1, (const int64_t[]){24}),
                                          nd_linear_module(nd_key_new(4), 24, CLASSES, true))};
    assert_handle(t.module);
    assert_ok(nd_module_to(t.module, CUDA_DEVICE));
    if (dtype != ND_F32)
        assert_ok(nd_module_cast(t.module, dtype));
    assert_handle(t.optimizer = make(t.module));
    assert_ok(nd_set_default_device(CUDA_DEVICE));
    t.x = nd_zeros(ND_SHAPE(BATCH, INPUTS), dtype);
    t.labels = nd_zeros(ND_SHAPE(BATCH), ND_I64);
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
    return t;
}

static void end_training(training *t) {
    nd_release(t->optimizer);
    nd_release(t->module);
    nd_release(t->x);
    nd_release(t->labels);
}

/// The batch of a step, and another rate now and then.
static void feed(training *t, uint64_t step) {
    nd_auto nd_tensor *drawn =
        nd_randn(nd_key_fold(nd_key_new(7), step), ND_SHAPE(BATCH, INPUTS), ND_F32);
    nd_auto nd_tensor *x = nd_cast(drawn, nd_get_dtype(t->x));
    nd_auto nd_tensor *labels =
        nd_randint(nd_key_fold(nd_key_new(8), step), 0, CLASSES, ND_SHAPE(BATCH), ND_I64);
    assert_ok(nd_copy_(t->x, x));
    assert_ok(nd_copy_(t->labels, labels));
    if (step % 11 == 10)
        assert_ok(nd_optimizer_set_rate(t->optimizer, 0.01 / (double)step));
}

/// The loss, owned.
static nd_tensor *step(training *t) {
    nd_auto nd_tensor *y = nd_module_forward(t->module, t->x);
    nd_auto nd_tensor *wide = nd_cast(y, ND_F32);
    nd_auto nd_tensor *loss = nd_cross_entropy(wide, t->labels);
    if (!loss || nd_optimizer_zero_grad(t->optimizer) != ND_OK ||
        nd_backward(loss, NULL) != ND_OK || nd_optimizer_step(t->optimizer) != ND_OK)
        return NULL;
    return nd_detach(loss);
}

static float value_of(const nd_tensor *loss) {
    float value = 0;
    assert_ok(nd_copy_to_host(loss, &value, sizeof value));
    return value;
}

static void assert_same_parameters(const training *a, const training *b) {
    for (size_t i = 0; i < nd_module_get_parameter_count(a->module); i++) {
        const nd_tensor *of_a = nd_module_get_parameter_at(a->module, i, NULL);
        const nd_tensor *of_b = nd_module_get_parameter_at(b->module, i, NULL);
        const size_t bytes = (size_t)nd_get_numel(of_a) * nd_dtype_get_size(nd_get_dtype(of_a));
        void *in_a = malloc(bytes), *in_b = malloc(bytes);
        assert_ok(nd_copy_to_host(of_a, in_a, bytes));
        assert_ok(nd_copy_to_host(of_b, in_b, bytes));
        assert_memory_equal(in_a, in_b, bytes);
        free(in_a);
        free(in_b);
    }
}

static void same_as_eager(make_optimizer *make, nd_dtype dtype, uint64_t launches) {
    float eager_losses[LAUNCHES];
    training eager = begin_training(make, dtype), captured = begin_training(make, dtype);
    for (uint64_t i = 0; i < WARM_UP + launches; i++) {
        feed(&eager, i);
        nd_auto nd_tensor *loss = step(&eager);
        assert_handle(loss);
        if (i >= WARM_UP)
            eager_losses[i - WARM_UP] = value_of(loss);
    }
    for (uint64_t i = 0; i < WARM_UP; i++) {
        feed(&captured, i);
        nd_auto nd_tensor *loss = step(&captured);
        assert_handle(loss);
    }
    nd_auto nd_graph *graph = NULL;
    nd_auto nd_tensor *loss = NULL;
    nd_with_capture(CUDA_DEVICE, &graph) loss = step(&captured);
    assert_handle(graph);
    assert_handle(loss);
    for (uint64_t i = WARM_UP; i < WARM_UP + launches; i++) {
        feed(&captured, i);
        assert_ok(nd_graph_launch(graph));
        if (i % 7 == 0)
            assert_memory_equal(&(float){value_of(loss)}, &eager_losses[i - WARM_UP],
                                sizeof(float));
    }
    assert_same_parameters(&eager, &captured);
    // As usual from here on, where the launches have left it.
    for (uint64_t i = 0; i < 2; i++) {
        training *both[] = {&eager, &captured};
        for (int k = 0; k < 2; k++) {
            feed(both[k], 100 + i);
            nd_auto nd_tensor *last = step(both[k]);
            assert_handle(last);
        }
    }
    assert_same_parameters(&eager, &captured);
    end_training(&eager);
    end_training(&captured);
}

static void test_C06_sgd(void **state) {
    (void)state;
    same_as_eager(plain_sgd, ND_F32, LAUNCHES);
    same_as_eager(nesterov, ND_F32, FEW);
}

static void test_C06_adam(void **state) {
    (void)state;
    same_as_eager(adam, ND_F32, FEW);
    same_as_eager(adamw, ND_F32, LAUNCHES);
}

static void test_C06_other_optimizers(void **state) {
    (void)state;
    same_as_eager(rmsprop, ND_F32, FEW);
    same_as_eager(adagrad, ND_F32, FEW);
    same_as_eager(lion, ND_F32, FEW);
}

static void test_C06_other_dtypes(void **state) {
    (void)state;
    same_as_eager(adamw, ND_F64, FEW);
    same_as_eager(adamw, ND_BF16, FEW);
}

// ------------------------------------------------------------------------------------------------
// what would give other parameters than eager steps do

/// Two trainings that have done the first steps; the second one's step is captured, with `within` behind it.
typedef struct two_trainings {
    training eager, captured;
    nd_graph *graph;
    nd_tensor *loss;
} two_trainings;

static void step_both(two_trainings *two, uint64_t i, bool launched) {
    feed(&two->eager, i);
    feed(&two->captured, i);
    nd_auto nd_tensor *loss = step(&two->eager);
    assert_handle(loss);
    if (launched) {
        assert_ok(nd_graph_launch(two->graph));
    } else {
        nd_auto nd_tensor *other = step(&two->captured);
        assert_handle(other);
    }
    assert_same_parameters(&two->eager, &two->captured);
}

static two_trainings begin_two(make_optimizer *make, nd_dtype dtype,
                               void (*within)(const training *)) {
    two_trainings two = {.eager = begin_training(make, dtype),
                         .captured = begin_training(make, dtype)};
    for (uint64_t i = 0; i < WARM_UP; i++)
        step_both(&two, i, false);
    nd_with_capture(CUDA_DEVICE, &two.graph) {
        two.loss = step(&two.captured);
        if (within)
            within(&two.captured);
    }
    return two;
}

static void end_two(two_trainings *two) {
    nd_release(two->graph);
    nd_release(two->loss);
    end_training(&two->eager);
    end_training(&two->captured);
}

static void assert_told(nd_status status, const char *sentence) {
    assert_int_equal(status, ND_ERROR_STATE);
    assert_int_equal(nd_error_get_status(), ND_ERROR_STATE);
    if (!strstr(nd_error_get_message(), sentence))
        fail_msg("%s", nd_error_get_message());
    nd_error_clear();
}

static void step_again(const training *t) {
    assert_told(nd_optimizer_step(t->optimizer), "captured in this graph already");
}

/// A launch counts one step of an optimizer: a second one is refused, and the capture goes on.
static void test_C06_a_second_step_in_a_capture(void **state) {
    (void)state;
    two_trainings two = begin_two(adamw, ND_F32, step_again);
    assert_handle(two.graph);
    for (uint64_t i = WARM_UP; i < WARM_UP + 3; i++)
        step_both(&two, i, true);
    step_both(&two, 10, false);
    // Other graphs may have it, too.
    nd_auto nd_graph *other = NULL;
    nd_auto nd_tensor *loss = NULL;
    nd_with_capture(CUDA_DEVICE, &other) loss = step(&two.captured);
    assert_handle(other);
    step_both(&two, 11, true);
    end_two(&two);
}

static void write_parameter(const training *t) {
    nd_no_grad assert_ok(
        nd_fill_((nd_tensor *)nd_module_get_parameter_at(t->module, 0, NULL), 0.5));
}

/// Its master follows by an eager step, and not by a launch.
static void test_C06_a_half_that_was_written(void **state) {
    (void)state;
    make_optimizer *const optimizers[] = {plain_sgd, adamw};
    for (int i = 0; i < 4; i++) {
        two_trainings two = begin_two(optimizers[i / 2], i % 2 ? ND_F16 : ND_BF16, NULL);
        assert_handle(two.graph);
        step_both(&two, 3, true);
        write_parameter(&two.eager);
        write_parameter(&two.captured);
        for (int k = 0; k < 2; k++)
            assert_told(nd_graph_launch(two.graph), "nd_optimizer_step() lets its master follow");
        assert_same_parameters(&two.eager, &two.captured);
        step_both(&two, 4, false);
        step_both(&two, 5, true);
        step_both(&two, 6, true);
        end_two(&two);
    }
}

/// Each launch would write it behind the step, and the next one's master would not follow.
static void test_C06_a_half_that_is_written_in_the_capture(void **state) {
    (void)state;
    two_trainings two = begin_two(adamw, ND_BF16, write_parameter);
    assert_null(two.graph);
    assert_told(nd_error_get_status(), "is written behind its step");
    step_both(&two, 3, false);
    end_two(&two);
    two = begin_two(adamw, ND_F32, write_parameter); // which has no master
    assert_handle(two.graph);
    for (uint64_t i = 3; i < 6; i++) {
        feed(&two.eager, i);
        feed(&two.captured, i);
        nd_auto nd_tensor *loss = step(&two.eager);
        assert_handle(loss);
        write_parameter(&two.eager);
        assert_ok(nd_graph_launch(two.graph));
        assert_same_parameters(&two.eager, &two.captured);
    }
    end_two(&two);
}

/// To the CPU, where launches do not train, and back, where it lies elsewhere.
static void test_C06_a_module_that_moved(void **state) {
    (void)state;
    two_trainings two = begin_two(adamw, ND_F32, NULL);
    assert_handle(two.graph);
    step_both(&two, 3, true);
    for (int i = 0; i < 2; i++) {
        assert_ok(nd_module_to(two.captured.module, i ? CUDA_DEVICE : (nd_device){ND_CPU, 0}));
        assert_told(nd_graph_launch(two.graph), "capture the step again");
        assert_same_parameters(&two.eager, &two.captured);
    }
    step_both(&two, 4, false);
    assert_told(nd_graph_launch(two.graph), "capture the step again");
    end_two(&two);
}

// ------------------------------------------------------------------------------------------------
// what graphs keep, and other work

/// What it reads was released before the first launch, and so is the graph before the last is done.
static void test_C06_inputs_are_held(void **state) {
    (void)state;
    enum { SIZE = 1000 };
    assert_ok(nd_set_default_device(CUDA_DEVICE));
    nd_tensor *x = nd_full(ND_SHAPE(SIZE), 3, ND_F32), *total = nd_zeros(ND_SHAPE(SIZE), ND_F32);
    nd_graph *graph = NULL;
    nd_with_capture(CUDA_DEVICE, &graph) {
        nd_auto nd_tensor *square = nd_mul(x, x);
        assert_ok(nd_add_(total, square));
    }
    assert_handle(graph);
    nd_release(x);
    nd_tensor *others[8];
    for (int i = 0; i < 8; i++)
        others[i] = nd_full(ND_SHAPE(SIZE), -1, ND_F32); // wants the memory
    for (int i = 0; i < 20; i++)
        assert_ok(nd_graph_launch(graph));
    nd_release(graph);
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
    float values[SIZE];
    assert_ok(nd_copy_to_host(total, values, sizeof values));
    for (int i = 0; i < SIZE; i++)
        assert_true(values[i] == 180);
    for (int i = 0; i < 8; i++)
        nd_release(others[i]);
    nd_release(total);
}

/// Convolutions, products and norms: what libraries of kernels take.
static void test_C06_forward_of_a_convolutional_net(void **state) {
    (void)state;
    nd_auto nd_module *net =
        ND_SEQUENTIAL(nd_conv2d_module(nd_key_new(1), 3, 8, 3, 3, true, NULL), nd_relu_module(),
                      nd_flatten_module(), nd_linear_module(nd_key_new(2), 8 * 6 * 6, 10, true));
    assert_handle(net);
    assert_ok(nd_module_to(net, CUDA_DEVICE));
    assert_ok(nd_set_default_device(CUDA_DEVICE));
    nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(2, 3, 8, 8), ND_F32);
    nd_auto nd_graph *graph = NULL;
    nd_auto nd_tensor *y = NULL;
    nd_no_grad {
        nd_auto nd_tensor *warm = nd_module_forward(net, x);
        assert_handle(warm);
        nd_with_capture(CUDA_DEVICE, &graph) y = nd_module_forward(net, x);
    }
    assert_handle(graph);
    for (uint64_t i = 0; i < 5; i++) {
        nd_auto nd_tensor *image = nd_randn(nd_key_new(i), ND_SHAPE(2, 3, 8, 8), ND_F32);
        assert_ok(nd_copy_(x, image));
        assert_ok(nd_graph_launch(graph));
        nd_auto nd_tensor *expected = nd_module_forward(net, image);
        float found[20], wanted[20];
        assert_ok(nd_copy_to_host(y, found, sizeof found));
        assert_ok(nd_copy_to_host(expected, wanted, sizeof wanted));
        assert_memory_equal(found, wanted, sizeof found);
    }
    assert_ok(nd_set_default_device((nd_device){ND_CPU, 0}));
}

int main(void) {
    int status;
    if (!gpu_present(&status))
        return status;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_C06_sgd),
        ND_TEST(test_C06_adam),
        ND_TEST(test_C06_other_optimizers),
        ND_TEST(test_C06_other_dtypes),
        ND_TEST(test_C06_a_second_step_in_a_capture),
        ND_TEST(test_C06_a_half_that_was_written),
        ND_TEST(test_C06_a_half_that_is_written_in_the_capture),
        ND_TEST(test_C06_a_module_that_moved),
        ND_TEST(test_C06_inputs_are_held),
        ND_TEST(test_C06_forward_of_a_convolutional_net),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
