// Copies: same bytes at once where both sides are dense, row by row where rows are, else in boxes
// (boxes.c); others with conversion. And rows of several operands behind each other.
#include "kernels/cpu/boxes.h"
#include "kernels/cpu/bytes.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include <stdlib.h>
#include <string.h>

typedef struct dense_copy {
    char *out;
    const char *x;
} dense_copy;

static void copy_bytes(void *context, int64_t begin, int64_t end) {
    const dense_copy *copy = (const dense_copy *)context;
    nd__bytes_copy(copy->out + begin, copy->x + begin, (size_t)(end - begin));
}

// -------------------------------------------------------------------------------------- short rows

/// Rows of x whose elements lie apart, or are one, have a loop of their own from this length on.
#define SHORT_ROW 16
/// Rows of so few elements are turned round place by place where they lie near each other.
#define MOST_TURNED_COLUMNS 15
#define FARTHEST_TURNED 512
/// Rows that are worth a copy each, in bytes, and those that may go past the caches, in elements.
#define LONG_BYTES 128
#define STREAMED_ROW 256

typedef struct row_copy {
    const nd_kernel_call *call;
    int64_t bytes;
} row_copy;

// `rows` rows of `columns` elements. Steps along and between rows, in elements: out's, then x's. out
// and x do not overlap. Where out's rows are dense and one behind the other, as in a flip of colours,
// a row's places are constants.
#define COPY_COLUMNS(columns)                                           \
    if (is_dense)                                                       \
        for (int64_t row = 0; row < rows; row++)                        \
            for (int64_t i = 0; i < columns; i++)                       \
                out[row * columns + i] = x[row * down_x + i * along_x]; \
    else                                                                \
        for (int64_t row = 0; row < rows; row++)                        \
            for (int64_t i = 0; i < columns; i++)                       \
                out[row * down_out + i * along_out] = x[row * down_x + i * along_x];
#define COPY_ROWS(T)                                                                \
    static void copy_rows_##T(char *out_, const char *x_, const int64_t *along,     \
                              const int64_t *down, int64_t rows, int64_t columns) { \
        T *restrict out = (T *)out_;                                                \
        const T *restrict x = (const T *)x_;                                        \
        const int64_t along_out = along[0], along_x = along[1];                     \
        const int64_t down_out = down[0], down_x = down[1];                         \
        const bool is_dense = along_out == 1 && down_out == columns;                \
        if (along[0] == 1 && along[1] == 1 && columns > 4)                          \
            for (int64_t row = 0; row < rows; row++)                                \
                nd__bytes_copy(out + row * down[0], x + row * down[1],              \
                               sizeof(T) * (size_t)columns);                        \
        else if (columns == 2)                                                      \
            COPY_COLUMNS(2)                                                         \
        else if (columns == 3)                                                      \
            COPY_COLUMNS(3)                                                         \
        else if (columns == 4)                                                      \
            COPY_COLUMNS(4)                                                         \
        else                                                                        \
            COPY_COLUMNS(columns)                                                   \
    }
COPY_ROWS(uint8_t)
COPY_ROWS(uint16_t)
COPY_ROWS(uint32_t)
COPY_ROWS(uint64_t)

/// Rows along the last axis, those along the axis before it together.
static void copy_rows(void *context, int64_t begin, int64_t end) {
    const row_copy *copy = (const row_copy *)context;
    const nd_kernel_call *call = copy->call;
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    int last = call->ndim - 1;
    int64_t together = call->shape[last - 1], bytes = copy->bytes;
    const int64_t along[] = {out->strides[last], x->strides[last]};
    const int64_t down[] = {out->strides[last - 1], x->strides[last - 1]};
    while (begin < end) {
        int64_t rest = begin, to = 0, from = 0;
        int64_t rows = together - begin % together;
        rows = rows < end - begin ? rows : end - begin;
        for (int axis = last - 1; axis >= 0; axis--) {
            to += rest % call->shape[axis] * out->strides[axis];
            from += rest % call->shape[axis] * x->strides[axis];
            rest /= call->shape[axis];
        }
        (bytes == 4   ? copy_rows_uint32_t
         : bytes == 8 ? copy_rows_uint64_t
         : bytes == 2 ? copy_rows_uint16_t
                      : copy_rows_uint8_t)((char *)out->data + to * bytes,
                                           (const char *)x->data + from * bytes, along, down, rows,
                                           call->shape[last]);
        begin += rows;
    }
}

static void run_copy_rows(const nd_kernel_call *call, int64_t total, int64_t bytes) {
    int64_t columns = call->shape[call->ndim - 1];
    row_copy copy = {call, bytes};
    nd__cpu_parallel(total / columns, columns < 4 ? columns : columns * bytes / 4, 1, copy_rows,
                     &copy);
}

/// By the loop that converts a dtype to itself; bool's would look at each element.
static nd_status copy_by_loop(const nd_kernel_call *call) {
    const nd_dtype dtype = call->operand[0].dtype;
    const nd_dtype same = dtype == ND_BOOL ? ND_U8 : dtype;
    return nd__cpu_rows(call, nd__cpu_loops_now()->convert[same][same], 1);
}

/// Whether short rows are turned round, as colours are, or of one element: both sides are read and
/// written in order all the same.
static bool is_of_turned_rows(const nd_kernel_call *call, int last) {
    const int64_t *to = call->operand[0].strides, *from = call->operand[1].strides;
    return last > 0 && call->shape[last] <= MOST_TURNED_COLUMNS && to[last] == 1 &&
           (from[last] == -1 || from[last] == 0) && llabs(from[last - 1]) <= FARTHEST_TURNED;
}

/// A copy of same bytes, whose axes are ordered.
static nd_status copy_ordered(const nd_kernel_call *call, int64_t total) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    const int last = call->ndim - 1;
    const int64_t bytes = nd__dtype_bytes(out->dtype);
    if (last < 0 || (last == 0 && out->strides[0] == 1 && x->strides[0] == 1)) {
        dense_copy copy = {(char *)out->data, (const char *)x->data};
        // A quarter of an addition per byte, which an integer cannot say: count in words.
        if (total * bytes < 4 * ND__PARALLEL_WORK)
            copy_bytes(&copy, 0, total * bytes);
        else
            nd__cpu_parallel(total * bytes, 1, 4096, copy_bytes, &copy);
        return ND_OK;
    }
    const int64_t columns = call->shape[last], step = x->strides[last];
    const bool dense = out->strides[last] == 1 && step == 1;
    const bool streams = dense && total * bytes >= ND__STREAM_BYTES && columns >= STREAMED_ROW;
    // What the loop of a row does in vectors.
    const bool steps =
        columns >= SHORT_ROW && out->strides[last] == 1 && (step == 0 || step == 2 || step == -1);
    const bool small = total < ND__BOXED_ELEMENTS || is_of_turned_rows(call, last);
    if (last > 0 && (small || (dense && columns * bytes >= LONG_BYTES && !streams)))
        run_copy_rows(call, total, bytes);
    else if (small || steps || streams)
        return copy_by_loop(call);
    else
        nd__boxes_run(call, 0, 1, NULL, NULL);
    return ND_OK;
}

nd_status nd__cpu_copy(const nd_kernel_call *call) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    const int64_t total = nd__call_total(call);
    if (total == 0)
        return ND_OK;
    if (out->dtype != x->dtype)
        return nd__cpu_elementwise(call, nd__cpu_loops_now()->convert[x->dtype][out->dtype], 1);
    if (call->ndim == 0 || (call->ndim == 1 && out->strides[0] == 1 && x->strides[0] == 1))
        return copy_ordered(call, total);
    nd_kernel_call ordered = *call;
    nd__boxes_order(&ordered);
    return copy_ordered(&ordered, total);
}

// ------------------------------------------------------------------------------ rows behind each other

/// Rows begin ... end - 1 of all operands: a cache line in which two of them meet is written by one
/// thread, once.
static void concat_rows(void *context, int64_t begin, int64_t end) {
    const nd_kernel_call *call = (const nd_kernel_call *)context;
    const nd_operand *out = &call->operand[0];
    const int64_t bytes = nd__dtype_bytes(out->dtype);
    for (int64_t row = begin; row < end; row++) {
        char *to = (char *)out->data + row * out->strides[0] * bytes;
        for (int k = 1; k < call->noperands; k++) {
            const nd_operand *x = &call->operand[k];
            const int64_t run = call->attrs.i[k - 1] * bytes;
            nd__bytes_copy(to, (const char *)x->data + row * x->strides[0] * bytes, (size_t)run);
            to += run;
        }
    }
}

/// Operand k where it stands in out, as a copy of its own, which may go past the caches.
static nd_status concat_operand(const nd_kernel_call *call, int k, int64_t before) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[k];
    const int64_t rows = call->shape[0], columns = call->attrs.i[k - 1];
    const int64_t bytes = nd__dtype_bytes(out->dtype);
    char *to = (char *)out->data + before * bytes;
    if (rows == 1 && columns * bytes < 4 * ND__PARALLEL_WORK) {
        nd__bytes_copy(to, x->data, (size_t)(columns * bytes));
        return ND_OK;
    }
    nd_kernel_call copy;
    copy.op = ND_OP_clone;
    copy.noperands = 2;
    copy.ndim = rows > 1 && columns > 1 ? 2 : 1;
    copy.shape[0] = rows;
    copy.shape[copy.ndim - 1] = rows > 1 && columns == 1 ? rows : columns;
    for (int i = 0; i < 2; i++) {
        copy.operand[i].data = i == 0 ? to : x->data;
        copy.operand[i].dtype = out->dtype;
        copy.operand[i].strides[1] = 1;
        copy.operand[i].strides[0] = rows == 1 ? 1 : i == 0 ? out->strides[0] : x->strides[0];
    }
    return nd__cpu_copy(&copy);
}

/// Shorter rows are written operand by operand.
#define ROW_BYTES 128

nd_status nd__cpu_concat(const nd_kernel_call *call) {
    const int64_t rows = call->shape[0], bytes = nd__dtype_bytes(call->operand[0].dtype);
    int64_t columns = 0;
    for (int k = 1; k < call->noperands; k++)
        columns += call->attrs.i[k - 1];
    nd_status status = ND_OK;
    if (rows > 1 && columns * bytes >= ROW_BYTES && rows * columns * bytes < ND__STREAM_BYTES) {
        nd__cpu_parallel(rows, columns * bytes / 4, 1, concat_rows, (void *)(uintptr_t)call);
        return ND_OK;
    }
    columns = 0;
    for (int k = 1; k < call->noperands && status == ND_OK; k++) {
        status = concat_operand(call, k, columns);
        columns += call->attrs.i[k - 1];
    }
    return status;
}
