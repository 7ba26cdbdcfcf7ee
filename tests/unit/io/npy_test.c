// .npy files: NumPy's bytes, both ways, and files that lie.
#include "tests/unit/io/files.h"
#include "tests/unit/io/memory.h"

#include <sys/resource.h>

static const char *const codes[ND_DTYPE_COUNT] = {
    [ND_BOOL] = "|b1", [ND_U8] = "|u1",  [ND_I32] = "<i4", [ND_I64] = "<i8",
    [ND_F32] = "<f4",  [ND_F64] = "<f8", [ND_I8] = "|i1",  [ND_I16] = "<i2",
    [ND_U16] = "<u2",  [ND_U32] = "<u4", [ND_U64] = "<u8", [ND_F16] = "<f2",
};

/// A .npy of a version, a header as it is, and some bytes.
static const char *write_raw(int version, const char *header, const void *data, size_t bytes) {
    const char *path = nd_test_path("raw.npy");
    char content[4096] = "\x93NUMPY";
    content[6] = (char)version;
    uint32_t length = (uint32_t)strlen(header);
    size_t at = version == 1 ? 10 : 12;
    memcpy(content + 8, &length, version == 1 ? 2 : 4);
    assert_true(at + length + bytes <= sizeof content);
    memcpy(content + at, header, length);
    if (bytes)
        memcpy(content + at + length, data, bytes);
    nd_test_write(path, content, at + length + bytes);
    return path;
}

/// A file of this header, and 64 zero bytes at most, is refused with the status and the fragment.
static void refuse(const char *header, size_t bytes, nd_status status, const char *fragment) {
    static const char zeros[64];
    nd_tensor *tensor = nd_load_npy(write_raw(1, header, zeros, bytes), NULL);
    if (tensor)
        fail_msg("accepted: %s", header);
    assert_non_null(strstr(nd_error_get_message(), "raw.npy"));
    assert_failed(status, fragment);
}

static void assert_shape(const nd_tensor *x, int ndim, const int64_t *shape) {
    assert_handle(x);
    assert_int_equal(nd_get_ndim(x), ndim);
    for (int axis = 0; axis < ndim; axis++)
        assert_int_equal(nd_get_size(x, axis), shape[axis]);
}

static void test_round_trip_of_every_dtype(void **state) {
    (void)state;
    const char *path = nd_test_path("dtype.npy");
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        nd_auto nd_tensor *numbers = nd_arange(0, 6, 1, ND_F64);
        nd_auto nd_tensor *cast = nd_cast(numbers, (nd_dtype)dtype);
        nd_auto nd_tensor *x = nd_reshape(cast, ND_SHAPE(2, 3));
        if (dtype == ND_BF16) {
            unlink(path);
            assert_int_equal(nd_save_npy(path, x), ND_ERROR_DTYPE);
            assert_failed(ND_ERROR_DTYPE, "tensor of bfloat16 cannot be written");
            assert_int_not_equal(access(path, F_OK), 0);
            continue;
        }
        assert_ok(nd_save_npy(path, x));
        size_t bytes;
        char *content = nd_test_read(path, &bytes);
        assert_int_equal(bytes, 128 + 6 * nd_dtype_get_size((nd_dtype)dtype));
        assert_non_null(strstr(content + 10, codes[dtype]));
        free(content);
        nd_auto nd_tensor *read = nd_load_npy(path, NULL);
        assert_shape(read, 2, (int64_t[]){2, 3});
        assert_int_equal(nd_get_dtype(read), dtype);
        assert_memory_equal(nd_get_data(read), nd_get_data(x),
                            6 * nd_dtype_get_size((nd_dtype)dtype));
    }
}

static void test_the_bytes_that_numpy_writes(void **state) {
    (void)state;
    const char *path = nd_test_path("bytes.npy");
    nd_auto nd_tensor *x = nd_arange(0, 3, 1, ND_F32);
    assert_ok(nd_save_npy(path, x));
    size_t bytes;
    char *content = nd_test_read(path, &bytes);
    char expected[128 + 12];
    memcpy(expected, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(expected + 10, ' ', 118);
    static const char text[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }";
    memcpy(expected + 10, text, sizeof text - 1);
    expected[127] = '\n';
    memcpy(expected + 128, (float[]){0, 1, 2}, 12);
    assert_int_equal(bytes, sizeof expected);
    assert_memory_equal(content, expected, bytes);
    free(content);
}

static void test_round_trip_of_shapes_and_views(void **state) {
    (void)state;
    const char *path = nd_test_path("shapes.npy");
    nd_auto nd_tensor *scalar = nd_scalar(2.5, ND_F64);
    nd_auto nd_tensor *empty = nd_zeros(ND_SHAPE(3, 0, 2), ND_F32);
    nd_auto nd_tensor *eight = nd_ones(ND_SHAPE(1, 2, 1, 1, 2, 1, 1, 1), ND_I16);
    nd_auto nd_tensor *numbers = nd_arange(0, 6, 1, ND_F32);
    nd_auto nd_tensor *matrix = nd_reshape(numbers, ND_SHAPE(2, 3));
    nd_auto nd_tensor *transposed = nd_transpose(matrix, 0, 1);
    nd_auto nd_tensor *sliced = nd_slice(matrix, 1, 3, 1, 1);
    nd_auto nd_tensor *backwards = nd_slice(numbers, 5, -7, -2, 0);
    nd_auto nd_tensor *row = nd_slice(matrix, 0, 1, 1, 0);
    nd_auto nd_tensor *expanded = nd_expand(row, ND_SHAPE(4, 3));
    const nd_tensor *tensors[] = {scalar,     empty,  eight,     matrix,
                                  transposed, sliced, backwards, expanded};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        assert_handle(tensors[i]);
        assert_ok(nd_save_npy(path, tensors[i]));
        nd_auto nd_tensor *read = nd_load_npy(path, NULL);
        assert_shape(read, nd_get_ndim(tensors[i]), nd_get_shape(tensors[i]));
        assert_true(nd_is_contiguous(read));
        nd_auto nd_tensor *ordered = nd_contiguous(tensors[i]);
        size_t bytes = (size_t)nd_get_numel(read) * nd_dtype_get_size(nd_get_dtype(read));
        assert_memory_equal(nd_get_data(read), nd_get_data(ordered), bytes);
    }
}

static void test_versions_and_how_headers_may_look(void **state) {
    (void)state;
    static const char *const headers[] = {
        "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }\n",
        "{\"shape\":(2,),\"fortran_order\":False,\"descr\":\"<i2\"}",
        " {'shape' : ( 2 , ) , 'descr' : 'i2' , 'fortran_order' : False , } \n",
        "{'descr': '=i2', 'fortran_order': False, 'shape': (2L,), }\n",
        "{'descr': '|i2', 'fortran_order': True, 'shape': (2,), }\n",
    };
    for (int version = 1; version <= 3; version++)
        for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
            nd_auto nd_tensor *x =
                nd_load_npy(write_raw(version, headers[i], (int16_t[]){7, -8}, 4), NULL);
            assert_shape(x, 1, (int64_t[]){2});
            assert_memory_equal(nd_get_data(x), ((int16_t[]){7, -8}), 4);
        }
    assert_null(nd_load_npy(write_raw(4, headers[0], "", 0), NULL));
    assert_failed(ND_ERROR_UNSUPPORTED, "version 4.0");
}

/// NumPy takes a dtype by its name, too: each that ndarc has, in the machine's order of bytes.
static void test_dtypes_by_their_names(void **state) {
    (void)state;
    static const char *const names[ND_DTYPE_COUNT] = {
        [ND_BOOL] = "bool",   [ND_U8] = "uint8",    [ND_I32] = "int32",  [ND_I64] = "int64",
        [ND_F32] = "float32", [ND_F64] = "float64", [ND_I8] = "int8",    [ND_I16] = "int16",
        [ND_U16] = "uint16",  [ND_U32] = "uint32",  [ND_U64] = "uint64", [ND_F16] = "float16",
    };
    static const unsigned char data[16] = {1, 0, 1, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1, 0, 1, 0};
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
        if (!names[dtype])
            continue;
        char header[120];
        snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (2,), }",
                 names[dtype]);
        const size_t bytes = 2 * nd_dtype_get_size((nd_dtype)dtype);
        nd_auto nd_tensor *x = nd_load_npy(write_raw(1, header, data, bytes), NULL);
        if (!x)
            fail_msg("%s", nd_error_get_message());
        assert_shape(x, 1, (int64_t[]){2});
        assert_int_equal(nd_get_dtype(x), dtype);
        assert_memory_equal(nd_get_data(x), data, bytes);
    }
}

static void test_either_order_of_axes_and_of_bytes(void **state) {
    (void)state;
    static const unsigned char words[] = {0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6};
    nd_auto nd_tensor *x = nd_load_npy(
        write_raw(1, "{'descr': '>u2', 'fortran_order': True, 'shape': (2, 3)}", words, 12), NULL);
    assert_shape(x, 2, (int64_t[]){2, 3});
    assert_true(nd_is_contiguous(x));
    assert_memory_equal(nd_get_data(x), ((uint16_t[]){1, 3, 5, 2, 4, 6}), 12);
    static const unsigned char one[] = {0x3f, 0xf0, 0, 0, 0, 0, 0, 0};
    nd_auto nd_tensor *y = nd_load_npy(
        write_raw(1, "{'descr': '>f8', 'fortran_order': False, 'shape': ()}", one, 8), NULL);
    assert_int_equal(nd_get_ndim(y), 0);
    assert_true(nd_get_item(y) == 1.0);
    nd_auto nd_tensor *z = nd_load_npy(
        write_raw(1, "{'descr': '>f4', 'fortran_order': True, 'shape': (1, 1, 1)}", one, 4), NULL);
    assert_true(nd_get_item(z) == 1.875);
    nd_auto nd_tensor *none = nd_load_npy(
        write_raw(1, "{'descr': '>i8', 'fortran_order': True, 'shape': (3, 0, 2)}", one, 0), NULL);
    assert_shape(none, 3, (int64_t[]){3, 0, 2});
}

static void test_mapped_tensors_are_private(void **state) {
    (void)state;
    const char *path = nd_test_path("mapped.npy");
    nd_auto nd_tensor *x = nd_arange(0, 10000, 1, ND_F32);
    assert_ok(nd_save_npy(path, x));
    nd_load_options options = ND_LOAD_OPTIONS_INIT;
    options.mapped = true;
    reset_memory();
    nd_auto nd_tensor *mapped = nd_load_npy(path, &options);
    assert_handle(mapped);
    assert_true(stop_memory() < 10000); // the data are 40000 bytes
    assert_memory_equal(nd_get_data(mapped), nd_get_data(x), 40000);
    assert_true(nd_manager_get_total_bytes(NULL) >= 80000); // charged like any other
    nd_auto nd_tensor *view = nd_slice(mapped, 10, 20, 1, 0);
    assert_ok(nd_fill_(mapped, 7));
    nd_release(nd_steal(&mapped));
    assert_true(*(const float *)nd_get_data(view) == 7);
    nd_auto nd_tensor *again = nd_load_npy(path, NULL);
    assert_memory_equal(nd_get_data(again), nd_get_data(x), 40000);
    // Another file takes the name: what was mapped stays as it was.
    nd_auto nd_tensor *before = nd_load_npy(path, &options);
    nd_auto nd_tensor *ones = nd_ones(ND_SHAPE(3), ND_F32);
    assert_ok(nd_save_npy(path, ones));
    assert_memory_equal(nd_get_data(before), nd_get_data(x), 40000);
}

static void test_what_mapping_does_not_fit_is_read(void **state) {
    (void)state;
    nd_load_options options = ND_LOAD_OPTIONS_INIT;
    options.mapped = true;
    size_t bytes = 80000;
    unsigned char *content = calloc(1, bytes + 200);
    static const char *const headers[] = {
        "{'descr': '>f8', 'fortran_order': False, 'shape': (100, 100)}",
        "{'descr': '<f8', 'fortran_order': True, 'shape': (100, 100)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (100, 100)} ", // at an odd byte
    };
    for (size_t i = 0; i < 3; i++) {
        size_t length = strlen(headers[i]);
        memcpy(content, "\x93NUMPY\x01\x00", 8);
        content[8] = (unsigned char)length;
        memcpy(content + 10, headers[i], length);
        memset(content + 10 + length, 0x40, bytes);
        const char *path = nd_test_path("unmapped.npy");
        nd_test_write(path, content, 10 + length + bytes);
        nd_auto nd_tensor *x = nd_load_npy(path, &options);
        assert_shape(x, 2, (int64_t[]){100, 100});
        assert_memory_equal(nd_get_data(x), content + 10 + length, bytes);
        assert_true(nd_is_contiguous(x));
    }
    free(content);
}

static void test_dtypes_by_their_other_names(void **state) {
    (void)state;
    static const struct {
        const char *descr;
        nd_dtype dtype;
        bool is_pair;
    } cases[] = {
        {"?", ND_BOOL, false},     {"b", ND_I8, false},       {"B", ND_U8, false},
        {"<h", ND_I16, false},     {"ushort", ND_U16, false}, {">i", ND_I32, false},
        {"=I", ND_U32, false},     {"l", ND_I64, false},      {"q", ND_I64, false},
        {"int", ND_I64, false},    {"Q", ND_U64, false},      {"uintp", ND_U64, false},
        {"e", ND_F16, false},      {"half", ND_F16, false},   {">f", ND_F32, false},
        {"single", ND_F32, false}, {"<d", ND_F64, false},     {"float", ND_F64, false},
        {"double", ND_F64, false}, {"F", ND_F32, true},       {"csingle", ND_F32, true},
        {">D", ND_F64, true},      {"complex", ND_F64, true}, {"cdouble", ND_F64, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[200];
        snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': (1,)}",
                 cases[i].descr);
        const size_t length = strlen(text);
        const size_t bytes = nd_dtype_get_size(cases[i].dtype) << cases[i].is_pair;
        unsigned char content[256] = "\x93NUMPY\x01";
        content[8] = (unsigned char)length;
        memcpy(content + 10, text, length);
        content[10 + length + (cases[i].descr[0] == '>' ? 0 : bytes - 1)] = 1;
        const char *path = nd_test_path("named.npy");
        nd_test_write(path, content, 10 + length + bytes);
        nd_auto nd_tensor *x = nd_load_npy(path, NULL);
        assert_non_null(x);
        assert_int_equal(nd_get_dtype(x), cases[i].dtype);
        assert_int_equal(nd_get_ndim(x), 1 + cases[i].is_pair);
        assert_int_equal(((const unsigned char *)nd_get_data(x))[bytes - 1],
                         cases[i].is_pair && cases[i].descr[0] == '>' ? 0 : 1);
    }
}

static void test_F25_dtypes_that_ndarc_does_not_have(void **state) {
    (void)state;
    static const struct {
        const char *descr, *fragment;
    } cases[] = {
        {"'|O'", "'|O' (pickled Python objects)"},
        {"'<c32'", "'<c32' (complex numbers of another size)"},
        {"'<U3'", "'<U3' (strings)"},
        {"'|S5'", "'|S5' (strings)"},
        {"'<M8[ns]'", "'<M8[ns]' (dates and times)"},
        {"'<f16'", "'<f16' (floats of another size)"},
        {"'float128'", "'float128' (floats of another size)"},
        {"'complex256'", "'complex256' (complex numbers of another size)"},
        {"'|V2'", "such as bfloat16"},
        {"'longdouble'", "'longdouble' (floats of another size)"},
        {"'>g'", "'>g' (floats of another size)"},
        {"'str'", "'str' (strings)"},
        {"'c'", "'c' (strings)"},
        {"'object'", "'object' (pickled Python objects)"},
        {"'f8,f8'", "'f8,f8' (a structure)"},
        {"[('a', '<f4'), ('b', '<i4')]", "the structured dtype [('a', '<f4')"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char header[200];
        snprintf(header, sizeof header, "{'descr': %s, 'fortran_order': False, 'shape': (1,)}",
                 cases[i].descr);
        refuse(header, 16, ND_ERROR_UNSUPPORTED, cases[i].fragment);
    }
}

static void test_F25_headers_that_are_none(void **state) {
    (void)state;
    static const struct {
        const char *header, *fragment;
    } cases[] = {
        {"", "a dictionary was expected"},
        {"{", "a string was expected"},
        {"{}", "is missing"},
        {"{'descr': '<f4', 'shape': ()}", "fortran_order or shape is missing"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': ()}", "twice"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}", "an unknown key"},
        {"{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", "True or False"},
        {"{'descr': '<f4' 'fortran_order': False, 'shape': ()}", "a comma or }"},
        {"{'descr' '<f4', 'fortran_order': False, 'shape': ()}", "a colon"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", "where a tuple was"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': [1]}", "a tuple was expected"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}", "a comma or )"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "a size was expected"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (01,)}", "begins with zero"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", "64 bits"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} 1", "goes on after its end"},
        {"{'descr': '<\\x664', 'fortran_order': False, 'shape': (1,)}", "a character that none"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,", "a size was expected"},
        {"{'descr': '<q4', 'fortran_order': False, 'shape': (1,)}", "unknown dtype '<q4'"},
        {"{'descr': '<float32', 'fortran_order': False, 'shape': (1,)}", "dtype '<float32'"},
        {"{'descr': '<float', 'fortran_order': False, 'shape': (1,)}", "unknown dtype '<float'"},
        {"{'descr': 'floats', 'fortran_order': False, 'shape': (1,)}", "unknown dtype 'floats'"},
        {"{'descr': 'cat', 'fortran_order': False, 'shape': (1,)}", "unknown dtype 'cat'"},
        {"{'descr': 'bfloat16', 'fortran_order': False, 'shape': (1,)}", "dtype 'bfloat16'"},
        {"{'descr': '', 'fortran_order': False, 'shape': (1,)}", "unknown dtype ''"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuse(cases[i].header, 4, ND_ERROR_FORMAT, cases[i].fragment);
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4,
           ND_ERROR_UNSUPPORTED, "more than 8 dimensions");
}

static void test_F25_shapes_that_are_not_the_bytes(void **state) {
    (void)state;
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 4, ND_ERROR_FORMAT,
           "the shape [2] of float32, 8 bytes; 4 follow");
    refuse("{'descr': '<f4', 'fortran_order': False, 'shape': (0,)}", 4, ND_ERROR_FORMAT,
           "0 bytes; 4 follow");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", 0,
           ND_ERROR_FORMAT, "more bytes than 64 bits count");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (0, 4294967296, 4294967296)}", 0,
           ND_ERROR_FORMAT, "more bytes than 64 bits count");
    refuse("{'descr': '<f8', 'fortran_order': False, 'shape': (2305843009213693952,)}", 0,
           ND_ERROR_FORMAT, "more bytes than 64 bits count");
    assert_null(nd_load_npy(
        write_raw(1, "{'descr': '|b1', 'fortran_order': False, 'shape': (3,)}", "\x00\x01\x07", 3),
        NULL));
    assert_failed(ND_ERROR_FORMAT, "raw.npy' is of bool and holds a byte 7");
}

static void test_F25_lengths_beyond_the_file(void **state) {
    (void)state;
    static const char lie[] = "\x93NUMPY\x02\x00\xff\xff\xff\x7f{'descr'";
    const char *path = nd_test_path("lie.npy");
    nd_test_write(path, lie, sizeof lie - 1);
    reset_memory();
    assert_null(nd_load_npy(path, NULL));
    assert_true(stop_memory() < 4096);
    assert_failed(ND_ERROR_FORMAT, "announces a header of 2147483647 bytes; 8 follow");
    char *many = calloc(1, 70000);
    memcpy(many, "\x93NUMPY\x02\x00\x70\x11\x01\x00", 12);
    nd_test_write(path, many, 70012 - 12);
    assert_null(nd_load_npy(path, NULL));
    assert_failed(ND_ERROR_FORMAT, "announces a header of 70000 bytes; 69988 follow");
    memcpy(many + 8, "\x01\x00\x01\x00", 4); // 65537
    nd_test_write(path, many, 70000);
    assert_null(nd_load_npy(path, NULL));
    assert_failed(ND_ERROR_UNSUPPORTED, "a header of 65537 bytes");
    free(many);
}

/// Files of 5,000 bytes to a MiB that announce a little more, a little less and far more than they
/// have, in either order of axes and bytes, read and mapped.
static void test_F25_lies_of_large_files_cost_a_multiple_of_their_size(void **state) {
    (void)state;
    static const char *const descrs[] = {"<f4", ">f4", "|b1", ">c16"};
    for (size_t bytes = 5000; bytes <= (size_t)1 << 20; bytes = bytes * 14) {
        char *content = malloc(bytes);
        for (int k = 0; k < 4 * 2 * 3 * 2; k++) {
            const int64_t rows = (int64_t)(bytes / 8);
            const int64_t lies[] = {rows + 1, rows - 100, INT64_C(1) << 40};
            memset(content, 1, bytes);
            memcpy(content, "\x93NUMPY\x01", 8);
            int length = snprintf(
                content + 10, 200, "{'descr': '%s', 'fortran_order': %s, 'shape': (2, %lld)}",
                descrs[k % 4], k / 4 % 2 ? "True" : "False", (long long)lies[k / 8 % 3]);
            content[8] = (char)length;
            content[9] = 0;
            const char *path = nd_test_path("large.npy");
            nd_test_write(path, content, bytes);
            nd_load_options options = ND_LOAD_OPTIONS_INIT;
            options.mapped = k / 24;
            reset_memory();
            assert_null(nd_load_npy(path, &options));
            // Of a shape that is not that of the bytes nothing is taken, whatever the bytes.
            assert_true(stop_memory() < 4096);
            assert_failed(ND_ERROR_FORMAT, "follow");
        }
        free(content);
    }
}

/// The last byte of a MiB is no bool: what was read until then is given back.
static void test_F25_a_bool_at_the_end_that_is_none(void **state) {
    (void)state;
    const size_t bytes = (size_t)1 << 20;
    static const char header[] = "{'descr': '|b1', 'fortran_order': False, 'shape': (1048576,)}";
    const size_t at = 10 + sizeof header - 1;
    char *content = calloc(1, at + bytes);
    memcpy(content, "\x93NUMPY\x01", 8);
    content[8] = sizeof header - 1;
    memcpy(content + 10, header, sizeof header - 1);
    content[at + bytes - 1] = 2;
    const char *path = nd_test_path("bool.npy");
    nd_test_write(path, content, at + bytes);
    reset_memory();
    assert_null(nd_load_npy(path, NULL));
    assert_true(stop_memory() < MEMORY_MAX(at + bytes));
    assert_failed(ND_ERROR_FORMAT, "holds a byte 2");
    free(content);
}

/// A header of 60,000 bytes, most of them spaces, may be one; behind it is what it says or not.
static void test_F25_long_headers(void **state) {
    (void)state;
    enum { HEADER = 60000 };
    char *content = malloc(10 + HEADER + 8);
    memset(content, ' ', 10 + HEADER + 8);
    memcpy(content, "\x93NUMPY\x01\x00\x60\xea", 10);
    static const char says[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";
    memcpy(content + 10, says, sizeof says - 1);
    content[10 + HEADER - 1] = '\n';
    const char *path = nd_test_path("long.npy");
    nd_test_write(path, content, 10 + HEADER + 8);
    nd_auto nd_tensor *x = nd_load_npy(path, NULL);
    assert_handle(x);
    assert_int_equal(nd_get_numel(x), 2);
    nd_test_write(path, content, 10 + HEADER + 7);
    reset_memory();
    assert_null(nd_load_npy(path, NULL));
    assert_true(stop_memory() < MEMORY_MAX(HEADER));
    assert_failed(ND_ERROR_FORMAT, "8 bytes; 7 follow");
    free(content);
}

static void test_F24_truncated_anywhere(void **state) {
    (void)state;
    const char *path = nd_test_path("whole.npy");
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 5), ND_F32);
    assert_ok(nd_save_npy(path, x));
    size_t bytes;
    char *content = nd_test_read(path, &bytes);
    const char *cut = nd_test_path("cut.npy");
    for (size_t length = 0; length < bytes; length++) {
        nd_test_write(cut, content, length);
        assert_null(nd_load_npy(cut, NULL));
        assert_non_null(strstr(nd_error_get_message(), "cut.npy"));
        nd_status status = nd_error_get_status();
        assert_true(status == ND_ERROR_FORMAT || status == ND_ERROR_IO);
        nd_error_clear();
    }
    content = realloc(content, bytes + 1);
    content[bytes] = 0;
    nd_test_write(cut, content, bytes + 1);
    assert_null(nd_load_npy(cut, NULL));
    assert_failed(ND_ERROR_FORMAT, "40 bytes; 41 follow");
    free(content);
}

static void test_F24_files_that_are_not_there_or_full(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(100000), ND_F32);
    assert_null(nd_load_npy(nd_test_path("missing.npy"), NULL));
    assert_failed(ND_ERROR_IO, "No such file");
    assert_null(nd_load_npy("/dev/zero", NULL));
    assert_failed(ND_ERROR_IO, "not a regular file");
    assert_int_equal(nd_save_npy("/dev/full", x), ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "No space left");
    assert_int_equal(nd_save_npy(nd_test_path("no/such"), x), ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "No such file");
}

static void test_F30_bad_arguments(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(1), ND_F32);
    nd_auto nd_tensor *closed = nd_ones(ND_SHAPE(1), ND_F32);
    const char *path = nd_test_path("never.npy");
    assert_null(nd_load_npy(NULL, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_null(nd_load_npy(path, &(nd_load_options){.size = 0}));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "ND_LOAD_OPTIONS_INIT");
    assert_int_not_equal(nd_save_npy(NULL, x), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_int_not_equal(nd_save_npy(path, NULL), ND_OK);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "is NULL");
    assert_ok(nd_close(closed));
    assert_int_not_equal(nd_save_npy(path, closed), ND_OK);
    assert_failed(ND_ERROR_CLOSED, "closed");
    assert_int_not_equal(access(path, F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_round_trip_of_every_dtype),
        ND_TEST(test_the_bytes_that_numpy_writes),
        ND_TEST(test_round_trip_of_shapes_and_views),
        ND_TEST(test_versions_and_how_headers_may_look),
        ND_TEST(test_dtypes_by_their_names),
        ND_TEST(test_either_order_of_axes_and_of_bytes),
        ND_TEST(test_mapped_tensors_are_private),
        ND_TEST(test_what_mapping_does_not_fit_is_read),
        ND_TEST(test_dtypes_by_their_other_names),
        ND_TEST(test_F25_dtypes_that_ndarc_does_not_have),
        ND_TEST(test_F25_headers_that_are_none),
        ND_TEST(test_F25_shapes_that_are_not_the_bytes),
        ND_TEST(test_F25_lengths_beyond_the_file),
        ND_TEST(test_F25_lies_of_large_files_cost_a_multiple_of_their_size),
        ND_TEST(test_F25_a_bool_at_the_end_that_is_none),
        ND_TEST(test_F25_long_headers),
        ND_TEST(test_F24_truncated_anywhere),
        ND_TEST(test_F24_files_that_are_not_there_or_full),
        ND_TEST(test_F30_bad_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
