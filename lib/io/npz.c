// .npz files: zip archives of .npy files, each named after its array.
//
// Invariant: a map that was loaded has every array of the file, all checksums verified; an archive
// that is written takes its place only when it is complete.
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/io/elements.h"
#include "lib/io/named.h"
#include "lib/io/npy.h"
#include "lib/io/npy_header.h"
#include "lib/io/zip_read.h"
#include "lib/io/zip_write.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include <nd/io.h>
#include <nd/map.h>

#include <string.h>

/// What an array's name has behind it in the archive.
#define SUFFIX ".npy"
/// The longest name of an entry that a zip archive can have.
#define ENTRY_NAME_MAX 65535

static nd_status load_entry(const nd_zip_read *zip, nd_zip_entry *entry, nd_map *map);
static nd_status check_dtypes(const char *path, size_t count, const nd_tensor *const *tensors,
                              const char *const *names);
static nd_status save_entry(nd_zip_write *zip, const char *name, const nd_tensor *tensor,
                            bool compressed);

nd_map *nd_load_npz(const char *path) {
    ND__UNCANCELLED;
    nd_file file;
    nd_zip_read zip;
    if (nd__file_open(&file, "load_npz", path) != ND_OK)
        return NULL;
    if (nd__zip_read_open(&zip, &file) != ND_OK) {
        nd__file_close(&file);
        return NULL;
    }
    nd_map *map = nd_map_new();
    for (size_t i = 0; map && i < zip.count; i++)
        if (load_entry(&zip, &zip.entries[i], map) != ND_OK) {
            nd_release(map);
            map = NULL;
        }
    nd__zip_read_close(&zip);
    nd__file_close(&file);
    return map;
}

nd_status nd_save_npz(const char *path, size_t count, const char *const *names,
                      const nd_tensor *const *tensors, const nd_npz_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "save_npz";
    nd_npz_options chosen = ND_NPZ_OPTIONS_INIT;
    nd_status status =
        nd__versioned_read(operation, "ND_NPZ_OPTIONS_INIT", options, &chosen, sizeof chosen);
    if (status == ND_OK)
        status = nd__named_check(operation, path, count, names, tensors);
    if (status == ND_OK)
        status = check_dtypes(path, count, tensors, names);
    if (status != ND_OK)
        return status;
    nd_zip_write zip;
    status = nd__zip_write_create(&zip, operation, path);
    for (size_t i = 0; status == ND_OK && i < count; i++)
        status = save_entry(&zip, names[i], tensors[i], chosen.compressed);
    if (status == ND_OK)
        return nd__zip_write_commit(&zip);
    nd__zip_write_abandon(&zip);
    return status;
}

/// Reads an entry into the map, under its name without the suffix.
static nd_status load_entry(const nd_zip_read *zip, nd_zip_entry *entry, nd_map *map) {
    nd_content content = nd__zip_read_content(zip, entry);
    nd_auto nd_tensor *tensor = nd__npy_read(&content, false);
    nd__content_close(&content);
    if (!tensor)
        return nd_error_get_status();
    size_t length = strlen(entry->name), suffix = strlen(SUFFIX);
    if (length >= suffix && strcmp(entry->name + length - suffix, SUFFIX) == 0)
        entry->name[length - suffix] = '\0';
    if (nd_map_contains(map, entry->name))
        return nd__error(ND_ERROR_FORMAT, "%s: '%s' has two arrays of the name '%.100s'",
                         zip->file->operation, zip->file->path, entry->name);
    return nd_map_set(map, entry->name, tensor);
}

/// What can be refused is, before a file is begun.
static nd_status check_dtypes(const char *path, size_t count, const nd_tensor *const *tensors,
                              const char *const *names) {
    char header[ND__NPY_HEADER_BYTES];
    for (size_t i = 0; i < count; i++) {
        if (!nd__npy_header_compose("save_npz", path, tensors[i], header))
            return nd_error_get_status();
        if (strlen(names[i]) + strlen(SUFFIX) > ENTRY_NAME_MAX)
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "save_npz: the name of tensor %zu is longer than a zip archive allows",
                             i);
    }
    return ND_OK;
}

static nd_status save_entry(nd_zip_write *zip, const char *name, const nd_tensor *tensor,
                            bool compressed) {
    const char *operation = zip->writer.operation;
    char header[ND__NPY_HEADER_BYTES];
    size_t header_bytes = nd__npy_header_compose(operation, zip->writer.path, tensor, header);
    if (!header_bytes)
        return nd_error_get_status();
    nd_elements elements;
    nd_status status = nd__elements_get(&elements, operation, tensor);
    if (status != ND_OK)
        return status;
    size_t length = strlen(name);
    char *entry = nd__pressure_alloc(length + sizeof SUFFIX);
    if (entry) {
        memcpy(entry, name, length);
        memcpy(entry + length, SUFFIX, sizeof SUFFIX);
        const nd_zip_piece pieces[] = {{header, header_bytes}, {elements.data, elements.bytes}};
        status = nd__zip_write_entry(zip, entry, pieces, 2, compressed);
    } else {
        status = nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for the name '%.100s'", operation,
                           name);
    }
    nd__alloc_free(entry);
    nd__elements_drop(&elements);
    return status;
}
