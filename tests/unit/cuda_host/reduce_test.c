// REDUCE, ARGREDUCE and SOFTMAX: which elements meet in which result, and in what layout.
#include "tests/unit/cuda_host/harness.h"
#include <math.h>

#define SUM_TOLERANCE 2000
#define TOLERANCE 64

static const nd_op reductions[] = {
    ND_OP_max,  ND_OP_min, ND_OP_any, ND_OP_all,  ND_OP_count_nonzero, ND_OP_sum,
    ND_OP_mean, ND_OP_var, ND_OP_std, ND_OP_prod, ND_OP_norm,          ND_OP_logsumexp,
};
enum { ORDERED = 5 }; ///< how many of them have no rounding

static bool is_float(nd_dtype dtype) {
    return dtype == ND_F16 || dtype == ND_BF16 || dtype == ND_F32 || dtype == ND_F64;
}

/// Of sums and products.
static nd_dtype sum_dtype(nd_dtype x) {
    if (is_float(x))
        return x;
    return x == ND_U8 || x == ND_U16 || x == ND_U32 || x == ND_U64 ? ND_U64 : ND_I64;
}

static nd_dtype result_dtype(nd_op op, nd_dtype x) {
    switch (op) {
    case ND_OP_max:
    case ND_OP_min:
        return x;
    case ND_OP_any:
    case ND_OP_all:
        return ND_BOOL;
    case ND_OP_count_nonzero:
        return ND_I64;
    case ND_OP_sum:
    case ND_OP_prod:
        return sum_dtype(x);
    default:
        return is_float(x) ? x : ND_F32;
    }
}

/// Reduces the axes of `mask`, for one dtype, x with given strides.
static void reduce(nd_op op, nd_dtype dtype, int ndim, const int64_t *shape, const int64_t *strides,
                   unsigned mask, void *(*fill)(nd_dtype, int64_t)) {
    nd_kernel_call call = {.op = op, .noperands = 2, .ndim = ndim};
    int64_t out_strides[ND_MAX_DIMS], results = 1, each = 1;
    memcpy(call.shape, shape, (size_t)ndim * sizeof *shape);
    for (int axis = ndim - 1; axis >= 0; axis--) {
        bool reduced = mask >> axis & 1;
        out_strides[axis] = reduced ? 0 : results;
        *(reduced ? &each : &results) *= shape[axis];
    }
    call.attrs.i[0] = each;
    if (op == ND_OP_prod && each > 1000)
        return;                                        // it would overflow, sooner or later
    call.attrs.f[0] = op == ND_OP_norm ? 1 + ndim : 1; // the order; var's correction
    nd_dtype out = result_dtype(op, dtype);
    call.operand[0] = strided(&call, values(out, results), out, out_strides);
    call.operand[1] = strides ? strided(&call, fill(dtype, extent(&call, strides)), dtype, strides)
                              : contiguous(&call, fill(dtype, results * each), dtype);
    both(&call, 1, &results, SUM_TOLERANCE);
}

static void reduce_all_kinds(int ndim, const int64_t *shape, const int64_t *strides,
                             unsigned mask) {
    for (size_t kind = 0; kind < sizeof reductions / sizeof *reductions; kind++)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
            reduce(reductions[kind], (nd_dtype)dtype, ndim, shape, strides, mask, values);
            if (kind < ORDERED && is_float((nd_dtype)dtype))
                reduce(reductions[kind], (nd_dtype)dtype, ndim, shape, strides, mask,
                       special_values);
        }
    free_values();
}

void test_reductions_agree(void **state) {
    (void)state;
    static const int64_t lengths[] = {1, 2, 5, 16, 33, 255, 256, 1000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        reduce_all_kinds(1, &lengths[i], NULL, 1);
    for (unsigned mask = 0; mask < 8; mask++) {
        reduce_all_kinds(3, (const int64_t[]){7, 11, 13}, NULL, mask);
        // Transposed, with a repeated axis, and with gaps.
        reduce_all_kinds(3, (const int64_t[]){7, 11, 13}, (const int64_t[]){1, 91, 7}, mask);
        reduce_all_kinds(3, (const int64_t[]){7, 11, 13}, (const int64_t[]){13, 0, 1}, mask);
        reduce_all_kinds(3, (const int64_t[]){7, 11, 13}, (const int64_t[]){400, 30, 2}, mask);
    }
    for (unsigned mask = 0; mask < 4; mask++)
        reduce_all_kinds(2, (const int64_t[]){300, 40}, NULL, mask);
}

void test_long_reductions_in_parts_agree(void **state) {
    (void)state;
    reduce_all_kinds(1, (const int64_t[]){100003}, NULL, 1);
    reduce_all_kinds(2, (const int64_t[]){3, 30011}, NULL, 2);
    reduce_all_kinds(2, (const int64_t[]){30011, 3}, NULL, 1);
    reduce_all_kinds(3, (const int64_t[]){211, 3, 101}, NULL, 5);
    // By packs: rows, and columns, from multiples of 16 bytes on or not, with gaps and with more axes.
    reduce_all_kinds(2, (const int64_t[]){5, 4096}, NULL, 2);
    reduce_all_kinds(2, (const int64_t[]){5, 4090}, (const int64_t[]){4104, 1}, 2);
    reduce_all_kinds(2, (const int64_t[]){3000, 16}, NULL, 1);
    reduce_all_kinds(2, (const int64_t[]){70, 24}, NULL, 1);
    reduce_all_kinds(2, (const int64_t[]){70, 24}, (const int64_t[]){40, 1}, 1);
    reduce_all_kinds(3, (const int64_t[]){3, 50, 32}, NULL, 2);
    reduce_all_kinds(3, (const int64_t[]){30, 5, 16}, NULL, 5);
    reduce_all_kinds(3, (const int64_t[]){40, 3, 8}, (const int64_t[]){8, 320, 1}, 1);
}

/// Rows that 8 lanes, a warp or a block read, in one turn or several, whole or with a rest; few rows and
/// many; from multiples of 16 bytes on or not; runs of packs with gaps, and those that are none.
void test_rows_by_packs_agree(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{700, 8},   {300, 17},  {300, 128}, {70, 256}, {70, 263},
                                        {40, 1024}, {33, 1030}, {600, 600}, {2, 9000}, {1, 2047}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const int64_t apart[] = {(shapes[i][1] + 15) / 8 * 8, 1}, odd[] = {shapes[i][1] + 1, 1};
        reduce_all_kinds(2, shapes[i], apart, 2);
        if (shapes[i][0] * shapes[i][1] < 40000)
            reduce_all_kinds(2, shapes[i], odd, 2);
    }
    static const int64_t inner[] = {8, 12, 16, 196, 201};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) {
        const int64_t shape[] = {20, 3, inner[i]}, gaps[] = {4 * (inner[i] + 8), inner[i] + 8, 1};
        reduce_all_kinds(3, shape, NULL, 5);
        reduce_all_kinds(3, shape, gaps, 6);
        reduce_all_kinds(3, shape, gaps, 7);
    }
    // Columns of two axes, in several parts and with a rest of a turn.
    reduce_all_kinds(3, (const int64_t[]){37, 9, 24}, (const int64_t[]){320, 32, 1}, 3);
    reduce_all_kinds(3, (const int64_t[]){37, 16, 9}, (const int64_t[]){160, 1, 16}, 5);
    reduce_all_kinds(2, (const int64_t[]){2500, 96}, NULL, 1);
}

void test_reductions_of_nothing_agree(void **state) {
    (void)state;
    reduce(ND_OP_sum, ND_F32, 2, (const int64_t[]){3, 0}, NULL, 2, values);
    reduce(ND_OP_sum, ND_I64, 2, (const int64_t[]){3, 0}, NULL, 2, values);
    reduce(ND_OP_sum, ND_F32, 2, (const int64_t[]){0, 3}, NULL, 2, values);
    reduce(ND_OP_mean, ND_F64, 2, (const int64_t[]){3, 0}, NULL, 2, values);
}

static void find(nd_op op, nd_dtype dtype, int ndim, const int64_t *shape, const int64_t *strides,
                 void *(*fill)(nd_dtype, int64_t)) {
    nd_kernel_call call = {.op = op, .noperands = 2, .ndim = ndim};
    int64_t out_strides[ND_MAX_DIMS] = {0}, results = 1;
    memcpy(call.shape, shape, (size_t)ndim * sizeof *shape);
    for (int axis = ndim - 2; axis >= 0; axis--) {
        out_strides[axis] = results;
        results *= shape[axis];
    }
    call.operand[0] = strided(&call, values(ND_I64, results), ND_I64, out_strides);
    int64_t length = strides ? extent(&call, strides) : results * shape[ndim - 1];
    call.operand[1] = strides ? strided(&call, fill(dtype, length), dtype, strides)
                              : contiguous(&call, fill(dtype, length), dtype);
    both(&call, 1, &results, 0);
}

void test_positions_of_extrema_agree(void **state) {
    (void)state;
    static const nd_op ops[] = {ND_OP_argmax, ND_OP_argmin};
    for (int which = 0; which < 2; which++)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
            nd_dtype type = (nd_dtype)dtype;
            find(ops[which], type, 1, (const int64_t[]){1}, NULL, values);
            find(ops[which], type, 1, (const int64_t[]){1000}, NULL, values);
            find(ops[which], type, 1, (const int64_t[]){70000}, NULL, values);
            find(ops[which], type, 2, (const int64_t[]){40, 10}, NULL, values);
            find(ops[which], type, 2, (const int64_t[]){40, 10}, NULL, special_values);
            find(ops[which], type, 2, (const int64_t[]){50, 60}, (const int64_t[]){1, 50},
                 special_values);
            find(ops[which], type, 3, (const int64_t[]){3, 5, 20000}, NULL, special_values);
            free_values();
        }
}

static void scan(nd_op op, nd_dtype dtype, int ndim, const int64_t *shape, const int64_t *strides,
                 bool backwards) {
    nd_kernel_call call = {.op = op, .noperands = op == ND_OP_recurrence ? 3 : 2, .ndim = ndim};
    memcpy(call.shape, shape, (size_t)ndim * sizeof *shape);
    call.attrs.i[0] = backwards;
    nd_dtype out = op == ND_OP_cumsum || op == ND_OP_cumprod ? sum_dtype(dtype) : dtype;
    int64_t length = 1;
    for (int axis = 0; axis < ndim; axis++)
        length *= shape[axis];
    call.operand[0] = contiguous(&call, values(out, length), out);
    for (int i = 1; i < call.noperands; i++)
        call.operand[i] =
            strides ? strided(&call, values(dtype, extent(&call, strides)), dtype, strides)
                    : contiguous(&call, values(dtype, length), dtype);
    both(&call, 1, &length, SUM_TOLERANCE);
}

void test_scans_agree(void **state) {
    (void)state;
    static const nd_op ops[] = {ND_OP_cumsum, ND_OP_cumprod, ND_OP_cummax, ND_OP_cummin,
                                ND_OP_recurrence};
    for (size_t which = 0; which < sizeof ops / sizeof *ops; which++)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
            nd_op op = ops[which];
            nd_dtype type = (nd_dtype)dtype;
            if (op == ND_OP_recurrence && !is_float(type))
                continue;
            for (int backwards = 0; backwards < 2; backwards++) {
                scan(op, type, 1, (const int64_t[]){1}, NULL, backwards);
                scan(op, type, 2, (const int64_t[]){30, 17}, NULL, backwards);
                scan(op, type, 2, (const int64_t[]){12, 10}, (const int64_t[]){1, 12}, backwards);
                scan(op, type, 2, (const int64_t[]){6, 9}, (const int64_t[]){50, 3}, backwards);
                // Long enough for several chunks.
                if (op != ND_OP_cumprod && op != ND_OP_recurrence)
                    scan(op, type, 2, (const int64_t[]){2, 1000}, NULL, backwards);
                else if (type == ND_F64)
                    scan(op, type, 1, (const int64_t[]){100}, NULL, backwards);
            }
            free_values();
        }
}

static void softmax(nd_op op, nd_dtype dtype, int ndim, const int64_t *shape,
                    const int64_t *strides, void *(*fill)(nd_dtype, int64_t)) {
    nd_kernel_call call = {.op = op, .noperands = 2, .ndim = ndim};
    memcpy(call.shape, shape, (size_t)ndim * sizeof *shape);
    nd_operand line = contiguous(&call, NULL, dtype);
    if (!strides)
        strides = line.strides;
    // Once out is contiguous and x is not, once the other way round.
    for (int turn = 0; turn < 2; turn++) {
        const int64_t *out = turn ? strides : line.strides, *x = turn ? line.strides : strides;
        int64_t length = extent(&call, out);
        call.operand[0] = strided(&call, values(dtype, length), dtype, out);
        call.operand[1] = strided(&call, fill(dtype, extent(&call, x) + 1), dtype, x);
        both(&call, 1, &length, TOLERANCE);
        // Rows that do not begin at a multiple of 16 bytes, up to the element that is left.
        call.operand[1].data = (char *)call.operand[1].data + dtype_bytes(dtype);
        if (call.shape[0] > 1)
            call.shape[0]--;
        length = extent(&call, out);
        if (ndim > 1)
            both(&call, 1, &length, TOLERANCE);
    }
}

/// x and a mask that is dense, the same for all rows, the same along them, or of bytes apart.
static void masked(nd_dtype dtype, int64_t rows, int64_t length, void *(*fill)(nd_dtype, int64_t)) {
    const int64_t steps[][2] = {{length, 1}, {0, 1}, {1, 0}, {2 * length + 1, 2}, {length + 3, 1}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        for (int columns = 0; columns < 2; columns++) {
            nd_kernel_call call = {
                .op = ND_OP_masked_softmax, .noperands = 3, .ndim = 2, .shape = {rows, length}};
            const int64_t line[] = {length, 1}, turned[] = {1, rows};
            const int64_t *strides = columns ? turned : line;
            int64_t count = rows * length;
            call.operand[0] = strided(&call, values(dtype, count), dtype, strides);
            call.operand[1] = strided(&call, fill(dtype, count), dtype, strides);
            uint8_t *seen = values(ND_BOOL, extent(&call, steps[i]));
            for (int64_t k = 0; !columns && k < length; k++) // a row of which nothing is kept
                seen[k * steps[i][1]] = 0;
            call.operand[2] = strided(&call, seen, ND_BOOL, steps[i]);
            both(&call, 1, &count, TOLERANCE);
        }
}

void test_masked_softmax_agrees(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    static const int64_t lengths[] = {1, 10, 63, 64, 66, 256, 264, 1024, 1030, 8192, 9000, 40000};
    for (int which = 0; which < 4; which++) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            masked(dtypes[which], 5, lengths[i], values);
            masked(dtypes[which], 5, lengths[i], special_values);
        }
        free_values();
    }
}

void test_softmax_gradients_agree(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    static const int64_t lengths[] = {1, 10, 64, 66, 256, 264, 1024, 4096, 4100, 20000};
    for (int which = 0; which < 4; which++) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (int gap = 0; gap < 6; gap += 5) {
                nd_kernel_call call = {
                    .op = ND_OP_softmax_grad, .noperands = 3, .ndim = 2, .shape = {5, lengths[i]}};
                const int64_t line[] = {lengths[i], 1}, apart[] = {lengths[i] + gap, 1};
                int64_t count = 5 * lengths[i];
                for (int k = 0; k < 3; k++)
                    call.operand[k] =
                        strided(&call, values(dtypes[which], extent(&call, k ? apart : line)),
                                dtypes[which], k ? apart : line);
                // Of sums of products that may cancel.
                both(&call, 1, &count, SUM_TOLERANCE);
            }
        free_values();
    }
}

void test_softmax_agrees(void **state) {
    (void)state;
    static const nd_op ops[] = {ND_OP_softmax, ND_OP_log_softmax};
    for (int which = 0; which < 2; which++)
        for (int dtype = 0; dtype < ND_DTYPE_COUNT; dtype++) {
            nd_dtype type = (nd_dtype)dtype;
            for (int special = 0; special < 2; special++) {
                void *(*fill)(nd_dtype, int64_t) = special ? special_values : values;
                softmax(ops[which], type, 1, (const int64_t[]){1}, NULL, fill);
                softmax(ops[which], type, 2, (const int64_t[]){33, 10}, NULL, fill);
                softmax(ops[which], type, 2, (const int64_t[]){300, 3}, NULL, fill);
                softmax(ops[which], type, 2, (const int64_t[]){3, 5000}, NULL, fill);
                // Rows that a warp, a block of each size, or nobody keeps; by packs and not.
                static const int64_t lengths[] = {63,   64,   66,   256,  260,   1024,
                                                  1030, 8192, 8193, 9000, 20000, 40000};
                for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
                    softmax(ops[which], type, 2, (const int64_t[]){5, lengths[i]}, NULL, fill);
                softmax(ops[which], type, 3, (const int64_t[]){2, 3, 128},
                        (const int64_t[]){800, 136, 1}, fill);
                // Along an axis that is not the innermost in memory; with gaps.
                softmax(ops[which], type, 3, (const int64_t[]){4, 9, 30},
                        (const int64_t[]){270, 1, 9}, fill);
                softmax(ops[which], type, 2, (const int64_t[]){6, 40}, (const int64_t[]){90, 2},
                        fill);
            }
            free_values();
        }
}
