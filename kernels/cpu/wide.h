// Vectors of doubles, and of the floats that become them: what the loops add up in double is made of
// these, one register of the instruction set at a time.
#ifndef ND_KERNELS_CPU_WIDE_H
#define ND_KERNELS_CPU_WIDE_H
#include "kernels/cpu/names.h"
#include <stdint.h>
#if defined(__AVX__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define ND__LANES 8
#elif defined(__AVX__)
#define ND__LANES 4
#else
#define ND__LANES 2
#endif
typedef double nd__wide __attribute__((vector_size(8 * ND__LANES)));
typedef float nd__narrow __attribute__((vector_size(4 * ND__LANES)));

/// ND__LANES elements anywhere in memory.
typedef double nd__part_f64 __attribute__((vector_size(8 * ND__LANES), aligned(8), may_alias));
typedef float nd__part_f32 __attribute__((vector_size(4 * ND__LANES), aligned(4), may_alias));

/// Named to the instruction, which can also read what it widens: gcc makes of this conversion two
/// halves and what joins them, which takes twice as long.
ND__IN_LOOPS nd__wide nd__widened_f32(nd__narrow x) {
#if defined(__AVX512F__)
    return (nd__wide)_mm512_cvtps_pd((__m256)x);
#elif defined(__AVX__)
    return (nd__wide)_mm256_cvtps_pd((__m128)x);
#else
    return __builtin_convertvector(x, nd__wide);
#endif
}
ND__IN_LOOPS nd__wide nd__widened_f64(nd__wide x) {
    return x;
}

/// Sum of the lanes, as a tree of halves.
ND__IN_LOOPS double nd__sum_of_lanes(nd__wide x) {
#if ND__LANES == 8
    __m256d half =
        _mm256_add_pd(_mm512_castpd512_pd256((__m512d)x), _mm512_extractf64x4_pd((__m512d)x, 1));
    __m128d quarter = _mm_add_pd(_mm256_castpd256_pd128(half), _mm256_extractf128_pd(half, 1));
    return quarter[0] + quarter[1];
#elif ND__LANES == 4
    __m128d half =
        _mm_add_pd(_mm256_castpd256_pd128((__m256d)x), _mm256_extractf128_pd((__m256d)x, 1));
    return half[0] + half[1];
#else
    return x[0] + x[1];
#endif
}
#endif
