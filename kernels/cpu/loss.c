// Losses of pairs and their gradients: hands pieces to the loops, on several threads.
//
// Invariant: sums are of pieces that depend on sizes alone, added one after the other.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"

/// Pairs of a piece of a sum, and of what goes through a buffer.
enum { PIECE = 16384, BUFFER_BYTES = 8192 };

/// Work of one pair, in additions of floats, by loss.
static const int8_t costs[ND_PAIR_LOSSES] = {
#define ND_PAIR_LOSS(name, value, slope_a, slope_b, cost) cost,
#include "kernels/losses.inc"
};

typedef struct pair_work {
    const nd_kernel_call *call;
    const nd__pair_loop *loop;
    nd__stream stream; ///< NULL: write where the results are
    int64_t bytes;     ///< of an element
    int64_t count;
    double *sums; ///< by piece
} pair_work;

static const char *at(const pair_work *work, int operand, int64_t index) {
    return (const char *)work->call->operand[operand].data + index * work->bytes;
}

static void sum_pieces(void *context, int64_t begin, int64_t end) {
    const pair_work *work = (const pair_work *)context;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t first = piece * PIECE, rest = work->count - first;
        work->sums[piece] = work->loop->sum(at(work, 1, first), at(work, 2, first),
                                            rest < PIECE ? rest : PIECE, &work->call->attrs);
    }
}

static void each_range(void *context, int64_t begin, int64_t end) {
    const pair_work *work = (const pair_work *)context;
    work->loop->each(at(work, 1, begin), at(work, 2, begin),
                     (char *)work->call->operand[0].data + begin * work->bytes, end - begin,
                     &work->call->attrs);
}

static void grad_range(void *context, int64_t begin, int64_t end) {
    const pair_work *work = (const pair_work *)context;
    const nd_kernel_call *call = work->call;
    _Alignas(64) char buffer[2][BUFFER_BYTES];
    int64_t most = work->stream ? BUFFER_BYTES / work->bytes : end - begin;
    for (int64_t first = begin; first < end; first += most) {
        int64_t count = end - first < most ? end - first : most;
        void *out[2] = {NULL, NULL};
        for (int k = 0; k < 2; k++)
            if (call->operand[k].data)
                out[k] =
                    work->stream ? buffer[k] : (char *)call->operand[k].data + first * work->bytes;
        for (int k = call->attrs.i[2] ? 3 : 2; work->stream && k < 5; k++)
            nd__stream_fetch(at(work, k, first), count * work->bytes, (end - first) * work->bytes);
        work->loop->grad(at(work, 2, call->attrs.i[2] ? 0 : first), at(work, 3, first),
                         at(work, 4, first), out, count, &call->attrs);
        for (int k = 0; k < 2; k++)
            if (work->stream && out[k])
                work->stream((char *)call->operand[k].data + first * work->bytes, buffer[k],
                             count * work->bytes);
    }
    if (work->stream)
        nd__stream_end();
}

static nd_status sum(pair_work *work, int64_t cost) {
    int64_t pieces = (work->count + PIECE - 1) / PIECE;
    double one, total = 0;
    work->sums = pieces > 1 ? (double *)nd__cpu_scratch((size_t)pieces * sizeof(double)) : &one;
    if (!work->sums)
        return ND_ERROR_OUT_OF_MEMORY;
    nd__cpu_parallel(pieces, PIECE * cost, 1, sum_pieces, work);
    for (int64_t piece = 0; piece < pieces; piece++)
        total += work->sums[piece];
    total *= work->call->attrs.f[1];
    const nd_operand *out = &work->call->operand[0];
    if (out->dtype == ND_F32)
        *(float *)out->data = (float)total;
    else
        *(double *)out->data = total;
    return ND_OK;
}

nd_status nd__cpu_pair_loss(const nd_kernel_call *call) {
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    int64_t kind = call->attrs.i[0], count = call->attrs.i[1];
    int64_t cost = costs[kind] * (type == 0 ? 1 : 4);
    pair_work work = {.call = call,
                      .loop = &nd__cpu_loops_now()->pair[type][kind],
                      .bytes = nd__dtype_bytes(call->operand[0].dtype),
                      .count = count};
    if (call->op == ND_OP_pair_loss && call->attrs.i[2])
        return sum(&work, cost);
    bool gradient = call->op == ND_OP_pair_loss_grad;
    if (gradient && count * work.bytes >= ND__STREAM_BYTES)
        work.stream = nd__cpu_loops_now()->stream;
    nd__cpu_parallel(count, cost, 64, gradient ? grad_range : each_range, &work);
    return ND_OK;
}
