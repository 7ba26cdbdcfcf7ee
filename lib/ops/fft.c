// Fourier transforms: what kernels/cpu/fft.h computes, in f32 or f64, along one axis after the other. Each
// is done by the operand's device where that has a kernel for it; else the operand is brought to the
// host and the result back.
#include "lib/ops/fft.h"
#include "kernels/cpu/fft.h"
#include "kernels/cpu/fftw.h"
#include "lib/base/cancel.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/create.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <math.h>
#include <nd/manipulation.h>

enum { FORWARD = -1, INVERSE = 1 }; // signs of the exponent

// -------------------------------------------------------------------------------------------------
// one axis

static nd_status refuse(const char *name, nd_dtype dtype, int64_t n, nd__fft_result result) {
    if (result == ND__FFT_MISSING) {
        char why[ND__OPTIONAL_TEXT];
        nd_status status = nd__optional_explain(nd__fftw_library(dtype), why);
        return nd__error(status, "%s: of %s %s", name, nd_dtype_get_name(dtype), why);
    }
    return nd__error(ND_ERROR_OUT_OF_MEMORY, "%s: no working memory for %lld elements", name,
                     (long long)n);
}

/// The result of a map of x, without values: x's shape with `places` along the axis, and with one
/// axis more or less where numbers become pairs or pairs numbers.
static nd_tensor *empty_result(const char *name, const nd_tensor *x, const nd__fft_map *map) {
    int axes = x->ndim - (map->op != ND_OP_rfft), ndim = axes + (map->op != ND_OP_irfft);
    if (ndim > ND_MAX_DIMS) {
        nd__error(ND_ERROR_SHAPE, "%s: x has %d dimensions, which leaves none for pairs", name,
                  x->ndim);
        return NULL;
    }
    int64_t shape[ND_MAX_DIMS + 1];
    nd__shape_copy(shape, x->shape, axes);
    shape[map->axis] = map->places;
    shape[axes] = 2;
    return nd__tensor_result(name, &x, 1, x->device, x->dtype, ndim, shape);
}

/// The map of a dense x into `result`, neither of them empty.
static nd__fft_call call_of(const nd_tensor *x, const nd__fft_map *map, nd_tensor *result) {
    nd__fft_call call = {
        .op = map->op,
        .dtype = x->dtype,
        .sign = map->sign,
        .n = map->n,
        .outer = 1,
        .inner = 1,
        .from = x->shape[map->axis],
        .to = map->places,
        .scale = map->scale,
        .weight = map->weight,
        .x = x->data,
        .out = result->data,
    };
    for (int i = 0; i < map->axis; i++)
        call.outer *= x->shape[i];
    for (int i = map->axis + 1; i < x->ndim - (map->op != ND_OP_rfft); i++)
        call.inner *= x->shape[i];
    return call;
}

static nd_status run_on_host(const char *name, const nd__fft_call *call) {
    ND__UNCANCELLED; // FFTW is opened
    nd__fft_result done = nd__cpu_fft(call);
    return done == ND__FFT_DONE ? ND_OK : refuse(name, call->dtype, call->n, done);
}

/// ND_ERROR_UNSUPPORTED, without an error, where the device has no kernel.
static nd_status run_on_device(const char *name, nd_device device, const nd__fft_call *of) {
    const nd_kernel_call call = {
        .op = of->op,
        .noperands = 2,
        .operand = {{.data = of->out, .dtype = of->dtype},
                    {.data = (void *)(uintptr_t)of->x, .dtype = of->dtype}},
        .attrs = {.i = {of->outer, of->inner, of->from, of->to, of->n, of->sign},
                  .f = {of->scale, of->weight}},
    };
    return nd__launch_where_supported(name, device, &call);
}

static nd_tensor *record(const nd_tensor *x, const nd__fft_map *map, nd_tensor *result) {
    const nd_op_attrs attrs = {.i = {map->axis, map->n, map->sign}, .f = {map->scale, map->weight}};
    return result ? nd__record(map->op, result, &x, 1, &attrs) : NULL;
}

/// The map of x where x is, on the host or not; NULL, without an error and with *ret_status
/// ND_ERROR_UNSUPPORTED, where that device has no kernel for it.
static nd_tensor *run_where_it_is(const char *name, const nd_tensor *x, const nd__fft_map *map,
                                  nd_status *ret_status) {
    nd_auto nd_tensor *result = empty_result(name, x, map);
    *ret_status = result ? ND_OK : nd_error_get_status();
    if (!result)
        return NULL;
    if (x->numel == 0)
        return record(x, map, nd__create_filled(name, nd_steal(&result), ND_NUMBER(0)));
    if (result->numel > 0) {
        nd_auto nd_tensor *dense = nd__operands_dense(name, x, x->dtype);
        if (!dense)
            return NULL;
        const nd__fft_call call = call_of(dense, map, result);
        *ret_status = x->device.kind == ND_CPU ? run_on_host(name, &call)
                                               : run_on_device(name, x->device, &call);
    }
    return *ret_status == ND_OK ? record(x, map, nd_steal(&result)) : NULL;
}

nd_tensor *nd__fft_along(const char *name, const nd_tensor *x, const nd__fft_map *map) {
    nd_status status = ND_ERROR_UNSUPPORTED;
    const bool is_host = x->device.kind == ND_CPU;
    if (is_host || nd__launch_fuses(x->device)) {
        nd_tensor *result = run_where_it_is(name, x, map, &status);
        if (is_host || status != ND_ERROR_UNSUPPORTED)
            return result;
    }
    nd_auto nd_tensor *host = nd__operands_to_host(name, x);
    return host ? nd__operands_to_device_of(name, x, run_where_it_is(name, host, map, &status))
                : NULL;
}

// -------------------------------------------------------------------------------------------------
// arguments

/// How many axes transforms see.
static int axes_of(const nd_tensor *x, nd_op op) {
    return x->ndim - (op != ND_OP_rfft);
}

static nd_status check_norm(const char *name, nd_fft_norm norm) {
    return (unsigned)norm <= ND_FFT_NORM_FORWARD
               ? ND_OK
               : nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: there is no norm %d", name, (int)norm);
}

/// x in the dtype in which it is computed, recorded; for `op` of numbers, or else of pairs.
static nd_tensor *operand(const char *name, const nd_tensor *x, nd_op op, nd_fft_norm norm) {
    nd_dtype dtype;
    if (nd__tensor_check_operand(name, "x", x) != ND_OK ||
        nd__operands_apply_rule(name, ND__FLOAT, x, NULL, &dtype) != ND_OK ||
        check_norm(name, norm) != ND_OK)
        return NULL;
    char text[ND__SHAPE_TEXT];
    if (op != ND_OP_rfft && (x->ndim < 1 || x->shape[x->ndim - 1] != 2)) {
        nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and must be [..., 2], pairs", name,
                  nd__shape_text(text, x->ndim, x->shape));
        return NULL;
    }
    if (axes_of(x, op) < 1) {
        nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and no axis to go along", name,
                  nd__shape_text(text, x->ndim, x->shape));
        return NULL;
    }
    return nd__operands_as_dtype(x, dtype == ND_F64 ? ND_F64 : ND_F32);
}

/// The map of `op` along an axis of `size` places of x.
static nd_status make_map(const char *name, nd_op op, int axis, int64_t size, int64_t n, int sign,
                          nd_fft_norm norm, nd__fft_map *ret_map) {
    if (n < 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: n is %lld and must not be negative", name,
                         (long long)n);
    int64_t length = n > 0 ? n : op == ND_OP_irfft ? 2 * (size - 1) : size;
    if (length < 1)
        return nd__error(ND_ERROR_SHAPE, "%s: axis %d has %lld places, and n does not say more",
                         name, axis, (long long)size);
    if (length > INT32_MAX)
        return nd__error(ND_ERROR_UNSUPPORTED, "%s: %lld elements are too many for FFTW", name,
                         (long long)length);
    double by = norm == ND_FFT_NORM_ORTHO ? sqrt((double)length) : (double)length;
    bool divides = norm == ND_FFT_NORM_ORTHO ||
                   (norm == ND_FFT_NORM_FORWARD ? sign == FORWARD : sign == INVERSE);
    *ret_map = (nd__fft_map){
        .op = op,
        .axis = axis,
        .n = length,
        .places = op == ND_OP_rfft ? length / 2 + 1 : length,
        .sign = sign,
        .scale = divides ? 1 / by : 1,
        .weight = 1,
    };
    return ND_OK;
}

static nd_tensor *transformed(const char *name, nd_op op, const nd_tensor *x, int64_t n, int axis,
                              int sign, nd_fft_norm norm) {
    ND__ERROR_NAMED(name);
    nd_auto nd_tensor *given = operand(name, x, op, norm);
    int along = given ? nd__shape_resolve_axis(name, axis, axes_of(x, op)) : -1;
    nd__fft_map map;
    if (along < 0 || make_map(name, op, along, x->shape[along], n, sign, norm, &map) != ND_OK)
        return NULL;
    return nd__fft_along(name, given, &map);
}

nd_tensor *nd_fft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) {
    return transformed("fft", ND_OP_fft, x, n, axis, FORWARD, norm);
}

nd_tensor *nd_ifft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) {
    return transformed("ifft", ND_OP_fft, x, n, axis, INVERSE, norm);
}

nd_tensor *nd_rfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) {
    return transformed("rfft", ND_OP_rfft, x, n, axis, FORWARD, norm);
}

nd_tensor *nd_irfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) {
    return transformed("irfft", ND_OP_irfft, x, n, axis, INVERSE, norm);
}

nd_tensor *nd_hfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) {
    return transformed("hfft", ND_OP_irfft, x, n, axis, FORWARD, norm);
}

nd_tensor *nd_ihfft(const nd_tensor *x, int64_t n, int axis, nd_fft_norm norm) {
    return transformed("ihfft", ND_OP_rfft, x, n, axis, INVERSE, norm);
}

// -------------------------------------------------------------------------------------------------
// several axes

/// The maps of a transform, in the order in which they are run.
typedef struct plan {
    int count;
    nd__fft_map maps[ND_MAX_DIMS];
} plan;

static nd_status check_axes(const char *name, int naxes, const int64_t *sizes, const int *axes) {
    if (naxes >= 0 && naxes <= ND_MAX_DIMS && (naxes > 0 ? axes != NULL : !axes && !sizes))
        return ND_OK;
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %d axes at %s, with sizes at %s", name, naxes,
                     axes ? "an address" : "NULL", sizes ? "an address" : "NULL");
}

/// `last` is the operation along the last of the axes: first of rfftn, at the end of irfftn.
static nd_status make_plan(const char *name, nd_op last, const nd_tensor *x, int naxes,
                           const int64_t *sizes, const int *axes, int sign, nd_fft_norm norm,
                           plan *ret_plan) {
    nd_status status = check_axes(name, naxes, sizes, axes);
    int available = axes_of(x, last), count = naxes > 0 ? naxes : available;
    unsigned seen = 0;
    for (int i = 0; i < count && status == ND_OK; i++) {
        int axis = axes ? nd__shape_resolve_axis(name, axes[i], available) : i;
        if (axis < 0)
            return nd_error_get_status();
        if (seen >> axis & 1)
            return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: axis %d is named twice", name, axis);
        seen |= 1U << axis;
        bool is_last = i == count - 1;
        int place = last == ND_OP_rfft ? count - 1 - i : i;
        status = make_map(name, is_last ? last : ND_OP_fft, axis, x->shape[axis],
                          sizes ? sizes[i] : 0, sign, norm, &ret_plan->maps[place]);
    }
    ret_plan->count = count;
    return status;
}

static nd_tensor *transformed_axes(const char *name, nd_op last, const nd_tensor *x, int naxes,
                                   const int64_t *sizes, const int *axes, int sign,
                                   nd_fft_norm norm) {
    ND__ERROR_NAMED(name);
    nd_tensor *result = operand(name, x, last, norm);
    plan p;
    if (result && make_plan(name, last, x, naxes, sizes, axes, sign, norm, &p) != ND_OK) {
        nd_release(result);
        return NULL;
    }
    for (int i = 0; result && i < p.count; i++) {
        nd_tensor *next = nd__fft_along(name, result, &p.maps[i]);
        nd_release(result);
        result = next;
    }
    return result;
}

nd_tensor *nd_fftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes,
                   nd_fft_norm norm) {
    return transformed_axes("fftn", ND_OP_fft, x, naxes, sizes, axes, FORWARD, norm);
}

nd_tensor *nd_ifftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes,
                    nd_fft_norm norm) {
    return transformed_axes("ifftn", ND_OP_fft, x, naxes, sizes, axes, INVERSE, norm);
}

nd_tensor *nd_rfftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes,
                    nd_fft_norm norm) {
    return transformed_axes("rfftn", ND_OP_rfft, x, naxes, sizes, axes, FORWARD, norm);
}

nd_tensor *nd_irfftn(const nd_tensor *x, int naxes, const int64_t *sizes, const int *axes,
                     nd_fft_norm norm) {
    return transformed_axes("irfftn", ND_OP_irfft, x, naxes, sizes, axes, INVERSE, norm);
}

// -------------------------------------------------------------------------------------------------
// frequencies

static nd_status check_frequencies(const char *name, int64_t n, double spacing, nd_dtype dtype) {
    if ((unsigned)dtype >= ND_DTYPE_COUNT || !nd__dtype_is_float(dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: the dtype is %s and must be of floats", name,
                         nd_dtype_get_name(dtype));
    if (n < 1 || !isfinite(spacing) || spacing == 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: %lld samples, %g apart, and there must be one or more, some finite "
                         "way apart",
                         name, (long long)n, spacing);
    return ND_OK;
}

/// Numbers (consumed) of cycles in n samples as frequencies.
static nd_tensor *as_frequencies(nd_tensor *cycles, int64_t n, double spacing, nd_dtype dtype) {
    nd_auto nd_tensor *consumed = cycles;
    nd_auto nd_tensor *frequencies = nd_div_scalar(consumed, (double)n * spacing);
    return frequencies ? nd__operands_as_dtype(frequencies, dtype) : NULL;
}

nd_tensor *nd_fftfreq(int64_t n, double spacing, nd_dtype dtype) {
    ND__ERROR_NAMED("fftfreq");
    if (check_frequencies("fftfreq", n, spacing, dtype) != ND_OK)
        return NULL;
    nd_auto nd_tensor *positive = nd_arange(0, n - n / 2, 1, ND_F64);
    nd_auto nd_tensor *negative = nd_arange(-(n / 2), 0, 1, ND_F64);
    const nd_tensor *parts[] = {positive, negative};
    return positive && negative ? as_frequencies(nd_concat(2, parts, 0), n, spacing, dtype) : NULL;
}

nd_tensor *nd_rfftfreq(int64_t n, double spacing, nd_dtype dtype) {
    ND__ERROR_NAMED("rfftfreq");
    if (check_frequencies("rfftfreq", n, spacing, dtype) != ND_OK)
        return NULL;
    return as_frequencies(nd_arange(0, n / 2 + 1, 1, ND_F64), n, spacing, dtype);
}

static nd_tensor *shifted(const char *name, const nd_tensor *x, int naxes, const int *axes,
                          bool back) {
    ND__ERROR_NAMED(name);
    if (nd__tensor_check_operand(name, "x", x) != ND_OK)
        return NULL;
    int mask = nd__operands_axes_mask(name, x, naxes, axes);
    if (mask < 0)
        return NULL;
    nd_tensor *result = mask == 0 ? nd_clone(x) : nd_retain(x);
    for (int axis = 0; axis < x->ndim && result; axis++) {
        if (!(mask >> axis & 1))
            continue;
        int64_t half = x->shape[axis] / 2;
        nd_tensor *next = nd_roll(result, back ? -half : half, axis);
        nd_release(result);
        result = next;
    }
    return result;
}

nd_tensor *nd_fftshift(const nd_tensor *x, int naxes, const int *axes) {
    return shifted("fftshift", x, naxes, axes, false);
}

nd_tensor *nd_ifftshift(const nd_tensor *x, int naxes, const int *axes) {
    return shifted("ifftshift", x, naxes, axes, true);
}
