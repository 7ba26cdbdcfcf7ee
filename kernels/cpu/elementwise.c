// Walks the iteration space of an elementwise call row by row, on one thread or several.
//
// Invariant: a loop sees rows along the last axis only; a thread's share is a range of flat
// indices, so long rows are cut too. Results too large for the caches are made in a buffer and
// written past them. 16-bit floats are computed in f32 by the loops of f32, over blocks in the
// first-level cache that are converted on the way in and out: every result is rounded once.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"

#define BUFFER_BYTES 1024
/// Elements of a block of 16-bit floats: with all operands it fills a part of the nearest cache.
#define BLOCK 512

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

static void walk_rows(const walk *w, int64_t begin, int64_t end) {
    const nd_kernel_call *call = w->call;
    int last = call->ndim - 1, count = call->noperands;
    char *data[ND_MAX_OPERANDS];
    int64_t strides[ND_MAX_OPERANDS]; // along the last axis, in elements
    int64_t bytes[ND_MAX_OPERANDS];
    for (int i = 0; i < count; i++) {
        data[i] = (char *)call->operand[i].data;
        strides[i] = call->operand[i].strides[last];
        bytes[i] = nd__dtype_bytes(call->operand[i].dtype);
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
        int64_t run = call->shape[last] - index[last];
        if (run > end - begin)
            run = end - begin;
        run_row(w, run, data, strides);
        begin += run;
        // From here to the start of the next row.
        for (int i = 0; i < count; i++)
            data[i] -= index[last] * strides[i] * bytes[i];
        index[last] = 0;
        for (int axis = last - 1; axis >= 0; axis--) {
            bool carry = ++index[axis] == call->shape[axis];
            for (int i = 0; i < count; i++) {
                int64_t stride = call->operand[i].strides[axis] * bytes[i];
                data[i] += carry ? stride - call->shape[axis] * stride : stride;
            }
            if (!carry)
                break;
            index[axis] = 0;
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

static inline nd_status run_call(const nd_kernel_call *call, nd__loop loop, int64_t cost,
                                 bool halves) {
    int64_t total = nd__call_total(call);
    walk w = {call, loop, NULL, halves};
    if (total == 0)
        return ND_OK;
    int last = call->ndim - 1;
    if (__builtin_expect(total * nd__dtype_bytes(call->operand[0].dtype) >= ND__STREAM_BYTES, 0) &&
        call->operand[0].strides[last] == 1 && call->shape[last] >= 256)
        w.stream = nd__cpu_loops_now()->stream;
    if (total * cost < ND__PARALLEL_WORK)
        walk_range(&w, 0, total);
    else
        nd__cpu_parallel(total, cost, 64, walk_range, &w);
    return ND_OK;
}

nd_status nd__cpu_elementwise(const nd_kernel_call *call, nd__loop loop, int64_t cost) {
    return run_call(call, loop, cost, false);
}

nd_status nd__cpu_elementwise_halves(const nd_kernel_call *call, nd__loop loop, int64_t cost) {
    return run_call(call, loop, cost, true);
}
