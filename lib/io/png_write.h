// Writing PNG.
#ifndef ND_LIB_IO_PNG_WRITE_H
#define ND_LIB_IO_PNG_WRITE_H
#include "lib/io/image_pixels.h"
#include "lib/io/image_sink.h"

/// Writes a picture of 8 or 16 bits. compression: 0 to 9.
nd_status nd__png_write(nd_image_sink *sink, const nd_image_pixels *pixels, int compression);
#endif
