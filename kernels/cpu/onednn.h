// oneDNN behind two questions that may be answered "not me": then the portable kernels do the work.
#ifndef ND_KERNELS_CPU_ONEDNN_H
#define ND_KERNELS_CPU_ONEDNN_H
#include "kernels/cpu/isa.h"
#include <signal.h>

/// False when it is not built in or switched off (nd__cpu_use_onednn).
bool nd__onednn_is_used(void);

/// What the calling thread had before.
typedef struct nd__onednn_before {
    int threads; ///< of OpenMP
    sigset_t blocked;
} nd__onednn_before;

/// Between these two oneDNN starts no threads on behalf of the calling one, and signals to it wait: the code that
/// oneDNN generates for products of AVX-512 uses the stack pointer for data, and a handler would
/// write its frame there, into the heap.
nd__onednn_before nd__onednn_enter(void);
void nd__onednn_leave(const nd__onednn_before *before);

/// One f32 product with sgemm, on this thread. False, and nothing is written, when the strides do not suit
/// it, when it is switched off, or when it fails.
bool nd__onednn_product(const nd__product *product);

/// A conv2d call of f32, shared between threads. False as above, but some of the result may be written.
bool nd__onednn_conv(const nd_kernel_call *call);
#endif
