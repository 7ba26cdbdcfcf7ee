// Calls that move elements, and pick some of them.
#include "bench/kernels/calls.h"

#define CALLS(CALL)                                                                      \
    CALL(transpose, laid_out(nd_transpose(in->x, 0, 1)))                                 \
    CALL(nhwc, laid_out(nd_permute(in->images, 4, (const int[]){0, 2, 3, 1})))           \
    CALL(every_second_column, laid_out(nd_slice(in->x, 0, in->n, 2, 1)))                 \
    CALL(concat, nd_concat(2, (const nd_tensor *const[]){in->x, in->y}, 1))              \
    CALL(stack, nd_stack(2, (const nd_tensor *const[]){in->x, in->y}, 0))                \
    CALL(repeat, nd_repeat(in->row, in->n, 0))                                           \
    CALL(flip, nd_flip(in->x, 1, (const int[]){1}))                                      \
    CALL(roll, nd_roll(in->x, 3, 1))                                                     \
    CALL(pad, nd_pad(in->x, 2, (const int64_t[]){1, 1, 1, 1}, 0.0, ND_PADDING_CONSTANT)) \
    CALL(tril, nd_tril(in->x, 0))                                                        \
    CALL(take_axis0, nd_take(in->x, in->rows, 0))                                        \
    CALL(take_axis1, nd_take(in->x, in->rows, 1))                                        \
    CALL(gather_axis0, nd_gather(in->x, in->index, 0))                                   \
    CALL(gather_axis1, nd_gather(in->x, in->index, 1))                                   \
    CALL(scatter_add_axis1, nd_scatter_add(in->x, in->index, in->y, 1))                  \
    CALL(masked_select, nd_masked_select(in->x, in->mask))                               \
    CALL(nonzero, nd_nonzero(in->mask))                                                  \
    CALL(sort, nd_sort(in->x, 1, false))                                                 \
    CALL(argsort, nd_argsort(in->x, 1, false))                                           \
    CALL(topk, largest(in))                                                              \
    CALL(one_hot, nd_one_hot(in->rows, in->n, ND_I64))

/// A contiguous copy of a view, which it releases.
static nd_tensor *laid_out(nd_tensor *view) {
    nd_auto nd_tensor *released = view;
    return nd_contiguous(released);
}

static nd_tensor *largest(const operands *in) {
    nd_tensor *values = NULL, *positions = NULL;
    nd_topk(in->x, 10, 1, true, &values, &positions);
    nd_release(positions);
    return values;
}

CALLS(FORWARD)
static const kernel_call rows[] = {CALLS(ROW_OF_FORWARD)};
const kernel_calls layout_calls = KERNEL_CALLS(rows);
