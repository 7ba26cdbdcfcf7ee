// Reductions: axes are resolved once into a mask; those of the family REDUCE share one path, argmax
// and argmin another. Each writes to `out` (lib/tensor/out.h). The kernels read every dtype and accumulate in a wide one, so nothing is cast
// before.
//
// What is recorded: i[0] = bit mask of the reduced axes, i[1] = keepdims, f[0] = the operation's
// number (var and std: the correction; norm: its order).
#include "lib/ops/reduce.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/create.h"
#include "lib/tensor/out.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <math.h>
#include <nd/out.h>

/// Elements of x that become one.
static int64_t elements_of(const nd_tensor *x, int mask) {
    int64_t elements = 1;
    for (int i = 0; i < x->ndim; i++)
        if (mask & (1 << i))
            elements *= x->shape[i];
    return elements;
}

/// What a reduction writes.
static nd_tensor *reduced_result(const char *name, nd_tensor *out, const nd_tensor *x, int mask,
                                 bool keepdims, nd_dtype dtype) {
    int64_t shape[ND_MAX_DIMS];
    int ndim = 0;
    for (int i = 0; i < x->ndim; i++) {
        if (!(mask & (1 << i)))
            shape[ndim++] = x->shape[i];
        else if (keepdims)
            shape[ndim++] = 1;
    }
    return nd__out_result(name, out, ND__OUT_APART, &x, 1, x->device, dtype, ndim, shape);
}

/// The result seen in x's axes: stride 0 on those that are reduced.
static nd_operand spread_operand(const nd_tensor *result, const nd_tensor *x, int mask,
                                 bool keepdims) {
    nd_operand operand;
    operand.data = result->data;
    operand.dtype = result->dtype;
    int at = 0;
    for (int i = 0; i < x->ndim; i++) {
        bool reduced = (mask & (1 << i)) != 0;
        operand.strides[i] = reduced ? 0 : nd__tensor_strides(result)[at];
        if (!reduced || keepdims)
            at++;
    }
    return operand;
}

/// dtype of a reduction's result.
static nd_dtype result_dtype(nd_op op, nd_dtype x) {
    switch (op) {
    case ND_OP_any:
    case ND_OP_all:
        return ND_BOOL;
    case ND_OP_count_nonzero:
        return ND_I64;
    case ND_OP_max:
    case ND_OP_min:
        return x;
    case ND_OP_sum:
    case ND_OP_prod:
        if (nd__dtype_is_float(x))
            return x;
        return nd__dtype_kinds[x] == ND_KIND_UNSIGNED ? ND_U64 : ND_I64;
    default:
        return nd__dtype_is_float(x) ? x : ND_F32;
    }
}

/// Whether a reduction of no elements has a result; if not, that is an error.
static bool takes_nothing(nd_op op) {
    return op != ND_OP_max && op != ND_OP_min;
}

/// That result; `number`: norm's order.
static nd_number result_of_nothing(nd_op op, double number) {
    switch (op) {
    case ND_OP_mean:
    case ND_OP_var:
    case ND_OP_std:
        return ND_NUMBER((double)NAN);
    case ND_OP_prod:
    case ND_OP_all:
        return ND_NUMBER(1);
    case ND_OP_logsumexp:
        return ND_NUMBER(-(double)INFINITY);
    case ND_OP_norm:
        return ND_NUMBER(number < 0.0 ? (double)INFINITY : 0.0);
    default:
        return ND_NUMBER(0);
    }
}

/// `number`: what f[0] means to the kernel and the gradient rule.
static nd_tensor *reduce_axes(nd_tensor *out, nd_op op, const nd_tensor *x, int mask, double number,
                              bool keepdims) {
    const char *name = nd__node_op_name(op);
    int64_t elements = elements_of(x, mask);
    if (elements == 0 && !takes_nothing(op)) {
        char text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "%s: shape %s has no elements along the reduced axes", name,
                  nd__shape_text(text, x->ndim, x->shape));
        return NULL;
    }
    nd_op_attrs attrs;
    nd__record_clear_attrs(&attrs);
    attrs.f[0] = number;
    attrs.i[0] = mask;
    attrs.i[1] = keepdims;
    nd_tensor *result = reduced_result(name, out, x, mask, keepdims, result_dtype(op, x->dtype));
    if (!result)
        return NULL;
    if (elements == 0)
        result = nd__create_filled(name, result, result_of_nothing(op, number));
    if (!result || result->numel == 0 || elements == 0)
        return nd__record(op, result, &x, 1, &attrs);
    nd_kernel_call call;
    call.op = op;
    call.noperands = 2;
    call.ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++)
        call.shape[i] = x->shape[i];
    call.operand[0] = spread_operand(result, x, mask, keepdims);
    call.operand[1] = nd__shape_broadcast_operand(x, x->ndim, x->shape);
    call.attrs.f[0] = number;
    call.attrs.i[0] = elements;
    nd__shape_collapse(&call);
    return nd__operands_run(name, result, &call, &x, 1, &attrs);
}

static nd_tensor *reduce_to(nd_tensor *out, nd_op op, const nd_tensor *x, int naxes,
                            const int *axes, double number, bool keepdims) {
    const char *name = nd__node_op_name(op);
    if (nd__tensor_check_operand(name, "x", x) != ND_OK)
        return NULL;
    int mask = nd__operands_axes_mask(name, x, naxes, axes);
    return mask < 0 ? NULL : reduce_axes(out, op, x, mask, number, keepdims);
}

static nd_tensor *reduce(nd_op op, const nd_tensor *x, int naxes, const int *axes, double number,
                         bool keepdims) {
    return reduce_to(NULL, op, x, naxes, axes, number, keepdims);
}

// Both forms of a reduction without a number.
#define REDUCTION(name)                                                                      \
    nd_tensor *nd_##name(const nd_tensor *x, int naxes, const int *axes, bool keepdims) {    \
        return reduce(ND_OP_##name, x, naxes, axes, 0.0, keepdims);                          \
    }                                                                                        \
    nd_status nd_##name##_out(const nd_tensor *x, int naxes, const int *axes, bool keepdims, \
                              nd_tensor *out) {                                              \
        return ND__OUT_FORM(#name, out,                                                      \
                            reduce_to(out, ND_OP_##name, x, naxes, axes, 0.0, keepdims));    \
    }
REDUCTION(sum)
REDUCTION(mean)
REDUCTION(max)
REDUCTION(min)
REDUCTION(prod)
REDUCTION(any)
REDUCTION(all)
REDUCTION(count_nonzero)
REDUCTION(logsumexp)

// The same with a correction.
#define MOMENT(name)                                                                             \
    nd_tensor *nd_##name(const nd_tensor *x, int naxes, const int *axes, double correction,      \
                         bool keepdims) {                                                        \
        return reduce(ND_OP_##name, x, naxes, axes, correction, keepdims);                       \
    }                                                                                            \
    nd_status nd_##name##_out(const nd_tensor *x, int naxes, const int *axes, double correction, \
                              bool keepdims, nd_tensor *out) {                                   \
        return ND__OUT_FORM(#name, out,                                                          \
                            reduce_to(out, ND_OP_##name, x, naxes, axes, correction, keepdims)); \
    }
MOMENT(var)
MOMENT(std)

/// The largest |x|, or the smallest. 16-bit floats pass through f32, which changes none.
static nd_tensor *extreme_norm(const nd_tensor *x, double ord, int naxes, const int *axes,
                               bool keepdims) {
    nd_dtype dtype = nd__dtype_is_float(x->dtype) ? x->dtype : ND_F32;
    nd_auto nd_tensor *real = nd__operands_as_dtype(x, dtype == ND_F64 ? ND_F64 : ND_F32);
    nd_auto nd_tensor *size = real ? nd_abs(real) : NULL;
    nd_op op = ord > 0.0 ? ND_OP_max : ND_OP_min;
    nd_auto nd_tensor *norm = size ? reduce(op, size, naxes, axes, 0.0, keepdims) : NULL;
    return norm ? nd__operands_as_dtype(norm, dtype) : NULL;
}

nd_tensor *nd_norm(const nd_tensor *x, double ord, int naxes, const int *axes, bool keepdims) {
    ND__ERROR_NAMED("norm");
    if (nd__tensor_check_operand("norm", "x", x) != ND_OK)
        return NULL;
    if (isnan(ord)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "norm: its order is NaN");
        return NULL;
    }
    if (isinf(ord))
        return extreme_norm(x, ord, naxes, axes, keepdims);
    if (ord != 0.0)
        return reduce(ND_OP_norm, x, naxes, axes, ord, keepdims);
    nd_auto nd_tensor *count = reduce(ND_OP_count_nonzero, x, naxes, axes, 0.0, keepdims);
    return count ? nd_cast(count, nd__dtype_is_float(x->dtype) ? x->dtype : ND_F32) : NULL;
}

static nd_tensor *arg_extremum(nd_tensor *to, nd_op op, const nd_tensor *x, int axis,
                               bool keepdims) {
    const char *name = nd__node_op_name(op);
    if (nd__tensor_check_operand(name, "x", x) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis(name, axis, x->ndim);
    if (axis < 0)
        return NULL;
    if (x->shape[axis] == 0) {
        char text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "%s: shape %s has no elements along axis %d", name,
                  nd__shape_text(text, x->ndim, x->shape), axis);
        return NULL;
    }
    nd_tensor *result = reduced_result(name, to, x, 1 << axis, keepdims, ND_I64);
    if (!result || result->numel == 0)
        return result;
    nd_kernel_call call;
    nd_operand out = spread_operand(result, x, 1 << axis, keepdims);
    nd__operands_call_along_axis(&call, op, &out, x, axis);
    return nd__operands_run(name, result, &call, &x, 1, NULL);
}

nd_tensor *nd_argmax(const nd_tensor *x, int axis, bool keepdims) {
    return arg_extremum(NULL, ND_OP_argmax, x, axis, keepdims);
}

nd_status nd_argmax_out(const nd_tensor *x, int axis, bool keepdims, nd_tensor *out) {
    return ND__OUT_FORM("argmax", out, arg_extremum(out, ND_OP_argmax, x, axis, keepdims));
}

nd_tensor *nd_argmin(const nd_tensor *x, int axis, bool keepdims) {
    return arg_extremum(NULL, ND_OP_argmin, x, axis, keepdims);
}

nd_status nd_argmin_out(const nd_tensor *x, int axis, bool keepdims, nd_tensor *out) {
    return ND__OUT_FORM("argmin", out, arg_extremum(out, ND_OP_argmin, x, axis, keepdims));
}

nd_tensor *nd_sum_to(const nd_tensor *x, int ndim, const int64_t *shape) {
    ND__ERROR_NAMED("sum_to");
    nd_tensor *sum = nd__reduce_sum_to(x, ndim, shape);
    return sum ? nd__operands_own(sum, x) : NULL;
}

nd_tensor *nd__reduce_sum_to(const nd_tensor *x, int ndim, const int64_t *shape) {
    int64_t numel;
    if (nd__tensor_check_operand("sum_to", "x", x) != ND_OK ||
        nd__shape_check("sum_to", ndim, shape, x->dtype, &numel) != ND_OK)
        return NULL;
    int extra = x->ndim - ndim, naxes = 0, axes[ND_MAX_DIMS];
    bool fits = extra >= 0;
    for (int i = 0; i < x->ndim && fits; i++) {
        bool missing = i < extra;
        fits = missing || shape[i - extra] == x->shape[i] || shape[i - extra] == 1;
        if (missing || shape[i - extra] != x->shape[i])
            axes[naxes++] = i;
    }
    if (!fits) {
        char from[ND__SHAPE_TEXT], to[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "sum_to: shape %s does not broadcast to %s",
                  nd__shape_text(to, ndim, shape), nd__shape_text(from, x->ndim, x->shape));
        return NULL;
    }
    if (naxes == 0)
        return nd_retain(x);
    nd_auto nd_tensor *sum = reduce(ND_OP_sum, x, naxes, axes, 0.0, true);
    if (extra == 0)
        return nd_steal(&sum);
    return sum ? nd_reshape(sum, ndim, shape) : NULL;
}
