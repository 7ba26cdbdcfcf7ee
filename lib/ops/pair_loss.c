// Losses of pairs in one kernel (LOSS in kernels/kernel.h), which keeps no difference and no loss of a
// pair that only their sum needs.
#include "lib/ops/pair_loss.h"
#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/launch.h"

bool nd__pair_loss_fits(const nd_tensor *a, const nd_tensor *b) {
    return a->dtype == b->dtype && (a->dtype == ND_F32 || a->dtype == ND_F64) && a->numel > 0 &&
           nd__operands_same_shape(a, b);
}

static nd_operand dense_operand(const nd_tensor *x, nd_dtype dtype) {
    return (nd_operand){.data = x ? x->data : NULL, .dtype = dtype};
}

nd_tensor *nd__pair_loss(const char *name, nd_pair_loss loss, const nd_tensor *a,
                         const nd_tensor *b, double p, double factor, bool sums) {
    nd_auto nd_tensor *dense_a = nd_contiguous(a);
    nd_auto nd_tensor *dense_b = nd_contiguous(b);
    if (!dense_a || !dense_b)
        return NULL;
    const nd_tensor *inputs[] = {dense_a, dense_b};
    nd_tensor *result =
        nd__tensor_result(name, inputs, 2, a->device, a->dtype, sums ? 0 : a->ndim, a->shape);
    if (!result)
        return NULL;
    nd_kernel_call call;
    call.op = ND_OP_pair_loss;
    call.noperands = 3;
    call.ndim = 0;
    call.operand[0] = dense_operand(result, a->dtype);
    call.operand[1] = dense_operand(dense_a, a->dtype);
    call.operand[2] = dense_operand(dense_b, a->dtype);
    call.attrs = (nd_op_attrs){.f = {p, factor}, .i = {(int64_t)loss, a->numel, sums ? 1 : 0}};
    return nd__operands_run(name, result, &call, inputs, 2, &call.attrs);
}

nd_status nd__pair_loss_grad(const nd_tensor *grad, const nd_tensor *a, const nd_tensor *b,
                             const nd_op_attrs *attrs, nd_tensor **ret_a, nd_tensor **ret_b) {
    const char *name = "pair_loss";
    const nd_tensor *operands[] = {grad, a, b};
    nd_auto nd_tensor *dense = nd_contiguous(grad);
    nd_auto nd_tensor *of_a = NULL, *of_b = NULL;
    if (dense && ret_a)
        of_a = nd__tensor_result(name, operands, 3, a->device, a->dtype, a->ndim, a->shape);
    if (dense && ret_b)
        of_b = nd__tensor_result(name, operands, 3, a->device, a->dtype, a->ndim, a->shape);
    if (!dense || (ret_a && !of_a) || (ret_b && !of_b))
        return nd_error_get_status();
    nd_kernel_call call;
    call.op = ND_OP_pair_loss_grad;
    call.noperands = 5;
    call.ndim = 0;
    call.operand[0] = dense_operand(of_a, a->dtype);
    call.operand[1] = dense_operand(of_b, a->dtype);
    call.operand[2] = dense_operand(dense, a->dtype);
    call.operand[3] = dense_operand(a, a->dtype);
    call.operand[4] = dense_operand(b, a->dtype);
    call.attrs = *attrs;
    nd_status status = nd__launch(name, a->device, &call);
    if (status != ND_OK)
        return status;
    if (ret_a)
        *ret_a = nd_steal(&of_a);
    if (ret_b)
        *ret_b = nd_steal(&of_b);
    return ND_OK;
}
