// Walks the iteration space of an elementwise call row by row, on one thread or several.
//
// Invariant: a loop sees rows along the last axis only; a thread's share is a range of flat
// indices, so long rows are cut too. Results too large for the caches are made in a buffer and
// written past them. 16-bit floats are computed in f32 by the loops of f32, over blocks in the
// first-level cache that are converted on the way in and out: every result is rounded once. An
// operand that lies along another axis than the last (a transpose) is brought into rows in tiles, so
// that each of its cache lines is read once.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"

#define BUFFER_BYTES 1024
/// Elements of a block of 16-bit floats: with all operands it fills a part of the nearest cache.
#define BLOCK 512

/// Rows and columns of a tile.
#define TILE_ROWS 16
#define TILE_COLUMNS 128
/// Calls of fewer elements lie in the nearest cache however they lie.
#define TILED_ELEMENTS 4096

typedef struct walk {
    const nd_kernel_call *call;
    nd__loop loop;
    nd__stream stream; ///< NULL: write where the result is
    bool halves;       ///< some operands are 16-bit floats, and the loop is that of f32
    int down;          ///< of tiles: the axis of their rows
    int64_t tiles_down, tiles_across;
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

#define BRING_TILE(T)                                                                   \
    static void bring_tile_##T(char *to_, const char *x_, int64_t stride, int64_t rows, \
                               int64_t columns) {                                       \
        T *to = (T *)to_;                                                               \
        for (int64_t column = 0; column < columns; column++) {                          \
            const T *x = (const T *)x_ + column * stride;                               \
            for (int64_t row = 0; row < rows; row++)                                    \
                to[row * TILE_COLUMNS + column] = x[row];                               \
        }                                                                               \
    }
BRING_TILE(uint8_t)
BRING_TILE(uint16_t)
BRING_TILE(uint32_t)
BRING_TILE(uint64_t)

/// Whether an operand's elements lie behind each other along axis `down`, and apart along the last.
static bool lies_down(const nd_kernel_call *call, int operand, int down) {
    const int64_t *strides = call->operand[operand].strides;
    int64_t across = strides[call->ndim - 1];
    return operand > 0 && strides[down] == 1 && across != 0 && across != 1;
}

/// The first elements of a tile's operands, and its rows and columns.
static void find_tile(const walk *w, int64_t tile, char **ret_data, int64_t *ret_rows,
                      int64_t *ret_columns) {
    const nd_kernel_call *call = w->call;
    int last = call->ndim - 1;
    int64_t index[ND_MAX_DIMS], rest = tile / w->tiles_across / w->tiles_down;
    for (int axis = last - 1; axis >= 0; axis--) {
        if (axis == w->down)
            continue;
        index[axis] = rest % call->shape[axis];
        rest /= call->shape[axis];
    }
    index[last] = tile % w->tiles_across * TILE_COLUMNS;
    index[w->down] = tile / w->tiles_across % w->tiles_down * TILE_ROWS;
    for (int i = 0; i < call->noperands; i++) {
        int64_t offset = 0;
        for (int axis = 0; axis <= last; axis++)
            offset += index[axis] * call->operand[i].strides[axis];
        ret_data[i] =
            (char *)call->operand[i].data + offset * nd__dtype_bytes(call->operand[i].dtype);
    }
    int64_t rows = call->shape[w->down] - index[w->down], columns = call->shape[last] - index[last];
    *ret_rows = rows < TILE_ROWS ? rows : TILE_ROWS;
    *ret_columns = columns < TILE_COLUMNS ? columns : TILE_COLUMNS;
}

static void walk_tiles(void *context, int64_t begin, int64_t end) {
    const walk *w = (const walk *)context;
    const nd_kernel_call *call = w->call;
    static void (*const bring[9])(char *, const char *, int64_t, int64_t,
                                  int64_t) = {[1] = bring_tile_uint8_t,
                                              [2] = bring_tile_uint16_t,
                                              [4] = bring_tile_uint32_t,
                                              [8] = bring_tile_uint64_t};
    _Alignas(64) char tiles[ND_MAX_OPERANDS - 1][TILE_ROWS * TILE_COLUMNS * sizeof(double)];
    for (int64_t tile = begin; tile < end; tile++) {
        char *data[ND_MAX_OPERANDS];
        int64_t strides[ND_MAX_OPERANDS], down[ND_MAX_OPERANDS], rows, columns;
        find_tile(w, tile, data, &rows, &columns);
        for (int i = 0; i < call->noperands; i++) {
            int64_t bytes = nd__dtype_bytes(call->operand[i].dtype);
            strides[i] = call->operand[i].strides[call->ndim - 1];
            down[i] = call->operand[i].strides[w->down] * bytes;
            if (!lies_down(call, i, w->down))
                continue;
            bring[bytes](tiles[i - 1], data[i], strides[i], rows, columns);
            data[i] = tiles[i - 1];
            strides[i] = 1;
            down[i] = TILE_COLUMNS * bytes;
        }
        for (int64_t row = 0; row < rows; row++) {
            run_loop(w, columns, data, strides);
            for (int i = 0; i < call->noperands; i++)
                data[i] += down[i];
        }
    }
}

/// Chooses the axis of tiles' rows. False: no operand is worth them.
static bool make_tiles(walk *w, int64_t total) {
    const nd_kernel_call *call = w->call;
    int last = call->ndim - 1;
    if (total < TILED_ELEMENTS || last < 1 || call->shape[last] < 8 ||
        call->operand[0].strides[last] != 1)
        return false;
    for (int axis = last - 1; axis >= 0; axis--)
        for (int i = 1; i < call->noperands && call->shape[axis] >= 8; i++)
            if (lies_down(call, i, axis)) {
                w->down = axis;
                w->tiles_down = (call->shape[axis] + TILE_ROWS - 1) / TILE_ROWS;
                w->tiles_across = (call->shape[last] + TILE_COLUMNS - 1) / TILE_COLUMNS;
                return true;
            }
    return false;
}

static inline nd_status run_call(const nd_kernel_call *call, nd__loop loop, int64_t cost,
                                 bool halves) {
    int64_t total = nd__call_total(call);
    walk w = {.call = call, .loop = loop, .halves = halves};
    if (total == 0)
        return ND_OK;
    int last = call->ndim - 1;
    if (make_tiles(&w, total)) {
        int64_t tiles =
            total / call->shape[w.down] / call->shape[last] * w.tiles_down * w.tiles_across;
        nd__cpu_parallel(tiles, TILE_ROWS * TILE_COLUMNS * cost, 1, walk_tiles, &w);
        return ND_OK;
    }
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
