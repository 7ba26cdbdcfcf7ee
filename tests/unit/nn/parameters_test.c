// Saving and loading the parameters of a module: all or nothing.
#include "tests/unit/io/files.h"

static nd_module *new_net(uint64_t seed, int64_t hidden) {
    nd_key key = nd_key_new(seed);
    nd_module *net =
        ND_SEQUENTIAL(nd_linear_module(nd_key_fold(key, 0), 3, hidden, true), nd_relu_module(),
                      nd_linear_module(nd_key_fold(key, 1), hidden, 2, false));
    assert_handle(net);
    return net;
}

static bool same_parameters(const nd_module *a, const nd_module *b) {
    bool same = nd_module_get_parameter_count(a) == nd_module_get_parameter_count(b);
    for (size_t i = 0; same && i < nd_module_get_parameter_count(a); i++) {
        const nd_tensor *x = nd_module_get_parameter_at(a, i, NULL);
        const nd_tensor *y = nd_module_get_parameter_at(b, i, NULL);
        same = nd_get_numel(x) == nd_get_numel(y) &&
               memcmp(nd_get_data(x), nd_get_data(y), (size_t)nd_get_numel(x) * 4) == 0;
    }
    return same;
}

static void test_round_trip(void **state) {
    (void)state;
    const char *path = nd_test_path("net.safetensors");
    nd_auto nd_module *saved = new_net(1, 4);
    nd_auto nd_module *loaded = new_net(2, 4);
    assert_ok(nd_save_parameters(saved, path));
    assert_false(same_parameters(saved, loaded));
    nd_auto nd_tensor *weight = nd_retain(nd_module_get_parameter(loaded, "0.weight"));
    uint64_t version = nd_get_version(weight);
    assert_ok(nd_load_parameters(loaded, path));
    assert_true(same_parameters(saved, loaded));
    assert_ptr_equal(nd_module_get_parameter(loaded, "0.weight"), weight);
    assert_true(nd_get_version(weight) > version);
    assert_true(nd_requires_grad(weight) && nd_is_leaf(weight));
    nd_auto nd_list *list = nd_load_safetensors(path);
    static const char *const names[] = {"0.weight", "0.bias", "2.weight"};
    assert_int_equal(nd_list_get_size(list), 3);
    for (size_t i = 0; i < 3; i++) {
        char name[32];
        assert_string_equal(nd_get_name(nd_list_get(list, i), name, sizeof(name)), names[i]);
    }
}

static void test_buffers_are_saved_and_loaded(void **state) {
    (void)state;
    const char *path = nd_test_path("buffers.safetensors");
    nd_auto nd_module *saved = new_net(1, 4);
    nd_auto nd_module *loaded = new_net(2, 4);
    nd_auto nd_tensor *count = nd_full(ND_SHAPE(2), 7, ND_I64);
    nd_auto nd_tensor *zero = nd_zeros(ND_SHAPE(2), ND_I64);
    assert_ok(nd_module_add_buffer(saved, "count", count));
    assert_ok(nd_save_parameters(saved, path));
    assert_int_equal(nd_load_parameters(loaded, path), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "has 4 tensors, the module has 3");
    assert_ok(nd_module_add_buffer(loaded, "count", zero));
    assert_ok(nd_load_parameters(loaded, path));
    assert_true(same_parameters(saved, loaded));
    assert_memory_equal(nd_get_data(zero), nd_get_data(count), 16);
    assert_ok(nd_module_add_buffer(loaded, "more", count));
    assert_int_equal(nd_load_parameters(loaded, path), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "no tensor for the buffer 'more'");
}

/// Loading `names` and `tensors` into a net must fail with this fragment and change nothing.
static void refuse(const char *const *names, const nd_tensor *const *tensors, size_t count,
                   nd_status status, const char *fragment) {
    const char *path = nd_test_path("other.safetensors");
    nd_auto nd_module *before = new_net(3, 4);
    nd_auto nd_module *net = new_net(3, 4);
    assert_ok(nd_save_safetensors(path, count, names, tensors));
    assert_int_equal(nd_load_parameters(net, path), status);
    assert_failed(status, fragment);
    assert_true(same_parameters(before, net));
}

static void test_what_does_not_fit_is_refused_whole(void **state) {
    (void)state;
    nd_auto nd_tensor *weight0 = nd_ones(ND_SHAPE(4, 3), ND_F32);
    nd_auto nd_tensor *bias0 = nd_ones(ND_SHAPE(4), ND_F32);
    nd_auto nd_tensor *weight2 = nd_ones(ND_SHAPE(2, 4), ND_F32);
    nd_auto nd_tensor *turned = nd_ones(ND_SHAPE(4, 2), ND_F32);
    nd_auto nd_tensor *doubles = nd_ones(ND_SHAPE(2, 4), ND_F64);
    const char *names[] = {"0.weight", "0.bias", "2.weight", "more"};
    const nd_tensor *tensors[] = {weight0, bias0, weight2, bias0};
    refuse(names, tensors, 2, ND_ERROR_INVALID_ARGUMENT, "no tensor for the parameter '2.weight'");
    refuse(names, tensors, 4, ND_ERROR_INVALID_ARGUMENT, "has 4 tensors, the module has 3");
    tensors[2] = turned;
    refuse(names, tensors, 3, ND_ERROR_SHAPE, "[4, 2]");
    tensors[2] = doubles;
    refuse(names, tensors, 3, ND_ERROR_DTYPE, "float64");
    names[2] = "2.weights";
    refuse(names, tensors, 3, ND_ERROR_INVALID_ARGUMENT, "'2.weight'");
}

static void test_F24_damaged_file_changes_nothing(void **state) {
    (void)state;
    const char *path = nd_test_path("damaged.safetensors");
    nd_auto nd_module *before = new_net(1, 4);
    nd_auto nd_module *net = new_net(1, 4);
    nd_auto nd_module *other = new_net(2, 4);
    assert_ok(nd_save_parameters(other, path));
    size_t bytes;
    char *content = nd_test_read(path, &bytes);
    for (size_t length = 0; length < bytes; length += 7) {
        nd_test_write(path, content, length);
        assert_int_equal(nd_load_parameters(net, path), ND_ERROR_FORMAT);
        assert_failed(ND_ERROR_FORMAT, "damaged.safetensors");
    }
    free(content);
    assert_true(same_parameters(before, net));
    assert_int_equal(nd_load_parameters(net, nd_test_path("missing")), ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "load_parameters");
    assert_int_equal(nd_save_parameters(net, "/dev/full"), ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "No space left");
}

static void test_F30_bad_arguments(void **state) {
    (void)state;
    nd_auto nd_module *net = new_net(1, 4);
    assert_int_not_equal(nd_save_parameters(NULL, "x"), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "module is NULL");
    assert_int_not_equal(nd_save_parameters(net, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_int_not_equal(nd_load_parameters(NULL, "x"), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "module is NULL");
    assert_int_not_equal(nd_load_parameters(net, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_ok(nd_close(net));
    assert_int_equal(nd_save_parameters(net, "x"), ND_ERROR_CLOSED);
    assert_int_equal(nd_load_parameters(net, "x"), ND_ERROR_CLOSED);
    nd_error_clear();
}

/// A buffer that is cast has memory of its own. Where it was a view it is none any more; where there
/// are views of what it was, a history that one of the two gets since is not the other's.
static void test_a_buffer_that_is_cast_leaves_its_views(void **state) {
    (void)state;
    for (int k = 0; k < 8; k++) {
        const bool is_base = k & 1, writes_buffer = k & 2, made_before = k & 4;
        nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(2, 4), ND_F32);
        nd_auto nd_tensor *v = nd_select(x, 0, 0);
        nd_tensor *buffer = is_base ? x : v, *other = is_base ? v : x;
        nd_auto nd_module *module = nd_sequential(0, NULL);
        assert_ok(nd_module_add_buffer(module, "b", buffer));
        nd_auto nd_tensor *leaf = nd_ones(ND_SHAPE(4), ND_F32);
        assert_ok(nd_set_requires_grad(leaf, true));
        nd_auto nd_tensor *z = nd_mul_scalar(leaf, 2);
        if (made_before) { // x has history by then
            assert_ok(nd_add_(x, z));
            assert_true(nd_requires_grad(v));
        }
        assert_ok(nd_module_cast(module, ND_F64));
        assert_true(is_base || (nd_is_leaf(v) && !nd_get_node(v)));
        nd_auto nd_tensor *wide = nd_cast(z, ND_F64);
        nd_tensor *written = writes_buffer ? buffer : other;
        nd_status status = nd_add_(written, writes_buffer ? wide : z);
        if (is_base && !writes_buffer) { // through a view that was left behind
            assert_int_equal(status, ND_ERROR_STATE);
            assert_non_null(strstr(nd_error_get_message(), "was cast or moved since"));
            nd_error_clear();
            nd_no_grad assert_ok(nd_add_(v, z));
            continue;
        }
        assert_ok(status);
        assert_true(nd_requires_grad(written));
        nd_auto nd_tensor *loss = nd_sum(written, 0, NULL, false);
        assert_ok(nd_backward(loss, NULL));
        if (is_base) { // v has what it had, or says that it cannot tell
            nd_auto nd_tensor *read = nd_mul_scalar(v, 3);
            assert_true(read || nd_error_get_status() == ND_ERROR_STATE);
            nd_error_clear();
        } else if (!made_before || !writes_buffer) {
            nd_tensor *untouched = writes_buffer ? other : buffer;
            assert_false(nd_requires_grad(untouched));
            assert_null(nd_get_node(untouched));
            assert_ok(nd_set_requires_grad(untouched, true));
            nd_auto nd_tensor *sum = nd_sum(untouched, 0, NULL, false);
            assert_ok(nd_backward(sum, NULL));
            assert_non_null(nd_get_grad(untouched));
        }
    }
    // A view made unrecorded may be written like any other tensor, once its memory is its own.
    nd_auto nd_tensor *of = nd_zeros(ND_SHAPE(2, 4), ND_F32), *leaf = nd_ones(ND_SHAPE(4), ND_F64);
    nd_tensor *cut = NULL;
    nd_no_grad cut = nd_select(of, 0, 0);
    nd_auto nd_module *holder = nd_sequential(0, NULL);
    assert_ok(nd_module_add_buffer(holder, "b", cut));
    assert_ok(nd_module_cast(holder, ND_F64));
    assert_ok(nd_set_requires_grad(leaf, true));
    assert_ok(nd_mul_(cut, leaf));
    nd_release(cut);
    // Nothing keeps what it was a view of.
    const uint64_t before = nd_manager_get_total_bytes(NULL);
    nd_tensor *flat = nd_zeros(ND_SHAPE(2, 1000), ND_F32), *part = nd_select(flat, 0, 0);
    nd_auto nd_module *module = nd_sequential(0, NULL);
    assert_ok(nd_module_add_buffer(module, "b", part));
    nd_release(part);
    nd_release(flat);
    assert_ok(nd_module_cast(module, ND_BF16));
    assert_int_equal(nd_manager_get_total_bytes(NULL) - before, 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_round_trip),
        ND_TEST(test_buffers_are_saved_and_loaded),
        ND_TEST(test_what_does_not_fit_is_refused_whole),
        ND_TEST(test_F24_damaged_file_changes_nothing),
        ND_TEST(test_F30_bad_arguments),
        ND_TEST(test_a_buffer_that_is_cast_leaves_its_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
