// Runs one kernel call twice, by the CPU's kernels and by the CUDA kernels compiled for the host,
// and compares everything they wrote.
//
// Each run gets its own copy of the output's memory, exactly as long as the call says, filled
// alike; the whole of both is compared, so a write outside the call's window shows as well as a
// wrong value. Inputs live in an arena that both_end() frees, where it also asserts that no scratch
// memory is left.
#ifndef ND_TESTS_UNIT_CUDA_HOST_HARNESS_H
#define ND_TESTS_UNIT_CUDA_HOST_HARNESS_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
// cmocka wants the four above first.
#include <cmocka.h>

#include "kernels/kernel.h"

/// Number of multiprocessors that the kernels are told of: few, so that moderate sizes already cut
/// a reduction into parts.
#define MULTIPROCESSORS 4
/// Shared memory that a block may have: that of compute capability 8.0.
#define SHARED_BYTES (163 << 10)

int both_begin(void **state);
int both_end(void **state);

size_t dtype_bytes(nd_dtype dtype);
const char *op_name(nd_op op);
/// Second column of the table of operations, "UNARY" and so on; "" for ND_OP_none.
const char *op_family(nd_op op);

/// Memory of `count` elements from the arena, filled with reproducible values that suit the dtype:
/// small integers of both signs, normal numbers of size around 1, truth values.
void *values(nd_dtype dtype, int64_t count);
/// The same with NaN and infinities among them, for floats, and integers up to the largest.
void *special_values(nd_dtype dtype, int64_t count);
/// Indices in 0 ... n - 1.
int64_t *indices(int64_t count, int64_t n);
/// Frees what the functions above made; for tests that loop.
void free_values(void);
/// A reproducible number in 0 ... n - 1.
int64_t pick(int64_t n);

/// An operand with row-major strides for the call's shape, or with given ones.
nd_operand contiguous(const nd_kernel_call *call, void *data, nd_dtype dtype);
nd_operand strided(const nd_kernel_call *call, void *data, nd_dtype dtype, const int64_t *strides);

/// Elements from the first to the last that strides reach in the call's shape.
int64_t extent(const nd_kernel_call *call, const int64_t *strides);

/// Runs the call on both and compares. Operands 0 ... outputs - 1 are written; their memory, of
/// elements[i] elements, comes from the arena and gives the initial content. Inputs that lie in it
/// are moved along. The two must agree in their status; returns it. `tolerance` is relative to the
/// largest of 1 and the value, in units of the dtype's precision, and one unit for 16-bit floats; 0
/// asks for the same bits, but for those of a NaN.
nd_status both(const nd_kernel_call *call, int outputs, const int64_t *elements, double tolerance);

/// The parts of that: each run alone, and the comparison of one output's memory.
nd_status run_on_cpu(const nd_kernel_call *call);
nd_status run_on_cuda(const nd_kernel_call *call);
void compare_values(const nd_kernel_call *call, int output, int64_t count, const void *expected,
                    const void *found, double tolerance);

/// The elements of an operand as another dtype, in the arena.
void *converted(const nd_operand *operand, nd_dtype dtype, int64_t count);
/// A call was compared with something else than the CPU's kernel.
void count_compared(nd_op op);

/// `tolerance` for sums of `count` numbers, in which a sanitizer's build of the CPU's kernel, one number after
/// the other, rounds most often.
static inline double tolerance_of_sums(double tolerance, int64_t count) {
    return tolerance * (1.0 + (double)count / 1000.0);
}

/// How many calls of an operation were compared successfully in this process.
int64_t compared(nd_op op);
#endif
