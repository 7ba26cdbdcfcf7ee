// Gradient rules of linear algebra, but for that of determinants (rules_det.c). In every comment g is the gradient of the result, and x^-T the
// inverse of x^T. Of a decomposition g is packed as its results are (lib/ops/linalg.h), with zeros
// for those that nobody used.
//
// The formulas are those of Giles 2008 and, of eigenvectors and singular vectors, of Townsend 2016.
#include "lib/autograd/rules.h"
#include "lib/ops/linalg.h"
#include "lib/tensor/record.h"
#include <nd/linalg.h>
#include <nd/manipulation.h>

/// Rows (from_end 2) or columns (1) of the input.
static int64_t size_of(const nd_rule_call *call, int from_end) {
    const nd_node_input *x = &call->node->inputs[0];
    return x->shape[x->ndim - from_end];
}

/// a^T b.
static nd_tensor *turned_product(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *turned = nd__linalg_turn(a);
    return nd_matmul(turned, b);
}

/// a b^T.
static nd_tensor *product_turned(const nd_tensor *a, const nd_tensor *b) {
    nd_auto nd_tensor *turned = nd__linalg_turn(b);
    return nd_matmul(a, turned);
}

/// Row i of x times s[i].
static nd_tensor *scaled_rows(const nd_tensor *s, const nd_tensor *x) {
    nd_auto nd_tensor *column = nd_unsqueeze(s, -1);
    return nd_mul(column, x);
}

/// a / x, and 0 where x is 0. Not by the reciprocal, which may be infinite where a is 0.
static nd_tensor *quotient_or_zero(const nd_tensor *a, const nd_tensor *x) {
    nd_auto nd_tensor *opposite = nd_neg(x);
    nd_auto nd_tensor *is_zero = nd_equal(x, opposite);
    nd_auto nd_tensor *filled = nd_masked_fill(x, is_zero, 1);
    nd_auto nd_tensor *quotient = nd_div(a, filled);
    return nd_masked_fill(quotient, is_zero, 0);
}

/// [i, j]: x[i, j] / (s[j] - s[i]), and 0 where they are equal.
static nd_tensor *over_differences(const nd_tensor *x, const nd_tensor *s) {
    nd_auto nd_tensor *row = nd_unsqueeze(s, -2);
    nd_auto nd_tensor *column = nd_unsqueeze(s, -1);
    nd_auto nd_tensor *differences = nd_sub(row, column);
    return quotient_or_zero(x, differences);
}

// -------------------------------------------------------------------------------------------------
// equations

/// Gives b the h with a^T h = g, and a the -h z^T of the result z; `triangle` cuts what was not
/// read.
static nd_status give_system(const nd_rule_call *call, nd_tensor *h,
                             nd_tensor *(*triangle)(const nd_tensor *, int64_t), int64_t diagonal) {
    nd_auto nd_tensor *other = h;
    nd_status status = h ? ND_OK : nd_error_get_status();
    if (call->wanted[0] && status == ND_OK) {
        nd_auto nd_tensor *z = nd__record_saved(call->node, 1);
        nd_auto nd_tensor *product = product_turned(other, z);
        nd_auto nd_tensor *read = triangle ? triangle(product, diagonal) : nd_retain(product);
        status = nd__rule_give(call, 0, nd_neg(read));
    }
    if (call->wanted[1] && status == ND_OK)
        status = nd__rule_give(call, 1, nd_steal(&other));
    return status;
}

nd_status nd__rule_solve(const nd_rule_call *call) {
    nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *turned = nd__linalg_turn(a);
    return give_system(call, nd_solve(turned, nd__rules_output_grad(call)), NULL, 0);
}

nd_status nd__rule_solve_triangular(const nd_rule_call *call) {
    bool upper = call->node->attrs.i[0], unit = call->node->attrs.i[1];
    nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *turned = nd__linalg_turn(a);
    nd_tensor *h = nd_solve_triangular(turned, nd__rules_output_grad(call), !upper, unit);
    return upper ? give_system(call, h, nd_triu, unit) : give_system(call, h, nd_tril, -(int)unit);
}

/// The gradient of x for the gradient `g` [n, m] of p, the pseudo-inverse of x [m, n] (Golub,
/// Pereyra 1973): with h = g^T and c = h p p^T,
/// -(p h p)^T + c - x p c + p^T p (h - h p x).
static nd_tensor *through_pinv(const nd_tensor *x, const nd_tensor *p, const nd_tensor *g) {
    nd_auto nd_tensor *h = nd__linalg_turn(g);
    nd_auto nd_tensor *k = nd_matmul(h, p);
    nd_auto nd_tensor *c = product_turned(k, p);
    nd_auto nd_tensor *pk = nd_matmul(p, k);
    nd_auto nd_tensor *first = nd__linalg_turn(pk);
    nd_auto nd_tensor *xp = nd_matmul(x, p);
    nd_auto nd_tensor *second = nd_matmul(xp, c);
    nd_auto nd_tensor *kx = nd_matmul(k, x);
    nd_auto nd_tensor *rest = nd_sub(h, kx);
    nd_auto nd_tensor *square = turned_product(p, p);
    nd_auto nd_tensor *third = nd_matmul(square, rest);
    nd_auto nd_tensor *sum = nd_add(c, third);
    nd_auto nd_tensor *less = nd_sub(sum, first);
    return nd_sub(less, second);
}

nd_status nd__rule_pinv(const nd_rule_call *call) {
    nd_auto nd_tensor *x = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *p = nd__record_saved(call->node, 1);
    return nd__rule_give(call, 0, through_pinv(x, p, nd__rules_output_grad(call)));
}

/// The result is p b, where p is the pseudo-inverse of a.
nd_status nd__rule_lstsq(const nd_rule_call *call) {
    nd_auto nd_tensor *a = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *b = nd__record_saved(call->node, 1);
    nd_auto nd_tensor *p = a ? nd_pinv(a, call->node->attrs.f[0]) : NULL;
    const nd_tensor *g = nd__rules_output_grad(call);
    nd_status status = ND_OK;
    if (call->wanted[0]) {
        nd_auto nd_tensor *of_p = product_turned(g, b);
        status = nd__rule_give(call, 0, through_pinv(a, p, of_p));
    }
    if (call->wanted[1] && status == ND_OK)
        status = nd__rule_give(call, 1, turned_product(p, g));
    return status;
}

// -------------------------------------------------------------------------------------------------
// decompositions

/// x's lower triangle with half its diagonal.
static nd_tensor *lower_half(const nd_tensor *x) {
    nd_auto nd_tensor *lower = nd_tril(x, 0);
    nd_auto nd_tensor *below = nd_tril(x, -1);
    nd_auto nd_tensor *sum = nd_add(lower, below);
    return nd_mul_scalar(sum, 0.5);
}

/// l^-T h l^-1, where h is the lower half of l^T g. Its transpose is given, which is as good: what
/// is decomposed is symmetric.
nd_status nd__rule_cholesky(const nd_rule_call *call) {
    nd_auto nd_tensor *l = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *upper = nd__linalg_turn(l);
    nd_auto nd_tensor *product = nd_matmul(upper, nd__rules_output_grad(call));
    nd_auto nd_tensor *half = lower_half(product);
    nd_auto nd_tensor *left = nd_solve_triangular(upper, half, true, false);
    nd_auto nd_tensor *turned = nd__linalg_turn(left);
    return nd__rule_give(call, 0, nd_solve_triangular(upper, turned, true, false));
}

/// (g_q + q h) r^-T, where h is symmetric with the upper triangle of g_r r^T - q^T g_q.
nd_status nd__rule_qr(const nd_rule_call *call) {
    int64_t m = size_of(call, 2), n = size_of(call, 1);
    nd_auto nd_tensor *packed = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *q = nd__linalg_part(packed, 0, m, n);
    nd_auto nd_tensor *r = nd__linalg_part(packed, m * n, n, n);
    nd_auto nd_tensor *of_q = nd__linalg_part(nd__rules_output_grad(call), 0, m, n);
    nd_auto nd_tensor *of_r = nd__linalg_part(nd__rules_output_grad(call), m * n, n, n);
    nd_auto nd_tensor *from_r = product_turned(of_r, r);
    nd_auto nd_tensor *from_q = turned_product(q, of_q);
    nd_auto nd_tensor *difference = nd_sub(from_r, from_q);
    nd_auto nd_tensor *upper = nd_triu(difference, 0);
    nd_auto nd_tensor *above = nd_triu(difference, 1);
    nd_auto nd_tensor *below = nd__linalg_turn(above);
    nd_auto nd_tensor *h = nd_add(upper, below);
    nd_auto nd_tensor *along = nd_matmul(q, h);
    nd_auto nd_tensor *sum = nd_add(of_q, along);
    nd_auto nd_tensor *turned = nd__linalg_turn(sum);
    nd_auto nd_tensor *solved = nd_solve_triangular(r, turned, true, false);
    return nd__rule_give(call, 0, nd__linalg_turn(solved));
}

/// v (diag(g_values) + v^T g_v / (s[j] - s[i])) v^T.
nd_status nd__rule_eigh(const nd_rule_call *call) {
    int64_t n = size_of(call, 1);
    nd_auto nd_tensor *packed = nd__record_saved(call->node, 0);
    nd_auto nd_tensor *s = nd__linalg_vector(packed, 0, n);
    nd_auto nd_tensor *v = nd__linalg_part(packed, n, n, n);
    nd_auto nd_tensor *of_s = nd__linalg_vector(nd__rules_output_grad(call), 0, n);
    nd_auto nd_tensor *of_v = nd__linalg_part(nd__rules_output_grad(call), n, n, n);
    nd_auto nd_tensor *product = turned_product(v, of_v);
    nd_auto nd_tensor *turning = over_differences(product, s);
    nd_auto nd_tensor *vt = nd__linalg_turn(v);
    nd_auto nd_tensor *turned = nd_matmul(turning, vt);
    nd_auto nd_tensor *stretched = scaled_rows(of_s, vt);
    nd_auto nd_tensor *sum = nd_add(turned, stretched);
    return nd__rule_give(call, 0, nd_matmul(v, sum));
}

/// What svd saved, and the gradients of its parts.
typedef struct svd_parts {
    nd_tensor *u, *s, *vt, *of_u, *of_s, *of_vt;
} svd_parts;

static svd_parts parts_of(const nd_rule_call *call) {
    int64_t m = size_of(call, 2), n = size_of(call, 1), k = m < n ? m : n;
    nd_auto nd_tensor *packed = nd__record_saved(call->node, 0);
    const nd_tensor *g = nd__rules_output_grad(call);
    return (svd_parts){
        nd__linalg_part(packed, 0, m, k),         nd__linalg_vector(packed, m * k, k),
        nd__linalg_part(packed, m * k + k, k, n), nd__linalg_part(g, 0, m, k),
        nd__linalg_vector(g, m * k, k),           nd__linalg_part(g, m * k + k, k, n),
    };
}

static void release_parts(svd_parts *p) {
    nd_tensor *const all[] = {p->u, p->s, p->vt, p->of_u, p->of_s, p->of_vt};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        nd_release(all[i]);
}

/// [i, j]: (x - x^T) / (s[j]^2 - s[i]^2) times s[j], or times s[i] (`by_rows`). Without squares, whose
/// range s may leave: the quotient by the difference times that by the sum, of which both are halves.
static nd_tensor *turning_of(const nd_tensor *x, const nd_tensor *s, bool by_rows) {
    nd_auto nd_tensor *turned = nd__linalg_turn(x);
    nd_auto nd_tensor *difference = nd_sub(x, turned);
    nd_auto nd_tensor *quotient = over_differences(difference, s);
    nd_auto nd_tensor *half = nd_mul_scalar(s, 0.5);
    nd_auto nd_tensor *row = nd_unsqueeze(half, -2);
    nd_auto nd_tensor *column = nd_unsqueeze(half, -1);
    nd_auto nd_tensor *sum = nd_add(row, column);
    nd_auto nd_tensor *share = quotient_or_zero(by_rows ? column : row, sum);
    return nd_mul(quotient, share);
}

/// u ((u^T g_u turned) s + s (v^T g_v turned) + diag(g_s)) v^T: what stays within the spaces of u
/// and v.
static nd_tensor *within(const svd_parts *p) {
    nd_auto nd_tensor *along_u = turned_product(p->u, p->of_u);
    nd_auto nd_tensor *along_v = product_turned(p->vt, p->of_vt);
    nd_auto nd_tensor *left = turning_of(along_u, p->s, false);
    nd_auto nd_tensor *right = turning_of(along_v, p->s, true);
    nd_auto nd_tensor *turning = nd_add(left, right);
    nd_auto nd_tensor *turned = nd_matmul(turning, p->vt);
    nd_auto nd_tensor *stretched = scaled_rows(p->of_s, p->vt);
    nd_auto nd_tensor *sum = nd_add(turned, stretched);
    return nd_matmul(p->u, sum);
}

/// (g_u - u u^T g_u) s^-1 v^T: what leaves the space of u.
static nd_tensor *beyond_u(const svd_parts *p) {
    nd_auto nd_tensor *along = turned_product(p->u, p->of_u);
    nd_auto nd_tensor *inside = nd_matmul(p->u, along);
    nd_auto nd_tensor *outside = nd_sub(p->of_u, inside);
    nd_auto nd_tensor *row = nd_unsqueeze(p->s, -2);
    nd_auto nd_tensor *scaled = quotient_or_zero(outside, row);
    return nd_matmul(scaled, p->vt);
}

/// u s^-1 (g_v^T - g_v^T v v^T): what leaves the space of v.
static nd_tensor *beyond_v(const svd_parts *p) {
    nd_auto nd_tensor *along = product_turned(p->of_vt, p->vt);
    nd_auto nd_tensor *inside = nd_matmul(along, p->vt);
    nd_auto nd_tensor *outside = nd_sub(p->of_vt, inside);
    nd_auto nd_tensor *column = nd_unsqueeze(p->s, -1);
    nd_auto nd_tensor *scaled = quotient_or_zero(outside, column);
    return nd_matmul(p->u, scaled);
}

nd_status nd__rule_svd(const nd_rule_call *call) {
    int64_t m = size_of(call, 2), n = size_of(call, 1);
    svd_parts p = parts_of(call);
    nd_auto nd_tensor *gradient = within(&p);
    if (m != n) {
        nd_auto nd_tensor *beyond = m > n ? beyond_u(&p) : beyond_v(&p);
        nd_tensor *sum = nd_add(gradient, beyond);
        nd_release(gradient);
        gradient = sum;
    }
    release_parts(&p);
    return nd__rule_give(call, 0, nd_steal(&gradient));
}
