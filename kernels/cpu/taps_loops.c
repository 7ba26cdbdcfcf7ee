// The sums of direct convolutions for f32 and f64 (direct.c decides on which threads).
#include "kernels/cpu/rows.h"

#if defined(__AVX512F__)
#define ND__VECTOR_BYTES 64
#define BLOCK_ROWS 8
#elif defined(__AVX__)
#define ND__VECTOR_BYTES 32
#define BLOCK_ROWS 4
#else
#define ND__VECTOR_BYTES 16
#define BLOCK_ROWS 4
#endif
#define BLOCK_VECTORS 3
/// How many blocks ahead x is fetched: a tap is a stream of its own, and there are more than a processor
/// follows.
#define AHEAD 1
#define ND__UNROLL ND__PRAGMA(GCC unroll 8)

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/taps.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/taps.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__taps_loop ND_ISA_NAME(nd__cpu_taps_loops)[2] = {taps_f32, taps_f64};
