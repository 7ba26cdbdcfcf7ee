// Singular values of two diagonals without vectors by differential quotients and differences with
// shifts (dqds; Fernando and Parlett 1994, Parlett and Marques 2000): a step is one quotient long,
// where one of an implicit QR iteration is two roots and two quotients.
//
// Of squares q of the diagonal and e of what is beside it a pass makes those of a matrix whose
// squared values are all less by its shift. All stay positive while the shift is below the least of
// them; a pass that fails is done again with a smaller one.
//
// Invariant: as in spectral_iteration.h. Values whose squares have no digits count as 0. Behind a
// split e holds the sum of shifts of what is before it, negative.
#ifndef ND_KERNELS_CPU_QD_ITERATION_H
#define ND_KERNELS_CPU_QD_ITERATION_H
#include "kernels/cpu/bidiagonal_iteration.h"
#include <float.h>
#include <string.h>

/// Passes for each value, those that fail too: about 3 are wanted.
#define ND__MOST_PASSES 40

/// Numbers first ... last, the shifts' sum with what it lost, and what the last pass found.
typedef struct qd {
    double *q, *e, *next_q, *next_e;
    int64_t first, last;
    double sum, lost;
    double least, least_before,
        least_of_others;                  ///< all, without the last, and without the last two
    double at_end, before_end, third_end; ///< the last d, and those before it
    double least_e;
} qd;

/// One pass; false: the shift is too large.
static bool qd_pass(qd *s, double shift) {
    const int64_t first = s->first, last = s->last;
    double d = s->q[first] - shift, least = d, before = d, others = d, end = d, third = d,
           e_least = 1e300;
    for (int64_t i = first; i < last; i++) {
        const double q = d + s->e[i], ratio = s->q[i + 1] / q, e = s->e[i] * ratio;
        s->next_q[i] = q;
        s->next_e[i] = e;
        others = before;
        before = least;
        third = end;
        end = d;
        d = d * ratio - shift;
        least = d < least ? d : least;
        e_least = e < e_least ? e : e_least;
    }
    s->next_q[last] = d;
    s->least = least;
    s->least_before = before;
    s->least_of_others = others;
    s->at_end = d;
    s->before_end = end;
    s->third_end = third;
    s->least_e = e_least;
    return least >= 0 && isfinite(d) && isfinite(e_least);
}

/// A bound below the least value, from what the last number would be alone (Parlett and Marques,
/// 6.3.2).
static double qd_shift_at_end(const qd *s) {
    const int64_t m = s->last;
    const double *q = s->q, *e = s->e;
    const double b1 = sqrt(q[m]) * sqrt(e[m - 1]);
    const double b2 = sqrt(q[m - 1]) * sqrt(e[m - 2]), a = q[m - 1] + e[m - 1];
    const double other = s->least_of_others - a - s->least_of_others / 4;
    const double gap = a - s->at_end - (other > 0 && other > b2 ? b2 / other * b2 : b1 + b2);
    if (gap > 0 && gap > b1)
        return fmax(s->at_end - b1 / gap * b1, s->least / 2);
    double shift = s->at_end > b1 ? s->at_end - b1 : 0;
    if (a > b1 + b2)
        shift = fmin(shift, a - (b1 + b2));
    return fmax(shift, s->least / 3);
}

/// The same from the length of the vector that belongs to the last number.
static double qd_shift_by_vector(const qd *s) {
    const double enough = 0.563;
    double part = 1, square = 0;
    for (int64_t i = s->last - 1; i >= s->first; i--) {
        const double before = part;
        if (s->e[i] > s->q[i])
            return s->least / 4;
        part *= s->e[i] / s->q[i];
        square += part;
        if (100 * fmax(part, before) < square || square > enough)
            break;
    }
    square *= 1.05;
    return square < enough ? s->at_end * (1 - sqrt(square)) / (1 + square) : s->least / 4;
}

static double qd_shift(const qd *s) {
    if (s->least <= 0)
        return 0;
    if (s->least == s->at_end && s->least_before == s->before_end)
        return qd_shift_at_end(s);
    return s->least == s->at_end ? qd_shift_by_vector(s) : s->least / 4;
}

/// A pass with this shift or a smaller one. The number of passes; 0: none succeeds.
static int qd_pass_below(qd *s, double shift) {
    int passes = 1;
    for (; !qd_pass(s, shift); passes++) {
        const bool late = passes == 1 && s->least_before > 0 && s->least + shift > 0;
        if (passes > 4)
            return 0;
        shift = passes > 2 ? 0 : late ? (s->least + shift) * (1 - 2 * DBL_EPSILON) : shift / 4;
    }
    double *q = s->q, *e = s->e;
    s->q = s->next_q;
    s->e = s->next_e;
    s->next_q = q;
    s->next_e = e;
    const double sum = s->sum + (shift + s->lost);
    s->lost = (shift + s->lost) - (sum - s->sum);
    s->sum = sum;
    return passes;
}

/// The values of the last two numbers, which nothing connects with the others.
static void qd_two(const qd *s, double *ret_larger, double *ret_smaller) {
    const double a = s->q[s->last - 1], b = s->q[s->last], e = s->e[s->last - 1];
    const double most = a > b ? a : b, least = a > b ? b : a, t = ((most - least) + e) / 2;
    const double share = t > 0 ? least * (e / t) : 0;
    double more = sqrt(least) * sqrt(e);
    if (t > 0)
        more = share <= t ? least * (e / (t * (1 + sqrt(1 + share / t))))
                          : least * (e / (t + sqrt(t) * sqrt(t + share)));
    const double larger = most + (more + e);
    *ret_larger = larger;
    *ret_smaller = larger > 0 ? least * (most / larger) : 0;
}

/// Takes values off the end of what is left: how many.
static int qd_deflate(const qd *s, double limit, double *d) {
    const int64_t m = s->last;
    if (m == s->first || s->e[m - 1] <= limit * (s->sum + s->q[m])) {
        d[m] = s->q[m] + s->sum;
        return 1;
    }
    if (m - 1 > s->first && s->e[m - 2] > limit * (s->sum + s->q[m - 1]))
        return 0;
    double larger, smaller;
    qd_two(s, &larger, &smaller);
    d[m - 1] = larger + s->sum;
    d[m] = smaller + s->sum;
    return 2;
}

/// Goes on with what is behind the last number of e that is nothing; what is before it waits in
/// both pairs of arrays.
static void qd_split(qd *s, double limit) {
    for (int64_t i = s->last - 1; i >= s->first; i--)
        if (s->e[i] <= limit * s->sum) {
            s->e[i] = -s->sum;
            const size_t bytes = (size_t)(i + 1 - s->first) * sizeof(double);
            memcpy(s->next_q + s->first, s->q + s->first, bytes);
            memcpy(s->next_e + s->first, s->e + s->first, bytes);
            s->first = i + 1;
            return;
        }
}

/// Takes up what waits before the numbers that are done.
static void qd_resume(qd *s) {
    s->last = s->first - 1;
    s->sum = -s->e[s->last];
    s->lost = 0;
    s->first = s->last;
    while (s->first > 0 && !signbit(s->e[s->first - 1]))
        s->first--;
}

/// The larger end to the front.
static void qd_turn(qd *s) {
    if (1.5 * s->q[s->first] >= s->q[s->last])
        return;
    for (int64_t i = s->first, j = s->last; i < j; i++, j--) {
        const double q = s->q[i], e = s->e[i];
        s->q[i] = s->q[j];
        s->q[j] = q;
        s->e[i] = s->e[j - 1];
        s->e[j - 1] = e;
    }
}

/// What the last pass says of numbers without the last ones.
static void qd_forget(qd *s, int count) {
    s->least = count == 1 ? s->least_before : s->least_of_others;
    s->at_end = count == 1 ? s->before_end : s->third_end;
    s->least_before = 0;
    s->before_end = -1;
}

/// The squares of the values, in d.
static bool qd_all(qd *s, double limit, double *d) {
    int64_t left = ND__MOST_PASSES * (s->last + 1);
    bool is_new = true;
    for (;;) {
        if (s->last < s->first) {
            if (s->first == 0)
                return true;
            qd_resume(s);
            is_new = true;
        }
        const int done = qd_deflate(s, limit, d);
        s->last -= done;
        if (done) {
            qd_forget(s, done);
            continue;
        }
        const int64_t first = s->first;
        if (is_new || s->least_e <= limit * s->sum)
            qd_split(s, limit);
        is_new = is_new || s->first != first;
        if (s->last == s->first)
            continue;
        if (is_new)
            qd_turn(s);
        const int passes = qd_pass_below(s, is_new ? 0 : qd_shift(s));
        is_new = false;
        left -= passes;
        if (left < 0 || !passes)
            return false;
    }
}

/// As nd__bidiagonal_values() without rotations, by which it is done where passes fail. room: [5,
/// n].
static bool nd__qd_values(double *d, double *e, int64_t n, double unit, double *room) {
    const size_t bytes = (size_t)n * sizeof(double);
    qd s = {
        .q = room, .e = room + n, .next_q = room + 2 * n, .next_e = room + 3 * n, .last = n - 1};
    double *values = room + 4 * n;
    for (int64_t i = 0; i < n; i++) {
        s.q[i] = d[i] * d[i];
        s.e[i] = i + 1 < n ? e[i] * e[i] : 0;
    }
    if (!qd_all(&s, unit * unit, values))
        return nd__bidiagonal_values(d, e, n, unit, NULL);
    for (int64_t i = 0; i < n; i++)
        values[i] = sqrt(values[i]);
    memcpy(d, values, bytes);
    return true;
}
#endif
