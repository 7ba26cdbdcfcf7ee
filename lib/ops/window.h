// Windows that move over images of one to three axes: what convolution and pooling have in common.
// Numbers are in the order of the axes: depth, height and width, of which the last are there.
#ifndef ND_LIB_OPS_WINDOW_H
#define ND_LIB_OPS_WINDOW_H
#include <nd/base.h>

/// The `axes` numbers of an option are at least `least`. Error: ND_ERROR_INVALID_ARGUMENT, which
/// names the option, which of them where there are several, and its value.
nd_status nd__window_check_option(const char *name, const char *option, int axes,
                                  const int64_t *values, int64_t least);

/// Puts numbers of `axes` axes at the end of three; those before become `missing`.
void nd__window_align(int axes, const int64_t *values, int64_t missing, int64_t *ret_three);

/// How many windows of `kernel` >= 1 taps, `dilation` apart, stand in [-padding, size + padding) at
/// multiples of `stride`: (size + 2 padding - dilation (kernel - 1) - 1) / stride + 1, and 0 where
/// not one does. The division rounds down, or with `ceil_mode` up, but no window begins behind
/// size. Any sizes and checked options are fine; *ret_count is less than 2^63. Error:
/// ND_ERROR_INVALID_ARGUMENT when the padded size has no 64-bit number; it names padding[axis].
nd_status nd__window_count(const char *name, int axis, int64_t size, int64_t kernel, int64_t stride,
                           int64_t padding, int64_t dilation, bool ceil_mode, int64_t *ret_count);
#endif
