// Convolutions of one to three axes, transposed ones, and the gradients that their rules ask for.
//
// The three convolutions are one family: x, weight and the result y, of which two are given. A
// transposed convolution is the gradient of x. Attributes recorded are those of the kernel; from
// them the rules make the geometry again. Halves are computed in f32 and rounded once, behind the
// bias: by a kernel for them where the device has one, else between two casts.
#include "lib/ops/conv.h"
#include "lib/base/error.h"
#include "lib/ops/autocast.h"
#include "lib/ops/conv_options.h"
#include "lib/ops/operands.h"
#include "lib/ops/window.h"
#include "lib/tensor/create.h"
#include "lib/tensor/join.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"

enum { MAX_NDIM = 2 + ND_WINDOW_AXES };

static nd_status refuse_channels(const char *name, int ndim, const int64_t *x,
                                 const int64_t *weight, int64_t groups) {
    char x_text[ND__SHAPE_TEXT], weight_text[ND__SHAPE_TEXT];
    if (x[1] % groups != 0 || weight[0] % groups != 0)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: groups is %lld and must divide the %lld channels of x and the %lld "
                         "of the result",
                         name, (long long)groups, (long long)x[1], (long long)weight[0]);
    return nd__error(ND_ERROR_SHAPE,
                     "%s: x has shape %s and weight %s; with groups %lld the weight's second "
                     "size must be %lld",
                     name, nd__shape_text(x_text, ndim, x),
                     nd__shape_text(weight_text, ndim, weight), (long long)groups,
                     (long long)(x[1] / groups));
}

static nd_status refuse_weight(const char *name, int ndim, const int64_t *x, const int64_t *weight,
                               const nd__conv_geometry *geometry) {
    char x_text[ND__SHAPE_TEXT], weight_text[ND__SHAPE_TEXT], padding[ND__SHAPE_TEXT],
        dilation[ND__SHAPE_TEXT];
    int missing = MAX_NDIM - ndim;
    return nd__error(
        ND_ERROR_SHAPE,
        "%s: a weight of shape %s does not fit into x of shape %s with padding %s and dilation %s",
        name, nd__shape_text(weight_text, ndim, weight), nd__shape_text(x_text, ndim, x),
        nd__shape_text(padding, ndim - 2, geometry->padding + missing),
        nd__shape_text(dilation, ndim - 2, geometry->dilation + missing));
}

/// Sizes of a convolution from those of x and weight. Groups divide the channels, and the weight
/// has those of one group.
static nd_status measure(const char *name, int ndim, const int64_t *x, const int64_t *weight,
                         const nd__conv_geometry *geometry, nd__conv_sizes *ret_sizes) {
    int64_t groups = geometry->groups;
    if (x[1] % groups != 0 || weight[0] % groups != 0 || x[1] / groups != weight[1])
        return refuse_channels(name, ndim, x, weight, groups);
    nd__conv_sizes sizes = {.n = x[0], .ci = x[1], .co = weight[0], .groups = groups};
    nd__window_align(ndim - 2, x + 2, 1, sizes.x);
    nd__window_align(ndim - 2, weight + 2, 1, sizes.kernel);
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        int of_user = axis - (MAX_NDIM - ndim);
        sizes.stride[axis] = geometry->stride[axis];
        sizes.padding[axis] = geometry->padding[axis];
        sizes.dilation[axis] = geometry->dilation[axis];
        nd_status status = sizes.kernel[axis] == 0
                               ? ND_OK
                               : nd__window_count(name, of_user, sizes.x[axis], sizes.kernel[axis],
                                                  sizes.stride[axis], sizes.padding[axis],
                                                  sizes.dilation[axis], false, &sizes.y[axis]);
        if (status == ND_OK && sizes.y[axis] == 0)
            status = refuse_weight(name, ndim, x, weight, geometry);
        if (status != ND_OK)
            return status;
    }
    *ret_sizes = sizes;
    return ND_OK;
}

/// Both are images of so many axes, of one float dtype. ndim 0: of one to three.
static nd_status check_images(const char *name, int ndim, const char *a_name, const nd_tensor *a,
                              const char *b_name, const nd_tensor *b) {
    nd_status status = nd__operands_check_pair(name, a_name, a, b_name, b);
    if (status != ND_OK)
        return status;
    char a_text[ND__SHAPE_TEXT], b_text[ND__SHAPE_TEXT];
    if (ndim == 0 && a->ndim >= 3 && a->ndim <= MAX_NDIM)
        ndim = a->ndim;
    if (a->ndim != ndim || b->ndim != ndim)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: %s has shape %s and %s %s; both must have %d dimensions", name,
                         a_name, nd__shape_text(a_text, a->ndim, a->shape), b_name,
                         nd__shape_text(b_text, b->ndim, b->shape), ndim);
    if (a->dtype != b->dtype || !nd__dtype_is_float(a->dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: %s is %s and %s %s; both must be of one float dtype",
                         name, a_name, nd_dtype_get_name(a->dtype), b_name,
                         nd_dtype_get_name(b->dtype));
    return ND_OK;
}

static nd_status check_bias(const char *name, const nd_tensor *x, int64_t channels,
                            const nd_tensor *bias) {
    nd_status status = nd__operands_check_pair(name, "x", x, "bias", bias);
    if (status != ND_OK)
        return status;
    if (bias->ndim == 1 && bias->shape[0] == channels && bias->dtype == x->dtype)
        return ND_OK;
    char text[ND__SHAPE_TEXT];
    return nd__error(bias->dtype == x->dtype ? ND_ERROR_SHAPE : ND_ERROR_DTYPE,
                     "%s: bias is %s of shape %s and must be %s of shape [%lld]", name,
                     nd_dtype_get_name(bias->dtype), nd__shape_text(text, bias->ndim, bias->shape),
                     nd_dtype_get_name(x->dtype), (long long)channels);
}

// --------------------------------------------------------------------------------------- computing

/// Adds bias[c] to every element of channel c, in place and unrecorded.
static nd_status add_bias(const char *name, const nd_tensor *result, const nd_tensor *bias) {
    nd_auto nd_tensor *dense = nd__operands_dense(name, bias, result->dtype);
    if (!dense)
        return nd_error_get_status();
    nd_kernel_call call = {.op = ND_OP_add, .noperands = 3, .ndim = result->ndim};
    for (int i = 0; i < result->ndim; i++)
        call.shape[i] = result->shape[i];
    call.operand[0] = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    call.operand[1] = call.operand[0];
    call.operand[2] = (nd_operand){.data = dense->data, .dtype = dense->dtype};
    call.operand[2].strides[1] = dense->shape[0] == 1 ? 0 : 1;
    nd__shape_collapse(&call);
    return nd__launch(name, result->device, &call);
}

/// Runs one of the family on dense operands into `result`, which is neither empty nor a sum of
/// nothing. bias, of 16 bits: or NULL. Of 16 bits ND_ERROR_UNSUPPORTED is no error.
static nd_status launch(const char *name, nd_op op, const nd_tensor *result, const nd_tensor *a,
                        const nd_tensor *b, const nd_tensor *bias, const nd__conv_sizes *sizes) {
    nd_kernel_call call;
    call.op = op;
    call.noperands = bias ? 4 : 3;
    call.ndim = 0;
    nd__conv_sizes_into(sizes, &call);
    call.operand[0] = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    call.operand[1] = nd__shape_broadcast_operand(a, a->ndim, a->shape);
    call.operand[2] = nd__shape_broadcast_operand(b, b->ndim, b->shape);
    if (bias)
        call.operand[3] = nd__shape_broadcast_operand(bias, 1, bias->shape);
    return nd__dtype_is_half(result->dtype)
               ? nd__launch_where_supported(name, result->device, &call)
               : nd__launch(name, result->device, &call);
}

/// One of the three of inputs of 16 bits as they are, unrecorded. ND_ERROR_UNSUPPORTED without an error
/// where the device has no kernel for them.
static nd_status compute_narrow(const char *name, nd_op op, const nd_tensor *const *inputs,
                                const int64_t *shape, const nd__conv_sizes *sizes,
                                nd_tensor **ret_result) {
    const nd_tensor *a = inputs[0], *b = inputs[1], *bias = inputs[2];
    if (!nd__dtype_is_half(a->dtype) || !nd__launch_convolves(a->device, a->dtype) ||
        a->numel == 0 || b->numel == 0)
        return ND_ERROR_UNSUPPORTED;
    nd_auto nd_tensor *a_dense = nd__operands_dense(name, a, a->dtype);
    nd_auto nd_tensor *b_dense = a_dense ? nd__operands_dense(name, b, a->dtype) : NULL;
    nd_auto nd_tensor *added = b_dense && bias ? nd__operands_dense(name, bias, a->dtype) : NULL;
    if (!b_dense || (bias && !added))
        return nd_error_get_status();
    nd_auto nd_tensor *result =
        nd__tensor_result(name, inputs, bias ? 3 : 2, a->device, a->dtype, a->ndim, shape);
    if (!result)
        return nd_error_get_status();
    if (result->numel == 0)
        return ND_ERROR_UNSUPPORTED;
    nd_status status = launch(name, op, result, a_dense, b_dense, added, sizes);
    if (status == ND_OK)
        *ret_result = nd_steal(&result);
    return status;
}

/// One of the three of checked inputs, unrecorded, in the dtype that is computed in.
static nd_tensor *compute(const char *name, nd_op op, const nd_tensor *const *inputs,
                          const int64_t *shape, const nd__conv_sizes *sizes) {
    const nd_tensor *a = inputs[0], *b = inputs[1], *bias = inputs[2];
    nd_dtype dtype = nd__dtype_is_half(a->dtype) ? ND_F32 : a->dtype;
    nd_auto nd_tensor *a_dense = nd__operands_dense(name, a, dtype);
    nd_auto nd_tensor *b_dense = a_dense ? nd__operands_dense(name, b, dtype) : NULL;
    if (!b_dense)
        return NULL;
    nd_auto nd_tensor *result =
        nd__tensor_result(name, inputs, bias ? 3 : 2, a->device, dtype, a->ndim, shape);
    bool nothing = a->numel == 0 || b->numel == 0;
    if (result && nothing)
        result = nd__create_filled(name, nd_steal(&result), ND_NUMBER(0));
    if (!result || result->numel == 0)
        return nd_steal(&result);
    if (!nothing && launch(name, op, result, a_dense, b_dense, NULL, sizes) != ND_OK)
        return NULL;
    if (bias && add_bias(name, result, bias) != ND_OK)
        return NULL;
    return nd_steal(&result);
}

/// inputs[2]: a bias or NULL.
static nd_tensor *convolve(const char *name, nd_op op, const nd_tensor *const *inputs,
                           const int64_t *shape, const nd__conv_sizes *sizes) {
    nd_tensor *result = NULL;
    nd_status status = compute_narrow(name, op, inputs, shape, sizes, &result);
    if (status == ND_ERROR_UNSUPPORTED) {
        nd_auto nd_tensor *computed = compute(name, op, inputs, shape, sizes);
        result = computed ? nd__operands_dense(name, computed, inputs[0]->dtype) : NULL;
    }
    if (!result)
        return NULL;
    nd_kernel_call call;
    nd__conv_sizes_into(sizes, &call);
    call.attrs.i[11] = 0;
    for (int i = 0; i < 4; i++)
        call.attrs.f[i] = 0;
    return nd__record(op, result, inputs, inputs[2] ? 3 : 2, &call.attrs);
}

/// [n, channels, the axes that are there].
static void write_shape(int ndim, int64_t n, int64_t channels, const int64_t *axes,
                        int64_t *ret_shape) {
    ret_shape[0] = n;
    ret_shape[1] = channels;
    for (int i = 2; i < ndim; i++)
        ret_shape[i] = axes[MAX_NDIM - ndim + i - 2];
}

/// x with zeros before it and behind it along one axis; recorded.
static nd_tensor *with_zeros(const char *name, const nd_tensor *x, int axis, int64_t before,
                             int64_t behind) {
    int64_t shape[MAX_NDIM];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = x->shape[i];
    if (__builtin_add_overflow(shape[axis], before, &shape[axis]) ||
        __builtin_add_overflow(shape[axis], behind, &shape[axis])) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: so much padding that an axis has no 64-bit size",
                  name);
        return NULL;
    }
    return nd__join_unslice(x, x->ndim, shape, axis, before, 1);
}

static nd_tensor *run_forward(const char *name, const nd_tensor *x, const nd_tensor *weight,
                              const nd_tensor *bias, const nd__conv_geometry *geometry) {
    nd__conv_sizes sizes;
    int64_t shape[MAX_NDIM];
    if (measure(name, x->ndim, x->shape, weight->shape, geometry, &sizes) != ND_OK)
        return NULL;
    write_shape(x->ndim, sizes.n, sizes.co, sizes.y, shape);
    const nd_tensor *inputs[] = {x, weight, bias};
    return convolve(name, ND_OP_conv, inputs, shape, &sizes);
}

/// Zeros of which there are more on one side are written beside x; the others are the kernel's.
static nd_tensor *forward(const char *name, const nd_tensor *x, const nd_tensor *weight,
                          const nd_tensor *bias, int axes, const nd__conv_options *options) {
    if (check_images(name, axes + 2, "x", x, "weight", weight) != ND_OK ||
        (bias && check_bias(name, x, weight->shape[0], bias) != ND_OK))
        return NULL;
    nd__conv_geometry geometry = options->geometry;
    nd_auto nd_tensor *padded = nd_retain(x);
    for (int axis = 0; axis < ND_WINDOW_AXES && padded; axis++) {
        int64_t extra = options->extra_padding[axis];
        if (extra == 0)
            continue;
        nd_tensor *wider = with_zeros(name, padded, x->ndim - ND_WINDOW_AXES + axis,
                                      extra < 0 ? -extra : 0, extra > 0 ? extra : 0);
        geometry.padding[axis] += extra < 0 ? extra : 0;
        nd_release(padded);
        padded = wider;
    }
    return padded ? run_forward(name, padded, weight, bias, &geometry) : NULL;
}

nd_tensor *nd__conv_forward(const nd_tensor *x, const nd_tensor *weight,
                            const nd__conv_geometry *geometry) {
    if (check_images("conv", 0, "x", x, "weight", weight) != ND_OK)
        return NULL;
    return run_forward("conv", x, weight, NULL, geometry);
}

// --------------------------------------------------------------------------------------- gradients

static nd_status check_gradient(const char *name, const nd_tensor *grad,
                                const nd__conv_sizes *sizes) {
    int64_t shape[MAX_NDIM];
    write_shape(grad->ndim, sizes->n, sizes->co, sizes->y, shape);
    bool same = true;
    for (int i = 0; i < grad->ndim; i++)
        same = same && grad->shape[i] == shape[i];
    if (same)
        return ND_OK;
    char text[ND__SHAPE_TEXT], expected[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE, "%s: the gradient has shape %s and must have %s", name,
                     nd__shape_text(text, grad->ndim, grad->shape),
                     nd__shape_text(expected, grad->ndim, shape));
}

nd_tensor *nd__conv_grad_input(const nd_tensor *grad, const nd_tensor *weight,
                               const int64_t *x_shape, const nd__conv_geometry *geometry) {
    const char *name = "conv_grad_input";
    nd__conv_sizes sizes;
    if (check_images(name, 0, "grad", grad, "weight", weight) != ND_OK ||
        measure(name, grad->ndim, x_shape, weight->shape, geometry, &sizes) != ND_OK ||
        check_gradient(name, grad, &sizes) != ND_OK)
        return NULL;
    const nd_tensor *inputs[] = {grad, weight, NULL};
    return convolve(name, ND_OP_conv_grad_input, inputs, x_shape, &sizes);
}

nd_tensor *nd__conv_grad_weight(const nd_tensor *x, const nd_tensor *grad,
                                const int64_t *weight_shape, const nd__conv_geometry *geometry) {
    const char *name = "conv_grad_weight";
    nd__conv_sizes sizes;
    if (check_images(name, 0, "x", x, "grad", grad) != ND_OK ||
        measure(name, x->ndim, x->shape, weight_shape, geometry, &sizes) != ND_OK ||
        check_gradient(name, grad, &sizes) != ND_OK)
        return NULL;
    const nd_tensor *inputs[] = {x, grad, NULL};
    return convolve(name, ND_OP_conv_grad_weight, inputs, weight_shape, &sizes);
}

// --------------------------------------------------------------------------------- transposed ones

/// The result's size along an axis: (size - 1) stride - 2 padding + dilation (kernel - 1) + output
/// + 1. Below 1 where nothing is left. False: it has no 64-bit number.
static bool transposed_size(int64_t size, int64_t kernel, const nd__conv_options *options, int axis,
                            int64_t *ret_size) {
    const nd__conv_geometry *g = &options->geometry;
    int64_t steps, span, cut;
    return !(__builtin_mul_overflow(size - 1, g->stride[axis], &steps) ||
             __builtin_mul_overflow(kernel - 1, g->dilation[axis], &span) ||
             __builtin_mul_overflow(g->padding[axis], (int64_t)2, &cut) ||
             __builtin_add_overflow(steps, span, &steps) ||
             __builtin_add_overflow(steps, options->output_padding[axis], &steps) ||
             __builtin_add_overflow(steps, (int64_t)1, &steps) ||
             __builtin_sub_overflow(steps, cut, ret_size));
}

static nd_status measure_transposed(const char *name, const nd_tensor *x, const nd_tensor *weight,
                                    const nd__conv_options *options, int64_t *ret_shape) {
    char x_text[ND__SHAPE_TEXT], weight_text[ND__SHAPE_TEXT];
    int64_t groups = options->geometry.groups;
    if (x->shape[1] != weight->shape[0] || x->shape[1] % groups != 0)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: x has shape %s and weight %s; their %lld and %lld channels must be "
                         "equal, and multiples of groups, which is %lld",
                         name, nd__shape_text(x_text, x->ndim, x->shape),
                         nd__shape_text(weight_text, weight->ndim, weight->shape),
                         (long long)x->shape[1], (long long)weight->shape[0], (long long)groups);
    ret_shape[0] = x->shape[0];
    if (__builtin_mul_overflow(weight->shape[1], groups, &ret_shape[1]))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: groups is %lld, too large for %lld channels", name, (long long)groups,
                         (long long)weight->shape[1]);
    for (int i = 2; i < x->ndim; i++) {
        bool known = transposed_size(x->shape[i], weight->shape[i], options,
                                     i - 2 + MAX_NDIM - x->ndim, &ret_shape[i]);
        if (!known || x->shape[i] == 0 || weight->shape[i] == 0 || ret_shape[i] < 1)
            return nd__error(ND_ERROR_SHAPE,
                             "%s: x has shape %s and weight %s; with these options the result's "
                             "size along axis %d %s",
                             name, nd__shape_text(x_text, x->ndim, x->shape),
                             nd__shape_text(weight_text, weight->ndim, weight->shape), i,
                             known ? "would be less than 1" : "has no 64-bit number");
    }
    return ND_OK;
}

/// x with zeros behind it where output_padding is a stride or more: each is a step of the result
/// that nothing is added to.
static nd_tensor *with_steps(const char *name, const nd_tensor *x,
                             const nd__conv_options *options) {
    nd_tensor *wider = nd_retain(x);
    for (int i = 2; i < x->ndim && wider; i++) {
        int axis = i - 2 + MAX_NDIM - x->ndim;
        int64_t steps = options->output_padding[axis] / options->geometry.stride[axis];
        if (steps == 0)
            continue;
        nd_tensor *next = with_zeros(name, wider, i, 0, steps);
        nd_release(wider);
        wider = next;
    }
    return wider;
}

static nd_tensor *transpose(const char *name, const nd_tensor *x, const nd_tensor *weight,
                            const nd_tensor *bias, int axes, const nd__conv_options *options) {
    int64_t shape[MAX_NDIM];
    nd__conv_sizes sizes;
    if (check_images(name, axes + 2, "x", x, "weight", weight) != ND_OK ||
        measure_transposed(name, x, weight, options, shape) != ND_OK ||
        (bias && check_bias(name, x, shape[1], bias) != ND_OK) ||
        measure(name, axes + 2, shape, weight->shape, &options->geometry, &sizes) != ND_OK)
        return NULL;
    nd_auto nd_tensor *wider = with_steps(name, x, options);
    if (!wider)
        return NULL;
    const nd_tensor *inputs[] = {wider, weight, bias};
    return convolve(name, ND_OP_conv_grad_input, inputs, shape, &sizes);
}

#define CONVOLUTION(run, which, axes, word, of)                                         \
    nd_tensor *nd_conv##word##which(const nd_tensor *x, const nd_tensor *weight,        \
                                    const nd_tensor *bias,                              \
                                    const nd_conv##word##which##_options *options) {    \
        ND__AUTOCAST(lower, x, weight, bias, nd_conv##word##which(x0, x1, x2, options)) \
        nd__conv_options read;                                                          \
        const char *name = "conv" #word #which;                                         \
        ND__ERROR_NAMED(name);                                                          \
        if (nd__conv_options_##of(name, options, &read) != ND_OK)                       \
            return NULL;                                                                \
        return run(name, x, weight, bias, axes, &read);                                 \
    }
CONVOLUTION(forward, 1d, 1, , 1d)
CONVOLUTION(forward, 2d, 2, , 2d)
CONVOLUTION(forward, 3d, 3, , 3d)
CONVOLUTION(transpose, 1d, 1, _transpose, transpose1d)
CONVOLUTION(transpose, 2d, 2, _transpose, transpose2d)
CONVOLUTION(transpose, 3d, 3, _transpose, transpose3d)
