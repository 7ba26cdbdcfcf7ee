// What one instruction set's copy of the loops offers, and how its symbols are named.
//
// The files listed as `loops` in BUILD.bazel are compiled once per instruction set with
// -DND_ISA=...; every symbol they share carries that name (ND_ISA_NAME). cpu.c picks one table when
// the program runs. Nothing in those files starts threads: they ask nd__cpu_parallel.
#ifndef ND_KERNELS_CPU_ISA_H
#define ND_KERNELS_CPU_ISA_H
#include "kernels/cpu/reduce.h"

#define ND__PASTE2(a, b) a##_##b
#define ND__PASTE(a, b) ND__PASTE2(a, b)
#define ND_ISA_NAME(name) ND__PASTE(name, ND_ISA)

/// Elementwise work on one row of n elements. data[k] points to operand k's first element,
/// strides[k] counts elements, attrs are the call's.
typedef void (*nd__loop)(int64_t n, char *const *data, const int64_t *strides,
                         const nd_op_attrs *attrs);

/// Rows of n contiguous elements, `stride` elements apart: softmax and log_softmax into `out`,
/// which may be `x`.
typedef void (*nd__softmax_rows)(const void *x, int64_t x_stride, void *out, int64_t out_stride,
                                 int64_t rows, int64_t n);

typedef struct nd__softmax_loops {
    nd__softmax_rows softmax;
    nd__softmax_rows log_softmax;
    /// Sum of -log softmax(row)[target] over contiguous rows. The targets are in range.
    double (*loss)(const void *x, const int64_t *targets, int64_t rows, int64_t n);
} nd__softmax_loops;

typedef struct nd__matrix {
    void *data;
    int64_t row_stride;
    int64_t column_stride;
} nd__matrix;

/// out = a b, or out += a b. The caller fills what stands above the line.
typedef struct nd__product {
    int64_t m, n, k;
    nd__matrix a, b, out;
    bool accumulate;
    // ---------------------------------------------------------------------------------------------
    int64_t tile_rows, tile_columns, tiles_across;
} nd__product;
typedef void (*nd__matmul)(nd__product *product);

/// A weight in groups of small integers: the operands of QUANTIZED.
typedef struct nd__quantized {
    const void *values, *scales, *zeros; ///< zeros may be NULL
    nd_dtype scale_dtype;
    bool packed;      ///< two int4 to a byte
    int64_t k, group; ///< elements of a row and of a group
} nd__quantized;

typedef struct nd__quantized_loops {
    /// Writes x's even elements, then its odd ones; k is even.
    void (*split)(const void *x, int64_t k, void *out);
    /// out[row] = x times the row, for rows begin ... end - 1. Where the weight is packed, x is its
    /// even elements, then its odd ones.
    void (*dot)(const nd__quantized *weight, const void *x, void *out, int64_t begin, int64_t end);
    /// Writes these rows as numbers behind each other.
    void (*expand)(const nd__quantized *weight, void *out, int64_t begin, int64_t end);
} nd__quantized_loops;

/// Copies to memory that is not read again soon. nd__stream_end() must follow before the thread
/// tells another that the memory is written; it costs much more than one copy, so it follows many.
typedef void (*nd__stream)(void *to, const void *from, int64_t bytes);
static inline void nd__stream_end(void) {
#if defined(__x86_64__)
    __builtin_ia32_sfence(); // ordinary stores would overtake the others
#endif
}

/// Everything one instruction set supplies. Entries are NULL where an op is not defined for a
/// dtype.
typedef struct nd__cpu_loops {
    const char *name;
    const nd__loop *const *unary;              ///< by dtype of the last operand, then op
    const nd__loop *const *binary;             ///< likewise: BINARY, COMPARE, LOGICAL and TERNARY
    const nd__loop (*convert)[ND_DTYPE_COUNT]; ///< by dtype from, then to
    const nd__reducer *const (*reducers)[ND_DTYPE_COUNT]; ///< by nd__fold, then dtype
    const nd__argreducer (*argreducers)[2];               ///< by dtype, then argmax, argmin
    const nd__softmax_loops *softmax;                     ///< f32, f64
    const nd__quantized_loops *quantized;                 ///< f32, f64
    const nd__matmul *matmul;                             ///< by dtype; NULL for bool
    nd__stream stream;
} nd__cpu_loops;

extern const nd__cpu_loops nd__cpu_loops_baseline;
extern const nd__cpu_loops nd__cpu_loops_x86_64_v3;
extern const nd__cpu_loops nd__cpu_loops_x86_64_v4;

/// The loops for this machine's CPU.
const nd__cpu_loops *nd__cpu_loops_now(void);
#endif
