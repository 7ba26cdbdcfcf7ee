// Streams of named tensors to and from a safetensors file.
//
// Invariant: before the commit nothing but the stream's own memory changes; the commit copies
// between tensors of one shape and dtype, which needs no memory.
#include "lib/nn/state_stream.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/io/safetensors_write.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/shape.h"
#include <nd/io.h>

#include <stdio.h>
#include <string.h>

static const char *full_name(const nd_state_stream *stream, const char *name, const char *rest,
                             char *buffer);
static nd_status collect(nd_state_stream *stream, const char *name, const nd_tensor *x);
static nd_status find(nd_state_stream *stream, const char *name, nd_dtype dtype, int ndim,
                      const int64_t *shape, const nd_tensor **ret_found);

nd_status nd__state_stream_begin_save(nd_state_stream *stream, const char *operation,
                                      const char *path) {
    *stream = (nd_state_stream){.operation = operation, .path = path, .phase = ND__STATE_SAVE};
    stream->file.file.descriptor = -1;
    if (!path)
        return nd__error_null(operation, "path");
    stream->tensors = nd_list_new();
    return stream->tensors ? ND_OK : nd_error_get_status();
}

nd_status nd__state_stream_begin_load(nd_state_stream *stream, const char *operation,
                                      const char *path) {
    *stream = (nd_state_stream){.operation = operation, .path = path, .phase = ND__STATE_CHECK};
    stream->file.file.descriptor = -1;
    nd_status status = nd__safetensors_open(&stream->file, operation, path);
    if (status != ND_OK)
        return status;
    stream->tensors = nd_list_new();
    stream->taken = nd__pressure_alloc_zeroed(stream->file.count + 1);
    if (stream->tensors && !stream->taken)
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu tensors", operation,
                  stream->file.count);
    if (!stream->tensors || !stream->taken)
        return nd_error_get_status();
    for (size_t i = 0; i < stream->file.count; i++) {
        nd_auto nd_tensor *tensor = nd__safetensors_read(&stream->file, &stream->file.entries[i]);
        if (!tensor || nd_list_append(stream->tensors, tensor) != ND_OK)
            return nd_error_get_status();
    }
    return ND_OK;
}

nd_status nd__state_stream_write(nd_state_stream *stream) {
    const size_t count = stream->count;
    const nd_tensor **tensors = nd__pressure_alloc((count + 1) * sizeof *tensors);
    if (!tensors)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu tensors",
                         stream->operation, count);
    for (size_t i = 0; i < count; i++)
        tensors[i] = (const nd_tensor *)nd_list_get(stream->tensors, i);
    nd_status status = nd__safetensors_write(stream->operation, stream->path, count,
                                             (const char *const *)stream->names, tensors);
    nd__alloc_free(tensors);
    return status;
}

nd_status nd__state_stream_check_all_taken(const nd_state_stream *stream) {
    for (size_t i = 0; i < stream->file.count; i++)
        if (!stream->taken[i])
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: '%s' has '%.200s', which no part of the state has",
                             stream->operation, stream->path, stream->file.entries[i].name);
    return ND_OK;
}

void nd__state_stream_end(nd_state_stream *stream) {
    for (size_t i = 0; i < stream->count; i++)
        nd__alloc_free(stream->names[i]);
    nd__alloc_free(stream->names);
    nd__alloc_free(stream->taken);
    nd__alloc_free(stream->scratch);
    for (size_t i = stream->spares_given; i < stream->spare_count; i++)
        nd_release(stream->spares[i].tensor);
    nd__alloc_free(stream->spares);
    nd_release(stream->tensors);
    nd__safetensors_close(&stream->file);
    stream->names = NULL;
    stream->taken = NULL;
    stream->scratch = NULL;
    stream->spares = NULL;
    stream->tensors = NULL;
    stream->count = stream->spare_count = stream->spares_given = 0;
}

nd_status nd__state_stream_tensor(nd_state_stream *stream, const char *name, const char *rest,
                                  nd_tensor *x) {
    char buffer[ND__STATE_NAME_BYTES];
    full_name(stream, name, rest, buffer);
    nd_status status = nd__tensor_check_operand(stream->operation, buffer, x);
    if (status != ND_OK)
        return status;
    if (stream->phase == ND__STATE_SAVE)
        return collect(stream, buffer, x);
    const nd_tensor *found = NULL;
    status = nd__tensor_check_writable(stream->operation, buffer, x);
    if (status != ND_OK)
        return status;
    status = find(stream, buffer, x->dtype, x->ndim, x->shape, &found);
    if (status != ND_OK || stream->phase == ND__STATE_CHECK)
        return status;
    status = nd__copy_into(stream->operation, x, found);
    nd__tensor_bump_version(x);
    return status;
}

nd_status nd__state_stream_numbers(nd_state_stream *stream, const char *name, nd_dtype dtype,
                                   size_t count, void *numbers) {
    char buffer[ND__STATE_NAME_BYTES];
    full_name(stream, name, NULL, buffer);
    const int64_t shape[] = {(int64_t)count};
    if (stream->phase == ND__STATE_SAVE) {
        nd_auto nd_tensor *x = nd_from_data(numbers, 1, shape, dtype);
        return x ? collect(stream, buffer, x) : nd_error_get_status();
    }
    const nd_tensor *found = NULL;
    nd_status status = find(stream, buffer, dtype, 1, shape, &found);
    if (status == ND_OK && count > 0)
        memcpy(numbers, found->data, count * sizeof(int64_t));
    return status;
}

void *nd__state_stream_scratch(nd_state_stream *stream, size_t bytes) {
    if (stream->scratch && bytes <= stream->scratch_bytes)
        return stream->scratch;
    void *scratch = nd__pressure_alloc(bytes);
    if (!scratch) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the numbers of '%s'",
                  stream->operation, stream->part);
        return NULL;
    }
    nd__alloc_free(stream->scratch);
    stream->scratch = scratch;
    stream->scratch_bytes = bytes;
    return scratch;
}

nd_status nd__state_stream_keep_spare(nd_state_stream *stream, const void *place, nd_tensor *made) {
    if (stream->spare_count == stream->spare_capacity) {
        const size_t capacity = stream->spare_capacity ? 2 * stream->spare_capacity : 32;
        nd_state_spare *spares =
            nd__pressure_alloc_resize(stream->spares, capacity * sizeof *spares);
        if (!spares) {
            nd_release(made);
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu tensors",
                             stream->operation, capacity);
        }
        stream->spares = spares;
        stream->spare_capacity = capacity;
    }
    stream->spares[stream->spare_count++] = (nd_state_spare){place, made};
    return ND_OK;
}

nd_tensor *nd__state_stream_take_spare(nd_state_stream *stream, const void *place) {
    if (stream->spares_given == stream->spare_count ||
        stream->spares[stream->spares_given].place != place)
        return NULL;
    return stream->spares[stream->spares_given++].tensor;
}

bool nd__state_stream_has(const nd_state_stream *stream, const char *name, const char *rest) {
    char buffer[ND__STATE_NAME_BYTES];
    return nd__safetensors_find(&stream->file, full_name(stream, name, rest, buffer)) != NULL;
}

nd_status nd__state_stream_refuse(const nd_state_stream *stream, const char *name,
                                  const char *problem) {
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: '%s': '%s.%s' %s", stream->operation,
                     stream->path, stream->part, name, problem);
}

// -------------------------------------------------------------------------------------------------

/// PART.NAME.REST, PART.NAME or, with an empty name, PART alone.
static const char *full_name(const nd_state_stream *stream, const char *name, const char *rest,
                             char *buffer) {
    snprintf(buffer, ND__STATE_NAME_BYTES, "%s%s%s%s%s", stream->part, *name ? "." : "", name,
             rest ? "." : "", rest ? rest : "");
    return buffer;
}

static nd_status collect(nd_state_stream *stream, const char *name, const nd_tensor *x) {
    if (stream->count == stream->capacity) {
        const size_t capacity = stream->capacity ? 2 * stream->capacity : 32;
        char **names = nd__pressure_alloc_resize(stream->names, capacity * sizeof *names);
        if (!names)
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for %zu names",
                             stream->operation, capacity);
        stream->names = names;
        stream->capacity = capacity;
    }
    const size_t bytes = strlen(name) + 1;
    char *copy = nd__pressure_alloc(bytes);
    if (!copy)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a name", stream->operation);
    nd_status status = nd_list_append(stream->tensors, x);
    if (status != ND_OK) {
        nd__alloc_free(copy);
        return status;
    }
    stream->names[stream->count++] = memcpy(copy, name, bytes);
    return ND_OK;
}

/// The file's tensor of a name, which must have this dtype and shape; borrowed from the stream.
static nd_status find(nd_state_stream *stream, const char *name, nd_dtype dtype, int ndim,
                      const int64_t *shape, const nd_tensor **ret_found) {
    const nd_safetensors_entry *entry = nd__safetensors_find(&stream->file, name);
    if (!entry)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: '%s' has no '%.200s'", stream->operation,
                         stream->path, name);
    char a[ND__SHAPE_TEXT];
    char b[ND__SHAPE_TEXT];
    bool same = entry->ndim == ndim;
    for (int axis = 0; same && axis < ndim; axis++)
        same = entry->shape[axis] == shape[axis];
    if (!same)
        return nd__error(ND_ERROR_SHAPE, "%s: '%.200s' has the shape %s in '%s' and %s here",
                         stream->operation, name, nd__shape_text(a, entry->ndim, entry->shape),
                         stream->path, nd__shape_text(b, ndim, shape));
    if (entry->dtype != dtype)
        return nd__error(ND_ERROR_DTYPE, "%s: '%.200s' is %s in '%s' and %s here",
                         stream->operation, name, nd_dtype_get_name(entry->dtype), stream->path,
                         nd_dtype_get_name(dtype));
    const size_t index = (size_t)(entry - stream->file.entries);
    stream->taken[index] = true;
    *ret_found = (const nd_tensor *)nd_list_get(stream->tensors, index);
    return ND_OK;
}
