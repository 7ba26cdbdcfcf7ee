// What spectral.h wants of an instruction set.
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/qd_iteration.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/spectral.h"
#include "kernels/cpu/spectral_iteration.h"
#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
#define ND__VECTOR_BYTES 64
#define SUBTRACT_ROWS 12
#define ROTATED_VECTORS 4
#elif defined(__AVX__)
#define ND__VECTOR_BYTES 32
#define SUBTRACT_ROWS 6
#define ROTATED_VECTORS 2
#else
#define ND__VECTOR_BYTES 16
#define SUBTRACT_ROWS 6
#define ROTATED_VECTORS 2
#endif

// As in factor_loops.c.
#define SUBTRACT_DEPTH 128
#define MOST_SINGLE_COLUMNS 2
#define REFLECT_ROWS 64

#define ND__MINIMUM(a, b) ((a) < (b) ? (a) : (b))

#define T float
#define I int32_t
#define TYPE f32
// Each wants those before it.
#include "kernels/cpu/subtract.inc"

#include "kernels/cpu/reflection.inc"

#include "kernels/cpu/rotations.inc"

#include "kernels/cpu/tridiagonal.inc"

#include "kernels/cpu/bidiagonal.inc"

#include "kernels/cpu/fold.inc"

#include "kernels/cpu/spectral_end.inc"

#define T double
#define I int64_t
#define TYPE f64
// Each wants those before it.
#include "kernels/cpu/subtract.inc"

#include "kernels/cpu/reflection.inc"

#include "kernels/cpu/rotations.inc"

#include "kernels/cpu/tridiagonal.inc"

#include "kernels/cpu/bidiagonal.inc"

#include "kernels/cpu/fold.inc"

#include "kernels/cpu/spectral_end.inc"

const nd__spectral_loops ND_ISA_NAME(nd__cpu_spectral_loops)[2] = {
    {largest_of_f32, tridiagonalise_f32, tridiagonal_basis_f32, nd__tridiagonal_values, rotate_f32,
     bidiagonalise_f32, product_of_rows_f32, reflect_all_f32, nd__bidiagonal_values, nd__qd_values,
     subtract_any_f32, fold_f32, unfold_f32},
    {largest_of_f64, tridiagonalise_f64, tridiagonal_basis_f64, nd__tridiagonal_values, rotate_f64,
     bidiagonalise_f64, product_of_rows_f64, reflect_all_f64, nd__bidiagonal_values, nd__qd_values,
     subtract_any_f64, fold_f64, unfold_f64},
};
