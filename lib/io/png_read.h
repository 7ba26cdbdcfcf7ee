// Reading PNG.
#ifndef ND_LIB_IO_PNG_READ_H
#define ND_LIB_IO_PNG_READ_H
#include "lib/io/image_source.h"
#include <nd/tensor.h>

/// What every PNG begins with.
#define ND__PNG_MAGIC "\x89PNG\r\n\x1a\n"

/// The picture: an owned CPU tensor [height, width, channels] in the current manager, of u8 or u16,
/// with as many channels as the file has.
nd_tensor *nd__png_read(nd_image_source *source);
#endif
