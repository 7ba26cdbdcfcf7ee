// PNG and JPEG: pictures written by hand, what is written and read again, and options.
#include "tests/unit/io/exhausted.h"
#include "tests/unit/io/files.h"
#include "tests/unit/io/pictures.h"
#include <pthread.h>
#include <sys/wait.h>

static nd_image_options channels(int count) {
    nd_image_options options = ND_IMAGE_OPTIONS_INIT;
    options.channels = count;
    return options;
}

/// A whole PNG with these rows, read from memory and from a file. Consumes it.
static void check_png(bytes png, const void *rows, size_t size, const int64_t *shape,
                      nd_dtype dtype, const void *samples) {
    end_png(&png, rows, size);
    nd_auto nd_tensor *decoded = nd_decode_image(png.data, png.size, NULL);
    assert_picture(decoded, shape, dtype, samples);
    const char *path = nd_test_path("picture.png");
    nd_test_write(path, png.data, png.size);
    nd_auto nd_tensor *loaded = nd_load_image(path, NULL);
    assert_picture(loaded, shape, dtype, samples);
    drop(&png);
}
#define CHECK_PNG(png, rows, shape, dtype, ...) \
    check_png(png, rows, sizeof(rows) - 1, shape, dtype, (const void *)(__VA_ARGS__))

// -------------------------------------------------------------------------------------------------
// PNG

static void test_png_of_every_kind(void **state) {
    (void)state;
    CHECK_PNG(begin_png(3, 2, 8, GREY, false), "\0\1\2\3\0\4\5\6", ((int64_t[]){2, 3, 1}), ND_U8,
              "\1\2\3\4\5\6");
    CHECK_PNG(begin_png(1, 2, 8, GREY_ALPHA, false), "\0\1\2\0\3\4", ((int64_t[]){2, 1, 2}), ND_U8,
              "\1\2\3\4");
    CHECK_PNG(begin_png(2, 1, 8, RGB, false), "\0\1\2\3\4\5\6", ((int64_t[]){1, 2, 3}), ND_U8,
              "\1\2\3\4\5\6");
    CHECK_PNG(begin_png(1, 1, 8, RGBA, false), "\0\1\2\3\4", ((int64_t[]){1, 1, 4}), ND_U8,
              "\1\2\3\4");
    // The filter says: the difference to what is on the left.
    CHECK_PNG(begin_png(3, 1, 8, GREY, false), "\1\1\2\3", ((int64_t[]){1, 3, 1}), ND_U8, "\1\3\6");
    CHECK_PNG(begin_png(2, 1, 16, GREY, false), "\0\1\2\3\4", ((int64_t[]){1, 2, 1}), ND_U16,
              ((uint16_t[]){0x0102, 0x0304}));
    CHECK_PNG(begin_png(1, 1, 16, RGBA, false), "\0\0\1\0\2\0\3\xff\xfe", ((int64_t[]){1, 1, 4}),
              ND_U16, ((uint16_t[]){1, 2, 3, 0xfffe}));
}

static void test_png_of_few_bits(void **state) {
    (void)state;
    CHECK_PNG(begin_png(3, 1, 1, GREY, false), "\0\xa0", ((int64_t[]){1, 3, 1}), ND_U8,
              "\xff\x00\xff");
    CHECK_PNG(begin_png(4, 1, 2, GREY, false), "\0\x1b", ((int64_t[]){1, 4, 1}), ND_U8,
              "\x00\x55\xaa\xff");
    CHECK_PNG(begin_png(2, 1, 4, GREY, false), "\0\x1f", ((int64_t[]){1, 2, 1}), ND_U8, "\x11\xff");
    bytes palette = begin_png(4, 1, 2, PALETTE, false);
    put_chunk(&palette, "PLTE", "\1\2\3\4\5\6\7\x8\x9\xa\xb\xc", 12);
    CHECK_PNG(palette, "\0\x1b", ((int64_t[]){1, 4, 3}), ND_U8, "\1\2\3\4\5\6\7\x8\x9\xa\xb\xc");
}

static void test_png_with_an_index_beyond_its_palette(void **state) {
    (void)state;
    bytes palette = begin_png(2, 1, 8, PALETTE, false);
    put_chunk(&palette, "PLTE", "\1\2\3", 3);
    CHECK_PNG(palette, "\0\0\7", ((int64_t[]){1, 2, 3}), ND_U8, "\1\2\3\0\0\0");
}

static void test_png_with_transparent_colours(void **state) {
    (void)state;
    bytes palette = begin_png(2, 1, 1, PALETTE, false);
    put_chunk(&palette, "PLTE", "\1\2\3\4\5\6", 6);
    put_chunk(&palette, "tRNS", "\x80", 1); // of the first; the second is opaque
    CHECK_PNG(palette, "\0\x40", ((int64_t[]){1, 2, 4}), ND_U8, "\1\2\3\x80\4\5\6\xff");
    bytes grey = begin_png(2, 1, 8, GREY, false);
    put_chunk(&grey, "tRNS", "\0\5", 2);
    CHECK_PNG(grey, "\0\5\6", ((int64_t[]){1, 2, 2}), ND_U8, "\5\0\6\xff");
    bytes rgb = begin_png(2, 1, 8, RGB, false);
    put_chunk(&rgb, "tRNS", "\0\1\0\2\0\3", 6);
    CHECK_PNG(rgb, "\0\1\2\3\1\2\4", ((int64_t[]){1, 2, 4}), ND_U8, "\1\2\3\0\1\2\4\xff");
}

static void test_png_interlaced(void **state) {
    (void)state;
    // Seven passes over 5 x 3; those of a row of what is 4 apart, and so on.
    static const char rows[] = "\0\1"            // (0, 0)
                               "\0\2"            // (0, 4)
                               "\0\3"            // (0, 2)
                               "\0\4\5\6"        // row 2: columns 0, 2, 4
                               "\0\7\x8\0\x9\xa" // rows 0 and 2: columns 1, 3
                               "\0\xb\xc\xd\xe\xf";
    CHECK_PNG(begin_png(5, 3, 8, GREY, true), rows, ((int64_t[]){3, 5, 1}), ND_U8,
              "\1\7\3\x8\2\xb\xc\xd\xe\xf\4\x9\5\xa\6");
}

static void test_png_with_more_than_the_picture(void **state) {
    (void)state;
    bytes png = begin_png(1, 1, 8, GREY, false);
    put_chunk(&png, "gAMA", "\0\0\xb1\x8f", 4);
    put_chunk(&png, "iCCP", "no profile", 10); // skipped, not read
    put_chunk(&png, "tEXt", "Title\0t", 7);
    put_chunk(&png, "xxXx", "private", 7);
    end_png(&png, "\0\7", 2);
    put(&png, "behind the end", 14);
    nd_auto nd_tensor *image = nd_decode_image(png.data, png.size, NULL);
    assert_picture(image, (int64_t[]){1, 1, 1}, ND_U8, "\7");
    drop(&png);
}

static void test_png_round_trip_of_every_layout(void **state) {
    (void)state;
    const char *path = nd_test_path("round.png");
    static const nd_dtype dtypes[] = {ND_U8, ND_U16};
    for (int which = 0; which < 2; which++)
        for (int64_t count = 1; count <= 4; count++) {
            nd_auto nd_tensor *x = noise(13, 17, count, dtypes[which]);
            nd_auto nd_tensor *turned = nd_transpose(x, 0, 1);
            nd_auto nd_tensor *part = nd_slice(turned, 2, 16, 3, 0);
            nd_auto nd_tensor *dense = nd_contiguous(part);
            nd_png_options options = ND_PNG_OPTIONS_INIT;
            options.compression = (int)(9 * (count % 2));
            assert_ok(nd_save_png(path, part, &options));
            nd_auto nd_tensor *back = nd_load_image(path, NULL);
            assert_picture(back, nd_get_shape(dense), dtypes[which], nd_get_data(dense));
            nd_auto nd_tensor *bytes = nd_encode_png(part, &options);
            nd_auto nd_tensor *again =
                nd_decode_image(nd_get_data(bytes), (size_t)nd_get_numel(bytes), NULL);
            assert_picture(again, nd_get_shape(dense), dtypes[which], nd_get_data(dense));
        }
    nd_auto nd_tensor *grey = noise(1, 5, 1, ND_U8);
    nd_auto nd_tensor *flat = nd_reshape(grey, ND_SHAPE(1, 5));
    nd_auto nd_tensor *wide = nd_expand(flat, ND_SHAPE(3, 5));
    nd_auto nd_tensor *dense = nd_contiguous(wide);
    assert_ok(nd_save_png(path, wide, NULL));
    nd_auto nd_tensor *back = nd_load_image(path, NULL);
    assert_picture(back, (int64_t[]){3, 5, 1}, ND_U8, nd_get_data(dense));
}

// -------------------------------------------------------------------------------------------------
// JPEG

static void test_jpeg_by_hand(void **state) {
    (void)state;
    // Differences 10, then 0: the codes 10 1010 0, 0 0, and ones to the end of the byte.
    bytes jpeg = begin_jpeg(BASELINE, 16, 8, 1);
    put_scan(&jpeg, 1, false);
    put(&jpeg, "\xa8\x7f\xff\xd9 behind the end", 19);
    nd_auto nd_tensor *image = nd_decode_image(jpeg.data, jpeg.size, NULL);
    unsigned char expected[128];
    memset(expected, 138, sizeof expected);
    assert_picture(image, (int64_t[]){8, 16, 1}, ND_U8, expected);
    drop(&jpeg);
    // Three components, whose colours are YCbCr: grey where both others are 128.
    jpeg = begin_jpeg(BASELINE, 8, 8, 3);
    put_scan(&jpeg, 3, false);
    put(&jpeg, "\xa8\x1f\xff\xd9", 4); // 10 1010 0, 0 0, 0 0
    nd_auto nd_tensor *colour = nd_decode_image(jpeg.data, jpeg.size, NULL);
    unsigned char grey[192];
    memset(grey, 138, sizeof grey);
    assert_picture(colour, (int64_t[]){8, 8, 3}, ND_U8, grey);
    drop(&jpeg);
    bytes progressive = flat_jpeg(PROGRESSIVE, 16, 32);
    nd_auto nd_tensor *flat = nd_decode_image(progressive.data, progressive.size, NULL);
    unsigned char middle[512];
    memset(middle, 128, sizeof middle);
    assert_picture(flat, (int64_t[]){32, 16, 1}, ND_U8, middle);
    drop(&progressive);
}

/// Mean distance of samples.
static double distance(const nd_tensor *a, const nd_tensor *b) {
    const unsigned char *x = nd_get_data(a), *y = nd_get_data(b);
    double sum = 0;
    for (int64_t i = 0; i < nd_get_numel(a); i++)
        sum += abs(x[i] - y[i]);
    return sum / (double)nd_get_numel(a);
}

/// A smooth picture, of one or three channels.
static nd_tensor *smooth(int64_t height, int64_t width, int64_t count) {
    nd_tensor *x = nd_zeros(ND_SHAPE(height, width, count), ND_U8);
    unsigned char *at = nd_get_data(x);
    for (int64_t y = 0; y < height; y++)
        for (int64_t column = 0; column < width; column++)
            for (int64_t channel = 0; channel < count; channel++)
                *at++ = (unsigned char)(40 + 3 * y + (channel + 1) * column);
    return x;
}

static void test_jpeg_round_trip(void **state) {
    (void)state;
    const char *path = nd_test_path("round.jpg");
    for (int64_t count = 1; count <= 3; count += 2)
        for (int progressive = 0; progressive < 2; progressive++) {
            nd_auto nd_tensor *x = smooth(33, 41, count);
            nd_auto nd_tensor *view = nd_transpose(x, 0, 1);
            nd_auto nd_tensor *dense = nd_contiguous(view);
            nd_jpeg_options options = ND_JPEG_OPTIONS_INIT;
            options.progressive = progressive;
            size_t sizes[2];
            double distances[2];
            for (int good = 0; good < 2; good++) {
                options.quality = good ? 100 : 20;
                assert_ok(nd_save_jpeg(path, view, &options));
                free(nd_test_read(path, &sizes[good]));
                nd_auto nd_tensor *back = nd_load_image(path, NULL);
                assert_shape(back, 3, (int64_t[]){41, 33, count});
                distances[good] = distance(back, dense);
            }
            assert_true(sizes[0] < sizes[1]);
            assert_true(distances[1] < 1.5 && distances[0] < 12);
        }
    nd_auto nd_tensor *x = smooth(16, 16, 1);
    nd_auto nd_tensor *flat = nd_reshape(x, ND_SHAPE(16, 16));
    nd_auto nd_tensor *written = nd_encode_jpeg(flat, NULL);
    nd_auto nd_tensor *back =
        nd_decode_image(nd_get_data(written), (size_t)nd_get_numel(written), NULL);
    assert_shape(back, 3, (int64_t[]){16, 16, 1});
    assert_true(distance(back, flat) < 2);
}

// -------------------------------------------------------------------------------------------------
// options

static void test_channels_as_asked_for(void **state) {
    (void)state;
    static const struct {
        int have, want;
        const char *from, *to;
    } cases[] = {
        {1, 2, "\7", "\7\xff"},         {1, 3, "\7", "\7\7\7"},
        {1, 4, "\7", "\7\7\7\xff"},     {2, 1, "\7\x8", "\7"},
        {2, 3, "\7\x8", "\7\7\7"},      {2, 4, "\7\x8", "\7\7\7\x8"},
        {3, 1, "\xff\0\0", "\x4c"},     {3, 2, "\0\xff\0", "\x96\xff"},
        {3, 4, "\1\2\3", "\1\2\3\xff"}, {4, 1, "\0\0\xff\x8", "\x1d"},
        {4, 2, "\7\7\7\x8", "\7\x8"},   {4, 3, "\1\2\3\x8", "\1\2\3"},
        {3, 3, "\1\2\3", "\1\2\3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nd_auto nd_tensor *x = nd_zeros(ND_SHAPE(1, 1, cases[i].have), ND_U8);
        memcpy(nd_get_data(x), cases[i].from, (size_t)cases[i].have);
        nd_auto nd_tensor *png = nd_encode_png(x, NULL);
        nd_image_options options = channels(cases[i].want);
        nd_auto nd_tensor *image =
            nd_decode_image(nd_get_data(png), (size_t)nd_get_numel(png), &options);
        assert_picture(image, (int64_t[]){1, 1, cases[i].want}, ND_U8, cases[i].to);
    }
    nd_auto nd_tensor *white = nd_full(ND_SHAPE(1, 1, 3), 65535, ND_U16);
    nd_auto nd_tensor *png = nd_encode_png(white, NULL);
    nd_image_options options = channels(2);
    nd_auto nd_tensor *grey =
        nd_decode_image(nd_get_data(png), (size_t)nd_get_numel(png), &options);
    assert_picture(grey, (int64_t[]){1, 1, 2}, ND_U16, (uint16_t[]){65535, 65535});
}

static void test_channels_of_a_jpeg(void **state) {
    (void)state;
    nd_auto nd_tensor *x = smooth(8, 8, 3);
    bytes jpeg = encoded(x, true, false);
    for (int count = 1; count <= 4; count++) {
        nd_image_options options = channels(count);
        nd_auto nd_tensor *image = nd_decode_image(jpeg.data, jpeg.size, &options);
        assert_handle(image);
        assert_shape(image, 3, (int64_t[]){8, 8, count});
        const unsigned char *first = nd_get_data(image);
        if (count % 2 == 0)
            assert_int_equal(first[count - 1], 255);
        assert_true(abs(first[0] - 40) < 8);
    }
    drop(&jpeg);
}

static void test_exif_orientation(void **state) {
    (void)state;
    // Where the dark half is: left, right, right, left, top, top, bottom, bottom.
    static const char dark[] = "lrrlttbb";
    nd_image_options options = ND_IMAGE_OPTIONS_INIT;
    for (unsigned char which = 1; which <= 8; which++)
        for (int big_endian = 0; big_endian < 2; big_endian++) {
            bytes block = exif(big_endian, which);
            bytes jpeg = half_and_half(&block);
            options.oriented = true;
            nd_auto nd_tensor *image = nd_decode_image(jpeg.data, jpeg.size, &options);
            assert_handle(image);
            bool turn = which >= 5;
            int64_t shape[] = {turn ? 16 : 8, turn ? 8 : 16, 1};
            assert_shape(image, 3, shape);
            const unsigned char *at = nd_get_data(image);
            for (int64_t y = 0; y < shape[0]; y++)
                for (int64_t x = 0; x < shape[1]; x++) {
                    bool first = turn ? y < 8 : x < 8;
                    bool is_dark = first == (dark[which - 1] == 'l' || dark[which - 1] == 't');
                    assert_int_equal(*at++, is_dark ? 128 : 143);
                }
            options.oriented = false;
            nd_auto nd_tensor *stored_so = nd_decode_image(jpeg.data, jpeg.size, &options);
            assert_shape(stored_so, 3, (int64_t[]){8, 16, 1});
            drop(&block);
            drop(&jpeg);
        }
}

// -------------------------------------------------------------------------------------------------
// files, memory, threads

static void test_F24_full_disk_leaves_the_old_file(void **state) {
    (void)state;
    nd_auto nd_tensor *x = noise(100, 100, 3, ND_U8);
    assert_int_equal(nd_save_png("/dev/full", x, NULL), ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "save_png: '/dev/full' cannot be written: No space left");
    assert_int_equal(nd_save_jpeg("/dev/full", x, NULL), ND_ERROR_IO);
    assert_failed(ND_ERROR_IO, "save_jpeg: '/dev/full' cannot be written: No space left");
    const char *path = nd_test_path("folder");
    mkdir(path, 0700);
    char file[512];
    snprintf(file, sizeof file, "%s/x.png", path);
    assert_ok(nd_save_png(file, x, NULL));
    nd_auto nd_tensor *bad = nd_ones(ND_SHAPE(2, 2), ND_F32);
    assert_int_equal(nd_save_png(file, bad, NULL), ND_ERROR_DTYPE);
    nd_error_clear();
    assert_int_equal(nd_test_count_files(path), 3);
    nd_auto nd_tensor *back = nd_load_image(file, NULL);
    assert_picture(back, nd_get_shape(x), ND_U8, nd_get_data(x));
    assert_null(nd_load_image(nd_test_path("missing"), NULL));
    assert_failed(ND_ERROR_IO, "No such file");
}

/// Everything once; false at the first error.
static bool write_and_read(const nd_tensor *x, const bytes *large) {
    nd_jpeg_options options = ND_JPEG_OPTIONS_INIT;
    options.progressive = true;
    nd_image_options wanted = channels(2);
    nd_auto nd_tensor *png = nd_encode_png(x, NULL);
    nd_auto nd_tensor *jpeg = png ? nd_encode_jpeg(x, &options) : NULL;
    if (!jpeg || nd_save_png(nd_test_path("exhausted.png"), x, NULL) != ND_OK)
        return false;
    nd_auto nd_tensor *a = nd_load_image(nd_test_path("exhausted.png"), &wanted);
    nd_auto nd_tensor *b =
        a ? nd_decode_image(nd_get_data(jpeg), (size_t)nd_get_numel(jpeg), NULL) : NULL;
    nd_auto nd_tensor *c = b ? nd_decode_image(large->data, large->size, NULL) : NULL;
    return c != NULL;
}

static void exhaust(bool callback) {
    nd_auto nd_tensor *turned = noise(20, 30, 3, ND_U8);
    nd_auto nd_tensor *x = nd_transpose(turned, 0, 1);
    nd_auto nd_tensor *flat = nd_zeros(ND_SHAPE(1000, 1000, 4), ND_U8);
    bytes large = encoded(flat, false, false);
    bool failed = true;
    int n = 0;
    for (; failed; n++) {
        assert_true(n < 1000);
        allocations_left = n;
        asked = false;
        nd__alloc_should_fail = allocations_fail;
        bool done = write_and_read(x, &large);
        failed = allocations_left < 0;
        nd__alloc_should_fail = NULL;
        assert_int_equal(done, callback || !failed);
        assert_int_equal(nd_error_get_status(), done ? ND_OK : ND_ERROR_OUT_OF_MEMORY);
        nd_error_clear();
    }
    assert_true(n > 30);
    drop(&large);
}

/// Where the coefficients of a picture in several scans find no memory, its size is said.
static void test_jpeg_without_memory_for_its_scans(void **state) {
    (void)state;
    bytes jpeg = flat_jpeg(PROGRESSIVE, 16, 32);
    int said = 0;
    bool done = false;
    for (int n = 0; !done; n++) {
        assert_true(n < 100);
        allocations_left = n;
        asked = false;
        nd__alloc_should_fail = allocations_fail;
        nd_auto nd_tensor *image = nd_decode_image(jpeg.data, jpeg.size, NULL);
        nd__alloc_should_fail = NULL;
        done = image != NULL;
        said +=
            strstr(nd_error_get_message(),
                   " bytes of the coefficients of the picture, a JPEG of 16 x 32 pixels") != NULL;
        nd_error_clear();
    }
    assert_in_range(said, 5, 7); // a list of rows, and four of them
    drop(&jpeg);
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

static void *read_many(void *picture) {
    const bytes *from = picture;
    bool right = true;
    for (int i = 0; i < 50 && right; i++) {
        nd_auto nd_tensor *whole = nd_decode_image(from->data, from->size, NULL);
        nd_auto nd_tensor *half = nd_decode_image(from->data, from->size / 2, NULL);
        nd_error_clear();
        right = whole && !half;
    }
    return (void *)(intptr_t)right;
}

static void test_many_threads_read(void **state) {
    (void)state;
    nd_auto nd_tensor *x = noise(30, 30, 3, ND_U8);
    bytes pictures[] = {encoded(x, false, false), encoded(x, true, true)};
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_many, &pictures[i % 2]), 0);
    for (int i = 0; i < 8; i++) {
        void *right;
        assert_int_equal(pthread_join(threads[i], &right), 0);
        assert_non_null(right);
    }
    drop(&pictures[0]);
    drop(&pictures[1]);
}

static void test_F30_bad_arguments(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 2, 3), ND_U8);
    nd_auto nd_tensor *row = nd_ones(ND_SHAPE(2), ND_U8);
    nd_auto nd_tensor *five = nd_ones(ND_SHAPE(2, 2, 5), ND_U8);
    nd_auto nd_tensor *two = nd_ones(ND_SHAPE(2, 2, 2), ND_U8);
    nd_auto nd_tensor *none = nd_ones(ND_SHAPE(0, 2, 3), ND_U8);
    nd_auto nd_tensor *wide = nd_ones(ND_SHAPE(1, 65501), ND_U8);
    nd_auto nd_tensor *deep = nd_ones(ND_SHAPE(2, 2), ND_U16);
    nd_auto nd_tensor *closed = nd_ones(ND_SHAPE(2, 2), ND_U8);
    assert_ok(nd_close(closed));
    const char *path = nd_test_path("never");
    assert_null(nd_load_image(NULL, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "load_image: path is NULL");
    assert_null(nd_decode_image(NULL, 3, NULL));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "decode_image: data is NULL");
    assert_null(nd_decode_image("", 0, NULL));
    assert_failed(ND_ERROR_FORMAT, "the picture is neither a PNG nor a JPEG");
    nd_image_options options = channels(5);
    assert_null(nd_decode_image("", 0, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "5 channels; there are 1 to 4");
    options = (nd_image_options){.size = 0};
    assert_null(nd_load_image(path, &options));
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "ND_IMAGE_OPTIONS_INIT");
    nd_png_options png = ND_PNG_OPTIONS_INIT;
    png.compression = 10;
    assert_int_equal(nd_save_png(path, x, &png), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "a compression of 10; there are 0 to 9");
    nd_jpeg_options jpeg = ND_JPEG_OPTIONS_INIT;
    jpeg.quality = 0;
    assert_int_equal(nd_save_jpeg(path, x, &jpeg), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "a quality of 0; there are 1 to 100");
    assert_int_equal(nd_save_png(NULL, x, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "path is NULL");
    assert_int_equal(nd_save_png(path, NULL, NULL), ND_ERROR_INVALID_ARGUMENT);
    assert_failed(ND_ERROR_INVALID_ARGUMENT, "is NULL");
    assert_int_equal(nd_save_jpeg(path, closed, NULL), ND_ERROR_CLOSED);
    assert_failed(ND_ERROR_CLOSED, "closed");
    assert_null(nd_encode_png(row, NULL));
    assert_failed(ND_ERROR_SHAPE, "[2] is no [height, width] or [height, width, channels]");
    assert_null(nd_encode_png(five, NULL));
    assert_failed(ND_ERROR_SHAPE, "with 1 to 4 channels");
    assert_null(nd_encode_jpeg(two, NULL));
    assert_failed(ND_ERROR_SHAPE, "[2, 2, 2] is no [height, width] or [height, width, channels] "
                                  "with 1 or 3 channels");
    assert_null(nd_encode_png(none, NULL));
    assert_failed(ND_ERROR_SHAPE, "[0, 2, 3]; height and width are 1 to");
    assert_null(nd_encode_jpeg(wide, NULL));
    assert_failed(ND_ERROR_SHAPE, "height and width are 1 to 65500");
    assert_null(nd_encode_jpeg(deep, NULL));
    assert_failed(ND_ERROR_DTYPE, "a picture of uint16; it is written of uint8");
    assert_int_not_equal(access(path, F_OK), 0);
}

/// In another process, whose ND_PNG and ND_JPEG are no such libraries: 0 when all calls say so.
static int look_without_libraries(void) {
    nd_auto nd_tensor *x = nd_ones(ND_SHAPE(2, 2, 3), ND_U8);
    nd_auto nd_tensor *png = nd_encode_png(x, NULL);
    bool right = !png && strstr(nd_error_get_message(), "(Debian: libpng16-16)") != NULL;
    nd_auto nd_tensor *jpeg = nd_encode_jpeg(x, NULL);
    right = right && !jpeg && strstr(nd_error_get_message(), "(Debian: libjpeg62-turbo)") != NULL;
    nd_auto nd_tensor *read = nd_decode_image("\x89PNG\r\n\x1a\n", 8, NULL);
    right = right && !read && strstr(nd_error_get_message(), "decode_image: PNG needs libpng");
    nd_auto nd_tensor *other = nd_decode_image("\xff\xd8\xff\xd9", 4, NULL);
    right = right && !other && strstr(nd_error_get_message(), "decode_image: JPEG needs libjpeg");
    return right && nd_error_get_status() == ND_ERROR_UNSUPPORTED ? 0 : 1;
}

static int look_with(const char *file) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("ND_PNG", file, 1);
        setenv("ND_JPEG", file, 1);
        execl("/proc/self/exe", "image_test", "look", (char *)NULL);
        _exit(127);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static void test_without_the_libraries_each_function_says_so(void **state) {
    (void)state;
    assert_int_equal(look_with("/nonexistent/lib.so"), 0);
    assert_int_equal(look_with("libm.so.6"), 0); // a library, but of something else
}

int main(int count, char **arguments) {
    if (count > 1 && strcmp(arguments[1], "look") == 0)
        return look_without_libraries();
    if (!can_do_pictures())
        return 0;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_png_of_every_kind),
        ND_TEST(test_png_of_few_bits),
        ND_TEST(test_png_with_an_index_beyond_its_palette),
        ND_TEST(test_png_with_transparent_colours),
        ND_TEST(test_png_interlaced),
        ND_TEST(test_png_with_more_than_the_picture),
        ND_TEST(test_png_round_trip_of_every_layout),
        ND_TEST(test_jpeg_by_hand),
        ND_TEST(test_jpeg_round_trip),
        ND_TEST(test_channels_as_asked_for),
        ND_TEST(test_channels_of_a_jpeg),
        ND_TEST(test_exif_orientation),
        ND_TEST(test_F24_full_disk_leaves_the_old_file),
        ND_TEST(test_jpeg_without_memory_for_its_scans),
        ND_TEST(test_F01_every_allocation_fails_once),
        ND_TEST(test_F03_every_request_asks_before_it_fails),
        ND_TEST(test_many_threads_read),
        ND_TEST(test_F30_bad_arguments),
        ND_TEST(test_without_the_libraries_each_function_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
