// conv2d with the gradients that its rule asks for.
//
// The three convolutions are one family: x, weight and the result y, of which two are given.
// Attributes recorded are those of the kernel; from them the rules make the options again.
#include "lib/ops/conv.h"
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/operands.h"
#include "lib/ops/window.h"
#include "lib/tensor/create.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"

/// What a call says besides its operands: shape[] and attrs, as kernels/kernel.h lists them.
typedef struct conv_geometry {
    int64_t n, ci, h, w, co, kh, kw, oh, ow;
    nd_op_attrs attrs;
} conv_geometry;

nd_status nd__conv_options_read(const char *name, const nd_conv2d_options *options,
                                nd_conv2d_options *ret_options) {
    nd_conv2d_options read = ND_CONV2D_OPTIONS_INIT;
    nd_status status = nd__versioned_read(name, "ND_CONV2D_OPTIONS_INIT", options, &read,
                                          sizeof(nd_conv2d_options));
    if (status == ND_OK)
        status = nd__window_check_pair_option(name, "stride", read.stride, 1);
    if (status == ND_OK)
        status = nd__window_check_pair_option(name, "padding", read.padding, 0);
    if (status == ND_OK)
        status = nd__window_check_pair_option(name, "dilation", read.dilation, 1);
    if (status == ND_OK && read.groups < 1)
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: groups is %lld and must be at least 1",
                           name, (long long)read.groups);
    if (status == ND_OK)
        *ret_options = read;
    return status;
}

/// Groups divide the channels, and the weight has those of one group.
static nd_status check_channels(const char *name, const int64_t *x, const int64_t *weight,
                                int64_t groups) {
    char x_text[ND__SHAPE_TEXT], weight_text[ND__SHAPE_TEXT];
    if (x[1] % groups != 0 || weight[0] % groups != 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: groups is %lld and must divide the %lld channels of x and the %lld "
                         "of the result",
                         name, (long long)groups, (long long)x[1], (long long)weight[0]);
    if (x[1] / groups != weight[1])
        return nd__error(ND_ERROR_SHAPE,
                         "%s: x has shape %s and weight %s; with groups %lld the weight's second "
                         "size must be %lld",
                         name, nd__shape_text(x_text, 4, x), nd__shape_text(weight_text, 4, weight),
                         (long long)groups, (long long)(x[1] / groups));
    return ND_OK;
}

static nd_status refuse_weight(const char *name, const int64_t *x, const int64_t *weight,
                               const nd_conv2d_options *options) {
    char x_text[ND__SHAPE_TEXT], weight_text[ND__SHAPE_TEXT];
    return nd__error(
        ND_ERROR_SHAPE,
        "%s: a weight of shape %s does not fit into x of shape %s with padding [%lld, %lld] and "
        "dilation [%lld, %lld]",
        name, nd__shape_text(weight_text, 4, weight), nd__shape_text(x_text, 4, x),
        (long long)options->padding[0], (long long)options->padding[1],
        (long long)options->dilation[0], (long long)options->dilation[1]);
}

/// Sizes of a convolution from those of x and weight. `given` NULL: the defaults.
static nd_status measure(const char *name, const int64_t *x, const int64_t *weight,
                         const nd_conv2d_options *given, conv_geometry *ret_geometry) {
    nd_conv2d_options o;
    nd_status status = nd__conv_options_read(name, given, &o);
    if (status == ND_OK)
        status = check_channels(name, x, weight, o.groups);
    if (status != ND_OK)
        return status;
    int64_t counts[2] = {0, 0};
    for (int axis = 0; axis < 2 && status == ND_OK; axis++) {
        int64_t kernel = weight[2 + axis];
        if (kernel > 0)
            status = nd__window_count(name, axis, x[2 + axis], kernel, o.stride[axis],
                                      o.padding[axis], o.dilation[axis], &counts[axis]);
        if (status == ND_OK && counts[axis] == 0)
            status = refuse_weight(name, x, weight, &o);
    }
    if (status != ND_OK)
        return status;
    *ret_geometry = (conv_geometry){
        .n = x[0],
        .ci = x[1],
        .h = x[2],
        .w = x[3],
        .co = weight[0],
        .kh = weight[2],
        .kw = weight[3],
        .oh = counts[0],
        .ow = counts[1],
        .attrs = {.i = {o.stride[0], o.stride[1], o.padding[0], o.padding[1], o.dilation[0],
                        o.dilation[1], o.groups, counts[0], counts[1]}},
    };
    return ND_OK;
}

static nd_status check_4d(const char *name, const char *a_name, const nd_tensor *a,
                          const char *b_name, const nd_tensor *b) {
    nd_status status = nd__operands_check_pair(name, a_name, a, b_name, b);
    if (status != ND_OK)
        return status;
    char a_text[ND__SHAPE_TEXT], b_text[ND__SHAPE_TEXT];
    if (a->ndim != 4 || b->ndim != 4)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: %s has shape %s and %s %s; both must have 4 dimensions", name, a_name,
                         nd__shape_text(a_text, a->ndim, a->shape), b_name,
                         nd__shape_text(b_text, b->ndim, b->shape));
    if (a->dtype != b->dtype || !nd__dtype_is_float(a->dtype))
        return nd__error(ND_ERROR_DTYPE,
                         "%s: %s is %s and %s %s; both must be float32, or both float64", name,
                         a_name, nd_dtype_get_name(a->dtype), b_name, nd_dtype_get_name(b->dtype));
    return ND_OK;
}

static bool has_shape(const nd_tensor *x, int64_t n, int64_t c, int64_t h, int64_t w) {
    return x->shape[0] == n && x->shape[1] == c && x->shape[2] == h && x->shape[3] == w;
}

/// Runs one of the three on checked inputs and records it.
static nd_tensor *convolve(nd_op op, const nd_tensor *a, const nd_tensor *b, const int64_t *shape,
                           const conv_geometry *g) {
    const nd_op_attrs *attrs = &g->attrs;
    const char *name = nd__node_op_name(op);
    nd_auto nd_tensor *a_dense = nd__operands_dense(name, a, a->dtype);
    nd_auto nd_tensor *b_dense = a_dense ? nd__operands_dense(name, b, b->dtype) : NULL;
    if (!b_dense)
        return NULL;
    const nd_tensor *inputs[] = {a, b};
    nd_tensor *result = nd__tensor_result(name, inputs, 2, a->device, a->dtype, 4, shape);
    bool nothing = a->numel == 0 || b->numel == 0;
    if (result && nothing)
        result = nd__create_filled(name, result, ND_NUMBER(0));
    if (!result || result->numel == 0 || nothing)
        return nd__record(op, result, inputs, 2, attrs);
    nd_kernel_call call;
    call.op = op;
    call.noperands = 3;
    call.ndim = 0;
    const int64_t sizes[] = {g->n, g->ci, g->h, g->w, g->co, g->kh, g->kw};
    for (int i = 0; i < 7; i++)
        call.shape[i] = sizes[i];
    call.operand[0] = nd__shape_broadcast_operand(result, 4, result->shape);
    call.operand[1] = nd__shape_broadcast_operand(a_dense, 4, a_dense->shape);
    call.operand[2] = nd__shape_broadcast_operand(b_dense, 4, b_dense->shape);
    call.attrs = *attrs;
    return nd__operands_run(name, result, &call, inputs, 2, attrs);
}

static nd_status check_bias(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias) {
    nd_status status = nd__operands_check_pair("conv2d", "x", x, "bias", bias);
    if (status != ND_OK)
        return status;
    if (bias->ndim == 1 && bias->shape[0] == weight->shape[0] && bias->dtype == x->dtype)
        return ND_OK;
    char text[ND__SHAPE_TEXT];
    return nd__error(bias->dtype == x->dtype ? ND_ERROR_SHAPE : ND_ERROR_DTYPE,
                     "conv2d: bias is %s of shape %s and must be %s of shape [%lld]",
                     nd_dtype_get_name(bias->dtype), nd__shape_text(text, bias->ndim, bias->shape),
                     nd_dtype_get_name(x->dtype), (long long)weight->shape[0]);
}

nd_tensor *nd_conv2d(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                     const nd_conv2d_options *options) {
    conv_geometry g;
    if (check_4d("conv2d", "x", x, "weight", weight) != ND_OK ||
        (bias && check_bias(x, weight, bias) != ND_OK) ||
        measure("conv2d", x->shape, weight->shape, options, &g) != ND_OK)
        return NULL;
    const int64_t shape[] = {g.n, g.co, g.oh, g.ow};
    nd_auto nd_tensor *result = convolve(ND_OP_conv2d, x, weight, shape, &g);
    if (!bias || !result)
        return nd_steal(&result);
    const int64_t per_channel[] = {1, g.co, 1, 1};
    nd_auto nd_tensor *spread = nd_reshape(bias, 4, per_channel);
    // The result is ours alone, so the sum may be written over it.
    if (!spread || nd_add_(result, spread) != ND_OK)
        return NULL;
    return nd_steal(&result);
}

static nd_status refuse_gradient(const char *name, const nd_tensor *grad, const conv_geometry *g) {
    char text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE,
                     "%s: the gradient has shape %s and must have [%lld, %lld, %lld, %lld]", name,
                     nd__shape_text(text, grad->ndim, grad->shape), (long long)g->n,
                     (long long)g->co, (long long)g->oh, (long long)g->ow);
}

nd_tensor *nd__conv_grad_input(const nd_tensor *grad, const nd_tensor *weight,
                               const int64_t *x_shape, const nd_conv2d_options *options) {
    conv_geometry g;
    if (check_4d("conv2d_grad_input", "grad", grad, "weight", weight) != ND_OK ||
        measure("conv2d_grad_input", x_shape, weight->shape, options, &g) != ND_OK)
        return NULL;
    if (!has_shape(grad, g.n, g.co, g.oh, g.ow)) {
        refuse_gradient("conv2d_grad_input", grad, &g);
        return NULL;
    }
    return convolve(ND_OP_conv2d_grad_input, grad, weight, x_shape, &g);
}

nd_tensor *nd__conv_grad_weight(const nd_tensor *x, const nd_tensor *grad,
                                const int64_t *weight_shape, const nd_conv2d_options *options) {
    conv_geometry g;
    if (check_4d("conv2d_grad_weight", "x", x, "grad", grad) != ND_OK ||
        measure("conv2d_grad_weight", x->shape, weight_shape, options, &g) != ND_OK)
        return NULL;
    if (!has_shape(grad, g.n, g.co, g.oh, g.ow)) {
        refuse_gradient("conv2d_grad_weight", grad, &g);
        return NULL;
    }
    return convolve(ND_OP_conv2d_grad_weight, x, grad, weight_shape, &g);
}
