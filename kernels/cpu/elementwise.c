// Walks the iteration space of an elementwise call row by row, on one thread or several.
//
// Invariant: a loop sees rows along the last axis only; a thread's share is a range of flat
// indices, so long rows are cut too. Results too large for the caches are made in a buffer and
// written past them. 16-bit floats are computed in f32 by the loops of f32, over blocks in the
// first-level cache that are converted on the way in and out: every result is rounded once. Calls
// whose rows are short, or whose operands lie along other axes, go in boxes (boxes.c). Of operands that
// all repeat along an axis the results are computed once and copied along it.
#include "kernels/cpu/boxes.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"

#define BUFFER_BYTES 1024
/// Elements of a block of 16-bit floats: with all operands it fills a part of the nearest cache.
#define BLOCK 512

/// Elements along a last axis that are worth copying a result to.
#define REPEATED_LAST 16

typedef struct walk {
    const nd_kernel_call *call;
    nd__loop loop;
    nd__stream stream; ///< NULL: write where the result is
    bool halves;       ///< some operands are 16-bit floats, and the loop is that of f32
} walk;

/// The loop of f32 over a row of which some operands are 16-bit floats; the others are of a dtype
/// that the loop itself reads or writes.
static void run_halves(const walk *w, int64_t n, char *const *data, const int64_t *strides) {
    _Alignas(64) float block[ND_MAX_OPERANDS][BLOCK];
    const nd__loop(*convert)[ND_DTYPE_COUNT] = nd__cpu_loops_now()->convert;
    const nd_kernel_call *call = w->call;
    char *at[ND_MAX_OPERANDS], *in_loop[ND_MAX_OPERANDS];
    int64_t loop_strides[ND_MAX_OPERANDS];
    for (int i = 0; i < call->noperands; i++) {
        nd_dtype dtype = call->operand[i].dtype;
        bool half = dtype == ND_F16 || dtype == ND_BF16;
        at[i] = data[i];
        in_loop[i] = half ? (char *)block[i] : NULL;
        loop_strides[i] = !half ? strides[i] : i > 0 && strides[i] == 0 ? 0 : 1;
        if (half && loop_strides[i] == 0) // one element, converted once
            convert[dtype][ND_F32](1, (char *[]){in_loop[i], at[i]}, (int64_t[]){1, 1}, NULL);
    }
    for (int64_t done = 0; done < n; done += BLOCK) {
        int64_t run = n - done < BLOCK ? n - done : BLOCK;
        char *now[ND_MAX_OPERANDS];
        for (int i = 0; i < call->noperands; i++) {
            now[i] = in_loop[i] ? in_loop[i] : at[i];
            if (i > 0 && in_loop[i] && loop_strides[i] != 0)
                convert[call->operand[i].dtype][ND_F32](run, (char *[]){now[i], at[i]},
                                                        (int64_t[]){1, strides[i]}, NULL);
        }
        w->loop(run, now, loop_strides, &call->attrs);
        if (in_loop[0])
            convert[ND_F32][call->operand[0].dtype](run, (char *[]){at[0], now[0]},
                                                    (int64_t[]){strides[0], 1}, NULL);
        for (int i = 0; i < call->noperands; i++)
            at[i] += run * strides[i] * nd__dtype_bytes(call->operand[i].dtype);
    }
}

static void run_loop(const walk *w, int64_t n, char *const *data, const int64_t *strides) {
    if (__builtin_expect(w->halves, 0))
        run_halves(w, n, data, strides);
    else
        w->loop(n, data, strides, &w->call->attrs);
}

/// Whether an operand's next row begins where one ends.
static inline bool goes_on(const nd_kernel_call *call, int operand) {
    const int last = call->ndim - 1;
    return last < 1 || call->operand[operand].strides[last - 1] == call->shape[last];
}

static void run_row(const walk *w, int64_t n, char *const *data, const int64_t *strides) {
    if (!w->stream) {
        run_loop(w, n, data, strides);
        return;
    }
    _Alignas(64) char buffer[BUFFER_BYTES];
    const nd_kernel_call *call = w->call;
    int64_t bytes[ND_MAX_OPERANDS];
    char *at[ND_MAX_OPERANDS];
    for (int i = 0; i < call->noperands; i++) {
        bytes[i] = nd__dtype_bytes(call->operand[i].dtype);
        at[i] = data[i];
    }
    at[0] = buffer;
    char *out = data[0];
    int64_t most = BUFFER_BYTES / bytes[0];
    while (n > 0) {
        // Blocks end where lines do, so that only the ends of a row are written in parts.
        int64_t offset = (int64_t)((uintptr_t)out & 63) / bytes[0];
        int64_t run = most - offset < n ? most - offset : n;
        for (int i = 1; i < call->noperands; i++)
            if (strides[i] == 1)
                nd__stream_fetch(at[i], run * bytes[i],
                                 goes_on(call, i) ? INT64_MAX : n * bytes[i]);
        run_loop(w, run, at, strides);
        w->stream(out, buffer, run * bytes[0]);
        out += run * bytes[0];
        for (int i = 1; i < call->noperands; i++)
            at[i] += run * strides[i] * bytes[i];
        n -= run;
    }
}

/// Rows of one axis (or a single element).
static void walk_flat(const walk *w, int64_t begin, int64_t end) {
    const nd_kernel_call *call = w->call;
    char *data[ND_MAX_OPERANDS];
    int64_t strides[ND_MAX_OPERANDS];
    for (int i = 0; i < call->noperands; i++) {
        const nd_operand *operand = &call->operand[i];
        strides[i] = call->ndim ? operand->strides[0] : 1;
        data[i] = (char *)operand->data + begin * strides[i] * nd__dtype_bytes(operand->dtype);
    }
    run_row(w, end - begin, data, strides);
}

/// `rows` rows of n elements, whose beginnings are `down` bytes apart. Apart from walk_rows(), so that
/// nothing of a position is carried along: between short rows that would take as long as they do.
__attribute__((noinline)) static void run_rows(const walk *w, int64_t rows, int64_t n,
                                               char *const *data, const int64_t *strides,
                                               const int64_t *down) {
    const int count = w->call->noperands;
    char *at[ND_MAX_OPERANDS];
    for (int i = 0; i < count; i++)
        at[i] = data[i];
    while (rows-- > 0) {
        run_row(w, n, at, strides);
        for (int i = 0; i < count; i++)
            at[i] += down[i];
    }
}

/// Rows along the last axis; whole ones along the axis before it together.
static void walk_rows(const walk *w, int64_t begin, int64_t end) {
    const nd_kernel_call *call = w->call;
    const int last = call->ndim - 1, count = call->noperands;
    const int64_t columns = call->shape[last];
    char *data[ND_MAX_OPERANDS];
    int64_t strides[ND_MAX_OPERANDS]; // along the last axis, in elements
    int64_t down[ND_MAX_OPERANDS];    // along the one before it, in bytes
    int64_t bytes[ND_MAX_OPERANDS];
    for (int i = 0; i < count; i++) {
        data[i] = (char *)call->operand[i].data;
        strides[i] = call->operand[i].strides[last];
        bytes[i] = nd__dtype_bytes(call->operand[i].dtype);
        down[i] = call->operand[i].strides[last - 1] * bytes[i];
    }
    int64_t index[ND_MAX_DIMS];
    int64_t rest = begin;
    for (int axis = last; axis >= 0; axis--) {
        index[axis] = rest % call->shape[axis];
        rest /= call->shape[axis];
        for (int i = 0; i < count; i++)
            data[i] += index[axis] * call->operand[i].strides[axis] * bytes[i];
    }
    while (begin < end) {
        int64_t run = columns - index[last], rows = 1;
        if (run > end - begin)
            run = end - begin;
        if (run == columns) {
            const int64_t whole = (end - begin) / columns;
            rows = call->shape[last - 1] - index[last - 1];
            rows = rows < whole ? rows : whole;
        }
        run_rows(w, rows, run, data, strides, down);
        begin += rows * run;
        // From here to the start of the row behind them.
        for (int i = 0; i < count; i++)
            data[i] += rows * down[i] - index[last] * strides[i] * bytes[i];
        index[last] = 0;
        index[last - 1] += rows;
        for (int axis = last - 1; axis > 0 && index[axis] == call->shape[axis]; axis--) {
            for (int i = 0; i < count; i++) {
                const int64_t *steps = call->operand[i].strides;
                data[i] += (steps[axis - 1] - call->shape[axis] * steps[axis]) * bytes[i];
            }
            index[axis] = 0;
            index[axis - 1]++;
        }
    }
}

static void walk_range(void *context, int64_t begin, int64_t end) {
    const walk *w = (const walk *)context;
    if (w->call->ndim <= 1)
        walk_flat(w, begin, end);
    else
        walk_rows(w, begin, end);
    if (w->stream)
        nd__stream_end();
}

static void run_row_of_box(const void *context, int64_t n, char *const *data,
                           const int64_t *strides) {
    run_loop((const walk *)context, n, data, strides);
}

/// Which operands a loop takes a single element of for all of a row, in vectors. That of two bools
/// takes none.
static unsigned repeats_of(const nd_kernel_call *call) {
    const bool bools = call->operand[call->noperands - 1].dtype == ND_BOOL;
    return call->noperands == 3 ? (bools ? 0 : 6) : call->noperands == 4 ? 12 : 0;
}

/// The call as it is, row by row.
static void run_whole_rows(walk *w, int64_t total, int64_t cost) {
    const nd_kernel_call *call = w->call;
    int last = call->ndim - 1;
    if (__builtin_expect(total * nd__dtype_bytes(call->operand[0].dtype) >= ND__STREAM_BYTES, 0) &&
        call->operand[0].strides[last] == 1 && call->shape[last] >= 256)
        w->stream = nd__cpu_loops_now()->stream;
    if (total * cost < ND__PARALLEL_WORK)
        walk_range(w, 0, total);
    else
        nd__cpu_parallel(total, cost, 64, walk_range, w);
}

static void run_boxes(walk *w, int64_t total, int64_t cost) {
    nd_kernel_call call = *w->call;
    const unsigned repeats = repeats_of(&call);
    nd__boxes_order(&call);
    w->call = &call;
    if (nd__boxes_has_long_rows(&call, repeats))
        run_whole_rows(w, total, cost);
    else
        nd__boxes_run(&call, repeats, cost, run_row_of_box, w);
}

static inline void run_call(const nd_kernel_call *call, nd__loop loop, int64_t cost, bool halves) {
    int64_t total = nd__call_total(call);
    walk w = {.call = call, .loop = loop, .halves = halves};
    if (total == 0)
        return;
    if (total < ND__BOXED_ELEMENTS || call->noperands < 2 || call->noperands > ND__BOX_OPERANDS ||
        nd__boxes_has_long_rows(call, repeats_of(call)))
        run_whole_rows(&w, total, cost);
    else
        run_boxes(&w, total, cost);
}

// --------------------------------------------------------------------- operands that repeat elements

/// Axes along which all operands repeat: bit k for axis k. Not a last one so short that the others'
/// results would lie apart.
static unsigned repeated_axes(const nd_kernel_call *call) {
    unsigned axes = 0;
    for (int axis = 0; axis < call->ndim; axis++) {
        bool repeats = call->shape[axis] >= (axis == call->ndim - 1 ? REPEATED_LAST : 2);
        for (int i = 1; i < call->noperands && repeats; i++)
            repeats = call->operand[i].strides[axis] == 0;
        axes |= repeats ? 1u << axis : 0;
    }
    return axes;
}

/// Copies the results at the beginning of each of these axes along it.
static nd_status repeat_results(const nd_kernel_call *call, unsigned axes) {
    nd_kernel_call copy = {.op = ND_OP_clone, .noperands = 2, .ndim = call->ndim};
    const nd_operand *out = &call->operand[0];
    for (int axis = 0; axis < call->ndim; axis++)
        copy.shape[axis] = axes >> axis & 1 ? 1 : call->shape[axis];
    for (int axis = call->ndim - 1; axis >= 0; axis--) {
        if (!(axes >> axis & 1))
            continue;
        copy.operand[0] = copy.operand[1] = *out;
        copy.operand[0].data = (char *)out->data + out->strides[axis] * nd__dtype_bytes(out->dtype);
        copy.operand[1].strides[axis] = 0;
        copy.shape[axis] = call->shape[axis] - 1;
        const nd_status status = nd__cpu_copy(&copy);
        if (status != ND_OK)
            return status;
        copy.shape[axis] = call->shape[axis];
    }
    return ND_OK;
}

static inline nd_status run_distinct(const nd_kernel_call *call, nd__loop loop, int64_t cost,
                                     bool halves) {
    const unsigned axes = call->noperands > 1 ? repeated_axes(call) : 0;
    if (__builtin_expect(axes == 0, 1) || nd__call_total(call) < ND__BOXED_ELEMENTS) {
        run_call(call, loop, cost, halves);
        return ND_OK;
    }
    nd_kernel_call distinct = *call;
    for (int axis = 0; axis < call->ndim; axis++)
        if (axes >> axis & 1)
            distinct.shape[axis] = 1;
    nd__boxes_order(&distinct);
    run_call(&distinct, loop, cost, halves);
    return repeat_results(call, axes);
}

nd_status nd__cpu_rows(const nd_kernel_call *call, nd__loop loop, int64_t cost) {
    int64_t total = nd__call_total(call);
    walk w = {.call = call, .loop = loop};
    if (total > 0)
        run_whole_rows(&w, total, cost);
    return ND_OK;
}

nd_status nd__cpu_elementwise(const nd_kernel_call *call, nd__loop loop, int64_t cost) {
    return run_distinct(call, loop, cost, false);
}

nd_status nd__cpu_elementwise_halves(const nd_kernel_call *call, nd__loop loop, int64_t cost) {
    return run_distinct(call, loop, cost, true);
}
