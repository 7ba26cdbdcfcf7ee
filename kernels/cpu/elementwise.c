// Walks the iteration space of an elementwise call row by row, on one thread or several.
//
// Invariant: a loop sees rows along the last axis only; a thread's share is a range of flat
// indices, so long rows are cut too. Results too large for the caches are made in a buffer and
// written past them.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"

#define BUFFER_BYTES 1024

typedef struct walk {
    const nd_kernel_call *call;
    nd__loop loop;
    nd__stream stream; ///< NULL: write where the result is
} walk;

static void run_row(const walk *w, int64_t n, char *const *data, const int64_t *strides) {
    if (!w->stream) {
        w->loop(n, data, strides, &w->call->attrs);
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
        w->loop(run, at, strides, &call->attrs);
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

nd_status nd__cpu_elementwise(const nd_kernel_call *call, nd__loop loop, int64_t cost) {
    int64_t total = nd__call_total(call);
    walk w = {call, loop, NULL};
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
