// Scans along an axis: running sums, products and extrema, and the linear recurrence of which the
// gradients of products are made.
//
// f32, f64, i64 and u64 have loops of their own, which take several rows at once. Rows of the others are
// converted, as many at a time as fit the nearest cache, to a dtype that has them (f64, i64 or u64, for
// extrema of 16-bit floats f32), scanned there and converted back, so that one loop serves every dtype
// and running sums of narrow floats do not lose their digits. Threads share the rows; within one the
// order is that of the axis.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include <stddef.h>
#include <string.h>

/// Elements of a recurrence that are converted at a time.
#define BLOCK 512
/// Bytes of the elements of several rows, and rows of which a part is scanned together.
#define TILE_BYTES 16384
#define TILE_ROWS 4
/// Rows that lie side by side are scanned so from here on.
#define LEAST_BESIDE 8

typedef struct scan_work {
    const nd_kernel_call *call;
    nd_dtype inside;  ///< what is scanned
    nd__loop load[2]; ///< of operands 1 and 2
    nd__loop store;
    int64_t bytes[3];  ///< of an element of each operand
    int64_t size;      ///< of the axis
    int64_t stride[3]; ///< along it, in the direction of the scan
    nd__scan scan;     ///< the loop of `inside`
} scan_work;

/// b[i] = a[i] b[i - 1] + b[i]
static void recur(const double *a, double *b, int64_t n, double *last) {
    for (int64_t i = 0; i < n; i++) {
        b[i] += a[i] * *last;
        *last = b[i];
    }
}

static void recur_row(const scan_work *work, char *const *row) {
    double room[2][BLOCK], last = 0;
    for (int64_t begin = 0; begin < work->size; begin += BLOCK) {
        int64_t n = work->size - begin < BLOCK ? work->size - begin : BLOCK;
        char *at[3];
        for (int i = 0; i <= 2; i++)
            at[i] = row[i] + begin * work->stride[i] * work->bytes[i];
        for (int i = 0; i < 2; i++)
            work->load[i](n, (char *[]){(char *)room[i], at[i + 1]},
                          (int64_t[]){1, work->stride[i + 1]}, NULL);
        recur(room[0], room[1], n, &last);
        work->store(n, (char *[]){at[0], (char *)room[1]}, (int64_t[]){work->stride[0], 1}, NULL);
    }
}

/// Where the scan of a row begins, for each operand.
static void find_row(const scan_work *work, int64_t index, char **ret_row) {
    const nd_kernel_call *call = work->call;
    bool backwards = call->attrs.i[0] != 0;
    for (int i = 0; i < call->noperands; i++) {
        int64_t rest = index, offset = backwards ? (1 - work->size) * work->stride[i] : 0;
        for (int axis = call->ndim - 2; axis >= 0; axis--) {
            offset += rest % call->shape[axis] * call->operand[i].strides[axis];
            rest /= call->shape[axis];
        }
        ret_row[i] = (char *)call->operand[i].data + offset * work->bytes[i];
    }
}

static void recur_rows(void *context, int64_t begin, int64_t end) {
    const scan_work *work = (const scan_work *)context;
    for (; begin < end; begin++) {
        char *row[3];
        find_row(work, begin, row);
        recur_row(work, row);
    }
}

// ------------------------------------------------------------------------ several rows of other dtypes

/// A plane of elements: the distance of neighbours along the scan, and of rows, in elements.
typedef struct plane {
    char *data;
    int64_t step, row, bytes;
} plane;

/// Converts n elements of each of `rows` rows; along the scan first, or along the rows, and all in one go
/// where they are one row on both sides.
static void convert_plane(nd__loop convert, plane to, plane from, int64_t rows, int64_t n,
                          bool beside) {
    int64_t inner = beside ? rows : n, outer = beside ? n : rows;
    const int64_t to_inner = beside ? to.row : to.step, to_outer = beside ? to.step : to.row;
    const int64_t from_inner = beside ? from.row : from.step;
    const int64_t from_outer = beside ? from.step : from.row;
    if (to_outer == inner * to_inner && from_outer == inner * from_inner) {
        inner *= outer;
        outer = 1;
    }
    for (int64_t i = 0; i < outer; i++)
        convert(
            inner,
            (char *[]){to.data + i * to_outer * to.bytes, from.data + i * from_outer * from.bytes},
            (int64_t[]){to_inner, from_inner}, NULL);
}

/// Copies n numbers that stand so many apart.
static void copy_numbers(char *to, int64_t to_step, const char *from, int64_t from_step, int64_t n,
                         int64_t bytes) {
    if (to_step == 1 && from_step == 1)
        memcpy(to, from, (size_t)(n * bytes));
    else
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step * bytes, from + i * from_step * bytes, (size_t)bytes);
}

/// `rows` rows by way of a tile, in which the last results of the part before come first.
static void scan_tiles(const scan_work *work, plane out, plane x, int64_t rows, bool beside) {
    _Alignas(64) char room[TILE_BYTES], last[ND__SCAN_ROWS * sizeof(double)];
    const int64_t bytes = nd__dtype_bytes(work->inside);
    const int64_t most = TILE_BYTES / bytes / rows;
    for (int64_t begin = 0, n = 0; begin < work->size; begin += n) {
        const int64_t kept = begin > 0, left = work->size - begin;
        n = left < most - kept ? left : most - kept;
        const int64_t length = n + kept, step = beside ? rows : 1, row = beside ? 1 : length;
        if (kept)
            copy_numbers(room, row, last, 1, rows, bytes);
        const plane tile = {room + kept * step * bytes, step, row, bytes};
        convert_plane(work->load[0], tile, x, rows, n, beside);
        work->scan(room, step, row, room, step, row, rows, length);
        if (n < left)
            copy_numbers(last, 1, room + (length - 1) * step * bytes, row, rows, bytes);
        convert_plane(work->store, out, tile, rows, n, beside);
        out.data += n * out.step * out.bytes;
        x.data += n * x.step * x.bytes;
    }
}

/// How many rows a tile takes at most: as many as fit whole, or some of which parts do.
static int64_t rows_of_tile(const scan_work *work, bool beside) {
    const int64_t whole = TILE_BYTES / nd__dtype_bytes(work->inside) / work->size;
    const int64_t rows = beside ? ND__SCAN_ROWS : whole > TILE_ROWS ? whole : TILE_ROWS;
    return rows < ND__SCAN_ROWS ? rows : ND__SCAN_ROWS;
}

/// Rows along the axis before the last together.
static void scan_rows(void *context, int64_t begin, int64_t end) {
    const scan_work *work = (const scan_work *)context;
    const nd_kernel_call *call = work->call;
    const int before = call->ndim - 2;
    const int64_t along = before < 0 ? 1 : call->shape[before];
    const int64_t out_row = before < 0 ? 0 : call->operand[0].strides[before];
    const int64_t x_row = before < 0 ? 0 : call->operand[1].strides[before];
    const bool is_direct =
        call->operand[0].dtype == work->inside && call->operand[1].dtype == work->inside;
    while (begin < end) {
        int64_t rows = along - begin % along;
        rows = rows < end - begin ? rows : end - begin;
        const bool beside = x_row == 1 && out_row == 1 && rows >= LEAST_BESIDE;
        const int64_t most = is_direct ? ND__SCAN_ROWS : rows_of_tile(work, beside);
        rows = rows < most ? rows : most;
        char *row[3];
        find_row(work, begin, row);
        if (is_direct)
            work->scan(row[1], work->stride[1], x_row, row[0], work->stride[0], out_row, rows,
                       work->size);
        else
            scan_tiles(work, (plane){row[0], work->stride[0], out_row, work->bytes[0]},
                       (plane){row[1], work->stride[1], x_row, work->bytes[1]}, rows, beside);
        begin += rows;
    }
}

// ----------------------------------------------------------------------------------------------------

/// What operands of a dtype are scanned in.
static nd_dtype inside_of(nd_op op, nd_dtype x) {
    const bool is_half = x == ND_F16 || x == ND_BF16;
    if (is_half || x == ND_F32 || x == ND_F64) {
        const bool is_extremum = op == ND_OP_cummax || op == ND_OP_cummin;
        return op == ND_OP_recurrence || x == ND_F64 ? ND_F64
               : x == ND_F32 || is_extremum          ? ND_F32
                                                     : ND_F64;
    }
    return x == ND_U64 ? ND_U64 : ND_I64;
}

nd_status nd__cpu_scan(const nd_kernel_call *call) {
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    const nd_operand *out = &call->operand[0];
    nd_dtype x = call->operand[1].dtype;
    int last = call->ndim - 1;
    if (call->noperands == 2 && last >= 0 && call->shape[last] == 1) {
        nd_kernel_call copy = *call; // nothing comes before an element
        copy.op = ND_OP_clone;
        copy.ndim = 0;
        for (int axis = 0; axis < last; axis++)
            nd__call_add_axis_of(&copy, call, axis);
        return nd__cpu_copy(&copy);
    }
    scan_work work = {
        .call = call, .inside = inside_of(call->op, x), .size = last < 0 ? 1 : call->shape[last]};
    for (int i = 0; i < call->noperands; i++) {
        int64_t stride = last < 0 ? 1 : call->operand[i].strides[last];
        work.bytes[i] = nd__dtype_bytes(call->operand[i].dtype);
        work.stride[i] = call->attrs.i[0] ? -stride : stride;
        if (i > 0)
            work.load[i - 1] = loops->convert[call->operand[i].dtype][work.inside];
    }
    work.store = loops->convert[work.inside][out->dtype];
    int64_t rows = 1;
    for (int axis = 0; axis < last; axis++)
        rows *= call->shape[axis];
    if (work.size == 0)
        return ND_OK;
    if (call->op == ND_OP_recurrence) {
        nd__cpu_parallel(rows, 4 * work.size, 1, recur_rows, &work);
        return ND_OK;
    }
    work.scan = loops->scans[call->op == ND_OP_cumsum    ? ND__SCAN_SUM
                             : call->op == ND_OP_cumprod ? ND__SCAN_PRODUCT
                             : call->op == ND_OP_cummax  ? ND__SCAN_LARGER
                                                         : ND__SCAN_SMALLER][work.inside];
    nd__cpu_parallel(rows, 2 * work.size, last > 0 && out->strides[last - 1] == 1 ? 16 : 1,
                     scan_rows, &work);
    return ND_OK;
}
