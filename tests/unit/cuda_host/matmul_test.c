// MATMUL, by ndarc's own kernel and by the plan for a column-major BLAS.
#include "lib/device/cuda/gemm.h"
#include "tests/elements.h"
#include "tests/unit/cuda_host/harness.h"
#include <math.h>
#include <stdlib.h>

#define TOLERANCE 500

/// A call with batch axes of given shape. Bit 0 of `how` transposes a, bit 1 b, bit 2 pads the rows
/// of all three, bit 3 repeats a over the batch.
static nd_kernel_call matmul_call(nd_dtype dtype, int batch_axes, const int64_t *batch, int64_t m,
                                  int64_t n, int64_t k, unsigned how, double beta,
                                  int64_t *ret_length) {
    int64_t pad = how & 4 ? 3 : 0, batches = 1;
    nd_kernel_call call = {.op = ND_OP_matmul, .noperands = 3, .ndim = batch_axes};
    int64_t a_size = how & 1 ? k * (m + pad) : m * (k + pad);
    int64_t b_size = how & 2 ? n * (k + pad) : k * (n + pad);
    int64_t out_size = m * (n + pad);
    int64_t strides[3][ND_MAX_DIMS];
    for (int axis = batch_axes - 1; axis >= 0; axis--) {
        call.shape[axis] = batch[axis];
        strides[0][axis] = batches * out_size;
        strides[1][axis] = how & 8 ? 0 : batches * a_size;
        strides[2][axis] = batches * b_size;
        batches *= batch[axis];
    }
    int64_t *i = call.attrs.i;
    i[0] = m, i[1] = n, i[2] = k;
    i[3] = how & 1 ? 1 : k + pad, i[4] = how & 1 ? m + pad : 1;
    i[5] = how & 2 ? 1 : n + pad, i[6] = how & 2 ? k + pad : 1;
    i[7] = n + pad, i[8] = 1;
    call.attrs.f[0] = beta;
    *ret_length = batches * out_size;
    call.operand[0] = strided(&call, values(dtype, *ret_length), dtype, strides[0]);
    call.operand[1] =
        strided(&call, values(dtype, (how & 8 ? 1 : batches) * a_size), dtype, strides[1]);
    call.operand[2] = strided(&call, values(dtype, batches * b_size), dtype, strides[2]);
    return call;
}

static const int64_t sizes[][3] = {{1, 1, 1},    {1, 5, 7},    {5, 1, 7},     {5, 7, 1},
                                   {16, 16, 16}, {65, 63, 70}, {130, 10, 33}, {2, 129, 64}};

typedef void matmul_check(const nd_kernel_call *call, int64_t length);

static void for_every_matmul(matmul_check *check) {
    for (int wide = 0; wide < 2; wide++)
        for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++)
            for (unsigned how = 0; how < 16; how++)
                for (int batch_axes = 0; batch_axes < 4; batch_axes++) {
                    int64_t length;
                    nd_kernel_call call =
                        matmul_call(wide ? ND_F64 : ND_F32, batch_axes, (const int64_t[]){2, 2, 3},
                                    sizes[size][0], sizes[size][1], sizes[size][2], how,
                                    (how ^ (unsigned)size) & 1, &length);
                    check(&call, length);
                    free_values();
                }
}

static void check_own_kernel(const nd_kernel_call *call, int64_t length) {
    assert_int_equal(both(call, 1, &length, TOLERANCE), ND_OK);
    nd_kernel_call linear = *call;
    linear.op = ND_OP_linear;
    assert_int_equal(both(&linear, 1, &length, TOLERANCE), ND_OK);
}

void test_matmul_agrees(void **state) {
    (void)state;
    for_every_matmul(check_own_kernel);
    for (int dtype = ND_U8; dtype < ND_DTYPE_COUNT; dtype++)
        for (unsigned how = 0; how < 16; how += 5) {
            int64_t length;
            nd_kernel_call call = matmul_call((nd_dtype)dtype, (int)how % 2, (const int64_t[]){2},
                                              33, 21, 70, how, how == 5, &length);
            check_own_kernel(&call, length);
            free_values();
        }
    // Nothing to sum: the result is zero, or what it was.
    for (int beta = 0; beta < 2; beta++) {
        int64_t length;
        nd_kernel_call call = matmul_call(ND_F32, 0, NULL, 4, 5, 0, 0, beta, &length);
        both(&call, 1, &length, 0);
    }
}

/// Values with NaN, infinities and zeros among them, but none that overflow in one order of
/// addition and not in another.
static void *values_with_special(nd_dtype dtype, int64_t count) {
    static const double special[] = {NAN, INFINITY, -INFINITY, 0};
    void *data = values(dtype, count);
    for (int64_t i = 0; i < count; i++)
        if (pick(30) == 0)
            set_element(data, dtype, i, special[pick(4)]);
    return data;
}

/// How a product's operands lie; both strides of a and b are free.
typedef struct lay {
    int64_t m, n, k, a_row, a_column, b_row, b_column, out_row;
    int misaligned; ///< elements that all three begin behind an aligned address
} lay;

static void check_lay(nd_dtype dtype, const lay *l, bool special, double beta) {
    nd_kernel_call call = {.op = ND_OP_matmul, .noperands = 3};
    int64_t *i = call.attrs.i;
    i[0] = l->m, i[1] = l->n, i[2] = l->k, i[3] = l->a_row, i[4] = l->a_column;
    i[5] = l->b_row, i[6] = l->b_column, i[7] = l->out_row, i[8] = 1;
    call.attrs.f[0] = beta;
    int64_t lengths[3] = {(l->m - 1) * l->out_row + l->n,
                          (l->m - 1) * l->a_row + (l->k - 1) * l->a_column + 1,
                          (l->k - 1) * l->b_row + (l->n - 1) * l->b_column + 1};
    for (int operand = 0; operand < 3; operand++) {
        int64_t count = (lengths[operand] > 0 ? lengths[operand] : 0) + l->misaligned;
        char *data =
            special && operand > 0 ? values_with_special(dtype, count) : values(dtype, count);
        call.operand[operand] =
            (nd_operand){.data = data + (size_t)l->misaligned * dtype_bytes(dtype), .dtype = dtype};
    }
    both(&call, 1, lengths, tolerance_of_sums(4 * TOLERANCE, l->k));
    free_values();
}

static const nd_dtype product_dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16, ND_I32, ND_U8};

/// Around the edges of tiles of 64 and 128, of slices, and of sums that are cut into parts; lines that
/// lie apart, repeat, and begin at odd addresses.
void test_matmul_by_tiles_agrees(void **state) {
    (void)state;
    static const int64_t edges[][3] = {
        {1, 1, 300},   {63, 65, 15},    {64, 64, 16},   {65, 1, 17},
        {7, 131, 31},  {128, 128, 512}, {129, 127, 33}, {257, 193, 129},
        {13, 11, 509}, {200, 260, 40},  {2, 3, 1025},   {130, 70, 257},
    };
    for (size_t d = 0; d < sizeof product_dtypes / sizeof *product_dtypes; d++)
        for (size_t e = 0; e < sizeof edges / sizeof *edges; e++) {
            int64_t m = edges[e][0], n = edges[e][1], k = edges[e][2];
            const lay lays[] = {
                {m, n, k, k, 1, n, 1, n, 0},             // dense
                {m, n, k, 1, m, 1, k, n, (int)(e % 3)},  // both turned
                {m, n, k, k + 8, 1, n + 8, 1, n + 8, 0}, // aligned rows with gaps
                {m, n, k, 1, m + 8, 1, k + 8, n + 3, 0}, // and columns
                {m, n, k, 2 * k + 1, 2, 3, 3 * k, n, 1}, // no stride is 1
                {m, n, k, 0, 1, 1, 0, n, 0},             // one row, and one column, repeated
            };
            for (size_t i = 0; i < sizeof lays / sizeof *lays; i++)
                if (e % 2 == 0 || i == e / 2 % 6)
                    check_lay(product_dtypes[d], &lays[i], false, (double)(i & 1));
        }
}

/// One row or one column, short and long, so many lines that a warp has one and so few that sums are cut.
void test_matmul_of_vectors_agrees(void **state) {
    (void)state;
    static const int64_t shapes[][2] = {{1, 1},   {3, 5},     {37, 64},   {64, 37},  {4100, 24},
                                        {5, 260}, {40, 9000}, {1, 30000}, {300, 513}};
    for (size_t d = 0; d < 4; d++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            int64_t n = shapes[s][0], k = shapes[s][1];
            const lay lays[] = {
                {n, 1, k, k, 1, 1, 1, 1, 0},         // a matrix of rows, a column
                {n, 1, k, 1, n, 1, 1, 3, 0},         // turned, results apart
                {n, 1, k, k + 8, 1, 5, 1, 1, 0},     // aligned rows, a column with gaps
                {n, 1, k, 1, n + 8, 1, 1, 1, 1},     // turned, at an odd address
                {1, n, k, k, 1, n, 1, n, 0},         // a row, a matrix
                {1, n, k, k, 1, 1, k, n, 0},         // turned
                {1, n, k, k, 2, n + 8, 1, n, 0},     // a row with gaps, aligned lines
                {1, n, k, k, 1, 1, k + 8, n, 1},     // turned, at an odd address
                {1, n, k, 0, 1, 3, 3 * n + 1, n, 0}, // no stride is 1
            };
            for (size_t i = 0; i < sizeof lays / sizeof *lays; i++)
                check_lay(product_dtypes[d], &lays[i], false, (double)(i & 1));
        }
    check_lay(ND_F32, &(lay){70, 1, 33, 33, 1, 1, 1, 1, 0}, true, 0);
    check_lay(ND_BF16, &(lay){1, 70, 33, 33, 1, 70, 1, 70, 0}, true, 0);
}

void test_linear_of_one_row_agrees(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; d++)
        for (int way = 0; way < 8; way++)
            for (int batch_axes = 0; batch_axes < 2; batch_axes++) {
                int64_t length, n = way & 2 ? 1 : 72, m = way & 2 ? 72 : 1, k = way & 4 ? 5000 : 70;
                nd_kernel_call call =
                    matmul_call(product_dtypes[d], batch_axes, (const int64_t[]){3}, m, n, k,
                                way & 1 ? 2 : 0, 0, &length);
                if (batch_axes == 0) {
                    call.op = ND_OP_linear;
                    call.noperands = 4;
                    call.attrs.i[9] = 1 + ND_OP_gelu;
                    call.attrs.i[10] = 1;
                    call.operand[3] = (nd_operand){.data = values(product_dtypes[d], n),
                                                   .dtype = product_dtypes[d]};
                }
                assert_int_equal(both(&call, 1, &length, tolerance_of_sums(4 * TOLERANCE, k)),
                                 ND_OK);
                free_values();
            }
}

void test_matmul_of_nan_agrees(void **state) {
    (void)state;
    for (size_t d = 0; d < 4; d++)
        for (int64_t k = 1; k < 40; k += 19) {
            check_lay(product_dtypes[d], &(lay){9, 70, k, k, 1, 70, 1, 70, 0}, true, 0);
            check_lay(product_dtypes[d], &(lay){66, 3, k, 1, 66, 1, k, 3, 0}, true, 1);
        }
}

/// The bias and the activation of linear, in every dtype; the bias may lie in strides.
void test_linear_agrees(void **state) {
    (void)state;
    static const int activations[] = {0, 1 + ND_OP_relu, 1 + ND_OP_gelu, 1 + ND_OP_sigmoid,
                                      1 + ND_OP_tanh};
    for (size_t d = 0; d < sizeof product_dtypes / sizeof *product_dtypes; d++)
        for (int i = 0; i < (d < 4 ? 5 : 1); i++)
            for (int64_t bias_stride = -1; bias_stride < 3; bias_stride++) {
                nd_dtype dtype = product_dtypes[d];
                int64_t m = 33, n = 36, k = i == 0 ? 300 : 20, length;
                nd_kernel_call call =
                    matmul_call(dtype, 0, NULL, m, n, k, 2, (double)(bias_stride == 1), &length);
                call.op = ND_OP_linear;
                call.attrs.i[9] = activations[i];
                if (bias_stride >= 0) {
                    call.noperands = 4;
                    call.attrs.i[10] = bias_stride;
                    call.operand[3] = (nd_operand){.data = values(dtype, n * 2), .dtype = dtype};
                    call.attrs.f[0] = 0;
                }
                both(&call, 1, &length, TOLERANCE);
                free_values();
            }
}

// ------------------------------------------------------------------------------------------------
// a BLAS that is slow and plainly right

static double element(nd_dtype dtype, const void *matrix, long long index) {
    return dtype == ND_F32 ? (double)((const float *)matrix)[index]
                           : ((const double *)matrix)[index];
}

/// Column-major, as the BLAS standard defines it; checks what a BLAS checks.
static nd_status plain_gemm(void *context, const nd_gemm *g) {
    int *calls = context;
    ++*calls;
    assert_true(g->lda >= (g->transpose_a ? g->k : g->m));
    assert_true(g->ldb >= (g->transpose_b ? g->n : g->k));
    assert_true(g->ldc >= g->m && g->batch >= 1);
    for (long long batch = 0; batch < g->batch; batch++)
        for (long long row = 0; row < g->m; row++)
            for (long long column = 0; column < g->n; column++) {
                double sum = 0;
                for (long long k = 0; k < g->k; k++)
                    sum += element(g->dtype, g->a,
                                   batch * g->stride_a +
                                       (g->transpose_a ? k + row * g->lda : row + k * g->lda)) *
                           element(g->dtype, g->b,
                                   batch * g->stride_b + (g->transpose_b ? column + k * g->ldb
                                                                         : k + column * g->ldb));
                long long at = batch * g->stride_c + row + column * g->ldc;
                if (g->beta != 0)
                    sum += g->beta * element(g->dtype, g->c, at);
                if (g->dtype == ND_F32)
                    ((float *)g->c)[at] = (float)sum;
                else
                    ((double *)g->c)[at] = sum;
            }
    return ND_OK;
}

static void check_plan(const nd_kernel_call *call, int64_t length) {
    size_t bytes = (size_t)length * dtype_bytes(call->operand[0].dtype);
    void *planned = malloc(bytes), *expected = malloc(bytes);
    assert_non_null(planned);
    assert_non_null(expected);
    memcpy(planned, call->operand[0].data, bytes);
    memcpy(expected, call->operand[0].data, bytes);
    nd_kernel_call on_plan = *call, on_cpu = *call;
    on_plan.operand[0].data = planned;
    on_cpu.operand[0].data = expected;
    int calls = 0;
    assert_int_equal(nd__gemm_matmul(&on_plan, plain_gemm, &calls), ND_OK);
    assert_true(calls >= 1);
    assert_int_equal(run_on_cpu(&on_cpu), ND_OK);
    compare_values(call, 0, length, expected, planned, TOLERANCE);
    free(planned);
    free(expected);
}

static nd_status refuse_second(void *context, const nd_gemm *gemm) {
    (void)gemm;
    int *calls = context;
    return ++*calls > 1 ? ND_ERROR_UNSUPPORTED : ND_OK;
}

void test_matmul_by_blas_agrees(void **state) {
    (void)state;
    for_every_matmul(check_plan);
    int64_t length;
    int calls = 0;
    // What a BLAS cannot express is refused before anything is written: rows that repeat, no sum.
    nd_kernel_call repeated = matmul_call(ND_F32, 0, NULL, 4, 5, 6, 0, 0, &length);
    repeated.attrs.i[3] = 0;
    assert_int_equal(nd__gemm_matmul(&repeated, plain_gemm, &calls), ND_ERROR_UNSUPPORTED);
    nd_kernel_call empty = matmul_call(ND_F32, 0, NULL, 4, 5, 0, 0, 0, &length);
    assert_int_equal(nd__gemm_matmul(&empty, plain_gemm, &calls), ND_ERROR_UNSUPPORTED);
    assert_int_equal(calls, 0);
    // A refusal in the middle must not pass for one at the beginning.
    nd_kernel_call two = matmul_call(ND_F32, 2, (const int64_t[]){2, 2}, 2, 2, 2, 0, 0, &length);
    assert_int_equal(nd__gemm_matmul(&two, refuse_second, &calls), ND_ERROR_DEVICE);
    assert_int_equal(calls, 2);
}
