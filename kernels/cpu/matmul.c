// matmul, linear and matmul_integer: a product per batch entry.
//
// What oneDNN is good at goes there, unless it is so small that the call costs more than the work,
// or one operand is a vector; the rest to the portable product. Threads share the batch when there
// are many small products. Else each product is shared: the portable one shares its tiles, and
// oneDNN, which would start threads of its own, is given panels of the result one by one. A function
// that the result goes through is computed panel by panel, while the panel is in a cache.
//
// Where oneDNN would take too long to turn a second operand round, the transposed product is computed, or
// a copy of the operand is made (matmul_ways.h says where). What a panel needs turned it turns for
// itself, where that fits a core's cache.
//
// Of a second operand whose rows are a multiple of 2 KiB apart it reads up to 384 in turns, unless there are so
// many rows of the first one that it makes a copy, and loses what it has read where they share
// places: then one half of them is multiplied after the other. Its code for AVX2 reads more of them
// so, and columns of the first one: then the portable product, which copies always, is faster.
#include "kernels/cpu/families.h"
#include "kernels/cpu/matmul_ways.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/// What a product costs beside its multiplications, 16 of which cost one.
#define PRODUCT_COST 128
/// Plain products that are computed one behind the other.
#define MANY_ENTRIES 4
/// The least sizes of a panel.
#define LEAST_ROWS 32
#define LEAST_COLUMNS 64
#define LEAST_TURNED_COLUMNS 128
#define MANY_ROWS 128
/// Of columns that lie dense a panel has no more where there are few rows.
#define MOST_TURNED_COLUMNS 768
/// Rows of a second operand that oneDNN reads in turns, how many of them are too many where they are
/// crowded, and of how many rows of the first one it makes a copy.
#define ROWS_IN_TURN 384
#define MANY_CROWDED_ROWS 256
#define COPIED_ROWS 1024

typedef struct matmul_work {
    const nd_kernel_call *call;
    const nd_operand *bias; ///< of a linear layer, in each row of the result; NULL: none
    int64_t bytes[3];       ///< of an element of out, a and b
    nd__matmul portable;
    nd__matmul_entries entries;
    bool library;
    int64_t rows, columns; ///< of a panel
    int64_t panels;        ///< of a product
    int64_t panels_across;
    /// The transposed result, and behind it a^T, once or for each panel; NULL where a^T is a: each thread
    /// has room for a panel then.
    float *turned;
    int64_t turned_copies;    ///< how many of a^T there are
    float *copies;            ///< of b, with its rows dense: one, or one for each panel; NULL: none
    int64_t most_copies;      ///< as many as there is memory for
    bool has_own_copies;      ///< one for each panel, which makes it
    nd__matrix columns_of_b;  ///< what they are copies of
    _Atomic nd_status status; ///< of the functions that results go through
} matmul_work;

static bool is_of_bytes(const nd_kernel_call *call) {
    return call->op == ND_OP_matmul_integer;
}

/// What a's or b's bytes stand for; `offset` is the zero points'.
static nd__bytes bytes_of(const nd_kernel_call *call, int operand, int64_t offset) {
    const uint8_t *zeros = call->operand[2 + operand].data;
    return (nd__bytes){.zeros = zeros ? zeros + offset : NULL,
                       .zero_stride = call->attrs.i[8 + operand],
                       .flip = call->operand[operand].dtype == ND_I8 ? 0x80 : 0};
}

static nd__product product_of(const matmul_work *work, int64_t entry) {
    const nd_kernel_call *call = work->call;
    const int64_t *attrs = call->attrs.i;
    int64_t offset[ND_MAX_OPERANDS] = {0};
    for (int axis = call->ndim - 1; axis >= 0; axis--) {
        int64_t index = entry % call->shape[axis];
        entry /= call->shape[axis];
        for (int i = 0; i < call->noperands; i++)
            offset[i] += index * call->operand[i].strides[axis];
    }
    char *data[3];
    for (int i = 0; i < 3; i++)
        data[i] = (char *)call->operand[i].data + offset[i] * work->bytes[i];
    nd__product product = {.m = attrs[0],
                           .n = attrs[1],
                           .k = attrs[2],
                           .a = {data[1], attrs[3], attrs[4]},
                           .b = {data[2], attrs[5], attrs[6]},
                           .out = {data[0], attrs[7], attrs[8]},
                           .accumulate = work->bias || call->attrs.f[0] != 0.0};
    if (is_of_bytes(call)) {
        product.a_bytes = bytes_of(call, 1, offset[3]);
        product.b_bytes = bytes_of(call, 2, offset[4]);
    }
    return product;
}

/// Makes the product that of one panel.
static void cut_panel(const matmul_work *work, nd__product *p, int64_t panel) {
    int64_t top = panel / work->panels_across * work->rows;
    int64_t left = panel % work->panels_across * work->columns;
    const int64_t *bytes = work->bytes;
    p->a.data = (char *)p->a.data + top * p->a.row_stride * bytes[1];
    p->b.data = (char *)p->b.data + left * p->b.column_stride * bytes[2];
    p->out.data =
        (char *)p->out.data + (top * p->out.row_stride + left * p->out.column_stride) * bytes[0];
    if (p->a_bytes.zeros)
        p->a_bytes.zeros += top * p->a_bytes.zero_stride;
    if (p->b_bytes.zeros)
        p->b_bytes.zeros += left * p->b_bytes.zero_stride;
    p->m = p->m - top < work->rows ? p->m - top : work->rows;
    p->n = p->n - left < work->columns ? p->n - left : work->columns;
}

/// Has a product's result go through a function of one operand.
static nd_status activate(const nd_kernel_call *of, const nd__product *p) {
    const nd_operand out = {.data = p->out.data,
                            .dtype = of->operand[0].dtype,
                            .strides = {p->out.row_stride, p->out.column_stride}};
    const nd_kernel_call call = {.op = (nd_op)(of->attrs.i[9] - 1),
                                 .noperands = 2,
                                 .ndim = 2,
                                 .shape = {p->m, p->n},
                                 .operand = {out, out}};
    return nd__cpu_launch(&call);
}

/// The bias in every row of a panel, for the product to be added to.
static nd_status write_bias(const matmul_work *work, const nd__product *p, int64_t left) {
    const nd_operand *bias = work->bias;
    const int64_t stride = work->call->attrs.i[10];
    const nd_dtype dtype = bias->dtype;
    const nd_kernel_call call = {
        .op = ND_OP_clone,
        .noperands = 2,
        .ndim = 2,
        .shape = {p->m, p->n},
        .operand = {{.data = p->out.data,
                     .dtype = dtype,
                     .strides = {p->out.row_stride, p->out.column_stride}},
                    {.data = (char *)bias->data + left * stride * work->bytes[0],
                     .dtype = dtype,
                     .strides = {0, stride}}}};
    return nd__cpu_launch(&call);
}

static bool activates(const nd_kernel_call *call) {
    return call->op == ND_OP_linear && call->attrs.i[9] != 0;
}

/// Before a panel's product; `left` is its first column.
static void begin_panel(matmul_work *work, const nd__product *p, int64_t left) {
    nd_status status = work->bias ? write_bias(work, p, left) : ND_OK;
    if (status != ND_OK)
        atomic_store(&work->status, status);
}

static void finish_panel(matmul_work *work, const nd__product *p) {
    nd_status status = activates(work->call) ? activate(work->call, p) : ND_OK;
    if (status != ND_OK)
        atomic_store(&work->status, status);
}

static void multiply(const matmul_work *work, nd__product *p, nd__onednn_session *session) {
    if (!work->library || !nd__onednn_product(p, work->call->operand[0].dtype, session))
        work->portable(p);
}

/// Whether so many rows of b share places of a cache.
static bool has_crowded_rows(const matmul_work *work, const nd__product *p) {
    return work->library && work->call->operand[0].dtype == ND_F32 && p->b.column_stride == 1 &&
           p->m < COPIED_ROWS && p->k > MANY_CROWDED_ROWS && p->k <= ROWS_IN_TURN &&
           p->b.row_stride * (int64_t)sizeof(float) % ND__CROWDED_BYTES == 0;
}

static void multiply_halves(const matmul_work *work, const nd__product *p,
                            nd__onednn_session *session) {
    nd__product half = *p;
    half.k = (p->k / 2 + ND__MULTIPLE - 1) / ND__MULTIPLE * ND__MULTIPLE;
    multiply(work, &half, session);
    half.a.data = (float *)p->a.data + half.k * p->a.column_stride;
    half.b.data = (float *)p->b.data + half.k * p->b.row_stride;
    half.k = p->k - half.k;
    half.accumulate = true;
    multiply(work, &half, session);
}

/// to[column][row] = from[row][column], of so many rows whose elements are dense; of `to`, too.
static nd_status turn(const nd__matrix *from, int64_t stride, int64_t rows, int64_t columns,
                      float *to) {
    const nd_kernel_call copy = {
        .op = ND_OP_clone,
        .noperands = 2,
        .ndim = 2,
        .shape = {columns, rows},
        .operand = {{.data = to, .dtype = ND_F32, .strides = {rows, 1}},
                    {.data = from->data, .dtype = ND_F32, .strides = {1, stride}}}};
    return nd__cpu_launch(&copy);
}

/// Copies b, whose columns are dense, so that its rows are: the copy of the panel `at`.
static void copy_rows(matmul_work *work, int64_t at) {
    const int64_t n = work->call->attrs.i[1], k = work->call->attrs.i[2];
    const nd__matrix *b = &work->columns_of_b;
    nd_status status = turn(b, b->column_stride, n, k, work->copies + at * n * k);
    if (status != ND_OK)
        atomic_store(&work->status, status);
}

static void products(void *context, int64_t begin, int64_t end) {
    matmul_work *work = (matmul_work *)context;
    nd__onednn_session session = {.open = false};
    for (int64_t at = begin; at < end; at++) {
        nd__product product = product_of(work, at / work->panels);
        if (work->panels > 1)
            cut_panel(work, &product, at % work->panels);
        if (work->copies && work->has_own_copies) {
            copy_rows(work, at);
            product.b.data = (float *)product.b.data + at * work->call->attrs.i[1] * product.k;
        }
        begin_panel(work, &product, at % work->panels_across * work->columns);
        if (has_crowded_rows(work, &product))
            multiply_halves(work, &product, &session);
        else
            multiply(work, &product, &session);
        finish_panel(work, &product);
    }
    nd__onednn_end(&session);
}

// -------------------------------------------------------------------------------- many plain products

/// Entries that take less than to find them does, those along the last axis of the batch together.
static void entries(void *context, int64_t begin, int64_t end) {
    const matmul_work *work = (const matmul_work *)context;
    const nd_kernel_call *call = work->call;
    const int last = call->ndim - 1;
    int64_t steps[3];
    for (int i = 0; i < 3; i++)
        steps[i] = call->operand[i].strides[last];
    while (begin < end) {
        const nd__product first = product_of(work, begin);
        int64_t run = call->shape[last] - begin % call->shape[last];
        run = run < end - begin ? run : end - begin;
        work->entries(&first, run, steps);
        begin += run;
    }
}

/// Sums of one product each, which are products of elements.
static nd_status outer_products(const nd_kernel_call *of) {
    const int64_t *i = of->attrs.i;
    nd_kernel_call call = {.op = ND_OP_mul, .noperands = 3};
    memcpy(call.operand, of->operand, 3 * sizeof *call.operand);
    for (int axis = 0; axis < of->ndim; axis++)
        nd__call_add_axis_of(&call, of, axis);
    nd__call_add_axis(&call, i[0], (const int64_t[]){i[7], i[3], 0});
    nd__call_add_axis(&call, i[1], (const int64_t[]){i[8], 0, i[6]});
    return nd__cpu_launch(&call);
}

// ------------------------------------------------------------------------------- transposed products

/// The result, of which `turned` has the columns as rows; added to what is there, where that is asked.
static void put_turned(const nd__product *p, const float *turned) {
    nd_kernel_call put = {
        .op = p->accumulate ? ND_OP_add : ND_OP_clone,
        .noperands = p->accumulate ? 3 : 2,
        .ndim = 2,
        .shape = {p->m, p->n},
        .operand = {{.data = p->out.data, .dtype = ND_F32, .strides = {p->out.row_stride, 1}},
                    {.data = p->out.data, .dtype = ND_F32, .strides = {p->out.row_stride, 1}},
                    {0}}};
    put.operand[put.noperands - 1] =
        (nd_operand){.data = (char *)(uintptr_t)turned, .dtype = ND_F32, .strides = {1, p->m}};
    nd__cpu_launch(&put);
}

/// a^T, as the panel `at` has it.
static nd__matrix turned_operand(const matmul_work *work, const nd__product *whole, int64_t at) {
    if (work->turned_copies == 0)
        return (nd__matrix){whole->a.data, whole->a.column_stride, 1};
    const int64_t copy = work->turned_copies > 1 ? at : 0;
    return (nd__matrix){(char *)(work->turned + whole->m * (whole->n + copy * whole->k)), whole->m,
                        1};
}

static nd_status turn_operand(const matmul_work *work, const nd__product *whole, int64_t at) {
    float *copy = (float *)turned_operand(work, whole, at).data;
    return turn(&whole->a, whole->a.row_stride, whole->m, whole->k, copy);
}

/// For the transposed result of a panel; NULL when there is none.
static float *room_for_turned(const matmul_work *work, const nd__product *panel, int64_t at) {
    return work->turned ? work->turned + at * work->columns * panel->m
                        : nd__cpu_scratch((size_t)(panel->m * panel->n) * sizeof *work->turned);
}

/// Panels of columns, which are rows of the transposed product.
static void turned_products(void *context, int64_t begin, int64_t end) {
    matmul_work *work = (matmul_work *)context;
    const nd__product whole = product_of(work, 0);
    nd__onednn_session session = {.open = false};
    for (int64_t at = begin; at < end; at++) {
        nd__product product = whole;
        cut_panel(work, &product, at);
        float *result = room_for_turned(work, &product, at);
        nd_status status = work->turned_copies > 1 ? turn_operand(work, &whole, at) : ND_OK;
        if (status != ND_OK)
            atomic_store(&work->status, status);
        begin_panel(work, &product, at * work->columns);
        const nd__product turned = {.m = product.n,
                                    .n = whole.m,
                                    .k = whole.k,
                                    .a = {product.b.data, product.b.column_stride, 1},
                                    .b = turned_operand(work, &whole, at),
                                    .out = {(char *)result, whole.m, 1}};
        if (result && nd__onednn_product(&turned, ND_F32, &session))
            put_turned(&product, result);
        else
            work->portable(&product);
        finish_panel(work, &product);
    }
    nd__onednn_end(&session);
}

/// False when it is not worth it, or there is no memory: nothing is done then.
static bool run_turned(matmul_work *work, const nd__product *p) {
    if (!nd__ways_turns(p, work->call->operand[0].dtype))
        return false;
    work->rows = p->m;
    work->columns = nd__ways_columns_of_turned(p);
    work->panels = work->panels_across = (p->n + work->columns - 1) / work->columns;
    bool turned = nd__ways_has_dense_columns(p);
    if (!turned) {
        work->turned_copies =
            work->panels <= nd__cpu_threads() && p->m * p->k <= ND__MOST_COPIED_ELEMENTS
                ? work->panels
                : 1;
        work->turned =
            malloc((size_t)(p->m * (p->n + p->k * work->turned_copies)) * sizeof *work->turned);
        turned = work->turned && (work->turned_copies > 1 || turn_operand(work, p, 0) == ND_OK);
    }
    if (turned)
        nd__cpu_parallel(work->panels, p->m * p->n * p->k / work->panels / 16, 1, turned_products,
                         work);
    free(work->turned);
    return turned;
}

// ------------------------------------------------------------------------- copies of second operands

/// Has the work be that by such copies, with a call of its own. False when there is no memory for
/// them: nothing is changed then.
static bool begin_copies(matmul_work *work, const nd__product *p, nd_kernel_call *by_copy) {
    const int64_t parts = nd__parts_of(p->m * p->n * p->k), threads = nd__cpu_threads();
    work->most_copies = parts < threads ? parts : threads;
    work->copies = malloc((size_t)(p->n * p->k * work->most_copies) * sizeof *work->copies);
    if (!work->copies)
        return false;
    work->columns_of_b = p->b;
    *by_copy = *work->call;
    by_copy->operand[2].data = work->copies;
    by_copy->attrs.i[5] = p->n;
    by_copy->attrs.i[6] = 1;
    work->call = by_copy;
    return true;
}

// ------------------------------------------------------------------------------------ ordinary ones

/// Halves the longer side until there are enough panels. But rows, where there are many of them and
/// the result is the largest of the three matrices: what goes through it next (an optimizer through
/// a gradient) is cut that way, and each part stays in the cache of its core. And columns, where the
/// second operand's lie dense, as a linear layer's weight has them: for each panel oneDNN turns its
/// part of it round, all of it again for each panel of rows.
static void choose_panels(matmul_work *work, const nd__product *p) {
    int64_t rows = p->m, columns = p->n;
    const bool turns = p->b.column_stride != 1;
    const int64_t least_columns = turns ? LEAST_TURNED_COLUMNS : LEAST_COLUMNS;
    for (int64_t parts = nd__parts_of(p->m * p->n * p->k / (1 + turns)); parts > 1; parts /= 2) {
        bool prefers_rows = !turns && (rows >= columns || (rows >= MANY_ROWS && rows >= p->k));
        bool by_rows = (prefers_rows || columns < 2 * least_columns) && rows >= 2 * LEAST_ROWS;
        int64_t *side = by_rows ? &rows : &columns;
        if (*side < 2 * LEAST_ROWS)
            break;
        *side = (*side / 2 + ND__MULTIPLE - 1) / ND__MULTIPLE * ND__MULTIPLE;
    }
    while (turns && rows <= ND__MOST_TURNED_ROWS && columns > MOST_TURNED_COLUMNS)
        columns = (columns / 2 + ND__MULTIPLE - 1) / ND__MULTIPLE * ND__MULTIPLE;
    work->rows = rows;
    work->columns = columns;
    work->panels_across = (p->n + columns - 1) / columns;
    work->panels = (p->m + rows - 1) / rows * work->panels_across;
}

/// Whether a library is asked, by the number of multiplications.
static bool is_for_library(const nd_kernel_call *call, int64_t size) {
    const int64_t *sizes = call->attrs.i;
    if (is_of_bytes(call))
        return size >= nd__onednn_least_bytes() && sizes[0] > ND__FEW_LINES &&
               sizes[1] > ND__FEW_LINES;
    return size >= nd__onednn_least_product(call->operand[0].dtype);
}

bool nd__cpu_multiplies(nd_dtype dtype) {
#if ND_ISA_X86
    return dtype == ND_BF16 && nd__ways_has_wide_vectors() && __builtin_cpu_supports("avx512bf16");
#else
    (void)dtype;
    return false;
#endif
}

nd_status nd__cpu_matmul(const nd_kernel_call *call) {
    nd_dtype dtype = call->operand[0].dtype;
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    nd__matmul portable = is_of_bytes(call) ? loops->matmul_integer : loops->matmul[dtype];
    if (!portable)
        return ND_ERROR_UNSUPPORTED;
    int64_t m = call->attrs.i[0], n = call->attrs.i[1], k = call->attrs.i[2];
    int64_t batch = nd__call_total(call), size = m * n * k;
    if (m == 0 || n == 0)
        return ND_OK;
    nd__onednn_watch_thread();
    matmul_work work = {.call = call,
                        .bias = call->op == ND_OP_linear && call->noperands > 3 ? &call->operand[3]
                                                                                : NULL,
                        .bytes = {nd__dtype_bytes(dtype), nd__dtype_bytes(call->operand[1].dtype),
                                  nd__dtype_bytes(call->operand[2].dtype)},
                        .portable = portable,
                        .entries = loops->matmul_entries[dtype],
                        .library = is_for_library(call, size),
                        .panels = 1,
                        .panels_across = 1};
    nd__product first = product_of(&work, 0);
    if (k == 1 && call->op == ND_OP_matmul && !first.accumulate)
        return outer_products(call);
    if (batch >= MANY_ENTRIES && call->op == ND_OP_matmul && nd__product_is_plain(&first)) {
        nd__cpu_parallel(batch, size / 4 + 4, 16, entries, &work);
        return ND_OK;
    }
    nd_kernel_call by_copy;
    if (work.library && batch == 1 && nd__ways_copies(&first, dtype) &&
        begin_copies(&work, &first, &by_copy))
        first = product_of(&work, 0);
    work.library =
        work.library && !nd__product_is_matvec(&first) && !nd__ways_is_small(&first, dtype) &&
        !nd__product_is_interleaved(&first) && !nd__ways_is_of_pairs(&first, dtype) &&
        !(batch == 1 && nd__ways_is_of_few(&first, dtype)) && !nd__ways_widens(&first, dtype) &&
        !(dtype == ND_F32 && nd__onednn_is_crowded(&first));
    if (work.library && batch == 1 && run_turned(&work, &first))
        return atomic_load(&work.status);
    bool many = batch >= 4 && size < (int64_t)1 << 22;
    if (work.library && !many)
        choose_panels(&work, &first);
    work.has_own_copies = work.panels <= work.most_copies;
    if (work.copies && !work.has_own_copies)
        copy_rows(&work, 0);
    if (work.library || many)
        nd__cpu_parallel(batch * work.panels, size / work.panels / 16 + PRODUCT_COST, 1, products,
                         &work);
    else
        products(&work, 0, batch);
    free(work.copies);
    return atomic_load(&work.status);
}
