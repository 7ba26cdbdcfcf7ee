// Pooling over windows of one to three axes: the largest element by its own kernel, the mean as one
// map along each axis after the other (lib/ops/resample.h). Of the largest, what is recorded are
// the positions.
#include "lib/ops/pool.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/operands.h"
#include "lib/ops/resample.h"
#include "lib/ops/window.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"

enum { MAX_NDIM = 2 + ND_WINDOW_AXES };

// ----------------------------------------------------------------------------------------- options

/// The numbers of an options struct, whose arrays have `axes` entries. dilation: NULL of means.
typedef struct numbers {
    int axes;
    const int64_t *kernel, *stride, *padding, *dilation;
    bool ceil_mode, count_include_pad;
    int64_t divisor;
} numbers;

static nd_status check_padding(const char *name, const numbers *n) {
    for (int axis = 0; axis < n->axes; axis++) {
        if (n->padding[axis] <= n->kernel[axis] / 2)
            continue;
        if (n->axes == 1)
            return nd__error(
                ND_ERROR_INVALID_ARGUMENT,
                "%s: padding is %lld and must be at most half of kernel, which is %lld", name,
                (long long)n->padding[0], (long long)n->kernel[0]);
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: padding[%d] is %lld and must be at most half of kernel[%d], which "
                         "is %lld",
                         name, axis, (long long)n->padding[axis], axis, (long long)n->kernel[axis]);
    }
    return ND_OK;
}

static nd_status give(const char *name, const numbers *n, nd__pool_options *ret_options) {
    nd_status status = nd__window_check_option(name, "kernel", n->axes, n->kernel, 1);
    if (status == ND_OK)
        status = nd__window_check_option(name, "stride", n->axes, n->stride, 0);
    if (status == ND_OK)
        status = nd__window_check_option(name, "padding", n->axes, n->padding, 0);
    if (status == ND_OK && n->dilation)
        status = nd__window_check_option(name, "dilation", n->axes, n->dilation, 1);
    if (status == ND_OK)
        status = nd__window_check_option(name, "divisor", 1, &n->divisor, 0);
    if (status == ND_OK)
        status = check_padding(name, n);
    if (status != ND_OK || !ret_options)
        return status;
    const int64_t ones[ND_WINDOW_AXES] = {1, 1, 1};
    *ret_options = (nd__pool_options){.ceil_mode = n->ceil_mode,
                                      .count_include_pad = n->count_include_pad,
                                      .divisor = n->divisor};
    nd__window_align(n->axes, n->kernel, 1, ret_options->kernel);
    nd__window_align(n->axes, n->stride, 1, ret_options->stride);
    nd__window_align(n->axes, n->padding, 0, ret_options->padding);
    nd__window_align(n->axes, n->dilation ? n->dilation : ones, 1, ret_options->dilation);
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
        if (ret_options->stride[axis] == 0)
            ret_options->stride[axis] = ret_options->kernel[axis];
    return ND_OK;
}

// `address` makes a pointer of a field, which is a number where there is one axis and else an
// array.
#define READER(which, TYPE, INIT, count, address, ...)                                    \
    nd_status nd__pool_##which##_options(const char *name, const TYPE *options,           \
                                         nd__pool_options *ret_options) {                 \
        TYPE read = INIT;                                                                 \
        nd_status status = nd__versioned_read(name, #INIT, options, &read, sizeof(TYPE)); \
        const numbers n = {.axes = count,                                                 \
                           .kernel = address read.kernel,                                 \
                           .stride = address read.stride,                                 \
                           .padding = address read.padding,                               \
                           .ceil_mode = read.ceil_mode,                                   \
                           __VA_ARGS__};                                                  \
        return status == ND_OK ? give(name, &n, ret_options) : status;                    \
    }
#define OF_MEANS .count_include_pad = read.count_include_pad, .divisor = read.divisor
READER(max1d, nd_max_pool1d_options, ND_MAX_POOL1D_OPTIONS_INIT, 1, &, .dilation = &read.dilation)
READER(max2d, nd_max_pool2d_options, ND_MAX_POOL2D_OPTIONS_INIT, 2, , .dilation = read.dilation)
READER(max3d, nd_max_pool3d_options, ND_MAX_POOL3D_OPTIONS_INIT, 3, , .dilation = read.dilation)
READER(avg1d, nd_avg_pool1d_options, ND_AVG_POOL1D_OPTIONS_INIT, 1, &, OF_MEANS)
READER(avg2d, nd_avg_pool2d_options, ND_AVG_POOL2D_OPTIONS_INIT, 2, , OF_MEANS)
READER(avg3d, nd_avg_pool3d_options, ND_AVG_POOL3D_OPTIONS_INIT, 3, , OF_MEANS)

// ---------------------------------------------------------------------------------------- checking

/// Floats of so many axes; 0: of one to three.
static nd_status check_images(const char *name, int axes, const nd_tensor *x) {
    nd_status status = nd__tensor_check_operand(name, "x", x);
    if (status != ND_OK)
        return status;
    if (!nd__dtype_is_float(x->dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: x is %s and must be of a float dtype", name,
                         nd_dtype_get_name(x->dtype));
    char text[ND__SHAPE_TEXT];
    if (axes > 0 ? x->ndim == axes + 2 : x->ndim >= 3 && x->ndim <= MAX_NDIM)
        return ND_OK;
    if (axes == 0)
        return nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and must have 3, 4 or 5 dimensions",
                         name, nd__shape_text(text, x->ndim, x->shape));
    return nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and must have %d dimensions", name,
                     nd__shape_text(text, x->ndim, x->shape), axes + 2);
}

/// Whether one of the windows that begin before x steps over all of it.
static bool steps_over(int64_t size, int64_t count, int64_t kernel, int64_t stride, int64_t padding,
                       int64_t dilation) {
    if (size == 0)
        return true;
    for (int64_t i = 0; dilation > size && i < count && i * stride < padding; i++) {
        const int64_t before = padding - i * stride, taps = (before + dilation - 1) / dilation;
        if (taps >= kernel || taps * dilation - before >= size)
            return true;
    }
    return false;
}

/// How many windows stand along each axis. Every one of them holds an element.
static nd_status count_windows(const char *name, const nd_tensor *x, const nd__pool_options *o,
                               int64_t *ret_counts) {
    char text[ND__SHAPE_TEXT];
    int missing = MAX_NDIM - x->ndim;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        if (axis < missing) {
            ret_counts[axis] = 1;
            continue;
        }
        int64_t size = x->shape[2 + axis - missing], kernel = o->kernel[axis];
        int64_t padding = o->padding[axis], dilation = o->dilation[axis];
        nd_status status = nd__window_count(name, axis - missing, size, kernel, o->stride[axis],
                                            padding, dilation, o->ceil_mode, &ret_counts[axis]);
        if (status != ND_OK)
            return status;
        bool beside =
            steps_over(size, ret_counts[axis], kernel, o->stride[axis], padding, dilation);
        if (ret_counts[axis] == 0 || beside)
            return nd__error(
                ND_ERROR_SHAPE,
                "%s: kernel[%d] is %lld, which with padding %lld and dilation "
                "%lld %s x of shape %s",
                name, axis - missing, (long long)kernel, (long long)padding, (long long)dilation,
                beside && ret_counts[axis] > 0 ? "reaches no element of" : "does not fit into",
                nd__shape_text(text, x->ndim, x->shape));
    }
    return ND_OK;
}

/// The sizes that adaptive windows shall make, by axis of three. A kernel of 0 is the kernels' word
/// for them.
static nd_status count_adaptive(const char *name, const nd_tensor *x, const int64_t *sizes,
                                nd__pool_options *ret_options, int64_t *ret_counts) {
    *ret_options = (nd__pool_options){.stride = {1, 1, 1}, .dilation = {1, 1, 1}};
    char text[ND__SHAPE_TEXT];
    int missing = MAX_NDIM - x->ndim;
    nd__window_align(x->ndim - 2, sizes, 1, ret_counts);
    for (int axis = missing; axis < ND_WINDOW_AXES; axis++) {
        int64_t size = x->shape[2 + axis - missing];
        if (ret_counts[axis] == -1)
            ret_counts[axis] = size;
        if (ret_counts[axis] < 1 || ret_counts[axis] > INT32_MAX || size < 1 || size > INT32_MAX)
            return nd__error(
                ND_ERROR_INVALID_ARGUMENT,
                "%s: size %lld is asked for of axis %d of x of shape %s; both must be at "
                "least 1 and below 2^31",
                name, (long long)ret_counts[axis], 2 + axis - missing,
                nd__shape_text(text, x->ndim, x->shape));
    }
    return ND_OK;
}

// ----------------------------------------------------------------------------------------- largest

static nd_op_attrs attrs_of(const nd__pool_options *o) {
    nd_op_attrs attrs = {0};
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        attrs.i[axis] = o->kernel[axis];
        attrs.i[3 + axis] = o->stride[axis];
        attrs.i[6 + axis] = o->padding[axis];
        attrs.i[9 + axis] = o->dilation[axis];
    }
    return attrs;
}

/// Of x's shape and that of the windows.
static void fill_call(nd_kernel_call *call, nd_op op, int ndim, const int64_t *shape,
                      const int64_t *windows, const nd_op_attrs *attrs) {
    call->op = op;
    call->noperands = 3;
    call->ndim = 0;
    call->attrs = *attrs;
    call->shape[0] = shape[0] * shape[1];
    nd__window_align(ndim - 2, shape + 2, 1, call->shape + 1);
    nd__window_align(ndim - 2, windows + 2, 1, call->shape + 4);
}

/// Launches into the two results, which are not empty. The kernel's largest of halves is one of
/// f32.
static nd_tensor *launch_max(const char *name, const nd_tensor *x, nd_tensor *positions,
                             const nd_op_attrs *attrs) {
    nd_dtype dtype = nd__dtype_is_half(x->dtype) ? ND_F32 : x->dtype;
    nd_auto nd_tensor *dense = nd__operands_dense(name, x, dtype);
    nd_auto nd_tensor *result =
        dense ? nd__tensor_result(name, &x, 1, x->device, dtype, x->ndim, positions->shape) : NULL;
    if (!result || result->numel == 0)
        return result ? nd__operands_dense(name, result, x->dtype) : NULL;
    nd_kernel_call call;
    fill_call(&call, ND_OP_max_pool, x->ndim, x->shape, positions->shape, attrs);
    call.operand[0] = nd__shape_broadcast_operand(result, x->ndim, result->shape);
    call.operand[1] = nd__shape_broadcast_operand(positions, x->ndim, positions->shape);
    call.operand[2] = nd__shape_broadcast_operand(dense, x->ndim, dense->shape);
    if (nd__launch(name, x->device, &call) != ND_OK)
        return NULL;
    return nd__operands_dense(name, result, x->dtype);
}

static nd_tensor *largest(const char *name, const nd_tensor *x, const nd__pool_options *o,
                          const int64_t *counts, nd_tensor **ret_positions) {
    int64_t shape[MAX_NDIM] = {x->shape[0], x->shape[1]};
    for (int i = 2; i < x->ndim; i++)
        shape[i] = counts[i - 2 + MAX_NDIM - x->ndim];
    nd_auto nd_tensor *positions =
        nd__tensor_result(name, &x, 1, x->device, ND_I64, x->ndim, shape);
    const nd_op_attrs attrs = attrs_of(o);
    nd_tensor *result = positions ? launch_max(name, x, positions, &attrs) : NULL;
    const nd_tensor *inputs[] = {x, positions};
    result = result ? nd__record(ND_OP_max_pool, result, inputs, 2, &attrs) : NULL;
    if (result && ret_positions)
        *ret_positions = nd_steal(&positions);
    return result;
}

nd_status nd__pool_max_grad(const nd_tensor *grad, const nd_tensor *positions,
                            const nd_op_attrs *attrs, const int64_t *shape, nd_tensor **ret_grad) {
    const char *name = "max_pool";
    if (!nd__launch_fuses(grad->device) || grad->numel == 0)
        return ND_ERROR_UNSUPPORTED;
    nd_dtype dtype = nd__dtype_is_half(grad->dtype) ? ND_F32 : grad->dtype;
    nd_auto nd_tensor *dense = nd__operands_dense(name, grad, dtype);
    nd_auto nd_tensor *places = nd_contiguous(positions);
    const nd_tensor *operands[] = {dense, places};
    nd_auto nd_tensor *result =
        dense && places
            ? nd__tensor_result(name, operands, 2, dense->device, dtype, grad->ndim, shape)
            : NULL;
    if (!result)
        return nd_error_get_status();
    nd_kernel_call call;
    fill_call(&call, ND_OP_max_pool_grad, grad->ndim, shape, grad->shape, attrs);
    call.operand[0] = (nd_operand){.data = result->data, .dtype = dtype};
    call.operand[1] = (nd_operand){.data = places->data, .dtype = ND_I64};
    call.operand[2] = (nd_operand){.data = dense->data, .dtype = dtype};
    nd_status status = nd__launch_where_supported(name, grad->device, &call);
    if (status != ND_OK)
        return status;
    *ret_grad = nd__operands_dense(name, result, grad->dtype);
    return *ret_grad ? ND_OK : nd_error_get_status();
}

static nd_tensor *adaptive_max(const char *name, const nd_tensor *x, int axes,
                               const int64_t *sizes) {
    nd__pool_options o;
    int64_t counts[ND_WINDOW_AXES];
    if (check_images(name, axes, x) != ND_OK || count_adaptive(name, x, sizes, &o, counts) != ND_OK)
        return NULL;
    return largest(name, x, &o, counts, NULL);
}

#define MAX_POOL(which, axes_)                                                                     \
    static nd_tensor *max_pool##which(const char *name, const nd_tensor *x,                        \
                                      const nd_max_pool##which##_options *options,                 \
                                      nd_tensor **ret_positions) {                                 \
        nd__pool_options o;                                                                        \
        int64_t counts[ND_WINDOW_AXES];                                                            \
        if (check_images(name, axes_, x) != ND_OK ||                                               \
            nd__pool_max##which##_options(name, options, &o) != ND_OK ||                           \
            count_windows(name, x, &o, counts) != ND_OK)                                           \
            return NULL;                                                                           \
        return largest(name, x, &o, counts, ret_positions);                                        \
    }                                                                                              \
    nd_tensor *nd_max_pool##which(const nd_tensor *x,                                              \
                                  const nd_max_pool##which##_options *options) {                   \
        return max_pool##which("max_pool" #which, x, options, NULL);                               \
    }                                                                                              \
    nd_status nd_max_pool##which##_with_indices(const nd_tensor *x,                                \
                                                const nd_max_pool##which##_options *options,       \
                                                nd_tensor **ret_values, nd_tensor **ret_indices) { \
        if (!ret_values || !ret_indices)                                                           \
            return nd__error_null("max_pool" #which "_with_indices",                               \
                                  ret_values ? "ret_indices" : "ret_values");                      \
        nd_tensor *positions = NULL;                                                               \
        nd_tensor *values =                                                                        \
            max_pool##which("max_pool" #which "_with_indices", x, options, &positions);            \
        if (!values)                                                                               \
            return nd_error_get_status();                                                          \
        *ret_values = values;                                                                      \
        *ret_indices = positions;                                                                  \
        return ND_OK;                                                                              \
    }
MAX_POOL(1d, 1)
MAX_POOL(2d, 2)
MAX_POOL(3d, 3)

// -------------------------------------------------------------------------------------------- mean

/// The maps along all axes, one after the other, then the divisor, if there is one; in f32 for
/// halves.
static nd_tensor *average(const char *name, const nd_tensor *x, const nd__resample_axis *maps,
                          int64_t divisor) {
    nd_auto nd_tensor *y =
        nd__operands_as_dtype(x, nd__dtype_is_half(x->dtype) ? ND_F32 : x->dtype);
    for (int axis = 2; axis < x->ndim && y; axis++) {
        nd_tensor *next = nd__resample_along(name, y, axis, &maps[axis - 2 + MAX_NDIM - x->ndim]);
        nd_release(y);
        y = next;
    }
    if (y && divisor > 0) {
        nd_tensor *quotient = nd_div_scalar(y, divisor);
        nd_release(y);
        y = quotient;
    }
    return y ? nd__operands_as_dtype(y, x->dtype) : NULL;
}

/// The mean of all that a channel has, which is one window of one axis; in f32 for halves.
static nd_tensor *whole_average(const char *name, const nd_tensor *x) {
    int64_t volume = 1, shape[MAX_NDIM] = {x->shape[0], x->shape[1], 1, 1, 1};
    for (int axis = 2; axis < x->ndim; axis++)
        volume *= x->shape[axis];
    const nd_op_attrs attrs = {
        .i = {ND__RESAMPLE_ADAPTIVE, x->shape[0] * x->shape[1], volume, 1, 1}};
    nd_auto nd_tensor *wide =
        nd__operands_as_dtype(x, nd__dtype_is_half(x->dtype) ? ND_F32 : x->dtype);
    nd_auto nd_tensor *y =
        wide ? nd__resample_apply(name, ND_OP_resample, wide, shape, &attrs) : NULL;
    return y ? nd__operands_as_dtype(y, x->dtype) : NULL;
}

/// The sums of windows over a divisor of the program's own.
static nd_tensor *windows_quotient(const char *name, const nd_tensor *x, const nd__pool_options *o,
                                   const int64_t *counts) {
    nd__resample_axis maps[ND_WINDOW_AXES];
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
        maps[axis] = (nd__resample_axis){
            .mode = ND__RESAMPLE_WINDOW,
            .out = counts[axis],
            .kernel = o->kernel[axis],
            .stride = o->stride[axis],
            .padding = o->padding[axis],
            .flags = ND__RESAMPLE_SUM,
        };
    return average(name, x, maps, o->divisor);
}

static nd_tensor *windows_average(const char *name, const nd_tensor *x, const nd__pool_options *o) {
    int64_t counts[ND_WINDOW_AXES], shape[MAX_NDIM] = {x->shape[0], x->shape[1]};
    if (count_windows(name, x, o, counts) != ND_OK)
        return NULL;
    if (o->divisor > 0)
        return windows_quotient(name, x, o, counts);
    for (int i = 2; i < x->ndim; i++)
        shape[i] = counts[i - 2 + MAX_NDIM - x->ndim];
    nd_op_attrs attrs = {.i = {ND__RESAMPLE_WINDOWS}};
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        attrs.i[1 + axis] = o->kernel[axis];
        attrs.i[4 + axis] = o->stride[axis];
        attrs.i[7 + axis] = o->padding[axis];
    }
    attrs.i[10] = o->count_include_pad ? ND__RESAMPLE_COUNT_PADDING : 0;
    nd_auto nd_tensor *wide =
        nd__operands_as_dtype(x, nd__dtype_is_half(x->dtype) ? ND_F32 : x->dtype);
    nd_auto nd_tensor *y =
        wide ? nd__resample_apply(name, ND_OP_resample, wide, shape, &attrs) : NULL;
    return y ? nd__operands_as_dtype(y, x->dtype) : NULL;
}

static nd_tensor *adaptive_avg(const char *name, const nd_tensor *x, int axes,
                               const int64_t *sizes) {
    nd__pool_options o;
    int64_t counts[ND_WINDOW_AXES];
    nd__resample_axis maps[ND_WINDOW_AXES];
    if (check_images(name, axes, x) != ND_OK || count_adaptive(name, x, sizes, &o, counts) != ND_OK)
        return NULL;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
        maps[axis] = (nd__resample_axis){.mode = ND__RESAMPLE_ADAPTIVE, .out = counts[axis]};
    if (counts[0] * counts[1] * counts[2] == 1)
        return whole_average(name, x);
    return average(name, x, maps, 0);
}

#define AVG_POOL(which, axes_)                                                   \
    nd_tensor *nd_avg_pool##which(const nd_tensor *x,                            \
                                  const nd_avg_pool##which##_options *options) { \
        nd__pool_options o;                                                      \
        const char *name = "avg_pool" #which;                                    \
        if (check_images(name, axes_, x) != ND_OK ||                             \
            nd__pool_avg##which##_options(name, options, &o) != ND_OK)           \
            return NULL;                                                         \
        return windows_average(name, x, &o);                                     \
    }
AVG_POOL(1d, 1)
AVG_POOL(2d, 2)
AVG_POOL(3d, 3)

#define ADAPTIVE_POOLS(kind)                                                                      \
    nd_tensor *nd_adaptive_##kind##_pool1d(const nd_tensor *x, int64_t length) {                  \
        return adaptive_##kind("adaptive_" #kind "_pool1d", x, 1, &length);                       \
    }                                                                                             \
    nd_tensor *nd_adaptive_##kind##_pool2d(const nd_tensor *x, int64_t h, int64_t w) {            \
        const int64_t sizes[] = {h, w};                                                           \
        return adaptive_##kind("adaptive_" #kind "_pool2d", x, 2, sizes);                         \
    }                                                                                             \
    nd_tensor *nd_adaptive_##kind##_pool3d(const nd_tensor *x, int64_t d, int64_t h, int64_t w) { \
        const int64_t sizes[] = {d, h, w};                                                        \
        return adaptive_##kind("adaptive_" #kind "_pool3d", x, 3, sizes);                         \
    }                                                                                             \
    nd_tensor *nd_global_##kind##_pool(const nd_tensor *x) {                                      \
        const int64_t sizes[] = {1, 1, 1};                                                        \
        return adaptive_##kind("global_" #kind "_pool", x, 0, sizes);                             \
    }
ADAPTIVE_POOLS(avg)
ADAPTIVE_POOLS(max)
