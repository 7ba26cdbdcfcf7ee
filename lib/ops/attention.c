// Scaled-dot-product attention: checks, heads that share keys and values, and its node.
//
// Invariant: what the node holds is the operands, the result and one number per query; a backward
// pass computes the scores again, in a kernel (attention_kernel.h) or by blocks (attention_blocks.h). A
// pass that is itself recorded computes them with recorded operations, whole: only then are there
// tensors of queries by keys.
#include "lib/base/error.h"
#include "lib/base/versioned.h"
#include "lib/ops/attention_blocks.h"
#include "lib/ops/attention_kernel.h"
#include "lib/ops/autocast.h"
#include "lib/ops/dropout.h"
#include "lib/ops/operands.h"
#include "lib/ops/precision.h"
#include "lib/ops/reduce.h"
#include "lib/tensor/record.h"
#include "lib/tensor/shape.h"
#include <math.h>
#include <nd/autograd.h>
#include <nd/manager.h>
#include <nd/manipulation.h>
#include <nd/neural.h>

static const char *const name = "attention";

enum { QUERY, KEY, VALUE, MASK, INPUTS };

/// What was asked for, and what of it a backward pass needs.
typedef struct attention {
    nd_tensor *inputs[INPUTS]; ///< query, key, value, mask or NULL
    nd_tensor *result;         ///< an alias without history
    nd_tensor *log_sums;
    uint64_t versions[INPUTS]; ///< of the inputs, when they were saved
    uint64_t result_version;
    double scale, dropout;
    nd_key seed;
    bool causal;
} attention;

#define ATTENTION_EDGES(ONE, MANY) MANY(inputs, INPUTS) ONE(result) ONE(log_sums)
ND_TYPE_EDGES(attention, ATTENTION_EDGES)

static const nd_type attention_type = {
    .size = sizeof(nd_type),
    .version = 1,
    .name = "attention",
    .traverse = attention_traverse,
    .clear = attention_clear,
};

// -------------------------------------------------------------------------------------------------
// checks

static nd_status refuse_shapes(const nd_tensor *q, const nd_tensor *k, const nd_tensor *v) {
    char q_text[ND__SHAPE_TEXT], k_text[ND__SHAPE_TEXT], v_text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE,
                     "%s: query has shape %s, key %s and value %s; they must be [..., h, l, e], "
                     "[..., g, s, e] and [..., g, s, v], and g divide h",
                     name, nd__shape_text(q_text, q->ndim, q->shape),
                     nd__shape_text(k_text, k->ndim, k->shape),
                     nd__shape_text(v_text, v->ndim, v->shape));
}

static nd_status check_shapes(const nd_tensor *q, const nd_tensor *k, const nd_tensor *v) {
    int n = q->ndim;
    bool fits = n >= 2 && k->ndim == n && v->ndim == n;
    for (int i = 0; fits && i < n - 3; i++)
        fits = q->shape[i] == k->shape[i] && q->shape[i] == v->shape[i];
    if (fits && n > 2)
        fits = k->shape[n - 3] == v->shape[n - 3] &&
               (q->shape[n - 3] == k->shape[n - 3] ||
                (k->shape[n - 3] > 0 && q->shape[n - 3] % k->shape[n - 3] == 0));
    fits = fits && q->shape[n - 1] == k->shape[n - 1] && k->shape[n - 2] == v->shape[n - 2];
    return fits ? ND_OK : refuse_shapes(q, k, v);
}

static nd_status check_mask(const nd_tensor *q, const nd_tensor *k, const nd_tensor *mask) {
    nd_status status = nd__operands_check_pair(name, "query", q, "mask", mask);
    if (status != ND_OK)
        return status;
    if (mask->dtype != ND_BOOL && !nd__dtype_is_float(mask->dtype))
        return nd__error(ND_ERROR_DTYPE, "%s: mask is %s and must be bool or of floats", name,
                         nd_dtype_get_name(mask->dtype));
    int64_t scores[ND_MAX_DIMS];
    for (int i = 0; i < q->ndim - 1; i++)
        scores[i] = q->shape[i];
    scores[q->ndim - 1] = k->shape[k->ndim - 2];
    bool fits = mask->ndim <= q->ndim;
    for (int i = 1; fits && i <= mask->ndim; i++) {
        int64_t size = mask->shape[mask->ndim - i];
        fits = size == 1 || size == scores[q->ndim - i];
    }
    if (fits)
        return ND_OK;
    char mask_text[ND__SHAPE_TEXT], text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE, "%s: mask has shape %s, which does not broadcast to %s", name,
                     nd__shape_text(mask_text, mask->ndim, mask->shape),
                     nd__shape_text(text, q->ndim, scores));
}

static nd_status check_attention(const nd_tensor *q, const nd_tensor *k, const nd_tensor *v,
                                 const nd_tensor *mask) {
    nd_dtype dtype;
    nd_status status = nd__operands_check_pair(name, "query", q, "key", k);
    if (status == ND_OK)
        status = nd__operands_check_pair(name, "query", q, "value", v);
    if (status == ND_OK)
        status = nd__precision_check(name, "query", q, &dtype);
    if (status == ND_OK && (k->dtype != q->dtype || v->dtype != q->dtype))
        status = nd__error(ND_ERROR_DTYPE, "%s: query is %s, key %s and value %s", name,
                           nd_dtype_get_name(q->dtype), nd_dtype_get_name(k->dtype),
                           nd_dtype_get_name(v->dtype));
    if (status == ND_OK)
        status = check_shapes(q, k, v);
    return status == ND_OK && mask ? check_mask(q, k, mask) : status;
}

static nd_status read_options(const nd_tensor *q, const nd_attention_options *given, attention *a) {
    nd_attention_options options = ND_ATTENTION_OPTIONS_INIT;
    nd_status status =
        nd__versioned_read(name, "ND_ATTENTION_OPTIONS_INIT", given, &options, sizeof options);
    if (status == ND_OK)
        status = nd__dropout_check(name, options.dropout);
    if (status == ND_OK && !isfinite(options.scale))
        status = nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: scale is %g and must be finite", name,
                           options.scale);
    if (status != ND_OK)
        return status;
    double size = (double)q->shape[q->ndim - 1];
    a->scale = options.scale != 0.0 ? options.scale : 1.0 / sqrt(size > 0.0 ? size : 1.0);
    a->dropout = options.dropout;
    a->seed = options.key;
    a->causal = options.causal;
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------
// heads

/// Operands as they are computed with: in one dtype, a mask that is added in f32 or f64, and where several heads share keys and
/// values, with an axis of the groups and one of those in a group.
typedef struct prepared {
    nd_tensor *inputs[INPUTS];
    nd__attention blocks; ///< the same, borrowed
} prepared;

static void release_prepared(prepared *p) {
    for (int i = 0; i < INPUTS; i++)
        nd_release(p->inputs[i]);
}

/// [..., groups * n, x, y] as [..., groups, n, x, y]; what has no axis of heads, or one head for
/// all, gets an axis of size 1.
static nd_tensor *with_groups(const nd_tensor *x, int64_t groups) {
    int n = x->ndim;
    if (n < 3)
        return nd_retain(x);
    if (x->shape[n - 3] == 1)
        return nd_unsqueeze(x, n - 3);
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < n - 3; i++)
        shape[i] = x->shape[i];
    shape[n - 3] = groups;
    shape[n - 2] = x->shape[n - 3] / groups;
    shape[n - 1] = x->shape[n - 2];
    shape[n] = x->shape[n - 1];
    return nd_reshape(x, n + 1, shape);
}

/// Keys of how many heads, where these are fewer than the queries' heads; else 0.
static int64_t groups_of(nd_tensor *const *inputs) {
    const nd_tensor *q = inputs[QUERY], *k = inputs[KEY];
    int n = q->ndim;
    return n > 2 && q->shape[n - 3] != k->shape[n - 3] ? k->shape[n - 3] : 0;
}

/// In f32 or f64, or `as_given`.
static nd_status prepare(const attention *a, bool as_given, prepared *p) {
    nd_dtype wide = a->inputs[QUERY]->dtype == ND_F64 ? ND_F64 : ND_F32;
    int64_t groups = groups_of(a->inputs);
    for (int i = 0; i < INPUTS; i++) {
        const nd_tensor *x = a->inputs[i];
        if (!x)
            continue;
        bool keep = i == MASK ? x->dtype == ND_BOOL : as_given;
        nd_auto nd_tensor *cast = keep ? nd_retain(x) : nd__operands_as_dtype(x, wide);
        p->inputs[i] = cast && groups ? with_groups(cast, groups) : nd_steal(&cast);
        if (!p->inputs[i])
            return nd_error_get_status();
    }
    p->blocks = (nd__attention){p->inputs[QUERY], p->inputs[KEY], p->inputs[VALUE], p->inputs[MASK],
                                a->scale,         a->dropout,     a->seed,          a->causal};
    return ND_OK;
}

// -------------------------------------------------------------------------------------------------
// backward

static nd_status check_all_saved(const attention *a) {
    nd_status status = nd__record_check_saved(name, a->result, a->result_version);
    for (int i = 0; i < INPUTS && status == ND_OK; i++)
        if (a->inputs[i])
            status = nd__record_check_saved(name, a->inputs[i], a->versions[i]);
    return status;
}

/// The gradient of an input as its owner sees it. Consumes the gradient.
static nd_status give(const nd_tensor *input, nd_tensor *gradient, nd_tensor **ret_gradient) {
    nd_auto nd_tensor *given = gradient;
    nd_auto nd_tensor *shaped = nd_reshape(given, input->ndim, input->shape);
    *ret_gradient = shaped ? nd__operands_as_dtype(shaped, input->dtype) : NULL;
    return *ret_gradient ? ND_OK : nd_error_get_status();
}

/// Seen as the result is computed: with groups, in the dtype of computing.
static nd_tensor *seen_as(const prepared *p, const nd_tensor *x) {
    const nd_tensor *query = p->inputs[QUERY];
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < query->ndim - 1; i++)
        shape[i] = query->shape[i];
    shape[query->ndim - 1] = p->inputs[VALUE]->shape[query->ndim - 1];
    nd_auto nd_tensor *wide = nd_cast(x, query->dtype);
    return nd_reshape(wide, query->ndim, shape);
}

typedef nd_status backward_pass(const nd__attention *a, const nd_tensor *grad,
                                const nd_tensor *result, const nd_tensor *log_sums,
                                const bool *wanted, nd_tensor **ret_grads);

static nd_status pass_backward(const attention *a, bool by_kernel, const nd_tensor *grad,
                               const bool *wanted, nd_tensor **grads) {
    __attribute__((cleanup(release_prepared))) prepared p = {0};
    nd_status status = prepare(a, by_kernel, &p);
    if (status != ND_OK)
        return status;
    backward_pass *pass = by_kernel ? nd__attention_kernel_backward : nd__attention_blocks_backward;
    nd_auto nd_tensor *seen = seen_as(&p, grad);
    nd_auto nd_tensor *result = seen ? seen_as(&p, a->result) : NULL;
    return result ? pass(&p.blocks, seen, result, a->log_sums, wanted, grads)
                  : nd_error_get_status();
}

/// In one kernel where there is one, else by blocks.
static nd_status backward_unrecorded(const attention *a, const nd_tensor *grad, const bool *wanted,
                                     nd_tensor **grads) {
    nd_status status = ND_ERROR_UNSUPPORTED;
    nd_no_grad {
        if (a->dropout == 0.0 && !wanted[MASK])
            status = pass_backward(a, true, grad, wanted, grads);
        if (status == ND_ERROR_UNSUPPORTED)
            status = pass_backward(a, false, grad, wanted, grads);
    }
    return status;
}

/// Where a query sees a key, as far as masks of bool, of -infinity, and time say; NULL without an
/// error: everywhere.
static nd_status find_seen(const prepared *p, nd_tensor **ret_seen) {
    const nd_tensor *query = p->inputs[QUERY], *mask = p->inputs[MASK];
    nd_auto nd_tensor *seen = NULL;
    if (mask && mask->dtype == ND_BOOL) {
        seen = nd_retain(mask);
    } else if (mask) {
        nd_auto nd_tensor *least =
            nd__operands_number_like(name, mask, mask->dtype, ND_NUMBER(-INFINITY));
        seen = nd_not_equal(mask, least);
        if (!seen)
            return nd_error_get_status();
    }
    if (p->blocks.causal) {
        nd_auto nd_tensor *past = nd__attention_blocks_seen(
            query, 0, query->shape[query->ndim - 2], 0, p->inputs[KEY]->shape[query->ndim - 2]);
        nd_tensor *both = seen ? nd_logical_and(seen, past) : nd_retain(past);
        nd_release(seen);
        seen = both;
        if (!seen)
            return nd_error_get_status();
    }
    *ret_seen = nd_steal(&seen);
    return ND_OK;
}

static nd_tensor *zero_unless(const nd_tensor *seen, const nd_tensor *x) {
    if (!seen || !x)
        return nd_retain(x);
    nd_auto nd_tensor *zero = nd__operands_number_like(name, x, x->dtype, ND_NUMBER(0));
    return nd_where(seen, x, zero);
}

/// The weights, recorded: softmax of the scores, and 0 where nothing is seen.
static nd_tensor *recorded_weights(const prepared *p, const nd_tensor *seen) {
    const nd_tensor *mask = p->inputs[MASK];
    nd_auto nd_tensor *turned = nd_transpose(p->inputs[KEY], -2, -1);
    nd_auto nd_tensor *product = nd_matmul(p->inputs[QUERY], turned);
    nd_auto nd_tensor *scores = nd_mul_scalar(product, p->blocks.scale);
    if (mask && mask->dtype != ND_BOOL) {
        nd_auto nd_tensor *finite = zero_unless(seen, mask);
        nd_tensor *sum = nd_add(scores, finite);
        nd_release(scores);
        scores = sum;
    }
    if (!seen || !scores)
        return nd_softmax(scores, -1);
    // So low that its weight is 0 beside any other; a row of nothing else is set to 0 afterwards.
    nd_auto nd_tensor *lowest =
        nd__operands_number_like(name, scores, scores->dtype, ND_NUMBER(-1e30));
    nd_auto nd_tensor *visible = nd_where(seen, scores, lowest);
    nd_auto nd_tensor *weights = nd_softmax(visible, -1);
    return zero_unless(seen, weights);
}

/// x times the factors, where there are some.
static nd_tensor *times(const nd_tensor *x, const nd_tensor *factors) {
    return factors ? nd_mul(x, factors) : nd_retain(x);
}

/// x summed down to the shape of an input.
static nd_tensor *summed(const nd_tensor *x, const nd_tensor *input) {
    return x ? nd__reduce_sum_to(x, input->ndim, input->shape) : NULL;
}

static nd_status give_recorded(const prepared *p, const nd_tensor *grad, const bool *wanted,
                               nd_tensor **grads) {
    const int last = -1;
    nd_auto nd_tensor *seen = NULL;
    nd_auto nd_tensor *factors = NULL;
    nd_status status = ND_OK;
    nd_no_grad {
        status = find_seen(p, &seen);
        if (status == ND_OK && p->blocks.dropout != 0.0)
            status = (factors = nd__attention_blocks_factors(&p->blocks)) ? ND_OK
                                                                          : nd_error_get_status();
    }
    if (status != ND_OK)
        return status;
    nd_auto nd_tensor *g = seen_as(p, grad);
    nd_auto nd_tensor *weights = recorded_weights(p, seen);
    nd_auto nd_tensor *dropped = weights ? times(weights, factors) : NULL;
    nd_auto nd_tensor *dropped_turned = nd_transpose(dropped, -2, -1);
    nd_auto nd_tensor *value_part = nd_matmul(dropped_turned, g);
    nd_auto nd_tensor *value_turned = nd_transpose(p->inputs[VALUE], -2, -1);
    nd_auto nd_tensor *product = nd_matmul(g, value_turned);
    nd_auto nd_tensor *upper = product ? times(product, factors) : NULL;
    nd_auto nd_tensor *shares = nd_mul(weights, upper);
    nd_auto nd_tensor *delta = nd_sum(shares, 1, &last, true);
    nd_auto nd_tensor *centered = nd_sub(upper, delta);
    nd_auto nd_tensor *slopes = nd_mul(weights, centered);
    nd_auto nd_tensor *scaled = nd_mul_scalar(slopes, p->blocks.scale);
    nd_auto nd_tensor *scaled_turned = nd_transpose(scaled, -2, -1);
    nd_auto nd_tensor *query_part = nd_matmul(scaled, p->inputs[KEY]);
    nd_auto nd_tensor *key_part = nd_matmul(scaled_turned, p->inputs[QUERY]);
    const nd_tensor *parts[INPUTS] = {query_part, key_part, value_part, slopes};
    for (int i = 0; i < INPUTS && status == ND_OK; i++)
        if (wanted[i] && !(grads[i] = summed(parts[i], p->inputs[i])))
            status = nd_error_get_status();
    return status;
}

static nd_status backward_recorded(const attention *a, const nd_tensor *grad, const bool *wanted,
                                   nd_tensor **grads) {
    __attribute__((cleanup(release_prepared))) prepared p = {0};
    nd_status status = prepare(a, false, &p);
    return status == ND_OK ? give_recorded(&p, grad, wanted, grads) : status;
}

static nd_status backward(const nd_object *context, size_t noutputs,
                          const nd_tensor *const *grad_outputs, size_t ninputs,
                          nd_tensor **ret_grad_inputs) {
    (void)noutputs;
    const attention *a = nd_object_get_data(context);
    nd_status status = a ? check_all_saved(a) : nd_error_get_status();
    if (status != ND_OK)
        return status;
    bool wanted[INPUTS] = {false};
    for (size_t i = 0; i < ninputs; i++)
        wanted[i] = nd_requires_grad(a->inputs[i]);
    nd_tensor *grads[INPUTS] = {0};
    status = nd_is_grad_enabled() ? backward_recorded(a, grad_outputs[0], wanted, grads)
                                  : backward_unrecorded(a, grad_outputs[0], wanted, grads);
    for (size_t i = 0; i < INPUTS; i++) {
        if (grads[i] && status == ND_OK)
            status = give(a->inputs[i], grads[i], &ret_grad_inputs[i]);
        else
            nd_release(grads[i]);
    }
    return status;
}

// Forward is run by nd_attention itself, which records the node when the result is made.
static const nd_function attention_function = {sizeof(nd_function), 1, "attention", NULL, backward};

// -------------------------------------------------------------------------------------------------
// forward

/// Takes over what a backward pass needs.
static nd_status keep(nd_object *self, void *data) {
    attention *kept = nd_object_get_data(self);
    *kept = *(const attention *)data;
    for (int i = 0; i < INPUTS; i++) {
        kept->inputs[i] = nd_retain(kept->inputs[i]);
        kept->versions[i] = kept->inputs[i] ? nd__tensor_version(kept->inputs[i]) : 0;
    }
    kept->result = nd_retain(kept->result);
    kept->log_sums = nd_retain(kept->log_sums);
    kept->result_version = nd__tensor_version(kept->result);
    return ND_OK;
}

/// Gives the result its node, with a context that lives where the result does.
static nd_status record(attention *a, nd_tensor *result) {
    const nd_tensor *const *inputs = (const nd_tensor *const *)a->inputs;
    size_t count = a->inputs[MASK] ? INPUTS : INPUTS - 1;
    if (!nd__record_wants_history(inputs, count))
        return ND_OK;
    nd_auto nd_tensor *alias = nd_detach(result);
    nd_auto nd_manager *manager = nd_get_manager_retained(result);
    if (!alias || !manager)
        return nd_error_get_status();
    a->result = alias;
    nd_auto nd_object *context = NULL;
    nd_with_manager(manager) {
        context = nd_object_new_with(&attention_type, sizeof *a, keep, a);
    }
    return context ? nd__record_function(&attention_function, context, &result, 1, inputs, count)
                   : nd_error_get_status();
}

/// Without elements: what products of nothing give, recorded, which is zeros.
static nd_tensor *attend_nothing(const attention *a, const int64_t *shape) {
    __attribute__((cleanup(release_prepared))) prepared p = {0};
    if (prepare(a, false, &p) != ND_OK)
        return NULL;
    nd_auto nd_tensor *turned = nd_transpose(p.inputs[KEY], -2, -1);
    nd_auto nd_tensor *scores = nd_matmul(p.inputs[QUERY], turned);
    nd_auto nd_tensor *product = nd_matmul(scores, p.inputs[VALUE]);
    nd_auto nd_tensor *shaped = nd_reshape(product, a->inputs[QUERY]->ndim, shape);
    const nd_dtype dtype = a->inputs[QUERY]->dtype;
    nd_auto nd_tensor *result = shaped ? nd__operands_as_dtype(shaped, dtype) : NULL;
    const nd_tensor *mask = a->inputs[MASK];
    if (!result || !mask || !nd__dtype_is_float(mask->dtype))
        return nd_steal(&result);
    // A mask that would be added has its part in the history.
    nd_auto nd_tensor *flat = nd_flatten(mask, 0);
    nd_auto nd_tensor *none = flat ? nd_slice(flat, 0, 0, 1, 0) : NULL;
    nd_auto nd_tensor *sum = nd_sum(none, 0, NULL, false);
    nd_auto nd_tensor *zero = sum ? nd__operands_as_dtype(sum, dtype) : NULL;
    return nd_add(result, zero);
}

/// Without features each score is 0, as with one feature that is.
static nd_tensor *attend_without_features(const attention *a, const nd_attention_options *options) {
    const int64_t one[] = {0, 1};
    nd_auto nd_tensor *query = nd_pad(a->inputs[QUERY], 1, one, ND_NUMBER(0), ND_PADDING_CONSTANT);
    nd_auto nd_tensor *key = nd_pad(a->inputs[KEY], 1, one, ND_NUMBER(0), ND_PADDING_CONSTANT);
    return nd_attention(query, key, a->inputs[VALUE], a->inputs[MASK], options);
}

/// In one kernel where there is one, else by blocks.
static nd_status attend(const attention *a, bool by_kernel, nd_tensor **ret_result,
                        nd_tensor **ret_log_sums) {
    __attribute__((cleanup(release_prepared))) prepared p = {0};
    nd_status status = prepare(a, by_kernel, &p);
    if (status != ND_OK)
        return status;
    return by_kernel ? nd__attention_kernel_forward(&p.blocks, ret_result, ret_log_sums)
                     : nd__attention_blocks_forward(&p.blocks, ret_result, ret_log_sums);
}

nd_tensor *nd_attention(const nd_tensor *query, const nd_tensor *key, const nd_tensor *value,
                        const nd_tensor *mask, const nd_attention_options *options) {
    ND__ERROR_NAMED("attention");
    ND__AUTOCAST(lower, query, key, value, nd_attention(x0, x1, x2, mask, options))
    attention a = {.inputs = {(nd_tensor *)(uintptr_t)query, (nd_tensor *)(uintptr_t)key,
                              (nd_tensor *)(uintptr_t)value, (nd_tensor *)(uintptr_t)mask}};
    if (check_attention(query, key, value, mask) != ND_OK ||
        read_options(query, options, &a) != ND_OK)
        return NULL;
    int64_t shape[ND_MAX_DIMS];
    for (int i = 0; i < query->ndim - 1; i++)
        shape[i] = query->shape[i];
    shape[query->ndim - 1] = value->shape[value->ndim - 1];
    if (query->shape[query->ndim - 1] == 0 && value->numel > 0)
        return attend_without_features(&a, options);
    if (query->numel == 0 || key->numel == 0 || value->numel == 0)
        return attend_nothing(&a, shape);
    nd_auto nd_tensor *result = NULL;
    nd_auto nd_tensor *log_sums = NULL;
    nd_no_grad {
        nd_auto nd_tensor *computed = NULL;
        nd_status status = ND_ERROR_UNSUPPORTED;
        if (a.dropout == 0.0)
            status = attend(&a, true, &computed, &log_sums);
        if (status == ND_ERROR_UNSUPPORTED)
            status = attend(&a, false, &computed, &log_sums);
        if (status == ND_OK) {
            nd_auto nd_tensor *shaped = nd_reshape(computed, query->ndim, shape);
            result = shaped ? nd__operands_as_dtype(shaped, query->dtype) : NULL;
        }
    }
    a.log_sums = log_sums;
    if (!result || record(&a, result) != ND_OK)
        return NULL;
    return nd_steal(&result);
}
