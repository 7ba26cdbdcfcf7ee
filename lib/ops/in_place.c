// In-place operations: x is written where it lies, its version counter moves, and its history gets
// a new node.
//
// Order: everything that can be refused is refused before the first byte is written. What history
// needs of x's old value is cloned before, too, and the node itself is made.
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/overlap.h"
#include "lib/tensor/rebase.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"

/// Both usable, on one device, history allows the write, and y broadcasts to x.
static nd_status check_target(const char *name, const nd_tensor *x, const nd_tensor *y) {
    nd_status status = nd__operands_check_pair(name, "x", x, "y", y);
    if (status == ND_OK)
        status = nd__record_check_in_place(name, x);
    // The write makes another window's history stale, and the operation needs it as it was.
    if (status == ND_OK && nd__tensor_requires_grad(y))
        status = nd__rebase_refresh(y);
    if (status == ND_OK && nd__tensor_requires_grad(y))
        status = nd__rebase_check_cut(name, x);
    if (status != ND_OK)
        return status;
    int64_t shape[ND_MAX_DIMS];
    int ndim = nd__shape_broadcast(name, x->ndim, x->shape, y->ndim, y->shape, shape);
    bool fits = ndim == x->ndim;
    for (int i = 0; i < ndim && fits; i++)
        fits = shape[i] == x->shape[i];
    if (ndim < 0)
        return nd_error_get_status();
    char x_text[ND__SHAPE_TEXT], y_text[ND__SHAPE_TEXT];
    if (!fits)
        return nd__error(ND_ERROR_SHAPE, "%s: y of shape %s does not broadcast to x's %s", name,
                         nd__shape_text(y_text, y->ndim, y->shape),
                         nd__shape_text(x_text, x->ndim, x->shape));
    return ND_OK;
}

static nd_status check_windows(const char *name, const nd_tensor *x, const nd_tensor *y) {
    char text[ND__SHAPE_TEXT];
    if (nd__overlap_within(x))
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: elements of x (shape %s) share memory with each other, so it cannot "
                         "be written in place",
                         name, nd__shape_text(text, x->ndim, x->shape));
    if (y && nd__overlap(x, y) == ND__PARTIAL)
        return nd__error(ND_ERROR_INVALID_ARGUMENT,
                         "%s: x and y (shape %s) share part of their memory; use a clone of y",
                         name, nd__shape_text(text, y->ndim, y->shape));
    return ND_OK;
}

/// Runs op with out = the first operand, x, over x's shape. Onto the same memory a copy changes no
/// byte, though the history may change.
static nd_status run_over(const char *name, nd_op op, nd_tensor *x, const nd_tensor *const *inputs,
                          int count, const nd_op_attrs *attrs) {
    bool is_copy = op == ND_OP_clone || op == ND_OP_cast;
    if (x->numel == 0 || (is_copy && nd__overlap(x, inputs[0]) == ND__SAME))
        return ND_OK;
    nd_kernel_call call;
    call.op = op;
    call.noperands = count + 1;
    call.ndim = x->ndim;
    for (int i = 0; i < x->ndim; i++)
        call.shape[i] = x->shape[i];
    call.operand[0] = nd__shape_broadcast_operand(x, x->ndim, x->shape);
    for (int i = 0; i < count; i++)
        call.operand[i + 1] = nd__shape_broadcast_operand(inputs[i], x->ndim, x->shape);
    call.attrs.f[0] = attrs ? attrs->f[0] : 0.0;
    call.attrs.f[1] = attrs ? attrs->f[1] : 0.0;
    call.attrs.i[0] = attrs ? attrs->i[0] : 0;
    call.attrs.i[1] = attrs ? attrs->i[1] : 0;
    nd__shape_collapse(&call);
    return nd__launch(name, x->device, &call);
}

/// Nothing may have closed an operand since it was checked: making nodes and copies may call back.
static nd_status check_still_open(const char *name, const nd_tensor *x,
                                  const nd_tensor *const *inputs, int count) {
    nd_status status = nd__tensor_check_operand(name, "x", x);
    for (int i = 0; i < count && status == ND_OK; i++)
        status = nd__tensor_check_operand(name, "an operand", inputs[i]);
    return status;
}

/// The write itself, when everything else was checked. `recorded` are `inputs` as the history is to
/// see them (record.h).
static nd_status write_over(const char *name, nd_op op, nd_tensor *x,
                            const nd_tensor *const *inputs, const nd_tensor *const *recorded,
                            int count, const nd_op_attrs *attrs) {
    nd__record_write write;
    nd_status status = nd__record_before_write(op, x, recorded, (size_t)count, attrs, &write);
    if (status != ND_OK)
        return status;
    status = check_still_open(name, x, inputs, count);
    if (status == ND_OK) {
        status = run_over(name, op, x, inputs, count, attrs);
        nd__tensor_bump_version(x);
    }
    nd__record_after_write(&write, status == ND_OK);
    return status;
}

/// x = op(x, y).
static nd_status binary_in_place(const char *name, nd_op op, nd_tensor *x, const nd_tensor *y,
                                 nd_dtype_rule rule, const nd_op_attrs *attrs) {
    nd_dtype dtype;
    nd_status status = check_target(name, x, y);
    if (status == ND_OK)
        status = nd__operands_apply_rule(name, rule, x, y, &dtype);
    if (status != ND_OK)
        return status;
    if (dtype != x->dtype)
        return nd__error(ND_ERROR_DTYPE, "%s: x is %s, which cannot hold the result with y of %s",
                         name, nd_dtype_get_name(x->dtype), nd_dtype_get_name(y->dtype));
    nd_auto nd_tensor *operand = nd__operands_as_dtype(y, x->dtype);
    if (!operand)
        return nd_error_get_status();
    status = check_windows(name, x, operand);
    if (status != ND_OK)
        return status;
    // The rule needs x's old value only for y's gradient.
    const nd_tensor *inputs[] = {x, operand};
    bool saves_x =
        (nd__op_infos[op].saves & ND_SAVE_A) != 0 && nd__record_wants_history(&inputs[1], 1);
    nd_auto nd_tensor *before = saves_x ? nd_clone(x) : NULL;
    if (saves_x && !before)
        return nd_error_get_status();
    // x op= x: the other operand's value is gone as well, but its history may be another one.
    bool saves_y = saves_x && operand != x && nd__tensor_share_storage(operand, x);
    nd_auto nd_tensor *operand_before = saves_y ? nd_clone(operand) : NULL;
    if (saves_y && !operand_before)
        return nd_error_get_status();
    const nd_tensor *recorded[] = {before ? before : x, operand_before ? operand_before : operand};
    if (before && operand == x)
        recorded[1] = before;
    return write_over(name, op, x, inputs, recorded, 2, attrs);
}

nd_status nd_add_(nd_tensor *x, const nd_tensor *y) {
    return binary_in_place("add_", ND_OP_add, x, y, ND__NUMBER, NULL);
}

nd_status nd_sub_(nd_tensor *x, const nd_tensor *y) {
    return binary_in_place("sub_", ND_OP_sub, x, y, ND__NUMBER, NULL);
}

nd_status nd_mul_(nd_tensor *x, const nd_tensor *y) {
    return binary_in_place("mul_", ND_OP_mul, x, y, ND__NUMBER, NULL);
}

nd_status nd_div_(nd_tensor *x, const nd_tensor *y) {
    return binary_in_place("div_", ND_OP_div, x, y, ND__FLOAT, NULL);
}

nd_status(nd_add_scaled_)(nd_tensor *x, const nd_tensor *y, nd_number alpha) {
    nd_status status = nd__tensor_check_operand("add_scaled_", "x", x);
    if (status == ND_OK)
        status = nd__operands_check_number("add_scaled_", x->dtype, alpha);
    if (status != ND_OK)
        return status;
    nd_op_attrs attrs;
    nd__record_clear_attrs(&attrs);
    nd__number_pass(&attrs, 0, x->dtype, alpha);
    return binary_in_place("add_scaled_", ND_OP_add_scaled, x, y, ND__NUMBER, &attrs);
}

/// For a number: nothing to broadcast and nothing to overlap but x itself.
static nd_status check_number_write(const char *name, const nd_tensor *x, nd_number value) {
    nd_status status = nd__record_check_in_place(name, x);
    if (status == ND_OK)
        status = nd__operands_check_number(name, x->dtype, value);
    return status == ND_OK ? check_windows(name, x, NULL) : status;
}

nd_status(nd_mul_scalar_)(nd_tensor *x, nd_number value) {
    nd_dtype dtype;
    nd_status status = check_number_write("mul_scalar_", x, value);
    if (status == ND_OK)
        status = nd__operands_apply_rule("mul_scalar_", ND__NUMBER, x, NULL, &dtype);
    if (status != ND_OK)
        return status;
    nd_op_attrs attrs;
    nd__record_clear_attrs(&attrs);
    nd__number_pass(&attrs, 0, x->dtype, value);
    const nd_tensor *input = x;
    return write_over("mul_scalar_", ND_OP_mul_scalar, x, &input, &input, 1, &attrs);
}

nd_status(nd_fill_)(nd_tensor *x, nd_number value) {
    nd_status status = check_number_write("fill_", x, value);
    if (status != ND_OK)
        return status;
    nd_op_attrs attrs;
    nd__record_clear_attrs(&attrs);
    nd__number_pass(&attrs, 0, x->dtype, value);
    return write_over("fill_", ND_OP_fill, x, NULL, NULL, 0, &attrs);
}

nd_status nd_copy_(nd_tensor *x, const nd_tensor *y) {
    nd_status status = nd__tensor_check_operand("copy_", "x", x);
    if (status == ND_OK)
        status = nd__tensor_check_operand("copy_", "y", y);
    if (status != ND_OK)
        return status;
    // Across devices the copy is recorded as what it is: to, then cast or clone.
    nd_auto nd_tensor *near = nd__copy_to("copy_", y, x->device);
    if (!near)
        return nd_error_get_status();
    status = check_target("copy_", x, near);
    if (status == ND_OK)
        status = check_windows("copy_", x, near);
    if (status != ND_OK)
        return status;
    if (near == x)
        return ND_OK;
    nd_op op = x->dtype == near->dtype ? ND_OP_clone : ND_OP_cast;
    const nd_tensor *input = near;
    return write_over("copy_", op, x, &input, &input, 1, NULL);
}

nd_status(nd_masked_fill_)(nd_tensor *x, const nd_tensor *mask, nd_number value) {
    nd_status status = check_target("masked_fill_", x, mask);
    if (status == ND_OK)
        status = check_number_write("masked_fill_", x, value);
    if (status == ND_OK && mask->dtype != ND_BOOL)
        status = nd__error(ND_ERROR_DTYPE, "masked_fill_: the mask is %s and must be bool",
                           nd_dtype_get_name(mask->dtype));
    if (status == ND_OK)
        status = check_windows("masked_fill_", x, mask);
    if (status != ND_OK)
        return status;
    nd_auto nd_tensor *number = nd__operands_number_like("masked_fill_", x, x->dtype, value);
    if (!number)
        return nd_error_get_status();
    const nd_tensor *inputs[] = {mask, number, x};
    return write_over("masked_fill_", ND_OP_where, x, inputs, inputs, 3, NULL);
}
