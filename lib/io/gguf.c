// Open GGUF files.
//
// Invariant: header, path and descriptor do not change while the object lives, so that any number
// of threads may read. A tensor that is being read has a file of its own over the same descriptor.
#include "kernels/half.h"
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/float_mode.h"
#include "lib/base/versioned.h"
#include "lib/io/elements.h"
#include "lib/io/gguf_blocks.h"
#include "lib/io/gguf_header.h"
#include "lib/manager/place.h"
#include "lib/object/object.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/tensor.h"
#include <nd/gguf.h>

#include <string.h>

struct nd_gguf {
    nd_object header;
    nd_file file;
    nd_gguf_header content;
    char *path; ///< owned, for errors of later reads
};

static void destroy(nd_object *self);
static const nd_type gguf_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "gguf",
    .flags = ND_TYPE_GREEN,
    .destroy = destroy,
};

static const nd_dtype dtypes[] = {
    [ND_GGUF_U8] = ND_U8,   [ND_GGUF_I8] = ND_I8,     [ND_GGUF_U16] = ND_U16,
    [ND_GGUF_I16] = ND_I16, [ND_GGUF_U32] = ND_U32,   [ND_GGUF_I32] = ND_I32,
    [ND_GGUF_F32] = ND_F32, [ND_GGUF_BOOL] = ND_BOOL, [ND_GGUF_U64] = ND_U64,
    [ND_GGUF_I64] = ND_I64, [ND_GGUF_F64] = ND_F64,
};

static nd_status check_open(const char *operation, const nd_gguf *gguf);
static const nd_gguf_value *find_value(const char *operation, const nd_gguf *gguf, const char *key);
static const nd_gguf_value *find_array(const char *operation, const nd_gguf *gguf, const char *key);
static const nd_gguf_entry *find_entry(const char *operation, const nd_gguf *gguf,
                                       const char *name);
static nd_status type_error(const char *operation, const nd_gguf *gguf, const char *key,
                            const char *wanted);
static nd_status dequantize(nd_file *file, const nd_gguf_entry *entry, nd_tensor *tensor);
static nd_status split(nd_file *file, const nd_gguf_entry *entry, nd_tensor *values,
                       nd_tensor *scales);

nd_gguf *nd_gguf_open(const char *path) {
    ND__UNCANCELLED;
    static const char operation[] = "gguf_open";
    nd_file file;
    if (nd__file_open(&file, operation, path) != ND_OK)
        return NULL;
    nd_gguf *gguf = (nd_gguf *)nd__object_new(&gguf_type, sizeof *gguf);
    if (!gguf) {
        nd__file_close(&file);
        return NULL;
    }
    gguf->file = file;
    size_t bytes = strlen(path) + 1;
    gguf->path = nd__pressure_alloc(bytes);
    nd_status status = ND_OK;
    if (gguf->path)
        memcpy(gguf->path, path, bytes);
    else
        status =
            nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the name '%s'", operation, path);
    if (status == ND_OK)
        status = nd__gguf_header_read(&gguf->content, &gguf->file);
    if (status != ND_OK) {
        nd_release(gguf);
        return NULL;
    }
    gguf->file.path = gguf->path;
    return nd__place_publish_or_release(nd__place_begin(NULL, 0), &gguf->header);
}

static void destroy(nd_object *self) {
    nd_gguf *gguf = (nd_gguf *)self;
    nd__file_close(&gguf->file);
    nd__gguf_header_free(&gguf->content);
    nd__alloc_free(gguf->path);
    gguf->path = NULL;
}

// ------------------------------------------------------------------------------------------------
// values

uint32_t nd_gguf_get_version(const nd_gguf *gguf) {
    return gguf && !nd__object_is_closed(gguf) ? gguf->content.version : 0;
}

size_t nd_gguf_get_size(const nd_gguf *gguf) {
    return gguf && !nd__object_is_closed(gguf) ? gguf->content.value_count : 0;
}

const char *nd_gguf_get_key(const nd_gguf *gguf, size_t index) {
    if (check_open("gguf_get_key", gguf) != ND_OK)
        return NULL;
    if (index < gguf->content.value_count)
        return nd__gguf_header_string(&gguf->content, gguf->content.values[index].key);
    nd__error(ND_ERROR_INVALID_ARGUMENT, "gguf_get_key: index %zu of the %zu values of '%s'", index,
              gguf->content.value_count, gguf->path);
    return NULL;
}

bool nd_gguf_contains(const nd_gguf *gguf, const char *key) {
    return gguf && key && !nd__object_is_closed(gguf) &&
           nd__gguf_header_value(&gguf->content, key) != NULL;
}

nd_status nd_gguf_get_type(const nd_gguf *gguf, const char *key, nd_gguf_type *ret_type,
                           nd_gguf_type *ret_element) {
    const nd_gguf_value *value = find_value("gguf_get_type", gguf, key);
    if (!value)
        return nd_error_get_status();
    if (!ret_type)
        return nd__error_null("gguf_get_type", "ret_type");
    *ret_type = value->type;
    if (ret_element)
        *ret_element = value->element;
    return ND_OK;
}

nd_status nd_gguf_get_i64(const nd_gguf *gguf, const char *key, int64_t *ret_value) {
    static const char operation[] = "gguf_get_i64";
    const nd_gguf_value *value = find_value(operation, gguf, key);
    if (!value)
        return nd_error_get_status();
    if (!ret_value)
        return nd__error_null(operation, "ret_value");
    const unsigned char *at = gguf->content.text + value->at;
    bool is_signed = value->type == ND_GGUF_I8 || value->type == ND_GGUF_I16 ||
                     value->type == ND_GGUF_I32 || value->type == ND_GGUF_I64;
    bool is_unsigned = value->type == ND_GGUF_U8 || value->type == ND_GGUF_U16 ||
                       value->type == ND_GGUF_U32 || value->type == ND_GGUF_U64;
    if (!is_signed && !is_unsigned)
        return type_error(operation, gguf, key, "an integer");
    uint64_t bits = 0;
    memcpy(&bits, at, value->bytes);
    unsigned unused = 64 - 8 * (unsigned)value->bytes;
    if (is_unsigned && bits > INT64_MAX)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: '%.100s' of '%s' is %llu, beyond 63 bits",
                         operation, key, gguf->path, (unsigned long long)bits);
    *ret_value = is_signed ? (int64_t)(bits << unused) >> unused : (int64_t)bits;
    return ND_OK;
}

nd_status nd_gguf_get_f64(const nd_gguf *gguf, const char *key, double *ret_value) {
    static const char operation[] = "gguf_get_f64";
    const nd_gguf_value *value = find_value(operation, gguf, key);
    if (!value)
        return nd_error_get_status();
    if (!ret_value)
        return nd__error_null(operation, "ret_value");
    float narrow;
    if (value->type == ND_GGUF_F64)
        memcpy(ret_value, gguf->content.text + value->at, sizeof *ret_value);
    else if (value->type != ND_GGUF_F32)
        return type_error(operation, gguf, key, "a float");
    else {
        memcpy(&narrow, gguf->content.text + value->at, sizeof narrow);
        *ret_value = (double)narrow;
    }
    return ND_OK;
}

nd_status nd_gguf_get_bool(const nd_gguf *gguf, const char *key, bool *ret_value) {
    static const char operation[] = "gguf_get_bool";
    const nd_gguf_value *value = find_value(operation, gguf, key);
    if (!value)
        return nd_error_get_status();
    if (!ret_value)
        return nd__error_null(operation, "ret_value");
    if (value->type != ND_GGUF_BOOL)
        return type_error(operation, gguf, key, "a bool");
    *ret_value = gguf->content.text[value->at] != 0;
    return ND_OK;
}

nd_status nd_gguf_get_string(const nd_gguf *gguf, const char *key, const char **ret_text,
                             size_t *ret_bytes) {
    static const char operation[] = "gguf_get_string";
    const nd_gguf_value *value = find_value(operation, gguf, key);
    if (!value)
        return nd_error_get_status();
    if (!ret_text || !ret_bytes)
        return nd__error_null(operation, ret_text ? "ret_bytes" : "ret_text");
    if (value->type != ND_GGUF_STRING)
        return type_error(operation, gguf, key, "a string");
    *ret_text = (const char *)gguf->content.text + value->at;
    *ret_bytes = value->bytes;
    return ND_OK;
}

nd_status nd_gguf_get_array_size(const nd_gguf *gguf, const char *key, size_t *ret_size) {
    const nd_gguf_value *value = find_array("gguf_get_array_size", gguf, key);
    if (!value)
        return nd_error_get_status();
    if (!ret_size)
        return nd__error_null("gguf_get_array_size", "ret_size");
    *ret_size = (size_t)value->count;
    return ND_OK;
}

nd_tensor *nd_gguf_load_array(const nd_gguf *gguf, const char *key) {
    static const char operation[] = "gguf_load_array";
    const nd_gguf_value *value = find_array(operation, gguf, key);
    if (!value)
        return NULL;
    if (value->element == ND_GGUF_STRING) {
        type_error(operation, gguf, key, "an array of numbers");
        return NULL;
    }
    const int64_t size = (int64_t)value->count;
    nd_tensor *tensor = nd__elements_new(operation, dtypes[value->element], 1, &size);
    if (!tensor)
        return NULL;
    memcpy(tensor->data, gguf->content.text + value->at, value->bytes);
    unsigned char *byte = tensor->data;
    for (int64_t i = 0; value->element == ND_GGUF_BOOL && i < size; i++)
        byte[i] = byte[i] != 0;
    return tensor;
}

bool nd_gguf_next_string(const nd_gguf *gguf, const char *key, size_t *at, const char **ret_text,
                         size_t *ret_bytes) {
    if (!gguf || !key || !at || nd__object_is_closed(gguf))
        return false;
    const nd_gguf_value *value = nd__gguf_header_value(&gguf->content, key);
    if (!value || value->type != ND_GGUF_ARRAY || value->element != ND_GGUF_STRING ||
        value->bytes < 8 || *at > value->bytes - 8)
        return false;
    const unsigned char *text = gguf->content.text + value->at + *at;
    size_t bytes = (size_t)nd__elements_u64(text);
    if (bytes > value->bytes - 8 - *at)
        return false; // no place that a call has left
    if (ret_text)
        *ret_text = (const char *)text + 8;
    if (ret_bytes)
        *ret_bytes = bytes;
    *at += 8 + bytes;
    return true;
}

// ------------------------------------------------------------------------------------------------
// tensors

size_t nd_gguf_get_tensor_count(const nd_gguf *gguf) {
    return gguf && !nd__object_is_closed(gguf) ? gguf->content.entry_count : 0;
}

const char *nd_gguf_get_tensor_name(const nd_gguf *gguf, size_t index) {
    static const char operation[] = "gguf_get_tensor_name";
    if (check_open(operation, gguf) != ND_OK)
        return NULL;
    if (index < gguf->content.entry_count)
        return nd__gguf_header_string(&gguf->content, gguf->content.entries[index].name);
    nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: index %zu of the %zu tensors of '%s'", operation,
              index, gguf->content.entry_count, gguf->path);
    return NULL;
}

const char *nd_gguf_get_tensor_type(const nd_gguf *gguf, const char *name) {
    const nd_gguf_entry *entry = find_entry("gguf_get_tensor_type", gguf, name);
    return entry ? nd__gguf_block_of(entry->type)->name : NULL;
}

nd_status nd_gguf_get_tensor_shape(const nd_gguf *gguf, const char *name, int *ret_ndim,
                                   int64_t *ret_shape) {
    static const char operation[] = "gguf_get_tensor_shape";
    const nd_gguf_entry *entry = find_entry(operation, gguf, name);
    if (!entry)
        return nd_error_get_status();
    if (!ret_ndim || !ret_shape)
        return nd__error_null(operation, ret_ndim ? "ret_shape" : "ret_ndim");
    *ret_ndim = entry->ndim;
    memcpy(ret_shape, entry->shape, sizeof entry->shape);
    return ND_OK;
}

nd_tensor *nd_gguf_load_tensor(const nd_gguf *gguf, const char *name, nd_dtype dtype,
                               const nd_load_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "gguf_load_tensor";
    nd_load_options chosen = ND_LOAD_OPTIONS_INIT;
    if (nd__versioned_read(operation, "ND_LOAD_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
        ND_OK)
        return NULL;
    const nd_gguf_entry *entry = find_entry(operation, gguf, name);
    if (!entry)
        return NULL;
    const nd_gguf_block *block = nd__gguf_block_of(entry->type);
    nd_file file = gguf->file;
    file.operation = operation;
    if (!block->bytes) {
        nd__error(ND_ERROR_UNSUPPORTED,
                  "%s: '%s': tensor '%.100s' is of %s, which ndarc does not have", operation,
                  gguf->path, name, block->name);
        return NULL;
    }
    if (block->elements == 1)
        return nd__elements_read(&file, entry->begin, chosen.mapped, block->dtype, entry->ndim,
                                 entry->shape);
    if (dtype != ND_F32 && dtype != ND_F16 && dtype != ND_BF16) {
        nd__error(ND_ERROR_DTYPE, "%s: a tensor of %s becomes f32, f16 or bf16, not %s", operation,
                  block->name, nd_dtype_get_name(dtype));
        return NULL;
    }
    nd_tensor *tensor = nd__elements_new(operation, dtype, entry->ndim, entry->shape);
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    const bool is_read = tensor && dequantize(&file, entry, tensor) == ND_OK;
    nd__float_mode_end(&mode);
    if (tensor && !is_read) {
        nd_release(tensor);
        return NULL;
    }
    return tensor;
}

nd_status nd_gguf_load_quantized(const nd_gguf *gguf, const char *name, nd_tensor **ret_values,
                                 nd_tensor **ret_scales) {
    ND__UNCANCELLED;
    static const char operation[] = "gguf_load_quantized";
    const nd_gguf_entry *entry = find_entry(operation, gguf, name);
    if (!entry)
        return nd_error_get_status();
    if (!ret_values || !ret_scales)
        return nd__error_null(operation, ret_values ? "ret_scales" : "ret_values");
    bool narrow = entry->type == ND__GGUF_BLOCK_Q4_0;
    if ((!narrow && entry->type != ND__GGUF_BLOCK_Q8_0) || entry->ndim == 0)
        return nd__error(ND_ERROR_UNSUPPORTED,
                         "%s: '%s': tensor '%.100s' is of %s; only Q8_0 and Q4_0 have values and "
                         "scales",
                         operation, gguf->path, name, nd__gguf_block_of(entry->type)->name);
    int64_t shape[ND_MAX_DIMS], groups[ND_MAX_DIMS];
    memcpy(shape, entry->shape, sizeof shape);
    memcpy(groups, entry->shape, sizeof groups);
    shape[entry->ndim - 1] /= narrow ? 2 : 1;
    groups[entry->ndim - 1] /= 32;
    nd_file file = gguf->file;
    file.operation = operation;
    nd_auto nd_tensor *values =
        nd__elements_new(operation, narrow ? ND_U8 : ND_I8, entry->ndim, shape);
    nd_auto nd_tensor *scales =
        values ? nd__elements_new(operation, ND_F16, entry->ndim, groups) : NULL;
    if (!scales || split(&file, entry, values, scales) != ND_OK)
        return nd_error_get_status();
    *ret_values = nd_steal(&values);
    *ret_scales = nd_steal(&scales);
    return ND_OK;
}

// ------------------------------------------------------------------------------------------------
// blocks

/// What is read at a time, so that nothing is in memory twice.
enum { BLOCKS = 64, BLOCK_BYTES_MAX = 144 };

static void round_elements(const float *elements, int64_t count, nd_dtype dtype,
                           void *ret_rounded) {
    uint16_t *halves = ret_rounded;
    if (dtype == ND_F32)
        memcpy(ret_rounded, elements, (size_t)count * sizeof *elements);
    for (int64_t i = 0; dtype == ND_F16 && i < count; i++)
        halves[i] = nd__f32_to_f16(elements[i]);
    for (int64_t i = 0; dtype == ND_BF16 && i < count; i++)
        halves[i] = nd__f32_to_bf16(elements[i]);
}

static nd_status dequantize(nd_file *file, const nd_gguf_entry *entry, nd_tensor *tensor) {
    unsigned char packed[BLOCKS * BLOCK_BYTES_MAX];
    float elements[ND__GGUF_BLOCK_MAX];
    const nd_gguf_block *block = nd__gguf_block_of(entry->type);
    const int64_t count = tensor->numel / block->elements;
    unsigned char *out = tensor->data;
    file->position = entry->begin;
    for (int64_t done = 0, piece; done < count; done += piece) {
        piece = count - done < BLOCKS ? count - done : BLOCKS;
        nd_status status = nd__file_read(file, packed, (size_t)(piece * block->bytes));
        if (status != ND_OK)
            return status;
        for (int64_t i = 0; i < piece; i++) {
            nd__gguf_block_dequantize(entry->type, packed + i * block->bytes, 1, elements);
            round_elements(elements, block->elements, tensor->dtype, out);
            out += block->elements * nd__dtype_bytes[tensor->dtype];
        }
    }
    return ND_OK;
}

static nd_status split(nd_file *file, const nd_gguf_entry *entry, nd_tensor *values,
                       nd_tensor *scales) {
    unsigned char packed[BLOCKS * BLOCK_BYTES_MAX];
    const nd_gguf_block *block = nd__gguf_block_of(entry->type);
    const int64_t value_bytes = block->bytes - 2;
    file->position = entry->begin;
    for (int64_t done = 0, piece; done < scales->numel; done += piece) {
        piece = scales->numel - done < BLOCKS ? scales->numel - done : BLOCKS;
        nd_status status = nd__file_read(file, packed, (size_t)(piece * block->bytes));
        if (status != ND_OK)
            return status;
        nd__gguf_block_split(entry->type, packed, piece, (uint16_t *)scales->data + done,
                             (unsigned char *)values->data + done * value_bytes);
    }
    return ND_OK;
}

// ------------------------------------------------------------------------------------------------
// checks

static nd_status check_open(const char *operation, const nd_gguf *gguf) {
    if (!gguf)
        return nd__error_null(operation, "gguf");
    if (nd__object_is_closed(gguf))
        return nd__error(ND_ERROR_CLOSED, "%s: the GGUF file was closed", operation);
    return ND_OK;
}

static const nd_gguf_value *find_value(const char *operation, const nd_gguf *gguf,
                                       const char *key) {
    if (check_open(operation, gguf) != ND_OK)
        return NULL;
    const nd_gguf_value *value = key ? nd__gguf_header_value(&gguf->content, key) : NULL;
    if (!key)
        nd__error_null(operation, "key");
    else if (!value)
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: '%s' has no value '%.100s'", operation,
                  gguf->path, key);
    return value;
}

static const nd_gguf_value *find_array(const char *operation, const nd_gguf *gguf,
                                       const char *key) {
    const nd_gguf_value *value = find_value(operation, gguf, key);
    if (!value || value->type == ND_GGUF_ARRAY)
        return value;
    type_error(operation, gguf, key, "an array");
    return NULL;
}

static const nd_gguf_entry *find_entry(const char *operation, const nd_gguf *gguf,
                                       const char *name) {
    if (check_open(operation, gguf) != ND_OK)
        return NULL;
    const nd_gguf_entry *entry = name ? nd__gguf_header_entry(&gguf->content, name) : NULL;
    if (!name)
        nd__error_null(operation, "name");
    else if (!entry)
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: '%s' has no tensor '%.100s'", operation,
                  gguf->path, name);
    return entry;
}

static nd_status type_error(const char *operation, const nd_gguf *gguf, const char *key,
                            const char *wanted) {
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: '%.100s' of '%s' is not %s", operation, key,
                     gguf->path, wanted);
}
