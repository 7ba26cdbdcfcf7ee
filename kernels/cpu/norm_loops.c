// Layer, group and batch norm and their gradient for f32 and f64 (norm.c decides on which threads).
#include "kernels/cpu/rows.h"
#include "kernels/cpu/wide.h"
#include <string.h>

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/norm.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/norm.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__norm_loops ND_ISA_NAME(nd__cpu_norm_loops)[2] = {
    {norm_forward_f32, norm_backward_f32, norm_by_channel_f32, norm_by_channel_grad_f32},
    {norm_forward_f64, norm_backward_f64, norm_by_channel_f64, norm_by_channel_grad_f64},
};
