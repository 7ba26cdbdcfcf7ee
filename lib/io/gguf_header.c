// Reading the headers of GGUF files.
//
// The length of a header is nowhere said, so it is read piece by piece as far as its own fields reach.
//
// Invariant: memory grows with what was read, never with what a count or a length says; every count
// is first held against the bytes that are left in the file.
#include "lib/io/gguf_header.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/base/utf8.h"
#include "lib/io/elements.h"
#include "lib/io/gguf_blocks.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

enum {
    PIECE = 1 << 16,
    KEY_BYTES_MAX = 65535,
    VALUE_BYTES_MIN = 8 + 4 + 1,
    ENTRY_BYTES_MIN = 8 + 4 + 4 + 8,
    ALIGNMENT = 32
};

// The text as it grows.
typedef struct nd_gguf_reader {
    nd_gguf_header *header;
    nd_file *file;
    size_t size; ///< read so far
    size_t room;
    size_t at; ///< next to be looked at
} nd_gguf_reader;

static nd_status read_start(nd_gguf_reader *reader);
static nd_status read_values(nd_gguf_reader *reader);
static nd_status read_value(nd_gguf_reader *reader, nd_gguf_value *value);
static nd_status read_entries(nd_gguf_reader *reader);
static nd_status read_entry(nd_gguf_reader *reader, nd_gguf_entry *entry);
static nd_status check_names(const nd_gguf_reader *reader);
static nd_status find_alignment(const nd_gguf_reader *reader, uint64_t *ret_alignment);
static nd_status check_entries(const nd_gguf_reader *reader);

nd_status nd__gguf_header_read(nd_gguf_header *header, nd_file *file) {
    *header = (nd_gguf_header){.version = 0};
    nd_gguf_reader reader = {.header = header, .file = file};
    nd_status status = read_start(&reader);
    if (status == ND_OK)
        status = read_values(&reader);
    if (status == ND_OK)
        status = read_entries(&reader);
    if (status == ND_OK)
        status = check_names(&reader);
    if (status == ND_OK)
        status = check_entries(&reader);
    if (status != ND_OK)
        nd__gguf_header_free(header);
    return status;
}

void nd__gguf_header_free(nd_gguf_header *header) {
    nd__alloc_free(header->text);
    nd__alloc_free(header->values);
    nd__alloc_free(header->entries);
    *header = (nd_gguf_header){.version = 0};
}

const nd_gguf_value *nd__gguf_header_value(const nd_gguf_header *header, const char *key) {
    for (size_t i = 0; i < header->value_count; i++)
        if (strcmp(nd__gguf_header_string(header, header->values[i].key), key) == 0)
            return &header->values[i];
    return NULL;
}

const nd_gguf_entry *nd__gguf_header_entry(const nd_gguf_header *header, const char *name) {
    for (size_t i = 0; i < header->entry_count; i++)
        if (strcmp(nd__gguf_header_string(header, header->entries[i].name), name) == 0)
            return &header->entries[i];
    return NULL;
}

static nd_status header_error(const nd_gguf_reader *reader, const char *problem) {
    return nd__error(ND_ERROR_FORMAT, "%s: the header of '%s' is malformed at byte %zu: %s",
                     reader->file->operation, reader->file->path, reader->at, problem);
}

static const char *name_of(const nd_gguf_reader *reader, const nd_gguf_entry *entry) {
    return nd__gguf_header_string(reader->header, entry->name);
}

static nd_status no_memory(const nd_gguf_reader *reader) {
    return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the header of '%s'",
                     reader->file->operation, reader->file->path);
}

// ------------------------------------------------------------------------------------------------
// the text

/// Sees to it that so many bytes more have been read.
static nd_status ensure(nd_gguf_reader *reader, uint64_t bytes) {
    if (bytes <= reader->size - reader->at)
        return ND_OK;
    if (bytes > reader->file->size - reader->at)
        return nd__error(ND_ERROR_FORMAT,
                         "%s: the header of '%s' wants %llu bytes at byte %zu; the file has %llu",
                         reader->file->operation, reader->file->path, (unsigned long long)bytes,
                         reader->at, (unsigned long long)reader->file->size);
    uint64_t wanted = reader->at + bytes + PIECE;
    if (wanted < 2 * (uint64_t)reader->size)
        wanted = 2 * (uint64_t)reader->size;
    if (wanted > reader->file->size)
        wanted = reader->file->size;
    unsigned char *grown = nd__pressure_alloc_resize(reader->header->text, (size_t)wanted);
    if (!grown)
        return no_memory(reader);
    reader->header->text = grown;
    reader->room = (size_t)wanted;
    reader->file->position = reader->size;
    nd_status status =
        nd__file_read(reader->file, grown + reader->size, reader->room - reader->size);
    reader->size = status == ND_OK ? reader->room : reader->size;
    return status;
}

/// The next number of some bytes, little endian.
static nd_status take(nd_gguf_reader *reader, size_t bytes, uint64_t *ret_value) {
    nd_status status = ensure(reader, bytes);
    if (status != ND_OK)
        return status;
    uint64_t value = 0;
    memcpy(&value, reader->header->text + reader->at, bytes);
    reader->at += bytes;
    *ret_value = value;
    return ND_OK;
}

/// Passes a string: its bytes, and where they are.
static nd_status take_string(nd_gguf_reader *reader, uint64_t max, size_t *ret_at,
                             size_t *ret_bytes) {
    uint64_t bytes = 0;
    nd_status status = take(reader, 8, &bytes);
    if (status != ND_OK)
        return status;
    if (bytes > max)
        return header_error(reader, "a key or name is longer than 65535 bytes");
    status = ensure(reader, bytes);
    *ret_at = reader->at;
    *ret_bytes = (size_t)bytes;
    reader->at += status == ND_OK ? (size_t)bytes : 0;
    return status;
}

/// Passes a key or a name, which moves to where its length stood, and so has room for its end. The
/// text may still move: where it begins is an offset.
static nd_status take_name(nd_gguf_reader *reader, size_t *ret_at) {
    size_t at = 0, bytes = 0;
    nd_status status = take_string(reader, KEY_BYTES_MAX, &at, &bytes);
    if (status != ND_OK)
        return status;
    char *name = (char *)reader->header->text + at - 8;
    memmove(name, name + 8, bytes);
    name[bytes] = '\0';
    if (strlen(name) != bytes || !nd__utf8_is_valid(name))
        return header_error(reader, "a key or name is not valid UTF-8");
    *ret_at = at - 8;
    return ND_OK;
}

/// Magic, version, and how many values and tensors there are, which must fit the file.
static nd_status read_start(nd_gguf_reader *reader) {
    const nd_file *file = reader->file;
    uint64_t version = 0, entries = 0, values = 0;
    if (file->size >= 4) {
        nd_status status = ensure(reader, 4);
        if (status != ND_OK)
            return status;
    }
    if (file->size < 4 || memcmp(reader->header->text, "GGUF", 4) != 0)
        return nd__error(ND_ERROR_FORMAT, "%s: '%s' is no GGUF file: it does not begin with GGUF",
                         file->operation, file->path);
    reader->at = 4;
    nd_status status = take(reader, 4, &version);
    if (status != ND_OK)
        return status;
    if (version != 2 && version != 3)
        return nd__error(ND_ERROR_UNSUPPORTED, "%s: '%s' is of version %u%s, ndarc reads 2 and 3",
                         file->operation, file->path, (unsigned)version,
                         version & 0xffff ? "" : " (a big-endian file)");
    status = take(reader, 8, &entries);
    if (status == ND_OK)
        status = take(reader, 8, &values);
    if (status != ND_OK)
        return status;
    if (values > file->size / VALUE_BYTES_MIN || entries > file->size / ENTRY_BYTES_MIN)
        return nd__error(ND_ERROR_FORMAT,
                         "%s: '%s' announces %llu values and %llu tensors, more than its %llu "
                         "bytes can hold",
                         file->operation, file->path, (unsigned long long)values,
                         (unsigned long long)entries, (unsigned long long)file->size);
    reader->header->version = (uint32_t)version;
    reader->header->value_count = (size_t)values;
    reader->header->entry_count = (size_t)entries;
    reader->header->values =
        nd__pressure_alloc_zeroed(((size_t)values + 1) * sizeof *reader->header->values);
    reader->header->entries =
        nd__pressure_alloc_zeroed(((size_t)entries + 1) * sizeof *reader->header->entries);
    return reader->header->values && reader->header->entries ? ND_OK : no_memory(reader);
}

// ------------------------------------------------------------------------------------------------
// values

/// Bytes of a number; 0 for what is none.
static size_t number_bytes(uint64_t type) {
    static const uint8_t bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return type < sizeof bytes ? bytes[type] : 0;
}

static nd_status read_values(nd_gguf_reader *reader) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < reader->header->value_count; i++)
        status = read_value(reader, &reader->header->values[i]);
    return status;
}

/// Passes the elements of a list: numbers or strings.
static nd_status take_elements(nd_gguf_reader *reader, nd_gguf_value *value) {
    size_t bytes = number_bytes(value->element), at, length;
    uint64_t total;
    if (bytes) {
        if (__builtin_mul_overflow(value->count, (uint64_t)bytes, &total))
            return header_error(reader, "a list has more bytes than 64 bits count");
        nd_status status = ensure(reader, total);
        value->bytes = (size_t)total;
        reader->at += status == ND_OK ? (size_t)total : 0;
        return status;
    }
    if (value->element != ND_GGUF_STRING)
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: '%s' has a list of the type %d, neither numbers nor strings, at byte "
                         "%zu of its header",
                         reader->file->operation, reader->file->path, (int)value->element,
                         reader->at);
    nd_status status = ND_OK;
    for (uint64_t i = 0; status == ND_OK && i < value->count; i++)
        status = take_string(reader, UINT64_MAX, &at, &length);
    value->bytes = reader->at - value->at;
    return status;
}

static nd_status read_value(nd_gguf_reader *reader, nd_gguf_value *value) {
    uint64_t type = 0, element = 0;
    nd_status status = take_name(reader, &value->key);
    if (status == ND_OK)
        status = take(reader, 4, &type);
    if (status != ND_OK)
        return status;
    value->type = value->element = (nd_gguf_type)type;
    value->count = 1;
    value->at = reader->at;
    if (type == ND_GGUF_STRING)
        return take_string(reader, UINT64_MAX, &value->at, &value->bytes);
    if (type == ND_GGUF_ARRAY) {
        status = take(reader, 4, &element);
        if (status == ND_OK)
            status = take(reader, 8, &value->count);
        value->element = (nd_gguf_type)element;
        value->at = reader->at;
        return status == ND_OK ? take_elements(reader, value) : status;
    }
    if (!number_bytes(type))
        return header_error(reader, "a value has an unknown type");
    return take_elements(reader, value);
}

// ------------------------------------------------------------------------------------------------
// tensors

static nd_status read_entries(nd_gguf_reader *reader) {
    nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < reader->header->entry_count; i++)
        status = read_entry(reader, &reader->header->entries[i]);
    return status;
}

/// Name, sizes with the fastest first, type, and where its bytes are behind the header.
static nd_status read_entry(nd_gguf_reader *reader, nd_gguf_entry *entry) {
    uint64_t ndim = 0, type = 0, size = 0;
    nd_status status = take_name(reader, &entry->name);
    if (status == ND_OK)
        status = take(reader, 4, &ndim);
    if (status != ND_OK)
        return status;
    if (ndim > ND_MAX_DIMS)
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: '%s': tensor '%.100s' has %llu dimensions, ndarc has at most %d",
                         reader->file->operation, reader->file->path, name_of(reader, entry),
                         (unsigned long long)ndim, ND_MAX_DIMS);
    entry->ndim = (int)ndim;
    for (int axis = entry->ndim - 1; axis >= 0; axis--) {
        status = take(reader, 8, &size);
        if (status != ND_OK)
            return status;
        if (size > INT64_MAX)
            return header_error(reader, "a size does not fit 63 bits");
        entry->shape[axis] = (int64_t)size;
    }
    status = take(reader, 4, &type);
    entry->type = (uint32_t)type;
    return status == ND_OK ? take(reader, 8, &entry->begin) : status;
}

/// Bytes of an entry, by its type and shape. ND_ERROR_FORMAT where they cannot be.
static nd_status set_bytes(const nd_gguf_reader *reader, nd_gguf_entry *entry) {
    const nd_gguf_block *block = nd__gguf_block_of(entry->type);
    const char *operation = reader->file->operation, *path = reader->file->path;
    char shape[ND__SHAPE_TEXT];
    if (!block)
        return nd__error(ND_ERROR_FORMAT, "%s: '%s': tensor '%.100s' has the unknown type %u",
                         operation, path, name_of(reader, entry), entry->type);
    // Of eight bytes for each element, so that the tensor that is made of them fits as well.
    int64_t most = nd__elements_bytes(ND_F64, entry->ndim, entry->shape);
    if (most < 0)
        return nd__error(
            ND_ERROR_FORMAT,
            "%s: '%s': tensor '%.100s' has the shape %s, more bytes than 64 bits count", operation,
            path, name_of(reader, entry), nd__shape_text(shape, entry->ndim, entry->shape));
    int64_t last = entry->ndim ? entry->shape[entry->ndim - 1] : 1;
    if (block->elements && last % block->elements != 0)
        return nd__error(ND_ERROR_FORMAT,
                         "%s: '%s': tensor '%.100s' of %s has %lld elements along its last axis, "
                         "no multiple of %d",
                         operation, path, name_of(reader, entry), block->name, (long long)last,
                         block->elements);
    if (block->elements)
        entry->bytes = (uint64_t)(most / 8 / block->elements * block->bytes);
    return ND_OK;
}

/// The file's own alignment of tensors, where it has one.
static nd_status find_alignment(const nd_gguf_reader *reader, uint64_t *ret_alignment) {
    const nd_gguf_value *value = nd__gguf_header_value(reader->header, "general.alignment");
    *ret_alignment = ALIGNMENT;
    if (!value)
        return ND_OK;
    if (value->type == ND_GGUF_U32)
        *ret_alignment = nd__elements_u32(reader->header->text + value->at);
    if (value->type != ND_GGUF_U32 || *ret_alignment == 0 ||
        (*ret_alignment & (*ret_alignment - 1)) != 0)
        return nd__error(ND_ERROR_FORMAT,
                         "%s: '%s' has a general.alignment that is no power of two of 32 bits",
                         reader->file->operation, reader->file->path);
    return ND_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_places(const void *a, const void *b) {
    const nd_gguf_entry *x = *(const nd_gguf_entry *const *)a;
    const nd_gguf_entry *y = *(const nd_gguf_entry *const *)b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/// Keys are there once, and so are names.
static nd_status check_names(const nd_gguf_reader *reader) {
    const nd_gguf_header *header = reader->header;
    size_t most =
        header->value_count > header->entry_count ? header->value_count : header->entry_count;
    const char **names = nd__pressure_alloc((most + 1) * sizeof *names);
    if (!names)
        return no_memory(reader);
    nd_status status = ND_OK;
    for (int what = 0; what < 2; what++) {
        size_t count = what ? header->entry_count : header->value_count;
        for (size_t i = 0; i < count; i++)
            names[i] = nd__gguf_header_string(header, what ? header->entries[i].name
                                                           : header->values[i].key);
        qsort(names, count, sizeof *names, compare_names);
        for (size_t i = 1; status == ND_OK && i < count; i++)
            if (strcmp(names[i - 1], names[i]) == 0)
                status = nd__error(ND_ERROR_FORMAT, "%s: '%s' has the %s '%.100s' twice",
                                   reader->file->operation, reader->file->path,
                                   what ? "tensor" : "key", names[i]);
    }
    nd__alloc_free(names);
    return status;
}

/// Tensors are aligned, in the file, and apart.
static nd_status check_entries(const nd_gguf_reader *reader) {
    const nd_gguf_header *header = reader->header;
    const nd_file *file = reader->file;
    uint64_t alignment = ALIGNMENT;
    nd_status status = find_alignment(reader, &alignment);
    const nd_gguf_entry **sorted =
        status == ND_OK ? nd__pressure_alloc((header->entry_count + 1) * sizeof *sorted) : NULL;
    if (!sorted)
        return status == ND_OK ? no_memory(reader) : status;
    uint64_t data = (reader->at + alignment - 1) / alignment * alignment;
    for (size_t i = 0; status == ND_OK && i < header->entry_count; i++) {
        nd_gguf_entry *entry = &header->entries[i];
        sorted[i] = entry;
        status = set_bytes(reader, entry);
        if (status != ND_OK)
            break;
        bool outside = data > file->size || entry->begin > file->size - data ||
                       entry->bytes > file->size - data - entry->begin;
        // One without elements is nowhere.
        bool nowhere = entry->bytes == 0 && nd__gguf_block_of(entry->type)->bytes;
        entry->begin = nowhere ? 0 : entry->begin;
        if (!nowhere && (outside || entry->begin % alignment != 0))
            status = nd__error(ND_ERROR_FORMAT,
                               "%s: '%s': tensor '%.100s' of %llu bytes lies at byte %llu behind "
                               "the header, %s",
                               file->operation, file->path, name_of(reader, entry),
                               (unsigned long long)entry->bytes, (unsigned long long)entry->begin,
                               outside ? "beyond the file" : "which is not aligned");
        entry->begin += data;
    }
    if (status == ND_OK)
        qsort(sorted, header->entry_count, sizeof *sorted, compare_places);
    for (size_t i = 1; status == ND_OK && i < header->entry_count; i++)
        if (sorted[i]->begin < sorted[i - 1]->begin + sorted[i - 1]->bytes)
            status = nd__error(ND_ERROR_FORMAT, "%s: '%s': tensors '%.100s' and '%.100s' overlap",
                               file->operation, file->path, name_of(reader, sorted[i - 1]),
                               name_of(reader, sorted[i]));
    nd__alloc_free(sorted);
    return status;
}
