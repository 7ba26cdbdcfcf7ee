// Windows that move over planes: what convolution and pooling have in common. Pairs of numbers are
// of the axes h and w, in this order.
#ifndef ND_LIB_OPS_WINDOW_H
#define ND_LIB_OPS_WINDOW_H
#include <nd/base.h>

/// Both numbers of an option are at least `least`. Error: ND_ERROR_INVALID_ARGUMENT, which names
/// the option, which of the two, and its value.
nd_status nd__window_check_pair_option(const char *name, const char *option, const int64_t *pair,
                                       int64_t least);

/// How many windows of `kernel` >= 1 taps, `dilation` apart, stand in [-padding, size + padding) at
/// multiples of `stride`: (size + 2 padding - dilation (kernel - 1) - 1) / stride + 1, and 0 where
/// not one does. Any sizes and checked options are fine; *ret_count is less than 2^63. Error:
/// ND_ERROR_INVALID_ARGUMENT when the padded size has no 64-bit number; it names padding[axis].
nd_status nd__window_count(const char *name, int axis, int64_t size, int64_t kernel, int64_t stride,
                           int64_t padding, int64_t dilation, int64_t *ret_count);
#endif
