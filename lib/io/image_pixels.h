// A picture in memory, as writers see it.
#ifndef ND_LIB_IO_IMAGE_PIXELS_H
#define ND_LIB_IO_IMAGE_PIXELS_H
#include <stdint.h>

typedef struct nd_image_pixels {
    const unsigned char *data; ///< rows without gaps
    int64_t height, width;     ///< at least 1, and what the format can
    int channels;              ///< 1 to 4
    int sample_bytes;          ///< 1 or 2
} nd_image_pixels;
#endif
