// Scans: running sums, products and extrema along an axis, and the recurrence of their gradients.
//
// What is recorded: i[0] = the axis, i[1] = whether it is walked backwards.
#include "lib/ops/scan.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/out.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/out.h>

/// x's strides with the axis last.
static nd_operand turned(const nd_tensor *x, int axis) {
    nd_operand operand = nd__shape_broadcast_operand(x, x->ndim, x->shape);
    int64_t stride = operand.strides[axis];
    for (int i = axis; i + 1 < x->ndim; i++)
        operand.strides[i] = operand.strides[i + 1];
    operand.strides[x->ndim - 1] = stride;
    return operand;
}

static nd_tensor *scan(nd_tensor *out, nd_op op, const nd_tensor *const *inputs, int count,
                       nd_dtype dtype, int axis, bool backwards) {
    const char *name = nd__node_op_name(op);
    const nd_tensor *x = inputs[0];
    nd_op_attrs attrs = {.i = {axis, backwards}};
    nd_tensor *result = nd__out_result(name, out, ND__OUT_APART, inputs, (size_t)count, x->device,
                                       dtype, x->ndim, x->shape);
    if (!result || result->numel == 0)
        return nd__record(op, result, inputs, (size_t)count, &attrs);
    nd_kernel_call call;
    call.op = op;
    call.noperands = 1 + count;
    call.ndim = 0;
    for (int i = 0; i < x->ndim; i++)
        if (i != axis)
            call.shape[call.ndim++] = x->shape[i];
    call.shape[call.ndim++] = x->shape[axis];
    call.operand[0] = turned(result, axis);
    for (int i = 0; i < count; i++)
        call.operand[i + 1] = turned(inputs[i], axis);
    call.attrs.i[0] = backwards;
    return nd__operands_run(name, result, &call, inputs, (size_t)count, &attrs);
}

static nd_tensor *scan_to(nd_tensor *out, nd_op op, const nd_tensor *x, int axis, bool backwards) {
    nd_dtype dtype = x->dtype;
    if ((op == ND_OP_cumsum || op == ND_OP_cumprod) && !nd__dtype_is_float(dtype))
        dtype = nd__dtype_kinds[dtype] == ND_KIND_UNSIGNED ? ND_U64 : ND_I64;
    return scan(out, op, &x, 1, dtype, axis, backwards);
}

nd_tensor *nd__scan(nd_op op, const nd_tensor *x, int axis, bool backwards) {
    return x ? scan_to(NULL, op, x, axis, backwards) : NULL;
}

nd_tensor *nd__scan_recurrence(const nd_tensor *a, const nd_tensor *b, int axis, bool backwards) {
    if (!a || !b)
        return NULL;
    const nd_tensor *inputs[] = {a, b};
    return scan(NULL, ND_OP_recurrence, inputs, 2, b->dtype, axis, backwards);
}

static nd_tensor *checked(nd_tensor *out, nd_op op, const nd_tensor *x, int axis) {
    const char *name = nd__node_op_name(op);
    if (nd__tensor_check_operand(name, "x", x) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis(name, axis, x->ndim);
    return axis < 0 ? NULL : scan_to(out, op, x, axis, false);
}

#define SCAN(name)                                                            \
    nd_tensor *nd_##name(const nd_tensor *x, int axis) {                      \
        return checked(NULL, ND_OP_##name, x, axis);                          \
    }                                                                         \
    nd_status nd_##name##_out(const nd_tensor *x, int axis, nd_tensor *out) { \
        return ND__OUT_FORM(#name, out, checked(out, ND_OP_##name, x, axis)); \
    }
SCAN(cumsum)
SCAN(cumprod)
SCAN(cummax)
SCAN(cummin)
