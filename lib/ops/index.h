// Scattering for other files of operations.
#ifndef ND_LIB_OPS_INDEX_H
#define ND_LIB_OPS_INDEX_H
#include "lib/ops/operands.h"

/// A copy of x in which scatter_add or scatter_reduce (of `kind`) has joined source, at index along
/// the axis, recorded. Checked before are dtypes and that index and source have one shape.
nd_tensor *nd__index_scatter(const char *name, nd_op op, nd_scatter_kind kind, const nd_tensor *x,
                             const nd_tensor *index, const nd_tensor *source, int axis);

/// Zeros of a shape, of source's dtype, with source added at index (i64 or i32, of source's shape)
/// along the axis, which is not negative: nd_scatter_add() onto zeros that nobody else sees, so that
/// they are written but once. Recorded. NULL for a source or an index that is NULL.
nd_tensor *nd__index_scatter_zeros(const nd_tensor *source, const nd_tensor *index, int axis,
                                   int ndim, const int64_t *shape);

/// Adds source to `sums` itself, of its dtype, f32 or f64, at index along the axis, neither of which is
/// negative: unrecorded, for sums that nobody else sees.
nd_status nd__index_scatter_add_to(nd_tensor *sums, const nd_tensor *source, const nd_tensor *index,
                                   int axis);

/// What scatter_add and its kin ask of their operands: tensors of one device, x and source numbers of
/// one dtype, index i64 or i32 and of source's shape.
nd_status nd__index_check_scatter(const char *name, const nd_tensor *x, const nd_tensor *index,
                                  const nd_tensor *source);
#endif
