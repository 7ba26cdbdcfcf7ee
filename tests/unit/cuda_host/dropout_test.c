// DROPOUT: the kernels of both backends beside products with the CPU's random numbers, bit for bit.
#include "tests/elements.h"
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"

/// The numbers that say what is dropped.
static float *random_numbers(int64_t count) {
    nd_kernel_call call = {.op = ND_OP_rand, .noperands = 1, .ndim = 1, .shape = {count}};
    call.attrs.i[0] = 17;
    call.attrs.i[1] = 5;
    call.operand[0] = contiguous(&call, values(ND_F32, count), ND_F32);
    assert_int_equal(run_on_cpu(&call), ND_OK);
    return call.operand[0].data;
}

/// In f32 but for f64, rounded once.
static void set_product(const nd_operand *out, int64_t i, double x, bool kept, double p) {
    double scale = p < 1 ? 1.0 / (1.0 - p) : 1.0;
    if (out->dtype == ND_F64)
        ((double *)out->data)[i] = x * (kept ? scale : 0.0);
    else
        set_element(out->data, out->dtype, i, (double)((float)x * (kept ? (float)scale : 0.0F)));
}

/// x of two axes by these strides, `skip` elements behind a multiple of 16 bytes.
static void dropout_agrees(nd_dtype dtype, const int64_t *shape, const int64_t *strides,
                           int64_t skip, double p) {
    nd_kernel_call call = {.op = ND_OP_dropout, .noperands = 2, .ndim = 2};
    call.shape[0] = shape[0];
    call.shape[1] = shape[1];
    call.attrs = (nd_op_attrs){.f = {p}, .i = {17, 5}};
    int64_t count = shape[0] * shape[1], length = extent(&call, strides);
    call.operand[0] = contiguous(&call, values(dtype, count), dtype);
    char *x = special_values(dtype, length + skip);
    call.operand[1] = strided(&call, x + (size_t)skip * dtype_bytes(dtype), dtype, strides);
    nd_operand expected = contiguous(&call, values(dtype, count), dtype);
    const float *numbers = random_numbers(count);
    for (int64_t i = 0; i < count; i++)
        set_product(&expected, i,
                    element_as_double(call.operand[1].data, dtype,
                                      i / shape[1] * strides[0] + i % shape[1] * strides[1]),
                    numbers[i] >= (float)p, p);
    assert_int_equal(run_on_cpu(&call), ND_OK);
    compare_values(&call, 0, count, expected.data, call.operand[0].data, 0);
    call.operand[0] = contiguous(&call, values(dtype, count), dtype);
    assert_int_equal(run_on_cuda(&call), ND_OK);
    compare_values(&call, 0, count, expected.data, call.operand[0].data, 0);
    count_compared(call.op);
    free_values();
}

void test_dropout_agrees(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64, ND_F16, ND_BF16};
    static const int64_t shapes[][2] = {{1, 1}, {1, 7}, {3, 5}, {4, 16}, {37, 53}, {1, 5000}};
    static const double rates[] = {0.1, 0.5, 0.75, 1.0};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int which = 0; which < 4; which++)
            for (int rate = 0; rate < 4; rate++) {
                const int64_t rows = shapes[i][0], columns = shapes[i][1];
                const int64_t dense[] = {columns, 1}, turned[] = {1, rows},
                              gaps[] = {2 * columns + 1, 2};
                dropout_agrees(dtypes[which], shapes[i], dense, 0, rates[rate]);
                dropout_agrees(dtypes[which], shapes[i], dense, 1, rates[rate]);
                dropout_agrees(dtypes[which], shapes[i], turned, 0, rates[rate]);
                dropout_agrees(dtypes[which], shapes[i], gaps, 0, rates[rate]);
            }
    nd_kernel_call call = {.op = ND_OP_dropout, .noperands = 2, .ndim = 1, .shape = {4}};
    call.operand[0] = contiguous(&call, values(ND_I32, 4), ND_I32);
    call.operand[1] = call.operand[0];
    assert_int_equal(run_on_cuda(&call), ND_ERROR_UNSUPPORTED);
    assert_int_equal(run_on_cpu(&call), ND_ERROR_UNSUPPORTED);
    free_values();
}
