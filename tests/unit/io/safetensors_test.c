// safetensors: round trips, and files that lie.
#include "tests/unit/io/files.h"
#include "tests/unit/io/memory.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

#include "lib/io/file.h"

/// A file of a header length, a header and data bytes.
static const char *write_raw(uint64_t length, const char *header, size_t header_bytes,
                             const void *data, size_t data_bytes) {
    const char *path = nd_test_path("hostile.safetensors");
    char *content = malloc(8 + header_bytes + data_bytes + 1);
    assert_non_null(content);
    memcpy(content, &length, 8);
    memcpy(content + 8, header, header_bytes);
    if (data_bytes)
        memcpy(content + 8 + header_bytes, data, data_bytes);
    nd_test_write(path, content, 8 + header_bytes + data_bytes);
    free(content);
    return path;
}

/// A file of this header and `data_bytes` zero bytes must be refused with the status and the
/// fragment.
static void refuse(const char *header, size_t data_bytes, nd_status status, const char *fragment) {
    char *zeros = calloc(1, data_bytes + 1);
    const char *path = write_raw(strlen(header), header, strlen(header), zeros, data_bytes);
    free(zeros);
    nd_list *list = nd_load_safetensors(path);
    if (list)
        fail_msg("accepted: %s", header);
    assert_non_null(strstr(nd_error_get_message(), "hostile.safetensors"));
    assert_failed(status, fragment);
}

static void test_round_trip_of_every_dtype(void **state) {
    (void)state;
    const char *path = nd_test_path("dtypes.safetensors");
    nd_tensor *tensors[ND_DTYPE_COUNT];
    char name_text[ND_DTYPE_COUNT][16];
    const char *names[ND_DTYPE_COUNT];
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        snprintf(name_text[dtype], sizeof(name_text[dtype]), "x.%d \"\\\n\xc3\xa9", dtype);
        names[dtype] = name_text[dtype];
        nd_auto nd_tensor *numbers = nd_arange(0, 2, 1, ND_F64);
        tensors[dtype] = nd_cast(numbers, (nd_dtype)dtype);
        assert_handle(tensors[dtype]);
    }
    assert_ok(nd_save_safetensors(path, ND_DTYPE_COUNT, names, (const nd_tensor *const *)tensors));
    nd_auto nd_list *list = nd_load_safetensors(path);
    assert_handle(list);
    assert_int_equal(nd_list_get_size(list), ND_DTYPE_COUNT);
    bool seen[ND_DTYPE_COUNT] = {false};
    for (size_t i = 0; i < ND_DTYPE_COUNT; i++) {
        const nd_tensor *read = (const nd_tensor *)nd_list_get(list, i);
        nd_dtype dtype = nd_get_dtype(read);
        char name[32];
        assert_string_equal(nd_get_name(read, name, sizeof(name)), names[dtype]);
        assert_int_equal(nd_get_ndim(read), 1);
        assert_int_equal(nd_get_numel(read), 2);
        assert_memory_equal(nd_get_data(read), nd_get_data(tensors[dtype]),
                            2 * nd_dtype_get_size(dtype));
        seen[dtype] = true;
    }
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        assert_true(seen[dtype]);
        nd_release(tensors[dtype]);
    }
}

static void test_round_trip_of_shapes_and_views(void **state) {
    (void)state;
    const char *path = nd_test_path("shapes.safetensors");
    nd_auto nd_tensor *scalar = nd_scalar(2.5, ND_F64);
    nd_auto nd_tensor *empty = nd_zeros(ND_SHAPE(3, 0, 2), ND_F32);
    nd_auto nd_tensor *numbers = nd_arange(0, 6, 1, ND_F32);
    nd_auto nd_tensor *matrix = nd_reshape(numbers, ND_SHAPE(2, 3));
    nd_auto nd_tensor *transposed = nd_transpose(matrix, 0, 1);
    assert_handle(transposed);
    const char *names[] = {"scalar", "empty", "transposed"};
    const nd_tensor *tensors[] = {scalar, empty, transposed};
    assert_ok(nd_save_safetensors(path, 3, names, tensors));
    nd_auto nd_list *list = nd_load_safetensors(path);
    assert_handle(list);
    for (size_t i = 0; i < 3; i++) {
        const nd_tensor *read = (const nd_tensor *)nd_list_get(list, i);
        assert_int_equal(nd_get_ndim(read), nd_get_ndim(tensors[i]));
        for (int axis = 0; axis < nd_get_ndim(read); axis++)
            assert_int_equal(nd_get_size(read, axis), nd_get_size(tensors[i], axis));
    }
    assert_true(nd_get_item((const nd_tensor *)nd_list_get(list, 0)) == 2.5);
    const float expected[] = {0, 3, 1, 4, 2, 5};
    assert_memory_equal(nd_get_data((const nd_tensor *)nd_list_get(list, 2)), expected,
                        sizeof(expected));
}

static void test_file_of_no_tensors_and_aligned_header(void **state) {
    (void)state;
    const char *path = nd_test_path("none.safetensors");
    assert_ok(nd_save_safetensors(path, 0, NULL, NULL));
    size_t bytes;
    char *content = nd_test_read(path, &bytes);
    assert_int_equal(bytes, 16);
    assert_memory_equal(content + 8, "{}      ", 8);
    free(content);
    nd_auto nd_list *list = nd_load_safetensors(path);
    assert_int_equal(nd_list_get_size(list), 0);
}

static void test_tensors_go_to_the_current_manager(void **state) {
    (void)state;
    const char *path = nd_test_path("placed.safetensors");
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(4), ND_F32);
    const char *name = "x";
    assert_ok(nd_save_safetensors(path, 1, &name, (const nd_tensor *const *)&x));
    nd_manager *manager = nd_manager_new(NULL, "load");
    nd_with_manager(manager) {
        nd_auto nd_list *list = nd_load_safetensors(path);
        assert_handle(list);
        assert_ptr_equal(nd_get_manager(list), manager);
        assert_ptr_equal(nd_get_manager(nd_list_get(list, 0)), manager);
    }
    assert_int_equal(nd_manager_get_total_objects(manager), 0);
    nd_release(manager);
}

static void test_metadata_and_order_of_fields_are_free(void **state) {
    (void)state;
    static const char header[] =
        "{ \"__metadata__\" : {\"format\":\"pt\", \"note\":\"\\u00e9\"},"
        "\"b\":{\"data_offsets\":[4,8],\"shape\":[1],\"dtype\":\"F32\"} ,"
        "\"a\":{\"shape\":[ 2, 2 ],\"dtype\":\"U8\",\"data_offsets\":[0,4]}}   ";
    static const unsigned char data[] = {1, 2, 3, 4, 0, 0, 0x80, 0x3f};
    nd_auto nd_list *list =
        nd_load_safetensors(write_raw(strlen(header), header, strlen(header), data, sizeof(data)));
    assert_handle(list);
    assert_int_equal(nd_list_get_size(list), 2);
    assert_true(nd_get_item((const nd_tensor *)nd_list_get(list, 0)) == 1.0);
    assert_memory_equal(nd_get_data((const nd_tensor *)nd_list_get(list, 1)), data, 4);
}

/// As the format's own package reads them.
static void test_what_a_header_says_beside(void **state) {
    (void)state;
    static const char header[] =
        "{\"__metadata__\":null,\"a\":{\"x\":[1,{\"y\":null}],\"shape\":[2],\"dtype\":\"U8\","
        "\"data_offsets\":[0,2],\"device\":\"cpu\"}}";
    static const unsigned char data[] = {7, 9};
    nd_auto nd_list *list =
        nd_load_safetensors(write_raw(strlen(header), header, strlen(header), data, sizeof data));
    assert_handle(list);
    assert_memory_equal(nd_get_data((const nd_tensor *)nd_list_get(list, 0)), data, 2);
}

static void test_a_checkpoint_of_16_bit_floats(void **state) {
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},"
        "\"w\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[0,12]},"
        "\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[12,20]}}";
    const uint16_t data[] = {0x3F80, 0xC000, 0x4049, 0x0001, 0x7F80, 0x0000, // bf16
                             0x3C00, 0xC100, 0x0001, 0xFBFF};                // f16
    const double w[] = {1, -2, 3.140625, 0x1p-133, (double)INFINITY, 0};
    const double b[] = {1, -2.5, 0x1p-24, -65504};
    const char *path = write_raw(strlen(header), header, strlen(header), data, sizeof data);
    nd_auto nd_list *list = nd_load_safetensors(path);
    assert_handle(list);
    const nd_tensor *weight = (const nd_tensor *)nd_list_get(list, 0);
    const nd_tensor *bias = (const nd_tensor *)nd_list_get(list, 1);
    assert_int_equal(nd_get_dtype(weight), ND_BF16);
    assert_int_equal(nd_get_dtype(bias), ND_F16);
    nd_auto nd_tensor *wide_weight = nd_cast(weight, ND_F64);
    nd_auto nd_tensor *wide_bias = nd_cast(bias, ND_F64);
    assert_memory_equal(nd_get_data(wide_weight), w, sizeof w);
    assert_memory_equal(nd_get_data(wide_bias), b, sizeof b);
    // As training in f32 would read them, and written back without a change.
    nd_auto nd_tensor *trained = nd_cast(weight, ND_F32);
    nd_auto nd_tensor *back = nd_cast(trained, ND_BF16);
    assert_memory_equal(nd_get_data(back), data, 12);
}

static void test_F25_header_length_beyond_the_file(void **state) {
    (void)state;
    const uint64_t lengths[] = {3, 100, 100000001, UINT64_C(1) << 62, UINT64_MAX};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
        assert_null(nd_load_safetensors(write_raw(lengths[i], "{}", 2, NULL, 0)));
        assert_failed(ND_ERROR_FORMAT, "announces a header");
    }
    // A header above the format's limit is refused although the file, sparse, is as long as it
    // says.
    const char *path = write_raw(200000000, "{}", 2, NULL, 0);
    assert_int_equal(truncate(path, 200000008), 0);
    assert_null(nd_load_safetensors(path));
    assert_failed(ND_ERROR_FORMAT, "allows 100000000");
    assert_int_equal(unlink(path), 0);
}

static void test_F25_header_that_is_no_json(void **state) {
    (void)state;
    static const char *const headers[] = {
        "[]",
        "",
        " {}",
        "{",
        "{}}",
        "{} x",
        "{,}",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1}",
        "{\"a\":{",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1],}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1,],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[,1],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1.0]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}",
        "{\"a\":{\"dtype\":\"U8\" \"shape\":[1],\"data_offsets\":[0,1]}}",
        "{\"__metadata__\":{\"a\":1}}",
        "{\"__metadata__\":[]}",
    };
    for (size_t i = 0; i < sizeof(headers) / sizeof(*headers); i++)
        refuse(headers[i], 1, ND_ERROR_FORMAT, "header");
}

static void test_F25_bad_utf8_and_deep_nesting(void **state) {
    (void)state;
    refuse("{\"\xff\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1, ND_ERROR_FORMAT,
           "not valid UTF-8");
    refuse("{\"\\ud800\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
           ND_ERROR_FORMAT, "surrogate");
    // A million opening brackets wherever a value stands: refused at the first, no recursion.
    static const char *const beginnings[] = {"{\"a\":", "{\"a\":{\"dtype\":", "{\"a\":{\"shape\":[",
                                             "{\"__metadata__\":{\"a\":"};
    const size_t depth = 1000000;
    char *header = malloc(depth + 64);
    assert_non_null(header);
    for (size_t i = 0; i < 2 * sizeof(beginnings) / sizeof(*beginnings); i++) {
        const char *beginning = beginnings[i / 2];
        memcpy(header, beginning, strlen(beginning));
        memset(header + strlen(beginning), i % 2 ? '[' : '{', depth);
        header[strlen(beginning) + depth] = 0;
        refuse(header, 1, ND_ERROR_FORMAT, "malformed at byte");
    }
    free(header);
}

static void test_F25_duplicate_names_and_fields(void **state) {
    (void)state;
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
           "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]},"
           "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]}}",
           3, ND_ERROR_FORMAT, "the name 'a' twice");
    refuse("{\"__metadata__\":{},\"__metadata__\":{}}", 0, ND_ERROR_FORMAT, "twice");
    refuse("{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
           ND_ERROR_FORMAT, "twice the field 'dtype'");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":}}", 1,
           ND_ERROR_FORMAT, "");
    refuse("{\"__metadata__\":nul}", 0, ND_ERROR_FORMAT, "");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, ND_ERROR_FORMAT, "lacks");
    refuse("{\"a\":{}}", 0, ND_ERROR_FORMAT, "lacks");
}

static void test_F25_ranges_that_do_not_cover_the_data(void **state) {
    (void)state;
    static const char pair[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                               "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[%d,%d]}}";
    char header[256];
    snprintf(header, sizeof(header), pair, 1, 3);
    refuse(header, 3, ND_ERROR_FORMAT, "before another one ends");
    snprintf(header, sizeof(header), pair, 0, 2);
    refuse(header, 2, ND_ERROR_FORMAT, "before another one ends");
    snprintf(header, sizeof(header), pair, 3, 5);
    refuse(header, 5, ND_ERROR_FORMAT, "no tensor covers");
    snprintf(header, sizeof(header), pair, 2, 4);
    refuse(header, 5, ND_ERROR_FORMAT, "5 bytes of data, its tensors 4");
    refuse(header, 3, ND_ERROR_FORMAT, "lies at bytes 2 to 4 of 3");
    snprintf(header, sizeof(header), pair, 4, 2);
    refuse(header, 4, ND_ERROR_FORMAT, "lies at bytes 4 to 2");
    refuse("{}", 1, ND_ERROR_FORMAT, "1 bytes of data");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[9223372036854775807,0]}}", 1,
           ND_ERROR_FORMAT, "lies at bytes");
}

static void test_F25_shape_that_is_not_its_bytes(void **state) {
    (void)state;
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, ND_ERROR_FORMAT,
           "needs 8 bytes, its range has 4");
    refuse("{\"a\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,4]}}", 4, ND_ERROR_FORMAT,
           "needs 0 bytes");
    refuse("{\"a\":{\"dtype\":\"F64\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]}}",
           0, ND_ERROR_FORMAT, "more bytes than 64 bits count");
    refuse("{\"a\":{\"dtype\":\"F64\",\"shape\":[0,4294967296,4294967296],\"data_offsets\":[0,0]}}",
           0, ND_ERROR_FORMAT, "more bytes than 64 bits count");
    // 2^61 * 8 bytes wrap to zero without a check.
    refuse("{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
           ND_ERROR_FORMAT, "more bytes than 64 bits count");
    refuse("{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1,
           ND_ERROR_UNSUPPORTED, "more than 8 dimensions");
    refuse("{\"a\":{\"dtype\":\"C64\",\"shape\":[3],\"data_offsets\":[0,16]}}", 16, ND_ERROR_FORMAT,
           "C64 and shape [3] needs 24 bytes, its range has 16");
    refuse("{\"a\":{\"dtype\":\"C64\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,8]}}", 8,
           ND_ERROR_UNSUPPORTED, "more than 8 dimensions");
    refuse("{\"a\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, ND_ERROR_FORMAT,
           "unknown dtype 'f32'");
}

static void test_F25_bool_that_is_neither_0_nor_1(void **state) {
    (void)state;
    static const char header[] =
        "{\"mask\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[0,3]}}";
    assert_null(
        nd_load_safetensors(write_raw(strlen(header), header, strlen(header), "\x00\x01\x02", 3)));
    assert_failed(ND_ERROR_FORMAT, "'mask' is BOOL and holds a byte 2");
}

static void test_F24_truncated_anywhere(void **state) {
    (void)state;
    const char *path = nd_test_path("whole.safetensors");
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(5), ND_F32);
    nd_auto nd_tensor *y = nd_zeros(ND_SHAPE(2, 2), ND_I64);
    const char *names[] = {"x", "y"};
    const nd_tensor *tensors[] = {x, y};
    assert_ok(nd_save_safetensors(path, 2, names, tensors));
    size_t bytes;
    char *content = nd_test_read(path, &bytes);
    const char *cut = nd_test_path("cut.safetensors");
    for (size_t length = 0; length < bytes; length++) {
        nd_test_write(cut, content, length);
        assert_null(nd_load_safetensors(cut));
        assert_failed(ND_ERROR_FORMAT, "cut.safetensors");
    }
    free(content);
}

static int reads;

/// Reads at most three bytes at a time and is interrupted at every other call.
static ssize_t read_short(int descriptor, void *buffer, size_t bytes, off_t position) {
    if (reads++ % 2) {
        errno = EINTR;
        return -1;
    }
    return pread(descriptor, buffer, bytes < 3 ? bytes : 3, position);
}

/// The file shrank after it was opened.
static ssize_t read_shrunk(int descriptor, void *buffer, size_t bytes, off_t position) {
    return position >= 40 ? 0 : pread(descriptor, buffer, bytes < 8 ? bytes : 8, position);
}

static ssize_t read_failing(int descriptor, void *buffer, size_t bytes, off_t position) {
    if (position > 0) {
        errno = EIO;
        return -1;
    }
    return pread(descriptor, buffer, bytes, position);
}

static void test_F24_short_interrupted_and_failing_reads(void **state) {
    (void)state;
    const char *path = nd_test_path("short.safetensors");
    nd_auto nd_tensor *x = nd_arange(0, 100, 1, ND_F32);
    const char *name = "x";
    assert_ok(nd_save_safetensors(path, 1, &name, (const nd_tensor *const *)&x));
    nd__file_pread = read_short;
    nd_auto nd_list *list = nd_load_safetensors(path);
    nd__file_pread = read_shrunk;
    nd_list *shrunk = nd_load_safetensors(path);
    nd__file_pread = pread;
    assert_handle(list);
    assert_memory_equal(nd_get_data((const nd_tensor *)nd_list_get(list, 0)), nd_get_data(x), 400);
    assert_null(shrunk);
    assert_failed(ND_ERROR_IO, "ends after 40 bytes");
    nd__file_pread = read_failing;
    nd_list *failed = nd_load_safetensors(path);
    nd__file_pread = pread;
    assert_null(failed);
    assert_failed(ND_ERROR_IO, "Input/output error");
}

static void test_F24_missing_empty_and_unreadable_files(void **state) {
    (void)state;
    assert_null(nd_load_safetensors(nd_test_path("missing.safetensors")));
    assert_failed(ND_ERROR_IO, "No such file");
    assert_null(nd_load_safetensors(nd_test_path("")));
    assert_failed(ND_ERROR_IO, "is not a regular file");
    assert_null(nd_load_safetensors("/dev/zero"));
    assert_failed(ND_ERROR_IO, "is not a regular file");
    const char *pipe = nd_test_path("pipe");
    unlink(pipe);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_null(nd_load_safetensors(pipe));
    assert_failed(ND_ERROR_IO, "is not a regular file");
    const char *path = nd_test_path("empty.safetensors");
    nd_test_write(path, "", 0);
    assert_null(nd_load_safetensors(path));
    assert_failed(ND_ERROR_FORMAT, "has 0 bytes");
    if (geteuid() != 0) { // root may read everything
        assert_int_equal(chmod(path, 0), 0);
        assert_null(nd_load_safetensors(path));
        assert_failed(ND_ERROR_IO, "Permission denied");
        assert_int_equal(chmod(path, 0600), 0);
    }
}

static void test_F24_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    nd_auto nd_tensor *large = nd_zeros(ND_SHAPE(100000), ND_F32);
    nd_auto nd_tensor *small = nd_ones(ND_SHAPE(1), ND_F32);
    const char *name = "x";
    assert_int_equal(nd_save_safetensors("/dev/full", 1, &name, (const nd_tensor *const *)&large),
                     ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "No space left");
    // A file may grow to 4 KiB only: the write stops in the middle.
    const char *folder = nd_test_path("disk");
    mkdir(folder, 0700);
    const char *path = nd_test_path("disk/model.safetensors");
    assert_ok(nd_save_safetensors(path, 1, &name, (const nd_tensor *const *)&small));
    int files = nd_test_count_files(folder);
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit tight = {4096, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    nd_status status = nd_save_safetensors(path, 1, &name, (const nd_tensor *const *)&large);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "cannot be written");
    assert_int_equal(nd_test_count_files(folder), files);
    nd_auto nd_list *list = nd_load_safetensors(path);
    assert_handle(list);
    assert_true(nd_get_item((const nd_tensor *)nd_list_get(list, 0)) == 1.0);
}

static void test_F24_targets_that_cannot_be_written(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    const char *name = "x";
    const nd_tensor *const *tensors = (const nd_tensor *const *)&x;
    assert_int_equal(nd_save_safetensors(nd_test_path("no/such/folder"), 1, &name, tensors),
                     ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "No such file");
    assert_int_equal(nd_save_safetensors(nd_test_path(""), 1, &name, tensors), ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "cannot be opened");
    assert_int_equal(nd_save_safetensors("/proc/version/x", 1, &name, tensors), ND_ERROR_IO);
    nd_error_clear();
}

static void test_permissions_and_links_of_the_old_file_stay(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    const char *name = "x";
    const char *path = nd_test_path("kept.safetensors");
    const char *link = nd_test_path("link.safetensors");
    nd_test_write(path, "old", 3);
    assert_int_equal(chmod(path, 0640), 0);
    unlink(link);
    assert_int_equal(symlink(path, link), 0);
    assert_ok(nd_save_safetensors(link, 1, &name, (const nd_tensor *const *)&x));
    struct stat stat;
    assert_int_equal(lstat(link, &stat), 0);
    assert_true(S_ISLNK(stat.st_mode));
    assert_int_equal(lstat(path, &stat), 0);
    assert_true(S_ISREG(stat.st_mode));
    assert_int_equal(stat.st_mode & 07777, 0640);
    nd_auto nd_list *list = nd_load_safetensors(path);
    assert_handle(list);
}

static void test_mapped_tensors_are_private(void **state) {
    (void)state;
    nd_test_collects_by_policy(); // a collection takes memory of its own
    const char *path = nd_test_path("mapped.safetensors");
    nd_auto nd_tensor *large = nd_arange(0, 10000, 1, ND_F64);
    nd_auto nd_tensor *small = nd_arange(0, 3, 1, ND_I32);
    nd_auto nd_tensor *mask = nd_ones(ND_SHAPE(200, 100), ND_BOOL);
    const char *names[] = {"large", "small", "mask"};
    const nd_tensor *tensors[] = {large, small, mask};
    assert_ok(nd_save_safetensors(path, 3, names, tensors));
    nd_load_options options = ND_LOAD_OPTIONS_INIT;
    options.mapped = true;
    reset_memory();
    nd_auto nd_list *list = nd_load_safetensors_with(path, &options);
    assert_true(stop_memory() < 20000); // of 100012
    nd_auto nd_list *read = nd_load_safetensors(path);
    assert_int_equal(nd_list_get_size(list), 3);
    for (size_t i = 0; i < 3; i++) {
        const nd_tensor *a = (const nd_tensor *)nd_list_get(list, i);
        const nd_tensor *b = (const nd_tensor *)nd_list_get(read, i);
        assert_int_equal(nd_get_dtype(a), nd_get_dtype(b));
        assert_memory_equal(nd_get_data(a), nd_get_data(b),
                            (size_t)nd_get_numel(b) * nd_dtype_get_size(nd_get_dtype(b)));
    }
    nd_auto nd_tensor *first = (nd_tensor *)nd_list_remove(list, 0);
    nd_release(nd_steal(&list));
    assert_ok(nd_fill_(first, 5)); // lives by itself, and the file stays
    nd_auto nd_list *again = nd_load_safetensors(path);
    assert_memory_equal(nd_get_data((const nd_tensor *)nd_list_get(again, 0)), nd_get_data(large),
                        80000);
    assert_null(nd_load_safetensors_with(path, &(nd_load_options){.size = 0}));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "ND_LOAD_OPTIONS_INIT");
}

/// A tensor that is not at a multiple of its element's size is read all the same.
static void test_mapped_where_the_place_allows_it(void **state) {
    (void)state;
    static const char header[] =
        "{\"x\":{\"dtype\":\"F32\",\"shape\":[8192],\"data_offsets\":[0,32768]}}";
    char *data = malloc(32768);
    memset(data, 0x3f, 32768);
    const char *path = write_raw(strlen(header), header, strlen(header), data, 32768);
    nd_load_options options = ND_LOAD_OPTIONS_INIT;
    options.mapped = true;
    nd_auto nd_list *list = nd_load_safetensors_with(path, &options);
    assert_handle(list);
    const void *read = nd_get_data((const nd_tensor *)nd_list_get(list, 0));
    assert_int_equal((uintptr_t)read % 4, 0);
    assert_memory_equal(read, data, 32768);
    free(data);
}

static void test_F25_headers_cost_a_multiple_of_their_size(void **state) {
    (void)state;
    enum { TENSORS = 3000 };
    char *header = malloc(TENSORS * 80);
    size_t size = 0;
    for (int i = 0; i < TENSORS; i++)
        size += (size_t)sprintf(header + size,
                                "%s\"%x\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                                i ? "," : "{", i);
    header[size++] = '}';
    header[size] = 0;
    const char *path = write_raw(size, header, size, "x", 1); // a byte too many: refused at last
    reset_memory();
    assert_null(nd_load_safetensors(path));
    assert_true(stop_memory() < MEMORY_MAX(size + 9));
    assert_failed(ND_ERROR_FORMAT, "1 bytes of data");
    free(header);
}

static void test_F30_bad_arguments(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    nd_auto nd_tensor *closed = nd_ones(ND_SHAPE(1), ND_F32);
    const char *path = nd_test_path("never.safetensors");
    const char *names[] = {"x", "x"};
    const nd_tensor *tensors[] = {x, x};
    assert_null(nd_load_safetensors(NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_int_not_equal(nd_save_safetensors(NULL, 1, names, tensors), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_int_not_equal(nd_save_safetensors(path, 1, NULL, tensors), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "names is NULL");
    assert_int_not_equal(nd_save_safetensors(path, 1, names, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "tensors is NULL");
    assert_int_not_equal(nd_save_safetensors(path, 2, names, tensors), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "'x' was given twice");
    names[0] = "__metadata__";
    assert_int_not_equal(nd_save_safetensors(path, 1, names, tensors), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "__metadata__");
    names[0] = "\xff";
    assert_int_not_equal(nd_save_safetensors(path, 1, names, tensors), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "UTF-8");
    names[0] = "x";
    tensors[0] = NULL;
    assert_int_not_equal(nd_save_safetensors(path, 1, names, tensors), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "is NULL");
    assert_ok(nd_close(closed));
    tensors[0] = closed;
    assert_int_not_equal(nd_save_safetensors(path, 1, names, tensors), ND_OK);
    assert_failed(ND_ERROR_CLOSED, "closed");
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_round_trip_of_every_dtype),
        ND_TEST(test_round_trip_of_shapes_and_views),
        ND_TEST(test_file_of_no_tensors_and_aligned_header),
        ND_TEST(test_tensors_go_to_the_current_manager),
        ND_TEST(test_metadata_and_order_of_fields_are_free),
        ND_TEST(test_what_a_header_says_beside),
        ND_TEST(test_a_checkpoint_of_16_bit_floats),
        ND_TEST(test_F25_header_length_beyond_the_file),
        ND_TEST(test_F25_header_that_is_no_json),
        ND_TEST(test_F25_bad_utf8_and_deep_nesting),
        ND_TEST(test_F25_duplicate_names_and_fields),
        ND_TEST(test_F25_ranges_that_do_not_cover_the_data),
        ND_TEST(test_F25_shape_that_is_not_its_bytes),
        ND_TEST(test_F25_bool_that_is_neither_0_nor_1),
        ND_TEST(test_F24_truncated_anywhere),
        ND_TEST(test_F24_short_interrupted_and_failing_reads),
        ND_TEST(test_F24_missing_empty_and_unreadable_files),
        ND_TEST(test_F24_full_disk_leaves_the_old_file),
        ND_TEST(test_F24_targets_that_cannot_be_written),
        ND_TEST(test_permissions_and_links_of_the_old_file_stay),
        ND_TEST(test_mapped_tensors_are_private),
        ND_TEST(test_mapped_where_the_place_allows_it),
        ND_TEST(test_F25_headers_cost_a_multiple_of_their_size),
        ND_TEST(test_F30_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
