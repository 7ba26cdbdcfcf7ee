// conv2d with the gradients that its rule asks for, and max_pool2d.
//
// The three convolutions are one family: x, weight and the result y, of which two are given. Attributes
// recorded are those of the kernel: i[0..10] = n, ci, h, w, co, kh, kw, stride, padding, oh, ow.
#include "lib/ops/internal.h"
#include "lib/ops/operands.h"

/// Sizes of a convolution from those of x and weight.
static nd_status conv_sizes(const char *name, const int64_t *x, const int64_t *weight, int stride,
                            int padding, nd_op_attrs *ret_attrs) {
    if (stride < 1 || padding < 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: stride is %d and padding %d; they must be at least 1 and 0", name,
                         stride, padding);
    char x_text[ND__SHAPE_TEXT], weight_text[ND__SHAPE_TEXT];
    nd__shape_text(x_text, 4, x);
    nd__shape_text(weight_text, 4, weight);
    if (x[1] != weight[1])
        return nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and weight %s; their channels differ",
                         name, x_text, weight_text);
    int64_t free_h = x[2] + 2 * (int64_t)padding - weight[2];
    int64_t free_w = x[3] + 2 * (int64_t)padding - weight[3];
    if (weight[2] < 1 || weight[3] < 1 || free_h < 0 || free_w < 0)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: a weight of shape %s does not fit into x of shape %s with padding %d",
                         name, weight_text, x_text, padding);
    const int64_t sizes[11] = {x[0],
                               x[1],
                               x[2],
                               x[3],
                               weight[0],
                               weight[2],
                               weight[3],
                               stride,
                               padding,
                               free_h / stride + 1,
                               free_w / stride + 1};
    *ret_attrs = (nd_op_attrs){.f = {0}};
    for (int i = 0; i < 11; i++)
        ret_attrs->i[i] = sizes[i];
    return ND_OK;
}

static nd_status check_4d(const char *name, const char *a_name, const nd_tensor *a,
                          const char *b_name, const nd_tensor *b) {
    nd_status status = nd__check_pair(name, a_name, a, b_name, b);
    if (status != ND_OK)
        return status;
    char a_text[ND__SHAPE_TEXT], b_text[ND__SHAPE_TEXT];
    if (a->ndim != 4 || b->ndim != 4)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: %s has shape %s and %s %s; both must have 4 dimensions", name, a_name,
                         nd__shape_text(a_text, a->ndim, a->shape), b_name,
                         nd__shape_text(b_text, b->ndim, b->shape));
    if (a->dtype != b->dtype || !nd__is_float(a->dtype))
        return nd__error(ND_ERROR_DTYPE,
                         "%s: %s is %s and %s %s; both must be float32, or both float64", name,
                         a_name, nd_dtype_name(a->dtype), b_name, nd_dtype_name(b->dtype));
    return ND_OK;
}

static bool has_shape(const nd_tensor *x, int64_t n, int64_t c, int64_t h, int64_t w) {
    return x->shape[0] == n && x->shape[1] == c && x->shape[2] == h && x->shape[3] == w;
}

/// Runs one of the three on checked inputs and records it.
static nd_tensor *convolve(nd_op op, const nd_tensor *a, const nd_tensor *b, const int64_t *shape,
                           const nd_op_attrs *attrs) {
    const char *name = nd__op_name(op);
    nd_auto nd_tensor *a_dense = nd__dense(name, a, a->dtype);
    nd_auto nd_tensor *b_dense = a_dense ? nd__dense(name, b, b->dtype) : NULL;
    if (!b_dense)
        return NULL;
    const nd_tensor *inputs[] = {a, b};
    nd_tensor *result = nd__tensor_result(name, inputs, 2, a->device, a->dtype, 4, shape);
    bool nothing = a->numel == 0 || b->numel == 0;
    if (result && nothing)
        result = nd__filled(name, result, 0.0);
    if (!result || result->numel == 0 || nothing)
        return nd__record(op, result, inputs, 2, attrs);
    nd_kernel_call call;
    call.op = op;
    call.noperands = 3;
    call.ndim = 0;
    call.operand[0] = nd__operand_broadcast(result, 4, result->shape);
    call.operand[1] = nd__operand_broadcast(a_dense, 4, a_dense->shape);
    call.operand[2] = nd__operand_broadcast(b_dense, 4, b_dense->shape);
    call.attrs = *attrs;
    return nd__run(name, result, &call, inputs, 2, attrs);
}

static nd_status check_bias(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias) {
    nd_status status = nd__check_pair("conv2d", "x", x, "bias", bias);
    if (status != ND_OK)
        return status;
    if (bias->ndim == 1 && bias->shape[0] == weight->shape[0] && bias->dtype == x->dtype)
        return ND_OK;
    char text[ND__SHAPE_TEXT];
    return nd__error(bias->dtype == x->dtype ? ND_ERROR_SHAPE : ND_ERROR_DTYPE,
                     "conv2d: bias is %s of shape %s and must be %s of shape [%lld]",
                     nd_dtype_name(bias->dtype), nd__shape_text(text, bias->ndim, bias->shape),
                     nd_dtype_name(x->dtype), (long long)weight->shape[0]);
}

nd_tensor *nd_conv2d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias, int stride,
                     int padding) {
    nd_op_attrs attrs;
    if (check_4d("conv2d", "x", x, "weight", weight) != ND_OK ||
        (bias && check_bias(x, weight, bias) != ND_OK) ||
        conv_sizes("conv2d", x->shape, weight->shape, stride, padding, &attrs) != ND_OK)
        return NULL;
    const int64_t shape[] = {attrs.i[0], attrs.i[4], attrs.i[9], attrs.i[10]};
    nd_auto nd_tensor *result = convolve(ND_OP_conv2d, x, weight, shape, &attrs);
    if (!bias || !result)
        return nd_steal(&result);
    const int64_t per_channel[] = {1, attrs.i[4], 1, 1};
    nd_auto nd_tensor *spread = nd_reshape(bias, 4, per_channel);
    // The result is ours alone, so the sum may be written over it.
    if (!spread || nd_add_(result, spread) != ND_OK)
        return NULL;
    return nd_steal(&result);
}

static nd_status refuse_gradient(const char *name, const nd_tensor *grad,
                                 const nd_op_attrs *attrs) {
    char text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE,
                     "%s: the gradient has shape %s and must have [%lld, %lld, %lld, %lld]", name,
                     nd__shape_text(text, grad->ndim, grad->shape), (long long)attrs->i[0],
                     (long long)attrs->i[4], (long long)attrs->i[9], (long long)attrs->i[10]);
}

nd_tensor *nd__conv2d_grad_input(const nd_tensor *grad, const nd_tensor *weight,
                                 const int64_t *x_shape, int stride, int padding) {
    nd_op_attrs attrs;
    if (check_4d("conv2d_grad_input", "grad", grad, "weight", weight) != ND_OK ||
        conv_sizes("conv2d_grad_input", x_shape, weight->shape, stride, padding, &attrs) != ND_OK)
        return NULL;
    if (!has_shape(grad, attrs.i[0], attrs.i[4], attrs.i[9], attrs.i[10])) {
        refuse_gradient("conv2d_grad_input", grad, &attrs);
        return NULL;
    }
    return convolve(ND_OP_conv2d_grad_input, grad, weight, x_shape, &attrs);
}

nd_tensor *nd__conv2d_grad_weight(const nd_tensor *x, const nd_tensor *grad,
                                  const int64_t *weight_shape, int stride, int padding) {
    nd_op_attrs attrs;
    if (check_4d("conv2d_grad_weight", "x", x, "grad", grad) != ND_OK ||
        conv_sizes("conv2d_grad_weight", x->shape, weight_shape, stride, padding, &attrs) != ND_OK)
        return NULL;
    if (!has_shape(grad, attrs.i[0], attrs.i[4], attrs.i[9], attrs.i[10])) {
        refuse_gradient("conv2d_grad_weight", grad, &attrs);
        return NULL;
    }
    return convolve(ND_OP_conv2d_grad_weight, x, grad, weight_shape, &attrs);
}

// ------------------------------------------------------------------------------------------ pooling

static nd_status check_pool(const nd_tensor *x, int kernel, int stride) {
    nd_status status = nd__check_operand("max_pool2d", "x", x);
    if (status != ND_OK)
        return status;
    if (!nd__is_float(x->dtype))
        return nd__error(ND_ERROR_DTYPE, "max_pool2d: x is %s and must be float32 or float64",
                         nd_dtype_name(x->dtype));
    if (kernel < 1 || stride < 1)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "max_pool2d: kernel is %d and stride %d; both must be at least 1", kernel,
                         stride);
    char text[ND__SHAPE_TEXT];
    if (x->ndim != 4 || x->shape[2] < kernel || x->shape[3] < kernel)
        return nd__error(ND_ERROR_SHAPE,
                         "max_pool2d: x has shape %s and must have 4 dimensions with planes of at "
                         "least %d x %d",
                         nd__shape_text(text, x->ndim, x->shape), kernel, kernel);
    return ND_OK;
}

nd_tensor *nd_max_pool2d(const nd_tensor *x, int kernel, int stride) {
    if (check_pool(x, kernel, stride) != ND_OK)
        return NULL;
    int64_t oh = (x->shape[2] - kernel) / stride + 1, ow = (x->shape[3] - kernel) / stride + 1;
    const int64_t shape[] = {x->shape[0], x->shape[1], oh, ow};
    nd_auto nd_tensor *dense = nd__dense("max_pool2d", x, x->dtype);
    if (!dense)
        return NULL;
    nd_auto nd_tensor *positions =
        nd__tensor_result("max_pool2d", &x, 1, x->device, ND_I64, 4, shape);
    nd_auto nd_tensor *result =
        positions ? nd__tensor_result("max_pool2d", &x, 1, x->device, x->dtype, 4, shape) : NULL;
    if (!result)
        return NULL;
    const nd_tensor *inputs[] = {x, positions};
    nd_op_attrs attrs = {
        .i = {x->shape[0], x->shape[1], x->shape[2], x->shape[3], kernel, stride, oh, ow}};
    if (result->numel == 0)
        return nd__record(ND_OP_max_pool2d, nd_steal(&result), inputs, 2, &attrs);
    nd_kernel_call call;
    call.op = ND_OP_max_pool2d;
    call.noperands = 3;
    call.ndim = 0;
    call.operand[0] = nd__operand_broadcast(result, 4, shape);
    call.operand[1] = nd__operand_broadcast(positions, 4, shape);
    call.operand[2] = nd__operand_broadcast(dense, 4, dense->shape);
    call.attrs = attrs;
    return nd__run("max_pool2d", nd_steal(&result), &call, inputs, 2, &attrs);
}
