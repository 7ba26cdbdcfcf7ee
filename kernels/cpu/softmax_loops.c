// Rows of softmax and its kin for f32 and f64 (softmax.c decides which rows and on which threads).
#include "kernels/cpu/extremum.h"

// So many exponentials, each at most 1, are added up as floats before the sum goes on in double: one
// by one, where there are no vectors, equal ones are all rounded the same way.
#define ND__SUM_RUN 512

/// Rows below this length go side by side, this many at once.
#define ND__SHORT_ROW 48
#define ND__LANES 16

/// Exponentials of neighbouring rows that are added up before the sum goes on in double.
#define ND__COLUMN_RUN 64

#define ND__EXP_OF_MINUS(x) ND__FUNCTION(exp_of_minus)(x)

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/softmax.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/softmax.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__softmax_loops ND_ISA_NAME(nd__cpu_softmax)[2] = {
    {softmax_rows_f32, log_softmax_rows_f32, softmax_columns_f32, log_softmax_columns_f32,
     loss_rows_f32},
    {softmax_rows_f64, log_softmax_rows_f64, softmax_columns_f64, log_softmax_columns_f64,
     loss_rows_f64},
};
