// The bytes that a picture is read from, piece by piece: a file, or memory.
//
// Invariant: whoever reads knows how many bytes there are, and a sentence about them names the
// operation and the file.
#ifndef ND_LIB_IO_IMAGE_SOURCE_H
#define ND_LIB_IO_IMAGE_SOURCE_H
#include "lib/io/file.h"

typedef struct nd_image_source {
    const char *operation;
    const unsigned char *data; ///< in memory; NULL: a file
    nd_file file;
    uint64_t size;
    uint64_t position; ///< behind the last piece
    unsigned char piece[1 << 14];
} nd_image_source;

/// Opens a file. On error nothing stays open.
nd_status nd__image_source_open(nd_image_source *source, const char *operation, const char *path);
/// Of bytes in memory, which must live as long.
nd_status nd__image_source_open_data(nd_image_source *source, const char *operation,
                                     const void *data, size_t bytes);
/// The next bytes, as many as there are at once; none at the end. They are good until the next call.
nd_status nd__image_source_next(nd_image_source *source, const unsigned char **ret_piece,
                                size_t *ret_bytes);
/// Goes back to the beginning.
void nd__image_source_rewind(nd_image_source *source);
/// ND_ERROR_IO: the end came in the middle of a picture.
nd_status nd__image_source_truncated(const nd_image_source *source);
/// Memory that may be taken before the bytes bear out what they announce.
uint64_t nd__image_source_credit(const nd_image_source *source);
/// Idempotent.
void nd__image_source_close(nd_image_source *source);

/// "'file'", or "the picture" for one in memory, for sentences; returns the buffer.
#define ND__IMAGE_SOURCE_TEXT 320
const char *nd__image_source_text(const nd_image_source *source, char *buffer);
#endif
