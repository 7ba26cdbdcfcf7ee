/// @file
/// Pictures: PNG and JPEG files as tensors [height, width, channels].
///
/// Channels are 1 (grey), 2 (grey and alpha), 3 (red, green, blue) or 4 (and alpha). Samples are u8,
/// of a PNG of 16 bits u16, as they are in the file: no gamma and no colour profile is applied.
/// Scaling, dtypes and the order of axes that a network wants are operations (nd_cast, nd_permute).
///
/// libpng (libpng16.so.16) and libjpeg (libjpeg.so.62, that of libjpeg-turbo) do the work. Neither
/// is linked: the first call that needs one opens it, and answers ND_ERROR_UNSUPPORTED where there
/// is none. Both work on the host, on the calling thread.
///
/// What is read is a contiguous CPU tensor, in the current manager. Any number of threads may read
/// and write at once. Errors: ND_ERROR_IO (missing, unreadable, ends in the middle of the picture),
/// ND_ERROR_FORMAT (damaged; also what the libraries only warn of), ND_ERROR_UNSUPPORTED (valid, but
/// beyond ndarc or these libraries).
#ifndef ND_IMAGE_H
#define ND_IMAGE_H
#include <nd/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

/// How a picture is read.
typedef struct nd_image_options {
    uint32_t size;    ///< sizeof(nd_image_options)
    uint32_t version; ///< 1
    /// Wanted channels, 1 to 4. Grey becomes colour by repetition, colour grey by the weights of
    /// ITU-R BT.601 (a JPEG's own luminance where it has one); alpha is left out, or is opaque.
    /// Default: 0, as many as the file has.
    int channels;
    /// Whether a JPEG is turned and mirrored as its Exif orientation says, as viewers show it. An
    /// Exif block that says nothing readable changes nothing; that of a PNG is not read. Default:
    /// false, as it is stored.
    bool oriented;
} nd_image_options;
/// What an nd_image_options must begin as.
#define ND_IMAGE_OPTIONS_INIT ND__SIZED(nd_image_options)

/// Reads a PNG (https://www.w3.org/TR/png-3/) or a JPEG file, whichever its first bytes say it is:
/// [height, width, channels] of u8, or u16 for a PNG of 16 bits. Palettes and 1, 2 and 4 bits become
/// 8 bits (an index beyond the palette black), a transparent colour alpha. JPEGs are baseline or
/// progressive, grey or colour. ND_ERROR_UNSUPPORTED: CMYK, arithmetic coding, 12 bits, more than
/// 500 scans, a PNG of few bytes whose rows have hundreds of thousands (docs/files.md). Bytes behind
/// the picture's end are left alone. options: NULL for the defaults.
ND_API nd_tensor *nd_load_image(const char *path, const nd_image_options *options) ND_OWNED;
/// nd_load_image() of a file that is in memory already.
ND_API nd_tensor *nd_decode_image(const void *data, size_t bytes,
                                  const nd_image_options *options) ND_OWNED;

/// How a PNG is written.
typedef struct nd_png_options {
    uint32_t size;    ///< sizeof(nd_png_options)
    uint32_t version; ///< 1
    int compression;  ///< 0 (none, fast) to 9 (small, slow). Default: 6
} nd_png_options;
/// What an nd_png_options must begin as.
#define ND_PNG_OPTIONS_INIT \
    { sizeof(nd_png_options), 1, 6 }
/// Writes u8 or u16, [height, width] or [height, width, channels] with 1 to 4 of them, of any
/// device and layout, without loss. Of rows of hundreds of thousands of bytes that pack to almost
/// nothing the file is right, and refused by nd_load_image(). The file takes its place as in
/// nd_save_safetensors(). options: NULL for the defaults. ND_ERROR_SHAPE: other shapes, and
/// pictures without a pixel; ND_ERROR_DTYPE.
ND_API nd_status nd_save_png(const char *path, const nd_tensor *image,
                             const nd_png_options *options);
/// The bytes that nd_save_png() would write: [n] of u8 on the CPU, in the current manager.
ND_API nd_tensor *nd_encode_png(const nd_tensor *image, const nd_png_options *options) ND_OWNED;

/// How a JPEG is written.
typedef struct nd_jpeg_options {
    uint32_t size;    ///< sizeof(nd_jpeg_options)
    uint32_t version; ///< 1
    int quality;      ///< 1 (small) to 100 (good), as libjpeg counts. Default: 75
    bool progressive; ///< a coarse picture first, in more scans. Default: false
} nd_jpeg_options;
/// What an nd_jpeg_options must begin as.
#define ND_JPEG_OPTIONS_INIT \
    { sizeof(nd_jpeg_options), 1, 75, false }
/// Writes u8, [height, width] or [height, width, channels] with 1 or 3 of them, of any device and
/// layout; of colour with half as many rows and columns. What is read again is near, not the same.
/// The file takes its place as in nd_save_safetensors(). options: NULL for the defaults.
/// ND_ERROR_SHAPE: other shapes, pictures without a pixel, sizes above 65500; ND_ERROR_DTYPE.
ND_API nd_status nd_save_jpeg(const char *path, const nd_tensor *image,
                              const nd_jpeg_options *options);
/// The bytes that nd_save_jpeg() would write: [n] of u8 on the CPU, in the current manager.
ND_API nd_tensor *nd_encode_jpeg(const nd_tensor *image, const nd_jpeg_options *options) ND_OWNED;

#ifdef __cplusplus
}
#endif
#endif
