// GGUF: files built field by field, what their blocks stand for, and files that lie.
#include "tests/unit/io/files.h"
#include "tests/unit/io/memory.h"

#include "kernels/half.h"
#include <pthread.h>

// A file that a test builds.
typedef struct builder {
    unsigned char data[1 << 14];
    size_t size;
} builder;

static void add(builder *file, uint64_t value, size_t bytes) {
    memcpy(file->data + file->size, &value, bytes);
    file->size += bytes;
}

static void add_bytes(builder *file, const void *data, size_t bytes) {
    memcpy(file->data + file->size, data, bytes);
    file->size += bytes;
}

static void add_string(builder *file, const char *text) {
    add(file, strlen(text), 8);
    add_bytes(file, text, strlen(text));
}

static builder begin(uint32_t version, uint64_t tensors, uint64_t values) {
    builder file = {.size = 0};
    add_bytes(&file, "GGUF", 4);
    add(&file, version, 4);
    add(&file, tensors, 8);
    add(&file, values, 8);
    return file;
}

static void add_number(builder *file, const char *key, nd_gguf_type type, uint64_t bits,
                       size_t bytes) {
    add_string(file, key);
    add(file, type, 4);
    add(file, bits, bytes);
}

static void add_tensor(builder *file, const char *name, int ndim, const uint64_t *sizes,
                       uint32_t type, uint64_t offset) {
    add_string(file, name);
    add(file, (uint64_t)ndim, 4);
    for (int i = 0; i < ndim; i++)
        add(file, sizes[i], 8);
    add(file, type, 4);
    add(file, offset, 8);
}

static void align(builder *file, size_t alignment) {
    while (file->size % alignment)
        add(file, 0, 1);
}

static const char *write_file(const builder *file) {
    const char *path = nd_test_path("built.gguf");
    nd_test_write(path, file->data, file->size);
    return path;
}

static void refuse(const builder *file, nd_status status, const char *fragment) {
    const char *path = write_file(file);
    reset_memory();
    assert_null(nd_gguf_open(path));
    assert_true(stop_memory() < MEMORY_MAX(file->size));
    assert_non_null(strstr(nd_error_get_message(), "built.gguf"));
    assert_failed(status, fragment);
}

static void assert_text(const char *expected, const char *text, size_t bytes) {
    assert_int_equal(bytes, strlen(expected));
    assert_memory_equal(text, expected, bytes);
}

/// A file with a value of every type.
static builder values_of_every_type(uint32_t version) {
    builder file = begin(version, 0, 14);
    add_number(&file, "u8", ND_GGUF_U8, 200, 1);
    add_number(&file, "i8", ND_GGUF_I8, (uint64_t)-5, 1);
    add_number(&file, "u16", ND_GGUF_U16, 65535, 2);
    add_number(&file, "i16", ND_GGUF_I16, (uint64_t)-30000, 2);
    add_number(&file, "u32", ND_GGUF_U32, UINT32_MAX, 4);
    add_number(&file, "i32", ND_GGUF_I32, (uint64_t)INT32_MIN, 4);
    add_number(&file, "f32", ND_GGUF_F32, 0x3fc00000, 4);
    add_number(&file, "bool", ND_GGUF_BOOL, 1, 1);
    add_number(&file, "u64", ND_GGUF_U64, UINT64_MAX, 8);
    add_number(&file, "i64", ND_GGUF_I64, (uint64_t)INT64_MIN, 8);
    add_number(&file, "f64", ND_GGUF_F64, 0xc004000000000000, 8);
    add_string(&file, "text");
    add(&file, ND_GGUF_STRING, 4);
    add_string(&file, "h\xc3\xa9llo");
    add_string(&file, "numbers");
    add(&file, ND_GGUF_ARRAY, 4);
    add(&file, ND_GGUF_I16, 4);
    add(&file, 3, 8);
    add_bytes(&file, (int16_t[]){1, -2, 3}, 6);
    add_string(&file, "words");
    add(&file, ND_GGUF_ARRAY, 4);
    add(&file, ND_GGUF_STRING, 4);
    add(&file, 3, 8);
    add_string(&file, "a");
    add_string(&file, "");
    add_string(&file, "ccc");
    return file;
}

static void check_numbers(const nd_gguf *gguf) {
    static const struct {
        const char *key;
        int64_t value;
    } integers[] = {{"u8", 200},         {"i8", -5},         {"u16", 65535},    {"i16", -30000},
                    {"u32", UINT32_MAX}, {"i32", INT32_MIN}, {"i64", INT64_MIN}};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        int64_t value = 0;
        assert_ok(nd_gguf_get_i64(gguf, integers[i].key, &value));
        assert_true(value == integers[i].value);
    }
    double number = 0;
    assert_ok(nd_gguf_get_f64(gguf, "f32", &number));
    assert_true(number == 1.5);
    assert_ok(nd_gguf_get_f64(gguf, "f64", &number));
    assert_true(number == -2.5);
    bool yes = false;
    assert_ok(nd_gguf_get_bool(gguf, "bool", &yes));
    assert_true(yes);
    nd_auto nd_tensor *numbers = nd_gguf_load_array(gguf, "numbers");
    assert_int_equal(nd_get_dtype(numbers), ND_I16);
    assert_int_equal(nd_get_numel(numbers), 3);
    assert_memory_equal(nd_get_data(numbers), ((int16_t[]){1, -2, 3}), 6);
}

static void check_texts(const nd_gguf *gguf) {
    static const char *const words[] = {"a", "", "ccc"};
    const char *text = NULL;
    size_t bytes = 0, at = 0, size = 0;
    assert_ok(nd_gguf_get_string(gguf, "text", &text, &bytes));
    assert_text("h\xc3\xa9llo", text, bytes);
    assert_ok(nd_gguf_get_array_size(gguf, "words", &size));
    assert_int_equal(size, 3);
    for (int i = 0; i < 3; i++) {
        assert_true(nd_gguf_next_string(gguf, "words", &at, &text, &bytes));
        assert_text(words[i], text, bytes);
    }
    assert_false(nd_gguf_next_string(gguf, "words", &at, &text, &bytes));
    at = SIZE_MAX;
    assert_false(nd_gguf_next_string(gguf, "words", &at, &text, &bytes));
    nd_gguf_type type, element;
    assert_ok(nd_gguf_get_type(gguf, "words", &type, &element));
    assert_int_equal(type, ND_GGUF_ARRAY);
    assert_int_equal(element, ND_GGUF_STRING);
}

static void test_values_of_every_type(void **state) {
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        builder file = values_of_every_type(version);
        nd_auto nd_gguf *gguf = nd_gguf_open(write_file(&file));
        assert_handle(gguf);
        assert_int_equal(nd_gguf_get_version(gguf), version);
        assert_int_equal(nd_gguf_get_size(gguf), 14);
        assert_int_equal(nd_gguf_get_tensor_count(gguf), 0);
        assert_string_equal(nd_gguf_get_key(gguf, 0), "u8");
        assert_string_equal(nd_gguf_get_key(gguf, 13), "words");
        check_numbers(gguf);
        check_texts(gguf);
    }
}

static void test_F30_keys_of_another_type_and_bad_arguments(void **state) {
    (void)state;
    builder file = begin(3, 0, 2);
    add_number(&file, "u64", ND_GGUF_U64, UINT64_MAX, 8);
    add_string(&file, "text");
    add(&file, ND_GGUF_STRING, 4);
    add_string(&file, "x");
    nd_auto nd_gguf *gguf = nd_gguf_open(write_file(&file));
    int64_t integer = 17;
    double number = 17;
    bool yes = true;
    const char *text = "before";
    size_t size = 17;
    assert_int_not_equal(nd_gguf_get_i64(gguf, "u64", &integer), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "18446744073709551615, beyond 63 bits");
    assert_int_not_equal(nd_gguf_get_i64(gguf, "text", &integer), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "'text' of");
    assert_int_not_equal(nd_gguf_get_f64(gguf, "u64", &number), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "is not a float");
    assert_int_not_equal(nd_gguf_get_bool(gguf, "u64", &yes), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "is not a bool");
    assert_int_not_equal(nd_gguf_get_string(gguf, "u64", &text, &size), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "is not a string");
    assert_int_not_equal(nd_gguf_get_array_size(gguf, "u64", &size), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "is not an array");
    assert_null(nd_gguf_load_array(gguf, "nothing"));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "has no value 'nothing'");
    assert_int_not_equal(nd_gguf_get_i64(gguf, NULL, &integer), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "key is NULL");
    assert_int_not_equal(nd_gguf_get_i64(gguf, "u64", NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "ret_value is NULL");
    assert_null(nd_gguf_get_key(gguf, 2));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "index 2 of the 2 values");
    assert_null(nd_gguf_get_tensor_name(gguf, 0));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "index 0 of the 0 tensors");
    assert_null(nd_gguf_load_tensor(gguf, "x", ND_F32, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "has no tensor 'x'");
    assert_null(nd_gguf_get_tensor_type(NULL, "x"));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "gguf is NULL");
    assert_null(nd_gguf_open(NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_null(nd_gguf_open(nd_test_path("missing.gguf")));
    assert_failed(ND_ERROR_IO, "No such file");
    assert_ok(nd_close(gguf));
    assert_int_equal(nd_gguf_get_size(gguf), 0);
    assert_false(nd_gguf_contains(gguf, "u64"));
    assert_int_not_equal(nd_gguf_get_f64(gguf, "u64", &number), ND_OK);
    assert_failed(ND_ERROR_CLOSED, "was closed");
    assert_true(integer == 17 && number == 17 && yes && size == 17);
    assert_string_equal(text, "before");
}

static void test_tensors_that_are_not_quantized(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        nd_dtype dtype;
    } types[] = {{0, ND_F32}, {1, ND_F16},  {30, ND_BF16}, {28, ND_F64},
                 {24, ND_I8}, {25, ND_I16}, {26, ND_I32},  {27, ND_I64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        builder file = begin(3, 3, 1);
        add_number(&file, "general.alignment", ND_GGUF_U32, 64, 4);
        add_tensor(&file, "matrix", 2, (uint64_t[]){3, 2}, types[i].type, 0);
        add_tensor(&file, "empty", 2, (uint64_t[]){0, 5}, types[i].type, 64);
        add_tensor(&file, "scalar", 0, NULL, types[i].type, 64);
        align(&file, 64);
        nd_auto nd_tensor *numbers = nd_arange(0, 6, 1, ND_F32);
        nd_auto nd_tensor *cast = nd_cast(numbers, types[i].dtype);
        size_t bytes = nd_dtype_get_size(types[i].dtype);
        add_bytes(&file, nd_get_data(cast), 6 * bytes);
        align(&file, 64);
        add_bytes(&file, (const char *)nd_get_data(cast) + 5 * bytes, bytes);
        nd_auto nd_gguf *gguf = nd_gguf_open(write_file(&file));
        assert_handle(gguf);
        assert_int_equal(nd_gguf_get_tensor_count(gguf), 3);
        assert_string_equal(nd_gguf_get_tensor_name(gguf, 0), "matrix");
        nd_auto nd_tensor *matrix = nd_gguf_load_tensor(gguf, "matrix", ND_F32, NULL);
        assert_int_equal(nd_get_dtype(matrix), types[i].dtype);
        assert_int_equal(nd_get_size(matrix, 0), 2);
        assert_int_equal(nd_get_size(matrix, 1), 3);
        assert_memory_equal(nd_get_data(matrix), nd_get_data(cast), 6 * bytes);
        nd_auto nd_tensor *scalar = nd_gguf_load_tensor(gguf, "scalar", ND_F32, NULL);
        assert_int_equal(nd_get_ndim(scalar), 0);
        assert_true(nd_get_item(scalar) == 5);
        nd_auto nd_tensor *empty = nd_gguf_load_tensor(gguf, "empty", ND_F32, NULL);
        assert_int_equal(nd_get_numel(empty), 0);
        int ndim;
        int64_t shape[ND_MAX_DIMS];
        assert_ok(nd_gguf_get_tensor_shape(gguf, "empty", &ndim, shape));
        assert_true(ndim == 2 && shape[0] == 5 && shape[1] == 0);
    }
}

static void test_mapped_tensors(void **state) {
    (void)state;
    enum { COUNT = 8192 };
    builder file = begin(3, 1, 0);
    add_tensor(&file, "x", 1, (uint64_t[]){COUNT}, 0, 0);
    align(&file, 32);
    nd_auto nd_tensor *x = nd_arange(0, COUNT, 1, ND_F32);
    char *content = malloc(file.size + COUNT * 4);
    memcpy(content, file.data, file.size);
    memcpy(content + file.size, nd_get_data(x), COUNT * 4);
    const char *path = nd_test_path("mapped.gguf");
    nd_test_write(path, content, file.size + COUNT * 4);
    free(content);
    nd_auto nd_gguf *gguf = nd_gguf_open(path);
    nd_load_options options = ND_LOAD_OPTIONS_INIT;
    options.mapped = true;
    reset_memory();
    nd_auto nd_tensor *mapped = nd_gguf_load_tensor(gguf, "x", ND_F32, &options);
    assert_true(stop_memory() < 10000);
    nd_release(nd_steal(&gguf)); // the tensor lives by itself
    assert_memory_equal(nd_get_data(mapped), nd_get_data(x), COUNT * 4);
}

/// Bits of f16 next to a number that has few digits.
static uint16_t half(float number) {
    return nd__f32_to_f16(number);
}

/// Two rows of `blocks` blocks of pseudo-random bytes, each beginning with `scales` scales.
static void add_blocks(builder *file, int blocks, int bytes, int scales) {
    uint32_t bits = 12345;
    for (int i = 0; i < 2 * blocks; i++)
        for (int at = 0; at < bytes; at++) {
            bits = bits * 1664525 + 1013904223;
            if (at < 2 * scales && at % 2 == 0)
                add(file, half((float)(i + 1) / (at ? -64 : 32)), 2);
            else if (at >= 2 * scales)
                add(file, bits >> 24, 1);
        }
}

/// What element i of blocks of Q8_0, Q4_0 or Q4_K stands for, from the definition of each.
static double expected(uint32_t type, const unsigned char *data, int64_t i) {
    if (type == 8) {
        const unsigned char *block = data + i / 32 * 34;
        return (double)nd__f16_to_f32((uint16_t)(block[0] | block[1] << 8)) *
               (int8_t)block[2 + i % 32];
    }
    if (type == 2) {
        const unsigned char *block = data + i / 32 * 18;
        int byte = block[2 + i % 16], value = i % 32 < 16 ? byte % 16 : byte / 16;
        return (double)nd__f16_to_f32((uint16_t)(block[0] | block[1] << 8)) * (value - 8);
    }
    const unsigned char *block = data + i / 256 * 144, *packed = block + 4;
    int group = (int)(i % 256 / 32), j = group - 4;
    int scale = group < 4 ? packed[group] % 64 : packed[8 + j] % 16 + packed[j] / 64 * 16;
    int least = group < 4 ? packed[4 + group] % 64 : packed[8 + j] / 16 + packed[4 + j] / 64 * 16;
    int byte = block[16 + group / 2 * 32 + i % 32], value = group % 2 ? byte / 16 : byte % 16;
    float factor = nd__f16_to_f32((uint16_t)(block[0] | block[1] << 8)) * (float)scale;
    float minimum = nd__f16_to_f32((uint16_t)(block[2] | block[3] << 8)) * (float)least;
    return factor * (float)value - minimum;
}

static void test_quantized_tensors(void **state) {
    (void)state;
    static const struct {
        uint32_t type;
        int elements, bytes, scales;
        const char *name;
    } cases[] = {{8, 32, 34, 1, "Q8_0"}, {2, 32, 18, 1, "Q4_0"}, {12, 256, 144, 2, "Q4_K"}};
    for (size_t c = 0; c < 3; c++) {
        enum { BLOCKS = 3 };
        int64_t width = BLOCKS * cases[c].elements;
        builder file = begin(3, 1, 0);
        add_tensor(&file, "w", 2, (uint64_t[]){(uint64_t)width, 2}, cases[c].type, 0);
        align(&file, 32);
        size_t data = file.size;
        add_blocks(&file, BLOCKS, cases[c].bytes, cases[c].scales);
        assert_int_equal(file.size, data + (size_t)(2 * BLOCKS * cases[c].bytes));
        nd_auto nd_gguf *gguf = nd_gguf_open(write_file(&file));
        assert_handle(gguf);
        assert_string_equal(nd_gguf_get_tensor_type(gguf, "w"), cases[c].name);
        nd_auto nd_tensor *w = nd_gguf_load_tensor(gguf, "w", ND_F32, NULL);
        assert_int_equal(nd_get_size(w, 0), 2);
        assert_int_equal(nd_get_size(w, 1), width);
        const float *numbers = nd_get_data(w);
        for (int64_t i = 0; i < 2 * width; i++)
            assert_true((double)numbers[i] == expected(cases[c].type, file.data + data, i));
        for (int n = 0; n < 2; n++) {
            nd_dtype dtype = n ? ND_BF16 : ND_F16;
            nd_auto nd_tensor *narrow = nd_gguf_load_tensor(gguf, "w", dtype, NULL);
            nd_auto nd_tensor *rounded = nd_cast(w, dtype);
            assert_memory_equal(nd_get_data(narrow), nd_get_data(rounded), 4 * (size_t)width);
        }
        assert_null(nd_gguf_load_tensor(gguf, "w", ND_I32, NULL));
        assert_failed(ND_ERROR_DTYPE, "becomes f32, f16 or bf16, not int32");
        nd_tensor *values = NULL, *scales = NULL;
        nd_status status = nd_gguf_load_quantized(gguf, "w", &values, &scales);
        if (cases[c].type == 12) {
            assert_null(values);
            assert_failed(ND_ERROR_UNSUPPORTED, "is of Q4_K; only Q8_0 and Q4_0");
            continue;
        }
        assert_ok(status);
        nd_auto nd_tensor *again = nd_dequantize(values, scales, NULL, ND_F32);
        assert_memory_equal(nd_get_data(again), numbers, 8 * (size_t)width);
        nd_release(values);
        nd_release(scales);
    }
}

static const nd_gguf *shared;

/// Reads the tensors of an open file again and again: NULL when each was as it should be.
static void *read_again_and_again(void *number) {
    static const char *const names[] = {"a", "b"};
    for (int i = 0; i < 200; i++) {
        int which = (i + *(const int *)number) % 2;
        nd_auto nd_tensor *x = nd_gguf_load_tensor(shared, names[which], ND_F32, NULL);
        const float *elements = x ? nd_get_data(x) : NULL;
        for (int at = 0; at < 64; at++)
            if (!elements || elements[at] != (float)(which + 1))
                return number;
    }
    return NULL;
}

static void test_an_open_file_on_several_threads(void **state) {
    (void)state;
    builder file = begin(3, 2, 0);
    add_tensor(&file, "a", 1, (uint64_t[]){64}, 0, 0);
    add_tensor(&file, "b", 1, (uint64_t[]){64}, 0, 256);
    align(&file, 32);
    for (int i = 0; i < 128; i++)
        add_bytes(&file, &(float){i < 64 ? 1 : 2}, 4);
    nd_auto nd_gguf *gguf = nd_gguf_open(write_file(&file));
    assert_handle(gguf);
    shared = gguf;
    pthread_t threads[4];
    int numbers[4];
    for (int i = 0; i < 4; i++) {
        numbers[i] = i;
        assert_int_equal(pthread_create(&threads[i], NULL, read_again_and_again, &numbers[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        void *wrong = NULL;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
}

static void test_F25_starts_that_lie(void **state) {
    (void)state;
    builder file = begin(3, 0, 0);
    file.data[0] = 'g';
    refuse(&file, ND_ERROR_FORMAT, "does not begin with GGUF");
    file = begin(1, 0, 0);
    refuse(&file, ND_ERROR_UNSUPPORTED, "version 1, ndarc reads 2 and 3");
    file = begin(0x03000000, 0, 0);
    refuse(&file, ND_ERROR_UNSUPPORTED, "a big-endian file");
    file = begin(3, UINT64_MAX, 0);
    refuse(&file, ND_ERROR_FORMAT, "more than its 24 bytes can hold");
    file = begin(3, 0, UINT64_MAX / 13);
    refuse(&file, ND_ERROR_FORMAT, "more than its 24 bytes can hold");
}

static void test_F25_values_that_lie(void **state) {
    (void)state;
    builder file = begin(3, 0, 1);
    add_number(&file, "x", (nd_gguf_type)13, 0, 8);
    refuse(&file, ND_ERROR_FORMAT, "a value has an unknown type");
    file = begin(3, 0, 1);
    add(&file, UINT64_MAX, 8);
    add(&file, 0, 8);
    refuse(&file, ND_ERROR_FORMAT, "longer than 65535 bytes");
    file = begin(3, 0, 1);
    add_number(&file, "\xff\xfe", ND_GGUF_U32, 0, 4);
    refuse(&file, ND_ERROR_FORMAT, "not valid UTF-8");
    file = begin(3, 0, 2);
    add_number(&file, "x", ND_GGUF_U32, 0, 4);
    add_number(&file, "x", ND_GGUF_U32, 0, 4);
    refuse(&file, ND_ERROR_FORMAT, "has the key 'x' twice");
    file = begin(3, 0, 1);
    add_string(&file, "x");
    add(&file, ND_GGUF_STRING, 4);
    add(&file, UINT64_MAX - 7, 8);
    refuse(&file, ND_ERROR_FORMAT, "wants 18446744073709551608 bytes");
    for (int type = ND_GGUF_U8; type <= ND_GGUF_F64; type++) {
        file = begin(3, 0, 1);
        add_string(&file, "x");
        add(&file, ND_GGUF_ARRAY, 4);
        add(&file, (uint64_t)type, 4);
        add(&file, (uint64_t)1 << 61, 8);
        add(&file, 0, 8);
        bool nested = type == ND_GGUF_ARRAY;
        refuse(&file, nested ? ND_ERROR_UNSUPPORTED : ND_ERROR_FORMAT,
               nested ? "neither numbers nor strings" : "header of");
    }
    static const uint64_t alignments[] = {0, 3, 48};
    for (size_t i = 0; i < 3; i++) {
        file = begin(3, 0, 1);
        add_number(&file, "general.alignment", ND_GGUF_U32, alignments[i], 4);
        refuse(&file, ND_ERROR_FORMAT, "no power of two");
    }
}

/// A file of one or two tensors and 64 bytes of data is refused.
static void refuse_tensors(const char *const *names, int count, int ndim, const uint64_t *sizes,
                           uint32_t type, uint64_t offset, nd_status status, const char *fragment) {
    builder file = begin(3, (uint64_t)count, 0);
    for (int i = 0; i < count; i++)
        add_tensor(&file, names[i], ndim, sizes, type, offset);
    align(&file, 32);
    for (int i = 0; i < 8; i++)
        add(&file, 0, 8);
    refuse(&file, status, fragment);
}

static void test_F25_tensors_that_lie(void **state) {
    (void)state;
    static const char *const same[] = {"w", "w"}, *const names[] = {"w", "v"};
    const uint64_t eight[] = {8};
    refuse_tensors(same, 2, 1, eight, 0, 0, ND_ERROR_FORMAT, "the tensor 'w' twice");
    refuse_tensors(names, 2, 1, eight, 0, 0, ND_ERROR_FORMAT, "overlap");
    refuse_tensors(names, 1, 1, eight, 0, 16, ND_ERROR_FORMAT, "which is not aligned");
    refuse_tensors(names, 1, 1, eight, 0, 64, ND_ERROR_FORMAT, "beyond the file");
    refuse_tensors(names, 1, 1, eight, 0, UINT64_MAX - 31, ND_ERROR_FORMAT, "beyond the file");
    refuse_tensors(names, 1, 1, (uint64_t[]){17}, 0, 0, ND_ERROR_FORMAT, "beyond the file");
    refuse_tensors(names, 1, 1, eight, 99, 0, ND_ERROR_FORMAT, "the unknown type 99");
    refuse_tensors(names, 1, 1, eight, 8, 0, ND_ERROR_FORMAT, "no multiple of 32");
    refuse_tensors(names, 1, 0, NULL, 12, 0, ND_ERROR_FORMAT, "no multiple of 256");
    refuse_tensors(names, 1, 1, (uint64_t[]){UINT64_MAX}, 0, 0, ND_ERROR_FORMAT, "63 bits");
    refuse_tensors(names, 1, 2, (uint64_t[]){1ull << 32, 1ull << 32}, 24, 0, ND_ERROR_FORMAT,
                   "more bytes than 64 bits count");
    refuse_tensors(names, 1, 3, (uint64_t[]){1ull << 32, 1ull << 32, 0}, 0, 0, ND_ERROR_FORMAT,
                   "more bytes than 64 bits count");
    refuse_tensors(names, 1, 9, (uint64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, 0, 0, ND_ERROR_UNSUPPORTED,
                   "has 9 dimensions");
}

static void test_types_that_ndarc_does_not_have(void **state) {
    (void)state;
    builder file = begin(3, 1, 0);
    add_tensor(&file, "w", 1, (uint64_t[]){256}, 14, 0);
    align(&file, 32);
    nd_auto nd_gguf *gguf = nd_gguf_open(write_file(&file));
    assert_handle(gguf);
    assert_string_equal(nd_gguf_get_tensor_type(gguf, "w"), "Q6_K");
    assert_null(nd_gguf_load_tensor(gguf, "w", ND_F32, NULL));
    assert_non_null(strstr(nd_error_get_message(), "built.gguf"));
    assert_failed(ND_ERROR_UNSUPPORTED, "'w' is of Q6_K, which ndarc does not have");
}

static void test_F24_truncated_anywhere(void **state) {
    (void)state;
    builder file = begin(3, 1, 2);
    add_number(&file, "x", ND_GGUF_U32, 7, 4);
    add_string(&file, "words");
    add(&file, ND_GGUF_ARRAY, 4);
    add(&file, ND_GGUF_STRING, 4);
    add(&file, 2, 8);
    add_string(&file, "a");
    add_string(&file, "bc");
    add_tensor(&file, "w", 1, (uint64_t[]){32}, 8, 0);
    align(&file, 32);
    add_blocks(&file, 1, 17, 1);
    size_t whole = file.size;
    nd_auto nd_gguf *gguf = nd_gguf_open(write_file(&file));
    assert_handle(gguf);
    for (file.size = 0; file.size < whole; file.size++)
        refuse(&file, ND_ERROR_FORMAT, "built.gguf");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_values_of_every_type),
        ND_TEST(test_F30_keys_of_another_type_and_bad_arguments),
        ND_TEST(test_tensors_that_are_not_quantized),
        ND_TEST(test_mapped_tensors),
        ND_TEST(test_quantized_tensors),
        ND_TEST(test_an_open_file_on_several_threads),
        ND_TEST(test_F25_starts_that_lie),
        ND_TEST(test_F25_values_that_lie),
        ND_TEST(test_F25_tensors_that_lie),
        ND_TEST(test_types_that_ndarc_does_not_have),
        ND_TEST(test_F24_truncated_anywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
