// IDX files: every element type, plain and gzipped, the digits of the repository, and files that
// lie.
#include "tests/unit/io/files.h"
#include "tests/unit/io/memory.h"

#include "lib/io/file.h"

#if ND_HAVE_ZLIB
#include <zlib.h>
#endif

static const unsigned char small[] = {0, 0, 0x08, 2, 0, 0, 0, 2, 0, 0, 0, 3, 1, 2, 3, 4, 5, 255};

static nd_tensor *load(const void *content, size_t bytes) {
    const char *path = nd_test_path("test.idx");
    nd_test_write(path, content, bytes);
    return nd_load_idx(path);
}

static void refuse(const void *content, size_t bytes, nd_status status, const char *fragment) {
    assert_null(load(content, bytes));
    assert_non_null(strstr(nd_error_get_message(), "test.idx"));
    assert_failed(status, fragment);
}

static void test_element_types(void **state) {
    (void)state;
    static const unsigned char i8[] = {0, 0, 0x09, 1, 0, 0, 0, 2, 0x7f, 0x80};
    static const unsigned char i16[] = {0, 0, 0x0b, 1, 0, 0, 0, 2, 0x01, 0x02, 0xff, 0xfe};
    static const unsigned char i32[] = {0, 0, 0x0c, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0x00};
    static const unsigned char f32[] = {0, 0, 0x0d, 1, 0, 0, 0, 1, 0x3f, 0x80, 0, 0};
    static const unsigned char f64[] = {0, 0, 0x0e, 0, 0xc0, 0, 0, 0, 0, 0, 0, 0};
    static const struct {
        const unsigned char *content;
        size_t bytes;
        nd_dtype dtype;
        int ndim;
        double first;
        double last;
    } cases[] = {
        {small, sizeof(small), ND_U8, 2, 1, 255}, {i8, sizeof(i8), ND_I32, 1, 127, -128},
        {i16, sizeof(i16), ND_I32, 1, 258, -2},   {i32, sizeof(i32), ND_I32, 1, -256, -256},
        {f32, sizeof(f32), ND_F32, 1, 1, 1},      {f64, sizeof(f64), ND_F64, 0, -2, -2},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        nd_auto nd_tensor *x = load(cases[i].content, cases[i].bytes);
        assert_handle(x);
        assert_int_equal(nd_get_dtype(x), cases[i].dtype);
        assert_int_equal(nd_get_ndim(x), cases[i].ndim);
        nd_auto nd_tensor *flat = nd_reshape(x, ND_SHAPE(-1));
        nd_auto nd_tensor *first = nd_select(flat, 0, 0);
        nd_auto nd_tensor *last = nd_select(flat, -1, 0);
        assert_true(nd_get_item(first) == cases[i].first);
        assert_true(nd_get_item(last) == cases[i].last);
    }
}

static void test_many_narrow_elements(void **state) {
    (void)state;
    enum { COUNT = 10001 };
    static unsigned char content[8 + 2 * COUNT] = {0, 0, 0x0b, 1, 0, 0, COUNT >> 8, COUNT & 0xff};
    for (int i = 0; i < COUNT; i++) {
        content[8 + 2 * i] = (unsigned char)((i - 5000) >> 8);
        content[9 + 2 * i] = (unsigned char)(i - 5000);
    }
    nd_auto nd_tensor *x = load(content, sizeof(content));
    assert_handle(x);
    const int32_t *value = nd_get_data(x);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(value[i], i - 5000);
}

static void test_empty_axis(void **state) {
    (void)state;
    static const unsigned char none[] = {0, 0, 0x08, 2, 0, 0, 0, 0, 0, 0, 0, 3};
    nd_auto nd_tensor *x = load(none, sizeof(none));
    assert_handle(x);
    assert_int_equal(nd_get_numel(x), 0);
}

static void test_F24_truncated_anywhere(void **state) {
    (void)state;
    for (size_t length = 0; length < sizeof(small); length++) {
        assert_null(load(small, length));
        nd_status status = nd_error_get_status();
        assert_true(status == ND_ERROR_IO || status == ND_ERROR_FORMAT);
        assert_non_null(strstr(nd_error_get_message(), "test.idx"));
        nd_error_clear();
    }
}

static void test_F24_missing_file_and_folder(void **state) {
    (void)state;
    assert_null(nd_load_idx(nd_test_path("missing.idx")));
    assert_failed(ND_ERROR_IO, "No such file");
    assert_null(nd_load_idx(nd_test_path("")));
    assert_failed(ND_ERROR_IO, "not a regular file");
    assert_null(nd_load_idx(NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
}

static void test_F25_lying_headers(void **state) {
    (void)state;
    static const unsigned char magic[] = {1, 0, 0x08, 1, 0, 0, 0, 1, 0};
    static const unsigned char type[] = {0, 0, 0x0a, 1, 0, 0, 0, 1, 0};
    static const unsigned char dims[] = {0, 0, 0x08, 9, 0, 0, 0, 1, 0};
    static const unsigned char huge[] = {0,    0,    0x08, 2,    0xff, 0xff, 0xff,
                                         0xff, 0xff, 0xff, 0xff, 0xff, 0};
    // 2^31 * 2^31 * 4 bytes wrap to zero without a check.
    static const unsigned char wraps[] = {0, 0, 0x0c, 3, 0, 0, 0, 4, 0x40, 0,
                                          0, 0, 0x80, 0, 0, 0, 1, 2, 3,    4};
    static const unsigned char more[] = {0, 0, 0x08, 1, 0, 0, 0, 1, 7, 8};
    refuse(magic, sizeof(magic), ND_ERROR_FORMAT, "no IDX file");
    refuse(type, sizeof(type), ND_ERROR_FORMAT, "unknown IDX type 0x0a");
    refuse(dims, sizeof(dims), ND_ERROR_UNSUPPORTED, "9 dimensions");
    refuse(huge, sizeof(huge), ND_ERROR_FORMAT, "more than its 13 bytes can hold");
    refuse(wraps, sizeof(wraps), ND_ERROR_FORMAT, "can hold");
    refuse(more, sizeof(more), ND_ERROR_FORMAT, "goes on after the data");
}

#if ND_HAVE_ZLIB

/// gzips into memory; to be freed.
static unsigned char *pack(const void *content, size_t bytes, size_t *ret_bytes) {
    size_t room = bytes + bytes / 100 + 128;
    unsigned char *packed = malloc(room);
    assert_non_null(packed);
    z_stream zlib = {.next_in = (unsigned char *)(uintptr_t)content,
                     .avail_in = (unsigned)bytes,
                     .next_out = packed,
                     .avail_out = (unsigned)room};
    assert_int_equal(deflateInit2(&zlib, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY),
                     Z_OK);
    assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
    *ret_bytes = room - zlib.avail_out;
    deflateEnd(&zlib);
    return packed;
}

static void test_gzipped_whole_and_in_members(void **state) {
    (void)state;
    size_t bytes;
    unsigned char *packed = pack(small, sizeof(small), &bytes);
    nd_auto nd_tensor *x = load(packed, bytes);
    free(packed);
    assert_handle(x);
    assert_memory_equal(nd_get_data(x), small + 12, 6);
    size_t first_bytes, second_bytes;
    unsigned char *first = pack(small, 10, &first_bytes);
    unsigned char *second = pack(small + 10, sizeof(small) - 10, &second_bytes);
    unsigned char members[256];
    memcpy(members, first, first_bytes);
    memcpy(members + first_bytes, second, second_bytes);
    nd_auto nd_tensor *y = load(members, first_bytes + second_bytes);
    free(first);
    free(second);
    assert_handle(y);
    assert_memory_equal(nd_get_data(y), small + 12, 6);
}

static void test_F24_gzipped_truncated_or_damaged_anywhere(void **state) {
    (void)state;
    size_t bytes;
    unsigned char *packed = pack(small, sizeof(small), &bytes);
    for (size_t length = 0; length < bytes; length++) {
        assert_null(load(packed, length));
        assert_non_null(strstr(nd_error_get_message(), "test.idx"));
        nd_error_clear();
    }
    // A changed byte after the gzip header changes data, length or checksum.
    for (size_t i = 10; i < bytes; i++) {
        packed[i] ^= 0x5a;
        assert_null(load(packed, bytes));
        assert_int_not_equal(nd_error_get_status(), ND_OK);
        nd_error_clear();
        packed[i] ^= 0x5a;
    }
    packed[bytes - 8] ^= 1;
    refuse(packed, bytes, ND_ERROR_FORMAT, "damaged gzip file");
    free(packed);
}

static void test_F25_zip_bomb(void **state) {
    (void)state;
    // 64 MiB of zeros behind a header that announces one byte.
    const size_t bomb_bytes = (size_t)64 << 20;
    unsigned char *bomb = calloc(1, bomb_bytes);
    assert_non_null(bomb);
    static const unsigned char header[] = {0, 0, 0x08, 1, 0, 0, 0, 1};
    memcpy(bomb, header, sizeof(header));
    size_t bytes;
    unsigned char *packed = pack(bomb, bomb_bytes, &bytes);
    refuse(packed, bytes, ND_ERROR_FORMAT, "goes on after the data");
    free(packed);
    // A header that announces 16 EiB behind a hundred bytes: no memory is taken for it.
    static const unsigned char lie[] = {0,    0,    0x08, 2,    0xff, 0xff, 0xff,
                                        0xff, 0xff, 0xff, 0xff, 0xff, 0};
    packed = pack(lie, sizeof(lie), &bytes);
    refuse(packed, bytes, ND_ERROR_FORMAT, "can hold");
    free(packed);
    // A size of zero makes a tensor empty, but not small the strides that the others make.
    static const unsigned char empty_lie[] = {0,    0,    0x08, 4,    0x7f, 0xff, 0xff,
                                              0xff, 0x7f, 0xff, 0xff, 0xff, 0,    0,
                                              0,    0,    0x7f, 0xff, 0xff, 0xff};
    refuse(empty_lie, sizeof(empty_lie), ND_ERROR_FORMAT, "can hold");
    // What 40 packed bytes can just hold, but do not.
    static const unsigned char short_of[] = {0, 0, 0x08, 1, 0, 0, 0x40, 0, 1, 2, 3};
    packed = pack(short_of, sizeof(short_of), &bytes);
    refuse(packed, bytes, ND_ERROR_IO, "fewer bytes than it announces");
    free(packed);
    free(bomb);
}

/// Zeros pack a thousand to one: what 16 KiB announce, they can hold, and no memory is taken for it
/// before they have.
static void test_F25_announcement_is_borne_out_before_memory_is_taken(void **state) {
    (void)state;
    enum { BYTES = 16 << 20, HEADER = 8 };
    static const struct {
        unsigned char type;
        size_t element_bytes;
    } types[] = {{0x08, 1}, {0x09, 1}, {0x0b, 2}, {0x0e, 8}};
    unsigned char *content = calloc(1, HEADER + BYTES);
    assert_non_null(content);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        size_t count = BYTES / types[i].element_bytes, packed_bytes;
        for (int lie = 0; lie < 2; lie++) {
            uint32_t announced = __builtin_bswap32((uint32_t)count + (lie ? 1 : 0));
            memcpy(content, (unsigned char[]){0, 0, types[i].type, 1}, 4);
            memcpy(content + 4, &announced, 4);
            unsigned char *packed = pack(content, HEADER + BYTES, &packed_bytes);
            reset_memory();
            nd_auto nd_tensor *x = load(packed, packed_bytes);
            uint64_t memory = stop_memory();
            free(packed);
            if (!lie) {
                assert_handle(x);
                assert_int_equal(nd_get_shape(x)[0], count);
                continue;
            }
            assert_null(x);
            assert_true(memory < MEMORY_MAX(packed_bytes));
            assert_failed(ND_ERROR_IO, "fewer bytes than it announces");
        }
    }
    free(content);
}

static void test_the_digits_of_the_repository(void **state) {
    (void)state;
    nd_auto nd_tensor *images = nd_load_idx("data/mnist/t10k-images-idx3-ubyte.gz");
    nd_auto nd_tensor *labels = nd_load_idx("data/mnist/t10k-labels-idx1-ubyte.gz");
    assert_handle(images);
    assert_handle(labels);
    assert_int_equal(nd_get_ndim(images), 3);
    assert_int_equal(nd_get_size(images, 0), 10000);
    assert_int_equal(nd_get_size(images, 1), 28);
    assert_int_equal(nd_get_size(images, 2), 28);
    assert_int_equal(nd_get_numel(labels), 10000);
    static const unsigned char first[] = {7, 2, 1, 0, 4, 1, 4, 9, 5, 9};
    assert_memory_equal(nd_get_data(labels), first, sizeof(first));
}

#else

static void test_gzipped_file_without_zlib(void **state) {
    (void)state;
    assert_null(nd_load_idx("data/mnist/t10k-labels-idx1-ubyte.gz"));
    assert_failed(ND_ERROR_UNSUPPORTED, "built without zlib");
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        ND_TEST(test_element_types),
        ND_TEST(test_many_narrow_elements),
        ND_TEST(test_empty_axis),
        ND_TEST(test_F24_truncated_anywhere),
        ND_TEST(test_F24_missing_file_and_folder),
        ND_TEST(test_F25_lying_headers),
#if ND_HAVE_ZLIB
        ND_TEST(test_gzipped_whole_and_in_members),
        ND_TEST(test_F24_gzipped_truncated_or_damaged_anywhere),
        ND_TEST(test_F25_zip_bomb),
        ND_TEST(test_F25_announcement_is_borne_out_before_memory_is_taken),
        ND_TEST(test_the_digits_of_the_repository),
#else
        ND_TEST(test_gzipped_file_without_zlib),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
