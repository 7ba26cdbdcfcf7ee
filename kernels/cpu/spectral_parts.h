// What eigenvalues (spectral.c) and singular values (singular.c) of one matrix share: the problem, its
// working memory, and what is done with rows.
//
// Invariant: a matrix is multiplied by a power of two, which changes no digits, so that its largest
// number is about 1 where squares of its numbers could overflow or vanish, and its values are
// multiplied back.
#ifndef ND_KERNELS_CPU_SPECTRAL_PARTS_H
#define ND_KERNELS_CPU_SPECTRAL_PARTS_H
#include "kernels/cpu/linalg_parts.h"
#include "kernels/cpu/spectral.h"
#include <float.h>
#include <math.h>
#include <string.h>

typedef struct problem {
    const nd__linalg_call *call;
    const nd__spectral_loops *loops;
    const nd__factor_loops *factor;
    size_t element; ///< bytes
    double unit;    ///< below this beside another, a number of the second diagonal is 0
} problem;

static inline problem problem_of(const nd__linalg_call *call) {
    const bool narrow = call->dtype == ND_F32;
    return (problem){call, &nd__cpu_loops_now()->spectral[!narrow],
                     &nd__cpu_loops_now()->factor[!narrow], narrow ? 4 : 8,
                     narrow ? FLT_EPSILON / 16 : DBL_EPSILON / 2};
}

#define DEFINE_LOOPS(T)                                            \
    static inline void scale_##T(T *x, int64_t count, T factor) {  \
        for (int64_t i = 0; i < count; i++)                        \
            x[i] *= factor;                                        \
    }                                                              \
    static inline void divide_##T(T *x, int64_t count, T number) { \
        for (int64_t i = 0; i < count; i++)                        \
            x[i] /= number;                                        \
    }
DEFINE_LOOPS(float)
DEFINE_LOOPS(double)

static inline void scale_by(const problem *p, void *x, int64_t count, double factor) {
    if (p->element == 4)
        scale_float(x, count, (float)factor);
    else
        scale_double(x, count, factor);
}

static inline void divide_by(const problem *p, void *x, int64_t count, double number) {
    if (p->element == 4)
        divide_float(x, count, (float)number);
    else
        divide_double(x, count, number);
}

/// Times a power of two, in two factors, since one may be no number.
static inline void scale(const problem *p, void *x, int64_t count, int exponent) {
    if (exponent == 0)
        return;
    scale_by(p, x, count, ldexp(1, exponent / 2));
    scale_by(p, x, count, ldexp(1, exponent - exponent / 2));
}

/// The power of two of `count` numbers' largest, where that is far from 1; else 0.
static inline int exponent_of(const problem *p, const void *x, int64_t count) {
    const int near = p->element == 4 ? 30 : 250;
    const int64_t whole = count / ND__FACTOR_BASE * ND__FACTOR_BASE;
    const size_t bytes = (size_t)(count - whole) * p->element;
    double rest[ND__FACTOR_BASE] = {0};
    if (bytes > 0)
        memcpy(rest, (const char *)x + (size_t)whole * p->element, bytes);
    const double largest =
        fmax(p->loops->largest(x, whole), p->loops->largest(rest, ND__FACTOR_BASE));
    int exponent = 0;
    frexp(largest, &exponent);
    return largest == 0 || (exponent > -near && exponent < near) ? 0 : exponent;
}

/// Multiplies x by the power of two that makes its largest number about 1 where that is far from it;
/// the exponent of what takes it back.
static inline int normalise(const problem *p, void *x, int64_t count) {
    const int exponent = exponent_of(p, x, count);
    scale(p, x, count, -exponent);
    return exponent;
}

/// Row by row into rows that are further apart, and zeros behind them.
static inline void spread(const problem *p, void *to, int64_t to_row, const void *from,
                          int64_t columns, int64_t rows) {
    const size_t step = (size_t)to_row * p->element, bytes = (size_t)columns * p->element;
    for (int64_t i = 0; i < rows; i++) {
        char *line = (char *)to + (size_t)i * step;
        memcpy(line, (const char *)from + (size_t)i * bytes, bytes);
        memset(line + bytes, 0, step - bytes);
    }
}

/// The order in which d rises, by insertion: iterations leave values nearly in order.
static inline void sort(const double *d, int64_t n, int64_t *ret_order) {
    for (int64_t i = 0; i < n; i++) {
        int64_t at = i;
        for (; at > 0 && d[ret_order[at - 1]] > d[i]; at--)
            ret_order[at] = ret_order[at - 1];
        ret_order[at] = i;
    }
}

/// Room for a matrix of n rows between guards; its first row.
static inline void *carved_rows(const problem *p, char *block, size_t *offset, int64_t n,
                                int64_t row) {
    const size_t bytes = (size_t)row * p->element;
    char *guard = carved(block, offset, (size_t)(n + 2 * ND__GUARD) * bytes);
    return guard ? guard + ND__GUARD * bytes : NULL;
}

static inline void clear_guards(const problem *p, void *rows, int64_t n, int64_t row) {
    const size_t bytes = (size_t)row * p->element;
    memset((char *)rows - ND__GUARD * bytes, 0, ND__GUARD * bytes);
    memset((char *)rows + (size_t)n * bytes, 0, ND__GUARD * bytes);
}
#endif
