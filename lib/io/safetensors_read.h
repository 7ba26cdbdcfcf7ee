// The table of contents of a safetensors file, for the loader here and for lib/nn.
//
// File: 8 bytes header length (little endian), the header (JSON: name -> dtype, shape,
// data_offsets; optionally
// __metadata__), then the data. Invariant: a table that nd__safetensors_open accepted is consistent
// in itself and with the file's size: unique UTF-8 names, known dtypes, shapes whose bytes are
// their range's, ranges that cover the data exactly once. So reading an entry can only fail for
// lack of memory or because the file cannot be read.
#ifndef ND_LIB_IO_SAFETENSORS_READ_H
#define ND_LIB_IO_SAFETENSORS_READ_H
#include "lib/io/file.h"
#include "lib/io/narrow_float.h"
#include <nd/tensor.h>

/// Name of the key that holds text for people instead of a tensor.
#define ND__SAFETENSORS_METADATA "__metadata__"

typedef struct nd_safetensors_entry {
    const char *name;       ///< lives in the header text
    nd_dtype dtype;         ///< of the tensor
    nd_narrow_float narrow; ///< what the file has in its place, if that is none of ours
    bool is_complex;        ///< C64: pairs of f32, along a last axis that the file does not name
    int ndim;
    int64_t shape[ND_MAX_DIMS];
    int64_t begin; ///< range in the data, whose first byte is 0
    int64_t end;
} nd_safetensors_entry;

typedef struct nd_safetensors {
    nd_file file;
    char *header;
    nd_safetensors_entry *entries; ///< in the order of the header
    size_t count;
    size_t capacity;
    bool has_metadata;
    bool mapped;         ///< whether tensors are mapped where they can be; set by the opener
    uint64_t data_start; ///< position of the data in the file
} nd_safetensors;

/// Opens a file and checks its whole header. On error nothing stays open.
nd_status nd__safetensors_open(nd_safetensors *table, const char *operation, const char *path);
/// Owned CPU tensor with an entry's name and content, in the current manager.
nd_tensor *nd__safetensors_read(nd_safetensors *table, const nd_safetensors_entry *entry);
/// Entry of a name, or NULL without an error.
const nd_safetensors_entry *nd__safetensors_find(const nd_safetensors *table, const char *name);
void nd__safetensors_close(nd_safetensors *table);

/// "F32" and so on; NULL for a dtype that the format does not have.
const char *nd__safetensors_dtype_name(nd_dtype dtype);
#endif
