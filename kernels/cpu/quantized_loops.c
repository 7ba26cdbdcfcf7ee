// Rows of a weight of 8 and 4 bits, for f32 and f64: products with one vector, and the rows as
// numbers (quantized.c decides which rows and on which threads).
#include "kernels/cpu/rows.h"
#include "kernels/half.h"

/// Elements that are worked on at once. gcc 12 handles vectors wider than the machine's badly, but
/// where it has only the narrowest.
#if defined(__AVX__) && !defined(__AVX512F__)
#define ND__LANES 8
#else
#define ND__LANES 16
#endif

typedef uint8_t bytes __attribute__((vector_size(ND__LANES), aligned(1), may_alias));
typedef int8_t signed_bytes __attribute__((vector_size(ND__LANES), aligned(1), may_alias));
typedef int16_t shorts __attribute__((vector_size(2 * ND__LANES)));
typedef int32_t integers __attribute__((vector_size(4 * ND__LANES)));

// In two steps: gcc 12 takes a vector apart that becomes four times as wide at once.
#define WIDENED(vector) __builtin_convertvector(__builtin_convertvector(vector, shorts), integers)

static inline float number_of(const void *numbers, nd_dtype dtype, int64_t index) {
    if (dtype == ND_F32)
        return ((const float *)numbers)[index];
    uint16_t half = ((const uint16_t *)numbers)[index];
    return dtype == ND_F16 ? nd__f16_to_f32(half) : nd__bf16_to_f32(half);
}

/// What the integers of a group count from.
static inline float zero_of(const nd__quantized *weight, int64_t index) {
    if (weight->zeros)
        return number_of(weight->zeros, weight->scale_dtype, index);
    return weight->packed ? 8.0F : 0.0F;
}

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#include "kernels/cpu/type_f32.inc"
#include "kernels/cpu/quantized.inc"
#include "kernels/cpu/type_end.inc"

#include "kernels/cpu/type_f64.inc"
#include "kernels/cpu/quantized.inc"
#include "kernels/cpu/type_end.inc"
// clang-format on

const nd__quantized_loops ND_ISA_NAME(nd__cpu_quantized_loops)[2] = {
    {split_f32, dot_rows_f32, expand_rows_f32},
    {split_f64, dot_rows_f64, expand_rows_f64},
};
