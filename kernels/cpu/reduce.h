// How a reduction is laid out before any loop runs, and what each instruction set supplies for it.
//
// The axes of x are split into kept ones and reduced ones, each sorted so that the last walks x
// most tightly, and merged where they are contiguous. A result is named by its index in the kept
// axes (row-major after sorting), an element of it by its index in the reduced axes. Reduced axes
// that repeat one element (stride 0) are left out and counted in `repeats`.
//
// A few dtypes have loops of their own. Elements of the others are converted to one of them block
// by block, in memory that stays in the first cache; so every dtype needs a conversion and no loop.
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

/// Converts n elements: data[0] is written and data[1] read, strides count elements. As nd__loop.
typedef void (*nd__load)(int64_t n, char *const *data, const int64_t *strides,
                         const nd_op_attrs *attrs);

typedef struct nd__reduction {
    nd__axes kept;
    nd__axes reduced;
    int64_t results;
    int64_t elements; ///< of x per result, repeated ones once
    int64_t repeats;  ///< how often each of them counts
    bool by_columns;  ///< a kept axis walks x more tightly than every reduced one
    const char *x;
    int64_t x_bytes; ///< of an element
    nd__load load;   ///< to the dtype of the loops; NULL: x has that dtype
} nd__reduction;

/// What is combined, and with what. A parameter is a number for each result.
typedef enum nd__fold {
    ND__FOLD_SUM,
    ND__FOLD_MAX,
    ND__FOLD_MIN,
    ND__FOLD_PRODUCT,
    ND__FOLD_DEVIATION,   ///< sum of (x - parameter)^2
    ND__FOLD_EXPONENTIAL, ///< sum of exp(x - parameter), which is finite and no x is above
    ND__FOLD_MAGNITUDE,   ///< sum of |x|
    ND__FOLD_SQUARE,      ///< sum of x^2
    ND__FOLD_CUBE,        ///< sum of |x|^3
    ND__FOLD_POWER,       ///< sum of |x|^parameter
    ND__FOLDS,
} nd__fold;

/// Loops for one fold and dtype.
typedef struct nd__reducer {
    nd_dtype partial; ///< of partial results: f64 for sums of floats, i64 for those of integers
    /// Reduces elements [from, to) of results [begin, end) into partials, end - begin of them, with
    /// as many parameters.
    void (*range)(const nd__reduction *plan, int64_t begin, int64_t end, int64_t from, int64_t to,
                  const double *parameters, void *partials);
    /// into[i] = into[i] combined with more[i].
    void (*combine)(void *into, const void *more, int64_t count);
} nd__reducer;

/// Index of the first extremum of a row of n >= 1 elements.
typedef int64_t (*nd__argreducer)(const void *row, int64_t n, int64_t stride);

/// Row `index` of columns that are reduced: `best` and `positions` are the extrema of those before it
/// and become those with it.
typedef void (*nd__argcolumns)(const void *row, int64_t columns, int32_t index, void *best,
                               int32_t *positions);

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
