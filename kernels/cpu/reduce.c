// Plans reductions and shares them between threads.
//
// Invariant: where a sum is cut depends on sizes and strides alone, so that any number of threads
// gives the same bits. Many results: threads take results. Few results of many elements: the
// elements are cut into fixed pieces whose partial results are combined in order.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include <math.h>

/// Below this many results the elements are cut, when there are enough of them.
#define FEW_RESULTS 128
#define PIECE_ELEMENTS 16384
/// Partial results of all pieces together.
#define MOST_PARTIALS 2048

static void add_axis(nd__axes *axes, int64_t size, int64_t x_stride, int64_t out_stride) {
    if (size == 1)
        return;
    int at = axes->count++;
    // Sorted: the axis that walks x most tightly is last; equal ones stay in order.
    int64_t tight = x_stride < 0 ? -x_stride : x_stride;
    while (at > 0) {
        int64_t before = axes->x_strides[at - 1];
        if ((before < 0 ? -before : before) >= tight)
            break;
        axes->shape[at] = axes->shape[at - 1];
        axes->x_strides[at] = axes->x_strides[at - 1];
        axes->out_strides[at] = axes->out_strides[at - 1];
        at--;
    }
    axes->shape[at] = size;
    axes->x_strides[at] = x_stride;
    axes->out_strides[at] = out_stride;
}

static void merge_axes(nd__axes *axes) {
    int count = 0;
    for (int axis = 0; axis < axes->count; axis++) {
        int64_t size = axes->shape[axis];
        if (count > 0 && axes->x_strides[count - 1] == size * axes->x_strides[axis] &&
            axes->out_strides[count - 1] == size * axes->out_strides[axis]) {
            axes->shape[count - 1] *= size;
            axes->x_strides[count - 1] = axes->x_strides[axis];
            axes->out_strides[count - 1] = axes->out_strides[axis];
        } else {
            axes->shape[count] = size;
            axes->x_strides[count] = axes->x_strides[axis];
            axes->out_strides[count] = axes->out_strides[axis];
            count++;
        }
    }
    axes->count = count;
}

static int64_t axes_total(const nd__axes *axes) {
    int64_t total = 1;
    for (int axis = 0; axis < axes->count; axis++)
        total *= axes->shape[axis];
    return total;
}

static void make_plan(nd__reduction *plan, const nd_kernel_call *call) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    plan->kept.count = plan->reduced.count = 0;
    for (int axis = 0; axis < call->ndim; axis++) {
        // An axis of out without a stride is reduced; of size 1 it does not matter.
        nd__axes *axes = out->strides[axis] == 0 ? &plan->reduced : &plan->kept;
        add_axis(axes, call->shape[axis], x->strides[axis], out->strides[axis]);
    }
    merge_axes(&plan->kept);
    merge_axes(&plan->reduced);
    plan->results = axes_total(&plan->kept);
    plan->elements = axes_total(&plan->reduced);
    int64_t kept = nd__last_stride(&plan->kept), reduced = nd__last_stride(&plan->reduced);
    plan->by_columns = plan->kept.count > 0 && plan->reduced.count > 0 &&
                       (kept < 0 ? -kept : kept) < (reduced < 0 ? -reduced : reduced);
    plan->divisor = 0.0;
    plan->x = x->data;
    plan->out = out->data;
}

typedef struct reduction_work {
    const nd__reduction *plan;
    const nd__reducer *reducer;
    char *partials;
    int64_t piece; ///< elements in one
} reduction_work;

static void reduce_results(void *context, int64_t begin, int64_t end) {
    const reduction_work *work = (const reduction_work *)context;
    double partials[ND__REDUCE_BATCH];
    while (begin < end) {
        int64_t stop = begin + ND__REDUCE_BATCH < end ? begin + ND__REDUCE_BATCH : end;
        work->reducer->range(work->plan, begin, stop, 0, work->plan->elements, partials);
        work->reducer->store(work->plan, begin, stop, partials);
        begin = stop;
    }
}

static void reduce_pieces(void *context, int64_t begin, int64_t end) {
    const reduction_work *work = (const reduction_work *)context;
    const nd__reduction *plan = work->plan;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t from = piece * work->piece, to = from + work->piece;
        work->reducer->range(
            plan, 0, plan->results, from, to < plan->elements ? to : plan->elements,
            work->partials + piece * plan->results * (int64_t)work->reducer->partial_size);
    }
}

static void reduce_few(reduction_work *work) {
    const nd__reduction *plan = work->plan;
    double partials[MOST_PARTIALS];
    int64_t most = MOST_PARTIALS / plan->results;
    int64_t pieces = plan->elements / PIECE_ELEMENTS;
    pieces = pieces < 64 ? pieces : 64;
    pieces = pieces < most ? pieces : most;
    work->piece = (plan->elements + pieces - 1) / pieces;
    work->piece = (work->piece + 4095) / 4096 * 4096;
    pieces = (plan->elements + work->piece - 1) / work->piece;
    work->partials = (char *)partials;
    nd__cpu_parallel(pieces, work->piece * plan->results / 4, 1, reduce_pieces, work);
    size_t row = (size_t)plan->results * work->reducer->partial_size;
    for (int64_t piece = 1; piece < pieces; piece++)
        work->reducer->combine(partials, work->partials + (size_t)piece * row, plan->results);
    work->reducer->store(plan, 0, plan->results, partials);
}

nd_status nd__cpu_reduce(const nd_kernel_call *call) {
    static const int8_t column[ND_OP_COUNT] = {
        [ND_OP_sum] = 0, [ND_OP_mean] = 0, [ND_OP_max] = 1, [ND_OP_min] = 2};
    const nd__reducer *reducer =
        nd__cpu_loops_now()->reducers[call->operand[1].dtype][column[call->op]];
    if (!reducer)
        return ND_ERROR_UNSUPPORTED;
    nd__reduction plan;
    make_plan(&plan, call);
    if (call->op == ND_OP_mean) {
        if (nd__float_index(call->operand[1].dtype) < 0)
            return ND_ERROR_UNSUPPORTED;
        // The mean of nothing is 0 / 0: NaN.
        plan.divisor = call->attrs.i[0] ? (double)call->attrs.i[0] : (double)NAN;
    }
    reduction_work work = {&plan, reducer, NULL, 0};
    if (plan.results > 0 && plan.results < FEW_RESULTS && plan.elements >= 2 * PIECE_ELEMENTS)
        reduce_few(&work);
    else
        nd__cpu_parallel(plan.results, plan.elements / 4 + 1, plan.by_columns ? 64 : 1,
                         reduce_results, &work);
    return ND_OK;
}

typedef struct argreduction {
    nd__axes kept;
    nd__argreducer reducer;
    const char *x;
    int64_t *out;
    int64_t bytes, size, stride;
} argreduction;

static void argreduce_results(void *context, int64_t begin, int64_t end) {
    const argreduction *a = (const argreduction *)context;
    nd__position position = nd__position_at(&a->kept, begin);
    for (; begin < end; begin++) {
        a->out[position.out_offset] =
            a->reducer(a->x + position.x_offset * a->bytes, a->size, a->stride);
        nd__position_advance(&position, &a->kept, 1);
    }
}

nd_status nd__cpu_argreduce(const nd_kernel_call *call) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    int last = call->ndim - 1;
    argreduction a = {.reducer =
                          nd__cpu_loops_now()->argreducers[x->dtype][call->op == ND_OP_argmin],
                      .x = (const char *)x->data,
                      .out = (int64_t *)out->data,
                      .bytes = nd__dtype_bytes(x->dtype),
                      .size = last < 0 ? 1 : call->shape[last],
                      .stride = last < 0 ? 1 : x->strides[last]};
    for (int axis = 0; axis < last; axis++)
        add_axis(&a.kept, call->shape[axis], x->strides[axis], out->strides[axis]);
    nd__cpu_parallel(axes_total(&a.kept), a.size / 2 + 1, 16, argreduce_results, &a);
    return ND_OK;
}
