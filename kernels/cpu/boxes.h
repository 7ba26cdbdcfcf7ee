// Elementwise calls in boxes: parts of the iteration space whose operands are brought together in the
// nearest cache, where rows along the last axis would be short or lie in too many cache lines.
#ifndef ND_KERNELS_CPU_BOXES_H
#define ND_KERNELS_CPU_BOXES_H
#include "kernels/cpu/families.h"

/// Operands of a call in boxes at most, the result among them.
#define ND__BOX_OPERANDS 4
/// Calls of fewer elements are too short for it to be asked whether they go in boxes.
#define ND__BOXED_ELEMENTS 256

/// Work on a row of n elements, as an nd__loop. But at the edges of the space, the result's elements lie
/// one behind the other, and so do an operand's, or it is one for all.
typedef void (*nd__box_body)(const void *context, int64_t n, char *const *data,
                             const int64_t *strides);

/// Orders the axes as the result lies in memory, ascending, and makes one of those that are one. The
/// result repeats along none. No size is 0.
void nd__boxes_order(nd_kernel_call *call);

/// Whether rows along the last axis of an ordered call are long and lie as a body takes them.
/// `repeats`: bit k says that operand k may be one for all of a row.
bool nd__boxes_has_long_rows(const nd_kernel_call *call, unsigned repeats);

/// Runs the body over an ordered call of one axis or more. `cost` is that of one element. Without a
/// body the call is a copy between two operands of one dtype.
void nd__boxes_run(const nd_kernel_call *call, unsigned repeats, int64_t cost, nd__box_body body,
                   const void *context);
#endif
