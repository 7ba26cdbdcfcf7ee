// Matrix products of the usual shapes.
#include "bench/kernels/calls.h"

#define FORWARDS(CALL)                                                                            \
    CALL(matmul_256, nd_matmul(in->square[0], in->square[0]))                                     \
    CALL(matmul_512, nd_matmul(in->square[1], in->square[1]))                                     \
    CALL(matmul_1024, nd_matmul(in->square[2], in->square[2]))                                    \
    CALL(matmul_2048, nd_matmul(in->square[3], in->square[3]))                                    \
    CALL(matmul_f64_512, nd_matmul(in->square64, in->square64))                                   \
    CALL(matmul_bf16_512, nd_matmul(in->square_b, in->square_b))                                  \
    CALL(matmul_integer_256, nd_matmul_integer(in->bytes[0], in->bytes[0], NULL, NULL))           \
    CALL(matmul_integer_512, nd_matmul_integer(in->bytes[1], in->bytes[1], NULL, NULL))           \
    CALL(matmul_integer_1024, nd_matmul_integer(in->bytes[2], in->bytes[2], NULL, NULL))          \
    CALL(matmul_integer_2048, nd_matmul_integer(in->bytes[3], in->bytes[3], NULL, NULL))          \
    CALL(matmul_integer_1x1024x1024,                                                              \
         nd_matmul_integer(in->few_bytes[0], in->bytes[2], NULL, NULL))                           \
    CALL(matmul_integer_64x1024x1024,                                                             \
         nd_matmul_integer(in->few_bytes[1], in->bytes[2], NULL, NULL))                           \
    CALL(matmul_transposed_512, matmul_transposed(in))                                            \
    CALL(matmul_batched, nd_matmul(in->stack_a, in->stack_b))                                     \
    CALL(matmul_heads, nd_matmul(in->heads, in->heads))                                           \
    CALL(linear_1x1024x1024, nd_linear(in->vector, in->square[2], NULL))                          \
    CALL(linear_128x784x512, nd_linear(in->batch, in->layer, in->layer_bias))                     \
    CALL(linear_512x768x3072, nd_linear(in->tokens, in->projection, in->projection_bias))         \
    CALL(linear_relu_128x784x512,                                                                 \
         nd_linear_activation(in->batch, in->layer, in->layer_bias, ND_ACTIVATION_RELU))          \
    CALL(linear_gelu_512x768x3072, nd_linear_activation(in->tokens, in->projection,               \
                                                        in->projection_bias, ND_ACTIVATION_GELU)) \
    CALL(vecdot, nd_vecdot(in->long_vector, in->long_vector, -1))                                 \
    CALL(outer, nd_outer(in->projection_bias, in->layer_bias))

#define BACKWARDS(CALL)                                                                   \
    CALL(matmul_512, nd_matmul(in->leaf_square, in->square[1]), in->leaf_square)          \
    CALL(linear_128x784x512, nd_linear(in->batch, in->layer, in->layer_bias), in->layer,  \
         in->layer_bias)                                                                  \
    CALL(linear_512x768x3072, nd_linear(in->tokens, in->projection, in->projection_bias), \
         in->tokens, in->projection, in->projection_bias)                                 \
    CALL(linear_relu_128x784x512,                                                         \
         nd_linear_activation(in->batch, in->layer, in->layer_bias, ND_ACTIVATION_RELU),  \
         in->layer, in->layer_bias)

static nd_tensor *matmul_transposed(const operands *in) {
    nd_auto nd_tensor *transposed = nd_transpose(in->square[1], 0, 1);
    return nd_matmul(in->square[1], transposed);
}

FORWARDS(FORWARD)
BACKWARDS(BACKWARD)
static const kernel_call rows[] = {FORWARDS(ROW_OF_FORWARD) BACKWARDS(ROW_OF_BACKWARD)};
const kernel_calls product_calls = KERNEL_CALLS(rows);
