// Reading JPEG.
#ifndef ND_LIB_IO_JPEG_READ_H
#define ND_LIB_IO_JPEG_READ_H
#include "lib/io/image_source.h"
#include <nd/tensor.h>

/// What every JPEG begins with.
#define ND__JPEG_MAGIC "\xff\xd8\xff"

/// The picture as it is stored: an owned CPU tensor [height, width, channels] in the current
/// manager, of u8, with 1 or 3 channels. `grey`: with 1 where the file has luminance of its own.
/// Writes the Exif orientation, 1 to 8; 1 where there is none.
nd_tensor *nd__jpeg_read(nd_image_source *source, bool grey, int *ret_orientation);
#endif
