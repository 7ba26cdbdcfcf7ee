// Creation: uninitialised, filled, counted, from host data.
//
// Results go to the default device of the thread and to the current manager; *_like goes where the
// other tensor is.
#include "lib/tensor/create.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"
#include "lib/manager/place.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/storage.h"
#include "lib/tensor/tensor.h"
#include <math.h>
#include <string.h>

// Above this the kernel's threads pay off.
#define PLAIN_FILL_LIMIT ((size_t)64 << 10)

nd_tensor *nd__create(const char *operation, int ndim, const int64_t *shape, nd_dtype dtype) {
    return nd__tensor_result(operation, NULL, 0, nd_get_default_device(), dtype, ndim, shape);
}

nd_tensor *nd__create_with(const char *operation, nd_op op, nd_tensor *x,
                           const nd_op_attrs *attrs) {
    if (!x || x->numel == 0)
        return x;
    nd_kernel_call call;
    call.op = op;
    call.noperands = 1;
    call.ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++)
        call.shape[i] = x->shape[i];
    call.operand[0] = nd__shape_broadcast_operand(x, x->ndim, x->shape);
    call.attrs = *attrs;
    nd__shape_collapse(&call);
    if (nd__launch(operation, x->device, &call) == ND_OK)
        return x;
    nd_object_release(x);
    return NULL;
}

nd_tensor *nd__create_filled(const char *operation, nd_tensor *x, double value) {
    if (!x || x->numel == 0)
        return x;
    size_t bytes = (size_t)x->numel * nd__dtype_bytes[x->dtype];
    // Zero is all bytes zero in every dtype; -0.0 is not.
    if (value == 0.0 && !signbit(value) && bytes <= PLAIN_FILL_LIMIT &&
        nd__registry_backend(x->device.kind)->host_accessible) {
        memset(x->data, 0, bytes);
        return x;
    }
    nd_op_attrs attrs = {.f = {x->dtype == ND_BOOL ? value != 0.0 : value}};
    if (x->dtype == ND_I64)
        attrs.i[0] = (int64_t)value;
    return nd__create_with(operation, ND_OP_fill, x, &attrs);
}

/// Largest and smallest number of each integer dtype, as far as a double can say.
static bool fits(double value, nd_dtype dtype) {
    switch (dtype) {
    case ND_U8:
        return value > -1.0 && value < 256.0;
    case ND_I32:
        return value > -2147483649.0 && value < 2147483648.0;
    case ND_I64:
        return value >= -0x1p63 && value < 0x1p63;
    default:
        return true;
    }
}

static nd_tensor *create_filled(const char *operation, int ndim, const int64_t *shape, double value,
                                nd_dtype dtype) {
    if (!fits(value, dtype)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %g is no %s", operation, value,
                  nd_dtype_name(dtype));
        return NULL;
    }
    return nd__create_filled(operation, nd__create(operation, ndim, shape, dtype), value);
}

nd_tensor *nd_empty(int ndim, const int64_t *shape, nd_dtype dtype) {
    return nd__create("empty", ndim, shape, dtype);
}

nd_tensor *nd_zeros(int ndim, const int64_t *shape, nd_dtype dtype) {
    return nd__create_filled("zeros", nd__create("zeros", ndim, shape, dtype), 0.0);
}

nd_tensor *nd_ones(int ndim, const int64_t *shape, nd_dtype dtype) {
    return nd__create_filled("ones", nd__create("ones", ndim, shape, dtype), 1.0);
}

nd_tensor *nd_full(int ndim, const int64_t *shape, double value, nd_dtype dtype) {
    return create_filled("full", ndim, shape, value, dtype);
}

nd_tensor *nd_scalar(double value, nd_dtype dtype) {
    return create_filled("scalar", 0, NULL, value, dtype);
}

static nd_tensor *create_like(const char *operation, const nd_tensor *x) {
    if (nd__tensor_check_operand(operation, "x", x) != ND_OK)
        return NULL;
    nd_place place = nd__place_of(&x->header);
    nd_tensor *result =
        nd__tensor_new(operation, place.manager, x->device, x->dtype, x->ndim, x->shape);
    nd__place_end(place);
    return result;
}

nd_tensor *nd_empty_like(const nd_tensor *x) {
    return create_like("empty_like", x);
}

nd_tensor *nd_zeros_like(const nd_tensor *x) {
    return nd__create_filled("zeros_like", create_like("zeros_like", x), 0.0);
}

nd_tensor *nd_ones_like(const nd_tensor *x) {
    return nd__create_filled("ones_like", create_like("ones_like", x), 1.0);
}

/// Numbers in a row make no sense as bool.
static bool countable(const char *operation, nd_dtype dtype) {
    if (dtype != ND_BOOL)
        return true;
    nd__error(ND_ERROR_DTYPE, "%s: bool has no numbers to count with", operation);
    return false;
}

nd_tensor *nd_arange(double start, double stop, double step, nd_dtype dtype) {
    if (!countable("arange", dtype))
        return NULL;
    double count = ceil((stop - start) / step);
    if (!isfinite(start) || !isfinite(stop) || !isfinite(step) || step == 0.0 ||
        !(count < 0x1p62)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "arange: from %g to %g by %g is no range", start, stop,
                  step);
        return NULL;
    }
    int64_t size = count > 0.0 ? (int64_t)count : 0;
    double last = size > 0 ? start + (double)(size - 1) * step : start;
    if (!fits(start, dtype) || !fits(last, dtype)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "arange: from %g to %g leaves the range of %s", start,
                  stop, nd_dtype_name(dtype));
        return NULL;
    }
    nd_op_attrs attrs = {.f = {start, step}};
    return nd__create_with("arange", ND_OP_arange, nd__create("arange", 1, &size, dtype), &attrs);
}

nd_tensor *nd_linspace(double start, double stop, int64_t count, nd_dtype dtype) {
    if (!countable("linspace", dtype))
        return NULL;
    if (!isfinite(start) || !isfinite(stop) || !fits(start, dtype) || !fits(stop, dtype)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "linspace: from %g to %g leaves the range of %s",
                  start, stop, nd_dtype_name(dtype));
        return NULL;
    }
    // Computed on the host in f64, so that the ends are exact on every device.
    nd_tensor *values =
        nd__tensor_result("linspace", NULL, 0, (nd_device){ND_CPU, 0}, ND_F64, 1, &count);
    if (!values)
        return NULL;
    double *value = values->data;
    double step = count > 1 ? (stop - start) / (double)(count - 1) : 0.0;
    for (int64_t i = 0; i < count; i++)
        value[i] = i > 0 && i == count - 1 ? stop : start + (double)i * step;
    nd_tensor *result = nd__create("linspace", 1, &count, dtype);
    if (result && nd__copy_into("linspace", result, values) != ND_OK) {
        nd_object_release(result);
        result = NULL;
    }
    nd_object_release(values);
    return result;
}

nd_tensor *nd_eye(int64_t n, nd_dtype dtype) {
    int64_t shape[] = {n, n};
    nd_op_attrs attrs = {.i = {n}};
    return nd__create_with("eye", ND_OP_eye, nd__create("eye", 2, shape, dtype), &attrs);
}

nd_tensor *nd_from_data(const void *data, int ndim, const int64_t *shape, nd_dtype dtype) {
    int64_t numel;
    if (nd__shape_check("from_data", ndim, shape, dtype, &numel) != ND_OK)
        return NULL;
    if (!data && numel > 0) {
        nd__error_null("from_data", "data");
        return NULL;
    }
    nd_tensor *x = nd__create("from_data", ndim, shape, dtype);
    if (!x || numel == 0)
        return x;
    nd_status status =
        nd__registry_backend(x->device.kind)
            ->copy_from_host(x->device.index, x->data, data, (size_t)numel * nd_dtype_size(dtype));
    if (status != ND_OK) {
        nd__error(status, "from_data: copying to %s failed with %s",
                  nd__registry_device_text(x->device), nd_status_name(status));
        nd_object_release(x);
        return NULL;
    }
    return x;
}

nd_tensor *nd_wrap(void *data, int ndim, const int64_t *shape, nd_dtype dtype,
                   void (*free)(void *pointer, size_t bytes)) {
    int64_t numel;
    if (nd__shape_check("wrap", ndim, shape, dtype, &numel) != ND_OK)
        return NULL;
    if (!data && numel > 0) {
        nd__error_null("wrap", "data");
        return NULL;
    }
    size_t element = nd_dtype_size(dtype);
    if ((uintptr_t)data % element != 0) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "wrap: the data at %p is not aligned for %s", data,
                  nd_dtype_name(dtype));
        return NULL;
    }
    nd_place place = nd__place_begin(NULL, 0);
    nd_storage *storage = nd__storage_wrap("wrap", place.manager, data, (size_t)numel * element);
    nd_tensor *x =
        storage ? nd__tensor_on(place.manager, storage, dtype, ndim, shape, numel) : NULL;
    nd__place_end(place);
    if (x && free) { // from here on nothing can fail: the data is the storage's
        nd__tensor_storage_now(x)->free = free;
        nd__tensor_storage_now(x)->borrowed = false;
    }
    return x;
}
