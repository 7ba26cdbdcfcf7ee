// Writing JPEG.
#ifndef ND_LIB_IO_JPEG_WRITE_H
#define ND_LIB_IO_JPEG_WRITE_H
#include "lib/io/image_pixels.h"
#include "lib/io/image_sink.h"

/// The format's limit, less what libjpeg needs.
#define ND__JPEG_SIZE_MAX 65500

/// Writes a picture of 8 bits and 1 or 3 channels. quality: 1 to 100.
nd_status nd__jpeg_write(nd_image_sink *sink, const nd_image_pixels *pixels, int quality,
                         bool progressive);
#endif
