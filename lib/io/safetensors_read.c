// Reading safetensors files.
//
// Invariant: nothing that the header says is believed before it was checked, and no allocation is
// larger than the file can justify: the header is at most the file's size, a tensor at most its
// range of the file. Must not accept what the format's definition refuses (holes, overlaps,
// duplicate names), because two readers would then see different tensors.
#include "lib/io/safetensors_read.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/io/elements.h"
#include "lib/io/json.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"
#include <nd/io.h>

#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the data of a safetensors file is little endian");

/// The format's own limit on the header.
#define HEADER_BYTES_MAX 100000000u

// Names of the format by our dtype, and the ones it has beyond ours: those that are read as another
// one, and the rest, of which the format does not say how bits are put into bytes.
static const char *const dtype_names[ND_DTYPE_COUNT] = {
    [ND_BOOL] = "BOOL", [ND_U8] = "U8",   [ND_I32] = "I32",   [ND_I64] = "I64", [ND_F32] = "F32",
    [ND_F64] = "F64",   [ND_I8] = "I8",   [ND_I16] = "I16",   [ND_U16] = "U16", [ND_U32] = "U32",
    [ND_U64] = "U64",   [ND_F16] = "F16", [ND_BF16] = "BF16",
};
static const char *const narrow_names[] = {
    [ND__NARROW_E4M3] = "F8_E4M3",         [ND__NARROW_E5M2] = "F8_E5M2",
    [ND__NARROW_E4M3FNUZ] = "F8_E4M3FNUZ", [ND__NARROW_E5M2FNUZ] = "F8_E5M2FNUZ",
    [ND__NARROW_E8M0] = "F8_E8M0",         [ND__NARROW_E2M1] = "F4",
};
enum { NARROW_COUNT = sizeof narrow_names / sizeof *narrow_names };
static const char complex_name[] = "C64";
static const char *const foreign_dtype_names[] = {"F6_E2M3", "F6_E3M2"};

static nd_status read_header(nd_safetensors *table, size_t *ret_bytes);
static nd_status parse_header(nd_safetensors *table, nd_json *json);
static nd_status parse_member(nd_safetensors *table, nd_json *json);
static nd_status parse_metadata(nd_safetensors *table, nd_json *json);
static nd_status parse_entry(nd_safetensors *table, nd_json *json, nd_safetensors_entry *entry);
static nd_status parse_shape(nd_safetensors *table, nd_json *json, nd_safetensors_entry *entry);
static nd_status too_many_axes(const nd_safetensors *table, const nd_safetensors_entry *entry);
static nd_status set_dtype(const nd_safetensors *table, const char *name,
                           nd_safetensors_entry *entry);
static nd_status check_size(const nd_safetensors *table, const nd_safetensors_entry *entry);
static nd_status check_names(const nd_safetensors *table);
static nd_status check_ranges(const nd_safetensors *table);
static nd_status json_error(const nd_safetensors *table, const nd_json *json);
static nd_safetensors_entry *add_entry(nd_safetensors *table);

nd_list *nd_load_safetensors(const char *path) {
    return nd_load_safetensors_with(path, NULL);
}

nd_list *nd_load_safetensors_with(const char *path, const nd_load_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "load_safetensors";
    nd_load_options chosen = ND_LOAD_OPTIONS_INIT;
    nd_safetensors table;
    if (nd__versioned_read(operation, "ND_LOAD_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
            ND_OK ||
        nd__safetensors_open(&table, operation, path) != ND_OK)
        return NULL;
    table.mapped = chosen.mapped;
    nd_list *list = nd_list_new();
    for (size_t i = 0; list && i < table.count; i++) {
        nd_tensor *tensor = nd__safetensors_read(&table, &table.entries[i]);
        if (!tensor || nd_list_append(list, tensor) != ND_OK) {
            nd_release(list);
            list = NULL;
        }
        nd_release(tensor);
    }
    nd__safetensors_close(&table);
    return list;
}

nd_status nd__safetensors_open(nd_safetensors *table, const char *operation, const char *path) {
    *table = (nd_safetensors){.count = 0};
    nd_status status = nd__file_open(&table->file, operation, path);
    if (status != ND_OK)
        return status;
    nd_json json = {.text = NULL};
    status = read_header(table, &json.size);
    json.text = table->header;
    if (status == ND_OK)
        status = parse_header(table, &json);
    if (status == ND_OK)
        status = check_names(table);
    if (status == ND_OK)
        status = check_ranges(table);
    if (status != ND_OK)
        nd__safetensors_close(table);
    return status;
}

/// A tensor of a dtype that ndarc does not have: the bytes are read to the end of its memory.
static nd_tensor *read_narrow(nd_safetensors *table, const nd_safetensors_entry *entry) {
    nd_tensor *tensor =
        nd__elements_new(table->file.operation, entry->dtype, entry->ndim, entry->shape);
    if (!tensor || tensor->numel == 0)
        return tensor;
    size_t count = (size_t)tensor->numel, bytes = count * nd__dtype_bytes[entry->dtype];
    size_t narrow = (size_t)(entry->end - entry->begin);
    table->file.position = table->data_start + (uint64_t)entry->begin;
    if (nd__file_read(&table->file, (char *)tensor->data + (bytes - narrow), narrow) != ND_OK) {
        nd_release(tensor);
        return NULL;
    }
    nd__narrow_float_widen(entry->narrow, tensor->data, count);
    return tensor;
}

nd_tensor *nd__safetensors_read(nd_safetensors *table, const nd_safetensors_entry *entry) {
    nd_tensor *tensor =
        entry->narrow ? read_narrow(table, entry)
                      : nd__elements_read(&table->file, table->data_start + (uint64_t)entry->begin,
                                          table->mapped, entry->dtype, entry->ndim, entry->shape);
    if (!tensor)
        return NULL;
    int bad = nd__elements_bad_bool(tensor);
    nd_status status = ND_OK;
    if (bad)
        status = nd__error(ND_ERROR_FORMAT, "%s: '%s': tensor '%.100s' is BOOL and holds a byte %d",
                           table->file.operation, table->file.path, entry->name, bad);
    if (status == ND_OK)
        status = nd_set_name(tensor, entry->name);
    if (status != ND_OK) {
        nd_release(tensor);
        return NULL;
    }
    return tensor;
}

const nd_safetensors_entry *nd__safetensors_find(const nd_safetensors *table, const char *name) {
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->entries[i].name, name) == 0)
            return &table->entries[i];
    return NULL;
}

void nd__safetensors_close(nd_safetensors *table) {
    nd__file_close(&table->file);
    nd__alloc_free(table->header);
    nd__alloc_free(table->entries);
    table->header = NULL;
    table->entries = NULL;
    table->count = 0;
}

const char *nd__safetensors_dtype_name(nd_dtype dtype) {
    return (unsigned)dtype < ND_DTYPE_COUNT ? dtype_names[dtype] : NULL;
}

/// Reads the length and the text of the header, checked against the file's size.
static nd_status read_header(nd_safetensors *table, size_t *ret_bytes) {
    nd_file *file = &table->file;
    uint64_t length = 0;
    if (file->size < sizeof(length))
        return nd__error(
            ND_ERROR_FORMAT,
            "%s: '%s' has %llu bytes, too few for the 8 that a safetensors file begins with",
            file->operation, file->path, (unsigned long long)file->size);
    nd_status status = nd__file_read(file, &length, sizeof(length));
    if (status != ND_OK)
        return status;
    if (length > HEADER_BYTES_MAX || length > file->size - sizeof(length))
        return nd__error(ND_ERROR_FORMAT,
                         "%s: '%s' announces a header of %llu bytes; %llu follow in the file and "
                         "the format allows %u",
                         file->operation, file->path, (unsigned long long)length,
                         (unsigned long long)(file->size - sizeof(length)), HEADER_BYTES_MAX);
    table->header = nd__pressure_alloc((size_t)length + 1);
    if (!table->header)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the header of '%s', %llu bytes",
                         file->operation, file->path, (unsigned long long)length);
    table->data_start = sizeof(length) + length;
    *ret_bytes = (size_t)length;
    return nd__file_read(file, table->header, (size_t)length);
}

static nd_status parse_header(nd_safetensors *table, nd_json *json) {
    // The format wants the brace first: no white space, no byte order mark.
    if (json->size == 0 || json->text[0] != '{')
        return nd__error(ND_ERROR_FORMAT, "%s: the header of '%s' does not begin with {",
                         table->file.operation, table->file.path);
    json->position = 1;
    bool first = true;
    while (!nd__json_take(json, '}')) {
        if (!first && !nd__json_expect(json, ',', "a comma or } was expected"))
            return json_error(table, json);
        first = false;
        nd_status status = parse_member(table, json);
        if (status != ND_OK)
            return status;
    }
    if (!nd__json_at_end(json))
        return nd__error(ND_ERROR_FORMAT,
                         "%s: the header of '%s' goes on after its end, at byte %zu",
                         table->file.operation, table->file.path, json->position);
    return ND_OK;
}

/// One "name": {...} of the header.
static nd_status parse_member(nd_safetensors *table, nd_json *json) {
    const char *name = NULL;
    if (!nd__json_string(json, &name) || !nd__json_expect(json, ':', "a colon was expected"))
        return json_error(table, json);
    if (strcmp(name, ND__SAFETENSORS_METADATA) == 0)
        return parse_metadata(table, json);
    nd_safetensors_entry *entry = add_entry(table);
    if (!entry)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the %zu tensors of '%s'",
                         table->file.operation, table->count, table->file.path);
    entry->name = name;
    return parse_entry(table, json, entry);
}

/// Text for people, or null; checked and left out.
static nd_status parse_metadata(nd_safetensors *table, nd_json *json) {
    const char *text = NULL;
    if (table->has_metadata)
        return nd__error(ND_ERROR_FORMAT,
                         "%s: '%s' has the name '" ND__SAFETENSORS_METADATA "' twice",
                         table->file.operation, table->file.path);
    table->has_metadata = true;
    if (nd__json_peek(json) == 'n')
        return nd__json_skip(json) ? ND_OK : json_error(table, json);
    bool fine = nd__json_expect(json, '{', "an object was expected as metadata");
    for (bool first = true; fine && !nd__json_take(json, '}'); first = false)
        fine = (first || nd__json_expect(json, ',', "a comma or } was expected")) &&
               nd__json_string(json, &text) && nd__json_expect(json, ':', "a colon was expected") &&
               nd__json_string(json, &text);
    return fine ? ND_OK : json_error(table, json);
}

/// {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}, in any order, each once; what else
/// there is says nothing to this version of the format.
static nd_status parse_entry(nd_safetensors *table, nd_json *json, nd_safetensors_entry *entry) {
    enum { DTYPE = 1, SHAPE = 2, OFFSETS = 4 };
    int seen = 0;
    nd_status status = ND_OK;
    bool fine = nd__json_expect(json, '{', "an object was expected as the value of a name");
    for (bool first = true; fine && status == ND_OK && !nd__json_take(json, '}'); first = false) {
        const char *key = NULL;
        const char *text = NULL;
        fine = (first || nd__json_expect(json, ',', "a comma or } was expected")) &&
               nd__json_string(json, &key) && nd__json_expect(json, ':', "a colon was expected");
        if (!fine)
            break;
        int field = strcmp(key, "dtype") == 0          ? DTYPE
                    : strcmp(key, "shape") == 0        ? SHAPE
                    : strcmp(key, "data_offsets") == 0 ? OFFSETS
                                                       : 0;
        if (seen & field)
            return nd__error(ND_ERROR_FORMAT,
                             "%s: '%s': tensor '%.100s' has twice the field '%.100s'",
                             table->file.operation, table->file.path, entry->name, key);
        seen |= field;
        if (field == 0)
            fine = nd__json_skip(json);
        else if (field == DTYPE && (fine = nd__json_string(json, &text)))
            status = set_dtype(table, text, entry);
        else if (field == SHAPE)
            status = parse_shape(table, json, entry);
        else if (field == OFFSETS)
            fine = nd__json_expect(json, '[', "a list was expected as data_offsets") &&
                   nd__json_integer(json, &entry->begin) &&
                   nd__json_expect(json, ',', "a comma was expected") &&
                   nd__json_integer(json, &entry->end) &&
                   nd__json_expect(json, ']', "a ] was expected");
    }
    if (status != ND_OK)
        return status;
    if (!fine || json->problem)
        return json_error(table, json);
    if (seen != (DTYPE | SHAPE | OFFSETS))
        return nd__error(ND_ERROR_FORMAT,
                         "%s: '%s': tensor '%.100s' lacks dtype, shape or data_offsets",
                         table->file.operation, table->file.path, entry->name);
    if (entry->is_complex && entry->ndim == ND_MAX_DIMS)
        return too_many_axes(table, entry);
    if (entry->is_complex)
        entry->shape[entry->ndim++] = 2;
    return check_size(table, entry);
}

static nd_status too_many_axes(const nd_safetensors *table, const nd_safetensors_entry *entry) {
    return nd__error(
        ND_ERROR_UNSUPPORTED,
        "%s: '%s': tensor '%.100s' has more than %d dimensions, which ndarc does not have",
        table->file.operation, table->file.path, entry->name, ND_MAX_DIMS);
}

static nd_status parse_shape(nd_safetensors *table, nd_json *json, nd_safetensors_entry *entry) {
    bool fine = nd__json_expect(json, '[', "a list was expected as shape");
    while (fine && !nd__json_take(json, ']')) {
        if (entry->ndim == ND_MAX_DIMS)
            return too_many_axes(table, entry);
        fine = (entry->ndim == 0 || nd__json_expect(json, ',', "a comma or ] was expected")) &&
               nd__json_integer(json, &entry->shape[entry->ndim]);
        entry->ndim += fine;
    }
    return fine ? ND_OK : json_error(table, json);
}

static nd_status set_dtype(const nd_safetensors *table, const char *name,
                           nd_safetensors_entry *entry) {
    for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++)
        if (strcmp(name, dtype_names[dtype]) == 0) {
            entry->dtype = (nd_dtype)dtype;
            return ND_OK;
        }
    for (int kind = ND__NARROW_NONE + 1; kind < NARROW_COUNT; kind++)
        if (strcmp(name, narrow_names[kind]) == 0) {
            entry->narrow = (nd_narrow_float)kind;
            entry->dtype = nd__narrow_float_dtype(entry->narrow);
            return ND_OK;
        }
    if (strcmp(name, complex_name) == 0) {
        entry->is_complex = true;
        entry->dtype = ND_F32;
        return ND_OK;
    }
    for (size_t i = 0; i < sizeof(foreign_dtype_names) / sizeof(*foreign_dtype_names); i++)
        if (strcmp(name, foreign_dtype_names[i]) == 0)
            return nd__error(ND_ERROR_UNSUPPORTED,
                             "%s: '%s': tensor '%.100s' is %s, which ndarc does not have",
                             table->file.operation, table->file.path, entry->name, name);
    return nd__error(ND_ERROR_FORMAT, "%s: '%s': tensor '%.100s' has the unknown dtype '%.40s'",
                     table->file.operation, table->file.path, entry->name, name);
}

/// Of the tensor, as the format names it.
static const char *name_of_dtype(const nd_safetensors_entry *entry) {
    return entry->narrow       ? narrow_names[entry->narrow]
           : entry->is_complex ? complex_name
                               : nd_dtype_get_name(entry->dtype);
}

/// Shape times element size must be the range, without overflow on the way.
static nd_status check_size(const nd_safetensors *table, const nd_safetensors_entry *entry) {
    int64_t bytes = nd__elements_bytes(entry->dtype, entry->ndim, entry->shape);
    int64_t half_bytes = 0;
    if (entry->narrow && bytes > 0) {
        const int64_t count = bytes / nd__dtype_bytes[entry->dtype];
        bytes = count / nd__narrow_float_per_byte(entry->narrow);
        half_bytes = count % nd__narrow_float_per_byte(entry->narrow);
    }
    char text[ND__SHAPE_TEXT];
    nd__shape_text(text, entry->ndim - entry->is_complex, entry->shape); // as the file has it
    uint64_t data = table->file.size - table->data_start;
    if (bytes < 0)
        return nd__error(
            ND_ERROR_FORMAT,
            "%s: '%s': tensor '%.100s' has the shape %s, more bytes than 64 bits count",
            table->file.operation, table->file.path, entry->name, text);
    if (half_bytes)
        return nd__error(
            ND_ERROR_FORMAT, "%s: '%s': tensor '%.100s' of %s and shape %s ends within a byte",
            table->file.operation, table->file.path, entry->name, name_of_dtype(entry), text);
    if (entry->begin > entry->end || (uint64_t)entry->end > data)
        return nd__error(ND_ERROR_FORMAT,
                         "%s: '%s': tensor '%.100s' lies at bytes %lld to %lld of %llu",
                         table->file.operation, table->file.path, entry->name,
                         (long long)entry->begin, (long long)entry->end, (unsigned long long)data);
    if (entry->end - entry->begin != bytes)
        return nd__error(
            ND_ERROR_FORMAT,
            "%s: '%s': tensor '%.100s' of %s and shape %s needs %lld bytes, its range has %lld",
            table->file.operation, table->file.path, entry->name, name_of_dtype(entry), text,
            (long long)bytes, (long long)(entry->end - entry->begin));
    return ND_OK;
}

static int compare_names(const void *a, const void *b) {
    return strcmp((*(const nd_safetensors_entry *const *)a)->name,
                  (*(const nd_safetensors_entry *const *)b)->name);
}

static int compare_ranges(const void *a, const void *b) {
    const nd_safetensors_entry *x = *(const nd_safetensors_entry *const *)a;
    const nd_safetensors_entry *y = *(const nd_safetensors_entry *const *)b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/// Pointers to the entries, sorted; owned. NULL with an error.
static const nd_safetensors_entry **sorted_entries(const nd_safetensors *table,
                                                   int (*compare)(const void *, const void *)) {
    const nd_safetensors_entry **sorted = nd__pressure_alloc((table->count + 1) * sizeof(*sorted));
    if (!sorted) {
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the %zu tensors of '%s'",
                  table->file.operation, table->count, table->file.path);
        return NULL;
    }
    for (size_t i = 0; i < table->count; i++)
        sorted[i] = &table->entries[i];
    qsort(sorted, table->count, sizeof(*sorted), compare);
    return sorted;
}

static nd_status check_names(const nd_safetensors *table) {
    const nd_safetensors_entry **sorted = sorted_entries(table, compare_names);
    if (!sorted)
        return nd_error_get_status();
    nd_status status = ND_OK;
    for (size_t i = 1; status == ND_OK && i < table->count; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            status = nd__error(ND_ERROR_FORMAT, "%s: '%s' has the name '%.100s' twice",
                               table->file.operation, table->file.path, sorted[i]->name);
    nd__alloc_free(sorted);
    return status;
}

/// Sorted by where they begin, the ranges must follow each other without hole or overlap up to the
/// file's end.
static nd_status check_ranges(const nd_safetensors *table) {
    const nd_safetensors_entry **sorted = sorted_entries(table, compare_ranges);
    if (!sorted)
        return nd_error_get_status();
    nd_status status = ND_OK;
    int64_t covered = 0;
    for (size_t i = 0; status == ND_OK && i < table->count; i++) {
        if (sorted[i]->begin < covered)
            status = nd__error(
                ND_ERROR_FORMAT,
                "%s: '%s': tensor '%.100s' begins at byte %lld of the data, before another one "
                "ends at byte %lld",
                table->file.operation, table->file.path, sorted[i]->name,
                (long long)sorted[i]->begin, (long long)covered);
        else if (sorted[i]->begin > covered)
            status = nd__error(
                ND_ERROR_FORMAT,
                "%s: '%s': no tensor covers the data from byte %lld to byte %lld, where '%.100s' "
                "begins",
                table->file.operation, table->file.path, (long long)covered,
                (long long)sorted[i]->begin, sorted[i]->name);
        covered = sorted[i]->end;
    }
    uint64_t data = table->file.size - table->data_start;
    if (status == ND_OK && (uint64_t)covered != data)
        status = nd__error(ND_ERROR_FORMAT, "%s: '%s' has %llu bytes of data, its tensors %lld",
                           table->file.operation, table->file.path, (unsigned long long)data,
                           (long long)covered);
    nd__alloc_free(sorted);
    return status;
}

static nd_status json_error(const nd_safetensors *table, const nd_json *json) {
    return nd__error(ND_ERROR_FORMAT, "%s: the header of '%s' is malformed at byte %zu: %s",
                     table->file.operation, table->file.path, json->position,
                     json->problem ? json->problem : "unexpected text");
}

/// Room for one entry more, zeroed. NULL without memory.
static nd_safetensors_entry *add_entry(nd_safetensors *table) {
    if (table->count == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 16;
        nd_safetensors_entry *grown =
            nd__pressure_alloc_resize(table->entries, capacity * sizeof(*table->entries));
        if (!grown)
            return NULL;
        table->entries = grown;
        table->capacity = capacity;
    }
    nd_safetensors_entry *entry = &table->entries[table->count++];
    memset(entry, 0, sizeof(*entry));
    return entry;
}
