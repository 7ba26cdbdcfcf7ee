// Pieces of a file or of memory.
#include "lib/io/image_source.h"
#include "lib/base/error.h"
#include <stdio.h>

nd_status nd__image_source_open(nd_image_source *source, const char *operation, const char *path) {
    source->operation = operation;
    source->data = NULL;
    source->position = 0;
    nd_status status = nd__file_open(&source->file, operation, path);
    source->size = source->file.size;
    return status;
}

nd_status nd__image_source_open_data(nd_image_source *source, const char *operation,
                                     const void *data, size_t bytes) {
    if (!data)
        return nd__error_null(operation, "data");
    source->operation = operation;
    source->data = data;
    source->file = (nd_file){.operation = operation, .descriptor = -1};
    source->size = bytes;
    source->position = 0;
    return ND_OK;
}

nd_status nd__image_source_next(nd_image_source *source, const unsigned char **ret_piece,
                                size_t *ret_bytes) {
    if (source->data) {
        *ret_piece = source->data + source->position;
        *ret_bytes = (size_t)(source->size - source->position);
        source->position = source->size;
        return ND_OK;
    }
    source->file.position = source->position;
    *ret_piece = source->piece;
    nd_status status =
        nd__file_read_some(&source->file, source->piece, sizeof source->piece, ret_bytes);
    source->position = source->file.position;
    return status;
}

void nd__image_source_rewind(nd_image_source *source) {
    source->position = 0;
}

nd_status nd__image_source_truncated(const nd_image_source *source) {
    char text[ND__IMAGE_SOURCE_TEXT];
    return nd__error(ND_ERROR_IO, "%s: %s ends after %llu bytes, in the middle of the picture",
                     source->operation, nd__image_source_text(source, text),
                     (unsigned long long)source->position);
}

uint64_t nd__image_source_credit(const nd_image_source *source) {
    return 64 * source->size + ((uint64_t)1 << 20);
}

void nd__image_source_close(nd_image_source *source) {
    nd__file_close(&source->file);
}

const char *nd__image_source_text(const nd_image_source *source, char *buffer) {
    if (source->data)
        snprintf(buffer, ND__IMAGE_SOURCE_TEXT, "the picture");
    else
        snprintf(buffer, ND__IMAGE_SOURCE_TEXT, "'%.300s'", source->file.path);
    return buffer;
}
