// Scans along an axis: running sums, products and extrema, and the linear recurrence of which the
// gradients of products are made.
//
// f32, f64 and i64 have loops of their own, which take several rows at once. Rows of the others are
// converted block by block to f64, i64 or u64, scanned there and converted back, so that one loop
// serves every dtype and running sums of narrow floats do not lose their digits. Threads share the
// rows; within one the order is that of the axis.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include <stddef.h>

#define BLOCK 512

typedef union scan_value {
    double f64;
    int64_t i64;
    uint64_t u64;
} scan_value;

typedef struct scan_work {
    const nd_kernel_call *call;
    nd_dtype inside;  ///< f64, i64 or u64
    nd__loop load[2]; ///< of operands 1 and 2
    nd__loop store;
    int64_t bytes[3];  ///< of an element of each operand
    int64_t size;      ///< of the axis
    int64_t stride[3]; ///< along it, in the direction of the scan
    nd__scan scan;     ///< the loop of the dtype, or NULL
} scan_work;

// Each scans n elements of `x` in place, behind `last`, which it keeps for the next block.
#define SCAN_BLOCK(name, field, next)                                          \
    static void name(scan_value *x, int64_t n, bool first, scan_value *last) { \
        if (!first)                                                            \
            x[0].field = next(last->field, x[0].field);                        \
        scan_value now = x[0];                                                 \
        for (int64_t i = 1; i < n; i++) {                                      \
            now.field = next(now.field, x[i].field);                           \
            x[i] = now;                                                        \
        }                                                                      \
        *last = now;                                                           \
    }
#define NEXT_SUM(a, b) ((a) + (b))
#define NEXT_PRODUCT(a, b) ((a) * (b))
#define NEXT_LARGER(a, b) ((b) > (a) ? (b) : (a))
#define NEXT_SMALLER(a, b) ((b) < (a) ? (b) : (a))
// NaN, once there, stays.
#define NEXT_LARGER_FLOAT(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define NEXT_SMALLER_FLOAT(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
SCAN_BLOCK(sum_f64, f64, NEXT_SUM)
SCAN_BLOCK(sum_u64, u64, NEXT_SUM)
SCAN_BLOCK(product_f64, f64, NEXT_PRODUCT)
SCAN_BLOCK(product_u64, u64, NEXT_PRODUCT)
SCAN_BLOCK(larger_f64, f64, NEXT_LARGER_FLOAT)
SCAN_BLOCK(larger_i64, i64, NEXT_LARGER)
SCAN_BLOCK(larger_u64, u64, NEXT_LARGER)
SCAN_BLOCK(smaller_f64, f64, NEXT_SMALLER_FLOAT)
SCAN_BLOCK(smaller_i64, i64, NEXT_SMALLER)
SCAN_BLOCK(smaller_u64, u64, NEXT_SMALLER)

static void scan_block(nd_op op, nd_dtype inside, scan_value *x, int64_t n, bool first,
                       scan_value *last) {
    bool is_float = inside == ND_F64, is_unsigned = inside == ND_U64;
    switch (op) {
    case ND_OP_cumsum:
        (is_float ? sum_f64 : sum_u64)(x, n, first, last);
        return;
    case ND_OP_cumprod:
        (is_float ? product_f64 : product_u64)(x, n, first, last);
        return;
    case ND_OP_cummax:
        (is_float ? larger_f64 : is_unsigned ? larger_u64 : larger_i64)(x, n, first, last);
        return;
    default:
        (is_float ? smaller_f64 : is_unsigned ? smaller_u64 : smaller_i64)(x, n, first, last);
    }
}

/// b[i] = a[i] b[i - 1] + b[i]
static void recur(const scan_value *a, scan_value *b, int64_t n, scan_value *last) {
    for (int64_t i = 0; i < n; i++) {
        b[i].f64 += a[i].f64 * last->f64;
        *last = b[i];
    }
}

static void scan_row(const scan_work *work, char *const *row) {
    scan_value room[2][BLOCK], last = {.u64 = 0};
    int inputs = work->call->noperands - 1;
    for (int64_t begin = 0; begin < work->size; begin += BLOCK) {
        int64_t n = work->size - begin < BLOCK ? work->size - begin : BLOCK;
        char *at[3];
        for (int i = 0; i <= inputs; i++)
            at[i] = row[i] + begin * work->stride[i] * work->bytes[i];
        for (int i = 0; i < inputs; i++)
            work->load[i](n, (char *[]){(char *)room[i], at[i + 1]},
                          (int64_t[]){1, work->stride[i + 1]}, NULL);
        if (inputs == 2)
            recur(room[0], room[1], n, &last);
        else
            scan_block(work->call->op, work->inside, room[0], n, begin == 0, &last);
        work->store(n, (char *[]){at[0], (char *)room[inputs - 1]}, (int64_t[]){work->stride[0], 1},
                    NULL);
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

static void scan_rows(void *context, int64_t begin, int64_t end) {
    const scan_work *work = (const scan_work *)context;
    for (; begin < end; begin++) {
        char *row[3];
        find_row(work, begin, row);
        scan_row(work, row);
    }
}

/// The same by a loop that takes the rows along the axis before the last together.
static void scan_together(void *context, int64_t begin, int64_t end) {
    const scan_work *work = (const scan_work *)context;
    const nd_kernel_call *call = work->call;
    int before = call->ndim - 2;
    int64_t along = before < 0 ? 1 : call->shape[before];
    int64_t out_row = before < 0 ? 0 : call->operand[0].strides[before];
    int64_t x_row = before < 0 ? 0 : call->operand[1].strides[before];
    while (begin < end) {
        int64_t rows = along - begin % along;
        rows = rows < end - begin ? rows : end - begin;
        rows = rows < ND__SCAN_ROWS ? rows : ND__SCAN_ROWS;
        char *row[3];
        find_row(work, begin, row);
        work->scan(row[1], work->stride[1], x_row, row[0], work->stride[0], out_row, rows,
                   work->size);
        begin += rows;
    }
}

/// The loop of a call's dtype, or NULL.
static nd__scan loop_of(const nd__cpu_loops *loops, const nd_kernel_call *call) {
    nd_dtype x = call->operand[1].dtype;
    if (x != call->operand[0].dtype || call->op == ND_OP_recurrence)
        return NULL;
    return loops->scans[call->op == ND_OP_cumsum    ? ND__SCAN_SUM
                        : call->op == ND_OP_cumprod ? ND__SCAN_PRODUCT
                        : call->op == ND_OP_cummax  ? ND__SCAN_LARGER
                                                    : ND__SCAN_SMALLER][x];
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
    bool is_float = x == ND_F16 || x == ND_BF16 || x == ND_F32 || x == ND_F64;
    scan_work work = {.call = call,
                      .inside = is_float      ? ND_F64
                                : x == ND_U64 ? ND_U64
                                              : ND_I64,
                      .size = last < 0 ? 1 : call->shape[last]};
    for (int i = 0; i < call->noperands; i++) {
        int64_t stride = last < 0 ? 1 : call->operand[i].strides[last];
        work.bytes[i] = nd__dtype_bytes(call->operand[i].dtype);
        work.stride[i] = call->attrs.i[0] ? -stride : stride;
        if (i > 0)
            work.load[i - 1] = loops->convert[call->operand[i].dtype][work.inside];
    }
    work.store = loops->convert[work.inside][call->operand[0].dtype];
    int64_t rows = 1;
    for (int axis = 0; axis < last; axis++)
        rows *= call->shape[axis];
    work.scan = loop_of(loops, call);
    if (work.scan && work.size > 0)
        nd__cpu_parallel(rows, 2 * work.size, last > 0 && out->strides[last - 1] == 1 ? 16 : 1,
                         scan_together, &work);
    else
        nd__cpu_parallel(rows, 4 * work.size, 1, scan_rows, &work);
    return ND_OK;
}
