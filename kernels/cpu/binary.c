// Elementwise operations of two and three operands: a loop per op and dtype, made from
// kernels/ops.inc. Those of functions are in binary_functions.c.
#define ND__FUNCTIONS 0
#include "kernels/cpu/parts.h"

#include "kernels/cpu/halves.h"
#include "kernels/cpu/rows.h"

// Bytes that are 0 or 1.
#define ND_LOGICAL(name, types, expression, cost, differentiable, saves, form, ...) \
    ND__LOGICAL_LOOP(name, ND__INPUTS_##form, expression)
#define ND__LOGICAL_LOOP(name, inputs, expression)                                          \
    static void name(int64_t n, char *const *data, const int64_t *strides,                  \
                     const nd_op_attrs *attrs) {                                            \
        (void)attrs;                                                                        \
        uint8_t *out = (uint8_t *)data[0];                                                  \
        const uint8_t *in_a = (const uint8_t *)data[1];                                     \
        const uint8_t *in_b = (const uint8_t *)data[inputs];                                \
        int64_t out_stride = strides[0], a_stride = strides[1], b_stride = strides[inputs]; \
        if (out_stride == 1 && a_stride == 1 && b_stride == 1) {                            \
            ND__INDEPENDENT for (int64_t i = 0; i < n; i++) {                               \
                uint8_t a = in_a[i], b = in_b[i];                                           \
                (void)b;                                                                    \
                out[i] = (uint8_t)(expression);                                             \
            }                                                                               \
        } else {                                                                            \
            for (int64_t i = 0; i < n; i++) {                                               \
                uint8_t a = in_a[i * a_stride], b = in_b[i * b_stride];                     \
                (void)b;                                                                    \
                out[i * out_stride] = (uint8_t)(expression);                                \
            }                                                                               \
        }                                                                                   \
    }
#include "kernels/ops.inc"

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_b8.inc"
#include "kernels/cpu/binary.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

#define ND__TEMPLATE "kernels/cpu/binary.inc"
#define ND__TEMPLATE_OF_HALVES "kernels/cpu/halves_binary.inc"
#include "kernels/cpu/numbers.inc"

const nd__loop *const ND_ISA_NAME(nd__cpu_binary)[ND_DTYPE_COUNT] = {
    [ND_BOOL] = binary_b8,
    [ND_U8] = binary_u8,
    [ND_U16] = binary_u16,
    [ND_U32] = binary_u32,
    [ND_U64] = binary_u64,
    [ND_I8] = binary_i8,
    [ND_I16] = binary_i16,
    [ND_I32] = binary_i32,
    [ND_I64] = binary_i64,
    [ND_F32] = binary_f32,
    [ND_F64] = binary_f64,
    [ND_F16] = ND_ISA_NAME(nd__cpu_binary_f16),
    [ND_BF16] = ND_ISA_NAME(nd__cpu_binary_bf16),
};
