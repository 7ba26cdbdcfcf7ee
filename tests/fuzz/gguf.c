// The harness of GGUF files: every value and every tensor of what is accepted is read, read in
// pieces and mapped, and blocks that have two forms must mean the same in both.
#include "tests/fuzz/reader.h"
#include "tests/fuzz/text.h"
#include <string.h>

static void *load(const char *path) {
    return nd_gguf_open(path);
}

static bool equal(const void *a, const void *b) {
    size_t count = nd_gguf_get_size(a);
    if (count != nd_gguf_get_size(b) || nd_gguf_get_version(a) != nd_gguf_get_version(b) ||
        nd_gguf_get_tensor_count(a) != nd_gguf_get_tensor_count(b))
        return false;
    for (size_t i = 0; i < count; i++)
        if (strcmp(nd_gguf_get_key(a, i), nd_gguf_get_key(b, i)) != 0)
            return false;
    return true;
}

/// Whether so many bytes can be read.
static void touch(const void *data, size_t bytes) {
    static volatile unsigned char sum;
    for (size_t i = 0; i < bytes; i++)
        sum = (unsigned char)(sum + ((const unsigned char *)data)[i]);
}

static void read_value(const nd_gguf *gguf, const char *key) {
    int64_t integer;
    double number;
    bool yes;
    const char *text;
    size_t bytes, count, walked = 0;
    nd_gguf_type type, element;
    if (nd_gguf_get_type(gguf, key, &type, &element) != ND_OK)
        fuzz_die("a key is not there: %s", nd_error_get_message());
    if (!nd_gguf_contains(gguf, key))
        fuzz_die("a file does not contain a key that it has");
    nd_gguf_get_i64(gguf, key, &integer);
    nd_gguf_get_f64(gguf, key, &number);
    nd_gguf_get_bool(gguf, key, &yes);
    if (nd_gguf_get_string(gguf, key, &text, &bytes) == ND_OK)
        touch(text, bytes);
    for (size_t at = 0; nd_gguf_next_string(gguf, key, &at, &text, &bytes); walked++)
        touch(text, bytes);
    bool words = type == ND_GGUF_ARRAY && element == ND_GGUF_STRING;
    if (words && (nd_gguf_get_array_size(gguf, key, &count) != ND_OK || count != walked))
        fuzz_die("a list has another number of strings than it says");
    nd_auto nd_tensor *array = nd_gguf_load_array(gguf, key);
    if (!array != (type != ND_GGUF_ARRAY || words))
        fuzz_die("a list of numbers is none: %s", nd_error_get_message());
}

/// What a file says of a tensor is what it holds.
static void check_description(const nd_gguf *gguf, const char *name, const nd_tensor *x) {
    int ndim = 0;
    int64_t shape[ND_MAX_DIMS];
    nd_status status = nd_gguf_get_tensor_shape(gguf, name, &ndim, shape);
    if (x && (status != ND_OK || ndim != nd_get_ndim(x) ||
              memcmp(shape, nd_get_shape(x), (size_t)ndim * sizeof *shape) != 0))
        fuzz_die("a tensor has another shape than its file says");
    if (!nd_gguf_get_tensor_type(gguf, name))
        fuzz_die("a tensor has no type");
}

static void read_tensor(const nd_gguf *gguf, const char *name) {
    nd_load_options options = ND_LOAD_OPTIONS_INIT;
    options.mapped = true;
    nd_error_clear();
    nd_auto nd_tensor *x = nd_gguf_load_tensor(gguf, name, ND_F32, NULL);
    if (!x && nd_error_get_status() != ND_ERROR_UNSUPPORTED)
        fuzz_die("a tensor of an open file cannot be read: %s", nd_error_get_message());
    nd_auto nd_tensor *mapped = nd_gguf_load_tensor(gguf, name, ND_F32, &options);
    if (!x != !mapped || (x && !fuzz_tensors_equal(x, mapped)))
        fuzz_die("a tensor is another one when it is mapped");
    check_description(gguf, name, x);
    nd_tensor *values = NULL, *scales = NULL;
    if (nd_gguf_load_quantized(gguf, name, &values, &scales) == ND_OK && nd_get_numel(values) > 0) {
        nd_auto nd_tensor *again = nd_dequantize(values, scales, NULL, ND_F32);
        if (!again || memcmp(nd_get_shape(again), nd_get_shape(x),
                             (size_t)nd_get_ndim(x) * sizeof(int64_t)) != 0)
            fuzz_die("values and scales are of another tensor: %s", nd_error_get_message());
        // Of what is no number only that it is none.
        const float *a = nd_get_data(again), *b = nd_get_data(x);
        for (int64_t i = 0; i < nd_get_numel(x); i++)
            if (memcmp(&a[i], &b[i], sizeof *a) != 0 && (a[i] == a[i] || b[i] == b[i]))
                fuzz_die("values and scales stand for something else");
    }
    nd_release(values);
    nd_release(scales);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    nd_gguf *gguf = fuzz_load(data, size, load, equal);
    for (size_t i = 0; i < nd_gguf_get_size(gguf); i++)
        read_value(gguf, nd_gguf_get_key(gguf, i));
    for (size_t i = 0; i < nd_gguf_get_tensor_count(gguf); i++)
        read_tensor(gguf, nd_gguf_get_tensor_name(gguf, i));
    nd_release(gguf);
    fuzz_end_input();
    return 0;
}
