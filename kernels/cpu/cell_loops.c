// Steps of recurrent nets for f32 and f64 (cell.c decides on which threads).
#include "kernels/cpu/rows.h"

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/cell.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/cell.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__cell_loops ND_ISA_NAME(nd__cpu_cell_loops)[2] = {
    {cell_forward_f32, cell_backward_f32},
    {cell_forward_f64, cell_backward_f64},
};
