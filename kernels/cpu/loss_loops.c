// Losses of pairs for f32 and f64 (loss.c decides on which threads).
#include "kernels/cpu/rows.h"

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/loss.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/loss.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__pair_loop *const ND_ISA_NAME(nd__cpu_pair_loops)[2] = {pair_loops_f32, pair_loops_f64};
