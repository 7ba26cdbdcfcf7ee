// Calls that treat every element alike.
#include "bench/kernels/calls.h"

#define CALLS(CALL)                                              \
    CALL(add, nd_add(in->x, in->y))                              \
    CALL(mul, nd_mul(in->x, in->y))                              \
    CALL(div, nd_div(in->x, in->positive))                       \
    CALL(maximum, nd_maximum(in->x, in->y))                      \
    CALL(add_row, nd_add(in->x, in->row))                        \
    CALL(add_column, nd_add(in->x, in->column))                  \
    CALL(add_scalar, nd_add_scalar(in->x, 0.5))                  \
    CALL(add_transposed, add_transposed(in))                     \
    CALL(neg, nd_neg(in->x))                                     \
    CALL(abs, nd_abs(in->x))                                     \
    CALL(exp, nd_exp(in->x))                                     \
    CALL(log, nd_log(in->positive))                              \
    CALL(sqrt, nd_sqrt(in->positive))                            \
    CALL(sin, nd_sin(in->x))                                     \
    CALL(cos, nd_cos(in->x))                                     \
    CALL(tanh, nd_tanh(in->x))                                   \
    CALL(sigmoid, nd_sigmoid(in->x))                             \
    CALL(relu, nd_relu(in->x))                                   \
    CALL(gelu, nd_gelu(in->x))                                   \
    CALL(silu, nd_silu(in->x))                                   \
    CALL(erf, nd_erf(in->x))                                     \
    CALL(pow_3, nd_pow_scalar(in->x, 3.0))                       \
    CALL(pow, nd_pow(in->positive, in->y))                       \
    CALL(hardtanh, nd_hardtanh(in->x, -0.5, 0.5))                \
    CALL(remainder, nd_remainder(in->positive, in->above))       \
    CALL(floor_divide, nd_floor_divide(in->positive, in->above)) \
    CALL(where, nd_where(in->mask, in->x, in->y))                \
    CALL(clip, nd_clip(in->x, -0.5, 0.5))                        \
    CALL(greater, nd_greater(in->x, in->y))                      \
    CALL(masked_fill, nd_masked_fill(in->x, in->mask, 0.0))      \
    CALL(cast_f32_bf16, nd_cast(in->x, ND_BF16))                 \
    CALL(cast_f32_f16, nd_cast(in->x, ND_F16))                   \
    CALL(cast_f32_f64, nd_cast(in->x, ND_F64))                   \
    CALL(cast_f32_i64, nd_cast(in->above, ND_I64))               \
    CALL(cast_i64_f32, nd_cast(in->i, ND_F32))                   \
    CALL(cast_f64_f16, nd_cast(in->x64, ND_F16))                 \
    CALL(cast_f64_bf16, nd_cast(in->x64, ND_BF16))               \
    CALL(cast_f16_f64, nd_cast(in->xh, ND_F64))                  \
    CALL(add_f64, nd_add(in->x64, in->y64))                      \
    CALL(exp_f64, nd_exp(in->x64))                               \
    CALL(tanh_f64, nd_tanh(in->x64))                             \
    CALL(silu_f64, nd_silu(in->x64))                             \
    CALL(pow_f64, nd_pow(in->positive64, in->y64))               \
    CALL(mul_bf16, nd_mul(in->xb, in->yb))                       \
    CALL(gelu_bf16, nd_gelu(in->xb))                             \
    CALL(add_i64, nd_add(in->i, in->j))                          \
    CALL(floor_divide_i64, nd_floor_divide(in->i, in->j))

static nd_tensor *add_transposed(const operands *in) {
    nd_auto nd_tensor *transposed = nd_transpose(in->y, 0, 1);
    return nd_add(in->x, transposed);
}

CALLS(FORWARD)
static const kernel_call rows[] = {CALLS(ROW_OF_FORWARD)};
const kernel_calls elementwise_calls = KERNEL_CALLS(rows);
