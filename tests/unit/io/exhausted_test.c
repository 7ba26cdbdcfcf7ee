// Files without memory: every request fails once, and every one asks before it fails.
#include "tests/unit/io/exhausted.h"
#include "tests/unit/io/files.h"

/// Writes two tensors to a .npy and .npz files, and reads them. False at the first error.
static bool write_and_read_numpy(const char *const *names, const nd_tensor *const *tensors) {
    const char *path = nd_test_path("exhausted.npz");
    nd_npz_options options = ND_NPZ_OPTIONS_INIT;
    options.compressed = ND_HAVE_ZLIB;
    nd_load_options mapped = ND_LOAD_OPTIONS_INIT;
    mapped.mapped = true;
    if (nd_save_npz(path, 2, names, tensors, &options) != ND_OK)
        return false;
    nd_auto nd_map *map = nd_load_npz(path);
    if (!map || nd_save_npy(path, tensors[1]) != ND_OK)
        return false;
    assert_int_equal(nd_map_get_size(map), 2);
    nd_auto nd_tensor *array = nd_load_npy(path, &mapped);
    return array != NULL;
}

/// Opens a GGUF file of one block of Q8_0, all zero, and reads it. False at the first error.
static bool read_gguf(void) {
    static const unsigned char gguf[128 + 34] = {
        'G', 'G', 'U', 'F', 3, 0, 0, 0,   1, 0, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1,
        0,   0,   0,   0,   0, 0, 0, 'w', 1, 0, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0};
    const char *path = nd_test_path("exhausted.gguf");
    nd_test_write(path, gguf, sizeof gguf);
    nd_auto nd_gguf *file = nd_gguf_open(path);
    nd_auto nd_tensor *w = file ? nd_gguf_load_tensor(file, "w", ND_F16, NULL) : NULL;
    nd_tensor *values = NULL, *scales = NULL;
    if (!w || nd_gguf_load_quantized(file, "w", &values, &scales) != ND_OK)
        return false;
    assert_int_equal(nd_get_numel(values), 32);
    nd_release(values);
    nd_release(scales);
    return true;
}

/// Writes a text of numbers and reads it. False at the first error.
static bool write_and_read_csv(const nd_tensor *tensor) {
    const char *path = nd_test_path("exhausted.csv");
    if (nd_save_csv(path, tensor, NULL) != ND_OK)
        return false;
    nd_auto nd_tensor *read = nd_load_csv(path, ND_F64, NULL);
    return read != NULL;
}

/// Writes two tensors, reads them, and an IDX file. False at the first error.
static bool write_and_read(const nd_tensor *const *tensors, const char *idx) {
    const char *names[] = {"first", "second"};
    const char *path = nd_test_path("exhausted.safetensors");
    if (nd_save_safetensors(path, 2, names, tensors) != ND_OK)
        return false;
    nd_auto nd_list *list = nd_load_safetensors(path);
    if (!list || !write_and_read_numpy(names, tensors) || !read_gguf() ||
        !write_and_read_csv(tensors[1]))
        return false;
    nd_auto nd_tensor *digits = nd_load_idx(idx);
    if (!digits)
        return false;
    assert_int_equal(nd_list_get_size(list), 2);
    assert_int_equal(nd_get_numel(digits), 3);
    return true;
}

static const char *write_idx(void) {
    static const unsigned char idx[] = {0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9};
    const char *path = nd_test_path("exhausted.idx");
    nd_test_write(path, idx, sizeof idx);
    return path;
}

/// The n-th allocation and all behind it fail, for n = 0, 1, ... until all is well without.
static void exhaust(bool callback) {
    char idx[512];
    snprintf(idx, sizeof idx, "%s", write_idx());
    nd_auto nd_tensor *first = nd_arange(0, 100, 1, ND_F32);
    nd_auto nd_tensor *rows = nd_ones(ND_SHAPE(60, 40), ND_F64);
    nd_auto nd_tensor *second = nd_transpose(rows, 0, 1); // not contiguous
    const nd_tensor *tensors[] = {first, second};
    bool failed = true;
    int n = 0;
    for (; failed; n++) {
        assert_true(n < 1000);
        allocations_left = n;
        asked = false;
        nd__alloc_should_fail = allocations_fail;
        bool done = write_and_read(tensors, idx);
        failed = allocations_left < 0;
        nd__alloc_should_fail = NULL;
        assert_int_equal(done, callback || !failed);
        assert_int_equal(nd_error_get_status(), done ? ND_OK : ND_ERROR_OUT_OF_MEMORY);
        nd_error_clear();
    }
    assert_true(n > 10);
}

static void test_F01_every_allocation_fails_once(void **state) {
    (void)state;
    exhaust(false);
}

static void test_F03_every_request_asks_before_it_fails(void **state) {
    (void)state;
    nd_memory_callback callback = ND_MEMORY_CALLBACK_INIT;
    callback.give_up = give_up;
    assert_ok(nd_memory_set_callback(NULL, &callback));
    exhaust(true);
    assert_ok(nd_memory_set_callback(NULL, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F01_every_allocation_fails_once),
        ND_TEST(test_F03_every_request_asks_before_it_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
