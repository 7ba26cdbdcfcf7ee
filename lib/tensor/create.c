// Creation: uninitialised, filled, counted, from host data.
//
// Results go to the default device of the thread and to the current manager; *_like goes where the
// other tensor is.
#include "lib/tensor/create.h"
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/device/registry.h"
#include "lib/manager/place.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/number.h"
#include "lib/tensor/record.h"
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

/// Zero is all bytes zero in every dtype; -0.0 is not.
static bool is_zero_bytes(nd_number value) {
    if (value.kind == ND_NUMBER_F64)
        return value.value.f64 == 0.0 && !signbit(value.value.f64);
    return value.value.u64 == 0;
}

nd_tensor *nd__create_filled(const char *operation, nd_tensor *x, nd_number value) {
    if (!x || x->numel == 0)
        return x;
    size_t bytes = (size_t)x->numel * nd__dtype_bytes[x->dtype];
    if (is_zero_bytes(value) && bytes <= PLAIN_FILL_LIMIT && nd__tensor_is_contiguous(x) &&
        nd__registry_backend(x->device.kind)->host_accessible) {
        memset(x->data, 0, bytes);
        return x;
    }
    nd_op_attrs attrs;
    nd__record_clear_attrs(&attrs);
    nd__number_pass(&attrs, 0, x->dtype, value);
    return nd__create_with(operation, ND_OP_fill, x, &attrs);
}

static nd_status check_number(const char *operation, nd_number value, nd_dtype dtype) {
    char text[ND__NUMBER_TEXT];
    if (nd__number_held_cut(dtype, value))
        return ND_OK;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is no %s", operation,
                     nd__number_text(text, value), nd_dtype_get_name(dtype));
}

static nd_tensor *create_filled(const char *operation, int ndim, const int64_t *shape,
                                nd_number value, nd_dtype dtype) {
    if (check_number(operation, value, dtype) != ND_OK)
        return NULL;
    return nd__create_filled(operation, nd__create(operation, ndim, shape, dtype), value);
}

nd_tensor *nd_empty(int ndim, const int64_t *shape, nd_dtype dtype) {
    return nd__create("empty", ndim, shape, dtype);
}

nd_tensor *nd_zeros(int ndim, const int64_t *shape, nd_dtype dtype) {
    return nd__create_filled("zeros", nd__create("zeros", ndim, shape, dtype), ND_NUMBER(0));
}

nd_tensor *nd_ones(int ndim, const int64_t *shape, nd_dtype dtype) {
    return nd__create_filled("ones", nd__create("ones", ndim, shape, dtype), ND_NUMBER(1));
}

nd_tensor *(nd_full)(int ndim, const int64_t *shape, nd_number value, nd_dtype dtype) {
    return create_filled("full", ndim, shape, value, dtype);
}

nd_tensor *(nd_scalar)(nd_number value, nd_dtype dtype) {
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
    return nd__create_filled("zeros_like", create_like("zeros_like", x), ND_NUMBER(0));
}

nd_tensor *nd_ones_like(const nd_tensor *x) {
    return nd__create_filled("ones_like", create_like("ones_like", x), ND_NUMBER(1));
}

nd_tensor *(nd_full_like)(const nd_tensor *x, nd_number value) {
    nd_auto nd_tensor *result = create_like("full_like", x);
    if (!result || check_number("full_like", value, result->dtype) != ND_OK)
        return NULL;
    return nd__create_filled("full_like", nd_steal(&result), value);
}

/// Numbers in a row make no sense as bool.
static bool countable(const char *operation, nd_dtype dtype) {
    if (dtype != ND_BOOL)
        return true;
    nd__error(ND_ERROR_DTYPE, "%s: bool has no numbers to count with", operation);
    return false;
}

typedef struct range {
    nd_number start, stop, step;
} range;

static nd_tensor *refuse_range(const range *of) {
    char start[ND__NUMBER_TEXT], stop[ND__NUMBER_TEXT], step[ND__NUMBER_TEXT];
    nd__error(ND_ERROR_INVALID_ARGUMENT, "arange: from %s to %s by %s is no range",
              nd__number_text(start, of->start), nd__number_text(stop, of->stop),
              nd__number_text(step, of->step));
    return NULL;
}

static nd_tensor *refuse_range_for(const range *of, nd_dtype dtype) {
    char start[ND__NUMBER_TEXT], stop[ND__NUMBER_TEXT];
    nd__error(ND_ERROR_INVALID_ARGUMENT, "arange: from %s to %s leaves the range of %s",
              nd__number_text(start, of->start), nd__number_text(stop, of->stop),
              nd_dtype_get_name(dtype));
    return NULL;
}

/// Every int64 and uint64, and sums of them.
__extension__ typedef __int128 wide;

static bool is_wide(nd_number number, wide *ret_value) {
    int64_t value;
    uint64_t magnitude;
    if (nd__number_is_i64(number, &value))
        *ret_value = value;
    else if (nd__number_is_u64(number, &magnitude))
        *ret_value = magnitude;
    else
        return false;
    return true;
}

/// How many of start, start + step, ... lie before stop.
static wide count_integers(wide start, wide stop, wide step) {
    if (step > 0 ? start >= stop : start <= stop)
        return 0;
    return step > 0 ? (stop - start - 1) / step + 1 : (start - stop - 1) / -step + 1;
}

/// Of integers, into an integer dtype: nothing is rounded.
static nd_tensor *arange_integers(const range *of, wide start, wide stop, wide step,
                                  nd_dtype dtype) {
    wide count = step != 0 ? count_integers(start, stop, step) : (wide)1 << 62;
    if (count >= (wide)1 << 62)
        return refuse_range(of);
    int64_t size = (int64_t)count;
    wide last = count > 0 ? start + (count - 1) * step : start;
    nd_number end = last < 0 ? ND_NUMBER((int64_t)last) : ND_NUMBER((uint64_t)last);
    if (!nd__number_held(dtype, of->start) || !nd__number_held(dtype, end))
        return refuse_range_for(of, dtype);
    nd_op_attrs attrs = {.f = {(double)start, (double)step},
                         .i = {(int64_t)start, (int64_t)step, true}};
    return nd__create_with("arange", ND_OP_arange, nd__create("arange", 1, &size, dtype), &attrs);
}

nd_tensor *(nd_arange)(nd_number start, nd_number stop, nd_number step, nd_dtype dtype) {
    if (!countable("arange", dtype))
        return NULL;
    const range of = {start, stop, step};
    wide first, end, stride;
    if (is_wide(start, &first) && is_wide(stop, &end) && is_wide(step, &stride) &&
        (unsigned)dtype < ND_DTYPE_COUNT && nd__dtype_is_integer(dtype))
        return arange_integers(&of, first, end, stride, dtype);
    // What is no number has no float either.
    if (!nd__number_held(ND_F64, start) || !nd__number_held(ND_F64, stop) ||
        !nd__number_held(ND_F64, step))
        return refuse_range(&of);
    double from = nd__number_as_f64(start), to = nd__number_as_f64(stop);
    double by = nd__number_as_f64(step), count = ceil((to - from) / by);
    if (!isfinite(from) || !isfinite(to) || !isfinite(by) || by == 0.0 || !(count < 0x1p62))
        return refuse_range(&of);
    int64_t size = count > 0.0 ? (int64_t)count : 0;
    double last = size > 0 ? from + (double)(size - 1) * by : from;
    if (!nd__number_held_cut(dtype, start) || !nd__number_held_cut(dtype, ND_NUMBER(last)))
        return refuse_range_for(&of, dtype);
    nd_op_attrs attrs = {.f = {from, by}};
    return nd__create_with("arange", ND_OP_arange, nd__create("arange", 1, &size, dtype), &attrs);
}

nd_tensor *nd__create_counted(const char *operation, nd_device device, int64_t count) {
    const nd_op_attrs attrs = {.f = {0, 1}, .i = {0, 1, true}};
    return nd__create_with(operation, ND_OP_arange,
                           nd__tensor_result(operation, NULL, 0, device, ND_I64, 1, &count),
                           &attrs);
}

nd_tensor *nd_linspace(double start, double stop, int64_t count, nd_dtype dtype) {
    if (!countable("linspace", dtype))
        return NULL;
    // Rounded down, as NumPy does. (No dtype at all is refused below.)
    const bool whole = (unsigned)dtype < ND_DTYPE_COUNT && nd__dtype_is_integer(dtype);
    const double first = whole ? floor(start) : start, last = whole ? floor(stop) : stop;
    if (!isfinite(start) || !isfinite(stop) || !nd__number_held_cut(dtype, ND_NUMBER(first)) ||
        !nd__number_held_cut(dtype, ND_NUMBER(last))) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "linspace: from %g to %g leaves the range of %s",
                  start, stop, nd_dtype_get_name(dtype));
        return NULL;
    }
    if (count > 0 && nd__capture_check("linspace", nd_get_default_device()) != ND_OK)
        return NULL;
    // Computed on the host in f64, so that the ends are exact on every device. Where no f64 holds the
    // difference, of half of it.
    double scale = isfinite(stop - start) ? 1.0 : 0.5;
    double step = count > 1 ? (stop * scale - start * scale) / (double)(count - 1) : 0.0;
    nd_op_attrs attrs = {.f = {start * scale, step}};
    nd_tensor *values = nd__create_with(
        "linspace", ND_OP_arange,
        nd__tensor_result("linspace", NULL, 0, (nd_device){ND_CPU, 0}, ND_F64, 1, &count), &attrs);
    if (!values)
        return NULL;
    double *value = values->data;
    for (int64_t i = 0; i < count && scale < 1.0; i++)
        value[i] = i == 0 ? start : value[i] / scale;
    if (count > 1)
        value[count - 1] = stop;
    for (int64_t i = 0; i < count && whole; i++)
        value[i] = floor(value[i]);
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

/// Memory of a program: there, and if of bools, of bools.
static nd_status check_data(const char *operation, const void *data, int64_t numel,
                            nd_dtype dtype) {
    if (!data && numel > 0)
        return nd__error_null(operation, "data");
    int64_t wrong = dtype == ND_BOOL ? nd__dtype_find_no_bool(data, numel) : -1;
    return wrong < 0 ? ND_OK
                     : nd__error(ND_ERROR_INVALID_ARGUMENT,
                                 "%s: element %lld is %d, and a bool is 0 or 1", operation,
                                 (long long)wrong, ((const uint8_t *)data)[wrong]);
}

nd_tensor *nd_from_data(const void *data, int ndim, const int64_t *shape, nd_dtype dtype) {
    int64_t numel;
    if (nd__shape_check("from_data", ndim, shape, dtype, &numel) != ND_OK)
        return NULL;
    if (check_data("from_data", data, numel, dtype) != ND_OK)
        return NULL;
    if (numel > 0 && nd__capture_check("from_data", nd_get_default_device()) != ND_OK)
        return NULL;
    nd_tensor *x = nd__create("from_data", ndim, shape, dtype);
    if (!x || numel == 0)
        return x;
    nd_status status = nd__registry_backend(x->device.kind)
                           ->copy_from_host(x->device.index, x->data, data,
                                            (size_t)numel * nd_dtype_get_size(dtype));
    if (status != ND_OK) {
        nd__error(status, "from_data: copying to %s failed with %s",
                  nd__registry_device_text(x->device), nd_status_get_name(status));
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
    if (check_data("wrap", data, numel, dtype) != ND_OK)
        return NULL;
    size_t element = nd_dtype_get_size(dtype);
    if ((uintptr_t)data % element != 0) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "wrap: the data at %p is not aligned for %s", data,
                  nd_dtype_get_name(dtype));
        return NULL;
    }
    nd_place place = nd__place_begin(NULL, 0);
    nd_storage *storage = nd__storage_wrap("wrap", place.manager, (nd_device){ND_CPU, 0}, data,
                                           (size_t)numel * element);
    nd_tensor *x =
        storage ? nd__tensor_on(place.manager, storage, dtype, ndim, shape, numel) : NULL;
    nd__place_end(place);
    if (x && free) { // from here on nothing can fail: the data is the storage's
        nd__tensor_storage_now(x)->free = free;
        nd__tensor_storage_now(x)->borrowed = false;
    }
    return x;
}
