// Values of two diagonals by implicit QR iterations with shifts (Francis 1961, Wilkinson 1968), in
// f64 for both dtypes: an iteration is one long chain of quotients and roots, which are no faster
// in f32, and f32 matrices so neither overflow nor lose digits here.
//
// A sweep goes from the first number of a block to the last, where the next value comes forth.
// Which end of a block is the first is chosen, so that it is the one with larger numbers: small
// ones keep their digits.
//
// Invariant: the largest number is between 2^-250 and 2^250, or 0 (spectral.c sees to it), so that
// squares of what is above ND__NOTHING are no zeros and nothing that counts overflows.
#ifndef ND_KERNELS_CPU_SPECTRAL_ITERATION_H
#define ND_KERNELS_CPU_SPECTRAL_ITERATION_H
#include "kernels/cpu/spectral.h"
#include <math.h>

/// What counts as 0, and its square.
#define ND__NOTHING 1e-150
#define ND__NOTHING_SQUARED 1e-300
/// Sweeps through all numbers, for each number: about 1.7 are wanted.
#define ND__MOST_SWEEPS 30

/// A block of two diagonals, in the order of its sweeps: number i of d is d[i * step].
typedef struct block {
    double *d, *e;
    int64_t first, last; ///< in this order
    int64_t step;        ///< 1 or -1
} block;

static block block_of(double *d, double *e, int64_t n, int64_t begin, int64_t end, bool reversed) {
    if (reversed)
        return (block){d + n - 1, e + n - 2, n - 1 - end, n - 1 - begin, -1};
    return (block){d, e, begin, end, 1};
}

/// The larger end of a block is its first; one that is part of the block before keeps its order.
static bool is_reversed(const double *d, int64_t begin, int64_t end, const int64_t *before,
                        bool reversed) {
    if (begin <= before[1] && end >= before[0])
        return reversed;
    return fabs(d[begin]) < fabs(d[end]);
}

/// c and s with c f + s g = r and c g - s f = 0.
typedef struct rotation {
    double c, s, r;
} rotation;

static inline rotation rotation_of(double f, double g) {
    const double square = f * f + g * g;
    if (square > ND__NOTHING_SQUARED) {
        const double r = sqrt(square), inverse = 1 / r;
        return (rotation){f * inverse, g * inverse, r};
    }
    const double r = hypot(f, g);
    return r > 0 ? (rotation){f / r, g / r, r} : (rotation){1, 0, 0};
}

/// The memory of the next sweep's rotations, of one side; NULL: none are wanted.
static double *sweep_of(const nd__rotations *r, int side) {
    return r && r->sides[side].rows ? r->sides[side].sweeps + (int64_t)r->count * r->n * 2 : NULL;
}

static void begin_sweep(nd__rotations *r, const block *b) {
    if (!r)
        return;
    if (r->count == ND__SWEEPS || (r->count && r->reversed != (b->step < 0)))
        r->apply(r);
    r->reversed = b->step < 0;
    r->first[r->count] = b->first;
    r->last[r->count] = b->last;
}

static void end_sweep(nd__rotations *r) {
    if (r)
        r->count++;
}

// -------------------------------------------------------------------------------------------------
// symmetric tridiagonal

/// The eigenvalue of the last two rows that is nearer to the last number, by what is beside it.
static double wilkinson_shift(double before, double last, double beside) {
    const double g = (before - last) / (2 * beside), r = sqrt(g * g + 1);
    return last - beside / (g + (g < 0 ? -r : r));
}

static void sweep_tridiagonal(const block *b, double *pairs) {
    double *d = b->d, *e = b->e;
    const int64_t s = b->step, last = b->last;
    double g = d[b->first * s] - wilkinson_shift(d[(last - 1) * s], d[last * s], e[(last - 1) * s]);
    double sine = 1, cosine = 1, p = 0;
    for (int64_t i = b->first; i < last; i++) {
        const double beside = cosine * e[i * s];
        const rotation turn = rotation_of(g, sine * e[i * s]);
        cosine = turn.c;
        sine = turn.s;
        if (i > b->first)
            e[(i - 1) * s] = turn.r;
        g = d[i * s] - p;
        const double r = (d[(i + 1) * s] - g) * sine + 2 * cosine * beside;
        p = sine * r;
        d[i * s] = g + p;
        g = cosine * r - beside;
        if (pairs) {
            pairs[2 * i] = cosine;
            pairs[2 * i + 1] = sine;
        }
    }
    d[last * s] -= p;
    e[(last - 1) * s] = g;
}

/// The same without rotations, of squares of e (Pal, Walker and Kahan, as LAPACK's sterf): no
/// roots.
static void sweep_squares(const block *b) {
    double *d = b->d, *e = b->e;
    const int64_t s = b->step, last = b->last;
    const double shift = wilkinson_shift(d[(last - 1) * s], d[last * s], sqrt(e[(last - 1) * s]));
    double cosine = 1, sine = 0, gamma = d[b->first * s] - shift, p = gamma * gamma;
    for (int64_t i = b->first; i < last; i++) {
        const double beside = e[i * s], r = p + beside;
        if (i > b->first)
            e[(i - 1) * s] = sine * r;
        const double old_cosine = cosine, old_gamma = gamma, next = d[(i + 1) * s];
        const bool is_plain = p > ND__NOTHING_SQUARED && p > ND__NOTHING * r;
        // 1 / cosine is found beside the cosine, and not behind it.
        const double inverse = is_plain ? r / p : 0;
        cosine = p / r;
        sine = beside / r;
        gamma = cosine * (next - shift) - sine * old_gamma;
        d[i * s] = old_gamma + (next - gamma);
        p = is_plain      ? gamma * gamma * inverse
            : cosine != 0 ? gamma * gamma / cosine
                          : old_cosine * beside;
    }
    e[(last - 1) * s] = sine * p;
    d[last * s] = shift + gamma;
}

/// Whether the number behind d[i], or its square, is nothing.
static bool is_negligible(const double *d, const double *e, int64_t i, bool squares, double limit) {
    const double square = squares ? e[i] : e[i] * e[i];
    return square <= limit * fabs(d[i]) * fabs(d[i + 1]) + ND__NOTHING_SQUARED;
}

static bool nd__tridiagonal_values(double *d, double *e, int64_t n, double unit, nd__rotations *r) {
    const double limit = unit * unit;
    int64_t end = n - 1, left = ND__MOST_SWEEPS * n, before[2] = {n, n};
    bool reversed = false;
    for (int64_t i = 0; i < n - 1 && !r; i++)
        e[i] *= e[i];
    while (end > 0) {
        int64_t begin = end;
        while (begin > 0 && !is_negligible(d, e, begin - 1, !r, limit))
            begin--;
        if (begin > 0)
            e[begin - 1] = 0;
        if (begin == end) {
            end--;
            continue;
        }
        if (left-- == 0)
            return false;
        reversed = is_reversed(d, begin, end, before, reversed);
        before[0] = begin;
        before[1] = end;
        const block b = block_of(d, e, n, begin, end, reversed);
        begin_sweep(r, &b);
        if (r)
            sweep_tridiagonal(&b, sweep_of(r, 0));
        else
            sweep_squares(&b);
        end_sweep(r);
    }
    if (r)
        r->apply(r);
    return true;
}
#endif
