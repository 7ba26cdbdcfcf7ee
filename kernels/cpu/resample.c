// RESAMPLE: every result along an axis is a sum of a few elements of x, and the adjoint adds each
// result's gradient to them.
//
// What each result is made of is worked out once for the whole call. A gradient is added in the
// order of the results, whatever the number of threads: they share the places before the axis.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/windows.h"
#include <stdlib.h>

typedef struct resample_work {
    nd__resample_rows rows;
    nd__resample_loops loops;
} resample_work;

static void sum(void *context, int64_t begin, int64_t end) {
    const resample_work *work = (const resample_work *)context;
    work->loops.sum(&work->rows, begin, end);
}

static void spread(void *context, int64_t begin, int64_t end) {
    const resample_work *work = (const resample_work *)context;
    work->loops.spread(&work->rows, begin, end);
}

/// Longer windows are faster summed one by one than side by side.
#define LONG_WINDOW 32

/// Which windows of the last axis lie in x with all of their places, where they are made together.
static void find_whole(const nd__resample_axis *axis, int64_t *ret_whole) {
    ret_whole[0] = ret_whole[1] = 0;
    if (axis->mode != ND__RESAMPLE_WINDOW || axis->inner != 1 || axis->kernel >= LONG_WINDOW)
        return;
    int64_t begin = (axis->padding + axis->stride - 1) / axis->stride;
    int64_t last = axis->in + axis->padding - axis->kernel;
    int64_t end = last < 0 ? 0 : last / axis->stride + 1;
    end = end < axis->out ? end : axis->out;
    if (begin < end) {
        ret_whole[0] = begin;
        ret_whole[1] = end;
    }
}

nd_status nd__cpu_resample(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0 || call->attrs.i[0] == ND__RESAMPLE_WINDOWS)
        return ND_ERROR_UNSUPPORTED;
    nd__resample_axis axis = nd__resample_axis_of(call);
    nd__resample_taps *taps = calloc((size_t)axis.out, sizeof *taps);
    if (!taps)
        return ND_ERROR_OUT_OF_MEMORY;
    int64_t places = 0;
    for (int64_t o = 0; o < axis.out; o++) {
        taps[o] = nd__resample_taps_of(&axis, o);
        places += taps[o].count;
    }
    resample_work work = {
        .rows = {.axis = &axis,
                 .taps = taps,
                 .x = call->operand[1].data,
                 .out = call->operand[0].data},
        .loops = nd__cpu_loops_now()->resample[type],
    };
    find_whole(&axis, work.rows.whole);
    int64_t cost = places * axis.inner;
    if (call->op == ND_OP_resample) // whole lines where they are short rows
        nd__cpu_parallel(axis.outer * axis.out, cost / axis.out + 1, axis.inner == 1 ? axis.out : 1,
                         sum, &work);
    else
        nd__cpu_parallel(axis.outer, cost + axis.in * axis.inner, 1, spread, &work);
    free(taps);
    return ND_OK;
}
