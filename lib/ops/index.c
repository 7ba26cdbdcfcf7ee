// take, gather, scatter_add, one_hot, masked_select and nonzero.
//
// Indices become dense i64 before a kernel or the tape sees them, and without negatives, except where
// the kernel is one of the host that takes those (AS_GIVEN). What is recorded is
// i[0] = axis, and of scatter_reduce i[1] = its kind.
#include "lib/ops/index.h"
#include "kernels/indices.h"
#include "lib/base/error.h"
#include "lib/device/capture.h"
#include "lib/device/registry.h"
#include "lib/ops/operands.h"
#include "lib/tensor/copy.h"
#include "lib/tensor/create.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/out.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/out.h>
#include <nd/sorting.h>
#include <nd/threads.h>
#include <stdio.h>

/// index < 0 ? index + size : index, on the device. Unrecorded, because it is made of integers.
static nd_tensor *wrap_on_device(const nd_tensor *indices, int64_t size) {
    nd_auto nd_tensor *zero = nd__operands_number_like("index", indices, ND_I64, ND_NUMBER(0));
    nd_auto nd_tensor *negative = zero ? nd_less(indices, zero) : NULL;
    nd_auto nd_tensor *shifted = negative ? nd_add_scalar(indices, size) : NULL;
    return shifted ? nd_where(negative, shifted, indices) : NULL;
}

/// An integer as int64, beyond whose range its end.
static int64_t as_i64(nd_number number) {
    int64_t value;
    return nd__number_is_i64(number, &value) ? value : INT64_MAX;
}

bool nd__index_find_outside(const nd_tensor *indices, int64_t low, int64_t high,
                            const int64_t *spared, nd_stray *ret_stray) {
    if (!nd__registry_backend(indices->device.kind)->host_accessible)
        return false;
    const char *data = indices->data;
    const int64_t bytes = nd__dtype_bytes[indices->dtype];
    for (int64_t i = 0; i < indices->numel; i++) {
        int64_t place[ND_MAX_DIMS], offset = 0, rest = i;
        for (int axis = indices->ndim - 1; axis >= 0; axis--) {
            place[axis] = rest % indices->shape[axis];
            rest /= indices->shape[axis];
            offset += place[axis] * nd__tensor_strides(indices)[axis];
        }
        nd_number number = nd__number_at(indices->dtype, data + offset * bytes);
        int64_t value = as_i64(number);
        if ((value >= low && value <= high) || (spared && value == *spared))
            continue;
        char value_text[ND__NUMBER_TEXT], place_text[ND__SHAPE_TEXT];
        snprintf(ret_stray->text, sizeof ret_stray->text, indices->ndim > 0 ? "%s at %s" : "%s",
                 nd__number_text(value_text, number),
                 nd__shape_text(place_text, indices->ndim, place));
        return true;
    }
    return false;
}

nd_status nd__index_refuse(const char *name, const char *what, const nd_tensor *indices,
                           int64_t low, int64_t high) {
    nd_stray stray;
    const bool found = nd__index_find_outside(indices, low, high, NULL, &stray);
    return nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: %s is outside %lld ... %lld%s%s", name, what,
                     (long long)low, (long long)high, found ? ": " : "", found ? stray.text : "");
}

nd_status nd__index_refuse_place(const char *name, const nd_tensor *indices, int64_t size) {
    if (size > 0)
        return nd__index_refuse(name, "an index", indices, -size, size - 1);
    return nd__error(ND_ERROR_INVALID_ARGUMENT,
                     "%s: there are indices, and the axis has no elements", name);
}

/// What is done about indices before the kernel sees them.
typedef enum index_care {
    RESOLVED, ///< those that count from the end no longer do, and on the host all are in range
    AS_GIVEN, ///< nothing: the kernel takes them from either end, and checks them
} index_care;

/// Owned dense i64 copy (or the tensor itself). Elsewhere than on the host, one out of range is left
/// for the kernel to find.
static nd_tensor *resolve_indices(const char *name, const nd_tensor *indices, int64_t size,
                                  index_care care) {
    ND__ERROR_NAMED(name);
    nd_auto nd_tensor *dense = nd__operands_dense(name, indices, ND_I64);
    if (!dense || care == AS_GIVEN)
        return nd_steal(&dense);
    if (!nd__registry_backend(dense->device.kind)->host_accessible)
        return wrap_on_device(dense, size);
    const int64_t *values = (const int64_t *)dense->data;
    if (size > 0 && nd__indices_are_inside(values, dense->numel, size))
        return nd_steal(&dense);
    int64_t lowest = 0, highest = -1;
    for (int64_t i = 0; i < dense->numel; i++) {
        lowest = values[i] < lowest ? values[i] : lowest;
        highest = values[i] > highest ? values[i] : highest;
    }
    if (lowest < -size || highest >= size) {
        nd__index_refuse_place(name, dense, size);
        return NULL;
    }
    return lowest < 0 ? wrap_on_device(dense, size) : nd_steal(&dense);
}

/// The same for indices that may repeat along axes (expanded): those axes are resolved once, and
/// the result repeats along them too, which kernels use.
static nd_tensor *resolve_expanded(const char *name, const nd_tensor *indices, int64_t size,
                                   index_care care) {
    int64_t shape[ND_MAX_DIMS], strides[ND_MAX_DIMS];
    bool repeats = false;
    for (int i = 0; i < indices->ndim; i++) {
        bool repeated = indices->shape[i] > 1 && nd__tensor_strides(indices)[i] == 0;
        shape[i] = repeated ? 1 : indices->shape[i];
        repeats = repeats || repeated;
    }
    if (!repeats)
        return resolve_indices(name, indices, size, care);
    nd_auto nd_tensor *once = nd__tensor_view(
        indices, indices->ndim, shape, nd__tensor_strides(indices), nd__tensor_offset(indices));
    nd_auto nd_tensor *resolved = once ? resolve_indices(name, once, size, care) : NULL;
    if (!resolved)
        return NULL;
    for (int i = 0; i < indices->ndim; i++)
        strides[i] = shape[i] == indices->shape[i] ? nd__tensor_strides(resolved)[i] : 0;
    return nd__tensor_view(resolved, indices->ndim, indices->shape, strides,
                           nd__tensor_offset(resolved));
}

/// The care for a gather or scatter of x. On the host only their kernel reads the indices, unless it
/// has nothing to write, or writes to `out` of the caller, which an error must leave as it was.
static index_care care_for(const nd_tensor *x, const nd_tensor *out) {
    bool on_host = nd__registry_backend(x->device.kind)->host_accessible;
    return on_host && !out && x->numel > 0 ? AS_GIVEN : RESOLVED;
}

static nd_status check_indices(const char *name, const nd_tensor *indices) {
    if (indices->dtype == ND_I64 || indices->dtype == ND_I32)
        return ND_OK;
    return nd__error(ND_ERROR_DTYPE, "%s: the indices are %s and must be int64 or int32", name,
                     nd_dtype_get_name(indices->dtype));
}

/// For resolved indices that no kernel looks at, since nothing stands where they point. Waits for
/// the device.
static nd_status check_unread(const char *name, const nd_tensor *indices, int64_t size) {
    if (indices->numel == 0 || nd__registry_backend(indices->device.kind)->host_accessible)
        return ND_OK; // resolve_indices() has looked
    nd_auto nd_tensor *low = nd_min(indices, 0, NULL, false);
    nd_auto nd_tensor *high = nd_max(indices, 0, NULL, false);
    int64_t lowest, highest;
    if (!low || !high || nd_get_item_i64(low, &lowest) != ND_OK ||
        nd_get_item_i64(high, &highest) != ND_OK)
        return nd_error_get_status();
    return lowest < 0 || highest >= size ? nd__index_refuse_place(name, indices, size) : ND_OK;
}

/// Runs a call whose indices, inputs[1], may turn out to be out of range.
static nd_tensor *run_indexed(const char *name, nd_tensor *result, const nd_kernel_call *call,
                              const nd_tensor *const *inputs, size_t count,
                              const nd_op_attrs *attrs, int64_t size) {
    nd_status status = result->numel > 0 ? nd__launch(name, result->device, call)
                                         : check_unread(name, inputs[1], size);
    if (status != ND_OK) {
        if (status == ND_ERROR_INVALID_ARGUMENT)
            nd__index_refuse_place(name, inputs[1], size);
        nd_object_release(result);
        return NULL;
    }
    return nd__record(call->op, result, inputs, count, attrs);
}

/// The stride of axes that can be walked as one; false: there is none.
static bool common_stride(const nd_tensor *x, int first, int end, int64_t *ret_stride) {
    int64_t elements = 1;
    *ret_stride = 1;
    for (int i = end - 1; i >= first; i--) {
        if (x->shape[i] == 1)
            continue;
        const int64_t stride = nd__tensor_strides(x)[i];
        if (elements == 1)
            *ret_stride = stride;
        else if (stride != *ret_stride * elements)
            return false;
        elements *= x->shape[i];
    }
    return true;
}

/// Whether rows are taken from x as it lies: it is walked by three strides, and rows whose elements
/// lie apart are few beside what a copy of x would read.
static bool takes_as_it_lies(const nd_tensor *x, int axis, int64_t taken, int64_t inner,
                             int64_t *ret_strides) {
    // That of an axis of one element may be anything.
    ret_strides[1] = x->shape[axis] == 1 ? inner : nd__tensor_strides(x)[axis];
    return common_stride(x, 0, axis, &ret_strides[0]) &&
           common_stride(x, axis + 1, x->ndim, &ret_strides[2]) &&
           (inner == 1 || ret_strides[2] == 1 || taken <= x->shape[axis] / 16);
}

/// `indices` are resolved ones of `given`. To `out`, which is contiguous (NULL: a new tensor).
static nd_tensor *take_resolved(nd_tensor *out, const nd_tensor *x, const nd_tensor *indices,
                                const nd_tensor *given, int axis) {
    int64_t shape[ND_MAX_DIMS], outer = 1, inner = 1;
    int ndim = 0;
    for (int i = 0; i < axis; i++)
        outer *= shape[ndim++] = x->shape[i];
    for (int i = 0; i < indices->ndim; i++)
        shape[ndim++] = indices->shape[i];
    for (int i = axis + 1; i < x->ndim; i++)
        inner *= shape[ndim++] = x->shape[i];
    int64_t lies[3];
    const bool as_it_lies = takes_as_it_lies(x, axis, indices->numel, inner, lies);
    const int64_t dense[] = {x->shape[axis] * inner, inner, 1};
    const int64_t *strides = as_it_lies ? lies : dense;
    nd_auto nd_tensor *read = as_it_lies ? nd_retain(x) : nd__operands_dense("take", x, x->dtype);
    if (!read)
        return NULL;
    const nd_tensor *inputs[] = {x, indices};
    nd_tensor *result = nd__out_result("take", out, ND__OUT_APART, (const nd_tensor *[]){x, given},
                                       2, x->device, x->dtype, ndim, shape);
    if (!result)
        return NULL;
    nd_kernel_call call;
    call.op = ND_OP_take;
    call.noperands = 3;
    call.ndim = 0;
    call.operand[0] = nd__shape_broadcast_operand(result, ndim, shape);
    call.operand[1] = nd__shape_broadcast_operand(read, x->ndim, x->shape);
    call.operand[2] = nd__shape_broadcast_operand(indices, indices->ndim, indices->shape);
    const int64_t attrs[] = {outer,      indices->numel, inner,     x->shape[axis],
                             strides[0], strides[1],     strides[2]};
    for (int i = 0; i < 7; i++)
        call.attrs.i[i] = attrs[i];
    return run_indexed("take", result, &call, inputs, 2, &(nd_op_attrs){.i = {axis}},
                       x->shape[axis]);
}

static nd_tensor *take(nd_tensor *out, const nd_tensor *x, const nd_tensor *indices, int axis) {
    if (nd__operands_check_pair("take", "x", x, "indices", indices) != ND_OK ||
        check_indices("take", indices) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis("take", axis, x->ndim);
    if (axis < 0)
        return NULL;
    if (x->ndim - 1 + indices->ndim > ND_MAX_DIMS) {
        nd__error(ND_ERROR_SHAPE, "take: the result would have %d dimensions; %d are possible",
                  x->ndim - 1 + indices->ndim, ND_MAX_DIMS);
        return NULL;
    }
    nd_auto nd_tensor *resolved = resolve_indices("take", indices, x->shape[axis], RESOLVED);
    return resolved ? take_resolved(out, x, resolved, indices, axis) : NULL;
}

nd_tensor *nd_take(const nd_tensor *x, const nd_tensor *indices, int axis) {
    return take(NULL, x, indices, axis);
}

nd_status nd_take_out(const nd_tensor *x, const nd_tensor *indices, int axis, nd_tensor *out) {
    nd_status status = nd__tensor_check_operand("take", "out", out);
    if (status != ND_OK)
        return status;
    nd_tensor *result = take(nd__out_dense(out), x, indices, axis);
    return nd__out_deliver("take", result, (const nd_tensor *[]){x, indices}, 2, out);
}

/// gather and scatter_add: `walked` has index's shape, `indexed` is what the index points into.
static void fill_indexed(nd_kernel_call *call, nd_op op, const nd_tensor *index, int axis,
                         const nd_tensor *indexed) {
    call->op = op;
    call->noperands = 3;
    call->ndim = index->ndim;
    for (int i = 0; i < index->ndim; i++)
        call->shape[i] = index->shape[i];
    call->attrs.i[0] = axis;
    call->attrs.i[1] = indexed->shape[axis];
}

/// The operand as it lies in memory, however its sizes compare with the iteration space.
static nd_operand plain_operand(const nd_tensor *x) {
    return nd__shape_broadcast_operand(x, x->ndim, x->shape);
}

/// index has x's dimensions, and no more elements along any but the axis.
static nd_status check_index_shape(const char *name, const nd_tensor *x, const nd_tensor *index,
                                   int axis) {
    bool fits = index->ndim == x->ndim;
    for (int i = 0; i < x->ndim && fits; i++)
        fits = i == axis || index->shape[i] <= x->shape[i];
    if (fits)
        return ND_OK;
    char x_text[ND__SHAPE_TEXT], index_text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE,
                     "%s: an index of shape %s does not fit x of shape %s along axis %d", name,
                     nd__shape_text(index_text, index->ndim, index->shape),
                     nd__shape_text(x_text, x->ndim, x->shape), axis);
}

static nd_tensor *gather(nd_tensor *out, const nd_tensor *x, const nd_tensor *index, int axis) {
    if (nd__operands_check_pair("gather", "x", x, "index", index) != ND_OK ||
        check_indices("gather", index) != ND_OK)
        return NULL;
    axis = nd__shape_resolve_axis("gather", axis, x->ndim);
    if (axis < 0 || check_index_shape("gather", x, index, axis) != ND_OK)
        return NULL;
    nd_auto nd_tensor *resolved =
        resolve_expanded("gather", index, x->shape[axis], care_for(x, out));
    if (!resolved)
        return NULL;
    const nd_tensor *inputs[] = {x, resolved};
    nd_tensor *result =
        nd__out_result("gather", out, ND__OUT_APART, (const nd_tensor *[]){x, index}, 2, x->device,
                       x->dtype, index->ndim, index->shape);
    if (!result)
        return NULL;
    nd_kernel_call call;
    fill_indexed(&call, ND_OP_gather, resolved, axis, x);
    call.operand[0] = plain_operand(result);
    call.operand[1] = plain_operand(x);
    call.operand[2] = plain_operand(resolved);
    return run_indexed("gather", result, &call, inputs, 2, &(nd_op_attrs){.i = {axis}},
                       x->shape[axis]);
}

nd_tensor *nd_gather(const nd_tensor *x, const nd_tensor *index, int axis) {
    return gather(NULL, x, index, axis);
}

nd_status nd_gather_out(const nd_tensor *x, const nd_tensor *index, int axis, nd_tensor *out) {
    return ND__OUT_FORM("gather", out, gather(out, x, index, axis));
}

nd_status nd__index_check_scatter(const char *name, const nd_tensor *x, const nd_tensor *index,
                                  const nd_tensor *source) {
    nd_status status = nd__operands_check_pair(name, "x", x, "index", index);
    if (status == ND_OK)
        status = nd__operands_check_pair(name, "x", x, "source", source);
    if (status == ND_OK)
        status = check_indices(name, index);
    if (status != ND_OK)
        return status;
    if (x->dtype != source->dtype || x->dtype == ND_BOOL)
        return nd__error(ND_ERROR_DTYPE,
                         "%s: x is %s and source %s; both must be the same number type", name,
                         nd_dtype_get_name(x->dtype), nd_dtype_get_name(source->dtype));
    char index_text[ND__SHAPE_TEXT], source_text[ND__SHAPE_TEXT];
    if (!nd__operands_same_shape(index, source))
        return nd__error(ND_ERROR_SHAPE, "%s: index has shape %s and source %s", name,
                         nd__shape_text(index_text, index->ndim, index->shape),
                         nd__shape_text(source_text, source->ndim, source->shape));
    return ND_OK;
}

/// Joins source into `result` (consumed), which holds x already, at indices that are resolved;
/// recorded as what became of x.
static nd_tensor *scatter_into(const char *name, nd_op op, nd_scatter_kind kind, nd_tensor *result,
                               const nd_tensor *x, const nd_tensor *resolved,
                               const nd_tensor *source, int axis) {
    const nd_tensor *inputs[] = {x, resolved, source};
    nd_op_attrs attrs = {.i = {axis, kind}};
    if (resolved->numel == 0)
        return nd__record(op, result, inputs, 3, &attrs);
    nd_kernel_call call;
    fill_indexed(&call, op, resolved, axis, result);
    call.operand[0] = plain_operand(result);
    call.operand[1] = plain_operand(resolved);
    call.operand[2] = plain_operand(source);
    call.attrs.i[2] = nd_is_deterministic();
    call.attrs.i[3] = kind;
    return run_indexed(name, result, &call, inputs, 3, &attrs, result->shape[axis]);
}

nd_tensor *nd__index_scatter(const char *name, nd_op op, nd_scatter_kind kind, const nd_tensor *x,
                             const nd_tensor *index, const nd_tensor *source, int axis) {
    axis = nd__shape_resolve_axis(name, axis, x->ndim);
    if (axis < 0 || check_index_shape(name, x, index, axis) != ND_OK)
        return NULL;
    nd_auto nd_tensor *resolved = resolve_expanded(name, index, x->shape[axis], care_for(x, NULL));
    if (!resolved)
        return NULL;
    const nd_tensor *inputs[] = {x, resolved, source};
    nd_auto nd_tensor *result =
        nd__tensor_result(name, inputs, 3, x->device, x->dtype, x->ndim, x->shape);
    if (!result || nd__copy_into(name, result, x) != ND_OK)
        return NULL;
    return scatter_into(name, op, kind, nd_steal(&result), x, resolved, source, axis);
}

nd_tensor *nd__index_scatter_zeros(const nd_tensor *source, const nd_tensor *index, int axis,
                                   int ndim, const int64_t *shape) {
    const char *name = "scatter_add";
    if (!source || !index)
        return NULL;
    bool half = nd__dtype_is_half(source->dtype); // rounded once, however many are added
    nd_auto nd_tensor *added = nd__operands_as_dtype(source, half ? ND_F32 : source->dtype);
    const nd_tensor *inputs[] = {index, added};
    nd_auto nd_tensor *zeros =
        added ? nd__create_filled(
                    name,
                    nd__tensor_result(name, inputs, 2, added->device, added->dtype, ndim, shape),
                    ND_NUMBER(0))
              : NULL;
    nd_auto nd_tensor *resolved =
        zeros ? resolve_expanded(name, index, shape[axis], care_for(zeros, NULL)) : NULL;
    if (!resolved)
        return NULL;
    // What the zeros were is of no interest to anybody: they are written where they are.
    nd_tensor *alone = nd_steal(&zeros);
    nd_auto nd_tensor *sum =
        scatter_into(name, ND_OP_scatter_add, 0, alone, alone, resolved, added, axis);
    return sum && half ? nd_cast(sum, source->dtype) : nd_steal(&sum);
}

nd_status nd__index_scatter_add_to(nd_tensor *sums, const nd_tensor *source, const nd_tensor *index,
                                   int axis) {
    const char *name = "scatter_add";
    if (!sums || !source || !index)
        return nd_error_get_status();
    nd_auto nd_tensor *resolved =
        resolve_expanded(name, index, sums->shape[axis], care_for(sums, NULL));
    nd_auto nd_tensor *sum = resolved ? scatter_into(name, ND_OP_scatter_add, 0, nd_retain(sums),
                                                     sums, resolved, source, axis)
                                      : NULL;
    return sum ? ND_OK : nd_error_get_status();
}

nd_tensor *nd_scatter_add(const nd_tensor *x, const nd_tensor *index, const nd_tensor *source,
                          int axis) {
    ND__ERROR_NAMED("scatter_add");
    const char *name = "scatter_add";
    if (nd__index_check_scatter(name, x, index, source) != ND_OK)
        return NULL;
    if (!nd__dtype_is_half(x->dtype))
        return nd__index_scatter(name, ND_OP_scatter_add, 0, x, index, source, axis);
    // In f32: rounded once, however many are added.
    nd_auto nd_tensor *wide = nd_cast(x, ND_F32);
    nd_auto nd_tensor *added = wide ? nd_cast(source, ND_F32) : NULL;
    nd_auto nd_tensor *sum =
        added ? nd__index_scatter(name, ND_OP_scatter_add, 0, wide, index, added, axis) : NULL;
    return sum ? nd_cast(sum, x->dtype) : NULL;
}

nd_tensor *nd_one_hot(const nd_tensor *indices, int64_t classes, nd_dtype dtype) {
    ND__ERROR_NAMED("one_hot");
    if (nd__tensor_check_operand("one_hot", "indices", indices) != ND_OK ||
        check_indices("one_hot", indices) != ND_OK)
        return NULL;
    if (classes < 1 || indices->ndim == ND_MAX_DIMS) {
        nd__error(
            ND_ERROR_INVALID_ARGUMENT,
            "one_hot: %lld classes for indices of %d dimensions; at least 1 class and at most "
            "%d dimensions are possible",
            (long long)classes, indices->ndim, ND_MAX_DIMS - 1);
        return NULL;
    }
    nd_auto nd_tensor *dense = nd__operands_dense("one_hot", indices, ND_I64);
    if (!dense)
        return NULL;
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < indices->ndim; i++)
        shape[i] = indices->shape[i];
    shape[indices->ndim] = classes;
    nd_auto nd_tensor *result =
        nd__tensor_result("one_hot", &indices, 1, indices->device, dtype, indices->ndim + 1, shape);
    if (!result || result->numel == 0)
        return nd_steal(&result);
    nd_kernel_call call;
    call.op = ND_OP_one_hot;
    call.noperands = 2;
    call.ndim = 0;
    call.operand[0] = plain_operand(result);
    call.operand[1] = plain_operand(dense);
    call.attrs.i[0] = dense->numel;
    call.attrs.i[1] = classes;
    nd_status status = nd__launch("one_hot", indices->device, &call);
    if (status == ND_ERROR_INVALID_ARGUMENT)
        nd__index_refuse("one_hot", "an index", dense, 0, classes - 1);
    return status == ND_OK ? nd_steal(&result) : NULL;
}

/// Number of true elements; -1 with an error.
static int64_t count_true(const nd_tensor *mask) {
    nd_auto nd_tensor *sum = nd_sum(mask, 0, NULL, false);
    int64_t count;
    return sum && nd_get_item_i64(sum, &count) == ND_OK ? count : -1;
}

nd_tensor *nd_masked_select(const nd_tensor *x, const nd_tensor *mask) {
    ND__ERROR_NAMED("masked_select");
    if (nd__operands_check_pair("masked_select", "x", x, "mask", mask) != ND_OK)
        return NULL;
    char x_text[ND__SHAPE_TEXT], mask_text[ND__SHAPE_TEXT];
    if (mask->dtype != ND_BOOL || !nd__operands_same_shape(x, mask)) {
        nd__error(mask->dtype != ND_BOOL ? ND_ERROR_DTYPE : ND_ERROR_SHAPE,
                  "masked_select: the mask is %s of shape %s and must be bool of x's shape %s",
                  nd_dtype_get_name(mask->dtype),
                  nd__shape_text(mask_text, mask->ndim, mask->shape),
                  nd__shape_text(x_text, x->ndim, x->shape));
        return NULL;
    }
    if (nd__capture_check_size("masked_select", mask->device) != ND_OK)
        return NULL;
    int64_t count = count_true(mask);
    nd_auto nd_tensor *dense = count >= 0 ? nd__operands_dense("masked_select", x, x->dtype) : NULL;
    nd_auto nd_tensor *chosen = dense ? nd__operands_dense("masked_select", mask, ND_BOOL) : NULL;
    if (!chosen)
        return NULL;
    const nd_tensor *inputs[] = {x, chosen};
    nd_tensor *result =
        nd__tensor_result("masked_select", inputs, 2, x->device, x->dtype, 1, &count);
    if (!result || count == 0)
        return nd__record(ND_OP_masked_select, result, inputs, 2, NULL);
    nd_kernel_call call;
    call.op = ND_OP_masked_select;
    call.noperands = 3;
    call.ndim = 0;
    call.operand[0] = plain_operand(result);
    call.operand[1] = plain_operand(dense);
    call.operand[2] = plain_operand(chosen);
    call.attrs.i[0] = x->numel;
    call.attrs.i[1] = count;
    return nd__operands_run("masked_select", result, &call, inputs, 2, NULL);
}

nd_tensor *nd_nonzero(const nd_tensor *x) {
    ND__ERROR_NAMED("nonzero");
    static const char name[] = "nonzero";
    if (nd__tensor_check_operand(name, "x", x) != ND_OK ||
        nd__capture_check_size(name, x->device) != ND_OK)
        return NULL;
    bool is_mask = x->dtype == ND_BOOL;
    nd_auto nd_tensor *zero =
        is_mask ? NULL : nd__operands_number_like(name, x, x->dtype, ND_NUMBER(0));
    nd_auto nd_tensor *mask = is_mask ? nd__operands_dense(name, x, ND_BOOL)
                              : zero  ? nd_not_equal(x, zero)
                                      : NULL;
    int64_t count = mask ? count_true(mask) : -1;
    if (count < 0)
        return NULL;
    nd_tensor *result =
        nd__tensor_result(name, &x, 1, x->device, ND_I64, 2, (const int64_t[]){count, x->ndim});
    if (!result || result->numel == 0)
        return result;
    nd_kernel_call call;
    call.op = ND_OP_nonzero;
    call.noperands = 2;
    call.ndim = 0;
    call.operand[0] = plain_operand(result);
    call.operand[1] = plain_operand(mask);
    call.attrs.i[0] = mask->numel;
    call.attrs.i[1] = count;
    call.attrs.i[2] = x->ndim;
    nd__shape_copy(call.attrs.i + 3, x->shape, x->ndim);
    return nd__operands_run(name, result, &call, &x, 1, NULL);
}
