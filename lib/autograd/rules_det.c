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
#include "lib/ops/operands.h"
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

/// Of a mask: whether any element holds. False with an error: it is NULL, or cannot be read.
static bool any_of(const nd_tensor *mask, bool *ret_any) {
    nd_auto nd_tensor *any = NULL;
    nd_no_grad {
        any = nd_any(mask, 0, NULL, false);
    }
    int64_t number = 0;
    if (!any || nd_get_item_i64(any, &number) != ND_OK)
        return false;
    *ret_any = number != 0;
    return true;
}

static nd_tensor *identity_like(const nd_tensor *x) {
    return x ? nd__linalg_identity(x, x->shape[x->ndim - 1]) : NULL;
}

static nd_tensor *number_like(const nd_tensor *x, double number) {
    return x ? nd__operands_number_like("det", x, x->dtype, ND_NUMBER(number)) : NULL;
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

/// The largest sum of a row of |a| |b|, of each matrix: [..., 1, 1].
static nd_tensor *largest_row(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *product = nd__linalg_product(a, b);
    nd_auto nd_tensor *sums = nd_sum(product, 1, (const int[]){-1}, true);
    return nd_max(sums, 1, (const int[]){-2}, true);
}

/// Where an inverse is worth something: by a condition that scales of rows or of columns leave alone
/// (Skeel 1979).
static nd_tensor *is_worth(const nd_tensor *x, const nd_tensor *inverse) {
    nd_auto nd_tensor *a = nd_abs(x), *b = nd_abs(inverse);
    nd_auto nd_tensor *by_rows = largest_row(b, a), *by_columns = largest_row(a, b);
    nd_auto nd_tensor *condition = nd_minimum(by_rows, by_columns);
    nd_auto nd_tensor *most = number_like(x, 1 / (x ? rounding_of(x) : 1));
    return nd_less_equal(condition, most);
}

/// The same product where det x does not fit: of x as scaled so that its determinant is 1 or -1.
static nd_tensor *by_scaled_inverse(const nd_tensor *x) {
    const double n = (double)x->shape[x->ndim - 1];
    nd_auto nd_tensor *by = NULL, *back = NULL;
    nd_no_grad {
        nd_auto nd_tensor *logarithm = NULL;
        if (nd_slogdet(x, NULL, &logarithm) == ND_OK) {
            nd_auto nd_tensor *less = nd_mul_scalar(logarithm, -1 / n), *scale = nd_exp(less);
            nd_auto nd_tensor *rest = nd_mul_scalar(logarithm, 1 - 1 / n), *size = nd_exp(rest);
            by = as_matrix(scale);
            back = as_matrix(size);
        }
    }
    nd_auto nd_tensor *y = nd_mul(x, by), *value = nd_det(y), *det = as_matrix(value);
    nd_auto nd_tensor *inverse = nd_inv(y), *turned = nd__linalg_turn(inverse);
    nd_auto nd_tensor *product = nd_mul(det, turned);
    return nd_mul(product, back);
}

/// det x times x^-T of regular matrices, det [..., 1, 1].
static nd_tensor *by_inverse(const nd_tensor *x, const nd_tensor *det, const nd_tensor *inverse) {
    nd_auto nd_tensor *turned = nd__linalg_turn(inverse), *fits = NULL, *fails = NULL;
    nd_no_grad {
        nd_auto nd_tensor *reciprocal = nd_reciprocal(det);
        nd_auto nd_tensor *both = nd_mul(det, reciprocal); // NaN of 0 and of infinity
        fits = nd_isfinite(both);
        fails = nd_logical_not(fits);
    }
    bool some_fail;
    if (!turned || !any_of(fails, &some_fail))
        return NULL;
    if (!some_fail)
        return nd_mul(det, turned);
    nd_auto nd_tensor *one = number_like(det, 1), *tame = nd_where(fits, det, one);
    nd_auto nd_tensor *plain = nd_mul(tame, turned), *other = by_scaled_inverse(x);
    return nd_where(fits, plain, other);
}

// -------------------------------------------------------------------------------------------------
// where there is none

/// What x is scaled and turned by, of each matrix: constants. a = u^T (e^rows x e^columns) v.
typedef struct turning {
    nd_tensor *rows, *columns; ///< [..., n, 1] and [..., 1, n]; NULL: x is not scaled
    nd_tensor *u, *vt, *sign;  ///< the last: of det u det v, [..., 1, 1]
    nd_tensor *lacking; ///< how many singular values are no more than rounding, i64 [..., 1, 1]
} turning;

static void turning_release(turning *t) {
    nd_tensor *const all[] = {t->rows, t->columns, t->u, t->vt, t->sign, t->lacking};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        nd_release(all[i]);
}

/// Logarithms of what brings the largest element along an axis to 1; 0 where all are 0.
static nd_tensor *scales_along(const nd_tensor *x, int axis) {
    nd_auto nd_tensor *size = nd_abs(x), *largest = nd_max(size, 1, &axis, true);
    nd_auto nd_tensor *one = number_like(x, 1);
    nd_auto nd_tensor *zero = number_like(x, 0), *is_zero = nd_equal(largest, zero);
    nd_auto nd_tensor *tame = nd_where(is_zero, one, largest), *logarithm = nd_log(tame);
    return nd_neg(logarithm);
}

static nd_tensor *scaled(const nd_tensor *x, const turning *t) {
    if (!t->rows || !t->columns)
        return x ? nd_retain(x) : NULL;
    nd_auto nd_tensor *rows = nd_exp(t->rows), *columns = nd_exp(t->columns);
    nd_auto nd_tensor *half = nd_mul(x, rows);
    return nd_mul(half, columns);
}

/// Rows and columns of far other sizes hide in the rounding of the largest. Powers of e are not
/// exact, so what needs no scales gets none.
static bool scale(const nd_tensor *x, turning *t) {
    const double far = 7;
    t->rows = scales_along(x, -1);
    nd_auto nd_tensor *factors = nd_exp(t->rows), *even = nd_mul(x, factors);
    t->columns = scales_along(even, -2);
    nd_auto nd_tensor *high = nd_max(t->rows, 1, (const int[]){-2}, true);
    nd_auto nd_tensor *low = nd_min(t->rows, 1, (const int[]){-2}, true);
    nd_auto nd_tensor *apart = nd_sub(high, low), *most = number_like(x, far);
    nd_auto nd_tensor *rows_are = nd_greater(apart, most);
    nd_auto nd_tensor *columns_are = nd_greater(t->columns, most);
    bool by_rows, by_columns;
    if (!any_of(rows_are, &by_rows) || !any_of(columns_are, &by_columns))
        return false;
    if (!by_rows && !by_columns) {
        nd_release(t->rows);
        nd_release(t->columns);
        t->rows = t->columns = NULL;
    }
    return true;
}

static nd_tensor *count_lacking(const nd_tensor *x, const nd_tensor *s) {
    nd_auto nd_tensor *first = nd_slice(s, 0, 1, 1, -1);
    nd_auto nd_tensor *limit = nd_mul_scalar(first, rounding_of(x));
    nd_auto nd_tensor *is_more = nd_greater(s, limit), *is_lacking = nd_logical_not(is_more);
    nd_auto nd_tensor *counts = nd_count_nonzero(is_lacking, 1, (const int[]){-1}, false);
    return as_matrix(counts);
}

static bool turning_of(const nd_tensor *x, turning *ret) {
    *ret = (turning){.u = NULL};
    nd_no_grad {
        nd_auto nd_tensor *y = scale(x, ret) ? scaled(x, ret) : NULL, *s = NULL;
        if (y && nd_svd(y, &ret->u, &s, &ret->vt) == ND_OK) {
            nd_auto nd_tensor *product = nd__linalg_product(ret->u, ret->vt);
            nd_auto nd_tensor *det = nd_det(product), *sign = nd_sign(det);
            ret->sign = as_matrix(sign);
            ret->lacking = count_lacking(x, s);
        }
    }
    return ret->sign && ret->lacking;
}

/// A constant where the mask holds, `other` elsewhere. The constant is consumed.
static nd_tensor *kept_where(const nd_tensor *mask, nd_tensor *constant, nd_tensor *other) {
    nd_auto nd_tensor *before = constant, *instead = other;
    return before ? nd_where(mask, before, instead) : NULL;
}

/// As if the others were identities.
static void turn_others_not(turning *t, const nd_tensor *mask) {
    nd_no_grad {
        const nd_tensor *u = t->u;
        nd_auto nd_tensor *like = u ? nd_retain(u) : NULL;
        t->u = kept_where(mask, t->u, identity_like(like));
        t->vt = kept_where(mask, t->vt, identity_like(like));
        t->sign = kept_where(mask, t->sign, number_like(like, 1));
        t->rows = kept_where(mask, t->rows, number_like(like, 0));
        t->columns = kept_where(mask, t->columns, number_like(like, 0));
    }
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

/// c(x) from that of the scaled x: times e^(what its own row and column have less than all).
static nd_tensor *unscaled(const nd_tensor *cofactors, const turning *t) {
    if (!t->rows || !t->columns)
        return cofactors ? nd_retain(cofactors) : NULL;
    nd_auto nd_tensor *of_rows = nd_sum(t->rows, 1, (const int[]){-2}, true);
    nd_auto nd_tensor *of_columns = nd_sum(t->columns, 1, (const int[]){-1}, true);
    nd_auto nd_tensor *row = nd_sub(t->rows, of_rows), *column = nd_sub(t->columns, of_columns);
    nd_auto nd_tensor *both = nd_add(row, column), *half = nd_mul_scalar(both, 0.5);
    nd_auto nd_tensor *factor = nd_exp(half), *once = nd_mul(cofactors, factor);
    return nd_mul(once, factor);
}

/// Of matrices that lack up to `lacking` ranks.
static nd_tensor *by_blocks(const nd_tensor *x, const turning *t, int64_t lacking) {
    nd_auto nd_tensor *ut = nd__linalg_turn(t->u), *v = nd__linalg_turn(t->vt);
    nd_auto nd_tensor *y = scaled(x, t);
    nd_auto nd_tensor *half = nd__linalg_product(ut, y), *a = nd__linalg_product(half, v);
    nd_auto nd_tensor *of_a = a ? cofactors_of_blocks(a, x->shape[x->ndim - 1], lacking) : NULL;
    nd_auto nd_tensor *left = nd__linalg_product(t->u, of_a);
    nd_auto nd_tensor *turned = nd__linalg_product(left, t->vt);
    nd_auto nd_tensor *of_y = nd_mul(t->sign, turned);
    return unscaled(of_y, t);
}

// -------------------------------------------------------------------------------------------------
// of each matrix by what suits it

/// By the inverse, where the mask does not hold; 0 where a pivot is 0.
static nd_tensor *by_inverse_but(const nd_tensor *x, const nd_tensor *mask,
                                 const nd_tensor *singular) {
    nd_auto nd_tensor *left_out = NULL;
    nd_no_grad {
        left_out = nd_logical_or(mask, singular);
    }
    nd_auto nd_tensor *one = identity_like(x), *tame = nd_where(left_out, one, x);
    nd_auto nd_tensor *value = nd_det(tame), *det = as_matrix(value), *inverse = nd_inv(tame);
    nd_auto nd_tensor *product = inverse && det ? by_inverse(tame, det, inverse) : NULL;
    nd_auto nd_tensor *zero = number_like(x, 0);
    return nd_where(singular, zero, product);
}

/// Where ranks are lacking, and not too many for blocks, of what has no worthy inverse.
static bool find_few(const turning *t, const nd_tensor *worth, nd_tensor **ret_few, bool *ret_some,
                     int64_t *ret_lacking) {
    nd_auto nd_tensor *least = nd__operands_number_like("det", t->lacking, ND_I64, ND_NUMBER(1));
    nd_auto nd_tensor *most =
        nd__operands_number_like("det", t->lacking, ND_I64, ND_NUMBER(LACKING_MOST));
    nd_auto nd_tensor *lacks = nd_greater_equal(t->lacking, least);
    nd_auto nd_tensor *not_much = nd_less_equal(t->lacking, most);
    nd_auto nd_tensor *suits = nd_logical_and(lacks, not_much), *worthless = nd_logical_not(worth);
    nd_auto nd_tensor *few = nd_logical_and(suits, worthless), *others = nd_logical_not(few);
    nd_auto nd_tensor *counts = nd_masked_fill(t->lacking, others, 0);
    nd_auto nd_tensor *largest = nd_max(counts, 0, NULL, false);
    if (!largest || !any_of(few, ret_some) || nd_get_item_i64(largest, ret_lacking) != ND_OK)
        return false;
    *ret_few = nd_steal(&few);
    return true;
}

/// By blocks where that suits, else by the inverse.
static nd_tensor *by_either(const nd_tensor *x, const nd_tensor *worth, const nd_tensor *singular) {
    turning t;
    nd_auto nd_tensor *few = NULL;
    int64_t lacking = 0;
    bool some = false, known = turning_of(x, &t);
    nd_no_grad {
        known = known && find_few(&t, worth, &few, &some, &lacking);
    }
    nd_auto nd_tensor *others = known ? by_inverse_but(x, few, singular) : NULL;
    nd_auto nd_tensor *result = NULL;
    if (others && some) {
        turn_others_not(&t, few);
        nd_auto nd_tensor *one = identity_like(x), *tame = nd_where(few, x, one);
        nd_auto nd_tensor *blocks = by_blocks(tame, &t, lacking);
        result = nd_where(few, blocks, others);
    } else {
        result = nd_steal(&others);
    }
    turning_release(&t);
    return nd_steal(&result);
}

/// c(x) where all is finite; `singular`: where a pivot is 0. det: NULL where it is not known.
static nd_tensor *cofactors_of_finite(const nd_tensor *x, const nd_tensor *singular,
                                      const nd_tensor *det) {
    bool some_singular, some_worthless;
    if (!any_of(singular, &some_singular))
        return NULL;
    nd_auto nd_tensor *one = identity_like(x);
    nd_auto nd_tensor *regular = some_singular ? nd_where(singular, one, x) : nd_retain(x);
    nd_auto nd_tensor *inverse = nd_inv(regular), *worth = NULL, *worthless = NULL;
    nd_no_grad {
        nd_auto nd_tensor *is_good = is_worth(regular, inverse);
        nd_auto nd_tensor *is_regular = nd_logical_not(singular);
        worth = nd_logical_and(is_good, is_regular);
        worthless = nd_logical_not(worth);
    }
    if (!any_of(worthless, &some_worthless))
        return NULL;
    if (some_worthless)
        return by_either(x, worth, singular);
    nd_auto nd_tensor *value = det ? nd_retain(det) : nd_det(x), *matrix = as_matrix(value);
    return by_inverse(x, matrix, inverse);
}

/// c(x). `packed`: sign, logarithm and value of its determinant. A matrix that is not finite has NaN.
static nd_tensor *cofactors(const nd_tensor *x, const nd_tensor *packed) {
    if (x && x->numel == 0)
        return nd_mul_scalar(x, 0);
    if (x && x->shape[x->ndim - 1] <= CLOSED_MOST)
        return cofactors_of_few(x, x->shape[x->ndim - 1]);
    nd_auto nd_tensor *finite = NULL, *others = NULL, *singular = NULL;
    nd_no_grad {
        nd_auto nd_tensor *fits = nd_isfinite(x);
        finite = nd_all(fits, 2, (const int[]){-2, -1}, true);
        others = nd_logical_not(finite);
        nd_auto nd_tensor *sign = nd_select(packed, 0, -1), *as_it_is = as_matrix(sign);
        nd_auto nd_tensor *zero = number_like(x, 0);
        singular = nd_equal(as_it_is, zero);
    }
    bool some;
    if (!x || !any_of(others, &some))
        return NULL;
    nd_auto nd_tensor *det = nd_select(packed, 2, -1);
    if (!some)
        return cofactors_of_finite(x, singular, det);
    nd_auto nd_tensor *one = identity_like(x), *tame = nd_where(finite, x, one);
    nd_auto nd_tensor *result = cofactors_of_finite(tame, singular, NULL);
    nd_auto nd_tensor *none = number_like(x, NAN);
    return nd_where(finite, result, none);
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
