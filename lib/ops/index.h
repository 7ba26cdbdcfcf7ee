// Scattering, and what is said of an index that is out of range, for other files of operations.
#ifndef ND_LIB_OPS_INDEX_H
#define ND_LIB_OPS_INDEX_H
#include "lib/ops/operands.h"

/// What is in no range, as an error writes it: "7 at [1, 2]", or "7" of a tensor without dimensions.
typedef struct nd_stray {
    char text[ND__NUMBER_TEXT + 4 + ND__SHAPE_TEXT];
} nd_stray;

/// The first of `indices`, integers, that is neither in low ... high nor *spared (NULL: none is).
/// False: there is none, or the host cannot read them. Only for errors, which need no speed.
bool nd__index_find_outside(const nd_tensor *indices, int64_t low, int64_t high,
                            const int64_t *spared, nd_stray *ret_stray);

/// Says that `what`, one of `indices`, is outside low ... high, and which it is where the host can
/// read them.
__attribute__((cold)) nd_status nd__index_refuse(const char *name, const char *what,
                                                 const nd_tensor *indices, int64_t low,
                                                 int64_t high);
/// The same of an index into an axis of `size` elements, from either end.
__attribute__((cold)) nd_status nd__index_refuse_place(const char *name, const nd_tensor *indices,
                                                       int64_t size);

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
