// Modules: members and their names, modes, devices and dtypes, what is refused. Layers: layers_test.c.
#include "tests/unit/io/files.h"

#include "lib/base/alloc.h"
#include "lib/device/fake/fake.h"

static nd_tensor *new_parameter(int64_t size) {
    nd_tensor *parameter = nd_ones(ND_SHAPE(size), ND_F32);
    assert_handle(parameter);
    assert_ok(nd_set_requires_grad(parameter, true));
    return parameter;
}

typedef struct scale_data {
    double offset;
    int times;
} scale_data;

/// y = times * scale * x + offset.
static nd_tensor *scale_forward(const nd_module *self, const nd_tensor *x) {
    const scale_data *data = nd_module_get_data(self);
    nd_auto nd_tensor *scaled = nd_mul(x, nd_module_get_parameter(self, "scale"));
    nd_auto nd_tensor *repeated = nd_mul_scalar(scaled, data->times);
    return nd_add_scalar(repeated, data->offset);
}

static const nd_module_type scale_type = {
    .size = sizeof(nd_module_type), .version = 1, .name = "scale", .forward = scale_forward};

static nd_module *new_scale(void) {
    scale_data data = {.offset = 0.5, .times = 2};
    nd_module *module = nd_module_new(&scale_type, &data, sizeof(data));
    data.times = 100; // the module has its own copy
    nd_auto nd_tensor *parameter = new_parameter(3);
    assert_ok(nd_module_add_parameter(module, "scale", parameter));
    return module;
}

static void test_user_defined_module(void **state) {
    (void)state;
    nd_auto nd_module *module = new_scale();
    nd_auto nd_tensor *x = nd_full(ND_SHAPE(2, 3), 4, ND_F32);
    nd_auto nd_tensor *y = nd_module_forward(module, x);
    assert_handle(y);
    const float *value = nd_get_data(y);
    for (int i = 0; i < 6; i++)
        assert_true(value[i] == 8.5f);
}

static void test_full_names_in_order_of_addition(void **state) {
    (void)state;
    nd_key key = nd_key_new(1);
    nd_auto nd_module *inner = ND_SEQUENTIAL(nd_relu_module(), nd_linear_module(key, 4, 5, false));
    nd_auto nd_module *outer = ND_SEQUENTIAL(nd_linear_module(key, 3, 4, true));
    nd_auto nd_tensor *last = new_parameter(7);
    assert_ok(nd_module_add_child(outer, "inner", inner));
    assert_ok(nd_module_add_parameter(outer, "last", last));
    static const char *const names[] = {"0.weight", "0.bias", "inner.1.weight", "last"};
    static const int64_t sizes[] = {12, 4, 20, 7};
    assert_int_equal(nd_module_get_parameter_count(outer), 4);
    for (size_t i = 0; i < 4; i++) {
        const char *name = NULL;
        nd_auto nd_tensor *parameter = nd_retain(nd_module_get_parameter_at(outer, i, &name));
        assert_handle(parameter);
        assert_string_equal(name, names[i]);
        assert_int_equal(nd_get_numel(parameter), sizes[i]);
        assert_ptr_equal(nd_module_get_parameter(outer, names[i]), parameter);
        assert_true(nd_requires_grad(parameter) && nd_is_leaf(parameter));
    }
    assert_null(nd_module_get_parameter_at(outer, 4, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "parameter 4 of a module that has 4");
    static const char *const missing[] = {
        "", ".", "0", "0.", "0.weight.x", "inner", "0..weight", "weight", "inner.0.bias"};
    for (size_t i = 0; i < sizeof(missing) / sizeof(*missing); i++) {
        assert_null(nd_module_get_parameter(outer, missing[i]));
        assert_failed(ND_ERROR_INVALID_ARGUMENT, "has no parameter");
    }
    assert_int_equal(nd_module_get_child_count(outer), 2);
    assert_ptr_equal(nd_module_get_child(outer, 1), inner);
    assert_null(nd_module_get_child(outer, 2));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "child 2 of a module that has 2");
}

static void test_a_module_holds_its_members(void **state) {
    (void)state;
    nd_tensor *parameter = new_parameter(2);
    nd_module *child = nd_relu_module();
    nd_module *module = nd_module_new(&scale_type, NULL, 0);
    assert_ok(nd_module_add_parameter(module, "p", parameter));
    assert_ok(nd_module_add_child(module, "c", child));
    assert_int_equal(nd_get_count(parameter), 2);
    assert_int_equal(nd_get_count(child), 2);
    nd_release(module);
    assert_int_equal(nd_get_count(parameter), 1);
    assert_int_equal(nd_get_count(child), 1);
    nd_release(parameter);
    nd_release(child);
}

static void test_many_members(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_module_new(&scale_type, NULL, 0);
    char name[16];
    for (int i = 0; i < 100; i++) {
        nd_auto nd_tensor *parameter = new_parameter(i + 1);
        snprintf(name, sizeof(name), "p%d", i);
        assert_ok(nd_module_add_parameter(module, name, parameter));
    }
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "p%d", i);
        assert_int_equal(nd_get_numel(nd_module_get_parameter(module, name)), i + 1);
    }
}

static void test_zero_grad_drops_the_gradients(void **state) {
    (void)state;
    nd_auto nd_module *net = ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 4, 1, true));
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 4), ND_F32);
    nd_auto nd_tensor *y = nd_module_forward(net, x);
    assert_ok(nd_backward(y, NULL));
    assert_non_null(nd_get_grad(nd_module_get_parameter(net, "0.weight")));
    assert_non_null(nd_get_grad(nd_module_get_parameter(net, "0.bias")));
    assert_ok(nd_module_zero_grad(net));
    assert_null(nd_get_grad(nd_module_get_parameter(net, "0.weight")));
    assert_null(nd_get_grad(nd_module_get_parameter(net, "0.bias")));
}

static void test_to_keeps_the_handles_and_their_gradients(void **state) {
    (void)state;
    const nd_device fake = {ND_FAKE, 0};
    const nd_device cpu = {ND_CPU, 0};
    nd_auto nd_manager *manager = nd_manager_new(NULL, "model");
    nd_module *net = NULL;
    nd_with_manager(manager) {
        net = ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 4, 3, true));
    }
    assert_handle(net);
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "0.weight"));
    nd_auto nd_tensor *before = nd_clone(weight);
    nd_auto nd_tensor *grad = nd_full(ND_SHAPE(3, 4), 2, ND_F32);
    assert_ok(nd_set_grad(weight, grad));
    uint64_t version = nd_get_version(weight);
    assert_ok(nd_module_to(net, fake));
    assert_ptr_equal(nd_module_get_parameter(net, "0.weight"), weight);
    assert_int_equal(nd_get_device(weight).kind, ND_FAKE);
    assert_int_equal(nd_get_device(nd_get_grad(weight)).kind, ND_FAKE);
    assert_true(nd_requires_grad(weight) && nd_is_leaf(weight));
    assert_true(nd_get_version(weight) > version);
    nd_manager_stats stats = ND_MANAGER_STATS_INIT;
    assert_ok(nd_manager_get_stats(manager, &stats));
    assert_int_equal(stats.live_bytes[ND_CPU], 12 * 4); // the clone
    assert_int_equal(stats.live_bytes[ND_FAKE], (12 + 3 + 12) * 4);
    assert_ok(nd_module_to(net, cpu));
    assert_memory_equal(nd_get_data(weight), nd_get_data(before), 12 * 4);
    const float *value = nd_get_data(nd_get_grad(weight));
    assert_true(value[0] == 2 && value[11] == 2);
    assert_int_equal(nd_module_to(net, (nd_device){ND_CPU, 99}), ND_ERROR_DEVICE);
    nd_error_clear();
    nd_release(net);
}

static void test_members_that_are_refused(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_module_new(&scale_type, NULL, 0);
    nd_auto nd_module *child = nd_module_new(&scale_type, NULL, 0);
    nd_auto nd_tensor *parameter = new_parameter(2);
    assert_ok(nd_module_add_parameter(module, "x", parameter));
    assert_int_not_equal(nd_module_add_parameter(module, "x", parameter), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "has a member 'x' already");
    assert_int_not_equal(nd_module_add_child(module, "x", child), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "has a member 'x' already");
    char long_name[65];
    memset(long_name, 'n', 64);
    long_name[64] = 0;
    static const char *const names[] = {"", "a.b", "."};
    for (size_t i = 0; i < 4; i++) {
        const char *name = i < 3 ? names[i] : long_name;
        assert_int_not_equal(nd_module_add_parameter(module, name, parameter), ND_OK);
        assert_failed(ND_ERROR_INVALID_ARGUMENT, "1 to 63 bytes and no dot");
    }
    static const char *const not_in_files[] = {"__metadata__", "\xff", "caf\xc3"};
    for (size_t i = 0; i < 3; i++) {
        assert_int_not_equal(nd_module_add_parameter(module, not_in_files[i], parameter), ND_OK);
        assert_failed(ND_ERROR_INVALID_ARGUMENT,
                      i ? "is none for a file: it is no UTF-8" : "it is reserved");
    }
    nd_auto nd_tensor *plain = nd_ones(ND_SHAPE(2), ND_F32);
    assert_int_not_equal(nd_module_add_parameter(module, "y", plain), ND_OK);
    assert_failed(ND_ERROR_STATE, "does not require a gradient");
    nd_auto nd_tensor *computed = nd_mul_scalar(parameter, 2);
    assert_int_not_equal(nd_module_add_parameter(module, "y", computed), ND_OK);
    assert_failed(ND_ERROR_STATE, "was computed from others");
    nd_auto nd_tensor *integers = nd_ones(ND_SHAPE(2), ND_I64);
    assert_int_not_equal(nd_module_add_parameter(module, "y", integers), ND_OK);
    assert_failed(ND_ERROR_DTYPE, "int64");
    assert_int_equal(nd_module_get_parameter_count(module), 1);
}

static void test_a_module_cannot_contain_itself(void **state) {
    (void)state;
    nd_auto nd_module *a = nd_module_new(&scale_type, NULL, 0);
    nd_auto nd_module *b = nd_module_new(&scale_type, NULL, 0);
    nd_auto nd_module *c = nd_module_new(&scale_type, NULL, 0);
    assert_int_not_equal(nd_module_add_child(a, "self", a), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "contains the module");
    assert_ok(nd_module_add_child(a, "b", b));
    assert_ok(nd_module_add_child(b, "c", c));
    assert_int_not_equal(nd_module_add_child(c, "a", a), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "contains the module");
    // Twice the same child is no cycle.
    assert_ok(nd_module_add_child(a, "c", c));
}

static void test_nesting_is_bounded(void **state) {
    (void)state;
    // Built from the outside in, so that no single addition is too deep.
    nd_module *chain[40];
    for (int i = 0; i < 40; i++)
        chain[i] = nd_module_new(&scale_type, NULL, 0);
    for (int i = 0; i + 1 < 40; i++)
        assert_ok(nd_module_add_child(chain[i], "next", chain[i + 1]));
    assert_int_equal(nd_module_get_parameter_count(chain[0]), 0);
    assert_failed(ND_ERROR_UNSUPPORTED, "more than 32 modules");
    assert_int_equal(nd_module_zero_grad(chain[0]), ND_ERROR_UNSUPPORTED);
    nd_error_clear();
    assert_ok(nd_module_zero_grad(chain[8]));
    for (int i = 0; i < 40; i++)
        nd_release(chain[i]);
}

static void test_F15_closed_module(void **state) {
    (void)state;
    nd_auto nd_module *net = ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 2, 2, true));
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 2), ND_F32);
    nd_module *layer = nd_retain(nd_module_get_child(net, 0));
    assert_ok(nd_close(layer));
    assert_null(nd_module_forward(net, x));
    assert_failed(ND_ERROR_CLOSED, "closed");
    assert_null(nd_module_get_parameter(net, "0.weight"));
    nd_error_clear();
    assert_int_equal(nd_module_zero_grad(net), ND_ERROR_CLOSED);
    assert_failed(ND_ERROR_CLOSED, "linear");
    nd_release(layer);
}

static nd_tensor *keep_gradient(const nd_tensor *grad, const nd_object *context) {
    (void)grad;
    (void)context;
    return NULL;
}

static void test_G11_a_hook_that_captures_its_module_is_collected(void **state) {
    (void)state;
    nd_manager *manager = nd_manager_new(NULL, "model");
    nd_with_manager(manager) {
        nd_module *net = ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 2, 2, true));
        nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "0.weight"));
        assert_ok(nd_register_hook(weight, keep_gradient, net));
        nd_release(net);
    }
    assert_true(nd_manager_get_total_objects(manager) > 0);
    nd_gc_report report = ND_GC_REPORT_INIT;
    assert_ok(nd_gc_collect(manager, &report));
    assert_int_equal(nd_manager_get_total_objects(manager), 0);
    assert_true(report.collected_objects >= 3);
    nd_release(manager);
}

static int allocations_left;

static bool allocation_fails(size_t bytes) {
    (void)bytes;
    return allocations_left-- <= 0;
}

static void test_F01_every_allocation_fails_once(void **state) {
    (void)state;
    bool done = false;
    for (int n = 0; !done; n++) {
        assert_true(n < 1000);
        allocations_left = n;
        nd__alloc_should_fail = allocation_fails;
        nd_auto nd_module *net =
            ND_SEQUENTIAL(nd_linear_module(nd_key_new(1), 40, 40, true), nd_relu_module());
        done = net && nd_module_to(net, (nd_device){ND_CPU, 0}) == ND_OK;
        nd__alloc_should_fail = NULL;
        assert_int_equal(nd_error_get_status(), done ? ND_OK : ND_ERROR_OUT_OF_MEMORY);
        nd_error_clear();
    }
}

static nd_tensor *silent_forward(const nd_module *self, const nd_tensor *x) {
    (void)self, (void)x;
    return NULL;
}
static const nd_module_type silent_type = {
    .size = sizeof(nd_module_type), .version = 1, .name = "silent", .forward = silent_forward};

static void test_a_forward_that_gives_nothing_is_an_error(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_module_new(&silent_type, NULL, 0);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    assert_null(nd_module_forward(module, x));
    assert_failed(ND_ERROR_STATE, "forward of silent gave no result");
}

static void test_F30_bad_arguments(void **state) {
    (void)state;
    nd_auto nd_module *module = nd_module_new(&scale_type, NULL, 0);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    nd_module_type no_forward = {.size = sizeof(nd_module_type), .version = 1, .name = "x"};
    assert_null(nd_module_new(NULL, NULL, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "type is NULL");
    assert_null(nd_module_new(&no_forward, NULL, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "forward");
    assert_null(nd_module_new(&scale_type, NULL, 8));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "data is NULL");
    assert_int_not_equal(nd_module_add_parameter(NULL, "x", x), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "module is NULL");
    assert_int_not_equal(nd_module_add_parameter(module, "x", NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "parameter is NULL");
    assert_int_not_equal(nd_module_add_child(module, "x", NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "module is NULL");
    assert_int_not_equal(nd_module_add_child(module, NULL, module), ND_OK);
    nd_error_clear();
    assert_null(nd_module_get_parameter(module, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "name is NULL");
    assert_null(nd_module_get_parameter(NULL, "x"));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "module is NULL");
    assert_null(nd_module_forward(module, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "x is NULL");
    assert_null(nd_module_forward(NULL, x));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "module is NULL");
    assert_int_not_equal(nd_module_zero_grad(NULL), ND_OK);
    nd_error_clear();
    assert_int_not_equal(nd_module_to(NULL, (nd_device){ND_CPU, 0}), ND_OK);
    nd_error_clear();
    assert_int_equal(nd_module_get_parameter_count(NULL), 0);
    assert_int_equal(nd_module_get_child_count(NULL), 0);
    assert_null(nd_module_get_data(NULL));
    assert_null(nd_module_get_child(NULL, 0));
    nd_error_clear();
}

static nd_tensor *mode_forward(const nd_module *self, const nd_tensor *x) {
    return nd_mul_scalar(x, nd_module_is_training(self) ? 2 : 3);
}

static const nd_module_type mode_type = {
    .size = sizeof(nd_module_type), .version = 1, .name = "mode", .forward = mode_forward};

static void test_modes_reach_everything_below(void **state) {
    (void)state;
    nd_auto nd_module *inner = nd_module_new(&mode_type, NULL, 0);
    nd_auto nd_module *outer = ND_SEQUENTIAL(nd_retain(inner), nd_relu_module());
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    assert_true(nd_module_is_training(outer) && nd_module_is_training(inner));
    nd_auto nd_tensor *training = nd_module_forward(outer, x);
    assert_true(nd_get_item(training) == 2);
    assert_ok(nd_module_set_training(outer, false));
    assert_false(nd_module_is_training(outer));
    assert_false(nd_module_is_training(inner));
    assert_false(nd_module_is_training(nd_module_get_child(outer, 1)));
    nd_auto nd_tensor *evaluating = nd_module_forward(outer, x);
    assert_true(nd_get_item(evaluating) == 3);
    // What is inside can be in another mode; a closed child leaves every mode as it was.
    assert_ok(nd_module_set_training(inner, true));
    assert_false(nd_module_is_training(outer));
    nd_auto nd_module *last = nd_retain(nd_module_get_child(outer, 1));
    assert_ok(nd_close(last));
    assert_int_equal(nd_module_set_training(outer, false), ND_ERROR_CLOSED);
    assert_failed(ND_ERROR_CLOSED, "module_set_training");
    assert_true(nd_module_is_training(inner));
    assert_false(nd_module_is_training(NULL));
    assert_int_equal(nd_module_set_training(NULL, true), ND_ERROR_INVALID_ARGUMENT);
    nd_error_clear();
}

static void test_buffers_are_listed_apart_from_parameters(void **state) {
    (void)state;
    nd_auto nd_module *inner = nd_linear_module(nd_key_new(1), 2, 3, false);
    nd_auto nd_tensor *mean = nd_zeros(ND_SHAPE(3), ND_F32);
    nd_auto nd_tensor *count = nd_zeros(ND_SHAPE(1), ND_I64);
    assert_ok(nd_module_add_buffer(inner, "mean", mean));
    nd_auto nd_module *outer = ND_SEQUENTIAL(nd_retain(inner));
    assert_ok(nd_module_add_buffer(outer, "count", count));
    assert_int_equal(nd_module_get_parameter_count(outer), 1);
    assert_int_equal(nd_module_get_buffer_count(outer), 2);
    assert_int_equal(nd_module_get_buffer_count(NULL), 0);
    const char *name = NULL;
    assert_ptr_equal(nd_module_get_buffer_at(outer, 0, &name), mean);
    assert_string_equal(name, "0.mean");
    assert_ptr_equal(nd_module_get_buffer_at(outer, 1, &name), count);
    assert_string_equal(name, "count");
    assert_null(nd_module_get_buffer_at(outer, 2, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "buffer 2 of a module that has 2");
    assert_ptr_equal(nd_module_get_buffer(outer, "0.mean"), mean);
    assert_null(nd_module_get_parameter(outer, "0.mean"));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "no parameter '0.mean'");
    assert_null(nd_module_get_buffer(outer, "0.weight"));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "no buffer '0.weight'");
    nd_auto nd_tensor *wanting = new_parameter(2);
    assert_int_equal(nd_module_add_buffer(outer, "w", wanting), ND_ERROR_STATE);
    assert_failed(ND_ERROR_STATE, "requires a gradient");
    nd_auto nd_tensor *wide = nd_zeros(ND_SHAPE(2, 3), ND_F32);
    nd_auto nd_tensor *turned = nd_transpose(wide, 0, 1);
    assert_int_equal(nd_module_add_buffer(outer, "t", turned), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "contiguous");
    assert_int_equal(nd_module_add_buffer(outer, "count", mean), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "has a member 'count' already");
    // They follow the module to another device, and stay the same tensors.
    assert_ok(nd_module_to(outer, (nd_device){ND_FAKE, 0}));
    assert_int_equal(nd_get_device(mean).kind, ND_FAKE);
    assert_int_equal(nd_get_device(count).kind, ND_FAKE);
    assert_ptr_equal(nd_module_get_buffer(outer, "count"), count);
}

static void test_a_module_in_another_float_dtype(void **state) {
    (void)state;
    nd_auto nd_module *net = nd_linear_module(nd_key_new(1), 2, 3, true);
    nd_auto nd_tensor *count = nd_zeros(ND_SHAPE(1), ND_I64);
    nd_auto nd_tensor *mean = nd_zeros(ND_SHAPE(3), ND_F32);
    assert_ok(nd_module_add_buffer(net, "count", count));
    assert_ok(nd_module_add_buffer(net, "mean", mean));
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "weight"));
    nd_auto nd_tensor *before = nd_clone(weight);
    nd_auto nd_tensor *grad = nd_ones(ND_SHAPE(3, 2), ND_F32);
    assert_ok(nd_set_grad(weight, grad));
    assert_ok(nd_module_cast(net, ND_F64));
    assert_int_equal(nd_get_dtype(weight), ND_F64);
    assert_int_equal(nd_get_dtype(nd_get_grad(weight)), ND_F64);
    assert_int_equal(nd_get_dtype(mean), ND_F64);
    assert_int_equal(nd_get_dtype(count), ND_I64);
    assert_true(nd_is_leaf(weight) && nd_requires_grad(weight));
    for (int i = 0; i < 6; i++)
        assert_true(((double *)nd_get_data(weight))[i] == ((float *)nd_get_data(before))[i]);
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4, 2), ND_F64);
    nd_auto nd_tensor *y = nd_module_forward(net, x);
    assert_handle(y);
    assert_int_equal(nd_get_dtype(y), ND_F64);
    assert_int_equal(nd_module_cast(net, ND_I64), ND_ERROR_DTYPE);
    assert_failed(ND_ERROR_DTYPE, "module_cast");
    assert_int_equal(nd_get_dtype(weight), ND_F64);
}

/// What a graph of before has for its gradients lies elsewhere, or is of another size.
static void test_a_pass_through_what_was_used_before_a_cast_or_a_move(void **state) {
    (void)state;
    for (int moves = 0; moves < 2; moves++)
        for (int create_graph = 0; create_graph < 2; create_graph++) {
            nd_auto nd_module *net = nd_linear_module(nd_key_new(1), 2, 3, true);
            nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(net, "weight"));
            nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4, 2), ND_F32);
            nd_auto nd_tensor *y = nd_module_forward(net, x);
            nd_auto nd_tensor *total = nd_sum(y, 0, NULL, false);
            nd_backward_options options = ND_BACKWARD_OPTIONS_INIT;
            options.create_graph = create_graph;
            for (int with_grad = 0; with_grad < 2; with_grad++) {
                if (with_grad)
                    assert_ok(nd_backward(total, &options));
                assert_ok(moves ? nd_module_to(net, (nd_device){ND_FAKE, 0})
                                : nd_module_cast(net, ND_F64));
                const nd_tensor *before = nd_get_grad(weight);
                assert_int_equal(nd_backward(total, &options), ND_ERROR_STATE);
                assert_failed(ND_ERROR_STATE, "cast or moved");
                assert_ptr_equal(nd_get_grad(weight), before);
                assert_ok(moves ? nd_module_to(net, (nd_device){ND_CPU, 0})
                                : nd_module_cast(net, ND_F32));
            }
            assert_ok(nd_backward(total, &options));
            assert_ok(nd_module_zero_grad(net)); // with create_graph they are a cycle
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_user_defined_module),
        ND_TEST(test_full_names_in_order_of_addition),
        ND_TEST(test_a_module_holds_its_members),
        ND_TEST(test_many_members),
        ND_TEST(test_zero_grad_drops_the_gradients),
        ND_TEST(test_to_keeps_the_handles_and_their_gradients),
        ND_TEST(test_members_that_are_refused),
        ND_TEST(test_a_module_cannot_contain_itself),
        ND_TEST(test_nesting_is_bounded),
        ND_TEST(test_F15_closed_module),
        ND_TEST(test_G11_a_hook_that_captures_its_module_is_collected),
        ND_TEST(test_F01_every_allocation_fails_once),
        ND_TEST(test_F30_bad_arguments),
        ND_TEST(test_a_forward_that_gives_nothing_is_an_error),
        ND_TEST(test_modes_reach_everything_below),
        ND_TEST(test_buffers_are_listed_apart_from_parameters),
        ND_TEST(test_a_pass_through_what_was_used_before_a_cast_or_a_move),
        ND_TEST(test_a_module_in_another_float_dtype),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
