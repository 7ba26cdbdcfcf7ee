// Pictures: which format it is, and the channels and the orientation that were asked for.
//
// Invariant: readers give a picture as it is stored; everything else about it is done here, once
// for all formats, on a picture that is complete.
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/io/elements.h"
#include "lib/io/jpeg_read.h"
#include "lib/io/jpeg_write.h"
#include "lib/io/png_read.h"
#include "lib/io/png_write.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"
#include <nd/image.h>

#include <string.h>

// -------------------------------------------------------------------------------------------------
// reading

static nd_status read_options(const char *operation, const nd_image_options *given,
                              nd_image_options *ret_options) {
    nd_image_options chosen = ND_IMAGE_OPTIONS_INIT;
    nd_status status =
        nd__versioned_read(operation, "ND_IMAGE_OPTIONS_INIT", given, &chosen, sizeof chosen);
    if (status != ND_OK)
        return status;
    if (chosen.channels < 0 || chosen.channels > 4)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: %d channels; there are 1 to 4, and 0 for as many as the file has",
                         operation, chosen.channels);
    *ret_options = chosen;
    return ND_OK;
}

/// ITU-R BT.601, in 65536ths.
static uint32_t luminance(uint32_t red, uint32_t green, uint32_t blue) {
    return (uint32_t)((19595 * (uint64_t)red + 38470 * (uint64_t)green + 7471 * (uint64_t)blue +
                       (1 << 15)) >>
                      16);
}

/// convert_TYPE: pixels of `have` channels become pixels of `want`.
#define CONVERT(type, opaque)                                                                \
    static void convert_##type(const type##_t *from, int have, type##_t *to, int want,       \
                               int64_t pixels) {                                             \
        for (int64_t i = 0; i < pixels; i++, from += have, to += want) {                     \
            if (want < 3)                                                                    \
                to[0] = have < 3 ? from[0] : (type##_t)luminance(from[0], from[1], from[2]); \
            else                                                                             \
                for (int channel = 0; channel < 3; channel++)                                \
                    to[channel] = from[have < 3 ? 0 : channel];                              \
            if (want % 2 == 0)                                                               \
                to[want - 1] = have % 2 == 0 ? from[have - 1] : (type##_t)opaque;            \
        }                                                                                    \
    }
CONVERT(uint8, UINT8_MAX)
CONVERT(uint16, UINT16_MAX)
#undef CONVERT

/// A picture with other channels; consumes the one given.
static nd_tensor *with_channels(const char *operation, nd_tensor *image, int channels) {
    int64_t shape[] = {image->shape[0], image->shape[1], channels};
    nd_tensor *made = nd__elements_new(operation, image->dtype, 3, shape);
    int have = (int)image->shape[2];
    if (made && image->dtype == ND_U8)
        convert_uint8(image->data, have, made->data, channels, shape[0] * shape[1]);
    else if (made)
        convert_uint16(image->data, have, made->data, channels, shape[0] * shape[1]);
    nd_release(image);
    return made;
}

/// A picture as Exif's orientation, 2 to 8, wants it shown; consumes the one given.
static nd_tensor *turned(const char *operation, nd_tensor *image, int orientation) {
    bool turn = orientation >= 5;
    bool flip_rows = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    bool flip_columns =
        orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    int64_t height = image->shape[0], width = image->shape[1];
    int64_t shape[] = {turn ? width : height, turn ? height : width, image->shape[2]};
    nd_tensor *made = nd__elements_new(operation, image->dtype, 3, shape);
    size_t pixel = (size_t)shape[2] * nd__dtype_bytes[image->dtype];
    unsigned char *to = made ? made->data : NULL;
    for (int64_t y = 0; made && y < shape[0]; y++)
        for (int64_t x = 0; x < shape[1]; x++, to += pixel) {
            int64_t row = turn ? x : y, column = turn ? y : x;
            row = flip_rows ? height - 1 - row : row;
            column = flip_columns ? width - 1 - column : column;
            const unsigned char *from =
                (const unsigned char *)image->data + (size_t)(row * width + column) * pixel;
            for (size_t i = 0; i < pixel; i++)
                to[i] = from[i];
        }
    nd_release(image);
    return made;
}

static nd_tensor *read_picture(nd_image_source *source, const nd_image_options *options) {
    const unsigned char *piece;
    size_t bytes;
    if (nd__image_source_next(source, &piece, &bytes) != ND_OK)
        return NULL;
    int orientation = 1;
    nd_tensor *image = NULL;
    char text[ND__IMAGE_SOURCE_TEXT];
    if (bytes >= strlen(ND__PNG_MAGIC) && memcmp(piece, ND__PNG_MAGIC, strlen(ND__PNG_MAGIC)) == 0)
        image = nd__png_read(source);
    else if (bytes >= strlen(ND__JPEG_MAGIC) &&
             memcmp(piece, ND__JPEG_MAGIC, strlen(ND__JPEG_MAGIC)) == 0)
        image =
            nd__jpeg_read(source, options->channels == 1 || options->channels == 2, &orientation);
    else
        nd__error(ND_ERROR_FORMAT, "%s: %s is neither a PNG nor a JPEG", source->operation,
                  nd__image_source_text(source, text));
    if (image && options->channels && options->channels != image->shape[2])
        image = with_channels(source->operation, image, options->channels);
    if (image && options->oriented && orientation != 1)
        image = turned(source->operation, image, orientation);
    return image;
}

nd_tensor *nd_load_image(const char *path, const nd_image_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "load_image";
    nd_image_options chosen;
    nd_image_source source;
    if (read_options(operation, options, &chosen) != ND_OK ||
        nd__image_source_open(&source, operation, path) != ND_OK)
        return NULL;
    nd_tensor *image = read_picture(&source, &chosen);
    nd__image_source_close(&source);
    return image;
}

nd_tensor *nd_decode_image(const void *data, size_t bytes, const nd_image_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "decode_image";
    nd_image_options chosen;
    nd_image_source source;
    if (read_options(operation, options, &chosen) != ND_OK ||
        nd__image_source_open_data(&source, operation, data, bytes) != ND_OK)
        return NULL;
    return read_picture(&source, &chosen);
}

// -------------------------------------------------------------------------------------------------
// writing

/// A format, and how it is to be written.
typedef struct picture_format {
    const char *channels; ///< for a sentence
    bool has_channels[5]; ///< which numbers of them it has
    bool has_16_bits;
    int64_t size_max;
    nd_png_options png;
    nd_jpeg_options jpeg;
    nd_status (*write)(nd_image_sink *sink, const nd_image_pixels *pixels,
                       const struct picture_format *format);
} picture_format;

static nd_status write_png(nd_image_sink *sink, const nd_image_pixels *pixels,
                           const picture_format *format) {
    return nd__png_write(sink, pixels, format->png.compression);
}

static nd_status write_jpeg(nd_image_sink *sink, const nd_image_pixels *pixels,
                            const picture_format *format) {
    return nd__jpeg_write(sink, pixels, format->jpeg.quality, format->jpeg.progressive);
}

static nd_status png_format(const char *operation, const nd_png_options *options,
                            picture_format *ret_format) {
    picture_format format = {.channels = "1 to 4 channels",
                             .has_channels = {[1] = true, [2] = true, [3] = true, [4] = true},
                             .has_16_bits = true,
                             .size_max = INT32_MAX,
                             .png = ND_PNG_OPTIONS_INIT,
                             .write = write_png};
    nd_status status = nd__versioned_read(operation, "ND_PNG_OPTIONS_INIT", options, &format.png,
                                          sizeof format.png);
    if (status != ND_OK)
        return status;
    if (format.png.compression < 0 || format.png.compression > 9)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: a compression of %d; there are 0 to 9",
                         operation, format.png.compression);
    *ret_format = format;
    return ND_OK;
}

static nd_status jpeg_format(const char *operation, const nd_jpeg_options *options,
                             picture_format *ret_format) {
    picture_format format = {.channels = "1 or 3 channels",
                             .has_channels = {[1] = true, [3] = true},
                             .size_max = ND__JPEG_SIZE_MAX,
                             .jpeg = ND_JPEG_OPTIONS_INIT,
                             .write = write_jpeg};
    nd_status status = nd__versioned_read(operation, "ND_JPEG_OPTIONS_INIT", options, &format.jpeg,
                                          sizeof format.jpeg);
    if (status != ND_OK)
        return status;
    if (format.jpeg.quality < 1 || format.jpeg.quality > 100)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: a quality of %d; there are 1 to 100",
                         operation, format.jpeg.quality);
    *ret_format = format;
    return ND_OK;
}

static nd_status check_picture(const char *operation, const nd_tensor *image,
                               const picture_format *format) {
    nd_status status = nd__tensor_check_operand(operation, "the picture", image);
    if (status != ND_OK)
        return status;
    char text[ND__SHAPE_TEXT];
    int64_t channels = image->ndim == 3 ? image->shape[2] : 1;
    if (image->ndim < 2 || image->ndim > 3 || channels < 1 || channels > 4 ||
        !format->has_channels[channels])
        return nd__error(ND_ERROR_SHAPE,
                         "%s: %s is no [height, width] or [height, width, channels] "
                         "with %s",
                         operation, nd__shape_text(text, image->ndim, image->shape),
                         format->channels);
    if (image->numel == 0 || image->shape[0] > format->size_max ||
        image->shape[1] > format->size_max)
        return nd__error(ND_ERROR_SHAPE, "%s: %s; height and width are 1 to %lld", operation,
                         nd__shape_text(text, image->ndim, image->shape),
                         (long long)format->size_max);
    if (image->dtype != ND_U8 && !(image->dtype == ND_U16 && format->has_16_bits))
        return nd__error(ND_ERROR_DTYPE, "%s: a picture of %s; it is written of uint8%s", operation,
                         nd_dtype_get_name(image->dtype), format->has_16_bits ? " or uint16" : "");
    return ND_OK;
}

/// Into a sink that was begun; what it holds is the caller's.
static nd_status write_picture(nd_image_sink *sink, const nd_tensor *image,
                               const picture_format *format) {
    nd_elements elements;
    nd_status status = nd__elements_get(&elements, sink->operation, image);
    if (status != ND_OK)
        return status;
    nd_image_pixels pixels = {.data = elements.data,
                              .height = image->shape[0],
                              .width = image->shape[1],
                              .channels = image->ndim == 3 ? (int)image->shape[2] : 1,
                              .sample_bytes = (int)nd__dtype_bytes[image->dtype]};
    status = format->write(sink, &pixels, format);
    nd__elements_drop(&elements);
    return status;
}

static nd_status save_picture(const char *operation, const char *path, const nd_tensor *image,
                              const picture_format *format) {
    if (!path)
        return nd__error_null(operation, "path");
    nd_status status = check_picture(operation, image, format);
    if (status != ND_OK)
        return status;
    nd_image_sink sink;
    status = nd__image_sink_create(&sink, operation, path);
    if (status != ND_OK)
        return status;
    status = write_picture(&sink, image, format);
    if (status == ND_OK)
        status = nd__file_commit(&sink.writer);
    nd__image_sink_drop(&sink);
    return status;
}

static nd_tensor *encode_picture(const char *operation, const nd_tensor *image,
                                 const picture_format *format) {
    if (check_picture(operation, image, format) != ND_OK)
        return NULL;
    nd_image_sink sink = nd__image_sink_in_memory(operation);
    nd_tensor *bytes = NULL;
    if (write_picture(&sink, image, format) == ND_OK)
        bytes = nd__elements_new(operation, ND_U8, 1, &(int64_t){(int64_t)sink.size});
    if (bytes)
        memcpy(bytes->data, sink.data, sink.size);
    nd__image_sink_drop(&sink);
    return bytes;
}

nd_status nd_save_png(const char *path, const nd_tensor *image, const nd_png_options *options) {
    ND__UNCANCELLED;
    picture_format format;
    nd_status status = png_format("save_png", options, &format);
    return status == ND_OK ? save_picture("save_png", path, image, &format) : status;
}

nd_tensor *nd_encode_png(const nd_tensor *image, const nd_png_options *options) {
    ND__UNCANCELLED;
    picture_format format;
    return png_format("encode_png", options, &format) == ND_OK
               ? encode_picture("encode_png", image, &format)
               : NULL;
}

nd_status nd_save_jpeg(const char *path, const nd_tensor *image, const nd_jpeg_options *options) {
    ND__UNCANCELLED;
    picture_format format;
    nd_status status = jpeg_format("save_jpeg", options, &format);
    return status == ND_OK ? save_picture("save_jpeg", path, image, &format) : status;
}

nd_tensor *nd_encode_jpeg(const nd_tensor *image, const nd_jpeg_options *options) {
    ND__UNCANCELLED;
    picture_format format;
    return jpeg_format("encode_jpeg", options, &format) == ND_OK
               ? encode_picture("encode_jpeg", image, &format)
               : NULL;
}
