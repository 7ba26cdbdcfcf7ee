// The portable matrix product, for f64, for builds without oneDNN, and for matrices so small that a
// library's call costs more than the work.
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/scratch.h"

#if defined(__AVX512F__)
#define ND__VECTOR_BYTES 64
#define KERNEL_ROWS 12
#elif defined(__AVX__)
#define ND__VECTOR_BYTES 32
#define KERNEL_ROWS 6
#else
#define ND__VECTOR_BYTES 16
#define KERNEL_ROWS 6
#endif
#define TILE_ROWS 96
#define TILE_COLUMNS 256
#define TILE_DEPTH 256

#define ND__MINIMUM(a, b) ((a) < (b) ? (a) : (b))
#define ND__UNROLL ND__PRAGMA(GCC unroll 12)

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/matmul.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/matmul.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__matmul ND_ISA_NAME(nd__cpu_matmul)[2] = {matmul_f32, matmul_f64};
