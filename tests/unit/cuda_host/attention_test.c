// ATTENTION: the kernels for CUDA beside sums in f64, for all floats, and beside the CPU's kernel where
// that takes it. Those of 16-bit floats, which round weights for the tensor cores, within what that costs.
#include "tests/elements.h"
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"
#include <math.h>

#define TOLERANCE 200
#define MOST_KEYS 200

enum { OUT, LOG_SUMS, QUERY, KEY, VALUE, MASK, OPERANDS };

typedef struct sizes {
    int64_t batch, queries, keys, length, value_length;
} sizes;

typedef enum masking { NO_MASK, BOOL_MASK, ADDED_MASK, ROW_MASK } masking;

/// A matrix for each batch, with `gap` elements between rows, `skip` before the first.
static nd_operand matrix(const nd_kernel_call *call, nd_dtype dtype, int64_t rows, int64_t columns,
                         int64_t gap, int64_t skip) {
    int64_t batch = call->shape[0], stride = rows * (columns + gap);
    char *data = values(dtype, batch * stride + skip);
    return strided(call, data + (size_t)skip * dtype_bytes(dtype), dtype, &stride);
}

static nd_kernel_call attention_call(nd_dtype dtype, const sizes *of, masking masked, bool causal,
                                     int64_t gap, int64_t skip) {
    nd_kernel_call call = {.op = ND_OP_attention, .noperands = OPERANDS, .ndim = 1};
    call.shape[0] = of->batch;
    nd_dtype wide = dtype == ND_F64 ? ND_F64 : ND_F32;
    int64_t mask_rows = masked == ROW_MASK ? 1 : of->queries;
    int64_t e = of->length + gap, v = of->value_length;
    call.attrs = (nd_op_attrs){
        .f = {0.3},
        .i = {of->queries, of->keys, of->length, v, e, e, v + gap, v + gap,
              mask_rows == 1 ? 0 : of->keys, 1, causal ? 1 : 0},
    };
    call.operand[OUT] = matrix(&call, dtype, of->queries, v, gap, skip);
    call.operand[LOG_SUMS] = matrix(&call, wide, of->queries, 1, 0, 0);
    call.operand[QUERY] = matrix(&call, dtype, of->queries, of->length, gap, skip);
    call.operand[KEY] = matrix(&call, dtype, of->keys, of->length, gap, skip);
    call.operand[VALUE] = matrix(&call, dtype, of->keys, v, gap, skip);
    call.operand[MASK] =
        matrix(&call, masked == ADDED_MASK ? wide : ND_BOOL, mask_rows, of->keys, 0, 0);
    if (masked == NO_MASK)
        call.operand[MASK].data = NULL;
    return call;
}

static double element(const nd_kernel_call *call, int which, int64_t batch, int64_t at) {
    const nd_operand *operand = &call->operand[which];
    return element_as_double(operand->data, operand->dtype, batch * operand->strides[0] + at);
}

static double score_of(const nd_kernel_call *call, int64_t batch, int64_t row, int64_t key) {
    const int64_t *i = call->attrs.i;
    double dot = 0;
    for (int64_t e = 0; e < i[2]; e++)
        dot +=
            element(call, QUERY, batch, row * i[4] + e) * element(call, KEY, batch, key * i[5] + e);
    dot *= call->attrs.f[0];
    if (i[10] && key > row)
        return -INFINITY;
    if (!call->operand[MASK].data)
        return dot;
    double mask = element(call, MASK, batch, row * i[8] + key * i[9]);
    if (call->operand[MASK].dtype == ND_BOOL)
        return mask != 0 ? dot : -INFINITY;
    return dot + mask;
}

/// What a row should be, in f64: its result, how much that was added up of, and the logarithm of its sum.
typedef struct attended_row {
    double result[128], size[128], log_sum;
} attended_row;

static void find_row(const nd_kernel_call *call, int64_t batch, int64_t row, attended_row *to) {
    const int64_t *i = call->attrs.i;
    double powers[MOST_KEYS], largest = -INFINITY, sum = 0;
    for (int64_t key = 0; key < i[1]; key++) {
        powers[key] = score_of(call, batch, row, key);
        largest = fmax(largest, powers[key]);
    }
    for (int64_t key = 0; key < i[1]; key++)
        sum += powers[key] = exp(powers[key] - (isinf(largest) ? 0 : largest));
    for (int64_t column = 0; column < i[3]; column++) {
        double result = 0, size = 0;
        for (int64_t key = 0; key < i[1]; key++) {
            double term = powers[key] * element(call, VALUE, batch, key * i[6] + column);
            result += term;
            size += fabs(term);
        }
        to->result[column] = sum == 0 ? 0 : result / sum;
        to->size[column] = sum == 0 ? 0 : size / sum;
    }
    to->log_sum = sum == 0 ? INFINITY : log(sum) + largest;
}

/// What a row should be: written to the operands of `to`.
static void attend_row(const nd_kernel_call *call, nd_kernel_call *to, int64_t batch, int64_t row) {
    attended_row found;
    find_row(call, batch, row, &found);
    for (int64_t column = 0; column < call->attrs.i[3]; column++)
        set_element(to->operand[OUT].data, to->operand[OUT].dtype,
                    batch * to->operand[OUT].strides[0] + row * call->attrs.i[7] + column,
                    found.result[column]);
    set_element(to->operand[LOG_SUMS].data, to->operand[LOG_SUMS].dtype,
                batch * to->operand[LOG_SUMS].strides[0] + row, found.log_sum);
}

static void attention_agrees(nd_dtype dtype, const sizes *of, masking masked, bool causal,
                             int64_t gap, int64_t skip) {
    nd_kernel_call call = attention_call(dtype, of, masked, causal, gap, skip);
    int64_t lengths[] = {of->batch * of->queries * (of->value_length + gap),
                         of->batch * of->queries};
    nd_kernel_call expected = call;
    for (int which = 0; which < 2; which++) {
        size_t bytes = (size_t)lengths[which] * dtype_bytes(call.operand[which].dtype);
        expected.operand[which].data = values(call.operand[which].dtype, lengths[which]);
        memcpy(expected.operand[which].data, call.operand[which].data, bytes);
    }
    for (int64_t batch = 0; batch < of->batch; batch++)
        for (int64_t row = 0; row < of->queries; row++)
            attend_row(&call, &expected, batch, row);
    // The CPU has no kernel for many keys, or for 16 bits.
    nd_kernel_call small = call;
    if (of->batch * of->queries * of->keys * (of->length + of->value_length) <= 1 << 12 &&
        of->keys <= 128 && dtype_bytes(dtype) > 2)
        assert_int_equal(both(&small, 2, lengths, TOLERANCE), ND_OK);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    for (int which = 0; which < 2; which++)
        compare_values(&call, which, lengths[which], expected.operand[which].data,
                       call.operand[which].data, TOLERANCE);
    free_values();
}

void test_attention_agrees(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    static const sizes shapes[] = {
        {1, 1, 1, 1, 1},     {2, 3, 5, 4, 6},      {2, 17, 31, 16, 8},   {1, 64, 32, 32, 32},
        {2, 65, 33, 40, 64}, {1, 70, 130, 64, 64}, {3, 31, 65, 96, 128}, {1, 40, 70, 128, 20},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int which = 0; which < 4; which++)
            for (int masked = NO_MASK; masked <= ROW_MASK; masked++) {
                attention_agrees(dtypes[which], &shapes[i], (masking)masked, false, 0, 0);
                attention_agrees(dtypes[which], &shapes[i], (masking)masked, true, 3, 1);
            }
}

/// Sizes around the tiles of f32's own body: 64 queries or 32, 16 of a warp, 32 keys, rows of 32, 64 and 128.
void test_attention_of_floats_agrees(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 130};
    static const int64_t lengths[] = {1, 4, 8, 31, 32, 33, 64, 65, 100, 128};
    enum { ROWS = sizeof rows / sizeof *rows, LENGTHS = sizeof lengths / sizeof *lengths };
    for (int queries = 0; queries < ROWS; queries++)
        for (int keys = 0; keys < ROWS; keys++) {
            const sizes of = {1 + pick(3), rows[queries], rows[keys], lengths[pick(LENGTHS)],
                              lengths[pick(LENGTHS)]};
            const sizes packed = {of.batch, of.queries, of.keys, pick(2) ? 64 : 24,
                                  4 + 20 * pick(4)};
            attention_agrees(ND_F32, &of, (masking)pick(ROW_MASK + 1), pick(2), pick(4), pick(2));
            attention_agrees(ND_F32, &packed, NO_MASK, true, 4 * pick(2), 4 * pick(2));
        }
}

void test_attention_without_a_key_to_see(void **state) {
    (void)state;
    const sizes of = {2, 5, 40, 8, 8};
    nd_kernel_call call = attention_call(ND_F32, &of, ROW_MASK, false, 0, 0);
    memset(call.operand[MASK].data, 0, (size_t)(of.batch * of.keys));
    assert_int_equal(run_on_cuda(&call), ND_OK);
    for (int64_t i = 0; i < of.batch * of.queries * of.value_length; i++)
        assert_true(((float *)call.operand[OUT].data)[i] == 0);
    for (int64_t i = 0; i < of.batch * of.queries; i++)
        assert_true(((float *)call.operand[LOG_SUMS].data)[i] == INFINITY);
    const sizes long_rows = {1, 2, 2, 300, 8};
    call = attention_call(ND_F32, &long_rows, NO_MASK, false, 0, 0);
    assert_int_equal(run_on_cuda(&call), ND_ERROR_UNSUPPORTED);
    free_values();
}

// ------------------------------------------------------------------------------------------------
// 16-bit floats

/// Half a unit of the last place, of weights and once more of the result; and what f32 rounds,
/// of scores above all.
static void row_agrees(const nd_kernel_call *call, int64_t batch, int64_t row) {
    const double unit = call->operand[OUT].dtype == ND_F16 ? 0x1p-11 : 0x1p-8;
    attended_row expected;
    find_row(call, batch, row, &expected);
    const double log_sum = element(call, LOG_SUMS, batch, row);
    if (!(log_sum == expected.log_sum ||
          fabs(log_sum - expected.log_sum) <= 0x1p-13 * fmax(1, fabs(expected.log_sum))))
        fail_msg("row %lld: the logarithm of the sum is %.9g, not %.9g", (long long)row, log_sum,
                 expected.log_sum);
    for (int64_t column = 0; column < call->attrs.i[3]; column++) {
        const double found = element(call, OUT, batch, row * call->attrs.i[7] + column);
        const double size = expected.size[column], wanted = expected.result[column];
        const double allowed = unit * (size + fabs(wanted)) + 0x1p-12 * size + 0x1p-20;
        if (!(fabs(found - wanted) <= allowed))
            fail_msg("dtype %d, row %lld of %lld, keys %lld, column %lld: %.9g, not %.9g within %g",
                     (int)call->operand[OUT].dtype, (long long)row, (long long)call->attrs.i[0],
                     (long long)call->attrs.i[1], (long long)column, found, wanted, allowed);
    }
}

static void rows_agree(const nd_kernel_call *call) {
    assert_int_equal(run_on_cuda(call), ND_OK);
    for (int64_t batch = 0; batch < call->shape[0]; batch++)
        for (int64_t row = 0; row < call->attrs.i[0]; row++)
            row_agrees(call, batch, row);
}

/// Any shape, mask and strides: keys, values and masks that all batches share, masks of one row or column,
/// rows that are not aligned.
static nd_kernel_call random_call(nd_dtype dtype) {
    static const double scales[] = {0.02, 0.3, 1, -0.3};
    const sizes of = {1 + pick(5), 1 + pick(pick(2) ? 20 : 150), 1 + pick(MOST_KEYS), 1 + pick(128),
                      1 + pick(128)};
    sizes even = of;
    const bool packed = pick(2);
    if (packed) {
        even.length = (of.length + 7) / 8 * 8;
        even.value_length = (of.value_length + 7) / 8 * 8;
    }
    const masking masked = (masking)pick(ROW_MASK + 1);
    nd_kernel_call call = attention_call(dtype, &even, masked, pick(2),
                                         packed ? 8 * pick(2) : pick(9), packed ? 0 : pick(3));
    call.attrs.f[0] = scales[pick(4)];
    for (int which = KEY; which <= MASK; which++)
        if (pick(4) == 0)
            call.operand[which].strides[0] = 0;
    if (masked != ROW_MASK && pick(4) == 0)
        call.attrs.i[9] = 0;
    // A few queries that see nothing.
    for (int64_t row = 0; masked == BOOL_MASK && row < even.queries; row += 1 + pick(9))
        memset((char *)call.operand[MASK].data + row * even.keys, 0, (size_t)even.keys);
    return call;
}

void test_attention_of_halves_agrees(void **state) {
    (void)state;
    for (int i = 0; i < 60; i++) {
        const nd_kernel_call call = random_call(i % 2 ? ND_F16 : ND_BF16);
        rows_agree(&call);
        free_values();
    }
    // More than a tile of keys for each warp, and as many blocks as make them large.
    for (int i = 0; i < 6; i++) {
        static const sizes shapes[] = {
            {2, 260, 200, 64, 64}, {3, 140, 150, 128, 128}, {4, 129, 65, 32, 24}};
        const nd_kernel_call call =
            attention_call(i % 2 ? ND_F16 : ND_BF16, &shapes[i / 2], NO_MASK, true, 0, 0);
        rows_agree(&call);
        free_values();
    }
}

/// Scores that f32 holds and f16 does not, far apart: a query has the value of the key that it likes best.
void test_attention_of_large_scores(void **state) {
    (void)state;
    for (int i = 0; i < 12; i++) {
        const nd_dtype dtype = i % 2 ? ND_F16 : ND_BF16;
        const sizes of = {1, 70, 130, i % 3 == 2 ? 128 : 40, 16};
        nd_kernel_call call = attention_call(dtype, &of, NO_MASK, i % 4 >= 2, 0, 0);
        const double sign = i < 6 ? 1 : -1;
        for (int64_t at = 0; at < of.queries * of.length; at++)
            set_element(call.operand[QUERY].data, dtype, at, at % of.length ? 0 : sign * 49152);
        for (int64_t key = 0; key < of.keys; key++)
            for (int64_t e = 0; e < of.length; e++)
                set_element(call.operand[KEY].data, dtype, key * of.length + e,
                            e ? 7 : (double)(64 + key * 37 % of.keys));
        assert_int_equal(run_on_cuda(&call), ND_OK);
        for (int64_t row = 0; row < of.queries; row++) {
            int64_t best = 0, seen = call.attrs.i[10] ? row + 1 : of.keys;
            for (int64_t key = 1; key < seen; key++)
                if (sign * (double)(key * 37 % of.keys - best * 37 % of.keys) > 0)
                    best = key;
            for (int64_t column = 0; column < of.value_length; column++)
                assert_true(element(&call, OUT, 0, row * of.value_length + column) ==
                            element(&call, VALUE, 0, best * of.value_length + column));
        }
        free_values();
    }
}

/// The same numbers in f32, by the CPU's kernel.
static nd_kernel_call widened(const nd_kernel_call *call, const int64_t *lengths) {
    nd_kernel_call wide = *call;
    for (int which = 0; which < MASK; which++)
        if (which != LOG_SUMS) {
            wide.operand[which].data = converted(&call->operand[which], ND_F32, lengths[which]);
            wide.operand[which].dtype = ND_F32;
        }
    wide.operand[LOG_SUMS].data = values(ND_F32, lengths[LOG_SUMS]);
    return wide;
}

static void specials_agree(nd_dtype dtype, masking masked, bool causal, int which) {
    // Of values that causality hides only those of a tile that a query sees are multiplied, by 0.
    const int64_t most_keys = causal && which == VALUE ? 32 : 90;
    const sizes of = {1, 1 + pick(14), 1 + pick(most_keys), 1, 1 + pick(2)};
    nd_kernel_call call = attention_call(dtype, &of, masked, causal, 0, 0);
    const int64_t lengths[] = {of.queries * of.value_length, of.queries,
                               of.queries * of.length,       of.keys * of.length,
                               of.keys * of.value_length,    of.queries * of.keys};
    if (call.operand[which].data && call.operand[which].dtype != ND_BOOL)
        call.operand[which].data = special_values(call.operand[which].dtype, lengths[which]);
    const nd_kernel_call wide = widened(&call, lengths);
    assert_int_equal(run_on_cpu(&wide), ND_OK);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    for (int output = OUT; output <= LOG_SUMS; output++)
        for (int64_t i = 0; i < lengths[output]; i++) {
            const double cpu = element_as_double(wide.operand[output].data, ND_F32, i);
            const double cuda = element(&call, output, 0, i);
            // A weight that 16 bits round to 0 is 0 for an infinite value, too.
            const bool alike = isnan(cpu)       ? isnan(cuda)
                               : isfinite(cpu)  ? fabs(cpu - cuda) <= 0x1p-6 * fmax(4, fabs(cpu))
                               : which == VALUE ? !isfinite(cuda)
                                                : cpu == cuda;
            if (!alike)
                fail_msg("dtype %d, specials in %d, output %d, element %lld: cpu %g, cuda %g",
                         (int)dtype, which, output, (long long)i, cpu, cuda);
        }
    free_values();
}

void test_attention_of_special_values(void **state) {
    (void)state;
    for (int i = 0; i < 400; i++)
        specials_agree((const nd_dtype[]){ND_F16, ND_BF16, ND_F32}[i % 3],
                       (masking)pick(ROW_MASK + 1), pick(2), QUERY + (int)pick(4));
}
