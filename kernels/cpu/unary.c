// Elementwise operations of one operand: a loop per op and dtype, made from kernels/ops.inc. Those of
// functions are in unary_functions.c.
#define ND__FUNCTIONS 0
#include "kernels/cpu/parts.h"

#include "kernels/cpu/halves.h"
#include "kernels/cpu/rows.h"

#define ND__TEMPLATE "kernels/cpu/unary.inc"
#define ND__TEMPLATE_OF_HALVES "kernels/cpu/halves_unary.inc"
#include "kernels/cpu/numbers.inc"

const nd__loop *const ND_ISA_NAME(nd__cpu_unary)[ND_DTYPE_COUNT] = {
    [ND_U8] = unary_u8,
    [ND_U16] = unary_u16,
    [ND_U32] = unary_u32,
    [ND_U64] = unary_u64,
    [ND_I8] = unary_i8,
    [ND_I16] = unary_i16,
    [ND_I32] = unary_i32,
    [ND_I64] = unary_i64,
    [ND_F32] = unary_f32,
    [ND_F64] = unary_f64,
    [ND_F16] = ND_ISA_NAME(nd__cpu_unary_f16),
    [ND_BF16] = ND_ISA_NAME(nd__cpu_unary_bf16),
};
