// Tensors as bytes of files.
//
// Invariant: a mapping begins at the page of its first element and ends behind its last, so that
// address and size of the elements say what to unmap.
#include "lib/io/elements.h"
#include "lib/base/alloc.h"
#include "lib/base/error.h"
#include "lib/manager/place.h"
#include "lib/pressure/pressure.h"
#include "lib/pressure/pressure_alloc.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are read as little endian");

/// Below this a tensor is read although it could be mapped: pages, and an entry of the kernel's
/// table, cost more.
#define MAPPED_BYTES_MIN 16384

static char *map_range(const nd_file *file, uint64_t position, size_t bytes);
static void unmap(void *pointer, size_t bytes);
static nd_tensor *wrap_mapped(const char *operation, char *data, nd_dtype dtype, int ndim,
                              const int64_t *shape, size_t bytes);

nd_status nd__elements_get(nd_elements *ret_elements, const char *operation,
                           const nd_tensor *tensor) {
    size_t bytes = (size_t)tensor->numel * nd__dtype_bytes[tensor->dtype];
    *ret_elements = (nd_elements){.data = tensor->data, .bytes = bytes};
    if (nd__tensor_is_contiguous(tensor) && tensor->device.kind == ND_CPU)
        return ND_OK;
    void *copy = nd__pressure_alloc(bytes + 1);
    if (!copy)
        return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no memory for a copy in order, %zu bytes",
                         operation, bytes);
    nd_status status = nd__copy_to_host(operation, tensor, copy);
    if (status != ND_OK) {
        nd__alloc_free(copy);
        return status;
    }
    ret_elements->data = ret_elements->copy = copy;
    return ND_OK;
}

void nd__elements_drop(nd_elements *elements) {
    nd__alloc_free(elements->copy);
    *elements = (nd_elements){.data = NULL};
}

int64_t nd__elements_bytes(nd_dtype dtype, int ndim, const int64_t *shape) {
    int64_t bytes = nd__dtype_bytes[dtype];
    bool empty = false;
    for (int axis = 0; axis < ndim; axis++) {
        empty |= shape[axis] == 0;
        if (__builtin_mul_overflow(bytes, shape[axis] ? shape[axis] : 1, &bytes))
            return -1;
    }
    return empty ? 0 : bytes;
}

nd_tensor *nd__elements_new(const char *operation, nd_dtype dtype, int ndim, const int64_t *shape) {
    nd_place place = nd__place_begin(NULL, 0);
    nd_tensor *tensor =
        nd__tensor_new(operation, place.manager, (nd_device){ND_CPU, 0}, dtype, ndim, shape);
    nd__place_end(place);
    return tensor;
}

nd_tensor *nd__elements_read(nd_file *file, uint64_t position, bool mapped, nd_dtype dtype,
                             int ndim, const int64_t *shape) {
    size_t bytes = (size_t)nd__elements_bytes(dtype, ndim, shape);
    char *data = NULL;
    if (mapped && bytes >= MAPPED_BYTES_MIN && position % nd__dtype_bytes[dtype] == 0)
        data = map_range(file, position, bytes);
    if (data)
        return wrap_mapped(file->operation, data, dtype, ndim, shape, bytes);
    nd_tensor *tensor = nd__elements_new(file->operation, dtype, ndim, shape);
    file->position = position;
    if (tensor && nd__file_read(file, tensor->data, bytes) != ND_OK) {
        nd_release(tensor);
        return NULL;
    }
    return tensor;
}

int nd__elements_bad_bool(const nd_tensor *tensor) {
    const unsigned char *byte = tensor->data;
    for (int64_t i = 0; tensor->dtype == ND_BOOL && i < tensor->numel; i++)
        if (byte[i] > 1)
            return byte[i];
    return 0;
}

void nd__elements_swap(void *elements, size_t element_bytes, int64_t count) {
    unsigned char *byte = elements;
    // Through memcpy, because the elements may be floats.
    if (element_bytes == 2)
        for (int64_t i = 0; i < count; i++, byte += 2) {
            uint16_t value = __builtin_bswap16(nd__elements_u16(byte));
            memcpy(byte, &value, sizeof value);
        }
    else if (element_bytes == 4)
        for (int64_t i = 0; i < count; i++, byte += 4) {
            uint32_t value = __builtin_bswap32(nd__elements_u32(byte));
            memcpy(byte, &value, sizeof value);
        }
    else if (element_bytes == 8)
        for (int64_t i = 0; i < count; i++, byte += 8) {
            uint64_t value = __builtin_bswap64(nd__elements_u64(byte));
            memcpy(byte, &value, sizeof value);
        }
}

/// Where the range lies in memory now, or NULL: too many mappings, or a file system without.
static char *map_range(const nd_file *file, uint64_t position, size_t bytes) {
    size_t before = position % (size_t)sysconf(_SC_PAGESIZE);
    char *pages = mmap(NULL, before + bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE,
                       file->descriptor, (off_t)(position - before));
    return pages == MAP_FAILED ? NULL : pages + before;
}

/// The `free` of mapped storage: whole pages, from the one that the first element lies on.
static void unmap(void *pointer, size_t bytes) {
    size_t before = (uintptr_t)pointer % (size_t)sysconf(_SC_PAGESIZE);
    munmap((char *)pointer - before, before + bytes);
}

/// A tensor that unmaps its data when its storage dies; on error they are unmapped already.
static nd_tensor *wrap_mapped(const char *operation, char *data, nd_dtype dtype, int ndim,
                              const int64_t *shape, size_t bytes) {
    nd_place place = nd__place_begin(NULL, 0);
    nd_storage *storage =
        nd__storage_wrap(operation, place.manager, (nd_device){ND_CPU, 0}, data, bytes);
    int64_t numel = (int64_t)(bytes / nd__dtype_bytes[dtype]);
    nd_tensor *tensor =
        storage ? nd__tensor_on(place.manager, storage, dtype, ndim, shape, numel) : NULL;
    nd__place_end(place);
    if (!tensor) {
        unmap(data, bytes);
        return NULL;
    }
    nd__tensor_storage_now(tensor)->free = unmap;
    nd__tensor_storage_now(tensor)->borrowed = false;
    return tensor;
}
