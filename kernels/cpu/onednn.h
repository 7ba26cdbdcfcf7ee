// oneDNN behind two questions that may be answered "not me": then the portable kernels do the work.
#ifndef ND_KERNELS_CPU_ONEDNN_H
#define ND_KERNELS_CPU_ONEDNN_H
#include "kernels/cpu/isa.h"

/// False when it is not built in or switched off (nd__cpu_use_onednn).
bool nd__onednn_is_used(void);

/// One f32 product with sgemm. False, and nothing is written, when the strides do not suit it, when it
/// is switched off, or when it fails.
bool nd__onednn_product(const nd__product *product);

/// A conv2d call of f32. False as above.
bool nd__onednn_conv(const nd_kernel_call *call);
#endif
