// Pictures written by hand: PNG chunk by chunk, with rows that are not compressed, and JPEG marker by
// marker, with codes of one bit for what is most of a flat picture.
#ifndef ND_TESTS_UNIT_IO_PICTURES_H
#define ND_TESTS_UNIT_IO_PICTURES_H
#include "lib/io/content.h"
#include "tests/testing.h"
#include <stdlib.h>

typedef struct bytes {
    unsigned char *data;
    size_t size;
} bytes;

static inline void put(bytes *to, const void *data, size_t size) {
    to->data = realloc(to->data, to->size + size + 1);
    assert_non_null(to->data);
    memcpy(to->data + to->size, data, size);
    to->size += size;
}

/// The same byte so many times.
static inline void put_many(bytes *to, unsigned char byte, size_t times) {
    unsigned char *many = malloc(times + 1);
    assert_non_null(many);
    memset(many, byte, times);
    put(to, many, times);
    free(many);
}

static inline void put_big_endian(bytes *to, uint32_t number, int size) {
    for (int i = size - 1; i >= 0; i--)
        put(to, &(unsigned char){(unsigned char)(number >> 8 * i)}, 1);
}

static inline void drop(bytes *what) {
    free(what->data);
    *what = (bytes){NULL, 0};
}

// -------------------------------------------------------------------------------------------------
// PNG

enum { GREY = 0, RGB = 2, PALETTE = 3, GREY_ALPHA = 4, RGBA = 6 };

static inline void put_chunk(bytes *to, const char *name, const void *data, size_t size) {
    put_big_endian(to, (uint32_t)size, 4);
    size_t begin = to->size;
    put(to, name, 4);
    put(to, data, size);
    put_big_endian(to, nd__content_crc(0, to->data + begin, size + 4), 4);
}

/// Signature and header.
static inline bytes begin_png(uint32_t width, uint32_t height, unsigned char depth,
                              unsigned char color, bool interlaced) {
    bytes png = {NULL, 0}, header = {NULL, 0};
    put(&png, "\x89PNG\r\n\x1a\n", 8);
    put_big_endian(&header, width, 4);
    put_big_endian(&header, height, 4);
    put(&header, (unsigned char[]){depth, color, 0, 0, interlaced}, 5);
    put_chunk(&png, "IHDR", header.data, header.size);
    drop(&header);
    return png;
}

/// Rows, each with its filter in front, as a zlib stream of one stored block; less than 64 KiB.
static inline bytes stored(const void *rows, size_t size) {
    bytes stream = {NULL, 0};
    uint32_t a = 1, b = 0; // Adler-32
    for (size_t i = 0; i < size; i++) {
        a = (a + ((const unsigned char *)rows)[i]) % 65521;
        b = (b + a) % 65521;
    }
    put(&stream, "\x78\x01\x01", 3);
    put(&stream, &(uint16_t){(uint16_t)size}, 2);
    put(&stream, &(uint16_t){(uint16_t)~size}, 2);
    put(&stream, rows, size);
    put_big_endian(&stream, b << 16 | a, 4);
    return stream;
}

/// The rows, and the end.
static inline void end_png(bytes *png, const void *rows, size_t size) {
    bytes stream = stored(rows, size);
    put_chunk(png, "IDAT", stream.data, stream.size);
    put_chunk(png, "IEND", "", 0);
    drop(&stream);
}

// -------------------------------------------------------------------------------------------------
// JPEG

enum { BASELINE = 0xc0, EXTENDED_ARITHMETIC = 0xc9, PROGRESSIVE = 0xc2 };

/// A marker with data behind it.
static inline void put_marker(bytes *to, unsigned char marker, const void *data, size_t size) {
    put(to, (unsigned char[]){0xff, marker}, 2);
    put_big_endian(to, (uint32_t)size + 2, 2);
    put(to, data, size);
}

/// Marks for all that comes before a scan: components without subsampling, steps of 8 for every
/// coefficient, so that a mean of n above 128 is a coefficient of n; of the differences between
/// means 0 is the code 0 and 8 to 15 the code 10 with four bits behind it; the end of a block is 0.
static inline bytes begin_jpeg(unsigned char process, uint16_t width, uint16_t height,
                               unsigned char components) {
    bytes jpeg = {NULL, 0}, table = {NULL, 0}, frame = {NULL, 0};
    put(&jpeg, "\xff\xd8", 2);
    put_many(&table, 0, 1);
    put_many(&table, 8, 64);
    put_marker(&jpeg, 0xdb, table.data, table.size);
    put_big_endian(&frame, 8, 1);
    put_big_endian(&frame, height, 2);
    put_big_endian(&frame, width, 2);
    put_big_endian(&frame, components, 1);
    for (unsigned char i = 0; i < components; i++)
        put(&frame, (unsigned char[]){(unsigned char)(i + 1), 0x11, 0}, 3);
    put_marker(&jpeg, process, frame.data, frame.size);
    static const unsigned char means[] = {0x00, 1, 1, 0, 0, 0, 0, 0, 0, 0,
                                          0,    0, 0, 0, 0, 0, 0, 0, 4};
    static const unsigned char others[] = {0x10, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    put_marker(&jpeg, 0xc4, means, sizeof means);
    put_marker(&jpeg, 0xc4, others, sizeof others);
    drop(&table);
    drop(&frame);
    return jpeg;
}

/// The beginning of a scan of the first so many components: of all coefficients, or of the means.
static inline void put_scan(bytes *to, unsigned char components, bool means) {
    bytes scan = {NULL, 0};
    put_big_endian(&scan, components, 1);
    for (unsigned char i = 0; i < components; i++)
        put(&scan, (unsigned char[]){(unsigned char)(i + 1), 0}, 2);
    put(&scan, (unsigned char[]){0, means ? 0 : 63, 0}, 3);
    put_marker(to, 0xda, scan.data, scan.size);
    drop(&scan);
}

/// A whole grey picture of one value, 128, whose width and height are multiples of 8: of 2 bits, or
/// 1, for each of its blocks.
static inline bytes flat_jpeg(unsigned char process, uint16_t width, uint16_t height) {
    bytes jpeg = begin_jpeg(process, width, height, 1);
    put_scan(&jpeg, 1, process == PROGRESSIVE);
    size_t blocks = (size_t)(width / 8) * (height / 8);
    put_many(&jpeg, 0, blocks * (process == PROGRESSIVE ? 1 : 2) / 8);
    put(&jpeg, "\xff\xd9", 2);
    return jpeg;
}

// -------------------------------------------------------------------------------------------------
// pictures

static inline void assert_shape(const nd_tensor *x, int ndim, const int64_t *shape) {
    assert_handle(x);
    assert_int_equal(nd_get_ndim(x), ndim);
    for (int axis = 0; axis < ndim; axis++)
        assert_int_equal(nd_get_shape(x)[axis], shape[axis]);
}

/// The bytes are a picture of these samples.
static inline void assert_picture(const nd_tensor *image, const int64_t *shape, nd_dtype dtype,
                                  const void *samples) {
    assert_shape(image, 3, shape);
    assert_int_equal(nd_get_dtype(image), dtype);
    size_t bytes = (size_t)nd_get_numel(image) * nd_dtype_get_size(dtype);
    assert_memory_equal(nd_get_data(image), samples, bytes);
}

static inline nd_tensor *noise(int64_t height, int64_t width, int64_t count, nd_dtype dtype) {
    nd_auto nd_tensor *x = nd_randint(nd_key_new(7), 0, dtype == ND_U8 ? 256 : 65536,
                                      ND_SHAPE(height, width, count), ND_I32);
    return nd_cast(x, dtype);
}

/// The bytes of a file.
static inline bytes encoded(const nd_tensor *x, bool jpeg, bool progressive) {
    nd_jpeg_options options = ND_JPEG_OPTIONS_INIT;
    options.progressive = progressive;
    nd_auto nd_tensor *written = jpeg ? nd_encode_jpeg(x, &options) : nd_encode_png(x, NULL);
    assert_handle(written);
    assert_int_equal(nd_get_ndim(written), 1);
    bytes picture = {NULL, 0};
    put(&picture, nd_get_data(written), (size_t)nd_get_numel(written));
    return picture;
}

/// An Exif block with one entry, in either order of bytes.
static inline bytes exif(bool big_endian, unsigned char orientation) {
    bytes block = {NULL, 0};
    put(&block, "Exif\0\0", 6);
    if (big_endian)
        put(&block, "MM\0*\0\0\0\x8\0\1\1\x12\0\3\0\0\0\1\0\0\0\0\0\0\0\0", 26);
    else
        put(&block, "II*\0\x8\0\0\0\1\0\x12\1\3\0\1\0\0\0\0\0\0\0\0\0\0\0", 26);
    block.data[6 + 18 + big_endian] = orientation;
    return block;
}

/// A JPEG of 8 x 16, dark (128) on the left and light (143) on the right, with an Exif block, or NULL.
static inline bytes half_and_half(const bytes *block) {
    bytes jpeg = begin_jpeg(BASELINE, 16, 8, 1), whole = {NULL, 0};
    put_scan(&jpeg, 1, false);
    put(&jpeg, "\x2f\x7f\xff\xd9", 4); // 0 0, 10 1111 0, and ones
    put(&whole, jpeg.data, 2);
    if (block)
        put_marker(&whole, 0xe1, block->data, block->size);
    put(&whole, jpeg.data + 2, jpeg.size - 2);
    drop(&jpeg);
    return whole;
}

/// Whether both libraries are here; says so where not.
static inline bool can_do_pictures(void) {
    nd_tensor *x = nd_ones(ND_SHAPE(1, 1), ND_U8);
    nd_tensor *png = nd_encode_png(x, NULL), *jpeg = nd_encode_jpeg(x, NULL);
    bool can = png && jpeg;
    if (!can)
        printf("SKIPPED: %s\n", nd_error_get_message());
    nd_release(png);
    nd_release(jpeg);
    nd_release(x);
    return can;
}
#endif
