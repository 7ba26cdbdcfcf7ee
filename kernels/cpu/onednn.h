// oneDNN behind two questions that may be answered "not me": then the portable kernels do the work.
#ifndef ND_KERNELS_CPU_ONEDNN_H
#define ND_KERNELS_CPU_ONEDNN_H
#include "kernels/cpu/isa.h"
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

/// False when it is not built in or switched off (nd__cpu_use_onednn).
bool nd__onednn_is_used(void);

/// What the calling thread had before.
typedef struct nd__onednn_before {
    int threads; ///< of OpenMP
    sigset_t blocked;
    uint32_t kind;
    bool first; ///< nobody has left such a computation yet
} nd__onednn_before;

/// Kinds of computations, for nd__onednn_enter().
#define ND__ONEDNN_KINDS 65536

/// Between these two oneDNN starts no threads on behalf of the calling one, and signals to it wait:
/// the code that oneDNN generates for products of AVX-512 uses the stack pointer for data, and a
/// handler would write its frame there, into the heap.
/// `kind`: below ND__ONEDNN_KINDS; equal for computations that oneDNN does alike. False: the
/// process ends, and oneDNN with it; compute without it, and do not leave.
bool nd__onednn_enter(uint32_t kind, nd__onednn_before *ret_before);
void nd__onednn_leave(const nd__onednn_before *before);

/// One f32 product with sgemm, on this thread. False, and nothing is written, when the strides do
/// not suit it, when it is switched off, or when it fails.
bool nd__onednn_product(const nd__product *product);

/// A convolution of f32, or one of its gradients, shared between threads. False as above, but some
/// of the result may be written.
bool nd__onednn_conv(const nd_kernel_call *call);
#endif
