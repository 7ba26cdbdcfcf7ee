// unfold and fold: windows of images as the columns of matrices, and the transposed map. The kernel
// is that of convolutions, with one group and one channel of the result. Halves are added up in
// f32.
#include "lib/ops/fold.h"
#include "kernels/windows.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/operands.h"
#include "lib/ops/window.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"

static nd_status read_options(const char *name, const nd_unfold_options *options,
                              nd_op_attrs *ret_attrs) {
    nd_unfold_options read = ND_UNFOLD_OPTIONS_INIT;
    nd_status status =
        nd__versioned_read(name, "ND_UNFOLD_OPTIONS_INIT", options, &read, sizeof read);
    if (status == ND_OK)
        status = nd__window_check_option(name, "kernel", 2, read.kernel, 1);
    if (status == ND_OK)
        status = nd__window_check_option(name, "stride", 2, read.stride, 1);
    if (status == ND_OK)
        status = nd__window_check_option(name, "padding", 2, read.padding, 0);
    if (status == ND_OK)
        status = nd__window_check_option(name, "dilation", 2, read.dilation, 1);
    if (status != ND_OK)
        return status;
    *ret_attrs = (nd_op_attrs){.f = {0}};
    for (int axis = 0; axis < 2; axis++) {
        ret_attrs->i[ND__FOLD_KERNEL + axis] = read.kernel[axis];
        ret_attrs->i[ND__FOLD_STRIDE + axis] = read.stride[axis];
        ret_attrs->i[ND__FOLD_PADDING + axis] = read.padding[axis];
        ret_attrs->i[ND__FOLD_DILATION + axis] = read.dilation[axis];
    }
    return ND_OK;
}

static nd_status check(const char *name, const nd_tensor *x, int ndim) {
    nd_status status = nd__tensor_check_operand(name, "x", x);
    if (status != ND_OK)
        return status;
    char text[ND__SHAPE_TEXT];
    if (!nd__dtype_is_float(x->dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: x is %s and must be of a float dtype", name,
                         nd_dtype_get_name(x->dtype));
    if (x->ndim != ndim)
        return nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and must have %d dimensions", name,
                         nd__shape_text(text, x->ndim, x->shape), ndim);
    return ND_OK;
}

/// image: [n, c, h, w].
static nd_status measure(const char *name, const int64_t *image, const nd_op_attrs *attrs,
                         nd__conv_sizes *ret_sizes) {
    const int64_t *i = attrs->i;
    *ret_sizes = (nd__conv_sizes){.n = image[0], .ci = image[1], .co = 1, .groups = 1};
    nd__window_align(2, image + 2, 1, ret_sizes->x);
    nd__window_align(2, i + ND__FOLD_KERNEL, 1, ret_sizes->kernel);
    nd__window_align(2, i + ND__FOLD_STRIDE, 1, ret_sizes->stride);
    nd__window_align(2, i + ND__FOLD_PADDING, 0, ret_sizes->padding);
    nd__window_align(2, i + ND__FOLD_DILATION, 1, ret_sizes->dilation);
    ret_sizes->y[0] = 1;
    for (int axis = 1; axis < ND_WINDOW_AXES; axis++) {
        nd_status status = nd__window_count(
            name, axis - 1, ret_sizes->x[axis], ret_sizes->kernel[axis], ret_sizes->stride[axis],
            ret_sizes->padding[axis], ret_sizes->dilation[axis], false, &ret_sizes->y[axis]);
        if (status != ND_OK)
            return status;
        if (ret_sizes->y[axis] == 0)
            return nd__error(
                ND_ERROR_SHAPE,
                "%s: kernel[%d] is %lld, which with padding %lld and dilation %lld does "
                "not fit into an image of %lld x %lld",
                name, axis - 1, (long long)ret_sizes->kernel[axis],
                (long long)ret_sizes->padding[axis], (long long)ret_sizes->dilation[axis],
                (long long)image[2], (long long)image[3]);
    }
    return ND_OK;
}

/// c kh kw and the number of windows.
static nd_status measure_columns(const char *name, const nd__conv_sizes *s, int64_t *ret_rows,
                                 int64_t *ret_windows) {
    if (__builtin_mul_overflow(s->kernel[1], s->kernel[2], ret_rows) ||
        __builtin_mul_overflow(s->ci, *ret_rows, ret_rows) ||
        __builtin_mul_overflow(s->y[1], s->y[2], ret_windows))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: so many windows that they have no 64-bit number", name);
    return ND_OK;
}

static nd_tensor *run(const char *name, nd_op op, const nd_tensor *x, int ndim,
                      const int64_t *shape, const nd__conv_sizes *sizes, const nd_op_attrs *attrs) {
    nd_dtype dtype = nd__dtype_is_half(x->dtype) ? ND_F32 : x->dtype;
    nd_auto nd_tensor *dense = nd__operands_dense(name, x, dtype);
    nd_auto nd_tensor *computed =
        dense ? nd__tensor_result(name, &x, 1, x->device, dtype, ndim, shape) : NULL;
    if (!computed)
        return NULL;
    if (computed->numel > 0) {
        nd_kernel_call call = {.op = op, .noperands = 2};
        nd__conv_sizes_into(sizes, &call);
        call.operand[0] = nd__shape_broadcast_operand(computed, ndim, computed->shape);
        call.operand[1] = nd__shape_broadcast_operand(dense, dense->ndim, dense->shape);
        if (nd__launch(name, computed->device, &call) != ND_OK)
            return NULL;
    }
    nd_tensor *result = nd__operands_dense(name, computed, x->dtype);
    return result ? nd__record(op, result, &x, 1, attrs) : NULL;
}

nd_tensor *nd__fold_unfold(const nd_tensor *x, const nd_op_attrs *attrs) {
    nd__conv_sizes sizes;
    int64_t shape[3];
    if (check("unfold", x, 4) != ND_OK || measure("unfold", x->shape, attrs, &sizes) != ND_OK ||
        measure_columns("unfold", &sizes, &shape[1], &shape[2]) != ND_OK)
        return NULL;
    shape[0] = x->shape[0];
    return run("unfold", ND_OP_unfold, x, 3, shape, &sizes, attrs);
}

nd_tensor *nd__fold_fold(const nd_tensor *columns, int64_t h, int64_t w, const nd_op_attrs *attrs) {
    if (check("fold", columns, 3) != ND_OK)
        return NULL;
    int64_t window, rows = 0, windows = 0;
    nd__conv_sizes sizes;
    bool known = !__builtin_mul_overflow(attrs->i[0], attrs->i[1], &window);
    int64_t shape[] = {columns->shape[0], known ? columns->shape[1] / window : 0, h, w};
    if (h < 1 || w < 1) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "fold: h is %lld and w %lld; both must be at least 1",
                  (long long)h, (long long)w);
        return NULL;
    }
    if (measure("fold", shape, attrs, &sizes) != ND_OK ||
        measure_columns("fold", &sizes, &rows, &windows) != ND_OK)
        return NULL;
    char text[ND__SHAPE_TEXT];
    if (!known || columns->shape[1] != rows || columns->shape[2] != windows) {
        nd__error(
            ND_ERROR_SHAPE,
            "fold: x has shape %s; windows of %lld x %lld make columns of a multiple of that, and "
            "%lld of them stand in %lld x %lld",
            nd__shape_text(text, 3, columns->shape), (long long)attrs->i[0], (long long)attrs->i[1],
            (long long)windows, (long long)h, (long long)w);
        return NULL;
    }
    return run("fold", ND_OP_fold, columns, 4, shape, &sizes, attrs);
}

nd_tensor *nd_unfold(const nd_tensor *x, const nd_unfold_options *options) {
    nd_op_attrs attrs;
    return read_options("unfold", options, &attrs) == ND_OK ? nd__fold_unfold(x, &attrs) : NULL;
}

nd_tensor *nd_fold(const nd_tensor *x, int64_t h, int64_t w, const nd_unfold_options *options) {
    nd_op_attrs attrs;
    return read_options("fold", options, &attrs) == ND_OK ? nd__fold_fold(x, h, w, &attrs) : NULL;
}
