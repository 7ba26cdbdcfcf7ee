// Losses: those of pairs of one shape in one kernel, the others as compositions of recorded
// operations, elements first, then one reduction.
//
// Everything is computed in f64 for f64 and in f32 for everything else; the result has the dtype of
// the operands, but inside nd_autocast f32 for halves. (mse_loss and cross_entropy are in neural.c.)
#include "lib/base/error.h"
#include "lib/ops/autocast.h"
#include "lib/ops/elementwise.h"
#include "lib/ops/operands.h"
#include "lib/ops/pair_loss.h"
#include "lib/ops/precision.h"
#include "lib/tensor/shape.h"
#include <float.h>
#include <nd/neural.h>

/// The operands of a loss in the dtype it is computed in.
typedef struct pair {
    nd_tensor *a, *b;
    nd_dtype dtype; ///< of the result
} pair;

static void release_pair(pair *both) {
    nd_release(both->a);
    nd_release(both->b);
}

static nd_status check_reduction(const char *name, nd_reduction reduction, bool batch_mean) {
    bool known = reduction == ND_REDUCTION_MEAN || reduction == ND_REDUCTION_SUM ||
                 reduction == ND_REDUCTION_NONE ||
                 (batch_mean && reduction == ND_REDUCTION_BATCH_MEAN);
    return known ? ND_OK
                 : nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: there is no reduction %d", name,
                             (int)reduction);
}

static nd_status make_pair(const char *name, const char *a_name, const nd_tensor *a,
                           const char *b_name, const nd_tensor *b, pair *ret_pair) {
    nd_dtype dtype;
    nd_status status = nd__operands_check_pair(name, a_name, a, b_name, b);
    if (status == ND_OK)
        status = nd__precision_check(name, a_name, a, &dtype);
    if (status == ND_OK)
        status = nd__precision_check(name, b_name, b, &dtype);
    if (status == ND_OK)
        status = nd__operands_promote(name, a, b, &ret_pair->dtype);
    if (status != ND_OK)
        return status;
    dtype = ret_pair->dtype == ND_F64 ? ND_F64 : ND_F32;
    ret_pair->dtype = nd__autocast_result(ret_pair->dtype);
    ret_pair->a = nd__operands_as_dtype(a, dtype);
    ret_pair->b = nd__operands_as_dtype(b, dtype);
    return ret_pair->a && ret_pair->b ? ND_OK : nd_error_get_status();
}

/// The elements, reduced, in a dtype. `batch` is the number of samples of a mean over the batch.
static nd_tensor *reduced(const nd_tensor *elements, nd_reduction reduction, int64_t batch,
                          nd_dtype dtype) {
    nd_auto nd_tensor *result = NULL;
    if (reduction == ND_REDUCTION_NONE) {
        result = nd_retain(elements);
    } else if (reduction == ND_REDUCTION_MEAN) {
        result = nd_mean(elements, 0, NULL, false);
    } else {
        result = nd_sum(elements, 0, NULL, false);
        if (reduction == ND_REDUCTION_BATCH_MEAN) {
            nd_tensor *mean = nd_div_scalar(result, batch);
            nd_release(result);
            result = mean;
        }
    }
    return result ? nd__operands_as_dtype(result, dtype) : NULL;
}

/// The loss of pairs in one kernel, reduced, in a dtype.
static nd_tensor *in_one(const char *name, nd_pair_loss loss, const pair *both, double p,
                         nd_reduction reduction, int64_t batch) {
    double count = reduction == ND_REDUCTION_MEAN         ? (double)both->a->numel
                   : reduction == ND_REDUCTION_BATCH_MEAN ? (double)batch
                                                          : 1.0;
    nd_auto nd_tensor *result =
        nd__pair_loss(name, loss, both->a, both->b, p, 1.0 / count, reduction != ND_REDUCTION_NONE);
    return result ? nd__operands_as_dtype(result, both->dtype) : NULL;
}

// -------------------------------------------------------------------------------------------------
// of differences

/// The row of UNARY operations that computes a loss of differences.
static nd_op op_of(nd_pair_loss loss) {
    return loss == ND_PAIR_LOSS_huber       ? ND_OP_huber
           : loss == ND_PAIR_LOSS_smooth_l1 ? ND_OP_smooth_l1
                                            : ND_OP_abs;
}

/// `loss` of a - b: a parabola that goes on as a line from the limit. |a - b| without a parabola:
/// smooth_l1's is divided by the limit, which may be 0 in the dtype.
static nd_tensor *difference_loss(const char *name, const nd_tensor *a, const nd_tensor *b,
                                  nd_pair_loss loss, double limit, nd_reduction reduction) {
    ND__ERROR_NAMED(name);
    __attribute__((cleanup(release_pair))) pair both = {0};
    if (check_reduction(name, reduction, false) != ND_OK ||
        make_pair(name, "a", a, "b", b, &both) != ND_OK)
        return NULL;
    if (loss == ND_PAIR_LOSS_smooth_l1 &&
        !((both.a->dtype == ND_F64 ? limit : (double)(float)limit) > 0.0))
        loss = ND_PAIR_LOSS_l1;
    if (nd__pair_loss_fits(both.a, both.b))
        return in_one(name, loss, &both, limit, reduction, 1);
    nd_auto nd_tensor *difference = nd_sub(both.a, both.b);
    if (!difference)
        return NULL;
    nd_op op = op_of(loss);
    nd_auto nd_tensor *elements =
        op != ND_OP_abs ? nd__elementwise_with_limit(op, difference, limit) : nd_abs(difference);
    return elements ? reduced(elements, reduction, 1, both.dtype) : NULL;
}

nd_tensor *nd_l1_loss(const nd_tensor *a, const nd_tensor *b, nd_reduction reduction) {
    return difference_loss("l1_loss", a, b, ND_PAIR_LOSS_l1, 0.0, reduction);
}

nd_tensor *nd_smooth_l1_loss(const nd_tensor *a, const nd_tensor *b, double beta,
                             nd_reduction reduction) {
    if (!(beta >= 0.0 && beta <= DBL_MAX)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT,
                  "smooth_l1_loss: beta is %g and must be finite, at least 0", beta);
        return NULL;
    }
    return difference_loss("smooth_l1_loss", a, b, ND_PAIR_LOSS_smooth_l1, beta, reduction);
}

nd_tensor *nd_huber_loss(const nd_tensor *a, const nd_tensor *b, double delta,
                         nd_reduction reduction) {
    if (!(delta > 0.0 && delta <= DBL_MAX)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "huber_loss: delta is %g and must be finite, above 0",
                  delta);
        return NULL;
    }
    return difference_loss("huber_loss", a, b, ND_PAIR_LOSS_huber, delta, reduction);
}

// -------------------------------------------------------------------------------------------------
// of probabilities

/// t log t; 0 where t is 0.
static nd_tensor *entropy(const nd_tensor *t) {
    if (!t)
        return NULL;
    nd_auto nd_tensor *zero = nd__operands_number_like("kl_div", t, t->dtype, ND_NUMBER(0));
    nd_auto nd_tensor *one = nd__operands_number_like("kl_div", t, t->dtype, ND_NUMBER(1));
    nd_auto nd_tensor *none = nd_equal(t, zero);
    nd_auto nd_tensor *safe = nd_where(none, one, t);
    nd_auto nd_tensor *logarithm = nd_log(safe);
    return nd_mul(t, logarithm);
}

nd_tensor *nd_kl_div(const nd_tensor *log_probabilities, const nd_tensor *targets, bool log_targets,
                     nd_reduction reduction) {
    ND__ERROR_NAMED("kl_div");
    __attribute__((cleanup(release_pair))) pair both = {0};
    if (check_reduction("kl_div", reduction, true) != ND_OK ||
        make_pair("kl_div", "log_probabilities", log_probabilities, "targets", targets, &both) !=
            ND_OK)
        return NULL;
    if (reduction == ND_REDUCTION_BATCH_MEAN && log_probabilities->ndim == 0) {
        nd__error(ND_ERROR_SHAPE, "kl_div: without axes there is no batch to take the mean of");
        return NULL;
    }
    int64_t batch = both.a->ndim ? both.a->shape[0] : 1;
    if (nd__pair_loss_fits(both.a, both.b))
        return in_one("kl_div", log_targets ? ND_PAIR_LOSS_kl_log : ND_PAIR_LOSS_kl, &both, 0.0,
                      reduction, batch);
    nd_auto nd_tensor *elements = NULL;
    if (log_targets) {
        nd_auto nd_tensor *probability = nd_exp(both.b);
        nd_auto nd_tensor *difference = nd_sub(both.b, both.a);
        elements = nd_mul(probability, difference);
    } else {
        nd_auto nd_tensor *own = entropy(both.b);
        nd_auto nd_tensor *cross = nd_mul(both.b, both.a);
        elements = nd_sub(own, cross);
    }
    return reduced(elements, reduction, batch, both.dtype);
}

/// x times a weight, which may be NULL; takes over x.
static nd_tensor *weighted(nd_tensor *x, const nd_tensor *weight) {
    if (!weight || !x)
        return x;
    nd_auto nd_tensor *wide = nd_cast(weight, x->dtype);
    nd_tensor *product = nd_mul(x, wide);
    nd_release(x);
    return product;
}

static nd_status check_weight(const char *name, const char *argument, const nd_tensor *x,
                              const nd_tensor *weight) {
    nd_dtype dtype;
    nd_status status = weight ? nd__operands_check_pair(name, "x", x, argument, weight) : ND_OK;
    return weight && status == ND_OK ? nd__precision_check(name, argument, weight, &dtype) : status;
}

nd_tensor *nd_bce_with_logits(const nd_tensor *logits, const nd_tensor *targets,
                              const nd_tensor *weight, const nd_tensor *positive_weight,
                              nd_reduction reduction) {
    ND__ERROR_NAMED("bce_with_logits");
    const char *name = "bce_with_logits";
    __attribute__((cleanup(release_pair))) pair both = {0};
    if (check_reduction(name, reduction, false) != ND_OK ||
        make_pair(name, "logits", logits, "targets", targets, &both) != ND_OK ||
        check_weight(name, "weight", logits, weight) != ND_OK ||
        check_weight(name, "positive_weight", logits, positive_weight) != ND_OK)
        return NULL;
    if (!weight && !positive_weight && nd__pair_loss_fits(both.a, both.b))
        return in_one(name, ND_PAIR_LOSS_bce, &both, 0.0, reduction, 1);
    // With s = log(1 + e^-x): t w s + (1 - t) (x + s) = (1 - t) x + (t (w - 1) + 1) s.
    nd_auto nd_tensor *minus_t = nd_neg(both.b);
    nd_auto nd_tensor *no = nd_add_scalar(minus_t, 1);
    nd_auto nd_tensor *linear = nd_mul(no, both.a);
    nd_auto nd_tensor *minus_x = nd_neg(both.a);
    nd_auto nd_tensor *curve = nd_softplus(minus_x);
    if (positive_weight) {
        nd_auto nd_tensor *wide = nd_cast(positive_weight, both.a->dtype);
        nd_auto nd_tensor *more = nd_add_scalar(wide, -1);
        nd_auto nd_tensor *part = nd_mul(both.b, more);
        nd_auto nd_tensor *factor = nd_add_scalar(part, 1);
        nd_tensor *scaled = nd_mul(factor, curve);
        nd_release(curve);
        curve = scaled;
    }
    nd_auto nd_tensor *elements = weighted(nd_add(linear, curve), weight);
    return reduced(elements, reduction, 1, both.dtype);
}

// -------------------------------------------------------------------------------------------------
// of directions

/// The sum of a b along an axis.
static nd_tensor *inner_product(const nd_tensor *a, const nd_tensor *b, int axis) {
    nd_auto nd_tensor *product = nd_mul(a, b);
    return nd_sum(product, 1, &axis, false);
}

nd_tensor *nd_cosine_similarity(const nd_tensor *a, const nd_tensor *b, double epsilon, int axis) {
    ND__ERROR_NAMED("cosine_similarity");
    const char *name = "cosine_similarity";
    __attribute__((cleanup(release_pair))) pair both = {0};
    if (!(epsilon >= 0.0 && epsilon <= DBL_MAX)) {
        nd__error(ND_ERROR_INVALID_ARGUMENT, "%s: epsilon is %g and must be finite, at least 0",
                  name, epsilon);
        return NULL;
    }
    if (make_pair(name, "a", a, "b", b, &both) != ND_OK)
        return NULL;
    nd_auto nd_tensor *product = nd_mul(both.a, both.b);
    if (!product || nd__shape_resolve_axis(name, axis, product->ndim) < 0)
        return NULL;
    // The axis is one of the broadcast shape.
    nd_auto nd_tensor *a_seen = nd_expand(both.a, product->ndim, product->shape);
    nd_auto nd_tensor *b_seen = nd_expand(both.b, product->ndim, product->shape);
    nd_auto nd_tensor *inner = nd_sum(product, 1, &axis, false);
    nd_auto nd_tensor *a_square = inner_product(a_seen, a_seen, axis);
    nd_auto nd_tensor *b_square = inner_product(b_seen, b_seen, axis);
    nd_auto nd_tensor *least =
        nd__operands_number_like(name, product, product->dtype, ND_NUMBER(epsilon * epsilon));
    nd_auto nd_tensor *a_safe = nd_maximum(a_square, least);
    nd_auto nd_tensor *b_safe = nd_maximum(b_square, least);
    nd_auto nd_tensor *a_length = nd_sqrt(a_safe);
    nd_auto nd_tensor *b_length = nd_sqrt(b_safe);
    nd_auto nd_tensor *lengths = nd_mul(a_length, b_length);
    nd_auto nd_tensor *result = nd_div(inner, lengths);
    return result ? nd__operands_as_dtype(result, both.dtype) : NULL;
}

/// The cosines of rows, each length with 1e-12 more in its square: [n] of [n, size], [] of [size].
static nd_tensor *row_cosines(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *inner = inner_product(a, b, -1);
    nd_auto nd_tensor *a_square = inner_product(a, a, -1);
    nd_auto nd_tensor *b_square = inner_product(b, b, -1);
    nd_auto nd_tensor *a_more = nd_add_scalar(a_square, 1e-12);
    nd_auto nd_tensor *b_more = nd_add_scalar(b_square, 1e-12);
    nd_auto nd_tensor *product = nd_mul(a_more, b_more);
    nd_auto nd_tensor *length = nd_sqrt(product);
    return nd_div(inner, length);
}

static nd_status check_cosine_embedding(const nd_tensor *a, const nd_tensor *b,
                                        const nd_tensor *targets) {
    nd_status status = nd__operands_check_pair("cosine_embedding_loss", "a", a, "targets", targets);
    if (status != ND_OK)
        return status;
    bool fits = (a->ndim == 1 || a->ndim == 2) && nd__operands_same_shape(a, b) &&
                targets->ndim == a->ndim - 1 && (a->ndim == 1 || targets->shape[0] == a->shape[0]);
    if (fits)
        return ND_OK;
    char a_text[ND__SHAPE_TEXT], b_text[ND__SHAPE_TEXT], targets_text[ND__SHAPE_TEXT];
    return nd__error(ND_ERROR_SHAPE,
                     "cosine_embedding_loss: a has shape %s, b %s and targets %s; they must be "
                     "[n, size], the same, and [n]",
                     nd__shape_text(a_text, a->ndim, a->shape),
                     nd__shape_text(b_text, b->ndim, b->shape),
                     nd__shape_text(targets_text, targets->ndim, targets->shape));
}

/// x where the targets are `number`, else 0.
static nd_tensor *where_target(const nd_tensor *targets, int number, const nd_tensor *x) {
    if (!targets || !x)
        return NULL;
    nd_auto nd_tensor *wanted = nd__operands_number_like("cosine_embedding_loss", targets,
                                                         targets->dtype, ND_NUMBER(number));
    nd_auto nd_tensor *none =
        nd__operands_number_like("cosine_embedding_loss", x, x->dtype, ND_NUMBER(0));
    nd_auto nd_tensor *mask = nd_equal(targets, wanted);
    return nd_where(mask, x, none);
}

nd_tensor *nd_cosine_embedding_loss(const nd_tensor *a, const nd_tensor *b,
                                    const nd_tensor *targets, double margin,
                                    nd_reduction reduction) {
    ND__ERROR_NAMED("cosine_embedding_loss");
    const char *name = "cosine_embedding_loss";
    __attribute__((cleanup(release_pair))) pair both = {0};
    if (check_reduction(name, reduction, false) != ND_OK ||
        make_pair(name, "a", a, "b", b, &both) != ND_OK ||
        check_cosine_embedding(a, b, targets) != ND_OK)
        return NULL;
    nd_auto nd_tensor *numbers = nd_cast(targets, both.a->dtype);
    nd_auto nd_tensor *cosine = row_cosines(both.a, both.b);
    nd_auto nd_tensor *opposite = nd_neg(cosine);
    nd_auto nd_tensor *apart = nd_add_scalar(opposite, 1);
    nd_auto nd_tensor *above = nd_add_scalar(cosine, -margin);
    nd_auto nd_tensor *near = nd_relu(above);
    nd_auto nd_tensor *alike = where_target(numbers, 1, apart);
    nd_auto nd_tensor *unlike = where_target(numbers, -1, near);
    nd_auto nd_tensor *elements = nd_add(alike, unlike);
    return reduced(elements, reduction, 1, both.dtype);
}
