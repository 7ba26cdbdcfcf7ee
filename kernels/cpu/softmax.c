// softmax, log_softmax and cross_entropy: hands contiguous rows to the loops, on several threads.
//
// Rows that are not contiguous (the axis is not the innermost in memory) go through scratch memory, a
// group of neighbouring rows at a time so that cache lines are used whole.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <stdatomic.h>
#include <stdlib.h>

/// Rows gathered together.
#define GROUP 16
/// Rows up to this size are made in a buffer when the result is too large for the caches.
#define ROW_BUFFER 16384

typedef struct softmax_work {
    const nd_kernel_call *call;
    void (*row)(const void *row, void *out, int64_t n);
    int64_t bytes, size, x_stride, out_stride;
    int64_t rows;
    atomic_bool failed;
} softmax_work;

static void offsets(const softmax_work *work, int64_t row, int64_t *ret_x, int64_t *ret_out) {
    const nd_kernel_call *call = work->call;
    *ret_x = *ret_out = 0;
    for (int axis = call->ndim - 2; axis >= 0; axis--) {
        int64_t index = row % call->shape[axis];
        row /= call->shape[axis];
        *ret_out += index * call->operand[0].strides[axis];
        *ret_x += index * call->operand[1].strides[axis];
    }
}

static void contiguous_rows(void *context, int64_t begin, int64_t end) {
    const softmax_work *work = (const softmax_work *)context;
    int64_t row_bytes = work->size * work->bytes;
    _Alignas(64) char buffer[ROW_BUFFER];
    bool streams =
        row_bytes <= ROW_BUFFER && row_bytes >= 1024 && work->rows * row_bytes >= ND__STREAM_BYTES;
    nd__stream stream = nd__cpu_loops_now()->stream;
    for (int64_t row = begin; row < end; row++) {
        int64_t x, out;
        offsets(work, row, &x, &out);
        char *to = (char *)work->call->operand[0].data + out * work->bytes;
        work->row((const char *)work->call->operand[1].data + x * work->bytes,
                  streams ? buffer : to, work->size);
        if (streams)
            stream(to, buffer, row_bytes);
    }
    if (streams)
        nd__stream_end();
}

static void move(const softmax_work *work, char *to, int64_t to_stride, const char *from,
                 int64_t from_stride) {
    if (work->bytes == 4)
        *(uint32_t *)(to + to_stride * 4) = *(const uint32_t *)(from + from_stride * 4);
    else
        *(uint64_t *)(to + to_stride * 8) = *(const uint64_t *)(from + from_stride * 8);
}

static void strided_rows(void *context, int64_t begin, int64_t end) {
    softmax_work *work = (softmax_work *)context;
    char *buffer = (char *)nd__cpu_scratch((size_t)(GROUP * work->size * work->bytes));
    if (!buffer) {
        atomic_store(&work->failed, true);
        return;
    }
    while (begin < end) {
        int64_t count = end - begin < GROUP ? end - begin : GROUP;
        int64_t x[GROUP], out[GROUP];
        for (int64_t row = 0; row < count; row++)
            offsets(work, begin + row, &x[row], &out[row]);
        const char *from = (const char *)work->call->operand[1].data;
        char *to = (char *)work->call->operand[0].data;
        for (int64_t i = 0; i < work->size; i++)
            for (int64_t row = 0; row < count; row++)
                move(work, buffer, row * work->size + i, from, x[row] + i * work->x_stride);
        for (int64_t row = 0; row < count; row++) {
            char *at = buffer + row * work->size * work->bytes;
            work->row(at, at, work->size);
        }
        for (int64_t i = 0; i < work->size; i++)
            for (int64_t row = 0; row < count; row++)
                move(work, to, out[row] + i * work->out_stride, buffer, row * work->size + i);
        begin += count;
    }
}

nd_status nd__cpu_softmax(const nd_kernel_call *call) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    int type = nd__float_index(x->dtype), last = call->ndim - 1;
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    const nd__softmax_rows *rows = &nd__cpu_loops_now()->softmax[type];
    softmax_work work = {.call = call,
                         .row = call->op == ND_OP_softmax ? rows->softmax : rows->log_softmax,
                         .bytes = nd__dtype_bytes(x->dtype),
                         .size = last < 0 ? 1 : call->shape[last],
                         .x_stride = last < 0 ? 1 : x->strides[last],
                         .out_stride = last < 0 ? 1 : out->strides[last],
                         .rows = 1};
    for (int axis = 0; axis < last; axis++)
        work.rows *= call->shape[axis];
    if (work.rows == 0 || work.size == 0)
        return ND_OK;
    bool contiguous = work.size == 1 || (work.x_stride == 1 && work.out_stride == 1);
    int64_t cost = work.size * (type == 0 ? 6 : 32);
    nd__cpu_parallel(work.rows, cost, contiguous ? 1 : GROUP,
                     contiguous ? contiguous_rows : strided_rows, &work);
    return atomic_load(&work.failed) ? ND_ERROR_OUT_OF_MEMORY : ND_OK;
}

// The loss is a sum over rows, cut into a fixed number of pieces so that any number of threads adds in
// the same order.
#define PIECES 64

typedef struct loss_work {
    const char *logits;
    const int64_t *targets;
    int64_t rows, classes, bytes;
    double (*loss)(const void *row, int64_t n, int64_t target);
    double sums[PIECES];
    atomic_bool out_of_range;
} loss_work;

static void loss_pieces(void *context, int64_t begin, int64_t end) {
    loss_work *work = (loss_work *)context;
    for (int64_t piece = begin; piece < end; piece++) {
        double sum = 0;
        int64_t stop = work->rows * (piece + 1) / PIECES;
        for (int64_t row = work->rows * piece / PIECES; row < stop; row++) {
            int64_t target = work->targets[row];
            if (target < 0 || target >= work->classes) {
                atomic_store(&work->out_of_range, true);
                return;
            }
            sum +=
                work->loss(work->logits + row * work->classes * work->bytes, work->classes, target);
        }
        work->sums[piece] = sum;
    }
}

nd_status nd__cpu_cross_entropy(const nd_kernel_call *call) {
    const nd_operand *out = &call->operand[0], *logits = &call->operand[1];
    int type = nd__float_index(logits->dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    loss_work work = {.logits = (const char *)logits->data,
                      .targets = (const int64_t *)call->operand[2].data,
                      .rows = call->attrs.i[0],
                      .classes = call->attrs.i[1],
                      .bytes = nd__dtype_bytes(logits->dtype),
                      .loss = nd__cpu_loops_now()->softmax[type].loss};
    int64_t cost = work.rows * work.classes / PIECES * (type == 0 ? 5 : 32);
    nd__cpu_parallel(PIECES, cost + 1, 1, loss_pieces, &work);
    if (atomic_load(&work.out_of_range))
        return ND_ERROR_INVALID_ARGUMENT;
    double sum = 0;
    for (int piece = 0; piece < PIECES; piece++)
        sum += work.sums[piece];
    double mean = sum / (double)work.rows;
    if (type == 0)
        *(float *)out->data = (float)mean;
    else
        *(double *)out->data = mean;
    return ND_OK;
}
