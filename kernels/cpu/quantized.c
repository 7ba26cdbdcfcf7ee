// quantized_linear: x times the rows of a weight of 8 and 4 bits.
//
// One row of x is multiplied with the integers as they are read, which takes the time of reading
// them. More rows share a panel of weight rows that is made into numbers once, then multiplied as
// any matrix.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <stdlib.h>

/// Bytes of a panel: such that it stays in a cache while it is multiplied.
#define PANEL_BYTES ((int64_t)2 << 20)
/// Rows that one thread takes at a time.
#define GRAIN 16

typedef struct quantized_work {
    nd__quantized weight;
    const nd__quantized_loops *loops;
    const char *x;
    char *to;      ///< results, or a panel of rows
    int64_t first; ///< row of the panel
    int64_t bytes; ///< of an element
} quantized_work;

static void dot_rows(void *context, int64_t begin, int64_t end) {
    const quantized_work *work = (const quantized_work *)context;
    work->loops->dot(&work->weight, work->x, work->to, begin, end);
}

static void expand_rows(void *context, int64_t begin, int64_t end) {
    const quantized_work *work = (const quantized_work *)context;
    work->loops->expand(&work->weight, work->to + begin * work->weight.k * work->bytes,
                        work->first + begin, work->first + end);
}

static nd_status one_row(quantized_work *work, int64_t n) {
    if (work->weight.packed) {
        void *parts = nd__cpu_scratch((size_t)(work->weight.k * work->bytes));
        if (!parts)
            return ND_ERROR_OUT_OF_MEMORY;
        work->loops->split(work->x, work->weight.k, parts);
        work->x = (const char *)parts;
    }
    nd__cpu_parallel(n, work->weight.k, GRAIN, dot_rows, work);
    return ND_OK;
}

static nd_status by_panels(quantized_work *work, const nd_kernel_call *call, char *panel,
                           int64_t most) {
    int64_t m = call->attrs.i[0], n = call->attrs.i[1], k = call->attrs.i[2];
    nd_dtype dtype = call->operand[0].dtype;
    work->to = panel;
    for (work->first = 0; work->first < n; work->first += most) {
        int64_t rows = n - work->first < most ? n - work->first : most;
        nd__cpu_parallel(rows, k, 1, expand_rows, work);
        char *out = (char *)call->operand[0].data + work->first * work->bytes;
        nd_kernel_call product = {
            .op = ND_OP_matmul,
            .noperands = 3,
            .operand = {{.data = out, .dtype = dtype},
                        {.data = call->operand[1].data, .dtype = dtype},
                        {.data = panel, .dtype = dtype}},
            .attrs = {.i = {m, rows, k, k, 1, 1, k, n, 1}},
        };
        nd_status status = nd__cpu_matmul(&product);
        if (status != ND_OK)
            return status;
    }
    return ND_OK;
}

nd_status nd__cpu_quantized(const nd_kernel_call *call) {
    const int64_t *i = call->attrs.i;
    int64_t m = i[0], n = i[1], k = i[2];
    int type = nd__float_index(call->operand[0].dtype);
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    quantized_work work = {
        .weight = {.values = call->operand[2].data,
                   .scales = call->operand[3].data,
                   .zeros = call->noperands > 4 ? call->operand[4].data : NULL,
                   .scale_dtype = call->operand[3].dtype,
                   .packed = call->operand[2].dtype == ND_U8,
                   .k = k,
                   .group = i[3]},
        .loops = &nd__cpu_loops_now()->quantized[type],
        .x = (const char *)call->operand[1].data,
        .to = (char *)call->operand[0].data,
        .bytes = nd__dtype_bytes(call->operand[0].dtype),
    };
    if (m == 1)
        return one_row(&work, n);
    int64_t rows = PANEL_BYTES / (k * work.bytes);
    rows = rows < GRAIN ? GRAIN : rows > n ? n : rows;
    char *panel = (char *)malloc((size_t)(rows * k * work.bytes));
    if (!panel)
        return ND_ERROR_OUT_OF_MEMORY;
    nd_status status = by_panels(&work, call, panel, rows);
    free(panel);
    return status;
}
