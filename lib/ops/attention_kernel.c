// See attention_kernel.h. Nothing here is recorded.
#include "lib/ops/attention_kernel.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/shape.h"

static const char *const name = "attention";

enum { OUT, LOG_SUMS, QUERY, KEY, VALUE, MASK, OPERANDS };
/// Of the gradient's kernel.
enum {
    OF_QUERY,
    OF_KEY,
    OF_VALUE,
    AT_QUERY,
    AT_KEY,
    AT_VALUE,
    AT_MASK,
    GRAD,
    RESULT,
    AT_LOG_SUMS,
    GRAD_OPERANDS
};

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

/// The operands `of` that there are, and the sizes and strides that both kernels are told of. `first` is
/// the query's place, whose key, value and mask (or NULL) follow. i[7] is the caller's.
static void fill_call(nd_kernel_call *call, const nd__attention *a, const nd_tensor *const *of,
                      int first) {
    const nd_tensor *query = of[first], *key = of[first + 1], *value = of[first + 2];
    const nd_tensor *mask = of[first + 3];
    call->ndim = query->ndim - 2;
    for (int axis = 0; axis < call->ndim; axis++)
        call->shape[axis] = query->shape[axis];
    for (int which = 0; which < call->noperands; which++)
        if (of[which])
            fill_operand(call, which, of[which]);
    call->attrs = (nd_op_attrs){
        .f = {a->scale},
        .i = {query->shape[call->ndim], key->shape[key->ndim - 2], query->shape[call->ndim + 1],
              value->shape[value->ndim - 1], stride_of(query, 2), stride_of(key, 2),
              stride_of(value, 2), 0, mask ? stride_of(mask, 2) : 0, mask ? stride_of(mask, 1) : 0,
              a->causal ? 1 : 0},
    };
}

/// `of`: out, log_sums, query, key, value, and the mask or NULL.
static nd_status attend(const nd__attention *a, const nd_tensor *const *of) {
    nd_kernel_call call = {.op = ND_OP_attention, .noperands = OPERANDS};
    fill_call(&call, a, of, QUERY);
    call.attrs.i[7] = call.attrs.i[3];
    nd__shape_collapse(&call);
    return nd__launch_where_supported(name, of[QUERY]->device, &call);
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

// -------------------------------------------------------------------------------------------------
// backward

/// Memory for the gradient of x, row behind row.
static nd_tensor *room_for(const nd_tensor *x) {
    return nd__tensor_result(name, &x, 1, x->device, x->dtype, x->ndim, x->shape);
}

/// The gradients of key and value come together.
static nd_status make_room(const nd__attention *a, const bool *wanted, nd_tensor **ret_grads) {
    bool both = wanted[1] || wanted[2];
    if (wanted[0] && !(ret_grads[0] = room_for(a->query)))
        return nd_error_get_status();
    if (both && !(ret_grads[1] = room_for(a->key)))
        return nd_error_get_status();
    if (both && !(ret_grads[2] = room_for(a->value)))
        return nd_error_get_status();
    return ND_OK;
}

/// `of`: the three gradients or NULL, then what they are made of.
static nd_status find_gradients(const nd__attention *a, const nd_tensor *const *of) {
    nd_kernel_call call = {.op = ND_OP_attention_grad, .noperands = GRAD_OPERANDS};
    fill_call(&call, a, of, AT_QUERY);
    call.attrs.i[7] = stride_of(of[GRAD], 2);
    call.attrs.i[11] = stride_of(of[RESULT], 2);
    nd__shape_collapse(&call);
    return nd__launch_where_supported(name, of[AT_QUERY]->device, &call);
}

nd_status nd__attention_kernel_backward(const nd__attention *a, const nd_tensor *grad,
                                        const nd_tensor *result, const nd_tensor *log_sums,
                                        const bool *wanted, nd_tensor **ret_grads) {
    if (a->dropout != 0.0 || wanted[3])
        return ND_ERROR_UNSUPPORTED;
    nd_auto nd_tensor *query = with_dense_rows(a->query);
    nd_auto nd_tensor *key = with_dense_rows(a->key);
    nd_auto nd_tensor *value = with_dense_rows(a->value);
    nd_auto nd_tensor *grad_rows = with_dense_rows(grad);
    nd_auto nd_tensor *result_rows = with_dense_rows(result);
    nd_auto nd_tensor *sums = nd_contiguous(log_sums);
    if (!query || !key || !value || !grad_rows || !result_rows || !sums)
        return nd_error_get_status();
    nd_tensor *grads[3] = {0};
    nd_status status = make_room(a, wanted, grads);
    const nd_tensor *of[GRAD_OPERANDS] = {grads[0], grads[1], grads[2],  query,       key,
                                          value,    a->mask,  grad_rows, result_rows, sums};
    if (status == ND_OK)
        status = find_gradients(a, of);
    for (int i = 0; i < 3; i++) {
        if (status == ND_OK && wanted[i])
            ret_grads[i] = grads[i];
        else
            nd_release(grads[i]);
    }
    return status;
}
