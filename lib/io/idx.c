// IDX files, the format of MNIST: two zero bytes, a type, a number of dimensions, the sizes as
// big-endian 32-bit numbers, then the elements, big-endian too.
//
// Invariant: the sizes are checked against what the file can hold before memory is taken for them,
// and against what it does hold where it is packed well.
// Types that ndarc does not have are widened to ones that hold every value: i8 and i16 to i32.
#include "lib/base/alloc.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/io/elements.h"
#include "lib/io/inflate.h"
#include "lib/manager/place.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"
#include <nd/io.h>

#include <string.h>

typedef struct nd_idx_header {
    unsigned char type; ///< code of the file's element type
    unsigned element_bytes;
    nd_dtype dtype; ///< of the tensor
    int ndim;
    int64_t shape[ND_MAX_DIMS];
    int64_t numel;
} nd_idx_header;

enum {
    TYPE_U8 = 0x08,
    TYPE_I8 = 0x09,
    TYPE_I16 = 0x0b,
    TYPE_I32 = 0x0c,
    TYPE_F32 = 0x0d,
    TYPE_F64 = 0x0e
};

static nd_status read_header(nd_stream *stream, nd_idx_header *ret_header);
static nd_status set_type(const nd_stream *stream, nd_idx_header *header, unsigned char type);
static nd_tensor *read_tensor(nd_stream *stream, const nd_idx_header *header);
static nd_status read_narrow(nd_stream *stream, const nd_idx_header *header, int32_t *ret_elements);

nd_tensor *nd_load_idx(const char *path) {
    ND__UNCANCELLED;
    nd_stream stream;
    if (nd__inflate_open(&stream, "load_idx", path) != ND_OK)
        return NULL;
    nd_idx_header header;
    nd_tensor *tensor = NULL;
    if (read_header(&stream, &header) == ND_OK)
        tensor = read_tensor(&stream, &header);
    if (tensor && nd__inflate_expect_end(&stream) != ND_OK) {
        nd_release(tensor);
        tensor = NULL;
    }
    nd__inflate_close(&stream);
    return tensor;
}

static nd_status read_header(nd_stream *stream, nd_idx_header *ret_header) {
    const nd_file *file = &stream->file;
    nd_idx_header header = {.numel = 1};
    unsigned char start[4];
    nd_status status = nd__inflate_read(stream, start, sizeof(start));
    if (status != ND_OK)
        return status;
    if (start[0] != 0 || start[1] != 0)
        return nd__error(ND_ERROR_FORMAT,
                         "%s: '%s' is no IDX file: it begins with the bytes %02x %02x, not 00 00",
                         file->operation, file->path, start[0], start[1]);
    status = set_type(stream, &header, start[2]);
    if (status != ND_OK)
        return status;
    if (start[3] > ND_MAX_DIMS)
        return nd__error(ND_ERROR_UNSUPPORTED, "%s: '%s' has %d dimensions, ndarc has at most %d",
                         file->operation, file->path, start[3], ND_MAX_DIMS);
    header.ndim = start[3];
    uint32_t sizes[ND_MAX_DIMS];
    status = nd__inflate_read(stream, sizes, (size_t)header.ndim * sizeof(*sizes));
    if (status != ND_OK)
        return status;
    // A size of zero makes the tensor empty, and the others no smaller: strides are counted with
    // them.
    uint64_t bytes = nd_dtype_get_size(header.dtype);
    bool overflow = false, empty = false;
    for (int axis = 0; axis < header.ndim; axis++) {
        header.shape[axis] = __builtin_bswap32(sizes[axis]);
        uint64_t size = header.shape[axis] ? (uint64_t)header.shape[axis] : 1;
        empty |= header.shape[axis] == 0;
        overflow |= __builtin_mul_overflow(bytes, size, &bytes);
        overflow |= bytes > INT64_MAX;
    }
    bytes = empty ? 0 : bytes / nd_dtype_get_size(header.dtype) * header.element_bytes;
    if (overflow || bytes > nd__inflate_bytes_max(stream)) {
        char text[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_FORMAT,
                         "%s: '%s' announces the shape %s of %u-byte elements, more than its %llu "
                         "bytes can hold",
                         file->operation, file->path,
                         nd__shape_text(text, header.ndim, header.shape), header.element_bytes,
                         (unsigned long long)file->size);
    }
    header.numel = (int64_t)(bytes / header.element_bytes);
    *ret_header = header;
    return nd__inflate_bear_out(stream, bytes,
                                (uint64_t)header.numel * nd_dtype_get_size(header.dtype));
}

static nd_status set_type(const nd_stream *stream, nd_idx_header *header, unsigned char type) {
    header->type = type;
    switch (type) {
    case TYPE_U8:
        header->element_bytes = 1;
        header->dtype = ND_U8;
        return ND_OK;
    case TYPE_I8:
        header->element_bytes = 1;
        header->dtype = ND_I32;
        return ND_OK;
    case TYPE_I16:
        header->element_bytes = 2;
        header->dtype = ND_I32;
        return ND_OK;
    case TYPE_I32:
        header->element_bytes = 4;
        header->dtype = ND_I32;
        return ND_OK;
    case TYPE_F32:
        header->element_bytes = 4;
        header->dtype = ND_F32;
        return ND_OK;
    case TYPE_F64:
        header->element_bytes = 8;
        header->dtype = ND_F64;
        return ND_OK;
    default:
        return nd__error(ND_ERROR_FORMAT, "%s: '%s' has elements of the unknown IDX type 0x%02x",
                         stream->file.operation, stream->file.path, type);
    }
}

static nd_tensor *read_tensor(nd_stream *stream, const nd_idx_header *header) {
    nd_place place = nd__place_begin(NULL, 0);
    nd_tensor *tensor =
        nd__tensor_new(stream->file.operation, place.manager, (nd_device){ND_CPU, 0}, header->dtype,
                       header->ndim, header->shape);
    nd__place_end(place);
    if (!tensor)
        return NULL;
    nd_status status;
    if (header->type == TYPE_I8 || header->type == TYPE_I16) {
        status = read_narrow(stream, header, tensor->data);
    } else {
        status =
            nd__inflate_read(stream, tensor->data, (size_t)header->numel * header->element_bytes);
        if (status == ND_OK)
            nd__elements_swap(tensor->data, header->element_bytes, header->numel);
    }
    if (status != ND_OK) {
        nd_release(tensor);
        return NULL;
    }
    return tensor;
}

/// Reads i8 or i16 piece by piece and widens.
static nd_status read_narrow(nd_stream *stream, const nd_idx_header *header,
                             int32_t *ret_elements) {
    unsigned char piece[4096];
    const int64_t piece_elements = (int64_t)(sizeof(piece) / header->element_bytes);
    for (int64_t done = 0; done < header->numel;) {
        int64_t left = header->numel - done;
        int64_t count = left < piece_elements ? left : piece_elements;
        nd_status status = nd__inflate_read(stream, piece, (size_t)count * header->element_bytes);
        if (status != ND_OK)
            return status;
        for (int64_t i = 0; i < count; i++)
            ret_elements[done + i] = header->type == TYPE_I8
                                         ? (int8_t)piece[i]
                                         : (int16_t)(piece[2 * i] << 8 | piece[2 * i + 1]);
        done += count;
    }
    return ND_OK;
}
