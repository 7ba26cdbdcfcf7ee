// Checks, dtype rules, and the path that every elementwise operation takes.
//
// The common case, operands of one dtype and shape in row-major order, goes to the kernel as one
// axis and skips broadcasting.
#include "lib/ops/operands.h"
#include "lib/base/error.h"
#include "lib/device/registry.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/create.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/out.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <stdio.h>

nd_status nd__operands_refuse_pair(const char *name, const char *a_name, const nd_tensor *a,
                                   const char *b_name, const nd_tensor *b) {
    if (!nd__tensor_is_usable(a))
        return nd__tensor_refuse_operand(name, a_name, a);
    if (!nd__tensor_is_usable(b))
        return nd__tensor_refuse_operand(name, b_name, b);
    char a_device[32]; // the text of a device may be the thread's one buffer
    snprintf(a_device, sizeof a_device, "%s", nd__registry_device_text(a->device));
    return nd__error(ND_ERROR_DEVICE, "%s: %s is on %s and %s on %s", name, a_name, a_device,
                     b_name, nd__registry_device_text(b->device));
}

static nd_status refuse_dtypes(const char *name, nd_dtype_rule rule, const nd_tensor *a,
                               const nd_tensor *b) {
    static const char *const texts[] = {
        [ND__INTEGER] = "takes integers",
        [ND__BITS] = "takes integers or bool",
        [ND__BOOL] = "takes bool",
    };
    bool named = rule == ND__INTEGER || rule == ND__BITS || rule == ND__BOOL;
    const char *takes = named ? texts[rule] : "does not take bool";
    if (!b)
        return nd__error(ND_ERROR_DTYPE, "%s: %s, and the operand is %s", name, takes,
                         nd_dtype_get_name(a->dtype));
    return nd__error(ND_ERROR_DTYPE, "%s: %s, and the operands are %s and %s", name, takes,
                     nd_dtype_get_name(a->dtype), nd_dtype_get_name(b->dtype));
}

nd_status nd__operands_promote(const char *name, const nd_tensor *a, const nd_tensor *b,
                               nd_dtype *ret_dtype) {
    *ret_dtype = nd_promote_dtypes(a->dtype, b->dtype);
    if (__builtin_expect(*ret_dtype != ND_DTYPE_COUNT, 1))
        return ND_OK;
    return nd__error(ND_ERROR_DTYPE, "%s: no dtype holds all numbers of %s and of %s; cast one",
                     name, nd_dtype_get_name(a->dtype), nd_dtype_get_name(b->dtype));
}

nd_status nd__operands_apply_rule(const char *name, nd_dtype_rule rule, const nd_tensor *a,
                                  const nd_tensor *b, nd_dtype *ret_dtype) {
    // Kinds of dtypes as bits, those of the operands and those that the rule takes.
    enum {
        BOOLS = 1 << ND_KIND_BOOL,
        INTEGERS = 1 << ND_KIND_UNSIGNED | 1 << ND_KIND_SIGNED,
        FLOATS = 1 << ND_KIND_FLOAT,
    };
    static const uint8_t taken[] = {
        [ND__ANY] = BOOLS | INTEGERS | FLOATS,
        [ND__NUMBER] = INTEGERS | FLOATS,
        [ND__FLOAT] = INTEGERS | FLOATS,
        [ND__INTEGER] = INTEGERS,
        [ND__BITS] = INTEGERS,
        [ND__BOOL] = BOOLS,
    };
    unsigned kinds = 1u << nd__dtype_kinds[a->dtype];
    if (b)
        kinds |= 1u << nd__dtype_kinds[b->dtype];
    bool refused = (kinds & ~(unsigned)taken[rule]) != 0 && !(rule == ND__BITS && kinds == BOOLS);
    if (__builtin_expect(refused, 0))
        return refuse_dtypes(name, rule, a, b);
    nd_dtype dtype = a->dtype;
    if (b && b->dtype != dtype && nd__operands_promote(name, a, b, &dtype) != ND_OK)
        return nd_error_get_status();
    *ret_dtype = rule == ND__FLOAT && !nd__dtype_is_float(dtype) ? ND_F32 : dtype;
    return ND_OK;
}

nd_tensor *nd__operands_dense(const char *name, const nd_tensor *x, nd_dtype dtype) {
    if (nd__tensor_is_contiguous(x) && x->dtype == dtype)
        return nd_retain(x);
    nd_tensor *copy = nd__tensor_result(name, &x, 1, x->device, dtype, x->ndim, x->shape);
    if (copy && nd__copy_into(name, copy, x) != ND_OK) {
        nd_object_release(copy);
        return NULL;
    }
    return copy;
}

nd_tensor *nd__operands_to_host(const char *name, const nd_tensor *x) {
    return x && x->device.kind == ND_CPU ? nd_retain(x)
                                         : nd__copy_to(name, x, (nd_device){ND_CPU, 0});
}

nd_tensor *nd__operands_to_device_of(const char *name, const nd_tensor *like, nd_tensor *x) {
    if (!x || like->device.kind == ND_CPU)
        return x;
    nd_tensor *there = nd__copy_to(name, x, like->device);
    nd_release(x);
    return there;
}

nd_tensor *nd__operands_own(nd_tensor *x, const nd_tensor *of) {
    if (!x || !nd__tensor_share_storage(x, of))
        return x;
    nd_tensor *copy = nd_clone(x);
    nd_release(x);
    return copy;
}

nd_status nd__operands_check_number(const char *name, nd_dtype dtype, nd_number value) {
    if (nd__number_held(dtype, value))
        return ND_OK;
    char text[ND__NUMBER_TEXT];
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s cannot hold the number %s", name,
                     nd_dtype_get_name(dtype), nd__number_text(text, value));
}

nd_tensor *nd__operands_number_like(const char *name, const nd_tensor *x, nd_dtype dtype,
                                    nd_number value) {
    nd_tensor *result = nd__tensor_result(name, &x, 1, x->device, dtype, 0, NULL);
    return nd__create_filled(name, result, value);
}

int nd__operands_axes_mask(const char *name, const nd_tensor *x, int naxes, const int *axes) {
    if (naxes == 0)
        return (1 << x->ndim) - 1;
    if (naxes < 0 || !axes) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %d axes at %s", name, naxes,
                  axes ? "an address" : "NULL");
        return -1;
    }
    int mask = 0;
    for (int i = 0; i < naxes; i++) {
        int axis = nd__shape_resolve_axis(name, axes[i], x->ndim);
        if (axis < 0)
            return -1;
        if (mask & (1 << axis)) {
            nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: axis %d is named twice", name, axes[i]);
            return -1;
        }
        mask |= 1 << axis;
    }
    return mask;
}

nd_tensor *nd__operands_counted(const char *name, const nd_tensor *x, int ndim,
                                const int64_t *shape) {
    nd_op_attrs attrs = {.i = {0, 1, 1}};
    return nd__create_with(name, ND_OP_arange,
                           nd__tensor_result(name, &x, 1, x->device, ND_I64, ndim, shape), &attrs);
}

nd_tensor *nd__operands_run(const char *name, nd_tensor *result, const nd_kernel_call *call,
                            const nd_tensor *const *inputs, size_t count,
                            const nd_op_attrs *attrs) {
    if (__builtin_expect(nd__launch(name, result->device, call) != ND_OK, 0)) {
        nd_object_release(result);
        return NULL;
    }
    return nd__record(call->op, result, inputs, count, attrs);
}

/// Whether all inputs have one shape and are contiguous.
static bool all_flat(const nd_tensor *const *inputs, int count) {
    for (int i = 0; i < count; i++)
        if (!nd__tensor_is_contiguous(inputs[i]) ||
            (i > 0 && !nd__operands_same_shape(inputs[0], inputs[i])))
            return false;
    return true;
}

/// Writes what a call with one axis reads, and not the room for more.
static void set_flat_operand(nd_operand *operand, const nd_tensor *x) {
    operand->data = x->data;
    operand->dtype = x->dtype;
    operand->strides[0] = 1;
}

nd_tensor *nd__operands_elementwise_to(nd_tensor *out, nd_op op, const nd_tensor *const *inputs,
                                       int count, nd_dtype dtype, const nd_op_attrs *attrs) {
    const char *name = nd__node_op_name(op);
    const nd_tensor *first = inputs[0];
    nd_kernel_call call;
    call.op = op;
    call.noperands = count + 1;
    static const nd_op_attrs no_numbers;
    const nd_op_attrs *numbers = attrs ? attrs : &no_numbers;
    for (int which = 0; which < 2; which++) {
        call.attrs.f[which] = numbers->f[which];
        call.attrs.i[which] = numbers->i[which];
    }
    bool flat = (!out || nd__tensor_is_contiguous(out)) && all_flat(inputs, count);
    int ndim = first->ndim;
    const int64_t *shape = first->shape;
    int64_t broadcast[2][ND_MAX_DIMS]; // the shape so far and the next one
    for (int i = 1; i < count && !flat; i++) {
        int64_t *next = broadcast[i & 1];
        ndim = nd__shape_broadcast(name, ndim, shape, inputs[i]->ndim, inputs[i]->shape, next);
        if (ndim < 0)
            return NULL;
        shape = next;
    }
    nd_tensor *result = nd__out_result(name, out, ND__OUT_OVER_OPERAND, inputs, (size_t)count,
                                       first->device, dtype, ndim, shape);
    if (__builtin_expect(!result, 0))
        return NULL;
    if (result->numel == 0)
        return nd__record(op, result, inputs, (size_t)count, attrs);
    if (flat) {
        call.ndim = 1;
        call.shape[0] = result->numel;
        set_flat_operand(&call.operand[0], result);
        for (int i = 0; i < count; i++)
            set_flat_operand(&call.operand[i + 1], inputs[i]);
    } else {
        call.ndim = ndim;
        for (int i = 0; i < ndim; i++)
            call.shape[i] = shape[i];
        call.operand[0] = nd__shape_broadcast_operand(result, ndim, shape);
        for (int i = 0; i < count; i++)
            call.operand[i + 1] = nd__shape_broadcast_operand(inputs[i], ndim, shape);
        nd__shape_collapse(&call);
    }
    return nd__operands_run(name, result, &call, inputs, (size_t)count, attrs);
}

void nd__operands_call_along_axis(nd_kernel_call *call, nd_op op, const nd_operand *out,
                                  const nd_tensor *x, int axis) {
    call->operand[0] = *out;
    call->operand[1] = nd__shape_broadcast_operand(x, x->ndim, x->shape);
    nd__operands_axis_last(call, op, 2, x, axis);
}

void nd__operands_axis_last(nd_kernel_call *call, nd_op op, int noperands, const nd_tensor *x,
                            int axis) {
    call->op = op;
    call->noperands = noperands;
    call->ndim = 0;
    int64_t size = x->shape[axis];
    int64_t strides[ND_MAX_OPERANDS];
    for (int k = 0; k < noperands; k++) {
        strides[k] = call->operand[k].strides[axis];
        for (int i = axis; i + 1 < x->ndim; i++)
            call->operand[k].strides[i] = call->operand[k].strides[i + 1];
    }
    for (int i = 0; i < x->ndim; i++)
        if (i != axis)
            call->shape[call->ndim++] = x->shape[i];
    nd__shape_collapse(call);
    call->shape[call->ndim] = size;
    for (int k = 0; k < noperands; k++)
        call->operand[k].strides[call->ndim] = strides[k];
    call->ndim++;
}
