// The elementwise rows of kernels/ops.inc in two parts, compiled apart.
//
// Arithmetic (unary.c, binary.c) waits for memory. Functions (unary_functions.c, binary_functions.c) wait
// for themselves: each step of a polynomial for the one before, and a processor does not look so far
// ahead that it would find the next elements' steps meanwhile. So their loops go in turns of several
// vectors, which are read before anything is written, so that nothing keeps a compiler from taking a step
// for all of them before the next. GCC unrolls a turn (BUILD.bazel) and orders its instructions. The
// tables are those of the first part.
//
// To be included first, where ND__FUNCTIONS, 0 or 1, says which part it is.
#ifndef ND_KERNELS_CPU_PARTS_H
#define ND_KERNELS_CPU_PARTS_H
#if ND__FUNCTIONS && defined(__GNUC__) && !defined(__clang__)
// First of all, so that all functions of the file have the same options.
#pragma GCC optimize("schedule-insns", "sched-pressure")
#endif
#include "kernels/cpu/isa.h"
#include "kernels/cpu/names.h"

// `text` where a row of that cost is arithmetic, or a function.
#define ND__IF_ARITHMETIC(cost, ...) ND__ARITHMETIC_##cost(__VA_ARGS__)
#define ND__ARITHMETIC_1(...) __VA_ARGS__
#define ND__ARITHMETIC_4(...)
#define ND__ARITHMETIC_8(...)
#define ND__ARITHMETIC_32(...)
#define ND__IF_FUNCTION(cost, ...) ND__FUNCTION_##cost(__VA_ARGS__)
#define ND__FUNCTION_1(...)
#define ND__FUNCTION_4(...) __VA_ARGS__
#define ND__FUNCTION_8(...) __VA_ARGS__
#define ND__FUNCTION_32(...) __VA_ARGS__

#if ND__FUNCTIONS
#define ND__PART ND__IF_FUNCTION
#define ND__PART_LINKAGE
#else
#define ND__PART ND__IF_ARITHMETIC
#define ND__PART_LINKAGE static
#endif

#if defined(__AVX512F__)
#define ND__VECTOR_BYTES 64
#elif defined(__AVX__)
#define ND__VECTOR_BYTES 32
#else
#define ND__VECTOR_BYTES 16
#endif
/// Vectors of a turn, and elements of the current dtype. f64's polynomials are so long that more would
/// not leave room for the numbers they are made of.
#define ND__TOGETHER (sizeof(T) == sizeof(float) ? 4 : 2)
#define ND__TURN ((int)(ND__TOGETHER * ND__VECTOR_BYTES / sizeof(T)))
/// Whether loops of the current dtype go in turns.
#define ND__IN_TURNS (ND__FUNCTIONS && IS_FLOAT)

/// Copies the `vectors` that a turn reads. A copy in narrower pieces would have whole ones wait for it.
ND__IN_LOOPS void nd__turn_read(void *to, const void *from, const int vectors) {
    typedef char vector __attribute__((vector_size(ND__VECTOR_BYTES), aligned(1), may_alias));
    for (int i = 0; i < vectors; i++)
        ((vector *)to)[i] = ((const vector *)from)[i];
}

/// The loop of a row for the current dtype.
#define ND__LOOP(name) ND_ISA_NAME(ND__PASTE3(nd__cpu_, name, TYPE))
/// As the other part sees it.
#define ND__DECLARED(loop) \
    void loop(int64_t n, char *const *data, const int64_t *strides, const nd_op_attrs *attrs)
#endif
