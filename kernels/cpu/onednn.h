// oneDNN behind two questions that may be answered "not me": then the portable kernels do the work.
#ifndef ND_KERNELS_CPU_ONEDNN_H
#define ND_KERNELS_CPU_ONEDNN_H
#include "kernels/cpu/isa.h"

/// False when it is not built in or switched off (nd__cpu_use_onednn).
bool nd__onednn_is_used(void);

/// Between these two oneDNN starts no threads on behalf of the calling one. leave() takes what enter()
/// gave, the number of OpenMP threads that the calling thread had.
int nd__onednn_enter(void);
void nd__onednn_leave(int threads);

/// One f32 product with sgemm, on this thread. False, and nothing is written, when the strides do not suit
/// it, when it is switched off, or when it fails.
bool nd__onednn_product(const nd__product *product);

/// A conv2d call of f32, shared between threads. False as above, but some of the result may be written.
bool nd__onednn_conv(const nd_kernel_call *call);
#endif
