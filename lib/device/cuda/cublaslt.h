// linear by cuBLASLt, which adds the bias and takes the larger of a sum and 0 while it still has
// the sum in registers; and products so small that the host's time counts, of which a kept answer takes
// less than cuBLAS.
#ifndef ND_LIB_DEVICE_CUDA_CUBLASLT_H
#define ND_LIB_DEVICE_CUDA_CUBLASLT_H
#include "lib/device/cuda/library.h"
#include "lib/device/cuda/library_numbers.h"

/// Makes the device's handle, where it can be made.
void nd__cublaslt_prepare(nd_cuda_device *device);

/// A linear call that has a bias or an activation, and nothing in the result yet.
/// *ret_activated: the result has gone through the activation. ND_ERROR_UNSUPPORTED, with nothing
/// queued, when cuBLASLt is missing, cannot express the call or knows no algorithm for it.
nd_status nd__cublaslt_linear(nd_cuda_device *device, const nd_cuda_queue *queue,
                              const nd_kernel_call *call, bool *ret_activated);

/// A small product of floats without a batch. ND_ERROR_UNSUPPORTED as above, and for all others.
nd_status nd__cublaslt_matmul(nd_cuda_device *device, const nd_cuda_queue *queue,
                              const nd_kernel_call *call);
#endif
