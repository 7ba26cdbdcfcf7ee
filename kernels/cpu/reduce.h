// How a reduction is laid out before any loop runs, and what each instruction set supplies for it.
//
// The axes of x are split into kept ones and reduced ones, each sorted so that the last walks x
// most tightly, and merged where they are contiguous. A result is named by its index in the kept
// axes (row-major after sorting), an element of it by its index in the reduced axes.
#ifndef ND_KERNELS_CPU_REDUCE_H
#define ND_KERNELS_CPU_REDUCE_H
#include "kernels/kernel.h"

/// Results that a `range` function is asked for at once, at most.
#define ND__REDUCE_BATCH 512

typedef struct nd__axes {
    int count;
    int64_t shape[ND_MAX_DIMS];
    int64_t x_strides[ND_MAX_DIMS];
    int64_t out_strides[ND_MAX_DIMS]; ///< of kept axes
} nd__axes;

typedef struct nd__reduction {
    nd__axes kept;
    nd__axes reduced;
    int64_t results;
    int64_t elements; ///< of x per result
    bool by_columns;  ///< a kept axis walks x more tightly than every reduced one
    double divisor;   ///< sums are divided by it when they are stored; 0: not divided
    const void *x;
    void *out;
} nd__reduction;

/// Loops for one operation and dtype. Partial results are doubles for sums of floats, uint64_t for
/// sums of i64, else elements.
typedef struct nd__reducer {
    size_t partial_size;
    /// Reduces elements [from, to) of results [begin, end) into partials, end - begin of them.
    void (*range)(const nd__reduction *plan, int64_t begin, int64_t end, int64_t from, int64_t to,
                  void *partials);
    /// into[i] = into[i] combined with more[i].
    void (*combine)(void *into, const void *more, int64_t count);
    void (*store)(const nd__reduction *plan, int64_t begin, int64_t end, const void *partials);
} nd__reducer;

/// Index of the first extremum of a row of n >= 1 elements.
typedef int64_t (*nd__argreducer)(const void *row, int64_t n, int64_t stride);

/// Walks one group of axes in row-major order.
typedef struct nd__position {
    int64_t index[ND_MAX_DIMS];
    int64_t x_offset;
    int64_t out_offset;
} nd__position;

static inline nd__position nd__position_at(const nd__axes *axes, int64_t flat) {
    nd__position position = {{0}, 0, 0};
    if (flat == 0)
        return position;
    for (int axis = axes->count - 1; axis >= 0; axis--) {
        int64_t size = axes->shape[axis];
        position.index[axis] = flat % size;
        flat /= size;
        position.x_offset += position.index[axis] * axes->x_strides[axis];
        position.out_offset += position.index[axis] * axes->out_strides[axis];
    }
    return position;
}

/// Steps `count` along the last axis, which must not pass its end by more than reaching it.
static inline void nd__position_advance(nd__position *position, const nd__axes *axes,
                                        int64_t count) {
    int axis = axes->count - 1;
    if (axis < 0)
        return;
    position->index[axis] += count;
    position->x_offset += count * axes->x_strides[axis];
    position->out_offset += count * axes->out_strides[axis];
    while (axis > 0 && position->index[axis] == axes->shape[axis]) {
        position->index[axis] = 0;
        position->x_offset += axes->x_strides[axis - 1] - axes->shape[axis] * axes->x_strides[axis];
        position->out_offset +=
            axes->out_strides[axis - 1] - axes->shape[axis] * axes->out_strides[axis];
        position->index[--axis]++;
    }
}

/// How far the last axis runs from here, `limit` at most.
static inline int64_t nd__position_run(const nd__position *position, const nd__axes *axes,
                                       int64_t limit) {
    if (axes->count == 0)
        return limit < 1 ? limit : 1;
    int64_t left = axes->shape[axes->count - 1] - position->index[axes->count - 1];
    return left < limit ? left : limit;
}
static inline int64_t nd__last_stride(const nd__axes *axes) {
    return axes->count ? axes->x_strides[axes->count - 1] : 0;
}
#endif
