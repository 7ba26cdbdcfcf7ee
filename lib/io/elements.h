// A tensor's elements as the bytes of a file: in order and on the host for who writes, read or
// mapped for who reads.
//
// Invariant: memory for a tensor is only taken once the file is known to have its bytes. A mapped
// tensor has pages of its own, private to the process, so that it lives and dies by itself and
// writes to it never reach the file.
#ifndef ND_LIB_IO_ELEMENTS_H
#define ND_LIB_IO_ELEMENTS_H
#include "lib/io/file.h"
#include <nd/tensor.h>

/// A tensor's elements in row-major order.
typedef struct nd_elements {
    const void *data; ///< the tensor's own, or the copy
    size_t bytes;
    void *copy; ///< owned; NULL where the tensor lies on the host in order
} nd_elements;

/// Finds or copies them. The tensor must live until nd__elements_drop. Errors: no memory.
nd_status nd__elements_get(nd_elements *ret_elements, const char *operation,
                           const nd_tensor *tensor);
/// Idempotent.
void nd__elements_drop(nd_elements *elements);

/// Bytes of the elements of a shape, or -1 where they, or the strides, overflow. A size of zero
/// makes a tensor empty, and its strides no smaller.
int64_t nd__elements_bytes(nd_dtype dtype, int ndim, const int64_t *shape);
/// Uninitialised CPU tensor in the current manager.
nd_tensor *nd__elements_new(const char *operation, nd_dtype dtype, int ndim, const int64_t *shape);
/// CPU tensor in the current manager with the bytes of a file from `position` on, which the file
/// has. `mapped`: mapped where that saves memory and the position is aligned, else read all the
/// same.
nd_tensor *nd__elements_read(nd_file *file, uint64_t position, bool mapped, nd_dtype dtype,
                             int ndim, const int64_t *shape);
/// The first byte of a BOOL tensor in order that is neither 0 nor 1; 0 when there is none, or the
/// dtype is another.
int nd__elements_bad_bool(const nd_tensor *tensor);
/// Big endian to little endian and back, in place. Elements of 1, 2, 4 or 8 bytes.
void nd__elements_swap(void *elements, size_t element_bytes, int64_t count);

/// Little-endian numbers at any address.
static inline uint16_t nd__elements_u16(const void *at) {
    uint16_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}
static inline uint32_t nd__elements_u32(const void *at) {
    uint32_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}
static inline uint64_t nd__elements_u64(const void *at) {
    uint64_t value;
    __builtin_memcpy(&value, at, sizeof value);
    return value;
}
#endif
