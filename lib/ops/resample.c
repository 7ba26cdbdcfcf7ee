#include "lib/ops/resample.h"

#include "lib/base/error.h"
#include "lib/ops/operands.h"
#include "lib/tensor/create.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"

nd_tensor *nd__resample_apply(const char *name, nd_op op, const nd_tensor *x, const int64_t *shape,
                              const nd_op_attrs *attrs) {
    nd_status status = nd__tensor_check_operand(name, "x", x);
    nd_auto nd_tensor *dense = status == ND_OK ? nd__operands_dense(name, x, x->dtype) : NULL;
    nd_tensor *result =
        dense ? nd__tensor_result(name, &x, 1, x->device, x->dtype, x->ndim, shape) : NULL;
    if (!result || result->numel == 0)
        return nd__record(op, result, &x, result ? 1 : 0, attrs);
    nd_kernel_call call;
    call.op = op;
    call.noperands = 2;
    call.ndim = 0;
    call.operand[0] = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    call.operand[1] = nd__shape_broadcast_operand(dense, dense->ndim, dense->shape);
    call.attrs = *attrs;
    return nd__operands_run(name, result, &call, &x, 1, attrs);
}

nd_tensor *nd__resample_along(const char *name, const nd_tensor *x, int axis,
                              const nd__resample_axis *how) {
    int64_t outer = 1, inner = 1, shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim; i++) {
        shape[i] = i == axis ? how->out : x->shape[i];
        outer *= i < axis ? x->shape[i] : 1;
        inner *= i > axis ? x->shape[i] : 1;
    }
    const nd_op_attrs attrs = {.f = {how->step},
                               .i = {how->mode, outer, x->shape[axis], how->out, inner, how->kernel,
                                     how->stride, how->padding, how->flags}};
    return nd__resample_apply(name, ND_OP_resample, x, shape, &attrs);
}
