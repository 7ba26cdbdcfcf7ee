// The index of a model in several safetensors files: {"metadata": {...}, "weight_map": {name:
// file}}.
//
// Invariant: every tensor of every file is the one that the index puts there, and the other way
// round; else nothing is returned. A file's name never leads out of the index's folder.
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/io/json.h"
#include "lib/io/safetensors_read.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include <nd/io.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/// An index has a line for each tensor; this is a million of them.
#define INDEX_BYTES_MAX 100000000u

static const char operation[] = "load_safetensors_index";

// A name and where it is.
typedef struct nd_indexed {
    const char *name;
    const char *shard;
    size_t position;   ///< in the index
    nd_tensor *tensor; ///< owned, once it was read
} nd_indexed;

typedef struct nd_index {
    const char *path;
    char *text;          ///< owned; the names live in it
    nd_indexed *entries; ///< owned
    size_t count;
    size_t capacity;
    bool has_map;
    bool mapped;
} nd_index;

static nd_status read_text(nd_index *index, nd_json *ret_json);
static nd_status parse(nd_index *index, nd_json *json);
static nd_status parse_map(nd_index *index, nd_json *json);
static nd_status check_names(nd_index *index);
static nd_status load_shards(nd_index *index);
static nd_status load_shard(const nd_index *index, nd_indexed *entries, size_t count);
static nd_list *to_list(nd_index *index);

nd_list *nd_load_safetensors_index(const char *path, const nd_load_options *options) {
    ND__UNCANCELLED;
    nd_load_options chosen = ND_LOAD_OPTIONS_INIT;
    if (nd__versioned_read(operation, "ND_LOAD_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
        ND_OK)
        return NULL;
    nd_index index = {.path = path, .mapped = chosen.mapped};
    nd_json json = {.text = NULL};
    nd_status status = read_text(&index, &json);
    if (status == ND_OK)
        status = parse(&index, &json);
    if (status == ND_OK)
        status = check_names(&index);
    if (status == ND_OK)
        status = load_shards(&index);
    nd_list *list = status == ND_OK ? to_list(&index) : NULL;
    for (size_t i = 0; i < index.count; i++)
        nd_release(index.entries[i].tensor);
    nd__alloc_free(index.entries);
    nd__alloc_free(index.text);
    return list;
}

static nd_status read_text(nd_index *index, nd_json *ret_json) {
    nd_file file;
    nd_status status = nd__file_open(&file, operation, index->path);
    if (status != ND_OK)
        return status;
    if (file.size > INDEX_BYTES_MAX)
        status = nd__error(ND_ERROR_FORMAT, "%s: '%s' has %llu bytes, an index has at most %u",
                           operation, index->path, (unsigned long long)file.size, INDEX_BYTES_MAX);
    if (status == ND_OK && !(index->text = nd__pressure_alloc((size_t)file.size + 1)))
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for '%s', %llu bytes", operation,
                           index->path, (unsigned long long)file.size);
    if (status == ND_OK)
        status = nd__file_read(&file, index->text, (size_t)file.size);
    *ret_json = (nd_json){.text = index->text, .size = (size_t)file.size};
    nd__file_close(&file);
    return status;
}

static nd_status json_error(const nd_index *index, const nd_json *json) {
    return nd__error(ND_ERROR_FORMAT, "%s: '%s' is malformed at byte %zu: %s", operation,
                     index->path, json->position,
                     json->problem ? json->problem : "unexpected text");
}

/// The outer object; what is not weight_map is for people.
static nd_status parse(nd_index *index, nd_json *json) {
    bool fine = nd__json_expect(json, '{', "an object was expected");
    for (bool first = true; fine && !nd__json_take(json, '}'); first = false) {
        const char *key = NULL;
        fine = (first || nd__json_expect(json, ',', "a comma or } was expected")) &&
               nd__json_string(json, &key) && nd__json_expect(json, ':', "a colon was expected");
        if (!fine)
            break;
        if (strcmp(key, "weight_map") != 0) {
            fine = nd__json_skip(json);
            continue;
        }
        if (index->has_map)
            return nd__error(ND_ERROR_FORMAT, "%s: '%s' has weight_map twice", operation,
                             index->path);
        index->has_map = true;
        nd_status status = parse_map(index, json);
        if (status != ND_OK)
            return status;
    }
    if (!fine || !nd__json_at_end(json))
        return json_error(index, json);
    if (!index->has_map)
        return nd__error(ND_ERROR_FORMAT, "%s: '%s' has no weight_map", operation, index->path);
    return ND_OK;
}

static nd_status add_entry(nd_index *index, const char *name, const char *shard) {
    if (index->count == index->capacity) {
        size_t capacity = index->capacity ? 2 * index->capacity : 16;
        nd_indexed *grown = nd__pressure_alloc_resize(index->entries, capacity * sizeof *grown);
        if (!grown)
            return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the %zu tensors of '%s'",
                             operation, index->count, index->path);
        index->entries = grown;
        index->capacity = capacity;
    }
    index->entries[index->count] = (nd_indexed){name, shard, index->count, NULL};
    index->count++;
    return ND_OK;
}

static nd_status parse_map(nd_index *index, nd_json *json) {
    bool fine = nd__json_expect(json, '{', "an object was expected as weight_map");
    for (bool first = true; fine && !nd__json_take(json, '}'); first = false) {
        const char *name = NULL, *shard = NULL;
        fine = (first || nd__json_expect(json, ',', "a comma or } was expected")) &&
               nd__json_string(json, &name) && nd__json_expect(json, ':', "a colon was expected") &&
               nd__json_string(json, &shard);
        if (!fine)
            break;
        if (!*shard || strchr(shard, '/') || strcmp(shard, "..") == 0 || strcmp(shard, ".") == 0)
            return nd__error(ND_ERROR_FORMAT,
                             "%s: '%s' puts '%.100s' into '%.100s', which is no file beside it",
                             operation, index->path, name, shard);
        nd_status status = add_entry(index, name, shard);
        if (status != ND_OK)
            return status;
    }
    return fine ? ND_OK : json_error(index, json);
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const nd_indexed *)a)->name, ((const nd_indexed *)b)->name);
}

static int compare_shards(const void *a, const void *b) {
    int order = strcmp(((const nd_indexed *)a)->shard, ((const nd_indexed *)b)->shard);
    return order ? order : compare_names(a, b);
}

static int compare_positions(const void *a, const void *b) {
    const nd_indexed *x = a, *y = b;
    return (x->position > y->position) - (x->position < y->position);
}

static nd_status check_names(nd_index *index) {
    if (index->count)
        qsort(index->entries, index->count, sizeof *index->entries, compare_names);
    for (size_t i = 1; i < index->count; i++)
        if (compare_names(&index->entries[i - 1], &index->entries[i]) == 0)
            return nd__error(ND_ERROR_FORMAT, "%s: '%s' has the name '%.100s' twice", operation,
                             index->path, index->entries[i].name);
    return ND_OK;
}

/// Shard by shard, so that one file is open at a time.
static nd_status load_shards(nd_index *index) {
    nd_status status = ND_OK;
    if (index->count)
        qsort(index->entries, index->count, sizeof *index->entries, compare_shards);
    for (size_t begin = 0, end; status == ND_OK && begin < index->count; begin = end) {
        for (end = begin + 1; end < index->count; end++)
            if (strcmp(index->entries[begin].shard, index->entries[end].shard) != 0)
                break;
        status = load_shard(index, &index->entries[begin], end - begin);
    }
    return status;
}

/// Path of a file beside the index; owned. NULL with an error.
static char *path_beside(const nd_index *index, const char *shard) {
    const char *slash = strrchr(index->path, '/');
    size_t folder = slash ? (size_t)(slash - index->path) + 1 : 0;
    size_t bytes = folder + strlen(shard) + 1;
    char *path = nd__pressure_alloc(bytes);
    if (path)
        snprintf(path, bytes, "%.*s%s", (int)folder, index->path, shard);
    else
        nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the name of '%.100s', a part of '%s'",
                  operation, shard, index->path);
    return path;
}

/// Adds to the error of a file which index it is a part of.
static nd_status name_index(const nd_index *index) {
    nd_error_state error;
    nd__error_save(&error);
    return nd__error(error.status, "%.600s (a part of '%.300s')", error.message, index->path);
}

/// Reads the tensors of one file, whose entries are sorted by name.
static nd_status load_shard(const nd_index *index, nd_indexed *entries, size_t count) {
    char *path = path_beside(index, entries->shard);
    if (!path)
        return nd_error_get_status();
    nd_safetensors table;
    nd_status status = nd__safetensors_open(&table, operation, path);
    if (status != ND_OK) {
        nd__alloc_free(path);
        return name_index(index);
    }
    table.mapped = index->mapped;
    for (size_t i = 0; status == ND_OK && i < table.count; i++) {
        nd_indexed key = {.name = table.entries[i].name};
        nd_indexed *entry = bsearch(&key, entries, count, sizeof *entries, compare_names);
        if (!entry)
            status = nd__error(ND_ERROR_FORMAT,
                               "%s: '%s' has a tensor '%.100s', which '%s' does not put there",
                               operation, path, key.name, index->path);
        else if (!(entry->tensor = nd__safetensors_read(&table, &table.entries[i])))
            status = name_index(index);
    }
    for (size_t i = 0; status == ND_OK && i < count; i++)
        if (!entries[i].tensor)
            status = nd__error(ND_ERROR_FORMAT,
                               "%s: '%s' says that '%.100s' is in '%s', which does not have it",
                               operation, index->path, entries[i].name, path);
    nd__safetensors_close(&table);
    nd__alloc_free(path);
    return status;
}

static nd_list *to_list(nd_index *index) {
    nd_list *list = nd_list_new();
    if (index->count)
        qsort(index->entries, index->count, sizeof *index->entries, compare_positions);
    for (size_t i = 0; list && i < index->count; i++)
        if (nd_list_append(list, index->entries[i].tensor) != ND_OK) {
            nd_release(list);
            list = NULL;
        }
    return list;
}
