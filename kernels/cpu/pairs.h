// Products of bf16 by pairs, where the processor multiplies these (pairs_loops.c).
#ifndef ND_KERNELS_CPU_PAIRS_H
#define ND_KERNELS_CPU_PAIRS_H
#include "kernels/cpu/isa.h"

/// The most lines of the narrow side that are packed into one panel.
#define ND__MOST_NARROW 64

/// Whether the lines that are read where they lie are a's rows, and b's columns the narrow side; or b's
/// columns, and a's rows the narrow side. The lines must be dense.
static inline bool nd__pairs_by_rows(const nd__product *p) {
    return p->a.column_stride == 1 && (p->n <= p->m || p->b.row_stride != 1);
}

/// Whether the lines are dense, and enough of them for what is packed; of sums that are not so long that
/// they are better cut in pieces, or a panel has no place beside its lines.
static inline bool nd__pairs_suit(const nd__product *p) {
    enum { LEAST_LINES = 4, MANY_LINES = 32, MOST_ELEMENTS = 1 << 18, MOST_DEPTH = 1 << 14 };
    enum { FEW = 8, LONG_SUM = 512 }; // of few of both, and long sums, few.inc reads more at once
    const bool by_rows = nd__pairs_by_rows(p);
    const int64_t width = by_rows ? p->n : p->m, lines = by_rows ? p->m : p->n;
    const int64_t together = width < ND__MOST_NARROW ? width : ND__MOST_NARROW;
    return (by_rows || p->b.row_stride == 1) && lines >= LEAST_LINES && p->k > 0 &&
           (lines >= MANY_LINES || width <= ND__MOST_NARROW) &&
           (lines > FEW || width > FEW || p->k < LONG_SUM) && p->k <= MOST_DEPTH &&
           p->k * together <= MOST_ELEMENTS;
}

/// False, and nothing is written, where there is no memory. Only where the processor has AVX-512's bf16,
/// of a product whose lines are dense.
#if defined(__AVX512BW__)
bool ND_ISA_NAME(nd__cpu_pairs)(const nd__product *p);
#endif
#endif
