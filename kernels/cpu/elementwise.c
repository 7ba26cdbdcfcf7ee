// Walks the iteration space of an elementwise call row by row, on one thread or several.
//
// Invariant: a loop sees rows along the last axis only; a thread's share is a range of flat indices, so
// long rows are cut too.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"

typedef struct walk {
    const nd_kernel_call *call;
    nd__loop loop;
} walk;

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
    w->loop(end - begin, data, strides, call->attrs.f);
}

static void walk_range(void *context, int64_t begin, int64_t end) {
    const walk *w = (const walk *)context;
    const nd_kernel_call *call = w->call;
    int last = call->ndim - 1, count = call->noperands;
    if (last <= 0) {
        walk_flat(w, begin, end);
        return;
    }
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
        w->loop(run, data, strides, call->attrs.f);
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

nd_status nd__cpu_elementwise(const nd_kernel_call *call, nd__loop loop, int64_t cost) {
    int64_t total = nd__call_total(call);
    walk w = {call, loop};
    if (total == 0)
        return ND_OK;
    if (total * cost < ND__PARALLEL_WORK)
        walk_range(&w, 0, total);
    else
        nd__cpu_parallel(total, cost, 64, walk_range, &w);
    return ND_OK;
}
