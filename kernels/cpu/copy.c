// Copies: same bytes at once where both sides are dense, in small square tiles where one side is a
// transpose of the other, short rows and dense ones in a loop of their own, else row by row with
// conversion. And rows of several operands behind each other.
#include "kernels/cpu/bytes.h"
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include <string.h>

/// Side of a tile: its rows and columns stay in the first-level cache on both sides.
#define TILE 64
#define TILE_OF_WORDS 32 ///< of eight bytes

typedef struct dense_copy {
    char *out;
    const char *x;
} dense_copy;

static void copy_bytes(void *context, int64_t begin, int64_t end) {
    const dense_copy *copy = (const dense_copy *)context;
    nd__bytes_copy(copy->out + begin, copy->x + begin, (size_t)(end - begin));
}

// A copy in which x is dense along axis `x_axis` and out along the last axis.
typedef struct tiled_copy {
    const nd_kernel_call *call;
    int x_axis;
    int64_t bytes, side; ///< of an element, and elements of a tile's side
    int64_t tiles_down, tiles_across;
} tiled_copy;

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#define T uint8_t
#define SIDE TILE
#define LOWER 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define UPPER 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#include "kernels/cpu/copy_tile.inc"

#define T uint16_t
#define SIDE TILE
#define LOWER 0, 8, 1, 9, 2, 10, 3, 11
#define UPPER 4, 12, 5, 13, 6, 14, 7, 15
#include "kernels/cpu/copy_tile.inc"

#define T uint32_t
#define SIDE TILE
#define LOWER 0, 4, 1, 5
#define UPPER 2, 6, 3, 7
#include "kernels/cpu/copy_tile.inc"

#define T uint64_t
#define SIDE TILE_OF_WORDS
#define LOWER 0, 2
#define UPPER 1, 3
#include "kernels/cpu/copy_tile.inc"
// clang-format on

static void copy_tiles(void *context, int64_t begin, int64_t end) {
    const tiled_copy *copy = (const tiled_copy *)context;
    const nd_kernel_call *call = copy->call;
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    int last = call->ndim - 1, down = copy->x_axis;
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t rest = tile / copy->tiles_across;
        int64_t left = tile % copy->tiles_across * copy->side;
        int64_t top = rest % copy->tiles_down * copy->side;
        rest /= copy->tiles_down;
        int64_t to = left + top * out->strides[down], from = top + left * x->strides[last];
        for (int axis = last - 1; axis >= 0; axis--) {
            if (axis == down)
                continue;
            int64_t index = rest % call->shape[axis];
            rest /= call->shape[axis];
            to += index * out->strides[axis];
            from += index * x->strides[axis];
        }
        int64_t rows = call->shape[down] - top, columns = call->shape[last] - left;
        rows = rows < copy->side ? rows : copy->side;
        columns = columns < copy->side ? columns : copy->side;
        char *out_at = (char *)out->data + to * copy->bytes;
        const char *x_at = (const char *)x->data + from * copy->bytes;
        if (copy->bytes == 4)
            copy_tile_uint32_t(out_at, out->strides[down], x_at, x->strides[last], rows, columns);
        else if (copy->bytes == 2)
            copy_tile_uint16_t(out_at, out->strides[down], x_at, x->strides[last], rows, columns);
        else if (copy->bytes == 8)
            copy_tile_uint64_t(out_at, out->strides[down], x_at, x->strides[last], rows, columns);
        else
            copy_tile_uint8_t(out_at, out->strides[down], x_at, x->strides[last], rows, columns);
    }
}

/// True, and the call is done, when it is a transposition worth tiles.
static bool copy_transposed(const nd_kernel_call *call, int64_t total, int64_t bytes) {
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    int last = call->ndim - 1;
    // An element that repeats along the last axis is no transposition: its row is filled at once.
    if (last < 1 || out->strides[last] != 1 || x->strides[last] == 1 || x->strides[last] == 0 ||
        call->shape[last] < 8)
        return false;
    for (int axis = last - 1; axis >= 0; axis--) {
        if (x->strides[axis] != 1 || call->shape[axis] < 8)
            continue;
        const int64_t side = bytes == 8 ? TILE_OF_WORDS : TILE;
        tiled_copy copy = {.call = call,
                           .x_axis = axis,
                           .bytes = bytes,
                           .side = side,
                           .tiles_down = (call->shape[axis] + side - 1) / side,
                           .tiles_across = (call->shape[last] + side - 1) / side};
        int64_t tiles =
            total / call->shape[axis] / call->shape[last] * copy.tiles_down * copy.tiles_across;
        nd__cpu_parallel(tiles, side * side, 1, copy_tiles, &copy);
        return true;
    }
    return false;
}

// -------------------------------------------------------------------------------------- short rows

/// Rows below this length go through loops in which nothing is called for each.
#define SHORT_ROW 64

typedef struct row_copy {
    const nd_kernel_call *call;
    int64_t bytes;
} row_copy;

// `rows` rows of `columns` elements. Steps along and between rows, in elements: out's, then x's.
#define COPY_COLUMNS(columns)                 \
    for (int64_t row = 0; row < rows; row++)  \
        for (int64_t i = 0; i < columns; i++) \
            out[row * down[0] + i * along[0]] = x[row * down[1] + i * along[1]];
#define COPY_ROWS(T)                                                                \
    static void copy_rows_##T(char *out_, const char *x_, const int64_t *along,     \
                              const int64_t *down, int64_t rows, int64_t columns) { \
        T *out = (T *)out_;                                                         \
        const T *x = (const T *)x_;                                                 \
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

/// True, and the call is done, when its rows are short, or dense and not too many for the caches.
static bool copy_by_rows(const nd_kernel_call *call, int64_t total, int64_t bytes) {
    int last = call->ndim - 1;
    if (last < 1)
        return false;
    int64_t columns = call->shape[last];
    bool dense = call->operand[0].strides[last] == 1 && call->operand[1].strides[last] == 1;
    if (columns >= SHORT_ROW && !(dense && total * bytes < ND__STREAM_BYTES))
        return false;
    row_copy copy = {call, bytes};
    nd__cpu_parallel(total / columns, columns < 4 ? columns : columns * bytes / 4, 1, copy_rows,
                     &copy);
    return true;
}

/// The call with every axis walked in the direction in which out ascends.
static nd_kernel_call ascending(const nd_kernel_call *call) {
    nd_kernel_call turned = *call;
    nd_operand *out = &turned.operand[0], *x = &turned.operand[1];
    for (int axis = 0; axis < call->ndim; axis++) {
        if (out->strides[axis] >= 0)
            continue;
        int64_t last = call->shape[axis] - 1;
        out->data = (char *)out->data + last * out->strides[axis] * nd__dtype_bytes(out->dtype);
        x->data = (char *)x->data + last * x->strides[axis] * nd__dtype_bytes(x->dtype);
        out->strides[axis] = -out->strides[axis];
        x->strides[axis] = -x->strides[axis];
    }
    return turned;
}

nd_status nd__cpu_copy(const nd_kernel_call *given) {
    bool descends = false;
    for (int axis = 0; axis < given->ndim; axis++)
        descends = descends || given->operand[0].strides[axis] < 0;
    nd_kernel_call turned;
    if (descends && nd__call_total(given) > 0)
        turned = ascending(given);
    const nd_kernel_call *call = descends && nd__call_total(given) > 0 ? &turned : given;
    const nd_operand *out = &call->operand[0], *x = &call->operand[1];
    int64_t total = nd__call_total(call), bytes = nd__dtype_bytes(out->dtype);
    if (out->dtype == x->dtype && total > 0) {
        bool dense = call->ndim == 0 ||
                     (call->ndim == 1 &&
                      (call->shape[0] == 1 || (out->strides[0] == 1 && x->strides[0] == 1)));
        if (dense) {
            dense_copy copy = {(char *)out->data, (const char *)x->data};
            // A quarter of an addition per byte, which an integer cannot say: count in words.
            if (total * bytes < 4 * ND__PARALLEL_WORK)
                copy_bytes(&copy, 0, total * bytes);
            else
                nd__cpu_parallel(total * bytes, 1, 4096, copy_bytes, &copy);
            return ND_OK;
        }
        if (copy_transposed(call, total, bytes) || copy_by_rows(call, total, bytes))
            return ND_OK;
    }
    return nd__cpu_elementwise(call, nd__cpu_loops_now()->convert[x->dtype][out->dtype], 1);
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
