// Views: other windows onto the same storage, recorded so that gradients pass through them.
//
// Every view function here checks, computes a window, and ends in `recorded`. What is a view by
// nature never copies; reshape copies where strides leave no other way, and says so in its node
// exactly as if it had not.
#include "lib/base/error.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/node.h"
#include "lib/tensor/rebase.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include "lib/tensor/tensor.h"

/// The view x[window], with history when x has some. Consumes nothing; attrs may be NULL.
static nd_tensor *recorded(nd_op op, const nd_tensor *x, int ndim, const int64_t *shape,
                           const int64_t *strides, int64_t offset, const nd_op_attrs *attrs) {
    nd_tensor *view = nd__rebase_view(x, ndim, shape, strides, offset);
    return view ? nd__rebase_record(op, view, x, attrs) : NULL;
}

// ------------------------------------------------------------------------------------------------
// reshape and its kin

/// Strides that walk x's elements in row-major order under another shape of as many elements; false
/// when there are none. Sizes of one are free; the others are matched in groups of equal products.
static bool reshaped_strides(const nd_tensor *x, int ndim, const int64_t *shape,
                             int64_t *ret_strides) {
    if (nd__tensor_is_contiguous(x)) {
        nd__tensor_contiguous_strides(ndim, shape, ret_strides);
        return true;
    }
    int at = x->ndim - 1; // x's axes not yet used, from the end
    int64_t stride = 1, left = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        if (shape[i] == 1) {
            ret_strides[i] = stride;
            continue;
        }
        if (left == 1) {
            // A new group: as many of x's axes as continue each other.
            while (at >= 0 && x->shape[at] == 1)
                at--;
            stride = nd__tensor_strides(x)[at];
            left = x->shape[at--];
            for (; at >= 0 && (x->shape[at] == 1 || nd__tensor_strides(x)[at] == stride * left);
                 at--)
                left *= x->shape[at];
        }
        if (left % shape[i] != 0)
            return false;
        ret_strides[i] = stride;
        stride *= shape[i];
        left /= shape[i];
    }
    return true;
}

/// x with another shape of as many elements, already checked.
static nd_tensor *reshaped(const char *operation, const nd_tensor *x, int ndim,
                           const int64_t *shape) {
    int64_t strides[ND_MAX_DIMS];
    if (reshaped_strides(x, ndim, shape, strides))
        return recorded(ND_OP_reshape, x, ndim, shape, strides, nd__tensor_offset(x), NULL);
    nd_tensor *copy = nd__tensor_result(operation, &x, 1, x->device, x->dtype, ndim, shape);
    if (!copy)
        return NULL;
    // The copy is written in x's shape.
    nd_tensor *window = NULL;
    nd__tensor_contiguous_strides(x->ndim, x->shape, strides);
    window = nd__tensor_view(copy, x->ndim, x->shape, strides, 0);
    bool written = window && nd__copy_into(operation, window, x) == ND_OK;
    nd_object_release(window);
    if (!written) {
        nd_object_release(copy);
        return NULL;
    }
    return nd__record(ND_OP_reshape, copy, &x, 1, NULL);
}

/// Apart, because the text's buffer would cost every shape that is fine.
__attribute__((cold, noinline)) static nd_tensor *
refuse_negative_size(int ndim, const int64_t *shape, bool is_unknown) {
    char text[ND__SHAPE_TEXT];
    nd__error(ND_ERROR_SHAPE,
              is_unknown ? "reshape: shape %s leaves more than one size, -1, to be found"
                         : "reshape: shape %s has a negative size",
              nd__shape_text(text, ndim, shape));
    return NULL;
}

nd_tensor *nd_reshape(const nd_tensor *x, int ndim, const int64_t *shape) {
    if (nd__tensor_check_operand("reshape", "x", x) != ND_OK)
        return NULL;
    int64_t resolved[ND_MAX_DIMS];
    int unknown = -1;
    if (ndim >= 0 && ndim <= ND_MAX_DIMS && shape) {
        nd__shape_copy(resolved, shape, ndim);
        for (int i = 0; i < ndim; i++) {
            if (shape[i] >= 0)
                continue;
            if (shape[i] != -1 || unknown >= 0)
                return refuse_negative_size(ndim, shape, shape[i] == -1);
            unknown = i;
        }
        if (unknown >= 0)
            resolved[unknown] = 1;
        shape = resolved;
    }
    int64_t numel;
    if (nd__shape_check("reshape", ndim, shape, x->dtype, &numel) != ND_OK)
        return NULL;
    if (unknown >= 0) {
        resolved[unknown] = numel > 0 ? x->numel / numel : -1;
        numel *= resolved[unknown];
    }
    if (numel != x->numel || (unknown >= 0 && resolved[unknown] < 0)) {
        char from[ND__SHAPE_TEXT], to[ND__SHAPE_TEXT];
        if (unknown >= 0)
            resolved[unknown] = -1;
        nd__error(ND_ERROR_SHAPE, "reshape: shape %s with %lld elements does not become %s",
                  nd__shape_text(from, x->ndim, x->shape), (long long)x->numel,
                  nd__shape_text(to, ndim, shape));
        return NULL;
    }
    return reshaped("reshape", x, ndim, shape);
}

nd_tensor *nd_flatten(const nd_tensor *x, int start_axis) {
    if (nd__tensor_check_operand("flatten", "x", x) != ND_OK)
        return NULL;
    int start = x->ndim == 0 && (start_axis == 0 || start_axis == -1)
                    ? 0
                    : nd__shape_resolve_axis("flatten", start_axis, x->ndim);
    if (start < 0)
        return NULL;
    int64_t shape[ND_MAX_DIMS], size = 1;
    for (int i = 0; i < x->ndim; i++) {
        if (i < start)
            shape[i] = x->shape[i];
        else
            size *= x->shape[i];
    }
    shape[start] = size;
    return reshaped("flatten", x, start + 1, shape);
}

/// x[offset ...] without its axis `axis`: of size one, or index 0 is meant.
static nd_tensor *without_axis(const nd_tensor *x, int axis, int64_t offset) {
    int64_t shape[ND_MAX_DIMS], strides[ND_MAX_DIMS];
    for (int i = 0, k = 0; i < x->ndim; i++) {
        if (i != axis) {
            shape[k] = x->shape[i];
            strides[k++] = nd__tensor_strides(x)[i];
        }
    }
    return recorded(ND_OP_reshape, x, x->ndim - 1, shape, strides, offset, NULL);
}

nd_tensor *nd_squeeze(const nd_tensor *x, int axis) {
    if (nd__tensor_check_operand("squeeze", "x", x) != ND_OK)
        return NULL;
    int resolved = nd__shape_resolve_axis("squeeze", axis, x->ndim);
    if (resolved < 0)
        return NULL;
    if (x->shape[resolved] != 1) {
        char text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "squeeze: axis %d of shape %s has size %lld, not 1", axis,
                  nd__shape_text(text, x->ndim, x->shape), (long long)x->shape[resolved]);
        return NULL;
    }
    return without_axis(x, resolved, nd__tensor_offset(x));
}

nd_tensor *nd_unsqueeze(const nd_tensor *x, int axis) {
    if (nd__tensor_check_operand("unsqueeze", "x", x) != ND_OK)
        return NULL;
    if (x->ndim == ND_MAX_DIMS) {
        nd__error(ND_ERROR_SHAPE, "unsqueeze: x already has %d dimensions", ND_MAX_DIMS);
        return NULL;
    }
    int resolved = nd__shape_resolve_axis("unsqueeze", axis, x->ndim + 1);
    if (resolved < 0)
        return NULL;
    int64_t shape[ND_MAX_DIMS], strides[ND_MAX_DIMS];
    for (int i = 0, k = 0; i <= x->ndim; i++) {
        bool added = i == resolved;
        shape[i] = added ? 1 : x->shape[k];
        strides[i] = added ? (k < x->ndim ? x->shape[k] * nd__tensor_strides(x)[k] : 1)
                           : nd__tensor_strides(x)[k];
        k += added ? 0 : 1;
    }
    return recorded(ND_OP_reshape, x, x->ndim + 1, shape, strides, nd__tensor_offset(x), NULL);
}

// ------------------------------------------------------------------------------------------------
// axes and sizes

nd_tensor *nd_permute(const nd_tensor *x, int naxes, const int *axes) {
    if (nd__tensor_check_operand("permute", "x", x) != ND_OK)
        return NULL;
    if (naxes != x->ndim) {
        nd__error(ND_ERROR_SHAPE, "permute: %d axes given for %d dimensions", naxes, x->ndim);
        return NULL;
    }
    if (naxes > 0 && !axes) {
        nd__error_null("permute", "axes");
        return NULL;
    }
    int64_t shape[ND_MAX_DIMS], strides[ND_MAX_DIMS];
    nd_op_attrs attrs;
    nd__record_clear_attrs(&attrs);
    unsigned seen = 0;
    for (int i = 0; i < naxes; i++) {
        int axis = nd__shape_resolve_axis("permute", axes[i], x->ndim);
        if (axis < 0)
            return NULL;
        if (seen & (1u << axis)) {
            nd__error(ND_ERROR_INVALID_ARGUMENT, "permute: axis %d is given twice", axes[i]);
            return NULL;
        }
        seen |= 1u << axis;
        shape[i] = x->shape[axis];
        strides[i] = nd__tensor_strides(x)[axis];
        attrs.i[i] = axis;
    }
    return recorded(ND_OP_permute, x, naxes, shape, strides, nd__tensor_offset(x), &attrs);
}

nd_tensor *nd_transpose(const nd_tensor *x, int axis0, int axis1) {
    if (nd__tensor_check_operand("transpose", "x", x) != ND_OK)
        return NULL;
    int first = nd__shape_resolve_axis("transpose", axis0, x->ndim);
    int second = first < 0 ? -1 : nd__shape_resolve_axis("transpose", axis1, x->ndim);
    if (second < 0)
        return NULL;
    int axes[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++)
        axes[i] = i;
    axes[first] = second;
    axes[second] = first;
    return nd_permute(x, x->ndim, axes);
}

/// Says what is wrong with the shape itself, a -1 in which keeps a size, and only otherwise that x does
/// not expand to it.
static nd_tensor *refuse_expansion(const nd_tensor *x, int ndim, const int64_t *shape) {
    int64_t kept[ND_MAX_DIMS], numel;
    const bool readable = shape && ndim >= 0 && ndim <= ND_MAX_DIMS;
    const int missing = readable ? ndim - x->ndim : 0;
    for (int i = 0; readable && i < ndim; i++)
        kept[i] = shape[i] == -1 && i >= missing ? x->shape[i - missing] : shape[i];
    if (nd__shape_check("expand", ndim, readable ? kept : shape, x->dtype, &numel) == ND_OK) {
        char from[ND__SHAPE_TEXT], to[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE, "expand: shape %s does not expand to %s",
                  nd__shape_text(from, x->ndim, x->shape), nd__shape_text(to, ndim, shape));
    }
    return NULL;
}

nd_tensor *nd_expand(const nd_tensor *x, int ndim, const int64_t *shape) {
    if (nd__tensor_check_operand("expand", "x", x) != ND_OK)
        return NULL;
    int64_t target[ND_MAX_DIMS], strides[ND_MAX_DIMS], numel;
    bool fits = ndim >= x->ndim && ndim <= ND_MAX_DIMS && (shape || ndim == 0);
    int missing = fits ? ndim - x->ndim : 0;
    for (int i = 0; fits && i < ndim; i++) {
        int64_t size = i < missing ? 1 : x->shape[i - missing];
        target[i] = shape[i] == -1 && i >= missing ? size : shape[i];
        fits = target[i] == size || (size == 1 && target[i] >= 0);
        strides[i] =
            i < missing || (size == 1 && target[i] != 1) ? 0 : nd__tensor_strides(x)[i - missing];
    }
    if (!fits)
        return refuse_expansion(x, ndim, shape);
    if (nd__shape_check("expand", ndim, target, x->dtype, &numel) != ND_OK)
        return NULL;
    return recorded(ND_OP_expand, x, ndim, target, strides, nd__tensor_offset(x), NULL);
}

// ------------------------------------------------------------------------------------------------
// parts

static int64_t clamp(int64_t index, int64_t size) {
    if (index < 0)
        index = index < -size ? 0 : index + size;
    return index > size ? size : index;
}

/// Range of one axis, resolved.
typedef struct range {
    int axis;
    int64_t start, stop, step, count;
} range;

/// Consumes the view; returns it, or NULL with an error. What it is told fits registers: a slice
/// that is not recorded writes none of it to memory.
__attribute__((noinline)) static nd_tensor *record_slice(nd_tensor *view, const nd_tensor *x,
                                                         int axis, int64_t start, int64_t stop,
                                                         int64_t step) {
    nd_op_attrs attrs;
    nd__record_clear_attrs(&attrs);
    const int64_t given[] = {axis, start, stop, step};
    nd__shape_copy(attrs.i, given, 4);
    return nd__rebase_record(ND_OP_slice, view, x, &attrs);
}

static inline __attribute__((always_inline)) nd_tensor *sliced(const nd_tensor *x, range along) {
    const int64_t stride = nd__tensor_strides(x)[along.axis];
    // An empty slice points to where x does, not behind its end; a huge step must not overflow.
    nd_tensor *view =
        nd__rebase_view_along(x, along.axis, along.count > 0 ? along.start * stride : 0,
                              along.count, along.count > 1 ? along.step * stride : stride);
    return view && nd__tensor_requires_grad(x)
               ? record_slice(view, x, along.axis, along.start, along.stop, along.step)
               : view;
}

/// The elements of a range with a negative step, copied: strides are never negative. The range from
/// its smallest index up is read, and written from the end of the result.
__attribute__((noinline)) static nd_tensor *reversed(const nd_tensor *x, range along) {
    int64_t shape[ND_MAX_DIMS], strides[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        shape[i] = x->shape[i];
        strides[i] = nd__tensor_strides(x)[i];
    }
    shape[along.axis] = along.count;
    nd_auto nd_tensor *result =
        nd__tensor_result("slice", &x, 1, x->device, x->dtype, x->ndim, shape);
    if (!result)
        return NULL;
    if (result->numel > 0) {
        int64_t last = along.start + (along.count - 1) * along.step;
        int64_t offset = nd__tensor_offset(x) + last * strides[along.axis];
        strides[along.axis] *= along.count > 1 ? -along.step : 1;
        nd_auto nd_tensor *ascending = nd__tensor_view(x, x->ndim, shape, strides, offset);
        nd_operand destination = nd__shape_broadcast_operand(result, x->ndim, shape);
        int64_t stride = destination.strides[along.axis];
        destination.data =
            (char *)destination.data + (along.count - 1) * stride * nd__dtype_bytes[x->dtype];
        destination.strides[along.axis] = -stride;
        if (!ascending || nd__copy_to_operand("slice", &destination, ascending) != ND_OK)
            return NULL;
    }
    nd_op_attrs attrs = {.i = {along.axis, along.start, along.stop, along.step}};
    return nd__record(ND_OP_slice, nd_steal(&result), &x, 1, &attrs);
}

/// The same for a step below 0: both ends may be -1, before the first element.
static int64_t clamp_backwards(int64_t index, int64_t size) {
    if (index < 0)
        return index < -size ? -1 : index + size;
    return index >= size ? size - 1 : index;
}

nd_tensor *nd_slice(const nd_tensor *x, int64_t start, int64_t stop, int64_t step, int axis) {
    if (nd__tensor_check_operand("slice", "x", x) != ND_OK)
        return NULL;
    range along = {.axis = nd__shape_resolve_axis("slice", axis, x->ndim), .step = step};
    if (along.axis < 0)
        return NULL;
    if (step == 0) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "slice: the step is 0");
        return NULL;
    }
    int64_t size = x->shape[along.axis];
    along.start = step > 0 ? clamp(start, size) : clamp_backwards(start, size);
    along.stop = step > 0 ? clamp(stop, size) : clamp_backwards(stop, size);
    if (step > 0 ? along.stop < along.start : along.stop > along.start)
        along.stop = along.start;
    uint64_t span = (uint64_t)(step > 0 ? along.stop - along.start : along.start - along.stop);
    uint64_t stride = step > 0 ? (uint64_t)step : -(uint64_t)step;
    // A division takes as long as ten other instructions.
    along.count = (int64_t)(stride == 1 ? span : span / stride + (span % stride != 0));
    return step > 0 ? sliced(x, along) : reversed(x, along);
}

nd_tensor *nd_select(const nd_tensor *x, int64_t index, int axis) {
    if (nd__tensor_check_operand("select", "x", x) != ND_OK)
        return NULL;
    int resolved = nd__shape_resolve_axis("select", axis, x->ndim);
    if (resolved < 0)
        return NULL;
    int64_t size = x->shape[resolved];
    if (index < -size || index >= size) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "select: index %lld is out of range for axis %d of size %lld", (long long)index,
                  axis, (long long)size);
        return NULL;
    }
    int64_t at = index < 0 ? index + size : index;
    if (!nd__record_wants_history(&x, 1))
        return without_axis(x, resolved,
                            nd__tensor_offset(x) + at * nd__tensor_strides(x)[resolved]);
    nd_tensor *part = sliced(x, (range){resolved, at, at + 1, 1, 1});
    if (!part)
        return NULL;
    nd_tensor *view = without_axis(part, resolved, nd__tensor_offset(part));
    nd_object_release(part);
    return view;
}

/// False when a window of at least one element reaches outside `available` elements.
static bool window_fits(int ndim, const int64_t *shape, const int64_t *strides, int64_t offset,
                        int64_t available) {
    int64_t last = offset;
    for (int i = 0; i < ndim; i++) {
        int64_t reach;
        if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return false;
    }
    return last < available;
}

nd_tensor *nd_as_strided(const nd_tensor *x, int ndim, const int64_t *shape, const int64_t *strides,
                         int64_t offset) {
    if (nd__tensor_check_operand("as_strided", "x", x) != ND_OK)
        return NULL;
    int64_t numel;
    if (nd__shape_check("as_strided", ndim, shape, x->dtype, &numel) != ND_OK)
        return NULL;
    if (ndim > 0 && !strides) {
        nd__error_null("as_strided", "strides");
        return NULL;
    }
    bool negative = offset < 0;
    for (int i = 0; i < ndim; i++)
        negative |= strides[i] < 0;
    if (negative) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "as_strided: strides and offset must not be negative");
        return NULL;
    }
    int64_t available = (int64_t)(nd__tensor_storage_bytes(x) / nd__dtype_bytes[x->dtype]);
    int64_t row_major[ND_MAX_DIMS];
    bool fits;
    if (numel == 0) { // no element, no stride: large ones must not overflow later
        fits = offset <= available;
        nd__tensor_contiguous_strides(ndim, shape, row_major);
    } else {
        fits = window_fits(ndim, shape, strides, offset, available);
    }
    if (!fits) {
        char text[ND__SHAPE_TEXT], stride_text[ND__SHAPE_TEXT];
        nd__error(ND_ERROR_SHAPE,
                  "as_strided: shape %s with strides %s at offset %lld leaves the storage of %lld "
                  "elements",
                  nd__shape_text(text, ndim, shape), nd__shape_text(stride_text, ndim, strides),
                  (long long)offset, (long long)available);
        return NULL;
    }
    return recorded(ND_OP_as_strided, x, ndim, shape, numel == 0 ? row_major : strides, offset,
                    NULL);
}

nd_tensor *nd_detach(const nd_tensor *x) {
    if (nd__tensor_check_operand("detach", "x", x) != ND_OK)
        return NULL;
    return nd__tensor_view(x, x->ndim, x->shape, nd__tensor_strides(x), nd__tensor_offset(x));
}
