// Shapes and strides: checks, broadcasting, texts. No memory is touched here.
#ifndef ND_LIB_TENSOR_SHAPE_H
#define ND_LIB_TENSOR_SHAPE_H
#include "lib/base/atomics.h"
#include "lib/tensor/tensor.h"

/// Product of sizes into ret_numel; errors: negative size, too many dimensions, overflow of
/// elements or bytes.
nd_status nd__shape_check(const char *operation, int ndim, const int64_t *shape, nd_dtype dtype,
                          int64_t *ret_numel);

/// Says that an axis is out of range; -1.
__attribute__((cold)) int nd__shape_refuse_axis(const char *operation, int axis, int ndim);
/// Axis with negatives resolved; -1 and an error when out of range.
static inline int nd__shape_resolve_axis(const char *operation, int axis, int ndim) {
    if (__builtin_expect(axis >= -ndim && axis < ndim, 1))
        return axis < 0 ? axis + ndim : axis;
    return nd__shape_refuse_axis(operation, axis, ndim);
}

/// Broadcast shape of two; error names both shapes. Returns its ndim or -1. `ret_shape` has
/// ND_MAX_DIMS entries.
int nd__shape_broadcast(const char *operation, int andim, const int64_t *ashape, int bndim,
                        const int64_t *bshape, int64_t *ret_shape);

const char *nd__shape_text(char *buffer, int ndim, const int64_t *shape);

/// Operand of x seen through a broadcast to `ndim`, `shape` (stride 0 where it repeats).
nd_operand nd__shape_broadcast_operand(const nd_tensor *x, int ndim, const int64_t *shape);

/// Copies sizes or strides. The fence keeps compilers from seeing one copy of unknown length in it:
/// the instruction that repeats itself takes longer to begin than the few that there are.
static inline void nd__shape_copy(int64_t *ret_to, const int64_t *from, int count) {
    for (int i = 0; i < count; i++) {
        ret_to[i] = from[i];
        nd__atomic_compiler_fence();
    }
}

/// Merges neighbouring dimensions that all operands walk contiguously and drops those of size 1;
/// sets call->ndim and shape.
void nd__shape_collapse(nd_kernel_call *call);
#endif
