// Linear algebra by cuSOLVER, and triangular systems by cuBLAS.
#ifndef ND_LIB_DEVICE_CUDA_CUSOLVER_H
#define ND_LIB_DEVICE_CUDA_CUSOLVER_H
#include "lib/device/cuda/library.h"
#include "lib/device/cuda/library_numbers.h"

/// A LINALG call. ND_ERROR_UNSUPPORTED, with nothing that is not done again, when the library is missing
/// or refuses, for many small matrices, and while this thread captures.
nd_status nd__cusolver_compute(nd_cuda_device *device, const nd_cuda_queue *queue,
                               const nd_kernel_call *call);
#endif
