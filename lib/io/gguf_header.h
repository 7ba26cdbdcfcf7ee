// The header of a GGUF file: values by key, and where which tensor lies
// (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
//
// Invariant: a header that nd__gguf_header_read accepted is consistent in itself and with the file:
// keys and names that are UTF-8 and there once, values whole, tensors of known types inside the
// file, aligned, and apart from each other. So reading a tensor of a type that ndarc can read only
// fails for lack of memory or because the file cannot be read.
#ifndef ND_LIB_IO_GGUF_HEADER_H
#define ND_LIB_IO_GGUF_HEADER_H
#include "lib/io/file.h"
#include <nd/gguf.h>

typedef struct nd_gguf_value {
    size_t key;     ///< where it begins in the text, terminated
    size_t at;      ///< where the value lies in the text; of a list its first element
    size_t bytes;   ///< of a string, or of all elements
    uint64_t count; ///< elements of a list; 1 of anything else
    nd_gguf_type type;
    nd_gguf_type element; ///< of a list; else the type
} nd_gguf_value;

typedef struct nd_gguf_entry {
    size_t name;    ///< where it begins in the text, terminated
    uint64_t begin; ///< where its bytes lie in the file
    uint64_t bytes; ///< 0 for types that ndarc cannot read
    int64_t shape[ND_MAX_DIMS];
    int ndim;
    uint32_t type; ///< of ggml
} nd_gguf_entry;

typedef struct nd_gguf_header {
    unsigned char *text;    ///< the header as it is in the file, keys and names terminated; owned
    nd_gguf_value *values;  ///< in the order of the file; owned
    nd_gguf_entry *entries; ///< in the order of the file; owned
    size_t value_count;
    size_t entry_count;
    uint32_t version;
} nd_gguf_header;

/// Reads and checks it. On error nothing is left.
nd_status nd__gguf_header_read(nd_gguf_header *header, nd_file *file);
void nd__gguf_header_free(nd_gguf_header *header);

/// A key or a name.
static inline const char *nd__gguf_header_string(const nd_gguf_header *header, size_t at) {
    return (const char *)header->text + at;
}
/// Value of a key, or NULL without an error.
const nd_gguf_value *nd__gguf_header_value(const nd_gguf_header *header, const char *key);
/// Tensor of a name, or NULL without an error.
const nd_gguf_entry *nd__gguf_header_entry(const nd_gguf_header *header, const char *name);
#endif
