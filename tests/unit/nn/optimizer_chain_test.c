// Updates that run together against the same updates one operation after the other: the same bits,
// for every kind of optimizer and dtype, for few elements and many, one parameter and more than run
// at once, on one thread and on several. Gradients that are not dense are what makes an update run
// operation by operation.
#include "tests/testing.h"
#include "tests/training.h"

#include <string.h>

enum { STEPS = 4, MOST = 60 };

static nd_tensor *no_forward(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_retain(x);
}

static const nd_module_type holder_type = {
    .size = sizeof(nd_module_type), .version = 1, .name = "holder", .forward = no_forward};

static nd_tensor *numbers(uint64_t seed, int64_t size, nd_dtype dtype) {
    nd_auto nd_tensor *wide = nd_randn(nd_key_new(seed), ND_SHAPE(size), ND_F64);
    return nd_cast(wide, dtype);
}

static nd_module *new_holder(size_t count, const int64_t *sizes, nd_dtype dtype) {
    nd_module *holder = nd_module_new(&holder_type, NULL, 0);
    for (size_t k = 0; k < count; k++) {
        char name[16];
        snprintf(name, sizeof name, "p%zu", k);
        nd_auto nd_tensor *parameter = numbers(1000 + k, sizes[k], dtype);
        assert_ok(nd_set_requires_grad(parameter, true));
        assert_ok(nd_module_add_parameter(holder, name, parameter));
    }
    return holder;
}

/// The gradient's numbers at every second place.
static nd_tensor *spread_out(const nd_tensor *grad) {
    nd_auto nd_tensor *pair = nd_stack(2, (const nd_tensor *[]){grad, grad}, 1);
    return nd_select(pair, 0, 1);
}

typedef nd_optimizer *(*new_optimizer)(const nd_module *module);

static void train(const nd_module *holder, new_optimizer kind, nd_dtype dtype, bool dense) {
    nd_auto nd_optimizer *optimizer = kind(holder);
    const size_t count = nd_module_get_parameter_count(holder);
    for (int step = 0; step < STEPS; step++) {
        for (size_t k = 0; k < count; k++) {
            nd_tensor *parameter = nd_retain(nd_module_get_parameter_at(holder, k, NULL));
            nd_auto nd_tensor *grad =
                numbers((uint64_t)step * 100 + k, nd_get_numel(parameter), dtype);
            nd_auto nd_tensor *given = dense ? nd_retain(grad) : spread_out(grad);
            assert_ok(nd_set_grad(parameter, (int)k % 7 == 6 && step == 1 ? NULL : given));
            nd_release(parameter);
        }
        assert_ok(nd_optimizer_step(optimizer));
    }
}

static nd_optimizer *plain_sgd(const nd_module *module) {
    return sgd_of(module, 0.1, 0, 0.05);
}
static nd_optimizer *nesterov(const nd_module *module) {
    nd_sgd_options options = ND_SGD_OPTIONS_INIT;
    options.rate = 0.1;
    options.momentum = 0.9;
    options.nesterov = true;
    options.weight_decay = 0.05;
    return nd_sgd(module, &options);
}
static nd_optimizer *momentum(const nd_module *module) {
    return sgd_of(module, 0.1, 0.9, 0);
}
static nd_optimizer *adam(const nd_module *module) {
    return adam_of(module, 0.05, 0.8, 0.95, 1e-6, 0.1);
}
static nd_optimizer *adamw(const nd_module *module) {
    return adamw_of(module, 0.05, 0.8, 0.95, 1e-6, 0.1);
}
static nd_optimizer *rmsprop(const nd_module *module) {
    nd_rmsprop_options options = ND_RMSPROP_OPTIONS_INIT;
    options.rate = 0.02;
    options.weight_decay = 0.1;
    options.momentum = 0.7;
    options.eps = 1e-2;
    options.centered = true;
    return nd_rmsprop(module, &options);
}
static nd_optimizer *adagrad(const nd_module *module) {
    nd_adagrad_options options = ND_ADAGRAD_OPTIONS_INIT;
    options.weight_decay = 0.1;
    return nd_adagrad(module, &options);
}
static nd_optimizer *lion(const nd_module *module) {
    return nd_lion(module, NULL);
}

static const new_optimizer kinds[] = {plain_sgd, nesterov, momentum, adam,
                                      adamw,     rmsprop,  adagrad,  lion};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void assert_same(const nd_module *a, const nd_module *b) {
    for (size_t k = 0; k < nd_module_get_parameter_count(a); k++) {
        const nd_tensor *x = nd_module_get_parameter_at(a, k, NULL);
        const nd_tensor *y = nd_module_get_parameter_at(b, k, NULL);
        const size_t bytes = (size_t)nd_get_numel(x) * nd_dtype_get_size(nd_get_dtype(x));
        assert_memory_equal(nd_get_data(x), nd_get_data(y), bytes);
    }
}

static void compare(size_t count, const int64_t *sizes, nd_dtype dtype) {
    for (size_t kind = 0; kind < KINDS; kind++) {
        nd_auto nd_module *together = new_holder(count, sizes, dtype);
        nd_auto nd_module *alone = new_holder(count, sizes, dtype);
        train(together, kinds[kind], dtype, true);
        train(alone, kinds[kind], dtype, false);
        assert_same(together, alone);
    }
}

static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};

static void test_sizes_around_blocks(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 0, 511, 512, 513, 1023, 1025, 40000, 3, 7};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        compare(sizeof sizes / sizeof *sizes, sizes, dtypes[i]);
}

static void test_more_parameters_than_run_at_once(void **state) {
    (void)state;
    int64_t sizes[MOST];
    for (int k = 0; k < MOST; k++)
        sizes[k] = 1 + 37 * k % 900;
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        compare(MOST, sizes, dtypes[i]);
}

static void test_any_number_of_threads(void **state) {
    (void)state;
    static const int64_t sizes[] = {100000, 5, 30000, 1};
    const int before = nd_get_num_threads();
    nd_module *modules[3];
    for (int threads = 1; threads <= 3; threads++) {
        assert_ok(nd_set_num_threads(threads));
        modules[threads - 1] = new_holder(4, sizes, ND_F32);
        train(modules[threads - 1], adamw, ND_F32, true);
    }
    assert_same(modules[0], modules[1]);
    assert_same(modules[0], modules[2]);
    for (int i = 0; i < 3; i++)
        nd_release(modules[i]);
    assert_ok(nd_set_num_threads(before));
}

/// A gradient that is its parameter, one that lies beside it in the same memory by half, and two
/// parameters of which one is the other's gradient: as if each update stood alone.
static void test_memory_in_common(void **state) {
    (void)state;
    nd_auto nd_tensor *memory = numbers(1, 3000, ND_F32);
    nd_auto nd_tensor *first = nd_slice(memory, 0, 2000, 1, 0);
    nd_auto nd_tensor *later = nd_slice(memory, 1000, 3000, 1, 0);
    float expected[3000];
    memcpy(expected, nd_get_data(memory), sizeof expected);
    for (int i = 0; i < 2000; i++) // operation by operation the sum is of what was there
        expected[i] += -0.5f * expected[i + 1000];

    nd_auto nd_module *holder = nd_module_new(&holder_type, NULL, 0);
    assert_ok(nd_set_requires_grad(first, true));
    assert_ok(nd_module_add_parameter(holder, "p", first));
    nd_auto nd_optimizer *optimizer = sgd_of(holder, 0.5, 0, 0);
    assert_ok(nd_set_grad(first, later));
    assert_ok(nd_optimizer_step(optimizer));
    for (int i = 0; i < 1000; i++)
        assert_true(((const float *)nd_get_data(memory))[i] == expected[i]);

    nd_auto nd_tensor *a = nd_ones(ND_SHAPE(500), ND_F32);
    nd_auto nd_tensor *b = nd_ones(ND_SHAPE(500), ND_F32);
    nd_auto nd_module *pair = nd_module_new(&holder_type, NULL, 0);
    assert_ok(nd_set_requires_grad(a, true));
    assert_ok(nd_set_requires_grad(b, true));
    assert_ok(nd_module_add_parameter(pair, "a", a));
    assert_ok(nd_module_add_parameter(pair, "b", b));
    nd_auto nd_optimizer *of_pair = sgd_of(pair, 0.5, 0, 0);
    nd_auto nd_tensor *a_alone = nd_detach(a);
    nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(500), ND_F32);
    assert_ok(nd_set_grad(a, ones));
    assert_ok(nd_set_grad(b, a_alone)); // a, by then one half
    assert_ok(nd_optimizer_step(of_pair));
    for (int i = 0; i < 500; i++) {
        assert_true(((const float *)nd_get_data(a))[i] == 0.5f);
        assert_true(((const float *)nd_get_data(b))[i] == 0.75f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_sizes_around_blocks),
        ND_TEST(test_more_parameters_than_run_at_once),
        ND_TEST(test_any_number_of_threads),
        ND_TEST(test_memory_in_common),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
