// Where the elements of a call's operands are, by the definition of strides.
#ifndef ND_TESTS_UNIT_KERNELS_CALLS_H
#define ND_TESTS_UNIT_KERNELS_CALLS_H
#include "kernels/kernel.h"

/// From the first element of an operand, in elements; `flat`: the place in the iteration space, in C order.
static inline int64_t offset_of(const nd_kernel_call *call, int operand, int64_t flat) {
    int64_t offset = 0;
    for (int axis = call->ndim - 1; axis >= 0; axis--) {
        offset += flat % call->shape[axis] * call->operand[operand].strides[axis];
        flat /= call->shape[axis];
    }
    return offset;
}

#endif
