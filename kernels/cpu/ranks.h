// What stands at a few ranks of a row, without the row being sorted (ranks.c).
#ifndef ND_KERNELS_CPU_RANKS_H
#define ND_KERNELS_CPU_RANKS_H
#include "kernels/cpu/digits.h"
#include <stdbool.h>

/// A row of `size` elements, more than ND__ORDERED, `stride` apart.
typedef struct nd__ranked_row {
    const void *x;
    int64_t x_bytes; ///< of an element
    int64_t stride, size;
    bool is_float;
    /// Of the dtype, as in nd__sorting_loops.
    uint64_t (*keys)(const void *x, int64_t stride, int64_t n, uint64_t turned, uint64_t *ret_keys);
} nd__ranked_row;

/// The positions that a stable sort has at `count` ascending ranks; where there is a NaN, the last NaN's
/// at each. `pairs` and `room` have
/// room for the row and ND__ORDERED more each.
void nd__ranks_find(const nd__ranked_row *row, const int64_t *ranks, int64_t count, nd__pair *pairs,
                    nd__pair *room, int64_t *ret_positions);
#endif
