// QUANTIZED: products with weights of 8 and 4 bits.
#include "tests/unit/cuda_host/harness.h"
#include "tests/unit/cuda_host/tests.h"

#define TOLERANCE 500

/// m, n, k and the size of a group.
static const int64_t quantized_sizes[][4] = {
    {1, 1, 2, 2},    {1, 5, 6, 2},      {1, 3, 64, 32},   {2, 7, 64, 64},
    {5, 9, 130, 26}, {1, 130, 256, 32}, {33, 20, 96, 48}, {3, 300, 1030, 206},
};

static void quantized_agrees(nd_dtype dtype, nd_dtype values_dtype, nd_dtype scale_dtype,
                             bool with_zeros, const int64_t *size) {
    int64_t m = size[0], n = size[1], k = size[2], groups = k / size[3];
    nd_kernel_call call = {.op = ND_OP_quantized_linear, .noperands = with_zeros ? 5 : 4};
    for (int i = 0; i < 4; i++)
        call.attrs.i[i] = size[i];
    int64_t length = m * n, bytes = values_dtype == ND_U8 ? n * k / 2 : n * k;
    uint8_t *integers = values(values_dtype, bytes);
    for (int64_t i = 0; i < bytes; i++)
        integers[i] = (uint8_t)pick(256);
    call.operand[0] = contiguous(&call, values(dtype, length), dtype);
    call.operand[1] = contiguous(&call, values(dtype, m * k), dtype);
    call.operand[2] = contiguous(&call, integers, values_dtype);
    call.operand[3] = contiguous(&call, values(scale_dtype, n * groups), scale_dtype);
    if (with_zeros)
        call.operand[4] = contiguous(&call, values(scale_dtype, n * groups), scale_dtype);
    // What is added up is up to 128 times larger than values.
    assert_int_equal(both(&call, 1, &length, 128 * TOLERANCE), ND_OK);
    free_values();
}

void test_quantized_products_agree(void **state) {
    (void)state;
    static const nd_dtype dtypes[] = {ND_F32, ND_F64}, integers[] = {ND_I8, ND_U8},
                          scales[] = {ND_F32, ND_F16, ND_BF16};
    for (size_t size = 0; size < sizeof quantized_sizes / sizeof *quantized_sizes; size++)
        for (int way = 0; way < 24; way++)
            quantized_agrees(dtypes[way % 2], integers[way / 2 % 2], scales[way / 4 % 3], way >= 12,
                             quantized_sizes[size]);
}
