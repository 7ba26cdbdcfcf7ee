// Elementwise operations: one path for each form that a row of kernels/ops.inc names, and the
// public functions, which are made from the rows. Each writes to `out` (lib/tensor/out.h).
#include "lib/ops/elementwise.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/out.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <math.h>
#include <nd/out.h>

// ------------------------------------------------------------------------------------ two operands

/// What a BITS row of two operands is for bools.
static nd_op logical_of(nd_op op) {
    return op == ND_OP_bitwise_and  ? ND_OP_logical_and
           : op == ND_OP_bitwise_or ? ND_OP_logical_or
                                    : ND_OP_logical_xor;
}

/// A BITS row of one or two operands of bool (b may be NULL): a logical one under its name.
static nd_tensor *bits_of_bools(nd_tensor *out, nd_op op, nd_op logical, const nd_tensor *a,
                                const nd_tensor *b) {
    ND__ERROR_NAMED(nd__node_op_name(op));
    const nd_tensor *inputs[] = {a, b};
    return nd__operands_elementwise_to(out, logical, inputs, b ? 2 : 1, ND_BOOL, NULL);
}

/// dtype COMPARE and LOGICAL results have; ND_DTYPE_COUNT: the operands'.
static nd_tensor *binary(nd_tensor *out, nd_op op, const nd_tensor *a, const nd_tensor *b,
                         nd_dtype_rule rule, nd_dtype result_dtype) {
    const char *name = nd__node_op_name(op);
    nd_dtype dtype;
    if (nd__operands_check_pair(name, "a", a, "b", b) != ND_OK ||
        nd__operands_apply_rule(name, rule, a, b, &dtype) != ND_OK)
        return NULL;
    if (rule == ND__BITS && dtype == ND_BOOL)
        return bits_of_bools(out, op, logical_of(op), a, b);
    if (result_dtype == ND_DTYPE_COUNT)
        result_dtype = dtype;
    if (__builtin_expect(a->dtype == dtype && b->dtype == dtype, 1)) {
        const nd_tensor *inputs[] = {a, b};
        return nd__operands_elementwise_to(out, op, inputs, 2, result_dtype, NULL);
    }
    nd_auto nd_tensor *a_cast = nd__operands_as_dtype(a, dtype);
    nd_auto nd_tensor *b_cast = a_cast ? nd__operands_as_dtype(b, dtype) : NULL;
    if (!b_cast)
        return NULL;
    const nd_tensor *inputs[] = {a_cast, b_cast};
    return nd__operands_elementwise_to(out, op, inputs, 2, result_dtype, NULL);
}

nd_tensor *nd__elementwise_relu_grad(const nd_tensor *grad, const nd_tensor *out) {
    return binary(NULL, ND_OP_relu_grad, grad, out, ND__FLOAT, ND_DTYPE_COUNT);
}

nd_tensor *nd__elementwise_derivative(nd_op op, const nd_tensor *grad, const nd_tensor *saved,
                                      const nd_op_attrs *attrs) {
    if (nd__operands_check_pair(nd__node_op_name(op), "grad", grad, "saved", saved) != ND_OK)
        return NULL;
    const nd_tensor *inputs[] = {grad, saved};
    return nd__operands_elementwise(op, inputs, 2, saved->dtype, attrs);
}

// ------------------------------------------------------------------------------------- one operand

static nd_tensor *unary_as(nd_tensor *out, nd_op op, const nd_tensor *x, nd_dtype dtype,
                           const nd_op_attrs *attrs) {
    if (__builtin_expect(x->dtype == dtype, 1))
        return nd__operands_elementwise_to(out, op, &x, 1, dtype, attrs);
    nd_auto nd_tensor *cast = nd_cast(x, dtype);
    const nd_tensor *input = cast;
    return cast ? nd__operands_elementwise_to(out, op, &input, 1, dtype, attrs) : NULL;
}

/// As for binary().
static nd_tensor *unary(nd_tensor *out, nd_op op, const nd_tensor *x, nd_dtype_rule rule,
                        nd_dtype result_dtype) {
    const char *name = nd__node_op_name(op);
    nd_dtype dtype;
    if (nd__tensor_check_operand(name, "x", x) != ND_OK ||
        nd__operands_apply_rule(name, rule, x, NULL, &dtype) != ND_OK)
        return NULL;
    if (rule == ND__BITS && dtype == ND_BOOL)
        return bits_of_bools(out, op, ND_OP_logical_not, x, NULL);
    if (result_dtype == ND_DTYPE_COUNT)
        return unary_as(out, op, x, dtype, NULL);
    nd_auto nd_tensor *cast = nd__operands_as_dtype(x, dtype);
    const nd_tensor *input = cast;
    return cast ? nd__operands_elementwise_to(out, op, &input, 1, result_dtype, NULL) : NULL;
}

// ---------------------------------------------------------------------------------- with a number

/// x's dtype, or f32 when x is an integer and the number has a fraction (or is none). An integer
/// that x's dtype cannot hold is an error: wrapping it would be a silent surprise.
static nd_tensor *with_number(nd_tensor *out, nd_op op, const nd_tensor *x, nd_number value,
                              nd_dtype_rule rule) {
    const char *name = nd__node_op_name(op);
    nd_dtype dtype;
    if (nd__tensor_check_operand(name, "x", x) != ND_OK ||
        nd__operands_apply_rule(name, rule, x, NULL, &dtype) != ND_OK)
        return NULL;
    if (!nd__dtype_is_float(dtype) && !nd__number_is_integer(value))
        dtype = ND_F32;
    if (nd__operands_check_number(name, dtype, value) != ND_OK)
        return NULL;
    nd_op_attrs attrs;
    nd__record_clear_attrs(&attrs);
    nd__number_pass(&attrs, 0, dtype, value);
    return unary_as(out, op, x, dtype, &attrs);
}

nd_tensor *nd__elementwise_with_limit(nd_op op, const nd_tensor *x, double limit) {
    return with_number(NULL, op, x, ND_NUMBER(limit), ND__FLOAT);
}

/// Any number but NaN.
static bool is_limit(nd_number limit) {
    return nd__number_held(ND_F64, limit) && !isnan(nd__number_as_f64(limit));
}

/// A limit that needs a float to compare with: 0.5, and no infinity.
static bool is_fraction(nd_number limit) {
    return limit.kind == ND_NUMBER_F64 && isfinite(limit.value.f64) &&
           limit.value.f64 != trunc(limit.value.f64);
}

/// x's dtype, or f32 when x is an integer and a limit has a fraction.
static nd_tensor *with_limits(nd_tensor *out, nd_op op, const nd_tensor *x, nd_number low,
                              nd_number high, nd_dtype_rule rule) {
    const char *name = nd__node_op_name(op);
    nd_dtype dtype;
    if (nd__tensor_check_operand(name, "x", x) != ND_OK ||
        nd__operands_apply_rule(name, rule, x, NULL, &dtype) != ND_OK)
        return NULL;
    if (!is_limit(low) || !is_limit(high)) {
        char low_text[ND__NUMBER_TEXT], high_text[ND__NUMBER_TEXT];
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: the limits are %s and %s", name,
                  nd__number_text(low_text, low), nd__number_text(high_text, high));
        return NULL;
    }
    // Infinite limits, and those beyond an integer's range, cut nothing.
    if (!nd__dtype_is_float(dtype) && (is_fraction(low) || is_fraction(high)))
        dtype = ND_F32;
    nd_op_attrs attrs;
    nd__record_clear_attrs(&attrs);
    nd__number_pass(&attrs, 0, dtype, low);
    nd__number_pass(&attrs, 1, dtype, high);
    return unary_as(out, op, x, dtype, &attrs);
}

// ---------------------------------------------------------------------------- the public functions
//
// Made from the table of operations. That <nd/ops.h> and <nd/out.h> declare each, and in this form,
// is asserted: without the declaration its name is unknown here.

#define RESULT_UNARY ND_DTYPE_COUNT
#define RESULT_PREDICATE ND_BOOL
#define RESULT_BINARY ND_DTYPE_COUNT
#define RESULT_COMPARE ND_BOOL
#define RESULT_LOGICAL ND_BOOL

#define OPERANDS_X const nd_tensor *x
#define OPERANDS_XP const nd_tensor *x, nd_number value
#define OPERANDS_XPQ const nd_tensor *x, nd_number low, nd_number high
#define OPERANDS_AB const nd_tensor *a, const nd_tensor *b
#define SHARED_X(out, name, rule, result) unary(out, ND_OP_##name, x, rule, result)
#define SHARED_XP(out, name, rule, result) with_number(out, ND_OP_##name, x, value, rule)
#define SHARED_XPQ(out, name, rule, result) with_limits(out, ND_OP_##name, x, low, high, rule)
#define SHARED_AB(out, name, rule, result) binary(out, ND_OP_##name, a, b, rule, result)

#define SIGNATURE_X const nd_tensor *
#define SIGNATURE_XP const nd_tensor *, nd_number
#define SIGNATURE_XPQ const nd_tensor *, nd_number, nd_number
#define SIGNATURE_AB const nd_tensor *, const nd_tensor *
#define DECLARED(header, function, ...)                                             \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), __VA_ARGS__), \
                   header " declares " #function " in another form than ops.inc says");

#define BOTH(name, form, rule, result)                                                \
    DECLARED("<nd/ops.h>", nd_##name, nd_tensor *(SIGNATURE_##form))                  \
    nd_tensor *(nd_##name)(OPERANDS_##form) {                                         \
        return SHARED_##form(NULL, name, rule, result);                               \
    }                                                                                 \
    DECLARED("<nd/out.h>", nd_##name##_out, nd_status(SIGNATURE_##form, nd_tensor *)) \
    nd_status(nd_##name##_out)(OPERANDS_##form, nd_tensor * out) {                    \
        return ND__OUT_FORM(#name, out, SHARED_##form(out, name, rule, result));      \
    }
#define FUNCTION_NONE(name, rule, result)
#define FUNCTION_X(name, rule, result) BOTH(name, X, rule, result)
#define FUNCTION_XP(name, rule, result) BOTH(name, XP, rule, result)
#define FUNCTION_XPQ(name, rule, result) BOTH(name, XPQ, rule, result)
#define FUNCTION_AB(name, rule, result) BOTH(name, AB, rule, result)

#define ROW(name, types, form, family) FUNCTION_##form(name, ND__##types, RESULT_##family)
#define ND_UNARY(name, types, expression, cost, differentiable, saves, form, ...) \
    ROW(name, types, form, UNARY)
#define ND_PREDICATE(name, types, expression, cost, differentiable, saves, form, ...) \
    ROW(name, types, form, PREDICATE)
#define ND_BINARY(name, types, expression, cost, differentiable, saves, form, ...) \
    ROW(name, types, form, BINARY)
#define ND_COMPARE(name, types, expression, cost, differentiable, saves, form, ...) \
    ROW(name, types, form, COMPARE)
#define ND_LOGICAL(name, types, expression, cost, differentiable, saves, form, ...) \
    ROW(name, types, form, LOGICAL)
#include "kernels/ops.inc"

// -------------------------------------------------------------------------------- chosen elements

static nd_tensor *choose(nd_tensor *out, const nd_tensor *condition, const nd_tensor *a,
                         const nd_tensor *b) {
    nd_dtype dtype;
    if (nd__operands_check_pair("where", "condition", condition, "a", a) != ND_OK ||
        nd__operands_check_pair("where", "a", a, "b", b) != ND_OK ||
        nd__operands_apply_rule("where", ND__ANY, a, b, &dtype) != ND_OK)
        return NULL;
    if (condition->dtype != ND_BOOL) {
        nd__error(ND_ERROR_DTYPE, "where: the condition is %s and must be bool",
                  nd_dtype_get_name(condition->dtype));
        return NULL;
    }
    nd_auto nd_tensor *a_cast = nd__operands_as_dtype(a, dtype);
    nd_auto nd_tensor *b_cast = a_cast ? nd__operands_as_dtype(b, dtype) : NULL;
    if (!b_cast)
        return NULL;
    const nd_tensor *inputs[] = {condition, a_cast, b_cast};
    return nd__operands_elementwise_to(out, ND_OP_where, inputs, 3, dtype, NULL);
}

nd_tensor *nd_where(const nd_tensor *condition, const nd_tensor *a, const nd_tensor *b) {
    return choose(NULL, condition, a, b);
}

nd_status nd_where_out(const nd_tensor *condition, const nd_tensor *a, const nd_tensor *b,
                       nd_tensor *out) {
    return ND__OUT_FORM("where", out, choose(out, condition, a, b));
}

nd_tensor *(nd_masked_fill)(const nd_tensor *x, const nd_tensor *mask, nd_number value) {
    if (nd__operands_check_pair("masked_fill", "x", x, "mask", mask) != ND_OK ||
        nd__operands_check_number("masked_fill", x->dtype, value) != ND_OK)
        return NULL;
    if (mask->dtype != ND_BOOL) {
        nd__error(ND_ERROR_DTYPE, "masked_fill: the mask is %s and must be bool",
                  nd_dtype_get_name(mask->dtype));
        return NULL;
    }
    int64_t shape[ND_MAX_DIMS];
    int ndim =
        nd__shape_broadcast("masked_fill", x->ndim, x->shape, mask->ndim, mask->shape, shape);
    if (ndim < 0)
        return NULL;
    bool fits = ndim == x->ndim;
    for (int i = 0; i < ndim && fits; i++)
        fits = shape[i] == x->shape[i];
    if (!fits) {
        char x_text[ND__SHAPE_TEXT], mask_text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "masked_fill: a mask of shape %s does not broadcast to x's %s",
                  nd__shape_text(mask_text, mask->ndim, mask->shape),
                  nd__shape_text(x_text, x->ndim, x->shape));
        return NULL;
    }
    nd_auto nd_tensor *number = nd__operands_number_like("masked_fill", x, x->dtype, value);
    if (!number)
        return NULL;
    const nd_tensor *inputs[] = {mask, number, x};
    return nd__operands_elementwise(ND_OP_where, inputs, 3, x->dtype, NULL);
}
