// The operands of a matrix product: how their last two axes lie for a kernel, and their batches.
//
// A factor goes to the kernel as it lies in memory whenever one of its two strides is 1, so
// transposes cost nothing; else as a dense copy. A factor of one axis is one row, or one column.
#ifndef ND_LIB_OPS_FACTOR_H
#define ND_LIB_OPS_FACTOR_H
#include "kernels/kernel.h"
#include "lib/tensor/tensor.h"

typedef struct nd__factor {
    nd_tensor *tensor; ///< owned: the operand itself or a dense copy
    int64_t rows, columns;
    int64_t row_stride, column_stride;
    int batch_ndim;
} nd__factor;

/// Whether a kernel can read the matrix where it lies.
bool nd__factor_is_readable(const nd__factor *m);
/// x as a factor, a column where it has one axis and that is asked for; m->tensor is NULL on error.
void nd__factor_make(const char *name, nd__factor *m, const nd_tensor *x, bool as_column);
/// Both operands of a product, tidied. False: an error; there is nothing to release then.
bool nd__factor_make_pair(const char *name, nd__factor *a, nd__factor *b, const nd_tensor *x,
                          const nd_tensor *y);
void nd__factor_release_pair(nd__factor *a, nd__factor *b);
/// A stride that is never walked may be anything; kernels want one that suits the matrix.
void nd__factor_tidy(nd__factor *m);

/// The error of operands without axes, or of different sizes along the axis that is summed over.
nd_status nd__factor_check(const char *name, const nd_tensor *a, const nd_tensor *b);
nd_status nd__factor_check_inner(const char *name, const nd_tensor *a, const nd_tensor *b,
                                 int64_t a_inner, int64_t b_inner);
/// Result shape of a product, batch axes first. Returns its ndim, or -1 with an error.
int nd__factor_shape(const char *name, const nd__factor *a, const nd__factor *b, int *ret_batch,
                     int64_t *ret_shape);

/// Operands 0 to 2, each of its own dtype, and attributes 0 to 8 of a MATMUL call, whose result is
/// contiguous.
void nd__factor_fill(nd_kernel_call *call, nd_op op, const nd__factor *a, const nd__factor *b,
                     nd_tensor *out);
/// The batch axes of those operands, seen through the broadcast to the result's.
void nd__factor_fill_batches(nd_kernel_call *call, const nd__factor *a, const nd__factor *b,
                             int batch, const int64_t *shape);
/// One product for a batch whose rows of a follow each other and which shares b.
void nd__factor_merge_batch(nd_kernel_call *call);
#endif
