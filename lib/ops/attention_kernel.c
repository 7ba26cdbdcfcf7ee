// See attention_kernel.h. Nothing here is recorded.
#include "lib/ops/attention_kernel.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/shape.h"

static const char *const name = "attention";

enum { OUT, LOG_SUMS, QUERY, KEY, VALUE, MASK, OPERANDS };

/// x, or a copy of it whose last axis lies in one piece.
static nd_tensor *with_dense_rows(const nd_tensor *x) {
    int last = x->ndim - 1;
    bool dense = x->shape[last] == 1 || nd__tensor_strides(x)[last] == 1;
    return dense ? nd_retain(x) : nd_contiguous(x);
}

/// The stride along an axis of the result, counted from the last; 0 where x is the same all along.
static int64_t stride_of(const nd_tensor *x, int from_last) {
    int axis = x->ndim - from_last;
    return axis < 0 || x->shape[axis] == 1 ? 0 : nd__tensor_strides(x)[axis];
}

static void fill_operand(nd_kernel_call *call, int which, const nd_tensor *x) {
    nd_operand *operand = &call->operand[which];
    operand->data = x->data;
    operand->dtype = x->dtype;
    for (int axis = 0; axis < call->ndim; axis++)
        operand->strides[axis] = stride_of(x, call->ndim + 2 - axis);
}

/// `of`: out, log_sums, query, key, value, and the mask or NULL.
static nd_status attend(const nd__attention *a, const nd_tensor *const *of) {
    const nd_tensor *query = of[QUERY], *key = of[KEY], *value = of[VALUE], *mask = of[MASK];
    int ndim = query->ndim;
    int64_t v = value->shape[value->ndim - 1];
    nd_kernel_call call = {.op = ND_OP_attention, .noperands = OPERANDS, .ndim = ndim - 2};
    for (int axis = 0; axis < ndim - 2; axis++)
        call.shape[axis] = query->shape[axis];
    for (int which = 0; which < OPERANDS; which++)
        if (of[which])
            fill_operand(&call, which, of[which]);
    call.attrs = (nd_op_attrs){
        .f = {a->scale},
        .i = {query->shape[ndim - 2], key->shape[key->ndim - 2], query->shape[ndim - 1], v,
              stride_of(query, 2), stride_of(key, 2), stride_of(value, 2), v,
              mask ? stride_of(mask, 2) : 0, mask ? stride_of(mask, 1) : 0, a->causal ? 1 : 0},
    };
    nd__shape_collapse(&call);
    return nd__launch_where_supported(name, query->device, &call);
}

nd_status nd__attention_kernel_forward(const nd__attention *a, nd_tensor **ret_result,
                                       nd_tensor **ret_log_sums) {
    const nd_tensor *q = a->query;
    int64_t shape[ND_MAX_DIMS];
    for (int axis = 0; axis < q->ndim; axis++)
        shape[axis] = q->shape[axis];
    nd_dtype wide = q->dtype == ND_F64 ? ND_F64 : ND_F32;
    nd_auto nd_tensor *query = with_dense_rows(q);
    nd_auto nd_tensor *key = with_dense_rows(a->key);
    nd_auto nd_tensor *value = with_dense_rows(a->value);
    if (!query || !key || !value)
        return nd_error_get_status();
    shape[q->ndim - 1] = value->shape[value->ndim - 1];
    nd_auto nd_tensor *out = nd__tensor_result(name, &q, 1, q->device, q->dtype, q->ndim, shape);
    shape[q->ndim - 1] = 1;
    nd_auto nd_tensor *log_sums =
        out ? nd__tensor_result(name, &q, 1, q->device, wide, q->ndim, shape) : NULL;
    if (!log_sums)
        return nd_error_get_status();
    const nd_tensor *of[OPERANDS] = {out, log_sums, query, key, value, a->mask};
    nd_status status = attend(a, of);
    if (status == ND_OK) {
        *ret_result = nd_steal(&out);
        *ret_log_sums = nd_steal(&log_sums);
    }
    return status;
}
