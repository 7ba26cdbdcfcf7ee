// PNG and JPEG that are damaged, cut short, or lie about how much they are.
#include "tests/unit/io/files.h"
#include "tests/unit/io/memory.h"
#include "tests/unit/io/pictures.h"

/// Refused, whatever it is. Consumes it.
static void refuse(bytes picture, nd_status status, const char *fragment) {
    const char *path = nd_test_path("bad");
    nd_test_write(path, picture.data, picture.size);
    nd_auto nd_tensor *loaded = nd_load_image(path, NULL);
    assert_null(loaded);
    assert_non_null(strstr(nd_error_get_message(), path));
    assert_failed(status, fragment);
    nd_auto nd_tensor *decoded = nd_decode_image(picture.data, picture.size, NULL);
    assert_null(decoded);
    assert_failed(status, fragment);
    drop(&picture);
}

static void test_F25_png_that_is_damaged(void **state) {
    (void)state;
    refuse(begin_png(0, 1, 8, GREY, false), ND_ERROR_FORMAT, "damaged PNG");
    refuse(begin_png(1, 1, 3, GREY, false), ND_ERROR_FORMAT, "damaged PNG");
    refuse(begin_png(1, 1, 8, GREY, false), ND_ERROR_IO, "in the middle of the picture");
    bytes filter = begin_png(1, 1, 8, GREY, false);
    end_png(&filter, "\7\7", 2);
    refuse(filter, ND_ERROR_FORMAT, "damaged PNG: bad adaptive filter value");
    bytes palette = begin_png(1, 1, 8, PALETTE, false);
    end_png(&palette, "\0\0", 2);
    refuse(palette, ND_ERROR_FORMAT, "damaged PNG");
    bytes critical = begin_png(1, 1, 8, GREY, false);
    put_chunk(&critical, "XXXX", "", 0);
    end_png(&critical, "\0\0", 2);
    refuse(critical, ND_ERROR_FORMAT, "damaged PNG: XXXX");
    bytes few = begin_png(1, 2, 8, GREY, false);
    end_png(&few, "\0\0", 2);
    refuse(few, ND_ERROR_FORMAT, "damaged PNG");
    bytes many = begin_png(1, 1, 8, GREY, false);
    end_png(&many, "\0\0\0\0", 4);
    refuse(many, ND_ERROR_FORMAT, "damaged PNG");
    bytes crc = begin_png(1, 1, 8, GREY, false);
    put_chunk(&crc, "tEXt", "Title\0t", 7);
    crc.data[crc.size - 1] ^= 1;
    end_png(&crc, "\0\0", 2);
    refuse(crc, ND_ERROR_FORMAT, "damaged PNG: tEXt: CRC error");
}

static void test_F25_jpeg_that_is_damaged_or_beyond_ndarc(void **state) {
    (void)state;
    bytes bare = {NULL, 0};
    put(&bare, "\xff\xd8\xff\xd9", 4);
    refuse(bare, ND_ERROR_FORMAT, "damaged JPEG");
    bytes empty = begin_jpeg(BASELINE, 0, 8, 1);
    put_scan(&empty, 1, false);
    refuse(empty, ND_ERROR_FORMAT, "damaged JPEG");
    bytes tall_later = begin_jpeg(BASELINE, 8, 0, 1); // says behind its rows how many there were
    put_scan(&tall_later, 1, false);
    refuse(tall_later, ND_ERROR_UNSUPPORTED, "cannot be read");
    bytes beyond_libjpeg = begin_jpeg(BASELINE, 65535, 8, 1);
    put_scan(&beyond_libjpeg, 1, false);
    refuse(beyond_libjpeg, ND_ERROR_UNSUPPORTED, "cannot be read");
    bytes cmyk = begin_jpeg(BASELINE, 8, 8, 4);
    put_scan(&cmyk, 4, false);
    refuse(cmyk, ND_ERROR_UNSUPPORTED, "colours of CMYK");
    bytes two = begin_jpeg(BASELINE, 8, 8, 2);
    put_scan(&two, 2, false);
    refuse(two, ND_ERROR_UNSUPPORTED, "colours of no known kind");
    bytes arithmetic = begin_jpeg(EXTENDED_ARITHMETIC, 8, 8, 1);
    put_scan(&arithmetic, 1, false);
    refuse(arithmetic, ND_ERROR_UNSUPPORTED, "arithmetic");
    bytes lossless = begin_jpeg(0xc3, 8, 8, 1);
    put_scan(&lossless, 1, false);
    refuse(lossless, ND_ERROR_UNSUPPORTED, "cannot be read");
    // libjpeg itself would only warn.
    bytes short_of_data = begin_jpeg(BASELINE, 8, 8, 1);
    put_scan(&short_of_data, 1, false);
    put(&short_of_data, "\xff\xd9", 2);
    refuse(short_of_data, ND_ERROR_FORMAT, "damaged JPEG: Corrupt JPEG data");
    bytes one_of_three = begin_jpeg(PROGRESSIVE, 64, 64, 3);
    put_scan(&one_of_three, 1, true);
    put_many(&one_of_three, 0, 8);
    put(&one_of_three, "\xff\xd9", 2);
    refuse(one_of_three, ND_ERROR_FORMAT, "no scan has all of a component");
    bytes scans = flat_jpeg(PROGRESSIVE, 16, 32);
    scans.size -= 2;
    for (int i = 0; i < 501; i++) {
        // Coefficients 1 to 63, of which each block has none.
        put_marker(&scans, 0xda, (unsigned char[]){1, 1, 0, 1, 63, 0}, 6);
        put_many(&scans, 0, 1);
    }
    put(&scans, "\xff\xd9", 2);
    refuse(scans, ND_ERROR_UNSUPPORTED, "more than 500 scans");
}

/// What is read where bytes were changed is a picture or an error, and nothing else.
static void change_anywhere(const bytes *picture) {
    bytes changed = {NULL, 0};
    put(&changed, picture->data, picture->size);
    for (size_t i = 0; i < picture->size; i++)
        for (int bit = 0; bit < 8; bit += 3) {
            changed.data[i] ^= (unsigned char)(1 << bit);
            nd_auto nd_tensor *image = nd_decode_image(changed.data, changed.size, NULL);
            assert_true(image || nd_error_get_status() != ND_OK);
            nd_error_clear();
            changed.data[i] = picture->data[i];
        }
    drop(&changed);
}

/// Read before the end, the picture is not whole.
static void truncate_anywhere(const bytes *picture) {
    const char *path = nd_test_path("cut");
    for (size_t length = 0; length < picture->size; length++) {
        unsigned char *cut = malloc(length + 1); // so that sanitizers see what is read behind it
        memcpy(cut, picture->data, length);
        nd_auto nd_tensor *image = nd_decode_image(cut, length, NULL);
        free(cut);
        assert_null(image);
        nd_status status = nd_error_get_status();
        assert_true(status == ND_ERROR_IO || status == ND_ERROR_FORMAT);
        nd_error_clear();
    }
    nd_test_write(path, picture->data, picture->size / 2);
    assert_null(nd_load_image(path, NULL));
    assert_failed(ND_ERROR_IO, "in the middle of the picture");
}

static void test_F24_truncated_or_changed_anywhere(void **state) {
    (void)state;
    nd_auto nd_tensor *x = noise(9, 7, 3, ND_U8);
    bytes pictures[] = {encoded(x, false, false), encoded(x, true, false), encoded(x, true, true)};
    for (size_t i = 0; i < 3; i++) {
        truncate_anywhere(&pictures[i]);
        change_anywhere(&pictures[i]);
        drop(&pictures[i]);
    }
}

// -------------------------------------------------------------------------------------------------
// what a header costs

/// Refused for less memory than an input may cost. Consumes it.
static void refuse_cheaply(bytes picture, const char *fragment) {
    reset_memory();
    nd_auto nd_tensor *image = nd_decode_image(picture.data, picture.size, NULL);
    assert_true(stop_memory() < MEMORY_MAX(picture.size));
    assert_null(image);
    assert_failed(ND_ERROR_FORMAT, fragment);
    drop(&picture);
}

static void test_F25_headers_that_lie_about_their_size(void **state) {
    (void)state;
    bytes png = begin_png(60000, 60000, 8, RGBA, false);
    end_png(&png, "\0\0\0", 3);
    refuse_cheaply(png, "announces 60000 x 60000 pixels, more than its");
    png = begin_png(0x7fffffff, 0x7fffffff, 16, RGBA, true);
    end_png(&png, "\0\0\0", 3);
    refuse_cheaply(png, "announces 2147483647 x 2147483647 pixels");
    png = begin_png(60000, 60000, 8, RGBA, false); // with enough bytes, but no rows
    bytes junk = {NULL, 0};
    put_many(&junk, 0, 14000000);
    put_chunk(&png, "IDAT", junk.data, junk.size);
    drop(&junk);
    refuse_cheaply(png, "damaged PNG");
    bytes jpeg = begin_jpeg(BASELINE, 60000, 60000, 3);
    put_scan(&jpeg, 3, false);
    put_many(&jpeg, 0, 100);
    refuse_cheaply(jpeg, "announces 60000 x 60000 pixels, more than its");
    jpeg = begin_jpeg(PROGRESSIVE, 60000, 60000, 1);
    put_scan(&jpeg, 1, true);
    put_many(&jpeg, 0, 100);
    put_many(&jpeg, 0xff, 8000000); // which are no data
    put(&jpeg, "\xd9", 1);
    refuse_cheaply(jpeg, "damaged JPEG");
}

/// Unpacked to nowhere first, since they are more than 64 times as large as their bytes.
static void test_pictures_that_unpack_to_much(void **state) {
    (void)state;
    nd_auto nd_tensor *flat = nd_full(ND_SHAPE(3000, 1000, 4), 7, ND_U8);
    nd_auto nd_tensor *written = nd_encode_png(flat, NULL);
    assert_true(64 * nd_get_numel(written) + (1 << 20) < nd_get_numel(flat));
    nd_auto nd_tensor *png =
        nd_decode_image(nd_get_data(written), (size_t)nd_get_numel(written), NULL);
    assert_picture(png, nd_get_shape(flat), ND_U8, nd_get_data(flat));
    nd_auto nd_tensor *middle = nd_full(ND_SHAPE(2048, 2048, 1), 128, ND_U8);
    static const unsigned char processes[] = {BASELINE, PROGRESSIVE};
    for (int i = 0; i < 2; i++) {
        bytes jpeg = flat_jpeg(processes[i], 2048, 2048);
        assert_true(64 * jpeg.size + (1 << 20) < 2048 * 2048);
        nd_auto nd_tensor *image = nd_decode_image(jpeg.data, jpeg.size, NULL);
        assert_picture(image, nd_get_shape(middle), ND_U8, nd_get_data(middle));
        // The same, cut short, is never in memory.
        jpeg.size -= 100;
        reset_memory();
        assert_null(nd_decode_image(jpeg.data, jpeg.size, NULL));
        uint64_t taken = stop_memory();
        assert_true(taken < MEMORY_MAX(jpeg.size));
        assert_failed(ND_ERROR_IO, "in the middle of the picture");
        drop(&jpeg);
    }
}

/// A picture of several scans, which refine each other, is looked through first where its
/// coefficients are more than 64 times its bytes, and then becomes what it is in one scan.
static void test_jpeg_scans_that_unpack_to_much(void **state) {
    (void)state;
    nd_auto nd_tensor *x = nd_empty(ND_SHAPE(1600, 1400, 3), ND_U8);
    assert_handle(x);
    uint8_t *samples = nd_get_data(x);
    for (int64_t i = 0; i < nd_get_numel(x); i++) {
        int64_t column = i / 3 % 1400, row = i / 4200;
        bool drawn = (row / 160 + column / 200) % 9 == 0;
        samples[i] =
            (uint8_t)(drawn ? (row * column) % 251 : row / 16 + column / 14 + 20 * (i % 3));
    }
    nd_jpeg_options options = ND_JPEG_OPTIONS_INIT;
    options.quality = 12;
    nd_auto nd_tensor *one = nd_encode_jpeg(x, &options);
    options.progressive = true;
    nd_auto nd_tensor *several = nd_encode_jpeg(x, &options);
    assert_handle(several);
    assert_true(128 * 3 / 2 * (1600 / 8) * (1400 / 8) > MEMORY_MAX(nd_get_numel(several)));
    nd_auto nd_tensor *a = nd_decode_image(nd_get_data(one), (size_t)nd_get_numel(one), NULL);
    nd_auto nd_tensor *b =
        nd_decode_image(nd_get_data(several), (size_t)nd_get_numel(several), NULL);
    assert_handle(a);
    assert_picture(b, nd_get_shape(x), ND_U8, nd_get_data(a));
}

static void test_png_rows_that_are_too_long(void **state) {
    (void)state;
    nd_auto nd_tensor *flat = nd_zeros(ND_SHAPE(1, 1000000, 4), ND_U8);
    nd_auto nd_tensor *written = nd_encode_png(flat, NULL);
    assert_null(nd_decode_image(nd_get_data(written), (size_t)nd_get_numel(written), NULL));
    assert_failed(ND_ERROR_UNSUPPORTED, "rows of 4000000 bytes, too long to be believed");
    nd_auto nd_tensor *noisy = noise(1, 1000000, 4, ND_U8);
    nd_auto nd_tensor *honest = nd_encode_png(noisy, NULL);
    nd_auto nd_tensor *back =
        nd_decode_image(nd_get_data(honest), (size_t)nd_get_numel(honest), NULL);
    assert_picture(back, nd_get_shape(noisy), ND_U8, nd_get_data(noisy));
}

// -------------------------------------------------------------------------------------------------
// Exif

static void test_F25_exif_that_lies_changes_nothing(void **state) {
    (void)state;
    nd_image_options options = ND_IMAGE_OPTIONS_INIT;
    options.oriented = true;
    bytes plain = half_and_half(NULL);
    nd_auto nd_tensor *expected = nd_decode_image(plain.data, plain.size, NULL);
    drop(&plain);
    for (int which = 0; which < 10; which++) {
        bytes block = exif(false, 6);
        static const struct {
            unsigned char at, value;
        } changes[] = {{24, 0}, {24, 9}, {10, 0xff}, {13, 0xff}, {14, 0xff},
                       {18, 4}, {20, 2}, {16, 0x13}, {6, 'X'},   {0, 'e'}};
        block.data[changes[which].at] = changes[which].value;
        if (which == 4)
            block.data[16] = 0x13; // many entries, of which none is there
        bytes jpeg = half_and_half(&block);
        nd_auto nd_tensor *image = nd_decode_image(jpeg.data, jpeg.size, &options);
        assert_picture(image, (int64_t[]){8, 16, 1}, ND_U8, nd_get_data(expected));
        drop(&jpeg);
        drop(&block);
    }
    for (size_t length = 0; length < 32; length++) {
        bytes block = exif(true, 6);
        block.size = length;
        bytes jpeg = half_and_half(&block);
        nd_auto nd_tensor *image = nd_decode_image(jpeg.data, jpeg.size, &options);
        assert_handle(image);
        assert_int_equal(nd_get_shape(image)[0], length < 28 ? 8 : 16);
        drop(&jpeg);
        drop(&block);
    }
}

int main(void) {
    if (!can_do_pictures())
        return 0;
    const struct CMUnitTest tests[] = {
        ND_TEST(test_F25_png_that_is_damaged),
        ND_TEST(test_F25_jpeg_that_is_damaged_or_beyond_ndarc),
        ND_TEST(test_F24_truncated_or_changed_anywhere),
        ND_TEST(test_F25_headers_that_lie_about_their_size),
        ND_TEST(test_pictures_that_unpack_to_much),
        ND_TEST(test_jpeg_scans_that_unpack_to_much),
        ND_TEST(test_png_rows_that_are_too_long),
        ND_TEST(test_F25_exif_that_lies_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
