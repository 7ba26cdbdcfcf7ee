// Which way a product goes: the sizes at which each was measured to pay, on processors with vectors of 512
// bits unless it says otherwise.
//
// oneDNN turns round a second operand whose columns lie dense, as those of a linear layer's weight
// do, before it multiplies. Where the columns are a multiple of 2 KiB apart they share few places of
// the nearest cache, and for few rows that takes as long as the product itself: then the transposed
// product is computed instead, b^T a^T, for which a and the result are turned round (matmul.c). So it
// is where columns are pages apart, of up to a hundred columns, where the rows fill two or three
// vectors, and where the columns of a lie dense as well, so that nothing but the result is turned. Of
// fewer columns, or more rows, the second operand is turned round, and the product is an ordinary one.
#ifndef ND_KERNELS_CPU_MATMUL_WAYS_H
#define ND_KERNELS_CPU_MATMUL_WAYS_H
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/few.h"
#include "kernels/cpu/onednn.h"
#include "kernels/cpu/pairs.h"
#include "kernels/cpu/panels.h"

/// What sizes of panels are multiples of.
#define ND__MULTIPLE 16

// ------------------------------------------------------------------------------- transposed products

/// How many rows there are, and columns of a second operand whose columns are crowded (onednn.h).
#define ND__LEAST_TURNED_ROWS 16
#define ND__MOST_TURNED_ROWS 128
#define ND__LEAST_CROWDED_COLUMNS 32
#define ND__MOST_CROWDED_ROWS 256
/// Where they are not: columns that are pages apart; so few that oneDNN does not make a copy of them
/// first, and how many rows that is worth; or as many rows as fill vectors, and elements of the second
/// operand.
#define ND__PAGE_BYTES 4096
#define ND__LEAST_FEW_COLUMNS 48
#define ND__MOST_FEW_COLUMNS 104
#define ND__MOST_ROWS_OF_FEW 48
#define ND__TURNED_LANES 16
#define ND__LEAST_TURNED_ELEMENTS ((int64_t)1 << 18)
/// And where both operands have dense columns: elements of a result, at all and for each of a sum, and
/// the length of a sum, these with vectors of 512 bits and of 256.
#define ND__MOST_TURNED_RESULT ((int64_t)1 << 19)
#define ND__MOST_RESULT_OF_SUM 1024
#define ND__MOST_RESULT_OF_SUM_256 256
#define ND__LEAST_TURNED_SUM 48
#define ND__LEAST_TURNED_SUM_256 256

/// Whether oneDNN's code is of vectors of 512 bits, whose loops were chosen with them.
static inline bool nd__ways_has_wide_vectors(void) {
#if ND_ISA_X86
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    return loops == &nd__cpu_loops_x86_64_v4 || loops == &nd__cpu_loops_x86_64_v4_halves;
#else
    return false;
#endif
}

/// How many columns of b a panel of a transposed product has. Each panel turns a round for itself, so
/// there are fewer.
static inline int64_t nd__ways_columns_of_turned(const nd__product *p) {
    const int64_t parts = nd__parts_of(p->m * p->n * p->k / 4);
    const int64_t columns =
        ((p->n + parts - 1) / parts + ND__MULTIPLE - 1) / ND__MULTIPLE * ND__MULTIPLE;
    return columns < p->n ? columns : p->n;
}

/// Whether a's columns lie dense as well as b's: then nothing but the result is turned.
static inline bool nd__ways_has_dense_columns(const nd__product *p) {
    return p->a.row_stride == 1 && p->a.column_stride >= p->m;
}

/// Of columns of b that are not crowded, with vectors of 512 bits.
static inline bool nd__ways_turns_uncrowded(const nd__product *p) {
    if (p->b.column_stride * (int64_t)sizeof(float) > ND__PAGE_BYTES &&
        p->n >= ND__LEAST_FEW_COLUMNS)
        return true;
    if (p->n >= ND__LEAST_FEW_COLUMNS && nd__ways_columns_of_turned(p) <= ND__MOST_FEW_COLUMNS)
        return p->m <= ND__MOST_ROWS_OF_FEW;
    const int64_t vectors = (p->m + ND__TURNED_LANES - 1) / ND__TURNED_LANES;
    return p->n > ND__MOST_FEW_COLUMNS && p->n * p->k >= ND__LEAST_TURNED_ELEMENTS &&
           (vectors == 2 || vectors == 3) &&
           vectors * ND__TURNED_LANES - p->m < ND__TURNED_LANES / 4;
}

/// Of operands whose columns both lie dense.
static inline bool nd__ways_turns_result(const nd__product *p) {
    const bool is_wide = nd__ways_has_wide_vectors();
    const int64_t size = p->m * p->n;
    return p->n >= ND__LEAST_TURNED_ROWS && size <= ND__MOST_TURNED_RESULT &&
           p->k >= (is_wide ? ND__LEAST_TURNED_SUM : ND__LEAST_TURNED_SUM_256) &&
           size <= (is_wide ? ND__MOST_RESULT_OF_SUM : ND__MOST_RESULT_OF_SUM_256) * p->k;
}

/// Whether turning b round costs more than turning a and the result round.
static inline bool nd__ways_turns(const nd__product *p, nd_dtype dtype) {
    if (dtype != ND_F32 || p->m < ND__LEAST_TURNED_ROWS || p->b.row_stride != 1 ||
        p->b.column_stride < p->k || p->out.column_stride != 1)
        return false;
    if (nd__ways_has_dense_columns(p))
        return nd__ways_turns_result(p);
    if (p->a.column_stride != 1)
        return false;
    if (p->b.column_stride * (int64_t)sizeof(float) % ND__CROWDED_BYTES == 0)
        return p->n >= ND__LEAST_CROWDED_COLUMNS &&
               p->m <=
                   (p->n <= ND__MOST_FEW_COLUMNS ? ND__MOST_CROWDED_ROWS : ND__MOST_TURNED_ROWS);
    return nd__ways_has_wide_vectors() && p->m <= ND__MOST_TURNED_ROWS &&
           nd__ways_turns_uncrowded(p);
}

// ------------------------------------------------------------------------- copies of second operands

/// With up to so many rows and few columns the rows of the second operand are copied together instead.
#define ND__MOST_ROWS_OF_COPIED 1024
/// Elements of a copied operand up to which each panel has a copy of its own, made by the thread that
/// computes it: what another core has just written comes out of that core's cache line by line.
#define ND__MOST_COPIED_ELEMENTS ((int64_t)1 << 17)

/// Whether a copy of b that has its rows dense, and the product by that, take less than the product by
/// dense columns.
static inline bool nd__ways_copies(const nd__product *p, nd_dtype dtype) {
    if (dtype != ND_F32 || p->b.row_stride != 1 || p->b.column_stride < p->k ||
        p->a.column_stride != 1 || p->n * p->k > ND__MOST_COPIED_ELEMENTS)
        return false;
    if (p->m < ND__LEAST_TURNED_ROWS || p->m > ND__MOST_ROWS_OF_COPIED || p->n == 1)
        return false;
    const bool is_crowded = p->b.column_stride * (int64_t)sizeof(float) % ND__CROWDED_BYTES == 0;
    if (!is_crowded && !nd__ways_has_wide_vectors())
        return false;
    if (is_crowded && p->n >= ND__LEAST_CROWDED_COLUMNS &&
        p->m <= (p->n < ND__LEAST_FEW_COLUMNS ? ND__MOST_ROWS_OF_FEW : ND__MOST_TURNED_ROWS))
        return false; // the transposed product takes less
    return p->n < ND__LEAST_FEW_COLUMNS ||
           (p->n <= ND__MOST_FEW_COLUMNS && p->m > ND__MOST_ROWS_OF_FEW);
}

// --------------------------------------------------------------------------------------- the loops

/// Of fewer columns, vectors of the loops would be less than half full.
#define ND__LEAST_SMALL_COLUMNS 8
/// Of products of bf16 that no library is asked for: columns, or elements of a sum, of which there
/// are few; both, of which there are not many; and elements of the second operand.
#define ND__FEW_SUMS 4
#define ND__SHORT_SUM_OF_BF16 16
#define ND__MOST_WIDENED 8192
/// The shortest sums of a product of bf16 of eight columns, or of up to four rows, that are computed one
/// by one.
#define ND__LEAST_SUM_OF_FEW 256

/// Whether the loops do a product that a library could do as fast by themselves.
static inline bool nd__ways_is_small(const nd__product *p, nd_dtype dtype) {
    return dtype == ND_F32 && p->m * p->n * p->k <= nd__cpu_loops_now()->small_product &&
           p->k <= ND__SMALL_DEPTH && p->b.column_stride == 1 && p->n >= ND__LEAST_SMALL_COLUMNS;
}

/// Of bf16, of which oneDNN takes as long for a few columns, or rows, as for sixteen.
static inline bool nd__ways_is_of_few_halves(const nd__product *p) {
    if (p->n <= ND__FEW_SUMS || (p->m <= ND__FEW && p->n <= ND__FEW))
        return true;
    if (p->m >= p->n)
        return p->n < ND__FEW || p->k >= ND__LEAST_SUM_OF_FEW;
    return p->k >= (p->m <= ND__FEW_SUMS ? ND__LEAST_SUM_OF_FEW : 2 * ND__LEAST_SUM_OF_FEW);
}

/// Whether the loops compute a product of few lines and long sums faster than a library.
static inline bool nd__ways_is_of_few(const nd__product *p, nd_dtype dtype) {
    const bool is_turned = dtype == ND_F32 && p->m < p->n && p->a.column_stride != 1;
    if (is_turned && p->b.row_stride == 1 && p->b.column_stride != 1 &&
        nd__ways_has_wide_vectors() && nd__product_is_of_long_sums(p, sizeof(float)))
        return true;
    if (!nd__product_is_of_few(p))
        return false;
    if (dtype == ND_BF16)
        return nd__ways_is_of_few_halves(p);
    return is_turned && p->n > ND__FEW;
}

/// Whether the loops compute a product of bf16 by pairs, and as fast as a library.
static inline bool nd__ways_is_of_pairs(const nd__product *p, nd_dtype dtype) {
    return nd__cpu_multiplies(dtype) && nd__pairs_suit(p) &&
           (p->m <= ND__MOST_NARROW || p->n <= ND__MOST_NARROW ||
            !nd__onednn_has_tiles_of_halves());
}

/// Whether sums of bf16 are so short that the loops compute them as f32 faster than a library by
/// pairs.
static inline bool nd__ways_widens(const nd__product *p, nd_dtype dtype) {
    return dtype == ND_BF16 && p->k * p->n <= ND__MOST_WIDENED &&
           (p->k <= ND__FEW_SUMS ||
            (p->k <= ND__SHORT_SUM_OF_BF16 && p->n <= ND__SHORT_SUM_OF_BF16)) &&
           nd__widened_rows(p, nd__cpu_loops_now()->small_product) > 0;
}
#endif
