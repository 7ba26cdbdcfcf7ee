// Random views where they leave the library (texts, host memory, files, batches), where they are
// what training writes, and where a write must be refused.
#include "tests/behaviour/views.h"
#include "tests/training.h"

static const nd_device cpu = {ND_CPU, 0};

/// A view where the test's tensors are. The host makes it, so nothing else is made there by itself.
static nd_tensor *placed(const nd_tensor *x) {
    nd_device device = nd_test_device();
    return device.kind == ND_CPU ? nd_retain(x) : views_moved(x, device);
}

/// Its elements on the CPU beside those that are there.
static void assert_same(const char *what, int64_t round, const nd_tensor *got,
                        const nd_tensor *expected) {
    nd_auto nd_tensor *here = nd_to(got, cpu);
    views_assert_same(what, round, here, expected);
}

/// Whether two elements of x share a place.
static bool shares_elements(const nd_tensor *x) {
    for (int64_t i = 0; i < nd_get_numel(x); i++)
        for (int64_t j = 0; j < i; j++)
            if (views_offset(x, i) == views_offset(x, j))
                return true;
    return false;
}

static void test_F41_a_view_that_shares_elements_is_not_written(void **state) {
    (void)state;
    int refused = 0;
    assert_ok(nd_set_default_device(cpu));
    for (int64_t round = 0; round < views_rounds(2000); round++) {
        views_begin(round);
        int64_t shape[ND_MAX_DIMS];
        int ndim = views_shape(0, 4, shape);
        nd_auto nd_tensor *x = views_random(VIEWS_ANY, ndim, shape, ND_F32, NULL);
        if (nd_get_numel(x) > 300)
            continue;
        nd_auto nd_tensor *before = views_compact(x), *written = placed(x);
        nd_auto nd_tensor *added = nd_to(before, nd_test_device());
        bool shared = shares_elements(x);
        nd_status status = nd_add_scaled_(written, added, 1);
        // What does not come from slicing may be refused without need.
        if (shared && status != ND_ERROR_INVALID_ARGUMENT)
            fail_msg("round %lld: %s", (long long)round, nd_status_get_name(status));
        if (status != ND_OK)
            assert_same("add_scaled_ refused", round, written, before);
        refused += shared;
        nd_error_clear();
    }
    assert_true(refused > 0);
}

/// What leaves the library of x: its text, its bytes, its one element.
static void check_leaving(int64_t round, const nd_tensor *x, const nd_tensor *copy) {
    static char got[1 << 16], expected[1 << 16];
    nd_auto nd_tensor *there = placed(copy);
    assert_true(nd_format(x, got, sizeof got) >= 0);
    assert_true(nd_format(there, expected, sizeof expected) >= 0);
    if (strcmp(got, expected) != 0)
        fail_msg("format, round %lld: %s but %s", (long long)round, got, expected);
    size_t bytes = (size_t)nd_get_numel(x) * nd_dtype_get_size(nd_get_dtype(x));
    char *data = malloc(bytes + 1);
    assert_non_null(data);
    assert_ok(nd_copy_to_host(x, data, bytes));
    assert_memory_equal(data, nd_get_data(copy), bytes);
    free(data);
    if (nd_get_numel(x) == 1)
        assert_true(nd_get_item(x) == nd_get_item(copy));
}

static void test_F41_views_leave_the_library_whole(void **state) {
    (void)state;
    char path[] = "/tmp/nd_views_XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    assert_ok(nd_set_default_device(cpu));
    for (int64_t round = 0; round < views_rounds(100); round++) {
        views_begin(round);
        int64_t shape[ND_MAX_DIMS];
        int ndim = views_shape(0, ND_MAX_DIMS, shape);
        nd_auto nd_tensor *made =
            views_random(VIEWS_ANY, ndim, shape, (nd_dtype)views_below(ND_DTYPE_COUNT), NULL);
        nd_auto nd_tensor *copy = views_compact(made), *x = placed(made);
        check_leaving(round, x, copy);
        assert_ok(nd_save_safetensors(path, 1, (const char *const[]){"x"},
                                      ((const nd_tensor *const[]){x})));
        nd_auto nd_list *loaded = nd_load_safetensors(path);
        assert_handle(loaded);
        views_assert_same("safetensors", round, (const nd_tensor *)nd_list_get(loaded, 0), copy);
    }
    unlink(path);
}

static nd_tensor *forward_nothing(const nd_module *self, const nd_tensor *x) {
    (void)self;
    return nd_clone(x);
}

/// A training step from a parameter and a gradient that lie oddly.
static void check_step(int64_t round, bool adam) {
    int64_t shape[] = {1 + views_below(3), 1, 1 + views_below(4)};
    nd_auto nd_tensor *made = views_random(VIEWS_DISTINCT, 3, shape, ND_F32, NULL);
    nd_auto nd_tensor *grad_made = views_random(VIEWS_ANY, 3, shape, ND_F32, NULL);
    nd_auto nd_tensor *copy_made = views_compact(made), *grad_copy_made = views_compact(grad_made);
    nd_auto nd_tensor *x = placed(made), *grad = placed(grad_made);
    nd_auto nd_tensor *copy = placed(copy_made), *grad_copy = placed(grad_copy_made);
    nd_tensor *sides[] = {x, copy};
    const nd_tensor *grads[] = {grad, grad_copy};
    if (!nd_is_contiguous(x))
        return; // which parameters must be
    for (int side = 0; side < 2; side++) {
        static const nd_module_type type = {sizeof type, 1, "one", forward_nothing};
        nd_auto nd_module *module = nd_module_new(&type, NULL, 0);
        assert_handle(module);
        assert_ok(nd_set_requires_grad(sides[side], true));
        assert_ok(nd_module_add_parameter(module, "x", sides[side]));
        nd_auto nd_optimizer *optimizer =
            adam ? adamw_of(module, 0.1, 0.9, 0.99, 1e-8, 0.1) : sgd_of(module, 0.1, 0.5, 0.1);
        assert_handle(optimizer);
        for (int step = 0; step < 3; step++) {
            assert_ok(nd_set_grad(sides[side], grads[side]));
            assert_ok(nd_optimizer_step(optimizer));
        }
        assert_ok(nd_optimizer_zero_grad(optimizer));
    }
    nd_auto nd_tensor *expected = nd_to(copy, cpu);
    assert_same("optimizer step", round, x, expected);
}

static void test_F41_training_steps_from_odd_gradients(void **state) {
    (void)state;
    assert_ok(nd_set_default_device(cpu));
    for (int64_t round = 0; round < views_rounds(100); round++) {
        views_begin(round);
        check_step(round, views_chance(50));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F41_a_view_that_shares_elements_is_not_written),
        ND_TEST(test_F41_views_leave_the_library_whole),
        ND_TEST(test_F41_training_steps_from_odd_gradients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
