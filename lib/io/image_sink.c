// Written pictures.
#include "lib/io/image_sink.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include <string.h>

nd_status nd__image_sink_create(nd_image_sink *sink, const char *operation, const char *path) {
    *sink = (nd_image_sink){.operation = operation, .is_file = true};
    return nd__file_create(&sink->writer, operation, path);
}

nd_image_sink nd__image_sink_in_memory(const char *operation) {
    return (nd_image_sink){.operation = operation};
}

/// Room for so many bytes more.
static nd_status grow(nd_image_sink *sink, size_t bytes) {
    if (bytes <= sink->capacity - sink->size)
        return ND_OK;
    size_t capacity = sink->capacity + (sink->capacity > bytes ? sink->capacity : bytes);
    unsigned char *data = nd__pressure_alloc_resize(sink->data, capacity);
    if (!data)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu bytes", sink->operation,
                         capacity);
    sink->data = data;
    sink->capacity = capacity;
    return ND_OK;
}

nd_status nd__image_sink_write(nd_image_sink *sink, const void *data, size_t bytes) {
    if (sink->is_file)
        return nd__file_write(&sink->writer, data, bytes);
    nd_status status = grow(sink, bytes);
    if (status != ND_OK)
        return status;
    memcpy(sink->data + sink->size, data, bytes);
    sink->size += bytes;
    return ND_OK;
}

void nd__image_sink_drop(nd_image_sink *sink) {
    if (sink->is_file)
        nd__file_abandon(&sink->writer);
    nd__alloc_free(sink->data);
    sink->data = NULL;
}
