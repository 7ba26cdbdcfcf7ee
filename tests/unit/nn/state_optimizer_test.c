// The state tensors of optimizers in a file: parameters that were cast, and loads that fail.
#include "tests/training.h"
#include "tests/unit/io/files.h"

/// An optimizer as the part "o", after some steps, of a model of `dtype` that becomes `then`.
static nd_state *optimizer_state(nd_dtype dtype, int steps, nd_dtype then) {
    nd_auto nd_module *model = nd_linear_module(nd_key_new(1), 20, 20, true);
    assert_ok(nd_module_cast(model, dtype));
    nd_auto nd_optimizer *adam = adam_of(model, 0.1, 0.9, 0.9, 1e-8, 0);
    for (int i = 0; i < steps; i++) {
        nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1, 20), dtype);
        nd_auto nd_tensor *y = nd_module_forward(model, x);
        nd_auto nd_tensor *loss = nd_sum(y, 0, NULL, false);
        assert_ok(nd_backward(loss, NULL));
        assert_ok(nd_optimizer_step(adam));
        assert_ok(nd_optimizer_zero_grad(adam));
    }
    assert_ok(nd_module_cast(model, then));
    nd_state *it = nd_state_new();
    assert_ok(nd_state_add_optimizer(it, "o", adam));
    return it;
}

/// What a state saves, to be freed.
static char *saved_bytes(const nd_state *it, size_t *ret_bytes) {
    const char *path = nd_test_path("bytes.safetensors");
    assert_ok(nd_save_state(it, path));
    return nd_test_read(path, ret_bytes);
}

static void assert_saves(const nd_state *it, const char *expected, size_t expected_bytes) {
    size_t bytes;
    char *content = saved_bytes(it, &bytes);
    assert_int_equal(bytes, expected_bytes);
    assert_memory_equal(content, expected, bytes);
    free(content);
}

static void test_a_load_that_a_quota_ends_changes_nothing(void **state) {
    (void)state;
    char path[512];
    snprintf(path, sizeof path, "%s", nd_test_path("quota.safetensors"));
    nd_auto nd_state *saved = optimizer_state(ND_F32, 1, ND_F32);
    assert_ok(nd_save_state(saved, path));
    nd_auto nd_manager *manager = nd_manager_new(NULL, "small");
    nd_state *it = NULL;
    nd_with_manager(manager) {
        it = optimizer_state(ND_F32, 0, ND_F32);
    }
    size_t bytes;
    char *before = saved_bytes(it, &bytes);
    const uint64_t there = nd_manager_get_total_bytes(manager);
    int refused = 0;
    nd_status status = ND_ERROR_QUOTA;
    for (uint64_t more = 1; status != ND_OK; more += 200) {
        assert_ok(nd_manager_set_quota(manager, ND_CPU, there + more));
        status = nd_load_state(it, path);
        if (status == ND_OK)
            break;
        assert_failed(ND_ERROR_QUOTA, "load_state");
        assert_int_equal(nd_manager_get_total_bytes(manager), there);
        assert_saves(it, before, bytes);
        refused++;
    }
    assert_true(refused > 3); // also behind the first state tensor
    free(before);
    nd_release(it);
}

/// State tensors of a model that was cast meanwhile become of its dtype by a load that succeeds.
static void test_a_load_that_fails_leaves_the_dtypes_of_state_tensors(void **state) {
    (void)state;
    char path[512], path_more[512];
    snprintf(path, sizeof path, "%s", nd_test_path("wide.safetensors"));
    snprintf(path_more, sizeof path_more, "%s", nd_test_path("more.safetensors"));
    nd_auto nd_state *wide = optimizer_state(ND_F64, 2, ND_F64);
    assert_ok(nd_save_state(wide, path));
    size_t wide_bytes, bytes;
    char *wide_content = saved_bytes(wide, &wide_bytes);
    assert_ok(nd_state_set_i64(wide, "more", 1));
    assert_ok(nd_save_state(wide, path_more));
    nd_auto nd_state *it = optimizer_state(ND_F32, 1, ND_F64);
    char *before = saved_bytes(it, &bytes);
    const uint64_t there = nd_manager_get_total_bytes(NULL);
    assert_int_equal(nd_load_state(it, path_more), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "has 'more', which no part");
    assert_int_equal(nd_manager_get_total_bytes(NULL), there);
    assert_saves(it, before, bytes);
    assert_ok(nd_load_state(it, path));
    assert_saves(it, wide_content, wide_bytes);
    free(before);
    free(wide_content);
}

// A model, what optimizes it, and both as a state.
typedef struct run {
    nd_module *model;
    nd_optimizer *optimizer;
    nd_state *state;
} run;

static run new_run(nd_dtype dtype, int kind) {
    run it = {.model = nd_linear_module(nd_key_new(1), 3, 2, true), .state = nd_state_new()};
    assert_ok(nd_module_cast(it.model, dtype));
    it.optimizer = kind == 0   ? adam_of(it.model, 0.1, 0.9, 0.9, 1e-8, 0)
                   : kind == 1 ? nd_sgd(it.model, &(nd_sgd_options)ND_SGD_OPTIONS_INIT)
                               : nd_adagrad(it.model, NULL);
    assert_handle(it.optimizer);
    assert_ok(nd_state_add_module(it.state, "m", it.model));
    assert_ok(nd_state_add_optimizer(it.state, "o", it.optimizer));
    return it;
}

static void free_run(run *it) {
    nd_release(it->state);
    nd_release(it->optimizer);
    nd_release(it->model);
}

static void backward(const run *it, int seed) {
    const nd_dtype dtype = nd_get_dtype(nd_module_get_parameter_at(it->model, 0, NULL));
    nd_auto nd_tensor *x = nd_randn(nd_key_new((uint64_t)seed), ND_SHAPE(4, 3), dtype);
    nd_auto nd_tensor *y = nd_module_forward(it->model, x);
    nd_auto nd_tensor *squares = nd_mul(y, y);
    nd_auto nd_tensor *loss = nd_sum(squares, 0, NULL, false);
    assert_ok(nd_backward(loss, NULL));
}

static void step(const run *it, int seed) {
    backward(it, seed);
    assert_ok(nd_optimizer_step(it->optimizer));
    assert_ok(nd_optimizer_zero_grad(it->optimizer));
}

/// Steps under a quota that grows until one is made; each that is refused leaves the state, the number
/// of objects and of bytes as they were. Returns how many were.
static int steps_until_one_fits(const run *it, nd_manager *manager) {
    size_t bytes;
    char *before = saved_bytes(it->state, &bytes);
    const uint64_t there = nd_manager_get_total_bytes(manager);
    const uint64_t objects = nd_manager_get_total_objects(manager);
    int refused = -1;
    nd_status status;
    do {
        assert_ok(nd_manager_set_quota(manager, ND_CPU, there + 1 + 8 * (uint64_t)(++refused)));
        status = nd_optimizer_step(it->optimizer);
        assert_ok(nd_manager_set_quota(manager, ND_CPU, 0));
        if (status != ND_OK) {
            assert_failed(ND_ERROR_QUOTA, "");
            assert_int_equal(nd_manager_get_total_bytes(manager), there);
            assert_int_equal(nd_manager_get_total_objects(manager), objects);
            assert_saves(it->state, before, bytes);
        }
    } while (status != ND_OK);
    free(before);
    return refused;
}

/// Writes a parameter, whoever holds it.
static void fill(const nd_tensor *parameter) {
    nd_no_grad {
        assert_ok(nd_fill_((nd_tensor *)(uintptr_t)parameter, 0.3));
    }
}

static void test_a_step_that_a_quota_ends_changes_nothing(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_BF16};
    // The first step; one after the model was cast; and one after somebody has written the parameters,
    // which makes another master.
    for (int i = 0; i < 3 * 3 * 3; i++) {
        const nd_dtype dtype = dtypes[i % 3];
        const int kind = i / 3 % 3, when = i / 9;
        nd_auto nd_manager *manager = nd_manager_new(NULL, "small");
        run all = {0}, refused = {0};
        nd_with_manager(manager) {
            refused = new_run(when == 1 ? ND_F16 : dtype, kind);
        }
        all = new_run(when == 1 ? ND_F16 : dtype, kind);
        for (const run *it = &all; it; it = it == &all ? &refused : NULL) {
            if (when > 0)
                step(it, 1);
            if (when == 1)
                assert_ok(nd_module_cast(it->model, dtype));
            if (when == 2)
                fill(nd_module_get_parameter_at(it->model, 0, NULL));
            backward(it, 2);
        }
        const int count = steps_until_one_fits(&refused, manager);
        const bool has_state = kind != 1 || dtype == ND_BF16;
        assert_true(count > (when == 0 && has_state ? 3 : -1));
        // And the one that fits makes what it makes where none was refused.
        assert_ok(nd_optimizer_step(all.optimizer));
        size_t bytes;
        char *expected = saved_bytes(all.state, &bytes);
        assert_saves(refused.state, expected, bytes);
        free(expected);
        free_run(&all);
        free_run(&refused);
    }
}

/// A run whose model was cast between steps, or after the last one, goes on to the same bits in a
/// program whose model had that dtype from the beginning, and in its own.
static void test_a_run_that_was_cast_goes_on(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    for (int i = 0; i < 4 * 4 * 3 * 2 * 3; i++) {
        const nd_dtype from = dtypes[i % 4], to = dtypes[i / 4 % 4];
        const int before = i / 16 % 3, after = i / 48 % 2, kind = i / 96;
        char path[512];
        snprintf(path, sizeof path, "%s", nd_test_path("cast.safetensors"));
        run first = new_run(from, kind);
        for (int k = 0; k < before; k++)
            step(&first, k);
        assert_ok(nd_module_cast(first.model, to));
        for (int k = 0; k < after; k++)
            step(&first, 10 + k);
        assert_ok(nd_save_state(first.state, path));
        run second = new_run(to, kind);
        assert_ok(nd_load_state(second.state, path));
        step(&first, 20);
        step(&second, 20);
        size_t bytes;
        char *expected = saved_bytes(first.state, &bytes);
        assert_saves(second.state, expected, bytes);
        assert_ok(nd_load_state(first.state, path));
        step(&first, 20);
        assert_saves(first.state, expected, bytes);
        free(expected);
        free_run(&first);
        free_run(&second);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_a_load_that_a_quota_ends_changes_nothing),
        ND_TEST(test_a_load_that_fails_leaves_the_dtypes_of_state_tensors),
        ND_TEST(test_a_step_that_a_quota_ends_changes_nothing),
        ND_TEST(test_a_run_that_was_cast_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
