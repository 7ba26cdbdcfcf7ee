// LU, Cholesky and QR factors and solutions by triangles, for one instruction set.
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include <math.h>
#include <string.h>

#if defined(__AVX512F__)
#define ND__VECTOR_BYTES 64
#define SUBTRACT_ROWS 12
#elif defined(__AVX__)
#define ND__VECTOR_BYTES 32
#define SUBTRACT_ROWS 6
#else
#define ND__VECTOR_BYTES 16
#define SUBTRACT_ROWS 6
#endif

/// Steps of a sum for which columns of b are packed together: 16 KiB of them.
#define SUBTRACT_DEPTH 128
/// Columns that are computed one by one, along a's rows.
#define MOST_SINGLE_COLUMNS 2
/// Rows that are added up before what they make is added to the others', and rows of a product.
#define REFLECT_ROWS 64
#define REFLECT_PART 4096

/// A product that is rounded before it is added: not every instruction set rounds both at once, and
/// elimination leaves an exact 0 of small integers only so.
#if defined(__AVX512F__)
#define ND__ROUNDED(x) __asm__("" : "+v"(x))
#elif defined(__x86_64__)
#define ND__ROUNDED(x) __asm__("" : "+x"(x))
#elif defined(__aarch64__)
#define ND__ROUNDED(x) __asm__("" : "+w"(x))
#else
#define ND__ROUNDED(x) (void)(x)
#endif

#define ND__MINIMUM(a, b) ((a) < (b) ? (a) : (b))

#define T float
#define I int32_t
#define TYPE f32
#define root_f32 sqrtf
#include "kernels/cpu/factor.inc"
#include "kernels/cpu/reflect.inc"
#undef T
#undef I
#undef TYPE

#define T double
#define I int64_t
#define TYPE f64
#define root_f64 sqrt
#include "kernels/cpu/factor.inc"
#include "kernels/cpu/reflect.inc"

const nd__factor_loops ND_ISA_NAME(nd__cpu_factor_loops)[2] = {
    {lu_square_f32, cholesky_f32, solve_triangle_f32, qr_f32},
    {lu_square_f64, cholesky_f64, solve_triangle_f64, qr_f64},
};
