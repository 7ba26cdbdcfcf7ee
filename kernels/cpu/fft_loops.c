// The loops of fft_lines.h. No product and sum are rounded at once here (BUILD.bazel): results are
// the same in every instruction set, and with vectors of any length.
#include "kernels/cpu/fft_lines.h"
#include "kernels/cpu/isa.h"
#include "kernels/cpu/names.h"
#include <string.h>

// Of the vectors: bytes, and lanes of f32 and f64. Where passes of one line are shorter than a
// vector, eight lanes do.
#if defined(__AVX512F__)
#define WIDEST_F32 16
#define WIDEST_F64 8
#elif defined(__AVX__)
#define WIDEST_F32 8
#define WIDEST_F64 4
#else
#define WIDEST_F32 4
#define WIDEST_F64 2
#endif

/// So many lines of n are transformed one by one: together they take as long as a bundle. Factors
/// without a function of their own have no vectors of one line.
#define FEW(n) ((n) > 128 ? 5 : 3)

// Names of what is made for a dtype and a number of lanes.
#define PASTE_NAME_(a, b, c) a##_##b##_##c
#define PASTE_NAME(a, b, c) PASTE_NAME_(a, b, c)
#define NAMED(name) PASTE_NAME(name, TYPE, VL)
#define ONE(name) PASTE_NAME(name, TYPE, 1)
#define EIGHT(name) PASTE_NAME(name, TYPE, 8)
#define BUNDLE ND__FFT_BUNDLE(sizeof(T))

// Lanes of vectors, for __builtin_shufflevector: F(0), F(1) ...
#define LANES_2(F) F(0), F(1)
#define LANES_4(F) LANES_2(F), F(2), F(3)
#define LANES_8(F) LANES_4(F), F(4), F(5), F(6), F(7)
#define LANES_16(F) LANES_8(F), F(8), F(9), F(10), F(11), F(12), F(13), F(14), F(15)
#define LANES__(count, F) LANES_##count(F)
#define LANES_(count, F) LANES__(count, F)
#define LANES(F) LANES_(VL, F)

// Two vectors as rows of squares of D lanes, two by two, whose off-diagonal ones change places.
#define UPPER(lane, D) ((lane) & (D) ? VL + (lane) - (D) : (lane))
#define LOWER(lane, D) ((lane) & (D) ? VL + (lane) : (lane) + (D))
#define UPPER_1(lane) UPPER(lane, 1)
#define UPPER_2(lane) UPPER(lane, 2)
#define UPPER_4(lane) UPPER(lane, 4)
#define UPPER_8(lane) UPPER(lane, 8)
#define LOWER_1(lane) LOWER(lane, 1)
#define LOWER_2(lane) LOWER(lane, 2)
#define LOWER_4(lane) LOWER(lane, 4)
#define LOWER_8(lane) LOWER(lane, 8)
// Pairs of two vectors to their first numbers and their second ones, and back.
#define FIRST(lane) (2 * (lane))
#define SECOND(lane) (2 * (lane) + 1)
#define FRONT(lane) ((lane) / 2 + (lane) % 2 * VL)
#define BACK(lane) ((lane) / 2 + VL / 2 + (lane) % 2 * VL)

/// k further round a circle of n.
ND__IN_LOOPS int64_t further(int64_t at, int64_t k, int64_t n) {
    return at + k >= n ? at + k - n : at + k;
}

#define WIDEST WIDEST_F32
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/fft_of_type.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on
#undef WIDEST

#define WIDEST WIDEST_F64
// clang-format off
#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/fft_of_type.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on
#undef WIDEST

extern const nd__fft_lines_loop ND_ISA_NAME(nd__cpu_fft_lines)[2];
const nd__fft_lines_loop ND_ISA_NAME(nd__cpu_fft_lines)[2] = {transform_f32, transform_f64};
