// Calls about modules, optimizers and data sets, all of which belong to one thread.
#include "lib/device/fake/fake.h"
#include "tests/fuzz/program.h"
#include "tests/training.h"

static nd_module *new_convolution(nd_key key, const fuzz_step *s) {
    nd_conv2d_options options = ND_CONV2D_OPTIONS_INIT;
    options.stride[0] = 1 + s->c / 2 % 2;
    options.padding[1] = s->c / 4 % 2;
    options.dilation[0] = 1 + s->c / 8 % 2;
    options.groups = 1 + s->c / 16 % 2;
    return nd_conv2d_module(key, 1 + s->c % 2, 1 + s->c / 32 % 2, 1 + s->d % 3, 1 + s->d / 8 % 3,
                            s->d / 4 % 2, &options);
}

static nd_module *new_pooling(const fuzz_step *s) {
    nd_max_pool2d_options options = ND_MAX_POOL2D_OPTIONS_INIT;
    options.kernel[0] = s->c % 3;
    options.kernel[1] = s->c / 4 % 3;
    options.stride[0] = s->d % 3;
    options.padding[1] = s->d / 4 % 2;
    options.dilation[0] = 1 + s->d / 8 % 2;
    return nd_max_pool2d_module(&options);
}

static void new_module(fuzz_actor *me, const fuzz_step *s) {
    nd_key key = nd_key_new(s->c);
    nd_module *module = NULL;
    switch (s->b % 8) {
    case 0:
        module = nd_linear_module(key, 1 + s->c % 4, 1 + s->c / 4 % 4, s->d % 2);
        break;
    case 1:
        module = new_convolution(key, s);
        break;
    case 2:
        module = new_pooling(s);
        break;
    case 3:
        module = nd_relu_module();
        break;
    case 4:
        module = nd_tanh_module();
        break;
    case 5:
        module = nd_gelu_module();
        break;
    case 6:
        module = nd_flatten_module();
        break;
    default:
        module = ND_SEQUENTIAL(nd_linear_module(key, 3, 2, true), nd_tanh_module(),
                               nd_linear_module(key, 2, 3, s->c % 2));
    }
    fuzz_expect(me, module);
    fuzz_put(me, FUZZ_MODULE, s->a, module);
}

static void add_child(fuzz_actor *me, const fuzz_step *s) {
    static const char *const names[] = {"0", "1", "bad.name", "x"};
    const nd_module *child = fuzz_pick(me, FUZZ_MODULE, s->b);
    nd_module *module = fuzz_pick_to_write(me, FUZZ_MODULE, s->a);
    fuzz_expect(me, nd_module_add_child(module, names[s->c % 4], child) == ND_OK);
}

static void add_parameter(fuzz_actor *me, const fuzz_step *s) {
    static const char *const names[] = {"weight", "w", "", "bias"};
    const nd_tensor *parameter = fuzz_tensor(me, s->b);
    nd_module *module = fuzz_pick_to_write(me, FUZZ_MODULE, s->a);
    if (nd_get_numel(parameter) < 100)
        fuzz_expect(me, nd_module_add_parameter(module, names[s->c % 4], parameter) == ND_OK);
}

/// A module's parameters are for its own thread, so that an optimizer may write them.
static void parameter_at(fuzz_actor *me, const fuzz_step *s) {
    const nd_module *module = fuzz_pick(me, FUZZ_MODULE, s->b);
    const char *name = NULL;
    nd_auto nd_tensor *parameter = nd_retain(nd_module_get_parameter_at(module, s->c % 8, &name));
    fuzz_expect(me, parameter);
    if (parameter && nd_module_get_parameter(module, name) != parameter)
        fuzz_die("the parameter %s is not found by its name", name);
    if (parameter)
        fuzz_put(me, FUZZ_TENSOR, s->a, nd_retain(parameter));
}

static void module_forward(fuzz_actor *me, const fuzz_step *s) {
    const nd_tensor *x = fuzz_tensor(me, s->c);
    if (nd_get_numel(x) > 1000)
        return;
    nd_tensor *y = nd_module_forward(fuzz_pick(me, FUZZ_MODULE, s->b), x);
    fuzz_expect(me, y);
    fuzz_put(me, FUZZ_TENSOR, s->a, y);
}

static void module_to(fuzz_actor *me, const fuzz_step *s) {
    const nd_device devices[] = {{ND_CPU, 0}, {ND_FAKE, 0}, {ND_FAKE, 1}, {ND_FAKE, 9}};
    const nd_module *module = fuzz_pick_to_write(me, FUZZ_MODULE, s->a);
    fuzz_expect(me, nd_module_to(module, devices[s->b % 4]) == ND_OK);
}

static void module_zero_grad(fuzz_actor *me, const fuzz_step *s) {
    fuzz_expect(me, nd_module_zero_grad(fuzz_pick(me, FUZZ_MODULE, s->a)) == ND_OK);
}

static void new_optimizer(fuzz_actor *me, const fuzz_step *s) {
    const nd_module *module = fuzz_pick(me, FUZZ_MODULE, s->b);
    nd_optimizer *optimizer = s->c % 3 == 0
                                  ? sgd_of(module, 0.1, s->d % 2 ? 0.9 : 0, s->d / 2 % 2 ? 0.1 : 0)
                              : s->c % 3 == 1 ? adam_of(module, 0.1, 0.9, 0.99, 1e-8, 0.01)
                                              : adamw_of(module, 0.1, 0.9, 0.99, 1e-8, 0.01);
    fuzz_expect(me, optimizer);
    fuzz_put(me, FUZZ_OPTIMIZER, s->a, optimizer);
}

static void optimizer_step(fuzz_actor *me, const fuzz_step *s) {
    fuzz_expect(me, nd_optimizer_step(fuzz_pick_to_write(me, FUZZ_OPTIMIZER, s->a)) == ND_OK);
}

static void optimizer_zero_grad(fuzz_actor *me, const fuzz_step *s) {
    fuzz_expect(me, nd_optimizer_zero_grad(fuzz_pick_to_write(me, FUZZ_OPTIMIZER, s->a)) == ND_OK);
}

// --------------------------------------------------------------------------------------- data sets

static void new_dataset(fuzz_actor *me, const fuzz_step *s) {
    nd_dataset_options options = ND_DATASET_OPTIONS_INIT;
    options.batch = s->d % 4;
    options.key = nd_key_new(s->d);
    options.shuffle = s->d / 4 % 2;
    options.drop_last = s->d / 8 % 2;
    options.prefetch = s->d / 16 % 2;
    nd_dataset *dataset = nd_dataset_new(fuzz_tensor(me, s->b), fuzz_tensor(me, s->c), &options);
    fuzz_expect(me, dataset);
    fuzz_put(me, FUZZ_DATASET, s->a, dataset);
}

static void dataset_start(fuzz_actor *me, const fuzz_step *s) {
    fuzz_expect(me, nd_dataset_start(fuzz_pick_to_write(me, FUZZ_DATASET, s->a), s->b) == ND_OK);
}

static void dataset_next(fuzz_actor *me, const fuzz_step *s) {
    nd_tensor *images = NULL, *labels = NULL;
    nd_dataset *dataset = fuzz_pick_to_write(me, FUZZ_DATASET, s->a);
    if (next_batch(dataset, &images, &labels)) {
        fuzz_expect(me, images && labels);
        fuzz_put(me, FUZZ_TENSOR, s->b, images);
        fuzz_put(me, FUZZ_TENSOR, s->c, labels);
    } else if (images || labels) {
        fuzz_die("a batch came where there is none");
    }
}

const fuzz_call fuzz_nn_calls[] = {
    {"new_module", new_module, FUZZ_ALONE | FUZZ_QUEUES},
    {"add_child", add_child, FUZZ_ALONE | FUZZ_QUEUES},
    {"add_parameter", add_parameter, FUZZ_ALONE | FUZZ_QUEUES},
    {"parameter_at", parameter_at, FUZZ_ALONE | FUZZ_QUEUES},
    {"module_forward", module_forward, FUZZ_ALONE | FUZZ_QUEUES},
    {"module_to", module_to, FUZZ_ALONE},
    {"module_zero_grad", module_zero_grad, FUZZ_ALONE},
    {"new_optimizer", new_optimizer, FUZZ_ALONE | FUZZ_QUEUES},
    {"optimizer_step", optimizer_step, FUZZ_ALONE},
    {"optimizer_zero_grad", optimizer_zero_grad, FUZZ_ALONE},
    {"new_dataset", new_dataset, FUZZ_ALONE | FUZZ_QUEUES},
    {"dataset_start", dataset_start, FUZZ_ALONE},
    {"dataset_next", dataset_next, FUZZ_ALONE},
    {0},
};
