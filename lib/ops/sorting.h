// Elements at ranks, of a sort that is not made.
#ifndef ND_LIB_OPS_SORTING_H
#define ND_LIB_OPS_SORTING_H
#include "kernels/sorting.h"
#include <nd/ops.h>

/// What nd_sort() along the last axis has at `count` ascending ranks, ND__SORTING_RANKS at most, as a last axis
/// of so many; of a row with a NaN, the last one at each. Where
/// nd__launch_selects_ranks() says so; recorded as a gather.
nd_tensor *nd__sorting_at_ranks(const char *name, const nd_tensor *x, int count,
                                const int64_t *ranks);
#endif
