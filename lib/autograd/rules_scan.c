// Gradient rules of scans and of prod. In every comment, g is the gradient of the result, x the
// operand, y the result.
//
// A product's gradient without one of its factors is made of running products from both sides,
// never by division, so that zeros are factors like others. The gradient of a running product is a
// linear recurrence against its direction, and so is that of a recurrence: the rows here are closed
// under differentiation.
#include "lib/autograd/rules.h"
#include "lib/ops/index.h"
#include "lib/ops/scan.h"
#include "lib/tensor/record.h"

static nd_tensor *shifted(const nd_tensor *x, int axis, bool backwards, double filling);
static nd_status give_extremum(const nd_rule_call *call);
static nd_tensor *positions_of_extrema(const nd_rule_call *call, int axis);
static nd_tensor *other_factors(const nd_tensor *x);

static int axis_of(const nd_rule_call *call) {
    return (int)call->node->attrs.i[0];
}
static bool is_backwards(const nd_rule_call *call) {
    return call->node->attrs.i[1] != 0;
}

/// g, added up against the direction.
nd_status nd__rule_cumsum(const nd_rule_call *call) {
    const nd_tensor *g = nd__rules_output_grad(call);
    return nd__rule_give(call, 0, nd__scan(ND_OP_cumsum, g, axis_of(call), !is_backwards(call)));
}

/// h[k] y[k - 1] with h[k] = g[k] + x[k + 1] h[k + 1]
nd_status nd__rule_cumprod(const nd_rule_call *call) {
    int axis = axis_of(call);
    bool backwards = is_backwards(call);
    nd_auto nd_tensor *saved_x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *saved_y = nd__record_saved(call->node, 1);
    nd_auto nd_tensor *x = nd__rules_wide_half(saved_x);
    nd_auto nd_tensor *y = nd__rules_wide_half(saved_y);
    nd_auto nd_tensor *g = nd__rules_wide_half(nd__rules_output_grad(call));
    nd_auto nd_tensor *next = shifted(x, axis, !backwards, 0.0);
    nd_auto nd_tensor *before = shifted(y, axis, backwards, 1.0);
    nd_auto nd_tensor *h = nd__scan_recurrence(next, g, axis, !backwards);
    return nd__rule_give(call, 0, nd_mul(h, before));
}

nd_status nd__rule_cummax(const nd_rule_call *call) {
    return give_extremum(call);
}

nd_status nd__rule_cummin(const nd_rule_call *call) {
    return give_extremum(call);
}

/// y[k] = a[k] y[k - 1] + b[k]: h for b and h[k] y[k - 1] for a, with h[k] = g[k] + a[k + 1] h[k +
/// 1]
nd_status nd__rule_recurrence(const nd_rule_call *call) {
    int axis = axis_of(call);
    bool backwards = is_backwards(call);
    nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *y = nd__record_saved(call->node, 1);
    nd_auto nd_tensor *next = shifted(a, axis, !backwards, 0.0);
    nd_auto nd_tensor *h = nd__scan_recurrence(next, nd__rules_output_grad(call), axis, !backwards);
    nd_status status = h ? ND_OK : nd_error_get_status();
    if (call->wanted[0] && status == ND_OK) {
        nd_auto nd_tensor *before = shifted(y, axis, backwards, 0.0);
        status = nd__rule_give(call, 0, nd_mul(h, before));
    }
    if (call->wanted[1] && status == ND_OK)
        status = nd__rule_give(call, 1, nd_steal(&h));
    return status;
}

/// g times the product of all others. The reduced axes become one, behind the others.
nd_status nd__rule_prod(const nd_rule_call *call) {
    const nd_node_input *input = &call->node->inputs[0];
    int order[ND_MAX_DIMS], back[ND_MAX_DIMS], kept = 0, at = 0;
    int64_t rows[ND_MAX_DIMS + 1], turned_shape[ND_MAX_DIMS], ones[ND_MAX_DIMS], length = 1;
    for (int reduced = 0; reduced < 2; reduced++)
        for (int i = 0; i < input->ndim; i++)
            if ((call->node->attrs.i[0] >> i & 1) == reduced) {
                back[i] = at;
                order[at] = i;
                turned_shape[at++] = input->shape[i];
            }
    for (int i = 0; i < input->ndim; i++) {
        bool reduced = call->node->attrs.i[0] >> i & 1;
        ones[i] = reduced ? 1 : input->shape[i];
        if (reduced)
            length *= input->shape[i];
        else
            rows[kept++] = input->shape[i];
    }
    nd_auto nd_tensor *g = nd_reshape(nd__rules_output_grad(call), input->ndim, ones);
    if (kept == input->ndim)
        return nd__rule_give(call, 0, nd_steal(&g));
    rows[kept] = length;
    nd_auto nd_tensor *saved = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *x = nd__rules_wide_half(saved);
    nd_auto nd_tensor *turned = nd_permute(x, input->ndim, order);
    nd_auto nd_tensor *flat = nd_reshape(turned, kept + 1, rows);
    nd_auto nd_tensor *others = other_factors(flat);
    nd_auto nd_tensor *unfolded = nd_reshape(others, input->ndim, turned_shape);
    nd_auto nd_tensor *factor = nd_permute(unfolded, input->ndim, back);
    return nd__rule_give(call, 0, nd_mul(factor, g));
}

// -------------------------------------------------------------------------------------------------

/// x one place further along the axis, or one place back, with `filling` in the place that is left.
static nd_tensor *shifted(const nd_tensor *x, int axis, bool backwards, double filling) {
    if (!x || nd_get_shape(x)[axis] == 0)
        return nd_retain(x);
    int64_t size = nd_get_shape(x)[axis], shape[ND_MAX_DIMS];
    for (int i = 0; i < nd_get_ndim(x); i++)
        shape[i] = i == axis ? 1 : nd_get_shape(x)[i];
    nd_auto nd_tensor *number = nd__rules_constant(x, nd_get_dtype(x), filling);
    nd_auto nd_tensor *edge = nd_expand(number, nd_get_ndim(x), shape);
    nd_auto nd_tensor *rest = nd_slice(x, backwards, backwards ? size : size - 1, 1, axis);
    const nd_tensor *forward[] = {edge, rest}, *back[] = {rest, edge};
    return edge && rest ? nd_concat(2, backwards ? back : forward, axis) : NULL;
}

/// g, given to the last element so far that equals the extremum.
static nd_status give_extremum(const nd_rule_call *call) {
    int axis = axis_of(call);
    const nd_tensor *g = nd__rules_output_grad(call);
    nd_auto nd_tensor *positions = positions_of_extrema(call, axis);
    const nd_node_input *x = &call->node->inputs[0];
    return nd__rule_give(call, 0, nd__index_scatter_zeros(g, positions, axis, x->ndim, x->shape));
}

/// Where each running extremum stands: the last place so far whose element is the extremum. A
/// constant: nothing to record.
static nd_tensor *positions_of_extrema(const nd_rule_call *call, int axis) {
    const nd_node_input *input = &call->node->inputs[0];
    nd_tensor *positions = NULL;
    nd_no_grad {
        nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
        nd_auto nd_tensor *y = nd__record_saved(call->node, 1);
        nd_auto nd_tensor *equal = nd_equal(x, y);
        nd_auto nd_tensor *is_nan = nd_not_equal(x, x);
        nd_auto nd_tensor *reached = nd_logical_or(equal, is_nan);
        nd_auto nd_tensor *one = nd__rules_constant(x, ND_I64, 1.0);
        nd_auto nd_tensor *ones = nd_expand(one, input->ndim, input->shape);
        nd_auto nd_tensor *counted = nd_cumsum(ones, axis);
        nd_auto nd_tensor *place = nd_add_scalar(counted, -1);
        nd_auto nd_tensor *zero = nd__rules_constant(x, ND_I64, 0.0);
        nd_auto nd_tensor *marked = nd_where(reached, place, zero);
        positions = nd_cummax(marked, axis);
    }
    return positions;
}

/// For each element of the last axis the product of all others there.
static nd_tensor *other_factors(const nd_tensor *x) {
    if (!x)
        return NULL;
    int axis = nd_get_ndim(x) - 1;
    nd_auto nd_tensor *before = shifted(x, axis, false, 1.0);
    nd_auto nd_tensor *behind = shifted(x, axis, true, 1.0);
    nd_auto nd_tensor *left = nd__scan(ND_OP_cumprod, before, axis, false);
    nd_auto nd_tensor *right = nd__scan(ND_OP_cumprod, behind, axis, true);
    return nd_mul(left, right);
}
