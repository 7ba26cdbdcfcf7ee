// ATTENTION: the kernels for CUDA beside sums in f64, for all floats, and beside the CPU's kernel where
// that takes it.
#include "tests/elements.h"
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"
#include <math.h>

#define TOLERANCE 200
#define MOST_KEYS 130

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

/// What a row should be: written to the operands of `to`.
static void attend_row(const nd_kernel_call *call, nd_kernel_call *to, int64_t batch, int64_t row) {
    const int64_t *i = call->attrs.i;
    double powers[MOST_KEYS], largest = -INFINITY, sum = 0;
    for (int64_t key = 0; key < i[1]; key++) {
        powers[key] = score_of(call, batch, row, key);
        largest = fmax(largest, powers[key]);
    }
    for (int64_t key = 0; key < i[1]; key++)
        sum += powers[key] = exp(powers[key] - (isinf(largest) ? 0 : largest));
    for (int64_t column = 0; column < i[3]; column++) {
        double result = 0;
        for (int64_t key = 0; key < i[1]; key++)
            result += powers[key] * element(call, VALUE, batch, key * i[6] + column);
        set_element(to->operand[OUT].data, to->operand[OUT].dtype,
                    batch * to->operand[OUT].strides[0] + row * i[7] + column,
                    sum == 0 ? 0 : result / sum);
    }
    set_element(to->operand[LOG_SUMS].data, to->operand[LOG_SUMS].dtype,
                batch * to->operand[LOG_SUMS].strides[0] + row,
                sum == 0 ? INFINITY : log(sum) + largest);
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
