// The gradient of determinants: the cofactors of the matrix. Of few rows they are written out; else
// they are det x times x^-T where there is an inverse.
//
// Cofactors are polynomials, so they are there where x is singular, too, and where x^-1 is worth
// nothing. With x = u s v^T those of x are those of a = u^T x v, turned back, where u and v count as
// constants. a is cut behind its singular values that are more than rounding,
//
//   a = [p q]   det a = det p det z, z = t - r p^-1 q,
//       [r t]
//
// p has an inverse that is worth something, and z, which is as small as x lacks ranks, has its
// determinant and cofactors by products alone (Faddeev, Leverrier). All of that is recorded, so it
// can be differentiated to any order.
//
// In every comment c(x) are the cofactors of x.
#include "lib/autograd/rules.h"
#include "lib/ops/linalg.h"
#include "lib/tensor/record.h"
#include <float.h>
#include <math.h>
#include <nd/linalg.h>
#include <nd/manipulation.h>

/// Up to so many units in the last place of 1 a part of an inverse is worth less than three digits.
static double rounding_of(const nd_tensor *x) {
    return 1000 * (x->dtype == ND_F64 ? DBL_EPSILON : (double)FLT_EPSILON);
}

/// Of more singular values that are no more than rounding, cofactors of z are far below the
/// smallest number beside those of p.
enum { LACKING_MOST = 16 };

/// [..., 1, 1] from [...].
static nd_tensor *as_matrix(const nd_tensor *x) {
    nd_auto nd_tensor *row = nd_unsqueeze(x, -1);
    return nd_unsqueeze(row, -1);
}

static bool number_of(const nd_tensor *x, double *ret_number) {
    if (!x)
        return false;
    *ret_number = nd_get_item(x);
    return !isnan(*ret_number) || nd_error_get_status() == ND_OK;
}

// -------------------------------------------------------------------------------------------------
// up to three rows, each element by itself
enum { CLOSED_MOST = 3 };

/// [i, j]: x[i + rows, j + columns], counted around.
static nd_tensor *moved(const nd_tensor *x, int64_t rows, int64_t columns) {
    nd_auto nd_tensor *of_rows = nd_roll(x, -rows, -2);
    return nd_roll(of_rows, -columns, -1);
}

static nd_tensor *cofactors_of_three(const nd_tensor *x) {
    nd_auto nd_tensor *first = moved(x, 1, 1), *second = moved(x, 2, 2);
    nd_auto nd_tensor *third = moved(x, 1, 2), *fourth = moved(x, 2, 1);
    nd_auto nd_tensor *plus = nd_mul(first, second), *minus = nd_mul(third, fourth);
    return nd_sub(plus, minus);
}

static nd_tensor *cofactors_of_few(const nd_tensor *x, int64_t n) {
    if (n == CLOSED_MOST)
        return cofactors_of_three(x);
    nd_auto nd_tensor *one = nd__linalg_identity(x, n), *twice = nd_mul_scalar(one, 2);
    nd_auto nd_tensor *signs = nd_add_scalar(twice, -1);
    if (n == 1)
        return nd_expand(signs, x->ndim, x->shape);
    nd_auto nd_tensor *other = moved(x, 1, 1);
    return nd_mul(other, signs);
}

// -------------------------------------------------------------------------------------------------
// where there is an inverse

/// The largest sum of a row of |a| |b|, for each matrix.
static nd_tensor *largest_row(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *product = nd__linalg_product(a, b);
    nd_auto nd_tensor *sums = nd_sum(product, 1, (const int[]){-1}, false);
    return nd_max(sums, 1, (const int[]){-1}, false);
}

/// The condition of the worst matrix, which scales of rows or of columns leave alone (Skeel 1979).
static bool condition_of(const nd_tensor *x, const nd_tensor *inverse, double *ret_condition) {
    nd_auto nd_tensor *worst = NULL;
    nd_no_grad {
        nd_auto nd_tensor *a = nd_abs(x), *b = nd_abs(inverse);
        nd_auto nd_tensor *by_rows = largest_row(b, a), *by_columns = largest_row(a, b);
        nd_auto nd_tensor *better = nd_minimum(by_rows, by_columns);
        worst = nd_max(better, 0, NULL, false);
    }
    return number_of(worst, ret_condition);
}

/// 2^-2e det x and e ln 2 with the e for which the first fits, where det x does not.
static nd_tensor *scaled_det(const nd_tensor *packed, nd_tensor **ret_scale) {
    nd_auto nd_tensor *sign = nd_slice(packed, 0, 1, 1, -1);
    nd_auto nd_tensor *logarithm = nd_slice(packed, 1, 2, 1, -1);
    nd_auto nd_tensor *known = nd_detach(logarithm);
    nd_auto nd_tensor *scale = nd_mul_scalar(known, 0.5);
    nd_auto nd_tensor *twice = nd_mul_scalar(scale, 2);
    nd_auto nd_tensor *rest = nd_sub(logarithm, twice);
    nd_auto nd_tensor *size = nd_exp(rest);
    nd_auto nd_tensor *constant = nd_detach(sign);
    *ret_scale = nd_exp(scale);
    return nd_mul(constant, size);
}

/// Whether determinants do not fit into their dtype, though no matrix is singular.
static bool some_do_not_fit(const nd_tensor *packed, bool *ret_some) {
    nd_auto nd_tensor *any = NULL;
    nd_no_grad {
        nd_auto nd_tensor *det = nd_slice(packed, 2, 3, 1, -1);
        nd_auto nd_tensor *inverse = nd_reciprocal(det);
        nd_auto nd_tensor *both = nd_mul(det, inverse); // NaN of 0 and of infinity
        nd_auto nd_tensor *fits = nd_isfinite(both);
        nd_auto nd_tensor *others = nd_logical_not(fits);
        any = nd_any(others, 0, NULL, false);
    }
    double number = 0;
    const bool known = number_of(any, &number);
    *ret_some = number != 0;
    return known;
}

/// det x times x^-T.
static nd_tensor *by_inverse(const nd_tensor *packed, const nd_tensor *inverse) {
    nd_auto nd_tensor *turned = nd__linalg_turn(inverse);
    bool scaled;
    if (!turned || !some_do_not_fit(packed, &scaled))
        return NULL;
    if (!scaled) {
        nd_auto nd_tensor *det = nd_slice(packed, 2, 3, 1, -1);
        nd_auto nd_tensor *factor = nd_unsqueeze(det, -1);
        return nd_mul(factor, turned);
    }
    nd_auto nd_tensor *scale = NULL;
    nd_auto nd_tensor *det = scaled_det(packed, &scale);
    nd_auto nd_tensor *by = nd_unsqueeze(scale, -1), *factor = nd_unsqueeze(det, -1);
    nd_auto nd_tensor *once = nd_mul(turned, by);
    nd_auto nd_tensor *twice = nd_mul(once, by);
    return nd_mul(factor, twice);
}

// -------------------------------------------------------------------------------------------------
// where there is none

/// What x is turned by, of each matrix: constants.
typedef struct turning {
    nd_tensor *u, *vt, *sign; ///< the sign of det u det v: [..., 1, 1]
    int64_t lacking;          ///< the most singular values of one that are no more than rounding
} turning;

static void turning_release(turning *t) {
    nd_release(t->u);
    nd_release(t->vt);
    nd_release(t->sign);
}

static bool count_lacking(const nd_tensor *x, const nd_tensor *s, int64_t *ret_lacking) {
    nd_auto nd_tensor *first = nd_slice(s, 0, 1, 1, -1);
    nd_auto nd_tensor *limit = nd_mul_scalar(first, rounding_of(x));
    nd_auto nd_tensor *is_more = nd_greater(s, limit);
    nd_auto nd_tensor *is_lacking = nd_logical_not(is_more);
    nd_auto nd_tensor *counts = nd_count_nonzero(is_lacking, 1, (const int[]){-1}, false);
    nd_auto nd_tensor *most = nd_max(counts, 0, NULL, false);
    return most && nd_get_item_i64(most, ret_lacking) == ND_OK;
}

static bool turning_of(const nd_tensor *x, turning *ret) {
    bool known = false;
    *ret = (turning){.u = NULL};
    nd_no_grad {
        nd_auto nd_tensor *s = NULL;
        if (nd_svd(x, &ret->u, &s, &ret->vt) == ND_OK) {
            nd_auto nd_tensor *product = nd__linalg_product(ret->u, ret->vt);
            nd_auto nd_tensor *det = nd_det(product);
            nd_auto nd_tensor *sign = nd_sign(det);
            ret->sign = as_matrix(sign);
            known = count_lacking(x, s, &ret->lacking) && ret->sign;
        }
    }
    return known;
}

/// Rows from `row` and columns from `column` on, up to the others.
static nd_tensor *block(const nd_tensor *x, int64_t row, int64_t end_row, int64_t column,
                        int64_t end_column) {
    nd_auto nd_tensor *rows = nd_slice(x, row, end_row, 1, -2);
    return nd_slice(rows, column, end_column, 1, -1);
}

/// det z [..., 1, 1] and c(z), by products of z alone: m = 1, and n - 1 times z m - tr(z m) / k.
static nd_tensor *by_products(const nd_tensor *z, int64_t n, nd_tensor **ret_cofactors) {
    nd_auto nd_tensor *one = nd__linalg_identity(z, n);
    nd_tensor *m = z ? nd_expand(one, z->ndim, z->shape) : NULL;
    for (int64_t k = 1; k < n; k++) {
        nd_auto nd_tensor *last = m, *product = nd__linalg_product(z, last);
        nd_auto nd_tensor *trace = nd_trace(product, 0);
        nd_auto nd_tensor *mean = nd_mul_scalar(trace, 1.0 / (double)k);
        nd_auto nd_tensor *factor = as_matrix(mean);
        nd_auto nd_tensor *diagonal = nd_mul(one, factor);
        m = nd_sub(product, diagonal);
    }
    nd_auto nd_tensor *last = m, *product = nd__linalg_product(z, last);
    nd_auto nd_tensor *trace = nd_trace(product, 0);
    const double sign = n % 2 == 0 ? -1 : 1;
    nd_auto nd_tensor *mean = nd_mul_scalar(trace, sign / (double)n);
    nd_auto nd_tensor *turned = nd__linalg_turn(last);
    *ret_cofactors = nd_mul_scalar(turned, sign);
    return as_matrix(mean);
}

/// c(a), where the last `lacking` rows and columns are t's.
static nd_tensor *cofactors_of_blocks(const nd_tensor *a, int64_t n, int64_t lacking) {
    const int64_t cut = n - lacking;
    nd_auto nd_tensor *p = block(a, 0, cut, 0, cut), *q = block(a, 0, cut, cut, n);
    nd_auto nd_tensor *r = block(a, cut, n, 0, cut), *t = block(a, cut, n, cut, n);
    nd_auto nd_tensor *inverse = nd_inv(p), *det = nd_det(p), *d = as_matrix(det);
    nd_auto nd_tensor *x = nd__linalg_product(inverse, q), *y = nd__linalg_product(r, inverse);
    nd_auto nd_tensor *rx = nd__linalg_product(r, x), *z = nd_sub(t, rx), *of_z = NULL;
    nd_auto nd_tensor *det_z = by_products(z, lacking, &of_z), *of_t = nd_mul(d, of_z);
    nd_auto nd_tensor *xt = nd__linalg_turn(x), *yt = nd__linalg_turn(y);
    nd_auto nd_tensor *less_r = nd__linalg_product(of_t, xt), *of_r = nd_neg(less_r);
    nd_auto nd_tensor *less_q = nd__linalg_product(yt, of_t), *of_q = nd_neg(less_q);
    nd_auto nd_tensor *through = nd__linalg_product(less_q, xt);
    nd_auto nd_tensor *whole = nd_mul(d, det_z), *turned = nd__linalg_turn(inverse);
    nd_auto nd_tensor *own = nd_mul(whole, turned), *of_p = nd_add(own, through);
    if (!of_p || !of_q || !of_r || !of_t)
        return NULL;
    nd_auto nd_tensor *upper = nd_concat(2, (const nd_tensor *[]){of_p, of_q}, -1);
    nd_auto nd_tensor *lower = nd_concat(2, (const nd_tensor *[]){of_r, of_t}, -1);
    return upper && lower ? nd_concat(2, (const nd_tensor *[]){upper, lower}, -2) : NULL;
}

static nd_tensor *by_blocks(const nd_tensor *x, const turning *t) {
    const int64_t n = x->shape[x->ndim - 1];
    nd_auto nd_tensor *ut = nd__linalg_turn(t->u), *v = nd__linalg_turn(t->vt);
    nd_auto nd_tensor *half = nd__linalg_product(ut, x), *a = nd__linalg_product(half, v);
    nd_auto nd_tensor *of_a = a ? cofactors_of_blocks(a, n, t->lacking) : NULL;
    nd_auto nd_tensor *left = nd__linalg_product(t->u, of_a);
    nd_auto nd_tensor *turned = nd__linalg_product(left, t->vt);
    return nd_mul(t->sign, turned);
}

// -------------------------------------------------------------------------------------------------

/// Whether all is finite, and whether a matrix has a pivot of 0.
static bool look_at(const nd_tensor *x, const nd_tensor *packed, bool *ret_finite,
                    bool *ret_singular) {
    nd_auto nd_tensor *every = NULL, *regular = NULL;
    nd_no_grad {
        nd_auto nd_tensor *fits = nd_isfinite(x);
        nd_auto nd_tensor *sign = nd_slice(packed, 0, 1, 1, -1);
        every = nd_all(fits, 0, NULL, false);
        regular = nd_all(sign, 0, NULL, false);
    }
    double finite = 0, nonzero = 0;
    const bool known = number_of(every, &finite) && number_of(regular, &nonzero);
    *ret_finite = finite != 0;
    *ret_singular = nonzero == 0;
    return known;
}

/// c(x). `packed`: sign, logarithm and value of its determinant.
static nd_tensor *cofactors(const nd_tensor *x, const nd_tensor *packed) {
    bool finite, singular;
    if (x && x->numel == 0)
        return nd_mul_scalar(x, 0);
    if (x && x->shape[x->ndim - 1] <= CLOSED_MOST)
        return cofactors_of_few(x, x->shape[x->ndim - 1]);
    if (!x || !packed || !look_at(x, packed, &finite, &singular))
        return NULL;
    nd_auto nd_tensor *inverse = singular && finite ? NULL : nd_inv(x);
    if (!inverse && !(singular && finite))
        return NULL;
    double condition = INFINITY;
    if (inverse && !condition_of(x, inverse, &condition))
        return NULL;
    if (!finite || condition * rounding_of(x) <= 1)
        return by_inverse(packed, inverse);
    turning t;
    nd_auto nd_tensor *result = NULL;
    if (!turning_of(x, &t))
        result = NULL;
    else if (inverse && (t.lacking == 0 || t.lacking > LACKING_MOST))
        result = by_inverse(packed, inverse);
    else if (t.lacking > LACKING_MOST)
        result = nd_mul_scalar(x, 0);
    else
        result = by_blocks(x, &t);
    turning_release(&t);
    return nd_steal(&result);
}

/// g times c(x) of det x; of log |det x| g times x^-T. The sign has no slope.
nd_status nd__rule_slogdet(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *packed = nd__record_saved(call->node, 1);
    const bool is_det = call->node->attrs.i[0];
    nd_auto nd_tensor *g =
        nd_slice(nd__rules_output_grad(call), is_det ? 2 : 1, is_det ? 3 : 2, 1, -1);
    nd_auto nd_tensor *slope = nd_unsqueeze(g, -1);
    if (is_det) {
        nd_auto nd_tensor *of_det = cofactors(x, packed);
        return nd__rule_give(call, 0, nd_mul(slope, of_det));
    }
    nd_auto nd_tensor *turned = nd__linalg_turn(x);
    nd_auto nd_tensor *inverse = nd_inv(turned);
    return nd__rule_give(call, 0, nd_mul(slope, inverse));
}
