// Elementwise operations of one operand: a loop per op and dtype, made from
// kernels/ops.inc.
#include "kernels/cpu/exp_vectors.h"
#include "kernels/cpu/halves.h"
#include "kernels/cpu/rows.h"

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_u8.inc"
#include "kernels/cpu/unary.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_u16.inc"
#include "kernels/cpu/unary.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_u32.inc"
#include "kernels/cpu/unary.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_u64.inc"
#include "kernels/cpu/unary.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_i8.inc"
#include "kernels/cpu/unary.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_i16.inc"
#include "kernels/cpu/unary.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_i32.inc"
#include "kernels/cpu/unary.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_i64.inc"
#include "kernels/cpu/unary.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/unary.inc"
#define HALF f16
#include "kernels/cpu/halves_unary.inc"
#define HALF bf16
#include "kernels/cpu/halves_unary.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/unary.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__loop *const ND_ISA_NAME(nd__cpu_unary)[ND_DTYPE_COUNT] = {
    [ND_U8] = unary_u8,   [ND_U16] = unary_u16, [ND_U32] = unary_u32, [ND_U64] = unary_u64,
    [ND_I8] = unary_i8,   [ND_I16] = unary_i16, [ND_I32] = unary_i32, [ND_I64] = unary_i64,
    [ND_F32] = unary_f32, [ND_F64] = unary_f64, [ND_F16] = unary_f16, [ND_BF16] = unary_bf16,
};
