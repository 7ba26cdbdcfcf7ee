// Gradient rules of matrix products. Transposes are views: the product
// takes operands of either order, so nothing is copied to turn it.
#include "lib/autograd/rules.h"
#include "lib/ops/matmul.h"
#include "lib/tensor/record.h"
#include <nd/quantization.h>

static nd_tensor *as_matrices(const nd_tensor *x, bool row, bool column);
static nd_tensor *as_rows(const nd_tensor *x);
static nd_status give_left(const nd_rule_call *call, const nd_tensor *g, const nd_tensor *b);
static nd_status give_right(const nd_rule_call *call, const nd_tensor *g, const nd_tensor *a);
static nd_status give_linear_input(const nd_rule_call *call, const nd_tensor *rows);
static nd_status give_linear_weight(const nd_rule_call *call, const nd_tensor *rows);

// -------------------------------------------------------------------------------------------------
// matrix products

/// a: [..., m, k], b: [..., k, n]; g: [..., m, n]: g b^T, a^T g, summed over what was broadcast. A
/// 1-d operand is a matrix of one row (a) or one column (b).
nd_status nd__rule_matmul(const nd_rule_call *call) {
    nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *b = nd__record_saved(call->node, 1);
    if (!a || !b)
        return nd_error_get_status();
    bool row = a->ndim == 1;
    bool column = b->ndim == 1;
    nd_auto nd_tensor *g = as_matrices(nd__rules_output_grad(call), row, column);
    nd_status status = ND_OK;
    if (call->wanted[0]) {
        nd_auto nd_tensor *matrices = as_matrices(b, false, column);
        status = give_left(call, g, matrices);
    }
    if (call->wanted[1] && status == ND_OK) {
        nd_auto nd_tensor *matrices = as_matrices(a, row, false);
        status = give_right(call, g, matrices);
    }
    return status;
}

/// x: [..., in], weight: [out, in], bias: [out]; g: [..., out]: g weight, g^T x, g summed.
nd_status nd__rule_linear(const nd_rule_call *call) {
    nd_auto nd_tensor *rows = as_rows(nd__rules_output_grad(call));
    nd_status status = rows ? ND_OK : nd_error_get_status();
    if (call->wanted[0] && status == ND_OK)
        status = give_linear_input(call, rows);
    if (call->wanted[1] && status == ND_OK)
        status = give_linear_weight(call, rows);
    if (call->node->ninputs > 2 && call->wanted[2] && status == ND_OK)
        status = nd__rule_give(call, 2, nd_retain(rows));
    return status;
}

/// values, scales, zeros (i[0]: there are any), x: [..., k]; g: [..., n]: g weight for x.
nd_status nd__rule_quantized_linear(const nd_rule_call *call) {
    if (!call->wanted[3])
        return ND_OK;
    nd_auto nd_tensor *values = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *scales = nd__record_saved(call->node, 1);
    nd_auto nd_tensor *zeros = call->node->attrs.i[0] ? nd__record_saved(call->node, 2) : NULL;
    if (!values || !scales || (call->node->attrs.i[0] && !zeros))
        return nd_error_get_status();
    const nd_node_input *x = &call->node->inputs[3];
    nd_auto nd_tensor *rows = as_rows(nd__rules_output_grad(call));
    nd_auto nd_tensor *weight = nd_dequantize(values, scales, zeros, x->dtype);
    nd_auto nd_tensor *product = nd_matmul(rows, weight);
    return nd__rule_give(call, 3, nd_reshape(product, x->ndim, x->shape));
}

// -------------------------------------------------------------------------------------------------

/// x with an axis of size 1 where the operands of a product had one axis less: before the last
/// (row), at the end (column).
static nd_tensor *as_matrices(const nd_tensor *x, bool row, bool column) {
    nd_auto nd_tensor *matrices = nd_retain(x);
    if (column) {
        nd_tensor *wider = nd_unsqueeze(matrices, -1);
        nd_release(matrices);
        matrices = wider;
    }
    if (row) {
        nd_tensor *taller = nd_unsqueeze(matrices, -2);
        nd_release(matrices);
        matrices = taller;
    }
    return nd_steal(&matrices);
}

/// x: [..., n] as one matrix: [rows, n].
static nd_tensor *as_rows(const nd_tensor *x) {
    if (!x || x->ndim == 2)
        return nd_retain(x);
    int64_t shape[2] = {1, x->shape[x->ndim - 1]};
    for (int i = 0; i < x->ndim - 1; i++)
        shape[0] *= x->shape[i];
    return nd_reshape(x, 2, shape);
}

/// g b^T for a.
static nd_status give_left(const nd_rule_call *call, const nd_tensor *g, const nd_tensor *b) {
    nd_auto nd_tensor *transposed = nd_transpose(b, -2, -1);
    return nd__rule_give(call, 0, nd_matmul(g, transposed));
}

/// a^T g for b. When b is one matrix for a whole batch, the batch becomes rows of one product.
static nd_status give_right(const nd_rule_call *call, const nd_tensor *g, const nd_tensor *a) {
    bool column = call->node->inputs[1].ndim == 1;
    bool one_matrix = call->node->inputs[1].ndim <= 2;
    nd_auto nd_tensor *left = one_matrix ? as_rows(a) : nd_retain(a);
    nd_auto nd_tensor *right = one_matrix ? as_rows(g) : nd_retain(g);
    nd_auto nd_tensor *transposed = nd_transpose(left, -2, -1);
    nd_auto nd_tensor *product = nd_matmul(transposed, right);
    return nd__rule_give(call, 1, column ? nd_squeeze(product, -1) : nd_steal(&product));
}

static nd_status give_linear_input(const nd_rule_call *call, const nd_tensor *rows) {
    const nd_node_input *x = &call->node->inputs[0];
    nd_auto nd_tensor *weight = nd__record_saved(call->node, 1);
    nd_auto nd_tensor *product = nd_matmul(rows, weight);
    return nd__rule_give(
        call, 0, x->ndim == 2 ? nd_steal(&product) : nd_reshape(product, x->ndim, x->shape));
}

static nd_status give_linear_weight(const nd_rule_call *call, const nd_tensor *rows) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *inputs = as_rows(x);
    nd_auto nd_tensor *transposed = nd_transpose(rows, 0, 1);
    // A weight of several uses, a recurrent or a tied one, has one gradient that all add to.
    nd_tensor *waiting =
        inputs && !nd__dtype_is_half(inputs->dtype) ? nd__engine_waiting(call, 1) : NULL;
    if (waiting && transposed && waiting->dtype == inputs->dtype && rows->dtype == inputs->dtype)
        return nd__matmul_add_to(waiting, transposed, inputs);
    return nd__rule_give(call, 1, nd_matmul(transposed, inputs));
}
