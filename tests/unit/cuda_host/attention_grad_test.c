// ATTENTION, its gradient: the kernels for CUDA beside sums in f64, for all floats, with masks, causality,
// heads that share keys and values, gaps between rows, and rows that see nothing.
#include "tests/elements.h"
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"
#include <math.h>
#include <stdlib.h>

#define TOLERANCE 1000

enum { OF_QUERY, OF_KEY, OF_VALUE, QUERY, KEY, VALUE, MASK, GRAD, RESULT, LOG_SUMS, OPERANDS };

typedef struct sizes {
    int64_t batch, heads; ///< heads share keys and values
    int64_t queries, keys, length, value_length;
} sizes;

typedef enum masking { NO_MASK, BOOL_MASK, ADDED_MASK, ROW_MASK, HIDDEN_ROWS, MASKINGS } masking;

/// A matrix for each batch and, unless it is shared, for each head.
static nd_operand matrices(const sizes *of, nd_dtype dtype, int64_t rows, int64_t columns,
                           int64_t gap, int64_t skip, bool shared) {
    int64_t stride = rows * (columns + gap);
    int64_t count = of->batch * (shared ? 1 : of->heads) * stride;
    nd_operand operand = {.data = values(dtype, count + skip), .dtype = dtype};
    operand.data = (char *)operand.data + (size_t)skip * dtype_bytes(dtype);
    operand.strides[0] = shared ? stride : of->heads * stride;
    operand.strides[1] = shared ? 0 : stride;
    return operand;
}

static nd_operand mask_of(const sizes *of, nd_dtype wide, masking masked) {
    int64_t rows = masked == ROW_MASK ? 1 : of->queries;
    nd_operand mask =
        matrices(of, masked == ADDED_MASK ? wide : ND_BOOL, rows, of->keys, 0, 0, false);
    if (masked == NO_MASK)
        mask.data = NULL;
    // Every third query sees nothing.
    for (int64_t i = 0; masked == HIDDEN_ROWS && i < of->batch * of->heads * rows * of->keys; i++)
        if (i / of->keys % 3 == 0)
            ((uint8_t *)mask.data)[i] = 0;
    return mask;
}

static nd_kernel_call grad_call(nd_dtype dtype, const sizes *of, masking masked, bool causal,
                                int64_t gap, int64_t skip) {
    nd_kernel_call call = {.op = ND_OP_attention_grad, .noperands = OPERANDS, .ndim = 2};
    call.shape[0] = of->batch;
    call.shape[1] = of->heads;
    nd_dtype wide = dtype == ND_F64 ? ND_F64 : ND_F32;
    int64_t e = of->length, v = of->value_length;
    call.attrs = (nd_op_attrs){
        .f = {0.3},
        .i = {of->queries, of->keys, e, v, e + gap, e + gap, v + gap, v + gap,
              masked == ROW_MASK ? 0 : of->keys, 1, causal ? 1 : 0, v},
    };
    bool shared = of->heads > 1;
    call.operand[OF_QUERY] = matrices(of, dtype, of->queries, e, 0, 0, false);
    call.operand[OF_KEY] = matrices(of, dtype, of->keys, e, 0, 0, shared);
    call.operand[OF_VALUE] = matrices(of, dtype, of->keys, v, 0, 0, shared);
    call.operand[QUERY] = matrices(of, dtype, of->queries, e, gap, skip, false);
    call.operand[KEY] = matrices(of, dtype, of->keys, e, gap, skip, shared);
    call.operand[VALUE] = matrices(of, dtype, of->keys, v, gap, skip, shared);
    call.operand[MASK] = mask_of(of, wide, masked);
    call.operand[GRAD] = matrices(of, dtype, of->queries, v, gap, skip, false);
    call.operand[RESULT] = matrices(of, dtype, of->queries, v, 0, 0, false);
    call.operand[LOG_SUMS] = matrices(of, wide, of->queries, 1, 0, 0, false);
    return call;
}

/// Forward, by the kernel of that.
static void attend(nd_kernel_call *call) {
    nd_kernel_call forward = {
        .op = ND_OP_attention, .noperands = 6, .ndim = 2, .attrs = call->attrs};
    static const int of[] = {RESULT, LOG_SUMS, QUERY, KEY, VALUE, MASK};
    for (int i = 0; i < 2; i++)
        forward.shape[i] = call->shape[i];
    for (int i = 0; i < 6; i++)
        forward.operand[i] = call->operand[of[i]];
    forward.attrs.i[7] = call->attrs.i[11];
    assert_int_equal(run_on_cuda(&forward), ND_OK);
}

static double element(const nd_kernel_call *call, int which, const int64_t *batch, int64_t at) {
    const nd_operand *operand = &call->operand[which];
    return element_as_double(operand->data, operand->dtype,
                             batch[0] * operand->strides[0] + batch[1] * operand->strides[1] + at);
}

static double score_of(const nd_kernel_call *call, const int64_t *batch, int64_t row, int64_t key) {
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

/// The three gradients in f64, by the lengths of their memory, and how much they were added up of: of
/// each term what it is and, as far as f32 tells, what it was subtracted from, both without a sign.
typedef struct expectation {
    double *of[3], *sizes[3];
} expectation;

static void add(const nd_kernel_call *call, expectation *sums, int which, const int64_t *batch,
                int64_t at, double term, double loudness) {
    const int64_t *strides = call->operand[which].strides;
    at += batch[0] * strides[0] + batch[1] * strides[1];
    sums->of[which][at] += term;
    sums->sizes[which][at] += fabs(term) + 0x1p-12 * fabs(loudness);
}

/// What one query adds. The result is computed here again: that of the kernel is rounded.
static void add_row(const nd_kernel_call *call, expectation *sums, const int64_t *batch,
                    int64_t row, double *weight) {
    const int64_t *i = call->attrs.i;
    double largest = -INFINITY, sum = 0, delta = 0;
    for (int64_t key = 0; key < i[1]; key++) {
        weight[key] = score_of(call, batch, row, key);
        largest = fmax(largest, weight[key]);
    }
    for (int64_t key = 0; key < i[1]; key++)
        sum += weight[key] = isinf(largest) ? 0 : exp(weight[key] - largest);
    for (int64_t column = 0; column < i[3]; column++)
        delta += element(call, GRAD, batch, row * i[7] + column) *
                 element(call, RESULT, batch, row * i[11] + column);
    for (int64_t key = 0; key < i[1]; key++) {
        double share = sum == 0 ? 0 : weight[key] / sum, slope = -delta;
        double loud = fabs(delta);
        for (int64_t column = 0; column < i[3]; column++) {
            double g = element(call, GRAD, batch, row * i[7] + column);
            slope += g * element(call, VALUE, batch, key * i[6] + column);
            loud += fabs(g * element(call, VALUE, batch, key * i[6] + column));
            add(call, sums, OF_VALUE, batch, key * i[3] + column, share * g, share * g);
        }
        slope *= share * call->attrs.f[0];
        loud *= share * call->attrs.f[0];
        for (int64_t e = 0; e < i[2]; e++) {
            add(call, sums, OF_QUERY, batch, row * i[2] + e,
                slope * element(call, KEY, batch, key * i[5] + e),
                loud * element(call, KEY, batch, key * i[5] + e));
            add(call, sums, OF_KEY, batch, key * i[2] + e,
                slope * element(call, QUERY, batch, row * i[4] + e),
                loud * element(call, QUERY, batch, row * i[4] + e));
        }
    }
}

static void expect(const nd_kernel_call *call, expectation *sums) {
    double *weight = malloc((size_t)call->attrs.i[1] * sizeof *weight);
    assert_non_null(weight);
    for (int64_t b = 0; b < call->shape[0]; b++)
        for (int64_t head = 0; head < call->shape[1]; head++)
            for (int64_t row = 0; row < call->attrs.i[0]; row++)
                add_row(call, sums, (const int64_t[]){b, head}, row, weight);
    free(weight);
}

/// Tensor cores multiply numbers of 16 bits: each that is added up was rounded before.
static void compare_rounded(const nd_kernel_call *call, int which, int64_t count,
                            const expectation *sums) {
    const nd_dtype dtype = call->operand[which].dtype;
    const double unit = dtype == ND_F16 ? 0x1p-10 : 0x1p-7;
    for (int64_t i = 0; i < count; i++) {
        const double found = element_as_double(call->operand[which].data, dtype, i);
        const double expected = sums->of[which][i];
        const double allowed = unit * (sums->sizes[which][i] + fabs(expected)) + 0x1p-16;
        if (!(fabs(found - expected) <= allowed))
            fail_msg("dtype %d, gradient %d: element %lld of %lld is %.17g, not %.17g within %g",
                     (int)dtype, which, (long long)i, (long long)count, found, expected, allowed);
    }
}

/// `missing`: bit 0 the gradient of queries, bit 1 those of keys and values.
static void grad_agrees(nd_dtype dtype, const sizes *of, masking masked, bool causal, int64_t gap,
                        int64_t skip, int missing) {
    nd_kernel_call call = grad_call(dtype, of, masked, causal, gap, skip);
    attend(&call);
    int64_t keys = of->batch * of->keys, queries = of->batch * of->heads * of->queries;
    const int64_t lengths[] = {queries * of->length, keys * of->length, keys * of->value_length};
    expectation sums;
    for (int which = 0; which < 3; which++) {
        sums.of[which] = values(ND_F64, lengths[which]);
        memset(sums.of[which], 0, (size_t)lengths[which] * sizeof(double));
        sums.sizes[which] = calloc((size_t)lengths[which], sizeof(double));
        assert_non_null(sums.sizes[which]);
    }
    expect(&call, &sums);
    for (int which = 0; which < 3; which++)
        if (missing >> (which > 0) & 1)
            call.operand[which].data = NULL;
    assert_int_equal(run_on_cuda(&call), ND_OK);
    for (int which = 0; which < 3; which++) {
        const nd_operand expected = {.data = sums.of[which], .dtype = ND_F64};
        const bool half = dtype == ND_F16 || dtype == ND_BF16;
        if (call.operand[which].data && half && (of->length > 32 || of->value_length > 32))
            compare_rounded(&call, which, lengths[which], &sums);
        else if (call.operand[which].data)
            compare_values(&call, which, lengths[which],
                           converted(&expected, dtype, lengths[which]), call.operand[which].data,
                           TOLERANCE);
    }
    for (int which = 0; which < 3; which++)
        free(sums.sizes[which]);
    count_compared(call.op);
    free_values();
}

static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};

void test_attention_gradients_agree(void **state) {
    (void)state;
    static const sizes shapes[] = {
        {1, 1, 1, 1, 1, 1},      {2, 1, 3, 5, 4, 6},      {2, 3, 17, 31, 16, 8},
        {1, 1, 64, 32, 32, 32},  {2, 1, 65, 33, 40, 64},  {1, 2, 20, 70, 64, 64},
        {1, 1, 31, 65, 96, 128}, {1, 2, 40, 35, 128, 20},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int which = 0; which < 4; which++)
            for (int masked = NO_MASK; masked < MASKINGS; masked++) {
                grad_agrees(dtypes[which], &shapes[i], (masking)masked, false, 0, 0, 0);
                grad_agrees(dtypes[which], &shapes[i], (masking)masked, true, 3, 1, 0);
            }
    grad_agrees(ND_F32, &shapes[2], BOOL_MASK, true, 0, 0, 1);
    grad_agrees(ND_F32, &shapes[2], BOOL_MASK, true, 8, 0, 2);
    // On tensor cores: several tiles of queries and of keys, rows by packs and not, one of two missing.
    static const sizes longer[] = {{1, 2, 130, 70, 64, 48}, {2, 1, 33, 100, 128, 128}};
    for (size_t i = 0; i < sizeof longer / sizeof *longer; i++)
        for (int missing = 0; missing < 3; missing++) {
            grad_agrees(ND_BF16, &longer[i], NO_MASK, true, 0, 0, missing);
            grad_agrees(ND_F16, &longer[i], HIDDEN_ROWS, false, 8, 8, missing);
        }
}

/// Sizes around the tiles of f32's own bodies: 32 queries or keys, 16 of a warp, rows of 32, 64 and 128.
void test_attention_gradients_of_floats_agree(void **state) {
    (void)state;
    static const int64_t rows[] = {1, 15, 16, 17, 31, 32, 33, 64, 65, 97};
    static const int64_t lengths[] = {1, 4, 8, 31, 32, 33, 64, 65, 100, 128};
    enum { ROWS = sizeof rows / sizeof *rows, LENGTHS = sizeof lengths / sizeof *lengths };
    for (int queries = 0; queries < ROWS; queries++)
        for (int keys = 0; keys < ROWS; keys++) {
            const sizes of = {1 + pick(2),
                              1 + pick(3),
                              rows[queries],
                              rows[keys],
                              lengths[pick(LENGTHS)],
                              lengths[pick(LENGTHS)]};
            sizes packed = of;
            packed.length = 8 << pick(5);
            packed.value_length = 4 + 20 * pick(4);
            grad_agrees(ND_F32, &of, (masking)pick(MASKINGS), pick(2), pick(4), pick(2),
                        (int)pick(3));
            grad_agrees(ND_F32, &packed, NO_MASK, true, 4 * pick(2), 4 * pick(2), 0);
        }
}

static void scale_elements(nd_operand *operand, int64_t count, double factor) {
    for (int64_t i = 0; i < count; i++)
        set_element(operand->data, operand->dtype, i,
                    element_as_double(operand->data, operand->dtype, i) * factor);
}

/// Scores whose gradients f16 cannot hold, of queries and keys whose gradients it can: of all queries, or of every
/// `apart`-th one.
static void steep_gradients_agree(const sizes *of, int64_t apart, double size) {
    nd_kernel_call call = grad_call(ND_F16, of, NO_MASK, false, 0, 0);
    const int64_t rows = of->batch * of->heads * of->queries, keys = of->batch * of->keys;
    scale_elements(&call.operand[QUERY], rows * of->length, 0x1p-6 / size);
    scale_elements(&call.operand[KEY], keys * of->length, 0x1p-6 / size);
    scale_elements(&call.operand[VALUE], keys * of->value_length, 64);
    for (int64_t row = 0; row < rows; row += apart)
        for (int64_t column = 0; column < of->value_length; column++) {
            int64_t at = row * of->value_length + column;
            set_element(call.operand[GRAD].data, ND_F16, at,
                        size * element_as_double(call.operand[GRAD].data, ND_F16, at));
        }
    attend(&call);
    const int64_t lengths[] = {rows * of->length, keys * of->length, keys * of->value_length};
    expectation sums;
    for (int which = 0; which < 3; which++) {
        sums.of[which] = calloc((size_t)lengths[which], sizeof(double));
        sums.sizes[which] = calloc((size_t)lengths[which], sizeof(double));
        assert_true(sums.of[which] && sums.sizes[which]);
    }
    expect(&call, &sums);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    for (int which = 0; which < 3; which++) {
        compare_rounded(&call, which, lengths[which], &sums);
        free(sums.of[which]);
        free(sums.sizes[which]);
    }
    free_values();
}

void test_attention_gradients_of_steep_scores(void **state) {
    (void)state;
    static const sizes shapes[] = {
        {1, 1, 3, 5, 64, 64}, {1, 2, 70, 80, 64, 48}, {1, 1, 33, 40, 128, 96}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        steep_gradients_agree(&shapes[i], 1, 2048);
        steep_gradients_agree(&shapes[i], 7, 4096);
    }
}

void test_attention_gradients_of_what_is_not_seen(void **state) {
    (void)state;
    // Keys behind the last query, which causality hides from all, have no gradient.
    const sizes of = {1, 2, 5, 90, 8, 8};
    nd_kernel_call call = grad_call(ND_F32, &of, NO_MASK, true, 0, 0);
    attend(&call);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    for (int64_t i = of.queries * of.length; i < of.keys * of.length; i++) {
        assert_true(((float *)call.operand[OF_KEY].data)[i] == 0);
        assert_true(((float *)call.operand[OF_VALUE].data)[i] == 0);
    }
    const sizes long_rows = {1, 1, 2, 2, 300, 8};
    call = grad_call(ND_F32, &long_rows, NO_MASK, false, 0, 0);
    assert_int_equal(run_on_cuda(&call), ND_ERROR_UNSUPPORTED);
    free_values();
}

/// No two runs differ in a bit.
void test_attention_gradients_repeat(void **state) {
    (void)state;
    const sizes of = {2, 4, 70, 70, 64, 64};
    nd_kernel_call call = grad_call(ND_F32, &of, ADDED_MASK, true, 0, 0);
    attend(&call);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    size_t bytes = (size_t)(of.batch * of.keys * of.length) * sizeof(float);
    float *first = values(ND_F32, of.batch * of.keys * of.length);
    memcpy(first, call.operand[OF_KEY].data, bytes);
    memset(call.operand[OF_KEY].data, 0x5A, bytes);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    assert_memory_equal(first, call.operand[OF_KEY].data, bytes);
    free_values();
}
