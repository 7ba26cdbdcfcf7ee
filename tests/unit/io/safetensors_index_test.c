// Models of several safetensors files, and indices that lie.
#include "tests/unit/io/files.h"
#include "tests/unit/io/memory.h"

static nd_tensor *numbers(int count) {
    return nd_arange(0, count, 1, ND_F32);
}

/// A file of some tensors, each named by a letter and as long as its place in the alphabet.
static void write_shard(const char *name, const char *letters) {
    nd_tensor *tensors[26];
    char texts[26][2] = {{0}};
    const char *names[26];
    size_t count = strlen(letters);
    for (size_t i = 0; i < count; i++) {
        texts[i][0] = letters[i];
        names[i] = texts[i];
        tensors[i] = numbers(letters[i] - 'a' + 1);
    }
    assert_ok(
        nd_save_safetensors(nd_test_path(name), count, names, (const nd_tensor *const *)tensors));
    for (size_t i = 0; i < count; i++)
        nd_release(tensors[i]);
}

static const char *write_index(const char *text) {
    const char *path = nd_test_path("model.safetensors.index.json");
    nd_test_write(path, text, strlen(text));
    return path;
}

static void refuse(const char *text, nd_status status, const char *fragment) {
    nd_list *list = nd_load_safetensors_index(write_index(text), NULL);
    if (list)
        fail_msg("accepted: %s", text);
    assert_failed(status, fragment);
}

static void test_tensors_of_several_files_in_the_order_of_the_index(void **state) {
    (void)state;
    write_shard("one.safetensors", "ca");
    write_shard("two.safetensors", "bz");
    static const char index[] =
        "{\"metadata\": {\"total_size\": 1.2e1, \"x\": [null, {\"y\": true}]}, \"weight_map\": {"
        "\"z\": \"two.safetensors\", \"a\": \"one.safetensors\", \"b\": \"two.safetensors\","
        "\"c\": \"one.safetensors\"}, \"more\": null}";
    nd_load_options options = ND_LOAD_OPTIONS_INIT;
    for (int mapped = 0; mapped < 2; mapped++) {
        options.mapped = mapped;
        nd_auto nd_list *list = nd_load_safetensors_index(write_index(index), &options);
        assert_handle(list);
        assert_int_equal(nd_list_get_size(list), 4);
        for (size_t i = 0; i < 4; i++) {
            const nd_tensor *x = (const nd_tensor *)nd_list_get(list, i);
            char name[4];
            nd_get_name(x, name, sizeof name);
            assert_int_equal(name[0], "zabc"[i]);
            assert_int_equal(nd_get_numel(x), name[0] - 'a' + 1);
        }
    }
    nd_auto nd_list *none = nd_load_safetensors_index(write_index("{\"weight_map\":{}}"), NULL);
    assert_int_equal(nd_list_get_size(none), 0);
}

static void test_F25_files_that_do_not_fit_the_index(void **state) {
    (void)state;
    write_shard("one.safetensors", "a");
    write_shard("two.safetensors", "ab");
    refuse("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"three.safetensors\"}}", ND_ERROR_IO,
           "three.safetensors' cannot be opened: No such file");
    refuse("{\"weight_map\":{\"b\":\"three.safetensors\"}}", ND_ERROR_IO, "directory (a part of '");
    refuse("{\"weight_map\":{\"a\":\"one.safetensors\",\"c\":\"one.safetensors\"}}",
           ND_ERROR_FORMAT, "index.json' says that 'c' is in");
    refuse("{\"weight_map\":{\"b\":\"two.safetensors\"}}", ND_ERROR_FORMAT,
           "two.safetensors' has a tensor 'a', which");
    refuse("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"two.safetensors\"}}",
           ND_ERROR_FORMAT, "two.safetensors' has a tensor 'a', which");
    nd_test_write(nd_test_path("bad.safetensors"), "xyz", 3);
    refuse("{\"weight_map\":{\"a\":\"one.safetensors\",\"b\":\"bad.safetensors\"}}",
           ND_ERROR_FORMAT, "bad.safetensors' has 3 bytes");
}

static void test_F25_indices_that_lie(void **state) {
    (void)state;
    refuse("", ND_ERROR_FORMAT, "malformed at byte 0: an object was expected");
    refuse("{}", ND_ERROR_FORMAT, "has no weight_map");
    refuse("{\"weight_map\":[]}", ND_ERROR_FORMAT, "an object was expected as weight_map");
    refuse("{\"weight_map\":{},\"weight_map\":{}}", ND_ERROR_FORMAT, "weight_map twice");
    refuse("{\"weight_map\":{\"a\":1}}", ND_ERROR_FORMAT, "a string was expected");
    refuse("{\"weight_map\":{\"a\":\"x\"}", ND_ERROR_FORMAT, "a comma or }");
    refuse("{\"weight_map\":{}} {}", ND_ERROR_FORMAT, "malformed");
    refuse("{\"metadata\":{,},\"weight_map\":{}}", ND_ERROR_FORMAT, "a string was expected");
    refuse("{\"weight_map\":{\"a\":\"x\",\"a\":\"y\"}}", ND_ERROR_FORMAT, "the name 'a' twice");
    static const char *const elsewhere[] = {"", "..", ".", "/etc/passwd", "../x", "b/c"};
    for (size_t i = 0; i < sizeof elsewhere / sizeof *elsewhere; i++) {
        char text[100];
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"%s\"}}", elsewhere[i]);
        refuse(text, ND_ERROR_FORMAT, "which is no file beside it");
    }
}

static void test_F25_an_index_costs_a_multiple_of_its_size(void **state) {
    (void)state;
    enum { NAMES = 5000 };
    char *text = malloc(NAMES * 16 + 32);
    size_t size = (size_t)sprintf(text, "{\"weight_map\":{");
    for (int i = 0; i < NAMES; i++)
        size += (size_t)sprintf(text + size, "%s\"%x\":\"x\"", i ? "," : "", i);
    sprintf(text + size, "}}");
    const char *path = write_index(text);
    reset_memory();
    assert_null(nd_load_safetensors_index(path, NULL));
    assert_true(stop_memory() < MEMORY_MAX(size));
    assert_failed(ND_ERROR_IO, "/x' cannot be opened");
    free(text);
}

static void test_F24_truncated_anywhere(void **state) {
    (void)state;
    write_shard("one.safetensors", "a");
    static const char whole[] =
        "{\"metadata\":{\"a\":-1.5},\"weight_map\":{\"a\":\"one.safetensors\"}}";
    for (size_t length = 0; length + 1 < sizeof whole; length++) {
        char text[sizeof whole];
        memcpy(text, whole, length);
        text[length] = 0;
        refuse(text, ND_ERROR_FORMAT, "index.json' is malformed at byte");
    }
}

static void test_F30_bad_arguments(void **state) {
    (void)state;
    assert_null(nd_load_safetensors_index(NULL, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_null(nd_load_safetensors_index(nd_test_path("missing.json"), NULL));
    assert_failed(ND_ERROR_IO, "No such file");
    assert_null(nd_load_safetensors_index("x", &(nd_load_options){.size = 0}));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "ND_LOAD_OPTIONS_INIT");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_tensors_of_several_files_in_the_order_of_the_index),
        ND_TEST(test_F25_files_that_do_not_fit_the_index),
        ND_TEST(test_F25_indices_that_lie),
        ND_TEST(test_F25_an_index_costs_a_multiple_of_its_size),
        ND_TEST(test_F24_truncated_anywhere),
        ND_TEST(test_F30_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
