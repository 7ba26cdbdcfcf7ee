// Products of integers of 8 bits that are added up in 32 (<nd/quantization.h>).
//
// Operands lie as those of matmul do (factor.h). Zero points go to the kernel where they are, as one
// more operand each, walked beside the batches and the rows or columns that they belong to.
#include "lib/base/error.h"
#include "lib/ops/factor.h"
#include "lib/ops/operands.h"
#include "lib/tensor/create.h"
#include "lib/tensor/out.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/out.h>
#include <nd/quantization.h>

static const char *const name = "matmul_integer";

enum { A, B, A_ZERO, B_ZERO, INPUTS };

static nd_status check_dtype(const char *operand, const nd_tensor *x) {
    if (x->dtype == ND_I8 || x->dtype == ND_U8)
        return ND_OK;
    return nd__error(ND_ERROR_DTYPE, "%s: %s is %s and must be int8 or uint8", name, operand,
                     nd_dtype_get_name(x->dtype));
}

/// A zero point's dtype and shape. `line` is the operand's axis, counted from its end, of which each
/// index may have one of its own: 2 for a's rows, 1 for b's columns.
static nd_status check_zero_point(const char *operand, const nd_tensor *zero, const nd_tensor *of,
                                  int line) {
    if (zero->dtype != of->dtype)
        return nd__error(ND_ERROR_DTYPE, "%s: %s_zero_point is %s and %s is %s", name, operand,
                         nd_dtype_get_name(zero->dtype), operand, nd_dtype_get_name(of->dtype));
    bool fits = zero->numel == 1 && zero->ndim <= 1;
    if (!fits && of->ndim > 1 && zero->ndim == 1)
        fits = zero->shape[0] == of->shape[of->ndim - line];
    const int missing = of->ndim - zero->ndim;
    if (!fits && zero->ndim > 1 && missing >= 0) {
        fits = zero->shape[zero->ndim - (3 - line)] == 1;
        for (int i = 0; i < zero->ndim; i++)
            fits = fits && (zero->shape[i] == 1 || zero->shape[i] == of->shape[missing + i]);
    }
    if (fits)
        return ND_OK;
    char a[ND__SHAPE_TEXT], b[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE,
                     "%s: %s_zero_point has shape %s and %s %s; it must be one number, or one for "
                     "each %s",
                     name, operand, nd__shape_text(a, zero->ndim, zero->shape), operand,
                     nd__shape_text(b, of->ndim, of->shape), line == 2 ? "row" : "column");
}

static nd_status check(const nd_tensor *const *inputs) {
    static const char *const names[] = {"a", "b", "a_zero_point", "b_zero_point"};
    nd_status status = nd__operands_check_pair(name, names[A], inputs[A], names[B], inputs[B]);
    for (int i = A_ZERO; i < INPUTS && status == ND_OK; i++)
        if (inputs[i])
            status = nd__operands_check_pair(name, names[A], inputs[A], names[i], inputs[i]);
    for (int i = A; i <= B && status == ND_OK; i++)
        status = check_dtype(names[i], inputs[i]);
    if (status == ND_OK)
        status = nd__factor_check(name, inputs[A], inputs[B]);
    for (int i = A; i <= B && status == ND_OK; i++)
        if (inputs[A_ZERO + i])
            status = check_zero_point(names[i], inputs[A_ZERO + i], inputs[i], i == A ? 2 : 1);
    return status;
}

/// Tells the call of a zero point, or that there is none: by the result's batch axes, and the
/// stride between neighbours.
static void fill_zero_point(nd_kernel_call *call, int operand, const nd_tensor *zero,
                            const nd__factor *of, int line, int batch) {
    nd_operand *to = &call->operand[operand];
    *to = (nd_operand){.dtype = of->tensor->dtype};
    int64_t *apart = &call->attrs.i[6 + operand];
    *apart = 0;
    if (!zero)
        return;
    to->data = zero->data;
    if (zero->numel == 1)
        return;
    const int64_t *strides = nd__tensor_strides(zero);
    int at = zero->ndim == 1 ? 0 : zero->ndim - line;
    *apart = zero->shape[at] == 1 ? 0 : strides[at];
    const int batch_ndim = zero->ndim - 2;
    for (int i = 0; i < batch_ndim; i++)
        to->strides[batch - batch_ndim + i] = zero->shape[i] == 1 ? 0 : strides[i];
}

static nd_tensor *multiply(nd_tensor *out, const nd_tensor *const *inputs, const nd__factor *a,
                           const nd__factor *b) {
    int64_t shape[ND_MAX_DIMS];
    int batch;
    int ndim = nd__factor_shape(name, a, b, &batch, shape);
    if (ndim < 0)
        return NULL;
    nd_tensor *result = nd__out_result(name, out, ND__OUT_APART, inputs, INPUTS, inputs[A]->device,
                                       ND_I32, ndim, shape);
    if (result && a->columns == 0)
        result = nd__create_filled(name, result, ND_NUMBER(0));
    if (!result || result->numel == 0 || a->columns == 0)
        return nd__record(ND_OP_matmul_integer, result, inputs, INPUTS, NULL);
    nd_kernel_call call;
    nd__factor_fill(&call, ND_OP_matmul_integer, a, b, result);
    nd__factor_fill_batches(&call, a, b, batch, shape);
    call.noperands = 5;
    fill_zero_point(&call, 3, inputs[A_ZERO], a, 2, batch);
    fill_zero_point(&call, 4, inputs[B_ZERO], b, 1, batch);
    nd__shape_collapse(&call);
    nd__factor_merge_batch(&call);
    return nd__operands_run(name, result, &call, inputs, INPUTS, NULL);
}

/// To `out`, which is contiguous (NULL: a new tensor).
static nd_tensor *matmul_integer(nd_tensor *out, const nd_tensor *const *inputs) {
    if (check(inputs) != ND_OK)
        return NULL;
    nd__factor left, right;
    if (!nd__factor_make_pair(name, &left, &right, inputs[A], inputs[B]))
        return NULL;
    nd_tensor *result = multiply(out, inputs, &left, &right);
    nd__factor_release_pair(&left, &right);
    return result;
}

nd_tensor *nd_matmul_integer(const nd_tensor *a, const nd_tensor *b, const nd_tensor *a_zero_point,
                             const nd_tensor *b_zero_point) {
    return matmul_integer(NULL, (const nd_tensor *[]){a, b, a_zero_point, b_zero_point});
}

nd_status nd_matmul_integer_out(const nd_tensor *a, const nd_tensor *b,
                                const nd_tensor *a_zero_point, const nd_tensor *b_zero_point,
                                nd_tensor *out) {
    nd_status status = nd__tensor_check_operand(name, "out", out);
    if (status != ND_OK)
        return status;
    const nd_tensor *inputs[] = {a, b, a_zero_point, b_zero_point};
    nd_tensor *result = matmul_integer(nd__out_dense(out), inputs);
    return nd__out_deliver(name, result, inputs, INPUTS, out);
}
