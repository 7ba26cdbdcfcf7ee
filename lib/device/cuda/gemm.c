// See gemm.h. The innermost batch axis becomes the BLAS's batch, the others a loop.
#include "lib/device/cuda/gemm.h"
#include <limits.h>

static bool leading_dimension(int64_t stride, int64_t rows, int64_t lines, int *ret_leading) {
    // With one line the stride is never used, but the BLAS checks it all the same.
    int64_t leading = lines <= 1 ? rows : stride;
    if (leading < rows || leading < 1 || leading > INT_MAX)
        return false;
    *ret_leading = (int)leading;
    return true;
}

/// How the BLAS sees the transpose of a row-major [rows, columns] matrix.
static bool describe(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride,
                     bool *ret_transpose, int *ret_leading) {
    if ((column_stride == 1 || columns == 1) &&
        leading_dimension(row_stride, columns, rows, ret_leading)) {
        *ret_transpose = false;
        return true;
    }
    if ((row_stride == 1 || rows == 1) &&
        leading_dimension(column_stride, rows, columns, ret_leading)) {
        *ret_transpose = true;
        return true;
    }
    return false;
}

/// What a BLAS multiplies: floats of one dtype, and i8 by i8 without zero points. ND_DTYPE_COUNT: it
/// does not.
static nd_dtype dtype_of(const nd_kernel_call *call) {
    const nd_operand *operands = call->operand;
    const nd_dtype dtype = operands[0].dtype;
    if (call->op == ND_OP_matmul_integer)
        return operands[1].dtype == ND_I8 && operands[2].dtype == ND_I8 && !operands[3].data &&
                       !operands[4].data
                   ? ND_I8
                   : ND_DTYPE_COUNT;
    const bool is_float = dtype == ND_F32 || dtype == ND_F64 || dtype == ND_F16 || dtype == ND_BF16;
    return is_float ? dtype : ND_DTYPE_COUNT;
}

static int64_t bytes_of(nd_dtype dtype) {
    return dtype == ND_F64 ? 8 : dtype == ND_F32 || dtype == ND_I32 ? 4 : dtype == ND_I8 ? 1 : 2;
}

static bool make_plan(const nd_kernel_call *call, nd_gemm *ret_plan) {
    const int64_t *i = call->attrs.i;
    int64_t m = i[0], n = i[1], k = i[2];
    nd_dtype dtype = dtype_of(call);
    bool out_transposed;
    if (dtype == ND_DTYPE_COUNT || m < 1 || n < 1 || k < 1)
        return false;
    if (m > INT_MAX || n > INT_MAX || k > INT_MAX)
        return false;
    *ret_plan = (nd_gemm){.dtype = dtype,
                          .m = (int)n,
                          .n = (int)m,
                          .k = (int)k,
                          .batch = 1,
                          .beta = call->attrs.f[0]};
    return describe(k, n, i[5], i[6], &ret_plan->transpose_a, &ret_plan->lda) &&
           describe(m, k, i[3], i[4], &ret_plan->transpose_b, &ret_plan->ldb) &&
           describe(m, n, i[7], i[8], &out_transposed, &ret_plan->ldc) && !out_transposed;
}

nd_status nd__gemm_matmul(const nd_kernel_call *call, nd_gemm_function run, void *context) {
    nd_gemm plan;
    if (!make_plan(call, &plan))
        return ND_ERROR_UNSUPPORTED;
    int inner = call->ndim - 1;
    int64_t outer_count = 1;
    for (int axis = 0; axis < inner; axis++)
        outer_count *= call->shape[axis];
    if (inner >= 0) {
        if (call->shape[inner] == 0 || outer_count == 0)
            return ND_OK;
        if (call->shape[inner] > INT_MAX)
            return ND_ERROR_UNSUPPORTED;
        plan.batch = (int)call->shape[inner];
        plan.stride_a = call->operand[2].strides[inner];
        plan.stride_b = call->operand[1].strides[inner];
        plan.stride_c = call->operand[0].strides[inner];
    }
    const int64_t size = bytes_of(plan.dtype), out_size = bytes_of(call->operand[0].dtype);
    for (int64_t outer = 0; outer < outer_count; outer++) {
        int64_t offset[3] = {0, 0, 0};
        int64_t rest = outer;
        for (int axis = inner - 1; axis >= 0; axis--) {
            int64_t position = rest % call->shape[axis];
            rest /= call->shape[axis];
            for (int operand = 0; operand < 3; operand++)
                offset[operand] += position * call->operand[operand].strides[axis];
        }
        plan.c = (char *)call->operand[0].data + offset[0] * out_size;
        plan.b = (const char *)call->operand[1].data + offset[1] * size;
        plan.a = (const char *)call->operand[2].data + offset[2] * size;
        nd_status status = run(context, &plan);
        // A caller takes ND_ERROR_UNSUPPORTED for leave to begin anew, which a sum half written is
        // not.
        if (status == ND_ERROR_UNSUPPORTED && outer > 0)
            return ND_ERROR_DEVICE;
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}
