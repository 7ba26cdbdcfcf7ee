// Floats of eight bits and of four of safetensors files: every byte of each kind beside what other
// libraries make of it, and what is still refused.
#include "lib/io/file.h"
#include "tests/unit/io/files.h"
#include "tests/unit/io/float8_values.h"
#include <math.h>

enum { BYTES = 256 };

static const struct {
    const char *name;
    const uint16_t *values;
} kinds[] = {
    {"F8_E4M3", float8_e4m3fn},
    {"F8_E5M2", float8_e5m2},
    {"F8_E4M3FNUZ", float8_e4m3fnuz},
    {"F8_E5M2FNUZ", float8_e5m2fnuz},
};

/// A file of the header and these bytes.
static const char *write_file(const char *header, const uint8_t *bytes, size_t size) {
    const char *path = nd_test_path("narrow_float.safetensors");
    const uint64_t length = strlen(header);
    char *content = malloc(8 + length + size);
    assert_non_null(content);
    memcpy(content, &length, 8);
    memcpy(content + 8, header, length);
    if (size)
        memcpy(content + 8 + length, bytes, size);
    nd_test_write(path, content, 8 + length + size);
    free(content);
    return path;
}

/// [256, times] with every byte `times` times.
static const char *write_all_bytes(const char *dtype, int times) {
    char header[200];
    uint8_t *bytes = malloc((size_t)BYTES * (size_t)times);
    for (int i = 0; i < BYTES * times; i++)
        bytes[i] = (uint8_t)(i / times);
    snprintf(header, sizeof header,
             "{\"x\":{\"dtype\":\"%s\",\"shape\":[256,%d],\"data_offsets\":[0,%d]}}", dtype, times,
             BYTES * times);
    const char *path = write_file(header, bytes, (size_t)BYTES * (size_t)times);
    free(bytes);
    return path;
}

static nd_tensor *load(const char *path, bool mapped) {
    nd_load_options options = ND_LOAD_OPTIONS_INIT;
    options.mapped = mapped;
    nd_auto nd_list *list = nd_load_safetensors_with(path, &options);
    assert_handle(list);
    assert_int_equal(nd_list_get_size(list), 1);
    return nd_retain((nd_tensor *)(uintptr_t)nd_list_get(list, 0));
}

static bool is_nan(uint16_t f16) {
    return (f16 & 0x7c00) == 0x7c00 && (f16 & 0x3ff);
}

static void test_every_byte_is_its_value_in_f16(void **state) {
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (int times = 1; times <= 100; times += 99) { // of 100 a mapping would be worth it
            nd_auto nd_tensor *x = load(write_all_bytes(kinds[k].name, times), times > 1);
            assert_int_equal(nd_get_dtype(x), ND_F16);
            assert_int_equal(nd_get_size(x, 0), BYTES);
            assert_int_equal(nd_get_size(x, 1), times);
            const uint16_t *read = nd_get_data(x);
            for (int i = 0; i < BYTES * times; i++) {
                uint16_t expected = kinds[k].values[i / times];
                bool quiet = is_nan(read[i]) && (read[i] & 0x200);
                if (is_nan(expected) ? !quiet : read[i] != expected)
                    fail_msg("%s: byte %02x is %04x, not %04x", kinds[k].name, i / times, read[i],
                             expected);
            }
        }
}

static void test_every_byte_is_a_power_of_two_in_f32(void **state) {
    (void)state;
    nd_auto nd_tensor *x = load(write_all_bytes("F8_E8M0", 1), true);
    assert_int_equal(nd_get_dtype(x), ND_F32);
    const float *read = nd_get_data(x);
    for (int i = 0; i < BYTES - 1; i++)
        assert_true(read[i] == ldexpf(1, i - 127));
    assert_true(isnan(read[BYTES - 1]));
}

/// Two in a byte, beside the values that the Microscaling specification lists.
static void test_every_byte_is_two_values_of_four_bits(void **state) {
    (void)state;
    static const float values[16] = {0,    0.5f,  1,  1.5f,  2,  3,  4,  6,
                                     -0.f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    uint8_t bytes[BYTES * 40]; // more than is converted at a time
    for (int i = 0; i < BYTES * 40; i++)
        bytes[i] = (uint8_t)(i % BYTES);
    const char *path =
        write_file("{\"x\":{\"dtype\":\"F4\",\"shape\":[20,1024],\"data_offsets\":[0,10240]}}",
                   bytes, sizeof bytes);
    nd_auto nd_tensor *halves = load(path, true);
    assert_int_equal(nd_get_dtype(halves), ND_F16);
    assert_int_equal(nd_get_size(halves, 1), 1024);
    nd_auto nd_tensor *x = nd_cast(halves, ND_F32);
    const float *read = nd_get_data(x);
    for (int i = 0; i < BYTES * 40; i++) {
        const float *pair = read + 2 * (size_t)i;
        assert_true(pair[0] == values[bytes[i] & 15] && pair[1] == values[bytes[i] >> 4]);
        assert_true(!signbit(pair[0]) == !(bytes[i] & 8) && !signbit(pair[1]) == !(bytes[i] & 128));
    }
}

/// No elements, one, and a file that lies between others.
static void test_shapes_and_places(void **state) {
    (void)state;
    static const char header[] =
        "{\"none\":{\"dtype\":\"F8_E4M3\",\"shape\":[3,0],\"data_offsets\":[0,0]},"
        "\"scale\":{\"dtype\":\"F8_E8M0\",\"shape\":[],\"data_offsets\":[0,1]},"
        "\"between\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]},"
        "\"row\":{\"dtype\":\"F8_E4M3\",\"shape\":[3],\"data_offsets\":[3,6]}}";
    const char *path = write_file(header, (const uint8_t[]){128, 7, 9, 0x38, 0xc0, 0x7f}, 6);
    nd_auto nd_list *list = nd_load_safetensors(path);
    assert_handle(list);
    const nd_tensor *none = (const nd_tensor *)nd_list_get(list, 0);
    const nd_tensor *scale = (const nd_tensor *)nd_list_get(list, 1);
    const nd_tensor *between = (const nd_tensor *)nd_list_get(list, 2);
    nd_auto nd_tensor *row = nd_cast((const nd_tensor *)nd_list_get(list, 3), ND_F32);
    char name[16];
    assert_string_equal(nd_get_name(scale, name, sizeof name), "scale");
    assert_int_equal(nd_get_numel(none), 0);
    assert_int_equal(nd_get_dtype(none), ND_F16);
    assert_int_equal(nd_get_ndim(scale), 0);
    assert_true(*(const float *)nd_get_data(scale) == 2);
    assert_memory_equal(nd_get_data(between), "\x07\x09", 2);
    const float *numbers = nd_get_data(row);
    assert_true(numbers[0] == 1 && numbers[1] == -2 && isnan(numbers[2]));
}

static ssize_t read_a_little(int descriptor, void *buffer, size_t bytes, off_t position) {
    return pread(descriptor, buffer, bytes < 7 ? bytes : 7, position);
}

static void test_read_in_pieces(void **state) {
    (void)state;
    const char *path = write_all_bytes("F8_E5M2", 3);
    nd_auto nd_tensor *whole = load(path, false);
    nd__file_pread = read_a_little;
    nd_auto nd_tensor *pieces = load(path, false);
    nd__file_pread = pread;
    assert_memory_equal(nd_get_data(whole), nd_get_data(pieces), BYTES * 3 * 2);
}

/// A parameter of f16 takes the values; one of f32 does not, as of a file of f16.
static void test_parameters_take_them_as_f16(void **state) {
    (void)state;
    static const char header[] =
        "{\"weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[1,2],\"data_offsets\":[0,2]}}";
    const char *path = write_file(header, (const uint8_t[]){0x38, 0x40}, 2);
    nd_auto nd_module *module = nd_linear_module(nd_key_new(1), 2, 1, false);
    assert_int_equal(nd_load_parameters(module, path), ND_ERROR_DTYPE);
    assert_failed(ND_ERROR_DTYPE, "'weight' is float16");
    assert_ok(nd_module_cast(module, ND_F16));
    assert_ok(nd_load_parameters(module, path));
    const uint16_t *weight = nd_get_data(nd_module_get_parameter_at(module, 0, NULL));
    assert_int_equal(weight[0], 0x3c00);
    assert_int_equal(weight[1], 0x4000);
}

static void refuse(const char *dtype, int bytes, nd_status status, const char *fragment) {
    char header[200];
    snprintf(header, sizeof header,
             "{\"x\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,%d]}}", dtype, bytes);
    assert_null(nd_load_safetensors(write_file(header, (const uint8_t[16]){0}, (size_t)bytes)));
    assert_failed(status, fragment);
}

static void test_F25_what_is_refused(void **state) {
    (void)state;
    refuse("F4", 2, ND_ERROR_FORMAT, "F4 and shape [2] needs 1 bytes, its range has 2");
    assert_null(nd_load_safetensors(
        write_file("{\"x\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}",
                   (const uint8_t[]){0x12}, 1)));
    assert_failed(ND_ERROR_FORMAT, "F4 and shape [3] ends within a byte");
    refuse("F6_E2M3", 2, ND_ERROR_UNSUPPORTED, "F6_E2M3, which ndarc does not have");
    refuse("F6_E3M2", 2, ND_ERROR_UNSUPPORTED, "F6_E3M2, which ndarc does not have");
    refuse("F8_E3M4", 2, ND_ERROR_FORMAT, "unknown dtype 'F8_E3M4'");
    refuse("F8_E4M3", 4, ND_ERROR_FORMAT, "F8_E4M3 and shape [2] needs 2 bytes, its range has 4");
    refuse("F8_E8M0", 8, ND_ERROR_FORMAT, "F8_E8M0 and shape [2] needs 2 bytes, its range has 8");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_every_byte_is_its_value_in_f16),
        ND_TEST(test_every_byte_is_a_power_of_two_in_f32),
        ND_TEST(test_every_byte_is_two_values_of_four_bits),
        ND_TEST(test_shapes_and_places),
        ND_TEST(test_read_in_pieces),
        ND_TEST(test_parameters_take_them_as_f16),
        ND_TEST(test_F25_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
