// Convolutions, and means of windows, by cuDNN.
#ifndef ND_LIB_DEVICE_CUDA_CUDNN_H
#define ND_LIB_DEVICE_CUDA_CUDNN_H
#include "lib/device/cuda/library.h"
#include "lib/device/cuda/library_numbers.h"

// For cudnn_attention.c.

/// The library; NULL: it is not there, or there is no room to open it now.
void *nd__cudnn_library(void);
/// The device's handle is there, on the queue's stream. Caller holds blas_lock, and there is a library.
nd_status nd__cudnn_handle(nd_cuda_device *device, const nd_cuda_queue *queue);
/// What a status means; everything that is none of memory or of the device is a refusal.
nd_status nd__cudnn_status(int status);

/// Makes the device's handle, where it can be made.
void nd__cudnn_prepare(nd_cuda_device *device);

/// conv, conv_grad_input or conv_grad_weight. ND_ERROR_UNSUPPORTED, with nothing queued, when cuDNN
/// is missing, cannot express the call, or offers nothing for it that computes in the operands'
/// dtype, gives the same bits every time, and finds its working memory.
nd_status nd__cudnn_convolve(nd_cuda_device *device, const nd_cuda_queue *queue,
                             const nd_kernel_call *call);

/// resample or resample_adjoint of mode ND__RESAMPLE_WINDOWS. ND_ERROR_UNSUPPORTED, with nothing
/// queued, for every other one, when cuDNN is missing or refuses, and where a window reaches beyond
/// the padding, whose places cuDNN would count.
nd_status nd__cudnn_pool(nd_cuda_device *device, const nd_cuda_queue *queue,
                         const nd_kernel_call *call);
#endif
