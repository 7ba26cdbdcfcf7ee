// Products for other files of operations.
#ifndef ND_LIB_OPS_MATMUL_H
#define ND_LIB_OPS_MATMUL_H
#include "lib/ops/operands.h"

/// sums += a b, for matrices of one float dtype and device; sums is contiguous. Unrecorded, for sums
/// that nobody else sees. ND_ERROR_OUT_OF_MEMORY, with sums as they were, where an operand must be
/// copied and cannot be. NULL for an operand stands for an error that was set before.
nd_status nd__matmul_add_to(nd_tensor *sums, const nd_tensor *a, const nd_tensor *b);
#endif
