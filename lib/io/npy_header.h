// The header of a .npy: magic, version, length, and a Python dictionary with descr, fortran_order
// and shape, padded to a multiple of 64 bytes
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html).
//
// Invariant: a header that nd__npy_header_read accepted is of a dtype and of a number of dimensions
// that ndarc has, and its elements have exactly the bytes that follow it in its content.
#ifndef ND_LIB_IO_NPY_HEADER_H
#define ND_LIB_IO_NPY_HEADER_H
#include "lib/io/content.h"
#include <nd/tensor.h>

typedef struct nd_npy_header {
    nd_dtype dtype;
    bool big_endian;
    bool fortran;    ///< the first index runs fastest
    bool is_complex; ///< pairs of that dtype, along a last axis that the file does not name
    int ndim;
    int64_t shape[ND_MAX_DIMS];
    size_t bytes; ///< of the elements
} nd_npy_header;

/// Reads it from a content that was begun; the elements follow.
nd_status nd__npy_header_read(nd_content *content, nd_npy_header *ret_header);

/// More than any header of ours has.
#define ND__NPY_HEADER_BYTES 512
/// Writes the header of a tensor in row-major order, as NumPy does; its bytes. 0 with an error:
/// ND_ERROR_DTYPE, a dtype that the format does not have.
size_t nd__npy_header_compose(const char *operation, const char *path, const nd_tensor *tensor,
                              char ret_text[ND__NPY_HEADER_BYTES]);
#endif
