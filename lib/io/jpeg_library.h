// The functions of libjpeg that are used. Their structs are compiled in, from the header of the
// machine that ndarc is built on; the library that is opened when the program runs must be of the
// same version and sizes, which it checks itself.
#ifndef ND_LIB_IO_JPEG_LIBRARY_H
#define ND_LIB_IO_JPEG_LIBRARY_H
#include <nd/error.h>

#ifndef ND_HAVE_JPEG
#define ND_HAVE_JPEG 0
#endif
#if ND_HAVE_JPEG
#include <stdio.h>

#include <jpeglib.h>
// Needs the one before.
#include <jerror.h>

/// Their names without jpeg_.
#define ND__JPEG_FUNCTIONS(F)                                                                 \
    F(struct jpeg_error_mgr *, std_error, (struct jpeg_error_mgr * errors))                   \
    F(void, CreateDecompress, (j_decompress_ptr jpeg, int version, size_t bytes))             \
    F(void, CreateCompress, (j_compress_ptr jpeg, int version, size_t bytes))                 \
    F(void, destroy, (j_common_ptr jpeg))                                                     \
    F(void, save_markers, (j_decompress_ptr jpeg, int marker, unsigned most))                 \
    F(int, read_header, (j_decompress_ptr jpeg, boolean image_required))                      \
    F(boolean, start_decompress, (j_decompress_ptr jpeg))                                     \
    F(JDIMENSION, read_scanlines, (j_decompress_ptr jpeg, JSAMPARRAY rows, JDIMENSION count)) \
    F(boolean, finish_decompress, (j_decompress_ptr jpeg))                                    \
    F(void, set_defaults, (j_compress_ptr jpeg))                                              \
    F(void, set_quality, (j_compress_ptr jpeg, int quality, boolean baseline))                \
    F(void, simple_progression, (j_compress_ptr jpeg))                                        \
    F(void, start_compress, (j_compress_ptr jpeg, boolean tables))                            \
    F(JDIMENSION, write_scanlines, (j_compress_ptr jpeg, JSAMPARRAY rows, JDIMENSION count))  \
    F(void, finish_compress, (j_compress_ptr jpeg))

typedef struct nd_jpeg_library {
#define ND__JPEG_MEMBER(result, name, arguments) result(*name) arguments;
    ND__JPEG_FUNCTIONS(ND__JPEG_MEMBER)
#undef ND__JPEG_MEMBER
} nd_jpeg_library;
#else
typedef struct nd_jpeg_library nd_jpeg_library;
#endif

/// libjpeg, opened at the first call; NULL with ND_ERROR_UNSUPPORTED where it is missing, or was
/// when ndarc was built.
const nd_jpeg_library *nd__jpeg_library(const char *operation);
#endif
