// Singular values of two diagonals by implicit QR iterations (Golub and Reinsch 1970), without a
// shift where that would cost small values their digits (Demmel and Kahan 1990). As
// spectral_iteration.h, which it includes, in f64 for both dtypes.
//
// Invariant: a number of e becomes 0 only where no singular value changes by more than `unit` of
// itself, or below what counts as 0 beside the largest.
#ifndef ND_KERNELS_CPU_BIDIAGONAL_ITERATION_H
#define ND_KERNELS_CPU_BIDIAGONAL_ITERATION_H
#include "kernels/cpu/spectral_iteration.h"

/// Up to this a singular value counts as 0.
#define ND__NO_VALUE 1e-290

/// What a sweep's rotations are written to; NULL: nowhere.
typedef struct bidiagonal_pairs {
    double *left, *right;
} bidiagonal_pairs;

static inline void keep(double *pairs, int64_t i, rotation turn) {
    if (pairs) {
        pairs[2 * i] = turn.c;
        pairs[2 * i + 1] = turn.s;
    }
}

/// The smaller singular value of the upper triangle (f, g; 0, h) (LAPACK's las2).
static double smaller_of(double f, double g, double h) {
    const double a = fabs(f), b = fabs(h), beside = fabs(g);
    const double least = a < b ? a : b, most = a < b ? b : a;
    if (least == 0)
        return 0;
    const double sum = 1 + least / most, difference = (most - least) / most;
    if (beside < most) {
        const double u = beside / most * (beside / most);
        return least * (2 / (sqrt(sum * sum + u) + sqrt(difference * difference + u)));
    }
    const double u = most / beside;
    if (u == 0)
        return least * most / beside;
    const double s = sum * u, t = difference * u;
    return 2 * (least * (1 / (sqrt(1 + s * s) + sqrt(1 + t * t)))) * u;
}

/// What is zero enough becomes 0, and the block is no longer one: true. Else the least singular
/// value, nearly.
static bool has_split(const block *b, double unit, double *ret_least) {
    double *d = b->d, *e = b->e;
    const int64_t s = b->step, last = b->last;
    if (fabs(e[(last - 1) * s]) <= unit * fabs(d[last * s])) {
        e[(last - 1) * s] = 0;
        return true;
    }
    double mu = fabs(d[b->first * s]), least = mu;
    for (int64_t i = b->first; i < last; i++) {
        const double beside = fabs(e[i * s]);
        if (beside <= unit * mu) {
            e[i * s] = 0;
            return true;
        }
        mu = fabs(d[(i + 1) * s]) * (mu / (mu + beside));
        least = mu < least ? mu : least;
    }
    *ret_least = least;
    return false;
}

/// 0 where a shift would be lost beside the first number, or would cost the least value its digits.
static double bidiagonal_shift(const block *b, int64_t n, double unit, double least) {
    const double *d = b->d, *e = b->e;
    const int64_t s = b->step, last = b->last;
    double largest = fabs(d[last * s]);
    for (int64_t i = b->first; i < last; i++) {
        const double number = fabs(d[i * s]), beside = fabs(e[i * s]);
        const double larger = number > beside ? number : beside;
        largest = larger > largest ? larger : largest;
    }
    if ((double)n * unit * (least / largest) <= unit / 16)
        return 0;
    const double shift = smaller_of(d[(last - 1) * s], e[(last - 1) * s], d[last * s]);
    const double ratio = shift / fabs(d[b->first * s]);
    return ratio * ratio < unit / 16 ? 0 : shift;
}

static void sweep_without_shift(const block *b, bidiagonal_pairs pairs) {
    double *d = b->d, *e = b->e;
    const int64_t s = b->step, last = b->last;
    rotation right = {1, 0, 0}, left = {1, 0, 0};
    for (int64_t i = b->first; i < last; i++) {
        right = rotation_of(d[i * s] * right.c, e[i * s]);
        if (i > b->first)
            e[(i - 1) * s] = left.s * right.r;
        left = rotation_of(left.c * right.r, d[(i + 1) * s] * right.s);
        d[i * s] = left.r;
        keep(pairs.right, i, right);
        keep(pairs.left, i, left);
    }
    const double h = d[last * s] * right.c;
    d[last * s] = h * left.c;
    e[(last - 1) * s] = h * left.s;
}

static void sweep_with_shift(const block *b, double shift, bidiagonal_pairs pairs) {
    double *d = b->d, *e = b->e;
    const int64_t s = b->step, last = b->last;
    const double head = d[b->first * s];
    double f = (fabs(head) - shift) * ((head < 0 ? -1 : 1) + shift / head), g = e[b->first * s];
    double now = head, beside = g;
    for (int64_t i = b->first; i < last; i++) {
        const rotation right = rotation_of(f, g);
        if (i > b->first)
            e[(i - 1) * s] = right.r;
        const double next = d[(i + 1) * s];
        f = right.c * now + right.s * beside;
        beside = right.c * beside - right.s * now;
        const double under = right.c * next;
        const rotation left = rotation_of(f, right.s * next);
        d[i * s] = left.r;
        f = left.c * beside + left.s * under;
        now = left.c * under - left.s * beside;
        if (i + 1 < last) {
            g = left.s * e[(i + 1) * s];
            beside = left.c * e[(i + 1) * s];
        }
        keep(pairs.right, i, right);
        keep(pairs.left, i, left);
    }
    d[last * s] = now;
    e[(last - 1) * s] = f;
}

/// What counts as 0: what no singular value notices.
static double bidiagonal_limit(const double *d, const double *e, int64_t n, double unit) {
    double mu = fabs(d[0]), least = mu;
    for (int64_t i = 1; i < n && least > 0; i++) {
        mu = fabs(d[i]) * (mu / (mu + fabs(e[i - 1])));
        least = mu < least ? mu : least;
    }
    return fmax(unit * least / sqrt((double)n), ND__NO_VALUE);
}

/// Where the block that ends with `end` begins; what is beside it, and zeros within it, become 0.
static int64_t begin_of_block(double *d, double *e, int64_t end, double limit) {
    int64_t begin = end;
    for (;; begin--) {
        if (fabs(d[begin]) <= limit)
            d[begin] = 0;
        if (begin == 0)
            return 0;
        if (fabs(e[begin - 1]) <= limit) {
            e[begin - 1] = 0;
            return begin;
        }
    }
}

static bool nd__bidiagonal_values(double *d, double *e, int64_t n, double unit, nd__rotations *r) {
    const double limit = bidiagonal_limit(d, e, n, unit);
    int64_t end = n - 1, left = ND__MOST_SWEEPS * n, before[2] = {n, n};
    bool reversed = false;
    while (end > 0) {
        const int64_t begin = begin_of_block(d, e, end, limit);
        if (begin == end) {
            end--;
            continue;
        }
        reversed = is_reversed(d, begin, end, before, reversed);
        before[0] = begin;
        before[1] = end;
        const block b = block_of(d, e, n, begin, end, reversed);
        double least;
        if (has_split(&b, unit, &least))
            continue;
        if (left-- == 0)
            return false;
        begin_sweep(r, &b);
        // What turns columns of the block turns rows of it where it is reversed.
        const bidiagonal_pairs pairs = {sweep_of(r, reversed), sweep_of(r, !reversed)};
        const double shift = bidiagonal_shift(&b, n, unit, least);
        if (shift == 0)
            sweep_without_shift(&b, pairs);
        else
            sweep_with_shift(&b, shift, pairs);
        end_sweep(r);
    }
    if (r)
        r->apply(r);
    return true;
}
#endif
