// Gradient rule of scatter_reduce. g is the gradient of the result y.
//
// Extremes share g equally among the elements of x and source that equal theirs. A product gives
// each of its factors g times the product of the others: y / factor where the factor is not 0, else
// the product with that 0 taken as 1.
#include "lib/autograd/rules.h"
#include "lib/ops/index.h"
#include "lib/tensor/record.h"

typedef struct scattered {
    const nd_rule_call *call;
    const nd_tensor *x, *index, *source, *y; ///< as saved
    nd_scatter_kind kind;
    int axis;
} scattered;

/// source scattered into x once more, recorded.
static nd_tensor *again(const scattered *s, nd_op op, const nd_tensor *x, const nd_tensor *source) {
    if (!x || !source)
        return NULL;
    return nd__index_scatter("scatter_reduce", op, s->kind, x, s->index, source, s->axis);
}

/// What every source's place holds.
static nd_tensor *at_places(const scattered *s, const nd_tensor *x) {
    return nd_gather(x, s->index, s->axis);
}

static nd_tensor *as_numbers(const nd_tensor *mask, const nd_tensor *like) {
    return mask ? nd_cast(mask, like->dtype) : NULL;
}

// -------------------------------------------------------------------------------------------------
// extremes

static nd_status give_extreme(const scattered *s) {
    nd_tensor *of_x = NULL, *of_source = NULL, *count = NULL;
    nd_no_grad {
        nd_auto nd_tensor *values = at_places(s, s->y);
        nd_auto nd_tensor *is_x = nd_equal(s->x, s->y);
        nd_auto nd_tensor *is_source = nd_equal(s->source, values);
        of_x = as_numbers(is_x, s->x);
        of_source = as_numbers(is_source, s->source);
        count = again(s, ND_OP_scatter_add, of_x, of_source);
    }
    nd_auto nd_tensor *share = nd_div(nd__rules_output_grad(s->call), count);
    nd_status status = ND_OK;
    if (s->call->wanted[0])
        status = nd__rule_give(s->call, 0, nd_mul(of_x, share));
    if (s->call->wanted[2] && status == ND_OK) {
        nd_auto nd_tensor *shares = at_places(s, share);
        status = nd__rule_give(s->call, 2, nd_mul(of_source, shares));
    }
    nd_release(of_x);
    nd_release(of_source);
    nd_release(count);
    return status;
}

// -------------------------------------------------------------------------------------------------
// products

/// x with 1 where `mask` holds.
static nd_tensor *with_ones(const nd_tensor *mask, const nd_tensor *x) {
    nd_auto nd_tensor *one = nd__rules_constant(x, x->dtype, 1.0);
    return nd_where(mask, one, x);
}

static nd_tensor *is_zero(const nd_tensor *x) {
    nd_auto nd_tensor *zero = nd__rules_constant(x, x->dtype, 0.0);
    return nd_equal(x, zero);
}

static nd_status give_product_to_x(const scattered *s) {
    nd_auto nd_tensor *zeros = is_zero(s->x);
    nd_auto nd_tensor *factor = with_ones(zeros, s->x);
    nd_auto nd_tensor *product = again(s, ND_OP_scatter_reduce, factor, s->source);
    nd_auto nd_tensor *scaled = nd_mul(nd__rules_output_grad(s->call), product);
    return nd__rule_give(s->call, 0, nd_div(scaled, factor));
}

/// Which elements of source are the only 0 that comes to their place.
static nd_tensor *is_only_zero(const scattered *s, const nd_tensor *zeros) {
    nd_tensor *only = NULL;
    nd_no_grad {
        nd_auto nd_tensor *ones = as_numbers(zeros, s->source);
        nd_auto nd_tensor *nothing = nd_zeros_like(s->x);
        nd_auto nd_tensor *counts = again(s, ND_OP_scatter_add, nothing, ones);
        nd_auto nd_tensor *count = at_places(s, counts);
        nd_auto nd_tensor *one = nd__rules_constant(s->source, s->source->dtype, 1.0);
        nd_auto nd_tensor *is_one = nd_equal(count, one);
        only = nd_logical_and(is_one, zeros);
    }
    return only;
}

static nd_status give_product_to_source(const scattered *s) {
    const nd_tensor *g = nd__rules_output_grad(s->call);
    nd_auto nd_tensor *zeros = is_zero(s->source);
    nd_auto nd_tensor *only = is_only_zero(s, zeros);
    nd_auto nd_tensor *factor = with_ones(zeros, s->source);
    nd_auto nd_tensor *whole = nd_mul(g, s->y);
    nd_auto nd_tensor *wholes = at_places(s, whole);
    nd_auto nd_tensor *divided = nd_div(wholes, factor);
    nd_auto nd_tensor *others = only ? with_ones(only, s->source) : NULL;
    nd_auto nd_tensor *product = again(s, ND_OP_scatter_reduce, s->x, others);
    nd_auto nd_tensor *rest = nd_mul(g, product);
    nd_auto nd_tensor *rests = at_places(s, rest);
    return nd__rule_give(s->call, 2, nd_where(only, rests, divided));
}

nd_status nd__rule_scatter_reduce(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *index = nd__record_saved(call->node, 1);
    nd_auto nd_tensor *source = nd__record_saved(call->node, 2);
    nd_auto nd_tensor *y = nd__record_saved(call->node, 3);
    if (!x || !index || !source || !y)
        return nd_error_get_status();
    const scattered s = {.call = call,
                         .x = x,
                         .index = index,
                         .source = source,
                         .y = y,
                         .kind = (nd_scatter_kind)call->node->attrs.i[1],
                         .axis = (int)call->node->attrs.i[0]};
    if (s.kind != ND_SCATTER_PRODUCT)
        return give_extreme(&s);
    nd_status status = call->wanted[0] ? give_product_to_x(&s) : ND_OK;
    return call->wanted[2] && status == ND_OK ? give_product_to_source(&s) : status;
}
