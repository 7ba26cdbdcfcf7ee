// The portable matrix product, for f64, 16-bit floats (converted panel by panel, added up in f32)
// and integers, for builds without oneDNN, and for matrices so small that a library's call costs
// more than the work.
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/rows.h"
#include "kernels/cpu/scratch.h"
#include "kernels/half.h"

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

// One product for each width of integers: what wraps has the same bits with a sign and without.
#define LOAD_PLAIN(e) (e)
#define LOAD_WORD(e) ((T)(e))
#define STORE_PLAIN(t) (t)
#define STORE_WORD(t) ((E)(t))
#define PACK_PLAIN(to, row) memcpy(to, row, sizeof(T) * (size_t)KERNEL_COLUMNS)
#define PACK_WORDS(to, row)                                                 \
    ND__INDEPENDENT for (int64_t word = 0; word < KERNEL_COLUMNS; word++) { \
        (to)[word] = LOAD((row)[word]);                                     \
    }

extern const nd__loop ND_ISA_NAME(nd__cpu_convert)[ND_DTYPE_COUNT][ND_DTYPE_COUNT];
static inline void pack_f16(float *to, const uint16_t *row, int64_t n) {
    ND_ISA_NAME(nd__cpu_convert)
    [ND_F16][ND_F32](n, (char *[]){(char *)to, (char *)(uintptr_t)row}, (int64_t[]){1, 1}, NULL);
}

// The order of these includes is what they mean; it must not be sorted.
// clang-format off
#define TYPE f32
#define T float
#define E float
#define LOAD LOAD_PLAIN
#define STORE STORE_PLAIN
#define PACK PACK_PLAIN
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"

#define TYPE f64
#define T double
#define E double
#define LOAD LOAD_PLAIN
#define STORE STORE_PLAIN
#define PACK PACK_PLAIN
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"

#define TYPE f16
#define T float
#define E uint16_t
#define LOAD nd__f16_to_f32
#define STORE nd__f32_to_f16
#define PACK(to, row) pack_f16(to, row, KERNEL_COLUMNS)
#define WIDE_SUMS 1
#include "kernels/cpu/matmul.inc"

#define TYPE bf16
#define T float
#define E uint16_t
#define LOAD nd__bf16_to_f32
#define STORE nd__f32_to_bf16
#define PACK PACK_WORDS
#define WIDE_SUMS 1
#include "kernels/cpu/matmul.inc"

#define TYPE w8
#define T uint32_t
#define E uint8_t
#define LOAD LOAD_WORD
#define STORE STORE_WORD
#define PACK PACK_WORDS
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"

#define TYPE w16
#define T uint32_t
#define E uint16_t
#define LOAD LOAD_WORD
#define STORE STORE_WORD
#define PACK PACK_WORDS
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"

#define TYPE w32
#define T uint32_t
#define E uint32_t
#define LOAD LOAD_PLAIN
#define STORE STORE_PLAIN
#define PACK PACK_PLAIN
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"

#define TYPE w64
#define T uint64_t
#define E uint64_t
#define LOAD LOAD_PLAIN
#define STORE STORE_PLAIN
#define PACK PACK_PLAIN
#define WIDE_SUMS 0
#include "kernels/cpu/matmul.inc"
// clang-format on

const nd__matmul ND_ISA_NAME(nd__cpu_matmul)[ND_DTYPE_COUNT] = {
    [ND_F32] = matmul_f32, [ND_F64] = matmul_f64, [ND_F16] = matmul_f16, [ND_BF16] = matmul_bf16,
    [ND_I8] = matmul_w8,   [ND_U8] = matmul_w8,   [ND_I16] = matmul_w16, [ND_U16] = matmul_w16,
    [ND_I32] = matmul_w32, [ND_U32] = matmul_w32, [ND_I64] = matmul_w64, [ND_U64] = matmul_w64,
};
