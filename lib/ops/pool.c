// max_pool2d. Attributes recorded are those of the kernel; its rule needs the positions alone.
#include "lib/ops/pool.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/operands.h"
#include "lib/ops/window.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"

nd_status nd__pool_options_read(const char *name, const nd_max_pool2d_options *options,
                                nd_max_pool2d_options *ret_options) {
    nd_max_pool2d_options read = ND_MAX_POOL2D_OPTIONS_INIT;
    nd_status status = nd__versioned_read(name, "ND_MAX_POOL2D_OPTIONS_INIT", options, &read,
                                          sizeof(nd_max_pool2d_options));
    if (status == ND_OK)
        status = nd__window_check_pair_option(name, "kernel", read.kernel, 1);
    if (status == ND_OK)
        status = nd__window_check_pair_option(name, "stride", read.stride, 0);
    if (status == ND_OK)
        status = nd__window_check_pair_option(name, "padding", read.padding, 0);
    if (status == ND_OK)
        status = nd__window_check_pair_option(name, "dilation", read.dilation, 1);
    for (int axis = 0; axis < 2 && status == ND_OK; axis++) {
        if (read.padding[axis] > read.kernel[axis] / 2)
            status = nd__error(
                ND_ERROR_INVALID_ARGUMENT,
                "%s: padding[%d] is %lld and must be at most half of kernel[%d], which "
                "is %lld",
                name, axis, (long long)read.padding[axis], axis, (long long)read.kernel[axis]);
        if (read.stride[axis] == 0)
            read.stride[axis] = read.kernel[axis];
    }
    if (status == ND_OK)
        *ret_options = read;
    return status;
}

static nd_status check_images(const nd_tensor *x) {
    nd_status status = nd__tensor_check_operand("max_pool2d", "x", x);
    if (status != ND_OK)
        return status;
    if (!nd__dtype_is_float(x->dtype))
        return nd__error(ND_ERROR_DTYPE, "max_pool2d: x is %s and must be float32 or float64",
                         nd_dtype_get_name(x->dtype));
    char text[ND__SHAPE_TEXT];
    if (x->ndim != 4)
        return nd__error(ND_ERROR_SHAPE, "max_pool2d: x has shape %s and must have 4 dimensions",
                         nd__shape_text(text, x->ndim, x->shape));
    return ND_OK;
}

/// How many windows stand along each axis. Every one of them holds an element: with padding at most
/// half of the kernel, one that does not has two taps, one on either side of the whole axis.
static nd_status count_windows(const nd_tensor *x, const nd_max_pool2d_options *options,
                               int64_t *ret_counts) {
    char text[ND__SHAPE_TEXT];
    for (int axis = 0; axis < 2; axis++) {
        int64_t size = x->shape[2 + axis], kernel = options->kernel[axis];
        int64_t padding = options->padding[axis], dilation = options->dilation[axis];
        nd_status status = nd__window_count("max_pool2d", axis, size, kernel, options->stride[axis],
                                            padding, dilation, &ret_counts[axis]);
        if (status != ND_OK)
            return status;
        bool beside = padding > 0 && dilation > size;
        if (ret_counts[axis] == 0 || beside)
            return nd__error(ND_ERROR_SHAPE,
                             "max_pool2d: kernel[%d] is %lld, which with padding %lld and dilation "
                             "%lld %s x of shape %s",
                             axis, (long long)kernel, (long long)padding, (long long)dilation,
                             beside ? "reaches no element of" : "does not fit into",
                             nd__shape_text(text, x->ndim, x->shape));
    }
    return ND_OK;
}

nd_tensor *nd_max_pool2d(const nd_tensor *x, const nd_max_pool2d_options *options) {
    nd_max_pool2d_options o;
    int64_t counts[2];
    if (check_images(x) != ND_OK || nd__pool_options_read("max_pool2d", options, &o) != ND_OK ||
        count_windows(x, &o, counts) != ND_OK)
        return NULL;
    const int64_t shape[] = {x->shape[0], x->shape[1], counts[0], counts[1]};
    nd_auto nd_tensor *dense = nd__operands_dense("max_pool2d", x, x->dtype);
    if (!dense)
        return NULL;
    nd_auto nd_tensor *positions =
        nd__tensor_result("max_pool2d", &x, 1, x->device, ND_I64, 4, shape);
    nd_auto nd_tensor *result =
        positions ? nd__tensor_result("max_pool2d", &x, 1, x->device, x->dtype, 4, shape) : NULL;
    if (!result)
        return NULL;
    const nd_tensor *inputs[] = {x, positions};
    nd_op_attrs attrs = {.i = {o.kernel[0], o.kernel[1], o.stride[0], o.stride[1], o.padding[0],
                               o.padding[1], o.dilation[0], o.dilation[1], counts[0], counts[1]}};
    if (result->numel == 0)
        return nd__record(ND_OP_max_pool2d, nd_steal(&result), inputs, 2, &attrs);
    nd_kernel_call call;
    call.op = ND_OP_max_pool2d;
    call.noperands = 3;
    call.ndim = 0;
    for (int i = 0; i < 4; i++)
        call.shape[i] = x->shape[i];
    call.operand[0] = nd__shape_broadcast_operand(result, 4, shape);
    call.operand[1] = nd__shape_broadcast_operand(positions, 4, shape);
    call.operand[2] = nd__shape_broadcast_operand(dense, 4, dense->shape);
    call.attrs = attrs;
    return nd__operands_run("max_pool2d", nd_steal(&result), &call, inputs, 2, &attrs);
}
