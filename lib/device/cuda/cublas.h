// Matrix products by cuBLAS.
#ifndef ND_LIB_DEVICE_CUDA_CUBLAS_H
#define ND_LIB_DEVICE_CUDA_CUBLAS_H
#include "lib/device/cuda/library.h"
#include "lib/device/cuda/library_numbers.h"

/// What its status means for a caller.
nd_status nd__cublas_status(int blas_status);
/// Its number of a float dtype.
int nd__cublas_dtype(nd_dtype dtype);

/// Makes the device's handle, where it can be made.
void nd__cublas_prepare(nd_cuda_device *device);

/// Whether it is there and can express the call's matrices.
bool nd__cublas_takes(nd_cuda_device *device, const nd_cuda_queue *queue,
                      const nd_kernel_call *call);
/// A MATMUL call, whose bias and activation are somebody else's. ND_ERROR_UNSUPPORTED, with nothing
/// queued, when cuBLAS is missing or cannot do it.
nd_status nd__cublas_matmul(nd_cuda_device *device, const nd_cuda_queue *queue,
                            const nd_kernel_call *call);
#endif
