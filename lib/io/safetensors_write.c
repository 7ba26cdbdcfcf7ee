// Writing safetensors files.
//
// Invariant: everything is checked before the file is created, and the file takes its place only
// when it is complete. Data is sorted by falling element size and the header padded to 8 bytes, so
// that every tensor is aligned to its element wherever the file is mapped.
#include "lib/io/safetensors_write.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/io/elements.h"
#include "lib/io/file.h"
#include "lib/io/named.h"
#include "lib/io/safetensors_read.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One tensor to write.
typedef struct nd_saved_tensor {
    const char *name;
    const nd_tensor *tensor;
    size_t bytes;
    size_t position; ///< in the caller's order, which is kept among equal element sizes
} nd_saved_tensor;

// The header as it grows.
typedef struct nd_text {
    char *data;
    size_t size;
    size_t capacity;
    bool failed; ///< no memory
} nd_text;

static nd_status check_names(const char *operation, const char *const *names, size_t count);
static nd_saved_tensor *sort_tensors(const char *operation, const char *const *names,
                                     const nd_tensor *const *tensors, size_t count);
static nd_status compose_header(const char *operation, nd_text *header,
                                const nd_saved_tensor *items, size_t count);
static nd_status write_file(const char *operation, const char *path, const nd_text *header,
                            const nd_saved_tensor *items, size_t count);
static nd_status write_tensor(const char *operation, nd_file_writer *writer,
                              const nd_saved_tensor *item);
static void append(nd_text *text, const char *data, size_t size);
static void append_string(nd_text *text, const char *string);
static int compare_position(const void *a, const void *b);

nd_status nd_save_safetensors(const char *path, size_t count, const char *const *names,
                              const nd_tensor *const *tensors) {
    return nd__safetensors_write("save_safetensors", path, count, names, tensors);
}

nd_status nd__safetensors_write(const char *operation, const char *path, size_t count,
                                const char *const *names, const nd_tensor *const *tensors) {
    ND__UNCANCELLED;
    nd_status status = nd__named_check(operation, path, count, names, tensors);
    if (status == ND_OK)
        status = check_names(operation, names, count);
    if (status != ND_OK)
        return status;
    nd_saved_tensor *items = sort_tensors(operation, names, tensors, count);
    if (!items)
        return nd_error_get_status();
    nd_text header = {.data = NULL};
    status = compose_header(operation, &header, items, count);
    if (status == ND_OK)
        status = write_file(operation, path, &header, items, count);
    nd__alloc_free(header.data);
    nd__alloc_free(items);
    return status;
}

static nd_status check_names(const char *operation, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], ND__SAFETENSORS_METADATA) == 0)
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "%s: '" ND__SAFETENSORS_METADATA "' cannot be the name of a tensor",
                             operation);
    return ND_OK;
}

/// The tensors with their sizes, in the order of the file; owned. NULL with an error.
static nd_saved_tensor *sort_tensors(const char *operation, const char *const *names,
                                     const nd_tensor *const *tensors, size_t count) {
    nd_saved_tensor *items = nd__pressure_alloc((count + 1) * sizeof(*items));
    if (!items) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a list of %zu tensors", operation,
                  count);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        items[i] =
            (nd_saved_tensor){names[i], tensors[i],
                              (size_t)tensors[i]->numel * nd_dtype_get_size(tensors[i]->dtype), i};
    qsort(items, count, sizeof(*items), compare_position);
    return items;
}

static nd_status compose_header(const char *operation, nd_text *header,
                                const nd_saved_tensor *items, size_t count) {
    char number[64];
    uint64_t begin = 0;
    append(header, "{", 1);
    for (size_t i = 0; i < count; i++) {
        const nd_tensor *tensor = items[i].tensor;
        if (i > 0)
            append(header, ",", 1);
        append_string(header, items[i].name);
        int length = snprintf(number, sizeof(number), ":{\"dtype\":\"%s\",\"shape\":[",
                              nd__safetensors_dtype_name(tensor->dtype));
        append(header, number, (size_t)length);
        for (int axis = 0; axis < tensor->ndim; axis++) {
            length = snprintf(number, sizeof(number), axis ? ",%lld" : "%lld",
                              (long long)tensor->shape[axis]);
            append(header, number, (size_t)length);
        }
        length = snprintf(number, sizeof(number), "],\"data_offsets\":[%llu,%llu]}",
                          (unsigned long long)begin, (unsigned long long)(begin + items[i].bytes));
        append(header, number, (size_t)length);
        begin += items[i].bytes;
    }
    append(header, "}", 1);
    while (header->size % 8 != 0 && !header->failed)
        append(header, " ", 1);
    if (header->failed)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the header of %zu tensors",
                         operation, count);
    return ND_OK;
}

static nd_status write_file(const char *operation, const char *path, const nd_text *header,
                            const nd_saved_tensor *items, size_t count) {
    nd_file_writer writer;
    nd_status status = nd__file_create(&writer, operation, path);
    if (status != ND_OK)
        return status;
    uint64_t length = header->size;
    status = nd__file_write(&writer, &length, sizeof(length));
    if (status == ND_OK)
        status = nd__file_write(&writer, header->data, header->size);
    for (size_t i = 0; status == ND_OK && i < count; i++)
        status = write_tensor(operation, &writer, &items[i]);
    if (status == ND_OK)
        return nd__file_commit(&writer);
    nd__file_abandon(&writer);
    return status;
}

static nd_status write_tensor(const char *operation, nd_file_writer *writer,
                              const nd_saved_tensor *item) {
    nd_elements elements;
    nd_status status = nd__elements_get(&elements, operation, item->tensor);
    if (status == ND_OK)
        status = nd__file_write(writer, elements.data, elements.bytes);
    nd__elements_drop(&elements);
    return status;
}

static void append(nd_text *text, const char *data, size_t size) {
    if (text->failed)
        return;
    if (size > text->capacity - text->size) {
        size_t capacity = 2 * text->capacity + size + 256;
        char *grown = nd__pressure_alloc_resize(text->data, capacity);
        if (!grown) {
            text->failed = true;
            return;
        }
        text->data = grown;
        text->capacity = capacity;
    }
    memcpy(text->data + text->size, data, size);
    text->size += size;
}

/// A JSON string: quotes, backslashes and control characters escaped.
static void append_string(nd_text *text, const char *string) {
    append(text, "\"", 1);
    for (; *string; string++) {
        char escaped[8];
        if (*string == '"' || *string == '\\') {
            append(text, "\\", 1);
            append(text, string, 1);
        } else if ((unsigned char)*string < 0x20) {
            snprintf(escaped, sizeof(escaped), "\\u%04x", (unsigned)*string);
            append(text, escaped, 6);
        } else {
            append(text, string, 1);
        }
    }
    append(text, "\"", 1);
}

/// Larger elements first; the caller's order among equals.
static int compare_position(const void *a, const void *b) {
    const nd_saved_tensor *x = a;
    const nd_saved_tensor *y = b;
    size_t xsize = nd_dtype_get_size(x->tensor->dtype);
    size_t ysize = nd_dtype_get_size(y->tensor->dtype);
    if (xsize != ysize)
        return xsize > ysize ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}
