// MATMUL of integers of 8 bits, by ndarc's own kernels and by the plan for a column-major BLAS.
#include "lib/device/cuda/gemm.h"
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"
#include <stdbool.h>
#include <stdlib.h>

/// Which zero points an operand has.
typedef enum zero_points { NONE, ONE, OF_LINES, KINDS } zero_points;

static uint8_t *bytes(int64_t count) {
    uint8_t *x = values(ND_U8, count);
    for (int64_t i = 0; i < count; i++)
        x[i] = (uint8_t)(pick(4) ? pick(256) : pick(2) ? 0x80 : 0x7F);
    return x;
}

static void add_zeros(nd_kernel_call *call, int operand, zero_points kind, int64_t batches) {
    nd_operand *zeros = &call->operand[operand + 2];
    const int64_t lines = call->attrs.i[operand - 1];
    *zeros = (nd_operand){.dtype = call->operand[operand].dtype};
    call->attrs.i[operand + 8] = kind == OF_LINES;
    if (kind == NONE)
        return;
    zeros->data = bytes(kind == ONE ? 1 : lines * batches);
    for (int axis = call->ndim - 1, apart = (int)lines; axis >= 0 && kind == OF_LINES; axis--) {
        zeros->strides[axis] = apart;
        apart *= (int)call->shape[axis];
    }
}

/// Bit 0 of `how` transposes a, bit 1 b, bit 2 pads the rows of all three, bit 3 repeats a over the
/// batch, bits 4 and 5 are signs; `zeros` has those of a and of b.
static nd_kernel_call integer_call(int batch_axes, const int64_t *size, unsigned how,
                                   unsigned zeros, int64_t *ret_length) {
    const int64_t m = size[0], n = size[1], k = size[2], pad = how & 4 ? 4 : 0;
    const int64_t a_size = how & 1 ? k * (m + pad) : m * (k + pad);
    const int64_t b_size = how & 2 ? n * (k + pad) : k * (n + pad), out_size = m * (n + pad);
    nd_kernel_call call = {.op = ND_OP_matmul_integer, .noperands = 5, .ndim = batch_axes};
    int64_t batches = 1, strides[3][ND_MAX_DIMS];
    for (int axis = batch_axes - 1; axis >= 0; axis--) {
        call.shape[axis] = 2 + axis;
        strides[0][axis] = batches * out_size;
        strides[1][axis] = how & 8 ? 0 : batches * a_size;
        strides[2][axis] = batches * b_size;
        batches *= call.shape[axis];
    }
    const int64_t attrs[9] = {m,
                              n,
                              k,
                              how & 1 ? 1 : k + pad,
                              how & 1 ? m + pad : 1,
                              how & 2 ? 1 : n + pad,
                              how & 2 ? k + pad : 1,
                              n + pad,
                              1};
    for (int i = 0; i < 9; i++)
        call.attrs.i[i] = attrs[i];
    *ret_length = batches * out_size;
    call.operand[0] = strided(&call, values(ND_I32, *ret_length), ND_I32, strides[0]);
    call.operand[1] = strided(&call, bytes(batches * a_size), how & 16 ? ND_U8 : ND_I8, strides[1]);
    call.operand[2] = strided(&call, bytes(batches * b_size), how & 32 ? ND_U8 : ND_I8, strides[2]);
    add_zeros(&call, 1, (zero_points)(zeros % KINDS), batches);
    add_zeros(&call, 2, (zero_points)(zeros / KINDS), batches);
    return call;
}

static const int64_t sizes[][3] = {{1, 1, 1},    {1, 5, 7},     {5, 1, 7},    {1, 40, 300},
                                   {70, 1, 129}, {16, 16, 16},  {65, 63, 70}, {130, 10, 36},
                                   {2, 129, 64}, {140, 70, 64}, {4, 4, 5000}};

void test_integer_products_agree(void **state) {
    (void)state;
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++)
        for (unsigned how = 0; how < 64; how++) {
            int64_t length;
            nd_kernel_call call =
                integer_call((int)(how + size) % 3, sizes[size], how,
                             (unsigned)(how * 5 + size) % (KINDS * KINDS), &length);
            assert_int_equal(both(&call, 1, &length, 0), ND_OK);
            free_values();
        }
    // Tiles of 128 x 128 where they fill the device.
    for (unsigned zeros = 0; zeros < KINDS * KINDS; zeros++) {
        int64_t length;
        nd_kernel_call call =
            integer_call(0, (const int64_t[]){260, 300, 40}, 17 * zeros % 64, zeros, &length);
        assert_int_equal(both(&call, 1, &length, 0), ND_OK);
        free_values();
    }
}

/// Column-major, of bytes.
static nd_status plain_gemm(void *context, const nd_gemm *g) {
    ++*(int *)context;
    assert_int_equal(g->dtype, ND_I8);
    const int8_t *a = g->a, *b = g->b;
    int32_t *c = g->c;
    for (long long batch = 0; batch < g->batch; batch++)
        for (long long row = 0; row < g->m; row++)
            for (long long column = 0; column < g->n; column++) {
                int32_t sum = 0;
                for (long long k = 0; k < g->k; k++)
                    sum += a[batch * g->stride_a +
                             (g->transpose_a ? k + row * g->lda : row + k * g->lda)] *
                           b[batch * g->stride_b +
                             (g->transpose_b ? column + k * g->ldb : k + column * g->ldb)];
                c[batch * g->stride_c + row + column * g->ldc] = sum;
            }
    return ND_OK;
}

void test_integer_products_by_blas_agree(void **state) {
    (void)state;
    for (size_t size = 0; size < sizeof sizes / sizeof *sizes; size++)
        for (unsigned how = 0; how < 16; how++) {
            int64_t length;
            nd_kernel_call call = integer_call((int)how % 3, sizes[size], how, 0, &length);
            nd_kernel_call expected = call;
            int calls = 0;
            expected.operand[0].data = values(ND_I32, length);
            memcpy(expected.operand[0].data, call.operand[0].data, (size_t)length * 4);
            assert_int_equal(nd__gemm_matmul(&call, plain_gemm, &calls), ND_OK);
            assert_true(calls >= 1);
            assert_int_equal(run_on_cpu(&expected), ND_OK);
            assert_memory_equal(call.operand[0].data, expected.operand[0].data, (size_t)length * 4);
            // Unsigned ones and zero points are not a BLAS's.
            for (unsigned other = 1; other < 4; other++) {
                nd_kernel_call refused = integer_call((int)how % 3, sizes[size],
                                                      how | (other & 1) << 4, other & 2, &length);
                assert_int_equal(nd__gemm_matmul(&refused, plain_gemm, &calls),
                                 ND_ERROR_UNSUPPORTED);
            }
            free_values();
        }
}
