// Elements in other places, as compositions of views, joins and takes, which have the gradients.
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/create.h"
#include "lib/tensor/rebase.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/manipulation.h>

/// 0 ... count - 1 as i64 on x's device: [count, 1] or [1, count].
static nd_tensor *counted(const char *name, const nd_tensor *x, int64_t count, bool as_column) {
    const int64_t shape[] = {as_column ? count : 1, as_column ? 1 : count};
    return nd__operands_counted(name, x, 2, shape);
}

/// Which element of `size` stands at place `at` before, in or behind them.
static int64_t source_of(nd_padding mode, int64_t at, int64_t size) {
    if (at >= 0 && at < size)
        return at;
    if (mode == ND_PADDING_CIRCULAR)
        return at < 0 ? at + size : at - size;
    if (mode == ND_PADDING_REFLECT)
        return at < 0 ? -at : 2 * (size - 1) - at;
    return at < 0 ? 0 : size - 1;
}

/// Elements start ... start + count - 1 along an axis, where what is outside of x is as the mode
/// says; backwards from the end when `turned`.
static nd_tensor *taken(const char *name, const nd_tensor *x, int axis, int64_t start,
                        int64_t count, nd_padding mode, bool turned) {
    const nd_device host = {ND_CPU, 0};
    nd_auto nd_tensor *index = nd__tensor_result(name, &x, 1, host, ND_I64, 1, &count);
    if (!index)
        return NULL;
    int64_t *places = index->data;
    for (int64_t i = 0; i < count; i++)
        places[i] = turned ? x->shape[axis] - 1 - i : source_of(mode, start + i, x->shape[axis]);
    nd_auto nd_tensor *there = nd_to(index, x->device);
    return nd_take(x, there, axis);
}

// -------------------------------------------------------------------------------------------------
// padding

static nd_status check_pad(const nd_tensor *x, nd_number value, int naxes, const int64_t *padding,
                           nd_padding mode) {
    nd_status status = nd__tensor_check_operand("pad", "x", x);
    if (status != ND_OK)
        return status;
    if (naxes < 0 || naxes > x->ndim || (naxes > 0 && !padding))
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "pad: %d axes at %s, of the %d of x", naxes,
                         padding ? "an address" : "NULL", x->ndim);
    if (mode == ND_PADDING_CONSTANT)
        return nd__operands_check_number("pad", x->dtype, value);
    if (mode != ND_PADDING_REFLECT && mode != ND_PADDING_REPLICATE && mode != ND_PADDING_CIRCULAR)
        return nd__error(ND_ERROR_INVALID_ARGUMENT, "pad: there is no padding %d", (int)mode);
    for (int i = 0; i < 2 * naxes; i++) {
        int64_t size = x->shape[x->ndim - naxes + i / 2];
        int64_t most = mode == ND_PADDING_REFLECT    ? size - 1
                       : mode == ND_PADDING_CIRCULAR ? size
                       : size > 0                    ? INT64_MAX / 4
                                                     : 0;
        if (padding[i] != 0 && (padding[i] < 0 || padding[i] > most))
            return nd__error(ND_ERROR_INVALID_ARGUMENT,
                             "pad: padding[%d] is %lld, and an axis of %lld elements has room for "
                             "0 ... %lld",
                             i, (long long)padding[i], (long long)size,
                             (long long)(most > 0 ? most : 0));
    }
    return ND_OK;
}

/// So many elements of a number beside x along an axis.
static nd_tensor *border(const nd_tensor *x, nd_number value, int axis, int64_t count) {
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = i == axis ? count : x->shape[i];
    nd_auto nd_tensor *number = nd__operands_number_like("pad", x, x->dtype, value);
    return nd_expand(number, x->ndim, shape);
}

/// Pads one axis with a number; negative numbers cut.
static nd_tensor *pad_with_number(const nd_tensor *x, nd_number value, int axis, int64_t before,
                                  int64_t behind) {
    int64_t size = x->shape[axis], start = before < 0 ? -before : 0;
    int64_t stop = behind < 0 ? size + behind : size;
    if (start > stop || start < 0 || stop < 0) {
        nd__error(ND_ERROR_SHAPE,
                  "pad: %lld and %lld elements cannot be taken from an axis of %lld",
                  (long long)before, (long long)behind, (long long)size);
        return NULL;
    }
    nd_auto nd_tensor *inner =
        start > 0 || stop < size ? nd_slice(x, start, stop, 1, axis) : nd_retain(x);
    nd_auto nd_tensor *first = before > 0 ? border(x, value, axis, before) : NULL;
    nd_auto nd_tensor *last = behind > 0 ? border(x, value, axis, behind) : NULL;
    if (!inner || (before > 0 && !first) || (behind > 0 && !last))
        return NULL;
    const nd_tensor *parts[3];
    size_t count = 0;
    if (first)
        parts[count++] = first;
    parts[count++] = inner;
    if (last)
        parts[count++] = last;
    return count > 1 ? nd_concat(count, parts, axis) : nd_steal(&inner);
}

nd_tensor *(nd_pad)(const nd_tensor *x, int naxes, const int64_t *padding, nd_number value,
                    nd_padding mode) {
    if (check_pad(x, value, naxes, padding, mode) != ND_OK)
        return NULL;
    nd_auto nd_tensor *result = nd_retain(x);
    for (int i = 0; i < naxes && result; i++) {
        int axis = x->ndim - naxes + i;
        int64_t before = padding[2 * i], behind = padding[2 * i + 1];
        if (before == 0 && behind == 0)
            continue;
        nd_tensor *next = mode == ND_PADDING_CONSTANT
                              ? pad_with_number(result, value, axis, before, behind)
                              : taken("pad", result, axis, -before,
                                      before + x->shape[axis] + behind, mode, false);
        nd_release(result);
        result = next;
    }
    return nd__operands_own(nd_steal(&result), x);
}

// -------------------------------------------------------------------------------------------------
// turning and rolling

nd_tensor *nd_flip(const nd_tensor *x, int naxes, const int *axes) {
    if (nd__tensor_check_operand("flip", "x", x) != ND_OK)
        return NULL;
    if (naxes < 0 || (naxes > 0 && !axes)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "flip: %d axes at %s", naxes,
                  axes ? "an address" : "NULL");
        return NULL;
    }
    nd_auto nd_tensor *result = nd_retain(x);
    unsigned turned = 0;
    for (int i = 0; i < (naxes ? naxes : x->ndim) && result; i++) {
        int axis = naxes ? nd__shape_resolve_axis("flip", axes[i], x->ndim) : i;
        if (axis < 0)
            return NULL;
        if (turned & (1u << axis)) {
            nd__error(ND_ERROR_INVALID_ARGUMENT, "flip: axis %d is named twice", axes[i]);
            return NULL;
        }
        turned |= 1u << axis;
        nd_tensor *next = taken("flip", result, axis, 0, x->shape[axis], ND_PADDING_CONSTANT, true);
        nd_release(result);
        result = next;
    }
    return nd__operands_own(nd_steal(&result), x);
}

nd_tensor *nd_roll(const nd_tensor *x, int64_t shift, int axis) {
    if (nd__tensor_check_operand("roll", "x", x) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis("roll", axis, x->ndim);
    if (axis < 0)
        return NULL;
    int64_t size = x->shape[axis], places = size > 0 ? shift % size : 0;
    places = places < 0 ? places + size : places;
    if (places == 0)
        return nd_clone(x);
    nd_auto nd_tensor *first = nd_slice(x, size - places, size, 1, axis);
    nd_auto nd_tensor *last = nd_slice(x, 0, size - places, 1, axis);
    const nd_tensor *parts[] = {first, last};
    return first && last ? nd_concat(2, parts, axis) : NULL;
}

// -------------------------------------------------------------------------------------------------
// triangles

static nd_tensor *triangle(const char *name, const nd_tensor *x, int64_t diagonal, bool lower) {
    if (nd__tensor_check_operand(name, "x", x) != ND_OK)
        return NULL;
    if (x->ndim < 2) {
        char text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and must be [..., m, n]", name,
                  nd__shape_text(text, x->ndim, x->shape));
        return NULL;
    }
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
    // A diagonal outside of x is as good as the next one outside.
    diagonal = diagonal > n ? n : diagonal < -m - 1 ? -m - 1 : diagonal;
    nd_auto nd_tensor *rows = counted(name, x, m, true);
    nd_auto nd_tensor *columns = counted(name, x, n, false);
    nd_auto nd_tensor *edge = rows ? nd_add_scalar(rows, diagonal) : NULL;
    nd_auto nd_tensor *kept =
        lower ? nd_less_equal(columns, edge) : nd_greater_equal(columns, edge);
    nd_auto nd_tensor *zero = nd__operands_number_like(name, x, x->dtype, ND_NUMBER(0));
    return nd_where(kept, x, zero);
}

nd_tensor *nd_tril(const nd_tensor *x, int64_t diagonal) {
    return triangle("tril", x, diagonal, true);
}

nd_tensor *nd_triu(const nd_tensor *x, int64_t diagonal) {
    return triangle("triu", x, diagonal, false);
}

// -------------------------------------------------------------------------------------------------
// repeating

/// Along an axis: each element `count` times (`inner`), or all of them.
static nd_tensor *repeated(const char *name, const nd_tensor *x, int64_t count, int axis,
                           bool inner) {
    if (count < 0) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: a count of %lld", name, (long long)count);
        return NULL;
    }
    if (count == 1)
        return nd_retain(x);
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = x->shape[i];
    // The axis and those before it are one, to have room for another.
    int64_t outer = 1, rest = 1;
    for (int i = 0; i < x->ndim; i++)
        *(i < axis ? &outer : &rest) *= i == axis ? 1 : x->shape[i];
    int64_t size = x->shape[axis];
    if (__builtin_mul_overflow(size, count, &shape[axis])) {
        nd__error(ND_ERROR_SHAPE, "%s: %lld times %lld elements are too many", name,
                  (long long)count, (long long)size);
        return NULL;
    }
    const int64_t apart[] = {outer, inner ? size : 1, inner ? 1 : size, rest};
    const int64_t spread[] = {outer, inner ? size : count, inner ? count : size, rest};
    nd_auto nd_tensor *four = nd_reshape(x, 4, apart);
    nd_auto nd_tensor *wide = nd_expand(four, 4, spread);
    return nd_reshape(wide, x->ndim, shape);
}

nd_tensor *nd_repeat(const nd_tensor *x, int64_t count, int axis) {
    if (nd__tensor_check_operand("repeat", "x", x) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis("repeat", axis, x->ndim);
    return axis < 0 ? NULL : nd__operands_own(repeated("repeat", x, count, axis, true), x);
}

nd_tensor *nd_tile(const nd_tensor *x, int ndim, const int64_t *counts) {
    if (nd__tensor_check_operand("tile", "x", x) != ND_OK)
        return NULL;
    if (ndim < 0 || ndim > ND_MAX_DIMS || (ndim > 0 && !counts)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "tile: %d counts at %s", ndim,
                  counts ? "an address" : "NULL");
        return NULL;
    }
    int wide = ndim > x->ndim ? ndim : x->ndim;
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < wide; i++)
        shape[i] = i < wide - x->ndim ? 1 : x->shape[i - (wide - x->ndim)];
    nd_auto nd_tensor *result = wide > x->ndim ? nd_reshape(x, wide, shape) : nd_retain(x);
    for (int i = 0; i < ndim && result; i++) {
        nd_tensor *next = repeated("tile", result, counts[i], wide - ndim + i, false);
        nd_release(result);
        result = next;
    }
    return nd__operands_own(nd_steal(&result), x);
}

// -------------------------------------------------------------------------------------------------
// axes and parts

nd_tensor *nd_moveaxis(const nd_tensor *x, int source, int destination) {
    if (nd__tensor_check_operand("moveaxis", "x", x) != ND_OK)
        return NULL;
    source = nd__shape_resolve_axis("moveaxis", source, x->ndim);
    destination = source < 0 ? -1 : nd__shape_resolve_axis("moveaxis", destination, x->ndim);
    if (destination < 0)
        return NULL;
    int axes[ND_MAX_DIMS];
    for (int i = 0, next = 0; i < x->ndim; i++) {
        if (i == destination) {
            axes[i] = source;
            continue;
        }
        next += next == source;
        axes[i] = next++;
    }
    return nd_permute(x, x->ndim, axes);
}

static void forget_parts(size_t made, nd_tensor **parts) {
    while (made-- > 0) {
        nd_release(parts[made]);
        parts[made] = NULL;
    }
}

/// Views of x of sizes that add up to the axis; `sizes` NULL: of one element each. They have one
/// node, so that their gradients are joined once.
static nd_status split(const nd_tensor *x, size_t count, const int64_t *sizes, int axis,
                       nd_tensor **ret_parts) {
    int64_t shape[ND_MAX_DIMS], stride = nd__tensor_strides(x)[axis], start = 0;
    for (int i = 0; i < x->ndim; i++)
        shape[i] = x->shape[i];
    size_t made = 0;
    for (; made < count; made++) {
        shape[axis] = sizes ? sizes[made] : 1;
        // An empty part points to where x does, not behind its end.
        int64_t offset = nd__tensor_offset(x) + (shape[axis] > 0 ? start * stride : 0);
        ret_parts[made] = nd__rebase_view(x, x->ndim, shape, nd__tensor_strides(x), offset);
        if (!ret_parts[made])
            break;
        start += shape[axis];
    }
    if (made == count && nd__record_split(ret_parts, count, x, axis) == ND_OK)
        return ND_OK;
    forget_parts(made, ret_parts);
    return nd_error_get_status();
}

nd_status nd_split(const nd_tensor *x, size_t count, const int64_t *sizes, int axis,
                   nd_tensor **ret_parts) {
    nd_status status = nd__tensor_check_operand("split", "x", x);
    if (status != ND_OK)
        return status;
    if (count > 0 && (!sizes || !ret_parts))
        return nd__error_null("split", sizes ? "ret_parts" : "sizes");
    axis = nd__shape_resolve_axis("split", axis, x->ndim);
    if (axis < 0)
        return nd_error_get_status();
    int64_t left = x->shape[axis];
    bool fits = true;
    for (size_t i = 0; i < count && fits; i++) {
        fits = sizes[i] >= 0 && sizes[i] <= left;
        left -= fits ? sizes[i] : 0;
    }
    if (!fits || left != 0)
        return nd__error(ND_ERROR_SHAPE,
                         "split: the sizes do not add up to the %lld elements of "
                         "axis %d",
                         (long long)x->shape[axis], axis);
    return split(x, count, sizes, axis, ret_parts);
}

nd_status nd_unstack(const nd_tensor *x, int axis, nd_tensor **ret_parts) {
    nd_status status = nd__tensor_check_operand("unstack", "x", x);
    if (status != ND_OK)
        return status;
    axis = nd__shape_resolve_axis("unstack", axis, x->ndim);
    if (axis < 0)
        return nd_error_get_status();
    size_t count = (size_t)x->shape[axis];
    if (count > 0 && !ret_parts)
        return nd__error_null("unstack", "ret_parts");
    status = split(x, count, NULL, axis, ret_parts);
    for (size_t i = 0; i < count && status == ND_OK; i++) {
        nd_tensor *part = nd_squeeze(ret_parts[i], axis);
        if (!part) {
            forget_parts(count, ret_parts);
            return nd_error_get_status();
        }
        nd_release(ret_parts[i]);
        ret_parts[i] = part;
    }
    return status;
}

nd_tensor *nd_sliding_window(const nd_tensor *x, int64_t size, int64_t step, int axis) {
    const char *name = "sliding_window";
    if (nd__tensor_check_operand(name, "x", x) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis(name, axis, x->ndim);
    if (axis < 0)
        return NULL;
    if (x->ndim == ND_MAX_DIMS) {
        nd__error(ND_ERROR_SHAPE, "%s: x already has %d dimensions", name, ND_MAX_DIMS);
        return NULL;
    }
    if (size < 0 || size > x->shape[axis] || step <= 0) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "%s: windows of %lld elements, %lld apart, of the %lld of axis %d; the step must "
                  "be positive",
                  name, (long long)size, (long long)step, (long long)x->shape[axis], axis);
        return NULL;
    }
    int64_t shape[ND_MAX_DIMS], strides[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        shape[i] = x->shape[i];
        strides[i] = nd__tensor_strides(x)[i];
    }
    shape[x->ndim] = size;
    strides[x->ndim] = strides[axis];
    shape[axis] = (x->shape[axis] - size) / step + 1;
    strides[axis] *= shape[axis] > 1 ? step : 1; // a huge step must not overflow
    nd_tensor *view = nd__rebase_view(x, x->ndim + 1, shape, strides, nd__tensor_offset(x));
    nd_op_attrs attrs = {.i = {axis, size, step}};
    return view ? nd__rebase_record(ND_OP_sliding_window, view, x, &attrs) : NULL;
}
