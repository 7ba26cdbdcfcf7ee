// Matrix products: matmul over broadcast batches, and linear with its bias and an activation.
//
// How operands lie for a kernel stands in factor.h. The result is contiguous: what a kernel adds up
// first may depend on how it lies, and both forms give the same bits.
#include "lib/ops/matmul.h"
#include "lib/base/error.h"
#include "lib/ops/autocast.h"
#include "lib/ops/factor.h"
#include "lib/tensor/create.h"
#include "lib/tensor/launch.h"
#include "lib/tensor/out.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <nd/out.h>

static nd_tensor *multiply(nd_tensor *out, const nd_tensor *const *inputs, const nd__factor *a,
                           const nd__factor *b) {
    int64_t shape[ND_MAX_DIMS];
    int batch;
    int ndim = nd__factor_shape("matmul", a, b, &batch, shape);
    if (ndim < 0)
        return NULL;
    nd_tensor *result = nd__out_result("matmul", out, ND__OUT_APART, inputs, 2, inputs[0]->device,
                                       inputs[0]->dtype, ndim, shape);
    if (result && a->columns == 0)
        result = nd__create_filled("matmul", result, ND_NUMBER(0));
    if (!result || result->numel == 0 || a->columns == 0)
        return nd__record(ND_OP_matmul, result, inputs, 2, NULL);
    nd_kernel_call call;
    nd__factor_fill(&call, ND_OP_matmul, a, b, result);
    nd__factor_fill_batches(&call, a, b, batch, shape);
    nd__shape_collapse(&call);
    nd__factor_merge_batch(&call);
    return nd__operands_run("matmul", result, &call, inputs, 2, NULL);
}

/// To `out`, which is contiguous (NULL: a new tensor).
static nd_tensor *matmul(nd_tensor *out, const nd_tensor *a, const nd_tensor *b) {
    nd_dtype dtype;
    if (nd__operands_check_pair("matmul", "a", a, "b", b) != ND_OK ||
        nd__operands_promote("matmul", a, b, &dtype) != ND_OK)
        return NULL;
    if (a->dtype == ND_BOOL || b->dtype == ND_BOOL) {
        nd__error(ND_ERROR_DTYPE, "matmul: does not take bool, and the operands are %s and %s",
                  nd_dtype_get_name(a->dtype), nd_dtype_get_name(b->dtype));
        return NULL;
    }
    if (nd__factor_check("matmul", a, b) != ND_OK)
        return NULL;
    nd_auto nd_tensor *a_cast = nd__operands_as_dtype(a, dtype);
    nd_auto nd_tensor *b_cast = a_cast ? nd__operands_as_dtype(b, dtype) : NULL;
    if (!b_cast)
        return NULL;
    const nd_tensor *inputs[] = {a_cast, b_cast};
    nd__factor left, right;
    if (!nd__factor_make_pair("matmul", &left, &right, a_cast, b_cast))
        return NULL;
    nd_tensor *result = multiply(out, inputs, &left, &right);
    nd__factor_release_pair(&left, &right);
    return result;
}

nd_tensor *nd_matmul(const nd_tensor *a, const nd_tensor *b) {
    ND__AUTOCAST(lower, a, b, NULL, nd_matmul(x0, x1))
    return matmul(NULL, a, b);
}

nd_status nd_matmul_out(const nd_tensor *a, const nd_tensor *b, nd_tensor *out) {
    nd_status status = nd__tensor_check_operand("matmul", "out", out);
    if (status != ND_OK)
        return status;
    nd_tensor *result = matmul(nd__out_dense(out), a, b);
    return nd__out_deliver("matmul", result, (const nd_tensor *[]){a, b}, 2, out);
}

nd_status nd__matmul_add_to(nd_tensor *sums, const nd_tensor *a, const nd_tensor *b) {
    if (!sums || !a || !b)
        return nd_error_get_status();
    nd__factor left, right;
    if (!nd__factor_make_pair("matmul", &left, &right, a, b))
        return nd_error_get_status();
    nd_status status = ND_OK;
    if (sums->numel > 0 && left.columns > 0) {
        nd_kernel_call call;
        nd__factor_fill(&call, ND_OP_matmul, &left, &right, sums);
        call.attrs.f[0] = 1;
        call.ndim = 0;
        status = nd__launch("matmul", sums->device, &call);
    }
    nd__factor_release_pair(&left, &right);
    return status;
}

// ------------------------------------------------------------------------------------------ linear

/// Fills with all of x's leading axes as rows. False where no one stride walks these rows, or where
/// a kernel could not read them. An axis of size 1 is not walked: its stride says nothing.
static bool describe_rows(nd__factor *m) {
    const nd_tensor *x = m->tensor;
    int last = x->ndim - 1;
    m->rows = 1;
    m->columns = x->shape[last];
    m->row_stride = m->columns;
    m->column_stride = nd__tensor_strides(x)[last];
    m->batch_ndim = 0;
    for (int i = last - 1; i >= 0; i--) {
        if (x->shape[i] == 1)
            continue;
        if (m->rows == 1)
            m->row_stride = nd__tensor_strides(x)[i];
        else if (nd__tensor_strides(x)[i] != m->rows * m->row_stride)
            return false;
        m->rows *= x->shape[i];
    }
    return nd__factor_is_readable(m);
}

/// x's rows as one matrix: [rows, in]; m->tensor is NULL on error.
static void make_rows(const char *name, nd__factor *m, const nd_tensor *x) {
    m->tensor = nd_retain(x);
    if (!describe_rows(m)) {
        nd_release(m->tensor);
        m->tensor = nd__operands_dense(name, x, x->dtype);
        if (!m->tensor)
            return;
        describe_rows(m);
    }
    nd__factor_tidy(m);
}

/// weight: [out, in] turned: [in, out]; m->tensor is NULL on error.
static void make_turned(const char *name, nd__factor *m, const nd_tensor *weight) {
    nd__factor_make(name, m, weight, false);
    if (!m->tensor)
        return;
    nd__factor_tidy(m);
    nd__factor turned = *m;
    turned.rows = m->columns;
    turned.columns = m->rows;
    turned.row_stride = m->column_stride;
    turned.column_stride = m->row_stride;
    *m = turned;
}

static nd_status write_bias(const char *name, nd_tensor *result, const nd_tensor *bias) {
    nd_kernel_call call;
    call.op = ND_OP_clone;
    call.noperands = 2;
    call.ndim = result->ndim;
    for (int i = 0; i < result->ndim; i++)
        call.shape[i] = result->shape[i];
    call.operand[0] = nd__shape_broadcast_operand(result, result->ndim, result->shape);
    call.operand[1] = nd__shape_broadcast_operand(bias, result->ndim, result->shape);
    nd__shape_collapse(&call);
    return nd__launch(name, result->device, &call);
}

/// What is computed, and as what in errors. ND_OP_linear: no activation.
typedef struct linear_form {
    const char *name;
    nd_op activation;
} linear_form;

/// The product of rows of x and the turned weight, and the bias, into `result`, which it consumes;
/// through the activation where that is the kernel's (is_fused()).
static nd_tensor *multiply_rows(const linear_form *form, nd_tensor *result,
                                const nd_tensor *const *inputs, size_t count,
                                const nd__factor *rows, const nd__factor *turned) {
    const char *name = form->name;
    const nd_tensor *bias = inputs[2];
    bool empty = result->numel == 0, nothing_inside = rows->columns == 0;
    if (!empty && bias && nothing_inside && write_bias(name, result, bias) != ND_OK) {
        nd_object_release(result);
        return NULL;
    }
    if (!empty && !bias && nothing_inside)
        result = nd__create_filled(name, result, ND_NUMBER(0));
    if (!result || empty || nothing_inside)
        return nd__record(ND_OP_linear, result, inputs, count, NULL);
    nd_kernel_call call;
    nd__factor_fill(&call, ND_OP_linear, rows, turned, result);
    call.attrs.i[9] = form->activation == ND_OP_linear ? 0 : 1 + (int64_t)form->activation;
    call.attrs.i[10] = 0;
    if (bias) {
        call.noperands = 4;
        call.operand[3].data = bias->data;
        call.operand[3].dtype = bias->dtype;
        call.attrs.i[10] = nd__tensor_strides(bias)[0];
    }
    return nd__operands_run(name, result, &call, inputs, count, NULL);
}

/// Inputs of one dtype whose shapes fit.
static nd_tensor *linear_of(const linear_form *form, nd_tensor *out,
                            const nd_tensor *const *inputs) {
    const nd_tensor *x = inputs[0], *weight = inputs[1];
    size_t count = inputs[2] ? 3 : 2;
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < x->ndim - 1; i++)
        shape[i] = x->shape[i];
    shape[x->ndim - 1] = weight->shape[0];
    nd__factor rows = {.tensor = NULL}, turned = {.tensor = NULL};
    make_rows(form->name, &rows, x);
    if (rows.tensor)
        make_turned(form->name, &turned, weight);
    nd_tensor *result = NULL;
    if (turned.tensor)
        result = nd__out_result(form->name, out, ND__OUT_APART, inputs, count, x->device, x->dtype,
                                x->ndim, shape);
    if (result)
        result = multiply_rows(form, result, inputs, count, &rows, &turned);
    nd_release(rows.tensor);
    nd_release(turned.tensor);
    return result;
}

static nd_status check_linear(const char *name, const nd_tensor *x, const nd_tensor *weight,
                              const nd_tensor *bias) {
    nd_status status = nd__operands_check_pair(name, "x", x, "weight", weight);
    if (status == ND_OK && bias)
        status = nd__operands_check_pair(name, "x", x, "bias", bias);
    if (status != ND_OK)
        return status;
    if (x->ndim == 0 || weight->ndim != 2)
        return nd__error(ND_ERROR_SHAPE,
                         "%s: x has %d dimensions and needs 1, weight has %d and needs 2", name,
                         x->ndim, weight->ndim);
    status = nd__factor_check_inner(name, x, weight, x->shape[x->ndim - 1], weight->shape[1]);
    if (status == ND_OK && bias && (bias->ndim != 1 || bias->shape[0] != weight->shape[0])) {
        char text[ND__SHAPE_TEXT];
        return nd__error(ND_ERROR_SHAPE, "%s: bias has shape %s and must have [%lld]", name,
                         nd__shape_text(text, bias->ndim, bias->shape),
                         (long long)weight->shape[0]);
    }
    return status;
}

/// Whether the kernel computes the activation, too: where the result is all that is asked for of
/// it, or all that its gradient needs.
static bool is_fused(const linear_form *form, const nd_tensor *const *inputs) {
    const nd_tensor *x = inputs[0], *weight = inputs[1];
    bool by_result = (nd__op_infos[form->activation].saves & ND_SAVE_A) == 0;
    return form->activation != ND_OP_linear && x->numel > 0 && weight->numel > 0 &&
           nd__dtype_is_float(x->dtype) &&
           (by_result || !nd__record_wants_history(inputs, inputs[2] ? 3 : 2));
}

/// The activation by itself; consumes x.
static nd_tensor *activate(nd_op activation, nd_tensor *x) {
    nd_auto nd_tensor *before = x;
    return activation == ND_OP_relu      ? nd_relu(x)
           : activation == ND_OP_gelu    ? nd_gelu(x)
           : activation == ND_OP_sigmoid ? nd_sigmoid(x)
                                         : nd_tanh(x);
}

/// Of operands of one dtype.
static nd_tensor *linear_through(const linear_form *form, nd_tensor *out,
                                 const nd_tensor *const *inputs) {
    bool fused = is_fused(form, inputs);
    const linear_form plain = {form->name, ND_OP_linear};
    nd_tensor *result = linear_of(fused ? form : &plain, out, inputs);
    if (!result || form->activation == ND_OP_linear)
        return result;
    if (!fused)
        return activate(form->activation, result);
    // What was before the activation is not there, and nobody saved it: the result replaced it.
    const nd_tensor *recorded = result;
    if (nd__record_in_place(form->activation, result, &recorded, 1, NULL) == ND_OK)
        return result;
    nd_object_release(result);
    return NULL;
}

/// As matmul().
static nd_tensor *linear(const linear_form *form, nd_tensor *out, const nd_tensor *x,
                         const nd_tensor *weight, const nd_tensor *bias) {
    const char *name = form->name;
    nd_dtype dtype;
    if (check_linear(name, x, weight, bias) != ND_OK ||
        nd__operands_promote(name, x, weight, &dtype) != ND_OK)
        return NULL;
    if (bias)
        dtype = nd_promote_dtypes(dtype, bias->dtype);
    if (dtype == ND_DTYPE_COUNT || x->dtype == ND_BOOL || weight->dtype == ND_BOOL ||
        (bias && bias->dtype == ND_BOOL)) {
        nd__error(ND_ERROR_DTYPE, "%s: does not take x of %s, weight of %s%s%s", name,
                  nd_dtype_get_name(x->dtype), nd_dtype_get_name(weight->dtype),
                  bias ? " and bias of " : "", bias ? nd_dtype_get_name(bias->dtype) : "");
        return NULL;
    }
    nd_auto nd_tensor *x_cast = nd__operands_as_dtype(x, dtype);
    nd_auto nd_tensor *weight_cast = x_cast ? nd__operands_as_dtype(weight, dtype) : NULL;
    nd_auto nd_tensor *bias_cast = weight_cast && bias ? nd__operands_as_dtype(bias, dtype) : NULL;
    if (!weight_cast || (bias && !bias_cast))
        return NULL;
    const nd_tensor *inputs[] = {x_cast, weight_cast, bias_cast};
    return linear_through(form, out, inputs);
}

static const linear_form plain_form = {"linear", ND_OP_linear};

nd_tensor *nd_linear(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias) {
    ND__AUTOCAST(lower, x, weight, bias, nd_linear(x0, x1, x2))
    return linear(&plain_form, NULL, x, weight, bias);
}

nd_tensor *nd_linear_activation(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                                nd_activation activation) {
    static const nd_op operations[] = {[ND_ACTIVATION_RELU] = ND_OP_relu,
                                       [ND_ACTIVATION_GELU] = ND_OP_gelu,
                                       [ND_ACTIVATION_SIGMOID] = ND_OP_sigmoid,
                                       [ND_ACTIVATION_TANH] = ND_OP_tanh};
    if ((unsigned)activation >= sizeof operations / sizeof *operations) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "linear_activation: there is no activation %d",
                  (int)activation);
        return NULL;
    }
    ND__AUTOCAST(lower, x, weight, bias, nd_linear_activation(x0, x1, x2, activation))
    const linear_form form = {"linear_activation", operations[activation]};
    return linear(&form, NULL, x, weight, bias);
}

nd_status nd_linear_out(const nd_tensor *x, const nd_tensor *weight, const nd_tensor *bias,
                        nd_tensor *out) {
    nd_status status = nd__tensor_check_operand("linear", "out", out);
    if (status != ND_OK)
        return status;
    nd_tensor *result = linear(&plain_form, nd__out_dense(out), x, weight, bias);
    return nd__out_deliver("linear", result, (const nd_tensor *[]){x, weight, bias}, 3, out);
}
