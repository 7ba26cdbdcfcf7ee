// Which products have ways of their own: those of few rows or few columns whose sums are long,
// computed sum by sum (few.inc), and those of 16-bit floats by a small second operand, computed as
// f32 some rows at a time.
#ifndef ND_KERNELS_CPU_FEW_H
#define ND_KERNELS_CPU_FEW_H
#include "kernels/cpu/isa.h"

/// The most rows, or columns; and the fewest elements of a sum.
#define ND__FEW ND__FEW_LINES
#define ND__LEAST_FEW_DEPTH 64
/// Where b's rows are dense, sums up to so long of so few multiplications take less without that.
#define ND__SHORT_SUM 128
#define ND__TINY_PRODUCT 16384

/// Whether a product is computed sum by sum: one of few rows and few columns, or one whose other
/// side's lines lie dense.
static inline bool nd__product_is_of_few(const nd__product *p) {
    const bool by_rows = p->m >= p->n;
    const int64_t lines = by_rows ? p->m : p->n, few = by_rows ? p->n : p->m;
    const int64_t step = by_rows ? p->a.column_stride : p->b.row_stride;
    if (p->b.column_stride == 1 && p->k <= ND__SHORT_SUM && lines * few * p->k <= ND__TINY_PRODUCT)
        return false;
    const int64_t most_lines = few == 1 ? 2 * ND__FEW : ND__FEW;
    return few <= ND__FEW && p->k >= ND__LEAST_FEW_DEPTH && (lines <= most_lines || step == 1);
}

/// Whether it is computed so though there are more of both, `bytes` wide each: to bring the two sides
/// together in panels costs more then than adding up lanes, of which sums have the more the narrower they
/// are.
static inline bool nd__product_is_of_long_sums(const nd__product *p, size_t bytes) {
    enum { FEW_SIDE = 16, SOME_LINES = 32, MANY_LINES = 64 };
    const bool by_rows = p->m >= p->n, narrow = bytes <= 2;
    const int64_t lines = by_rows ? p->m : p->n, few = by_rows ? p->n : p->m;
    const int64_t step = by_rows ? p->a.column_stride : p->b.row_stride;
    const int64_t most = lines > MANY_LINES ? 24 : narrow ? 40 : 32;
    if (few > most || p->k < ND__LEAST_FEW_DEPTH)
        return false;
    if (step != 1 && (lines > FEW_SIDE || !narrow))
        return false;
    return lines <= (narrow ? SOME_LINES : FEW_SIDE) || p->k >= 8 * few;
}

/// Whether it is a vector times a matrix of few columns that lie side by side, or as much the other way
/// round: rows so short are no vectors.
#define ND__MOST_INTERLEAVED 16
static inline bool nd__product_is_interleaved(const nd__product *p) {
    enum { LEAST_DEPTH = 64 };
    const nd__matrix *matrix = p->n == 1 ? &p->a : &p->b;
    const int64_t rows = p->n == 1 ? p->m : p->n;
    const int64_t along = p->n == 1 ? matrix->column_stride : matrix->row_stride;
    const int64_t across = p->n == 1 ? matrix->row_stride : matrix->column_stride;
    return (p->m == 1 || p->n == 1) && p->k >= LEAST_DEPTH && rows > 1 && across == 1 &&
           along >= rows && along <= ND__MOST_INTERLEAVED;
}

/// Rows of a product of 16-bit floats that are widened together, by at most so many
/// multiplications; 0: that is not worth it.
static inline int64_t nd__widened_rows(const nd__product *p, int64_t most) {
    enum { LEAST_ROWS = 12, MOST_ELEMENTS = 1 << 15 };
    if (p->k < 1 || p->k > ND__SMALL_DEPTH)
        return 0;
    const int64_t by_work = most / (p->k * p->n), by_size = MOST_ELEMENTS / (p->k + p->n);
    const int64_t rows = by_work < by_size ? by_work : by_size;
    return rows >= LEAST_ROWS ? rows : 0;
}
#endif
