// Elements in other places, as compositions of views, joins and takes, which have the gradients.
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/ops/several.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/create.h"
#include "lib/tensor/rebase.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/autograd.h>
#include <nd/manipulation.h>

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

/// x without what negative numbers cut from its last naxes axes.
static nd_tensor *cut(const nd_tensor *x, int naxes, const int64_t *padding) {
    nd_auto nd_tensor *inner = nd_retain(x);
    for (int i = 0; i < naxes && inner; i++) {
        int axis = x->ndim - naxes + i;
        int64_t size = x->shape[axis];
        int64_t before = padding[2 * i] < 0 ? padding[2 * i] : 0;
        int64_t behind = padding[2 * i + 1] < 0 ? padding[2 * i + 1] : 0;
        if (before < -size || behind < -size - before) {
            nd__error(ND_ERROR_SHAPE,
                      "pad: %lld and %lld elements cannot be taken from an axis of %lld",
                      (long long)padding[2 * i], (long long)padding[2 * i + 1], (long long)size);
            return NULL;
        }
        if (before == 0 && behind == 0)
            continue;
        nd_tensor *next = nd_slice(inner, -before, size + behind, 1, axis);
        nd_release(inner);
        inner = next;
    }
    return nd_steal(&inner);
}

/// Writes a number to `count` places from `begin` on along an axis, of the window of `result` that
/// `shape` is at `offset`.
static nd_status write_border(nd_tensor *result, const int64_t *shape, int64_t offset, int axis,
                              int64_t begin, int64_t count, nd_number value) {
    if (count == 0)
        return ND_OK;
    int64_t part[ND_MAX_DIMS];
    for (int i = 0; i < result->ndim; i++)
        part[i] = i == axis ? count : shape[i];
    const int64_t *strides = nd__tensor_strides(result);
    nd_tensor *window = nd__create_filled(
        "pad",
        nd__tensor_view(result, result->ndim, part, strides,
                        nd__tensor_offset(result) + offset + begin * strides[axis]),
        value);
    nd_release(window);
    return window ? ND_OK : nd_error_get_status();
}

/// Writes a number around x's place in `result`, axis by axis: along the first ones all of the
/// window, along others what is left of it. x's place are x's shape and *ret_offset.
static nd_status write_frame(nd_tensor *result, const nd_tensor *x, int naxes,
                             const int64_t *padding, nd_number value, int64_t *ret_offset) {
    int64_t shape[ND_MAX_DIMS], offset = 0;
    for (int i = 0; i < x->ndim; i++)
        shape[i] = result->shape[i];
    nd_status status = ND_OK;
    for (int i = 0; i < naxes && status == ND_OK; i++) {
        int axis = x->ndim - naxes + i;
        int64_t before = padding[2 * i] > 0 ? padding[2 * i] : 0, size = x->shape[axis];
        int64_t behind = result->shape[axis] - before - size;
        status = write_border(result, shape, offset, axis, 0, before, value);
        if (status == ND_OK)
            status = write_border(result, shape, offset, axis, before + size, behind, value);
        shape[axis] = size;
        offset += before * nd__tensor_strides(result)[axis];
    }
    *ret_offset = offset;
    return status;
}

/// x's shape with what positive numbers add to its last naxes axes; false with an error.
static bool padded_shape(const nd_tensor *x, int naxes, const int64_t *padding,
                         int64_t *ret_shape) {
    bool fits = true;
    for (int i = 0; i < x->ndim; i++) {
        const int64_t *of_axis = i < x->ndim - naxes ? NULL : padding + 2 * (i - x->ndim + naxes);
        ret_shape[i] = x->shape[i];
        for (int side = 0; side < 2 && of_axis; side++)
            fits = fits && !__builtin_add_overflow(
                               ret_shape[i], of_axis[side] > 0 ? of_axis[side] : 0, &ret_shape[i]);
    }
    if (!fits)
        nd__error(ND_ERROR_SHAPE, "pad: an axis would have too many elements");
    return fits;
}

/// Pads the last axes with a number, which negative numbers have cut before.
static nd_tensor *pad_with_number(const nd_tensor *x, nd_number value, int naxes,
                                  const int64_t *padding) {
    int64_t shape[ND_MAX_DIMS];
    if (!padded_shape(x, naxes, padding, shape))
        return NULL;
    nd_auto nd_tensor *number = nd__operands_number_like("pad", x, x->dtype, value);
    const nd_tensor *inputs[] = {number, x};
    nd_auto nd_tensor *result =
        number ? nd__tensor_result("pad", inputs, 2, x->device, x->dtype, x->ndim, shape) : NULL;
    nd_op_attrs window = {.i = {[9] = 1}};
    if (!result || write_frame(result, x, naxes, padding, value, &window.i[8]) != ND_OK)
        return NULL;
    for (int i = 0; i < x->ndim; i++)
        window.i[i] = nd__tensor_strides(result)[i];
    nd_operand place = nd__shape_broadcast_operand(result, x->ndim, shape);
    place.data = (char *)place.data + window.i[8] * nd__dtype_bytes[x->dtype];
    if (nd__copy_to_operand("pad", &place, x) != ND_OK)
        return NULL;
    return nd__record(ND_OP_as_strided_scatter, nd_steal(&result), inputs, 2, &window);
}

/// `count` elements, at least one, that the mode puts before x or behind it along an axis.
static nd_tensor *border(const nd_tensor *x, int axis, bool behind, int64_t count,
                         nd_padding mode) {
    const int64_t size = x->shape[axis];
    if (mode == ND_PADDING_CIRCULAR)
        return behind ? nd_slice(x, 0, count, 1, axis) : nd_slice(x, size - count, size, 1, axis);
    if (mode == ND_PADDING_REFLECT) {
        const int64_t first = behind ? size - 1 - count : 1;
        nd_auto nd_tensor *part = nd_slice(x, first, first + count, 1, axis);
        return part ? nd_flip(part, 1, &axis) : NULL;
    }
    nd_auto nd_tensor *last =
        behind ? nd_slice(x, size - 1, size, 1, axis) : nd_slice(x, 0, 1, 1, axis);
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = i == axis ? count : x->shape[i];
    return last ? nd_expand(last, x->ndim, shape) : NULL;
}

/// Copies `count` elements along an axis of a padded tensor, with all of its `shape` along the others, to
/// places from `to` on; the first is at `from`, and the others follow `step` from each other. `window` is
/// where the others begin.
static nd_status copy_border(nd_tensor *result, const int64_t *shape, int64_t window, int axis,
                             int64_t to, int64_t count, int64_t from, int64_t step) {
    if (count == 0)
        return ND_OK;
    const int64_t along = nd__tensor_strides(result)[axis];
    int64_t part[ND_MAX_DIMS], strides[ND_MAX_DIMS];
    for (int i = 0; i < result->ndim; i++) {
        part[i] = i == axis ? count : shape[i];
        strides[i] = nd__tensor_strides(result)[i] * (i == axis ? step : 1);
    }
    nd_auto nd_tensor *elements = nd__tensor_view(
        result, result->ndim, part, strides, nd__tensor_offset(result) + window + from * along);
    if (!elements)
        return nd_error_get_status();
    nd_operand place = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    place.data = (char *)place.data + (window + to * along) * nd__dtype_bytes[result->dtype];
    return nd__copy_to_operand("pad", &place, elements);
}

/// Pads with elements of x, which are copied to their place, from there along the last axis, what is
/// there then along the one before it, and so on. Nothing is recorded.
static nd_tensor *pad_in_place(const nd_tensor *x, int naxes, const int64_t *padding,
                               nd_padding mode) {
    int64_t shape[ND_MAX_DIMS];
    if (!padded_shape(x, naxes, padding, shape))
        return NULL;
    nd_auto nd_tensor *result =
        nd__tensor_result("pad", &x, 1, x->device, x->dtype, x->ndim, shape);
    if (!result || result->numel == 0)
        return nd_steal(&result);
    const int64_t *strides = nd__tensor_strides(result);
    int64_t window = 0; // where x begins
    for (int i = 0; i < naxes; i++)
        window += padding[2 * i] * strides[x->ndim - naxes + i];
    for (int i = 0; i < x->ndim; i++)
        shape[i] = x->shape[i];
    nd_operand place = nd__shape_broadcast_operand(result, x->ndim, result->shape);
    place.data = (char *)place.data + window * nd__dtype_bytes[x->dtype];
    nd_status status = nd__copy_to_operand("pad", &place, x);
    for (int i = naxes - 1; i >= 0 && status == ND_OK; i--) {
        const int axis = x->ndim - naxes + i;
        const int64_t before = padding[2 * i], behind = padding[2 * i + 1], size = x->shape[axis];
        const bool reflects = mode == ND_PADDING_REFLECT, turns = mode == ND_PADDING_CIRCULAR;
        const int64_t step = reflects ? -1 : turns ? 1 : 0, end = before + size;
        window -= before * strides[axis];
        status = copy_border(result, shape, window, axis, 0, before,
                             reflects ? 2 * before
                             : turns  ? size
                                      : before,
                             step);
        if (status == ND_OK)
            status = copy_border(result, shape, window, axis, end, behind,
                                 reflects ? end - 2
                                 : turns  ? before
                                          : end - 1,
                                 step);
        shape[axis] = result->shape[axis];
    }
    return status == ND_OK ? nd_steal(&result) : NULL;
}

/// Pads axis by axis with elements of x.
static nd_tensor *pad_with_elements(const nd_tensor *x, int naxes, const int64_t *padding,
                                    nd_padding mode) {
    nd_auto nd_tensor *result = nd_retain(x);
    for (int i = 0; i < naxes && result; i++) {
        const int axis = x->ndim - naxes + i;
        nd_tensor *parts[3];
        size_t count = 0;
        if (padding[2 * i] > 0)
            parts[count++] = border(result, axis, false, padding[2 * i], mode);
        parts[count++] = nd_retain(result);
        if (padding[2 * i + 1] > 0)
            parts[count++] = border(result, axis, true, padding[2 * i + 1], mode);
        bool made = true;
        for (size_t k = 0; k < count; k++)
            made = made && parts[k];
        nd_release(result);
        result = !made       ? NULL
                 : count > 1 ? nd_concat(count, (const nd_tensor *const *)parts, axis)
                             : nd_retain(parts[0]);
        for (size_t k = 0; k < count; k++)
            nd_release(parts[k]);
    }
    return nd_steal(&result);
}

nd_tensor *(nd_pad)(const nd_tensor *x, int naxes, const int64_t *padding, nd_number value,
                    nd_padding mode) {
    ND__ERROR_NAMED("pad");
    if (check_pad(x, value, naxes, padding, mode) != ND_OK)
        return NULL;
    bool grows = false;
    for (int i = 0; i < 2 * naxes; i++)
        grows = grows || padding[i] > 0;
    nd_auto nd_tensor *result = NULL;
    if (mode == ND_PADDING_CONSTANT) {
        nd_auto nd_tensor *inner = cut(x, naxes, padding);
        result = !inner  ? NULL
                 : grows ? pad_with_number(inner, value, naxes, padding)
                         : nd_steal(&inner);
    } else if (grows && !nd__record_wants_history(&x, 1)) {
        result = pad_in_place(x, naxes, padding, mode);
    } else {
        result = pad_with_elements(x, naxes, padding, mode);
    }
    return nd__operands_own(nd_steal(&result), x);
}

// -------------------------------------------------------------------------------------------------
// turning and rolling

/// Turns axes of which there are two elements or more, each by a copy.
static nd_tensor *turned_along(const nd_tensor *x, unsigned turned) {
    nd_auto nd_tensor *result = nd_retain(x);
    for (int axis = 0; axis < x->ndim && result; axis++) {
        if (!(turned & (1u << axis)))
            continue;
        // From the last element to one before the first.
        nd_tensor *next = nd_slice(result, INT64_MAX, INT64_MIN, -1, axis);
        nd_release(result);
        result = next;
    }
    return nd_steal(&result);
}

/// The same with neighbouring axes, of which all are turned, as one.
static nd_tensor *turned_together(const nd_tensor *x, unsigned turned) {
    int64_t shape[ND_MAX_DIMS];
    int count = 0;
    unsigned together = 0;
    for (int axis = 0; axis < x->ndim; axis++) {
        const bool turns = (turned & (1u << axis)) != 0;
        if (x->shape[axis] == 1)
            continue;
        if (turns && count > 0 && (together & (1u << (count - 1)))) {
            shape[count - 1] *= x->shape[axis];
            continue;
        }
        together |= (unsigned)turns << count;
        shape[count++] = x->shape[axis];
    }
    if (__builtin_popcount(together) == __builtin_popcount(turned))
        return turned_along(x, turned);
    nd_auto nd_tensor *flat = nd_reshape(x, count, shape);
    nd_auto nd_tensor *result = flat ? turned_along(flat, together) : NULL;
    return result ? nd_reshape(result, x->ndim, x->shape) : NULL;
}

nd_tensor *nd_flip(const nd_tensor *x, int naxes, const int *axes) {
    ND__ERROR_NAMED("flip");
    if (nd__tensor_check_operand("flip", "x", x) != ND_OK)
        return NULL;
    if (naxes < 0 || (naxes > 0 && !axes)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "flip: %d axes at %s", naxes,
                  axes ? "an address" : "NULL");
        return NULL;
    }
    unsigned named = 0, turned = 0;
    for (int i = 0; i < (naxes ? naxes : x->ndim); i++) {
        int axis = naxes ? nd__shape_resolve_axis("flip", axes[i], x->ndim) : i;
        if (axis < 0)
            return NULL;
        if (named & (1u << axis)) {
            nd__error(ND_ERROR_INVALID_ARGUMENT, "flip: axis %d is named twice", axes[i]);
            return NULL;
        }
        named |= 1u << axis;
        turned |= (unsigned)(x->shape[axis] > 1) << axis;
    }
    return nd__operands_own(turned_together(x, turned), x);
}

nd_tensor *nd_roll(const nd_tensor *x, int64_t shift, int axis) {
    ND__ERROR_NAMED("roll");
    if (nd__tensor_check_operand("roll", "x", x) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis("roll", axis, x->ndim);
    if (axis < 0)
        return NULL;
    int64_t size = x->shape[axis], places = size > 0 ? shift % size : 0;
    places = places < 0 ? places + size : places;
    if (places == 0)
        return nd_clone(x);
    const int64_t sizes[] = {size - places, places};
    nd_tensor *parts[2];
    if (nd_split(x, 2, sizes, axis, parts) != ND_OK)
        return NULL;
    nd_auto nd_tensor *last = parts[0], *first = parts[1];
    return nd_concat(2, (const nd_tensor *[]){first, last}, axis);
}

// -------------------------------------------------------------------------------------------------
// triangles

/// Where the triangle is, [m, n] of bool: rows are windows onto one row of m + n - 1, each a place
/// further to its beginning. `diagonal` is within -m ... n.
static nd_tensor *triangle_mask(const char *name, const nd_tensor *x, int64_t m, int64_t n,
                                int64_t diagonal, bool lower) {
    const int64_t count = m + n - 1, shape[] = {m, n}, strides[] = {-1, 1};
    nd_auto nd_tensor *places = nd__operands_counted(name, x, 1, &count);
    nd_auto nd_tensor *edge =
        places ? nd__operands_number_like(name, places, ND_I64, ND_NUMBER(diagonal + m - 1)) : NULL;
    nd_auto nd_tensor *row = lower ? nd_less_equal(places, edge) : nd_greater_equal(places, edge);
    return row ? nd__tensor_view(row, 2, shape, strides, nd__tensor_offset(row) + m - 1) : NULL;
}

static nd_tensor *triangle(const char *name, const nd_tensor *x, int64_t diagonal, bool lower) {
    ND__ERROR_NAMED(name);
    if (nd__tensor_check_operand(name, "x", x) != ND_OK)
        return NULL;
    if (x->ndim < 2) {
        char text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "%s: x has shape %s and must be [..., m, n]", name,
                  nd__shape_text(text, x->ndim, x->shape));
        return NULL;
    }
    if (x->numel == 0)
        return nd_clone(x);
    int64_t m = x->shape[x->ndim - 2], n = x->shape[x->ndim - 1];
    // A diagonal outside of x is as good as the next one outside.
    diagonal = diagonal > n ? n : diagonal < -m ? -m : diagonal;
    nd_auto nd_tensor *kept = triangle_mask(name, x, m, n, diagonal, lower);
    nd_auto nd_tensor *zero =
        kept ? nd__operands_number_like(name, x, x->dtype, ND_NUMBER(0)) : NULL;
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
    ND__ERROR_NAMED("repeat");
    if (nd__tensor_check_operand("repeat", "x", x) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis("repeat", axis, x->ndim);
    return axis < 0 ? NULL : nd__operands_own(repeated("repeat", x, count, axis, true), x);
}

nd_tensor *nd_tile(const nd_tensor *x, int ndim, const int64_t *counts) {
    ND__ERROR_NAMED("tile");
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
    ND__ERROR_NAMED("moveaxis");
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

/// Views of x of sizes that add up to the axis; `sizes` NULL: of one element each. They have one
/// node, so that their gradients are joined once. After an error some may be there.
static nd_status split(const nd_tensor *x, size_t count, const int64_t *sizes, int axis,
                       nd_tensor **parts) {
    int64_t shape[ND_MAX_DIMS], stride = nd__tensor_strides(x)[axis], start = 0;
    for (int i = 0; i < x->ndim; i++)
        shape[i] = x->shape[i];
    for (size_t i = 0; i < count; i++) {
        shape[axis] = sizes ? sizes[i] : 1;
        // An empty part points to where x does, not behind its end.
        int64_t offset = nd__tensor_offset(x) + (shape[axis] > 0 ? start * stride : 0);
        parts[i] = nd__rebase_view(x, x->ndim, shape, nd__tensor_strides(x), offset);
        if (!parts[i])
            return nd_error_get_status();
        start += shape[axis];
    }
    return nd__record_split(parts, count, x, axis);
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
    nd_tensor **parts = nd__several_begin("split", count);
    return parts ? nd__several_end(parts, count, split(x, count, sizes, axis, parts), ret_parts)
                 : nd_error_get_status();
}

nd_status nd_unstack(const nd_tensor *x, int axis, nd_tensor **ret_parts) {
    ND__ERROR_NAMED("unstack");
    nd_status status = nd__tensor_check_operand("unstack", "x", x);
    if (status != ND_OK)
        return status;
    axis = nd__shape_resolve_axis("unstack", axis, x->ndim);
    if (axis < 0)
        return nd_error_get_status();
    size_t count = (size_t)x->shape[axis];
    if (count > 0 && !ret_parts)
        return nd__error_null("unstack", "ret_parts");
    nd_tensor **parts = nd__several_begin("unstack", count);
    if (!parts)
        return nd_error_get_status();
    status = split(x, count, NULL, axis, parts);
    for (size_t i = 0; i < count && status == ND_OK; i++) {
        nd_tensor *part = nd_squeeze(parts[i], axis);
        status = part ? ND_OK : nd_error_get_status();
        nd_release(parts[i]);
        parts[i] = part;
    }
    return nd__several_end(parts, count, status, ret_parts);
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
