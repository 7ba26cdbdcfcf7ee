// masked_softmax and softmax_grad: of rows of two operands, on several threads.
//
// Rows of a mask go through scratch memory, as many as fit into it at a time, where what is not kept
// becomes -infinity: so rows, masks and results may have any strides. Rows of a gradient that are
// dense are read where they lie, those of 16-bit floats as f32 from scratch memory, and others are
// not taken: elementwise passes read them in a better order.
#include "kernels/cpu/families.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/scratch.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

/// Rows of a mask up to this many bytes are made together.
#define ROWS_BYTES 16384

typedef struct rows_work {
    const nd_kernel_call *call; ///< of three operands
    const nd__softmax_loops *loops;
    nd__loop load, store; ///< of rows, from the operands' dtype and to it
    int64_t bytes, wide;  ///< of an element in memory, and as it is computed
    int64_t size, rows;
    int64_t stride[3]; ///< of the operands along a row
    bool converts;
    atomic_bool failed;
} rows_work;

/// Where a row of each operand begins.
static void find_row(const rows_work *work, int64_t row, char **ret_data) {
    const nd_kernel_call *call = work->call;
    int64_t offset[3] = {0, 0, 0};
    for (int axis = call->ndim - 2; axis >= 0; axis--) {
        int64_t index = row % call->shape[axis];
        row /= call->shape[axis];
        for (int k = 0; k < 3; k++)
            offset[k] += index * call->operand[k].strides[axis];
    }
    for (int k = 0; k < 3; k++)
        ret_data[k] =
            (char *)call->operand[k].data + offset[k] * nd__dtype_bytes(call->operand[k].dtype);
}

static void load_row(const rows_work *work, int operand, char *from, char *to) {
    work->load(work->size, (char *[]){to, from}, (int64_t[]){1, work->stride[operand]}, NULL);
}

static void store_row(const rows_work *work, char *from, char *to) {
    work->store(work->size, (char *[]){to, from}, (int64_t[]){work->stride[0], 1}, NULL);
}

// ----------------------------------------------------------------------------------------- masked

static void masked_rows(void *context, int64_t begin, int64_t end) {
    rows_work *work = (rows_work *)context;
    const int64_t size = work->size, row_bytes = size * work->wide;
    const int64_t fit = ROWS_BYTES / row_bytes, together = fit > 1 ? fit : 1;
    char *buffer = (char *)nd__cpu_scratch((size_t)(together * row_bytes));
    if (!buffer) {
        atomic_store(&work->failed, true);
        return;
    }
    const int64_t step = work->stride[2];
    char *data[3];
    for (int64_t count; begin < end; begin += count) {
        count = together < end - begin ? together : end - begin;
        for (int64_t row = 0; row < count; row++) {
            find_row(work, begin + row, data);
            load_row(work, 1, data[1], buffer + row * row_bytes);
            work->loops->hide(buffer + row * row_bytes, (const uint8_t *)data[2], step, size,
                              (double)-INFINITY);
        }
        work->loops->softmax(buffer, size, buffer, size, count, size);
        for (int64_t row = 0; row < count; row++) {
            find_row(work, begin + row, data);
            // Where a row is NaN, what is not kept is 0 all the same.
            work->loops->hide(buffer + row * row_bytes, (const uint8_t *)data[2], step, size, 0);
            store_row(work, buffer + row * row_bytes, data[0]);
        }
    }
}

// --------------------------------------------------------------------------------------- gradient

static void gradient_rows(void *context, int64_t begin, int64_t end) {
    rows_work *work = (rows_work *)context;
    const int64_t row_bytes = work->size * work->wide;
    char *buffer = work->converts ? (char *)nd__cpu_scratch((size_t)(2 * row_bytes)) : NULL;
    if (work->converts && !buffer) {
        atomic_store(&work->failed, true);
        return;
    }
    for (int64_t row = begin; row < end; row++) {
        char *data[3];
        find_row(work, row, data);
        if (!work->converts) {
            work->loops->gradient(data[1], data[2], data[0], work->size);
            continue;
        }
        load_row(work, 1, data[1], buffer);
        load_row(work, 2, data[2], buffer + row_bytes);
        work->loops->gradient(buffer, buffer + row_bytes, buffer, work->size);
        store_row(work, buffer, data[0]);
    }
}

// -------------------------------------------------------------------------------------------------

static nd_status prepare(const nd_kernel_call *call, rows_work *ret_work) {
    const nd_dtype dtype = call->operand[1].dtype;
    const bool half = dtype == ND_F16 || dtype == ND_BF16;
    const int type = half ? 0 : nd__float_index(dtype), last = call->ndim - 1;
    if (type < 0)
        return ND_ERROR_UNSUPPORTED;
    const nd__cpu_loops *loops = nd__cpu_loops_now();
    const nd_dtype inside = half ? ND_F32 : dtype;
    *ret_work = (rows_work){.call = call,
                            .loops = &loops->softmax[type],
                            .load = loops->convert[dtype][inside],
                            .store = loops->convert[inside][dtype],
                            .bytes = nd__dtype_bytes(dtype),
                            .wide = nd__dtype_bytes(inside),
                            .size = last < 0 ? 1 : call->shape[last],
                            .rows = 1,
                            .converts = half};
    for (int k = 0; k < 3; k++)
        ret_work->stride[k] = last < 0 ? 1 : call->operand[k].strides[last];
    for (int axis = 0; axis < last; axis++)
        ret_work->rows *= call->shape[axis];
    return ND_OK;
}

static nd_status run(rows_work *work, int64_t cost, void (*rows)(void *, int64_t, int64_t)) {
    if (work->rows == 0 || work->size == 0)
        return ND_OK;
    nd__cpu_parallel(work->rows, work->size * cost, 1, rows, work);
    return atomic_load(&work->failed) ? ND_ERROR_OUT_OF_MEMORY : ND_OK;
}

nd_status nd__cpu_masked_softmax(const nd_kernel_call *call) {
    rows_work work;
    nd_status status = prepare(call, &work);
    return status == ND_OK ? run(&work, work.wide == 4 ? 4 : 32, masked_rows) : status;
}

nd_status nd__cpu_softmax_grad(const nd_kernel_call *call) {
    rows_work work;
    nd_status status = prepare(call, &work);
    if (status != ND_OK)
        return status;
    for (int k = 0; k < 3; k++)
        if (work.size > 1 && work.stride[k] != 1 && !work.converts)
            return ND_ERROR_UNSUPPORTED;
    // Of 16-bit floats only the gradient may be the same number all along.
    if (work.size > 1 && (work.stride[0] != 1 || work.stride[2] != 1))
        return ND_ERROR_UNSUPPORTED;
    return run(&work, 2, gradient_rows);
}
