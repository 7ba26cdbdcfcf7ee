// .npy files.
//
// Invariant: memory for an array is taken once its header agrees with the number of bytes that
// follow. A tensor is always in row-major order of this machine, whatever the file's order was.
#include "lib/io/npy.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/io/elements.h"
#include "lib/io/npy_header.h"
#include "lib/tensor/tensor.h"
#include <nd/io.h>

static nd_tensor *read_elements(nd_content *content, const nd_npy_header *header, bool mapped);
static int axes_of(const nd_npy_header *header);
static nd_tensor *in_row_order(const nd_tensor *reversed, int axes);

nd_tensor *nd_load_npy(const char *path, const nd_load_options *options) {
    ND__UNCANCELLED;
    static const char operation[] = "load_npy";
    nd_load_options chosen = ND_LOAD_OPTIONS_INIT;
    nd_file file;
    if (nd__versioned_read(operation, "ND_LOAD_OPTIONS_INIT", options, &chosen, sizeof chosen) !=
            ND_OK ||
        nd__file_open(&file, operation, path) != ND_OK)
        return NULL;
    nd_content content = nd__content_of_file(&file);
    nd_tensor *tensor = nd__npy_read(&content, chosen.mapped);
    nd__file_close(&file);
    return tensor;
}

nd_status nd_save_npy(const char *path, const nd_tensor *tensor) {
    ND__UNCANCELLED;
    static const char operation[] = "save_npy";
    if (!path)
        return nd__error_null(operation, "path");
    nd_status status = nd__tensor_check_operand(operation, "the tensor", tensor);
    if (status != ND_OK)
        return status;
    char header[ND__NPY_HEADER_BYTES];
    size_t header_bytes = nd__npy_header_compose(operation, path, tensor, header);
    if (!header_bytes)
        return nd_error_get_status();
    nd_elements elements;
    status = nd__elements_get(&elements, operation, tensor);
    if (status != ND_OK)
        return status;
    nd_file_writer writer;
    status = nd__file_create(&writer, operation, path);
    if (status == ND_OK) {
        status = nd__file_write(&writer, header, header_bytes);
        if (status == ND_OK)
            status = nd__file_write(&writer, elements.data, elements.bytes);
        if (status == ND_OK)
            status = nd__file_commit(&writer);
        nd__file_abandon(&writer);
    }
    nd__elements_drop(&elements);
    return status;
}

nd_tensor *nd__npy_read(nd_content *content, bool mapped) {
    nd_npy_header header;
    if (nd__content_bear_out(content) != ND_OK || nd__npy_header_read(content, &header) != ND_OK)
        return NULL;
    nd_auto nd_tensor *tensor = read_elements(content, &header, mapped);
    if (!tensor)
        return NULL;
    int bad = nd__elements_bad_bool(tensor);
    char text[ND__CONTENT_TEXT];
    if (bad) {
        nd__error(ND_ERROR_FORMAT, "%s: %s is of bool and holds a byte %d",
                  content->file->operation, nd__content_text(content, text), bad);
        return NULL;
    }
    int axes = axes_of(&header);
    return header.fortran && axes > 1 ? in_row_order(tensor, axes) : nd_retain(tensor);
}

/// Those that the file names.
static int axes_of(const nd_npy_header *header) {
    return header->ndim - header->is_complex;
}

/// The elements as they lie in the file: of a Fortran array, in the reversed shape.
static nd_tensor *read_elements(nd_content *content, const nd_npy_header *header, bool mapped) {
    int64_t shape[ND_MAX_DIMS];
    const int axes = axes_of(header);
    for (int axis = 0; axis < header->ndim; axis++)
        shape[axis] = header->shape[header->fortran && axis < axes ? axes - 1 - axis : axis];
    // Bytes that are used as they are in the file need not be copied out of it.
    if (mapped && !content->entry && !header->big_endian && !header->fortran)
        return nd__elements_read(content->file, content->position, true, header->dtype,
                                 header->ndim, shape);
    nd_tensor *tensor =
        nd__elements_new(content->file->operation, header->dtype, header->ndim, shape);
    if (tensor && (nd__content_read(content, tensor->data, header->bytes) != ND_OK ||
                   nd__content_expect_end(content) != ND_OK)) {
        nd_release(tensor);
        return NULL;
    }
    if (tensor && header->big_endian)
        nd__elements_swap(tensor->data, nd__dtype_bytes[header->dtype], tensor->numel);
    return tensor;
}

/// Turns the first so many axes round.
static nd_tensor *in_row_order(const nd_tensor *reversed, int axes) {
    int order[ND_MAX_DIMS];
    for (int axis = 0; axis < reversed->ndim; axis++)
        order[axis] = axis < axes ? axes - 1 - axis : axis;
    nd_auto nd_tensor *view = nd_permute(reversed, reversed->ndim, order);
    return view ? nd_clone(view) : NULL;
}
