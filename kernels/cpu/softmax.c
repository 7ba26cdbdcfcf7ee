// softmax, log_softmax and cross_entropy: hands contiguous rows to the loops, on several threads.
//
// Rows that are not contiguous (the axis is not the innermost in memory) go through scratch memory,
// a group of neighbouring rows at a time so that cache lines are used whole: side by side where x
// has many, else one behind the other.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <stdatomic.h>
#include <stdlib.h>

/// Rows gathered together.
#define GROUP 16
/// Rows that are made side by side: as many as fit into this, from LEAST_COLUMNS to ND__COLUMNS.
#define COLUMNS_BYTES ((int64_t)1024 << 10)
#define LEAST_COLUMNS 16
/// Rows from which on that is done.
#define MANY_COLUMNS 8
/// Rows up to this size are made in a buffer when the result is too large for the caches.
#define ROW_BUFFER 16384

typedef struct softmax_work {
    const nd_kernel_call *call;
    nd__softmax_rows rows_loop;
    nd__softmax_columns columns_loop;
    nd__loop load, store; ///< of 16-bit floats, to f32 and back; NULL: rows_loop has the dtype
    nd__loop copy_in, copy_out; ///< load and store, or the copy of the dtype
    int64_t together;           ///< rows that are made side by side
    int64_t bytes, size, x_stride, out_stride;
    int64_t rows;
    nd__stream stream; ///< NULL: write where the result is
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

/// `rows` rows that are neighbours along the axis before the last, `x` and `out` elements from the
/// start.
static void neighbouring_rows(const softmax_work *work, int64_t rows, int64_t x, int64_t out) {
    const nd_kernel_call *call = work->call;
    int axis = call->ndim - 2;
    int64_t x_stride = axis < 0 ? 0 : call->operand[1].strides[axis];
    int64_t out_stride = axis < 0 ? 0 : call->operand[0].strides[axis];
    const char *from = (const char *)call->operand[1].data + x * work->bytes;
    char *to = (char *)call->operand[0].data + out * work->bytes;
    int64_t row_bytes = work->size * work->bytes;
    if (!work->stream) {
        work->rows_loop(from, x_stride, to, out_stride, rows, work->size);
        return;
    }
    _Alignas(64) char buffer[ROW_BUFFER];
    for (int64_t row = 0; row < rows; row++) {
        work->rows_loop(from + row * x_stride * work->bytes, 0, buffer, 0, 1, work->size);
        work->stream(to + row * out_stride * work->bytes, buffer, row_bytes);
    }
}

static void contiguous_rows(void *context, int64_t begin, int64_t end) {
    const softmax_work *work = (const softmax_work *)context;
    const nd_kernel_call *call = work->call;
    int64_t along = call->ndim < 2 ? 1 : call->shape[call->ndim - 2];
    while (begin < end) {
        int64_t run = along - begin % along, x, out;
        run = run < end - begin ? run : end - begin;
        offsets(work, begin, &x, &out);
        neighbouring_rows(work, run, x, out);
        begin += run;
    }
    if (work->stream)
        nd__stream_end();
}

static void move(const softmax_work *work, char *to, int64_t to_stride, const char *from,
                 int64_t from_stride) {
    if (work->bytes == 4)
        *(uint32_t *)(to + to_stride * 4) = *(const uint32_t *)(from + from_stride * 4);
    else
        *(uint64_t *)(to + to_stride * 8) = *(const uint64_t *)(from + from_stride * 8);
}

static void load_row(const softmax_work *work, int64_t row, float *buffer) {
    int64_t x, out;
    offsets(work, row, &x, &out);
    char *from = (char *)work->call->operand[1].data + x * work->bytes;
    work->load(work->size, (char *[]){(char *)buffer, from}, (int64_t[]){1, work->x_stride}, NULL);
}

static void store_row(const softmax_work *work, int64_t row, float *buffer) {
    int64_t x, out;
    offsets(work, row, &x, &out);
    char *to = (char *)work->call->operand[0].data + out * work->bytes;
    work->store(work->size, (char *[]){to, (char *)buffer}, (int64_t[]){work->out_stride, 1}, NULL);
}

/// 16-bit floats: rows as f32 and back, as many at a time as fit into ROW_BUFFER.
static void converted_rows(void *context, int64_t begin, int64_t end) {
    softmax_work *work = (softmax_work *)context;
    const int64_t size = work->size, fit = ROW_BUFFER / (int64_t)sizeof(float) / size;
    const int64_t together = fit > 1 ? fit : 1;
    float *buffer = (float *)nd__cpu_scratch((size_t)(together * size) * sizeof *buffer);
    if (!buffer) {
        atomic_store(&work->failed, true);
        return;
    }
    for (int64_t count; begin < end; begin += count) {
        count = together < end - begin ? together : end - begin;
        for (int64_t row = 0; row < count; row++)
            load_row(work, begin + row, buffer + row * size);
        work->rows_loop(buffer, size, buffer, size, count, size);
        for (int64_t row = 0; row < count; row++)
            store_row(work, begin + row, buffer + row * size);
    }
}

/// Rows of a group that are evenly spaced: the first of them, how many, and where its elements are.
typedef struct spaced_rows {
    int64_t first, count, x, out;
} spaced_rows;

/// Parts `count` rows from `begin` on where the axis before the last ends; returns into how many.
static int part_rows(const softmax_work *work, int64_t begin, int64_t count,
                     spaced_rows *ret_parts) {
    int64_t along = work->call->shape[work->call->ndim - 2];
    int parts = 0;
    for (int64_t first = 0; first < count; first += ret_parts[parts++].count) {
        int64_t left = along - (begin + first) % along;
        spaced_rows *part = &ret_parts[parts];
        part->first = first;
        part->count = left < count - first ? left : count - first;
        offsets(work, begin + first, &part->x, &part->out);
    }
    return parts;
}

/// `count` rows from `begin` on, side by side. The buffer has room for them.
static void columns(const softmax_work *work, int64_t begin, int64_t count, char *buffer) {
    const nd_kernel_call *call = work->call;
    int64_t wide = work->load ? 4 : work->bytes, bytes = work->bytes, n = work->size;
    int64_t x_step = call->operand[1].strides[call->ndim - 2];
    int64_t out_step = call->operand[0].strides[call->ndim - 2];
    spaced_rows parts[ND__COLUMNS];
    int nparts = part_rows(work, begin, count, parts);
    char *x = (char *)call->operand[1].data, *out = (char *)call->operand[0].data;
    bool reads = work->load || x_step != 1 || nparts > 1;
    bool writes = work->store || out_step != 1 || nparts > 1;
    for (int64_t i = 0; reads && i < n; i++)
        for (const spaced_rows *part = parts; part < parts + nparts; part++)
            work->copy_in(part->count,
                          (char *[]){buffer + (i * count + part->first) * wide,
                                     x + (part->x + i * work->x_stride) * bytes},
                          (int64_t[]){1, x_step}, NULL);
    work->columns_loop(reads ? buffer : x + parts->x * bytes, reads ? count : work->x_stride,
                       buffer, writes ? buffer : out + parts->out * bytes,
                       writes ? count : work->out_stride, count, n);
    for (int64_t i = 0; writes && i < n; i++)
        for (const spaced_rows *part = parts; part < parts + nparts; part++)
            work->copy_out(part->count,
                           (char *[]){out + (part->out + i * work->out_stride) * bytes,
                                      buffer + (i * count + part->first) * wide},
                           (int64_t[]){out_step, 1}, NULL);
}

static void rows_side_by_side(void *context, int64_t begin, int64_t end) {
    softmax_work *work = (softmax_work *)context;
    int64_t wide = work->load ? 4 : work->bytes;
    char *buffer = (char *)nd__cpu_scratch((size_t)(work->together * work->size * wide));
    if (!buffer) {
        atomic_store(&work->failed, true);
        return;
    }
    for (int64_t count; begin < end; begin += count) {
        count = work->together < end - begin ? work->together : end - begin;
        columns(work, begin, count, buffer);
    }
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
        work->rows_loop(buffer, work->size, buffer, work->size, count, work->size);
        for (int64_t i = 0; i < work->size; i++)
            for (int64_t row = 0; row < count; row++)
                move(work, to, out[row] + i * work->out_stride, buffer, row * work->size + i);
        begin += count;
    }
}

/// Chooses how the rows are walked, and does it. What is added up in which order depends on x alone,
/// so that a result of the caller's, whatever its strides, gets the bits of any other.
static void run_softmax(softmax_work *work) {
    int64_t wide = work->load ? 4 : work->bytes;
    int64_t cost = work->size * (wide == 4 ? 4 : 32);
    bool contiguous = work->size == 1 || (work->x_stride == 1 && work->out_stride == 1);
    if (work->size > 1 && work->x_stride != 1 && work->rows >= MANY_COLUMNS) {
        int64_t fit = COLUMNS_BYTES / (work->size * wide) / LEAST_COLUMNS * LEAST_COLUMNS;
        fit = fit < ND__COLUMNS ? fit : ND__COLUMNS;
        work->together = fit > LEAST_COLUMNS ? fit : LEAST_COLUMNS;
        nd__cpu_parallel(work->rows, cost, LEAST_COLUMNS, rows_side_by_side, work);
        return;
    }
    if (work->load) {
        nd__cpu_parallel(work->rows, cost, 1, converted_rows, work);
        return;
    }
    int64_t row_bytes = work->size * work->bytes;
    if (contiguous && row_bytes <= ROW_BUFFER && row_bytes >= 1024 &&
        work->rows * row_bytes >= ND__STREAM_BYTES)
        work->stream = nd__cpu_loops_now()->stream;
    nd__cpu_parallel(work->rows, cost, contiguous ? 1 : GROUP,
                     contiguous ? contiguous_rows : strided_rows, work);
}

nd_status nd__cpu_softmax(const nd_kernel_call *call) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    bool half = x->dtype == ND_F16 || x->dtype == ND_BF16;
    int type = half ? 0 : nd__float_index(x->dtype), last = call->ndim - 1;
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    const nd__softmax_loops *rows = &loops->softmax[type];
    softmax_work work = {.call = call,
                         .rows_loop = call->op == ND_OP_softmax ? rows->softmax : rows->log_softmax,
                         .columns_loop = call->op == ND_OP_softmax ? rows->softmax_columns
                                                                   : rows->log_softmax_columns,
                         .bytes = nd__dtype_bytes(x->dtype),
                         .size = last < 0 ? 1 : call->shape[last],
                         .x_stride = last < 0 ? 1 : x->strides[last],
                         .out_stride = last < 0 ? 1 : out->strides[last],
                         .rows = 1};
    for (int axis = 0; axis < last; axis++)
        work.rows *= call->shape[axis];
    if (work.rows == 0 || work.size == 0)
        return ND_OK;
    nd_dtype inside = half ? ND_F32 : x->dtype;
    work.copy_in = loops->convert[x->dtype][inside];
    work.copy_out = loops->convert[inside][x->dtype];
    work.load = half ? work.copy_in : NULL;
    work.store = half ? work.copy_out : NULL;
    run_softmax(&work);
    return atomic_load(&work.failed) ? ND_ERROR_OUT_OF_MEMORY : ND_OK;
}

// The loss is a sum over rows, cut into a fixed number of pieces so that any number of threads adds
// in the same order.
#define PIECES 64
#define PIECE_ROWS 64

typedef struct loss_work {
    const char *logits;
    const int64_t *targets;
    int64_t rows, classes, bytes;
    int64_t piece; ///< rows in one
    double (*loss)(const void *x, const int64_t *targets, int64_t rows, int64_t n);
    double sums[PIECES];
    atomic_bool out_of_range;
} loss_work;

static void loss_pieces(void *context, int64_t begin, int64_t end) {
    loss_work *work = (loss_work *)context;
    for (int64_t piece = begin; piece < end; piece++) {
        int64_t first = piece * work->piece, rows = work->rows - first;
        rows = rows < work->piece ? rows : work->piece;
        const int64_t *targets = work->targets + first;
        for (int64_t row = 0; row < rows; row++)
            if (targets[row] < 0 || targets[row] >= work->classes) {
                atomic_store(&work->out_of_range, true);
                return;
            }
        work->sums[piece] = work->loss(work->logits + first * work->classes * work->bytes, targets,
                                       rows, work->classes);
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
    work.piece = (work.rows + PIECES - 1) / PIECES;
    work.piece = (work.piece + PIECE_ROWS - 1) / PIECE_ROWS * PIECE_ROWS;
    int64_t pieces = (work.rows + work.piece - 1) / work.piece;
    int64_t cost = work.piece * work.classes * (type == 0 ? 4 : 32);
    nd__cpu_parallel(pieces, cost, 1, loss_pieces, &work);
    if (atomic_load(&work.out_of_range))
        return ND_ERROR_INVALID_ARGUMENT;
    double sum = 0;
    for (int64_t piece = 0; piece < pieces; piece++)
        sum += work.sums[piece];
    double mean = sum / (double)work.rows;
    if (type == 0)
        *(float *)out->data = (float)mean;
    else
        *(double *)out->data = mean;
    return ND_OK;
}
