// What a tensor is: shape, strides, dtype, device, storage, values of single elements.
#include "lib/base/error.h"
#include "lib/base/float_mode.h"
#include "lib/device/capture.h"
#include "lib/device/registry.h"
#include "lib/object/object.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/node.h"
#include "lib/tensor/number.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"
#include <math.h>
#include <string.h>

int nd_get_ndim(const nd_tensor *x) {
    return x ? x->ndim : 0;
}

const int64_t *nd_get_shape(const nd_tensor *x) {
    return x ? x->shape : NULL;
}

const int64_t *nd_get_strides(const nd_tensor *x) {
    return x ? nd__tensor_strides(x) : NULL;
}

int64_t nd_get_size(const nd_tensor *x, int axis) {
    if (!x)
        return -1;
    int resolved = nd__shape_resolve_axis("get_size", axis, x->ndim);
    return resolved < 0 ? -1 : x->shape[resolved];
}

int64_t nd_get_numel(const nd_tensor *x) {
    return x ? x->numel : 0;
}

nd_dtype nd_get_dtype(const nd_tensor *x) {
    return x ? x->dtype : ND_BOOL;
}

nd_device nd_get_device(const nd_tensor *x) {
    return x ? x->device : (nd_device){ND_CPU, 0};
}

bool nd_is_contiguous(const nd_tensor *x) {
    return x && nd__tensor_is_contiguous(x);
}

bool nd_is_view_of(const nd_tensor *x, const nd_tensor *y) {
    return x && y && !nd__object_is_closed(x) && !nd__object_is_closed(y) &&
           nd__tensor_share_storage(x, y);
}

size_t nd_get_storage_bytes(const nd_tensor *x) {
    return x ? nd__tensor_storage_bytes(x) : 0;
}

uint64_t nd_get_version(const nd_tensor *x) {
    return x && !nd__object_is_closed(x) ? nd__tensor_version(x) : 0;
}

void *nd_get_data(const nd_tensor *x) {
    if (nd__tensor_check_operand("get_data", "x", x) != ND_OK)
        return NULL;
    if (!nd__registry_backend(x->device.kind)->host_accessible) {
        nd__error(ND_ERROR_DEVICE,
                  "get_data: memory of %s cannot be reached from the host; copy it with nd_to "
                  "or nd_copy_to_host",
                  nd__registry_device_text(x->device));
        return NULL;
    }
    return x->data;
}

// ------------------------------------------------------------------------------------------------
// single elements

/// The only element of x.
static nd_status read_element(const char *operation, const nd_tensor *x, nd_number *ret_value) {
    nd_status status = nd__tensor_check_operand(operation, "x", x);
    if (status != ND_OK)
        return status;
    if (x->numel != 1) {
        char text[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_SHAPE, "%s: a tensor of shape %s has %lld elements, not one",
                         operation, nd__shape_text(text, x->ndim, x->shape), (long long)x->numel);
    }
    size_t bytes = nd__dtype_bytes[x->dtype];
    const nd_backend *backend = nd__registry_backend(x->device.kind);
    if (backend->host_accessible) {
        *ret_value = nd__number_at(x->dtype, x->data);
        return ND_OK;
    }
    status = nd__capture_check(operation, x->device);
    if (status != ND_OK)
        return status;
    uint64_t element;
    status = backend->copy_to_host(x->device.index, &element, x->data, bytes);
    if (status != ND_OK)
        return nd__error(status, "%s: copying from %s failed with %s", operation,
                         nd__registry_device_text(x->device), nd__registry_answer_text(status));
    *ret_value = nd__number_at(x->dtype, &element);
    return ND_OK;
}

__attribute__((noinline)) static double item_as_f64(const nd_tensor *x) {
    nd_number value;
    return read_element("get_item", x, &value) == ND_OK ? nd__number_as_f64(value) : (double)NAN;
}

double nd_get_item(const nd_tensor *x) {
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    const double item = item_as_f64(x);
    nd__float_mode_end(&mode);
    return item;
}

__attribute__((noinline)) static nd_status item_as_i64(const nd_tensor *x, int64_t *ret_value) {
    nd_number value;
    nd_status status = read_element("get_item_i64", x, &value);
    if (status != ND_OK)
        return status;
    int64_t integer;
    if (!nd__number_is_i64(value, &integer)) {
        char text[ND__NUMBER_TEXT];
        return nd__error(ND_ERROR_DTYPE, "get_item_i64: %s, a %s, is no int64",
                         nd__number_text(text, value), nd_dtype_get_name(x->dtype));
    }
    *ret_value = integer;
    return ND_OK;
}

nd_status nd_get_item_i64(const nd_tensor *x, int64_t *ret_value) {
    if (!ret_value)
        return nd__error_null("get_item_i64", "ret_value");
    nd__float_mode mode;
    nd__float_mode_begin(&mode);
    const nd_status status = item_as_i64(x, ret_value);
    nd__float_mode_end(&mode);
    return status;
}

nd_status nd_copy_to_host(const nd_tensor *x, void *destination, size_t bytes) {
    nd_status status = nd__tensor_check_operand("copy_to_host", "x", x);
    if (status != ND_OK)
        return status;
    size_t needed = (size_t)x->numel * nd__dtype_bytes[x->dtype];
    if (bytes != needed) {
        char text[ND__SHAPE_TEXT];
        return nd__error(
            ND_ERROR_SHAPE,
            "copy_to_host: a tensor of shape %s and %s has %zu bytes, the destination %zu",
            nd__shape_text(text, x->ndim, x->shape), nd_dtype_get_name(x->dtype), needed, bytes);
    }
    if (bytes == 0)
        return ND_OK;
    if (!destination)
        return nd__error_null("copy_to_host", "destination");
    return nd__copy_to_host("copy_to_host", x, destination);
}
