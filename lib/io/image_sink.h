// Where a picture is written to: a file, which takes its place at the end, or memory.
//
// Invariant: after an error nothing is left of what was written.
#ifndef ND_LIB_IO_IMAGE_SINK_H
#define ND_LIB_IO_IMAGE_SINK_H
#include "lib/io/file.h"

typedef struct nd_image_sink {
    const char *operation;
    bool is_file;
    nd_file_writer writer;
    unsigned char *data; ///< owned
    size_t size, capacity;
} nd_image_sink;

/// Begins a file.
nd_status nd__image_sink_create(nd_image_sink *sink, const char *operation, const char *path);
/// Begins in memory.
nd_image_sink nd__image_sink_in_memory(const char *operation);
nd_status nd__image_sink_write(nd_image_sink *sink, const void *data, size_t bytes);
/// Gives up what is not committed. Idempotent.
void nd__image_sink_drop(nd_image_sink *sink);
#endif
