// Lines of depthwise convolutions for f32 and f64 (depthwise.c decides on which threads).
#include "kernels/cpu/rows.h"

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/depthwise.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/depthwise.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__depthwise ND_ISA_NAME(nd__cpu_depthwise_loops)[2] = {depthwise_lines_f32,
                                                               depthwise_lines_f64};
